//! What a script may say.
//!
//! ```json
//! {"provider": "http",
//!  "match": {"destination": "+12025550123", "attempt": "3f2c…"},
//!  "behaviour": ["accept_then_hang", {"behaviour": "slow", "ms": 300}, {"rate_limit": {"retry_after": 5}}],
//!  "callbacks": "normal", "lookup_lag_ms": 1500, "lookup_down": false}
//! ```
//!
//! `match` may be left out: then the script is for every call of its provider. Of several scripts that fit
//! a call the most particular decides: attempt and destination, attempt, destination, neither. One with the
//! same provider and match takes the place of the earlier one and begins anew. `attempt` is the attempt id;
//! its number does not travel, so no provider can know it.
//!
//! A behaviour is a word, or an object with its parameter in either of the forms above. Options stand beside
//! `behaviour`, or in an object `options`. Callbacks of a kind whose calls name a callback URL go there, if it
//! is on this machine, signed with `callback_secret` or else with the credential of the call; `callback_url`
//! and `callback_secret` together name another place. Without `behaviour` calls are accepted. `retry_after` is seconds,
//! or any text, which then is the header as it stands.

use std::fmt;

use serde_json::{Map, Value};

use super::KINDS;
use super::callbacks::{CallbackTarget, Callbacks};
use crate::providers::Secret;

/// Behaviours in one script.
const BEHAVIOURS_MAX: usize = 1000;

/// The longest time in a script: one hour, in milliseconds.
const MS_MAX: u64 = 3_600_000;

/// What to do with one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behaviour {
    Accept,
    /// Take the message, answer nothing, keep the connection.
    AcceptThenHang,
    /// Take the message, reset the connection.
    AcceptThenReset,
    /// Read the request, take nothing, answer nothing, keep the connection.
    HangBeforeAccept,
    /// Read the request, take nothing, reset the connection.
    ResetBeforeAccept,
    /// Take the message, answer 500.
    AcceptThen500,
    RefusePermanently,
    RefuseTransiently,
    /// 429 with this `Retry-After`.
    RateLimit {
        retry_after: String,
    },
    /// Take the message, answer after so many milliseconds.
    Slow {
        ms: u64,
    },
}

impl Behaviour {
    /// The one spelling.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::AcceptThenHang => "accept_then_hang",
            Self::AcceptThenReset => "accept_then_reset",
            Self::HangBeforeAccept => "hang_before_accept",
            Self::ResetBeforeAccept => "reset_before_accept",
            Self::AcceptThen500 => "accept_then_500",
            Self::RefusePermanently => "refuse_permanently",
            Self::RefuseTransiently => "refuse_transiently",
            Self::RateLimit { .. } => "rate_limit",
            Self::Slow { .. } => "slow",
        }
    }

    /// Whether the message is taken.
    #[must_use]
    pub const fn accepts(&self) -> bool {
        matches!(
            self,
            Self::Accept
                | Self::AcceptThenHang
                | Self::AcceptThenReset
                | Self::AcceptThen500
                | Self::Slow { .. }
        )
    }

    fn of(word: &str, retry_after: Option<String>, ms: Option<u64>) -> Option<Self> {
        Some(match word {
            "accept" => Self::Accept,
            "accept_then_hang" => Self::AcceptThenHang,
            "accept_then_reset" => Self::AcceptThenReset,
            "hang_before_accept" => Self::HangBeforeAccept,
            "reset_before_accept" => Self::ResetBeforeAccept,
            "accept_then_500" => Self::AcceptThen500,
            "refuse_permanently" => Self::RefusePermanently,
            "refuse_transiently" => Self::RefuseTransiently,
            "rate_limit" => {
                Self::RateLimit { retry_after: retry_after.unwrap_or_else(|| "1".to_owned()) }
            }
            "slow" => Self::Slow { ms: ms.unwrap_or(1000) },
            _ => return None,
        })
    }
}

/// What becomes of an accepted message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Delivery {
    #[default]
    Delivered,
    Failed,
    /// It stays accepted.
    Never,
}

/// Which calls a script is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Match {
    pub destination: Option<String>,
    /// The attempt id.
    pub attempt: Option<String>,
}

