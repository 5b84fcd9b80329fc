//! Operators, clients, sessions, workers, keys: who may use the ledger, and facts without a record.

use std::collections::{BTreeMap, BTreeSet};

use app::model::{ClientView, Detail, FactKind, Role, Stamp, UserView, WorkerView};
use async_trait::async_trait;

use super::engine::{Batch, Engine, Row, Value, same};
use super::freezes::GATE_ALONE;
use super::{
    Accounts, Activation, Client, Error, Hold, People as _, SCHEMA_VERSION, SqlStore, Store, User,
};

/// The settings under which the configuration in force is kept.
const ACTIVE_DIGEST: &str = "config.active";
const ACTIVE_SHARED: &str = "config.shared";

/// The actor of what the command line does.
const CLI: &str = "cli";

/// The first wait after a failed sign-in beyond the free ones, doubled with each further one.
const THROTTLE_FIRST: i64 = 1_000_000;
/// The longest wait: 15 minutes. Never for ever: a lockout would be a weapon against its owner.
const THROTTLE_MAX: i64 = 900_000_000;
/// Failures without any wait: people mistype.
const THROTTLE_FREE: i64 = 4;
/// Failures older than this are forgotten.
const THROTTLE_FORGET: i64 = 3_600_000_000;

fn user_view(mut row: Row) -> Result<UserView, Error> {
    Ok(UserView {
        id: row.text()?,
        email: row.text()?,
        role: row.word()?,
        created_at: row.stamp()?,
        disabled_at: row.maybe_stamp()?,
    })
}

/// The columns of [`user`].
macro_rules! user_columns {
    () => {
        "SELECT u.user_id, u.email, u.role, u.password_hash, u.disabled_at, u.must_change,
            (SELECT COUNT(*) FROM second_factors f
              WHERE f.user_id = u.user_id AND f.confirmed_at IS NOT NULL)
          FROM users u"
    };
}

fn user(mut row: Row) -> Result<User, Error> {
    Ok(User {
        id: row.text()?,
        email: row.text()?,
        role: row.word()?,
        password_hash: row.text()?,
        is_disabled: row.maybe_int()?.is_some(),
        must_change: row.flag()?,
        has_factor: row.int()? > 0,
    })
}

fn scopes(text: &str) -> Vec<String> {
    text.split(' ').filter(|scope| !scope.is_empty()).map(str::to_owned).collect()
}

fn client_view(mut row: Row) -> Result<ClientView, Error> {
    Ok(ClientView {
        id: row.text()?,
        name: row.text()?,
        scopes: scopes(&row.text()?),
        created_at: row.stamp()?,
        revoked_at: row.maybe_stamp()?,
    })
}

impl<E: Engine> SqlStore<E> {
    /// One statement in a transaction of its own.
    async fn run(&self, sql: super::engine::Sql, values: Vec<Value>) -> Result<u64, Error> {
        let mut tx = self.engine.begin().await?;
        let done = Self::execute(&mut tx, sql, values).await?;
        E::commit(tx).await?;
        Ok(done)
    }

    async fn read(&self, sql: super::engine::Sql, values: Vec<Value>) -> Result<Vec<Row>, Error> {
        let mut tx = self.engine.begin_read().await?;
        Self::query(&mut tx, sql, values).await
    }

    pub(super) async fn setting(tx: &mut E::Tx, name: &str) -> Result<Option<String>, Error> {
        let rows =
            Self::query(tx, same("SELECT value FROM settings WHERE name = $1"), vec![name.into()]);
        rows.await?.pop().map(|mut row| row.text()).transpose()
    }

    pub(super) async fn put_setting(
        tx: &mut E::Tx,
        name: &str,
        value: &str,
        now: Stamp,
    ) -> Result<(), Error> {
        Self::execute(
            tx,
            same(
                "INSERT INTO settings (name, value, changed_at) VALUES ($1, $2, $3)
                  ON CONFLICT (name) DO UPDATE SET value = excluded.value,
                    changed_at = excluded.changed_at",
            ),
            vec![name.into(), value.into(), now.into()],
        )
        .await
        .map(|_| ())
    }

