//! `/events/{id}`: one event's whole story.

use std::collections::{BTreeMap, BTreeSet};

use leptos::prelude::*;

use super::facts::{authority_text, detail_pair, fact_icon, fact_text, fact_title};
use crate::components::{
    Layout, Tone, ago, bar, clock, clock_millis, clock_zone, counted, exact, gap, head, held_mark,
    icon, id, id_whole, note, page, percent_passed, relative, seller_link, short_span, span,
    state_badge, state_big, zone,
};
use crate::model::{
    CallOutcome, CallView, EventPage, Fact, FactKind, Frame, Reason, Record, Stamp, State,
};

/// This many steps of the path are shown; what lies between is in the timeline.
const PATH_MAX: usize = 8;
/// Runs of at least this many look-ups that changed nothing are folded into one entry.
const RUN_MIN: usize = 4;

/// The page of one event.
pub fn event(frame: Frame, data: EventPage, options: LeptosOptions) -> impl IntoView + use<> {
    let now = frame.now;
    let record = &data.record;
    let topic = format!("event:{}", record.id);
    let later = data.later.as_ref().map(|later| later_note(record, later));
    let content = view! {
        {head(title(record), None, now, Some(&topic))}
        {later}
        <section class="panel hero" aria-label="State" data-live="state">{hero(&data, now)}</section>
        <div class="grid side event">
            <div class="stack">
                <section class="panel answer" aria-labelledby="answer-h" data-live="answer">{answer(&data)}</section>
                <section class="panel" aria-labelledby="timeline-h" data-live="timeline">
                    <header>
                        <h2 id="timeline-h">"Timeline"</h2>
                        <p>
                            {counted(data.facts.len() as u64, "fact", "facts")}", oldest first, our clock in "
                            {zone()}
                        </p>
                    </header>
                    <div class="body">{timeline(&data, now)}</div>
                </section>
            </div>
            <div class="stack">
                <section class="panel" aria-labelledby="proof-h" data-live="proof">{proof(&data, now)}</section>
                <section class="panel" aria-labelledby="attempts-h" data-live="attempts">
                    {attempts(&data, now)}
                </section>
                <section class="panel" aria-labelledby="record-h" data-live="record">{record_panel(&data, now)}</section>
            </div>
        </div>
    };
    let layout = Layout::new(format!("Event {}", record.event_id)).live(topic);
    page(frame, options, layout, content.into_any())
}

fn title(record: &Record) -> AnyView {
    let seller = record.seller_id.as_deref().map(|seller| {
        let seller = seller_link(Some(seller));
        view! { " / "{seller} }
    });
    view! {
        <p class="crumb"><a href="/events">"Events"</a>{seller}</p>
        <h1 class="title" aria-label=format!("Event {}, notification {}", record.event_id, record.id)>
            {id_whole("event id", &record.event_id)}
            <small>"notification "{id_whole("notification id", &record.id)}</small>
        </h1>
    }
    .into_any()
}

fn later_note(record: &Record, later: &Record) -> AnyView {
    let seller = record.seller_id.clone().unwrap_or_default();
    let href = format!("/events/{}", later.id);
    note(
        Tone::Plain,
        view! {
            "There is a later request of "{seller}": "<a href=href><code>{later.event_id.clone()}</code></a>
            ", "{later.state.as_str()}"."
        },
    )
    .into_any()
}

/// What may happen next, in a few words before the sentence of the server. Where nothing will, that sentence
/// says so by itself ("Nothing: it is over.").
fn next_words(record: &Record) -> &'static str {
    match (record.state, record.frozen) {
        (State::Accepted, true) => "Next: wait for dispatch to reopen.",
        (State::Accepted, false) => "Next: wait for a worker.",
        (State::Dispatching, _) => "Next: wait for the answer of the call.",
        (State::DispatchUnknown, _) => "Next: find out what happened, before anything else.",
        (State::Sent, _) if !record.settled => "Next: wait for the delivery report.",
        _ => "What happens next?",
    }
}

