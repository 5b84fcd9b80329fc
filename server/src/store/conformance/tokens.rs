//! Tokens: used once, replaced by the later message, never both; on both engines.

use super::*;
use crate::store::{Consume, Consumed};

impl Bench {
    /// Admits an event of a seller with this token.
    async fn with_token(&self, seller: &str, token: &str) -> Admission {
        let event =
            Admission { token_id: Some(token.to_owned()), ..self.event(Some(seller), None) };
        assert!(matches!(self.admit(&event).await, Admitted::New(_)));
        self.later(1);
        event
    }

    async fn consume(&self, token: &str, consume_id: Option<&str>) -> Consumed {
        self.store.consume(&consume(token, consume_id)).await.expect("answers")
    }

    fn at(&self, instant: Stamp) {
        self.clock.jump(instant.since(crate::clock::Clock::now(&self.clock)));
    }

    async fn uses(&self) -> i64 {
        self.count("SELECT COUNT(*) FROM token_uses").await
    }

    /// Kind, reason and answer of the facts about a record's token.
    async fn token_facts(&self, id: &str) -> Vec<String> {
        let facts = self.store.timeline(id).await.expect("reads").expect("exists");
        facts
            .iter()
            .filter(|fact| fact.kind == FactKind::Token)
            .map(|fact| match fact.reason {
                Some(reason) => reason.to_string(),
                None => format!("asked:{}", fact.detail.get_code("answer").unwrap_or_default()),
            })
            .collect()
    }
}

fn consume(token: &str, consume_id: Option<&str>) -> Consume {
    Consume {
        token_id: token.to_owned(),
        consume_hash: consume_id.map(str::to_owned),
        client_id: "c1".to_owned(),
    }
}

fn is_done(consumed: &Consumed) -> bool {
    matches!(consumed, Consumed::Done { is_replay: false, .. })
}

async fn a_token_is_used_once_and_its_lost_answer_can_be_had_again(b: Bench) {
    let event = b.with_token("s1", "t1").await;
    let Consumed::Done { id, event_id, seller_id, consumed_at, is_replay } =
        b.consume("t1", Some("use-1")).await
    else {
        panic!("not consumed")
    };
    assert_eq!((&id, &event_id, seller_id.as_deref()), (&event.id, &event.event_id, Some("s1")));
    assert!(!is_replay);
    b.later(5);
    let again = b.consume("t1", Some("use-1")).await;
    let want =
        Consumed::Done { id, event_id, seller_id: Some("s1".into()), consumed_at, is_replay: true };
    assert_eq!(again, want);
    assert_eq!(b.consume("t1", Some("use-2")).await, Consumed::Used);
    assert_eq!(b.consume("t1", None).await, Consumed::Used);
    assert_eq!(b.consume("t2", None).await, Consumed::Unknown);
    assert_eq!(b.uses().await, 1);
    assert_eq!(
        b.token_facts(&event.id).await,
        ["token_consumed", "asked:repeated", "asked:token_consumed", "asked:token_consumed"]
    );
    // It waited: a used link is not sent.
    b.is(&event.id, State::FailedFinal, Reason::TokenConsumed).await;
    assert!(b.claims(10).await.is_empty());
}

async fn a_token_works_until_its_very_last_microsecond(b: Bench) {
    let first = b.with_token("s1", "t1").await;
    let second = b.with_token("s2", "t2").await;
    b.at(first.expires_at.plus(-1));
    assert!(is_done(&b.consume("t1", None).await));
    b.at(second.expires_at.plus(1));
    assert_eq!(b.consume("t2", None).await, Consumed::Expired);
    b.at(second.expires_at);
    assert_eq!(b.consume("t2", None).await, Consumed::Expired);
    // Used comes before expired.
    assert_eq!(b.consume("t1", None).await, Consumed::Used);
}

async fn a_later_message_replaces_the_links_before_it_when_it_goes_out(b: Bench) {
    let first = b.with_token("s1", "t1").await;
    let claim = b.called(timeout()).await;
    assert_eq!(claim.id, first.id);
    let second = b.with_token("s1", "t2").await;
    let stranger = b.with_token("s2", "t3").await;
    // Not before: until then the earlier link must work.
    let claims = b.claims(10).await;
    for claim in &claims {
        assert!(matches!(b.start(claim).await, Started::Call { .. }));
    }
    assert_eq!(b.token_facts(&first.id).await, Vec::<String>::new());
    for claim in &claims {
        b.end(claim, accepted()).await;
    }
    b.is(&second.id, State::Sent, Reason::ProviderAccepted).await;
    assert_eq!(b.token_facts(&first.id).await, ["token_superseded"]);
    assert_eq!(b.token_facts(&stranger.id).await, Vec::<String>::new());
    assert_eq!(b.consume("t1", None).await, Consumed::Superseded);
    // The older one is found late: it replaces nothing.
    b.later(2);
    b.read_due(Lookup::Found { seen: Seen::Accepted, message_id: None }).await;
    b.is(&first.id, State::Sent, Reason::ReconciledFound).await;
    assert_eq!(b.token_facts(&second.id).await, Vec::<String>::new());
    assert!(is_done(&b.consume("t2", None).await));
    let facts = b.store.timeline(&first.id).await.unwrap().unwrap();
    let by = facts.iter().find(|fact| fact.reason == Some(Reason::TokenSuperseded)).unwrap();
    assert_eq!(by.detail.get_code("by"), Some(second.id.as_str()));
    assert_eq!(by.token_id.as_deref(), Some("t1"));
}

