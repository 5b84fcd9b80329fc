//! The ambiguity trial: what a provider lets us know after a lost answer, tried and not believed.
//!
//! It runs the product itself, with a ledger of its own in a temporary folder, against the simulator (or,
//! asked to, against the account that is configured), and judges by the facts of that ledger. Nothing of it
//! touches the real ledger; only the report is kept there.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use app::model::{Channel, Fact, FactKind, Reason, Record, Stamp, State};
use async_trait::async_trait;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::admission::AdmissionAnswer;
use crate::cli::serve::Part;
use crate::config::{Config, Kind, ProviderConfig};
use crate::domain::{Doubt, Lookup, Verdict};
use crate::http::api::{ApiState, api_router};
use crate::node::{Node, Seams};
use crate::providers::resolver::{self, Resolution, ResolveRequest, Resolved, Resolver};
use crate::providers::{
    Callback, CallbackError, CallbackRequest, Capability, Deadline, Message, Provider, Query,
    Reading, Registry, Secret,
};
use crate::simulator::{
    self, Behaviour, CallbackTarget, Callbacks, Options, Script, Settings, Simulator,
};
use crate::store::{Trial, TrialStep};

/// How long an event of the trial lives, in microseconds: what is unknown until then stays so.
const LIFE: i64 = 10_000_000;

/// How long after that the trial waits at most.
const PATIENCE: i64 = 5_000_000;

/// Between two looks at the ledger.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// The settle time against the simulator, where one is configured: longer than its lag below.
const SETTLE: i64 = 1_500_000;

/// How long the simulator's look-ups miss a message in the scenario of that name.
const LAG: i64 = 700_000;

/// The settings of the trial's own process: everything quick, nothing else changed.
pub(crate) const CONFIG: &str = r#"
[admission]
min_lifetime = "5s"
[dispatch]
margin = "500ms"
lease = "5s"
call_timeout = "2s"
backoff_first = "100ms"
[reconcile]
first_poll = "200ms"
max_poll = "1s"
poll_for = "6s"
read_timeout = "2s"
[resolver]
kind = "demo"
timeout = "1s"
"#;

/// What is tried, in this order.
pub const SCENARIOS: &[&str] = &[
    "normal",
    "lost_after_acceptance",
    "lost_before_acceptance",
    "lookup_lag",
    "duplicate_callbacks",
    "callbacks_out_of_order",
];

/// Whom the trial talks to.
#[derive(Debug, Clone)]
pub enum Target {
    /// The simulator inside this process.
    Simulator,
    /// The account that is configured; every message goes to this number or address.
    Sandbox { to: Secret },
}

impl Target {
    const fn word(&self) -> &'static str {
        match self {
            Self::Simulator => "simulator",
            Self::Sandbox { .. } => "sandbox",
        }
    }
}

/// What one scenario came to.
#[derive(Debug, Clone)]
pub struct Case {
    pub scenario: &'static str,
    pub record: Record,
    pub facts: Vec<Fact>,
    /// Calls and messages that the simulator counted; none against a sandbox.
    pub counted: Option<(usize, usize)>,
    /// What must hold for every provider held.
    pub holds: bool,
}

/// What a trial came to.
#[derive(Debug, Clone)]
pub struct Report {
    pub trial: Trial,
    pub capability: Capability,
    pub cases: Vec<Case>,
}

impl Report {
    /// Every scenario held.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.cases.len() == SCENARIOS.len() && self.cases.iter().all(|case| case.holds)
    }

    /// What the verdict means for automatic resends.
    #[must_use]
    pub fn meaning(&self) -> &'static str {
        match (self.trial.verdict.as_str(), self.capability.settle) {
            (RECONCILABLE, Some(_)) => {
                "a lost answer is found by reading; what two look-ups after settle do not find is sent once more"
            }
            (RECONCILABLE, None) => {
                "a lost answer is found by reading; without settle absence is never believed, so nothing is sent again by itself"
            }
            (IDEMPOTENT, _) => {
                "a lost answer is repeated under the same key within the window, and the provider sends once"
            }
            _ => {
                "no automatic resend: after a lost answer the outcome stays unknown until it expires, unless a callback tells"
            }
        }
    }
}

