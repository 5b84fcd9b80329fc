//! Signing in and out.
//!
//! Wrong password, unknown account and disabled account get the same sentence after the same work. Failures
//! are counted per account and per address, under keyed hashes, and make the next try wait; a blocked try is
//! not even looked at. Every try that is looked at is a fact, which names an operator by id and nobody else.

use std::net::IpAddr;

use app::model::{Detail, FactKind, LoginPage};
use app::pages;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use leptos::prelude::IntoAny as _;
use zeroize::Zeroizing;

use super::guard::{self, Act};
use super::session::{self, Visitor};
use super::ui::{Asked, Form, Trouble, UiState, Visit, anonymous};
use super::{factor, render};
use crate::config::Network;
use crate::keys::Keys;
use crate::password::canonical_email;
use crate::store::User;

/// As the form has it.
const EMAIL_CHARS_MAX: usize = 254;

/// Proxies in a row that are looked through.
const FORWARDED_MAX: usize = 16;

const WRONG: &str = "That did not work. Check the email and the password.";
const WRONG_CODE: &str =
    "This code is not right, or it was used before. Wait for the next one and try again.";
const STALE: &str = "This page was open for too long. Nothing was done; please sign in again.";
const BUSY: &str = "Too many people are signing in at once. Try again in a moment.";

/// The address that failures are counted for. What a proxy says is believed only of one that is trusted; its
/// last entry is the one that it wrote itself, and where that names another trusted one, the one before it.
pub(super) fn remote(
    peer: Option<IpAddr>,
    headers: &HeaderMap,
    trusted: &[Network],
) -> Option<IpAddr> {
    let mut nearest = peer?;
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    let lines = headers.get_all("x-forwarded-for").iter().rev();
    let entries = lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(','));
    for entry in entries.take(FORWARDED_MAX) {
        if !is_trusted(nearest) {
            break;
        }
        match entry.trim().parse() {
            Ok(address) => nearest = address,
            Err(_) => break,
        }
    }
    Some(nearest)
}

/// One subscriber, as far as an address tells: a whole /64 of IPv6 belongs to one.
fn subscriber(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
}

/// `/login`, both methods.
pub(super) async fn answer(
    state: &UiState,
    asked: &Asked,
    visitor: Option<Visitor>,
    form: &Form,
) -> Result<Response, Trouble> {
    if asked.route.act == Act::SignIn {
        return sign_in(state, asked, form).await;
    }
    let query = asked.query();
    let field =
        |name: &str| query.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value);
    let next = guard::local_path(field("next"));
    if visitor.is_some() {
        return Ok(render::see_other(next));
    }
    let notice = (field("done") == "signed_out").then(|| "You are signed out.".to_owned());
    let page = LoginPage { next: next.to_owned(), notice, ..LoginPage::default() };
    Ok(show(state, asked, StatusCode::OK, page))
}

