//! Sinch SMS (XMS).
//!
//! The attempt id travels as `client_reference` and is looked up by it twice: among the batches and among
//! the delivery reports. Nothing makes a repeated request harmless.

use std::fmt;
use std::sync::Arc;

use app::model::{Seen, Stamp};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode};
use ring::hmac;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use url::form_urlencoded;

use super::classes::{self, Class, Row, Taken, range, status};
use super::http::{code_of, verdict_of_failure};
use super::transport::Transport;
use super::vendor::{self, Parts, is_attempt_id};
use super::{
    BuildError, Callback, CallbackError, CallbackRequest, Capability, Cause, Deadline, Message,
    Provider, Query, Reading, Receipt, Secret, kept,
};
use crate::clock::Clock;
use crate::domain::{Lookup, Verdict};

/// The longest life of a message: 3 days, in microseconds.
const LIFE_MAX: i64 = 3 * 24 * 60 * 60 * 1_000_000;

/// Rows on one page of a list. An attempt has one batch; a full page is no answer.
const PAGE_SIZE: usize = 30;

/// What an answer to a sending request means.
pub const CLASSES: &[Row] = &[
    range(
        200,
        201,
        Class::Accepted,
        "PROVIDERS 4.3: the batch with its id; without one: ambiguous",
    ),
    status(400, Class::Permanent, "PROVIDERS 5, CASES B41"),
    status(401, Class::Config, "PROVIDERS 5: credentials"),
    status(402, Class::Config, "RFC 9110 15.5.3: the account's credit"),
    status(403, Class::Config, "PROVIDERS 5, CASES B41: our own configuration"),
    status(
        404,
        Class::Config,
        "the resource is named by our plan alone: service_plan_id or base_url is wrong",
    ),
    status(413, Class::Permanent, "CASES B41"),
    status(422, Class::Permanent, "CASES B41"),
    status(429, Class::RateLimited, "PROVIDERS 5: rate"),
    range(500, 599, Class::Ambiguous, "PROVIDERS 5: server"),
];

/// The headers of a callback's signature.
pub const SIGNATURE: &str = "x-sinch-webhook-signature";
pub const NONCE: &str = "x-sinch-webhook-signature-nonce";
pub const TIMESTAMP: &str = "x-sinch-webhook-signature-timestamp";
pub const ALGORITHM: &str = "x-sinch-webhook-signature-algorithm";

/// One service plan.
pub struct Sinch {
    /// Where the plan's resources begin.
    base_url: String,
    authorization: Secret,
    from: Option<String>,
    webhook_secret: Option<Secret>,
    webhook_url: String,
    capability: Capability,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
}

impl fmt::Debug for Sinch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sinch")
    }
}

/// Makes one from its configuration. Without a `service_plan_id`, `base_url` is where the plan's resources
/// begin.
///
/// # Errors
/// Names the key that is missing or wrong.
pub fn make(parts: &Parts<'_>) -> Result<Arc<dyn Provider>, BuildError> {
    let token = parts.credential("token").or_else(|_| parts.credential("api_key"))?;
    let region = parts.setting("region").unwrap_or_else(|_| "us".to_owned());
    if !region.bytes().all(|c| c.is_ascii_lowercase()) {
        return Err(parts.invalid("region", "must be a word such as \"us\" or \"eu\""));
    }
    let public = format!("https://{region}.sms.api.sinch.com");
    let base_url = match (parts.setting("service_plan_id"), &parts.config.base_url) {
        (Ok(plan), _) => {
            format!("{}/xms/v1/{}", parts.base_url(&public)?, app::model::percent_encoded(&plan))
        }
        (Err(_), Some(_)) => parts.base_url(&public)?,
        (Err(missing), None) => return Err(missing),
    };
    Ok(Arc::new(Sinch {
        base_url,
        authorization: vendor::token("Bearer", &token),
        from: parts.setting("from").ok(),
        webhook_secret: parts.webhook_secret(),
        webhook_url: parts.webhook_url(),
        capability: parts.capability()?,
        clock: Arc::clone(&parts.clock),
        transport: Arc::clone(&parts.transport),
    }))
}

#[derive(Serialize)]
struct Batch<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    to: [&'a str; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    body: &'a str,
    client_reference: &'a str,
    expire_at: Stamp,
    delivery_report: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    callback_url: Option<&'a str>,
}

#[derive(Deserialize)]
struct Refusal {
    code: Option<String>,
}

/// A batch as the vendor tells of it.
#[derive(Deserialize)]
struct ToldBatch {
    id: String,
    client_reference: Option<String>,
    #[serde(default)]
    canceled: bool,
}

