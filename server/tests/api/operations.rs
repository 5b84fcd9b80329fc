//! Looking up, cancelling, freezing.

use app::model::Channel;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use server::domain::Verdict;
use server::store::{End, Start};

use crate::schema;
use crate::support::{Api, changed};

/// Takes the due records of a channel through one call each, which the provider accepts.
pub async fn send_all(api: &Api, channel: Channel) -> Vec<server::store::Claim> {
    call_all(api, channel, Verdict::Accepted { message_id: Some("m-1".to_owned()) }).await
}

/// Takes the due text messages through one call each, whose answer is lost.
pub async fn lose_answer(api: &Api) -> Vec<server::store::Claim> {
    let why = server::domain::Doubt::Timeout;
    call_all(api, Channel::Sms, Verdict::Unknown { why, code: "timeout".to_owned() }).await
}

async fn call_all(api: &Api, channel: Channel, verdict: Verdict) -> Vec<server::store::Claim> {
    let claims = api.store.claim("worker", channel, 10).await.unwrap();
    for claim in &claims {
        let start = Start {
            id: claim.id.clone(),
            fence: claim.fence,
            request_hash: "r".to_owned(),
            text_hash: "text".into(),
            fingerprint: "f".to_owned(),
            fingerprint_version: 1,
            place: None,
        };
        api.store.start(&[start]).await.unwrap();
        let end = End {
            id: claim.id.clone(),
            fence: claim.fence,
            attempt: claim.attempt,
            verdict: verdict.clone(),
            ended_at: api.env.clock.now(),
        };
        api.store.end(&[end]).await.unwrap();
    }
    claims
}

#[tokio::test]
async fn what_is_no_id_of_ours_is_not_found() {
    let api = Api::new().await;
    let uuid = "0193a5b0-7c1e-7d3f-8a2b-123456789012";
    let mut event = api.event("1");
    event["event_id"] = json!(uuid);
    let id = api.admit(&event).await.id();
    for odd in [
        "nope",
        uuid,
        "%2e%2e",
        "a%20b",
        "%00",
        "%ff",
        "user%40example.com",
        &id.to_uppercase(),
        "'--",
    ] {
        for path in [format!("/v1/events/{odd}"), format!("/v1/events/{odd}/timeline")] {
            let answer = api.get(&path).await;
            assert_eq!(
                (answer.status.as_u16(), answer.code().as_str()),
                (404, "notification_not_found"),
                "{path}"
            );
            assert!(!answer.text.contains("example"));
        }
        let path = format!("/v1/events/{odd}/cancel");
        assert_eq!(
            api.call(Method::POST, &path, None).await.code(),
            "notification_not_found",
            "{path}"
        );
    }
    for odd in ["nope", "a%20b", "user%40example.com", "", "%2B15550100001"] {
        let answer = api.get(&format!("/v1/events?event_id={odd}")).await;
        assert_eq!(answer.code(), "notification_not_found", "{odd}");
    }
    assert_eq!(api.get(&format!("/v1/events?event_id={uuid}")).await.id(), id);
    for (query, errors) in [
        ("", "event_id:missing"),
        ("?seller=x", "event_id:missing seller:unknown_field"),
        ("?event_id=a&event_id=a", "event_id:duplicate_field"),
        ("?event_id=a&user%40example.com=1", "?:unknown_field"),
    ] {
        let answer = api.get(&format!("/v1/events{query}")).await;
        assert_eq!((answer.status.as_u16(), answer.errors().as_str()), (400, errors), "{query}");
    }
}

#[tokio::test]
async fn looking_changes_nothing() {
    let api = Api::new().await;
    let id = api.admit(&api.event("1")).await.id();
    let facts = api.count("facts").await;
    for _ in 0..3 {
        api.get(&format!("/v1/events/{id}")).await;
        api.get("/v1/events?event_id=ev-1").await;
        api.get("/v1/freezes").await;
        assert_eq!(api.kinds(&id).await, ["transition"]);
    }
    assert_eq!(api.count("facts").await, facts);
    let head = api.call(Method::HEAD, &format!("/v1/events/{id}"), None).await;
    assert_eq!((head.status, head.text.as_str()), (StatusCode::OK, ""));
}

#[tokio::test]
async fn an_event_is_taken_back_until_it_is_sent() {
    let api = Api::new().await;
    let id = api.admit(&api.event("1")).await.id();
    let path = format!("/v1/events/{id}/cancel");
    for body in [None, Some(json!({})), None] {
        let answer = api.call(Method::POST, &path, body).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        let record = answer.json();
        schema::check(&server::http::schema::record(), &record).unwrap();
        assert_eq!(
            (&record["state"], &record["reason"]),
            (&json!("failed_final"), &json!("cancelled"))
        );
        assert_eq!((&record["settled"], &record["calls"]), (&json!(true), &json!(0)));
    }
    assert_eq!(api.kinds(&id).await.len(), 2);
    assert_eq!(api.count("outbox").await, 0);
    // The same admission is still answered with its record, and nothing starts again.
    let again = api.admit(&api.event("1")).await;
    assert_eq!((again.status, again.is_replay()), (StatusCode::ACCEPTED, true));
    assert_eq!(again.json()["state"], "failed_final");

    let refused = api.call(Method::POST, &path, Some(json!({ "reason": "x" }))).await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (400, "invalid_request"));

    let sent = api.admit(&api.event("2")).await.id();
    assert_eq!(send_all(&api, Channel::Sms).await.len(), 1);
    let late = api.call(Method::POST, &format!("/v1/events/{sent}/cancel"), None).await;
    assert_eq!((late.status.as_u16(), late.code().as_str()), (409, "too_late"));
    assert_eq!(api.get(&format!("/v1/events/{sent}")).await.json()["state"], "sent");
    let missing = "/v1/events/0193a5b0-7c1e-7d3f-8a2b-123456789012/cancel";
    assert_eq!(api.call(Method::POST, missing, None).await.code(), "notification_not_found");
}