    async fn end_sessions(tx: &mut E::Tx, email: &str) -> Result<(), Error> {
        Self::execute(
            tx,
            same("DELETE FROM sessions WHERE user_id IN (SELECT user_id FROM users WHERE email = $1)"),
            vec![email.into()],
        )
        .await
        .map(|_| ())
    }
}

#[async_trait]
impl<E: Engine> Accounts for SqlStore<E> {
    async fn add_user(
        &self,
        email: &str,
        role: Role,
        password_hash: &str,
    ) -> Result<UserView, Error> {
        self.add_user_as(CLI, email, role, password_hash, false).await
    }

    async fn users(&self) -> Result<Vec<UserView>, Error> {
        let rows = self
            .read(
                same(
                    "SELECT user_id, email, role, created_at, disabled_at FROM users
                      ORDER BY created_at, user_id LIMIT 1000",
                ),
                Vec::new(),
            )
            .await?;
        rows.into_iter().map(user_view).collect()
    }

    async fn user_by_email(&self, email: &str) -> Result<Option<User>, Error> {
        let rows = self
            .read(same(concat!(user_columns!(), " WHERE u.email = $1")), vec![email.into()])
            .await?;
        rows.into_iter().next().map(user).transpose()
    }

    async fn user_by_id(&self, id: &str) -> Result<Option<User>, Error> {
        let rows = self
            .read(same(concat!(user_columns!(), " WHERE u.user_id = $1")), vec![id.into()])
            .await?;
        rows.into_iter().next().map(user).transpose()
    }

    async fn set_password(&self, email: &str, password_hash: &str) -> Result<bool, Error> {
        match self.user_by_email(email).await? {
            Some(user) => self.set_password_as(CLI, &user.id, password_hash, false, None).await,
            None => Ok(false),
        }
    }

    async fn disable_user(&self, email: &str) -> Result<bool, Error> {
        let mut tx = self.engine.begin().await?;
        let now = self.env.clock.now();
        let rows = Self::query(
            &mut tx,
            same(
                "UPDATE users SET disabled_at = COALESCE(disabled_at, $1) WHERE email = $2
                  RETURNING user_id",
            ),
            vec![now.into(), email.into()],
        );
        let Some(mut row) = rows.await?.pop() else { return Ok(false) };
        let user_id = row.text()?;
        Self::end_sessions(&mut tx, email).await?;
        let detail = Detail::default().code("what", "user_disabled").code("user", &user_id);
        self.note_operator(&mut tx, FactKind::Operator, CLI, &detail).await?;
        E::commit(tx).await?;
        Ok(true)
    }

    async fn add_client(
        &self,
        name: &str,
        scopes: &[String],
        secret_hash: &str,
    ) -> Result<ClientView, Error> {
        self.add_client_as(CLI, name, scopes, secret_hash).await
    }

    async fn clients(&self) -> Result<Vec<ClientView>, Error> {
        let rows = self
            .read(
                same(
                    "SELECT client_id, name, scopes, created_at, revoked_at FROM clients
                      ORDER BY created_at, client_id LIMIT 1000",
                ),
                Vec::new(),
            )
            .await?;
        rows.into_iter().map(client_view).collect()
    }

    async fn client(&self, id: &str) -> Result<Option<Client>, Error> {
        let rows = self
            .read(
                same(
                    "SELECT client_id, secret_hash, scopes FROM clients
                      WHERE client_id = $1 AND revoked_at IS NULL",
                ),
                vec![id.into()],
            )
            .await?;
        rows.into_iter()
            .next()
            .map(|mut row| {
                Ok(Client {
                    id: row.text()?,
                    secret_hash: row.text()?,
                    scopes: scopes(&row.text()?),
                })
            })
            .transpose()
    }

    async fn revoke_client(&self, id_or_name: &str) -> Result<bool, Error> {
        let mut tx = self.engine.begin().await?;
        let now = self.env.clock.now();
        let changed = Self::execute(
            &mut tx,
            same(
                "UPDATE clients SET revoked_at = COALESCE(revoked_at, $1)
                  WHERE client_id = $2 OR name = $2",
            ),
            vec![now.into(), id_or_name.into()],
        )
        .await?;
        if changed > 0 {
            let detail = Detail::default().code("what", "client_revoked");
            self.note_operator(&mut tx, FactKind::Operator, "cli", &detail).await?;
        }
        E::commit(tx).await?;
        Ok(changed > 0)
    }

