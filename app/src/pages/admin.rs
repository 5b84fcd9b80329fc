//! `/admin/users` and `/admin/clients`, to read. Accounts and keys are made on the command line.

use leptos::prelude::*;

use crate::components::{Layout, ago, clock_zone, empty, head, icon, id, page, scroll};
use crate::model::{ClientView, Frame, Stamp, UserView};

fn standing(ended_at: Option<Stamp>, ended: &'static str, now: Stamp) -> AnyView {
    match ended_at {
        Some(at) => view! {
            <span class="verdict muted">{icon("x")}{ended}</span>
            <span class="sub">{clock_zone(at, now)}</span>
        }
        .into_any(),
        None => view! { <span class="verdict good">{icon("check")}"active"</span> }.into_any(),
    }
}

/// Operators and their roles.
pub fn users(frame: Frame, data: Vec<UserView>, options: LeptosOptions) -> impl IntoView + use<> {
    let now = frame.now;
    let own = frame.operator.id.clone();
    let title = view! { <h1>"Users"</h1> }.into_any();
    let lead = view! {
        "Operators who may sign in. Add one with "<code>"sendonce user add"</code>", end one with "
        <code>"sendonce user disable"</code>"."
    };
    let rows = data
        .iter()
        .map(|user| {
            view! {
                <tr>
                    <th scope="row">
                        {user.email.clone()}
                        {(user.id == own).then(|| view! { <span class="muted">" (you)"</span> })}
                        <span class="sub">{id("user id", &user.id)}</span>
                    </th>
                    <td>{user.role.spoken()}</td>
                    <td>{standing(user.disabled_at, "disabled", now)}</td>
                    <td class="c2 nowrap">{clock_zone(user.created_at, now)}<span class="sub">{ago(user.created_at, now)}</span></td>
                </tr>
            }
        })
        .collect_view();
    let body = if data.is_empty() {
        empty(
            "people",
            "No user is kept",
            "Add the first one with sendonce user add.",
            view! { <a class="btn" href="/">"Overview"</a> },
        )
        .into_any()
    } else {
        scroll(
            "Users".to_owned(),
            view! {
                <table class="table">
                    <caption class="vh">"Operators"</caption>
                    <thead>
                        <tr>
                            <th scope="col">"Email"</th>
                            <th scope="col">"Role"</th>
                            <th scope="col">"Status"</th>
                            <th scope="col" class="c2">"Added"</th>
                        </tr>
                    </thead>
                    <tbody>{rows}</tbody>
                </table>
            },
        )
        .into_any()
    };
    let content = view! {
        {head(title, Some(lead.into_any()), now, Some("freeze"))}
        <section class="panel" aria-label="Users">{body}</section>
    };
    page(frame, options, Layout::new("Users").live("freeze"), content.into_any())
}

/// API clients and their scopes. Keys are kept as hashes and never shown.
pub fn clients(
    frame: Frame,
    data: Vec<ClientView>,
    options: LeptosOptions,
) -> impl IntoView + use<> {
    let now = frame.now;
    let title = view! { <h1>"API clients"</h1> }.into_any();
    let lead = view! {
        "Programs that may call the API. A key is shown once, by "<code>"sendonce client add"</code>
        "; end one with "<code>"sendonce client revoke"</code>"."
    };
    let rows = data
        .iter()
        .map(|client| {
            let scopes = if client.scopes.is_empty() {
                view! { <span class="muted">"none"</span> }.into_any()
            } else {
                client
                    .scopes
                    .iter()
                    .map(|scope| view! { <code class="scope">{scope.clone()}</code>" " })
                    .collect_view()
                    .into_any()
            };
            view! {
                <tr>
                    <th scope="row">{client.name.clone()}<span class="sub">{id("client id", &client.id)}</span></th>
                    <td>{scopes}</td>
                    <td>{standing(client.revoked_at, "revoked", now)}</td>
                    <td class="c2 nowrap">{clock_zone(client.created_at, now)}<span class="sub">{ago(client.created_at, now)}</span></td>
                </tr>
            }
        })
        .collect_view();
    let body = if data.is_empty() {
        empty(
            "key",
            "No client has a key yet",
            "Make one with sendonce client add; it prints the key once.",
            view! { <a class="btn" href="/">"Overview"</a> },
        )
        .into_any()
    } else {
        scroll(
            "API clients".to_owned(),
            view! {
                <table class="table">
                    <caption class="vh">"API clients"</caption>
                    <thead>
                        <tr>
                            <th scope="col">"Client"</th>
                            <th scope="col">"Scopes"</th>
                            <th scope="col">"Status"</th>
                            <th scope="col" class="c2">"Added"</th>
                        </tr>
                    </thead>
                    <tbody>{rows}</tbody>
                </table>
            },
        )
        .into_any()
    };
    let content = view! {
        {head(title, Some(lead.into_any()), now, Some("freeze"))}
        <section class="panel" aria-label="API clients">{body}</section>
    };
    page(frame, options, Layout::new("API clients").live("freeze"), content.into_any())
}
