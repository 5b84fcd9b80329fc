//! Infobip SMS.
//!
//! Our attempt id is the vendor's `messageId`, so a look-up is direct. Where the vendor has switched it on
//! for the account (`idempotent = true` with its `window`), a repeat under the same id is answered as the
//! first one and dropped later; by default it is not, and then nothing is repeated.

use std::fmt;
use std::sync::Arc;

use app::model::{Seen, Stamp};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::classes::{self, Class, Row, Taken, coded, range, status};
use super::http::{code_of, verdict_of_failure};
use super::transport::Transport;
use super::vendor::{self, ATTEMPT, Parts, is_attempt_id};
use super::{
    BuildError, Callback, CallbackError, CallbackRequest, Capability, Cause, Deadline, Message,
    Provider, Query, Reading, Receipt, Secret, kept,
};
use crate::clock::Clock;
use crate::domain::{Lookup, Verdict};
use crate::keys;

/// The vendor's public address; accounts have one of their own.
const PUBLIC: &str = "https://api.infobip.com";

/// The longest validity period that it takes: 48 hours, in seconds.
const VALIDITY_MAX_S: i64 = 48 * 60 * 60;

/// The parameter of a callback's URL that proves who was told it.
pub const KEY: &str = "key";

/// What an answer to a sending request means. Of a 200 the code is the message's own status: its name where
/// a row has it, else its group.
pub const CLASSES: &[Row] = &[
    coded(200, "PENDING", Class::Accepted, "PROVIDERS 4.2: status groups"),
    coded(200, "ACCEPTED", Class::Accepted, "PROVIDERS 4.2: status groups"),
    coded(200, "DELIVERED", Class::Accepted, "PROVIDERS 4.2: status groups"),
    coded(
        200,
        "REJECTED_NOT_ENOUGH_CREDITS",
        Class::Config,
        "the account's credit, not this message",
    ),
    coded(200, "REJECTED", Class::Permanent, "PROVIDERS 4.2: a 200 can carry a rejection"),
    status(200, Class::Ambiguous, "PROVIDERS 4.2: no status of a known group"),
    status(400, Class::Permanent, "CASES B41"),
    status(401, Class::Config, "PROVIDERS 5: credentials"),
    status(403, Class::Config, "PROVIDERS 5: credentials"),
    status(404, Class::Config, "the endpoint is named by base_url alone"),
    status(413, Class::Permanent, "CASES B41"),
    status(422, Class::Permanent, "CASES B41"),
    status(429, Class::RateLimited, "PROVIDERS 5: rate"),
    range(500, 599, Class::Ambiguous, "PROVIDERS 5: server"),
];

/// One account.
pub struct Infobip {
    base_url: String,
    authorization: Secret,
    from: Option<String>,
    webhook_secret: Option<Secret>,
    webhook_url: String,
    capability: Capability,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
}

impl fmt::Debug for Infobip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Infobip")
    }
}

/// Makes one from its configuration.
///
/// # Errors
/// Names the key that is missing or wrong.
pub fn make(parts: &Parts<'_>) -> Result<Arc<dyn Provider>, BuildError> {
    Ok(Arc::new(Infobip {
        base_url: parts.base_url(PUBLIC)?,
        authorization: vendor::token("App", &parts.credential("api_key")?),
        from: parts.setting("from").ok(),
        webhook_secret: parts.webhook_secret(),
        webhook_url: parts.webhook_url(),
        capability: parts.capability()?,
        clock: Arc::clone(&parts.clock),
        transport: Arc::clone(&parts.transport),
    }))
}

#[derive(Serialize)]
struct Request<'a> {
    messages: [Outgoing<'a>; 1],
}

#[derive(Serialize)]
struct Outgoing<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    sender: Option<&'a str>,
    destinations: [Destination<'a>; 1],
    content: Content<'a>,
    options: Options,
    #[serde(skip_serializing_if = "Option::is_none")]
    webhooks: Option<Webhooks<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Destination<'a> {
    to: &'a str,
    message_id: &'a str,
}

#[derive(Serialize)]
struct Content<'a> {
    text: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Options {
    validity_period: Validity,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Validity {
    amount: i64,
    time_unit: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Webhooks<'a> {
    delivery: Delivery<'a>,
    content_type: &'static str,
    callback_data: &'a str,
}

#[derive(Serialize)]
struct Delivery<'a> {
    url: &'a str,
}

/// One message in an answer, a log or a callback.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    message_id: Option<String>,
    status: Option<Status>,
    done_at: Option<String>,
    callback_data: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    group_name: String,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    messages: Vec<Told>,
}

