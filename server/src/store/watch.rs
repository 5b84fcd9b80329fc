//! What the watch looks at and keeps: figures for the rules, alerts, and what was told to whom.

use app::model::{
    Age, Alert, AlertState, DeliveryTrouble, Detail, FactKind, Freeze, Stamp, WorkerView,
};
use async_trait::async_trait;

use super::engine::{Batch, Engine, Row, Value, same};
use super::freezes::{COUNT_MAX, capped};
use super::tallies::{Metric, Tally, Width};
use super::{Accounts, Error, Hold, SqlStore};

/// Open alerts there can be: rules times channels, providers and reasons stay far below.
const ALERTS_MAX: i64 = 500;

/// Alerts that are over and shown.
const PAST_MAX: i64 = 50;

/// Alerts that are over are kept for 90 days.
const PAST_KEPT: i64 = 90 * 86_400_000_000;

/// Rows that one pass removes.
const TRIM_MAX: i64 = 500;

/// A process that has said nothing of itself for a day is history.
const GAUGES_KEPT: i64 = 86_400_000_000;

/// Duplicates older than this are no alert any more; the facts stay.
const DUPLICATES_WITHIN: i64 = 3_600_000_000;

/// A callback may come before the answer that makes its message known.
const UNMATCHED_AFTER: i64 = 60_000_000;

/// One number that a process knows of itself alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeGauge {
    pub worker_id: String,
    pub name: String,
    pub value: i64,
    pub at: Stamp,
}

/// What the rules judge.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    pub due: Age,
    pub backing_off: Age,
    pub unknown: Age,
    /// Reads whose time has come.
    pub reads_due: Age,
    /// Duplicate evidence of the last hour, and records of the last hour with more calls than their facts authorise.
    pub duplicates: Age,
    /// Facts that are not yet sealed.
    pub unsealed: Age,
    /// Each freeze in force with what waits in its scope.
    pub freezes: Vec<(Freeze, Age)>,
    /// Freezes that ended lately: scope and end.
    pub thawed: Vec<(String, Stamp)>,
    pub workers: Vec<WorkerView>,
    pub nodes: Vec<NodeGauge>,
    /// Providers that are paused: name, since, code.
    pub pauses: Vec<(String, Stamp, String)>,
    /// Callbacks since then that are about no attempt of ours, after a while in which a late answer could have
    /// made them known; by provider.
    pub unmatched: Vec<(String, Age)>,
    /// Counts by minute since the instant that was asked for.
    pub recent: Vec<Tally>,
}

/// What becomes of an alert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertChange {
    pub alert: Alert,
    pub is_new: bool,
    /// Seen, but not for long enough to have been an alert: forget it.
    pub is_dropped: bool,
    /// `firing` or `resolved`: to be told to all targets.
    pub tell: Option<&'static str>,
}

/// Something to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub alert: Alert,
    pub target: String,
    /// `firing` or `resolved`.
    pub event: String,
    pub tries: u32,
}

/// How telling it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryEnd {
    Done,
    /// Taken; to be said again then, while the alert is open.
    Again {
        at: Stamp,
    },
    /// Not taken; tried again then.
    Failed {
        code: String,
        next_at: Stamp,
    },
    GivenUp {
        code: String,
    },
}

/// The watch's verbs.
#[async_trait]
pub trait Watch: Send + Sync {
    /// Folds counts and removes old ones, in bounded steps. True: there may be more.
    async fn fold_tallies(&self, hold: Hold) -> Result<bool, Error>;

    /// Counts of these parts, oldest first, also those that are not folded yet.
    async fn tallies(
        &self,
        metrics: &[Metric],
        width: Width,
        from: Stamp,
        until: Stamp,
    ) -> Result<Vec<Tally>, Error>;

    /// All counts since the database was made.
    async fn totals(&self) -> Result<Vec<Tally>, Error>;

    /// What the rules judge; counts since `recent`.
    async fn figures(&self, recent: Stamp) -> Result<Figures, Error>;

    /// Writes what a process knows of itself.
    async fn keep_node_gauges(&self, worker_id: &str, values: &[(&str, i64)]) -> Result<(), Error>;