fn hero(data: &EventPage, now: Stamp) -> impl IntoView + use<> {
    let record = &data.record;
    let until = record.expires_at;
    let passed = percent_passed(record.created_at, until, now);
    let is_open = until > now;
    // A link that was never sent works for nobody, however much of its time is left.
    let is_unsent = matches!(record.state, State::FailedFinal | State::Expired);
    let words = match (is_unsent, is_open) {
        (true, true) => "Its time runs until ",
        (true, false) => "Its time ran until ",
        (false, true) => "Link works until ",
        (false, false) => "Link worked until ",
    };
    let left = match (is_unsent, is_open) {
        (false, true) => format!("{} left", span(until.since(now))),
        (true, true) => "no longer used".to_owned(),
        (_, false) => "over".to_owned(),
    };
    let whole = until.since(record.created_at);
    let bar_name = if is_open {
        format!("{passed} percent of the link's {} have passed", span(whole))
    } else {
        "The link's time is over".to_owned()
    };
    view! {
        <div class="now">
            <p class="states">{state_big(record.state)}{held_mark(record)}</p>
            <p class="next"><b>{next_words(record)}</b>" "{data.next_sentence.clone()}</p>
        </div>
        <div class="life">
            <p>
                <span>{words}{clock_zone(until, now)}</span>
                <b>{left}</b>
            </p>
            {bar(passed, None, bar_name)}
            <p class="muted">
                <span>"Admitted "{clock(record.created_at, now)}</span>
                <span>{span(whole)}</span>
            </p>
        </div>
        {path(data, now)}
    }
}

struct Step {
    state: State,
    since: Stamp,
    note: String,
}

/// The states passed, from the transitions among the facts.
fn steps(facts: &[Fact], now: Stamp) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for fact in facts.iter().filter(|fact| fact.kind == FactKind::Transition) {
        let Some(state) = fact.new_state else { continue };
        if let Some(last) = steps.last_mut() {
            last.note = span_fine(fact.at.since(last.since));
        }
        steps.push(Step { state, since: fact.at, note: String::new() });
    }
    if let Some(last) = steps.last_mut() {
        last.note = if last.state.is_terminal() {
            last.since.clock()
        } else {
            format!("{} so far", span(now.since(last.since)))
        };
    }
    steps
}

fn span_fine(micros: i64) -> String {
    gap(micros).trim_start_matches('+').to_owned()
}

fn path(data: &EventPage, now: Stamp) -> impl IntoView + use<> {
    let mut steps = steps(&data.facts, now);
    let mut between = 0;
    if steps.len() > PATH_MAX {
        between = steps.len() - PATH_MAX;
        steps.drain(2..2 + between);
    }
    let last = steps.len().saturating_sub(1);
    let items = steps
        .into_iter()
        .enumerate()
        .map(|(i, step)| {
            let fold = (between > 0 && i == 2).then(|| {
                view! {
                    <li class="todo">{counted(between as u64, "change", "changes")}<br />"in the timeline"</li>
                }
            });
            view! {
                {fold}
                <li data-state=step.state.as_str() aria-current=(i == last).then_some("step")>
                    {state_badge(step.state)}<span>{step.note}</span>
                </li>
            }
        })
        .collect_view();
    let todo = match data.record.state {
        State::Accepted | State::Dispatching => Some((State::Sent, "not yet")),
        State::Sent if !data.record.settled => Some((State::Delivered, "waits for the report")),
        _ => None,
    };
    let todo = todo.map(|(state, words)| {
        view! { <li class="todo" data-state=state.as_str()>{state_badge(state)}<span>{words}</span></li> }
    });
    view! { <ol class="path" aria-label="Path through the states">{items}{todo}</ol> }
}

fn answer(data: &EventPage) -> impl IntoView + use<> {
    view! {
        <header>
            <h2 id="answer-h">"Answer for support"</h2>
            <button class="btn needs-script no-print" type="button" data-copy=data.answer.clone()>
                {icon("copy")}"Copy answer"
            </button>
        </header>
        <div class="body">
            <blockquote>{data.answer.clone()}</blockquote>
            <p class="foot">"Safe to read out or paste: it holds no address, number or link."</p>
        </div>
    }
}

