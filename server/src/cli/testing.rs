//! A ledger in memory, and a screen and a keyboard, for the commands' own tests.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use app::model::{
    Channel, ClientView, Detail, Fact, FactKind, Freeze, Next, Reason, Record, Role, Stamp, State,
    UserView,
};
use async_trait::async_trait;

use super::{Admin, AdminError, Found, Input, LineAnswer, NewClient, Out};
use crate::providers::Secret;

const START: Stamp = Stamp::from_micros(1_790_000_000_000_000);

/// What was printed.
#[derive(Debug, Clone, Default)]
pub(super) struct Screen {
    results: Buffer,
    notes: Buffer,
}

#[derive(Debug, Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Screen {
    pub(super) fn new() -> (Out, Self) {
        let screen = Self::default();
        let out = Out::new(Box::new(screen.results.clone()), Box::new(screen.notes.clone()));
        (out, screen)
    }

    pub(super) fn results(&self) -> String {
        self.results.text()
    }

    pub(super) fn notes(&self) -> String {
        self.notes.text()
    }

    pub(super) fn all(&self) -> String {
        self.results() + &self.notes()
    }
}

/// What a person types, line by line.
pub(super) struct Typed(VecDeque<String>);

impl Typed {
    pub(super) fn new(lines: &[&str]) -> Self {
        Self(lines.iter().map(|line| (*line).to_owned()).collect())
    }
}

impl Input for Typed {
    fn line(&mut self) -> io::Result<String> {
        self.0.pop_front().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn hidden(&mut self, _prompt: &str) -> io::Result<String> {
        self.line()
    }
}

/// A ledger that forgets everything at its end.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    users: Vec<(UserView, String)>,
    clients: Vec<ClientView>,
    freezes: Vec<Freeze>,
    holds: Vec<crate::store::LegalHold>,
    lines: Vec<String>,
}

impl Memory {
    fn tables(&self) -> std::sync::MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn passwords(&self) -> Vec<String> {
        self.tables().users.iter().map(|(_, password)| password.clone()).collect()
    }

    pub(super) fn client_count(&self) -> usize {
        self.tables().clients.len()
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.tables().lines.clone()
    }

    pub(super) fn freeze_as_is(&self, scope: &str) {
        self.tables().freezes.push(Freeze {
            scope: scope.to_owned(),
            actor: "operator:cli".to_owned(),
            since: START,
            reason: "x".to_owned(),
            review_at: None,
            in_flight: 2,
        });
    }
}

#[async_trait]
impl Admin for Memory {
    async fn add_user(
        &self,
        email: &str,
        role: Role,
        password: &Secret,
    ) -> Result<UserView, AdminError> {
        let mut tables = self.tables();
        if tables.users.iter().any(|(user, _)| user.email == email) {
            return Err(AdminError::Refused {
                message: "there is an operator with this address".to_owned(),
                next_step: "see `sendonce user list`".to_owned(),
            });
        }
        let user = UserView {
            id: format!("user-{}", tables.users.len() + 1),
            email: email.to_owned(),
            role,
            created_at: START,
            disabled_at: None,
        };
        tables.users.push((user.clone(), password.expose().to_owned()));
        Ok(user)
    }

    async fn list_users(&self) -> Result<Vec<UserView>, AdminError> {
        Ok(self.tables().users.iter().map(|(user, _)| user.clone()).collect())
    }

    async fn set_password(&self, email: &str, password: &Secret) -> Result<bool, AdminError> {
        let mut tables = self.tables();
        let user = tables.users.iter_mut().find(|(user, _)| user.email == email);
        Ok(user.map(|user| password.expose().clone_into(&mut user.1)).is_some())
    }

    async fn disable_user(&self, email: &str) -> Result<bool, AdminError> {
        let mut tables = self.tables();
        let user = tables.users.iter_mut().find(|(user, _)| user.email == email);
        Ok(user.map(|(user, _)| user.disabled_at = Some(START)).is_some())
    }

    async fn add_client(&self, name: &str, scopes: &[String]) -> Result<NewClient, AdminError> {
        let mut tables = self.tables();
        let client = ClientView {
            id: format!("client-{}", tables.clients.len() + 1),
            name: name.to_owned(),
            scopes: scopes.to_vec(),
            created_at: START,
            revoked_at: None,
        };
        tables.clients.push(client.clone());
        let key = Secret::new(format!("key-of-{}", client.id));
        Ok(NewClient { client, key })
    }

    async fn list_clients(&self) -> Result<Vec<ClientView>, AdminError> {
        Ok(self.tables().clients.clone())
    }

    async fn revoke_client(&self, id_or_name: &str) -> Result<bool, AdminError> {
        let mut tables = self.tables();
        let is_it = |client: &&mut ClientView| client.id == id_or_name || client.name == id_or_name;
        let client = tables.clients.iter_mut().find(is_it);
        Ok(client.map(|client| client.revoked_at = Some(START)).is_some())
    }

    async fn freeze(
        &self,
        scope: &str,
        reason: &str,
        review_in: Option<i64>,
    ) -> Result<Freeze, AdminError> {
        let freeze = Freeze {
            scope: scope.to_owned(),
            actor: "operator:cli".to_owned(),
            since: START,
            reason: reason.to_owned(),
            review_at: review_in.map(|micros| START.plus(micros)),
            in_flight: 2,
        };
        self.tables().freezes.push(freeze.clone());
        Ok(freeze)
    }

    async fn unfreeze(&self, scope: &str, _reason: &str) -> Result<bool, AdminError> {
        let mut tables = self.tables();
        let before = tables.freezes.len();
        tables.freezes.retain(|freeze| freeze.scope != scope);
        Ok(tables.freezes.len() < before)
    }

