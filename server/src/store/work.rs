//! Claims, markers, ends, reads, sweeps: a decision per record, a commit per group.

use std::collections::{BTreeMap, HashMap, HashSet};

use app::model::{Channel, Detail, FactKind, Freeze, Record as RecordView, Stamp, State};
use async_trait::async_trait;

use super::engine::{Batch, Engine, Sql, Value, locking, same};
use super::rows::{Stored, Write, is_frozen, view};
use super::vendors::newly_known;
use super::{
    Admission, Admitted, Claim, Consume, Consumed, End, Error, Evidence, GiveUp, Ledger,
    ReadAnswer, ReadTask, SqlStore, Start, Started, Swept, Weighed,
};
use crate::domain::{Event, Illegal, Lookup, Phase, PreCall, Step, TokenState};

/// Due, alive, in no frozen scope, and of no paused provider. Oldest due time first, so that a failing
/// row moves back behind those that wait.
pub(super) const CLAIM: Sql = locking!(
    "SELECT o.record_id FROM outbox o
     WHERE o.channel = $1 AND o.due_at <= $2 AND o.expires_at > $3
       AND o.semantics BETWEEN $5 AND $6
       AND NOT EXISTS (SELECT 1 FROM freezes f WHERE f.ended_at IS NULL
           AND f.scope IN ('all', 'channel:' || o.channel, 'provider:' || o.provider))
       AND NOT EXISTS (SELECT 1 FROM provider_pauses p
           WHERE p.provider = o.provider AND p.paused_until > $2)
     ORDER BY o.due_at, o.record_id LIMIT $4",
    "FOR UPDATE OF o SKIP LOCKED"
);

pub(super) const CLAIM_REPLAYS: Sql = locking!(
    "SELECT r.id FROM records r
     WHERE r.replay_at <= $2 AND r.channel = $1 AND r.state = 'dispatch_unknown' AND r.expires_at > $3
       AND r.semantics BETWEEN $5 AND $6
       AND NOT EXISTS (SELECT 1 FROM freezes f WHERE f.ended_at IS NULL
           AND f.scope IN ('all', 'channel:' || r.channel, 'provider:' || r.provider))
       AND NOT EXISTS (SELECT 1 FROM provider_pauses p
           WHERE p.provider = r.provider AND p.paused_until > $2)
     ORDER BY r.replay_at, r.id LIMIT $4",
    "FOR UPDATE OF r SKIP LOCKED"
);

/// The gate: markers share it, a freeze takes it alone. SQLite's writer is the gate already. On PostgreSQL
/// it is an advisory lock of the transaction: it queues fairly, so that markers that come later wait behind
/// a freeze (sharers of a row lock overtake it, and under load the freeze would never get its turn).
const GATE_SHARED: Sql = Sql {
    sqlite: "SELECT one FROM gate WHERE one = 1",
    postgres: "SELECT CAST(pg_advisory_xact_lock_shared(7465736) AS TEXT)",
};

pub(super) const CLAIM_READS: Sql = locking!(
    "SELECT r.id, r.event_id, r.state, r.attempt, r.calls, r.channel, r.provider, r.message_id,
            r.attempt_started_at, r.destination_ref, r.reset_ref, r.purpose, a.attempt_id, a.fingerprint,
            a.text_hash, r.restored_at,
            CASE WHEN r.restored_at IS NOT NULL THEN (SELECT MIN(e.lost_from) FROM epochs e
                WHERE e.opened_at <= r.restored_at AND e.guarded_until >= r.created_at) END
     FROM records r LEFT JOIN attempts a ON a.id = r.id AND a.attempt = r.attempt
     WHERE r.due_at <= $1 AND r.state IN ('dispatch_unknown', 'sent')
       AND r.semantics BETWEEN $3 AND $4
     ORDER BY r.due_at, r.id LIMIT $2",
    "FOR UPDATE OF r SKIP LOCKED"
);

/// The attempt whose message the provider calls so.
pub(super) const ATTEMPT_OF_MESSAGE: Sql = same(
    "SELECT a.id, a.attempt, a.fingerprint FROM facts f
       JOIN attempts a ON a.id = f.id AND a.attempt = f.attempt
     WHERE f.provider_message_id = $1 AND f.provider = $2 AND a.provider = $2
     ORDER BY a.started_at DESC LIMIT 1",
);

