//! The probes and the metrics.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use app::model::Channel;
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use regex::Regex;
use serde_json::{Value, json};
use server::config::Config;
use server::http::health::{Health, HealthState, health_router};
use server::http::metrics::LABELS;
use tower::ServiceExt as _;

use crate::support::{Api, changed, metrics};

pub struct Probes {
    pub router: axum::Router,
    health: Arc<Health>,
}

pub fn probes(api: &Api) -> Probes {
    let health = Arc::new(Health::new(&["dispatch", "sweep"]));
    let state = HealthState::new(
        Arc::clone(&api.store),
        Arc::clone(&api.env.clock),
        Arc::clone(&health),
        Some(metrics()),
    )
    .watching(Arc::new(Config::parse("test", "", std::iter::empty()).unwrap()));
    Probes { router: health_router(state), health }
}

async fn get(probes: &Probes, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = probes.router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

async fn ready(probes: &Probes) -> (StatusCode, Vec<String>) {
    let (status, text) = get(probes, "/readyz").await;
    let body: Value = serde_json::from_str(&text).unwrap();
    let failing = body["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|line| line["ok"] == false)
        .map(|line| {
            format!("{}={}", line["check"].as_str().unwrap(), line["detail"].as_str().unwrap())
        })
        .collect();
    (status, failing)
}

#[tokio::test]
async fn ready_means_database_schema_and_every_loop() {
    let api = Api::new().await;
    let probes = probes(&api);
    assert_eq!(get(&probes, "/healthz").await, (StatusCode::OK, r#"{"status":"ok"}"#.to_owned()));
    let (status, failing) = ready(&probes).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(failing, ["loop:dispatch=not_started", "loop:sweep=not_started"]);
    for name in ["dispatch", "sweep", "no such loop"] {
        probes.health.tick(name, api.env.clock.now());
    }
    assert_eq!(ready(&probes).await, (StatusCode::OK, vec![]));
    api.clock.advance(Duration::from_secs(31));
    probes.health.tick("sweep", api.env.clock.now());
    assert_eq!(ready(&probes).await.1, ["loop:dispatch=late"]);
    probes.health.tick("dispatch", api.env.clock.now());
    sqlx::query("INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (99, 'x', 1, x'00', 0)")
        .execute(&api.db)
        .await
        .unwrap();
    assert_eq!(ready(&probes).await.1, ["schema=other_schema"]);
    sqlx::query("DELETE FROM _sqlx_migrations WHERE version = 99").execute(&api.db).await.unwrap();
    probes.health.drain();
    assert_eq!(ready(&probes).await.1, ["process=stopping"]);
    api.store.close().await;
    let (status, failing) = ready(&probes).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(failing.contains(&"database=unavailable".to_owned()), "{failing:?}");
    assert_eq!(get(&probes, "/healthz").await.0, StatusCode::OK);
}

fn value(text: &str, series: &str) -> f64 {
    text.lines()
        .find_map(|line| line.strip_prefix(&format!("{series} ")))
        .unwrap_or_else(|| panic!("no {series} in:\n{text}"))
        .parse()
        .unwrap()
}

#[tokio::test]
async fn metrics_have_every_name_at_zero_and_only_known_labels() {
    let api = Api::new().await;
    let probes = probes(&api);
    let (status, text) = get(&probes, "/metrics").await;
    assert_eq!(status, StatusCode::OK);
    for series in [
        "sendonce_events{state=\"accepted\"}",
        "sendonce_events{state=\"dispatching\"}",
        "sendonce_events{state=\"dispatch_unknown\"}",
        "sendonce_oldest_due_age_seconds",
        "sendonce_oldest_backing_off_age_seconds",
        "sendonce_oldest_frozen_age_seconds",
        "sendonce_unknown_oldest_age_seconds",
        "sendonce_dispatch_frozen",
        "sendonce_duplicate_evidence_total",
        "sendonce_last_tick_timestamp_seconds{loop=\"dispatch\"}",
        "sendonce_admissions_total{outcome=\"unavailable\"}",
        "sendonce_callbacks_total{provider=\"mute\",outcome=\"kept\"}",
        "sendonce_expired_total{reason=\"expired_while_frozen\"}",
        "sendonce_slo_events_total{channel=\"email\",outcome=\"admitted\"}",
        "sendonce_slo_burn_rate{channel=\"sms\",window=\"3d\"}",
        "sendonce_alert_deliveries_total{target=\"webhook\",outcome=\"failed\"}",
        "sendonce_alerts{state=\"firing\",severity=\"page\"}",
        "sendonce_oldest_due_read_age_seconds",
        "sendonce_reads_due",
        "sendonce_clock_offset_seconds",
    ] {
        assert!((value(&text, series)).abs() < f64::EPSILON, "{series}");
    }
    assert!(text.contains("sendonce_build_info{version=\""));

    let email = changed(&api.event("2"), "channel", json!("email"));
    for event in [&api.event("1"), &email] {
        assert_eq!(api.admit(event).await.status, StatusCode::ACCEPTED);
    }
    api.store.freeze("channel:email", "client:x", "check", None).await.unwrap();
    api.clock.advance(Duration::from_secs(5));
    let (_, text) = get(&probes, "/metrics").await;
    assert!((value(&text, "sendonce_events{state=\"accepted\"}") - 2.0).abs() < 0.001);
    assert!((value(&text, "sendonce_oldest_due_age_seconds") - 5.0).abs() < 0.001);
    assert!((value(&text, "sendonce_oldest_frozen_age_seconds") - 5.0).abs() < 0.001);
    assert!((value(&text, "sendonce_dispatch_frozen") - 1.0).abs() < 0.001);

    assert!((value(&text, "sendonce_outbox_due") - 1.0).abs() < 0.001);
    let budget = "sendonce_slo_budget_left_ratio{channel=\"sms\"}";
    assert!((value(&text, budget) - 1.0).abs() < 0.001, "nothing judged leaves the budget");

    // Read again after a while, and the same whether folded or not.
    api.clock.advance(Duration::from_secs(20));
    let (_, text) = get(&probes, "/metrics").await;
    for channel in ["sms", "email"] {
        let admitted =
            format!("sendonce_slo_events_total{{channel=\"{channel}\",outcome=\"admitted\"}}");
        assert!((value(&text, &admitted) - 1.0).abs() < 0.001, "{channel}");
    }

    // Nobody can look any more: the age goes on.
    let claims = api.store.claim("w", Channel::Sms, 1).await.unwrap();
    assert_eq!(claims.len(), 1);
    api.store.close().await;
    api.clock.advance(Duration::from_secs(5));
    let (_, text) = get(&probes, "/metrics").await;
    assert!((value(&text, "sendonce_oldest_due_age_seconds") - 30.0).abs() < 0.001);
    assert!((value(&text, "sendonce_database_up")).abs() < f64::EPSILON);

    let label = Regex::new("[{,]([a-zA-Z_]+)=\"").unwrap();
    let used: BTreeSet<String> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| {
            label.captures_iter(line).map(|found| found[1].to_owned()).collect::<Vec<_>>()
        })
        .collect();
    for name in &used {
        assert!(LABELS.contains(&name.as_str()) || name == "le", "{name}");
    }
    for id in ["ev-1", "key-1", "dest-1", "rst-1", &api.client_id] {
        assert!(!text.contains(id), "{id}");
    }
}

fn sources(folder: &std::path::Path, texts: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, texts);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            texts.push(std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[tokio::test]
async fn every_metric_in_the_code_is_there_before_it_is_first_counted() {
    let api = Api::new().await;
    let (_, text) = get(&probes(&api), "/metrics").await;
    let mut texts = Vec::new();
    sources(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut texts);
    let name = Regex::new("(?s)(?:counter|gauge)!\\(\\s*\"(sendonce_[a-z_]+)\"").unwrap();
    let names: BTreeSet<String> = texts
        .iter()
        .flat_map(|text| {
            name.captures_iter(text).map(|found| found[1].to_owned()).collect::<Vec<_>>()
        })
        .collect();
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        assert!(text.contains(&format!("# HELP {name} ")), "{name} has no help");
        assert!(text.lines().any(|line| line.starts_with(&name)), "{name}");
    }
}

#[tokio::test]
async fn probes_answer_other_methods_with_a_problem() {
    let api = Api::new().await;
    let probes = probes(&api);
    for path in ["/healthz", "/readyz", "/metrics"] {
        let request = Request::post(path).body(Body::empty()).unwrap();
        let response = probes.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
    }
}
