//! Prometheus: which metrics there are, and the only labels they may carry.
//!
//! A label is a closed vocabulary. An id, a code of a provider or anything else that a caller chooses would
//! make a new series with each value and end in a database of its own.

use std::time::Duration;

use app::model::{
    Alert, AlertRule, AlertState, CallOutcome, Channel, Reason, Severity, Stamp, State,
};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};

use super::health::Kept;
use super::{api, tokens, webhooks};
use crate::admission;
use crate::policy;
use crate::slo::tell;
use crate::store::{Gauges, Metric};

/// The labels that a metric may carry.
pub const LABELS: &[&str] = &[
    "channel", "provider", "kind", "state", "reason", "outcome", "loop", "version", "window",
    "severity", "target",
];

/// Upper bounds of histograms, in seconds: from one commit to the longest call.
const BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

const EVENTS: &str = "sendonce_events";
const OLDEST_DUE: &str = "sendonce_oldest_due_age_seconds";
const OLDEST_BACKING_OFF: &str = "sendonce_oldest_backing_off_age_seconds";
const OLDEST_FROZEN: &str = "sendonce_oldest_frozen_age_seconds";
const OLDEST_UNKNOWN: &str = "sendonce_unknown_oldest_age_seconds";
const UNSEALED: &str = "sendonce_log_unsealed_facts";
const OLDEST_UNSEALED: &str = "sendonce_log_oldest_unsealed_age_seconds";
const AUDIT_OK: &str = "sendonce_audit_verify_ok";
const OUTSIDE_FAILURES: &str = "sendonce_log_outside_failures_total";
const FROZEN: &str = "sendonce_dispatch_frozen";
const OPEN_BREAKERS: &str = "sendonce_price_breakers_open";
const LAST_TICK: &str = "sendonce_last_tick_timestamp_seconds";
const BUILD_INFO: &str = "sendonce_build_info";
const DUPLICATE_EVIDENCE: &str = "sendonce_duplicate_evidence_total";
const PAUSED: &str = "sendonce_provider_paused";
const STOPPED: &str = "sendonce_provider_stopped";
const DATABASE_UP: &str = "sendonce_database_up";

// Counted by the loops.
const CALLS: &str = "sendonce_calls_total";
const CALL_OUTCOMES: &str = "sendonce_call_outcomes_total";
const SETTLEMENTS: &str = "sendonce_settlements_total";
const MARKERS_REFUSED: &str = "sendonce_markers_refused_total";
const LOOKUPS: &str = "sendonce_lookups_total";
const EXPIRED: &str = "sendonce_expired_total";
const LEASES_LOST: &str = "sendonce_leases_lost_total";
const PURGED: &str = "sendonce_purged_events_total";
const LOOP_RESTARTS: &str = "sendonce_loop_restarts_total";
const LOOKUPS_IN_FLIGHT: &str = "sendonce_lookups_in_flight";
const LOOKUPS_IN_FLIGHT_MAX: &str = "sendonce_lookups_in_flight_max";
const CALL_SECONDS: &str = "sendonce_call_seconds";
const LOOKUP_SECONDS: &str = "sendonce_lookup_seconds";

// Kept by the ledger: the same on every process, so take the maximum and not the sum.
const SLO_EVENTS: &str = "sendonce_slo_events_total";
const SLO_BUDGET: &str = "sendonce_slo_budget_left_ratio";
const SLO_BURN: &str = "sendonce_slo_burn_rate";
const OLDEST_READ: &str = "sendonce_oldest_due_read_age_seconds";
const READS_DUE: &str = "sendonce_reads_due";
const OUTBOX_DUE: &str = "sendonce_outbox_due";
const SENDING_HEALTHY: &str = "sendonce_sending_healthy";
const ALERTS: &str = "sendonce_alerts";
const CLOCK_OFFSET: &str = "sendonce_clock_offset_seconds";
const CLOCK_UNCERTAINTY: &str = "sendonce_clock_uncertainty_seconds";