    /// Alerts that are not resolved.
    async fn open_alerts(&self) -> Result<Vec<Alert>, Error>;

    /// The newest that are over.
    async fn past_alerts(&self) -> Result<Vec<Alert>, Error>;

    /// Writes changes, and what is to be told to these targets, in one commit. An alert that somebody has
    /// changed since it was read is left as it is.
    async fn change_alerts(
        &self,
        hold: Hold,
        changes: &[AlertChange],
        targets: &[String],
    ) -> Result<(), Error>;

    /// Somebody is on it; a fact. False: it is not firing (any more).
    async fn acknowledge(&self, alert_id: &str, actor: &str, reason: &str) -> Result<bool, Error>;

    /// What is to be told now, oldest first.
    async fn due_deliveries(&self, limit: usize) -> Result<Vec<Delivery>, Error>;

    /// How telling it went.
    async fn end_delivery(&self, delivery: &Delivery, end: &DeliveryEnd) -> Result<(), Error>;

    /// What could not be told: tried and waiting, or given up within a day.
    async fn delivery_troubles(&self) -> Result<Vec<DeliveryTrouble>, Error>;
}

const ALERT_COLUMNS: &str = "a.alert_id, a.rule, a.subject, a.severity, a.state, a.opened_at, a.fired_at,
    a.clear_at, a.ended_at, a.updated_at, a.n, a.oldest_at, a.value, a.acked_at, a.acked_by, a.ack_reason";

fn read_alert(row: &mut Row) -> Result<Alert, Error> {
    Ok(Alert {
        id: row.text()?,
        rule: row.word()?,
        subject: row.text()?,
        severity: row.word()?,
        state: row.word()?,
        opened_at: row.stamp()?,
        fired_at: row.maybe_stamp()?,
        clear_at: row.maybe_stamp()?,
        ended_at: row.maybe_stamp()?,
        updated_at: row.stamp()?,
        count: u64::try_from(row.int()?).unwrap_or(0),
        oldest_at: row.maybe_stamp()?,
        value: row.int()?,
        acked_at: row.maybe_stamp()?,
        acked_by: row.maybe_text()?,
        ack_reason: row.maybe_text()?,
    })
}

fn age(count: i64, oldest_at: Option<Stamp>) -> Age {
    Age { count: capped(count), oldest_at }
}

