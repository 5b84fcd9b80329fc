//! The generic provider of kind `http` (CONTRACT section 9): the protocol that anybody can put in front of
//! a carrier which is not supported directly.
//!
//! Sending is `POST {base_url}/messages`, reading is `GET {base_url}/messages?attempt_id=`; both are
//! signed. The `GET` signs an empty body: the query is not part of the signature, so a provider may check
//! it to know who asks, and one that does not look at it works all the same.
//!
//! What each status means is [`CLASSES`]. Whatever is not certain is [`Verdict::Unknown`].

use std::sync::Arc;

use app::model::{Channel, Seen, Stamp, percent_encoded};
use async_trait::async_trait;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use serde::{Deserialize, Serialize};
use url::Url;
use zeroize::Zeroizing;

use super::transport::{Failure, Kind, Phase, Transport};
use super::vendor::{Parts, is_attempt_id};
use super::{
    BuildError, Callback, CallbackError, CallbackRequest, Capability, Deadline, Message, Provider,
    Query, Reading, Receipt, Secret, kept, signature,
};
use crate::clock::Clock;
use crate::config::{self, ProviderConfig};
use crate::domain::{Doubt, Lookup, Verdict};

/// The longest `Retry-After` that is obeyed; more is taken as this much.
pub const RETRY_AFTER_MAX: i64 = 60 * 60 * 1_000_000;

/// What a status says about a message that we tried to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Taken; the body names the message.
    Accepted,
    /// Taken before under the same key; the body names the first message.
    AlreadyAccepted,
    /// Not processed: too many.
    RateLimited,
    /// Not processed: our credentials or our set-up. The body cannot say otherwise, because it is about
    /// every message and not about this one.
    Stopped,
    /// Not taken. `permanent` in the body says for how long; without it, the second class holds.
    Refused(Otherwise),
    /// May have been taken.
    Ambiguous,
}

/// What a refusal means whose body does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise {
    /// This message will never be taken.
    Permanent,
    /// Every message would meet it: the provider is stopped, the events wait.
    Stopped,
    /// The status alone is no proof that the provider saw and refused it.
    Ambiguous,
}

/// One row of the classification.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub from: u16,
    pub to: u16,
    pub class: Class,
    /// Where the rule comes from.
    pub source: &'static str,
}

const fn row(from: u16, to: u16, class: Class, source: &'static str) -> Row {
    Row { from, to, class, source }
}

/// What each status means. The first row that covers a status counts; a status in no row is ambiguous.
pub const CLASSES: &[Row] = &[
    row(
        202,
        202,
        Class::Accepted,
        "CONTRACT 9; without a message id the answer is not this protocol's: ambiguous",
    ),
    row(
        200,
        299,
        Class::Ambiguous,
        "CONTRACT 9 lists 202 alone; vendors answer 200 to what they only validated (SendGrid's sandbox mode)",
    ),
    row(401, 401, Class::Stopped, "CASES B41: our own configuration; events wait until expiry"),
    row(403, 403, Class::Stopped, "CASES B41: our own configuration; events wait until expiry"),
    row(
        407,
        407,
        Class::Stopped,
        "RFC 9110 15.5.8: a proxy wants credentials, nothing was forwarded",
    ),
    row(409, 409, Class::AlreadyAccepted, "CONTRACT 9; without the first message id: ambiguous"),
    row(429, 429, Class::RateLimited, "CONTRACT 9, CASES B43: not processed"),
    row(400, 400, Class::Refused(Otherwise::Permanent), "CONTRACT 9, CASES B41"),
    row(404, 404, Class::Refused(Otherwise::Permanent), "CONTRACT 9, CASES B41"),
    row(413, 413, Class::Refused(Otherwise::Permanent), "CONTRACT 9, CASES B41"),
    row(422, 422, Class::Refused(Otherwise::Permanent), "CONTRACT 9, CASES B41"),
    row(
        402,
        402,
        Class::Refused(Otherwise::Stopped),
        "PROVIDERS 5: credit is used up, an account's fault",
    ),
    row(
        405,
        406,
        Class::Refused(Otherwise::Stopped),
        "RFC 9110 15.5.6-7: not the endpoint we think; base_url is wrong",
    ),
    row(
        411,
        411,
        Class::Refused(Otherwise::Stopped),
        "RFC 9110 15.5.12: refused by its headers alone",
    ),
    row(
        415,
        415,
        Class::Refused(Otherwise::Stopped),
        "RFC 9110 15.5.16: refused by its content type alone",
    ),
    row(421, 421, Class::Refused(Otherwise::Stopped), "RFC 9110 15.5.20: not the server we think"),
    row(
        426,
        426,
        Class::Refused(Otherwise::Stopped),
        "RFC 9110 15.5.22: refuses this version of the protocol",
    ),
    row(
        400,
        499,
        Class::Refused(Otherwise::Ambiguous),
        "CONTRACT 9 for the body's own word; without it a gateway may speak (408, 499), which proves nothing",
    ),
    row(
        300,
        399,
        Class::Ambiguous,
        "no redirect is followed: who answers is not the provider that was configured",
    ),
    row(500, 599, Class::Ambiguous, "PROVIDERS 2.1: a 5xx may come after the message was taken"),
];

