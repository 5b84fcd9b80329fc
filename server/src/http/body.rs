//! Reading a request's body within a limit and a time.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;

use crate::clock::Clock;

/// How long a body may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// So much of a body that is too large is still read, and dropped. A connection that is closed with
/// bytes unread is reset, and the client may lose the answer that tells it why.
const DRAIN_BYTES_MAX: usize = 8 << 20;

/// Why a body could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    TooLarge,
    TooSlow,
    /// The client went away or broke the framing.
    Broken,
}

/// The whole body, when it has at most `bytes_max` bytes.
///
/// # Errors
/// [`BodyError`]. What `Content-Length` promises is believed before a byte is read.
pub async fn read(
    request: Request,
    bytes_max: usize,
    clock: &dyn Clock,
) -> Result<Bytes, BodyError> {
    let (parts, body) = request.into_parts();
    let promised = parts
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse::<u64>().ok());
    let is_over = promised.is_some_and(|length| length > bytes_max as u64);
    // A client that asks first has sent nothing yet, and one that promises too much is cut off.
    let is_sent = !parts.headers.contains_key(EXPECT)
        && promised.is_none_or(|length| length <= DRAIN_BYTES_MAX as u64);
    if is_over && !is_sent {
        return Err(BodyError::TooLarge);
    }
    tokio::select! {
        read = collect(body, bytes_max) => read,
        () = clock.sleep(PATIENCE) => Err(if is_over { BodyError::TooLarge } else { BodyError::TooSlow }),
    }
}

async fn collect(mut body: Body, bytes_max: usize) -> Result<Bytes, BodyError> {
    let mut whole = BytesMut::new();
    let mut total = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|_| if total > bytes_max { BodyError::TooLarge } else { BodyError::Broken })?;
        let Ok(data) = frame.into_data() else { continue };
        total = total.saturating_add(data.len());
        if total > DRAIN_BYTES_MAX {
            return Err(BodyError::TooLarge);
        }
        if total <= bytes_max {
            whole.extend_from_slice(&data);
        }
    }
    if total > bytes_max { Err(BodyError::TooLarge) } else { Ok(whole.freeze()) }
}

/// Whether the headers let the body be JSON in UTF-8. No `Content-Type` at all is taken for it: there is
/// nothing else that this API speaks. A form or a text is refused, and so is a compressed body.
#[must_use]
pub fn may_be_json(headers: &HeaderMap) -> bool {
    let is_plain = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .all(|value| value.as_bytes().eq_ignore_ascii_case(b"identity"));
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    match (types.next(), types.next()) {
        (None, _) => is_plain,
        (Some(_), Some(_)) => false,
        (Some(value), None) => is_plain && value.to_str().is_ok_and(is_json),
    }
}

fn is_json(value: &str) -> bool {
    let mut parts = value.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default().to_ascii_lowercase();
    let is_json = media == "application/json"
        || (media.starts_with("application/") && media.ends_with("+json"));
    is_json
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, charset)) if name.trim().eq_ignore_ascii_case("charset") => {
                charset.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
            }
            _ => true,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_known_by_its_type() {
        let table = [
            (None, None, true),
            (Some("application/json"), None, true),
            (Some("Application/JSON; charset=UTF-8"), None, true),
            (Some("application/json;charset=\"utf-8\""), None, true),
            (Some("application/cloudevents+json"), None, true),
            (Some("application/json"), Some("identity"), true),
            (Some("application/json"), Some("gzip"), false),
            (Some("application/json; charset=latin1"), None, false),
            (Some("text/plain"), None, false),
            (Some("text/html"), None, false),
            (Some("application/x-www-form-urlencoded"), None, false),
            (Some("application/jsonx"), None, false),
            (Some(""), None, false),
        ];
        for (media, encoding, want) in table {
            let mut headers = HeaderMap::new();
            for (name, value) in [(CONTENT_TYPE, media), (CONTENT_ENCODING, encoding)] {
                if let Some(value) = value {
                    headers.insert(name, value.parse().unwrap());
                }
            }
            assert_eq!(may_be_json(&headers), want, "{media:?} {encoding:?}");
        }
    }
}
