//! `/unknown`: every outcome that nobody can name yet, by provider, oldest first.

use std::collections::BTreeMap;

use leptos::prelude::*;

use crate::components::{
    Layout, ago, bar, big_span, capped, clock, counted, empty, event_link, head, held_mark, icon,
    page, percent_passed, scroll, seller_link, short_span, span, stat, zone,
};
use crate::model::{Frame, Stamp, UnknownPage, UnknownRow};

const SECOND: i64 = 1_000_000;

/// The ambiguity board.
pub fn unknown(frame: Frame, data: UnknownPage, options: LeptosOptions) -> impl IntoView + use<> {
    let now = frame.now;
    let title = view! { <h1>"Unknown outcomes"</h1> }.into_any();
    let lead = "A call may have gone out and nobody has proof either way. Each is read until it is clear; none is \
                resent on a guess. Reading goes on while dispatch is frozen.";
    let mut by_provider: BTreeMap<&str, Vec<&UnknownRow>> = BTreeMap::new();
    for row in &data.rows {
        by_provider.entry(row.provider.as_str()).or_default().push(row);
    }
    let mut groups: Vec<(&str, Vec<&UnknownRow>)> = by_provider.into_iter().collect();
    for (_, rows) in &mut groups {
        rows.sort_by_key(|row| row.since);
    }
    // The provider with the oldest one first: that is where to look.
    groups.sort_by_key(|(_, rows)| rows[0].since);
    let providers = groups.len() as u64;
    let shown = data.rows.len() as u64;
    let body = if data.rows.is_empty() {
        view! {
            <section class="panel" data-key="none">
                {empty(
                    "check",
                    "Every outcome is known",
                    "No call is in doubt just now. An event comes here when a call times out, breaks off, or answers \
                     unclearly, and leaves when a read, a callback or its expiry settles it.",
                    view! { <a class="btn" href="/events">"All events"</a> },
                )}
            </section>
        }
        .into_any()
    } else {
        groups.iter().map(|(provider, rows)| board(provider, rows, now)).collect_view().into_any()
    };
    let capped_note = (data.total.more || data.total.count > shown).then(|| {
        let total = capped(data.total);
        view! {
            <p class="hint">
                {format!("The oldest {shown} of {total} are shown. ")}
                <a href="/events?state=dispatch_unknown">"All of them in the list of events"</a>
            </p>
        }
    });
    let content = view! {
        {head(title, Some(lead.into_any()), now, Some("unknown"))}
        <div class="stack" data-live="board">
            {figures(&data, providers, now)}
            {body}
            {capped_note}
        </div>
    };
    page(frame, options, Layout::new("Unknown outcomes").live("unknown"), content.into_any())
}

fn figures(data: &UnknownPage, providers: u64, now: Stamp) -> impl IntoView + use<> {
    let none = data.total.count == 0;
    let soon = data
        .rows
        .iter()
        .filter(|row| row.record.expires_at > now)
        .map(|row| row.record.expires_at)
        .min();
    let next = data.rows.iter().filter_map(|row| row.next_read_at).min();
    view! {
        <dl class="stats" data-key="figures">
            {stat(
                if none { "stat zero" } else { "stat hot" }, "dispatch_unknown", Some("dispatch_unknown"),
                "Unknown now", if none { "none".to_owned() } else { capped(data.total) },
                if none { "nothing is in doubt".to_owned() } else {
                    format!("at {}", counted(providers, "provider", "providers"))
                },
            )}
            {stat(
                if data.oldest_at.is_none() { "stat zero" } else { "stat" }, "clock", None, "Oldest",
                data.oldest_at.map_or_else(|| "none".into_any(), |at| big_span(now.since(at)).into_any()),
                data.oldest_at.map_or_else(
                    || "no age to show".into_any(),
                    |at| view! { "since "{clock(at, now)}" "{zone()} }.into_any(),
                ),
            )}
            {stat(
                if next.is_none() { "stat zero" } else { "stat" }, "eye", None, "Next look-up",
                next.map_or_else(|| "none".into_any(), |at| {
                    if at.since(now) >= SECOND { big_span(at.since(now)).into_any() } else { "now".into_any() }
                }),
                next.map_or_else(
                    || if none { "nothing to look up" } else { "no provider here can be read" }.into_any(),
                    |at| view! { "at "{clock(at, now)}" "{zone()} }.into_any(),
                ),
            )}
            {stat(
                if soon.is_none() { "stat zero" } else { "stat" }, "expired", None, "Next to expire",
                soon.map_or_else(|| "none".into_any(), |at| big_span(at.since(now)).into_any()),
                if soon.is_none() { "nothing to expire" } else { "expires with one call at most" },
            )}
        </dl>
    }
}

