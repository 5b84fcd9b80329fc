//! The first promises, shown by the real binary against a provider on a real socket.

mod canary;
mod cluster;
mod doctor;
mod kit;
mod launch;
mod loss;
mod restore;
mod retention;
mod shared;
mod versions;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use kit::{App, Setting, Simulator, event, request, wait_for};
use serde_json::{Value, json};

fn says(words: &[&str]) -> Vec<Value> {
    words.iter().map(|word| json!(word)).collect()
}

/// A server and a provider that behaves so, call by call.
fn with(behaviours: &[&str]) -> (Simulator, App) {
    let simulator = Simulator::start();
    simulator.script(&says(behaviours));
    let app = App::start(Setting::at(simulator.port));
    (simulator, app)
}

#[test]
fn a_hundred_admissions_with_one_key_are_one_record() {
    let (simulator, app) = with(&["accept"]);
    let app = Arc::new(app);
    let body = event(600);
    let posts = |body: &Value| {
        let threads: Vec<_> = (0..100)
            .map(|_| {
                let (app, body) = (Arc::clone(&app), body.clone());
                thread::spawn(move || app.call("POST", "/v1/events", Some(&body)))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("answers")).collect::<Vec<_>>()
    };
    let answers = posts(&body);
    assert!(answers.iter().all(|answer| answer.status == 202), "{answers:?}");
    let mut ids: Vec<String> = answers.iter().map(|a| a.json()["id"].to_string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 1);
    assert_eq!(answers.iter().filter(|answer| !answer.is_replayed()).count(), 1);

    let mut other = event(600);
    other["idempotency_key"] = body["idempotency_key"].clone();
    let answers = posts(&other);
    assert!(answers.iter().all(|a| a.status == 409 && a.code() == "idempotency_conflict"));
    let none = app.call(
        "GET",
        &format!("/v1/events?event_id={}", other["event_id"].as_str().unwrap_or("")),
        None,
    );
    assert_eq!(none.status, 404, "nothing is attached");

    let id = answers_id(&app, &body);
    let record = app.until(&id, &["sent", "delivered"]);
    assert_eq!(record["calls"], 1);
    assert_eq!(simulator.calls(), 1);
}

fn answers_id(app: &App, body: &Value) -> String {
    app.call("POST", "/v1/events", Some(body)).json()["id"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn conflicts_are_told_apart_and_the_same_content_is_a_replay() {
    let (_simulator, app) = with(&["accept"]);
    let body = event(600);
    assert_eq!(app.call("POST", "/v1/events", Some(&body)).status, 202);
    let mut other_key = body.clone();
    other_key["idempotency_key"] = json!("another-key");
    let answer = app.call("POST", "/v1/events", Some(&other_key));
    assert_eq!((answer.status, answer.code().as_str()), (409, "event_conflict"));
    let mut changed = body.clone();
    changed["reset_ref"] = json!("another");
    let answer = app.call("POST", "/v1/events", Some(&changed));
    assert_eq!((answer.status, answer.code().as_str()), (409, "payload_mismatch"));
    // Other key order, white space and offset: the same content.
    let expires = body["expires_at"].as_str().unwrap_or_default().replace('Z', "+00:00");
    let text = format!(
        "{{ \"reset_ref\" : {}, \"expires_at\":\"{expires}\",\n\"destination_ref\":{},\"idempotency_key\":{}, \"event_id\":{} }}",
        body["reset_ref"], body["destination_ref"], body["idempotency_key"], body["event_id"]
    );
    let authorization = format!("Bearer {}", app.key);
    let headers = [("authorization", authorization.as_str()), ("content-type", "application/json")];
    let answer = request(app.port, "POST", "/v1/events", &headers, text.as_bytes());
    assert_eq!((answer.status, answer.is_replayed()), (202, true), "{answer:?}");
}

#[test]
fn a_timeout_after_acceptance_is_one_call_and_ends_as_sent() {
    for behaviour in ["accept_then_hang", "accept_then_reset", "accept_then_500"] {
        let (simulator, app) = with(&[behaviour]);
        let id = id_of(&app.admit(600));
        let record = app.until(&id, &["sent", "delivered"]);
        assert_eq!((record["calls"].as_u64(), simulator.calls()), (Some(1), 1), "{behaviour}");
        let story = app.story(&id);
        assert!(
            story.contains(&"reconciled_found".to_owned())
                || story.contains(&"reconciled_delivered".to_owned()),
            "{story:?}"
        );
    }
}

fn id_of(record: &Value) -> String {
    record["id"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_timeout_before_acceptance_is_proven_absent_and_sent_once_more() {
    for behaviour in ["hang_before_accept", "reset_before_accept"] {
        let (simulator, app) = with(&[behaviour, "accept"]);
        let id = id_of(&app.admit(600));
        let record = app.until(&id, &["sent", "delivered"]);
        assert_eq!(record["calls"], 2, "{behaviour}");
        assert_eq!((simulator.calls(), simulator.messages()), (2, 1));
        assert!(app.story(&id).contains(&"reconciled_absent".to_owned()));
    }
}

#[test]
fn what_cannot_be_read_stays_unknown_until_it_expires() {
    let simulator = Simulator::start();
    simulator.script(&says(&["accept_then_hang"]));
    let setting = Setting { provider: "lookup = false".into(), ..Setting::at(simulator.port) };
    let app = App::start(setting);
    let id = id_of(&app.admit(6));
    app.until(&id, &["dispatch_unknown"]);
    let record = app.until(&id, &["expired"]);
    assert_eq!(
        (record["reason"].as_str(), record["calls"].as_u64()),
        (Some("expired_unresolved"), Some(1))
    );
    assert_eq!(simulator.calls(), 1);
}

#[test]
fn refusals_and_limits_are_told_apart() {
    let (simulator, app) = with(&["refuse_transiently", "rate_limit", "accept"]);
    let record = app.until(&id_of(&app.admit(600)), &["sent", "delivered"]);
    assert_eq!((record["calls"].as_u64(), simulator.messages()), (Some(3), 1));

    let (simulator, app) = with(&["refuse_permanently"]);
    let record = app.until(&id_of(&app.admit(600)), &["failed_final"]);
    assert_eq!(record["reason"], "refused_permanently");
    assert_eq!((record["next"].as_str(), simulator.calls()), (Some("new_request"), 1));
}

#[test]
fn after_a_freeze_is_answered_no_call_starts() {
    let (simulator, app) = with(&["accept"]);
    let frozen = app.freeze("all");
    assert_eq!(frozen["in_flight"], 0);
    let short = id_of(&app.admit(5));
    let long = id_of(&app.admit(600));
    assert_eq!(app.record(&long)["frozen"], true);
    let record = app.until(&short, &["expired"]);
    assert_eq!(record["reason"], "expired_while_frozen");
    assert_eq!(simulator.calls(), 0);
    app.unfreeze("all");
    let record = app.until(&long, &["sent", "delivered"]);
    assert_eq!((record["calls"].as_u64(), simulator.calls()), (Some(1), 1));
}

#[test]
fn eight_workers_make_two_hundred_calls_for_two_hundred_events() {
    let (simulator, app) = with(&["accept"]);
    let ids: Vec<String> = (0..200).map(|_| id_of(&app.admit(600))).collect();
    for id in &ids {
        app.until(id, &["sent", "delivered"]);
    }
    assert_eq!((simulator.calls(), simulator.messages()), (200, 200));
}

#[test]
fn what_was_committed_and_not_yet_published_is_sent_once_after_a_crash() {
    let simulator = Simulator::start();
    simulator.script(&says(&["accept"]));
    // Only the API runs: the commit is there, and nobody has been told.
    let setting = Setting { roles: Some("api"), ..Setting::at(simulator.port) };
    let mut app = App::start(setting);
    let ids: Vec<String> = (0..20).map(|_| id_of(&app.admit(600))).collect();
    app.process.kill();
    assert_eq!(simulator.calls(), 0);
    app.start_again();
    for id in &ids {
        app.until(id, &["sent", "delivered"]);
    }
    assert_eq!((simulator.calls(), simulator.messages()), (20, 20));
}

#[test]
fn a_crash_within_a_call_is_reconciled_and_not_sent_again() {
    let (simulator, mut app) = with(&["accept_then_hang"]);
    let id = id_of(&app.admit(600));
    wait_for("the call", || (simulator.calls() == 1).then_some(()));
    app.process.kill();
    app.start_again();
    let record = app.until(&id, &["sent", "delivered"]);
    assert_eq!((record["calls"].as_u64(), simulator.calls()), (Some(1), 1));
    assert!(app.story(&id).contains(&"lease_lost_after_call".to_owned()));
}

#[test]
fn sigterm_lets_a_quick_call_end_and_marks_a_slow_one_unknown() {
    let simulator = Simulator::start();
    simulator.script(&[json!({"slow": {"ms": 600}})]);
    let mut app = App::start(Setting { call_timeout: "2s", ..Setting::at(simulator.port) });
    let id = id_of(&app.admit(600));
    wait_for("the call", || (simulator.calls() == 1).then_some(()));
    app.process.terminate();
    app.start_again();
    let record = app.until(&id, &["sent", "delivered"]);
    assert_eq!((record["calls"].as_u64(), simulator.calls()), (Some(1), 1));
    assert!(app.story(&id).contains(&"provider_accepted".to_owned()), "{:?}", app.story(&id));

    let simulator = Simulator::start();
    simulator.script(&says(&["accept_then_hang"]));
    let setting = Setting { call_timeout: "2s", grace: "200ms", ..Setting::at(simulator.port) };
    let mut app = App::start(setting);
    let id = id_of(&app.admit(600));
    wait_for("the call", || (simulator.calls() == 1).then_some(()));
    app.process.terminate();
    app.start_again();
    let record = app.until(&id, &["sent", "delivered"]);
    assert_eq!((record["calls"].as_u64(), simulator.calls()), (Some(1), 1));
    assert!(app.story(&id).contains(&"shutdown_during_call".to_owned()), "{:?}", app.story(&id));
}

#[test]
fn evidence_during_the_back_off_withdraws_the_proof() {
    let simulator = Simulator::start();
    simulator.script(&says(&["refuse_transiently", "accept"]));
    let app = App::start(Setting { backoff_first: "3s", ..Setting::at(simulator.port) });
    let id = id_of(&app.admit(600));
    wait_for("the refusal", || (app.record(&id)["reason"] == "transient_refusal").then_some(()));
    let attempt_id = attempt_of(&app, &id);
    assert_eq!(app.callback(&attempt_id, "delivered").status, 200);
    let record = app.until(&id, &["delivered"]);
    assert_eq!(record["reason"], "reconciled_delivered");
    sleep(Duration::from_secs(4));
    assert_eq!((app.record(&id)["calls"].as_u64(), simulator.calls()), (Some(1), 1));
}

fn attempt_of(app: &App, id: &str) -> String {
    let facts = app.facts(id);
    let call = facts.iter().find(|fact| fact["kind"] == "call");
    call.and_then(|fact| fact["attempt_id"].as_str()).unwrap_or_default().to_owned()
}

#[test]
fn a_callback_before_the_answer_is_kept_and_gives_one_outcome() {
    let simulator = Simulator::start();
    simulator.script(&[json!({"slow": {"ms": 700}})]);
    let app = App::start(Setting { call_timeout: "2s", ..Setting::at(simulator.port) });
    let id = id_of(&app.admit(600));
    wait_for("the call", || (!attempt_of(&app, &id).is_empty()).then_some(()));
    assert_eq!(app.callback(&attempt_of(&app, &id), "delivered").status, 200);
    let record = app.until(&id, &["delivered"]);
    assert_eq!((record["calls"].as_u64(), simulator.calls()), (Some(1), 1));
    let story = app.story(&id);
    assert!(
        story.contains(&"callback".to_owned()) && story.contains(&"provider_accepted".to_owned()),
        "{story:?}"
    );
}

#[test]
fn callbacks_without_the_right_signature_change_nothing() {
    let simulator = Simulator::start();
    simulator.script(&says(&["accept_then_hang"]));
    let app =
        App::start(Setting { provider: "lookup = false".into(), ..Setting::at(simulator.port) });
    let id = id_of(&app.admit(600));
    app.until(&id, &["dispatch_unknown"]);
    let body =
        json!({"attempt_id": attempt_of(&app, &id), "state": "delivered", "at": kit::utc(0)})
            .to_string();
    let answer = request(
        app.port,
        "POST",
        "/webhooks/post",
        &[("sendonce-signature", "t=1,v1=00")],
        body.as_bytes(),
    );
    assert_eq!(answer.status, 401);
    assert_eq!(request(app.port, "POST", "/webhooks/nobody", &[], body.as_bytes()).status, 404);
    assert_eq!(app.record(&id)["state"], "dispatch_unknown");
    assert_eq!(app.callback(&attempt_of(&app, &id), "delivered").status, 200);
    app.until(&id, &["delivered"]);
}

#[test]
fn a_request_whose_head_never_ends_does_not_keep_its_connection() {
    let (_simulator, app) = with(&["accept"]);
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, app.port)).expect("connects");
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n").expect("writes");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("is set");
    let mut answer = Vec::new();
    // Closed, with or without a word; a timeout of this read would be an error of another kind.
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
}

/// A provider that reads each request and then closes without an answer; counts them.
fn closes_after_reading(stop_after: Option<usize>) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut buffer = [0_u8; 4096];
            let mut text = Vec::new();
            while let Ok(n) = stream.read(&mut buffer) {
                text.extend_from_slice(&buffer[..n]);
                if n == 0 || text.ends_with(b"}") {
                    break;
                }
            }
            if text.starts_with(b"POST") {
                let n = count.fetch_add(1, Ordering::SeqCst) + 1;
                if stop_after == Some(n) {
                    // Dropping the listener: from now on connections are refused.
                    return;
                }
            } else {
                let _ = stream.write_all(b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n");
            }
        }
    });
    (port, seen)
}

