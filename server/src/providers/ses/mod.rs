//! Amazon SES, API v2: `POST /v2/email/outbound-emails`, signed with SigV4.
//!
//! SES takes no idempotency key and has no read that knows our attempt: what it was asked for and has not
//! answered stays unknown until an event tells. The attempt id travels as a message tag, which SES repeats in
//! the events that its configuration set sends to an SNS topic, and as a header of the message. Those events
//! are believed when the topic is the configured one and SNS has signed them ([`sns`], [`certificates`]).
//!
//! The SDK is not used: it repeats calls by itself, also after a timeout.

pub mod certificates;
pub mod sns;

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use app::model::{Seen, Stamp};
use async_trait::async_trait;
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::certificates::{Certificates, Pin};
use self::sns::{Envelope, Kind};
use super::classes::{self, Class, Row, Taken, coded, status};
use super::http::verdict_of_failure;
use super::mail::one_recipient;
use super::sender::{ATTEMPT_HEADER, ATTEMPT_KEY, Sender};
use super::transport::{Failure, Kind as FailureKind, Phase, Transport};
use super::vendor::{self, Parts, is_attempt_id};
use super::{
    BuildError, Callback, CallbackError, CallbackRequest, Capability, Cause, Deadline, Message,
    Provider, Query, Receipt, Secret, kept,
};
use crate::clock::Clock;
use crate::domain::{Lookup, Verdict};
use crate::keys;

/// The name that SES is signed under.
const SERVICE: &str = "ses";

const PATH: &str = "/v2/email/outbound-emails";

/// Names the kind of an error, before a colon.
const ERROR_HEADER: &str = "x-amzn-errortype";

/// How old an event may be: SNS repeats a post for at most an hour.
pub const EVENT_AGE_MAX: i64 = 2 * 3600 * 1_000_000;

/// How far the clock of SNS may be ahead of ours.
const EVENT_AHEAD_MAX: i64 = 300 * 1_000_000;

const COMMON: &str =
    "AWS common errors, docs.aws.amazon.com/ses/latest/APIReference/CommonErrors.html";
const ACCOUNT: &str = "PROVIDERS 5: account or set-up, whatever the message";

/// What SES's answers mean. The code is the error's type: `x-amzn-ErrorType`, else `__type` of the body.
pub const CLASSES: &[Row] = &[
    status(200, Class::Accepted, "PROVIDERS 3.1: 200 with a MessageId"),
    coded(400, "MessageRejected", Class::Permanent, "PROVIDERS 5: bad content"),
    coded(400, "BadRequestException", Class::Permanent, "PROVIDERS 5: bad input"),
    coded(400, "AccountSuspendedException", Class::Config, ACCOUNT),
    coded(400, "SendingPausedException", Class::Config, ACCOUNT),
    coded(400, "MailFromDomainNotVerifiedException", Class::Config, ACCOUNT),
    coded(400, "LimitExceededException", Class::Config, ACCOUNT),
    coded(400, "AccessDeniedException", Class::Config, COMMON),
    coded(400, "IncompleteSignature", Class::Config, COMMON),
    coded(400, "NotAuthorized", Class::Config, COMMON),
    coded(400, "RequestExpired", Class::Config, COMMON),
    coded(400, "ValidationError", Class::Permanent, COMMON),
    coded(400, "ThrottlingException", Class::RateLimited, COMMON),
    coded(404, "NotFoundException", Class::Config, "PROVIDERS 5: no such configuration set"),
    status(401, Class::Config, COMMON),
    status(403, Class::Config, "PROVIDERS 5: signature or credentials"),
    status(429, Class::RateLimited, "PROVIDERS 5: TooManyRequestsException"),
];

/// One configured provider of kind `ses`.
pub struct Ses {
    base_url: String,
    region: String,
    credentials: Credentials,
    from: Sender,
    configuration_set: Option<String>,
    /// Events of any other topic are not ours.
    topic_arn: Option<String>,
    certificates: Certificates,
    capability: Capability,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
}

impl std::fmt::Debug for Ses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ses").field("region", &self.region).finish_non_exhaustive()
    }
}

