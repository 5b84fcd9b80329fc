//! The database goes away: restarted, killed, cut off within a commit, replaced by its standby, reached through a
//! pooler. Admission says that it does not know, everything recovers by itself, and nothing acknowledged is lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::{Address, Cluster, Pooler, url};
use crate::kit::{App, Setting, Simulator, event, request, wait_for};
use crate::shared::{invariants_hold, number};

/// One call in five is accepted and never answered.
fn provider() -> Simulator {
    let simulator = Simulator::start();
    let behaviours: Vec<Value> =
        (0..500).map(|n| json!(if n % 5 == 4 { "accept_then_hang" } else { "accept" })).collect();
    simulator.script(&behaviours);
    simulator
}

fn database(cluster: &Cluster) {
    cluster.run("CREATE DATABASE app");
}

/// Admits this event as a careful caller does: repeats it unchanged until it is answered 202; gives the id and how
/// often the answer was that nobody knows.
fn insist(app: &App, body: &Value) -> (String, usize) {
    let mut unsure = 0;
    let id = wait_for("an admission", || {
        let answer = app.call("POST", "/v1/events", Some(body));
        match answer.status {
            202 => Some(answer.json()["id"].as_str().unwrap_or_default().to_owned()),
            503 => {
                assert_eq!(answer.code(), "admission_unavailable", "{answer:?}");
                assert!(answer.headers.contains("retry-after:"), "{answer:?}");
                unsure += 1;
                None
            }
            other => panic!("{other}: {answer:?}"),
        }
    });
    (id, unsure)
}

/// Every event has one record, ends as sent, and the provider took one message for each.
fn all_are_sent_once(url: &str, simulator: &Simulator, ids: &[String]) {
    let mut own = ids.to_vec();
    own.sort();
    own.dedup();
    assert_eq!(own.len(), ids.len(), "one record an event");
    wait_for("every event to be sent", || {
        let open = "SELECT COUNT(*) FROM records WHERE state NOT IN ('sent', 'delivered')";
        (number(url, open) == 0).then_some(())
    });
    let records = number(url, "SELECT COUNT(*) FROM records");
    assert_eq!(usize::try_from(records), Ok(ids.len()), "nothing acknowledged is lost");
    assert_eq!(simulator.messages(), ids.len(), "one message an event");
    invariants_hold(url);
}

/// Admits without a pause while `meanwhile` runs.
fn under_traffic(app: &App, meanwhile: impl FnOnce()) -> Vec<String> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let callers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut ids = Vec::new();
                    while !is_over.load(Ordering::SeqCst) && ids.len() < 400 {
                        ids.push(insist(app, &event(600)).0);
                        thread::sleep(Duration::from_millis(15));
                    }
                    ids
                })
            })
            .collect();
        meanwhile();
        is_over.store(true, Ordering::SeqCst);
        callers.into_iter().flat_map(|caller| caller.join().expect("admits")).collect()
    })
}

#[test]
fn a_database_that_is_restarted_and_killed_loses_nothing_and_doubles_nothing() {
    let mut cluster = Cluster::start();
    database(&cluster);
    let simulator = provider();
    let url = cluster.url("app");
    let setting = Setting { database: Some(url.clone()), ..Setting::at(simulator.port) };
    let app = App::start(setting);
    let other = app.join("dispatch,reconcile");
    let ids = under_traffic(&app, || {
        for round in 0..4 {
            thread::sleep(Duration::from_millis(700));
            if round % 2 == 0 {
                cluster.stop();
            } else {
                cluster.kill();
            }
            wait_for("readiness to fail", || {
                (request(app.port, "GET", "/readyz", &[], b"").status == 503).then_some(())
            });
            assert_eq!(request(app.port, "GET", "/healthz", &[], b"").status, 200);
            let answer = app.call("POST", "/v1/events", Some(&event(600)));
            assert_eq!(answer.status, 503, "{answer:?}");
            cluster.start_again();
            wait_for("readiness", || {
                (request(app.port, "GET", "/readyz", &[], b"").status == 200).then_some(())
            });
        }
    });
    all_are_sent_once(&url, &simulator, &ids);
    wait_for("the other process to be ready", || {
        (request(other.0, "GET", "/readyz", &[], b"").status == 200).then_some(())
    });
}

#[test]
fn a_connection_cut_within_a_commit_is_resolved_by_reading() {
    let cluster = Cluster::start();
    database(&cluster);
    let simulator = provider();
    let address = Address::of(cluster.port);
    let database = Some(url(address.port, "app"));
    let app = App::start(Setting { database, ..Setting::at(simulator.port) });
    address.cut_every(7);
    let ids: Vec<String> = (0..80).map(|_| insist(&app, &event(600)).0).collect();
    wait_for("commits to be cut", || (address.cuts() >= 20).then_some(()));
    address.cut_every(0);
    all_are_sent_once(&cluster.url("app"), &simulator, &ids);
}

#[test]
fn a_promoted_synchronous_standby_has_everything_that_was_acknowledged() {
    let mut primary = Cluster::start();
    database(&primary);
    let simulator = provider();
    let address = Address::of(primary.port);
    let database = Some(url(address.port, "app"));
    let app = App::start(Setting { database, ..Setting::at(simulator.port) });
    let worker = app.join("dispatch,reconcile");
    // A standby that may lag would lose what was acknowledged: it is named until it is synchronous.
    let standby = primary.standby(false);
    let ready = wait_for("the standby to be noticed", || {
        let answer = request(app.port, "GET", "/readyz", &[], b"");
        answer.text.contains("standby").then_some(answer)
    });
    assert!(ready.text.contains("asynchronous_standby_is_unsafe"), "{ready:?}");
    primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.run("SELECT pg_reload_conf()");
    wait_for("the standby to be synchronous", || {
        let names = "SELECT COUNT(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        (number(&primary.url("postgres"), names) == 1).then_some(())
    });
    let ids = under_traffic(&app, || {
        thread::sleep(Duration::from_millis(1_500));
        primary.kill();
        standby.promote();
        address.move_to(standby.port);
        wait_for("readiness on the new primary", || {
            (request(app.port, "GET", "/readyz", &[], b"").status == 200).then_some(())
        });
        thread::sleep(Duration::from_millis(1_500));
    });
    all_are_sent_once(&standby.url("app"), &simulator, &ids);
    wait_for("the worker to be ready", || {
        (request(worker.0, "GET", "/readyz", &[], b"").status == 200).then_some(())
    });
}

#[test]
fn everything_works_behind_a_pooler_in_transaction_mode() {
    let cluster = Cluster::start();
    database(&cluster);
    let simulator = provider();
    let pooler = Pooler::before(&cluster);
    let pooled = format!("{}?statement-cache-capacity=0", url(pooler.port, "app"));
    let setting = Setting {
        database: Some(pooled),
        // Migrations hold a lock of their session, so they take the direct way.
        migrate_at: Some(cluster.url("app")),
        ..Setting::at(simulator.port)
    };
    let app = App::start(setting);
    let _workers = [app.join("dispatch,reconcile"), app.join("dispatch,reconcile")];
    let ids = under_traffic(&app, || {
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(300));
            app.freeze("all");
            let starts = "SELECT COUNT(*) FROM calls";
            let before = number(&cluster.url("app"), starts);
            thread::sleep(Duration::from_millis(150));
            assert_eq!(number(&cluster.url("app"), starts), before, "no call starts while frozen");
            app.unfreeze("all");
        }
    });
    all_are_sent_once(&cluster.url("app"), &simulator, &ids);
}
