//! What is wrong, if anything: from figures and a time to what was seen of each condition.
//!
//! Pure. Each condition has a bound where it opens and a lower one where it counts as over, so that a figure
//! at the bound does not ring twice. What a freeze holds back is no fault of the workers: ages leave it out,
//! and burn rates are not looked at while a freeze lies over a channel or has just ended.

use std::collections::BTreeMap;

use app::model::{AlertRule, Burn, CallOutcome, Channel, Reason, Severity, Stamp};

use crate::config::Config;
use crate::store::{Figures, Metric};

/// What was seen of one condition. There is one a rule and subject, however many things it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub rule: AlertRule,
    /// A channel, provider or reason; empty where the rule is about all.
    pub subject: String,
    pub severity: Severity,
    pub is_over: bool,
    /// Below the lower bound too. Neither: as it was.
    pub is_clear: bool,
    /// Fires at the first sight.
    pub is_at_once: bool,
    pub count: u64,
    pub oldest_at: Option<Stamp>,
    pub value: i64,
}

/// A bound is over once this many tenths of it are not reached any more.
const CLEAR_TENTHS: i64 = 8;

/// After a freeze its events are let go at a pace and settle late.
const THAW: i64 = 600_000_000;

/// Ends of calls with a provider before anything is said about it.
const CALLS_MIN: u64 = 5;

/// Counts of conditions by time go back so far.
pub const RECENT: i64 = 600_000_000;

fn seen(rule: AlertRule, severity: Severity) -> Seen {
    Seen {
        rule,
        subject: String::new(),
        severity,
        is_over: false,
        is_clear: true,
        is_at_once: false,
        count: 0,
        oldest_at: None,
        value: 0,
    }
}

/// A value against its bound, with the lower bound below it.
fn against(mut seen: Seen, value: i64, bound: i64) -> Seen {
    seen.value = value;
    seen.is_over = value > bound;
    seen.is_clear = value <= bound.saturating_mul(CLEAR_TENTHS) / 10;
    seen
}

fn aged(rule: AlertRule, severity: Severity, of: app::model::Age, bound: i64, now: Stamp) -> Seen {
    let age = of.oldest_at.filter(|_| of.count.count > 0).map_or(0, |at| now.since(at).max(0));
    Seen {
        count: of.count.count,
        oldest_at: of.oldest_at,
        ..against(seen(rule, severity), age, bound)
    }
}

/// Everything that can be seen now. Conditions that are not listed are over.
#[must_use]
pub fn look(
    figures: &Figures,
    burns: &BTreeMap<Channel, Vec<Burn>>,
    config: &Config,
    now: Stamp,
) -> Vec<Seen> {
    let alerts = &config.alerts;
    let duplicates = figures.duplicates;
    let mut all = vec![
        Seen {
            is_at_once: true,
            count: duplicates.count.count,
            oldest_at: duplicates.oldest_at,
            ..against(
                seen(AlertRule::DuplicateDispatch, Severity::Page),
                i64::try_from(duplicates.count.count).unwrap_or(i64::MAX),
                0,
            )
        },
        aged(AlertRule::QueueAge, Severity::Page, figures.due, alerts.queue_age, now),
        aged(
            AlertRule::BackingOffAge,
            Severity::Ticket,
            figures.backing_off,
            alerts.backing_off_age,
            now,
        ),
        aged(AlertRule::UnknownAge, Severity::Page, figures.unknown, alerts.unknown_age, now),
        aged(AlertRule::SealLag, Severity::Ticket, figures.unsealed, alerts.seal_lag, now),
        aged(AlertRule::LookupAllowance, Severity::Ticket, figures.reads_due, alerts.read_lag, now),
        Seen {
            count: figures.due.count.count,
            oldest_at: figures.due.oldest_at,
            ..against(
                seen(AlertRule::OutboxBacklog, Severity::Ticket),
                i64::try_from(figures.due.count.count).unwrap_or(i64::MAX),
                i64::try_from(alerts.backlog_max).unwrap_or(i64::MAX),
            )
        },
    ];
    all.extend(frozen(figures, config, now));
    all.extend(expired(figures, config));
    all.extend(unmatched(figures, config));
    all.extend(failing(figures, config, now));
    all.push(silent(figures, config, now));
    all.push(clocks(figures, config, now));
    for (channel, burns) in burns {
        let is_held = holds_burn(figures, config, *channel, now);
        all.extend(burns.iter().map(|burn| burning(burn, *channel, is_held)));
    }
    all
}

