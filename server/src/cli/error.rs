//! What a command says when it cannot do what was asked.

use std::fmt;

use super::admin::AdminError;
use crate::config::ConfigError;

/// Failed.
pub const FAILED: u8 = 1;
/// Wrong usage or configuration.
pub const USAGE: u8 = 2;

/// One line with the next step; a refused configuration has one line a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliError {
    pub message: String,
    /// Empty where the message says it.
    pub next_step: String,
    pub exit: u8,
}

impl CliError {
    /// It was asked rightly and did not work.
    #[must_use]
    pub fn failed(message: &str, next_step: &str) -> Self {
        Self { message: message.to_owned(), next_step: next_step.to_owned(), exit: FAILED }
    }

    /// It was asked wrongly, or the configuration does not allow it.
    #[must_use]
    pub fn usage(message: &str, next_step: &str) -> Self {
        Self { message: message.to_owned(), next_step: next_step.to_owned(), exit: USAGE }
    }

    /// It did not work, and everything about it is printed already.
    #[must_use]
    pub const fn silent() -> Self {
        Self { message: String::new(), next_step: String::new(), exit: FAILED }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.next_step.is_empty() { Ok(()) } else { write!(f, "; {}", self.next_step) }
    }
}

impl std::error::Error for CliError {}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        Self::usage(&error.to_string(), "")
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        // Whoever read our output has seen enough, as in `sendonce find X | head`.
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::silent();
        }
        Self::failed(&format!("cannot write the output: {}", error.kind()), "check where it goes")
    }
}

impl From<AdminError> for CliError {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::Refused { message, next_step } => Self::failed(&message, &next_step),
            AdminError::Unavailable { message } => Self::failed(
                &format!("the database does not answer: {message}"),
                "check DATABASE_URL and that it runs, then try again",
            ),
        }
    }
}
