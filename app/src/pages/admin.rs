//! `/admin/users`, `/admin/clients` and `/admin/config`.
//!
//! Each form carries `csrf`, `action_key` (acts once), `act` and what it is about. What is made is shown once,
//! in the answer to the form that made it, and is on no page afterwards. Only the banner of these pages is live:
//! what is typed and what is shown once stay as they are.

use leptos::prelude::*;

use crate::components::{
    Layout, Tone, ago, clock_zone, copy, counted, empty, field_error, head, icon, id, note, page,
    scroll,
};
use crate::model::{
    ClientView, ClientsPage, ConfigPage, FormState, Frame, Role, ShownOnce, Stamp, UserRow,
    UsersPage,
};

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

/// Something that nobody will see again.
pub(super) fn shown_once(shown: &ShownOnce, what: &'static str, advice: &'static str) -> AnyView {
    let secret = shown.secret.clone();
    note(
        Tone::Warn,
        view! {
            <b>{format!("{what} of {}, shown this once", shown.of)}</b>
            <p class="once">
                <span class="id all"><code id="shown-once">{secret.clone()}</code>{copy(&what.to_lowercase(), &secret)}</span>
            </p>
            <p>{advice}</p>
        },
    )
    .into_any()
}

/// The notes over a page with forms.
pub(super) fn notes(form: &FormState) -> impl IntoView + use<> {
    view! {
        {form.notice.clone().map(|notice| note(Tone::Good, notice))}
        {form.problem.clone().map(|problem| note(Tone::Bad, problem))}
    }
}

