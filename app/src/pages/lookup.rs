//! `/lookup`: the blind look-up. One field that is posted; the answer never repeats what was typed.

use leptos::prelude::*;

use super::events::rows_table;
use crate::components::{Layout, Tone, counted, empty, field_error, head, icon, note, page};
use crate::model::{Frame, LookupFound, LookupKind, LookupPage};

/// The form, and under it what was found.
pub fn lookup(frame: Frame, data: LookupPage, options: LeptosOptions) -> impl IntoView + use<> {
    let now = frame.now;
    let title = view! { <h1>"Blind look-up"</h1> }.into_any();
    let lead =
        "Find the requests of a person who can only tell a phone number or an email address.";
    let error = data.problem.as_deref();
    let described = if error.is_some() { "subject-error subject-help" } else { "subject-help" };
    let found = data.found.as_ref().map(|found| answer(found, data.kind, now));
    let content = view! {
        {head(title, Some(lead.into_any()), now, Some("freeze"))}
        <div class="stack">
            {data.stale.clone().map(|text| note(Tone::Bad, text))}
            <section class="panel" aria-labelledby="by">
                <header><h2 id="by">"Look up by phone or email"</h2></header>
                // No script and no browser memory keeps it: it is not completed, not stored and in no address.
                <form class="body" method="post" action="/lookup" autocomplete="off">
                    <input type="hidden" name="csrf" value=frame.csrf.clone() />
                    <div class="field">
                        <label for="subject">"Phone number or email address"</label>
                        <input
                            class="input" id="subject" name="subject" type="text" required maxlength="254"
                            autocomplete="off" spellcheck="false" autocapitalize="none" inputmode="email"
                            aria-describedby=described aria-invalid=error.map(|_| "true")
                        />
                        {field_error("subject-error", error)}
                        <span class="help" id="subject-help">
                            "A number in full, as +12025550123. An address as it was registered; case counts before the @."
                        </span>
                    </div>
                    <div class="actions">
                        <button class="btn primary tall" type="submit">{icon("search")}"Look up"</button>
                        <span class="hint">
                            "Only its keyed hash is compared. What you type is kept nowhere; that you looked is in the \
                             operators’ log."
                        </span>
                    </div>
                </form>
            </section>
            {found}
        </div>
    };
    page(frame, options, Layout::new("Blind look-up").live("freeze"), content.into_any())
}

fn answer(found: &LookupFound, kind: LookupKind, now: crate::model::Stamp) -> AnyView {
    let what = match kind {
        LookupKind::Phone => "number",
        LookupKind::Email => "address",
    };
    let body = if found.rows.is_empty() {
        empty(
            "search",
            format!("No call was made to this {what}"),
            "Either nothing was sent there, or it is past its retention. A request that still waits for its first call \
             has no hash yet: ask for the seller id and search for that.",
            view! { <a class="btn" href="/events">"Search events"</a> },
        )
        .into_any()
    } else {
        rows_table("Requests with a call to it, newest first", &found.rows, false, now)
    };
    let count = match (found.rows.len() as u64, found.more) {
        (n, true) => format!("the newest {n}"),
        (n, false) => counted(n, "request", "requests"),
    };
    view! {
        <section class="panel" aria-labelledby="found" id="answer">
            <header><h2 id="found">"What was found"</h2><p>{count}", for this one "{what}</p></header>
            {body}
        </section>
    }
    .into_any()
}