const RECONCILABLE: &str = "reconcilable";
const IDEMPOTENT: &str = "idempotent";
const UNRECONCILABLE: &str = "unreconcilable";

/// What a kind needs beside its address to be tried against the simulator.
fn stand_in(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "demo" => "webhook_secret = \"trial\"",
        "http" => "secret = \"trial\"\nwebhook_secret = \"trial\"",
        "ses" => {
            "access_key_id = \"AKIDTRIAL\"\nsecret_access_key = \"trial\"\nregion = \"us-east-1\"\n\
             topic_arn = \"arn:aws:sns:us-east-1:123456789012:trial\"\nconfiguration_set = \"trial\"\n\
             from = \"no-reply@mg.example.com\""
        }
        "sendgrid" | "mailgun" | "infrai" => {
            "api_key = \"trial\"\nwebhook_secret = \"trial\"\nfrom = \"no-reply@mg.example.com\""
        }
        "postmark" => {
            "token = \"trial\"\nwebhook_secret = \"trial\"\nfrom = \"no-reply@mg.example.com\""
        }
        "resend" => {
            "api_key = \"trial\"\nwebhook_secret = \"whsec_dHJpYWx0cmlhbHRyaWFsdHJpYWw=\"\n\
             from = \"no-reply@mg.example.com\""
        }
        "smtp" => {
            "host = \"127.0.0.1\"\nport = 1\ntls = \"none\"\nwebhook_secret = \"trial\"\n\
             from = \"no-reply@mg.example.com\""
        }
        "twilio" => "account_sid = \"AC1\"\nauth_token = \"trial\"\nfrom = \"+15005550006\"",
        "sinch" => "token = \"trial\"\nwebhook_secret = \"trial\"\nfrom = \"15005550006\"",
        "infobip" => "api_key = \"trial\"\nwebhook_secret = \"trial\"\nfrom = \"15005550006\"",
        _ => return None,
    })
}

/// The configuration under which a kind is tried that is not configured.
///
/// # Errors
/// When there is no such kind, or this version has no adapter for it.
pub fn stand_in_config(kind: &str) -> anyhow::Result<ProviderConfig> {
    let lines = stand_in(kind).with_context(|| format!("there is no kind \"{kind}\""))?;
    let name = if kind == "demo" { "demo" } else { "trial" };
    let base = match kind {
        "demo" | "smtp" => "",
        _ => "base_url = \"http://127.0.0.1:1\"",
    };
    let text = format!("[providers.{name}]\nkind = \"{kind}\"\n{base}\n{lines}");
    let mut config = Config::parse("trial", &text, std::iter::empty())?;
    config.providers.remove(name).context("the stand-in is read back")
}

/// The folder of the trial's ledger, gone with it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Gives every scenario a destination of its own, or all of them the sandbox's.
#[derive(Debug)]
struct Places {
    to: Option<Secret>,
}

pub(crate) fn place(scenario: usize, channel: Channel) -> String {
    match channel {
        Channel::Sms => format!("+1202555010{scenario}"),
        Channel::Email => format!("trial-{scenario}@example.com"),
    }
}

#[async_trait]
impl Resolver for Places {
    async fn resolve(&self, request: &ResolveRequest, _: Deadline) -> Resolution {
        let number = request.destination_ref.strip_prefix("trial-").and_then(|n| n.parse().ok());
        let Some(number) = number else { return Resolution::NotFound };
        let text = match &self.to {
            Some(to) => to.clone(),
            None => Secret::new(place(number, request.channel)),
        };
        let link = Secret::new(format!("https://sendonce.example/trial/{}", request.event_id));
        resolver::address(request.channel, text.expose())
            .map_or(Resolution::NotFound, |(to, canonical)| {
                Resolution::Found(Resolved { canonical, to, link, locale: None })
            })
    }
}

