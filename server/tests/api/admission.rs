//! `POST /v1/events`: once for each event, whatever is repeated, mixed up or broken.

use std::time::Duration;

use futures::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::{Answer, Api, changed};

async fn at_once(api: &Api, event: &Value, times: usize) -> Vec<Answer> {
    join_all((0..times).map(|_| api.admit(event))).await
}

#[tokio::test]
async fn a_first_admission_answers_the_record() {
    let api = Api::new().await;
    let event = api.event("1");
    let first = api.admit(&event).await;
    assert_eq!(first.status, StatusCode::ACCEPTED);
    assert!(!first.is_replay());
    let record = first.json();
    assert_eq!(record["event_id"], "ev-1");
    assert_eq!(record["state"], "accepted");
    assert_eq!(record["reason"], "admitted");
    assert_eq!(record["channel"], "sms");
    assert_eq!(record["purpose"], "password_reset");
    assert_eq!(record["seller_id"], Value::Null);
    assert_eq!((&record["attempts"], &record["calls"]), (&json!(0), &json!(0)));
    assert_eq!(record["created_at"], crate::support::START);
    assert_eq!(record["expires_at"], event["expires_at"]);
    assert_eq!(
        (&record["settled"], &record["frozen"], &record["next"]),
        (&json!(false), &json!(false), &json!("wait"))
    );
    assert_eq!(api.get(&format!("/v1/events/{}", first.id())).await.json(), record);
    assert_eq!(api.get("/v1/events?event_id=ev-1").await.json(), record);
}

#[tokio::test]
async fn a_hundred_of_the_same_at_once_are_one() {
    let api = Api::new().await;
    let event = api.event("1");
    let answers = at_once(&api, &event, 100).await;
    assert!(answers.iter().all(|answer| answer.status == StatusCode::ACCEPTED));
    let ids: std::collections::BTreeSet<String> = answers.iter().map(Answer::id).collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(answers.iter().filter(|answer| !answer.is_replay()).count(), 1);
    assert_eq!(api.count("records").await, 1);
    assert_eq!(api.count("outbox").await, 1);
    assert_eq!(api.count("admissions").await, 1);
    let found = api.get("/v1/events?event_id=ev-1").await;
    assert_eq!(Some(&found.id()), ids.first());

    let other = changed(&api.event("2"), "idempotency_key", event["idempotency_key"].clone());
    for answer in at_once(&api, &other, 100).await {
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (StatusCode::CONFLICT, "idempotency_conflict")
        );
    }
    let other = changed(&event, "idempotency_key", json!("key-9"));
    for answer in at_once(&api, &other, 100).await {
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (StatusCode::CONFLICT, "event_conflict")
        );
    }
    assert_eq!(api.count("records").await, 1);
    assert_eq!(api.get("/v1/events?event_id=ev-2").await.code(), "notification_not_found");
}

#[tokio::test]
async fn a_hundred_events_fighting_for_one_key_are_one_and_never_a_5xx() {
    let api = Api::new().await;
    let events: Vec<Value> = (0..100)
        .map(|n| changed(&api.event(&n.to_string()), "idempotency_key", json!("key-same")))
        .collect();
    let answers = join_all(events.iter().map(|event| api.admit(event))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == StatusCode::ACCEPTED).count(), 1);
    for answer in answers.iter().filter(|answer| answer.status != StatusCode::ACCEPTED) {
        assert_eq!(answer.code(), "idempotency_conflict");
    }
    assert_eq!(api.count("records").await, 1);
}

