//! The rehearsal: the seven narratives that a reviewer must be able to see, run for real and taken away as evidence.
//!
//! It runs the product with a ledger of its own in a temporary folder against the simulator, so that nothing of
//! it touches the real ledger or a real provider. What it shows are the facts of that ledger, and its pack is
//! made and verified as any other.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context as _;
use app::model::{Channel, Fact, FactKind, Reason, Record, Stamp, State};
use async_trait::async_trait;

use crate::admission::AdmissionAnswer;
use crate::cli::serve::Part;
use crate::config::{Config, Kind, ProviderConfig};
use crate::evidence::pack::{self, Pack};
use crate::evidence::verdict::Side;
use crate::evidence::verify::verify;
use crate::node::{Node, Seams};
use crate::providers::resolver::{self, Resolution, ResolveRequest, Resolved, Resolver};
use crate::providers::{Deadline, Secret};
use crate::simulator::{Behaviour, Options, Script, Simulator};
use crate::store::{Consume, Consumed, Selection};
use crate::trial::{CONFIG, Folder, LOOK, open_simulator, place};

/// How long an event lives that has to see its end, in microseconds.
const SHORT: i64 = 6_000_000;
/// The others: longer than the rehearsal.
const LONG: i64 = 600_000_000;
/// How long a narrative is waited for.
const PATIENCE: i64 = 20_000_000;

/// One narrative as it went.
#[derive(Debug, Clone)]
pub struct Story {
    pub number: u8,
    pub title: &'static str,
    /// What was seen beside the facts, in sentences.
    pub seen: Vec<String>,
    /// With their facts, in the order in which they were admitted.
    pub records: Vec<(Record, Vec<Fact>)>,
    /// Why it is not what it has to be; empty where it is.
    pub faults: Vec<String>,
}

/// All of them, and their evidence.
#[derive(Debug)]
pub struct Rehearsal {
    pub stories: Vec<Story>,
    pub pack: Pack,
    /// The pack was verified: integrity, completeness.
    pub verdicts: (bool, bool),
}

impl Rehearsal {
    /// Everything was as it has to be.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.verdicts == (true, true) && self.stories.iter().all(|story| story.faults.is_empty())
    }
}

/// Destinations of the rehearsal: `place-N`; `down` cannot be resolved at the moment.
#[derive(Debug)]
struct Places;

#[async_trait]
impl Resolver for Places {
    async fn resolve(&self, request: &ResolveRequest, _: Deadline) -> Resolution {
        if request.destination_ref == "down" {
            return Resolution::Unavailable { code: "rehearsal".to_owned() };
        }
        let number = request.destination_ref.strip_prefix("place-").and_then(|n| n.parse().ok());
        let Some(number) = number else { return Resolution::NotFound };
        let link = Secret::new(format!("https://sendonce.example/rehearsal/{}", request.event_id));
        resolver::address(request.channel, &place(number, request.channel))
            .map_or(Resolution::NotFound, |(to, canonical)| {
                Resolution::Found(Resolved { canonical, to, link, locale: None })
            })
    }
}

/// The stage on which they are played.
struct Stage {
    node: Node,
    simulator: Arc<Simulator>,
    kind: &'static str,
    channel: Channel,
    run: String,
}

impl Stage {
    fn script(
        &self,
        number: usize,
        behaviour: Vec<Behaviour>,
        options: Options,
    ) -> anyhow::Result<()> {
        let mut script = Script::new(self.kind, behaviour);
        script.matches.destination = Some(place(number, self.channel));
        script.options = options;
        self.simulator.script(script)?;
        Ok(())
    }

    fn event(&self, name: &str, destination: &str, life: i64) -> serde_json::Value {
        let id = format!("{name}-{}", self.run);
        serde_json::json!({
            "event_id": id,
            "idempotency_key": id,
            "destination_ref": destination,
            "reset_ref": format!("reset-{name}"),
            "channel": self.channel,
            "expires_at": self.node.env.clock.now().plus(life),
        })
    }

    async fn offer(&self, event: &serde_json::Value) -> AdmissionAnswer {
        self.node.admission.admit(event.to_string().as_bytes(), "rehearsal").await
    }

