//! Who may do what (CONTRACT section 8). One table; the guard on the server asks it for every route,
//! server function and stream.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::UnknownWord;

/// An operator's role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Support,
    Compliance,
    Oncall,
    Admin,
}

impl Role {
    pub const ALL: &'static [Self] = &[Self::Support, Self::Compliance, Self::Oncall, Self::Admin];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Support => "support",
            Self::Compliance => "compliance",
            Self::Oncall => "oncall",
            Self::Admin => "admin",
        }
    }

    /// How a sentence names this role.
    #[must_use]
    pub const fn spoken(self) -> &'static str {
        match self {
            Self::Support => "support",
            Self::Compliance => "compliance",
            Self::Oncall => "on-call",
            Self::Admin => "admin",
        }
    }

    /// Whether this role has the permission.
    #[must_use]
    pub const fn may(self, permission: Permission) -> bool {
        use Permission as P;
        match self {
            Self::Admin => true,
            Self::Support => matches!(permission, P::SeeEvents | P::BlindLookup | P::SeeHealth),
            Self::Compliance => {
                matches!(permission, P::SeeEvents | P::BlindLookup | P::SeeHealth | P::Evidence)
            }
            Self::Oncall => {
                matches!(permission, P::SeeEvents | P::SeeHealth | P::Freeze)
            }
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        Self::ALL.iter().copied().find(|role| role.as_str() == text).ok_or(UnknownWord("role"))
    }
}

/// What a route, a server function or a stream asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Permission {
    /// Look up events, timelines, a seller's history; see what is frozen.
    SeeEvents,
    /// Look-up by phone or email.
    BlindLookup,
    /// Download evidence, see the operators' log and audit verdicts.
    Evidence,
    /// Freeze, unfreeze, acknowledge alerts.
    Freeze,
    /// SLO, alerts, workers, providers, capacity: to read.
    SeeHealth,
    /// Users, clients, configuration.
    Administer,
}

impl Permission {
    pub const ALL: &'static [Self] = &[
        Self::SeeEvents,
        Self::BlindLookup,
        Self::Evidence,
        Self::Freeze,
        Self::SeeHealth,
        Self::Administer,
    ];

    /// The sentence for somebody who may not: which roles may.
    #[must_use]
    pub fn who_may(self) -> String {
        let roles: Vec<&str> =
            Role::ALL.iter().filter(|role| role.may(self)).map(|role| role.spoken()).collect();
        match roles.as_slice() {
            [] => "Nobody may see this page.".to_owned(),
            [one] => format!("Only the role {one} may do this."),
            [first @ .., last] => {
                format!("Only the roles {} and {last} may do this.", first.join(", "))
            }
        }
    }
}
