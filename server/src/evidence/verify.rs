//! Checks an evidence pack, offline: no database, no network, no configuration.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{Read as _, Seek};

use app::model::Fact;

use super::leaf::RawFact;
use super::note::{Checkpoint, Note, Signed, VerifierKey};
use super::pack::{FORMAT, Manifest, proof_name, statement};
use super::tree::{self, Hash};
use super::verdict::{Code, Findings};

/// One file of a pack, unpacked: a pack of a million facts has one of half this size.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Proof lines of a tree: more than any tree has levels.
const PROOF_LINES_MAX: usize = 64;

/// What the check came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct PackReport {
    pub origin: String,
    pub checkpoint_size: u64,
    /// Facts in the pack.
    pub facts: u64,
    pub unsealed: u64,
    pub is_capped: bool,
    /// The keys by which the head was checked.
    pub keys: Vec<String>,
    /// The keys came with the pack: they say who signed only to whoever knows them from elsewhere.
    pub keys_are_of_the_pack: bool,
    #[serde(flatten)]
    pub findings: Findings,
}

/// This is no evidence pack at all.
#[derive(Debug, thiserror::Error)]
#[error("this is no evidence pack: {0}")]
pub struct NoPack(String);

/// Checks a pack. With `keys` only these are trusted, else those in the pack.
///
/// # Errors
/// [`NoPack`] when it is no zip file. Whatever is wrong with a pack is a finding.
pub fn verify(file: impl std::io::Read + Seek, keys: &[VerifierKey]) -> Result<PackReport, NoPack> {
    let mut files = Files::open(file)?;
    let mut report = PackReport::default();
    let checkpoint = files.text("checkpoint", &mut report.findings).unwrap_or_default();
    let own = files.text("keys.txt", &mut report.findings).unwrap_or_default();
    report.keys_are_of_the_pack = keys.is_empty();
    let trusted: Vec<VerifierKey> = if keys.is_empty() {
        own.lines().filter_map(VerifierKey::parse).collect()
    } else {
        keys.to_vec()
    };
    report.keys = trusted.iter().map(ToString::to_string).collect();
    let head = signed_head(&checkpoint, &trusted, &mut report.findings);
    let manifest = manifest(&mut files, &trusted, &mut report.findings);
    if let Some(head) = &head {
        report.origin.clone_from(&head.origin);
        report.checkpoint_size = head.size;
    }
    if let Some(manifest) = &manifest {
        report.unsealed = manifest.unsealed;
        report.is_capped = manifest.is_capped;
    }
    let places = places(&mut files, &mut report.findings);
    let lines = lines(&mut files, &mut report.findings);
    report.facts = lines.len() as u64;
    if let Some(head) = &head {
        for (index, hash) in &places {
            proof(&mut files, head, *index, hash, &checkpoint, &mut report.findings);
        }
    }
    let is_same = compare(&lines, &places, manifest.as_ref(), &mut report.findings);
    sequences(&lines, manifest.as_ref(), &mut report.findings);
    if let (Some(manifest), Some(head)) = (&manifest, &head) {
        against_manifest(&mut files, manifest, head, is_same, &mut report.findings);
    }
    Ok(report)
}

/// The zip, read file by file.
struct Files<F>(zip::ZipArchive<F>);

impl<F: std::io::Read + Seek> Files<F> {
    fn open(file: F) -> Result<Self, NoPack> {
        zip::ZipArchive::new(file).map(Self).map_err(|error| NoPack(error.to_string()))
    }

    /// None: there is none, or it cannot be unpacked.
    fn bytes(&mut self, name: &str) -> Option<Vec<u8>> {
        let file = self.0.by_name(name).ok()?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
        (bytes.len() as u64 <= FILE_BYTES_MAX).then_some(bytes)
    }

    fn text(&mut self, name: &str, findings: &mut Findings) -> Option<String> {
        let Some(bytes) = self.bytes(name) else {
            findings.add(Code::MissingFile, None, format!("{name} is not in the pack"));
            return None;
        };
        let text = String::from_utf8(bytes).ok();
        if text.is_none() {
            findings.add(Code::ChangedFile, None, format!("{name} is no text"));
        }
        text
    }
}

fn signed_head(note: &str, trusted: &[VerifierKey], findings: &mut Findings) -> Option<Checkpoint> {
    if note.is_empty() {
        return None;
    }
    let parsed = Note::parse(note);
    let head = parsed.as_ref().and_then(|note| Checkpoint::parse(&note.text));
    let (Some(parsed), Some(head)) = (parsed, head) else {
        findings.add(Code::BrokenSignature, None, "the checkpoint is no signed head");
        return None;
    };
    trust(&parsed, trusted, "the checkpoint", findings);
    Some(head)
}

