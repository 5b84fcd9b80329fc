//! Retention: what is over long enough leaves, as whole ranges of the sealed log, each named by a fact.
//!
//! A purge has two commits. The first names the ranges in a fact; the second, once that fact is in the log,
//! removes what lies in them: the database refuses any other removal. What stays is the leaves' hashes (the
//! log still verifies) and a tombstone (a late retry is answered 410, and never sent again).

use app::model::{Capped, Detail, FactKind, Stamp};
use async_trait::async_trait;

use super::engine::{Batch, Engine, Sql, Value, same};
use super::freezes::{COUNT_MAX, capped};
use super::{Error, Hold, SqlStore};

/// The most events that one purge names.
const RECORDS_MAX: i64 = 500;
/// The most operators' facts that one purge names.
const OPERATORS_MAX: i64 = 2_000;
/// How many events one commit removes: short transactions, so that nothing waits for them.
const CHUNK: usize = 50;

/// Until when things must be over to be purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cutoffs {
    /// Events: settled before this. None: events are kept for ever.
    pub settled_before: Option<Stamp>,
    /// And expired before this: a caller may still retry what expired later.
    pub expired_before: Stamp,
    /// Operators' acts and views: before this. None: kept for ever.
    pub operators_before: Option<Stamp>,
}

/// What a purge would remove now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    pub events: Capped,
    /// Old enough, and kept by a legal hold.
    pub held: Capped,
    pub operators: Capped,
    /// Settled first of those that are kept and not held: the next to be due.
    pub oldest_settled: Option<Stamp>,
}

/// A legal hold: what it covers is not purged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegalHold {
    pub id: String,
    /// None: any seller.
    pub seller_id: Option<String>,
    /// Admitted from here on. None: from the beginning.
    pub from: Option<Stamp>,
    /// Admitted before this. None: no end.
    pub to: Option<Stamp>,
    pub actor: String,
    pub reason: String,
    pub since: Stamp,
}

/// What one pass of the retention did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purged {
    /// Nothing is over long enough.
    Nothing,
    /// Ranges are named; their fact is on its way into the log.
    Named,
    /// So many events were removed, and there is more.
    Some(usize),
}

/// Retention and legal holds.
#[async_trait]
pub trait Retention: Send + Sync {
    /// What would go now, and what is next.
    async fn due_for_purge(&self, cutoffs: Cutoffs) -> Result<Due, Error>;

    /// One step of a purge, under its duty; see [`Purged`].
    async fn purge(&self, hold: Hold, cutoffs: Cutoffs) -> Result<Purged, Error>;

    /// Puts a hold; a fact. Gives its id.
    async fn hold(&self, hold: &LegalHold) -> Result<String, Error>;

    /// Ends a hold; a fact. False when there is none of this id in force.
    async fn end_hold(&self, id: &str, actor: &str, reason: &str) -> Result<bool, Error>;

    /// The holds in force, oldest first.
    async fn holds(&self) -> Result<Vec<LegalHold>, Error>;
}

const HELD: &str = " EXISTS (SELECT 1 FROM log_holds h WHERE h.ended_at IS NULL
       AND (h.seller_id IS NULL OR h.seller_id = r.seller_id)
       AND (h.from_at IS NULL OR r.created_at >= h.from_at)
       AND (h.to_at IS NULL OR r.created_at < h.to_at))";

/// Not every fact of it has its place in the log yet.
const UNSEALED: &str = " EXISTS (SELECT 1 FROM facts f JOIN log_pending p ON p.fact_no = f.fact_no
       WHERE f.id = r.id)";

const OPEN_PURGES: Sql = same(
    "SELECT p.purge_no, p.from_index, p.to_index,
        (SELECT COUNT(*) FROM log_leaves l WHERE l.fact_no = p.fact_no)
     FROM log_purges p WHERE p.done_at IS NULL ORDER BY p.purge_no",
);

/// A range of the log that is being purged.
struct Range {
    purge_no: i64,
    from: i64,
    to: i64,
    is_sealed: bool,
}

/// Joins places into whole ranges `[from, to)`.
fn ranges(mut places: Vec<i64>) -> Vec<(i64, i64)> {
    places.sort_unstable();
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for place in places {
        match ranges.last_mut() {
            Some((_, to)) if *to == place => *to += 1,
            _ => ranges.push((place, place + 1)),
        }
    }
    ranges
}

fn window_parts<'a>(seller: &'a str, purpose: &'a str, window: &'a str) -> [&'a [u8]; 4] {
    [b"window", seller.as_bytes(), purpose.as_bytes(), window.as_bytes()]
}

impl<E: Engine> SqlStore<E> {
    /// The tombstone's name of a window.
    pub(super) fn window_hash(&self, seller: &str, purpose: &str, window: &str) -> String {
        self.env.keys.content_hash(&window_parts(seller, purpose, window))
    }

