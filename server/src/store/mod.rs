//! The only place with SQL.
//!
//! Each verb takes a slice and is one transaction. What may happen to a record is decided by
//! [`crate::domain`]; here it is only read, written with the state and the fence that it was read with,
//! and committed together with its facts. Zero rows changed is a decision, never ignored.

mod accounts;
mod admit;
#[cfg(test)]
pub(crate) mod conformance;
mod countries;
mod duties;
pub mod engine;
mod freezes;
mod inspect;
mod judge;
mod limits;
mod log;
mod oplog;
mod pages;
mod people;
#[cfg(test)]
mod plans;
mod postgres;
mod restore;
mod retention;
mod rows;
mod sqlite;
#[cfg(test)]
mod statements;
mod tallies;
mod tokens;
#[cfg(test)]
mod upgrade;
mod vendors;
mod watch;
mod work;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use app::model::{
    Capped, Channel, ClientView, EventPage, Fact, Freeze, FreezePage, OverviewPage, PolicyPage,
    Record as RecordView, Role, SellerPage, Stamp, State, UnknownPage, UserView, WorkerView,
};
use async_trait::async_trait;

use crate::clock::Clock;
use crate::domain::{Ctx, Facing, Lookup, Policy, PreCall, Record, Verdict};
use crate::entropy::Entropy;
use crate::keys::Keys;
use crate::policy::{Place, SendingRules};

pub use duties::{Duties, DutyView, Hold};
pub use engine::SCHEMA_VERSION;
pub use inspect::Inspect;
pub use log::{
    AuditVerdict, FactLog, KeptCheckpoint, LOG_ROWS_MAX, LogHead, LogKey, LogRow, LoggedFact,
    PurgedRange, Sealed, Selection, Unsealed,
};
pub use oplog::{LogListed, LogSearch, OperatorsLog};
pub use people::{Changed, EXTERNAL, Factor, People, SessionRow};
pub use restore::{Epoch, Restored, Restores};
pub use retention::{Cutoffs, Due, LegalHold, Purged, Retention};
pub use tallies::{DELIVERY_BOUNDS_MS, Metric, Tally, Width};
pub use vendors::STOPPED;
pub use watch::{AlertChange, Delivery, DeliveryEnd, Figures, NodeGauge, Watch};

/// Why the store could not do it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else holds what we need; the same call may go through at once.
    #[error("the database is busy")]
    Busy,
    /// Cannot be reached, or its disk is full or failing. Nothing was committed.
    #[error("the database is not available")]
    Unavailable { source: Box<dyn std::error::Error + Send + Sync> },
    /// A unique constraint: somebody else was first.
    #[error("another row already has this value ({constraint})")]
    Conflict { constraint: String },
    /// A guarded update met another state than it expected.
    #[error("expected to change {expected} rows, changed {actual}")]
    RowsAffected { expected: u64, actual: u64 },
    /// A row holds what it never should.
    #[error("row {row} of {table}: {column} is not what it must be")]
    Inconsistent { table: &'static str, column: &'static str, row: String },
    /// The database refused a statement: a broken invariant or a fault of ours.
    #[error("the database refused a statement")]
    Statement { source: Box<dyn std::error::Error + Send + Sync> },
    /// Nobody can say whether the commit happened: read, never guess.
    #[error("it is not known whether the commit happened")]
    CommitUnknown { source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the migrations could not be applied")]
    Migration { source: Box<dyn std::error::Error + Send + Sync> },
    /// This binary does not know the database's schema.
    #[error("the database has schema {found}, this program knows {known}")]
    Schema { found: i64, known: i64 },
    /// Another version of this program wrote the record; it is left to those who understand it.
    #[error("the record has lease semantics {semantics}, which this process does not understand")]
    NotUnderstood { semantics: u32 },
    /// An embedded database has one server.
    #[error("another process serves {name}")]
    Served { name: String },
    /// Another process has taken over the duty since: nothing was written.
    #[error("the duty `{name}` is another process's by now")]
    DutyLost { name: &'static str },
    /// The keys outside the database are not those which it was made with.
    #[error("the key `{name}` is not the one that this database was made with")]
    OtherKeys { name: String },
}

impl Error {
    /// Whether the same call may succeed later without anybody mending anything.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Busy
                | Self::Unavailable { .. }
                | Self::CommitUnknown { .. }
                | Self::NotUnderstood { .. }
        )
    }
}

