//! The event's own rules: the table of CONTRACT section 4 as data, and one reader that reports every
//! fault at once.
//!
//! The JSON Schema is made from the same table. What is judged here needs neither the clock nor the
//! store: whether an event's time is right is decided only after its key, its event and its window are
//! known to be new, so it is no fault of the text. No value is ever part of an error.

use std::borrow::Cow;

use app::model::{Channel, Stamp};
use serde::Serialize;

use super::strict::{self, Object, Value};
use crate::providers::Secret;

/// The alphabet of every id and handle.
pub const ALPHABET: &str = "A-Za-z0-9._:-";

/// Purpose of an event that names none.
pub const DEFAULT_PURPOSE: &str = "password_reset";

/// Digits of what may be a phone number, however it is separated.
pub const RAW_DIGITS: std::ops::RangeInclusive<usize> = 8..=15;

/// Words that stand where a value is missing, in any case. Only whole values count: `ev-unknown-7` is an
/// id like any other. Words that a person could choose for a first try (`test`, `example`) are left
/// alone: an event of that name is admitted once and harms nobody.
pub const PLACEHOLDERS: &[&str] = &[
    "unknown",
    "undefined",
    "null",
    "none",
    "nil",
    "nan",
    "na",
    "n.a.",
    "n-a",
    "empty",
    "missing",
    "true",
    "false",
    // The highest UUID; the lowest is all zeros.
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
];

/// At most so many unknown names are reported.
const UNKNOWN_NAMES_MAX: usize = 16;

/// The longest name that an error repeats.
const NAME_CHARS_MAX: usize = 64;

/// The longest text of an instant.
const INSTANT_CHARS_MAX: usize = 64;

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An id or handle of 1 to `chars_max` of [`ALPHABET`], and `+` where it is allowed.
    Id {
        chars_max: usize,
        has_plus: bool,
        refuses: Refuses,
    },
    /// RFC 3339 with an offset.
    Instant,
    Channel,
    /// 64 lowercase hex digits.
    TokenHash,
}

/// What an id must not be, beyond its alphabet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refuses {
    Nothing,
    /// [`is_placeholder`].
    Placeholders,
    /// [`is_raw_destination`].
    RawDestinations,
}

/// One field of the event.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub name: &'static str,
    pub is_required: bool,
    pub kind: Kind,
    /// For the schema.
    pub about: &'static str,
}

const fn id(refuses: Refuses) -> Kind {
    Kind::Id { chars_max: 128, has_plus: false, refuses }
}

/// Every field of an event, in the order in which faults are reported.
pub const FIELDS: &[Field] = &[
    Field {
        name: "event_id",
        is_required: true,
        kind: id(Refuses::Placeholders),
        about: "Names the business action: one password-reset request.",
    },
    Field {
        name: "idempotency_key",
        is_required: true,
        kind: id(Refuses::Placeholders),
        about: "Names the admission command. Repeat it with the same body until it is answered.",
    },
    Field {
        name: "destination_ref",
        is_required: true,
        kind: id(Refuses::RawDestinations),
        about: "Opaque handle of the recipient's address. Never an address or a number itself; give \
                numeric handles a prefix.",
    },
    Field {
        name: "reset_ref",
        is_required: true,
        kind: id(Refuses::Nothing),
        about: "Opaque handle of the reset link. Never a link or a token itself.",
    },
    Field {
        name: "expires_at",
        is_required: true,
        kind: Kind::Instant,
        about: "When the reset link dies: RFC 3339 with an offset. Nothing is sent after it, less a margin.",
    },
    Field {
        name: "channel",
        is_required: false,
        kind: Kind::Channel,
        about: "How the message travels. Left out: as configured.",
    },
    Field {
        name: "seller_id",
        is_required: false,
        kind: id(Refuses::RawDestinations),
        about: "Whose history this belongs to.",
    },
    Field {
        name: "purpose",
        is_required: false,
        kind: Kind::Id { chars_max: 64, has_plus: false, refuses: Refuses::Nothing },
        about: "What the message is for. Left out: password_reset.",
    },
    Field {
        name: "request_window",
        is_required: false,
        kind: Kind::Id { chars_max: 64, has_plus: true, refuses: Refuses::Nothing },
        about: "A later event of the same seller, purpose and window converges on the first. Needs seller_id.",
    },
    Field {
        name: "token_hash",
        is_required: false,
        kind: Kind::TokenHash,
        about: "SHA-256 of the reset token as lowercase hex. Never the token itself.",
    },
];

