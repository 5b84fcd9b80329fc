//! Sample data for the tests of the pages: every state, long ids, freezes, empty pages.

use crate::model::*;

const SECOND: i64 = 1_000_000;

pub fn now() -> Stamp {
    Stamp::from_micros(1_773_454_447_204_118)
}

fn ago(seconds: i64) -> Stamp {
    now().plus(-seconds * SECOND)
}

fn count(count: u64) -> Capped {
    Capped { count, more: false }
}

pub fn frame(role: Role, path: &str) -> Frame {
    Frame {
        operator: Operator {
            id: "op_2".to_owned(),
            email: "night.oncall.rotation@example.com".to_owned(),
            role,
        },
        csrf: "csrf-token".to_owned(),
        environment: "production".to_owned(),
        version: "0.1.0".to_owned(),
        schema: "1".to_owned(),
        now: now(),
        frozen: Vec::new(),
        unknown_count: count(6),
        path: path.to_owned(),
    }
}

pub fn frozen_frame(role: Role, path: &str) -> Frame {
    Frame { frozen: vec![freeze_view("provider:northgate-sms")], ..frame(role, path) }
}

pub fn freeze_view(scope: &str) -> FreezeView {
    FreezeView {
        freeze: Freeze {
            scope: scope.to_owned(),
            actor: "operator:op_2".to_owned(),
            since: ago(432),
            reason: "Carrier answers 200 but messages do not arrive, INC-2291".to_owned(),
            review_at: Some(now().plus(1_688 * SECOND)),
            in_flight: 4,
        },
        waiting: count(312),
        in_flight_now: 1,
        unknown: count(4),
        expired: count(9),
        expire_in_5_min: 37,
        expire_in_15_min: 164,
        expire_by_review: Some(298),
        oldest_waiting_at: Some(ago(431)),
        too_late: 3,
        reads: 40,
        reads_answered: 37,
        last_answer_at: Some(ago(6)),
    }
}

pub fn record(n: u32, state: State, reason: Reason) -> Record {
    let created = ago(i64::from(n) * 37 + 476);
    Record {
        id: format!("019ceb2a-5f14-7c21-9d04-5be1a2f0{n:04x}"),
        event_id: format!("ev-{:08x}", n.wrapping_mul(2_654_435_761)),
        state,
        expires_at: created.plus(1_800 * SECOND),
        updated_at: ago(i64::from(n) * 31 + 2),
        created_at: created,
        channel: if n.is_multiple_of(3) { Channel::Email } else { Channel::Sms },
        seller_id: Some(format!("seller_{}", 1_042 + n)),
        purpose: "password_reset".to_owned(),
        attempts: 1,
        calls: 1,
        reason,
        settled: state.is_terminal(),
        frozen: false,
        next: if state.is_terminal() { Next::None } else { Next::Wait },
        retry_at: None,
    }
}

pub fn records() -> Vec<Record> {
    let mut rows = vec![
        record(0, State::Accepted, Reason::Admitted),
        record(1, State::Dispatching, Reason::Claimed),
        record(2, State::Delivered, Reason::DeliveryEvidence),
        record(3, State::DispatchUnknown, Reason::Timeout),
        record(4, State::Sent, Reason::ProviderAccepted),
        record(5, State::FailedFinal, Reason::RefusedPermanently),
        record(6, State::Sent, Reason::ReconciledFound),
        record(7, State::DispatchUnknown, Reason::LeaseLostAfterCall),
        record(8, State::Expired, Reason::ExpiredInQueue),
        record(9, State::Accepted, Reason::FrozenBeforeCall),
    ];
    rows[9].frozen = true;
    // The longest ids that admission lets in.
    rows[4].event_id = format!("reset:{}", "2026-03-14.".repeat(11));
    rows[4].seller_id = Some(format!("seller_{}", "x".repeat(110)));
    rows[5].seller_id = None;
    rows
}

