//! What a check found: two verdicts, because they answer two questions.

use serde::Serialize;

/// Which question a finding answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Was anything changed?
    Integrity,
    /// Is anything absent?
    Completeness,
}

/// Everything that can be found. Closed: each has its meaning in `docs/evidence.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// A field was changed after it was sealed.
    EditedFact,
    /// The facts stand in another order than they were sealed in.
    Reordered,
    /// A fact that was never sealed.
    ForeignFact,
    /// A signed head has another tree: two histories of one log.
    Fork,
    /// Signed by a key that is not the log's, or not signed at all.
    WrongKey,
    /// The signature is not of this text.
    BrokenSignature,
    /// A proof does not lead to the signed root.
    BrokenProof,
    /// A file is not the one that was packed.
    ChangedFile,
    /// A fact in the middle is gone.
    MissingFact,
    /// The newest facts are gone.
    NewestMissing,
    /// All facts are gone.
    AllMissing,
    /// A place of the log is gone.
    MissingPlace,
    /// A signed head that is older than what it should cover.
    OldCheckpoint,
    /// A fact that has no place in the log and waits for none.
    OutsideTheLog,
    /// A file of the pack is gone.
    MissingFile,
}

impl Code {
    #[must_use]
    pub const fn side(self) -> Side {
        match self {
            Self::EditedFact
            | Self::Reordered
            | Self::ForeignFact
            | Self::Fork
            | Self::WrongKey
            | Self::BrokenSignature
            | Self::BrokenProof
            | Self::ChangedFile => Side::Integrity,
            Self::MissingFact
            | Self::NewestMissing
            | Self::AllMissing
            | Self::MissingPlace
            | Self::OldCheckpoint
            | Self::OutsideTheLog
            | Self::MissingFile => Side::Completeness,
        }
    }

    /// The word that is printed.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EditedFact => "edited_fact",
            Self::Reordered => "reordered",
            Self::ForeignFact => "foreign_fact",
            Self::Fork => "fork",
            Self::WrongKey => "wrong_key",
            Self::BrokenSignature => "broken_signature",
            Self::BrokenProof => "broken_proof",
            Self::ChangedFile => "changed_file",
            Self::MissingFact => "missing_fact",
            Self::NewestMissing => "newest_missing",
            Self::AllMissing => "all_missing",
            Self::MissingPlace => "missing_place",
            Self::OldCheckpoint => "old_checkpoint",
            Self::OutsideTheLog => "outside_the_log",
            Self::MissingFile => "missing_file",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub code: Code,
    pub side: Side,
    /// Where in the log, if it is about one place.
    pub index: Option<u64>,
    /// One sentence. Ids and numbers only.
    pub text: String,
}

/// Findings that are kept; more are counted.
const FINDINGS_MAX: usize = 100;

/// All findings of one check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    pub findings: Vec<Finding>,
    /// Beyond those that are listed.
    pub more: u64,
    integrity: u64,
    completeness: u64,
}

impl Findings {
    pub fn add(&mut self, code: Code, index: Option<u64>, text: impl Into<String>) {
        let side = code.side();
        match side {
            Side::Integrity => self.integrity += 1,
            Side::Completeness => self.completeness += 1,
        }
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { code, side, index, text: text.into() });
        } else {
            self.more += 1;
        }
    }

    /// Whether this verdict holds.
    #[must_use]
    pub const fn holds(&self, side: Side) -> bool {
        match side {
            Side::Integrity => self.integrity == 0,
            Side::Completeness => self.completeness == 0,
        }
    }

    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.integrity == 0 && self.completeness == 0
    }

    #[must_use]
    pub fn has(&self, code: Code) -> bool {
        self.findings.iter().any(|finding| finding.code == code)
    }
}
