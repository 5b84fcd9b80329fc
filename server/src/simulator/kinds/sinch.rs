//! Sinch's side: batches and delivery reports, both found by the client's reference.
//!
//! The plan's resources are at `/xms/v1/<plan>/…`, and also at the root.

use std::sync::Arc;

use app::model::{Seen, Stamp};
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{retry_after, token, unnamed};
use crate::entropy::Entropy;
use crate::providers::{Secret, sinch};
use crate::simulator::callbacks::CallbackFacts;
use crate::simulator::{CallbackTarget, Down, Incoming, Line, Reply, Sent, Simulator, Which};

const KIND: &str = "sinch";

pub(super) fn routes(simulator: Arc<Simulator>, _: &'static str) -> Router {
    let mut router = Router::new();
    for base in ["", "/xms/v1/{plan}"] {
        router = router
            .route(&format!("{base}/batches"), post(send).get(batches))
            .route(&format!("{base}/delivery_reports"), get(reports));
    }
    router.with_state(simulator)
}

/// 26 characters as a ULID has them.
pub(super) fn message_id(entropy: &dyn Entropy) -> String {
    format!("01{}", entropy.hex(12).to_ascii_uppercase())
}

fn error(status: StatusCode, code: &str) -> Response {
    (status, Json(json!({"code": code, "text": "See the code."}))).into_response()
}

fn unauthorized() -> Response {
    error(StatusCode::UNAUTHORIZED, "unauthorized")
}

#[derive(Deserialize)]
struct Batch {
    to: Vec<String>,
    body: String,
    client_reference: Option<String>,
    expire_at: Option<Stamp>,
    callback_url: Option<String>,
}

async fn send(
    State(simulator): State<Arc<Simulator>>,
    line: Option<Extension<Line>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Some(token) = token(&headers, "Bearer") else { return unauthorized() };
    let now = simulator.now();
    let batch = serde_json::from_slice::<Batch>(&body).ok().filter(|batch| {
        batch.to.len() == 1 && !batch.body.is_empty() && batch.expire_at.is_none_or(|at| at > now)
    });
    let Some(batch) = batch else {
        return error(StatusCode::BAD_REQUEST, "syntax_constraint_violation");
    };
    let attempt = batch.client_reference.unwrap_or_else(|| unnamed(simulator.entropy()));
    let to = batch.to.into_iter().next().unwrap_or_default();
    let incoming = Incoming {
        target: batch.callback_url.and_then(|url| CallbackTarget::loopback(url, token)),
        ..Incoming::new(KIND, attempt.clone(), to.clone())
    };
    match simulator.play(&incoming, line.as_deref()).await {
        Reply::Accepted { message_id, .. } => (
            StatusCode::CREATED,
            Json(json!({
                "id": message_id,
                "to": [to.trim_start_matches('+')],
                "type": "mt_text",
                "client_reference": attempt,
                "canceled": false,
                "created_at": now,
                "modified_at": now,
                "delivery_report": "per_recipient",
            })),
        )
            .into_response(),
        Reply::Broken => error(StatusCode::INTERNAL_SERVER_ERROR, "internal_error"),
        Reply::Unavailable => error(StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        Reply::RefusedPermanently => {
            error(StatusCode::BAD_REQUEST, "syntax_invalid_parameter_format")
        }
        Reply::RefusedTransiently => error(StatusCode::TOO_MANY_REQUESTS, "too_many_requests"),
        Reply::RateLimited { retry_after: text } => {
            retry_after(error(StatusCode::TOO_MANY_REQUESTS, "too_many_requests"), &text)
        }
    }
}

#[derive(Deserialize)]
struct Asked {
    client_reference: Option<String>,
    #[serde(default)]
    page: usize,
    page_size: Option<usize>,
    start_date: Option<Stamp>,
}

/// What the filter lets through, newest first; without a start the last day alone.
fn asked_for(simulator: &Simulator, asked: &Asked) -> Result<Vec<Sent>, Down> {
    const DAY: i64 = 24 * 60 * 60 * 1_000_000;
    let reference = asked.client_reference.as_deref().unwrap_or_default();
    let start = asked.start_date.unwrap_or(simulator.now().plus(-DAY));
    let mut found = simulator.find(KIND, Which::Attempt(reference))?;
    found.retain(|sent| sent.at >= start);
    found.reverse();
    Ok(found)
}

async fn listed(
    simulator: &Simulator,
    asked: &Asked,
    headers: &HeaderMap,
    name: &str,
    show: impl Fn(&Sent) -> Value,
) -> Response {
    if token(headers, "Bearer").is_none() {
        return unauthorized();
    }
    let Ok(found) = asked_for(simulator, asked) else {
        return error(StatusCode::SERVICE_UNAVAILABLE, "unavailable");
    };
    let size = asked.page_size.unwrap_or(30).clamp(1, 100);
    let rows: Vec<Value> = found.iter().skip(asked.page * size).take(size).map(show).collect();
    let mut body = json!({"count": found.len(), "page": asked.page, "page_size": rows.len()});
    body[name] = Value::Array(rows);
    Json(body).into_response()
}

async fn batches(
    State(simulator): State<Arc<Simulator>>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Response {
    let show = |sent: &Sent| {
        json!({
            "id": sent.message_id,
            "type": "mt_text",
            "client_reference": sent.attempt,
            "canceled": false,
            "created_at": sent.at,
        })
    };
    listed(&simulator, &asked, &headers, "batches", show).await
}

async fn reports(
    State(simulator): State<Arc<Simulator>>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Response {
    let show = |sent: &Sent| {
        json!({
            "type": "recipient_delivery_report_sms",
            "batch_id": sent.message_id,
            "client_reference": sent.attempt,
            "status": word(sent.state),
            "code": code(sent.state),
            "at": sent.at,
        })
    };
    listed(&simulator, &asked, &headers, "delivery_reports", show).await
}

const fn word(seen: Seen) -> &'static str {
    match seen {
        Seen::Accepted => "Dispatched",
        Seen::Delivered => "Delivered",
        Seen::Failed => "Failed",
    }
}

const fn code(seen: Seen) -> u32 {
    match seen {
        Seen::Accepted => 401,
        Seen::Delivered => 0,
        Seen::Failed => 404,
    }
}

/// One recipient's report, signed over body, nonce and time.
pub(super) fn callback(
    facts: &CallbackFacts<'_>,
    url: &str,
    key: &Secret,
) -> Option<Request<Bytes>> {
    let body = json!({
        "type": "recipient_delivery_report_sms",
        "at": facts.now,
        "operator_status_at": facts.now,
        "batch_id": facts.message_id,
        "client_reference": facts.attempt,
        "code": code(facts.state),
        "recipient": facts.destination.trim_start_matches('+'),
        "status": word(facts.state),
    })
    .to_string();
    let nonce = format!("01{}", facts.now.micros());
    let timestamp = facts.now.micros().div_euclid(1_000_000).to_string();
    let signature = sinch::signature(key, body.as_bytes(), &nonce, &timestamp);
    Request::post(url)
        .header(CONTENT_TYPE, "application/json")
        .header(sinch::SIGNATURE, signature)
        .header(sinch::NONCE, nonce)
        .header(sinch::TIMESTAMP, timestamp)
        .header(sinch::ALGORITHM, "HmacSHA256")
        .body(Bytes::from(body))
        .ok()
}