/// What the store needs from outside to decide.
#[derive(Debug, Clone)]
pub struct Env {
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub keys: Arc<Keys>,
    pub rules: Arc<Rules>,
}

/// The settings and the providers' capabilities.
#[derive(Debug, Clone)]
pub struct Rules {
    pub policy: Policy,
    pub facing: HashMap<String, Facing>,
    /// The providers of each channel, in order.
    pub routes: BTreeMap<Channel, Vec<String>>,
    /// Look-ups a minute that a provider allows; those that are not here allow any number.
    pub allowances: HashMap<String, u32>,
    /// After a freeze ends, so many are sent a second.
    pub release_per_second: u32,
    /// The lease semantics under which this process writes records.
    pub semantics: u32,
    /// Those that it understands: it claims, reads, reaps and expires no others.
    pub understands: std::ops::RangeInclusive<u32>,
    /// How often, where to, and for how much.
    pub sending: SendingRules,
    /// The window of the objective, in microseconds: what settles later has missed it.
    pub slo_window: i64,
}

/// What is known of a provider that is not configured any more: nothing can be read or replayed.
static NO_FACING: Facing =
    Facing { settle: None, is_readable: false, replay_window: None, has_callbacks: false };

/// How this program understands leases; see [`Rules::semantics`].
pub const LEASE_SEMANTICS: u32 = 1;

/// One minute.
const SLO_WINDOW_DEFAULT: i64 = 60_000_000;

impl Rules {
    /// With this program's own lease semantics.
    #[must_use]
    pub fn new(policy: Policy, facing: HashMap<String, Facing>, release_per_second: u32) -> Self {
        Self {
            policy,
            facing,
            routes: BTreeMap::new(),
            allowances: HashMap::new(),
            release_per_second,
            semantics: LEASE_SEMANTICS,
            understands: LEASE_SEMANTICS..=LEASE_SEMANTICS,
            sending: SendingRules::default(),
            slo_window: SLO_WINDOW_DEFAULT,
        }
    }

    /// The context of one decision about a record.
    #[must_use]
    pub fn ctx(&self, record: &Record, now: Stamp, jitter: u32) -> Ctx<'_> {
        let facing = self.facing.get(&record.provider).unwrap_or(&NO_FACING);
        let next_provider = self.after(record.channel, record.upcoming());
        Ctx { now, policy: &self.policy, facing, next_provider, jitter }
    }

    /// Who comes after this provider in the channel's route; after the last one, the first. None where it is
    /// alone or not on the route.
    #[must_use]
    pub fn after(&self, channel: Channel, provider: &str) -> Option<&str> {
        let route = self.routes.get(&channel)?;
        let at = route.iter().position(|name| name == provider)?;
        let next = &route[(at + 1) % route.len()];
        (next != provider).then_some(next.as_str())
    }
}

/// One event as admission hands it over: parsed, hashed, judged as far as it can be without the store.
#[derive(Debug, Clone)]
pub struct Admission {
    pub id: String,
    pub event_id: String,
    pub idempotency_key: String,
    pub content_hash: String,
    /// The hash of the same content with the channel spelled out, or left out: the other of the two. It says
    /// the same where the record has this channel.
    pub spelled_hash: Option<String>,
    pub channel: Channel,
    pub provider: String,
    pub purpose: String,
    pub seller_id: Option<String>,
    pub request_window: Option<String>,
    pub token_id: Option<String>,
    pub destination_ref: String,
    pub reset_ref: String,
    pub destination_hash: String,
    pub reset_hash: String,
    pub expires_at: Stamp,
    pub client_id: String,
    /// A fault that counts only if the event is new: its lifetime.
    pub fault: Option<(&'static str, &'static str)>,
}

