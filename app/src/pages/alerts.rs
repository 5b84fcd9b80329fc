//! `/alerts`: what is wrong now, who is on it, and whether people were told.
//!
//! The form posts to `/alerts` with `csrf`, `action_key`, `alert` and `reason`.

use leptos::prelude::*;

use crate::components::{
    Layout, Tone, ago, clock_zone, empty, field_error, head, icon, note, number, page, raw_text,
    scroll, span,
};
use crate::model::{
    Alert, AlertRule, AlertState, AlertsPage, DeliveryTrouble, FormState, Frame, Permission,
    Severity, Stamp,
};

/// Open alerts, those that are over, and what could not be told.
pub fn alerts(
    frame: Frame,
    data: AlertsPage,
    form: FormState,
    options: LeptosOptions,
) -> impl IntoView + use<> {
    let now = frame.now;
    let csrf = frame.csrf.clone();
    let is_refused = form.problem.is_some() || !form.fields.is_empty();
    let topic = (!is_refused).then_some("alerts");
    let title = view! { <h1>"Alerts"</h1> }.into_any();
    let firing = data.open.iter().filter(|alert| alert.state == AlertState::Firing).count();
    let lead = match firing {
        0 => "Nothing is firing.".to_owned(),
        1 => "One alert is firing.".to_owned(),
        n => format!("{n} alerts are firing."),
    };
    let open = if data.open.is_empty() {
        view! {
            <section class="panel" aria-label="Open alerts" data-key="none">
                {empty(
                    "check",
                    "Nothing is wrong as far as this can see",
                    "Each condition is looked at every few seconds, by one process at a time. What it cannot see is in \
                     the runbook.",
                    view! { <a class="btn" href="/runbook">"Runbook"</a> },
                )}
            </section>
        }
        .into_any()
    } else {
        data.open.iter().map(|alert| one(alert, &data, &form, &csrf, now)).collect_view().into_any()
    };
    let content = view! {
        {head(title, Some(lead.into_any()), now, topic)}
        {form.notice.clone().map(|notice| note(Tone::Good, notice))}
        {form.problem.clone().map(|problem| note(Tone::Bad, problem))}
        <div class="stack">
            <div class="stack" data-live="open">{open}</div>
            <div data-live="told">{told(&data, now)}</div>
            <div data-live="past">{past(&data.past, now)}</div>
        </div>
    };
    let mut layout = Layout::new("Alerts");
    layout.topic = topic.map(str::to_owned);
    page(frame, options, layout, content.into_any())
}

fn badge(alert: &Alert) -> AnyView {
    let (class, mark) = match (alert.state, alert.severity) {
        (AlertState::Firing, Severity::Page) => ("verdict bad", "alert"),
        (AlertState::Firing, Severity::Ticket) => ("verdict warn", "alert"),
        (AlertState::Acknowledged, _) => ("verdict warn", "person"),
        (AlertState::Pending, _) => ("verdict muted", "clock"),
        (AlertState::Resolved, _) => ("verdict good", "check"),
    };
    view! { <span class=class>{icon(mark)}{alert.state.as_str()}</span> }.into_any()
}

fn named(alert: &Alert) -> String {
    if alert.subject.is_empty() {
        alert.rule.title().to_owned()
    } else {
        format!("{} ({})", alert.rule.title(), alert.subject)
    }
}

/// The figure that went over its bound, in words.
fn value(alert: &Alert) -> Option<String> {
    match alert.rule {
        AlertRule::QueueAge
        | AlertRule::BackingOffAge
        | AlertRule::UnknownAge
        | AlertRule::LookupAllowance
        | AlertRule::SealLag
        | AlertRule::WorkerTicks
        | AlertRule::FrozenReview => Some(span(alert.value)),
        AlertRule::ClockOffset => Some(format!("{} ms", alert.value / 1_000)),
        AlertRule::BurnFast | AlertRule::BurnMedium | AlertRule::BurnSlow => Some(format!(
            "{}.{} times the budget's rate",
            alert.value / 1_000,
            alert.value % 1_000 / 100
        )),
        _ => None,
    }
}

