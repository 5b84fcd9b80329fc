//! SendGrid: `POST /v3/mail/send`, found again by a scan of the Email Logs.
//!
//! The attempt id travels as a custom argument. The logs cannot be searched for it, so a look-up lists the
//! recipient's recent messages and reads each one's arguments. Only an exact match is ours; a list that was
//! cut off, or a message that cannot be read, leaves the answer open. SendGrid honours no idempotency key
//! and states no bound for how late its logs are: absence is believed only with a configured `settle`.
//!
//! Its event webhook signs the time and the raw body with ECDSA over P-256; `webhook_secret` is the public
//! key that the vendor shows for the webhook.

use std::collections::BTreeSet;
use std::sync::Arc;

use app::model::{Seen, Stamp, percent_encoded};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use super::classes::{self, Class, Row, Taken, range, status};
use super::http::{code_of, verdict_of_failure};
use super::mail::one_recipient;
use super::sender::{ATTEMPT_HEADER, ATTEMPT_KEY, Sender};
use super::transport::{Failure, Transport};
use super::vendor::{self, Parts, is_attempt_id};
use super::{
    BuildError, Callback, CallbackError, CallbackRequest, Capability, Cause, Deadline, Message,
    Provider, Query, Reading, Receipt, Secret, kept,
};
use crate::clock::Clock;
use crate::domain::{Lookup, Verdict};
use crate::simulator;

const PUBLIC_URL: &str = "https://api.sendgrid.com";

/// Carries the message's id in the answer to a sending request.
const MESSAGE_ID_HEADER: &str = "x-message-id";

/// Base64 of the signature, DER.
pub const SIGNATURE_HEADER: &str = "x-twilio-email-event-webhook-signature";

/// The time that is signed with the body: Unix seconds.
pub const TIMESTAMP_HEADER: &str = "x-twilio-email-event-webhook-timestamp";

/// Messages that one list gives at most: the vendor's own limit. A full one may have been cut off.
pub const LIST_MAX: usize = 1000;

/// Messages whose arguments one look-up reads at most.
pub const DETAILS_MAX: usize = 20;

/// How old a signed callback may be: the vendor repeats one for 24 h and does not say that it signs anew.
/// What an old one says can be neither wrong nor counted twice.
pub const CALLBACK_AGE_MAX_S: i64 = 25 * 3600;

/// How far the vendor's clock may be ahead of ours.
const CALLBACK_AHEAD_MAX_S: i64 = 300;

/// What stands before the 65 bytes of a P-256 point in its SubjectPublicKeyInfo (RFC 5480).
pub const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// What SendGrid's answers mean. It has no codes of its own, only text.
pub const CLASSES: &[Row] = &[
    status(202, Class::Accepted, "PROVIDERS 3.2: 202 with X-Message-Id"),
    range(
        200,
        299,
        Class::Ambiguous,
        "PROVIDERS 3.2: 200 is what its sandbox mode answers, and we never ask for that",
    ),
    status(400, Class::Permanent, "PROVIDERS 5: invalid message"),
    status(413, Class::Permanent, "PROVIDERS 5: too big; may be HTML from the edge"),
    status(401, Class::Config, "PROVIDERS 5: key, or credit used up"),
    status(403, Class::Config, "PROVIDERS 5: sender identity or scope"),
    status(404, Class::Config, "PROVIDERS 5: not the endpoint we think"),
    range(405, 406, Class::Config, "PROVIDERS 5: not the endpoint we think"),
    status(
        451,
        Class::Config,
        "PROVIDERS 3.2: data residency, the other region's base_url is needed",
    ),
    status(429, Class::RateLimited, "PROVIDERS 5: rate"),
    range(500, 599, Class::Ambiguous, "PROVIDERS 5: a server's fault, maybe after it had taken it"),
];

/// One configured provider of kind `sendgrid`.
#[derive(Debug)]
pub struct SendGrid {
    base_url: String,
    /// `Bearer` and the key.
    authorization: Secret,
    from: Sender,
    /// The 65 bytes of the webhook's public key.
    webhook_key: Option<Vec<u8>>,
    capability: Capability,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
}