pub fn overview() -> OverviewPage {
    OverviewPage {
        due: Age { count: count(11), oldest_at: Some(ago(4)) },
        backing_off: Age { count: count(3), oldest_at: Some(ago(41)) },
        frozen: Age::default(),
        unknown: Age { count: count(6), oldest_at: Some(ago(192)) },
        last_admitted_at: Some(ago(2)),
        duplicate_calls: 0,
        states: vec![
            (State::Accepted, count(14)),
            (State::Dispatching, count(2)),
            (State::DispatchUnknown, count(6)),
            (State::Sent, count(212)),
            (State::Delivered, Capped { count: 10_000, more: true }),
            (State::FailedFinal, count(87)),
            (State::Expired, count(0)),
        ],
        recent: records(),
        hour: (0..12)
            .map(|n: u64| HourPart {
                from: ago(3_600 - i64::try_from(n).unwrap_or(0) * 300),
                done: n * 3,
                open: n % 3,
                ended: n % 2,
            })
            .collect(),
        hour_more: false,
        database: "sqlite sendonce.db".to_owned(),
    }
}

pub fn empty_overview() -> OverviewPage {
    OverviewPage {
        due: Age::default(),
        backing_off: Age::default(),
        frozen: Age::default(),
        unknown: Age::default(),
        last_admitted_at: None,
        duplicate_calls: 0,
        states: State::ALL.iter().map(|&state| (state, Capped::default())).collect(),
        recent: Vec::new(),
        hour: Vec::new(),
        hour_more: false,
        database: "sqlite sendonce.db".to_owned(),
    }
}

pub fn events() -> EventsPage {
    EventsPage {
        filter: EventFilter {
            q: "after:2026-03-14T01:00Z".to_owned(),
            channel: Some(Channel::Sms),
            ..EventFilter::default()
        },
        problems: vec![
            "state: has no value “sending”; it is one of accepted, dispatching, …".to_owned(),
        ],
        has_personal_data: false,
        rows: records(),
        next_cursor: Some("bm90IGEgcmVhbCBvbmU".to_owned()),
        is_continued: true,
        total: Capped { count: 10_000, more: true },
        providers: vec!["northgate-sms".to_owned(), "heron-mail".to_owned()],
    }
}

pub fn no_events(filter: EventFilter) -> EventsPage {
    EventsPage {
        filter,
        problems: Vec::new(),
        has_personal_data: false,
        rows: Vec::new(),
        next_cursor: None,
        is_continued: false,
        total: Capped::default(),
        providers: Vec::new(),
    }
}

struct Story {
    facts: Vec<Fact>,
    start: Stamp,
}

impl Story {
    fn new(start: Stamp) -> Self {
        Self { facts: Vec::new(), start }
    }

    fn push(&mut self, after_ms: i64, kind: FactKind) -> &mut Fact {
        let seq = u32::try_from(self.facts.len()).unwrap_or(0) + 1;
        self.facts.push(Fact {
            seq,
            id: Some("019ceb2a".to_owned()),
            event_id: Some("ev-7f3a9c21".to_owned()),
            at: self.start.plus(after_ms * 1_000),
            kind,
            old_state: None,
            new_state: None,
            attempt: None,
            attempt_id: None,
            reason: None,
            provider: None,
            provider_message_id: None,
            token_id: None,
            actor: "system".to_owned(),
            detail: Detail::default(),
        });
        let last = self.facts.len() - 1;
        &mut self.facts[last]
    }

    fn go(
        &mut self,
        after_ms: i64,
        old: Option<State>,
        new: State,
        reason: Reason,
        attempt: Option<u32>,
    ) {
        let fact = self.push(after_ms, FactKind::Transition);
        fact.old_state = old;
        fact.new_state = Some(new);
        fact.reason = Some(reason);
        fact.attempt = attempt;
        if attempt.is_some() {
            fact.attempt_id = Some("at-5c0e1f72b98d4a06b98d4a065c0e1f72".to_owned());
            fact.provider = Some("northgate-sms".to_owned());
        }
    }

    fn lookup(&mut self, after_ms: i64, answer: &str, counts: i64) {
        let fact = self.push(after_ms, FactKind::Lookup);
        fact.attempt = Some(1);
        fact.provider = Some("northgate-sms".to_owned());
        fact.detail = match answer {
            "found" => Detail::default().code("answer", "found").code("seen", "accepted"),
            "absent" => Detail::default().code("answer", "absent").number("counts", counts),
            _ => Detail::default().code("answer", "cannot_tell").code("code", "http_503"),
        };
    }
}