#[derive(Deserialize)]
struct Logs {
    results: Vec<Told>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Refusal {
    error_code: Option<String>,
    request_error: Option<RequestError>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestError {
    service_exception: Option<ServiceException>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServiceException {
    message_id: Option<String>,
}

/// What a status says; none for a group that we do not know.
fn seen(status: &Status) -> Option<(Seen, Option<Cause>)> {
    Some(match status.group_name.as_str() {
        "ACCEPTED" | "PENDING" => (Seen::Accepted, None),
        "DELIVERED" => (Seen::Delivered, None),
        "UNDELIVERABLE" => (Seen::Failed, Some(Cause::Unreachable)),
        "EXPIRED" => (Seen::Failed, Some(Cause::Expired)),
        "REJECTED" => (Seen::Failed, Some(Cause::Rejected)),
        _ => return None,
    })
}

/// The code of a refusal, or of the one message's status.
fn code_in(response: &Response<bytes::Bytes>) -> Option<String> {
    if response.status() == StatusCode::OK {
        let answer = serde_json::from_slice::<Answer>(response.body()).ok()?;
        let status = answer.messages.into_iter().next()?.status?;
        let is_listed = |name: &String| CLASSES.iter().any(|row| row.code == Some(name));
        return status.name.filter(is_listed).or(Some(status.group_name));
    }
    let refusal = serde_json::from_slice::<Refusal>(response.body()).ok()?;
    let nested = refusal.request_error.and_then(|error| error.service_exception);
    refusal.error_code.or_else(|| nested.and_then(|exception| exception.message_id))
}

/// What a log's rows say about this attempt. A repeat that was dropped later has a row of its own, so the
/// one that got furthest counts.
fn weigh(query: &Query, rows: &[Told]) -> Lookup {
    let cannot = |code: &str| Lookup::CannotTell { code: code.to_owned() };
    let ours: Vec<&Told> =
        rows.iter().filter(|told| told.message_id.as_ref() == Some(&query.attempt_id)).collect();
    if ours.is_empty() {
        return if rows.is_empty() { Lookup::Absent } else { cannot("other_attempt") };
    }
    let states: Vec<Option<Seen>> =
        ours.iter().map(|told| told.status.as_ref().and_then(seen).map(|(seen, _)| seen)).collect();
    let best = [Seen::Delivered, Seen::Accepted, Seen::Failed]
        .into_iter()
        .find(|wanted| states.contains(&Some(*wanted)));
    match best {
        Some(seen) => Lookup::Found {
            seen,
            message_id: kept::message_id(&query.attempt_id, query.to.as_ref()),
        },
        None => cannot("unknown_status"),
    }
}

/// The key of one attempt's callbacks: whoever learns it can tell of this attempt alone.
fn key_of(secret: &Secret, attempt_id: &str) -> String {
    keys::sign(secret.expose().as_bytes(), attempt_id.as_bytes())
}

impl Infobip {
    /// The vendor signs nothing: its callbacks prove themselves by what we put into their URL, or, where
    /// they are set up for the whole account, by the secret itself, as a parameter or a password.
    fn is_told(&self, request: &CallbackRequest<'_>, attempt: Option<&str>) -> bool {
        let Some(secret) = &self.webhook_secret else { return false };
        let whole = secret.expose().as_bytes();
        let by_url = request.param(KEY).is_some_and(|key| {
            keys::equal(key.as_bytes(), whole)
                || attempt.is_some_and(|attempt| {
                    keys::equal(key.as_bytes(), key_of(secret, attempt).as_bytes())
                })
        });
        let by_password = request
            .header(AUTHORIZATION.as_str())
            .and_then(|value| value.strip_prefix("Basic "))
            .and_then(|text| STANDARD.decode(text).ok())
            .is_some_and(|pair| {
                let password = pair.iter().position(|c| *c == b':').map(|at| &pair[at + 1..]);
                password.is_some_and(|password| keys::equal(password, whole))
            });
        by_url || by_password
    }
}

#[async_trait]
impl Provider for Infobip {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn send(&self, message: &Message, deadline: Deadline) -> Verdict {
        let left = message.valid_until.since(self.clock.now()) / 1_000_000;
        let attempt = message.attempt_id.as_str();
        let callback = self.webhook_secret.as_ref().map(|secret| {
            let url = vendor::callback_url(&self.webhook_url, attempt);
            Secret::new(format!("{url}&{KEY}={}", key_of(secret, attempt)))
        });
        let request = Request {
            messages: [Outgoing {
                sender: self.from.as_deref(),
                destinations: [Destination {
                    to: message.to.expose().trim_start_matches('+'),
                    message_id: attempt,
                }],
                content: Content { text: message.text.expose() },
                // What is left of the reset: the one thing that a repeat under the same id has otherwise.
                options: Options {
                    validity_period: Validity {
                        amount: left.clamp(1, VALIDITY_MAX_S),
                        time_unit: "SECONDS",
                    },
                },
                webhooks: callback.as_ref().map(|url| Webhooks {
                    delivery: Delivery { url: url.expose() },
                    content_type: "application/json",
                    callback_data: attempt,
                }),
            }],
        };
        let body = ("application/json", vendor::json(&request, message));
        let url = format!("{}/sms/3/messages", self.base_url);
        let request =
            match vendor::request(Method::POST, &url, Some(&self.authorization), Some(body)) {
                Ok(request) => request,
                Err(failure) => return verdict_of_failure(failure),
            };
        let response = match self.transport.exchange(request, deadline).await {
            Ok(response) => response,
            Err(failure) => return verdict_of_failure(failure),
        };
        let code = code_in(&response);
        let now = self.clock.now();
        classes::verdict(
            CLASSES,
            response.status(),
            code.as_deref(),
            response.headers(),
            now,
            || {
                let answer = serde_json::from_slice::<Answer>(response.body()).ok()?;
                let told = answer.messages.into_iter().next()?;
                (told.message_id.as_deref() == Some(attempt))
                    .then(|| Taken { message_id: kept::message_id(attempt, Some(&message.to)) })
            },
        )
    }

    async fn find(&self, query: &Query, deadline: Deadline) -> Lookup {
        let cannot = |code: &str| Lookup::CannotTell { code: code.to_owned() };
        if self.capability.reading == Reading::None {
            return cannot("no_lookup");
        }
        // The logs, not the reports: reports are given out once.
        let id = app::model::percent_encoded(&query.attempt_id);
        let url = format!("{}/sms/3/logs?messageId={id}", self.base_url);
        let request = match vendor::request(Method::GET, &url, Some(&self.authorization), None) {
            Ok(request) => request,
            Err(failure) => return cannot(failure.kind.code()),
        };
        let response = match self.transport.exchange(request, deadline).await {
            Ok(response) => response,
            Err(failure) => return cannot(failure.kind.code()),
        };
        if response.status() != StatusCode::OK {
            return Lookup::CannotTell { code: code_of(response.status()) };
        }
        match serde_json::from_slice::<Logs>(response.body()) {
            Ok(logs) => weigh(query, &logs.results),
            Err(_) => cannot("bad_answer"),
        }
    }

    async fn verify_callback(
        &self,
        request: &CallbackRequest<'_>,
    ) -> Result<Callback, CallbackError> {
        if self.webhook_secret.is_none() {
            return Err(CallbackError::NotConfigured);
        }
        let attempt = request.param(ATTEMPT).filter(|id| is_attempt_id(id));
        if !self.is_told(request, attempt.as_deref()) {
            return Err(CallbackError::Signature);
        }
        let logs: Logs =
            serde_json::from_slice(request.body).map_err(|_| CallbackError::Malformed)?;
        let mut receipts = Vec::new();
        for told in logs.results {
            let id = told.message_id.or(told.callback_data).filter(|id| is_attempt_id(id));
            let attempt_id = id.ok_or(CallbackError::Malformed)?;
            // The URL's key is for one attempt.
            if attempt.as_ref().is_some_and(|attempt| *attempt != attempt_id) {
                return Err(CallbackError::Signature);
            }
            let status = told.status.ok_or(CallbackError::Malformed)?;
            let Some((seen, cause)) = seen(&status) else { continue };
            receipts.push(Receipt {
                message_id: kept::message_id(&attempt_id, None),
                attempt_id: Some(attempt_id),
                seen,
                cause,
                at: told.done_at.and_then(|at| instant(&at)),
            });
        }
        Ok(Callback::from(receipts))
    }
}

/// `2026-09-21T14:13:20.000+0000`: the zone has no colon.
fn instant(text: &str) -> Option<Stamp> {
    let at = jiff::Timestamp::strptime("%Y-%m-%dT%H:%M:%S%.f%z", text).ok()?;
    Some(Stamp::from_micros(at.as_microsecond()))
}

#[cfg(test)]
#[path = "infobip_tests.rs"]
mod tests;
