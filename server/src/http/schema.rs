//! The event and the answers as JSON Schema 2020-12, made from the rules that the code itself uses.

use app::model::{Channel, FactKind, Next, Reason, State};
use serde_json::{Map, Value, json};

use super::problem;
use crate::admission::validate::{
    ALPHABET, FIELD_CODES, FIELDS, Field, Kind, PLACEHOLDERS, RAW_DIGITS, Refuses,
};

/// RFC 3339 with an offset.
const INSTANT: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$";

/// A word in any case, as an expression that every dialect reads alike.
fn any_case(word: &str) -> String {
    word.chars()
        .map(|c| match c {
            '.' => "\\.".to_owned(),
            c if c.is_ascii_alphabetic() => {
                format!("[{}{}]", c.to_ascii_uppercase(), c.to_ascii_lowercase())
            }
            c => c.to_string(),
        })
        .collect()
}

fn refused(refuses: Refuses) -> Option<String> {
    match refuses {
        Refuses::Nothing => None,
        Refuses::Placeholders => {
            let words: Vec<String> = PLACEHOLDERS.iter().map(|word| any_case(word)).collect();
            Some(format!("^({}|[0._:-]+)$", words.join("|")))
        }
        Refuses::RawDestinations => {
            Some(format!("^[._:-]*([0-9][._:-]*){{{},{}}}$", RAW_DIGITS.start(), RAW_DIGITS.end()))
        }
    }
}

fn property(field: &Field) -> Value {
    let mut schema = match field.kind {
        Kind::Id { chars_max, has_plus, refuses } => {
            // `+` before the last character, which is a dash of its own.
            let alphabet =
                if has_plus { ALPHABET.replace(":-", ":+-") } else { ALPHABET.to_owned() };
            let mut schema = json!({
                "type": "string",
                "minLength": 1,
                "maxLength": chars_max,
                "pattern": format!("^[{alphabet}]+$"),
            });
            if let Some(pattern) = refused(refuses) {
                schema["not"] = json!({ "pattern": pattern });
            }
            schema
        }
        Kind::Instant => json!({
            "type": "string", "format": "date-time", "maxLength": 64, "pattern": INSTANT,
        }),
        Kind::Channel => json!({ "type": "string", "enum": words(Channel::ALL, Channel::as_str) }),
        Kind::TokenHash => json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" }),
    };
    schema["description"] = json!(field.about);
    if field.name == "purpose" {
        schema["default"] = json!(crate::admission::validate::DEFAULT_PURPOSE);
    }
    schema
}

