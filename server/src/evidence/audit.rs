//! The whole log against its signed heads.
//!
//! Every leaf is made again from the fields of its fact, and the tree from the leaves; stored digests are
//! only compared. The log is read in pages and the tree is one edge, so it costs the same memory for any size.

use std::collections::HashSet;
use std::iter::Peekable;

use super::leaf::RawFact;
use super::note::{Checkpoint, Note, Signed, VerifierKey};
use super::outside::{Kept, Outside};
use super::tree::{Edge, Hash, TILE_WIDTH};
use super::verdict::{Code, Findings};
use crate::store::{Error, KeptCheckpoint, PurgedRange, Store};
use app::model::Stamp;

/// A head that was sealed so long ago is in the folder, or somebody took it out again.
const OUTSIDE_WITHIN: i64 = 60_000_000;

/// Places whose hashes differ that are looked at one by one.
const DIFFERENCES_MAX: usize = 10_000;

/// What the audit came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct AuditReport {
    pub origin: String,
    /// Places of the log.
    pub size: u64,
    /// Facts that were hashed again.
    pub facts: u64,
    /// Facts that were removed at the end of their retention: their hashes stand.
    pub purged: u64,
    /// Signed heads that were compared.
    pub heads: u64,
    /// Facts that wait for the sealer: reported, and no fault.
    pub unsealed: u64,
    /// The size of the newest head outside the database; none without a folder.
    pub outside_size: Option<u64>,
    #[serde(flatten)]
    pub findings: Findings,
}

/// A head on its way to being compared.
struct Head {
    is_outside: bool,
    size: u64,
    note: String,
}

/// Checks everything. `own` are the keys that the configuration names.
///
/// # Errors
/// The store's. What is wrong with the log is a finding.
pub async fn audit(
    store: &dyn Store,
    outside: &Outside,
    own: &[VerifierKey],
    now: Stamp,
) -> Result<AuditReport, Error> {
    let head = store.log_head().await?;
    let unsealed = store.unsealed().await?.count;
    let mut audit = Audit::new(store, outside, own).await?;
    audit.report.origin.clone_from(&head.origin);
    audit.report.unsealed = unsealed;
    let signed = audit.newest_outside().max(head.size);
    audit.walk(signed).await?;
    audit.heads_up_to(u64::MAX, &head.origin).await?;
    audit.end(head.size, head.sealed_at, now).await?;
    Ok(audit.report)
}

struct Audit<'a> {
    store: &'a dyn Store,
    outside: &'a Outside,
    keys: Vec<VerifierKey>,
    purged: Vec<PurgedRange>,
    report: AuditReport,
    /// From the kept hashes, each of which is compared with that of its fact.
    kept: Edge,
    /// After a gap that nothing fills there is no root to compare.
    is_broken: bool,
    differences: Vec<(u64, Hash, Hash, String)>,
    has_other_root: bool,
    missing: Vec<u64>,
    missing_count: u64,
    database: Vec<KeptCheckpoint>,
    database_above: u64,
    database_is_over: bool,
    history: Option<Peekable<Box<dyn Iterator<Item = std::io::Result<Kept>> + Send + 'a>>>,
    newest: Option<Head>,
    history_newest: u64,
    root: Option<(u64, Hash)>,
}

impl<'a> Audit<'a> {
    async fn new(
        store: &'a dyn Store,
        outside: &'a Outside,
        own: &[VerifierKey],
    ) -> Result<Self, Error> {
        let mut report = AuditReport::default();
        let mut keys = own.to_vec();
        keys.extend(
            outside.keys().unwrap_or_default().iter().filter_map(|k| VerifierKey::parse(k)),
        );
        for key in store.log_keys().await? {
            if !VerifierKey::parse(&key.vkey).is_some_and(|key| keys.contains(&key)) {
                report.findings.add(
                    Code::WrongKey,
                    Some(key.from_size),
                    "the database names a key that neither the configuration nor the folder knows",
                );
            }
        }
        let newest = match outside.checkpoint() {
            Ok(Some(note)) => Some(note),
            Ok(None) => None,
            Err(error) => {
                let text =
                    format!("the newest head in the folder cannot be read: {}", error.kind());
                report.findings.add(Code::OldCheckpoint, None, text);
                None
            }
        };
        let newest = newest.map(|note| {
            let size = Note::parse(&note).and_then(|n| Checkpoint::parse(&n.text));
            Head { is_outside: true, size: size.map_or(0, |head| head.size), note }
        });
        report.outside_size = newest.as_ref().map(|head| head.size);
        let history = outside.history().unwrap_or(None).map(|lines| {
            let lines: Box<dyn Iterator<Item = _> + Send + 'a> = Box::new(lines);
            lines.peekable()
        });
        Ok(Self {
            purged: store.purged_ranges().await?,
            store,
            outside,
            keys,
            report,
            kept: Edge::default(),
            is_broken: false,
            differences: Vec::new(),
            has_other_root: false,
            missing: Vec::new(),
            missing_count: 0,
            database: Vec::new(),
            database_above: 0,
            database_is_over: false,
            history,
            newest,
            history_newest: 0,
            root: None,
        })
    }