/// What a sandbox cannot be asked to do: the answer of a first call is lost, before or after it was made.
#[derive(Debug)]
struct Lossy {
    inner: Arc<dyn Provider>,
    /// By attempt id: whether the request is sent at all.
    lost: HashMap<String, bool>,
}

#[async_trait]
impl Provider for Lossy {
    fn capability(&self) -> &Capability {
        self.inner.capability()
    }

    async fn send(&self, message: &Message, deadline: Deadline) -> Verdict {
        let lost = self.lost.get(&message.attempt_id).copied();
        let verdict = match lost {
            Some(false) => None,
            _ => Some(self.inner.send(message, deadline).await),
        };
        match (lost, verdict) {
            (None, Some(verdict)) => verdict,
            _ => Verdict::Unknown { why: Doubt::ConnectionLost, code: "lost".to_owned() },
        }
    }

    async fn find(&self, query: &Query, deadline: Deadline) -> Lookup {
        self.inner.find(query, deadline).await
    }

    async fn verify_callback(
        &self,
        request: &CallbackRequest<'_>,
    ) -> Result<Callback, CallbackError> {
        self.inner.verify_callback(request).await
    }
}

/// The simulator's side of a trial.
struct Stage {
    simulator: Arc<Simulator>,
    kind: &'static str,
    channel: Channel,
    target: Option<CallbackTarget>,
    secret: Option<Secret>,
}

impl Stage {
    /// Says what the simulator does with the calls of one scenario.
    fn script(&self, number: usize, scenario: &str) -> anyhow::Result<()> {
        let (behaviour, callbacks, lookup_lag) = match scenario {
            "lost_after_acceptance" => {
                (vec![Behaviour::AcceptThenReset, Behaviour::Accept], Callbacks::None, 0)
            }
            "lost_before_acceptance" => {
                (vec![Behaviour::ResetBeforeAccept, Behaviour::Accept], Callbacks::None, 0)
            }
            "lookup_lag" => {
                (vec![Behaviour::AcceptThenReset, Behaviour::Accept], Callbacks::None, LAG)
            }
            "duplicate_callbacks" => (vec![Behaviour::Accept], Callbacks::Duplicate, 0),
            "callbacks_out_of_order" => (vec![Behaviour::Accept], Callbacks::OutOfOrder, 0),
            _ => (vec![Behaviour::Accept], Callbacks::None, 0),
        };
        let mut script = Script::new(self.kind, behaviour);
        script.matches.destination = Some(place(number, self.channel));
        script.options = Options {
            lookup_lag,
            callbacks,
            target: self.target.clone(),
            secret: self.secret.clone(),
            ..Options::default()
        };
        self.simulator.script(script)?;
        Ok(())
    }

