//! The table over all (state, event) pairs, and what no path may ever reach.

use app::model::{Channel, FactKind, Reason, Seen, Stamp, State};
use proptest::prelude::*;

use super::{
    Ctx, Doubt, Event, Facing, Illegal, Lookup, Phase, Policy, PreCall, Record, Step, TokenState,
    Verdict, is_legal,
};

const S: i64 = 1_000_000;

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

fn at(seconds: i64) -> Stamp {
    Stamp::from_micros(1_790_000_000 * S + seconds * S)
}

fn readable() -> Facing {
    Facing { settle: Some(2 * S), is_readable: true, replay_window: None, has_callbacks: true }
}

fn replayable() -> Facing {
    Facing { settle: None, is_readable: false, replay_window: Some(600 * S), has_callbacks: false }
}

fn record() -> Record {
    Record {
        id: "id".into(),
        event_id: "ev".into(),
        state: State::Accepted,
        reason: Reason::Admitted,
        channel: Channel::Sms,
        provider: "demo".into(),
        next_provider: None,
        created_at: at(0),
        updated_at: at(0),
        expires_at: at(600),
        seq: 1,
        attempt: 0,
        calls: 0,
        replays: 0,
        spent: 0,
        authority: 1,
        stumbles: 0,
        due_at: Some(at(0)),
        replay_at: None,
        phase: Phase::Idle,
        is_replay: false,
        fence: 0,
        lease_owner: None,
        lease_until: None,
        attempt_started_at: None,
        call_by: None,
        call_ended_at: None,
        message_id: None,
        reads: 0,
        absent_at: None,
        held: None,
        poll_until: None,
        settled_at: None,
        restored_at: None,
    }
}

/// A record and the clock and provider it lives with.
struct Life {
    record: Record,
    now: Stamp,
    policy: Policy,
    facing: Facing,
    facts: Vec<app::model::Fact>,
    authorities: Vec<u32>,
}

impl Life {
    fn new(facing: Facing) -> Self {
        Self {
            record: record(),
            now: at(1),
            policy: policy(),
            facing,
            facts: Vec::new(),
            authorities: Vec::new(),
        }
    }

    fn try_do(&mut self, event: &Event) -> Result<Step, Illegal> {
        let ctx = Ctx {
            now: self.now,
            policy: &self.policy,
            facing: &self.facing,
            next_provider: None,
            jitter: 500,
        };
        let step = self.record.apply(event, &ctx)?;
        self.record = step.record.clone();
        self.facts.extend(step.facts.iter().cloned());
        if let Some(call) = &step.call {
            self.authorities.push(call.authorised_by);
        }
        Ok(step)
    }

    fn does(&mut self, event: Event) -> &mut Self {
        if let Err(error) = self.try_do(&event) {
            panic!("{event:?} in {:?}: {error}", self.record.state);
        }
        self
    }

    fn later(&mut self, seconds: i64) -> &mut Self {
        self.now = self.now.plus(seconds * S);
        self
    }

    fn claim(&self) -> Event {
        Event::Claim {
            owner: "w".into(),
            lease_until: self.now.plus(self.policy.lease),
            is_frozen: false,
        }
    }

    fn claims(&mut self) -> &mut Self {
        let event = self.claim();
        self.does(event)
    }

    fn claims_replay(&mut self) -> &mut Self {
        let event = Event::ClaimReplay {
            owner: "w".into(),
            lease_until: self.now.plus(self.policy.lease),
            is_frozen: false,
            token: TokenState::Live,
        };
        self.does(event)
    }

    fn starts(&mut self) -> &mut Self {
        let fence = self.record.fence;
        self.does(Event::Start { fence, is_frozen: false, token: TokenState::Live })
    }

    fn ends(&mut self, verdict: Verdict) -> &mut Self {
        let (fence, ended_at) = (self.record.fence, self.now);
        self.does(Event::End { fence, verdict, ended_at })
    }

    fn reads(&mut self, answer: Lookup) -> &mut Self {
        let event = self.read(answer);
        self.does(event)
    }

    fn read(&self, answer: Lookup) -> Event {
        Event::Read {
            calls: self.record.calls,
            attempt: self.record.attempt,
            asked_at: self.now,
            answer,
        }
    }

    fn callback(&mut self, attempt: u32, seen: Seen) -> &mut Self {
        self.does(Event::Callback {
            attempt,
            seen,
            message_id: None,
            cause: None,
            provider_at: None,
        })
    }

    fn is(&self, state: State, reason: Reason) {
        assert_eq!((self.record.state, self.record.reason), (state, reason), "{:#?}", self.facts);
    }

    fn unknown(facing: Facing) -> Self {
        let mut life = Self::new(facing);
        life.claims().starts().later(5).ends(timeout());
        life
    }
}