#[tokio::test]
async fn key_and_event_answer_by_the_table() {
    let api = Api::new().await;
    let (first, second) = (api.event("1"), api.event("2"));
    let ids = [api.admit(&first).await.id(), api.admit(&second).await.id()];
    let mixed = |key: &str, event: &str| {
        changed(&changed(&first, "idempotency_key", json!(key)), "event_id", json!(event))
    };
    let table = [
        ("key-1", "ev-1", 202, ""),
        ("key-1", "ev-new", 409, "idempotency_conflict"),
        ("key-new", "ev-1", 409, "event_conflict"),
        ("key-1", "ev-2", 409, "idempotency_conflict"),
        ("key-2", "ev-1", 409, "idempotency_conflict"),
        ("key-2", "ev-2", 409, "payload_mismatch"),
        ("key-3", "ev-3", 202, ""),
    ];
    for (key, event, status, code) in table {
        let answer = api.admit(&mixed(key, event)).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (status, code),
            "{key} {event}"
        );
    }
    assert_eq!(api.admit(&first).await.id(), ids[0]);
    assert_eq!(api.admit(&second).await.id(), ids[1]);
    // A refused admission binds neither its key nor its event.
    let late =
        changed(&changed(&first, "idempotency_key", json!("key-new")), "event_id", json!("ev-new"));
    assert_eq!(api.admit(&late).await.status, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn another_content_under_the_same_key_and_event_is_a_mismatch() {
    let api = Api::new().await;
    let full = json!({
        "event_id": "ev-1", "idempotency_key": "key-1", "destination_ref": "dest-1", "reset_ref": "rst-1",
        "expires_at": "2026-09-21T14:30:00Z", "channel": "email", "seller_id": "seller_1042",
        "purpose": "password_reset", "request_window": "w+1", "token_hash": "ab".repeat(32),
    });
    let id = api.admit(&full).await.id();
    let other: &[(&str, Value)] = &[
        ("destination_ref", json!("dest-2")),
        ("reset_ref", json!("rst-2")),
        ("expires_at", json!("2026-09-21T14:30:00.000001Z")),
        ("channel", json!("sms")),
        ("channel", Value::Null),
        ("seller_id", json!("seller_1043")),
        ("purpose", json!("other")),
        ("request_window", json!("w+2")),
        ("request_window", Value::Null),
        ("token_hash", json!("cd".repeat(32))),
        ("token_hash", Value::Null),
    ];
    for (field, value) in other {
        let answer = api.admit(&changed(&full, field, value.clone())).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (409, "payload_mismatch"),
            "{field} {value}"
        );
    }
    assert_eq!(api.admit(&full).await.id(), id);
    assert_eq!(api.get(&format!("/v1/events/{id}")).await.json()["channel"], "email");
}

#[tokio::test]
async fn spelling_is_no_content() {
    let api = Api::new().await;
    let id = api.admit_raw(
        r#"{"event_id":"ev-1","idempotency_key":"key-1","destination_ref":"dest-1","reset_ref":"rst-1","expires_at":"2026-09-21T14:30:00.5Z"}"#,
    ).await.id();
    for same in [
        // Order and white space.
        "\n{ \"expires_at\" : \"2026-09-21T14:30:00.5Z\",\t\"reset_ref\":\"rst-1\",\r\n\"destination_ref\":\"dest-1\",\"idempotency_key\":\"key-1\",\"event_id\":\"ev-1\" } ",
        // The same instant otherwise.
        r#"{"event_id":"ev-1","idempotency_key":"key-1","destination_ref":"dest-1","reset_ref":"rst-1","expires_at":"2026-09-21T16:30:00.500+02:00"}"#,
        r#"{"event_id":"ev-1","idempotency_key":"key-1","destination_ref":"dest-1","reset_ref":"rst-1","expires_at":"2026-09-21t09:30:00.500000-05:00"}"#,
        // Escapes.
        r#"{"event\u005fid":"ev\u002d1","idempotency_key":"key-1","destination_ref":"dest-1","reset_ref":"rst-1","expires_at":"2026-09-21T14:30:00.5Z"}"#,
        // Defaults spelled out.
        r#"{"event_id":"ev-1","idempotency_key":"key-1","destination_ref":"dest-1","reset_ref":"rst-1","expires_at":"2026-09-21T14:30:00.5Z","channel":"sms","purpose":"password_reset"}"#,
    ] {
        let answer = api.admit_raw(same).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{same}: {}", answer.text);
        assert!(answer.is_replay());
        assert_eq!(answer.id(), id);
    }
}

