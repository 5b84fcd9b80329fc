//! Postmark, from its own side: sending, the search by metadata, a message's details, webhooks.

use std::collections::BTreeMap;
use std::sync::Arc;

use app::model::{Seen, Stamp};
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::entropy::Entropy;
use crate::keys;
use crate::providers::{Secret, vendor};
use crate::simulator::callbacks::CallbackFacts;
use crate::simulator::{Incoming, Line, Reply, Sent, Simulator, Which};

/// The most that one search may ask for, from its beginning.
const COUNT_MAX: usize = 500;
const REACH_MAX: usize = 10_000;

#[derive(Clone)]
struct Mounted {
    simulator: Arc<Simulator>,
    kind: &'static str,
}

pub(super) fn routes(simulator: Arc<Simulator>, kind: &'static str) -> Router {
    Router::new()
        .route("/email", post(send))
        .route("/messages/outbound", get(search))
        .route("/messages/outbound/{id}/details", get(details))
        .with_state(Mounted { simulator, kind })
}

/// A UUID of version 4.
pub(super) fn message_id(entropy: &dyn Entropy) -> String {
    let mut bytes = [0_u8; 16];
    entropy.fill(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}

/// What a sender must give. The texts are looked at and dropped.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Message {
    from: String,
    to: String,
    #[serde(rename = "Subject")]
    _subject: Option<String>,
    text_body: Option<String>,
    html_body: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(rename = "Headers")]
    _headers: Option<Vec<Header>>,
    #[serde(rename = "MessageStream")]
    _message_stream: Option<String>,
    #[serde(rename = "TrackOpens")]
    _track_opens: Option<bool>,
    track_links: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Header {
    #[serde(rename = "Name")]
    _name: String,
    #[serde(rename = "Value")]
    _value: String,
}

impl Message {
    /// The first fault that is found, in Postmark's words and codes.
    fn fault(&self) -> Option<(i64, &'static str)> {
        let is_links = |word: &String| {
            matches!(word.as_str(), "None" | "HtmlAndText" | "HtmlOnly" | "TextOnly")
        };
        let is_short = |(key, value): (&String, &String)| key.len() <= 20 && value.len() <= 80;
        if !self.from.contains('@') || !self.to.contains('@') {
            Some((300, "Invalid email request: an address is not valid."))
        } else if self.text_body.is_none() && self.html_body.is_none() {
            Some((300, "Provide either email TextBody or HtmlBody or both."))
        } else if !self.metadata.iter().all(is_short) {
            Some((300, "Invalid metadata: a key or value is too long."))
        } else if !self.track_links.as_ref().is_none_or(is_links) {
            Some((300, "Invalid 'TrackLinks' value."))
        } else {
            None
        }
    }
}

