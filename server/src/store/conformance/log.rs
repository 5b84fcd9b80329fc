//! The log of facts on both engines.

use std::sync::Arc;

use super::{Bench, S};
use crate::evidence::audit::{AuditReport, audit};
use crate::evidence::keys::LogKeys;
use crate::evidence::leaf::RawFact;
use crate::evidence::note::{Checkpoint, Note, Signed, Signer};
use crate::evidence::outside::Outside;
use crate::evidence::sealer::{Sealer, readable};
use crate::evidence::tree::{self, Edge};
use crate::evidence::verdict::{Code, Side};
use crate::store::{Error, Hold, LogRow, Selection, Store};

fn signer(seed: u8) -> Signer {
    Signer::from_seed(&zeroize::Zeroizing::new([seed; 32])).expect("a key")
}

fn folder() -> std::path::PathBuf {
    use crate::entropy::Entropy as _;
    let name = format!("sendonce-log-{}", crate::entropy::SystemEntropy.hex(8));
    std::env::temp_dir().join(name)
}

fn sealer(b: &Bench, at: &std::path::Path, seeds: &[u8]) -> Sealer {
    let keys =
        LogKeys { current: signer(seeds[0]), previous: seeds.get(1).map(|seed| signer(*seed)) };
    let outside = Outside::new(at.to_path_buf());
    Sealer::new(Arc::clone(&b.store), keys, outside, "log.example/one".to_owned())
}

async fn hold(store: &dyn Store, who: &str) -> Hold {
    store.take_duty(crate::duty::SEAL, who, 10 * S).await.expect("asks").expect("is free")
}

async fn all_rows(store: &dyn Store) -> Vec<LogRow> {
    let mut rows: Vec<LogRow> = Vec::new();
    loop {
        let next = store.log_rows(rows.len() as u64).await.expect("reads");
        if next.is_empty() {
            return rows;
        }
        rows.extend(next);
    }
}

async fn admitted(b: &Bench, count: usize) {
    let events: Vec<_> = (0..count).map(|_| b.event(None, None)).collect();
    b.store.admit(&events).await.expect("admits");
}

/// Gapless places, each with the hash of its own fact, and heads that are right at their size.
async fn assert_sound(b: &Bench) -> u64 {
    let rows = all_rows(&*b.store).await;
    let heads = b.store.checkpoints(0).await.expect("reads");
    let mut heads = heads.into_iter().peekable();
    let mut edge = Edge::default();
    for (n, row) in rows.iter().enumerate() {
        assert_eq!(row.index, n as u64);
        let hash = row.fact.as_ref().expect("is there").hash();
        assert_eq!(row.hash, Some(hash));
        edge.append(hash);
        if heads.peek().is_some_and(|head| head.size == edge.size()) {
            let note = Note::parse(&heads.next().expect("is there").note).expect("a note");
            let head = Checkpoint::parse(&note.text).expect("a head");
            assert_eq!((head.size, head.root), (edge.size(), edge.root()));
        }
    }
    assert!(heads.next().is_none());
    assert_eq!(b.store.unsealed().await.expect("counts").count, 0);
    assert_eq!(b.store.outside_the_log().await.expect("counts"), (0, 0));
    edge.size()
}

async fn every_fact_gets_one_place_and_the_heads_are_signed(b: Bench) {
    let at = folder();
    let sealer = sealer(&b, &at, &[1]);
    let hold = hold(&*b.store, "one").await;
    sealer.drain(hold).await.expect("seals");
    assert_eq!(b.store.log_head().await.expect("reads").note, None, "nothing is signed yet");
    for count in [1, 7, 128, 128, 128] {
        admitted(&b, count).await;
        assert_eq!(b.store.unsealed().await.expect("counts").count, count as u64);
        sealer.drain(hold).await.expect("seals");
    }
    assert_eq!(assert_sound(&b).await, 392);
    let head = b.store.log_head().await.expect("reads");
    let note = Note::parse(&head.note.expect("signed")).expect("a note");
    let keys = readable(b.store.log_keys().await.expect("reads").into_iter().map(|key| key.vkey));
    assert_eq!(note.signed_by(&keys), Signed::Yes);
    // The folder follows.
    let outside = Outside::new(at.clone());
    assert_eq!(outside.size().expect("reads"), 392);
    assert_eq!(outside.history().expect("reads").expect("is there").count(), 5);
    let tiles = [((0, 0), 256), ((0, 1), 136), ((1, 0), 1)];
    for (id, width) in tiles {
        assert_eq!(outside.tile(id, width), Some(b.store.tile(id).await.expect("reads")));
    }
    let _ = std::fs::remove_dir_all(at);
}