/// The class of this status.
#[must_use]
pub fn class(status: u16) -> Class {
    CLASSES
        .iter()
        .find(|row| (row.from..=row.to).contains(&status))
        .map_or(Class::Ambiguous, |row| row.class)
}

/// One configured provider of kind `http`, or of a kind that speaks the same protocol.
#[derive(Debug)]
pub struct HttpProvider {
    /// Without a trailing slash.
    base_url: String,
    secret: Secret,
    webhook_secret: Option<Secret>,
    capability: Capability,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
}

/// Makes a provider of kind `http`.
///
/// # Errors
/// As [`HttpProvider::new`].
pub fn make(parts: &Parts<'_>) -> Result<Arc<dyn Provider>, BuildError> {
    let clock = Arc::clone(&parts.clock);
    let made = HttpProvider::new(parts.name, parts.config, clock, Arc::clone(&parts.transport))?;
    Ok(Arc::new(made))
}

impl HttpProvider {
    /// From `[providers.<name>]`.
    ///
    /// # Errors
    /// Names the key that is missing or wrong.
    pub fn new(
        name: &str,
        config: &ProviderConfig,
        clock: Arc<dyn Clock>,
        transport: Arc<dyn Transport>,
    ) -> Result<Self, BuildError> {
        let missing = |key| BuildError::Missing { name: name.to_owned(), key };
        let base_url = config.base_url.as_deref().ok_or_else(|| missing("base_url"))?;
        let secret = config.secret.clone().ok_or_else(|| missing("secret"))?;
        if secret.expose().is_empty() {
            return Err(missing("secret"));
        }
        let base_url = base_url_of(base_url).map_err(|why| BuildError::Invalid {
            name: name.to_owned(),
            key: "base_url",
            why,
        })?;
        let webhook_secret = config.webhook_secret.clone();
        let kind = config::Kind::find("http").ok_or_else(|| missing("kind"))?;
        let capability = Capability::of(kind, Some(config));
        Ok(Self::of(base_url, secret, webhook_secret, capability, clock, transport))
    }

    /// The same protocol under another kind's promises. `base_url` has no trailing slash.
    pub(super) fn of(
        base_url: String,
        secret: Secret,
        webhook_secret: Option<Secret>,
        capability: Capability,
        clock: Arc<dyn Clock>,
        transport: Arc<dyn Transport>,
    ) -> Self {
        let webhook_secret = webhook_secret.filter(|key| !key.expose().is_empty());
        Self { base_url, secret, webhook_secret, capability, clock, transport }
    }

    fn request(&self, method: Method, url: &str, body: Bytes) -> Result<Request<Bytes>, Failure> {
        let signed = signature::header(&self.secret, self.clock.now(), &body);
        Request::builder()
            .method(method)
            .uri(url)
            .header(ACCEPT, "application/json")
            .header(signature::HEADER, signed)
            .body(body)
            .map_err(|_| Failure { phase: Phase::BeforeWrite, kind: Kind::Request })
    }

