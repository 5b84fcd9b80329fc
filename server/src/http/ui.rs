//! The pages: for each request the guard, then the data, then the page.
//!
//! [`ui_router`] is built from the guard's table. Every request passes [`dispatch`], which looks at its line
//! before anything is read; handlers see only visitors who were let in and forms whose token was right.
//! Nothing here logs a query string, a path with somebody's id in it, or a form.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use app::model::{
    Capped, Detail, EventsPage, FactKind, Frame, ProviderView, Refusal, Role, SellerPage, Stamp,
    State,
};
use app::pages;
use axum::Router;
use axum::extract::{ConnectInfo, RawPathParams, Request};
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, on};
use futures::FutureExt as _;
use leptos::prelude::{AnyView, IntoAny as _, LeptosOptions};
use tokio_util::sync::CancellationToken;
use tower_sessions::Session;
use zeroize::Zeroize as _;

use super::body::{self, BodyError};
use super::guard::{self, Act, Gate, ROUTES, Route, Verb};
use super::problem::Problem;
use super::session::{self, Anonymous, Sessions, Visitor};
use super::site::Site;
use super::sse::{self, Streams};
use super::{
    account, admin, cursor, desk, evidence, login, lookup, oidc, oplog, policy_desk, render,
    search, setup, watch,
};
use crate::clock::Clock;
use crate::config::Config;
use crate::entropy::Entropy;
use crate::evidence::sealer::Sealer;
use crate::keys::Keys;
use crate::outbox::Wakeups;
use crate::password::Passwords;
use crate::providers::transport::Transport;
use crate::providers::{Reading, Registry};
use crate::store::{self, SCHEMA_VERSION, Search, Store};
use crate::text::is_unfit_for_query;

/// A form of ours is a few fields; the longest is a reason of 500 characters.
const FORM_BYTES_MAX: usize = 16 * 1024;

/// What is given back of a refused form.
const TYPED_CHARS_MAX: usize = 1_000;
const TYPED_FIELDS_MAX: usize = 32;

/// Unknown outcomes that the board shows at once, oldest first.
const UNKNOWN_ROWS_MAX: usize = 200;

/// Views that are remembered as recorded. When it is full it starts empty: then a page that refreshes itself
/// is recorded once more, and never once less.
const VIEWED_MAX: usize = 20_000;

/// Set by a page that reads itself again.
const FRAGMENT_HEADER: HeaderName = HeaderName::from_static("x-sendonce-fragment");

/// What the pages are made of.
#[derive(Debug)]
pub struct UiParts {
    pub store: Arc<dyn Store>,
    pub config: Arc<Config>,
    pub keys: Arc<Keys>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub wakeups: Wakeups,
    pub providers: Arc<Registry>,
    /// Signs the manifests of evidence packs.
    pub sealer: Arc<Sealer>,
    /// To the identity provider.
    pub transport: Arc<dyn Transport>,
    /// Ends the open streams.
    pub shutdown: CancellationToken,
}

/// The parts, and what they share between requests.
#[derive(Debug, Clone)]
pub struct UiState(Arc<Ui>);

impl UiState {
    /// Finds the site and prepares the rest. Warns where the site is missing.
    #[must_use]
    pub fn new(parts: UiParts) -> Self {
        let streams = Streams::new(
            Arc::clone(&parts.store),
            Arc::clone(&parts.clock),
            parts.wakeups.clone(),
            parts.shutdown.clone(),
        );
        let oidc = oidc::Provider::new(Arc::clone(&parts.transport), Arc::clone(&parts.clock));
        let passwords = Passwords::new(Arc::clone(&parts.entropy));
        let site = Site::find(parts.config.server.site_dir.as_deref());
        Self(Arc::new(Ui { parts, passwords, oidc, site, streams, viewed: Mutex::default() }))
    }
}

impl Deref for UiState {
    type Target = Ui;
    fn deref(&self) -> &Ui {
        &self.0
    }
}