fn trust(note: &Note, trusted: &[VerifierKey], what: &str, findings: &mut Findings) {
    match note.signed_by(trusted) {
        Signed::Yes => {}
        Signed::Broken => {
            findings.add(
                Code::BrokenSignature,
                None,
                format!("the signature of {what} does not hold"),
            );
        }
        Signed::ByOthers => {
            findings.add(Code::WrongKey, None, format!("no trusted key has signed {what}"));
        }
    }
}

fn manifest<F: std::io::Read + Seek>(
    files: &mut Files<F>,
    trusted: &[VerifierKey],
    findings: &mut Findings,
) -> Option<Manifest> {
    let text = files.text("manifest.json", findings)?;
    let note = files.text("manifest.note", findings);
    let manifest: Option<Manifest> = serde_json::from_str(&text).ok();
    let Some(manifest) = manifest.filter(|manifest| manifest.format == FORMAT) else {
        findings.add(Code::ChangedFile, None, "manifest.json is no manifest of this format");
        return None;
    };
    match note.as_deref().map(Note::parse) {
        None => {}
        Some(None) => {
            findings.add(Code::BrokenSignature, None, "manifest.note is no signed note");
        }
        Some(Some(note)) => {
            trust(&note, trusted, "the manifest", findings);
            let meant = statement(&manifest.origin, manifest.checkpoint_size, text.as_bytes());
            if note.text != meant {
                findings.add(
                    Code::ChangedFile,
                    None,
                    "manifest.json is not the one that was signed",
                );
            }
        }
    }
    Some(manifest)
}

fn places<F: std::io::Read + Seek>(
    files: &mut Files<F>,
    findings: &mut Findings,
) -> Vec<(u64, Hash)> {
    let text = files.text("places.txt", findings).unwrap_or_default();
    let mut places: Vec<(u64, Hash)> = Vec::new();
    for line in text.lines() {
        let place = line
            .split_once(' ')
            .and_then(|(index, hash)| Some((index.parse::<u64>().ok()?, tree::decode(hash)?)));
        match place {
            Some(place) if places.last().is_none_or(|last| last.0 < place.0) => places.push(place),
            _ => findings.add(Code::ChangedFile, None, "places.txt holds a line that is no place"),
        }
    }
    places
}

/// One line of `facts.ndjson`.
struct Line {
    hash: Hash,
    fact: Option<Fact>,
}

fn lines<F: std::io::Read + Seek>(files: &mut Files<F>, findings: &mut Findings) -> Vec<Line> {
    let text = files.text("facts.ndjson", findings).unwrap_or_default();
    text.lines()
        .filter(|line| !line.is_empty())
        .map(|line| match serde_json::from_str::<Fact>(line) {
            Ok(fact) => Line { hash: RawFact::from(&fact).hash(), fact: Some(fact) },
            // Hashed as it is, it is like no leaf.
            Err(_) => Line { hash: tree::leaf_hash(line.as_bytes()), fact: None },
        })
        .collect()
}

fn proof<F: std::io::Read + Seek>(
    files: &mut Files<F>,
    head: &Checkpoint,
    index: u64,
    leaf: &Hash,
    checkpoint: &str,
    findings: &mut Findings,
) {
    let name = proof_name(index);
    let Some(text) = files.text(&name, findings) else { return };
    if index >= head.size {
        let text = format!("place {index} lies beyond the checkpoint, which covers {}", head.size);
        return findings.add(Code::OldCheckpoint, Some(index), text);
    }
    let Some((path, note)) = parse_proof(&text, index) else {
        return findings.add(
            Code::BrokenProof,
            Some(index),
            format!("{name} is no proof of its place"),
        );
    };
    if note != checkpoint {
        let other = Note::parse(note).and_then(|note| Checkpoint::parse(&note.text));
        match other {
            Some(other) if other.origin == head.origin && other.size > head.size => {
                let text = format!("{name} knows a newer checkpoint, of {} leaves", other.size);
                findings.add(Code::OldCheckpoint, Some(index), text);
            }
            Some(other) if other.size == head.size && other.root != head.root => {
                let text = format!("{name} was made under another tree of the same size");
                findings.add(Code::Fork, Some(index), text);
            }
            _ => findings.add(
                Code::BrokenProof,
                Some(index),
                format!("{name} has another checkpoint"),
            ),
        }
        return;
    }
    if tree::root_from(*leaf, index, head.size, &path) != Some(head.root) {
        let text = format!("{name} does not lead to the root of the checkpoint");
        findings.add(Code::BrokenProof, Some(index), text);
    }
}

fn parse_proof(text: &str, index: u64) -> Option<(Vec<Hash>, &str)> {
    let (head, note) = text.split_once("\n\n")?;
    let mut lines = head.split('\n');
    let is_right = lines.next() == Some("c2sp.org/tlog-proof@v1")
        && lines.next() == Some(format!("index {index}").as_str());
    let path: Vec<Hash> = lines.take(PROOF_LINES_MAX).map(tree::decode).collect::<Option<_>>()?;
    is_right.then_some((path, note))
}

