//! `/openapi.json`: OpenAPI 3.1 of what this server answers.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{problem, schema};

/// Codes that any call may meet.
const ANY: &[&str] = &["internal_error"];
/// Codes of a call that needs a client key.
const KEYED: &[&str] = &["unauthorized", "forbidden", "service_unavailable", "internal_error"];

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn json_answer(about: &str, schema: Value) -> Value {
    json!({ "description": about, "content": { "application/json": { "schema": schema } } })
}

/// Adds one answer for each status that these codes have.
fn with_problems(mut answers: Map<String, Value>, codes: &[&[&str]]) -> Value {
    let mut by_status: BTreeMap<u16, Vec<(&str, &str)>> = BTreeMap::new();
    for (code, status, title) in problem::CODES {
        if codes.iter().any(|list| list.contains(code)) {
            by_status.entry(*status).or_default().push((code, title));
        }
    }
    for (status, rows) in by_status {
        let about: Vec<String> =
            rows.iter().map(|(code, title)| format!("`{code}`: {title}.")).collect();
        let names: Vec<&str> = rows.iter().map(|(code, _)| *code).collect();
        let mut answer = json!({
            "description": about.join(" "),
            "content": { problem::MEDIA_TYPE: { "schema": {
                "allOf": [reference("Problem")],
                "properties": { "code": { "enum": names }, "status": { "const": status } },
            } } },
        });
        if matches!(status, 429 | 503) {
            answer["headers"] = json!({ "Retry-After": {
                "description": "Seconds.", "required": true, "schema": { "type": "integer", "minimum": 1 },
            } });
        }
        if names.contains(&"unauthorized") {
            answer["headers"] = json!({ "WWW-Authenticate": {
                "required": true, "schema": { "type": "string", "const": "Bearer" },
            } });
        }
        answers.insert(status.to_string(), answer);
    }
    Value::Object(answers)
}

fn answers(ok: &[(&str, Value)], codes: &[&[&str]]) -> Value {
    let ok = ok.iter().map(|(status, answer)| ((*status).to_owned(), answer.clone())).collect();
    with_problems(ok, codes)
}

fn operation(id: &str, about: &str, scope: Option<&str>, responses: Value) -> Value {
    let mut operation = json!({ "operationId": id, "summary": about, "responses": responses });
    match scope {
        // The scopes of a bearer key stand here by OpenAPI 3.1.
        Some(scope) => operation["security"] = json!([{ "clientKey": [scope] }]),
        None => operation["security"] = json!([]),
    }
    operation
}

fn with_body(mut operation: Value, schema: Value) -> Value {
    operation["requestBody"] =
        json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    operation
}

fn in_path(name: &str, about: &str, schema: Value) -> Value {
    json!({ "name": name, "in": "path", "required": true, "description": about, "schema": schema })
}

fn document(about: &str) -> Value {
    json_answer(about, json!({ "type": "object" }))
}

