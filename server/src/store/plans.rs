//! The queue's statements read what is live and nothing else, however much has settled: their plans say so, over a
//! seeded history, on both engines.

use sqlx::{Connection as _, Row as _};

use super::conformance::Bench;
use super::engine::Sql;
use super::work;

/// Statements that run all the time, with literals for their parameters.
fn hot() -> [(&'static str, Sql, &'static [&'static str]); 8] {
    [
        ("claim", work::CLAIM, &["'sms'", "1", "1", "8", "1", "1"]),
        ("claim_replays", work::CLAIM_REPLAYS, &["'sms'", "1", "1", "8", "1", "1"]),
        ("claim_reads", work::CLAIM_READS, &["1", "8", "1", "1"]),
        ("leases_over", work::LEASES_OVER, &["1", "8", "1", "1"]),
        ("queue_over", work::QUEUE_OVER, &["1", "8", "1", "1"]),
        ("unknown_over", work::UNKNOWN_OVER, &["1", "8", "1", "1"]),
        ("attempt_of_message", work::ATTEMPT_OF_MESSAGE, &["'m'", "'demo'"]),
        ("polls_over", work::POLLS_OVER, &["1", "8", "1", "1"]),
    ]
}

fn literal(text: &str, values: &[&str]) -> String {
    values
        .iter()
        .enumerate()
        .fold(text.to_owned(), |text, (n, value)| text.replace(&format!("${}", n + 1), value))
}

/// Twenty thousand events that are over, and two thousand that wait for later.
async fn seed(b: &Bench) {
    let numbers = if b.is_sqlite() {
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 22000)"
    } else {
        "WITH n(i) AS (SELECT generate_series(1, 22000))"
    };
    let records = format!(
        "INSERT INTO records (id, event_id, state, reason, channel, provider, purpose,
           destination_hash, reset_hash, client_id, created_at, updated_at, expires_at, seq, due_at, settled_at)
         {numbers} SELECT 'id-' || i, 'ev-' || i,
           CASE WHEN i > 20000 THEN 'accepted' ELSE 'delivered' END,
           CASE WHEN i > 20000 THEN 'admitted' ELSE 'provider_accepted' END,
           'sms', 'demo', 'password_reset', 'h', 'h', 'c', i, i, 4000000000000000 + i, 1, 1000 + i,
           CASE WHEN i > 20000 THEN NULL ELSE i END FROM n"
    );
    let records = if b.is_sqlite() {
        // Here the common table expression stands before the statement.
        let (head, rest) = records.split_once(numbers).expect("holds it");
        format!("{numbers} {head} {rest}")
    } else {
        records
    };
    assert!(b.force(records).await);
    let outbox = "INSERT INTO outbox (record_id, channel, provider, created_at, due_at, expires_at)
        SELECT id, channel, provider, created_at, due_at, expires_at FROM records WHERE state = 'accepted'";
    assert!(b.force(outbox.to_owned()).await);
    let facts = "INSERT INTO facts (id, event_id, seq, at, kind, provider, provider_message_id, actor, detail)
        SELECT id, event_id, 1, created_at, 'lookup', 'demo', 'm-' || id, 'system', '{}' FROM records";
    assert!(b.force(facts.to_owned()).await);
    assert!(b.force("ANALYZE".to_owned()).await);
}

#[tokio::test]
async fn settled_history_is_not_read_by_the_queue_on_sqlite() {
    let b = Bench::sqlite().await;
    seed(&b).await;
    let mut connection = sqlx::SqliteConnection::connect(&b.url).await.expect("opens");
    for (name, sql, values) in hot() {
        let text = format!("EXPLAIN QUERY PLAN {}", literal(sql.sqlite, values));
        let rows = sqlx::query(sqlx::AssertSqlSafe(text)).fetch_all(&mut connection).await;
        for row in rows.expect("is planned") {
            let step: String = row.get(3);
            let is_whole = step.starts_with("SCAN") && !step.contains("INDEX");
            assert!(!is_whole || !is_large(&step), "{name}: {step}");
        }
    }
}

#[tokio::test]
async fn settled_history_is_not_read_by_the_queue_on_postgresql() {
    let Some(b) = Bench::postgres().await else { return };
    seed(&b).await;
    let mut connection = sqlx::PgConnection::connect(&b.url).await.expect("opens");
    for (name, sql, values) in hot() {
        let text = format!("EXPLAIN {}", literal(sql.postgres, values));
        let rows = sqlx::query(sqlx::AssertSqlSafe(text)).fetch_all(&mut connection).await;
        for row in rows.expect("is planned") {
            let step: String = row.get(0);
            assert!(!step.contains("Seq Scan") || !is_large(&step), "{name}: {step}");
        }
    }
}

/// A table that grows with history, or with the queue.
fn is_large(step: &str) -> bool {
    step.split_whitespace()
        .any(|word| ["records", "outbox", "r", "o", "facts", "calls"].contains(&word))
}
