//! Mailgun: `POST /v3/{domain}/messages`, found again among the domain's events.
//!
//! The vendor has no key of a repeated send, so nothing is ever repeated. An attempt is recognised by the
//! user variable that travelled with it; the events are asked for by recipient and time, page by page to the
//! end. The vendor itself does not trust a page of events that is younger than about half an hour, so
//! before that nothing is called absent. Webhooks sign a time and a token and not the body: a token that
//! comes again with another body is refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use app::model::{Seen, Stamp, percent_encoded};
use async_trait::async_trait;
use bytes::Bytes;
use http::header::{HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Response};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::classes::{Class, Row, Taken, coded, range, status, verdict};
use super::http::verdict_of_failure;
use super::mail::{self, from_seconds, local_part};
use super::transport::{Failure, Transport};
use super::vendor::{Parts, basic, is_attempt_id, request};
use super::{
    BuildError, Callback, CallbackError, CallbackRequest, Capability, Cause, Deadline, Message,
    Provider, Query, Reading, Receipt, Secret, kept,
};
use crate::clock::Clock;
use crate::domain::{Lookup, Verdict};
use crate::keys;

/// The user variable that carries the attempt id.
const VARIABLE: &str = "attempt_id";

/// A page of events younger than this may be incomplete, so says the vendor's page on event polling.
const TRUSTED_AFTER: i64 = 30 * 60 * 1_000_000;

/// The shortest and the longest time that `o:deliver-within` takes, in minutes.
const WITHIN_MINUTES: std::ops::RangeInclusive<i64> = 5..=24 * 60;

/// Events on one page, the vendor's maximum, and pages of one look-up.
const PAGE_MAX: usize = 300;
const PAGES_MAX: usize = 10;

/// How far a webhook's time may lie from ours: the vendor's own helper takes 300 s.
const TOLERANCE: i64 = 300 * 1_000_000;

/// Tokens that are remembered; when so many are fresh, webhooks are put off.
const TOKENS_MAX: usize = 20_000;

/// What each answer to a send means.
pub const CLASSES: &[Row] = &[
    status(200, Class::Accepted, "OpenAPI of /v3/{domain_name}/messages: 200 names the message"),
    coded(400, "from", Class::Config, "OpenAPI 400: our sender is missing or not valid"),
    coded(400, "domain", Class::Config, "OpenAPI 400: the domain may not send"),
    coded(
        400,
        "options",
        Class::Config,
        "OpenAPI 400: options over 16 KB, or unknown: our request",
    ),
    status(400, Class::Permanent, "OpenAPI 400: a parameter is not valid"),
    status(401, Class::Config, "OpenAPI 401: the key"),
    status(403, Class::Config, "PROVIDERS 5: the key's rights"),
    status(404, Class::Config, "PROVIDERS 5: no such domain in this region"),
    status(413, Class::Permanent, "CASES B41: too large, not read"),
    status(
        429,
        Class::RateLimited,
        "OpenAPI 429: a limit is exceeded, the delay stands in the text",
    ),
    range(500, 599, Class::Ambiguous, "PROVIDERS 2.1: mail was sent in spite of a 5xx"),
];

/// One configured provider of kind `mailgun`.
#[derive(Debug)]
pub struct Mailgun {
    capability: Capability,
    base_url: String,
    domain: String,
    from: String,
    authorization: Secret,
    webhook_secret: Option<Secret>,
    tokens: Tokens,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
}

