//! Packs: made once and again, and in the hands of somebody who changes them.

use std::collections::BTreeMap;
use std::io::{Cursor, Read as _, Write as _};
use std::sync::Arc;

use app::model::Stamp;
use zeroize::Zeroizing;

use super::keys::LogKeys;
use super::note::{self, Checkpoint, Note, Signer};
use super::outside::Outside;
use super::pack::{self, Pack, PackError};
use super::sealer::Sealer;
use super::verdict::{Code, Side};
use super::verify::{PackReport, verify};
use crate::entropy::{Entropy as _, SystemEntropy};
use crate::store::Selection;
use crate::store::conformance::Bench;

fn signer(seed: u8) -> Signer {
    Signer::from_seed(&Zeroizing::new([seed; 32])).expect("a key")
}

/// A ledger with two sellers, a sealed log, and its sealer.
async fn sealed() -> (Bench, Arc<Sealer>, std::path::PathBuf) {
    let b = Bench::sqlite().await;
    let at = std::env::temp_dir().join(format!("sendonce-pack-{}", SystemEntropy.hex(8)));
    let keys = LogKeys { current: signer(1), previous: None };
    let outside = Outside::new(at.clone());
    let sealer = Sealer::new(Arc::clone(&b.store), keys, outside, "log.example/one".to_owned());
    for _ in 0..3 {
        b.admit_for("seller_1042", 90).await;
        b.admit_for("seller_7", 10).await;
        seal(&b, &sealer).await;
    }
    (b, Arc::new(sealer), at)
}

async fn seal(b: &Bench, sealer: &Sealer) {
    let hold = b.store.take_duty(crate::duty::SEAL, "one", 10_000_000).await;
    sealer.drain(hold.expect("asks").expect("is free")).await.expect("seals");
}

type Files = BTreeMap<String, String>;

fn unpacked(pack: &[u8]) -> Files {
    let mut zip = zip::ZipArchive::new(Cursor::new(pack)).expect("a zip");
    let names: Vec<String> =
        zip.file_names().map(|name| name.expect("a name").into_owned()).collect();
    names
        .into_iter()
        .map(|name| {
            let mut text = String::new();
            zip.by_name(&name).expect("is there").read_to_string(&mut text).expect("text");
            (name, text)
        })
        .collect()
}

fn packed(files: &Files) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in files {
        zip.start_file(name.as_str(), zip::write::SimpleFileOptions::default()).expect("starts");
        zip.write_all(text.as_bytes()).expect("writes");
    }
    zip.finish().expect("ends").into_inner()
}

/// The other verifier, which knows nothing of ours: whether integrity and completeness hold.
fn elsewhere(pack: &[u8]) -> (bool, bool) {
    let file = std::env::temp_dir().join(format!("sendonce-pack-{}.zip", SystemEntropy.hex(8)));
    std::fs::write(&file, pack).expect("writes");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/verify/verify_pack.py");
    let output = std::process::Command::new("python3")
        .arg(script)
        .arg(&file)
        .output()
        .expect("python3 is needed for the independent verifier: scripts/setup.sh test");
    let _ = std::fs::remove_file(&file);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let holds = |side: &str| text.lines().any(|line| line == format!("{side} holds"));
    let both = (holds("integrity"), holds("completeness"));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.is_empty(), "{errors}");
    assert_eq!(output.status.success(), both == (true, true), "{text}");
    both
}

fn checked(pack: &[u8]) -> PackReport {
    let report = verify(Cursor::new(pack), &[]).expect("a pack");
    let ours = (report.findings.holds(Side::Integrity), report.findings.holds(Side::Completeness));
    assert_eq!(ours, elsewhere(pack), "the two verifiers differ: {:?}", report.findings);
    report
}

async fn made(b: &Bench, sealer: &Arc<Sealer>, what: &Selection) -> Pack {
    pack::make(&*b.store, sealer, what, 1_000).await.expect("a pack")
}

#[tokio::test]
async fn a_pack_verifies_and_is_made_again_byte_for_byte() {
    let (b, sealer, at) = sealed().await;
    let record = b.store.record_by_event("ev-95").await.expect("reads").expect("is there");
    for what in [
        Selection::Record(record.id.clone()),
        Selection::Seller("seller_7".to_owned()),
        Selection::Time(Stamp::from_micros(0), Stamp::from_micros(4_000_000_000_000_000)),
    ] {
        let first = made(&b, &sealer, &what).await;
        let report = checked(&first.bytes);
        assert!(report.findings.is_clean(), "{what:?}: {:?}", report.findings);
        assert_eq!(report.facts, first.facts);
        if matches!(what, Selection::Time(..)) {
            continue;
        }
        // Other facts come, and the pack stays what it was.
        b.admit_for("seller_1042", 50).await;
        seal(&b, &sealer).await;
        assert_eq!(made(&b, &sealer, &what).await, first);
    }
    let nothing = pack::make(&*b.store, &sealer, &Selection::Seller("nobody".to_owned()), 9).await;
    assert!(matches!(nothing, Err(PackError::Nothing)));
    let _ = std::fs::remove_dir_all(at);
}

#[tokio::test]
async fn a_full_pack_says_so_and_still_verifies() {
    let (b, sealer, at) = sealed().await;
    let what = Selection::Seller("seller_1042".to_owned());
    let full = pack::make(&*b.store, &sealer, &what, 20).await.expect("a pack");
    assert_eq!((full.facts, full.is_capped), (20, true));
    let report = checked(&full.bytes);
    assert!(report.findings.is_clean() && report.is_capped, "{:?}", report.findings);
    assert!(unpacked(&full.bytes)["report.html"].contains("This pack is full"));
    let _ = std::fs::remove_dir_all(at);
}