enum Entry<'a> {
    One(&'a Fact),
    Run(&'a [Fact]),
}

/// Folds long runs of look-ups that changed nothing.
fn entries(facts: &[Fact]) -> Vec<Entry<'_>> {
    let is_quiet = |fact: &Fact| fact.kind == FactKind::Lookup && fact.new_state.is_none();
    let mut entries = Vec::new();
    let mut rest = facts;
    while let Some(first) = rest.first() {
        let run = rest.iter().take_while(|fact| is_quiet(fact)).count();
        if run >= RUN_MIN {
            let (folded, after) = rest.split_at(run);
            entries.push(Entry::Run(folded));
            rest = after;
        } else {
            entries.push(Entry::One(first));
            rest = &rest[1..];
        }
    }
    entries
}

fn timeline(data: &EventPage, now: Stamp) -> AnyView {
    if data.facts.is_empty() {
        return view! { <p class="muted">"No fact of this event can be read. That should not happen; tell an admin."</p> }
            .into_any();
    }
    let mut before: Option<Stamp> = None;
    let mut state: Option<State> = None;
    let mut day: Option<String> = None;
    let mut items: Vec<AnyView> = Vec::new();
    for entry in entries(&data.facts) {
        let first = match entry {
            Entry::One(fact) => fact,
            Entry::Run(run) => &run[0],
        };
        let date = first.at.date();
        let new_day = (day.as_ref() != Some(&date)).then(|| date.clone());
        match entry {
            Entry::One(fact) => {
                if fact.kind == FactKind::Transition && fact.new_state.is_some() {
                    state = fact.new_state;
                }
                items.push(timeline_item(fact, before, state, new_day));
                before = Some(fact.at);
            }
            Entry::Run(run) => {
                items.push(timeline_run(run, before, state, new_day, now));
                before = run.last().map(|fact| fact.at);
            }
        }
        day = Some(date);
    }
    view! { <ol class="tl">{items}</ol> }.into_any()
}

/// While the outcome is unknown the rail between entries says so.
fn rail(state: Option<State>) -> Option<&'static str> {
    (state == Some(State::DispatchUnknown)).then_some("unknown")
}

fn timeline_item(
    fact: &Fact,
    before: Option<Stamp>,
    state: Option<State>,
    new_day: Option<String>,
) -> AnyView {
    let anchor = format!("fact-{}", fact.seq);
    let own_state = (fact.kind == FactKind::Transition).then_some(fact.new_state).flatten();
    let step = before.map_or_else(String::new, |before| gap(fact.at.since(before)));
    let clocks = provider_clock(fact);
    view! {
        <li id=anchor.clone() data-key=anchor.clone() data-state=own_state.map(State::as_str) data-gap=rail(state)>
            <div class="at">
                {new_day.map(|day| view! { <span class="day">{day}</span> })}
                {clock_millis(fact.at)}<span>{step}</span>
            </div>
            <span class="dot">{icon(fact_icon(fact))}</span>
            <div class="what">
                <div class="l">
                    <h3>{fact_title(fact)}</h3>
                    <a class="seq" href=format!("#{anchor}") aria-label=format!("Link to fact {}", fact.seq)>
                        {format!("#{}", fact.seq)}
                    </a>
                </div>
                <p>{fact_text(fact)}</p>
                {clocks}
                <details class="fold">
                    <summary>{icon("chev")}{fold_summary(fact)}</summary>
                    <div class="in">{fact_details(fact)}</div>
                </details>
            </div>
        </li>
    }
    .into_any()
}

fn fold_summary(fact: &Fact) -> AnyView {
    let code = match (fact.kind, fact.reason) {
        (FactKind::Transition, Some(reason)) => reason.as_str(),
        (kind, _) => kind.as_str(),
    };
    let attempt = fact.attempt.map(|n| format!(", attempt {n}"));
    view! {
        <span><code>{code}</code>{attempt}<span class="vh">{format!(", details of fact {}", fact.seq)}</span></span>
    }.into_any()
}