fn board(provider: &str, rows: &[&UnknownRow], now: Stamp) -> AnyView {
    let anchor = format!("p-{}", crate::model::percent_encoded(provider));
    let rows_count = counted(rows.len() as u64, "unknown outcome", "unknown outcomes");
    let items = rows.iter().map(|row| board_row(row, now)).collect_view();
    let table = view! {
        <table class="table board unknown">
            <caption class="vh">{format!("Unknown outcomes at {provider}, oldest first")}</caption>
            <thead>
                <tr>
                    <th scope="col">"Event"</th>
                    <th scope="col" aria-sort="descending">"Age"{icon("down")}</th>
                    <th scope="col" class="c2">"Seller"</th>
                    <th scope="col" class="c2">"Look-ups"</th>
                    <th scope="col" class="c3">"Attempts left"</th>
                    <th scope="col">"Expires in"</th>
                </tr>
            </thead>
            {items}
        </table>
    };
    view! {
        <section class="panel prov" aria-labelledby=anchor.clone() data-key=anchor.clone()>
            <header><h2 id=anchor.clone()>{provider.to_owned()}</h2><p>{rows_count}</p></header>
            <div class="body bare">{scroll(format!("Unknown outcomes at {provider}"), table)}</div>
        </section>
    }
    .into_any()
}

fn board_row(row: &UnknownRow, now: Stamp) -> AnyView {
    let record = &row.record;
    let used = percent_passed(record.created_at, record.expires_at, now);
    let tone = match used {
        85.. => Some("bad"),
        60.. => Some("hot"),
        _ => None,
    };
    let left = record.expires_at.since(now);
    let left = if left > 0 { short_span(left) } else { "over".to_owned() };
    let last_read = row.last_read_at.map(|at| {
        view! { <span class="sub">"last "{clock(at, now)}", "{ago(at, now)}</span> }
    });
    let next_read = match row.next_read_at {
        Some(at) => {
            view! { <span class="sub">"next "{clock(at, now)}", "{ago(at, now)}</span> }.into_any()
        }
        None => view! { <span class="sub">"none planned"</span> }.into_any(),
    };
    view! {
        // Two rows an event: what resolves it never leaves the screen, however narrow that is.
        <tbody data-key=record.id.clone()>
            <tr>
                <th scope="row">{event_link(record)}</th>
                <td class="nowrap">
                    <b>{span(now.since(row.since))}</b>
                    <span class="sub">"since "{clock(row.since, now)}</span>
                </td>
                <td class="c2">{seller_link(record.seller_id.as_deref())}</td>
                <td class="c2">{row.reads.to_string()}{last_read}{next_read}</td>
                <td class="c3">{row.attempts_left.to_string()}</td>
                <td>
                    <div class="meter">
                        {bar(used, tone, format!("{used} percent of the link's time has passed"))}
                        <span class="nowrap">{left}</span>
                    </div>
                </td>
            </tr>
            <tr class="next">
                <td colspan="6">
                    <span class="vh">"What happens next: "</span>
                    <code>{record.reason.as_str()}</code>" "{row.resolves.clone()}" "{held_mark(record)}
                </td>
            </tr>
        </tbody>
    }
    .into_any()
}
