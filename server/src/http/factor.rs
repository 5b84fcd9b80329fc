//! The second factor: time-based one-time codes (RFC 6238: SHA-1, six digits, 30 seconds) and recovery codes.
//!
//! No secret is in the database: it is derived from a key outside it and a nonce that is. A code works once:
//! the store keeps the newest time step that was used.

use app::model::Stamp;
use qrcode::QrCode;
use qrcode::render::svg;
use totp_rs::{Algorithm, TOTP};

use crate::entropy::Entropy;
use crate::keys::{self, Keys};
use crate::store::{self, Store};

/// Seconds for which one code holds.
const STEP_SECONDS: i64 = 30;

/// Steps before and after now that are accepted too: clocks differ, and typing takes a while.
const SKEW: i64 = 1;

const DIGITS: usize = 6;

/// Recovery codes of one account.
const RECOVERY_CODES: usize = 10;

/// No letter that looks like another one or like a digit.
pub(super) const ALPHABET: &[u8] = b"abcdefghjkmnpqrstuvwxyz23456789";

/// The generator of one enrolment; none when the address cannot stand in its name.
pub(super) fn generator(keys: &Keys, user_id: &str, nonce: &str, email: &str) -> Option<TOTP> {
    let secret = keys.factor_secret(user_id, nonce).to_vec();
    // A colon would end the account's name in the address that the picture holds.
    let account = email.replace(':', "_");
    let step = u64::try_from(STEP_SECONDS).ok()?;
    TOTP::new(Algorithm::SHA1, DIGITS, 1, step, secret, Some("sendonce".to_owned()), account).ok()
}

/// The picture to scan, as SVG, and the key as text.
pub(super) fn picture(totp: &TOTP) -> Option<(String, String)> {
    let code = QrCode::new(totp.get_url().as_bytes()).ok()?;
    let svg = code
        .render()
        .min_dimensions(220, 220)
        .dark_color(svg::Color("#000"))
        .light_color(svg::Color("#fff"))
        .build();
    // Inside a page there is no XML declaration.
    let at = svg.find("<svg")?;
    Some((svg[at..].to_owned(), totp.get_secret_base32()))
}

/// The time step whose code this is, if it is one of now; the newest where two could be meant.
pub(super) fn step_of(totp: &TOTP, code: &str, now: Stamp) -> Option<i64> {
    let code: String = code.chars().filter(|c| !c.is_whitespace()).collect();
    if code.len() != DIGITS || !code.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let current = now.micros() / 1_000_000 / STEP_SECONDS;
    // All are always computed, so that time does not tell which one it was.
    let mut found = None;
    for step in current - SKEW..=current + SKEW {
        let Ok(seconds) = u64::try_from(step * STEP_SECONDS) else { continue };
        if keys::equal(totp.generate(seconds).as_bytes(), code.as_bytes()) {
            found = Some(step);
        }
    }
    found
}

/// Checks and uses up a one-time code or a recovery code.
///
/// # Errors
/// The store's.
pub(super) async fn redeem(
    store: &dyn Store,
    keys: &Keys,
    user_id: &str,
    typed: &str,
    now: Stamp,
) -> Result<bool, store::Error> {
    let Some(factor) = store.factor(user_id).await? else { return Ok(false) };
    if factor.confirmed_at.is_none() {
        return Ok(false);
    }
    let step =
        generator(keys, user_id, &factor.nonce, "").and_then(|totp| step_of(&totp, typed, now));
    match step {
        Some(step) => store.use_step(user_id, step).await,
        None => store.use_recovery(user_id, &recovery_hash(keys, user_id, typed)).await,
    }
}

/// New recovery codes, `xxxxx-xxxxx`, about 49 bits each: behind the throttle nobody guesses one.
pub(super) fn recovery_codes(entropy: &dyn Entropy) -> Vec<String> {
    (0..RECOVERY_CODES).map(|_| format!("{}-{}", random(entropy, 5), random(entropy, 5))).collect()
}

/// What the database keeps of one.
pub(super) fn recovery_hash(keys: &Keys, user_id: &str, code: &str) -> String {
    let plain: String =
        code.to_lowercase().chars().filter(|c| c.is_ascii_alphanumeric()).take(32).collect();
    keys.content_hash(&[b"recovery code", user_id.as_bytes(), plain.as_bytes()])
}

/// So many characters that people can read out and type.
pub(super) fn random(entropy: &dyn Entropy, chars: usize) -> String {
    let letters = ALPHABET.len() as u64;
    (0..chars)
        .filter_map(|_| ALPHABET.get(usize::try_from(entropy.below(letters)).unwrap_or(0)))
        .map(|byte| char::from(*byte))
        .collect()
}

#[cfg(test)]
mod tests {
    use app::model::Stamp;
    use totp_rs::{Algorithm, TOTP};

    use super::{generator, picture, random, recovery_codes, recovery_hash, step_of};
    use crate::entropy::SeededEntropy;
    use crate::keys::Keys;

    #[test]
    fn codes_are_those_of_rfc_6238() {
        let secret = b"12345678901234567890".to_vec();
        let totp =
            TOTP::new(Algorithm::SHA1, 6, 1, 30, secret, None, "a@example.com".to_owned()).unwrap();
        // The RFC's eight digits, of which ours are the last six.
        for (seconds, code) in
            [(59, "287082"), (1_111_111_109, "081804"), (2_000_000_000, "279037")]
        {
            let now = Stamp::from_micros(seconds * 1_000_000);
            assert_eq!(step_of(&totp, code, now), Some(seconds / 30));
            assert_eq!(
                step_of(&totp, &format!(" {} {} ", &code[..3], &code[3..]), now),
                Some(seconds / 30)
            );
            assert_eq!(
                step_of(&totp, code, now.plus(30_000_000)),
                Some(seconds / 30),
                "a step late"
            );
            assert_eq!(step_of(&totp, code, now.plus(90_000_000)), None, "three steps late");
        }
        for bad in ["", "28708", "2870822", "28708a", "२८७०८२"] {
            assert_eq!(step_of(&totp, bad, Stamp::from_micros(59_000_000)), None, "{bad}");
        }
    }

    #[test]
    fn a_secret_depends_on_the_person_and_the_enrolment_and_the_picture_carries_it() {
        let keys = Keys::generate(&SeededEntropy::new(1));
        let of = |user: &str, nonce: &str| {
            generator(&keys, user, nonce, "a:b@example.com").unwrap().get_secret_base32()
        };
        assert_eq!(of("u", "n"), of("u", "n"));
        assert_ne!(of("u", "n"), of("u", "m"));
        assert_ne!(of("u", "n"), of("v", "n"));
        let totp = generator(&keys, "u", "n", "a:b@example.com").unwrap();
        let (svg, text) = picture(&totp).unwrap();
        assert!(svg.starts_with("<svg") && !svg.contains(" style=") && text == of("u", "n"));
    }

    #[test]
    fn recovery_codes_differ_and_are_compared_as_people_type_them() {
        let codes = recovery_codes(&SeededEntropy::new(3));
        let unique: std::collections::BTreeSet<&String> = codes.iter().collect();
        assert_eq!(unique.len(), 10);
        let keys = Keys::generate(&SeededEntropy::new(1));
        let code = &codes[0];
        let typed = format!(" {} ", code.to_uppercase().replace('-', " "));
        assert_eq!(recovery_hash(&keys, "u", code), recovery_hash(&keys, "u", &typed));
        assert_ne!(recovery_hash(&keys, "u", code), recovery_hash(&keys, "v", code));
        assert_eq!(random(&SeededEntropy::new(5), 20).len(), 20);
    }
}
