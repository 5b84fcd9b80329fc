//! Evidence: what reads, callbacks and late answers say about an attempt, and when it counts.

use app::model::{Detail, FactKind, Reason, Seen, Stamp, State};

use super::apply::{Illegal, Step, require};
use super::record::{Held, Phase};
use super::{Ctx, Lookup, Verdict};

impl Step {
    pub(super) fn late_answer(
        &mut self,
        attempt: u32,
        verdict: &Verdict,
        ctx: &Ctx<'_>,
    ) -> Result<(), Illegal> {
        require(self.record.may_have(attempt), Illegal::NoSuchAttempt)?;
        let mut detail = Detail::default().code("outcome", verdict.outcome().as_str());
        if let Some(code) = verdict.code() {
            detail = detail.code("code", code);
        }
        if let Verdict::Accepted { message_id } = verdict {
            self.note_message(FactKind::LateAnswer, attempt, message_id.as_deref(), detail, ctx);
            self.weigh(attempt, Seen::Accepted, message_id.as_deref(), ctx);
        } else {
            self.note(FactKind::LateAnswer, Some(attempt), detail, ctx);
        }
        Ok(())
    }

    pub(super) fn callback(
        &mut self,
        attempt: u32,
        seen: Seen,
        message_id: Option<&str>,
        cause: Option<&'static str>,
        provider_at: Option<Stamp>,
        ctx: &Ctx<'_>,
    ) -> Result<(), Illegal> {
        require(self.record.may_have(attempt), Illegal::NoSuchAttempt)?;
        let mut detail = Detail::default().code("seen", seen.as_str());
        if let Some(cause) = cause {
            detail = detail.code("code", cause);
        }
        if let Some(at) = provider_at {
            detail = detail.number("provider_at", at.micros());
        }
        self.note_message(FactKind::Callback, attempt, message_id, detail, ctx);
        self.weigh(attempt, seen, message_id, ctx);
        Ok(())
    }

    pub(super) fn read(
        &mut self,
        calls: u32,
        attempt: u32,
        asked_at: Stamp,
        answer: &Lookup,
        ctx: &Ctx<'_>,
    ) -> Result<(), Illegal> {
        if let Lookup::Found { seen, message_id } = answer {
            require(self.record.may_have(attempt), Illegal::NoSuchAttempt)?;
            let news = self.record.state != State::Sent || *seen != Seen::Accepted;
            if news {
                let detail = Detail::default().code("answer", "found").code("seen", seen.as_str());
                self.note_message(FactKind::Lookup, attempt, message_id.as_deref(), detail, ctx);
            }
            self.record.absent_at = None;
            self.weigh(attempt, *seen, message_id.as_deref(), ctx);
            if self.record.state == State::Sent {
                self.read_later(ctx);
            }
            return Ok(());
        }
        // Only an answer about the call that the record still waits for can show absence.
        let r = &self.record;
        require(calls == r.calls && attempt == r.attempt, Illegal::State)?;
        require(attempt >= 1 || r.restored_at.is_some(), Illegal::NoSuchAttempt)?;
        match r.state {
            State::Sent => {
                self.read_later(ctx);
                Ok(())
            }
            State::DispatchUnknown => {
                self.unresolved_read(asked_at, answer, ctx);
                Ok(())
            }
            _ => Err(Illegal::State),
        }
    }

    /// "Absent" and "cannot tell" about an unknown outcome (CONTRACT 3.3).
    pub(super) fn unresolved_read(&mut self, asked_at: Stamp, answer: &Lookup, ctx: &Ctx<'_>) {
        let attempt = self.record.attempt;
        let believed = self.record.settled_from(ctx.facing.settle, ctx.policy.lease);
        // Evidence that a refusal contradicted outweighs any number of "absent".
        let counts = *answer == Lookup::Absent
            && self.record.held.is_none()
            && believed.is_some_and(|from| asked_at >= from);
        let detail = match answer {
            Lookup::CannotTell { code } => {
                Detail::default().code("answer", "cannot_tell").code("code", code)
            }
            _ => Detail::default().code("answer", "absent").number("counts", i64::from(counts)),
        };
        self.note(FactKind::Lookup, Some(attempt), detail, ctx);
        let gap = ctx.absence_gap(ctx.facing.settle.unwrap_or(0));
        self.read_later(ctx);
        if matches!(answer, Lookup::CannotTell { .. }) {
            self.record.absent_at = None;
        } else if counts {
            match self.record.absent_at {
                Some(first) if asked_at >= first.plus(gap) => {
                    self.prove(Reason::ReconciledAbsent, None, Detail::default(), ctx);
                    return;
                }
                Some(first) => self.record.due_at = Some(first.plus(gap)),
                None => {
                    self.record.absent_at = Some(asked_at);
                    self.record.due_at = Some(asked_at.plus(gap));
                }
            }
        } else if let Some(from) = believed {
            // Nothing is gained by waiting past the instant from which absence is believed.
            self.record.due_at = self.record.due_at.map(|due| due.min(from).max(ctx.now));
        }
        self.plan_replay(ctx);
    }