/// See [`UiState`].
#[derive(Debug)]
pub struct Ui {
    pub(super) parts: UiParts,
    pub(super) passwords: Passwords,
    pub(super) oidc: oidc::Provider,
    site: Site,
    streams: Streams,
    // Views of this process that are in the log already, by session and subject. A std mutex: held for one
    // look, never over an await.
    viewed: Mutex<HashSet<String>>,
}

/// The routes of the pages, with their fallback: whatever else is asked for is not found. The fallback answers
/// programs (`/v1/…`, `/webhooks/…`) with a problem document, so it may be the only one of a merged router.
pub fn ui_router(state: UiState) -> Router {
    let config = Arc::clone(&state.parts.config);
    let sessions = Sessions::new(
        Arc::clone(&state.parts.store),
        Arc::clone(&state.parts.clock),
        Arc::clone(&state.parts.entropy),
        &config,
    );
    let mut router = Router::new();
    for route in ROUTES {
        let filter = match route.verb {
            Verb::Get => MethodFilter::GET,
            Verb::Post => MethodFilter::POST,
        };
        let state = state.clone();
        let handler = move |params: RawPathParams, request: Request| {
            let state = state.clone();
            async move { dispatch(&state, route, &params, request).await }
        };
        router = router.route(route.path, on(filter, handler));
    }
    let rules = render::HeaderRules { is_https: config.has_secure_cookies() };
    router
        .fallback(move |request: Request| {
            let state = state.clone();
            async move { nowhere(&state, request).await }
        })
        .layer(sessions.layer(&config))
        .layer(axum::middleware::from_fn_with_state(rules, render::headers))
}

/// Why a page cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error(transparent)]
    Session(#[from] session::Error),
    #[error("there is no such page")]
    NotFound,
    #[error("{0}")]
    Fault(&'static str),
}

/// A form as it was sent. Wiped when it is dropped: a password may be in it.
#[derive(Debug, Default)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value)
    }

    /// Every value of a field that may be there several times.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(field, _)| field == name).map(|(_, value)| value.as_str()).collect()
    }

    /// What was typed into these fields, cut so that an answer stays small.
    pub(super) fn typed(&self, names: &[&str]) -> Vec<(String, String)> {
        self.0
            .iter()
            .filter(|(field, _)| names.contains(&field.as_str()))
            .map(|(field, value)| (field.clone(), value.chars().take(TYPED_CHARS_MAX).collect()))
            .take(TYPED_FIELDS_MAX)
            .collect()
    }
}

impl Drop for Form {
    fn drop(&mut self) {
        for (_, value) in &mut self.0 {
            value.zeroize();
        }
    }
}

/// One request, as far as handlers need it.
pub(super) struct Asked {
    pub(super) route: &'static Route,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) session: Session,
    pub(super) now: Stamp,
    /// The other end's address.
    pub(super) remote: Option<std::net::IpAddr>,
    /// The one parameter in the path.
    id: String,
}

impl Asked {
    /// The fields of the query string.
    pub(super) fn query(&self) -> Vec<(String, String)> {
        let query = self.uri.query().unwrap_or_default();
        url::form_urlencoded::parse(query.as_bytes()).into_owned().collect()
    }

    fn is_fragment(&self) -> bool {
        self.headers.contains_key(&FRAGMENT_HEADER)
    }
}

