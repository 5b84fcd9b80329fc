//! What can be read and is still refused: combinations that break a promise, one clear line each.

use std::collections::BTreeMap;

use app::model::Channel;
use url::{Host, Url};

use super::duration::{SECOND, format};
use super::{Config, Kind, Problem, ProviderConfig, ResolverKind};
use crate::providers::mail;

/// What a lease must leave beside the resolver's and the call's time: reading, writing, scheduling.
const LEASE_RESERVE: i64 = SECOND;

impl Config {
    /// Every unsafe combination. `serve` and `config check` refuse to go on unless this is empty.
    #[must_use]
    pub fn check(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let mut refuse = |key: &str, message: &str, next_step: &str| {
            found.push(Problem::new(key, message, next_step));
        };
        self.check_times(&mut refuse);
        self.check_server(&mut refuse);
        self.check_database(&mut refuse);
        self.check_routes(&mut refuse);
        self.check_watch(&mut refuse);
        for (name, provider) in &self.providers {
            self.check_provider(name, provider, &mut refuse);
        }
        let has_price_rule = self.sending.price_max.is_some()
            || self
                .sending
                .budget
                .iter()
                .chain(self.sending.budgets.values())
                .any(|budget| budget.price_max.is_some());
        if has_price_rule && self.sending.prices.is_empty() {
            refuse(
                "policy.prices",
                "is not set, and a rule about prices is",
                "name a file of lines such as \"US,0.0079\"",
            );
        }
        if !self.providers.contains_key("demo") {
            refuse("providers.demo", "is missing", "the simulator exists in every configuration");
        }
        if let Some(oidc) = &self.oidc {
            check_url("oidc.issuer", &oidc.issuer, true, &mut refuse);
            if !oidc.scopes.iter().any(|scope| scope == "openid") {
                refuse("oidc.scopes", "does not name openid", "add \"openid\" to it");
            }
            if oidc.roles.values().all(Vec::is_empty) {
                refuse(
                    "oidc.support",
                    "gives nobody a role, as no role has a value of the claim",
                    "set support, compliance, oncall or admin to a list of values",
                );
            }
        }
        if let ResolverKind::Http { url, .. } = &self.resolver.kind {
            check_url("resolver.url", url, true, &mut refuse);
        }
        found
    }

    /// What is allowed and still worth a sentence at every start.
    #[must_use]
    pub fn warnings(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let mut warn = |key: &str, message: &str, next_step: &str| {
            found.push(Problem::new(key, message, next_step));
        };
        for name in self.routed() {
            let Some(provider) = self.providers.get(name) else { continue };
            let key = format!("providers.{name}");
            let Some(kind) = provider.known_kind() else { continue };
            let can_be_read = provider.lookup && kind.reading.finds_attempts();
            if can_be_read && provider.settle.is_none() {
                warn(
                    &format!("{key}.settle"),
                    "is not set, so absence is never believed and an unknown outcome is never sent again",
                    "set it to how long its look-up may miss a message",
                );
            }
            if !can_be_read && provider.replay_window().is_none() {
                warn(
                    &key,
                    "can be neither read nor replayed: an unknown outcome stays unknown until it expires",
                    "put a provider that can be read first in its route",
                );
            }
            let unset = kind.callback_key.filter(|key| !provider.has_value(key));
            if let (Some(_), Some(unset)) = (kind.callbacks, unset)
                && kind.name != "demo"
            {
                warn(
                    &format!("{key}.{unset}"),
                    "is not set, so its callbacks have no endpoint",
                    "set it to the key that the provider signs with",
                );
            }
            let is_outside = kind.name != "demo"
                && provider.base_url.as_deref().is_none_or(|url| !is_loopback_url(url));
            if is_outside && matches!(self.resolver.kind, ResolverKind::Demo) {
                warn(
                    "resolver.kind",
                    &format!("invents addresses and links, and {name} would really send them"),
                    "set resolver.kind to http",
                );
            }
        }
        let resolver = match &self.resolver.kind {
            ResolverKind::Http { secret, .. } => Some(("resolver.secret".to_owned(), secret)),
            _ => None,
        };
        let own = self.providers.iter().flat_map(|(name, provider)| {
            let key = move |key: &str| format!("providers.{name}.{key}");
            let secret = provider.secret.as_ref().map(|secret| (key("secret"), secret));
            let callback = provider.webhook_secret.as_ref();
            secret.into_iter().chain(callback.map(|secret| (key("webhook_secret"), secret)))
        });
        for (key, secret) in own.chain(resolver) {
            let chars = secret.expose().chars().count();
            if (1..SECRET_CHARS_MIN).contains(&chars) {
                warn(
                    &key,
                    "is so short that it can be guessed",
                    "use at least 16 random characters",
                );
            }
        }
        for (name, provider) in &self.providers {
            if provider.listen.as_deref().is_some_and(|listen| !is_loopback_listen(listen)) {
                warn(
                    &format!("providers.{name}.listen"),
                    "opens the simulator's controls to other machines, without a password",
                    "use a loopback address such as 127.0.0.1:4010",
                );
            }
        }
        found
    }

