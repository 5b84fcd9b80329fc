//! The log's tables: places for facts, tile roots, signed heads.
//!
//! A fact waits in `log_pending` from its own commit on. The sealer takes what waits, in the order of the
//! facts' numbers, and gives it the next places. A commit that comes late is simply found later: nothing is
//! read by "greater than the last one", so nothing can be passed over.

use app::model::{Detail, Fact, FactKind, Stamp};
use async_trait::async_trait;

use super::engine::{Batch, Engine, Row, Sql, Value, locking, same};
use super::rows::read_fact;
use super::{Error, Hold, SqlStore};
use crate::evidence::leaf::RawFact;
use crate::evidence::note::Checkpoint;
use crate::evidence::tree::{self, Edge, Hash, TILE_WIDTH, TileId, TileRoot};

/// Rows that one reading of the log gives at most.
pub const LOG_ROWS_MAX: usize = 2_048;

/// Where the log stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogHead {
    pub origin: String,
    pub size: u64,
    /// The newest signed head; none while the log is empty.
    pub note: Option<String>,
    pub sealed_at: Option<Stamp>,
}

/// What waits for the sealer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unsealed {
    pub count: u64,
    pub oldest_at: Option<Stamp>,
}

/// What one pass of the sealer added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub size: u64,
    pub more: bool,
}

/// One place of the log, as the audit reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRow {
    pub index: u64,
    pub fact_no: i64,
    /// As it stands in the row: what cannot be decoded is none.
    pub hash: Option<Hash>,
    /// None: the fact is not there any more.
    pub fact: Option<RawFact>,
}

/// A signed head as it was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptCheckpoint {
    pub size: u64,
    pub note: String,
    pub sealed_at: Stamp,
}

/// A public key of the log, and the size from which it signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogKey {
    pub vkey: String,
    pub from_size: u64,
}

/// Facts removed at the end of their retention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgedRange {
    pub from: u64,
    /// Exclusive.
    pub to: u64,
}

/// What an evidence pack is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// One record, by its own id.
    Record(String),
    /// All records of a seller.
    Seller(String),
    /// All facts, with and without a record, whose `at` lies in this time; the end is exclusive.
    Time(Stamp, Stamp),
}

/// A fact that stands in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedFact {
    pub index: u64,
    pub fact: Fact,
}

/// What the last check of the whole log came to.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AuditVerdict {
    pub integrity: bool,
    pub completeness: bool,
    pub size: u64,
    pub at: Stamp,
}

/// The name of the setting that keeps it.
const VERDICT: &str = "audit.verdict";

/// Signs a head: the text of the note.
pub type SignHead<'a> = &'a (dyn Fn(&Checkpoint) -> String + Send + Sync);

