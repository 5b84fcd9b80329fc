//! `sendonce user …`

use app::model::Role;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

use super::{Admin, CliError, Input, Out};
use crate::password::{PASSWORD_CHARS_MAX, PASSWORD_CHARS_MIN};
use crate::providers::Secret;

/// What to do with operators.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Add an operator. The password is asked for twice; it has at least 12 characters.
    #[command(
        after_help = "Examples:\n  sendonce user add --email ops@example.com --role oncall\n  \
                            sendonce user add --email ops@example.com --role oncall --password-stdin < file"
    )]
    Add {
        /// The address that the operator signs in with.
        #[arg(long)]
        email: String,
        /// What the operator may do.
        #[arg(long, value_parser = role())]
        role: Role,
        /// Read the password from the first line of standard input.
        #[arg(long)]
        password_stdin: bool,
    },
    /// List the operators.
    #[command(after_help = "Example:\n  sendonce user list --json")]
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Set a new password; ends the operator's sessions.
    #[command(after_help = "Example:\n  sendonce user passwd --email ops@example.com")]
    Passwd {
        /// The address that the operator signs in with.
        #[arg(long)]
        email: String,
        /// Read the password from the first line of standard input.
        #[arg(long)]
        password_stdin: bool,
    },
    /// Refuse an operator from now on; ends the operator's sessions.
    #[command(after_help = "Example:\n  sendonce user disable --email ops@example.com")]
    Disable {
        /// The address that the operator signs in with.
        #[arg(long)]
        email: String,
    },
}

fn role() -> impl clap::builder::TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.iter().map(|role| role.as_str()))
        .try_map(|word| word.parse::<Role>())
}

/// Does what the command says.
///
/// # Errors
/// When an argument is wrong, there is no such operator, or the ledger does not answer.
pub async fn run(
    args: &Args,
    admin: &dyn Admin,
    input: &mut dyn Input,
    out: &mut Out,
) -> Result<(), CliError> {
    match &args.command {
        Command::Add { email, role, password_stdin } => {
            let email = &address(email)?;
            let password = password(*password_stdin, input)?;
            strong_enough(&password, email)?;
            let user = admin.add_user(email, *role, &password).await?;
            out.line(&format!("added {} as {} ({})", user.email, user.role, user.id))
        }
        Command::List { json } => {
            let users = admin.list_users().await?;
            if *json {
                return out.json(&users);
            }
            if users.is_empty() {
                return out.note("there are no operators yet; add one with `sendonce user add`");
            }
            let rows: Vec<Vec<String>> = users
                .into_iter()
                .map(|user| {
                    let disabled = user.disabled_at.map(|at| at.to_string()).unwrap_or_default();
                    let role = user.role.to_string();
                    vec![user.id, user.email, role, user.created_at.to_string(), disabled]
                })
                .collect();
            out.table(&["id", "email", "role", "created (UTC)", "disabled (UTC)"], &rows)
        }
        Command::Passwd { email, password_stdin } => {
            let email = &address(email)?;
            let password = password(*password_stdin, input)?;
            strong_enough(&password, email)?;
            known(admin.set_password(email, &password).await?)?;
            out.line("the password is set and the operator's sessions have ended")
        }
        Command::Disable { email } => {
            known(admin.disable_user(&address(email)?).await?)?;
            out.line("the operator is disabled and the operator's sessions have ended")
        }
    }
}

fn known(is_known: bool) -> Result<(), CliError> {
    if is_known {
        return Ok(());
    }
    Err(CliError::failed("there is no operator with this address", "see `sendonce user list`"))
}

/// The address as sign-in compares it, if it can be one.
fn address(email: &str) -> Result<String, CliError> {
    crate::password::address(email).ok_or_else(|| {
        CliError::usage("--email is no email address", "write it as name@example.com")
    })
}

/// Asks twice, or reads one line of standard input.
fn password(from_stdin: bool, input: &mut dyn Input) -> Result<Secret, CliError> {
    let password = if from_stdin {
        let line = input.line().map_err(|error| {
            let message = format!("cannot read the password: {}", error.kind());
            CliError::usage(&message, "give it as the first line of standard input")
        })?;
        Secret::new(line)
    } else {
        let mut ask = |prompt: &str| {
            input.hidden(prompt).map(Secret::new).map_err(|_| {
                CliError::usage(
                    "there is no terminal to ask for the password",
                    "use --password-stdin",
                )
            })
        };
        let prompt = format!("Password (at least {PASSWORD_CHARS_MIN} characters): ");
        let first = ask(&prompt)?;
        long_enough(&first)?;
        if ask("The same again: ")? != first {
            return Err(CliError::usage("the two passwords differ", "try again"));
        }
        first
    };
    long_enough(&password)?;
    Ok(password)
}

fn long_enough(password: &Secret) -> Result<(), CliError> {
    let chars = password.expose().chars().count();
    if chars < PASSWORD_CHARS_MIN {
        let message = format!("the password has fewer than {PASSWORD_CHARS_MIN} characters");
        return Err(CliError::usage(&message, "choose a longer one"));
    }
    if chars > PASSWORD_CHARS_MAX || password.expose().chars().any(char::is_control) {
        let message = format!(
            "the password has more than {PASSWORD_CHARS_MAX} characters or control characters"
        );
        return Err(CliError::usage(&message, "choose another one"));
    }
    Ok(())
}