/// The provider's own time beside ours, where the fact holds one.
fn provider_clock(fact: &Fact) -> Option<AnyView> {
    let at = Stamp::from_micros(fact.detail.get_number("provider_at")?);
    let lag = fact.at.since(at);
    let ours = match fact.kind {
        FactKind::Callback => "received",
        FactKind::Lookup => "read",
        _ => "recorded",
    };
    let lag = if lag >= 0 {
        format!("{ours}, {} later", span_fine(lag))
    } else {
        format!("{ours}; their clock is {} ahead", span_fine(-lag))
    };
    Some(
        view! {
            <dl class="clocks">
                <dt>"Provider"</dt><dd>{clock_millis(at)}</dd><dd class="by">"its own clock"</dd>
                <dt>"Ours"</dt><dd>{clock_millis(fact.at)}</dd><dd class="by">{lag}</dd>
            </dl>
        }
        .into_any(),
    )
}

fn fact_details(fact: &Fact) -> AnyView {
    let row = |name: String, value: AnyView| view! { <dt>{name}</dt><dd>{value}</dd> };
    let code = |text: &str| view! { <code>{text.to_owned()}</code> }.into_any();
    let mut rows = vec![row("Time".to_owned(), exact(fact.at).into_any())];
    if let (old, Some(new)) = (fact.old_state, fact.new_state) {
        let words = match old {
            Some(old) => format!("{old} to {new}"),
            None => format!("starts as {new}"),
        };
        rows.push(row("State".to_owned(), words.into_any()));
    }
    if let Some(reason) = fact.reason {
        rows.push(row("Reason".to_owned(), code(reason.as_str())));
    }
    rows.push(row("Kind".to_owned(), code(fact.kind.as_str())));
    if let Some(attempt) = fact.attempt {
        rows.push(row("Attempt".to_owned(), attempt.to_string().into_any()));
    }
    if let Some(attempt_id) = &fact.attempt_id {
        rows.push(row("Attempt id".to_owned(), id("attempt id", attempt_id).into_any()));
    }
    if let Some(provider) = &fact.provider {
        rows.push(row("Provider".to_owned(), provider.clone().into_any()));
    }
    if let Some(message) = &fact.provider_message_id {
        rows.push(row("Provider's id".to_owned(), id("provider message id", message).into_any()));
    }
    if let Some(token) = &fact.token_id {
        rows.push(row("Token".to_owned(), code(token)));
    }
    rows.push(row("By".to_owned(), code(&fact.actor)));
    for (name, value) in &fact.detail.0 {
        let (label, text) = detail_pair(name, value);
        rows.push(row(label, text.into_any()));
    }
    view! { <dl class="kv">{rows}</dl> }.into_any()
}

fn timeline_run(
    run: &[Fact],
    before: Option<Stamp>,
    state: Option<State>,
    new_day: Option<String>,
    now: Stamp,
) -> AnyView {
    let (first, last) = (&run[0], &run[run.len() - 1]);
    let step = before.map_or_else(String::new, |before| gap(first.at.since(before)));
    let mut inner_before = before;
    let items: Vec<AnyView> = run
        .iter()
        .map(|fact| {
            let item = timeline_item(fact, inner_before, state, None);
            inner_before = Some(fact.at);
            item
        })
        .collect();
    view! {
        <li class="run" data-key=format!("run-{}", first.seq) data-gap=rail(state)>
            <div class="at">
                {new_day.map(|day| view! { <span class="day">{day}</span> })}
                {clock_millis(first.at)}<span>{step}</span>
            </div>
            <span class="dot">{icon("eye")}</span>
            <div class="what">
                <div class="l">
                    <h3>{counted(run.len() as u64, "look-up", "look-ups")}" that changed nothing"</h3>
                    <span class="seq">{format!("#{} to #{}", first.seq, last.seq)}</span>
                </div>
                <p>"The last one at "{clock(last.at, now)}": "{fact_title(last).to_lowercase()}". "{fact_text(last)}</p>
                <details class="fold">
                    <summary>{icon("chev")}"Show all of them"</summary>
                    <ol class="tl in-run">{items}</ol>
                </details>
            </div>
        </li>
    }
    .into_any()
}

/// A link to an entry of the timeline.
fn fact_ref(seq: u32) -> impl IntoView {
    view! { <a href=format!("#fact-{seq}")>{format!("fact #{seq}")}</a> }
}

