//! The pages from outside: the router in process, over a real SQLite file, with a clock that tests move.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use app::model::{Channel, Role, Stamp};
use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use server::clock::{Clock, ManualClock};
use server::config::{Config, Kind};
use server::domain::{Lookup, Verdict};
use server::entropy::SystemEntropy;
use server::http::guard::{ROUTES, Verb};
use server::http::sse::STREAMS_MAX;
use server::http::ui::{UiParts, UiState, ui_router};
use server::keys::Keys;
use server::outbox::Wakeups;
use server::password::Passwords;
use server::providers::net::HttpTransport;
use server::providers::{
    Callback, CallbackError, CallbackRequest, Capability, Deadline, Message, Provider, Query,
    Registry,
};
use server::store::{Admission, Admitted, Env, Rules, Store, open};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use zeroize::Zeroizing;

#[path = "ui/oidc.rs"]
mod oidc;
#[path = "ui/people.rs"]
mod people;

const PASSWORD: &str = "correct horse battery staple";
const MINUTE: u64 = 60;
const HOUR: u64 = 3_600;

#[derive(Debug)]
struct Post(Capability);

#[async_trait]
impl Provider for Post {
    fn capability(&self) -> &Capability {
        &self.0
    }
    async fn send(&self, _: &Message, _: Deadline) -> Verdict {
        unreachable!("no page sends")
    }
    async fn find(&self, _: &Query, _: Deadline) -> Lookup {
        unreachable!("no page reads a provider")
    }
    async fn verify_callback(&self, _: &CallbackRequest<'_>) -> Result<Callback, CallbackError> {
        Err(CallbackError::NotConfigured)
    }
}