pub(super) const LEASES_OVER: Sql = locking!(
    "SELECT id FROM records WHERE state = 'dispatching' AND lease_until <= $1
       AND semantics BETWEEN $3 AND $4
     ORDER BY lease_until, id LIMIT $2",
    "FOR UPDATE SKIP LOCKED"
);
pub(super) const QUEUE_OVER: Sql = locking!(
    "SELECT record_id FROM outbox WHERE expires_at <= $1
       AND semantics BETWEEN $3 AND $4 ORDER BY expires_at, record_id LIMIT $2",
    "FOR UPDATE SKIP LOCKED"
);
pub(super) const UNKNOWN_OVER: Sql = locking!(
    "SELECT id FROM records WHERE state = 'dispatch_unknown' AND expires_at <= $1
       AND semantics BETWEEN $3 AND $4
     ORDER BY expires_at, id LIMIT $2",
    "FOR UPDATE SKIP LOCKED"
);
pub(super) const POLLS_OVER: Sql = locking!(
    "SELECT id FROM records WHERE state = 'sent' AND settled_at IS NULL AND poll_until <= $1
       AND semantics BETWEEN $3 AND $4
     ORDER BY poll_until, id LIMIT $2",
    "FOR UPDATE SKIP LOCKED"
);

fn limit(value: usize) -> Value {
    Value::Int(Some(i64::try_from(value).unwrap_or(i64::MAX)))
}

pub(super) fn token_state(stored: &Stored) -> TokenState {
    match stored.extra.token_state.as_str() {
        "consumed" => TokenState::Consumed,
        "superseded" => TokenState::Superseded,
        _ => TokenState::Live,
    }
}

impl<E: Engine> SqlStore<E> {
    /// The lease semantics that this process understands, as the bounds of a range.
    pub(super) fn understood(&self) -> [Value; 2] {
        let understands = &self.env.rules.understands;
        [(*understands.start()).into(), (*understands.end()).into()]
    }

    /// What is written under semantics that we do not know is left to those who do.
    pub(super) fn understand(&self, stored: &Stored) -> Result<(), Error> {
        if self.env.rules.understands.contains(&stored.extra.semantics) {
            Ok(())
        } else {
            Err(Error::NotUnderstood { semantics: stored.extra.semantics })
        }
    }

    pub(super) fn decide(
        &self,
        stored: &Stored,
        event: &Event,
        now: Stamp,
    ) -> Result<Step, Illegal> {
        let ctx = self.env.rules.ctx(&stored.record, now, self.jitter());
        let step = stored.record.apply(event, &ctx)?;
        // A used or replaced link is not sent again: nothing waits for its marker to say so.
        match token_state(stored) {
            TokenState::Live => Ok(step),
            token if step.record.state == State::Accepted => {
                step.then(&Event::TokenDead { token }, &ctx)
            }
            _ => Ok(step),
        }
    }

    /// The end of a claim that a sending rule stops; its fact names the rule.
    fn stop_by_rule(
        &self,
        stored: &Stored,
        fence: i64,
        why: PreCall,
        rule: &'static str,
        now: Stamp,
    ) -> Result<Step, Illegal> {
        let mut step = self.decide(stored, &Event::GiveUp { fence, why }, now)?;
        if let Some(fact) = step.facts.last_mut() {
            fact.detail = std::mem::take(&mut fact.detail).code("rule", rule);
        }
        Ok(step)
    }

    pub(super) async fn ids(
        tx: &mut E::Tx,
        sql: Sql,
        values: Vec<Value>,
    ) -> Result<Vec<String>, Error> {
        let rows = Self::query(tx, sql, values).await?;
        rows.into_iter().map(|mut row| row.text()).collect()
    }

