//! Records, facts and calls as rows, and the one path by which a decision is written.

use std::collections::BTreeMap;

use app::model::{
    Channel, Detail, Fact, FactKind, Freeze, Next, Reason, Record as RecordView, Stamp, State,
};

use super::engine::{Batch, Engine, Row, Sql, Value};
use super::{Error, SqlStore, Start, engine};
use crate::domain::{Held, Phase, Record, Step};

/// A record as its row has it: what the rules need, and what only the store and the pages need.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub record: Record,
    pub extra: Extra,
}

/// Columns that no rule reads.
#[derive(Debug, Clone)]
pub(super) struct Extra {
    pub purpose: String,
    pub seller_id: Option<String>,
    pub request_window: Option<String>,
    pub token_id: Option<String>,
    pub token_state: String,
    pub destination_ref: Option<String>,
    pub reset_ref: Option<String>,
    pub destination_hash: String,
    pub reset_hash: String,
    /// The lease semantics under which it was written.
    pub semantics: u32,
}

/// The columns of [`Stored`], in the order in which [`read_stored`] reads them.
macro_rules! columns {
    () => {
        "r.id, r.event_id, r.state, r.reason, r.channel, r.provider, r.created_at, r.updated_at,
         r.expires_at, r.seq, r.attempt, r.calls, r.replays, r.spent, r.authority, r.stumbles, r.due_at,
         r.replay_at, r.phase, r.is_replay, r.fence, r.lease_owner, r.lease_until, r.attempt_started_at,
         r.call_by, r.call_ended_at, r.message_id, r.reads, r.absent_at, r.held_attempt, r.held_seen,
         r.held_message_id, r.poll_until, r.settled_at, r.restored_at, r.purpose, r.seller_id, r.request_window,
         r.token_id, r.token_state, r.destination_ref, r.reset_ref, r.destination_hash, r.reset_hash, r.semantics,
         r.next_provider"
    };
}
pub(super) use columns;

pub(super) fn read_stored(mut row: Row) -> Result<Stored, Error> {
    let id = row.text()?;
    let phase_of = |text: String, id: &str| {
        Phase::parse(&text).ok_or(Error::Inconsistent {
            table: "records",
            column: "phase",
            row: id.to_owned(),
        })
    };
    let mut record = Record {
        event_id: row.text()?,
        state: row.word()?,
        reason: row.word()?,
        channel: row.word()?,
        provider: row.text()?,
        created_at: row.stamp()?,
        updated_at: row.stamp()?,
        expires_at: row.stamp()?,
        seq: row.count()?,
        attempt: row.count()?,
        calls: row.count()?,
        replays: row.count()?,
        spent: row.count()?,
        authority: row.count()?,
        stumbles: row.count()?,
        due_at: row.maybe_stamp()?,
        replay_at: row.maybe_stamp()?,
        phase: phase_of(row.text()?, &id)?,
        is_replay: row.flag()?,
        fence: row.int()?,
        lease_owner: row.maybe_text()?,
        lease_until: row.maybe_stamp()?,
        attempt_started_at: row.maybe_stamp()?,
        call_by: row.maybe_stamp()?,
        call_ended_at: row.maybe_stamp()?,
        message_id: row.maybe_text()?,
        reads: row.count()?,
        absent_at: row.maybe_stamp()?,
        held: {
            let attempt = row.maybe_int()?;
            let seen = row.maybe_word()?;
            let message_id = row.maybe_text()?;
            match (attempt, seen) {
                (Some(attempt), Some(seen)) => {
                    Some(Held { attempt: u32::try_from(attempt).unwrap_or(0), seen, message_id })
                }
                _ => None,
            }
        },
        poll_until: row.maybe_stamp()?,
        settled_at: row.maybe_stamp()?,
        next_provider: None,
        restored_at: row.maybe_stamp()?,
        id,
    };
    let extra = Extra {
        purpose: row.text()?,
        seller_id: row.maybe_text()?,
        request_window: row.maybe_text()?,
        token_id: row.maybe_text()?,
        token_state: row.text()?,
        destination_ref: row.maybe_text()?,
        reset_ref: row.maybe_text()?,
        destination_hash: row.text()?,
        reset_hash: row.text()?,
        semantics: row.count()?,
    };
    record.next_provider = row.maybe_text()?;
    Ok(Stored { record, extra })
}