fn unknown_story() -> Story {
    use State::{Accepted, DispatchUnknown, Dispatching};
    let mut story = Story::new(ago(476));
    story.go(0, None, Accepted, Reason::Admitted, None);
    story.facts[0].actor = "client:identity-core".to_owned();
    story.push(187, FactKind::AdmissionReplay).detail = Detail::default().number("count", 2);
    story.go(451, Some(Accepted), Dispatching, Reason::Claimed, Some(1));
    story.go(700, Some(Dispatching), Accepted, Reason::ResolverUnavailable, Some(1));
    story.go(2_914, Some(Accepted), Dispatching, Reason::Claimed, Some(1));
    let call = story.push(2_956, FactKind::Call);
    call.attempt = Some(1);
    call.attempt_id = Some("at-5c0e1f72b98d4a06b98d4a065c0e1f72".to_owned());
    call.provider = Some("northgate-sms".to_owned());
    call.detail =
        Detail::default().number("call", 1).number("authorised_by", 1).number("replay", 0);
    story.go(12_959, Some(Dispatching), DispatchUnknown, Reason::Timeout, Some(1));
    story.lookup(17_966, "absent", 0);
    story
}

pub fn long_facts() -> Vec<Fact> {
    let mut story = unknown_story();
    for i in 0..9 {
        story.lookup(30_000 + i * 30_000, if i == 4 { "cannot_tell" } else { "absent" }, 1);
    }
    story.facts
}

fn first_call() -> CallView {
    let started_at = ago(476).plus(2_956_000);
    CallView {
        number: 1,
        attempt: 1,
        is_replay: false,
        authorised_by: 1,
        started_at,
        call_by: started_at.plus(10 * SECOND),
        ended_at: Some(started_at.plus(10_003_000)),
        outcome: Some(CallOutcome::Unknown),
        provider: "northgate-sms".to_owned(),
        attempt_id: "at-5c0e1f72b98d4a06b98d4a065c0e1f72".to_owned(),
        provider_message_id: None,
    }
}

pub fn event_unknown() -> EventPage {
    let mut record = record(0, State::DispatchUnknown, Reason::Timeout);
    record.event_id = "ev-7f3a9c21".to_owned();
    record.seller_id = Some("seller_1042".to_owned());
    record.retry_at = Some(now().plus(30 * SECOND));
    EventPage {
        record,
        provider: Some("northgate-sms".to_owned()),
        provider_message_id: None,
        request_window: Some("w-20260314-0200".to_owned()),
        token_id: Some("b41d09aa7c31".to_owned()),
        facts: long_facts(),
        calls: vec![first_call()],
        earlier: Some(self::record(7, State::Delivered, Reason::DeliveryEvidence)),
        later: None,
        next_sentence: "Sendonce asks the provider again in 24 s. Nothing is sent again unless two answers after the \
                        settle time prove that the first call sent nothing."
            .to_owned(),
        answer: "We tried to send one text message for this request at 02:06 UTC and do not know yet whether it went \
                 out. We are finding out and will not send a second one on a guess. The link in it works until 02:36 \
                 UTC."
            .to_owned(),
        duplicate_calls: 0,
        attempts_max: 3,
        margin_ms: 10_000,
        next_read_at: Some(now().plus(24 * SECOND)),
        poll_until: Some(now().plus(1_324 * SECOND)),
    }
}

pub fn event_sent() -> EventPage {
    let mut story = unknown_story();
    story.lookup(80_276, "found", 0);
    let found = story.push(80_276, FactKind::Transition);
    found.old_state = Some(State::DispatchUnknown);
    found.new_state = Some(State::Sent);
    found.reason = Some(Reason::ReconciledFound);
    found.attempt = Some(1);
    found.provider = Some("northgate-sms".to_owned());
    found.provider_message_id = Some("ng-88f1-20c7".to_owned());
    let callback = story.push(107_040, FactKind::Callback);
    callback.attempt = Some(1);
    callback.provider = Some("northgate-sms".to_owned());
    callback.detail = Detail::default()
        .code("seen", "accepted")
        .number("provider_at", ago(476).plus(106_396_000).micros());
    let mut page = event_unknown();
    page.facts = story.facts;
    page.record.state = State::Sent;
    page.record.reason = Reason::ReconciledFound;
    page.provider_message_id = Some("ng-88f1-20c7".to_owned());
    page.calls[0].provider_message_id = Some("ng-88f1-20c7".to_owned());
    page.later = Some(record(9, State::Accepted, Reason::Admitted));
    page.next_sentence =
        "Sendonce asks the provider again in 24 s. Nothing will be sent again for this event."
            .to_owned();
    page
}