#[tokio::test]
async fn every_rule_of_a_field_is_kept_and_no_value_comes_back() {
    let api = Api::new().await;
    let long = "x".repeat(129);
    let table: Vec<(&str, Value, &str)> = vec![
        ("event_id", json!(""), "empty"),
        ("event_id", json!("   "), "alphabet"),
        ("event_id", json!("secret value"), "alphabet"),
        ("event_id", json!("line\u{1}break"), "alphabet"),
        ("event_id", json!("ид-1"), "alphabet"),
        ("event_id", json!(long), "too_long"),
        ("event_id", json!("Undefined"), "placeholder"),
        ("event_id", json!(748_291), "wrong_type"),
        ("idempotency_key", json!("unknown"), "placeholder"),
        ("idempotency_key", json!("00000000-0000-0000-0000-000000000000"), "placeholder"),
        ("idempotency_key", json!(true), "wrong_type"),
        ("destination_ref", json!("+15550100001"), "raw_destination"),
        ("destination_ref", json!("5550100001"), "raw_destination"),
        ("destination_ref", json!("user@example.com"), "raw_destination"),
        ("destination_ref", json!({ "phone": "+15550100001" }), "wrong_type"),
        ("reset_ref", json!("https://example.com/reset?token=t0k3n"), "alphabet"),
        ("reset_ref", json!(["rst-list"]), "wrong_type"),
        ("expires_at", json!("2031-01-01T00:00:00"), "not_rfc3339"),
        ("expires_at", json!("in five minutes"), "not_rfc3339"),
        ("expires_at", json!(1_790_000_000), "wrong_type"),
        ("expires_at", json!("2026-09-21T14:13:20Z"), "past"),
        ("expires_at", json!("2020-02-02T02:02:02Z"), "past"),
        ("expires_at", json!("2026-09-21T14:13:35.123455Z"), "too_soon"),
        ("expires_at", json!("2026-09-21T15:13:20.123457Z"), "too_far"),
        ("channel", json!("pigeon"), "unknown_channel"),
        ("seller_id", json!("seller@example.com"), "raw_destination"),
        ("seller_id", json!("se ller"), "alphabet"),
        ("purpose", json!("pass word"), "alphabet"),
        ("request_window", json!("window-1"), "needs_seller_id"),
        ("token_hash", json!("t0k3n-in-the-clear"), "not_a_token_hash"),
        ("token_hash", json!("AB".repeat(32)), "not_a_token_hash"),
        ("user_email", json!("user@example.com"), "unknown_field"),
    ];
    for (field, value, code) in table {
        let answer = api.admit(&changed(&api.event("1"), field, value.clone())).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (400, "invalid_event"),
            "{field} {value}"
        );
        assert_eq!(answer.errors(), format!("{field}:{code}"), "{value}");
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        assert!(
            shown.is_empty() || !answer.text.contains(shown.trim()) || shown.trim().is_empty(),
            "{shown}: {}",
            answer.text
        );
    }
    for field in ["event_id", "idempotency_key", "destination_ref", "reset_ref", "expires_at"] {
        let answer = api.admit(&changed(&api.event("1"), field, Value::Null)).await;
        assert_eq!((answer.status.as_u16(), answer.errors()), (400, format!("{field}:missing")));
    }
    // A name may be somebody's data too.
    let answer = api.admit(&changed(&api.event("1"), "user@example.com", json!(1))).await;
    assert_eq!(answer.errors(), "?:unknown_field");
    assert!(!answer.text.contains("example.com"));
    assert_eq!(api.count("records").await, 0);
    assert_eq!(api.count("facts WHERE id IS NOT NULL").await, 0);
}

#[tokio::test]
async fn the_limits_of_a_lifetime_are_inclusive() {
    let api = Api::new().await;
    for (name, at) in [("1", "2026-09-21T14:13:35.123456Z"), ("2", "2026-09-21T15:13:20.123456Z")] {
        let answer = api.admit(&changed(&api.event(name), "expires_at", json!(at))).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{at}: {}", answer.text);
    }
}

