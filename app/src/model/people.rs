//! What the pages about people show: accounts, look-ups, the operators' log, the configuration.

use serde::{Deserialize, Serialize};

use super::{Capped, ClientView, Fact, FormState, Record, Role, Stamp, UserView};

/// `/lookup`: the answer to one blind look-up. What was typed is in none of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookupPage {
    pub kind: LookupKind,
    /// None before anything was asked.
    pub found: Option<LookupFound>,
    /// What is wrong with what was typed; the text itself is not repeated.
    pub problem: Option<String>,
    /// The form was of another session.
    pub stale: Option<String>,
}

/// What is looked up by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LookupKind {
    #[default]
    Phone,
    Email,
}

impl LookupKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Phone => "phone",
            Self::Email => "email",
        }
    }
}

/// Records whose message went to what was asked for, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookupFound {
    pub rows: Vec<Record>,
    /// There are more than are shown.
    pub more: bool,
}

/// Something that is shown once and kept nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownOnce {
    /// Whose or what it is: an operator's address, a client's name.
    pub of: String,
    pub secret: String,
}

/// `/admin/users`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsersPage {
    pub rows: Vec<UserRow>,
    pub form: FormState,
    pub action_key: String,
    /// A password that was just made.
    pub shown_once: Option<ShownOnce>,
    /// People of the identity provider need no password here.
    pub has_oidc: bool,
}

/// One operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserRow {
    pub user: UserView,
    pub has_second_factor: bool,
    /// Signs in by the identity provider; there is no password to reset.
    pub is_external: bool,
    pub sessions: u64,
}

/// `/admin/clients`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientsPage {
    pub rows: Vec<ClientView>,
    pub form: FormState,
    pub action_key: String,
    /// A key that was just made.
    pub shown_once: Option<ShownOnce>,
    /// Every scope there is.
    pub scopes: Vec<String>,
}

/// `/admin/config`: the effective configuration, secrets hidden.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigPage {
    pub sections: Vec<ConfigSection>,
    pub digest: String,
    pub database: String,
}

/// One section of it: name, and key with value as TOML.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigSection {
    pub name: String,
    pub lines: Vec<(String, String)>,
}

/// What an operator's act belongs to, as `/log` filters it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActGroup {
    Lookup,
    View,
    Export,
    Freeze,
    Account,
    Setting,
}

impl ActGroup {
    pub const ALL: &'static [Self] =
        &[Self::Lookup, Self::View, Self::Export, Self::Freeze, Self::Account, Self::Setting];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::View => "view",
            Self::Export => "export",
            Self::Freeze => "freeze",
            Self::Account => "account",
            Self::Setting => "setting",
        }
    }

    /// How the page names it.
    #[must_use]
    pub const fn spoken(self) -> &'static str {
        match self {
            Self::Lookup => "look-ups and searches",
            Self::View => "views",
            Self::Export => "exports",
            Self::Freeze => "freezes",
            Self::Account => "accounts and sign-ins",
            Self::Setting => "settings",
        }
    }
}

impl std::str::FromStr for ActGroup {
    type Err = super::UnknownWord;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .copied()
            .find(|group| group.as_str() == text)
            .ok_or(super::UnknownWord("group of acts"))
    }
}

/// The filter of `/log`, as typed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFilter {
    pub group: Option<ActGroup>,
    /// `operator:<id>`, `client:<id>`, `cli` or `system`.
    pub actor: String,
    pub after: String,
    pub before: String,
}

impl LogFilter {
    /// `/log` with this filter, at this page.
    #[must_use]
    pub fn href(&self, cursor: Option<&str>) -> String {
        let pairs = [
            ("group", self.group.map(ActGroup::as_str).unwrap_or_default()),
            ("actor", self.actor.as_str()),
            ("after", self.after.as_str()),
            ("before", self.before.as_str()),
            ("cursor", cursor.unwrap_or_default()),
        ];
        let query: Vec<String> = pairs
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("{name}={}", super::percent_encoded(value)))
            .collect();
        if query.is_empty() { "/log".to_owned() } else { format!("/log?{}", query.join("&")) }
    }
}

/// `/log`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPage {
    pub filter: LogFilter,
    pub problems: Vec<String>,
    /// Newest first.
    pub rows: Vec<Fact>,
    pub next_cursor: Option<String>,
    pub is_continued: bool,
    pub total: Capped,
    /// Operators by id, for the list of the filter and the names of the table. Admins alone see addresses.
    pub names: Vec<(String, String)>,
    /// An export ends here.
    pub export_rows_max: u64,
    pub stale: Option<String>,
}

/// `/evidence`: how the log stands, and the packs that were taken last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidencePage {
    pub origin: String,
    /// Facts that are sealed.
    pub size: u64,
    pub sealed_at: Option<Stamp>,
    pub unsealed: u64,
    pub unsealed_since: Option<Stamp>,
    pub verdict: Option<EvidenceVerdict>,
    /// A pack ends here.
    pub facts_max: u64,
    /// Facts of exports, newest first.
    pub taken: Vec<Fact>,
}

/// What the last check of the whole log came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceVerdict {
    pub integrity: bool,
    pub completeness: bool,
    /// Facts that were checked.
    pub size: u64,
    pub at: Stamp,
}

/// `/account`: one's own account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountPage {
    pub form: FormState,
    pub action_key: String,
    pub sessions: Vec<SessionView>,
    pub factor: FactorView,
    /// Signs in by the identity provider: no password here.
    pub is_external: bool,
    /// What must be done before anything else.
    pub owes: Option<Owes>,
    /// The role must have a second factor.
    pub factor_required: bool,
}

/// What an operator has to do before any other page opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Owes {
    Password,
    SecondFactor,
}

/// The second factor of an account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactorView {
    pub confirmed_at: Option<Stamp>,
    pub recovery_left: u64,
    /// While it is being set up: the picture (SVG) and the same as text.
    pub enrolment: Option<(String, String)>,
    /// Right after it was set up; shown once.
    pub recovery_codes: Vec<String>,
}

/// One session of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    /// Names it in a form; not the cookie and not derived back to it.
    pub handle: String,
    pub is_this: bool,
    /// Browser and system in coarse words.
    pub agent: String,
    pub signed_in_at: Stamp,
    pub seen_at: Stamp,
    pub expires_at: Stamp,
}

/// `/setup`: the first operator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetupPage {
    pub environment: String,
    pub version: String,
    pub csrf: String,
    pub token: String,
    pub email: String,
    pub problem: Option<String>,
}

/// The role words in the order of a form.
#[must_use]
pub fn role_choices() -> Vec<(String, String)> {
    Role::ALL.iter().map(|role| (role.as_str().to_owned(), role.spoken().to_owned())).collect()
}
