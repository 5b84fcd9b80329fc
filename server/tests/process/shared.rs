//! Several processes on one PostgreSQL: nothing of the promise weakens there.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread::{self, sleep};
use std::time::Duration;

use serde_json::json;
use sqlx::{Connection as _, Row as _};

use crate::kit::{App, Setting, Simulator, event, wait_for};

/// An empty database of its own, where `TEST_PG_URL` names a server; `make test` always does.
pub fn database() -> Option<String> {
    let server = std::env::var("TEST_PG_URL").ok()?;
    let base = server.rsplit_once('/').expect("a URL with a database").0.to_owned();
    let name =
        format!("p_{}", server::keys::sha256(event(1).to_string().as_bytes())[..16].to_owned());
    run(&server, format!("CREATE DATABASE {name}"));
    Some(format!("{base}/{name}"))
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

pub fn run(url: &str, sql: String) {
    block_on(async {
        let mut connection = sqlx::PgConnection::connect(url).await.expect("connects");
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.expect("runs");
    });
}

/// The first column of the first row.
pub fn number(url: &str, sql: &'static str) -> i64 {
    try_number(url, sql).expect("the database answers")
}

/// None: the database does not answer.
pub fn try_number(url: &str, sql: &'static str) -> Option<i64> {
    block_on(async {
        let mut connection = sqlx::PgConnection::connect(url).await.ok()?;
        sqlx::query(sql).fetch_one(&mut connection).await.ok()?.try_get(0).ok()
    })
}

/// Every row of every table, as text.
pub fn dump(url: &str) -> String {
    block_on(async {
        let mut connection = sqlx::PgConnection::connect(url).await.expect("connects");
        let tables =
            sqlx::query("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
                .fetch_all(&mut connection)
                .await
                .expect("lists the tables");
        let mut text = String::new();
        for table in tables {
            let name: String = table.get(0);
            let sql = format!("SELECT CAST(t AS TEXT) FROM {name} t");
            let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_all(&mut connection).await;
            for row in rows.expect("reads") {
                text.push_str(row.get(0));
                text.push('\n');
            }
        }
        text
    })
}

/// What must never be there, whatever happened: by SQL over the whole database.
pub fn invariants_hold(url: &str) {
    for (what, sql) in [
        (
            "a call without the fact that authorises it",
            "SELECT COUNT(*) FROM calls c WHERE NOT EXISTS (SELECT 1 FROM facts f
               WHERE f.id = c.id AND f.seq = c.authorised_by AND (
                 (c.is_replay = 0 AND c.attempt = 1 AND f.reason = 'admitted')
                 OR (c.is_replay = 0 AND f.attempt = c.attempt - 1 AND f.reason IN ('not_sent',
                     'rate_limited', 'transient_refusal', 'provider_stopped', 'reconciled_absent'))
                 OR (c.is_replay = 1 AND f.attempt = c.attempt AND f.reason = 'idempotent_replay')))",
        ),
        (
            "more calls than 1 + proofs + replays",
            "SELECT COUNT(*) FROM records r WHERE r.calls > 1 + r.replays + (SELECT COUNT(*) FROM facts f
               WHERE f.id = r.id AND f.reason IN ('not_sent', 'rate_limited', 'transient_refusal',
                 'provider_stopped', 'reconciled_absent'))",
        ),
        (
            "a call at or past the margin",
            "SELECT COUNT(*) FROM calls c JOIN records r ON r.id = c.id
             WHERE c.started_at >= r.expires_at - 1000000",
        ),
        (
            "a gap in a record's facts",
            "SELECT COUNT(*) FROM records r
             WHERE r.seq <> (SELECT COUNT(*) FROM facts f WHERE f.id = r.id)",
        ),
        (
            "an outbox row without an accepted record, or the other way round",
            "SELECT (SELECT COUNT(*) FROM outbox) - (SELECT COUNT(*) FROM records WHERE state = 'accepted')
               + (SELECT COUNT(*) FROM outbox o JOIN records r ON r.id = o.record_id
                  WHERE r.state <> 'accepted')",
        ),
        (
            "a duplicate that the provider told us of",
            "SELECT COUNT(*) FROM facts WHERE kind = 'duplicate_evidence'",
        ),
    ] {
        assert_eq!(number(url, sql), 0, "{what}");
    }
}