fn words<T: Copy>(all: &[T], as_str: impl Fn(T) -> &'static str) -> Vec<&'static str> {
    all.iter().map(|word| as_str(*word)).collect()
}

/// The event as an object schema, without the keywords that stand only at the top of a document.
#[must_use]
pub fn event() -> Value {
    let properties: Map<String, Value> =
        FIELDS.iter().map(|field| (field.name.to_owned(), property(field))).collect();
    let required: Vec<&str> =
        FIELDS.iter().filter(|field| field.is_required).map(|field| field.name).collect();
    json!({
        "title": "Reset event",
        "description": "One password-reset request. It is admitted once and sends at most one notification.",
        "type": "object",
        "additionalProperties": false,
        "required": required,
        "properties": properties,
        "dependentRequired": { "request_window": ["seller_id"] },
        "examples": examples(),
    })
}

/// Events that are accepted, but for their time.
#[must_use]
pub fn examples() -> Vec<Value> {
    vec![
        json!({
            "event_id": "reset-20260921-000017",
            "idempotency_key": "8f6e2c1a-5b7d-4e39-9d21-7c4b0a3f6e58",
            "destination_ref": "dest-7c4b0a3f",
            "reset_ref": "rst-5b7d4e39",
            "expires_at": "2026-09-21T14:43:20Z",
        }),
        json!({
            "event_id": "reset-20260921-000018",
            "idempotency_key": "reset-20260921-000018.1",
            "destination_ref": "dest-1042",
            "reset_ref": "rst-1042.7",
            "expires_at": "2026-09-21T16:43:20.500+02:00",
            "channel": "email",
            "seller_id": "seller_1042",
            "purpose": "password_reset",
            "request_window": "2026-09-21T14:40+15m",
            "token_hash": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        }),
    ]
}

/// `/v1/schema/reset-event.json`.
#[must_use]
pub fn reset_event() -> Value {
    let mut schema = event();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["$id"] = json!("urn:sendonce:schema:reset-event");
    schema
}

/// `/v1/schema/tool.json`: for agents that originate events.
#[must_use]
pub fn tool() -> Value {
    let mut input = event();
    if let Some(object) = input.as_object_mut() {
        object.remove("title");
        object.remove("examples");
    }
    json!({
        "name": "request_password_reset_notification",
        "description": "Requests one password-reset notification. Handles only: never pass an email \
            address, a phone number, a link, a token or a message text. Use one event_id and one \
            idempotency_key for one reset request, and repeat the call with the same values when the \
            outcome is not known; it sends at most once. Do not notify the person by any other way.",
        "input_schema": input,
    })
}

fn instant() -> Value {
    json!({ "type": "string", "format": "date-time" })
}

fn optional(mut schema: Value) -> Value {
    if let Some(word) = schema.get_mut("type") {
        *word = json!([word.take(), "null"]);
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.push(Value::Null);
    }
    schema
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn count() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

/// An object whose fields are always all there.
fn whole(about: &str, fields: &[(&str, Value)]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    let required: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    json!({
        "description": about,
        "type": "object",
        "additionalProperties": false,
        "required": required,
        "properties": properties,
    })
}

fn state() -> Value {
    json!({ "type": "string", "enum": words(State::ALL, State::as_str) })
}

fn reason() -> Value {
    json!({ "type": "string", "enum": words(Reason::ALL, Reason::as_str) })
}

/// The record.
#[must_use]
pub fn record() -> Value {
    whole(
        "Where a notification stands.",
        &[
            ("id", text()),
            ("event_id", text()),
            ("state", state()),
            ("expires_at", instant()),
            ("updated_at", instant()),
            ("created_at", instant()),
            ("channel", json!({ "type": "string", "enum": words(Channel::ALL, Channel::as_str) })),
            ("seller_id", optional(text())),
            ("purpose", text()),
            ("attempts", count()),
            ("calls", count()),
            ("reason", reason()),
            ("settled", json!({ "type": "boolean" })),
            ("frozen", json!({ "type": "boolean" })),
            ("next", json!({ "type": "string", "enum": words(Next::ALL, Next::as_str) })),
            ("retry_at", optional(instant())),
        ],
    )
}

/// One row of the audit log.
#[must_use]
pub fn fact() -> Value {
    whole(
        "A transition, or something observed.",
        &[
            ("seq", json!({ "type": "integer", "minimum": 1 })),
            ("id", optional(text())),
            ("event_id", optional(text())),
            ("at", instant()),
            ("kind", json!({ "type": "string", "enum": words(FactKind::ALL, FactKind::as_str) })),
            ("old_state", optional(state())),
            ("new_state", optional(state())),
            ("attempt", json!({ "type": ["integer", "null"], "minimum": 0 })),
            ("attempt_id", optional(text())),
            ("reason", optional(reason())),
            ("provider", optional(text())),
            ("provider_message_id", optional(text())),
            ("token_id", optional(text())),
            ("actor", text()),
            (
                "detail",
                json!({
                    "type": "object",
                    "additionalProperties": { "type": ["string", "integer"] },
                }),
            ),
        ],
    )
}

/// What is sent to use a token.
#[must_use]
pub fn consume_request() -> Value {
    json!({
        "description": "The SHA-256 of the token, never the token itself. With a consume_id the use can be \
            repeated when its answer was lost.",
        "type": "object",
        "additionalProperties": false,
        "required": ["token_hash"],
        "properties": {
            "token_hash": { "type": "string", "pattern": "^[0-9a-f]{64}$" },
            "consume_id": {
                "type": "string", "minLength": 1, "maxLength": super::tokens::CONSUME_ID_CHARS_MAX,
                "pattern": format!("^[{ALPHABET}]+$"),
            },
        },
        "examples": [{ "token_hash": "5e".repeat(32), "consume_id": "reset-form-7f3a" }],
    })
}

/// The answer to the use of a token.
#[must_use]
pub fn consumed() -> Value {
    whole(
        "A token that was used.",
        &[
            ("id", text()),
            ("event_id", text()),
            ("seller_id", optional(text())),
            ("consumed_at", instant()),
        ],
    )
}

/// A freeze in force.
#[must_use]
pub fn freeze() -> Value {
    whole(
        "A freeze in force. Calls that had started (`in_flight`) may reach the provider until `since` plus \
         the call timeout.",
        &[
            ("scope", text()),
            ("actor", text()),
            ("since", instant()),
            ("reason", text()),
            ("review_at", optional(instant())),
            ("in_flight", count()),
        ],
    )
}

/// What is sent to freeze.
#[must_use]
pub fn freeze_request() -> Value {
    json!({
        "description": "Why, and when to look at it again. No email address or phone number.",
        "type": "object",
        "additionalProperties": false,
        "required": ["reason"],
        "properties": {
            "reason": { "type": "string", "minLength": 1, "maxLength": super::freezes::REASON_CHARS_MAX },
            "review_at": {
                "type": "string", "format": "date-time", "maxLength": 64, "pattern": INSTANT,
            },
        },
        "examples": [{ "reason": "provider outage INC-2291" }],
    })
}

/// A problem, with every code.
#[must_use]
pub fn problem() -> Value {
    let codes: Vec<&str> = problem::CODES.iter().map(|(code, ..)| *code).collect();
    let mut field_codes: Vec<&str> = FIELD_CODES.iter().map(|(code, _)| *code).collect();
    field_codes.extend(super::freezes::REASON_CODES);
    json!({
        "description": "RFC 9457. Values that were sent are never repeated.",
        "type": "object",
        "additionalProperties": false,
        "required": ["type", "title", "status", "code", "request_id"],
        "properties": {
            "type": { "type": "string", "pattern": "^urn:sendonce:problem:[a-z_]+$" },
            "title": text(),
            "status": { "type": "integer", "minimum": 400, "maximum": 599 },
            "code": { "type": "string", "enum": codes },
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["field", "code"],
                    "properties": {
                        "field": {
                            "type": "string",
                            "description": "The field, `body` for the whole, `?` for a name that is not repeated.",
                        },
                        "code": { "type": "string", "enum": field_codes },
                    },
                },
            },
            "scope": { "type": "string", "enum": super::auth::SCOPES, "description": "The scope that is missing." },
            "request_id": { "type": "string", "description": "Also in the log and in `x-request-id`." },
        },
    })
}