/// Everything goes through here: where the form comes from, who asks, whether they may, whether the form is of
/// their session, and only then what they asked for.
async fn dispatch(
    state: &UiState,
    route: &'static Route,
    params: &RawPathParams,
    mut request: Request,
) -> Response {
    if route.act == Act::File {
        return state.site.serve(request).await;
    }
    let public_url = &state.parts.config.server.public_url;
    if route.verb == Verb::Post && !guard::is_same_origin(request.headers(), public_url) {
        return state.refuse(None, &Refusal::StaleForm);
    }
    let Some(session) = request.extensions_mut().remove::<Session>() else {
        return state.broken(route, None, &Trouble::Fault("there is no session layer"));
    };
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    let asked = Asked {
        route,
        now: state.parts.clock.now(),
        remote: login::remote(peer, request.headers(), &state.parts.config.server.trusted_proxies),
        id: params.iter().next().map_or_else(String::new, |(_, value)| value.to_owned()),
        uri: request.uri().clone(),
        headers: request.headers().clone(),
        session,
    };
    let form = match route.verb {
        Verb::Get => Form::default(),
        Verb::Post => match body::read(request, FORM_BYTES_MAX, state.parts.clock.as_ref()).await {
            Ok(bytes) => Form(url::form_urlencoded::parse(&bytes).into_owned().collect()),
            Err(error) => return unread(error),
        },
    };
    // A handler that panics costs its own page, with an id like every other fault.
    match AssertUnwindSafe(answer(state, &asked, &form)).catch_unwind().await {
        Ok(Ok(response)) => response,
        Ok(Err((frame, trouble))) => state.broken(route, frame, &trouble),
        Err(_) => state.broken(route, None, &Trouble::Fault("a handler panicked")),
    }
}

fn unread(error: BodyError) -> Response {
    match error {
        BodyError::TooLarge => {
            render::plain(StatusCode::PAYLOAD_TOO_LARGE, "The form is too large.\n")
        }
        BodyError::TooSlow => {
            render::plain(StatusCode::REQUEST_TIMEOUT, "The form did not come in time.\n")
        }
        BodyError::Broken => render::plain(StatusCode::BAD_REQUEST, "The form broke off.\n"),
    }
}

type Answer = Result<Response, (Option<Frame>, Trouble)>;

fn bare<E: Into<Trouble>>(error: E) -> (Option<Frame>, Trouble) {
    (None, error.into())
}

async fn answer(state: &UiState, asked: &Asked, form: &Form) -> Answer {
    let ui = &state.parts;
    let is_activity = !asked.is_fragment() && asked.route.act != Act::Live;
    let visitor =
        session::visitor(&asked.session, ui.store.as_ref(), &ui.keys, asked.now, is_activity)
            .await
            .map_err(bare)?;
    match asked.route.act {
        Act::LoginPage | Act::SignIn => {
            return login::answer(state, asked, visitor, form).await.map_err(bare);
        }
        Act::OidcBegin => return oidc::begin(state, asked).await.map_err(bare),
        Act::OidcEnd => return oidc::end(state, asked).await.map_err(bare),
        Act::Setup | Act::SetUp => return setup::answer(state, asked, form).await.map_err(bare),
        _ => {}
    }
    let gate =
        guard::admit(asked.route.needs, visitor.as_ref().map(|visitor| visitor.operator.role));
    let Some(visitor) = visitor.filter(|_| gate != Gate::SignIn) else {
        return Ok(match asked.route.act {
            // An event stream cannot follow to a page.
            Act::Live => render::plain(StatusCode::UNAUTHORIZED, "Sign in first.\n"),
            _ => render::see_other(&login_for(asked)),
        });
    };
    if asked.route.act == Act::Live {
        if visitor.owes(&ui.config).is_some() {
            return Ok(render::plain(StatusCode::FORBIDDEN, "Your account comes first.\n"));
        }
        return Ok(live(state, asked, visitor));
    }
    let may_wait = !matches!(asked.route.act, Act::Account | Act::ChangeAccount | Act::SignOut);
    if may_wait && visitor.owes(&ui.config).is_some() {
        return Ok(render::see_other("/account"));
    }
    let frame = state.frame(&visitor, asked).await.map_err(bare)?;
    if let Gate::Forbidden(permission) = gate {
        return Ok(state.refuse(Some(frame), &Refusal::Forbidden { permission }));
    }
    let is_stale =
        asked.route.verb == Verb::Post && !guard::is_fresh(form.get("csrf"), &visitor.csrf);
    let visit = Visit { state, asked, visitor, frame };
    let done = if is_stale { visit.stale(form).await } else { visit.act(form).await };
    done.map_err(|trouble| (Some(visit.frame), trouble))
}