    async fn admit(&self, event: &serde_json::Value) -> anyhow::Result<String> {
        match self.offer(event).await {
            AdmissionAnswer::Admitted { record, .. } => Ok(record.id),
            _ => anyhow::bail!("the rehearsal's own ledger did not admit an event"),
        }
    }

    /// The record once it is in one of these states, or as it is when patience ends.
    async fn until(&self, id: &str, states: &[State]) -> anyhow::Result<(Record, Vec<Fact>)> {
        let ends = self.node.env.clock.now().plus(PATIENCE);
        let record = loop {
            let record = self.node.store.record(id).await?.context("the event is in the ledger")?;
            if states.contains(&record.state) || record.settled || self.node.env.clock.now() >= ends
            {
                break record;
            }
            self.node.env.clock.sleep(LOOK).await;
        };
        Ok((record, self.node.store.timeline(id).await?.unwrap_or_default()))
    }

    async fn consume(&self, token: &str) -> anyhow::Result<Consumed> {
        let hash = crate::keys::sha256(token.as_bytes());
        let consume = Consume {
            token_id: self.node.env.keys.token_id(&hash),
            consume_hash: None,
            client_id: "rehearsal".to_owned(),
        };
        Ok(self.node.store.consume(&consume).await?)
    }
}

/// Runs the narratives against the simulator of this provider's kind.
///
/// # Errors
/// When the rehearsal's own process cannot be built; a narrative that goes wrong is no error.
pub async fn run(
    name: &str,
    provider: &ProviderConfig,
    seams: &Seams,
) -> anyhow::Result<Rehearsal> {
    let kind = Kind::find(&provider.kind).context("there is no such kind")?;
    let channel = *kind.channels.first().context("the kind carries nothing")?;
    let run = seams.entropy.hex(6);
    let folder = Folder(std::env::temp_dir().join(format!("sendonce-rehearsal-{run}")));
    let place = toml::Value::String(folder.0.display().to_string());
    let text = format!("[server]\ndata_dir = {place}\n{CONFIG}");
    let mut config = Config::parse("rehearsal", &text, std::iter::empty())?;
    let name = if kind.name == "demo" { "demo" } else { name };
    let mut played = provider.clone();
    played.reads_per_minute = None;
    played.settle = played.settle.or(Some(1_500_000));
    let own = if kind.name == "demo" {
        None
    } else {
        Some(open_simulator(kind, &mut played, seams).await?)
    };
    let _simulator = own.as_ref().map(|simulator| simulator.closing().clone().drop_guard());
    config.providers.insert(name.to_owned(), played);
    for routed in Channel::ALL {
        let names = if *routed == channel { vec![name.to_owned()] } else { Vec::new() };
        config.routes.insert(*routed, names);
    }
    let parts: BTreeSet<Part> = [Part::Api, Part::Dispatch, Part::Reconcile].into();
    let mut node = Node::build(config, seams, parts, true).await?;
    node.resolver = Arc::new(Places);
    let simulator = match own {
        Some(simulator) => simulator,
        None => Arc::clone(node.registry.demo().context("demo is built")?.simulator()),
    };
    node.start();
    let began = node.env.clock.now();
    let stage = Stage { node, simulator, kind: kind.name, channel, run };
    let stories = play(&stage).await;
    let packed = take_away(&stage, began).await;
    stage.node.stop().await;
    let (stories, (pack, verdicts)) = (stories?, packed?);
    Ok(Rehearsal { stories, pack, verdicts })
}

async fn take_away(stage: &Stage, began: Stamp) -> anyhow::Result<(Pack, (bool, bool))> {
    let node = &stage.node;
    let what = Selection::Time(began, node.env.clock.now().plus(1));
    pack::wait_for_seal(&*node.store, &what, &*node.env.clock).await?;
    let facts_max = node.config.evidence.pack_facts_max;
    let pack = pack::make(&*node.store, &node.sealer, &what, facts_max).await?;
    let verdicts = match verify(std::io::Cursor::new(&pack.bytes), &[]) {
        Ok(report) => {
            (report.findings.holds(Side::Integrity), report.findings.holds(Side::Completeness))
        }
        Err(_) => (false, false),
    };
    Ok((pack, verdicts))
}

