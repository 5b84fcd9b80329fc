//! Operators' passwords: hashed with argon2id, a bounded number at a time, never on a runtime thread.
//!
//! An account that does not exist is verified against a fixed hash that no password matches, so that it
//! costs what an existing one costs.

use std::sync::Arc;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use zeroize::Zeroizing;

use crate::entropy::Entropy;

/// 19 MiB, two passes, one lane: the least that OWASP recommends for argon2id. It takes tens of
/// milliseconds, which an operator does not notice and a guesser does; more memory would let a burst of
/// sign-ins press on the process that sends.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;

/// Computed at a time: with two, sign-in can take at most two cores and 38 MiB from dispatch.
const TURNS_MAX: usize = 2;

/// Sign-ins that may wait for their turn; beyond it they are told to come back. At tens of milliseconds
/// each the last one waits about two seconds.
const WAITING_MAX: usize = 64;

/// Longer passwords are refused before they are hashed.
pub const PASSWORD_BYTES_MAX: usize = 1024;

/// The parameters above, the salt "sendonce-no-user", and an output of zeros, which no password is known to
/// have.
const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$c2VuZG9uY2Utbm8tdXNlcg$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// How the address of an account is kept and looked for, so that nobody has two that differ in case alone.
#[must_use]
pub fn canonical_email(text: &str) -> String {
    text.trim().to_lowercase()
}

/// Fewest characters of a password.
pub const PASSWORD_CHARS_MIN: usize = 12;
/// Most characters of a password: hashing takes time with each.
pub const PASSWORD_CHARS_MAX: usize = 256;
/// The longest address that mail knows.
const EMAIL_CHARS_MAX: usize = 254;

/// The address of an account as sign-in compares it, if it can be one.
#[must_use]
pub fn address(text: &str) -> Option<String> {
    let email = canonical_email(text);
    let is_address = email.split_once('@').is_some_and(|(local, domain)| {
        !local.is_empty() && !domain.is_empty() && !domain.contains('@')
    }) && email.chars().count() <= EMAIL_CHARS_MAX
        && !email.chars().any(|c| c.is_whitespace() || c.is_control());
    is_address.then_some(email)
}

/// What is wrong with a password that somebody chose, in one sentence.
#[must_use]
pub fn fault(password: &str) -> Option<&'static str> {
    let chars = password.chars().count();
    if chars < PASSWORD_CHARS_MIN {
        Some("Choose at least 12 characters.")
    } else if chars > PASSWORD_CHARS_MAX {
        Some("Keep it to 256 characters.")
    } else if password.chars().any(char::is_control) {
        Some("Leave out control characters.")
    } else if password.chars().all(|c| password.starts_with(c)) {
        Some("Use more than one character, repeated.")
    } else {
        None
    }
}

/// As [`fault`], of the password of this account: its own address is the first guess.
#[must_use]
pub fn fault_of(password: &str, email: &str) -> Option<&'static str> {
    let (password_lower, email) = (password.trim().to_lowercase(), canonical_email(email));
    let local = email.split('@').next().unwrap_or_default();
    let is_own = password_lower == email || (!local.is_empty() && password_lower == local);
    fault(password).or_else(|| is_own.then_some("Choose another one than your own address."))
}

/// Why a password could not be hashed or checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// Too many sign-ins wait already.
    #[error("too many sign-ins at once")]
    Busy,
    #[error("the password is empty or longer than 1024 bytes")]
    Length,
    #[error("the password cannot be hashed")]
    Hash,
}

/// Hashes and verifies, two at a time.
#[derive(Debug, Clone)]
pub struct Passwords {
    entropy: Arc<dyn Entropy>,
    // Who holds one computes. It goes with the computation onto the blocking thread: a caller that hangs
    // up must not let a third one in.
    turns: Arc<Semaphore>,
    // Bounds the queue for `turns`, which itself has no bound.
    waiting: Arc<Semaphore>,
}

/// The right to compute. Held over a whole sign-in, it also bounds how many guesses are under way between
/// reading the throttle and counting the failure.
#[derive(Debug, Clone)]
pub struct Turn(#[expect(dead_code, reason = "held, not read")] Arc<OwnedSemaphorePermit>);

impl Passwords {
    #[must_use]
    pub fn new(entropy: Arc<dyn Entropy>) -> Self {
        Self {
            entropy,
            turns: Arc::new(Semaphore::new(TURNS_MAX)),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
        }
    }

    /// Waits for the right to compute.
    ///
    /// # Errors
    /// [`PasswordError::Busy`] when too many wait already.
    pub async fn turn(&self) -> Result<Turn, PasswordError> {
        let _place = self.waiting.try_acquire().map_err(|_| PasswordError::Busy)?;
        let permit =
            Arc::clone(&self.turns).acquire_owned().await.map_err(|_| PasswordError::Busy)?;
        Ok(Turn(Arc::new(permit)))
    }

    /// The hash to keep for a new password, as a PHC string with a salt of its own.
    ///
    /// # Errors
    /// When the password is empty or too long, or too many are hashed at once.
    pub async fn hash(&self, password: Zeroizing<String>) -> Result<String, PasswordError> {
        let turn = self.turn().await?;
        let mut salt = [0_u8; 16];
        self.entropy.fill(&mut salt);
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            hash_now(&password, &salt)
        })
        .await
        .unwrap_or(Err(PasswordError::Hash))
    }
}

