//! Duties: work that one process at a time does for all, under a lease that is a row.
//!
//! No session-level lock: those break behind a pooler that changes the server connection between
//! transactions. A row is also visible to people, and its fence protects what the holder writes.

use app::model::Stamp;
use async_trait::async_trait;

use super::engine::{Engine, Sql, Value, locking, same};
use super::{Error, SqlStore};

/// A duty in hand. Whoever writes under it hands it to the store's verb, which checks the fence in the
/// same transaction (`SqlStore::check_hold`): a holder that was stopped past its lease then writes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// One of [`crate::duty`]'s names.
    pub duty: &'static str,
    /// Grows with each new holder.
    pub fence: i64,
}

/// Who does what, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DutyView {
    pub name: String,
    pub holder: String,
    pub lease_until: Stamp,
}

/// The leases of duties.
#[async_trait]
pub trait Duties: Send + Sync {
    /// Takes the duty, or renews it, for `lease` microseconds; none while another process holds it.
    async fn take_duty(
        &self,
        duty: &'static str,
        holder: &str,
        lease: i64,
    ) -> Result<Option<Hold>, Error>;

    /// Gives every duty of this holder back, so that the next process need not wait for the leases.
    async fn leave_duties(&self, holder: &str) -> Result<(), Error>;

    /// All duties that were ever taken, by name.
    async fn duties(&self) -> Result<Vec<DutyView>, Error>;
}

const TAKE: Sql = same(
    "INSERT INTO duties (name, holder, fence, lease_until) VALUES ($1, $2, 1, $3)
     ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, lease_until = excluded.lease_until,
        fence = duties.fence + CASE WHEN duties.holder = excluded.holder THEN 0 ELSE 1 END
     WHERE duties.holder = excluded.holder OR duties.lease_until <= $4
     RETURNING fence",
);

// Shared: two verbs under one duty do not wait for each other, but nobody takes it away in between.
const HELD: Sql = locking!("SELECT fence FROM duties WHERE name = $1", "FOR SHARE");

impl<E: Engine> SqlStore<E> {
    /// Refuses to go on when another process has taken the duty since. To be asked first in a
    /// transaction that writes under it.
    ///
    /// # Errors
    /// [`Error::DutyLost`].
    pub(super) async fn check_hold(tx: &mut E::Tx, hold: Hold) -> Result<(), Error> {
        let rows = Self::query(tx, HELD, vec![hold.duty.into()]).await?;
        let fence = rows.into_iter().next().map(|mut row| row.int()).transpose()?;
        if fence == Some(hold.fence) { Ok(()) } else { Err(Error::DutyLost { name: hold.duty }) }
    }
}

#[async_trait]
impl<E: Engine> Duties for SqlStore<E> {
    async fn take_duty(
        &self,
        duty: &'static str,
        holder: &str,
        lease: i64,
    ) -> Result<Option<Hold>, Error> {
        let mut tx = self.engine.begin().await?;
        let now = self.env.clock.now();
        let values: Vec<Value> =
            vec![duty.into(), holder.into(), now.plus(lease).into(), now.into()];
        let rows = Self::query(&mut tx, TAKE, values).await?;
        let fence = rows.into_iter().next().map(|mut row| row.int()).transpose()?;
        E::commit(tx).await?;
        Ok(fence.map(|fence| Hold { duty, fence }))
    }

    async fn leave_duties(&self, holder: &str) -> Result<(), Error> {
        let mut tx = self.engine.begin().await?;
        Self::execute(
            &mut tx,
            same("UPDATE duties SET lease_until = 0 WHERE holder = $1"),
            vec![holder.into()],
        )
        .await?;
        E::commit(tx).await
    }

    async fn duties(&self) -> Result<Vec<DutyView>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let rows = Self::query(
            &mut tx,
            same("SELECT name, holder, lease_until FROM duties ORDER BY name LIMIT 100"),
            Vec::new(),
        )
        .await?;
        rows.into_iter()
            .map(|mut row| {
                Ok(DutyView { name: row.text()?, holder: row.text()?, lease_until: row.stamp()? })
            })
            .collect()
    }
}