impl<E: Engine> SqlStore<E> {
    /// Reads of providers whose time has come.
    pub(super) async fn reads_due(&self, tx: &mut E::Tx) -> Result<Age, Error> {
        let rows = Self::query(
            tx,
            same(
                "SELECT COUNT(*), MIN(at) FROM (SELECT due_at AS at FROM records
                   WHERE due_at IS NOT NULL AND state IN ('dispatch_unknown','sent') AND due_at <= $1
                   ORDER BY due_at LIMIT $2) AS counted",
            ),
            vec![self.env.clock.now().into(), (COUNT_MAX + 1).into()],
        )
        .await?;
        let Some(mut row) = rows.into_iter().next() else { return Ok(Age::default()) };
        Ok(age(row.int()?, row.maybe_stamp()?))
    }

    /// Evidence that one event was sent twice, and calls which no fact authorises. The database refuses the
    /// second kind, so this is a proof and not a hope.
    async fn duplicates_since(&self, tx: &mut E::Tx, since: Stamp) -> Result<Age, Error> {
        let evidence = Self::query(
            tx,
            same(
                "SELECT COUNT(*), MIN(at) FROM (SELECT at FROM facts
                   WHERE kind = 'duplicate_evidence' AND at >= $1 LIMIT $2) AS counted",
            ),
            vec![since.into(), COUNT_MAX.into()],
        )
        .await?;
        let beyond = Self::query(
            tx,
            same(
                "SELECT COUNT(*), MIN(r.updated_at) FROM (
                   SELECT id, calls, replays, updated_at FROM records
                   WHERE calls > 1 AND updated_at >= $1 ORDER BY updated_at DESC LIMIT $2) AS r
                 WHERE r.calls > 1 + r.replays + (SELECT COUNT(*) FROM facts f
                   WHERE f.id = r.id AND f.kind = 'transition' AND f.reason IN
                     ('not_sent','rate_limited','transient_refusal','provider_stopped','reconciled_absent'))",
            ),
            vec![since.into(), COUNT_MAX.into()],
        )
        .await?;
        let mut total = 0;
        let mut oldest: Option<Stamp> = None;
        for mut row in evidence.into_iter().chain(beyond) {
            total += row.int()?;
            oldest = [oldest, row.maybe_stamp()?].into_iter().flatten().min();
        }
        Ok(age(total, oldest))
    }

    async fn frozen_work(tx: &mut E::Tx) -> Result<Vec<(Freeze, Age)>, Error> {
        let mut found = Vec::new();
        for freeze in Self::active_freezes(tx).await? {
            let mut batch = Batch::new(
                "SELECT COUNT(*), MIN(at) FROM (SELECT created_at AS at FROM outbox WHERE 1 = 1",
            );
            match freeze.scope.split_once(':') {
                Some(("channel", name)) => batch.push(" AND channel = ").bind(name),
                Some(("provider", name)) => batch.push(" AND provider = ").bind(name),
                _ => batch.push(""),
            };
            batch.push(" LIMIT ").bind(COUNT_MAX + 1).push(") AS counted");
            let rows = Self::query_batch(tx, batch).await?;
            let waits = match rows.into_iter().next() {
                Some(mut row) => age(row.int()?, row.maybe_stamp()?),
                None => Age::default(),
            };
            found.push((freeze, waits));
        }
        Ok(found)
    }

    async fn alerts_where(
        tx: &mut E::Tx,
        tail: &'static str,
        values: Vec<Value>,
    ) -> Result<Vec<Alert>, Error> {
        let mut batch = Batch::new("SELECT ");
        batch.push(ALERT_COLUMNS).push(" FROM alerts a WHERE ").push(tail);
        let (text, _) = batch.into_parts();
        let rows = E::query(tx, &text, values).await?;
        rows.into_iter().map(|mut row| read_alert(&mut row)).collect()
    }
}

fn alert_values(alert: &Alert) -> Vec<Value> {
    vec![
        (&alert.id).into(),
        alert.rule.as_str().into(),
        (&alert.subject).into(),
        alert.severity.as_str().into(),
        alert.state.as_str().into(),
        alert.opened_at.into(),
        alert.fired_at.into(),
        alert.clear_at.into(),
        alert.ended_at.into(),
        alert.updated_at.into(),
        i64::try_from(alert.count).unwrap_or(i64::MAX).into(),
        alert.oldest_at.into(),
        alert.value.into(),
    ]
}

#[async_trait]
impl<E: Engine> Watch for SqlStore<E> {
    async fn fold_tallies(&self, hold: Hold) -> Result<bool, Error> {
        self.fold(hold).await
    }

    async fn tallies(
        &self,
        metrics: &[Metric],
        width: Width,
        from: Stamp,
        until: Stamp,
    ) -> Result<Vec<Tally>, Error> {
        let mut tx = self.engine.begin_read().await?;
        Self::tallies_of(&mut tx, metrics, width, from, until).await
    }

    async fn totals(&self) -> Result<Vec<Tally>, Error> {
        let mut tx = self.engine.begin_read().await?;
        Self::totals_of(&mut tx).await
    }

