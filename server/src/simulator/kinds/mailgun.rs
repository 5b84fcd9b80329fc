//! Mailgun's protocol: messages in, events out, webhooks with a signed time and token.
//!
//! It has no answer that refuses a message for now but "too many": a scripted transient refusal is one.

use std::sync::Arc;

use app::model::{Seen, Stamp};
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::entropy::Entropy;
use crate::keys;
use crate::providers::Secret;
use crate::simulator::callbacks::CallbackFacts;
use crate::simulator::{Incoming, Line, Reply, Sent, Simulator, Which};

/// Events on a page where the request names no limit, and the most that it may name.
const PAGE_DEFAULT: usize = 100;
const PAGE_MAX: usize = 300;

#[derive(Clone)]
struct Mounted {
    simulator: Arc<Simulator>,
    kind: &'static str,
}

pub(super) fn routes(simulator: Arc<Simulator>, kind: &'static str) -> Router {
    Router::new()
        .route("/v3/{domain}/messages", post(send))
        .route("/v3/{domain}/events", get(first_page))
        .route("/v3/{domain}/events/{token}", get(next_page))
        .with_state(Mounted { simulator, kind })
}

/// Without brackets and domain, which the answer adds.
pub(super) fn message_id(entropy: &dyn Entropy) -> String {
    format!("20260101000000.1.{}", entropy.hex(8).to_uppercase())
}

async fn send(
    State(mounted): State<Mounted>,
    Path(domain): Path<String>,
    line: Option<Extension<Line>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if !is_authorized(&headers) {
        return forbidden();
    }
    let fields = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .and_then(|kind| kind.strip_prefix("multipart/form-data; boundary="))
        .and_then(|boundary| fields(&body, boundary));
    let Some(fields) = fields else {
        return answer(StatusCode::BAD_REQUEST, "request body is not multipart/form-data");
    };
    let field = |name: &str| {
        fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    };
    if let Some(sentence) = fault(&field) {
        return answer(StatusCode::BAD_REQUEST, sentence);
    }
    let incoming = Incoming::new(
        mounted.kind,
        field("v:attempt_id").unwrap_or_default().to_owned(),
        field("to").unwrap_or_default().to_owned(),
    );
    let limit = |wait: &str| {
        let sentence = format!(
            "Domain {domain} is not allowed to send: account-requests-per-sec limit exceeded, try again \
             after {wait} seconds"
        );
        answer(StatusCode::TOO_MANY_REQUESTS, &sentence)
    };
    match mounted.simulator.play(&incoming, line.as_deref()).await {
        Reply::Accepted { message_id, .. } => {
            let id = format!("<{message_id}@{domain}>");
            Json(json!({"id": id, "message": "Queued. Thank you."})).into_response()
        }
        Reply::Broken => answer(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error"),
        Reply::Unavailable => answer(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable"),
        Reply::RefusedPermanently => answer(
            StatusCode::BAD_REQUEST,
            "'to' parameter is not a valid address. please check documentation",
        ),
        Reply::RefusedTransiently => limit("1"),
        Reply::RateLimited { retry_after } => limit(&retry_after),
    }
}

/// What the vendor would not take.
fn fault<'a>(field: &impl Fn(&str) -> Option<&'a str>) -> Option<&'static str> {
    let is_address = |text: &str| text.contains('@') && !text.contains(['\r', '\n']);
    let is_within = |text: &str| {
        text.split_once('h').and_then(|(hours, rest)| {
            let minutes: u32 = rest.strip_suffix('m')?.parse().ok()?;
            Some(hours.parse::<u32>().ok()?.checked_mul(60)? + minutes)
        })
    };
    if !field("from").is_some_and(is_address) {
        return Some("from parameter is missing");
    }
    if !field("to").is_some_and(is_address) {
        return Some("to parameter is missing");
    }
    if field("text").is_none() && field("html").is_none() {
        return Some(
            "Need at least one of 'text', 'html', 'amp-html' or 'template' parameters specified",
        );
    }
    if field("o:deliverytime").is_some() {
        // The vendor would take a scheduled message; nothing of ours may be one.
        return Some("deliverytime parameter is not valid");
    }
    let within = field("o:deliver-within").map(|text| is_within(text).unwrap_or(0));
    (within.is_some_and(|minutes| !(5..=24 * 60).contains(&minutes)))
        .then_some("deliver-within parameter is not valid")
}

