//! The keys that live outside the database, and the keyed hashes made with them.
//!
//! Four purposes, four independent keys: attempt ids, content hashes, token ids, fingerprints (with a
//! version). They are made at the first start, in `<data_dir>/sendonce.keys`, readable by the owner
//! alone. The database keeps only a check value of each, so that a process with other keys refuses to
//! start instead of deriving other ids.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::entropy::Entropy;

/// One secret key of 32 bytes. Prints a fixed word.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Key([u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(secret)")
    }
}

impl Key {
    /// A new key.
    #[must_use]
    pub fn generate(entropy: &dyn Entropy) -> Self {
        let mut bytes = [0_u8; 32];
        entropy.fill(&mut bytes);
        Self(bytes)
    }

    /// HMAC-SHA-256 over the parts, each preceded by its length so that no two lists of parts collide.
    #[must_use]
    pub fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    /// HMAC-SHA-256 over exactly these bytes.
    #[must_use]
    pub fn mac_bytes(&self, bytes: &[u8]) -> [u8; 32] {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(bytes);
        mac.finalize().into_bytes().into()
    }
}

/// All keys of one installation.
#[derive(Debug, Clone)]
pub struct Keys {
    attempt: Key,
    content: Key,
    token: Key,
    fingerprint: Key,
    /// Stored beside each fingerprint, so that a key can be dropped later.
    pub fingerprint_version: u32,
    /// Keys of earlier versions. Without its key nobody can tell whose a fingerprint is: dropping one erases.
    older: BTreeMap<u32, Key>,
}

#[derive(Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    version: u32,
    attempt: String,
    content: String,
    token: String,
    fingerprint: String,
    fingerprint_version: u32,
    /// `version:key` of each earlier key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    older_fingerprints: Vec<String>,
}

/// Why the keys could not be had.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error(
        "cannot read or write the key file {path}: {source}; check its owner and the folder's rights"
    )]
    Io { path: String, source: std::io::Error },
    #[error(
        "the key file {path} is not complete; restore it from your backup, do not make a new one"
    )]
    Damaged { path: String },
}

impl Keys {
    /// New keys.
    #[must_use]
    pub fn generate(entropy: &dyn Entropy) -> Self {
        let key = || Key::generate(entropy);
        Self {
            attempt: key(),
            content: key(),
            token: key(),
            fingerprint: key(),
            fingerprint_version: 1,
            older: BTreeMap::new(),
        }
    }

    /// Reads the key file, or makes it when there is none; true when it was made.
    ///
    /// # Errors
    /// When the file cannot be read or written, or is damaged: it is never replaced.
    pub fn load_or_create(path: &Path, entropy: &dyn Entropy) -> Result<(Self, bool), KeyError> {
        match std::fs::read_to_string(path) {
            Ok(mut text) => {
                let keys = Self::parse(&text, path);
                text.zeroize();
                keys.map(|keys| (keys, false))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let keys = Self::generate(entropy);
                if keys.write(path)? {
                    Ok((keys, true))
                } else {
                    Self::load_or_create(path, entropy)
                }
            }
            Err(source) => Err(KeyError::Io { path: path.display().to_string(), source }),
        }
    }

    fn parse(text: &str, path: &Path) -> Result<Self, KeyError> {
        let damaged = || KeyError::Damaged { path: path.display().to_string() };
        let file: KeyFile = toml::from_str(text).map_err(|_| damaged())?;
        let key = |text: &str| unhex(text).map(Key).ok_or_else(damaged);
        Ok(Self {
            attempt: key(&file.attempt)?,
            content: key(&file.content)?,
            token: key(&file.token)?,
            fingerprint: key(&file.fingerprint)?,
            fingerprint_version: file.fingerprint_version,
            older: file
                .older_fingerprints
                .iter()
                .map(|line| {
                    let (version, text) = line.split_once(':').ok_or_else(damaged)?;
                    Ok((version.parse().map_err(|_| damaged())?, key(text)?))
                })
                .collect::<Result<_, KeyError>>()?,
        })
    }

    /// Writes the file for the owner alone; false when another process was first.
    fn write(&self, path: &Path) -> Result<bool, KeyError> {
        let beside = self.write_beside(path)?;
        let linked = std::fs::hard_link(&beside, path);
        let _ = std::fs::remove_file(&beside);
        match linked {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
            Err(source) => Err(KeyError::Io { path: path.display().to_string(), source }),
        }
    }

