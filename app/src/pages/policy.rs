//! `/policy`: the sending rules, what went to each country, and the breakers.
//!
//! Closing a breaker posts to `/policy` with `csrf`, `action_key`, `country` and `reason`.

use leptos::prelude::*;

use crate::components::{
    Layout, Tone, ago, clock_zone, duration_ms, empty, field_error, head, icon, note, number, page,
    raw_text, scroll,
};
use crate::model::{
    BreakerView, CountrySums, CountryView, FormState, Frame, Permission, PolicyPage, Stamp,
};

/// The sending rules. Readable for every role that sees health; closing is there for those who may.
pub fn policy(
    frame: Frame,
    data: PolicyPage,
    form: FormState,
    options: LeptosOptions,
) -> impl IntoView + use<> {
    let now = frame.now;
    let title = view! { <h1>"Sending rules"</h1> }.into_any();
    let lead = if data.is_monitor {
        "Rules are being watched: what they would stop is counted, and sent."
    } else {
        "What may be sent how often, where to, and for how much. A stopped event ends unsent."
    };
    let open: Vec<&CountryView> =
        data.countries.iter().filter(|country| is_open(country)).collect();
    let breakers = open
        .iter()
        .map(|country| breaker_panel(country, &data, &form, &frame.csrf, now))
        .collect_view();
    let none_open = open.is_empty().then(|| {
        view! {
            <section class="panel" aria-labelledby="breakers-h">
                <header><h2 id="breakers-h">"No breaker is open"</h2></header>
                <div class="body"><p class="soft">"Text messages go to every country that the rules allow."</p></div>
            </section>
        }
    });
    let content = view! {
        {head(title, Some(lead.into_any()), now, None)}
        {form.notice.clone().map(|notice| note(Tone::Good, notice))}
        {form.problem.clone().map(|problem| note(Tone::Bad, problem))}
        <div class="stack">
            {breakers}
            {none_open}
            {countries(&data)}
            {rules(&data)}
        </div>
    };
    page(frame, options, Layout::new("Sending rules"), content.into_any())
}

fn is_open(country: &CountryView) -> bool {
    country.breaker.as_ref().is_some_and(|breaker| breaker.state != "closed")
}

/// `ZZ` stands for no country.
fn name(country: &str) -> String {
    if country == "ZZ" { "no country (ZZ)".to_owned() } else { country.to_owned() }
}

fn breaker_panel(
    country: &CountryView,
    data: &PolicyPage,
    form: &FormState,
    csrf: &str,
    now: Stamp,
) -> AnyView {
    let Some(breaker) = &country.breaker else { return ().into_any() };
    let anchor = format!("breaker-{}", country.country);
    let word = if breaker.state == "open" { "open" } else { "half open" };
    let cause = match breaker.cause.as_deref() {
        Some("price") => "the messages of one window cost more than their budget",
        _ => "there were more messages in one window than their budget",
    };
    let next = match breaker.probes_at {
        Some(at) if at > now => view! { "lets probes through at "{clock_zone(at, now)} }.into_any(),
        Some(_) => "lets probes through with the next message".into_any(),
        None => "probes are on their way; it closes when they last".into_any(),
    };
    view! {
        <section class="panel" aria-labelledby=anchor.clone() data-key=anchor.clone()>
            <header>
                <h2 id=anchor.clone()>{format!("Breaker of {}", name(&country.country))}</h2>
                <span class="verdict warn">{icon("alert")}{word}</span>
            </header>
            <div class="body stack">
                <dl class="kv">
                    <dt>"Since"</dt><dd>{clock_zone(breaker.since, now)}", "{ago(breaker.since, now)}</dd>
                    <dt>"Because"</dt><dd>{cause}</dd>
                    <dt>"Budget"</dt><dd>{budget(breaker, &data.currency)}</dd>
                    <dt>"Next"</dt><dd>{next}</dd>
                </dl>
                <p class="soft">
                    "Text messages to this country end unsent; other countries do not notice. Look at who asks before \
                     you close it."
                </p>
            </div>
            {if data.may_close {
                close_form(country, data, form, csrf)
            } else {
                view! {
                    <div class="body">
                        {note(Tone::Plain, format!("Closing it: {}", Permission::Freeze.who_may()))}
                    </div>
                }
                .into_any()
            }}
        </section>
    }
    .into_any()
}

fn close_form(country: &CountryView, data: &PolicyPage, form: &FormState, csrf: &str) -> AnyView {
    let is_mine = form.typed("country") == country.country;
    let typed = if is_mine { form.typed("reason").to_owned() } else { String::new() };
    let error = if is_mine { form.error("reason") } else { None };
    let field_id = format!("reason-{}", country.country);
    let help_id = format!("reason-help-{}", country.country);
    let described =
        if error.is_some() { format!("reason-error {help_id}") } else { help_id.clone() };
    let area = if typed.is_empty() { String::new() } else { format!("\n{}", raw_text(&typed)) };
    view! {
        <form class="act" method="post" action="/policy">
            <input type="hidden" name="csrf" value=csrf.to_owned() />
            <input type="hidden" name="action_key" value=format!("{}-{}", data.action_key, country.country) />
            <input type="hidden" name="country" value=country.country.clone() />
            <div class="field">
                <label for=field_id.clone()>{format!("Reason for closing {}", name(&country.country))}</label>
                <textarea
                    class="input" id=field_id name="reason" required maxlength="500" aria-describedby=described
                    aria-invalid=error.map(|_| "true") inner_html=area
                ></textarea>
                {field_error("reason-error", error)}
                <span class="help" id=help_id>"What tells you that the flood is over? Kept in the audit log."</span>
            </div>
            <div class="actions">
                <button class="btn primary tall" type="submit">
                    "Close breaker"<span class="vh">{format!(" of {}", name(&country.country))}</span>
                </button>
                <span class="hint">"Messages go out again at once, and counting starts anew."</span>
            </div>
        </form>
    }
    .into_any()
}

