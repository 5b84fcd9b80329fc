//! `/freeze`: the freeze desk.
//!
//! Both forms post to `/freeze`; the hidden field `act` says which of the two it is. Fields: `csrf`,
//! `action_key`, `act` (`freeze` or `reopen`), `scope`, `reason`, and for freezing `review_at` (UTC,
//! `2026-03-14T03:00`, may be empty) and `confirm` (the word `all` for the scope `all`).

use leptos::prelude::*;

use crate::components::{
    Layout, Tone, ago, bar, capped, capped_counted, clock, clock_zone, counted, duration_ms,
    field_error, head, icon, note, number, page, percent, raw_text, scope_words, scroll, span,
    stat,
};
use crate::model::{FormState, Frame, FreezePage, FreezeView, Permission, ScopeView, Stamp};

/// The freeze desk. Readable for every role; the forms are there for those who may use them.
pub fn freeze(
    frame: Frame,
    data: FreezePage,
    form: FormState,
    options: LeptosOptions,
) -> impl IntoView + use<> {
    let now = frame.now;
    let csrf = frame.csrf.clone();
    // A refused form must stay as it was typed, so the page that shows it does not refresh itself.
    let is_refused = form.problem.is_some() || !form.fields.is_empty();
    let topic = (!is_refused).then_some("freeze");
    let title = view! { <h1>"Freeze desk"</h1> }.into_any();
    let lead = "A freeze stops new calls. It never stops admission, reading, callbacks or expiry.";
    let several = data.active.len() > 1;
    let active = if data.active.is_empty() {
        view! {
            <section class="panel" aria-labelledby="active-h" data-key="none">
                <header><h2 id="active-h">"Nothing is frozen"</h2></header>
                <div class="body"><p class="soft">"Every channel and provider may send."</p></div>
            </section>
        }
        .into_any()
    } else {
        data.active
            .iter()
            .map(|view| active_freeze(view, &data, &form, &csrf, several, now))
            .collect_view()
            .into_any()
    };
    let desk = if data.may_freeze {
        freeze_form(&data, &form, &csrf, now)
    } else {
        view! {
            <section class="panel" aria-labelledby="may-h">
                <header><h2 id="may-h">"Who may freeze"</h2></header>
                <div class="body stack-s">
                    {note(Tone::Plain, format!(
                        "You may read this page. Freezing and reopening: {} If dispatch must stop now, tell whoever \
                         is on call.",
                        Permission::Freeze.who_may()
                    ))}
                    {effects(&data)}
                </div>
            </section>
        }
        .into_any()
    };
    let content = view! {
        {head(title, Some(lead.into_any()), now, topic)}
        {form.notice.clone().map(|notice| note(Tone::Good, notice))}
        {form.problem.clone().map(|problem| note(Tone::Bad, problem))}
        <div class="grid desk">
            <div class="stack" data-live="active">{active}</div>
            <div class="stack">{desk}</div>
        </div>
    };
    let mut layout = Layout::new("Freeze desk");
    layout.topic = topic.map(str::to_owned);
    page(frame, options, layout, content.into_any())
}

fn active_freeze(
    view: &FreezeView,
    data: &FreezePage,
    form: &FormState,
    csrf: &str,
    several: bool,
    now: Stamp,
) -> AnyView {
    let freeze = &view.freeze;
    let scope = scope_words(&freeze.scope);
    let key = freeze.scope.replace(':', "-");
    let anchor = format!("f-{key}");
    let review = match freeze.review_at {
        Some(at) if at <= now => view! {
            <b class="overdue">"was due at "{clock_zone(at, now)}", "{ago(at, now)}</b>
            ". Nothing reopens by itself"
        }
        .into_any(),
        Some(at) => view! { {clock_zone(at, now)}", "{ago(at, now)}". A reminder; nothing reopens by itself" }.into_any(),
        None => "no time was set. Nothing reopens by itself".into_any(),
    };
    let oldest = view
        .oldest_waiting_at
        .map_or_else(|| "none waits".to_owned(), |at| format!("oldest {}", span(now.since(at))));
    let on_wire = match view.in_flight_now {
        0 => "none now".to_owned(),
        n => format!("{} now; they end within {}", number(n), duration_ms(data.call_timeout_ms)),
    };
    view! {
        <section class="panel" aria-labelledby=anchor.clone() data-key=anchor.clone()>
            <header>
                <h2 id=anchor.clone()>{scope.clone()}</h2>
                <span class="state" data-state="frozen">
                    {icon("frozen")}{format!("frozen {}", span(now.since(freeze.since)))}
                </span>
            </header>
            <div class="body stack">
                <dl class="kv">
                    <dt>"Since"</dt>
                    <dd>{clock_zone(freeze.since, now)}" by "<code>{freeze.actor.clone()}</code></dd>
                    <dt>"Reason given"</dt><dd>{freeze.reason.clone()}</dd>
                    <dt>"Review"</dt><dd>{review}</dd>
                </dl>
                <dl class="stats four">
                    {stat("stat", "frozen", Some("frozen"), "Waiting", capped(view.waiting), oldest)}
                    {stat("stat", "dispatching", Some("dispatching"), "In flight then", freeze.in_flight.to_string(), on_wire)}
                    {stat(
                        "stat", "dispatch_unknown", Some("dispatch_unknown"), "Unknown", capped(view.unknown),
                        view! { <a href="/unknown">"still read"</a> },
                    )}
                    {stat("stat", "expired", Some("expired"), "Expired", capped(view.expired), "while frozen; no call")}
                </dl>
                {will_expire(view, now)}
                {authorises(view, now)}
            </div>
            {data.may_freeze.then(|| reopen_form(view, data, form, csrf, several))}
        </section>
    }
    .into_any()
}