    async fn freezes(&self) -> Result<Vec<Freeze>, AdminError> {
        Ok(self.tables().freezes.clone())
    }

    async fn load(&self) -> Result<crate::slo::capacity::Load, AdminError> {
        Ok(crate::slo::capacity::Load::default())
    }

    async fn workers(&self) -> Result<Vec<app::model::WorkerView>, AdminError> {
        Ok(Vec::new())
    }

    async fn restore_complete(
        &self,
        lost_from: Stamp,
    ) -> Result<crate::store::Restored, AdminError> {
        let epoch = crate::store::Epoch {
            epoch: 2,
            opened_at: START,
            lost_from,
            guarded_until: START.plus(86_400_000_000),
        };
        Ok(crate::store::Restored {
            epoch,
            is_repeat: false,
            accepted: 3,
            dispatching: 2,
            unknown: 1,
        })
    }

    async fn backup(&self, _to: &std::path::Path) -> Result<Stamp, AdminError> {
        Ok(START)
    }

    async fn fingerprint_versions(&self) -> Result<Vec<u32>, AdminError> {
        Ok(vec![1])
    }

    async fn rotate_fingerprint(&self) -> Result<u32, AdminError> {
        Ok(2)
    }

    async fn drop_fingerprint(&self, version: u32) -> Result<bool, AdminError> {
        Ok(version == 1)
    }

    async fn due_for_purge(&self) -> Result<crate::store::Due, AdminError> {
        let none = app::model::Capped { count: 0, more: false };
        Ok(crate::store::Due { events: none, held: none, operators: none, oldest_settled: None })
    }

    async fn hold(
        &self,
        seller_id: Option<&str>,
        from: Option<Stamp>,
        to: Option<Stamp>,
        reason: &str,
    ) -> Result<String, AdminError> {
        let mut tables = self.tables();
        let id = format!("hold-{}", tables.holds.len());
        tables.holds.push(crate::store::LegalHold {
            id: id.clone(),
            seller_id: seller_id.map(str::to_owned),
            from,
            to,
            actor: "cli".to_owned(),
            reason: reason.to_owned(),
            since: Stamp::from_micros(0),
        });
        Ok(id)
    }

    async fn end_hold(&self, id: &str, _reason: &str) -> Result<bool, AdminError> {
        let mut tables = self.tables();
        let before = tables.holds.len();
        tables.holds.retain(|hold| hold.id != id);
        Ok(tables.holds.len() < before)
    }

    async fn holds(&self) -> Result<Vec<crate::store::LegalHold>, AdminError> {
        Ok(self.tables().holds.clone())
    }

    async fn find(&self, id_or_event_id: &str) -> Result<Option<Found>, AdminError> {
        let record = unknown();
        let is_it = [&record.id, &record.event_id].iter().any(|id| *id == id_or_event_id);
        let first = fact(1, 0, None, State::Accepted, Reason::Admitted);
        let mut second =
            fact(2, 2, Some(State::Dispatching), State::DispatchUnknown, Reason::Timeout);
        second.attempt = Some(1);
        second.provider = Some("demo".to_owned());
        second.detail = Detail::default().number("number", 1).code("code", "timeout");
        Ok(is_it.then(|| Found { record, facts: vec![first, second] }))
    }

    async fn admit(&self, lines: &[Vec<u8>]) -> Result<Vec<LineAnswer>, AdminError> {
        let mut tables = self.tables();
        let texts: Vec<String> =
            lines.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        if texts.iter().any(|text| text == "down") {
            return Err(AdminError::Unavailable { message: "it went away".to_owned() });
        }
        Ok(texts
            .into_iter()
            .map(|text| {
                let is_replay = tables.lines.contains(&text);
                tables.lines.push(text.clone());
                let refused = |status: u16, code: &str| LineAnswer {
                    status,
                    code: code.to_owned(),
                    ..LineAnswer::default()
                };
                match text.split(' ').next() {
                    Some("ok") => LineAnswer { status: 202, is_replay, ..LineAnswer::default() },
                    Some("conflict") => refused(409, "idempotency_conflict"),
                    Some("limited") => refused(429, "rate_limited"),
                    Some("unknown") => refused(503, "admission_unavailable"),
                    _ => LineAnswer {
                        fields: vec![("destination_ref".to_owned(), "raw_destination".to_owned())],
                        ..refused(400, "invalid_event")
                    },
                }
            })
            .collect())
    }
}

fn unknown() -> Record {
    Record {
        id: "0193a5b0-7c1e-7d3f-8a2b-0123456789ab".to_owned(),
        event_id: "ev-1".to_owned(),
        state: State::DispatchUnknown,
        expires_at: START.plus(600_000_000),
        updated_at: START.plus(2_000_000),
        created_at: START,
        channel: Channel::Sms,
        seller_id: Some("seller_1042".to_owned()),
        purpose: "password_reset".to_owned(),
        attempts: 1,
        calls: 1,
        reason: Reason::Timeout,
        settled: false,
        frozen: false,
        next: Next::Wait,
        retry_at: Some(START.plus(5_000_000)),
    }
}

fn fact(seq: u32, second: i64, old: Option<State>, new: State, reason: Reason) -> Fact {
    let record = unknown();
    Fact {
        seq,
        id: Some(record.id),
        event_id: Some(record.event_id),
        at: START.plus(second * 1_000_000),
        kind: FactKind::Transition,
        old_state: old,
        new_state: Some(new),
        attempt: None,
        attempt_id: None,
        reason: Some(reason),
        provider: None,
        provider_message_id: None,
        token_id: None,
        actor: "system".to_owned(),
        detail: Detail::default(),
    }
}
