//! Freezes: the switch that every marker reads under the gate.

use app::model::{Capped, Detail, FactKind, Freeze, FreezePage, FreezeView, ScopeView, Stamp};
use async_trait::async_trait;

use super::engine::{Batch, Engine, Sql, Value, same};
use super::{Error, Freezes, Frozen, SqlStore};

/// Freezing takes the gate alone: it waits for the markers under way and holds back the next ones.
pub(super) const GATE_ALONE: Sql = Sql {
    sqlite: "SELECT one FROM gate WHERE one = 1",
    postgres: "SELECT CAST(pg_advisory_xact_lock(7465736) AS TEXT)",
};

/// Counts stop here: "10,000+".
pub(super) const COUNT_MAX: i64 = 10_000;

/// The newest facts among which look-ups are counted for the freeze desk.
const READS_FACTS_MAX: i64 = 5_000;

/// Expired in one go before a reopened scope sends; more are swept right after.
const EXPIRE_FIRST: usize = 1_000;

/// The condition under which a row of `table` lies in a scope, with the scope's name bound where needed.
fn in_scope(batch: &mut Batch, scope: &str) {
    match scope.split_once(':') {
        Some(("channel", name)) => batch.push(" AND channel = ").bind(name),
        Some(("provider", name)) => batch.push(" AND provider = ").bind(name),
        _ => batch.push(""),
    };
}

impl<E: Engine> SqlStore<E> {
    async fn count(tx: &mut E::Tx, batch: Batch) -> Result<i64, Error> {
        let rows = Self::query_batch(tx, batch).await?;
        rows.into_iter().next().map_or(Ok(0), |mut row| row.int())
    }

