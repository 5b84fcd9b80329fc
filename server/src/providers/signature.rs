//! The signature of our own protocols: the generic `http` provider, its callbacks, the `http` resolver.
//!
//! `Sendonce-Signature: t=<unix seconds>,v1=<hex HMAC-SHA256(key, "<t>.<body>")>` (CONTRACT section 9).

use app::model::Stamp;
use http::HeaderMap;

use super::{CallbackError, Secret};
use crate::keys;

/// Name of the header.
pub const HEADER: &str = "sendonce-signature";

/// How far the signature's time may lie from ours, to either side: 300 s (CONTRACT section 9).
pub const TOLERANCE_S: i64 = 300;

/// The header's value for this body, signed at `now`. A request without a body signs the empty one.
#[must_use]
pub fn header(key: &Secret, now: Stamp, body: &[u8]) -> String {
    let at = now.micros().div_euclid(1_000_000).to_string();
    let v1 = signed(key, &at, body);
    format!("t={at},v1={v1}")
}

/// Checks that `body` was signed with `key` at about `now`. Compares in constant time.
///
/// Exactly one header with exactly two parts, in the order above, is accepted.
///
/// # Errors
/// [`CallbackError::Signature`] when it does not verify, [`CallbackError::Stale`] when it does but its
/// time is more than [`TOLERANCE_S`] away.
pub fn verify(
    key: &Secret,
    headers: &HeaderMap,
    now: Stamp,
    body: &[u8],
) -> Result<(), CallbackError> {
    let mut values = headers.get_all(HEADER).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(CallbackError::Signature);
    };
    let (at, v1) = value
        .to_str()
        .ok()
        .and_then(|text| text.split_once(','))
        .and_then(|(at, v1)| Some((at.strip_prefix("t=")?, v1.strip_prefix("v1=")?)))
        .ok_or(CallbackError::Signature)?;
    // Twelve digits reach beyond the calendar and fit any integer below.
    if at.is_empty() || at.len() > 12 || !at.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(CallbackError::Signature);
    }
    if !keys::equal(signed(key, at, body).as_bytes(), v1.as_bytes()) {
        return Err(CallbackError::Signature);
    }
    let at: i64 = at.parse().map_err(|_| CallbackError::Signature)?;
    let away = now.micros().div_euclid(1_000_000).saturating_sub(at).saturating_abs();
    if away > TOLERANCE_S { Err(CallbackError::Stale) } else { Ok(()) }
}

/// The text form of `t` is signed as it stands, so that no second spelling of the same time verifies.
fn signed(key: &Secret, at: &str, body: &[u8]) -> String {
    let mut message = Vec::with_capacity(at.len() + 1 + body.len());
    message.extend_from_slice(at.as_bytes());
    message.push(b'.');
    message.extend_from_slice(body);
    let v1 = keys::sign(key.expose().as_bytes(), &message);
    // The body carries the link.
    zeroize::Zeroize::zeroize(&mut message);
    v1
}
