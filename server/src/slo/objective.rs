//! The objective: the share of events that settle in time, its error budget, and how fast that burns.
//!
//! An event belongs to the minute in which it was admitted. A minute is judged once the window of its last
//! event is over, so only whole parts count, and an event that never settles has missed without anybody
//! having to see it. Parts are in UTC. Nothing judged is nothing burnt: no rate is ever no number.

use std::collections::BTreeMap;

use app::model::{
    BURN_RULES, Burn, BurnRule, Channel, SloChannel, SloCounts, SloPage, SloPart, Stamp,
};

use crate::config::{Config, Slo};
use crate::store::{Error, Metric, Store, Tally, Width};

/// One in this many milli-units.
const MILLI: i64 = 1_000;

/// Fewer misses than this page nobody, whatever share they are.
const MISSES_MIN: u64 = 3;

/// The metrics that the objective is made of.
const METRICS: [Metric; 4] =
    [Metric::Admitted, Metric::InTime, Metric::Excluded, Metric::FrozenLate];

const DAY: i64 = 86_400_000_000;
const HOUR: i64 = 3_600_000_000;

/// Counts by part and channel, as the objective sees them.
#[derive(Debug, Clone, Default)]
pub struct Parts(BTreeMap<(Channel, Stamp), SloCounts>);

impl Parts {
    /// From counts that begin at the same width.
    #[must_use]
    pub fn of(tallies: &[Tally]) -> Self {
        #[derive(Default)]
        struct Raw {
            admitted: u64,
            in_time: u64,
            excluded: u64,
            frozen: u64,
        }
        let mut raws: BTreeMap<(Channel, Stamp), Raw> = BTreeMap::new();
        for tally in tallies {
            let Ok(channel) = tally.label.parse::<Channel>() else { continue };
            let raw = raws.entry((channel, tally.at)).or_default();
            match tally.metric {
                Metric::Admitted => raw.admitted += tally.n,
                Metric::InTime => raw.in_time += tally.n,
                Metric::Excluded => raw.excluded += tally.n,
                Metric::FrozenLate => raw.frozen += tally.n,
                _ => {}
            }
        }
        let counted = raws.into_iter().map(|(key, raw)| {
            let judged = raw.admitted.saturating_sub(raw.excluded);
            let in_time = raw.in_time.min(judged);
            let frozen = raw.frozen.min(judged - in_time);
            (key, SloCounts { judged, in_time, frozen, left_out: raw.excluded })
        });
        Self(counted.collect())
    }

    /// All parts of a channel that begin in `from..until`.
    #[must_use]
    pub fn sum(&self, channel: Channel, from: Stamp, until: Stamp) -> SloCounts {
        self.0
            .range((channel, from)..(channel, until))
            .fold(SloCounts::default(), |sum, (_, counts)| sum.plus(*counts))
    }
}

/// Where the newest whole part ends whose events could all have settled.
#[must_use]
pub fn judged_to(now: Stamp, window: i64, width: Width) -> Stamp {
    width.floor(now.plus(-window))
}

/// Thousandths of the rate at which the budget would last exactly its period. What a freeze held is part of
/// the budget, yet no reason to call anybody: the freeze was somebody's act.
#[must_use]
pub fn burn_milli(counts: SloCounts, target_ppm: u64) -> i64 {
    let missed = counts.missed().saturating_sub(counts.frozen);
    let allowed_ppm = 1_000_000_u64.saturating_sub(target_ppm).max(1);
    if counts.judged == 0 {
        return 0;
    }
    let milli = u128::from(missed) * 1_000_000 * MILLI.unsigned_abs() as u128
        / (u128::from(counts.judged) * u128::from(allowed_ppm));
    i64::try_from(milli).unwrap_or(i64::MAX)
}

/// Millionths that settled in time.
#[must_use]
pub fn attained_ppm(counts: SloCounts) -> Option<u64> {
    counts.in_time.saturating_mul(1_000_000).checked_div(counts.judged)
}

/// Thousandths of the error budget that are left; below 0 when it is overdrawn. All of it where nothing was
/// judged.
#[must_use]
pub fn budget_left_milli(counts: SloCounts, target_ppm: u64) -> i64 {
    let allowed_ppm = 1_000_000_u64.saturating_sub(target_ppm).max(1);
    let allowed = u128::from(counts.judged) * u128::from(allowed_ppm);
    let spent = u128::from(counts.missed()) * 1_000_000 * MILLI.unsigned_abs() as u128;
    let spent_milli = spent.checked_div(allowed).unwrap_or(0);
    MILLI.saturating_sub(i64::try_from(spent_milli).unwrap_or(i64::MAX))
}

