//! The HTTP API against a real SQLite file, in process: what a caller can rely on, and what it never sees.

#[path = "api/support.rs"]
mod support;

#[path = "api/admission.rs"]
mod admission;
#[path = "api/deploy.rs"]
mod deploy;
#[path = "api/documents.rs"]
mod documents;
#[path = "api/guards.rs"]
mod guards;
#[path = "api/health.rs"]
mod health;
#[path = "api/operations.rs"]
mod operations;
#[path = "api/schema.rs"]
mod schema;
#[path = "api/tokens.rs"]
mod tokens;
#[path = "api/webhooks.rs"]
mod webhooks;
