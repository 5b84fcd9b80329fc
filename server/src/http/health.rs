//! `/healthz`, `/readyz` and `/metrics`. Public and without a log line when all is well; on a listener of
//! their own where one is configured.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use app::model::{Alert, Channel, SloChannel, Stamp};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};

use super::api::answer;
use super::metrics;
use super::problem::Problem;
use crate::clock::{Clock, FollowingClock};
use crate::config::Config;
use crate::slo::objective;
use crate::store::{Error, Gauges, Store, Tally};

/// A loop that has not gone round for so long hangs.
const TICK_MAX: i64 = 30_000_000;

/// How far our clock may be from the database's, in microseconds: well below the smallest margin that makes
/// sense.
const CLOCK_UNCERTAINTY_MAX: i64 = 250_000;

/// How long a probe waits for the database.
const PATIENCE: Duration = Duration::from_secs(2);

/// Figures this young are shown again, so that scraping cannot load the database.
const FIGURES_MAX_AGE: i64 = 1_000_000;

/// What the ledger keeps by minutes and more is read again after this.
const KEPT_MAX_AGE: i64 = 15_000_000;

/// What the ledger keeps: totals, the budget, the alerts.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    pub totals: Vec<Tally>,
    pub channels: Vec<SloChannel>,
    pub alerts: Vec<Alert>,
    pub providers: Vec<String>,
}

/// When each loop of this process last went round.
#[derive(Debug)]
pub struct Health {
    loops: Vec<(&'static str, AtomicI64)>,
    is_draining: AtomicBool,
    is_held: AtomicBool,
}

impl Health {
    /// The loops that this process runs; each has to tick before the process is ready.
    #[must_use]
    pub fn new(loops: &[&'static str]) -> Self {
        Self {
            loops: loops.iter().map(|name| (*name, AtomicI64::new(0))).collect(),
            is_draining: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
        }
    }

    /// This loop went round. Other names are ignored.
    pub fn tick(&self, name: &str, now: Stamp) {
        if let Some((_, at)) = self.loops.iter().find(|(known, _)| *known == name) {
            at.fetch_max(now.micros(), Ordering::Relaxed);
        }
    }

    /// The process stops: no new requests, please.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Another configuration is in force, so this process claims nothing.
    pub fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::Relaxed);
    }

    /// Each loop and its last tick.
    pub fn ticks(&self) -> impl Iterator<Item = (&'static str, Option<Stamp>)> {
        self.loops.iter().map(|(name, at)| {
            let at = at.load(Ordering::Relaxed);
            (*name, (at != 0).then(|| Stamp::from_micros(at)))
        })
    }
}

/// What the probes need.
#[derive(Debug, Clone)]
pub struct HealthState {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    health: Arc<Health>,
    metrics: Option<PrometheusHandle>,
    following: Option<FollowingClock>,
    // Held for a moment and never across an await: a plain lock.
    figures: Arc<Mutex<Option<(Stamp, Gauges)>>>,
    // The same.
    watched: Arc<Mutex<Option<(Stamp, Kept)>>>,
    config: Option<Arc<Config>>,
}

impl HealthState {
    /// Without a handle there is no `/metrics`.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        health: Arc<Health>,
        metrics: Option<PrometheusHandle>,
    ) -> Self {
        Self {
            store,
            clock,
            health,
            metrics,
            following: None,
            figures: Arc::default(),
            watched: Arc::default(),
            config: None,
        }
    }

    async fn within<T>(
        &self,
        question: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, &'static str> {
        tokio::select! {
            result = question => result.map_err(|error| word(&error)),
            () = self.clock.sleep(PATIENCE) => Err("timeout"),
        }
    }

    /// Every check: name, whether it holds, and a word about it.
    async fn checks(&self) -> Vec<(String, bool, &'static str)> {
        let now = self.clock.now();
        let database = self.within(self.store.ping()).await;
        let schema = match database {
            Ok(()) => self.within(self.store.check_schema()).await,
            Err(_) => Err("unknown"),
        };
        let mut checks = vec![
            (
                "process".to_owned(),
                !self.is_draining(),
                if self.is_draining() { "stopping" } else { "ok" },
            ),
            ("database".to_owned(), database.is_ok(), database.err().unwrap_or("ok")),
            ("schema".to_owned(), schema.is_ok(), schema.err().unwrap_or("ok")),
        ];
        let is_held = self.health.is_held.load(Ordering::Relaxed);
        let word = if is_held { "another_is_in_force" } else { "ok" };
        checks.push(("configuration".to_owned(), !is_held, word));
        for (name, at) in self.health.ticks() {
            let (holds, what) = match at {
                None => (false, "not_started"),
                Some(at) if now.since(at) > TICK_MAX => (false, "late"),
                Some(_) => (true, "ok"),
            };
            checks.push((format!("loop:{name}"), holds, what));
        }
        if let Some(clock) = &self.following {
            let (holds, what) = match clock.uncertainty() {
                None => (false, "unknown"),
                Some(off) if off > CLOCK_UNCERTAINTY_MAX => (false, "uncertain"),
                Some(_) => (true, "ok"),
            };
            checks.push(("clock".to_owned(), holds, what));
            if database.is_ok() {
                // Named, not refused: serving goes on, and a failover would need `restore-complete`.
                let what = match self.within(self.store.has_unsafe_standby()).await {
                    Ok(true) => "asynchronous_standby_is_unsafe",
                    Ok(false) => "ok",
                    Err(word) => word,
                };
                checks.push(("standby".to_owned(), true, what));
            }
        }
        checks
    }

    /// Also asks whether our clock still follows the database's.
    #[must_use]
    pub fn following(mut self, clock: FollowingClock) -> Self {
        self.following = Some(clock);
        self
    }

    /// Also shows the objective, its budget and the alerts.
    #[must_use]
    pub fn watching(mut self, config: Arc<Config>) -> Self {
        self.config = Some(config);
        self
    }

    /// What the ledger keeps, read at most every few seconds; the last of it while the database is away.
    async fn watched(&self, now: Stamp) -> Option<Kept> {
        let config = self.config.as_ref()?;
        let known = self.watched.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, kept)) = &known
            && (0..KEPT_MAX_AGE).contains(&now.since(*at))
        {
            return Some(kept.clone());
        }
        let read = self.within(async {
            let counted = objective::read(&*self.store, &config.slo, now).await?;
            Ok(Kept {
                totals: self.store.totals().await?,
                channels: Channel::ALL
                    .iter()
                    .map(|channel| objective::channel(&counted, *channel, &config.slo, now))
                    .collect(),
                alerts: self.store.open_alerts().await?,
                providers: config.providers.keys().cloned().collect(),
            })
        });
        match read.await {
            Ok(kept) => {
                *self.watched.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some((now, kept.clone()));
                Some(kept)
            }
            Err(_) => known.map(|(_, kept)| kept),
        }
    }

    fn is_draining(&self) -> bool {
        self.health.is_draining.load(Ordering::Relaxed)
    }

    fn kept(&self) -> Option<(Stamp, Gauges)> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Nothing of the cause: the probe is public, and the log has it.