fn timeout() -> Verdict {
    Verdict::Unknown { why: Doubt::Timeout, code: "timeout".into() }
}
fn accepted() -> Verdict {
    Verdict::Accepted { message_id: Some("m-1".into()) }
}
fn not_sent() -> Verdict {
    Verdict::NotSent { code: "connect".into() }
}
fn transient() -> Verdict {
    Verdict::TransientRefusal { code: "busy".into() }
}
fn permanent() -> Verdict {
    Verdict::RefusedPermanently { code: "bad".into() }
}
fn limited() -> Verdict {
    Verdict::RateLimited { retry_at: None }
}
fn stopped() -> Verdict {
    Verdict::ProviderStopped { code: "401".into() }
}
fn found(seen: Seen) -> Lookup {
    Lookup::Found { seen, message_id: Some("m-1".into()) }
}

/// Records in every state and phase, each reached by events, none made up.
fn every_state() -> Vec<(&'static str, Life)> {
    let build = |name, make: &dyn Fn(&mut Life), facing: Facing| {
        let mut life = Life::new(facing);
        make(&mut life);
        (name, life)
    };
    vec![
        build("accepted", &|_| {}, readable()),
        build(
            "claimed",
            &|l| {
                l.claims();
            },
            readable(),
        ),
        build(
            "calling",
            &|l| {
                l.claims().starts();
            },
            readable(),
        ),
        build(
            "unknown",
            &|l| {
                l.claims().starts().later(5).ends(timeout()).later(2);
            },
            readable(),
        ),
        build(
            "replay claimed",
            &|l| {
                l.claims().starts().ends(timeout()).later(3).claims_replay();
            },
            replayable(),
        ),
        build(
            "replay calling",
            &|l| {
                l.claims().starts().ends(timeout()).later(3).claims_replay().starts();
            },
            replayable(),
        ),
        build(
            "sent",
            &|l| {
                l.claims().starts().ends(accepted());
            },
            readable(),
        ),
        build(
            "delivered",
            &|l| {
                l.claims().starts().ends(accepted()).callback(1, Seen::Delivered);
            },
            readable(),
        ),
        build(
            "failed_final",
            &|l| {
                l.claims().starts().ends(permanent());
            },
            readable(),
        ),
        build(
            "expired",
            &|l| {
                l.later(600).does(Event::Expire { was_frozen: false });
            },
            readable(),
        ),
    ]
}

/// Every event, fitting the record's own fence and attempt where it has one.
fn every_event(life: &Life) -> Vec<(&'static str, Event)> {
    let fence = life.record.fence;
    let lease_until = life.now.plus(life.policy.lease);
    let owner = || "w2".to_owned();
    let start = |token| Event::Start { fence, is_frozen: false, token };
    let end = |verdict| Event::End { fence, verdict, ended_at: life.now };
    let callback = |seen| Event::Callback {
        attempt: 1,
        seen,
        message_id: None,
        cause: None,
        provider_at: None,
    };
    vec![
        ("claim", Event::Claim { owner: owner(), lease_until, is_frozen: false }),
        ("claim frozen", Event::Claim { owner: owner(), lease_until, is_frozen: true }),
        (
            "claim replay",
            Event::ClaimReplay {
                owner: owner(),
                lease_until,
                is_frozen: false,
                token: TokenState::Live,
            },
        ),
        ("give up: resolver", Event::GiveUp { fence, why: PreCall::ResolverUnavailable }),
        ("give up: destination", Event::GiveUp { fence, why: PreCall::DestinationNotFound }),
        ("give up: country", Event::GiveUp { fence, why: PreCall::PolicyCountry }),
        ("give up: price", Event::GiveUp { fence, why: PreCall::PolicyPrice }),
        ("give up: limit", Event::GiveUp { fence, why: PreCall::PolicyLimit }),
        ("give up: bytes", Event::GiveUp { fence, why: PreCall::BytesDiffer }),
        ("give up: released", Event::GiveUp { fence, why: PreCall::Released }),
        ("start", start(TokenState::Live)),
        ("start frozen", Event::Start { fence, is_frozen: true, token: TokenState::Live }),
        ("start consumed", start(TokenState::Consumed)),
        ("start superseded", start(TokenState::Superseded)),
        ("end accepted", end(accepted())),
        ("end not sent", end(not_sent())),
        ("end limited", end(limited())),
        ("end transient", end(transient())),
        ("end permanent", end(permanent())),
        ("end stopped", end(stopped())),
        ("end unknown", end(timeout())),
        ("late accepted", Event::LateAnswer { attempt: 1, verdict: accepted() }),
        ("late refused", Event::LateAnswer { attempt: 1, verdict: permanent() }),
        ("lease lost", Event::LeaseLost),
        ("callback accepted", callback(Seen::Accepted)),
        ("callback delivered", callback(Seen::Delivered)),
        ("callback failed", callback(Seen::Failed)),
        ("read found", life.read(found(Seen::Accepted))),
        ("read delivered", life.read(found(Seen::Delivered))),
        ("read failed", life.read(found(Seen::Failed))),
        ("read absent", life.read(Lookup::Absent)),
        ("read cannot tell", life.read(Lookup::CannotTell { code: "down".into() })),
        ("expire", Event::Expire { was_frozen: false }),
        ("cancel", Event::Cancel { actor: "client:c".into() }),
        ("token consumed", Event::TokenDead { token: TokenState::Consumed }),
        ("poll over", Event::PollOver),
        ("restored", Event::Restored { at: at(100) }),
    ]
}

