//! `/`

use leptos::prelude::*;

use super::events::rows_table;
use crate::components::{
    Layout, big_span, capped, capped_counted, clock, clock_zone, counted, empty, head, number,
    page, percent, stat, state_badge, zone,
};
use crate::model::{Age, Capped, EventFilter, Frame, OverviewPage, Stamp, State};

/// The overview: what waits and for how long, whether anything was sent twice, and what came last.
pub fn overview(frame: Frame, data: OverviewPage, options: LeptosOptions) -> impl IntoView + use<> {
    let now = frame.now;
    let title = view! { <h1>"Overview"</h1> }.into_any();
    let lead = lead(&frame, &data).into_any();
    let content = view! {
        {head(title, Some(lead), now, Some("overview"))}
        <div class="stack">
            <section aria-labelledby="ages">
                <h2 id="ages" class="vh">"Oldest waiting, by kind"</h2>
                <div data-live="ages">{ages(&data, now)}</div>
            </section>
            <section class="panel" aria-labelledby="hour">
                <header><h2 id="hour">"Admitted in the last hour"</h2><p>"by five minutes, "{zone()}</p></header>
                <div class="body" data-live="hour">{hour(&data, now)}</div>
            </section>
            <section class="panel" aria-labelledby="states">
                <header><h2 id="states">"Events by state"</h2><p>"all that are kept"</p></header>
                <div class="body" data-live="states">{states(&data.states)}</div>
            </section>
            <section class="panel" aria-labelledby="recent">
                <header>
                    <h2 id="recent">"Newest events"</h2>
                    <p><a href="/events">"All events"</a></p>
                </header>
                <div data-live="recent">
                    {if data.recent.is_empty() {
                        nothing_yet().into_any()
                    } else {
                        rows_table("Newest events", &data.recent, false, now)
                    }}
                </div>
            </section>
            {source(&frame, &data)}
        </div>
    };
    page(frame, options, Layout::new("Overview").live("overview"), content.into_any())
}

fn lead(frame: &Frame, data: &OverviewPage) -> String {
    let running = match frame.frozen.as_slice() {
        [] => "Dispatch is running.".to_owned(),
        frozen if frozen.iter().any(|view| view.freeze.scope == "all") => {
            "All dispatch is frozen.".to_owned()
        }
        _ => "Part of dispatch is frozen.".to_owned(),
    };
    let unknown = match data.unknown.count {
        Capped { count: 0, .. } => "No outcome is unknown.".to_owned(),
        Capped { count: 1, more: false } => {
            "One outcome is unknown; it is being read, not resent.".to_owned()
        }
        count => {
            format!("{} outcomes are unknown; they are being read, not resent.", capped(count))
        }
    };
    format!("{running} {unknown}")
}

fn age(age: Age, now: Stamp) -> AnyView {
    match age.oldest_at {
        Some(at) if age.count.count > 0 => big_span(now.since(at)).into_any(),
        _ => "none".into_any(),
    }
}

fn waits(age: Age, none: &str, one: &str, many: &str) -> String {
    if age.count.count == 0 { none.to_owned() } else { capped_counted(age.count, one, many) }
}

fn ages(data: &OverviewPage, now: Stamp) -> impl IntoView + use<> {
    let class = |age: Age| if age.count.count == 0 { "stat zero" } else { "stat" };
    let unknown = data.unknown;
    let unknown_below = if unknown.count.count == 0 {
        "every outcome is known".into_any()
    } else {
        view! { <a href="/unknown">{capped(unknown.count)}" unknown"</a> }.into_any()
    };
    let frozen_below = if data.frozen.count.count == 0 {
        "nothing is held back".into_any()
    } else {
        view! { <a href="/freeze">{capped_counted(data.frozen.count, "event waits", "events wait")}</a> }
            .into_any()
    };
    let admitted = match data.last_admitted_at {
        Some(at) => (
            "stat",
            view! { {big_span(now.since(at))}<span class="unit">" ago"</span> }.into_any(),
            clock_zone(at, now).into_any(),
        ),
        None => ("stat zero", "none".into_any(), "no event has come in yet".into_any()),
    };
    let twice = if data.duplicate_calls == 0 {
        ("stat", "each call has its authority")
    } else {
        ("stat bad-stat", "calls without proof: freeze and look")
    };
    view! {
        <dl class="stats">
            {stat(
                class(data.due), "clock", None, "Oldest due", age(data.due, now),
                waits(data.due, "no outbox lag", "event is due: outbox lag", "events are due: outbox lag"),
            )}
            {stat(
                class(data.backing_off), "undo", None, "Oldest backing off", age(data.backing_off, now),
                waits(data.backing_off, "nothing waits by plan", "event waits by plan", "events wait by plan"),
            )}
            {stat(class(data.frozen), "frozen", Some("frozen"), "Oldest frozen", age(data.frozen, now), frozen_below)}
            {stat(
                if unknown.count.count == 0 { "stat zero" } else { "stat hot" },
                "dispatch_unknown", Some("dispatch_unknown"), "Oldest unknown", age(unknown, now), unknown_below,
            )}
            {stat(admitted.0, "accepted", None, "Last event admitted", admitted.1, admitted.2)}
            {stat(twice.0, "shield", None, "Duplicate calls", number(data.duplicate_calls), twice.1)}
        </dl>
    }
}