/// The fields of a form; none when the body is no form.
fn fields(body: &[u8], boundary: &str) -> Option<Vec<(String, String)>> {
    let text = std::str::from_utf8(body).ok()?;
    let text = text.strip_prefix(&format!("--{boundary}\r\n"))?;
    let text = text.strip_suffix(&format!("\r\n--{boundary}--\r\n"))?;
    text.split(&format!("\r\n--{boundary}\r\n"))
        .map(|part| {
            let (head, value) = part.split_once("\r\n\r\n")?;
            let (_, name) = head.split_once("name=\"")?;
            Some((name.split_once('"')?.0.to_owned(), value.to_owned()))
        })
        .collect()
}

#[derive(Deserialize)]
struct Asked {
    begin: Option<i64>,
    end: Option<i64>,
    ascending: Option<String>,
    limit: Option<usize>,
    recipient: Option<String>,
}

/// Where a page begins; it travels as the last part of the page's address.
#[derive(Clone, Serialize, Deserialize)]
struct Cursor {
    begin: i64,
    end: i64,
    is_ascending: bool,
    limit: usize,
    recipient: String,
    skip: usize,
}

async fn first_page(
    State(mounted): State<Mounted>,
    Path(domain): Path<String>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Response {
    let cursor = Cursor {
        begin: asked.begin.unwrap_or(0),
        end: asked.end.unwrap_or(i64::MAX),
        is_ascending: asked.ascending.as_deref() == Some("yes"),
        limit: asked.limit.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_MAX),
        recipient: asked.recipient.unwrap_or_default(),
        skip: 0,
    };
    page(&mounted, &domain, cursor, &headers)
}

async fn next_page(
    State(mounted): State<Mounted>,
    Path((domain, token)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let cursor = URL_SAFE_NO_PAD.decode(token).ok();
    match cursor.and_then(|bytes| serde_json::from_slice::<Cursor>(&bytes).ok()) {
        Some(cursor) => page(&mounted, &domain, cursor, &headers),
        None => answer(StatusCode::NOT_FOUND, "page not found"),
    }
}

fn page(mounted: &Mounted, domain: &str, cursor: Cursor, headers: &HeaderMap) -> Response {
    if !is_authorized(headers) {
        return forbidden();
    }
    let Ok(sent) = mounted.simulator.find(mounted.kind, Which::Destination(&cursor.recipient))
    else {
        return answer(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error");
    };
    let second = |at: Stamp| at.micros().div_euclid(1_000_000);
    let mut events: Vec<(Stamp, Value)> = sent
        .iter()
        .flat_map(|sent| events(sent, domain))
        .filter(|(at, _)| (cursor.begin..=cursor.end).contains(&second(*at)))
        .collect();
    events.sort_by_key(|(at, _)| *at);
    if !cursor.is_ascending {
        events.reverse();
    }
    let items: Vec<Value> =
        events.into_iter().skip(cursor.skip).take(cursor.limit).map(|(_, event)| event).collect();
    // Each page names a next one; the one after the last is empty.
    let next = Cursor { skip: cursor.skip + items.len(), ..cursor.clone() };
    let previous = Cursor { skip: cursor.skip.saturating_sub(cursor.limit), ..cursor };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("127.0.0.1");
    let link = |cursor: &Cursor| {
        let token = URL_SAFE_NO_PAD.encode(json!(cursor).to_string());
        format!("http://{host}/{}/v3/{domain}/events/{token}", mounted.kind)
    };
    let paging = json!({"next": link(&next), "previous": link(&previous)});
    Json(json!({"items": items, "paging": paging})).into_response()
}

/// What has happened to a message by now.
fn events(sent: &Sent, domain: &str) -> Vec<(Stamp, Value)> {
    let to = sent.destination.as_deref().unwrap_or_default();
    let of = |at: Stamp, state: Seen| {
        (at, event(&sent.attempt, &sent.message_id, domain, to, state, at))
    };
    let ended = sent.ends().filter(|(_, seen)| *seen == sent.state);
    std::iter::once(of(sent.at, Seen::Accepted))
        .chain(ended.map(|(at, seen)| of(at, seen)))
        .collect()
}

fn event(attempt: &str, message_id: &str, domain: &str, to: &str, state: Seen, at: Stamp) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "the vendor's times are floating-point numbers")]
    let timestamp = at.micros() as f64 / 1e6;
    let seed = keys::sha256(format!("{attempt}/{state:?}").as_bytes());
    let mut event = json!({
        "id": URL_SAFE_NO_PAD.encode(seed.get(..16).unwrap_or_default()),
        "timestamp": timestamp,
        "log-level": "info",
        "method": "HTTP",
        "flags": {"is-routed": false, "is-authenticated": true, "is-system-test": false, "is-test-mode": false},
        "message": {"headers": {"message-id": format!("{message_id}@{domain}")}, "attachments": [], "size": 0},
        "recipient": to,
        "recipient-domain": to.split_once('@').map_or("", |(_, domain)| domain),
        "tags": [],
        "user-variables": {"attempt_id": attempt},
    });
    let more = match state {
        Seen::Accepted => json!({"event": "accepted"}),
        Seen::Delivered => json!({
            "event": "delivered",
            "delivery-status": {"code": 250, "message": "OK", "attempt-no": 1, "tls": true},
        }),
        Seen::Failed => json!({
            "event": "failed",
            "log-level": "error",
            "severity": "permanent",
            "reason": "bounce",
            "delivery-status": {"code": 550, "message": "5.1.1 no such user", "attempt-no": 1},
        }),
    };
    if let (Some(event), Value::Object(more)) = (event.as_object_mut(), more) {
        event.extend(more);
    }
    event
}

