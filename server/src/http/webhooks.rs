//! The providers' callbacks. Fails closed: a provider without a key has no endpoint.
//!
//! What verifies is weighed by the ledger and answered with 200, also where no attempt of ours has its
//! id: a provider that hears anything else repeats it for days. Which of the two it was is counted.

use axum::extract::rejection::PathRejection;
use axum::extract::{OriginalUri, Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

use super::api::{ApiState, answer, settled};
use super::body::{self, BodyError};
use super::problem::Problem;
use crate::providers::{Callback, CallbackError, CallbackRequest};
use crate::store::{Evidence, Store, Weighed};

/// The largest callback: 1 MiB. SendGrid sends up to 768 KiB of events at once, SNS up to 256 KiB.
const CALLBACK_BYTES_MAX: usize = 1 << 20;

/// Receipts that are weighed in one transaction, so that a large batch does not hold the ledger for long.
const WEIGHED_MAX: usize = 100;

/// Counts receipts and refusals by provider and outcome.
pub const COUNTER: &str = "sendonce_callbacks_total";

/// Every outcome that [`COUNTER`] knows.
pub const OUTCOMES: &[&str] =
    &["kept", "duplicate", "unmatched", "ignored", "refused", "malformed", "unavailable"];

/// Takes one callback.
pub(super) async fn receive(
    State(state): State<ApiState>,
    name: Result<Path<String>, PathRejection>,
    OriginalUri(uri): OriginalUri,
    request: Request,
) -> Result<Response, Problem> {
    let Ok(Path(name)) = name else { return Err(Problem::NotFound) };
    let Some(provider) = state.registry.get(&name) else { return Err(Problem::NotFound) };
    let (method, headers) = (request.method().clone(), request.headers().clone());
    let body =
        body::read(request, CALLBACK_BYTES_MAX, state.clock.as_ref()).await.map_err(|error| {
            match error {
                BodyError::TooLarge => Problem::RequestTooLarge,
                BodyError::TooSlow => Problem::RequestTimeout,
                BodyError::Broken => Problem::CallbackMalformed,
            }
        })?;
    let request = CallbackRequest {
        method: &method,
        path: uri.path(),
        query: uri.query(),
        headers: &headers,
        public_url: &state.public_url,
        body: &body,
        now: state.clock.now(),
    };
    let Callback { receipts, answer: plain } = match provider.verify_callback(&request).await {
        Ok(callback) => callback,
        Err(CallbackError::NotConfigured) => return Err(Problem::NotFound),
        Err(error @ (CallbackError::Signature | CallbackError::Stale)) => {
            count(&name, "refused", 1);
            tracing::warn!(provider = %name, reason = %error, "a callback was refused");
            return Err(Problem::CallbackRefused);
        }
        Err(error @ CallbackError::Malformed) => {
            count(&name, "malformed", 1);
            tracing::warn!(provider = %name, reason = %error, "a callback was refused");
            return Err(Problem::CallbackMalformed);
        }
        Err(error @ CallbackError::Unavailable) => {
            count(&name, "unavailable", 1);
            tracing::warn!(provider = %name, reason = %error, "a callback could not be checked");
            return Err(Problem::Unavailable { retry_after_s: 1, source: None });
        }
    };
    let taken = match plain {
        None => answer(StatusCode::OK, &json!({})),
        Some(plain) => (plain.status, plain.text).into_response(),
    };
    if receipts.is_empty() {
        count(&name, "ignored", 1);
        return Ok(taken);
    }
    let evidence: Vec<Evidence> =
        receipts.into_iter().map(|receipt| Evidence { provider: name.clone(), receipt }).collect();
    let store: &dyn Store = state.store.as_ref();
    // Where a later part fails the provider repeats the whole, and what was kept is a duplicate then.
    for part in evidence.chunks(WEIGHED_MAX) {
        let weighed =
            settled(|| store.weigh(part)).await.inspect_err(|_| count(&name, "unavailable", 1))?;
        for one in &weighed {
            count(&name, outcome(*one), 1);
        }
        if weighed.contains(&Weighed::Kept) {
            state.wakeups.all();
        }
    }
    Ok(taken)
}

const fn outcome(weighed: Weighed) -> &'static str {
    match weighed {
        Weighed::Kept => "kept",
        Weighed::Duplicate => "duplicate",
        Weighed::Unmatched => "unmatched",
    }
}

/// Only names of the configuration get here, so the label stays small.
fn count(provider: &str, outcome: &'static str, by: u64) {
    metrics::counter!(COUNTER, "provider" => provider.to_owned(), "outcome" => outcome)
        .increment(by);
}