    fn newest_outside(&self) -> u64 {
        self.newest.as_ref().map_or(0, |head| head.size)
    }

    fn find(&mut self, code: Code, index: Option<u64>, text: impl Into<String>) {
        self.report.findings.add(code, index, text);
    }

    /// Reads every place below `target`.
    async fn walk(&mut self, target: u64) -> Result<(), Error> {
        while self.kept.size() < target {
            let rows = self.store.log_rows(self.kept.size()).await?;
            if rows.is_empty() {
                return Ok(());
            }
            for row in rows {
                if row.index >= target {
                    return Ok(());
                }
                self.fill(row.index);
                if self.is_broken {
                    // Nothing can be compared any more; the places that are there are still counted.
                    self.report.size = row.index + 1;
                    return self.count_rest(row.index + 1).await;
                }
                let index = row.index;
                let kept = row.hash;
                let shown = match &row.fact {
                    Some(fact) => {
                        self.report.facts += 1;
                        Some(fact.hash())
                    }
                    None => None,
                };
                match (kept, shown) {
                    (Some(kept), Some(shown)) if kept != shown => {
                        let name = row.fact.as_ref().map(name_of).unwrap_or_default();
                        if self.differences.len() < DIFFERENCES_MAX {
                            self.differences.push((index, kept, shown, name));
                        } else {
                            self.find(Code::EditedFact, Some(index), name);
                        }
                    }
                    (None, _) => {
                        self.find(
                            Code::EditedFact,
                            Some(index),
                            "the hash of this place is no hash",
                        );
                    }
                    (Some(_), None) => self.gone(index),
                    (Some(_), Some(_)) => {}
                }
                let hash = kept.or(shown).unwrap_or([0; 32]);
                self.kept.append(hash);
                self.report.size = index + 1;
                self.compare().await?;
            }
        }
        Ok(())
    }

    async fn count_rest(&mut self, from: u64) -> Result<(), Error> {
        let mut from = from;
        loop {
            let rows = self.store.log_rows(from).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            from = last.index + 1;
            self.report.size = from;
        }
    }

    /// Places that are not there, up to this one: their hashes are taken from the folder.
    fn fill(&mut self, index: u64) {
        let from = self.kept.size();
        if from == index {
            return;
        }
        let text = format!("{} places of the log are gone from here on", index - from);
        self.find(Code::MissingPlace, Some(from), text);
        for at in from..index {
            let tile = self.outside.tile((0, at / TILE_WIDTH), at % TILE_WIDTH + 1);
            let hash = tile.and_then(|t| t.get(usize::try_from(at % TILE_WIDTH).ok()?).copied());
            let Some(hash) = hash else {
                self.is_broken = true;
                return;
            };
            self.kept.append(hash);
        }
    }

    fn gone(&mut self, index: u64) {
        if self.purged.iter().any(|range| (range.from..range.to).contains(&index)) {
            self.report.purged += 1;
            return;
        }
        self.missing_count += 1;
        if self.missing.len() < DIFFERENCES_MAX {
            self.missing.push(index);
        }
    }

    /// Compares the roots at this size with every head of it.
    async fn compare(&mut self) -> Result<(), Error> {
        let size = self.kept.size();
        if !self.is_due(size).await? {
            return Ok(());
        }
        self.root = Some((size, self.kept.root()));
        let origin = self.report.origin.clone();
        self.heads_up_to(size, &origin).await
    }