/// The user is always `api`.
fn is_authorized(headers: &HeaderMap) -> bool {
    headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok()?.strip_prefix("Basic "))
        .and_then(|text| STANDARD.decode(text).ok())
        .is_some_and(|bytes| bytes.starts_with(b"api:") && bytes.len() > 4)
}

fn forbidden() -> Response {
    (StatusCode::UNAUTHORIZED, "Forbidden").into_response()
}

fn answer(status: StatusCode, sentence: &str) -> Response {
    (status, Json(json!({"message": sentence}))).into_response()
}

/// `POST` of an event beside a signed time and token.
pub(super) fn callback(
    facts: &CallbackFacts<'_>,
    url: &str,
    key: &Secret,
) -> Option<Request<Bytes>> {
    let timestamp = facts.now.micros().div_euclid(1_000_000).to_string();
    let seed = format!("{}/{:?}/{}", facts.attempt, facts.state, facts.now.micros());
    let token = keys::sha256(seed.as_bytes()).get(..50)?.to_owned();
    let signature = keys::sign(key.expose().as_bytes(), format!("{timestamp}{token}").as_bytes());
    let domain = "mg.example.com";
    let to = facts.destination;
    let event = event(facts.attempt, facts.message_id, domain, to, facts.state, facts.now);
    let body = json!({
        "signature": {"timestamp": timestamp, "token": token, "signature": signature},
        "event-data": event,
    });
    Request::post(url)
        .header(CONTENT_TYPE, "application/json")
        .body(Bytes::from(body.to_string()))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::fields;

    #[test]
    fn a_form_is_read_and_what_is_none_is_not() {
        let body =
            b"--b\r\nContent-Disposition: form-data; name=\"to\"\r\n\r\na@x.example\r\n--b\r\n\
                     Content-Disposition: form-data; name=\"text\"\r\n\r\n\r\nx\r\n\r\n--b--\r\n";
        let expected = [("to", "a@x.example"), ("text", "\r\nx\r\n")];
        let read = fields(body, "b").unwrap();
        assert!(read.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected));
        for bad in [&b""[..], b"--b--\r\n", b"--b\r\nx\r\n--b--\r\n", b"to=a"] {
            assert_eq!(fields(bad, "b"), None);
        }
    }
}
