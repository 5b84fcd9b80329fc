//! Using a token: by its hash, once.

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::json;

use super::api::{ApiState, REPLAYED, REQUEST_BYTES_MAX, answer, settled, small_body};
use super::body;
use super::problem::Problem;
use crate::admission::strict;
use crate::admission::validate::{FieldError, Kind, Refuses, fault, field_text, unknown_names};
use crate::providers::Secret;
use crate::store::{Consume, Consumed, Store};

/// Counts answers to consumptions by outcome.
pub const COUNTER: &str = "sendonce_token_consumptions_total";

/// Every outcome that [`COUNTER`] knows.
pub const OUTCOMES: &[&str] = &["consumed", "repeated", "used", "superseded", "expired", "unknown"];

/// The longest `consume_id`.
pub const CONSUME_ID_CHARS_MAX: usize = 128;

/// What a request asks for: the hash of the token, and the caller's own name for this use.
#[derive(Debug)]
struct Asked {
    token_hash: Secret,
    consume_id: Option<String>,
}

/// `POST /v1/tokens/consume`
pub(super) async fn consume(
    State(state): State<ApiState>,
    request: Request,
) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    let bytes = small_body(request, state.clock.as_ref()).await?;
    let client = state.authorise(&headers, "consume").await?;
    if !body::may_be_json(&headers) {
        return Err(Problem::UnsupportedMediaType);
    }
    let asked = parse(&bytes).map_err(Problem::InvalidRequest)?;
    let consume = Consume {
        token_id: state.keys.token_id(asked.token_hash.expose()),
        consume_hash: asked
            .consume_id
            .map(|id| state.keys.content_hash(&[b"consume_id", id.as_bytes()])),
        client_id: client.id,
    };
    let store: &dyn Store = state.store.as_ref();
    let consumed = settled(|| store.consume(&consume)).await?;
    let (outcome, answer) = match consumed {
        Consumed::Done { id, event_id, seller_id, consumed_at, is_replay } => {
            let body = json!({
                "id": id, "event_id": event_id, "seller_id": seller_id, "consumed_at": consumed_at,
            });
            let mut response = answer(StatusCode::OK, &body);
            if is_replay {
                response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            }
            (if is_replay { "repeated" } else { "consumed" }, Ok(response))
        }
        Consumed::Used => ("used", Err(Problem::Token("token_consumed"))),
        Consumed::Superseded => ("superseded", Err(Problem::Token("token_superseded"))),
        Consumed::Expired => ("expired", Err(Problem::Token("token_expired"))),
        Consumed::Unknown => ("unknown", Err(Problem::Token("token_unknown"))),
    };
    metrics::counter!(COUNTER, "outcome" => outcome).increment(1);
    if outcome != "unknown" {
        state.wakeups.changed();
    }
    answer
}

fn parse(bytes: &[u8]) -> Result<Asked, Vec<FieldError>> {
    let object = strict::read(bytes, REQUEST_BYTES_MAX)
        .map_err(|error| vec![FieldError::new("body", error.code())])?;
    let mut errors = Vec::new();
    let mut text =
        |name: &'static str, is_required, kind| match field_text(&object, name, is_required) {
            Ok(None) => None,
            Ok(Some(text)) => match fault(kind, text) {
                None => Some(text.to_owned()),
                Some(code) => {
                    errors.push(FieldError::new(name, code));
                    None
                }
            },
            Err(error) => {
                errors.push(error);
                None
            }
        };
    let token_hash = text("token_hash", true, Kind::TokenHash);
    let refuses = Refuses::Placeholders;
    let id = Kind::Id { chars_max: CONSUME_ID_CHARS_MAX, has_plus: false, refuses };
    let consume_id = text("consume_id", false, id);
    errors.extend(unknown_names(&object, &["token_hash", "consume_id"]));
    match token_hash {
        Some(hash) if errors.is_empty() => Ok(Asked { token_hash: Secret::new(hash), consume_id }),
        _ => Err(errors),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_names_a_hash_and_nothing_that_could_be_a_token() {
        let hash = "0a".repeat(32);
        let codes = |body: &str| match parse(body.as_bytes()) {
            Ok(_) => String::new(),
            Err(errors) => errors
                .iter()
                .map(|e| format!("{}:{}", e.field, e.code))
                .collect::<Vec<_>>()
                .join(" "),
        };
        let with = |more: &str| format!(r#"{{"token_hash":"{hash}"{more}}}"#);
        for (body, want) in [
            (with(""), ""),
            (with(r#","consume_id":"login-77:1""#), ""),
            (with(r#","consume_id":"""#), "consume_id:empty"),
            (with(r#","consume_id":"null""#), "consume_id:placeholder"),
            (with(r#","consume_id":"a b""#), "consume_id:alphabet"),
            (with(r#","consume_id":7"#), "consume_id:wrong_type"),
            (with(r#","token":"secret""#), "token:unknown_field"),
            (with(&format!(r#","consume_id":"{}""#, "x".repeat(129))), "consume_id:too_long"),
            ("{}".to_owned(), "token_hash:missing"),
            (r#"{"token_hash":null}"#.to_owned(), "token_hash:wrong_type"),
            (
                format!(r#"{{"token_hash":"{}"}}"#, hash.to_uppercase()),
                "token_hash:not_a_token_hash",
            ),
            (r#"{"token_hash":"secret"}"#.to_owned(), "token_hash:not_a_token_hash"),
            (with(&format!(r#","token_hash":"{hash}""#)), "token_hash:duplicate_field"),
            ("[]".to_owned(), "body:not_an_object"),
            (String::new(), "body:not_json"),
        ] {
            assert_eq!(codes(&body), want, "{body}");
        }
        assert!(!format!("{:?}", parse(with("").as_bytes()).unwrap()).contains(&hash));
    }
}