/// The columns that a decision may change, with their values.
fn changed(r: &Record) -> Vec<Value> {
    let held = r.held.as_ref();
    vec![
        r.state.as_str().into(),
        r.reason.as_str().into(),
        r.updated_at.into(),
        r.seq.into(),
        r.attempt.into(),
        r.calls.into(),
        r.replays.into(),
        r.spent.into(),
        r.authority.into(),
        r.stumbles.into(),
        r.due_at.into(),
        r.replay_at.into(),
        r.phase.as_str().into(),
        r.is_replay.into(),
        r.fence.into(),
        (&r.lease_owner).into(),
        r.lease_until.into(),
        r.attempt_started_at.into(),
        r.call_by.into(),
        r.call_ended_at.into(),
        (&r.message_id).into(),
        r.reads.into(),
        r.absent_at.into(),
        held.map(|h| h.attempt).into(),
        held.map(|h| h.seen.as_str()).into(),
        held.and_then(|h| h.message_id.as_deref()).into(),
        r.poll_until.into(),
        r.settled_at.into(),
        r.restored_at.into(),
        (&r.provider).into(),
        (&r.next_provider).into(),
    ]
}

const UPDATE_HEAD: &str = "WITH v (id, was_state, was_fence, was_seq, state, reason, updated_at, seq,
     attempt, calls, replays, spent, authority, stumbles, due_at, replay_at, phase, is_replay, fence,
     lease_owner, lease_until, attempt_started_at, call_by, call_ended_at, message_id, reads, absent_at,
     held_attempt, held_seen, held_message_id, poll_until, settled_at, restored_at, provider, next_provider) AS (VALUES ";

// The state, the fence and the count of facts that were read: whoever was quicker wins.
const UPDATE_TAIL: &str = ")
     UPDATE records SET state = v.state, reason = v.reason, updated_at = v.updated_at, seq = v.seq,
        attempt = v.attempt, calls = v.calls, replays = v.replays, spent = v.spent,
        authority = v.authority, stumbles = v.stumbles, due_at = v.due_at, replay_at = v.replay_at,
        phase = v.phase, is_replay = v.is_replay, fence = v.fence, lease_owner = v.lease_owner,
        lease_until = v.lease_until, attempt_started_at = v.attempt_started_at, call_by = v.call_by,
        call_ended_at = v.call_ended_at, message_id = v.message_id, reads = v.reads,
        absent_at = v.absent_at, held_attempt = v.held_attempt, held_seen = v.held_seen,
        held_message_id = v.held_message_id, poll_until = v.poll_until, settled_at = v.settled_at,
        restored_at = v.restored_at,
        provider = v.provider, next_provider = v.next_provider,
        -- The handles leave with the last thing that could need them.
        destination_ref = CASE WHEN v.settled_at IS NULL THEN records.destination_ref END,
        reset_ref = CASE WHEN v.settled_at IS NULL THEN records.reset_ref END
     FROM v WHERE records.id = v.id AND records.state = v.was_state AND records.fence = v.was_fence
        AND records.seq = v.was_seq";

/// A decision on its way into the database.
#[derive(Debug)]
pub(super) struct Write<'a> {
    pub before: &'a Stored,
    pub step: Step,
    /// For a marker: what the call's rows keep besides the decision.
    pub start: Option<&'a Start>,
}

impl<E: Engine> SqlStore<E> {
    pub(super) async fn query(
        tx: &mut E::Tx,
        sql: Sql,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, Error> {
        E::query(tx, E::text(sql), values).await
    }

    pub(super) async fn execute(
        tx: &mut E::Tx,
        sql: Sql,
        values: Vec<Value>,
    ) -> Result<u64, Error> {
        E::execute(tx, E::text(sql), values).await
    }

    pub(super) async fn query_batch(tx: &mut E::Tx, batch: Batch) -> Result<Vec<Row>, Error> {
        let (text, values) = batch.into_parts();
        E::query(tx, &text, values).await
    }

    pub(super) async fn execute_batch(tx: &mut E::Tx, batch: Batch) -> Result<u64, Error> {
        let (text, values) = batch.into_parts();
        E::execute(tx, &text, values).await
    }

    /// 0 to 1000.
    pub(super) fn jitter(&self) -> u32 {
        u32::try_from(self.env.entropy.below(1001)).unwrap_or(0)
    }

    /// Reads records by id and locks them, in the order of the database.
    pub(super) async fn load<'i>(
        tx: &mut E::Tx,
        ids: impl IntoIterator<Item = &'i str>,
    ) -> Result<BTreeMap<String, Stored>, Error> {
        let mut batch =
            Batch::new(concat!("SELECT ", columns!(), " FROM records r WHERE r.id IN "));
        batch.list(ids);
        // Always in one order, so that two groups never wait for each other.
        batch.push(" ORDER BY r.id");
        batch.push(E::text(engine::Sql { sqlite: "", postgres: " FOR UPDATE" }));
        let mut found = BTreeMap::new();
        for row in Self::query_batch(tx, batch).await? {
            let stored = read_stored(row)?;
            found.insert(stored.record.id.clone(), stored);
        }
        Ok(found)
    }