/// What each pair comes to: the state and reason after it, or nothing where it does not apply.
fn outcome(state: &str, event: &str) -> Option<(State, Reason)> {
    use Reason as R;
    use State as T;
    let to = |state, reason| Some((state, reason));
    match (state, event) {
        ("accepted", "claim") => to(T::Dispatching, R::Claimed),
        ("accepted", "cancel") => to(T::FailedFinal, R::Cancelled),
        ("accepted" | "claimed", "token consumed") => to(T::FailedFinal, R::TokenConsumed),
        ("accepted" | "claimed" | "calling" | "replay claimed" | "replay calling", "restored") => {
            to(T::DispatchUnknown, R::Restored)
        }
        ("claimed", "give up: resolver") => to(T::Accepted, R::ResolverUnavailable),
        ("claimed", "give up: bytes" | "give up: released") => {
            to(T::Accepted, R::LeaseLostBeforeCall)
        }
        ("claimed", "give up: destination") => to(T::FailedFinal, R::DestinationNotFound),
        ("claimed", "give up: country") => to(T::FailedFinal, R::PolicyCountry),
        ("claimed", "give up: price") => to(T::FailedFinal, R::PolicyPrice),
        ("claimed", "give up: limit") => to(T::FailedFinal, R::PolicyLimit),
        ("claimed", "start") => to(T::Dispatching, R::Claimed),
        ("claimed", "start frozen") => to(T::Accepted, R::FrozenBeforeCall),
        ("claimed", "start consumed") => to(T::FailedFinal, R::TokenConsumed),
        ("claimed", "start superseded") => to(T::FailedFinal, R::TokenSuperseded),
        ("replay claimed", "start") => to(T::Dispatching, R::IdempotentReplay),
        ("replay claimed", e) if e.starts_with("give up") || e.starts_with("start ") => {
            to(T::DispatchUnknown, R::ReplayInconclusive)
        }
        ("calling" | "replay calling", "end accepted") => to(T::Sent, R::ProviderAccepted),
        ("calling" | "replay calling", "end unknown") => to(T::DispatchUnknown, R::Timeout),
        ("calling", "end not sent") => to(T::Accepted, R::NotSent),
        ("calling", "end limited") => to(T::Accepted, R::RateLimited),
        ("calling", "end transient") => to(T::Accepted, R::TransientRefusal),
        ("calling", "end stopped") => to(T::Accepted, R::ProviderStopped),
        ("calling", "end permanent") => to(T::FailedFinal, R::RefusedPermanently),
        ("replay calling", e) if e.starts_with("end ") => {
            to(T::DispatchUnknown, R::ReplayInconclusive)
        }
        // Evidence about a running call is kept and waits.
        ("calling", e)
            if e.starts_with("late")
                || e.starts_with("callback")
                || e.starts_with("read found")
                || e.starts_with("read delivered")
                || e.starts_with("read failed") =>
        {
            to(T::Dispatching, R::Claimed)
        }
        ("replay calling" | "replay claimed", e)
            if e.starts_with("late")
                || e.starts_with("callback")
                || e == "read found"
                || e == "read delivered"
                || e == "read failed" =>
        {
            to(T::Dispatching, R::IdempotentReplay)
        }
        ("unknown", "late accepted" | "callback accepted" | "read found") => {
            to(T::Sent, R::ReconciledFound)
        }
        ("unknown", "callback delivered" | "read delivered") => {
            to(T::Delivered, R::ReconciledDelivered)
        }
        ("unknown", "callback failed" | "read failed") => to(T::FailedFinal, R::ReconciledFailed),
        ("unknown", "late refused" | "read absent" | "read cannot tell") => {
            to(T::DispatchUnknown, R::Timeout)
        }
        (
            "sent",
            "late accepted" | "late refused" | "callback accepted" | "read found" | "read absent"
            | "read cannot tell",
        ) => to(T::Sent, R::ProviderAccepted),
        ("sent", "callback delivered" | "read delivered") => to(T::Delivered, R::DeliveryEvidence),
        ("sent", "callback failed" | "read failed") => to(T::FailedFinal, R::Undelivered),
        ("delivered", e) if is_evidence(e) => to(T::Delivered, R::DeliveryEvidence),
        ("failed_final", e) if is_evidence(e) => to(T::FailedFinal, R::RefusedPermanently),
        _ => None,
    }
}

fn is_evidence(event: &str) -> bool {
    event.starts_with("late")
        || event.starts_with("callback")
        || matches!(event, "read found" | "read delivered" | "read failed")
}

#[test]
fn every_pair_of_state_and_event_does_what_the_table_says() {
    let mut pairs = 0;
    for (state, life) in every_state() {
        for (name, event) in every_event(&life) {
            let ctx = Ctx {
                now: life.now,
                policy: &life.policy,
                facing: &life.facing,
                next_provider: None,
                jitter: 500,
            };
            let got = life.record.apply(&event, &ctx).ok();
            let got = got.map(|step| (step.record.state, step.record.reason));
            assert_eq!(got, outcome(state, name), "{state} + {name}");
            pairs += 1;
        }
    }
    assert_eq!(pairs, 10 * 37);
}