pub(super) fn show(
    state: &UiState,
    asked: &Asked,
    status: StatusCode,
    page: LoginPage,
) -> Response {
    let anonymous = anonymous(state, asked);
    let config = &state.parts.config;
    let page = LoginPage {
        environment: config.server.environment.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        csrf: anonymous.token(&state.parts.keys),
        oidc: config.oidc.as_ref().map(|oidc| oidc.name.clone()),
        ..page
    };
    let mut response = state.page(status, |_| pages::login(page).into_any());
    if let Some(cookie) = anonymous.set_cookie(config) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// What failures of an account are counted under.
pub(super) fn account_subject(keys: &Keys, email: &str) -> String {
    keys.content_hash(&[b"sign-in account", canonical_email(email).as_bytes()])
}

/// What the failures of one try are counted under.
fn subjects(state: &UiState, asked: &Asked, email: &str) -> Vec<String> {
    let keys = &state.parts.keys;
    let mut subjects = vec![account_subject(keys, email)];
    if let Some(address) = asked.remote {
        subjects.push(keys.content_hash(&[b"sign-in address", subscriber(address).as_bytes()]));
    }
    subjects
}

/// The form again, with a sentence.
fn again(
    state: &UiState,
    asked: &Asked,
    form: &Form,
    status: StatusCode,
    problem: &str,
) -> Response {
    let page = LoginPage {
        next: guard::local_path(form.get("next")).to_owned(),
        email: form.get("email").chars().take(EMAIL_CHARS_MAX).collect(),
        problem: Some(problem.to_owned()),
        ..LoginPage::default()
    };
    show(state, asked, status, page)
}

/// The answer to a try that is too early after failed ones.
async fn blocked(
    state: &UiState,
    asked: &Asked,
    form: &Form,
    subjects: &[String],
) -> Result<Option<Response>, Trouble> {
    let ui = &state.parts;
    let Some(until) = ui.store.login_blocked_to(subjects).await? else { return Ok(None) };
    let seconds = until.since(ui.clock.now()).max(0) / 1_000_000 + 1;
    let problem = format!("Too many failed tries. Try again in {}.", wait(seconds));
    let mut response = again(state, asked, form, StatusCode::TOO_MANY_REQUESTS, &problem);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    Ok(Some(response))
}

/// Counts a failure, and keeps that there was one.
async fn failed(state: &UiState, subjects: &[String], user: Option<&User>) -> Result<(), Trouble> {
    let store = &state.parts.store;
    store.login_failed(subjects).await?;
    let mut detail = Detail::default().code("what", "sign_in_failed");
    if let Some(user) = user {
        detail = detail.code("user", &user.id);
    }
    store.note(FactKind::Operator, "system", detail).await?;
    Ok(())
}

async fn sign_in(state: &UiState, asked: &Asked, form: &Form) -> Result<Response, Trouble> {
    let ui = &state.parts;
    let email = canonical_email(form.get("email"));
    if !guard::is_fresh(form.get("csrf"), &anonymous(state, asked).token(&ui.keys)) {
        return Ok(again(state, asked, form, StatusCode::FORBIDDEN, STALE));
    }
    if !form.get("pending").is_empty() {
        return second_step(state, asked, form).await;
    }
    let unfit = StatusCode::UNPROCESSABLE_ENTITY;
    if email.is_empty()
        || email.chars().count() > EMAIL_CHARS_MAX
        || form.get("password").is_empty()
    {
        return Ok(again(state, asked, form, unfit, WRONG));
    }
    // Held until the failure is counted: many guesses at once must not all pass the same look at the throttle.
    let Ok(turn) = state.passwords.turn().await else {
        return Ok(again(state, asked, form, StatusCode::SERVICE_UNAVAILABLE, BUSY));
    };
    let subjects = subjects(state, asked, &email);
    if let Some(response) = blocked(state, asked, form, &subjects).await? {
        return Ok(response);
    }
    let user = find(state, form.get("email").trim(), &email).await?;
    let usable = user.as_ref().filter(|user| !user.is_disabled);
    let password = Zeroizing::new(form.get("password").to_owned());
    let is_right = turn.verify(password, usable.map(|user| user.password_hash.clone())).await;
    let Some(right) = user.as_ref().filter(|_| is_right) else {
        failed(state, &subjects, user.as_ref()).await?;
        return Ok(again(state, asked, form, unfit, WRONG));
    };
    if right.has_factor {
        // Failures stay counted until the code is right too: else the password alone would reset the count of
        // wrong codes.
        return Ok(ask_code(state, asked, form, right, None));
    }
    admit(state, asked, form, right, &subjects).await
}

/// Begins the session.
async fn admit(
    state: &UiState,
    asked: &Asked,
    form: &Form,
    user: &User,
    subjects: &[String],
) -> Result<Response, Trouble> {
    let ui = &state.parts;
    ui.store.login_succeeded(subjects).await?;
    begin(state, asked, user).await?;
    Ok(render::see_other(guard::local_path(form.get("next"))))
}

/// Notes the sign-in and begins the session.
pub(super) async fn begin(state: &UiState, asked: &Asked, user: &User) -> Result<(), Trouble> {
    let ui = &state.parts;
    let detail = Detail::default().code("what", "signed_in").code("user", &user.id);
    ui.store.note(FactKind::Operator, &format!("operator:{}", user.id), detail).await?;
    let agent = session::agent(&asked.headers);
    session::sign_in(&asked.session, user, &ui.keys, ui.entropy.as_ref(), &agent, asked.now)
        .await?;
    Ok(())
}

/// For how long a right password waits for its code.
const CODE_WITHIN: i64 = 5 * 60_000_000;

/// Stands for a right password, to this browser alone and for a few minutes; worth nothing once the password
/// is another one.
fn pending(state: &UiState, asked: &Asked, user: &User, until: i64) -> String {
    let parts: [&[u8]; 4] =
        [b"second step", user.id.as_bytes(), &until.to_be_bytes(), user.password_hash.as_bytes()];
    let mac = anonymous(state, asked).bound(&state.parts.keys, &parts);
    format!("{}.{until}.{mac}", user.id)
}

fn ask_code(
    state: &UiState,
    asked: &Asked,
    form: &Form,
    user: &User,
    problem: Option<&str>,
) -> Response {
    let until = asked.now.plus(CODE_WITHIN).micros();
    let page = LoginPage {
        next: guard::local_path(form.get("next")).to_owned(),
        problem: problem.map(str::to_owned),
        pending: Some(pending(state, asked, user, until)),
        ..LoginPage::default()
    };
    let status = if problem.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    show(state, asked, status, page)
}

/// The one-time code, after a right password.
async fn second_step(state: &UiState, asked: &Asked, form: &Form) -> Result<Response, Trouble> {
    let ui = &state.parts;
    let sent = form.get("pending");
    let stale = || again(state, asked, form, StatusCode::FORBIDDEN, STALE);
    let mut parts = sent.splitn(3, '.');
    let (Some(user_id), Some(until)) = (parts.next(), parts.next()) else { return Ok(stale()) };
    let Ok(until) = until.parse::<i64>() else { return Ok(stale()) };
    let user = ui.store.user_by_id(user_id).await?.filter(|user| !user.is_disabled);
    let Some(user) = user.filter(|user| user.has_factor) else { return Ok(stale()) };
    let expected = pending(state, asked, &user, until);
    if until <= asked.now.micros() || !guard::is_fresh(sent, &expected) {
        return Ok(stale());
    }
    // As with passwords: one guess at a time passes the look at the throttle.
    let Ok(_turn) = state.passwords.turn().await else {
        return Ok(again(state, asked, form, StatusCode::SERVICE_UNAVAILABLE, BUSY));
    };
    let subjects = subjects(state, asked, &user.email);
    if let Some(response) = blocked(state, asked, form, &subjects).await? {
        return Ok(response);
    }
    let code = form.get("code");
    let is_right = factor::redeem(ui.store.as_ref(), &ui.keys, &user.id, code, asked.now).await?;
    if is_right {
        return admit(state, asked, form, &user, &subjects).await;
    }
    failed(state, &subjects, Some(&user)).await?;
    Ok(ask_code(state, asked, form, &user, Some(WRONG_CODE)))
}

/// The account, by the address in lower case or else exactly as typed. Both are always read where they differ,
/// so that time does not tell which one there is.
async fn find(state: &UiState, typed: &str, canonical: &str) -> Result<Option<User>, Trouble> {
    let store = &state.parts.store;
    let found = store.user_by_email(canonical).await?;
    if typed == canonical {
        return Ok(found);
    }
    let exact = store.user_by_email(typed).await?;
    Ok(exact.or(found))
}

/// A wait as a person reads it.
fn wait(seconds: i64) -> String {
    match seconds {
        ..=1 => "a second".to_owned(),
        2..=90 => format!("{seconds} seconds"),
        _ => format!("{} minutes", seconds.saturating_add(59) / 60),
    }
}

/// `POST /logout`
pub(super) async fn sign_out(visit: &Visit<'_>) -> Result<Response, Trouble> {
    let detail = Detail::default().code("what", "signed_out");
    // Ending comes first: a session must end even when its fact cannot be written.
    session::sign_out(&visit.asked.session).await?;
    visit.store().note(FactKind::Operator, &visit.visitor.actor(), detail).await?;
    Ok(render::see_other("/login?done=signed_out"))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use axum::http::{HeaderMap, HeaderValue};

    use super::{Network, remote, subscriber, wait};

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_forwarded_address_is_believed_of_a_trusted_proxy_alone() {
        let trusted: Vec<Network> =
            ["127.0.0.0/8", "::1", "10.0.0.0/8"].iter().filter_map(|n| Network::parse(n)).collect();
        let of = |peer: Option<&str>, headers: &HeaderMap| {
            remote(peer.map(ip), headers, &trusted).map(|address| address.to_string())
        };
        let mut headers = HeaderMap::new();
        assert_eq!(of(Some("127.0.0.1"), &headers).as_deref(), Some("127.0.0.1"));
        headers.append("x-forwarded-for", HeaderValue::from_static("198.51.100.9, 203.0.113.7"));
        assert_eq!(of(Some("127.0.0.1"), &headers).as_deref(), Some("203.0.113.7"));
        assert_eq!(of(Some("192.0.2.1"), &headers).as_deref(), Some("192.0.2.1"));
        assert_eq!(of(None, &headers), None);
        // A chain of two proxies: the second one's entry names the first.
        headers.append("x-forwarded-for", HeaderValue::from_static("10.1.2.3"));
        assert_eq!(of(Some("127.0.0.1"), &headers).as_deref(), Some("203.0.113.7"));
        headers.append("x-forwarded-for", HeaderValue::from_static("unknown"));
        assert_eq!(of(Some("::1"), &headers).as_deref(), Some("::1"));
        assert_eq!(remote(Some(ip("::1")), &headers, &[]), Some(ip("::1")));
    }

    #[test]
    fn a_subscriber_of_ipv6_is_a_whole_network() {
        assert_eq!(subscriber(ip("2001:db8:1:2:3:4:5:6")), subscriber(ip("2001:db8:1:2::1")));
        assert_ne!(subscriber(ip("2001:db8:1:2::1")), subscriber(ip("2001:db8:1:3::1")));
        assert_eq!(subscriber(ip("::ffff:192.0.2.1")), "192.0.2.1");
    }

    #[test]
    fn a_wait_is_never_understated() {
        assert_eq!(wait(1), "a second");
        assert_eq!(wait(61), "61 seconds");
        assert_eq!(wait(121), "3 minutes");
    }
}
