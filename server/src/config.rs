//! The configuration: one struct, defaults that double as the manual, and one check of the whole.
//!
//! Order: the embedded `config.default.toml`, then the file, then `SENDONCE_<SECTION>__<KEY>`, then
//! `DATABASE_URL`. [`Config::load`] refuses what cannot be read, [`Config::check`] what can be read and is
//! unsafe. Both name every problem, not the first, and neither ever repeats a value that may be a secret.

mod build;
mod check;
pub mod duration;
mod effective;
mod kinds;
mod network;
mod policy;
mod reader;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use app::model::{Channel, Role};

pub use self::kinds::{KINDS, Kind};
pub use self::network::Network;
use self::reader::Reader;
use crate::domain::Policy;
use crate::policy::SendingRules;
use crate::providers::Secret;
use crate::providers::template::Templates;

/// Every key with its default: the manual.
pub const DEFAULTS: &str = include_str!("config.default.toml");

/// Read when no other file is named, where it exists.
pub const DEFAULT_FILE: &str = "sendonce.toml";

/// How long a repeated key is trusted not to send again where `idempotent = true` names no `window`: 5
/// minutes, the shortest that any vendor with such a key documents.
pub const REPLAY_WINDOW_DEFAULT: i64 = 5 * 60 * 1_000_000;

/// Groups of admissions that commit at once on PostgreSQL: enough to fill the time in which one waits for
/// the disk, and few of the process's connections.
const WRITERS_DEFAULT: usize = 4;

/// The largest configuration file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// One thing that is wrong with the configuration, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key with its full dotted path, or the name of the file.
    pub key: String,
    pub message: String,
    pub next_step: String,
}

impl Problem {
    pub(crate) fn new(key: &str, message: &str, next_step: &str) -> Self {
        Self {
            key: reader::printable(key),
            message: message.to_owned(),
            next_step: next_step.to_owned(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.key, self.message, self.next_step)
    }
}

/// Why the configuration cannot be used: every problem, one a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            let line_break = if at == 0 { "" } else { "\n" };
            write!(f, "{line_break}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Everything that can be configured. Durations are microseconds.
#[derive(Debug, Clone)]
pub struct Config {
    pub server: Server,
    pub database_url: Secret,
    pub admission: Admission,
    pub dispatch: Dispatch,
    pub reconcile: Reconcile,
    /// Provider names by channel, in order.
    pub routes: BTreeMap<Channel, Vec<String>>,
    pub providers: BTreeMap<String, ProviderConfig>,
    pub resolver: Resolver,
    pub evidence: Evidence,
    pub slo: Slo,
    pub alerts: Alerts,
    pub ui: Ui,
    pub auth: Auth,
    /// Sign-in by an identity provider, where one is configured.
    pub oidc: Option<Oidc>,
    pub retention: Retention,
    pub log: Log,
    /// Limits, rules for text messages, and what to do after an unknown outcome.
    pub sending: SendingRules,
    /// The texts of this installation; none: the built-in ones.
    pub templates: Templates,
    pub templates_folder: Option<String>,
    /// The language of recipients whose own is not known.
    pub templates_locale: String,
    /// Where the prices were read from.
    pub prices_file: Option<String>,
}

/// The log of facts and what is handed out of it.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// Signed heads and tiles, outside the database.
    pub directory: PathBuf,
    /// Signs the heads; derived from the key file where there is none.
    pub key: Option<KeySource>,
    /// The key that `key` follows.
    pub previous_key: Option<KeySource>,
    /// Facts in one evidence pack at most.
    pub pack_facts_max: usize,
}

/// Where a key comes from.
#[derive(Debug, Clone)]
pub enum KeySource {
    /// The configuration, or a file that it names: 64 hex digits.
    Text(Secret),
    /// What this program, with these arguments, prints.
    Command(Vec<String>),
}

/// How long things are kept. None: for ever.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Events with all their facts, from their settling on.
    pub events: Option<i64>,
    /// Operators' acts and views.
    pub operators: Option<i64>,
    /// How long after its expiry a caller may still repeat an event.
    pub retry_window: i64,
    /// How often it is looked what is over.
    pub every: i64,
}

