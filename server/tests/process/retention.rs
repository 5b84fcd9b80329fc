//! The retention of a running server: what is over leaves, and stays sent.

use serde_json::json;

use crate::kit::{App, Setting, Simulator, event, wait_for};

fn purged(database: Option<String>) {
    let simulator = Simulator::start();
    simulator.script(&[json!("accept")]);
    let setting = Setting {
        database,
        poll_for: "0s",
        env: vec![
            ("SENDONCE_RETENTION__EVENTS", "1s".to_owned()),
            ("SENDONCE_RETENTION__RETRY_WINDOW", "1s".to_owned()),
            ("SENDONCE_RETENTION__EVERY", "200ms".to_owned()),
        ],
        ..Setting::at(simulator.port)
    };
    let app = App::start(setting);
    let short = event(6);
    let answer = app.call("POST", "/v1/events", Some(&short));
    assert_eq!(answer.status, 202, "{answer:?}");
    let id = answer.json()["id"].as_str().unwrap_or_default().to_owned();
    app.until(&id, &["sent", "delivered"]);
    let long = app.admit(600)["id"].as_str().unwrap_or_default().to_owned();
    app.until(&long, &["sent", "delivered"]);
    // Until its time is over a retry is a replay; afterwards it is told that it comes too late.
    wait_for("the purge", || {
        let answer = app.call("POST", "/v1/events", Some(&short));
        match answer.status {
            202 => {
                assert!(answer.is_replayed(), "{answer:?}");
                None
            }
            410 => {
                assert_eq!(answer.code(), "event_purged");
                Some(())
            }
            other => panic!("{other}: {answer:?}"),
        }
    });
    assert_eq!(app.call("GET", &format!("/v1/events/{id}"), None).status, 404);
    assert_eq!(app.record(&long)["state"].as_str(), Some("sent"), "not over yet");
    assert_eq!((simulator.calls(), simulator.messages()), (2, 2), "nothing is sent again");
}

#[test]
fn a_purged_event_is_answered_410_and_never_sent_again() {
    purged(None);
    if let Some(url) = crate::shared::database() {
        purged(Some(url));
    }
}
