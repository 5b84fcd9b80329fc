//! `/slo`: the objective, the error budget, how fast it burns, and the margin advisor.

use leptos::prelude::*;

use crate::components::{
    Column, Layout, clock, clock_zone, columns, counted, duration_ms, empty, head, icon, number,
    page, scroll, stat,
};
use crate::model::{Burn, Frame, MarginAdvice, SloChannel, SloCounts, SloPage, SloPart, Stamp};

/// The objective by channel.
pub fn slo(frame: Frame, data: SloPage, options: LeptosOptions) -> impl IntoView + use<> {
    let now = frame.now;
    let title = view! { <h1>"Service level"</h1> }.into_any();
    let lead = format!(
        "Objective: {} of the events that can still be sent settle within {}, over {} days. Whole minutes only, \
         judged once their window is over.",
        share(data.target_ppm),
        duration_ms(data.window_ms),
        data.period_days
    );
    let channels =
        data.channels.iter().map(|channel| one_channel(channel, &data, now)).collect_view();
    let content = view! {
        {head(title, Some(lead.into_any()), now, Some("slo"))}
        <div class="stack" data-live="slo">
            <p class="soft">"Judged up to "{clock_zone(data.judged_to, now)}"."</p>
            {channels}
            {margins(&data.margins)}
        </div>
    };
    page(frame, options, Layout::new("Service level").live("slo"), content.into_any())
}

/// Millionths as percent, with as many decimals as it needs, at most three: never rounded up to 100.
fn share(ppm: u64) -> String {
    let (whole, part) = (ppm / 10_000, ppm % 10_000 / 10);
    let part = format!("{part:03}");
    let part = part.trim_end_matches('0');
    if part.is_empty() { format!("{whole} %") } else { format!("{whole}.{part} %") }
}

fn milli(milli: i64) -> String {
    let sign = if milli < 0 { "-" } else { "" };
    let milli = milli.unsigned_abs();
    format!("{sign}{}.{}", milli / 1_000, milli % 1_000 / 100)
}

fn budget(channel: &SloChannel) -> String {
    let tenths = channel.budget_left_milli;
    let sign = if tenths < 0 { "-" } else { "" };
    let tenths = tenths.unsigned_abs();
    format!("{sign}{}.{} %", tenths / 10, tenths % 10)
}

fn one_channel(channel: &SloChannel, data: &SloPage, now: Stamp) -> AnyView {
    let name = channel.channel.as_str();
    let anchor = format!("slo-{name}");
    let counts = channel.period;
    let attained = channel.attained_ppm.map_or_else(|| "none yet".to_owned(), share);
    let is_overdrawn = channel.budget_left_milli < 0;
    let attained_class = match channel.attained_ppm {
        None => "stat zero",
        Some(ppm) if ppm < data.target_ppm => "stat bad-stat",
        Some(_) => "stat",
    };
    let below = match channel.attained_ppm {
        None => "no event was judged".to_owned(),
        Some(_) => format!("objective {}", share(data.target_ppm)),
    };
    view! {
        <section class="panel" aria-labelledby=anchor.clone() data-key=anchor.clone()>
            <header><h2 id=anchor.clone()>"Channel "{name}</h2></header>
            <div class="body stack">
                <dl class="stats four">
                    {stat(attained_class, "gauge", None, "Settled in time", attained, below)}
                    {stat(
                        if is_overdrawn { "stat bad-stat" } else { "stat" }, "shield", None, "Error budget left",
                        budget(channel),
                        if is_overdrawn { "overdrawn" } else { "of this period" },
                    )}
                    {stat("stat", "list", None, "Judged", number(counts.judged), left_out(counts))}
                    {stat(
                        if counts.missed() == 0 { "stat zero" } else { "stat" }, "clock", None, "Missed",
                        number(counts.missed()), frozen(counts),
                    )}
                </dl>
                {day_chart(channel, data, now)}
                {hour_chart(channel, now)}
                {burn_table(channel, data)}
            </div>
        </section>
    }
    .into_any()
}

fn left_out(counts: SloCounts) -> String {
    match counts.left_out {
        0 => "none left out".to_owned(),
        n => format!("{} left out", number(n)),
    }
}

fn frozen(counts: SloCounts) -> String {
    match counts.frozen {
        0 => "none held by a freeze".to_owned(),
        n => format!("{} held by a freeze", number(n)),
    }
}