impl Match {
    pub(super) fn covers(&self, attempt: &str, destination: Option<&str>) -> bool {
        self.attempt.as_deref().is_none_or(|wanted| wanted == attempt)
            && self.destination.as_deref().is_none_or(|wanted| Some(wanted) == destination)
    }

    /// How particular it is.
    pub(super) const fn rank(&self) -> u8 {
        (self.attempt.is_some() as u8) * 2 + self.destination.is_some() as u8
    }
}

/// What holds for all calls of a script. Times in microseconds.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Look-ups do not see a message before it is so old.
    pub lookup_lag: i64,
    /// Look-ups fail.
    pub lookup_down: bool,
    pub callbacks: Callbacks,
    /// Where callbacks go, instead of where the settings say.
    pub target: Option<CallbackTarget>,
    /// What they are signed with, where the call itself says where they go.
    pub secret: Option<Secret>,
    /// How long after its acceptance a message is delivered, instead of what the settings say.
    pub deliver_after: Option<i64>,
    pub delivery: Delivery,
}

/// One script.
#[derive(Debug, Clone)]
pub struct Script {
    /// A kind.
    pub provider: String,
    pub matches: Match,
    /// One for each call in order; the last one repeats; none: accept.
    pub behaviour: Vec<Behaviour>,
    pub options: Options,
}

/// What is wrong with a script: a field and a code, never the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptError {
    pub field: String,
    pub code: &'static str,
}

impl ScriptError {
    pub(super) fn new(field: &str, code: &'static str) -> Self {
        Self { field: field.to_owned(), code }
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.code)
    }
}

impl std::error::Error for ScriptError {}

impl Script {
    /// A script for every call of a kind.
    #[must_use]
    pub fn new(provider: &str, behaviour: Vec<Behaviour>) -> Self {
        Self {
            provider: provider.to_owned(),
            matches: Match::default(),
            behaviour,
            options: Options::default(),
        }
    }

    /// Reads a script.
    ///
    /// # Errors
    /// Unknown fields, unknown words, wrong types: the first one that is met.
    pub fn parse(body: &[u8]) -> Result<Self, ScriptError> {
        let value: Value =
            serde_json::from_slice(body).map_err(|_| ScriptError::new("", "not_json"))?;
        let Value::Object(mut fields) = value else {
            return Err(ScriptError::new("", "not_an_object"));
        };
        let provider =
            text(&mut fields, "", "provider")?.ok_or(ScriptError::new("provider", "missing"))?;
        if !KINDS.iter().any(|kind| kind.name == provider) {
            return Err(ScriptError::new("provider", "unknown_provider"));
        }
        let matches = match object(&mut fields, "match")? {
            Some(mut wanted) => {
                let matches = Match {
                    destination: text(&mut wanted, "match.", "destination")?,
                    attempt: text(&mut wanted, "match.", "attempt")?,
                };
                nothing_else(&wanted, "match.")?;
                matches
            }
            None => Match::default(),
        };
        let behaviour = match fields.remove("behaviour") {
            None => Vec::new(),
            Some(Value::Array(list)) if list.is_empty() => {
                return Err(ScriptError::new("behaviour", "empty"));
            }
            Some(Value::Array(list)) if list.len() > BEHAVIOURS_MAX => {
                return Err(ScriptError::new("behaviour", "too_many"));
            }
            Some(Value::Array(list)) => list
                .into_iter()
                .enumerate()
                .map(|(at, value)| behaviour(value, &format!("behaviour[{at}]")))
                .collect::<Result<_, _>>()?,
            Some(_) => return Err(ScriptError::new("behaviour", "not_a_list")),
        };
        // Options may stand beside `behaviour` or in an object of their own; twice is once too often.
        if let Some(nested) = object(&mut fields, "options")? {
            for (name, value) in nested {
                if fields.insert(name.clone(), value).is_some() {
                    return Err(ScriptError {
                        field: format!("options.{name}"),
                        code: "given_twice",
                    });
                }
            }
        }
        let options = options(&mut fields)?;
        nothing_else(&fields, "")?;
        Ok(Self { provider, matches, behaviour, options })
    }
}