async fn a_hundred_appends_at_once_from_an_empty_log_make_no_fork_and_no_gap(b: Bench) {
    let at = folder();
    let store = Arc::clone(&b.store);
    let mut appends = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (store, event) = (Arc::clone(&store), b.event(None, None));
        appends.spawn(async move {
            // A group that met a busy database is simply tried again, as the service does.
            for _ in 0..50 {
                match store.admit(std::slice::from_ref(&event)).await {
                    Ok(_) => return,
                    Err(error) if error.is_transient() => tokio::task::yield_now().await,
                    Err(error) => panic!("{error}"),
                }
            }
            panic!("it was never admitted");
        });
    }
    // Sealing goes on beside it, by two processes that take turns.
    let mut turns = 0;
    while !appends.is_empty() {
        tokio::select! {
            done = appends.join_next() => done.expect("one").expect("appended"),
            () = tokio::task::yield_now() => {}
        }
        let who = if turns % 2 == 0 { "one" } else { "two" };
        turns += 1;
        let hold = hold(&*b.store, who).await;
        sealer(&b, &at, &[1]).pass(hold).await.expect("seals");
        b.store.leave_duties(who).await.expect("leaves");
    }
    let hold = hold(&*b.store, "one").await;
    sealer(&b, &at, &[1]).drain(hold).await.expect("seals");
    assert_eq!(assert_sound(&b).await, 100);
    let _ = std::fs::remove_dir_all(at);
}

async fn a_crash_between_append_and_seal_loses_nothing(b: Bench) {
    let at = folder();
    admitted(&b, 3).await;
    // Nobody sealed; another process opens the same database.
    let other = b.beside(|_| ()).await;
    let hold = hold(&*other, "two").await;
    sealer(&b, &at, &[1]).drain(hold).await.expect("seals");
    assert_eq!(assert_sound(&b).await, 3);
    // It died after its commit and before it wrote outside: the next pass does.
    std::fs::remove_dir_all(&at).expect("was there");
    sealer(&b, &at, &[1]).drain(hold).await.expect("seals");
    assert_eq!(Outside::new(at.clone()).size().expect("reads"), 3);
    let _ = std::fs::remove_dir_all(at);
}

async fn a_sealer_that_was_followed_adds_nothing(b: Bench) {
    let at = folder();
    let before = hold(&*b.store, "one").await;
    b.clock.advance(std::time::Duration::from_secs(11));
    let after = hold(&*b.store, "two").await;
    admitted(&b, 2).await;
    let late = sealer(&b, &at, &[1]).pass(before).await;
    assert!(matches!(late, Err(Error::DutyLost { .. })), "{late:?}");
    assert_eq!(b.store.log_head().await.expect("reads").size, 0);
    sealer(&b, &at, &[1]).drain(after).await.expect("seals");
    assert_eq!(assert_sound(&b).await, 2);
    let _ = std::fs::remove_dir_all(at);
}