    async fn is_due(&mut self, size: u64) -> Result<bool, Error> {
        self.more_heads().await?;
        let database = self.database.first().is_some_and(|head| head.size <= size);
        let history = self.history.as_mut().and_then(Peekable::peek);
        let history = history.is_some_and(|line| line.as_ref().map_or(true, |k| k.size <= size));
        Ok(database || history || self.newest.as_ref().is_some_and(|head| head.size <= size))
    }

    async fn more_heads(&mut self) -> Result<(), Error> {
        if self.database.is_empty() && !self.database_is_over {
            self.database = self.store.checkpoints(self.database_above).await?;
            match self.database.last() {
                Some(last) => self.database_above = last.size,
                None => self.database_is_over = true,
            }
        }
        Ok(())
    }

    /// Looks at every head up to this size. With roots at hand for that size alone.
    async fn heads_up_to(&mut self, size: u64, origin: &str) -> Result<(), Error> {
        loop {
            self.more_heads().await?;
            if self.database.first().is_none_or(|head| head.size > size) {
                break;
            }
            let head = self.database.remove(0);
            self.head(&Head { is_outside: false, size: head.size, note: head.note }, origin);
        }
        while let Some(lines) = &mut self.history {
            let is_due = match lines.peek() {
                None => false,
                Some(Ok(kept)) => kept.size <= size,
                Some(Err(_)) => true,
            };
            if !is_due {
                break;
            }
            match lines.next() {
                Some(Ok(kept)) => {
                    self.history_newest = self.history_newest.max(kept.size);
                    self.head(&Head { is_outside: true, size: kept.size, note: kept.note }, origin);
                }
                _ => self.find(Code::BrokenSignature, None, "a line of the history is no head"),
            }
        }
        if let Some(newest) = self.newest.take_if(|head| head.size <= size) {
            self.head(&newest, origin);
        }
        Ok(())
    }

    fn head(&mut self, head: &Head, origin: &str) {
        self.report.heads += 1;
        let place = if head.is_outside { "in the folder" } else { "in the database" };
        let at = Some(head.size);
        let parsed = Note::parse(&head.note);
        let text = parsed.as_ref().and_then(|note| Checkpoint::parse(&note.text));
        let (Some(note), Some(text)) = (parsed, text) else {
            return self.find(
                Code::BrokenSignature,
                at,
                format!("the head {place} is no signed head"),
            );
        };
        match note.signed_by(&self.keys) {
            Signed::Yes => {}
            Signed::Broken => {
                let text = format!("the signature of the head {place} does not hold");
                return self.find(Code::BrokenSignature, at, text);
            }
            Signed::ByOthers => {
                let text = format!("no key of this log has signed the head {place}");
                return self.find(Code::WrongKey, at, text);
            }
        }
        if text.origin != origin || text.size != head.size {
            return self.find(Code::Fork, at, format!("the head {place} is of another log"));
        }
        // Beyond the end there is nothing to compare: the end says so.
        let Some((_, kept)) = self.root.filter(|(size, _)| *size == head.size) else { return };
        if kept != text.root {
            self.has_other_root = true;
            if head.is_outside || self.differences.is_empty() {
                let text = format!("the head {place} was signed over another tree");
                self.find_fork(at, text);
            }
        }
    }

    fn find_fork(&mut self, at: Option<u64>, text: String) {
        // One finding tells it: every later head differs as well.
        if !self.report.findings.has(Code::Fork) {
            self.find(Code::Fork, at, text);
        }
    }

