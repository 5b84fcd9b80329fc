//! The only reader of time.
//!
//! Two clocks with two purposes. [`Clock::now`] is the wall clock: what is stored, shown and compared
//! with `expires_at`. [`Clock::boot`] never jumps and counts the time in which the machine slept or the
//! process was stopped: what decides whether a call may still write its first byte (CONTRACT 3.4).

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use app::model::Stamp;
use async_trait::async_trait;
use tokio::sync::watch;

/// Time as a value that is passed in.
#[async_trait]
pub trait Clock: Send + Sync + fmt::Debug {
    /// The wall clock, truncated to microseconds.
    fn now(&self) -> Stamp;

    /// Microseconds of a clock that only moves forward and counts suspension.
    fn boot(&self) -> i64;

    /// Returns when `duration` has passed on this clock.
    async fn sleep(&self, duration: Duration);
}

/// The machine's clocks.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
    fn now(&self) -> Stamp {
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Stamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn boot(&self) -> i64 {
        // macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC goes on while the machine sleeps.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let id = rustix::time::ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let id = rustix::time::ClockId::Monotonic;
        let at = rustix::time::clock_gettime(id);
        at.tv_sec.saturating_mul(1_000_000).saturating_add(at.tv_nsec / 1_000)
    }

    #[expect(clippy::disallowed_methods, reason = "the clock's own sleep")]
    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// A clock that moves only when told, for tests and simulations.
#[derive(Debug, Clone)]
pub struct ManualClock {
    wall: Arc<AtomicI64>,
    boot: Arc<AtomicI64>,
    moved: Arc<Mutex<watch::Sender<i64>>>,
}

impl ManualClock {
    /// Starts at this instant.
    #[must_use]
    pub fn new(start: Stamp) -> Self {
        Self {
            wall: Arc::new(AtomicI64::new(start.micros())),
            boot: Arc::new(AtomicI64::new(0)),
            moved: Arc::new(Mutex::new(watch::channel(0).0)),
        }
    }

    /// Moves both clocks forward and wakes those who sleep on it.
    pub fn advance(&self, by: Duration) {
        let micros = micros(by);
        self.wall.fetch_add(micros, Ordering::SeqCst);
        let boot = self.boot.fetch_add(micros, Ordering::SeqCst) + micros;
        self.sender().send_replace(boot);
    }

    /// Moves the wall clock alone: an operator or NTP sets it.
    pub fn jump(&self, by_micros: i64) {
        self.wall.fetch_add(by_micros, Ordering::SeqCst);
    }

    fn sender(&self) -> std::sync::MutexGuard<'_, watch::Sender<i64>> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Stamp {
        Stamp::from_micros(self.wall.load(Ordering::SeqCst))
    }

    fn boot(&self) -> i64 {
        self.boot.load(Ordering::SeqCst)
    }

    async fn sleep(&self, duration: Duration) {
        let mut moved = self.sender().subscribe();
        let until = self.boot().saturating_add(micros(duration));
        while self.boot() < until {
            if moved.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Whole microseconds of a duration, saturating.
#[must_use]
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The duration of so many microseconds; negative ones are zero.
#[must_use]
pub fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
