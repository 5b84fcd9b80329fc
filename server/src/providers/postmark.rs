//! Postmark: `POST /email`, found again by its metadata.
//!
//! The attempt id travels in `Metadata` and is what a look-up asks for, so it is found directly. Postmark
//! honours no idempotency key, and says nothing of how late its search may be: absence is believed only
//! with a configured `settle`. Its webhooks carry no signature; what proves them is a secret that the
//! operator puts into the webhook's address (basic authentication) or into a header of it. A refused one
//! is answered 401: a 403 would stop Postmark's repetitions for good.

use std::sync::Arc;

use app::model::{Seen, Stamp, percent_encoded};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::classes::{self, Class, Row, Taken, coded, status};
use super::http::{code_of, verdict_of_failure};
use super::mail::one_recipient;
use super::sender::{ATTEMPT_HEADER, ATTEMPT_KEY, Sender};
use super::transport::{Failure, Kind, Phase, Transport};
use super::vendor::{self, Parts, is_attempt_id};
use super::{
    BuildError, Callback, CallbackError, CallbackRequest, Capability, Cause, Deadline, Message,
    Provider, Query, Reading, Receipt, Secret, kept,
};
use crate::clock::Clock;
use crate::domain::{Lookup, Verdict};
use crate::keys;

const PUBLIC_URL: &str = "https://api.postmarkapp.com";

/// The header that names the server whose token it carries.
const TOKEN_HEADER: &str = "x-postmark-server-token";

/// A webhook may carry the secret in this header instead of basic authentication.
const SECRET_HEADER: &str = "x-webhook-secret";

/// Messages of one attempt that a look-up reads; there is one, so a second already is a surprise.
const FOUND_MAX: u32 = 10;

const fn refused(code: &'static str, class: Class, source: &'static str) -> Row {
    Row { from: 400, to: 499, code: Some(code), class, source }
}

const SENDER: &str = "PROVIDERS 5: sender signature or stream, the operator's to mend";

/// What Postmark's answers mean. The code is `ErrorCode`: some guides give another status for the same one.
pub const CLASSES: &[Row] = &[
    coded(200, "0", Class::Accepted, "PROVIDERS 3.3: 200 with ErrorCode 0"),
    coded(413, "413", Class::Permanent, "PROVIDERS 5: HTTP 413, the body is too large"),
    refused("406", Class::Permanent, "PROVIDERS 5: the recipient is inactive"),
    refused("300", Class::Permanent, "PROVIDERS 5: invalid message"),
    refused("411", Class::Permanent, "PROVIDERS 5: forbidden attachment type"),
    refused("10", Class::Config, "PROVIDERS 5: bad or missing token"),
    refused("400", Class::Config, SENDER),
    refused("401", Class::Config, SENDER),
    refused("402", Class::Config, "PROVIDERS 5: not the JSON that it expects"),
    refused("403", Class::Config, "PROVIDERS 5: not the JSON that it expects"),
    refused("405", Class::Config, "PROVIDERS 5: not allowed to send (credits, stream)"),
    refused("409", Class::Config, "PROVIDERS 5: not JSON"),
    refused("412", Class::Config, "PROVIDERS 5: the account is pending"),
    refused("413", Class::Config, "PROVIDERS 5: the account may not send"),
    Row {
        from: 400,
        to: 599,
        code: Some("100"),
        class: Class::Transient,
        source: "PROVIDERS 5: maintenance, nothing is taken",
    },
    status(401, Class::Config, "PROVIDERS 5: token"),
    status(403, Class::Config, "PROVIDERS 5: refused at the edge, not processed"),
    status(413, Class::Permanent, "PROVIDERS 5: the body is too large"),
    status(429, Class::RateLimited, "PROVIDERS 5: throttled"),
];

/// One configured provider of kind `postmark`.
#[derive(Debug)]
pub struct Postmark {
    base_url: String,
    token: Secret,
    from: Sender,
    message_stream: Option<String>,
    webhook_secret: Option<Secret>,
    capability: Capability,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
}

/// Makes a provider of kind `postmark`.
///
/// # Errors
/// Names the key that is missing or wrong.
pub fn make(parts: &Parts<'_>) -> Result<Arc<dyn Provider>, BuildError> {
    Ok(Arc::new(Postmark {
        base_url: parts.base_url(PUBLIC_URL)?,
        token: parts.credential("token")?,
        from: Sender::of(parts)?,
        message_stream: parts.config.setting("message_stream").map(str::to_owned),
        webhook_secret: parts.webhook_secret(),
        capability: parts.capability()?,
        clock: Arc::clone(&parts.clock),
        transport: Arc::clone(&parts.transport),
    }))
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Body<'a> {
    from: String,
    to: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    text_body: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    html_body: Option<&'a str>,
    metadata: Metadata<'a>,
    headers: [Header<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    message_stream: Option<&'a str>,
    // A rewritten link would pass the reset's secret through somebody else's server.
    track_opens: bool,
    track_links: &'static str,
}

#[derive(Serialize)]
struct Metadata<'a> {
    attempt_id: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Header<'a> {
    name: &'static str,
    value: &'a str,
}