/// What became of one admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted {
    /// First time.
    New(RecordView),
    /// The same again, or a later request that converged on the first of its window.
    Replay(RecordView),
    /// 409 with this code.
    Conflict(&'static str),
    /// 429 with this code: nothing of it is kept, the same again after so long.
    Limited { code: &'static str, retry_after_s: u32 },
    /// 400: field and code.
    Invalid(&'static str, &'static str),
    /// 410: admitted once, and purged since.
    Purged,
}

/// Somebody wants to use a token.
#[derive(Debug, Clone)]
pub struct Consume {
    pub token_id: String,
    /// Keyed hash of the caller's `consume_id`: the same one gets the first answer again.
    pub consume_hash: Option<String>,
    pub client_id: String,
}

/// What became of it. Where several hold, the first of this order is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consumed {
    /// Used now, or by the same `consume_id` before.
    Done {
        id: String,
        event_id: String,
        seller_id: Option<String>,
        consumed_at: Stamp,
        is_replay: bool,
    },
    /// Used before.
    Used,
    /// A later message of the seller has gone out, another token was used, or the event was cancelled.
    Superseded,
    Expired,
    Unknown,
}

/// A record in a worker's hands.
#[derive(Debug, Clone)]
pub struct Claim {
    pub id: String,
    pub event_id: String,
    pub fence: i64,
    /// The number that the marker will give, or repeats for a replay.
    pub attempt: u32,
    pub attempt_id: String,
    pub is_replay: bool,
    pub channel: Channel,
    pub provider: String,
    pub purpose: String,
    pub destination_ref: String,
    pub reset_ref: String,
    pub expires_at: Stamp,
    pub lease_until: Stamp,
}

/// A worker is ready to call.
#[derive(Debug, Clone)]
pub struct Start {
    pub id: String,
    pub fence: i64,
    /// Keyed hash of the rendered request.
    pub request_hash: String,
    /// Keyed hash of the rendered text alone: a scan recognises the message by it.
    pub text_hash: String,
    pub fingerprint: String,
    pub fingerprint_version: u32,
    /// Of a text message: where its number is.
    pub place: Option<Place>,
}

/// What the marker decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    /// Its commit was acknowledged: call now, and write nothing after `call_by`.
    Call { attempt: u32, call: u32, call_by: Stamp },
    /// Not now: expired, frozen, evidence, token, lease.
    Stopped(State),
    /// The claim is somebody else's by now.
    Stale,
}

/// How a call ended.
#[derive(Debug, Clone)]
pub struct End {
    pub id: String,
    pub fence: i64,
    pub attempt: u32,
    pub verdict: Verdict,
    pub ended_at: Stamp,
}

/// A claim that ends before its marker.
#[derive(Debug, Clone)]
pub struct GiveUp {
    pub id: String,
    pub fence: i64,
    pub why: PreCall,
}

/// One read of a provider that is due.
#[derive(Debug, Clone)]
pub struct ReadTask {
    pub id: String,
    pub event_id: String,
    pub state: State,
    /// The last attempt on record; 0 where a restore may have lost the first.
    pub attempt: u32,
    /// The attempts to ask for, by number and id: the last one; after a restore all that there can be.
    pub ids: Vec<(u32, String)>,
    /// The record's count when it was asked: an answer about an older call proves nothing.
    pub calls: u32,
    pub channel: Channel,
    pub provider: String,
    pub message_id: Option<String>,
    pub since: Stamp,
    pub destination_ref: Option<String>,
    pub reset_ref: Option<String>,
    pub purpose: String,
    /// Empty where the attempt is not on record.
    pub fingerprint: String,
    /// None where an earlier version made the attempt.
    pub text_hash: Option<String>,
    /// A restore or a failover concerns the record: the lost attempts may have gone to any provider of its
    /// route, the last one as late as then.
    pub restored_at: Option<Stamp>,
}

/// The answer to a read.
#[derive(Debug, Clone)]
pub struct ReadAnswer {
    pub id: String,
    pub attempt: u32,
    pub calls: u32,
    /// All of the record's possible attempts were asked for. After a restore nothing less shows absence.
    pub is_whole: bool,
    /// The provider that has it, where that is another than the record's.
    pub found_at: Option<String>,
    pub asked_at: Stamp,
    pub answer: Lookup,
}

