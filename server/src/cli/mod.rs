//! The command line: what each command takes, does and prints.
//!
//! Commands know nothing of stores or sockets: they work on [`Admin`] and [`Host`], which the wiring
//! implements. Only [`out`] prints. Results go to standard output, everything else to standard error;
//! an error is one line with the next step. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.

pub mod admin;
pub mod admit;
pub mod audit;
pub mod capacity;
pub mod client;
pub mod config;
pub mod doctor;
pub mod error;
pub mod evidence;
pub mod find;
pub mod freeze;
pub mod healthcheck;
pub mod input;
pub mod keys;
pub mod out;
pub mod provider;
pub mod rehearse;
pub mod restore;
pub mod retention;
pub mod serve;
pub mod simulator;
pub mod template;
#[cfg(test)]
mod testing;
pub mod token_id;
pub mod user;
pub mod workers;

use std::path::PathBuf;
use std::process::ExitCode;

use async_trait::async_trait;
use clap::{Parser, Subcommand};

pub use self::admin::{Admin, AdminError, Found, LineAnswer, NewClient};
pub use self::error::CliError;
pub use self::input::{Input, Terminal};
pub use self::out::Out;
use crate::config::{Config, ProviderConfig};
use crate::rehearsal::Rehearsal;
use crate::store::Trial;
use crate::trial::{Report, Target};

/// Admits each password-reset event once, sends at most one notification for it, and proves it.
#[derive(Debug, Parser)]
#[command(
    name = "sendonce",
    version,
    about,
    after_help = "Examples:\n  sendonce config check\n  sendonce serve --config sendonce.toml\n  \
                  sendonce find 0193a5b0-7c1e-7d3f-8a2b-0123456789ab\n\n\
                  Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.",
    disable_help_subcommand = true
)]
pub struct Cli {
    /// Configuration file; ./sendonce.toml where it exists, when not given.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,

    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run admission, dispatch, reconciliation and the pages.
    Serve(serve::Args),
    /// Apply the database migrations.
    #[command(
        after_help = "Example:\n  DATABASE_URL=postgres://sendonce@db/sendonce sendonce migrate"
    )]
    Migrate,
    /// Look at the configuration.
    Config(config::Args),
    /// Operators, who sign in to the pages.
    User(user::Args),
    /// Clients, who call the API.
    Client(client::Args),
    /// Admit real events from a file or standard input.
    Admit(admit::Args),
    /// Show a notification and its timeline.
    Find(find::Args),
    /// Stop all calls of a scope, on every node.
    Freeze(freeze::FreezeArgs),
    /// Let the calls of a scope go on.
    Unfreeze(freeze::UnfreezeArgs),
    /// Show what is frozen.
    Freezes(freeze::FreezesArgs),
    /// Show the processes, their versions and their lease semantics.
    Workers(workers::Args),
    /// Show what the retention keeps, and what goes next.
    Retention(retention::Args),
    /// The keys of the fingerprints: rotate, or drop one to erase.
    Keys(keys::Args),
    /// Legal holds: what they cover is not purged.
    Hold(retention::HoldArgs),
    /// Look at the texts before anybody gets them.
    Template(template::Args),
    /// Evidence packs: files that a stranger can check.
    Evidence(evidence::Args),
    /// Check the log of facts.
    Audit(audit::Args),
    /// Name the token of a hash, for whoever holds the keys.
    TokenId(token_id::Args),
    /// After a restore or a failover: see that nothing that may have been sent is sent again.
    RestoreComplete(restore::RestoreArgs),
    /// Copy the embedded database while it is served.
    Backup(restore::BackupArgs),
    /// Say how many workers and reads a load needs.
    Capacity(capacity::Args),
    /// Run the seven narratives and take their evidence away.
    Rehearse(rehearse::Args),
    /// Run the provider simulator as a server.
    Simulator(simulator::Args),
    /// Providers and what they can do.
    Provider(provider::Args),
    /// Look at everything that can be wrong, and say what to do.
    Doctor(doctor::Args),
    /// Ask a running server whether it is ready.
    Healthcheck(healthcheck::Args),
}

/// What the binary around the command line does for it.
#[async_trait]
pub trait Host: Send + Sync {
    /// Opens the ledger for a command. Refuses a schema that it does not know.
    async fn open(&self, config: &Config) -> Result<Box<dyn Admin>, CliError>;

    /// Applies the migrations; returns one sentence on what was done.
    async fn migrate(&self, config: &Config) -> Result<String, CliError>;

    /// Serves until the process is told to end.
    async fn serve(&self, config: Config, options: serve::Args) -> Result<(), CliError>;

    /// Looks at everything, whether or not the configuration can be read. Changes nothing.
    async fn doctor(
        &self,
        config: Result<Config, crate::config::ConfigError>,
    ) -> Vec<crate::finding::Finding>;

    /// Serves the simulator until the process is told to end.
    async fn simulator(&self, options: simulator::Args) -> Result<(), CliError>;

    /// Runs the ambiguity trial of one provider.
    async fn trial(
        &self,
        name: &str,
        provider: &ProviderConfig,
        target: &Target,
    ) -> Result<Report, CliError>;

