//! A backup is restored: nothing that was sent after it is sent again.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::kit::{App, Folder, Setting, Simulator, event};
use super::shared::database;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts");

/// Runs one of the scripts as an operator does.
fn script(name: &str, backup: &Path, app: &App, database: &str) -> String {
    let done = Command::new("bash")
        .arg(format!("{SCRIPTS}/{name}.sh"))
        .arg(backup)
        .arg("--config")
        .arg(app.config())
        .env("SENDONCE", env!("CARGO_BIN_EXE_sendonce"))
        .env("DATABASE_URL", database)
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{name}: {said}");
    String::from_utf8_lossy(&done.stdout).into_owned() + &said
}

fn post(app: &App, body: &Value) -> String {
    let answer = app.call("POST", "/v1/events", Some(body));
    assert_eq!((answer.status, answer.is_replayed()), (202, false), "{answer:?}");
    answer.json()["id"].as_str().unwrap_or_default().to_owned()
}

fn nothing_is_sent_twice(mut app: App, simulator: &Simulator, database: &str) {
    let folder = Folder::new();
    let backup: PathBuf = folder.0.join("backup");
    app.freeze("all");
    // In the backup: one that is sent after it, and one that never is.
    let waiting = post(&app, &event(600));
    let mut other = event(600);
    other["channel"] = json!("email");
    let unsent = post(&app, &other);
    app.freeze("channel:email");
    script("backup", &backup, &app, database);
    app.unfreeze("all");
    app.until(&waiting, &["sent", "delivered"]);
    // Not in the backup, and sent.
    let lost = event(600);
    let first = post(&app, &lost);
    app.until(&first, &["sent", "delivered"]);
    assert_eq!(simulator.messages(), 2);
    app.process.terminate();

    let said = script("restore", &backup, &app, database);
    assert!(said.contains("epoch 2 is open"), "{said}");
    app.start_again();
    assert_eq!(app.call("GET", &format!("/v1/events/{first}"), None).status, 404, "was lost");
    let retried = post(&app, &lost);
    let fresh = post(&app, &event(600));
    app.unfreeze("all");
    app.unfreeze("channel:email");
    for id in [&waiting, &retried] {
        let record = app.until(id, &["sent", "delivered"]);
        assert_eq!(record["calls"], 0, "its one call was made before");
        let story = app.story(id);
        assert!(story.contains(&"restored".to_owned()), "{story:?}");
        assert!(!story.contains(&"provider_accepted".to_owned()), "{story:?}");
    }
    for id in [&unsent, &fresh] {
        let record = app.until(id, &["sent", "delivered"]);
        assert_eq!((record["calls"].as_u64(), record["attempts"].as_u64()), (Some(1), Some(1)));
        let story = app.story(id);
        assert!(story.contains(&"reconciled_absent".to_owned()), "{story:?}");
    }
    assert_eq!((simulator.calls(), simulator.messages()), (4, 4));
}

#[test]
fn a_restored_file_sends_nothing_twice() {
    let simulator = Simulator::start();
    simulator.script(&[json!("accept")]);
    let app = App::start(Setting::at(simulator.port));
    let file = app.config().with_file_name("data").join("sendonce.db");
    let url = format!("sqlite://{}", file.display());
    nothing_is_sent_twice(app, &simulator, &url);
}

#[test]
fn a_restored_postgresql_sends_nothing_twice() {
    let Some(database) = database() else { return };
    let simulator = Simulator::start();
    simulator.script(&[json!("accept")]);
    let setting = Setting { database: Some(database.clone()), ..Setting::at(simulator.port) };
    let app = App::start(setting);
    nothing_is_sent_twice(app, &simulator, &database);
}

#[test]
fn a_restore_is_not_completed_beside_a_process_that_sends() {
    let simulator = Simulator::start();
    let app = App::start(Setting::at(simulator.port));
    let args = ["restore-complete", "--lost-from", "2026-01-01T00:00:00Z", "--config"];
    let config = app.config().display().to_string();
    let args: Vec<&str> = args.into_iter().chain([config.as_str()]).collect();
    let url =
        format!("sqlite://{}", app.config().with_file_name("data").join("sendonce.db").display());
    let folder = Folder::new();
    let (code, said) = super::kit::run_with(&folder.0, &url, &args);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("a process serves this database"), "{said}");
    app.freeze("all");
    let (code, said) = super::kit::run_with(&folder.0, &url, &args);
    assert_eq!(code, Some(0), "{said}");
}
