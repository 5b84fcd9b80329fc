//! The publisher: after a commit it says that there is work, and it sleeps until there is.
//!
//! A wake-up is a hint. What is to be done stands in the outbox, so a hint that is lost with the process
//! costs one poll, never an event.

use std::sync::Arc;
use std::time::Duration;

use app::model::{Channel, Stamp};
use tokio::sync::{Notify, watch};

use crate::clock::{Clock, duration};
use crate::entropy::Entropy;

/// The longest sleep without looking: what another process committed is found by then at the latest.
const POLL_MAX: Duration = Duration::from_secs(5);
/// How soon work is looked at again that was due and could not be taken.
const OVERDUE_POLL: Duration = Duration::from_millis(100);
/// The shortest sleep towards an instant, so that a coarse timer does not spin.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// Who waits for work.
#[derive(Debug, Default)]
struct Bells {
    sms: Notify,
    email: Notify,
    reads: Notify,
    sweep: Notify,
}

/// The wake-ups of one process.
#[derive(Debug, Clone)]
pub struct Wakeups {
    bells: Arc<Bells>,
    // Counts changes that open pages should know of; a watch keeps only the newest.
    changes: watch::Sender<u64>,
}

impl Default for Wakeups {
    fn default() -> Self {
        Self { bells: Arc::default(), changes: watch::channel(0).0 }
    }
}

impl Wakeups {
    /// A record of this channel may be claimed.
    pub fn dispatch(&self, channel: Channel) {
        match channel {
            Channel::Sms => self.bells.sms.notify_one(),
            Channel::Email => self.bells.email.notify_one(),
        }
        self.bells.sweep.notify_one();
        self.changed();
    }

    /// Anything may have become due: after a freeze ended, a route changed, evidence came.
    pub fn all(&self) {
        self.bells.sms.notify_one();
        self.bells.email.notify_one();
        self.reads();
    }

    /// A read may be due, or a deadline has moved.
    pub fn reads(&self) {
        self.bells.reads.notify_one();
        self.bells.sweep.notify_one();
        self.changed();
    }

    /// Something that a page shows has changed.
    pub fn changed(&self) {
        self.changes.send_modify(|version| *version += 1);
    }

    /// The stream of changes for open pages.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Waits for work of a channel, until `due`, or for the longest poll.
    pub async fn wait_dispatch(
        &self,
        channel: Channel,
        due: Option<Stamp>,
        clock: &dyn Clock,
        entropy: &dyn Entropy,
    ) {
        let bell = match channel {
            Channel::Sms => &self.bells.sms,
            Channel::Email => &self.bells.email,
        };
        wait(bell, due, clock, entropy).await;
    }

    /// Waits for a read.
    pub async fn wait_reads(&self, due: Option<Stamp>, clock: &dyn Clock, entropy: &dyn Entropy) {
        wait(&self.bells.reads, due, clock, entropy).await;
    }

    /// Waits for a deadline.
    pub async fn wait_sweep(&self, due: Option<Stamp>, clock: &dyn Clock, entropy: &dyn Entropy) {
        wait(&self.bells.sweep, due, clock, entropy).await;
    }
}

async fn wait(bell: &Notify, due: Option<Stamp>, clock: &dyn Clock, entropy: &dyn Entropy) {
    // Jittered, so that many processes do not look at the same instant.
    let poll = POLL_MAX - Duration::from_millis(entropy.below(1_000));
    let until_due = due.map_or(POLL_MAX, |due| {
        let left = duration(due.since(clock.now()));
        // Due already, and yet nothing was there to take: somebody else has it, or it may not be taken now.
        if left.is_zero() { OVERDUE_POLL } else { left.max(SLEEP_MIN) }
    });
    tokio::select! {
        () = bell.notified() => {}
        () = clock.sleep(until_due.min(poll)) => {}
    }
}
