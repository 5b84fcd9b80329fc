//! The keys with which heads are signed: from a file or a command, never from the database.

use std::process::Stdio;

use anyhow::Context as _;
use zeroize::{Zeroize as _, Zeroizing};

use super::note::Signer;
use crate::config::{Config, KeySource};
use crate::keys::Keys;

/// What a command may print: a key is 64 characters.
const OUTPUT_BYTES_MAX: usize = 1_024;

/// The key in force first, then the one that it follows, where that is still at hand.
#[derive(Debug)]
pub struct LogKeys {
    pub current: Signer,
    pub previous: Option<Signer>,
}

impl LogKeys {
    /// Reads the keys that the configuration names. Without any, the key is derived from the key file.
    ///
    /// # Errors
    /// When a key is no key, or a command gave none. The key itself is never repeated.
    pub fn load(config: &Config, keys: &Keys) -> anyhow::Result<Self> {
        let own = || signer(&Zeroizing::new(keys.log_seed()), "sendonce.keys");
        let evidence = &config.evidence;
        let current = match &evidence.key {
            None => own()?,
            Some(source) => read(source, "evidence.key")?,
        };
        let previous = match (&evidence.previous_key, &evidence.key) {
            (Some(source), _) => Some(read(source, "evidence.previous_key")?),
            // The first key of one's own follows the derived one.
            (None, Some(_)) => Some(own()?),
            (None, None) => None,
        };
        Ok(Self { current, previous })
    }
}

fn signer(seed: &Zeroizing<[u8; 32]>, name: &str) -> anyhow::Result<Signer> {
    Signer::from_seed(seed).with_context(|| format!("{name}: this is no Ed25519 key"))
}

fn read(source: &KeySource, name: &str) -> anyhow::Result<Signer> {
    let text = match source {
        KeySource::Text(secret) => Zeroizing::new(secret.expose().to_owned()),
        KeySource::Command(words) => run(words).with_context(|| format!("{name}_command"))?,
    };
    let seed = crate::keys::unhex(text.trim())
        .with_context(|| format!("{name}: expected the seed of an Ed25519 key, 64 hex digits"))?;
    signer(&Zeroizing::new(seed), name)
}

/// Runs a command without a shell. Its standard error stays ours, so that it can say what is wrong.
fn run(words: &[String]) -> anyhow::Result<Zeroizing<String>> {
    let (program, arguments) = words.split_first().context("there is no command")?;
    let mut output = std::process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("the command could not be started")?;
    let is_good = output.status.success() && output.stdout.len() <= OUTPUT_BYTES_MAX;
    let text = std::str::from_utf8(&output.stdout).map(|text| Zeroizing::new(text.to_owned()));
    output.stdout.zeroize();
    anyhow::ensure!(is_good, "the command failed, or printed more than a key");
    text.context("the command printed no text")
}