#[test]
fn a_connection_that_closes_after_the_request_has_seen_exactly_one() {
    let (port, seen) = closes_after_reading(None);
    let app =
        App::start(Setting { provider: "lookup = false\n# root".into(), ..Setting::at(port) });
    let id = id_of(&app.admit(600));
    let record = app.until(&id, &["dispatch_unknown"]);
    assert_eq!(record["reason"], "connection_lost");
    sleep(Duration::from_secs(3));
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

#[test]
fn a_replay_that_meets_a_refused_connection_stays_unknown() {
    let (port, seen) = closes_after_reading(Some(1));
    let provider = "lookup = false\nidempotent = true\nwindow = \"10m\"\n# root".to_owned();
    let app = App::start(Setting { provider, ..Setting::at(port) });
    let id = id_of(&app.admit(30));
    wait_for("a replay", || {
        app.story(&id).contains(&"replay_inconclusive".to_owned()).then_some(())
    });
    let story = app.story(&id);
    assert!(!story.contains(&"not_sent".to_owned()), "{story:?}");
    let record = wait_for("both replays", || {
        let record = app.record(&id);
        (record["calls"] == 3 && record["state"] == "dispatch_unknown").then_some(record)
    });
    assert_eq!((record["attempts"].as_u64(), seen.load(Ordering::SeqCst)), (Some(1), 1));
}

#[test]
fn a_replay_under_the_same_key_resolves_a_lost_answer() {
    let simulator = Simulator::start();
    simulator.script(&says(&["accept_then_hang", "accept"]));
    let provider = "lookup = false\nidempotent = true\nwindow = \"10m\"".to_owned();
    let app = App::start(Setting { provider, ..Setting::at(simulator.port) });
    let id = id_of(&app.admit(600));
    let record = app.until(&id, &["sent", "delivered"]);
    assert_eq!((record["calls"].as_u64(), record["attempts"].as_u64()), (Some(2), Some(1)));
    assert_eq!(simulator.messages(), 1, "the provider names the first message");
}

#[test]
fn a_refused_connection_is_certainly_not_sent() {
    let port = kit::free_port();
    let app = App::start(Setting::at(port));
    let id = id_of(&app.admit(600));
    wait_for("the first try", || app.story(&id).contains(&"not_sent".to_owned()).then_some(()));
    assert_ne!(app.record(&id)["state"], "dispatch_unknown");
}

#[test]
fn a_stopped_worker_that_wakes_past_its_call_by_writes_nothing() {
    use rustix::process::Signal;
    // The provider is slow to accept connections: the worker is stopped right after its marker.
    let (simulator, app) = with(&["hang_before_accept", "accept"]);
    let id = id_of(&app.admit(600));
    wait_for("the call", || (simulator.calls() == 1).then_some(()));
    app.process.signal(Signal::STOP);
    sleep(Duration::from_secs(5));
    app.process.signal(Signal::CONT);
    let record = app.until(&id, &["sent", "delivered"]);
    assert_eq!((record["calls"].as_u64(), simulator.messages()), (Some(2), 1));
}

#[test]
fn the_line_of_command_tells_the_same_story() {
    let (_simulator, app) = with(&["accept"]);
    let id = id_of(&app.admit(600));
    app.until(&id, &["sent", "delivered"]);
    let told = app.cli(&["find", &id]);
    assert!(told.contains("provider_accepted") && told.contains(&id), "{told}");
    let lines: String = (0..5).map(|_| format!("{}\n", event(600))).collect();
    let file = std::env::temp_dir().join(format!("sendonce-lines-{}.ndjson", std::process::id()));
    std::fs::write(&file, &lines).expect("writes");
    let told = app.cli(&["admit", "--file", &file.display().to_string()]);
    assert!(told.contains('5'), "{told}");
    let told = app.cli(&["admit", "--file", &file.display().to_string()]);
    assert!(told.to_lowercase().contains("replay"), "{told}");
    let _ = std::fs::remove_file(&file);
    app.cli(&["freeze", "--scope", "channel:sms", "--reason", "INC-1"]);
    assert!(app.cli(&["freezes"]).contains("channel:sms"));
    assert_eq!(app.call("GET", "/v1/freezes", None).status, 200);
    app.cli(&["unfreeze", "--scope", "channel:sms", "--reason", "over"]);
}
