//! `sendonce audit`

use super::evidence::verdicts;
use super::{Admin, CliError, Out};

/// What to do.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Check the whole log of facts against its signed heads.
    Verify(VerifyArgs),
}

#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:\n  sendonce audit verify\n  sendonce audit verify --json")]
pub struct VerifyArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Checks the log.
///
/// # Errors
/// When anything is found, or the ledger does not answer.
pub async fn run(args: &Args, admin: &dyn Admin, out: &mut Out) -> Result<(), CliError> {
    let Command::Verify(args) = &args.command;
    let report = admin.audit().await?;
    if args.json {
        out.json(&report)?;
    } else {
        let outside = report.outside_size.map_or_else(
            || "no signed head was found outside the database".to_owned(),
            |size| format!("the newest head outside the database covers {size} facts"),
        );
        out.pairs(&[
            ("log", report.origin.clone()),
            ("places", report.size.to_string()),
            ("facts", format!("{} hashed again, {} purged", report.facts, report.purged)),
            ("heads", report.heads.to_string()),
            ("outside", outside),
            ("unsealed", format!("{} (reported, no fault)", report.unsealed)),
        ])?;
    }
    verdicts(&report.findings, args.json, out)
}