/// Makes a provider of this kind.
///
/// # Errors
/// Names the key that is missing or wrong.
pub fn make(parts: &Parts<'_>) -> Result<Arc<dyn Provider>, BuildError> {
    let from = parts.config.setting("from").unwrap_or_default();
    let domain = match parts.config.setting("domain") {
        Some(domain) => domain.to_owned(),
        None => mail::domain_of(from).ok_or_else(|| parts.missing("domain"))?.to_owned(),
    };
    let is_domain = !domain.is_empty()
        && domain.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-'));
    if !is_domain {
        return Err(parts.invalid("domain", "is no domain name"));
    }
    let from = if from.is_empty() { format!("no-reply@{domain}") } else { from.to_owned() };
    let public = match parts.config.setting("region") {
        None | Some("us") => "https://api.mailgun.net",
        Some("eu") => "https://api.eu.mailgun.net",
        Some(_) => return Err(parts.invalid("region", "must be \"us\" or \"eu\"")),
    };
    Ok(Arc::new(Mailgun {
        capability: parts.capability()?,
        base_url: parts.base_url(public)?,
        from: mail::sender(parts, &from)?,
        domain,
        authorization: basic("api", &parts.credential("api_key")?),
        webhook_secret: parts.webhook_secret(),
        tokens: Tokens::default(),
        clock: Arc::clone(&parts.clock),
        transport: Arc::clone(&parts.transport),
    }))
}

/// What is left of the reset's life, in the vendor's form; none where it is shorter than the vendor takes.
fn within(valid_until: Stamp, now: Stamp) -> Option<String> {
    let minutes = valid_until.since(now) / 60_000_000;
    (minutes >= *WITHIN_MINUTES.start()).then(|| {
        let minutes = minutes.min(*WITHIN_MINUTES.end());
        format!("{}h{}m", minutes / 60, minutes % 60)
    })
}

impl Mailgun {
    async fn post(
        &self,
        message: &Message,
        deadline: Deadline,
    ) -> Result<Response<Bytes>, Failure> {
        let within = within(message.valid_until, self.clock.now());
        let variable = format!("v:{VARIABLE}");
        let mut fields = vec![
            ("from", self.from.as_str()),
            ("to", message.to.expose()),
            ("subject", message.subject.as_deref().unwrap_or_default()),
            ("text", message.text.expose()),
            (&variable, &message.attempt_id),
            // A rewritten link is another link, and who opens it is nobody's business.
            ("o:tracking", "no"),
        ];
        if let Some(html) = &message.html {
            fields.push(("html", html.expose()));
        }
        if let Some(within) = &within {
            fields.push(("o:deliver-within", within));
        }
        let (content_type, body) = multipart(&fields, &message.attempt_id);
        let url = format!("{}/v3/{}/messages", self.base_url, self.domain);
        let mut request = request(Method::POST, &url, Some(&self.authorization), None)?;
        request.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
        *request.body_mut() = body;
        self.transport.exchange(request, deadline).await
    }

    fn first_page(&self, query: &Query, to: &Secret) -> String {
        let seconds = |at: Stamp| at.micros().div_euclid(1_000_000);
        // Events are dated by the vendor, so the window reaches over both ends.
        let end = query.now.plus(super::SCAN_SKEW);
        format!(
            "{}/v3/{}/events?begin={}&end={}&ascending=yes&limit={PAGE_MAX}&recipient={}",
            self.base_url,
            self.domain,
            seconds(query.earliest()),
            seconds(end),
            percent_encoded(to.expose())
        )
    }

    /// Whether a link to the next page leads to where we ask anyhow: our key goes with it.
    fn is_own_page(&self, url: &str) -> bool {
        url.strip_prefix(&self.base_url)
            .and_then(|path| path.strip_prefix("/v3/"))
            .and_then(|path| path.strip_prefix(self.domain.as_str()))
            .is_some_and(|path| path.starts_with("/events"))
    }
}