    async fn post(
        &self,
        message: &Message,
        deadline: Deadline,
    ) -> Result<Response<Bytes>, Failure> {
        let url = format!("{}/messages", self.base_url);
        let mut request = self.request(Method::POST, &url, body_of(message))?;
        let key = HeaderValue::from_str(&message.attempt_id)
            .map_err(|_| Failure { phase: Phase::BeforeWrite, kind: Kind::Request })?;
        request.headers_mut().insert("idempotency-key", key);
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.transport.exchange(request, deadline).await
    }

    async fn get(&self, query: &Query, deadline: Deadline) -> Result<Response<Bytes>, Failure> {
        let url =
            format!("{}/messages?attempt_id={}", self.base_url, percent_encoded(&query.attempt_id));
        let request = self.request(Method::GET, &url, Bytes::new())?;
        self.transport.exchange(request, deadline).await
    }
}

/// The base without its trailing slash.
pub(super) fn base_url_of(text: &str) -> Result<String, &'static str> {
    let url = Url::parse(text).map_err(|_| "is not a URL")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with http:// or https://");
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("names no host");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not carry a user name or password");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must not carry a query or fragment");
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// The body of a sending request: the same bytes for the same message, zeroised when dropped.
fn body_of(message: &Message) -> Bytes {
    #[derive(Serialize)]
    struct Body<'a> {
        attempt_id: &'a str,
        channel: Channel,
        to: &'a str,
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        subject: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        html: Option<&'a str>,
        valid_until: Stamp,
    }
    let body = Body {
        attempt_id: &message.attempt_id,
        channel: message.channel,
        to: message.to.expose(),
        text: message.text.expose(),
        subject: message.subject.as_deref(),
        html: message.html.as_ref().map(Secret::expose),
        valid_until: message.valid_until,
    };
    // Reserved for every character escaped, so that growing leaves no copy of the link behind.
    let texts =
        message.text.expose().len() + message.html.as_ref().map_or(0, |html| html.expose().len());
    let mut bytes = Zeroizing::new(Vec::with_capacity(1024 + 6 * texts));
    serde_json::to_writer(&mut *bytes, &body).expect("strings and instants always serialise");
    Bytes::from_owner(bytes)
}

/// Only the message's name matters; other fields are the provider's own business.
#[derive(Deserialize)]
struct Taken {
    message_id: String,
}

#[derive(Deserialize)]
struct Refusal {
    code: Option<serde_json::Value>,
    permanent: Option<bool>,
}

#[derive(Deserialize)]
struct Status {
    attempt_id: Option<String>,
    state: Seen,
    message_id: String,
}

/// Reads the provider's answer to a sending request.
fn judge(response: &Response<Bytes>, to: &Secret, now: Stamp) -> Verdict {
    let status = response.status();
    let body = response.body();
    match class(status.as_u16()) {
        Class::Accepted | Class::AlreadyAccepted => match serde_json::from_slice::<Taken>(body) {
            Ok(taken) if !taken.message_id.is_empty() => {
                // An id that must not be kept does not make the acceptance less certain.
                Verdict::Accepted { message_id: kept::message_id(&taken.message_id, Some(to)) }
            }
            _ => ambiguous(format!("{}_without_id", code_of(status))),
        },
        Class::RateLimited => Verdict::RateLimited { retry_at: retry_at(response.headers(), now) },
        Class::Stopped => Verdict::ProviderStopped { code: refusal_code(status, body) },
        Class::Refused(otherwise) => {
            let code = refusal_code(status, body);
            let permanent =
                serde_json::from_slice::<Refusal>(body).ok().and_then(|refusal| refusal.permanent);
            match (permanent, otherwise) {
                (Some(true), _) | (None, Otherwise::Permanent) => {
                    Verdict::RefusedPermanently { code }
                }
                (Some(false), _) => Verdict::TransientRefusal { code },
                (None, Otherwise::Stopped) => Verdict::ProviderStopped { code },
                (None, Otherwise::Ambiguous) => ambiguous(code),
            }
        }
        Class::Ambiguous => ambiguous(code_of(status)),
    }
}