#[tokio::test]
async fn bytes_that_are_no_strict_object_are_refused() {
    let api = Api::new().await;
    let good = serde_json::to_string(&api.event("1")).unwrap();
    let deep = format!(
        "{},\"x\":{}{}}}",
        good.trim_end_matches('}'),
        "[".repeat(4_000),
        "]".repeat(4_000)
    );
    let mut bad_utf8 = good.clone().into_bytes();
    let at = good.find("dest-1").unwrap();
    bad_utf8[at] = 0xff;
    let table: Vec<(Vec<u8>, &str)> = vec![
        (Vec::new(), "body:not_json"),
        (b"null".to_vec(), "body:not_an_object"),
        (format!("[{good}]").into_bytes(), "body:not_an_object"),
        (format!("{good}{good}").into_bytes(), "body:not_json"),
        (format!("{good}x").into_bytes(), "body:not_json"),
        (format!("{good}\0").into_bytes(), "body:not_json"),
        (format!("\u{feff}{good}").into_bytes(), "body:not_json"),
        (good.replace("\"dest-1\"", "NaN").into_bytes(), "body:not_json"),
        (good.replace("\"dest-1\"", "Infinity").into_bytes(), "body:not_json"),
        (good.replace("\"dest-1\"", "1e999").into_bytes(), "body:not_json"),
        (bad_utf8, "body:not_utf8"),
        (deep.into_bytes(), "x:unknown_field"),
        (good.replacen('{', "{\"event_id\":\"ev-0\",", 1).into_bytes(), "event_id:duplicate_field"),
        (
            good.replacen('{', "{\"event\\u005fid\":\"ev-1\",", 1).into_bytes(),
            "event_id:duplicate_field",
        ),
        (good.replacen('{', "{\"x\":{\"a\":1,\"a\":2},", 1).into_bytes(), "x:unknown_field"),
    ];
    for (bytes, errors) in table {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
        let answer = api.admit_raw(bytes).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (400, "invalid_event"),
            "{shown}"
        );
        assert_eq!(answer.errors(), errors, "{shown}");
    }
    let padded = |length: usize| format!("{good}{}", " ".repeat(length - good.len()));
    assert_eq!(api.admit_raw(padded(16 * 1024 + 1)).await.code(), "event_too_large");
    assert_eq!(api.admit_raw(padded(16 * 1024)).await.status, StatusCode::ACCEPTED);
    assert_eq!(api.count("records").await, 1);
}

fn windowed(api: &Api, name: &str) -> Value {
    let mut event = changed(&api.event(name), "seller_id", json!("seller_1042"));
    event["request_window"] = json!("2026-09-21T14:10+15m");
    event["destination_ref"] = json!("dest-1");
    event
}

#[tokio::test]
async fn a_later_request_of_the_same_window_and_token_converges() {
    let api = Api::new().await;
    let with_token = |name: &str, token: &str| {
        changed(&windowed(&api, name), "token_hash", json!(token.repeat(32)))
    };
    let first = api.admit(&with_token("1", "ab")).await;
    assert!(!first.is_replay());
    let second = api.admit(&with_token("2", "ab")).await;
    assert_eq!(
        (second.status, second.id(), second.is_replay()),
        (StatusCode::ACCEPTED, first.id(), true)
    );
    assert_eq!(second.json()["event_id"], "ev-1");
    // Its key and event are aliases now, unique like the first ones.
    assert_eq!(api.get("/v1/events?event_id=ev-2").await.id(), first.id());
    assert_eq!(api.admit(&with_token("2", "ab")).await.id(), first.id());
    let other = changed(&with_token("3", "ab"), "idempotency_key", json!("key-2"));
    assert_eq!(api.admit(&other).await.code(), "idempotency_conflict");
    let other = changed(&with_token("3", "ab"), "event_id", json!("ev-2"));
    assert_eq!(api.admit(&other).await.code(), "event_conflict");
    let other = changed(&with_token("2", "ab"), "reset_ref", json!("rst-9"));
    assert_eq!(api.admit(&other).await.code(), "payload_mismatch");

    // The same window with something else in it.
    for (field, value) in [
        ("token_hash", json!("cd".repeat(32))),
        ("token_hash", Value::Null),
        ("channel", json!("email")),
        ("destination_ref", json!("dest-2")),
    ] {
        let answer = api.admit(&changed(&with_token("4", "ab"), field, value)).await;
        assert_eq!(answer.code(), "request_window_conflict", "{field}");
    }
    // The token alone, outside its window.
    let outside = changed(&with_token("5", "ab"), "request_window", Value::Null);
    assert_eq!(api.admit(&outside).await.code(), "token_conflict");
    let elsewhere = changed(&with_token("5", "ab"), "seller_id", json!("seller_7"));
    assert_eq!(api.admit(&elsewhere).await.code(), "token_conflict");
    // Another purpose is another window.
    let purpose = changed(&with_token("6", "ef"), "purpose", json!("other"));
    assert_eq!(api.admit(&purpose).await.status, StatusCode::ACCEPTED);
    assert_eq!(api.count("records").await, 2);
    assert!(api.kinds(&first.id()).await.contains(&"window_converged".to_owned()));
}

