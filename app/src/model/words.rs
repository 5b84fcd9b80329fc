//! Closed vocabularies. Each word has one spelling, used in JSON, in the database and on the pages.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A word that is not in its vocabulary. The word itself is not kept: it may be somebody's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownWord(pub &'static str);

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a known {}", self.0)
    }
}

impl std::error::Error for UnknownWord {}

macro_rules! words {
    ($(#[$meta:meta])* $name:ident, $what:literal { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name { $($(#[$vmeta])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            /// Every word, in the order of the contract.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The one spelling.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;
            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                match text { $($word => Ok(Self::$variant),)+ _ => Err(UnknownWord($what)) }
            }
        }
    };
}

words! {
    /// Where a notification stands (CONTRACT section 2). No other state is ever shown or exported.
    State, "state" {
        /// Admitted durably; waits for a worker. Nothing of it is on the wire.
        Accepted = "accepted",
        /// A worker holds the lease: before its marker nothing was sent, after it something may have been.
        Dispatching = "dispatching",
        /// Sent or not, nobody can say yet. Never sent again without proof of absence.
        DispatchUnknown = "dispatch_unknown",
        /// The provider has taken the message.
        Sent = "sent",
        /// The provider says that the message arrived.
        Delivered = "delivered",
        /// Ended without delivery, for a reason that a retry would not mend.
        FailedFinal = "failed_final",
        /// Its time ran out.
        Expired = "expired",
    }
}

impl State {
    /// True for the three states that never change.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Delivered | Self::FailedFinal | Self::Expired)
    }
}

words! {
    /// Why a transition happened (CONTRACT section 2). Closed: each one has a section in `docs/reason-codes.md`.
    Reason, "reason" {
        Admitted = "admitted",
        Claimed = "claimed",
        ExpiredInQueue = "expired_in_queue",
        ExpiredWhileFrozen = "expired_while_frozen",
        Cancelled = "cancelled",
        ProviderAccepted = "provider_accepted",
        NotSent = "not_sent",
        RateLimited = "rate_limited",
        TransientRefusal = "transient_refusal",
        ProviderStopped = "provider_stopped",
        LeaseLostBeforeCall = "lease_lost_before_call",
        ResolverUnavailable = "resolver_unavailable",
        FrozenBeforeCall = "frozen_before_call",
        Timeout = "timeout",
        ConnectionLost = "connection_lost",
        AmbiguousResponse = "ambiguous_response",
        ResultNotRecorded = "result_not_recorded",
        LeaseLostAfterCall = "lease_lost_after_call",
        ShutdownDuringCall = "shutdown_during_call",
        RefusedPermanently = "refused_permanently",
        AttemptsExhausted = "attempts_exhausted",
        DestinationNotFound = "destination_not_found",
        PolicyCountry = "policy_country",
        PolicyPrice = "policy_price",
        PolicyLimit = "policy_limit",
        ExpiredBeforeCall = "expired_before_call",
        TokenConsumed = "token_consumed",
        TokenSuperseded = "token_superseded",
        ReconciledFound = "reconciled_found",
        ReconciledDelivered = "reconciled_delivered",
        ReconciledFailed = "reconciled_failed",
        ReconciledAbsent = "reconciled_absent",
        IdempotentReplay = "idempotent_replay",
        ReplayInconclusive = "replay_inconclusive",
        ExpiredUnresolved = "expired_unresolved",
        DeliveryEvidence = "delivery_evidence",
        Undelivered = "undelivered",
        Restored = "restored",
    }
}

impl Reason {
    /// True for the reasons which show that the call before them sent nothing, so that one more attempt
    /// is authorised (CONTRACT section 1, "proof").
    #[must_use]
    pub const fn is_proof(self) -> bool {
        matches!(
            self,
            Self::NotSent
                | Self::RateLimited
                | Self::TransientRefusal
                | Self::ProviderStopped
                | Self::ReconciledAbsent
        )
    }

    /// True for proofs whose call counts against `attempts_max`; the others are bounded by time and by
    /// the ceiling of [`ATTEMPT_CEILING`] alone.
    #[must_use]
    pub const fn spends_attempt(self) -> bool {
        matches!(self, Self::TransientRefusal | Self::ReconciledAbsent)
    }
}

/// The highest attempt number there can be; the database refuses more (CONTRACT section 2, "Budgets").
pub const ATTEMPT_CEILING: u32 = 20;

words! {
    /// How the message travels.
    Channel, "channel" {
        Sms = "sms",
        Email = "email",
    }
}