    /// Writes decisions: facts first (a trigger asks for them), then calls, then the records with the
    /// state, the fence and the count that they were read with, then the outbox.
    pub(super) async fn persist(
        &self,
        tx: &mut E::Tx,
        writes: &mut [Write<'_>],
    ) -> Result<(), Error> {
        let mut facts = Vec::new();
        for write in writes.iter_mut() {
            Self::name_providers(tx, write).await?;
            self.fill(&mut write.step.facts, &write.before.record.event_id, &write.before.extra);
            facts.append(&mut write.step.facts.clone());
        }
        self.insert_facts(tx, &facts).await?;
        Self::write_calls(tx, writes, &self.env.keys).await?;
        Self::update_records(tx, writes).await?;
        Self::move_outbox(tx, writes).await?;
        self.count_writes(tx, writes).await?;
        for channel in Channel::ALL {
            let waits = writes.iter().any(|write| {
                let after = &write.step.record;
                after.channel == *channel
                    && after.state == State::Accepted
                    && write.before.record.state != State::Accepted
            });
            if waits {
                E::notify(tx, channel.as_str()).await?;
            }
        }
        Ok(())
    }

    /// An earlier attempt may have been another provider's than the record's.
    async fn name_providers(tx: &mut E::Tx, write: &mut Write<'_>) -> Result<(), Error> {
        let last = write.step.record.attempt;
        let is_earlier = |fact: &Fact| fact.attempt.is_some_and(|number| number < last);
        if !write.step.facts.iter().any(is_earlier) {
            return Ok(());
        }
        let rows = Self::query(
            tx,
            engine::same("SELECT attempt, provider FROM attempts WHERE id = $1"),
            vec![(&write.before.record.id).into()],
        )
        .await?;
        for mut row in rows {
            let (number, provider) = (row.count()?, row.text()?);
            let facts = write.step.facts.iter_mut().filter(|fact| fact.attempt == Some(number));
            facts
                .filter(|fact| is_earlier(fact))
                .for_each(|fact| fact.provider = Some(provider.clone()));
        }
        Ok(())
    }

    /// What the rules could not know: ids derived from a key, and the token's name.
    fn fill(&self, facts: &mut [Fact], event_id: &str, extra: &Extra) {
        for fact in facts {
            fact.attempt_id = fact.attempt.map(|number| self.env.keys.attempt_id(event_id, number));
            if fact.kind == FactKind::Token
                || matches!(fact.reason, Some(Reason::TokenConsumed | Reason::TokenSuperseded))
            {
                fact.token_id.clone_from(&extra.token_id);
            }
        }
    }

    pub(super) async fn insert_facts(&self, tx: &mut E::Tx, facts: &[Fact]) -> Result<(), Error> {
        for group in facts.chunks(64) {
            let mut batch = Batch::new(
                "INSERT INTO facts (seq, id, event_id, at, kind, old_state, new_state, attempt,
                 attempt_id, reason, provider, provider_message_id, token_id, actor, detail) VALUES ",
            );
            batch.rows(
                group
                    .iter()
                    .map(|fact| {
                        vec![
                            fact.seq.into(),
                            (&fact.id).into(),
                            (&fact.event_id).into(),
                            fact.at.into(),
                            fact.kind.as_str().into(),
                            fact.old_state.map(State::as_str).into(),
                            fact.new_state.map(State::as_str).into(),
                            fact.attempt.into(),
                            (&fact.attempt_id).into(),
                            fact.reason.map(Reason::as_str).into(),
                            (&fact.provider).into(),
                            (&fact.provider_message_id).into(),
                            (&fact.token_id).into(),
                            (&fact.actor).into(),
                            detail_text(&fact.detail).into(),
                        ]
                    })
                    .collect(),
            );
            Self::execute_batch(tx, batch).await?;
        }
        Ok(())
    }