fn outcome_words(outcome: Option<CallOutcome>, is_running: bool) -> &'static str {
    match outcome {
        Some(CallOutcome::Accepted) => "taken by the provider",
        Some(CallOutcome::NotSent) => "certainly not sent",
        Some(CallOutcome::RateLimited) => "refused: rate limit",
        Some(CallOutcome::TransientRefusal) => "refused for now",
        Some(CallOutcome::ProviderStopped) => "refused: the provider takes no calls",
        Some(CallOutcome::RefusedPermanently) => "refused for good",
        Some(CallOutcome::Unknown) => "unknown",
        None if is_running => "running",
        None => "not recorded, counts as unknown",
    }
}

/// The facts that say what became of a call's attempt after the call itself: the first one that counts.
fn resolution<'a>(facts: &'a [Fact], call: &CallView) -> Option<&'a Fact> {
    facts.iter().find(|fact| {
        fact.kind == FactKind::Transition
            && fact.attempt == Some(call.attempt)
            && fact.at >= call.started_at
            && matches!(
                fact.reason,
                Some(
                    Reason::ReconciledFound
                        | Reason::ReconciledDelivered
                        | Reason::ReconciledFailed
                        | Reason::ReconciledAbsent
                        | Reason::ExpiredUnresolved
                )
            )
    })
}

fn proof(data: &EventPage, now: Stamp) -> impl IntoView + use<> {
    let messages: BTreeSet<&str> = data
        .calls
        .iter()
        .filter_map(|call| call.provider_message_id.as_deref())
        .chain(data.facts.iter().filter_map(|fact| fact.provider_message_id.as_deref()))
        .collect();
    let callbacks = data.facts.iter().filter(|fact| fact.kind == FactKind::Callback).count();
    let warnings =
        data.facts.iter().filter(|fact| fact.kind == FactKind::DuplicateEvidence).count();
    let holds = data.duplicate_calls == 0 && warnings == 0 && messages.len() <= 1;
    let verdict = if holds {
        view! { <span class="verdict good">{icon("shield")}"holds"</span> }.into_any()
    } else {
        view! { <span class="verdict bad">{icon("alert")}"look at this"</span> }.into_any()
    };
    let alarm = (!holds).then(|| {
        let text = if data.duplicate_calls > 0 {
            "A call has no fact that authorises it. Freeze the scope and keep the evidence of this event."
        } else if warnings > 0 {
            "Evidence for an earlier attempt came after a later call had started: there may be two messages."
        } else {
            "The provider names more than one message for this event."
        };
        note(Tone::Bad, text)
    });
    let calls: Vec<AnyView> = data.calls.iter().map(|call| call_proof(data, call, now)).collect();
    view! {
        <header><h2 id="proof-h">"Duplicate proof"</h2>{verdict}</header>
        <div class="body">
            {alarm}
            <dl class="sums">
                <div><dt>{if data.calls.len() == 1 { "call" } else { "calls" }}</dt>
                    <dd>{data.calls.len().to_string()}</dd></div>
                <div><dt>{if messages.len() == 1 { "message" } else { "messages" }}</dt>
                    <dd>{messages.len().to_string()}</dd></div>
                <div><dt>{if callbacks == 1 { "callback" } else { "callbacks" }}</dt>
                    <dd>{callbacks.to_string()}</dd></div>
                <div><dt>"unproven"</dt><dd>{data.duplicate_calls.to_string()}</dd></div>
            </dl>
            {calls}
            <div class="proof">
                <h3>{format!("Call {}", data.calls.len() + 1)}</h3>
                <p class="soft">{next_call_words(data)}</p>
            </div>
        </div>
    }
}

