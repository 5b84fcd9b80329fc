//! `/events`: find, filter, page.

use leptos::prelude::*;

use crate::components::{
    Layout, Tone, ago, capped_counted, clock, empty, event_link, head, held_mark, icon, joined,
    note, page, pager, scroll, seller_link, state_badge, zone,
};
use crate::model::{
    Channel, EventFilter, EventsPage, Frame, Permission, Record, Role, Stamp, State,
};

/// What a browser lets through as a seller: the alphabet of ids, and nothing that looks like a number to call.
const SELLER_PATTERN: &str = "(?![0-9]{8,15}$)[A-Za-z0-9._:\\-]{1,128}";

/// The list of events. The search box posts to `/events` (the server answers with a redirect to the query, or
/// with this page and a problem that names the blind look-up); the filters are a GET form, so that each
/// choice is in the URL.
pub fn events(frame: Frame, data: EventsPage, options: LeptosOptions) -> impl IntoView + use<> {
    let now = frame.now;
    let title = view! { <h1>"Events"</h1> }.into_any();
    let older = data.next_cursor.as_deref().map(|cursor| data.filter.href(Some(cursor)));
    let newest = data.is_continued.then(|| data.filter.href(None));
    let count = match data.total.count {
        0 => String::new(),
        _ => format!(
            "{} match{}",
            capped_counted(data.total, "event", "events"),
            if data.total.count == 1 && !data.total.more { "es" } else { "" }
        ),
    };
    let list = if data.rows.is_empty() {
        nothing(&data).into_any()
    } else {
        rows_table("Events, newest first", &data.rows, true, now)
    };
    let content = view! {
        {head(title, None, now, Some("events"))}
        <div class="stack-s">
            {search_box(&frame.csrf, &data.filter)}
            {(!data.problems.is_empty()).then(|| problems(&data.problems))}
            {data.has_personal_data.then(|| personal(frame.operator.role))}
            {filters(&data)}
            {views(&data.filter)}
            {chips(&data.filter)}
            <div class="held">
                // Shown by the live island while newer rows wait; it floats, so that it moves nothing.
                <a class="newpill" href=data.filter.href(None) hidden data-new="">"0 new"</a>
                <section class="panel" aria-label="Matching events" data-live="list">
                    {list}
                    {pager(count, newest, older)}
                </section>
            </div>
        </div>
    };
    page(frame, options, Layout::new("Events").own_search().live("events"), content.into_any())
}

fn search_box(csrf: &str, filter: &EventFilter) -> impl IntoView + use<> {
    let hidden = filter_fields(filter)
        .into_iter()
        .map(|(name, value)| view! { <input type="hidden" name=name value=value /> })
        .collect_view();
    view! {
        <form class="search big" role="search" method="post" action="/events">
            {icon("search")}
            <label class="vh" for="q">"Search events"</label>
            <input type="hidden" name="csrf" value=csrf.to_owned() />
            {hidden}
            <input
                id="q" name="q" type="search" value=filter.q.clone() autocomplete="off" maxlength="512"
                spellcheck="false" autocapitalize="none" placeholder="Event id, seller or qualifier"
                aria-describedby="q-help" aria-keyshortcuts="/"
            />
            <kbd class="needs-script" aria-hidden="true">"/"</kbd>
        </form>
        <p class="hint" id="q-help">
            "Start of an event id, or "<code>"state:"</code>" "<code>"channel:"</code>" "<code>"provider:"</code>" "
            <code>"reason:"</code>" "<code>"seller:"</code>" "<code>"before:"</code>" "<code>"after:"</code>" "
            <code>"id:"</code>". An email address or phone number never becomes part of a link."
        </p>
    }
}

