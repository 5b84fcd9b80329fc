//! Retention: nothing leaves before its time, and what has left is never sent again; on both engines.

use super::*;
use crate::store::{Cutoffs, LegalHold, Purged};

const DAY: u64 = 86_400;

impl Bench {
    /// Gives every fact that waits its place in the log, as the sealer does.
    async fn seal(&self) {
        let sql = "INSERT INTO log_leaves (log_index, fact_no, leaf_hash)
             SELECT (SELECT COALESCE(MAX(log_index) + 1, 0) FROM log_leaves)
                 + ROW_NUMBER() OVER (ORDER BY fact_no) - 1, fact_no, 'hash' FROM log_pending";
        assert!(self.force(sql.to_owned()).await);
        assert!(self.force("DELETE FROM log_pending".to_owned()).await);
    }

    fn over(&self, events: u64, operators: Option<u64>) -> Cutoffs {
        let now = crate::clock::Clock::now(&self.clock);
        let before = |days: u64| now.plus(-i64::try_from(days * DAY).expect("small") * S);
        Cutoffs {
            settled_before: Some(before(events)),
            expired_before: before(7),
            operators_before: operators.map(before),
        }
    }

    /// Runs the retention until it has nothing more to do; seals whenever it waits for that.
    async fn purge(&self, cutoffs: Cutoffs) -> usize {
        let duty = self.store.take_duty("retention", "p1", 600 * S).await.expect("answers");
        let hold = duty.expect("is free");
        let mut removed = 0;
        for _ in 0..100 {
            match self.store.purge(hold, cutoffs).await.expect("purges") {
                Purged::Nothing => return removed,
                Purged::Named => self.seal().await,
                Purged::Some(events) => removed += events,
            }
        }
        panic!("the purge does not end")
    }

    async fn sent(&self, event: &Admission) {
        assert!(matches!(self.admit(event).await, Admitted::New(_)));
        let claim = self.claim().await;
        self.start(&claim).await;
        self.end(&claim, accepted()).await;
        self.later(700);
        self.store.sweep(10).await.expect("sweeps");
    }
}

async fn what_is_over_leaves_and_its_key_window_and_token_stay_taken(b: Bench) {
    let event = Admission { token_id: Some("t1".to_owned()), ..b.event(Some("s1"), Some("w1")) };
    b.sent(&event).await;
    b.seal().await;
    // Settled long ago for a short policy, but a caller may still retry it.
    b.later(3 * DAY);
    assert_eq!(b.purge(b.over(1, None)).await, 0);
    b.later(5 * DAY);
    let due = b.store.due_for_purge(b.over(1, None)).await.expect("reads");
    assert_eq!((due.events.count, due.held.count), (1, 0));
    let leaves = b.count("SELECT COUNT(*) FROM log_leaves").await;
    assert_eq!(b.purge(b.over(1, None)).await, 1);
    for table in [
        "SELECT COUNT(*) FROM records",
        "SELECT COUNT(*) FROM calls",
        "SELECT COUNT(*) FROM attempts",
        "SELECT COUNT(*) FROM facts WHERE id IS NOT NULL",
    ] {
        assert_eq!(b.count(table).await, 0, "{table}");
    }
    assert!(b.count("SELECT COUNT(*) FROM log_leaves").await > leaves, "hashes stay");
    assert_eq!(b.count("SELECT COUNT(*) FROM facts WHERE kind = 'purge'").await, 1);
    assert_eq!(b.count("SELECT COUNT(*) FROM log_purges WHERE done_at IS NULL").await, 0);
    // Late retries, in every way in which they could become a second message.
    assert!(matches!(b.admit(&event).await, Admitted::Purged));
    let other = b.event(Some("s1"), Some("w1"));
    let same_window = Admission {
        token_id: event.token_id.clone(),
        destination_hash: event.destination_hash.clone(),
        reset_hash: event.reset_hash.clone(),
        ..other.clone()
    };
    assert!(matches!(b.admit(&same_window).await, Admitted::Purged));
    let answer = b.admit(&Admission { token_id: Some("t2".to_owned()), ..other }).await;
    assert!(matches!(answer, Admitted::Conflict("request_window_conflict")), "{answer:?}");
    let elsewhere = Admission { token_id: event.token_id.clone(), ..b.event(None, None) };
    assert!(matches!(b.admit(&elsewhere).await, Admitted::Conflict("token_conflict")));
    let other_content = Admission { content_hash: "other".to_owned(), ..event };
    assert!(matches!(b.admit(&other_content).await, Admitted::Conflict("payload_mismatch")));
    assert_eq!(b.count("SELECT COUNT(*) FROM records").await, 0, "nothing is admitted again");
}

