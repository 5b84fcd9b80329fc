//! What `/slo`, `/alerts`, `/capacity` and `/runbook` show.

use serde::{Deserialize, Serialize};

use super::{AlertRule, AlertState, Channel, Severity, Stamp};

/// How much of the error budget a window may burn before somebody is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BurnRule {
    pub rule: AlertRule,
    pub severity: Severity,
    /// `1h`, for people and labels.
    pub long: &'static str,
    pub short: &'static str,
    pub long_s: i64,
    pub short_s: i64,
    /// Thousandths of the rate at which the budget would last exactly its period.
    pub factor_milli: i64,
}

/// The three pairs of windows. A long one that burns says that it matters, a short one that it still goes on.
pub const BURN_RULES: [BurnRule; 3] = [
    BurnRule {
        rule: AlertRule::BurnFast,
        severity: Severity::Page,
        long: "1h",
        short: "5m",
        long_s: 3_600,
        short_s: 300,
        factor_milli: 14_400,
    },
    BurnRule {
        rule: AlertRule::BurnMedium,
        severity: Severity::Page,
        long: "6h",
        short: "30m",
        long_s: 21_600,
        short_s: 1_800,
        factor_milli: 6_000,
    },
    BurnRule {
        rule: AlertRule::BurnSlow,
        severity: Severity::Ticket,
        long: "3d",
        short: "6h",
        long_s: 259_200,
        short_s: 21_600,
        factor_milli: 1_000,
    },
];

/// Events of one span, as the objective sees them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SloCounts {
    /// Could be judged: admitted, and not left out.
    pub judged: u64,
    /// Settled within the window.
    pub in_time: u64,
    /// Of the rest: a freeze lay over the window.
    pub frozen: u64,
    /// Taken back, or admitted with less life than the window.
    pub left_out: u64,
}

impl SloCounts {
    /// Judged and not settled in time.
    #[must_use]
    pub const fn missed(self) -> u64 {
        self.judged.saturating_sub(self.in_time)
    }

    /// Both spans together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            judged: self.judged + other.judged,
            in_time: self.in_time + other.in_time,
            frozen: self.frozen + other.frozen,
            left_out: self.left_out + other.left_out,
        }
    }
}

/// How fast one window burns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burn {
    pub rule: AlertRule,
    pub severity: Severity,
    pub long: String,
    pub short: String,
    pub long_counts: SloCounts,
    pub short_counts: SloCounts,
    /// Thousandths; 0 where nothing was judged.
    pub long_milli: i64,
    pub short_milli: i64,
    pub factor_milli: i64,
    /// There are enough events in the long window for it to mean anything.
    pub is_enough: bool,
    /// Both windows burn too fast, and there are enough events.
    pub is_over: bool,
}

/// One day or hour of a chart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SloPart {
    pub at: Stamp,
    pub counts: SloCounts,
}

/// One channel against the objective.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SloChannel {
    pub channel: Channel,
    pub period: SloCounts,
    /// Millionths of the judged that settled in time; none where nothing was judged.
    pub attained_ppm: Option<u64>,
    /// Thousandths of the budget that are left; 1000 where nothing was judged, below 0 when it is overdrawn.
    pub budget_left_milli: i64,
    pub burns: Vec<Burn>,
    /// Newest last.
    pub days: Vec<SloPart>,
    pub hours: Vec<SloPart>,
}

/// `/slo`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SloPage {
    pub target_ppm: u64,
    pub window_ms: i64,
    pub period_days: i64,
    pub events_min: u64,
    /// Where the newest part that could be judged ends.
    pub judged_to: Stamp,
    pub channels: Vec<SloChannel>,
    /// What margin would have avoided useless sends.
    pub margins: Vec<MarginAdvice>,
}

/// From the observed times between call and delivery of one channel and provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarginAdvice {
    pub channel: Channel,
    pub provider: String,
    pub delivered: u64,
    /// Delivered after the event had expired: the message was useless.
    pub useless: u64,
    /// Upper bounds in milliseconds under which half, 95 % and 99 % arrived; none: above the last bound.
    pub p50_ms: Option<i64>,
    pub p95_ms: Option<i64>,
    pub p99_ms: Option<i64>,
    pub margin_ms: i64,
    /// Share of messages, in thousandths, which arrive within today's margin.
    pub within_margin_milli: Option<u64>,
}

/// One alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    pub id: String,
    pub rule: AlertRule,
    /// A channel, provider or reason where the rule has several; else empty.
    pub subject: String,
    pub severity: Severity,
    pub state: AlertState,
    pub opened_at: Stamp,
    pub fired_at: Option<Stamp>,
    /// Not true any more since then; resolved when it stays so.
    pub clear_at: Option<Stamp>,
    pub ended_at: Option<Stamp>,
    pub updated_at: Stamp,
    /// How many things it is about.
    pub count: u64,
    pub oldest_at: Option<Stamp>,
    /// Microseconds for ages, thousandths for rates, else a count.
    pub value: i64,
    pub acked_at: Option<Stamp>,
    pub acked_by: Option<String>,
    pub ack_reason: Option<String>,
}

