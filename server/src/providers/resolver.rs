//! From handles to an address and a link: asked of the identity system at dispatch, kept in memory only.
//!
//! A resolver never guesses. What it hands out has passed [`phone`] or [`email`] and [`link`]; what does
//! not pass is not mended. Three answers:
//!
//! * [`Resolution::Found`];
//! * [`Resolution::NotFound`]: the identity system answers for this destination, and there is no usable
//!   address for the channel. That includes an address that is no address: asking again would give the
//!   same text, so the record ends (`destination_not_found`) instead of asking until it expires;
//! * [`Resolution::Unavailable`]: the system is down, refuses us, or answers something that is not the
//!   protocol, a broken link included: its fault and not the destination's, so the record backs off.

mod directory;
mod remote;

use std::sync::Arc;

use app::model::Channel;
use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

use super::transport::Transport;
use super::{BuildError, Deadline, Secret};
use crate::clock::Clock;
use crate::config;
use crate::keys::hex;

pub use directory::Directory;
pub use remote::Remote;

/// The handles of one event. They are opaque and may be stored; the answer may not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolveRequest {
    pub event_id: String,
    pub destination_ref: String,
    pub reset_ref: String,
    pub channel: Channel,
    pub purpose: String,
}

/// Where the message goes and what it carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The address as the identity system has it.
    pub to: Secret,
    /// The same for every spelling of one address, for the fingerprint: a number as it is, an email
    /// address with its domain in lower case.
    pub canonical: Secret,
    pub link: Secret,
    /// A language tag, if one was given.
    pub locale: Option<String>,
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    Found(Resolved),
    NotFound,
    Unavailable { code: String },
}

/// Asks the identity system.
#[async_trait]
pub trait Resolver: Send + Sync + std::fmt::Debug {
    /// Never sends anything to the destination. Bounded by the deadline.
    async fn resolve(&self, request: &ResolveRequest, deadline: Deadline) -> Resolution;
}

/// The configured resolver.
///
/// # Errors
/// A directory that cannot be read or has a broken line; a URL that is none.
pub fn build(
    config: &config::Resolver,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
) -> Result<Arc<dyn Resolver>, BuildError> {
    Ok(match &config.kind {
        config::ResolverKind::Demo => Arc::new(Demo),
        config::ResolverKind::Directory { path } => Arc::new(Directory::open(path)?),
        config::ResolverKind::Http { url, secret } => {
            Arc::new(Remote::new(url, secret.clone(), clock, transport)?)
        }
    })
}

/// Invents an address and a link for every handle: always the same ones for the same handle, in every
/// process.
///
/// Nothing it invents can reach anybody. Numbers are `+1 NXX 555 01XX`, the numbers that the North
/// American plan keeps for fiction in each of its area codes; addresses and links are at `example.com`
/// (RFC 2606). Two handles may share a number: there are some 72 000 of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Demo;

#[async_trait]
impl Resolver for Demo {
    async fn resolve(&self, request: &ResolveRequest, _deadline: Deadline) -> Resolution {
        let to = match request.channel {
            Channel::Sms => demo_phone(&request.destination_ref),
            Channel::Email => demo_email(&request.destination_ref),
        };
        let link =
            format!("https://example.com/reset/{}", hex(&digest("link", &request.reset_ref)[..16]));
        address(request.channel, &to).map_or(Resolution::NotFound, |(to, canonical)| {
            Resolution::Found(Resolved { to, canonical, link: Secret::new(link), locale: None })
        })
    }
}

fn digest(what: &str, handle: &str) -> [u8; 32] {
    Sha256::new()
        .chain_update("sendonce demo ")
        .chain_update(what)
        .chain_update("\n")
        .chain_update(handle)
        .finalize()
        .into()
}

fn demo_phone(handle: &str) -> String {
    let random = digest("phone", handle);
    let pick = |at: usize, below: u16| u16::from_be_bytes([random[at], random[at + 1]]) % below;
    // Area codes: no 0 or 1 in front, no 9 in the middle (kept for growth), no two ones at the end (services).
    let first = 2 + pick(0, 8);
    let middle = pick(2, 9);
    let last = match pick(4, 10) {
        1 if middle == 1 => 2,
        last => last,
    };
    format!("+1{first}{middle}{last}55501{:02}", pick(6, 100))
}

fn demo_email(handle: &str) -> String {
    format!("seller-{}@example.com", hex(&digest("email", handle)[..8]))
}

/// The address and its canonical form, if it is one for this channel.
pub(crate) fn address(channel: Channel, text: &str) -> Option<(Secret, Secret)> {
    let canonical = match channel {
        Channel::Sms => phone(text)?.to_owned(),
        Channel::Email => email(text)?,
    };
    Some((Secret::new(text.to_owned()), Secret::new(canonical)))
}

/// Strict E.164: `+`, a digit from 1 to 9, then more ASCII digits, 2 to 15 digits in all. Nothing is
/// stripped, added or translated (CASES B38).
#[must_use]
pub fn phone(text: &str) -> Option<&str> {
    let digits = text.strip_prefix('+')?.as_bytes();
    let fits = (2..=15).contains(&digits.len())
        && digits.iter().all(u8::is_ascii_digit)
        && digits.first() != Some(&b'0');
    fits.then_some(text)
}