fn will_expire(view: &FreezeView, now: Stamp) -> AnyView {
    if view.waiting.count == 0 {
        return ().into_any();
    }
    let row = |until: Stamp, label: &'static str, n: u64| {
        let share = percent(n, view.waiting.count);
        let tone = match share {
            75.. => Some("bad"),
            40.. => Some("hot"),
            _ => None,
        };
        view! {
            <tr>
                <th scope="row">{clock(until, now)}" "<span class="muted">{label}</span></th>
                <td class="num">{number(n)}</td>
                <td>
                    <div class="meter">{bar(share, tone, format!("{share} percent"))}<span>{share.to_string()}" %"</span></div>
                </td>
            </tr>
        }
    };
    const MINUTE: i64 = 60_000_000;
    let review = view
        .freeze
        .review_at
        .filter(|at| *at > now)
        .zip(view.expire_by_review)
        .map(|(at, n)| row(at, "review", n));
    view! {
        <div>
            <h3>"Will expire if it stays frozen"</h3>
            <div class="bare">
                {scroll(
                    format!("Expiry while {} is frozen", scope_words(&view.freeze.scope)),
                    view! {
                        <table class="table">
                            <caption class="vh">"Events that expire if the freeze stays"</caption>
                            <thead>
                                <tr>
                                    <th scope="col">"Until"</th>
                                    <th scope="col" class="num">"Expire"</th>
                                    <th scope="col">{format!("Share of the {} waiting", capped(view.waiting))}</th>
                                </tr>
                            </thead>
                            <tbody>
                                {row(now.plus(5 * MINUTE), "in 5 min", view.expire_in_5_min)}
                                {row(now.plus(15 * MINUTE), "in 15 min", view.expire_in_15_min)}
                                {review}
                            </tbody>
                        </table>
                    },
                )}
            </div>
        </div>
    }
    .into_any()
}

/// The figure that says whether it is safe to reopen: whether the provider answers again. Reads go on while
/// dispatch is frozen, so they try the same way without sending anything.
fn authorises(view: &FreezeView, now: Stamp) -> AnyView {
    let answered = percent(view.reads_answered, view.reads);
    let tone = match (view.reads, answered) {
        (0, _) => None,
        (_, 95..) => Some("ok"),
        (_, 50..) => Some("hot"),
        _ => Some("bad"),
    };
    let words = if view.reads == 0 {
        "No look-up of this scope was made since the freeze: nothing here says that the provider answers again."
            .into_any()
    } else {
        let last = view.last_answer_at.map(|at| {
            view! { " The last answer came at "{clock_zone(at, now)}", "{ago(at, now)}"." }
        });
        view! {
            {format!(
                "{} of {} since the freeze were answered.",
                number(view.reads_answered),
                counted(view.reads, "look-up", "look-ups")
            )}
            {last}
        }
        .into_any()
    };
    view! {
        <div class="stack-s">
            <h3>"What tells that it is safe to reopen"</h3>
            {(view.reads > 0).then(|| view! {
                <div class="meter">
                    {bar(answered, tone, format!("{answered} percent of the look-ups were answered"))}
                    <span>{answered.to_string()}" %"</span>
                </div>
            })}
            <p class="summary">{words}</p>
        </div>
    }
    .into_any()
}

