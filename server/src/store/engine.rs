//! The two databases behind one small surface: transactions, two column types, built batches.
//!
//! Every column is text or a 64-bit integer on both engines, and both take `$1` placeholders, so one
//! text serves both. Where the dialects differ a statement is a [`Sql`] with two texts.

use std::fmt;
use std::future::Future;

use super::Error;

/// A value to bind. The engines need the type even of an absent one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Int(Option<i64>),
    Text(Option<String>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Int(Some(i64::from(value)))
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Int(Some(i64::from(value)))
    }
}

impl From<app::model::Stamp> for Value {
    fn from(value: app::model::Stamp) -> Self {
        Self::Int(Some(value.micros()))
    }
}

impl From<Option<app::model::Stamp>> for Value {
    fn from(value: Option<app::model::Stamp>) -> Self {
        Self::Int(value.map(app::model::Stamp::micros))
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(Some(value))
    }
}

impl From<&String> for Value {
    fn from(value: &String) -> Self {
        Self::Text(Some(value.clone()))
    }
}

impl From<Option<&str>> for Value {
    fn from(value: Option<&str>) -> Self {
        Self::Text(value.map(str::to_owned))
    }
}

impl From<&Option<String>> for Value {
    fn from(value: &Option<String>) -> Self {
        Self::Text(value.clone())
    }
}

impl From<Option<u32>> for Value {
    fn from(value: Option<u32>) -> Self {
        Self::Int(value.map(i64::from))
    }
}

/// One cell of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    Null,
    Int(i64),
    Text(String),
}

/// One row of an answer, read from left to right.
#[derive(Debug)]
pub struct Row {
    cells: std::vec::IntoIter<Cell>,
    column: usize,
}

impl Row {
    pub(super) fn new(cells: Vec<Cell>) -> Self {
        Self { cells: cells.into_iter(), column: 0 }
    }

    fn next(&mut self) -> Cell {
        self.column += 1;
        self.cells.next().unwrap_or(Cell::Null)
    }

    fn wrong(&self, expected: &'static str) -> Error {
        Error::Inconsistent { table: "answer", column: expected, row: self.column.to_string() }
    }

    /// The next cell as text.
    pub fn text(&mut self) -> Result<String, Error> {
        self.maybe_text()?.ok_or_else(|| self.wrong("text"))
    }

    /// The next cell as text, if any.
    pub fn maybe_text(&mut self) -> Result<Option<String>, Error> {
        match self.next() {
            Cell::Null => Ok(None),
            Cell::Text(text) => Ok(Some(text)),
            Cell::Int(_) => Err(self.wrong("text")),
        }
    }

    /// The next cell as a number.
    pub fn int(&mut self) -> Result<i64, Error> {
        self.maybe_int()?.ok_or_else(|| self.wrong("number"))
    }

    /// The next cell as a number, if any.
    pub fn maybe_int(&mut self) -> Result<Option<i64>, Error> {
        match self.next() {
            Cell::Null => Ok(None),
            Cell::Int(number) => Ok(Some(number)),
            Cell::Text(_) => Err(self.wrong("number")),
        }
    }

    /// The next cell as a small count.
    pub fn count(&mut self) -> Result<u32, Error> {
        u32::try_from(self.int()?).map_err(|_| self.wrong("count"))
    }

    /// The next cell as yes or no.
    pub fn flag(&mut self) -> Result<bool, Error> {
        Ok(self.int()? != 0)
    }

    /// The next cell as an instant.
    pub fn stamp(&mut self) -> Result<app::model::Stamp, Error> {
        Ok(app::model::Stamp::from_micros(self.int()?))
    }

    /// The next cell as an instant, if any.
    pub fn maybe_stamp(&mut self) -> Result<Option<app::model::Stamp>, Error> {
        Ok(self.maybe_int()?.map(app::model::Stamp::from_micros))
    }

    /// The next cell as a word of a closed vocabulary.
    pub fn word<T: std::str::FromStr>(&mut self) -> Result<T, Error> {
        self.text()?.parse().map_err(|_| self.wrong("word"))
    }

