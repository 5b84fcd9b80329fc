//! One running process: everything built from the configuration, started, and drained in order.

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use app::model::{Channel, WorkerView};
use tokio_util::sync::CancellationToken;

use crate::admission::AdmissionService;
use crate::cli::serve::Part;
use crate::clock::{Clock, FollowingClock, duration};
use crate::config::{Config, Kind};
use crate::dispatch::{self, Dispatcher};
use crate::domain::Facing;
use crate::duty::{self, Duty, Pass};
use crate::entropy::Entropy;
use crate::evidence::keys::LogKeys;
use crate::evidence::outside::Outside;
use crate::evidence::sealer::Sealer;
use crate::http::health::Health;
use crate::keys::Keys;
use crate::outbox::Wakeups;
use crate::providers::resolver::{self, Resolver};
use crate::providers::transport::Transport;
use crate::providers::{self, Capability, Registry};
use crate::reconcile::{self, Reconciler};
use crate::slo::guardrails::{CLOCK_OFFSET, LOOP_AGE};
use crate::slo::tell::{self, Teller};
use crate::slo::watch::Watch;
use crate::store::{self, Activation, Env, Error, Purged, Rules, Store};
use crate::supervisor::{Supervisor, Ticker, pause_after_error};

/// Between two signs of life.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// A process that was silent for so long is not alive.
pub const ALIVE_WITHIN: i64 = 15_000_000;
/// How often work is looked for where other processes cannot tell of it (behind a pooler).
const UNHEARD_POLL: Duration = Duration::from_secs(1);
/// Between two readings of the database's clock.
const CLOCK_EVERY: Duration = Duration::from_secs(10);
/// Who holds the duties of an embedded database: its one server, also after it was killed and started again.
const EMBEDDED: &str = "embedded";
/// Between two looks for facts to seal: well below the second within which they are.
const SEAL_EVERY: Duration = Duration::from_millis(300);
/// How long the retention waits for the fact of a purge to be sealed before it looks again.
const PURGE_PAUSE: Duration = Duration::from_millis(500);
/// Between two sweeps of sessions that are over.
const SESSIONS_SWEEP: Duration = Duration::from_secs(600);
/// Counts of limits that are removed in one sweep.
const LIMITS_SWEEP_MAX: usize = 10_000;

/// Between two foldings of the counts.
const FOLD_EVERY: Duration = Duration::from_secs(5);
/// Between two looks at what is to be told.
const TELL_EVERY: Duration = Duration::from_secs(2);
/// Between two writings of what this process knows of itself.
const GAUGES_EVERY: Duration = Duration::from_secs(15);

/// The seams: time, randomness, the network.
#[derive(Debug, Clone)]
pub struct Seams {
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub transport: Arc<dyn Transport>,
    /// The lease semantics that this process understands; it writes the newest of them.
    pub semantics: RangeInclusive<u32>,
}

/// The settings that decide about sends. Without a registry the capabilities are those that the
/// configuration states.
#[must_use]
pub fn rules(config: &Config, registry: Option<&Registry>) -> Rules {
    let facing = match registry {
        Some(registry) => registry
            .iter()
            .map(|(name, provider)| (name.to_owned(), provider.capability().facing()))
            .collect(),
        None => stated(config),
    };
    let mut rules = Rules::new(config.policy(), facing, config.dispatch.release_per_second);
    rules.routes.clone_from(&config.routes);
    rules.allowances = config
        .providers
        .iter()
        .filter_map(|(name, provider)| Some((name.clone(), provider.reads_per_minute?)))
        .collect();
    rules.sending = config.sending.clone();
    rules.slo_window = config.slo.window;
    rules
}

/// What the providers of a configuration can do, the built-in one among them.
fn stated(config: &Config) -> HashMap<String, Facing> {
    let built_in = (providers::demo::NAME.to_owned(), None);
    let configured = config.providers.iter().map(|(name, own)| (name.clone(), Some(own)));
    std::iter::once(built_in)
        .chain(configured)
        .filter_map(|(name, own)| {
            let kind = Kind::find(own.map_or(providers::demo::NAME, |own| &own.kind))?;
            Some((name, Capability::of(kind, own).facing()))
        })
        .collect()
}

