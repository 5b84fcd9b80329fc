//! `sendonce evidence`

use std::io::Write as _;
use std::path::PathBuf;

use app::model::Stamp;

use super::{Admin, CliError, Out};
use crate::evidence::note::VerifierKey;
use crate::evidence::verdict::{Findings, Side};
use crate::evidence::verify;
use crate::text::looks_like_personal_data;

/// What to do.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Write an evidence pack: one file that a stranger can check.
    Export(ExportArgs),
    /// Check an evidence pack, offline.
    Verify(VerifyArgs),
}

#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Examples:\n  sendonce evidence export --id reset-2291 --out pack.zip\n  \
                        sendonce evidence export --seller seller_1042 --out pack.zip\n  \
                        sendonce evidence export --from 2026-03-12T00:00:00Z --to 2026-03-13T00:00:00Z --out pack.zip",
    group(clap::ArgGroup::new("what").required(true).args(["id", "seller", "from"]))
)]
pub struct ExportArgs {
    /// One notification, by our id or the caller's event id.
    #[arg(long)]
    pub id: Option<String>,
    /// All notifications of a seller.
    #[arg(long)]
    pub seller: Option<String>,
    /// Everything from this instant on (RFC 3339).
    #[arg(long, requires = "to")]
    pub from: Option<String>,
    /// And before this one.
    #[arg(long, requires = "from")]
    pub to: Option<String>,
    /// The file to write.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:\n  sendonce evidence verify pack.zip\n  \
                        sendonce evidence verify pack.zip --key log.example/sendonce/0a1b2c3d+530d903a+AekyeRrm…")]
pub struct VerifyArgs {
    /// The pack.
    pub pack: PathBuf,
    /// A public key that is trusted, instead of those in the pack. Can be given more than once.
    #[arg(long, value_name = "KEY")]
    pub key: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What an export is about, as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Our id or the caller's event id.
    Id(String),
    Seller(String),
    Time(Stamp, Stamp),
}

/// Writes a pack.
///
/// # Errors
/// When there is nothing to write, or nowhere to write it.
pub async fn export(args: &ExportArgs, admin: &dyn Admin, out: &mut Out) -> Result<(), CliError> {
    let wanted = wanted(args)?;
    // Before anything is asked, so that no export is recorded that nobody gets.
    let folder = args.out.parent().filter(|folder| !folder.as_os_str().is_empty());
    if args.out.is_dir() || folder.is_some_and(|folder| !folder.is_dir()) {
        return Err(CliError::usage(
            "--out is no file that can be written",
            "name a file in a folder that exists",
        ));
    }
    let pack = admin.export(&wanted).await?;
    write(&args.out, &pack.bytes).map_err(|error| {
        CliError::failed(
            &format!("the pack could not be written: {}", error.kind()),
            "check --out and the disk",
        )
    })?;
    if pack.is_capped {
        out.note("warning: the pack is full; later facts were left out (evidence.pack_facts_max)")?;
    }
    if pack.unsealed > 0 {
        out.note(&format!(
            "warning: {} facts were not sealed yet and are not in the pack",
            pack.unsealed
        ))?;
    }
    if args.json {
        return out.json(&serde_json::json!({
            "file": args.out.display().to_string(),
            "sha256": pack.sha256,
            "facts": pack.facts,
            "unsealed": pack.unsealed,
            "is_capped": pack.is_capped,
            "checkpoint_size": pack.checkpoint_size,
        }));
    }
    out.pairs(&[
        ("pack", args.out.display().to_string()),
        ("sha256", pack.sha256.clone()),
        ("facts", pack.facts.to_string()),
        ("unsealed", pack.unsealed.to_string()),
        ("checkpoint", format!("{} leaves", pack.checkpoint_size)),
    ])
}

fn wanted(args: &ExportArgs) -> Result<Wanted, CliError> {
    let instant = |text: &str, name: &str| {
        Stamp::parse(text).map_err(|_| {
            CliError::usage(&format!("{name} is no instant"), "write it like 2026-03-12T00:00:00Z")
        })
    };
    let handle = |text: &str, name: &str| {
        let is_handle = (1..=128).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-'));
        if is_handle && !looks_like_personal_data(text) {
            Ok(text.to_owned())
        } else {
            Err(CliError::usage(
                &format!("{name} is no id"),
                "give an id, never an address or a number",
            ))
        }
    };
    match args {
        ExportArgs { id: Some(id), .. } => Ok(Wanted::Id(handle(id, "--id")?)),
        ExportArgs { seller: Some(seller), .. } => Ok(Wanted::Seller(handle(seller, "--seller")?)),
        ExportArgs { from: Some(from), to: Some(to), .. } => {
            let (from, to) = (instant(from, "--from")?, instant(to, "--to")?);
            if from >= to {
                return Err(CliError::usage("--to is not after --from", "exchange them"));
            }
            Ok(Wanted::Time(from, to))
        }
        _ => {
            Err(CliError::usage("nothing was asked for", "give --id, --seller, or --from and --to"))
        }
    }
}

/// Written whole beside the place, then moved into it.
fn write(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let mut file = std::fs::File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}

/// Checks a pack.
///
/// # Errors
/// When anything is found, or this is no pack.
pub fn check(args: &VerifyArgs, out: &mut Out) -> Result<(), CliError> {
    let keys: Vec<VerifierKey> =
        args.key.iter().map(|key| VerifierKey::parse(key)).collect::<Option<_>>().ok_or_else(
            || {
                CliError::usage(
                    "--key is no public key",
                    "it looks like <name>+<8 hex digits>+<base64>",
                )
            },
        )?;
    let file = std::fs::File::open(&args.pack).map_err(|error| {
        CliError::failed(&format!("the pack cannot be read: {}", error.kind()), "check the path")
    })?;
    let report = verify::verify(file, &keys)
        .map_err(|error| CliError::failed(&error.to_string(), "fetch the pack again"))?;
    if args.json {
        out.json(&report)?;
    } else {
        out.pairs(&[
            ("log", report.origin.clone()),
            ("checkpoint", format!("{} leaves", report.checkpoint_size)),
            ("facts", report.facts.to_string()),
            ("unsealed", format!("{} (named, no fault)", report.unsealed)),
        ])?;
        for key in &report.keys {
            out.pairs(&[("key", key.clone())])?;
        }
        if report.keys_are_of_the_pack {
            out.note(
                "the key came with the pack: compare it with the one that the operator publishes",
            )?;
        }
        if report.is_capped {
            out.note("the pack is full: later facts were left out when it was made")?;
        }
    }
    verdicts(&report.findings, args.json, out)
}

/// Prints the findings and both verdicts; fails unless both hold.
pub(super) fn verdicts(findings: &Findings, json: bool, out: &mut Out) -> Result<(), CliError> {
    let word = |side| if findings.holds(side) { "holds" } else { "broken" };
    if !json {
        for finding in &findings.findings {
            let side = match finding.side {
                Side::Integrity => "integrity",
                Side::Completeness => "completeness",
            };
            let place =
                finding.index.map_or_else(String::new, |index| format!(" at place {index}"));
            out.line(&format!("{side}: {}{place}: {}", finding.code.as_str(), finding.text))?;
        }
        if findings.more > 0 {
            out.line(&format!("and {} more findings", findings.more))?;
        }
        out.pairs(&[
            ("integrity", word(Side::Integrity).to_owned()),
            ("completeness", word(Side::Completeness).to_owned()),
        ])?;
    }
    if findings.is_clean() {
        return Ok(());
    }
    let broken: Vec<&str> = [(Side::Integrity, "integrity"), (Side::Completeness, "completeness")]
        .into_iter()
        .filter(|(side, _)| !findings.holds(*side))
        .map(|(_, name)| name)
        .collect();
    Err(CliError::failed(
        &format!("broken: {}", broken.join(" and ")),
        "keep what you have as it is, and see docs/evidence.md for what each finding means",
    ))
}