#[test]
fn every_rule_of_the_table_is_in_the_table_once() {
    let mut seen = std::collections::HashSet::new();
    for rule in super::TRANSITIONS {
        assert!(seen.insert(rule), "{rule:?} stands twice");
        assert!(rule.from.is_none_or(|from| !from.is_terminal()), "{rule:?} leaves a final state");
    }
}

#[test]
fn a_timeout_after_acceptance_is_found_and_not_sent_again() {
    let mut life = Life::unknown(readable());
    life.later(2).reads(found(Seen::Accepted));
    life.is(State::Sent, Reason::ReconciledFound);
    assert_eq!(life.record.calls, 1);
}

#[test]
fn absence_needs_two_answers_after_the_settle_time() {
    let mut life = Life::unknown(readable());
    life.later(1).reads(Lookup::Absent);
    life.is(State::DispatchUnknown, Reason::Timeout);
    assert_eq!(life.record.absent_at, None, "asked before the settle time");
    life.later(1).reads(Lookup::Absent);
    life.is(State::DispatchUnknown, Reason::Timeout);
    life.later(1).reads(Lookup::Absent);
    life.is(State::Accepted, Reason::ReconciledAbsent);
    life.claims().starts().ends(accepted());
    assert_eq!((life.record.attempt, life.record.calls), (2, 2));
}

#[test]
fn two_absent_answers_too_close_together_confirm_nothing() {
    let mut life = Life::unknown(readable());
    life.later(2).reads(Lookup::Absent).reads(Lookup::Absent).reads(Lookup::Absent);
    life.is(State::DispatchUnknown, Reason::Timeout);
}

#[test]
fn a_cannot_tell_between_two_absent_answers_starts_the_count_anew() {
    let mut life = Life::unknown(readable());
    life.later(2).reads(Lookup::Absent);
    life.later(1).reads(Lookup::CannotTell { code: "down".into() });
    life.later(1).reads(Lookup::Absent);
    life.is(State::DispatchUnknown, Reason::Timeout);
    life.later(1).reads(Lookup::Absent);
    life.is(State::Accepted, Reason::ReconciledAbsent);
}

#[test]
fn without_settle_absence_is_never_believed() {
    let mut life = Life::unknown(Facing { settle: None, ..readable() });
    for _ in 0..50 {
        life.later(10).reads(Lookup::Absent);
    }
    life.is(State::DispatchUnknown, Reason::Timeout);
    life.now = life.record.expires_at;
    life.does(Event::Expire { was_frozen: false });
    life.is(State::Expired, Reason::ExpiredUnresolved);
    assert_eq!(life.record.calls, 1);
}

#[test]
fn settle_runs_from_call_by_and_the_lease_where_the_owner_was_lost() {
    let mut life = Life::new(readable());
    life.claims().starts().later(11).does(Event::LeaseLost);
    life.is(State::DispatchUnknown, Reason::LeaseLostAfterCall);
    // call_by is 5 s after the marker, the lease 10 s, settle 2 s: nothing counts before 17 s.
    life.later(4).reads(Lookup::Absent);
    assert_eq!(life.record.absent_at, None);
    life.later(3).reads(Lookup::Absent).later(1).reads(Lookup::Absent);
    life.is(State::Accepted, Reason::ReconciledAbsent);
}

#[test]
fn evidence_after_a_proof_withdraws_it() {
    let mut life = Life::unknown(readable());
    life.later(2).reads(Lookup::Absent).later(1).reads(Lookup::Absent);
    life.is(State::Accepted, Reason::ReconciledAbsent);
    life.callback(1, Seen::Delivered);
    life.is(State::Delivered, Reason::ReconciledDelivered);
    assert_eq!(life.record.calls, 1);
    assert!(life.try_do(&life.claim()).is_err());
}

#[test]
fn evidence_between_claim_and_marker_stops_the_marker() {
    let mut life = Life::new(readable());
    life.claims().starts().ends(not_sent()).later(5).claims();
    let fence = life.record.fence;
    life.callback(1, Seen::Accepted);
    life.is(State::Sent, Reason::ReconciledFound);
    let start = Event::Start { fence, is_frozen: false, token: TokenState::Live };
    assert_eq!(life.try_do(&start).err(), Some(Illegal::StaleFence));
    assert_eq!(life.record.calls, 1);
}

#[test]
fn a_callback_before_the_answer_gives_one_outcome_and_both_are_kept() {
    let mut life = Life::new(readable());
    life.claims().starts().callback(1, Seen::Delivered).ends(accepted());
    life.is(State::Delivered, Reason::DeliveryEvidence);
    let kinds: Vec<_> = life.facts.iter().map(|fact| (fact.kind, fact.reason)).collect();
    assert!(kinds.contains(&(FactKind::Callback, None)));
    assert!(kinds.contains(&(FactKind::Transition, Some(Reason::ProviderAccepted))));
}

