//! What a vendor's answers to a sending request mean: tables as data, with a source for each row.
//!
//! Only an answer that the vendor documents as definite has a definite class. Whatever is in no row is
//! [`Class::Ambiguous`]: a message may have been sent.

use app::model::Stamp;
use http::{HeaderMap, StatusCode};

use super::http::{ambiguous, code_of, retry_at};
use super::kept;
use crate::domain::Verdict;

/// What an answer says about the message that we tried to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Taken.
    Accepted,
    /// Not taken, and never will be.
    Permanent,
    /// Not taken; a later one may be.
    Transient,
    /// Not taken: too many.
    RateLimited,
    /// Not taken, and no other message would be: our credentials, account or configuration.
    Config,
    /// May have been taken.
    Ambiguous,
}

/// One row of a table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// First and last status that it is for.
    pub from: u16,
    pub to: u16,
    /// The vendor's own code that it is for; none: whatever the code.
    pub code: Option<&'static str>,
    pub class: Class,
    /// Where the rule comes from.
    pub source: &'static str,
}

/// A row for one status, whatever the code.
#[must_use]
pub const fn status(status: u16, class: Class, source: &'static str) -> Row {
    Row { from: status, to: status, code: None, class, source }
}

/// A row for a range of statuses, whatever the code.
#[must_use]
pub const fn range(from: u16, to: u16, class: Class, source: &'static str) -> Row {
    Row { from, to, code: None, class, source }
}

/// A row for one status with this code of the vendor.
#[must_use]
pub const fn coded(status: u16, code: &'static str, class: Class, source: &'static str) -> Row {
    Row { from: status, to: status, code: Some(code), class, source }
}

/// The class of an answer: the first row for the status and the code; else the first for the status and
/// any code; else ambiguous.
#[must_use]
pub fn class(rows: &[Row], status: u16, code: Option<&str>) -> Class {
    let of_status = || rows.iter().filter(|row| (row.from..=row.to).contains(&status));
    of_status()
        .find(|row| row.code.is_some() && row.code == code)
        .or_else(|| of_status().find(|row| row.code.is_none()))
        .map_or(Class::Ambiguous, |row| row.class)
}

/// The verdict on an answer. `code` is the vendor's own, kept only where it looks like one; the status
/// stands in for it. `accepted` is called for an answer of class [`Class::Accepted`] and gives the
/// message's id, or none where the answer is not the vendor's after all: that is ambiguous.
pub fn verdict(
    rows: &[Row],
    status: StatusCode,
    code: Option<&str>,
    headers: &HeaderMap,
    now: Stamp,
    accepted: impl FnOnce() -> Option<Taken>,
) -> Verdict {
    let own = code.and_then(kept::code).unwrap_or_else(|| code_of(status));
    match class(rows, status.as_u16(), code) {
        Class::Accepted => match accepted() {
            Some(taken) => Verdict::Accepted { message_id: taken.message_id },
            None => ambiguous(format!("{}_without_id", code_of(status))),
        },
        Class::Permanent => Verdict::RefusedPermanently { code: own },
        Class::Transient => Verdict::TransientRefusal { code: own },
        Class::RateLimited => Verdict::RateLimited { retry_at: retry_at(headers, now) },
        Class::Config => Verdict::ProviderStopped { code: own },
        Class::Ambiguous => ambiguous(own),
    }
}

/// An acceptance that names its message; the id only where it may be kept ([`kept::message_id`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub message_id: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &[Row] = &[
        status(201, Class::Accepted, "t"),
        status(400, Class::Permanent, "t"),
        coded(400, "20003", Class::Config, "t"),
        coded(400, "busy", Class::Transient, "t"),
        status(429, Class::RateLimited, "t"),
        range(500, 599, Class::Ambiguous, "t"),
    ];

    #[test]
    fn the_vendors_code_outranks_the_status_and_what_is_unlisted_is_ambiguous() {
        for (status, code, expected) in [
            (201, None, Class::Accepted),
            (400, None, Class::Permanent),
            (400, Some("other"), Class::Permanent),
            (400, Some("20003"), Class::Config),
            (400, Some("busy"), Class::Transient),
            (200, None, Class::Ambiguous),
            (402, Some("busy"), Class::Ambiguous),
            (500, Some("busy"), Class::Ambiguous),
            (600, None, Class::Ambiguous),
        ] {
            assert_eq!(class(ROWS, status, code), expected, "{status} {code:?}");
        }
    }

    #[test]
    fn a_verdict_carries_codes_and_never_text() {
        let of = |status: u16, code: Option<&str>, taken: Option<Taken>| {
            let status = StatusCode::from_u16(status).unwrap();
            verdict(ROWS, status, code, &HeaderMap::new(), Stamp::from_micros(0), || taken)
        };
        let text = Some("no such number +12025550123");
        assert_eq!(of(400, text, None), Verdict::RefusedPermanently { code: "http_400".into() });
        assert_eq!(of(400, Some("20003"), None), Verdict::ProviderStopped { code: "20003".into() });
        assert_eq!(of(400, Some("busy"), None), Verdict::TransientRefusal { code: "busy".into() });
        assert_eq!(of(429, text, None), Verdict::RateLimited { retry_at: None });
        assert_eq!(of(503, Some("20500"), None), ambiguous("20500".into()));
        assert_eq!(of(201, None, None), ambiguous("http_201_without_id".into()));
        let taken = Taken { message_id: Some("SM1".into()) };
        assert_eq!(
            of(201, None, Some(taken)),
            Verdict::Accepted { message_id: Some("SM1".into()) }
        );
    }
}