#[derive(Deserialize)]
struct Batches {
    count: usize,
    #[serde(default)]
    batches: Vec<ToldBatch>,
}

/// A delivery report, in a list or in a callback.
#[derive(Deserialize)]
struct Report {
    batch_id: Option<String>,
    client_reference: Option<String>,
    status: Option<String>,
    at: Option<String>,
    operator_status_at: Option<String>,
    /// Of a report on a whole batch.
    #[serde(default)]
    statuses: Vec<Part>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Part {
    status: String,
}

#[derive(Deserialize)]
struct Reports {
    count: usize,
    #[serde(default)]
    delivery_reports: Vec<Report>,
}

/// What a status says; none for one that we do not know.
fn seen(status: &str) -> Option<(Seen, Option<Cause>)> {
    Some(match status.to_ascii_uppercase().as_str() {
        "QUEUED" | "DISPATCHED" | "UNKNOWN" => (Seen::Accepted, None),
        "DELIVERED" => (Seen::Delivered, None),
        "ABORTED" | "REJECTED" => (Seen::Failed, Some(Cause::Rejected)),
        "CANCELLED" | "DELETED" => (Seen::Failed, Some(Cause::Canceled)),
        "EXPIRED" => (Seen::Failed, Some(Cause::Expired)),
        "FAILED" => (Seen::Failed, Some(Cause::Unspecified)),
        _ => return None,
    })
}

/// The signature over `<body>.<nonce>.<timestamp>`.
#[must_use]
pub fn signature(secret: &Secret, body: &[u8], nonce: &str, timestamp: &str) -> String {
    STANDARD.encode(hmac::sign(&key_of(secret), &signed(body, nonce, timestamp)))
}

fn key_of(secret: &Secret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes())
}

fn signed(body: &[u8], nonce: &str, timestamp: &str) -> Vec<u8> {
    let mut text = body.to_vec();
    for part in [".", nonce, ".", timestamp] {
        text.extend_from_slice(part.as_bytes());
    }
    text
}

fn cannot(code: &str) -> Lookup {
    Lookup::CannotTell { code: code.to_owned() }
}

impl Sinch {
    async fn read<T: DeserializeOwned>(&self, url: &str, deadline: Deadline) -> Result<T, Lookup> {
        let request = vendor::request(Method::GET, url, Some(&self.authorization), None)
            .map_err(|failure| cannot(failure.kind.code()))?;
        let response = self.transport.exchange(request, deadline).await;
        let response = response.map_err(|failure| cannot(failure.kind.code()))?;
        if response.status() != StatusCode::OK {
            return Err(cannot(&code_of(response.status())));
        }
        serde_json::from_slice(response.body()).map_err(|_| cannot("bad_answer"))
    }

    /// Both look-ups by our reference.
    async fn both(&self, query: &Query, deadline: Deadline) -> Result<Lookup, Lookup> {
        let list = |name: &str, start: Option<String>| {
            let mut filter = form_urlencoded::Serializer::new(String::new());
            filter.append_pair("client_reference", &query.attempt_id);
            filter.append_pair("page_size", &PAGE_SIZE.to_string());
            if let Some(start) = start {
                filter.append_pair("start_date", &start);
            }
            format!("{}/{name}?{}", self.base_url, filter.finish())
        };
        // Without a start it lists the last day alone.
        let start = query.earliest().to_string();
        let batches: Batches = self.read(&list("batches", Some(start.clone())), deadline).await?;
        let reports: Reports = self.read(&list("delivery_reports", Some(start)), deadline).await?;
        Ok(weigh(query, &batches, &reports))
    }
}

/// Found where either has it; absent only where both are complete and neither has.
fn weigh(query: &Query, batches: &Batches, reports: &Reports) -> Lookup {
    let is_ours = |reference: &Option<String>| reference.as_deref() == Some(&query.attempt_id);
    let told: Vec<&Report> =
        reports.delivery_reports.iter().filter(|told| is_ours(&told.client_reference)).collect();
    let batch = batches.batches.iter().find(|batch| is_ours(&batch.client_reference));
    let id = batch.map(|batch| batch.id.as_str());
    let id = id.or_else(|| told.iter().find_map(|report| report.batch_id.as_deref()));
    let message_id = id.and_then(|id| kept::message_id(id, query.to.as_ref()));
    let states: Vec<Option<Seen>> = told
        .iter()
        .map(|report| report.status.as_deref().and_then(seen).map(|(seen, _)| seen))
        .collect();
    let has = |wanted| states.contains(&Some(wanted));
    let best = [Seen::Delivered, Seen::Failed, Seen::Accepted].into_iter().find(|seen| has(*seen));
    match (best, batch) {
        (Some(seen), _) => Lookup::Found { seen, message_id },
        (None, Some(batch)) if batch.canceled => Lookup::Found { seen: Seen::Failed, message_id },
        (None, Some(_)) => Lookup::Found { seen: Seen::Accepted, message_id },
        (None, None) if !told.is_empty() => cannot("unknown_status"),
        // It did not look at our filter, or there is more than it showed.
        (None, None) if batches.count > 0 || reports.count > 0 => cannot("other_attempt"),
        (None, None) if !batches.batches.is_empty() || !reports.delivery_reports.is_empty() => {
            cannot("other_attempt")
        }
        (None, None) => Lookup::Absent,
    }
}