/// Makes a provider of kind `ses`.
///
/// # Errors
/// Names the key that is missing or wrong.
pub fn make(parts: &Parts<'_>) -> Result<Arc<dyn Provider>, BuildError> {
    let region = parts.setting("region")?;
    if !is_region(&region) {
        return Err(parts.invalid("region", "is no region, such as \"eu-central-1\""));
    }
    let top = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    let base_url = parts.base_url(&format!("https://email.{region}.{top}"))?;
    let text = |secret: &Secret| secret.expose().to_owned();
    let credentials = Credentials::new(
        text(&parts.credential("access_key_id")?),
        text(&parts.credential("secret_access_key")?),
        parts.config.credential("session_token").map(text),
        None,
        "sendonce",
    );
    let topic_arn = parts.config.setting("topic_arn").map(str::to_owned);
    let topic_region = match &topic_arn {
        None => region.as_str(),
        Some(arn) => region_of(arn).ok_or_else(|| {
            parts.invalid(
                "topic_arn",
                "is no topic, such as \"arn:aws:sns:eu-central-1:123456789012:ses\"",
            )
        })?,
    };
    let pin = Pin::new(topic_region, &base_url);
    let certificates =
        Certificates::new(pin, Arc::clone(&parts.clock), Arc::clone(&parts.transport));
    Ok(Arc::new(Ses {
        base_url,
        from: Sender::of(parts)?,
        configuration_set: parts.config.setting("configuration_set").map(str::to_owned),
        capability: parts.capability()?,
        clock: Arc::clone(&parts.clock),
        transport: Arc::clone(&parts.transport),
        region,
        credentials,
        topic_arn,
        certificates,
    }))
}

