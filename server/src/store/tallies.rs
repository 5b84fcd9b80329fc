//! Counts beside the ledger: how many were admitted, settled in time, expired, called, and so on.
//!
//! Each is written in the transaction that makes it true, so a count can neither be lost nor made twice,
//! whatever stops and whoever repeats. A transaction only adds lines to `tally_log`; folding them into
//! minutes, hours and totals is a chore of its own, and every read takes what is not folded yet into account.

use std::collections::BTreeMap;

use app::model::{Channel, Reason, Stamp, State};

use super::engine::{Batch, Engine, Value, same};
use super::rows::{Stored, Write, is_frozen};
use super::{Error, Hold, SqlStore};
use crate::domain::Record;

/// What is counted. The labels are closed vocabularies and names of configured providers, never an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// Events admitted; label: channel; at: admission.
    Admitted,
    /// Settled within the window of the objective; label: channel; at: admission.
    InTime,
    /// Left out of the objective: taken back in time, or admitted with less life than the window; label:
    /// channel; at: admission.
    Excluded,
    /// Neither, and a freeze lay over the window; label: channel; at: admission.
    FrozenLate,
    /// Events whose time ran out; label: reason.
    Expired,
    /// Calls started; label: provider.
    Called,
    /// Calls ended; label: provider and outcome, joined by `|`.
    CallEnded,
    /// Answers to reads; label: provider.
    Read,
    /// Delivered, by the time since the call; label: channel, provider and upper bound in ms, joined by `|`.
    Delivery,
    /// Delivered after the event had expired; label: channel and provider, joined by `|`.
    DeliveredLate,
}

impl Metric {
    pub const ALL: &'static [Self] = &[
        Self::Admitted,
        Self::InTime,
        Self::Excluded,
        Self::FrozenLate,
        Self::Expired,
        Self::Called,
        Self::CallEnded,
        Self::Read,
        Self::Delivery,
        Self::DeliveredLate,
    ];

    /// Its one spelling in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::InTime => "in_time",
            Self::Excluded => "excluded",
            Self::FrozenLate => "frozen_late",
            Self::Expired => "expired",
            Self::Called => "called",
            Self::CallEnded => "call_ended",
            Self::Read => "read",
            Self::Delivery => "delivery",
            Self::DeliveredLate => "delivered_late",
        }
    }
}

impl std::str::FromStr for Metric {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.iter().copied().find(|metric| metric.as_str() == text).ok_or(())
    }
}

/// How wide the parts are into which counts fold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    Minute,
    Hour,
}

impl Width {
    /// In microseconds.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.seconds() * 1_000_000
    }

    const fn seconds(self) -> i64 {
        match self {
            Self::Minute => 60,
            Self::Hour => 3_600,
        }
    }

    /// The start of the part in which this instant lies.
    #[must_use]
    pub const fn floor(self, at: Stamp) -> Stamp {
        Stamp::from_micros(at.micros() - at.micros().rem_euclid(self.micros()))
    }
}

/// One count of one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    pub metric: Metric,
    pub label: String,
    /// Start of its minute or hour; 1970 for a total.
    pub at: Stamp,
    pub n: u64,
}

/// Minutes are kept for so long: a week to look back for peaks, and a day.
const MINUTES_KEPT: i64 = 8 * 86_400_000_000;

/// Hours are kept for so long: the longest period of an objective, and a few days.
const HOURS_KEPT: i64 = 100 * 86_400_000_000;

/// Lines that one pass folds, and old parts that it removes.
const FOLD_MAX: i64 = 5_000;

/// Rows of one statement.
const ROWS_MAX: usize = 500;

/// Freezes that are looked through for one group of late events.
const FREEZES_MAX: i64 = 1_000;

/// Upper bounds of the times from call to delivery, in milliseconds; what took longer has none.
pub const DELIVERY_BOUNDS_MS: [i64; 16] = [
    1_000, 2_000, 3_000, 5_000, 8_000, 10_000, 15_000, 20_000, 30_000, 45_000, 60_000, 120_000,
    300_000, 600_000, 1_800_000, 3_600_000,
];

/// The counts of one transaction.
#[derive(Debug, Default)]
pub(super) struct Counts(BTreeMap<(Metric, String, i64), i64>);

impl Counts {
    pub(super) fn add(&mut self, metric: Metric, label: impl Into<String>, at: Stamp) {
        let minute = Width::Minute.floor(at).micros();
        *self.0.entry((metric, label.into(), minute)).or_insert(0) += 1;
    }

