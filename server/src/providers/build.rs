//! From the configuration to the providers: which kinds there are, and one of each that is configured.

use std::collections::BTreeMap;
use std::sync::Arc;

use app::model::Channel;
use tokio_util::sync::DropGuard;

use super::transport::Transport;
use super::vendor::Parts;
use super::{Capability, Provider, demo};
use crate::clock::Clock;
use crate::config::{self, Config};
use crate::entropy::Entropy;

/// Makes one provider from its configuration.
type Make = fn(&Parts<'_>) -> Result<Arc<dyn Provider>, BuildError>;

/// The adapters: one row a kind, beside its row in [`config::KINDS`] and the one in the simulator's list.
/// `demo` is not among them: it belongs to the simulator of this process.
const ADAPTERS: &[(&str, Make)] = &[
    ("http", super::http::make),
    ("mailgun", super::mailgun::make),
    ("infrai", super::infrai::make),
    ("resend", super::resend::make),
    ("ses", super::ses::make),
    ("sendgrid", super::sendgrid::make),
    ("postmark", super::postmark::make),
    ("smtp", super::smtp::make),
    ("twilio", super::twilio::make),
    ("sinch", super::sinch::make),
    ("infobip", super::infobip::make),
];

/// This version has the adapter of this kind.
#[must_use]
pub fn is_available(kind: &str) -> bool {
    kind == demo::NAME || ADAPTERS.iter().any(|(name, _)| *name == kind)
}

/// Every kind of provider that exists, with what it can do when its options are left alone.
#[must_use]
pub fn kinds() -> Vec<Capability> {
    let kinds = config::KINDS.iter().filter(|kind| is_available(kind.name));
    kinds.map(|kind| Capability::of(kind, None)).collect()
}

/// Why the providers or the resolver cannot be had. Each says which key to mend; none repeats a secret.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("providers.{name}.kind: there is no kind \"{kind}\"; known are {known}")]
    UnknownKind { name: String, kind: String, known: String },
    #[error("providers.{name}.{key} is missing")]
    Missing { name: String, key: &'static str },
    #[error("providers.{name}.{key} {why}")]
    Invalid { name: String, key: &'static str, why: &'static str },
    #[error("routes.{channel}: there is no provider \"{name}\"")]
    UnknownProvider { channel: Channel, name: String },
    #[error("routes.{channel}: the provider \"{name}\" does not carry {channel}")]
    WrongChannel { channel: Channel, name: String },
    #[error("resolver.{key} {why}")]
    Resolver { key: &'static str, why: &'static str },
    #[error("resolver.path: {file} cannot be read: {source}")]
    File { file: String, source: std::io::Error },
    #[error("resolver.path: {file} is larger than 64 MiB")]
    DirectoryTooLarge { file: String },
    #[error("resolver.path: line {line} of {file} {why}")]
    DirectoryLine { file: String, line: usize, why: &'static str },
    #[error("providers.demo.listen: cannot listen there: {source}")]
    Listen { source: std::io::Error },
    #[error("the demo provider cannot keep its journal in the data folder: {source}")]
    Journal { source: std::io::Error },
}

/// The configured providers by name. Dropping it ends the simulator that belongs to `demo`.
#[derive(Debug)]
pub struct Registry {
    providers: BTreeMap<String, Arc<dyn Provider>>,
    demo: Option<demo::Running>,
    _closing: Option<DropGuard>,
}

impl Registry {
    /// Providers made elsewhere: for tests and simulations.
    #[must_use]
    pub fn of(providers: BTreeMap<String, Arc<dyn Provider>>) -> Self {
        Self { providers, demo: None, _closing: None }
    }

    /// The provider of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Provider>> {
        self.providers.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<dyn Provider>)> {
        self.providers.iter().map(|(name, provider)| (name.as_str(), provider))
    }

    /// The simulator behind `demo`: scripts and counts for rehearsals in the same process.
    #[must_use]
    pub fn demo(&self) -> Option<&demo::Running> {
        self.demo.as_ref()
    }
}

/// Makes every configured provider, and `demo`, which always exists. Must run inside a tokio runtime: the
/// simulator behind `demo` begins to serve.
///
/// # Errors
/// [`BuildError`], naming the key.
pub async fn build(
    config: &Config,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    transport: Arc<dyn Transport>,
) -> Result<Registry, BuildError> {
    // Whatever needs no socket is checked before one is opened.
    let mut providers: BTreeMap<String, Arc<dyn Provider>> = BTreeMap::new();
    for (name, provider) in &config.providers {
        let kind = provider.kind.as_str();
        if kind == demo::NAME || (kind.is_empty() && name == demo::NAME) {
            continue;
        }
        let Some((_, make)) = ADAPTERS.iter().find(|(known, _)| *known == kind) else {
            let known: Vec<&str> = kinds().iter().map(|kind| kind.kind).collect();
            return Err(BuildError::UnknownKind {
                name: name.clone(),
                kind: kind.to_owned(),
                known: known.join(", "),
            });
        };
        if name == demo::NAME {
            let why = "must be \"demo\": this name is kept for it";
            return Err(BuildError::Invalid { name: name.clone(), key: "kind", why });
        }
        let parts = Parts {
            name,
            config: provider,
            public_url: config.server.public_url.trim_end_matches('/'),
            clock: Arc::clone(&clock),
            entropy: Arc::clone(&entropy),
            transport: Arc::clone(&transport),
        };
        providers.insert(name.clone(), make(&parts)?);
    }
    let demo = demo::start(config, Arc::clone(&clock), entropy, Arc::clone(&transport)).await?;
    let closing = demo.simulator().closing().clone().drop_guard();
    for (name, provider) in &config.providers {
        if provider.kind == demo::NAME || name == demo::NAME {
            let made = demo.provider(Some(provider), Arc::clone(&clock), Arc::clone(&transport));
            providers.insert(name.clone(), Arc::new(made));
        }
    }
    if !providers.contains_key(demo::NAME) {
        let made = demo.provider(None, clock, transport);
        providers.insert(demo::NAME.to_owned(), Arc::new(made));
    }
    let registry = Registry { providers, demo: Some(demo), _closing: Some(closing) };
    check_routes(config, &registry)?;
    Ok(registry)
}

fn check_routes(config: &Config, registry: &Registry) -> Result<(), BuildError> {
    for (channel, names) in &config.routes {
        for name in names {
            let provider = registry.get(name).ok_or_else(|| BuildError::UnknownProvider {
                channel: *channel,
                name: name.clone(),
            })?;
            if !provider.capability().channels.contains(channel) {
                return Err(BuildError::WrongChannel { channel: *channel, name: name.clone() });
            }
        }
    }
    Ok(())
}
