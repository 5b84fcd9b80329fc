//! `sendonce serve`

use std::collections::BTreeSet;
use std::fmt;

use clap::ValueEnum;

/// A part of the server that can run in a process of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Part {
    /// The API and the webhooks.
    Api,
    /// Claims and calls.
    Dispatch,
    /// Look-ups, expiry, lost leases.
    Reconcile,
    /// The pages.
    Ui,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Api, Self::Dispatch, Self::Reconcile, Self::Ui];

    /// The word on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Dispatch => "dispatch",
            Self::Reconcile => "reconcile",
            Self::Ui => "ui",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How to serve.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:\n  sendonce serve\n  \
                        sendonce serve --roles dispatch,reconcile --config /etc/sendonce.toml")]
pub struct Args {
    /// Run only these parts; several processes then share one PostgreSQL.
    #[arg(long, value_delimiter = ',', value_name = "ROLES")]
    pub roles: Vec<Part>,

    /// Make this configuration the one in force, although other processes run with another.
    #[arg(long)]
    pub activate_config: bool,
}

impl Args {
    /// The parts to run: all, unless some are named.
    #[must_use]
    pub fn parts(&self) -> BTreeSet<Part> {
        if self.roles.is_empty() { Part::ALL.into() } else { self.roles.iter().copied().collect() }
    }

    /// The parts as the workers' list shows them.
    #[must_use]
    pub fn parts_text(&self) -> String {
        self.parts().iter().map(|part| part.as_str()).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::{Args, Part};

    #[test]
    fn all_parts_run_unless_some_are_named() {
        let args = |roles: &[Part]| Args { roles: roles.to_vec(), activate_config: false };
        assert_eq!(args(&[]).parts_text(), "api,dispatch,reconcile,ui");
        assert_eq!(args(&[Part::Ui, Part::Api, Part::Ui]).parts_text(), "api,ui");
    }
}
