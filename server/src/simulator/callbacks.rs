//! Callbacks: what the simulated provider tells the product afterwards, in each of the ways that real ones
//! do. Each callback is posted once; one that meets nobody is lost.

use std::sync::Arc;

use app::model::{Seen, Stamp};

use super::script::Options;
use super::{Incoming, KINDS, Kind, Sent, Simulator};
use crate::entropy::Entropy;
use crate::providers::{Deadline, Secret};

/// Callbacks that wait or are under way; more are dropped.
pub const CALLBACKS_MAX: usize = 1024;

/// When a late callback comes: 60 s after the message, when the product has stopped to ask (`poll_for`).
pub const LATE: i64 = 60_000_000;

/// How long one post may take.
const POST_TIME: i64 = 5_000_000;

/// Which callbacks a message has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Callbacks {
    #[default]
    None,
    /// Accepted at once, then how its delivery ended.
    Normal,
    /// As normal, each one twice.
    Duplicate,
    /// How its delivery ended first, accepted after that.
    OutOfOrder,
    /// How its delivery ended, signed with a key that is not ours.
    Forged,
    /// How its delivery ended, [`LATE`] after acceptance.
    Late,
}

impl Callbacks {
    pub(super) fn of(word: &str) -> Option<Self> {
        Some(match word {
            "none" => Self::None,
            "normal" => Self::Normal,
            "duplicate" => Self::Duplicate,
            "out_of_order" => Self::OutOfOrder,
            "forged" => Self::Forged,
            "late" => Self::Late,
            _ => return None,
        })
    }

    /// When each one is posted, after the message was accepted, and what it says.
    fn plan(self, ends: Option<(i64, Seen)>) -> Vec<(i64, Seen)> {
        // Enough for the answer of the call itself to arrive first.
        const SOON: i64 = 50_000;
        let accepted = Some((SOON, Seen::Accepted));
        let late = ends.map(|(after, seen)| (after.max(LATE), seen));
        let again = |what: Option<(i64, Seen)>| what.map(|(after, seen)| (after + SOON, seen));
        let plan = match self {
            Self::None => vec![],
            Self::Normal => vec![accepted, ends],
            Self::Duplicate => vec![accepted, again(accepted), ends, again(ends)],
            Self::OutOfOrder => vec![ends, ends.map(|(after, _)| (after + SOON, Seen::Accepted))],
            Self::Forged => vec![ends],
            Self::Late => vec![late],
        };
        let mut plan: Vec<(i64, Seen)> = plan.into_iter().flatten().collect();
        plan.sort_by_key(|(after, _)| *after);
        plan
    }
}

/// Where callbacks go, and the key that they are signed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackTarget {
    /// The whole URL, as `http://127.0.0.1:3000/webhooks/post`.
    pub url: String,
    pub key: Secret,
}

impl CallbackTarget {
    /// A target that anybody may ask for: on this machine.
    pub(super) fn loopback(url: String, key: Secret) -> Option<Self> {
        let parsed = url::Url::parse(&url).ok().filter(|url| url.scheme() == "http")?;
        let is_loopback = match parsed.host()? {
            url::Host::Domain(name) => name == "localhost",
            url::Host::Ipv4(ip) => ip.is_loopback(),
            url::Host::Ipv6(ip) => ip.is_loopback(),
        };
        is_loopback.then_some(Self { url, key })
    }
}

/// What one callback says, for a kind to put into its own form.
#[derive(Debug, Clone)]
pub struct CallbackFacts<'a> {
    pub attempt: &'a str,
    pub message_id: &'a str,
    /// Empty where it is not known any more.
    pub destination: &'a str,
    pub state: Seen,
    pub now: Stamp,
    /// The key that the target knows: another one than the callback is to be signed with if it is forged.
    pub expected: &'a Secret,
    /// Where this simulator is reached, as `http://127.0.0.1:4010`; none before it is served.
    pub origin: Option<&'a str>,
    pub entropy: &'a dyn Entropy,
}

/// Begins to post what the script wants for this message. Ends with the simulator.
pub(super) fn start(
    simulator: &Arc<Simulator>,
    incoming: &Incoming,
    sent: &Sent,
    options: &Options,
) {
    let own = || incoming.target.clone().or_else(|| simulator.settings.callbacks.clone());
    let target = options.target.clone().or_else(own).map(|target| match &options.secret {
        Some(key) => CallbackTarget { key: key.clone(), ..target },
        None => target,
    });
    let ends = sent.ends().map(|(at, seen)| (at.since(sent.at), seen));
    let plan = options.callbacks.plan(ends);
    let Some(kind) = KINDS.iter().find(|known| known.name == incoming.kind) else { return };
    let (Some(target), false) = (target, plan.is_empty()) else { return };
    let Ok(slot) = Arc::clone(&simulator.callback_slots).try_acquire_owned() else {
        return;
    };
    let key = match options.callbacks {
        Callbacks::Forged => Secret::new(simulator.entropy.hex(32)),
        _ => target.key.clone(),
    };
    let (simulator, sent) = (Arc::clone(simulator), sent.clone());
    tokio::spawn(async move {
        let closing = simulator.closing().clone();
        tokio::select! {
            () = closing.cancelled() => {}
            () = run(&simulator, kind, &sent, &plan, &target, &key) => {}
        }
        drop(slot);
    });
}

async fn run(
    simulator: &Simulator,
    kind: &'static Kind,
    sent: &Sent,
    plan: &[(i64, Seen)],
    target: &CallbackTarget,
    key: &Secret,
) {
    let mut waited = 0;
    for (after, state) in plan {
        simulator.wait(after - waited).await;
        waited = *after;
        let now = simulator.now();
        let facts = CallbackFacts {
            attempt: &sent.attempt,
            message_id: &sent.message_id,
            destination: sent.destination.as_deref().unwrap_or_default(),
            state: *state,
            now,
            expected: &target.key,
            origin: simulator.origin.get().map(String::as_str),
            entropy: &*simulator.entropy,
        };
        if let Some(request) = (kind.callback)(&facts, &target.url, key) {
            let deadline = Deadline { boot: simulator.clock.boot().saturating_add(POST_TIME) };
            // A provider does not care either whether anybody listens.
            let _ = simulator.transport.exchange(request, deadline).await;
        }
    }
}
