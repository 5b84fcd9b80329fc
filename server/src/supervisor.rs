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

    /// Waits until every loop has ended.
    pub async fn drained(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
