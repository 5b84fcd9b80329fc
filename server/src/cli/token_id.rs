//! `sendonce token-id`: from the hash of a token to the name under which the ledger knows it.
//!
//! For whoever holds the key file and wants to match a token with a record. Nothing is read from the
//! database, and nothing that was typed is repeated.

use super::{CliError, Input, Out};
use crate::admission::validate::{Kind, fault};
use crate::config::Config;
use crate::entropy::SystemEntropy;
use crate::keys::Keys;
use crate::providers::Secret;

/// What to translate.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Example:\n  printf %s \"$token\" | sha256sum | cut -c1-64 | sendonce token-id --stdin"
)]
pub struct Args {
    /// Read the token's SHA-256, 64 lowercase hex digits, from standard input; never the token itself.
    #[arg(long, required = true)]
    pub stdin: bool,
}

/// Prints the `token_id`.
///
/// # Errors
/// When there is no key file, or what was read is no hash.
pub fn run(
    _args: &Args,
    config: &Config,
    input: &mut dyn Input,
    out: &mut Out,
) -> Result<(), CliError> {
    let path = config.key_file();
    if !path.is_file() {
        let message = format!("there is no key file at {}", path.display());
        return Err(CliError::failed(&message, "run it where the keys of this installation are"));
    }
    let (keys, _) = Keys::load_or_create(&path, &SystemEntropy)
        .map_err(|error| CliError::failed(&error.to_string(), "check the file and its rights"))?;
    let hash = input
        .line()
        .map(|line| Secret::new(line.trim().to_owned()))
        .map_err(|_| CliError::usage("standard input cannot be read", "write the hash to it"))?;
    if fault(Kind::TokenHash, hash.expose()).is_some() {
        return Err(CliError::usage(
            "what was read is not 64 lowercase hex digits",
            "give the SHA-256 of the token, never the token itself",
        ));
    }
    out.line(&keys.token_id(hash.expose()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Screen, Typed};
    use super::*;
    use crate::entropy::Entropy as _;

    fn config(folder: &std::path::Path) -> Config {
        let text = format!("[server]\ndata_dir = \"{}\"\n", folder.display());
        Config::parse("test", &text, std::iter::empty()).unwrap()
    }

    #[test]
    fn a_hash_becomes_the_name_that_the_ledger_keeps() {
        let folder = std::env::temp_dir().join(format!("sendonce-keys-{}", SystemEntropy.hex(8)));
        let config = config(&folder);
        let run = |line: &str| {
            let (mut out, screen) = Screen::new();
            let done =
                super::run(&Args { stdin: true }, &config, &mut Typed::new(&[line]), &mut out);
            (done.map_err(|error| error.to_string()), screen.all())
        };
        let hash = "5e".repeat(32);
        let (missing, _) = run(&hash);
        assert!(missing.unwrap_err().contains("no key file"));
        assert!(!config.key_file().exists(), "no key is made by asking");
        let (keys, _) = Keys::load_or_create(&config.key_file(), &SystemEntropy).unwrap();
        let (done, printed) = run(&hash);
        assert_eq!(done, Ok(()));
        assert_eq!(printed.trim(), keys.token_id(&hash));
        let (refused, printed) = run("the-token-itself");
        assert!(!refused.unwrap_err().contains("the-token-itself") && printed.is_empty());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
