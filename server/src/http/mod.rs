//! The server's face: the API for callers, the webhooks, the pages, health.

mod account;
mod admin;
pub mod api;
pub mod auth;
pub mod body;
pub mod cursor;
mod desk;
mod evidence;
mod factor;
pub mod freezes;
pub mod guard;
pub mod health;
pub mod listen;
mod login;
mod lookup;
pub mod metrics;
mod oidc;
pub mod openapi;
mod oplog;
mod policy_desk;
pub mod problem;
pub mod render;
pub mod request_id;
pub mod schema;
pub mod search;
mod serve;
pub mod session;
pub mod setup;
pub mod site;
pub mod sse;
pub mod tokens;
pub mod ui;
mod watch;
pub mod webhooks;

pub use serve::{health_only, router};