fn one(alert: &Alert, data: &AlertsPage, form: &FormState, csrf: &str, now: Stamp) -> AnyView {
    let anchor = format!("a-{}", alert.id);
    let severity = match alert.severity {
        Severity::Page => "page: somebody is woken",
        Severity::Ticket => "ticket: can wait for the working day",
    };
    let since = match alert.fired_at {
        Some(at) => view! { "fires since "{clock_zone(at, now)}", "{ago(at, now)} }.into_any(),
        None => view! { "seen since "{clock_zone(alert.opened_at, now)}"; it fires when it lasts" }
            .into_any(),
    };
    let count = match alert.count {
        0 => "none now".to_owned(),
        n => number(n),
    };
    let acked = alert.acked_at.map(|at| {
        view! {
            <dt>"Acknowledged"</dt>
            <dd>
                {clock_zone(at, now)}" by "<code>{alert.acked_by.clone().unwrap_or_default()}</code>": "
                {alert.ack_reason.clone().unwrap_or_default()}
            </dd>
        }
    });
    let clear = alert.clear_at.map(|at| {
        view! { <dt>"Quiet since"</dt><dd>{clock_zone(at, now)}"; it ends when that lasts"</dd> }
    });
    let may = data.may_acknowledge && alert.state == AlertState::Firing;
    view! {
        <section class="panel" aria-labelledby=anchor.clone() data-key=anchor.clone()>
            <header>
                <h2 id=anchor.clone()>{named(alert)}</h2>
                {badge(alert)}
            </header>
            <div class="body stack">
                <dl class="kv">
                    <dt>"Since"</dt><dd>{since}</dd>
                    <dt>"Severity"</dt><dd>{severity}</dd>
                    <dt>"About"</dt><dd>{count}</dd>
                    {value(alert).map(|value| view! { <dt>"Figure"</dt><dd>{value}</dd> })}
                    {alert.oldest_at.map(|at| view! { <dt>"Oldest"</dt><dd>{clock_zone(at, now)}", "{ago(at, now)}</dd> })}
                    {acked}
                    {clear}
                </dl>
                <p>
                    <a class="btn" href=alert.rule.link()>"Look at it"</a>
                    " "
                    <a class="btn" href=format!("/runbook#{}", alert.rule.anchor())>"What to do"</a>
                </p>
                {may.then(|| acknowledge(alert, data, form, csrf))}
            </div>
        </section>
    }
    .into_any()
}

fn acknowledge(alert: &Alert, data: &AlertsPage, form: &FormState, csrf: &str) -> AnyView {
    let is_this = form.typed("alert") == alert.id;
    let typed = if is_this { form.typed("reason").to_owned() } else { String::new() };
    let problem = form.error("reason").filter(|_| is_this).map(str::to_owned);
    let field = format!("reason-{}", alert.id);
    let invalid = problem.is_some().then_some("true");
    let described = problem.is_some().then_some("e-reason");
    view! {
        <form method="post" action="/alerts" class="stack-s">
            <input type="hidden" name="csrf" value=csrf.to_owned() />
            <input type="hidden" name="action_key" value=data.action_key.clone() />
            <input type="hidden" name="alert" value=alert.id.clone() />
            <div class="field">
                <label for=field.clone()>"Reason"</label>
                <textarea
                    id=field.clone() name="reason" rows="2" maxlength="500" required aria-invalid=invalid
                    aria-describedby=described inner_html=raw_text(&typed)
                ></textarea>
                {field_error("e-reason", problem.as_deref())}
            </div>
            <div><button class="btn primary" type="submit">"Acknowledge"</button></div>
        </form>
    }
    .into_any()
}