    /// What a decision changes in the counts. True: it settled late, and a freeze may be why.
    fn of(&mut self, before: &Record, write: &Write<'_>, window: i64) -> bool {
        let after = &write.step.record;
        let at = after.updated_at;
        if write.step.call.is_some() {
            self.add(Metric::Called, &after.provider, at);
        }
        if let Some((outcome, ended_at)) = &write.step.call_end {
            self.add(Metric::CallEnded, format!("{}|{outcome}", before.provider), *ended_at);
        }
        for fact in &write.step.facts {
            if fact.kind == app::model::FactKind::Lookup {
                self.add(Metric::Read, &before.provider, fact.at);
            }
        }
        if after.state == State::Expired && before.state != State::Expired {
            self.add(Metric::Expired, after.reason.as_str(), at);
        }
        if after.state == State::Delivered && before.state != State::Delivered {
            self.delivery(before, at);
        }
        if before.settled_at.is_some() || after.settled_at.is_none() {
            return false;
        }
        let channel = after.channel.as_str();
        match judge(after, window) {
            Judged::InTime => self.add(Metric::InTime, channel, after.created_at),
            Judged::Excluded => self.add(Metric::Excluded, channel, after.created_at),
            Judged::Late => return true,
        }
        false
    }

    fn delivery(&mut self, before: &Record, at: Stamp) {
        let label = format!("{}|{}", before.channel, before.provider);
        if at > before.expires_at {
            self.add(Metric::DeliveredLate, &label, at);
        }
        if let Some(started_at) = before.attempt_started_at {
            let took = at.since(started_at).max(0);
            let bound = DELIVERY_BOUNDS_MS.iter().find(|bound| took <= **bound * 1_000);
            let bound = bound.map_or_else(|| "more".to_owned(), i64::to_string);
            self.add(Metric::Delivery, format!("{label}|{bound}"), at);
        }
    }
}

/// What a settled event is to the objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judged {
    InTime,
    Excluded,
    Late,
}

/// The objective asks: of the events that could still be sent when the window ended, how many had settled?
fn judge(record: &Record, window: i64) -> Judged {
    let until = record.created_at.plus(window);
    let is_within = record.settled_at.is_some_and(|at| at <= until);
    let is_taken_back = matches!(
        record.reason,
        Reason::Cancelled | Reason::TokenConsumed | Reason::TokenSuperseded
    );
    match record.state {
        _ if is_taken_back && is_within => Judged::Excluded,
        // Its caller gave it less time than the window; the guardrails on expiry look at those.
        State::Expired if is_within || record.expires_at <= until => Judged::Excluded,
        State::Expired => Judged::Late,
        _ if is_within => Judged::InTime,
        _ => Judged::Late,
    }
}