impl Turn {
    /// Whether the password is the one of this hash. Without a hash (no such account) it costs the same and is
    /// false.
    pub async fn verify(&self, password: Zeroizing<String>, hash: Option<String>) -> bool {
        let turn = self.clone();
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            verify_now(&password, hash.as_deref())
        })
        .await
        .unwrap_or(false)
    }
}

fn argon2() -> Result<Argon2<'static>, PasswordError> {
    let params = Params::new(MEMORY_KIB, PASSES, LANES, None).map_err(|_| PasswordError::Hash)?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

fn hash_now(password: &str, salt: &[u8]) -> Result<String, PasswordError> {
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        return Err(PasswordError::Length);
    }
    let hash: PasswordHash = argon2()?
        .hash_password_with_salt(password.as_bytes(), salt)
        .map_err(|_| PasswordError::Hash)?;
    Ok(hash.to_string())
}

fn verify_now(password: &str, hash: Option<&str>) -> bool {
    let known = hash.and_then(|hash| PasswordHash::new(hash).ok());
    let is_known = known.is_some();
    let Some(hash) = known.or_else(|| PasswordHash::new(NOBODY).ok()) else { return false };
    // The parameters are those of the hash, so that older ones still verify.
    let is_right = Argon2::default().verify_password(password.as_bytes(), &hash).is_ok();
    is_known && is_right && password.len() <= PASSWORD_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use argon2::Params;
    use argon2::password_hash::phc::PasswordHash;
    use zeroize::Zeroizing;

    use super::{LANES, MEMORY_KIB, NOBODY, PASSES, PasswordError, Passwords, WAITING_MAX};
    use crate::entropy::SeededEntropy;

    fn secret(text: &str) -> Zeroizing<String> {
        Zeroizing::new(text.to_owned())
    }

    fn passwords() -> Passwords {
        Passwords::new(Arc::new(SeededEntropy::new(1)))
    }

    #[tokio::test]
    async fn a_password_verifies_against_its_own_hash_alone() {
        let passwords = passwords();
        let hash = passwords.hash(secret("correct horse")).await.unwrap();
        let again = passwords.hash(secret("correct horse")).await.unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert_ne!(hash, again, "each has a salt of its own");
        let turn = passwords.turn().await.unwrap();
        assert!(turn.verify(secret("correct horse"), Some(hash.clone())).await);
        assert!(!turn.verify(secret("Correct horse"), Some(hash)).await);
        assert!(!turn.verify(secret("correct horse"), None).await);
        assert!(!turn.verify(secret("correct horse"), Some("not a hash".to_owned())).await);
        assert!(!turn.verify(secret(""), None).await);
    }

    #[test]
    fn nobody_costs_what_somebody_costs() {
        let hash = PasswordHash::new(NOBODY).unwrap();
        let params = Params::try_from(&hash).unwrap();
        assert_eq!(
            (params.m_cost(), params.t_cost(), params.p_cost(), params.output_len()),
            (MEMORY_KIB, PASSES, LANES, Some(Params::DEFAULT_OUTPUT_LEN))
        );
    }

    #[tokio::test]
    async fn no_empty_and_no_endless_password_is_hashed() {
        let passwords = passwords();
        assert_eq!(passwords.hash(secret("")).await, Err(PasswordError::Length));
        assert_eq!(passwords.hash(secret(&"x".repeat(1025))).await, Err(PasswordError::Length));
    }

    #[tokio::test]
    async fn beyond_the_bound_sign_ins_are_turned_away() {
        let passwords = passwords();
        let _first = passwords.turn().await.unwrap();
        let _second = passwords.turn().await.unwrap();
        let waiting: Vec<_> = (0..WAITING_MAX)
            .map(|_| {
                let passwords = passwords.clone();
                tokio::spawn(async move { passwords.turn().await.map(|_| ()) })
            })
            .collect();
        // One yield lets a limited number of tasks run, not all of them.
        while passwords.waiting.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(passwords.turn().await.map(|_| ()), Err(PasswordError::Busy));
        for task in waiting {
            task.abort();
        }
    }
}