    /// Claims what `ids` names; what does not fit any more is left alone.
    async fn take(
        &self,
        tx: &mut E::Tx,
        ids: &[String],
        owner: &str,
        freezes: &[Freeze],
        is_replay: bool,
    ) -> Result<Vec<Claim>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let found = Self::load(tx, ids.iter().map(String::as_str)).await?;
        let guard = self.guard(tx).await?;
        let now = self.env.clock.now();
        let lease_until = now.plus(self.env.rules.policy.lease);
        let mut writes = Vec::new();
        let mut over = Vec::new();
        for id in ids {
            let Some(stored) = found.get(id) else { continue };
            let frozen = is_frozen(freezes, stored.record.channel, stored.record.upcoming());
            let owner = owner.to_owned();
            let lost = guard.as_ref().filter(|epoch| !is_replay && epoch.concerns(stored));
            let event = if let Some(epoch) = lost {
                Event::Restored { at: epoch.opened_at }
            } else if is_replay {
                let token = token_state(stored);
                Event::ClaimReplay { owner, lease_until, is_frozen: frozen, token }
            } else {
                Event::Claim { owner, lease_until, is_frozen: frozen }
            };
            match self.decide(stored, &event, now) {
                Ok(step) => writes.push(Write { before: stored, step, start: None }),
                // Never again: it must not stand before those that can.
                Err(Illegal::NotAllowed | Illegal::PastMargin) if is_replay => over.push(id),
                Err(_) => {}
            }
        }
        if !over.is_empty() {
            let mut batch = Batch::new("UPDATE records SET replay_at = NULL WHERE id IN ");
            batch.list(over);
            Self::execute_batch(tx, batch).await?;
        }
        self.persist(tx, &mut writes).await?;
        let (claimed, unknown): (Vec<_>, Vec<_>) =
            writes.iter().partition(|write| write.step.record.state == State::Dispatching);
        for write in unknown {
            self.expect_attempts(tx, &write.step.record).await?;
        }
        Ok(claimed
            .into_iter()
            .map(|write| {
                let (record, extra) = (&write.step.record, &write.before.extra);
                let attempt = record.number_in_hand();
                Claim {
                    id: record.id.clone(),
                    event_id: record.event_id.clone(),
                    fence: record.fence,
                    attempt,
                    attempt_id: self.env.keys.attempt_id(&record.event_id, attempt),
                    is_replay: record.is_replay,
                    channel: record.channel,
                    provider: record.upcoming().to_owned(),
                    purpose: extra.purpose.clone(),
                    destination_ref: extra.destination_ref.clone().unwrap_or_default(),
                    reset_ref: extra.reset_ref.clone().unwrap_or_default(),
                    expires_at: record.expires_at,
                    lease_until,
                }
            })
            .collect())
    }

    /// Runs one decision over each of `ids` and writes those that apply.
    async fn each(
        &self,
        tx: &mut E::Tx,
        ids: &[String],
        event: impl Fn(&Stored) -> Event,
    ) -> Result<usize, Error> {
        if ids.is_empty() {
            return Ok(0);
        }
        let found = Self::load(tx, ids.iter().map(String::as_str)).await?;
        let now = self.env.clock.now();
        let mut writes = Vec::new();
        for stored in found.values() {
            if let Ok(step) = self.decide(stored, &event(stored), now) {
                writes.push(Write { before: stored, step, start: None });
            }
        }
        self.persist(tx, &mut writes).await?;
        Ok(writes.len())
    }

    /// For each record, whether a freeze of its scope was in force at the instant of its margin.
    async fn frozen_at_margin(
        &self,
        tx: &mut E::Tx,
        ids: &[String],
    ) -> Result<HashSet<String>, Error> {
        let mut batch = Batch::new(
            "SELECT DISTINCT r.id FROM records r JOIN freezes f
               ON f.scope IN ('all', 'channel:' || r.channel,
                              'provider:' || COALESCE(r.next_provider, r.provider))
             WHERE f.since <= r.expires_at - ",
        );
        batch.bind(self.env.rules.policy.margin);
        batch.push(" AND (f.ended_at IS NULL OR f.ended_at > r.expires_at - ");
        batch.bind(self.env.rules.policy.margin);
        batch.push(") AND r.id IN ");
        batch.list(ids.iter());
        let rows = Self::query_batch(tx, batch).await?;
        rows.into_iter().map(|mut row| row.text()).collect()
    }

    pub(super) async fn expire_queue(&self, tx: &mut E::Tx, most: usize) -> Result<usize, Error> {
        let last = self.env.clock.now().plus(self.env.rules.policy.margin);
        let [from, to] = self.understood();
        let ids = Self::ids(tx, QUEUE_OVER, vec![last.into(), limit(most), from, to]).await?;
        if ids.is_empty() {
            return Ok(0);
        }
        let frozen = self.frozen_at_margin(tx, &ids).await?;
        self.each(tx, &ids, |stored| Event::Expire {
            was_frozen: frozen.contains(&stored.record.id),
        })
        .await
    }

    async fn first_stamp(&self, sql: Sql, values: Vec<Value>) -> Result<Option<Stamp>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let rows = Self::query(&mut tx, sql, values).await?;
        rows.into_iter().next().map_or(Ok(None), |mut row| row.maybe_stamp())
    }

    pub(super) async fn weigh_one(
        &self,
        tx: &mut E::Tx,
        evidence: &Evidence,
    ) -> Result<Weighed, Error> {
        let receipt = &evidence.receipt;
        let mut rows = Self::query(
            tx,
            same(
                "SELECT id, attempt, fingerprint FROM attempts
                  WHERE attempt_id = $1 AND provider = $2",
            ),
            vec![(&receipt.attempt_id).into(), (&evidence.provider).into()],
        )
        .await?;
        // An attempt is named by our id where it travelled; else by the id that the provider gave.
        if let (None, Some(message_id)) = (&receipt.attempt_id, &receipt.message_id) {
            rows = Self::query(
                tx,
                ATTEMPT_OF_MESSAGE,
                vec![message_id.into(), (&evidence.provider).into()],
            )
            .await?;
        }
        // A restore may have lost the attempt: its id can be made again from the event's.
        if let (true, Some(attempt_id)) = (rows.is_empty(), &receipt.attempt_id) {
            rows = Self::query(
                tx,
                same(
                    "SELECT l.id, l.attempt, '' AS fingerprint FROM lost_attempts l
                      JOIN records r ON r.id = l.id WHERE l.attempt_id = $1 AND r.provider = $2",
                ),
                vec![attempt_id.into(), (&evidence.provider).into()],
            )
            .await?;
        }
        let Some(mut row) = rows.pop() else { return Ok(Weighed::Unmatched) };
        let (id, attempt, fingerprint) = (row.text()?, row.count()?, row.text()?);
        // An id that is the recipient's number under another name is not kept.
        let message_id = receipt
            .message_id
            .clone()
            .filter(|text| !self.env.keys.names_destination(text, &fingerprint));
        let found = Self::load_with_earlier(tx, &[id.as_str()]).await?;
        let Some(stored) = found.get(&id) else { return Ok(Weighed::Unmatched) };
        self.understand(stored)?;
        let event = Event::Callback {
            attempt,
            seen: receipt.seen,
            message_id: message_id.clone(),
            cause: receipt.cause.map(crate::providers::Cause::as_str),
            provider_at: receipt.at,
        };
        // A provider repeats its callbacks until it hears 2xx: the same one is one fact.
        let same_before = Self::query(
            tx,
            same(
                "SELECT detail FROM facts WHERE id = $1 AND kind = 'callback' AND attempt = $2
                  AND COALESCE(provider_message_id, '') = $3 ORDER BY seq DESC LIMIT 100",
            ),
            vec![(&id).into(), attempt.into(), message_id.as_deref().unwrap_or("").into()],
        )
        .await?;
        for mut row in same_before {
            let detail: Detail = serde_json::from_str(&row.text()?).unwrap_or_default();
            let at = receipt.at.map(Stamp::micros);
            if detail.get_code("seen") == Some(receipt.seen.as_str())
                && detail.get_number("provider_at") == at
                && detail.get_code("code") == receipt.cause.map(crate::providers::Cause::as_str)
            {
                return Ok(Weighed::Duplicate);
            }
        }
        let now = self.env.clock.now();
        match self.decide(stored, &event, now) {
            Ok(step) => {
                let writes = vec![Write { before: stored, step, start: None }];
                self.persist_and_supersede(tx, &found, writes, now).await?;
                Ok(Weighed::Kept)
            }
            Err(_) => Ok(Weighed::Unmatched),
        }
    }

    fn started(stored: &Stored, fence: i64) -> Started {
        let record = &stored.record;
        if record.fence != fence {
            return Started::Stale;
        }
        match (record.state, record.phase, record.call_by) {
            (State::Dispatching, Phase::Calling, Some(call_by)) => {
                Started::Call { attempt: record.attempt, call: record.calls, call_by }
            }
            (State::Dispatching, _, _) => Started::Stale,
            (state, _, _) => Started::Stopped(state),
        }
    }
}