/// A freeze whose review is due, or which has none and is old, with something that waits behind it.
fn frozen(figures: &Figures, config: &Config, now: Stamp) -> Vec<Seen> {
    figures
        .freezes
        .iter()
        .map(|(freeze, waits)| {
            let due_at = freeze.review_at.unwrap_or(freeze.since.plus(config.alerts.freeze_age));
            let is_due = now > due_at && waits.count.count > 0;
            Seen {
                subject: freeze.scope.clone(),
                is_over: is_due,
                is_clear: !is_due,
                count: waits.count.count,
                oldest_at: waits.oldest_at,
                value: now.since(freeze.since),
                ..seen(AlertRule::FrozenReview, Severity::Page)
            }
        })
        .collect()
}

fn label_sums(figures: &Figures, metric: Metric) -> BTreeMap<&str, u64> {
    let mut sums = BTreeMap::new();
    for tally in figures.recent.iter().filter(|tally| tally.metric == metric) {
        *sums.entry(tally.label.as_str()).or_insert(0) += tally.n;
    }
    sums
}

fn expired(figures: &Figures, config: &Config) -> Vec<Seen> {
    let sums = label_sums(figures, Metric::Expired);
    // What ran out behind a freeze, or after a call, has rules of its own.
    [Reason::ExpiredInQueue, Reason::ExpiredBeforeCall]
        .iter()
        .map(|reason| {
            let n = sums.get(reason.as_str()).copied().unwrap_or(0);
            let bound = i64::try_from(config.alerts.expired_max).unwrap_or(i64::MAX);
            Seen {
                subject: reason.as_str().to_owned(),
                count: n,
                ..against(
                    seen(AlertRule::ExpiredBeforeDispatch, Severity::Page),
                    i64::try_from(n).unwrap_or(i64::MAX),
                    bound,
                )
            }
        })
        .collect()
}

fn unmatched(figures: &Figures, config: &Config) -> Vec<Seen> {
    figures
        .unmatched
        .iter()
        .map(|(provider, age)| Seen {
            subject: provider.clone(),
            count: age.count.count,
            oldest_at: age.oldest_at,
            ..against(
                seen(AlertRule::CallbackUnmatched, Severity::Ticket),
                i64::try_from(age.count.count).unwrap_or(i64::MAX),
                i64::try_from(config.alerts.unmatched_max).unwrap_or(i64::MAX),
            )
        })
        .collect()
}

/// A provider that takes nothing, or that has stopped us. "Too many" is no outage, and a refusal of one
/// recipient is none of the provider.
fn failing(figures: &Figures, config: &Config, now: Stamp) -> Vec<Seen> {
    let mut ends: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for tally in figures.recent.iter().filter(|tally| tally.metric == Metric::CallEnded) {
        let Some((provider, outcome)) = tally.label.split_once('|') else { continue };
        let (good, bad) = ends.entry(provider).or_default();
        match outcome.parse() {
            Ok(CallOutcome::Accepted | CallOutcome::RefusedPermanently) => *good += tally.n,
            Ok(CallOutcome::RateLimited) | Err(_) => {}
            Ok(_) => *bad += tally.n,
        }
    }
    config
        .providers
        .keys()
        .map(|provider| {
            let (good, bad) = ends.get(provider.as_str()).copied().unwrap_or_default();
            let stopped = figures
                .pauses
                .iter()
                .find(|(name, _, code)| name == provider && code != "rate_limited");
            let is_over = stopped.is_some() || (good == 0 && bad >= CALLS_MIN);
            Seen {
                subject: provider.clone(),
                is_over,
                is_clear: stopped.is_none() && (good > 0 || bad == 0),
                count: bad,
                oldest_at: stopped.map(|(_, since, _)| *since).filter(|since| *since <= now),
                value: i64::try_from(bad).unwrap_or(i64::MAX),
                ..seen(AlertRule::ProviderFailing, Severity::Page)
            }
        })
        .collect()
}

