//! What each page shows, as plain data: the server fills it, the page draws it.

use serde::{Deserialize, Serialize};

use super::{CallOutcome, Channel, Fact, Freeze, Record, Role, Stamp, State};

/// Who is signed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    /// Opaque id: what facts carry.
    pub id: String,
    /// Shown to its owner only, in the bar.
    pub email: String,
    pub role: Role,
}

/// What every page of a signed-in operator needs around its own content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    pub operator: Operator,
    /// Sent back by every form; a post without the right one is refused.
    pub csrf: String,
    pub environment: String,
    pub version: String,
    pub schema: String,
    pub now: Stamp,
    /// Freezes in force: drawn as the banner on every page.
    pub frozen: Vec<FreezeView>,
    pub unknown_count: Capped,
    /// Path of the page, for the menu's `aria-current`.
    pub path: String,
}

/// A count that stops at a limit: "10,000+".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capped {
    pub count: u64,
    /// There are more than `count`.
    pub more: bool,
}

/// What happened to a form, so that the page can say it and keep what was typed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormState {
    /// Why nothing was done, in one sentence.
    pub problem: Option<String>,
    /// Field to message.
    pub fields: Vec<(String, String)>,
    /// Field to what was typed.
    pub typed: Vec<(String, String)>,
    /// What was done, in one sentence.
    pub notice: Option<String>,
}

impl FormState {
    /// What was typed into this field; empty if nothing.
    #[must_use]
    pub fn typed(&self, field: &str) -> &str {
        self.typed.iter().find(|(name, _)| name == field).map_or("", |(_, text)| text)
    }

    /// The message of this field.
    #[must_use]
    pub fn error(&self, field: &str) -> Option<&str> {
        self.fields.iter().find(|(name, _)| name == field).map(|(_, text)| text.as_str())
    }
}

/// `/login`: nobody is signed in, so there is no [`Frame`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginPage {
    pub environment: String,
    pub version: String,
    pub csrf: String,
    /// The path to go to afterwards; the server checks that it is one of ours.
    pub next: String,
    /// What was typed last time.
    pub email: String,
    /// One sentence that does not tell which of the two was wrong.
    pub problem: Option<String>,
    /// For example that one has been signed out.
    pub notice: Option<String>,
    /// The password was right and a code is asked for: proves it for a few minutes, to this browser alone.
    pub pending: Option<String>,
    /// The identity provider's name, where there is one.
    pub oidc: Option<String>,
}

/// A page that cannot be shown, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// 403: the role may not; the page says which may.
    Forbidden { permission: super::Permission },
    /// 403: the form was made by another session or is too old. What was typed is kept by going back.
    StaleForm,
    /// 404
    NotFound,
    /// 500; the id is in the log too.
    Broken { error_id: String },
    /// 503
    Unavailable { error_id: Option<String> },
}

impl Refusal {
    /// The HTTP status that goes with the page.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Forbidden { .. } | Self::StaleForm => 403,
            Self::NotFound => 404,
            Self::Broken { .. } => 500,
            Self::Unavailable { .. } => 503,
        }
    }
}

/// A freeze with what it holds back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreezeView {
    pub freeze: Freeze,
    /// Records of this scope that wait.
    pub waiting: Capped,
    /// Calls of this scope on the wire now.
    pub in_flight_now: u64,
    /// Records of this scope with unknown outcome.
    pub unknown: Capped,
    /// Ended as `expired_while_frozen` since it began.
    pub expired: Capped,
    /// Of the waiting: already past their margin, or past it by the review or in 15 minutes.
    pub expire_in_5_min: u64,
    pub expire_in_15_min: u64,
    pub expire_by_review: Option<u64>,
    pub oldest_waiting_at: Option<Stamp>,
    /// Of the waiting: already past their margin, so that reopening now sends none of them.
    pub too_late: u64,
    /// Reads of this scope since the freeze (of the newest facts), and how many of them the provider answered:
    /// what tells whether it is there again.
    pub reads: u64,
    pub reads_answered: u64,
    pub last_answer_at: Option<Stamp>,
}

/// Counts of a scope that could be frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeView {
    pub scope: String,
    pub waiting: Capped,
    pub in_flight: u64,
    pub frozen: bool,
}

/// `/freeze`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreezePage {
    pub active: Vec<FreezeView>,
    pub scopes: Vec<ScopeView>,
    pub release_per_second: u32,
    pub call_timeout_ms: i64,
    pub margin_ms: i64,
    pub may_freeze: bool,
    /// One-time key: a double click acts once.
    pub action_key: String,
}

