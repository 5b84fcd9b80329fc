//! The provider simulator (CONTRACT section 6): the wire protocol of each supported provider, with
//! behaviour that a script decides, call by call.
//!
//! It is for tests, trials, rehearsals and the `demo` provider. It keeps who was written to, because that
//! is what a test asks, but it never keeps a text and logs neither.
//!
//! * `kinds/`: one module a protocol, registered in [`KINDS`];
//! * `script`: what a script may say, and which one a call meets;
//! * `control`: `/_control`;
//! * `serve`: connections, so that a reset is a reset and a hang a hang;
//! * `smtp`: the one protocol that is not HTTP;
//! * `callbacks`, `journal`.

mod callbacks;
mod control;
mod journal;
mod kinds;
mod script;
mod serve;
mod smtp;
mod state;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use app::model::{Seen, Stamp};
use axum::Router;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, duration};
use crate::entropy::Entropy;
use crate::providers::Secret;
use crate::providers::transport::Transport;

pub use callbacks::{CALLBACKS_MAX, CallbackFacts, CallbackTarget, Callbacks, LATE};
pub use journal::Journal;
pub use kinds::{KINDS, Kind, sendgrid_public_key};
pub use script::{Behaviour, Delivery, Match, Options, Script, ScriptError};
pub use serve::{CONNECTIONS_MAX, Line, serve};
pub use smtp::{Identity, serve_smtp};
pub use state::{Call, KEPT_MAX, SCRIPTS_MAX, Sent};

use state::State;

/// A header of every answer of `/_control`: whoever sends it is a simulator.
pub const MARK: &str = "sendonce-simulator";

/// How long a hanging call is held at most.
pub const HANG_MAX: Duration = Duration::from_secs(300);

/// The largest request that is read: 256 KiB.
pub const REQUEST_BYTES_MAX: usize = 256 << 10;

/// How a simulator is set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Calls must be signed with it; without it, signatures are not looked at.
    pub secret: Option<Secret>,
    /// Where callbacks go unless a script names another place.
    pub callbacks: Option<CallbackTarget>,
    /// `/_control` is there.
    pub has_control: bool,
    /// How long after its acceptance a message is delivered, in microseconds.
    pub deliver_after: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { secret: None, callbacks: None, has_control: true, deliver_after: 2_000_000 }
    }
}

/// What one simulator has been told and has seen. Shared by all its connections.
pub struct Simulator {
    settings: Settings,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    transport: Arc<dyn Transport>,
    // A std mutex: no lock is held over an await.
    state: Mutex<State>,
    callback_slots: Arc<Semaphore>,
    /// Where it is reached, once it is served.
    origin: OnceLock<String>,
    /// Made when it is first asked for; none: it could not be made.
    identity: OnceLock<Option<Identity>>,
    closing: CancellationToken,
}

impl fmt::Debug for Simulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Simulator")
    }
}

/// One call as a kind's module has read it from its own wire format.
#[derive(Debug, Clone)]
pub struct Incoming {
    pub kind: &'static str,
    /// The attempt id that travelled with the message.
    pub attempt: String,
    pub destination: String,
    /// Only for kinds whose vendor gives the text back; kept in memory, listed nowhere.
    pub text: Option<Secret>,
    /// Only for kinds whose callbacks go where the call itself says.
    pub target: Option<CallbackTarget>,
}

impl Incoming {
    /// A call of a kind that gives no text back and has one place for all its callbacks.
    #[must_use]
    pub const fn new(kind: &'static str, attempt: String, destination: String) -> Self {
        Self { kind, attempt, destination, text: None, target: None }
    }
}

/// Which messages a look-up asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which<'a> {
    Attempt(&'a str),
    Message(&'a str),
    Destination(&'a str),
    All,
}

/// The script wants look-ups to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Down;

/// What a kind's module has to answer, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Taken; `is_repeat`: it had been taken before under the same attempt id.
    Accepted {
        message_id: String,
        is_repeat: bool,
    },
    /// A server error, whatever happened to the message.
    Broken,
    RefusedPermanently,
    RefusedTransiently,
    /// The value of `Retry-After` as scripted.
    RateLimited {
        retry_after: String,
    },
    /// The simulator itself cannot do its work: nothing was taken.
    Unavailable,
}

/// What a look-up answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    Down,
    Absent,
    Found { state: Seen, message_id: String },
}

impl Simulator {
    /// A simulator that has seen nothing but what the journal, if there is one, remembers.
    #[must_use]
    pub fn new(
        settings: Settings,
        journal: Option<Journal>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        transport: Arc<dyn Transport>,
    ) -> Arc<Self> {
        Arc::new(Self {
            settings,
            clock,
            entropy,
            transport,
            state: Mutex::new(State::new(journal)),
            callback_slots: Arc::new(Semaphore::new(CALLBACKS_MAX)),
            origin: OnceLock::new(),
            identity: OnceLock::new(),
            closing: CancellationToken::new(),
        })
    }