struct World {
    store: Arc<dyn Store>,
    router: Router,
    clock: ManualClock,
    keys: Arc<Keys>,
    wakeups: Wakeups,
    shutdown: CancellationToken,
    sealer: Arc<server::evidence::sealer::Sealer>,
    folder: PathBuf,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl World {
    async fn new() -> Self {
        Self::with("http://127.0.0.1:3000").await
    }

    async fn with(public_url: &str) -> Self {
        Self::configured(public_url, "").await
    }

    /// With more configuration at the end of the file.
    async fn configured(public_url: &str, more: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("sendonce-ui-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        let site = folder.join("site");
        std::fs::create_dir_all(site.join("pkg")).unwrap();
        for (file, text) in [
            ("pkg/sendonce.css", "body{}"),
            ("pkg/sendonce.css.br", "pretend brotli"),
            ("pkg/sendonce_bg.wasm", "\0asm"),
            ("ui.js", "void 0"),
            ("favicon.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>"),
            ("robots.txt", "User-agent: *"),
        ] {
            std::fs::write(site.join(file), text).unwrap();
        }
        std::fs::write(folder.join("secret.txt"), "secret").unwrap();
        let text = format!(
            "[server]\npublic_url = \"{public_url}\"\ndata_dir = \"{}\"\nsite_dir = \"{}\"\n[ui]\nidle_timeout = \"1h\"\nabsolute_timeout = \"5h\"\n{more}",
            folder.display(),
            site.display()
        );
        let config = Arc::new(Config::parse("test", &text, std::iter::empty()).unwrap());
        let clock = ManualClock::new(Stamp::from_micros(1_790_000_000_000_000));
        let entropy = Arc::new(SystemEntropy);
        let keys = Arc::new(Keys::generate(entropy.as_ref()));
        let capability = Capability {
            channels: vec![Channel::Sms],
            settle: Some(2_000_000),
            ..Capability::of(Kind::find("http").unwrap(), None)
        };
        let facing = HashMap::from([("post".to_owned(), capability.facing())]);
        let mut rules = Rules::new(config.policy(), facing, 50);
        rules.sending = config.sending.clone();
        let env = Env {
            clock: Arc::new(clock.clone()),
            entropy: entropy.clone(),
            keys: keys.clone(),
            rules: Arc::new(rules),
        };
        let store = open(&format!("sqlite://{}", folder.join("test.db").display()), env.clone())
            .await
            .unwrap();
        store.migrate().await.unwrap();
        let sealer = Arc::new(server::node::sealer(&config, &env, &store).unwrap());
        let provider: Arc<dyn Provider> = Arc::new(Post(capability));
        let (wakeups, shutdown) = (Wakeups::default(), CancellationToken::new());
        let router = ui_router(UiState::new(UiParts {
            store: store.clone(),
            config,
            keys: keys.clone(),
            clock: Arc::new(clock.clone()),
            entropy,
            wakeups: wakeups.clone(),
            providers: Arc::new(Registry::of(BTreeMap::from([("post".to_owned(), provider)]))),
            sealer: sealer.clone(),
            transport: Arc::new(HttpTransport::new(Arc::new(clock.clone()))),
            shutdown: shutdown.clone(),
        }));
        Self { store, router, clock, keys, wakeups, shutdown, sealer, folder }
    }

    fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    async fn add_user(&self, role: Role) -> String {
        // Hashing takes a while: once for all users of all tests.
        static HASH: tokio::sync::OnceCell<String> = tokio::sync::OnceCell::const_new();
        let hash = HASH
            .get_or_init(|| async {
                let passwords = Passwords::new(Arc::new(SystemEntropy));
                passwords.hash(Zeroizing::new(PASSWORD.to_owned())).await.unwrap()
            })
            .await;
        let email = format!("{role}@example.com");
        self.store.add_user(&email, role, hash).await.unwrap();
        email
    }

    async fn admit(&self, n: u32, seller: &str) -> String {
        self.admit_all(&[(n, seller)]).await.remove(0)
    }

    async fn admit_all(&self, events: &[(u32, &str)]) -> Vec<String> {
        let now = self.clock.now();
        let requests: Vec<Admission> = events
            .iter()
            .map(|(n, seller)| Admission {
                id: format!("0193a5b0-7c1e-7d3f-8a2b-00000000{n:04x}"),
                event_id: format!("ev-{n:04}"),
                idempotency_key: format!("key-{n:04}"),
                content_hash: format!("hash-{n:04}"),
                spelled_hash: None,
                channel: Channel::Sms,
                provider: "post".to_owned(),
                purpose: "password_reset".to_owned(),
                seller_id: Some((*seller).to_owned()),
                request_window: None,
                token_id: None,
                destination_ref: "dest:1".to_owned(),
                reset_ref: "reset:1".to_owned(),
                destination_hash: "dh".to_owned(),
                reset_hash: "rh".to_owned(),
                expires_at: now.plus(1_800_000_000),
                client_id: "c1".to_owned(),
                fault: None,
            })
            .collect();
        let admitted = self.store.admit(&requests).await.unwrap();
        admitted
            .into_iter()
            .map(|one| match one {
                Admitted::New(record) => record.id,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn browser(&self) -> Browser {
        Browser { router: self.router.clone(), cookies: BTreeMap::new(), headers: HeaderMap::new() }
    }

    async fn signed_in(&self, role: Role) -> Browser {
        let email = format!("{role}@example.com");
        if self.store.user_by_email(&email).await.unwrap().is_none() {
            self.add_user(role).await;
        }
        let mut browser = self.browser();
        let done = browser.sign_in(&email, PASSWORD, "/").await;
        assert_eq!((done.status, done.location()), (StatusCode::SEE_OTHER, "/"), "{}", done.text);
        browser
    }

    /// The operators' log, newest first, as `what` and the rest.
    async fn log(&self) -> Vec<(String, String)> {
        // Facts without a record have no page yet: read the file beside the store.
        let pool = sqlx::SqlitePool::connect(&format!(
            "sqlite://{}",
            self.folder.join("test.db").display()
        ))
        .await
        .unwrap();
        let rows: Vec<(String, String)> = sqlx::query_as(
            "SELECT actor, detail FROM facts WHERE kind = 'operator' ORDER BY fact_no DESC",
        )
        .fetch_all(&pool)
        .await
        .unwrap();
        pool.close().await;
        rows
    }

    async fn logged(&self, what: &str) -> usize {
        let needle = format!("\"what\":\"{what}\"");
        self.log()
            .await
            .iter()
            .filter(|(_, detail)| detail.replace(": ", ":").contains(&needle))
            .count()
    }

    /// Every text in the database file and its journal.
    fn dump(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(&self.folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                all.extend(std::fs::read(path).unwrap());
            }
        }
        all
    }
}

/// Keeps cookies, as a browser does.
#[derive(Clone)]
struct Browser {
    router: Router,
    cookies: BTreeMap<String, String>,
    headers: HeaderMap,
}

struct Page {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Page {
    fn location(&self) -> &str {
        self.headers.get(header::LOCATION).map_or("", |value| value.to_str().unwrap())
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The value of a hidden field.
    fn field(&self, name: &str) -> String {
        let mark = format!("name=\"{name}\" value=\"");
        let (_, rest) =
            self.text.split_once(&mark).unwrap_or_else(|| panic!("no {name} in {}", self.text));
        rest.split('"').next().unwrap().to_owned()
    }
}

impl Browser {
    async fn send(
        &mut self,
        method: Method,
        path: &str,
        form: Option<&[(&str, &str)]>,
    ) -> axum::response::Response {
        let mut request =
            Request::builder().method(method).uri(path).header("host", "127.0.0.1:3000");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if !self.cookies.is_empty() {
            let cookies: Vec<String> =
                self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            request = request.header(header::COOKIE, cookies.join("; "));
        }
        let body = match form {
            None => Body::empty(),
            Some(fields) => {
                request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
                Body::from(
                    url::form_urlencoded::Serializer::new(String::new())
                        .extend_pairs(fields)
                        .finish(),
                )
            }
        };
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        for cookie in response.headers().get_all(header::SET_COOKIE) {
            let text = cookie.to_str().unwrap();
            let (name, rest) = text.split_once('=').unwrap();
            let value = rest.split(';').next().unwrap();
            if value.is_empty() {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        response
    }

    async fn page(&mut self, method: Method, path: &str, form: Option<&[(&str, &str)]>) -> Page {
        let response = self.send(method, path, form).await;
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, 1 << 22).await.unwrap();
        Page {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    async fn get(&mut self, path: &str) -> Page {
        self.page(Method::GET, path, None).await
    }

    async fn post(&mut self, path: &str, form: &[(&str, &str)]) -> Page {
        self.page(Method::POST, path, Some(form)).await
    }

    async fn sign_in(&mut self, email: &str, password: &str, next: &str) -> Page {
        let csrf = self.get("/login").await.field("csrf");
        self.post(
            "/login",
            &[("csrf", &csrf), ("email", email), ("password", password), ("next", next)],
        )
        .await
    }

    async fn csrf(&mut self) -> String {
        self.get("/providers").await.field("csrf")
    }

    fn session(&self) -> Option<&String> {
        self.cookies.get("sendonce").or_else(|| self.cookies.get("__Host-sendonce"))
    }
}

/// Who may: by name of the role. Written down here once more, so that a change of the table is noticed.
const EVERYBODY: &[&str] = &["out", "support", "compliance", "oncall", "admin"];
const OPERATORS: &[&str] = &["support", "compliance", "oncall", "admin"];
const FREEZERS: &[&str] = &["oncall", "admin"];
const LOOKERS: &[&str] = &["support", "compliance", "admin"];
const AUDITORS: &[&str] = &["compliance", "admin"];
const ADMINS: &[&str] = &["admin"];

const EXPECTED: &[(Verb, &str, &[&str])] = &[
    (Verb::Get, "/login", EVERYBODY),
    (Verb::Post, "/login", EVERYBODY),
    (Verb::Get, "/login/oidc", EVERYBODY),
    (Verb::Get, "/login/callback", EVERYBODY),
    (Verb::Get, "/setup", EVERYBODY),
    (Verb::Post, "/setup", EVERYBODY),
    (Verb::Post, "/logout", OPERATORS),
    (Verb::Get, "/", OPERATORS),
    (Verb::Get, "/events", OPERATORS),
    (Verb::Post, "/events", OPERATORS),
    (Verb::Get, "/events/{id}", OPERATORS),
    (Verb::Get, "/sellers/{seller_id}", OPERATORS),
    (Verb::Get, "/unknown", OPERATORS),
    (Verb::Get, "/freeze", OPERATORS),
    (Verb::Post, "/freeze", FREEZERS),
    (Verb::Get, "/policy", OPERATORS),
    (Verb::Post, "/policy", FREEZERS),
    (Verb::Get, "/slo", OPERATORS),
    (Verb::Get, "/alerts", OPERATORS),
    (Verb::Post, "/alerts", FREEZERS),
    (Verb::Get, "/capacity", OPERATORS),
    (Verb::Get, "/runbook", OPERATORS),
    (Verb::Get, "/providers", OPERATORS),
    (Verb::Get, "/workers", OPERATORS),
    (Verb::Get, "/lookup", LOOKERS),
    (Verb::Post, "/lookup", LOOKERS),
    (Verb::Get, "/evidence", AUDITORS),
    (Verb::Post, "/evidence", AUDITORS),
    (Verb::Get, "/log", AUDITORS),
    (Verb::Post, "/log", AUDITORS),
    (Verb::Get, "/account", OPERATORS),
    (Verb::Post, "/account", OPERATORS),
    (Verb::Get, "/admin/users", ADMINS),
    (Verb::Post, "/admin/users", ADMINS),
    (Verb::Get, "/admin/clients", ADMINS),
    (Verb::Post, "/admin/clients", ADMINS),
    (Verb::Get, "/admin/config", ADMINS),
    (Verb::Get, "/live", OPERATORS),
    (Verb::Get, "/pkg/{*file}", EVERYBODY),
    (Verb::Get, "/ui.js", EVERYBODY),
    (Verb::Get, "/favicon.svg", EVERYBODY),
    (Verb::Get, "/favicon.ico", EVERYBODY),
    (Verb::Get, "/robots.txt", EVERYBODY),
];

#[tokio::test]
async fn every_route_lets_in_exactly_the_roles_that_it_should() {
    let world = World::new().await;
    let id = world.admit(1, "seller_1042").await;
    for expected in EXPECTED {
        let is_there =
            ROUTES.iter().any(|route| route.verb == expected.0 && route.path == expected.1);
        assert!(is_there, "{} is gone", expected.1);
    }
    for who in EVERYBODY {
        let mut browser = match who.parse::<Role>() {
            Ok(role) => world.signed_in(role).await,
            Err(_) => world.browser(),
        };
        let csrf = if *who == "out" { String::new() } else { browser.csrf().await };
        for route in ROUTES {
            let expected =
                EXPECTED.iter().find(|(verb, path, _)| *verb == route.verb && *path == route.path);
            let Some((_, _, may)) = expected else {
                panic!("{:?} {} is new: say in this test who may use it", route.verb, route.path)
            };
            let path = route
                .path
                .replace("{id}", &id)
                .replace("{seller_id}", "seller_1042")
                .replace("{*file}", "sendonce.css")
                .replace("/live", "/live?topic=events");
            // Signing out ends the session, so it is asked with a copy.
            let mut browser = if route.path == "/logout" {
                world_copy(&world, who).await
            } else {
                browser.clone()
            };
            let csrf = if route.path == "/logout" && *who != "out" {
                browser.csrf().await
            } else {
                csrf.clone()
            };
            let response = match route.verb {
                Verb::Get => browser.send(Method::GET, &path, None).await,
                Verb::Post => browser.send(Method::POST, &path, Some(&[("csrf", &csrf)])).await,
            };
            let (status, location) = (response.status(), location_of(&response));
            let name = format!("{who} {:?} {}: {status} {location}", route.verb, route.path);
            if may.contains(who) {
                let is_refused = status == StatusCode::UNAUTHORIZED
                    || (status == StatusCode::FORBIDDEN && route.path != "/login")
                    || (location.starts_with("/login") && route.path != "/logout");
                assert!(!is_refused && !status.is_server_error(), "{name}");
            } else if *who == "out" {
                let is_sent_away =
                    status == StatusCode::SEE_OTHER && location.starts_with("/login");
                assert!(
                    is_sent_away || (route.path == "/live" && status == StatusCode::UNAUTHORIZED),
                    "{name}"
                );
            } else {
                assert_eq!(status, StatusCode::FORBIDDEN, "{name}");
                let text = to_bytes(response.into_body(), 1 << 22).await.unwrap();
                let text = String::from_utf8_lossy(&text).into_owned();
                assert!(text.contains("Only the role"), "{name}: it says who may");
            }
        }
    }
}

async fn world_copy(world: &World, who: &str) -> Browser {
    match who.parse::<Role>() {
        Ok(role) => world.signed_in(role).await,
        Err(_) => world.browser(),
    }
}

fn location_of(response: &axum::response::Response) -> String {
    response
        .headers()
        .get(header::LOCATION)
        .map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn another_address_or_method_is_no_way_around_the_table() {
    let world = World::new().await;
    let mut browser = world.browser();
    for path in ["/nowhere", "/events/", "/admin", "//events", "/events/1/2"] {
        let page = browser.get(path).await;
        assert!(
            page.status == StatusCode::NOT_FOUND || page.location().starts_with("/login"),
            "{path}"
        );
    }
    for method in [Method::PUT, Method::DELETE, Method::PATCH] {
        assert_eq!(
            browser.page(method, "/freeze", None).await.status,
            StatusCode::METHOD_NOT_ALLOWED
        );
    }
    let program = browser.get("/v1/nowhere").await;
    assert_eq!(program.status, StatusCode::NOT_FOUND);
    assert_eq!(program.header("content-type"), "application/problem+json");
    let mut admin = world.signed_in(Role::Admin).await;
    let page = admin.get("/nowhere").await;
    assert_eq!(page.status, StatusCode::NOT_FOUND);
    assert!(
        page.text.contains("There is no such page") && page.text.contains("aria-label=\"Main\"")
    );
    assert_eq!(admin.get("/events/ev-nothing").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn somebody_who_signs_in_comes_back_to_where_they_wanted_to_go() {
    let world = World::new().await;
    world.add_user(Role::Support).await;
    let mut browser = world.browser();
    let away = browser.get("/events?state=sent&q=ev-1").await;
    assert_eq!(away.status, StatusCode::SEE_OTHER);
    let login = browser.get(away.location()).await;
    assert_eq!(login.status, StatusCode::OK);
    let next = login.field("next").replace("&amp;", "&");
    assert_eq!(next, "/events?state=sent&q=ev-1");
    let csrf = login.field("csrf");
    let form = [
        ("csrf", &*csrf),
        ("email", " Support@Example.com "),
        ("password", PASSWORD),
        ("next", &*next),
    ];
    let done = browser.post("/login", &form).await;
    assert_eq!((done.status, done.location()), (StatusCode::SEE_OTHER, &*next));
    let cookie =
        done.headers.get_all("set-cookie").iter().next_back().unwrap().to_str().unwrap().to_owned();
    assert!(cookie.starts_with("sendonce="), "{cookie}");
    for part in ["HttpOnly", "SameSite=Lax", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("Secure") && !cookie.contains("Max-Age"), "{cookie}");
    let page = browser.get("/").await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.text.contains("support@example.com"));
    // Signed in already: the sign-in page leads on.
    let again = browser.get("/login?next=/unknown").await;
    assert_eq!(again.location(), "/unknown");
    // And out.
    let session = browser.session().unwrap().clone();
    let csrf = page.field("csrf");
    let out = browser.post("/logout", &[("csrf", &csrf)]).await;
    assert_eq!((out.status, out.location()), (StatusCode::SEE_OTHER, "/login?done=signed_out"));
    assert!(browser.session().is_none(), "the cookie is taken back");
    assert!(browser.get(out.location()).await.text.contains("You are signed out."));
    browser.cookies.insert("sendonce".to_owned(), session);
    assert!(
        browser.get("/").await.location().starts_with("/login"),
        "the session itself has ended"
    );
    assert_eq!((world.logged("signed_in").await, world.logged("signed_out").await), (1, 1));
}

#[tokio::test]
async fn behind_tls_the_cookie_is_secure_and_of_this_host_alone() {
    let world = World::with("https://reset.example").await;
    let email = world.add_user(Role::Support).await;
    let mut browser = world.browser();
    let done = browser.sign_in(&email, PASSWORD, "/").await;
    for cookie in done.headers.get_all("set-cookie") {
        let cookie = cookie.to_str().unwrap();
        assert!(cookie.starts_with("__Host-sendonce"), "{cookie}");
        assert!(
            cookie.contains("Secure") && cookie.contains("Path=/") && !cookie.contains("Domain"),
            "{cookie}"
        );
    }
    let page = browser.get("/").await;
    assert_eq!(page.header("strict-transport-security"), "max-age=31536000");
    let out = browser.post("/logout", &[("csrf", &page.field("csrf"))]).await;
    let removal = out.headers.get_all("set-cookie").iter().next_back().unwrap().to_str().unwrap();
    assert!(removal.starts_with("__Host-sendonce=;") && removal.contains("Secure"), "{removal}");
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_account_look_the_same() {
    let world = World::new().await;
    let email = world.add_user(Role::Support).await;
    let disabled = world.add_user(Role::Oncall).await;
    world.store.disable_user(&disabled).await.unwrap();
    let strip = |page: &Page, email: &str| {
        let mut text = page.text.replace(email, "X");
        text = text.replace(&page.field("csrf"), "T");
        text
    };
    let mut seen = Vec::new();
    for (email, password) in
        [(&*email, "wrong"), ("nobody@example.com", "wrong"), (&*disabled, PASSWORD)]
    {
        let mut browser = world.browser();
        let page = browser.sign_in(email, password, "/events").await;
        assert!(browser.session().is_none());
        assert_eq!(page.field("next"), "/events");
        seen.push((page.status, strip(&page, email)));
    }
    assert_eq!(seen[0].0, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(seen[0].1.contains("Check the email and the password."));
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
    let failed = world.log().await;
    let failed: Vec<_> =
        failed.iter().filter(|(_, detail)| detail.contains("sign_in_failed")).collect();
    assert_eq!(failed.len(), 3);
    assert!(
        failed.iter().all(|(actor, detail)| actor == "system" && !detail.contains("example")),
        "{failed:?}"
    );
}

#[tokio::test]
async fn guessing_is_slowed_down_for_the_account_and_forgiven_on_success() {
    let world = World::new().await;
    let email = world.add_user(Role::Support).await;
    for wrong in [&*email, "nobody@example.com"] {
        let mut browser = world.browser();
        for _ in 0..5 {
            assert_eq!(
                browser.sign_in(wrong, "wrong", "/").await.status,
                StatusCode::UNPROCESSABLE_ENTITY
            );
        }
        let blocked = browser.sign_in(wrong, PASSWORD, "/").await;
        assert_eq!(
            blocked.status,
            StatusCode::TOO_MANY_REQUESTS,
            "for an account that is not there, too"
        );
        assert!(!blocked.header("retry-after").is_empty());
        assert!(blocked.text.contains("Too many failed tries."));
    }
    // Neither the case nor a space makes it another account.
    let mut browser = world.browser();
    let blocked = browser.sign_in(" SUPPORT@example.com", PASSWORD, "/").await;
    assert_eq!(blocked.status, StatusCode::TOO_MANY_REQUESTS);
    world.pass(2);
    assert_eq!(browser.sign_in(&email, PASSWORD, "/").await.status, StatusCode::SEE_OTHER);
    for _ in 0..4 {
        let mut browser = world.browser();
        assert_eq!(
            browser.sign_in(&email, "wrong", "/").await.status,
            StatusCode::UNPROCESSABLE_ENTITY
        );
    }
    let dump = world.dump();
    let has = |needle: &str| dump.windows(needle.len()).any(|window| window == needle.as_bytes());
    assert!(has("support@example.com"), "the users table has it");
    assert!(!has("nobody@example.com") && !has(PASSWORD), "what was only typed is kept nowhere");
}

#[tokio::test]
async fn guesses_from_one_address_are_slowed_down_over_all_accounts() {
    let world = World::new().await;
    let from = |address: &str| {
        let mut browser = world.browser();
        let address: std::net::SocketAddr = address.parse().unwrap();
        browser.router =
            world.router.clone().layer(axum::Extension(axum::extract::ConnectInfo(address)));
        browser
    };
    for n in 0..5 {
        from("192.0.2.1:4000").sign_in(&format!("a{n}@example.com"), "wrong", "/").await;
    }
    let status = from("192.0.2.1:4001").sign_in("b@example.com", "wrong", "/").await.status;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    let status = from("192.0.2.2:4000").sign_in("b@example.com", "wrong", "/").await.status;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn the_id_from_before_signing_in_is_not_the_one_after() {
    let world = World::new().await;
    let email = world.add_user(Role::Admin).await;
    let planted = "AAAAAAAAAAAAAAAAAAAAAA";
    let mut browser = world.browser();
    browser.cookies.insert("sendonce".to_owned(), planted.to_owned());
    browser.sign_in(&email, PASSWORD, "/").await;
    let first = browser.session().unwrap().clone();
    assert_ne!(first, planted);
    // Signing in again ends the session before it.
    browser.cookies.insert("sendonce".to_owned(), first.clone());
    let mut other = world.browser();
    let csrf = other.get("/login").await.field("csrf");
    other.cookies.insert("sendonce".to_owned(), first.clone());
    other.post("/login", &[("csrf", &csrf), ("email", &email), ("password", PASSWORD)]).await;
    assert_ne!(other.session().unwrap(), &first);
    assert!(browser.get("/").await.location().starts_with("/login"));
    let dump = world.dump();
    let id = other.session().unwrap().as_bytes();
    assert!(!dump.windows(id.len()).any(|window| window == id), "the database keeps a hash of it");
}

#[tokio::test]
async fn sessions_end_when_idle_when_old_and_when_the_account_changes() {
    let world = World::new().await;
    let mut idle = world.signed_in(Role::Support).await;
    world.pass(59 * MINUTE);
    assert_eq!(idle.get("/").await.status, StatusCode::OK);
    world.pass(59 * MINUTE);
    assert_eq!(idle.get("/").await.status, StatusCode::OK, "each request starts the hour again");
    world.pass(30 * MINUTE);
    idle.headers.insert("x-sendonce-fragment", "live".parse().unwrap());
    assert_eq!(idle.get("/").await.status, StatusCode::OK);
    world.pass(31 * MINUTE);
    assert!(
        idle.get("/").await.location().starts_with("/login"),
        "a page that refreshes itself is nobody"
    );

    let mut old = world.signed_in(Role::Support).await;
    for _ in 0..7 {
        world.pass(40 * MINUTE);
        assert_eq!(old.get("/").await.status, StatusCode::OK);
    }
    world.pass(21 * MINUTE);
    assert!(old.get("/").await.location().starts_with("/login"), "five hours are the most");

    let mut disabled = world.signed_in(Role::Oncall).await;
    world.store.disable_user("oncall@example.com").await.unwrap();
    assert!(disabled.get("/").await.location().starts_with("/login"));

    let mut changed = world.signed_in(Role::Compliance).await;
    world.store.set_password("compliance@example.com", "$argon2id$other").await.unwrap();
    assert!(changed.get("/").await.location().starts_with("/login"));
    world.pass(HOUR);
}

#[tokio::test]
async fn after_signing_in_nobody_is_sent_to_another_site() {
    let world = World::new().await;
    let email = world.add_user(Role::Support).await;
    for next in [
        "//evil.example",
        "https://evil.example/",
        "/\\evil.example",
        "/\t/evil.example",
        "javascript:alert(1)",
    ] {
        let done = world.browser().sign_in(&email, PASSWORD, next).await;
        assert_eq!((done.status, done.location()), (StatusCode::SEE_OTHER, "/"), "{next}");
        let query =
            url::form_urlencoded::Serializer::new(String::new()).append_pair("next", next).finish();
        assert_eq!(
            world.browser().get(&format!("/login?{query}")).await.field("next"),
            "/",
            "{next}"
        );
    }
    // What somebody mistyped into an address does not travel on.
    let away = world.browser().get("/events?q=user@example.com").await;
    assert_eq!(away.location(), "/login?next=%2Fevents");
}

#[tokio::test]
async fn a_post_from_another_site_does_nothing() {
    let world = World::new().await;
    let mut browser = world.signed_in(Role::Oncall).await;
    let csrf = browser.csrf().await;
    let form = freeze_form(&csrf, "key-0123456789abcdef");
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "https://evil.example"),
        ("origin", "http://127.0.0.1:9999"),
    ] {
        let mut evil = browser.clone();
        evil.headers.insert(name, value.parse().unwrap());
        for path in ["/freeze", "/events", "/logout", "/login"] {
            assert_eq!(
                evil.post(path, &form).await.status,
                StatusCode::FORBIDDEN,
                "{name}: {value} {path}"
            );
        }
    }
    assert!(world.store.freezes().await.unwrap().is_empty());
    assert_eq!(browser.get("/").await.status, StatusCode::OK, "still signed in");
    browser.headers.insert("sec-fetch-site", "same-origin".parse().unwrap());
    browser.headers.insert("origin", "null".parse().unwrap());
    assert_eq!(browser.post("/freeze", &form).await.status, StatusCode::SEE_OTHER);
    // A GET with the same fields changes nothing.
    let query = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs([("act", "reopen"), ("scope", "channel:sms"), ("csrf", &csrf)])
        .finish();
    browser.get(&format!("/freeze?{query}")).await;
    assert_eq!(world.store.freezes().await.unwrap().len(), 1);
    let large = "x".repeat(20_000);
    assert_eq!(
        browser.post("/freeze", &[("reason", &large)]).await.status,
        StatusCode::PAYLOAD_TOO_LARGE
    );
}

fn freeze_form<'a>(csrf: &'a str, key: &'a str) -> Vec<(&'static str, &'a str)> {
    vec![
        ("csrf", csrf),
        ("action_key", key),
        ("act", "freeze"),
        ("scope", "channel:sms"),
        ("reason", "INC-2291: carrier is down & <b>unclear</b>"),
        ("review_at", ""),
        ("confirm", ""),
    ]
}

#[tokio::test]
async fn a_stale_form_does_nothing_and_keeps_what_was_typed() {
    let world = World::new().await;
    let mut browser = world.signed_in(Role::Oncall).await;
    let stale = browser.csrf().await;
    let mut browser = world.signed_in(Role::Oncall).await;
    let page = browser.post("/freeze", &freeze_form(&stale, "key-0123456789abcdef")).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    assert!(page.text.contains("reloaded with what you typed"));
    assert!(
        page.text.contains("INC-2291: carrier is down &amp; &lt;b&gt;unclear"),
        "{}",
        page.text
    );
    assert!(world.store.freezes().await.unwrap().is_empty());
    // The page that came back can be sent.
    let (csrf, key) = (page.field("csrf"), page.field("action_key"));
    assert_eq!(
        browser.post("/freeze", &freeze_form(&csrf, &key)).await.status,
        StatusCode::SEE_OTHER
    );
    let login = world
        .browser()
        .post("/login", &[("csrf", &stale), ("email", "a@example.com"), ("password", "x")])
        .await;
    assert_eq!(login.status, StatusCode::FORBIDDEN);
    assert!(login.text.contains("a@example.com") && login.text.contains("open for too long"));
    assert_eq!(browser.post("/logout", &[("csrf", &stale)]).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn acknowledging_an_alert_acts_once_and_keeps_who_and_why() {
    use app::model::{Alert, AlertRule, AlertState, Severity};
    let world = World::new().await;
    let now = world.clock.now();
    let hold = world.store.take_duty("alerts", "w", 10_000_000).await.unwrap().unwrap();
    let alert = Alert {
        id: "al-1".to_owned(),
        rule: AlertRule::QueueAge,
        subject: String::new(),
        severity: Severity::Page,
        state: AlertState::Firing,
        opened_at: now,
        fired_at: Some(now),
        clear_at: None,
        ended_at: None,
        updated_at: now,
        count: 3,
        oldest_at: Some(now),
        value: 45_000_000,
        acked_at: None,
        acked_by: None,
        ack_reason: None,
    };
    let change =
        server::store::AlertChange { alert, is_new: true, is_dropped: false, tell: Some("firing") };
    world.store.change_alerts(hold, &[change], &[]).await.unwrap();
    let mut browser = world.signed_in(Role::Oncall).await;
    let page = browser.get("/alerts").await;
    assert!(page.text.contains("Due events are not being claimed"));
    assert!(page.text.contains("/runbook#queue"));
    let (csrf, key) = (page.field("csrf"), page.field("action_key"));
    let form = |csrf: &str, reason: &str| {
        [("csrf", csrf), ("action_key", &key), ("alert", "al-1"), ("reason", reason)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    for (csrf, reason, status, says) in [
        (csrf.as_str(), "", StatusCode::UNPROCESSABLE_ENTITY, "Say what you know"),
        (csrf.as_str(), "ask a@example.com", StatusCode::UNPROCESSABLE_ENTITY, "name the"),
        ("other", "INC-7 it is the carrier", StatusCode::FORBIDDEN, "INC-7 it is the carrier"),
    ] {
        let fields = form(csrf, reason);
        let fields: Vec<(&str, &str)> =
            fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let page = browser.post("/alerts", &fields).await;
        assert_eq!(page.status, status, "{reason}");
        assert!(page.text.contains(says), "{reason}: {}", page.text);
    }
    let fields = form(&csrf, "INC-7 it is the carrier");
    let fields: Vec<(&str, &str)> = fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let done = browser.post("/alerts", &fields).await;
    assert_eq!(
        (done.status, done.location()),
        (StatusCode::SEE_OTHER, "/alerts?done=acknowledged")
    );
    let again = browser.post("/alerts", &fields).await;
    assert_eq!(again.location(), "/alerts?done=repeated");
    let page = browser.get("/alerts?done=acknowledged").await;
    assert!(page.text.contains("INC-7 it is the carrier") && page.text.contains("acknowledged"));
    assert!(!page.text.contains("Acknowledge</button>"));
    assert_eq!(world.logged("acknowledge_alert").await, 1);
    let mut support = world.signed_in(Role::Support).await;
    assert!(support.get("/alerts").await.text.contains("INC-7 it is the carrier"));
}

#[tokio::test]
async fn the_service_level_and_the_runbook_are_pages_for_every_role() {
    let world = World::new().await;
    world.admit(1, "seller_1042").await;
    world.pass(180);
    for role in Role::ALL {
        let mut browser = world.signed_in(*role).await;
        let page = browser.get("/slo").await;
        assert_eq!(page.status, StatusCode::OK);
        assert!(page.text.contains("99.5 % of the events"), "{}", page.text);
        assert!(page.text.contains("1 of 1"), "one event was judged and had missed");
        let page = browser.get("/runbook").await;
        assert!(
            page.text.contains("id=\"who-may-freeze\"") && page.text.contains("id=\"reopening\"")
        );
    }
}

#[tokio::test]
async fn freezing_and_reopening_act_once_and_say_what_they_did() {
    let world = World::new().await;
    let mut browser = world.signed_in(Role::Oncall).await;
    let page = browser.get("/freeze").await;
    let (csrf, key) = (page.field("csrf"), page.field("action_key"));
    let form = freeze_form(&csrf, &key);
    let mut second = browser.clone();
    let done = browser.post("/freeze", &form).await;
    assert_eq!(
        (done.status, done.location()),
        (StatusCode::SEE_OTHER, "/freeze?done=frozen&scope=channel:sms")
    );
    let again = second.post("/freeze", &form).await;
    assert_eq!(
        (again.status, again.location()),
        (StatusCode::SEE_OTHER, "/freeze?done=repeated&scope=channel:sms")
    );
    let freezes = world.store.freezes().await.unwrap();
    assert_eq!(freezes.len(), 1);
    assert!(freezes[0].actor.starts_with("operator:"), "{}", freezes[0].actor);
    assert_eq!(freezes[0].reason, "INC-2291: carrier is down & <b>unclear</b>");
    let page = browser.get(done.location()).await;
    assert!(page.text.contains("Frozen: channel sms. No call was in flight."));
    assert!(second.get(again.location()).await.text.contains("it acts once"));
    for path in ["/", "/events", "/unknown", "/providers", "/nowhere"] {
        let page = browser.get(path).await;
        assert!(page.text.contains("aria-label=\"Dispatch frozen\""), "{path}");
        assert!(page.text.contains("carrier is down"), "{path}");
    }
    // The first actor and time stay.
    let key = page.field("action_key");
    let done = browser.post("/freeze", &freeze_form(&csrf, &key)).await;
    assert_eq!(done.location(), "/freeze?done=already&scope=channel:sms");
    // Reopen, with the key that the reopening form carries.
    let page = browser.get("/freeze").await;
    let (_, reopening) =
        page.text.split_once("value=\"reopen\"").map_or(("", ""), |(before, _)| {
            before.rsplit_once("name=\"action_key\" value=\"").unwrap()
        });
    let key = reopening.split('"').next().unwrap().to_owned();
    let reopen = [
        ("csrf", &*csrf),
        ("action_key", &*key),
        ("act", "reopen"),
        ("scope", "channel:sms"),
        ("reason", "carrier confirmed"),
    ];
    let done = browser.post("/freeze", &reopen).await;
    assert_eq!(done.location(), "/freeze?done=reopened&scope=channel:sms");
    assert!(world.store.freezes().await.unwrap().is_empty());
    assert!(browser.get(done.location()).await.text.contains("Reopened: channel sms."));
    // Frozen again meanwhile: the copy of the old reopening does not open it.
    let key = browser.get("/freeze").await.field("action_key");
    browser.post("/freeze", &freeze_form(&csrf, &key)).await;
    assert_eq!(
        browser.post("/freeze", &reopen).await.location(),
        "/freeze?done=repeated&scope=channel:sms"
    );
    assert_eq!(world.store.freezes().await.unwrap().len(), 1);
    // What the address says is never believed.
    let page = browser.get("/freeze?done=reopened&scope=channel:sms").await;
    assert!(!page.text.contains("Reopened"));
    assert!(!browser.get("/freeze?done=frozen&scope=%3Cb%3E").await.text.contains("&lt;b>"));
}

#[tokio::test]
async fn a_freeze_that_cannot_be_is_refused_with_what_was_typed() {
    let world = World::new().await;
    let mut browser = world.signed_in(Role::Admin).await;
    let csrf = browser.csrf().await;
    let past = world.clock.now().plus(-60_000_000).to_string();
    for (field, value, problem) in [
        ("reason", "  ", "Say why"),
        ("reason", "call +1 555 010 0001", "looks like an email address or phone number"),
        ("reason", "ask user@example.com", "looks like an email address or phone number"),
        ("reason", &"x".repeat(501), "500 characters"),
        ("reason", "a\u{7}b", "control characters"),
        ("scope", "", "Choose what to freeze"),
        ("act", "", "Choose what to freeze"),
        ("act", "thaw", "Choose what to freeze"),
        ("scope", "provider:nobody", "Choose what to freeze"),
        ("scope", "all", "Type the word all"),
        ("review_at", "tomorrow", "Write it as"),
        ("review_at", past.get(..16).unwrap(), "has passed"),
        ("review_at", "2035-01-01T00:00", "within a year"),
    ] {
        let mut form = freeze_form(&csrf, "key-0123456789abcdef");
        for (name, typed) in &mut form {
            if *name == field {
                *typed = value;
            }
        }
        let page = browser.post("/freeze", &form).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{field}: {value}");
        assert!(page.text.contains(problem), "{field}: {value}: {}", page.text);
        if field != "reason" {
            assert!(page.text.contains("INC-2291: carrier is down"), "{field}: {value}");
        }
    }
    assert!(world.store.freezes().await.unwrap().is_empty());
    let mut form = freeze_form(&csrf, "key-0123456789abcdef");
    for (name, typed) in &mut form {
        match *name {
            "scope" => *typed = "all",
            "confirm" => *typed = "all",
            "review_at" => *typed = "2026-09-22T03:00",
            _ => {}
        }
    }
    assert_eq!(browser.post("/freeze", &form).await.location(), "/freeze?done=frozen&scope=all");
    let freezes = world.store.freezes().await.unwrap();
    assert_eq!(freezes[0].review_at, Stamp::parse("2026-09-22T03:00:00Z").ok());
}

#[tokio::test]
async fn when_the_database_stumbles_the_freeze_form_comes_back_and_can_be_sent_again() {
    let world = World::new().await;
    let mut browser = world.signed_in(Role::Oncall).await;
    let page = browser.get("/freeze").await;
    let (csrf, key) = (page.field("csrf"), page.field("action_key"));
    let file = format!("sqlite://{}", world.folder.join("test.db").display());
    let pool = sqlx::SqlitePool::connect(&file).await.unwrap();
    let stumble =
        "CREATE TRIGGER stumble BEFORE INSERT ON freezes BEGIN SELECT RAISE(ABORT, 'no'); END";
    sqlx::query(stumble).execute(&pool).await.unwrap();
    let page = browser.post("/freeze", &freeze_form(&csrf, &key)).await;
    assert_eq!(page.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(page.text.contains("error id ") && page.text.contains("INC-2291"), "{}", page.text);
    assert!(page.text.contains("Nothing is frozen"));
    sqlx::query("DROP TRIGGER stumble").execute(&pool).await.unwrap();
    let again = page.field("action_key");
    assert_ne!(key, again, "the first key is spent");
    let done = browser.post("/freeze", &freeze_form(&csrf, &again)).await;
    assert_eq!(done.location(), "/freeze?done=frozen&scope=channel:sms");
    pool.close().await;
}

#[tokio::test]
async fn rows_of_one_instant_are_all_on_some_page_and_filters_stay() {
    let world = World::new().await;
    let events: Vec<(u32, &str)> = (1..=120).map(|n| (n, "seller_1042")).collect();
    world.admit_all(&events).await;
    let mut browser = world.signed_in(Role::Support).await;
    for start in ["/events?channel=sms&q=state:accepted", "/sellers/seller_1042"] {
        let mut path = start.to_owned();
        let mut seen = Vec::new();
        for _ in 0..5 {
            let page = browser.get(&path).await;
            assert_eq!(page.status, StatusCode::OK);
            for part in page.text.split("href=\"/events/").skip(1) {
                let id = part.split('"').next().unwrap().to_owned();
                if !seen.contains(&id) {
                    seen.push(id);
                }
            }
            let older = page.text.split("href=\"").map(|part| part.split('"').next().unwrap());
            let Some(older) = older.into_iter().find(|href| href.contains("cursor=")) else {
                break;
            };
            path = older.replace("&amp;", "&");
            if start.starts_with("/events") {
                assert!(
                    path.contains("channel=sms") && path.contains("q=state:accepted"),
                    "{path}"
                );
            }
        }
        assert_eq!(seen.len(), 120, "{start}");
    }
    let damaged = browser.get("/events?cursor=xyz").await;
    assert!(damaged.text.contains("The link to a further page is damaged"));
}

#[tokio::test]
async fn the_search_box_turns_ordinary_queries_into_addresses_and_nothing_else() {
    let world = World::new().await;
    world.admit_all(&[(1, "seller_1042"), (2, "seller_1043")]).await;
    let mut browser = world.signed_in(Role::Support).await;
    let csrf = browser.csrf().await;
    let done = browser
        .post(
            "/events",
            &[("csrf", &csrf), ("q", "ev-0001 seller:seller_1042"), ("state", "accepted")],
        )
        .await;
    assert_eq!(
        (done.status, done.location()),
        (StatusCode::SEE_OTHER, "/events?q=ev-0001%20seller:seller_1042&state=accepted")
    );
    let page = browser.get(done.location()).await;
    assert!(page.text.contains("ev-0001") && !page.text.contains("ev-0002"));
    let page = browser.get("/events?q=stat:x&state=sending").await;
    assert!(
        page.text.contains("no qualifier stat:") && page.text.contains("has no value “sending”")
    );
    let before = world.log().await.len();
    for text in ["user.canary@example.com", "+1 555 010 0001", "seller:15550100001"] {
        let page = browser.post("/events", &[("csrf", &csrf), ("q", text)]).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{text}");
        assert!(page.location().is_empty());
        assert!(page.text.contains("looks like an email address or phone number"), "{text}");
        assert!(!page.text.contains(text) && !page.text.contains("ev-0001"), "{text}");
        let query =
            url::form_urlencoded::Serializer::new(String::new()).append_pair("q", text).finish();
        let page = browser.get(&format!("/events?{query}")).await;
        assert!(page.text.contains("looks like an email address or phone number"), "{text}");
        assert!(!page.text.contains(text) && !page.text.contains("ev-0001"), "{text}");
    }
    assert_eq!(browser.get("/sellers/15550100001").await.status, StatusCode::NOT_FOUND);
    assert_eq!(world.log().await.len(), before, "nothing of it is logged");
    let dump = world.dump();
    for needle in ["user.canary", "15550100001"] {
        assert!(!dump.windows(needle.len()).any(|window| window == needle.as_bytes()), "{needle}");
    }
}

#[tokio::test]
async fn what_operators_look_at_is_a_fact_once_and_a_refresh_is_none() {
    let world = World::new().await;
    let id = world.admit(1, "seller_1042").await;
    let mut browser = world.signed_in(Role::Support).await;
    assert_eq!(browser.get("/events/ev-0001").await.status, StatusCode::OK);
    browser.get("/sellers/seller_1042").await;
    browser.get("/events?q=ev-0001&state=accepted").await;
    let log = world.log().await;
    let latest: Vec<String> =
        log.iter().take(3).map(|(_, detail)| detail.replace(": ", ":")).collect();
    assert!(
        latest[0].contains("\"what\":\"search\"") && latest[0].contains("\"prefix\":\"ev-0001\""),
        "{latest:?}"
    );
    assert!(
        latest[1].contains("\"what\":\"view_seller\"") && latest[1].contains("seller_1042"),
        "{latest:?}"
    );
    assert!(latest[2].contains("\"what\":\"view_event\"") && latest[2].contains(&id), "{latest:?}");
    assert!(log[0].0.starts_with("operator:"));
    let mut refreshing = browser.clone();
    refreshing.headers.insert("x-sendonce-fragment", "live".parse().unwrap());
    for _ in 0..3 {
        assert_eq!(refreshing.get("/events/ev-0001").await.status, StatusCode::OK);
    }
    assert_eq!(world.logged("view_event").await, 1);
    // Calling a first look a refresh leaves a trace all the same.
    let mut sly = world.signed_in(Role::Support).await;
    sly.headers.insert("x-sendonce-fragment", "live".parse().unwrap());
    sly.get("/events/ev-0001").await;
    assert_eq!(world.logged("view_event").await, 2);
    browser.get("/events/ev-0001").await;
    assert_eq!(world.logged("view_event").await, 3);
}

#[tokio::test]
async fn the_stream_hints_and_ends_with_the_session() {
    let world = World::new().await;
    let mut browser = world.signed_in(Role::Support).await;
    assert_eq!(world.browser().get("/live?topic=events").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(browser.get("/live?topic=secrets").await.status, StatusCode::NOT_FOUND);
    assert_eq!(browser.get("/live").await.status, StatusCode::NOT_FOUND);

    let response = browser.send(Method::GET, "/live?topic=events", None).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["cache-control"], "no-store");
    let mut body = response.into_body();
    assert!(next(&mut body).await.unwrap().starts_with(": open"));
    world.wakeups.changed();
    world.wakeups.changed();
    assert_eq!(next(&mut body).await.unwrap(), "data: {\"topic\":\"events\",\"version\":2}\n\n");
    // Right after a hint the next one waits, and one stands for many.
    for _ in 0..5 {
        world.wakeups.changed();
    }
    assert!(tokio::time::timeout(Duration::from_millis(50), body.frame()).await.is_err());
    world.clock.advance(Duration::from_millis(500));
    assert!(next(&mut body).await.unwrap().contains("\"version\":7"));
    world.pass(15);
    let beat = loop {
        // What the poll found may come first.
        let frame = next(&mut body).await.unwrap();
        if frame.starts_with(':') {
            break frame;
        }
        world.clock.advance(Duration::from_millis(500));
    };
    assert!(beat.starts_with(": beat"), "{beat}");
    world.store.disable_user("support@example.com").await.unwrap();
    world.pass(15);
    let ended = loop {
        match next(&mut body).await {
            None => break true,
            Some(frame) if frame.starts_with("data:") => world.pass(1),
            Some(frame) => panic!("{frame}"),
        }
    };
    assert!(ended);
}

#[tokio::test]
async fn what_another_process_wrote_is_hinted_and_shutdown_ends_every_stream() {
    let world = World::new().await;
    let mut browser = world.signed_in(Role::Compliance).await;
    let mut body = browser.send(Method::GET, "/live?topic=overview", None).await.into_body();
    assert!(next(&mut body).await.unwrap().starts_with(": open"));
    // Written past this process's wake-ups; the poll may still be reading its first count.
    let mut hint = None;
    for n in 1..=100 {
        world.admit(n, "seller_1").await;
        world.pass(2);
        if let Ok(frame) = tokio::time::timeout(Duration::from_millis(50), next(&mut body)).await
            && frame.as_deref().is_some_and(|frame| frame.starts_with("data:"))
        {
            hint = frame;
            break;
        }
    }
    assert!(hint.unwrap().contains("overview"));
    world.shutdown.cancel();
    while next(&mut body).await.is_some() {}
}

async fn next(body: &mut Body) -> Option<String> {
    let frame = tokio::time::timeout(Duration::from_secs(10), body.frame())
        .await
        .expect("the stream says something");
    frame.map(|frame| String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap())
}

#[tokio::test]
async fn streams_have_a_bound_and_give_their_place_back() {
    let world = World::new().await;
    let mut browser = world.signed_in(Role::Support).await;
    let mut open = Vec::new();
    for _ in 0..STREAMS_MAX {
        let response = browser.send(Method::GET, "/live?topic=events", None).await;
        assert_eq!(response.status(), StatusCode::OK);
        open.push(response);
    }
    let full = browser.get("/live?topic=events").await;
    assert_eq!(full.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(!full.header("retry-after").is_empty());
    open.pop();
    let response = browser.send(Method::GET, "/live?topic=events", None).await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn every_page_keeps_to_its_security_policy() {
    let world = World::new().await;
    let id = world.admit(1, "seller_1042").await;
    let mut admin = world.signed_in(Role::Admin).await;
    let mut out = world.browser();
    let csrf = admin.csrf().await;
    let mut pages = vec![
        ("/login".to_owned(), out.get("/login").await),
        ("403".to_owned(), out.post("/login", &[("csrf", "x")]).await),
        ("404".to_owned(), out.get("/nowhere").await),
        ("422".to_owned(), admin.post("/freeze", &[("csrf", &csrf)]).await),
    ];
    for path in [
        "/",
        "/events",
        &format!("/events/{id}"),
        "/sellers/seller_1042",
        "/unknown",
        "/freeze",
        "/providers",
        "/workers",
        "/admin/users",
        "/admin/clients",
        "/nowhere",
    ] {
        pages.push((path.to_owned(), admin.get(path).await));
    }
    let mut nonces = Vec::new();
    for (name, page) in &pages {
        let policy = page.header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self' 'nonce-",
            "'wasm-unsafe-eval'",
            "style-src 'self'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(part), "{name}: {policy}");
        }
        assert!(!policy.contains("unsafe-inline") && !policy.contains("'unsafe-eval'"), "{name}");
        let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap();
        assert!(!nonces.contains(&nonce), "{name}: a nonce is used once");
        nonces.push(nonce);
        for script in page.text.split("<script").skip(1) {
            let tag = script.split('>').next().unwrap();
            let is_ours = tag.contains("src=\"/") && !tag.contains("src=\"//");
            assert!(
                is_ours || tag.contains(&format!("nonce=\"{nonce}\"")),
                "{name}: <script{tag}>"
            );
        }
        assert!(!page.text.contains(" style=\""), "{name}: a style attribute");
        assert!(!page.text.contains(" onclick="), "{name}");
        assert_eq!(page.header("cache-control"), "no-store", "{name}");
        assert_eq!(page.header("referrer-policy"), "no-referrer", "{name}");
        assert_eq!(page.header("x-content-type-options"), "nosniff", "{name}");
        assert!(!page.header("permissions-policy").is_empty(), "{name}");
        assert!(page.header("strict-transport-security").is_empty(), "{name}: not over plain HTTP");
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8", "{name}");
        assert!(page.text.to_ascii_lowercase().starts_with("<!doctype html>"), "{name}");
    }
    let live = &pages.iter().find(|(name, _)| name == "/events").unwrap().1.text;
    assert!(
        live.contains("<leptos-island data-component=\"") && live.contains("sendonce_bg.wasm"),
        "islands wake up"
    );
    let redirect = out.get("/events").await;
    assert!(!redirect.header("content-security-policy").is_empty());
}

#[tokio::test]
async fn files_are_served_compressed_checked_for_changes_and_from_their_folder_alone() {
    let world = World::new().await;
    let mut browser = world.browser();
    for (path, kind) in [
        ("/pkg/sendonce.css", "text/css"),
        ("/pkg/sendonce_bg.wasm", "application/wasm"),
        ("/ui.js", "text/javascript"),
        ("/favicon.svg", "image/svg+xml"),
        ("/robots.txt", "text/plain"),
    ] {
        let page = browser.get(path).await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        assert!(
            page.header("content-type").starts_with(kind),
            "{path}: {}",
            page.header("content-type")
        );
        assert_eq!(page.header("cache-control"), "no-cache", "{path}");
        assert!(!page.header("last-modified").is_empty(), "{path}");
        assert!(!page.header("content-security-policy").contains("nonce"), "{path}");
        assert_eq!(page.header("x-content-type-options"), "nosniff");
    }
    let seen = browser.get("/pkg/sendonce.css").await;
    let mut again = browser.clone();
    again.headers.insert("if-modified-since", seen.header("last-modified").parse().unwrap());
    assert_eq!(again.get("/pkg/sendonce.css").await.status, StatusCode::NOT_MODIFIED);
    browser.headers.insert("accept-encoding", "gzip, br".parse().unwrap());
    let small = browser.get("/pkg/sendonce.css").await;
    assert_eq!((small.header("content-encoding"), &*small.text), ("br", "pretend brotli"));
    assert!(small.header("content-type").starts_with("text/css"));
    for path in [
        "/favicon.ico",
        "/pkg/none.js",
        "/pkg/../secret.txt",
        "/pkg/..%2f..%2fsecret.txt",
        "/pkg/%2e%2e/%2e%2e/secret.txt",
    ] {
        let page = browser.get(path).await;
        assert_eq!(page.status, StatusCode::NOT_FOUND, "{path}");
        assert!(!page.text.contains("secret"), "{path}");
    }
}

#[tokio::test]
async fn a_database_that_is_gone_is_said_with_an_id() {
    let world = World::new().await;
    let mut browser = world.signed_in(Role::Support).await;
    world.store.close().await;
    let page = browser.get("/").await;
    assert!(page.status.is_server_error(), "{}", page.status);
    assert!(page.text.contains("Error id") || page.text.contains("error id"), "{}", page.text);
    assert!(!page.text.contains("sqlite") && !page.text.contains("pool"), "{}", page.text);
    assert!(browser.session().is_some(), "nobody is signed out for it");
}

#[tokio::test]
async fn a_breaker_is_closed_once_with_a_reason_by_those_who_may() {
    let more = "[policy.breaker]\nmessages_max = 500\n";
    let world = World::configured("http://127.0.0.1:3000", more).await;
    let pool =
        sqlx::SqlitePool::connect(&format!("sqlite://{}", world.folder.join("test.db").display()))
            .await
            .unwrap();
    sqlx::query(
        "INSERT INTO country_breakers (country, state, cause, since, counted_from, probes, actor)
         VALUES ('LV', 'open', 'count', 1790000000000000, 0, 0, 'system')",
    )
    .execute(&pool)
    .await
    .unwrap();
    let mut reader = world.signed_in(Role::Support).await;
    let page = reader.get("/policy").await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.text.contains("Breaker of LV") && !page.text.contains("Close breaker"));
    assert!(page.text.contains("500 messages"), "{}", page.text);
    let mut browser = world.signed_in(Role::Oncall).await;
    let page = browser.get("/policy").await;
    let (csrf, key) = (page.field("csrf"), page.field("action_key"));
    let form = |reason: &'static str| {
        vec![
            ("csrf", csrf.as_str()),
            ("action_key", key.as_str()),
            ("country", "LV"),
            ("reason", reason),
        ]
    };
    for bad in ["", "ask user@example.com"] {
        let page = browser.post("/policy", &form(bad)).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{bad}");
    }
    let done = browser.post("/policy", &form("INC-7: a campaign of our own")).await;
    assert_eq!(
        (done.status, done.location()),
        (StatusCode::SEE_OTHER, "/policy?done=closed&country=LV")
    );
    let again = browser.post("/policy", &form("INC-7: a campaign of our own")).await;
    assert_eq!(again.location(), "/policy?done=repeated&country=LV");
    let page = browser.get(done.location()).await;
    assert!(page.text.contains("Closed: the breaker of LV."), "{}", page.text);
    assert!(page.text.contains("No breaker is open"));
    let (state, actor, reason): (String, String, String) =
        sqlx::query_as("SELECT state, actor, reason FROM country_breakers WHERE country = 'LV'")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert_eq!((state.as_str(), reason.as_str()), ("closed", "INC-7: a campaign of our own"));
    assert!(actor.starts_with("operator:"));
    let facts: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM facts WHERE kind = 'breaker'")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(facts, 1);
    pool.close().await;
}