words! {
    /// What kind of thing a fact states.
    FactKind, "kind of fact" {
        /// A change of state.
        Transition = "transition",
        /// A marker committed: from here on the call counts, whatever the network did.
        Call = "call",
        /// An answer to one of our reads of the provider.
        Lookup = "lookup",
        /// A verified callback of the provider.
        Callback = "callback",
        /// The answer of a call whose owner had lost its lease when it came.
        LateAnswer = "late_answer",
        /// Evidence about an attempt after a later call had started: the duplicate guardrail.
        DuplicateEvidence = "duplicate_evidence",
        /// The same admission again, answered with the first record.
        AdmissionReplay = "admission_replay",
        /// An admission that met this record and was refused with 409.
        AdmissionConflict = "admission_conflict",
        /// A later request in the same window, answered with the first record.
        WindowConverged = "window_converged",
        /// A later request of the same seller and purpose, and how it was answered.
        LaterRequest = "later_request",
        /// A token's change: consumed or superseded; or a use of it that was refused.
        Token = "token",
        /// Polling of a sent notification is over.
        Settled = "settled",
        Freeze = "freeze",
        Unfreeze = "unfreeze",
        /// Ranges of the log are named whose facts leave at the end of their retention.
        Purge = "purge",
        /// A legal hold is put or ended.
        LegalHold = "legal_hold",
        /// A setting that the audit names has changed.
        Config = "config",
        /// The breaker of a country opened, let probes through, or closed.
        Breaker = "breaker",
        /// Something that a signed-in operator did or looked at.
        Operator = "operator",
    }
}

words! {
    /// What a caller should do next.
    Next, "next step" {
        /// The outcome is still open: ask again, send by no other way.
        Wait = "wait",
        /// Over without a usable message: a new request is safe.
        NewRequest = "new_request",
        /// Nothing to do.
        None = "none",
    }
}

words! {
    /// How one call ended, as its row keeps it.
    CallOutcome, "call outcome" {
        Accepted = "accepted",
        NotSent = "not_sent",
        RateLimited = "rate_limited",
        TransientRefusal = "transient_refusal",
        ProviderStopped = "provider_stopped",
        RefusedPermanently = "refused_permanently",
        Unknown = "unknown",
    }
}

words! {
    /// What a provider says about a message that it has.
    Seen, "message state" {
        Accepted = "accepted",
        Delivered = "delivered",
        Failed = "failed",
    }
}

words! {
    /// How soon somebody has to look.
    Severity, "severity" {
        /// Wakes somebody.
        Page = "page",
        /// Waits for the working day.
        Ticket = "ticket",
    }
}

words! {
    /// Where an alert stands.
    AlertState, "alert state" {
        /// Seen, not yet for long enough.
        Pending = "pending",
        Firing = "firing",
        /// Still true, and somebody has said that they are on it.
        Acknowledged = "acknowledged",
        /// Was not true any more for long enough.
        Resolved = "resolved",
    }
}

words! {
    /// What is watched. Each has a section in the runbook.
    AlertRule, "alert rule" {
        /// More calls than facts authorise, or evidence that one event was sent twice.
        DuplicateDispatch = "duplicate_dispatch",
        /// Events could be claimed and are not.
        QueueAge = "queue_age",
        /// More events are due than the workers take.
        OutboxBacklog = "outbox_backlog",
        /// Events wait for their next attempt, for too long.
        BackingOffAge = "backing_off_age",
        /// A freeze holds events back past its review time, or has none and is old.
        FrozenReview = "frozen_review",
        /// Outcomes stay unknown beyond the budget of polling.
        UnknownAge = "unknown_age",
        /// Events ran out of time before anything was sent, and no freeze held them.
        ExpiredBeforeDispatch = "expired_before_dispatch",
        /// Reads of providers come later than planned.
        LookupAllowance = "lookup_allowance",
        /// Verified callbacks name attempts that are not ours.
        CallbackUnmatched = "callback_unmatched",
        /// Facts wait for their seal.
        SealLag = "seal_lag",
        /// A loop or a whole process has fallen silent.
        WorkerTicks = "worker_ticks",
        /// A process's clock is far from the database's.
        ClockOffset = "clock_offset",
        /// A provider takes nothing.
        ProviderFailing = "provider_failing",
        BurnFast = "burn_fast",
        BurnMedium = "burn_medium",
        BurnSlow = "burn_slow",
    }
}