async fn using_one_replaces_all_others_and_stops_what_waits(b: Bench) {
    let first = b.with_token("s1", "t1").await;
    let second = b.with_token("s1", "t2").await;
    let third = b.with_token("s1", "t3").await;
    let other = Admission {
        token_id: Some("t4".into()),
        purpose: "email_change".into(),
        ..b.event(Some("s1"), None)
    };
    b.admit(&other).await;
    assert!(is_done(&b.consume("t2", None).await));
    for event in [&first, &third] {
        b.is(&event.id, State::FailedFinal, Reason::TokenSuperseded).await;
        assert_eq!(b.token_facts(&event.id).await, ["token_superseded"]);
    }
    b.is(&second.id, State::FailedFinal, Reason::TokenConsumed).await;
    assert_eq!(b.consume("t1", None).await, Consumed::Superseded);
    assert_eq!(b.consume("t3", Some("x")).await, Consumed::Superseded);
    // Another purpose is another account of links.
    b.is(&other.id, State::Accepted, Reason::Admitted).await;
    assert!(is_done(&b.consume("t4", None).await));
    // And what comes after the use is a new link.
    b.with_token("s1", "t5").await;
    assert!(is_done(&b.consume("t5", None).await));
}

async fn cancelling_takes_the_link_back(b: Bench) {
    let event = b.with_token("s1", "t1").await;
    let (record, done) = b.store.cancel(&event.id, "client:c1").await.unwrap().unwrap();
    assert!(done && record.reason == Reason::Cancelled);
    assert_eq!(b.token_facts(&event.id).await, ["token_superseded"]);
    assert_eq!(b.consume("t1", None).await, Consumed::Superseded);
    b.at(event.expires_at.plus(1));
    assert_eq!(b.consume("t1", None).await, Consumed::Superseded);
}

async fn an_unknown_whose_link_was_used_is_never_sent_again(b: Bench) {
    let event = b.with_token("s1", "t1").await;
    b.called(timeout()).await;
    assert!(is_done(&b.consume("t1", None).await));
    b.is(&event.id, State::DispatchUnknown, Reason::Timeout).await;
    b.later(3);
    b.read_due(Lookup::Absent).await;
    b.later(2);
    b.read_due(Lookup::Absent).await;
    b.is(&event.id, State::FailedFinal, Reason::TokenConsumed).await;
    let facts = b.store.timeline(&event.id).await.unwrap().unwrap();
    assert!(facts.iter().any(|fact| fact.reason == Some(Reason::ReconciledAbsent)));
    assert_eq!(b.calls(&event.id).await, 1);
    assert!(b.claims(10).await.is_empty());

    // Nor repeated, where the provider would honour the key.
    let event = Admission {
        provider: "keyed".into(),
        token_id: Some("t2".into()),
        ..b.event(Some("s2"), None)
    };
    b.admit(&event).await;
    b.called(timeout()).await;
    assert!(is_done(&b.consume("t2", None).await));
    b.later(30);
    assert!(b.claims(10).await.is_empty());
    assert_eq!(b.calls(&event.id).await, 1);
}

async fn a_claim_whose_link_was_used_meanwhile_makes_no_call(b: Bench) {
    let event = b.with_token("s1", "t1").await;
    let claim = b.claim().await;
    assert!(is_done(&b.consume("t1", None).await));
    assert_eq!(b.start(&claim).await, Started::Stale);
    b.is(&event.id, State::FailedFinal, Reason::TokenConsumed).await;
    assert_eq!(b.calls(&event.id).await, 0);
    // A call that is under way ends as it ends; a proof that it sent nothing leads to no second one.
    let event = b.with_token("s2", "t2").await;
    let claim = b.claim().await;
    b.start(&claim).await;
    assert!(is_done(&b.consume("t2", None).await));
    b.end(&claim, not_sent()).await;
    b.is(&event.id, State::FailedFinal, Reason::TokenConsumed).await;
    assert_eq!(b.calls(&event.id).await, 1);
}