fn call_proof(data: &EventPage, call: &CallView, now: Stamp) -> AnyView {
    let authority = data.facts.iter().find(|fact| fact.seq == call.authorised_by);
    let why =
        authority.map_or_else(|| "a fact that is not on this page".to_owned(), authority_text);
    let is_running =
        data.record.state == State::Dispatching && call.number as usize == data.calls.len();
    let marker = data.facts.iter().find(|fact| {
        fact.kind == FactKind::Call
            && (fact.detail.get_number("call") == Some(i64::from(call.number))
                || fact.at == call.started_at)
    });
    let then = resolution(&data.facts, call)
        .filter(|_| !matches!(call.outcome, Some(CallOutcome::Accepted)))
        .map(|fact| {
            view! { ", then "{fact_title(fact).to_lowercase()}" ("{fact_ref(fact.seq)}")" }
        });
    let name = if call.is_replay {
        format!("Call {}, a repeat of attempt {}", call.number, call.attempt)
    } else {
        format!("Call {}", call.number)
    };
    view! {
        <div class="proof stack-s" data-key=format!("call-{}", call.number)>
            <h3>{name}</h3>
            <dl class="kv">
                <dt>"Allowed by"</dt>
                <dd>{why}" ("{fact_ref(call.authorised_by)}")"</dd>
                <dt>"Marker"</dt>
                <dd>
                    {clock_millis(call.started_at)}
                    {marker.map(|fact| view! { ", "{fact_ref(fact.seq)} })}
                </dd>
                <dt>"Outcome"</dt>
                <dd>{outcome_words(call.outcome, is_running)}{then}</dd>
                <dt>"Provider"</dt>
                <dd>{call.provider.clone()}</dd>
                {call.provider_message_id.as_ref().map(|message| view! {
                    <dt>"Provider's id"</dt><dd>{id("provider message id", message)}</dd>
                })}
                <dt>"Ended"</dt>
                <dd>
                    {match call.ended_at {
                        Some(at) => view! {
                            {clock_millis(at)}" "<span class="muted">"after "{span_fine(at.since(call.started_at))}</span>
                        }.into_any(),
                        None => view! {
                            <span class="muted">"not recorded; nothing of it can leave after "</span>
                            {clock(call.call_by, now)}
                        }.into_any(),
                    }}
                </dd>
            </dl>
        </div>
    }
    .into_any()
}

/// What it would take for one more call, and whether there can be one.
fn next_call_words(data: &EventPage) -> String {
    let record = &data.record;
    let calls = data.calls.len();
    match record.state {
        State::Delivered | State::FailedFinal | State::Expired => {
            "Not possible. This state never changes, and the database refuses the marker."
                .to_owned()
        }
        State::Sent => format!(
            "Not possible. It would need proof that call {calls} sent nothing; the provider says that it sent. \
             The database refuses the marker."
        ),
        State::DispatchUnknown if calls > 0 => format!(
            "Not possible now. It would need proof that call {calls} sent nothing, or a provider that \
             recognises a repeat of the same call. Neither is a guess."
        ),
        State::DispatchUnknown => {
            "Not possible now. It would need proof that nothing was sent before the restore."
                .to_owned()
        }
        State::Accepted | State::Dispatching if calls == 0 => {
            "The first call needs only the admission. Nothing has been sent yet.".to_owned()
        }
        State::Accepted => format!(
            "Allowed, because call {calls} is proven to have sent nothing. It needs time before the link runs \
             out and an attempt that is left."
        ),
        State::Dispatching => {
            format!("Not possible while attempt {} runs.", record.attempts.max(1))
        }
    }
}

struct Attempt<'a> {
    calls: Vec<&'a CallView>,
    facts: Vec<&'a Fact>,
}

fn attempts(data: &EventPage, now: Stamp) -> impl IntoView + use<> {
    let mut attempts: BTreeMap<u32, Attempt<'_>> = BTreeMap::new();
    for fact in &data.facts {
        if let Some(number) = fact.attempt {
            attempts
                .entry(number)
                .or_insert_with(|| Attempt { calls: Vec::new(), facts: Vec::new() })
                .facts
                .push(fact);
        }
    }
    for call in &data.calls {
        attempts
            .entry(call.attempt)
            .or_insert_with(|| Attempt { calls: Vec::new(), facts: Vec::new() })
            .calls
            .push(call);
    }
    let body = if attempts.is_empty() {
        view! { <p class="muted">"None yet: no worker has claimed this event."</p> }.into_any()
    } else {
        let last = attempts.keys().last().copied();
        let items: Vec<AnyView> = attempts
            .iter()
            .map(|(number, attempt)| {
                attempt_fold(*number, attempt, Some(*number) == last, data, now)
            })
            .collect();
        view! { <ul class="attempts">{items}</ul> }.into_any()
    };
    view! {
        <header>
            <h2 id="attempts-h">"Attempts"</h2>
            <p>{format!("{} so far; at most {} count", data.record.attempts, data.attempts_max)}</p>
        </header>
        <div class="body">{body}</div>
    }
}