/// One verified receipt of a provider.
#[derive(Debug, Clone)]
pub struct Evidence {
    pub provider: String,
    pub receipt: crate::providers::Receipt,
}

/// What a receipt did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weighed {
    Kept,
    /// The same receipt was kept before.
    Duplicate,
    /// No attempt of ours has this id.
    Unmatched,
}

/// What one pass of the sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    pub expired: usize,
    pub unresolved: usize,
    pub leases: usize,
    pub settled: usize,
    /// A limit was met: there may be more.
    pub more: bool,
}

/// What a freeze command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frozen {
    pub freeze: Freeze,
    /// It was in force already: actor and time are the first ones.
    pub is_repeat: bool,
}

/// How the queue looks, for gauges and pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gauges {
    pub due: u64,
    pub oldest_due_at: Option<Stamp>,
    pub backing_off: u64,
    pub oldest_backing_off_at: Option<Stamp>,
    pub frozen: u64,
    pub oldest_frozen_at: Option<Stamp>,
    pub unknown: u64,
    pub oldest_unknown_at: Option<Stamp>,
    pub dispatching: u64,
    pub reads_due: u64,
    pub oldest_read_due_at: Option<Stamp>,
    pub duplicate_calls: u64,
    pub freezes: u64,
    /// Breakers of countries that are not closed.
    pub open_breakers: u64,
    /// Each provider that was ever paused: whether it is now, and whether it refuses our credentials.
    pub pauses: Vec<(String, bool, bool)>,
    /// Facts that wait for their place in the log.
    pub unsealed: u64,
    pub oldest_unsealed_at: Option<Stamp>,
    /// The last check of the whole log found nothing; none: there was none yet.
    pub is_log_sound: Option<bool>,
}

/// Whether a process may start with its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activation {
    /// It is the one in force, or is now.
    Active,
    /// Other processes run with another one; these keys differ.
    Differs(Vec<String>),
}

/// A client as the guard needs it.
#[derive(Debug, Clone)]
pub struct Client {
    pub id: String,
    pub secret_hash: String,
    pub scopes: Vec<String>,
}

/// A user as sign-in needs it.
#[derive(Debug, Clone)]
pub struct User {
    pub id: String,
    pub email: String,
    pub role: Role,
    pub password_hash: String,
    pub is_disabled: bool,
    /// Somebody else chose the password.
    pub must_change: bool,
    /// A second factor is asked for at sign-in.
    pub has_factor: bool,
}

impl User {
    /// Signs in by the identity provider: there is no password.
    #[must_use]
    pub fn is_external(&self) -> bool {
        self.password_hash == EXTERNAL
    }
}

/// What the events list asks for. Every filter is optional.
#[derive(Debug, Clone, Default)]
pub struct Search {
    pub states: Vec<State>,
    pub channel: Option<Channel>,
    pub provider: Option<String>,
    pub reason: Option<app::model::Reason>,
    pub seller: Option<String>,
    /// Event id, record id, or the beginning of either.
    pub prefix: Option<String>,
    pub after: Option<Stamp>,
    pub before: Option<Stamp>,
    /// Older than this row: (created_at, id).
    pub cursor: Option<(Stamp, String)>,
    pub limit: usize,
}

/// Rows of a list, newest first.
#[derive(Debug, Clone, Default)]
pub struct Listed {
    pub rows: Vec<RecordView>,
    pub next: Option<(Stamp, String)>,
    pub total: Capped,
}