#[async_trait]
impl<E: Engine> Ledger for SqlStore<E> {
    async fn admit(&self, requests: &[Admission]) -> Result<Vec<Admitted>, Error> {
        self.admit_group(requests).await
    }

    async fn claim(&self, owner: &str, channel: Channel, most: usize) -> Result<Vec<Claim>, Error> {
        let mut tx = self.engine.begin().await?;
        let now = self.env.clock.now();
        let last = now.plus(self.env.rules.policy.margin);
        let values = |most: usize| -> Vec<Value> {
            let [from, to] = self.understood();
            vec![channel.as_str().into(), now.into(), last.into(), limit(most), from, to]
        };
        let freezes = Self::active_freezes(&mut tx).await?;
        let moved = self.route_around(&mut tx, channel, &freezes).await?;
        let fresh = Self::ids(&mut tx, CLAIM, values(most)).await?;
        let mut claims = self.take(&mut tx, &fresh, owner, &freezes, false).await?;
        let room = most.saturating_sub(claims.len());
        let mut is_idle = fresh.is_empty() && moved == 0;
        if room > 0 {
            let replays = Self::ids(&mut tx, CLAIM_REPLAYS, values(room)).await?;
            is_idle &= replays.is_empty();
            claims.extend(self.take(&mut tx, &replays, owner, &freezes, true).await?);
        }
        if !is_idle {
            E::commit(tx).await?;
        }
        Ok(claims)
    }