/// `"word"`, `{"behaviour": "word", …}` or `{"word": {…}}`.
fn behaviour(value: Value, field: &str) -> Result<Behaviour, ScriptError> {
    let inside = format!("{field}.");
    let (word, mut fields) = match value {
        Value::String(word) => (word, Map::new()),
        Value::Object(mut fields) => match text(&mut fields, &inside, "behaviour")? {
            Some(word) => (word, fields),
            None => match (fields.len(), fields.into_iter().next()) {
                (1, Some((word, Value::Object(fields)))) => (word, fields),
                _ => return Err(ScriptError::new(field, "unknown_behaviour")),
            },
        },
        _ => return Err(ScriptError::new(field, "unknown_behaviour")),
    };
    let retry_after = match fields.remove("retry_after").filter(|_| word == "rate_limit") {
        None => None,
        Some(Value::Number(seconds)) => Some(seconds.to_string()),
        // It becomes a header as it stands, so that a client's handling of garbage can be tried.
        Some(Value::String(raw))
            if raw.len() <= 64 && raw.bytes().all(|c| c == b' ' || c.is_ascii_graphic()) =>
        {
            Some(raw)
        }
        Some(_) => {
            return Err(ScriptError { field: format!("{inside}retry_after"), code: "wrong_type" });
        }
    };
    let ms = if word == "slow" { millis(&mut fields, &inside, "ms")? } else { None };
    let behaviour = Behaviour::of(&word, retry_after, ms)
        .ok_or(ScriptError::new(field, "unknown_behaviour"))?;
    nothing_else(&fields, &inside)?;
    Ok(behaviour)
}

fn options(fields: &mut Map<String, Value>) -> Result<Options, ScriptError> {
    let micros = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1000);
    let lookup_down = match fields.remove("lookup_down") {
        None => false,
        Some(Value::Bool(is_down)) => is_down,
        Some(_) => return Err(ScriptError::new("lookup_down", "wrong_type")),
    };
    let callbacks = match text(fields, "", "callbacks")? {
        None => Callbacks::None,
        Some(word) => Callbacks::of(&word).ok_or(ScriptError::new("callbacks", "unknown_word"))?,
    };
    let delivery = match text(fields, "", "delivery")?.as_deref() {
        None | Some("delivered") => Delivery::Delivered,
        Some("failed") => Delivery::Failed,
        Some("never") => Delivery::Never,
        Some(_) => return Err(ScriptError::new("delivery", "unknown_word")),
    };
    let mut secret = None;
    let target = match (text(fields, "", "callback_url")?, text(fields, "", "callback_secret")?) {
        (None, None) => None,
        (Some(url), Some(key)) => Some(
            CallbackTarget::loopback(url, Secret::new(key))
                .ok_or(ScriptError::new("callback_url", "not_a_loopback_url"))?,
        ),
        (Some(_), None) => return Err(ScriptError::new("callback_secret", "missing")),
        // For kinds whose callbacks go where the call itself says.
        (None, Some(key)) => {
            secret = Some(Secret::new(key));
            None
        }
    };
    Ok(Options {
        lookup_lag: millis(fields, "", "lookup_lag_ms")?.map_or(0, micros),
        lookup_down,
        callbacks,
        target,
        secret,
        deliver_after: millis(fields, "", "deliver_after_ms")?.map(micros),
        delivery,
    })
}

fn text(
    fields: &mut Map<String, Value>,
    inside: &str,
    name: &str,
) -> Result<Option<String>, ScriptError> {
    match fields.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) if !text.is_empty() && text.len() <= 2048 => Ok(Some(text)),
        Some(_) => Err(ScriptError { field: format!("{inside}{name}"), code: "wrong_type" }),
    }
}

fn millis(
    fields: &mut Map<String, Value>,
    inside: &str,
    name: &str,
) -> Result<Option<u64>, ScriptError> {
    match fields.remove(name) {
        None => Ok(None),
        Some(value) => match value.as_u64() {
            Some(ms) if ms <= MS_MAX => Ok(Some(ms)),
            Some(_) => Err(ScriptError { field: format!("{inside}{name}"), code: "too_long" }),
            None => Err(ScriptError { field: format!("{inside}{name}"), code: "wrong_type" }),
        },
    }
}