/// A `multipart/form-data` body whose bytes are wiped when dropped: the same fields give the same bytes.
fn multipart(fields: &[(&str, &str)], attempt_id: &str) -> (HeaderValue, Bytes) {
    let mut boundary = format!("sendonce-{attempt_id}");
    // Whoever writes a text cannot know it, but a boundary must not stand in one by accident either.
    while fields.iter().any(|(_, value)| value.contains(&boundary)) {
        boundary.push('-');
    }
    let size = fields.iter().map(|(name, value)| name.len() + value.len() + boundary.len() + 64);
    let mut body = mail::wiped(size.sum::<usize>() + boundary.len() + 8);
    for (name, value) in fields {
        for piece in ["--", &boundary, "\r\nContent-Disposition: form-data; name=\"", name] {
            body.extend_from_slice(piece.as_bytes());
        }
        for piece in ["\"\r\n\r\n", value, "\r\n"] {
            body.extend_from_slice(piece.as_bytes());
        }
    }
    for piece in ["--", &boundary, "--\r\n"] {
        body.extend_from_slice(piece.as_bytes());
    }
    let content_type = HeaderValue::from_str(&format!("multipart/form-data; boundary={boundary}"))
        .unwrap_or(HeaderValue::from_static("multipart/form-data"));
    (content_type, Bytes::from_owner(body))
}

/// Which of the vendor's few sentences this is. The sentence itself goes no further.
fn code_of_sentence(sentence: &str) -> Option<&'static str> {
    let sentence = sentence.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| sentence.contains(word));
    if has(&["from parameter", "'from'"]) {
        Some("from")
    } else if has(&["not allowed to send", "test purposes only", "domain not found", "is disabled"])
    {
        Some("domain")
    } else if has(&["send options", "unknown option"]) {
        Some("options")
    } else if has(&["to parameter", "'to'"]) {
        Some("to")
    } else {
        None
    }
}

/// Seconds in "try again after N seconds".
fn wait_of_sentence(sentence: &str) -> Option<HeaderValue> {
    let (_, rest) = sentence.split_once("try again after ")?;
    let seconds = rest.split_ascii_whitespace().next()?;
    HeaderValue::from_str(seconds).ok()
}

#[derive(Deserialize)]
struct Answer {
    id: Option<String>,
    message: Option<String>,
}

fn judge(response: &Response<Bytes>, to: &Secret, now: Stamp) -> Verdict {
    let answer = serde_json::from_slice::<Answer>(response.body()).ok();
    let sentence = answer.as_ref().and_then(|answer| answer.message.as_deref()).unwrap_or_default();
    let mut headers = HeaderMap::new();
    if let Some(wait) =
        response.headers().get(RETRY_AFTER).cloned().or_else(|| wait_of_sentence(sentence))
    {
        headers.insert(RETRY_AFTER, wait);
    }
    verdict(CLASSES, response.status(), code_of_sentence(sentence), &headers, now, || {
        let id = answer.as_ref()?.id.as_deref().map(local_part).filter(|id| !id.is_empty())?;
        Some(Taken { message_id: kept::message_id(id, Some(to)) })
    })
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Event>,
    paging: Option<Paging>,
}

#[derive(Deserialize)]
struct Paging {
    next: Option<String>,
}

/// One event, in a page and in a webhook.
#[derive(Deserialize)]
struct Event {
    event: String,
    timestamp: Option<f64>,
    severity: Option<String>,
    reason: Option<String>,
    #[serde(rename = "user-variables")]
    variables: Option<serde_json::Value>,
    message: Option<EventMessage>,
}

#[derive(Deserialize)]
struct EventMessage {
    headers: Option<EventHeaders>,
}

#[derive(Deserialize)]
struct EventHeaders {
    #[serde(rename = "message-id")]
    message_id: Option<String>,
}

impl Event {
    fn attempt_id(&self) -> Option<&str> {
        self.variables.as_ref()?.get(VARIABLE)?.as_str().filter(|id| is_attempt_id(id))
    }

    fn message_id(&self, to: Option<&Secret>) -> Option<String> {
        let id = self.message.as_ref()?.headers.as_ref()?.message_id.as_deref()?;
        kept::message_id(local_part(id), to)
    }