#[test]
fn after_a_freeze_no_process_starts_a_call() {
    let Some(url) = database() else { return };
    let simulator = Simulator::start();
    simulator.script(&[json!({"slow": {"ms": 20}})]);
    let setting = Setting { database: Some(url.clone()), ..Setting::at(simulator.port) };
    let app = App::start(setting);
    let _others = [app.join("dispatch,reconcile"), app.join("dispatch,reconcile")];
    for round in 0..50 {
        for _ in 0..12 {
            app.admit(600);
        }
        sleep(Duration::from_millis(round % 7));
        let frozen = app.freeze("all");
        let since = app_model_stamp(frozen["since"].as_str().unwrap_or_default());
        let late = "SELECT COALESCE(MAX(started_at), 0) FROM calls";
        assert!(number(&url, late) <= since, "round {round}: a marker later than the freeze");
        let calls = simulator.calls();
        if frozen["in_flight"] == 0 {
            sleep(Duration::from_millis(60));
            assert_eq!(simulator.calls(), calls, "round {round}: nothing was in flight");
        }
        if round % 10 == 9 {
            // Calls already started may arrive until their timeout is over; then none does.
            sleep(Duration::from_millis(1_050));
            let calls = simulator.calls();
            sleep(Duration::from_millis(200));
            assert_eq!(simulator.calls(), calls, "round {round}: a call after the call timeout");
        }
        assert!(number(&url, late) <= since, "round {round}: a marker later than the freeze");
        app.unfreeze("all");
    }
    invariants_hold(&url);
}

fn app_model_stamp(text: &str) -> i64 {
    app::model::Stamp::parse(text).expect("an instant").micros()
}

#[test]
fn three_processes_that_die_at_random_send_each_event_once() {
    let Some(url) = database() else { return };
    let simulator = Simulator::start();
    // One call in five is accepted and never answered.
    let mut behaviours = Vec::new();
    for n in 0..500 {
        behaviours.push(json!(if n % 5 == 4 { "accept_then_hang" } else { "accept" }));
    }
    simulator.script(&behaviours);
    let setting = Setting {
        database: Some(url.clone()),
        roles: Some("api,ui"),
        ..Setting::at(simulator.port)
    };
    let app = App::start(setting);
    let mut workers: Vec<_> = (0..3).map(|_| app.join("dispatch,reconcile")).collect();
    let mut ids = Vec::new();
    for second in 0..60 {
        for _ in 0..34 {
            ids.push(app.admit(600)["id"].as_str().unwrap_or_default().to_owned());
        }
        if second % 10 == 9 {
            simulator.script(&behaviours);
        }
        // Whose turn it is does not matter; that it is in the middle of its work does.
        let (_, process) = &mut workers[second % 3];
        process.kill();
        workers[second % 3] = app.join("dispatch,reconcile");
    }
    wait_for("every event to be sent", || {
        let open = "SELECT COUNT(*) FROM records WHERE state NOT IN ('sent', 'delivered')";
        (number(&url, open) == 0).then_some(())
    });
    assert_eq!(number(&url, "SELECT COUNT(*) FROM records"), 2_040);
    assert_eq!(simulator.messages(), ids.len(), "one message an event");
    invariants_hold(&url);
}

#[test]
fn the_first_promises_hold_on_postgresql_too() {
    let Some(url) = database() else { return };
    let simulator = Simulator::start();
    simulator.script(&[json!("hang_before_accept"), json!("accept")]);
    let setting = Setting { database: Some(url.clone()), ..Setting::at(simulator.port) };
    let mut app = App::start(setting);
    let id = app.admit(600)["id"].as_str().unwrap_or_default().to_owned();
    wait_for("the call", || (simulator.calls() == 1).then_some(()));
    app.process.kill();
    app.start_again();
    let record = app.until(&id, &["sent", "delivered"]);
    assert_eq!((record["calls"].as_u64(), simulator.messages()), (Some(2), 1));
    let workers = app.cli(&["workers"]);
    assert!(workers.contains("api,dispatch,reconcile,ui"), "{workers}");
    invariants_hold(&url);
}

