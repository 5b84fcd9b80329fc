//! What the binary does for the command line: opens the ledger, migrates, serves.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use app::model::{ClientView, Detail, FactKind, Freeze, Role, Stamp, UserView, WorkerView};
use async_trait::async_trait;
use tokio::net::TcpListener;
use zeroize::Zeroizing;

use crate::admission::{AdmissionAnswer, AdmissionService};
use crate::cli::evidence::Wanted;
use crate::cli::serve::Part;
use crate::cli::{
    Admin, AdminError, CliError, Found, Host, LineAnswer, NewClient, serve, simulator,
};
use crate::clock::{FollowingClock, SystemClock};
use crate::config::{self, Config};
use crate::duty::{self, Duty};
use crate::entropy::SystemEntropy;
use crate::evidence::audit::{AuditReport, audit};
use crate::evidence::pack::{self, Pack, PackError};
use crate::evidence::sealer::Sealer;
use crate::evidence::verdict::Side;
use crate::http::auth::NewSecret;
use crate::node::{self, Node, Seams};
use crate::outbox::Wakeups;
use crate::password::Passwords;
use crate::providers::Secret;
use crate::providers::net::HttpTransport;
use crate::store::{self, AuditVerdict, Env, Error, Restored, Selection, Store};
use crate::trial::{self, Report, Target};

/// The actor of what the command line does.
const ACTOR: &str = "cli";

/// The real machine.
#[derive(Debug, Default)]
pub struct System;

fn seams() -> Seams {
    let clock: Arc<dyn crate::clock::Clock> = Arc::new(SystemClock);
    Seams {
        transport: Arc::new(HttpTransport::new(Arc::clone(&clock))),
        entropy: Arc::new(SystemEntropy),
        clock,
        semantics: store::LEASE_SEMANTICS..=store::LEASE_SEMANTICS,
    }
}

/// What opening the ledger came to, in one line with the next step.
fn opening(error: &anyhow::Error) -> CliError {
    if let Some(error) = error.downcast_ref::<Error>() {
        let message = error.to_string();
        return match error {
            Error::Schema { found, known } if found < known => {
                CliError::usage(&message, "run `sendonce migrate` first")
            }
            Error::Schema { .. } => CliError::usage(
                &message,
                "use the newer program that migrated it, or a backup of the database",
            ),
            Error::OtherKeys { .. } => CliError::usage(
                &message,
                "copy the file sendonce.keys from the data folder of the process that made this database",
            ),
            Error::Served { .. } => {
                CliError::usage(&message, "end it first, or use PostgreSQL to run several")
            }
            Error::Unavailable { .. } => CliError::failed(
                &message,
                "check DATABASE_URL, that the server runs, and that the disk is not full",
            ),
            _ => CliError::failed(&message, "see the log for the cause"),
        };
    }
    CliError::usage(&format!("{error:#}"), "mend this and start again")
}

#[async_trait]
impl Host for System {
    async fn open(&self, config: &Config) -> Result<Box<dyn Admin>, CliError> {
        // What a command writes carries the database's time, as what the servers write.
        let clock = FollowingClock::new(Arc::new(SystemClock));
        let seams = Seams { clock: Arc::new(clock.clone()), ..seams() };
        let (env, store) = node::open_store(config, &seams, node::rules(config, None))
            .await
            .map_err(|error| opening(&error))?;
        node::follow(&clock, &*store).await.map_err(|error| opening(&error.into()))?;
        Ok(Box::new(Ledger { config: config.clone(), env, store }))
    }

    async fn migrate(&self, config: &Config) -> Result<String, CliError> {
        let seams = seams();
        let (keys, is_new) = crate::keys::Keys::load_or_create(&config.key_file(), &*seams.entropy)
            .map_err(|error| CliError::usage(&error.to_string(), "mend this and migrate again"))?;
        let env = Env {
            clock: seams.clock,
            entropy: seams.entropy,
            keys: Arc::new(keys),
            rules: Arc::new(node::rules(config, None)),
        };
        let store = store::open(config.database_url.expose(), env)
            .await
            .map_err(|error| opening(&error.into()))?;
        store.migrate().await.map_err(|error| opening(&error.into()))?;
        node::check_keys(&*store, config, is_new).await.map_err(|error| opening(&error.into()))?;
        let (engine, name) = store.describe();
        store.close().await;
        Ok(format!("{engine} database {name} has schema {}", store::SCHEMA_VERSION))
    }

