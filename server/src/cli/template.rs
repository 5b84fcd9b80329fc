//! `sendonce template check` and `preview`: the texts before anybody gets them.

use std::path::PathBuf;

use app::model::{Channel, Stamp};

use super::{CliError, Out};
use crate::config::Config;
use crate::providers::template::segments;
use crate::providers::template::{Preview, Templates};

/// What to do with templates.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Look over every template and count the segments of text messages.
    #[command(after_help = "Example:\n  sendonce template check --folder templates")]
    Check(Folder),
    /// Show every message, filled with samples.
    #[command(after_help = "Example:\n  sendonce template preview --folder templates")]
    Preview(Folder),
}

/// Where the templates are.
#[derive(Debug, Clone, clap::Args)]
pub struct Folder {
    /// The folder; the configured one when not given.
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

/// When the sample's link dies.
const SAMPLE_END: Stamp = Stamp::from_micros(1_790_000_000_000_000);

/// Prints what there is.
///
/// # Errors
/// Every fault, one a line; exit code 1.
pub fn run(args: &Args, config: &Config, out: &mut Out) -> Result<(), CliError> {
    let (Command::Check(asked) | Command::Preview(asked)) = &args.command;
    let templates = match &asked.folder {
        None => config.templates.clone(),
        Some(folder) => match Templates::load(folder, &config.templates_locale) {
            Ok(templates) => templates,
            Err(faults) => {
                for fault in &faults {
                    out.note(&format!("{}: {}", fault.file, fault.message))?;
                }
                let message = format!("the templates have {} faults", faults.len());
                return Err(CliError::failed(&message, "mend them, then check again"));
            }
        },
    };
    let previews = templates.previews(SAMPLE_END, &config.dispatch.sender);
    if previews.is_empty() {
        return out.note("there are no templates: the built-in texts are sent");
    }
    match &args.command {
        Command::Check(_) => {
            let rows: Vec<Vec<String>> = previews.iter().map(row).collect();
            out.table(&["purpose", "channel", "language", "size", "html"], &rows)
        }
        Command::Preview(_) => previews.iter().try_for_each(|preview| show(preview, out)),
    }
}

fn size(preview: &Preview) -> String {
    if preview.channel == Channel::Email {
        return format!("{} characters", preview.text.chars().count());
    }
    let size = segments::size(&preview.text);
    let word = if size.segments == 1 { "segment" } else { "segments" };
    format!("{} {word}, {} units of {}", size.segments, size.units, size.alphabet.as_str())
}

fn row(preview: &Preview) -> Vec<String> {
    vec![
        preview.purpose.clone(),
        preview.channel.as_str().to_owned(),
        preview.locale.clone(),
        size(preview),
        if preview.has_html { "yes" } else { "no" }.to_owned(),
    ]
}

fn show(preview: &Preview, out: &mut Out) -> Result<(), CliError> {
    out.line(&format!(
        "{} {} {} ({})",
        preview.purpose,
        preview.channel,
        preview.locale,
        size(preview)
    ))?;
    if let Some(subject) = &preview.subject {
        out.line(&format!("Subject: {subject}"))?;
    }
    out.text(&preview.text)?;
    out.line("")
}

#[cfg(test)]
mod tests {
    use super::super::testing::Screen;
    use super::*;
    use crate::entropy::{Entropy as _, SystemEntropy};

    #[test]
    fn templates_are_checked_and_shown_with_their_segments() {
        let folder = std::env::temp_dir().join(format!("sendonce-cli-{}", SystemEntropy.hex(8)));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("password_reset.sms.en.txt");
        std::fs::write(&file, "{{ sender }}: {{ link }}").unwrap();
        let config = Config::parse("test", "", std::iter::empty()).unwrap();
        let run = |command: fn(Folder) -> Command, folder: Option<PathBuf>| {
            let (mut out, screen) = Screen::new();
            let done = super::run(&Args { command: command(Folder { folder }) }, &config, &mut out);
            (done.map_err(|error| (error.exit, error.to_string())), screen)
        };
        let (done, screen) = run(Command::Check, Some(folder.clone()));
        assert_eq!(done, Ok(()));
        assert!(screen.results().contains("1 segment, 68 units of GSM-7"), "{}", screen.results());
        let (_, screen) = run(Command::Preview, Some(folder.clone()));
        assert!(screen.results().contains("sendonce: https://example.com/reset/"));
        let (done, screen) = run(Command::Check, None);
        assert!(done.is_ok() && screen.notes().contains("built-in texts"));
        std::fs::write(&file, "{{ link }}").unwrap();
        let (done, screen) = run(Command::Check, Some(folder.clone()));
        assert_eq!(done.unwrap_err().0, 1);
        assert!(screen.notes().contains("password_reset.sms.en.txt: does not name the sender"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