    /// Runs the narratives with one provider.
    async fn rehearse(&self, name: &str, provider: &ProviderConfig) -> Result<Rehearsal, CliError>;

    /// Keeps a trial's report in the ledger.
    async fn keep_trial(&self, config: &Config, trial: &Trial) -> Result<(), CliError>;
}

/// Reads the arguments. Prints help or what is wrong with them, and ends the process then (0 or 2).
#[must_use]
pub fn parse() -> Cli {
    match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if may_be_printed(&error) => error.exit(),
        Err(_) => {
            let help = "put text with spaces in quotes, and see --help";
            let error = CliError::usage("an argument is not understood", help);
            let _ = report(Err(error), &mut Out::process());
            std::process::exit(i32::from(error::USAGE));
        }
    }
}

/// The argument parser repeats what it does not understand. An address or number is not repeated.
fn may_be_printed(error: &clap::Error) -> bool {
    !error.use_stderr() || !crate::text::looks_like_personal_data(&error.to_string())
}

impl Cli {
    /// Reads the configuration that this command line names.
    ///
    /// # Errors
    /// Every problem, one a line; exit code 2.
    pub fn load(&self) -> Result<Config, CliError> {
        Ok(Config::load(self.config.as_deref(), crate::config::environment())?)
    }
}

/// Does what the command says.
///
/// # Errors
/// [`CliError`]; hand it to [`report`].
pub async fn run(
    cli: &Cli,
    host: &dyn Host,
    input: &mut dyn Input,
    out: &mut Out,
) -> Result<(), CliError> {
    match &cli.command {
        Command::Serve(args) => {
            let config = cli.load()?;
            config::ensure_safe(&config)?;
            for warning in config.warnings() {
                out.note(&format!("warning: {warning}"))?;
            }
            host.serve(config, args.clone()).await
        }
        Command::Migrate => {
            let done = host.migrate(&cli.load()?).await?;
            out.line(&done)
        }
        Command::Config(args) => config::run(args, cli.load(), out),
        Command::Simulator(args) => host.simulator(args.clone()).await,
        Command::Rehearse(args) => rehearse::run(args, &cli.load()?, host, out).await,
        Command::Provider(args) => match args.command {
            provider::Command::List { .. } => provider::run(args, cli.load(), out),
            provider::Command::Trial { .. } => {
                provider::trial(args, cli.load(), host, input, out).await
            }
        },
        Command::Template(args) => template::run(args, &cli.load()?, out),
        Command::TokenId(args) => token_id::run(args, &cli.load()?, input, out),
        Command::Doctor(args) => {
            let config = Config::load(cli.config.as_deref(), crate::config::environment());
            doctor::run(args, &host.doctor(config).await, out)
        }
        Command::Evidence(evidence::Args { command: evidence::Command::Verify(args) }) => {
            evidence::check(args, out)
        }
        Command::Healthcheck(args) => healthcheck::run(args, || cli.load(), out).await,
        Command::Admit(args) => {
            let config = cli.load()?;
            config::ensure_safe(&config)?;
            let admin = host.open(&config).await?;
            let done = admit::run(args, admin.as_ref(), out).await;
            admin.close().await;
            done
        }
        // A freeze must not wait until somebody has mended the configuration: only what cannot be read
        // stops the commands below, not what is unsafe to serve with.
        command => {
            let config = cli.load()?;
            let admin = host.open(&config).await?;
            let done = with_ledger(command, &config, admin.as_ref(), input, out).await;
            admin.close().await;
            done
        }
    }
}

async fn with_ledger(
    command: &Command,
    config: &Config,
    admin: &dyn Admin,
    input: &mut dyn Input,
    out: &mut Out,
) -> Result<(), CliError> {
    match command {
        Command::User(args) => user::run(args, admin, input, out).await,
        Command::Client(args) => client::run(args, admin, out).await,
        Command::Find(args) => find::run(args, admin, out).await,
        Command::Freeze(args) => freeze::freeze(args, config, admin, out).await,
        Command::Unfreeze(args) => freeze::unfreeze(args, config, admin, out).await,
        Command::Freezes(args) => freeze::freezes(args, admin, out).await,
        Command::Workers(args) => workers::run(args, admin, out).await,
        Command::Capacity(args) => capacity::run(args, config, admin, out).await,
        Command::Audit(args) => audit::run(args, admin, out).await,
        Command::Evidence(evidence::Args { command: evidence::Command::Export(args) }) => {
            evidence::export(args, admin, out).await
        }
        Command::RestoreComplete(args) => restore::restore(args, admin, out).await,
        Command::Backup(args) => restore::backup(args, admin, out).await,
        Command::Retention(_) => retention::retention(config, admin, out).await,
        Command::Keys(args) => keys::run(args, admin, out).await,
        Command::Hold(args) => retention::hold(args, admin, out).await,
        _ => Err(CliError::failed("this command does not use the ledger", "report this")),
    }
}

