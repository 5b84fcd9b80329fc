//! PostgreSQL: many processes, row locks, one text shared with the embedded engine.

use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Column as _, Postgres, Row as _, TypeInfo as _, ValueRef as _};

use super::Error;
use super::engine::{Cell, Engine, Row, Sql, Value, migrator, store_error};

const MIGRATIONS: &[(i64, &str, &str)] =
    &[(1, "ledger", include_str!("../../../migrations/postgres/0001_ledger.sql"))];

/// Connections of one process.
const CONNECTIONS: u32 = 16;

/// How long a task waits for a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// One PostgreSQL database.
#[derive(Debug)]
pub struct PostgresEngine {
    pool: PgPool,
    name: String,
}

impl PostgresEngine {
    /// Prepares a pool for a `postgres://` URL and proves that the server answers.
    ///
    /// # Errors
    /// When the URL is no PostgreSQL URL or the server cannot be reached.
    pub async fn open(url: &str) -> Result<Self, Error> {
        let options = PgConnectOptions::from_str(url).map_err(store_error)?;
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
        Ok(Self { pool, name })
    }
}

fn bind(sql: &str, values: Vec<Value>) -> sqlx::query::Query<'_, Postgres, sqlx::postgres::PgArguments> {
    let mut query = sqlx::query(AssertSqlSafe(sql.to_owned()));
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
    type Tx = sqlx::Transaction<'static, Postgres>;

    fn text(sql: Sql) -> &'static str {
        sql.postgres
    }

    async fn begin(&self) -> Result<Self::Tx, Error> {
        self.pool.begin().await.map_err(store_error)
    }

    async fn begin_read(&self) -> Result<Self::Tx, Error> {
        self.pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY").await.map_err(store_error)
    }

    async fn query(tx: &mut Self::Tx, sql: &str, values: Vec<Value>) -> Result<Vec<Row>, Error> {
        let rows = bind(sql, values).fetch_all(&mut **tx).await.map_err(store_error)?;
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
        let done = bind(sql, values).execute(&mut **tx).await.map_err(store_error)?;
        Ok(done.rows_affected())
    }

    async fn commit(tx: Self::Tx) -> Result<(), Error> {
        tx.commit().await.map_err(|error| match store_error(error) {
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
        let rows =
            Self::query(&mut tx, "SELECT COALESCE(MAX(version), 0) FROM _sqlx_migrations", Vec::new())
                .await?;
        rows.into_iter().next().map_or(Ok(0), |mut row| row.int())
    }

    fn describe(&self) -> String {
        self.name.clone()
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}