#[tokio::test]
async fn without_tokens_the_link_decides() {
    let api = Api::new().await;
    let with_link =
        |name: &str, link: &str| changed(&windowed(&api, name), "reset_ref", json!(link));
    let first = api.admit(&with_link("1", "rst-1")).await.id();
    assert_eq!(api.admit(&with_link("2", "rst-1")).await.id(), first);
    assert_eq!(api.admit(&with_link("3", "rst-2")).await.code(), "request_window_conflict");
}

#[tokio::test]
async fn what_is_known_is_answered_after_its_time() {
    let api = Api::new().await;
    let event = api.event("1");
    let id = api.admit(&event).await.id();
    api.clock.advance(Duration::from_secs(86_400));
    let again = api.admit(&event).await;
    assert_eq!((again.status, again.id()), (StatusCode::ACCEPTED, id));
    assert_eq!(
        api.admit(&changed(&event, "reset_ref", json!("rst-2"))).await.code(),
        "payload_mismatch"
    );
    let late = changed(&event, "event_id", json!("ev-2"));
    assert_eq!(api.admit(&late).await.code(), "idempotency_conflict");
    // Only what is new is judged by its time.
    assert_eq!(
        api.admit(&changed(&late, "idempotency_key", json!("key-2"))).await.errors(),
        "expires_at:past"
    );
}

#[tokio::test]
async fn a_purged_event_is_gone() {
    let api = Api::new().await;
    let event = api.event("1");
    api.admit(&event).await;
    sqlx::query("UPDATE admissions SET purged_at = 1").execute(&api.db).await.unwrap();
    let answer = api.admit(&event).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (410, "event_purged"));
    assert_eq!(
        api.admit(&changed(&event, "reset_ref", json!("rst-2"))).await.code(),
        "payload_mismatch"
    );
    assert_eq!(api.count("outbox").await, 1);
}

