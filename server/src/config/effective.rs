//! What is in force, as TOML with secrets hidden.

use std::fmt::Write as _;

use toml::Value;
use url::Url;

use super::duration::format;
use super::{Config, KeySource, Oidc, ProviderConfig, ResolverKind};
use crate::policy::breaker::Budget;
use crate::policy::{Scope, prices};

/// Stands where a secret is.
pub(super) const HIDDEN: &str = "[hidden]";

impl Config {
    /// The effective configuration, in the order of the manual. Every secret reads `[hidden]`, and so does
    /// the database's password.
    #[must_use]
    pub fn effective(&self) -> String {
        let mut sections = vec![
            ("server".to_owned(), self.server_table()),
            ("database".to_owned(), self.database_table()),
            ("admission".to_owned(), self.admission_table()),
            ("dispatch".to_owned(), self.dispatch_table()),
            ("reconcile".to_owned(), self.reconcile_table()),
            ("routes".to_owned(), self.routes_table()),
        ];
        for (name, provider) in &self.providers {
            sections.push((format!("providers.{name}"), provider_table(provider)));
        }
        sections.push(("resolver".to_owned(), self.resolver_table()));
        sections.push(("evidence".to_owned(), self.evidence_table()));
        sections.push(("slo".to_owned(), self.slo_table()));
        sections.push(("alerts".to_owned(), self.alerts_table()));
        let mut ui = Section::default();
        ui.time("idle_timeout", self.ui.idle_timeout);
        ui.time("absolute_timeout", self.ui.absolute_timeout);
        sections.push(("ui".to_owned(), ui));
        let mut auth = Section::default();
        let roles = self.auth.totp_required_roles.iter();
        let roles = roles.map(|role| Value::String(role.as_str().to_owned())).collect();
        auth.put("totp_required_roles", &Value::Array(roles));
        sections.push(("auth".to_owned(), auth));
        if let Some(oidc) = &self.oidc {
            sections.push(("oidc".to_owned(), oidc_table(oidc)));
        }
        let mut retention = Section::default();
        if let Some(kept) = self.retention.events {
            retention.time("events", kept);
        }
        if let Some(kept) = self.retention.operators {
            retention.time("operators", kept);
        }
        retention.time("retry_window", self.retention.retry_window);
        retention.time("every", self.retention.every);
        sections.push(("retention".to_owned(), retention));
        let mut log = Section::default();
        log.text("level", &self.log.level);
        log.flag("json", self.log.json);
        sections.push(("log".to_owned(), log));
        self.policy_sections(&mut sections);
        let texts: Vec<String> =
            sections.iter().map(|(name, section)| format!("[{name}]\n{}", section.0)).collect();
        texts.join("\n")
    }

    fn policy_sections(&self, sections: &mut Vec<(String, Section)>) {
        let sending = &self.sending;
        let mut out = Section::default();
        out.text("after_unknown", sending.after_unknown.as_str());
        out.text("mode", if sending.is_monitor { "monitor" } else { "enforce" });
        let list = |items: Vec<&String>| {
            Value::Array(items.into_iter().cloned().map(Value::String).collect())
        };
        out.put("countries", &list(sending.countries.iter().collect()));
        out.put("blocked_prefixes", &list(sending.blocked_prefixes.iter().collect()));
        out.maybe("prices", self.prices_file.as_deref());
        let price_max = sending.price_max.map(prices::format);
        out.maybe("price_max", price_max.as_deref());
        out.text("currency", &sending.currency);
        sections.push(("policy".to_owned(), out));
        if let Some(budget) = &sending.budget {
            sections.push(("policy.breaker".to_owned(), budget_table(budget)));
        }
        for (country, budget) in &sending.budgets {
            sections.push((format!("policy.breakers.{country}"), budget_table(budget)));
        }
        for (purpose, rule) in &sending.after_unknown_of {
            let mut out = Section::default();
            out.text("after_unknown", rule.as_str());
            sections.push((format!("policy.purposes.{purpose}"), out));
        }
        let mut out = Section::default();
        for scope in Scope::ALL {
            let limits = sending.limits.of(*scope).map(|limit| Value::String(limit.text()));
            out.put(scope.as_str(), &Value::Array(limits.collect()));
        }
        out.count("prefix_digits", sending.limits.prefix_digits);
        sections.push(("limits".to_owned(), out));
        let mut out = Section::default();
        out.maybe("folder", self.templates_folder.as_deref());
        out.text("locale", &self.templates_locale);
        sections.push(("templates".to_owned(), out));
    }

