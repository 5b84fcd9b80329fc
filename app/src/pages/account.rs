//! `/account`: one's own password, second factor and sessions.

use leptos::prelude::*;

use super::admin::{hidden, notes};
use crate::components::{
    Layout, Tone, ago, clock_zone, copy, counted, field_error, head, icon, note, page, scroll,
};
use crate::model::{AccountPage, FactorView, Frame, Owes, SessionView, Stamp};

/// One's own account. While something is owed, no other page opens and the menu leads back here.
pub fn account(frame: Frame, data: AccountPage, options: LeptosOptions) -> impl IntoView + use<> {
    let now = frame.now;
    let csrf = frame.csrf.clone();
    let title = view! { <h1>"Your account"</h1> }.into_any();
    let lead = view! {
        {frame.operator.email.clone()}", "{frame.operator.role.spoken()}". Operator id "
        <code>{frame.operator.id.clone()}</code>
    };
    let owes = match data.owes {
        Some(Owes::Password) => {
            Some("Choose a password of your own first: somebody else made the one that you used.")
        }
        Some(Owes::SecondFactor) => {
            Some("Your role signs in with a second factor. Set it up first.")
        }
        None => None,
    };
    let content = view! {
        {head(title, Some(lead.into_any()), now, Some("freeze"))}
        <div class="stack narrow">
            {owes.map(|text| note(Tone::Warn, text))}
            {notes(&data.form)}
            {(!data.is_external).then(|| password(&data, &csrf))}
            {(!data.is_external).then(|| factor(&data, &csrf, now))}
            {data.is_external.then(|| note(
                Tone::Plain,
                "You sign in by single sign-on. Password and second factor are kept there.",
            ))}
            {sessions(&data, &csrf, now)}
        </div>
    };
    page(frame, options, Layout::new("Your account").live("freeze"), content.into_any())
}

fn secret_field(
    data: &AccountPage,
    name: &'static str,
    label: &'static str,
    complete: &'static str,
    error_id: &'static str,
) -> impl IntoView + use<> {
    let error = data.form.error(name);
    view! {
        <div class="field">
            <label for=name>{label}</label>
            <input
                class="input" id=name name=name type="password" autocomplete=complete required maxlength="1024"
                aria-invalid=error.map(|_| "true") aria-describedby=error.map(|_| error_id)
            />
            {field_error(error_id, error)}
        </div>
    }
}

fn password(data: &AccountPage, csrf: &str) -> impl IntoView + use<> {
    view! {
        <section class="panel" aria-labelledby="password-h">
            <header><h2 id="password-h">"Password"</h2></header>
            <form class="body" method="post" action="/account">
                {hidden(csrf, &data.action_key, "password", &[("act", "password")])}
                {secret_field(data, "current", "Current password", "current-password", "current-error")}
                {secret_field(data, "new", "New password", "new-password", "new-error")}
                {secret_field(data, "again", "The new password again", "new-password", "again-error")}
                <div class="actions">
                    <button class="btn primary tall" type="submit">"Change password"</button>
                    <span class="hint">"12 characters or more. Your other sessions end."</span>
                </div>
            </form>
        </section>
    }
}

fn factor(data: &AccountPage, csrf: &str, now: Stamp) -> AnyView {
    let FactorView { confirmed_at, recovery_left, enrolment, recovery_codes } = &data.factor;
    let key = data.action_key.as_str();
    let body = if let Some((picture, text)) = enrolment {
        enrol(data, csrf, picture, text)
    } else if let Some(at) = confirmed_at {
        let codes = (!recovery_codes.is_empty()).then(|| {
            let items = recovery_codes
                .iter()
                .map(|code| view! { <li><code>{code.clone()}</code></li> })
                .collect_view();
            note(
                Tone::Warn,
                view! {
                    <b>"Recovery codes, shown this once"</b>
                    <ul class="codes" aria-label="Recovery codes">{items}</ul>
                    <p>"Each signs you in once in place of a one-time code. Keep them where your device is not."</p>
                    {copy("recovery codes", &recovery_codes.join("\n"))}
                },
            )
        });
        let left = match recovery_left {
            0 => "No recovery code is left: set the second factor up anew to get some.".to_owned(),
            n => format!("{} left.", counted(*n, "recovery code", "recovery codes")),
        };
        let drop = (!data.factor_required).then(|| {
            view! {
                <details class="manage flow">
                    <summary class="btn">"Remove or set up anew"</summary>
                    <form class="manage-in" method="post" action="/account">
                        {hidden(csrf, key, "drop", &[("act", "factor_drop")])}
                        {secret_field(data, "confirm_password", "Password", "current-password", "confirm-password-error")}
                        <button class="btn danger" type="submit">"Remove second factor"</button>
                    </form>
                </details>
            }
        });
        view! {
            {codes}
            <p>
                <span class="verdict good">{icon("check")}"on"</span>" since "{clock_zone(*at, now)}". "{left}
            </p>
            {drop}
        }
        .into_any()
    } else {
        view! {
            <p>
                "Off. With it, signing in also asks for a code of your device, so that a password alone is worth nothing."
            </p>
            <form method="post" action="/account">
                {hidden(csrf, key, "begin", &[("act", "factor_begin")])}
                {secret_field(data, "confirm_password", "Password", "current-password", "confirm-password-error")}
                <div class="actions"><button class="btn primary tall" type="submit">"Set up second factor"</button></div>
            </form>
        }
        .into_any()
    };
    view! {
        <section class="panel" aria-labelledby="factor-h">
            <header><h2 id="factor-h">"Second factor"</h2></header>
            <div class="body stack-s">{body}</div>
        </section>
    }
    .into_any()
}

