//! The rules: what may happen to a notification, decided without a database, a clock or a network.
//!
//! [`Record::apply`] is the only place that changes a state. The store, the simulation and the tables in
//! the documentation all go through it. Nothing here reads time or randomness: both come in by [`Ctx`].

mod apply;
mod evidence;
mod policy;
mod record;
mod rules;
#[cfg(test)]
mod tests;

pub use apply::{Event, FENCE_LEAP, Illegal, NewCall, PreCall, Step};
pub use policy::{Ctx, Facing, Policy};
pub use record::{Held, Phase, Record};
pub use rules::{Rule, TRANSITIONS, is_legal};

use app::model::{CallOutcome, Reason, Seen, Stamp};

/// What the transport and the provider's answer say about one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The provider took the message, or names the one that it had taken under the same key.
    Accepted { message_id: Option<String> },
    /// Certainly nothing left: refused connection, failed name look-up, failed TLS before any byte.
    NotSent { code: String },
    /// The provider's "too many": not processed. `retry_at` as the provider asked, already clamped.
    RateLimited { retry_at: Option<Stamp> },
    /// The provider says that it did not take this one and may take a later one.
    TransientRefusal { code: String },
    /// The provider says that it will never take this one.
    RefusedPermanently { code: String },
    /// Our own credentials or configuration: the provider is stopped, the events wait.
    ProviderStopped { code: String },
    /// Any doubt.
    Unknown { why: Doubt, code: String },
}

/// Why nobody can say whether the message was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    Timeout,
    ConnectionLost,
    AmbiguousResponse,
    ResultNotRecorded,
    ShutdownDuringCall,
}

impl Doubt {
    /// The reason code of this doubt.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::Timeout => Reason::Timeout,
            Self::ConnectionLost => Reason::ConnectionLost,
            Self::AmbiguousResponse => Reason::AmbiguousResponse,
            Self::ResultNotRecorded => Reason::ResultNotRecorded,
            Self::ShutdownDuringCall => Reason::ShutdownDuringCall,
        }
    }
}

impl Verdict {
    /// What the call's row keeps.
    #[must_use]
    pub const fn outcome(&self) -> CallOutcome {
        match self {
            Self::Accepted { .. } => CallOutcome::Accepted,
            Self::NotSent { .. } => CallOutcome::NotSent,
            Self::RateLimited { .. } => CallOutcome::RateLimited,
            Self::TransientRefusal { .. } => CallOutcome::TransientRefusal,
            Self::RefusedPermanently { .. } => CallOutcome::RefusedPermanently,
            Self::ProviderStopped { .. } => CallOutcome::ProviderStopped,
            Self::Unknown { .. } => CallOutcome::Unknown,
        }
    }

    /// The provider's or the transport's code, for `detail`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Accepted { .. } | Self::RateLimited { .. } => None,
            Self::NotSent { code }
            | Self::TransientRefusal { code }
            | Self::RefusedPermanently { code }
            | Self::ProviderStopped { code }
            | Self::Unknown { code, .. } => Some(code),
        }
    }
}

/// The answer to one read of the provider. Three answers, never two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// The provider has our attempt.
    Found { seen: Seen, message_id: Option<String> },
    /// The provider says that it has no such attempt.
    Absent,
    /// Down, refused, incomplete, or not certain to be about our attempt.
    CannotTell { code: String },
}

/// Whether the record's own token may still be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenState {
    /// There is no token, or it is live.
    Live,
    Consumed,
    Superseded,
}