/// Both windows of a rule, ending where whole parts could be judged.
fn burn(rule: &BurnRule, long: SloCounts, short: SloCounts, slo: &Slo) -> Burn {
    let (long_milli, short_milli) =
        (burn_milli(long, slo.target_ppm), burn_milli(short, slo.target_ppm));
    let is_enough =
        long.judged >= slo.events_min && long.missed().saturating_sub(long.frozen) >= MISSES_MIN;
    Burn {
        rule: rule.rule,
        severity: rule.severity,
        long: rule.long.to_owned(),
        short: rule.short.to_owned(),
        long_counts: long,
        short_counts: short,
        long_milli,
        short_milli,
        factor_milli: rule.factor_milli,
        is_enough,
        is_over: is_enough && long_milli >= rule.factor_milli && short_milli >= rule.factor_milli,
    }
}

/// What was counted, at both widths.
#[derive(Debug, Clone, Default)]
pub struct Counted {
    pub minutes: Parts,
    pub hours: Parts,
}

/// Reads what the windows and the period need: minutes for the windows up to six hours, hours for the rest.
///
/// # Errors
/// When the store does not answer.
pub async fn read(store: &dyn Store, slo: &Slo, now: Stamp) -> Result<Counted, Error> {
    let minutes_to = judged_to(now, slo.window, Width::Minute);
    let hours_to = judged_to(now, slo.window, Width::Hour);
    // The hours end where the last whole one does; the minutes of the hour under way are added for the period.
    let from = minutes_to.plus(-6 * HOUR).min(hours_to);
    let minutes = store.tallies(&METRICS, Width::Minute, from, minutes_to).await?;
    let from = Stamp::from_micros((hours_to.micros() - slo.period_days * DAY).max(0));
    let hours = store.tallies(&METRICS, Width::Hour, from, hours_to).await?;
    Ok(Counted { minutes: Parts::of(&minutes), hours: Parts::of(&hours) })
}

/// The burn rates of one channel.
#[must_use]
pub fn burns(counted: &Counted, channel: Channel, slo: &Slo, now: Stamp) -> Vec<Burn> {
    BURN_RULES
        .iter()
        .map(|rule| {
            // Three days of minutes would say no more than three days of hours.
            let (parts, width) = if rule.long_s > 6 * 3_600 {
                (&counted.hours, Width::Hour)
            } else {
                (&counted.minutes, Width::Minute)
            };
            let until = judged_to(now, slo.window, width);
            let sum = |seconds: i64| parts.sum(channel, until.plus(-seconds * 1_000_000), until);
            burn(rule, sum(rule.long_s), sum(rule.short_s), slo)
        })
        .collect()
}

/// One channel against the objective.
#[must_use]
pub fn channel(counted: &Counted, channel: Channel, slo: &Slo, now: Stamp) -> SloChannel {
    let minutes_to = judged_to(now, slo.window, Width::Minute);
    let hours_to = judged_to(now, slo.window, Width::Hour);
    let rest = counted.minutes.sum(channel, hours_to, minutes_to);
    let from = hours_to.plus(-slo.period_days * DAY);
    let period = counted.hours.sum(channel, from, hours_to).plus(rest);
    let today = Stamp::from_micros(minutes_to.micros() - minutes_to.micros().rem_euclid(DAY));
    let days = (0..slo.period_days)
        .rev()
        .map(|back| {
            let at = today.plus(-back * DAY);
            let counts = counted.hours.sum(channel, at.max(from), at.plus(DAY));
            SloPart { at, counts: if back == 0 { counts.plus(rest) } else { counts } }
        })
        .collect();
    let hours = (0..24)
        .rev()
        .map(|back| {
            let at = hours_to.plus(-back * HOUR);
            let counts = counted.hours.sum(channel, at, at.plus(HOUR));
            SloPart { at, counts: if back == 0 { counts.plus(rest) } else { counts } }
        })
        .collect();
    SloChannel {
        channel,
        period,
        attained_ppm: attained_ppm(period),
        budget_left_milli: budget_left_milli(period, slo.target_ppm),
        burns: burns(counted, channel, slo, now),
        days,
        hours,
    }
}

