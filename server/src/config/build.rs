//! From the layers to the struct: each key once, with its type and range.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use app::model::{Channel, Role};

use super::duration::{DAY, HOUR, MINUTE, SECOND};
use super::network::Network;
use super::reader::{Reader, nearest};
use super::watch;
use super::{
    Admission, Auth, Config, Dispatch, Evidence, KINDS, KeySource, Kind, Log, Oidc, ProviderConfig,
    Reconcile, Resolver, ResolverKind, Retention, Server, Ui,
};
use crate::providers::Secret;

/// The smallest duration of what must take some time.
const INSTANT: i64 = 1_000;

/// The longest name of a provider.
const NAME_CHARS_MAX: usize = 64;

/// Settle time of the built-in simulator, under whatever name it stands.
const DEMO_SETTLE: i64 = 2 * SECOND;

/// Reads everything. Where something is wrong the reader has a problem, and the value here means nothing.
pub(super) fn build(reader: &mut Reader) -> Config {
    let server = server(reader);
    let dispatch = dispatch(reader);
    let admission = admission(reader, &dispatch);
    let (templates, templates_folder, templates_locale) = super::policy::templates(reader);
    let database_url = database_url(reader, &server.data_dir);
    Config {
        reconcile: reconcile(reader),
        routes: routes(reader),
        providers: providers(reader),
        resolver: resolver(reader),
        evidence: evidence(reader, &server.data_dir),
        slo: watch::slo(reader),
        alerts: watch::alerts(reader),
        ui: Ui {
            idle_timeout: reader.duration("ui.idle_timeout", MINUTE..=30 * DAY),
            absolute_timeout: reader.duration("ui.absolute_timeout", MINUTE..=90 * DAY),
        },
        auth: auth(reader),
        oidc: oidc(reader),
        retention: retention(reader),
        log: log(reader),
        sending: super::policy::sending(reader),
        templates,
        templates_folder,
        templates_locale,
        prices_file: reader.text_or_none("policy.prices", "the path of a file"),
        server,
        database_url,
        admission,
        dispatch,
    }
}

fn server(reader: &mut Reader) -> Server {
    let environment = reader.text("server.environment", "a name such as \"production\"");
    if environment.chars().count() > 32 {
        reader.problem("server.environment", "is longer than 32 characters", "shorten it");
    }
    Server {
        listen: reader.text("server.listen", "an address and port such as \"127.0.0.1:3000\""),
        public_url: reader
            .text("server.public_url", "an address such as \"https://sendonce.example.com\"")
            .trim_end_matches('/')
            .to_owned(),
        trusted_proxies: proxies(reader),
        data_dir: PathBuf::from(reader.text("server.data_dir", "the path of a folder")),
        site_dir: reader.text_or_none("server.site_dir", "the path of a folder").map(PathBuf::from),
        health_listen: reader
            .text_or_none("server.health_listen", "an address and port such as \"127.0.0.1:9090\""),
        environment,
        grace: reader.duration("server.grace", 0..=10 * MINUTE),
    }
}

fn database_url(reader: &mut Reader, data_dir: &std::path::Path) -> Secret {
    reader
        .secret("database.url")
        .unwrap_or_else(|| Secret::new(format!("sqlite://{}/sendonce.db", data_dir.display())))
}

fn dispatch(reader: &mut Reader) -> Dispatch {
    Dispatch {
        margin: reader.duration("dispatch.margin", INSTANT..=HOUR),
        lease: reader.duration("dispatch.lease", INSTANT..=HOUR),
        call_timeout: reader.duration("dispatch.call_timeout", INSTANT..=5 * MINUTE),
        attempts_max: reader.number("dispatch.attempts_max", 1..=app::model::ATTEMPT_CEILING),
        replays_max: reader.number("dispatch.replays_max", 0..=10),
        backoff_first: reader.duration("dispatch.backoff_first", INSTANT..=HOUR),
        backoff_max: reader.duration("dispatch.backoff_max", INSTANT..=DAY),
        workers: reader.count("dispatch.workers", 1..=1024),
        release_per_second: reader.number("dispatch.release_per_second", 1..=100_000),
        sender: reader
            .text("dispatch.sender", "the name that messages carry, such as \"Marketplace\""),
    }
}