/// Just admitted: no attempt, no call, no seller, and held by a freeze.
pub fn event_new() -> EventPage {
    let mut page = event_unknown();
    let mut story = Story::new(ago(30));
    story.go(0, None, State::Accepted, Reason::Admitted, None);
    page.record = record(4, State::Accepted, Reason::Admitted);
    page.record.created_at = ago(30);
    page.record.expires_at = ago(30).plus(1_800 * SECOND);
    page.record.event_id = records()[4].event_id.clone();
    page.record.seller_id = None;
    page.record.frozen = true;
    page.record.attempts = 0;
    page.record.calls = 0;
    page.facts = story.facts;
    page.calls.clear();
    page.provider = None;
    page.request_window = None;
    page.token_id = None;
    page.earlier = None;
    page.next_read_at = None;
    page.poll_until = None;
    page.next_sentence =
        "It waits until dispatch reopens; if that is too late, it expires and nothing is sent."
            .to_owned();
    page
}

pub fn seller() -> SellerPage {
    let row = |n: u32, state, reason, window: Option<&str>| SellerRow {
        record: record(n, state, reason),
        request_window: window.map(str::to_owned),
        token_id: (n != 3).then(|| format!("b41d09aa7c3{n}")),
        token: if n > 0 { TokenWord::Superseded } else { TokenWord::Live },
        replaced_by: (n == 1).then(|| record(0, state, reason).id),
    };
    SellerPage {
        seller_id: "seller_1042".to_owned(),
        rows: vec![
            row(0, State::Sent, Reason::ReconciledFound, Some("w-20260314-0200")),
            row(1, State::Delivered, Reason::DeliveryEvidence, Some("w-20260314-0100")),
            row(2, State::DispatchUnknown, Reason::Timeout, Some("w-20260314-0100")),
            row(3, State::Expired, Reason::ExpiredInQueue, None),
            row(4, State::FailedFinal, Reason::Cancelled, None),
        ],
        next_cursor: Some("b2xkZXI".to_owned()),
        is_continued: false,
        total: count(17),
    }
}

pub fn unknown() -> UnknownPage {
    let row = |n: u32, provider: &str, since: i64, resolves: &str, reads: bool| UnknownRow {
        record: record(n, State::DispatchUnknown, Reason::Timeout),
        provider: provider.to_owned(),
        since: ago(since),
        reads: if reads { n + 1 } else { 0 },
        last_read_at: reads.then(|| ago(i64::from(n) + 9)),
        next_read_at: reads.then(|| now().plus(i64::from(n + 4) * SECOND)),
        attempts_left: 2,
        resolves: resolves.to_owned(),
    };
    let mut rows = vec![
        row(9, "northgate-sms", 548, "The next look-up; then a callback, or its expiry.", true),
        row(
            3,
            "northgate-sms",
            482,
            "One more “absent” confirms it; then it waits for the freeze to end.",
            true,
        ),
        row(5, "heron-mail", 38, "A look-up, then the same call again under the same key.", true),
        row(
            7,
            "tidewater-sms",
            270,
            "A callback may clear it; otherwise it expires unresolved. Not resent.",
            false,
        ),
    ];
    rows[1].record.event_id = records()[4].event_id.clone();
    UnknownPage { rows, total: count(4), oldest_at: Some(ago(548)) }
}

pub fn no_unknown() -> UnknownPage {
    UnknownPage { rows: Vec::new(), total: Capped::default(), oldest_at: None }
}