    /// Adds the condition of an event that is over long enough; `r` is its row.
    fn over(batch: &mut Batch, settled_before: Stamp, expired_before: Stamp) {
        batch.push(" r.settled_at IS NOT NULL AND r.settled_at < ").bind(settled_before);
        batch.push(" AND r.expires_at < ").bind(expired_before);
    }

    async fn count_capped(tx: &mut E::Tx, mut batch: Batch) -> Result<Capped, Error> {
        batch.push(" LIMIT ").bind(COUNT_MAX + 1).push(") AS counted");
        let rows = Self::query_batch(tx, batch).await?;
        Ok(capped(rows.into_iter().next().map_or(Ok(0), |mut row| row.int())?))
    }

    async fn open_purges(tx: &mut E::Tx) -> Result<Vec<Range>, Error> {
        let rows = Self::query(tx, OPEN_PURGES, Vec::new()).await?;
        rows.into_iter()
            .map(|mut row| {
                Ok(Range {
                    purge_no: row.int()?,
                    from: row.int()?,
                    to: row.int()?,
                    is_sealed: row.int()? > 0,
                })
            })
            .collect()
    }

    /// Names what goes next; false when there is nothing.
    async fn name_purge(&self, tx: &mut E::Tx, cutoffs: Cutoffs) -> Result<bool, Error> {
        let mut records = Vec::new();
        if let Some(settled_before) = cutoffs.settled_before {
            let mut batch = Batch::new("SELECT r.id FROM records r WHERE");
            Self::over(&mut batch, settled_before, cutoffs.expired_before);
            batch.push(" AND NOT").push(HELD).push(" AND NOT").push(UNSEALED);
            batch.push(" ORDER BY r.settled_at, r.id LIMIT ").bind(RECORDS_MAX);
            for mut row in Self::query_batch(tx, batch).await? {
                records.push(row.text()?);
            }
        }
        let mut places = Vec::new();
        if !records.is_empty() {
            let mut batch = Batch::new(
                "SELECT l.log_index FROM facts f JOIN log_leaves l ON l.fact_no = f.fact_no
                 WHERE f.id IN ",
            );
            batch.list(&records);
            for mut row in Self::query_batch(tx, batch).await? {
                places.push(row.int()?);
            }
        }
        let of_records = places.len();
        if let Some(before) = cutoffs.operators_before {
            let rows = Self::query(
                tx,
                same(
                    "SELECT l.log_index FROM facts f JOIN log_leaves l ON l.fact_no = f.fact_no
                      WHERE f.kind = 'operator' AND f.at < $1 ORDER BY f.at, f.seq LIMIT $2",
                ),
                vec![before.into(), OPERATORS_MAX.into()],
            )
            .await?;
            for mut row in rows {
                places.push(row.int()?);
            }
        }
        if places.is_empty() {
            return Ok(false);
        }
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let (facts, operators) = (number(places.len()), number(places.len() - of_records));
        let ranges = ranges(places);
        let detail = Detail::default()
            .number("events", number(records.len()))
            .number("facts", facts)
            .number("operators", operators)
            .number("ranges", number(ranges.len()));
        let fact_no = self.note_operator(tx, FactKind::Purge, "system", &detail).await?;
        let rows =
            Self::query(tx, same("SELECT COALESCE(MAX(purge_no), 0) FROM log_purges"), Vec::new());
        let last = rows.await?.into_iter().next().map_or(Ok(0), |mut row| row.int())?;
        let now = self.env.clock.now();
        let mut purges = Vec::new();
        for ((from, to), purge_no) in ranges.into_iter().zip(last + 1..) {
            let row: Vec<Value> =
                vec![purge_no.into(), from.into(), to.into(), fact_no.into(), now.into()];
            purges.push(row);
        }
        for group in purges.chunks(200) {
            let mut batch = Batch::new(
                "INSERT INTO log_purges (purge_no, from_index, to_index, fact_no, begun_at) VALUES ",
            );
            batch.rows(group.to_vec());
            Self::execute_batch(tx, batch).await?;
        }
        Ok(true)
    }