/// Makes a provider of kind `sendgrid`.
///
/// # Errors
/// Names the key that is missing or wrong.
pub fn make(parts: &Parts<'_>) -> Result<Arc<dyn Provider>, BuildError> {
    let base_url = parts.base_url(PUBLIC_URL)?;
    let webhook_key = match parts.webhook_secret() {
        None => None,
        Some(text) => Some(webhook_key(&text, &base_url).ok_or_else(|| {
            parts.invalid("webhook_secret", "is not the public key of an event webhook (P-256)")
        })?),
    };
    Ok(Arc::new(SendGrid {
        base_url,
        authorization: vendor::token("Bearer", &parts.credential("api_key")?),
        from: Sender::of(parts)?,
        webhook_key,
        capability: parts.capability()?,
        clock: Arc::clone(&parts.clock),
        transport: Arc::clone(&parts.transport),
    }))
}

/// The point of the configured key. Towards the simulator any other text stands for a key pair, whose
/// private half signs the callbacks there.
fn webhook_key(text: &Secret, base_url: &str) -> Option<Vec<u8>> {
    let is_near = Url::parse(base_url).is_ok_and(|url| vendor::is_loopback(&url));
    let of_pair = || is_near.then(|| simulator::sendgrid_public_key(text));
    public_key(text.expose()).or_else(|| public_key(&of_pair()?))
}

/// The point of a public key: base64 of its SubjectPublicKeyInfo, as the vendor shows it, or the same as PEM.
#[must_use]
pub fn public_key(text: &str) -> Option<Vec<u8>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("-----"));
    let spki = STANDARD.decode(lines.collect::<String>()).ok()?;
    let point = spki.strip_prefix(&SPKI_PREFIX)?;
    (point.len() == 65 && point[0] == 4).then(|| point.to_vec())
}

/// Whether this key signed this time and these bytes. `signature` is base64 of DER.
#[must_use]
pub fn is_signed(point: &[u8], timestamp: &str, body: &[u8], signature: &str) -> bool {
    let Ok(signature) = STANDARD.decode(signature) else { return false };
    let signed = [timestamp.as_bytes(), body].concat();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(&signed, &signature).is_ok()
}

#[derive(Serialize)]
struct Mailbox<'a> {
    email: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

#[derive(Serialize)]
struct Personalization<'a> {
    to: [Mailbox<'a>; 1],
    custom_args: Attempt<'a>,
}

#[derive(Serialize)]
struct Attempt<'a> {
    attempt_id: &'a str,
}

#[derive(Serialize)]
struct Content<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    value: &'a str,
}

#[derive(Serialize)]
struct Body<'a> {
    personalizations: [Personalization<'a>; 1],
    from: Mailbox<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    content: Vec<Content<'a>>,
    headers: Value,
    tracking_settings: Value,
}

impl SendGrid {
    async fn post(
        &self,
        message: &Message,
        deadline: Deadline,
    ) -> Result<Response<Bytes>, Failure> {
        let off = serde_json::json!({"enable": false});
        let text = Content { kind: "text/plain", value: message.text.expose() };
        let html = message.html.as_ref();
        let html = html.map(|html| Content { kind: "text/html", value: html.expose() });
        let body = Body {
            personalizations: [Personalization {
                to: [Mailbox { email: message.to.expose(), name: None }],
                custom_args: Attempt { attempt_id: &message.attempt_id },
            }],
            from: Mailbox { email: &self.from.address, name: self.from.name.as_deref() },
            subject: message.subject.as_deref(),
            content: std::iter::once(text).chain(html).collect(),
            headers: serde_json::json!({ATTEMPT_HEADER: message.attempt_id}),
            // A rewritten link would pass the reset's secret through somebody else's server.
            tracking_settings: serde_json::json!({
                "click_tracking": off, "open_tracking": off, "subscription_tracking": off,
            }),
        };
        let bytes = vendor::json(&body, message);
        self.exchange(Method::POST, "/v3/mail/send", Some(bytes), deadline).await
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        deadline: Deadline,
    ) -> Result<Response<Bytes>, Failure> {
        let url = format!("{}{path}", self.base_url);
        let body = body.map(|bytes| ("application/json", bytes));
        let request = vendor::request(method, &url, Some(&self.authorization), body)?;
        self.transport.exchange(request, deadline).await
    }