/// Makes this process's recorder, and every series at 0: a rate over nothing is then 0 and not "no data".
///
/// # Errors
/// When a recorder was installed before.
pub fn install<'a>(
    providers: impl IntoIterator<Item = &'a str>,
) -> Result<PrometheusHandle, BuildError> {
    let handle = PrometheusBuilder::new().set_buckets(BUCKETS)?.install_recorder()?;
    describe();
    for outcome in admission::OUTCOMES {
        metrics::counter!(admission::COUNTER, "outcome" => *outcome).absolute(0);
    }
    for outcome in api::READ_OUTCOMES {
        metrics::counter!(api::READS, "outcome" => *outcome).absolute(0);
    }
    for rule in policy::STOPS {
        for outcome in policy::OUTCOMES {
            metrics::counter!(policy::COUNTER, "reason" => *rule, "outcome" => *outcome)
                .absolute(0);
        }
    }
    for outcome in tokens::OUTCOMES {
        metrics::counter!(tokens::COUNTER, "outcome" => *outcome).absolute(0);
    }
    for reason in EXPIRED_REASONS {
        metrics::counter!(EXPIRED, "reason" => reason.as_str()).absolute(0);
    }
    for channel in Channel::ALL {
        for (_, outcome) in SLO_OUTCOMES {
            let channel = channel.as_str();
            metrics::counter!(SLO_EVENTS, "channel" => channel, "outcome" => *outcome).absolute(0);
        }
    }
    for target in tell::TARGETS {
        for outcome in tell::OUTCOMES {
            metrics::counter!(tell::COUNTER, "target" => *target, "outcome" => *outcome)
                .absolute(0);
        }
    }
    metrics::gauge!(LOOKUPS_IN_FLIGHT).set(0.0);
    metrics::gauge!(LOOKUPS_IN_FLIGHT_MAX).set(0.0);
    for provider in providers {
        metrics::gauge!(SENDING_HEALTHY, "provider" => provider.to_owned()).set(1.0);
        metrics::counter!(CALLS, "provider" => provider.to_owned()).absolute(0);
        for name in [PAUSED, STOPPED] {
            metrics::gauge!(name, "provider" => provider.to_owned()).set(0.0);
        }
        let outcomes = webhooks::OUTCOMES.iter().map(|outcome| (webhooks::COUNTER, *outcome));
        let outcomes = outcomes
            .chain(CallOutcome::ALL.iter().map(|outcome| (CALL_OUTCOMES, outcome.as_str())))
            .chain(["found", "absent", "cannot_tell"].map(|outcome| (LOOKUPS, outcome)));
        for (name, outcome) in outcomes {
            let provider = provider.to_owned();
            metrics::counter!(name, "provider" => provider, "outcome" => outcome).absolute(0);
        }
    }
    for state in State::ALL {
        metrics::counter!(SETTLEMENTS, "state" => state.as_str()).absolute(0);
        metrics::counter!(MARKERS_REFUSED, "state" => state.as_str()).absolute(0);
    }
    for name in [DUPLICATE_EVIDENCE, LEASES_LOST, OUTSIDE_FAILURES, PURGED] {
        metrics::counter!(name).absolute(0);
    }
    metrics::gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Ok(handle)
}