    /// Calls and messages of these attempts.
    fn counted(&self, attempts: &[String]) -> (usize, usize) {
        let count = |one: &String| {
            (self.simulator.calls(Some(one)).len(), self.simulator.messages(Some(one)).len())
        };
        attempts.iter().map(count).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}

/// Runs the trial of one provider.
///
/// # Errors
/// When the trial's own process cannot be built; what the provider does is never an error.
pub async fn run(
    name: &str,
    provider: &ProviderConfig,
    target: &Target,
    seams: &Seams,
) -> anyhow::Result<Report> {
    let kind = Kind::find(&provider.kind).context("there is no such kind")?;
    let channel = *kind.channels.first().context("the kind carries nothing")?;
    let id = seams.entropy.uuid(seams.clock.now());
    let folder = Folder(std::env::temp_dir().join(format!("sendonce-trial-{id}")));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    // Callbacks of an account outside find no way to it: against a sandbox there are look-ups alone.
    let public_url = format!("http://{}", listener.local_addr()?);
    let closing = CancellationToken::new();
    let closed = closing.clone().drop_guard();

    // Read with its folder, so that every path that follows from it lies there as well.
    let place = toml::Value::String(folder.0.display().to_string());
    let text = format!("[server]\ndata_dir = {place}\n{CONFIG}");
    let mut config = Config::parse("trial", &text, std::iter::empty())?;
    config.server.public_url.clone_from(&public_url);
    let name = if kind.name == "demo" { "demo" } else { name };
    let mut tried = provider.clone();
    tried.reads_per_minute = None;
    let own = match target {
        Target::Simulator if kind.name != "demo" => {
            Some(open_simulator(kind, &mut tried, seams).await?)
        }
        Target::Simulator | Target::Sandbox { .. } => None,
    };
    let _simulator = own.as_ref().map(|simulator| simulator.closing().clone().drop_guard());
    let callback_key = kind.callback_key.and_then(|key| value_of(&tried, key));
    config.providers.insert(name.to_owned(), tried);
    for routed in Channel::ALL {
        let names = if *routed == channel { vec![name.to_owned()] } else { Vec::new() };
        config.routes.insert(*routed, names);
    }

    let parts: BTreeSet<Part> = [Part::Api, Part::Dispatch, Part::Reconcile].into();
    let mut node = Node::build(config, seams, parts, true).await?;
    let events: Vec<String> = SCENARIOS.iter().map(|scenario| format!("{scenario}-{id}")).collect();
    let to = match target {
        Target::Simulator => None,
        Target::Sandbox { to } => Some(to.clone()),
    };
    node.resolver = Arc::new(Places { to });
    let inner = Arc::clone(node.registry.get(name).context("the provider is built")?);
    let capability = inner.capability().clone();
    let stage = match target {
        Target::Simulator => {
            let simulator = match own {
                Some(simulator) => simulator,
                None => Arc::clone(node.registry.demo().context("demo is built")?.simulator()),
            };
            let url = format!("{public_url}/webhooks/{name}");
            // Vendors of text messages are told with each call where its callbacks go.
            let is_told = kind.channels.len() == 1 && channel == Channel::Sms;
            let stage = Stage {
                simulator,
                kind: kind.name,
                channel,
                target: callback_key
                    .clone()
                    .filter(|_| !is_told)
                    .map(|key| CallbackTarget { url, key }),
                secret: callback_key.filter(|_| is_told),
            };
            for (number, scenario) in SCENARIOS.iter().enumerate() {
                stage.script(number, scenario)?;
            }
            Some(stage)
        }
        Target::Sandbox { .. } => {
            let first = |scenario: usize| node.env.keys.attempt_id(&events[scenario], 1);
            let lost = [(first(1), true), (first(2), false), (first(3), true)].into();
            let lossy: Arc<dyn Provider> = Arc::new(Lossy { inner, lost });
            node.registry = Arc::new(Registry::of([(name.to_owned(), lossy)].into()));
            None
        }
    };
    let router = api_router(ApiState {
        store: Arc::clone(&node.store),
        admission: Arc::clone(&node.admission),
        registry: Arc::clone(&node.registry),
        wakeups: node.wakeups.clone(),
        clock: Arc::clone(&node.env.clock),
        entropy: Arc::clone(&node.env.entropy),
        keys: Arc::clone(&node.env.keys),
        public_url: public_url.as_str().into(),
    });
    let serving = tokio::spawn(crate::http::listen::serve(
        listener,
        router,
        Arc::clone(&node.env.clock),
        closing,
    ));
    node.start();
    let started_at = node.env.clock.now();
    let cases = carry(&node, &events, channel, stage.as_ref(), &capability).await;
    let ended_at = node.env.clock.now();
    drop(closed);
    let _ = serving.await;
    node.stop().await;
    let cases = cases?;
    let trial = Trial {
        id,
        provider: name.to_owned(),
        kind: kind.name.to_owned(),
        target: target.word().to_owned(),
        verdict: verdict(&cases).to_owned(),
        started_at,
        ended_at,
        steps: cases.iter().flat_map(steps).collect(),
    };
    Ok(Report { trial, capability, cases })
}

/// The value of a key under which callbacks are checked.
fn value_of(provider: &ProviderConfig, key: &str) -> Option<Secret> {
    let secret = match key {
        "webhook_secret" => provider.webhook_secret.clone(),
        key => provider.credential(key).cloned(),
    };
    let shown = || provider.setting(key).map(|text| Secret::new(text.to_owned()));
    secret.or_else(shown).filter(|secret| !secret.expose().is_empty())
}

/// A simulator for this trial alone, with the provider pointed at it. `demo` brings its own.
pub(crate) async fn open_simulator(
    kind: &Kind,
    tried: &mut ProviderConfig,
    seams: &Seams,
) -> anyhow::Result<Arc<Simulator>> {
    let settings = Settings { has_control: false, deliver_after: 300_000, ..Settings::default() };
    let simulator = Simulator::new(
        settings,
        None,
        Arc::clone(&seams.clock),
        Arc::clone(&seams.entropy),
        Arc::clone(&seams.transport),
    );
    tried.settle = tried.settle.map(|settle| settle.min(SETTLE));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    if kind.name == "smtp" {
        for (key, value) in
            [("host", "127.0.0.1"), ("port", &address.port().to_string()), ("tls", "none")]
        {
            tried.settings.insert(key.to_owned(), value.to_owned());
        }
        tried.settings.remove("username");
        tried.credentials.remove("password");
        tokio::spawn(simulator::serve_smtp(listener, Arc::clone(&simulator)));
    } else {
        tried.base_url = Some(format!("http://{address}/{}", kind.name));
        tokio::spawn(simulator::serve(listener, Arc::clone(&simulator)));
    }
    Ok(simulator)
}

/// Admits one event for each scenario and waits for what becomes of them.
async fn carry(
    node: &Node,
    events: &[String],
    channel: Channel,
    stage: Option<&Stage>,
    capability: &Capability,
) -> anyhow::Result<Vec<Case>> {
    let expires_at = node.env.clock.now().plus(LIFE);
    let mut ids = Vec::new();
    for (number, event_id) in events.iter().enumerate() {
        let event = serde_json::json!({
            "event_id": event_id,
            "idempotency_key": event_id,
            "destination_ref": format!("trial-{number}"),
            "reset_ref": format!("reset-{number}"),
            "channel": channel,
            "expires_at": expires_at,
        });
        match node.admission.admit(event.to_string().as_bytes(), "trial").await {
            AdmissionAnswer::Admitted { record, .. } => ids.push(record.id),
            _ => anyhow::bail!("the trial's own ledger did not admit an event"),
        }
    }
    let ends = expires_at.plus(PATIENCE);
    let mut cases = Vec::new();
    for ((id, event_id), scenario) in ids.iter().zip(events).zip(SCENARIOS) {
        let record = loop {
            let record = node.store.record(id).await?.context("the event is in the ledger")?;
            if record.settled || node.env.clock.now() >= ends {
                break record;
            }
            node.env.clock.sleep(LOOK).await;
        };
        let facts = node.store.timeline(id).await?.unwrap_or_default();
        let attempts: Vec<String> = (1..=record.attempts)
            .map(|number| node.env.keys.attempt_id(event_id, number))
            .collect();
        let counted = stage.map(|stage| stage.counted(&attempts));
        let holds = holds(&record, &facts, counted, scenario, capability);
        cases.push(Case { scenario, record, facts, counted, holds });
    }
    Ok(cases)
}

/// What must hold for every provider, whatever it can do.
fn holds(
    record: &Record,
    facts: &[Fact],
    counted: Option<(usize, usize)>,
    scenario: &str,
    capability: &Capability,
) -> bool {
    let count = |reason| facts.iter().filter(|fact| fact.reason == Some(reason)).count();
    let proofs = [
        Reason::NotSent,
        Reason::RateLimited,
        Reason::TransientRefusal,
        Reason::ProviderStopped,
        Reason::ReconciledAbsent,
    ];
    let proven: usize = proofs.into_iter().map(count).sum();
    let replays = count(Reason::IdempotentReplay);
    let calls = usize::try_from(record.calls).unwrap_or(usize::MAX);
    let is_bounded = calls <= 1 + proven + replays;
    let is_counted = counted.is_none_or(|(seen, messages)| seen == calls && messages <= 1);
    let has_gone_out = matches!(record.state, State::Sent | State::Delivered);
    let is_unknown =
        record.state == State::Expired && record.reason == Reason::ExpiredUnresolved && calls == 1;
    let is_told_once = |seen: &str| {
        let told = facts.iter().filter(|fact| {
            fact.kind == FactKind::Callback && fact.detail.get_code("seen") == Some(seen)
        });
        told.count() <= 2
    };
    let can_read = capability.reading != Reading::None;
    let fits = match scenario {
        "lost_after_acceptance" | "lookup_lag" => {
            let must_find = can_read || capability.replay_window.is_some();
            (has_gone_out && (calls == 1 || replays > 0))
                || (is_unknown && !must_find)
                || (is_unknown && capability.lag.is_some())
        }
        "lost_before_acceptance" => {
            let may_send = capability.settle.is_some() || capability.replay_window.is_some();
            if may_send { (has_gone_out && calls > 1) || is_unknown } else { is_unknown }
        }
        _ => has_gone_out && calls == 1,
    };
    is_bounded && is_counted && fits && is_told_once("delivered") && is_told_once("accepted")
}

/// By what was seen, not by what is promised.
fn verdict(cases: &[Case]) -> &'static str {
    let lost: Vec<&Case> = cases
        .iter()
        .filter(|case| matches!(case.scenario, "lost_after_acceptance" | "lookup_lag"))
        .collect();
    let has_gone_out = |case: &&&Case| matches!(case.record.state, State::Sent | State::Delivered);
    let is_found = |case: &&Case| {
        case.facts.iter().any(|fact| {
            fact.kind == FactKind::Lookup && fact.detail.get_code("answer") == Some("found")
        })
    };
    let is_repeated =
        |case: &&Case| case.facts.iter().any(|fact| fact.reason == Some(Reason::IdempotentReplay));
    let resolved: Vec<&&Case> = lost.iter().filter(has_gone_out).collect();
    if resolved.is_empty() {
        UNRECONCILABLE
    } else if resolved.iter().all(|case| is_repeated(case)) {
        IDEMPOTENT
    } else if resolved.iter().any(|case| is_found(case)) {
        RECONCILABLE
    } else {
        UNRECONCILABLE
    }
}

