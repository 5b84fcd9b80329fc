//! The webhook signature of Svix, which is that of Standard Webhooks: base64 of HMAC-SHA-256 over
//! `id.timestamp.body`. The key is what follows `whsec_`, base64 decoded; a header may carry several
//! signatures, so that a key can be rotated.

use app::model::Stamp;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::{CallbackError, CallbackRequest, Secret};

/// How far the signature's time may lie from ours, to either side: 5 minutes, as the scheme's libraries do.
const TOLERANCE: i64 = 300 * 1_000_000;

/// Signatures of one header that are looked at.
const SIGNATURES_MAX: usize = 8;

/// The key's bytes, if it is one.
#[must_use]
pub fn key(secret: &Secret) -> Option<Zeroizing<Vec<u8>>> {
    let text = secret.expose();
    let bytes = STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text)).ok()?;
    (!bytes.is_empty()).then(|| Zeroizing::new(bytes))
}

/// `v1,<base64>` over these parts.
#[must_use]
pub fn signature(key: &[u8], id: &str, timestamp: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

/// Checks a callback. The headers are `svix-…` or `webhook-…`.
///
/// # Errors
/// [`CallbackError::NotConfigured`] when the key is none, [`CallbackError::Signature`] when no signature
/// verifies, [`CallbackError::Stale`] when one does but its time is too far away.
pub fn verify(secret: &Secret, request: &CallbackRequest<'_>) -> Result<(), CallbackError> {
    let key = key(secret).ok_or(CallbackError::NotConfigured)?;
    let header = |name: &str| {
        let (svix, webhook) = (format!("svix-{name}"), format!("webhook-{name}"));
        request.header(&svix).or_else(|| request.header(&webhook)).ok_or(CallbackError::Signature)
    };
    let (id, timestamp, signatures) = (header("id")?, header("timestamp")?, header("signature")?);
    let is_time =
        (1..=12).contains(&timestamp.len()) && timestamp.bytes().all(|c| c.is_ascii_digit());
    if id.is_empty() || !is_time {
        return Err(CallbackError::Signature);
    }
    let expected = signature(&key, id, timestamp, request.body);
    let is_good = signatures
        .split(' ')
        .take(SIGNATURES_MAX)
        .any(|one| crate::keys::equal(one.as_bytes(), expected.as_bytes()));
    if !is_good {
        return Err(CallbackError::Signature);
    }
    let at: i64 = timestamp.parse().map_err(|_| CallbackError::Signature)?;
    let away = request.now.micros().saturating_sub(at.saturating_mul(1_000_000)).saturating_abs();
    if away > TOLERANCE { Err(CallbackError::Stale) } else { Ok(()) }
}

/// The time of a signature, for those who sign.
#[must_use]
pub fn timestamp(now: Stamp) -> String {
    now.micros().div_euclid(1_000_000).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue, Method};

    // The published vector of Standard Webhooks and of Svix.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const TIMESTAMP: &str = "1614265330";
    const BODY: &str = r#"{"test": 2432232314}"#;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    struct Case<'a> {
        prefix: &'a str,
        secret: &'a str,
        id: &'a str,
        timestamp: &'a str,
        body: &'a str,
        signature: &'a str,
        away: i64,
    }

    const GOOD: Case<'static> = Case {
        prefix: "svix",
        secret: SECRET,
        id: ID,
        timestamp: TIMESTAMP,
        body: BODY,
        signature: SIGNATURE,
        away: 0,
    };

    fn check(case: &Case<'_>) -> Result<(), CallbackError> {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("id", case.id), ("timestamp", case.timestamp), ("signature", case.signature)]
        {
            let name = http::HeaderName::try_from(format!("{}-{name}", case.prefix)).unwrap();
            headers.insert(name, HeaderValue::from_str(value).unwrap());
        }
        let now = Stamp::from_micros(1_614_265_330_000_000 + case.away * 1_000_000);
        let request = CallbackRequest {
            method: &Method::POST,
            path: "/webhooks/r",
            query: None,
            headers: &headers,
            public_url: "https://example.com",
            body: case.body.as_bytes(),
            now,
        };
        verify(&Secret::new(case.secret.to_owned()), &request)
    }

    #[test]
    fn the_published_vector_verifies_under_both_names() {
        assert_eq!(check(&GOOD), Ok(()));
        assert_eq!(check(&Case { prefix: "webhook", ..GOOD }), Ok(()));
        let several = format!("v1,AAAA {SIGNATURE} v1a,BBBB");
        assert_eq!(check(&Case { signature: &several, ..GOOD }), Ok(()));
        assert_eq!(check(&Case { prefix: "other", ..GOOD }), Err(CallbackError::Signature));
    }

    #[test]
    fn each_changed_byte_fails() {
        let changed = |text: &str, place: usize| {
            let mut bytes = text.as_bytes().to_vec();
            bytes[place] = if bytes[place] == b'1' { b'2' } else { b'1' };
            String::from_utf8(bytes).unwrap()
        };
        let refused = Err(CallbackError::Signature);
        for place in 0..ID.len() {
            assert_eq!(check(&Case { id: &changed(ID, place), ..GOOD }), refused);
        }
        for place in 0..TIMESTAMP.len() {
            assert_eq!(check(&Case { timestamp: &changed(TIMESTAMP, place), ..GOOD }), refused);
        }
        for place in 0..BODY.len() {
            assert_eq!(check(&Case { body: &changed(BODY, place), ..GOOD }), refused);
        }
        for place in 0..SIGNATURE.len() {
            assert_eq!(check(&Case { signature: &changed(SIGNATURE, place), ..GOOD }), refused);
        }
        for place in "whsec_".len()..SECRET.len() {
            assert_eq!(check(&Case { secret: &changed(SECRET, place), ..GOOD }), refused);
        }
        assert_eq!(check(&Case { secret: "whsec_", ..GOOD }), Err(CallbackError::NotConfigured));
        assert_eq!(
            check(&Case { secret: "not base64!", ..GOOD }),
            Err(CallbackError::NotConfigured)
        );
    }

    #[test]
    fn a_signature_is_good_for_five_minutes() {
        for away in [-300, 300] {
            assert_eq!(check(&Case { away, ..GOOD }), Ok(()));
        }
        for away in [-301, 301] {
            assert_eq!(check(&Case { away, ..GOOD }), Err(CallbackError::Stale));
        }
    }
}
