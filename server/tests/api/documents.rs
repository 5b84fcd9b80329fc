//! The schema, the tool and the OpenAPI document say what the server does.

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use server::admission::validate::{FIELD_CODES, PLACEHOLDERS};
use server::http::problem::CODES;

use crate::schema;
use crate::support::{Api, changed, request};

#[tokio::test]
async fn the_schema_accepts_what_the_server_accepts_and_nothing_else() {
    let api = Api::new().await;
    let answer = api.call_as(None, Method::GET, "/v1/schema/reset-event.json", None).await;
    assert_eq!(answer.status, StatusCode::OK);
    let document = answer.json();
    assert_eq!(document["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(document["additionalProperties"], false);
    for (n, example) in document["examples"].as_array().unwrap().iter().enumerate() {
        schema::check(&document, example).unwrap();
        let answer =
            api.admit(&changed(example, "expires_at", json!("2026-09-21T14:30:00Z"))).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "example {n}: {}", answer.text);
    }
    let base = api.event("base");
    let mut values: Vec<(&str, Value)> = vec![
        ("destination_ref", json!("12345678")),
        ("destination_ref", json!("1234567")),
        ("destination_ref", json!("123456789012345")),
        ("destination_ref", json!("1234567890123456")),
        ("destination_ref", json!("555-010-0001")),
        ("destination_ref", json!("dest-12345678")),
        ("destination_ref", json!("-.12345678")),
        ("destination_ref", json!("a@b")),
        ("destination_ref", json!("+15550100001")),
        ("seller_id", json!("12345678")),
        ("seller_id", json!("seller_1042")),
        ("request_window", json!("a+b")),
        ("purpose", json!("a+b")),
        ("purpose", json!("x".repeat(64))),
        ("purpose", json!("x".repeat(65))),
        ("channel", json!("email")),
        ("channel", json!("fax")),
        ("token_hash", json!("ab".repeat(32))),
        ("token_hash", json!("AB".repeat(32))),
        ("extra", json!("x")),
        ("event_id", json!("0")),
        ("event_id", json!("0-0")),
        ("event_id", json!("...")),
        ("event_id", json!("0x0")),
        ("event_id", json!("")),
        ("event_id", json!("x".repeat(128))),
        ("event_id", json!("x".repeat(129))),
        ("event_id", json!("a b")),
        ("event_id", json!(7)),
        ("event_id", Value::Null),
        ("reset_ref", json!("unknown")),
        ("expires_at", json!("2026-09-21T14:30:00")),
        ("expires_at", json!("2026-09-21T16:30:00.5+02:00")),
        ("expires_at", json!("2026-09-21T16:30:00+0200")),
        ("expires_at", json!("2026-09-31T16:30:00Z")),
    ];
    for word in PLACEHOLDERS {
        values.push(("idempotency_key", json!(word)));
        values.push(("idempotency_key", json!(word.to_uppercase())));
        values.push(("idempotency_key", json!(format!("k-{word}"))));
        values.push(("reset_ref", json!(word)));
    }
    for (n, (field, value)) in values.into_iter().enumerate() {
        let mut event = changed(&base, "event_id", json!(format!("ev-{n}")));
        event["idempotency_key"] = json!(format!("key-{n}"));
        let event = changed(&event, field, value.clone());
        let answer = api.admit(&event).await;
        let accepts = schema::check(&document, &event);
        assert_eq!(
            answer.status == StatusCode::ACCEPTED,
            accepts.is_ok(),
            "{field} {value}: {accepts:?} {}",
            answer.text
        );
    }
    let alone = changed(&base, "request_window", json!("w"));
    assert!(schema::check(&document, &alone).is_err());
    schema::check(&document, &changed(&alone, "seller_id", json!("s"))).unwrap();
}

#[tokio::test]
async fn the_tool_takes_the_same_event() {
    let api = Api::new().await;
    let tool = api.call_as(None, Method::GET, "/v1/schema/tool.json", None).await.json();
    let names: Vec<&String> = tool.as_object().unwrap().keys().collect();
    assert_eq!(names, ["description", "input_schema", "name"]);
    assert_eq!(tool["input_schema"]["additionalProperties"], false);
    let event = api.get("/v1/schema/reset-event.json").await.json();
    for part in ["properties", "required", "dependentRequired"] {
        assert_eq!(tool["input_schema"][part], event[part]);
    }
}

fn operations(document: &Value) -> Vec<(Method, String, Value)> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if method != "parameters" {
                found.push((
                    method.to_uppercase().parse().unwrap(),
                    path.clone(),
                    operation.clone(),
                ));
            }
        }
    }
    found
}