    async fn start(&self, starts: &[Start]) -> Result<Vec<Started>, Error> {
        let mut tx = self.engine.begin().await?;
        // The gate before the switch: reading freezes without it is write skew (a freeze would be
        // acknowledged and a call would still start).
        Self::query(&mut tx, GATE_SHARED, Vec::new()).await?;
        let freezes = Self::active_freezes(&mut tx).await?;
        let guard = self.guard(&mut tx).await?;
        let found = Self::load(&mut tx, starts.iter().map(|s| s.id.as_str())).await?;
        let hashes = self.first_hashes(&mut tx, &found).await?;
        let mut judge = self.open_judge(&mut tx, starts, &found).await?;
        let now = self.env.clock.now();
        let mut writes = Vec::new();
        let mut places = Vec::with_capacity(starts.len());
        for start in starts {
            let Some(stored) = found.get(&start.id) else {
                places.push(None);
                continue;
            };
            let frozen = is_frozen(&freezes, stored.record.channel, stored.record.upcoming());
            let differs = stored.record.is_replay
                && hashes.get(&start.id).is_none_or(|hash| *hash != start.request_hash);
            let is_lost = guard.as_ref().filter(|epoch| epoch.concerns(stored));
            let is_held = stored.record.is_held_by(start.fence, Phase::Claimed);
            let event = if let Some(epoch) = is_lost.filter(|_| is_held) {
                Event::Restored { at: epoch.opened_at }
            } else if differs {
                Event::GiveUp { fence: start.fence, why: PreCall::BytesDiffer }
            } else {
                Event::Start { fence: start.fence, is_frozen: frozen, token: token_state(stored) }
            };
            let decided = self.decide(stored, &event, now).and_then(|step| {
                // The rules are asked last: only a call that would really start is counted, or stopped.
                let is_fresh = step.call.as_ref().is_some_and(|call| !call.is_replay);
                match is_fresh.then(|| judge.stop(stored, start, now)).flatten() {
                    None => Ok(step),
                    Some((why, rule)) => self.stop_by_rule(stored, start.fence, why, rule, now),
                }
            });
            match decided {
                Ok(step) => {
                    places.push(Some(writes.len()));
                    writes.push(Write { before: stored, step, start: Some(start) });
                }
                Err(_) => places.push(None),
            }
        }
        self.persist(&mut tx, &mut writes).await?;
        self.write_judge(&mut tx, &judge, now).await?;
        E::commit(tx).await?;
        Ok(places
            .into_iter()
            .map(|place| match place.map(|at| &writes[at].step) {
                None => Started::Stale,
                Some(Step { call: Some(call), .. }) => Started::Call {
                    attempt: call.attempt,
                    call: call.number,
                    call_by: call.call_by,
                },
                Some(step) => Started::Stopped(step.record.state),
            })
            .collect())
    }

    async fn read_back(&self, start: &Start) -> Result<Started, Error> {
        // On the writer's side: a reader could see an older snapshot.
        let mut tx = self.engine.begin().await?;
        let found = Self::load(&mut tx, [start.id.as_str()]).await?;
        Ok(found.get(&start.id).map_or(Started::Stale, |stored| Self::started(stored, start.fence)))
    }

    async fn give_up(&self, claims: &[GiveUp]) -> Result<(), Error> {
        let mut tx = self.engine.begin().await?;
        let by_id: HashMap<&str, &GiveUp> = claims.iter().map(|c| (c.id.as_str(), c)).collect();
        let found = Self::load(&mut tx, by_id.keys().copied()).await?;
        let now = self.env.clock.now();
        let mut writes = Vec::new();
        for (id, stored) in &found {
            let Some(claim) = by_id.get(id.as_str()) else { continue };
            let event = Event::GiveUp { fence: claim.fence, why: claim.why };
            match self.decide(stored, &event, now) {
                Ok(step) => writes.push(Write { before: stored, step, start: None }),
                Err(_) => tracing::info!(
                    notification.id = %id, attempt.fence = claim.fence,
                    "a claim that is not ours any more was left alone"
                ),
            }
        }
        self.persist(&mut tx, &mut writes).await?;
        E::commit(tx).await
    }

    async fn end(&self, ends: &[End]) -> Result<Vec<State>, Error> {
        let mut tx = self.engine.begin().await?;
        let ids: Vec<&str> = ends.iter().map(|e| e.id.as_str()).collect();
        let found = Self::load_with_earlier(&mut tx, &ids).await?;
        let now = self.env.clock.now();
        let mut writes: Vec<Write<'_>> = Vec::new();
        let mut states = BTreeMap::new();
        for end in ends {
            let Some(stored) = found.get(&end.id) else { continue };
            let event = Event::End {
                fence: end.fence,
                verdict: end.verdict.clone(),
                ended_at: end.ended_at,
            };
            let step = self.decide(stored, &event, now).or_else(|_| {
                tracing::warn!(
                    notification.id = %end.id, attempt.fence = end.fence,
                    "an answer came after its lease was lost: kept as evidence"
                );
                let late = Event::LateAnswer { attempt: end.attempt, verdict: end.verdict.clone() };
                self.decide(stored, &late, now)
            });
            if let Ok(step) = step {
                states.insert(end.id.clone(), step.record.state);
                writes.push(Write { before: stored, step, start: None });
            }
        }
        let known = newly_known(&writes);
        self.persist_and_supersede(&mut tx, &found, writes, now).await?;
        self.adopt_unmatched(&mut tx, &known).await?;
        E::commit(tx).await?;
        Ok(ends
            .iter()
            .map(|end| {
                states
                    .get(&end.id)
                    .copied()
                    .or_else(|| found.get(&end.id).map(|stored| stored.record.state))
                    .unwrap_or(State::DispatchUnknown)
            })
            .collect())
    }

