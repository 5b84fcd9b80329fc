//! An evidence pack: one zip file that a stranger can check without us.
//!
//! Its bytes depend on what is asked for and on the log alone, never on who asks or when: files in a fixed
//! order with a fixed date, under the smallest signed head that covers the facts. So the same facts give the
//! same pack again, on the pages and on the command line.

use std::collections::BTreeSet;
use std::io::{Cursor, Write as _};
use std::sync::Arc;
use std::time::Duration;

use app::model::{Detail, Stamp};
use serde::{Deserialize, Serialize};
use zip::write::SimpleFileOptions;

use super::leaf::RawFact;
use super::note::{Checkpoint, Note, Signer};
use super::tree::{self, Tiles};
use super::{report, sheet};
use crate::clock::Clock;
use crate::store::{Error, KeptCheckpoint, LoggedFact, Selection, Store};

/// The format's name and version.
pub const FORMAT: &str = "sendonce-evidence/1";

/// How long a pack waits for the sealer.
pub const SEAL_WAIT: Duration = Duration::from_secs(5);
/// Between two looks whether the sealer has come.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What a pack was asked for, in its manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Asked {
    Record { id: String },
    Seller { seller_id: String },
    Time { from: Stamp, to: Stamp },
}

impl From<&Selection> for Asked {
    fn from(what: &Selection) -> Self {
        match what {
            Selection::Record(id) => Self::Record { id: id.clone() },
            Selection::Seller(id) => Self::Seller { seller_id: id.clone() },
            Selection::Time(from, to) => Self::Time { from: *from, to: *to },
        }
    }
}

/// A file of the pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedFile {
    pub name: String,
    pub bytes: u64,
    /// Lowercase hex.
    pub sha256: String,
}

/// `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: String,
    pub origin: String,
    pub checkpoint_size: u64,
    /// Standard base64.
    pub checkpoint_root: String,
    pub selection: Asked,
    pub facts: u64,
    /// Facts of the selection that were not sealed yet, and are not in the pack.
    pub unsealed: u64,
    /// The pack is full: later facts of the selection were left out.
    pub is_capped: bool,
    pub files: Vec<PackedFile>,
}

/// A pack in hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pack {
    pub bytes: Vec<u8>,
    /// Of the whole file, lowercase hex.
    pub sha256: String,
    pub facts: u64,
    pub unsealed: u64,
    pub is_capped: bool,
    pub checkpoint_size: u64,
}

/// Why there is no pack.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error(transparent)]
    Store(#[from] Error),
    /// Nothing of what was asked for is in the log.
    #[error("there is no sealed fact of this")]
    Nothing,
    #[error("the pack could not be written: {0}")]
    Write(String),
}