fn proxies(reader: &mut Reader) -> Vec<Network> {
    let path = "server.trusted_proxies";
    let texts = reader.list(path);
    let networks: Vec<Network> = texts.iter().filter_map(|text| Network::parse(text)).collect();
    if networks.len() < texts.len() {
        let help = "write it as [\"127.0.0.1\", \"10.0.0.0/8\"]";
        reader.problem(path, "has something that is neither an address nor a network", help);
    }
    networks
}

fn admission(reader: &mut Reader, dispatch: &Dispatch) -> Admission {
    let channel = reader.word("admission.default_channel", &["sms", "email"]);
    Admission {
        default_channel: channel.parse().unwrap_or(Channel::Sms),
        min_lifetime: reader
            .duration_or_none("admission.min_lifetime", INSTANT..=7 * DAY)
            .unwrap_or(dispatch.margin.saturating_add(dispatch.call_timeout)),
        max_lifetime: reader.duration("admission.max_lifetime", SECOND..=30 * DAY),
        queue_max: reader.count("admission.queue_max", 1..=1_000_000),
        batch_max: reader.count("admission.batch_max", 1..=1024),
        writers: reader.count("admission.writers", 0..=8),
    }
}

fn reconcile(reader: &mut Reader) -> Reconcile {
    Reconcile {
        first_poll: reader.duration("reconcile.first_poll", INSTANT..=HOUR),
        max_poll: reader.duration("reconcile.max_poll", INSTANT..=DAY),
        poll_for: reader.duration("reconcile.poll_for", 0..=7 * DAY),
        workers: reader.count("reconcile.workers", 1..=1024),
        read_timeout: reader.duration("reconcile.read_timeout", INSTANT..=5 * MINUTE),
    }
}

fn routes(reader: &mut Reader) -> BTreeMap<Channel, Vec<String>> {
    Channel::ALL
        .iter()
        .map(|channel| (*channel, reader.list(&format!("routes.{channel}"))))
        .collect()
}

fn providers(reader: &mut Reader) -> BTreeMap<String, ProviderConfig> {
    reader.section("providers");
    let mut providers = BTreeMap::new();
    for name in reader.names("providers") {
        let path = format!("providers.{name}");
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if !name.chars().all(is_name) || name.len() > NAME_CHARS_MAX {
            let help = format!("use 1-{NAME_CHARS_MAX} of a-z A-Z 0-9 _ -");
            reader.problem(&path, "is no name for a provider", &help);
            reader.forget(&path);
        } else if let Some(provider) = provider(reader, &name) {
            providers.insert(name, provider);
        }
    }
    providers
}

