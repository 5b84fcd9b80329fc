//! Operators' accounts as people manage them: who acts is part of each fact, and what protects an account
//! (the last admin, a code that works once) is decided in the transaction that writes.

use app::model::{ClientView, Detail, FactKind, Role, Stamp, UserRow, UserView};
use async_trait::async_trait;

use super::engine::{Engine, Sql, Value, locking, same};
use super::{Error, SqlStore};

/// Sessions of one operator that are listed; more only by a fault.
const SESSIONS_MAX: i64 = 100;

/// What became of a change of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    Done,
    /// It was so already.
    Already,
    Unknown,
    /// Without this one nobody could manage accounts any more.
    LastAdmin,
}

/// A session as its owner sees it listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    pub hash: String,
    pub data: String,
    pub created_at: Stamp,
    pub expires_at: Stamp,
}

/// An operator's second factor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Factor {
    pub nonce: String,
    pub confirmed_at: Option<Stamp>,
    pub recovery_left: u64,
}

/// Accounts, by whom they are changed.
#[async_trait]
pub trait People: Send + Sync {
    /// Adds an operator. `must_change`: somebody else chose the password.
    ///
    /// # Errors
    /// [`Error::Conflict`] when the address is taken.
    async fn add_user_as(
        &self,
        actor: &str,
        email: &str,
        role: Role,
        password_hash: &str,
        must_change: bool,
    ) -> Result<UserView, Error>;

    /// The operators with what an admin needs to know of each.
    async fn user_rows(&self) -> Result<Vec<UserRow>, Error>;

    async fn set_role(&self, actor: &str, user_id: &str, role: Role) -> Result<Changed, Error>;

    /// Ends the sessions of somebody who is disabled.
    async fn set_disabled(
        &self,
        actor: &str,
        user_id: &str,
        is_disabled: bool,
    ) -> Result<Changed, Error>;

    /// Sets another password and ends the operator's sessions, except `keep`.
    async fn set_password_as(
        &self,
        actor: &str,
        user_id: &str,
        password_hash: &str,
        must_change: bool,
        keep: Option<&str>,
    ) -> Result<bool, Error>;

    async fn add_client_as(
        &self,
        actor: &str,
        name: &str,
        scopes: &[String],
        secret_hash: &str,
    ) -> Result<ClientView, Error>;

    /// By id. Revoking again changes nothing.
    async fn revoke_client_as(&self, actor: &str, client_id: &str) -> Result<Changed, Error>;

    /// The sessions in force, newest first.
    async fn sessions_of(&self, user_id: &str) -> Result<Vec<SessionRow>, Error>;

    /// Ends these sessions of the operator; gives how many there were.
    async fn end_sessions_as(
        &self,
        actor: &str,
        user_id: &str,
        hashes: &[String],
    ) -> Result<u64, Error>;

    async fn factor(&self, user_id: &str) -> Result<Option<Factor>, Error>;

    /// Begins to set up a second factor; one in force stays until the new one is confirmed, so this does
    /// nothing while there is one.
    async fn begin_factor(&self, user_id: &str, nonce: &str) -> Result<bool, Error>;

    /// The code of `step` was right: the second factor is in force, with these recovery codes.
    async fn confirm_factor(
        &self,
        actor: &str,
        user_id: &str,
        nonce: &str,
        step: i64,
        recovery_hashes: &[String],
    ) -> Result<bool, Error>;

    /// Removes the second factor.
    async fn drop_factor(&self, actor: &str, user_id: &str) -> Result<bool, Error>;

    /// Uses the code of a time step. False: a code of this step or a later one was used before.
    async fn use_step(&self, user_id: &str, step: i64) -> Result<bool, Error>;

    /// Uses a recovery code, once.
    async fn use_recovery(&self, user_id: &str, code_hash: &str) -> Result<bool, Error>;

    /// Who this subject of the identity provider is, if known here.
    async fn identity(&self, subject_hash: &str) -> Result<Option<String>, Error>;

    /// Signs a subject in as an operator of this role: adds the operator at the first time and follows the
    /// role afterwards. Gives the operator's id; none where the address belongs to another account.
    async fn admit_identity(
        &self,
        subject_hash: &str,
        email: &str,
        role: Role,
    ) -> Result<Option<String>, Error>;