    async fn write_calls(
        tx: &mut E::Tx,
        writes: &[Write<'_>],
        keys: &crate::keys::Keys,
    ) -> Result<(), Error> {
        for write in writes {
            let record = &write.step.record;
            if let Some(call) = &write.step.call {
                let start = write.start.ok_or(Error::Inconsistent {
                    table: "calls",
                    column: "request_hash",
                    row: record.id.clone(),
                })?;
                if !call.is_replay {
                    Self::execute(
                        tx,
                        engine::same(
                            "INSERT INTO attempts (id, attempt, attempt_id, provider, started_at,
                             request_hash, fingerprint, fingerprint_version, text_hash)
                             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                        ),
                        vec![
                            (&record.id).into(),
                            call.attempt.into(),
                            keys.attempt_id(&record.event_id, call.attempt).into(),
                            (&record.provider).into(),
                            call.started_at.into(),
                            (&start.request_hash).into(),
                            (&start.fingerprint).into(),
                            start.fingerprint_version.into(),
                            (&start.text_hash).into(),
                        ],
                    )
                    .await?;
                }
                Self::execute(
                    tx,
                    engine::same(
                        "INSERT INTO calls (id, call, attempt, is_replay, authorised_by, provider,
                         started_at, call_by) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                    ),
                    vec![
                        (&record.id).into(),
                        call.number.into(),
                        call.attempt.into(),
                        call.is_replay.into(),
                        call.authorised_by.into(),
                        (&record.provider).into(),
                        call.started_at.into(),
                        call.call_by.into(),
                    ],
                )
                .await?;
            }
            if let Some((outcome, ended_at)) = &write.step.call_end {
                let changed = Self::execute(
                    tx,
                    engine::same(
                        "UPDATE calls SET ended_at = $1, outcome = $2
                         WHERE id = $3 AND call = $4 AND ended_at IS NULL",
                    ),
                    vec![
                        (*ended_at).into(),
                        outcome.as_str().into(),
                        (&record.id).into(),
                        record.calls.into(),
                    ],
                )
                .await?;
                expect_rows(1, changed)?;
            }
        }
        Ok(())
    }

    async fn update_records(tx: &mut E::Tx, writes: &[Write<'_>]) -> Result<(), Error> {
        for group in writes.chunks(32) {
            let mut batch = Batch::new(UPDATE_HEAD);
            batch.rows(
                group
                    .iter()
                    .map(|write| {
                        let before = &write.before.record;
                        let mut row = vec![
                            (&before.id).into(),
                            before.state.as_str().into(),
                            before.fence.into(),
                            before.seq.into(),
                        ];
                        row.extend(changed(&write.step.record));
                        row
                    })
                    .collect(),
            );
            batch.push(UPDATE_TAIL);
            let done = Self::execute_batch(tx, batch).await?;
            expect_rows(group.len() as u64, done)?;
        }
        Ok(())
    }

    /// A row waits in the outbox exactly while its record is `accepted`.
    async fn move_outbox(tx: &mut E::Tx, writes: &[Write<'_>]) -> Result<(), Error> {
        let gone: Vec<&str> = writes
            .iter()
            .filter(|w| {
                w.before.record.state == State::Accepted && w.step.record.state != State::Accepted
            })
            .map(|w| w.before.record.id.as_str())
            .collect();
        if !gone.is_empty() {
            let count = gone.len() as u64;
            let mut batch = Batch::new("DELETE FROM outbox WHERE record_id IN ");
            batch.list(gone);
            expect_rows(count, Self::execute_batch(tx, batch).await?)?;
        }
        let back: Vec<Vec<Value>> = writes
            .iter()
            .filter(|w| {
                w.before.record.state != State::Accepted && w.step.record.state == State::Accepted
            })
            .map(|w| outbox_row(&w.step.record, w.before.extra.semantics))
            .collect();
        Self::insert_outbox(tx, back).await
    }

    pub(super) async fn insert_outbox(tx: &mut E::Tx, rows: Vec<Vec<Value>>) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new(
            "INSERT INTO outbox (record_id, channel, provider, created_at, due_at, expires_at, semantics)
             VALUES ",
        );
        batch.rows(rows);
        Self::execute_batch(tx, batch).await.map(|_| ())
    }

    /// Freezes in force, read inside the transaction that acts on them.
    pub(super) async fn active_freezes(tx: &mut E::Tx) -> Result<Vec<Freeze>, Error> {
        let rows = Self::query(
            tx,
            engine::same(
                "SELECT scope, actor, since, reason, review_at, in_flight FROM freezes
                 WHERE ended_at IS NULL ORDER BY since, scope",
            ),
            Vec::new(),
        )
        .await?;
        rows.into_iter()
            .map(|mut row| {
                Ok(Freeze {
                    scope: row.text()?,
                    actor: row.text()?,
                    since: row.stamp()?,
                    reason: row.text()?,
                    review_at: row.maybe_stamp()?,
                    in_flight: row.count()?,
                })
            })
            .collect()
    }
}