    /// The settings that every process on one database must share, by dotted key: a process that
    /// differs would judge the same lease or the same margin otherwise.
    #[must_use]
    pub fn shared(&self) -> BTreeMap<String, String> {
        let times = [
            ("dispatch.margin", self.dispatch.margin),
            ("dispatch.lease", self.dispatch.lease),
            ("dispatch.call_timeout", self.dispatch.call_timeout),
        ];
        let mut shared: BTreeMap<String, String> =
            times.iter().map(|(key, micros)| ((*key).to_owned(), format(*micros))).collect();
        let counts = [
            ("dispatch.attempts_max", self.dispatch.attempts_max),
            ("dispatch.replays_max", self.dispatch.replays_max),
        ];
        shared.extend(counts.iter().map(|(key, n)| ((*key).to_owned(), n.to_string())));
        for (channel, names) in &self.routes {
            shared.insert(format!("routes.{channel}"), names.join(", "));
        }
        shared.extend(self.sending.shared());
        shared.insert("templates.folder".to_owned(), self.templates.digest());
        for name in self.routed() {
            let Some(provider) = self.providers.get(name) else { continue };
            let settle = provider.settle.map_or_else(|| "none".to_owned(), format);
            shared.insert(format!("providers.{name}.settle"), settle);
            shared.insert(format!("providers.{name}.kind"), provider.kind.clone());
        }
        shared
    }

    /// Names of the providers that some channel uses, each once.
    fn routed(&self) -> std::collections::BTreeSet<&str> {
        self.routes.values().flatten().map(String::as_str).collect()
    }