    /// Ends its connections and callbacks when cancelled.
    #[must_use]
    pub const fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Adds a script, in place of one with the same provider and match.
    ///
    /// # Errors
    /// When there are [`SCRIPTS_MAX`] already.
    pub fn script(&self, script: Script) -> Result<(), ScriptError> {
        self.state().add(script)
    }

    /// The calls that were seen, oldest first; of one attempt or of all.
    #[must_use]
    pub fn calls(&self, attempt: Option<&str>) -> Vec<Call> {
        self.state().calls(attempt)
    }

    /// Look-ups that were answered.
    #[must_use]
    pub fn lookups(&self) -> u64 {
        self.state().lookups
    }

    /// The messages that were accepted, oldest first; of one attempt or of all.
    #[must_use]
    pub fn messages(&self, attempt: Option<&str>) -> Vec<Sent> {
        self.state().messages(attempt, self.clock.now())
    }

    /// Forgets scripts, calls and messages.
    pub fn clear(&self) {
        self.state().clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plays one call: counts it, does what the script says, and tells what to answer. Does not return
    /// where the script hangs or resets.
    ///
    /// A message is accepted before anything is waited for: whoever hangs up meanwhile was too late.
    pub async fn play(self: &Arc<Self>, incoming: &Incoming, line: Option<&Line>) -> Reply {
        let now = self.clock.now();
        let (behaviour, accepted) = {
            let mut state = self.state();
            let (behaviour, options) = state.next(incoming, now);
            let mut accepted = None;
            if behaviour.accepts() {
                let message_id = KINDS
                    .iter()
                    .find(|kind| kind.name == incoming.kind)
                    .map_or_else(|| self.entropy.hex(12), |kind| (kind.message_id)(&*self.entropy));
                let deliver_after = options.deliver_after.unwrap_or(self.settings.deliver_after);
                match state.accept(incoming, message_id, now, deliver_after, options.delivery) {
                    Ok(taken) => accepted = Some((taken, options)),
                    Err(error) => {
                        tracing::warn!(error = %error.kind(), "the simulator cannot write its journal");
                        return Reply::Unavailable;
                    }
                }
            }
            (behaviour, accepted)
        };
        if let Some(((sent, is_repeat), options)) = &accepted
            && !is_repeat
        {
            callbacks::start(self, incoming, sent, options);
        }
        let reply = match accepted {
            Some(((sent, is_repeat), _)) => {
                Reply::Accepted { message_id: sent.message_id, is_repeat }
            }
            None => Reply::Broken,
        };
        match behaviour {
            Behaviour::Accept => reply,
            Behaviour::Slow { ms } => {
                self.clock.sleep(Duration::from_millis(ms)).await;
                reply
            }
            Behaviour::AcceptThenHang | Behaviour::HangBeforeAccept => {
                self.clock.sleep(HANG_MAX).await;
                Reply::Broken
            }
            Behaviour::AcceptThenReset | Behaviour::ResetBeforeAccept => match line {
                Some(line) => line.reset().await,
                None => Reply::Broken,
            },
            Behaviour::AcceptThen500 => Reply::Broken,
            Behaviour::RefusePermanently => Reply::RefusedPermanently,
            Behaviour::RefuseTransiently => Reply::RefusedTransiently,
            Behaviour::RateLimit { retry_after } => Reply::RateLimited { retry_after },
        }
    }

    /// Answers a look-up of one attempt.
    #[must_use]
    pub fn look_up(&self, kind: &'static str, attempt: &str) -> Known {
        self.state().look_up(kind, attempt, self.clock.now())
    }

    /// Answers a look-up: what it would see by now, oldest first.
    ///
    /// # Errors
    /// Where the script wants it.
    pub fn find(&self, kind: &'static str, which: Which<'_>) -> Result<Vec<Sent>, Down> {
        self.state().find(kind, which, self.clock.now())
    }

    /// What was accepted of one attempt. Counts as no look-up.
    #[must_use]
    pub fn accepted(&self, kind: &'static str, attempt: &str) -> Option<Sent> {
        self.state().accepted(kind, attempt, self.clock.now())
    }

    /// The certificate of its SMTP.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.get_or_init(Identity::generate).as_ref()
    }

    fn secret(&self) -> Option<&Secret> {
        self.settings.secret.as_ref()
    }

    fn entropy(&self) -> &dyn Entropy {
        &*self.entropy
    }

    fn now(&self) -> Stamp {
        self.clock.now()
    }

    async fn wait(&self, micros: i64) {
        self.clock.sleep(duration(micros)).await;
    }
}

/// All kinds under `/<kind>/…`, and `/_control` where the settings have it.
///
/// Served by anything but [`serve`], a scripted reset is answered with 500 instead.
pub fn router(simulator: &Arc<Simulator>) -> Router {
    let mut router = Router::new();
    for kind in KINDS {
        router = router
            .nest(&format!("/{}", kind.name), (kind.routes)(Arc::clone(simulator), kind.name));
    }
    if simulator.settings.has_control {
        router = router.nest("/_control", control::routes(Arc::clone(simulator)));
    }
    router.layer(axum::extract::DefaultBodyLimit::max(REQUEST_BYTES_MAX))
}
