//! What Amazon SNS posts: the envelope, the text that it signs, and the signature.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{
    RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
    VerificationAlgorithm,
};
use serde::Deserialize;

/// What an envelope is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Kind {
    Notification,
    SubscriptionConfirmation,
    UnsubscribeConfirmation,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Notification => "Notification",
            Self::SubscriptionConfirmation => "SubscriptionConfirmation",
            Self::UnsubscribeConfirmation => "UnsubscribeConfirmation",
        }
    }
}

/// One post of SNS. Fields that it does not sign (`UnsubscribeURL`) are not read.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Envelope {
    #[serde(rename = "Type")]
    pub kind: Kind,
    pub message_id: String,
    pub topic_arn: String,
    pub message: String,
    pub timestamp: String,
    pub signature_version: String,
    pub signature: String,
    #[serde(rename = "SigningCertURL")]
    pub certificate_url: String,
    pub subject: Option<String>,
    pub token: Option<String>,
    #[serde(rename = "SubscribeURL")]
    pub subscribe_url: Option<String>,
}

impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The message names a recipient, and a confirmation carries a token.
        f.debug_struct("Envelope").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Envelope {
    /// The signed text: name and value of each field, a line each, in the order that SNS documents.
    #[must_use]
    pub fn signed_text(&self) -> String {
        let is_message = self.kind == Kind::Notification;
        let when = |is_there: bool, name: &'static str, value: &Option<String>| {
            value.clone().filter(|_| is_there).map(|value| (name, value))
        };
        let fields = [
            Some(("Message", self.message.clone())),
            Some(("MessageId", self.message_id.clone())),
            when(is_message, "Subject", &self.subject),
            when(!is_message, "SubscribeURL", &self.subscribe_url),
            Some(("Timestamp", self.timestamp.clone())),
            when(!is_message, "Token", &self.token),
            Some(("TopicArn", self.topic_arn.clone())),
            Some(("Type", self.kind.as_str().to_owned())),
        ];
        fields.into_iter().flatten().map(|(name, value)| format!("{name}\n{value}\n")).collect()
    }

    /// Whether the holder of this RSA key signed the envelope. `key` is DER (RFC 8017 `RSAPublicKey`).
    ///
    /// Version 1 is RSA with SHA-1, version 2 with SHA-256; another one does not verify.
    #[must_use]
    pub fn is_signed(&self, key: &[u8]) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match self.signature_version.as_str() {
            "1" => &RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
            "2" => &RSA_PKCS1_2048_8192_SHA256,
            _ => return false,
        };
        let Ok(signature) = STANDARD.decode(&self.signature) else { return false };
        let text = self.signed_text();
        UnparsedPublicKey::new(algorithm, key).verify(text.as_bytes(), &signature).is_ok()
    }
}
