//! The generic protocol of CONTRACT section 9, from the provider's side.

use std::sync::Arc;

use app::model::{Channel, Stamp};
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::entropy::Entropy;
use crate::providers::{Secret, signature};
use crate::simulator::callbacks::CallbackFacts;
use crate::simulator::{Incoming, Known, Line, Reply, Simulator};

#[derive(Clone)]
struct Mounted {
    simulator: Arc<Simulator>,
    kind: &'static str,
}

pub(super) fn routes(simulator: Arc<Simulator>, kind: &'static str) -> Router {
    Router::new().route("/messages", post(send).get(find)).with_state(Mounted { simulator, kind })
}

pub(super) fn message_id(entropy: &dyn Entropy) -> String {
    format!("m-{}", entropy.hex(12))
}

/// What a sender must give. The texts are looked at and dropped.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    attempt_id: String,
    #[serde(rename = "channel")]
    _channel: Channel,
    to: String,
    text: String,
    #[serde(rename = "subject")]
    _subject: Option<String>,
    #[serde(rename = "html")]
    _html: Option<String>,
    valid_until: Stamp,
}

impl Message {
    fn is_complete(&self, key: Option<&HeaderValue>, now: Stamp) -> bool {
        (1..=128).contains(&self.attempt_id.len())
            && key.is_some_and(|key| key.as_bytes() == self.attempt_id.as_bytes())
            && (1..=512).contains(&self.to.len())
            && !self.text.is_empty()
            && self.valid_until > now
    }
}

async fn send(
    State(mounted): State<Mounted>,
    line: Option<Extension<Line>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let simulator = &mounted.simulator;
    if !is_signed(simulator, &headers, &body) {
        return refused(StatusCode::UNAUTHORIZED, "bad_signature", true);
    }
    let message = serde_json::from_slice::<Message>(&body)
        .ok()
        .filter(|message| message.is_complete(headers.get("idempotency-key"), simulator.now()));
    let Some(message) = message else {
        return refused(StatusCode::BAD_REQUEST, "bad_request", true);
    };
    let incoming = Incoming::new(mounted.kind, message.attempt_id, message.to);
    match simulator.play(&incoming, line.as_deref()).await {
        Reply::Accepted { message_id, is_repeat } => {
            let status = if is_repeat { StatusCode::CONFLICT } else { StatusCode::ACCEPTED };
            (status, Json(json!({"message_id": message_id}))).into_response()
        }
        Reply::Broken => answer(StatusCode::INTERNAL_SERVER_ERROR, json!({"code": "internal"})),
        Reply::Unavailable => {
            answer(StatusCode::SERVICE_UNAVAILABLE, json!({"code": "unavailable"}))
        }
        Reply::RefusedPermanently => {
            refused(StatusCode::UNPROCESSABLE_ENTITY, "bad_destination", true)
        }
        Reply::RefusedTransiently => refused(StatusCode::BAD_REQUEST, "busy", false),
        Reply::RateLimited { retry_after } => {
            let mut response =
                answer(StatusCode::TOO_MANY_REQUESTS, json!({"code": "rate_limited"}));
            if let Ok(value) = HeaderValue::from_str(&retry_after) {
                response.headers_mut().insert(RETRY_AFTER, value);
            }
            response
        }
    }
}

#[derive(Deserialize)]
struct Asked {
    attempt_id: String,
}

async fn find(
    State(mounted): State<Mounted>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Response {
    if !is_signed(&mounted.simulator, &headers, b"") {
        return refused(StatusCode::UNAUTHORIZED, "bad_signature", true);
    }
    match mounted.simulator.look_up(mounted.kind, &asked.attempt_id) {
        Known::Down => answer(StatusCode::SERVICE_UNAVAILABLE, json!({"code": "down"})),
        Known::Absent => answer(StatusCode::NOT_FOUND, json!({"code": "not_found"})),
        Known::Found { state, message_id } => {
            let id = asked.attempt_id;
            answer(
                StatusCode::OK,
                json!({"attempt_id": id, "state": state, "message_id": message_id}),
            )
        }
    }
}

fn is_signed(simulator: &Simulator, headers: &HeaderMap, body: &[u8]) -> bool {
    simulator
        .secret()
        .is_none_or(|key| signature::verify(key, headers, simulator.now(), body).is_ok())
}

fn refused(status: StatusCode, code: &str, permanent: bool) -> Response {
    answer(status, json!({"code": code, "permanent": permanent}))
}

fn answer(status: StatusCode, body: Value) -> Response {
    (status, Json(body)).into_response()
}

/// `POST` of `{"attempt_id","message_id","state","at"}`, signed.
pub(super) fn callback(
    facts: &CallbackFacts<'_>,
    url: &str,
    key: &Secret,
) -> Option<Request<Bytes>> {
    let body = json!({
        "attempt_id": facts.attempt,
        "message_id": facts.message_id,
        "state": facts.state,
        "at": facts.now,
    })
    .to_string();
    Request::post(url)
        .header(CONTENT_TYPE, "application/json")
        .header(signature::HEADER, signature::header(key, facts.now, body.as_bytes()))
        .body(Bytes::from(body))
        .ok()
}
