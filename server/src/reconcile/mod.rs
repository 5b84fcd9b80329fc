//! Reconciliation: reads of the provider, verified evidence, expiry, lost leases.
//!
//! Reading never sends. It runs in a pool of its own, so that a provider which answers slowly cannot take
//! the workers that dispatch, nor the other way round.

use std::sync::Arc;

use app::model::{Channel, State};
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
        let room = Arc::new(Semaphore::new(p.workers.max(1)));
        // A task that dies with its process is read again after this.
        let visible_after = 2 * p.read_timeout + p.resolver_timeout;
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
                        self.tasks.spawn(async move {
                            this.read(task).await;
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
                    metrics::counter!("sendonce_expired_total")
                        .increment(u64::try_from(swept.expired + swept.unresolved).unwrap_or(0));
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
        let answer = match self.ask(&task).await {
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
        let answer =
            ReadAnswer { id: task.id, attempt: task.attempt, calls: task.calls, asked_at, answer };
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

    async fn ask(&self, task: &ReadTask) -> Lookup {
        let cannot = |code: &str| Lookup::CannotTell { code: code.to_owned() };
        let p = &self.parts;
        let Some(provider) = p.registry.get(&task.provider) else {
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
        let query = Query {
            attempt_id: task.attempt_id.clone(),
            message_id: task.message_id.clone(),
            channel: task.channel,
            since: task.since,
            now: p.env.clock.now(),
            to,
            text: task.text_hash.clone().map(|hash| TextProof::new(Arc::clone(&p.env.keys), hash)),
        };
        let deadline = Deadline { boot: p.env.clock.boot().saturating_add(p.read_timeout) };
        let answer = tokio::select! {
            answer = provider.find(&query, deadline) => answer,
            () = p.env.clock.sleep(duration(p.read_timeout)) => cannot("timeout"),
        };
        // What is deleted by now is not absent.
        let is_past = |retention: i64| query.now.since(query.since) >= retention;
        match answer {
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
                let fingerprint = p.env.keys.fingerprint(resolved.canonical.expose());
                if crate::keys::equal(fingerprint.as_bytes(), task.fingerprint.as_bytes()) {
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
