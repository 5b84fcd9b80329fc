//! `sendonce capacity`

use app::model::CapacityPage;

use super::{Admin, CliError, Out};
use crate::config::Config;
use crate::slo::capacity::{Ask, Load, plan};

/// The load, where it is not the one of the last seven days.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Example:\n  sendonce capacity\n  sendonce capacity --peak 50 --call-ms 800 --processes 3"
)]
pub struct Args {
    /// Admissions a second at the peak; else the busiest minute of the last 7 days.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub peak: Option<u32>,
    /// How long a call takes, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=300_000))]
    pub call_ms: u64,
    /// How long a read takes, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=300_000))]
    pub read_ms: u64,
    /// How long an unknown outcome can be read, in seconds.
    #[arg(long, value_name = "S", default_value_t = 1_800, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub lifetime: u64,
    /// How late a part of the events may come, in seconds.
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub delay: u64,
    /// Within how many seconds those are to have followed.
    #[arg(long, value_name = "S", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub catch_up: u64,
    /// Processes that dispatch.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub processes: u64,
    /// For how many days records are kept.
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=36_500))]
    pub retention_days: u64,
    /// As JSON, for machines.
    #[arg(long)]
    pub json: bool,
}

/// Says what the load needs, and which figures are guesses.
///
/// # Errors
/// When the ledger does not answer.
pub async fn run(
    args: &Args,
    config: &Config,
    admin: &dyn Admin,
    out: &mut Out,
) -> Result<(), CliError> {
    let load = admin.load().await?;
    print(args, config, &load, out)
}

fn print(args: &Args, config: &Config, load: &Load, out: &mut Out) -> Result<(), CliError> {
    let ask = Ask {
        peak_milli: args.peak.map(|peak| u64::from(peak) * 1_000),
        call_ms: args.call_ms,
        read_ms: args.read_ms,
        lifetime_s: args.lifetime,
        delay_s: args.delay,
        catch_up_s: args.catch_up,
        processes: args.processes,
        retention_days: args.retention_days,
    };
    let page = plan(load, &ask, config);
    if args.json {
        out.json(&page)?;
    } else {
        table(&page, out)?;
    }
    match page.needs.iter().find(|need| need.is_short) {
        None => Ok(()),
        Some(need) => out.note(&format!(
            "warning: the configuration is short of: {}; set {} to {} or more, or run more processes",
            need.name.to_lowercase(),
            need.key,
            need.value
        )),
    }
}

fn table(page: &CapacityPage, out: &mut Out) -> Result<(), CliError> {
    let inputs: Vec<Vec<String>> = page
        .inputs
        .iter()
        .map(|input| {
            vec![input.name.clone(), input.value.clone(), input.source.as_str().to_owned()]
        })
        .collect();
    out.table(&["input", "value", "from"], &inputs)?;
    out.line("")?;
    let needs: Vec<Vec<String>> = page
        .needs
        .iter()
        .map(|need| {
            let has = need.configured.clone().unwrap_or_default();
            vec![need.name.clone(), need.value.clone(), has, need.why.clone()]
        })
        .collect();
    out.table(&["needed", "value", "configured", "because"], &needs)
}
