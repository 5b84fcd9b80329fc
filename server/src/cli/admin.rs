//! The port through which commands reach the ledger.

use app::model::{ClientView, Fact, Freeze, Record, Role, Stamp, UserView, WorkerView};
use async_trait::async_trait;

use super::evidence::Wanted;
use crate::evidence::audit::AuditReport;
use crate::evidence::pack::Pack;
use crate::providers::Secret;
use crate::store::Restored;
use crate::store::{Due, LegalHold};

/// Why the ledger did not do it. The texts are shown as they are: no address, key or password in them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// It was refused, for a reason that the person can act on.
    #[error("{message}; {next_step}")]
    Refused { message: String, next_step: String },
    /// It did not answer, and may or may not have done it.
    #[error("{message}")]
    Unavailable { message: String },
}

/// A client, and the one time that its key is there.
#[derive(Debug)]
pub struct NewClient {
    pub client: ClientView,
    pub key: Secret,
}

/// A notification with its timeline, oldest fact first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub record: Record,
    pub facts: Vec<Fact>,
}

/// What the API would answer to one line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LineAnswer {
    /// 202, 400, 409, 410, 413, 429 or 503.
    pub status: u16,
    /// With 202: it was admitted before.
    pub is_replay: bool,
    /// The problem's `code`; empty with 202.
    pub code: String,
    /// The problem's `errors`: field and code.
    pub fields: Vec<(String, String)>,
}

/// What commands ask of the ledger. Every change is also a fact, with the command line as its actor.
#[async_trait]
pub trait Admin: Send + Sync {
    /// Adds an operator; refused when the address is taken.
    async fn add_user(
        &self,
        email: &str,
        role: Role,
        password: &Secret,
    ) -> Result<UserView, AdminError>;

    /// All operators, the disabled ones too, oldest first.
    async fn list_users(&self) -> Result<Vec<UserView>, AdminError>;

    /// Sets a new password and ends the operator's sessions; false when there is no such operator.
    async fn set_password(&self, email: &str, password: &Secret) -> Result<bool, AdminError>;

    /// Ends the operator's sessions and refuses new ones; false when there is no such operator.
    async fn disable_user(&self, email: &str) -> Result<bool, AdminError>;

    /// Adds a client with a new key; refused when the name is taken.
    async fn add_client(&self, name: &str, scopes: &[String]) -> Result<NewClient, AdminError>;

    /// All clients, the revoked ones too, oldest first.
    async fn list_clients(&self) -> Result<Vec<ClientView>, AdminError>;

    /// Makes the client's key invalid; false when there is no such client.
    async fn revoke_client(&self, id_or_name: &str) -> Result<bool, AdminError>;

    /// Freezes the scope. Once it returns, no call of the scope starts on any node. A scope that is frozen
    /// keeps its first actor and time. `review_in` in microseconds.
    async fn freeze(
        &self,
        scope: &str,
        reason: &str,
        review_in: Option<i64>,
    ) -> Result<Freeze, AdminError>;

    /// Reopens the scope; false when it was not frozen. The reason may be empty.
    async fn unfreeze(&self, scope: &str, reason: &str) -> Result<bool, AdminError>;

    /// The freezes in force, oldest first.
    async fn freezes(&self) -> Result<Vec<Freeze>, AdminError>;

    /// The processes that have signed life in the last day, oldest first.
    async fn workers(&self) -> Result<Vec<WorkerView>, AdminError>;

    /// What was admitted and read in the last seven days.
    async fn load(&self) -> Result<crate::slo::capacity::Load, AdminError>;

    /// Completes a restore or a failover after which commits from `lost_from` on may be missing. Refused
    /// while a process may send.
    async fn restore_complete(&self, lost_from: Stamp) -> Result<Restored, AdminError>;

    /// Copies the embedded database into a new file, and says when it began. Refused for any other.
    async fn backup(&self, to: &std::path::Path) -> Result<Stamp, AdminError>;
    /// Versions of the fingerprint keys that are here, oldest first; the last one is in use.
    async fn fingerprint_versions(&self) -> Result<Vec<u32>, AdminError>;

    /// Makes a new fingerprint key in the key file; gives its version.
    async fn rotate_fingerprint(&self) -> Result<u32, AdminError>;

    /// Removes an earlier fingerprint key from the key file; false when there is none of this version.
    async fn drop_fingerprint(&self, version: u32) -> Result<bool, AdminError>;

    /// What the retention would remove now.
    async fn due_for_purge(&self) -> Result<Due, AdminError>;

    /// Puts a legal hold on a seller, on a time (admitted from, before), or on both together; gives its id.
    async fn hold(
        &self,
        seller_id: Option<&str>,
        from: Option<Stamp>,
        to: Option<Stamp>,
        reason: &str,
    ) -> Result<String, AdminError>;

    /// Ends a legal hold; false when none of this id is in force.
    async fn end_hold(&self, id: &str, reason: &str) -> Result<bool, AdminError>;

    /// The legal holds in force, oldest first.
    async fn holds(&self) -> Result<Vec<LegalHold>, AdminError>;

    /// The notification of this id, else of this event id.
    async fn find(&self, id_or_event_id: &str) -> Result<Option<Found>, AdminError>;

    /// Judges each line exactly as `POST /v1/events` judges its body, and admits it. One answer a line, in
    /// order; of two lines that exclude one another the first one wins.
    async fn admit(&self, lines: &[Vec<u8>]) -> Result<Vec<LineAnswer>, AdminError>;

    /// Checks the whole log. The verdict is a fact.
    async fn audit(&self) -> Result<AuditReport, AdminError> {
        Err(AdminError::Unavailable { message: "this ledger has no log".to_owned() })
    }

    /// Makes an evidence pack, after waiting a little for the sealer. The export is a fact.
    async fn export(&self, _wanted: &Wanted) -> Result<Pack, AdminError> {
        Err(AdminError::Unavailable { message: "this ledger has no log".to_owned() })
    }

    /// Called once, at the end: seals and closes what was opened.
    async fn close(&self) {}
}
