//! What a simulator remembers: scripts, calls, messages. Bounded: the oldest are forgotten first.

use std::collections::{HashMap, VecDeque};
use std::io;

use app::model::{Seen, Stamp};
use serde::Serialize;

use super::journal::{Entry, Journal};
use super::script::{Behaviour, Delivery, Options, Script, ScriptError};
use super::{Down, Incoming, KINDS, Known, Which};
use crate::providers::Secret;

/// Calls that are kept, and messages that are kept.
pub const KEPT_MAX: usize = 100_000;

/// Scripts that are kept.
pub const SCRIPTS_MAX: usize = 10_000;

/// One call as it came in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Call {
    /// The kind.
    pub provider: &'static str,
    /// The attempt id.
    pub attempt: String,
    pub destination: String,
    pub at: Stamp,
    /// What was done with it.
    pub behaviour: &'static str,
}

/// One message that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// The kind.
    pub provider: &'static str,
    /// The attempt id.
    pub attempt: String,
    pub message_id: String,
    /// Not known of a message that an earlier process accepted.
    pub destination: Option<String>,
    pub at: Stamp,
    /// Its state at the time of asking.
    pub state: Seen,
    /// Only of kinds whose vendor gives it back.
    #[serde(skip)]
    pub text: Option<Secret>,
    #[serde(skip)]
    deliver_after: i64,
    #[serde(skip)]
    delivery: Delivery,
}

impl Sent {
    /// When its delivery ends, and how; never for [`Delivery::Never`].
    pub(super) fn ends(&self) -> Option<(Stamp, Seen)> {
        let seen = match self.delivery {
            Delivery::Delivered => Seen::Delivered,
            Delivery::Failed => Seen::Failed,
            Delivery::Never => return None,
        };
        Some((self.at.plus(self.deliver_after), seen))
    }

    fn at(&self, now: Stamp) -> Self {
        let state = match self.ends() {
            Some((at, seen)) if now >= at => seen,
            _ => Seen::Accepted,
        };
        Self { state, ..self.clone() }
    }
}

#[derive(Debug)]
struct Active {
    script: Script,
    /// Calls that it has decided.
    used: usize,
}

