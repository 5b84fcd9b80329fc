//! Reconciliation: reads of the provider, verified evidence, expiry, lost leases.
//!
//! Reading never sends. It runs in a pool of its own, so that a provider which answers slowly cannot take
//! the workers that dispatch, nor the other way round.

use std::sync::Arc;

use app::model::{Channel, Seen, Stamp, State};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::batch::{BatchError, Batcher};
use crate::clock::duration;
use crate::domain::Lookup;
use crate::duty::Duty;
use crate::outbox::Wakeups;
use crate::providers::resolver::{Resolution, ResolveRequest, Resolver};
use crate::providers::{Deadline, Query, Reading, Registry, Secret, TextProof};
use crate::store::{Env, ReadAnswer, ReadTask, Store};
use crate::supervisor::{Ticker, pause_after_error};

const QUEUE_MAX: usize = 1_024;
const GROUP_MAX: usize = 64;
/// Records that one pass of the sweep takes of each kind.
const SWEEP_MAX: usize = 200;

/// A read of every possible attempt takes at most so many times the time of one; then it cannot tell.
const WHOLE_READ: i64 = 4;

/// What reconciliation needs.
#[derive(Debug, Clone)]
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub env: Env,
    pub registry: Arc<Registry>,
    pub resolver: Arc<dyn Resolver>,
    pub wakeups: Wakeups,
    pub ticker: Ticker,
    /// The sweep is done by one process for all.
    pub sweep: Duty,
    /// Reads in flight at once.
    pub workers: usize,
    pub read_timeout: i64,
    pub resolver_timeout: i64,
}

/// What a task's reads came to.
#[derive(Debug)]
struct Asked {
    attempt: u32,
    found_at: Option<String>,
    answer: Lookup,
}