#[test]
fn a_definite_refusal_against_evidence_is_unknown() {
    for verdict in [not_sent(), limited(), transient(), permanent(), stopped()] {
        let mut life = Life::new(readable());
        life.claims().starts().callback(1, Seen::Accepted).ends(verdict);
        life.is(State::DispatchUnknown, Reason::AmbiguousResponse);
        assert_eq!(life.record.due_at, Some(life.now), "read at once");
    }
}

#[test]
fn evidence_that_a_refusal_contradicts_forbids_every_further_call() {
    let mut life = Life::new(readable());
    life.claims().starts().callback(1, Seen::Delivered).ends(transient());
    for _ in 0..20 {
        life.later(5).reads(Lookup::Absent);
    }
    life.is(State::DispatchUnknown, Reason::AmbiguousResponse);
    life.later(1).reads(found(Seen::Delivered));
    life.is(State::Delivered, Reason::ReconciledDelivered);
    assert_eq!(life.record.calls, 1);
}

#[test]
fn evidence_during_a_call_counts_when_its_answer_is_lost_or_vague() {
    for why in [Doubt::Timeout, Doubt::ConnectionLost, Doubt::AmbiguousResponse] {
        let mut life = Life::new(readable());
        life.claims().starts().callback(1, Seen::Delivered);
        life.ends(Verdict::Unknown { why, code: "500".into() });
        life.is(State::Delivered, Reason::ReconciledDelivered);
    }
}

#[test]
fn evidence_for_an_earlier_attempt_raises_the_guardrail() {
    let mut life = Life::unknown(readable());
    life.later(2).reads(Lookup::Absent).later(1).reads(Lookup::Absent).claims().starts();
    life.callback(1, Seen::Delivered);
    assert!(life.facts.iter().any(|fact| fact.kind == FactKind::DuplicateEvidence));
    life.is(State::Dispatching, Reason::Claimed);
    life.ends(not_sent());
    life.is(State::Delivered, Reason::ReconciledDelivered);
    assert_eq!(life.record.calls, 2);
}

#[test]
fn only_the_calls_that_count_spend_the_budget() {
    let mut life = Life::new(readable());
    for _ in 0..5 {
        life.claims().starts().ends(not_sent()).later(61);
    }
    life.is(State::Accepted, Reason::NotSent);
    assert_eq!(life.record.spent, 0);
    life.claims().starts().ends(transient()).later(80);
    life.claims().starts().ends(transient()).later(80);
    life.claims().starts().ends(transient());
    life.is(State::FailedFinal, Reason::AttemptsExhausted);
}

#[test]
fn no_record_has_more_than_twenty_attempts() {
    let mut life = Life::new(readable());
    life.record.expires_at = at(80_000);
    for _ in 0..20 {
        life.claims().starts().ends(limited()).later(120);
    }
    life.is(State::FailedFinal, Reason::AttemptsExhausted);
    assert_eq!(life.record.attempt, 20);
}

#[test]
fn a_replay_that_is_not_accepted_goes_back_to_the_unknown() {
    for verdict in [not_sent(), limited(), transient(), permanent(), stopped()] {
        let mut life = Life::new(replayable());
        life.claims().starts().ends(timeout()).later(3).claims_replay().starts();
        life.ends(verdict);
        life.is(State::DispatchUnknown, Reason::ReplayInconclusive);
        assert_eq!((life.record.attempt, life.record.calls, life.record.replays), (1, 2, 1));
    }
    let mut life = Life::new(replayable());
    life.claims()
        .starts()
        .ends(timeout())
        .later(3)
        .claims_replay()
        .later(11)
        .does(Event::LeaseLost);
    life.is(State::DispatchUnknown, Reason::ReplayInconclusive);
}

#[test]
fn replays_end_with_their_budget_and_their_window() {
    let mut life = Life::new(replayable());
    life.claims().starts().ends(timeout());
    for _ in 0..2 {
        life.later(30).claims_replay().starts().ends(timeout());
    }
    assert_eq!(life.record.replay_at, None, "two replays at most");

    let mut life = Life::new(Facing { replay_window: Some(30 * S), ..replayable() });
    life.claims().starts().ends(timeout()).later(25);
    let replay = Event::ClaimReplay {
        owner: "w".into(),
        lease_until: life.now.plus(10 * S),
        is_frozen: false,
        token: TokenState::Live,
    };
    assert_eq!(
        life.try_do(&replay).err(),
        Some(Illegal::NotAllowed),
        "window less one call timeout"
    );
}

#[test]
fn what_can_be_read_is_read_before_it_is_replayed() {
    let facing = Facing { is_readable: true, ..replayable() };
    let mut life = Life::unknown(facing);
    assert_eq!(life.record.replay_at, None);
    life.later(1).reads(Lookup::Absent);
    assert!(life.record.replay_at.is_some());
}

#[test]
fn the_marker_checks_margin_lease_freeze_and_token_anew() {
    let claimed = || {
        let mut life = Life::new(readable());
        life.claims();
        life
    };
    let mut life = claimed();
    life.now = life.record.last_call_at(life.policy.margin);
    life.record.lease_until = Some(life.now.plus(20 * S));
    life.starts();
    life.is(State::Expired, Reason::ExpiredBeforeCall);

    let mut life = claimed();
    life.later(6).starts();
    life.is(State::Accepted, Reason::LeaseLostBeforeCall);
    assert_eq!(life.record.calls, 0);
    assert_eq!(life.record.authority, 1, "the authorising fact stays unused");
}

