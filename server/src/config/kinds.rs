//! The kinds of provider: what each may be configured with, and what its vendor documents.
//!
//! Knowledge of the configuration, not of the wire: an adapter states its own capability.

use app::model::Channel;

use super::duration::{HOUR, MINUTE};
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
    /// Reports back by callbacks.
    pub has_callbacks: bool,
    /// This version has its adapter.
    pub is_available: bool,
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
    has_callbacks: true,
    is_available: false,
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
        is_available: true,
        has_base_url: false,
        ..PLAIN
    },
    Kind {
        name: "http",
        channels: BOTH,
        reading: Reading::ByReference,
        is_available: true,
        required: &[&["base_url"], &["secret"]],
        ..PLAIN
    },
    Kind {
        name: "ses",
        settings: &["region", "configuration_set"],
        credentials: &["access_key_id", "secret_access_key", "session_token"],
        required: &[&["access_key_id"], &["secret_access_key"], &["region"]],
        ..PLAIN
    },
    Kind {
        name: "sendgrid",
        reading: Reading::ByScan,
        credentials: &["api_key"],
        required: &[&["api_key"]],
        ..PLAIN
    },
    Kind {
        name: "postmark",
        reading: Reading::ByReference,
        settings: &["message_stream"],
        credentials: &["token"],
        required: &[&["token"]],
        ..PLAIN
    },
    Kind {
        name: "mailgun",
        reading: Reading::ByScan,
        // "Pages younger than about half an hour are not trustworthy."
        lag: Some(30 * MINUTE),
        settings: &["domain", "region"],
        credentials: &["api_key"],
        required: &[&["api_key"]],
        ..PLAIN
    },
    Kind {
        name: "infrai",
        reading: Reading::ByScan,
        has_callbacks: false,
        credentials: &["api_key", "token"],
        required: &[&["api_key", "token"]],
        ..PLAIN
    },
    Kind {
        name: "resend",
        window: Some(24 * HOUR),
        credentials: &["api_key"],
        required: &[&["api_key"]],
        ..PLAIN
    },
    Kind {
        name: "smtp",
        has_callbacks: false,
        has_base_url: false,
        settings: &["host", "port", "tls", "username"],
        credentials: &["password"],
        required: &[&["host"], &["port"], &["tls"]],
        ..PLAIN
    },
    Kind {
        name: "twilio",
        channels: SMS,
        reading: Reading::ByScan,
        settings: &["account_sid", "messaging_service_sid"],
        credentials: &["auth_token"],
        required: &[&["account_sid"], &["auth_token"]],
        ..PLAIN
    },
    Kind {
        name: "sinch",
        channels: SMS,
        reading: Reading::ByReference,
        settings: &["service_plan_id", "region"],
        credentials: &["token", "api_key"],
        required: &[&["token", "api_key"]],
        ..PLAIN
    },
    Kind {
        name: "infobip",
        channels: SMS,
        reading: Reading::ByReference,
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
}