/// Opens the store with these rules. An embedded database is migrated by itself, a shared one never.
///
/// # Errors
/// When it cannot be opened, has another schema, or was made with other keys.
pub async fn open_store(
    config: &Config,
    seams: &Seams,
    rules: Rules,
) -> anyhow::Result<(Env, Arc<dyn Store>)> {
    let data_dir = &config.server.data_dir;
    make_private(data_dir).with_context(|| {
        format!(
            "cannot make the folder {}; check server.data_dir and its rights",
            data_dir.display()
        )
    })?;
    let (keys, is_new) = Keys::load_or_create(&config.key_file(), &*seams.entropy)?;
    let env = Env {
        clock: Arc::clone(&seams.clock),
        entropy: Arc::clone(&seams.entropy),
        keys: Arc::new(keys),
        rules: Arc::new(rules),
    };
    let store = store::open(config.database_url.expose(), env.clone()).await?;
    if store.describe().0 == "sqlite" {
        store.migrate().await?;
    } else {
        store.check_schema().await?;
    }
    check_keys(&*store, config, is_new).await?;
    Ok((env, store))
}

/// Refuses other keys than the database's. A key file that was made just now for a database which has keys
/// already is taken away again: it would only hide that the right one is missing.
///
/// # Errors
/// When the keys are others, or the database does not answer.
pub async fn check_keys(store: &dyn Store, config: &Config, is_new: bool) -> Result<(), Error> {
    let checked = store.check_keys().await;
    if is_new && matches!(checked, Err(Error::OtherKeys { .. })) {
        let _ = std::fs::remove_file(config.key_file());
    }
    checked
}

/// The data folder holds keys: it is made for its owner alone.
fn make_private(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(folder)
}

/// Everything that one process consists of.
#[derive(Debug)]
pub struct Node {
    pub config: Arc<Config>,
    pub env: Env,
    pub store: Arc<dyn Store>,
    pub registry: Arc<Registry>,
    pub resolver: Arc<dyn Resolver>,
    pub wakeups: Wakeups,
    pub health: Arc<Health>,
    pub admission: Arc<AdmissionService>,
    /// For what is told to people; the providers have theirs.
    pub transport: Arc<dyn Transport>,
    /// Follows the database's clock where that is another machine's.
    pub clock: FollowingClock,
    /// Who holds the duties of this process; see [`crate::duty`].
    pub holder: String,
    is_held: Arc<AtomicBool>,
    // Held while this process serves an embedded database: a second one is refused.
    _lock: Option<std::fs::File>,
    /// Cancelled first: no new claims, no new reads, streams close.
    pub stop: CancellationToken,
    parts: BTreeSet<Part>,
    worker: WorkerView,
    /// Seals facts, under its duty.
    pub sealer: Arc<Sealer>,
    supervisor: Supervisor,
    dispatcher: Option<Dispatcher>,
    reconciler: Option<Reconciler>,
}

