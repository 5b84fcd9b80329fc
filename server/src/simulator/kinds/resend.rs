//! Resend's protocol: `POST /emails` with a remembered key, reads by id, Svix webhooks.
//!
//! It has no answer that refuses a message for now but "too many": a scripted transient refusal is one.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use app::model::Seen;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::entropy::Entropy;
use crate::keys;
use crate::providers::{Secret, svix};
use crate::simulator::callbacks::CallbackFacts;
use crate::simulator::{Incoming, Line, Reply, Sent, Simulator, Which};

/// The longest key that the vendor takes.
const KEY_LEN_MAX: usize = 256;

#[derive(Clone)]
struct Mounted {
    simulator: Arc<Simulator>,
    kind: &'static str,
    /// Keys whose first request is still running. As many as there are connections at most.
    running: Arc<Mutex<HashSet<String>>>,
}

pub(super) fn routes(simulator: Arc<Simulator>, kind: &'static str) -> Router {
    Router::new()
        .route("/emails", post(send).get(list))
        .route("/emails/{id}", get(get_one))
        .with_state(Mounted { simulator, kind, running: Arc::default() })
}

/// A version 4 UUID.
pub(super) fn message_id(entropy: &dyn Entropy) -> String {
    let mut bytes = [0; 16];
    entropy.fill(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}

#[derive(Deserialize)]
struct Message {
    from: Option<String>,
    to: Option<Value>,
    subject: Option<String>,
    text: Option<String>,
    html: Option<String>,
    scheduled_at: Option<String>,
    tags: Option<Vec<Tag>>,
}

#[derive(Deserialize)]
struct Tag {
    name: String,
    value: String,
}

/// Gives the key back when the request is over, in whichever way.
struct Running {
    keys: Arc<Mutex<HashSet<String>>>,
    key: String,
}

impl Running {
    fn begin(keys: &Arc<Mutex<HashSet<String>>>, key: &str) -> Option<Self> {
        let is_first = keys.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned());
        is_first.then(|| Self { keys: Arc::clone(keys), key: key.to_owned() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

async fn send(
    State(mounted): State<Mounted>,
    line: Option<Extension<Line>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (simulator, kind) = (&mounted.simulator, mounted.kind);
    if !is_authorized(&headers) {
        return refused(StatusCode::UNAUTHORIZED, "missing_api_key");
    }
    let key = match headers.get("idempotency-key").map(|key| key.to_str()) {
        None => None,
        Some(Ok(key)) if (1..=KEY_LEN_MAX).contains(&key.len()) => Some(key.to_owned()),
        Some(_) => return refused(StatusCode::BAD_REQUEST, "invalid_idempotency_key"),
    };
    let Ok(message) = serde_json::from_slice::<Message>(&body) else {
        return refused(StatusCode::BAD_REQUEST, "validation_error");
    };
    let to = match &message.to {
        Some(Value::String(to)) => Some(to.clone()),
        Some(Value::Array(many)) if many.len() <= 50 => {
            many.first().and_then(Value::as_str).map(str::to_owned)
        }
        _ => None,
    };
    let is_whole = message.from.is_some()
        && message.subject.is_some()
        && (message.text.is_some() || message.html.is_some());
    let is_tag = |text: &str| {
        (1..=256).contains(&text.len())
            && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-'))
    };
    let tags = message.tags.unwrap_or_default();
    let are_tags = tags.iter().all(|tag| is_tag(&tag.name) && is_tag(&tag.value));
    let (Some(to), true) = (to.filter(|to| to.contains('@')), is_whole) else {
        return refused(StatusCode::UNPROCESSABLE_ENTITY, "missing_required_field");
    };
    if !are_tags || message.scheduled_at.is_some() {
        // The vendor would take a scheduled message; nothing of ours may be one.
        return refused(StatusCode::UNPROCESSABLE_ENTITY, "validation_error");
    }
    let payload = keys::sha256(&body);
    let tag = tags.into_iter().find(|tag| tag.name == "attempt_id").map(|tag| tag.value);
    let attempt =
        key.clone().or(tag).unwrap_or_else(|| format!("none-{}", simulator.entropy.hex(8)));
    let _running = match &key {
        None => None,
        Some(key) => {
            let earlier = simulator.accepted(kind, key).and_then(|sent| sent.text);
            if earlier.is_some_and(|text| text.expose() != payload) {
                return refused(StatusCode::CONFLICT, "invalid_idempotent_request");
            }
            match Running::begin(&mounted.running, key) {
                Some(running) => Some(running),
                None => return refused(StatusCode::CONFLICT, "concurrent_idempotent_requests"),
            }
        }
    };
    // What is remembered of the text is a hash.
    let text = Some(Secret::new(payload));
    let incoming = Incoming { text, ..Incoming::new(kind, attempt, to) };
    match simulator.play(&incoming, line.as_deref()).await {
        Reply::Accepted { message_id, .. } => Json(json!({"id": message_id})).into_response(),
        Reply::Broken => refused(StatusCode::INTERNAL_SERVER_ERROR, "application_error"),
        Reply::Unavailable => refused(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable"),
        Reply::RefusedPermanently => refused(StatusCode::UNPROCESSABLE_ENTITY, "validation_error"),
        Reply::RefusedTransiently => limited("1"),
        Reply::RateLimited { retry_after } => limited(&retry_after),
    }
}

async fn get_one(
    State(mounted): State<Mounted>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    if !is_authorized(&headers) {
        return refused(StatusCode::UNAUTHORIZED, "missing_api_key");
    }
    match mounted.simulator.find(mounted.kind, Which::Message(&id)) {
        Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR, "application_error"),
        Ok(sent) => match sent.first() {
            Some(sent) => Json(email(sent)).into_response(),
            None => refused(StatusCode::NOT_FOUND, "not_found"),
        },
    }
}

/// The newest ones; the vendor's list has no filter.
async fn list(State(mounted): State<Mounted>, headers: HeaderMap) -> Response {
    const LIST_MAX: usize = 20;
    if !is_authorized(&headers) {
        return refused(StatusCode::UNAUTHORIZED, "missing_api_key");
    }
    let Ok(mut sent) = mounted.simulator.find(mounted.kind, Which::All) else {
        return refused(StatusCode::INTERNAL_SERVER_ERROR, "application_error");
    };
    sent.reverse();
    let data: Vec<Value> = sent.iter().take(LIST_MAX).map(email).collect();
    let has_more = sent.len() > LIST_MAX;
    Json(json!({"object": "list", "has_more": has_more, "data": data})).into_response()
}

fn word(state: Seen) -> &'static str {
    match state {
        Seen::Accepted => "sent",
        Seen::Delivered => "delivered",
        Seen::Failed => "bounced",
    }
}

fn email(sent: &Sent) -> Value {
    json!({
        "object": "email",
        "id": sent.message_id,
        "message_id": format!("<{}@email.example.com>", sent.message_id),
        "to": [sent.destination],
        "created_at": sent.at,
        "last_event": word(sent.state),
    })
}

fn is_authorized(headers: &HeaderMap) -> bool {
    headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "))
        .is_some_and(|key| !key.is_empty())
}

fn refused(status: StatusCode, name: &str) -> Response {
    let body = json!({"statusCode": status.as_u16(), "name": name, "message": name});
    (status, Json(body)).into_response()
}

fn limited(retry_after: &str) -> Response {
    let mut response = refused(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded");
    if let Ok(value) = HeaderValue::from_str(retry_after) {
        response.headers_mut().insert(RETRY_AFTER, value);
    }
    let headers = response.headers_mut();
    headers.insert("ratelimit-limit", HeaderValue::from_static("5"));
    headers.insert("ratelimit-remaining", HeaderValue::from_static("0"));
    response
}

/// An event with the message's tags, signed as Svix signs.
pub(super) fn callback(
    facts: &CallbackFacts<'_>,
    url: &str,
    key: &Secret,
) -> Option<Request<Bytes>> {
    let word = word(facts.state);
    let mut data = json!({
        "email_id": facts.message_id,
        "created_at": facts.now,
        "to": [facts.destination],
        "tags": {"attempt_id": facts.attempt},
    });
    if let (Seen::Failed, Some(data)) = (facts.state, data.as_object_mut()) {
        let bounce = json!({"type": "Permanent", "subType": "General", "message": "no such user"});
        data.insert("bounce".to_owned(), bounce);
    }
    let body = json!({"type": format!("email.{word}"), "created_at": facts.now, "data": data});
    let body = body.to_string();
    let seed = format!("{}/{word}/{}", facts.attempt, facts.now.micros());
    let id = format!("msg_{}", keys::sha256(seed.as_bytes()).get(..27)?);
    let timestamp = svix::timestamp(facts.now);
    let signature = svix::signature(&svix::key(key)?, &id, &timestamp, body.as_bytes());
    Request::post(url)
        .header(CONTENT_TYPE, "application/json")
        .header("svix-id", id)
        .header("svix-timestamp", timestamp)
        .header("svix-signature", signature)
        .body(Bytes::from(body))
        .ok()
}