/// Prints what went wrong, if anything, and gives the process's exit code.
#[must_use]
pub fn report(done: Result<(), CliError>, out: &mut Out) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            for line in error.to_string().lines() {
                // Nobody is left to tell when standard error is gone.
                let _ = out.note(&format!("error: {line}"));
            }
            ExitCode::from(error.exit)
        }
    }
}

/// The longest free text that a command takes.
const FREE_TEXT_CHARS_MAX: usize = 500;

/// Checks free text that will be kept: a reason or a name. The text is never repeated.
fn free_text<'a>(what: &str, text: &'a str) -> Result<&'a str, CliError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(CliError::usage(&format!("the {what} is empty"), "say it in a few words"));
    }
    if text.chars().count() > FREE_TEXT_CHARS_MAX || text.chars().any(char::is_control) {
        return Err(CliError::usage(
            &format!(
                "the {what} is longer than {FREE_TEXT_CHARS_MAX} characters or has line breaks"
            ),
            "say it in one short line",
        ));
    }
    if crate::text::looks_like_personal_data(text) {
        return Err(CliError::usage(
            &format!(
                "the {what} has what looks like an email address or phone number, and is kept"
            ),
            "name an incident or an event id instead, as in INC-2291",
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Cli;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn config_is_valid_after_every_command() {
        for command in [
            "serve --roles api,ui --activate-config",
            "serve",
            "migrate",
            "config check",
            "user add --email a@example.com --role admin --password-stdin",
            "user list",
            "user passwd --email a@example.com",
            "user disable --email a@example.com",
            "client add --name x --scope admit --scope status",
            "client list",
            "client revoke x",
            "admit --file -",
            "find ev-1",
            "freeze --reason INC-1",
            "freeze --scope channel:sms --reason INC-1 --review-in 30m",
            "unfreeze --scope all",
            "freezes",
            "workers --json",
            "capacity --peak 50 --json",
            "restore-complete --lost-from 2026-09-21T14:00:00Z --json",
            "backup --to copy.db",
            "evidence export --id ev-1 --out pack.zip",
            "evidence export --from 2026-03-12T00:00:00Z --to 2026-03-13T00:00:00Z --out pack.zip",
            "evidence verify pack.zip --json",
            "audit verify",
            "simulator --listen 127.0.0.1:4010 --smtp 127.0.0.1:4025",
            "provider list",
            "provider trial twilio --sandbox --json",
            "token-id --stdin",
            "doctor --json",
            "template check --folder x",
            "template preview",
            "healthcheck --url http://127.0.0.1:3000/readyz",
        ] {
            let line = format!("sendonce {command} --config /x/sendonce.toml");
            let cli =
                Cli::try_parse_from(line.split(' ')).unwrap_or_else(|e| panic!("{line}: {e}"));
            assert_eq!(cli.config, Some("/x/sendonce.toml".into()), "{line}");
        }
    }

    #[test]
    fn wrong_usage_is_exit_code_2() {
        for line in [
            "sendonce",
            "sendonce nothing",
            "sendonce serve --roles api,everything",
            "sendonce user add --email a@example.com",
            "sendonce user add --email a@example.com --role king",
            "sendonce client add --name x",
            "sendonce client add --name x --scope everything",
            "sendonce freeze",
            "sendonce freeze --reason x --review-in soon",
            "sendonce find",
            "sendonce evidence export --out pack.zip",
            "sendonce evidence export --id a --seller b --out pack.zip",
            "sendonce evidence export --from 2026-03-12T00:00:00Z --out pack.zip",
            "sendonce evidence verify",
            "sendonce token-id",
            "sendonce admit",
        ] {
            let error = Cli::try_parse_from(line.split(' ')).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn what_is_not_understood_is_repeated_unless_it_is_an_address_or_number() {
        for (line, may) in [
            ("sendonce find a b", true),
            ("sendonce find a b@example.com", false),
            ("sendonce find a 15550100001", false),
            ("sendonce client add --name x --scope b@example.com", false),
            ("sendonce --help", true),
        ] {
            let error = Cli::try_parse_from(line.split(' ')).expect_err(line);
            assert_eq!(super::may_be_printed(&error), may, "{line}: {error}");
        }
    }

    #[test]
    fn every_command_has_help_with_an_example() {
        fn walk(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            assert!(command.get_about().is_some(), "{path} has no sentence");
            let mut nested = command.get_subcommands().peekable();
            if nested.peek().is_none() {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example"), "{path} has no example");
            }
            nested.for_each(|command| walk(command, &path));
        }
        walk(&Cli::command(), "");
    }

    #[test]
    fn free_text_with_personal_data_is_refused_and_not_repeated() {
        assert_eq!(
            super::free_text("reason", " INC-2291 since 02:24 ").ok(),
            Some("INC-2291 since 02:24")
        );
        for text in
            ["ask a@example.com", "call +1 555 010 0001", "", "  ", "a\nb", &"x".repeat(501)]
        {
            let error = super::free_text("reason", text).expect_err(text);
            assert_eq!(error.exit, 2);
            assert!(!error.to_string().contains("example") && !error.to_string().contains("555"));
        }
    }
}
