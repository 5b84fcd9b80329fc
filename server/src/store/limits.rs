//! Limits on the store: counted and decided in the commit of what they decide about.
//!
//! Where several processes share the database, whoever asks about a subject waits for whoever asks about the
//! same one, so that two of them never take the same last place. Subjects are locked in one order.

use std::collections::{BTreeMap, BTreeSet};

use app::model::Stamp;

use super::engine::{Batch, Engine, Sql, same};
use super::{Error, SqlStore};
use crate::policy::{Limit, Scope, Window};

/// One asker about a subject at a time. The single writer of the embedded engine is that already.
const ALONE: Sql = Sql {
    sqlite: "SELECT $1",
    postgres: "SELECT CAST(pg_advisory_xact_lock(hashtextextended($1, 0)) AS TEXT)",
};

/// Rows that are over, removed in one go.
const OVER: Sql = same(
    "DELETE FROM limit_slices WHERE over_at <= $1 AND (subject, slice_at) IN
       (SELECT subject, slice_at FROM limit_slices WHERE over_at <= $1 LIMIT $2)",
);

/// The windows that one commit asks about, by what they count.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Subject and window, for each limit of the scope.
    by_value: BTreeMap<(Scope, String), Vec<(String, Window)>>,
}

impl Windows {
    /// The rule that one more hit would break, and how long it lasts.
    pub(super) fn full(&self, hits: &[(Scope, &str)], now: Stamp) -> Option<(Scope, i64)> {
        hits.iter()
            .flat_map(|(scope, value)| {
                self.windows(*scope, value)
                    .filter_map(move |window| Some((*scope, window.full_for(now)?)))
            })
            .max_by_key(|(_, wait)| *wait)
    }

    /// Counts one more hit.
    pub(super) fn add(&mut self, hits: &[(Scope, &str)]) {
        for (scope, value) in hits {
            if let Some(windows) = self.by_value.get_mut(&(*scope, (*value).to_owned())) {
                windows.iter_mut().for_each(|(_, window)| window.added += 1);
            }
        }
    }

    fn windows(&self, scope: Scope, value: &str) -> impl Iterator<Item = &Window> {
        let found = self.by_value.get(&(scope, value.to_owned()));
        found.into_iter().flatten().map(|(_, window)| window)
    }
}

impl<E: Engine> SqlStore<E> {
    /// Holds the subjects behind these values, and reads their windows.
    pub(super) async fn open_windows(
        &self,
        tx: &mut E::Tx,
        asked: BTreeSet<(Scope, String)>,
    ) -> Result<Windows, Error> {
        let limits = &self.env.rules.sending.limits;
        let mut found: BTreeMap<String, (Scope, String, Limit)> = BTreeMap::new();
        for (scope, value) in asked {
            for limit in limits.of(scope) {
                let subject = self.env.keys.content_hash(&[
                    b"limit",
                    scope.as_str().as_bytes(),
                    value.as_bytes(),
                    &limit.window.to_be_bytes(),
                ]);
                found.insert(subject, (scope, value.clone(), limit));
            }
        }
        let mut windows = Windows::default();
        if found.is_empty() {
            return Ok(windows);
        }
        for subject in found.keys() {
            Self::query(tx, ALONE, vec![subject.into()]).await?;
        }
        let mut batch =
            Batch::new("SELECT subject, slice_at, hits FROM limit_slices WHERE subject IN ");
        batch.list(found.keys()).push(" ORDER BY subject, slice_at");
        let mut slices: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
        for mut row in Self::query_batch(tx, batch).await? {
            slices.entry(row.text()?).or_default().push((row.int()?, row.int()?));
        }
        for (subject, (scope, value, limit)) in found {
            let slices = slices.remove(&subject).unwrap_or_default();
            let window = Window { limit, slices, added: 0 };
            windows.by_value.entry((scope, value)).or_default().push((subject, window));
        }
        Ok(windows)
    }

    /// Writes what was added, and removes what is over of the same subjects.
    pub(super) async fn write_windows(
        tx: &mut E::Tx,
        windows: &Windows,
        now: Stamp,
    ) -> Result<(), Error> {
        let rows: Vec<_> = windows
            .by_value
            .values()
            .flatten()
            .filter(|(_, window)| window.added > 0)
            .map(|(subject, window)| {
                let at = window.limit.slice_at(now);
                vec![
                    subject.into(),
                    at.into(),
                    window.added.into(),
                    window.limit.over_at(at).into(),
                ]
            })
            .collect();
        if rows.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new("DELETE FROM limit_slices WHERE over_at <= ");
        batch.bind(now).push(" AND subject IN ");
        batch.list(windows.by_value.values().flatten().map(|(subject, _)| subject));
        Self::execute_batch(tx, batch).await?;
        let mut batch =
            Batch::new("INSERT INTO limit_slices (subject, slice_at, hits, over_at) VALUES ");
        batch.rows(rows).push(
            " ON CONFLICT (subject, slice_at) DO UPDATE SET hits = limit_slices.hits + excluded.hits",
        );
        Self::execute_batch(tx, batch).await.map(|_| ())
    }

    /// Removes counts that nobody reads any more.
    pub(super) async fn purge_windows(&self, most: i64) -> Result<u64, Error> {
        let mut tx = self.engine.begin().await?;
        let gone =
            Self::execute(&mut tx, OVER, vec![self.env.clock.now().into(), most.into()]).await?;
        E::commit(tx).await?;
        Ok(gone)
    }
}