pub fn freeze(active: Vec<FreezeView>, may_freeze: bool) -> FreezePage {
    let scope = |scope: &str, waiting: u64, in_flight: u64| ScopeView {
        scope: scope.to_owned(),
        waiting: count(waiting),
        in_flight,
        frozen: active.iter().any(|view| view.freeze.scope == scope),
    };
    FreezePage {
        scopes: vec![
            scope("channel:sms", 353, 2),
            scope("channel:email", 6, 1),
            scope("provider:northgate-sms", 312, 0),
            scope("provider:heron-mail", 6, 1),
            scope("all", 359, 3),
        ],
        active,
        release_per_second: 50,
        call_timeout_ms: 5_000,
        margin_ms: 10_000,
        may_freeze,
        action_key: "one-time-key".to_owned(),
    }
}

pub fn refused_form() -> FormState {
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    FormState {
        problem: Some("Nothing was frozen: two fields need a look.".to_owned()),
        fields: vec![
            pair("reason", "Leave out phone numbers: this text is kept for ever."),
            pair("confirm", "Type the word all."),
        ],
        typed: vec![
            pair("act", "freeze"),
            pair("scope", "all"),
            pair("reason", "INC-2291, call the number in the ticket"),
            pair("confirm", "al"),
        ],
        notice: None,
    }
}

pub fn policy(may_close: bool) -> PolicyPage {
    let sums = |messages, price, stopped| CountrySums { messages, price, stopped };
    let breaker = |state: &str| BreakerView {
        state: state.to_owned(),
        cause: Some("price".to_owned()),
        since: ago(340),
        probes_at: (state == "open").then(|| now().plus(560 * SECOND)),
        actor: "system".to_owned(),
        reason: None,
        messages_max: Some(500),
        price_max: Some(20_000_000),
        window_ms: 3_600_000,
    };
    let country = |country: &str, state: Option<&str>, stopped| CountryView {
        country: country.to_owned(),
        last_hour: sums(31, 244_900, stopped),
        last_day: sums(1_204, 9_511_600, stopped),
        price: (country != "ZZ").then_some(7_900),
        breaker: state.map(breaker),
    };
    PolicyPage {
        is_monitor: false,
        currency: "USD".to_owned(),
        rules: vec![
            ("limits.seller".to_owned(), "5 per 15m".to_owned()),
            ("policy.after_unknown".to_owned(), "now".to_owned()),
        ],
        countries: vec![
            country("LV", Some("open"), 4_960),
            country("EE", Some("half_open"), 12),
            country("US", Some("closed"), 0),
            country("ZZ", None, 0),
        ],
        more: true,
        may_close,
        action_key: "one-time-key".to_owned(),
    }
}

pub fn providers() -> Vec<ProviderView> {
    let provider = |name: &str, kind: &str, read: bool, paused: bool| ProviderView {
        name: name.to_owned(),
        kind: kind.to_owned(),
        channels: vec![Channel::Sms],
        can_be_read: read,
        settle_ms: read.then_some(120_000),
        replay_window_ms: read.then_some(86_400_000),
        has_callbacks: read,
        paused_until: paused.then(|| now().plus(300 * SECOND)),
        pause_code: paused.then(|| "insufficient_balance".to_owned()),
    };
    vec![
        provider("northgate-sms", "twilio", true, true),
        provider("heron-mail", "postmark", true, false),
        provider("tidewater-sms", "smtp", false, false),
    ]
}

pub fn workers() -> Vec<WorkerView> {
    let worker = |id: &str, seen: i64| WorkerView {
        id: id.to_owned(),
        version: "0.1.0".to_owned(),
        semantics: 1,
        roles: "api, dispatch, reconcile, ui".to_owned(),
        started_at: ago(90_000),
        seen_at: ago(seen),
    };
    vec![
        worker("019ceb2a-5f14-7c21-9d04-5be1a2f0c6d8", 1),
        worker("019ceb2a-1111-7c21-9d04-5be1a2f0c6d8", 95),
    ]
}

