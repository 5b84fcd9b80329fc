//! `/sellers/{seller_id}`: a seller's history, newest first, by request window.

use leptos::prelude::*;

use crate::components::{
    Layout, ago, capped_counted, clock, clock_zone, copy, counted, empty, event_link, head,
    held_mark, page, pager, scroll, state_badge, zone,
};
use crate::model::{Frame, SellerPage, SellerRow, Stamp, State, percent_encoded};

/// One seller's requests. Rows of the same window stand together.
pub fn seller(frame: Frame, data: SellerPage, options: LeptosOptions) -> impl IntoView + use<> {
    let now = frame.now;
    let seller_id = data.seller_id.clone();
    let topic = format!("seller:{seller_id}");
    let path = format!("/sellers/{}", percent_encoded(&seller_id));
    let title = view! {
        <p class="crumb"><a href="/events">"Events"</a>" / Sellers"</p>
        <h1 class="title" aria-label=format!("Seller {seller_id}")>
            <span class="id all">
                <code>{seller_id.clone()}</code>
                {copy(&format!("seller id {seller_id}"), &seller_id)}
            </span>
        </h1>
    }
    .into_any();
    let older = data
        .next_cursor
        .as_deref()
        .map(|cursor| format!("{path}?cursor={}", percent_encoded(cursor)));
    let newest = data.is_continued.then(|| path.clone());
    let count = match data.total.count {
        0 => String::new(),
        _ => capped_counted(data.total, "request", "requests"),
    };
    let lead = lead(&data, now);
    let body = if data.rows.is_empty() {
        nothing(&data, path)
    } else {
        view! { <div class="body">{windows(&data.rows).into_iter().map(|rows| window(rows, now)).collect_view()}</div> }
            .into_any()
    };
    let content = view! {
        {head(title, lead, now, Some(&topic))}
        <section class="panel" aria-labelledby="history" data-live="history">
            <header><h2 id="history">"History by window"</h2><p>"newest first, "{zone()}</p></header>
            {body}
            {pager(count, newest, older)}
        </section>
    };
    page(frame, options, Layout::new(seller_id).live(topic), content.into_any())
}

/// What matters of the newest request, in one sentence; only from what is on the page.
fn lead(data: &SellerPage, now: Stamp) -> Option<AnyView> {
    if data.is_continued {
        return None;
    }
    let newest = &data.rows.first()?.record;
    let in_doubt =
        data.rows.iter().filter(|row| row.record.state == State::DispatchUnknown).count();
    let link = match newest.state {
        State::FailedFinal | State::Expired => ().into_any(),
        _ if newest.expires_at > now => {
            view! { " Its link can work until "{clock_zone(newest.expires_at, now)}"." }.into_any()
        }
        _ => " Its link has run out.".into_any(),
    };
    let unknown = match in_doubt {
        0 => String::new(),
        n => format!(
            " {} on this page.",
            counted(n as u64, "outcome is unknown", "outcomes are unknown")
        ),
    };
    Some(view! { "Newest request: "{newest.state.as_str()}"."{link}{unknown} }.into_any())
}

/// Consecutive rows of the same window.
fn windows(rows: &[SellerRow]) -> Vec<&[SellerRow]> {
    rows.chunk_by(|a, b| a.request_window.is_some() && a.request_window == b.request_window)
        .collect()
}

fn window(rows: &[SellerRow], now: Stamp) -> AnyView {
    let first = &rows[0];
    let name = first.request_window.clone();
    let spoken = name.clone().map_or_else(
        || format!("Request {}", first.record.event_id),
        |name| format!("Window {name}"),
    );
    let heading = first.record.created_at;
    let items = rows
        .iter()
        .map(|row| {
            let record = &row.record;
            view! {
                <tr data-key=record.id.clone() data-state=record.state.as_str()>
                    <th scope="row">{event_link(record)}</th>
                    <td>{state_badge(record.state)}{held_mark(record)}</td>
                    <td class="nowrap">{clock(record.created_at, now)}<span class="sub">{ago(record.created_at, now)}</span></td>
                    <td class="c2"><code class="clip">{record.reason.as_str()}</code></td>
                    <td class="num c2">{record.calls.to_string()}</td>
                    <td class="c3">{row.token_id.as_ref().map_or_else(
                        || view! { <span class="muted">"none"</span> }.into_any(),
                        |token| view! {
                            <code>{token.clone()}"…"</code>
                            <span class="sub">{row.token.as_str()}{replaced_by(row)}</span>
                        }.into_any(),
                    )}</td>
                </tr>
            }
        })
        .collect_view();
    let table = view! {
        <table class="table board">
            <caption class="vh">{format!("Requests of {}", spoken.to_lowercase())}</caption>
            <thead>
                <tr>
                    <th scope="col">"Event"</th>
                    <th scope="col">"State"</th>
                    <th scope="col">"Admitted"</th>
                    <th scope="col" class="c2">"Reason"</th>
                    <th scope="col" class="num c2">"Calls"</th>
                    <th scope="col" class="c3">"Token"</th>
                </tr>
            </thead>
            <tbody>{items}</tbody>
        </table>
    };
    view! {
        <section class="win" aria-label=spoken.clone() data-key=first.record.id.clone()>
            <div>
                <h3>{heading.date()}</h3>
                <p class="hint">
                    {match name {
                        Some(name) => view! { <code>{name}</code> }.into_any(),
                        None => "no window".into_any(),
                    }}
                    <br />
                    {counted(rows.len() as u64, "request", "requests")}
                </p>
            </div>
            <div class="bare">{scroll(spoken.clone(), table)}</div>
        </section>
    }
    .into_any()
}

/// What replaced a token, where another record did.
fn replaced_by(row: &SellerRow) -> Option<AnyView> {
    let id = row.replaced_by.as_ref()?;
    let href = format!("/events/{}", percent_encoded(id));
    Some(view! { " by "<a href=href>"a later request"</a> }.into_any())
}

fn nothing(data: &SellerPage, path: String) -> AnyView {
    if data.is_continued {
        return empty(
            "list",
            "Nothing further",
            "The history ends before this page.",
            view! { <a class="btn" href=path>"Newest"</a> },
        )
        .into_any();
    }
    empty(
        "search",
        "No request of this seller is kept",
        format!(
            "Nothing names {} as its seller. Check the id; requests past their retention are no longer here.",
            data.seller_id
        ),
        view! { <a class="btn" href="/events">"Search events"</a> },
    )
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::windows;
    use crate::pages::samples;

    #[test]
    fn rows_of_one_window_stand_together_and_rows_without_one_stand_alone() {
        let page = samples::seller();
        let groups: Vec<usize> = windows(&page.rows).iter().map(|rows| rows.len()).collect();
        assert_eq!(groups, [1, 2, 1, 1]);
    }
}
