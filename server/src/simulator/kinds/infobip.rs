//! Infobip's side, of an account for which repeats under the same `messageId` are dropped: they are answered
//! as the first one was.

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
use crate::providers::{Secret, infobip};
use crate::simulator::callbacks::CallbackFacts;
use crate::simulator::{CallbackTarget, Incoming, Line, Reply, Sent, Simulator, Which};

const KIND: &str = "infobip";

pub(super) fn routes(simulator: Arc<Simulator>, _: &'static str) -> Router {
    Router::new()
        .route("/sms/3/messages", post(send))
        .route("/sms/3/logs", get(logs))
        .route("/sms/3/reports", get(logs))
        .with_state(simulator)
}

/// Of a message whose sender names none.
pub(super) fn message_id(entropy: &dyn Entropy) -> String {
    format!("{}-{}", entropy.hex(6), entropy.hex(8))
}

fn error(status: StatusCode, code: &str) -> Response {
    let body = json!({
        "requestError": {"serviceException": {"messageId": code, "text": "See the code."}},
    });
    (status, Json(body)).into_response()
}

fn unauthorized() -> Response {
    error(StatusCode::UNAUTHORIZED, "UNAUTHORIZED")
}

#[derive(Deserialize)]
struct Message {
    destinations: Vec<Destination>,
    content: Content,
    webhooks: Option<Webhooks>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Destination {
    to: String,
    message_id: Option<String>,
}

#[derive(Deserialize)]
struct Content {
    text: String,
}

#[derive(Deserialize)]
struct Webhooks {
    delivery: Option<Delivery>,
}

#[derive(Deserialize)]
struct Delivery {
    url: String,
}

#[derive(Deserialize)]
struct Messages {
    messages: Vec<Message>,
}

async fn send(
    State(simulator): State<Arc<Simulator>>,
    line: Option<Extension<Line>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Some(token) = token(&headers, "App") else { return unauthorized() };
    let one = serde_json::from_slice::<Messages>(&body).ok().and_then(|mut all| {
        let message = all.messages.pop().filter(|_| all.messages.is_empty())?;
        (message.destinations.len() == 1 && !message.content.text.is_empty()).then_some(message)
    });
    let Some(mut message) = one else {
        return error(StatusCode::BAD_REQUEST, "BAD_REQUEST");
    };
    let Some(destination) = message.destinations.pop() else {
        return error(StatusCode::BAD_REQUEST, "BAD_REQUEST");
    };
    let id = destination.message_id.unwrap_or_else(|| unnamed(simulator.entropy()));
    let url = message.webhooks.and_then(|hooks| hooks.delivery).map(|delivery| delivery.url);
    // Numbers are kept and matched as everywhere else in here: with their plus.
    let to = format!("+{}", destination.to.trim_start_matches('+'));
    let incoming = Incoming {
        target: url.and_then(|url| CallbackTarget::loopback(url, token)),
        ..Incoming::new(KIND, id.clone(), to)
    };
    match simulator.play(&incoming, line.as_deref()).await {
        Reply::Accepted { .. } => told(&id, &destination.to, 1, "PENDING", "PENDING_ACCEPTED"),
        Reply::Broken => error(StatusCode::INTERNAL_SERVER_ERROR, "GENERAL_ERROR"),
        Reply::Unavailable => error(StatusCode::SERVICE_UNAVAILABLE, "GENERAL_ERROR"),
        // A 200 that carries the rejection.
        Reply::RefusedPermanently => {
            told(&id, &destination.to, 5, "REJECTED", "REJECTED_DESTINATION")
        }
        Reply::RefusedTransiently => error(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_REQUESTS"),
        Reply::RateLimited { retry_after: text } => {
            retry_after(error(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_REQUESTS"), &text)
        }
    }
}

fn told(id: &str, to: &str, group: u32, group_name: &str, name: &str) -> Response {
    let status = json!({
        "groupId": group,
        "groupName": group_name,
        "id": 26,
        "name": name,
        "description": "See the name.",
    });
    let message = json!({
        "messageId": id,
        "status": status,
        "destination": to,
        "details": {"messageCount": 1},
    });
    Json(json!({"messages": [message]})).into_response()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    message_id: Option<String>,
}

async fn logs(
    State(simulator): State<Arc<Simulator>>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Response {
    if token(&headers, "App").is_none() {
        return unauthorized();
    }
    let mut rows = Vec::new();
    for id in asked.message_id.unwrap_or_default().split(',') {
        match simulator.find(KIND, Which::Attempt(id)) {
            Ok(found) => rows.extend(found.iter().map(row)),
            Err(_) => return error(StatusCode::SERVICE_UNAVAILABLE, "GENERAL_ERROR"),
        }
    }
    Json(json!({"results": rows})).into_response()
}

fn row(sent: &Sent) -> Value {
    let to = sent.destination.as_deref().unwrap_or_default();
    result(&sent.attempt, to, sent.state, sent.at, sent.at)
}

fn result(id: &str, to: &str, seen: Seen, sent_at: Stamp, done_at: Stamp) -> Value {
    let (group, name) = match seen {
        Seen::Accepted => (1, "PENDING"),
        Seen::Delivered => (3, "DELIVERED"),
        Seen::Failed => (2, "UNDELIVERABLE"),
    };
    json!({
        "messageId": id,
        "to": to.trim_start_matches('+'),
        "sentAt": date(sent_at),
        "doneAt": date(done_at),
        "messageCount": 1,
        "price": {"pricePerMessage": 0, "currency": "EUR"},
        "status": {"groupId": group, "groupName": name, "id": 5, "name": name},
        "error": {"groupId": 0, "groupName": "OK", "id": 0, "name": "NO_ERROR", "permanent": false},
        "callbackData": id,
    })
}

/// `2026-09-21T14:13:20.000+0000`
fn date(at: Stamp) -> String {
    let text = at.to_string();
    let whole = text.get(..23).unwrap_or(&text);
    format!("{whole}+0000")
}

/// The report, posted to the URL that the message named: that is all that proves it.
pub(super) fn callback(
    facts: &CallbackFacts<'_>,
    url: &str,
    key: &Secret,
) -> Option<Request<Bytes>> {
    let mut url = url::Url::parse(url).ok()?;
    if key != facts.expected {
        let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        let mut query = url.query_pairs_mut();
        query.clear();
        for (name, value) in &pairs {
            let value = if name == infobip::KEY { key.expose() } else { value };
            query.append_pair(name, value);
        }
    }
    let row = result(facts.attempt, facts.destination, facts.state, facts.now, facts.now);
    Request::post(url.as_str())
        .header(CONTENT_TYPE, "application/json")
        .body(Bytes::from(json!({"results": [row]}).to_string()))
        .ok()
}
