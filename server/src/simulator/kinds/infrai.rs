//! Infrai's protocol: send under a key, get, list. No callbacks.
//!
//! The vendor documents the record and the envelope; how the list is paged, and that its records carry
//! the key, is this simulator's own choice.

use std::sync::Arc;

use app::model::Seen;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::header::{AUTHORIZATION, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::entropy::Entropy;
use crate::keys;
use crate::providers::Secret;
use crate::simulator::callbacks::CallbackFacts;
use crate::simulator::{Incoming, Line, Reply, Sent, Simulator, Which};

/// Records on a page.
const PAGE: usize = 50;

#[derive(Clone)]
struct Mounted {
    simulator: Arc<Simulator>,
    kind: &'static str,
}

pub(super) fn routes(simulator: Arc<Simulator>, kind: &'static str) -> Router {
    Router::new()
        .route("/v1/email/send", post(send))
        .route("/v1/email/get/{id}", get(get_one))
        .route("/v1/email/list", get(list))
        .with_state(Mounted { simulator, kind })
}

pub(super) fn message_id(entropy: &dyn Entropy) -> String {
    format!("em_{}", entropy.hex(12))
}

#[derive(Deserialize)]
struct Message {
    to: Value,
    subject: Option<String>,
    text: Option<String>,
    html: Option<String>,
    idempotency_key: Option<String>,
}

async fn send(
    State(mounted): State<Mounted>,
    line: Option<Extension<Line>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (simulator, kind) = (&mounted.simulator, mounted.kind);
    if !is_authorized(&headers) {
        return refused(simulator, StatusCode::UNAUTHORIZED, "UNAUTHORIZED");
    }
    let Ok(message) = serde_json::from_slice::<Message>(&body) else {
        return refused(simulator, StatusCode::BAD_REQUEST, "INVALID_JSON");
    };
    let to = match &message.to {
        Value::String(to) => Some(to.as_str()),
        Value::Array(many) => many.first().and_then(Value::as_str),
        _ => None,
    };
    let (Some(to), true, true) = (
        to.filter(|to| to.contains('@')),
        message.subject.is_some(),
        message.text.is_some() || message.html.is_some(),
    ) else {
        return refused(simulator, StatusCode::UNPROCESSABLE_ENTITY, "INVALID_PARAMETER");
    };
    // Without a key one is derived from the content.
    let key = headers
        .get("idempotency-key")
        .and_then(|key| key.to_str().ok().map(str::to_owned))
        .or(message.idempotency_key)
        .unwrap_or_else(|| keys::sha256(&body));
    let incoming = Incoming::new(kind, key.clone(), to.to_owned());
    match simulator.play(&incoming, line.as_deref()).await {
        Reply::Accepted { .. } => match simulator.accepted(kind, &key) {
            Some(sent) => taken(simulator, record(&sent)),
            None => refused(simulator, StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL"),
        },
        Reply::Broken => refused(simulator, StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL"),
        Reply::Unavailable => refused(simulator, StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE"),
        Reply::RefusedPermanently => {
            refused(simulator, StatusCode::UNPROCESSABLE_ENTITY, "INVALID_RECIPIENT")
        }
        Reply::RefusedTransiently => limited(simulator, "1"),
        Reply::RateLimited { retry_after } => limited(simulator, &retry_after),
    }
}

async fn get_one(
    State(mounted): State<Mounted>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let simulator = &mounted.simulator;
    if !is_authorized(&headers) {
        return refused(simulator, StatusCode::UNAUTHORIZED, "UNAUTHORIZED");
    }
    match simulator.find(mounted.kind, Which::Message(&id)) {
        Err(_) => refused(simulator, StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE"),
        Ok(sent) => match sent.first() {
            Some(sent) => taken(simulator, record(sent)),
            None => refused(simulator, StatusCode::NOT_FOUND, "NOT_FOUND"),
        },
    }
}

#[derive(Deserialize)]
struct Asked {
    cursor: Option<usize>,
}

/// Newest first.
async fn list(
    State(mounted): State<Mounted>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Response {
    let simulator = &mounted.simulator;
    if !is_authorized(&headers) {
        return refused(simulator, StatusCode::UNAUTHORIZED, "UNAUTHORIZED");
    }
    let Ok(mut sent) = simulator.find(mounted.kind, Which::All) else {
        return refused(simulator, StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE");
    };
    sent.reverse();
    let skip = asked.cursor.unwrap_or(0);
    let items: Vec<Value> = sent.iter().skip(skip).take(PAGE).map(record).collect();
    let next = (skip + PAGE < sent.len()).then(|| (skip + PAGE).to_string());
    let page = json!({"items": items, "has_more": next.is_some(), "next_cursor": next});
    taken(simulator, page)
}

fn record(sent: &Sent) -> Value {
    let state = match sent.state {
        Seen::Accepted => "queued",
        Seen::Delivered => "delivered",
        Seen::Failed => "failed",
    };
    json!({
        "email_id": sent.message_id,
        "state": state,
        "to": sent.destination,
        "subject": "",
        "vendor": "simulator",
        "created_at": sent.at,
        "idempotency_key": sent.attempt,
    })
}

fn is_authorized(headers: &HeaderMap) -> bool {
    headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "))
        .is_some_and(|key| !key.is_empty())
}

fn envelope(simulator: &Simulator, status: StatusCode, data: Value, error: Value) -> Response {
    let id = simulator.entropy.hex(16);
    let metadata = json!({
        "cost_usd": 0, "latency_ms": 1, "vendor": "simulator", "cache_hit": false, "request_id": id,
    });
    let ok = status.is_success();
    (status, Json(json!({"ok": ok, "data": data, "error": error, "metadata": metadata})))
        .into_response()
}

fn taken(simulator: &Simulator, data: Value) -> Response {
    envelope(simulator, StatusCode::OK, data, Value::Null)
}

fn refused(simulator: &Simulator, status: StatusCode, code: &str) -> Response {
    envelope(simulator, status, Value::Null, json!({"code": code, "message": code}))
}

fn limited(simulator: &Simulator, retry_after: &str) -> Response {
    let mut response = refused(simulator, StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED");
    if let Ok(value) = HeaderValue::from_str(retry_after) {
        response.headers_mut().insert(RETRY_AFTER, value);
    }
    response
}

/// The vendor posts none.
pub(super) fn callback(_: &CallbackFacts<'_>, _: &str, _: &Secret) -> Option<Request<Bytes>> {
    None
}
