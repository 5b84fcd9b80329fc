//! One list of promises, run on both engines.
//!
//! Each test gets an empty, migrated database of its own. SQLite runs in a temporary folder; PostgreSQL
//! where `TEST_PG_URL` names a server on which databases may be made (`make test` always does).

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use app::model::{Channel, FactKind, Reason, Seen, Stamp, State};

use super::{
    Admission, Admitted, Claim, End, Env, Error, Evidence, GiveUp, ReadAnswer, Rules, Search,
    Start, Started, Store, Weighed,
};
use crate::clock::ManualClock;
use crate::domain::{Doubt, Facing, Lookup, Policy, PreCall, Verdict};
use crate::entropy::{Entropy as _, SeededEntropy, SystemEntropy};
use crate::keys::Keys;
use crate::providers::Receipt;

const S: i64 = 1_000_000;

/// A store over an empty database, its clock, and a way to look behind it.
pub(crate) struct Bench {
    pub store: Arc<dyn Store>,
    env: Env,
    pub clock: ManualClock,
    pub url: String,
    folder: Option<PathBuf>,
    admitted: std::sync::atomic::AtomicU64,
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn policy() -> Policy {
    Policy {
        margin: 10 * S,
        call_timeout: 5 * S,
        lease: 10 * S,
        attempts_max: 3,
        replays_max: 2,
        backoff_first: S,
        backoff_max: 60 * S,
        first_poll: S,
        max_poll: 30 * S,
        poll_for: 45 * S,
    }
}

impl Bench {
    async fn migrated(self) -> Self {
        self.store.migrate().await.expect("migrates");
        self
    }

    async fn new(url: String, folder: Option<PathBuf>) -> Self {
        let clock = ManualClock::new(Stamp::from_micros(1_790_000_000 * S));
        let facing = HashMap::from([
            (
                "demo".to_owned(),
                Facing {
                    settle: Some(2 * S),
                    is_readable: true,
                    replay_window: None,
                    has_callbacks: true,
                },
            ),
            (
                "keyed".to_owned(),
                Facing {
                    settle: None,
                    is_readable: false,
                    replay_window: Some(600 * S),
                    has_callbacks: false,
                },
            ),
        ]);
        let env = Env {
            clock: Arc::new(clock.clone()),
            entropy: Arc::new(SystemEntropy),
            keys: Arc::new(Keys::generate(&SeededEntropy::new(7))),
            rules: Arc::new(Rules::new(policy(), facing, 50)),
        };
        let store = super::open(&url, env.clone()).await.expect("opens");
        Self { store, env, clock, url, folder, admitted: 0.into() }
    }

    /// Another process on the same database, with rules of its own.
    async fn beside(&self, change: impl FnOnce(&mut Rules)) -> Arc<dyn Store> {
        let mut rules = (*self.env.rules).clone();
        change(&mut rules);
        let env = Env { rules: Arc::new(rules), ..self.env.clone() };
        super::open(&self.url, env).await.expect("opens")
    }

    pub(super) fn is_sqlite(&self) -> bool {
        self.folder.is_some()
    }

    pub(crate) async fn sqlite() -> Self {
        Self::empty_sqlite().await.migrated().await
    }

    pub(super) async fn postgres() -> Option<Self> {
        match Self::empty_postgres().await {
            Some(bench) => Some(bench.migrated().await),
            None => None,
        }
    }

    /// Before any migration.
    pub(super) async fn empty_sqlite() -> Self {
        let folder = std::env::temp_dir().join(format!("sendonce-test-{}", SystemEntropy.hex(8)));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        Self::new(format!("sqlite://{}/ledger.db", folder.display()), Some(folder)).await
    }