    /// What it says of the message; none: nothing.
    fn seen(&self) -> Option<(Seen, Option<Cause>)> {
        Some(match self.event.as_str() {
            "accepted" => (Seen::Accepted, None),
            "delivered" => (Seen::Delivered, None),
            "failed" if self.severity.as_deref() == Some("temporary") => (Seen::Accepted, None),
            "failed" => {
                let cause = match self.reason.as_deref() {
                    Some("bounce") => Cause::Bounced,
                    Some("suppress-bounce" | "suppress-complaint") => Cause::Suppressed,
                    Some("suppress-unsubscribe") => Cause::OptedOut,
                    Some("espblock" | "esp-block") => Cause::Blocked,
                    Some("old") => Cause::Expired,
                    _ => Cause::Unspecified,
                };
                (Seen::Failed, Some(cause))
            }
            "rejected" => (Seen::Failed, Some(Cause::Rejected)),
            "opened" | "clicked" => (Seen::Delivered, Some(Cause::Opened)),
            "complained" => (Seen::Delivered, Some(Cause::Complained)),
            _ => return None,
        })
    }
}

/// What counts more when several events speak of one message.
const fn weight(seen: Seen) -> u8 {
    match seen {
        Seen::Accepted => 1,
        Seen::Failed => 2,
        Seen::Delivered => 3,
    }
}

fn cannot(code: &str) -> Lookup {
    Lookup::CannotTell { code: code.to_owned() }
}

#[async_trait]
impl Provider for Mailgun {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn send(&self, message: &Message, deadline: Deadline) -> Verdict {
        if let Err(verdict) = mail::one_recipient(message) {
            return verdict;
        }
        match self.post(message, deadline).await {
            Ok(response) => judge(&response, &message.to, self.clock.now()),
            Err(failure) => verdict_of_failure(failure),
        }
    }

    async fn find(&self, query: &Query, deadline: Deadline) -> Lookup {
        if self.capability.reading == Reading::None {
            return cannot("no_lookup");
        }
        let Some(to) = &query.to else { return cannot("no_destination") };
        let age = query.now.since(query.since);
        if self.capability.retention.is_some_and(|kept| age > kept) {
            return cannot("past_retention");
        }
        let mut best: Option<(Seen, Option<String>)> = None;
        let mut url = self.first_page(query, to);
        let mut is_over = false;
        for _ in 0..PAGES_MAX {
            let asked = request(Method::GET, &url, Some(&self.authorization), None);
            let page = match asked {
                Ok(asked) => self.transport.exchange(asked, deadline).await,
                Err(failure) => Err(failure),
            };
            let page = match page {
                Ok(page) if page.status() == http::StatusCode::OK => page,
                Ok(page) => return found_or(best, &super::http::code_of(page.status())),
                Err(failure) => return found_or(best, failure.kind.code()),
            };
            let Ok(page) = serde_json::from_slice::<Page>(page.body()) else {
                return found_or(best, "bad_answer");
            };
            // The vendor names a next page always; an empty one is the end.
            if page.items.is_empty() {
                is_over = true;
                break;
            }
            for event in &page.items {
                if event.attempt_id() != Some(query.attempt_id.as_str()) {
                    continue;
                }
                let Some((seen, _)) = event.seen() else { continue };
                if best.as_ref().is_none_or(|(known, _)| weight(seen) > weight(*known)) {
                    let known = best.take().and_then(|(_, id)| id);
                    best = Some((seen, event.message_id(Some(to)).or(known)));
                }
            }
            match page.paging.and_then(|paging| paging.next) {
                Some(next) if self.is_own_page(&next) => url = next,
                Some(_) => return found_or(best, "foreign_page"),
                None => return found_or(best, "bad_answer"),
            }
        }
        match best {
            Some((seen, message_id)) => Lookup::Found { seen, message_id },
            None if !is_over => cannot("too_many_pages"),
            None if age < TRUSTED_AFTER => cannot("events_too_young"),
            None => Lookup::Absent,
        }
    }