    /// Keeps the hash of a link for the first operator, while there is none. False: there is one.
    async fn offer_setup(&self, link_hash: &str, expires_at: Stamp) -> Result<bool, Error>;

    /// Whether the link is good, without using it.
    async fn is_setup_open(&self, link_hash: &str) -> Result<bool, Error>;

    /// Adds the first operator, an admin. None: the link is not good, or somebody was first.
    async fn use_setup(
        &self,
        link_hash: &str,
        email: &str,
        password_hash: &str,
    ) -> Result<Option<String>, Error>;
}

/// Stands where a password hash would be for somebody of the identity provider: no password matches it.
pub const EXTERNAL: &str = "external";

// Locked, so that of two who disable each other one sees the other's change.
const ADMINS: Sql = locking!(
    "SELECT user_id FROM users WHERE role = 'admin' AND disabled_at IS NULL ORDER BY user_id",
    "FOR UPDATE"
);

impl<E: Engine> SqlStore<E> {
    /// Whether anybody else could still manage accounts.
    async fn has_other_admin(tx: &mut E::Tx, user_id: &str) -> Result<bool, Error> {
        for mut row in Self::query(tx, ADMINS, Vec::new()).await? {
            if row.text()? != user_id {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Role, and since when disabled.
    async fn standing(
        tx: &mut E::Tx,
        user_id: &str,
    ) -> Result<Option<(Role, Option<Stamp>)>, Error> {
        let rows = Self::query(
            tx,
            same("SELECT role, disabled_at FROM users WHERE user_id = $1"),
            vec![user_id.into()],
        );
        let mut rows = rows.await?;
        rows.pop().map(|mut row| Ok((row.word()?, row.maybe_stamp()?))).transpose()
    }

    async fn insert_user(
        &self,
        tx: &mut E::Tx,
        actor: &str,
        email: &str,
        role: Role,
        password_hash: &str,
        must_change: bool,
    ) -> Result<UserView, Error> {
        let now = self.env.clock.now();
        let id = self.env.entropy.uuid(now);
        Self::execute(
            tx,
            same(
                "INSERT INTO users (user_id, email, role, password_hash, created_at, must_change)
                  VALUES ($1, $2, $3, $4, $5, $6)",
            ),
            vec![
                (&id).into(),
                email.into(),
                role.as_str().into(),
                password_hash.into(),
                now.into(),
                must_change.into(),
            ],
        )
        .await?;
        let detail = Detail::default()
            .code("what", "user_added")
            .code("user", &id)
            .code("role", role.as_str());
        self.note_operator(tx, FactKind::Operator, actor, &detail).await?;
        Ok(UserView { id, email: email.to_owned(), role, created_at: now, disabled_at: None })
    }

    async fn end_all(tx: &mut E::Tx, user_id: &str, keep: Option<&str>) -> Result<u64, Error> {
        Self::execute(
            tx,
            same("DELETE FROM sessions WHERE user_id = $1 AND session_hash <> $2"),
            vec![user_id.into(), keep.unwrap_or_default().into()],
        )
        .await
    }

    async fn remove_factor(tx: &mut E::Tx, user_id: &str) -> Result<u64, Error> {
        Self::execute(
            tx,
            same("DELETE FROM recovery_codes WHERE user_id = $1"),
            vec![user_id.into()],
        )
        .await?;
        Self::execute(
            tx,
            same("DELETE FROM second_factors WHERE user_id = $1"),
            vec![user_id.into()],
        )
        .await
    }

    async fn has_users(tx: &mut E::Tx) -> Result<bool, Error> {
        let rows = Self::query(tx, same("SELECT 1 AS one FROM users LIMIT 1"), Vec::new()).await?;
        Ok(!rows.is_empty())
    }
}

fn about(what: &'static str, user_id: &str) -> Detail {
    Detail::default().code("what", what).code("user", user_id)
}

#[async_trait]
impl<E: Engine> People for SqlStore<E> {
    async fn add_user_as(
        &self,
        actor: &str,
        email: &str,
        role: Role,
        password_hash: &str,
        must_change: bool,
    ) -> Result<UserView, Error> {
        let mut tx = self.engine.begin().await?;
        let user =
            self.insert_user(&mut tx, actor, email, role, password_hash, must_change).await?;
        E::commit(tx).await?;
        Ok(user)
    }

    async fn user_rows(&self) -> Result<Vec<UserRow>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let rows = Self::query(
            &mut tx,
            same(
                "SELECT u.user_id, u.email, u.role, u.created_at, u.disabled_at,
                    (SELECT COUNT(*) FROM second_factors f
                      WHERE f.user_id = u.user_id AND f.confirmed_at IS NOT NULL),
                    CASE WHEN u.password_hash = $1 THEN 1 ELSE 0 END,
                    (SELECT COUNT(*) FROM sessions s
                      WHERE s.user_id = u.user_id AND s.expires_at > $2)
                  FROM users u ORDER BY u.created_at, u.user_id LIMIT 1000",
            ),
            vec![EXTERNAL.into(), self.env.clock.now().into()],
        )
        .await?;
        rows.into_iter()
            .map(|mut row| {
                let user = UserView {
                    id: row.text()?,
                    email: row.text()?,
                    role: row.word()?,
                    created_at: row.stamp()?,
                    disabled_at: row.maybe_stamp()?,
                };
                Ok(UserRow {
                    user,
                    has_second_factor: row.int()? > 0,
                    is_external: row.flag()?,
                    sessions: u64::try_from(row.int()?).unwrap_or(0),
                })
            })
            .collect()
    }

    async fn set_role(&self, actor: &str, user_id: &str, role: Role) -> Result<Changed, Error> {
        let mut tx = self.engine.begin().await?;
        let has_other = Self::has_other_admin(&mut tx, user_id).await?;
        let Some((before, disabled_at)) = Self::standing(&mut tx, user_id).await? else {
            return Ok(Changed::Unknown);
        };
        if before == role {
            return Ok(Changed::Already);
        }
        if before == Role::Admin && disabled_at.is_none() && !has_other {
            return Ok(Changed::LastAdmin);
        }
        Self::execute(
            &mut tx,
            same("UPDATE users SET role = $1 WHERE user_id = $2"),
            vec![role.as_str().into(), user_id.into()],
        )
        .await?;
        let detail = about("role_changed", user_id)
            .code("before", before.as_str())
            .code("after", role.as_str());
        self.note_operator(&mut tx, FactKind::Operator, actor, &detail).await?;
        E::commit(tx).await?;
        Ok(Changed::Done)
    }

    async fn set_disabled(
        &self,
        actor: &str,
        user_id: &str,
        is_disabled: bool,
    ) -> Result<Changed, Error> {
        let mut tx = self.engine.begin().await?;
        let has_other = Self::has_other_admin(&mut tx, user_id).await?;
        let Some((role, disabled_at)) = Self::standing(&mut tx, user_id).await? else {
            return Ok(Changed::Unknown);
        };
        if disabled_at.is_some() == is_disabled {
            return Ok(Changed::Already);
        }
        if is_disabled && role == Role::Admin && !has_other {
            return Ok(Changed::LastAdmin);
        }
        let at = is_disabled.then(|| self.env.clock.now());
        Self::execute(
            &mut tx,
            same("UPDATE users SET disabled_at = $1 WHERE user_id = $2"),
            vec![at.into(), user_id.into()],
        )
        .await?;
        Self::end_all(&mut tx, user_id, None).await?;
        let what = if is_disabled { "user_disabled" } else { "user_enabled" };
        self.note_operator(&mut tx, FactKind::Operator, actor, &about(what, user_id)).await?;
        E::commit(tx).await?;
        Ok(Changed::Done)
    }

    async fn set_password_as(
        &self,
        actor: &str,
        user_id: &str,
        password_hash: &str,
        must_change: bool,
        keep: Option<&str>,
    ) -> Result<bool, Error> {
        let mut tx = self.engine.begin().await?;
        let changed = Self::execute(
            &mut tx,
            same("UPDATE users SET password_hash = $1, must_change = $2 WHERE user_id = $3"),
            vec![password_hash.into(), must_change.into(), user_id.into()],
        )
        .await?;
        if changed > 0 {
            Self::end_all(&mut tx, user_id, keep).await?;
            let what = if must_change { "password_reset" } else { "password_changed" };
            self.note_operator(&mut tx, FactKind::Operator, actor, &about(what, user_id)).await?;
        }
        E::commit(tx).await?;
        Ok(changed > 0)
    }

    async fn add_client_as(
        &self,
        actor: &str,
        name: &str,
        scopes: &[String],
        secret_hash: &str,
    ) -> Result<ClientView, Error> {
        let now = self.env.clock.now();
        let id = self.env.entropy.hex(6);
        let mut tx = self.engine.begin().await?;
        let held = scopes.join(" ");
        Self::execute(
            &mut tx,
            same(
                "INSERT INTO clients (client_id, name, secret_hash, scopes, created_at)
                  VALUES ($1, $2, $3, $4, $5)",
            ),
            vec![(&id).into(), name.into(), secret_hash.into(), held.into(), now.into()],
        )
        .await?;
        let detail = Detail::default()
            .code("what", "client_added")
            .code("client", &id)
            .code("scopes", &scopes.join("."));
        self.note_operator(&mut tx, FactKind::Operator, actor, &detail).await?;
        E::commit(tx).await?;
        Ok(ClientView {
            id,
            name: name.to_owned(),
            scopes: scopes.to_vec(),
            created_at: now,
            revoked_at: None,
        })
    }

    async fn revoke_client_as(&self, actor: &str, client_id: &str) -> Result<Changed, Error> {
        let mut tx = self.engine.begin().await?;
        let changed = Self::execute(
            &mut tx,
            same("UPDATE clients SET revoked_at = $1 WHERE client_id = $2 AND revoked_at IS NULL"),
            vec![self.env.clock.now().into(), client_id.into()],
        )
        .await?;
        if changed == 0 {
            let known = Self::query(
                &mut tx,
                same("SELECT client_id FROM clients WHERE client_id = $1"),
                vec![client_id.into()],
            );
            let is_known = !known.await?.is_empty();
            return Ok(if is_known { Changed::Already } else { Changed::Unknown });
        }
        let detail = Detail::default().code("what", "client_revoked").code("client", client_id);
        self.note_operator(&mut tx, FactKind::Operator, actor, &detail).await?;
        E::commit(tx).await?;
        Ok(Changed::Done)
    }

    async fn sessions_of(&self, user_id: &str) -> Result<Vec<SessionRow>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let rows = Self::query(
            &mut tx,
            same(
                "SELECT session_hash, data, created_at, expires_at FROM sessions
                  WHERE user_id = $1 AND expires_at > $2
                  ORDER BY created_at DESC, session_hash LIMIT $3",
            ),
            vec![user_id.into(), self.env.clock.now().into(), SESSIONS_MAX.into()],
        )
        .await?;
        rows.into_iter()
            .map(|mut row| {
                Ok(SessionRow {
                    hash: row.text()?,
                    data: row.text()?,
                    created_at: row.stamp()?,
                    expires_at: row.stamp()?,
                })
            })
            .collect()
    }

    async fn end_sessions_as(
        &self,
        actor: &str,
        user_id: &str,
        hashes: &[String],
    ) -> Result<u64, Error> {
        let mut tx = self.engine.begin().await?;
        let mut ended = 0;
        for hash in hashes {
            ended += Self::execute(
                &mut tx,
                same("DELETE FROM sessions WHERE session_hash = $1 AND user_id = $2"),
                vec![hash.into(), user_id.into()],
            )
            .await?;
        }
        if ended > 0 {
            let count = i64::try_from(ended).unwrap_or(i64::MAX);
            let detail = about("sessions_ended", user_id).number("count", count);
            self.note_operator(&mut tx, FactKind::Operator, actor, &detail).await?;
        }
        E::commit(tx).await?;
        Ok(ended)
    }

    async fn factor(&self, user_id: &str) -> Result<Option<Factor>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let mut rows = Self::query(
            &mut tx,
            same(
                "SELECT f.nonce, f.confirmed_at, (SELECT COUNT(*) FROM recovery_codes c
                    WHERE c.user_id = f.user_id AND c.used_at IS NULL)
                  FROM second_factors f WHERE f.user_id = $1",
            ),
            vec![user_id.into()],
        )
        .await?;
        rows.pop()
            .map(|mut row| {
                Ok(Factor {
                    nonce: row.text()?,
                    confirmed_at: row.maybe_stamp()?,
                    recovery_left: u64::try_from(row.int()?).unwrap_or(0),
                })
            })
            .transpose()
    }

    async fn begin_factor(&self, user_id: &str, nonce: &str) -> Result<bool, Error> {
        let mut tx = self.engine.begin().await?;
        let begun = Self::execute(
            &mut tx,
            same(
                "INSERT INTO second_factors (user_id, nonce, created_at) VALUES ($1, $2, $3)
                  ON CONFLICT (user_id) DO UPDATE SET nonce = excluded.nonce,
                    created_at = excluded.created_at, step = 0
                  WHERE second_factors.confirmed_at IS NULL",
            ),
            vec![user_id.into(), nonce.into(), self.env.clock.now().into()],
        )
        .await?;
        E::commit(tx).await?;
        Ok(begun > 0)
    }

    async fn confirm_factor(
        &self,
        actor: &str,
        user_id: &str,
        nonce: &str,
        step: i64,
        recovery_hashes: &[String],
    ) -> Result<bool, Error> {
        let now = self.env.clock.now();
        let mut tx = self.engine.begin().await?;
        let confirmed = Self::execute(
            &mut tx,
            same(
                "UPDATE second_factors SET confirmed_at = $1, step = $2
                  WHERE user_id = $3 AND nonce = $4 AND confirmed_at IS NULL",
            ),
            vec![now.into(), step.into(), user_id.into(), nonce.into()],
        )
        .await?;
        if confirmed == 0 {
            return Ok(false);
        }
        Self::execute(
            &mut tx,
            same("DELETE FROM recovery_codes WHERE user_id = $1"),
            vec![user_id.into()],
        )
        .await?;
        for hash in recovery_hashes {
            Self::execute(
                &mut tx,
                same("INSERT INTO recovery_codes (user_id, code_hash) VALUES ($1, $2)"),
                vec![user_id.into(), hash.into()],
            )
            .await?;
        }
        let detail = about("second_factor_added", user_id);
        self.note_operator(&mut tx, FactKind::Operator, actor, &detail).await?;
        E::commit(tx).await?;
        Ok(true)
    }

    async fn drop_factor(&self, actor: &str, user_id: &str) -> Result<bool, Error> {
        let mut tx = self.engine.begin().await?;
        let dropped = Self::remove_factor(&mut tx, user_id).await?;
        if dropped > 0 {
            let detail = about("second_factor_removed", user_id);
            self.note_operator(&mut tx, FactKind::Operator, actor, &detail).await?;
        }
        E::commit(tx).await?;
        Ok(dropped > 0)
    }

    async fn use_step(&self, user_id: &str, step: i64) -> Result<bool, Error> {
        let mut tx = self.engine.begin().await?;
        let used = Self::execute(
            &mut tx,
            same(
                "UPDATE second_factors SET step = $1
                  WHERE user_id = $2 AND step < $1 AND confirmed_at IS NOT NULL",
            ),
            vec![step.into(), user_id.into()],
        )
        .await?;
        E::commit(tx).await?;
        Ok(used > 0)
    }

    async fn use_recovery(&self, user_id: &str, code_hash: &str) -> Result<bool, Error> {
        let now = self.env.clock.now();
        let mut tx = self.engine.begin().await?;
        let used = Self::execute(
            &mut tx,
            same(
                "UPDATE recovery_codes SET used_at = $1
                  WHERE user_id = $2 AND code_hash = $3 AND used_at IS NULL",
            ),
            vec![now.into(), user_id.into(), code_hash.into()],
        )
        .await?;
        if used > 0 {
            let actor = format!("operator:{user_id}");
            let detail = about("recovery_code_used", user_id);
            self.note_operator(&mut tx, FactKind::Operator, &actor, &detail).await?;
        }
        E::commit(tx).await?;
        Ok(used > 0)
    }

    async fn identity(&self, subject_hash: &str) -> Result<Option<String>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let mut rows = Self::query(
            &mut tx,
            same("SELECT user_id FROM identities WHERE subject_hash = $1"),
            vec![subject_hash.into()],
        )
        .await?;
        rows.pop().map(|mut row| row.text()).transpose()
    }

    async fn admit_identity(
        &self,
        subject_hash: &str,
        email: &str,
        role: Role,
    ) -> Result<Option<String>, Error> {
        let mut tx = self.engine.begin().await?;
        let mut rows = Self::query(
            &mut tx,
            same(
                "SELECT u.user_id, u.role FROM identities i JOIN users u ON u.user_id = i.user_id
                  WHERE i.subject_hash = $1",
            ),
            vec![subject_hash.into()],
        )
        .await?;
        if let Some(mut row) = rows.pop() {
            let (user_id, before): (String, Role) = (row.text()?, row.word()?);
            if before != role {
                Self::execute(
                    &mut tx,
                    same("UPDATE users SET role = $1 WHERE user_id = $2"),
                    vec![role.as_str().into(), (&user_id).into()],
                )
                .await?;
                let detail = about("role_changed", &user_id)
                    .code("before", before.as_str())
                    .code("after", role.as_str());
                self.note_operator(&mut tx, FactKind::Operator, "system", &detail).await?;
                E::commit(tx).await?;
            }
            return Ok(Some(user_id));
        }
        // An account that is here already is never handed to whoever an identity provider says has its
        // address: the local break-glass account stays its owner's.
        let taken = Self::query(
            &mut tx,
            same("SELECT user_id FROM users WHERE email = $1"),
            vec![email.into()],
        );
        if !taken.await?.is_empty() {
            return Ok(None);
        }
        let user = self.insert_user(&mut tx, "system", email, role, EXTERNAL, false).await?;
        Self::execute(
            &mut tx,
            same("INSERT INTO identities (subject_hash, user_id, created_at) VALUES ($1, $2, $3)"),
            vec![subject_hash.into(), (&user.id).into(), self.env.clock.now().into()],
        )
        .await?;
        E::commit(tx).await?;
        Ok(Some(user.id))
    }

    async fn offer_setup(&self, link_hash: &str, expires_at: Stamp) -> Result<bool, Error> {
        let now = self.env.clock.now();
        let mut tx = self.engine.begin().await?;
        if Self::has_users(&mut tx).await? {
            return Ok(false);
        }
        Self::execute(
            &mut tx,
            same("DELETE FROM setup_links WHERE expires_at <= $1"),
            vec![now.into()],
        )
        .await?;
        Self::execute(
            &mut tx,
            same("INSERT INTO setup_links (link_hash, expires_at) VALUES ($1, $2)"),
            vec![link_hash.into(), Value::from(expires_at)],
        )
        .await?;
        E::commit(tx).await?;
        Ok(true)
    }

    async fn is_setup_open(&self, link_hash: &str) -> Result<bool, Error> {
        let mut tx = self.engine.begin_read().await?;
        let rows = Self::query(
            &mut tx,
            same("SELECT link_hash FROM setup_links WHERE link_hash = $1 AND expires_at > $2"),
            vec![link_hash.into(), self.env.clock.now().into()],
        )
        .await?;
        Ok(!rows.is_empty() && !Self::has_users(&mut tx).await?)
    }

    async fn use_setup(
        &self,
        link_hash: &str,
        email: &str,
        password_hash: &str,
    ) -> Result<Option<String>, Error> {
        let mut tx = self.engine.begin().await?;
        let used = Self::execute(
            &mut tx,
            same("DELETE FROM setup_links WHERE link_hash = $1 AND expires_at > $2"),
            vec![link_hash.into(), self.env.clock.now().into()],
        )
        .await?;
        if used == 0 || Self::has_users(&mut tx).await? {
            return Ok(None);
        }
        // The others are worth nothing from here on; deleting them makes two links exclude each other.
        Self::execute(&mut tx, same("DELETE FROM setup_links"), Vec::new()).await?;
        let user =
            self.insert_user(&mut tx, "system", email, Role::Admin, password_hash, false).await?;
        E::commit(tx).await?;
        Ok(Some(user.id))
    }
}
