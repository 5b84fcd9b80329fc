//! Instants on the page: always a `<time>` with the exact instant, its zone printed or in the title.
//!
//! The server writes UTC. `data-time` names the form, so that a script may write the same instant in the
//! reader's own zone; each `data-zone` then says which zone is shown.

use leptos::prelude::*;

use super::text;
use crate::model::Stamp;

/// `2026-03-14 02:14:07.204 UTC`: what the title of each time says.
#[must_use]
pub fn exact(at: Stamp) -> String {
    format!("{} {} UTC", at.date(), at.clock_millis())
}

fn stamp(at: Stamp, form: &'static str, shown: String) -> impl IntoView {
    view! { <time datetime=at.to_string() title=exact(at) data-time=form>{shown}</time> }
}

/// Hours, minutes, seconds; with the day in front when it is another day than today.
pub fn clock(at: Stamp, now: Stamp) -> impl IntoView {
    let shown =
        if at.date() == now.date() { at.clock() } else { format!("{} {}", at.date(), at.clock()) };
    stamp(at, if at.date() == now.date() { "clock" } else { "full" }, shown)
}

/// As [`clock`], with the zone behind it.
pub fn clock_zone(at: Stamp, now: Stamp) -> impl IntoView {
    view! { <span class="nowrap">{clock(at, now)}" "{zone()}</span> }
}

/// Hours to milliseconds.
pub fn clock_millis(at: Stamp) -> impl IntoView {
    stamp(at, "millis", at.clock_millis())
}

/// The day.
pub fn day(at: Stamp) -> impl IntoView {
    stamp(at, "day", at.date())
}

/// The instant as seen from `now`, with the exact one in its title.
pub fn ago(at: Stamp, now: Stamp) -> impl IntoView {
    stamp(at, "ago", text::relative(at, now))
}

/// The zone in which this page shows its times.
pub fn zone() -> impl IntoView {
    view! { <span data-zone>"UTC"</span> }
}

/// "as of": when the figures of this page were read.
pub fn as_of(now: Stamp) -> impl IntoView {
    view! {
        <span class="asof" data-live="as-of">
            <span>
                "as of "
                <time datetime=now.to_string() title=exact(now) data-time="clock" data-asof="">{now.clock()}</time>
                " "{zone()}
            </span>
        </span>
    }
}
