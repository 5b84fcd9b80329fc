//! One id a request, made here: in the answer's header, in the span, in every problem.
//!
//! None is accepted from outside: it would let a caller write into our logs.

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use tracing::Instrument as _;

use crate::clock::Clock;
use crate::entropy::Entropy;

/// Name of the header.
pub const HEADER: HeaderName = HeaderName::from_static("x-request-id");

tokio::task_local! {
    static CURRENT: String;
}

/// The id of the request that this task answers.
#[must_use]
pub fn current() -> Option<String> {
    CURRENT.try_with(Clone::clone).ok()
}

/// Answers a request by `next` under an id and a span `http.request`, and logs one line about it. The span has the
/// method, the matched path, the status and the duration; never the query, the path as it was sent, a
/// header or a body: any of them may hold what nobody may read.
pub async fn observe<F: Future<Output = Response>>(
    clock: &dyn Clock,
    entropy: &dyn Entropy,
    mut request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let id = entropy.uuid(clock.now());
    let started = clock.boot();
    request.headers_mut().remove(HEADER);
    let path = request
        .extensions()
        .get::<MatchedPath>()
        .map(MatchedPath::as_str)
        // The router's own names for what it did not find.
        .filter(|path| !path.contains("__private"))
        .unwrap_or("unmatched")
        .to_owned();
    let span = tracing::info_span!(
        "http.request",
        request.id = %id,
        http.method = method(request.method()),
        http.path = %path,
        http.status = tracing::field::Empty,
        duration_ms = tracing::field::Empty,
    );
    let answer = CURRENT.scope(id.clone(), next(request)).instrument(span.clone());
    let mut response = answer.await;
    let status = response.status().as_u16();
    let duration_ms = clock.boot().saturating_sub(started) / 1_000;
    span.record("http.status", status);
    span.record("duration_ms", duration_ms);
    span.in_scope(|| tracing::info!("answered {status} in {duration_ms} ms"));
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(HEADER, value);
    }
    response
}

/// A method by name; one that HTTP does not define may be any text.
fn method(method: &axum::http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}