    async fn save_session(
        &self,
        hash: &str,
        user_id: Option<&str>,
        data: &str,
        expires_at: Stamp,
    ) -> Result<(), Error> {
        self.run(
            same(
                "INSERT INTO sessions (session_hash, user_id, data, created_at, expires_at)
                  VALUES ($1, $2, $3, $4, $5)
                  ON CONFLICT (session_hash) DO UPDATE SET user_id = excluded.user_id,
                    data = excluded.data, expires_at = excluded.expires_at",
            ),
            vec![
                hash.into(),
                user_id.into(),
                data.into(),
                self.env.clock.now().into(),
                expires_at.into(),
            ],
        )
        .await
        .map(|_| ())
    }

    async fn load_session(&self, hash: &str) -> Result<Option<String>, Error> {
        let rows = self
            .read(
                same("SELECT data FROM sessions WHERE session_hash = $1 AND expires_at > $2"),
                vec![hash.into(), self.env.clock.now().into()],
            )
            .await?;
        rows.into_iter().next().map(|mut row| row.text()).transpose()
    }

    async fn delete_session(&self, hash: &str) -> Result<(), Error> {
        self.run(same("DELETE FROM sessions WHERE session_hash = $1"), vec![hash.into()])
            .await
            .map(|_| ())
    }

    async fn purge_sessions(&self, hold: Hold) -> Result<u64, Error> {
        let now = self.env.clock.now();
        let mut tx = self.engine.begin().await?;
        Self::check_hold(&mut tx, hold).await?;
        let gone = Self::execute(
            &mut tx,
            same("DELETE FROM sessions WHERE expires_at <= $1"),
            vec![now.into()],
        )
        .await?;
        Self::execute(
            &mut tx,
            same("DELETE FROM action_keys WHERE used_at <= $1"),
            vec![now.plus(-86_400_000_000).into()],
        )
        .await?;
        Self::execute(
            &mut tx,
            same("DELETE FROM lost_attempts WHERE until <= $1"),
            vec![now.plus(-86_400_000_000).into()],
        )
        .await?;
        Self::execute(
            &mut tx,
            same("DELETE FROM login_failures WHERE last_at <= $1"),
            vec![now.plus(-THROTTLE_FORGET).into()],
        )
        .await?;
        E::commit(tx).await?;
        Ok(gone)
    }

