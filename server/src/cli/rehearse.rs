//! `sendonce rehearse`

use std::path::PathBuf;

use app::pages::{fact_text, fact_title};

use super::{CliError, Host, Out};
use crate::config::Config;
use crate::rehearsal::{Rehearsal, Story};

/// What to rehearse with.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Examples:\n  sendonce rehearse\n  sendonce rehearse --provider post --out rehearsal.zip\n\n\
                        Runs the seven narratives in a ledger of its own against the simulator: no real provider is\n\
                        called and the real ledger is not touched. Exit code 1 when one is not as it has to be."
)]
pub struct Args {
    /// A configured provider, or a kind: its adapter plays against the simulator of its kind.
    #[arg(long, value_name = "NAME", default_value = "demo")]
    pub provider: String,
    /// The evidence pack to write.
    #[arg(long, value_name = "FILE", default_value = "rehearsal.zip")]
    pub out: PathBuf,
}

/// Runs the narratives, prints them as stories, writes and verifies their pack.
///
/// # Errors
/// When one of them is not as it has to be, or the pack cannot be written.
pub async fn run(
    args: &Args,
    config: &Config,
    host: &dyn Host,
    out: &mut Out,
) -> Result<(), CliError> {
    let provider = match config.providers.get(&args.provider) {
        Some(provider) => provider.clone(),
        None => crate::trial::stand_in_config(&args.provider).map_err(|error| {
            CliError::usage(&format!("{error:#}"), "see `sendonce provider list`")
        })?,
    };
    let name = if config.providers.contains_key(&args.provider) { &args.provider } else { "trial" };
    let rehearsal = host.rehearse(name, &provider).await?;
    for story in &rehearsal.stories {
        tell(story, out)?;
    }
    std::fs::write(&args.out, &rehearsal.pack.bytes).map_err(|error| {
        CliError::failed(
            &format!("the pack could not be written: {}", error.kind()),
            "check --out and the disk",
        )
    })?;
    let word = |holds: bool| if holds { "holds" } else { "broken" };
    out.pairs(&[
        ("pack", args.out.display().to_string()),
        ("sha256", rehearsal.pack.sha256.clone()),
        ("facts", rehearsal.pack.facts.to_string()),
        ("integrity", word(rehearsal.verdicts.0).to_owned()),
        ("completeness", word(rehearsal.verdicts.1).to_owned()),
    ])?;
    verdict(&rehearsal)
}

fn verdict(rehearsal: &Rehearsal) -> Result<(), CliError> {
    if rehearsal.passes() {
        return Ok(());
    }
    let told: Vec<String> = rehearsal
        .stories
        .iter()
        .filter(|story| !story.faults.is_empty())
        .map(|story| format!("{}: not {}", story.number, story.faults.join(", not ")))
        .collect();
    Err(CliError::failed(
        &format!("the rehearsal did not go as it has to ({})", told.join("; ")),
        "a provider that can be neither read nor replayed cannot show all of it; see `sendonce provider list`",
    ))
}

fn tell(story: &Story, out: &mut Out) -> Result<(), CliError> {
    let word = if story.faults.is_empty() { "as it has to be" } else { "NOT as it has to be" };
    out.line(&format!("{}. {}: {word}", story.number, story.title))?;
    for (record, facts) in &story.records {
        out.line(&format!(
            "   {}: {}, {}, calls {}",
            record.event_id, record.state, record.reason, record.calls
        ))?;
        for fact in facts {
            out.line(&format!("     {} {}. {}", fact.at, fact_title(fact), fact_text(fact)))?;
        }
    }
    for sentence in &story.seen {
        out.line(&format!("   {sentence}"))?;
    }
    for fault in &story.faults {
        out.line(&format!("   not so: {fault}"))?;
    }
    out.line("")
}