fn reopen_form(
    view: &FreezeView,
    data: &FreezePage,
    form: &FormState,
    csrf: &str,
    several: bool,
) -> AnyView {
    let scope = view.freeze.scope.clone();
    let words = scope_words(&scope);
    let key = scope.replace(':', "-");
    let is_mine = form.typed("act") == "reopen" && form.typed("scope") == scope;
    let typed = if is_mine { form.typed("reason").to_owned() } else { String::new() };
    let error = if is_mine { form.error("reason") } else { None };
    let field_id = format!("reopen-{key}");
    let help_id = format!("reopen-help-{key}");
    let described =
        if error.is_some() { format!("reopen-error {help_id}") } else { help_id.clone() };
    // With several freezes each field and button says which one it is for.
    let of_scope = several.then(|| format!(" ({words})"));
    let waiting = match view.waiting.count {
        0 => view! { <b>"Nothing waits"</b>", so nothing is sent because of it." }.into_any(),
        n => {
            let pace = u64::from(data.release_per_second.max(1));
            let seconds = n.div_ceil(pace);
            let time =
                if view.waiting.more { "longer than ".to_owned() } else { "about ".to_owned() };
            view! {
                <b>{capped_counted(view.waiting, "event is released", "events are released")}</b>
                {format!(
                    ", oldest first, at most {} a second: {time}{}.",
                    number(pace),
                    span(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000)),
                )}
            }
            .into_any()
        }
    };
    let unknown = match view.unknown.count {
        0 => "No outcome of this scope is unknown.".into_any(),
        _ => view! {
            <b>{capped_counted(view.unknown, "unknown outcome stays", "unknown outcomes stay")}" unknown"</b>
            " until read. Reopening resends none of them."
        }
        .into_any(),
    };
    view! {
        <form class="act" method="post" action="/freeze">
            <input type="hidden" name="csrf" value=csrf.to_owned() />
            <input type="hidden" name="action_key" value=format!("{}-{key}", data.action_key) />
            <input type="hidden" name="act" value="reopen" />
            <input type="hidden" name="scope" value=scope />
            <h3>"If you reopen now"</h3>
            <ul class="effects">
                <li data-state="dispatching">{icon("dispatching")}<span>{waiting}</span></li>
                <li data-state="expired">
                    {icon("expired")}
                    <span>
                        {(view.too_late > 0).then(|| view! {
                            <b>{counted(view.too_late, "is too late already", "are too late already")}</b>". "
                        })}
                        {format!(
                            "Those with less than {} left are not sent; they expire. So do those whose turn comes too \
                             late.",
                            duration_ms(data.margin_ms)
                        )}
                    </span>
                </li>
                <li data-state="failed_final">
                    {icon("failed_final")}
                    <span>"Those whose link was used or replaced meanwhile are not sent."</span>
                </li>
                <li data-state="dispatch_unknown">{icon("dispatch_unknown")}<span>{unknown}</span></li>
            </ul>
            <div class="field">
                <label for=field_id.clone()>"Reason for reopening"{of_scope.clone()}</label>
                <textarea
                    class="input" id=field_id name="reason" required maxlength="500" aria-describedby=described
                    aria-invalid=error.map(|_| "true") inner_html=area_text(&typed)
                ></textarea>
                {field_error("reopen-error", error)}
                <span class="help" id=help_id>"What tells you that it is safe now? Kept in the audit log."</span>
            </div>
            <div class="actions">
                <button class="btn primary tall" type="submit">
                    "Reopen dispatch"{of_scope.map(|of| view! { <span class="vh">{of}</span> })}
                </button>
                <span class="hint">"What is sent then cannot be called back. You can freeze again at any time."</span>
            </div>
        </form>
    }
    .into_any()
}

fn effects(data: &FreezePage) -> impl IntoView + use<> {
    let timeout = duration_ms(data.call_timeout_ms);
    view! {
        <ul class="effects">
            <li class="cold">
                {icon("frozen")}
                <span>"No new call of the scope starts, on any node, from the moment the freeze is acknowledged."</span>
            </li>
            <li>
                {icon("call")}
                <span>
                    {format!("Calls already on the wire end by themselves, within {timeout}; their results are recorded.")}
                </span>
            </li>
            <li>
                {icon("accepted")}
                <span>"New requests are still admitted and answered 202. They wait. Nothing is sent another way."</span>
            </li>
            <li>
                {icon("expired")}
                <span>
                    "Events whose time runs out while they wait end as "<code>"expired_while_frozen"</code>
                    "; the caller’s status shows it."
                </span>
            </li>
            <li>
                {icon("eye")}
                <span>"Look-ups and callbacks go on, so unknown outcomes can still become known."</span>
            </li>
        </ul>
    }
}

fn scope_line(scope: &ScopeView) -> String {
    let what = match scope.scope.split_once(':') {
        Some(("channel", "sms")) => "All text messages.",
        Some(("channel", "email")) => "All email.",
        Some(("provider", _)) => "This provider only. It is not routed around.",
        _ => "Every channel and provider. Asks you to type the word “all”.",
    };
    if scope.frozen {
        return format!("{what} Already frozen.");
    }
    format!(
        "{what} {}, {} in flight now.",
        capped_counted(scope.waiting, "event waits", "events wait"),
        number(scope.in_flight)
    )
}