/// The ledger's verbs.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Admits a group in one commit. Answers come in the order of the requests.
    async fn admit(&self, requests: &[Admission]) -> Result<Vec<Admitted>, Error>;

    /// Takes up to `limit` due records of a channel for `owner`.
    async fn claim(&self, owner: &str, channel: Channel, limit: usize)
    -> Result<Vec<Claim>, Error>;

    /// The markers of several claims, in one commit.
    async fn start(&self, starts: &[Start]) -> Result<Vec<Started>, Error>;

    /// After a commit whose result is unknown: what the database says of this claim.
    async fn read_back(&self, start: &Start) -> Result<Started, Error>;

    /// Ends claims before their marker. Stale ones change nothing.
    async fn give_up(&self, claims: &[GiveUp]) -> Result<(), Error>;

    /// Writes how calls ended. A stale owner's answer is kept as evidence for its own attempt.
    async fn end(&self, ends: &[End]) -> Result<Vec<State>, Error>;

    /// Takes up to `limit` due reads; each becomes due again after `visible_after` microseconds.
    async fn claim_reads(&self, limit: usize, visible_after: i64) -> Result<Vec<ReadTask>, Error>;

    /// Writes the answers of reads.
    async fn record_reads(&self, answers: &[ReadAnswer]) -> Result<(), Error>;

    /// Weighs verified receipts.
    async fn weigh(&self, evidence: &[Evidence]) -> Result<Vec<Weighed>, Error>;

    /// Expires, reaps lost leases, ends polling: at most `limit` records of each.
    async fn sweep(&self, limit: usize) -> Result<Swept, Error>;

    /// Takes an event back. `None`: no such record. `Err` in the pair: too late.
    async fn cancel(&self, id: &str, actor: &str) -> Result<Option<(RecordView, bool)>, Error>;

    /// When the next record of a channel may be claimed, if any waits.
    async fn next_due(&self, channel: Channel) -> Result<Option<Stamp>, Error>;

    /// When the next read is due, if any is.
    async fn next_read(&self) -> Result<Option<Stamp>, Error>;

    /// When the next sweep has something to do, if ever.
    async fn next_sweep(&self) -> Result<Option<Stamp>, Error>;

    /// Pauses a provider for all workers.
    async fn pause_provider(&self, provider: &str, until: Stamp, code: &str) -> Result<(), Error>;

    /// The channel's records that waited for another provider now face this one.
    async fn adopt_route(&self, channel: Channel, providers: &[String]) -> Result<u64, Error>;

    /// Removes counts of limits that are over, so many at most.
    async fn purge_limits(&self, most: usize) -> Result<u64, Error>;

    /// Closes a country's breaker; counting starts anew. False: it is not open.
    async fn close_breaker(&self, country: &str, actor: &str, reason: &str) -> Result<bool, Error>;

    /// Uses a token, once however many ask.
    async fn consume(&self, consume: &Consume) -> Result<Consumed, Error>;
}

/// Freezes.
#[async_trait]
pub trait Freezes: Send + Sync {
    /// After this returns no call of the scope starts, on any node.
    async fn freeze(
        &self,
        scope: &str,
        actor: &str,
        reason: &str,
        review_at: Option<Stamp>,
    ) -> Result<Frozen, Error>;

    /// Ends a freeze: expires first, then lets the rest go at the paced rate. False: none was in force.
    async fn unfreeze(&self, scope: &str, actor: &str, reason: &str) -> Result<bool, Error>;

    /// Freezes in force.
    async fn freezes(&self) -> Result<Vec<Freeze>, Error>;

    /// The freeze desk's figures. `providers`: the names that can be frozen.
    async fn freeze_page(&self, providers: &[String]) -> Result<FreezePage, Error>;
}

/// What people and callers look at. Nothing here writes.
#[async_trait]
pub trait Pages: Send + Sync {
    async fn record(&self, id: &str) -> Result<Option<RecordView>, Error>;
    async fn record_by_event(&self, event_id: &str) -> Result<Option<RecordView>, Error>;
    /// Oldest first, at most 10 000.
    async fn timeline(&self, id: &str) -> Result<Option<Vec<Fact>>, Error>;
    async fn event_page(&self, id_or_event: &str) -> Result<Option<EventPage>, Error>;
    async fn search(&self, search: &Search) -> Result<Listed, Error>;
    async fn seller_page(
        &self,
        seller_id: &str,
        cursor: Option<(Stamp, String)>,
        limit: usize,
    ) -> Result<SellerPage, Error>;
    /// The sending rules, what went to each country, and the breakers.
    async fn policy_page(&self) -> Result<PolicyPage, Error>;
    async fn unknown_page(&self, limit: usize) -> Result<UnknownPage, Error>;
    async fn overview(&self) -> Result<OverviewPage, Error>;
    async fn gauges(&self) -> Result<Gauges, Error>;
    /// Grows with every fact: the version of the SSE hints.
    async fn fact_count(&self) -> Result<i64, Error>;
    async fn pauses(&self) -> Result<Vec<(String, Stamp, String)>, Error>;
}