#[test]
fn an_event_expires_at_its_margin_and_not_before() {
    let mut life = Life::new(readable());
    life.now = at(590).plus(-1);
    let expire = Event::Expire { was_frozen: true };
    assert_eq!(life.try_do(&expire).err(), Some(Illegal::NotDue));
    life.now = at(590);
    assert_eq!(life.try_do(&life.claim()).err(), Some(Illegal::PastMargin));
    life.does(expire);
    life.is(State::Expired, Reason::ExpiredWhileFrozen);
}

#[test]
fn a_sent_notification_settles_when_polling_is_over() {
    let mut life = Life::new(readable());
    life.claims().starts().ends(accepted());
    assert_eq!(life.try_do(&Event::PollOver).err(), Some(Illegal::NotDue));
    life.later(45).does(Event::PollOver);
    assert!(life.record.settled_at.is_some());
    life.callback(1, Seen::Delivered);
    life.is(State::Delivered, Reason::DeliveryEvidence);

    let mut life = Life::new(Facing::default());
    life.claims().starts().ends(accepted());
    assert!(life.record.settled_at.is_some(), "neither status nor callbacks: settled at once");
}

fn any_verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        Just(accepted()),
        Just(not_sent()),
        Just(limited()),
        Just(transient()),
        Just(permanent()),
        Just(stopped()),
        Just(timeout()),
    ]
}

/// One step of a random life: which event, and how much time passes before it.
#[derive(Debug, Clone)]
enum Move {
    Claim(bool),
    Replay(bool),
    GiveUp(PreCall),
    Start(bool, u8),
    End(Verdict),
    StaleEnd(Verdict),
    Late(u32, Verdict),
    LeaseLost,
    Callback(u32, Seen),
    Read(Lookup),
    Expire(bool),
    Cancel,
    PollOver,
    Restored,
}

fn any_move() -> impl Strategy<Value = (i64, Move)> {
    let seen = prop_oneof![Just(Seen::Accepted), Just(Seen::Delivered), Just(Seen::Failed)];
    let lookup = prop_oneof![
        3 => Just(Lookup::Absent),
        1 => Just(Lookup::CannotTell { code: "x".into() }),
        1 => seen.clone().prop_map(found),
    ];
    let why = prop_oneof![
        Just(PreCall::ResolverUnavailable),
        Just(PreCall::Released),
        Just(PreCall::BytesDiffer),
        Just(PreCall::DestinationNotFound),
    ];
    let step = prop_oneof![
        8 => prop::bool::weighted(0.1).prop_map(Move::Claim),
        6 => prop::bool::weighted(0.1).prop_map(Move::Replay),
        1 => why.prop_map(Move::GiveUp),
        8 => (prop::bool::weighted(0.1), 0_u8..12).prop_map(|(frozen, token)| Move::Start(frozen, token)),
        8 => any_verdict().prop_map(Move::End),
        1 => any_verdict().prop_map(Move::StaleEnd),
        1 => (1_u32..4, any_verdict()).prop_map(|(n, v)| Move::Late(n, v)),
        2 => Just(Move::LeaseLost),
        2 => (1_u32..4, seen).prop_map(|(n, s)| Move::Callback(n, s)),
        8 => lookup.prop_map(Move::Read),
        1 => any::<bool>().prop_map(Move::Expire),
        1 => Just(Move::Cancel),
        1 => Just(Move::PollOver),
        1 => Just(Move::Restored),
    ];
    (prop_oneof![4 => 0_i64..3, 3 => 3_i64..40, 1 => 40_i64..300], step)
}

fn any_facing() -> impl Strategy<Value = Facing> {
    (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(settles, reads, replays, calls_back)| Facing {
            settle: settles.then_some(2 * S),
            is_readable: reads,
            replay_window: replays.then_some(120 * S),
            has_callbacks: calls_back,
        },
    )
}

