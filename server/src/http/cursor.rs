//! Opaque cursors of keyset paging: where the last page ended, as (time, id).

use app::model::Stamp;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Text for a URL.
#[must_use]
pub fn encode(end: &(Stamp, String)) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}.{}", end.0.micros(), end.1))
}

/// Reads what [`encode`] wrote; anything else is none.
#[must_use]
pub fn decode(text: &str) -> Option<(Stamp, String)> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (at, id) = text.split_once('.')?;
    if id.len() > 64 || !id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
        return None;
    }
    Some((Stamp::from_micros(at.parse().ok()?), id.to_owned()))
}
