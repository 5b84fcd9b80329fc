//! The providers: who carries the message, what they promise, and how to read them.
//!
//! A provider is chosen by its reconciliation contract, so each one states its capability as data.
//! Nothing here retries: one [`Provider::send`] is at most one request on the wire.

mod build;
pub mod classes;
pub mod demo;
pub mod http;
pub mod infobip;
pub mod infrai;
pub mod kept;
pub mod mail;
pub mod mailgun;
pub mod net;
pub mod postmark;
pub mod resend;
pub mod resolver;
pub mod sender;
pub mod sendgrid;
pub mod ses;
pub mod signature;
pub mod sinch;
pub mod smtp;
pub mod svix;
pub mod template;
pub mod transport;
pub mod twilio;
pub mod vendor;

pub use build::{BuildError, Registry, build, is_available, kinds};

use std::fmt;
use std::sync::Arc;

use app::model::{Channel, Seen, Stamp};
use async_trait::async_trait;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::config::{Kind, ProviderConfig};
use crate::domain::{Facing, Lookup, Verdict};
use crate::keys::{self, Keys};

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
    /// By the provider's own id alone: what became of a message is seen, a lost answer is not.
    ByMessageId,
}

impl Reading {
    /// An attempt can be found whose answer was lost.
    #[must_use]
    pub const fn finds_attempts(self) -> bool {
        !matches!(self, Self::None | Self::ByMessageId)
    }
}

/// What a provider can do. Times in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capability {
    pub kind: &'static str,
    pub channels: Vec<Channel>,
    pub reading: Reading,
    /// How long after a call absence is not yet believed; none: never believed.
    pub settle: Option<i64>,
    /// Until when the vendor says that a look-up may miss a message; none: it does not say.
    pub lag: Option<i64>,
    /// How long a look-up sees a message; after it, absence says nothing. None: not documented.
    pub retention: Option<i64>,
    /// Where a repeated send names its first try, for instance `Idempotency-Key`; none: nowhere.
    pub idempotency: Option<&'static str>,
    /// How long a repeated key does not send again.
    pub replay_window: Option<i64>,
    /// How its callbacks prove who sent them; none: it has none, or no key is configured.
    pub callbacks: Option<&'static str>,
    /// The vendor takes a validity period.
    pub has_validity: bool,
}

impl Capability {
    /// What the kind's row says, less what the options switch off.
    #[must_use]
    pub fn of(kind: &Kind, config: Option<&ProviderConfig>) -> Self {
        let is_readable = config.is_none_or(|config| config.lookup);
        let has_key =
            config.is_none_or(|config| kind.callback_key.is_none_or(|key| config.has_value(key)));
        Self {
            kind: kind.name,
            channels: kind.channels.to_vec(),
            reading: if is_readable { kind.reading } else { Reading::None },
            settle: config.map_or(kind.settle, |config| config.settle.or(kind.settle)),
            lag: kind.lag,
            retention: kind.retention,
            idempotency: kind.idempotency,
            // A key that the vendor does not look at would send again.
            replay_window: match config {
                Some(config) if kind.idempotency.is_some() => config.replay_window(),
                Some(_) => None,
                None => kind.window,
            },
            callbacks: kind.callbacks.filter(|_| has_key),
            has_validity: kind.has_validity,
        }
    }

    /// Verified callbacks reach us.
    #[must_use]
    pub const fn has_callbacks(&self) -> bool {
        self.callbacks.is_some()
    }

    /// What the rules need of it.
    #[must_use]
    pub fn facing(&self) -> Facing {
        Facing {
            settle: self.settle,
            is_readable: self.reading != Reading::None,
            replay_window: self.replay_window,
            has_callbacks: self.has_callbacks(),
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
    /// When it is asked.
    pub now: Stamp,
    /// Only for providers that are scanned by recipient; already compared with the fingerprint.
    pub to: Option<Secret>,
    /// Recognises the attempt's text; none where it was not kept.
    pub text: Option<TextProof>,
}

/// How far the provider's clock may lie from ours when a scan compares times: 2 minutes.
pub const SCAN_SKEW: i64 = 120_000_000;

impl Query {
    /// A message that the provider dates earlier is not this attempt's.
    #[must_use]
    pub const fn earliest(&self) -> Stamp {
        self.since.plus(-SCAN_SKEW)
    }

    /// A message of this time may be the attempt's, if nothing else is known of it.
    #[must_use]
    pub const fn is_near(&self, at: Stamp) -> bool {
        at.since(self.since).abs() <= SCAN_SKEW
    }
}

/// Recognises a text by its keyed hash: the text itself is not kept.
#[derive(Clone)]
pub struct TextProof {
    keys: Arc<Keys>,
    hash: String,
}

impl TextProof {
    /// Of a hash that [`Self::hash_of`] gave.
    #[must_use]
    pub const fn new(keys: Arc<Keys>, hash: String) -> Self {
        Self { keys, hash }
    }

    /// What is kept of a text.
    #[must_use]
    pub fn hash_of(keys: &Keys, text: &str) -> String {
        keys.content_hash(&[b"text", text.as_bytes()])
    }

    /// Whether this is the very text.
    #[must_use]
    pub fn is_of(&self, text: &str) -> bool {
        keys::equal(Self::hash_of(&self.keys, text).as_bytes(), self.hash.as_bytes())
    }
}

impl fmt::Debug for TextProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TextProof")
    }
}