async fn send(
    State(mounted): State<Mounted>,
    line: Option<Extension<Line>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let simulator = &mounted.simulator;
    if let Some(refused) = stranger(simulator, &headers) {
        return refused;
    }
    let Ok(message) = serde_json::from_slice::<Message>(&body) else {
        return error(StatusCode::UNPROCESSABLE_ENTITY, 402, "Invalid JSON.");
    };
    if let Some((code, text)) = message.fault() {
        return error(StatusCode::UNPROCESSABLE_ENTITY, code, text);
    }
    let attempt = message.metadata.get("attempt_id").cloned().unwrap_or_default();
    let incoming = Incoming::new(mounted.kind, attempt, message.to.clone());
    match simulator.play(&incoming, line.as_deref()).await {
        Reply::Accepted { message_id, .. } => Json(json!({
            "To": message.to,
            "SubmittedAt": simulator.now(),
            "MessageID": message_id,
            "ErrorCode": 0,
            "Message": "OK",
        }))
        .into_response(),
        Reply::Broken => {
            error(StatusCode::INTERNAL_SERVER_ERROR, 500, "An internal server error has occurred.")
        }
        Reply::Unavailable => {
            (StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable").into_response()
        }
        Reply::RefusedPermanently => error(
            StatusCode::UNPROCESSABLE_ENTITY,
            406,
            "You tried to send to a recipient that has been marked as inactive.",
        ),
        Reply::RefusedTransiently => {
            error(StatusCode::SERVICE_UNAVAILABLE, 100, "The API is down for maintenance.")
        }
        Reply::RateLimited { retry_after } => {
            let mut response = error(StatusCode::TOO_MANY_REQUESTS, 429, "Rate limit exceeded.");
            if let Ok(value) = HeaderValue::from_str(&retry_after) {
                response.headers_mut().insert(RETRY_AFTER, value);
            }
            response
        }
    }
}

async fn search(
    State(mounted): State<Mounted>,
    Query(asked): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    let simulator = &mounted.simulator;
    if let Some(refused) = stranger(simulator, &headers) {
        return refused;
    }
    let number = |name: &str| asked.get(name).and_then(|text| text.parse::<usize>().ok());
    let (Some(count), Some(offset)) = (number("count"), number("offset")) else {
        return error(StatusCode::UNPROCESSABLE_ENTITY, 300, "Count and offset are required.");
    };
    if count > COUNT_MAX || count.saturating_add(offset) > REACH_MAX {
        return error(StatusCode::UNPROCESSABLE_ENTITY, 300, "Count and offset are out of range.");
    }
    let which = match (asked.get("metadata_attempt_id"), asked.get("recipient")) {
        (Some(attempt), _) => Which::Attempt(attempt),
        (None, Some(recipient)) => Which::Destination(recipient),
        (None, None) => return Json(json!({"TotalCount": 0, "Messages": []})).into_response(),
    };
    let Ok(mut found) = simulator.find(mounted.kind, which) else { return down() };
    // The newest first.
    found.reverse();
    let items: Vec<Value> = found.iter().skip(offset).take(count).map(item).collect();
    Json(json!({"TotalCount": found.len(), "Messages": items})).into_response()
}

fn item(sent: &Sent) -> Value {
    json!({
        "Tag": "",
        "MessageID": sent.message_id,
        "To": [{"Email": sent.destination, "Name": null}],
        "Cc": [],
        "Bcc": [],
        "Recipients": [sent.destination],
        "ReceivedAt": sent.at,
        "From": "no-reply@example.com",
        "Subject": "",
        "Attachments": [],
        "Status": "Sent",
        "Metadata": metadata(&sent.attempt),
        "MessageStream": "outbound",
        "Sandboxed": false,
    })
}

fn metadata(attempt: &str) -> Value {
    if attempt.is_empty() { json!({}) } else { json!({"attempt_id": attempt}) }
}

async fn details(
    State(mounted): State<Mounted>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let simulator = &mounted.simulator;
    if let Some(refused) = stranger(simulator, &headers) {
        return refused;
    }
    let Ok(found) = simulator.find(mounted.kind, Which::Message(&id)) else { return down() };
    let Some(sent) = found.first() else {
        return error(StatusCode::UNPROCESSABLE_ENTITY, 701, "This message was not found.");
    };
    let mut details = item(sent);
    let end = |kind: &str, more: Value| json!([{"Recipient": sent.destination, "Type": kind, "ReceivedAt": sent.at, "Details": more}]);
    details["MessageEvents"] = match sent.state {
        Seen::Accepted => json!([]),
        Seen::Delivered => end(
            "Delivered",
            json!({"DeliveryMessage": "smtp;250 2.0.0 OK", "DestinationServer": "mx"}),
        ),
        Seen::Failed => {
            end("Bounced", json!({"Summary": "smtp;550 5.1.1", "BounceID": "374814878"}))
        }
    };
    Json(details).into_response()
}

/// The refusal of whoever does not name its server.
fn stranger(simulator: &Simulator, headers: &HeaderMap) -> Option<Response> {
    let token = headers.get("x-postmark-server-token").map(HeaderValue::as_bytes);
    let is_known = token.is_some_and(|token| {
        !token.is_empty()
            && simulator.secret().is_none_or(|key| keys::equal(key.expose().as_bytes(), token))
    });
    let text = "No Account or Server API tokens were supplied in the HTTP headers.";
    (!is_known).then(|| error(StatusCode::UNAUTHORIZED, 10, text))
}

fn down() -> Response {
    error(StatusCode::SERVICE_UNAVAILABLE, 100, "The API is down for maintenance.")
}

fn error(status: StatusCode, code: i64, text: &str) -> Response {
    (status, Json(json!({"ErrorCode": code, "Message": text}))).into_response()
}

/// A webhook of type `Delivery` or `Bounce`, with the key as the password of its address. Postmark has none
/// for what it has only accepted.
pub(super) fn callback(
    facts: &CallbackFacts<'_>,
    url: &str,
    key: &Secret,
) -> Option<Request<Bytes>> {
    let mut body = json!({
        "MessageID": facts.message_id,
        "ServerID": 23,
        "MessageStream": "outbound",
        "Tag": "",
        "Metadata": metadata(facts.attempt),
    });
    let more = match facts.state {
        Seen::Accepted => return None,
        Seen::Delivered => delivery(facts.destination, facts.now),
        Seen::Failed => bounce(facts.destination, facts.now),
    };
    if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
        body.extend(more);
    }
    Request::post(url)
        .header(CONTENT_TYPE, "application/json")
        .header(AUTHORIZATION, vendor::basic("postmark", key).expose())
        .body(Bytes::from(body.to_string()))
        .ok()
}

fn delivery(to: &str, at: Stamp) -> Value {
    json!({"RecordType": "Delivery", "Recipient": to, "DeliveredAt": at, "Details": "Test delivery"})
}

fn bounce(to: &str, at: Stamp) -> Value {
    json!({
        "RecordType": "Bounce",
        "ID": 692_560_173,
        "Type": "HardBounce",
        "TypeCode": 1,
        "Name": "Hard bounce",
        "Description": "The server was unable to deliver your message.",
        "Details": "smtp;550 5.1.1",
        "Email": to,
        "From": "no-reply@example.com",
        "BouncedAt": at,
        "DumpAvailable": true,
        "Inactive": true,
        "CanActivate": true,
        "Subject": "",
    })
}
