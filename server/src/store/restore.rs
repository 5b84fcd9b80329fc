//! After a restore or a failover: what may have been sent and forgotten is not sent again.
//!
//! A restore that is completed opens an epoch. Every record that waits or is being sent becomes unknown,
//! and so does, while the epoch is guarded, each new event at its first claim: its caller may repeat an
//! event that was admitted and sent after the backup. What is unknown is read by every attempt id that
//! there can be, and only confirmed absence of all of them lets it be sent.

use app::model::{ATTEMPT_CEILING, Detail, FactKind, Stamp, State};
use async_trait::async_trait;

use super::engine::{Batch, Engine, Sql, Value, locking, same};
use super::freezes::GATE_ALONE;
use super::rows::{Stored, Write};
use super::{Error, SqlStore};
use crate::domain::{Event, FENCE_LEAP, Record};

/// Records of one transaction.
const BATCH: i64 = 200;

/// One epoch that a restore or a failover opened.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Epoch {
    /// From 2 on: the first one has no row.
    pub epoch: i64,
    pub opened_at: Stamp,
    /// Commits from here on may be missing.
    pub lost_from: Stamp,
    /// Until then each new event is read before it is first sent.
    pub guarded_until: Stamp,
}

impl Epoch {
    /// Whether this record has yet to become unknown, before anything of it may be sent.
    pub(super) fn concerns(&self, stored: &Stored) -> bool {
        stored.record.restored_at.is_none_or(|at| at < self.opened_at)
    }
}

/// What completing a restore did.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Restored {
    pub epoch: Epoch,
    /// The epoch was open already: what was left of its work has been done.
    pub is_repeat: bool,
    /// Records that waited to be sent, and are unknown now.
    pub accepted: u64,
    /// Records that were being sent, and are unknown now.
    pub dispatching: u64,
    /// Records that were unknown before: they are read by every attempt id from now on.
    pub unknown: u64,
}

/// Restores and what they mean for sending.
#[async_trait]
pub trait Restores: Send + Sync {
    /// Completes a restore after which commits from `lost_from` on may be missing, and guards new events for
    /// `guard` microseconds. Repeated with the same `lost_from` while the epoch is guarded, it goes on with
    /// that epoch. The caller makes sure that no process sends meanwhile.
    async fn restore_complete(
        &self,
        lost_from: Stamp,
        guard: i64,
        actor: &str,
    ) -> Result<Restored, Error>;

    /// The newest epoch that a restore opened, guarded or not.
    async fn epoch(&self) -> Result<Option<Epoch>, Error>;
}

const NEWEST: Sql = same(
    "SELECT epoch, opened_at, lost_from, guarded_until FROM epochs ORDER BY epoch DESC LIMIT 1",
);

const WAITING: Sql = locking!(
    "SELECT id FROM records WHERE state IN ('accepted', 'dispatching')
       AND (restored_at IS NULL OR restored_at < $1) AND semantics BETWEEN $2 AND $3
     ORDER BY id LIMIT $4",
    "FOR UPDATE"
);

impl<E: Engine> SqlStore<E> {
    async fn newest_epoch(tx: &mut E::Tx) -> Result<Option<Epoch>, Error> {
        let rows = Self::query(tx, NEWEST, Vec::new()).await?;
        rows.into_iter()
            .next()
            .map(|mut row| {
                Ok(Epoch {
                    epoch: row.int()?,
                    opened_at: row.stamp()?,
                    lost_from: row.stamp()?,
                    guarded_until: row.stamp()?,
                })
            })
            .transpose()
    }

    /// The epoch that guards new events now, if one does.
    pub(super) async fn guard(&self, tx: &mut E::Tx) -> Result<Option<Epoch>, Error> {
        let now = self.env.clock.now();
        Ok(Self::newest_epoch(tx).await?.filter(|epoch| now < epoch.guarded_until))
    }

    /// Keeps the ids of attempts that this record may have had, for callbacks.
    pub(super) async fn expect_attempts(
        &self,
        tx: &mut E::Tx,
        record: &Record,
    ) -> Result<(), Error> {
        let mut batch =
            Batch::new("INSERT INTO lost_attempts (attempt_id, id, attempt, until) VALUES ");
        let attempts = self.all_attempts(&record.event_id).into_iter();
        batch.rows(
            attempts
                .map(|(attempt, attempt_id)| {
                    let until = record.expires_at.into();
                    vec![attempt_id.into(), (&record.id).into(), attempt.into(), until]
                })
                .collect(),
        );
        batch.push(" ON CONFLICT (attempt_id) DO NOTHING");
        Self::execute_batch(tx, batch).await.map(|_| ())
    }

    /// Every attempt id that there can be, with its number.
    pub(super) fn all_attempts(&self, event_id: &str) -> Vec<(u32, String)> {
        (1..=ATTEMPT_CEILING)
            .map(|attempt| (attempt, self.env.keys.attempt_id(event_id, attempt)))
            .collect()
    }