    /// Counts rows of a scope, at most [`COUNT_MAX`].
    async fn capped(
        tx: &mut E::Tx,
        from: &'static str,
        scope: &str,
        also: Option<(&'static str, Value)>,
    ) -> Result<Capped, Error> {
        let mut batch = Batch::new("SELECT COUNT(*) FROM (SELECT 1 AS one FROM ");
        batch.push(from);
        in_scope(&mut batch, scope);
        if let Some((text, value)) = also {
            batch.push(text).bind(value);
        }
        batch.push(" LIMIT ").bind(COUNT_MAX + 1).push(") AS counted");
        Ok(capped(Self::count(tx, batch).await?))
    }

    async fn in_flight(tx: &mut E::Tx, scope: &str) -> Result<i64, Error> {
        let mut batch = Batch::new(
            "SELECT COUNT(*) FROM records WHERE state = 'dispatching' AND phase = 'calling'",
        );
        in_scope(&mut batch, scope);
        Self::count(tx, batch).await
    }

    /// The look-ups of a scope since it was frozen, how many of them the provider answered, and when it last
    /// did. Only the newest facts are looked at: what happened long ago authorises nothing.
    async fn reads_since(
        tx: &mut E::Tx,
        scope: &str,
        since: Stamp,
    ) -> Result<(u64, u64, Option<Stamp>), Error> {
        let mut batch = Batch::new(
            "SELECT COUNT(*), COUNT(answered), MAX(answered) FROM (
                SELECT id, CASE WHEN detail LIKE '%cannot_tell%' THEN NULL ELSE at END AS answered
                FROM facts WHERE kind = 'lookup' AND fact_no > (SELECT MAX(fact_no) FROM facts) - ",
        );
        batch.bind(READS_FACTS_MAX).push(" AND at >= ").bind(since);
        batch.push(") AS looked JOIN records r ON r.id = looked.id WHERE 1 = 1");
        in_scope(&mut batch, scope);
        let Some(mut row) = Self::query_batch(tx, batch).await?.pop() else {
            return Ok((0, 0, None));
        };
        let count = |n: i64| u64::try_from(n).unwrap_or(0);
        Ok((count(row.int()?), count(row.int()?), row.maybe_stamp()?))
    }

    async fn view_freeze(&self, tx: &mut E::Tx, freeze: Freeze) -> Result<FreezeView, Error> {
        let scope = freeze.scope.clone();
        let now = self.env.clock.now();
        let last = now.plus(self.env.rules.policy.margin);
        let waiting = Self::capped(tx, "outbox WHERE 1 = 1", &scope, None).await?;
        let by = |at: Stamp| Some((" AND expires_at <= ", Value::from(at)));
        let minutes = |n: i64| last.plus(n * 60_000_000);
        let in_5 = Self::capped(tx, "outbox WHERE 1 = 1", &scope, by(minutes(5))).await?.count;
        let in_15 = Self::capped(tx, "outbox WHERE 1 = 1", &scope, by(minutes(15))).await?.count;
        let by_review = match freeze.review_at {
            None => None,
            Some(at) => {
                let at = at.plus(self.env.rules.policy.margin);
                Some(Self::capped(tx, "outbox WHERE 1 = 1", &scope, by(at)).await?.count)
            }
        };
        let unknown =
            Self::capped(tx, "records WHERE state = 'dispatch_unknown'", &scope, None).await?;
        let expired = Self::capped(
            tx,
            "records WHERE state = 'expired' AND reason = 'expired_while_frozen'",
            &scope,
            Some((" AND updated_at >= ", freeze.since.into())),
        )
        .await?;
        let in_flight_now = Self::in_flight(tx, &scope).await?;
        let too_late = Self::capped(tx, "outbox WHERE 1 = 1", &scope, by(last)).await?.count;
        let (reads, reads_answered, last_answer_at) =
            Self::reads_since(tx, &scope, freeze.since).await?;
        let mut batch = Batch::new("SELECT MIN(created_at) FROM outbox WHERE 1 = 1");
        in_scope(&mut batch, &scope);
        let oldest = Self::query_batch(tx, batch).await?;
        Ok(FreezeView {
            freeze,
            waiting,
            in_flight_now: u64::try_from(in_flight_now).unwrap_or(0),
            unknown,
            expired,
            expire_in_5_min: in_5,
            expire_in_15_min: in_15,
            expire_by_review: by_review,
            too_late,
            reads,
            reads_answered,
            last_answer_at,
            oldest_waiting_at: oldest
                .into_iter()
                .next()
                .map_or(Ok(None), |mut row| row.maybe_stamp())?,
        })
    }
}

pub(super) fn capped(count: i64) -> Capped {
    Capped { count: u64::try_from(count.min(COUNT_MAX)).unwrap_or(0), more: count > COUNT_MAX }
}

#[async_trait]
impl<E: Engine> Freezes for SqlStore<E> {
    async fn freeze(
        &self,
        scope: &str,
        actor: &str,
        reason: &str,
        review_at: Option<Stamp>,
    ) -> Result<Frozen, Error> {
        let mut tx = self.engine.begin().await?;
        Self::query(&mut tx, GATE_ALONE, Vec::new()).await?;
        let active = Self::active_freezes(&mut tx).await?;
        if let Some(freeze) = active.into_iter().find(|freeze| freeze.scope == scope) {
            return Ok(Frozen { freeze, is_repeat: true });
        }
        // After the gate, so that no call's marker can be later than `since`.
        let now = self.env.clock.now();
        let in_flight = Self::in_flight(&mut tx, scope).await?;
        Self::execute(
            &mut tx,
            same(
                "INSERT INTO freezes (freeze_id, scope, actor, reason, since, review_at, in_flight)
                  VALUES ($1, $2, $3, $4, $5, $6, $7)",
            ),
            vec![
                self.env.entropy.uuid(now).into(),
                scope.into(),
                actor.into(),
                reason.into(),
                now.into(),
                review_at.into(),
                in_flight.into(),
            ],
        )
        .await?;
        let detail = Detail::default().code("scope", scope).number("in_flight", in_flight);
        self.note_operator(&mut tx, FactKind::Freeze, actor, &detail).await?;
        E::commit(tx).await?;
        let freeze = Freeze {
            scope: scope.to_owned(),
            actor: actor.to_owned(),
            since: now,
            reason: reason.to_owned(),
            review_at,
            in_flight: u32::try_from(in_flight).unwrap_or(0),
        };
        Ok(Frozen { freeze, is_repeat: false })
    }

