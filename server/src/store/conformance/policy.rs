//! Windows, limits and the rules for text messages; on both engines and over two processes.

use super::*;
use crate::policy::breaker::Budget;
use crate::policy::{AfterUnknown, Limit, Place, Scope, SendingRules};

fn limited(scope: Scope, text: &str) -> SendingRules {
    let mut sending = SendingRules::default();
    sending.limits.add(scope, Limit::parse(text).expect("a limit"));
    sending
}

fn place(country: &str, prefix: &str) -> Option<Place> {
    Some(Place { country: country.into(), prefix: prefix.into(), is_blocked: false })
}

async fn admit_at(store: &Arc<dyn Store>, event: &Admission) -> Admitted {
    store.admit(std::slice::from_ref(event)).await.expect("admits").pop().expect("one answer")
}

impl Bench {
    async fn with_rules(&self, sending: SendingRules) -> Arc<dyn Store> {
        self.beside(|rules| rules.sending = sending).await
    }

    async fn answers(&self, id: &str, kind: FactKind) -> Vec<String> {
        let facts = self.store.timeline(id).await.expect("reads").expect("exists");
        facts
            .iter()
            .filter(|fact| fact.kind == kind)
            .map(|fact| fact.detail.get_code("answer").unwrap_or("linked").to_owned())
            .collect()
    }
}

async fn requests_of_one_seller_are_linked_both_ways(b: Bench) {
    let first = b.event(Some("s1"), Some("w1"));
    b.admit(&first).await;
    b.later(1);
    // Two of one group see each other too.
    let (second, third) = (b.event(Some("s1"), Some("w2")), b.event(Some("s1"), Some("w3")));
    let other = Admission { purpose: "email_change".into(), ..b.event(Some("s1"), None) };
    b.store.admit(&[second.clone(), other.clone(), third.clone()]).await.expect("admits");
    let linked = |id: String| {
        let store = Arc::clone(&b.store);
        async move {
            let facts = store.timeline(&id).await.expect("reads").expect("exists");
            let code = |kind: FactKind, name: &str| {
                let fact = facts.iter().find(|fact| fact.kind == kind)?;
                fact.detail.get_code(name).map(str::to_owned)
            };
            (code(FactKind::Transition, "after"), code(FactKind::LaterRequest, "by"))
        }
    };
    assert_eq!(linked(first.id.clone()).await, (None, Some(second.id.clone())));
    assert_eq!(linked(second.id.clone()).await, (Some(first.id), Some(third.id.clone())));
    assert_eq!(linked(third.id).await, (Some(second.id), None));
    assert_eq!(linked(other.id).await, (None, None));
}

