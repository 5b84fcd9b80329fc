//! The embedded engine: one writer, a read-only pool beside it, WAL, `synchronous = FULL`.

use std::str::FromStr;
use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, Column as _, Row as _, Sqlite, TypeInfo as _, ValueRef as _};

use super::Error;
use super::engine::{Cell, Engine, Row, Sql, Value, migrator, schema_of, store_error};
use crate::finding::Finding;

pub(super) const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "ledger", include_str!("../../../migrations/sqlite/0001_ledger.sql")),
    (2, "nodes", include_str!("../../../migrations/sqlite/0002_nodes.sql")),
    (3, "providers", include_str!("../../../migrations/sqlite/0003_providers.sql")),
    (4, "tokens", include_str!("../../../migrations/sqlite/0004_tokens.sql")),
    (5, "accounts", include_str!("../../../migrations/sqlite/0005_accounts.sql")),
    (6, "log", include_str!("../../../migrations/sqlite/0006_log.sql")),
    (7, "slo", include_str!("../../../migrations/sqlite/0007_slo.sql")),
    (8, "restore", include_str!("../../../migrations/sqlite/0008_restore.sql")),
    (9, "retention", include_str!("../../../migrations/sqlite/0009_retention.sql")),
];

/// Connections that only read.
const READERS: u32 = 4;

/// A write-ahead log that is larger is not being folded into its file.
const LOG_BYTES_MAX: u64 = 256 << 20;

/// How long a statement waits for another process's write, and a task for a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// An open transaction. Begun and ended by statements of ours: when SQLite rolls back by itself (disk full,
/// I/O error), nothing here believes that a transaction is still open. Dropped, it goes back to its pool,
/// which rolls it back.
#[derive(Debug)]
pub struct Tx(sqlx::pool::PoolConnection<Sqlite>);

/// One SQLite file.
#[derive(Debug)]
pub struct SqliteEngine {
    // One connection: SQLite has one writer, and queueing for it here is cheaper than SQLITE_BUSY.
    writer: SqlitePool,
    readers: SqlitePool,
    name: String,
}

impl SqliteEngine {
    /// Opens or creates the file of a `sqlite://` URL.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub async fn open(url: &str) -> Result<Self, Error> {
        let options = SqliteConnectOptions::from_str(url)
            .map_err(store_error)?
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // We promise durability before 202, so each commit reaches the disk.
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(PATIENCE)
            .statement_cache_capacity(512);
        let name = options.get_filename().display().to_string();
        if let Some(folder) = options.get_filename().parent().filter(|f| !f.as_os_str().is_empty())
        {
            std::fs::create_dir_all(folder)
                .map_err(|error| Error::Unavailable { source: Box::new(error) })?;
        }
        make_private(options.get_filename())
            .map_err(|error| Error::Unavailable { source: Box::new(error) })?;
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .min_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .acquire_timeout(PATIENCE)
            .after_release(|connection, _| Box::pin(async { Ok(is_clean(connection).await) }))
            .connect_with(options.clone())
            .await
            .map_err(store_error)?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .idle_timeout(None)
            .max_lifetime(None)
            .acquire_timeout(PATIENCE)
            .after_release(|connection, _| Box::pin(async { Ok(is_clean(connection).await) }))
            .connect_lazy_with(options.create_if_missing(false).pragma("query_only", "ON"));
        Ok(Self { writer, readers, name })
    }
}

async fn begin(pool: &SqlitePool, how: &'static str) -> Result<Tx, Error> {
    let mut connection = pool.acquire().await.map_err(store_error)?;
    sqlx::query(how).execute(&mut *connection).await.map_err(store_error)?;
    Ok(Tx(connection))
}

/// What a pool does with a connection that comes back: an open transaction is rolled back, and a connection
/// that cannot even do that is closed.
async fn is_clean(connection: &mut sqlx::SqliteConnection) -> bool {
    match sqlx::query("ROLLBACK").execute(connection).await {
        Ok(_) => true,
        // SQLITE_ERROR: there was nothing to roll back.
        Err(sqlx::Error::Database(error)) => error.code().as_deref() == Some("1"),
        Err(_) => false,
    }
}

/// Takes the lock of the one process that serves the file of this URL. It is on the file itself, whatever
/// name it was opened by, and of a kind that SQLite does not use. Keep it open as long as the store is.
///
/// # Errors
/// [`Error::Served`] when another process has it.
pub(super) fn lock(url: &str) -> Result<std::fs::File, Error> {
    let unavailable = |error: std::io::Error| Error::Unavailable { source: Box::new(error) };
    let options = SqliteConnectOptions::from_str(url).map_err(store_error)?;
    let path = options.get_filename();
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(unavailable)?;
    }
    make_private(path).map_err(unavailable)?;
    let file = std::fs::OpenOptions::new().read(true).open(path).map_err(unavailable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            Err(Error::Served { name: path.display().to_string() })
        }
        Err(std::fs::TryLockError::Error(error)) => Err(unavailable(error)),
    }
}

/// Makes the file for its owner alone; its log beside it takes the same rights.
fn make_private(file: &std::path::Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    match options.open(file) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn bind(
    sql: &str,
    values: Vec<Value>,
) -> sqlx::query::Query<'_, Sqlite, sqlx::sqlite::SqliteArguments> {
    let mut query = sqlx::query(AssertSqlSafe(sql.to_owned()));
    for value in values {
        query = match value {
            Value::Int(number) => query.bind(number),
            Value::Text(text) => query.bind(text),
        };
    }
    query
}

