//! `sendonce retention`, `hold`

use app::model::{Capped, Stamp};

use super::{Admin, CliError, Out, free_text};
use crate::config::{Config, duration};
use crate::store::LegalHold;

/// What the retention would remove.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:\n  sendonce retention\n\n\
                        Shows the policy, what is over long enough to go now, what a legal hold keeps, and when the\n\
                        next event is due. Nothing is removed by this command: a serving process does that, range by\n\
                        range of the sealed log, each named by a fact first.")]
pub struct Args {}

/// Legal holds.
#[derive(Debug, Clone, clap::Args)]
pub struct HoldArgs {
    #[command(subcommand)]
    pub command: HoldCommand,
}

/// What to do with legal holds.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum HoldCommand {
    /// Keep the events of a seller, of a time, or of both together.
    #[command(
        after_help = "Examples:\n  sendonce hold add --seller seller_1042 --reason CASE-17\n  \
                            sendonce hold add --from 2026-03-01T00:00:00Z --to 2026-04-01T00:00:00Z --reason CASE-18"
    )]
    Add {
        /// The seller's id.
        #[arg(long)]
        seller: Option<String>,
        /// Admitted from this instant on (RFC 3339).
        #[arg(long, value_parser = instant)]
        from: Option<Stamp>,
        /// Admitted before this instant (RFC 3339).
        #[arg(long, value_parser = instant)]
        to: Option<Stamp>,
        /// Why, in one line; kept for ever, so no address and no phone number.
        #[arg(long)]
        reason: String,
    },
    /// Show the holds in force.
    #[command(after_help = "Example:\n  sendonce hold list")]
    List,
    /// End a hold: what it covered follows the retention again.
    #[command(after_help = "Example:\n  sendonce hold end 0192f0c4-… --reason 'CASE-17 is closed'")]
    End {
        /// The hold's id, as `hold list` shows it.
        id: String,
        /// Why, in one line.
        #[arg(long)]
        reason: String,
    },
}

fn instant(text: &str) -> Result<Stamp, String> {
    Stamp::parse(text).map_err(|_| "expected an instant such as 2026-03-14T02:00:00Z".to_owned())
}

fn shown(count: Capped) -> String {
    if count.more { format!("more than {}", count.count) } else { count.count.to_string() }
}

fn kept(period: Option<i64>) -> String {
    period.map_or_else(|| "for ever".to_owned(), duration::format)
}

/// Shows the policy and what it would remove.
///
/// # Errors
/// When the ledger does not answer.
pub async fn retention(config: &Config, admin: &dyn Admin, out: &mut Out) -> Result<(), CliError> {
    let policy = config.retention;
    let due = admin.due_for_purge().await?;
    out.line(&format!("events are kept {} after they settle", kept(policy.events)))?;
    out.line(&format!(
        "and not less than {} after they expire, so that a late retry finds them",
        duration::format(policy.retry_window)
    ))?;
    out.line(&format!("operators' acts are kept {}", kept(policy.operators)))?;
    out.line(&format!(
        "due now: {} events, {} operators' acts",
        shown(due.events),
        shown(due.operators)
    ))?;
    out.line(&format!("kept by a legal hold: {} events", shown(due.held)))?;
    match (policy.events, due.oldest_settled) {
        (Some(kept), Some(settled)) => {
            out.line(&format!("the next is due at {} or later", settled.plus(kept)))
        }
        _ => out.line("nothing else will be due"),
    }
}

