//! `/log`: what operators looked at and did.

use leptos::prelude::*;

use super::facts::detail_pair;
use crate::components::{
    Layout, Tone, ago, capped_counted, clock, empty, head, icon, note, number, page, pager, scroll,
    zone,
};
use crate::model::{ActGroup, DetailValue, Fact, FactKind, Frame, LogPage, Stamp};

/// The operators' log, newest first.
pub fn log(frame: Frame, data: LogPage, options: LeptosOptions) -> impl IntoView + use<> {
    let now = frame.now;
    let title = view! { <h1>"Operators’ log"</h1> }.into_any();
    let lead =
        "Each look-up, view, export, freeze and change of an account. Rows are only ever added.";
    let older = data.next_cursor.as_deref().map(|cursor| data.filter.href(Some(cursor)));
    let newest = data.is_continued.then(|| data.filter.href(None));
    let count = match data.total.count {
        0 => String::new(),
        _ => capped_counted(data.total, "act", "acts"),
    };
    let body = if data.rows.is_empty() { nothing(&data) } else { table(&data, now) };
    let problems = (!data.problems.is_empty()).then(|| {
        let items =
            data.problems.iter().map(|text| view! { <li>{text.clone()}</li> }).collect_view();
        note(Tone::Bad, view! { <b>"Part of this filter was left out."</b><ul>{items}</ul> })
    });
    let content = view! {
        {head(title, Some(lead.into_any()), now, Some("freeze"))}
        <div class="stack-s">
            {data.stale.clone().map(|text| note(Tone::Bad, text))}
            {problems}
            {filters(&data)}
            <section class="panel" aria-label="Operators' acts">{body}{pager(count, newest, older)}</section>
            {exports(&data, &frame.csrf)}
        </div>
    };
    page(frame, options, Layout::new("Operators’ log").live("freeze"), content.into_any())
}

fn filters(data: &LogPage) -> impl IntoView + use<> {
    let filter = &data.filter;
    let groups = ActGroup::ALL
        .iter()
        .map(|group| {
            let selected = filter.group == Some(*group);
            view! { <option value=group.as_str() selected=selected>{group.spoken()}</option> }
        })
        .collect_view();
    let mut actors: Vec<(String, String)> = data
        .names
        .iter()
        .map(|(id, email)| (format!("operator:{id}"), email.clone()))
        .chain([
            ("cli".to_owned(), "command line".to_owned()),
            ("system".to_owned(), "system".to_owned()),
        ])
        .collect();
    if !filter.actor.is_empty() && !actors.iter().any(|(value, _)| *value == filter.actor) {
        actors.push((filter.actor.clone(), filter.actor.clone()));
    }
    let actors = actors
        .into_iter()
        .map(|(value, shown)| {
            let selected = value == filter.actor;
            view! { <option value=value selected=selected>{shown}</option> }
        })
        .collect_view();
    view! {
        <form class="filters" method="get" action="/log" aria-label="Filters">
            <label class="lab">"What"<select class="sel" name="group"><option value="">"any"</option>{groups}</select></label>
            <label class="lab">"Who"<select class="sel" name="actor"><option value="">"anybody"</option>{actors}</select></label>
            <label class="lab">
                "From, UTC"
                <input class="sel" name="after" type="datetime-local" value=filter.after.clone() />
            </label>
            <label class="lab">
                "Before, UTC"
                <input class="sel" name="before" type="datetime-local" value=filter.before.clone() />
            </label>
            <button class="btn" type="submit">"Apply filters"</button>
            {(filter.href(None) != "/log").then(|| view! { <a href="/log">"Clear all"</a> })}
        </form>
    }
}

/// The two files, of what the filter lets through.
fn exports(data: &LogPage, csrf: &str) -> impl IntoView + use<> {
    let filter = &data.filter;
    let hidden = [
        ("csrf", csrf.to_owned()),
        ("group", filter.group.map(|group| group.as_str().to_owned()).unwrap_or_default()),
        ("actor", filter.actor.clone()),
        ("after", filter.after.clone()),
        ("before", filter.before.clone()),
    ]
    .into_iter()
    .map(|(name, value)| view! { <input type="hidden" name=name value=value /> })
    .collect_view();
    view! {
        <form class="export no-print" method="post" action="/log" aria-label="Export">
            {hidden}
            <button class="btn" type="submit" name="format" value="csv">{icon("inb")}"Download CSV"</button>
            <button class="btn" type="submit" name="format" value="ndjson">{icon("inb")}"Download NDJSON"</button>
            <span class="hint">
                {format!(
                    "What the filter lets through, at most the newest {} rows. The export is logged. CSV is made safe for \
                     spreadsheets; NDJSON is exact.",
                    number(data.export_rows_max)
                )}
            </span>
        </form>
    }
}