/// The answer to a sending request, refused or not.
#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "ErrorCode")]
    code: i64,
    #[serde(rename = "MessageID")]
    message_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    total_count: u64,
    messages: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(rename = "MessageID")]
    message_id: String,
    #[serde(rename = "Metadata", default)]
    metadata: Echo,
}

/// What comes back of our metadata.
#[derive(Default, Deserialize)]
struct Echo {
    attempt_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Details {
    #[serde(default)]
    metadata: Echo,
    message_events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "Type")]
    kind: String,
    #[serde(rename = "Details", default)]
    details: EventDetails,
}

#[derive(Default, Deserialize)]
struct EventDetails {
    #[serde(rename = "Type")]
    bounce: Option<String>,
}

impl Postmark {
    fn request(
        &self,
        method: Method,
        url: &str,
        body: Option<Bytes>,
    ) -> Result<Request<Bytes>, Failure> {
        let body = body.map(|bytes| ("application/json", bytes));
        let mut request = vendor::request(method, url, None, body)?;
        let mut token = HeaderValue::from_bytes(self.token.expose().as_bytes())
            .map_err(|_| Failure { phase: Phase::BeforeWrite, kind: Kind::Request })?;
        token.set_sensitive(true);
        request.headers_mut().insert(TOKEN_HEADER, token);
        Ok(request)
    }

    async fn post(
        &self,
        message: &Message,
        deadline: Deadline,
    ) -> Result<Response<Bytes>, Failure> {
        let body = Body {
            from: self.from.text(),
            to: message.to.expose(),
            subject: message.subject.as_deref(),
            text_body: message.text.expose(),
            html_body: message.html.as_ref().map(Secret::expose),
            metadata: Metadata { attempt_id: &message.attempt_id },
            headers: [Header { name: ATTEMPT_HEADER, value: &message.attempt_id }],
            message_stream: self.message_stream.as_deref(),
            track_opens: false,
            track_links: "None",
        };
        let bytes = vendor::json(&body, message);
        let url = format!("{}/email", self.base_url);
        let request = self.request(Method::POST, &url, Some(bytes))?;
        self.transport.exchange(request, deadline).await
    }

    /// Reads one address; anything but 200 with this JSON cannot tell.
    async fn read<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        deadline: Deadline,
    ) -> Result<T, String> {
        let lost = |failure: Failure| failure.kind.code().to_owned();
        let url = format!("{}{path}", self.base_url);
        let request = self.request(Method::GET, &url, None).map_err(lost)?;
        let response = self.transport.exchange(request, deadline).await.map_err(lost)?;
        if response.status() != StatusCode::OK {
            return Err(code_of(response.status()));
        }
        serde_json::from_slice(response.body()).map_err(|_| "bad_answer".to_owned())
    }

    async fn search(&self, query: &Query, deadline: Deadline) -> Result<Option<String>, String> {
        let id = percent_encoded(&query.attempt_id);
        let path =
            format!("/messages/outbound?count={FOUND_MAX}&offset=0&metadata_{ATTEMPT_KEY}={id}");
        let page: Page = self.read(&path, deadline).await?;
        let is_ours = |item: &&Item| item.metadata.attempt_id.as_ref() == Some(&query.attempt_id);
        match page.messages.iter().find(is_ours) {
            Some(item) => Ok(Some(item.message_id.clone())),
            None if page.total_count == 0 && page.messages.is_empty() => Ok(None),
            // Hits that are not ours: the filter was not understood, so "none" would mean nothing.
            None => Err("other_attempt".to_owned()),
        }
    }

    async fn look_up(&self, query: &Query, deadline: Deadline) -> Result<Lookup, String> {
        let Some(id) = self.search(query, deadline).await? else {
            let age = query.now.since(query.since);
            // What has been purged is not there either.
            let is_kept = self.capability.retention.is_none_or(|retention| age < retention);
            return if is_kept { Ok(Lookup::Absent) } else { Err("past_retention".to_owned()) };
        };
        let path = format!("/messages/outbound/{}/details", percent_encoded(&id));
        // That it is there is certain already; what became of it may be asked again later.
        let seen = match self.read::<Details>(&path, deadline).await {
            Ok(details) if details.metadata.attempt_id.as_ref() == Some(&query.attempt_id) => {
                seen_of(&details.message_events)
            }
            _ => Seen::Accepted,
        };
        Ok(Lookup::Found { seen, message_id: kept::message_id(&id, query.to.as_ref()) })
    }

    fn is_genuine(&self, request: &CallbackRequest<'_>, secret: &Secret) -> bool {
        let secret = secret.expose().as_bytes();
        if let Some(value) = request.header(SECRET_HEADER) {
            return keys::equal(value.as_bytes(), secret);
        }
        let Some(basic) = request.header(AUTHORIZATION.as_str()).and_then(basic) else {
            return false;
        };
        // `webhook_secret` is the password, or name and password together.
        let password = basic.iter().position(|byte| *byte == b':').map(|at| &basic[at + 1..]);
        keys::equal(&basic, secret) | password.is_some_and(|word| keys::equal(word, secret))
    }
}

