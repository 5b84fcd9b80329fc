//! PostgreSQL: many processes, row locks, one text shared with the embedded engine.

use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Column as _, Postgres, Row as _, TypeInfo as _, ValueRef as _};

use super::Error;
use super::engine::{Cell, Engine, Row, Sql, Value, migrator, schema_of, store_error};
use crate::finding::Finding;

pub(super) const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "ledger", include_str!("../../../migrations/postgres/0001_ledger.sql")),
    (2, "nodes", include_str!("../../../migrations/postgres/0002_nodes.sql")),
    (3, "providers", include_str!("../../../migrations/postgres/0003_providers.sql")),
    (4, "tokens", include_str!("../../../migrations/postgres/0004_tokens.sql")),
    (5, "accounts", include_str!("../../../migrations/postgres/0005_accounts.sql")),
    (6, "log", include_str!("../../../migrations/postgres/0006_log.sql")),
    (7, "slo", include_str!("../../../migrations/postgres/0007_slo.sql")),
    (8, "restore", include_str!("../../../migrations/postgres/0008_restore.sql")),
    (9, "retention", include_str!("../../../migrations/postgres/0009_retention.sql")),
];

/// Connections of one process.
const CONNECTIONS: u32 = 16;

/// How long a task waits for a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// The channel of NOTIFY. What it carries is a hint; what is to be done stands in the tables.
const CHANNEL: &str = "sendonce";

/// A transaction's owner that was stopped, or lost its power, must not hold the gate: a freeze waits for it.
const SILENT_MAX: &str = "3s";

/// What each session is told. The server also looks whether we are still there.
const SESSION: [(&str, &str); 6] = [
    ("statement_timeout", "10s"),
    ("idle_in_transaction_session_timeout", SILENT_MAX),
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "2"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "10000"),
];

/// One PostgreSQL database.
#[derive(Debug)]
pub struct PostgresEngine {
    pool: PgPool,
    name: String,
    // As the URL has it.
    port: u16,
    is_named: bool,
    // One listener for the process. A tokio mutex: it is held while waiting, by the one loop that waits.
    listener: tokio::sync::Mutex<Option<PgListener>>,
}

/// An open transaction.
#[derive(Debug)]
pub struct Tx {
    inner: sqlx::Transaction<'static, Postgres>,
    /// Statements are prepared by name and kept. Not behind a pooler that changes the server connection
    /// between transactions: `?statement-cache-capacity=0` in the URL says so.
    is_named: bool,
}

impl PostgresEngine {
    /// Prepares a pool for a `postgres://` URL and proves that the server answers.
    ///
    /// # Errors
    /// When the URL is no PostgreSQL URL or the server cannot be reached.
    pub async fn open(url: &str) -> Result<Self, Error> {
        let is_named = !url.contains("statement-cache-capacity=0");
        let mut options = PgConnectOptions::from_str(url).map_err(store_error)?;
        if is_named {
            // A pooler refuses start-up options; there the server's own settings hold.
            options = options.options(SESSION);
        } else {
            options = options.extra_float_digits(None);
        }
        let name = format!(
            "{} on {}:{}",
            options.get_database().unwrap_or("postgres"),
            options.get_host(),
            options.get_port()
        );
        let port = options.get_port();
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(PATIENCE)
            .connect_with(options)
            .await
            .map_err(store_error)?;
        Ok(Self { pool, name, port, is_named, listener: tokio::sync::Mutex::new(None) })
    }
}

fn bind(
    sql: &str,
    values: Vec<Value>,
    is_named: bool,
) -> sqlx::query::Query<'_, Postgres, sqlx::postgres::PgArguments> {
    let mut query = sqlx::query(AssertSqlSafe(sql.to_owned())).persistent(is_named);
    for value in values {
        query = match value {
            Value::Int(number) => query.bind(number),
            Value::Text(text) => query.bind(text),
        };
    }
    query
}

