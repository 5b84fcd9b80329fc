//! Who is at the other end: sessions in our own store, the cookie, and the tokens of forms.
//!
//! The database keeps the SHA-256 of a session's id, never the id. Time is our clock's: tower-sessions reads
//! a clock of its own, so what it calls the expiry of a record is ignored and the store's `expires_at` is
//! computed here. Whoever is signed in is read again for each request, so that disabling somebody, another
//! role or another password takes effect at once.

use std::collections::HashMap;
use std::sync::Arc;

use app::model::{Operator, Owes, SessionView, Stamp};
use async_trait::async_trait;
use axum::http::HeaderMap;
use axum::http::header::{COOKIE, HeaderValue, USER_AGENT};
use serde_json::Value;
use tower_sessions::cookie::SameSite;
use tower_sessions::cookie::time::OffsetDateTime;
use tower_sessions::session::{Id, Record};
use tower_sessions::session_store::{Error as SessionError, Result as SessionResult, SessionStore};
use tower_sessions::{Expiry, Session, SessionManagerLayer};

use crate::clock::Clock;
use crate::config::Config;
use crate::entropy::Entropy;
use crate::keys::{self, Keys};
use crate::store::{self, SessionRow, Store, User};

/// What a session keeps.
const USER: &str = "user";
const CSRF: &str = "csrf";
const SIGNED_IN_AT: &str = "signed_in_at";
const SEEN_AT: &str = "seen_at";
/// Browser and system in coarse words, for the list of one's own sessions.
const AGENT: &str = "agent";
/// A keyed hash of the password hash: with another password the session is nobody's.
const PASSWORD: &str = "password";

/// A request moves the idle timeout when the last one that did is older than this: a write a minute, not
/// one a page.
const TOUCH_AFTER: i64 = 60_000_000;

/// With 128 random bits the first try does not collide; a generator that repeats itself is a fault to report.
const CREATE_TRIES: usize = 3;

/// Sessions in the ledger's database.
#[derive(Debug, Clone)]
pub struct Sessions {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    idle_timeout: i64,
    absolute_timeout: i64,
}

impl Sessions {
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        config: &Config,
    ) -> Self {
        Self {
            store,
            clock,
            entropy,
            idle_timeout: config.ui.idle_timeout,
            absolute_timeout: config.ui.absolute_timeout,
        }
    }

    /// The layer that reads the cookie and saves what changed.
    ///
    /// `SameSite=Lax`: with `Strict` a link to an event in a ticket or chat would ask for a password although
    /// one is signed in. What `Lax` lets through are top-level GETs, and no GET changes anything.
    #[must_use]
    pub fn layer(self, config: &Config) -> SessionManagerLayer<Self> {
        SessionManagerLayer::new(self)
            .with_name(config.session_cookie())
            .with_secure(config.has_secure_cookies())
            .with_http_only(true)
            .with_same_site(SameSite::Lax)
            .with_path("/")
            // The browser forgets it when it closes; when the session ends is decided here.
            .with_expiry(Expiry::OnSessionEnd)
    }

    async fn write(&self, record: &Record) -> SessionResult<()> {
        let now = self.clock.now();
        let at = |name| instant(record.data.get(name)).unwrap_or(now);
        let idle_to = at(SEEN_AT).plus(self.idle_timeout);
        let expires_at = idle_to.min(at(SIGNED_IN_AT).plus(self.absolute_timeout));
        let data =
            serde_json::to_string(&record.data).map_err(|e| SessionError::Encode(e.to_string()))?;
        let user = record.data.get(USER).and_then(Value::as_str);
        self.store.save_session(&hash(&record.id), user, &data, expires_at).await.map_err(backend)
    }
}

