//! `/evidence`: packs that verify without us, and how the log stands.
//!
//! The form posts to `/evidence` with `csrf` and either `id`, `seller`, or `from` and `to`; the answer is the pack.

use leptos::prelude::*;

use crate::components::{Layout, Tone, ago, clock, field_error, head, icon, note, number, page};
use crate::model::{EvidencePage, FormState, Frame};

/// The form for packs, the log's state, and the packs that were taken last.
pub fn evidence(
    frame: Frame,
    data: EvidencePage,
    form: FormState,
    options: LeptosOptions,
) -> impl IntoView + use<> {
    let now = frame.now;
    let title = view! { <h1>"Evidence"</h1> }.into_any();
    let lead = "A pack holds facts with the proof that they are in the signed log. Who gets it can check it \
                offline, without trusting us. It holds no token, link, address or number.";
    let content = view! {
        {head(title, Some(lead.into_any()), now, None)}
        {form.problem.clone().map(|problem| note(Tone::Bad, problem))}
        <div class="stack">
            {download(&data, &form, &frame.csrf)}
            {state(&data, now)}
            {taken(&data, now)}
        </div>
    };
    page(frame, options, Layout::new("Evidence"), content.into_any())
}

fn download(data: &EvidencePage, form: &FormState, csrf: &str) -> impl IntoView + use<> {
    let error = |field: &str| {
        form.fields.iter().find(|(name, _)| name == field).map(|(_, text)| text.clone())
    };
    let input = |name: &'static str,
                 label: &'static str,
                 hint: &'static str,
                 kind: &'static str| {
        let id = format!("evidence-{name}");
        let problem = error(name);
        view! {
            <div class="field">
                <label for=id.clone()>{label}</label>
                <input
                    id=id name=name type=kind value=form.typed(name).to_owned() autocomplete="off" spellcheck="false"
                    aria-invalid=problem.is_some().then_some("true")
                />
                <p class="hint">{hint}</p>
                {problem.map(|text| field_error("evidence-error", Some(&text)))}
            </div>
        }
    };
    view! {
        <section class="panel" aria-labelledby="pack-h">
            <header><h2 id="pack-h">"Take evidence away"</h2></header>
            <form class="body stack-s" method="post" action="/evidence">
                <input type="hidden" name="csrf" value=csrf.to_owned() />
                {input("id", "Event or notification id", "One notification, by our id or the caller's event id.", "text")}
                {input("seller", "Seller id", "Or all notifications of a seller.", "text")}
                {input("from", "From, UTC", "Or everything from this instant on,", "datetime-local")}
                {input("to", "Before, UTC", "and before this one.", "datetime-local")}
                <p class="hint">
                    {format!(
                        "At most {} facts; a pack that is full says so. The download is logged with the file's SHA-256.",
                        number(data.facts_max)
                    )}
                </p>
                <div><button class="btn primary" type="submit">{icon("inb")}"Download evidence"</button></div>
            </form>
        </section>
    }
}

fn state(data: &EvidencePage, now: crate::model::Stamp) -> impl IntoView + use<> {
    let sealed = data.sealed_at.map(|at| view! { ", " {ago(at, now)} });
    let waiting = match (data.unsealed, data.unsealed_since) {
        (0, _) => view! { "None: every fact has its place." }.into_any(),
        (count, Some(since)) => {
            view! { {number(count)} ", the oldest " {ago(since, now)} }.into_any()
        }
        (count, None) => view! { {number(count)} }.into_any(),
    };
    let verdict = match &data.verdict {
        None => view! { "Never asked: run " <code>"sendonce audit verify"</code> "." }.into_any(),
        Some(verdict) => {
            let word = |holds: bool| if holds { "holds" } else { "does not hold" };
            view! {
                {format!(
                    "Integrity {}, completeness {}, over {} facts, ",
                    word(verdict.integrity),
                    word(verdict.completeness),
                    number(verdict.size)
                )}
                {ago(verdict.at, now)}
            }
            .into_any()
        }
    };
    view! {
        <section class="panel" aria-labelledby="log-h">
            <header><h2 id="log-h">"The signed log"</h2></header>
            <dl class="body kv">
                <dt>"Name"</dt><dd><code>{data.origin.clone()}</code></dd>
                <dt>"Sealed facts"</dt><dd>{number(data.size)} {sealed}</dd>
                <dt>"Waiting for the seal"</dt><dd>{waiting}</dd>
                <dt>"Last check of the whole log"</dt><dd>{verdict}</dd>
            </dl>
        </section>
    }
}

fn taken(data: &EvidencePage, now: crate::model::Stamp) -> impl IntoView + use<> {
    let rows = data
        .taken
        .iter()
        .map(|fact| {
            let hash = fact.detail.get_code("sha256").unwrap_or_default().to_owned();
            let facts = fact.detail.get_number("facts").unwrap_or_default();
            view! {
                <li>
                    {clock(fact.at, now)} " (" {ago(fact.at, now)} "), " {fact.actor.clone()} ", "
                    {format!("{facts} facts")} ", SHA-256 " <code class="wrap">{hash}</code>
                </li>
            }
        })
        .collect_view();
    let list = if data.taken.is_empty() {
        view! { <p class="soft">"No pack was taken yet."</p> }.into_any()
    } else {
        view! { <ul>{rows}</ul> }.into_any()
    };
    view! {
        <section class="panel" aria-labelledby="taken-h">
            <header><h2 id="taken-h">"Packs taken last"</h2></header>
            <div class="body">
                {list}
                <p class="hint">
                    "Check one with " <code>"sendonce evidence verify FILE"</code>
                    ", or as the README.txt in it says, without our program."
                </p>
            </div>
        </section>
    }
}
