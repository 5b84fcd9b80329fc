//! Freezing and unfreezing by API clients.

use app::model::Channel;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::api::{ApiState, REQUEST_BYTES_MAX, answer, settled, small_body};
use super::body;
use super::problem::Problem;
use crate::admission::strict;
use crate::admission::validate::{FieldError, field_text, instant, unknown_names};
use crate::store::Store;
use crate::text::looks_like_personal_data;
use app::model::Stamp;

/// The longest reason.
pub const REASON_CHARS_MAX: usize = 500;

/// Codes that only a reason is refused with.
pub const REASON_CODES: &[&str] = &["personal_data", "control_character"];

/// Freezes in force.
pub(super) async fn list(
    State(state): State<ApiState>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    state.authorise(&headers, "freeze").await?;
    let freezes = state.store.freezes().await?;
    Ok(answer(StatusCode::OK, &json!({ "freezes": freezes })))
}

/// Stops new calls of a scope.
pub(super) async fn freeze(
    State(state): State<ApiState>,
    scope: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    let bytes = small_body(request, state.clock.as_ref()).await?;
    let client = state.authorise(&headers, "freeze").await?;
    let Ok(Path(scope)) = scope else { return Err(Problem::ScopeNotFound) };
    if !state.is_scope(&scope) {
        return Err(Problem::ScopeNotFound);
    }
    if !body::may_be_json(&headers) {
        return Err(Problem::UnsupportedMediaType);
    }
    let (reason, review_at) = parse(&bytes, state.clock.now()).map_err(Problem::InvalidRequest)?;
    let actor = format!("client:{}", client.id);
    let store: &dyn Store = state.store.as_ref();
    let frozen = settled(|| store.freeze(&scope, &actor, &reason, review_at)).await?;
    state.wakeups.changed();
    Ok(answer(StatusCode::OK, &frozen.freeze))
}

/// Lets a scope go on.
pub(super) async fn unfreeze(
    State(state): State<ApiState>,
    scope: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let client = state.authorise(&headers, "freeze").await?;
    let Ok(Path(scope)) = scope else { return Err(Problem::ScopeNotFound) };
    if !state.is_scope(&scope) {
        // A provider that was taken out of the configuration while it was frozen can still be reopened.
        let in_force = state.store.freezes().await?;
        if !in_force.iter().any(|freeze| freeze.scope == scope) {
            return Err(Problem::ScopeNotFound);
        }
    }
    let actor = format!("client:{}", client.id);
    let store: &dyn Store = state.store.as_ref();
    if settled(|| store.unfreeze(&scope, &actor, "")).await? {
        state.wakeups.all();
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

impl ApiState {
    /// Whether this can be frozen: everything, a channel, or a provider of the configuration.
    fn is_scope(&self, scope: &str) -> bool {
        match scope.split_once(':') {
            None => scope == "all",
            Some(("channel", name)) => name.parse::<Channel>().is_ok(),
            Some(("provider", name)) => self.registry.get(name).is_some(),
            Some(_) => false,
        }
    }
}

fn parse(bytes: &[u8], now: Stamp) -> Result<(String, Option<Stamp>), Vec<FieldError>> {
    let object = strict::read(bytes, REQUEST_BYTES_MAX)
        .map_err(|error| vec![FieldError::new("body", error.code())])?;
    let mut errors = Vec::new();
    let reason = match field_text(&object, "reason", true) {
        Ok(text) => text.map(str::trim).unwrap_or_default(),
        Err(error) => {
            errors.push(error);
            ""
        }
    };
    if errors.is_empty() {
        let code = if reason.is_empty() {
            Some("empty")
        } else if reason.chars().count() > REASON_CHARS_MAX {
            Some("too_long")
        } else if reason.chars().any(char::is_control) {
            Some("control_character")
        } else if looks_like_personal_data(reason) {
            Some("personal_data")
        } else {
            None
        };
        errors.extend(code.map(|code| FieldError::new("reason", code)));
    }
    let mut review_at = None;
    match field_text(&object, "review_at", false) {
        Ok(None) => {}
        Ok(Some(text)) => match instant(text) {
            Some(at) if at > now => review_at = Some(at),
            Some(_) => errors.push(FieldError::new("review_at", "past")),
            None => errors.push(FieldError::new("review_at", "not_rfc3339")),
        },
        Err(error) => errors.push(error),
    }
    errors.extend(unknown_names(&object, &["reason", "review_at"]));
    if errors.is_empty() { Ok((reason.to_owned(), review_at)) } else { Err(errors) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freeze_says_why_and_names_nobody() {
        let now = Stamp::parse("2026-09-21T14:13:20Z").unwrap();
        let codes = |body: &str| match parse(body.as_bytes(), now) {
            Ok(_) => String::new(),
            Err(errors) => errors
                .iter()
                .map(|e| format!("{}:{}", e.field, e.code))
                .collect::<Vec<_>>()
                .join(" "),
        };
        let long = |n: usize| format!(r#"{{"reason":"{}"}}"#, "é".repeat(n));
        let table = [
            (r#"{"reason":"check"}"#.to_owned(), ""),
            (
                r#"{"reason":"  provider outage INC-2291 ","review_at":"2026-09-21T14:13:21Z"}"#
                    .to_owned(),
                "",
            ),
            (long(500), ""),
            (long(501), "reason:too_long"),
            ("{}".to_owned(), "reason:missing"),
            (r#"{"reason":" "}"#.to_owned(), "reason:empty"),
            (r#"{"reason":null}"#.to_owned(), "reason:wrong_type"),
            (r#"{"reason":"a\nb"}"#.to_owned(), "reason:control_character"),
            (r#"{"reason":"ask user@example.com"}"#.to_owned(), "reason:personal_data"),
            (r#"{"reason":"call +1 555 010 0001"}"#.to_owned(), "reason:personal_data"),
            (r#"{"reason":"a","reason":"b"}"#.to_owned(), "reason:duplicate_field"),
            (r#"{"reason":"a","review_at":"2026-09-21T14:13:20Z"}"#.to_owned(), "review_at:past"),
            (r#"{"reason":"a","review_at":"tomorrow"}"#.to_owned(), "review_at:not_rfc3339"),
            (r#"{"reason":"a","review_at":null}"#.to_owned(), "review_at:wrong_type"),
            (r#"{"scope":"all"}"#.to_owned(), "reason:missing scope:unknown_field"),
            ("".to_owned(), "body:not_json"),
            ("[]".to_owned(), "body:not_an_object"),
        ];
        for (body, want) in table {
            assert_eq!(codes(&body), want, "{body}");
        }
    }
}
