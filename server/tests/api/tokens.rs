//! Using tokens over the API.

use app::model::Channel;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::operations::send_all;
use crate::schema;
use crate::support::{Answer, Api, changed};

fn hash(n: u8) -> String {
    format!("{n:02x}").repeat(32)
}

async fn with_token(api: &Api, name: &str, seller: &str, token_hash: &str) -> Value {
    let event = changed(&api.event(name), "seller_id", json!(seller));
    let answer = api.admit(&changed(&event, "token_hash", json!(token_hash))).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text);
    api.clock.advance(std::time::Duration::from_millis(5));
    answer.json()
}

async fn consume(api: &Api, body: Value) -> Answer {
    let answer = api.call(Method::POST, "/v1/tokens/consume", Some(body)).await;
    if answer.status == StatusCode::OK {
        schema::check(&server::http::schema::consumed(), &answer.json()).unwrap();
    }
    answer
}

fn told(answer: &Answer) -> (u16, String) {
    (answer.status.as_u16(), answer.code())
}

#[tokio::test]
async fn the_answers_to_a_use_are_told_apart() {
    let api = Api::new().await;
    let record = with_token(&api, "1", "seller_1", &hash(1)).await;
    let answer = consume(&api, json!({ "token_hash": hash(1), "consume_id": "form-1" })).await;
    assert_eq!((answer.status.as_u16(), answer.is_replay()), (200, false));
    let first = answer.json();
    assert_eq!(first["id"], record["id"]);
    assert_eq!(first["event_id"], "ev-1");
    assert_eq!(first["seller_id"], "seller_1");
    let answer = consume(&api, json!({ "token_hash": hash(1), "consume_id": "form-1" })).await;
    assert_eq!((answer.status.as_u16(), answer.is_replay()), (200, true));
    assert_eq!(answer.json(), first);
    for body in
        [json!({ "token_hash": hash(1) }), json!({ "token_hash": hash(1), "consume_id": "form-2" })]
    {
        assert_eq!(told(&consume(&api, body).await), (409, "token_consumed".to_owned()));
    }
    let unknown = consume(&api, json!({ "token_hash": hash(9) })).await;
    assert_eq!(told(&unknown), (404, "token_unknown".to_owned()));
    // A later message replaces the link before it when it goes out, and not before.
    with_token(&api, "2", "seller_2", &hash(2)).await;
    with_token(&api, "3", "seller_2", &hash(3)).await;
    send_all(&api, Channel::Sms).await;
    let older = consume(&api, json!({ "token_hash": hash(2) })).await;
    assert_eq!(told(&older), (410, "token_superseded".to_owned()));
    assert_eq!(consume(&api, json!({ "token_hash": hash(3) })).await.status, StatusCode::OK);
    // Expired by one microsecond.
    let record = with_token(&api, "4", "seller_4", &hash(4)).await;
    let expires_at: app::model::Stamp =
        app::model::Stamp::parse(record["expires_at"].as_str().unwrap()).unwrap();
    api.clock.jump(expires_at.since(api.env.clock.now()) + 1);
    let late = consume(&api, json!({ "token_hash": hash(4) })).await;
    assert_eq!(told(&late), (410, "token_expired".to_owned()));
}

#[tokio::test]
async fn a_use_needs_its_scope_and_a_hash() {
    let api = Api::new().await;
    with_token(&api, "1", "seller_1", &hash(1)).await;
    let body = json!({ "token_hash": hash(1) });
    let path = "/v1/tokens/consume";
    let other = api.key_with(&["admit", "status", "cancel", "freeze"]).await;
    let answer = api.call_as(Some(&other), Method::POST, path, Some(body.clone())).await;
    assert_eq!(told(&answer), (403, "forbidden".to_owned()));
    let answer = api.call_as(None, Method::POST, path, Some(body)).await;
    assert_eq!(told(&answer), (401, "unauthorized".to_owned()));
    let answer = consume(&api, json!({ "token_hash": "not-a-hash" })).await;
    assert_eq!(answer.errors(), "token_hash:not_a_token_hash");
    assert!(!answer.text.contains("not-a-hash"));
    let answer = consume(&api, json!({ "token": "secret", "token_hash": hash(1) })).await;
    assert_eq!(answer.errors(), "token:unknown_field");
    assert_eq!(api.call(Method::GET, path, None).await.code(), "method_not_allowed");
    assert_eq!(api.count("token_uses").await, 0);
}

#[tokio::test]
async fn neither_the_token_nor_its_hash_is_kept_or_shown() {
    let api = Api::new().await;
    let plain = hash(7);
    let record = with_token(&api, "1", "seller_1", &plain).await;
    consume(&api, json!({ "token_hash": plain, "consume_id": "canary-use-1" })).await;
    consume(&api, json!({ "token_hash": plain })).await;
    let id = record["id"].as_str().unwrap();
    let timeline = api.get(&format!("/v1/events/{id}/timeline")).await;
    let name = api.env.keys.token_id(&plain);
    assert!(timeline.text.contains(&name) && !timeline.text.contains(&plain));
    let dump: Vec<String> = sqlx::query_scalar(
        "SELECT COALESCE(token_id, '') || destination_hash || reset_hash FROM records
         UNION ALL SELECT COALESCE(token_id, '') || detail FROM facts
         UNION ALL SELECT token_id || COALESCE(consume_hash, '') FROM token_uses",
    )
    .fetch_all(&api.db)
    .await
    .unwrap();
    assert!(dump.iter().any(|row| row.contains(&name)));
    for row in dump.iter().chain([&crate::support::logged()]) {
        assert!(!row.contains(&plain) && !row.contains("canary-use-1"), "{row}");
    }
}

#[tokio::test]
async fn cancelling_supersedes_the_token() {
    let api = Api::new().await;
    let record = with_token(&api, "1", "seller_1", &hash(1)).await;
    let path = format!("/v1/events/{}/cancel", record["id"].as_str().unwrap());
    for _ in 0..2 {
        assert_eq!(api.call(Method::POST, &path, None).await.status, StatusCode::OK);
    }
    let answer = consume(&api, json!({ "token_hash": hash(1) })).await;
    assert_eq!(told(&answer), (410, "token_superseded".to_owned()));
}