/// Every code that a field of an event can be refused with, and what it means.
pub const FIELD_CODES: &[(&str, &str)] = &[
    ("missing", "the field is required"),
    ("wrong_type", "the field must be text"),
    ("empty", "the text is empty"),
    ("too_long", "the text is longer than allowed"),
    ("alphabet", "a character is not of the field's alphabet"),
    ("placeholder", "the text stands for a missing value"),
    (
        "raw_destination",
        "an address or number where an opaque handle belongs; prefix numeric handles",
    ),
    ("not_rfc3339", "no RFC 3339 instant with an offset"),
    ("past", "the instant is not in the future"),
    ("too_soon", "the lifetime is shorter than admission.min_lifetime"),
    ("too_far", "the lifetime is longer than admission.max_lifetime"),
    ("unknown_channel", "neither sms nor email"),
    ("no_route", "no provider is configured for this channel"),
    ("needs_seller_id", "a request window needs a seller_id"),
    ("not_a_token_hash", "not 64 lowercase hex digits"),
    ("unknown_field", "there is no such field"),
    ("duplicate_field", "the name stands more than once"),
    ("too_large", "the body is larger than allowed"),
    ("not_utf8", "the body is not UTF-8"),
    ("not_json", "the body is not JSON"),
    ("not_an_object", "the body is not a JSON object"),
];

/// One fault: the field and a code of [`FIELD_CODES`]. `body` stands for the whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldError {
    pub field: Cow<'static, str>,
    pub code: &'static str,
}

impl FieldError {
    /// A fault of a field whose name is ours.
    #[must_use]
    pub const fn new(field: &'static str, code: &'static str) -> Self {
        Self { field: Cow::Borrowed(field), code }
    }

    /// A fault of a field whose name came from outside: repeated only where it looks like a name. What
    /// else stands there may be somebody's data.
    #[must_use]
    pub fn foreign(name: &str, code: &'static str) -> Self {
        let is_name = (1..=NAME_CHARS_MAX).contains(&name.len())
            && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'-'))
            && !crate::text::looks_like_personal_data(name);
        let field = if is_name { Cow::Owned(name.to_owned()) } else { Cow::Borrowed("?") };
        Self { field, code }
    }
}

/// What an event without them gets.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    pub channel: Channel,
}

/// An event whose text is right.
#[derive(Debug, Clone)]
pub struct ParsedEvent {
    pub event_id: String,
    pub idempotency_key: String,
    pub destination_ref: String,
    pub reset_ref: String,
    pub expires_at: Stamp,
    pub channel: Channel,
    /// False: the channel is the default of the configuration, which may be another one later.
    pub is_channel_given: bool,
    pub seller_id: Option<String>,
    pub purpose: String,
    pub request_window: Option<String>,
    pub token_hash: Option<Secret>,
}