    /// The ids of the recipient's messages since then, newest last, and whether the list was cut off.
    async fn list(
        &self,
        to: &str,
        since: Stamp,
        deadline: Deadline,
    ) -> Result<(Vec<String>, bool), String> {
        // Whole seconds, as in the vendor's own examples; `clock` cuts off what is beyond them.
        let since = format!("{}T{}Z", since.date(), since.clock());
        let body = serde_json::json!({
            "query": format!(
                "to_email = \"{to}\" AND sg_message_id_created_at >= TIMESTAMP \"{since}\""
            ),
            "limit": LIST_MAX,
        });
        let bytes = Bytes::from_owner(zeroize::Zeroizing::new(body.to_string().into_bytes()));
        let response = self
            .exchange(Method::POST, "/v3/logs", Some(bytes), deadline)
            .await
            .map_err(|failure| failure.kind.code().to_owned())?;
        if response.status() != StatusCode::OK {
            return Err(code_of(response.status()));
        }
        let page: Page =
            serde_json::from_slice(response.body()).map_err(|_| "bad_answer".to_owned())?;
        let is_cut = page.messages.len() >= LIST_MAX;
        Ok((page.messages.into_iter().map(|message| message.sg_message_id).collect(), is_cut))
    }

    /// What the vendor keeps of one message; none where it does not know it (any more, or yet).
    async fn details(&self, id: &str, deadline: Deadline) -> Result<Option<Details>, String> {
        let path = format!("/v3/logs/{}", percent_encoded(id));
        let response = self
            .exchange(Method::GET, &path, None, deadline)
            .await
            .map_err(|failure| failure.kind.code().to_owned())?;
        match response.status() {
            StatusCode::OK => serde_json::from_slice(response.body())
                .map(Some)
                .map_err(|_| "bad_answer".to_owned()),
            StatusCode::NOT_FOUND => Ok(None),
            status => Err(code_of(status)),
        }
    }

    async fn look_up(&self, query: &Query, deadline: Deadline) -> Result<Lookup, String> {
        let to = query.to.as_ref().ok_or_else(|| "no_destination".to_owned())?;
        let mut ids = Vec::new();
        let mut doubt = None;
        for spelling in spellings(to.expose()).ok_or_else(|| "unsearchable".to_owned())? {
            let (found, is_cut) = self.list(&spelling, query.earliest(), deadline).await?;
            ids.extend(found);
            if is_cut {
                doubt = Some("page_full");
            }
        }
        // Those of the answer that we have, if we have one, before all others.
        let known = query.message_id.as_deref();
        ids.sort_by_key(|id| known != Some(received_id(id)));
        if ids.len() > DETAILS_MAX {
            ids.truncate(DETAILS_MAX);
            doubt = Some("too_many");
        }
        for id in &ids {
            match self.details(id, deadline).await? {
                Some(details) if details.attempt_id() == Some(query.attempt_id.as_str()) => {
                    return Ok(Lookup::Found {
                        seen: details.seen(),
                        message_id: kept::message_id(received_id(id), Some(to)),
                    });
                }
                Some(_) => {}
                // Listed, and not there: the two are not in step, and it may be ours.
                None => doubt = Some("not_readable"),
            }
        }
        let age = query.now.since(query.since);
        if self.capability.retention.is_some_and(|retention| age >= retention) {
            doubt = Some("past_retention");
        }
        doubt.map_or(Ok(Lookup::Absent), |code| Err(code.to_owned()))
    }
}

/// The recipient as the logs may spell it: their comparison minds case, and the vendor may have folded it.
/// None where it cannot be written in a query.
fn spellings(to: &str) -> Option<BTreeSet<String>> {
    if to.chars().any(|c| c.is_control() || matches!(c, '"' | '\\')) {
        return None;
    }
    let (local, domain) = to.rsplit_once('@')?;
    let folded = format!("{local}@{}", domain.to_ascii_lowercase());
    Some([to.to_owned(), folded, to.to_ascii_lowercase()].into())
}

/// The part of a message's id that the answer to the sending request names: what stands before the first dot.
fn received_id(id: &str) -> &str {
    id.split('.').next().unwrap_or(id)
}