fn trouble(trouble: &DeliveryTrouble, now: Stamp) -> AnyView {
    let next = if trouble.is_given_up {
        view! { <span class="verdict bad">{icon("alert")}"given up"</span> }.into_any()
    } else {
        view! { <span class="verdict warn">{icon("alert")}"tried again "{ago(trouble.next_at, now)}</span> }.into_any()
    };
    view! {
        <tr data-key=format!("{}-{}-{}", trouble.target, trouble.rule, trouble.event)>
            <th scope="row">{trouble.target.clone()}</th>
            <td>{trouble.rule.title()}<span class="sub">{trouble.event.clone()}</span></td>
            <td class="num">{trouble.tries.to_string()}</td>
            <td><code>{trouble.code.clone().unwrap_or_default()}</code></td>
            <td>{next}</td>
        </tr>
    }
    .into_any()
}

fn told(data: &AlertsPage, now: Stamp) -> AnyView {
    let targets = if data.targets.is_empty() {
        note(
            Tone::Warn,
            "Nobody is told: no webhook, Alertmanager or email is configured under [alerts]. Whoever does not look at \
             this page does not know.",
        )
        .into_any()
    } else {
        view! { <p class="soft">"Told by: "{data.targets.join(", ")}"."</p> }.into_any()
    };
    let troubles = if data.troubles.is_empty() {
        (!data.targets.is_empty())
            .then(|| view! { <p class="summary">"Everything that was to be told was taken."</p> })
            .into_any()
    } else {
        view! {
            {note(Tone::Bad, "Some alerts could not be told.")}
            {scroll(
                "Alerts that could not be told".to_owned(),
                view! {
                    <table class="table">
                        <caption class="vh">"Alerts that could not be told"</caption>
                        <thead>
                            <tr>
                                <th scope="col">"Target"</th>
                                <th scope="col">"Alert"</th>
                                <th scope="col" class="num">"Tries"</th>
                                <th scope="col">"Why"</th>
                                <th scope="col">"Next"</th>
                            </tr>
                        </thead>
                        <tbody>{data.troubles.iter().map(|one| trouble(one, now)).collect_view()}</tbody>
                    </table>
                },
            )}
        }
        .into_any()
    };
    let who = (!data.may_acknowledge)
        .then(|| view! { <p class="soft">"Acknowledging: "{Permission::Freeze.who_may()}</p> });
    view! {
        <section class="panel" aria-labelledby="told-h">
            <header><h2 id="told-h">"Who is told"</h2></header>
            <div class="body stack-s">{targets}{troubles}{who}</div>
        </section>
    }
    .into_any()
}

fn past(past: &[Alert], now: Stamp) -> AnyView {
    let rows = past
        .iter()
        .map(|alert| {
            let lasted = alert.fired_at.zip(alert.ended_at).map(|(from, to)| span(to.since(from)));
            view! {
                <tr data-key=alert.id.clone()>
                    <th scope="row">{named(alert)}<span class="sub">{alert.severity.as_str()}</span></th>
                    <td>{alert.fired_at.map(|at| clock_zone(at, now))}</td>
                    <td class="num">{lasted}</td>
                    <td class="c2">{alert.acked_by.clone().map(|by| view! { <code>{by}</code> })}</td>
                </tr>
            }
        })
        .collect_view();
    let body = if past.is_empty() {
        view! { <div class="body"><p class="soft">"No alert has ended in the last 90 days."</p></div> }.into_any()
    } else {
        scroll(
            "Alerts that are over".to_owned(),
            view! {
                <table class="table">
                    <caption class="vh">"Alerts that are over, newest first"</caption>
                    <thead>
                        <tr>
                            <th scope="col">"Alert"</th>
                            <th scope="col">"Fired"</th>
                            <th scope="col" class="num">"Lasted"</th>
                            <th scope="col" class="c2">"Acknowledged by"</th>
                        </tr>
                    </thead>
                    <tbody>{rows}</tbody>
                </table>
            },
        )
        .into_any()
    };
    view! {
        <section class="panel" aria-labelledby="past-h">
            <header><h2 id="past-h">"Over"</h2><p>"the newest 50"</p></header>
            {body}
        </section>
    }
    .into_any()
}
