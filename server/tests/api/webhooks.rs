//! `POST /webhooks/{provider}`: fails closed, and says 200 to whatever verifies.

use app::model::{Channel, Stamp};
use axum::body::Body;
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use server::keys;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{DerSignature, SigningKey};
use server::providers::sendgrid::{SIGNATURE_HEADER, SPKI_PREFIX, TIMESTAMP_HEADER};

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
    let large = json!({ "x": "y".repeat(1 << 20) });
    let answer = api.send(signed(WEBHOOK_KEY, api.env.clock.now(), &large)).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (413, "request_too_large"));
    assert_eq!(api.call(Method::GET, "/webhooks/fake", None).await.code(), "method_not_allowed");
}

/// A server whose emails go to one vendor, with these keys.
async fn mailing(kind: &str, keys: &str) -> Api {
    let table = format!(
        "[providers.post]\nkind = \"{kind}\"\nfrom = \"no-reply@example.com\"\n{keys}\n[providers.mute]"
    );
    let changes =
        [("email = [\"fake\"]", "email = [\"post\"]"), ("[providers.mute]", table.as_str())];
    Api::with(&changes, std::collections::BTreeMap::new()).await
}

/// An email that the vendor has taken: the record's id and the attempt's.
async fn taken(api: &Api) -> (String, String) {
    let mut event = api.event("1");
    event["channel"] = json!("email");
    let id = api.admit(&event).await.id();
    let claim = send_all(api, Channel::Email).await.remove(0);
    (id, claim.attempt_id)
}

#[tokio::test]
async fn postmark_never_hears_403_which_would_end_its_repetitions() {
    let api = mailing("postmark", "token = \"t\"\nwebhook_secret = \"h00k\"").await;
    let (id, attempt) = taken(&api).await;
    let record = |kind: &str| {
        json!({
            "RecordType": kind, "MessageID": "m-1", "Metadata": {"attempt_id": attempt},
            "Recipient": "ann@example.com", "DeliveredAt": "2026-09-21T14:13:30Z",
        })
        .to_string()
    };
    let post = |secret: Option<&str>, path: &str, body: String| {
        let mut request = Request::post(path).header("content-type", "application/json");
        if let Some(secret) = secret {
            let basic = STANDARD.encode(format!("postmark:{secret}"));
            request = request.header("authorization", format!("Basic {basic}"));
        }
        request.body(Body::from(body)).unwrap()
    };
    let good = record("Delivery");
    for (request, status) in [
        (post(None, "/webhooks/post", good.clone()), 401),
        (post(Some(""), "/webhooks/post", good.clone()), 401),
        (post(Some("wrong"), "/webhooks/post", good.clone()), 401),
        (post(Some("h00k"), "/webhooks/posts", good.clone()), 404),
        (post(Some("h00k"), "/webhooks/post", "{}".to_owned()), 400),
        (post(Some("h00k"), "/webhooks/post", "x".repeat(2 << 20)), 413),
        (post(Some("h00k"), "/webhooks/post", record("SubscriptionChange")), 200),
    ] {
        assert_eq!(api.send(request).await.status.as_u16(), status);
    }
    assert_eq!(api.get(&format!("/v1/events/{id}")).await.json()["state"], "sent");
    is_taken(&api.send(post(Some("h00k"), "/webhooks/post", good)).await);
    assert_eq!(api.get(&format!("/v1/events/{id}")).await.json()["state"], "delivered");
}

#[tokio::test]
async fn our_event_is_found_in_a_large_batch_of_other_peoples() {
    let key = SigningKey::from_slice(&[7; 32]).unwrap();
    let point = key.verifying_key().to_sec1_point(false);
    let public = STANDARD.encode([&SPKI_PREFIX, point.as_bytes()].concat());
    let keys = format!("api_key = \"k\"\nwebhook_secret = \"{public}\"");
    let api = mailing("sendgrid", &keys).await;
    let (id, attempt) = taken(&api).await;
    let event = |attempt: &str| {
        json!({"event": "delivered", "email": "ann@example.com", "attempt_id": attempt,
            "sg_message_id": format!("{}.recvd-1", "m".repeat(200)), "timestamp": 1_790_000_000})
        .to_string()
    };
    let mut events: Vec<String> =
        (0..350).map(|number| event(&format!("other-{number}"))).collect();
    events
        .extend((0..1500).map(|_| json!({"event": "open", "email": "b@example.com"}).to_string()));
    events.push(event(&attempt));
    let body = format!("[{}]\r\n", events.join(",\r\n"));
    assert!(body.len() > 150_000);
    let time = (api.env.clock.now().micros() / 1_000_000).to_string();
    let signature: DerSignature = key.sign(format!("{time}{body}").as_bytes());
    let post = |body: String| {
        Request::post("/webhooks/post")
            .header(TIMESTAMP_HEADER, &time)
            .header(SIGNATURE_HEADER, STANDARD.encode(signature.as_bytes()))
            .body(Body::from(body))
            .unwrap()
    };
    assert_eq!(api.send(post(body.replace("delivered", "processed"))).await.status.as_u16(), 401);
    assert_eq!(api.get(&format!("/v1/events/{id}")).await.json()["state"], "sent");
    is_taken(&api.send(post(body)).await);
    assert_eq!(api.get(&format!("/v1/events/{id}")).await.json()["state"], "delivered");
}

#[tokio::test]
async fn an_event_of_another_topic_or_another_time_reaches_nobody() {
    let keys = "access_key_id = \"a\"\nsecret_access_key = \"b\"\nregion = \"us-east-1\"\n\
                topic_arn = \"arn:aws:sns:us-east-1:123456789012:ses\"";
    let api = mailing("ses", keys).await;
    let (id, _) = taken(&api).await;
    let now = api.env.clock.now();
    let envelope = |topic: &str, at: Stamp, url: &str| {
        let body = json!({
            "Type": "Notification", "MessageId": "1", "Message": "{}", "SignatureVersion": "2",
            "TopicArn": format!("arn:aws:sns:us-east-1:123456789012:{topic}"), "Timestamp": at,
            "Signature": "AAAA", "SigningCertURL": url,
        });
        Request::post("/webhooks/post").body(Body::from(body.to_string())).unwrap()
    };
    let elsewhere = "https://evil.example/SimpleNotificationService-a1.pem";
    for (request, status) in [
        (envelope("other", now, elsewhere), 401),
        (envelope("ses", now.plus(-3 * 3_600_000_000), elsewhere), 401),
        (envelope("ses", now.plus(600_000_000), elsewhere), 401),
        (envelope("ses", now, elsewhere), 401),
        (Request::post("/webhooks/post").body(Body::from("{}")).unwrap(), 400),
    ] {
        assert_eq!(api.send(request).await.status.as_u16(), status);
    }
    assert_eq!(api.get(&format!("/v1/events/{id}")).await.json()["state"], "sent");
}