/// The filters besides the search text, as form fields.
fn filter_fields(filter: &EventFilter) -> Vec<(&'static str, String)> {
    [
        ("state", filter.state.map(|state| state.as_str().to_owned())),
        ("channel", filter.channel.map(|channel| channel.as_str().to_owned())),
        ("provider", filter.provider.clone()),
        ("seller", filter.seller.clone()),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect()
}

fn select(
    name: &'static str,
    label: &'static str,
    any: &'static str,
    words: Vec<String>,
    chosen: Option<String>,
) -> impl IntoView {
    // A value of the URL that is not in the list stays visible, so that the form says what the list shows.
    let mut words = words;
    if let Some(extra) = chosen.clone().filter(|chosen| !words.contains(chosen)) {
        words.push(extra);
    }
    let options = words
        .into_iter()
        .map(|word| {
            let selected = chosen.as_deref() == Some(word.as_str());
            view! { <option value=word.clone() selected=selected>{word.clone()}</option> }
        })
        .collect_view();
    view! {
        <label class="lab">
            {label}
            <select class="sel" name=name>
                <option value="">{any}</option>
                {options}
            </select>
        </label>
    }
}

fn filters(data: &EventsPage) -> impl IntoView + use<> {
    let filter = data.filter.clone();
    let states = State::ALL.iter().map(|state| state.as_str().to_owned()).collect();
    let channels = Channel::ALL.iter().map(|channel| channel.as_str().to_owned()).collect();
    view! {
        <form class="filters" method="get" action="/events" aria-label="Filters">
            {(!filter.q.is_empty()).then(|| view! { <input type="hidden" name="q" value=filter.q.clone() /> })}
            {select("state", "State", "any", states, filter.state.map(|state| state.as_str().to_owned()))}
            {select("channel", "Channel", "any", channels, filter.channel.map(|channel| channel.as_str().to_owned()))}
            {select("provider", "Provider", "any", data.providers.clone(), filter.provider.clone())}
            <label class="lab">
                "Seller"
                <input
                    class="sel seller" name="seller" value=filter.seller.clone().unwrap_or_default() maxlength="128"
                    pattern=SELLER_PATTERN title="A seller id: letters, digits and . _ : -, and no phone number"
                    autocomplete="off" spellcheck="false" autocapitalize="none"
                />
            </label>
            <button class="btn" type="submit">"Apply filters"</button>
        </form>
    }
}

/// Questions that everybody has, as links; and those that this browser has kept, which a script adds. A view is
/// an address and nothing else, so it can be sent to somebody.
fn views(filter: &EventFilter) -> impl IntoView + use<> {
    let of = |state: State| EventFilter { state: Some(state), ..EventFilter::default() };
    let reason = |word: &str| EventFilter { q: format!("reason:{word}"), ..EventFilter::default() };
    let items = [
        ("Unknown", of(State::DispatchUnknown)),
        ("Waiting", of(State::Accepted)),
        ("Failed", of(State::FailedFinal)),
        ("Expired unresolved", reason("expired_unresolved")),
        ("Expired while frozen", reason("expired_while_frozen")),
    ]
    .into_iter()
    .map(|(name, view)| {
        let href = view.href(None);
        let current = (view == *filter).then_some("true");
        view! { <li><a href=href aria-current=current>{name}</a></li> }
    })
    .collect_view();
    view! {
        <nav class="views no-print" aria-label="Saved views">
            <ul data-views="">{items}</ul>
            {(!filter.is_empty()).then(|| view! {
                <button class="btn needs-script" type="button" data-save-view="">"Save this view"</button>
            })}
        </nav>
    }
}

fn chips(filter: &EventFilter) -> AnyView {
    if filter.is_empty() {
        return ().into_any();
    }
    let cleared = |change: fn(&mut EventFilter)| {
        let mut rest = filter.clone();
        change(&mut rest);
        rest.href(None)
    };
    let mut chips: Vec<(&str, String, String)> = Vec::new();
    if !filter.q.is_empty() {
        chips.push(("search", filter.q.clone(), cleared(|f| f.q.clear())));
    }
    if let Some(state) = filter.state {
        chips.push(("state", state.to_string(), cleared(|f| f.state = None)));
    }
    if let Some(channel) = filter.channel {
        chips.push(("channel", channel.to_string(), cleared(|f| f.channel = None)));
    }
    if let Some(provider) = &filter.provider {
        chips.push(("provider", provider.clone(), cleared(|f| f.provider = None)));
    }
    if let Some(seller) = &filter.seller {
        chips.push(("seller", seller.clone(), cleared(|f| f.seller = None)));
    }
    let several = chips.len() > 1;
    let items = chips
        .into_iter()
        .map(|(name, value, href)| {
            view! {
                <li class="chip">
                    <span><span class="muted">{name}" "</span><code>{value}</code></span>
                    <a href=href aria-label=format!("Remove filter {name}")>{icon("x")}</a>
                </li>
            }
        })
        .collect_view();
    view! {
        <ul class="chips" aria-label="Active filters">
            {items}
            {several.then(|| view! { <li><a href="/events">"Clear all"</a></li> })}
        </ul>
    }
    .into_any()
}

fn problems(problems: &[String]) -> impl IntoView + use<> {
    let items = problems.iter().map(|problem| view! { <li>{problem.clone()}</li> }).collect_view();
    note(
        Tone::Bad,
        view! { <b>"Part of this search was not understood and is left out."</b><ul>{items}</ul> },
    )
}

/// An address or number belongs to the blind look-up, which posts it and keeps nothing.
fn personal(role: Role) -> AnyView {
    let lookup = role.may(Permission::BlindLookup).then(|| {
        view! { " For a phone number or email address use the "<a href="/lookup">"blind look-up"</a>"." }
    });
    note(
        Tone::Bad,
        view! {
            <b>"That looks like an email address or phone number."</b>
            " It was not searched, and it is kept nowhere. Search by event id or seller id instead."{lookup}
        },
    )
    .into_any()
}

fn nothing(data: &EventsPage) -> AnyView {
    if data.has_personal_data {
        return empty(
            "lock",
            "Nothing was searched",
            "Addresses and numbers never become part of a search, a link or a log.",
            view! { <a class="btn" href="/events">"Show all events"</a> },
        )
        .into_any();
    }
    if data.is_continued {
        let first = data.filter.href(None);
        return empty(
            "list",
            "Nothing further",
            "The list ends before this page. Events may have changed since the link was made.",
            view! { <a class="btn" href=first>"Newest"</a> },
        )
        .into_any();
    }
    if data.filter.is_empty() {
        return empty(
            "list",
            "No event has been admitted yet",
            "Events appear here as soon as a client posts them to /v1/events. An admin makes the client's key.",
            view! { <a class="btn" href="/openapi.json">"API description"</a> },
        )
        .into_any();
    }
    let mut words: Vec<String> = filter_fields(&data.filter)
        .into_iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    if !data.filter.q.is_empty() {
        words.insert(0, format!("“{}”", data.filter.q));
    }
    let why = if words.len() == 1 {
        format!(
            "Nothing that is kept matches {}. Check the spelling; events past their retention are no longer here.",
            joined(&words)
        )
    } else {
        format!("Nothing matches {} together. Remove one of them to see more.", joined(&words))
    };
    let without_search = (!data.filter.q.is_empty() && words.len() > 1).then(|| {
        let href = EventFilter { q: String::new(), ..data.filter.clone() }.href(None);
        view! { <a class="btn" href=href>"Keep the filters, clear the search"</a> }
    });
    empty(
        "search",
        "No event matches",
        why,
        view! { {without_search}<a class="btn" href="/events">"Show all events"</a> },
    )
    .into_any()
}

/// Events as a dense table, in the order given. `hold`: rows that come in later wait until they are asked for.
pub(super) fn rows_table(name: &'static str, rows: &[Record], hold: bool, now: Stamp) -> AnyView {
    let rows = rows
        .iter()
        .map(|record| {
            view! {
                <tr data-key=record.id.clone() data-state=record.state.as_str()>
                    <th scope="row">{event_link(record)}</th>
                    <td>{state_badge(record.state)}{held_mark(record)}</td>
                    <td class="c2"><code class="clip">{record.reason.as_str()}</code></td>
                    <td class="c4">{record.channel.as_str()}</td>
                    <td class="c3">{seller_link(record.seller_id.as_deref())}</td>
                    <td class="num c2">{record.calls.to_string()}</td>
                    <td class="num nowrap">
                        {ago(record.updated_at, now)}<span class="clock2">{clock(record.updated_at, now)}</span>
                    </td>
                </tr>
            }
        })
        .collect_view();
    scroll(
        name.to_owned(),
        view! {
            <table class="table hover events">
                <caption class="vh">{name}</caption>
                <thead>
                    <tr>
                        <th scope="col">"Event"</th>
                        <th scope="col">"State"</th>
                        <th scope="col" class="c2">"Reason"</th>
                        <th scope="col" class="c4">"Channel"</th>
                        <th scope="col" class="c3">"Seller"</th>
                        <th scope="col" class="num c2">"Calls"</th>
                        <th scope="col" class="num">"Updated, "{zone()}</th>
                    </tr>
                </thead>
                <tbody data-hold=hold.then_some("")>{rows}</tbody>
            </table>
        },
    )
    .into_any()
}