fn states(states: &[(State, Capped)]) -> AnyView {
    let total: u64 = states.iter().map(|(_, count)| count.count).sum();
    let is_capped = states.iter().any(|(_, count)| count.more);
    let rows = states
        .iter()
        .map(|&(state, count)| {
            let href = EventFilter { state: Some(state), ..EventFilter::default() }.href(None);
            let share = percent(count.count, total);
            let share_words = if share == 0 && count.count > 0 { "<1 %".to_owned() } else { format!("{share} %") };
            let is_zero = count.count == 0;
            let count = if is_zero {
                view! { <span class="muted">"0"</span> }.into_any()
            } else {
                view! { <a href=href>{capped(count)}<span class="vh">{format!(" events {state}")}</span></a> }
                    .into_any()
            };
            view! {
                <tr data-key=state.as_str() class=is_zero.then_some("zero")>
                    <th scope="row">{state_badge(state)}</th>
                    <td class="num">{count}</td>
                    <td class="share" data-state=state.as_str()>
                        <svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
                            <rect width=share.to_string() height="6"></rect>
                        </svg>
                    </td>
                    <td class="num pct">{share_words}</td>
                </tr>
            }
        })
        .collect_view();
    let summary = if total == 0 {
        "No event is kept.".to_owned()
    } else {
        let most =
            states.iter().find(|(_, count)| count.count > total / 2).map(|(state, _)| *state);
        let cap =
            if is_capped { " Counting stops at a limit, so the shares are rough." } else { "" };
        let most = most.map_or_else(String::new, |state| format!("; most are {state}"));
        format!("{} counted{most}.{cap}", counted(total, "event", "events"))
    };
    view! {
        <div class="bare">
            <table class="table shares">
                <caption class="vh">"Number of events in each state"</caption>
                <thead>
                    <tr>
                        <th scope="col">"State"</th>
                        <th scope="col" class="num">"Events"</th>
                        <th scope="col" colspan="2">"Share"</th>
                    </tr>
                </thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
        <p class="summary">{summary}</p>
    }
    .into_any()
}

/// The chart, and the same in a sentence.
fn hour(data: &OverviewPage, now: Stamp) -> AnyView {
    let total: u64 = data.hour.iter().map(|part| part.total()).sum();
    if total == 0 {
        return view! { <p class="summary">"No event was admitted in the last hour."</p> }
            .into_any();
    }
    let most = data.hour.iter().map(|part| part.total()).max().unwrap_or(1).max(1);
    const HEIGHT: u64 = 48;
    let scaled = |n: u64| {
        let height = n.saturating_mul(HEIGHT).checked_div(most).unwrap_or(0);
        // One event among thousands is still to be seen.
        if n > 0 { height.max(1) } else { 0 }
    };
    let bars = data
        .hour
        .iter()
        .enumerate()
        .map(|(at, part)| {
            let x = at * 20 + 2;
            let mut top = HEIGHT;
            [("delivered", part.done), ("accepted", part.open), ("failed_final", part.ended)]
                .into_iter()
                .filter(|(_, n)| *n > 0)
                .map(|(state, n)| {
                    let height = scaled(n).min(top);
                    top -= height;
                    view! {
                        <rect
                            data-state=state x=x.to_string() y=top.to_string() width="16" height=height.to_string()
                        ></rect>
                    }
                })
                .collect_view()
        })
        .collect_view();
    let (done, open, ended) = data.hour.iter().fold((0, 0, 0), |(done, open, ended), part| {
        (done + part.done, open + part.open, ended + part.ended)
    });
    let busiest = data.hour.iter().max_by_key(|part| part.total());
    let busiest = busiest.map(|part| {
        view! { " Most came in the five minutes from "{clock(part.from, now)}": "{number(part.total())}"." }
    });
    let capped_words =
        if data.hour_more { " Counting stops at a limit: these are the newest." } else { "" };
    view! {
        <figure class="chart">
            <svg viewBox="0 0 240 48" preserveAspectRatio="none" aria-hidden="true">{bars}</svg>
            <figcaption class="summary">
                {counted(total, "event", "events")}": "
                <span class="key" data-state="delivered"></span>{number(done)}" sent or delivered, "
                <span class="key" data-state="accepted"></span>{number(open)}" open, "
                <span class="key" data-state="failed_final"></span>{number(ended)}" failed or expired."
                {busiest}{capped_words}
            </figcaption>
        </figure>
    }
    .into_any()
}

/// Where these figures come from.
fn source(frame: &Frame, data: &OverviewPage) -> impl IntoView + use<> {
    view! {
        <p class="hint">
            "Environment "<code>{frame.environment.clone()}</code>", database "<code>{data.database.clone()}</code>
            ", schema "<code>{frame.schema.clone()}</code>", sendonce "<code>{frame.version.clone()}</code>"."
        </p>
    }
}

fn nothing_yet() -> impl IntoView {
    empty(
        "list",
        "No event has been admitted yet",
        "Events appear here as soon as a client posts them to /v1/events. An admin makes the client's key.",
        view! { <a class="btn" href="/openapi.json">"API description"</a> },
    )
}
