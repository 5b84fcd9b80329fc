//! What callers of the API and operators see of a notification.

use serde::{Deserialize, Serialize};

use super::{Channel, FactKind, Next, Reason, Stamp, State};

/// The ledger's record of one notification, as CONTRACT section 4 shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Our id, UUIDv7 text.
    pub id: String,
    pub event_id: String,
    pub state: State,
    pub expires_at: Stamp,
    pub updated_at: Stamp,
    pub created_at: Stamp,
    pub channel: Channel,
    pub seller_id: Option<String>,
    pub purpose: String,
    /// Attempts with at least one call.
    pub attempts: u32,
    /// Markers: never fewer than the network saw.
    pub calls: u32,
    /// The reason of the last transition.
    pub reason: Reason,
    pub settled: bool,
    /// A freeze of its scope is in force, and the record still waits to be sent.
    pub frozen: bool,
    pub next: Next,
    /// When asking again makes sense; with `next` = `wait`.
    pub retry_at: Option<Stamp>,
}

/// One row of the audit log, as CONTRACT section 4 shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Counts within its record from 1; facts without a record have a series of their own.
    pub seq: u32,
    pub id: Option<String>,
    pub event_id: Option<String>,
    pub at: Stamp,
    pub kind: FactKind,
    pub old_state: Option<State>,
    pub new_state: Option<State>,
    pub attempt: Option<u32>,
    pub attempt_id: Option<String>,
    pub reason: Option<Reason>,
    pub provider: Option<String>,
    pub provider_message_id: Option<String>,
    pub token_id: Option<String>,
    /// Who: `system`, `client:<id>` or `operator:<id>`.
    pub actor: String,
    /// Codes and numbers from a closed list of names.
    pub detail: Detail,
}

/// `detail` of a fact: names to codes or numbers, in a stable order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Detail(pub std::collections::BTreeMap<String, DetailValue>);

/// A code or a number. Free text never gets in here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DetailValue {
    Number(i64),
    Code(String),
}

impl Detail {
    /// Adds a number.
    #[must_use]
    pub fn number(mut self, name: &'static str, value: i64) -> Self {
        self.0.insert(name.to_owned(), DetailValue::Number(value));
        self
    }

    /// Adds a code. Only `A-Z a-z 0-9 . _ : -` survive, cut at 64 characters: a provider's code is data
    /// from outside, and whatever else it carries is not kept.
    #[must_use]
    pub fn code(mut self, name: &'static str, value: &str) -> Self {
        let code: String = value
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-'))
            .take(64)
            .collect();
        self.0.insert(name.to_owned(), DetailValue::Code(code));
        self
    }

    /// The number under this name.
    #[must_use]
    pub fn get_number(&self, name: &str) -> Option<i64> {
        match self.0.get(name) {
            Some(DetailValue::Number(n)) => Some(*n),
            _ => None,
        }
    }

    /// The code under this name.
    #[must_use]
    pub fn get_code(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(DetailValue::Code(code)) => Some(code),
            _ => None,
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A freeze in force or over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freeze {
    pub scope: String,
    pub actor: String,
    pub since: Stamp,
    pub reason: String,
    pub review_at: Option<Stamp>,
    /// Calls of this scope that had started when the freeze committed.
    pub in_flight: u32,
}