/// Waits until nothing of this selection waits for the sealer, at most [`SEAL_WAIT`].
///
/// # Errors
/// The store's.
pub async fn wait_for_seal(
    store: &dyn Store,
    what: &Selection,
    clock: &dyn Clock,
) -> Result<(), Error> {
    let until = clock.boot() + crate::clock::micros(SEAL_WAIT);
    while store.waiting(what).await? > 0 && clock.boot() < until {
        clock.sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// What the log keeps of an export.
#[must_use]
pub fn export_detail(what: &Selection, pack: &Pack) -> Detail {
    let detail = Detail::default()
        .code("what", "export")
        .code("sha256", &pack.sha256)
        .number("facts", i64::try_from(pack.facts).unwrap_or(i64::MAX))
        .number("log_size", i64::try_from(pack.checkpoint_size).unwrap_or(i64::MAX));
    match what {
        Selection::Record(id) => detail.code("record", id),
        Selection::Seller(seller) => detail.code("seller", seller),
        Selection::Time(from, to) => {
            detail.number("after", from.micros()).number("before", to.micros())
        }
    }
}

/// Makes a pack of at most `facts_max` facts.
///
/// # Errors
/// [`PackError`].
pub async fn make(
    store: &dyn Store,
    signer: &Arc<super::sealer::Sealer>,
    what: &Selection,
    facts_max: usize,
) -> Result<Pack, PackError> {
    let (facts, is_capped) = gather(store, what, facts_max).await?;
    let Some(last) = facts.last() else { return Err(PackError::Nothing) };
    let head = store.checkpoint_from(last.index + 1).await?.ok_or(PackError::Nothing)?;
    let unsealed = store.waiting(what).await?;
    let parsed = Note::parse(&head.note).and_then(|note| Checkpoint::parse(&note.text));
    let checkpoint = parsed.ok_or(PackError::Nothing)?;
    let tiles = load(store, &facts, checkpoint.size).await?;
    let vkeys = store.log_keys().await?.into_iter().filter(|key| key.from_size < head.size);
    let source = Source {
        asked: what.into(),
        keys: vkeys.map(|key| key.vkey).collect(),
        unsealed,
        is_capped,
        head,
        checkpoint,
        tiles,
        facts,
    };
    let signer = Arc::clone(signer);
    tokio::task::spawn_blocking(move || source.write(signer.signer()))
        .await
        .map_err(|error| PackError::Write(error.to_string()))?
}

async fn gather(
    store: &dyn Store,
    what: &Selection,
    facts_max: usize,
) -> Result<(Vec<LoggedFact>, bool), Error> {
    let mut facts: Vec<LoggedFact> = Vec::new();
    loop {
        let next = store.selected(what, facts.last().map(|fact| fact.index)).await?;
        if next.is_empty() {
            return Ok((facts, false));
        }
        facts.extend(next);
        if facts.len() > facts_max {
            facts.truncate(facts_max);
            return Ok((facts, true));
        }
    }
}

async fn load(store: &dyn Store, facts: &[LoggedFact], size: u64) -> Result<Tiles, Error> {
    let mut tiles = Tiles::default();
    let needs: BTreeSet<_> =
        facts.iter().flat_map(|fact| tree::inclusion_needs(fact.index, size)).collect();
    for id in needs {
        tiles.put(id, store.tile(id).await?);
    }
    Ok(tiles)
}

/// Everything that the files are made of.
struct Source {
    asked: Asked,
    keys: Vec<String>,
    unsealed: u64,
    is_capped: bool,
    head: KeptCheckpoint,
    checkpoint: Checkpoint,
    tiles: Tiles,
    facts: Vec<LoggedFact>,
}

impl Source {
    fn write(self, signer: &Signer) -> Result<Pack, PackError> {
        let broken = |error: &dyn std::fmt::Display| PackError::Write(error.to_string());
        let mut files: Vec<(String, Vec<u8>)> = vec![
            ("README.txt".to_owned(), README.as_bytes().to_vec()),
            ("checkpoint".to_owned(), self.head.note.clone().into_bytes()),
            (
                "keys.txt".to_owned(),
                self.keys.iter().map(|key| format!("{key}\n")).collect::<String>().into_bytes(),
            ),
            ("facts.ndjson".to_owned(), self.lines().map_err(|error| broken(&error))?),
            ("places.txt".to_owned(), self.places().into_bytes()),
            ("facts.csv".to_owned(), sheet::csv(&self.facts).map_err(|error| broken(&error))?),
            (
                "report.html".to_owned(),
                report::html(&self.facts, &self.asked, &self.checkpoint, self.is_capped)
                    .into_bytes(),
            ),
        ];
        for fact in &self.facts {
            let proof = self.proof(fact).ok_or_else(|| broken(&"a tile of the log is missing"))?;
            files.push((proof_name(fact.index), proof.into_bytes()));
        }
        let manifest = Manifest {
            format: FORMAT.to_owned(),
            origin: self.checkpoint.origin.clone(),
            checkpoint_size: self.checkpoint.size,
            checkpoint_root: tree::encode(&self.checkpoint.root),
            selection: self.asked.clone(),
            facts: self.facts.len() as u64,
            unsealed: self.unsealed,
            is_capped: self.is_capped,
            files: files
                .iter()
                .map(|(name, bytes)| PackedFile {
                    name: name.clone(),
                    bytes: bytes.len() as u64,
                    sha256: crate::keys::sha256(bytes),
                })
                .collect(),
        };
        let mut text = serde_json::to_string_pretty(&manifest).map_err(|error| broken(&error))?;
        text.push('\n');
        let statement = statement(&self.checkpoint.origin, self.checkpoint.size, text.as_bytes());
        let signed = super::note::sign(&self.checkpoint.origin, &statement, &[signer]);
        files.push(("manifest.json".to_owned(), text.into_bytes()));
        files.push(("manifest.note".to_owned(), signed.into_bytes()));
        let bytes = zipped(&files).map_err(|error| broken(&error))?;
        Ok(Pack {
            sha256: crate::keys::sha256(&bytes),
            bytes,
            facts: self.facts.len() as u64,
            unsealed: self.unsealed,
            is_capped: self.is_capped,
            checkpoint_size: self.checkpoint.size,
        })
    }

    fn lines(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut out = Vec::new();
        for fact in &self.facts {
            serde_json::to_writer(&mut out, &fact.fact)?;
            out.push(b'\n');
        }
        Ok(out)
    }

    fn places(&self) -> String {
        self.facts
            .iter()
            .map(|fact| {
                let hash = RawFact::from(&fact.fact).hash();
                format!("{} {}\n", fact.index, tree::encode(&hash))
            })
            .collect()
    }

    fn proof(&self, fact: &LoggedFact) -> Option<String> {
        let path = tree::inclusion(fact.index, self.checkpoint.size, &self.tiles)?;
        let lines: String = path.iter().map(|hash| format!("{}\n", tree::encode(hash))).collect();
        Some(format!("c2sp.org/tlog-proof@v1\nindex {}\n{lines}\n{}", fact.index, self.head.note))
    }
}

/// The name of a place's proof.
#[must_use]
pub fn proof_name(index: u64) -> String {
    format!("proofs/{index:012}.tlog-proof")
}

/// What the log signs about a manifest: its format, whose it is, under which head, and its hash.
#[must_use]
pub fn statement(origin: &str, size: u64, manifest: &[u8]) -> String {
    format!("{FORMAT}\n{origin}\n{size}\n{}\n", crate::keys::sha256(manifest))
}

fn zipped(files: &[(String, Vec<u8>)]) -> zip::result::ZipResult<Vec<u8>> {
    // The date of the format's beginning: a real one would change the bytes.
    let options = SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Deflated)
        .last_modified_time(zip::DateTime::default())
        .unix_permissions(0o644);
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in files {
        zip.start_file(name.as_str(), options)?;
        zip.write_all(bytes)?;
    }
    Ok(zip.finish()?.into_inner())
}

const README: &str = include_str!("readme.txt");