fn freeze_form(data: &FreezePage, form: &FormState, csrf: &str, now: Stamp) -> AnyView {
    let is_mine = form.typed("act") != "reopen";
    let typed = |field: &str| if is_mine { form.typed(field).to_owned() } else { String::new() };
    let error = |field: &str| if is_mine { form.error(field) } else { None };
    let chosen = Some(typed("scope")).filter(|scope| !scope.is_empty()).or_else(|| {
        data.scopes
            .iter()
            .find(|scope| !scope.frozen && scope.scope != "all")
            .map(|scope| scope.scope.clone())
    });
    let scopes = data
        .scopes
        .iter()
        .map(|scope| {
            let name = scope.scope.clone();
            let checked = !scope.frozen && chosen.as_deref() == Some(name.as_str());
            view! {
                <label>
                    <input type="radio" name="scope" value=name.clone() checked=checked disabled=scope.frozen required />
                    <b>{name.clone()}</b>
                    <span data-live=format!("scope:{name}")>{scope_line(scope)}</span>
                </label>
            }
        })
        .collect_view();
    let heading = if data.active.is_empty() { "Freeze a scope" } else { "Freeze another scope" };
    let described = |error: Option<&str>, error_id: &str, help_id: &str| {
        if error.is_some() { format!("{error_id} {help_id}") } else { help_id.to_owned() }
    };
    let (reason_error, review_error, confirm_error) =
        (error("reason"), error("review_at"), error("confirm"));
    let earliest: String = now.to_string().chars().take(16).collect();
    view! {
        <section class="panel" aria-labelledby="freeze-h">
            <header><h2 id="freeze-h">{heading}</h2></header>
            <form class="body freeze-form" method="post" action="/freeze">
                <input type="hidden" name="csrf" value=csrf.to_owned() />
                <input type="hidden" name="action_key" value=data.action_key.clone() />
                <input type="hidden" name="act" value="freeze" />
                <fieldset class="field">
                    <legend class="legend-t">"Scope"</legend>
                    <div class="pick">{scopes}</div>
                    {field_error("scope-error", error("scope"))}
                </fieldset>
                <div class="field"><span class="legend-t">"What it does"</span>{effects(data)}</div>
                <div class="field">
                    <label for="reason">"Reason"</label>
                    <textarea
                        class="input" id="reason" name="reason" required maxlength="500"
                        aria-describedby=described(reason_error, "reason-error", "reason-help")
                        aria-invalid=reason_error.map(|_| "true") inner_html=area_text(&typed("reason"))
                    ></textarea>
                    {field_error("reason-error", reason_error)}
                    <span class="help" id="reason-help">
                        "Shown in the banner and kept in the audit log. No names, numbers or addresses of people."
                    </span>
                </div>
                <div class="field">
                    <label for="review_at">"Review at, UTC (optional)"</label>
                    <input
                        class="input" id="review_at" name="review_at" type="datetime-local" min=earliest
                        value=typed("review_at")
                        aria-describedby=described(review_error, "review-error", "review-help")
                        aria-invalid=review_error.map(|_| "true")
                    />
                    {field_error("review-error", review_error)}
                    <span class="help" id="review-help">"A reminder on every page. Nothing reopens by itself."</span>
                </div>
                <div class="field confirm-all">
                    <label for="confirm">"Type “all” to freeze everything"</label>
                    <input
                        class="input" id="confirm" name="confirm" maxlength="16" autocomplete="off" autocapitalize="none"
                        spellcheck="false" value=typed("confirm")
                        aria-describedby=described(confirm_error, "confirm-error", "confirm-help")
                        aria-invalid=confirm_error.map(|_| "true")
                    />
                    {field_error("confirm-error", confirm_error)}
                    <span class="help" id="confirm-help">
                        {all_line(data)}
                    </span>
                </div>
                <div class="actions">
                    <button class="btn freeze tall" type="submit">{icon("frozen")}"Freeze dispatch"</button>
                    <span class="hint">"Takes effect at once."</span>
                </div>
            </form>
        </section>
    }
    .into_any()
}

/// What was typed, as the content of a `<textarea>`. The parser drops a first line break, so one is added.
fn area_text(typed: &str) -> String {
    if typed.is_empty() { String::new() } else { format!("\n{}", raw_text(typed)) }
}

/// What the scope `all` holds back, in numbers.
fn all_line(data: &FreezePage) -> String {
    match data.scopes.iter().find(|scope| scope.scope == "all") {
        Some(all) => format!(
            "Holds back every message to every seller: {}, {} in flight end by themselves.",
            capped_counted(all.waiting, "event waits now", "events wait now"),
            counted(all.in_flight, "call", "calls")
        ),
        None => "Holds back every message to every seller.".to_owned(),
    }
}
