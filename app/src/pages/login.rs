//! `/login`

use leptos::prelude::*;

use crate::components::{Tone, document, environment, icon, note, theme_switch};
use crate::model::LoginPage;

/// The sign-in page. It needs no bundle, so that it is as light and as robust as a page can be.
pub fn login(data: LoginPage) -> impl IntoView + use<> {
    let title = format!("Sign in · sendonce {}", data.environment);
    let wrong = data.problem.is_some().then_some("true");
    let described = data.problem.is_some().then_some("problem");
    // The first empty field: whoever mistyped a password need not find it again.
    let email_first = data.email.is_empty();
    let body = view! {
        <div class="gate">
            <main id="main">
                <div class="head">
                    <span class="brand">{icon("mark")}"sendonce"</span>
                    {environment(&data.environment)}
                </div>
                <div class="panel">
                    <h1>"Sign in"</h1>
                    {data.problem.map(|problem| view! { <div id="problem">{note(Tone::Bad, problem)}</div> })}
                    {data.notice.map(|notice| note(Tone::Good, notice))}
                    <form method="post" action="/login">
                        <input type="hidden" name="csrf" value=data.csrf />
                        <input type="hidden" name="next" value=data.next />
                        <div class="field">
                            <label for="email">"Email"</label>
                            <input
                                class="input" id="email" name="email" type="email" autocomplete="username" required
                                maxlength="254" value=data.email aria-invalid=wrong aria-describedby=described
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
                        <button class="btn primary tall" type="submit">"Sign in"</button>
                    </form>
                </div>
                <div class="head">
                    <p class="hint">"Views, look-ups and exports are logged."<br />"sendonce "{data.version}</p>
                    {theme_switch()}
                </div>
            </main>
        </div>
    };
    document(title, ().into_any(), body.into_any())
}
