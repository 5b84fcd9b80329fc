//! Signed notes and checkpoints (C2SP signed-note and tlog-checkpoint), with Ed25519.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::tree::{self, Hash};

/// The signature type of plain Ed25519.
const ED25519_TYPE: u8 = 1;

/// Signatures of one note that are looked at.
const SIGNATURES_MAX: usize = 32;

/// The largest note that is read.
pub const NOTE_BYTES_MAX: usize = 64 * 1024;

/// A public key with the name under which it signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierKey {
    pub name: String,
    pub id: u32,
    key: [u8; 32],
}

impl VerifierKey {
    #[must_use]
    pub fn new(name: &str, key: [u8; 32]) -> Self {
        Self { name: name.to_owned(), id: key_id(name, &key), key }
    }

    /// Reads `<name>+<id>+<base64>`. None: no Ed25519 key, or its id is not its own.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, rest) = text.trim().split_once('+')?;
        let (id, key) = rest.split_once('+')?;
        let id = u32::from_str_radix(id, 16).ok()?;
        let bytes = STANDARD.decode(key).ok()?;
        let (kind, key) = bytes.split_first()?;
        let key: [u8; 32] = key.try_into().ok()?;
        let found = Self::new(name, key);
        (*kind == ED25519_TYPE && !name.is_empty() && found.id == id).then_some(found)
    }

    fn has_signed(&self, text: &str, signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.key).verify(text.as_bytes(), signature).is_ok()
    }
}

impl std::fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut bytes = vec![ED25519_TYPE];
        bytes.extend_from_slice(&self.key);
        write!(f, "{}+{:08x}+{}", self.name, self.id, STANDARD.encode(bytes))
    }
}

fn key_id(name: &str, key: &[u8; 32]) -> u32 {
    let mut hash = Sha256::new();
    hash.update(name.as_bytes());
    hash.update([b'\n', ED25519_TYPE]);
    hash.update(key);
    let hash: Hash = hash.finalize().into();
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
}

/// Whether this may be the name of a key: no spaces, no plus sign, nothing unprintable.
#[must_use]
pub fn is_key_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && !name.chars().any(|c| c.is_whitespace() || c.is_control() || c == '+')
}

/// A private key.
pub struct Signer(Ed25519KeyPair);

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer(secret)")
    }
}

impl Signer {
    /// From a seed of RFC 8032. None only for a library that refuses every seed.
    #[must_use]
    pub fn from_seed(seed: &Zeroizing<[u8; 32]>) -> Option<Self> {
        Ed25519KeyPair::from_seed_unchecked(seed.as_slice()).ok().map(Self)
    }

    /// Its public key, under this name.
    #[must_use]
    pub fn verifier(&self, name: &str) -> VerifierKey {
        let mut key = [0_u8; 32];
        key.copy_from_slice(self.0.public_key().as_ref());
        VerifierKey::new(name, key)
    }

    /// The line that signs this text, which ends with a line break.
    #[must_use]
    pub fn line(&self, name: &str, text: &str) -> String {
        let mut bytes = self.verifier(name).id.to_be_bytes().to_vec();
        bytes.extend_from_slice(self.0.sign(text.as_bytes()).as_ref());
        format!("\u{2014} {name} {}\n", STANDARD.encode(bytes))
    }
}

/// Signs a text with each of these keys, in their order.
#[must_use]
pub fn sign(name: &str, text: &str, signers: &[&Signer]) -> String {
    let lines: String = signers.iter().map(|signer| signer.line(name, text)).collect();
    format!("{text}\n{lines}")
}

/// One signature of a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    pub name: String,
    pub id: u32,
    bytes: Vec<u8>,
}

/// A note, parsed; nothing is verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// With its last line break.
    pub text: String,
    pub signatures: Vec<Signature>,
}

/// What the trusted keys say of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signed {
    /// Every signature of a known key holds, and there is one.
    Yes,
    /// A known key is named, and the signature is not of this text.
    Broken,
    /// No known key has signed.
    ByOthers,
}