/// Everything that `/slo` shows.
///
/// # Errors
/// When the store does not answer.
pub async fn page(store: &dyn Store, config: &Config, now: Stamp) -> Result<SloPage, Error> {
    let slo = &config.slo;
    let counted = read(store, slo, now).await?;
    Ok(SloPage {
        target_ppm: slo.target_ppm,
        window_ms: slo.window / 1_000,
        period_days: slo.period_days,
        events_min: slo.events_min,
        judged_to: judged_to(now, slo.window, Width::Minute),
        channels: Channel::ALL.iter().map(|name| channel(&counted, *name, slo, now)).collect(),
        margins: super::margin::advise(store, config, now).await?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: u64 = 995_000;

    fn slo() -> Slo {
        Slo { target_ppm: TARGET, window: 60_000_000, period_days: 30, events_min: 50 }
    }

    fn counts(judged: u64, missed: u64) -> SloCounts {
        SloCounts { judged, in_time: judged - missed, ..SloCounts::default() }
    }

    #[test]
    fn nothing_judged_burns_nothing_and_leaves_the_budget() {
        let none = SloCounts::default();
        assert_eq!(burn_milli(none, TARGET), 0);
        assert_eq!(budget_left_milli(none, TARGET), 1_000);
        assert_eq!(attained_ppm(none), None);
        for rule in &BURN_RULES {
            assert!(!burn(rule, none, none, &slo()).is_over);
        }
    }

    #[test]
    fn one_event_that_missed_pages_nobody() {
        let one = counts(1, 1);
        assert_eq!(burn_milli(one, TARGET), 200_000);
        for rule in &BURN_RULES {
            let burn = burn(rule, one, one, &slo());
            assert!(!burn.is_enough && !burn.is_over);
        }
        let few_of_many = counts(60, 2);
        assert!(
            BURN_RULES.iter().all(|rule| !burn(rule, few_of_many, few_of_many, &slo()).is_over)
        );
    }

    #[test]
    fn a_thousand_events_burn_as_fast_as_they_miss() {
        assert_eq!(burn_milli(counts(1_000, 5), TARGET), 1_000);
        assert_eq!(burn_milli(counts(1_000, 72), TARGET), 14_400);
        let over = |missed| {
            let seen = counts(1_000, missed);
            BURN_RULES.map(|rule| burn(&rule, seen, seen, &slo()).is_over)
        };
        assert_eq!(over(0), [false; 3]);
        assert_eq!(over(4), [false; 3]);
        assert_eq!(over(5), [false, false, true]);
        assert_eq!(over(30), [false, true, true]);
        assert_eq!(over(72), [true; 3]);
        assert_eq!(budget_left_milli(counts(1_000, 5), TARGET), 0);
        assert_eq!(budget_left_milli(counts(1_000, 10), TARGET), -1_000);
        assert_eq!(budget_left_milli(counts(1_000, 1), TARGET), 800);
    }

    #[test]
    fn both_windows_must_burn() {
        let (bad, good) = (counts(1_000, 500), counts(100, 0));
        assert!(!burn(&BURN_RULES[0], bad, good, &slo()).is_over, "it is over already");
        assert!(burn(&BURN_RULES[0], bad, counts(10, 5), &slo()).is_over);
    }

    #[test]
    fn what_a_freeze_held_spends_budget_and_calls_nobody() {
        let held = SloCounts { judged: 1_000, in_time: 0, frozen: 1_000, left_out: 0 };
        assert_eq!(burn_milli(held, TARGET), 0);
        assert!(budget_left_milli(held, TARGET) < 0);
        assert!(!burn(&BURN_RULES[0], held, held, &slo()).is_over);
    }

    #[test]
    fn only_whole_parts_are_judged_and_they_begin_in_utc() {
        let at = |text: &str| Stamp::parse(text).unwrap();
        let now = at("2026-03-29T01:05:59.999999Z");
        assert_eq!(judged_to(now, 60_000_000, Width::Minute), at("2026-03-29T01:04:00Z"));
        assert_eq!(judged_to(now, 60_000_000, Width::Hour), at("2026-03-29T01:00:00Z"));
    }

    #[test]
    fn a_part_counts_what_was_admitted_less_what_was_left_out() {
        let at = Stamp::from_micros(60_000_000);
        let tally = |metric, n| Tally { metric, label: "sms".to_owned(), at, n };
        let parts = Parts::of(&[
            tally(Metric::Admitted, 10),
            tally(Metric::InTime, 6),
            tally(Metric::Excluded, 2),
            tally(Metric::FrozenLate, 1),
        ]);
        let sum = parts.sum(Channel::Sms, at, at.plus(1));
        assert_eq!((sum.judged, sum.missed(), sum.frozen, sum.left_out), (8, 2, 1, 2));
        assert_eq!(parts.sum(Channel::Sms, at.plus(1), at.plus(2)), SloCounts::default());
        assert_eq!(parts.sum(Channel::Email, at, at.plus(1)), SloCounts::default());
        // A window that was changed in between can make more of the one than of the other.
        let odd = Parts::of(&[tally(Metric::InTime, 3), tally(Metric::FrozenLate, 2)]);
        assert_eq!(odd.sum(Channel::Sms, at, at.plus(1)), SloCounts::default());
    }
}