#[async_trait]
impl Provider for Sinch {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn send(&self, message: &Message, deadline: Deadline) -> Verdict {
        let now = self.clock.now();
        let batch = Batch {
            kind: "mt_text",
            to: [message.to.expose()],
            from: self.from.as_deref(),
            body: message.text.expose(),
            client_reference: &message.attempt_id,
            expire_at: message.valid_until.min(now.plus(LIFE_MAX)),
            delivery_report: "per_recipient",
            // Without a key its callbacks would meet nobody.
            callback_url: self.webhook_secret.as_ref().map(|_| self.webhook_url.as_str()),
        };
        let body = ("application/json", vendor::json(&batch, message));
        let url = format!("{}/batches", self.base_url);
        let request =
            match vendor::request(Method::POST, &url, Some(&self.authorization), Some(body)) {
                Ok(request) => request,
                Err(failure) => return verdict_of_failure(failure),
            };
        let response = match self.transport.exchange(request, deadline).await {
            Ok(response) => response,
            Err(failure) => return verdict_of_failure(failure),
        };
        let body = response.body();
        let code = serde_json::from_slice::<Refusal>(body).ok().and_then(|refusal| refusal.code);
        let now = self.clock.now();
        classes::verdict(
            CLASSES,
            response.status(),
            code.as_deref(),
            response.headers(),
            now,
            || {
                let told = serde_json::from_slice::<ToldBatch>(body).ok()?;
                let is_other = told.client_reference.is_some_and(|id| id != message.attempt_id);
                (!told.id.is_empty() && !is_other)
                    .then(|| Taken { message_id: kept::message_id(&told.id, Some(&message.to)) })
            },
        )
    }

    async fn find(&self, query: &Query, deadline: Deadline) -> Lookup {
        if self.capability.reading == Reading::None {
            return cannot("no_lookup");
        }
        self.both(query, deadline).await.unwrap_or_else(|answer| answer)
    }

    async fn verify_callback(
        &self,
        request: &CallbackRequest<'_>,
    ) -> Result<Callback, CallbackError> {
        let secret = self.webhook_secret.as_ref().ok_or(CallbackError::NotConfigured)?;
        let header = |name| request.header(name).ok_or(CallbackError::Signature);
        let (given, nonce, timestamp) = (header(SIGNATURE)?, header(NONCE)?, header(TIMESTAMP)?);
        if !header(ALGORITHM)?.eq_ignore_ascii_case("HmacSHA256") {
            return Err(CallbackError::Signature);
        }
        let given = STANDARD.decode(given).map_err(|_| CallbackError::Signature)?;
        // No age is asked: the vendor repeats what it signed once, and a repeat changes nothing here.
        hmac::verify(&key_of(secret), &signed(request.body, nonce, timestamp), &given)
            .map_err(|_| CallbackError::Signature)?;
        let told: Report =
            serde_json::from_slice(request.body).map_err(|_| CallbackError::Malformed)?;
        let is_report = told.kind.as_deref().is_some_and(|kind| kind.contains("delivery_report"));
        if !is_report {
            return Ok(Callback::default());
        }
        let attempt_id = told.client_reference.filter(|id| is_attempt_id(id));
        let message_id = told.batch_id.and_then(|id| kept::message_id(&id, None));
        if attempt_id.is_none() && message_id.is_none() {
            return Err(CallbackError::Malformed);
        }
        let word = told.status.or_else(|| told.statuses.into_iter().next().map(|part| part.status));
        let (seen, cause) = match word.as_deref().map(seen) {
            Some(Some(told)) => told,
            Some(None) => return Ok(Callback::default()),
            None => return Err(CallbackError::Malformed),
        };
        let at = told.operator_status_at.or(told.at).and_then(|at| Stamp::parse(&at).ok());
        Ok(Callback::from(vec![Receipt { attempt_id, message_id, seen, cause, at }]))
    }
}

#[cfg(test)]
#[path = "sinch_tests.rs"]
mod tests;