/// The hidden fields of one form. `tag` keeps the keys of a page's forms apart.
pub(super) fn hidden(
    csrf: &str,
    action_key: &str,
    tag: &str,
    fields: &[(&'static str, &str)],
) -> impl IntoView + use<> {
    let mut all = vec![("csrf", csrf.to_owned()), ("action_key", format!("{action_key}-{tag}"))];
    all.extend(fields.iter().map(|(name, value)| (*name, (*value).to_owned())));
    all.into_iter()
        .map(|(name, value)| view! { <input type="hidden" name=name value=value /> })
        .collect_view()
}

fn role_options(chosen: Option<Role>) -> impl IntoView {
    Role::ALL
        .iter()
        .map(|role| {
            let selected = chosen == Some(*role);
            view! { <option value=role.as_str() selected=selected>{role.spoken()}</option> }
        })
        .collect_view()
}

/// Operators and their roles.
pub fn users(frame: Frame, data: UsersPage, options: LeptosOptions) -> impl IntoView + use<> {
    let now = frame.now;
    let csrf = frame.csrf.clone();
    let own = frame.operator.id.clone();
    let title = view! { <h1>"Users"</h1> }.into_any();
    let lead =
        "Operators who may sign in, and what each may do. Every change is in the operators’ log.";
    let rows = data
        .rows
        .iter()
        .map(|row| user_row(row, &own, &csrf, &data.action_key, now))
        .collect_view();
    let content = view! {
        {head(title, Some(lead.into_any()), now, Some("freeze"))}
        <div class="stack">
            {notes(&data.form)}
            {data.shown_once.as_ref().map(|shown| shown_once(
                shown,
                "Password",
                "Give it to them by a way that you trust. They choose another one when they sign in.",
            ))}
            <section class="panel" aria-label="Users">
                {scroll(
                    "Users".to_owned(),
                    view! {
                        <table class="table people">
                            <caption class="vh">"Operators"</caption>
                            <thead>
                                <tr>
                                    <th scope="col">"Email"</th>
                                    <th scope="col">"Role"</th>
                                    <th scope="col">"Status"</th>
                                    <th scope="col" class="c2">"Second factor"</th>
                                    <th scope="col" class="c3">"Added"</th>
                                    <th scope="col"><span class="vh">"Changes"</span></th>
                                </tr>
                            </thead>
                            <tbody>{rows}</tbody>
                        </table>
                    },
                )}
            </section>
            {add_user(&data, &csrf)}
        </div>
    };
    page(frame, options, Layout::new("Users").live("freeze"), content.into_any())
}

fn user_row(row: &UserRow, own: &str, csrf: &str, key: &str, now: Stamp) -> impl IntoView + use<> {
    let user = &row.user;
    let is_own = user.id == own;
    let user_id = user.id.as_str();
    let of = format!(" of {}", user.email);
    let spoken = |text: &'static str| view! { {text}<span class="vh">{of.clone()}</span> };
    let form = |act: &'static str, body: AnyView| {
        let tag = format!("{act}-{user_id}");
        view! {
            <form method="post" action="/admin/users">
                {hidden(csrf, key, &tag, &[("act", act), ("user", user_id)])}
                {body}
            </form>
        }
        .into_any()
    };
    let role = form(
        "role",
        view! {
            <label class="lab">
                <span>"Role"<span class="vh">{of.clone()}</span></span>
                <select class="sel" name="role">{role_options(Some(user.role))}</select>
            </label>
            <button class="btn" type="submit">{spoken("Change role")}</button>
        }
        .into_any(),
    );
    let password = (!row.is_external).then(|| {
        form(
            "reset",
            view! { <button class="btn" type="submit">{spoken("Reset password")}</button> }
                .into_any(),
        )
    });
    let factor = row.has_second_factor.then(|| {
        form(
            "factor",
            view! { <button class="btn" type="submit">{spoken("Remove second factor")}</button> }
                .into_any(),
        )
    });
    let end = if user.disabled_at.is_some() {
        form(
            "enable",
            view! { <button class="btn" type="submit">{spoken("Enable")}</button> }.into_any(),
        )
    } else {
        form(
            "disable",
            view! { <button class="btn danger" type="submit">{spoken("Disable")}</button> }
                .into_any(),
        )
    };
    let changes = if is_own {
        view! { <a href="/account">"Your account"</a> }.into_any()
    } else {
        view! {
            <details class="manage">
                <summary class="btn">{spoken("Manage")}</summary>
                <div class="manage-in">{role}{password}{factor}{end}</div>
            </details>
        }
        .into_any()
    };
    let sessions = (row.sessions > 0)
        .then(|| view! { <span class="sub">{counted(row.sessions, "session", "sessions")}</span> });
    view! {
        <tr>
            <th scope="row">
                {user.email.clone()}
                {is_own.then(|| view! { <span class="muted">" (you)"</span> })}
                <span class="sub">{id("user id", &user.id)}</span>
            </th>
            <td>{user.role.spoken()}{row.is_external.then(|| view! { <span class="sub">"single sign-on"</span> })}</td>
            <td>{standing(user.disabled_at, "disabled", now)}{sessions}</td>
            <td class="c2">{if row.has_second_factor { "on" } else { "off" }}</td>
            <td class="c3 nowrap">{clock_zone(user.created_at, now)}<span class="sub">{ago(user.created_at, now)}</span></td>
            <td class="num">{changes}</td>
        </tr>
    }
}

fn add_user(data: &UsersPage, csrf: &str) -> impl IntoView + use<> {
    let form = &data.form;
    let email_error = form.error("email");
    let role = form.typed("role").parse::<Role>().ok();
    view! {
        <section class="panel" aria-labelledby="add-h">
            <header><h2 id="add-h">"Add a user"</h2></header>
            <form class="body inline-form" method="post" action="/admin/users">
                {hidden(csrf, &data.action_key, "add", &[("act", "add")])}
                <div class="field">
                    <label for="email">"Email"</label>
                    <input
                        class="input" id="email" name="email" type="email" required maxlength="254" autocomplete="off"
                        value=form.typed("email").to_owned() aria-invalid=email_error.map(|_| "true")
                        aria-describedby=email_error.map(|_| "email-error")
                    />
                    {field_error("email-error", email_error)}
                </div>
                <div class="field">
                    <label for="role">"Role"</label>
                    <select class="input" id="role" name="role">{role_options(role)}</select>
                    {field_error("role-error", form.error("role"))}
                </div>
                <div class="actions">
                    <button class="btn primary tall" type="submit">"Add user"</button>
                    <span class="hint">"A first password is made and shown once."</span>
                </div>
            </form>
        </section>
    }
}

/// API clients and their scopes. Keys are kept as hashes.
pub fn clients(frame: Frame, data: ClientsPage, options: LeptosOptions) -> impl IntoView + use<> {
    let now = frame.now;
    let csrf = frame.csrf.clone();
    let title = view! { <h1>"API clients"</h1> }.into_any();
    let lead = "Programs that may call the API. A key is shown once, when it is made; it is kept as a hash.";
    let rows = data.rows.iter().map(|client| client_row(client, &data, &csrf, now)).collect_view();
    let body = if data.rows.is_empty() {
        empty(
            "key",
            "No client has a key yet",
            "Add the program that will post events. Its key is shown once.",
            view! { <a class="btn" href="#name">"Add a client"</a> },
        )
        .into_any()
    } else {
        scroll(
            "API clients".to_owned(),
            view! {
                <table class="table people">
                    <caption class="vh">"API clients"</caption>
                    <thead>
                        <tr>
                            <th scope="col">"Client"</th>
                            <th scope="col">"Scopes"</th>
                            <th scope="col">"Status"</th>
                            <th scope="col" class="c2">"Added"</th>
                            <th scope="col"><span class="vh">"Changes"</span></th>
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
        <div class="stack">
            {notes(&data.form)}
            {data.shown_once.as_ref().map(|shown| shown_once(
                shown,
                "Key",
                "Put it where the program reads its secrets. Nobody can show it again; a lost one is revoked and replaced.",
            ))}
            <section class="panel" aria-label="API clients">{body}</section>
            {add_client(&data, &csrf)}
        </div>
    };
    page(frame, options, Layout::new("API clients").live("freeze"), content.into_any())
}

fn client_row(
    client: &ClientView,
    data: &ClientsPage,
    csrf: &str,
    now: Stamp,
) -> impl IntoView + use<> {
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
    let is_mine = data.form.typed("act") == "revoke" && data.form.typed("client") == client.id;
    let error = if is_mine { data.form.error("confirm") } else { None };
    let field = format!("confirm-{}", client.id);
    let error_id = error.map(|_| "confirm-error");
    let name = client.name.clone();
    let revoke = client.revoked_at.is_none().then(|| {
        let tag = format!("revoke-{}", client.id);
        view! {
            <details class="manage" open=is_mine>
                <summary class="btn danger">"Revoke"<span class="vh">{format!(" {name}")}</span></summary>
                <form class="manage-in" method="post" action="/admin/clients">
                    {hidden(csrf, &data.action_key, &tag, &[("act", "revoke"), ("client", &client.id)])}
                    <p>"Its requests are refused from the next one on. This cannot be undone."</p>
                    <div class="field">
                        <label for=field.clone()>"Type the name "<code>{name.clone()}</code>" to revoke its key"</label>
                        <input
                            class="input" id=field name="confirm" required maxlength="64" autocomplete="off"
                            spellcheck="false" autocapitalize="none" aria-invalid=error_id.map(|_| "true")
                            aria-describedby=error_id
                        />
                        {field_error("confirm-error", error)}
                    </div>
                    <button class="btn danger" type="submit">"Revoke key"<span class="vh">{format!(" of {name}")}</span></button>
                </form>
            </details>
        }
    });
    view! {
        <tr>
            <th scope="row">{client.name.clone()}<span class="sub">{id("client id", &client.id)}</span></th>
            <td>{scopes}</td>
            <td>{standing(client.revoked_at, "revoked", now)}</td>
            <td class="c2 nowrap">{clock_zone(client.created_at, now)}<span class="sub">{ago(client.created_at, now)}</span></td>
            <td class="num">{revoke}</td>
        </tr>
    }
}

fn scope_words(scope: &str) -> &'static str {
    match scope {
        "admit" => "post events",
        "status" => "read records and timelines",
        "consume" => "use tokens",
        "cancel" => "take events back",
        "freeze" => "freeze and reopen dispatch",
        _ => "",
    }
}

fn add_client(data: &ClientsPage, csrf: &str) -> impl IntoView + use<> {
    let form = &data.form;
    let name_error = form.error("name");
    let described = if name_error.is_some() { "name-error name-help" } else { "name-help" };
    let scopes = data
        .scopes
        .iter()
        .map(|scope| {
            let checked = form.typed.iter().any(|(name, value)| name == "scope" && value == scope);
            view! {
                <label>
                    <input type="checkbox" name="scope" value=scope.clone() checked=checked />
                    <b>{scope.clone()}</b>
                    <span>{scope_words(scope)}</span>
                </label>
            }
        })
        .collect_view();
    view! {
        <section class="panel" aria-labelledby="add-h">
            <header><h2 id="add-h">"Add a client"</h2></header>
            <form class="body" method="post" action="/admin/clients">
                {hidden(csrf, &data.action_key, "add", &[("act", "add")])}
                <div class="field">
                    <label for="name">"Name"</label>
                    <input
                        class="input" id="name" name="name" required maxlength="64" autocomplete="off" spellcheck="false"
                        autocapitalize="none" value=form.typed("name").to_owned()
                        aria-invalid=name_error.map(|_| "true") aria-describedby=described
                    />
                    {field_error("name-error", name_error)}
                    <span class="help" id="name-help">"Letters, digits and . _ : - so that it can stand in a log."</span>
                </div>
                <fieldset class="field">
                    <legend class="legend-t">"Scopes"</legend>
                    <div class="pick">{scopes}</div>
                    {field_error("scope-error", form.error("scope"))}
                </fieldset>
                <div class="actions">
                    <button class="btn primary tall" type="submit">"Add client"</button>
                    <span class="hint">"Its key is shown once."</span>
                </div>
            </form>
        </section>
    }
}

/// What is in force, with secrets hidden.
pub fn config(frame: Frame, data: ConfigPage, options: LeptosOptions) -> impl IntoView + use<> {
    let now = frame.now;
    let title = view! { <h1>"Configuration"</h1> }.into_any();
    let lead = view! {
        "What this process runs with, secrets hidden. It is changed in its file or environment, never here. Digest "
        <code>{data.digest.clone()}</code>", database "<code>{data.database.clone()}</code>"."
    };
    let sections = data
        .sections
        .iter()
        .map(|section| {
            let anchor = format!("s-{}", crate::model::percent_encoded(&section.name));
            let lines = section
                .lines
                .iter()
                .map(|(key, value)| {
                    let is_hidden = value == "\"[hidden]\"";
                    let shown = if is_hidden {
                        view! { <span class="muted">{icon("lock")}" hidden"</span> }.into_any()
                    } else {
                        view! { <code>{value.clone()}</code> }.into_any()
                    };
                    view! { <dt><code>{key.clone()}</code></dt><dd>{shown}</dd> }
                })
                .collect_view();
            view! {
                <section class="panel" aria-labelledby=anchor.clone()>
                    <header><h2 id=anchor.clone()><code>{format!("[{}]", section.name)}</code></h2></header>
                    <div class="body"><dl class="kv conf">{lines}</dl></div>
                </section>
            }
        })
        .collect_view();
    let content = view! {
        {head(title, Some(lead.into_any()), now, Some("freeze"))}
        <div class="grid conf-grid">{sections}</div>
    };
    page(frame, options, Layout::new("Configuration").live("freeze"), content.into_any())
}