    /// Replaces the file at once and whole.
    ///
    /// # Errors
    /// When it cannot be written; then the old one stands.
    pub fn replace(&self, path: &Path) -> Result<(), KeyError> {
        let beside = self.write_beside(path)?;
        std::fs::rename(&beside, path).map_err(|source| {
            let _ = std::fs::remove_file(&beside);
            KeyError::Io { path: path.display().to_string(), source }
        })
    }

    /// Writes the file whole beside its place: nobody ever reads half a key file, and of two processes at
    /// their first start one wins.
    fn write_beside(&self, path: &Path) -> Result<PathBuf, KeyError> {
        use std::io::Write as _;
        let io = |source| KeyError::Io { path: path.display().to_string(), source };
        let file = KeyFile {
            version: 1,
            attempt: hex(&self.attempt.0),
            content: hex(&self.content.0),
            token: hex(&self.token.0),
            fingerprint: hex(&self.fingerprint.0),
            fingerprint_version: self.fingerprint_version,
            older_fingerprints: self
                .older
                .iter()
                .map(|(version, key)| format!("{version}:{}", hex(&key.0)))
                .collect(),
        };
        let mut text = toml::to_string(&file).unwrap_or_default();
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(io)?;
        }
        let beside = path.with_extension(format!("new-{}", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            options.mode(0o600);
        }
        let written = options.open(&beside).and_then(|mut out| {
            out.write_all(text.as_bytes())?;
            out.sync_all()
        });
        text.zeroize();
        written.map_err(io)?;
        Ok(beside)
    }

    /// A new key for fingerprints from here on; the one before it still tells whose the earlier ones are.
    pub fn rotate_fingerprint(&mut self, entropy: &dyn Entropy) {
        let before = std::mem::replace(&mut self.fingerprint, Key::generate(entropy));
        self.older.insert(self.fingerprint_version, before);
        self.fingerprint_version += 1;
    }

    /// Forgets the key of an earlier version; false when there is none of this version.
    pub fn drop_fingerprint(&mut self, version: u32) -> bool {
        self.older.remove(&version).is_some()
    }

    /// Versions whose keys are here, oldest first; the last one is in use.
    #[must_use]
    pub fn fingerprint_versions(&self) -> Vec<u32> {
        self.older.keys().copied().chain([self.fingerprint_version]).collect()
    }

    /// The id of an attempt: derived, so that the same event gets the same ids again after a restore.
    /// 32 characters, `0-9a-f`.
    #[must_use]
    pub fn attempt_id(&self, event_id: &str, number: u32) -> String {
        hex(&self.attempt.mac(&[event_id.as_bytes(), &number.to_be_bytes()])[..16])
    }

    /// The seed of the key that signs the log where the configuration names none: derived, so that every
    /// process with these keys has it.
    #[must_use]
    pub fn log_seed(&self) -> [u8; 32] {
        self.content.mac(&[b"sendonce log signing key", b"1"])
    }

    /// Keyed hash of parsed content, for recognising replays.
    #[must_use]
    pub fn content_hash(&self, parts: &[&[u8]]) -> String {
        hex(&self.content.mac(parts))
    }

    /// `token_id` = HMAC-SHA-256(token key, token_hash), the only form of a token that is kept.
    #[must_use]
    pub fn token_id(&self, token_hash: &str) -> String {
        hex(&self.token.mac_bytes(token_hash.as_bytes()))
    }

    /// Keyed hash of a canonical destination.
    #[must_use]
    pub fn fingerprint(&self, canonical_destination: &str) -> String {
        hex(&self.fingerprint.mac_bytes(canonical_destination.as_bytes()))
    }

    /// The shared secret of an operator's second factor: derived, so that the database holds none. 20 bytes,
    /// as RFC 4226 recommends.
    #[must_use]
    pub fn factor_secret(&self, user_id: &str, nonce: &str) -> zeroize::Zeroizing<Vec<u8>> {
        let mac = self.content.mac(&[b"second factor", user_id.as_bytes(), nonce.as_bytes()]);
        zeroize::Zeroizing::new(mac[..20].to_vec())
    }

    /// Keyed hashes of a canonical destination under every key that is here, the newest first.
    #[must_use]
    pub fn fingerprints(&self, canonical_destination: &str) -> Vec<String> {
        let older = self.older.values().rev();
        [&self.fingerprint]
            .into_iter()
            .chain(older)
            .map(|key| hex(&key.mac_bytes(canonical_destination.as_bytes())))
            .collect()
    }