/// `name:password` of basic credentials.
fn basic(value: &str) -> Option<Zeroizing<Vec<u8>>> {
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    STANDARD.decode(encoded.trim()).ok().map(Zeroizing::new)
}

/// What a bounce of this type says; none: the message is still on its way.
fn bounce(kind: &str) -> Option<(Seen, Cause)> {
    Some(match kind {
        "HardBounce" | "BadEmailAddress" => (Seen::Failed, Cause::BadRecipient),
        "SoftBounce" => (Seen::Failed, Cause::SoftBounced),
        "Blocked" | "DMARCPolicy" => (Seen::Failed, Cause::Blocked),
        "ManuallyDeactivated" => (Seen::Failed, Cause::Suppressed),
        "SpamNotification" => (Seen::Failed, Cause::Filtered),
        "SpamComplaint" => (Seen::Delivered, Cause::Complained),
        "Unsubscribe" => (Seen::Delivered, Cause::OptedOut),
        // Still tried (Transient, DnsError), or no word about this message (AutoResponder and the like).
        _ => return None,
    })
}

/// The strongest of a message's events; a final one outranks those before it.
fn seen_of(events: &[Event]) -> Seen {
    let word = |event: &Event| match event.kind.as_str() {
        "Delivered" | "Opened" | "LinkClicked" => Some(Seen::Delivered),
        "Bounced" => match event.details.bounce.as_deref() {
            Some(kind) => bounce(kind).map(|(seen, _)| seen),
            None => Some(Seen::Failed),
        },
        _ => None,
    };
    let all: Vec<Seen> = events.iter().filter_map(word).collect();
    [Seen::Delivered, Seen::Failed]
        .into_iter()
        .find(|seen| all.contains(seen))
        .unwrap_or(Seen::Accepted)
}

/// One webhook, as far as it matters.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Record {
    record_type: String,
    #[serde(rename = "MessageID")]
    message_id: Option<String>,
    #[serde(default)]
    metadata: Echo,
    /// Of a bounce.
    #[serde(rename = "Type")]
    bounce: Option<String>,
    delivered_at: Option<String>,
    bounced_at: Option<String>,
    received_at: Option<String>,
}

impl Record {
    fn receipt(self) -> Option<Receipt> {
        let (seen, cause) = match self.record_type.as_str() {
            "Delivery" => (Seen::Delivered, None),
            "Bounce" => {
                let (seen, cause) = bounce(self.bounce.as_deref().unwrap_or_default())?;
                (seen, Some(cause))
            }
            "SpamComplaint" => (Seen::Delivered, Some(Cause::Complained)),
            "Open" | "Click" => (Seen::Delivered, Some(Cause::Opened)),
            _ => return None,
        };
        let at = [self.delivered_at, self.bounced_at, self.received_at];
        // Without our id it is another application's message on the same server.
        let attempt_id = self.metadata.attempt_id.filter(|id| is_attempt_id(id))?;
        Some(Receipt {
            attempt_id: Some(attempt_id),
            message_id: self.message_id.and_then(|id| kept::message_id(&id, None)),
            seen,
            cause,
            at: at.into_iter().flatten().find_map(|text| Stamp::parse(&text).ok()),
        })
    }
}

#[async_trait]
impl Provider for Postmark {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn send(&self, message: &Message, deadline: Deadline) -> Verdict {
        if let Err(refused) = one_recipient(message) {
            return refused;
        }
        let response = match self.post(message, deadline).await {
            Ok(response) => response,
            Err(failure) => return verdict_of_failure(failure),
        };
        judge(&response, &message.to, self.clock.now())
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
        let secret = self.webhook_secret.as_ref().ok_or(CallbackError::NotConfigured)?;
        if !self.is_genuine(request, secret) {
            return Err(CallbackError::Signature);
        }
        let record: Record =
            serde_json::from_slice(request.body).map_err(|_| CallbackError::Malformed)?;
        Ok(Callback::from(record.receipt().into_iter().collect::<Vec<_>>()))
    }
}

