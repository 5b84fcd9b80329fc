//! Who may do what: one table of all routes of the pages, from which the router is built.
//!
//! A route that is not in the table does not exist, and none is answered before [`admit`] has looked at its
//! line: so no page can forget to ask. The table is public, so that a test walks through it for every role.

use app::model::{Permission, Role};
use axum::http::{HeaderMap, header};

use crate::keys;

/// What a route asks of a visitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: the sign-in page and the files that it is made of.
    Nothing,
    /// Somebody, whoever it is.
    SignedIn,
    /// Somebody who has this permission.
    May(Permission),
}

/// The two methods of the pages. A GET never changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Get,
    Post,
}

/// What a route does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    LoginPage,
    SignIn,
    OidcBegin,
    OidcEnd,
    SignOut,
    Overview,
    Events,
    Search,
    Event,
    Seller,
    Unknown,
    FreezeDesk,
    Freeze,
    Slo,
    Alerts,
    Acknowledge,
    Runbook,
    Capacity,
    Providers,
    Workers,
    Policy,
    CloseBreaker,
    Users,
    ChangeUsers,
    Clients,
    ChangeClients,
    Configuration,
    Lookup,
    LookUp,
    Log,
    ExportLog,
    Evidence,
    ExportEvidence,
    Account,
    ChangeAccount,
    Setup,
    SetUp,
    Live,
    File,
}

/// One line of the table.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    pub verb: Verb,
    /// As the router writes it.
    pub path: &'static str,
    pub needs: Needs,
    pub act: Act,
}

const fn get(path: &'static str, needs: Needs, act: Act) -> Route {
    Route { verb: Verb::Get, path, needs, act }
}

const fn post(path: &'static str, needs: Needs, act: Act) -> Route {
    Route { verb: Verb::Post, path, needs, act }
}

/// Every route of the pages, the stream and the files.
pub static ROUTES: &[Route] = &[
    get("/login", Needs::Nothing, Act::LoginPage),
    post("/login", Needs::Nothing, Act::SignIn),
    get("/login/oidc", Needs::Nothing, Act::OidcBegin),
    get("/login/callback", Needs::Nothing, Act::OidcEnd),
    get("/setup", Needs::Nothing, Act::Setup),
    post("/setup", Needs::Nothing, Act::SetUp),
    post("/logout", Needs::SignedIn, Act::SignOut),
    get("/", Needs::May(Permission::SeeEvents), Act::Overview),
    get("/events", Needs::May(Permission::SeeEvents), Act::Events),
    post("/events", Needs::May(Permission::SeeEvents), Act::Search),
    get("/events/{id}", Needs::May(Permission::SeeEvents), Act::Event),
    get("/sellers/{seller_id}", Needs::May(Permission::SeeEvents), Act::Seller),
    get("/unknown", Needs::May(Permission::SeeEvents), Act::Unknown),
    // What is frozen is for everybody to see; the forms are there for those who may use them.
    get("/freeze", Needs::May(Permission::SeeEvents), Act::FreezeDesk),
    post("/freeze", Needs::May(Permission::Freeze), Act::Freeze),
    get("/slo", Needs::May(Permission::SeeHealth), Act::Slo),
    get("/alerts", Needs::May(Permission::SeeHealth), Act::Alerts),
    post("/alerts", Needs::May(Permission::Freeze), Act::Acknowledge),
    get("/capacity", Needs::May(Permission::SeeHealth), Act::Capacity),
    get("/runbook", Needs::May(Permission::SeeEvents), Act::Runbook),
    get("/providers", Needs::May(Permission::SeeHealth), Act::Providers),
    get("/policy", Needs::May(Permission::SeeHealth), Act::Policy),
    post("/policy", Needs::May(Permission::Freeze), Act::CloseBreaker),
    get("/workers", Needs::May(Permission::SeeHealth), Act::Workers),
    get("/lookup", Needs::May(Permission::BlindLookup), Act::Lookup),
    post("/lookup", Needs::May(Permission::BlindLookup), Act::LookUp),
    get("/evidence", Needs::May(Permission::Evidence), Act::Evidence),
    post("/evidence", Needs::May(Permission::Evidence), Act::ExportEvidence),
    get("/log", Needs::May(Permission::Evidence), Act::Log),
    post("/log", Needs::May(Permission::Evidence), Act::ExportLog),
    get("/account", Needs::SignedIn, Act::Account),
    post("/account", Needs::SignedIn, Act::ChangeAccount),
    get("/admin/users", Needs::May(Permission::Administer), Act::Users),
    post("/admin/users", Needs::May(Permission::Administer), Act::ChangeUsers),
    get("/admin/clients", Needs::May(Permission::Administer), Act::Clients),
    post("/admin/clients", Needs::May(Permission::Administer), Act::ChangeClients),
    get("/admin/config", Needs::May(Permission::Administer), Act::Configuration),
    // The stream asks for more by topic.
    get("/live", Needs::SignedIn, Act::Live),
    get("/pkg/{*file}", Needs::Nothing, Act::File),
    get("/ui.js", Needs::Nothing, Act::File),
    get("/favicon.svg", Needs::Nothing, Act::File),
    get("/favicon.ico", Needs::Nothing, Act::File),
    get("/robots.txt", Needs::Nothing, Act::File),
];

/// Whether a visitor passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    Open,
    /// Nobody is signed in.
    SignIn,
    Forbidden(Permission),
}

