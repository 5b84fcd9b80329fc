//! What `doctor` asks of the database. Everything here only reads, whatever the schema is.

use async_trait::async_trait;

use super::engine::{Engine, same};
use super::{Error, SCHEMA_VERSION, SqlStore};
use crate::finding::Finding;

/// An examination of the database.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// How the engine is set up, and whether the schema and the keys are ours.
    async fn inspect(&self) -> Result<Vec<Finding>, Error>;
}

impl<E: Engine> SqlStore<E> {
    fn schema_finding(found: i64) -> Finding {
        let check = "database.schema";
        let known = SCHEMA_VERSION;
        match found {
            0 => Finding::bad(check, "the database is empty", "run `sendonce migrate`"),
            n if n < known => Finding::bad(
                check,
                &format!("schema {n} is older than this program's {known}"),
                "run `sendonce migrate`",
            ),
            n if n > known => Finding::bad(
                check,
                &format!("schema {n} is newer than this program's {known}"),
                "use the program that migrated it, or a backup",
            ),
            n => Finding::good(check, &format!("schema {n}")),
        }
    }

    async fn key_finding(&self) -> Result<Finding, Error> {
        let mut tx = self.engine.begin_read().await?;
        let mut registered = 0;
        for (name, value) in self.env.keys.checks() {
            let rows = Self::query(
                &mut tx,
                same("SELECT value FROM key_checks WHERE name = $1"),
                vec![(&name).into()],
            )
            .await?;
            let Some(mut row) = rows.into_iter().next() else { continue };
            registered += 1;
            if row.text()? != value {
                return Ok(Finding::bad(
                    "keys.match",
                    &format!("the key `{name}` is not the one that this database was made with"),
                    "copy sendonce.keys from the data folder of the process that made it",
                ));
            }
        }
        Ok(match registered {
            0 => Finding::warning(
                "keys.match",
                "the database knows no keys yet",
                "start `sendonce serve` once; then keep a copy of sendonce.keys",
            ),
            _ => Finding::good("keys.match", "the keys are those of this database"),
        })
    }
}

#[async_trait]
impl<E: Engine> Inspect for SqlStore<E> {
    async fn inspect(&self) -> Result<Vec<Finding>, Error> {
        let mut findings = self.engine.inspect().await?;
        let found = self.engine.schema_version().await?;
        findings.push(Self::schema_finding(found));
        if found > 0 {
            findings.push(self.key_finding().await?);
        }
        Ok(findings)
    }
}