/// Where somebody who is not signed in is sent: to sign in, and back. What they asked for is not repeated where
/// it may be somebody's address.
fn login_for(asked: &Asked) -> String {
    let path = asked.uri.path();
    let is_get = asked.route.verb == Verb::Get;
    let query = asked
        .uri
        .query()
        .filter(|_| is_get)
        .filter(|_| asked.query().iter().all(|(_, value)| !is_unfit_for_query(value)));
    let next = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    match guard::local_path(&next) {
        "/" => "/login".to_owned(),
        next => format!("/login?next={}", app::model::percent_encoded(next)),
    }
}

fn live(state: &UiState, asked: &Asked, visitor: Visitor) -> Response {
    let fields = asked.query();
    let topic = fields.iter().find(|(name, _)| name == "topic").map_or("", |(_, value)| value);
    match sse::permission_of(topic) {
        None => render::plain(StatusCode::NOT_FOUND, "There is no such topic.\n"),
        Some(may) if !visitor.operator.role.may(may) => {
            render::plain(StatusCode::FORBIDDEN, "Your role may not follow this.\n")
        }
        Some(may) => state.streams.open(visitor, topic, may),
    }
}

/// What no route is for.
async fn nowhere(state: &UiState, request: Request) -> Response {
    let path = request.uri().path();
    if path.starts_with("/v1/") || path.starts_with("/webhooks/") {
        return Problem::NotFound.into_response();
    }
    let (mut parts, _) = request.into_parts();
    // The page is the same for everybody; whoever is signed in sees it with the menu around it.
    let mut frame = None;
    if let Some(session) = parts.extensions.remove::<Session>() {
        static NOWHERE: Route =
            Route { verb: Verb::Get, path: "", needs: guard::Needs::Nothing, act: Act::Overview };
        let asked = Asked {
            route: &NOWHERE,
            uri: parts.uri,
            headers: parts.headers,
            session,
            now: state.parts.clock.now(),
            remote: None,
            id: String::new(),
        };
        let ui = &state.parts;
        let visitor =
            session::visitor(&asked.session, ui.store.as_ref(), &ui.keys, asked.now, true).await;
        if let Ok(Some(visitor)) = visitor {
            frame = state.frame(&visitor, &asked).await.ok();
        }
    }
    state.refuse(frame, &Refusal::NotFound)
}

impl UiState {
    /// What Leptos needs to name the bundle.
    pub(super) fn options(&self) -> LeptosOptions {
        let root = self.site.folder().map_or(PathBuf::from("target/site"), PathBuf::from);
        LeptosOptions::builder()
            .output_name("sendonce")
            .site_root(root.display().to_string())
            .site_pkg_dir("pkg")
            .build()
    }

    pub(super) fn page(
        &self,
        status: StatusCode,
        view: impl FnOnce(LeptosOptions) -> AnyView,
    ) -> Response {
        let options = self.options();
        render::page(self.parts.entropy.as_ref(), status, || view(options))
    }

    fn refuse(&self, frame: Option<Frame>, refusal: &Refusal) -> Response {
        render::refusal(self.parts.entropy.as_ref(), frame, refusal, self.options())
    }

    /// The page for what went wrong, with the id that is in the log.
    fn broken(&self, route: &Route, frame: Option<Frame>, trouble: &Trouble) -> Response {
        let is_transient = match trouble {
            Trouble::NotFound => return self.refuse(frame, &Refusal::NotFound),
            Trouble::Store(error) | Trouble::Session(session::Error::Store(error)) => {
                error.is_transient()
            }
            // The session layer passes the store's errors on as text.
            Trouble::Session(session::Error::Session(_)) => true,
            Trouble::Fault(_) => false,
        };
        let error_id = self.report(route, trouble);
        // Without the frame: reading it may have been what failed.
        let refusal = if is_transient {
            Refusal::Unavailable { error_id: Some(error_id) }
        } else {
            Refusal::Broken { error_id }
        };
        self.refuse(None, &refusal)
    }

    /// Logs what went wrong and gives the id to show.
    pub(super) fn report(&self, route: &Route, trouble: &dyn std::error::Error) -> String {
        let error_id = self.parts.entropy.hex(6);
        tracing::error!(
            error.id = error_id,
            http.route = route.path,
            error = causes(trouble),
            "a page could not be made"
        );
        error_id
    }

