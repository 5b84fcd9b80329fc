//! Pages that cannot be shown: 403, 404, 500, 503.

use leptos::prelude::*;

use crate::components::{Layout, document, icon, id, page, theme_switch};
use crate::model::{Frame, Refusal};

struct Words {
    title: &'static str,
    icon: &'static str,
    why: String,
    error_id: Option<String>,
}

fn words(refusal: &Refusal) -> Words {
    match refusal {
        Refusal::Forbidden { permission } => Words {
            title: "Your role may not see this",
            icon: "lock",
            why: format!("{} Ask an admin if you need it for your work.", permission.who_may()),
            error_id: None,
        },
        Refusal::StaleForm => Words {
            title: "This form is out of date",
            icon: "lock",
            why: "Nothing was done. The form was opened in another session, or too long ago. Go back, reload \
                  the page, and send it again."
                .to_owned(),
            error_id: None,
        },
        Refusal::NotFound => Words {
            title: "There is no such page",
            icon: "search",
            why: "The address may be mistyped, or the record is past its retention. Search by event id to be sure."
                .to_owned(),
            error_id: None,
        },
        Refusal::Broken { error_id } => Words {
            title: "Something went wrong on our side",
            icon: "alert",
            why: "The page could not be made. Dispatch does not depend on it. Try again; if it stays, give \
                  this id to whoever runs the service: it is in the log too."
                .to_owned(),
            error_id: Some(error_id.clone()),
        },
        Refusal::Unavailable { error_id } => Words {
            title: "The records cannot be read just now",
            icon: "alert",
            why: "The database does not answer in time. What was admitted is safe, and nothing is sent twice \
                  because of it. Try again in a moment."
                .to_owned(),
            error_id: error_id.clone(),
        },
    }
}

fn body(refusal: &Refusal, actions: AnyView) -> AnyView {
    let words = words(refusal);
    view! {
        <section class="panel refusal">
            <div class="empty">
                {icon(words.icon)}
                <p class="muted">{refusal.status().to_string()}</p>
                <h1>{words.title}</h1>
                <p>{words.why}</p>
                {words.error_id.map(|error_id| view! { <p>"Error id "{id("error id", &error_id)}</p> })}
                <div class="actions">{actions}</div>
            </div>
        </section>
    }
    .into_any()
}

/// The page for somebody who is signed in: with the bar, the banner and the menu.
pub fn refusal(frame: Frame, refusal: &Refusal, options: LeptosOptions) -> impl IntoView + use<> {
    let actions = view! {
        <a class="btn" href="/">"Overview"</a>
        <a class="btn" href="/events">"Events"</a>
    };
    let title = words(refusal).title;
    page(frame, options, Layout::new(title), body(refusal, actions.into_any()))
}

/// The page where there is no session, or where reading it failed.
pub fn refusal_signed_out(refusal: &Refusal) -> impl IntoView + use<> {
    let actions = view! { <a class="btn" href="/">"Start page"</a> };
    let content = view! {
        <div class="gate wide">
            <main id="main">
                <div class="head"><a class="brand" href="/">{icon("mark")}"sendonce"</a>{theme_switch()}</div>
                {body(refusal, actions.into_any())}
            </main>
        </div>
    };
    document(format!("{} · sendonce", words(refusal).title), ().into_any(), content.into_any())
}
