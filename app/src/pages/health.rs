//! `/providers` and `/workers`, to read.

use leptos::prelude::*;

use crate::components::{
    Layout, ago, clock, clock_zone, duration_ms, empty, head, icon, id, page, scroll, span,
};
use crate::model::{Frame, ProviderView, Stamp, WorkerView};

fn yes_no(yes: bool) -> impl IntoView {
    if yes {
        view! { <span class="verdict good">{icon("check")}"yes"</span> }
    } else {
        view! { <span class="verdict muted">{icon("x")}"no"</span> }
    }
}

/// The providers and what each can prove.
pub fn providers(
    frame: Frame,
    data: Vec<ProviderView>,
    options: LeptosOptions,
) -> impl IntoView + use<> {
    let now = frame.now;
    let title = view! { <h1>"Providers"</h1> }.into_any();
    let lead = "What each provider can prove decides what may follow a call in doubt. One that can neither be read nor \
                repeated leaves its unknown outcomes unknown until they expire.";
    let rows = data.iter().map(|provider| provider_row(provider, now)).collect_view();
    let body = if data.is_empty() {
        empty(
            "plug",
            "No provider is configured",
            "Nothing can be sent. Providers and routes are set in the configuration file.",
            view! { <a class="btn" href="/">"Overview"</a> },
        )
        .into_any()
    } else {
        scroll(
            "Providers".to_owned(),
            view! {
                <table class="table">
                    <caption class="vh">"Configured providers"</caption>
                    <thead>
                        <tr>
                            <th scope="col">"Provider"</th>
                            <th scope="col">"Status"</th>
                            <th scope="col">"Can be read"</th>
                            <th scope="col" class="c2">"Absence counts after"</th>
                            <th scope="col" class="c2">"Repeat under our key"</th>
                            <th scope="col" class="c2">"Callbacks"</th>
                        </tr>
                    </thead>
                    <tbody>{rows}</tbody>
                </table>
            },
        )
        .into_any()
    };
    let content = view! {
        {head(title, Some(lead.into_any()), now, Some("providers"))}
        <section class="panel" aria-label="Providers" data-live="providers">{body}</section>
    };
    page(frame, options, Layout::new("Providers").live("providers"), content.into_any())
}

fn provider_row(provider: &ProviderView, now: Stamp) -> AnyView {
    let channels: Vec<&str> = provider.channels.iter().map(|channel| channel.as_str()).collect();
    let channels = if channels.is_empty() { "on no route".to_owned() } else { channels.join(", ") };
    let status = match provider.paused_until {
        Some(until) if until > now => {
            let code = provider.pause_code.clone();
            view! {
                <span class="verdict warn">{icon("alert")}"paused"</span>
                <span class="sub">
                    "until "{clock_zone(until, now)}{code.map(|code| view! { ", "<code>{code}</code> })}
                </span>
            }
            .into_any()
        }
        _ => view! { <span class="verdict good">{icon("check")}"takes calls"</span> }.into_any(),
    };
    let settle = provider.settle_ms.map_or_else(
        || "never believed".to_owned(),
        |ms| format!("{}, twice in a row", duration_ms(ms)),
    );
    let replay = provider
        .replay_window_ms
        .map_or_else(|| "not possible".to_owned(), |ms| format!("for {}", duration_ms(ms)));
    view! {
        <tr data-key=provider.name.clone()>
            <th scope="row">
                <b>{provider.name.clone()}</b>
                <span class="sub">{provider.kind.clone()}", "{channels}</span>
            </th>
            <td>{status}</td>
            <td>{yes_no(provider.can_be_read)}</td>
            <td class="c2">{settle}</td>
            <td class="c2">{replay}</td>
            <td class="c2">{yes_no(provider.has_callbacks)}</td>
        </tr>
    }
    .into_any()
}

/// A worker that was not seen for this long is called silent.
const SILENT_AFTER_MICROS: i64 = 30_000_000;

/// The processes that share this database.
pub fn workers(
    frame: Frame,
    data: Vec<WorkerView>,
    options: LeptosOptions,
) -> impl IntoView + use<> {
    let now = frame.now;
    let title = view! { <h1>"Workers"</h1> }.into_any();
    let rows = data
        .iter()
        .map(|worker| {
            let silent = now.since(worker.seen_at) > SILENT_AFTER_MICROS;
            let status = if silent {
                view! { <span class="verdict warn">{icon("alert")}"silent"</span> }
            } else {
                view! { <span class="verdict good">{icon("check")}"alive"</span> }
            };
            view! {
                <tr data-key=worker.id.clone()>
                    <th scope="row">{id("worker id", &worker.id)}</th>
                    <td>{status}<span class="sub">"seen "{ago(worker.seen_at, now)}</span></td>
                    <td>{worker.roles.replace(',', ", ")}</td>
                    <td class="c2">
                        {worker.version.clone()}<span class="sub">{format!("lease semantics {}", worker.semantics)}</span>
                    </td>
                    <td class="c2 nowrap">
                        {clock(worker.started_at, now)}
                        <span class="sub">{format!("up {}", span(now.since(worker.started_at)))}</span>
                    </td>
                </tr>
            }
        })
        .collect_view();
    let body = if data.is_empty() {
        empty(
            "cpu",
            "No process has reported",
            "Nothing is being sent. Start one with sendonce serve.",
            view! { <a class="btn" href="/">"Overview"</a> },
        )
        .into_any()
    } else {
        scroll(
            "Workers".to_owned(),
            view! {
                <table class="table">
                    <caption class="vh">"Processes on this database"</caption>
                    <thead>
                        <tr>
                            <th scope="col">"Worker"</th>
                            <th scope="col">"Status"</th>
                            <th scope="col">"Roles"</th>
                            <th scope="col" class="c2">"Version"</th>
                            <th scope="col" class="c2">"Started"</th>
                        </tr>
                    </thead>
                    <tbody>{rows}</tbody>
                </table>
            },
        )
        .into_any()
    };
    let lead = "Processes that share this database. One that falls silent loses its claims when their leases end; \
                nothing is sent twice because of it.";
    let content = view! {
        {head(title, Some(lead.into_any()), now, Some("workers"))}
        <section class="panel" aria-label="Workers" data-live="workers">{body}</section>
    };
    page(frame, options, Layout::new("Workers").live("workers"), content.into_any())
}
