//! State, ids, notes, empty states, form fields, figures.

use leptos::prelude::*;

use super::{icon, text};
use crate::model::{Record, State};

/// A state: icon, the contract's word, colour.
pub fn state_badge(state: State) -> impl IntoView {
    let word = state.as_str();
    view! { <span class="state" data-state=word>{icon(word)}{word}</span> }
}

/// As [`state_badge`], for the head of a page.
pub fn state_big(state: State) -> impl IntoView {
    let word = state.as_str();
    view! { <span class="state big" data-state=word>{icon(word)}{word}</span> }
}

/// "frozen" beside the state of a record that a freeze holds back. It is no state of its own.
pub fn held_mark(record: &Record) -> impl IntoView + use<> {
    record.frozen.then(|| {
        view! { <span class="state held" data-state="frozen">{icon("frozen")}"held by a freeze"</span> }
    })
}

/// A copy button. `what` names the thing: "event id ev-1".
pub fn copy(what: &str, value: &str) -> impl IntoView + use<> {
    view! {
        <button class="copy needs-script" type="button" aria-label=format!("Copy {what}") data-copy=value.to_owned()>
            {icon("copy")}
        </button>
    }
}

/// An id with its copy button; long ones end in an ellipsis and are whole in the title.
pub fn id(what: &str, value: &str) -> impl IntoView + use<> {
    view! {
        <span class="id">
            <code title=value.to_owned()>{value.to_owned()}</code>
            {copy(&format!("{what} {value}"), value)}
        </span>
    }
}

/// As [`id`], shown whole over as many lines as it needs.
pub fn id_whole(what: &str, value: &str) -> impl IntoView + use<> {
    view! {
        <span class="id all">
            <code>{value.to_owned()}</code>
            {copy(&format!("{what} {value}"), value)}
        </span>
    }
}

/// The event id of a record as a link to its page.
pub fn event_link(record: &Record) -> impl IntoView + use<> {
    let event_id = record.event_id.clone();
    view! {
        <span class="id">
            <a href=format!("/events/{}", record.id) title=event_id.clone()><code>{event_id.clone()}</code></a>
            {copy(&format!("event id {event_id}"), &event_id)}
        </span>
    }
}

/// A seller as a link to its history; "none" where the event names none.
pub fn seller_link(seller_id: Option<&str>) -> AnyView {
    match seller_id {
        Some(seller) => {
            let href = format!("/sellers/{}", crate::model::percent_encoded(seller));
            let seller = seller.to_owned();
            view! { <a class="clip" href=href title=seller.clone()>{seller.clone()}</a> }.into_any()
        }
        None => view! { <span class="muted">"none"</span> }.into_any(),
    }
}

/// How loud a call-out is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    Warn,
    Bad,
    Cold,
}

impl Tone {
    const fn class(self) -> &'static str {
        match self {
            Self::Plain => "note",
            Self::Good => "note good",
            Self::Warn => "note warn",
            Self::Bad => "note bad",
            Self::Cold => "note cold",
        }
    }

    const fn icon(self) -> &'static str {
        match self {
            Self::Plain => "clock",
            Self::Good => "check",
            Self::Warn | Self::Bad => "alert",
            Self::Cold => "frozen",
        }
    }
}

/// A call-out. Problems are read out at once (`role=alert`), results when there is a pause (`role=status`).
pub fn note(tone: Tone, body: impl IntoView + 'static) -> impl IntoView {
    let role = match tone {
        Tone::Bad => Some("alert"),
        Tone::Good => Some("status"),
        _ => None,
    };
    view! { <div class=tone.class() role=role>{icon(tone.icon())}<div>{body}</div></div> }
}

/// Nothing to show: why, and what next.
pub fn empty(
    mark: &'static str,
    title: impl IntoView + 'static,
    why: impl IntoView + 'static,
    actions: impl IntoView + 'static,
) -> impl IntoView {
    view! {
        <div class="empty">
            {icon(mark)}
            <h2>{title}</h2>
            <p>{why}</p>
            <div class="actions">{actions}</div>
        </div>
    }
}

/// One figure of `.stats`: name, value, and a line below it.
pub fn stat(
    class: &'static str,
    mark: &'static str,
    state: Option<&'static str>,
    name: &'static str,
    value: impl IntoView + 'static,
    below: impl IntoView + 'static,
) -> impl IntoView {
    view! {
        <div class=class data-state=state>
            <dt>{icon(mark)}{name}</dt>
            <dd class="v">{value}</dd>
            <dd class="s">{below}</dd>
        </div>
    }
}

/// A span with its units small: for figures that are read across the room.
pub fn big_span(micros: i64) -> impl IntoView {
    let parts = text::span_parts(micros);
    let last = parts.len() - 1;
    parts
        .into_iter()
        .enumerate()
        .map(|(i, (amount, unit))| {
            let unit = if i == last { format!(" {unit}") } else { format!(" {unit} ") };
            view! { {amount.to_string()}<span class="unit">{unit}</span> }
        })
        .collect_view()
}

/// A bar whose width is an attribute, because the page may carry no inline style. `name` says it in words.
pub fn bar(percent: u64, tone: Option<&'static str>, name: String) -> impl IntoView {
    view! {
        <svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label=name data-tone=tone>
            <rect width=percent.min(100).to_string() height="6"></rect>
        </svg>
    }
}

/// The message under a form field.
pub fn field_error(id: &'static str, message: Option<&str>) -> impl IntoView + use<> {
    message.map(|text| {
        let text = text.to_owned();
        view! { <span class="err" id=id>{icon("alert")}{text}</span> }
    })
}

/// A table in a box that scrolls sideways by itself, so that the page never does. `name` is read out.
pub fn scroll(name: String, table: impl IntoView + 'static) -> impl IntoView {
    view! { <div class="scroll" tabindex="0" role="group" aria-label=name>{table}</div> }
}

/// "Older" and "Newest" under a list that is paged by cursor.
pub fn pager(count: String, newest: Option<String>, older: Option<String>) -> impl IntoView {
    (newest.is_some() || older.is_some() || !count.is_empty()).then(|| {
        view! {
            <nav class="pager" aria-label="Pages">
                <span>{count}</span>
                <div>
                    {newest.map(|href| view! { <a class="btn" href=href>{icon("back")}"Newest"</a> })}
                    {older.map(|href| view! { <a class="btn" href=href rel="next">"Older"{icon("fwd")}</a> })}
                </div>
            </nav>
        }
    })
}