impl Retention {
    /// What is over at this instant.
    #[must_use]
    pub fn cutoffs(&self, now: app::model::Stamp) -> crate::store::Cutoffs {
        crate::store::Cutoffs {
            settled_before: self.events.map(|kept| now.plus(-kept)),
            expired_before: now.plus(-self.retry_window),
            operators_before: self.operators.map(|kept| now.plus(-kept)),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Server {
    pub listen: String,
    pub public_url: String,
    pub data_dir: PathBuf,
    /// Where the built site lies; found beside the binary when empty.
    pub site_dir: Option<PathBuf>,
    /// A listener of its own for health and metrics.
    pub health_listen: Option<String>,
    /// Shown in the bar of every page.
    pub environment: String,
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<Network>,
    /// How long running calls may take to end after SIGTERM.
    pub grace: i64,
}

#[derive(Debug, Clone)]
pub struct Admission {
    pub default_channel: Channel,
    pub min_lifetime: i64,
    pub max_lifetime: i64,
    /// Events that may wait for their commit; beyond it 503.
    pub queue_max: usize,
    /// Largest group of one commit.
    pub batch_max: usize,
    /// Groups that may commit at once; 0: as many as suit the database.
    pub writers: usize,
}

#[derive(Debug, Clone)]
pub struct Dispatch {
    pub margin: i64,
    pub lease: i64,
    pub call_timeout: i64,
    pub attempts_max: u32,
    pub replays_max: u32,
    pub backoff_first: i64,
    pub backoff_max: i64,
    pub workers: usize,
    pub release_per_second: u32,
    /// The sender's name in messages.
    pub sender: String,
}

#[derive(Debug, Clone)]
pub struct Reconcile {
    pub first_poll: i64,
    pub max_poll: i64,
    pub poll_for: i64,
    pub workers: usize,
    pub read_timeout: i64,
}

/// One provider: the keys that every kind has, and the rest by name.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    pub kind: String,
    pub settle: Option<i64>,
    pub base_url: Option<String>,
    pub secret: Option<Secret>,
    pub webhook_secret: Option<Secret>,
    pub idempotent: bool,
    pub window: Option<i64>,
    pub lookup: bool,
    /// Look-ups a minute that it allows, over all processes; none: any number.
    pub reads_per_minute: Option<u32>,
    /// `demo` only: opens its control API.
    pub listen: Option<String>,
    /// Keys of this kind that may be shown, such as `from`, `region`, `host`.
    pub settings: BTreeMap<String, String>,
    /// Keys of this kind that may not, such as `token`, `api_key`, `auth_token`.
    pub credentials: BTreeMap<String, Secret>,
}

#[derive(Debug, Clone)]
pub struct Resolver {
    pub kind: ResolverKind,
    pub timeout: i64,
}

#[derive(Debug, Clone)]
pub enum ResolverKind {
    Demo,
    Directory { path: PathBuf },
    Http { url: String, secret: Secret },
}

/// The objective.
#[derive(Debug, Clone)]
pub struct Slo {
    /// Millionths of the judged events that are to settle in time.
    pub target_ppm: u64,
    pub window: i64,
    /// In whole days.
    pub period_days: i64,
    /// Fewer events in the long window page nobody.
    pub events_min: u64,
}

/// What is watched, and who is told.
#[derive(Debug, Clone)]
pub struct Alerts {
    pub every: i64,
    /// How long something must be true before it fires.
    pub hold_for: i64,
    /// How long it must not be true before it is over.
    pub clear_for: i64,
    pub queue_age: i64,
    pub backing_off_age: i64,
    pub unknown_age: i64,
    pub read_lag: i64,
    pub seal_lag: i64,
    pub freeze_age: i64,
    pub clock_offset: i64,
    pub silence: i64,
    pub backlog_max: u64,
    pub expired_max: u64,
    pub unmatched_max: u64,
    pub webhook: Option<AlertWebhook>,
    pub alertmanager_url: Option<String>,
    pub email: Option<AlertEmail>,
}

/// A signed POST for each alert.
#[derive(Debug, Clone)]
pub struct AlertWebhook {
    pub url: String,
    pub secret: Secret,
}

/// A mail for each alert.
#[derive(Debug, Clone)]
pub struct AlertEmail {
    pub to: Vec<String>,
    pub from: String,
    pub host: String,
    pub port: u16,
    pub tls: String,
    pub username: Option<String>,
    pub password: Option<Secret>,
}

#[derive(Debug, Clone)]
pub struct Ui {
    pub idle_timeout: i64,
    pub absolute_timeout: i64,
}

/// How operators prove who they are.
#[derive(Debug, Clone)]
pub struct Auth {
    /// Roles that must have a second factor.
    pub totp_required_roles: Vec<Role>,
}

/// An OpenID Connect provider.
#[derive(Debug, Clone)]
pub struct Oidc {
    pub issuer: String,
    /// On the button.
    pub name: String,
    pub client_id: String,
    pub client_secret: Secret,
    pub scopes: Vec<String>,
    /// The claim of the ID token that holds the person's groups.
    pub role_claim: String,
    /// By role: the values of the claim that stand for it.
    pub roles: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Clone)]
pub struct Log {
    /// A filter in the words of `tracing-subscriber`.
    pub level: String,
    pub json: bool,
}

impl ProviderConfig {
    /// A key of this kind that may be shown.
    #[must_use]
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.settings.get(key).map(String::as_str)
    }