async fn what_is_held_or_not_sealed_or_open_stays(b: Bench) {
    let held = b.event(Some("s-held"), None);
    b.sent(&held).await;
    let free = b.event(Some("s-free"), None);
    b.sent(&free).await;
    let hold = LegalHold {
        id: String::new(),
        seller_id: Some("s-held".to_owned()),
        from: None,
        to: None,
        actor: "cli".to_owned(),
        reason: "CASE-1".to_owned(),
        since: crate::clock::Clock::now(&b.clock),
    };
    let id = b.store.hold(&hold).await.expect("holds");
    b.later(30 * DAY);
    // Nothing is sealed yet, so no range of the log can be named.
    assert_eq!(b.purge(b.over(1, None)).await, 0);
    b.seal().await;
    let due = b.store.due_for_purge(b.over(1, None)).await.expect("reads");
    assert_eq!((due.events.count, due.held.count), (1, 1));
    assert_eq!(b.purge(b.over(1, None)).await, 1);
    assert!(b.store.timeline(&held.id).await.expect("reads").is_some());
    assert!(b.store.timeline(&free.id).await.expect("reads").is_none());
    assert!(b.store.end_hold(&id, "cli", "over").await.expect("ends"));
    assert!(!b.store.end_hold(&id, "cli", "over").await.expect("ends"), "ended once");
    assert!(b.store.holds().await.expect("reads").is_empty());
    b.seal().await;
    assert_eq!(b.purge(b.over(1, None)).await, 1);
    // Not by hand either, whatever the time.
    let open = b.admitted().await;
    b.seal().await;
    assert!(!b.force(format!("DELETE FROM facts WHERE id = '{}'", open.id)).await);
    assert!(!b.force(format!("DELETE FROM records WHERE id = '{}'", open.id)).await);
    assert_eq!(b.purge(b.over(0, None)).await, 0, "an open event never leaves");
}

async fn a_hold_that_comes_after_the_naming_still_keeps(b: Bench) {
    let event = b.event(Some("s1"), None);
    b.sent(&event).await;
    b.later(30 * DAY);
    b.seal().await;
    let duty = b.store.take_duty("retention", "p1", 600 * S).await.expect("answers");
    let duty = duty.expect("is free");
    let cutoffs = b.over(1, None);
    assert_eq!(b.store.purge(duty, cutoffs).await.expect("names"), Purged::Named);
    assert_eq!(b.store.purge(duty, cutoffs).await.expect("waits"), Purged::Named, "not sealed");
    let hold = LegalHold {
        id: String::new(),
        seller_id: Some("s1".to_owned()),
        from: None,
        to: None,
        actor: "cli".to_owned(),
        reason: "CASE-1".to_owned(),
        since: crate::clock::Clock::now(&b.clock),
    };
    b.store.hold(&hold).await.expect("holds");
    b.seal().await;
    assert_eq!(b.store.purge(duty, cutoffs).await.expect("closes"), Purged::Some(0));
    assert!(b.store.timeline(&event.id).await.expect("reads").is_some());
    // The range is closed: what was kept in it is as safe as before.
    assert!(!b.force(format!("DELETE FROM facts WHERE id = '{}'", event.id)).await);
}

async fn operators_acts_leave_by_their_own_policy(b: Bench) {
    let detail = app::model::Detail::default().code("what", "find");
    b.store.note(FactKind::Operator, "user:1", detail.clone()).await.expect("notes");
    b.later(30 * DAY);
    b.store.note(FactKind::Operator, "user:1", detail).await.expect("notes");
    b.seal().await;
    let mine = "SELECT COUNT(*) FROM facts WHERE kind = 'operator' AND actor = 'user:1'";
    assert_eq!(b.purge(b.over(1, None)).await, 0);
    assert_eq!(b.count(mine).await, 2, "kept for ever unless configured");
    b.purge(b.over(1, Some(10))).await;
    assert_eq!(b.count(mine).await, 1);
}

on_both_engines! {
    what_is_over_leaves_and_its_key_window_and_token_stay_taken,
    what_is_held_or_not_sealed_or_open_stays,
    a_hold_that_comes_after_the_naming_still_keeps,
    operators_acts_leave_by_their_own_policy,
}
