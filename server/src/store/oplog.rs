//! The operators' log, and the blind look-up that it must know of.

use app::model::{ActGroup, Capped, Detail, Fact, FactKind, LookupFound, LookupKind, Stamp};
use async_trait::async_trait;

use super::engine::{Batch, Engine};
use super::rows::{FACT_COLUMNS, columns, read_fact, read_stored, view};
use super::{Error, SqlStore};

/// Rows of one page at most.
const LOG_ROWS_MAX: usize = 1_000;

/// Records that a blind look-up shows.
const LOOKUP_ROWS_MAX: usize = 50;

/// What of the log is asked for.
#[derive(Debug, Clone, Default)]
pub struct LogSearch {
    pub group: Option<ActGroup>,
    pub actor: Option<String>,
    pub after: Option<Stamp>,
    pub before: Option<Stamp>,
    /// Older than this number of the series.
    pub cursor: Option<u32>,
    pub limit: usize,
}

/// A part of the log, newest first.
#[derive(Debug, Clone, Default)]
pub struct LogListed {
    pub rows: Vec<Fact>,
    pub more: bool,
}

/// What only some may read.
#[async_trait]
pub trait OperatorsLog: Send + Sync {
    /// Facts without a record, newest first.
    async fn operators_log(&self, search: &LogSearch) -> Result<LogListed, Error>;

    /// How many there are, up to the limit of counting.
    async fn operators_log_count(&self, search: &LogSearch) -> Result<Capped, Error>;

    /// The records with a call to a destination of one of these fingerprints, newest first. The look-up is
    /// a fact in the same transaction: what cannot be recorded is not answered.
    async fn blind_lookup(
        &self,
        actor: &str,
        kind: LookupKind,
        fingerprints: &[String],
    ) -> Result<LookupFound, Error>;
}

fn filters(batch: &mut Batch, search: &LogSearch) {
    if let Some(actor) = &search.actor {
        batch.push(" AND actor = ").bind(actor);
    }
    if let Some(after) = search.after {
        batch.push(" AND at >= ").bind(after);
    }
    if let Some(before) = search.before {
        batch.push(" AND at < ").bind(before);
    }
    // `what` is the name of an act in `detail`, which is compact JSON of ours.
    match search.group {
        None => {}
        Some(ActGroup::Freeze) => {
            batch.push(" AND kind IN ('freeze', 'unfreeze')");
        }
        Some(ActGroup::Setting) => {
            batch.push(" AND kind = 'config'");
        }
        Some(ActGroup::View) => {
            batch.push(" AND kind = 'operator' AND detail LIKE '%\"what\":\"view_%'");
        }
        Some(ActGroup::Export) => {
            batch.push(" AND kind = 'operator' AND detail LIKE '%\"what\":\"export_%'");
        }
        Some(ActGroup::Lookup) => {
            batch.push(
                " AND kind = 'operator' AND (detail LIKE '%\"what\":\"lookup\"%'
                    OR detail LIKE '%\"what\":\"search\"%' OR detail LIKE '%\"what\":\"find\"%')",
            );
        }
        Some(ActGroup::Account) => {
            batch.push(
                " AND kind = 'operator' AND detail NOT LIKE '%\"what\":\"view_%'
                    AND detail NOT LIKE '%\"what\":\"export_%'
                    AND detail NOT LIKE '%\"what\":\"lookup\"%'
                    AND detail NOT LIKE '%\"what\":\"search\"%'
                    AND detail NOT LIKE '%\"what\":\"find\"%'",
            );
        }
    }
}

#[async_trait]
impl<E: Engine> OperatorsLog for SqlStore<E> {
    async fn operators_log(&self, search: &LogSearch) -> Result<LogListed, Error> {
        let limit = search.limit.clamp(1, LOG_ROWS_MAX);
        let mut tx = self.engine.begin_read().await?;
        let mut batch = Batch::new(FACT_COLUMNS);
        batch.push("WHERE id IS NULL");
        filters(&mut batch, search);
        if let Some(cursor) = search.cursor {
            batch.push(" AND seq < ").bind(cursor);
        }
        let probe = i64::try_from(limit + 1).unwrap_or(i64::MAX);
        batch.push(" ORDER BY seq DESC LIMIT ").bind(probe);
        let rows = Self::query_batch(&mut tx, batch).await?;
        let mut rows: Vec<Fact> = rows.into_iter().map(read_fact).collect::<Result<_, _>>()?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        Ok(LogListed { rows, more })
    }

    async fn operators_log_count(&self, search: &LogSearch) -> Result<Capped, Error> {
        let mut tx = self.engine.begin_read().await?;
        let mut batch =
            Batch::new("SELECT COUNT(*) FROM (SELECT 1 AS one FROM facts WHERE id IS NULL");
        filters(&mut batch, search);
        Self::count_of(&mut tx, batch).await
    }

    async fn blind_lookup(
        &self,
        actor: &str,
        kind: LookupKind,
        fingerprints: &[String],
    ) -> Result<LookupFound, Error> {
        let mut tx = self.engine.begin().await?;
        let mut batch = Batch::new(concat!(
            "SELECT ",
            columns!(),
            " FROM records r WHERE r.id IN (SELECT a.id FROM attempts a WHERE a.fingerprint IN "
        ));
        batch.list(fingerprints.iter());
        let probe = i64::try_from(LOOKUP_ROWS_MAX + 1).unwrap_or(i64::MAX);
        batch.push(") ORDER BY r.created_at DESC, r.id DESC LIMIT ").bind(probe);
        let mut stored = Self::query_batch(&mut tx, batch)
            .await?
            .into_iter()
            .map(read_stored)
            .collect::<Result<Vec<_>, _>>()?;
        let more = stored.len() > LOOKUP_ROWS_MAX;
        stored.truncate(LOOKUP_ROWS_MAX);
        let freezes = Self::active_freezes(&mut tx).await?;
        let detail = Detail::default()
            .code("what", "lookup")
            .code("by", kind.as_str())
            .number("found", i64::try_from(stored.len()).unwrap_or(i64::MAX));
        self.note_operator(&mut tx, FactKind::Operator, actor, &detail).await?;
        E::commit(tx).await?;
        let policy = &self.env.rules.policy;
        Ok(LookupFound {
            rows: stored.iter().map(|stored| view(stored, &freezes, policy)).collect(),
            more,
        })
    }
}
