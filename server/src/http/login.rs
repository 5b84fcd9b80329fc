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
use super::render;
use super::session::{self, Visitor};
use super::ui::{Asked, Form, Trouble, UiState, Visit, anonymous};
use crate::password::canonical_email;
use crate::store::User;

/// As the form has it.
const EMAIL_CHARS_MAX: usize = 254;

const WRONG: &str = "That did not work. Check the email and the password.";
const STALE: &str = "This page was open for too long. Nothing was done; please sign in again.";
const BUSY: &str = "Too many people are signing in at once. Try again in a moment.";

/// The address that failures are counted for. What a proxy says is believed only of a proxy on this machine;
/// the last entry is the one that it wrote itself.
pub(super) fn remote(peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
    let forwarded = headers
        .get_all("x-forwarded-for")
        .iter()
        .next_back()
        .and_then(|value| value.to_str().ok())
        .and_then(|list| list.rsplit(',').next())
        .and_then(|address| address.trim().parse().ok());
    match (peer, forwarded) {
        (Some(peer), Some(forwarded)) if peer.is_loopback() => Some(forwarded),
        (peer, _) => peer,
    }
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

fn show(state: &UiState, asked: &Asked, status: StatusCode, page: LoginPage) -> Response {
    let anonymous = anonymous(state, asked);
    let config = &state.parts.config;
    let page = LoginPage {
        environment: config.server.environment.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        csrf: anonymous.token(&state.parts.keys),
        ..page
    };
    let mut response = state.page(status, |_| pages::login(page).into_any());
    if let Some(cookie) = anonymous.set_cookie(config) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

async fn sign_in(state: &UiState, asked: &Asked, form: &Form) -> Result<Response, Trouble> {
    let ui = &state.parts;
    let next = guard::local_path(form.get("next"));
    let email = canonical_email(form.get("email"));
    let again = |status, problem: &str| {
        let email = form.get("email").chars().take(EMAIL_CHARS_MAX).collect();
        let page = LoginPage {
            next: next.to_owned(),
            email,
            problem: Some(problem.to_owned()),
            ..LoginPage::default()
        };
        show(state, asked, status, page)
    };
    if !guard::is_fresh(form.get("csrf"), &anonymous(state, asked).token(&ui.keys)) {
        return Ok(again(StatusCode::FORBIDDEN, STALE));
    }
    if email.is_empty()
        || email.chars().count() > EMAIL_CHARS_MAX
        || form.get("password").is_empty()
    {
        return Ok(again(StatusCode::UNPROCESSABLE_ENTITY, WRONG));
    }
    // Held until the failure is counted: many guesses at once must not all pass the same look at the throttle.
    let Ok(turn) = state.passwords.turn().await else {
        return Ok(again(StatusCode::SERVICE_UNAVAILABLE, BUSY));
    };
    let mut subjects = vec![ui.keys.content_hash(&[b"sign-in account", email.as_bytes()])];
    if let Some(address) = asked.remote {
        subjects.push(ui.keys.content_hash(&[b"sign-in address", subscriber(address).as_bytes()]));
    }
    if let Some(until) = ui.store.login_blocked_to(&subjects).await? {
        let seconds = until.since(ui.clock.now()).max(0) / 1_000_000 + 1;
        let problem = format!("Too many failed tries. Try again in {}.", wait(seconds));
        let mut response = again(StatusCode::TOO_MANY_REQUESTS, &problem);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        return Ok(response);
    }
    let user = find(state, form.get("email").trim(), &email).await?;
    let usable = user.as_ref().filter(|user| !user.is_disabled);
    let password = Zeroizing::new(form.get("password").to_owned());
    let is_right = turn.verify(password, usable.map(|user| user.password_hash.clone())).await;
    let Some(user) = user.as_ref().filter(|_| is_right) else {
        ui.store.login_failed(&subjects).await?;
        let mut detail = Detail::default().code("what", "sign_in_failed");
        if let Some(user) = &user {
            detail = detail.code("user", &user.id);
        }
        ui.store.note(FactKind::Operator, "system", detail).await?;
        return Ok(again(StatusCode::UNPROCESSABLE_ENTITY, WRONG));
    };
    ui.store.login_succeeded(&subjects).await?;
    let detail = Detail::default().code("what", "signed_in").code("user", &user.id);
    ui.store.note(FactKind::Operator, &format!("operator:{}", user.id), detail).await?;
    session::sign_in(&asked.session, user, &ui.keys, ui.entropy.as_ref(), asked.now).await?;
    Ok(render::see_other(next))
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

    use super::{remote, subscriber, wait};

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_forwarded_address_is_believed_of_a_local_proxy_alone() {
        let mut headers = HeaderMap::new();
        assert_eq!(remote(Some(ip("127.0.0.1")), &headers), Some(ip("127.0.0.1")));
        headers.append("x-forwarded-for", HeaderValue::from_static("198.51.100.9, 203.0.113.7"));
        assert_eq!(remote(Some(ip("127.0.0.1")), &headers), Some(ip("203.0.113.7")));
        assert_eq!(remote(Some(ip("192.0.2.1")), &headers), Some(ip("192.0.2.1")));
        assert_eq!(remote(None, &headers), None);
        headers.append("x-forwarded-for", HeaderValue::from_static("unknown"));
        assert_eq!(remote(Some(ip("::1")), &headers), Some(ip("::1")));
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
