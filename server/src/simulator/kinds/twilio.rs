//! Twilio's side: `Messages.json` with its list, its pages and its status callbacks.
//!
//! It honours no key: the same request twice is two messages.

use std::sync::Arc;

use app::model::{Seen, Stamp};
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::{basic, retry_after, unnamed};
use crate::entropy::Entropy;
use crate::providers::vendor::{self, ATTEMPT};
use crate::providers::{Secret, twilio};
use crate::simulator::callbacks::CallbackFacts;
use crate::simulator::{CallbackTarget, Incoming, Line, Reply, Sent, Simulator, Which};

const KIND: &str = "twilio";
const VERSION: &str = "2010-04-01";

/// The most messages on a page, and how many without being asked.
const PAGE_MAX: usize = 1_000;
const PAGE: usize = 50;

pub(super) fn routes(simulator: Arc<Simulator>, _: &'static str) -> Router {
    Router::new()
        .route(&format!("/{VERSION}/Accounts/{{account}}/Messages.json"), post(send).get(list))
        .route(&format!("/{VERSION}/Accounts/{{account}}/Messages/{{file}}"), get(fetch))
        .with_state(simulator)
}

pub(super) fn message_id(entropy: &dyn Entropy) -> String {
    format!("SM{}", entropy.hex(16))
}

fn error(status: StatusCode, code: u32, message: &str) -> Response {
    let body = json!({
        "code": code,
        "message": message,
        "more_info": format!("https://www.twilio.com/docs/errors/{code}"),
        "status": status.as_u16(),
    });
    (status, Json(body)).into_response()
}

/// The account's token, where its credentials are in the request.
fn signed_in(headers: &HeaderMap, account: &str) -> Option<Secret> {
    basic(headers).filter(|(user, _)| user == account).map(|(_, token)| token)
}

fn unauthorized() -> Response {
    error(StatusCode::UNAUTHORIZED, 20003, "Authenticate")
}

async fn send(
    State(simulator): State<Arc<Simulator>>,
    Path(account): Path<String>,
    line: Option<Extension<Line>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Some(token) = signed_in(&headers, &account) else { return unauthorized() };
    let fields: Vec<(String, String)> = form_urlencoded::parse(&body).into_owned().collect();
    let field = |name: &str| {
        fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    };
    let bad = |code, message| error(StatusCode::BAD_REQUEST, code, message);
    let to = field("To").unwrap_or_default();
    let is_number = to.strip_prefix('+').is_some_and(|digits| {
        (8..=15).contains(&digits.len()) && digits.bytes().all(|c| c.is_ascii_digit())
    });
    if !is_number {
        return bad(21211, "The 'To' number is not a valid phone number.");
    }
    let Some(text) = field("Body").filter(|text| (1..=1600).contains(&text.chars().count())) else {
        return bad(21602, "Message body is required.");
    };
    let sender = field("From").or(field("MessagingServiceSid")).unwrap_or_default();
    if sender.is_empty() {
        return bad(21603, "A 'From' phone number is required.");
    }
    if let Some(period) = field("ValidityPeriod")
        && !period.parse::<u32>().is_ok_and(|seconds| (1..=36_000).contains(&seconds))
    {
        return bad(21633, "The validity period is out of range.");
    }
    let callback = field("StatusCallback").map(str::to_owned);
    let attempt = callback.as_deref().and_then(|url| {
        let url = url::Url::parse(url).ok()?;
        url.query_pairs().find(|(name, _)| name == ATTEMPT).map(|(_, id)| id.into_owned())
    });
    let incoming = Incoming {
        text: Some(Secret::new(text.to_owned())),
        target: callback.and_then(|url| CallbackTarget::loopback(url, token)),
        ..Incoming::new(
            KIND,
            attempt.unwrap_or_else(|| unnamed(simulator.entropy())),
            to.to_owned(),
        )
    };
    match simulator.play(&incoming, line.as_deref()).await {
        Reply::Accepted { message_id, .. } => {
            let at = simulator.now();
            let told = Told { sid: &message_id, to, body: Some(text), at, status: "queued" };
            (StatusCode::CREATED, Json(told.json(&account))).into_response()
        }
        Reply::Broken => {
            error(StatusCode::INTERNAL_SERVER_ERROR, 20500, "An internal server error has occurred")
        }
        Reply::Unavailable => {
            error(StatusCode::SERVICE_UNAVAILABLE, 20500, "An internal server error has occurred")
        }
        Reply::RefusedPermanently => bad(21211, "The 'To' number is not a valid phone number."),
        Reply::RefusedTransiently => {
            error(StatusCode::TOO_MANY_REQUESTS, 20429, "Too many requests")
        }
        Reply::RateLimited { retry_after: text } => {
            retry_after(error(StatusCode::TOO_MANY_REQUESTS, 20429, "Too many requests"), &text)
        }
    }
}