impl Node {
    /// Builds everything; nothing runs yet but the simulator behind `demo`.
    ///
    /// # Errors
    /// With the next step in the message.
    pub async fn build(
        config: Config,
        own: &Seams,
        parts: BTreeSet<Part>,
        force: bool,
    ) -> anyhow::Result<Self> {
        make_private(&config.server.data_dir).context("cannot make server.data_dir")?;
        let is_shared = store::is_shared(config.database_url.expose());
        let lock = store::lock(config.database_url.expose())?;
        let clock = FollowingClock::new(Arc::clone(&own.clock));
        let seams = &Seams { clock: Arc::new(clock.clone()), ..own.clone() };
        let registry = providers::build(
            &config,
            Arc::clone(&seams.clock),
            Arc::clone(&seams.entropy),
            Arc::clone(&seams.transport),
        )
        .await?;
        let resolver = resolver::build(
            &config.resolver,
            Arc::clone(&seams.clock),
            Arc::clone(&seams.transport),
        )?;
        let mut rules = rules(&config, Some(&registry));
        rules.semantics = *seams.semantics.end();
        rules.understands = seams.semantics.clone();
        let (env, store) = open_store(&config, seams, rules).await?;
        follow(&clock, &*store).await?;
        // Nobody else can serve an embedded database, so its configuration is simply the one in force.
        let activation = store
            .activate(&config.digest(), &config.shared(), ALIVE_WITHIN, force || !is_shared)
            .await?;
        if let Activation::Differs(keys) = activation {
            anyhow::bail!(
                "other processes run with another configuration; these keys differ: {}. Give all nodes the same values, or start this one with --activate-config",
                keys.join(", ")
            );
        }
        keep_settings(&config, &registry, &*store).await?;
        for (channel, providers) in &config.routes {
            store.adopt_route(*channel, providers).await?;
        }
        let sealer = Arc::new(sealer(&config, &env, &store)?);
        let registry = Arc::new(registry);
        let wakeups = Wakeups::default();
        let stop = CancellationToken::new();
        let health = Arc::new(Health::new(&loops(&parts)));
        let now = env.clock.now();
        let worker = WorkerView {
            id: env.entropy.uuid(now),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            semantics: env.rules.semantics,
            roles: parts.iter().map(|part| part.as_str()).collect::<Vec<_>>().join(","),
            started_at: now,
            seen_at: now,
        };
        let admission =
            Arc::new(AdmissionService::new(Arc::clone(&store), &env, &config, wakeups.clone()));
        Ok(Self {
            supervisor: Supervisor::new(Arc::clone(&seams.clock), stop.clone()),
            config: Arc::new(config),
            env,
            store,
            registry,
            resolver,
            wakeups,
            health,
            admission,
            transport: Arc::clone(&seams.transport),
            clock,
            holder: if is_shared { worker.id.clone() } else { EMBEDDED.to_owned() },
            is_held: Arc::default(),
            _lock: lock,
            stop,
            parts,
            worker,
            sealer,
            dispatcher: None,
            reconciler: None,
        })
    }

