//! What the email adapters have in common.

use app::model::Stamp;
use zeroize::Zeroizing;

use super::resolver;
use super::vendor::Parts;
use super::{BuildError, Message};
use crate::domain::Verdict;

/// The sender, as a header takes it: `a@example.com` or `Name <a@example.com>`.
///
/// # Errors
/// When it has no plain address, or characters that could begin another header.
pub fn sender(parts: &Parts<'_>, text: &str) -> Result<String, BuildError> {
    let is_printable = text.chars().all(|c| !c.is_control());
    if is_printable && address_of(text).is_some() {
        Ok(text.trim().to_owned())
    } else {
        Err(parts.invalid("from", "must be an address, or a name and an address in angle brackets"))
    }
}

/// The bare address of a sender.
#[must_use]
pub fn address_of(sender: &str) -> Option<&str> {
    let sender = sender.trim();
    let bare = match sender.rsplit_once('<') {
        Some((_, rest)) => rest.strip_suffix('>')?,
        None => sender,
    };
    resolver::email(bare).map(|_| bare)
}

/// The domain of a sender's address.
#[must_use]
pub fn domain_of(sender: &str) -> Option<&str> {
    address_of(sender)?.rsplit_once('@').map(|(_, domain)| domain)
}

/// Whether the recipient is exactly one plain address: some vendors read a comma as a second one. What is
/// not is refused here; nothing was tried.
///
/// # Errors
/// The verdict to end with.
pub fn one_recipient(message: &Message) -> Result<(), Verdict> {
    match resolver::email(message.to.expose()) {
        Some(_) => Ok(()),
        None => Err(Verdict::RefusedPermanently { code: "address_syntax".to_owned() }),
    }
}

/// The part of a `Message-ID` before its `@`, without brackets: the whole of it looks like an address, and
/// what looks like an address is not kept.
#[must_use]
pub fn local_part(message_id: &str) -> &str {
    let bare = message_id.trim().trim_start_matches('<').trim_end_matches('>');
    bare.split_once('@').map_or(bare, |(local, _)| local)
}

/// Seconds since 1970, possibly with a fraction, as some vendors write times.
#[must_use]
pub fn from_seconds(seconds: f64) -> Option<Stamp> {
    // Beyond it lies no time that a provider could mean; the product is exact enough below it.
    const SECONDS_MAX: f64 = 1e11;
    #[expect(clippy::cast_possible_truncation, reason = "checked to fit on this line")]
    (0.0..SECONDS_MAX)
        .contains(&seconds)
        .then(|| Stamp::from_micros((seconds * 1e6).round() as i64))
}

/// Text that is wiped when dropped, with room for what is known to come.
#[must_use]
pub fn wiped(capacity: usize) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(Vec::with_capacity(capacity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_an_address_with_or_without_a_name() {
        for (sender, address) in [
            ("a@example.com", Some("a@example.com")),
            ("Example Market <a@example.com>", Some("a@example.com")),
            (" <a@example.com> ", Some("a@example.com")),
            ("Example", None),
            ("a@example.com, b@example.com", None),
            ("a@example.com <", None),
            ("<a@example.com> b", None),
            ("", None),
        ] {
            assert_eq!(address_of(sender), address, "{sender}");
        }
        assert_eq!(domain_of("E <a@mg.example.com>"), Some("mg.example.com"));
    }

    #[test]
    fn a_message_id_is_kept_without_what_makes_it_an_address() {
        assert_eq!(local_part("<20180622.1.B31A@mg.example.com>"), "20180622.1.B31A");
        assert_eq!(local_part("20180622.1.B31A@mg.example.com"), "20180622.1.B31A");
        assert_eq!(local_part("plain"), "plain");
    }

    #[test]
    fn a_time_in_seconds_keeps_its_fraction() {
        assert_eq!(
            from_seconds(1_529_704_976.104_692),
            Some(Stamp::from_micros(1_529_704_976_104_692))
        );
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e12] {
            assert_eq!(from_seconds(bad), None);
        }
    }
}