    async fn claim_reads(&self, most: usize, visible_after: i64) -> Result<Vec<ReadTask>, Error> {
        let mut tx = self.engine.begin().await?;
        let now = self.env.clock.now();
        let [from, to] = self.understood();
        let values = vec![now.into(), limit(most), from, to];
        let rows = Self::query(&mut tx, CLAIM_READS, values).await?;
        let mut tasks = Vec::with_capacity(rows.len());
        for mut row in rows {
            let mut task = ReadTask {
                id: row.text()?,
                event_id: row.text()?,
                state: row.word()?,
                attempt: row.count()?,
                calls: row.count()?,
                channel: row.word()?,
                provider: row.text()?,
                message_id: row.maybe_text()?,
                since: row.maybe_stamp()?.unwrap_or(now),
                destination_ref: row.maybe_text()?,
                reset_ref: row.maybe_text()?,
                purpose: row.text()?,
                ids: Vec::new(),
                fingerprint: String::new(),
                text_hash: None,
                restored_at: None,
            };
            let attempt_id = row.maybe_text()?;
            task.fingerprint = row.maybe_text()?.unwrap_or_default();
            task.text_hash = row.maybe_text()?;
            task.restored_at = row.maybe_stamp()?;
            let lost_from = row.maybe_stamp()?;
            task.ids = match (task.restored_at, attempt_id) {
                (None, Some(attempt_id)) => vec![(task.attempt, attempt_id)],
                _ => self.all_attempts(&task.event_id),
            };
            if task.restored_at.is_some() {
                if task.state == State::Sent {
                    let sent_as = Self::sent_as(&mut tx, &task.id).await?;
                    task.ids.retain(|(number, _)| sent_as.is_none_or(|sent| sent == *number));
                }
                task.since = lost_from.map_or(task.since, |lost_from| lost_from.min(task.since));
            }
            tasks.push(task);
        }
        if tasks.is_empty() {
            return Ok(tasks);
        }
        tasks = self.allowed(&mut tx, tasks, now).await?;
        if tasks.is_empty() {
            E::commit(tx).await?;
            return Ok(tasks);
        }
        let mut batch = Batch::new("UPDATE records SET due_at = ");
        batch.bind(now.plus(visible_after));
        batch.push(" WHERE id IN ");
        batch.list(tasks.iter().map(|task| &task.id));
        Self::execute_batch(&mut tx, batch).await?;
        E::commit(tx).await?;
        Ok(tasks)
    }

    async fn record_reads(&self, answers: &[ReadAnswer]) -> Result<(), Error> {
        let mut tx = self.engine.begin().await?;
        let by_id: HashMap<&str, &ReadAnswer> =
            answers.iter().map(|a| (a.id.as_str(), a)).collect();
        let ids: Vec<&str> = by_id.keys().copied().collect();
        let found = Self::load_with_earlier(&mut tx, &ids).await?;
        let now = self.env.clock.now();
        let mut writes = Vec::new();
        for (id, stored) in &found {
            let Some(answer) = by_id.get(id.as_str()) else { continue };
            let event = Event::Read {
                calls: answer.calls,
                attempt: answer.attempt,
                asked_at: answer.asked_at,
                answer: match &answer.answer {
                    Lookup::Absent if stored.record.restored_at.is_some() && !answer.is_whole => {
                        Lookup::CannotTell { code: "restored".to_owned() }
                    }
                    other => other.clone(),
                },
            };
            // Found at another provider of the route: it is that one's from here on.
            let there = answer.found_at.as_ref().map(|provider| {
                let mut there = stored.clone();
                there.record.provider.clone_from(provider);
                there
            });
            if let Ok(step) = self.decide(there.as_ref().unwrap_or(stored), &event, now) {
                writes.push(Write { before: stored, step, start: None });
            }
        }
        let known = newly_known(&writes);
        self.persist_and_supersede(&mut tx, &found, writes, now).await?;
        self.adopt_unmatched(&mut tx, &known).await?;
        self.note_reads(&mut tx, &found, answers).await?;
        E::commit(tx).await
    }