    async fn serve(&self, config: Config, options: serve::Args) -> Result<(), CliError> {
        crate::telemetry::init_logs(&config.log);
        let seams = seams();
        let mut node = Node::build(config, &seams, options.parts(), options.activate_config)
            .await
            .map_err(|error| opening(&error))?;
        let names: Vec<&str> = node.registry.iter().map(|(name, _)| name).collect();
        let metrics = crate::http::metrics::install(names)
            .map_err(|error| CliError::failed(&error.to_string(), "report this"))?;
        let listener = listen(&node.config.server.listen, "server.listen").await?;
        let health_listener = match &node.config.server.health_listen {
            None => None,
            Some(address) => Some(listen(address, "server.health_listen").await?),
        };
        node.start();
        let node = Arc::new(node);
        let (engine, database) = node.store.describe();
        tracing::info!(
            listen = %node.config.server.listen, database.engine = engine, database.name = %database,
            roles = %options.parts_text(), version = env!("CARGO_PKG_VERSION"), "serving"
        );
        greet(&node).await;
        let router = crate::http::router(&node, metrics.clone(), health_listener.is_none());
        let mut servers = vec![tokio::spawn(crate::http::listen::serve(
            listener,
            router,
            Arc::clone(&node.env.clock),
            node.stop.clone(),
        ))];
        if let Some(listener) = health_listener {
            let router = crate::http::health_only(&node, metrics);
            servers.push(tokio::spawn(crate::http::listen::serve(
                listener,
                router,
                Arc::clone(&node.env.clock),
                node.stop.clone(),
            )));
        }
        tell_manager(&[sd_notify::NotifyState::Ready]);
        let watchdog = keep_watchdog(&node);
        told_to_end().await;
        tell_manager(&[sd_notify::NotifyState::Stopping]);
        tracing::info!("stopping: no new claims; running calls get their grace time");
        node.health.drain();
        node.stop.cancel();
        for server in servers {
            // Requests in flight are answered; a client that never ends is cut off.
            let grace = crate::clock::duration(node.config.server.grace);
            let _ = tokio::select! {
                ended = server => ended.is_ok(),
                () = node.env.clock.sleep(grace) => false,
            };
        }
        node.stop().await;
        if let Some(watchdog) = watchdog {
            watchdog.abort();
        }
        tracing::info!("stopped");
        Ok(())
    }

    async fn doctor(
        &self,
        config: Result<Config, crate::config::ConfigError>,
    ) -> Vec<crate::finding::Finding> {
        crate::doctor::examine(config, &seams()).await
    }

    async fn trial(
        &self,
        name: &str,
        provider: &config::ProviderConfig,
        target: &Target,
    ) -> Result<Report, CliError> {
        trial::run(name, provider, target, &seams()).await.map_err(|error| {
            CliError::failed(&format!("{error:#}"), "mend the provider's configuration")
        })
    }

    async fn rehearse(
        &self,
        name: &str,
        provider: &config::ProviderConfig,
    ) -> Result<crate::rehearsal::Rehearsal, CliError> {
        crate::rehearsal::run(name, provider, &seams()).await.map_err(|error| {
            CliError::failed(&format!("{error:#}"), "mend the provider's configuration")
        })
    }

    async fn keep_trial(&self, config: &Config, trial: &store::Trial) -> Result<(), CliError> {
        let seams = seams();
        let (_, store) = node::open_store(config, &seams, node::rules(config, None))
            .await
            .map_err(|error| opening(&error))?;
        let kept = store.keep_trial(trial).await;
        store.close().await;
        kept.map_err(|error| opening(&error.into()))
    }

