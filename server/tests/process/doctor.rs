//! `sendonce doctor` on a real installation.

use serde_json::Value;

use super::kit::{App, Setting, Simulator, run_with};
use super::shared::database;

/// Level of each check, and the exit code.
fn examined(app: &App, url: &str) -> (Option<i32>, Vec<(String, String, String)>) {
    let config = app.config();
    let folder = config.parent().expect("a folder");
    let done = std::process::Command::new(env!("CARGO_BIN_EXE_sendonce"))
        .args(["doctor", "--json", "--config", "sendonce.toml"])
        .current_dir(folder)
        .env("DATABASE_URL", url)
        .output()
        .expect("runs");
    let findings: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    let findings = findings.as_array().expect("a list").iter();
    let rows = findings.map(|f| (text(f, "check"), text(f, "level"), text(f, "what")));
    (done.status.code(), rows.collect())
}

fn level<'f>(findings: &'f [(String, String, String)], check: &str) -> &'f str {
    findings.iter().find(|(name, ..)| name == check).map_or("", |(_, level, _)| level)
}

#[test]
fn a_served_file_is_found_healthy_and_a_freeze_is_named() {
    let simulator = Simulator::start();
    let mut app = App::start(Setting::at(simulator.port));
    let file = app.config().with_file_name("data").join("sendonce.db");
    let url = format!("sqlite://{}", file.display());
    let (_, findings) = examined(&app, &url);
    for check in [
        "files.data_dir",
        "keys.rights",
        "keys.match",
        "database.schema",
        "processes.alive",
        "processes.versions",
        "ledger.freezes",
        "ledger.epoch",
        "ledger.duplicates",
        "network.listener",
    ] {
        assert_eq!(level(&findings, check), "good", "{check}: {findings:#?}");
    }
    app.freeze("channel:sms");
    assert_eq!(level(&examined(&app, &url).1, "ledger.freezes"), "warning");
    app.process.terminate();
    let (_, findings) = examined(&app, &url);
    assert_eq!(level(&findings, "network.listener"), "warning");
    // With the key file gone it is said, and no new one is made.
    let keys = app.config().with_file_name("data").join("sendonce.keys");
    std::fs::remove_file(&keys).expect("was there");
    assert_eq!(level(&examined(&app, &url).1, "keys.file"), "warning");
    assert!(!keys.exists());
    let folder = app.config().with_file_name("");
    let (code, said) = run_with(&folder, "sqlite:///nowhere/at/all.db", &["doctor"]);
    assert_eq!(code, Some(0), "nothing is there yet: {said}");
}

#[test]
fn a_postgresql_that_may_lose_commits_is_bad() {
    let Some(database) = database() else { return };
    let simulator = Simulator::start();
    let setting = Setting { database: Some(database.clone()), ..Setting::at(simulator.port) };
    let app = App::start(setting);
    let (code, findings) = examined(&app, &database);
    // The tests' own server has its durability off, for speed.
    assert_eq!(code, Some(1));
    assert_eq!(level(&findings, "database.durability"), "bad", "{findings:#?}");
    for check in ["database.schema", "database.autovacuum", "database.pooler", "database.clock"] {
        assert_eq!(level(&findings, check), "good", "{check}: {findings:#?}");
    }
    let (code, findings) = examined(&app, "postgres://postgres@127.0.0.1:1/none");
    assert_eq!((code, level(&findings, "database.reach")), (Some(1), "bad"));
}