#[derive(Deserialize)]
struct Page {
    messages: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    sg_message_id: String,
}

#[derive(Deserialize)]
struct Details {
    status: String,
    custom_args: Option<Value>,
}

impl Details {
    fn attempt_id(&self) -> Option<&str> {
        self.custom_args.as_ref()?.get(ATTEMPT_KEY)?.as_str()
    }

    fn seen(&self) -> Seen {
        match self.status.as_str() {
            "delivered" => Seen::Delivered,
            "bounced" | "dropped" | "blocked" => Seen::Failed,
            _ => Seen::Accepted,
        }
    }
}

/// One event of a batch, as far as it matters. Custom arguments stand beside the event's own fields.
#[derive(Deserialize)]
struct Event {
    event: String,
    attempt_id: Option<Value>,
    sg_message_id: Option<String>,
    timestamp: Option<i64>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

impl Event {
    fn receipt(self) -> Option<Receipt> {
        let (seen, cause) = match self.event.as_str() {
            "processed" => (Seen::Accepted, None),
            "delivered" => (Seen::Delivered, None),
            "bounce" if self.kind.as_deref() == Some("blocked") => {
                (Seen::Failed, Some(Cause::SoftBounced))
            }
            "bounce" => (Seen::Failed, Some(Cause::Bounced)),
            "dropped" => (Seen::Failed, Some(Cause::Suppressed)),
            "open" | "click" => (Seen::Delivered, Some(Cause::Opened)),
            "spamreport" => (Seen::Delivered, Some(Cause::Complained)),
            "unsubscribe" | "group_unsubscribe" => (Seen::Delivered, Some(Cause::OptedOut)),
            // `deferred` is still tried; the rest says nothing of the message.
            _ => return None,
        };
        // Without our id it is another application's message under the same account.
        let attempt_id = self.attempt_id?.as_str().filter(|id| is_attempt_id(id))?.to_owned();
        let id = self.sg_message_id.as_deref().map(received_id);
        Some(Receipt {
            attempt_id: Some(attempt_id),
            message_id: id.and_then(|id| kept::message_id(id, None)),
            seen,
            cause,
            at: self.timestamp.and_then(|at| at.checked_mul(1_000_000)).map(Stamp::from_micros),
        })
    }
}

#[async_trait]
impl Provider for SendGrid {
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

    async fn find(&self, query: &Query, deadline: Deadline) -> Lookup {
        if self.capability.reading == Reading::None {
            return Lookup::CannotTell { code: "no_lookup".to_owned() };
        }
        self.look_up(query, deadline).await.unwrap_or_else(|code| Lookup::CannotTell { code })
    }

    async fn verify_callback(
        &self,
        request: &CallbackRequest<'_>,
    ) -> Result<Callback, CallbackError> {
        let key = self.webhook_key.as_ref().ok_or(CallbackError::NotConfigured)?;
        let timestamp = request.header(TIMESTAMP_HEADER).ok_or(CallbackError::Signature)?;
        let signature = request.header(SIGNATURE_HEADER).ok_or(CallbackError::Signature)?;
        if !is_signed(key, timestamp, request.body, signature) {
            return Err(CallbackError::Signature);
        }
        let at: i64 = timestamp.parse().map_err(|_| CallbackError::Stale)?;
        let age = request.now.micros().div_euclid(1_000_000).saturating_sub(at);
        if !(-CALLBACK_AHEAD_MAX_S..=CALLBACK_AGE_MAX_S).contains(&age) {
            return Err(CallbackError::Stale);
        }
        let events: Vec<Event> =
            serde_json::from_slice(request.body).map_err(|_| CallbackError::Malformed)?;
        Ok(Callback::from(events.into_iter().filter_map(Event::receipt).collect::<Vec<_>>()))
    }
}

fn judge(response: &Response<Bytes>, to: &Secret, now: Stamp) -> Verdict {
    let taken = || {
        let id = response.headers().get(MESSAGE_ID_HEADER)?.to_str().ok()?;
        (!id.is_empty()).then(|| Taken { message_id: kept::message_id(received_id(id), Some(to)) })
    };
    classes::verdict(CLASSES, response.status(), None, response.headers(), now, taken)
}

#[cfg(test)]
mod tests;
