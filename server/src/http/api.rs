//! The JSON API for callers (CONTRACT section 4).
//!
//! Order of checks: size, key and scope, syntax and types, then what the ledger knows. Every answer is
//! JSON, also to an unknown address, another method, or when a handler panics. No GET writes anything.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post, put};
use futures::FutureExt as _;
use serde::Serialize;
use serde_json::json;

use super::body::{self, BodyError};
use super::problem::{Problem, RETRY_AFTER_S};
use super::{auth, freezes, openapi, request_id, schema, tokens, webhooks};
use crate::admission::{AdmissionAnswer, AdmissionService, EVENT_BYTES_MAX, FieldError};
use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::keys::Keys;
use crate::outbox::Wakeups;
use crate::providers::Registry;
use crate::store::{Client, Error, Store};

/// Counts what API clients looked up: reads by them are metrics, not facts.
pub const READS: &str = "sendonce_reads_total";

/// Every outcome that [`READS`] knows.
pub const READ_OUTCOMES: &[&str] = &["found", "not_found"];

/// Set on a 202 for what had been admitted before.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The largest body of a request that is no event.
pub(super) const REQUEST_BYTES_MAX: usize = 16 * 1024;

/// How often a write that lost a race is decided again.
const RACE_TRIES: usize = 3;

/// What the API's handlers share.
#[derive(Debug, Clone)]
pub struct ApiState {
    pub store: Arc<dyn Store>,
    pub admission: Arc<AdmissionService>,
    pub registry: Arc<Registry>,
    pub wakeups: Wakeups,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub keys: Arc<Keys>,
    /// Base of our own public URLs, without a slash at its end; never guessed from a request.
    pub public_url: Arc<str>,
}

/// Everything below `/v1`, the webhooks and the OpenAPI document, with request ids, spans and a net under
/// panics. To be merged with the pages.
pub fn api_router(state: ApiState) -> Router {
    let v1 = Router::new()
        .route("/events", post(admit).get(find))
        .route("/events/{id}", get(record))
        .route("/events/{id}/timeline", get(timeline))
        .route("/events/{id}/cancel", post(cancel))
        .route("/tokens/consume", post(tokens::consume))
        .route("/freezes", get(freezes::list))
        .route("/freezes/{scope}", put(freezes::freeze).delete(freezes::unfreeze))
        .route("/schema/reset-event.json", get(|| async { document(&schema::reset_event()) }))
        .route("/schema/tool.json", get(|| async { document(&schema::tool()) }))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed);
    let hooks = Router::new()
        .route("/{provider}", post(webhooks::receive))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed);
    let openapi = get(|State(state): State<ApiState>| async move {
        document(&openapi::document_of(&state.public_url))
    });
    Router::new()
        .nest("/v1", v1)
        .nest("/webhooks", hooks)
        // A nested router does not answer for its own name with a slash behind it.
        .route("/v1/", any(not_found))
        .route("/webhooks/", any(not_found))
        .route("/openapi.json", openapi.fallback(method_not_allowed))
        .layer(middleware::from_fn_with_state(state.clone(), guard))
        .with_state(state)
}

/// Around every handler: request id and span, the net, and what every answer carries.
async fn guard(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    request_id::observe(
        state.clock.as_ref(),
        state.entropy.as_ref(),
        request,
        |request| async move {
            let answer = AssertUnwindSafe(next.run(request)).catch_unwind().await;
            let mut response =
                answer.unwrap_or_else(|_| Problem::internal("a handler panicked").into_response());
            let headers = response.headers_mut();
            headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
            headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            response
        },
    )
    .await
}

async fn not_found() -> Problem {
    Problem::NotFound
}

async fn method_not_allowed() -> Problem {
    Problem::MethodNotAllowed
}

/// A JSON answer.
pub(super) fn answer(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => {
            let mut response = (status, Body::from(bytes)).into_response();
            response
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => Problem::internal(error).into_response(),
    }
}

/// A public document: the same for everybody until the next version.
fn document(value: &serde_json::Value) -> Response {
    let mut response = answer(StatusCode::OK, value);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    response
}

