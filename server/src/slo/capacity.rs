//! How much of everything a load needs, and which of the figures are guesses.
//!
//! Integers throughout: rates in thousandths a second, so that two machines say the same.

use std::collections::BTreeMap;

use app::model::{CapacityInput, CapacityNeed, CapacityPage, Source, Stamp};

use crate::config::Config;
use crate::store::{Error, Metric, Store, Width};

/// Days that are looked back on.
pub const DAYS: i64 = 7;

const DAY: i64 = 86_400_000_000;

/// Assumed where nothing was admitted yet and nothing is given: 10 a second.
const PEAK_GUESS: u64 = 10_000;

/// How much higher the busiest second is than the busiest minute, in thousandths.
const BURST: u64 = 2_000;

/// What a row takes on disk with its indexes.
const ROW_BYTES: u64 = 700;

/// Rows of an event beside its facts: record, admission, attempt, call.
const ROWS_BESIDE_FACTS: u64 = 4;

/// Facts of an event that goes well, without its reads: admitted, claimed, call, accepted, settled.
const FACTS: u64 = 5;

/// Connections that one process opens to PostgreSQL.
const CONNECTIONS: u64 = 16;

/// Connections beside the processes: commands, backups, monitoring.
const CONNECTIONS_SPARE: u64 = 5;

/// What was seen in the last days.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Events admitted in the busiest minute; none where nothing was admitted.
    pub busiest_minute: Option<u64>,
    /// Events admitted on the busiest day (24 h in UTC).
    pub busiest_day: Option<u64>,
    /// Thousandths of a read an event.
    pub reads_milli: Option<u64>,
}

/// What is asked instead of what was seen or is assumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Thousandths of an admission a second.
    pub peak_milli: Option<u64>,
    pub call_ms: u64,
    pub read_ms: u64,
    /// How long an unknown outcome may have to be read.
    pub lifetime_s: u64,
    /// How long a part of the events may be late (a partition, a freeze), and in what time they follow.
    pub delay_s: u64,
    pub catch_up_s: u64,
    pub processes: u64,
    pub retention_days: u64,
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            peak_milli: None,
            call_ms: 500,
            read_ms: 300,
            lifetime_s: 1_800,
            delay_s: 60,
            catch_up_s: 300,
            processes: 1,
            retention_days: 90,
        }
    }
}

/// Reads the load of the last seven days from the counts.
///
/// # Errors
/// When the store does not answer.
pub async fn observe(store: &dyn Store, now: Stamp) -> Result<Load, Error> {
    let from = Stamp::from_micros((now.micros() - DAYS * DAY).max(0));
    let until = Width::Minute.floor(now);
    let minutes = store.tallies(&[Metric::Admitted], Width::Minute, from, until).await?;
    let reads = store.tallies(&[Metric::Read], Width::Hour, from, until).await?;
    let mut by_minute: BTreeMap<Stamp, u64> = BTreeMap::new();
    let mut by_day: BTreeMap<i64, u64> = BTreeMap::new();
    for tally in &minutes {
        *by_minute.entry(tally.at).or_insert(0) += tally.n;
        *by_day.entry(tally.at.micros().div_euclid(DAY)).or_insert(0) += tally.n;
    }
    let admitted: u64 = by_minute.values().sum();
    let reads: u64 = reads.iter().map(|tally| tally.n).sum();
    Ok(Load {
        busiest_minute: by_minute.values().copied().max(),
        busiest_day: by_day.values().copied().max(),
        reads_milli: (reads * 1_000).checked_div(admitted),
    })
}

/// Reads of one outcome in this time: at once ever more seldom, as the rules plan them.
#[must_use]
pub fn reads_within(first: i64, most: i64, time: i64) -> u64 {
    let (mut at, mut gap, mut reads) = (0_i64, first.max(1), 0);
    while at.saturating_add(gap) <= time {
        at += gap;
        reads += 1;
        gap = gap.saturating_mul(2).min(most.max(first));
        if gap == most.max(first) {
            // From here on evenly.
            return reads + u64::try_from((time - at) / gap).unwrap_or(0);
        }
    }
    reads
}

fn milli_text(milli: u64) -> String {
    format!("{}.{}", milli / 1_000, milli % 1_000 / 100)
}

fn bytes_text(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 10_000_000_000 => format!("{} GB", bytes / 1_000_000_000),
        bytes => format!("{} MB", bytes.div_ceil(1_000_000)),
    }
}

/// Thousandths a second times milliseconds, as busy seats; at least one.
fn seats(rate_milli: u64, ms: u64, processes: u64) -> u64 {
    rate_milli.saturating_mul(ms).div_ceil(1_000_000).div_ceil(processes.max(1)).max(1)
}