fn tone(counts: SloCounts, target_ppm: u64) -> &'static str {
    match counts.in_time.saturating_mul(1_000_000).checked_div(counts.judged) {
        None => "none",
        Some(ppm) if ppm >= target_ppm => "good",
        Some(ppm) if ppm >= target_ppm.saturating_sub(5_000) => "warn",
        Some(_) => "bad",
    }
}

fn day_chart(channel: &SloChannel, data: &SloPage, now: Stamp) -> AnyView {
    let bars = channel
        .days
        .iter()
        .map(|day| {
            let ppm = day.counts.in_time.saturating_mul(1_000_000).checked_div(day.counts.judged);
            let said = ppm.map_or_else(|| "no event".to_owned(), share);
            Column {
                height: ppm.map_or(0, |ppm| ppm / 10_000),
                tone: tone(day.counts, data.target_ppm),
                title: format!("{}: {said}, {} judged", day.at.date(), number(day.counts.judged)),
            }
        })
        .collect();
    let missed: Vec<&SloPart> =
        channel.days.iter().filter(|day| tone(day.counts, data.target_ppm) == "bad").collect();
    let with: usize = channel.days.iter().filter(|day| day.counts.judged > 0).count();
    let summary = match (with, missed.as_slice()) {
        (0, _) => "No day of this period had an event.".to_owned(),
        (_, []) => format!(
            "{} had events; none fell clearly below the objective.",
            counted(with as u64, "day", "days")
        ),
        (_, [.., last]) => format!(
            "{} had events; {} fell clearly below the objective, last {}.",
            counted(with as u64, "day", "days"),
            counted(missed.len() as u64, "day", "days"),
            last.at.date()
        ),
    };
    let from = channel.days.first().map(|day| day.at);
    view! {
        <figure>
            <figcaption><h3>"Settled in time, by day in UTC"</h3></figcaption>
            {columns(format!("Share settled in time by day, channel {}", channel.channel), bars, Some(data.target_ppm / 10_000))}
            <p class="summary">
                {summary}
                {from.map(|from| view! { " From "{from.date()}" to "{now.date()}"." })}
            </p>
        </figure>
    }
    .into_any()
}

fn hour_chart(channel: &SloChannel, now: Stamp) -> AnyView {
    let most = channel.hours.iter().map(|hour| hour.counts.missed()).max().unwrap_or(0);
    let bars = channel
        .hours
        .iter()
        .map(|hour| {
            let missed = hour.counts.missed();
            Column {
                height: (missed * 100).checked_div(most).unwrap_or(0),
                tone: match missed {
                    0 => "none",
                    n if n == hour.counts.frozen => "warn",
                    _ => "bad",
                },
                title: format!(
                    "{} UTC: {} missed of {}",
                    &hour.at.clock()[..5],
                    number(missed),
                    number(hour.counts.judged)
                ),
            }
        })
        .collect();
    let worst = channel.hours.iter().max_by_key(|hour| hour.counts.missed()).filter(|_| most > 0);
    let summary = match worst {
        None => view! { "No event missed the window in the last 24 hours." }.into_any(),
        Some(hour) => view! {
            "At most "{counted(most, "event", "events")}" missed in one hour, from "{clock(hour.at, now)}"."
        }
        .into_any(),
    };
    view! {
        <figure>
            <figcaption><h3>"Missed, by hour"</h3></figcaption>
            {columns(format!("Events that missed by hour, channel {}", channel.channel), bars, None)}
            <p class="summary">{summary}</p>
        </figure>
    }
    .into_any()
}

fn burn_row(burn: &Burn, data: &SloPage) -> AnyView {
    let verdict = if burn.is_over {
        view! { <span class="verdict bad">{icon("alert")}"burns too fast"</span> }.into_any()
    } else if !burn.is_enough {
        let why = if burn.long_counts.judged < data.events_min {
            "too few events"
        } else {
            "too few misses"
        };
        view! { <span class="verdict muted">{icon("check")}{why}" to page anybody"</span> }
            .into_any()
    } else {
        view! { <span class="verdict good">{icon("check")}"within bounds"</span> }.into_any()
    };
    let of =
        |counts: SloCounts| format!("{} of {}", number(counts.missed()), number(counts.judged));
    view! {
        <tr data-key=burn.rule.as_str()>
            <th scope="row">{burn.long.clone()}" and "{burn.short.clone()}</th>
            <td class="num">{milli(burn.long_milli)}<span class="sub">{of(burn.long_counts)}</span></td>
            <td class="num">{milli(burn.short_milli)}<span class="sub">{of(burn.short_counts)}</span></td>
            <td class="num c2">{milli(burn.factor_milli)}</td>
            <td>{verdict}</td>
        </tr>
    }
    .into_any()
}