/// A body within the limit of requests that are no events.
pub(super) async fn small_body(
    request: Request,
    clock: &dyn Clock,
) -> Result<bytes::Bytes, Problem> {
    body::read(request, REQUEST_BYTES_MAX, clock).await.map_err(|error| match error {
        BodyError::TooLarge => Problem::RequestTooLarge,
        BodyError::TooSlow => Problem::RequestTimeout,
        BodyError::Broken => Problem::InvalidRequest(vec![FieldError::new("body", "not_json")]),
    })
}

/// Does a write again that lost a race against another: by then it is decided.
pub(super) async fn settled<T, F>(mut operation: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut tries = 0;
    loop {
        tries += 1;
        match operation().await {
            Err(Error::Busy | Error::Conflict { .. } | Error::RowsAffected { .. })
                if tries < RACE_TRIES => {}
            result => return result,
        }
    }
}

impl ApiState {
    /// The client of a request, when its key has the scope.
    pub(super) async fn authorise(
        &self,
        headers: &HeaderMap,
        scope: &'static str,
    ) -> Result<Client, Problem> {
        auth::authorise(self.store.as_ref(), headers, scope).await
    }
}

async fn admit(State(state): State<ApiState>, request: Request) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    let bytes =
        body::read(request, EVENT_BYTES_MAX, state.clock.as_ref()).await.map_err(|error| {
            match error {
                BodyError::TooLarge => Problem::EventTooLarge,
                BodyError::TooSlow => Problem::RequestTimeout,
                BodyError::Broken => {
                    Problem::InvalidEvent(vec![FieldError::new("body", "not_json")])
                }
            }
        })?;
    let client = state.authorise(&headers, "admit").await.map_err(|problem| match problem {
        // This call has one word for "ask again", whatever could not be asked.
        Problem::Unavailable { source, .. } => {
            if let Some(error) = source {
                tracing::warn!(error = %crate::admission::chain(&error), "a client could not be looked up");
            }
            Problem::AdmissionUnavailable { retry_after_s: RETRY_AFTER_S }
        }
        other => other,
    })?;
    if !body::may_be_json(&headers) {
        return Err(Problem::UnsupportedMediaType);
    }
    match state.admission.admit(&bytes, &client.id).await {
        AdmissionAnswer::Admitted { record, replayed } => {
            let mut response = answer(StatusCode::ACCEPTED, &record);
            if replayed {
                response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            }
            Ok(response)
        }
        AdmissionAnswer::Invalid(errors) => Err(Problem::InvalidEvent(errors)),
        AdmissionAnswer::Conflict(code) => Err(Problem::Conflict(code)),
        AdmissionAnswer::Purged => Err(Problem::EventPurged),
        AdmissionAnswer::Limited { code, retry_after_s } => {
            Err(Problem::Limited { code, retry_after_s })
        }
        AdmissionAnswer::Unavailable { retry_after_s } => {
            Err(Problem::AdmissionUnavailable { retry_after_s })
        }
    }
}

async fn find(
    State(state): State<ApiState>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    state.authorise(&headers, "status").await?;
    let event_id = event_id_of(&uri)?;
    // What is no id was never admitted; it is not even asked for.
    let found = if crate::admission::validate::is_id(&event_id, 128) {
        state.store.record_by_event(&event_id).await?
    } else {
        None
    };
    seen(found.is_some());
    found.map(|record| answer(StatusCode::OK, &record)).ok_or(Problem::NotificationNotFound)
}

/// The one parameter of the search: exactly once, and nothing else.
fn event_id_of(uri: &Uri) -> Result<String, Problem> {
    let query = uri.query().unwrap_or_default();
    let mut found = None;
    let mut errors = Vec::new();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        if name != "event_id" {
            errors.push(FieldError::foreign(&name, "unknown_field"));
        } else if found.replace(value.into_owned()).is_some() {
            errors.push(FieldError::new("event_id", "duplicate_field"));
        }
    }
    match found {
        Some(event_id) if errors.is_empty() => Ok(event_id),
        Some(_) => Err(Problem::InvalidRequest(errors)),
        None => {
            errors.insert(0, FieldError::new("event_id", "missing"));
            Err(Problem::InvalidRequest(errors))
        }
    }
}