struct Plan {
    inputs: Vec<CapacityInput>,
    needs: Vec<CapacityNeed>,
}

impl Plan {
    fn input(&mut self, name: &str, value: String, source: Source) {
        self.inputs.push(CapacityInput { name: name.to_owned(), value, source });
    }

    fn need(&mut self, name: &str, key: &str, value: u64, has: Option<u64>, why: String) {
        self.needs.push(CapacityNeed {
            name: name.to_owned(),
            key: key.to_owned(),
            value: value.to_string(),
            configured: has.map(|has| has.to_string()),
            is_short: has.is_some_and(|has| has < value),
            why,
        });
    }

    fn figure(&mut self, name: &str, value: String, why: String) {
        self.needs.push(CapacityNeed {
            name: name.to_owned(),
            key: String::new(),
            value,
            configured: None,
            is_short: false,
            why,
        });
    }
}

/// What this load needs.
#[must_use]
pub fn plan(load: &Load, ask: &Ask, config: &Config) -> CapacityPage {
    let mut plan = Plan { inputs: Vec::new(), needs: Vec::new() };
    let given = Ask::default();
    let guess_or_given =
        |value: u64, default: u64| if value == default { Source::Guess } else { Source::Given };
    let peak = match (ask.peak_milli, load.busiest_minute) {
        (Some(peak), _) => {
            plan.input("Peak admissions a second", milli_text(peak), Source::Given);
            peak
        }
        (None, Some(minute)) => {
            plan.input("Busiest minute of the last 7 days", minute.to_string(), Source::Measured);
            plan.input(
                "Busiest second against its minute, times",
                milli_text(BURST),
                Source::Guess,
            );
            (minute.saturating_mul(BURST) / 60).max(1)
        }
        (None, None) => {
            plan.input("Peak admissions a second", milli_text(PEAK_GUESS), Source::Guess);
            PEAK_GUESS
        }
    };
    plan.input(
        "A call takes, ms",
        ask.call_ms.to_string(),
        guess_or_given(ask.call_ms, given.call_ms),
    );
    plan.input(
        "A read takes, ms",
        ask.read_ms.to_string(),
        guess_or_given(ask.read_ms, given.read_ms),
    );
    let policy = config.policy();
    let timeout_ms = u64::try_from(policy.call_timeout / 1_000).unwrap_or(0);
    plan.input("A call may take, ms", timeout_ms.to_string(), Source::Configured);
    let sent = reads_within(policy.first_poll, policy.max_poll, policy.poll_for);
    plan.input("Reads of a sent message at most", sent.to_string(), Source::Configured);
    let lifetime = i64::try_from(ask.lifetime_s).unwrap_or(0).saturating_mul(1_000_000);
    let unknown = reads_within(policy.first_poll, policy.max_poll, lifetime);
    plan.input(
        "An unknown outcome can be read for, s",
        ask.lifetime_s.to_string(),
        guess_or_given(ask.lifetime_s, given.lifetime_s),
    );
    plan.input("Reads of an unknown outcome at most", unknown.to_string(), Source::Configured);
    if let Some(reads) = load.reads_milli {
        plan.input("Reads an event in the last 7 days", milli_text(reads), Source::Measured);
    }
    plan.input(
        "A part comes late by, s",
        ask.delay_s.to_string(),
        guess_or_given(ask.delay_s, given.delay_s),
    );
    plan.input(
        "And is to have followed within, s",
        ask.catch_up_s.to_string(),
        guess_or_given(ask.catch_up_s, given.catch_up_s),
    );
    plan.input(
        "Processes that dispatch",
        ask.processes.to_string(),
        guess_or_given(ask.processes, given.processes),
    );
    let per_day = load.busiest_day.unwrap_or(peak.saturating_mul(86_400) / 1_000 / 10);
    let day_source = if load.busiest_day.is_some() { Source::Measured } else { Source::Guess };
    plan.input("Events a day", per_day.to_string(), day_source);

    let headroom = peak.saturating_mul(ask.delay_s) / ask.catch_up_s.max(1);
    let total = peak.saturating_add(headroom);
    plan.figure(
        "Headroom for what comes late, calls a second",
        milli_text(headroom),
        format!("{} s of the peak within {} s", ask.delay_s, ask.catch_up_s),
    );
    let has = Some(config.dispatch.workers as u64);
    let why = "peak and headroom, times the time of a call; for each channel of each process";
    let workers = seats(total, ask.call_ms, ask.processes);
    plan.need("Dispatch workers", "dispatch.workers", workers, has, why.to_owned());
    plan.need(
        "Dispatch workers while a provider hangs",
        "dispatch.workers",
        seats(peak, timeout_ms, ask.processes),
        has,
        "the peak, each call until its timeout; fewer let events wait".to_owned(),
    );
    let reads = total.saturating_mul(sent.max(1));
    plan.need(
        "Reconcile workers",
        "reconcile.workers",
        seats(reads, ask.read_ms, ask.processes),
        Some(config.reconcile.workers as u64),
        "each sent message read as often as permitted".to_owned(),
    );
    plan.figure(
        "Reads that the provider must allow, a minute",
        (reads.saturating_mul(60) / 1_000).to_string(),
        "each sent message read as often as permitted".to_owned(),
    );
    plan.figure(
        "The same while every outcome is unknown",
        (peak.saturating_mul(unknown).saturating_mul(60) / 1_000).to_string(),
        "a provider that takes messages and does not say so".to_owned(),
    );
    plan.figure(
        "Database connections",
        (ask.processes * CONNECTIONS + CONNECTIONS_SPARE).to_string(),
        format!("{CONNECTIONS} a process on PostgreSQL, and {CONNECTIONS_SPARE} for commands"),
    );
    let facts = FACTS + load.reads_milli.map_or(sent, |milli| milli.div_ceil(1_000));
    // Each fact has its leaf in the log.
    let rows = per_day.saturating_mul(ROWS_BESIDE_FACTS + 2 * facts);
    plan.figure(
        "Rows a day",
        rows.to_string(),
        format!("{} an event", ROWS_BESIDE_FACTS + 2 * facts),
    );
    for days in [30, ask.retention_days, 365] {
        plan.figure(
            &format!("Storage for {days} days"),
            bytes_text(rows.saturating_mul(ROW_BYTES).saturating_mul(days)),
            format!("{ROW_BYTES} bytes a row with its indexes, a guess"),
        );
    }
    CapacityPage { inputs: plan.inputs, needs: plan.needs }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::parse("test", "", std::iter::empty()).expect("the defaults are valid")
    }

    fn value(page: &CapacityPage, name: &str) -> String {
        let found = page.needs.iter().find(|need| need.name == name);
        found.unwrap_or_else(|| panic!("no {name}")).value.clone()
    }

    #[test]
    fn reads_get_ever_more_seldom_and_then_stay_even() {
        const S: i64 = 1_000_000;
        // At 1, 3, 7, 15, 31 s; then every 30 s.
        assert_eq!(reads_within(S, 30 * S, 0), 0);
        assert_eq!(reads_within(S, 30 * S, S), 1);
        assert_eq!(reads_within(S, 30 * S, 45 * S), 5);
        assert_eq!(reads_within(S, 30 * S, 61 * S), 6);
        assert_eq!(reads_within(S, 30 * S, 1_831 * S), 65);
        assert_eq!(reads_within(S, S, 10 * S), 10);
        assert_eq!(reads_within(5 * S, S, 10 * S), 2, "never more often than at first");
    }

    #[test]
    fn a_given_peak_is_sized_and_what_is_short_is_said() {
        let ask = Ask { peak_milli: Some(100_000), ..Ask::default() };
        let page = plan(&Load::default(), &ask, &config());
        // 100/s and 20/s of headroom, half a second each.
        assert_eq!(value(&page, "Dispatch workers"), "60");
        assert_eq!(value(&page, "Dispatch workers while a provider hangs"), "500");
        assert_eq!(value(&page, "Reads that the provider must allow, a minute"), "36000");
        assert!(page.needs.iter().any(|need| need.is_short && need.key == "dispatch.workers"));
        let two = plan(&Load::default(), &Ask { processes: 2, ..ask }, &config());
        assert_eq!(value(&two, "Dispatch workers"), "30");
        assert_eq!(value(&two, "Database connections"), "37");
    }

    #[test]
    fn what_was_measured_is_used_and_guesses_are_called_guesses() {
        let load =
            Load { busiest_minute: Some(60), busiest_day: Some(1_000), reads_milli: Some(1_500) };
        let page = plan(&load, &Ask::default(), &config());
        let source = |name: &str| {
            page.inputs.iter().find(|input| input.name == name).map(|input| input.source)
        };
        assert_eq!(source("Busiest minute of the last 7 days"), Some(Source::Measured));
        assert_eq!(source("A call takes, ms"), Some(Source::Guess));
        assert_eq!(source("Reads of a sent message at most"), Some(Source::Configured));
        assert_eq!(value(&page, "Dispatch workers"), "2");
        assert_eq!(value(&page, "Rows a day"), "18000");
        let nothing = plan(&Load::default(), &Ask::default(), &config());
        let peak = nothing.inputs.iter().find(|input| input.name == "Peak admissions a second");
        assert_eq!(peak.map(|input| input.source), Some(Source::Guess));
    }
}