    /// Events of these ranges that may still go: nothing new was said about them, and nobody holds them.
    async fn next_to_go(
        tx: &mut E::Tx,
        ranges: &[Range],
        cutoffs: Cutoffs,
    ) -> Result<Vec<String>, Error> {
        let Some(settled_before) = cutoffs.settled_before else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for range in ranges {
            let mut batch = Batch::new(
                "SELECT DISTINCT r.id FROM log_leaves l
                   JOIN facts f ON f.fact_no = l.fact_no JOIN records r ON r.id = f.id
                 WHERE l.log_index >= ",
            );
            batch.bind(range.from).push(" AND l.log_index < ").bind(range.to).push(" AND");
            Self::over(&mut batch, settled_before, cutoffs.expired_before);
            batch.push(" AND NOT").push(HELD).push(" AND NOT").push(UNSEALED);
            // All of its facts lie in ranges of purges that are under way.
            batch.push(
                " AND NOT EXISTS (SELECT 1 FROM facts o JOIN log_leaves m ON m.fact_no = o.fact_no
                    WHERE o.id = r.id AND NOT EXISTS (SELECT 1 FROM log_purges p
                      WHERE p.done_at IS NULL AND m.log_index >= p.from_index
                        AND m.log_index < p.to_index))",
            );
            batch.push(" LIMIT ").bind(i64::try_from(CHUNK - found.len()).unwrap_or(1));
            for mut row in Self::query_batch(tx, batch).await? {
                let id = row.text()?;
                if !found.contains(&id) {
                    found.push(id);
                }
            }
            if found.len() >= CHUNK {
                break;
            }
        }
        Ok(found)
    }

    /// Removes these events but for their tombstones and leaves.
    async fn remove_events(&self, tx: &mut E::Tx, ids: &[String]) -> Result<(), Error> {
        let now = self.env.clock.now();
        let loaded = Self::load(tx, ids.iter().map(String::as_str)).await?;
        let rows = loaded
            .values()
            .map(|stored| {
                let extra = &stored.extra;
                let window = match (&extra.seller_id, &extra.request_window) {
                    (Some(seller), Some(window)) => {
                        Some(self.window_hash(seller, &extra.purpose, window))
                    }
                    _ => None,
                };
                vec![
                    (&stored.record.id).into(),
                    (&window).into(),
                    (&extra.token_id).into(),
                    stored.record.channel.as_str().into(),
                    (&extra.destination_hash).into(),
                    (&extra.reset_hash).into(),
                    now.into(),
                ]
            })
            .collect();
        let mut batch = Batch::new(
            "INSERT INTO tombstones (record_id, window_hash, token_id, channel, destination_hash,
               reset_hash, purged_at) VALUES ",
        );
        batch.rows(rows);
        Self::execute_batch(tx, batch).await?;
        let mut batch = Batch::new("UPDATE admissions SET purged_at = ");
        batch.bind(now).push(" WHERE record_id IN ").list(ids);
        Self::execute_batch(tx, batch).await?;
        for statement in [
            "DELETE FROM admission_notes WHERE record_id IN ",
            "DELETE FROM token_uses WHERE record_id IN ",
            "DELETE FROM lost_attempts WHERE id IN ",
            "DELETE FROM calls WHERE id IN ",
            "DELETE FROM attempts WHERE id IN ",
            "DELETE FROM facts WHERE id IN ",
            "DELETE FROM records WHERE id IN ",
        ] {
            let mut batch = Batch::new(statement);
            batch.list(ids);
            Self::execute_batch(tx, batch).await?;
        }
        Ok(())
    }

    /// Ends the purges: operators' facts of their ranges go, and the ranges are closed.
    async fn close_purges(&self, tx: &mut E::Tx, ranges: &[Range]) -> Result<(), Error> {
        let now = self.env.clock.now();
        for range in ranges {
            Self::execute(
                tx,
                same(
                    "DELETE FROM facts WHERE kind = 'operator' AND fact_no IN (
                       SELECT fact_no FROM log_leaves WHERE log_index >= $1 AND log_index < $2)",
                ),
                vec![range.from.into(), range.to.into()],
            )
            .await?;
            Self::execute(
                tx,
                same("UPDATE log_purges SET done_at = $1 WHERE purge_no = $2"),
                vec![now.into(), range.purge_no.into()],
            )
            .await?;
        }
        Ok(())
    }
}

