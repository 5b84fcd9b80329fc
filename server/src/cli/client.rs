//! `sendonce client …`

use clap::builder::PossibleValuesParser;

use super::{Admin, CliError, Out, free_text};

/// What a client's key may be used for.
pub const SCOPES: [&str; 5] = ["admit", "status", "consume", "cancel", "freeze"];

/// The longest name of a client.
const NAME_CHARS_MAX: usize = 64;

/// What to do with clients.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Add a client. Its key is printed once, alone on standard output.
    #[command(
        after_help = "Example:\n  sendonce client add --name identity --scope admit --scope status > key"
    )]
    Add {
        /// A name for people, 1-64 characters.
        #[arg(long)]
        name: String,
        /// What the key may be used for; repeat it, or separate by commas.
        #[arg(
            long = "scope",
            required = true,
            value_delimiter = ',',
            value_parser = PossibleValuesParser::new(SCOPES)
        )]
        scopes: Vec<String>,
    },
    /// List the clients.
    #[command(after_help = "Example:\n  sendonce client list --json")]
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make a client's key invalid, at once and for ever.
    #[command(after_help = "Example:\n  sendonce client revoke identity")]
    Revoke {
        /// The client's id or name.
        client: String,
    },
}

/// Does what the command says.
///
/// # Errors
/// When an argument is wrong, there is no such client, or the ledger does not answer.
pub async fn run(args: &Args, admin: &dyn Admin, out: &mut Out) -> Result<(), CliError> {
    match &args.command {
        Command::Add { name, scopes } => {
            let name = free_text("name", name)?;
            if name.chars().count() > NAME_CHARS_MAX {
                let message = format!("the name is longer than {NAME_CHARS_MAX} characters");
                return Err(CliError::usage(&message, "shorten it"));
            }
            let mut scopes = scopes.clone();
            scopes.sort();
            scopes.dedup();
            let made = admin.add_client(name, &scopes).await?;
            out.line(made.key.expose())?;
            out.note(&format!(
                "added client {} ({}) for {}; the key is shown this once: store it now",
                made.client.name,
                made.client.id,
                made.client.scopes.join(", ")
            ))
        }
        Command::List { json } => {
            let clients = admin.list_clients().await?;
            if *json {
                return out.json(&clients);
            }
            if clients.is_empty() {
                return out.note("there are no clients yet; add one with `sendonce client add`");
            }
            let rows: Vec<Vec<String>> = clients
                .into_iter()
                .map(|client| {
                    let revoked = client.revoked_at.map(|at| at.to_string()).unwrap_or_default();
                    let scopes = client.scopes.join(",");
                    vec![client.id, client.name, scopes, client.created_at.to_string(), revoked]
                })
                .collect();
            out.table(&["id", "name", "scopes", "created (UTC)", "revoked (UTC)"], &rows)
        }
        Command::Revoke { client } => {
            if !admin.revoke_client(client.trim()).await? {
                let help = "see `sendonce client list`";
                return Err(CliError::failed("there is no client with this id or name", help));
            }
            out.line("the client is revoked: its key is refused from now on")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Args, Command, run};
    use crate::cli::CliError;
    use crate::cli::testing::{Memory, Screen};

    async fn client(command: Command, admin: &Memory) -> (Result<(), CliError>, Screen) {
        let (mut out, screen) = Screen::new();
        let done = run(&Args { command }, admin, &mut out).await;
        (done, screen)
    }

    fn add(name: &str, scopes: &[&str]) -> Command {
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        Command::Add { name: name.to_owned(), scopes }
    }

    #[tokio::test]
    async fn the_key_stands_alone_on_standard_output() {
        let admin = Memory::default();
        let (done, screen) = client(add("identity", &["status", "admit", "status"]), &admin).await;
        assert_eq!(done, Ok(()));
        assert_eq!(screen.results(), "key-of-client-1\n");
        assert_eq!(
            screen.notes(),
            "added client identity (client-1) for admit, status; the key is shown this once: store it \
             now\n"
        );
        let (_, screen) = client(Command::List { json: false }, &admin).await;
        assert!(screen.results().contains("client-1  identity  admit,status  2026-"));
        assert!(!screen.all().contains("key-of"));
    }

    #[tokio::test]
    async fn a_name_is_kept_so_it_is_nobodys_address() {
        let admin = Memory::default();
        for name in ["ops@example.com", "+15550100001", "", &"x".repeat(65)] {
            let (done, screen) = client(add(name, &["admit"]), &admin).await;
            assert_eq!(done.expect_err(name).exit, 2);
            assert_eq!(screen.results(), "");
        }
    }

    #[tokio::test]
    async fn a_client_is_revoked_by_id_or_name() {
        let admin = Memory::default();
        for _ in 0..2 {
            let name = format!("c{}", admin.client_count());
            let _ = client(add(&name, &["admit"]), &admin).await;
        }
        for name in ["client-1", "c1"] {
            let (done, _) = client(Command::Revoke { client: name.to_owned() }, &admin).await;
            assert_eq!(done, Ok(()), "{name}");
        }
        let (done, _) = client(Command::Revoke { client: "other".to_owned() }, &admin).await;
        assert_eq!(done.expect_err("unknown").exit, 1);
    }
}
