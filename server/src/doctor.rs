//! An examination of one installation, as this machine sees it: files, database, processes, providers, network.
//!
//! It changes nothing: no file, no row, no migration. It asks no provider and resolves nobody; of the
//! resolver it only opens a connection.

mod files;
mod ledger;
mod network;

use crate::config::{Config, ConfigError};
use crate::finding::Finding;
use crate::node::Seams;

/// Looks at everything. A part that cannot be looked at is a finding too.
pub async fn examine(config: Result<Config, ConfigError>, seams: &Seams) -> Vec<Finding> {
    let config = match config {
        Ok(config) => config,
        Err(error) => {
            let bad = |problem: &crate::config::Problem| {
                let what = format!("{}: {}", problem.key, problem.message);
                Finding::bad("config", &what, &problem.next_step)
            };
            return error.problems.iter().map(bad).collect();
        }
    };
    let mut findings = configuration(&config);
    findings.extend(files::examine(&config));
    findings.extend(ledger::examine(&config, seams).await);
    findings.extend(network::examine(&config, seams).await);
    findings
}

/// What is refused at a start, and what is worth a sentence.
fn configuration(config: &Config) -> Vec<Finding> {
    let refused = config.check();
    let warned = config.warnings();
    if refused.is_empty() && warned.is_empty() {
        return vec![Finding::good("config", "it can be read, and nothing in it is unsafe")];
    }
    let said = |problem: &crate::config::Problem| format!("{}: {}", problem.key, problem.message);
    let refused = refused.iter().map(|p| Finding::bad("config", &said(p), &p.next_step));
    let warned = warned.iter().map(|p| Finding::warning("config", &said(p), &p.next_step));
    refused.chain(warned).collect()
}