    async fn verify_callback(
        &self,
        request: &CallbackRequest<'_>,
    ) -> Result<Callback, CallbackError> {
        let key = self.webhook_secret.as_ref().ok_or(CallbackError::NotConfigured)?;
        let told: Told =
            serde_json::from_slice(request.body).map_err(|_| CallbackError::Malformed)?;
        told.signature.verify(key, request.now)?;
        // The signature does not cover the body. A repeat of the vendor's own is the same body.
        self.tokens.admit(&told.signature.token, keys::sha256(request.body), request.now)?;
        let event = told.event;
        let (Some((seen, cause)), attempt_id) = (event.seen(), event.attempt_id()) else {
            return Ok(Callback::default());
        };
        let receipt = Receipt {
            attempt_id: attempt_id.map(str::to_owned),
            message_id: event.message_id(None),
            seen,
            cause,
            at: event.timestamp.and_then(from_seconds),
        };
        let is_named = receipt.attempt_id.is_some() || receipt.message_id.is_some();
        Ok(if is_named { Callback::from(vec![receipt]) } else { Callback::default() })
    }
}

/// What was found before a page failed still stands; its absence does not.
fn found_or(best: Option<(Seen, Option<String>)>, code: &str) -> Lookup {
    best.map_or_else(|| cannot(code), |(seen, message_id)| Lookup::Found { seen, message_id })
}

#[derive(Deserialize)]
struct Told {
    signature: Signature,
    #[serde(rename = "event-data")]
    event: Event,
}

#[derive(Deserialize)]
struct Signature {
    timestamp: String,
    token: String,
    signature: String,
}

impl Signature {
    fn verify(&self, key: &Secret, now: Stamp) -> Result<(), CallbackError> {
        let is_time = (1..=12).contains(&self.timestamp.len())
            && self.timestamp.bytes().all(|c| c.is_ascii_digit());
        if !is_time || self.token.is_empty() || self.token.len() > 128 {
            return Err(CallbackError::Signature);
        }
        let signed = Zeroizing::new(format!("{}{}", self.timestamp, self.token));
        let expected = keys::sign(key.expose().as_bytes(), signed.as_bytes());
        if !keys::equal(expected.as_bytes(), self.signature.as_bytes()) {
            return Err(CallbackError::Signature);
        }
        let at: i64 = self.timestamp.parse().map_err(|_| CallbackError::Signature)?;
        let away = now.micros().saturating_sub(at.saturating_mul(1_000_000)).saturating_abs();
        if away > TOLERANCE { Err(CallbackError::Stale) } else { Ok(()) }
    }
}

/// Tokens of the last minutes, each with the hash of the body that it came with.
#[derive(Debug, Default)]
struct Tokens(Mutex<HashMap<String, (String, i64)>>);