/// Reads one event.
///
/// # Errors
/// Every fault, in the order of [`FIELDS`], then those of unknown names. Never empty.
pub fn parse_event(bytes: &[u8], defaults: &Defaults) -> Result<ParsedEvent, Vec<FieldError>> {
    let object = strict::read(bytes, strict::EVENT_BYTES_MAX)
        .map_err(|error| vec![FieldError::new("body", error.code())])?;
    let mut reader = Reader { object: &object, errors: Vec::new() };
    let event_id = reader.text("event_id");
    let idempotency_key = reader.text("idempotency_key");
    let destination_ref = reader.text("destination_ref");
    let reset_ref = reader.text("reset_ref");
    let expires_at = reader.text("expires_at");
    let channel = reader.text("channel");
    let seller_id = reader.text("seller_id");
    let purpose = reader.text("purpose");
    let request_window = reader.text("request_window");
    if request_window.is_some() && !object.fields.contains_key("seller_id") {
        reader.errors.push(FieldError::new("request_window", "needs_seller_id"));
    }
    let token_hash = reader.text("token_hash");
    reader.unknown(&FIELDS.iter().map(|field| field.name).collect::<Vec<_>>());
    let errors = reader.errors;
    // Where a required field is none, there is an error about it.
    let (Some(event_id), Some(idempotency_key), Some(destination_ref), Some(reset_ref)) =
        (event_id, idempotency_key, destination_ref, reset_ref)
    else {
        return Err(errors);
    };
    let (Some(Ok(expires_at)), true) = (expires_at.map(Stamp::parse), errors.is_empty()) else {
        return Err(errors);
    };
    Ok(ParsedEvent {
        event_id: event_id.to_owned(),
        idempotency_key: idempotency_key.to_owned(),
        destination_ref: destination_ref.to_owned(),
        reset_ref: reset_ref.to_owned(),
        expires_at,
        channel: channel.and_then(|word| word.parse().ok()).unwrap_or(defaults.channel),
        is_channel_given: channel.is_some(),
        seller_id: seller_id.map(str::to_owned),
        purpose: purpose.unwrap_or(DEFAULT_PURPOSE).to_owned(),
        request_window: request_window.map(str::to_owned),
        token_hash: token_hash.map(|hash| Secret::new(hash.to_owned())),
    })
}

/// Takes fields out of an object and collects what is wrong with them.
struct Reader<'a> {
    object: &'a Object,
    errors: Vec<FieldError>,
}

impl<'a> Reader<'a> {
    /// The text of a field of [`FIELDS`], when it is there and right.
    fn text(&mut self, name: &'static str) -> Option<&'a str> {
        let field = FIELDS.iter().find(|field| field.name == name)?;
        match field_text(self.object, name, field.is_required) {
            Ok(None) => None,
            Ok(Some(text)) => match fault(field.kind, text) {
                None => Some(text),
                Some(code) => {
                    self.errors.push(FieldError::new(name, code));
                    None
                }
            },
            Err(error) => {
                self.errors.push(error);
                None
            }
        }
    }

    fn unknown(&mut self, known: &[&str]) {
        self.errors.extend(unknown_names(self.object, known));
    }
}

/// The text of one field of an object, whatever its rules.
///
/// # Errors
/// When it stands twice, is missing, or is no text.
pub fn field_text<'a>(
    object: &'a Object,
    name: &'static str,
    is_required: bool,
) -> Result<Option<&'a str>, FieldError> {
    if object.repeated.contains(name) {
        return Err(FieldError::new(name, "duplicate_field"));
    }
    match object.fields.get(name) {
        Some(Value::Text(text)) => Ok(Some(text)),
        Some(Value::Other) => Err(FieldError::new(name, "wrong_type")),
        None if is_required => Err(FieldError::new(name, "missing")),
        None => Ok(None),
    }
}

/// An error for each name that is not known: at most a few, in the order of the alphabet.
pub fn unknown_names(object: &Object, known: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for name in object.fields.keys().filter(|name| !known.contains(&name.as_str())) {
        let error = FieldError::foreign(name, "unknown_field");
        if !errors.contains(&error) {
            errors.push(error);
        }
        if errors.len() == UNKNOWN_NAMES_MAX {
            break;
        }
    }
    errors
}

/// What is wrong with a field's text.
pub fn fault(kind: Kind, text: &str) -> Option<&'static str> {
    match kind {
        _ if text.is_empty() => Some("empty"),
        Kind::Id { chars_max, has_plus, refuses } => {
            // Before the alphabet: the more useful of the two answers.
            if refuses == Refuses::RawDestinations && is_raw_destination(text) {
                return Some("raw_destination");
            }
            if !text.bytes().all(|c| is_id_byte(c) || (has_plus && c == b'+')) {
                return Some("alphabet");
            }
            if text.len() > chars_max {
                return Some("too_long");
            }
            (refuses == Refuses::Placeholders && is_placeholder(text)).then_some("placeholder")
        }
        Kind::Instant => (!is_instant(text)).then_some("not_rfc3339"),
        Kind::Channel => text.parse::<Channel>().is_err().then_some("unknown_channel"),
        Kind::TokenHash => (text.len() != 64
            || !text.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c)))
        .then_some("not_a_token_hash"),
    }
}