/// A callback as it came in.
#[derive(Debug)]
pub struct CallbackRequest<'a> {
    pub method: &'a ::http::Method,
    /// Path and query as the client sent them.
    pub path: &'a str,
    pub query: Option<&'a str>,
    pub headers: &'a ::http::HeaderMap,
    /// Our own configured base, never guessed from `Host`.
    pub public_url: &'a str,
    pub body: &'a [u8],
    pub now: Stamp,
}

impl CallbackRequest<'_> {
    /// The whole public URL that the provider was told to call.
    #[must_use]
    pub fn url(&self) -> String {
        let query = self.query.map_or_else(String::new, |query| format!("?{query}"));
        format!("{}{}{query}", self.public_url, self.path)
    }

    /// The first parameter of this name in the query, decoded.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<String> {
        url::form_urlencoded::parse(self.query?.as_bytes())
            .find_map(|(key, value)| (key == name).then(|| value.into_owned()))
    }

    /// The header of this name, if there is exactly one and it is visible ASCII.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => value.to_str().ok(),
            _ => None,
        }
    }
}

/// Why a provider says that a message failed, or what else it says of it: a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The mailbox or number does not exist.
    BadRecipient,
    /// Refused for good by the recipient's server.
    Bounced,
    /// Refused for now, and given up.
    SoftBounced,
    /// The recipient's side refuses us as a sender.
    Blocked,
    /// The provider itself holds the recipient back: an earlier bounce, complaint, or a list.
    Suppressed,
    /// The recipient does not want our messages.
    OptedOut,
    /// The recipient reported it as unwanted.
    Complained,
    /// Filtered for what it says, or because the sender is not registered.
    Filtered,
    /// The validity period was over first.
    Expired,
    /// The handset is off or out of reach.
    Unreachable,
    /// The provider refused it after it had taken it.
    Rejected,
    /// Taken back before it left.
    Canceled,
    /// The recipient opened it, or followed its link.
    Opened,
    /// Failed, and the provider does not say why.
    Unspecified,
}

impl Cause {
    /// The code in facts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadRecipient => "bad_recipient",
            Self::Bounced => "bounced",
            Self::SoftBounced => "soft_bounced",
            Self::Blocked => "blocked",
            Self::Suppressed => "suppressed",
            Self::OptedOut => "opted_out",
            Self::Complained => "complained",
            Self::Filtered => "filtered",
            Self::Expired => "expired",
            Self::Unreachable => "unreachable",
            Self::Rejected => "rejected",
            Self::Canceled => "canceled",
            Self::Opened => "opened",
            Self::Unspecified => "unspecified",
        }
    }

    /// Reads the code.
    #[must_use]
    pub fn parse(code: &str) -> Option<Self> {
        [
            Self::BadRecipient,
            Self::Bounced,
            Self::SoftBounced,
            Self::Blocked,
            Self::Suppressed,
            Self::OptedOut,
            Self::Complained,
            Self::Filtered,
            Self::Expired,
            Self::Unreachable,
            Self::Rejected,
            Self::Canceled,
            Self::Opened,
            Self::Unspecified,
        ]
        .into_iter()
        .find(|cause| cause.as_str() == code)
    }
}

/// What one verified callback says. At least one of the two ids is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    pub attempt_id: Option<String>,
    pub message_id: Option<String>,
    pub seen: Seen,
    pub cause: Option<Cause>,
    /// The provider's own time of it.
    pub at: Option<Stamp>,
}

/// What a verified callback comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Callback {
    pub receipts: Vec<Receipt>,
    /// What the provider wants to hear besides 200; none: `{}`.
    pub answer: Option<PlainAnswer>,
}

impl From<Vec<Receipt>> for Callback {
    fn from(receipts: Vec<Receipt>) -> Self {
        Self { receipts, answer: None }
    }
}

/// An answer in the provider's own protocol, as plain text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainAnswer {
    pub status: ::http::StatusCode,
    pub text: String,
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
    /// 503: what the check needs cannot be had now; the provider repeats it.
    #[error("what the check needs cannot be had")]
    Unavailable,
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

    /// Checks a callback and says what it states. Nothing of it is believed, and nothing is fetched for
    /// it, before it is known to come from the provider; what it names is fetched only from hosts that
    /// the adapter itself lists.
    ///
    /// # Errors
    /// [`CallbackError`]; fails closed.
    async fn verify_callback(
        &self,
        request: &CallbackRequest<'_>,
    ) -> Result<Callback, CallbackError>;
}