/// One verified callback that met no attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmatched {
    pub provider: String,
    pub attempt_id: Option<String>,
    pub message_id: Option<String>,
    pub seen: app::model::Seen,
    pub code: Option<String>,
    pub provider_at: Option<Stamp>,
    pub first_at: Stamp,
    pub last_at: Stamp,
    pub times: u64,
}

/// What a provider's look-ups have come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reads {
    pub provider: String,
    /// Whole look-ups that may be made at once; none where any number may.
    pub level: Option<u64>,
    pub taken: u64,
    pub deferred: u64,
    pub last_at: Option<Stamp>,
    pub last_answer: Option<String>,
    pub last_code: Option<String>,
}

/// One run of the ambiguity trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    pub id: String,
    pub provider: String,
    pub kind: String,
    /// `simulator` or `sandbox`.
    pub target: String,
    pub verdict: String,
    pub started_at: Stamp,
    pub ended_at: Stamp,
    pub steps: Vec<TrialStep>,
}

/// One thing that was done or seen in a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialStep {
    pub scenario: String,
    /// `call`, `look_up` or `callback`.
    pub what: String,
    pub attempt_id: String,
    pub message_id: Option<String>,
    pub outcome: String,
    pub code: Option<String>,
    pub at: Stamp,
}

/// What is kept about providers besides the ledger.
#[async_trait]
pub trait Vendors: Send + Sync {
    /// Callbacks that met no attempt, newest first, and how many there are (counted to a limit).
    async fn unmatched(&self, limit: usize) -> Result<(Vec<Unmatched>, Capped), Error>;
    /// What the look-ups of each provider have come to.
    async fn reads(&self) -> Result<Vec<Reads>, Error>;
    /// Keeps a trial.
    async fn keep_trial(&self, trial: &Trial) -> Result<(), Error>;
    /// The newest trial of each provider.
    async fn last_trials(&self) -> Result<Vec<Trial>, Error>;
}

/// Operators, clients, sessions, workers, and facts without a record.
#[async_trait]
pub trait Accounts: Send + Sync {
    async fn add_user(
        &self,
        email: &str,
        role: Role,
        password_hash: &str,
    ) -> Result<UserView, Error>;
    async fn users(&self) -> Result<Vec<UserView>, Error>;
    async fn user_by_email(&self, email: &str) -> Result<Option<User>, Error>;
    async fn user_by_id(&self, id: &str) -> Result<Option<User>, Error>;
    /// False: no such user. Ends the user's sessions.
    async fn set_password(&self, email: &str, password_hash: &str) -> Result<bool, Error>;
    /// False: no such user. Ends the user's sessions.
    async fn disable_user(&self, email: &str) -> Result<bool, Error>;

    async fn add_client(
        &self,
        name: &str,
        scopes: &[String],
        secret_hash: &str,
    ) -> Result<ClientView, Error>;
    async fn clients(&self) -> Result<Vec<ClientView>, Error>;
    async fn client(&self, id: &str) -> Result<Option<Client>, Error>;
    /// By id or name. False: no such client.
    async fn revoke_client(&self, id_or_name: &str) -> Result<bool, Error>;

    async fn save_session(
        &self,
        hash: &str,
        user_id: Option<&str>,
        data: &str,
        expires_at: Stamp,
    ) -> Result<(), Error>;
    async fn load_session(&self, hash: &str) -> Result<Option<String>, Error>;
    async fn delete_session(&self, hash: &str) -> Result<(), Error>;
    /// Removes sessions, one-time keys and failed sign-ins that are over. A duty's work.
    async fn purge_sessions(&self, hold: Hold) -> Result<u64, Error>;