    pub(super) fn read_later(&mut self, ctx: &Ctx<'_>) {
        let r = &mut self.record;
        r.due_at = Some(ctx.now.plus(ctx.poll(r.reads)));
        r.reads += 1;
        if r.state == State::Sent && r.poll_until.is_none_or(|until| ctx.now >= until) {
            r.due_at = None;
        }
    }

    /// What evidence about one attempt does to the record.
    pub(super) fn weigh(
        &mut self,
        attempt: u32,
        seen: Seen,
        message_id: Option<&str>,
        ctx: &Ctx<'_>,
    ) {
        let is_earlier = self.record.has_called_since(attempt);
        if is_earlier {
            self.note_message(
                FactKind::DuplicateEvidence,
                attempt,
                message_id,
                Detail::default().code("seen", seen.as_str()),
                ctx,
            );
        }
        match (self.record.state, self.record.phase) {
            (State::Dispatching, Phase::Calling) => self.hold(attempt, seen, message_id),
            (State::Dispatching, _) if self.record.is_replay => {
                self.hold(attempt, seen, message_id);
            }
            // The proof is withdrawn: nothing more is sent.
            (State::Accepted | State::Dispatching, _) => {
                self.reconciled(attempt, seen, message_id, ctx);
            }
            // A failed earlier message says nothing about the attempt that is still open.
            (State::DispatchUnknown | State::Sent, _) if is_earlier && seen != Seen::Delivered => {
                if self.record.state == State::DispatchUnknown {
                    self.hold(attempt, seen, message_id);
                }
            }
            (State::DispatchUnknown, _) => self.reconciled(attempt, seen, message_id, ctx),
            (State::Sent, _) => {
                if !is_earlier {
                    self.keep_message_id(message_id);
                }
                let (to, reason) = match seen {
                    Seen::Accepted => return,
                    Seen::Delivered => (State::Delivered, Reason::DeliveryEvidence),
                    Seen::Failed => (State::FailedFinal, Reason::Undelivered),
                };
                self.go(to, reason, attempt, Detail::default(), ctx);
            }
            // Final: kept as a fact, changes nothing.
            (State::Delivered | State::FailedFinal | State::Expired, _) => {}
        }
    }

    pub(super) fn reconciled(
        &mut self,
        attempt: u32,
        seen: Seen,
        message_id: Option<&str>,
        ctx: &Ctx<'_>,
    ) {
        self.release();
        self.keep_message_id(message_id);
        self.record.authority = 0;
        self.record.held = None;
        let (to, reason) = match seen {
            Seen::Accepted => (State::Sent, Reason::ReconciledFound),
            Seen::Delivered => (State::Delivered, Reason::ReconciledDelivered),
            Seen::Failed => (State::FailedFinal, Reason::ReconciledFailed),
        };
        self.go(to, reason, attempt, Detail::default(), ctx);
        if to == State::Sent {
            self.await_delivery(ctx);
        }
    }

    /// Keeps the strongest evidence until the call in hand ends. The first final word stays.
    pub(super) fn hold(&mut self, attempt: u32, seen: Seen, message_id: Option<&str>) {
        let stronger = match &self.record.held {
            None => true,
            Some(held) => {
                (held.attempt != self.record.attempt && attempt == self.record.attempt)
                    || (held.attempt == attempt && held.seen == Seen::Accepted)
            }
        };
        if stronger {
            let kept = self.record.held.take().and_then(|held| held.message_id);
            let message_id = message_id.map(str::to_owned).or(kept);
            self.record.held = Some(Held { attempt, seen, message_id });
        }
    }

    /// The call in hand is over: what was held back counts now.
    pub(super) fn apply_held(&mut self, ctx: &Ctx<'_>) {
        let waits =
            matches!(self.record.state, State::Accepted | State::DispatchUnknown | State::Sent);
        if !waits {
            self.record.held = None;
            return;
        }
        let Some(held) = self.record.held.take() else { return };
        let id = held.message_id.as_deref();
        if self.record.has_called_since(held.attempt) {
            // Its duplicate guardrail was raised when it came; only its effect is due.
            match (self.record.state, held.seen) {
                (State::Accepted, _) | (State::DispatchUnknown, Seen::Delivered) => {
                    self.reconciled(held.attempt, held.seen, id, ctx);
                }
                (State::Sent, Seen::Delivered) => {
                    let reason = Reason::DeliveryEvidence;
                    self.go(State::Delivered, reason, held.attempt, Detail::default(), ctx);
                }
                (State::DispatchUnknown, _) => self.record.held = Some(held),
                _ => {}
            }
        } else {
            self.weigh(held.attempt, held.seen, id, ctx);
        }
    }

    /// Evidence stopped the marker of a fresh attempt.
    pub(super) fn release_to_evidence(&mut self, ctx: &Ctx<'_>) {
        if let Some(held) = self.record.held.take() {
            self.reconciled(held.attempt, held.seen, held.message_id.as_deref(), ctx);
        }
    }
}