    async fn weigh(&self, evidence: &[Evidence]) -> Result<Vec<Weighed>, Error> {
        let mut tx = self.engine.begin().await?;
        let mut weighed = Vec::with_capacity(evidence.len());
        for one in evidence {
            // One after the other: two receipts of one request may be about one record.
            let outcome = self.weigh_one(&mut tx, one).await?;
            if outcome == Weighed::Unmatched {
                self.keep_unmatched(&mut tx, one).await?;
            }
            weighed.push(outcome);
        }
        E::commit(tx).await?;
        Ok(weighed)
    }

    async fn sweep(&self, most: usize) -> Result<Swept, Error> {
        let mut tx = self.engine.begin().await?;
        let now = self.env.clock.now();
        let over = || {
            let [from, to] = self.understood();
            vec![now.into(), limit(most), from, to]
        };
        let expired = self.expire_queue(&mut tx, most).await?;
        let ids = Self::ids(&mut tx, UNKNOWN_OVER, over()).await?;
        let unresolved = self.each(&mut tx, &ids, |_| Event::Expire { was_frozen: false }).await?;
        let ids = Self::ids(&mut tx, LEASES_OVER, over()).await?;
        let leases = self.each(&mut tx, &ids, |_| Event::LeaseLost).await?;
        let ids = Self::ids(&mut tx, POLLS_OVER, over()).await?;
        let settled = self.each(&mut tx, &ids, |_| Event::PollOver).await?;
        let more = [expired, unresolved, leases, settled].iter().any(|done| *done >= most);
        E::commit(tx).await?;
        Ok(Swept { expired, unresolved, leases, settled, more })
    }

    async fn cancel(&self, id: &str, actor: &str) -> Result<Option<(RecordView, bool)>, Error> {
        let mut tx = self.engine.begin().await?;
        let found = Self::load(&mut tx, [id]).await?;
        let Some(stored) = found.get(id) else { return Ok(None) };
        self.understand(stored)?;
        let freezes = Self::active_freezes(&mut tx).await?;
        let policy = &self.env.rules.policy;
        let event = Event::Cancel { actor: actor.to_owned() };
        let now = self.env.clock.now();
        match self.decide(stored, &event, now) {
            Ok(step) => {
                let mut writes = vec![Write { before: stored, step, start: None }];
                let has_token = super::tokens::is_live(stored);
                if has_token {
                    let end = Event::TokenEnds {
                        token: TokenState::Superseded,
                        by: None,
                        actor: actor.to_owned(),
                    };
                    self.also(&mut writes, stored, &end, now);
                }
                self.persist(&mut tx, &mut writes).await?;
                if has_token {
                    Self::end_tokens(&mut tx, "superseded", &[id.to_owned()]).await?;
                }
                E::commit(tx).await?;
                let after = Stored {
                    record: writes.swap_remove(0).step.record,
                    extra: stored.extra.clone(),
                };
                Ok(Some((view(&after, &freezes, policy), true)))
            }
            Err(_) => {
                let again = stored.record.reason == app::model::Reason::Cancelled;
                Ok(Some((view(stored, &freezes, policy), again)))
            }
        }
    }

    async fn next_due(&self, channel: Channel) -> Result<Option<Stamp>, Error> {
        // What is frozen or paused is not due by waiting: the wake-up after the act says so.
        self.first_stamp(
            same("SELECT MIN(due_at) FROM (
                    SELECT MIN(CASE WHEN p.paused_until > o.due_at THEN p.paused_until ELSE o.due_at END)
                             AS due_at
                    FROM outbox o LEFT JOIN provider_pauses p ON p.provider = o.provider
                    WHERE o.channel = $1 AND NOT EXISTS (SELECT 1 FROM freezes f
                        WHERE f.ended_at IS NULL
                          AND f.scope IN ('all', 'channel:' || o.channel, 'provider:' || o.provider))
                    UNION ALL
                    SELECT MIN(CASE WHEN p.paused_until > r.replay_at THEN p.paused_until
                                    ELSE r.replay_at END)
                    FROM records r LEFT JOIN provider_pauses p ON p.provider = r.provider
                    WHERE r.replay_at IS NOT NULL AND r.channel = $1 AND r.expires_at > $2
                      AND NOT EXISTS (SELECT 1 FROM freezes f WHERE f.ended_at IS NULL
                        AND f.scope IN ('all', 'channel:' || r.channel, 'provider:' || r.provider))
                  ) AS waiting"),
            vec![
                channel.as_str().into(),
                self.env.clock.now().plus(self.env.rules.policy.margin).into(),
            ],
        )
        .await
    }