    /// Whether this process runs this part.
    #[must_use]
    pub fn runs(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    /// Starts the loops of this process's parts.
    pub fn start(&mut self) {
        let (health, clock) = (Arc::clone(&self.health), Arc::clone(&self.env.clock));
        let ticker = Ticker::new(move |name| health.tick(name, clock.now()));
        if self.runs(Part::Dispatch) {
            let dispatcher = Dispatcher::new(
                dispatch::Parts {
                    store: Arc::clone(&self.store),
                    env: self.env.clone(),
                    registry: Arc::clone(&self.registry),
                    resolver: Arc::clone(&self.resolver),
                    wakeups: self.wakeups.clone(),
                    ticker: ticker.clone(),
                    owner: self.worker.id.clone(),
                    workers: self.config.dispatch.workers,
                    resolver_timeout: self.config.resolver.timeout,
                    sender: self.config.dispatch.sender.clone(),
                    templates: Arc::new(self.config.templates.clone()),
                    is_held: Arc::clone(&self.is_held),
                },
                self.stop.clone(),
            );
            for (channel, name) in
                [(Channel::Sms, "dispatch_sms"), (Channel::Email, "dispatch_email")]
            {
                let dispatcher = dispatcher.clone();
                self.supervisor.keep(name, move || {
                    let dispatcher = dispatcher.clone();
                    async move { dispatcher.run(channel).await }
                });
            }
            self.dispatcher = Some(dispatcher);
        }
        if self.runs(Part::Reconcile) {
            let reconciler = Reconciler::new(
                reconcile::Parts {
                    store: Arc::clone(&self.store),
                    env: self.env.clone(),
                    registry: Arc::clone(&self.registry),
                    resolver: Arc::clone(&self.resolver),
                    wakeups: self.wakeups.clone(),
                    ticker: ticker.clone(),
                    sweep: self
                        .duty(duty::sweep(self.env.rules.semantics))
                        .with_lease(duty::SWEEP_LEASE),
                    workers: self.config.reconcile.workers,
                    read_timeout: self.config.reconcile.read_timeout,
                    resolver_timeout: self.config.resolver.timeout,
                },
                self.stop.clone(),
            );
            let reads = reconciler.clone();
            self.supervisor.keep("reads", move || {
                let reads = reads.clone();
                async move { reads.run_reads().await }
            });
            let sweep = reconciler.clone();
            self.supervisor.keep("sweep", move || {
                let sweep = sweep.clone();
                async move { sweep.run_sweep().await }
            });
            self.reconciler = Some(reconciler);
            self.keep_retention(ticker.clone());
        }
        self.keep_house(ticker.clone());
        self.keep_in_touch();
        let sealer = Arc::clone(&self.sealer);
        let duty = self.seal_duty();
        self.supervisor.keep_duty(duty, SEAL_EVERY, ticker.clone(), move |hold| {
            let sealer = Arc::clone(&sealer);
            async move { sealer.pass(hold).await }
        });
        self.keep_gauges();
        self.keep_watch(&ticker);
        let store = Arc::clone(&self.store);
        self.supervisor.keep_duty(self.duty(duty::SESSIONS), SESSIONS_SWEEP, ticker, move |hold| {
            let store = Arc::clone(&store);
            async move {
                store.purge_sessions(hold).await?;
                store.purge_limits(LIMITS_SWEEP_MAX).await.map(|_| Pass::Done)
            }
        });
    }

    /// Purges what is over. Named ranges wait for the sealer, so a pass that named some comes again soon.
    fn keep_retention(&self, ticker: Ticker) {
        let retention = self.config.retention;
        if retention.events.is_none() && retention.operators.is_none() {
            return;
        }
        let every = duration(retention.every);
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.env.clock));
        self.supervisor.keep_duty(self.duty(duty::RETENTION), every, ticker, move |hold| {
            let (store, clock) = (Arc::clone(&store), Arc::clone(&clock));
            async move {
                match store.purge(hold, retention.cutoffs(clock.now())).await? {
                    Purged::Nothing => Ok(Pass::Done),
                    Purged::Named => {
                        clock.sleep(PURGE_PAUSE).await;
                        Ok(Pass::More)
                    }
                    Purged::Some(events) => {
                        metrics::counter!("sendonce_purged_events_total")
                            .increment(u64::try_from(events).unwrap_or(0));
                        Ok(Pass::More)
                    }
                }
            }
        });
    }

    /// The counts, the alerts, and telling people.
    fn keep_watch(&self, ticker: &Ticker) {
        let store = Arc::clone(&self.store);
        let tallies = self.duty(duty::TALLIES);
        self.supervisor.keep_duty(tallies, FOLD_EVERY, ticker.clone(), move |hold| {
            let store = Arc::clone(&store);
            async move {
                let more = store.fold_tallies(hold).await?;
                Ok(if more { Pass::More } else { Pass::Done })
            }
        });
        let watch = Watch {
            store: Arc::clone(&self.store),
            env: self.env.clone(),
            config: Arc::clone(&self.config),
            targets: tell::targets(&self.config),
        };
        let every = duration(self.config.alerts.every);
        self.supervisor.keep_duty(self.duty(duty::ALERTS), every, ticker.clone(), move |hold| {
            let watch = watch.clone();
            async move { watch.look(hold).await.map(|()| Pass::Done) }
        });
        let teller = Arc::new(Teller::new(
            Arc::clone(&self.store),
            Arc::clone(&self.env.clock),
            Arc::clone(&self.transport),
            Arc::clone(&self.config),
        ));
        // Longer than a pass, whose tellings all wait at once.
        let duty = self.duty(duty::ALERT_DELIVERIES).with_lease(3 * duty::LEASE);
        self.supervisor.keep_duty(duty, TELL_EVERY, ticker.clone(), move |_| {
            let teller = Arc::clone(&teller);
            async move { teller.pass().await.map(|more| if more { Pass::More } else { Pass::Done }) }
        });
    }

    /// This process's side of a duty.
    fn duty(&self, name: &'static str) -> Duty {
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.env.clock));
        Duty::new(name, store, clock, self.holder.clone())
    }

    fn seal_duty(&self) -> Duty {
        self.duty(duty::SEAL).with_lease(duty::SWEEP_LEASE)
    }

    /// Seals everything that this process leaves behind, unless another one sees to it.
    async fn seal_all(&self) {
        let done = match self.seal_duty().hold().await {
            Ok(Some(hold)) => self.sealer.drain(hold).await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            tracing::warn!(%error, "facts stay unsealed until the next process starts");
        }
    }

    /// What other processes told, and the database's clock.
    fn keep_in_touch(&self) {
        let (store, wakeups, stop) =
            (Arc::clone(&self.store), self.wakeups.clone(), self.stop.clone());
        let clock = Arc::clone(&self.env.clock);
        self.supervisor.keep("hints", move || {
            let (store, wakeups, stop) = (Arc::clone(&store), wakeups.clone(), stop.clone());
            let clock = Arc::clone(&clock);
            async move {
                while !store.hears_hints() && !stop.is_cancelled() {
                    tokio::select! {
                        () = clock.sleep(UNHEARD_POLL) => wakeups.all(),
                        () = stop.cancelled() => return,
                    }
                }
                let mut failures = 0;
                while !stop.is_cancelled() {
                    let hint = tokio::select! {
                        hint = store.next_hint() => hint,
                        () = stop.cancelled() => return,
                    };
                    match hint {
                        Ok(hint) => {
                            failures = 0;
                            match hint.parse() {
                                Ok(channel) => wakeups.dispatch(channel),
                                Err(_) => wakeups.all(),
                            }
                        }
                        Err(error) => {
                            failures += 1;
                            tracing::warn!(%error, "hints of other processes are not heard; polling goes on");
                            pause_after_error(failures, &*clock, &stop).await;
                        }
                    }
                }
            }
        });
        let (store, stop, clock) = (Arc::clone(&self.store), self.stop.clone(), self.clock.clone());
        self.supervisor.keep("clock", move || {
            let (store, stop, clock) = (Arc::clone(&store), stop.clone(), clock.clone());
            async move {
                while !stop.is_cancelled() {
                    tokio::select! {
                        () = clock.sleep(CLOCK_EVERY) => {}
                        () = stop.cancelled() => return,
                    }
                    if let Err(error) = follow(&clock, &*store).await {
                        tracing::warn!(%error, "the database's clock could not be read");
                    }
                }
            }
        });
    }

    /// The heartbeat.
    fn keep_house(&self, ticker: Ticker) {
        let (store, clock, stop) =
            (Arc::clone(&self.store), Arc::clone(&self.env.clock), self.stop.clone());
        let (worker, digest) = (self.worker.clone(), self.config.digest());
        let (held, health) = (Arc::clone(&self.is_held), Arc::clone(&self.health));
        self.supervisor.keep("heartbeat", move || {
            let (store, clock, stop) = (Arc::clone(&store), Arc::clone(&clock), stop.clone());
            let (mut worker, digest, ticker) = (worker.clone(), digest.clone(), ticker.clone());
            let (held, health) = (Arc::clone(&held), Arc::clone(&health));
            async move {
                while !stop.is_cancelled() {
                    worker.seen_at = clock.now();
                    match store.heartbeat(&worker, &digest).await {
                        Ok(active) => {
                            ticker.tick("heartbeat");
                            let holds = active.is_some_and(|active| active != digest);
                            health.hold(holds);
                            if holds != held.swap(holds, Ordering::Relaxed) {
                                tracing::warn!(
                                    is_held = holds,
                                    "another configuration is in force: this process claims nothing until the nodes agree"
                                );
                            }
                        }
                        Err(error) => tracing::warn!(%error, "the heartbeat could not be written"),
                    }
                    tokio::select! {
                        () = clock.sleep(HEARTBEAT) => {}
                        () = stop.cancelled() => {}
                    }
                }
            }
        });
    }

    /// What this process alone knows, for the process that looks after the alerts.
    fn keep_gauges(&self) {
        let (store, clock, stop) = (Arc::clone(&self.store), self.clock.clone(), self.stop.clone());
        let (health, id) = (Arc::clone(&self.health), self.worker.id.clone());
        self.supervisor.keep("gauges", move || {
            let (store, clock, stop) = (Arc::clone(&store), clock.clone(), stop.clone());
            let (health, id) = (Arc::clone(&health), id.clone());
            async move {
                while !stop.is_cancelled() {
                    let now = clock.now();
                    let oldest = health.ticks().filter_map(|(_, at)| Some(now.since(at?))).max();
                    let values = [(LOOP_AGE, oldest.unwrap_or(0)), (CLOCK_OFFSET, clock.offset())];
                    if let Err(error) = store.keep_node_gauges(&id, &values).await {
                        tracing::warn!(%error, "what this process knows of itself was not kept");
                    }
                    tokio::select! {
                        () = clock.sleep(GAUGES_EVERY) => {}
                        () = stop.cancelled() => {}
                    }
                }
            }
        });
    }

    /// Ends in order: no new claims, running calls get their grace, then the rest becomes unknown, and the
    /// store is closed last.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.supervisor.drained().await;
        if let Some(dispatcher) = &self.dispatcher {
            dispatcher.drain(duration(self.config.server.grace)).await;
        }
        if let Some(reconciler) = &self.reconciler {
            reconciler.drain().await;
        }
        self.seal_all().await;
        if let Err(error) = self.store.leave_duties(&self.holder).await {
            tracing::warn!(%error, "this process could not give its duties back");
        }
        if let Err(error) = self.store.leave(&self.worker.id).await {
            tracing::warn!(%error, "this process could not sign off");
        }
        self.store.close().await;
    }
}