fn describe() {
    use metrics::{describe_counter, describe_gauge, describe_histogram};
    describe_counter!(admission::COUNTER, "Answers to admissions, by outcome.");
    describe_counter!(api::READS, "Records and timelines that API clients looked up.");
    describe_counter!(webhooks::COUNTER, "Receipts of providers, and callbacks that were refused.");
    describe_counter!(
        DUPLICATE_EVIDENCE,
        "Evidence about an attempt after a later call had started: must stay 0."
    );
    describe_counter!(CALLS, "Calls: requests that send, counted when their marker committed.");
    describe_counter!(policy::COUNTER, "What a sending rule stopped, or would have, by rule.");
    describe_counter!(tokens::COUNTER, "Answers to uses of tokens, by outcome.");
    describe_counter!(CALL_OUTCOMES, "How calls ended.");
    describe_counter!(
        SETTLEMENTS,
        "Ends of calls that were written, by the state that came of them."
    );
    describe_counter!(MARKERS_REFUSED, "Markers that said no, by the state that came of it.");
    describe_counter!(LOOKUPS, "Reads of providers, by their answer.");
    describe_counter!(EXPIRED, "Events whose time ran out, by reason; kept by the ledger.");
    describe_counter!(LEASES_LOST, "Leases that ended without their owner.");
    describe_counter!(PURGED, "Events that the retention removed.");
    describe_counter!(LOOP_RESTARTS, "How often a loop had to be started again.");
    describe_counter!(SLO_EVENTS, "Events as the objective sees them; kept by the ledger.");
    describe_counter!(tell::COUNTER, "Alerts told to people, by target and how it went.");
    describe_gauge!(SLO_BUDGET, "Share of the error budget that is left; below 0 when overdrawn.");
    describe_gauge!(SLO_BURN, "How fast the error budget burns; 1 lasts exactly its period.");
    describe_gauge!(OLDEST_READ, "How late the read is that has been due for longest.");
    describe_gauge!(READS_DUE, "Reads of providers whose time has come.");
    describe_gauge!(OUTBOX_DUE, "Events that could be claimed now.");
    describe_gauge!(SENDING_HEALTHY, "0 while a provider takes nothing or has stopped us.");
    describe_gauge!(ALERTS, "Open alerts, by state and severity.");
    describe_gauge!(CLOCK_OFFSET, "What this process adds to its clock to follow the database's.");
    describe_gauge!(CLOCK_UNCERTAINTY, "How far that may be off.");
    describe_gauge!(LOOKUPS_IN_FLIGHT, "Reads of providers under way in this process.");
    describe_gauge!(
        LOOKUPS_IN_FLIGHT_MAX,
        "Reads that this process makes at the same time at most."
    );
    describe_histogram!(CALL_SECONDS, "How long calls took, by kind of provider.");
    describe_histogram!(LOOKUP_SECONDS, "How long reads of providers took.");
    describe_gauge!(EVENTS, "Events that are still open, by state.");
    describe_gauge!(
        OLDEST_DUE,
        "Age of the oldest event that could be claimed now, since it was due."
    );
    describe_gauge!(
        OLDEST_BACKING_OFF,
        "Age of the oldest event that waits before its next attempt."
    );
    describe_gauge!(OLDEST_FROZEN, "Age of the oldest event that a freeze holds back.");
    describe_gauge!(OLDEST_UNKNOWN, "Age of the oldest event whose outcome is unknown.");
    describe_gauge!(AUDIT_OK, "1 where the last check of the whole log found nothing.");
    describe_gauge!(UNSEALED, "Facts that wait for their place in the log.");
    describe_gauge!(
        OLDEST_UNSEALED,
        "How long the oldest of them waits: below a second in health."
    );
    describe_counter!(
        OUTSIDE_FAILURES,
        "Signed heads that could not be written outside the database."
    );
    describe_gauge!(OPEN_BREAKERS, "Countries whose breaker is not closed.");
    describe_gauge!(FROZEN, "1 while any freeze is in force.");
    describe_gauge!(
        PAUSED,
        "1 while a provider is left alone, because it asked for that or is stopped."
    );
    describe_gauge!(
        STOPPED,
        "1 while a provider refuses our credentials or configuration: its events wait or go to the next."
    );
    describe_gauge!(LAST_TICK, "When each loop of this process last went round.");
    describe_gauge!(BUILD_INFO, "1, with the version.");
    describe_gauge!(
        DATABASE_UP,
        "Whether the figures could be read at this scrape; ages go on from the last ones."
    );
}

/// Fills the gauges for one scrape.
pub(super) fn fill(gauges: &Gauges, now: Stamp, is_up: bool) {
    for (state, count) in [
        ("accepted", gauges.due + gauges.backing_off + gauges.frozen),
        ("dispatching", gauges.dispatching),
        ("dispatch_unknown", gauges.unknown),
    ] {
        metrics::gauge!(EVENTS, "state" => state).set(number(count));
    }
    for (name, oldest) in [
        (OLDEST_DUE, gauges.oldest_due_at),
        (OLDEST_BACKING_OFF, gauges.oldest_backing_off_at),
        (OLDEST_FROZEN, gauges.oldest_frozen_at),
        (OLDEST_UNKNOWN, gauges.oldest_unknown_at),
        (OLDEST_UNSEALED, gauges.oldest_unsealed_at),
        (OLDEST_READ, gauges.oldest_read_due_at),
    ] {
        let age = oldest.map_or(0, |at| now.since(at).max(0));
        metrics::gauge!(name).set(seconds(age));
    }
    if let Some(is_sound) = gauges.is_log_sound {
        metrics::gauge!(AUDIT_OK).set(if is_sound { 1.0 } else { 0.0 });
    }
    metrics::gauge!(UNSEALED).set(number(gauges.unsealed));
    metrics::gauge!(OPEN_BREAKERS).set(number(gauges.open_breakers));
    metrics::gauge!(READS_DUE).set(number(gauges.reads_due));
    metrics::gauge!(OUTBOX_DUE).set(number(gauges.due));
    metrics::gauge!(FROZEN).set(if gauges.freezes > 0 { 1.0 } else { 0.0 });
    for (provider, is_paused, is_stopped) in &gauges.pauses {
        for (name, holds) in [(PAUSED, is_paused), (STOPPED, is_stopped)] {
            metrics::gauge!(name, "provider" => provider.clone()).set(f64::from(u8::from(*holds)));
        }
    }
    metrics::counter!(DUPLICATE_EVIDENCE).absolute(gauges.duplicate_calls);
    metrics::gauge!(DATABASE_UP).set(if is_up { 1.0 } else { 0.0 });
}