/// A message as the API shows it.
struct Told<'a> {
    sid: &'a str,
    to: &'a str,
    body: Option<&'a str>,
    at: Stamp,
    status: &'static str,
}

impl Told<'_> {
    fn json(&self, account: &str) -> Value {
        let date = date(self.at);
        json!({
            "account_sid": account,
            "api_version": VERSION,
            "body": self.body,
            "date_created": date,
            "date_sent": (self.status != "queued").then_some(&date),
            "date_updated": date,
            "direction": "outbound-api",
            "error_code": (self.status == "undelivered").then_some(30003),
            "error_message": null,
            "from": "+15005550006",
            "messaging_service_sid": null,
            "num_media": "0",
            "num_segments": "1",
            "price": null,
            "price_unit": "USD",
            "sid": self.sid,
            "status": self.status,
            "subresource_uris": {},
            "to": self.to,
            "uri": format!("/{VERSION}/Accounts/{account}/Messages/{}.json", self.sid),
        })
    }
}

fn shown(sent: &Sent, account: &str) -> Value {
    Told {
        sid: &sent.message_id,
        to: sent.destination.as_deref().unwrap_or_default(),
        body: sent.text.as_ref().map(Secret::expose),
        at: sent.at,
        status: word(sent.state),
    }
    .json(account)
}

const fn word(seen: Seen) -> &'static str {
    match seen {
        Seen::Accepted => "sent",
        Seen::Delivered => "delivered",
        Seen::Failed => "undelivered",
    }
}

/// `Thu, 24 Aug 2023 05:01:45 +0000`, whole seconds.
fn date(at: Stamp) -> String {
    jiff::Timestamp::from_microsecond(at.micros())
        .ok()
        .and_then(|at| jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_string(&at).ok())
        .unwrap_or_default()
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Asked {
    to: Option<String>,
    page_size: Option<usize>,
    page: Option<usize>,
}

async fn list(
    State(simulator): State<Arc<Simulator>>,
    Path(account): Path<String>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Response {
    if signed_in(&headers, &account).is_none() {
        return unauthorized();
    }
    let to = asked.to.unwrap_or_default();
    let Ok(mut all) = simulator.find(KIND, Which::Destination(&to)) else {
        return error(StatusCode::SERVICE_UNAVAILABLE, 20503, "Service unavailable");
    };
    all.reverse();
    let size = asked.page_size.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let page = asked.page.unwrap_or(0);
    let messages: Vec<Value> =
        all.iter().skip(page * size).take(size).map(|sent| shown(sent, &account)).collect();
    let uri = |page: usize| {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("To", &to)
            .append_pair("PageSize", &size.to_string())
            .append_pair("Page", &page.to_string())
            .finish();
        format!("/{VERSION}/Accounts/{account}/Messages.json?{query}")
    };
    let has_more = all.len() > (page + 1) * size;
    Json(json!({
        "end": (page * size + messages.len()).saturating_sub(1),
        "first_page_uri": uri(0),
        "next_page_uri": has_more.then(|| uri(page + 1)),
        "page": page,
        "page_size": size,
        "previous_page_uri": page.checked_sub(1).map(uri),
        "start": page * size,
        "uri": uri(page),
        "messages": messages,
    }))
    .into_response()
}

async fn fetch(
    State(simulator): State<Arc<Simulator>>,
    Path((account, file)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    if signed_in(&headers, &account).is_none() {
        return unauthorized();
    }
    let sid = file.trim_end_matches(".json");
    match simulator.find(KIND, Which::Message(sid)) {
        Err(_) => error(StatusCode::SERVICE_UNAVAILABLE, 20503, "Service unavailable"),
        Ok(found) => match found.first() {
            Some(sent) => Json(shown(sent, &account)).into_response(),
            None => error(StatusCode::NOT_FOUND, 20404, "The requested resource was not found"),
        },
    }
}

/// A form, signed with the account's token over the URL that the message named.
pub(super) fn callback(
    facts: &CallbackFacts<'_>,
    url: &str,
    key: &Secret,
) -> Option<Request<Bytes>> {
    let status = word(facts.state);
    let mut fields = vec![
        ("AccountSid".to_owned(), "AC00000000000000000000000000000000".to_owned()),
        ("MessageSid".to_owned(), facts.message_id.to_owned()),
        ("MessageStatus".to_owned(), status.to_owned()),
        ("SmsSid".to_owned(), facts.message_id.to_owned()),
        ("SmsStatus".to_owned(), status.to_owned()),
        ("To".to_owned(), facts.destination.to_owned()),
        ("From".to_owned(), "+15005550006".to_owned()),
    ];
    if facts.state == Seen::Failed {
        fields.push(("ErrorCode".to_owned(), "30003".to_owned()));
    }
    let pairs: Vec<(&str, &str)> =
        fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    Request::post(url)
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(twilio::SIGNATURE, twilio::signature(key, url, &fields))
        .body(vendor::form(&pairs))
        .ok()
}