async fn simultaneous_clicks_of_one_window_make_one_record(b: Bench) {
    let mut tasks = Vec::new();
    for _ in 0..20 {
        let (store, event) = (Arc::clone(&b.store), b.event(Some("s1"), Some("w1")));
        tasks.push(tokio::spawn(async move {
            loop {
                match store.admit(std::slice::from_ref(&event)).await {
                    Ok(mut answers) => break answers.pop().expect("one answer"),
                    Err(Error::Conflict { .. } | Error::Busy | Error::RowsAffected { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }));
    }
    let (mut new, mut ids) = (0, std::collections::BTreeSet::new());
    for task in tasks {
        match task.await.expect("answers") {
            Admitted::New(record) => {
                new += 1;
                ids.insert(record.id);
            }
            Admitted::Replay(record) => {
                ids.insert(record.id);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((new, ids.len()), (1, 1));
    assert_eq!(b.count("SELECT COUNT(*) FROM records").await, 1);
    assert_eq!(b.count("SELECT COUNT(*) FROM admissions").await, 20);
    assert_eq!(b.count("SELECT COUNT(*) FROM facts WHERE kind = 'window_converged'").await, 19);
}

async fn after_an_unknown_the_next_request_goes_or_waits_as_configured(b: Bench) {
    let mut sending = SendingRules { after_unknown: AfterUnknown::Settled, ..Default::default() };
    sending.after_unknown_of.insert("login".into(), AfterUnknown::Window);
    let strict = b.with_rules(sending).await;
    for purpose in ["password_reset", "login"] {
        let first = Admission { purpose: purpose.into(), ..b.event(Some("s1"), Some("w1")) };
        b.admit(&first).await;
        b.called(timeout()).await;
        b.is(&first.id, State::DispatchUnknown, Reason::Timeout).await;
        let later = |window: Option<&str>| Admission {
            purpose: purpose.into(),
            ..b.event(Some("s1"), window)
        };
        let Admitted::Limited { code, retry_after_s } = admit_at(&strict, &later(None)).await
        else {
            panic!("admitted")
        };
        assert_eq!(code, "earlier_unresolved");
        assert!((1..=600).contains(&retry_after_s));
        let in_another = admit_at(&strict, &later(Some("w2"))).await;
        if purpose == "login" {
            assert!(matches!(in_another, Admitted::New(_)), "{in_another:?}");
            let want = ["earlier_unresolved", "unresolved"];
            assert_eq!(b.answers(&first.id, FactKind::LaterRequest).await, want);
        } else {
            assert!(matches!(in_another, Admitted::Limited { .. }), "{in_another:?}");
            // Another seller, another purpose, or the default rule: admitted.
            let stranger = b.event(Some("s2"), None);
            assert!(matches!(admit_at(&strict, &stranger).await, Admitted::New(_)));
            // The same window converges as ever.
            let again = admit_at(&strict, &later(Some("w1"))).await;
            assert!(matches!(again, Admitted::Replay(_)), "{again:?}");
            // Known: the next one goes.
            b.later(2);
            b.read_due(Lookup::Found { seen: Seen::Accepted, message_id: None }).await;
            let next = admit_at(&strict, &later(None)).await;
            assert!(matches!(next, Admitted::New(_)), "{next:?}");
            for claim in b.claims(10).await {
                b.start(&claim).await;
                b.end(&claim, accepted()).await;
            }
        }
    }
}

async fn limits_hold_over_two_processes_and_slide(b: Bench) {
    let one = b.with_rules(limited(Scope::Seller, "3 per 60s")).await;
    let two = b.with_rules(limited(Scope::Seller, "3 per 60s")).await;
    let mut tasks = Vec::new();
    for n in 0..20 {
        let store = if n % 2 == 0 { Arc::clone(&one) } else { Arc::clone(&two) };
        let event = b.event(Some("s1"), None);
        tasks.push(tokio::spawn(async move {
            loop {
                match store.admit(std::slice::from_ref(&event)).await {
                    Ok(mut answers) => break answers.pop().expect("one answer"),
                    Err(Error::Busy | Error::RowsAffected { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }));
    }
    let mut new = 0;
    for task in tasks {
        match task.await.expect("answers") {
            Admitted::New(_) => new += 1,
            Admitted::Limited { code, retry_after_s } => {
                assert_eq!((code, retry_after_s), ("rate_limited", 61));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(new, 3);
    assert_eq!(b.count("SELECT COUNT(*) FROM records").await, 3);
    assert_eq!(b.count("SELECT COUNT(*) FROM admissions").await, 3, "429 binds no key");
    let stranger = b.event(Some("s2"), None);
    assert!(matches!(admit_at(&one, &stranger).await, Admitted::New(_)));
    b.later(62);
    // Three of one group fit, the fourth does not; and a replay is no new event.
    let events: Vec<Admission> = (0..4).map(|_| b.event(Some("s1"), None)).collect();
    let answers = one.admit(&events).await.expect("admits");
    let new = answers.iter().filter(|answer| matches!(answer, Admitted::New(_))).count();
    assert_eq!(new, 3);
    assert!(matches!(answers[3], Admitted::Limited { .. }));
    assert!(matches!(admit_at(&two, &events[0]).await, Admitted::Replay(_)));
    b.later(7_200);
    assert!(one.purge_limits(100).await.expect("purges") > 0);
    assert_eq!(b.count("SELECT COUNT(*) FROM limit_slices").await, 0);
}

async fn a_limit_that_only_watches_stops_nothing(b: Bench) {
    let sending = SendingRules { is_monitor: true, ..limited(Scope::Global, "1 per 60s") };
    let store = b.with_rules(sending).await;
    for _ in 0..3 {
        let event = b.event(None, None);
        assert!(matches!(admit_at(&store, &event).await, Admitted::New(_)));
    }
    let store = b.with_rules(limited(Scope::Client, "2 per 60s")).await;
    for wanted in [true, true, false] {
        let event = b.event(None, None);
        let answer = admit_at(&store, &event).await;
        assert_eq!(matches!(answer, Admitted::New(_)), wanted, "{answer:?}");
    }
}

/// Takes everything that is due through markers of this store. Gives how many became calls.
async fn send_due(store: &Arc<dyn Store>, b: &Bench, at: impl Fn(&Claim) -> Start) -> usize {
    let mut called = 0;
    loop {
        let claims = store.claim("w1", Channel::Sms, 64).await.expect("claims");
        if claims.is_empty() {
            return called;
        }
        let starts: Vec<Start> = claims.iter().map(&at).collect();
        let started = store.start(&starts).await.expect("starts");
        let ended_at = crate::clock::Clock::now(&b.clock);
        let ends: Vec<End> = claims
            .iter()
            .zip(&started)
            .filter(|(_, started)| matches!(started, Started::Call { .. }))
            .map(|(claim, _)| End {
                id: claim.id.clone(),
                fence: claim.fence,
                attempt: claim.attempt,
                verdict: accepted(),
                ended_at,
            })
            .collect();
        called += ends.len();
        store.end(&ends).await.expect("ends");
    }
}

async fn the_address_is_limited_when_it_is_known(b: Bench) {
    let store = b.with_rules(limited(Scope::Destination, "2 per 10m")).await;
    let mut events = Vec::new();
    for _ in 0..3 {
        events.push(b.admitted().await);
    }
    let at = |claim: &Claim| Start { fingerprint: "same".into(), ..start(claim) };
    assert_eq!(send_due(&store, &b, at).await, 2);
    let mut stopped = 0;
    for event in &events {
        let record = b.store.record(&event.id).await.unwrap().unwrap();
        if record.reason == Reason::PolicyLimit {
            assert_eq!((record.state, record.calls), (State::FailedFinal, 0));
            let facts = b.store.timeline(&event.id).await.unwrap().unwrap();
            let rule = facts.last().and_then(|fact| fact.detail.get_code("rule"));
            assert_eq!(rule, Some("limit_destination"));
            stopped += 1;
        }
    }
    assert_eq!(stopped, 1);
    // Another address is not concerned, and an attempt after a proof is not counted again.
    let event = b.admitted().await;
    let claim = store.claim("w1", Channel::Sms, 1).await.unwrap().pop().unwrap();
    let mut once = Start { fingerprint: "other".into(), ..start(&claim) };
    for attempt in 1..=3_u32 {
        let started = store.start(&[once.clone()]).await.unwrap().pop().unwrap();
        assert!(matches!(started, Started::Call { .. }), "attempt {attempt}: {started:?}");
        let ended_at = crate::clock::Clock::now(&b.clock);
        let end =
            End { id: event.id.clone(), fence: once.fence, attempt, verdict: not_sent(), ended_at };
        store.end(&[end]).await.unwrap();
        b.later(10);
        let claim = store.claim("w1", Channel::Sms, 1).await.unwrap().pop().unwrap();
        once.fence = claim.fence;
    }
}

async fn numbers_are_judged_by_country_prefix_and_price(b: Bench) {
    let mut sending = SendingRules {
        countries: ["US".to_owned(), "GB".to_owned(), "FR".to_owned()].into(),
        prices: crate::policy::Prices::parse("US,0.01\nGB,0.30").unwrap(),
        price_max: Some(100_000),
        ..Default::default()
    };
    let table = [
        ("US", false, State::Dispatching, None),
        ("US", true, State::FailedFinal, Some(("prefix_blocked", Reason::PolicyCountry))),
        ("DE", false, State::FailedFinal, Some(("country_not_allowed", Reason::PolicyCountry))),
        ("ZZ", false, State::FailedFinal, Some(("country_not_allowed", Reason::PolicyCountry))),
        ("GB", false, State::FailedFinal, Some(("price_above_max", Reason::PolicyPrice))),
        ("FR", false, State::FailedFinal, Some(("price_unknown", Reason::PolicyPrice))),
    ];
    for is_monitor in [false, true] {
        sending.is_monitor = is_monitor;
        let store = b.with_rules(sending.clone()).await;
        for (country, is_blocked, state, why) in &table {
            let event = b.admitted().await;
            let claim = store.claim("w1", Channel::Sms, 1).await.unwrap().pop().unwrap();
            let place =
                Place { country: (*country).into(), prefix: "1".into(), is_blocked: *is_blocked };
            store.start(&[Start { place: Some(place), ..start(&claim) }]).await.unwrap();
            let record = b.store.record(&event.id).await.unwrap().unwrap();
            if is_monitor {
                assert_eq!(record.state, State::Dispatching, "{country}");
                continue;
            }
            assert_eq!(record.state, *state, "{country}");
            if let Some((rule, reason)) = why {
                assert_eq!((record.reason, record.calls), (*reason, 0));
                let facts = b.store.timeline(&event.id).await.unwrap().unwrap();
                let last = facts.last().unwrap();
                assert_eq!(last.detail.get_code("rule"), Some(*rule));
            }
        }
    }
}

async fn a_flood_to_a_premium_prefix_opens_its_breaker_and_no_other(b: Bench) {
    const FLOOD: usize = 5_000;
    let budget = Budget {
        window: 3_600 * S,
        messages_max: Some(100),
        price_max: Some(50 * S),
        cooldown: 900 * S,
        probes: 5,
    };
    let store = b
        .with_rules(SendingRules {
            prices: crate::policy::Prices::parse("LV,1.25\nUS,0.01").unwrap(),
            budget: Some(budget),
            ..Default::default()
        })
        .await;
    // Rotating sellers, every hundredth an honest one.
    let events: Vec<Admission> = (0..FLOOD)
        .map(|n| Admission {
            destination_ref: if n % 100 == 0 { format!("us-{n}") } else { format!("lv-{n}") },
            ..b.event(Some(&format!("seller-{}", n % 997)), None)
        })
        .collect();
    for group in events.chunks(128) {
        let answers = store.admit(group).await.expect("admits");
        assert!(answers.iter().all(|answer| matches!(answer, Admitted::New(_))));
    }
    let at = |claim: &Claim| Start {
        fingerprint: claim.destination_ref.clone(),
        place: match claim.destination_ref.split_once('-') {
            Some(("us", _)) => place("US", "1202555"),
            _ => place("LV", "3719000"),
        },
        ..start(claim)
    };
    send_due(&store, &b, at).await;
    let sent = |country: &'static str| {
        let sql = match country {
            "LV" => "SELECT COUNT(*) FROM attempts WHERE fingerprint LIKE 'lv-%'",
            _ => "SELECT COUNT(*) FROM attempts WHERE fingerprint LIKE 'us-%'",
        };
        b.count(sql)
    };
    // 50.00 at 1.25 each: 40 messages, and not one more.
    assert_eq!((sent("LV").await, sent("US").await), (40, 50));
    assert_eq!(
        b.count("SELECT COUNT(*) FROM records WHERE reason = 'policy_price'").await,
        (FLOOD - 50 - 40) as i64
    );
    assert_eq!(b.count("SELECT COUNT(*) FROM facts WHERE kind = 'breaker'").await, 1);
    let page = store.policy_page().await.unwrap();
    let seen: Vec<(&str, u64, u64, &str)> = page
        .countries
        .iter()
        .map(|country| {
            let state = country.breaker.as_ref().map_or("", |breaker| breaker.state.as_str());
            (country.country.as_str(), country.last_day.messages, country.last_hour.stopped, state)
        })
        .collect();
    assert_eq!(seen, [("LV", 40, 4_910, "open"), ("US", 50, 0, "closed")]);
    assert_eq!(page.countries[0].last_day.price, 50 * S);
    assert_eq!(store.gauges().await.unwrap().open_breakers, 1);
    // It goes on: after the cooldown five probes go, and it opens again.
    b.later(901);
    for _ in 0..20 {
        let event = Admission { destination_ref: "lv-more".into(), ..b.event(None, None) };
        admit_at(&store, &event).await;
    }
    assert_eq!(send_due(&store, &b, at).await, 5);
    // Closed by hand, counting starts anew.
    assert!(!store.close_breaker("US", "operator:o", "a look").await.unwrap());
    assert!(store.close_breaker("LV", "operator:o", "INC-1").await.unwrap());
    b.later(1);
    for _ in 0..50 {
        let event = Admission { destination_ref: "lv-more".into(), ..b.event(None, None) };
        admit_at(&store, &event).await;
    }
    let again = send_due(&store, &b, at).await;
    assert!((35..=40).contains(&again), "{again}");
    b.later(9 * 86_400);
    while store.purge_limits(1_000).await.unwrap() > 0 {}
    assert_eq!(b.count("SELECT COUNT(*) FROM country_slices").await, 0);
}

on_both_engines! {
    requests_of_one_seller_are_linked_both_ways,
    simultaneous_clicks_of_one_window_make_one_record,
    after_an_unknown_the_next_request_goes_or_waits_as_configured,
    limits_hold_over_two_processes_and_slide,
    a_limit_that_only_watches_stops_nothing,
    the_address_is_limited_when_it_is_known,
    numbers_are_judged_by_country_prefix_and_price,
    a_flood_to_a_premium_prefix_opens_its_breaker_and_no_other,
}