/// Doubt about an answer, with its code.
pub(super) fn ambiguous(code: String) -> Verdict {
    Verdict::Unknown { why: Doubt::AmbiguousResponse, code }
}

/// The code that stands for a status.
pub(super) fn code_of(status: StatusCode) -> String {
    format!("http_{}", status.as_u16())
}

/// The provider's own code where it can be kept, else the status.
fn refusal_code(status: StatusCode, body: &[u8]) -> String {
    let own = match serde_json::from_slice::<Refusal>(body).ok().and_then(|refusal| refusal.code) {
        Some(serde_json::Value::String(text)) => kept::code(&text),
        Some(serde_json::Value::Number(number)) => kept::code(&number.to_string()),
        _ => None,
    };
    own.unwrap_or_else(|| code_of(status))
}

/// What a failed exchange says about the message.
#[must_use]
pub fn verdict_of_failure(failure: Failure) -> Verdict {
    let code = failure.kind.code().to_owned();
    match (failure.phase, failure.kind) {
        (Phase::BeforeWrite, _) => Verdict::NotSent { code },
        (Phase::AfterWrite, Kind::Timeout) => Verdict::Unknown { why: Doubt::Timeout, code },
        (Phase::AfterWrite, Kind::TooLarge) => ambiguous(code),
        (Phase::AfterWrite, _) => Verdict::Unknown { why: Doubt::ConnectionLost, code },
    }
}

/// When `Retry-After` allows the next try: seconds (fractions rounded up) or an HTTP date, at most
/// [`RETRY_AFTER_MAX`] ahead and never in the past. Anything else counts as absent.
#[must_use]
pub fn retry_at(headers: &HeaderMap, now: Stamp) -> Option<Stamp> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if text.starts_with(|first: char| first.is_ascii_digit()) {
        seconds(text)?.saturating_mul(1_000_000)
    } else {
        // IMF-fixdate, the form of RFC 9110 5.6.7, is RFC 2822 with the zone spelled `GMT`.
        if !text.ends_with(" GMT") {
            return None;
        }
        let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
        at.as_microsecond().saturating_sub(now.micros())
    };
    Some(now.plus(wait.clamp(0, RETRY_AFTER_MAX)))
}

/// `120` or `120.6`, rounded up; a number too large for us is simply very long.
fn seconds(text: &str) -> Option<i64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit());
    if !is_number(whole) || !is_number(part) {
        return None;
    }
    let more = i64::from(part.bytes().any(|digit| digit != b'0'));
    Some(whole.parse::<i64>().unwrap_or(i64::MAX).saturating_add(more))
}

/// Reads the provider's answer to a look-up.
fn read(response: &Response<Bytes>, query: &Query) -> Lookup {
    let cannot_tell = |code: &str| Lookup::CannotTell { code: code.to_owned() };
    match response.status() {
        StatusCode::OK => match serde_json::from_slice::<Status>(response.body()) {
            Ok(status) if status.attempt_id.as_ref().is_some_and(|id| *id != query.attempt_id) => {
                cannot_tell("other_attempt")
            }
            Ok(status) => Lookup::Found {
                seen: status.state,
                message_id: kept::message_id(&status.message_id, query.to.as_ref()),
            },
            Err(_) => cannot_tell("bad_answer"),
        },
        StatusCode::NOT_FOUND => Lookup::Absent,
        status => Lookup::CannotTell { code: code_of(status) },
    }
}

#[async_trait]
impl Provider for HttpProvider {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn send(&self, message: &Message, deadline: Deadline) -> Verdict {
        match self.post(message, deadline).await {
            Ok(response) => judge(&response, &message.to, self.clock.now()),
            Err(failure) => verdict_of_failure(failure),
        }
    }

    async fn find(&self, query: &Query, deadline: Deadline) -> Lookup {
        if self.capability.reading == Reading::None {
            return Lookup::CannotTell { code: "no_lookup".to_owned() };
        }
        match self.get(query, deadline).await {
            Ok(response) => read(&response, query),
            Err(failure) => Lookup::CannotTell { code: failure.kind.code().to_owned() },
        }
    }