    async fn simulator(&self, options: simulator::Args) -> Result<(), CliError> {
        crate::telemetry::init_logs(&config::Log { level: "info".to_owned(), json: false });
        let seams = seams();
        let listener = listen(&options.listen.to_string(), "--listen").await?;
        let smtp = match options.smtp {
            Some(address) => Some(listen(&address.to_string(), "--smtp").await?),
            None => None,
        };
        let simulator = crate::simulator::Simulator::new(
            crate::simulator::Settings::default(),
            None,
            seams.clock,
            seams.entropy,
            seams.transport,
        );
        tracing::info!(listen = %options.listen, "the simulator serves; scripts go to /_control/script");
        let serving = tokio::spawn(crate::simulator::serve(listener, Arc::clone(&simulator)));
        let mail = smtp.zip(options.smtp).map(|(listener, address)| {
            tracing::info!(listen = %address, "the simulator takes mail; its certificate is at /_control/ca.pem");
            tokio::spawn(crate::simulator::serve_smtp(listener, Arc::clone(&simulator)))
        });
        told_to_end().await;
        simulator.closing().cancel();
        let _ = serving.await;
        if let Some(mail) = mail {
            let _ = mail.await;
        }
        Ok(())
    }
}

async fn listen(address: &str, key: &str) -> Result<TcpListener, CliError> {
    TcpListener::bind(address).await.map_err(|error| {
        CliError::usage(
            &format!("{key}: cannot listen on {address}: {}", error.kind()),
            "end the other process or choose another port",
        )
    })
}

/// Tells the service manager, where one has asked to be told (`Type=notify`).
fn tell_manager(state: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(error = %error.kind(), "the service manager could not be told");
    }
}

/// Signs life to the service manager, where it watches, twice in each of its times. It says that this process
/// still runs its tasks: a database that is away is no reason to be killed. Goes on while calls are drained.
fn keep_watchdog(node: &Node) -> Option<tokio::task::JoinHandle<()>> {
    let within = sd_notify::watchdog_enabled()?;
    let clock = Arc::clone(&node.env.clock);
    Some(tokio::spawn(async move {
        loop {
            tell_manager(&[sd_notify::NotifyState::Watchdog]);
            clock.sleep(within / 2).await;
        }
    }))
}

/// A first start has nobody who could sign in: it says how.
async fn greet(node: &Node) {
    if !node.runs(Part::Ui) {
        return;
    }
    let url = &node.config.server.public_url;
    let env = &node.env;
    let now = env.clock.now();
    let offered = crate::http::setup::offer(&*node.store, &*env.entropy, now).await;
    let hint = match offered {
        Ok(Some(path)) => format!(
            ". Nobody can sign in yet: open {url}{path} within a day (it works once), or run `sendonce user add \
             --email you@example.com --role admin`."
        ),
        _ => String::new(),
    };
    // Nobody is left to tell when standard error is gone.
    let _ = writeln!(std::io::stderr(), "sendonce serves at {url}{hint}");
}

async fn told_to_end() {
    let interrupt = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    #[cfg(unix)]
    let terminate = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending::<()>();
    tokio::select! {
        () = interrupt => {}
        () = terminate => {}
    }
}

/// How long a process is watched for a sign of life: longer than it takes between two.
const WATCH: Duration = Duration::from_secs(7);
const WATCH_STEP: Duration = Duration::from_millis(500);

/// The ledger as commands use it.
struct Ledger {
    config: Config,
    env: Env,
    store: Arc<dyn Store>,
}

fn failed(error: Error) -> AdminError {
    match error {
        Error::Conflict { .. } => AdminError::Refused {
            message: "there is one of this name already".to_owned(),
            next_step: "choose another, or list them first".to_owned(),
        },
        error if error.is_transient() => AdminError::Unavailable { message: error.to_string() },
        error => AdminError::Unavailable {
            message: format!("{error}; the database's log has the cause"),
        },
    }
}

impl Ledger {
    fn replace_keys(&self, keys: &crate::keys::Keys) -> Result<(), AdminError> {
        keys.replace(&self.config.key_file())
            .map_err(|error| AdminError::Unavailable { message: error.to_string() })
    }

    async fn note_keys(
        &self,
        act: &'static str,
        version: u32,
        used: u32,
    ) -> Result<(), AdminError> {
        let detail = Detail::default()
            .code("setting", "keys.fingerprint")
            .code("act", act)
            .number("version", i64::from(version))
            .number("in_use", i64::from(used));
        self.store.note(FactKind::Config, ACTOR, detail).await.map_err(failed)
    }
}

#[async_trait]
impl Admin for Ledger {
    async fn add_user(
        &self,
        email: &str,
        role: Role,
        password: &Secret,
    ) -> Result<UserView, AdminError> {
        let hash = hash(password, &self.env).await?;
        self.store.add_user(email, role, &hash).await.map_err(failed)
    }