    /// Before any migration.
    pub(super) async fn empty_postgres() -> Option<Self> {
        use sqlx::Connection as _;
        let server = std::env::var("TEST_PG_URL").ok()?;
        let name = format!("t_{}", SystemEntropy.hex(8));
        let mut admin =
            sqlx::PgConnection::connect(&server).await.expect("the test server answers");
        sqlx::query(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .execute(&mut admin)
            .await
            .expect("makes a database");
        let base = server.rsplit_once('/').expect("a URL with a database").0;
        Some(Self::new(format!("{base}/{name}"), None).await)
    }

    /// Admits so many events of a seller.
    pub(crate) async fn admit_for(&self, seller: &str, count: usize) {
        let events: Vec<_> = (0..count).map(|_| self.event(Some(seller), None)).collect();
        self.store.admit(&events).await.expect("admits");
    }

    fn event(&self, seller: Option<&str>, window: Option<&str>) -> Admission {
        let n = self.admitted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let now = crate::clock::Clock::now(&self.clock);
        Admission {
            id: SystemEntropy.uuid(now),
            event_id: format!("ev-{n}"),
            idempotency_key: format!("key-{n}"),
            content_hash: format!("content-{n}"),
            spelled_hash: None,
            channel: Channel::Sms,
            provider: "demo".into(),
            purpose: "password_reset".into(),
            seller_id: seller.map(str::to_owned),
            request_window: window.map(str::to_owned),
            token_id: None,
            destination_ref: format!("dest-{n}"),
            reset_ref: format!("reset-{n}"),
            destination_hash: "dest".into(),
            reset_hash: "reset".into(),
            expires_at: now.plus(600 * S),
            client_id: "c1".into(),
            fault: None,
        }
    }

    async fn admit(&self, event: &Admission) -> Admitted {
        let mut answers = self.store.admit(std::slice::from_ref(event)).await.expect("admits");
        answers.pop().expect("one answer")
    }

    async fn admitted(&self) -> Admission {
        let event = self.event(None, None);
        assert!(matches!(self.admit(&event).await, Admitted::New(_)));
        event
    }

    pub(super) async fn claims(&self, limit: usize) -> Vec<Claim> {
        self.store.claim("w1", Channel::Sms, limit).await.expect("claims")
    }

    async fn claim(&self) -> Claim {
        self.claims(1).await.pop().expect("one is due")
    }

    async fn start(&self, claim: &Claim) -> Started {
        self.store.start(&[start(claim)]).await.expect("starts").pop().expect("one answer")
    }

    async fn end(&self, claim: &Claim, verdict: Verdict) -> State {
        let ended_at = crate::clock::Clock::now(&self.clock);
        let end = End {
            id: claim.id.clone(),
            fence: claim.fence,
            attempt: claim.attempt,
            verdict,
            ended_at,
        };
        self.store.end(&[end]).await.expect("ends").pop().expect("one answer")
    }

    async fn called(&self, verdict: Verdict) -> Claim {
        let claim = self.claim().await;
        assert!(matches!(self.start(&claim).await, Started::Call { .. }));
        self.end(&claim, verdict).await;
        claim
    }

    pub(super) async fn is(&self, id: &str, state: State, reason: Reason) {
        let record = self.store.record(id).await.expect("reads").expect("exists");
        assert_eq!((record.state, record.reason), (state, reason));
    }

    async fn calls(&self, id: &str) -> u32 {
        self.store.record(id).await.expect("reads").expect("exists").calls
    }

    async fn read_due(&self, answer: Lookup) {
        let tasks = self.store.claim_reads(10, 60 * S).await.expect("claims reads");
        let asked_at = crate::clock::Clock::now(&self.clock);
        let answers: Vec<ReadAnswer> = tasks
            .into_iter()
            .map(|task| ReadAnswer {
                id: task.id,
                attempt: task.attempt,
                calls: task.calls,
                is_whole: task.ids.len() > 1,
                found_at: None,
                asked_at,
                answer: answer.clone(),
            })
            .collect();
        assert!(!answers.is_empty(), "nothing was due to be read");
        self.store.record_reads(&answers).await.expect("records");
    }

    fn later(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// Counts rows with SQL of its own.
    pub(super) async fn count(&self, sql: &'static str) -> i64 {
        use sqlx::{Connection as _, Row as _};
        if self.folder.is_some() {
            let mut connection = sqlx::SqliteConnection::connect(&self.url).await.expect("opens");
            sqlx::query(sql).fetch_one(&mut connection).await.expect("counts").get(0)
        } else {
            let mut connection = sqlx::PgConnection::connect(&self.url).await.expect("opens");
            sqlx::query(sql).fetch_one(&mut connection).await.expect("counts").get(0)
        }
    }

    /// Runs a statement past the store; true when the database took it.
    pub(super) async fn force(&self, sql: String) -> bool {
        use sqlx::Connection as _;
        if self.folder.is_some() {
            let mut connection = sqlx::SqliteConnection::connect(&self.url).await.expect("opens");
            sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.is_ok()
        } else {
            let mut connection = sqlx::PgConnection::connect(&self.url).await.expect("opens");
            sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.is_ok()
        }
    }
}

fn start(claim: &Claim) -> Start {
    Start {
        id: claim.id.clone(),
        fence: claim.fence,
        request_hash: "bytes".into(),
        text_hash: "text".into(),
        fingerprint: "print".into(),
        fingerprint_version: 1,
        place: None,
    }
}

fn accepted() -> Verdict {
    Verdict::Accepted { message_id: Some("m-1".into()) }
}
fn timeout() -> Verdict {
    Verdict::Unknown { why: Doubt::Timeout, code: "timeout".into() }
}
fn not_sent() -> Verdict {
    Verdict::NotSent { code: "connect".into() }
}

async fn an_event_is_admitted_once_with_its_outbox_row_and_its_fact(b: Bench) {
    let event = b.event(Some("s1"), None);
    let Admitted::New(first) = b.admit(&event).await else { panic!("not new") };
    assert_eq!((first.state, first.calls), (State::Accepted, 0));
    for _ in 0..30 {
        let Admitted::Replay(again) = b.admit(&event).await else { panic!("not a replay") };
        assert_eq!(again.id, first.id);
    }
    assert_eq!(b.count("SELECT COUNT(*) FROM records").await, 1);
    assert_eq!(b.count("SELECT COUNT(*) FROM outbox").await, 1);
    // The first 20 replays are facts, the others are counted.
    assert_eq!(b.count("SELECT COUNT(*) FROM facts WHERE kind = 'admission_replay'").await, 20);
    b.later(61);
    b.admit(&event).await;
    let facts = b.store.timeline(&first.id).await.expect("reads").expect("exists");
    let last = facts.last().expect("has facts");
    assert_eq!((last.kind, last.detail.get_number("count")), (FactKind::AdmissionReplay, Some(11)));
    let numbers: Vec<u32> = facts.iter().map(|fact| fact.seq).collect();
    assert_eq!(numbers, (1..=22).collect::<Vec<_>>());
}

async fn a_group_folds_its_own_duplicates(b: Bench) {
    let event = b.event(None, None);
    let other = Admission { idempotency_key: event.idempotency_key.clone(), ..b.event(None, None) };
    let group = vec![event.clone(), event.clone(), other, event];
    let answers = b.store.admit(&group).await.expect("admits");
    assert!(matches!(answers[0], Admitted::New(_)));
    assert!(matches!(answers[1], Admitted::Replay(_)));
    assert_eq!(answers[2], Admitted::Conflict("idempotency_conflict"));
    assert!(matches!(answers[3], Admitted::Replay(_)));
    assert_eq!(b.count("SELECT COUNT(*) FROM records").await, 1);
}

async fn key_and_event_belong_together_in_both_directions(b: Bench) {
    let event = b.admitted().await;
    let second = b.admitted().await;
    let with = |key: &str, event_id: &str| Admission {
        idempotency_key: key.into(),
        event_id: event_id.into(),
        ..b.event(None, None)
    };
    let cases = [
        (with(&event.idempotency_key, "ev-new"), "idempotency_conflict"),
        (with("key-new", &event.event_id), "event_conflict"),
        (with(&event.idempotency_key, &second.event_id), "idempotency_conflict"),
        (Admission { content_hash: "other".into(), ..event.clone() }, "payload_mismatch"),
    ];
    for (case, code) in cases {
        assert_eq!(b.admit(&case).await, Admitted::Conflict(code));
    }
    assert_eq!(b.count("SELECT COUNT(*) FROM records").await, 2);
    assert_eq!(b.count("SELECT COUNT(*) FROM facts WHERE kind = 'admission_conflict'").await, 4);
}

async fn a_window_converges_and_its_conflicts_are_told(b: Bench) {
    let first = Admission { token_id: Some("t1".into()), ..b.event(Some("s1"), Some("w1")) };
    assert!(matches!(b.admit(&first).await, Admitted::New(_)));
    let again = Admission { token_id: Some("t1".into()), ..b.event(Some("s1"), Some("w1")) };
    let Admitted::Replay(record) = b.admit(&again).await else { panic!("did not converge") };
    assert_eq!(record.id, first.id);
    // Its key and event are aliases now, unique like the record's own.
    assert!(matches!(b.admit(&again).await, Admitted::Replay(_)));
    let by_event = b.store.record_by_event(&again.event_id).await.expect("reads");
    assert_eq!(by_event.map(|record| record.id), Some(first.id.clone()));
    let stolen = Admission { event_id: again.event_id.clone(), ..b.event(None, None) };
    assert_eq!(b.admit(&stolen).await, Admitted::Conflict("event_conflict"));
    for other in [
        Admission { token_id: Some("t2".into()), ..b.event(Some("s1"), Some("w1")) },
        Admission {
            token_id: Some("t1".into()),
            destination_hash: "elsewhere".into(),
            ..b.event(Some("s1"), Some("w1"))
        },
        Admission {
            token_id: Some("t1".into()),
            channel: Channel::Email,
            ..b.event(Some("s1"), Some("w1"))
        },
    ] {
        assert_eq!(b.admit(&other).await, Admitted::Conflict("request_window_conflict"));
    }
    let token = Admission { token_id: Some("t1".into()), ..b.event(Some("s2"), Some("w1")) };
    assert_eq!(b.admit(&token).await, Admitted::Conflict("token_conflict"));
    let plain = b.event(Some("s3"), Some("w1"));
    b.admit(&plain).await;
    let other_link = Admission { reset_hash: "other".into(), ..b.event(Some("s3"), Some("w1")) };
    assert_eq!(b.admit(&other_link).await, Admitted::Conflict("request_window_conflict"));
}

async fn times_are_judged_only_for_what_is_new(b: Bench) {
    let event = b.admitted().await;
    let late = Admission { fault: Some(("expires_at", "too_soon")), ..event };
    assert!(matches!(b.admit(&late).await, Admitted::Replay(_)));
    let fresh = Admission { fault: Some(("expires_at", "too_soon")), ..b.event(None, None) };
    assert_eq!(b.admit(&fresh).await, Admitted::Invalid("expires_at", "too_soon"));
    assert_eq!(b.count("SELECT COUNT(*) FROM records").await, 1);
}

async fn eight_workers_claim_each_row_once(b: Bench) {
    for _ in 0..40 {
        b.admitted().await;
    }
    let mut tasks = Vec::new();
    for n in 0..8 {
        let store = Arc::clone(&b.store);
        tasks.push(tokio::spawn(async move {
            let mut ids = Vec::new();
            loop {
                let claims = store.claim(&format!("w{n}"), Channel::Sms, 3).await.expect("claims");
                if claims.is_empty() {
                    return ids;
                }
                ids.extend(claims.into_iter().map(|claim| claim.id));
            }
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.expect("runs"));
    }
    all.sort();
    let claimed = all.len();
    all.dedup();
    assert_eq!((claimed, all.len()), (40, 40));
}

async fn a_sent_call_is_on_the_record_and_its_row(b: Bench) {
    let event = b.admitted().await;
    let claim = b.called(accepted()).await;
    b.is(&event.id, State::Sent, Reason::ProviderAccepted).await;
    let page = b.store.event_page(&event.event_id).await.expect("reads").expect("exists");
    assert_eq!(page.calls.len(), 1);
    assert_eq!(page.calls[0].authorised_by, 1);
    assert_eq!(page.calls[0].attempt_id, claim.attempt_id);
    assert_eq!(page.provider_message_id.as_deref(), Some("m-1"));
    assert_eq!(b.count("SELECT COUNT(*) FROM outbox").await, 0);
}

async fn a_stale_fence_changes_nothing(b: Bench) {
    let event = b.admitted().await;
    let old = b.claim().await;
    b.later(11);
    assert_eq!(b.store.sweep(10).await.expect("sweeps").leases, 1);
    b.is(&event.id, State::Accepted, Reason::LeaseLostBeforeCall).await;
    b.later(5);
    let new = b.claim().await;
    assert!(new.fence > old.fence);
    assert_eq!(b.start(&old).await, Started::Stale);
    let give_up = GiveUp { id: old.id.clone(), fence: old.fence, why: PreCall::Released };
    b.store.give_up(&[give_up]).await.expect("is let be");
    b.is(&event.id, State::Dispatching, Reason::Claimed).await;
    assert!(matches!(b.start(&new).await, Started::Call { attempt: 1, call: 1, .. }));
}

async fn a_late_answer_is_evidence_for_its_own_attempt(b: Bench) {
    let event = b.admitted().await;
    let claim = b.claim().await;
    b.start(&claim).await;
    b.later(11);
    b.store.sweep(10).await.expect("sweeps");
    b.is(&event.id, State::DispatchUnknown, Reason::LeaseLostAfterCall).await;
    assert_eq!(b.end(&claim, accepted()).await, State::Sent);
    b.is(&event.id, State::Sent, Reason::ReconciledFound).await;
    assert_eq!(b.calls(&event.id).await, 1);
}

async fn unknown_is_read_and_found(b: Bench) {
    let event = b.admitted().await;
    b.called(timeout()).await;
    b.is(&event.id, State::DispatchUnknown, Reason::Timeout).await;
    b.later(2);
    b.read_due(Lookup::Found { seen: Seen::Accepted, message_id: Some("m".into()) }).await;
    b.is(&event.id, State::Sent, Reason::ReconciledFound).await;
    b.later(2);
    b.read_due(Lookup::Found { seen: Seen::Delivered, message_id: Some("m".into()) }).await;
    b.is(&event.id, State::Delivered, Reason::DeliveryEvidence).await;
    assert_eq!(b.calls(&event.id).await, 1);
}

async fn confirmed_absence_allows_exactly_one_more_call(b: Bench) {
    let event = b.admitted().await;
    b.called(timeout()).await;
    for _ in 0..2 {
        b.later(3);
        b.read_due(Lookup::Absent).await;
    }
    b.is(&event.id, State::Accepted, Reason::ReconciledAbsent).await;
    b.called(accepted()).await;
    b.is(&event.id, State::Sent, Reason::ProviderAccepted).await;
    let page = b.store.event_page(&event.id).await.expect("reads").expect("exists");
    let proof = &page.facts[page.calls[1].authorised_by as usize - 1];
    assert_eq!(proof.reason, Some(Reason::ReconciledAbsent));
}

async fn a_callback_resolves_a_lost_answer_and_is_kept_once(b: Bench) {
    let event = b.admitted().await;
    let claim = b.called(timeout()).await;
    let evidence = Evidence {
        provider: "demo".into(),
        receipt: Receipt {
            attempt_id: Some(claim.attempt_id.clone()),
            cause: None,
            seen: Seen::Delivered,
            message_id: Some("m".into()),
            at: Some(Stamp::from_micros(5)),
        },
    };
    let group = [evidence.clone(), evidence.clone()];
    let weighed = b.store.weigh(&group).await.expect("weighs");
    assert_eq!(weighed, [Weighed::Kept, Weighed::Duplicate]);
    b.is(&event.id, State::Delivered, Reason::ReconciledDelivered).await;
    let other = Evidence {
        receipt: Receipt { attempt_id: Some("nobody".into()), ..evidence.receipt.clone() },
        ..evidence.clone()
    };
    assert_eq!(b.store.weigh(&[other]).await.expect("weighs"), [Weighed::Unmatched]);
    let elsewhere = Evidence { provider: "keyed".into(), ..evidence };
    assert_eq!(b.store.weigh(&[elsewhere]).await.expect("weighs"), [Weighed::Unmatched]);
    assert_eq!(b.count("SELECT COUNT(*) FROM facts WHERE kind = 'callback'").await, 1);
}

async fn a_replay_repeats_the_same_bytes_or_nothing(b: Bench) {
    let event = Admission { provider: "keyed".into(), ..b.event(None, None) };
    b.admit(&event).await;
    b.called(timeout()).await;
    b.later(3);
    let replay = b.claim().await;
    assert!(replay.is_replay);
    assert_eq!(replay.attempt, 1);
    let other = Start { request_hash: "other bytes".into(), ..start(&replay) };
    let started = b.store.start(&[other]).await.expect("starts");
    assert_eq!(started, [Started::Stopped(State::DispatchUnknown)]);
    b.is(&event.id, State::DispatchUnknown, Reason::ReplayInconclusive).await;
    assert_eq!(b.calls(&event.id).await, 1);
    b.later(10);
    let replay = b.claim().await;
    assert!(matches!(b.start(&replay).await, Started::Call { attempt: 1, call: 2, .. }));
    b.end(&replay, not_sent()).await;
    b.is(&event.id, State::DispatchUnknown, Reason::ReplayInconclusive).await;
}

async fn after_a_freeze_no_marker_commits(b: Bench) {
    let event = b.admitted().await;
    let claim = b.claim().await;
    let frozen = b.store.freeze("channel:sms", "client:c", "check", None).await.expect("freezes");
    assert_eq!(frozen.freeze.in_flight, 0);
    let state = b.start(&claim).await;
    assert_eq!(state, Started::Stopped(State::Accepted));
    b.is(&event.id, State::Accepted, Reason::FrozenBeforeCall).await;
    assert!(b.claims(5).await.is_empty());
    let repeat = b.store.freeze("channel:sms", "client:d", "again", None).await.expect("freezes");
    assert!(repeat.is_repeat);
    assert_eq!(repeat.freeze.actor, "client:c", "the first actor and time are kept");
    assert!(b.store.unfreeze("channel:sms", "client:c", "over").await.expect("unfreezes"));
    assert!(!b.store.unfreeze("channel:sms", "client:c", "over").await.expect("repeats"));
    assert_eq!(b.claims(5).await.len(), 1);
}

async fn frozen_events_expire_as_frozen_and_the_rest_is_paced(b: Bench) {
    let short = Admission {
        expires_at: crate::clock::Clock::now(&b.clock).plus(20 * S),
        ..b.event(None, None)
    };
    b.admit(&short).await;
    for _ in 0..120 {
        b.admitted().await;
    }
    b.store.freeze("all", "client:c", "check", None).await.expect("freezes");
    b.later(11);
    b.store.unfreeze("all", "client:c", "over").await.expect("unfreezes");
    b.is(&short.id, State::Expired, Reason::ExpiredWhileFrozen).await;
    // 50 a second: of 120, one second's worth may be claimed at first.
    assert_eq!(b.claims(200).await.len(), 1);
    b.later(1);
    assert_eq!(b.claims(200).await.len(), 50);
}

async fn an_expiry_after_the_freeze_is_over_is_an_ordinary_one(b: Bench) {
    let event = b.admitted().await;
    b.store.freeze("provider:demo", "client:c", "check", None).await.expect("freezes");
    b.later(5);
    b.store.unfreeze("provider:demo", "client:c", "over").await.expect("unfreezes");
    b.later(590);
    b.store.sweep(10).await.expect("sweeps");
    b.is(&event.id, State::Expired, Reason::ExpiredInQueue).await;
}

async fn the_database_refuses_what_the_rules_forbid(b: Bench) {
    let event = b.admitted().await;
    let id = &event.id;
    let refused = [
        format!("UPDATE records SET state = 'sent' WHERE id = '{id}'"),
        format!("UPDATE records SET expires_at = expires_at + 1 WHERE id = '{id}'"),
        "UPDATE facts SET actor = 'x'".to_owned(),
        "DELETE FROM facts".to_owned(),
        format!(
            "INSERT INTO facts (seq, id, event_id, at, kind, old_state, new_state, reason, actor, detail)
             VALUES (2, '{id}', '{}', 1, 'transition', 'accepted', 'sent', 'provider_accepted', 'x', '{{}}')",
            event.event_id
        ),
    ];
    for sql in refused {
        assert!(!b.force(sql.clone()).await, "{sql}");
    }
    b.called(accepted()).await;
    let second_call = format!(
        "INSERT INTO calls (id, call, attempt, is_replay, authorised_by, provider, started_at, call_by)
         VALUES ('{id}', 2, 1, 0, 2, 'demo', 1, 1)"
    );
    let same_authority = format!(
        "INSERT INTO calls (id, call, attempt, is_replay, authorised_by, provider, started_at, call_by)
         VALUES ('{id}', 2, 1, 0, 1, 'demo', 1, 1)"
    );
    for sql in [second_call, same_authority, "DELETE FROM calls".to_owned()] {
        assert!(!b.force(sql.clone()).await, "{sql}");
    }
    assert_eq!(b.count("SELECT COUNT(*) FROM calls").await, 1);
}

async fn the_transitions_of_the_database_are_those_of_the_rules(b: Bench) {
    let rules = crate::domain::TRANSITIONS;
    assert_eq!(b.count("SELECT COUNT(*) FROM transitions").await, rules.len() as i64);
    for rule in rules {
        let from = rule.from.map_or("", State::as_str);
        let sql = format!(
            "INSERT INTO transitions (old_state, new_state, reason) VALUES ('{from}', '{}', '{}')",
            rule.to, rule.reason
        );
        assert!(!b.force(sql).await, "{rule:?} is missing in the database");
    }
}

async fn settled_records_lose_their_handles_and_keep_their_answers(b: Bench) {
    let event = b.admitted().await;
    b.called(Verdict::RefusedPermanently { code: "bad".into() }).await;
    assert_eq!(
        b.count("SELECT COUNT(*) FROM records WHERE destination_ref IS NULL AND reset_ref IS NULL")
            .await,
        1
    );
    assert!(matches!(b.admit(&event).await, Admitted::Replay(_)));
}

async fn a_poisoned_row_does_not_hold_back_a_good_one(b: Bench) {
    for _ in 0..8 {
        b.admitted().await;
    }
    for claim in b.claims(8).await {
        b.start(&claim).await;
        b.end(&claim, not_sent()).await;
    }
    let good = b.admitted().await;
    let claims = b.claims(1).await;
    assert_eq!(claims.first().map(|claim| claim.id.as_str()), Some(good.id.as_str()));
}

async fn a_paused_provider_is_left_alone_until_its_time(b: Bench) {
    b.admitted().await;
    let until = crate::clock::Clock::now(&b.clock).plus(5 * S);
    b.store.pause_provider("demo", until, "rate_limited").await.expect("pauses");
    assert!(b.claims(5).await.is_empty());
    assert_eq!(b.store.next_due(Channel::Sms).await.expect("reads"), Some(until));
    b.later(5);
    assert_eq!(b.claims(5).await.len(), 1);
}

async fn a_cancelled_event_is_never_sent_and_cancelling_repeats(b: Bench) {
    let event = b.admitted().await;
    let (record, done) =
        b.store.cancel(&event.id, "client:c").await.expect("cancels").expect("exists");
    assert_eq!((record.reason, done), (Reason::Cancelled, true));
    let (_, again) = b.store.cancel(&event.id, "client:c").await.expect("cancels").expect("exists");
    assert!(again);
    assert!(b.claims(5).await.is_empty());
    let other = b.admitted().await;
    b.claim().await;
    let (_, done) = b.store.cancel(&other.id, "client:c").await.expect("cancels").expect("exists");
    assert!(!done, "too late");
}

async fn rows_of_one_commit_do_not_vanish_between_pages(b: Bench) {
    let group: Vec<Admission> = (0..50).map(|_| b.event(Some("s1"), None)).collect();
    b.store.admit(&group).await.expect("admits");
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let search = Search { cursor: cursor.clone(), limit: 10, ..Search::default() };
        let page = b.store.search(&search).await.expect("searches");
        assert_eq!(page.total.count, 50);
        seen.extend(page.rows.into_iter().map(|row| row.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let rows = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((rows, seen.len()), (50, 50));
}

async fn every_page_can_be_read(b: Bench) {
    b.admitted().await;
    b.called(timeout()).await;
    b.store.freeze("all", "client:c", "check", None).await.expect("freezes");
    b.admitted().await;
    let search = Search {
        states: vec![State::DispatchUnknown],
        channel: Some(Channel::Sms),
        provider: Some("demo".into()),
        reason: Some(Reason::Timeout),
        prefix: Some("ev-".into()),
        after: Some(Stamp::from_micros(0)),
        before: Some(Stamp::from_micros(i64::MAX)),
        limit: 10,
        ..Search::default()
    };
    assert_eq!(b.store.search(&search).await.expect("searches").rows.len(), 1);
    assert_eq!(b.store.unknown_page(10).await.expect("reads").rows.len(), 1);
    let overview = b.store.overview().await.expect("reads");
    assert_eq!((overview.unknown.count.count, overview.frozen.count.count), (1, 1));
    let desk = b.store.freeze_page(&["demo".to_owned()]).await.expect("reads");
    assert_eq!(desk.active[0].waiting.count, 1);
    assert_eq!(b.store.gauges().await.expect("reads").unknown, 1);
    assert!(b.store.seller_page("nobody", None, 10).await.expect("reads").rows.is_empty());
    assert!(b.store.next_sweep().await.expect("reads").is_some());
    assert!(b.store.next_read().await.expect("reads").is_some());
    assert!(b.store.fact_count().await.expect("reads") > 0);
    b.store.ping().await.expect("answers");
}

async fn accounts_sessions_and_throttle_are_kept(b: Bench) {
    let user =
        b.store.add_user("a@example.com", app::model::Role::Oncall, "hash").await.expect("adds");
    let twice = b.store.add_user("a@example.com", app::model::Role::Admin, "hash").await;
    assert!(matches!(twice, Err(Error::Conflict { .. })));
    let later = crate::clock::Clock::now(&b.clock).plus(60 * S);
    b.store.save_session("h", Some(&user.id), "data", later).await.expect("saves");
    assert_eq!(b.store.load_session("h").await.expect("loads").as_deref(), Some("data"));
    assert!(b.store.disable_user("a@example.com").await.expect("disables"));
    assert_eq!(b.store.load_session("h").await.expect("loads"), None);
    let subject = ["someone".to_owned()];
    for _ in 0..5 {
        b.store.login_failed(&subject).await.expect("counts");
    }
    assert!(b.store.login_blocked_to(&subject).await.expect("reads").is_some());
    b.store.login_succeeded(&subject).await.expect("forgets");
    assert!(b.store.login_blocked_to(&subject).await.expect("reads").is_none());
    assert!(b.store.use_action_key("k").await.expect("uses"));
    assert!(!b.store.use_action_key("k").await.expect("uses"));
    let client = b.store.add_client("shop", &["admit".to_owned()], "hash").await.expect("adds");
    assert!(b.store.client(&client.id).await.expect("reads").is_some());
    assert!(b.store.revoke_client("shop").await.expect("revokes"));
    assert!(b.store.client(&client.id).await.expect("reads").is_none());
    assert!(b.store.keep_setting("margin", "10s").await.expect("keeps"));
    assert!(!b.store.keep_setting("margin", "10s").await.expect("keeps"));
    b.store.check_keys().await.expect("registers");
    b.store.check_keys().await.expect("agrees");
    assert_eq!(b.store.users().await.expect("reads").len(), 1);
}

async fn a_worker_claims_only_what_it_understands(b: Bench) {
    let newer = b.beside(|rules| {
        rules.semantics = 2;
        rules.understands = 1..=2;
    });
    let newer = newer.await;
    let old = b.admitted().await;
    let event = b.event(None, None);
    newer.admit(std::slice::from_ref(&event)).await.expect("admits");
    let claims = b.claims(10).await;
    assert_eq!(claims.iter().map(|claim| &claim.id).collect::<Vec<_>>(), [&old.id]);
    b.later(595);
    b.store.sweep(10).await.expect("sweeps");
    b.is(&event.id, State::Accepted, Reason::Admitted).await;
    let cancelled = b.store.cancel(&event.id, "client:c").await;
    assert!(matches!(cancelled, Err(Error::NotUnderstood { semantics: 2 })));
    newer.sweep(10).await.expect("sweeps");
    b.is(&event.id, State::Expired, Reason::ExpiredInQueue).await;
}

async fn a_configuration_is_in_force_until_its_last_process_is_silent(b: Bench) {
    let shared = |margin: &str| {
        std::collections::BTreeMap::from([("dispatch.margin".to_owned(), margin.to_owned())])
    };
    let worker = |id: &str| app::model::WorkerView {
        id: id.into(),
        version: "1".into(),
        semantics: 1,
        roles: "dispatch".into(),
        started_at: crate::clock::Clock::now(&b.clock),
        seen_at: crate::clock::Clock::now(&b.clock),
    };
    let activate = |digest: &'static str, margin: &'static str, force: bool| {
        let (store, shared) = (Arc::clone(&b.store), shared(margin));
        async move { store.activate(digest, &shared, 15 * S, force).await.expect("answers") }
    };
    assert_eq!(activate("d1", "10s", false).await, super::Activation::Active);
    assert_eq!(b.store.heartbeat(&worker("w1"), "d1").await.expect("beats").as_deref(), Some("d1"));
    assert_eq!(
        activate("d2", "9s", false).await,
        super::Activation::Differs(vec!["dispatch.margin".to_owned()])
    );
    assert_eq!(activate("d2", "9s", true).await, super::Activation::Active);
    // The one that was there sees that it is not in force any more.
    assert_eq!(b.store.heartbeat(&worker("w1"), "d1").await.expect("beats").as_deref(), Some("d2"));
    b.later(16);
    assert_eq!(activate("d1", "10s", false).await, super::Activation::Active);
    assert_eq!(b.store.workers().await.expect("reads").len(), 1);
    b.store.leave("w1").await.expect("leaves");
    assert!(b.store.workers().await.expect("reads").is_empty());
}

async fn a_freeze_waits_for_the_marker_that_is_under_way(b: Bench) {
    use sqlx::Connection as _;
    b.admitted().await;
    // A marker's transaction between its read of the freezes and its commit.
    let (hold, held) = tokio::sync::oneshot::channel::<()>();
    let (url, is_sqlite) = (b.url.clone(), b.folder.is_some());
    let (ready, is_ready) = tokio::sync::oneshot::channel();
    let marker = tokio::spawn(async move {
        if is_sqlite {
            let mut connection = sqlx::SqliteConnection::connect(&url).await.expect("opens");
            let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.expect("begins");
            sqlx::query("SELECT one FROM gate").fetch_one(&mut *tx).await.expect("reads");
            ready.send(()).expect("is awaited");
            let _ = held.await;
            tx.commit().await.expect("commits");
        } else {
            let mut connection = sqlx::PgConnection::connect(&url).await.expect("opens");
            let mut tx = connection.begin().await.expect("begins");
            let gate = "SELECT CAST(pg_advisory_xact_lock_shared(7465736) AS TEXT)";
            sqlx::query(gate).fetch_one(&mut *tx).await.expect("reads");
            ready.send(()).expect("is awaited");
            let _ = held.await;
            tx.commit().await.expect("commits");
        }
    });
    is_ready.await.expect("has the gate");
    let store = Arc::clone(&b.store);
    let freezing =
        tokio::spawn(async move { store.freeze("all", "client:c", "check", None).await });
    tokio::task::yield_now().await;
    for _ in 0..20 {
        assert!(!freezing.is_finished(), "acknowledged while a marker was under way");
        b.store.ping().await.expect("answers");
    }
    hold.send(()).expect("is awaited");
    marker.await.expect("ends");
    freezing.await.expect("ends").expect("freezes");
    assert!(b.claims(5).await.is_empty());
}

#[tokio::test]
async fn a_marker_that_comes_later_does_not_overtake_a_waiting_freeze() {
    use sqlx::Connection as _;
    let Some(b) = Bench::postgres().await else { return };
    b.admitted().await;
    let claim = b.claim().await;
    let mut connection = sqlx::PgConnection::connect(&b.url).await.expect("opens");
    let mut tx = connection.begin().await.expect("begins");
    let gate = "SELECT CAST(pg_advisory_xact_lock_shared(7465736) AS TEXT)";
    sqlx::query(gate).fetch_one(&mut *tx).await.expect("shares the gate");
    let store = Arc::clone(&b.store);
    let freezing =
        tokio::spawn(async move { store.freeze("all", "client:c", "check", None).await });
    let waits = "SELECT COUNT(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
                 WHERE l.locktype = 'advisory' AND NOT l.granted AND d.datname = current_database()";
    while b.count(waits).await == 0 {
        tokio::task::yield_now().await;
    }
    let store = Arc::clone(&b.store);
    let marker = tokio::spawn(async move { store.start(&[start(&claim)]).await });
    while b.count(waits).await < 2 {
        tokio::task::yield_now().await;
    }
    tx.commit().await.expect("lets go");
    freezing.await.expect("ends").expect("freezes");
    let started = marker.await.expect("ends").expect("answers");
    assert_eq!(started, [Started::Stopped(State::Accepted)]);
}

async fn dead_replays_do_not_stand_before_live_ones(b: Bench) {
    let keyed = || Admission {
        provider: "keyed".into(),
        expires_at: crate::clock::Clock::now(&b.clock).plus(3_000 * S),
        ..b.event(None, None)
    };
    for _ in 0..3 {
        b.admit(&keyed()).await;
        b.called(timeout()).await;
    }
    b.store.freeze("all", "client:c", "check", None).await.expect("freezes");
    b.later(700);
    b.store.unfreeze("all", "client:c", "over").await.expect("unfreezes");
    let live = keyed();
    b.admit(&live).await;
    b.called(timeout()).await;
    b.later(5);
    // The window of the first three is over; at most one look at them, then the live one.
    assert!(b.claims(3).await.is_empty());
    let claims = b.claims(3).await;
    assert_eq!(claims.iter().map(|claim| &claim.id).collect::<Vec<_>>(), [&live.id]);
}

async fn freezing_again_does_not_quicken_the_release(b: Bench) {
    for _ in 0..150 {
        b.admitted().await;
    }
    for seconds in [1, 2] {
        b.store.freeze("all", "client:c", "check", None).await.expect("freezes");
        b.later(seconds);
        b.store.unfreeze("all", "client:c", "over").await.expect("unfreezes");
    }
    assert_eq!(b.claims(200).await.len(), 1);
    b.later(1);
    assert_eq!(b.claims(200).await.len(), 50);
}

async fn a_number_under_another_name_is_not_kept(b: Bench) {
    b.admitted().await;
    let claim = b.claim().await;
    let start = Start { fingerprint: b.env.keys.fingerprint("+12025550123"), ..start(&claim) };
    b.store.start(&[start]).await.expect("starts");
    b.end(&claim, timeout()).await;
    let evidence = Evidence {
        provider: "demo".into(),
        receipt: Receipt {
            attempt_id: Some(claim.attempt_id.clone()),
            cause: None,
            seen: Seen::Accepted,
            message_id: None,
            at: None,
        },
    };
    for (n, id) in
        ["sms-12025550123", "0012025550123", "1-202-555-0123", "9_12025550123_4", "a%40b"]
            .iter()
            .enumerate()
    {
        let mut evidence = evidence.clone();
        evidence.receipt.message_id = Some((*id).to_owned());
        evidence.receipt.at = Some(Stamp::from_micros(n as i64));
        assert_eq!(b.store.weigh(&[evidence]).await.expect("weighs"), [Weighed::Kept]);
    }
    let found = "SELECT COUNT(*) FROM facts WHERE provider_message_id IS NOT NULL";
    assert_eq!(b.count(found).await, 0);
}

#[tokio::test]
async fn a_rollback_by_sqlite_itself_does_not_stop_the_writer() {
    let b = Bench::sqlite().await;
    let trigger =
        "CREATE TRIGGER full BEFORE INSERT ON outbox BEGIN SELECT RAISE(ROLLBACK, 'full'); END";
    assert!(b.force(trigger.to_owned()).await);
    for _ in 0..3 {
        let event = b.event(None, None);
        assert!(b.store.admit(std::slice::from_ref(&event)).await.is_err());
    }
    assert!(b.force("DROP TRIGGER full".to_owned()).await);
    b.admitted().await;
    b.store.freeze("all", "client:c", "check", None).await.expect("freezes");
    assert_eq!(b.count("SELECT COUNT(*) FROM records").await, 1);
}

#[tokio::test]
async fn a_silent_transaction_loses_the_gate_with_and_without_named_statements() {
    use super::engine::Engine as _;
    let Some(b) = Bench::postgres().await else { return };
    for url in [b.url.clone(), format!("{}?statement-cache-capacity=0", b.url)] {
        let engine = super::postgres::PostgresEngine::open(&url).await.expect("opens");
        let mut tx = engine.begin().await.expect("begins");
        let sql = "SELECT current_setting('idle_in_transaction_session_timeout')";
        let rows = super::postgres::PostgresEngine::query(&mut tx, sql, Vec::new()).await;
        let limit = rows.expect("answers").remove(0).text().expect("text");
        assert_eq!(limit, "3s", "{url}");
    }
}

const ROUTE: [&str; 2] = ["demo", "keyed"];

impl Bench {
    /// The same database with two providers on the route, and this allowance for look-ups.
    async fn routed(&self, reads_per_minute: Option<u32>) -> Arc<dyn Store> {
        self.beside(|rules| {
            let route = ROUTE.map(str::to_owned).to_vec();
            rules.routes.insert(Channel::Sms, route);
            rules.allowances.extend(reads_per_minute.map(|n| ("demo".to_owned(), n)));
        })
        .await
    }
}

/// Claims the one that is due, marks, and ends it.
async fn carried(store: &dyn Store, clock: &ManualClock, verdict: Verdict) -> Claim {
    let claim = store.claim("w1", Channel::Sms, 1).await.expect("claims").pop().expect("due");
    let started = store.start(&[start(&claim)]).await.expect("starts");
    assert!(matches!(started[0], Started::Call { .. }), "{started:?}");
    let ended_at = crate::clock::Clock::now(clock);
    let (id, fence, attempt) = (claim.id.clone(), claim.fence, claim.attempt);
    store.end(&[End { id, fence, attempt, verdict, ended_at }]).await.expect("ends");
    claim
}

async fn another_provider_is_tried_only_after_a_proof_that_nothing_was_sent(b: Bench) {
    let store = b.routed(None).await;
    let code = || "c".to_owned();
    for (verdict, next) in [
        (Verdict::NotSent { code: code() }, "keyed"),
        (Verdict::TransientRefusal { code: code() }, "keyed"),
        (Verdict::ProviderStopped { code: code() }, "keyed"),
        (Verdict::RateLimited { retry_at: None }, "demo"),
    ] {
        let event = b.admitted().await;
        let first = carried(&*store, &b.clock, verdict.clone()).await;
        assert_eq!((first.provider.as_str(), first.attempt), ("demo", 1));
        b.later(2);
        let second = carried(&*store, &b.clock, accepted()).await;
        assert_eq!((second.provider.as_str(), second.attempt), (next, 2), "{verdict:?}");
        let page = store.event_page(&event.id).await.expect("reads").expect("exists");
        let called: Vec<&str> = page.calls.iter().map(|call| call.provider.as_str()).collect();
        assert_eq!(called, ["demo", next]);
        let claims = page.facts.iter().filter(|fact| fact.reason == Some(Reason::Claimed));
        let named: Vec<&str> = claims.filter_map(|fact| fact.provider.as_deref()).collect();
        assert_eq!(named, ["demo", next]);
        // What comes late about the first attempt is told of its own provider.
        let receipt = Receipt {
            attempt_id: Some(first.attempt_id.clone()),
            message_id: None,
            seen: Seen::Accepted,
            cause: None,
            at: None,
        };
        let late = Evidence { provider: "demo".into(), receipt };
        assert_eq!(store.weigh(&[late]).await.expect("weighs"), [Weighed::Kept]);
        let facts = store.timeline(&event.id).await.expect("reads").expect("exists");
        let callback = facts.iter().find(|fact| fact.kind == FactKind::Callback).expect("kept");
        assert_eq!(callback.provider.as_deref(), Some("demo"));
    }
    // After the last of the route comes the first again.
    b.admitted().await;
    for name in ["demo", "keyed", "demo"] {
        let claim = carried(&*store, &b.clock, not_sent()).await;
        assert_eq!(claim.provider, name);
        b.later(10);
    }
}

async fn nobody_else_is_tried_from_the_unknown(b: Bench) {
    let store = b.routed(None).await;
    let event = b.admitted().await;
    carried(&*store, &b.clock, timeout()).await;
    for _ in 0..2 {
        b.later(5);
        b.read_due(Lookup::Absent).await;
    }
    b.is(&event.id, State::Accepted, Reason::ReconciledAbsent).await;
    let again = carried(&*store, &b.clock, accepted()).await;
    assert_eq!((again.provider.as_str(), again.attempt), ("demo", 2));
}

async fn a_stopped_provider_is_routed_around_and_a_frozen_one_is_not(b: Bench) {
    let store = b.routed(None).await;
    let now = crate::clock::Clock::now(&b.clock);
    store.pause_provider("demo", now.plus(60 * S), "provider_stopped").await.expect("pauses");
    b.admitted().await;
    let claim = carried(&*store, &b.clock, accepted()).await;
    assert_eq!((claim.provider.as_str(), claim.attempt), ("keyed", 1));
    // "Too many" is a pause of its own time, not an outage.
    store.pause_provider("demo", now.plus(61 * S), "rate_limited").await.expect("pauses");
    b.admitted().await;
    assert!(store.claim("w1", Channel::Sms, 1).await.expect("claims").is_empty());
    store.pause_provider("demo", now.plus(61 * S), "provider_stopped").await.expect("pauses");
    store.freeze("provider:demo", "u", "r", None).await.expect("freezes");
    assert!(store.claim("w1", Channel::Sms, 1).await.expect("claims").is_empty());
    store.unfreeze("provider:demo", "u", "r").await.expect("unfreezes");
    b.later(1);
    let claim = carried(&*store, &b.clock, accepted()).await;
    assert_eq!(claim.provider, "keyed");
    // Nobody is left: it waits.
    store.pause_provider("keyed", now.plus(61 * S), "provider_stopped").await.expect("pauses");
    b.admitted().await;
    assert!(store.claim("w1", Channel::Sms, 1).await.expect("claims").is_empty());
}

async fn look_ups_are_paid_from_one_bucket_over_all_processes(b: Bench) {
    // Ten seconds' worth: two at once, then one each five seconds.
    let (one, two) = (b.routed(Some(12)).await, b.routed(Some(12)).await);
    for _ in 0..5 {
        b.admitted().await;
        b.called(timeout()).await;
    }
    b.later(2);
    let (first, second) = tokio::join!(one.claim_reads(3, 600 * S), two.claim_reads(3, 600 * S));
    let taken = first.expect("claims").len() + second.expect("claims").len();
    assert_eq!(taken, 2);
    assert!(two.claim_reads(5, 600 * S).await.expect("claims").is_empty());
    b.later(6);
    let more = one.claim_reads(5, 600 * S).await.expect("claims").len();
    assert_eq!(more + two.claim_reads(5, 600 * S).await.expect("claims").len(), 1);
    b.later(600);
    assert_eq!(two.claim_reads(5, 600 * S).await.expect("claims").len(), 2, "it never overflows");
    let reads = one.reads().await.expect("reads");
    assert_eq!((reads[0].provider.as_str(), reads[0].level, reads[0].taken), ("demo", Some(0), 5));
    assert!(reads[0].deferred >= 5, "{reads:?}");
}

async fn a_callback_that_meets_nobody_is_kept_as_facts_and_matched_when_its_message_is_known(
    b: Bench,
) {
    let of = |message_id: &str| Evidence {
        provider: "demo".into(),
        receipt: Receipt {
            attempt_id: None,
            message_id: Some(message_id.into()),
            seen: Seen::Failed,
            cause: Some(crate::providers::Cause::Bounced),
            at: Some(Stamp::from_micros(7)),
        },
    };
    let evidence = [of("m-1"), of("m-1"), of("12025550123")];
    let weighed = b.store.weigh(&evidence).await.expect("weighs");
    assert_eq!(weighed, [Weighed::Unmatched; 3]);
    let (kept, count) = b.store.unmatched(10).await.expect("reads");
    assert_eq!((kept.len(), count.count), (2, 2));
    let named = kept.iter().find(|one| one.message_id.is_some()).expect("its id is kept");
    assert_eq!((named.times, named.code.as_deref()), (2, Some("bounced")));
    // Now the call's own answer is written, and names the message.
    let event = b.admitted().await;
    b.called(accepted()).await;
    b.is(&event.id, State::FailedFinal, Reason::Undelivered).await;
    let facts = b.store.timeline(&event.id).await.expect("reads").expect("exists");
    let callback = facts.iter().find(|fact| fact.kind == FactKind::Callback).expect("a fact");
    assert_eq!(callback.detail.get_code("code"), Some("bounced"));
    assert_eq!(b.store.unmatched(10).await.expect("reads").1.count, 1);
    // The same once more is a duplicate, whichever id names it.
    assert_eq!(b.store.weigh(&[of("m-1")]).await.expect("weighs"), [Weighed::Duplicate]);
    let leak = "SELECT COUNT(*) FROM unmatched_callbacks WHERE message_id LIKE '%12025550123%'";
    assert_eq!(b.count(leak).await, 0);
}

async fn a_trial_is_kept_with_its_steps_and_the_newest_is_shown(b: Bench) {
    use super::{Trial, TrialStep};
    let now = crate::clock::Clock::now(&b.clock);
    let trial = |id: &str, provider: &str, after: i64, verdict: &str| Trial {
        id: id.into(),
        provider: provider.into(),
        kind: "http".into(),
        target: "simulator".into(),
        verdict: verdict.into(),
        started_at: now,
        ended_at: now.plus(after),
        steps: vec![TrialStep {
            scenario: "normal".into(),
            what: "call".into(),
            attempt_id: "a".into(),
            message_id: Some("m".into()),
            outcome: "accepted".into(),
            code: None,
            at: now,
        }],
    };
    let newest = trial("t2", "p", 2, "reconcilable");
    for one in [&trial("t1", "p", 1, "unreconcilable"), &newest, &trial("t3", "q", 1, "idempotent")]
    {
        b.store.keep_trial(one).await.expect("keeps");
    }
    let last = b.store.last_trials().await.expect("reads");
    assert_eq!(last.len(), 2);
    assert_eq!(last[0], newest);
}

#[tokio::test]
async fn one_process_serves_a_file_whatever_name_it_is_opened_by() {
    let b = Bench::sqlite().await;
    let file = b.folder.as_ref().expect("a folder").join("ledger.db");
    let held = super::lock(&b.url).expect("locks").expect("is embedded");
    let (soft, hard) = (file.with_file_name("soft.db"), file.with_file_name("hard.db"));
    std::os::unix::fs::symlink(&file, &soft).expect("links");
    std::fs::hard_link(&file, &hard).expect("links");
    let spelled = file.display().to_string().replace("ledger.db", "ledger%2Edb");
    let names = [soft.display().to_string(), hard.display().to_string(), spelled];
    for name in names {
        let second = super::lock(&format!("sqlite://{name}"));
        assert!(matches!(second, Err(Error::Served { .. })), "{name}");
    }
    drop(held);
    assert!(super::lock(&b.url).is_ok());
}

/// Tables and columns, as the database itself lists them.
pub(super) async fn columns_of(b: &Bench) -> Vec<String> {
    use sqlx::{Connection as _, Row as _};
    let mut names: Vec<String> = if b.folder.is_some() {
        let mut connection = sqlx::SqliteConnection::connect(&b.url).await.expect("opens");
        let sql = "SELECT m.name || '.' || c.name AS name FROM sqlite_master m, pragma_table_info(m.name) c
                   WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%' AND m.name NOT LIKE '_sqlx%'";
        let rows = sqlx::query(sql).fetch_all(&mut connection).await.expect("lists");
        rows.iter().map(|row| row.get(0)).collect()
    } else {
        let mut connection = sqlx::PgConnection::connect(&b.url).await.expect("opens");
        let sql = "SELECT table_name || '.' || column_name FROM information_schema.columns
                   WHERE table_schema = current_schema() AND table_name NOT LIKE '\\_sqlx%'";
        let rows = sqlx::query(sql).fetch_all(&mut connection).await.expect("lists");
        rows.iter().map(|row| row.get(0)).collect()
    };
    names.sort();
    names
}

#[tokio::test]
async fn both_engines_have_the_same_tables_and_columns() {
    let sqlite = Bench::sqlite().await;
    let here = columns_of(&sqlite).await;
    assert!(here.contains(&"facts.provider_message_id".to_owned()));
    if let Some(postgres) = Bench::postgres().await {
        assert_eq!(here, columns_of(&postgres).await);
    }
}

async fn an_examination_tells_the_schema_and_the_keys(b: Bench) {
    use crate::finding::Level;
    let level = |findings: &[crate::finding::Finding], check: &str| {
        findings.iter().find(|finding| finding.check == check).map(|finding| finding.level)
    };
    let findings = b.store.inspect().await.expect("reads");
    assert_eq!(level(&findings, "database.engine"), Some(Level::Good));
    assert_eq!(level(&findings, "database.schema"), Some(Level::Good));
    assert_eq!(level(&findings, "keys.match"), Some(Level::Warning), "none are registered");
    b.store.check_keys().await.expect("registers");
    let findings = b.store.inspect().await.expect("reads");
    assert_eq!(level(&findings, "keys.match"), Some(Level::Good));
    let env = Env { keys: Arc::new(Keys::generate(&SeededEntropy::new(8))), ..b.env.clone() };
    let other = super::open(&b.url, env).await.expect("opens");
    let findings = other.inspect().await.expect("reads");
    assert_eq!(level(&findings, "keys.match"), Some(Level::Bad));
}

const DAY: i64 = 86_400 * S;

async fn a_channel_that_was_left_out_is_the_one_that_was_the_default_then(b: Bench) {
    // As admission makes them: left out under the default sms; then under the default email.
    let first = Admission {
        content_hash: "left-out".into(),
        spelled_hash: Some("sms".into()),
        ..b.event(None, None)
    };
    assert!(matches!(b.admit(&first).await, Admitted::New(_)));
    let later =
        Admission { channel: Channel::Email, spelled_hash: Some("email".into()), ..first.clone() };
    assert!(matches!(b.admit(&later).await, Admitted::Replay(_)), "the default has changed");
    let spelled = |channel, hash: &str| Admission {
        channel,
        content_hash: hash.into(),
        spelled_hash: Some("left-out".into()),
        ..first.clone()
    };
    assert!(matches!(b.admit(&spelled(Channel::Sms, "sms")).await, Admitted::Replay(_)));
    let other = b.admit(&spelled(Channel::Email, "email")).await;
    assert_eq!(other, Admitted::Conflict("payload_mismatch"));
}

async fn several_writers_admit_each_racing_key_once(b: Bench) {
    use crate::batch::Batcher;
    let store = Arc::clone(&b.store);
    let run = move |group: Vec<Admission>| {
        let store = Arc::clone(&store);
        let admitted = async move { store.admit(&group).await };
        Box::pin(admitted) as std::pin::Pin<Box<dyn Future<Output = _> + Send>>
    };
    let writers = if b.is_sqlite() { 1 } else { 4 };
    let batcher = Batcher::start_many(4_096, 16, writers, Arc::new(run));
    let events: Vec<Admission> = (0..40).map(|_| b.event(None, None)).collect();
    let mut tasks = Vec::new();
    for copy in 0..10 {
        let mut own: Vec<Admission> = events.clone();
        // Each caller in another order, and with an id of its own as admission gives it.
        own.rotate_left(copy * 7 % 40);
        if copy % 2 == 1 {
            own.reverse();
        }
        for mut event in own {
            event.id = SystemEntropy.uuid(crate::clock::Clock::now(&b.clock));
            let batcher = batcher.clone();
            tasks.push(tokio::spawn(async move {
                (event.event_id.clone(), batcher.submit(event).await.expect("is answered"))
            }));
        }
    }
    let mut ids: HashMap<String, std::collections::BTreeSet<String>> = HashMap::new();
    let mut new = 0;
    for task in tasks {
        let (event_id, admitted) = task.await.expect("runs");
        let record = match admitted {
            Admitted::New(record) => {
                new += 1;
                record
            }
            Admitted::Replay(record) => record,
            other => panic!("{event_id}: {other:?}"),
        };
        ids.entry(event_id).or_default().insert(record.id);
    }
    assert_eq!((new, ids.len()), (40, 40));
    assert!(ids.values().all(|ids| ids.len() == 1), "{ids:?}");
    assert_eq!(b.count("SELECT COUNT(*) FROM records").await, 40);
    assert_eq!(b.count("SELECT COUNT(*) FROM outbox").await, 40);
}

async fn a_restore_makes_unknown_what_may_have_been_sent(b: Bench) {
    let unknown = b.admitted().await;
    b.called(timeout()).await;
    let sent = b.admitted().await;
    b.called(accepted()).await;
    let calling = b.admitted().await;
    let in_hand = b.claim().await;
    b.start(&in_hand).await;
    let claimed = b.admitted().await;
    let claim = b.claim().await;
    let waiting = b.admitted().await;
    let lost_from = crate::clock::Clock::now(&b.clock);
    b.later(1);
    let done = b.store.restore_complete(lost_from, DAY, "cli").await.expect("completes");
    assert_eq!((done.accepted, done.dispatching, done.unknown), (1, 2, 1));
    assert_eq!((done.epoch.epoch, done.is_repeat), (2, false));
    for id in [&calling.id, &claimed.id, &waiting.id] {
        b.is(id, State::DispatchUnknown, Reason::Restored).await;
    }
    b.is(&unknown.id, State::DispatchUnknown, Reason::Timeout).await;
    b.is(&sent.id, State::Sent, Reason::ProviderAccepted).await;
    assert_eq!(b.count("SELECT COUNT(*) FROM outbox").await, 0);
    assert_eq!(b.start(&claim).await, Started::Stale);
    // Again: the same epoch, nothing left to do.
    let again = b.store.restore_complete(lost_from, DAY, "cli").await.expect("completes");
    assert_eq!((again.accepted, again.dispatching, again.unknown), (0, 0, 0));
    assert_eq!((again.is_repeat, &again.epoch), (true, &done.epoch));
    assert_eq!(b.store.epoch().await.expect("reads"), Some(done.epoch));

    b.later(3);
    let tasks = b.store.claim_reads(10, 60 * S).await.expect("claims reads");
    for task in &tasks {
        let numbers: Vec<u32> = task.ids.iter().map(|(number, _)| *number).collect();
        let whole: Vec<u32> = if task.id == sent.id { vec![1] } else { (1..=20).collect() };
        assert_eq!(numbers, whole);
        assert!(task.since <= lost_from);
    }
    assert_eq!(tasks.len(), 5);
}

async fn a_restored_record_is_sent_only_when_every_id_is_absent_twice(b: Bench) {
    let event = b.admitted().await;
    let lost_from = crate::clock::Clock::now(&b.clock);
    b.store.restore_complete(lost_from, DAY, "cli").await.expect("completes");
    // An answer about one id alone shows nothing, however often it comes.
    for _ in 0..3 {
        b.later(70);
        let task = b.store.claim_reads(1, S).await.expect("claims reads").remove(0);
        let asked_at = crate::clock::Clock::now(&b.clock);
        let answer = ReadAnswer {
            id: task.id,
            attempt: task.attempt,
            calls: task.calls,
            is_whole: false,
            found_at: None,
            asked_at,
            answer: Lookup::Absent,
        };
        b.store.record_reads(&[answer]).await.expect("records");
    }
    b.is(&event.id, State::DispatchUnknown, Reason::Restored).await;
    for _ in 0..2 {
        b.later(70);
        b.read_due(Lookup::Absent).await;
    }
    b.is(&event.id, State::Accepted, Reason::ReconciledAbsent).await;
    b.called(accepted()).await;
    b.is(&event.id, State::Sent, Reason::ProviderAccepted).await;
    assert_eq!(b.calls(&event.id).await, 1);
    let page = b.store.event_page(&event.id).await.expect("reads").expect("exists");
    let proof = &page.facts[page.calls[0].authorised_by as usize - 1];
    assert_eq!(proof.reason, Some(Reason::ReconciledAbsent));
}

async fn a_new_event_is_read_before_its_first_call_while_an_epoch_is_guarded(b: Bench) {
    let lost_from = crate::clock::Clock::now(&b.clock);
    b.later(1);
    b.store.restore_complete(lost_from, 100 * S, "cli").await.expect("completes");
    let event = b.admitted().await;
    assert!(b.claims(5).await.is_empty());
    b.is(&event.id, State::DispatchUnknown, Reason::Restored).await;
    assert_eq!(b.count("SELECT COUNT(*) FROM outbox").await, 0);
    b.later(3);
    let seen = Seen::Accepted;
    let task = b.store.claim_reads(1, S).await.expect("claims reads").remove(0);
    let (attempt, attempt_id) = task.ids[1].clone();
    assert_eq!(attempt_id, b.env.keys.attempt_id(&event.event_id, 2));
    let answer = ReadAnswer {
        id: task.id,
        attempt,
        calls: task.calls,
        is_whole: true,
        found_at: None,
        asked_at: crate::clock::Clock::now(&b.clock),
        answer: Lookup::Found { seen, message_id: Some("m-9".into()) },
    };
    b.store.record_reads(&[answer]).await.expect("records");
    b.is(&event.id, State::Sent, Reason::ReconciledFound).await;
    // Its delivery is asked for by the id that was found.
    b.later(3);
    let task = b.store.claim_reads(1, S).await.expect("claims reads").remove(0);
    assert_eq!(task.ids, [(2, attempt_id)]);
    // Once it is over, a new event is claimed at once.
    b.later(100);
    b.admitted().await;
    assert_eq!(b.claims(5).await.len(), 1);
}

async fn a_message_found_at_another_provider_of_the_route_is_that_ones(b: Bench) {
    let event = b.admitted().await;
    let lost_from = crate::clock::Clock::now(&b.clock);
    b.store.restore_complete(lost_from, DAY, "cli").await.expect("completes");
    b.later(3);
    let task = b.store.claim_reads(1, S).await.expect("claims reads").remove(0);
    let answer = ReadAnswer {
        id: task.id,
        attempt: 2,
        calls: task.calls,
        is_whole: true,
        found_at: Some("keyed".into()),
        asked_at: crate::clock::Clock::now(&b.clock),
        answer: Lookup::Found { seen: Seen::Accepted, message_id: None },
    };
    b.store.record_reads(&[answer]).await.expect("records");
    b.is(&event.id, State::Sent, Reason::ReconciledFound).await;
    let facts = b.store.timeline(&event.id).await.expect("reads").expect("exists");
    assert_eq!(facts.last().and_then(|fact| fact.provider.clone()).as_deref(), Some("keyed"));
}

async fn a_marker_meets_a_restore_that_came_after_its_claim(b: Bench) {
    let event = b.admitted().await;
    let claim = b.claim().await;
    let lost_from = crate::clock::Clock::now(&b.clock);
    // The epoch alone, as another process sees it between its commit and the batches after it.
    let epoch = format!(
        "INSERT INTO epochs (epoch, opened_at, lost_from, guarded_until, actor)
         VALUES (2, {0}, {0}, {1}, 'cli')",
        lost_from.micros(),
        lost_from.plus(DAY).micros()
    );
    assert!(b.force(epoch).await);
    assert_eq!(b.start(&claim).await, Started::Stopped(State::DispatchUnknown));
    b.is(&event.id, State::DispatchUnknown, Reason::Restored).await;
    assert_eq!(b.calls(&event.id).await, 0);
}

async fn a_callback_about_a_forgotten_attempt_finds_its_record(b: Bench) {
    let event = b.admitted().await;
    let receipt = |attempt, message: &str| Evidence {
        provider: "demo".into(),
        receipt: Receipt {
            attempt_id: Some(b.env.keys.attempt_id(&event.event_id, attempt)),
            message_id: Some(message.into()),
            seen: Seen::Accepted,
            cause: None,
            at: None,
        },
    };
    let before = b.store.weigh(&[receipt(1, "m-1")]).await.expect("weighs");
    assert_eq!(before, [Weighed::Unmatched]);
    let lost_from = crate::clock::Clock::now(&b.clock);
    b.store.restore_complete(lost_from, DAY, "cli").await.expect("completes");
    let weighed = b.store.weigh(&[receipt(1, "+12025550123")]).await.expect("weighs");
    assert_eq!(weighed, [Weighed::Kept]);
    b.is(&event.id, State::Sent, Reason::ReconciledFound).await;
    let named = "SELECT COUNT(*) FROM facts WHERE provider_message_id IS NOT NULL";
    assert_eq!(b.count(named).await, 0, "a number is not kept");
}

async fn a_duty_has_one_holder_and_a_fence_that_grows(b: Bench) {
    let other = b.beside(|_| {}).await;
    let mine = b.store.take_duty("sweep:1", "p1", 10 * S).await.expect("asks").expect("is free");
    assert_eq!(other.take_duty("sweep:1", "p2", 10 * S).await.expect("asks"), None);
    assert!(other.take_duty("sessions", "p2", 10 * S).await.expect("asks").is_some());
    b.later(8);
    assert_eq!(b.store.take_duty("sweep:1", "p1", 10 * S).await.expect("renews"), Some(mine));
    b.later(8);
    assert_eq!(other.take_duty("sweep:1", "p2", 10 * S).await.expect("asks"), None, "was renewed");
    b.later(3);
    let theirs = other.take_duty("sweep:1", "p2", 10 * S).await.expect("asks").expect("is over");
    assert!(theirs.fence > mine.fence);
    assert_eq!(b.store.take_duty("sweep:1", "p1", 10 * S).await.expect("asks"), None);
    other.leave_duties("p2").await.expect("leaves");
    assert!(b.store.take_duty("sweep:1", "p1", 10 * S).await.expect("asks").is_some());
    let duties = b.store.duties().await.expect("lists");
    let names: Vec<&str> = duties.iter().map(|duty| duty.name.as_str()).collect();
    assert_eq!(names, ["sessions", "sweep:1"]);
}

async fn of_racing_processes_one_takes_a_duty(b: Bench) {
    let takers = (0..8).map(|n| {
        let store = Arc::clone(&b.store);
        tokio::spawn(async move { store.take_duty("sweep:1", &format!("p{n}"), 10 * S).await })
    });
    let taken = futures::future::join_all(takers.collect::<Vec<_>>()).await;
    let held = taken
        .into_iter()
        .filter(|taken| taken.as_ref().expect("runs").as_ref().expect("answers").is_some());
    assert_eq!(held.count(), 1);
}

async fn a_holder_that_was_followed_writes_nothing(b: Bench) {
    let now = crate::clock::Clock::now(&b.clock);
    b.store.save_session("h", None, "data", now.plus(S)).await.expect("saves");
    let old = b.store.take_duty("d", "p1", S).await.expect("asks").expect("is free");
    b.later(2);
    let new = b.store.take_duty("d", "p2", S).await.expect("asks").expect("is over");
    let purged = b.store.purge_sessions(old).await;
    assert!(matches!(purged, Err(Error::DutyLost { name: "d" })));
    assert_eq!(b.count("SELECT COUNT(*) FROM sessions").await, 1);
    assert_eq!(b.store.purge_sessions(new).await.expect("purges"), 1);
    b.later(2);
    // Over, but nobody has followed: its work is still the only one.
    assert_eq!(b.store.purge_sessions(new).await.expect("purges"), 0);
}

macro_rules! on_both_engines {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test] async fn $name() { super::$name(super::Bench::sqlite().await).await; })+
        }
        mod postgres {
            $(#[tokio::test] async fn $name() {
                // Without a server there is nothing to run against; `make test` always names one.
                if let Some(bench) = super::Bench::postgres().await {
                    super::$name(bench).await;
                }
            })+
        }
    };
}

on_both_engines! {
    an_event_is_admitted_once_with_its_outbox_row_and_its_fact,
    a_group_folds_its_own_duplicates,
    key_and_event_belong_together_in_both_directions,
    a_window_converges_and_its_conflicts_are_told,
    times_are_judged_only_for_what_is_new,
    eight_workers_claim_each_row_once,
    a_sent_call_is_on_the_record_and_its_row,
    a_stale_fence_changes_nothing,
    a_late_answer_is_evidence_for_its_own_attempt,
    unknown_is_read_and_found,
    confirmed_absence_allows_exactly_one_more_call,
    a_callback_resolves_a_lost_answer_and_is_kept_once,
    a_replay_repeats_the_same_bytes_or_nothing,
    after_a_freeze_no_marker_commits,
    frozen_events_expire_as_frozen_and_the_rest_is_paced,
    an_expiry_after_the_freeze_is_over_is_an_ordinary_one,
    the_database_refuses_what_the_rules_forbid,
    the_transitions_of_the_database_are_those_of_the_rules,
    settled_records_lose_their_handles_and_keep_their_answers,
    a_poisoned_row_does_not_hold_back_a_good_one,
    a_paused_provider_is_left_alone_until_its_time,
    a_cancelled_event_is_never_sent_and_cancelling_repeats,
    rows_of_one_commit_do_not_vanish_between_pages,
    every_page_can_be_read,
    accounts_sessions_and_throttle_are_kept,
    a_worker_claims_only_what_it_understands,
    a_configuration_is_in_force_until_its_last_process_is_silent,
    a_freeze_waits_for_the_marker_that_is_under_way,
    dead_replays_do_not_stand_before_live_ones,
    freezing_again_does_not_quicken_the_release,
    another_provider_is_tried_only_after_a_proof_that_nothing_was_sent,
    nobody_else_is_tried_from_the_unknown,
    a_stopped_provider_is_routed_around_and_a_frozen_one_is_not,
    look_ups_are_paid_from_one_bucket_over_all_processes,
    a_callback_that_meets_nobody_is_kept_as_facts_and_matched_when_its_message_is_known,
    a_trial_is_kept_with_its_steps_and_the_newest_is_shown,
    a_number_under_another_name_is_not_kept,
    a_channel_that_was_left_out_is_the_one_that_was_the_default_then,
    several_writers_admit_each_racing_key_once,
    an_examination_tells_the_schema_and_the_keys,
    a_restore_makes_unknown_what_may_have_been_sent,
    a_restored_record_is_sent_only_when_every_id_is_absent_twice,
    a_new_event_is_read_before_its_first_call_while_an_epoch_is_guarded,
    a_marker_meets_a_restore_that_came_after_its_claim,
    a_message_found_at_another_provider_of_the_route_is_that_ones,
    a_callback_about_a_forgotten_attempt_finds_its_record,
    a_duty_has_one_holder_and_a_fence_that_grows,
    of_racing_processes_one_takes_a_duty,
    a_holder_that_was_followed_writes_nothing,
}

mod log;
mod policy;
mod retention;
mod tokens;

mod watch;
