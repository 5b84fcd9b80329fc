//! Several versions of the program and its schema on one database.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use app::model::{Stamp, State};
use async_trait::async_trait;
use serde_json::json;
use server::admission::AdmissionAnswer;
use server::cli::serve::Part;
use server::clock::{Clock, SystemClock};
use server::config::Config;
use server::entropy::SystemEntropy;
use server::node::{Node, Seams};
use server::providers::net::HttpTransport;

use crate::kit::{App, Folder, Setting, Simulator, event, run_with, wait_for};
use crate::shared::{database, invariants_hold, number, run};

#[test]
fn migrations_started_at_once_are_safe_and_an_unknown_schema_is_refused() {
    let Some(url) = database() else { return };
    let folder = Folder::new();
    let (code, error) = run_with(&folder.0, &url, &["serve"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("sendonce migrate"), "{error}");
    thread::scope(|scope| {
        let runs: Vec<_> =
            (0..4).map(|_| scope.spawn(|| run_with(&folder.0, &url, &["migrate"]))).collect();
        for run in runs {
            let (code, error) = run.join().expect("ends");
            assert_eq!(code, Some(0), "{error}");
        }
    });
    let applied = "SELECT COUNT(*) FROM _sqlx_migrations WHERE success";
    assert!(number(&url, applied) >= 1);
    run(
        &url,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'later', TRUE, '', 0)"
            .to_owned(),
    );
    for command in ["serve", "migrate"] {
        let (code, error) = run_with(&folder.0, &url, &[command]);
        assert_eq!(code, Some(2), "{command}: {error}");
        assert!(error.contains("9999"), "{command} says which: {error}");
    }
}

/// A process of the next version, which knows newer lease semantics beside ours.
async fn newer(app: &App, url: &str, parts: &[Part]) -> Node {
    node(app, url, parts, Arc::new(SystemClock), 1..=2).await
}

/// Another process on the same database, inside this one.
async fn node(
    app: &App,
    url: &str,
    parts: &[Part],
    clock: Arc<dyn Clock>,
    semantics: std::ops::RangeInclusive<u32>,
) -> Node {
    let path = app.config();
    let database = ("DATABASE_URL".to_owned(), url.to_owned());
    let config = Config::load(Some(path.as_path()), [database].into_iter()).expect("is valid");
    let seams = Seams {
        transport: Arc::new(HttpTransport::new(Arc::clone(&clock))),
        entropy: Arc::new(SystemEntropy),
        clock,
        semantics,
    };
    let parts = parts.iter().copied().collect();
    Node::build(config, &seams, parts, false).await.expect("builds")
}

async fn admit(node: &Node) -> String {
    let body = event(600).to_string();
    match node.admission.admit(body.as_bytes(), "client:newer").await {
        AdmissionAnswer::Admitted { record, .. } => record.id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_older_worker_leaves_alone_what_a_newer_one_wrote() {
    let Some(url) = database() else { return };
    let simulator = Simulator::start();
    simulator.script(&[json!("accept"), json!("accept_then_hang"), json!("accept")]);
    let setting = Setting { database: Some(url.clone()), ..Setting::at(simulator.port) };
    // The older version, whole.
    let app = App::start(setting);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    // What the nodes hold is dropped inside it, whatever happens.
    let _inside = runtime.enter();
    let front = runtime.block_on(newer(&app, &url, &[Part::Api]));
    let theirs = runtime.block_on(admit(&front));
    let ours = app.admit(600)["id"].as_str().unwrap_or_default().to_owned();
    app.until(&ours, &["sent", "delivered"]);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(app.record(&theirs)["state"], "accepted", "nobody understands it yet, so it waits");
    assert_eq!(simulator.calls(), 1);
    // The newer one claims it; its process ends within the call, and only it may judge what that means.
    let lost = tokio::runtime::Runtime::new().expect("a runtime");
    let mut worker = lost.block_on(newer(&app, &url, &[Part::Dispatch]));
    {
        let _lost = lost.enter();
        worker.start();
    }
    wait_for("the newer worker's call", || (simulator.calls() == 2).then_some(()));
    lost.shutdown_background();
    // Long past the lease, the older sweep has not touched it, and a callback about it is not taken either.
    thread::sleep(Duration::from_secs(6));
    assert_eq!(app.record(&theirs)["state"], "dispatching");
    let attempt =
        app.facts(&theirs).iter().find_map(|fact| fact["attempt_id"].as_str().map(str::to_owned));
    let answer = app.callback(&attempt.expect("a call"), "delivered");
    assert_eq!(answer.status, 503, "so that the provider repeats it: {answer:?}");
    let mut next = runtime.block_on(newer(&app, &url, &[Part::Reconcile]));
    next.start();
    let record = app.until(&theirs, &[State::Sent.as_str(), State::Delivered.as_str()]);
    assert_eq!((record["calls"].as_u64(), simulator.messages()), (Some(1), 2));
    assert!(app.story(&theirs).contains(&"lease_lost_after_call".to_owned()));
    invariants_hold(&url);
    runtime.block_on(next.stop());
    runtime.block_on(front.stop());
}

/// A machine whose clock is ten minutes ahead.
#[derive(Debug)]
struct Ahead;

#[async_trait]
impl Clock for Ahead {
    fn now(&self) -> Stamp {
        SystemClock.now().plus(600_000_000)
    }

    fn boot(&self) -> i64 {
        SystemClock.boot()
    }

    async fn sleep(&self, duration: Duration) {
        SystemClock.sleep(duration).await;
    }
}

#[test]
fn a_worker_whose_clock_is_ahead_neither_expires_nor_steals_nor_sends_early() {
    let Some(url) = database() else { return };
    let simulator = Simulator::start();
    simulator.script(&[json!({"slow": {"ms": 800}})]);
    let setting =
        Setting { database: Some(url.clone()), call_timeout: "2s", ..Setting::at(simulator.port) };
    let app = App::start(setting);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let _inside = runtime.enter();
    let parts = [Part::Dispatch, Part::Reconcile];
    let mut ahead = runtime.block_on(node(&app, &url, &parts, Arc::new(Ahead), 1..=1));
    ahead.start();
    app.freeze("all");
    // By its own clock these have expired long ago.
    let ids: Vec<String> =
        (0..10).map(|_| app.admit(60)["id"].as_str().unwrap_or_default().to_owned()).collect();
    thread::sleep(Duration::from_secs(1));
    app.unfreeze("all");
    for id in &ids {
        let record = app.until(id, &["sent", "delivered", "expired", "dispatch_unknown"]);
        assert_eq!(record["calls"].as_u64(), Some(1), "{record}");
        assert_eq!(record["reason"].as_str().map(|why| why.contains("expired")), Some(false));
        assert!(!app.story(id).contains(&"lease_lost_after_call".to_owned()), "no lease is stolen");
    }
    assert_eq!((simulator.calls(), simulator.messages()), (10, 10));
    invariants_hold(&url);
    runtime.block_on(ahead.stop());
}