/// Puts, shows or ends a hold.
///
/// # Errors
/// When an argument is wrong, there is no such hold, or the ledger does not answer.
pub async fn hold(args: &HoldArgs, admin: &dyn Admin, out: &mut Out) -> Result<(), CliError> {
    match &args.command {
        HoldCommand::Add { seller, from, to, reason } => {
            let reason = free_text("reason", reason)?;
            if seller.is_none() && from.is_none() && to.is_none() {
                let help = "name --seller, or --from and --to";
                return Err(CliError::usage("a hold on everything is no hold", help));
            }
            if let (Some(from), Some(to)) = (from, to)
                && from >= to
            {
                return Err(CliError::usage("--from is not before --to", "exchange them"));
            }
            if seller.is_none() && (from.is_none() || to.is_none()) {
                return Err(CliError::usage("a time has two ends", "give --from and --to"));
            }
            if seller.as_ref().is_some_and(|seller| !is_handle(seller)) {
                let help = "1-128 of A-Z a-z 0-9 . _ : -, no address and no number";
                return Err(CliError::usage("--seller is no seller's id", help));
            }
            let id = admin.hold(seller.as_deref(), *from, *to, reason).await?;
            out.line(&format!("held: {id}"))
        }
        HoldCommand::List => {
            let holds = admin.holds().await?;
            if holds.is_empty() {
                return out.note("no hold is in force");
            }
            let rows: Vec<Vec<String>> = holds.iter().map(row).collect();
            out.table(&["id", "seller", "from", "to", "since", "by", "reason"], &rows)
        }
        HoldCommand::End { id, reason } => {
            let reason = free_text("reason", reason)?;
            if admin.end_hold(id, reason).await? {
                out.line(&format!("ended: {id}"))
            } else {
                let help = "see `sendonce hold list`";
                Err(CliError::failed("there is no such hold in force", help))
            }
        }
    }
}

fn is_handle(text: &str) -> bool {
    let is_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
    (1..=128).contains(&text.len())
        && text.chars().all(is_char)
        && !crate::text::looks_like_personal_data(text)
}

fn row(hold: &LegalHold) -> Vec<String> {
    let at = |stamp: Option<Stamp>| stamp.map_or_else(|| "-".to_owned(), |at| at.to_string());
    vec![
        hold.id.clone(),
        hold.seller_id.clone().unwrap_or_else(|| "any".to_owned()),
        at(hold.from),
        at(hold.to),
        hold.since.to_string(),
        hold.actor.clone(),
        hold.reason.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::{HoldArgs, HoldCommand, hold, instant};
    use crate::cli::testing::{Memory, Screen};

    fn add(seller: Option<&str>, from: Option<&str>, to: Option<&str>, reason: &str) -> HoldArgs {
        let at = |text: Option<&str>| text.map(|text| instant(text).expect("an instant"));
        let (from, to) = (at(from), at(to));
        let (seller, reason) = (seller.map(str::to_owned), reason.to_owned());
        HoldArgs { command: HoldCommand::Add { seller, from, to, reason } }
    }

    #[tokio::test]
    async fn a_hold_names_what_it_keeps_and_no_person() {
        let memory = Memory::default();
        let run = async |args: HoldArgs| {
            let (mut out, screen) = Screen::new();
            hold(&args, &memory, &mut out).await.map(|()| screen.all())
        };
        let (from, to) = ("2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z");
        for (args, why) in [
            (add(None, None, None, "CASE-1"), "everything"),
            (add(None, Some(from), None, "CASE-1"), "two ends"),
            (add(None, Some(to), Some(from), "CASE-1"), "before"),
            (add(Some("a@example.com"), None, None, "CASE-1"), "seller"),
            (add(Some("seller_1042"), None, None, "ask a@example.com"), "address"),
        ] {
            let error = run(args).await.expect_err(why);
            assert!(error.exit == 2 && error.to_string().contains(why), "{error}");
            assert!(!error.to_string().contains("example"));
        }
        run(add(Some("seller_1042"), Some(from), Some(to), "CASE-1")).await.expect("holds");
        let list = run(HoldArgs { command: HoldCommand::List }).await.expect("lists");
        assert!(list.contains("seller_1042") && list.contains("CASE-1"), "{list}");
        let end = |id: &str| HoldArgs {
            command: HoldCommand::End { id: id.to_owned(), reason: "over".to_owned() },
        };
        run(end("hold-0")).await.expect("ends");
        assert_eq!(run(end("hold-0")).await.expect_err("is over").exit, 1);
    }
}
