//! The numbers that the rules use, and the pure functions of them.

use app::model::Stamp;

/// Settings of dispatch and reconciliation. All times are microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// No call starts at or after `expires_at - margin`.
    pub margin: i64,
    pub call_timeout: i64,
    pub lease: i64,
    /// Calls that count; see [`app::model::Reason::spends_attempt`].
    pub attempts_max: u32,
    pub replays_max: u32,
    pub backoff_first: i64,
    pub backoff_max: i64,
    pub first_poll: i64,
    pub max_poll: i64,
    pub poll_for: i64,
}

/// What the rules must know of the provider that a record faces. Times in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facing {
    /// How long after a call "absent" is not yet believed. `None`: never believed.
    pub settle: Option<i64>,
    /// An attempt can be found by a read.
    pub is_readable: bool,
    /// A repeated call under the same key does not send again within this time.
    pub replay_window: Option<i64>,
    /// The provider reports back by verified callbacks.
    pub has_callbacks: bool,
}

/// What comes in from outside for one decision.
#[derive(Debug, Clone, Copy)]
pub struct Ctx<'a> {
    pub now: Stamp,
    pub policy: &'a Policy,
    pub facing: &'a Facing,
    /// Who comes after the record's upcoming provider in its channel's route; none: nobody.
    pub next_provider: Option<&'a str>,
    /// 0 to 1000: where in the jitter's range this decision falls.
    pub jitter: u32,
}

impl Ctx<'_> {
    /// Exponential back-off: `first * 2^step`, at most `max`, within 20 % to either side.
    #[must_use]
    pub fn backoff(&self, step: u32) -> i64 {
        self.spread(doubled(self.policy.backoff_first, step, self.policy.backoff_max), 20)
    }

    /// Time to the next read after `reads` reads: fast at first, then slower, at most `max_poll`.
    #[must_use]
    pub fn poll(&self, reads: u32) -> i64 {
        self.spread(doubled(self.policy.first_poll, reads, self.policy.max_poll), 10)
    }

    /// Moves `micros` by up to `percent` to either side.
    fn spread(&self, micros: i64, percent: i64) -> i64 {
        let range = micros / 100 * percent * 2;
        micros - range / 2 + range / 1000 * i64::from(self.jitter.min(1000))
    }

    /// How far apart two "absent" answers must be asked to confirm each other (CONTRACT 3.3).
    #[must_use]
    pub fn absence_gap(&self, settle: i64) -> i64 {
        self.policy.first_poll.max(settle / 4)
    }
}

/// `first * 2^step`, at most `max`.
fn doubled(first: i64, step: u32, max: i64) -> i64 {
    let factor = 1_i64.checked_shl(step.min(40)).unwrap_or(i64::MAX);
    first.saturating_mul(factor).min(max).max(0)
}