    async fn list_users(&self) -> Result<Vec<UserView>, AdminError> {
        self.store.users().await.map_err(failed)
    }

    async fn set_password(&self, email: &str, password: &Secret) -> Result<bool, AdminError> {
        let hash = hash(password, &self.env).await?;
        self.store.set_password(email, &hash).await.map_err(failed)
    }

    async fn disable_user(&self, email: &str) -> Result<bool, AdminError> {
        self.store.disable_user(email).await.map_err(failed)
    }

    async fn add_client(&self, name: &str, scopes: &[String]) -> Result<NewClient, AdminError> {
        let secret = NewSecret::generate(&*self.env.entropy);
        let client = self.store.add_client(name, scopes, &secret.hash).await.map_err(failed)?;
        let key = Secret::new(secret.key(&client.id));
        Ok(NewClient { client, key })
    }

    async fn list_clients(&self) -> Result<Vec<ClientView>, AdminError> {
        self.store.clients().await.map_err(failed)
    }

    async fn revoke_client(&self, id_or_name: &str) -> Result<bool, AdminError> {
        self.store.revoke_client(id_or_name).await.map_err(failed)
    }

    async fn freeze(
        &self,
        scope: &str,
        reason: &str,
        review_in: Option<i64>,
    ) -> Result<Freeze, AdminError> {
        let review_at = review_in.map(|micros| self.env.clock.now().plus(micros));
        let frozen = self.store.freeze(scope, ACTOR, reason, review_at).await.map_err(failed)?;
        Ok(frozen.freeze)
    }

    async fn unfreeze(&self, scope: &str, reason: &str) -> Result<bool, AdminError> {
        self.store.unfreeze(scope, ACTOR, reason).await.map_err(failed)
    }

    async fn freezes(&self) -> Result<Vec<Freeze>, AdminError> {
        self.store.freezes().await.map_err(failed)
    }

