use super::*;
use crate::clock::{Clock, SystemClock};
use crate::config::KINDS;
use crate::entropy::SystemEntropy;
use crate::providers::net::HttpTransport;
use crate::store::LEASE_SEMANTICS;

fn seams() -> Seams {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    Seams {
        transport: Arc::new(HttpTransport::new(Arc::clone(&clock))),
        entropy: Arc::new(SystemEntropy),
        clock,
        semantics: LEASE_SEMANTICS..=LEASE_SEMANTICS,
    }
}

async fn tried(kind: &str, change: impl FnOnce(&mut ProviderConfig)) -> Report {
    let mut config = stand_in_config(kind).expect("every kind has a stand-in");
    change(&mut config);
    run("trial", &config, &Target::Simulator, &seams()).await.expect("the trial runs")
}

fn case<'a>(report: &'a Report, scenario: &str) -> &'a Case {
    report.cases.iter().find(|case| case.scenario == scenario).expect("was tried")
}

fn shown(report: &Report) -> String {
    let line = |case: &Case| {
        let record = &case.record;
        format!(
            "{} {}: {} {} calls {} counted {:?} holds {}",
            report.trial.kind,
            case.scenario,
            record.state,
            record.reason,
            record.calls,
            case.counted,
            case.holds
        )
    };
    report.cases.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// What each kind must come to, by what its vendor documents (PROVIDERS section 1).
fn expected(kind: &str) -> &'static str {
    match kind {
        "ses" | "smtp" => UNRECONCILABLE,
        "resend" => IDEMPOTENT,
        _ => RECONCILABLE,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_keeps_its_promise_in_every_scenario_without_settle() {
    let kinds = KINDS.iter().filter(|kind| kind.is_available());
    let trials = kinds.map(|kind| async move { (kind.name, tried(kind.name, |_| {}).await) });
    let reports = futures::future::join_all(trials).await;
    let failed: Vec<String> = reports
        .iter()
        .filter(|(kind, report)| !report.passes() || report.trial.verdict != expected(kind))
        .map(|(_, report)| format!("{} {}", report.trial.verdict, shown(report)))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    for (_, report) in reports {
        // Nothing that was lost before acceptance is sent again where absence is not believed.
        let lost = case(&report, "lost_before_acceptance");
        if report.capability.settle.is_none() && report.capability.replay_window.is_none() {
            assert_eq!((lost.record.calls, lost.counted), (1, Some((1, 0))), "{}", shown(&report));
            assert_eq!(lost.record.reason, Reason::ExpiredUnresolved);
            let was_unknown = |fact: &Fact| fact.new_state == Some(State::DispatchUnknown);
            assert!(lost.facts.iter().any(was_unknown));
        }
        assert!(report.trial.steps.iter().any(|step| step.what == "call"));
    }
    // A trial never touches the folder of the real ledger, whatever lies in it.
    assert!(!std::path::Path::new("data").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_settle_what_was_lost_before_acceptance_is_sent_once_more() {
    let kinds = ["http", "twilio", "sinch", "infobip", "sendgrid", "postmark"];
    let trials = kinds.map(|kind| tried(kind, |config| config.settle = Some(60_000_000)));
    for report in futures::future::join_all(trials).await {
        assert!(report.passes(), "{}", shown(&report));
        let lost = case(&report, "lost_before_acceptance");
        assert_eq!((lost.record.calls, lost.counted), (2, Some((2, 1))), "{}", shown(&report));
        let proof = lost.facts.iter().find(|fact| fact.reason == Some(Reason::ReconciledAbsent));
        assert!(proof.is_some(), "{}", shown(&report));
        let lag = case(&report, "lookup_lag");
        assert_eq!((lag.record.calls, lag.counted), (1, Some((1, 1))), "{}", shown(&report));
    }
}
