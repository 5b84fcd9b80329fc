//! The sealer: gives facts their places in the log, signs the heads, and writes them outside the database.
//!
//! It works under a duty, so one process at a time seals. What it writes outside follows the database: a
//! process that died in between, or another one that took over, writes what is missing at its next pass.
//! It never writes over a head that is ahead of the database: then rows are missing, and that must stay visible.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::keys::LogKeys;
use super::note::{self, Checkpoint, Signer, VerifierKey};
use super::outside::{Kept, Outside};
use super::tree::TILE_WIDTH;
use crate::duty::Pass;
use crate::store::{Error, Hold, KeptCheckpoint, LOG_ROWS_MAX, Store};

/// Seals what waits.
#[derive(Debug)]
pub struct Sealer {
    store: Arc<dyn Store>,
    keys: LogKeys,
    outside: Outside,
    /// How a new log is called.
    name: String,
    // Once: the log is open, our key is the one in force, and its first head is signed.
    is_open: AtomicBool,
}

impl Sealer {
    #[must_use]
    pub const fn new(store: Arc<dyn Store>, keys: LogKeys, outside: Outside, name: String) -> Self {
        Self { store, keys, outside, name, is_open: AtomicBool::new(false) }
    }

    /// The folder that it writes.
    #[must_use]
    pub const fn outside(&self) -> &Outside {
        &self.outside
    }

    /// The key in force, for what else the log signs.
    #[must_use]
    pub const fn signer(&self) -> &Signer {
        &self.keys.current
    }

    /// The public keys that the configuration names, as keys of this log.
    #[must_use]
    pub fn own_keys(&self, origin: &str) -> Vec<VerifierKey> {
        let previous = self.keys.previous.as_ref();
        std::iter::once(&self.keys.current)
            .chain(previous)
            .map(|key| key.verifier(origin))
            .collect()
    }

    /// One pass: at most [`LOG_ROWS_MAX`] facts.
    ///
    /// # Errors
    /// The store's; [`Error::OtherKeys`] where the log was signed with a key that is not at hand.
    pub async fn pass(&self, hold: Hold) -> Result<Pass, Error> {
        let both = self.open(hold).await?;
        let signers = || {
            let previous = self.keys.previous.as_ref();
            std::iter::once(&self.keys.current).chain(previous)
        };
        let sign = |head: &Checkpoint| {
            let count = if both { 2 } else { 1 };
            let signers: Vec<&Signer> = signers().take(count).collect();
            note::sign(&head.origin, &head.text(), &signers)
        };
        let sealed = self.store.seal(hold, LOG_ROWS_MAX, &sign).await?;
        let more = sealed.as_ref().is_some_and(|sealed| sealed.more);
        if let Err(error) = self.write_outside().await? {
            metrics::counter!("sendonce_log_outside_failures_total").increment(1);
            tracing::error!(%error, folder = %self.outside.folder().display(),
                "signed heads could not be written outside the database; check the folder");
        }
        Ok(if more { Pass::More } else { Pass::Done })
    }

    /// Seals until nothing waits: what an orderly stop does.
    ///
    /// # Errors
    /// As [`Sealer::pass`].
    pub async fn drain(&self, hold: Hold) -> Result<(), Error> {
        while self.pass(hold).await? == Pass::More {}
        Ok(())
    }

    /// Opens the log and looks whether our key is the one in force; registers it where it may follow. True:
    /// the next head is the first one after a change of keys, so it is signed by both.
    async fn open(&self, hold: Hold) -> Result<bool, Error> {
        if self.is_open.load(Ordering::Acquire) {
            return Ok(false);
        }
        let origin = self.store.open_log(&self.name).await?;
        let ours = self.keys.current.verifier(&origin).to_string();
        let before = self.keys.previous.as_ref().map(|key| key.verifier(&origin).to_string());
        let registered = self.store.log_keys().await?;
        let both = match registered.last() {
            None => {
                self.store.add_log_key(hold, &ours).await?;
                false
            }
            Some(last) if last.vkey == ours => {
                let signed = self.store.checkpoint_from(last.from_size + 1).await?;
                registered.len() > 1 && signed.is_none()
            }
            Some(last) if Some(&last.vkey) == before.as_ref() => {
                self.store.add_log_key(hold, &ours).await?;
                tracing::info!(
                    "a new key signs the log; its first head is signed by the one before, too"
                );
                true
            }
            Some(_) => return Err(Error::OtherKeys { name: "log".to_owned() }),
        };
        self.is_open.store(!both, Ordering::Release);
        Ok(both)
    }

    /// The outer result is the store's, the inner one the folder's.
    async fn write_outside(&self) -> Result<io::Result<()>, Error> {
        let head = self.store.log_head().await?;
        let was = match self.outside.size() {
            Ok(size) => size,
            Err(error) => return Ok(Err(error)),
        };
        if head.size == was {
            return Ok(Ok(()));
        }
        if head.size < was {
            return Ok(Err(io::Error::other(
                "the database has fewer sealed facts than its newest signed head: run `sendonce audit verify`",
            )));
        }
        if let Err(error) = self.outside.make() {
            return Ok(Err(error));
        }
        let mut level = 0;
        while head.size >> (8 * level) > 0 {
            let (from, to) = (was >> (8 * level), head.size >> (8 * level));
            if from < to {
                for index in from / TILE_WIDTH..=(to - 1) / TILE_WIDTH {
                    let hashes = self.store.tile((level, index)).await?;
                    let width = (to - index * TILE_WIDTH).min(TILE_WIDTH);
                    let width = usize::try_from(width).unwrap_or(0).min(hashes.len());
                    if let Err(error) = self.outside.put_tile((level, index), &hashes[..width]) {
                        return Ok(Err(error));
                    }
                }
            }
            level += 1;
        }
        let keys = self.store.log_keys().await?.into_iter().map(|key| key.vkey).collect::<Vec<_>>();
        if let Err(error) = self.outside.put_keys(&keys) {
            return Ok(Err(error));
        }
        self.write_heads(was).await
    }

    async fn write_heads(&self, was: u64) -> Result<io::Result<()>, Error> {
        let mut above = was;
        loop {
            let heads = self.store.checkpoints(above).await?;
            let Some(last) = heads.last() else { return Ok(Ok(())) };
            above = last.size;
            for head in heads {
                if let Err(error) = self.outside.put_checkpoint(&kept(head)) {
                    return Ok(Err(error));
                }
            }
        }
    }
}

fn kept(head: KeptCheckpoint) -> Kept {
    Kept { size: head.size, sealed_at: head.sealed_at.to_string(), note: head.note }
}

/// The keys of a list that can be read.
#[must_use]
pub fn readable(vkeys: impl IntoIterator<Item = String>) -> Vec<VerifierKey> {
    vkeys.into_iter().filter_map(|vkey| VerifierKey::parse(&vkey)).collect()
}