#[async_trait]
impl SessionStore for Sessions {
    async fn create(&self, record: &mut Record) -> SessionResult<()> {
        for _ in 0..CREATE_TRIES {
            let mut bytes = [0_u8; 16];
            self.entropy.fill(&mut bytes);
            let id = Id(i128::from_le_bytes(bytes));
            if self.store.load_session(&hash(&id)).await.map_err(backend)?.is_none() {
                record.id = id;
                return self.write(record).await;
            }
        }
        Err(SessionError::Backend("no unused session id was found".to_owned()))
    }

    async fn save(&self, record: &Record) -> SessionResult<()> {
        // It may have been ended while this request ran: then writing it would bring it back.
        match self.store.load_session(&hash(&record.id)).await.map_err(backend)? {
            Some(_) => self.write(record).await,
            None => Ok(()),
        }
    }

    async fn load(&self, id: &Id) -> SessionResult<Option<Record>> {
        let Some(text) = self.store.load_session(&hash(id)).await.map_err(backend)? else {
            return Ok(None);
        };
        let data: HashMap<String, Value> =
            serde_json::from_str(&text).map_err(|e| SessionError::Decode(e.to_string()))?;
        // What has been read is in force: the store has already looked at `expires_at`.
        Ok(Some(Record { id: *id, data, expiry_date: OffsetDateTime::UNIX_EPOCH }))
    }

    async fn delete(&self, id: &Id) -> SessionResult<()> {
        self.store.delete_session(&hash(id)).await.map_err(backend)
    }
}

fn backend(error: store::Error) -> SessionError {
    SessionError::Backend(error.to_string())
}

/// What the database knows a session by.
fn hash(id: &Id) -> String {
    keys::sha256(id.to_string().as_bytes())
}

fn instant(value: Option<&Value>) -> Option<Stamp> {
    value.and_then(Value::as_i64).map(Stamp::from_micros)
}

/// Somebody who is signed in, as of this request.
#[derive(Debug, Clone)]
pub struct Visitor {
    pub operator: Operator,
    /// What this session's forms must send back.
    pub csrf: String,
    /// What the database knows the session by.
    pub session_hash: String,
    /// Somebody else chose the password.
    pub must_change: bool,
    pub has_factor: bool,
    /// Signs in by the identity provider.
    pub is_external: bool,
}

impl Visitor {
    /// What has to be done before any other page opens.
    #[must_use]
    pub fn owes(&self, config: &Config) -> Option<Owes> {
        let needs_factor = config.auth.totp_required_roles.contains(&self.operator.role);
        if self.is_external {
            None
        } else if self.must_change {
            Some(Owes::Password)
        } else if needs_factor && !self.has_factor {
            Some(Owes::SecondFactor)
        } else {
            None
        }
    }

    /// How facts name this person.
    #[must_use]
    pub fn actor(&self) -> String {
        format!("operator:{}", self.operator.id)
    }
}

/// Why a session could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Session(#[from] tower_sessions::session::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// Reads who a session belongs to, from the users as they are now. A session that is nobody's any more is
/// ended.
///
/// `is_activity`: the person did something, so the idle timeout starts again. A page that refreshes itself
/// is not the person.
///
/// # Errors
/// When the database cannot be read.
pub async fn visitor(
    session: &Session,
    store: &dyn Store,
    keys: &Keys,
    now: Stamp,
    is_activity: bool,
) -> Result<Option<Visitor>, Error> {
    let Some(user_id) = session.get::<String>(USER).await? else { return Ok(None) };
    let user = store.user_by_id(&user_id).await?.filter(|user| !user.is_disabled);
    let mark = session.get::<String>(PASSWORD).await?;
    let user = user.filter(|user| mark.as_deref() == Some(&password_mark(keys, user)));
    let csrf = session.get::<String>(CSRF).await?;
    let (Some(user), Some(csrf), Some(id)) = (user, csrf, session.id()) else {
        session.flush().await?;
        return Ok(None);
    };
    let seen_at = session.get::<i64>(SEEN_AT).await?.map_or(now, Stamp::from_micros);
    if is_activity && now.since(seen_at) >= TOUCH_AFTER {
        session.insert(SEEN_AT, now.micros()).await?;
    }
    let is_external = user.is_external();
    let (must_change, has_factor) = (user.must_change, user.has_factor);
    let operator = Operator { id: user.id, email: user.email, role: user.role };
    let session_hash = hash(&id);
    Ok(Some(Visitor { operator, csrf, session_hash, must_change, has_factor, is_external }))
}