fn judge(response: &Response<Bytes>, to: &Secret, now: Stamp) -> Verdict {
    let answer = serde_json::from_slice::<Answer>(response.body()).ok();
    let code = answer.as_ref().map(|answer| answer.code.to_string());
    let taken = || {
        let id = answer.as_ref()?.message_id.as_deref().filter(|id| !id.is_empty())?;
        Some(Taken { message_id: kept::message_id(id, Some(to)) })
    };
    classes::verdict(CLASSES, response.status(), code.as_deref(), response.headers(), now, taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::http::ambiguous;

    #[test]
    fn each_answer_has_one_verdict() {
        let answer = |status: u16, body: &str| {
            let response = Response::builder()
                .status(status)
                .body(Bytes::copy_from_slice(body.as_bytes()))
                .unwrap();
            judge(&response, &Secret::new("ann@example.com".to_owned()), Stamp::from_micros(0))
        };
        let error = |code: u32| format!(r#"{{"ErrorCode":{code},"Message":"no ann@example.com"}}"#);
        let permanent = |code: &str| Verdict::RefusedPermanently { code: code.to_owned() };
        let stopped = |code: &str| Verdict::ProviderStopped { code: code.to_owned() };
        let unsure = |code: &str| ambiguous(code.to_owned());
        let id = "b7bc2f4a-e38e-4336-af7d-e6c392c2f817";
        let taken = format!(r#"{{"ErrorCode":0,"Message":"OK","MessageID":"{id}"}}"#);
        assert_eq!(answer(200, &taken), Verdict::Accepted { message_id: Some(id.to_owned()) });
        for (status, body, expected) in [
            (200, error(0), unsure("http_200_without_id")),
            (200, error(406), unsure("406")),
            (200, "OK".to_owned(), unsure("http_200")),
            (202, taken.clone(), unsure("0")),
            (422, error(406), permanent("406")),
            (406, error(406), permanent("406")),
            (422, error(300), permanent("300")),
            (422, error(411), permanent("411")),
            (413, error(413), permanent("413")),
            (413, String::new(), permanent("http_413")),
            (401, error(10), stopped("10")),
            (401, String::new(), stopped("http_401")),
            (403, "<html>".to_owned(), stopped("http_403")),
            (422, error(400), stopped("400")),
            (422, error(405), stopped("405")),
            (422, error(412), stopped("412")),
            (422, error(413), stopped("413")),
            (422, error(1235), unsure("1235")),
            (422, String::new(), unsure("http_422")),
            (429, error(429), Verdict::RateLimited { retry_at: None }),
            (503, error(100), Verdict::TransientRefusal { code: "100".to_owned() }),
            (500, error(300), unsure("300")),
            (503, String::new(), unsure("http_503")),
            (504, "<html>".to_owned(), unsure("http_504")),
        ] {
            assert_eq!(answer(status, &body), expected, "{status} {body}");
        }
    }

    #[test]
    fn a_bounce_that_is_still_tried_says_nothing_yet() {
        let record = |text: &str| serde_json::from_str::<Record>(text).unwrap().receipt();
        let of = |more: &str| {
            let text = format!(
                r#"{{"RecordType":"Bounce","MessageID":"m-1","Metadata":{{"attempt_id":"a1"}},
                    "BouncedAt":"2026-09-21T14:13:20.0000000Z","Email":"ann@example.com",{more}}}"#
            );
            record(&text).map(|receipt| (receipt.seen, receipt.cause, receipt.at.is_some()))
        };
        let failed = |cause| Some((Seen::Failed, Some(cause), true));
        assert_eq!(of(r#""Type":"HardBounce","TypeCode":1"#), failed(Cause::BadRecipient));
        assert_eq!(of(r#""Type":"SoftBounce""#), failed(Cause::SoftBounced));
        assert_eq!(of(r#""Type":"DMARCPolicy""#), failed(Cause::Blocked));
        for still in ["Transient", "DnsError", "AutoResponder", "Something"] {
            assert_eq!(of(&format!(r#""Type":"{still}""#)), None, "{still}");
        }
        let foreign = r#"{"RecordType":"Delivery","MessageID":"m-1","Metadata":{}}"#;
        assert_eq!(record(foreign), None);
    }

    #[test]
    fn the_last_word_on_a_message_is_the_final_one() {
        let seen = |events: &str| {
            let text = format!(r#"{{"MessageEvents":{events}}}"#);
            seen_of(&serde_json::from_str::<Details>(&text).unwrap().message_events)
        };
        assert_eq!(seen("[]"), Seen::Accepted);
        assert_eq!(seen(r#"[{"Type":"Transient"},{"Type":"Delivered"}]"#), Seen::Delivered);
        assert_eq!(seen(r#"[{"Type":"Bounced","Details":{"Summary":"x"}}]"#), Seen::Failed);
        assert_eq!(seen(r#"[{"Type":"Bounced","Details":{"Type":"Transient"}}]"#), Seen::Accepted);
    }
}