fn attempt_fold(
    number: u32,
    attempt: &Attempt<'_>,
    is_last: bool,
    data: &EventPage,
    now: Stamp,
) -> AnyView {
    let lookups = attempt.facts.iter().filter(|fact| fact.kind == FactKind::Lookup).count() as u64;
    let claims =
        attempt.facts.iter().filter(|fact| fact.reason == Some(Reason::Claimed)).count() as u64;
    let calls = attempt.calls.len() as u64;
    let state =
        attempt.facts.iter().rev().find_map(|fact| {
            (fact.kind == FactKind::Transition).then_some(fact.new_state).flatten()
        });
    let attempt_id = attempt
        .calls
        .first()
        .map(|call| call.attempt_id.clone())
        .or_else(|| attempt.facts.iter().find_map(|fact| fact.attempt_id.clone()));
    let provider = attempt
        .calls
        .last()
        .map(|call| call.provider.clone())
        .or_else(|| attempt.facts.iter().rev().find_map(|fact| fact.provider.clone()));
    let mut parts = vec![counted(calls, "call", "calls"), counted(lookups, "look-up", "look-ups")];
    if claims > 1 {
        parts.push(counted(claims, "claim", "claims"));
    }
    let refs: Vec<AnyView> = attempt
        .facts
        .iter()
        .filter(|fact| fact.kind != FactKind::Lookup || fact.new_state.is_some())
        .map(|fact| {
            view! {
                <li>
                    <a href=format!("#fact-{}", fact.seq)>{format!("#{}", fact.seq)}</a>
                    " "{fact_title(fact)}
                </li>
            }
            .into_any()
        })
        .collect();
    let next_read = matches!(data.record.state, State::DispatchUnknown | State::Sent)
        .then_some(data.next_read_at)
        .flatten()
        .filter(|_| is_last)
        .map(|at| view! { <dt>"Next look-up"</dt><dd>{clock(at, now)}" "<span class="muted">{ago(at, now)}</span></dd> });
    view! {
        <li data-key=format!("attempt-{number}")>
            <details class="fold" open=is_last>
                <summary>
                    {icon("chev")}<b>{format!("Attempt {number}")}</b>
                    <span class="muted">{parts.join(", ")}</span>
                    {state.map(state_badge)}
                </summary>
                <div class="in">
                    <dl class="kv">
                        {attempt_id.map(|value| view! { <dt>"Attempt id"</dt><dd>{id("attempt id", &value)}</dd> })}
                        {provider.map(|value| view! { <dt>"Provider"</dt><dd>{value}</dd> })}
                        {next_read}
                    </dl>
                    <ul class="refs">{refs}</ul>
                </div>
            </details>
        </li>
    }
    .into_any()
}