impl<E: Engine> SqlStore<E> {
    /// Adds what these decisions change in the counts, in their transaction.
    pub(super) async fn count_writes(
        &self,
        tx: &mut E::Tx,
        writes: &[Write<'_>],
    ) -> Result<(), Error> {
        let window = self.env.rules.slo_window;
        let mut counts = Counts::default();
        let mut late: Vec<&Stored> = Vec::new();
        for write in writes {
            if counts.of(&write.before.record, write, window) {
                late.push(write.before);
            }
        }
        if let (Some(first), Some(last)) = (
            late.iter().map(|stored| stored.record.created_at).min(),
            late.iter().map(|stored| stored.record.created_at).max(),
        ) {
            let over = Self::freezes_over(tx, first, last.plus(window)).await?;
            for stored in late {
                let r = &stored.record;
                let until = r.created_at.plus(window);
                let held = over.iter().any(|(freeze, ended_at)| {
                    freeze.since <= until
                        && ended_at.is_none_or(|ended_at| ended_at >= r.created_at)
                        && is_frozen(std::slice::from_ref(freeze), r.channel, &r.provider)
                });
                if held {
                    counts.add(Metric::FrozenLate, r.channel.as_str(), r.created_at);
                }
            }
        }
        Self::write_counts(tx, counts).await
    }

    /// Freezes that were in force at any instant of this span.
    async fn freezes_over(
        tx: &mut E::Tx,
        from: Stamp,
        until: Stamp,
    ) -> Result<Vec<(app::model::Freeze, Option<Stamp>)>, Error> {
        let rows = Self::query(
            tx,
            same(
                "SELECT scope, since, ended_at FROM freezes
                 WHERE since <= $1 AND (ended_at IS NULL OR ended_at >= $2)
                 ORDER BY since DESC LIMIT $3",
            ),
            vec![until.into(), from.into(), FREEZES_MAX.into()],
        )
        .await?;
        rows.into_iter()
            .map(|mut row| {
                let freeze = app::model::Freeze {
                    scope: row.text()?,
                    since: row.stamp()?,
                    actor: String::new(),
                    reason: String::new(),
                    review_at: None,
                    in_flight: 0,
                };
                Ok((freeze, row.maybe_stamp()?))
            })
            .collect()
    }

    /// Adds events that were admitted just now.
    pub(super) async fn count_admitted(
        tx: &mut E::Tx,
        channels: impl IntoIterator<Item = Channel>,
        now: Stamp,
    ) -> Result<(), Error> {
        let mut counts = Counts::default();
        for channel in channels {
            counts.add(Metric::Admitted, channel.as_str(), now);
        }
        Self::write_counts(tx, counts).await
    }

    pub(super) async fn write_counts(tx: &mut E::Tx, counts: Counts) -> Result<(), Error> {
        if counts.0.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new("INSERT INTO tally_log (metric, label, at, n) VALUES ");
        let row = |((metric, label, at), n): ((Metric, String, i64), i64)| {
            vec![metric.as_str().into(), label.into(), at.into(), n.into()]
        };
        batch.rows(counts.0.into_iter().map(row).collect());
        Self::execute_batch(tx, batch).await.map(|_| ())
    }

    /// Folds what waits; true when there may be more.
    pub(super) async fn fold(&self, hold: Hold) -> Result<bool, Error> {
        let mut tx = self.engine.begin().await?;
        Self::check_hold(&mut tx, hold).await?;
        let taken = Self::query(
            &mut tx,
            same(
                "DELETE FROM tally_log WHERE tally_no IN
                   (SELECT tally_no FROM tally_log ORDER BY tally_no LIMIT $1)
                 RETURNING metric, label, at, n",
            ),
            vec![FOLD_MAX.into()],
        )
        .await?;
        let more = taken.len() as i64 >= FOLD_MAX;
        // In one order everywhere, so that two who fold at once cannot wait for each other.
        let mut sums: BTreeMap<(i64, String, String, i64), i64> = BTreeMap::new();
        for mut row in taken {
            let (metric, label, at, n) = (row.text()?, row.text()?, row.stamp()?, row.int()?);
            for (width, start) in
                [(0, 0), (60, at.micros()), (3_600, Width::Hour.floor(at).micros())]
            {
                *sums.entry((width, metric.clone(), label.clone(), start)).or_insert(0) += n;
            }
        }
        let rows: Vec<Vec<Value>> = sums
            .into_iter()
            .map(|((width, metric, label, at), n)| {
                vec![width.into(), metric.into(), label.into(), at.into(), n.into()]
            })
            .collect();
        for group in rows.chunks(ROWS_MAX) {
            let mut batch = Batch::new("INSERT INTO tallies (width, metric, label, at, n) VALUES ");
            batch.rows(group.to_vec());
            batch.push(
                " ON CONFLICT (width, metric, label, at) DO UPDATE SET n = tallies.n + excluded.n",
            );
            Self::execute_batch(&mut tx, batch).await?;
        }
        let now = self.env.clock.now();
        for (width, kept) in [(60_i64, MINUTES_KEPT), (3_600, HOURS_KEPT)] {
            Self::execute(
                &mut tx,
                same(
                    "DELETE FROM tallies WHERE (width, metric, label, at) IN
                       (SELECT width, metric, label, at FROM tallies
                        WHERE width = $1 AND at < $2 LIMIT $3)",
                ),
                vec![width.into(), now.plus(-kept).into(), FOLD_MAX.into()],
            )
            .await?;
        }
        E::commit(tx).await?;
        Ok(more)
    }

    /// Counts of these parts, oldest first; parts without a count are not there.
    pub(super) async fn tallies_of(
        tx: &mut E::Tx,
        metrics: &[Metric],
        width: Width,
        from: Stamp,
        until: Stamp,
    ) -> Result<Vec<Tally>, Error> {
        let mut batch = Batch::new(
            "SELECT metric, label, at, CAST(SUM(n) AS BIGINT) FROM (
             SELECT metric, label, at, n FROM tallies WHERE width = ",
        );
        batch.bind(width.seconds()).push(" AND at >= ").bind(from);
        batch.push(" AND at < ").bind(until).push(" AND metric IN ");
        batch.list(metrics.iter().map(|metric| metric.as_str()));
        batch.push(" UNION ALL SELECT metric, label, at - at % ").bind(width.micros());
        batch.push(" AS at, n FROM tally_log WHERE at >= ").bind(from);
        batch.push(" AND at < ").bind(until).push(" AND metric IN ");
        batch.list(metrics.iter().map(|metric| metric.as_str()));
        batch.push(") AS counted GROUP BY metric, label, at ORDER BY at, metric, label");
        Self::query_batch(tx, batch).await?.into_iter().map(read_tally).collect()
    }

    /// All counts since the beginning.
    pub(super) async fn totals_of(tx: &mut E::Tx) -> Result<Vec<Tally>, Error> {
        let rows = Self::query(
            tx,
            same(
                "SELECT metric, label, at, CAST(SUM(n) AS BIGINT) FROM (
                   SELECT metric, label, at, n FROM tallies WHERE width = 0
                   UNION ALL SELECT metric, label, 0 AS at, n FROM tally_log) AS counted
                 GROUP BY metric, label, at ORDER BY metric, label",
            ),
            Vec::new(),
        )
        .await?;
        rows.into_iter().map(read_tally).collect()
    }
}

fn read_tally(mut row: super::engine::Row) -> Result<Tally, Error> {
    let metric = row.text()?;
    Ok(Tally {
        metric: metric.parse().map_err(|()| Error::Inconsistent {
            table: "tallies",
            column: "metric",
            row: metric,
        })?,
        label: row.text()?,
        at: row.stamp()?,
        n: u64::try_from(row.int()?).unwrap_or(0),
    })
}
