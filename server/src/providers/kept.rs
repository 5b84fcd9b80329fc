//! What of a provider's own words may be kept.
//!
//! Codes and message ids end in facts, pages and exports, and a provider may write anything into them, the
//! recipient's number or address included. So nothing is cleaned and then kept: a word that does not look
//! like a code or an id is dropped whole.

use super::Secret;

/// Longest code that is kept.
pub const CODE_LEN_MAX: usize = 64;

/// Longest message id that is kept. The longest among the supported vendors has about 100 characters.
pub const MESSAGE_ID_LEN_MAX: usize = 200;

/// More digits in a row than any vendor's error code has; a phone number has at least seven.
const CODE_DIGITS_MAX: usize = 6;

/// The code, if it is one: 1 to 64 of `A-Z a-z 0-9 . _ : -` with at most six digits in a row.
#[must_use]
pub fn code(raw: &str) -> Option<String> {
    let fits = (1..=CODE_LEN_MAX).contains(&raw.len())
        && raw.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b':' | b'-'))
        && raw.split(|c: char| !c.is_ascii_digit()).all(|digits| digits.len() <= CODE_DIGITS_MAX);
    fits.then(|| raw.to_owned())
}

/// The message id, if it can be kept: 1 to 200 visible ASCII characters, no address (`@`), no
/// international number, and not the recipient under another name.
#[must_use]
pub fn message_id(raw: &str, to: Option<&Secret>) -> Option<String> {
    let is_number =
        raw.strip_prefix('+').is_some_and(|rest| rest.bytes().all(|c| c.is_ascii_digit()));
    let names_recipient = to.is_some_and(|to| raw.contains(to.expose().trim_start_matches('+')));
    let fits = (1..=MESSAGE_ID_LEN_MAX).contains(&raw.len())
        && raw.bytes().all(|c| c.is_ascii_graphic() && c != b'@')
        && !is_number
        && !names_recipient;
    fits.then(|| raw.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Secret, code, message_id};

    #[test]
    fn only_what_looks_like_a_code_is_kept() {
        for good in ["bad_number", "21211", "http_422", "E.1:x-y", "a1b2c3"] {
            assert_eq!(code(good).as_deref(), Some(good));
        }
        for bad in
            ["", "bad number", "+15550100001", "15550100001", "to:15550100001", "a@b.example", "ü"]
        {
            assert_eq!(code(bad), None, "{bad}");
        }
        assert_eq!(code(&"x".repeat(65)), None);
    }

    #[test]
    fn a_message_id_never_carries_the_recipient() {
        let to = Secret::new("+12025550123".to_owned());
        assert_eq!(message_id("m-0123456789ab", Some(&to)).as_deref(), Some("m-0123456789ab"));
        for bad in
            ["", "m 1", "+12025550123", "m-12025550123", "ann@example.com", "m\n", &"m".repeat(201)]
        {
            assert_eq!(message_id(bad, Some(&to)), None, "{bad}");
        }
    }
}