    async fn frame(&self, visitor: &Visitor, asked: &Asked) -> Result<Frame, store::Error> {
        let store = &self.parts.store;
        // The figures of the banner are counted only where there is a banner.
        let frozen = match store.freezes().await?.is_empty() {
            true => Vec::new(),
            false => store.freeze_page(&[]).await?.active,
        };
        let unknown =
            Search { states: vec![State::DispatchUnknown], limit: 1, ..Search::default() };
        Ok(Frame {
            operator: visitor.operator.clone(),
            csrf: visitor.csrf.clone(),
            environment: self.parts.config.server.environment.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema: SCHEMA_VERSION.to_string(),
            now: asked.now,
            frozen,
            unknown_count: store.search(&unknown).await?.total,
            path: asked.uri.path().to_owned(),
        })
    }

    /// The names that can be frozen and filtered by.
    pub(super) fn provider_names(&self) -> Vec<String> {
        self.parts.providers.iter().map(|(name, _)| name.to_owned()).collect()
    }
}

/// An error with what caused it, for the log.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

/// A request by somebody who was let in.
pub(super) struct Visit<'a> {
    pub(super) state: &'a UiState,
    pub(super) asked: &'a Asked,
    pub(super) visitor: Visitor,
    pub(super) frame: Frame,
}