const OUT: &[State] = &[State::Sent, State::Delivered, State::FailedFinal, State::Expired];

async fn play(stage: &Stage) -> anyhow::Result<Vec<Story>> {
    let hidden = Options { lookup_down: true, ..Options::default() };
    stage.script(4, vec![Behaviour::AcceptThenReset, Behaviour::Accept], Options::default())?;
    stage.script(5, vec![Behaviour::AcceptThenReset, Behaviour::Accept], hidden)?;
    stage.script(6, vec![Behaviour::ResetBeforeAccept, Behaviour::Accept], Options::default())?;
    stage.script(7, vec![Behaviour::AcceptThenReset, Behaviour::Accept], Options::default())?;
    // Those that have to see their end begin first, and the others meanwhile.
    let waiting = stage.admit(&stage.event("queued", "down", SHORT)).await?;
    let unknown = stage.admit(&stage.event("unknown", "place-5", SHORT)).await?;
    let mut stories = vec![
        delivered(stage).await?,
        repeated(stage).await?,
        conflicting(stage).await?,
        lost_after(stage).await?,
    ];
    stories.push(expired(stage, &waiting, &unknown).await?);
    stories.push(lost_before(stage).await?);
    stories.push(launch(stage).await?);
    Ok(stories)
}

fn story(
    number: u8,
    title: &'static str,
    records: Vec<(Record, Vec<Fact>)>,
    seen: Vec<String>,
    wanted: &[(bool, &str)],
) -> Story {
    let faults =
        wanted.iter().filter(|(holds, _)| !holds).map(|(_, what)| (*what).to_owned()).collect();
    Story { number, title, seen, records, faults }
}

fn has(facts: &[Fact], reason: Reason) -> bool {
    facts.iter().any(|fact| fact.reason == Some(reason))
}

fn has_kind(facts: &[Fact], kind: FactKind) -> bool {
    facts.iter().any(|fact| fact.kind == kind)
}

fn went_out(record: &Record) -> bool {
    matches!(record.state, State::Sent | State::Delivered)
}

async fn delivered(stage: &Stage) -> anyhow::Result<Story> {
    let id = stage.admit(&stage.event("plain", "place-1", LONG)).await?;
    let ends = [State::Delivered, State::FailedFinal, State::Expired];
    let (record, facts) = stage.until(&id, &ends).await?;
    let wanted = [(went_out(&record), "it was sent"), (record.calls == 1, "by one call")];
    Ok(story(1, "accepted and delivered", vec![(record, facts)], Vec::new(), &wanted))
}

async fn repeated(stage: &Stage) -> anyhow::Result<Story> {
    let event = stage.event("repeated", "place-2", LONG);
    let id = stage.admit(&event).await?;
    let is_replay =
        matches!(stage.offer(&event).await, AdmissionAnswer::Admitted { replayed: true, .. });
    let (record, facts) = stage.until(&id, OUT).await?;
    let wanted = [
        (is_replay, "the second request was answered with the first record"),
        (has_kind(&facts, FactKind::AdmissionReplay), "and noted"),
        (record.calls == 1, "one call"),
    ];
    let seen = vec!["The same request again: 202, and nothing new.".to_owned()];
    Ok(story(2, "duplicate admission", vec![(record, facts)], seen, &wanted))
}

async fn conflicting(stage: &Stage) -> anyhow::Result<Story> {
    let event = stage.event("conflict", "place-3", LONG);
    let id = stage.admit(&event).await?;
    let mut other = stage.event("conflict-other", "place-3", LONG);
    other["idempotency_key"] = event["idempotency_key"].clone();
    let is_refused =
        matches!(stage.offer(&other).await, AdmissionAnswer::Conflict("idempotency_conflict"));
    let (record, facts) = stage.until(&id, OUT).await?;
    let wanted = [
        (is_refused, "the other event under the same key was refused"),
        (has_kind(&facts, FactKind::AdmissionConflict), "and noted"),
    ];
    let seen = vec!["Another event under the same key: 409 idempotency_conflict.".to_owned()];
    Ok(story(3, "idempotency conflict", vec![(record, facts)], seen, &wanted))
}