fn event_of(life: &Life, step: &Move) -> Event {
    let lease_until = life.now.plus(life.policy.lease);
    let fence = life.record.fence;
    let owner = "w".to_owned();
    let token = |n: u8| match n {
        0 => TokenState::Consumed,
        1 => TokenState::Superseded,
        _ => TokenState::Live,
    };
    match step.clone() {
        Move::Claim(is_frozen) => Event::Claim { owner, lease_until, is_frozen },
        Move::Replay(is_frozen) => {
            Event::ClaimReplay { owner, lease_until, is_frozen, token: TokenState::Live }
        }
        Move::GiveUp(why) => Event::GiveUp { fence, why },
        Move::Start(is_frozen, n) => Event::Start { fence, is_frozen, token: token(n) },
        Move::End(verdict) => Event::End { fence, verdict, ended_at: life.now },
        Move::StaleEnd(verdict) => Event::End { fence: fence - 1, verdict, ended_at: life.now },
        Move::Late(attempt, verdict) => Event::LateAnswer { attempt, verdict },
        Move::LeaseLost => Event::LeaseLost,
        Move::Callback(attempt, seen) => {
            Event::Callback { attempt, seen, message_id: None, cause: None, provider_at: None }
        }
        Move::Read(answer) => life.read(answer),
        Move::Expire(was_frozen) => Event::Expire { was_frozen },
        Move::Cancel => Event::Cancel { actor: "client:c".into() },
        Move::PollOver => Event::PollOver,
        Move::Restored => Event::Restored { at: life.now },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_path_breaks_an_invariant(
        facing in any_facing(),
        moves in prop::collection::vec(any_move(), 1..120),
    ) {
        let mut life = Life::new(facing);
        for (seconds, step) in &moves {
            life.later(*seconds);
            let before = life.record.clone();
            let event = event_of(&life, step);
            let facts_before = life.facts.len();
            let Ok(step) = life.try_do(&event) else {
                prop_assert_eq!(&life.record, &before);
                continue;
            };
            let (after, facts) = (&life.record, &life.facts[facts_before..]);

            // Final states never change.
            if before.state.is_terminal() {
                prop_assert_eq!(after.state, before.state);
                prop_assert_eq!(after.reason, before.reason);
            }
            // Every change of state has its fact, legal and in one unbroken chain of numbers.
            let mut state = before.state;
            for (n, fact) in facts.iter().enumerate() {
                prop_assert_eq!(fact.seq, before.seq + 1 + u32::try_from(n).unwrap());
                if fact.kind == FactKind::Transition {
                    prop_assert_eq!(fact.old_state, Some(state));
                    state = fact.new_state.unwrap();
                    prop_assert!(is_legal(fact.old_state, state, fact.reason.unwrap()));
                }
            }
            prop_assert_eq!(state, after.state);
            prop_assert_eq!(after.seq, before.seq + u32::try_from(facts.len()).unwrap());

            if let Some(call) = &step.call {
                // No call at or past the margin, none without a fact that authorises it.
                prop_assert!(life.now < before.last_call_at(life.policy.margin));
                prop_assert!(call.authorised_by > 0);
                let fact = life.facts.iter().find(|fact| fact.seq == call.authorised_by);
                let reason = fact.map_or(Reason::Admitted, |fact| fact.reason.unwrap());
                if call.is_replay {
                    prop_assert_eq!(reason, Reason::IdempotentReplay);
                    prop_assert_eq!(call.attempt, before.attempt);
                } else {
                    prop_assert!(reason.is_proof() || reason == Reason::Admitted);
                    prop_assert_eq!(call.attempt, before.attempt + 1);
                }
            }
            // An authorising fact serves once.
            let mut used = life.authorities.clone();
            used.sort_unstable();
            used.dedup();
            prop_assert_eq!(used.len(), life.authorities.len());
            // calls <= 1 + proofs + replays.
            let proofs = life.facts.iter().filter(|f| f.reason.is_some_and(Reason::is_proof)).count();
            prop_assert!(after.calls as usize <= 1 + proofs + after.replays as usize);
            prop_assert!(after.replays <= life.policy.replays_max);
            prop_assert_eq!(after.calls, after.attempt + after.replays);
            // Waiting work always has an hour, and only a dispatching record a lease.
            prop_assert_eq!(after.state == State::Dispatching, after.phase != Phase::Idle);
            prop_assert_eq!(after.state == State::Dispatching, after.lease_until.is_some());
            if after.state == State::Accepted {
                prop_assert!(after.due_at.is_some() && after.held.is_none());
            }
            if after.state.is_terminal() {
                prop_assert!(after.settled_at.is_some() && after.authority == 0);
            }
        }
    }
}

#[test]
fn a_token_that_ends_stops_what_waits_and_leaves_every_other_state_as_it_is() {
    for (state, life) in every_state() {
        let ctx = Ctx {
            now: life.now,
            policy: &life.policy,
            facing: &life.facing,
            next_provider: None,
            jitter: 500,
        };
        let ends = Event::TokenEnds {
            token: TokenState::Superseded,
            by: Some("r2".to_owned()),
            actor: "client:c".to_owned(),
        };
        let step = life.record.apply(&ends, &ctx).unwrap();
        let note = &step.facts[0];
        assert_eq!((note.kind, note.reason), (FactKind::Token, Some(Reason::TokenSuperseded)));
        assert_eq!((note.actor.as_str(), note.detail.get_code("by")), ("client:c", Some("r2")));
        assert_eq!(step.record.replay_at, None, "{state}");
        let after = (step.record.state, step.record.reason);
        if matches!(state, "accepted" | "claimed") {
            assert_eq!(after, (State::FailedFinal, Reason::TokenSuperseded), "{state}");
        } else {
            assert_eq!(after, (life.record.state, life.record.reason), "{state}");
            assert_eq!(step.facts.len(), 1, "{state}");
        }
        let asked =
            Event::TokenAsked { answer: "token_expired", count: 2, actor: "client:c".to_owned() };
        let step = life.record.apply(&asked, &ctx).unwrap();
        assert_eq!(
            (step.record.state, step.facts[0].detail.get_number("count")),
            (life.record.state, Some(2))
        );
        let live = Event::TokenEnds { token: TokenState::Live, by: None, actor: String::new() };
        assert_eq!(life.record.apply(&live, &ctx), Err(Illegal::NotAllowed));
    }
}

#[test]
fn what_a_restore_made_unknown_is_absent_only_after_settle_from_the_restore() {
    let mut life = Life::new(readable());
    life.later(5);
    let restored_at = life.now;
    life.later(1).does(Event::Restored { at: restored_at });
    life.is(State::DispatchUnknown, Reason::Restored);
    assert_eq!((life.record.attempt, life.record.calls, life.record.authority), (0, 0, 0));
    // Before settle, which runs from the restore: does not count.
    life.now = restored_at.plus(2 * S - 1);
    life.reads(Lookup::Absent);
    assert_eq!(life.record.absent_at, None);
    life.later(1).reads(Lookup::Absent);
    life.is(State::DispatchUnknown, Reason::Restored);
    life.later(1).reads(Lookup::Absent);
    life.is(State::Accepted, Reason::ReconciledAbsent);
    assert_eq!(life.record.spent, 0, "no call of ours was spent");
    life.claims().starts();
    assert_eq!((life.record.attempt, life.record.calls), (1, 1));
    life.ends(accepted()).is(State::Sent, Reason::ProviderAccepted);
}

#[test]
fn a_call_that_was_under_way_at_a_restore_is_spent_when_it_is_absent() {
    let mut life = Life::new(readable());
    life.claims().starts();
    let at = life.now;
    life.does(Event::Restored { at });
    for _ in 0..2 {
        life.later(20).reads(Lookup::Absent);
    }
    life.is(State::Accepted, Reason::ReconciledAbsent);
    assert_eq!(life.record.spent, 1);
}

#[test]
fn after_a_restore_an_attempt_that_the_ledger_forgot_settles_the_record() {
    for attempt in [1, 2, 20] {
        let mut life = Life::new(readable());
        let at = life.now;
        life.does(Event::Restored { at });
        let read =
            Event::Read { calls: 0, attempt, asked_at: life.now, answer: found(Seen::Delivered) };
        life.does(read);
        life.is(State::Delivered, Reason::ReconciledDelivered);
        assert_eq!(life.record.calls, 0);
    }
    let mut life = Life::new(readable());
    let read =
        Event::Read { calls: 0, attempt: 1, asked_at: life.now, answer: found(Seen::Failed) };
    assert_eq!(life.try_do(&read).err(), Some(Illegal::NoSuchAttempt), "nothing was lost");
    life.does(Event::Restored { at: at(1) });
    let callback = Event::Callback {
        attempt: 21,
        seen: Seen::Accepted,
        message_id: None,
        cause: None,
        provider_at: None,
    };
    assert_eq!(life.try_do(&callback).err(), Some(Illegal::NoSuchAttempt));
    life.callback(3, Seen::Accepted).is(State::Sent, Reason::ReconciledFound);
}

#[test]
fn a_key_that_a_restore_may_have_forgotten_a_successor_of_is_not_repeated() {
    let both = Facing { is_readable: true, ..replayable() };
    for facing in [replayable(), both] {
        let mut life = Life::new(facing);
        life.claims().starts().ends(not_sent()).later(3);
        let at = life.now;
        life.does(Event::Restored { at });
        assert_eq!(life.record.replay_at, None, "attempt 2 may have been made");
        life.later(30);
        let replay = Event::ClaimReplay {
            owner: "w".into(),
            lease_until: life.now.plus(life.policy.lease),
            is_frozen: false,
            token: TokenState::Live,
        };
        assert!(life.try_do(&replay).is_err());
    }
}

#[test]
fn a_claim_of_a_forgotten_past_does_not_fit_a_later_one() {
    let mut life = Life::new(readable());
    life.claims();
    let before = life.record.fence;
    let at = life.now;
    life.does(Event::Restored { at });
    assert!(life.record.fence > before + 1_000);
    let again = life.try_do(&Event::Restored { at }).err();
    assert_eq!(again, Some(Illegal::State), "once");
    for _ in 0..2 {
        life.later(20).reads(Lookup::Absent);
    }
    assert_eq!(life.try_do(&Event::Restored { at }).err(), Some(Illegal::NotAllowed), "once");
    let at = life.now;
    life.does(Event::Restored { at });
    life.is(State::DispatchUnknown, Reason::Restored);
}

#[test]
fn evidence_for_a_forgotten_attempt_beside_a_new_call_is_the_duplicate_guardrail() {
    let mut life = Life::new(readable());
    let at = life.now;
    life.does(Event::Restored { at });
    for _ in 0..2 {
        life.later(20).reads(Lookup::Absent);
    }
    life.claims().starts().ends(accepted());
    life.callback(2, Seen::Delivered);
    let raised = life.facts.iter().filter(|f| f.kind == FactKind::DuplicateEvidence).count();
    assert_eq!(raised, 1);
    life.is(State::Delivered, Reason::DeliveryEvidence);
}
