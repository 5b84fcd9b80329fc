//! `sendonce keys`

use super::{Admin, CliError, Out};

/// The keys of this installation.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

/// What to do with the keys of the fingerprints.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Show the versions whose keys are here.
    #[command(after_help = "Example:\n  sendonce keys list")]
    List,
    /// Make a new key for fingerprints. The ones before it still tell whose the earlier fingerprints are.
    #[command(after_help = "Example:\n  sendonce keys rotate\n\n\
                            Then copy the key file to every node and restart its processes, and back it up.")]
    Rotate,
    /// Erase: forget the key of an earlier version. Nobody can then tell whose its fingerprints are; everything
    /// else, the log too, verifies as before.
    #[command(after_help = "Example:\n  sendonce keys drop 1 --yes\n\n\
                            It is an erasure only when every copy of the key file is replaced, backups too.")]
    Drop {
        /// The version, as `keys list` shows it.
        version: u32,
        /// It cannot be undone.
        #[arg(long)]
        yes: bool,
    },
}

/// Shows, rotates or drops keys of fingerprints.
///
/// # Errors
/// When an argument is wrong, or the key file or the ledger does not answer.
pub async fn run(args: &Args, admin: &dyn Admin, out: &mut Out) -> Result<(), CliError> {
    match args.command {
        Command::List => {
            let versions = admin.fingerprint_versions().await?;
            let last = versions.last().copied();
            for version in versions {
                let word =
                    if Some(version) == last { "in use" } else { "for earlier fingerprints" };
                out.line(&format!("{version}  {word}"))?;
            }
            Ok(())
        }
        Command::Rotate => {
            let version = admin.rotate_fingerprint().await?;
            out.line(&format!(
                "fingerprints are made with version {version} once the processes are restarted"
            ))?;
            out.note("copy the key file to every node, restart, and back it up")
        }
        Command::Drop { version, yes } => {
            if !yes {
                let help = "add --yes: nobody can tell afterwards whose the fingerprints of this version are";
                return Err(CliError::usage("dropping a key cannot be undone", help));
            }
            if admin.drop_fingerprint(version).await? {
                out.line(&format!("version {version} is forgotten here"))?;
                out.note(
                    "replace every other copy of the key file too, backups as well, and restart",
                )
            } else {
                let help =
                    "see `sendonce keys list`; the version in use cannot be dropped: rotate first";
                Err(CliError::failed("there is no earlier key of this version", help))
            }
        }
    }
}
