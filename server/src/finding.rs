//! What an examination found: one line, and what to do about it.

use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Good,
    /// It works, and somebody should know.
    Warning,
    /// A promise does not hold, or the server would not start.
    Bad,
}

impl Level {
    /// The word that people see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, such as `database.schema`.
    pub check: String,
    pub level: Level,
    /// One line; never a secret, an address or a number of anybody.
    pub what: String,
    /// Empty where nothing is to be done.
    pub next_step: String,
}

impl Finding {
    #[must_use]
    pub fn good(check: &str, what: &str) -> Self {
        Self::of(check, Level::Good, what, "")
    }

    #[must_use]
    pub fn warning(check: &str, what: &str, next_step: &str) -> Self {
        Self::of(check, Level::Warning, what, next_step)
    }

    #[must_use]
    pub fn bad(check: &str, what: &str, next_step: &str) -> Self {
        Self::of(check, Level::Bad, what, next_step)
    }

    fn of(check: &str, level: Level, what: &str, next_step: &str) -> Self {
        Self {
            check: check.to_owned(),
            level,
            what: what.to_owned(),
            next_step: next_step.to_owned(),
        }
    }
}