fn enrol(data: &AccountPage, csrf: &str, picture: &str, text: &str) -> AnyView {
    let error = data.form.error("code");
    let described = if error.is_some() { "code-error code-help" } else { "code-help" };
    view! {
        <p>"Scan this with an authenticator app, or type the key into it. Then enter the code that it shows."</p>
        <div class="qr" role="img" aria-label="The key as a picture to scan" inner_html=picture.to_owned()></div>
        <p><span class="muted">"Key "</span><span class="id all"><code>{text.to_owned()}</code>{copy("key", text)}</span></p>
        <form method="post" action="/account">
            {hidden(csrf, &data.action_key, "confirm", &[("act", "factor_confirm")])}
            <div class="field">
                <label for="code">"One-time code"</label>
                <input
                    class="input code" id="code" name="code" inputmode="numeric" autocomplete="one-time-code" required
                    maxlength="16" aria-invalid=error.map(|_| "true") aria-describedby=described autofocus
                />
                {field_error("code-error", error)}
                <span class="help" id="code-help">"Six digits; a new one every 30 seconds."</span>
            </div>
            <div class="actions"><button class="btn primary tall" type="submit">"Turn on"</button></div>
        </form>
    }
    .into_any()
}

fn sessions(data: &AccountPage, csrf: &str, now: Stamp) -> impl IntoView + use<> {
    let rows =
        data.sessions.iter().map(|session| session_row(session, data, csrf, now)).collect_view();
    let others = data.sessions.iter().filter(|session| !session.is_this).count();
    let end_all = (others > 1).then(|| {
        view! {
            <form class="body" method="post" action="/account">
                {hidden(csrf, &data.action_key, "others", &[("act", "sessions_end")])}
                <button class="btn" type="submit">"Sign out everywhere else"</button>
            </form>
        }
    });
    view! {
        <section class="panel" aria-labelledby="sessions-h">
            <header>
                <h2 id="sessions-h">"Sessions"</h2><p>{counted(data.sessions.len() as u64, "session", "sessions")}</p>
            </header>
            {scroll(
                "Sessions".to_owned(),
                view! {
                    <table class="table">
                        <caption class="vh">"Where you are signed in"</caption>
                        <thead>
                            <tr>
                                <th scope="col">"Browser"</th>
                                <th scope="col">"Last seen"</th>
                                <th scope="col" class="c2">"Signed in"</th>
                                <th scope="col" class="c2">"Ends by"</th>
                                <th scope="col"><span class="vh">"Changes"</span></th>
                            </tr>
                        </thead>
                        <tbody>{rows}</tbody>
                    </table>
                },
            )}
            {end_all}
        </section>
    }
}

fn session_row(
    session: &SessionView,
    data: &AccountPage,
    csrf: &str,
    now: Stamp,
) -> impl IntoView + use<> {
    let tag = format!("end-{}", session.handle);
    let end = (!session.is_this).then(|| {
        view! {
            <form method="post" action="/account">
                {hidden(csrf, &data.action_key, &tag, &[("act", "session_end"), ("session", &session.handle)])}
                <button class="btn" type="submit">"Sign out"<span class="vh">{format!(" {}", session.agent)}</span></button>
            </form>
        }
    });
    view! {
        <tr>
            <th scope="row">
                {session.agent.clone()}{session.is_this.then(|| view! { <span class="muted">" (this one)"</span> })}
            </th>
            <td class="nowrap">{ago(session.seen_at, now)}</td>
            <td class="c2 nowrap">{clock_zone(session.signed_in_at, now)}</td>
            <td class="c2 nowrap">{clock_zone(session.expires_at, now)}</td>
            <td class="num">{end}</td>
        </tr>
    }
}