#[tokio::test]
async fn facts_that_wait_are_left_out_and_counted() {
    let (b, sealer, at) = sealed().await;
    let what = Selection::Seller("seller_7".to_owned());
    let before = made(&b, &sealer, &what).await;
    b.admit_for("seller_7", 2).await;
    let waiting = b.store.waiting(&what).await.expect("counts");
    let pack = made(&b, &sealer, &what).await;
    assert!(waiting >= 2);
    assert_eq!((pack.facts, pack.unsealed), (before.facts, waiting));
    let report = checked(&pack.bytes);
    assert!(report.findings.is_clean() && report.unsealed == waiting);
    let _ = std::fs::remove_dir_all(at);
}

#[tokio::test]
async fn every_kind_of_tampering_is_found_and_named() {
    let (b, sealer, at) = sealed().await;
    let pack = made(&b, &sealer, &Selection::Seller("seller_7".to_owned())).await;
    let files = unpacked(&pack.bytes);
    let with = |name: &str, text: String| {
        let mut changed = files.clone();
        changed.insert(name.to_owned(), text);
        checked(&packed(&changed))
    };
    let facts = &files["facts.ndjson"];
    let lines: Vec<&str> = facts.lines().collect();
    let joined = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let found = |report: &PackReport, code: Code| {
        assert!(report.findings.has(code), "{code:?} is not among {:?}", report.findings);
        assert!(!report.findings.holds(code.side()));
    };

    let edited = with("facts.ndjson", facts.replacen("\"actor\":\"", "\"actor\":\"x", 1));
    found(&edited, Code::EditedFact);
    assert!(edited.findings.holds(Side::Completeness));
    let edited = with("facts.ndjson", facts.replacen("\"seq\":1,", "\"seq\":1, \"more\":1,", 1));
    found(&edited, Code::ChangedFile);
    let middle = [&lines[..12], &lines[13..]].concat();
    let report = with("facts.ndjson", joined(&middle));
    found(&report, Code::MissingFact);
    assert!(report.findings.holds(Side::Integrity));
    let report = with("facts.ndjson", joined(&lines[..lines.len() - 2]));
    found(&report, Code::NewestMissing);
    assert!(report.findings.holds(Side::Integrity));
    let report = with("facts.ndjson", String::new());
    found(&report, Code::AllMissing);
    let mut moved = lines.clone();
    moved.swap(3, 20);
    let report = with("facts.ndjson", joined(&moved));
    found(&report, Code::Reordered);
    assert!(report.findings.holds(Side::Completeness));
    let mut more = lines.clone();
    more.push(lines[0]);
    found(&with("facts.ndjson", joined(&more)), Code::ForeignFact);
    let mut fewer = files.clone();
    fewer.retain(|name, _| name != "facts.csv");
    found(&checked(&packed(&fewer)), Code::MissingFile);
    found(
        &with("report.html", files["report.html"].replace("Evidence", "Proof")),
        Code::ChangedFile,
    );
    let _ = std::fs::remove_dir_all(at);
}

#[tokio::test]
async fn heads_that_are_not_the_logs_are_found() {
    let (b, sealer, at) = sealed().await;
    let pack = made(&b, &sealer, &Selection::Seller("seller_7".to_owned())).await;
    let files = unpacked(&pack.bytes);
    let parsed = Note::parse(&files["checkpoint"]).expect("a note");
    let head = Checkpoint::parse(&parsed.text).expect("a head");
    let under = |note: &str, key: Option<&Signer>| {
        let mut changed = files.clone();
        changed.insert("checkpoint".to_owned(), note.to_owned());
        if let Some(key) = key {
            changed.insert("keys.txt".to_owned(), format!("{}\n", key.verifier(&head.origin)));
        }
        checked(&packed(&changed))
    };
    let stranger = signer(9);
    let by_other = note::sign(&head.origin, &head.text(), &[&stranger]);
    assert!(under(&by_other, None).findings.has(Code::WrongKey));
    // With the stranger's key beside it the manifest's signature gives it away.
    assert!(under(&by_other, Some(&stranger)).findings.has(Code::WrongKey));
    let edited = files["checkpoint"].replacen(&format!("\n{}\n", head.size), "\n999999\n", 1);
    assert!(under(&edited, None).findings.has(Code::BrokenSignature));
    let forked = Checkpoint { root: [7; 32], ..head.clone() };
    let forked = note::sign(&head.origin, &forked.text(), &[&signer(1)]);
    assert!(under(&forked, None).findings.has(Code::Fork));
    let old = b.store.checkpoint_from(1).await.expect("reads").expect("is there");
    let report = under(&old.note, None);
    assert!(report.findings.has(Code::OldCheckpoint));
    // The pack is right, and yet signed by nobody whom the reader trusts.
    let trusted = [stranger.verifier(&head.origin)];
    let report = verify(Cursor::new(&pack.bytes), &trusted).expect("a pack");
    assert!(report.findings.has(Code::WrongKey) && !report.keys_are_of_the_pack);
    let trusted = [signer(1).verifier(&head.origin)];
    assert!(verify(Cursor::new(&pack.bytes), &trusted).expect("a pack").findings.is_clean());
    assert!(verify(Cursor::new(b"no zip".as_slice()), &[]).is_err());
    let _ = std::fs::remove_dir_all(at);
}