/// The log.
#[async_trait]
pub trait FactLog: Send + Sync {
    /// The log's origin; it gets this one where it has none yet.
    async fn open_log(&self, origin: &str) -> Result<String, Error>;
    async fn log_head(&self) -> Result<LogHead, Error>;
    async fn unsealed(&self) -> Result<Unsealed, Error>;
    /// Gives the next `limit` facts their places and signs the new head, in one commit. None: nothing waits.
    async fn seal(
        &self,
        hold: Hold,
        limit: usize,
        sign: SignHead<'_>,
    ) -> Result<Option<Sealed>, Error>;
    /// In the order in which they came into force.
    async fn log_keys(&self) -> Result<Vec<LogKey>, Error>;
    /// A key comes into force. One that follows another is a fact with both names.
    async fn add_log_key(&self, hold: Hold, vkey: &str) -> Result<(), Error>;
    /// Rows from this place on, at most [`LOG_ROWS_MAX`].
    async fn log_rows(&self, from: u64) -> Result<Vec<LogRow>, Error>;
    /// The hashes of one tile, as far as the tree goes.
    async fn tile(&self, id: TileId) -> Result<Vec<Hash>, Error>;
    /// Signed heads above this size, smallest first, at most [`LOG_ROWS_MAX`].
    async fn checkpoints(&self, above: u64) -> Result<Vec<KeptCheckpoint>, Error>;
    /// The smallest signed head that covers so many leaves.
    async fn checkpoint_from(&self, size: u64) -> Result<Option<KeptCheckpoint>, Error>;
    async fn purged_ranges(&self) -> Result<Vec<PurgedRange>, Error>;
    /// Facts that have neither a place in the log nor wait for one, and waiting ones that are gone:
    /// counts of both, which are 0.
    async fn outside_the_log(&self) -> Result<(u64, u64), Error>;
    /// Logged facts of a selection, above this place of the log, in its order, at most [`LOG_ROWS_MAX`].
    async fn selected(
        &self,
        what: &Selection,
        after: Option<u64>,
    ) -> Result<Vec<LoggedFact>, Error>;
    /// Keeps a verdict, and that somebody asked for it.
    async fn keep_verdict(&self, actor: &str, verdict: &AuditVerdict) -> Result<(), Error>;
    async fn verdict(&self) -> Result<Option<AuditVerdict>, Error>;
    /// How many facts of a selection wait for the sealer, at most [`LOG_ROWS_MAX`].
    async fn waiting(&self, what: &Selection) -> Result<u64, Error>;
}

const STATE: Sql = locking!("SELECT origin, size, edge FROM log_state WHERE one = 1", "FOR UPDATE");

const PENDING: Sql = same(
    "SELECT p.fact_no, f.seq, f.id, f.event_id, f.at, f.kind, f.old_state, f.new_state, f.attempt,
        f.attempt_id, f.reason, f.provider, f.provider_message_id, f.token_id, f.actor, f.detail
     FROM log_pending p JOIN facts f ON f.fact_no = p.fact_no ORDER BY p.fact_no LIMIT $1",
);

const ROWS: Sql = same(
    "SELECT l.log_index, l.fact_no, l.leaf_hash, f.fact_no, f.seq, f.id, f.event_id, f.at, f.kind,
        f.old_state, f.new_state, f.attempt, f.attempt_id, f.reason, f.provider,
        f.provider_message_id, f.token_id, f.actor, f.detail
     FROM log_leaves l LEFT JOIN facts f ON f.fact_no = l.fact_no
     WHERE l.log_index >= $1 ORDER BY l.log_index LIMIT $2",
);

fn raw(row: &mut Row) -> Result<RawFact, Error> {
    Ok(RawFact {
        seq: row.maybe_int()?.unwrap_or(0),
        id: row.maybe_text()?,
        event_id: row.maybe_text()?,
        at: row.maybe_int()?.unwrap_or(0),
        kind: row.maybe_text()?.unwrap_or_default(),
        old_state: row.maybe_text()?,
        new_state: row.maybe_text()?,
        attempt: row.maybe_int()?,
        attempt_id: row.maybe_text()?,
        reason: row.maybe_text()?,
        provider: row.maybe_text()?,
        provider_message_id: row.maybe_text()?,
        token_id: row.maybe_text()?,
        actor: row.maybe_text()?.unwrap_or_default(),
        detail: row.maybe_text()?.unwrap_or_default(),
    })
}