/// The canonical form of an email address, if it is a plain one: a dot-atom of at most 64 ASCII
/// characters, `@`, a domain name with at least one dot; 254 in all. Quoted local parts, comments, address
/// literals and non-ASCII are refused. Only the domain changes: whether case matters before the `@` is the
/// receiver's business.
#[must_use]
pub fn email(text: &str) -> Option<String> {
    let (local, domain) = text.split_once('@')?;
    let atom = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&c);
    let is_local = local.len() <= 64
        && local.split('.').all(|part| !part.is_empty() && part.bytes().all(atom));
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_domain = domain.contains('.')
        && domain.split('.').all(is_label)
        // A name that ends in a number is an address of a machine (RFC 3696, section 2).
        && domain.rsplit('.').next().is_some_and(|last| !last.bytes().all(|c| c.is_ascii_digit()));
    (text.len() <= 254 && is_local && is_domain)
        .then(|| format!("{local}@{}", domain.to_ascii_lowercase()))
}

/// Longest link that is sent.
pub const LINK_LEN_MAX: usize = 2048;

/// The link, if it is one: `https://` (or `http://` to a loopback address, for development), visible ASCII
/// without quotes and angle brackets, at most [`LINK_LEN_MAX`] characters, no user name.
#[must_use]
pub fn link(text: &str) -> Option<&str> {
    let plain = text.len() <= LINK_LEN_MAX
        && text
            .bytes()
            .all(|c| c.is_ascii_graphic() && !matches!(c, b'"' | b'<' | b'>' | b'\\' | b'`'));
    let url = url::Url::parse(text).ok().filter(|_| plain)?;
    let is_loopback = match url.host()? {
        url::Host::Domain(name) => name == "localhost",
        url::Host::Ipv4(ip) => ip.is_loopback(),
        url::Host::Ipv6(ip) => ip.is_loopback(),
    };
    let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_loopback);
    (is_safe && url.username().is_empty() && url.password().is_none()).then_some(text)
}

/// A language tag, if it looks like one; anything else is no reason not to send.
fn locale(text: String) -> Option<String> {
    let fits = (2..=35).contains(&text.len())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    fits.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_strict_e164_is_a_number() {
        for good in ["+12", "+12025550123", "+447700900123", "+123456789012345"] {
            assert_eq!(phone(good), Some(good));
        }
        for bad in [
            "",
            "+",
            "+1",
            "12025550123",
            "0012025550123",
            "+02025550123",
            "+1234567890123456",
            " +12025550123",
            "+12025550123 ",
            "+1 202 555 0123",
            "+1-202-555-0123",
            "+1(202)5550123",
            "++12025550123",
            "+1202555012x",
            "\u{ff0b}12025550123",
            "+\u{ff11}2025550123",
            "+1\u{0662}025550123",
            "+12025550123\n",
            "tel:+12025550123",
            "+1202555\u{200b}0123",
        ] {
            assert_eq!(phone(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn only_a_plain_address_is_an_address() {
        for (good, canonical) in [
            ("a@b.example", "a@b.example"),
            ("Ann.Lee+x@Mail.EXAMPLE", "Ann.Lee+x@mail.example"),
            ("o'neil@xn--bcher-kva.example", "o'neil@xn--bcher-kva.example"),
        ] {
            assert_eq!(email(good).as_deref(), Some(canonical));
        }
        let long = format!("{}@b.example", "a".repeat(65));
        for bad in [
            "",
            "a",
            "@b.example",
            "a@",
            "a@b",
            "a@@b.example",
            "a@b@c.example",
            ".a@b.example",
            "a.@b.example",
            "a..b@c.example",
            "a b@c.example",
            "a@b .example",
            "a@-b.example",
            "a@b-.example",
            "a@b..example",
            "a@.example",
            "a@b.example.",
            "\"a\"@b.example",
            "a@[127.0.0.1]",
            "a@127.0.0.1",
            "\u{fc}@b.example",
            "a@b\u{fc}cher.example",
            "a@b.example\n",
            "<a@b.example>",
            "a,b@c.example",
            &long,
        ] {
            assert_eq!(email(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn only_a_safe_url_is_a_link() {
        for good in [
            "https://example.com/reset/abc?x=1&y=2#z",
            "http://localhost:3000/r",
            "http://127.0.0.1/r",
        ] {
            assert_eq!(link(good), Some(good));
        }
        let long = format!("https://example.com/{}", "a".repeat(LINK_LEN_MAX));
        for bad in [
            "",
            "example.com/r",
            "http://example.com/r",
            "javascript:alert(1)",
            "https://",
            "https://a:b@example.com/",
            "https://example.com/a b",
            "https://example.com/\"x",
            "https://example.com/<x>",
            "https://example.com/\n",
            "https://ex\u{e4}mple.com/",
            &long,
        ] {
            assert_eq!(link(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_demo_invents_valid_fictional_addresses() {
        let numbers: std::collections::BTreeSet<String> =
            (0..1000).map(|n| demo_phone(&format!("dest-{n}"))).collect();
        assert!(numbers.len() > 950, "{}", numbers.len());
        for number in &numbers {
            assert_eq!(phone(number), Some(number.as_str()));
            assert_eq!(number.len(), 12);
            assert_eq!(&number[5..10], "55501");
            assert!(!number[2..5].ends_with("11") && !number[2..5].starts_with(['0', '1']));
        }
        // Fixed for ever: another process, or a later version, must find the same fingerprint.
        assert_eq!(demo_phone("dest-1"), demo_phone("dest-1"));
        assert!(email(&demo_email("dest-1")).is_some());
    }
}