/// `/`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverviewPage {
    /// Oldest and count by kind of waiting.
    pub due: Age,
    pub backing_off: Age,
    pub frozen: Age,
    pub unknown: Age,
    pub last_admitted_at: Option<Stamp>,
    /// Calls beyond 1 + proofs + replays: must be 0.
    pub duplicate_calls: u64,
    pub states: Vec<(State, Capped)>,
    pub recent: Vec<Record>,
    /// Admitted in the last hour, in twelve parts, oldest first.
    pub hour: Vec<HourPart>,
    /// More were admitted in the last hour than are counted.
    pub hour_more: bool,
    /// Engine and name of the database.
    pub database: String,
}

/// Five minutes of admissions, and what has become of them by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HourPart {
    pub from: Stamp,
    /// Sent or delivered.
    pub done: u64,
    pub open: u64,
    /// Failed or expired.
    pub ended: u64,
}

impl HourPart {
    #[must_use]
    pub const fn total(self) -> u64 {
        self.done + self.open + self.ended
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Age {
    pub count: Capped,
    pub oldest_at: Option<Stamp>,
}

/// `/events`: the filters of the URL, as typed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventFilter {
    /// Free text of the search box: qualifiers and an event id or its beginning.
    #[serde(default)]
    pub q: String,
    #[serde(default)]
    pub state: Option<State>,
    #[serde(default)]
    pub channel: Option<Channel>,
    #[serde(default)]
    pub provider: Option<String>,
    #[serde(default)]
    pub seller: Option<String>,
}

impl EventFilter {
    /// The query string of this filter and page, without `?`; empty for the plain first page. The one
    /// place where a link to `/events` is made, so that no filter is lost on the way.
    #[must_use]
    pub fn query(&self, cursor: Option<&str>) -> String {
        let pairs = [
            ("q", Some(self.q.as_str()).filter(|q| !q.is_empty())),
            ("state", self.state.map(State::as_str)),
            ("channel", self.channel.map(Channel::as_str)),
            ("provider", self.provider.as_deref()),
            ("seller", self.seller.as_deref()),
            ("cursor", cursor),
        ];
        let mut query = String::new();
        for (name, value) in pairs {
            if let Some(value) = value {
                if !query.is_empty() {
                    query.push('&');
                }
                query.push_str(name);
                query.push('=');
                query.push_str(&percent_encoded(value));
            }
        }
        query
    }

    /// `/events` with this filter, at this page.
    #[must_use]
    pub fn href(&self, cursor: Option<&str>) -> String {
        match self.query(cursor) {
            query if query.is_empty() => "/events".to_owned(),
            query => format!("/events?{query}"),
        }
    }

    /// Nothing is filtered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.query(None).is_empty()
    }
}

/// Text made safe for one segment or value of a URL.
#[must_use]
pub fn percent_encoded(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
                out.push(char::from(byte));
            }
            _ => {
                // Writing to a `String` cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// `/events`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsPage {
    pub filter: EventFilter,
    /// What in the query was not understood, one sentence each, naming the qualifier.
    pub problems: Vec<String>,
    /// What was typed looked like an email address or phone number: it was not searched, is kept nowhere,
    /// and is not in `filter`.
    pub has_personal_data: bool,
    pub rows: Vec<Record>,
    /// Opaque; absent on the last page.
    pub next_cursor: Option<String>,
    /// This is not the first page.
    pub is_continued: bool,
    pub total: Capped,
    pub providers: Vec<String>,
}

/// One call as its row has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallView {
    /// 1 for the record's first call.
    pub number: u32,
    pub attempt: u32,
    pub is_replay: bool,
    /// `seq` of the fact that authorised it.
    pub authorised_by: u32,
    pub started_at: Stamp,
    pub call_by: Stamp,
    pub ended_at: Option<Stamp>,
    pub outcome: Option<CallOutcome>,
    pub provider: String,
    pub attempt_id: String,
    pub provider_message_id: Option<String>,
}

/// `/events/{id}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventPage {
    pub record: Record,
    pub provider: Option<String>,
    pub provider_message_id: Option<String>,
    pub request_window: Option<String>,
    /// First 12 hex digits.
    pub token_id: Option<String>,
    pub facts: Vec<Fact>,
    pub calls: Vec<CallView>,
    /// Later and earlier requests of the same seller and purpose.
    pub earlier: Option<Record>,
    pub later: Option<Record>,
    /// What happens next and what will not, in one or two sentences.
    pub next_sentence: String,
    /// Paste-safe: no address, number or link.
    pub answer: String,
    /// Calls that no fact authorises: must be 0.
    pub duplicate_calls: u32,
    pub attempts_max: u32,
    pub margin_ms: i64,
    pub next_read_at: Option<Stamp>,
    pub poll_until: Option<Stamp>,
}