fn burn_table(channel: &SloChannel, data: &SloPage) -> AnyView {
    let rows = channel.burns.iter().map(|burn| burn_row(burn, data)).collect_view();
    view! {
        <div class="bare">
            <h3>"How fast the budget burns"</h3>
            {scroll(
                format!("Burn rates, channel {}", channel.channel),
                view! {
                    <table class="table">
                        <caption class="vh">"Burn rates by window; 1 spends the budget in exactly its period"</caption>
                        <thead>
                            <tr>
                                <th scope="col">"Windows"</th>
                                <th scope="col" class="num">"Long"</th>
                                <th scope="col" class="num">"Short"</th>
                                <th scope="col" class="num c2">"Alert from"</th>
                                <th scope="col">"Now"</th>
                            </tr>
                        </thead>
                        <tbody>{rows}</tbody>
                    </table>
                },
            )}
            <p class="summary">"1.0 spends the budget in exactly its period. What a freeze held is left out of the rate."</p>
        </div>
    }
    .into_any()
}

fn bound(ms: Option<i64>) -> String {
    ms.map_or_else(|| "more than 1 h".to_owned(), |ms| format!("under {}", duration_ms(ms)))
}

fn margins(margins: &[MarginAdvice]) -> AnyView {
    let rows = margins
        .iter()
        .map(|advice| {
            let key = format!("{}-{}", advice.channel, advice.provider);
            let within = advice.within_margin_milli.map_or_else(
                || "unknown".to_owned(),
                |milli| format!("{}.{} %", milli / 10, milli % 10),
            );
            view! {
                <tr data-key=key>
                    <th scope="row"><b>{advice.provider.clone()}</b><span class="sub">{advice.channel.as_str()}</span></th>
                    <td class="num">{number(advice.delivered)}<span class="sub">{number(advice.useless)}" after expiry"</span></td>
                    <td class="num c2">{bound(advice.p50_ms)}</td>
                    <td class="num">{bound(advice.p95_ms)}</td>
                    <td class="num c2">{bound(advice.p99_ms)}</td>
                    <td class="num">{within}</td>
                </tr>
            }
        })
        .collect_view();
    let body = if margins.is_empty() {
        empty(
            "clock",
            "Nothing was delivered in the last 30 days",
            "The advice is made of the time from a call to the news that its message arrived.",
            view! { <a class="btn" href="/events">"Events"</a> },
        )
        .into_any()
    } else {
        let margin = margins.first().map_or(0, |advice| advice.margin_ms);
        let worst = margins
            .iter()
            .filter(|advice| advice.delivered > 0)
            .max_by_key(|advice| advice.p95_ms.unwrap_or(i64::MAX));
        let summary = match worst {
            Some(advice) => format!(
                "The margin is {}. With a margin of {} 95 % of the messages of {} that leave at the last moment \
                 would still arrive before they expire. The margin is dispatch.margin of the configuration; a change \
                 is a fact with before and after.",
                duration_ms(margin),
                bound(advice.p95_ms),
                advice.provider
            ),
            None => String::new(),
        };
        view! {
            {scroll(
                "Time from call to delivery".to_owned(),
                view! {
                    <table class="table">
                        <caption class="vh">"Time from call to delivery, last 30 days"</caption>
                        <thead>
                            <tr>
                                <th scope="col">"Provider"</th>
                                <th scope="col" class="num">"Delivered"</th>
                                <th scope="col" class="num c2">"Half"</th>
                                <th scope="col" class="num">"95 %"</th>
                                <th scope="col" class="num c2">"99 %"</th>
                                <th scope="col" class="num">"Within the margin"</th>
                            </tr>
                        </thead>
                        <tbody>{rows}</tbody>
                    </table>
                },
            )}
            <p class="summary">{summary}</p>
        }
        .into_any()
    };
    view! {
        <section class="panel" aria-labelledby="margin-h">
            <header>
                <h2 id="margin-h">"Which margin spares useless sends"</h2>
                <p>"from call to the news of delivery, last 30 days"</p>
            </header>
            <div class="body">{body}</div>
        </section>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::{milli, share};

    #[test]
    fn a_share_is_never_rounded_up() {
        assert_eq!(share(1_000_000), "100 %");
        assert_eq!(share(999_999), "99.999 %");
        assert_eq!(share(995_000), "99.5 %");
        assert_eq!(share(0), "0 %");
        assert_eq!(milli(14_400), "14.4");
        assert_eq!(milli(-200), "-0.2");
    }
}
