//! Everything that can go wrong, as a client of the API sees it: RFC 9457, with a stable code.
//!
//! [`Problem`] is the whole list. What a client may not see is logged here, once, under the same request
//! id that the client gets; nothing that a client sent is ever repeated to it.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::request_id;
use crate::admission::FieldError;
use crate::store;

/// Media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// What a client is told instead of an answer.
#[derive(Debug)]
pub enum Problem {
    /// No key, or none that is known.
    Unauthorized,
    /// The key lacks this scope.
    Forbidden {
        scope: &'static str,
    },
    /// The event breaks its rules.
    InvalidEvent(Vec<FieldError>),
    /// Another request than an event breaks its rules.
    InvalidRequest(Vec<FieldError>),
    EventTooLarge,
    RequestTooLarge,
    /// The body is declared to be something else than JSON in UTF-8.
    UnsupportedMediaType,
    /// The body did not come in time.
    RequestTimeout,
    /// One of [`CONFLICTS`].
    Conflict(&'static str),
    /// One of [`LIMITS`].
    Limited {
        code: &'static str,
        retry_after_s: u32,
    },
    /// One of [`TOKENS`].
    Token(&'static str),
    EventPurged,
    TooLate,
    NotificationNotFound,
    ScopeNotFound,
    NotFound,
    MethodNotAllowed,
    /// A callback whose signature does not verify, or whose time is too far from ours.
    CallbackRefused,
    /// A callback that is not what its provider sends.
    CallbackMalformed,
    /// Whether the event was admitted is not known.
    AdmissionUnavailable {
        retry_after_s: u32,
    },
    /// The database cannot be asked now; the same request may succeed soon.
    Unavailable {
        retry_after_s: u32,
        source: Option<store::Error>,
    },
    /// A fault of ours.
    Internal {
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

/// The codes of 409 that admission answers.
pub const CONFLICTS: &[&str] = &[
    "idempotency_conflict",
    "event_conflict",
    "payload_mismatch",
    "token_conflict",
    "request_window_conflict",
];

/// Why an event is not admitted now.
pub const LIMITS: &[&str] = &["rate_limited", "earlier_unresolved"];

/// Why a token cannot be used.
pub const TOKENS: &[&str] =
    &["token_consumed", "token_superseded", "token_expired", "token_unknown"];

/// Every code with its status and title: what the documents are made from.
pub const CODES: &[(&str, u16, &str)] = &[
    ("unauthorized", 401, "A client key is needed, and this one is not known"),
    ("forbidden", 403, "The client key lacks the scope of this call"),
    ("invalid_event", 400, "The event breaks the rules of its fields"),
    ("invalid_request", 400, "The request breaks its rules"),
    ("event_too_large", 413, "The event is larger than 16 KiB"),
    ("request_too_large", 413, "The body is too large"),
    ("unsupported_media_type", 415, "The body must be JSON in UTF-8"),
    ("request_timeout", 408, "The body did not come in time"),
    ("idempotency_conflict", 409, "The idempotency key belongs to another event"),
    ("event_conflict", 409, "The event was admitted under another idempotency key"),
    ("payload_mismatch", 409, "The same key and event were admitted with another content"),
    ("token_conflict", 409, "The token belongs to another notification"),
    (
        "request_window_conflict",
        409,
        "The window was taken by a request with another token, link, channel or destination",
    ),
    ("event_purged", 410, "The event was admitted, and its record is purged since"),
    ("rate_limited", 429, "Too many events: nothing was admitted, repeat it later"),
    (
        "earlier_unresolved",
        429,
        "The outcome of an earlier event of this seller is not known yet: repeat it later",
    ),
    ("token_consumed", 409, "The token was used before"),
    (
        "token_superseded",
        410,
        "A newer message, the use of another token, or a cancellation has replaced this token",
    ),
    ("token_expired", 410, "The token's time ran out"),
    ("token_unknown", 404, "There is no such token"),
    ("too_late", 409, "It is too late to cancel"),
    ("notification_not_found", 404, "There is no such notification"),
    ("scope_not_found", 404, "There is no such scope to freeze"),
    ("not_found", 404, "There is nothing at this address"),
    ("method_not_allowed", 405, "This address does not know this method"),
    ("callback_refused", 401, "The callback's signature does not verify"),
    ("callback_malformed", 400, "The callback is not what this provider sends"),
    (
        "admission_unavailable",
        503,
        "Whether the event was admitted is not known: repeat it with the same key and body, and send by no \
         other way",
    ),
    ("service_unavailable", 503, "The service cannot answer now; repeat the request"),
    ("internal_error", 500, "Something went wrong on our side"),
];

/// When a client that could not be answered should ask again.
pub const RETRY_AFTER_S: u32 = 1;

#[derive(Serialize)]
struct Body<'a> {
    r#type: String,
    title: &'static str,
    status: u16,
    code: &'static str,
    #[serde(skip_serializing_if = "<[FieldError]>::is_empty")]
    errors: &'a [FieldError],
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
}

impl Problem {
    /// The stable code: one of [`CODES`].
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unauthorized => "unauthorized",
            Self::Forbidden { .. } => "forbidden",
            Self::InvalidEvent(_) => "invalid_event",
            Self::InvalidRequest(_) => "invalid_request",
            Self::EventTooLarge => "event_too_large",
            Self::RequestTooLarge => "request_too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::RequestTimeout => "request_timeout",
            Self::Conflict(code) | Self::Token(code) | Self::Limited { code, .. } => code,
            Self::EventPurged => "event_purged",
            Self::TooLate => "too_late",
            Self::NotificationNotFound => "notification_not_found",
            Self::ScopeNotFound => "scope_not_found",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::CallbackRefused => "callback_refused",
            Self::CallbackMalformed => "callback_malformed",
            Self::AdmissionUnavailable { .. } => "admission_unavailable",
            Self::Unavailable { .. } => "service_unavailable",
            Self::Internal { .. } => "internal_error",
        }
    }

    /// A fault whose cause only the log may know.
    pub fn internal(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Internal { source: Some(source.into()) }
    }

    fn errors(&self) -> &[FieldError] {
        match self {
            Self::InvalidEvent(errors) | Self::InvalidRequest(errors) => errors,
            _ => &[],
        }
    }

    const fn retry_after_s(&self) -> Option<u32> {
        match self {
            Self::AdmissionUnavailable { retry_after_s }
            | Self::Limited { retry_after_s, .. }
            | Self::Unavailable { retry_after_s, .. } => Some(*retry_after_s),
            _ => None,
        }
    }

    /// The log's only line about what lies behind a problem.
    fn log(&self) {
        match self {
            Self::Unavailable { source: Some(source), .. } => {
                tracing::warn!(error = %crate::admission::chain(source), "the store could not answer");
            }
            Self::Internal { source: Some(source) } => {
                tracing::error!(error = %crate::admission::chain(source.as_ref()), "a request failed");
            }
            Self::Internal { source: None } => tracing::error!("a request failed"),
            _ => tracing::debug!(code = self.code(), "refused"),
        }
    }
}

impl From<store::Error> for Problem {
    fn from(error: store::Error) -> Self {
        // A guarded write that met another state: whoever was first is done by the next try. A record of
        // a newer release: another process answers for it.
        let is_passing = matches!(
            error,
            store::Error::RowsAffected { .. }
                | store::Error::Conflict { .. }
                | store::Error::NotUnderstood { .. }
        );
        if error.is_transient() || is_passing {
            Self::Unavailable { retry_after_s: RETRY_AFTER_S, source: Some(error) }
        } else {
            Self::internal(error)
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.log();
        let code = self.code();
        let (status, title) = CODES
            .iter()
            .find(|(known, ..)| *known == code)
            .map_or((500, "Something went wrong on our side"), |(_, status, title)| {
                (*status, *title)
            });
        let body = Body {
            r#type: format!("urn:sendonce:problem:{code}"),
            title,
            status,
            code,
            errors: self.errors(),
            scope: if let Self::Forbidden { scope } = &self { Some(scope) } else { None },
            request_id: request_id::current(),
        };
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if matches!(self, Self::Unauthorized) {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after_s() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_has_one_row_in_the_list() {
        let errors = || vec![FieldError::new("event_id", "missing")];
        let mut problems = vec![
            Problem::Unauthorized,
            Problem::Forbidden { scope: "admit" },
            Problem::InvalidEvent(errors()),
            Problem::InvalidRequest(errors()),
            Problem::EventTooLarge,
            Problem::RequestTooLarge,
            Problem::UnsupportedMediaType,
            Problem::RequestTimeout,
            Problem::EventPurged,
            Problem::TooLate,
            Problem::NotificationNotFound,
            Problem::ScopeNotFound,
            Problem::NotFound,
            Problem::MethodNotAllowed,
            Problem::CallbackRefused,
            Problem::CallbackMalformed,
            Problem::AdmissionUnavailable { retry_after_s: 1 },
            Problem::Unavailable { retry_after_s: 1, source: Some(store::Error::Busy) },
            Problem::internal(store::Error::OtherKeys { name: "x".to_owned() }),
        ];
        problems.extend(CONFLICTS.iter().map(|code| Problem::Conflict(code)));
        problems.extend(LIMITS.iter().map(|code| Problem::Limited { code, retry_after_s: 1 }));
        problems.extend(TOKENS.iter().map(|code| Problem::Token(code)));
        let mut codes: Vec<&str> = problems.iter().map(Problem::code).collect();
        let mut listed: Vec<&str> = CODES.iter().map(|(code, ..)| *code).collect();
        codes.sort_unstable();
        listed.sort_unstable();
        assert_eq!(codes, listed);
        for problem in problems {
            let code = problem.code();
            let (_, status, _) = CODES.iter().find(|(known, ..)| *known == code).unwrap();
            let waits = matches!(*status, 429 | 503);
            let response = problem.into_response();
            assert_eq!(response.status().as_u16(), *status, "{code}");
            assert_eq!(response.headers().contains_key(RETRY_AFTER), waits, "{code}");
            assert_eq!(response.headers().contains_key(WWW_AUTHENTICATE), code == "unauthorized");
            assert_eq!(response.headers()[CONTENT_TYPE], MEDIA_TYPE);
        }
    }
}