impl Engine for SqliteEngine {
    const NAME: &'static str = "sqlite";
    type Tx = Tx;

    fn text(sql: Sql) -> &'static str {
        sql.sqlite
    }

    async fn begin(&self) -> Result<Self::Tx, Error> {
        begin(&self.writer, "BEGIN IMMEDIATE").await
    }

    async fn begin_read(&self) -> Result<Self::Tx, Error> {
        begin(&self.readers, "BEGIN").await
    }

    async fn query(tx: &mut Self::Tx, sql: &str, values: Vec<Value>) -> Result<Vec<Row>, Error> {
        let rows = bind(sql, values).fetch_all(&mut *tx.0).await.map_err(store_error)?;
        rows.iter()
            .map(|row| {
                let cells = row.columns().iter().map(|column| {
                    let at = column.ordinal();
                    let raw = row.try_get_raw(at).map_err(store_error)?;
                    if raw.is_null() {
                        return Ok(Cell::Null);
                    }
                    if raw.type_info().name() == "TEXT" {
                        row.try_get_unchecked(at).map(Cell::Text).map_err(store_error)
                    } else {
                        row.try_get_unchecked(at).map(Cell::Int).map_err(store_error)
                    }
                });
                Ok(Row::new(cells.collect::<Result<_, Error>>()?))
            })
            .collect()
    }

    async fn execute(tx: &mut Self::Tx, sql: &str, values: Vec<Value>) -> Result<u64, Error> {
        let done = bind(sql, values).execute(&mut *tx.0).await.map_err(store_error)?;
        Ok(done.rows_affected())
    }

    async fn commit(mut tx: Self::Tx) -> Result<(), Error> {
        // A failed COMMIT (disk full, I/O error) may or may not have reached the file.
        match sqlx::query("COMMIT").execute(&mut *tx.0).await.map_err(store_error) {
            Ok(_) => Ok(()),
            Err(Error::Busy) => Err(Error::Busy),
            Err(other) => Err(Error::CommitUnknown { source: Box::new(other) }),
        }
    }

    async fn migrate(&self) -> Result<(), Error> {
        migrator(MIGRATIONS)
            .run(&self.writer)
            .await
            .map_err(|error| Error::Migration { source: Box::new(error) })
    }

    async fn schema_version(&self) -> Result<i64, Error> {
        let mut tx = self.begin().await?;
        let known = Self::query(
            &mut tx,
            "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = '_sqlx_migrations'",
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

    async fn notify(_tx: &mut Self::Tx, _hint: &str) -> Result<(), Error> {
        Ok(())
    }

    fn hears_hints(&self) -> bool {
        true
    }

    async fn next_hint(&self) -> Result<String, Error> {
        std::future::pending().await
    }

    async fn time(&self) -> Result<Option<i64>, Error> {
        Ok(None)
    }

    async fn has_unsafe_standby(&self) -> Result<bool, Error> {
        Ok(false)
    }

    async fn inspect(&self) -> Result<Vec<Finding>, Error> {
        let mut tx = self.begin_read().await?;
        let mut ask = async |sql: &'static str| -> Result<Row, Error> {
            let mut rows = Self::query(&mut tx, sql, Vec::new()).await?;
            rows.pop().ok_or(Error::Inconsistent {
                table: "pragma",
                column: "value",
                row: sql.to_owned(),
            })
        };
        let version = ask("SELECT sqlite_version()").await?.text()?;
        let journal = ask("PRAGMA journal_mode").await?.text()?;
        let mut findings = vec![if journal == "wal" {
            Finding::good("database.engine", &format!("SQLite {version} with a write-ahead log"))
        } else {
            Finding::warning(
                "database.engine",
                &format!("SQLite {version} without a write-ahead log"),
                "put the file on a local disk: a network file system cannot share its memory",
            )
        }];
        let log = std::fs::metadata(format!("{}-wal", self.name)).map_or(0, |file| file.len());
        findings.push(if log > LOG_BYTES_MAX {
            Finding::warning(
                "database.log",
                &format!("the write-ahead log has grown to {} MB", log >> 20),
                "look for a process that keeps a long read open; a restart folds it in",
            )
        } else {
            Finding::good("database.log", &format!("the write-ahead log has {} MB", log >> 20))
        });
        Ok(findings)
    }

    async fn backup(&self, to: &std::path::Path) -> Result<bool, Error> {
        use sqlx::{ConnectOptions as _, Connection as _};
        // VACUUM INTO takes an empty file: ours from the start, so that nobody else can read it.
        make_private(to).map_err(|error| Error::Unavailable { source: Box::new(error) })?;
        // A connection of its own: a long copy keeps neither the writer nor a reader.
        let options = (*self.readers.connect_options()).clone().pragma("query_only", "OFF");
        let mut connection = options.connect().await.map_err(store_error)?;
        let copied = sqlx::query("VACUUM INTO $1")
            .bind(to.to_string_lossy().into_owned())
            .execute(&mut connection)
            .await;
        connection.close().await.map_err(store_error)?;
        copied.map_err(store_error)?;
        std::fs::File::open(to)
            .and_then(|file| file.sync_all())
            .map_err(|error| Error::Unavailable { source: Box::new(error) })?;
        Ok(true)
    }

    fn describe(&self) -> String {
        self.name.clone()
    }

    async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}