/// Whether what a long answer was permitted for still holds.
///
/// # Errors
/// When the database cannot be read.
pub async fn still_holds(
    visitor: &Visitor,
    store: &dyn Store,
    may: app::model::Permission,
) -> Result<bool, store::Error> {
    if store.load_session(&visitor.session_hash).await?.is_none() {
        return Ok(false);
    }
    let user = store.user_by_id(&visitor.operator.id).await?;
    Ok(user.is_some_and(|user| !user.is_disabled && user.role.may(may)))
}

/// Begins a session under a new id. What was known under the old one is gone, so that an id which somebody
/// planted is worth nothing.
///
/// # Errors
/// When the old session cannot be ended. The new one is written with the answer.
pub async fn sign_in(
    session: &Session,
    user: &User,
    keys: &Keys,
    entropy: &dyn Entropy,
    agent: &str,
    now: Stamp,
) -> Result<(), Error> {
    sign_out(session).await?;
    session.insert(AGENT, agent).await?;
    session.insert(USER, &user.id).await?;
    session.insert(PASSWORD, password_mark(keys, user)).await?;
    session.insert(CSRF, entropy.hex(16)).await?;
    session.insert(SIGNED_IN_AT, now.micros()).await?;
    session.insert(SEEN_AT, now.micros()).await?;
    Ok(())
}

/// Binds the running session to the password as it is now, right after its owner changed it.
///
/// # Errors
/// When it cannot be written.
pub async fn rebind(session: &Session, user: &User, keys: &Keys) -> Result<(), Error> {
    session.insert(PASSWORD, password_mark(keys, user)).await?;
    Ok(())
}

/// A session as its owner sees it listed; none where what is kept cannot be read.
#[must_use]
pub fn listed(row: &SessionRow, own_hash: &str) -> Option<SessionView> {
    let data: HashMap<String, Value> = serde_json::from_str(&row.data).ok()?;
    Some(SessionView {
        handle: row.hash.get(..HANDLE_CHARS)?.to_owned(),
        is_this: row.hash == own_hash,
        agent: data.get(AGENT).and_then(Value::as_str).unwrap_or("A browser").to_owned(),
        signed_in_at: instant(data.get(SIGNED_IN_AT)).unwrap_or(row.created_at),
        seen_at: instant(data.get(SEEN_AT)).unwrap_or(row.created_at),
        expires_at: row.expires_at,
    })
}

/// So much of a session's hash names it in its owner's form.
const HANDLE_CHARS: usize = 16;

/// Browser and system in coarse words: enough to know one's own again, too little to follow anybody.
#[must_use]
pub fn agent(headers: &HeaderMap) -> String {
    let text = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let first = |table: &[(&str, &'static str)], other: &'static str| {
        table.iter().find(|(mark, _)| text.contains(mark)).map_or(other, |(_, name)| name)
    };
    // The order matters: most browsers also name those that came before them.
    let browser = first(
        &[
            ("Edg", "Edge"),
            ("OPR/", "Opera"),
            ("Firefox/", "Firefox"),
            ("FxiOS/", "Firefox"),
            ("Chrome/", "Chrome"),
            ("CriOS/", "Chrome"),
            ("Safari/", "Safari"),
        ],
        "A program",
    );
    let system = first(
        &[
            ("Android", " on Android"),
            ("iPhone", " on iOS"),
            ("iPad", " on iOS"),
            ("Windows", " on Windows"),
            ("Mac OS X", " on macOS"),
            ("CrOS", " on ChromeOS"),
            ("Linux", " on Linux"),
        ],
        "",
    );
    format!("{browser}{system}")
}

/// Ends the session.
///
/// # Errors
/// When it cannot be deleted.
pub async fn sign_out(session: &Session) -> Result<(), Error> {
    if session.id().is_some() {
        session.flush().await?;
    }
    Ok(())
}

fn password_mark(keys: &Keys, user: &User) -> String {
    keys.content_hash(&[b"session password", user.password_hash.as_bytes()])
}

/// The one value of a cookie. None when there are several: one of them was planted.
#[must_use]
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut found = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|header| header.to_str().ok())
        .flat_map(|text| text.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(found, _)| *found == name)
        .map(|(_, value)| value);
    let first = found.next();
    if found.next().is_some() { None } else { first }
}