fn provider(reader: &mut Reader, name: &str) -> Option<ProviderConfig> {
    let key = |key: &str| format!("providers.{name}.{key}");
    let path = key("kind");
    let names: Vec<&'static str> = KINDS.iter().map(|kind| kind.name).collect();
    let Some(word) = reader.text_or_none(&path, "the kind of a provider") else {
        reader.know(&path);
        let help = format!("set it to one of {}", names.join(", "));
        reader.problem(&path, "is missing", &help);
        // Without a kind nobody can say which of its keys exist.
        reader.forget(&format!("providers.{name}"));
        return None;
    };
    let Some(kind) = Kind::find(&word) else {
        let near = nearest(&word, names.iter().copied())
            .map_or_else(String::new, |near| format!(" (did you mean {near}?)"));
        reader.wrong(&path, &format!("one of {}{near}", names.join(", ")));
        reader.forget(&format!("providers.{name}"));
        return None;
    };
    if name == "demo" && kind.name != "demo" {
        let help = "give your provider another name";
        reader.problem(&path, "the name demo belongs to the built-in simulator", help);
    }
    let settings: BTreeMap<String, String> = kind
        .settings
        .iter()
        .chain(&["from"])
        .filter_map(|option| {
            let text = if *option == "port" {
                port(reader, &key(option))
            } else if *option == "tls" {
                tls(reader, &key(option))
            } else {
                reader.text_or_none(&key(option), "text in quotes")
            };
            Some(((*option).to_owned(), text?))
        })
        .collect();
    let credentials = kind
        .credentials
        .iter()
        .filter_map(|option| Some(((*option).to_owned(), reader.secret(&key(option))?)))
        .collect();
    let own: BTreeSet<&'static str> = own_keys(kind).collect();
    let others: BTreeSet<&'static str> = KINDS.iter().flat_map(own_keys).collect();
    for other in others.difference(&own) {
        let owners: Vec<&str> = KINDS
            .iter()
            .filter(|kind| own_keys(kind).any(|key| key == *other))
            .map(|kind| kind.name)
            .collect();
        reader.misplaced(&key(other), &path, kind.name, &owners.join(", "));
    }
    let settle = reader.duration_or_none(&key("settle"), 0..=7 * DAY);
    let base_url = if kind.has_base_url {
        let text = reader.text_or_none(&key("base_url"), "an address such as \"https://…\"");
        text.map(|url| url.trim_end_matches('/').to_owned())
    } else {
        None
    };
    Some(ProviderConfig {
        settle: settle.or((kind.name == "demo").then_some(DEMO_SETTLE)),
        base_url,
        secret: if kind.name == "http" { reader.secret(&key("secret")) } else { None },
        webhook_secret: reader.secret(&key("webhook_secret")),
        idempotent: reader.flag(&key("idempotent"), false),
        window: reader.duration_or_none(&key("window"), INSTANT..=30 * DAY),
        lookup: reader.flag(&key("lookup"), true),
        reads_per_minute: reader
            .is_set(&key("reads_per_minute"))
            .then(|| reader.number(&key("reads_per_minute"), 1..=1_000_000)),
        listen: if kind.name == "demo" {
            reader.text_or_none(&key("listen"), "an address and port such as \"127.0.0.1:4010\"")
        } else {
            None
        },
        settings,
        credentials,
        kind: kind.name.to_owned(),
    })
}

fn port(reader: &mut Reader, path: &str) -> Option<String> {
    reader.is_set(path).then(|| reader.number(path, 1..=65_535).to_string())
}

fn tls(reader: &mut Reader, path: &str) -> Option<String> {
    reader.is_set(path).then(|| reader.word(path, &["starttls", "implicit", "none"]).to_owned())
}

fn resolver(reader: &mut Reader) -> Resolver {
    let word = reader.word("resolver.kind", &["demo", "directory", "http"]);
    let kind = match word {
        "directory" => {
            ResolverKind::Directory { path: PathBuf::from(reader.text("resolver.path", "a file")) }
        }
        "http" => ResolverKind::Http {
            url: reader.text("resolver.url", "an address such as \"https://…\""),
            secret: reader.needed_secret("resolver.secret"),
        },
        _ => ResolverKind::Demo,
    };
    // A `url` beside `kind = "demo"` is somebody who believes that real links are sent.
    for (key, owner) in [("path", "directory"), ("url", "http"), ("secret", "http")] {
        if owner != word {
            reader.misplaced(&format!("resolver.{key}"), "resolver.kind", word, owner);
        }
    }
    Resolver { kind, timeout: reader.duration("resolver.timeout", INSTANT..=5 * MINUTE) }
}

fn evidence(reader: &mut Reader, data_dir: &std::path::Path) -> Evidence {
    Evidence {
        directory: reader
            .text_or_none("evidence.directory", "the path of a folder")
            .map_or_else(|| data_dir.join("log"), PathBuf::from),
        key: key_source(reader, "evidence.key"),
        previous_key: key_source(reader, "evidence.previous_key"),
        pack_facts_max: reader.count("evidence.pack_facts_max", 100..=1_000_000),
    }
}