/// What was done and seen, as codes, ids and times.
fn steps(case: &Case) -> Vec<TrialStep> {
    let step = |fact: &Fact| {
        let (what, outcome) = match fact.kind {
            FactKind::Call => ("call", "started"),
            FactKind::Lookup => ("look_up", fact.detail.get_code("answer").unwrap_or("found")),
            FactKind::Callback => ("callback", fact.detail.get_code("seen").unwrap_or("accepted")),
            FactKind::Transition => ("state", fact.reason.map_or("none", Reason::as_str)),
            _ => return None,
        };
        Some(TrialStep {
            scenario: case.scenario.to_owned(),
            what: what.to_owned(),
            attempt_id: fact.attempt_id.clone().unwrap_or_default(),
            message_id: fact.provider_message_id.clone(),
            outcome: outcome.to_owned(),
            code: fact.detail.get_code("code").map(str::to_owned),
            at: fact.at,
        })
    };
    case.facts.iter().filter_map(step).collect()
}

/// When a report was made, for people.
#[must_use]
pub fn lasted(trial: &Trial) -> i64 {
    let span = |from: Stamp, to: Stamp| to.since(from).max(0);
    span(trial.started_at, trial.ended_at)
}

#[cfg(test)]
#[path = "trial_tests.rs"]
mod tests;
