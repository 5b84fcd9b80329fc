//! A fact as the log hashes it.
//!
//! The leaf is made from the fields that everybody is shown, never from a stored digest, so whoever holds a
//! fact can make it again:
//!
//! ```text
//! sendonce-fact/1 LF
//! <name> SP - LF                    a field that is null
//! <name> SP <bytes> SP <value> LF   any other; <bytes> is the length of <value> in UTF-8, in decimal
//! ```
//!
//! The fields come in the order of the contract: seq, id, event_id, at, kind, old_state, new_state, attempt,
//! attempt_id, reason, provider, provider_message_id, token_id, actor, detail. Numbers are decimal. `at` is in
//! microseconds since 1970, UTC. `detail` is its JSON object with the names in the order of their bytes and no
//! white space. The lengths make the encoding one to one. The leaf's hash is that of RFC 6962:
//! SHA-256(0x00 || leaf).

use app::model::{Detail, Fact};

use super::tree::{Hash, leaf_hash};

/// The first line: which encoding this is.
pub const HEAD: &str = "sendonce-fact/1\n";

/// A fact as it stands in its row, before anybody believes that its words are words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawFact {
    pub seq: i64,
    pub id: Option<String>,
    pub event_id: Option<String>,
    /// Microseconds since 1970, UTC.
    pub at: i64,
    pub kind: String,
    pub old_state: Option<String>,
    pub new_state: Option<String>,
    pub attempt: Option<i64>,
    pub attempt_id: Option<String>,
    pub reason: Option<String>,
    pub provider: Option<String>,
    pub provider_message_id: Option<String>,
    pub token_id: Option<String>,
    pub actor: String,
    /// JSON.
    pub detail: String,
}

impl RawFact {
    /// The bytes of its leaf.
    #[must_use]
    pub fn leaf(&self) -> Vec<u8> {
        let mut out = HEAD.as_bytes().to_vec();
        let number = |n: i64| Some(n.to_string());
        let text = |t: &Option<String>| t.clone();
        let fields = [
            ("seq", number(self.seq)),
            ("id", text(&self.id)),
            ("event_id", text(&self.event_id)),
            ("at", number(self.at)),
            ("kind", Some(self.kind.clone())),
            ("old_state", text(&self.old_state)),
            ("new_state", text(&self.new_state)),
            ("attempt", self.attempt.and_then(number)),
            ("attempt_id", text(&self.attempt_id)),
            ("reason", text(&self.reason)),
            ("provider", text(&self.provider)),
            ("provider_message_id", text(&self.provider_message_id)),
            ("token_id", text(&self.token_id)),
            ("actor", Some(self.actor.clone())),
            ("detail", Some(canonical_detail(&self.detail))),
        ];
        for (name, value) in fields {
            out.extend_from_slice(name.as_bytes());
            match value {
                None => out.extend_from_slice(b" -\n"),
                Some(value) => {
                    out.extend_from_slice(format!(" {} ", value.len()).as_bytes());
                    out.extend_from_slice(value.as_bytes());
                    out.push(b'\n');
                }
            }
        }
        out
    }

    /// The hash of its leaf.
    #[must_use]
    pub fn hash(&self) -> Hash {
        leaf_hash(&self.leaf())
    }
}

impl From<&Fact> for RawFact {
    fn from(fact: &Fact) -> Self {
        Self {
            seq: i64::from(fact.seq),
            id: fact.id.clone(),
            event_id: fact.event_id.clone(),
            at: fact.at.micros(),
            kind: fact.kind.to_string(),
            old_state: fact.old_state.map(|state| state.to_string()),
            new_state: fact.new_state.map(|state| state.to_string()),
            attempt: fact.attempt.map(i64::from),
            attempt_id: fact.attempt_id.clone(),
            reason: fact.reason.map(|reason| reason.to_string()),
            provider: fact.provider.clone(),
            provider_message_id: fact.provider_message_id.clone(),
            token_id: fact.token_id.clone(),
            actor: fact.actor.clone(),
            detail: serde_json::to_string(&fact.detail).unwrap_or_default(),
        }
    }
}

/// Text that is no object of codes and numbers is hashed as it is: it matches nothing that was sealed.
fn canonical_detail(text: &str) -> String {
    serde_json::from_str::<Detail>(text)
        .ok()
        .and_then(|detail| serde_json::to_string(&detail).ok())
        .unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::RawFact;

    fn fact() -> RawFact {
        RawFact {
            seq: 2,
            id: Some("n-1".to_owned()),
            event_id: Some("ev-1".to_owned()),
            at: 1_790_000_000_123_456,
            kind: "transition".to_owned(),
            old_state: Some("accepted".to_owned()),
            new_state: Some("dispatching".to_owned()),
            attempt: Some(1),
            reason: Some("claimed".to_owned()),
            actor: "system".to_owned(),
            detail: "{\"b\": \"x\", \"a\":1}".to_owned(),
            ..RawFact::default()
        }
    }

    #[test]
    fn the_leaf_is_what_the_documentation_says() {
        let text = String::from_utf8(fact().leaf()).expect("UTF-8");
        assert_eq!(
            text,
            "sendonce-fact/1\nseq 1 2\nid 3 n-1\nevent_id 4 ev-1\nat 16 1790000000123456\n\
             kind 10 transition\nold_state 8 accepted\nnew_state 11 dispatching\nattempt 1 1\n\
             attempt_id -\nreason 7 claimed\nprovider -\nprovider_message_id -\ntoken_id -\n\
             actor 6 system\ndetail 15 {\"a\":1,\"b\":\"x\"}\n"
        );
    }

    #[test]
    fn a_value_cannot_pass_for_the_next_field() {
        let mut forged = fact();
        forged.reason = None;
        forged.attempt_id = Some("x\nreason 7 claimed".to_owned());
        assert_ne!(forged.hash(), fact().hash());
    }

    #[test]
    fn an_absent_value_is_not_an_empty_one() {
        let mut other = fact();
        other.provider = Some(String::new());
        assert_ne!(other.hash(), fact().hash());
    }
}
