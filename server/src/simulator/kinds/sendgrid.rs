//! SendGrid, from its own side: sending, the Email Logs, the signed event webhook.
//!
//! The key of a callback target stands for a key pair; its public half is had as from the vendor, from
//! `GET /v3/user/webhooks/event/settings/signed/{the key}`.

use std::sync::Arc;

use app::model::{Seen, Stamp};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{DerSignature, SigningKey};
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::entropy::Entropy;
use crate::keys;
use crate::providers::Secret;
use crate::providers::sendgrid::{SIGNATURE_HEADER, SPKI_PREFIX, TIMESTAMP_HEADER};
use crate::simulator::callbacks::CallbackFacts;
use crate::simulator::{Incoming, Line, Reply, Sent, Simulator, Which};

/// What a list gives when it is not told, and at most.
const LIMIT_DEFAULT: usize = 10;
const LIMIT_MAX: usize = 1000;

/// What follows the id of the answer in the id of the message.
const ID_REST: &str = ".recvd-85abf8d92c-3qfgp-1-68BF4A10-2F.0";

#[derive(Clone)]
struct Mounted {
    simulator: Arc<Simulator>,
    kind: &'static str,
}

pub(super) fn routes(simulator: Arc<Simulator>, kind: &'static str) -> Router {
    Router::new()
        .route("/v3/mail/send", post(send))
        .route("/v3/logs", post(list))
        .route("/v3/logs/{id}", get(details))
        .route("/v3/user/webhooks/event/settings/signed/{id}", get(settings))
        .with_state(Mounted { simulator, kind })
}

