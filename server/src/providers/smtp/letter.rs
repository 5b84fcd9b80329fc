//! The message as MIME (RFC 5322), signed by DKIM where a key is configured.

use std::time::{Duration, UNIX_EPOCH};

use app::model::Stamp;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lettre::message::dkim::{
    DkimCanonicalization, DkimCanonicalizationType, DkimConfig, DkimSigningAlgorithm,
    DkimSigningKey,
};
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, MultiPart, SinglePart};
use zeroize::Zeroizing;

use crate::providers::{Message, Secret};

/// Headers that a signature covers. Only those that the library keeps apart from the body's own.
const SIGNED: [&str; 5] = ["From", "To", "Subject", "Date", "Message-ID"];

/// The message's bytes; none when an address or a header is not what it should be.
///
/// The same attempt has the same `Message-ID` for ever.
#[must_use]
pub fn letter(
    message: &Message,
    from: &Mailbox,
    domain: &str,
    now: Stamp,
    dkim: Option<&DkimConfig>,
) -> Option<Zeroizing<Vec<u8>>> {
    let micros = u64::try_from(now.micros()).ok()?;
    // A header ends where its line ends: what could end one is in none.
    let subject = message.subject.as_deref().unwrap_or_default();
    if subject.chars().any(char::is_control) {
        return None;
    }
    let builder = lettre::Message::builder()
        .from(from.clone())
        .to(message.to.expose().parse().ok()?)
        .subject(subject)
        .date(UNIX_EPOCH + Duration::from_micros(micros))
        .message_id(Some(message_id(&message.attempt_id, domain)))
        // Nobody's holiday answers to a password reset (RFC 3834).
        .raw_header(HeaderValue::new(
            HeaderName::new_from_ascii_str("Auto-Submitted"),
            "auto-generated".to_owned(),
        ));
    let text = SinglePart::plain(message.text.expose().to_owned());
    let built = match &message.html {
        None => builder.singlepart(text),
        Some(html) => builder.multipart(
            MultiPart::alternative()
                .boundary(boundary(message))
                .singlepart(text)
                .singlepart(SinglePart::html(html.expose().to_owned())),
        ),
    };
    let mut built = built.ok()?;
    if let Some(dkim) = dkim {
        built.sign(dkim);
    }
    Some(Zeroizing::new(built.formatted()))
}

/// `<attempt id@domain>`.
#[must_use]
pub fn message_id(attempt_id: &str, domain: &str) -> String {
    format!("<{attempt_id}@{domain}>")
}

/// One that stands in neither text.
fn boundary(message: &Message) -> String {
    let html = message.html.as_ref().map_or("", Secret::expose);
    let mut boundary = format!("sendonce-{}", message.attempt_id);
    while message.text.expose().contains(&boundary) || html.contains(&boundary) {
        boundary.push('-');
    }
    boundary
}

/// The key of a signature: RSA in PEM (PKCS #1 or #8), or Ed25519 in PEM (PKCS #8) or as 32 bytes in base64.
///
/// # Errors
/// What is wrong with it; never the key.
pub fn dkim(selector: &str, domain: &str, key: &Secret) -> Result<DkimConfig, &'static str> {
    const WRONG: &str = "is no RSA or Ed25519 private key";
    let text = key.expose().trim();
    let (form, algorithm) = if text.starts_with("-----BEGIN PRIVATE KEY-----") {
        let body: Zeroizing<String> =
            Zeroizing::new(text.lines().filter(|line| !line.starts_with("-----")).collect());
        let der = Zeroizing::new(STANDARD.decode(body.as_bytes()).map_err(|_| WRONG)?);
        unwrapped(&der).ok_or(WRONG)?
    } else if text.starts_with("-----BEGIN RSA PRIVATE KEY-----") {
        (Zeroizing::new(format!("{text}\n")), DkimSigningAlgorithm::Rsa)
    } else {
        (Zeroizing::new(text.to_owned()), DkimSigningAlgorithm::Ed25519)
    };
    let key = DkimSigningKey::new(&form, algorithm).map_err(|_| WRONG)?;
    let headers = SIGNED.iter().map(|name| HeaderName::new_from_ascii_str(name)).collect();
    let relaxed = DkimCanonicalizationType::Relaxed;
    Ok(DkimConfig::new(
        selector.to_owned(),
        domain.to_owned(),
        key,
        headers,
        DkimCanonicalization { header: relaxed, body: relaxed },
    ))
}

/// The key within PKCS #8 (RFC 5958), in the form that the library reads.
fn unwrapped(der: &[u8]) -> Option<(Zeroizing<String>, DkimSigningAlgorithm)> {
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
    let (sequence, integer, object, octets) = (0x30, 0x02, 0x06, 0x04);
    let (whole, _) = element(der, sequence)?;
    let (_version, rest) = element(whole, integer)?;
    let (algorithm, rest) = element(rest, sequence)?;
    let (name, _) = element(algorithm, object)?;
    let (key, _) = element(rest, octets)?;
    match name {
        RSA => {
            let body = Zeroizing::new(STANDARD.encode(key));
            let mut pem = Zeroizing::new(String::with_capacity(body.len() + body.len() / 64 + 80));
            pem.push_str("-----BEGIN RSA PRIVATE KEY-----\n");
            for line in body.as_bytes().chunks(64) {
                pem.push_str(std::str::from_utf8(line).ok()?);
                pem.push('\n');
            }
            pem.push_str("-----END RSA PRIVATE KEY-----\n");
            Some((pem, DkimSigningAlgorithm::Rsa))
        }
        ED25519 => {
            let (seed, _) = element(key, octets)?;
            Some((Zeroizing::new(STANDARD.encode(seed)), DkimSigningAlgorithm::Ed25519))
        }
        _ => None,
    }
}

/// The content of the first element, if it has this tag, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (own, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match *first {
        short @ 0..=0x7f => (usize::from(short), rest),
        long @ 0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            (bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    (*own == tag).then(|| rest.split_at_checked(length))?
}