/// `/sellers/{seller_id}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SellerPage {
    pub seller_id: String,
    pub rows: Vec<SellerRow>,
    pub next_cursor: Option<String>,
    pub is_continued: bool,
    pub total: Capped,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SellerRow {
    pub record: Record,
    pub request_window: Option<String>,
    /// First 12 hex digits.
    pub token_id: Option<String>,
    /// Where the token stands; with `token_id`.
    pub token: TokenWord,
    /// The record whose message, or whose use, replaced the token.
    pub replaced_by: Option<String>,
}

/// Where a token stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenWord {
    #[default]
    Live,
    Consumed,
    Superseded,
    Expired,
}

impl TokenWord {
    /// The word on the page.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Consumed => "consumed",
            Self::Superseded => "superseded",
            Self::Expired => "expired",
        }
    }
}

/// `/policy`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyPage {
    /// Rules are counted and stop nothing.
    pub is_monitor: bool,
    pub currency: String,
    /// Rule to value, as configured; empty where nothing is.
    pub rules: Vec<(String, String)>,
    pub countries: Vec<CountryView>,
    /// There are more countries than the page shows.
    pub more: bool,
    pub may_close: bool,
    /// One-time key: a double click acts once.
    pub action_key: String,
}

/// Text messages to one country.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountryView {
    /// ISO 3166, two letters; `ZZ` for none.
    pub country: String,
    pub last_hour: CountrySums,
    pub last_day: CountrySums,
    /// Of the price table, in millionths.
    pub price: Option<i64>,
    pub breaker: Option<BreakerView>,
}

/// What went to a country, and what was stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountrySums {
    pub messages: u64,
    /// Millionths.
    pub price: i64,
    pub stopped: u64,
}

/// The breaker of a country that has a budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerView {
    /// `closed`, `open` or `half_open`.
    pub state: String,
    /// `count` or `price`: what opened it last.
    pub cause: Option<String>,
    pub since: Stamp,
    /// When an open one lets probes through.
    pub probes_at: Option<Stamp>,
    pub actor: String,
    pub reason: Option<String>,
    pub messages_max: Option<u32>,
    /// Millionths.
    pub price_max: Option<i64>,
    pub window_ms: i64,
}

/// `/unknown`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownPage {
    pub rows: Vec<UnknownRow>,
    pub total: Capped,
    pub oldest_at: Option<Stamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownRow {
    pub record: Record,
    pub provider: String,
    /// Since when it is unknown.
    pub since: Stamp,
    pub reads: u32,
    pub last_read_at: Option<Stamp>,
    pub next_read_at: Option<Stamp>,
    pub attempts_left: u32,
    /// What resolves it, in a sentence.
    pub resolves: String,
}

/// `/providers`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderView {
    pub name: String,
    pub kind: String,
    pub channels: Vec<Channel>,
    pub can_be_read: bool,
    pub settle_ms: Option<i64>,
    pub replay_window_ms: Option<i64>,
    pub has_callbacks: bool,
    pub paused_until: Option<Stamp>,
    pub pause_code: Option<String>,
}

/// `/workers`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerView {
    pub id: String,
    pub version: String,
    pub semantics: u32,
    pub roles: String,
    pub started_at: Stamp,
    pub seen_at: Stamp,
}

/// `/admin/users`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserView {
    pub id: String,
    pub email: String,
    pub role: Role,
    pub created_at: Stamp,
    pub disabled_at: Option<Stamp>,
}

/// `/admin/clients`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientView {
    pub id: String,
    pub name: String,
    pub scopes: Vec<String>,
    pub created_at: Stamp,
    pub revoked_at: Option<Stamp>,
}

#[cfg(test)]
mod tests {
    use super::{EventFilter, percent_encoded};
    use crate::model::State;

    #[test]
    fn a_link_to_events_carries_every_filter_and_nothing_else() {
        assert_eq!(EventFilter::default().href(None), "/events");
        let filter = EventFilter {
            q: "after:2026-03-14T01:00Z a&b".to_owned(),
            state: Some(State::DispatchUnknown),
            ..EventFilter::default()
        };
        assert_eq!(
            filter.href(Some("c+1")),
            "/events?q=after:2026-03-14T01:00Z%20a%26b&state=dispatch_unknown&cursor=c%2B1"
        );
        assert_eq!(percent_encoded("é"), "%C3%A9");
    }
}