async fn a_new_key_is_introduced_by_the_one_before(b: Bench) {
    let at = folder();
    let hold = hold(&*b.store, "one").await;
    admitted(&b, 2).await;
    sealer(&b, &at, &[1]).drain(hold).await.expect("seals");
    // Without the key before, a new one is refused.
    let stranger = sealer(&b, &at, &[2]).pass(hold).await;
    assert!(matches!(stranger, Err(Error::OtherKeys { .. })), "{stranger:?}");
    let next = sealer(&b, &at, &[2, 1]);
    next.drain(hold).await.expect("seals");
    admitted(&b, 1).await;
    next.drain(hold).await.expect("seals");
    let heads = b.store.checkpoints(0).await.expect("reads");
    let signatures: Vec<usize> = heads
        .iter()
        .map(|head| Note::parse(&head.note).expect("a note").signatures.len())
        .collect();
    // The change is a fact, so there is a head for it.
    assert_eq!(signatures, [1, 2, 1]);
    let keys = b.store.log_keys().await.expect("reads");
    assert_eq!(keys.iter().map(|key| key.from_size).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(Outside::new(at.clone()).keys().expect("reads").len(), 2);
    assert_sound(&b).await;
    let _ = std::fs::remove_dir_all(at);
}

async fn what_is_read_back_has_the_hash_that_was_sealed(b: Bench) {
    let at = folder();
    // A time with all its decimals: nothing below a microsecond may be in the hash.
    b.clock.advance(std::time::Duration::from_nanos(123_456_789));
    admitted(&b, 1).await;
    let hold = hold(&*b.store, "one").await;
    sealer(&b, &at, &[1]).drain(hold).await.expect("seals");
    let record = b.store.record_by_event("ev-0").await.expect("reads").expect("is there");
    let selection = Selection::Record(record.id);
    let facts = b.store.selected(&selection, None).await.expect("reads");
    assert_eq!(facts.len(), 1);
    assert_eq!(facts[0].fact.at.micros() % 1_000_000, 123_456);
    let json = serde_json::to_string(&facts[0].fact).expect("JSON");
    let shown: app::model::Fact = serde_json::from_str(&json).expect("a fact");
    let rows = all_rows(&*b.store).await;
    assert_eq!(rows[0].hash, Some(RawFact::from(&shown).hash()));
    assert_eq!(b.store.waiting(&selection).await.expect("counts"), 0);
    let _ = std::fs::remove_dir_all(at);
}

async fn the_database_keeps_the_log_as_it_is(b: Bench) {
    let at = folder();
    admitted(&b, 2).await;
    let hold = hold(&*b.store, "one").await;
    sealer(&b, &at, &[1]).drain(hold).await.expect("seals");
    for sql in [
        "DELETE FROM log_leaves",
        "UPDATE log_leaves SET leaf_hash = 'x'",
        "DELETE FROM facts",
        "UPDATE facts SET actor = 'x'",
        // A purge that no fact in the log names is none.
        "INSERT INTO log_purges (purge_no, from_index, to_index, fact_no, begun_at) VALUES (1, 1, 1, 9, 0)",
    ] {
        assert!(!b.force(sql.to_owned()).await, "{sql}");
    }
    let purge = "INSERT INTO log_purges (purge_no, from_index, to_index, fact_no, begun_at)
                 VALUES (1, 0, 2, 999999, 0)";
    assert!(b.force(purge.to_owned()).await);
    assert!(!b.force("DELETE FROM facts".to_owned()).await, "the purge's own fact is not sealed");
    let _ = std::fs::remove_dir_all(at);
}

async fn proofs_come_from_the_kept_tiles(b: Bench) {
    let at = folder();
    let hold = hold(&*b.store, "one").await;
    for _ in 0..3 {
        admitted(&b, 100).await;
    }
    sealer(&b, &at, &[1]).drain(hold).await.expect("seals");
    let rows = all_rows(&*b.store).await;
    let head = b.store.checkpoint_from(1).await.expect("reads").expect("is there");
    let head = Checkpoint::parse(&Note::parse(&head.note).expect("a note").text).expect("a head");
    for index in [0_u64, 99, 255, 256, 299] {
        let mut tiles = tree::Tiles::default();
        for id in tree::inclusion_needs(index, head.size) {
            tiles.put(id, b.store.tile(id).await.expect("reads"));
        }
        let proof = tree::inclusion(index, head.size, &tiles).expect("all tiles are there");
        let leaf = rows[usize::try_from(index).expect("small")].hash.expect("a hash");
        assert_eq!(tree::root_from(leaf, index, head.size, &proof), Some(head.root));
    }
    let _ = std::fs::remove_dir_all(at);
}

/// Whoever can change the schema can drop what guards the tables: the audit must not depend on it.
async fn unlock(b: &Bench) {
    let triggers = [
        ("facts_update", "facts"),
        ("facts_delete", "facts"),
        ("log_leaves_update", "log_leaves"),
        ("log_leaves_delete", "log_leaves"),
    ];
    for (trigger, table) in triggers {
        let on = if b.is_sqlite() { String::new() } else { format!(" ON {table}") };
        assert!(b.force(format!("DROP TRIGGER {trigger}{on}")).await);
    }
}

async fn audited(b: &Bench, at: &std::path::Path, seed: u8) -> AuditReport {
    let own = [signer(seed).verifier("log.example/one")];
    let now = crate::clock::Clock::now(&b.clock);
    audit(&*b.store, &Outside::new(at.to_path_buf()), &own, now).await.expect("audits")
}

/// A log of 300 facts under several heads, a change behind its back, and what the audit then says.
async fn after(b: &Bench, change: &[&str]) -> (AuditReport, std::path::PathBuf) {
    let at = folder();
    let hold = hold(&*b.store, "one").await;
    for _ in 0..3 {
        admitted(b, 100).await;
        sealer(b, &at, &[1]).drain(hold).await.expect("seals");
    }
    let before = audited(b, &at, 1).await;
    assert!(before.findings.is_clean(), "{before:?}");
    assert_eq!((before.size, before.facts, before.outside_size), (300, 300, Some(300)));
    unlock(b).await;
    for sql in change {
        assert!(b.force((*sql).to_owned()).await, "{sql}");
    }
    (audited(b, &at, 1).await, at)
}

fn assert_found(report: &AuditReport, code: Code) {
    assert!(report.findings.has(code), "{code:?} is not among {:?}", report.findings);
    assert!(!report.findings.holds(code.side()));
    let other = match code.side() {
        Side::Integrity => Side::Completeness,
        Side::Completeness => Side::Integrity,
    };
    assert!(report.findings.holds(other), "{:?}", report.findings);
}

async fn an_edited_field_is_found(b: Bench) {
    let (report, at) =
        after(&b, &["UPDATE facts SET actor = 'operator:x' WHERE fact_no = 7"]).await;
    assert_found(&report, Code::EditedFact);
    assert_eq!(report.findings.findings.len(), 1);
    assert_eq!(report.findings.findings[0].index, Some(6));
    let _ = std::fs::remove_dir_all(at);
}

async fn a_word_that_is_none_is_an_edited_field_and_no_failure(b: Bench) {
    let (report, at) = after(&b, &["UPDATE facts SET detail = 'x' WHERE fact_no = 7"]).await;
    assert_found(&report, Code::EditedFact);
    let _ = std::fs::remove_dir_all(at);
}

async fn a_fact_and_its_leaf_that_were_written_again_are_found(b: Bench) {
    let mut fact = RawFact { actor: "operator:x".to_owned(), ..RawFact::default() };
    fact.seq = 1;
    let forged = format!(
        "UPDATE log_leaves SET leaf_hash = '{}' WHERE log_index = 6",
        tree::encode(&fact.hash())
    );
    let (report, at) =
        after(&b, &["UPDATE facts SET actor = 'operator:x' WHERE fact_no = 7", forged.as_str()])
            .await;
    assert_found(&report, Code::EditedFact);
    let _ = std::fs::remove_dir_all(at);
}

async fn a_fact_that_is_gone_from_the_middle_is_found(b: Bench) {
    let (report, at) = after(&b, &["DELETE FROM facts WHERE fact_no = 150"]).await;
    assert_found(&report, Code::MissingFact);
    assert_eq!(report.findings.findings[0].index, Some(149));
    let _ = std::fs::remove_dir_all(at);
}

async fn a_place_that_is_gone_is_found(b: Bench) {
    let (report, at) = after(
        &b,
        &["DELETE FROM log_leaves WHERE log_index = 149", "DELETE FROM facts WHERE fact_no = 150"],
    )
    .await;
    assert_found(&report, Code::MissingPlace);
    let _ = std::fs::remove_dir_all(at);
}

async fn newest_facts_that_are_gone_are_found(b: Bench) {
    let (report, at) = after(&b, &["DELETE FROM facts WHERE fact_no > 298"]).await;
    assert_found(&report, Code::NewestMissing);
    let _ = std::fs::remove_dir_all(at);
}

async fn a_log_that_was_cut_with_its_heads_is_found_by_the_folder(b: Bench) {
    let (report, at) = after(
        &b,
        &[
            "DELETE FROM facts WHERE fact_no > 200",
            "DELETE FROM log_leaves WHERE log_index >= 200",
            "DELETE FROM log_checkpoints WHERE size > 200",
            "UPDATE log_state SET size = 200",
        ],
    )
    .await;
    assert_found(&report, Code::NewestMissing);
    let _ = std::fs::remove_dir_all(at);
}

async fn a_log_that_was_emptied_is_found(b: Bench) {
    let (report, at) = after(&b, &["DELETE FROM facts"]).await;
    assert_found(&report, Code::AllMissing);
    let _ = std::fs::remove_dir_all(at);
    let b = if b.is_sqlite() {
        Bench::sqlite().await
    } else {
        Bench::postgres().await.expect("a server")
    };
    let change = [
        "DELETE FROM facts",
        "DELETE FROM log_leaves",
        "DELETE FROM log_checkpoints",
        "DELETE FROM log_state",
    ];
    let (report, at) = after(&b, &change).await;
    assert!(report.findings.has(Code::AllMissing), "{report:?}");
    let _ = std::fs::remove_dir_all(at);
}

async fn facts_that_changed_places_are_found(b: Bench) {
    let (report, at) = after(
        &b,
        &[
            "UPDATE log_leaves SET fact_no = -1 WHERE log_index = 10",
            "UPDATE log_leaves SET fact_no = 11 WHERE log_index = 20",
            "UPDATE log_leaves SET fact_no = 21 WHERE log_index = 10",
        ],
    )
    .await;
    assert_found(&report, Code::Reordered);
    let _ = std::fs::remove_dir_all(at);
}

async fn places_that_were_exchanged_are_found(b: Bench) {
    let (report, at) = after(
        &b,
        &[
            "UPDATE log_leaves SET log_index = 100000 WHERE log_index = 10",
            "UPDATE log_leaves SET log_index = 10 WHERE log_index = 20",
            "UPDATE log_leaves SET log_index = 20 WHERE log_index = 100000",
        ],
    )
    .await;
    assert_found(&report, Code::Reordered);
    let _ = std::fs::remove_dir_all(at);
}

async fn a_fork_is_found(b: Bench) {
    // The same key signed another tree of the same size.
    let head = Checkpoint { origin: "log.example/one".to_owned(), size: 200, root: [7; 32] };
    let note = crate::evidence::note::sign(&head.origin, &head.text(), &[&signer(1)]);
    let sql = format!("UPDATE log_checkpoints SET note = '{note}' WHERE size = 200");
    let (report, at) = after(&b, &[sql.as_str()]).await;
    assert_found(&report, Code::Fork);
    let _ = std::fs::remove_dir_all(at);
}

async fn a_head_of_another_key_is_found(b: Bench) {
    let (report, at) = after(&b, &[]).await;
    assert!(report.findings.is_clean());
    let forged = {
        let head = b.store.checkpoint_from(200).await.expect("reads").expect("is there");
        let note = Note::parse(&head.note).expect("a note");
        let note = crate::evidence::note::sign("log.example/one", &note.text, &[&signer(9)]);
        format!("UPDATE log_checkpoints SET note = '{note}' WHERE size = 200")
    };
    assert!(b.force(forged).await);
    assert_found(&audited(&b, &at, 1).await, Code::WrongKey);
    let _ = std::fs::remove_dir_all(at);
}

async fn an_old_head_in_the_folder_is_found(b: Bench) {
    let (_, at) = after(&b, &[]).await;
    let old = b.store.checkpoint_from(100).await.expect("reads").expect("is there");
    std::fs::write(at.join("checkpoint"), old.note).expect("writes");
    assert_found(&audited(&b, &at, 1).await, Code::OldCheckpoint);
    let _ = std::fs::remove_dir_all(at);
}

async fn a_fact_that_never_reached_the_log_is_found(b: Bench) {
    let (report, at) = after(&b, &["DELETE FROM log_pending"]).await;
    assert!(report.findings.is_clean());
    admitted(&b, 1).await;
    assert_eq!(audited(&b, &at, 1).await.unsealed, 1);
    assert!(b.force("DELETE FROM log_pending".to_owned()).await);
    assert_found(&audited(&b, &at, 1).await, Code::OutsideTheLog);
    let _ = std::fs::remove_dir_all(at);
}

on_both_engines! {
    every_fact_gets_one_place_and_the_heads_are_signed,
    a_hundred_appends_at_once_from_an_empty_log_make_no_fork_and_no_gap,
    a_crash_between_append_and_seal_loses_nothing,
    a_sealer_that_was_followed_adds_nothing,
    a_new_key_is_introduced_by_the_one_before,
    what_is_read_back_has_the_hash_that_was_sealed,
    the_database_keeps_the_log_as_it_is,
    proofs_come_from_the_kept_tiles,
    an_edited_field_is_found,
    a_word_that_is_none_is_an_edited_field_and_no_failure,
    a_fact_and_its_leaf_that_were_written_again_are_found,
    a_fact_that_is_gone_from_the_middle_is_found,
    a_place_that_is_gone_is_found,
    newest_facts_that_are_gone_are_found,
    a_log_that_was_cut_with_its_heads_is_found_by_the_folder,
    a_log_that_was_emptied_is_found,
    facts_that_changed_places_are_found,
    places_that_were_exchanged_are_found,
    a_fork_is_found,
    a_head_of_another_key_is_found,
    an_old_head_in_the_folder_is_found,
    a_fact_that_never_reached_the_log_is_found,
}