    fn routes_table(&self) -> Section {
        let mut out = Section::default();
        for (channel, names) in &self.routes {
            let names = names.iter().cloned().map(Value::String).collect();
            out.put(channel.as_str(), &Value::Array(names));
        }
        out
    }

    fn server_table(&self) -> Section {
        let server = &self.server;
        let mut out = Section::default();
        out.text("listen", &server.listen);
        out.text("public_url", &hidden_password(&server.public_url));
        out.text("data_dir", &server.data_dir.display().to_string());
        if let Some(folder) = &server.site_dir {
            out.text("site_dir", &folder.display().to_string());
        }
        out.maybe("health_listen", server.health_listen.as_deref());
        out.text("environment", &server.environment);
        let proxies: Vec<String> = server.trusted_proxies.iter().map(ToString::to_string).collect();
        let proxies = proxies.into_iter().map(Value::String).collect();
        out.put("trusted_proxies", &Value::Array(proxies));
        out.time("grace", server.grace);
        out
    }

    fn database_table(&self) -> Section {
        let mut out = Section::default();
        out.text("url", &hidden_password(self.database_url.expose()));
        out
    }

    fn admission_table(&self) -> Section {
        let admission = &self.admission;
        let mut out = Section::default();
        out.text("default_channel", admission.default_channel.as_str());
        out.time("min_lifetime", admission.min_lifetime);
        out.time("max_lifetime", admission.max_lifetime);
        out.count("queue_max", admission.queue_max);
        out.count("batch_max", admission.batch_max);
        out.count("writers", admission.writers);
        out
    }

    fn dispatch_table(&self) -> Section {
        let dispatch = &self.dispatch;
        let mut out = Section::default();
        out.time("margin", dispatch.margin);
        out.time("lease", dispatch.lease);
        out.time("call_timeout", dispatch.call_timeout);
        out.number("attempts_max", dispatch.attempts_max);
        out.number("replays_max", dispatch.replays_max);
        out.time("backoff_first", dispatch.backoff_first);
        out.time("backoff_max", dispatch.backoff_max);
        out.count("workers", dispatch.workers);
        out.number("release_per_second", dispatch.release_per_second);
        out.text("sender", &dispatch.sender);
        out
    }

    fn reconcile_table(&self) -> Section {
        let reconcile = &self.reconcile;
        let mut out = Section::default();
        out.time("first_poll", reconcile.first_poll);
        out.time("max_poll", reconcile.max_poll);
        out.time("poll_for", reconcile.poll_for);
        out.count("workers", reconcile.workers);
        out.time("read_timeout", reconcile.read_timeout);
        out
    }

    fn evidence_table(&self) -> Section {
        let evidence = &self.evidence;
        let mut out = Section::default();
        out.text("directory", &evidence.directory.display().to_string());
        for (key, source) in [("key", &evidence.key), ("previous_key", &evidence.previous_key)] {
            match source {
                None => {}
                Some(KeySource::Text(_)) => out.text(key, HIDDEN),
                // A command may carry a password.
                Some(KeySource::Command(_)) => out.text(&format!("{key}_command"), HIDDEN),
            }
        }
        out.count("pack_facts_max", evidence.pack_facts_max);
        out
    }

    fn resolver_table(&self) -> Section {
        let mut out = Section::default();
        match &self.resolver.kind {
            ResolverKind::Demo => out.text("kind", "demo"),
            ResolverKind::Directory { path } => {
                out.text("kind", "directory");
                out.text("path", &path.display().to_string());
            }
            ResolverKind::Http { url, .. } => {
                out.text("kind", "http");
                out.text("url", &hidden_password(url));
                out.text("secret", HIDDEN);
            }
        }
        out.time("timeout", self.resolver.timeout);
        out
    }
}

fn budget_table(budget: &Budget) -> Section {
    let mut out = Section::default();
    out.time("window", budget.window);
    if let Some(max) = budget.messages_max {
        out.number("messages_max", max);
    }
    let price_max = budget.price_max.map(prices::format);
    out.maybe("price_max", price_max.as_deref());
    out.time("cooldown", budget.cooldown);
    out.number("probes", budget.probes);
    out
}

