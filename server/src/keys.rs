//! The keys that live outside the database, and the keyed hashes made with them.
//!
//! Four purposes, four independent keys: attempt ids, content hashes, token ids, fingerprints (with a
//! version). They are made at the first start, in `<data_dir>/sendonce.keys`, readable by the owner
//! alone. The database keeps only a check value of each, so that a process with other keys refuses to
//! start instead of deriving other ids.

use std::fmt::Write as _;
use std::path::Path;

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
        })
    }

    /// Writes the file for the owner alone; false when another process was first.
    fn write(&self, path: &Path) -> Result<bool, KeyError> {
        use std::io::Write as _;
        let io = |source| KeyError::Io { path: path.display().to_string(), source };
        let file = KeyFile {
            version: 1,
            attempt: hex(&self.attempt.0),
            content: hex(&self.content.0),
            token: hex(&self.token.0),
            fingerprint: hex(&self.fingerprint.0),
            fingerprint_version: self.fingerprint_version,
        };
        let mut text = toml::to_string(&file).unwrap_or_default();
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(io)?;
        }
        // Written whole beside the place, then linked into it: nobody ever reads half a key file,
        // and of two processes at their first start one wins.
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
        let linked = std::fs::hard_link(&beside, path);
        let _ = std::fs::remove_file(&beside);
        match linked {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
            Err(source) => Err(io(source)),
        }
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

    /// The hashes of a canonical destination under every key version that is still here.
    #[must_use]
    pub fn fingerprints(&self, canonical_destination: &str) -> Vec<String> {
        vec![self.fingerprint(canonical_destination)]
    }

    /// The shared secret of an operator's second factor: derived, so that the database holds none. 20 bytes,
    /// as RFC 4226 recommends.
    #[must_use]
    pub fn factor_secret(&self, user_id: &str, nonce: &str) -> zeroize::Zeroizing<Vec<u8>> {
        let mac = self.content.mac(&[b"second factor", user_id.as_bytes(), nonce.as_bytes()]);
        zeroize::Zeroizing::new(mac[..20].to_vec())
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
        let is_the_number = |part: &str| {
            equal(self.fingerprint(&format!("+{part}")).as_bytes(), fingerprint.as_bytes())
        };
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
        vec![
            ("attempt".to_owned(), check(&self.attempt)),
            ("content".to_owned(), check(&self.content)),
            ("token".to_owned(), check(&self.token)),
            (format!("fingerprint-{}", self.fingerprint_version), check(&self.fingerprint)),
        ]
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