/// A region is part of host names: letters, digits and hyphens.
fn is_region(text: &str) -> bool {
    (1..=32).contains(&text.len())
        && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// The region of `arn:<partition>:sns:<region>:<account>:<topic>`.
fn region_of(arn: &str) -> Option<&str> {
    let parts: Vec<&str> = arn.split(':').collect();
    match parts.as_slice() {
        ["arn", partition, "sns", region, account, topic]
            if partition.starts_with("aws")
                && is_region(region)
                && account.bytes().all(|c| c.is_ascii_digit())
                && !topic.is_empty() =>
        {
            Some(region)
        }
        _ => None,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Body<'a> {
    from_email_address: String,
    destination: Destination<'a>,
    content: Content<'a>,
    email_tags: [Named<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration_set_name: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Destination<'a> {
    to_addresses: [&'a str; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Content<'a> {
    simple: Simple<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Simple<'a> {
    subject: Text<'a>,
    body: Texts<'a>,
    headers: [Named<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Texts<'a> {
    text: Text<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    html: Option<Text<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Text<'a> {
    data: &'a str,
    charset: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Named<'a> {
    name: &'static str,
    value: &'a str,
}

const fn utf8(data: &str) -> Text<'_> {
    Text { data, charset: "UTF-8" }
}

impl Ses {
    async fn post(
        &self,
        message: &Message,
        deadline: Deadline,
    ) -> Result<Response<Bytes>, Failure> {
        let html = message.html.as_ref();
        let body = Body {
            from_email_address: self.from.header(),
            destination: Destination { to_addresses: [message.to.expose()] },
            content: Content {
                simple: Simple {
                    subject: utf8(message.subject.as_deref().unwrap_or_default()),
                    body: Texts {
                        text: utf8(message.text.expose()),
                        html: html.map(|html| utf8(html.expose())),
                    },
                    headers: [Named { name: ATTEMPT_HEADER, value: &message.attempt_id }],
                },
            },
            email_tags: [Named { name: ATTEMPT_KEY, value: &message.attempt_id }],
            configuration_set_name: self.configuration_set.as_deref(),
        };
        let bytes = vendor::json(&body, message);
        let url = format!("{}{PATH}", self.base_url);
        let body = Some(("application/json", bytes));
        let mut request = vendor::request(Method::POST, &url, None, body)?;
        self.sign(&mut request)
            .ok_or(Failure { phase: Phase::BeforeWrite, kind: FailureKind::Request })?;
        self.transport.exchange(request, deadline).await
    }

    /// Adds the headers of SigV4; none where it cannot be signed.
    fn sign(&self, request: &mut Request<Bytes>) -> Option<()> {
        let identity = self.credentials.clone().into();
        let now = u64::try_from(self.clock.now().micros()).ok()?;
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(SERVICE)
            .time(UNIX_EPOCH + Duration::from_micros(now))
            .settings(SigningSettings::default())
            .build()
            .ok()?
            .into();
        let host = request.uri().authority()?.as_str().to_owned();
        let uri = request.uri().to_string();
        let headers = [("host", host.as_str()), ("content-type", "application/json")];
        // Its hash alone: the library traces what it is given.
        let body = SignableBody::Precomputed(keys::sha256(request.body()));
        let signable = SignableRequest::new("POST", uri, headers.into_iter(), body).ok()?;
        let (instructions, _) = sign(signable, &params).ok()?.into_parts();
        for (name, value) in instructions.headers() {
            let mut value = HeaderValue::from_str(value).ok()?;
            value.set_sensitive(true);
            let name = http::HeaderName::from_bytes(name.as_bytes()).ok()?;
            request.headers_mut().insert(name, value);
        }
        Some(())
    }

    /// The envelope, once it is certain that SNS has sent it for our topic.
    async fn open(&self, request: &CallbackRequest<'_>) -> Result<Envelope, CallbackError> {
        let topic_arn = self.topic_arn.as_ref().ok_or(CallbackError::NotConfigured)?;
        let envelope: Envelope =
            serde_json::from_slice(request.body).map_err(|_| CallbackError::Malformed)?;
        // What costs nothing first: nobody makes us fetch anything for another topic or an old event.
        if envelope.topic_arn != *topic_arn {
            return Err(CallbackError::Signature);
        }
        let at = Stamp::parse(&envelope.timestamp).map_err(|_| CallbackError::Malformed)?;
        if !(-EVENT_AHEAD_MAX..=EVENT_AGE_MAX).contains(&request.now.since(at)) {
            return Err(CallbackError::Stale);
        }
        let key = self.certificates.key(&envelope.certificate_url, request.now).await?;
        if envelope.is_signed(&key) { Ok(envelope) } else { Err(CallbackError::Signature) }
    }

    /// Tells SNS that this endpoint wants the topic's events: by reading the address that it has signed.
    async fn confirm(&self, envelope: &Envelope) -> Result<(), CallbackError> {
        let url = envelope.subscribe_url.as_deref().ok_or(CallbackError::Malformed)?;
        let pin = self.certificates.pin();
        let url = pin.confirmation(url, &envelope.topic_arn).ok_or(CallbackError::Malformed)?;
        self.certificates.visit(url.as_str()).await.ok_or(CallbackError::Unavailable)?;
        tracing::info!("a subscription to the topic of events was confirmed");
        Ok(())
    }
}

#[async_trait]
impl Provider for Ses {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn send(&self, message: &Message, deadline: Deadline) -> Verdict {
        if let Err(refused) = one_recipient(message) {
            return refused;
        }
        match self.post(message, deadline).await {
            Ok(response) => judge(&response, &message.to, self.clock.now()),
            Err(failure) => verdict_of_failure(failure),
        }
    }

    async fn find(&self, _: &Query, _: Deadline) -> Lookup {
        Lookup::CannotTell { code: "no_lookup".to_owned() }
    }

    async fn verify_callback(
        &self,
        request: &CallbackRequest<'_>,
    ) -> Result<Callback, CallbackError> {
        let envelope = self.open(request).await?;
        match envelope.kind {
            Kind::Notification => {
                let event: Event = serde_json::from_str(&envelope.message)
                    .map_err(|_| CallbackError::Malformed)?;
                Ok(Callback::from(event.receipt().into_iter().collect::<Vec<_>>()))
            }
            Kind::SubscriptionConfirmation => {
                self.confirm(&envelope).await?;
                Ok(Callback::default())
            }
            Kind::UnsubscribeConfirmation => {
                tracing::warn!("the subscription to the topic of events has ended");
                Ok(Callback::default())
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    message_id: String,
}

/// The error's type, without the name space before it and the address behind it.
fn error_type(headers: &HeaderMap, body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Typed {
        #[serde(rename = "__type")]
        kind: String,
    }
    let header = headers.get(ERROR_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let text = header.or_else(|| serde_json::from_slice::<Typed>(body).ok().map(|it| it.kind))?;
    let name = text.split(':').next().unwrap_or(&text);
    let name = name.rsplit('#').next().unwrap_or(name).trim();
    (!name.is_empty()).then(|| name.to_owned())
}

fn judge(response: &Response<Bytes>, to: &Secret, now: Stamp) -> Verdict {
    let code = error_type(response.headers(), response.body());
    let taken = || {
        let answer: Answer = serde_json::from_slice(response.body()).ok()?;
        let id = Some(answer.message_id).filter(|id| !id.is_empty())?;
        Some(Taken { message_id: kept::message_id(&id, Some(to)) })
    };
    classes::verdict(CLASSES, response.status(), code.as_deref(), response.headers(), now, taken)
}

/// One event, as far as it matters.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    /// `notificationType` in the older feedback of an identity, which carries no tags.
    #[serde(alias = "notificationType")]
    event_type: String,
    mail: Mail,
    bounce: Option<Part>,
    complaint: Option<Part>,
    delivery: Option<Part>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mail {
    timestamp: Option<String>,
    message_id: Option<String>,
    tags: Option<Value>,
    #[serde(default)]
    headers: Vec<Header>,
}

#[derive(Deserialize)]
struct Header {
    name: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    timestamp: Option<String>,
    bounce_type: Option<String>,
    bounce_sub_type: Option<String>,
}

impl Event {
    fn receipt(self) -> Option<Receipt> {
        let part = [&self.bounce, &self.complaint, &self.delivery].into_iter().flatten().next();
        let (seen, cause) = match self.event_type.as_str() {
            "Send" => (Seen::Accepted, None),
            "Delivery" => (Seen::Delivered, None),
            "Bounce" => (Seen::Failed, Some(bounced(part))),
            "Reject" => (Seen::Failed, Some(Cause::Rejected)),
            "Rendering Failure" => (Seen::Failed, Some(Cause::Unspecified)),
            "Complaint" => (Seen::Delivered, Some(Cause::Complained)),
            "Open" | "Click" => (Seen::Delivered, Some(Cause::Opened)),
            // `DeliveryDelay` is still tried; the rest says nothing of the message.
            _ => return None,
        };
        let at = part.and_then(|part| part.timestamp.as_deref());
        let at = at.or(self.mail.timestamp.as_deref()).and_then(|text| Stamp::parse(text).ok());
        let attempt_id = self.mail.attempt_id();
        let message_id = self.mail.message_id.as_deref().and_then(|id| kept::message_id(id, None));
        // With neither id there is nothing that it could be matched by.
        (attempt_id.is_some() || message_id.is_some()).then_some(Receipt {
            attempt_id,
            message_id,
            seen,
            cause,
            at,
        })
    }
}

impl Mail {
    fn attempt_id(&self) -> Option<String> {
        let tag = self.tags.as_ref().and_then(|tags| tags.get(ATTEMPT_KEY)?.get(0)?.as_str());
        let header = self.headers.iter().find(|it| it.name.eq_ignore_ascii_case(ATTEMPT_HEADER));
        let id = tag.or(header.map(|header| header.value.as_str()))?;
        is_attempt_id(id).then(|| id.to_owned())
    }
}

fn bounced(part: Option<&Part>) -> Cause {
    let word = |word: Option<&String>| word.map(String::as_str).unwrap_or_default().to_owned();
    let kind = word(part.and_then(|part| part.bounce_type.as_ref()));
    let sub = word(part.and_then(|part| part.bounce_sub_type.as_ref()));
    match (kind.as_str(), sub.as_str()) {
        (_, "Suppressed" | "OnAccountSuppressionList") => Cause::Suppressed,
        ("Permanent", _) => Cause::Bounced,
        // Reported only once SES has given up.
        ("Transient", _) => Cause::SoftBounced,
        _ => Cause::Unspecified,
    }
}

#[cfg(test)]
mod tests;
