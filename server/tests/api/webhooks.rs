//! `POST /webhooks/{provider}`: fails closed, and says 200 to whatever verifies.

use app::model::{Channel, Stamp};
use axum::body::Body;
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use server::keys;

use crate::operations::send_all;
use crate::support::{Answer, Api, WEBHOOK_KEY, metrics};

/// A callback, signed here and not by the code under test.
fn signed(key: &str, at: Stamp, body: &Value) -> Request<Body> {
    let body = serde_json::to_vec(body).unwrap();
    let t = at.micros() / 1_000_000;
    let mut message = format!("{t}.").into_bytes();
    message.extend_from_slice(&body);
    let v1 = keys::sign(key.as_bytes(), &message);
    Request::post("/webhooks/fake")
        .header("sendonce-signature", format!("t={t},v1={v1}"))
        .header("content-type", "application/json")
        .body(Body::from(body))
        .unwrap()
}

fn receipt(attempt_id: &str, state: &str) -> Value {
    json!({ "attempt_id": attempt_id, "message_id": "m-1", "state": state, "at": "2026-09-21T14:13:30Z" })
}

fn counted(outcome: &str) -> f64 {
    let line = format!("sendonce_callbacks_total{{provider=\"fake\",outcome=\"{outcome}\"}} ");
    let text = metrics().render();
    text.lines()
        .find_map(|text| text.strip_prefix(&line))
        .map_or(0.0, |value| value.parse().unwrap())
}

fn is_taken(answer: &Answer) {
    assert_eq!((answer.status, answer.text.as_str()), (StatusCode::OK, "{}"));
}

#[tokio::test]
async fn a_verified_callback_is_weighed_once() {
    metrics();
    let api = Api::new().await;
    let id = api.admit(&api.event("1")).await.id();
    let claim = send_all(&api, Channel::Sms).await.remove(0);
    let now = api.env.clock.now();
    let delivered = receipt(&claim.attempt_id, "delivered");
    let (kept, duplicate, unmatched) =
        (counted("kept"), counted("duplicate"), counted("unmatched"));
    is_taken(&api.send(signed(WEBHOOK_KEY, now, &delivered)).await);
    let record = api.get(&format!("/v1/events/{id}")).await.json();
    assert_eq!(
        (&record["state"], &record["reason"]),
        (&json!("delivered"), &json!("delivery_evidence"))
    );
    is_taken(&api.send(signed(WEBHOOK_KEY, now, &delivered)).await);
    is_taken(
        &api.send(signed(WEBHOOK_KEY, now, &receipt("ffffffffffffffffffffffffffffffff", "failed")))
            .await,
    );
    assert!(counted("kept") >= kept + 1.0);
    assert!(counted("duplicate") >= duplicate + 1.0);
    assert!(counted("unmatched") >= unmatched + 1.0);
    let callbacks =
        || async { api.kinds(&id).await.iter().filter(|kind| *kind == "callback").count() };
    assert_eq!(callbacks().await, 1);
    // Later and contradicting: kept as a fact, changes nothing.
    is_taken(&api.send(signed(WEBHOOK_KEY, now, &receipt(&claim.attempt_id, "failed"))).await);
    assert_eq!(callbacks().await, 2);
    assert_eq!(api.get(&format!("/v1/events/{id}")).await.json()["state"], "delivered");
}

#[tokio::test]
async fn what_does_not_verify_changes_nothing() {
    metrics();
    let api = Api::new().await;
    let id = api.admit(&api.event("1")).await.id();
    let claim = send_all(&api, Channel::Sms).await.remove(0);
    let now = api.env.clock.now();
    let body = receipt(&claim.attempt_id, "delivered");
    let facts = api.count("facts").await;
    let mut unsigned = signed(WEBHOOK_KEY, now, &body);
    unsigned.headers_mut().remove("sendonce-signature");
    let mut other_body = signed(WEBHOOK_KEY, now, &body);
    *other_body.body_mut() =
        Body::from(serde_json::to_vec(&receipt(&claim.attempt_id, "failed")).unwrap());
    let refused = counted("refused");
    for request in [
        unsigned,
        other_body,
        signed("another key", now, &body),
        signed(WEBHOOK_KEY, now.plus(-301_000_000), &body),
        signed(WEBHOOK_KEY, now.plus(301_000_000), &body),
    ] {
        let answer = api.send(request).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (401, "callback_refused"));
    }
    assert!(counted("refused") >= refused + 5.0);
    for body in [json!({}), json!([]), json!({ "attempt_id": "x y", "state": "sent" })] {
        let answer = api.send(signed(WEBHOOK_KEY, now, &body)).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (400, "callback_malformed"));
    }
    assert_eq!(api.count("facts").await, facts);
    assert_eq!(api.get(&format!("/v1/events/{id}")).await.json()["state"], "sent");
}

#[tokio::test]
async fn without_a_key_there_is_no_endpoint() {
    let api = Api::new().await;
    let body = receipt("ffffffffffffffffffffffffffffffff", "delivered");
    for name in ["mute", "nope", "%ff", "FAKE"] {
        let mut request = signed(WEBHOOK_KEY, api.env.clock.now(), &body);
        *request.uri_mut() = format!("/webhooks/{name}").parse().unwrap();
        let answer = api.send(request).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (404, "not_found"), "{name}");
    }
}

#[tokio::test]
async fn a_large_callback_is_refused() {
    let api = Api::new().await;
    let large = json!({ "x": "y".repeat(64 * 1024) });
    let answer = api.send(signed(WEBHOOK_KEY, api.env.clock.now(), &large)).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (413, "request_too_large"));
    assert_eq!(api.call(Method::GET, "/webhooks/fake", None).await.code(), "method_not_allowed");
}
