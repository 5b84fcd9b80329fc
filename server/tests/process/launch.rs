//! The launch trace: one seller asks for recovery, and everything that can go wrong with the answer does.

use serde_json::{Value, json};

use crate::kit::{App, Setting, Simulator, event, wait_for};

fn request_of_seller_1042(window: &str, hash: &str) -> Value {
    let mut body = event(600);
    body["seller_id"] = json!("seller_1042");
    body["request_window"] = json!(window);
    body["token_hash"] = json!(hash);
    body["destination_ref"] = json!("dest-1042");
    body
}

fn id_of(record: &Value) -> String {
    record["id"].as_str().unwrap_or_default().to_owned()
}

/// What the timeline says of the token, in order.
fn token_story(app: &App, id: &str) -> Vec<String> {
    app.facts(id)
        .iter()
        .filter(|fact| fact["kind"] == "token")
        .map(|fact| {
            let answer = fact["detail"]["answer"].as_str().map(|answer| format!("asked:{answer}"));
            answer.unwrap_or_else(|| fact["reason"].as_str().unwrap_or_default().to_owned())
        })
        .collect()
}

#[test]
fn the_launch_trace_one_window_one_token_one_message_and_the_newest_link_works() {
    let simulator = Simulator::start();
    simulator.script(&[json!("accept_then_hang"), json!("accept")]);
    let mut app = App::start(Setting::at(simulator.port));
    app.key = app.client(&["admit", "status", "consume"]);
    let (older, newer) = ("1a".repeat(32), "2b".repeat(32));

    // One window, one token: three clicks are one record.
    let first = request_of_seller_1042("2026-09-21T14:10+00", &older);
    let id = id_of(&app.call("POST", "/v1/events", Some(&first)).json());
    for _ in 0..2 {
        let mut again = request_of_seller_1042("2026-09-21T14:10+00", &older);
        again["reset_ref"] = first["reset_ref"].clone();
        let answer = app.call("POST", "/v1/events", Some(&again));
        assert_eq!((answer.status, answer.is_replayed()), (202, true), "{answer:?}");
        assert_eq!(id_of(&answer.json()), id);
    }
    let mut other = request_of_seller_1042("2026-09-21T14:10+00", &"3c".repeat(32));
    other["reset_ref"] = first["reset_ref"].clone();
    let answer = app.call("POST", "/v1/events", Some(&other));
    assert_eq!((answer.status, answer.code().as_str()), (409, "request_window_conflict"));

    // The answer is lost, the provider is read, nothing is sent again.
    let record = app.until(&id, &["sent", "delivered"]);
    assert_eq!(
        (record["calls"].as_u64(), simulator.calls(), simulator.messages()),
        (Some(1), 1, 1)
    );
    let story = app.story(&id);
    assert!(story.iter().any(|word| word == "timeout"), "{story:?}");
    assert!(story.iter().any(|word| word.starts_with("reconciled_")), "{story:?}");

    // A later window: another record, another link. Until its message goes out the older link works.
    let second = request_of_seller_1042("2026-09-21T14:20+00", &newer);
    let later = id_of(&app.call("POST", "/v1/events", Some(&second)).json());
    assert_ne!(later, id);
    app.until(&later, &["sent", "delivered"]);
    wait_for("the older link's end", || {
        (token_story(&app, &id) == ["token_superseded"]).then_some(())
    });
    assert_eq!(simulator.messages(), 2);

    // The newest works once, the older one does not.
    let consume = |hash: &str| {
        let body = json!({ "token_hash": hash, "consume_id": "recovery-form-1" });
        app.call("POST", "/v1/tokens/consume", Some(&body))
    };
    let refused = consume(&older);
    assert_eq!((refused.status, refused.code().as_str()), (410, "token_superseded"));
    let used = consume(&newer);
    assert_eq!((used.status, used.is_replayed()), (200, false), "{used:?}");
    assert_eq!(used.json()["id"], json!(later));
    assert_eq!(used.json()["seller_id"], "seller_1042");
    let lost = consume(&newer);
    assert_eq!((lost.status, lost.is_replayed()), (200, true));
    assert_eq!(lost.json(), used.json());

    // All of it stands in the retained facts, both ways, without a token or its hash.
    assert_eq!(token_story(&app, &id), ["token_superseded", "asked:token_superseded"]);
    assert_eq!(token_story(&app, &later), ["token_consumed", "asked:repeated"]);
    let facts = app.facts(&id);
    let linked = facts.iter().find(|fact| fact["kind"] == "later_request").expect("linked");
    assert_eq!(linked["detail"]["by"], json!(later));
    let facts = app.facts(&later);
    assert_eq!(facts[0]["detail"]["after"], json!(id));
    let converged = app.story(&id).iter().filter(|word| *word == "window_converged").count();
    assert_eq!(converged, 2);
    for id in [&id, &later] {
        let text = app.call("GET", &format!("/v1/events/{id}/timeline"), None).text;
        assert!(!text.contains(&older) && !text.contains(&newer));
    }
    let (code, token_id, _) = app.try_cli(&["token-id", "--stdin"], &newer);
    assert_eq!(code, Some(0));
    let named = facts.iter().any(|fact| fact["token_id"].as_str() == Some(token_id.trim()));
    assert!(named, "who holds the keys can match the token");
}

#[test]
fn a_number_outside_the_allowed_countries_gets_no_call_and_the_breaker_stops_a_flood() {
    let simulator = Simulator::start();
    simulator.script(&[json!("accept")]);
    let env = vec![("SENDONCE_POLICY__COUNTRIES", "[\"GB\"]".to_owned())];
    let app = App::start(Setting { env, ..Setting::at(simulator.port) });
    // The built-in resolver knows North American numbers only.
    let record = app.until(&id_of(&app.admit(600)), &["failed_final"]);
    assert_eq!(
        (record["reason"].as_str(), record["calls"].as_u64()),
        (Some("policy_country"), Some(0))
    );
    assert_eq!((record["next"].as_str(), simulator.calls()), (Some("new_request"), 0));

    let simulator = Simulator::start();
    simulator.script(&[json!("accept")]);
    let env = vec![("SENDONCE_POLICY__BREAKER__MESSAGES_MAX", "4".to_owned())];
    let app = App::start(Setting { env, ..Setting::at(simulator.port) });
    let ids: Vec<String> = (0..12)
        .map(|n| {
            let mut body = event(600);
            body["destination_ref"] = json!(format!("dest-flood-{n}"));
            id_of(&app.call("POST", "/v1/events", Some(&body)).json())
        })
        .collect();
    let ends: Vec<Value> =
        ids.iter().map(|id| app.until(id, &["sent", "delivered", "failed_final"])).collect();
    let stopped = ends.iter().filter(|record| record["reason"] == "policy_country").count();
    // Most of the country's numbers are of the United States; a few may be a neighbour's.
    assert!(stopped >= 1, "{ends:?}");
    assert_eq!(simulator.calls() + stopped, 12);
}

#[test]
fn the_rehearsal_tells_all_seven_stories_and_its_pack_verifies() {
    let folder = crate::kit::Folder::new();
    let database = format!("sqlite://{}/none.db", folder.0.display());
    let pack = folder.0.join("pack.zip").display().to_string();
    let (code, said) = crate::kit::run_with(&folder.0, &database, &["rehearse", "--out", &pack]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!folder.0.join("none.db").exists(), "the real ledger is not touched");
    let (code, said) = crate::kit::run_with(&folder.0, &database, &["evidence", "verify", &pack]);
    assert_eq!(code, Some(0), "{said}");
}