    fn check_times(&self, refuse: &mut impl FnMut(&str, &str, &str)) {
        let (admission, dispatch) = (&self.admission, &self.dispatch);
        for (key, micros) in [
            ("dispatch.margin", dispatch.margin),
            ("dispatch.call_timeout", dispatch.call_timeout),
            ("resolver.timeout", self.resolver.timeout),
            ("reconcile.read_timeout", self.reconcile.read_timeout),
            ("reconcile.first_poll", self.reconcile.first_poll),
            ("dispatch.backoff_first", dispatch.backoff_first),
        ] {
            if micros <= 0 {
                refuse(key, "is not more than zero", "set it to a duration such as \"5s\"");
            }
        }
        for (key, count) in [
            ("dispatch.workers", dispatch.workers),
            ("reconcile.workers", self.reconcile.workers),
            ("admission.queue_max", admission.queue_max),
            ("admission.batch_max", admission.batch_max),
            (
                "dispatch.release_per_second",
                usize::try_from(dispatch.release_per_second).unwrap_or(1),
            ),
        ] {
            if count == 0 {
                refuse(key, "is zero, so nothing would ever be done", "set it to at least 1");
            }
        }
        if dispatch.margin >= admission.max_lifetime
            && admission.min_lifetime <= admission.max_lifetime
        {
            refuse(
                "dispatch.margin",
                &format!(
                    "{} is not shorter than admission.max_lifetime ({}), so no call could ever start",
                    format(dispatch.margin),
                    format(admission.max_lifetime)
                ),
                "make it shorter than any event lives",
            );
        }
        if !is_log_filter(&self.log.level) {
            refuse(
                "log.level",
                "names no level",
                "use error, warn, info, debug or trace, or directives such as \"info,server::dispatch=debug\"",
            );
        }
        if !(1..=app::model::ATTEMPT_CEILING).contains(&dispatch.attempts_max) {
            let help = format!("set it to 1 to {}", app::model::ATTEMPT_CEILING);
            refuse("dispatch.attempts_max", "is out of range", &help);
        }
        let needed = self
            .resolver
            .timeout
            .saturating_add(dispatch.call_timeout)
            .saturating_add(LEASE_RESERVE);
        if dispatch.lease < needed {
            refuse(
                "dispatch.lease",
                &format!(
                    "{} is shorter than resolver.timeout + dispatch.call_timeout + 1s ({}), so a \
                     lease could end while its call still starts",
                    format(dispatch.lease),
                    format(needed)
                ),
                &format!("set it to at least \"{}\"", format(needed)),
            );
        }
        if dispatch.lease > admission.min_lifetime {
            refuse(
                "dispatch.lease",
                &format!(
                    "{} is longer than admission.min_lifetime ({}), so one lost lease could use up \
                     an event's whole life",
                    format(dispatch.lease),
                    format(admission.min_lifetime)
                ),
                &format!(
                    "set it to at most \"{0}\", or admission.min_lifetime (by default dispatch.margin \
                     + dispatch.call_timeout) to at least \"{1}\"",
                    format(admission.min_lifetime),
                    format(dispatch.lease)
                ),
            );
        }
        for (low_key, low, high_key, high) in [
            (
                "admission.min_lifetime",
                admission.min_lifetime,
                "admission.max_lifetime",
                admission.max_lifetime,
            ),
            (
                "dispatch.backoff_first",
                dispatch.backoff_first,
                "dispatch.backoff_max",
                dispatch.backoff_max,
            ),
            (
                "reconcile.first_poll",
                self.reconcile.first_poll,
                "reconcile.max_poll",
                self.reconcile.max_poll,
            ),
            (
                "ui.idle_timeout",
                self.ui.idle_timeout,
                "ui.absolute_timeout",
                self.ui.absolute_timeout,
            ),
        ] {
            if low > high {
                refuse(
                    high_key,
                    &format!("{} is shorter than {low_key} ({})", format(high), format(low)),
                    &format!("set it to at least \"{}\"", format(low)),
                );
            }
        }
    }

    fn check_server(&self, refuse: &mut impl FnMut(&str, &str, &str)) {
        let server = &self.server;
        check_url("server.public_url", &server.public_url, true, refuse);
        let demos = self.providers.iter().filter_map(|(name, provider)| {
            Some((format!("providers.{name}.listen"), provider.listen.as_deref()?))
        });
        let mut taken: Vec<(String, &str)> = Vec::new();
        let own = [
            ("server.listen".to_owned(), Some(server.listen.as_str())),
            ("server.health_listen".to_owned(), server.health_listen.as_deref()),
        ];
        let own = own.into_iter().filter_map(|(key, listen)| Some((key, listen?)));
        for (key, listen) in own.chain(demos) {
            match split_listen(listen) {
                None => refuse(
                    &key,
                    "is not an address and a port",
                    "write it as \"127.0.0.1:3000\" or \"[::1]:3000\"",
                ),
                Some((_, port)) => {
                    let same = taken.iter().find(|(_, other)| *other == listen && port != 0);
                    if let Some((other, _)) = same {
                        let message = format!("is the same as {other}");
                        refuse(&key, &message, "give each its own port");
                    }
                    taken.push((key, listen));
                }
            }
        }
    }