fn key_source(reader: &mut Reader, path: &str) -> Option<KeySource> {
    let command_path = format!("{path}_command");
    let command = reader.list(&command_path);
    let text = reader.secret(path);
    match (text, command.is_empty()) {
        (Some(_), false) => {
            let help = "keep one of the two";
            reader.problem(&command_path, &format!("stands beside {path}"), help);
            None
        }
        (Some(text), true) => {
            if crate::keys::unhex(text.expose().trim()).is_none() {
                reader.wrong(path, "the seed of an Ed25519 key: 64 lowercase hex digits");
            }
            Some(KeySource::Text(text))
        }
        (None, false) => Some(KeySource::Command(command)),
        (None, true) => None,
    }
}

fn auth(reader: &mut Reader) -> Auth {
    let words = reader.list("auth.totp_required_roles");
    let mut roles = Vec::new();
    for word in words {
        match word.parse() {
            Ok(role) => roles.push(role),
            Err(_) => reader
                .wrong("auth.totp_required_roles", "a list of support, compliance, oncall, admin"),
        }
    }
    Auth { totp_required_roles: roles }
}

fn retention(reader: &mut Reader) -> Retention {
    Retention {
        events: reader.duration_or_none("retention.events", INSTANT..=36_500 * DAY),
        operators: reader.duration_or_none("retention.operators", INSTANT..=36_500 * DAY),
        retry_window: reader.duration("retention.retry_window", 0..=3_650 * DAY),
        every: reader.duration("retention.every", INSTANT..=DAY),
    }
}

fn oidc(reader: &mut Reader) -> Option<Oidc> {
    let issuer =
        reader.text_or_none("oidc.issuer", "an address such as \"https://id.example.com\"");
    let client_id = reader.text_or_none("oidc.client_id", "the id that the provider has given us");
    let client_secret = reader.secret("oidc.client_secret");
    let roles = Role::ALL
        .iter()
        .map(|role| (role.as_str().to_owned(), reader.list(&format!("oidc.{role}"))))
        .collect();
    let rest = Oidc {
        issuer: String::new(),
        name: reader.text("oidc.name", "the provider's name on the button"),
        client_id: String::new(),
        client_secret: Secret::new(String::new()),
        scopes: reader.list("oidc.scopes"),
        role_claim: reader.text("oidc.role_claim", "the name of a claim such as \"groups\""),
        roles,
    };
    match (issuer, client_id, client_secret) {
        (None, None, None) => None,
        (Some(issuer), Some(client_id), Some(client_secret)) => {
            Some(Oidc { issuer, client_id, client_secret, ..rest })
        }
        _ => {
            let help = "set issuer, client_id and client_secret together";
            reader.problem("oidc.issuer", "is one of three keys, and one of them is missing", help);
            None
        }
    }
}

fn log(reader: &mut Reader) -> Log {
    let level = reader.text("log.level", "a level such as \"info\"");
    if tracing_subscriber::EnvFilter::try_new(&level).is_err() {
        let help = "expected error, warn, info, debug, trace or a filter such as \
                    \"info,server::dispatch=debug\"";
        reader.problem("log.level", "is no log filter", help);
    }
    Log { level, json: reader.flag("log.json", false) }
}

/// The keys that one kind has beside those of every kind.
fn own_keys(kind: &Kind) -> impl Iterator<Item = &'static str> {
    let base_url = kind.has_base_url.then_some("base_url");
    let listen = (kind.name == "demo").then_some("listen");
    let secret = (kind.name == "http").then_some("secret");
    let named = kind.settings.iter().chain(kind.credentials).copied();
    named.chain(base_url).chain(listen).chain(secret)
}

/// Every key that some kind of provider has.
#[cfg(test)]
pub(super) fn provider_keys() -> BTreeSet<&'static str> {
    let mut keys: BTreeSet<&'static str> = [
        "kind",
        "settle",
        "webhook_secret",
        "idempotent",
        "window",
        "lookup",
        "from",
        "reads_per_minute",
    ]
    .into();
    keys.extend(KINDS.iter().flat_map(own_keys));
    keys
}