impl Visit<'_> {
    async fn act(&self, form: &Form) -> Result<Response, Trouble> {
        match self.asked.route.act {
            Act::Overview => self.overview().await,
            Act::Events => self.events().await,
            Act::Search => self.search(form).await,
            Act::Event => self.event().await,
            Act::Seller => self.seller().await,
            Act::Unknown => self.unknown().await,
            Act::FreezeDesk => desk::show(self).await,
            Act::Freeze => desk::act(self, form).await,
            Act::Slo => watch::slo(self).await,
            Act::Capacity => watch::capacity(self).await,
            Act::Runbook => Ok(watch::runbook(self)),
            Act::Alerts => watch::alerts(self).await,
            Act::Acknowledge => watch::acknowledge(self, form).await,
            Act::Providers => self.providers().await,
            Act::Policy => policy_desk::show(self).await,
            Act::CloseBreaker => policy_desk::close(self, form).await,
            Act::Workers => self.workers().await,
            Act::Users => admin::users(self).await,
            Act::ChangeUsers => admin::change_users(self, form).await,
            Act::Clients => admin::clients(self).await,
            Act::ChangeClients => admin::change_clients(self, form).await,
            Act::Configuration => admin::configuration(self).await,
            Act::Lookup => lookup::show(self, None).await,
            Act::LookUp => lookup::act(self, form).await,
            Act::Evidence => evidence::show(self).await,
            Act::ExportEvidence => evidence::export(self, form).await,
            Act::Log => oplog::show(self).await,
            Act::ExportLog => oplog::export(self, form).await,
            Act::Account => account::show(self).await,
            Act::ChangeAccount => account::act(self, form).await,
            Act::SignOut => login::sign_out(self).await,
            Act::LoginPage
            | Act::SignIn
            | Act::OidcBegin
            | Act::OidcEnd
            | Act::Setup
            | Act::SetUp
            | Act::Live
            | Act::File => Err(Trouble::NotFound),
        }
    }

    /// A form of another session, or of an older one of this browser. Nothing is done, and what was typed is
    /// shown again in a form that can be sent.
    async fn stale(&self, form: &Form) -> Result<Response, Trouble> {
        match self.asked.route.act {
            Act::Freeze => desk::stale(self, form).await,
            Act::ChangeUsers => admin::stale_users(self, form).await,
            Act::ChangeClients => admin::stale_clients(self, form).await,
            Act::ChangeAccount => account::stale(self).await,
            Act::LookUp => lookup::show(self, Some(lookup::STALE)).await,
            Act::CloseBreaker => policy_desk::stale(self, form).await,
            Act::Acknowledge => watch::stale(self, form).await,
            Act::ExportEvidence => evidence::stale(self, form).await,
            _ => Ok(self.state.refuse(Some(self.frame.clone()), &Refusal::StaleForm)),
        }
    }

    pub(super) fn store(&self) -> &dyn Store {
        self.state.parts.store.as_ref()
    }

    pub(super) fn page(
        &self,
        status: StatusCode,
        view: impl FnOnce(Frame, LeptosOptions) -> AnyView,
    ) -> Response {
        let frame = self.frame.clone();
        self.state.page(status, |options| view(frame, options))
    }

    /// Writes that this person looked at something. A view that cannot be recorded is not given.
    ///
    /// A page that reads itself again is the same view: it is recorded once in a session. Whether it was is
    /// remembered here and not believed from the request, so that nobody looks without a trace by saying so.
    pub(super) async fn record_view(&self, what: &str, detail: Detail) -> Result<(), store::Error> {
        let key = format!("{}|{what}|{:?}", self.visitor.session_hash, detail.0);
        let is_known = {
            let viewed = self.state.viewed.lock().unwrap_or_else(PoisonError::into_inner);
            viewed.contains(&key)
        };
        if is_known && self.asked.is_fragment() {
            return Ok(());
        }
        let fact = detail.code("what", what);
        self.store().note(FactKind::Operator, &self.visitor.actor(), fact).await?;
        let mut viewed = self.state.viewed.lock().unwrap_or_else(PoisonError::into_inner);
        if viewed.len() >= VIEWED_MAX {
            viewed.clear();
        }
        viewed.insert(key);
        Ok(())
    }

    async fn overview(&self) -> Result<Response, Trouble> {
        let data = self.store().overview().await?;
        self.record_view("view_overview", Detail::default()).await?;
        Ok(self.page(StatusCode::OK, |frame, options| {
            pages::overview(frame, data, options).into_any()
        }))
    }

    async fn events(&self) -> Result<Response, Trouble> {
        let asked = search::read(&self.asked.query());
        if asked.has_personal_data {
            return Ok(self.not_searched(asked, StatusCode::OK));
        }
        let listed = self.store().search(&asked.search).await?;
        if asked.filter.is_empty() {
            self.record_view("view_events", Detail::default()).await?;
        } else {
            self.record_view("search", search_detail(&asked.search)).await?;
        }
        let data = EventsPage {
            is_continued: asked.is_continued(),
            filter: asked.filter,
            problems: asked.problems,
            has_personal_data: false,
            rows: listed.rows,
            next_cursor: listed.next.as_ref().map(cursor::encode),
            total: listed.total,
            providers: self.state.provider_names(),
        };
        Ok(self
            .page(StatusCode::OK, |frame, options| pages::events(frame, data, options).into_any()))
    }

    /// The search box: an ordinary query becomes an address that can be kept; anything else goes nowhere.
    async fn search(&self, form: &Form) -> Result<Response, Trouble> {
        let asked = search::read(&form.0);
        if asked.has_personal_data {
            return Ok(self.not_searched(asked, StatusCode::UNPROCESSABLE_ENTITY));
        }
        Ok(render::see_other(&asked.filter.href(None)))
    }

    /// The answer to what looks like an address or number: nothing was asked of the database.
    fn not_searched(&self, asked: search::Asked, status: StatusCode) -> Response {
        let data = EventsPage {
            filter: asked.filter,
            problems: asked.problems,
            has_personal_data: true,
            rows: Vec::new(),
            next_cursor: None,
            is_continued: false,
            total: Capped::default(),
            providers: self.state.provider_names(),
        };
        self.page(status, |frame, options| pages::events(frame, data, options).into_any())
    }

    async fn event(&self) -> Result<Response, Trouble> {
        let Some(data) = self.store().event_page(&self.asked.id).await? else {
            return Err(Trouble::NotFound);
        };
        // By our own id: what was asked for may be anything.
        self.record_view("view_event", Detail::default().code("record", &data.record.id)).await?;
        Ok(self
            .page(StatusCode::OK, |frame, options| pages::event(frame, data, options).into_any()))
    }

    async fn seller(&self) -> Result<Response, Trouble> {
        let seller_id = self.asked.id.as_str();
        let asked = search::read(&[("seller".to_owned(), seller_id.to_owned())]);
        // Admission lets no such seller in, and it may be somebody's number.
        if asked.has_personal_data || asked.search.seller.as_deref() != Some(seller_id) {
            return Err(Trouble::NotFound);
        }
        let fields = self.asked.query();
        let cursor = fields
            .iter()
            .find(|(name, _)| name == "cursor")
            .and_then(|(_, text)| cursor::decode(text));
        let data: SellerPage =
            self.store().seller_page(seller_id, cursor, search::ROWS_MAX).await?;
        self.record_view("view_seller", Detail::default().code("seller", seller_id)).await?;
        Ok(self
            .page(StatusCode::OK, |frame, options| pages::seller(frame, data, options).into_any()))
    }

    async fn unknown(&self) -> Result<Response, Trouble> {
        let data = self.store().unknown_page(UNKNOWN_ROWS_MAX).await?;
        self.record_view("view_unknown", Detail::default()).await?;
        Ok(self
            .page(StatusCode::OK, |frame, options| pages::unknown(frame, data, options).into_any()))
    }

    async fn providers(&self) -> Result<Response, Trouble> {
        let ui = &self.state.parts;
        let pauses = ui.store.pauses().await?;
        let ms = |micros: i64| micros / 1_000;
        let data = ui
            .providers
            .iter()
            .map(|(name, provider)| {
                let capability = provider.capability();
                let pause = pauses.iter().find(|(paused, _, _)| paused == name);
                let on_route =
                    |(_, names): &(_, &Vec<String>)| names.iter().any(|routed| routed == name);
                ProviderView {
                    name: name.to_owned(),
                    kind: capability.kind.to_owned(),
                    channels: ui
                        .config
                        .routes
                        .iter()
                        .filter(on_route)
                        .map(|(channel, _)| *channel)
                        .collect(),
                    can_be_read: capability.reading != Reading::None,
                    settle_ms: capability.settle.map(ms),
                    replay_window_ms: capability.replay_window.map(ms),
                    has_callbacks: capability.has_callbacks(),
                    paused_until: pause.map(|(_, until, _)| *until),
                    pause_code: pause.map(|(_, _, code)| code.clone()),
                }
            })
            .collect();
        Ok(self.page(StatusCode::OK, |frame, options| {
            pages::providers(frame, data, options).into_any()
        }))
    }

    async fn workers(&self) -> Result<Response, Trouble> {
        let data = self.store().workers().await?;
        Ok(self
            .page(StatusCode::OK, |frame, options| pages::workers(frame, data, options).into_any()))
    }

    pub(super) fn role(&self) -> Role {
        self.visitor.operator.role
    }
}

/// What of a search is kept: ids and codes, which were found to be nobody's address or number.
fn search_detail(search: &Search) -> Detail {
    let mut detail = Detail::default();
    let states: Vec<&str> = search.states.iter().map(|state| state.as_str()).collect();
    let codes = [
        ("prefix", search.prefix.as_deref()),
        ("seller", search.seller.as_deref()),
        ("provider", search.provider.as_deref()),
        ("reason", search.reason.map(app::model::Reason::as_str)),
        ("channel", search.channel.map(app::model::Channel::as_str)),
    ];
    for (name, value) in codes {
        if let Some(value) = value {
            detail = detail.code(name, value);
        }
    }
    if !states.is_empty() {
        detail = detail.code("state", &states.join("."));
    }
    if let Some(after) = search.after {
        detail = detail.number("after", after.micros());
    }
    if let Some(before) = search.before {
        detail = detail.number("before", before.micros());
    }
    detail
}

/// For the sign-in page, which has no session yet.
pub(super) fn anonymous(state: &UiState, asked: &Asked) -> Anonymous {
    Anonymous::of(&asked.headers, &state.parts.config, state.parts.entropy.as_ref())
}