#[async_trait]
impl<E: Engine> Retention for SqlStore<E> {
    async fn due_for_purge(&self, cutoffs: Cutoffs) -> Result<Due, Error> {
        let mut tx = self.engine.begin_read().await?;
        let none = Capped { count: 0, more: false };
        let (mut events, mut held, mut operators) = (none, none, none);
        if let Some(settled_before) = cutoffs.settled_before {
            let mut batch =
                Batch::new("SELECT COUNT(*) FROM (SELECT 1 AS one FROM records r WHERE");
            Self::over(&mut batch, settled_before, cutoffs.expired_before);
            batch.push(" AND NOT").push(HELD);
            events = Self::count_capped(&mut tx, batch).await?;
            let mut batch =
                Batch::new("SELECT COUNT(*) FROM (SELECT 1 AS one FROM records r WHERE");
            Self::over(&mut batch, settled_before, cutoffs.expired_before);
            batch.push(" AND").push(HELD);
            held = Self::count_capped(&mut tx, batch).await?;
        }
        if let Some(before) = cutoffs.operators_before {
            let mut batch = Batch::new(
                "SELECT COUNT(*) FROM (SELECT 1 AS one FROM facts f
                 WHERE f.kind = 'operator' AND f.at < ",
            );
            batch.bind(before);
            operators = Self::count_capped(&mut tx, batch).await?;
        }
        let mut batch = Batch::new(
            "SELECT r.settled_at FROM records r WHERE r.settled_at IS NOT NULL AND r.settled_at >= ",
        );
        batch.bind(cutoffs.settled_before.unwrap_or(Stamp::from_micros(0)));
        batch.push(" AND NOT").push(HELD).push(" ORDER BY r.settled_at LIMIT 1");
        let rows = Self::query_batch(&mut tx, batch).await?;
        let oldest_settled = rows.into_iter().next().map(|mut row| row.stamp()).transpose()?;
        Ok(Due { events, held, operators, oldest_settled })
    }

    async fn purge(&self, hold: Hold, cutoffs: Cutoffs) -> Result<Purged, Error> {
        let mut tx = self.engine.begin().await?;
        Self::check_hold(&mut tx, hold).await?;
        let open = Self::open_purges(&mut tx).await?;
        if open.is_empty() {
            let is_named = self.name_purge(&mut tx, cutoffs).await?;
            E::commit(tx).await?;
            return Ok(if is_named { Purged::Named } else { Purged::Nothing });
        }
        if open.iter().any(|range| !range.is_sealed) {
            return Ok(Purged::Named);
        }
        let ids = Self::next_to_go(&mut tx, &open, cutoffs).await?;
        if ids.is_empty() {
            self.close_purges(&mut tx, &open).await?;
        } else {
            self.remove_events(&mut tx, &ids).await?;
        }
        E::commit(tx).await?;
        Ok(Purged::Some(ids.len()))
    }

    async fn hold(&self, hold: &LegalHold) -> Result<String, Error> {
        let mut tx = self.engine.begin().await?;
        let now = self.env.clock.now();
        let id = self.env.entropy.uuid(now);
        Self::execute(
            &mut tx,
            same(
                "INSERT INTO log_holds (hold_id, seller_id, from_at, to_at, actor, reason, since)
                  VALUES ($1, $2, $3, $4, $5, $6, $7)",
            ),
            vec![
                (&id).into(),
                (&hold.seller_id).into(),
                hold.from.into(),
                hold.to.into(),
                (&hold.actor).into(),
                (&hold.reason).into(),
                now.into(),
            ],
        )
        .await?;
        let detail = hold_detail("begun", &id);
        self.note_operator(&mut tx, FactKind::LegalHold, &hold.actor, &detail).await?;
        E::commit(tx).await?;
        Ok(id)
    }

    async fn end_hold(&self, id: &str, actor: &str, reason: &str) -> Result<bool, Error> {
        let mut tx = self.engine.begin().await?;
        let ended = Self::execute(
            &mut tx,
            same(
                "UPDATE log_holds SET ended_at = $1, ended_by = $2, ended_reason = $3
                  WHERE hold_id = $4 AND ended_at IS NULL",
            ),
            vec![self.env.clock.now().into(), actor.into(), reason.into(), id.into()],
        )
        .await?;
        if ended == 0 {
            return Ok(false);
        }
        let detail = hold_detail("ended", id);
        self.note_operator(&mut tx, FactKind::LegalHold, actor, &detail).await?;
        E::commit(tx).await?;
        Ok(true)
    }

    async fn holds(&self) -> Result<Vec<LegalHold>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let rows = Self::query(
            &mut tx,
            same(
                "SELECT hold_id, seller_id, from_at, to_at, actor, reason, since FROM log_holds
                  WHERE ended_at IS NULL ORDER BY since, hold_id LIMIT 1000",
            ),
            Vec::new(),
        )
        .await?;
        rows.into_iter()
            .map(|mut row| {
                Ok(LegalHold {
                    id: row.text()?,
                    seller_id: row.maybe_text()?,
                    from: row.maybe_stamp()?,
                    to: row.maybe_stamp()?,
                    actor: row.text()?,
                    reason: row.text()?,
                    since: row.stamp()?,
                })
            })
            .collect()
    }
}

fn hold_detail(act: &'static str, id: &str) -> Detail {
    Detail::default().code("act", act).code("hold", id)
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn places_are_joined_into_whole_ranges() {
        assert_eq!(ranges(vec![7, 3, 4, 9, 5]), [(3, 6), (7, 8), (9, 10)]);
        assert!(ranges(Vec::new()).is_empty());
    }
}
