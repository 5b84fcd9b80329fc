//! `/login` and `/setup`: the pages for somebody who is not signed in.

use leptos::prelude::*;

use crate::components::{Tone, document, environment, icon, note, theme_switch};
use crate::model::{LoginPage, SetupPage};

/// The sign-in page. It needs no bundle, so that it is as light and as robust as a page can be.
pub fn login(data: LoginPage) -> impl IntoView + use<> {
    let title = format!("Sign in · sendonce {}", data.environment);
    let fields = match &data.pending {
        Some(pending) => code_field(pending, data.problem.is_some()),
        None => password_fields(&data),
    };
    // The provider's own page comes next, so this is a link and no form: a policy that lets forms go to
    // ourselves alone would stop the redirect.
    let oidc = data.oidc.as_ref().filter(|_| data.pending.is_none()).map(|name| {
        let href = format!("/login/oidc?next={}", crate::model::percent_encoded(&data.next));
        view! { <p class="or">"or"</p><a class="btn tall" href=href>{icon("key")}{format!("Sign in with {name}")}</a> }
    });
    let content = view! {
        <h1>"Sign in"</h1>
        {data.problem.clone().map(|problem| view! { <div id="problem">{note(Tone::Bad, problem)}</div> })}
        {data.notice.clone().map(|notice| note(Tone::Good, notice))}
        <form method="post" action="/login">
            <input type="hidden" name="csrf" value=data.csrf.clone() />
            <input type="hidden" name="next" value=data.next.clone() />
            {fields}
            <button class="btn primary tall" type="submit">"Sign in"</button>
        </form>
        {oidc}
    };
    gate(title, &data.environment, &data.version, content.into_any())
}

/// The frame around both pages.
fn gate(title: String, named: &str, version: &str, content: AnyView) -> AnyView {
    let body = view! {
        <div class="gate">
            <main id="main">
                <div class="head">
                    <span class="brand">{icon("mark")}"sendonce"</span>
                    {environment(named)}
                </div>
                <div class="panel">{content}</div>
                <div class="head">
                    <p class="hint">"Views, look-ups and exports are logged."<br />"sendonce "{version.to_owned()}</p>
                    {theme_switch()}
                </div>
            </main>
        </div>
    };
    document(title, ().into_any(), body.into_any())
}

fn password_fields(data: &LoginPage) -> AnyView {
    let wrong = data.problem.is_some().then_some("true");
    let described = data.problem.is_some().then_some("problem");
    // The first empty field: whoever mistyped a password need not find it again.
    let email_first = data.email.is_empty();
    view! {
        <div class="field">
            <label for="email">"Email"</label>
            <input
                class="input" id="email" name="email" type="email" autocomplete="username" required
                maxlength="254" value=data.email.clone() aria-invalid=wrong aria-describedby=described
                autofocus=email_first
            />
        </div>
        <div class="field">
            <label for="password">"Password"</label>
            <input
                class="input" id="password" name="password" type="password"
                autocomplete="current-password" required maxlength="1024" aria-invalid=wrong
                aria-describedby=described autofocus=!email_first
            />
        </div>
    }
    .into_any()
}

fn code_field(pending: &str, is_wrong: bool) -> AnyView {
    view! {
        <input type="hidden" name="pending" value=pending.to_owned() />
        <div class="field">
            <label for="code">"One-time code"</label>
            <input
                class="input code" id="code" name="code" inputmode="numeric" autocomplete="one-time-code" required
                maxlength="16" spellcheck="false" autocapitalize="none" aria-describedby="code-help"
                aria-invalid=is_wrong.then_some("true") autofocus
            />
            <span class="help" id="code-help">"From your authenticator app, or one of your recovery codes."</span>
        </div>
    }
    .into_any()
}

/// `/setup`: makes the first operator, an admin.
pub fn setup(data: SetupPage) -> impl IntoView + use<> {
    let title = format!("Set up · sendonce {}", data.environment);
    let described = data.problem.is_some().then_some("problem");
    let content = view! {
        <h1>"Set up sendonce"</h1>
        <p class="hint">"Nobody can sign in yet. This makes the first operator, with the role admin; the link works once."</p>
        {data.problem.clone().map(|problem| view! { <div id="problem">{note(Tone::Bad, problem)}</div> })}
        <form method="post" action="/setup">
            <input type="hidden" name="csrf" value=data.csrf.clone() />
            <input type="hidden" name="token" value=data.token.clone() />
            <div class="field">
                <label for="email">"Email"</label>
                <input
                    class="input" id="email" name="email" type="email" autocomplete="username" required maxlength="254"
                    value=data.email.clone() aria-describedby=described autofocus
                />
            </div>
            <div class="field">
                <label for="password">"Password"</label>
                <input
                    class="input" id="password" name="password" type="password" autocomplete="new-password" required
                    minlength="12" maxlength="256" aria-describedby="password-help"
                />
                <span class="help" id="password-help">"12 characters or more."</span>
            </div>
            <button class="btn primary tall" type="submit">"Create admin"</button>
        </form>
    };
    gate(title, &data.environment, &data.version, content.into_any())
}
