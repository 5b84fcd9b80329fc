//! `sendonce config check`

use super::{CliError, Out};
use crate::config::{Config, ConfigError};

/// What to do with the configuration.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Validate it, print what is in force with secrets hidden, refuse what is unsafe.
    #[command(after_help = "Example:\n  sendonce config check --config /etc/sendonce.toml")]
    Check,
}

/// Prints what is in force, then every problem.
///
/// # Errors
/// With exit code 2 when there is a problem.
pub fn run(args: &Args, config: Result<Config, CliError>, out: &mut Out) -> Result<(), CliError> {
    let Command::Check = args.command;
    let config = config?;
    out.text(&config.effective())?;
    for warning in config.warnings() {
        out.note(&format!("warning: {warning}"))?;
    }
    ensure_safe(&config)?;
    out.note("the configuration is good")
}

/// Refuses every unsafe combination.
///
/// # Errors
/// One line a problem; exit code 2.
pub fn ensure_safe(config: &Config) -> Result<(), CliError> {
    let problems = config.check();
    if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }.into()) }
}

#[cfg(test)]
mod tests {
    use super::{Args, Command, run};
    use crate::cli::CliError;
    use crate::cli::testing::Screen;
    use crate::config::Config;

    fn check(text: &str) -> (Result<(), CliError>, Screen) {
        let (mut out, screen) = Screen::new();
        let config = Config::parse("sendonce.toml", text, std::iter::empty()).map_err(Into::into);
        let done = run(&Args { command: Command::Check }, config, &mut out);
        (done, screen)
    }

    #[test]
    fn a_good_configuration_is_printed() {
        let (done, screen) = check("");
        assert_eq!(done, Ok(()));
        assert!(screen.results().contains("[dispatch]\n"), "{}", screen.results());
        assert_eq!(screen.notes(), "the configuration is good\n");
    }

    #[test]
    fn every_problem_is_one_line_and_exit_code_2() {
        let (done, screen) = check("[dispatch]\nlease = \"2s\"\n[routes]\nsms = [\"nobody\"]");
        let error = done.expect_err("unsafe");
        assert_eq!(error.exit, 2);
        assert_eq!(error.to_string().lines().count(), 2, "{error}");
        assert!(
            screen.results().contains("lease = \"2s\""),
            "what is in force is shown all the same"
        );
        let (done, _) = check("[dispatch]\nlaese = \"2s\"");
        assert_eq!(done.expect_err("unknown key").exit, 2);
    }
}