    async fn unfreeze(&self, scope: &str, actor: &str, reason: &str) -> Result<bool, Error> {
        let mut tx = self.engine.begin().await?;
        Self::query(&mut tx, GATE_ALONE, Vec::new()).await?;
        // Expire first: what died while it waited is not sent now.
        self.expire_queue(&mut tx, EXPIRE_FIRST).await?;
        let now = self.env.clock.now();
        let ended = Self::execute(
            &mut tx,
            same(
                "UPDATE freezes SET ended_at = $1, ended_by = $2, ended_reason = $3
                  WHERE scope = $4 AND ended_at IS NULL",
            ),
            vec![now.into(), actor.into(), reason.into(), scope.into()],
        )
        .await?;
        if ended == 0 {
            E::commit(tx).await?;
            return Ok(false);
        }
        // The rest leaves at the paced rate, oldest first. What another freeze still holds back keeps
        // its place: the pace is in the due times, so every node keeps to it.
        let mut batch = Batch::new(
            "WITH waiting AS (
                SELECT record_id, ROW_NUMBER() OVER (ORDER BY due_at, record_id) AS place
                FROM outbox WHERE (is_paced = 1 OR due_at <= ",
        );
        batch.bind(now).push(")");
        in_scope(&mut batch, scope);
        batch.push(") UPDATE outbox SET is_paced = 1, due_at = ").bind(now);
        batch.push(" + (waiting.place - 1) * 1000000 / ");
        batch.bind(i64::from(self.env.rules.release_per_second.max(1)));
        batch.push(" FROM waiting WHERE waiting.record_id = outbox.record_id");
        let released = Self::execute_batch(&mut tx, batch).await?;
        let mut batch = Batch::new(
            "UPDATE records SET due_at = (SELECT o.due_at FROM outbox o WHERE o.record_id = records.id)
             WHERE state = 'accepted' AND id IN (SELECT record_id FROM outbox WHERE due_at >= ",
        );
        batch.bind(now).push(")");
        Self::execute_batch(&mut tx, batch).await?;
        let detail = Detail::default()
            .code("scope", scope)
            .number("released", i64::try_from(released).unwrap_or(i64::MAX));
        self.note_operator(&mut tx, FactKind::Unfreeze, actor, &detail).await?;
        E::notify(&mut tx, "all").await?;
        E::commit(tx).await?;
        Ok(true)
    }

    async fn freezes(&self) -> Result<Vec<Freeze>, Error> {
        let mut tx = self.engine.begin_read().await?;
        Self::active_freezes(&mut tx).await
    }

    async fn freeze_page(&self, providers: &[String]) -> Result<FreezePage, Error> {
        let mut tx = self.engine.begin_read().await?;
        let active = Self::active_freezes(&mut tx).await?;
        let mut names = vec!["channel:sms".to_owned(), "channel:email".to_owned()];
        names.extend(providers.iter().map(|name| format!("provider:{name}")));
        names.push("all".to_owned());
        let mut scopes = Vec::with_capacity(names.len());
        for scope in names {
            let waiting = Self::capped(&mut tx, "outbox WHERE 1 = 1", &scope, None).await?;
            let in_flight = Self::in_flight(&mut tx, &scope).await?;
            scopes.push(ScopeView {
                frozen: active.iter().any(|freeze| freeze.scope == scope),
                waiting,
                in_flight: u64::try_from(in_flight).unwrap_or(0),
                scope,
            });
        }
        let mut views = Vec::with_capacity(active.len());
        for freeze in active {
            views.push(self.view_freeze(&mut tx, freeze).await?);
        }
        let policy = &self.env.rules.policy;
        Ok(FreezePage {
            active: views,
            scopes,
            release_per_second: self.env.rules.release_per_second,
            call_timeout_ms: policy.call_timeout / 1_000,
            margin_ms: policy.margin / 1_000,
            may_freeze: false,
            action_key: String::new(),
        })
    }
}