/// Not the first guess of somebody who knows the address.
fn strong_enough(password: &Secret, email: &str) -> Result<(), CliError> {
    match crate::password::fault_of(password.expose(), email) {
        None => Ok(()),
        Some(_) => Err(CliError::usage(
            "the password is the operator's own address, or one character repeated",
            "choose another one",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::{Args, Command, run};
    use crate::cli::CliError;
    use crate::cli::testing::{Memory, Screen, Typed};

    const GOOD: &str = "correct horse battery";

    async fn user(
        command: Command,
        admin: &Memory,
        typed: &[&str],
    ) -> (Result<(), CliError>, Screen) {
        let (mut out, screen) = Screen::new();
        let done = run(&Args { command }, admin, &mut Typed::new(typed), &mut out).await;
        (done, screen)
    }

    fn add(email: &str, password_stdin: bool) -> Command {
        Command::Add { email: email.to_owned(), role: app::model::Role::Oncall, password_stdin }
    }

    #[tokio::test]
    async fn an_operator_is_added_with_a_password_from_either_source() {
        let admin = Memory::default();
        let (done, screen) = user(add(" a@example.com ", true), &admin, &[GOOD]).await;
        assert_eq!(done, Ok(()));
        assert_eq!(screen.results(), "added a@example.com as oncall (user-1)\n");
        let (done, screen) = user(add("b@example.com", false), &admin, &[GOOD, GOOD]).await;
        assert_eq!(done, Ok(()));
        assert!(!screen.all().contains(GOOD));
        assert_eq!(admin.passwords(), [GOOD, GOOD]);

        let (_, screen) = user(Command::List { json: false }, &admin, &[]).await;
        let lines: Vec<String> = screen.results().lines().map(str::to_owned).collect();
        assert!(
            lines[0].starts_with("ID      EMAIL          ROLE    CREATED (UTC)"),
            "{}",
            lines[0]
        );
        assert!(lines[1].starts_with("user-1  a@example.com  oncall  2026-"), "{}", lines[1]);
        assert!(lines[1].ends_with("Z  -"), "{}", lines[1]);
        let (_, screen) = user(Command::List { json: true }, &admin, &[]).await;
        assert!(screen.results().trim_start().starts_with('['));
    }

    #[tokio::test]
    async fn weak_and_mistyped_passwords_are_refused_with_exit_code_2() {
        let admin = Memory::default();
        for (from_stdin, typed, words) in [
            (true, vec!["short"], "fewer than 12"),
            (true, vec![""], "fewer than 12"),
            (false, vec!["short"], "fewer than 12"),
            (false, vec![GOOD, "correct horse batterx"], "differ"),
            (false, vec![], "no terminal"),
            (true, vec![], "cannot read"),
        ] {
            let (done, screen) = user(add("a@example.com", from_stdin), &admin, &typed).await;
            let error = done.expect_err(words);
            assert_eq!(error.exit, 2);
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(screen.all(), "");
        }
        for email in ["", "a", "@example.com", "a@", "a@b@c", "a b@example.com", "a\n@example.com"]
        {
            let (done, _) = user(add(email, true), &admin, &[GOOD]).await;
            let error = done.expect_err(email);
            assert!(error.exit == 2 && error.message == "--email is no email address");
        }
        assert!(admin.passwords().is_empty());
    }

    #[tokio::test]
    async fn who_is_not_there_cannot_be_changed() {
        let admin = Memory::default();
        let email = "nobody@example.com".to_owned();
        let (done, _) = user(Command::Disable { email: email.clone() }, &admin, &[]).await;
        assert_eq!(done.expect_err("nobody").exit, 1);
        let passwd = Command::Passwd { email, password_stdin: true };
        let (done, _) = user(passwd, &admin, &[GOOD]).await;
        let error = done.expect_err("nobody");
        assert!(error.exit == 1 && !error.to_string().contains('@'));
        let (done, screen) = user(Command::List { json: false }, &admin, &[]).await;
        assert_eq!((done, screen.results()), (Ok(()), String::new()));
    }

    #[tokio::test]
    async fn a_taken_address_is_refused_in_one_line() {
        let admin = Memory::default();
        let _ = user(add("a@example.com", true), &admin, &[GOOD]).await;
        let (done, _) = user(add("a@example.com", true), &admin, &[GOOD]).await;
        let error = done.expect_err("taken");
        assert_eq!((error.exit, error.to_string().lines().count()), (1, 1));
    }

    #[tokio::test]
    async fn an_operator_is_disabled_and_gets_a_new_password() {
        let admin = Memory::default();
        let _ = user(add("a@example.com", true), &admin, &[GOOD]).await;
        let email = "a@example.com".to_owned();
        let passwd = Command::Passwd { email: email.clone(), password_stdin: true };
        let (done, _) = user(passwd, &admin, &["another good one"]).await;
        assert_eq!(done, Ok(()));
        assert_eq!(admin.passwords(), ["another good one"]);
        let (done, _) = user(Command::Disable { email }, &admin, &[]).await;
        assert_eq!(done, Ok(()));
        let (_, screen) = user(Command::List { json: false }, &admin, &[]).await;
        assert!(!screen.results().contains("Z  -"), "{}", screen.results());
    }
}