    async fn load(&self) -> Result<crate::slo::capacity::Load, AdminError> {
        let now = self.env.clock.now();
        crate::slo::capacity::observe(&*self.store, now).await.map_err(failed)
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, AdminError> {
        self.store.workers().await.map_err(failed)
    }

    async fn restore_complete(&self, lost_from: Stamp) -> Result<Restored, AdminError> {
        if lost_from > self.env.clock.now() {
            return Err(AdminError::Refused {
                message: "--lost-from is in the future".to_owned(),
                next_step: "give the instant at which the backup was begun".to_owned(),
            });
        }
        // Kept to the end, so that no server starts meanwhile.
        let lock = store::lock(self.config.database_url.expose());
        let is_served = match &lock {
            Ok(Some(_)) => false,
            Ok(None) => self.is_somebody_alive().await.map_err(failed)?,
            Err(Error::Served { .. }) => true,
            Err(_) => false,
        };
        let freezes = self.store.freezes().await.map_err(failed)?;
        if is_served && !freezes.iter().any(|freeze| freeze.scope == "all") {
            return Err(AdminError::Refused {
                message: "a process serves this database and may send".to_owned(),
                next_step:
                    "end it, or stop all calls first with `sendonce freeze --scope all --reason …`"
                        .to_owned(),
            });
        }
        let guard = self.config.admission.max_lifetime;
        self.store.restore_complete(lost_from, guard, ACTOR).await.map_err(failed)
    }

    async fn backup(&self, to: &std::path::Path) -> Result<Stamp, AdminError> {
        let began_at = self.env.clock.now();
        let refused = |message: &str, next_step: &str| AdminError::Refused {
            message: message.to_owned(),
            next_step: next_step.to_owned(),
        };
        if to.exists() {
            return Err(refused("the file exists already", "name a new one"));
        }
        match self.store.backup(to).await {
            Ok(true) => Ok(began_at),
            Ok(false) => Err(refused(
                "this command copies an embedded database only",
                "use pg_dump, as scripts/backup.sh does",
            )),
            Err(error) => Err(failed(error)),
        }
    }

    async fn fingerprint_versions(&self) -> Result<Vec<u32>, AdminError> {
        Ok(self.env.keys.fingerprint_versions())
    }

    async fn rotate_fingerprint(&self) -> Result<u32, AdminError> {
        let mut keys = (*self.env.keys).clone();
        let before = keys.fingerprint_version;
        keys.rotate_fingerprint(&*self.env.entropy);
        self.replace_keys(&keys)?;
        let after = keys.fingerprint_version;
        self.note_keys("rotated", before, after).await?;
        Ok(after)
    }

    async fn drop_fingerprint(&self, version: u32) -> Result<bool, AdminError> {
        let mut keys = (*self.env.keys).clone();
        if !keys.drop_fingerprint(version) {
            return Ok(false);
        }
        self.replace_keys(&keys)?;
        self.note_keys("dropped", version, keys.fingerprint_version).await?;
        Ok(true)
    }

    async fn due_for_purge(&self) -> Result<store::Due, AdminError> {
        let cutoffs = self.config.retention.cutoffs(self.env.clock.now());
        self.store.due_for_purge(cutoffs).await.map_err(failed)
    }

    async fn hold(
        &self,
        seller_id: Option<&str>,
        from: Option<Stamp>,
        to: Option<Stamp>,
        reason: &str,
    ) -> Result<String, AdminError> {
        let hold = store::LegalHold {
            id: String::new(),
            seller_id: seller_id.map(str::to_owned),
            from,
            to,
            actor: ACTOR.to_owned(),
            reason: reason.to_owned(),
            since: self.env.clock.now(),
        };
        self.store.hold(&hold).await.map_err(failed)
    }

    async fn end_hold(&self, id: &str, reason: &str) -> Result<bool, AdminError> {
        self.store.end_hold(id, ACTOR, reason).await.map_err(failed)
    }

    async fn holds(&self) -> Result<Vec<store::LegalHold>, AdminError> {
        self.store.holds().await.map_err(failed)
    }

    async fn find(&self, id_or_event_id: &str) -> Result<Option<Found>, AdminError> {
        let Some(page) = self.store.event_page(id_or_event_id).await.map_err(failed)? else {
            return Ok(None);
        };
        let detail = Detail::default().code("what", "find").code("id", &page.record.id);
        self.store.note(FactKind::Operator, ACTOR, detail).await.map_err(failed)?;
        Ok(Some(Found { record: page.record, facts: page.facts }))
    }

    async fn admit(&self, lines: &[Vec<u8>]) -> Result<Vec<LineAnswer>, AdminError> {
        let service = AdmissionService::new(
            Arc::clone(&self.store),
            &self.env,
            &self.config,
            Wakeups::default(),
        );
        // All at once: the service folds them into one commit, in their order.
        let answers =
            futures::future::join_all(lines.iter().map(|line| service.admit(line, ACTOR)));
        let answers: Vec<AdmissionAnswer> = answers.await;
        if answers.iter().any(|a| matches!(a, AdmissionAnswer::Unavailable { .. })) {
            return Err(AdminError::Unavailable {
                message: "the database did not acknowledge the commit".to_owned(),
            });
        }
        Ok(answers.into_iter().map(line_answer).collect())
    }

    async fn audit(&self) -> Result<AuditReport, AdminError> {
        let sealer = self.sealer()?;
        let store = &*self.store;
        let own = sealer.own_keys(&store.log_head().await.map_err(failed)?.origin);
        let now = self.env.clock.now();
        let report = audit(store, sealer.outside(), &own, now).await.map_err(failed)?;
        let verdict = AuditVerdict {
            integrity: report.findings.holds(Side::Integrity),
            completeness: report.findings.holds(Side::Completeness),
            size: report.size,
            at: now,
        };
        store.keep_verdict(ACTOR, &verdict).await.map_err(failed)?;
        Ok(report)
    }

    async fn export(&self, wanted: &Wanted) -> Result<Pack, AdminError> {
        let store = &*self.store;
        let what = match wanted {
            Wanted::Seller(seller) => Selection::Seller(seller.clone()),
            Wanted::Time(from, to) => Selection::Time(*from, *to),
            Wanted::Id(id) => {
                let found = match store.record(id).await.map_err(failed)? {
                    None => store.record_by_event(id).await.map_err(failed)?,
                    found => found,
                };
                let found = found.ok_or_else(|| AdminError::Refused {
                    message: "there is no notification with this id or event id".to_owned(),
                    next_step: "check it with the caller; what is past retention is purged"
                        .to_owned(),
                })?;
                Selection::Record(found.id)
            }
        };
        let sealer = Arc::new(self.sealer()?);
        self.seal_for(&sealer, &what).await.map_err(failed)?;
        let facts_max = self.config.evidence.pack_facts_max;
        let pack = pack::make(store, &sealer, &what, facts_max).await.map_err(unpacked)?;
        store
            .note(FactKind::Operator, ACTOR, pack::export_detail(&what, &pack))
            .await
            .map_err(failed)?;
        Ok(pack)
    }

    async fn close(&self) {
        self.store.close().await;
    }
}

impl Ledger {
    fn sealer(&self) -> Result<Sealer, AdminError> {
        node::sealer(&self.config, &self.env, &self.store).map_err(|error| AdminError::Refused {
            message: format!("{error:#}"),
            next_step: "mend this and run the command again".to_owned(),
        })
    }