    fn check_database(&self, refuse: &mut impl FnMut(&str, &str, &str)) {
        let url = self.database_url.expose();
        let is_known =
            ["sqlite:", "postgres://", "postgresql://"].iter().any(|known| url.starts_with(known));
        if !is_known {
            refuse(
                "database.url",
                "names no database that is supported",
                "set DATABASE_URL to sqlite://<path> or postgres://<user>@<host>/<name>",
            );
        } else if url.contains(":memory:") || url.contains("mode=memory") {
            refuse(
                "database.url",
                "keeps the ledger in memory, where no admission survives the process",
                "set DATABASE_URL to sqlite://<path>",
            );
        }
    }

    fn check_routes(&self, refuse: &mut impl FnMut(&str, &str, &str)) {
        for (channel, names) in &self.routes {
            let key = format!("routes.{channel}");
            for (at, name) in names.iter().enumerate() {
                let Some(provider) = self.providers.get(name) else {
                    // What is no name is not repeated: it may be anything.
                    let is_name = name.len() <= 64
                        && name
                            .chars()
                            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
                    let shown = if is_name { name.as_str() } else { "something" };
                    let known: Vec<&str> = self.providers.keys().map(String::as_str).collect();
                    refuse(
                        &key,
                        &format!("names {shown}, which is no configured provider"),
                        &format!("use one of {}, or add its table", known.join(", ")),
                    );
                    continue;
                };
                if names[..at].contains(name) {
                    refuse(&key, &format!("names {name} twice"), "name each provider once");
                }
                let serves =
                    provider.known_kind().is_some_and(|kind| kind.channels.contains(channel));
                if !serves {
                    refuse(
                        &key,
                        &format!(
                            "names {name}, and kind {} does not carry {channel}",
                            provider.kind
                        ),
                        &format!("name a provider for {channel}"),
                    );
                }
            }
        }
        let default: Channel = self.admission.default_channel;
        if self.routes.get(&default).is_none_or(Vec::is_empty) {
            refuse(
                &format!("routes.{default}"),
                "is empty, and admission.default_channel is this channel",
                "name a provider, or change admission.default_channel",
            );
        }
    }

    fn check_provider(
        &self,
        name: &str,
        provider: &ProviderConfig,
        refuse: &mut impl FnMut(&str, &str, &str),
    ) {
        let key = |key: &str| format!("providers.{name}.{key}");
        let Some(kind) = provider.known_kind() else {
            refuse(&key("kind"), "is no kind of provider", "see `sendonce provider list`");
            return;
        };
        if !kind.is_available() {
            refuse(
                &key("kind"),
                &format!("{} is not part of this version", kind.name),
                "use demo or http, or remove the provider; see `sendonce provider list`",
            );
        }
        for group in kind.required {
            if !group.iter().any(|required| has(provider, required)) {
                let others: Vec<String> = group[1..].iter().map(|other| key(other)).collect();
                let or = if others.is_empty() {
                    String::new()
                } else {
                    format!(" or {}", others.join(" or "))
                };
                refuse(
                    &key(group[0]),
                    &format!("is missing, and kind {} needs it", kind.name),
                    &format!("set it{or}"),
                );
            }
        }
        let is_mail = kind.channels == [Channel::Email];
        if is_mail && provider.setting("from").is_some_and(|from| mail::address_of(from).is_none())
        {
            refuse(
                &key("from"),
                "is no sender of mail",
                "write it as \"no-reply@example.com\" or \"Name <no-reply@example.com>\"",
            );
        }
        if let Some(url) = &provider.base_url {
            check_url(&key("base_url"), url, true, refuse);
        }
        if provider.setting("tls") == Some("none")
            && !provider.setting("host").is_some_and(is_loopback_host)
        {
            refuse(
                &key("tls"),
                "is none, so links would travel readable over the network",
                "set it to \"starttls\" or \"implicit\"",
            );
        }
        if provider.idempotent && kind.idempotency.is_none() {
            refuse(
                &key("idempotent"),
                &format!(
                    "{} looks at no key of a repeated send, so it would send again",
                    kind.name
                ),
                "remove it",
            );
        }
        if let Some(window) = provider.replay_window().filter(|w| *w <= self.dispatch.call_timeout)
        {
            refuse(
                &key("window"),
                &format!(
                    "{} is not longer than dispatch.call_timeout ({}), so no repeat could be sure to meet it",
                    format(window),
                    format(self.dispatch.call_timeout)
                ),
                "set it to what the provider documents, or idempotent to false",
            );
        }
        check_settle(&key("settle"), provider, kind, refuse);
    }
}