type Key = (&'static str, String);

/// What was seen of one attempt.
#[derive(Debug, Default)]
struct Attempt {
    destination: String,
    /// Calls among those kept.
    calls: usize,
}

#[derive(Debug)]
pub struct State {
    scripts: Vec<Active>,
    calls: VecDeque<Call>,
    attempts: HashMap<Key, Attempt>,
    /// Every message, in the order in which they came.
    sent: VecDeque<Sent>,
    /// The number of the first of them, counted from the beginning.
    first: u64,
    /// Their numbers, ascending, by the attempt that they came with.
    by_attempt: HashMap<Key, Vec<u64>>,
    pub lookups: u64,
    journal: Option<Journal>,
}

impl State {
    pub fn new(journal: Option<Journal>) -> Self {
        Self {
            scripts: Vec::new(),
            calls: VecDeque::new(),
            attempts: HashMap::new(),
            sent: VecDeque::new(),
            first: 0,
            by_attempt: HashMap::new(),
            lookups: 0,
            journal,
        }
    }

    pub fn add(&mut self, script: Script) -> Result<(), ScriptError> {
        let active = Active { script, used: 0 };
        let is_same = |known: &Active| {
            known.script.provider == active.script.provider
                && known.script.matches == active.script.matches
        };
        match self.scripts.iter().position(is_same) {
            Some(at) => self.scripts[at] = active,
            None if self.scripts.len() >= SCRIPTS_MAX => {
                return Err(ScriptError::new("", "too_many_scripts"));
            }
            None => self.scripts.push(active),
        }
        Ok(())
    }

    /// The most particular script for this attempt.
    fn active(
        &mut self,
        kind: &str,
        attempt: &str,
        destination: Option<&str>,
    ) -> Option<&mut Active> {
        self.scripts
            .iter_mut()
            .filter(|active| {
                active.script.provider == kind && active.script.matches.covers(attempt, destination)
            })
            .max_by_key(|active| active.script.matches.rank())
    }

    /// Counts the call and says what its script wants.
    pub fn next(&mut self, incoming: &Incoming, now: Stamp) -> (Behaviour, Options) {
        let (behaviour, options) =
            match self.active(incoming.kind, &incoming.attempt, Some(&incoming.destination)) {
                Some(active) => {
                    let at = active.used.min(active.script.behaviour.len().saturating_sub(1));
                    active.used += 1;
                    let behaviour =
                        active.script.behaviour.get(at).cloned().unwrap_or(Behaviour::Accept);
                    (behaviour, active.script.options.clone())
                }
                None => (Behaviour::Accept, Options::default()),
            };
        if self.calls.len() >= KEPT_MAX {
            self.forget_call();
        }
        let attempt = self.attempts.entry((incoming.kind, incoming.attempt.clone())).or_default();
        attempt.destination.clone_from(&incoming.destination);
        attempt.calls += 1;
        self.calls.push_back(Call {
            provider: incoming.kind,
            attempt: incoming.attempt.clone(),
            destination: incoming.destination.clone(),
            at: now,
            behaviour: behaviour.as_str(),
        });
        (behaviour, options)
    }

    fn forget_call(&mut self) {
        let Some(oldest) = self.calls.pop_front() else { return };
        let key = (oldest.provider, oldest.attempt);
        if let Some(attempt) = self.attempts.get_mut(&key) {
            attempt.calls -= 1;
            if attempt.calls == 0 {
                self.attempts.remove(&key);
            }
        }
    }

    /// Accepts the message. A kind that honours its key names the one that was accepted under the same
    /// attempt id before instead (true); any other one has two messages then.
    pub fn accept(
        &mut self,
        incoming: &Incoming,
        message_id: String,
        now: Stamp,
        deliver_after: i64,
        delivery: Delivery,
    ) -> io::Result<(Sent, bool)> {
        self.refresh(incoming.kind, now)?;
        let key = (incoming.kind, incoming.attempt.clone());
        let is_idempotent =
            KINDS.iter().any(|kind| kind.name == incoming.kind && kind.is_idempotent);
        if let Some(known) = self.of_attempt(&key).next().filter(|_| is_idempotent) {
            return Ok((known.clone(), true));
        }
        let sent = Sent {
            provider: incoming.kind,
            attempt: incoming.attempt.clone(),
            message_id,
            destination: Some(incoming.destination.clone()),
            at: now,
            state: Seen::Accepted,
            text: incoming.text.clone(),
            deliver_after,
            delivery,
        };
        if let Some(journal) = self.journal.as_mut().filter(|_| is_journaled(incoming.kind)) {
            journal.append(&Entry {
                at: now.micros(),
                kind: incoming.kind.to_owned(),
                attempt: sent.attempt.clone(),
                message: sent.message_id.clone(),
            })?;
        }
        self.keep(key, sent.clone());
        Ok((sent, false))
    }

    fn keep(&mut self, key: Key, sent: Sent) {
        if self.sent.len() >= KEPT_MAX {
            self.forget_message();
        }
        let number = self.first + self.sent.len() as u64;
        self.by_attempt.entry(key).or_default().push(number);
        self.sent.push_back(sent);
    }

    fn forget_message(&mut self) {
        let Some(oldest) = self.sent.pop_front() else { return };
        let key = (oldest.provider, oldest.attempt);
        if let Some(numbers) = self.by_attempt.get_mut(&key) {
            numbers.retain(|number| *number != self.first);
            if numbers.is_empty() {
                self.by_attempt.remove(&key);
            }
        }
        self.first += 1;
    }

    /// The messages that came with this attempt id, oldest first.
    fn of_attempt(&self, key: &Key) -> impl Iterator<Item = &Sent> {
        let numbers = self.by_attempt.get(key).into_iter().flatten();
        numbers.filter_map(|number| self.sent.get(usize::try_from(number - self.first).ok()?))
    }

    /// Takes in what an earlier or another process has accepted.
    fn refresh(&mut self, kind: &str, now: Stamp) -> io::Result<()> {
        let Some(journal) = self.journal.as_mut().filter(|_| is_journaled(kind)) else {
            return Ok(());
        };
        for entry in journal.fresh(now)? {
            let Some(kind) = KINDS.iter().find(|kind| kind.name == entry.kind) else { continue };
            let key = (kind.name, entry.attempt.clone());
            if !self.by_attempt.contains_key(&key) {
                let sent = Sent {
                    provider: kind.name,
                    attempt: entry.attempt,
                    message_id: entry.message,
                    destination: None,
                    at: Stamp::from_micros(entry.at),
                    state: Seen::Accepted,
                    text: None,
                    deliver_after: super::Settings::default().deliver_after,
                    delivery: Delivery::Delivered,
                };
                self.keep(key, sent);
            }
        }
        Ok(())
    }

    pub fn look_up(&mut self, kind: &'static str, attempt: &str, now: Stamp) -> Known {
        self.lookups += 1;
        let key = (kind, attempt.to_owned());
        if !self.by_attempt.contains_key(&key) && self.refresh(kind, now).is_err() {
            return Known::Down;
        }
        let destination = self.attempts.get(&key).map(|seen| seen.destination.clone());
        let options = match self.active(kind, attempt, destination.as_deref()) {
            Some(active) => active.script.options.clone(),
            None => Options::default(),
        };
        match self.of_attempt(&key).next() {
            _ if options.lookup_down => Known::Down,
            Some(sent) if now.since(sent.at) >= options.lookup_lag => {
                Known::Found { state: sent.at(now).state, message_id: sent.message_id.clone() }
            }
            _ => Known::Absent,
        }
    }

    pub fn find(
        &mut self,
        kind: &'static str,
        which: Which<'_>,
        now: Stamp,
    ) -> Result<Vec<Sent>, Down> {
        self.lookups += 1;
        let wanted: Vec<Sent> = match which {
            Which::Attempt(id) => self.of_attempt(&(kind, id.to_owned())).cloned().collect(),
            Which::All => self.wanted(kind, |_| true),
            Which::Message(id) => self.wanted(kind, |sent| sent.message_id == id),
            Which::Destination(to) => {
                self.wanted(kind, |sent| sent.destination.as_deref() == Some(to))
            }
        };
        // A look-up that finds nobody may still meet a script for what it asks for.
        let (attempt, to) = match which {
            Which::Attempt(id) => (id, None),
            Which::Destination(to) => ("", Some(to)),
            Which::All | Which::Message(_) => ("", None),
        };
        if self.active(kind, attempt, to).is_some_and(|it| it.script.options.lookup_down) {
            return Err(Down);
        }
        let mut found = Vec::new();
        for sent in wanted {
            let options = self
                .active(kind, &sent.attempt, sent.destination.as_deref())
                .map_or_else(Options::default, |active| active.script.options.clone());
            if options.lookup_down {
                return Err(Down);
            }
            if now.since(sent.at) >= options.lookup_lag {
                found.push(sent.at(now));
            }
        }
        Ok(found)
    }

    pub fn accepted(&self, kind: &'static str, attempt: &str, now: Stamp) -> Option<Sent> {
        self.of_attempt(&(kind, attempt.to_owned())).next().map(|sent| sent.at(now))
    }

    fn wanted(&self, kind: &str, is_wanted: impl Fn(&Sent) -> bool) -> Vec<Sent> {
        let of_kind = self.sent.iter().filter(|sent| sent.provider == kind);
        of_kind.filter(|sent| is_wanted(sent)).cloned().collect()
    }

    pub fn calls(&self, attempt: Option<&str>) -> Vec<Call> {
        self.calls
            .iter()
            .filter(|call| attempt.is_none_or(|id| call.attempt == id))
            .cloned()
            .collect()
    }

    pub fn messages(&mut self, attempt: Option<&str>, now: Stamp) -> Vec<Sent> {
        // The list is for people and tests: what cannot be read is simply not in it.
        let _ = self.refresh(crate::providers::demo::NAME, now);
        let wanted = self.sent.iter().filter(|sent| attempt.is_none_or(|id| sent.attempt == id));
        wanted.map(|sent| sent.at(now)).collect()
    }

    pub fn clear(&mut self) {
        self.scripts.clear();
        self.calls.clear();
        self.attempts.clear();
        self.first += self.sent.len() as u64;
        self.sent.clear();
        self.by_attempt.clear();
        self.lookups = 0;
    }
}

/// Only the product's own `demo` provider must remember across a restart; a simulator that a test has
/// started forgets with its process.
fn is_journaled(kind: &str) -> bool {
    kind == crate::providers::demo::NAME
}