    async fn login_blocked_to(&self, subjects: &[String]) -> Result<Option<Stamp>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let mut batch =
            Batch::new("SELECT MAX(blocked_to) FROM login_failures WHERE blocked_to > ");
        batch.bind(self.env.clock.now()).push(" AND subject IN ").list(subjects.iter());
        let rows = Self::query_batch(&mut tx, batch).await?;
        rows.into_iter().next().map_or(Ok(None), |mut row| row.maybe_stamp())
    }

    async fn login_failed(&self, subjects: &[String]) -> Result<(), Error> {
        let mut tx = self.engine.begin().await?;
        let now = self.env.clock.now();
        for subject in subjects {
            let mut rows = Self::query(
                &mut tx,
                same("SELECT failures, last_at FROM login_failures WHERE subject = $1"),
                vec![subject.into()],
            )
            .await?;
            let failures = match rows.pop() {
                None => 1,
                Some(mut row) => {
                    let (failures, last_at) = (row.int()?, row.int()?);
                    if now.micros() - last_at > THROTTLE_FORGET { 1 } else { failures + 1 }
                }
            };
            let over = failures - THROTTLE_FREE;
            let wait = if over <= 0 {
                0
            } else {
                let doubled = 1_i64 << u32::try_from((over - 1).min(20)).unwrap_or(20);
                THROTTLE_FIRST.saturating_mul(doubled).min(THROTTLE_MAX)
            };
            Self::execute(
                &mut tx,
                same(
                    "INSERT INTO login_failures (subject, failures, last_at, blocked_to)
                      VALUES ($1, $2, $3, $4)
                      ON CONFLICT (subject) DO UPDATE SET failures = excluded.failures,
                        last_at = excluded.last_at, blocked_to = excluded.blocked_to",
                ),
                vec![subject.into(), failures.into(), now.into(), now.plus(wait).into()],
            )
            .await?;
        }
        E::commit(tx).await
    }

    async fn login_succeeded(&self, subjects: &[String]) -> Result<(), Error> {
        let mut tx = self.engine.begin().await?;
        let mut batch = Batch::new("DELETE FROM login_failures WHERE subject IN ");
        batch.list(subjects.iter());
        Self::execute_batch(&mut tx, batch).await?;
        E::commit(tx).await
    }

    async fn use_action_key(&self, key: &str) -> Result<bool, Error> {
        let used = self
            .run(
                same(
                    "INSERT INTO action_keys (action_key, used_at) VALUES ($1, $2)
                      ON CONFLICT (action_key) DO NOTHING",
                ),
                vec![key.into(), self.env.clock.now().into()],
            )
            .await?;
        Ok(used == 1)
    }

    async fn note(&self, kind: FactKind, actor: &str, detail: Detail) -> Result<(), Error> {
        let mut tx = self.engine.begin().await?;
        self.note_operator(&mut tx, kind, actor, &detail).await?;
        E::commit(tx).await
    }

    async fn keep_setting(&self, name: &str, value: &str) -> Result<bool, Error> {
        let mut tx = self.engine.begin().await?;
        let before = Self::setting(&mut tx, name).await?;
        if before.as_deref() == Some(value) {
            return Ok(false);
        }
        Self::put_setting(&mut tx, name, value, self.env.clock.now()).await?;
        let mut detail = Detail::default().code("setting", name).code("after", value);
        if let Some(before) = &before {
            detail = detail.code("before", before);
        }
        self.note_operator(&mut tx, FactKind::Config, "system", &detail).await?;
        E::commit(tx).await?;
        Ok(true)
    }

    async fn activate(
        &self,
        digest: &str,
        shared: &BTreeMap<String, String>,
        alive_within: i64,
        force: bool,
    ) -> Result<Activation, Error> {
        let mut tx = self.engine.begin().await?;
        // One after the other: two processes that start at once must not both win.
        Self::query(&mut tx, GATE_ALONE, Vec::new()).await?;
        let active = Self::setting(&mut tx, ACTIVE_DIGEST).await?;
        if active.as_deref() == Some(digest) {
            return Ok(Activation::Active);
        }
        let now = self.env.clock.now();
        let before: BTreeMap<String, String> = match Self::setting(&mut tx, ACTIVE_SHARED).await? {
            Some(text) => serde_json::from_str(&text).unwrap_or_default(),
            None => BTreeMap::new(),
        };
        let names: BTreeSet<&String> = before.keys().chain(shared.keys()).collect();
        let differing: Vec<String> =
            names.into_iter().filter(|key| before.get(*key) != shared.get(*key)).cloned().collect();
        if let Some(active) = &active {
            let alive = Self::query(
                &mut tx,
                same("SELECT COUNT(*) FROM workers WHERE digest = $1 AND seen_at > $2"),
                vec![active.into(), now.plus(-alive_within).into()],
            )
            .await?;
            let alive = alive.into_iter().next().map_or(Ok(0), |mut row| row.int())?;
            if alive > 0 && !force {
                return Ok(Activation::Differs(differing));
            }
        }
        let text = serde_json::to_string(shared).unwrap_or_default();
        for (name, value) in [(ACTIVE_DIGEST, digest), (ACTIVE_SHARED, text.as_str())] {
            Self::put_setting(&mut tx, name, value, now).await?;
        }
        let mut detail = Detail::default().code("what", "config_activated").code("after", digest);
        if let Some(active) = &active {
            detail = detail.code("before", active);
        }
        self.note_operator(&mut tx, FactKind::Config, "system", &detail).await?;
        E::commit(tx).await?;
        Ok(Activation::Active)
    }

    async fn heartbeat(&self, worker: &WorkerView, digest: &str) -> Result<Option<String>, Error> {
        let mut tx = self.engine.begin().await?;
        Self::execute(
            &mut tx,
            same(
                "INSERT INTO workers (worker_id, version, semantics, roles, digest, started_at,
                    seen_at, ticked_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
                  ON CONFLICT (worker_id) DO UPDATE SET seen_at = excluded.seen_at,
                    ticked_at = excluded.ticked_at",
            ),
            vec![
                (&worker.id).into(),
                (&worker.version).into(),
                worker.semantics.into(),
                (&worker.roles).into(),
                digest.into(),
                worker.started_at.into(),
                worker.seen_at.into(),
            ],
        )
        .await?;
        // Those who have been silent for a day are history, not workers.
        Self::execute(
            &mut tx,
            same("DELETE FROM workers WHERE seen_at < $1"),
            vec![worker.seen_at.plus(-86_400_000_000).into()],
        )
        .await?;
        let active = Self::setting(&mut tx, ACTIVE_DIGEST).await?;
        E::commit(tx).await?;
        Ok(active)
    }

    async fn leave(&self, worker_id: &str) -> Result<(), Error> {
        self.run(same("DELETE FROM workers WHERE worker_id = $1"), vec![worker_id.into()])
            .await
            .map(|_| ())
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, Error> {
        let rows = self
            .read(
                same(
                    "SELECT worker_id, version, semantics, roles, started_at, seen_at FROM workers
                      ORDER BY started_at, worker_id LIMIT 1000",
                ),
                Vec::new(),
            )
            .await?;
        rows.into_iter()
            .map(|mut row| {
                Ok(WorkerView {
                    id: row.text()?,
                    version: row.text()?,
                    semantics: row.count()?,
                    roles: row.text()?,
                    started_at: row.stamp()?,
                    seen_at: row.stamp()?,
                })
            })
            .collect()
    }
}