/// Each `$ref` of a document leads somewhere.
fn check_refs(root: &Value, node: &Value) {
    match node {
        Value::Object(map) => {
            if let Some(Value::String(to)) = map.get("$ref") {
                assert!(root.pointer(to.trim_start_matches('#')).is_some(), "{to}");
            }
            map.values().for_each(|child| check_refs(root, child));
        }
        Value::Array(items) => items.iter().for_each(|child| check_refs(root, child)),
        _ => {}
    }
}

#[tokio::test]
async fn the_openapi_document_lists_what_is_there() {
    let api = Api::new().await;
    let document = api.call_as(None, Method::GET, "/openapi.json", None).await.json();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["servers"][0]["url"], "https://sendonce.example.com");
    check_refs(&document, &document);
    let mut ids = BTreeSet::new();
    let mut listed = BTreeSet::from(["not_found".to_owned(), "method_not_allowed".to_owned()]);
    for (method, path, operation) in operations(&document) {
        assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()));
        for (status, answer) in operation["responses"].as_object().unwrap() {
            let problem = &answer["content"]["application/problem+json"]["schema"];
            for code in problem["properties"]["code"]["enum"].as_array().into_iter().flatten() {
                let code = code.as_str().unwrap();
                let (_, known, _) = CODES.iter().find(|(each, ..)| *each == code).unwrap();
                assert_eq!(known.to_string(), *status, "{code}");
                listed.insert(code.to_owned());
            }
        }
        if ["/healthz", "/readyz", "/metrics"].contains(&path.as_str()) {
            continue;
        }
        let place = path
            .replace("{id}", "0193a5b0-7c1e-7d3f-8a2b-123456789012")
            .replace("{scope}", "all")
            .replace("{provider}", "fake");
        let answer = api.send(request(Some(&api.key), method.clone(), &place, None)).await;
        assert!(
            !["not_found", "method_not_allowed"].contains(&json_code(&answer.text).as_str()),
            "{method} {path}"
        );
        let status = answer.status.as_u16().to_string();
        assert!(operation["responses"].get(&status).is_some(), "{method} {path} answers {status}");
    }
    let known: BTreeSet<String> = CODES.iter().map(|(code, ..)| (*code).to_owned()).collect();
    assert_eq!(listed, known);
}

fn json_code(text: &str) -> String {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    body["code"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn answers_are_what_the_document_says() {
    let api = Api::new().await;
    let document = api.get("/openapi.json").await.json();
    let part = |name: &str| document["components"]["schemas"][name].clone();
    let event = api.event("1");
    schema::check_in(&document, &part("Event"), &event).unwrap();
    let record = api.admit(&event).await;
    schema::check_in(&document, &part("Record"), &record.json()).unwrap();
    let refused = api.admit(&json!({ "event_id": 1 })).await;
    schema::check_in(&document, &part("Problem"), &refused.json()).unwrap();
    let conflict = &document["paths"]["/v1/events"]["post"]["responses"]["409"];
    let conflict = &conflict["content"]["application/problem+json"]["schema"];
    let answer = api.admit(&changed(&event, "reset_ref", json!("rst-2"))).await;
    schema::check_in(&document, conflict, &answer.json()).unwrap();
    assert!(schema::check_in(&document, conflict, &refused.json()).is_err());
    let mut codes: Vec<&str> = FIELD_CODES.iter().map(|(code, _)| *code).collect();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), FIELD_CODES.len());
}