/// A process that fell silent, one whose loops do, and a part that no living process runs.
fn silent(figures: &Figures, config: &Config, now: Stamp) -> Seen {
    let silence = config.alerts.silence;
    let is_alive = |seen_at: Stamp| now.since(seen_at) <= silence;
    let mut ages: Vec<i64> = figures
        .workers
        .iter()
        .map(|worker| now.since(worker.seen_at))
        // Silent for an hour is history: what it did, another does, or the roles below say so.
        .filter(|age| *age > silence && *age < 3_600_000_000)
        .collect();
    for gauge in figures.nodes.iter().filter(|gauge| gauge.name == LOOP_AGE) {
        if is_alive(gauge.at) && gauge.value > silence {
            ages.push(gauge.value);
        }
    }
    for role in ["dispatch", "reconcile"] {
        let runs = figures
            .workers
            .iter()
            .any(|worker| is_alive(worker.seen_at) && worker.roles.split(',').any(|r| r == role));
        if !runs {
            ages.push(silence + 1);
        }
    }
    let oldest = ages.iter().copied().max().unwrap_or(0);
    Seen {
        count: ages.len() as u64,
        oldest_at: (oldest > 0).then(|| now.plus(-oldest)),
        is_over: !ages.is_empty(),
        is_clear: ages.is_empty(),
        value: oldest,
        ..seen(AlertRule::WorkerTicks, Severity::Page)
    }
}

/// The age of the loop of a process that was longest not round, in microseconds.
pub const LOOP_AGE: &str = "loop_age";
/// What a process adds to its own clock, in microseconds.
pub const CLOCK_OFFSET: &str = "clock_offset";

fn clocks(figures: &Figures, config: &Config, now: Stamp) -> Seen {
    let silence = config.alerts.silence;
    let offsets: Vec<i64> = figures
        .nodes
        .iter()
        .filter(|gauge| gauge.name == CLOCK_OFFSET && now.since(gauge.at) <= silence)
        .map(|gauge| gauge.value.saturating_abs())
        .collect();
    let bound = config.alerts.clock_offset;
    let far = offsets.iter().filter(|offset| **offset > bound).count();
    Seen {
        count: far as u64,
        ..against(
            seen(AlertRule::ClockOffset, Severity::Ticket),
            offsets.into_iter().max().unwrap_or(0),
            bound,
        )
    }
}

/// A freeze lies over this channel, or has just ended.
fn holds_burn(figures: &Figures, config: &Config, channel: Channel, now: Stamp) -> bool {
    let covers = |scope: &str| match scope.split_once(':') {
        None => true,
        Some(("channel", name)) => name == channel.as_str(),
        Some(("provider", name)) => config
            .routes
            .get(&channel)
            .is_some_and(|names| names.iter().any(|routed| routed == name)),
        Some(_) => false,
    };
    figures.freezes.iter().any(|(freeze, _)| covers(&freeze.scope))
        || figures.thawed.iter().any(|(scope, ended_at)| {
            covers(scope) && now.since(*ended_at) < config.slo.window + THAW
        })
}

fn burning(burn: &Burn, channel: Channel, is_held: bool) -> Seen {
    Seen {
        subject: channel.as_str().to_owned(),
        is_over: burn.is_over && !is_held,
        // The short window says that it goes on.
        is_clear: burn.short_milli < burn.factor_milli,
        count: burn.long_counts.missed(),
        value: burn.long_milli,
        ..seen(burn.rule, burn.severity)
    }
}
