//! Each migration runs on what the release before it left behind.

use app::model::{Reason, State};

use super::conformance::{Bench, columns_of};
use super::{Error, engine, postgres, sqlite};

/// Applies the first `count` migrations, as an older program did.
async fn migrate_to(b: &Bench, count: usize) {
    use sqlx::Connection as _;
    if b.is_sqlite() {
        let mut connection = sqlx::sqlite::SqliteConnectOptions::new()
            .filename(b.url.trim_start_matches("sqlite://"))
            .create_if_missing(true);
        connection = connection.foreign_keys(true);
        let mut connection =
            sqlx::SqliteConnection::connect_with(&connection).await.expect("opens");
        let older = engine::migrator(&sqlite::MIGRATIONS[..count]);
        older.run_direct(None, &mut connection, false).await.expect("migrates");
    } else {
        let mut connection = sqlx::PgConnection::connect(&b.url).await.expect("opens");
        let older = engine::migrator(&postgres::MIGRATIONS[..count]);
        older.run_direct(None, &mut connection, false).await.expect("migrates");
    }
}

/// A record in each state, as the first release wrote them.
fn first_release_rows() -> Vec<String> {
    let (past, future) = (1_789_999_990_000_000_i64, 1_790_000_600_000_000_i64);
    let mut rows = Vec::new();
    for (state, reason, more, values) in [
        ("accepted", "admitted", "authority, due_at", format!("1, {past}")),
        (
            "dispatching",
            "claimed",
            "authority, phase, fence, lease_owner, lease_until",
            format!("1, 'claimed', 1, 'w', {past}"),
        ),
        (
            "dispatch_unknown",
            "timeout",
            "attempt, calls, due_at, attempt_started_at, call_by, call_ended_at",
            format!("1, 1, {past}, {past}, {past}, {past}"),
        ),
        (
            "sent",
            "provider_accepted",
            "attempt, calls, due_at, attempt_started_at, call_by, poll_until",
            format!("1, 1, {past}, {past}, {past}, {future}"),
        ),
        ("delivered", "delivery_evidence", "settled_at", past.to_string()),
        ("failed_final", "refused_permanently", "settled_at", past.to_string()),
        ("expired", "expired_in_queue", "settled_at", past.to_string()),
    ] {
        let handles = if more == "settled_at" { "NULL, NULL" } else { "'d', 'r'" };
        rows.push(format!(
            "INSERT INTO records (id, event_id, state, reason, channel, provider, purpose, destination_ref,
                reset_ref, destination_hash, reset_hash, client_id, created_at, updated_at, expires_at, seq, {more})
             VALUES ('{state}', 'ev-{state}', '{state}', '{reason}', 'sms', 'demo', 'password_reset', {handles},
                'd', 'r', 'c1', {past}, {past}, {future}, 1, {values})"
        ));
        rows.push(format!(
            "INSERT INTO facts (seq, id, event_id, at, kind, new_state, reason, actor, detail)
             VALUES (1, '{state}', 'ev-{state}', {past}, 'transition', 'accepted', 'admitted', 'client:c1', '{{}}')"
        ));
        rows.push(format!(
            "INSERT INTO admissions (idempotency_key, event_id, record_id, content_hash, created_at)
             VALUES ('key-{state}', 'ev-{state}', '{state}', 'h', {past})"
        ));
    }
    for state in ["dispatch_unknown", "sent"] {
        rows.push(format!(
            "INSERT INTO attempts (id, attempt, attempt_id, provider, started_at, request_hash, fingerprint,
                fingerprint_version) VALUES ('{state}', 1, 'a-{state}', 'demo', {past}, 'h', 'f', 1)"
        ));
    }
    rows.push(format!(
        "INSERT INTO outbox (record_id, channel, provider, created_at, due_at, expires_at)
         VALUES ('accepted', 'sms', 'demo', {past}, {past}, {future})"
    ));
    rows
}

async fn the_first_release_goes_on(b: Bench) {
    migrate_to(&b, 1).await;
    for sql in first_release_rows() {
        assert!(b.force(sql.clone()).await, "{sql}");
    }
    assert!(matches!(b.store.check_schema().await, Err(Error::Schema { found: 1, .. })));
    b.store.migrate().await.expect("migrates");
    b.store.check_schema().await.expect("is ours");
    assert_eq!(b.count("SELECT COUNT(*) FROM records").await, State::ALL.len() as i64);
    // Each one goes on from where it was.
    let claims = b.claims(5).await;
    assert_eq!(claims.iter().map(|claim| claim.id.as_str()).collect::<Vec<_>>(), ["accepted"]);
    let swept = b.store.sweep(10).await.expect("sweeps");
    assert_eq!(swept.leases, 1);
    b.is("dispatching", State::Accepted, Reason::LeaseLostBeforeCall).await;
    let mut read: Vec<String> = Vec::new();
    for task in b.store.claim_reads(10, 1_000_000).await.expect("claims reads") {
        assert_eq!(task.ids, [(1, format!("a-{}", task.id))]);
        read.push(task.id);
    }
    read.sort();
    assert_eq!(read, ["dispatch_unknown", "sent"]);
    for (id, state) in [
        ("delivered", State::Delivered),
        ("failed_final", State::FailedFinal),
        ("expired", State::Expired),
    ] {
        let page = b.store.event_page(id).await.expect("reads").expect("exists");
        assert_eq!((page.record.state, page.record.settled), (state, true));
    }
}

#[tokio::test]
async fn a_file_of_the_first_release_is_migrated_with_a_record_in_each_state() {
    the_first_release_goes_on(Bench::empty_sqlite().await).await;
}

#[tokio::test]
async fn a_postgresql_of_the_first_release_is_migrated_with_a_record_in_each_state() {
    if let Some(b) = Bench::empty_postgres().await {
        the_first_release_goes_on(b).await;
    }
}

#[tokio::test]
async fn every_release_is_migrated_to_the_same_tables() {
    let fresh = columns_of(&Bench::sqlite().await).await;
    for count in 1..sqlite::MIGRATIONS.len() {
        let b = Bench::empty_sqlite().await;
        migrate_to(&b, count).await;
        b.store.migrate().await.expect("migrates");
        assert_eq!(columns_of(&b).await, fresh, "from the first {count}");
        let Some(b) = Bench::empty_postgres().await else { continue };
        migrate_to(&b, count).await;
        b.store.migrate().await.expect("migrates");
        assert_eq!(columns_of(&b).await, fresh, "from the first {count}");
    }
}

#[test]
fn a_schema_with_a_gap_is_the_one_before_the_gap() {
    let known = [(1, "", ""), (2, "", ""), (5, "", "")];
    for (applied, schema) in
        [(&[][..], 0), (&[1], 1), (&[1, 5], 1), (&[1, 2, 5], 5), (&[1, 2, 5, 6], 6)]
    {
        assert_eq!(engine::schema_of(applied, &known), schema, "{applied:?}");
    }
}

#[test]
fn both_engines_have_the_same_migrations_up_to_the_schema_of_this_program() {
    let names = |all: &[(i64, &'static str, &str)]| {
        all.iter().map(|(version, name, _)| (*version, *name)).collect::<Vec<_>>()
    };
    assert_eq!(names(sqlite::MIGRATIONS), names(postgres::MIGRATIONS));
    assert!(sqlite::MIGRATIONS.is_sorted_by_key(|(version, ..)| *version));
    assert_eq!(
        sqlite::MIGRATIONS.last().map(|(version, ..)| *version),
        Some(super::SCHEMA_VERSION)
    );
}