async fn two_hundred_racing_uses_have_one_winner(b: Bench) {
    b.with_token("s1", "t1").await;
    let mut tasks = Vec::new();
    for n in 0..200 {
        let store = Arc::clone(&b.store);
        tasks.push(tokio::spawn(async move {
            let name = format!("use-{n}");
            let asked = consume("t1", (n % 2 == 0).then_some(name.as_str()));
            store.consume(&asked).await
        }));
    }
    let mut winners = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(Consumed::Done { is_replay, .. }) => {
                assert!(!is_replay);
                winners += 1;
            }
            Ok(other) => assert_eq!(other, Consumed::Used),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((winners, b.uses().await), (1, 1));
}

async fn a_use_racing_with_another_or_with_a_replacement_never_gives_two(b: Bench) {
    for round in 0..12 {
        let seller = format!("seller-{round}");
        let (one, two) = (format!("a-{round}"), format!("b-{round}"));
        let first = b.with_token(&seller, &one).await;
        let second = b.with_token(&seller, &two).await;
        let mut claims = b.claims(10).await;
        claims.retain(|claim| claim.id == second.id);
        let claim = claims.pop().expect("claimed");
        b.start(&claim).await;
        let (s1, s2, s3) = (Arc::clone(&b.store), Arc::clone(&b.store), Arc::clone(&b.store));
        let ended_at = crate::clock::Clock::now(&b.clock);
        let end = End {
            id: claim.id.clone(),
            fence: claim.fence,
            attempt: 1,
            verdict: accepted(),
            ended_at,
        };
        let (c1, c2) = (consume(&one, None), consume(&two, None));
        let (r1, r2, ended) = tokio::join!(
            tokio::spawn(async move { s1.consume(&c1).await }),
            tokio::spawn(async move { s2.consume(&c2).await }),
            tokio::spawn(async move { s3.end(&[end]).await }),
        );
        let (r1, r2) = (r1.unwrap().expect("answers"), r2.unwrap().expect("answers"));
        ended.unwrap().expect("ends");
        assert!(!(is_done(&r1) && is_done(&r2)), "both were used");
        // Whatever the order: what was used stays used, and the other is dead for good.
        let (a, b2) = (b.consume(&one, None).await, b.consume(&two, None).await);
        if is_done(&r1) {
            assert_eq!((a, b2), (Consumed::Used, Consumed::Superseded));
        } else {
            assert_eq!(a, Consumed::Superseded, "{r1:?}");
            assert!(is_done(&r2) && b2 == Consumed::Used, "{r2:?}");
        }
        let uses = b.count("SELECT COUNT(*) FROM token_uses").await;
        assert_eq!(uses, round + 1);
        assert!(b.token_facts(&first.id).await.len() <= 3);
    }
}

async fn the_database_keeps_a_used_token_used(b: Bench) {
    let event = b.with_token("s1", "t1").await;
    b.consume("t1", None).await;
    for sql in [
        "UPDATE records SET token_state = 'live'",
        "UPDATE records SET token_state = 'superseded'",
        "UPDATE token_uses SET consume_hash = 'x'",
    ] {
        assert!(!b.force(sql.to_owned()).await, "{sql}");
    }
    let twice = format!(
        "INSERT INTO token_uses (token_id, record_id, client_id, consumed_at) VALUES ('t1', '{}', 'c', 1)",
        event.id
    );
    assert!(!b.force(twice).await);
}

async fn refusals_are_facts_within_their_limit(b: Bench) {
    let event = b.with_token("s1", "t1").await;
    b.consume("t1", None).await;
    for _ in 0..30 {
        b.consume("t1", None).await;
    }
    assert_eq!(b.token_facts(&event.id).await.len(), 21);
    b.later(61);
    b.consume("t1", None).await;
    let facts = b.store.timeline(&event.id).await.unwrap().unwrap();
    assert_eq!(facts.last().and_then(|fact| fact.detail.get_number("count")), Some(11));
}

on_both_engines! {
    a_token_is_used_once_and_its_lost_answer_can_be_had_again,
    a_token_works_until_its_very_last_microsecond,
    a_later_message_replaces_the_links_before_it_when_it_goes_out,
    using_one_replaces_all_others_and_stops_what_waits,
    cancelling_takes_the_link_back,
    an_unknown_whose_link_was_used_is_never_sent_again,
    a_claim_whose_link_was_used_meanwhile_makes_no_call,
    two_hundred_racing_uses_have_one_winner,
    a_use_racing_with_another_or_with_a_replacement_never_gives_two,
    the_database_keeps_a_used_token_used,
    refusals_are_facts_within_their_limit,
}