pub fn users() -> UsersPage {
    let user = |id: &str, email: &str, role, disabled: bool| UserRow {
        user: UserView {
            id: id.to_owned(),
            email: email.to_owned(),
            role,
            created_at: ago(900_000),
            disabled_at: disabled.then(|| ago(4_000)),
        },
        has_second_factor: role == Role::Oncall,
        is_external: disabled,
        sessions: u64::from(!disabled),
    };
    UsersPage {
        rows: vec![
            user("op_1", "admin@example.com", Role::Admin, false),
            user("op_2", "night.oncall.rotation@example.com", Role::Oncall, false),
            user("op_3", "former@example.com", Role::Support, true),
        ],
        action_key: "action-key-000000".to_owned(),
        ..UsersPage::default()
    }
}

pub fn clients() -> ClientsPage {
    let scopes = ["admit", "status", "consume", "cancel", "freeze"].map(str::to_owned).to_vec();
    ClientsPage {
        rows: vec![
            ClientView {
                id: "cl_1".to_owned(),
                name: "identity-core".to_owned(),
                scopes: scopes[..4].to_vec(),
                created_at: ago(900_000),
                revoked_at: None,
            },
            ClientView {
                id: "cl_2".to_owned(),
                name: "old-batch".to_owned(),
                scopes: Vec::new(),
                created_at: ago(900_000),
                revoked_at: Some(ago(100)),
            },
        ],
        action_key: "action-key-000000".to_owned(),
        scopes,
        ..ClientsPage::default()
    }
}

pub fn config() -> ConfigPage {
    let line = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    ConfigPage {
        sections: vec![
            ConfigSection {
                name: "dispatch".to_owned(),
                lines: vec![line("margin", "\"10s\""), line("attempts_max", "3")],
            },
            ConfigSection {
                name: "providers.post".to_owned(),
                lines: vec![line("kind", "\"postmark\""), line("token", "\"[hidden]\"")],
            },
        ],
        digest: "0123456789abcdef".to_owned(),
        database: "sqlite sendonce.db".to_owned(),
    }
}

pub fn account(owes: Option<Owes>) -> AccountPage {
    let session = |handle: &str, is_this, agent: &str| SessionView {
        handle: handle.to_owned(),
        is_this,
        agent: agent.to_owned(),
        signed_in_at: ago(7_200),
        seen_at: ago(30),
        expires_at: now().plus(3_600 * SECOND),
    };
    AccountPage {
        action_key: "action-key-000000".to_owned(),
        sessions: vec![
            session("a1", true, "Firefox on Linux"),
            session("b2", false, "Chrome on Windows"),
            session("c3", false, "Safari on iOS"),
        ],
        owes,
        ..AccountPage::default()
    }
}

pub fn factor_on() -> AccountPage {
    AccountPage {
        factor: FactorView {
            confirmed_at: Some(ago(5)),
            recovery_left: 2,
            enrolment: None,
            recovery_codes: vec!["abcde-fghjk".to_owned(), "mnpqr-stuvw".to_owned()],
        },
        ..account(None)
    }
}

pub fn factor_enrolling() -> AccountPage {
    let picture = "<svg viewBox=\"0 0 2 2\" width=\"200\" height=\"200\"></svg>".to_owned();
    AccountPage {
        factor: FactorView {
            enrolment: Some((picture, "JBSWY3DPEHPK3PXP".to_owned())),
            ..FactorView::default()
        },
        form: FormState {
            fields: vec![("code".to_owned(), "This code is not right.".to_owned())],
            ..FormState::default()
        },
        ..account(Some(Owes::SecondFactor))
    }
}

pub fn evidence() -> EvidencePage {
    let mut fact = log().rows.swap_remove(0);
    fact.kind = FactKind::Operator;
    fact.detail = Detail::default()
        .code("what", "export")
        .code("sha256", &"0f".repeat(32))
        .number("facts", 14);
    EvidencePage {
        origin: "sendonce.example.com/sendonce/1f2e3d4c".to_owned(),
        size: 1_042,
        sealed_at: Some(ago(2)),
        unsealed: 3,
        unsealed_since: Some(ago(1)),
        verdict: Some(EvidenceVerdict {
            integrity: true,
            completeness: false,
            size: 1_000,
            at: ago(3_600),
        }),
        facts_max: 20_000,
        taken: vec![fact],
    }
}

