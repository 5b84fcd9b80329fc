//! A notification as the rules see it: everything that a decision reads or writes, and nothing else.

use app::model::{ATTEMPT_CEILING, Channel, Reason, Seen, Stamp, State};

/// Where a worker is within `dispatching`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No claim.
    Idle,
    /// Claimed; no marker yet, so nothing of this claim can be on the wire.
    Claimed,
    /// The marker has committed: the call may have reached the provider.
    Calling,
}

impl Phase {
    /// The spelling in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Claimed => "claimed",
            Self::Calling => "calling",
        }
    }

    /// Reads the spelling of the database.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Idle, Self::Claimed, Self::Calling].into_iter().find(|phase| phase.as_str() == text)
    }
}

/// Evidence that waits for a running call to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub attempt: u32,
    pub seen: Seen,
    pub message_id: Option<String>,
}

/// The ledger's record of one notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub id: String,
    pub event_id: String,
    pub state: State,
    /// Of the last transition.
    pub reason: Reason,
    pub channel: Channel,
    /// The provider of the last attempt; of the first one before there was any.
    pub provider: String,
    /// The provider of the next attempt, where it is another one.
    pub next_provider: Option<String>,
    pub created_at: Stamp,
    pub updated_at: Stamp,
    pub expires_at: Stamp,

    /// `seq` of the newest fact.
    pub seq: u32,
    /// Number of the last attempt with a marker; 0 before the first.
    pub attempt: u32,
    /// Markers.
    pub calls: u32,
    /// Markers of replays.
    pub replays: u32,
    /// Calls that count against `attempts_max`.
    pub spent: u32,
    /// `seq` of the fact that authorises the next call; 0 while nothing does.
    pub authority: u32,
    /// Claims in a row that ended before their marker: what their back-off grows by.
    pub stumbles: u32,

    /// `accepted`: not claimed before. `dispatch_unknown`, `sent`: next read. Else none.
    pub due_at: Option<Stamp>,
    /// `dispatch_unknown`: not replayed before; none where no replay is possible.
    pub replay_at: Option<Stamp>,

    pub phase: Phase,
    /// The claim or call in hand repeats the last attempt under the same key.
    pub is_replay: bool,
    /// Grows with each claim: who holds an older one changes nothing.
    pub fence: i64,
    pub lease_owner: Option<String>,
    pub lease_until: Option<Stamp>,

    /// When the first call of the last attempt started: the replay window runs from here.
    pub attempt_started_at: Option<Stamp>,
    /// After this its owner writes nothing more.
    pub call_by: Option<Stamp>,
    /// When the call's owner saw it end; none where the owner was lost.
    pub call_ended_at: Option<Stamp>,
    pub message_id: Option<String>,

    /// Reads since the last call.
    pub reads: u32,
    /// When the first "absent" that counts was asked.
    pub absent_at: Option<Stamp>,
    pub held: Option<Held>,
    /// `sent`: polling ends.
    pub poll_until: Option<Stamp>,
    pub settled_at: Option<Stamp>,
    /// The restore or failover that concerns it: since then calls of it may be missing from this ledger,
    /// so a read asks for every attempt id that there can be.
    pub restored_at: Option<Stamp>,
}

impl Record {
    /// From here on no call may start.
    #[must_use]
    pub const fn last_call_at(&self, margin: i64) -> Stamp {
        self.expires_at.plus(-margin)
    }

    /// The number that the claim in hand stands for: the next attempt's, or the last one's for a replay.
    #[must_use]
    pub const fn number_in_hand(&self) -> u32 {
        match (self.phase, self.is_replay) {
            (Phase::Claimed, false) => self.attempt + 1,
            _ => self.attempt,
        }
    }

    /// When "absent" begins to be believed, if it ever is (CONTRACT 3.3).
    #[must_use]
    pub fn settled_from(&self, settle: Option<i64>, lease: i64) -> Option<Stamp> {
        let ended = self.call_ended_at.or_else(|| self.call_by.map(|by| by.plus(lease)));
        // The lost calls were made before the restore, nobody knows when.
        let from = ended.max(self.restored_at)?;
        settle.map(|settle| from.plus(settle))
    }

    /// There may have been a call of this number. After a restore that is any number: the ledger has
    /// forgotten calls.
    #[must_use]
    pub const fn may_have(&self, attempt: u32) -> bool {
        let last = if self.restored_at.is_some() { ATTEMPT_CEILING } else { self.attempt };
        attempt >= 1 && attempt <= last
    }

    /// A later call than that of `attempt` is on record: evidence about it is the duplicate guardrail's.
    #[must_use]
    pub fn has_called_since(&self, attempt: u32) -> bool {
        let lost = attempt > self.attempt
            && self.restored_at.is_some_and(|at| self.attempt_started_at > Some(at));
        attempt < self.attempt || lost
    }

    /// The provider that the next call goes to.
    #[must_use]
    pub fn upcoming(&self) -> &str {
        self.next_provider.as_deref().unwrap_or(&self.provider)
    }

    /// The claim in hand is this one.
    #[must_use]
    pub fn is_held_by(&self, fence: i64, phase: Phase) -> bool {
        self.state == State::Dispatching && self.phase == phase && self.fence == fence
    }
}