    async fn next_read(&self) -> Result<Option<Stamp>, Error> {
        self.first_stamp(
            same(
                "SELECT MIN(due_at) FROM records
                  WHERE due_at IS NOT NULL AND state IN ('dispatch_unknown', 'sent')",
            ),
            Vec::new(),
        )
        .await
    }

    async fn next_sweep(&self) -> Result<Option<Stamp>, Error> {
        self.first_stamp(
            same(
                "SELECT MIN(at) FROM (
                    SELECT MIN(expires_at) - $1 AS at FROM outbox
                    UNION ALL SELECT MIN(expires_at) FROM records WHERE state = 'dispatch_unknown'
                    UNION ALL SELECT MIN(lease_until) FROM records WHERE state = 'dispatching'
                    UNION ALL SELECT MIN(poll_until) FROM records
                        WHERE state = 'sent' AND settled_at IS NULL
                  ) AS ends",
            ),
            vec![self.env.rules.policy.margin.into()],
        )
        .await
    }

    async fn pause_provider(&self, provider: &str, until: Stamp, code: &str) -> Result<(), Error> {
        let mut tx = self.engine.begin().await?;
        Self::execute(
            &mut tx,
            same(
                "INSERT INTO provider_pauses (provider, paused_until, code, since)
                  VALUES ($1, $2, $3, $4)
                  ON CONFLICT (provider) DO UPDATE SET code = excluded.code, since = excluded.since,
                    paused_until = CASE WHEN excluded.paused_until > provider_pauses.paused_until
                      THEN excluded.paused_until ELSE provider_pauses.paused_until END",
            ),
            vec![provider.into(), until.into(), code.into(), self.env.clock.now().into()],
        )
        .await?;
        E::commit(tx).await
    }

    async fn adopt_route(&self, channel: Channel, providers: &[String]) -> Result<u64, Error> {
        let Some(first) = providers.first() else { return Ok(0) };
        let mut tx = self.engine.begin().await?;
        let mut batch = Batch::new("UPDATE records SET next_provider = ");
        batch.bind(first);
        batch.push(" WHERE state = 'accepted' AND channel = ").bind(channel.as_str());
        batch.push(" AND COALESCE(next_provider, provider) NOT IN ").list(providers.iter());
        let moved = Self::execute_batch(&mut tx, batch).await?;
        if moved > 0 {
            let mut batch = Batch::new("UPDATE outbox SET provider = ");
            batch.bind(first);
            batch.push(" WHERE channel = ").bind(channel.as_str());
            batch.push(" AND provider NOT IN ").list(providers.iter());
            Self::execute_batch(&mut tx, batch).await?;
            let detail = Detail::default()
                .code("what", "route")
                .code("provider", first)
                .number("count", i64::try_from(moved).unwrap_or(i64::MAX));
            self.note_operator(&mut tx, FactKind::Config, "system", &detail).await?;
        }
        E::commit(tx).await?;
        Ok(moved)
    }

    async fn purge_limits(&self, most: usize) -> Result<u64, Error> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        Ok(self.purge_windows(most).await? + self.purge_countries(most).await?)
    }

    async fn close_breaker(&self, country: &str, actor: &str, reason: &str) -> Result<bool, Error> {
        self.close_breaker_of(country, actor, reason).await
    }

    async fn consume(&self, consume: &Consume) -> Result<Consumed, Error> {
        self.consume_token(consume).await
    }
}

impl<E: Engine> SqlStore<E> {
    /// Which attempt's message a record was found to be sent by.
    async fn sent_as(tx: &mut E::Tx, id: &str) -> Result<Option<u32>, Error> {
        let rows = Self::query(
            tx,
            same(
                "SELECT attempt FROM facts WHERE id = $1 AND kind = 'transition'
                  AND new_state = 'sent' AND attempt IS NOT NULL ORDER BY seq DESC LIMIT 1",
            ),
            vec![id.into()],
        )
        .await?;
        rows.into_iter().next().map(|mut row| row.count()).transpose()
    }

    /// The rendered request's hash of each replay's first call.
    async fn first_hashes(
        &self,
        tx: &mut E::Tx,
        found: &BTreeMap<String, Stored>,
    ) -> Result<HashMap<String, String>, Error> {
        let mut hashes = HashMap::new();
        for stored in found.values().filter(|stored| stored.record.is_replay) {
            let rows = Self::query(
                tx,
                same("SELECT request_hash FROM attempts WHERE id = $1 AND attempt = $2"),
                vec![(&stored.record.id).into(), stored.record.attempt.into()],
            )
            .await?;
            for mut row in rows {
                hashes.insert(stored.record.id.clone(), row.text()?);
            }
        }
        Ok(hashes)
    }
}
