//! PostgreSQL: many processes, row locks, one text shared with the embedded engine.

use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Column as _, Postgres, Row as _, TypeInfo as _, ValueRef as _};

use super::Error;
use super::engine::{Cell, Engine, Row, Sql, Value, migrator, store_error};

const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "ledger", include_str!("../../../migrations/postgres/0001_ledger.sql")),
    (2, "nodes", include_str!("../../../migrations/postgres/0002_nodes.sql")),
    (3, "providers", include_str!("../../../migrations/postgres/0003_providers.sql")),
    (4, "tokens", include_str!("../../../migrations/postgres/0004_tokens.sql")),
    (5, "accounts", include_str!("../../../migrations/postgres/0005_accounts.sql")),
    (6, "log", include_str!("../../../migrations/postgres/0006_log.sql")),
    (8, "restore", include_str!("../../../migrations/postgres/0008_restore.sql")),
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
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(PATIENCE)
            .connect_with(options)
            .await
            .map_err(store_error)?;
        Ok(Self { pool, name, is_named, listener: tokio::sync::Mutex::new(None) })
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
            "SELECT COALESCE(MAX(version), 0) FROM _sqlx_migrations",
            Vec::new(),
        )
        .await?;
        rows.into_iter().next().map_or(Ok(0), |mut row| row.int())
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
