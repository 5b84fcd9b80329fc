//! `/capacity`: what the load of the last seven days needs.

use leptos::prelude::*;

use crate::components::{Layout, head, icon, page, scroll};
use crate::model::{CapacityNeed, CapacityPage, Frame, Source};

/// Inputs with where they come from, and what follows of them.
pub fn capacity(frame: Frame, data: CapacityPage, options: LeptosOptions) -> impl IntoView + use<> {
    let now = frame.now;
    let title = view! { <h1>"Capacity"</h1> }.into_any();
    let short = data.needs.iter().filter(|need| need.is_short).count();
    let guesses = data.inputs.iter().filter(|input| input.source == Source::Guess).count();
    let lead = match short {
        0 => format!("The configuration carries this load. {guesses} of the inputs are guesses."),
        n => format!(
            "The configuration is short of {n} of these. {guesses} of the inputs are guesses."
        ),
    };
    let inputs = data
        .inputs
        .iter()
        .map(|input| {
            let class =
                if input.source == Source::Guess { "verdict warn" } else { "verdict muted" };
            let mark = if input.source == Source::Guess { "alert" } else { "check" };
            view! {
                <tr>
                    <th scope="row">{input.name.clone()}</th>
                    <td class="num">{input.value.clone()}</td>
                    <td><span class=class>{icon(mark)}{input.source.as_str()}</span></td>
                </tr>
            }
        })
        .collect_view();
    let needs = data.needs.iter().map(need).collect_view();
    let content = view! {
        {head(title, Some(lead.into_any()), now, None)}
        <div class="stack">
            <section class="panel" aria-labelledby="needs-h">
                <header><h2 id="needs-h">"Needed"</h2></header>
                {scroll(
                    "What is needed".to_owned(),
                    view! {
                        <table class="table">
                            <caption class="vh">"What this load needs"</caption>
                            <thead>
                                <tr>
                                    <th scope="col">"What"</th>
                                    <th scope="col" class="num">"Needed"</th>
                                    <th scope="col" class="num">"Configured"</th>
                                    <th scope="col" class="c2">"Because"</th>
                                </tr>
                            </thead>
                            <tbody>{needs}</tbody>
                        </table>
                    },
                )}
            </section>
            <section class="panel" aria-labelledby="inputs-h">
                <header>
                    <h2 id="inputs-h">"From these inputs"</h2>
                    <p>"others with "<code>"sendonce capacity --peak …"</code></p>
                </header>
                {scroll(
                    "Inputs".to_owned(),
                    view! {
                        <table class="table">
                            <caption class="vh">"Inputs and where they come from"</caption>
                            <thead>
                                <tr>
                                    <th scope="col">"Input"</th>
                                    <th scope="col" class="num">"Value"</th>
                                    <th scope="col">"From"</th>
                                </tr>
                            </thead>
                            <tbody>{inputs}</tbody>
                        </table>
                    },
                )}
            </section>
        </div>
    };
    page(frame, options, Layout::new("Capacity"), content.into_any())
}

fn need(need: &CapacityNeed) -> AnyView {
    let has = need.configured.clone().map(|has| {
        if need.is_short {
            view! { <span class="verdict bad">{icon("alert")}{has}", too few"</span> }.into_any()
        } else {
            view! { <span class="verdict good">{icon("check")}{has}</span> }.into_any()
        }
    });
    let key = (!need.key.is_empty())
        .then(|| view! { <span class="sub"><code>{need.key.clone()}</code></span> });
    view! {
        <tr>
            <th scope="row">{need.name.clone()}{key}</th>
            <td class="num">{need.value.clone()}</td>
            <td class="num">{has}</td>
            <td class="c2">{need.why.clone()}</td>
        </tr>
    }
    .into_any()
}