/// The document.
#[must_use]
pub fn document_of(public_url: &str) -> Value {
    let record = || json_answer("The record.", reference("Record"));
    let id = || {
        in_path(
            "id",
            "The record's id.",
            json!({ "type": "string", "minLength": 1, "maxLength": 128 }),
        )
    };
    let scope = || {
        in_path(
            "scope",
            "`all`, `channel:sms`, `channel:email` or `provider:<name>`.",
            json!({ "type": "string", "pattern": "^(all|channel:(sms|email)|provider:[A-Za-z0-9_-]{1,64})$" }),
        )
    };
    let mut admitted = json_answer("Admitted, now or before.", reference("Record"));
    admitted["headers"] = json!({ "Idempotency-Replayed": {
        "description": "Only where it was admitted before, or converged on the first of its window.",
        "schema": { "type": "string", "const": "true" },
    } });
    let mut consumed =
        json_answer("Used, now or before by the same consume_id.", reference("Consumed"));
    consumed["headers"] = json!({ "Idempotency-Replayed": {
        "description": "Only where the same consume_id had used it before.",
        "schema": { "type": "string", "const": "true" },
    } });
    let body = &["request_timeout", "unsupported_media_type"][..];
    let mut find = operation(
        "findEvent",
        "The record of an event",
        Some("status"),
        answers(&[("200", record())], &[&["invalid_request", "notification_not_found"], KEYED]),
    );
    find["parameters"] = json!([{
        "name": "event_id", "in": "query", "required": true,
        "description": "The caller's id, also of an event that converged on another.",
        "schema": { "type": "string", "minLength": 1, "maxLength": 128 },
    }]);
    let taken = json!({ "type": "object", "additionalProperties": false });
    let mut callback = operation(
        "callback",
        "A provider's callback, signed as that provider signs",
        None,
        answers(
            &[("200", json_answer("Taken.", taken))],
            &[
                &["not_found", "callback_refused", "callback_malformed", "request_too_large"],
                &["request_timeout", "service_unavailable"],
                ANY,
            ],
        ),
    );
    callback["requestBody"] = json!({ "required": true, "content": { "*/*": {} } });
    let paths = json!({
        "/v1/events": {
            "post": with_body(
                operation("admitEvent", "Admits an event, once", Some("admit"), answers(
                    &[("202", admitted)],
                    &[&["invalid_event", "event_too_large", "event_purged", "admission_unavailable"],
                      &["unauthorized", "forbidden", "internal_error"], body, problem::CONFLICTS, problem::LIMITS],
                )),
                reference("Event"),
            ),
            "get": find,
        },
        "/v1/events/{id}": {
            "parameters": [id()],
            "get": operation("readRecord", "A record", Some("status"), answers(
                &[("200", record())], &[&["notification_not_found"], KEYED],
            )),
        },
        "/v1/events/{id}/timeline": {
            "parameters": [id()],
            "get": operation("readTimeline", "Everything that happened to a record, oldest first", Some("status"),
                answers(&[("200", json_answer("Facts.", json!({
                    "type": "object", "additionalProperties": false, "required": ["facts"],
                    "properties": { "facts": { "type": "array", "items": reference("Fact") } },
                })))], &[&["notification_not_found"], KEYED])),
        },
        "/v1/events/{id}/cancel": {
            "parameters": [id()],
            "post": operation("cancelEvent", "Takes an event back; without a body", Some("cancel"), answers(
                &[("200", record())],
                &[&["notification_not_found", "too_late", "invalid_request", "request_too_large", "request_timeout"],
                  KEYED],
            )),
        },
        "/v1/tokens/consume": {
            "post": with_body(
                operation("consumeToken", "Uses a token, once; again with the same consume_id", Some("consume"), answers(
                    &[("200", consumed)],
                    &[&["invalid_request", "request_too_large"], problem::TOKENS, body, KEYED],
                )),
                reference("ConsumeRequest"),
            ),
        },
        "/v1/freezes": {
            "get": operation("listFreezes", "Freezes in force", Some("freeze"), answers(
                &[("200", json_answer("Freezes.", json!({
                    "type": "object", "additionalProperties": false, "required": ["freezes"],
                    "properties": { "freezes": { "type": "array", "items": reference("Freeze") } },
                })))], &[KEYED])),
        },
        "/v1/freezes/{scope}": {
            "parameters": [scope()],
            "put": with_body(
                operation("freeze", "Stops new calls of a scope; repeated, the first actor and time stay",
                    Some("freeze"), answers(
                        &[("200", json_answer("In force. No call of the scope starts from here on.",
                            reference("Freeze")))],
                        &[&["invalid_request", "scope_not_found", "request_too_large"], body, KEYED],
                    )),
                reference("FreezeRequest"),
            ),
            "delete": operation("unfreeze", "Lets a scope go on, at the configured pace", Some("freeze"), answers(
                &[("204", json!({ "description": "No freeze of this scope is in force." }))],
                &[&["scope_not_found"], KEYED],
            )),
        },
        "/v1/schema/reset-event.json": {
            "get": operation("eventSchema", "JSON Schema 2020-12 of the event", None, answers(
                &[("200", document("The schema."))], &[ANY])),
        },
        "/v1/schema/tool.json": {
            "get": operation("toolSchema", "A tool definition for agents that originate events", None, answers(
                &[("200", json_answer("The tool.", json!({
                    "type": "object", "required": ["name", "description", "input_schema"],
                })))], &[ANY])),
        },
        "/openapi.json": {
            "get": operation("openapi", "This document", None, answers(&[("200", document("OpenAPI 3.1."))], &[ANY])),
        },
        "/webhooks/{provider}": {
            "parameters": [in_path("provider", "The provider's configured name.",
                json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$" }))],
            "post": callback,
        },
        "/healthz": {
            "get": operation("healthz", "The process answers", None, answers(
                &[("200", document("It does."))], &[])),
        },
        "/readyz": {
            "get": operation("readyz", "Database, schema and workers", None, json!({
                "200": document("Every check holds."), "503": document("One does not."),
            })),
        },
        "/metrics": {
            "get": operation("metrics", "Prometheus text", None, json!({
                "200": { "description": "Metrics.", "content": { "text/plain": {} } },
            })),
        },
    });
    json!({
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "sendonce",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "description": "Admits each password-reset event once and sends at most one notification for it. \
                Errors are RFC 9457 problems with a stable `code`; what was sent is never repeated in them. An \
                address that does not exist answers `not_found`, another method `method_not_allowed`. Times are \
                RFC 3339 in UTC with microseconds. `/healthz`, `/readyz` and `/metrics` are on a listener of \
                their own where one is configured.",
        },
        "servers": [{ "url": public_url }],
        "paths": paths,
        "components": {
            "securitySchemes": { "clientKey": {
                "type": "http", "scheme": "bearer",
                "description": "A client key, `so_<client id>_<secret>`. The names beside it are the scopes that the call needs.",
            } },
            "schemas": {
                "Event": schema::event(),
                "Record": schema::record(),
                "Fact": schema::fact(),
                "ConsumeRequest": schema::consume_request(),
                "Consumed": schema::consumed(),
                "Freeze": schema::freeze(),
                "FreezeRequest": schema::freeze_request(),
                "Problem": schema::problem(),
            },
        },
    })
}