/// Fewer characters than this are guessed by trying them all.
const SECRET_CHARS_MIN: usize = 8;

/// Whether each directive of a log filter ends in a level that there is.
fn is_log_filter(text: &str) -> bool {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    text.split(',').all(|directive| {
        let level = directive.rsplit('=').next().unwrap_or_default().trim();
        LEVELS.iter().any(|known| level.eq_ignore_ascii_case(known))
    })
}

fn check_settle(
    key: &str,
    provider: &ProviderConfig,
    kind: &Kind,
    refuse: &mut impl FnMut(&str, &str, &str),
) {
    let Some(settle) = provider.settle else { return };
    if settle <= 0 {
        refuse(
            key,
            "is zero, so a message that is not yet visible would be sent again",
            "set it to how long the look-up may miss a message, or remove it",
        );
    }
    if let Some(lag) = kind.lag.filter(|lag| settle < *lag) {
        refuse(
            key,
            &format!(
                "{} is shorter than the lag that {} documents ({})",
                format(settle),
                kind.name,
                format(lag)
            ),
            &format!("set it to at least \"{}\", or remove it", format(lag)),
        );
    }
}

fn has(provider: &ProviderConfig, key: &str) -> bool {
    match key {
        "base_url" => provider.base_url.is_some(),
        "secret" => provider.secret.is_some(),
        _ => provider.settings.contains_key(key) || provider.credentials.contains_key(key),
    }
}

/// Refuses what is no absolute http(s) address, what carries a password, and what would send secrets
/// readable over a network.
pub(super) fn check_url(
    key: &str,
    text: &str,
    is_base: bool,
    refuse: &mut impl FnMut(&str, &str, &str),
) {
    let url = match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => url,
        _ => {
            refuse(
                key,
                "is not an absolute http:// or https:// address",
                "write it as \"https://host.example.com\"",
            );
            return;
        }
    };
    if !url.username().is_empty() || url.password().is_some() {
        refuse(key, "carries a user name or password", "move it to the keys of its own");
    }
    if is_base && (url.query().is_some() || url.fragment().is_some()) {
        refuse(key, "carries a query or a fragment", "end it with the path");
    }
    if url.scheme() == "http" && !is_loopback(&url) {
        refuse(
            key,
            "is plain http:// to another machine, so links and keys would travel readable",
            "use https://, or a loopback address",
        );
    }
}

fn is_loopback_url(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| is_loopback(&url))
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => {
            ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback())
        }
        Some(Host::Domain(name)) => is_localhost(name),
        None => false,
    }
}

fn is_localhost(name: &str) -> bool {
    name.strip_suffix('.').unwrap_or(name).eq_ignore_ascii_case("localhost")
}

/// Whether a host, as text without a port, is this machine.
pub(super) fn is_loopback_host(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<std::net::IpAddr>().map_or_else(|_| is_localhost(host), |ip| ip.is_loopback())
}

fn is_loopback_listen(listen: &str) -> bool {
    split_listen(listen).is_some_and(|(host, _)| is_loopback_host(host))
}

/// Host and port of an address to listen on.
fn split_listen(listen: &str) -> Option<(&str, u16)> {
    let (host, port) = listen.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let is_ip = host.trim_start_matches('[').trim_end_matches(']').contains(':');
    let is_host = if is_ip {
        host.starts_with('[')
            && host.ends_with(']')
            && host[1..host.len() - 1].parse::<std::net::Ipv6Addr>().is_ok()
    } else {
        !host.is_empty()
            && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
    };
    is_host.then_some((host, port))
}