    /// Waits for the sealer, a little; where no process seals, this one does.
    async fn seal_for(&self, sealer: &Sealer, what: &Selection) -> Result<(), Error> {
        let clock = &*self.env.clock;
        let holder = self.env.entropy.uuid(clock.now());
        let (store, own) = (Arc::clone(&self.store), Arc::clone(&self.env.clock));
        let duty = Duty::new(duty::SEAL, store, own, holder.clone()).with_lease(duty::SWEEP_LEASE);
        let until = clock.boot() + crate::clock::micros(pack::SEAL_WAIT);
        while self.store.waiting(what).await? > 0 && clock.boot() < until {
            match duty.hold().await? {
                Some(hold) => sealer.drain(hold).await?,
                None => clock.sleep(std::time::Duration::from_millis(100)).await,
            }
        }
        self.store.leave_duties(&holder).await
    }
}

fn unpacked(error: PackError) -> AdminError {
    match error {
        PackError::Store(error) => failed(error),
        PackError::Nothing => AdminError::Refused {
            message: error.to_string(),
            next_step: "check what was asked for; `sendonce audit verify` says what is unsealed"
                .to_owned(),
        },
        PackError::Write(_) => AdminError::Unavailable { message: error.to_string() },
    }
}

impl Ledger {
    /// Whether a process gives a sign of life while we look. A backup brings the old ones' with it, so one
    /// that is written down says nothing.
    async fn is_somebody_alive(&self) -> Result<bool, Error> {
        let newest = |workers: Vec<WorkerView>| workers.iter().map(|worker| worker.seen_at).max();
        let clock = &self.env.clock;
        let Some(before) = newest(self.store.workers().await?) else { return Ok(false) };
        if clock.now().since(before) > node::ALIVE_WITHIN {
            return Ok(false);
        }
        let until = clock.boot().saturating_add(crate::clock::micros(WATCH));
        while clock.boot() < until {
            clock.sleep(WATCH_STEP).await;
            if newest(self.store.workers().await?) > Some(before) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

async fn hash(password: &Secret, env: &Env) -> Result<String, AdminError> {
    Passwords::new(Arc::clone(&env.entropy))
        .hash(Zeroizing::new(password.expose().to_owned()))
        .await
        .map_err(|error| AdminError::Unavailable { message: error.to_string() })
}

fn line_answer(answer: AdmissionAnswer) -> LineAnswer {
    let refused = |status: u16, code: &str| LineAnswer {
        status,
        code: code.to_owned(),
        ..LineAnswer::default()
    };
    match answer {
        AdmissionAnswer::Admitted { replayed, .. } => {
            LineAnswer { status: 202, is_replay: replayed, ..LineAnswer::default() }
        }
        AdmissionAnswer::Invalid(fields) => LineAnswer {
            fields: fields
                .iter()
                .map(|error| (error.field.to_string(), error.code.to_string()))
                .collect(),
            ..refused(400, "invalid_event")
        },
        AdmissionAnswer::Conflict(code) => refused(409, code),
        AdmissionAnswer::Purged => refused(410, "event_purged"),
        AdmissionAnswer::Limited { code, .. } => refused(429, code),
        AdmissionAnswer::Unavailable { .. } => refused(503, "admission_unavailable"),
    }
}