/// Reads what is unknown or not yet delivered, and ends what is over.
#[derive(Debug, Clone)]
pub struct Reconciler {
    parts: Arc<Parts>,
    answers: Batcher<ReadAnswer, ()>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Reconciler {
    /// Prepares the group commit. Must run inside a runtime.
    #[must_use]
    pub fn new(parts: Parts, stop: CancellationToken) -> Self {
        let store = Arc::clone(&parts.store);
        let answers = Batcher::start(
            QUEUE_MAX,
            GROUP_MAX,
            Arc::new(move |group: Vec<ReadAnswer>| {
                let store = Arc::clone(&store);
                Box::pin(async move {
                    store.record_reads(&group).await?;
                    Ok(vec![(); group.len()])
                })
            }),
        );
        Self { parts: Arc::new(parts), answers, tasks: TaskTracker::new(), stop }
    }

    /// Reads what is due until told to stop.
    pub async fn run_reads(&self) {
        let p = &self.parts;
        metrics::gauge!("sendonce_lookups_in_flight_max").set(p.workers.max(1) as f64);
        let room = Arc::new(Semaphore::new(p.workers.max(1)));
        // A task that dies with its process is read again after this.
        let visible_after = (WHOLE_READ + 1) * p.read_timeout + p.resolver_timeout;
        let mut failures = 0;
        while !self.stop.is_cancelled() {
            let seat = tokio::select! {
                seat = Arc::clone(&room).acquire_owned() => seat,
                () = self.stop.cancelled() => return,
            };
            let Ok(first) = seat else { return };
            let mut seats = vec![first];
            while let Ok(seat) = Arc::clone(&room).try_acquire_owned() {
                seats.push(seat);
            }
            match p.store.claim_reads(seats.len(), visible_after).await {
                Ok(tasks) => {
                    failures = 0;
                    p.ticker.tick("reads");
                    let idle = tasks.is_empty();
                    for task in tasks {
                        let seat = seats.pop();
                        let this = self.clone();
                        metrics::gauge!("sendonce_lookups_in_flight").increment(1.0);
                        self.tasks.spawn(async move {
                            this.read(task).await;
                            metrics::gauge!("sendonce_lookups_in_flight").decrement(1.0);
                            drop(seat);
                        });
                    }
                    drop(seats);
                    if idle {
                        let due = p.store.next_read().await.unwrap_or_default();
                        tokio::select! {
                            () = p.wakeups.wait_reads(due, &*p.env.clock, &*p.env.entropy) => {}
                            () = self.stop.cancelled() => {}
                        }
                    }
                }
                Err(error) => {
                    drop(seats);
                    failures += 1;
                    tracing::warn!(%error, "claiming reads failed; trying again");
                    pause_after_error(failures, &*p.env.clock, &self.stop).await;
                }
            }
        }
    }

    /// Expires, reaps and settles until told to stop, wherever this process holds the duty. What a sweep
    /// does is decided and fenced record by record, so two at once would be waste and nothing worse.
    pub async fn run_sweep(&self) {
        let p = &self.parts;
        let mut failures = 0;
        while !self.stop.is_cancelled() {
            match p.sweep.hold().await {
                Ok(Some(_)) => {}
                Ok(None) => {
                    failures = 0;
                    p.ticker.tick("sweep");
                    tokio::select! {
                        () = p.env.clock.sleep(p.sweep.look_every()) => {}
                        () = self.stop.cancelled() => {}
                    }
                    continue;
                }
                Err(error) => {
                    failures += 1;
                    tracing::warn!(%error, "the sweep's duty could not be taken; trying again");
                    pause_after_error(failures, &*p.env.clock, &self.stop).await;
                    continue;
                }
            }
            match p.store.sweep(SWEEP_MAX).instrument(tracing::debug_span!("reconcile.reap")).await
            {
                Ok(swept) => {
                    failures = 0;
                    p.ticker.tick("sweep");
                    metrics::counter!("sendonce_leases_lost_total")
                        .increment(u64::try_from(swept.leases).unwrap_or(0));
                    if swept.leases > 0 {
                        p.wakeups.all();
                    }
                    if swept.expired + swept.unresolved + swept.settled > 0 {
                        p.wakeups.changed();
                    }
                    if !swept.more {
                        let due = p.store.next_sweep().await.unwrap_or_default();
                        tokio::select! {
                            () = p.wakeups.wait_sweep(due, &*p.env.clock, &*p.env.entropy) => {}
                            // In time to keep the duty.
                            () = p.env.clock.sleep(p.sweep.look_every()) => {}
                            () = self.stop.cancelled() => {}
                        }
                    }
                }
                Err(error) => {
                    failures += 1;
                    tracing::warn!(%error, "the sweep failed; trying again");
                    pause_after_error(failures, &*p.env.clock, &self.stop).await;
                }
            }
        }
    }

    /// Waits for running reads.
    pub async fn drain(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    #[tracing::instrument(name = "reconcile.read", skip_all, fields(
        notification.id = %task.id, attempt.number = task.attempt, provider = %task.provider))]
    async fn read(&self, task: ReadTask) {
        let p = &self.parts;
        let asked_at = p.env.clock.now();
        let asked = p.env.clock.boot();
        let Asked { attempt, found_at, answer } = self.ask_all(&task).await;
        metrics::histogram!("sendonce_lookup_seconds", "provider" => task.provider.clone())
            .record(duration(p.env.clock.boot().saturating_sub(asked)));
        let answer = match answer {
            // An id that is the recipient's number under another name is not kept.
            Lookup::Found { seen, message_id } => Lookup::Found {
                seen,
                message_id: message_id
                    .filter(|text| !p.env.keys.names_destination(text, &task.fingerprint)),
            },
            other => other,
        };
        let word = match &answer {
            Lookup::Found { .. } => "found",
            Lookup::Absent => "absent",
            Lookup::CannotTell { .. } => "cannot_tell",
        };
        metrics::counter!("sendonce_lookups_total", "provider" => task.provider.clone(), "outcome" => word)
            .increment(1);
        let wakes_dispatch = task.state == State::DispatchUnknown;
        let channel: Channel = task.channel;
        let answer = ReadAnswer {
            id: task.id,
            attempt,
            calls: task.calls,
            is_whole: task.restored_at.is_some(),
            found_at,
            asked_at,
            answer,
        };
        match self.answers.submit_waiting(answer).await {
            Ok(()) => {
                if wakes_dispatch {
                    p.wakeups.dispatch(channel);
                }
                p.wakeups.reads();
            }
            // It becomes due again by itself; the provider is simply asked once more.
            Err(BatchError::Store(error)) => tracing::warn!(%error, "a read's answer was not kept"),
            Err(BatchError::Full | BatchError::Closed) => {}
        }
    }

    /// Asks for each of the task's attempts, one after the other; after a restore at each provider that a
    /// lost one may have gone to. Absent only where all are; of several that are found the one that says most
    /// counts.
    async fn ask_all(&self, task: &ReadTask) -> Asked {
        let clock = &self.parts.env.clock;
        let until = clock.boot().saturating_add(WHOLE_READ * self.parts.read_timeout);
        let mut found: Option<Asked> = None;
        let mut unsure = None;
        for provider in self.asked_providers(task) {
            for (attempt, attempt_id) in &task.ids {
                if clock.boot() >= until {
                    unsure = Some(Lookup::CannotTell { code: "too_slow".to_owned() });
                    break;
                }
                match self.ask(task, provider, *attempt, attempt_id).await {
                    Lookup::Absent => {}
                    unknown @ Lookup::CannotTell { .. } => unsure = Some(unknown),
                    answer => {
                        let says_more =
                            found.as_ref().is_none_or(|was| weight(&answer) >= weight(&was.answer));
                        if says_more {
                            let found_at = (provider != task.provider).then(|| provider.to_owned());
                            found = Some(Asked { attempt: *attempt, found_at, answer });
                        }
                    }
                }
            }
        }
        found.unwrap_or_else(|| Asked {
            attempt: task.attempt,
            found_at: None,
            answer: unsure.unwrap_or(Lookup::Absent),
        })
    }

    /// The record's provider; after a restore the others of its route too.
    fn asked_providers<'t>(&'t self, task: &'t ReadTask) -> Vec<&'t str> {
        let mut names = vec![task.provider.as_str()];
        if task.restored_at.is_some() {
            let route = self.parts.env.rules.routes.get(&task.channel);
            let others = route.into_iter().flatten().map(String::as_str);
            names.extend(others.filter(|name| *name != task.provider));
        }
        names
    }

    async fn ask(
        &self,
        task: &ReadTask,
        provider_name: &str,
        attempt: u32,
        attempt_id: &str,
    ) -> Lookup {
        let cannot = |code: &str| Lookup::CannotTell { code: code.to_owned() };
        let p = &self.parts;
        let Some(provider) = p.registry.get(provider_name) else {
            return cannot("not_configured");
        };
        let to = if provider.capability().reading == Reading::ByScan {
            match self.same_destination(task).await {
                Ok(to) => Some(to),
                Err(code) => return cannot(code),
            }
        } else {
            None
        };
        let asked_at = p.env.clock.now();
        let query = Query {
            attempt_id: attempt_id.to_owned(),
            message_id: task
                .message_id
                .clone()
                .filter(|_| attempt == task.attempt || task.state == State::Sent),
            channel: task.channel,
            since: task.since,
            now: asked_at,
            to,
            // Of another attempt the text is not on record.
            text: task
                .text_hash
                .clone()
                .filter(|_| attempt == task.attempt)
                .map(|hash| TextProof::new(Arc::clone(&p.env.keys), hash)),
        };
        let deadline = Deadline { boot: p.env.clock.boot().saturating_add(p.read_timeout) };
        let answer = tokio::select! {
            answer = provider.find(&query, deadline) => answer,
            () = p.env.clock.sleep(duration(p.read_timeout)) => cannot("timeout"),
        };
        // What is deleted by now is not absent.
        let is_past = |retention: i64| query.now.since(query.since) >= retention;
        let is_early = |at: Stamp| {
            provider.capability().settle.is_none_or(|settle| asked_at < at.plus(settle))
        };
        match answer {
            // The rules know the settle time of the record's own provider.
            Lookup::Absent
                if provider_name != task.provider && task.restored_at.is_some_and(is_early) =>
            {
                cannot("not_settled")
            }
            Lookup::Absent if provider.capability().retention.is_some_and(is_past) => {
                cannot("past_retention")
            }
            answer => answer,
        }
    }

    /// A scan needs the destination again. Another one than the attempt's proves nothing: the seller may
    /// have changed the number, which is what account recovery is for.
    async fn same_destination(&self, task: &ReadTask) -> Result<Secret, &'static str> {
        let p = &self.parts;
        if task.fingerprint.is_empty() {
            return Err("no_fingerprint");
        }
        let (Some(destination_ref), Some(reset_ref)) = (&task.destination_ref, &task.reset_ref)
        else {
            return Err("destination_erased");
        };
        let request = ResolveRequest {
            event_id: task.event_id.clone(),
            destination_ref: destination_ref.clone(),
            reset_ref: reset_ref.clone(),
            channel: task.channel,
            purpose: task.purpose.clone(),
        };
        let deadline = Deadline { boot: p.env.clock.boot().saturating_add(p.resolver_timeout) };
        match p.resolver.resolve(&request, deadline).await {
            Resolution::Found(resolved) => {
                let keys = &p.env.keys;
                if keys.is_fingerprint_of(&task.fingerprint, resolved.canonical.expose()) {
                    Ok(resolved.to)
                } else {
                    Err("destination_changed")
                }
            }
            Resolution::NotFound => Err("destination_missing"),
            Resolution::Unavailable { .. } => Err("resolver_unavailable"),
        }
    }
}

/// Which of two answers about one notification says more: an arrival, then a message that may arrive.
const fn weight(answer: &Lookup) -> u8 {
    match answer {
        Lookup::Found { seen: Seen::Delivered, .. } => 3,
        Lookup::Found { seen: Seen::Accepted, .. } => 2,
        Lookup::Found { seen: Seen::Failed, .. } => 1,
        Lookup::Absent | Lookup::CannotTell { .. } => 0,
    }
}