/// Measures the database's clock against ours, where it has one of its own.
///
/// # Errors
/// When the database does not answer.
pub async fn follow(clock: &FollowingClock, store: &dyn Store) -> Result<(), Error> {
    let asked = clock.boot();
    if let Some(theirs) = store.time().await? {
        clock.measure(asked, clock.boot(), theirs);
    }
    Ok(())
}

/// The loops of these parts, by the names under which they tick.
fn loops(parts: &BTreeSet<Part>) -> Vec<&'static str> {
    let mut names = vec!["heartbeat"];
    if parts.contains(&Part::Dispatch) {
        names.extend(["dispatch_sms", "dispatch_email"]);
    }
    if parts.contains(&Part::Reconcile) {
        names.extend(["reads", "sweep"]);
    }
    names
}

/// The sealer of a log that is called after the address of this installation.
///
/// # Errors
/// When the signing key cannot be had.
pub fn sealer(config: &Config, env: &Env, store: &Arc<dyn Store>) -> anyhow::Result<Sealer> {
    let host = url::Url::parse(&config.server.public_url)
        .ok()
        .and_then(|url| url.host_str().map(str::to_owned))
        .unwrap_or_else(|| "localhost".to_owned());
    // Two logs never have the same name, even on the same machine.
    let name = format!("{host}/sendonce/{}", env.entropy.hex(4));
    let keys = LogKeys::load(config, &env.keys)?;
    let outside = Outside::new(config.evidence.directory.clone());
    Ok(Sealer::new(Arc::clone(store), keys, outside, name))
}

/// Settings whose change an auditor wants to see: each change is a fact with before and after.
async fn keep_settings(
    config: &Config,
    registry: &Registry,
    store: &dyn Store,
) -> Result<(), Error> {
    let text = |micros: i64| format!("{}us", micros);
    let policy = config.policy();
    let mut settings = vec![
        ("dispatch.margin".to_owned(), text(policy.margin)),
        ("dispatch.lease".to_owned(), text(policy.lease)),
        ("dispatch.call_timeout".to_owned(), text(policy.call_timeout)),
        ("dispatch.attempts_max".to_owned(), policy.attempts_max.to_string()),
        ("dispatch.replays_max".to_owned(), policy.replays_max.to_string()),
    ];
    for (channel, providers) in &config.routes {
        settings.push((format!("routes.{channel}"), providers.join(":")));
    }
    for (name, provider) in registry.iter() {
        let settle = provider.capability().settle.map_or_else(|| "never".to_owned(), text);
        settings.push((format!("providers.{name}.settle"), settle));
    }
    for (name, value) in settings {
        store.keep_setting(&name, &value).await?;
    }
    Ok(())
}