    /// A key of this kind that may not be shown.
    #[must_use]
    pub fn credential(&self, key: &str) -> Option<&Secret> {
        self.credentials.get(key)
    }

    /// A key of this kind, shown or not, that is set and not empty.
    #[must_use]
    pub fn has_value(&self, key: &str) -> bool {
        let secret = match key {
            "webhook_secret" => self.webhook_secret.as_ref(),
            key => self.credential(key),
        };
        secret.is_some_and(|secret| !secret.expose().is_empty())
            || self.setting(key).is_some_and(|text| !text.is_empty())
    }

    /// What is known of its kind.
    #[must_use]
    pub fn known_kind(&self) -> Option<&'static Kind> {
        Kind::find(&self.kind)
    }

    /// For how long a repeated key does not send again: as configured, else as the vendor documents it.
    #[must_use]
    pub fn replay_window(&self) -> Option<i64> {
        let known = self.known_kind().and_then(|kind| kind.window);
        let default = self.idempotent.then_some(REPLAY_WINDOW_DEFAULT);
        if self.idempotent || known.is_some() { self.window.or(known).or(default) } else { None }
    }
}

impl Config {
    /// Reads everything: the embedded defaults, this file (or `./sendonce.toml` where it exists), the
    /// environment. Says nothing yet about safety: see [`Config::check`].
    ///
    /// # Errors
    /// [`ConfigError`] with every key that is unknown, of the wrong type or out of range.
    pub fn load(
        path: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let name = path.unwrap_or(Path::new(DEFAULT_FILE));
        let shown = name.display().to_string();
        match read_file(name) {
            Ok(text) => Self::parse(&shown, &text, env),
            Err(error) if path.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                Self::parse(&shown, "", env)
            }
            Err(error) => {
                let message = format!("the file cannot be read: {}", error.kind());
                let problem = Problem::new(&shown, &message, "check the path and who may read it");
                Err(ConfigError { problems: vec![problem] })
            }
        }
    }

    /// As [`Config::load`], with the file's text in hand; `name` is how problems call it.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(
        name: &str,
        text: &str,
        env: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let env: Vec<(String, String)> = env.collect();
        let mut reader = Reader::default();
        reader.defaults(DEFAULTS);
        reader.file(name, text);
        for (name, path) in
            [("DATABASE_URL", "database.url"), ("DATABASE_URL_FILE", "database.url_file")]
        {
            if let Some((_, raw)) = env.iter().find(|(key, raw)| key == name && !raw.is_empty()) {
                reader.variable(name, path, raw.clone());
            }
        }
        let stands_alone = reader.has_variable("database.");
        reader.environment(env.into_iter().filter(|(name, _)| {
            // DATABASE_URL wins over its longer name.
            !(stands_alone && name.starts_with("SENDONCE_DATABASE__URL"))
        }));
        let config = build::build(&mut reader);
        let problems = reader.finish();
        if problems.is_empty() { Ok(config) } else { Err(ConfigError { problems }) }
    }

    /// Whether browsers reach us over TLS: then the session cookie is `Secure` and carries `__Host-`.
    #[must_use]
    pub fn has_secure_cookies(&self) -> bool {
        self.server.public_url.starts_with("https://")
    }

    /// The name of the session cookie.
    #[must_use]
    pub fn session_cookie(&self) -> &'static str {
        if self.has_secure_cookies() { "__Host-sendonce" } else { "sendonce" }
    }

    /// The settings that the rules use.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy {
            margin: self.dispatch.margin,
            call_timeout: self.dispatch.call_timeout,
            lease: self.dispatch.lease,
            attempts_max: self.dispatch.attempts_max,
            replays_max: self.dispatch.replays_max,
            backoff_first: self.dispatch.backoff_first,
            backoff_max: self.dispatch.backoff_max,
            first_poll: self.reconcile.first_poll,
            max_poll: self.reconcile.max_poll,
            poll_for: self.reconcile.poll_for,
        }
    }

    /// Stands for the settings on which all nodes must agree. 16 hex digits.
    #[must_use]
    pub fn digest(&self) -> String {
        let text: String =
            self.shared().iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        crate::keys::sha256(text.as_bytes()).get(..16).unwrap_or_default().to_owned()
    }

    /// How many groups of admissions may commit at once. An embedded database has one writer.
    #[must_use]
    pub fn admission_writers(&self) -> usize {
        match (crate::store::is_shared(self.database_url.expose()), self.admission.writers) {
            (false, _) => 1,
            (true, 0) => WRITERS_DEFAULT,
            (true, writers) => writers,
        }
    }

    /// Where the keys lie.
    #[must_use]
    pub fn key_file(&self) -> PathBuf {
        self.server.data_dir.join("sendonce.keys")
    }
}

fn read_file(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// The process's environment, without names and values that are no Unicode: none of ours is.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}