    /// Opens the epoch, or finds it open; and in the same commit makes each read of the unknown ask for
    /// every attempt id. True when it was open.
    async fn open_epoch(
        &self,
        lost_from: Stamp,
        guard: i64,
        actor: &str,
    ) -> Result<(Epoch, bool, u64), Error> {
        let mut tx = self.engine.begin().await?;
        // After this no marker commits that does not see the epoch.
        Self::query(&mut tx, GATE_ALONE, Vec::new()).await?;
        let now = self.env.clock.now();
        let newest = Self::newest_epoch(&mut tx).await?;
        if let Some(epoch) = &newest
            && epoch.lost_from == lost_from
            && now < epoch.guarded_until
        {
            return Ok((epoch.clone(), true, 0));
        }
        let epoch = Epoch {
            epoch: newest.as_ref().map_or(2, |newest| newest.epoch + 1),
            opened_at: newest.map_or(now, |newest| now.max(newest.opened_at.plus(1))),
            lost_from,
            guarded_until: now.plus(guard),
        };
        Self::execute(
            &mut tx,
            same(
                "INSERT INTO epochs (epoch, opened_at, lost_from, guarded_until, actor)
                  VALUES ($1, $2, $3, $4, $5)",
            ),
            vec![
                epoch.epoch.into(),
                epoch.opened_at.into(),
                epoch.lost_from.into(),
                epoch.guarded_until.into(),
                actor.into(),
            ],
        )
        .await?;
        // A replay is planned anew by the next read; where there is none, it stays planned: from the
        // unknown, such a provider's record cannot have gone on to a later attempt.
        let unknown = Self::execute(
            &mut tx,
            same(
                "UPDATE records SET restored_at = $1, absent_at = NULL, fence = fence + $2,
                    replay_at = CASE WHEN due_at IS NULL THEN replay_at END,
                    due_at = CASE WHEN due_at IS NULL THEN NULL ELSE $1 END
                  WHERE state = 'dispatch_unknown'",
            ),
            vec![epoch.opened_at.into(), FENCE_LEAP.into()],
        )
        .await?;
        let detail = Detail::default()
            .code("what", "restore_opened")
            .number("epoch", epoch.epoch)
            .number("lost_from", epoch.lost_from.micros())
            .number("guarded_until", epoch.guarded_until.micros())
            .number("unknown", i64::try_from(unknown).unwrap_or(i64::MAX));
        self.note_operator(&mut tx, FactKind::Operator, actor, &detail).await?;
        E::commit(tx).await?;
        Ok((epoch, false, unknown))
    }

    /// One batch of what waits or is being sent: how many of either became unknown.
    async fn restore_batch(&self, epoch: &Epoch) -> Result<(u64, u64), Error> {
        let mut tx = self.engine.begin().await?;
        let [from, to] = self.understood();
        let values: Vec<Value> = vec![epoch.opened_at.into(), from, to, BATCH.into()];
        let ids = Self::ids(&mut tx, WAITING, values).await?;
        if ids.is_empty() {
            return Ok((0, 0));
        }
        let found = Self::load(&mut tx, ids.iter().map(String::as_str)).await?;
        let now = self.env.clock.now();
        let event = Event::Restored { at: epoch.opened_at };
        let mut writes = Vec::new();
        let (mut accepted, mut dispatching) = (0, 0);
        for stored in found.values() {
            let Ok(step) = self.decide(stored, &event, now) else { continue };
            match stored.record.state {
                State::Accepted => accepted += 1,
                _ => dispatching += 1,
            }
            writes.push(Write { before: stored, step, start: None });
        }
        // Each of them fits; a batch that moves nothing would be asked for again for ever.
        if writes.len() != ids.len() {
            return Err(Error::RowsAffected {
                expected: ids.len() as u64,
                actual: writes.len() as u64,
            });
        }
        self.persist(&mut tx, &mut writes).await?;
        E::commit(tx).await?;
        Ok((accepted, dispatching))
    }

    /// One batch of unknown records whose possible ids are not kept yet; false when there are no more.
    async fn expect_batch(&self, epoch: &Epoch) -> Result<bool, Error> {
        let mut tx = self.engine.begin().await?;
        let sql = same(
            "SELECT r.id FROM records r WHERE r.state = 'dispatch_unknown' AND r.restored_at = $1
                AND NOT EXISTS (SELECT 1 FROM lost_attempts l WHERE l.id = r.id)
              ORDER BY r.id LIMIT $2",
        );
        let ids = Self::ids(&mut tx, sql, vec![epoch.opened_at.into(), BATCH.into()]).await?;
        if ids.is_empty() {
            return Ok(false);
        }
        for stored in Self::load(&mut tx, ids.iter().map(String::as_str)).await?.values() {
            self.expect_attempts(&mut tx, &stored.record).await?;
        }
        E::commit(tx).await?;
        Ok(true)
    }
}

#[async_trait]
impl<E: Engine> Restores for SqlStore<E> {
    async fn restore_complete(
        &self,
        lost_from: Stamp,
        guard: i64,
        actor: &str,
    ) -> Result<Restored, Error> {
        let (epoch, is_repeat, unknown) = self.open_epoch(lost_from, guard, actor).await?;
        let (mut accepted, mut dispatching) = (0, 0);
        // Ends: each batch takes records out of what it selects, and nothing puts one back unguarded.
        loop {
            let (waited, sending) = self.restore_batch(&epoch).await?;
            if waited + sending == 0 {
                break;
            }
            accepted += waited;
            dispatching += sending;
        }
        while self.expect_batch(&epoch).await? {}
        let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let detail = Detail::default()
            .code("what", "restore_complete")
            .number("epoch", epoch.epoch)
            .number("accepted", count(accepted))
            .number("dispatching", count(dispatching))
            .number("unknown", count(unknown));
        let mut tx = self.engine.begin().await?;
        self.note_operator(&mut tx, FactKind::Operator, actor, &detail).await?;
        E::commit(tx).await?;
        Ok(Restored { epoch, is_repeat, accepted, dispatching, unknown })
    }

    async fn epoch(&self) -> Result<Option<Epoch>, Error> {
        let mut tx = self.engine.begin_read().await?;
        Self::newest_epoch(&mut tx).await
    }
}