impl AlertRule {
    /// What is wrong, in a few words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::DuplicateDispatch => "A message may have been sent twice",
            Self::QueueAge => "Due events are not being claimed",
            Self::OutboxBacklog => "More events are due than the workers take",
            Self::BackingOffAge => "Events have been backing off for long",
            Self::FrozenReview => "Frozen with waiting work",
            Self::UnknownAge => "Outcomes stay unknown",
            Self::ExpiredBeforeDispatch => "Events expired before anything was sent",
            Self::LookupAllowance => "Reads of the provider come late",
            Self::CallbackUnmatched => "Callbacks about attempts that are not ours",
            Self::SealLag => "Facts wait for their seal",
            Self::WorkerTicks => "A worker has fallen silent",
            Self::ClockOffset => "A clock is far from the database's",
            Self::ProviderFailing => "A provider takes nothing",
            Self::BurnFast => "The error budget burns very fast",
            Self::BurnMedium => "The error budget burns fast",
            Self::BurnSlow => "The error budget burns steadily",
        }
    }

    /// Where the events that it is about can be seen.
    #[must_use]
    pub const fn link(self) -> &'static str {
        match self {
            Self::DuplicateDispatch => "/events",
            Self::QueueAge | Self::OutboxBacklog | Self::BackingOffAge => "/events?state=accepted",
            Self::FrozenReview => "/freeze",
            Self::UnknownAge => "/unknown",
            Self::ExpiredBeforeDispatch => "/events?state=expired",
            Self::LookupAllowance | Self::CallbackUnmatched | Self::ProviderFailing => "/providers",
            Self::SealLag | Self::WorkerTicks | Self::ClockOffset => "/workers",
            Self::BurnFast | Self::BurnMedium | Self::BurnSlow => "/slo",
        }
    }

    /// The section of the runbook.
    #[must_use]
    pub const fn anchor(self) -> &'static str {
        match self {
            Self::DuplicateDispatch => "duplicate-dispatch",
            Self::QueueAge | Self::OutboxBacklog => "queue",
            Self::BackingOffAge | Self::ProviderFailing => "provider-outage",
            Self::FrozenReview => "reopening",
            Self::UnknownAge | Self::LookupAllowance => "unknown-outcomes",
            Self::ExpiredBeforeDispatch => "expiry",
            Self::CallbackUnmatched => "callbacks",
            Self::SealLag => "sealing",
            Self::WorkerTicks => "workers",
            Self::ClockOffset => "clocks",
            Self::BurnFast | Self::BurnMedium | Self::BurnSlow => "error-budget",
        }
    }
}

/// A target that could not be told something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryTrouble {
    pub target: String,
    pub rule: AlertRule,
    /// `firing` or `resolved`.
    pub event: String,
    pub tries: u32,
    pub code: Option<String>,
    pub next_at: Stamp,
    pub is_given_up: bool,
}

/// `/alerts`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertsPage {
    /// Not resolved; the loudest first.
    pub open: Vec<Alert>,
    /// The newest that are over.
    pub past: Vec<Alert>,
    pub troubles: Vec<DeliveryTrouble>,
    /// Where alerts are told; empty: nowhere but here.
    pub targets: Vec<String>,
    pub may_acknowledge: bool,
    pub action_key: String,
}

/// `/runbook`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunbookPage {
    pub title: String,
    pub lead: Vec<RunbookBlock>,
    pub sections: Vec<RunbookSection>,
}

/// One section, with the name that alerts link to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunbookSection {
    pub anchor: String,
    pub title: String,
    pub blocks: Vec<RunbookBlock>,
}

/// A paragraph or a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunbookBlock {
    Text(Vec<RunbookInline>),
    Points(Vec<Vec<RunbookInline>>),
    Steps(Vec<Vec<RunbookInline>>),
}

/// A piece of a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunbookInline {
    Text(String),
    Code(String),
    Strong(String),
}

/// Where a figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Measured,
    Configured,
    Given,
    /// Somebody should replace it by a measurement.
    Guess,
}

impl Source {
    /// Its one spelling.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Configured => "configured",
            Self::Given => "given",
            Self::Guess => "guess",
        }
    }
}

/// What capacity is worked out from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityInput {
    pub name: String,
    pub value: String,
    pub source: Source,
}

/// What the load needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityNeed {
    pub name: String,
    /// The key of the configuration; empty where none sets it.
    pub key: String,
    pub value: String,
    pub configured: Option<String>,
    /// Less is configured.
    pub is_short: bool,
    pub why: String,
}

/// `/capacity`, and `sendonce capacity`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityPage {
    pub inputs: Vec<CapacityInput>,
    pub needs: Vec<CapacityNeed>,
}
