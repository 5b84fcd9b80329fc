//! Evidence: the facts as a transparency log, and what a stranger can check of it.
//!
//! A fact gets its place in the log shortly after its commit ([`sealer`]); each head is signed, kept in the
//! database and in a folder outside it ([`outside`]). [`audit`] checks the whole log, [`pack`] hands out a
//! part of it with its proofs, and [`verify`] checks such a part without a database.
//!
//! The formats are those of C2SP (signed-note, tlog-checkpoint, tlog-tiles, tlog-proof); only the leaf is our
//! own ([`leaf`]). Nothing here decides about a record or sends anything.

pub mod audit;
pub mod keys;
pub mod leaf;
pub mod note;
pub mod outside;
pub mod pack;
pub mod report;
pub mod sealer;
pub mod sheet;
#[cfg(test)]
mod tests;
pub mod tree;
pub mod verdict;
pub mod verify;
