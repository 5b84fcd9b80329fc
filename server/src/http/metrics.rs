//! Prometheus: which metrics there are, and the only labels they may carry.
//!
//! A label is a closed vocabulary. An id, a code of a provider or anything else that a caller chooses would
//! make a new series with each value and end in a database of its own.

use std::time::Duration;

use app::model::{CallOutcome, Stamp, State};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};

use super::{api, tokens, webhooks};
use crate::admission;
use crate::policy;
use crate::store::Gauges;

/// The labels that a metric may carry.
pub const LABELS: &[&str] =
    &["channel", "provider", "state", "reason", "outcome", "loop", "version"];

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
const LOOP_RESTARTS: &str = "sendonce_loop_restarts_total";

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
    for provider in providers {
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
    for name in [DUPLICATE_EVIDENCE, EXPIRED, LEASES_LOST, OUTSIDE_FAILURES] {
        metrics::counter!(name).absolute(0);
    }
    metrics::gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Ok(handle)
}

fn describe() {
    use metrics::{describe_counter, describe_gauge};
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
    describe_counter!(EXPIRED, "Events whose time ran out.");
    describe_counter!(LEASES_LOST, "Leases that ended without their owner.");
    describe_counter!(LOOP_RESTARTS, "How often a loop had to be started again.");
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
    ] {
        let age = oldest.map_or(0, |at| now.since(at).max(0));
        metrics::gauge!(name).set(seconds(age));
    }
    metrics::gauge!(UNSEALED).set(number(gauges.unsealed));
    metrics::gauge!(OPEN_BREAKERS).set(number(gauges.open_breakers));
    metrics::gauge!(FROZEN).set(if gauges.freezes > 0 { 1.0 } else { 0.0 });
    for (provider, is_paused, is_stopped) in &gauges.pauses {
        for (name, holds) in [(PAUSED, is_paused), (STOPPED, is_stopped)] {
            metrics::gauge!(name, "provider" => provider.clone()).set(f64::from(u8::from(*holds)));
        }
    }
    metrics::counter!(DUPLICATE_EVIDENCE).absolute(gauges.duplicate_calls);
    metrics::gauge!(DATABASE_UP).set(if is_up { 1.0 } else { 0.0 });
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
