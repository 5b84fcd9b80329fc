//! Duties: loops of which one process at a time does the work.
//!
//! Every process runs the loop; the one that holds the duty's lease (a row, see [`crate::store::Duties`])
//! works, the others look again before the lease could be over. A holder that dies is followed after at
//! most its lease and a look; one that stops in order gives its duties back at once.
//!
//! `Node` keeps one like this (`duty::SESSIONS`); a loop with another shape uses [`Duty::hold`] itself, as the
//! sweep does. A new duty needs a name below, a verb of the store that takes the [`Hold`], and:
//!
//! ```ignore
//! let store = Arc::clone(&self.store);
//! self.supervisor.keep_duty(self.duty(duty::ALERTS), EVERY, ticker, move |hold| {
//!     let store = Arc::clone(&store);
//!     // `Pass::More`: a limit was met, run again at once. An error: run again after a pause.
//!     async move { store.evaluate_alerts(hold).await.map(|()| Pass::Done) }
//! });
//! ```
//!
//! A pass should be short beside [`LEASE`]: a bounded batch, then `More`. The verb that it calls takes the
//! [`Hold`] and asks `SqlStore::check_hold` first in its transaction; so even a holder that was stopped past
//! its lease and goes on later writes nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::{Clock, micros};
use crate::store::{Error, Hold, Store};

/// Sessions, one-time keys and failed sign-ins that are over.
pub const SESSIONS: &str = "sessions";
/// Folding the counts beside the ledger.
pub const TALLIES: &str = "tallies";
/// Looking at what should alarm somebody.
pub const ALERTS: &str = "alerts";
/// Telling them.
pub const ALERT_DELIVERIES: &str = "alert_deliveries";
/// Expiry, lost leases, the end of polling. One duty for each lease semantics: a sweeper leaves alone what
/// it does not understand, so an older one must not keep the newer one from its rows.
#[must_use]
pub const fn sweep(semantics: u32) -> &'static str {
    match semantics {
        0 | 1 => "sweep:1",
        _ => "sweep:2",
    }
}

/// Facts get their places in the log. Many look often, so its lease is short.
pub const SEAL: &str = "seal";
/// Purges what is over long enough.
pub const RETENTION: &str = "retention";

/// How long a duty stays with a process that is silent.
pub const LEASE: Duration = Duration::from_secs(10);
/// The same for the sweep, on which events wait: a follower should not be missed for long.
pub const SWEEP_LEASE: Duration = Duration::from_secs(4);

/// What one pass of a duty came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Nothing more to do until the next time.
    Done,
    /// A limit was met: run again at once.
    More,
}

/// The lease of one duty, as this process sees it.
#[derive(Debug, Clone)]
pub struct Duty {
    name: &'static str,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    holder: String,
    lease: Duration,
    // The hold and until when, on the clock that counts suspension.
    held: Arc<Mutex<Option<(Hold, i64)>>>,
}

impl Duty {
    /// `holder` is unique to the process.
    #[must_use]
    pub fn new(
        name: &'static str,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        holder: String,
    ) -> Self {
        Self { name, store, clock, holder, lease: LEASE, held: Arc::default() }
    }

    /// With a lease of its own. Also the longest time after which a holder that died is followed.
    #[must_use]
    pub const fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Takes the duty, or keeps it; none while another process has it. Costs a commit once in half a
    /// lease, and nothing in between: what is answered is good for at least half a lease.
    ///
    /// # Errors
    /// The store's.
    pub async fn hold(&self) -> Result<Option<Hold>, Error> {
        let before = self.clock.boot();
        let kept = *self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((hold, until)) = kept
            && before < until - micros(self.lease) / 2
        {
            return Ok(Some(hold));
        }
        let lease = micros(self.lease);
        let hold = self.store.take_duty(self.name, &self.holder, lease).await?;
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) =
            hold.map(|hold| (hold, before + lease));
        Ok(hold)
    }

    /// A verb answered [`Error::DutyLost`]: the next [`Duty::hold`] asks the database.
    pub fn forget(&self) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// How long to wait before looking again: so often that the lease is renewed in time, and that a free
    /// duty is found soon.
    #[must_use]
    pub fn look_every(&self) -> Duration {
        self.lease / 3
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_lease_semantics_has_a_sweep_of_its_own() {
        let own = crate::store::LEASE_SEMANTICS;
        assert_eq!(super::sweep(own), format!("sweep:{own}"));
        assert_ne!(super::sweep(own), super::sweep(own + 1));
    }
}