pub fn log() -> LogPage {
    let act = |seq: u32, kind, detail: Detail| Fact {
        seq,
        id: None,
        event_id: None,
        at: ago(i64::from(seq)),
        kind,
        old_state: None,
        new_state: None,
        attempt: None,
        attempt_id: None,
        reason: None,
        provider: None,
        provider_message_id: None,
        token_id: None,
        actor: "operator:op_2".to_owned(),
        detail,
    };
    let what = |what: &str| Detail::default().code("what", what);
    LogPage {
        rows: vec![
            act(
                9,
                FactKind::Freeze,
                Detail::default().code("scope", "channel:sms").number("in_flight", 2),
            ),
            act(
                8,
                FactKind::Operator,
                what("view_event").code("record", "0193a5b0-7c1e-7d3f-8a2b-0000000000aa"),
            ),
            act(7, FactKind::Operator, what("lookup").code("by", "phone").number("found", 2)),
            act(
                6,
                FactKind::Operator,
                what("search").code("state", "sent").number("after", 1_773_454_447_000_000),
            ),
            act(
                5,
                FactKind::Config,
                Detail::default().code("setting", "dispatch.margin").code("after", "10s"),
            ),
        ],
        total: count(5),
        names: vec![("op_2".to_owned(), "night.oncall.rotation@example.com".to_owned())],
        export_rows_max: 10_000,
        ..LogPage::default()
    }
}

pub fn lookup(is_found: bool) -> LookupPage {
    let rows = if is_found { events().rows } else { Vec::new() };
    LookupPage {
        kind: LookupKind::Phone,
        found: Some(LookupFound { rows, more: false }),
        ..LookupPage::default()
    }
}

pub fn setup() -> SetupPage {
    SetupPage {
        environment: "staging".to_owned(),
        csrf: "csrf-token".to_owned(),
        token: "t".to_owned(),
        ..SetupPage::default()
    }
}

pub fn login(problem: bool) -> LoginPage {
    LoginPage {
        environment: "staging".to_owned(),
        version: "0.1.0".to_owned(),
        csrf: "csrf-token".to_owned(),
        next: "/events?state=sent".to_owned(),
        email: if problem { "someone@example.com".to_owned() } else { String::new() },
        problem: problem
            .then(|| "Email and password do not match, or the account is disabled.".to_owned()),
        notice: None,
        pending: None,
        oidc: None,
    }
}

fn slo_counts(judged: u64, missed: u64, frozen: u64) -> SloCounts {
    SloCounts { judged, in_time: judged - missed, frozen, left_out: 2 }
}

fn slo_channel(channel: Channel, is_busy: bool) -> SloChannel {
    let part = |n: i64, every: i64| {
        let judged = if is_busy { 900 + 13 * u64::try_from(n).unwrap_or(0) } else { 0 };
        let missed = match n % 11 {
            0 if is_busy => 31,
            3 if is_busy => 5,
            _ => 0,
        };
        SloPart { at: ago(n * every), counts: slo_counts(judged, missed, missed / 4) }
    };
    let (long, short) = if is_busy {
        (slo_counts(1_000, 80, 4), slo_counts(90, 12, 0))
    } else {
        (SloCounts::default(), SloCounts::default())
    };
    let burns = BURN_RULES
        .iter()
        .map(|rule| Burn {
            rule: rule.rule,
            severity: rule.severity,
            long: rule.long.to_owned(),
            short: rule.short.to_owned(),
            long_counts: long,
            short_counts: short,
            long_milli: if is_busy { 15_200 } else { 0 },
            short_milli: if is_busy { 26_600 } else { 0 },
            factor_milli: rule.factor_milli,
            is_enough: is_busy,
            is_over: is_busy && rule.rule == AlertRule::BurnFast,
        })
        .collect();
    let period = if is_busy { slo_counts(31_204, 180, 44) } else { SloCounts::default() };
    SloChannel {
        channel,
        period,
        attained_ppm: is_busy.then_some(994_231),
        budget_left_milli: if is_busy { -154 } else { 1_000 },
        burns,
        days: (0..30).rev().map(|n| part(n, 86_400)).collect(),
        hours: (0..24).rev().map(|n| part(n, 3_600)).collect(),
    }
}