/// Decides one line of the table for a visitor's role.
#[must_use]
pub fn admit(needs: Needs, role: Option<Role>) -> Gate {
    match (needs, role) {
        (Needs::Nothing, _) | (Needs::SignedIn, Some(_)) => Gate::Open,
        (_, None) => Gate::SignIn,
        (Needs::May(permission), Some(role)) if role.may(permission) => Gate::Open,
        (Needs::May(permission), Some(_)) => Gate::Forbidden(permission),
    }
}

/// Whether a POST comes from one of our own pages, as far as the browser says.
///
/// `Sec-Fetch-Site` decides where there is one. Else `Origin` does, against the public URL and against the host
/// that was asked. `Origin: null` and no header at all say nothing: our own `Referrer-Policy` makes browsers
/// write `null`, and over plain HTTP they send no `Sec-Fetch-Site`. The form's token decides then, as it does
/// in every case besides this.
#[must_use]
pub fn is_same_origin(headers: &HeaderMap, public_url: &str) -> bool {
    let text = |name| headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    if headers.contains_key("sec-fetch-site") {
        return matches!(
            text(header::HeaderName::from_static("sec-fetch-site")),
            Some("same-origin" | "none")
        );
    }
    if !headers.contains_key(header::ORIGIN) {
        return true;
    }
    let Some(origin) = text(header::ORIGIN) else { return false };
    if origin == "null" {
        return true;
    }
    let Ok(origin) = url::Url::parse(origin) else { return false };
    let is_public =
        url::Url::parse(public_url).is_ok_and(|public| public.origin() == origin.origin());
    let asked = text(header::HOST)
        .and_then(|host| url::Url::parse(&format!("{}://{host}", origin.scheme())).ok());
    is_public || asked.is_some_and(|asked| asked.origin() == origin.origin())
}

/// Whether a form carries the token that it was given, compared in constant time.
#[must_use]
pub fn is_fresh(sent: &str, token: &str) -> bool {
    !token.is_empty() && keys::equal(sent.as_bytes(), token.as_bytes())
}

/// The longest address that is worth returning to.
const NEXT_BYTES_MAX: usize = 2_048;

/// Where to go after signing in: a path of ours, or the start page. Never another host, however it is written:
/// `//host`, `/\host` and what a browser makes of a tab or line break in between.
#[must_use]
pub fn local_path(next: &str) -> &str {
    let mut bytes = next.bytes();
    let is_local = bytes.next() == Some(b'/')
        && !matches!(bytes.next(), Some(b'/' | b'\\'))
        && next.len() <= NEXT_BYTES_MAX
        && next.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    let path = next.split(['?', '#']).next().unwrap_or_default();
    let leads_on = !matches!(path, "/login" | "/logout" | "/setup" | "/live")
        && !path.starts_with("/login/")
        && !path.contains("//");
    if is_local && leads_on { next } else { "/" }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderName, HeaderValue};

    use super::{ROUTES, is_fresh, is_same_origin, local_path};

    #[test]
    fn only_our_own_paths_are_returned_to() {
        for path in [
            "/",
            "/events",
            "/events?q=state:sent&cursor=a%2Fb",
            "/events/1#fact-3",
            "/sellers/a:b",
        ] {
            assert_eq!(local_path(path), path);
        }
        for path in [
            "",
            "events",
            "//evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "https://evil.example",
            "javascript:alert(1)",
            "/\t/evil.example",
            "/\n/evil.example",
            " /events",
            "/a b",
            "/é",
            "/events\\..\\x",
            "/login",
            "/login?next=/login",
            "/logout",
            "/live?topic=events",
            "/..//evil.example",
        ] {
            assert_eq!(local_path(path), "/", "{path:?}");
        }
        assert_eq!(local_path(&format!("/{}", "a".repeat(2_048))), "/");
    }

    #[test]
    fn a_post_comes_from_our_own_pages() {
        let verdict = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            is_same_origin(&headers, "https://reset.example:8443")
        };
        for ours in [
            &[][..],
            &[("sec-fetch-site", "same-origin"), ("origin", "null")],
            &[("sec-fetch-site", "none")],
            &[("origin", "https://reset.example:8443")],
            &[("origin", "null")],
            &[("origin", "http://127.0.0.1:3000"), ("host", "127.0.0.1:3000")],
            &[("origin", "http://reset.internal"), ("host", "reset.internal:80")],
        ] {
            assert!(verdict(ours), "{ours:?}");
        }
        for foreign in [
            &[("sec-fetch-site", "cross-site"), ("origin", "https://reset.example:8443")][..],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "")],
            &[("origin", "https://evil.example"), ("host", "reset.example:8443")],
            &[("origin", "https://reset.example"), ("host", "reset.example:8443")],
            &[("origin", "http://reset.example:8443")],
            &[("origin", "")],
            &[("origin", "garbage")],
        ] {
            assert!(!verdict(foreign), "{foreign:?}");
        }
    }

    #[test]
    fn an_empty_token_is_never_the_right_one() {
        assert!(is_fresh("a", "a"));
        assert!(
            !is_fresh("", "") && !is_fresh("", "a") && !is_fresh("b", "a") && !is_fresh("aa", "a")
        );
    }

    #[test]
    fn every_route_is_in_the_table_once() {
        for (at, route) in ROUTES.iter().enumerate() {
            let twice = ROUTES[..at]
                .iter()
                .any(|other| other.path == route.path && other.verb == route.verb);
            assert!(!twice, "{}", route.path);
        }
    }
}