pub(super) fn outbox_row(record: &Record, semantics: u32) -> Vec<Value> {
    vec![
        (&record.id).into(),
        record.channel.as_str().into(),
        record.upcoming().into(),
        record.created_at.into(),
        record.due_at.unwrap_or(record.updated_at).into(),
        record.expires_at.into(),
        semantics.into(),
    ]
}

/// Zero rows changed, or more than expected, is a decision: the transaction is given up.
pub(super) fn expect_rows(expected: u64, actual: u64) -> Result<(), Error> {
    if expected == actual { Ok(()) } else { Err(Error::RowsAffected { expected, actual }) }
}

pub(super) fn detail_text(detail: &Detail) -> String {
    serde_json::to_string(detail).unwrap_or_else(|_| "{}".to_owned())
}

/// Whether a freeze of this record's scope is among these.
pub(super) fn is_frozen(freezes: &[Freeze], channel: Channel, provider: &str) -> bool {
    freezes.iter().any(|freeze| match freeze.scope.split_once(':') {
        None => freeze.scope == "all",
        Some(("channel", name)) => name == channel.as_str(),
        Some(("provider", name)) => name == provider,
        Some(_) => false,
    })
}

/// The record as callers see it.
pub(super) fn view(
    stored: &Stored,
    freezes: &[Freeze],
    policy: &crate::domain::Policy,
) -> RecordView {
    let r = &stored.record;
    let waits = r.state == State::Accepted;
    let next = match r.state {
        State::Accepted | State::Dispatching | State::DispatchUnknown => Next::Wait,
        State::Sent if r.settled_at.is_none() => Next::Wait,
        State::Sent | State::Delivered => Next::None,
        State::FailedFinal => match r.reason {
            // The person used a link, or somebody took the request back on purpose.
            Reason::TokenConsumed | Reason::TokenSuperseded | Reason::Cancelled => Next::None,
            _ => Next::NewRequest,
        },
        State::Expired => Next::NewRequest,
    };
    // When asking again may show something new; the end of its life where nothing else is planned.
    let frozen = waits && is_frozen(freezes, r.channel, r.upcoming());
    let retry_at = (next == Next::Wait).then(|| match r.state {
        // Nothing is planned while it is frozen: the next thing that happens by itself is its end.
        State::Accepted if frozen => r.last_call_at(policy.margin),
        State::Accepted => r.due_at.unwrap_or(r.updated_at).min(r.last_call_at(policy.margin)),
        State::Dispatching => r.call_by.or(r.lease_until).unwrap_or(r.expires_at),
        _ => r.due_at.or(r.poll_until.filter(|_| r.state == State::Sent)).unwrap_or(r.expires_at),
    });
    RecordView {
        id: r.id.clone(),
        event_id: r.event_id.clone(),
        state: r.state,
        expires_at: r.expires_at,
        updated_at: r.updated_at,
        created_at: r.created_at,
        channel: r.channel,
        seller_id: stored.extra.seller_id.clone(),
        purpose: stored.extra.purpose.clone(),
        attempts: r.attempt,
        calls: r.calls,
        reason: r.reason,
        settled: r.settled_at.is_some(),
        frozen,
        next,
        retry_at,
    }
}

pub(super) const FACT_COLUMNS: &str =
    "SELECT seq, id, event_id, at, kind, old_state, new_state, attempt,
     attempt_id, reason, provider, provider_message_id, token_id, actor, detail FROM facts ";

pub(super) fn read_fact(mut row: Row) -> Result<Fact, Error> {
    Ok(Fact {
        seq: row.count()?,
        id: row.maybe_text()?,
        event_id: row.maybe_text()?,
        at: row.stamp()?,
        kind: row.word()?,
        old_state: row.maybe_word()?,
        new_state: row.maybe_word()?,
        attempt: row.maybe_int()?.map(|number| u32::try_from(number).unwrap_or(0)),
        attempt_id: row.maybe_text()?,
        reason: row.maybe_word()?,
        provider: row.maybe_text()?,
        provider_message_id: row.maybe_text()?,
        token_id: row.maybe_text()?,
        actor: row.text()?,
        detail: {
            let text = row.text()?;
            serde_json::from_str(&text).map_err(|_| Error::Inconsistent {
                table: "facts",
                column: "detail",
                row: "?".to_owned(),
            })?
        },
    })
}

/// An instant as the pages' cursors carry it.
pub(super) fn end_of(row: &RecordView) -> (Stamp, String) {
    (row.created_at, row.id.clone())
}