/// The act in words.
#[must_use]
pub fn act_text(fact: &Fact) -> String {
    let scope = || fact.detail.get_code("scope").unwrap_or("?").to_owned();
    match fact.kind {
        FactKind::Freeze => format!("froze {}", scope()),
        FactKind::Unfreeze => format!("reopened {}", scope()),
        FactKind::Config => match fact.detail.get_code("setting") {
            Some(setting) => format!("setting {setting} changed"),
            None => "configuration activated".to_owned(),
        },
        _ => {
            let what = fact.detail.get_code("what").unwrap_or("act");
            match what.strip_prefix("view_") {
                Some(page) => format!("viewed {}", page.replace('_', " ")),
                None => match what.strip_prefix("export_") {
                    Some(file) => format!("exported {}", file.replace('_', " ")),
                    None => what.replace('_', " "),
                },
            }
        }
    }
}

fn act_icon(fact: &Fact) -> &'static str {
    match (fact.kind, fact.detail.get_code("what").unwrap_or_default()) {
        (FactKind::Freeze, _) => "frozen",
        (FactKind::Unfreeze, _) => "thaw",
        (FactKind::Config, _) => "cog",
        (_, what) if what.starts_with("view_") => "eye",
        (_, what) if what.starts_with("export_") => "inb",
        (_, "lookup" | "search" | "find") => "search",
        (_, what) if what.starts_with("client") => "key",
        _ => "person",
    }
}

fn details(fact: &Fact) -> Vec<AnyView> {
    fact.detail
        .0
        .iter()
        .filter(|(name, _)| *name != "what")
        .map(|(name, value)| {
            let (label, text) = detail_pair(name, value);
            let text = match (name.as_str(), value) {
                ("record", DetailValue::Code(id)) => {
                    let href = format!("/events/{}", crate::model::percent_encoded(id));
                    view! { <a href=href><code>{id.clone()}</code></a> }.into_any()
                }
                ("seller", DetailValue::Code(id)) => {
                    let href = format!("/sellers/{}", crate::model::percent_encoded(id));
                    view! { <a href=href><code>{id.clone()}</code></a> }.into_any()
                }
                ("after" | "before", DetailValue::Number(micros)) => {
                    Stamp::from_micros(*micros).to_string().into_any()
                }
                _ => view! { <code>{text}</code> }.into_any(),
            };
            view! { <span class="pair"><span class="muted">{label}" "</span>{text}</span> }
                .into_any()
        })
        .collect()
}

fn table(data: &LogPage, now: Stamp) -> AnyView {
    let rows = data
        .rows
        .iter()
        .map(|fact| {
            let who = match fact.actor.strip_prefix("operator:") {
                Some(id) => match data.names.iter().find(|(known, _)| known == id) {
                    Some((_, email)) => view! {
                        {email.clone()}<span class="sub"><code class="clip">{fact.actor.clone()}</code></span>
                    }
                    .into_any(),
                    None => view! { <code class="clip">{fact.actor.clone()}</code> }.into_any(),
                },
                None => view! { <code>{fact.actor.clone()}</code> }.into_any(),
            };
            view! {
                <tr id=format!("act-{}", fact.seq)>
                    <th scope="row" class="nowrap">
                        {clock(fact.at, now)}<span class="sub">{ago(fact.at, now)}", no. "{fact.seq.to_string()}</span>
                    </th>
                    <td>{who}</td>
                    <td><span class="verdict">{icon(act_icon(fact))}{act_text(fact)}</span></td>
                    <td class="c2 pairs">{details(fact)}</td>
                </tr>
            }
        })
        .collect_view();
    scroll(
        "Operators' acts, newest first".to_owned(),
        view! {
            <table class="table log">
                <caption class="vh">"Operators’ acts, newest first"</caption>
                <thead>
                    <tr>
                        <th scope="col">"When, "{zone()}</th>
                        <th scope="col">"Who"</th>
                        <th scope="col">"What"</th>
                        <th scope="col" class="c2">"Of what"</th>
                    </tr>
                </thead>
                <tbody>{rows}</tbody>
            </table>
        },
    )
    .into_any()
}

fn nothing(data: &LogPage) -> AnyView {
    let (title, why) = if data.is_continued {
        ("Nothing further", "The log ends before this page.")
    } else if data.filter.href(None) == "/log" {
        ("Nothing is logged yet", "The first look at any page will stand here.")
    } else {
        (
            "No act matches",
            "Nothing in the log matches this filter. Widen the times or choose anybody.",
        )
    };
    empty("list", title, why, view! { <a class="btn" href="/log">"Whole log"</a> }).into_any()
}