    async fn verify_callback(
        &self,
        request: &CallbackRequest<'_>,
    ) -> Result<Callback, CallbackError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Told {
            attempt_id: String,
            message_id: Option<String>,
            state: Seen,
            at: Stamp,
        }
        let key = self.webhook_secret.as_ref().ok_or(CallbackError::NotConfigured)?;
        signature::verify(key, request.headers, request.now, request.body)?;
        let told: Told =
            serde_json::from_slice(request.body).map_err(|_| CallbackError::Malformed)?;
        if !is_attempt_id(&told.attempt_id) {
            return Err(CallbackError::Malformed);
        }
        Ok(Callback::from(vec![Receipt {
            attempt_id: Some(told.attempt_id),
            message_id: told.message_id.and_then(|id| kept::message_id(&id, None)),
            seen: told.state,
            cause: None,
            at: Some(told.at),
        }]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Verdict {
        let response = Response::builder()
            .status(status)
            .body(Bytes::copy_from_slice(body.as_bytes()))
            .unwrap();
        judge(&response, &Secret::new("+12025550123".to_owned()), Stamp::from_micros(0))
    }

    #[test]
    fn each_status_and_body_has_one_verdict() {
        let accepted = |id: Option<&str>| Verdict::Accepted { message_id: id.map(str::to_owned) };
        let permanent = |code: &str| Verdict::RefusedPermanently { code: code.to_owned() };
        let transient = |code: &str| Verdict::TransientRefusal { code: code.to_owned() };
        let stopped = |code: &str| Verdict::ProviderStopped { code: code.to_owned() };
        let unsure = |code: &str| ambiguous(code.to_owned());
        let table = [
            (202, r#"{"message_id":"m-1"}"#, accepted(Some("m-1"))),
            (202, r#"{"message_id":"m-1","more":1}"#, accepted(Some("m-1"))),
            (202, r#"{"message_id":"to +12025550123"}"#, accepted(None)),
            (202, r#"{"message_id":7}"#, unsure("http_202_without_id")),
            (202, r#"{"message_id":""}"#, unsure("http_202_without_id")),
            (202, "", unsure("http_202_without_id")),
            (202, "<html>", unsure("http_202_without_id")),
            (200, r#"{"message_id":"m-1"}"#, unsure("http_200")),
            (201, r#"{"message_id":"m-1"}"#, unsure("http_201")),
            (204, "", unsure("http_204")),
            (302, "", unsure("http_302")),
            (307, "", unsure("http_307")),
            (409, r#"{"message_id":"m-1"}"#, accepted(Some("m-1"))),
            (409, "{}", unsure("http_409_without_id")),
            (400, r#"{"code":"busy","permanent":false}"#, transient("busy")),
            (400, r#"{"code":"busy","permanent":"no"}"#, permanent("http_400")),
            (400, r#"{"code":21211,"permanent":true}"#, permanent("21211")),
            (400, r#"{"code":"no +12025550123","permanent":true}"#, permanent("http_400")),
            (400, "", permanent("http_400")),
            (404, "<html>", permanent("http_404")),
            (413, "{}", permanent("http_413")),
            (422, r#"{"code":"bad_number"}"#, permanent("bad_number")),
            (422, r#"{"code":"bad_number","permanent":true}"#, permanent("bad_number")),
            (401, r#"{"code":"key","permanent":true}"#, stopped("key")),
            (403, "", stopped("http_403")),
            (407, "", stopped("http_407")),
            (402, "", stopped("http_402")),
            (402, r#"{"permanent":false}"#, transient("http_402")),
            (405, "", stopped("http_405")),
            (415, "", stopped("http_415")),
            (408, "", unsure("http_408")),
            (408, r#"{"code":"late","permanent":false}"#, transient("late")),
            (418, "", unsure("http_418")),
            (418, r#"{"code":"tea","permanent":true}"#, permanent("tea")),
            (499, "", unsure("http_499")),
            (429, "", Verdict::RateLimited { retry_at: None }),
            (500, r#"{"code":"x","permanent":true}"#, unsure("http_500")),
            (502, "", unsure("http_502")),
            (503, "", unsure("http_503")),
            (504, "", unsure("http_504")),
            (600, "", unsure("http_600")),
        ];
        for (status, body, expected) in table {
            assert_eq!(answer(status, body), expected, "{status} {body}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_within_bounds() {
        let now = Stamp::parse("2026-09-21T14:13:20Z").unwrap();
        let wait = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_str(text).unwrap());
            retry_at(&headers, now).map(|at| at.since(now) / 1_000_000)
        };
        assert_eq!(wait("120"), Some(120));
        assert_eq!(wait("0"), Some(0));
        assert_eq!(wait("120.6"), Some(121));
        assert_eq!(wait("120.0"), Some(120));
        assert_eq!(wait("Mon, 21 Sep 2026 14:14:20 GMT"), Some(60));
        assert_eq!(wait("Mon, 21 Sep 2026 14:12:20 GMT"), Some(0));
        assert_eq!(wait("Mon, 21 Sep 2037 14:12:20 GMT"), Some(3600));
        assert_eq!(wait("86400"), Some(3600));
        assert_eq!(wait("99999999999999999999999999"), Some(3600));
        for garbage in
            ["", "-5", "soon", "1e3", "1.", ".5", "1.2.3", "Mon, 21 Sep 2026 14:14:20", "NaN", "+5"]
        {
            assert_eq!(wait(garbage), None, "{garbage}");
        }
        assert_eq!(retry_at(&HeaderMap::new(), now), None);
    }

    #[test]
    fn a_look_up_has_three_answers() {
        let query = Query {
            attempt_id: "a1".to_owned(),
            message_id: None,
            channel: Channel::Sms,
            since: Stamp::from_micros(0),
            now: Stamp::from_micros(0),
            to: None,
            text: None,
        };
        let ask = |status: u16, body: &str| {
            let response = Response::builder()
                .status(status)
                .body(Bytes::copy_from_slice(body.as_bytes()))
                .unwrap();
            read(&response, &query)
        };
        let found = |seen| Lookup::Found { seen, message_id: Some("m-1".to_owned()) };
        let unsure = |code: &str| Lookup::CannotTell { code: code.to_owned() };
        assert_eq!(ask(200, r#"{"state":"accepted","message_id":"m-1"}"#), found(Seen::Accepted));
        assert_eq!(
            ask(200, r#"{"state":"delivered","message_id":"m-1","x":1}"#),
            found(Seen::Delivered)
        );
        assert_eq!(
            ask(200, r#"{"state":"failed","message_id":"m-1","attempt_id":"a1"}"#),
            found(Seen::Failed)
        );
        assert_eq!(
            ask(200, r#"{"state":"failed","message_id":"m-1","attempt_id":"a2"}"#),
            unsure("other_attempt")
        );
        for bad in [
            r#"{"state":"queued","message_id":"m"}"#,
            r#"{"state":"accepted"}"#,
            "{}",
            "",
            "[]",
            r#"{"state":1,"message_id":"m"}"#,
            r#"{"state":"accepted","message_id":1}"#,
        ] {
            assert_eq!(ask(200, bad), unsure("bad_answer"), "{bad}");
        }
        assert_eq!(ask(404, "{}"), Lookup::Absent);
        for status in [201, 202, 204, 301, 400, 401, 403, 405, 410, 429, 500, 503] {
            assert_eq!(ask(status, "{}"), unsure(&format!("http_{status}")));
        }
    }

    #[test]
    fn a_base_url_is_checked_when_it_is_read() {
        assert_eq!(
            base_url_of("http://127.0.0.1:4010/http/").as_deref(),
            Ok("http://127.0.0.1:4010/http")
        );
        assert_eq!(
            base_url_of("https://sms.example.com").as_deref(),
            Ok("https://sms.example.com")
        );
        for bad in [
            "",
            "sms.example.com",
            "ftp://x.example",
            "https://a:b@x.example",
            "https://x.example?a=1",
        ] {
            assert!(base_url_of(bad).is_err(), "{bad}");
        }
    }
}
