//! The providers: who carries the message, what they promise, and how to read them.
//!
//! A provider is chosen by its reconciliation contract, so each one states its capability as data.
//! Nothing here retries: one [`Provider::send`] is at most one request on the wire.

mod build;
pub mod demo;
pub mod http;
pub mod kept;
pub mod net;
pub mod resolver;
pub mod signature;
pub mod template;
pub mod transport;

pub use build::{BuildError, Registry, build, kinds};

use std::fmt;

use app::model::{Channel, Seen, Stamp};
use async_trait::async_trait;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::domain::{Facing, Lookup, Verdict};

/// How an attempt can be found after its answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Not at all.
    None,
    /// Directly, by the attempt id that travelled with the message.
    ByReference,
    /// By scanning the recipient's recent messages.
    ByScan,
    /// By an operation id that we chose.
    ByOperation,
}

/// What a provider can do. Times in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capability {
    pub kind: &'static str,
    pub channels: Vec<Channel>,
    pub reading: Reading,
    /// How long after a call absence is not yet believed; none: never believed.
    pub settle: Option<i64>,
    /// How long a repeated key does not send again.
    pub replay_window: Option<i64>,
    /// Verified callbacks reach us.
    pub has_callbacks: bool,
    /// The vendor takes a validity period.
    pub has_validity: bool,
}

impl Capability {
    /// What the rules need of it.
    #[must_use]
    pub fn facing(&self) -> Facing {
        Facing {
            settle: self.settle,
            is_readable: self.reading != Reading::None,
            replay_window: self.replay_window,
            has_callbacks: self.has_callbacks,
        }
    }
}

/// Text that must never be printed, stored or sent anywhere but to the provider.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Secret(String);

impl Secret {
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself. Every use of this is a place to review.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// One rendered message. Every field is fixed for its attempt, so that a replay repeats the same bytes.
#[derive(Debug, Clone)]
pub struct Message {
    pub attempt_id: String,
    pub channel: Channel,
    /// E.164 number or email address.
    pub to: Secret,
    pub text: Secret,
    pub subject: Option<String>,
    pub html: Option<Secret>,
    /// The reset's own expiry: nobody needs the message after it.
    pub valid_until: Stamp,
}

/// Until when a call's owner may still write its first byte, and wait for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// On [`crate::clock::Clock::boot`], in microseconds.
    pub boot: i64,
}

/// What a read needs to find an attempt.
#[derive(Debug, Clone)]
pub struct Query {
    pub attempt_id: String,
    pub message_id: Option<String>,
    pub channel: Channel,
    /// When the first call of the attempt started.
    pub since: Stamp,
    /// Only for providers that are scanned by recipient; already compared with the fingerprint.
    pub to: Option<Secret>,
}

/// A callback as it came in.
#[derive(Debug)]
pub struct CallbackRequest<'a> {
    pub headers: &'a ::http::HeaderMap,
    /// Our own configured public URL of this endpoint with its query, never guessed from `Host`.
    pub url: &'a str,
    pub body: &'a [u8],
    pub now: Stamp,
}

/// What one verified callback says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    pub attempt_id: String,
    pub seen: Seen,
    pub message_id: Option<String>,
    /// The provider's own time of it.
    pub at: Option<Stamp>,
}

/// Why a callback is refused. The answer never says more than the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    /// No key is configured: there is no such endpoint (404).
    #[error("no callback key is configured")]
    NotConfigured,
    /// 401.
    #[error("the signature does not verify")]
    Signature,
    /// 401: older or newer than the tolerance.
    #[error("the signature's time is too far from ours")]
    Stale,
    /// 400.
    #[error("the body is not what this provider sends")]
    Malformed,
}

/// One configured provider.
#[async_trait]
pub trait Provider: Send + Sync + fmt::Debug {
    /// What it can do.
    fn capability(&self) -> &Capability;

    /// Sends at most one request. Never retries, never follows a redirect, writes nothing past the
    /// deadline. Every failure is a [`Verdict`].
    async fn send(&self, message: &Message, deadline: Deadline) -> Verdict;

    /// Reads whether the provider has this attempt, and what became of it. Never sends.
    async fn find(&self, query: &Query, deadline: Deadline) -> Lookup;

    /// Checks a callback and says what it states.
    ///
    /// # Errors
    /// [`CallbackError`]; fails closed.
    fn verify_callback(&self, request: &CallbackRequest<'_>)
    -> Result<Vec<Receipt>, CallbackError>;
}