/// The id of the answer: 16 bytes as base64 for URLs.
pub(super) fn message_id(entropy: &dyn Entropy) -> String {
    let mut bytes = [0_u8; 16];
    entropy.fill(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mailbox {
    email: String,
    #[serde(rename = "name")]
    _name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Personalization {
    to: Vec<Mailbox>,
    #[serde(default)]
    custom_args: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(rename = "type")]
    kind: String,
    value: String,
}

/// What a sender must give. The texts are looked at and dropped.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    personalizations: Vec<Personalization>,
    from: Mailbox,
    subject: Option<String>,
    #[serde(default)]
    content: Vec<Content>,
    #[serde(rename = "headers")]
    _headers: Option<Value>,
    #[serde(rename = "tracking_settings")]
    _tracking_settings: Option<Value>,
}

impl Message {
    /// The field of the first fault that is found, and the vendor's words for it.
    fn fault(&self) -> Option<(&'static str, &'static str)> {
        let is_text = |text: &str| !text.is_empty();
        let to = self.personalizations.first().map(|it| it.to.as_slice()).unwrap_or_default();
        if self.personalizations.len() != 1 || to.len() != 1 || !to[0].email.contains('@') {
            Some(("personalizations.0.to.0.email", "Does not contain a valid address."))
        } else if !self.from.email.contains('@') {
            Some(("from.email", "The from email does not contain a valid address."))
        } else if !self.subject.as_deref().is_some_and(is_text) {
            Some(("subject", "The subject is required."))
        } else if self.content.is_empty()
            || !self.content.iter().all(|it| is_text(&it.kind) && is_text(&it.value))
        {
            Some(("content", "Unless a valid template_id is provided, the content is required."))
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
        return error(StatusCode::BAD_REQUEST, None, "Bad Request");
    };
    if let Some((field, text)) = message.fault() {
        return error(StatusCode::BAD_REQUEST, Some(field), text);
    }
    let one = &message.personalizations[0];
    let attempt = one.custom_args.get("attempt_id").and_then(Value::as_str).unwrap_or_default();
    let incoming = Incoming::new(mounted.kind, attempt.to_owned(), one.to[0].email.clone());
    match simulator.play(&incoming, line.as_deref()).await {
        Reply::Accepted { message_id, .. } => {
            (StatusCode::ACCEPTED, [("x-message-id", message_id)]).into_response()
        }
        Reply::Broken => error(StatusCode::INTERNAL_SERVER_ERROR, None, "internal server error"),
        Reply::Unavailable => error(StatusCode::SERVICE_UNAVAILABLE, None, "service unavailable"),
        Reply::RefusedPermanently => error(
            StatusCode::BAD_REQUEST,
            Some("personalizations.0.to.0.email"),
            "Does not contain a valid address.",
        ),
        // It refuses nothing for a while but what is too much.
        Reply::RefusedTransiently => too_many(None),
        Reply::RateLimited { retry_after } => too_many(Some(&retry_after)),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    query: String,
    limit: Option<usize>,
}

/// What a query of the logs asks for; the vendor's language, as far as the product speaks it.
struct Wanted {
    to: String,
    since: Option<Stamp>,
}

impl Wanted {
    fn parse(query: &str) -> Option<Self> {
        let (mut to, mut since) = (None, None);
        for condition in query.split(" AND ") {
            let quoted = |text: &str| {
                let inner = text.trim().strip_prefix('"')?.strip_suffix('"')?;
                (!inner.contains('"')).then(|| inner.to_owned())
            };
            if let Some(value) = condition.strip_prefix("to_email = ") {
                to = Some(quoted(value)?);
            } else {
                let value = condition.strip_prefix("sg_message_id_created_at >= TIMESTAMP ")?;
                since = Some(Stamp::parse(&quoted(value)?).ok()?);
            }
        }
        Some(Self { to: to?, since })
    }
}

async fn list(State(mounted): State<Mounted>, headers: HeaderMap, body: Bytes) -> Response {
    let simulator = &mounted.simulator;
    if let Some(refused) = stranger(simulator, &headers) {
        return refused;
    }
    let asked = serde_json::from_slice::<Asked>(&body).ok();
    let limit = asked.as_ref().and_then(|asked| asked.limit).unwrap_or(LIMIT_DEFAULT);
    let wanted = asked.and_then(|asked| Wanted::parse(&asked.query));
    let Some(wanted) = wanted.filter(|_| (1..=LIMIT_MAX).contains(&limit)) else {
        return error(StatusCode::BAD_REQUEST, Some("query"), "invalid query");
    };
    let Ok(found) = simulator.find(mounted.kind, Which::Destination(&wanted.to)) else {
        return error(StatusCode::SERVICE_UNAVAILABLE, None, "service unavailable");
    };
    // The newest first.
    let found = found.iter().rev().filter(|sent| wanted.since.is_none_or(|since| sent.at >= since));
    let messages: Vec<Value> = found.take(limit).map(summary).collect();
    Json(json!({"messages": messages})).into_response()
}

fn summary(sent: &Sent) -> Value {
    json!({
        "from_email": "no-reply@example.com",
        "sg_message_id": format!("{}{ID_REST}", sent.message_id),
        "subject": "",
        "to_email": sent.destination,
        "status": match sent.state {
            Seen::Accepted => "processed",
            Seen::Delivered => "delivered",
            Seen::Failed => "bounced",
        },
        "sg_message_id_created_at": sent.at,
    })
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
    let id = id.strip_suffix(ID_REST).unwrap_or_default();
    let Ok(found) = simulator.find(mounted.kind, Which::Message(id)) else {
        return error(StatusCode::SERVICE_UNAVAILABLE, None, "service unavailable");
    };
    let Some(sent) = found.first() else {
        return error(StatusCode::NOT_FOUND, None, "message not found");
    };
    let mut details = summary(sent);
    // Only a list says when.
    details.as_object_mut().and_then(|details| details.remove("sg_message_id_created_at"));
    details["api_key_id"] = json!("simulator");
    details["client_ip"] = json!("127.0.0.1");
    details["custom_args"] = custom_args(&sent.attempt);
    details["events"] = json!([{
        "event": "received",
        "email": sent.destination,
        "recv_msgid": sent.message_id,
        "sg_event_id": keys::sha256(sent.message_id.as_bytes()).get(..22),
        "timestamp": sent.at.micros() / 1_000_000,
        "client_ip": "127.0.0.1",
        "protocol": "HTTP",
        "recipient_count": 1,
        "size": 1024,
    }]);
    Json(details).into_response()
}

fn custom_args(attempt: &str) -> Value {
    if attempt.is_empty() { json!({}) } else { json!({"attempt_id": attempt}) }
}

/// The public key of a webhook. Its id is, here, the key of the callback target.
async fn settings(
    State(mounted): State<Mounted>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Some(refused) = stranger(&mounted.simulator, &headers) {
        return refused;
    }
    let key = public_key(&Secret::new(id.clone()));
    Json(json!({"id": id, "public_key": key})).into_response()
}

fn stranger(simulator: &Simulator, headers: &HeaderMap) -> Option<Response> {
    let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let is_known = value.and_then(|value| value.strip_prefix("Bearer ")).is_some_and(|key| {
        let own = simulator.secret();
        !key.is_empty()
            && own.is_none_or(|own| keys::equal(own.expose().as_bytes(), key.as_bytes()))
    });
    (!is_known).then(|| error(StatusCode::UNAUTHORIZED, None, "authorization required"))
}

fn too_many(retry_after: Option<&str>) -> Response {
    let mut response = error(StatusCode::TOO_MANY_REQUESTS, None, "too many requests");
    if let Some(value) = retry_after.and_then(|text| HeaderValue::from_str(text).ok()) {
        response.headers_mut().insert(RETRY_AFTER, value);
    }
    response
}

fn error(status: StatusCode, field: Option<&str>, text: &str) -> Response {
    let mut one = json!({"message": text});
    if let Some(field) = field {
        one["field"] = json!(field);
    }
    (status, Json(json!({"errors": [one]}))).into_response()
}

/// The key pair that a callback target's key stands for.
fn signing_key(key: &Secret) -> SigningKey {
    // A hash is below the order of the curve but for one in 2^32; then the next hash is taken.
    let mut seed = digest(&SHA256, key.expose().as_bytes());
    loop {
        match SigningKey::from_slice(seed.as_ref()) {
            Ok(pair) => return pair,
            Err(_) => seed = digest(&SHA256, seed.as_ref()),
        }
    }
}

/// The public half of the key pair that this key stands for: base64 of its SubjectPublicKeyInfo. What
/// `webhook_secret` is set to for callbacks that are signed with this key.
#[must_use]
pub fn public_key(key: &Secret) -> String {
    let point = signing_key(key).verifying_key().to_sec1_point(false);
    STANDARD.encode([&SPKI_PREFIX, point.as_bytes()].concat())
}

/// A batch of one event, signed over time and raw body, the closing line break included.
pub(super) fn callback(
    facts: &CallbackFacts<'_>,
    url: &str,
    key: &Secret,
) -> Option<Request<Bytes>> {
    let at = facts.now.micros() / 1_000_000;
    let mut event = json!({
        "email": facts.destination,
        "timestamp": at,
        "event": "processed",
        "sg_event_id": facts.entropy.hex(11),
        "sg_message_id": format!("{}{ID_REST}", facts.message_id),
        "smtp-id": format!("<{}@geopod-ismtpd-1>", facts.message_id),
    });
    match facts.state {
        Seen::Accepted => {}
        Seen::Delivered => {
            event["event"] = json!("delivered");
            event["response"] = json!("250 2.0.0 OK");
        }
        Seen::Failed => {
            event["event"] = json!("bounce");
            event["type"] = json!("bounce");
            event["status"] = json!("5.1.1");
        }
    }
    if let (Some(event), Value::Object(args)) = (event.as_object_mut(), custom_args(facts.attempt))
    {
        event.extend(args);
    }
    let body = format!("[{event}]\r\n");
    let time = at.to_string();
    let signature: DerSignature = signing_key(key).sign(format!("{time}{body}").as_bytes());
    Request::post(url)
        .header(CONTENT_TYPE, "application/json")
        .header(TIMESTAMP_HEADER, time)
        .header(SIGNATURE_HEADER, STANDARD.encode(signature.as_bytes()))
        .body(Bytes::from(body))
        .ok()
}