    async fn end(
        &mut self,
        state_size: u64,
        sealed_at: Option<Stamp>,
        now: Stamp,
    ) -> Result<(), Error> {
        self.differing();
        if self.has_other_root && self.differences.is_empty() {
            self.against_tiles().await?;
        }
        self.absent();
        let signed = self.newest_signed(state_size).await?;
        let size = self.report.size;
        if size < signed {
            let (code, what) = if size == 0 {
                (Code::AllMissing, "nothing is left of the log")
            } else {
                (Code::NewestMissing, "the newest places of the log are gone")
            };
            self.find(code, Some(size), format!("{what}: {size} of {signed} signed"));
        }
        if let Some(outside) = self.report.outside_size {
            let is_late = sealed_at.is_some_and(|at| now.since(at) > OUTSIDE_WITHIN);
            if outside < self.history_newest || (outside < state_size && is_late) {
                let newest = self.history_newest.max(state_size);
                let text = format!(
                    "the newest head in the folder covers {outside} facts, and {newest} are signed"
                );
                self.find(Code::OldCheckpoint, Some(outside), text);
            }
        }
        let (unknown, vanished) = self.store.outside_the_log().await?;
        if unknown > 0 {
            let text = format!("{unknown} facts have no place in the log and wait for none");
            self.find(Code::OutsideTheLog, None, text);
        }
        if vanished > 0 {
            let text = format!("{vanished} facts are gone that waited for the sealer");
            self.find(Code::NewestMissing, None, text);
        }
        Ok(())
    }

    async fn newest_signed(&mut self, state_size: u64) -> Result<u64, Error> {
        let database = self.database_above;
        let outside = self.report.outside_size.unwrap_or(0);
        Ok(state_size.max(database).max(outside).max(self.history_newest))
    }

    /// Facts that are not what was sealed: moved, or edited.
    fn differing(&mut self) {
        let kept: HashSet<Hash> = self.differences.iter().map(|(_, kept, ..)| *kept).collect();
        for (index, _, shown, name) in std::mem::take(&mut self.differences) {
            if kept.contains(&shown) {
                self.find(
                    Code::Reordered,
                    Some(index),
                    format!("{name} stands in another's place"),
                );
            } else {
                self.find(Code::EditedFact, Some(index), format!("{name} is not what was sealed"));
            }
        }
    }

    /// Where the kept hashes themselves are others than those of the signed heads: which.
    async fn against_tiles(&mut self) -> Result<(), Error> {
        let mut differing: Vec<(u64, Hash, Hash)> = Vec::new();
        let mut index = 0;
        'log: loop {
            let rows = self.store.log_rows(index).await?;
            let Some(last) = rows.last() else { break };
            index = last.index + 1;
            for row in rows {
                let within = usize::try_from(row.index % TILE_WIDTH).unwrap_or(0);
                let id = (0, row.index / TILE_WIDTH);
                let width = (self.report.outside_size.unwrap_or(0))
                    .saturating_sub(id.1 * TILE_WIDTH)
                    .min(TILE_WIDTH);
                let tile = self.outside.tile(id, width);
                let Some(was) = tile.and_then(|tile| tile.get(within).copied()) else { break 'log };
                match row.hash {
                    Some(hash) if hash != was && differing.len() < DIFFERENCES_MAX => {
                        differing.push((row.index, was, hash));
                    }
                    _ => {}
                }
            }
        }
        let were: HashSet<Hash> = differing.iter().map(|(_, was, _)| *was).collect();
        for (index, _, hash) in differing {
            let (code, text) = if were.contains(&hash) {
                (Code::Reordered, "this place of the log has changed places with another")
            } else {
                (Code::EditedFact, "this place of the log was written again")
            };
            self.find(code, Some(index), text);
        }
        Ok(())
    }

    /// Facts that are gone although their places are there.
    fn absent(&mut self) {
        if self.missing_count == 0 {
            return;
        }
        let size = self.report.size;
        let is_tail = self.missing.first().is_some_and(|first| size - first == self.missing_count);
        if self.report.facts == 0 && self.report.purged == 0 {
            let text = format!("all {size} facts are gone");
            return self.find(Code::AllMissing, Some(0), text);
        }
        if is_tail {
            let (first, count) = (self.missing.first().copied(), self.missing_count);
            return self.find(
                Code::NewestMissing,
                first,
                format!("the newest {count} facts are gone"),
            );
        }
        for index in std::mem::take(&mut self.missing) {
            self.find(Code::MissingFact, Some(index), "the fact of this place is gone");
        }
    }
}

/// How a finding names a fact.
fn name_of(fact: &RawFact) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
    match &fact.id {
        Some(id) if id.len() <= 128 && id.chars().all(is_plain) => {
            format!("fact {} of {id}", fact.seq)
        }
        Some(_) => format!("fact {} of a record whose id was changed", fact.seq),
        None => format!("fact {} without a record", fact.seq),
    }
}
