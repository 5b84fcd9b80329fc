//! Dispatch: claim, resolve, marker, call, verdict.
//!
//! One task per claim. A claim alone is not a call: the marker is, and no byte leaves before the marker's
//! commit was acknowledged or read back. After it, whatever happens here ends in a verdict or in the
//! reaper's `dispatch_unknown`; nothing in this module can authorise a second call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use app::model::{Channel, Stamp, State};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::batch::{BatchError, Batcher};
use crate::clock::{duration, micros};
use crate::domain::{Doubt, PreCall, Verdict};
use crate::keys::Keys;
use crate::outbox::Wakeups;
use crate::policy::{Place, Scope};
use crate::providers::resolver::{Resolution, ResolveRequest, Resolved, Resolver};
use crate::providers::template::Templates;
use crate::providers::{Deadline, Message, Registry, TextProof};
use crate::store::{Claim, End, Env, Error, GiveUp, Start, Started, Store};
use crate::supervisor::{Ticker, pause_after_error};

/// Markers and ends that may wait for their commit. Workers bound the real number.
const QUEUE_MAX: usize = 4_096;
/// Largest group of one commit.
const GROUP_MAX: usize = 64;
/// A provider that takes no deadline seriously is left this long after it.
const OVERRUN: Duration = Duration::from_millis(250);
/// How often a held dispatcher looks whether the nodes agree again.
const HELD_POLL: Duration = Duration::from_secs(1);
/// Between two tries to write how a call ended.
const RECORD_AGAIN: Duration = Duration::from_millis(200);
/// A provider's pause without a time of its own: 1 s.
const PAUSE_FIRST: i64 = 1_000_000;
/// A provider that refuses our credentials is asked again after 30 s, then ever more seldom.
const PAUSE_STOPPED: i64 = 30_000_000;
/// The longest pause that a provider may ask for: an hour.
const PAUSE_MAX: i64 = 3_600_000_000;

/// What a dispatcher needs.
#[derive(Debug, Clone)]
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub env: Env,
    pub registry: Arc<Registry>,
    pub resolver: Arc<dyn Resolver>,
    pub wakeups: Wakeups,
    pub ticker: Ticker,
    /// Who claims: unique to this process.
    pub owner: String,
    /// Calls in flight at once, for each channel: an outage of one never takes the other's workers.
    pub workers: usize,
    pub resolver_timeout: i64,
    /// The sender's name in messages.
    pub sender: String,
    pub templates: Arc<Templates>,
    /// Another configuration is in force: nothing is claimed until the nodes agree.
    pub is_held: Arc<AtomicBool>,
}

/// Sends what is due, channel by channel.
#[derive(Debug, Clone)]
pub struct Dispatcher {
    parts: Arc<Parts>,
    starts: Batcher<Start, Started>,
    ends: Batcher<End, State>,
    tasks: TaskTracker,
    /// Claims no more.
    stop: CancellationToken,
    /// The grace time is over: running calls are given up as unknown.
    abandon: CancellationToken,
}

impl Dispatcher {
    /// Prepares the group commits. Must run inside a runtime.
    #[must_use]
    pub fn new(parts: Parts, stop: CancellationToken) -> Self {
        let store = Arc::clone(&parts.store);
        let starts = Batcher::start(
            QUEUE_MAX,
            GROUP_MAX,
            Arc::new(move |group: Vec<Start>| {
                let store = Arc::clone(&store);
                Box::pin(async move { store.start(&group).await })
            }),
        );
        let store = Arc::clone(&parts.store);
        let ends = Batcher::start(
            QUEUE_MAX,
            GROUP_MAX,
            Arc::new(move |group: Vec<End>| {
                let store = Arc::clone(&store);
                Box::pin(async move { store.end(&group).await })
            }),
        );
        Self {
            parts: Arc::new(parts),
            starts,
            ends,
            tasks: TaskTracker::new(),
            stop,
            abandon: CancellationToken::new(),
        }
    }

