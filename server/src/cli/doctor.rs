//! `sendonce doctor`

use super::{CliError, Out};
use crate::finding::{Finding, Level};

/// How to show it.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Examples:\n  sendonce doctor\n  sendonce doctor --json --config /etc/sendonce.toml\n\n\
                        It changes nothing and sends nothing. Exit code 1 when something is bad; warnings\n\
                        alone are 0."
)]
pub struct Args {
    /// As JSON, for machines.
    #[arg(long)]
    pub json: bool,
}

/// Prints one line for each thing that was looked at.
///
/// # Errors
/// With exit code 1 when something is bad.
pub fn run(args: &Args, findings: &[Finding], out: &mut Out) -> Result<(), CliError> {
    if args.json {
        out.json(&findings)?;
    } else {
        let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
        for finding in findings {
            let Finding { check, what, next_step, .. } = finding;
            let level = finding.level.as_str();
            let step = if next_step.is_empty() { String::new() } else { format!("; {next_step}") };
            out.line(&format!("{level:<8} {check:<width$}  {what}{step}"))?;
        }
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (bad, warnings) = (count(Level::Bad), count(Level::Warning));
    if bad > 0 {
        return Err(CliError::failed(
            &format!("{bad} bad, {warnings} warnings"),
            "do what they say",
        ));
    }
    out.note(&format!("nothing is bad; {warnings} warnings"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::testing::Screen;

    #[test]
    fn one_line_each_and_exit_code_1_when_something_is_bad() {
        let fine = [Finding::good("a", "is fine"), Finding::warning("bb", "is old", "renew it")];
        let (mut out, screen) = Screen::new();
        assert_eq!(run(&Args { json: false }, &fine, &mut out), Ok(()));
        assert_eq!(screen.results(), "good     a   is fine\nwarning  bb  is old; renew it\n");
        let bad = [Finding::bad("c", "is gone", "restore it")];
        let (mut out, screen) = Screen::new();
        let error = run(&Args { json: true }, &bad, &mut out).expect_err("bad");
        assert_eq!(error.exit, 1);
        let json: serde_json::Value = serde_json::from_str(&screen.results()).expect("JSON");
        assert_eq!(json[0]["level"], "bad");
        assert_eq!(json[0]["next_step"], "restore it");
    }
}