    /// Until when sign-in of any of these subjects is blocked.
    async fn login_blocked_to(&self, subjects: &[String]) -> Result<Option<Stamp>, Error>;
    /// Counts a failure and blocks longer with each.
    async fn login_failed(&self, subjects: &[String]) -> Result<(), Error>;
    async fn login_succeeded(&self, subjects: &[String]) -> Result<(), Error>;

    /// True the first time: a double click acts once.
    async fn use_action_key(&self, key: &str) -> Result<bool, Error>;

    /// A fact without a record: an operator's act, a configuration change.
    async fn note(
        &self,
        kind: app::model::FactKind,
        actor: &str,
        detail: app::model::Detail,
    ) -> Result<(), Error>;

    /// Keeps the value of an audited setting; a change is a fact. True when it changed.
    async fn keep_setting(&self, name: &str, value: &str) -> Result<bool, Error>;

    /// Makes this configuration the one in force, if no process with another one is alive (silent for less
    /// than `alive_within` microseconds) or `force` says so. A change is a fact.
    async fn activate(
        &self,
        digest: &str,
        shared: &std::collections::BTreeMap<String, String>,
        alive_within: i64,
        force: bool,
    ) -> Result<Activation, Error>;

    /// Signs a process's life; gives the digest of the configuration in force.
    async fn heartbeat(&self, worker: &WorkerView, digest: &str) -> Result<Option<String>, Error>;
    async fn leave(&self, worker_id: &str) -> Result<(), Error>;
    async fn workers(&self) -> Result<Vec<WorkerView>, Error>;
}

/// The whole store.
#[async_trait]
pub trait Store:
    Ledger
    + Freezes
    + Pages
    + Accounts
    + Duties
    + Restores
    + Vendors
    + FactLog
    + People
    + OperatorsLog
    + Inspect
    + Retention
    + Watch
    + fmt::Debug
{
    /// Applies the missing migrations.
    async fn migrate(&self) -> Result<(), Error>;
    /// The schema is the one that this program knows.
    async fn check_schema(&self) -> Result<(), Error>;
    /// Registers the keys' check values, or refuses others.
    async fn check_keys(&self) -> Result<(), Error>;
    /// The database answers.
    async fn ping(&self) -> Result<(), Error>;
    /// What other processes tell reaches us; where not, somebody has to look now and then.
    fn hears_hints(&self) -> bool;
    /// Waits for what another process told: a channel's name, or `all`. For ever on SQLite.
    async fn next_hint(&self) -> Result<String, Error>;
    /// The database's own clock; none where it is this machine's.
    async fn time(&self) -> Result<Option<Stamp>, Error>;
    /// A failover could lose acknowledged commits: a standby is attached that commits do not wait for.
    async fn has_unsafe_standby(&self) -> Result<bool, Error>;
    /// Copies an embedded database into a new file, while it is used; false where it is not embedded.
    async fn backup(&self, to: &std::path::Path) -> Result<bool, Error>;
    /// The engine's name and the database's.
    fn describe(&self) -> (&'static str, String);
    async fn close(&self);
}

/// The store over one engine.
#[derive(Debug)]
pub struct SqlStore<E: engine::Engine> {
    engine: E,
    env: Env,
}

/// The lock of the one process that may serve an embedded database; none for a shared one.
///
/// # Errors
/// [`Error::Served`] when another process has it.
pub fn lock(url: &str) -> Result<Option<std::fs::File>, Error> {
    if is_shared(url) { Ok(None) } else { sqlite::lock(url).map(Some) }
}

/// Several processes may serve this database.
#[must_use]
pub fn is_shared(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// Opens the database that the URL names, without migrating it.
///
/// # Errors
/// When it cannot be opened, or the URL is of no known engine.
pub async fn open(url: &str, env: Env) -> Result<Arc<dyn Store>, Error> {
    if is_shared(url) {
        let engine = postgres::PostgresEngine::open(url).await?;
        Ok(Arc::new(SqlStore { engine, env }))
    } else {
        let engine = sqlite::SqliteEngine::open(url).await?;
        Ok(Arc::new(SqlStore { engine, env }))
    }
}