fn size_of(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn place_of(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn damaged(column: &'static str) -> Error {
    Error::Inconsistent { table: "log_state", column, row: "1".to_owned() }
}

impl<E: Engine> SqlStore<E> {
    async fn one_count(tx: &mut E::Tx, batch: Batch) -> Result<u64, Error> {
        let rows = Self::query_batch(tx, batch).await?;
        rows.into_iter().next().map_or(Ok(0), |mut row| row.int()).map(size_of)
    }

    pub(super) async fn verdict_in(tx: &mut E::Tx) -> Result<Option<AuditVerdict>, Error> {
        let text = Self::setting(tx, VERDICT).await?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// What waits for the sealer; the count stops at its limit.
    pub(super) async fn unsealed_in(tx: &mut E::Tx) -> Result<Unsealed, Error> {
        let mut batch = Batch::new("SELECT COUNT(*) FROM (SELECT 1 AS one FROM log_pending LIMIT ");
        batch.bind(super::freezes::COUNT_MAX + 1).push(") AS counted");
        let count = Self::one_count(tx, batch).await?;
        let rows = Self::query(
            tx,
            same(
                "SELECT f.at FROM facts f WHERE f.fact_no = (SELECT MIN(fact_no) FROM log_pending)",
            ),
            Vec::new(),
        )
        .await?;
        let oldest_at = rows.into_iter().next().map(|mut row| row.stamp()).transpose()?;
        Ok(Unsealed { count, oldest_at })
    }

    async fn insert_leaves(tx: &mut E::Tx, leaves: Vec<(u64, i64, Hash)>) -> Result<(), Error> {
        for group in leaves.chunks(512) {
            let mut batch =
                Batch::new("INSERT INTO log_leaves (log_index, fact_no, leaf_hash) VALUES ");
            batch.rows(
                group
                    .iter()
                    .map(|(index, fact_no, hash)| {
                        vec![place_of(*index).into(), (*fact_no).into(), tree::encode(hash).into()]
                    })
                    .collect(),
            );
            Self::execute_batch(tx, batch).await?;
        }
        Ok(())
    }

    async fn insert_tiles(tx: &mut E::Tx, tiles: &[TileRoot]) -> Result<(), Error> {
        if tiles.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new("INSERT INTO log_tiles (level, tile, hash) VALUES ");
        batch.rows(
            tiles
                .iter()
                .map(|tile| {
                    vec![
                        tile.level.into(),
                        place_of(tile.index).into(),
                        tree::encode(&tile.hash).into(),
                    ]
                })
                .collect(),
        );
        Self::execute_batch(tx, batch).await.map(|_| ())
    }
}

/// Narrows a statement over `facts f` to a selection.
fn narrow(batch: &mut Batch, what: &Selection) {
    match what {
        Selection::Record(id) => batch.push(" AND f.id = ").bind(id),
        Selection::Seller(seller) => batch
            .push(" AND f.id IN (SELECT r.id FROM records r WHERE r.seller_id = ")
            .bind(seller)
            .push(")"),
        Selection::Time(from, to) => {
            batch.push(" AND f.at >= ").bind(*from).push(" AND f.at < ").bind(*to)
        }
    };
}

#[async_trait]
impl<E: Engine> FactLog for SqlStore<E> {
    async fn open_log(&self, origin: &str) -> Result<String, Error> {
        let mut tx = self.engine.begin().await?;
        let values: Vec<Value> = vec![origin.into()];
        Self::execute(
            &mut tx,
            same(
                "INSERT INTO log_state (one, origin, size, edge) VALUES (1, $1, 0, '')
                 ON CONFLICT (one) DO NOTHING",
            ),
            values,
        )
        .await?;
        let rows = Self::query(&mut tx, STATE, Vec::new()).await?;
        let origin = rows.into_iter().next().ok_or_else(|| damaged("origin"))?.text()?;
        E::commit(tx).await?;
        Ok(origin)
    }

    async fn log_head(&self) -> Result<LogHead, Error> {
        let mut tx = self.engine.begin_read().await?;
        let rows = Self::query(
            &mut tx,
            same("SELECT origin, size FROM log_state WHERE one = 1"),
            Vec::new(),
        )
        .await?;
        let Some(mut row) = rows.into_iter().next() else { return Ok(LogHead::default()) };
        let (origin, size) = (row.text()?, size_of(row.int()?));
        let rows = Self::query(
            &mut tx,
            same("SELECT note, sealed_at FROM log_checkpoints ORDER BY size DESC LIMIT 1"),
            Vec::new(),
        )
        .await?;
        let (note, sealed_at) = match rows.into_iter().next() {
            None => (None, None),
            Some(mut row) => (row.maybe_text()?, row.maybe_stamp()?),
        };
        Ok(LogHead { origin, size, note, sealed_at })
    }

    async fn unsealed(&self) -> Result<Unsealed, Error> {
        let mut tx = self.engine.begin_read().await?;
        Self::unsealed_in(&mut tx).await
    }

    async fn seal(
        &self,
        hold: Hold,
        limit: usize,
        sign: SignHead<'_>,
    ) -> Result<Option<Sealed>, Error> {
        let limit = limit.clamp(1, LOG_ROWS_MAX);
        let mut tx = self.engine.begin().await?;
        Self::check_hold(&mut tx, hold).await?;
        // The row is also the lock: two sealers could only come one after the other.
        let rows = Self::query(&mut tx, STATE, Vec::new()).await?;
        let mut state = rows.into_iter().next().ok_or_else(|| damaged("origin"))?;
        let (origin, was, text) = (state.text()?, size_of(state.int()?), state.text()?);
        let mut edge = Edge::from_text(was, &text).ok_or_else(|| damaged("edge"))?;
        let values: Vec<Value> = vec![i64::try_from(limit).unwrap_or(1).into()];
        let rows = Self::query(&mut tx, PENDING, values).await?;
        if rows.is_empty() {
            return Ok(None);
        }
        let more = rows.len() == limit;
        let (mut leaves, mut tiles) = (Vec::with_capacity(rows.len()), Vec::new());
        let mut last = 0;
        for mut row in rows {
            last = row.int()?;
            let hash = raw(&mut row)?.hash();
            leaves.push((edge.size(), last, hash));
            tiles.extend(edge.append(hash));
        }
        let count = leaves.len() as u64;
        Self::insert_leaves(&mut tx, leaves).await?;
        Self::insert_tiles(&mut tx, &tiles).await?;
        // Not simply "up to the last one": a smaller number may have committed a moment ago.
        let gone = Self::execute(
            &mut tx,
            same(
                "DELETE FROM log_pending WHERE fact_no <= $1
                   AND fact_no IN (SELECT l.fact_no FROM log_leaves l WHERE l.log_index >= $2)",
            ),
            vec![last.into(), place_of(was).into()],
        )
        .await?;
        super::rows::expect_rows(count, gone)?;
        let head = Checkpoint { origin, size: edge.size(), root: edge.root() };
        let note = sign(&head);
        Self::execute(
            &mut tx,
            same(
                "INSERT INTO log_checkpoints (size, root, note, sealed_at) VALUES ($1, $2, $3, $4)",
            ),
            vec![
                place_of(head.size).into(),
                tree::encode(&head.root).into(),
                note.as_str().into(),
                self.env.clock.now().into(),
            ],
        )
        .await?;
        let changed = Self::execute(
            &mut tx,
            same("UPDATE log_state SET size = $1, edge = $2 WHERE one = 1 AND size = $3"),
            vec![place_of(head.size).into(), edge.to_text().into(), place_of(was).into()],
        )
        .await?;
        super::rows::expect_rows(1, changed)?;
        E::commit(tx).await?;
        Ok(Some(Sealed { size: head.size, more }))
    }

    async fn log_keys(&self) -> Result<Vec<LogKey>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let sql = same("SELECT vkey, from_size FROM log_keys ORDER BY place");
        let rows = Self::query(&mut tx, sql, Vec::new()).await?;
        rows.into_iter()
            .map(|mut row| Ok(LogKey { vkey: row.text()?, from_size: size_of(row.int()?) }))
            .collect()
    }

    async fn add_log_key(&self, hold: Hold, vkey: &str) -> Result<(), Error> {
        let mut tx = self.engine.begin().await?;
        Self::check_hold(&mut tx, hold).await?;
        let rows = Self::query(&mut tx, STATE, Vec::new()).await?;
        let mut state = rows.into_iter().next().ok_or_else(|| damaged("origin"))?;
        let (_, size) = (state.text()?, state.int()?);
        let sql = same("SELECT vkey, place FROM log_keys ORDER BY place DESC LIMIT 1");
        let before = match Self::query(&mut tx, sql, Vec::new()).await?.into_iter().next() {
            None => None,
            Some(mut row) => Some((row.text()?, row.int()?)),
        };
        let place = before.as_ref().map_or(1, |(_, place)| place + 1);
        Self::execute(
            &mut tx,
            same("INSERT INTO log_keys (place, vkey, from_size, since) VALUES ($1, $2, $3, $4)"),
            vec![place.into(), vkey.into(), size.into(), self.env.clock.now().into()],
        )
        .await?;
        if let Some((before, _)) = before {
            // The middle part is the key's id.
            let id = |vkey: &str| vkey.split('+').nth(1).unwrap_or_default().to_owned();
            let detail = Detail::default()
                .code("setting", "evidence.key")
                .code("before", &id(&before))
                .code("after", &id(vkey));
            self.note_operator(&mut tx, FactKind::Config, "system", &detail).await?;
        }
        E::commit(tx).await
    }

    async fn log_rows(&self, from: u64) -> Result<Vec<LogRow>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let limit = i64::try_from(LOG_ROWS_MAX).unwrap_or(1);
        let rows = Self::query(&mut tx, ROWS, vec![place_of(from).into(), limit.into()]).await?;
        rows.into_iter()
            .map(|mut row| {
                let (index, fact_no) = (size_of(row.int()?), row.int()?);
                let hash = row.maybe_text()?.as_deref().and_then(tree::decode);
                let is_there = row.maybe_int()?.is_some();
                let fact = raw(&mut row)?;
                Ok(LogRow { index, fact_no, hash, fact: is_there.then_some(fact) })
            })
            .collect()
    }

    async fn tile(&self, (level, index): TileId) -> Result<Vec<Hash>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let from = index.saturating_mul(TILE_WIDTH);
        let bounds = [place_of(from), place_of(from.saturating_add(TILE_WIDTH))];
        let rows = if level == 0 {
            let sql = same(
                "SELECT leaf_hash FROM log_leaves WHERE log_index >= $1 AND log_index < $2
                 ORDER BY log_index",
            );
            Self::query(&mut tx, sql, bounds.map(Value::from).to_vec()).await?
        } else {
            let sql = same(
                "SELECT hash FROM log_tiles WHERE tile >= $1 AND tile < $2 AND level = $3
                 ORDER BY tile",
            );
            let mut values = bounds.map(Value::from).to_vec();
            values.push(level.into());
            Self::query(&mut tx, sql, values).await?
        };
        rows.into_iter()
            .map(|mut row| tree::decode(&row.text()?).ok_or_else(|| damaged("hash")))
            .collect()
    }

    async fn checkpoints(&self, above: u64) -> Result<Vec<KeptCheckpoint>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let sql = same(
            "SELECT size, note, sealed_at FROM log_checkpoints WHERE size > $1 ORDER BY size LIMIT $2",
        );
        let limit = i64::try_from(LOG_ROWS_MAX).unwrap_or(1);
        let rows = Self::query(&mut tx, sql, vec![place_of(above).into(), limit.into()]).await?;
        rows.into_iter().map(read_checkpoint).collect()
    }

    async fn checkpoint_from(&self, size: u64) -> Result<Option<KeptCheckpoint>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let sql = same(
            "SELECT size, note, sealed_at FROM log_checkpoints WHERE size >= $1 ORDER BY size LIMIT 1",
        );
        let rows = Self::query(&mut tx, sql, vec![place_of(size).into()]).await?;
        rows.into_iter().next().map(read_checkpoint).transpose()
    }

    async fn purged_ranges(&self) -> Result<Vec<PurgedRange>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let sql = same("SELECT from_index, to_index FROM log_purges ORDER BY from_index");
        let rows = Self::query(&mut tx, sql, Vec::new()).await?;
        rows.into_iter()
            .map(|mut row| Ok(PurgedRange { from: size_of(row.int()?), to: size_of(row.int()?) }))
            .collect()
    }

    async fn outside_the_log(&self) -> Result<(u64, u64), Error> {
        let mut tx = self.engine.begin_read().await?;
        let unknown = Batch::new(
            "SELECT COUNT(*) FROM facts f
             WHERE NOT EXISTS (SELECT 1 FROM log_leaves l WHERE l.fact_no = f.fact_no)
               AND NOT EXISTS (SELECT 1 FROM log_pending p WHERE p.fact_no = f.fact_no)",
        );
        let gone = Batch::new(
            "SELECT COUNT(*) FROM log_pending p
             WHERE NOT EXISTS (SELECT 1 FROM facts f WHERE f.fact_no = p.fact_no)",
        );
        Ok((Self::one_count(&mut tx, unknown).await?, Self::one_count(&mut tx, gone).await?))
    }

    async fn selected(
        &self,
        what: &Selection,
        after: Option<u64>,
    ) -> Result<Vec<LoggedFact>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let mut batch = Batch::new(
            "SELECT l.log_index, f.seq, f.id, f.event_id, f.at, f.kind, f.old_state, f.new_state,
                f.attempt, f.attempt_id, f.reason, f.provider, f.provider_message_id, f.token_id,
                f.actor, f.detail
             FROM facts f JOIN log_leaves l ON l.fact_no = f.fact_no WHERE ",
        );
        // The plus sign keeps the engines from walking the whole log where a few facts are asked for.
        let place = match what {
            Selection::Time(..) => "l.log_index",
            Selection::Record(_) | Selection::Seller(_) => "+l.log_index",
        };
        batch.push(place).push(" > ");
        batch.bind(after.map_or(-1, place_of));
        narrow(&mut batch, what);
        batch.push(" ORDER BY ").push(place).push(" LIMIT ");
        batch.bind(i64::try_from(LOG_ROWS_MAX).unwrap_or(1));
        Self::query_batch(&mut tx, batch)
            .await?
            .into_iter()
            .map(|mut row| Ok(LoggedFact { index: size_of(row.int()?), fact: read_fact(row)? }))
            .collect()
    }

    async fn keep_verdict(&self, actor: &str, verdict: &AuditVerdict) -> Result<(), Error> {
        let mut tx = self.engine.begin().await?;
        let text = serde_json::to_string(verdict).map_err(|_| damaged("verdict"))?;
        Self::put_setting(&mut tx, VERDICT, &text, verdict.at).await?;
        let detail = Detail::default()
            .code("what", "audit_verify")
            .number("integrity", i64::from(verdict.integrity))
            .number("completeness", i64::from(verdict.completeness))
            .number("log_size", place_of(verdict.size));
        self.note_operator(&mut tx, FactKind::Operator, actor, &detail).await?;
        E::commit(tx).await
    }

    async fn verdict(&self) -> Result<Option<AuditVerdict>, Error> {
        let mut tx = self.engine.begin_read().await?;
        Self::verdict_in(&mut tx).await
    }

    async fn waiting(&self, what: &Selection) -> Result<u64, Error> {
        let mut tx = self.engine.begin_read().await?;
        let mut batch = Batch::new(
            "SELECT COUNT(*) FROM (SELECT 1 AS one FROM log_pending p
               JOIN facts f ON f.fact_no = p.fact_no WHERE 1 = 1",
        );
        narrow(&mut batch, what);
        let limit = i64::try_from(LOG_ROWS_MAX).unwrap_or(1);
        batch.push(" LIMIT ").bind(limit).push(") AS counted");
        Self::one_count(&mut tx, batch).await
    }
}

fn read_checkpoint(mut row: Row) -> Result<KeptCheckpoint, Error> {
    Ok(KeptCheckpoint { size: size_of(row.int()?), note: row.text()?, sealed_at: row.stamp()? })
}