fn seen(is_found: bool) {
    let outcome = if is_found { "found" } else { "not_found" };
    metrics::counter!(READS, "outcome" => outcome).increment(1);
}

/// One of our ids out of a path. Anything else names nothing.
fn our_id(path: Result<Path<String>, PathRejection>) -> Option<String> {
    let Path(id) = path.ok()?;
    let is_uuid = id.len() == 36
        && id.bytes().enumerate().all(|(at, c)| match at {
            8 | 13 | 18 | 23 => c == b'-',
            _ => c.is_ascii_digit() || (b'a'..=b'f').contains(&c),
        });
    is_uuid.then_some(id)
}

type PathId = Result<Path<String>, PathRejection>;

async fn record(
    State(state): State<ApiState>,
    id: PathId,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    state.authorise(&headers, "status").await?;
    let found = match our_id(id) {
        Some(id) => state.store.record(&id).await?,
        None => None,
    };
    seen(found.is_some());
    found.map(|record| answer(StatusCode::OK, &record)).ok_or(Problem::NotificationNotFound)
}

async fn timeline(
    State(state): State<ApiState>,
    id: PathId,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    state.authorise(&headers, "status").await?;
    let found = match our_id(id) {
        // An event may be named by a UUID too: only our own id counts here.
        Some(id) => state
            .store
            .timeline(&id)
            .await?
            .filter(|facts| facts.iter().all(|fact| fact.id.as_deref() == Some(id.as_str()))),
        None => None,
    };
    seen(found.is_some());
    found
        .map(|facts| answer(StatusCode::OK, &json!({ "facts": facts })))
        .ok_or(Problem::NotificationNotFound)
}

async fn cancel(
    State(state): State<ApiState>,
    id: PathId,
    request: Request,
) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    let bytes = small_body(request, state.clock.as_ref()).await?;
    let client = state.authorise(&headers, "cancel").await?;
    // Some clients send an empty object where there is nothing to say.
    if !bytes.trim_ascii().is_empty() && bytes.trim_ascii() != b"{}" {
        return Err(Problem::InvalidRequest(vec![FieldError::new("body", "unknown_field")]));
    }
    let Some(id) = our_id(id) else { return Err(Problem::NotificationNotFound) };
    let actor = format!("client:{}", client.id);
    let store: &dyn Store = state.store.as_ref();
    match settled(|| store.cancel(&id, &actor)).await? {
        None => Err(Problem::NotificationNotFound),
        Some((record, true)) => {
            state.wakeups.changed();
            Ok(answer(StatusCode::OK, &record))
        }
        Some((_, false)) => Err(Problem::TooLate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_ids_are_looked_up() {
        let known = |id: &str| our_id(Ok(Path(id.to_owned()))).is_some();
        assert!(known("0193a5b0-7c1e-7d3f-8a2b-123456789012"));
        for bad in [
            "",
            "nope",
            "0193A5B0-7C1E-7D3F-8A2B-123456789012",
            "0193a5b07c1e7d3f8a2b123456789012",
            "0193a5b0-7c1e-7d3f-8a2b-12345678901é",
            "------------------------------------",
            "0193a5b0-7c1e-7d3f-8a2b-1234567890123",
        ] {
            assert!(!known(bad), "{bad}");
        }
    }

    #[test]
    fn the_search_takes_one_parameter_once() {
        let of = |query: &str| event_id_of(&format!("/v1/events?{query}").parse().unwrap());
        assert_eq!(of("event_id=ev-1").unwrap(), "ev-1");
        assert_eq!(of("event_id=ev%2D1").unwrap(), "ev-1");
        for bad in
            ["", "event_id=a&event_id=b", "event_id=a&state=sent", "state=sent", "EVENT_ID=a"]
        {
            assert!(matches!(of(bad), Err(Problem::InvalidRequest(_))), "{bad}");
        }
    }
}