    /// The next cell as a word of a closed vocabulary, if any.
    pub fn maybe_word<T: std::str::FromStr>(&mut self) -> Result<Option<T>, Error> {
        match self.maybe_text()? {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| self.wrong("word")),
        }
    }
}

/// A statement whose text differs between the engines.
#[derive(Debug, Clone, Copy)]
pub struct Sql {
    pub sqlite: &'static str,
    pub postgres: &'static str,
}

/// A statement that is the same on both engines.
#[must_use]
pub const fn same(text: &'static str) -> Sql {
    Sql { sqlite: text, postgres: text }
}

/// A statement that locks the rows which it picks where the engine has row locks.
macro_rules! locking {
    ($text:literal, $lock:literal) => {
        $crate::store::engine::Sql { sqlite: $text, postgres: concat!($text, " ", $lock) }
    };
}
pub(crate) use locking;

/// A database engine.
pub trait Engine: fmt::Debug + Send + Sync + Sized + 'static {
    /// `sqlite` or `postgres`.
    const NAME: &'static str;

    /// An open transaction; rolled back when it is dropped.
    type Tx: Send;

    /// This engine's text of a statement.
    fn text(sql: Sql) -> &'static str;

    /// Opens a transaction that writes.
    fn begin(&self) -> impl Future<Output = Result<Self::Tx, Error>> + Send;

    /// Opens a transaction that only reads.
    fn begin_read(&self) -> impl Future<Output = Result<Self::Tx, Error>> + Send;

    /// Runs a query and reads all rows.
    fn query(
        tx: &mut Self::Tx,
        sql: &str,
        values: Vec<Value>,
    ) -> impl Future<Output = Result<Vec<Row>, Error>> + Send;

    /// Runs a statement and says how many rows it touched.
    fn execute(
        tx: &mut Self::Tx,
        sql: &str,
        values: Vec<Value>,
    ) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Commits. [`Error::CommitUnknown`] when nobody can say whether it did.
    fn commit(tx: Self::Tx) -> impl Future<Output = Result<(), Error>> + Send;

    /// Applies the migrations that are missing.
    fn migrate(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Newest applied migration; 0 where there is none.
    fn schema_version(&self) -> impl Future<Output = Result<i64, Error>> + Send;

    /// Tells other processes, once this transaction commits. Nothing where there are no others.
    fn notify(tx: &mut Self::Tx, hint: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// What other processes tell reaches us. Not behind a pooler: a session that listens there is everybody's, and
    /// what it hears is put into the answers of others.
    fn hears_hints(&self) -> bool;

    /// Waits for what another process told. For ever where there are no others.
    fn next_hint(&self) -> impl Future<Output = Result<String, Error>> + Send;

    /// The database's own clock, in microseconds; none where it is this machine's.
    fn time(&self) -> impl Future<Output = Result<Option<i64>, Error>> + Send;

    /// A standby is attached that commits do not wait for: a failover could lose acknowledged commits.
    fn has_unsafe_standby(&self) -> impl Future<Output = Result<bool, Error>> + Send;

    /// How it is set up, for `doctor`.
    fn inspect(&self) -> impl Future<Output = Result<Vec<crate::finding::Finding>, Error>> + Send;

    /// Copies the database into a new file; false where the engine has its own tools for that.
    fn backup(&self, to: &std::path::Path) -> impl Future<Output = Result<bool, Error>> + Send;

    /// The database's name, for people.
    fn describe(&self) -> String;

    /// Closes the pools, so that the last connection checkpoints.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// Builds one statement over many rows. Values are only ever bound, never written into the text.
#[derive(Debug, Default)]
pub struct Batch {
    text: String,
    values: Vec<Value>,
}

impl Batch {
    #[must_use]
    pub fn new(text: &'static str) -> Self {
        Self { text: text.to_owned(), values: Vec::new() }
    }

    /// Adds text.
    pub fn push(&mut self, text: &'static str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Adds a placeholder and its value.
    pub fn bind(&mut self, value: impl Into<Value>) -> &mut Self {
        use fmt::Write as _;
        self.values.push(value.into());
        let _ = write!(self.text, "${}", self.values.len());
        self
    }

    /// Adds `(v, v), (v, v)`.
    pub fn rows(&mut self, rows: Vec<Vec<Value>>) -> &mut Self {
        for (n, row) in rows.into_iter().enumerate() {
            self.push(if n == 0 { "(" } else { ", (" });
            for (m, value) in row.into_iter().enumerate() {
                if m > 0 {
                    self.push(", ");
                }
                self.bind(value);
            }
            self.push(")");
        }
        self
    }

    /// Adds `($1, $2, …)` for a membership test; never empty.
    pub fn list<V: Into<Value>>(&mut self, values: impl IntoIterator<Item = V>) -> &mut Self {
        self.push("(");
        let mut first = true;
        for value in values {
            if !first {
                self.push(", ");
            }
            first = false;
            self.bind(value);
        }
        if first {
            self.push("NULL");
        }
        self.push(")");
        self
    }

    #[must_use]
    pub fn into_parts(self) -> (String, Vec<Value>) {
        (self.text, self.values)
    }
}

/// What the adapters of both engines share: sqlx errors in our words.
pub(super) fn store_error(error: sqlx::Error) -> Error {
    match &error {
        sqlx::Error::Database(database) => {
            let code = database.code().unwrap_or_default().into_owned();
            if database.is_unique_violation() {
                let constraint = database
                    .constraint()
                    .map_or_else(|| database.message().to_owned(), str::to_owned);
                return Error::Conflict { constraint };
            }
            // SQLite's codes are short numbers, the extended ones carry the primary one in their low byte;
            // a SQLSTATE has five characters.
            let number = if code.len() < 5 { code.parse::<u32>().unwrap_or(0) } else { 0 };
            let primary = number & 0xff;
            match (primary, code.as_str()) {
                // SQLITE_BUSY, SQLITE_LOCKED; serialization failure, deadlock.
                (5 | 6, _) | (_, "40001" | "40P01") => Error::Busy,
                // SQLITE_READONLY, SQLITE_IOERR, SQLITE_FULL, SQLITE_CANTOPEN; the server goes down, starts,
                // or has no room; a statement took too long.
                (8 | 10 | 13 | 14, _)
                | (_, "57P01" | "57P02" | "57P03" | "53300" | "53100" | "57014" | "25006") => {
                    Error::Unavailable { source: Box::new(error) }
                }
                _ => Error::Statement { source: Box::new(error) },
            }
        }
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::Protocol(_) => Error::Unavailable { source: Box::new(error) },
        _ => Error::Statement { source: Box::new(error) },
    }
}

/// Versions, names and texts of the migrations, in order.
pub(super) fn migrator(scripts: &[(i64, &'static str, &'static str)]) -> sqlx::migrate::Migrator {
    use sqlx::SqlSafeStr as _;
    let migrations = scripts
        .iter()
        .map(|(version, name, text)| {
            sqlx::migrate::Migration::new(
                *version,
                (*name).into(),
                sqlx::migrate::MigrationType::Simple,
                (*text).into_sql_str(),
                false,
            )
        })
        .collect();
    sqlx::migrate::Migrator::with_migrations(migrations)
}

/// The schema that these migrations made: the newest one up to which none is missing, or a newer program's.
pub(super) fn schema_of(applied: &[i64], known: &[(i64, &str, &str)]) -> i64 {
    let newest = applied.iter().copied().max().unwrap_or(0);
    if known.iter().all(|(version, ..)| *version < newest) {
        return newest;
    }
    let present = known.iter().map(|(version, ..)| *version);
    present.take_while(|version| applied.contains(version)).last().unwrap_or(0)
}

/// The newest migration that this binary knows.
pub const SCHEMA_VERSION: i64 = 9;