impl Engine for PostgresEngine {
    const NAME: &'static str = "postgres";
    type Tx = Tx;

    fn text(sql: Sql) -> &'static str {
        sql.postgres
    }

    async fn begin(&self) -> Result<Self::Tx, Error> {
        let inner = self.pool.begin().await.map_err(store_error)?;
        let mut tx = Tx { inner, is_named: self.is_named };
        if !self.is_named {
            // Behind a pooler the session is shared, so each transaction says it for itself.
            let sql = "SELECT set_config('idle_in_transaction_session_timeout', $1, TRUE)";
            Self::query(&mut tx, sql, vec![SILENT_MAX.into()]).await?;
        }
        Ok(tx)
    }

    async fn begin_read(&self) -> Result<Self::Tx, Error> {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";
        let inner = self.pool.begin_with(begin).await.map_err(store_error)?;
        Ok(Tx { inner, is_named: self.is_named })
    }

    async fn query(tx: &mut Self::Tx, sql: &str, values: Vec<Value>) -> Result<Vec<Row>, Error> {
        let rows =
            bind(sql, values, tx.is_named).fetch_all(&mut *tx.inner).await.map_err(store_error)?;
        rows.iter()
            .map(|row| {
                let cells = row.columns().iter().map(|column| {
                    let at = column.ordinal();
                    let raw = row.try_get_raw(at).map_err(store_error)?;
                    if raw.is_null() {
                        return Ok(Cell::Null);
                    }
                    match raw.type_info().name() {
                        "INT8" => row.try_get(at).map(Cell::Int).map_err(store_error),
                        "INT4" => row
                            .try_get::<i32, _>(at)
                            .map(|number| Cell::Int(i64::from(number)))
                            .map_err(store_error),
                        "BOOL" => row
                            .try_get::<bool, _>(at)
                            .map(|flag| Cell::Int(i64::from(flag)))
                            .map_err(store_error),
                        _ => row.try_get(at).map(Cell::Text).map_err(store_error),
                    }
                });
                Ok(Row::new(cells.collect::<Result<_, Error>>()?))
            })
            .collect()
    }

    async fn execute(tx: &mut Self::Tx, sql: &str, values: Vec<Value>) -> Result<u64, Error> {
        let done =
            bind(sql, values, tx.is_named).execute(&mut *tx.inner).await.map_err(store_error)?;
        Ok(done.rows_affected())
    }

    async fn commit(tx: Self::Tx) -> Result<(), Error> {
        tx.inner.commit().await.map_err(|error| match store_error(error) {
            // The server answered that it rolled back.
            known @ (Error::Busy | Error::Conflict { .. } | Error::Statement { .. }) => known,
            other => Error::CommitUnknown { source: Box::new(other) },
        })
    }

    async fn migrate(&self) -> Result<(), Error> {
        migrator(MIGRATIONS)
            .run(&self.pool)
            .await
            .map_err(|error| Error::Migration { source: Box::new(error) })
    }

    async fn schema_version(&self) -> Result<i64, Error> {
        let mut tx = self.begin_read().await?;
        let known = Self::query(
            &mut tx,
            "SELECT COUNT(*) FROM information_schema.tables
             WHERE table_schema = current_schema() AND table_name = '_sqlx_migrations'",
            Vec::new(),
        )
        .await?;
        let exists = known.into_iter().next().map_or(Ok(0), |mut row| row.int())?;
        if exists == 0 {
            return Ok(0);
        }
        let rows = Self::query(
            &mut tx,
            "SELECT version FROM _sqlx_migrations ORDER BY version",
            Vec::new(),
        )
        .await?;
        let applied = rows.into_iter().map(|mut row| row.int()).collect::<Result<Vec<_>, _>>()?;
        Ok(schema_of(&applied, MIGRATIONS))
    }

    async fn notify(tx: &mut Self::Tx, hint: &str) -> Result<(), Error> {
        Self::execute(tx, "SELECT pg_notify($1, $2)", vec![CHANNEL.into(), hint.into()])
            .await
            .map(|_| ())
    }

    fn hears_hints(&self) -> bool {
        self.is_named
    }

    async fn next_hint(&self) -> Result<String, Error> {
        if !self.is_named {
            return std::future::pending().await;
        }
        let mut place = self.listener.lock().await;
        if place.is_none() {
            let mut listener = PgListener::connect_with(&self.pool).await.map_err(store_error)?;
            listener.listen(CHANNEL).await.map_err(store_error)?;
            *place = Some(listener);
            // What was told while nobody listened is not told again.
            return Ok("all".to_owned());
        }
        let Some(listener) = place.as_mut() else { return Ok("all".to_owned()) };
        match listener.recv().await {
            Ok(notification) => Ok(notification.payload().to_owned()),
            Err(error) => {
                *place = None;
                Err(store_error(error))
            }
        }
    }

    async fn time(&self) -> Result<Option<i64>, Error> {
        let mut tx = self.begin_read().await?;
        let rows = Self::query(
            &mut tx,
            "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)",
            Vec::new(),
        )
        .await?;
        rows.into_iter().next().map_or(Ok(None), |mut row| row.maybe_int())
    }

    async fn has_unsafe_standby(&self) -> Result<bool, Error> {
        let mut tx = self.begin_read().await?;
        let rows = Self::query(
            &mut tx,
            "SELECT COUNT(*) FROM pg_stat_replication
             WHERE current_setting('synchronous_standby_names') = ''
               AND application_name <> 'pg_basebackup'",
            Vec::new(),
        )
        .await?;
        let standbys = rows.into_iter().next().map_or(Ok(0), |mut row| row.int())?;
        Ok(standbys > 0)
    }

    async fn inspect(&self) -> Result<Vec<Finding>, Error> {
        inspect(self).await
    }

    async fn backup(&self, _to: &std::path::Path) -> Result<bool, Error> {
        Ok(false)
    }

    fn describe(&self) -> String {
        self.name.clone()
    }

    async fn close(&self) {
        // The listener has a connection of the pool, which would wait for it.
        drop(self.listener.lock().await.take());
        self.pool.close().await;
    }
}