impl Tokens {
    /// Lets a token in for the first time, or again with the same body.
    fn admit(&self, token: &str, body: String, now: Stamp) -> Result<(), CallbackError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((first, _)) = known.get(token) {
            return if *first == body { Ok(()) } else { Err(CallbackError::Signature) };
        }
        if known.len() >= TOKENS_MAX {
            // A token older than this is refused for its time anyhow.
            known.retain(|_, (_, until)| *until > now.micros());
            if known.len() >= TOKENS_MAX {
                return Err(CallbackError::Unavailable);
            }
        }
        known.insert(token.to_owned(), (body, now.micros().saturating_add(2 * TOLERANCE)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Stamp = Stamp::from_micros(1_534_108_637_000_000);

    fn answer(status: u16, body: &str) -> Verdict {
        let response =
            Response::builder().status(status).body(Bytes::from(body.to_owned())).unwrap();
        judge(&response, &Secret::new("ann@example.com".to_owned()), NOW)
    }

    #[test]
    fn each_answer_has_one_verdict_and_no_sentence_is_kept() {
        let permanent = |code: &str| Verdict::RefusedPermanently { code: code.to_owned() };
        let stopped = |code: &str| Verdict::ProviderStopped { code: code.to_owned() };
        let unsure = |code: &str| super::super::http::ambiguous(code.to_owned());
        let accepted = |id: Option<&str>| Verdict::Accepted { message_id: id.map(str::to_owned) };
        for (status, body, expected) in [
            (
                200,
                r#"{"id":"<2018.1.B31A@mg.example.com>","message":"Queued. Thank you."}"#,
                accepted(Some("2018.1.B31A")),
            ),
            (200, r#"{"message":"Queued. Thank you."}"#, unsure("http_200_without_id")),
            (200, "<html>", unsure("http_200_without_id")),
            (202, "{}", unsure("http_202")),
            (
                400,
                r#"{"message":"'to' parameter is not a valid address. please check documentation"}"#,
                permanent("to"),
            ),
            (400, r#"{"message":"from parameter is missing"}"#, stopped("from")),
            (
                400,
                r#"{"message":"Domain mg.example.com is not allowed to send: free accounts are for test purposes only."}"#,
                stopped("domain"),
            ),
            (
                400,
                r#"{"message":"Send options (parameters starting with o:, h:, or v:) are limited to 16KB total"}"#,
                stopped("options"),
            ),
            (400, r#"{"message":"no mailbox ann@example.com"}"#, permanent("http_400")),
            (401, "Forbidden", stopped("http_401")),
            (403, "", stopped("http_403")),
            (404, "<html>", stopped("http_404")),
            (413, "", permanent("http_413")),
            (500, r#"{"message":"Internal Server Error"}"#, unsure("http_500")),
            (502, "", unsure("http_502")),
            (408, "", unsure("http_408")),
        ] {
            assert_eq!(answer(status, body), expected, "{status} {body}");
        }
    }

    #[test]
    fn the_wait_stands_in_the_vendors_sentence() {
        let wait = |sentence: &str| match answer(429, &format!(r#"{{"message":"{sentence}"}}"#)) {
            Verdict::RateLimited { retry_at } => retry_at.map(|at| at.since(NOW) / 1_000_000),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            wait("Domain x is not allowed to send: limit exceeded, try again after 120 seconds"),
            Some(120)
        );
        assert_eq!(wait("limit exceeded, try again after 9999999 seconds"), Some(3600));
        assert_eq!(wait("limit exceeded, try again after -5 seconds"), None);
        assert_eq!(wait("limit exceeded"), None);
    }

    #[test]
    fn the_validity_is_whole_minutes_within_what_is_left_and_what_the_vendor_takes() {
        let left = |seconds: i64| within(NOW.plus(seconds * 1_000_000), NOW);
        assert_eq!(left(-1), None);
        assert_eq!(left(299), None);
        assert_eq!(left(300).as_deref(), Some("0h5m"));
        assert_eq!(left(359).as_deref(), Some("0h5m"));
        assert_eq!(left(5400).as_deref(), Some("1h30m"));
        assert_eq!(left(200_000).as_deref(), Some("24h0m"));
    }

    #[test]
    fn no_value_can_end_its_part_of_the_form() {
        let (content_type, body) = multipart(&[("text", "--sendonce-a1\r\nx"), ("to", "é")], "a1");
        assert_eq!(content_type, "multipart/form-data; boundary=sendonce-a1-");
        assert_eq!(
            std::str::from_utf8(&body).unwrap(),
            "--sendonce-a1-\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\n--sendonce-a1\r\nx\r\n\
             --sendonce-a1-\r\nContent-Disposition: form-data; name=\"to\"\r\n\r\né\r\n--sendonce-a1---\r\n"
        );
    }

    // Inputs from django-anymail's tests; no vector is published by the vendor itself.
    #[test]
    fn the_signature_vectors_verify_and_each_changed_byte_fails() {
        let key = Secret::new("TEST_WEBHOOK_SIGNING_KEY".to_owned());
        for (timestamp, token, signature) in [
            (
                "1534108637",
                "651869375b9df3c98fc15c4889b102119add1235c38fc92824",
                "2a75affe24846ead9e37e614a5e7643a04abf4d5b49b34d224ede9af23a00ccc",
            ),
            (
                "1234567890",
                "1234567890abcdef1234567890abcdef",
                "3b754b7c269e4c08fb3f5f36b2b5f98e45245965522dc16ca4c9faa0b11b557d",
            ),
        ] {
            let at = Stamp::from_micros(timestamp.parse::<i64>().unwrap() * 1_000_000);
            let verify =
                |timestamp: &str, token: &str, signature: &str, key: &Secret, at: Stamp| {
                    let (timestamp, token) = (timestamp.to_owned(), token.to_owned());
                    Signature { timestamp, token, signature: signature.to_owned() }.verify(key, at)
                };
            assert_eq!(verify(timestamp, token, signature, &key, at), Ok(()));
            assert_eq!(verify(timestamp, token, signature, &key, at.plus(TOLERANCE)), Ok(()));
            let late = at.plus(TOLERANCE + 1);
            assert_eq!(verify(timestamp, token, signature, &key, late), Err(CallbackError::Stale));
            let changed = |text: &str, place: usize| {
                let mut bytes = text.as_bytes().to_vec();
                bytes[place] = if bytes[place] == b'0' { b'1' } else { b'0' };
                String::from_utf8(bytes).unwrap()
            };
            let refused = Err(CallbackError::Signature);
            for place in 0..timestamp.len() {
                assert_eq!(verify(&changed(timestamp, place), token, signature, &key, at), refused);
            }
            for place in 0..token.len() {
                assert_eq!(verify(timestamp, &changed(token, place), signature, &key, at), refused);
            }
            for place in 0..signature.len() {
                assert_eq!(verify(timestamp, token, &changed(signature, place), &key, at), refused);
            }
            let other = Secret::new("TEST_WEBHOOK_SIGNING_KEX".to_owned());
            assert_eq!(verify(timestamp, token, signature, &other, at), refused);
        }
    }

    #[test]
    fn a_token_is_good_for_one_body() {
        let tokens = Tokens::default();
        assert_eq!(tokens.admit("t", "one".to_owned(), NOW), Ok(()));
        assert_eq!(tokens.admit("t", "one".to_owned(), NOW), Ok(()));
        assert_eq!(tokens.admit("t", "two".to_owned(), NOW), Err(CallbackError::Signature));
        for number in 1..TOKENS_MAX {
            assert_eq!(tokens.admit(&format!("t{number}"), String::new(), NOW), Ok(()));
        }
        let full = Err(CallbackError::Unavailable);
        assert_eq!(tokens.admit("more", String::new(), NOW.plus(2 * TOLERANCE - 1)), full);
        assert_eq!(tokens.admit("more", String::new(), NOW.plus(2 * TOLERANCE)), Ok(()));
    }

    #[test]
    fn each_event_says_one_thing() {
        for (event, expected) in [
            (r#"{"event":"accepted"}"#, Some((Seen::Accepted, None))),
            (r#"{"event":"delivered"}"#, Some((Seen::Delivered, None))),
            (r#"{"event":"failed","severity":"temporary"}"#, Some((Seen::Accepted, None))),
            (
                r#"{"event":"failed","severity":"permanent","reason":"suppress-bounce"}"#,
                Some((Seen::Failed, Some(Cause::Suppressed))),
            ),
            (
                r#"{"event":"failed","severity":"permanent","reason":"bounce"}"#,
                Some((Seen::Failed, Some(Cause::Bounced))),
            ),
            (
                r#"{"event":"failed","severity":"permanent","reason":"to ann@example.com"}"#,
                Some((Seen::Failed, Some(Cause::Unspecified))),
            ),
            (r#"{"event":"rejected"}"#, Some((Seen::Failed, Some(Cause::Rejected)))),
            (r#"{"event":"opened"}"#, Some((Seen::Delivered, Some(Cause::Opened)))),
            (r#"{"event":"complained"}"#, Some((Seen::Delivered, Some(Cause::Complained)))),
            (r#"{"event":"stored"}"#, None),
            (r#"{"event":"unsubscribed"}"#, None),
        ] {
            assert_eq!(serde_json::from_str::<Event>(event).unwrap().seen(), expected, "{event}");
        }
    }
}