#[tokio::test]
async fn the_first_twenty_replays_and_conflicts_are_facts() {
    let api = Api::new().await;
    let event = api.event("1");
    let id = api.admit(&event).await.id();
    for _ in 0..25 {
        assert!(api.admit(&event).await.is_replay());
        api.admit(&changed(&event, "reset_ref", json!("rst-2"))).await;
    }
    let count = |kinds: &[String], kind: &str| kinds.iter().filter(|each| *each == kind).count();
    let kinds = api.kinds(&id).await;
    assert_eq!(kinds[0], "transition");
    assert_eq!(count(&kinds, "admission_replay"), 20);
    assert_eq!(count(&kinds, "admission_conflict"), 20);
    api.clock.advance(Duration::from_secs(60));
    api.admit(&event).await;
    let timeline = api.get(&format!("/v1/events/{id}/timeline")).await.json();
    let last = timeline["facts"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["kind"], &last["detail"]["count"]), (&json!("admission_replay"), &json!(6)));
    assert_eq!(last["actor"], format!("client:{}", api.client_id));
    let seqs: Vec<u64> = timeline["facts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fact| fact["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_closed_channel_says_so() {
    let closed = [("email = [\"fake\"]", "email = []")];
    let api = Api::with(&closed, std::collections::BTreeMap::new()).await;
    let event = changed(&api.event("1"), "channel", json!("email"));
    assert_eq!(api.admit(&event).await.errors(), "channel:no_route");
    let event = changed(&event, "channel", json!("sms"));
    assert_eq!(api.admit(&event).await.status, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn a_database_that_is_away_leaves_it_open_and_says_what_to_do() {
    let api = Api::new().await;
    api.store.close().await;
    let answer = api.admit(&api.event("1")).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (503, "admission_unavailable"));
    assert!(answer.headers.contains_key("retry-after"));
    let answer = api.get("/v1/events?event_id=ev-1").await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (503, "service_unavailable"));
    assert!(answer.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn nothing_of_the_token_or_the_key_is_kept() {
    let api = Api::new().await;
    let token_hash = "5f".repeat(32);
    let event = changed(&api.event("1"), "token_hash", json!(token_hash));
    let id = api.admit(&event).await.id();
    let timeline = api.get(&format!("/v1/events/{id}/timeline")).await;
    let token_id = timeline.json()["facts"][0]["token_id"].as_str().unwrap().to_owned();
    assert_eq!(token_id, api.env.keys.token_id(&token_hash));
    assert!(!timeline.text.contains(&token_hash));
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&api.db).await.unwrap();
    let row: String = sqlx::query_scalar("SELECT group_concat(quote(secret_hash)) FROM clients")
        .fetch_one(&api.db)
        .await
        .unwrap();
    let secret = api.key.rsplit('_').next().unwrap();
    assert!(!row.contains(secret));
    for table in ["records", "facts", "admissions", "outbox"] {
        let sql = format!("SELECT * FROM {table}");
        for row in sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_all(&api.db).await.unwrap() {
            use sqlx::{Column as _, Row as _};
            for column in row.columns() {
                if let Ok(text) = row.try_get::<String, _>(column.ordinal()) {
                    assert!(!text.contains(&token_hash), "{table}.{}", column.name());
                    assert!(!text.contains(secret), "{table}.{}", column.name());
                }
            }
        }
    }
}

#[tokio::test]
async fn a_limit_answers_429_with_a_time_and_binds_no_key() {
    let limits = ("[providers.fake]", "[limits]\nseller = [\"1 per 1m\"]\n[providers.fake]");
    let api = Api::with(&[limits], std::collections::BTreeMap::new()).await;
    let of_seller = |name: &str| changed(&api.event(name), "seller_id", json!("seller_7"));
    assert_eq!(api.admit(&of_seller("1")).await.status, StatusCode::ACCEPTED);
    let second = of_seller("2");
    let answer = api.admit(&second).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (429, "rate_limited"));
    let wait: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((60..=61).contains(&wait), "{wait}");
    // A repeat of the first is no new event, and the same answer hides whether anybody is known.
    assert!(api.admit(&of_seller("1")).await.is_replay());
    assert_eq!(api.count("records").await, 1);
    api.clock.advance(std::time::Duration::from_secs(wait));
    let answer = api.admit(&second).await;
    assert_eq!((answer.status, answer.is_replay()), (StatusCode::ACCEPTED, false));
}

#[tokio::test]
async fn an_earlier_unknown_makes_the_next_event_wait_where_that_is_configured() {
    let policy = ("[providers.fake]", "[policy]\nafter_unknown = \"settled\"\n[providers.fake]");
    let api = Api::with(&[policy], std::collections::BTreeMap::new()).await;
    let of_seller = |name: &str| changed(&api.event(name), "seller_id", json!("seller_7"));
    let id = api.admit(&of_seller("1")).await.id();
    crate::operations::lose_answer(&api).await;
    let answer = api.admit(&of_seller("2")).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (429, "earlier_unresolved"));
    assert!(answer.headers.contains_key("retry-after"));
    let kinds = api.kinds(&id).await;
    assert_eq!(kinds.last().map(String::as_str), Some("later_request"));
    let record = api.get(&format!("/v1/events/{id}")).await.json();
    assert_eq!((record["next"].as_str(), record["retry_at"].is_string()), (Some("wait"), true));
}