pub fn slo(is_busy: bool) -> SloPage {
    SloPage {
        target_ppm: 995_000,
        window_ms: 60_000,
        period_days: 30,
        events_min: 50,
        judged_to: ago(67),
        channels: vec![slo_channel(Channel::Sms, is_busy), slo_channel(Channel::Email, false)],
        margins: if is_busy {
            vec![MarginAdvice {
                channel: Channel::Sms,
                provider: "northgate-sms".to_owned(),
                delivered: 12_004,
                useless: 17,
                p50_ms: Some(3_000),
                p95_ms: Some(20_000),
                p99_ms: None,
                margin_ms: 10_000,
                within_margin_milli: Some(871),
            }]
        } else {
            Vec::new()
        },
    }
}

pub fn alert(rule: AlertRule, state: AlertState) -> Alert {
    let is_acked = state == AlertState::Acknowledged;
    Alert {
        id: format!("al-{}-{state}", rule.as_str()),
        rule,
        subject: if rule == AlertRule::BurnFast { "sms".to_owned() } else { String::new() },
        severity: Severity::Page,
        state,
        opened_at: ago(400),
        fired_at: (state != AlertState::Pending).then(|| ago(340)),
        clear_at: is_acked.then(|| ago(20)),
        ended_at: (state == AlertState::Resolved).then(|| ago(10)),
        updated_at: ago(3),
        count: 100,
        oldest_at: Some(ago(431)),
        value: 431 * SECOND,
        acked_at: is_acked.then(|| ago(100)),
        acked_by: is_acked.then(|| "user:op_2".to_owned()),
        ack_reason: is_acked.then(|| "INC-2291, provider called".to_owned()),
    }
}

pub fn alerts(may_acknowledge: bool) -> AlertsPage {
    AlertsPage {
        open: vec![
            alert(AlertRule::QueueAge, AlertState::Firing),
            alert(AlertRule::BurnFast, AlertState::Firing),
            alert(AlertRule::UnknownAge, AlertState::Acknowledged),
            alert(AlertRule::ProviderFailing, AlertState::Pending),
        ],
        past: vec![alert(AlertRule::WorkerTicks, AlertState::Resolved)],
        troubles: vec![DeliveryTrouble {
            target: "webhook".to_owned(),
            rule: AlertRule::QueueAge,
            event: "firing".to_owned(),
            tries: 3,
            code: Some("connect".to_owned()),
            next_at: now().plus(40 * SECOND),
            is_given_up: false,
        }],
        targets: vec!["webhook".to_owned(), "email".to_owned()],
        may_acknowledge,
        action_key: "0123456789abcdef0123456789abcdef".to_owned(),
    }
}

pub fn runbook() -> RunbookPage {
    let text = |text: &str| RunbookInline::Text(text.to_owned());
    RunbookPage {
        title: "Runbook".to_owned(),
        lead: vec![RunbookBlock::Text(vec![text("For whoever is woken.")])],
        sections: vec![RunbookSection {
            anchor: "queue".to_owned(),
            title: "Queue".to_owned(),
            blocks: vec![
                RunbookBlock::Steps(vec![vec![
                    text("Look at "),
                    RunbookInline::Code("/workers".to_owned()),
                    text(" first."),
                ]]),
                RunbookBlock::Points(vec![vec![RunbookInline::Strong("Then:".to_owned())]]),
            ],
        }],
    }
}

pub fn capacity() -> CapacityPage {
    let input = |name: &str, value: &str, source| CapacityInput {
        name: name.to_owned(),
        value: value.to_owned(),
        source,
    };
    let need = |name: &str, value: &str, configured: Option<&str>, is_short| CapacityNeed {
        name: name.to_owned(),
        key: if configured.is_some() { "dispatch.workers".to_owned() } else { String::new() },
        value: value.to_owned(),
        configured: configured.map(str::to_owned),
        is_short,
        why: "peak times the time of a call".to_owned(),
    };
    CapacityPage {
        inputs: vec![
            input("Busiest minute of the last 7 days", "311", Source::Measured),
            input("A call takes, ms", "500", Source::Guess),
        ],
        needs: vec![
            need("Dispatch workers", "7", Some("8"), false),
            need("Dispatch workers while a provider hangs", "52", Some("8"), true),
            need("Rows a day", "1204882", None, false),
        ],
    }
}