    /// Claims and carries until told to stop.
    pub async fn run(&self, channel: Channel) {
        let p = &self.parts;
        let room = Arc::new(Semaphore::new(p.workers.max(1)));
        let name = match channel {
            Channel::Sms => "dispatch_sms",
            Channel::Email => "dispatch_email",
        };
        let mut failures = 0;
        while !self.stop.is_cancelled() {
            if p.is_held.load(Ordering::Relaxed) {
                p.ticker.tick(name);
                tokio::select! {
                    () = p.env.clock.sleep(HELD_POLL) => {}
                    () = self.stop.cancelled() => {}
                }
                continue;
            }
            let Some(first) = self.seat(&room).await else { return };
            let mut seats = vec![first];
            while let Ok(seat) = Arc::clone(&room).try_acquire_owned() {
                seats.push(seat);
            }
            let span = tracing::debug_span!("dispatch.claim", channel = %channel);
            match p.store.claim(&p.owner, channel, seats.len()).instrument(span).await {
                Ok(claims) => {
                    failures = 0;
                    p.ticker.tick(name);
                    let idle = claims.is_empty();
                    for claim in claims {
                        let seat = seats.pop();
                        let this = self.clone();
                        self.tasks.spawn(async move { this.carry(claim, seat).await });
                    }
                    drop(seats);
                    if idle {
                        self.wait(channel).await;
                    }
                }
                Err(error) => {
                    drop(seats);
                    failures += 1;
                    tracing::warn!(%error, channel = %channel, "claiming failed; trying again");
                    pause_after_error(failures, &*p.env.clock, &self.stop).await;
                }
            }
        }
    }

