//! What `deploy/` tells Prometheus and Grafana to look at is there.

use std::collections::BTreeSet;
use std::path::PathBuf;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use regex::Regex;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::support::Api;

fn deploy(path: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// Names of metrics in an expression, without what histograms add to theirs.
fn names(text: &str) -> BTreeSet<String> {
    let name = Regex::new(r"\bsendonce_[a-z_]+").unwrap();
    name.find_iter(text)
        .map(|found| {
            let name = found.as_str();
            let bare = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|ending| name.strip_suffix(ending))
                .unwrap_or(name);
            bare.to_owned()
        })
        .collect()
}

async fn scraped() -> String {
    let api = Api::new().await;
    let probes = crate::health::probes(&api);
    let request = Request::get("/metrics").body(Body::empty()).unwrap();
    let response = probes.router.clone().oneshot(request).await.unwrap();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn every_metric_that_the_rules_and_the_board_name_exists() {
    let text = scraped().await;
    for file in ["prometheus/sendonce.rules.yml", "grafana/sendonce.json"] {
        let names = names(&deploy(file));
        assert!(names.len() > 8, "{file}: {names:?}");
        for name in names {
            assert!(text.contains(&format!("# TYPE {name} ")), "{file}: {name}");
        }
    }
}

#[test]
fn every_rule_leads_to_a_section_of_the_runbook() {
    let anchors: BTreeSet<String> =
        server::slo::runbook::page().sections.into_iter().map(|section| section.anchor).collect();
    let rules = deploy("prometheus/sendonce.rules.yml");
    let runbook = Regex::new(r"runbook: /runbook#([a-z-]+)").unwrap();
    let found: Vec<String> =
        runbook.captures_iter(&rules).map(|found| found[1].to_owned()).collect();
    assert_eq!(found.len(), rules.matches("- alert:").count(), "each alert has its section");
    for anchor in found {
        assert!(anchors.contains(&anchor), "{anchor}");
    }
}

#[test]
fn the_board_can_be_loaded() {
    let board: Value = serde_json::from_str(&deploy("grafana/sendonce.json")).unwrap();
    let panels = board["panels"].as_array().unwrap();
    assert!(panels.len() > 10);
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "an id twice");
        assert!(!panel["title"].as_str().unwrap().is_empty());
        assert!(!panel["targets"].as_array().unwrap().is_empty(), "{}", panel["title"]);
    }
}