fn object(
    fields: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<Map<String, Value>>, ScriptError> {
    match fields.remove(name) {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(ScriptError::new(name, "wrong_type")),
    }
}

fn nothing_else(fields: &Map<String, Value>, inside: &str) -> Result<(), ScriptError> {
    match fields.keys().next() {
        None => Ok(()),
        // A field's name is what was sent: it is cut, and only what a name can be is repeated.
        Some(name) => {
            let name: String =
                name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(40).collect();
            Err(ScriptError { field: format!("{inside}{name}"), code: "unknown_field" })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaviours_are_read_in_each_form() {
        let script = Script::parse(
            br#"{"provider":"http","match":{"destination":"+12025550123"},
                "behaviour":["accept","slow",{"behaviour":"slow","ms":5},{"rate_limit":{"retry_after":7}},
                {"behaviour":"rate_limit","retry_after":"soon"},{"accept_then_hang":{}}],
                "callbacks":"late","options":{"lookup_lag_ms":5}}"#,
        )
        .unwrap();
        assert_eq!(
            script.behaviour,
            [
                Behaviour::Accept,
                Behaviour::Slow { ms: 1000 },
                Behaviour::Slow { ms: 5 },
                Behaviour::RateLimit { retry_after: "7".to_owned() },
                Behaviour::RateLimit { retry_after: "soon".to_owned() },
                Behaviour::AcceptThenHang,
            ]
        );
        assert_eq!((script.options.lookup_lag, script.options.callbacks), (5000, Callbacks::Late));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (body, field, code) in [
            ("", "", "not_json"),
            ("[]", "", "not_an_object"),
            ("{}", "provider", "missing"),
            (r#"{"provider":"pigeon"}"#, "provider", "unknown_provider"),
            (r#"{"provider":7}"#, "provider", "wrong_type"),
            (r#"{"provider":"http","match":{"attempt":1}}"#, "match.attempt", "wrong_type"),
            (r#"{"provider":"http","match":{"number":"x"}}"#, "match.number", "unknown_field"),
            (r#"{"provider":"http","match":[]}"#, "match", "wrong_type"),
            (r#"{"provider":"http","behaviour":"accept"}"#, "behaviour", "not_a_list"),
            (r#"{"provider":"http","behaviour":[]}"#, "behaviour", "empty"),
            (
                r#"{"provider":"http","behaviour":["accept","explode"]}"#,
                "behaviour[1]",
                "unknown_behaviour",
            ),
            (r#"{"provider":"http","behaviour":[7]}"#, "behaviour[0]", "unknown_behaviour"),
            (
                r#"{"provider":"http","behaviour":[{"behaviour":"accept","ms":5}]}"#,
                "behaviour[0].ms",
                "unknown_field",
            ),
            (
                r#"{"provider":"http","behaviour":[{"slow":{"ms":-5}}]}"#,
                "behaviour[0].ms",
                "wrong_type",
            ),
            (
                r#"{"provider":"http","behaviour":[{"slow":{"ms":99999999}}]}"#,
                "behaviour[0].ms",
                "too_long",
            ),
            (r#"{"provider":"http","lookup_lag_ms":"5"}"#, "lookup_lag_ms", "wrong_type"),
            (r#"{"provider":"http","lookup_down":1}"#, "lookup_down", "wrong_type"),
            (r#"{"provider":"http","callbacks":"often"}"#, "callbacks", "unknown_word"),
            (r#"{"provider":"http","colour":"red"}"#, "colour", "unknown_field"),
            (
                r#"{"provider":"http","lookup_down":true,"options":{"lookup_down":true}}"#,
                "options.lookup_down",
                "given_twice",
            ),
            (r#"{"provider":"http","options":{"colour":1}}"#, "colour", "unknown_field"),
            (
                r#"{"provider":"http","callback_url":"http://127.0.0.1/x"}"#,
                "callback_secret",
                "missing",
            ),
            (
                r#"{"provider":"http","callback_url":"http://x.example/","callback_secret":"k"}"#,
                "callback_url",
                "not_a_loopback_url",
            ),
        ] {
            let error = Script::parse(body.as_bytes()).unwrap_err();
            assert_eq!((error.field.as_str(), error.code), (field, code), "{body}");
        }
    }
}