fn record_panel(data: &EventPage, now: Stamp) -> impl IntoView + use<> {
    let record = &data.record;
    let none = || view! { <span class="muted">"none"</span> }.into_any();
    let last_start = record.expires_at.plus(-data.margin_ms.saturating_mul(1_000));
    // Said to callers; of use to a reader only where it lies ahead and says more than the next look-up.
    let retry = record.retry_at.filter(|at| *at > now && Some(*at) != data.next_read_at).map(|at| {
        view! { <dt>"Callers ask again"</dt><dd>{clock(at, now)}" "<span class="muted">{ago(at, now)}</span></dd> }
    });
    let poll = data.poll_until.map(|at| {
        view! { <dt>"Read until"</dt><dd>{clock(at, now)}" "<span class="muted">{ago(at, now)}</span></dd> }
    });
    let next_read = data.next_read_at.map(|at| {
        view! { <dt>"Next look-up"</dt><dd>{clock(at, now)}" "<span class="muted">{ago(at, now)}</span></dd> }
    });
    let message = data.provider_message_id.as_ref().map(|value| {
        view! { <dt>"Provider's id"</dt><dd>{id("provider message id", value)}</dd> }
    });
    let neighbour = |label: &'static str, other: &Option<Record>| {
        other.as_ref().map(|other| {
            let href = format!("/events/{}", other.id);
            view! {
                <p>
                    {label}" request: "<a href=href><code>{other.event_id.clone()}</code></a>", "
                    {other.state.as_str()}", "{relative(other.created_at, now)}
                </p>
            }
        })
    };
    let earlier = neighbour("Earlier", &data.earlier);
    let later = neighbour("Later", &data.later);
    let has_neighbours = earlier.is_some() || later.is_some();
    view! {
        <header><h2 id="record-h">"Record"</h2></header>
        <div class="body">
            <dl class="kv">
                <dt>"Seller"</dt><dd>{seller_link(record.seller_id.as_deref())}</dd>
                <dt>"Purpose"</dt><dd>{record.purpose.clone()}</dd>
                <dt>"Channel"</dt><dd>{record.channel.as_str()}</dd>
                <dt>"Provider"</dt>
                <dd>{data.provider.clone().map_or_else(
                    || view! { <span class="muted">"not chosen yet"</span> }.into_any(),
                    IntoAny::into_any,
                )}</dd>
                {message}
                <dt>"Window"</dt>
                <dd>{data.request_window.as_ref().map_or_else(none, |w| view! { <code>{w.clone()}</code> }.into_any())}</dd>
                <dt>"Token"</dt>
                <dd>{data.token_id.as_ref().map_or_else(none, |t| view! { <code>{t.clone()}"…"</code> }.into_any())}</dd>
                <dt>"Admitted"</dt><dd>{clock_zone(record.created_at, now)}</dd>
                <dt>"Updated"</dt>
                <dd>{clock_zone(record.updated_at, now)}" "<span class="muted">{ago(record.updated_at, now)}</span></dd>
                <dt>"Link expires"</dt>
                <dd>{clock_zone(record.expires_at, now)}" "<span class="muted">{ago(record.expires_at, now)}</span></dd>
                <dt>"Last start"</dt>
                <dd>{clock(last_start, now)}" "<span class="muted">{format!("no call starts later ({} margin)", short_span(data.margin_ms * 1_000))}</span></dd>
                <dt>"Reason"</dt><dd><code>{record.reason.as_str()}</code></dd>
                <dt>"Calls"</dt><dd>{record.calls.to_string()}</dd>
                {next_read}{poll}{retry}
                <dt>"Settled"</dt><dd>{if record.settled { "yes" } else { "no" }}</dd>
            </dl>
        </div>
        {has_neighbours.then(|| view! { <footer>{earlier}{later}</footer> })}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::samples;

    #[test]
    fn long_runs_of_look_ups_are_folded_and_no_fact_is_lost() {
        let facts = samples::long_facts();
        let shown: usize = entries(&facts)
            .iter()
            .map(|entry| match entry {
                Entry::One(_) => 1,
                Entry::Run(run) => {
                    assert!(run.len() >= RUN_MIN);
                    run.len()
                }
            })
            .sum();
        assert_eq!(shown, facts.len());
    }

    #[test]
    fn the_path_names_each_state_passed_with_its_time() {
        let data = samples::event_unknown();
        let steps = steps(&data.facts, samples::now());
        assert_eq!(steps.first().map(|step| step.state), Some(State::Accepted));
        assert_eq!(steps.last().map(|step| step.state), Some(State::DispatchUnknown));
        assert!(steps.last().is_some_and(|step| step.note.ends_with("so far")));
    }

    #[test]
    fn one_more_call_is_only_ever_allowed_by_proof() {
        let mut data = samples::event_unknown();
        assert!(next_call_words(&data).starts_with("Not possible now"));
        for state in [State::Sent, State::Delivered, State::FailedFinal, State::Expired] {
            data.record.state = state;
            assert!(next_call_words(&data).starts_with("Not possible."), "{state}");
        }
    }
}