async fn lost_after(stage: &Stage) -> anyhow::Result<Story> {
    let id = stage.admit(&stage.event("lost-after", "place-4", LONG)).await?;
    let (record, facts) = stage.until(&id, OUT).await?;
    let wanted = [
        (went_out(&record), "it was found at the provider"),
        (record.calls == 1, "without a resend: one call"),
    ];
    let title = "timeout after acceptance, reconciled without a resend";
    Ok(story(4, title, vec![(record, facts)], Vec::new(), &wanted))
}

async fn expired(stage: &Stage, waiting: &str, unknown: &str) -> anyhow::Result<Story> {
    let queued = stage.until(waiting, &[State::Expired]).await?;
    let open = stage.until(unknown, &[State::Expired]).await?;
    let wanted = [
        (queued.0.reason == Reason::ExpiredInQueue, "the first expired in the queue"),
        (queued.0.calls == 0, "without a call"),
        (open.0.reason == Reason::ExpiredUnresolved, "the second stayed unknown until it expired"),
        (open.0.calls == 1, "after one call"),
    ];
    let title = "stopped by expiry: in the queue, and unknown until its end";
    Ok(story(5, title, vec![queued, open], Vec::new(), &wanted))
}

async fn lost_before(stage: &Stage) -> anyhow::Result<Story> {
    let id = stage.admit(&stage.event("lost-before", "place-6", LONG)).await?;
    let (record, facts) = stage.until(&id, OUT).await?;
    let attempts: Vec<String> = (1..=record.attempts)
        .map(|number| stage.node.env.keys.attempt_id(&record.event_id, number))
        .collect();
    let messages: usize =
        attempts.iter().map(|attempt| stage.simulator.messages(Some(attempt)).len()).sum();
    let wanted = [
        (went_out(&record), "it was sent"),
        (has(&facts, Reason::ReconciledAbsent), "after its absence was confirmed"),
        (record.calls == 2, "by a second call"),
        (messages == 1, "as one message"),
    ];
    let seen = vec![format!("The provider took {messages} message.")];
    let title = "timeout before acceptance, absence confirmed, sent once more";
    Ok(story(6, title, vec![(record, facts)], seen, &wanted))
}

/// seller_1042 asks, the answer is lost, it is found; then a newer link is used and the older one refused.
async fn launch(stage: &Stage) -> anyhow::Result<Story> {
    let asks = |name: &str, window: &str, token: &str| {
        let mut event = stage.event(name, "place-7", LONG);
        event["seller_id"] = serde_json::json!("seller_1042");
        event["request_window"] = serde_json::json!(window);
        event["token_hash"] = serde_json::json!(crate::keys::sha256(token.as_bytes()));
        event
    };
    // Tokens of nobody: the rehearsal's own.
    let [older, newer] = ["older", "newer"].map(|word| format!("{word}-{}", stage.run));
    let first = stage.admit(&asks("launch", "w-1", &older)).await?;
    let first_out = stage.until(&first, OUT).await?;
    let second = stage.admit(&asks("launch-again", "w-2", &newer)).await?;
    let second_out = stage.until(&second, OUT).await?;
    let used = stage.consume(&newer).await?;
    let refused = stage.consume(&older).await?;
    let records = vec![stage.until(&first, OUT).await?, stage.until(&second, OUT).await?];
    let wanted = [
        (went_out(&first_out.0), "the first message was found after its answer was lost"),
        (first_out.0.calls == 1, "one call"),
        (went_out(&second_out.0), "the later one was sent"),
        (matches!(used, Consumed::Done { is_replay: false, .. }), "the newest link was used"),
        (refused == Consumed::Superseded, "the older one was refused"),
    ];
    let seen =
        vec!["The newest link was used: 200. The older one: 410 token_superseded.".to_owned()];
    Ok(story(7, "the launch trace of seller_1042", records, seen, &wanted))
}