    async fn figures(&self, recent: Stamp) -> Result<Figures, Error> {
        let workers = self.workers().await?;
        let pauses = self.paused_since().await?;
        let mut tx = self.engine.begin_read().await?;
        let now = self.env.clock.now();
        let [due, backing_off, _, unknown] = self.ages(&mut tx).await?;
        let reads_due = self.reads_due(&mut tx).await?;
        let waits = Self::unsealed_in(&mut tx).await?;
        let unsealed = age(i64::try_from(waits.count).unwrap_or(i64::MAX), waits.oldest_at);
        let duplicates = self.duplicates_since(&mut tx, now.plus(-DUPLICATES_WITHIN)).await?;
        let freezes = Self::frozen_work(&mut tx).await?;
        let thawed = Self::query(
            &mut tx,
            same(
                "SELECT scope, ended_at FROM freezes WHERE ended_at IS NOT NULL AND ended_at >= $1
                 ORDER BY ended_at DESC LIMIT $2",
            ),
            vec![now.plus(-DUPLICATES_WITHIN).into(), ALERTS_MAX.into()],
        )
        .await?
        .into_iter()
        .map(|mut row| Ok((row.text()?, row.stamp()?)))
        .collect::<Result<_, Error>>()?;
        let nodes = Self::query(
            &mut tx,
            same(
                "SELECT g.worker_id, g.name, g.value, g.at FROM node_gauges g
                 JOIN workers w ON w.worker_id = g.worker_id
                 ORDER BY g.worker_id, g.name LIMIT 10000",
            ),
            Vec::new(),
        )
        .await?
        .into_iter()
        .map(|mut row| {
            Ok(NodeGauge {
                worker_id: row.text()?,
                name: row.text()?,
                value: row.int()?,
                at: row.stamp()?,
            })
        })
        .collect::<Result<_, Error>>()?;
        let unmatched = Self::query(
            &mut tx,
            same(
                "SELECT provider, COUNT(*), MIN(first_at) FROM (
                   SELECT provider, first_at FROM unmatched_callbacks
                   WHERE matched_at IS NULL AND first_at >= $1 AND first_at <= $2 LIMIT $3) AS counted
                 GROUP BY provider ORDER BY provider",
            ),
            vec![recent.into(), now.plus(-UNMATCHED_AFTER).into(), COUNT_MAX.into()],
        )
        .await?
        .into_iter()
        .map(|mut row| Ok((row.text()?, age(row.int()?, row.maybe_stamp()?))))
        .collect::<Result<_, Error>>()?;
        let metrics = [Metric::Expired, Metric::CallEnded];
        let until = Width::Minute.floor(now).plus(Width::Minute.micros());
        let recent = Self::tallies_of(&mut tx, &metrics, Width::Minute, recent, until).await?;
        Ok(Figures {
            due,
            backing_off,
            unknown,
            reads_due,
            duplicates,
            unsealed,
            freezes,
            thawed,
            workers,
            nodes,
            pauses,
            unmatched,
            recent,
        })
    }

    async fn keep_node_gauges(&self, worker_id: &str, values: &[(&str, i64)]) -> Result<(), Error> {
        if values.is_empty() {
            return Ok(());
        }
        let now = self.env.clock.now();
        let mut tx = self.engine.begin().await?;
        let mut batch = Batch::new("INSERT INTO node_gauges (worker_id, name, value, at) VALUES ");
        batch.rows(
            values
                .iter()
                .map(|(name, value)| {
                    vec![worker_id.into(), (*name).into(), (*value).into(), now.into()]
                })
                .collect(),
        );
        batch.push(
            " ON CONFLICT (worker_id, name) DO UPDATE SET value = excluded.value, at = excluded.at",
        );
        Self::execute_batch(&mut tx, batch).await?;
        Self::execute(
            &mut tx,
            same("DELETE FROM node_gauges WHERE at < $1"),
            vec![now.plus(-GAUGES_KEPT).into()],
        )
        .await?;
        E::commit(tx).await
    }

    async fn open_alerts(&self) -> Result<Vec<Alert>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let tail = "a.state <> 'resolved' ORDER BY a.opened_at, a.alert_id LIMIT $1";
        Self::alerts_where(&mut tx, tail, vec![ALERTS_MAX.into()]).await
    }

    async fn past_alerts(&self) -> Result<Vec<Alert>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let tail = "a.state = 'resolved' ORDER BY a.ended_at DESC, a.alert_id LIMIT $1";
        Self::alerts_where(&mut tx, tail, vec![PAST_MAX.into()]).await
    }

    async fn change_alerts(
        &self,
        hold: Hold,
        changes: &[AlertChange],
        targets: &[String],
    ) -> Result<(), Error> {
        let now = self.env.clock.now();
        let mut tx = self.engine.begin().await?;
        Self::check_hold(&mut tx, hold).await?;
        for change in changes {
            let alert = &change.alert;
            let done = if change.is_dropped {
                Self::execute(
                    &mut tx,
                    same("DELETE FROM alerts WHERE alert_id = $1 AND state = 'pending'"),
                    vec![(&alert.id).into()],
                )
                .await?
            } else if change.is_new {
                // Where two look at once, the first one's stays.
                Self::execute(
                    &mut tx,
                    same(
                        "INSERT INTO alerts (alert_id, rule, subject, severity, state, opened_at, fired_at,
                           clear_at, ended_at, updated_at, n, oldest_at, value)
                         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
                         ON CONFLICT DO NOTHING",
                    ),
                    alert_values(alert),
                )
                .await?
            } else {
                let mut values = alert_values(alert);
                // An acknowledgement that came in between stays.
                let kept = alert.state == AlertState::Firing;
                values.push(i64::from(kept).into());
                Self::execute(
                    &mut tx,
                    same(
                        "UPDATE alerts SET rule = $2, subject = $3, severity = $4,
                           state = CASE WHEN $14 = 1 AND state = 'acknowledged' THEN state ELSE $5 END,
                           opened_at = $6, fired_at = $7, clear_at = $8, ended_at = $9, updated_at = $10,
                           n = $11, oldest_at = $12, value = $13
                         WHERE alert_id = $1 AND state <> 'resolved'",
                    ),
                    values,
                )
                .await?
            };
            if let Some(event) = change.tell.filter(|_| done == 1) {
                if event == "resolved" {
                    // What is still repeated ends here.
                    Self::execute(
                        &mut tx,
                        same(
                            "UPDATE alert_deliveries SET state = 'done'
                             WHERE alert_id = $1 AND state = 'waiting' AND done_at IS NOT NULL",
                        ),
                        vec![(&alert.id).into()],
                    )
                    .await?;
                }
                for target in targets {
                    Self::execute(
                        &mut tx,
                        same(
                            "INSERT INTO alert_deliveries (alert_id, target, event, state, tries, next_at,
                               created_at) VALUES ($1, $2, $3, 'waiting', 0, $4, $4)
                             ON CONFLICT DO NOTHING",
                        ),
                        vec![(&alert.id).into(), target.into(), event.into(), now.into()],
                    )
                    .await?;
                }
            }
        }
        let old: Vec<Value> = vec![now.plus(-PAST_KEPT).into(), TRIM_MAX.into()];
        Self::execute(
            &mut tx,
            same(
                "DELETE FROM alert_deliveries WHERE alert_id IN (SELECT alert_id FROM alerts
                   WHERE state = 'resolved' AND ended_at < $1 ORDER BY ended_at LIMIT $2)",
            ),
            old.clone(),
        )
        .await?;
        Self::execute(
            &mut tx,
            same(
                "DELETE FROM alerts WHERE alert_id IN (SELECT alert_id FROM alerts
                   WHERE state = 'resolved' AND ended_at < $1 ORDER BY ended_at LIMIT $2)",
            ),
            old,
        )
        .await?;
        E::commit(tx).await
    }

    async fn acknowledge(&self, alert_id: &str, actor: &str, reason: &str) -> Result<bool, Error> {
        let now = self.env.clock.now();
        let mut tx = self.engine.begin().await?;
        let rows = Self::query(
            &mut tx,
            same(
                "UPDATE alerts SET state = 'acknowledged', acked_at = $2, acked_by = $3, ack_reason = $4,
                   updated_at = $2 WHERE alert_id = $1 AND state = 'firing' RETURNING rule, subject",
            ),
            vec![alert_id.into(), now.into(), actor.into(), reason.into()],
        )
        .await?;
        let Some(mut row) = rows.into_iter().next() else { return Ok(false) };
        let mut detail = Detail::default()
            .code("what", "acknowledge_alert")
            .code("alert", alert_id)
            .code("rule", &row.text()?);
        let subject = row.text()?;
        if !subject.is_empty() {
            detail = detail.code("subject", &subject);
        }
        self.note_operator(&mut tx, FactKind::Operator, actor, &detail).await?;
        E::commit(tx).await?;
        Ok(true)
    }

    async fn due_deliveries(&self, limit: usize) -> Result<Vec<Delivery>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let mut batch = Batch::new("SELECT ");
        batch.push(ALERT_COLUMNS).push(
            ", d.target, d.event, d.tries FROM alert_deliveries d JOIN alerts a ON a.alert_id = d.alert_id
             WHERE d.state = 'waiting' AND d.next_at <= ",
        );
        batch.bind(self.env.clock.now());
        batch.push(" ORDER BY d.next_at, d.created_at, d.alert_id LIMIT ");
        batch.bind(i64::try_from(limit).unwrap_or(1));
        let rows = Self::query_batch(&mut tx, batch).await?;
        rows.into_iter()
            .map(|mut row| {
                Ok(Delivery {
                    alert: read_alert(&mut row)?,
                    target: row.text()?,
                    event: row.text()?,
                    tries: row.count()?,
                })
            })
            .collect()
    }

    async fn end_delivery(&self, delivery: &Delivery, end: &DeliveryEnd) -> Result<(), Error> {
        let now = self.env.clock.now();
        let (state, next_at, code, done_at) = match end {
            DeliveryEnd::Done => ("done", now, None, Some(now)),
            DeliveryEnd::Again { at } => ("waiting", *at, None, Some(now)),
            DeliveryEnd::Failed { code, next_at } => ("waiting", *next_at, Some(code), None),
            DeliveryEnd::GivenUp { code } => ("given_up", now, Some(code), None),
        };
        let is_taken = done_at.is_some();
        let tries = if is_taken { 0 } else { i64::from(delivery.tries) + 1 };
        let mut tx = self.engine.begin().await?;
        Self::execute(
            &mut tx,
            same(
                "UPDATE alert_deliveries SET state = $4, next_at = $5, code = $6,
                   done_at = COALESCE($7, done_at), tries = $8
                 WHERE alert_id = $1 AND target = $2 AND event = $3 AND state = 'waiting'",
            ),
            vec![
                (&delivery.alert.id).into(),
                (&delivery.target).into(),
                (&delivery.event).into(),
                state.into(),
                next_at.into(),
                code.map(String::as_str).into(),
                done_at.into(),
                tries.into(),
            ],
        )
        .await?;
        E::commit(tx).await
    }

    async fn delivery_troubles(&self) -> Result<Vec<DeliveryTrouble>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let rows = Self::query(
            &mut tx,
            same(
                "SELECT d.target, a.rule, d.event, d.tries, d.code, d.next_at, d.state
                 FROM alert_deliveries d JOIN alerts a ON a.alert_id = d.alert_id
                 WHERE (d.state = 'waiting' AND d.tries > 0) OR (d.state = 'given_up' AND d.next_at >= $1)
                 ORDER BY d.next_at DESC LIMIT $2",
            ),
            vec![self.env.clock.now().plus(-86_400_000_000).into(), PAST_MAX.into()],
        )
        .await?;
        rows.into_iter()
            .map(|mut row| {
                Ok(DeliveryTrouble {
                    target: row.text()?,
                    rule: row.word()?,
                    event: row.text()?,
                    tries: row.count()?,
                    code: row.maybe_text()?,
                    next_at: row.stamp()?,
                    is_given_up: row.text()? == "given_up",
                })
            })
            .collect()
    }
}

impl<E: Engine> SqlStore<E> {
    /// Providers that are paused now: name, since, code.
    async fn paused_since(&self) -> Result<Vec<(String, Stamp, String)>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let rows = Self::query(
            &mut tx,
            same(
                "SELECT provider, since, code FROM provider_pauses
                 WHERE paused_until > $1 ORDER BY provider",
            ),
            vec![self.env.clock.now().into()],
        )
        .await?;
        rows.into_iter().map(|mut row| Ok((row.text()?, row.stamp()?, row.text()?))).collect()
    }
}
