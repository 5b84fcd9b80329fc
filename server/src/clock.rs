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
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the wall clock"
    )]
    fn now(&self) -> Stamp {
        let since =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
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

/// A clock that follows another one, the database's, by an offset that is measured again and again. So
/// leases and expiry do not hang on this machine's own clock.
#[derive(Debug, Clone)]
pub struct FollowingClock {
    own: Arc<dyn Clock>,
    // Microseconds to add to our own clock; written by one loop, read by all.
    offset: Arc<AtomicI64>,
    // Half the time that the last measurement took: how far off it can be. Negative before the first.
    uncertainty: Arc<AtomicI64>,
    measured_at: Arc<AtomicI64>,
}

impl FollowingClock {
    /// Follows nothing yet: reads as `own` does.
    #[must_use]
    pub fn new(own: Arc<dyn Clock>) -> Self {
        Self {
            own,
            offset: Arc::default(),
            uncertainty: Arc::new(AtomicI64::new(-1)),
            measured_at: Arc::default(),
        }
    }

    /// Takes one measurement: between `asked` and `answered` on [`Clock::boot`] the other clock read `theirs`.
    /// A vaguer measurement than the last replaces it only once that is old.
    pub fn measure(&self, asked: i64, answered: i64, theirs: Stamp) {
        let uncertainty = (answered.saturating_sub(asked) / 2).max(0);
        let last = self.uncertainty.load(Ordering::SeqCst);
        let age = answered.saturating_sub(self.measured_at.load(Ordering::SeqCst));
        if last >= 0 && uncertainty > 2 * last.max(1_000) && age < MEASURE_AGE_MAX / 2 {
            return;
        }
        let since_middle = self.own.boot().saturating_sub(asked.saturating_add(uncertainty));
        let theirs_now = theirs.plus(since_middle);
        self.offset.store(theirs_now.since(self.own.now()), Ordering::SeqCst);
        self.uncertainty.store(uncertainty, Ordering::SeqCst);
        self.measured_at.store(answered, Ordering::SeqCst);
    }

    /// How far this clock may be from the one it follows, in microseconds; none while that is not known or
    /// was measured too long ago.
    #[must_use]
    pub fn uncertainty(&self) -> Option<i64> {
        let uncertainty = self.uncertainty.load(Ordering::SeqCst);
        let age = self.own.boot().saturating_sub(self.measured_at.load(Ordering::SeqCst));
        (uncertainty >= 0 && age <= MEASURE_AGE_MAX).then_some(uncertainty)
    }

    /// What is added to this machine's clock, in microseconds.
    #[must_use]
    pub fn offset(&self) -> i64 {
        self.offset.load(Ordering::SeqCst)
    }
}

/// A measurement older than a minute says nothing about now.
const MEASURE_AGE_MAX: i64 = 60_000_000;

#[async_trait]
impl Clock for FollowingClock {
    fn now(&self) -> Stamp {
        self.own.now().plus(self.offset.load(Ordering::SeqCst))
    }

    fn boot(&self) -> i64 {
        self.own.boot()
    }

    async fn sleep(&self, duration: Duration) {
        self.own.sleep(duration).await;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use app::model::Stamp;

    use super::{Clock, FollowingClock, ManualClock};

    #[test]
    fn a_clock_that_is_ten_minutes_ahead_follows_the_database() {
        let own = ManualClock::new(Stamp::from_micros(2_000_000_000));
        let clock = FollowingClock::new(Arc::new(own.clone()));
        assert_eq!(clock.uncertainty(), None);
        let asked = clock.boot();
        own.advance(Duration::from_millis(4));
        clock.measure(asked, clock.boot(), Stamp::from_micros(1_400_000_000));
        assert_eq!(clock.now(), Stamp::from_micros(1_400_002_000));
        assert_eq!(clock.uncertainty(), Some(2_000));
        own.jump(600_000_000);
        own.advance(Duration::from_secs(1));
        clock.measure(clock.boot(), clock.boot(), Stamp::from_micros(1_401_002_000));
        assert_eq!(clock.now(), Stamp::from_micros(1_401_002_000));
    }

    #[test]
    fn a_vague_measurement_does_not_replace_a_good_one() {
        let own = ManualClock::new(Stamp::from_micros(0));
        let clock = FollowingClock::new(Arc::new(own.clone()));
        clock.measure(0, 0, Stamp::from_micros(5_000));
        own.advance(Duration::from_secs(1));
        clock.measure(0, clock.boot(), Stamp::from_micros(900_000_000));
        assert_eq!(clock.now(), Stamp::from_micros(1_005_000));
        own.advance(Duration::from_secs(100));
        assert_eq!(clock.uncertainty(), None, "too old to be believed");
    }
}
