//! Starts the loops, watches them, restarts them, drains them in order.
//!
//! A loop that panics or returns early is started again after a pause; what it had in hand is protected by
//! leases, so a restart can lose time and nothing else.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::duty::{Duty, Pass};
use crate::store::{Error, Hold};

/// Called by a loop after each pass that worked: what readiness is made of.
#[derive(Clone)]
pub struct Ticker(Arc<dyn Fn(&'static str) + Send + Sync>);

impl Ticker {
    #[must_use]
    pub fn new(tick: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tick))
    }

    /// A loop of this name has just worked.
    pub fn tick(&self, name: &'static str) {
        (self.0)(name);
    }
}

impl std::fmt::Debug for Ticker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ticker")
    }
}

/// The first pause after a failure; doubled with each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The longest: short enough that a database which comes back is noticed soon.
const PAUSE_MAX: Duration = Duration::from_secs(3);

/// Waits after the n-th failure in a row, or until the process stops.
pub async fn pause_after_error(failures: u32, clock: &dyn Clock, stop: &CancellationToken) {
    let factor = 1_u32 << failures.saturating_sub(1).min(8);
    tokio::select! {
        () = clock.sleep((PAUSE_FIRST * factor).min(PAUSE_MAX)) => {}
        () = stop.cancelled() => {}
    }
}

/// Keeps loops running until they are told to stop.
#[derive(Debug, Clone)]
pub struct Supervisor {
    tasks: TaskTracker,
    stop: CancellationToken,
    clock: Arc<dyn Clock>,
}

impl Supervisor {
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, stop: CancellationToken) -> Self {
        Self { tasks: TaskTracker::new(), stop, clock }
    }

    /// Runs `make()` again and again, each time in a task of its own, so that a panic is an event.
    pub fn keep<F, R>(&self, name: &'static str, make: F)
    where
        F: Fn() -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let (stop, clock) = (self.stop.clone(), Arc::clone(&self.clock));
        self.tasks.spawn(async move {
            let mut failures = 0;
            loop {
                let ended = tokio::spawn(make()).await;
                if stop.is_cancelled() {
                    return;
                }
                failures += 1;
                match ended {
                    Ok(()) => tracing::error!(loop_name = name, "a loop ended by itself; starting it again"),
                    Err(error) => {
                        tracing::error!(loop_name = name, %error, "a loop panicked; starting it again");
                    }
                }
                metrics::counter!("sendonce_loop_restarts_total", "loop" => name).increment(1);
                pause_after_error(failures, &*clock, &stop).await;
            }
        });
    }

    /// Keeps a duty: wherever this process holds its lease, `work` runs once in `every`, and again at once
    /// after [`Pass::More`]. Ticks under the duty's name after each look that worked, held or not.
    pub fn keep_duty<F, R>(&self, duty: Duty, every: Duration, ticker: Ticker, work: F)
    where
        F: Fn(Hold) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Result<Pass, Error>> + Send + 'static,
    {
        let (stop, clock) = (self.stop.clone(), Arc::clone(&self.clock));
        self.keep(duty.name(), move || {
            let (duty, ticker, work) = (duty.clone(), ticker.clone(), work.clone());
            let (stop, clock) = (stop.clone(), Arc::clone(&clock));
            async move {
                let mut failures = 0;
                // The first pass is due at once.
                let mut worked_at: Option<i64> = None;
                while !stop.is_cancelled() {
                    let is_due = worked_at.is_none_or(|at| {
                        clock.boot().saturating_sub(at) >= crate::clock::micros(every)
                    });
                    match one_pass(&duty, is_due, &work).await {
                        Ok(done) => {
                            failures = 0;
                            ticker.tick(duty.name());
                            match done {
                                Some(Pass::More) => continue,
                                Some(Pass::Done) => worked_at = Some(clock.boot()),
                                None => {}
                            }
                        }
                        Err(error) => {
                            failures += 1;
                            duty.forget();
                            tracing::warn!(duty = duty.name(), %error, "a duty failed; trying again");
                            pause_after_error(failures, &*clock, &stop).await;
                            continue;
                        }
                    }
                    tokio::select! {
                        () = clock.sleep(duty.look_every().min(every)) => {}
                        () = stop.cancelled() => {}
                    }
                }
            }
        });
    }

    /// Waits until every loop has ended.
    pub async fn drained(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// None: it is another process's, or not due.
async fn one_pass<F, R>(duty: &Duty, is_due: bool, work: &F) -> Result<Option<Pass>, Error>
where
    F: Fn(Hold) -> R,
    R: Future<Output = Result<Pass, Error>>,
{
    match duty.hold().await? {
        Some(hold) if is_due => work(hold).await.map(Some),
        _ => Ok(None),
    }
}
