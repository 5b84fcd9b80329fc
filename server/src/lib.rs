//! sendonce: admits each event once, sends at most once, reads before it sends again, and proves it.

pub mod admission;
pub mod batch;
pub mod cli;
pub mod clock;
pub mod config;
pub mod dispatch;
pub mod domain;
pub mod duty;
pub mod entropy;
pub mod evidence;
pub mod host;
pub mod http;
pub mod keys;
pub mod node;
pub mod outbox;
pub mod password;
pub mod policy;
pub mod providers;
pub mod reconcile;
pub mod sentences;
pub mod simulator;
pub mod spreadsheet;
pub mod store;
pub mod supervisor;
pub mod telemetry;
pub mod text;
