//! The token ledger: used once, replaced by the later message, never both.
//!
//! Whoever changes a token holds the rows of all live tokens of its seller and purpose, always locked in
//! the order of their ids: so a use and a replacement, or two uses, never pass each other.

use std::collections::{BTreeMap, BTreeSet};

use app::model::{FactKind, Reason, Stamp, State};

use super::engine::{Batch, Engine, Value, same};
use super::rows::{Stored, Write, expect_rows};
use super::work::token_state;
use super::{Consume, Consumed, Error, SqlStore};
use crate::domain::{Event, TokenState};

/// Live tokens of one seller and purpose that one act replaces. The message that goes out next replaces
/// whatever is left, and a consumption looks for later messages by itself.
const TOKENS_MAX: i64 = 1_000;

/// So many answers about one token are facts; after them one a minute, with a count.
const NOTES_FIRST: i64 = 20;
const NOTES_EVERY: i64 = 60_000_000;

/// The record has a token that still works.
pub(super) fn is_live(stored: &Stored) -> bool {
    stored.extra.token_id.is_some() && token_state(stored) == TokenState::Live
}

/// Its message has gone out.
const fn has_gone_out(state: State) -> bool {
    matches!(state, State::Sent | State::Delivered)
}

/// Admitted before, for the same seller and purpose.
fn is_earlier(stored: &Stored, later: &Stored) -> bool {
    let (a, b) = (&stored.record, &later.record);
    stored.extra.seller_id.is_some()
        && stored.extra.seller_id == later.extra.seller_id
        && stored.extra.purpose == later.extra.purpose
        && (a.created_at, &a.id) < (b.created_at, &b.id)
}

impl<E: Engine> SqlStore<E> {
    /// As [`Self::load`], with the records whose tokens these replace when their message goes out.
    pub(super) async fn load_with_earlier(
        tx: &mut E::Tx,
        ids: &[&str],
    ) -> Result<BTreeMap<String, Stored>, Error> {
        let mut batch = Batch::new(
            "SELECT e.id FROM records r JOIN records e
               ON e.seller_id = r.seller_id AND e.purpose = r.purpose
             WHERE e.token_state = 'live' AND e.token_id IS NOT NULL
               AND (e.created_at, e.id) < (r.created_at, r.id) AND r.id IN ",
        );
        batch.list(ids.iter().copied()).push(" LIMIT ").bind(TOKENS_MAX);
        let mut all: BTreeSet<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        for mut row in Self::query_batch(tx, batch).await? {
            all.insert(row.text()?);
        }
        Self::load(tx, all.iter().map(String::as_str)).await
    }