const fn is_id_byte(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b':' | b'-')
}

/// Whether this is 1 to `chars_max` characters of [`ALPHABET`].
#[must_use]
pub fn is_id(text: &str, chars_max: usize) -> bool {
    (1..=chars_max).contains(&text.len()) && text.bytes().all(is_id_byte)
}

/// Whether the text stands where a value is missing: a word of [`PLACEHOLDERS`], nothing but zeros, or
/// nothing but punctuation.
#[must_use]
pub fn is_placeholder(text: &str) -> bool {
    PLACEHOLDERS.iter().any(|word| text.eq_ignore_ascii_case(word))
        || text.bytes().filter(u8::is_ascii_alphanumeric).all(|c| c == b'0')
}

/// Whether the text is an email address or a phone number instead of a handle: anything with `@`, and 8
/// to 15 digits with at most a `+` and separators between them.
#[must_use]
pub fn is_raw_destination(text: &str) -> bool {
    if text.contains('@') {
        return true;
    }
    let digits = text.strip_prefix('+').unwrap_or(text);
    let is_numeric = digits
        .chars()
        .all(|c| c.is_ascii_digit() || matches!(c, '-' | '.' | '_' | ':' | ' ' | '(' | ')'));
    is_numeric && RAW_DIGITS.contains(&digits.bytes().filter(u8::is_ascii_digit).count())
}

/// RFC 3339 by the letter: what the parser of instants accepts beyond it (a comma, an offset without
/// minutes, leap seconds of other zones) is refused.
fn is_instant(text: &str) -> bool {
    fn digits(text: &[u8]) -> bool {
        text.iter().all(u8::is_ascii_digit)
    }
    let bytes = text.as_bytes();
    let is_date_time = bytes.len() >= 20
        && bytes.len() <= INSTANT_CHARS_MAX
        && text.is_ascii()
        && digits(&bytes[..4])
        && bytes[4] == b'-'
        && digits(&bytes[5..7])
        && bytes[7] == b'-'
        && digits(&bytes[8..10])
        && matches!(bytes[10], b'T' | b't')
        && digits(&bytes[11..13])
        && bytes[13] == b':'
        && digits(&bytes[14..16])
        && bytes[16] == b':'
        && digits(&bytes[17..19]);
    if !is_date_time {
        return false;
    }
    let rest = &bytes[19..];
    let rest = match rest.split_first() {
        Some((b'.', fraction)) => {
            let end = fraction.iter().position(|c| !c.is_ascii_digit()).unwrap_or(fraction.len());
            if end == 0 {
                return false;
            }
            &fraction[end..]
        }
        _ => rest,
    };
    let is_offset = match rest {
        [b'Z' | b'z'] => true,
        [b'+' | b'-', hours @ .., b':', m1, m2] => {
            hours.len() == 2 && digits(hours) && digits(&[*m1, *m2])
        }
        _ => false,
    };
    is_offset && Stamp::parse(text).is_ok()
}