fn oidc_table(oidc: &Oidc) -> Section {
    let list = |words: &[String]| Value::Array(words.iter().cloned().map(Value::String).collect());
    let mut out = Section::default();
    out.text("issuer", &hidden_password(&oidc.issuer));
    out.text("name", &oidc.name);
    out.text("client_id", &oidc.client_id);
    out.text("client_secret", HIDDEN);
    out.put("scopes", &list(&oidc.scopes));
    out.text("role_claim", &oidc.role_claim);
    for (role, values) in &oidc.roles {
        out.put(role, &list(values));
    }
    out
}

fn provider_table(provider: &ProviderConfig) -> Section {
    let mut out = Section::default();
    out.text("kind", &provider.kind);
    if let Some(url) = &provider.base_url {
        out.text("base_url", &hidden_password(url));
    }
    if let Some(settle) = provider.settle {
        out.time("settle", settle);
    }
    out.flag("idempotent", provider.idempotent);
    if let Some(window) = provider.window {
        out.time("window", window);
    }
    out.flag("lookup", provider.lookup);
    if let Some(allowed) = provider.reads_per_minute {
        out.number("reads_per_minute", allowed);
    }
    out.maybe("listen", provider.listen.as_deref());
    for (key, text) in &provider.settings {
        match text.parse::<u32>() {
            Ok(port) if key == "port" => out.number(key, port),
            _ => out.text(key, text),
        }
    }
    for key in provider.credentials.keys() {
        out.text(key, HIDDEN);
    }
    out.maybe("secret", provider.secret.as_ref().map(|_| HIDDEN));
    out.maybe("webhook_secret", provider.webhook_secret.as_ref().map(|_| HIDDEN));
    out
}

/// The lines of one section.
#[derive(Default)]
pub(super) struct Section(String);

impl Section {
    fn put(&mut self, key: &str, value: &Value) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.0, "{key} = {value}");
    }

    pub(super) fn text(&mut self, key: &str, text: &str) {
        self.put(key, &Value::String(text.to_owned()));
    }

    pub(super) fn maybe(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(key, text);
        }
    }

    pub(super) fn time(&mut self, key: &str, micros: i64) {
        self.text(key, &format(micros));
    }

    fn number(&mut self, key: &str, number: u32) {
        self.put(key, &Value::Integer(i64::from(number)));
    }

    pub(super) fn count(&mut self, key: &str, count: usize) {
        self.put(key, &Value::Integer(i64::try_from(count).unwrap_or(i64::MAX)));
    }

    fn flag(&mut self, key: &str, flag: bool) {
        self.put(key, &Value::Boolean(flag));
    }
}

/// An address with the password in it hidden, wherever such addresses carry one. What cannot be
/// understood is hidden as a whole.
#[must_use]
pub fn hidden_password(text: &str) -> String {
    let Ok(url) = Url::parse(text) else {
        // `sqlite://relative/path` parses; a path with unusual characters may not, and has no password.
        let is_file = text.starts_with("sqlite:") && !text.contains('@');
        return if is_file { text.to_owned() } else { HIDDEN.to_owned() };
    };
    let mut shown = text.to_owned();
    if url.password().is_some() {
        // Text, not the parsed form: that would write the word's brackets as %5B and %5D.
        let Some((scheme, rest)) = text.split_once("://") else { return HIDDEN.to_owned() };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let Some(at) = rest[..end].rfind('@') else { return HIDDEN.to_owned() };
        let Some(colon) = rest[..at].find(':') else { return HIDDEN.to_owned() };
        shown = format!("{scheme}://{}:{HIDDEN}{}", &rest[..colon], &rest[at..]);
    }
    if let Some((before, query)) = shown.split_once('?') {
        let hidden: Vec<String> = query
            .split('&')
            .map(|pair| match pair.split_once('=') {
                Some((name, _)) if is_secret_name(name) => format!("{name}={HIDDEN}"),
                _ => pair.to_owned(),
            })
            .collect();
        shown = format!("{before}?{}", hidden.join("&"));
    }
    shown
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["pass", "secret", "token", "key"].iter().any(|word| name.contains(word))
}