/// Reasons for which time runs out.
const EXPIRED_REASONS: [Reason; 4] = [
    Reason::ExpiredInQueue,
    Reason::ExpiredBeforeCall,
    Reason::ExpiredWhileFrozen,
    Reason::ExpiredUnresolved,
];

/// What the objective counts, as the metric calls it.
const SLO_OUTCOMES: &[(Metric, &str)] = &[
    (Metric::Admitted, "admitted"),
    (Metric::InTime, "in_time"),
    (Metric::Excluded, "left_out"),
    (Metric::FrozenLate, "frozen_late"),
];

/// Fills what the ledger keeps: totals, the budget, the alerts.
pub(super) fn fill_kept(kept: &Kept) {
    for total in &kept.totals {
        let label = total.label.clone();
        match total.metric {
            Metric::Expired => metrics::counter!(EXPIRED, "reason" => label).absolute(total.n),
            metric => {
                if let Some((_, outcome)) = SLO_OUTCOMES.iter().find(|(one, _)| *one == metric) {
                    metrics::counter!(SLO_EVENTS, "channel" => label, "outcome" => *outcome)
                        .absolute(total.n);
                }
            }
        }
    }
    for channel in &kept.channels {
        let name = channel.channel.as_str();
        metrics::gauge!(SLO_BUDGET, "channel" => name)
            .set(channel.budget_left_milli as f64 / 1_000.0);
        for burn in &channel.burns {
            for (window, milli) in [(&burn.long, burn.long_milli), (&burn.short, burn.short_milli)]
            {
                metrics::gauge!(SLO_BURN, "channel" => name, "window" => window.clone())
                    .set(milli as f64 / 1_000.0);
            }
        }
    }
    for state in [AlertState::Pending, AlertState::Firing, AlertState::Acknowledged] {
        for severity in Severity::ALL {
            let of = |alert: &&Alert| alert.state == state && alert.severity == *severity;
            let n = kept.alerts.iter().filter(of).count() as u64;
            metrics::gauge!(ALERTS, "state" => state.as_str(), "severity" => severity.as_str())
                .set(number(n));
        }
    }
    for provider in &kept.providers {
        let fails = kept
            .alerts
            .iter()
            .any(|alert| alert.rule == AlertRule::ProviderFailing && alert.subject == *provider);
        metrics::gauge!(SENDING_HEALTHY, "provider" => provider.clone()).set(if fails {
            0.0
        } else {
            1.0
        });
    }
}

/// This process's clock against the database's.
pub(super) fn fill_clock(offset: i64, uncertainty: Option<i64>) {
    metrics::gauge!(CLOCK_OFFSET).set(offset as f64 / 1e6);
    if let Some(uncertainty) = uncertainty {
        metrics::gauge!(CLOCK_UNCERTAINTY).set(seconds(uncertainty));
    }
}

/// When a loop last went round.
pub(super) fn ticked(name: &'static str, at: Stamp) {
    metrics::gauge!(LAST_TICK, "loop" => name).set(seconds(at.micros()));
    metrics::counter!(LOOP_RESTARTS, "loop" => name).increment(0);
}

/// Counts stay far below 2^53.
fn number(count: u64) -> f64 {
    count as f64
}

fn seconds(micros: i64) -> f64 {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0)).as_secs_f64()
}