    async fn seat(&self, room: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            seat = Arc::clone(room).acquire_owned() => seat.ok(),
            () = self.stop.cancelled() => None,
        }
    }

    async fn wait(&self, channel: Channel) {
        let p = &self.parts;
        let due = match p.store.next_due(channel).await {
            Ok(due) => due,
            Err(error) => {
                tracing::warn!(%error, "cannot read when the next event is due");
                None
            }
        };
        tokio::select! {
            () = p.wakeups.wait_dispatch(channel, due, &*p.env.clock, &*p.env.entropy) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Stops claiming has happened already; waits for running calls, then gives the rest up as unknown.
    pub async fn drain(&self, grace: Duration) {
        self.tasks.close();
        tokio::select! {
            () = self.tasks.wait() => return,
            () = self.parts.env.clock.sleep(grace) => {}
        }
        tracing::warn!(
            calls = self.tasks.len(),
            "the grace time is over; running calls become unknown"
        );
        self.abandon.cancel();
        self.tasks.wait().await;
    }

    /// Waits until nothing that was claimed is still in hand. For tests that drive the loops.
    pub async fn idle(&self) {
        while !self.tasks.is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// One claim, from the resolver to the verdict.
    #[tracing::instrument(name = "dispatch.send", skip_all, fields(
        notification.id = %claim.id, attempt.number = claim.attempt, attempt.fence = claim.fence,
        provider = %claim.provider))]
    async fn carry(&self, claim: Claim, _seat: Option<OwnedSemaphorePermit>) {
        let resolved = match self.resolve(&claim).await {
            Ok(resolved) => resolved,
            Err(why) => return self.give_up(&claim, why).await,
        };
        if self.stop.is_cancelled() {
            return self.give_up(&claim, PreCall::Released).await;
        }
        let p = &self.parts;
        let Some(provider) = p.registry.get(&claim.provider).cloned() else {
            tracing::error!(
                "the record's provider is not configured; it waits until it is or expires"
            );
            return self.give_up(&claim, PreCall::Released).await;
        };
        let message = p.templates.render(
            claim.channel,
            &resolved,
            &claim.purpose,
            claim.expires_at,
            &claim.attempt_id,
            &p.sender,
        );
        let start = Start {
            id: claim.id.clone(),
            fence: claim.fence,
            request_hash: request_hash(&p.env.keys, &message),
            text_hash: TextProof::hash_of(&p.env.keys, message.text.expose()),
            fingerprint: p.env.keys.fingerprint(resolved.canonical.expose()),
            fingerprint_version: p.env.keys.fingerprint_version,
            place: self.place(&claim, &resolved),
        };
        // Read before the marker, so that the deadline can only be too early, never too late.
        let before = p.env.clock.boot();
        let (attempt, deadline) = match self.mark(&start).await {
            Some(Started::Call { attempt, .. }) => {
                (attempt, Deadline { boot: before.saturating_add(p.env.rules.policy.call_timeout) })
            }
            Some(Started::Stopped(state)) => {
                metrics::counter!("sendonce_markers_refused_total", "state" => state.as_str())
                    .increment(1);
                p.wakeups.reads();
                return;
            }
            Some(Started::Stale) => {
                tracing::info!("the claim was not ours any more at its marker: no call");
                return;
            }
            None => return,
        };
        metrics::counter!("sendonce_calls_total", "provider" => claim.provider.clone())
            .increment(1);
        p.wakeups.changed();
        let verdict = self.call(&*provider, &message, deadline).await;
        // Gone before anything is awaited again: the message lives no longer than its call.
        drop(message);
        drop(resolved);
        let ended_at = p.env.clock.now();
        metrics::counter!("sendonce_call_outcomes_total", "provider" => claim.provider.clone(),
            "outcome" => verdict.outcome().as_str())
        .increment(1);
        self.pause_if_asked(&claim, &verdict, ended_at).await;
        let end = End { id: claim.id.clone(), fence: claim.fence, attempt, verdict, ended_at };
        self.record(end, claim.channel).await;
    }

    /// Where the number is, if any rule wants to know.
    fn place(&self, claim: &Claim, resolved: &Resolved) -> Option<Place> {
        let sending = &self.parts.env.rules.sending;
        let is_asked = sending.counts_countries()
            || sending.price_max.is_some()
            || sending.limits.has_any(&[Scope::Prefix, Scope::Country]);
        (claim.channel == Channel::Sms && is_asked).then(|| {
            let digits = sending.limits.prefix_digits;
            Place::of(resolved.canonical.expose(), digits, &sending.blocked_prefixes)
        })
    }

    async fn resolve(&self, claim: &Claim) -> Result<Resolved, PreCall> {
        let p = &self.parts;
        let request = ResolveRequest {
            event_id: claim.event_id.clone(),
            destination_ref: claim.destination_ref.clone(),
            reset_ref: claim.reset_ref.clone(),
            channel: claim.channel,
            purpose: claim.purpose.clone(),
        };
        let deadline = Deadline { boot: p.env.clock.boot().saturating_add(p.resolver_timeout) };
        let resolution = tokio::select! {
            resolution = p.resolver.resolve(&request, deadline) => resolution,
            () = p.env.clock.sleep(duration(p.resolver_timeout)) => {
                Resolution::Unavailable { code: "timeout".to_owned() }
            }
            () = self.abandon.cancelled() => return Err(PreCall::Released),
        };
        match resolution {
            Resolution::Found(resolved) => Ok(resolved),
            Resolution::NotFound => Err(PreCall::DestinationNotFound),
            Resolution::Unavailable { code } => {
                tracing::warn!(reason.code = %code, "the resolver did not answer; no call was made");
                Err(PreCall::ResolverUnavailable)
            }
        }
    }

    /// The marker. None: not acknowledged and not readable, so there is no call.
    async fn mark(&self, start: &Start) -> Option<Started> {
        match self.starts.submit_waiting(start.clone()).await {
            Ok(started) => Some(started),
            Err(BatchError::Store(error)) if matches!(*error, Error::CommitUnknown { .. }) => {
                tracing::warn!("the marker's commit was not acknowledged; reading it back");
                match self.parts.store.read_back(start).await {
                    Ok(started) => Some(started),
                    Err(error) => {
                        tracing::warn!(%error, "the marker cannot be read back: no call");
                        None
                    }
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the marker did not commit: no call");
                None
            }
        }
    }

    async fn call(
        &self,
        provider: &dyn crate::providers::Provider,
        message: &Message,
        deadline: Deadline,
    ) -> Verdict {
        let p = &self.parts;
        let started = p.env.clock.boot();
        let left = duration(deadline.boot.saturating_sub(started));
        let kind = provider.capability().kind;
        let verdict = tokio::select! {
            biased;
            verdict = provider.send(message, deadline) => verdict,
            () = p.env.clock.sleep(left + OVERRUN) => {
                Verdict::Unknown { why: Doubt::Timeout, code: "overrun".to_owned() }
            }
            () = self.abandon.cancelled() => {
                Verdict::Unknown { why: Doubt::ShutdownDuringCall, code: "shutdown".to_owned() }
            }
        };
        metrics::histogram!("sendonce_call_seconds", "kind" => kind)
            .record(duration(p.env.clock.boot().saturating_sub(started)));
        verdict
    }

    /// "Too many" and our own faults concern every event of this provider, on every node.
    async fn pause_if_asked(&self, claim: &Claim, verdict: &Verdict, now: Stamp) {
        let provider = claim.provider.as_str();
        let (until, code) = match verdict {
            Verdict::RateLimited { retry_at } => {
                let asked = retry_at.unwrap_or(now.plus(PAUSE_FIRST));
                (asked.min(now.plus(PAUSE_MAX)), "rate_limited")
            }
            Verdict::ProviderStopped { .. } => {
                tracing::error!(provider = %provider, "the provider refuses our credentials or configuration; its events wait");
                // Longer with each try of the same event, so that its attempts last until its expiry.
                let factor = 1_i64 << claim.attempt.saturating_sub(1).min(5);
                (now.plus(PAUSE_STOPPED * factor), crate::store::STOPPED)
            }
            _ => return,
        };
        if let Err(error) = self.parts.store.pause_provider(provider, until, code).await {
            tracing::warn!(%error, provider = %provider, "the provider's pause could not be kept");
        }
    }

    /// Writes how the call ended. Tried again while the lease lasts; after that the reaper has decided,
    /// and the same write keeps the answer as late evidence.
    async fn record(&self, end: End, channel: Channel) {
        let p = &self.parts;
        let patience = 2 * p.env.rules.policy.lease;
        let since = p.env.clock.boot();
        loop {
            match self.ends.submit_waiting(end.clone()).await {
                Ok(state) => {
                    metrics::counter!("sendonce_settlements_total", "state" => state.as_str())
                        .increment(1);
                    // Both may be claimed again: at once, or when a replay is due.
                    if matches!(state, State::Accepted | State::DispatchUnknown) {
                        p.wakeups.dispatch(channel);
                    }
                    p.wakeups.reads();
                    return;
                }
                Err(BatchError::Full | BatchError::Closed) => return,
                Err(BatchError::Store(error)) => {
                    tracing::warn!(%error, "the call's end could not be written; trying again");
                }
            }
            if p.env.clock.boot().saturating_sub(since) > patience {
                tracing::error!(
                    "the call's end could not be written; the reaper will mark it unknown"
                );
                return;
            }
            p.env.clock.sleep(RECORD_AGAIN).await;
        }
    }

    async fn give_up(&self, claim: &Claim, why: PreCall) {
        let p = &self.parts;
        let claims = [GiveUp { id: claim.id.clone(), fence: claim.fence, why }];
        if let Err(error) = p.store.give_up(&claims).await {
            // The lease runs out and the reaper returns it: no call was made.
            tracing::warn!(%error, "a claim could not be given back; its lease will run out");
        }
        p.wakeups.dispatch(claim.channel);
        p.wakeups.reads();
    }
}

/// Keyed hash of everything that goes to the provider.
fn request_hash(keys: &Keys, message: &Message) -> String {
    keys.content_hash(&[
        b"request",
        message.attempt_id.as_bytes(),
        message.channel.as_str().as_bytes(),
        message.to.expose().as_bytes(),
        message.text.expose().as_bytes(),
        message.subject.as_deref().unwrap_or("").as_bytes(),
        message.html.as_ref().map_or("", |html| html.expose()).as_bytes(),
        &message.valid_until.micros().to_be_bytes(),
    ])
}

/// Whole microseconds of the overrun, for those who compute leases.
#[must_use]
pub fn overrun_micros() -> i64 {
    micros(OVERRUN)
}