fn word(error: &Error) -> &'static str {
    match error {
        Error::Busy => "busy",
        Error::Schema { .. } => "other_schema",
        Error::OtherKeys { .. } => "other_keys",
        _ => "unavailable",
    }
}

/// The three probes. Merge it with the API, or serve it alone.
pub fn health_router(state: HealthState) -> Router {
    Router::new()
        .route("/healthz", get(healthz).fallback(method_not_allowed))
        .route("/readyz", get(readyz).fallback(method_not_allowed))
        .route("/metrics", get(scrape).fallback(method_not_allowed))
        .with_state(state)
}

async fn method_not_allowed() -> Problem {
    Problem::MethodNotAllowed
}

fn fresh(mut response: Response) -> Response {
    response
        .headers_mut()
        .insert(CACHE_CONTROL, "no-store".parse().expect("a plain word is a header value"));
    response
}

async fn healthz() -> Response {
    fresh(answer(StatusCode::OK, &json!({ "status": "ok" })))
}

async fn readyz(State(state): State<HealthState>) -> Response {
    let checks = state.checks().await;
    let is_ready = checks.iter().all(|(_, holds, _)| *holds);
    if !is_ready {
        let failing: Vec<String> = checks
            .iter()
            .filter(|(_, holds, _)| !holds)
            .map(|(name, _, what)| format!("{name}={what}"))
            .collect();
        tracing::warn!(checks = %failing.join(" "), "not ready");
    }
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let lines: Vec<Value> = checks
        .into_iter()
        .map(|(name, holds, what)| json!({ "check": name, "ok": holds, "detail": what }))
        .collect();
    let word = if is_ready { "ready" } else { "not_ready" };
    fresh(answer(status, &json!({ "status": word, "checks": lines })))
}

async fn scrape(State(state): State<HealthState>) -> Response {
    let Some(handle) = &state.metrics else { return Problem::NotFound.into_response() };
    let now = state.clock.now();
    let kept = state.kept();
    let is_young =
        kept.as_ref().is_some_and(|(at, _)| (0..FIGURES_MAX_AGE).contains(&now.since(*at)));
    let read = if is_young { Err("kept") } else { state.within(state.store.gauges()).await };
    let (gauges, is_up) = match read {
        Ok(gauges) => {
            *state.figures.lock().unwrap_or_else(PoisonError::into_inner) =
                Some((now, gauges.clone()));
            (gauges, true)
        }
        // From the last known figures, so that ages go on growing while nobody can look.
        Err(_) => (kept.map(|(_, gauges)| gauges).unwrap_or_default(), is_young),
    };
    metrics::fill(&gauges, now, is_up);
    if let Some(kept) = state.watched(now).await {
        metrics::fill_kept(&kept);
    }
    let following = state.following.as_ref();
    metrics::fill_clock(
        following.map_or(0, FollowingClock::offset),
        following.map_or(Some(0), FollowingClock::uncertainty),
    );
    for (name, at) in state.health.ticks() {
        metrics::ticked(name, at.unwrap_or(Stamp::from_micros(0)));
    }
    handle.run_upkeep();
    let mut response = handle.render().into_response();
    response.headers_mut().insert(
        CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8".parse().expect("a plain text is a header value"),
    );
    fresh(response)
}