/// Settings that are as they must be, or the promise of durability does not hold.
const DURABLE: [&str; 3] = ["fsync", "full_page_writes", "synchronous_commit"];
/// The oldest server that has what the statements use.
const OLDEST: i64 = 140_000;
/// Dead rows of the queue beyond which its vacuum does not keep up.
const DEAD_ROWS_MAX: i64 = 100_000;

async fn inspect(engine: &PostgresEngine) -> Result<Vec<Finding>, Error> {
    type E = PostgresEngine;
    let mut tx = engine.begin_read().await?;
    let sql = "SELECT CAST(current_setting('server_version_num') AS BIGINT),
            current_setting('server_version'), pg_is_in_recovery(), current_setting('fsync'),
            current_setting('full_page_writes'), current_setting('synchronous_commit'),
            current_setting('autovacuum'), CAST(current_setting('port') AS BIGINT),
            CAST(current_setting('max_connections') AS BIGINT),
            (SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
            (SELECT COALESCE(MAX(n_dead_tup), 0) FROM pg_stat_user_tables
              WHERE relname IN ('outbox', 'records')),
            (SELECT COUNT(*) FROM pg_class WHERE relname = 'outbox'
              AND array_to_string(reloptions, ',') LIKE '%autovacuum%'),
            (SELECT COUNT(*) FROM pg_stat_replication WHERE application_name <> 'pg_basebackup'),
            current_setting('synchronous_standby_names')";
    let mut rows = E::query(&mut tx, sql, Vec::new()).await?;
    let mut row = rows.pop().ok_or(Error::RowsAffected { expected: 1, actual: 0 })?;
    let (number, version, is_standby) = (row.int()?, row.text()?, row.flag()?);
    let durable = [row.text()?, row.text()?, row.text()?];
    let (vacuums, port, connections_max) = (row.text()? == "on", row.int()?, row.int()?);
    let (connections, dead, is_tuned) = (row.int()?, row.int()?, row.flag()?);
    let (standbys, synchronous) = (row.int()?, row.text()?);
    drop(tx);
    let mut findings = vec![if number < OLDEST {
        let step = "use PostgreSQL 14 or newer";
        Finding::bad("database.engine", &format!("PostgreSQL {version} is too old"), step)
    } else if is_standby {
        Finding::bad(
            "database.engine",
            &format!("PostgreSQL {version} is a standby, which takes no writes"),
            "name the primary in DATABASE_URL",
        )
    } else {
        Finding::good("database.engine", &format!("PostgreSQL {version}"))
    }];
    let is_weak = |value: &str| value == "off" || (value == "local" && !synchronous.is_empty());
    let weak: Vec<&str> = DURABLE
        .iter()
        .zip(&durable)
        .filter(|(_, value)| is_weak(value))
        .map(|(name, _)| *name)
        .collect();
    findings.push(if weak.is_empty() {
        Finding::good("database.durability", "a commit is on the disk before it is acknowledged")
    } else {
        Finding::bad(
            "database.durability",
            &format!("{} is off: a 202 may be lost in a crash", weak.join(", ")),
            "switch it on",
        )
    });
    findings.push(match (standbys, synchronous.is_empty()) {
        (0, _) => Finding::good("database.standby", "no standby is attached"),
        (n, false) => Finding::good("database.standby", &format!("commits wait for a standby ({n} attached)")),
        (n, true) => Finding::warning(
            "database.standby",
            &format!("{n} asynchronous: a failover to it may lose acknowledged commits and is unsafe"),
            "set synchronous_standby_names; after such a failover freeze all and run `sendonce restore-complete`",
        ),
    });
    findings.push(if !vacuums {
        let step = "switch it on: the queue's tables die and grow without it";
        Finding::bad("database.autovacuum", "autovacuum is off", step)
    } else if dead > DEAD_ROWS_MAX {
        Finding::warning(
            "database.autovacuum",
            &format!("{dead} dead rows in a table of the queue: autovacuum does not keep up"),
            "raise autovacuum_vacuum_cost_limit, and look for transactions that stay open",
        )
    } else if !is_tuned {
        Finding::warning(
            "database.autovacuum",
            "the queue's tables have the server's own autovacuum settings",
            "run `sendonce migrate`, which sets tighter ones",
        )
    } else {
        Finding::good("database.autovacuum", &format!("on, {dead} dead rows in the queue"))
    });
    let free = connections_max - connections;
    findings.push(if free < i64::from(CONNECTIONS) {
        Finding::warning(
            "database.connections",
            &format!(
                "{connections} of {connections_max} are taken; one process uses up to {CONNECTIONS}"
            ),
            "raise max_connections, or put a pooler in between",
        )
    } else {
        Finding::good(
            "database.connections",
            &format!("{connections} of {connections_max} are taken"),
        )
    });
    findings.push(pooler(engine, port));
    Ok(findings)
}

/// Whether a pooler stands between, which has a port of its own, and whether the URL says so.
fn pooler(engine: &PostgresEngine, port: i64) -> Finding {
    let check = "database.pooler";
    match (i64::from(engine.port) != port, engine.is_named) {
        (false, true) => Finding::good(check, "the server is reached directly"),
        (_, false) => Finding::good(
            check,
            "no state of a session is relied on: fit for a pooler in transaction mode",
        ),
        (true, true) => Finding::warning(
            check,
            "the server's port is not the URL's: a pooler or a forwarded port stands between",
            "behind a pooler in transaction mode add ?statement-cache-capacity=0 to DATABASE_URL",
        ),
    }
}