    /// Whether a fingerprint, of whatever version, is that of this destination.
    #[must_use]
    pub fn is_fingerprint_of(&self, fingerprint: &str, canonical_destination: &str) -> bool {
        self.fingerprints(canonical_destination)
            .iter()
            .any(|ours| equal(ours.as_bytes(), fingerprint.as_bytes()))
    }

    /// Whether the digits of this text, separators left out, hold the number with this fingerprint, or an
    /// address stands in it in URL form: providers sometimes name a message after its recipient.
    #[must_use]
    pub fn names_destination(&self, text: &str, fingerprint: &str) -> bool {
        if fingerprint.is_empty() {
            // A restore lost it: nothing that could be anybody's address or number is kept.
            return crate::text::looks_like_personal_data(text);
        }
        let digits: String = text.chars().filter(char::is_ascii_digit).collect();
        let is_the_number = |part: &str| self.is_fingerprint_of(fingerprint, &format!("+{part}"));
        text.to_ascii_lowercase().contains("%40")
            || (7..=15_usize).any(|length| {
                (0..=digits.len().saturating_sub(length))
                    .filter_map(|from| digits.get(from..from + length))
                    .any(is_the_number)
            })
    }

    /// Name and check value of each key: what the database registers at the first start.
    #[must_use]
    pub fn checks(&self) -> Vec<(String, String)> {
        let check = |key: &Key| hex(&key.mac(&[b"sendonce key check"])[..8]);
        let mut checks = vec![
            ("attempt".to_owned(), check(&self.attempt)),
            ("content".to_owned(), check(&self.content)),
            ("token".to_owned(), check(&self.token)),
            (format!("fingerprint-{}", self.fingerprint_version), check(&self.fingerprint)),
        ];
        for (version, key) in &self.older {
            checks.push((format!("fingerprint-{version}"), check(key)));
        }
        checks
    }
}

/// Lowercase hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// 32 bytes from 64 lowercase hex digits.
#[must_use]
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0_u8; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        let pair = std::str::from_utf8(&digits[at * 2..at * 2 + 2]).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(bytes)
}

/// HMAC-SHA-256 with a shared secret, as lowercase hex: the signature of our generic protocols.
#[must_use]
pub fn sign(secret: &[u8], message: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
    mac.update(message);
    hex(&mac.finalize().into_bytes())
}

/// SHA-256 as lowercase hex.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    hex(&Sha256::digest(bytes))
}

/// Compares in time that depends on the length alone.
#[must_use]
pub fn equal(left: &[u8], right: &[u8]) -> bool {
    use subtle::ConstantTimeEq as _;
    left.ct_eq(right).into()
}

#[cfg(test)]
mod tests {
    use super::Keys;
    use crate::entropy::SeededEntropy;

    #[test]
    fn a_dropped_key_makes_its_fingerprints_nobodys_and_leaves_the_others() {
        let entropy = SeededEntropy::new(11);
        let path = std::env::temp_dir().join(format!("sendonce-keys-{}", std::process::id()));
        let (mut keys, is_new) = Keys::load_or_create(&path, &entropy).expect("makes a file");
        assert!(is_new);
        let (first, checks) = (keys.fingerprint("+12025550123"), keys.checks());
        keys.rotate_fingerprint(&entropy);
        keys.replace(&path).expect("writes");
        let (mut keys, is_new) = Keys::load_or_create(&path, &entropy).expect("reads");
        assert!(!is_new && keys.fingerprint_versions() == [1, 2]);
        assert_ne!(keys.fingerprint("+12025550123"), first);
        assert!(keys.is_fingerprint_of(&first, "+12025550123"), "by the earlier key");
        assert!(!keys.is_fingerprint_of(&first, "+12025550124"));
        assert!(checks.iter().all(|check| keys.checks().contains(check)), "known to the database");
        assert!(!keys.drop_fingerprint(2), "the one in use stays");
        assert!(keys.drop_fingerprint(1) && !keys.drop_fingerprint(1));
        keys.replace(&path).expect("writes");
        let (keys, _) = Keys::load_or_create(&path, &entropy).expect("reads");
        assert!(!keys.is_fingerprint_of(&first, "+12025550123"), "erased");
        assert_eq!(keys.attempt_id("ev-1", 1).len(), 32);
        let _ = std::fs::remove_file(&path);
    }
}
