//! `/setup`: the first operator, by a link that is printed at the first start and works once.
//!
//! The link's token is in the query string, which nothing logs; the database keeps its hash. While there is
//! any operator, the page does not exist.

use app::model::{SetupPage, Stamp};
use app::pages;
use axum::http::{StatusCode, header};
use axum::response::Response;
use leptos::prelude::IntoAny as _;
use zeroize::Zeroizing;

use super::guard::{self, Act};
use super::ui::{Asked, Form, Trouble, UiState, anonymous};
use super::{render, session};
use crate::entropy::Entropy;
use crate::keys;
use crate::password::{address, fault_of};
use crate::store::{self, Store};

/// For how long a printed link works.
const VALID_FOR: i64 = 24 * 3_600_000_000;

/// Makes a link for the first operator and gives its path; none when there is an operator already.
///
/// # Errors
/// The store's.
pub async fn offer(
    store: &dyn Store,
    entropy: &dyn Entropy,
    now: Stamp,
) -> Result<Option<String>, store::Error> {
    let token = entropy.hex(16);
    let is_open = store.offer_setup(&hash(&token), now.plus(VALID_FOR)).await?;
    Ok(is_open.then(|| format!("/setup?token={token}")))
}

fn hash(token: &str) -> String {
    keys::sha256(token.as_bytes())
}

/// `/setup`, both methods.
pub(super) async fn answer(
    state: &UiState,
    asked: &Asked,
    form: &Form,
) -> Result<Response, Trouble> {
    let is_post = asked.route.act == Act::SetUp;
    let query = asked.query();
    let asked_token = query.iter().find(|(name, _)| name == "token").map_or("", |(_, v)| v);
    let token = if is_post { form.get("token") } else { asked_token };
    let store = state.parts.store.as_ref();
    if !store.is_setup_open(&hash(token)).await? {
        return Err(Trouble::NotFound);
    }
    let again = |status, problem: Option<&str>| {
        let page = SetupPage {
            token: token.to_owned(),
            email: form.get("email").chars().take(254).collect(),
            problem: problem.map(str::to_owned),
            ..SetupPage::default()
        };
        show(state, asked, status, page)
    };
    if !is_post {
        return Ok(again(StatusCode::OK, None));
    }
    if !guard::is_fresh(form.get("csrf"), &anonymous(state, asked).token(&state.parts.keys)) {
        return Ok(again(
            StatusCode::FORBIDDEN,
            Some("This page was open for too long. Send it again."),
        ));
    }
    let unfit = StatusCode::UNPROCESSABLE_ENTITY;
    let Some(email) = address(form.get("email")) else {
        return Ok(again(unfit, Some("Write the email address as name@example.com.")));
    };
    if let Some(fault) = fault_of(form.get("password"), &email) {
        return Ok(again(unfit, Some(fault)));
    }
    let password = Zeroizing::new(form.get("password").to_owned());
    let Ok(password_hash) = state.passwords.hash(password).await else {
        let busy = "Too many people are signing in at once. Try again in a moment.";
        return Ok(again(StatusCode::SERVICE_UNAVAILABLE, Some(busy)));
    };
    let Some(user_id) = store.use_setup(&hash(token), &email, &password_hash).await? else {
        return Err(Trouble::NotFound);
    };
    let Some(user) = store.user_by_id(&user_id).await? else { return Err(Trouble::NotFound) };
    let (parts, agent) = (&state.parts, session::agent(&asked.headers));
    session::sign_in(&asked.session, &user, &parts.keys, parts.entropy.as_ref(), &agent, asked.now)
        .await?;
    Ok(render::see_other("/"))
}

fn show(state: &UiState, asked: &Asked, status: StatusCode, page: SetupPage) -> Response {
    let anonymous = anonymous(state, asked);
    let config = &state.parts.config;
    let page = SetupPage {
        environment: config.server.environment.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        csrf: anonymous.token(&state.parts.keys),
        ..page
    };
    let mut response = state.page(status, |_| pages::setup(page).into_any());
    if let Some(cookie) = anonymous.set_cookie(config) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}
