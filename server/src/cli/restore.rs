//! `sendonce restore-complete`, `sendonce backup`

use std::path::PathBuf;

use app::model::Stamp;

use super::{Admin, CliError, Out};

/// What was lost.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Example:\n  sendonce restore-complete --lost-from 2026-09-21T14:00:00Z\n\n\
                        Run it once after a backup was restored, or after a failover to a standby that commits did\n\
                        not wait for, before anything is served. Nothing that may have been sent is sent again:\n\
                        what waited becomes unknown and is read by every id that it can have, and so is, for the\n\
                        longest lifetime of an event, each new event before its first call. It may be repeated."
)]
pub struct RestoreArgs {
    /// When the backup was begun, or the standby fell behind: an instant with its offset. What was
    /// committed from then on may be missing.
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub lost_from: Stamp,
    /// As JSON, for machines.
    #[arg(long)]
    pub json: bool,
}

/// Where the copy goes.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:\n  sendonce backup --to backups/sendonce.db\n\n\
                        Copies the embedded database while it is served. For PostgreSQL use pg_dump, as in\n\
                        scripts/backup.sh. The keys are not in it: keep sendonce.keys in another place.")]
pub struct BackupArgs {
    /// A file that does not exist yet.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
}

fn instant(text: &str) -> Result<Stamp, String> {
    Stamp::parse(text).map_err(|_| "expected an instant such as 2026-09-21T14:00:00Z".to_owned())
}

/// Completes a restore.
///
/// # Errors
/// When a process serves, the instant is in the future, or the ledger does not answer.
pub async fn restore(args: &RestoreArgs, admin: &dyn Admin, out: &mut Out) -> Result<(), CliError> {
    let done = admin.restore_complete(args.lost_from).await?;
    if args.json {
        return out.json(&done);
    }
    let epoch = &done.epoch;
    let verb = if done.is_repeat { "goes on" } else { "is open" };
    out.line(&format!("epoch {} {verb}; lost from {}", epoch.epoch, epoch.lost_from))?;
    let rows: Vec<Vec<String>> = [
        ("waited to be sent, unknown now", done.accepted),
        ("were being sent, unknown now", done.dispatching),
        ("were unknown, read by every id now", done.unknown),
    ]
    .into_iter()
    .map(|(what, count)| vec![count.to_string(), what.to_owned()])
    .collect();
    out.table(&["records", "what"], &rows)?;
    out.line(&format!("new events are read before their first call until {}", epoch.guarded_until))
}

/// Copies the embedded database.
///
/// # Errors
/// When the file exists, or the database is another server's.
pub async fn backup(args: &BackupArgs, admin: &dyn Admin, out: &mut Out) -> Result<(), CliError> {
    let began_at = admin.backup(&args.to).await?;
    out.line(&format!("copied to {}; if it is restored: --lost-from {began_at}", args.to.display()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::testing::{Memory, Screen};

    #[tokio::test]
    async fn it_says_how_many_records_became_unknown() {
        let lost_from = instant("2026-09-21T14:00:00+02:00").expect("an instant");
        let (mut out, screen) = Screen::new();
        let args = RestoreArgs { lost_from, json: false };
        restore(&args, &Memory::default(), &mut out).await.expect("completes");
        let text = screen.results();
        assert!(text.contains("epoch 2 is open; lost from 2026-09-21T12:00:00.000000Z"), "{text}");
        assert!(text.contains('3') && text.contains("unknown now"), "{text}");
    }

    #[test]
    fn an_instant_without_an_offset_is_refused() {
        for wrong in ["2026-09-21T14:00:00", "yesterday", ""] {
            assert!(instant(wrong).is_err(), "{wrong}");
            let line = ["sendonce", "restore-complete", "--lost-from", wrong];
            let error = crate::cli::Cli::try_parse_from(line).expect_err(wrong);
            assert_eq!(error.exit_code(), 2);
        }
    }
}