    /// One more event about a record, on top of what this commit decides about it already. What does not
    /// apply changes nothing.
    pub(super) fn also<'a>(
        &self,
        writes: &mut Vec<Write<'a>>,
        stored: &'a Stored,
        event: &Event,
        now: Stamp,
    ) {
        let ctx = self.env.rules.ctx(&stored.record, now, self.jitter());
        match writes.iter_mut().find(|write| write.before.record.id == stored.record.id) {
            Some(write) => {
                if let Ok(step) = write.step.clone().then(event, &ctx) {
                    write.step = step;
                }
            }
            None => {
                if let Ok(step) = stored.record.apply(event, &ctx) {
                    writes.push(Write { before: stored, step, start: None });
                }
            }
        }
    }

    /// Writes decisions, and with each message that goes out the end of the tokens before it.
    pub(super) async fn persist_and_supersede<'a>(
        &self,
        tx: &mut E::Tx,
        found: &'a BTreeMap<String, Stored>,
        mut writes: Vec<Write<'a>>,
        now: Stamp,
    ) -> Result<(), Error> {
        let mut gone_out: Vec<&Stored> = writes
            .iter()
            .filter(|write| {
                !has_gone_out(write.before.record.state) && has_gone_out(write.step.record.state)
            })
            .map(|write| write.before)
            .collect();
        // The newest first: it is the one that the timeline names.
        gone_out.sort_by(|a, b| {
            (b.record.created_at, &b.record.id).cmp(&(a.record.created_at, &a.record.id))
        });
        let mut ended: Vec<String> = Vec::new();
        for later in gone_out {
            for earlier in found.values() {
                let id = &earlier.record.id;
                if !is_live(earlier) || !is_earlier(earlier, later) || ended.contains(id) {
                    continue;
                }
                self.also(&mut writes, earlier, &superseded(&later.record.id, "system"), now);
                ended.push(id.clone());
            }
        }
        self.persist(tx, &mut writes).await?;
        Self::end_tokens(tx, "superseded", &ended).await
    }

    /// Writes the new state of live tokens.
    pub(super) async fn end_tokens(
        tx: &mut E::Tx,
        state: &'static str,
        ids: &[String],
    ) -> Result<(), Error> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new("UPDATE records SET token_state = ");
        batch.bind(state).push(" WHERE token_state = 'live' AND id IN ").list(ids.iter());
        expect_rows(ids.len() as u64, Self::execute_batch(tx, batch).await?)
    }

    /// Uses a token, once however many ask.
    ///
    /// An unknown token costs the same questions as a known one, and both are looked up by a keyed hash:
    /// the time of a refusal does not tell what a guess was near to.
    pub(super) async fn consume_token(&self, consume: &Consume) -> Result<Consumed, Error> {
        let mut tx = self.engine.begin().await?;
        let mut rows = Self::query(
            &mut tx,
            same("SELECT id, seller_id, purpose FROM records WHERE token_id = $1"),
            vec![(&consume.token_id).into()],
        )
        .await?;
        let (id, seller_id, purpose) = match rows.pop() {
            Some(mut row) => (row.text()?, row.maybe_text()?, row.text()?),
            None => (String::new(), None, String::new()),
        };
        let siblings = Self::query(
            &mut tx,
            same(
                "SELECT id FROM records WHERE token_state = 'live' AND token_id IS NOT NULL
                   AND seller_id = $1 AND purpose = $2 ORDER BY created_at DESC, id DESC LIMIT $3",
            ),
            vec![(&seller_id).into(), (&purpose).into(), TOKENS_MAX.into()],
        )
        .await?;
        let mut ids = BTreeSet::from([id.clone()]);
        for mut row in siblings {
            ids.insert(row.text()?);
        }
        let found = Self::load(&mut tx, ids.iter().map(String::as_str)).await?;
        // Read behind the lock of the record: from here on nobody else decides about this token.
        let used = self.use_of(&mut tx, consume).await?;
        let newer = Self::newer_message(&mut tx, found.get(&id), &seller_id, &purpose).await?;
        let Some(stored) = found.get(&id) else { return Ok(Consumed::Unknown) };
        self.understand(stored)?;
        let now = self.env.clock.now();
        let actor = format!("client:{}", consume.client_id);
        let mut writes = Vec::new();
        let mut replaced = Vec::new();
        let answer = match (token_state(stored), used, newer) {
            (TokenState::Consumed, Some((consumed_at, true)), _) => {
                done(stored, seller_id, consumed_at, true)
            }
            (TokenState::Consumed, ..) => Consumed::Used,
            (TokenState::Superseded, ..) => Consumed::Superseded,
            (TokenState::Live, _, Some(newer)) => {
                // Its message went out while this record was being admitted, and did not see it.
                self.also(&mut writes, stored, &superseded(&newer, "system"), now);
                replaced.push(id.clone());
                Consumed::Superseded
            }
            (TokenState::Live, ..) if now >= stored.record.expires_at => Consumed::Expired,
            (TokenState::Live, ..) => {
                let token = TokenState::Consumed;
                let event = Event::TokenEnds { token, by: None, actor: actor.clone() };
                self.also(&mut writes, stored, &event, now);
                for other in found.values().filter(|other| other.record.id != id) {
                    if is_live(other) {
                        self.also(&mut writes, other, &superseded(&id, &actor), now);
                        replaced.push(other.record.id.clone());
                    }
                }
                Self::insert_use(&mut tx, consume, &id, now).await?;
                Self::end_tokens(&mut tx, "consumed", std::slice::from_ref(&id)).await?;
                done(stored, seller_id, now, false)
            }
        };
        if let Some(code) = code_of(&answer)
            && let Some(count) = Self::note_is_due(&mut tx, &id, FactKind::Token, now).await?
        {
            let event = Event::TokenAsked { answer: code, count, actor };
            self.also(&mut writes, stored, &event, now);
        }
        self.persist(&mut tx, &mut writes).await?;
        Self::end_tokens(&mut tx, "superseded", &replaced).await?;
        E::commit(tx).await?;
        Ok(answer)
    }

    /// When the token was used, and whether by the same `consume_id`.
    async fn use_of(
        &self,
        tx: &mut E::Tx,
        consume: &Consume,
    ) -> Result<Option<(Stamp, bool)>, Error> {
        let mut rows = Self::query(
            tx,
            same("SELECT consumed_at, consume_hash FROM token_uses WHERE token_id = $1"),
            vec![(&consume.token_id).into()],
        )
        .await?;
        let Some(mut row) = rows.pop() else { return Ok(None) };
        let (at, hash) = (row.stamp()?, row.maybe_text()?);
        Ok(Some((at, hash.is_some() && hash == consume.consume_hash)))
    }

    /// A later record of the same seller and purpose whose message has gone out.
    async fn newer_message(
        tx: &mut E::Tx,
        stored: Option<&Stored>,
        seller_id: &Option<String>,
        purpose: &str,
    ) -> Result<Option<String>, Error> {
        let (at, id) = stored.map_or((Stamp::from_micros(0), ""), |stored| {
            (stored.record.created_at, stored.record.id.as_str())
        });
        let mut rows = Self::query(
            tx,
            same(
                "SELECT id FROM records WHERE seller_id = $1 AND purpose = $2
                   AND (created_at, id) > ($3, $4) AND state IN ('sent', 'delivered')
                 ORDER BY created_at DESC, id DESC LIMIT 1",
            ),
            vec![seller_id.into(), purpose.into(), at.into(), id.into()],
        )
        .await?;
        rows.pop().map(|mut row| row.text()).transpose()
    }

    async fn insert_use(
        tx: &mut E::Tx,
        consume: &Consume,
        record_id: &str,
        now: Stamp,
    ) -> Result<(), Error> {
        Self::execute(
            tx,
            same(
                "INSERT INTO token_uses (token_id, record_id, consume_hash, client_id, consumed_at)
                 VALUES ($1, $2, $3, $4, $5)",
            ),
            vec![
                (&consume.token_id).into(),
                record_id.into(),
                (&consume.consume_hash).into(),
                (&consume.client_id).into(),
                now.into(),
            ],
        )
        .await
        .map(|_| ())
    }

    /// Counts one more meeting of this kind with a record. Some: it is to be a fact, and stands for so many.
    pub(super) async fn note_is_due(
        tx: &mut E::Tx,
        record_id: &str,
        kind: FactKind,
        now: Stamp,
    ) -> Result<Option<i64>, Error> {
        let mut rows = Self::query(
            tx,
            same(
                "SELECT total, noted, noted_at FROM admission_notes
                 WHERE record_id = $1 AND kind = $2",
            ),
            vec![record_id.into(), kind.as_str().into()],
        )
        .await?;
        let (total, noted, noted_at) = match rows.pop() {
            Some(mut row) => (row.int()? + 1, row.int()?, row.int()?),
            None => (1, 0, 0),
        };
        let is_due = total <= NOTES_FIRST || now.micros() - noted_at >= NOTES_EVERY;
        let (noted_now, at) = if is_due { (total, now.micros()) } else { (noted, noted_at) };
        let values: Vec<Value> =
            vec![record_id.into(), kind.as_str().into(), total.into(), noted_now.into(), at.into()];
        Self::execute(
            tx,
            same(
                "INSERT INTO admission_notes (record_id, kind, total, noted, noted_at)
                 VALUES ($1, $2, $3, $4, $5)
                 ON CONFLICT (record_id, kind) DO UPDATE SET total = excluded.total,
                   noted = excluded.noted, noted_at = excluded.noted_at",
            ),
            values,
        )
        .await?;
        Ok(is_due.then_some(total - noted))
    }
}

fn superseded(by: &str, actor: &str) -> Event {
    Event::TokenEnds {
        token: TokenState::Superseded,
        by: Some(by.to_owned()),
        actor: actor.to_owned(),
    }
}

fn done(
    stored: &Stored,
    seller_id: Option<String>,
    consumed_at: Stamp,
    is_replay: bool,
) -> Consumed {
    Consumed::Done {
        id: stored.record.id.clone(),
        event_id: stored.record.event_id.clone(),
        seller_id,
        consumed_at,
        is_replay,
    }
}

/// What the timeline says of an answer that changed nothing.
const fn code_of(answer: &Consumed) -> Option<&'static str> {
    match answer {
        Consumed::Done { is_replay: false, .. } | Consumed::Unknown => None,
        Consumed::Done { .. } => Some("repeated"),
        Consumed::Used => Some(Reason::TokenConsumed.as_str()),
        Consumed::Superseded => Some(Reason::TokenSuperseded.as_str()),
        Consumed::Expired => Some("token_expired"),
    }
}