/// An instant by the letter of RFC 3339.
#[must_use]
pub fn instant(text: &str) -> Option<Stamp> {
    if is_instant(text) { Stamp::parse(text).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: Defaults = Defaults { channel: Channel::Email };

    fn event(change: &[(&str, Option<serde_json::Value>)]) -> Vec<u8> {
        let mut event = serde_json::json!({
            "event_id": "ev-1", "idempotency_key": "key-1", "destination_ref": "dest-1",
            "reset_ref": "rst-1", "expires_at": "2026-09-21T14:13:20Z",
        });
        let map = event.as_object_mut().unwrap();
        for (name, value) in change {
            match value {
                Some(value) => map.insert((*name).to_owned(), value.clone()),
                None => map.remove(*name),
            };
        }
        serde_json::to_vec(&event).unwrap()
    }

    fn codes(bytes: &[u8]) -> Vec<String> {
        match parse_event(bytes, &DEFAULTS) {
            Ok(_) => Vec::new(),
            Err(errors) => {
                assert!(!errors.is_empty());
                for error in &errors {
                    assert!(FIELD_CODES.iter().any(|(code, _)| *code == error.code), "{error:?}");
                }
                errors.iter().map(|e| format!("{}:{}", e.field, e.code)).collect()
            }
        }
    }

    #[test]
    fn each_field_has_its_rules() {
        let long = |n: usize| "a".repeat(n);
        let table: Vec<(&str, String, &str)> = vec![
            ("event_id", "A-Z.a_z:0-9".into(), ""),
            ("event_id", long(128), ""),
            ("event_id", long(129), "too_long"),
            ("event_id", String::new(), "empty"),
            ("event_id", " ".into(), "alphabet"),
            ("event_id", "a b".into(), "alphabet"),
            ("event_id", "a\u{0}".into(), "alphabet"),
            ("event_id", "é".into(), "alphabet"),
            ("event_id", "a/b".into(), "alphabet"),
            ("event_id", "１２３".into(), "alphabet"),
            ("event_id", "UNKNOWN".into(), "placeholder"),
            ("event_id", "5550100001".into(), ""),
            ("event_id", "test".into(), ""),
            ("event_id", "ev-unknown".into(), ""),
            ("idempotency_key", "null".into(), "placeholder"),
            ("idempotency_key", "0".into(), "placeholder"),
            ("idempotency_key", "00000000-0000-0000-0000-000000000000".into(), "placeholder"),
            ("idempotency_key", "ffffffff-FFFF-ffff-ffff-ffffffffffff".into(), "placeholder"),
            ("idempotency_key", "---".into(), "placeholder"),
            ("idempotency_key", "f".into(), ""),
            ("idempotency_key", "00000000-0000-0000-0000-000000000001".into(), ""),
            ("destination_ref", "dest-5550100001".into(), ""),
            ("destination_ref", "1234567".into(), ""),
            ("destination_ref", "1234567890123456".into(), ""),
            ("destination_ref", "+1234567".into(), "alphabet"),
            ("destination_ref", "+15550100001".into(), "raw_destination"),
            ("destination_ref", "12345678".into(), "raw_destination"),
            ("destination_ref", "123456789012345".into(), "raw_destination"),
            ("destination_ref", "555-010-0001".into(), "raw_destination"),
            ("destination_ref", "+1 (555) 010-0001".into(), "raw_destination"),
            ("destination_ref", "a@b.example".into(), "raw_destination"),
            ("destination_ref", "@".into(), "raw_destination"),
            ("destination_ref", "unknown".into(), ""),
            ("seller_id", "seller_1042".into(), ""),
            ("seller_id", "+15550100001".into(), "raw_destination"),
            ("seller_id", "user@example.com".into(), "raw_destination"),
            ("reset_ref", "https://x".into(), "alphabet"),
            ("reset_ref", "12345678".into(), ""),
            ("purpose", long(64), ""),
            ("purpose", long(65), "too_long"),
            ("purpose", String::new(), "empty"),
            ("channel", "sms".into(), ""),
            ("channel", "SMS".into(), "unknown_channel"),
            ("channel", "push".into(), "unknown_channel"),
            ("channel", String::new(), "empty"),
            ("token_hash", "ab".repeat(32), ""),
            ("token_hash", "AB".repeat(32), "not_a_token_hash"),
            ("token_hash", "ab".repeat(31), "not_a_token_hash"),
            ("token_hash", "gh".repeat(32), "not_a_token_hash"),
            ("expires_at", "2026-09-21T16:13:20.123456789+02:00".into(), ""),
            ("expires_at", "2026-09-21t16:13:20z".into(), ""),
            ("expires_at", "2031-01-01T00:00:00".into(), "not_rfc3339"),
            ("expires_at", "2031-01-01".into(), "not_rfc3339"),
            ("expires_at", "2031-01-01T00:00:00+02".into(), "not_rfc3339"),
            ("expires_at", "2031-01-01T00:00:00+0200".into(), "not_rfc3339"),
            ("expires_at", "2031-01-01T00:00:00,5Z".into(), "not_rfc3339"),
            ("expires_at", "2031-01-01T00:00:00.Z".into(), "not_rfc3339"),
            ("expires_at", "2031-02-30T00:00:00Z".into(), "not_rfc3339"),
            ("expires_at", "2031-01-01T25:00:00Z".into(), "not_rfc3339"),
            ("expires_at", "2031-01-01T00:00:00Z[UTC]".into(), "not_rfc3339"),
            ("expires_at", "+002031-01-01T00:00:00Z".into(), "not_rfc3339"),
            ("expires_at", "1790000000".into(), "not_rfc3339"),
            ("expires_at", format!("2031-01-01T00:00:00.{}Z", "0".repeat(60)), "not_rfc3339"),
        ];
        for (field, value, code) in table {
            let want = if code.is_empty() { vec![] } else { vec![format!("{field}:{code}")] };
            assert_eq!(codes(&event(&[(field, Some(value.clone().into()))])), want, "{value}");
        }
    }

    #[test]
    fn every_placeholder_is_refused_in_any_case() {
        for word in PLACEHOLDERS {
            for text in [(*word).to_owned(), word.to_uppercase()] {
                assert!(is_placeholder(&text), "{text}");
            }
        }
    }

    #[test]
    fn a_field_of_another_type_or_missing_is_refused() {
        for field in FIELDS {
            let bad = |value: serde_json::Value| {
                let mut also = vec![(field.name, Some(value))];
                if field.name == "request_window" {
                    also.push(("seller_id", Some("s".into())));
                }
                codes(&event(&also))
            };
            for value in [
                7.into(),
                true.into(),
                serde_json::Value::Null,
                serde_json::json!({}),
                serde_json::json!([]),
            ] {
                assert_eq!(bad(value), [format!("{}:wrong_type", field.name)]);
            }
            let want =
                if field.is_required { vec![format!("{}:missing", field.name)] } else { vec![] };
            assert_eq!(codes(&event(&[(field.name, None)])), want);
        }
    }

    #[test]
    fn a_window_needs_a_seller() {
        let window = |seller: Option<&str>| {
            codes(&event(&[
                ("request_window", Some("2026-09-21T14:00+00:00".into())),
                ("seller_id", seller.map(Into::into)),
            ]))
        };
        assert_eq!(window(None), ["request_window:needs_seller_id"]);
        assert!(window(Some("seller_1042")).is_empty());
        // One fault, not two, where the seller is there and wrong.
        assert_eq!(window(Some("a@b")), ["seller_id:raw_destination"]);
    }

    #[test]
    fn all_faults_come_at_once_and_in_order() {
        let bytes = br#"{"zeta":1,"+15550100001":2,"user@example.com":3,"event_id":"","reset_ref":7,"channel":"x","expires_at":"now","alpha":0}"#;
        assert_eq!(
            codes(bytes),
            [
                "event_id:empty",
                "idempotency_key:missing",
                "destination_ref:missing",
                "reset_ref:wrong_type",
                "expires_at:not_rfc3339",
                "channel:unknown_channel",
                "?:unknown_field",
                "alpha:unknown_field",
                "zeta:unknown_field",
            ]
        );
        let twice = br#"{"event_id":"a","event_id":"b"}"#;
        assert_eq!(codes(twice)[0], "event_id:duplicate_field");
        assert_eq!(codes(b"[]"), ["body:not_an_object"]);
    }

    #[test]
    fn what_is_left_out_is_filled_in() {
        let parsed = parse_event(&event(&[]), &DEFAULTS).unwrap();
        assert_eq!(parsed.channel, Channel::Email);
        assert_eq!(parsed.purpose, DEFAULT_PURPOSE);
        assert_eq!(parsed.expires_at.micros(), 1_790_000_000_000_000);
        assert!(parsed.token_hash.is_none());
    }

    #[test]
    fn any_object_is_judged_without_a_panic() {
        proptest::proptest!(|(name in "\\PC{0,12}", value in "\\PC{0,40}", field in 0_usize..10)| {
            let bytes = event(&[(FIELDS[field].name, Some(value.into())), (&name, Some(1.into()))]);
            let _ = parse_event(&bytes, &DEFAULTS);
        });
    }
}
