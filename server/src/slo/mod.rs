//! The watch: the objective and its budget, the guardrails, the alerts, and what capacity they ask for.
//!
//! It reads counts that the ledger keeps in its own transactions and never changes a record. Everything that
//! judges is a pure function of figures and a time.

pub mod capacity;
pub mod guardrails;
pub mod life;
pub mod margin;
pub mod objective;
pub mod runbook;
pub mod tell;
pub mod watch;