/// The form that is there before anybody is signed in: its token is a keyed hash of a cookie of its own, so
/// that reading the sign-in page writes nothing to the database.
#[derive(Debug, Clone)]
pub struct Anonymous {
    secret: String,
    is_new: bool,
}

impl Anonymous {
    /// The browser's secret, or a new one.
    #[must_use]
    pub fn of(headers: &HeaderMap, config: &Config, entropy: &dyn Entropy) -> Self {
        let known = cookie(headers, Self::cookie_name(config))
            .filter(|secret| secret.len() == 32 && secret.bytes().all(|b| b.is_ascii_hexdigit()));
        match known {
            Some(secret) => Self { secret: secret.to_owned(), is_new: false },
            None => Self { secret: entropy.hex(16), is_new: true },
        }
    }

    /// What the form must send back.
    #[must_use]
    pub fn token(&self, keys: &Keys) -> String {
        keys.content_hash(&[b"sign-in form", self.secret.as_bytes()])
    }

    /// Stands for something that was begun in this browser: a keyed hash that no other browser can show.
    #[must_use]
    pub fn bound(&self, keys: &Keys, parts: &[&[u8]]) -> String {
        let mut all: Vec<&[u8]> = vec![b"bound to a browser", self.secret.as_bytes()];
        all.extend_from_slice(parts);
        keys.content_hash(&all)
    }

    /// The cookie to set, if the browser has none yet.
    #[must_use]
    pub fn set_cookie(&self, config: &Config) -> Option<HeaderValue> {
        let secure = if config.has_secure_cookies() { "; Secure" } else { "" };
        let text = format!(
            "{}={}; HttpOnly; SameSite=Lax{secure}; Path=/",
            Self::cookie_name(config),
            self.secret
        );
        if self.is_new { HeaderValue::from_str(&text).ok() } else { None }
    }

    fn cookie_name(config: &Config) -> &'static str {
        if config.has_secure_cookies() { "__Host-sendonce-form" } else { "sendonce-form" }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue};

    use super::{agent, cookie};

    #[test]
    fn a_browser_is_known_by_coarse_words_alone() {
        let said = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("user-agent", HeaderValue::from_static(text));
            agent(&headers)
        };
        let chrome = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/150.0.0.0 Safari/537.36";
        assert_eq!(said(chrome), "Chrome on Linux");
        let edge = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/150.0 Safari/537.36 Edg/150.0";
        assert_eq!(said(edge), "Edge on Windows");
        let safari = "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605 Version/19 Mobile Safari/604";
        assert_eq!(said(safari), "Safari on iOS");
        assert_eq!(said("curl/8"), "A program");
        assert_eq!(agent(&HeaderMap::new()), "A program");
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name_and_never_taken_from_two() {
        let mut headers = HeaderMap::new();
        headers.append("cookie", HeaderValue::from_static("xsendonce=1; sendonce=2"));
        headers.append("cookie", HeaderValue::from_static("other=3"));
        assert_eq!(cookie(&headers, "sendonce"), Some("2"));
        assert_eq!(cookie(&headers, "send"), None);
        headers.append("cookie", HeaderValue::from_static("sendonce=4"));
        assert_eq!(cookie(&headers, "sendonce"), None);
    }
}
