//! The kinds of provider: what each may be configured with, and what its vendor documents.
//!
//! Knowledge of the configuration, not of the wire: an adapter states its own capability.

use app::model::Channel;

use super::duration::{DAY, HOUR, MINUTE, SECOND};
use crate::providers::Reading;

/// One kind of provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// The word in `kind = "…"`.
    pub name: &'static str,
    pub channels: &'static [Channel],
    /// How an attempt can be found after its answer was lost.
    pub reading: Reading,
    /// A repeated key does not send again for so long, as the vendor documents it.
    pub window: Option<i64>,
    /// Until when the vendor itself says that a look-up may miss a message. `settle` is not shorter.
    pub lag: Option<i64>,
    /// How long a look-up sees a message; none: the vendor does not say.
    pub retention: Option<i64>,
    /// After so long absence is believed without a `settle`; only the built-in simulator knows that.
    pub settle: Option<i64>,
    /// Where a repeated send names its first try; none: the vendor has no such key.
    pub idempotency: Option<&'static str>,
    /// How its callbacks prove who sent them; none: it has none.
    pub callbacks: Option<&'static str>,
    /// The key without which there is no endpoint for its callbacks.
    pub callback_key: Option<&'static str>,
    /// The vendor takes a validity period.
    pub has_validity: bool,
    /// Has `base_url`.
    pub(super) has_base_url: bool,
    /// Keys of its own that may be shown.
    pub(super) settings: &'static [&'static str],
    /// Keys of its own that may not.
    pub(super) credentials: &'static [&'static str],
    /// Of these keys, one of each group must be there.
    pub(super) required: &'static [&'static [&'static str]],
}

const BOTH: &[Channel] = &[Channel::Sms, Channel::Email];
const SMS: &[Channel] = &[Channel::Sms];
const EMAIL: &[Channel] = &[Channel::Email];

/// What most kinds have in common.
const PLAIN: Kind = Kind {
    name: "",
    channels: EMAIL,
    reading: Reading::None,
    window: None,
    lag: None,
    retention: None,
    settle: None,
    idempotency: None,
    callbacks: None,
    callback_key: Some("webhook_secret"),
    has_validity: false,
    has_base_url: true,
    settings: &[],
    credentials: &[],
    required: &[],
};

/// Every kind of the contract, in its order.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "demo",
        channels: BOTH,
        reading: Reading::ByReference,
        // It answers from memory (CONTRACT section 9).
        settle: Some(2 * SECOND),
        idempotency: Some("Idempotency-Key"),
        callbacks: Some("sendonce_hmac_sha256"),
        has_validity: true,
        has_base_url: false,
        ..PLAIN
    },
    Kind {
        name: "http",
        channels: BOTH,
        reading: Reading::ByReference,
        idempotency: Some("Idempotency-Key"),
        callbacks: Some("sendonce_hmac_sha256"),
        has_validity: true,
        required: &[&["base_url"], &["secret"]],
        ..PLAIN
    },
    Kind {
        name: "ses",
        callbacks: Some("sns_rsa"),
        callback_key: Some("topic_arn"),
        settings: &["region", "configuration_set", "topic_arn"],
        credentials: &["access_key_id", "secret_access_key", "session_token"],
        required: &[&["access_key_id"], &["secret_access_key"], &["region"], &["from"]],
        ..PLAIN
    },
    Kind {
        name: "sendgrid",
        reading: Reading::ByScan,
        retention: Some(30 * DAY),
        callbacks: Some("sendgrid_ecdsa"),
        credentials: &["api_key"],
        required: &[&["api_key"], &["from"]],
        ..PLAIN
    },
    Kind {
        name: "postmark",
        reading: Reading::ByReference,
        retention: Some(45 * DAY),
        callbacks: Some("basic_or_header_secret"),
        settings: &["message_stream"],
        credentials: &["token"],
        required: &[&["token"], &["from"]],
        ..PLAIN
    },
    Kind {
        name: "mailgun",
        reading: Reading::ByScan,
        // "Pages younger than about half an hour are not trustworthy."
        lag: Some(30 * MINUTE),
        // At least 3 days; longer by plan.
        retention: Some(3 * DAY),
        callbacks: Some("mailgun_hmac_sha256"),
        has_validity: true,
        settings: &["domain", "region"],
        credentials: &["api_key"],
        required: &[&["api_key"]],
        ..PLAIN
    },
    Kind {
        name: "infrai",
        reading: Reading::ByScan,
        idempotency: Some("Idempotency-Key"),
        credentials: &["api_key", "token"],
        required: &[&["api_key", "token"]],
        ..PLAIN
    },
    Kind {
        name: "resend",
        reading: Reading::ByMessageId,
        window: Some(24 * HOUR),
        idempotency: Some("Idempotency-Key"),
        callbacks: Some("svix_hmac_sha256"),
        credentials: &["api_key"],
        required: &[&["api_key"], &["from"]],
        ..PLAIN
    },
    Kind {
        name: "smtp",
        has_base_url: false,
        // Delivery status notifications, handed in by the mail system that receives them.
        callbacks: Some("sendonce_hmac_sha256"),
        settings: &[
            "host",
            "port",
            "tls",
            "username",
            "ca_file",
            "hello",
            "dkim_selector",
            "dkim_domain",
            "dkim_key_file",
        ],
        credentials: &["password"],
        required: &[&["host"], &["port"], &["tls"], &["from"]],
        ..PLAIN
    },
    Kind {
        name: "twilio",
        channels: SMS,
        reading: Reading::ByScan,
        // Bodies are deleted after 30 days; without them nothing can be recognised.
        retention: Some(30 * DAY),
        callbacks: Some("twilio_hmac_sha1"),
        callback_key: Some("auth_token"),
        has_validity: true,
        settings: &["account_sid", "messaging_service_sid"],
        credentials: &["auth_token"],
        required: &[&["account_sid"], &["auth_token"]],
        ..PLAIN
    },
    Kind {
        name: "sinch",
        channels: SMS,
        reading: Reading::ByReference,
        callbacks: Some("sinch_hmac_sha256"),
        has_validity: true,
        settings: &["service_plan_id", "region"],
        credentials: &["token", "api_key"],
        required: &[&["token", "api_key"]],
        ..PLAIN
    },
    Kind {
        name: "infobip",
        channels: SMS,
        reading: Reading::ByReference,
        retention: Some(48 * HOUR),
        // Honoured only where the vendor has switched it on for the account: `idempotent = true`.
        idempotency: Some("messageId"),
        callbacks: Some("url_secret"),
        has_validity: true,
        credentials: &["api_key"],
        required: &[&["api_key"]],
        ..PLAIN
    },
];

impl Kind {
    /// The kind of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// This version has its adapter.
    #[must_use]
    pub fn is_available(&self) -> bool {
        crate::providers::is_available(self.name)
    }
}