#[tokio::test]
async fn a_freeze_holds_its_scope_and_keeps_its_first_actor() {
    let api = Api::new().await;
    let other = api.key_with(&["freeze"]).await;
    for scope in
        ["all", "channel:sms", "channel:email", "provider:fake", "provider%3Ademo", "channel%3asms"]
    {
        let path = format!("/v1/freezes/{scope}");
        let plain = scope.replace("%3A", ":").replace("%3a", ":");
        let body =
            json!({ "reason": "provider outage INC-2291", "review_at": "2026-09-21T15:00:00Z" });
        let first = api.call(Method::PUT, &path, Some(body)).await;
        assert_eq!(first.status, StatusCode::OK, "{}", first.text);
        schema::check(&server::http::schema::freeze(), &first.json()).unwrap();
        assert_eq!(first.json()["scope"], plain.as_str());
        assert_eq!(first.json()["actor"], format!("client:{}", api.client_id));
        assert_eq!(first.json()["since"], crate::support::START);
        assert_eq!(first.json()["review_at"], "2026-09-21T15:00:00.000000Z");
        assert_eq!(first.json()["in_flight"], 0);
        let again = api
            .call_as(Some(&other), Method::PUT, &path, Some(json!({ "reason": "another" })))
            .await;
        assert_eq!(again.json(), first.json());
        let listed = api.get("/v1/freezes").await.json();
        assert!(listed["freezes"].as_array().unwrap().contains(&first.json()));
        for _ in 0..2 {
            let gone = api.call(Method::DELETE, &path, None).await;
            assert_eq!((gone.status, gone.text.as_str()), (StatusCode::NO_CONTENT, ""));
        }
        assert_eq!(api.get("/v1/freezes").await.json(), json!({ "freezes": [] }));
    }
    let body = json!({ "reason": "check" });
    for scope in [
        "nope",
        "ALL",
        "channel:push",
        "provider:nope",
        "channel:",
        "provider",
        "seller:1",
        "%ff",
        "provider:a:b",
    ] {
        let path = format!("/v1/freezes/{scope}");
        for (method, body) in [(Method::PUT, Some(body.clone())), (Method::DELETE, None)] {
            let answer = api.call(method, &path, body).await;
            assert_eq!(
                (answer.status.as_u16(), answer.code().as_str()),
                (404, "scope_not_found"),
                "{path}"
            );
        }
    }
}

#[tokio::test]
async fn a_provider_that_was_taken_out_can_still_be_reopened() {
    let api = Api::new().await;
    api.store.freeze("provider:old", "client:x", "check", None).await.unwrap();
    let gone = api.call(Method::DELETE, "/v1/freezes/provider:old", None).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    assert_eq!(
        api.call(Method::DELETE, "/v1/freezes/provider:old", None).await.code(),
        "scope_not_found"
    );
}

#[tokio::test]
async fn a_reason_is_needed_and_names_nobody() {
    let api = Api::new().await;
    for (body, errors) in [
        (json!({}), "reason:missing"),
        (json!({ "reason": "ask user@example.com" }), "reason:personal_data"),
        (json!({ "reason": "call +1 555 010 0001" }), "reason:personal_data"),
        (json!({ "reason": "x".repeat(501) }), "reason:too_long"),
        (
            json!({ "reason": 7, "review_at": "soon", "who": "me" }),
            "reason:wrong_type review_at:not_rfc3339 who:unknown_field",
        ),
        (json!({ "reason": "x", "review_at": "2026-09-21T14:13:20Z" }), "review_at:past"),
    ] {
        let answer = api.call(Method::PUT, "/v1/freezes/all", Some(body)).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (400, "invalid_request"));
        assert_eq!(answer.errors(), errors);
        assert!(
            !answer.text.contains("555 010") && !answer.text.contains("example.com"),
            "{}",
            answer.text
        );
    }
    assert_eq!(api.get("/v1/freezes").await.json(), json!({ "freezes": [] }));
}

#[tokio::test]
async fn what_is_frozen_is_admitted_shown_and_not_claimed() {
    let api = Api::new().await;
    api.call(Method::PUT, "/v1/freezes/channel:sms", Some(json!({ "reason": "check" }))).await;
    let sms = api.admit(&api.event("1")).await;
    let email = api.admit(&changed(&api.event("2"), "channel", json!("email"))).await;
    assert_eq!((&sms.json()["frozen"], &email.json()["frozen"]), (&json!(true), &json!(false)));
    assert!(send_all(&api, Channel::Sms).await.is_empty());
    assert_eq!(send_all(&api, Channel::Email).await.len(), 1);
    api.call(Method::DELETE, "/v1/freezes/channel:sms", None).await;
    assert_eq!(
        api.get(&format!("/v1/events/{}", sms.id())).await.json()["frozen"],
        Value::Bool(false)
    );
    assert_eq!(send_all(&api, Channel::Sms).await.len(), 1);
}