#[async_trait]
impl<E: Engine> Store for SqlStore<E> {
    async fn migrate(&self) -> Result<(), Error> {
        let found = self.engine.schema_version().await?;
        if found > SCHEMA_VERSION {
            return Err(Error::Schema { found, known: SCHEMA_VERSION });
        }
        self.engine.migrate().await
    }

    async fn check_schema(&self) -> Result<(), Error> {
        let found = self.engine.schema_version().await?;
        if found == SCHEMA_VERSION {
            Ok(())
        } else {
            Err(Error::Schema { found, known: SCHEMA_VERSION })
        }
    }

    async fn check_keys(&self) -> Result<(), Error> {
        let mut tx = self.engine.begin().await?;
        let now = self.env.clock.now();
        for (name, value) in self.env.keys.checks() {
            Self::execute(
                &mut tx,
                same(
                    "INSERT INTO key_checks (name, value, created_at) VALUES ($1, $2, $3)
                      ON CONFLICT (name) DO NOTHING",
                ),
                vec![(&name).into(), (&value).into(), now.into()],
            )
            .await?;
            let rows = Self::query(
                &mut tx,
                same("SELECT value FROM key_checks WHERE name = $1"),
                vec![(&name).into()],
            )
            .await?;
            let kept = rows.into_iter().next().map(|mut row| row.text()).transpose()?;
            if kept.as_deref() != Some(value.as_str()) {
                return Err(Error::OtherKeys { name });
            }
        }
        E::commit(tx).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.read(same("SELECT one FROM gate WHERE one = 1"), Vec::new()).await.map(|_| ())
    }

    fn hears_hints(&self) -> bool {
        self.engine.hears_hints()
    }

    async fn next_hint(&self) -> Result<String, Error> {
        self.engine.next_hint().await
    }

    async fn time(&self) -> Result<Option<Stamp>, Error> {
        Ok(self.engine.time().await?.map(Stamp::from_micros))
    }

    async fn has_unsafe_standby(&self) -> Result<bool, Error> {
        self.engine.has_unsafe_standby().await
    }

    async fn backup(&self, to: &std::path::Path) -> Result<bool, Error> {
        self.engine.backup(to).await
    }

    fn describe(&self) -> (&'static str, String) {
        (E::NAME, self.engine.describe())
    }

    async fn close(&self) {
        self.engine.close().await;
    }
}