fn budget(breaker: &BreakerView, currency: &str) -> String {
    let mut parts = Vec::new();
    if let Some(max) = breaker.messages_max {
        parts.push(format!("{} messages", number(u64::from(max))));
    }
    if let Some(max) = breaker.price_max {
        parts.push(format!("{currency} {}", price(max)));
    }
    format!("{} within {}", parts.join(" or "), duration_ms(breaker.window_ms))
}

/// Millionths as an amount: two digits behind the point, more where they say something.
fn price(micros: i64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, (micros % 1_000_000).abs());
    let short = text.trim_end_matches('0');
    let wanted = short.len().max(text.find('.').map_or(0, |at| at + 3));
    text.get(..wanted).unwrap_or(&text).to_owned()
}

fn countries(data: &PolicyPage) -> AnyView {
    let rows = data.countries.iter().map(|country| country_row(country, data)).collect_view();
    let body = if data.countries.is_empty() {
        empty(
            "list",
            "No text message was counted",
            "Countries are counted once a rule about them is configured.",
            view! { <a class="btn" href="/">"Overview"</a> },
        )
        .into_any()
    } else {
        scroll(
            "Text messages by country".to_owned(),
            view! {
                <table class="table">
                    <caption class="vh">"Text messages by country"</caption>
                    <thead>
                        <tr>
                            <th scope="col">"Country"</th>
                            <th scope="col">"Breaker"</th>
                            <th scope="col" class="num">"Last hour"</th>
                            <th scope="col" class="num">"Last 24 h"</th>
                            <th scope="col" class="num c2">{format!("Spent in 24 h, {}", data.currency)}</th>
                            <th scope="col" class="num c2">"Stopped in 24 h"</th>
                        </tr>
                    </thead>
                    <tbody>{rows}</tbody>
                </table>
            },
        )
        .into_any()
    };
    let total = sum(&data.countries);
    let summary = format!(
        "{} in the last 24 hours, for {} {}; {} stopped.{}",
        number(total.messages),
        data.currency,
        price(total.price),
        number(total.stopped),
        if data.more { " The table shows the countries with the highest spend." } else { "" }
    );
    view! {
        <section class="panel" aria-labelledby="countries-h">
            <header><h2 id="countries-h">"Spend by country"</h2><p>{summary}</p></header>
            {body}
        </section>
    }
    .into_any()
}

fn sum(countries: &[CountryView]) -> CountrySums {
    countries.iter().fold(CountrySums::default(), |sum, country| CountrySums {
        messages: sum.messages + country.last_day.messages,
        price: sum.price.saturating_add(country.last_day.price),
        stopped: sum.stopped + country.last_day.stopped,
    })
}

fn country_row(country: &CountryView, data: &PolicyPage) -> AnyView {
    let each = country.price.map_or_else(
        || "no price".to_owned(),
        |each| format!("{} {} each", data.currency, price(each)),
    );
    let breaker = match &country.breaker {
        None => view! { <span class="muted">"no budget"</span> }.into_any(),
        Some(breaker) if breaker.state == "closed" => {
            view! { <span class="verdict good">{icon("check")}"closed"</span> }.into_any()
        }
        Some(breaker) => {
            let word = if breaker.state == "open" { "open" } else { "half open" };
            view! { <span class="verdict warn">{icon("alert")}{word}</span> }.into_any()
        }
    };
    view! {
        <tr data-key=country.country.clone()>
            <th scope="row"><b>{name(&country.country)}</b><span class="sub">{each}</span></th>
            <td>{breaker}</td>
            <td class="num">{number(country.last_hour.messages)}</td>
            <td class="num">{number(country.last_day.messages)}</td>
            <td class="num c2">{price(country.last_day.price)}</td>
            <td class="num c2">{number(country.last_day.stopped)}</td>
        </tr>
    }
    .into_any()
}

fn rules(data: &PolicyPage) -> AnyView {
    let rows = data
        .rules
        .iter()
        .map(|(rule, value)| {
            view! {
                <dt><code>{rule.clone()}</code></dt>
                <dd>{value.clone()}</dd>
            }
        })
        .collect_view();
    view! {
        <section class="panel" aria-labelledby="rules-h">
            <header><h2 id="rules-h">"Rules in force"</h2></header>
            <div class="body"><dl class="kv">{rows}</dl></div>
        </section>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::price;

    #[test]
    fn an_amount_has_the_digits_that_say_something() {
        assert_eq!(price(7_500), "0.0075");
        assert_eq!(price(12_000_000), "12.00");
        assert_eq!(price(0), "0.00");
    }
}