impl Note {
    /// None: this is no signed note.
    #[must_use]
    pub fn parse(note: &str) -> Option<Self> {
        if note.len() > NOTE_BYTES_MAX || note.chars().any(|c| c.is_ascii_control() && c != '\n') {
            return None;
        }
        let at = note.rfind("\n\n")?;
        let (text, lines) = (&note[..=at], &note[at + 2..]);
        let mut signatures = Vec::new();
        for line in lines.strip_suffix('\n')?.split('\n') {
            let (name, bytes) = line.strip_prefix("\u{2014} ")?.split_once(' ')?;
            let bytes = STANDARD.decode(bytes).ok()?;
            let (id, bytes) = bytes.split_first_chunk::<4>()?;
            if signatures.len() >= SIGNATURES_MAX || !is_key_name(name) {
                return None;
            }
            signatures.push(Signature {
                name: name.to_owned(),
                id: u32::from_be_bytes(*id),
                bytes: bytes.to_vec(),
            });
        }
        Some(Self { text: text.to_owned(), signatures })
    }

    /// Whether these keys have signed it.
    #[must_use]
    pub fn signed_by(&self, keys: &[VerifierKey]) -> Signed {
        let mut signed = Signed::ByOthers;
        for signature in &self.signatures {
            let known = keys.iter().find(|k| k.id == signature.id && k.name == signature.name);
            match known {
                Some(key) if key.has_signed(&self.text, &signature.bytes) => signed = Signed::Yes,
                Some(_) => return Signed::Broken,
                None => {}
            }
        }
        signed
    }
}

/// The text of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    pub origin: String,
    pub size: u64,
    pub root: Hash,
}

impl Checkpoint {
    /// The three lines that are signed.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.origin, self.size, tree::encode(&self.root))
    }

    /// None: not the text of a checkpoint.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        let (origin, size, root) = (lines.next()?, lines.next()?, lines.next()?);
        let number: u64 = size.parse().ok()?;
        if origin.is_empty() || number.to_string() != size || lines.any(str::is_empty) {
            return None;
        }
        Some(Self { origin: origin.to_owned(), size: number, root: tree::decode(root)? })
    }
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    fn signer(seed: u8) -> Signer {
        Signer::from_seed(&Zeroizing::new([seed; 32])).expect("a key")
    }

    #[test]
    fn the_example_of_the_specification_verifies() {
        let key = VerifierKey::parse(
            "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        )
        .expect("a key");
        let note = Note::parse(
            "This is an example message.\n\n\u{2014} example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n",
        )
        .expect("a note");
        assert_eq!(note.signed_by(&[key]), Signed::Yes);
    }

    #[test]
    fn a_changed_text_an_unknown_key_and_a_broken_signature_are_told_apart() {
        let (ours, other) = (signer(1), signer(2));
        let checkpoint = Checkpoint { origin: "log.example/a".to_owned(), size: 7, root: [9; 32] };
        let note = sign("log.example/a", &checkpoint.text(), &[&ours]);
        let parsed = Note::parse(&note).expect("a note");
        let key = ours.verifier("log.example/a");
        assert_eq!(VerifierKey::parse(&key.to_string()), Some(key.clone()));
        assert_eq!(parsed.signed_by(std::slice::from_ref(&key)), Signed::Yes);
        assert_eq!(Checkpoint::parse(&parsed.text), Some(checkpoint));
        assert_eq!(parsed.signed_by(&[other.verifier("log.example/a")]), Signed::ByOthers);
        let forged = Note::parse(&note.replace("\n7\n", "\n8\n")).expect("a note");
        assert_eq!(forged.signed_by(std::slice::from_ref(&key)), Signed::Broken);
        let both = sign("log.example/a", &parsed.text, &[&ours, &other]);
        let both = Note::parse(&both).expect("a note");
        assert_eq!(both.signatures.len(), 2);
        assert_eq!(both.signed_by(&[other.verifier("log.example/a")]), Signed::Yes);
    }

    #[test]
    fn what_is_no_note_and_no_checkpoint_is_refused() {
        for text in [
            "",
            "a\n",
            "a\n\n",
            "a\n\nb\n",
            "a\n\n\u{2014} n AAAA\n",
            "a\u{7}\n\n\u{2014} n AAAAAA==\n",
        ] {
            assert_eq!(Note::parse(text), None, "{text:?}");
        }
        for text in ["", "o\n1\n", "o\n01\nx\n", "\n1\nAAAA\n", "o\n-1\nAAAA\n"] {
            assert_eq!(Checkpoint::parse(text), None, "{text:?}");
        }
    }
}