#[test]
fn another_configuration_is_refused_while_one_is_in_force() {
    let Some(url) = database() else { return };
    let simulator = Simulator::start();
    let setting = Setting { database: Some(url), ..Setting::at(simulator.port) };
    let app = App::start(setting);
    let error = app.refused(&[("SENDONCE_DISPATCH__MARGIN", "2s")]);
    assert!(error.contains("dispatch.margin") && error.contains("--activate-config"), "{error}");
    let error = app.refused(&[("SENDONCE_SERVER__DATA_DIR", "elsewhere")]);
    assert!(error.contains("sendonce.keys"), "{error}");
    assert!(!app.has("elsewhere/sendonce.keys"), "a wrong key file is not left behind");
}

/// A provider's address that takes no connection yet: its queue is full, so who connects waits.
fn a_door_that_is_shut() -> (u16, TcpListener, Vec<TcpStream>) {
    use socket2::{Domain, SockAddr, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let address = std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, crate::kit::free_port()));
    socket.bind(&SockAddr::from(address)).expect("a port");
    socket.listen(1).expect("listens");
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        waiting.push(stream);
        assert!(waiting.len() < 100, "the queue has an end");
    }
    (address.port(), socket.into(), waiting)
}

/// Carries every connection on to the simulator, one direction after the other: each has one request and one answer.
fn open(door: TcpListener, simulator: u16) {
    thread::spawn(move || {
        for client in door.incoming() {
            let Ok(mut client) = client else { return };
            thread::spawn(move || {
                let mut server =
                    TcpStream::connect((Ipv4Addr::LOCALHOST, simulator)).expect("connects");
                let (mut up, mut down) = (client.try_clone()?, server.try_clone()?);
                let back = thread::spawn(move || std::io::copy(&mut down, &mut up));
                let mut buffer = [0_u8; 8192];
                while let Ok(n) = client.read(&mut buffer) {
                    if n == 0 || server.write_all(&buffer[..n]).is_err() {
                        break;
                    }
                }
                let _ = server.shutdown(std::net::Shutdown::Write);
                let _ = back.join();
                std::io::Result::Ok(())
            });
        }
    });
}

#[test]
fn a_worker_stopped_between_its_marker_and_its_first_byte_never_sends_late() {
    use rustix::process::Signal;
    let Some(url) = database() else { return };
    let simulator = Simulator::start();
    simulator.script(&[json!("accept")]);
    let (port, door, waiting) = a_door_that_is_shut();
    let setting = Setting {
        database: Some(url.clone()),
        roles: Some("api,ui"),
        call_timeout: "2s",
        ..Setting::at(port)
    };
    let app = App::start(setting);
    let (_, stale) = app.join("dispatch");
    let id = app.admit(600)["id"].as_str().unwrap_or_default().to_owned();
    wait_for("the marker", || (number(&url, "SELECT COUNT(*) FROM calls") == 1).then_some(()));
    stale.signal(Signal::STOP);
    assert_eq!(simulator.calls(), 0, "stopped before its first byte");
    drop(waiting);
    open(door, simulator.port);
    let _worker = app.join("dispatch,reconcile");
    let record = app.until(&id, &["sent", "delivered"]);
    assert_eq!((record["calls"].as_u64(), simulator.messages()), (Some(2), 1));
    let story = app.story(&id);
    assert!(story.contains(&"lease_lost_after_call".to_owned()), "{story:?}");
    assert!(story.contains(&"reconciled_absent".to_owned()), "{story:?}");
    stale.signal(Signal::CONT);
    // It works again: another event is sent, by whichever worker. Then it has had its chance.
    let other = app.admit(600)["id"].as_str().unwrap_or_default().to_owned();
    app.until(&other, &["sent", "delivered"]);
    sleep(Duration::from_secs(3));
    assert_eq!((simulator.calls(), simulator.messages()), (2, 2), "one message an event");
    let after = app.record(&id);
    assert_eq!(after["calls"].as_u64(), Some(2));
    invariants_hold(&url);
}