/// The facts against their places. True: they are the same, in the same order.
fn compare(
    lines: &[Line],
    places: &[(u64, Hash)],
    manifest: Option<&Manifest>,
    findings: &mut Findings,
) -> bool {
    let expected = manifest.map_or(places.len() as u64, |m| m.facts.max(places.len() as u64));
    if lines.is_empty() && expected > 0 {
        findings.add(Code::AllMissing, None, format!("all {expected} facts are gone"));
        return false;
    }
    if lines.len() == places.len() && lines.iter().zip(places).all(|(l, p)| l.hash == p.1) {
        if expected > lines.len() as u64 {
            let text = format!("the manifest speaks of {expected} facts, {} are here", lines.len());
            findings.add(Code::NewestMissing, None, text);
            return false;
        }
        return true;
    }
    let mut open: HashMap<Hash, VecDeque<u64>> = HashMap::new();
    for (index, hash) in places {
        open.entry(*hash).or_default().push_back(*index);
    }
    let (mut extra, mut last, mut is_disordered) = (Vec::new(), None, false);
    for line in lines {
        match open.get_mut(&line.hash).and_then(VecDeque::pop_front) {
            None => extra.push(line),
            Some(index) => {
                is_disordered |= last.is_some_and(|last| index < last);
                last = Some(index);
            }
        }
    }
    let mut missing: Vec<u64> = open.into_values().flatten().collect();
    missing.sort_unstable();
    if is_disordered {
        findings.add(Code::Reordered, None, "the facts stand in another order than in the log");
    }
    let edited = extra.len().min(missing.len());
    for (at, line) in extra.iter().enumerate() {
        let name = line.fact.as_ref().map_or("a line that is no fact".to_owned(), |fact| {
            format!(
                "fact {} of {}",
                fact.seq,
                fact.id.as_deref().map_or("no record", |_| "its record")
            )
        });
        if at < edited {
            findings.add(
                Code::EditedFact,
                missing.get(at).copied(),
                format!("{name} is not what was sealed"),
            );
        } else {
            findings.add(Code::ForeignFact, None, format!("{name} is in no place of the log"));
        }
    }
    let gone = &missing[edited..];
    if !gone.is_empty() {
        let is_tail = extra.is_empty()
            && places.iter().rev().zip(gone.iter().rev()).all(|(place, gone)| place.0 == *gone);
        if is_tail {
            let text = format!("the newest {} facts are gone", gone.len());
            findings.add(Code::NewestMissing, gone.first().copied(), text);
        } else {
            for index in gone {
                findings.add(Code::MissingFact, Some(*index), "the fact of this place is gone");
            }
        }
    }
    false
}

/// Where whole records were asked for, each counts its facts from 1 without a gap.
fn sequences(lines: &[Line], manifest: Option<&Manifest>, findings: &mut Findings) {
    use super::pack::Asked;
    let is_whole = manifest.is_some_and(|manifest| {
        matches!(manifest.selection, Asked::Record { .. } | Asked::Seller { .. })
    });
    if !is_whole || !findings.is_clean() {
        return;
    }
    let mut last: BTreeMap<&str, u32> = BTreeMap::new();
    for fact in lines.iter().filter_map(|line| line.fact.as_ref()) {
        let Some(id) = fact.id.as_deref() else { continue };
        let before = last.insert(id, fact.seq).unwrap_or(0);
        if fact.seq != before + 1 {
            let text = format!("of one record fact {} follows fact {before}", fact.seq);
            findings.add(Code::MissingFact, None, text);
        }
    }
}

fn against_manifest<F: std::io::Read + Seek>(
    files: &mut Files<F>,
    manifest: &Manifest,
    head: &Checkpoint,
    is_same: bool,
    findings: &mut Findings,
) {
    if manifest.origin != head.origin {
        findings.add(Code::Fork, None, "the manifest speaks of another log");
    } else if manifest.checkpoint_size > head.size {
        let text = format!(
            "the manifest was made under a checkpoint of {} leaves, this one has {}",
            manifest.checkpoint_size, head.size
        );
        findings.add(Code::OldCheckpoint, None, text);
    } else if manifest.checkpoint_root != tree::encode(&head.root) {
        findings.add(Code::Fork, None, "the manifest was made under another tree");
    }
    for file in &manifest.files {
        let Some(bytes) = files.bytes(&file.name) else {
            // The proofs of places that are named are asked for by themselves.
            findings.add(Code::MissingFile, None, format!("{} is not in the pack", file.name));
            continue;
        };
        // What is wrong with the facts themselves is told line by line.
        let is_told = file.name == "facts.ndjson" && !is_same;
        if !is_told && crate::keys::sha256(&bytes) != file.sha256 {
            findings.add(Code::ChangedFile, None, format!("{} is not what was packed", file.name));
        }
    }
}
