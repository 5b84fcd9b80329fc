//! Who an email is from, for the vendors that want name and address, and the names under which an attempt's id
//! travels with it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lettre::Address;

use super::BuildError;
use super::vendor::Parts;

/// Bytes of text in one encoded word: RFC 2047 section 2 allows 75 characters, 12 of them around the text.
const WORD_BYTES_MAX: usize = 45;

/// The header in which the attempt id travels with the message itself.
pub const ATTEMPT_HEADER: &str = "X-Attempt-Id";

/// The name under which a vendor keeps the attempt id beside the message and gives it back.
pub const ATTEMPT_KEY: &str = "attempt_id";

/// Who messages are from: `from`, as `no-reply@example.com` or `Example <no-reply@example.com>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sender {
    pub name: Option<String>,
    pub address: String,
}

impl Sender {
    /// From `[providers.<name>] from`.
    ///
    /// # Errors
    /// When it is missing or is no address.
    pub fn of(parts: &Parts<'_>) -> Result<Self, BuildError> {
        let text = parts.setting("from")?;
        Self::parse(&text).ok_or_else(|| parts.invalid("from", "is no email address"))
    }

    fn parse(text: &str) -> Option<Self> {
        if text.chars().any(char::is_control) {
            return None;
        }
        let text = text.trim();
        let (name, address) = match text.strip_suffix('>').and_then(|text| text.rsplit_once('<')) {
            Some((name, address)) => (name.trim(), address),
            None => ("", text),
        };
        let quoted = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
        let name = quoted.map_or_else(|| name.to_owned(), |name| name.replace("\\\"", "\""));
        let address = address.parse::<Address>().ok()?.to_string();
        let name = Some(name).filter(|name| !name.is_empty());
        address.is_ascii().then_some(Self { name, address })
    }

    /// As the `From` header has it: a quoted name (RFC 5322), or encoded words where it is not ASCII (RFC 2047).
    #[must_use]
    pub fn header(&self) -> String {
        let address = &self.address;
        match &self.name {
            None => address.clone(),
            Some(name) if name.is_ascii() => quoted(name, address),
            Some(name) => format!("{} <{address}>", encoded_words(name)),
        }
    }

    /// As vendors want it that take Unicode and encode it themselves.
    #[must_use]
    pub fn text(&self) -> String {
        match &self.name {
            None => self.address.clone(),
            Some(name) => quoted(name, &self.address),
        }
    }
}

fn quoted(name: &str, address: &str) -> String {
    let name = name.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{name}\" <{address}>")
}

fn encoded_words(text: &str) -> String {
    let mut words: Vec<String> = vec![String::new()];
    for c in text.chars() {
        match words.last_mut() {
            Some(word) if word.len() + c.len_utf8() <= WORD_BYTES_MAX => word.push(c),
            _ => words.push(c.to_string()),
        }
    }
    let encoded = words.iter().map(|word| format!("=?UTF-8?B?{}?=", STANDARD.encode(word)));
    encoded.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::Sender;

    fn header(text: &str) -> Option<String> {
        Sender::parse(text).map(|sender| sender.header())
    }

    #[test]
    fn a_sender_is_an_address_with_or_without_a_name() {
        for (text, expected) in [
            ("no-reply@example.com", "no-reply@example.com"),
            ("Example <no-reply@example.com>", "\"Example\" <no-reply@example.com>"),
            ("\"Shop, Inc.\" <a@example.com>", "\"Shop, Inc.\" <a@example.com>"),
            ("Shop, Inc. <a@example.com>", "\"Shop, Inc.\" <a@example.com>"),
            ("\"A \\\"B\\\"\" <a@example.com>", "\"A \\\"B\\\"\" <a@example.com>"),
            ("<a@example.com>", "a@example.com"),
            ("Müller <a@example.com>", "=?UTF-8?B?TcO8bGxlcg==?= <a@example.com>"),
        ] {
            assert_eq!(header(text).as_deref(), Some(expected), "{text}");
        }
        for bad in
            ["", "example.com", "a@b@c.example", "A <a@example.com", "a@example.com\r\nBcc: x"]
        {
            assert_eq!(header(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_long_name_becomes_several_words_of_at_most_75_characters() {
        let header = header(&format!("{} <a@example.com>", "ü".repeat(60))).unwrap();
        let words: Vec<&str> = header.split(' ').filter(|word| word.starts_with("=?")).collect();
        assert!(words.len() > 1 && words.iter().all(|word| word.len() <= 75), "{header}");
    }
}
