//! `/_control`: scripts in, calls and messages out. Open to whoever can reach the port.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;

use super::{MARK, Script, ScriptError, Simulator};

pub(super) fn routes(simulator: Arc<Simulator>) -> Router {
    Router::new()
        .route("/", get(overview).delete(clear))
        .route("/script", post(script))
        .route("/calls", get(calls))
        .route("/messages", get(messages))
        .route("/ca.pem", get(certificate))
        .with_state(simulator)
        .layer(axum::middleware::map_response(mark))
}

async fn mark(mut response: Response) -> Response {
    response.headers_mut().insert(HeaderName::from_static(MARK), HeaderValue::from_static("1"));
    response
}

async fn script(State(simulator): State<Arc<Simulator>>, body: Bytes) -> Response {
    match Script::parse(&body).and_then(|script| simulator.script(script)) {
        Ok(()) => Json(json!({"ok": true})).into_response(),
        Err(error) => problem(&error),
    }
}

/// RFC 9457. The value that was sent is never repeated.
fn problem(error: &ScriptError) -> Response {
    let errors: Vec<_> = if error.field.is_empty() {
        vec![]
    } else {
        vec![json!({"field": error.field, "code": error.code})]
    };
    let code = if error.field.is_empty() { error.code } else { "invalid_script" };
    let title = "The script cannot be used";
    let body = json!({"type": "about:blank", "title": title, "status": 400, "code": code, "errors": errors});
    let kind = HeaderValue::from_static("application/problem+json");
    (StatusCode::BAD_REQUEST, [(CONTENT_TYPE, kind)], body.to_string()).into_response()
}

#[derive(Deserialize)]
struct Filter {
    attempt: Option<String>,
}

async fn calls(State(simulator): State<Arc<Simulator>>, Query(filter): Query<Filter>) -> Response {
    let calls = simulator.calls(filter.attempt.as_deref());
    Json(json!({"count": calls.len(), "calls": calls})).into_response()
}

async fn messages(
    State(simulator): State<Arc<Simulator>>,
    Query(filter): Query<Filter>,
) -> Response {
    let messages = simulator.messages(filter.attempt.as_deref());
    Json(json!({"count": messages.len(), "messages": messages})).into_response()
}

/// What a client of its SMTP must trust.
async fn certificate(State(simulator): State<Arc<Simulator>>) -> Response {
    match simulator.identity() {
        Some(identity) => identity.pem.clone().into_response(),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn overview(State(simulator): State<Arc<Simulator>>) -> Response {
    let (calls, messages) = (simulator.calls(None).len(), simulator.messages(None).len());
    Json(json!({"calls": calls, "messages": messages, "lookups": simulator.lookups()}))
        .into_response()
}

async fn clear(State(simulator): State<Arc<Simulator>>) -> StatusCode {
    simulator.clear();
    StatusCode::NO_CONTENT
}
