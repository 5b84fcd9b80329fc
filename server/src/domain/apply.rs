//! `apply`: one record, one event, one decision.

use app::model::{
    ATTEMPT_CEILING, CallOutcome, Detail, Fact, FactKind, Reason, Seen, Stamp, State,
};

use super::record::{Phase, Record};
use super::rules::is_legal;
use super::{Ctx, Lookup, TokenState, Verdict};

/// Something that happens to a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A worker takes it. `is_frozen`: a freeze of its scope is in force, read in the same transaction.
    Claim { owner: String, lease_until: Stamp, is_frozen: bool },
    /// A worker takes it to repeat the last attempt under the same key.
    ClaimReplay { owner: String, lease_until: Stamp, is_frozen: bool, token: TokenState },
    /// The claim ends before its marker.
    GiveUp { fence: i64, why: PreCall },
    /// The marker, with what its transaction read.
    Start { fence: i64, is_frozen: bool, token: TokenState },
    /// The call's owner says how it ended.
    End { fence: i64, verdict: Verdict, ended_at: Stamp },
    /// The answer of a call whose owner had lost its lease.
    LateAnswer { attempt: u32, verdict: Verdict },
    /// The reaper finds the lease over.
    LeaseLost,
    /// A verified callback.
    Callback {
        attempt: u32,
        seen: Seen,
        message_id: Option<String>,
        /// Why, from the closed list of the providers.
        cause: Option<&'static str>,
        provider_at: Option<Stamp>,
    },
    /// The answer to a read; `calls` is the record's count when it was asked.
    Read { calls: u32, attempt: u32, asked_at: Stamp, answer: Lookup },
    /// Time is up: the queue's margin, or the end of the unknown. `was_frozen`: at that very instant.
    Expire { was_frozen: bool },
    /// The caller takes it back.
    Cancel { actor: String },
    /// Its own token was used or replaced while it waited.
    TokenDead { token: TokenState },
    /// Its own token is used or replaced now, whatever the record's state. `by`: the record whose message
    /// or use replaced it.
    TokenEnds { token: TokenState, by: Option<String>, actor: String },
    /// Somebody asked to consume its token and got this answer; `count`: so many times since the last fact.
    TokenAsked { answer: &'static str, count: i64, actor: String },
    /// Polling of a sent notification is over.
    PollOver,
    /// A restore or a failover, completed at this instant, may have lost commits about it.
    Restored { at: Stamp },
}

/// Why a claim ended before its marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreCall {
    ResolverUnavailable,
    DestinationNotFound,
    PolicyCountry,
    PolicyPrice,
    PolicyLimit,
    /// This replay would not repeat the same bytes.
    BytesDiffer,
    /// The process stops, or lost its lease: somebody else may claim.
    Released,
}

/// Why an event does not apply: the caller's picture of the record is out of date. Never a panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Illegal {
    #[error("the record is in another state")]
    State,
    #[error("the claim is not in hand any more")]
    StaleFence,
    #[error("not due yet")]
    NotDue,
    #[error("a freeze of its scope is in force")]
    Frozen,
    #[error("the margin before its expiry has begun")]
    PastMargin,
    #[error("no budget, window or authority is left for this")]
    NotAllowed,
    #[error("the record has no such attempt")]
    NoSuchAttempt,
}

/// The row that a marker writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCall {
    /// 1 for the record's first call.
    pub number: u32,
    pub attempt: u32,
    pub is_replay: bool,
    /// `seq` of the one fact that authorises it.
    pub authorised_by: u32,
    pub started_at: Stamp,
    pub call_by: Stamp,
}

/// What an event did: the record as it now is, and the rows that commit with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub record: Record,
    pub facts: Vec<Fact>,
    pub call: Option<NewCall>,
    /// How the newest call ended, to be written on its row.
    pub call_end: Option<(CallOutcome, Stamp)>,
}

impl Record {
    /// Decides what `event` does to this record at `ctx.now`.
    ///
    /// # Errors
    /// [`Illegal`] when the event does not fit the record as it is; then nothing has changed.
    pub fn apply(&self, event: &Event, ctx: &Ctx<'_>) -> Result<Step, Illegal> {
        let mut step = Step { record: self.clone(), facts: Vec::new(), call: None, call_end: None };
        step.run(event, ctx)?;
        debug_assert!(!self.state.is_terminal() || step.record.state == self.state);
        Ok(step)
    }
}

impl Step {
    /// One more event on top of this decision, in the same commit.
    ///
    /// # Errors
    /// As [`Record::apply`].
    pub fn then(mut self, event: &Event, ctx: &Ctx<'_>) -> Result<Self, Illegal> {
        self.run(event, ctx)?;
        Ok(self)
    }

    fn run(&mut self, event: &Event, ctx: &Ctx<'_>) -> Result<(), Illegal> {
        match event {
            Event::Claim { owner, lease_until, is_frozen } => {
                self.claim(owner, *lease_until, *is_frozen, ctx)
            }
            Event::ClaimReplay { owner, lease_until, is_frozen, token } => {
                self.claim_replay(owner, *lease_until, *is_frozen, *token, ctx)
            }
            Event::GiveUp { fence, why } => self.give_up(*fence, *why, ctx),
            Event::Start { fence, is_frozen, token } => self.start(*fence, *is_frozen, *token, ctx),
            Event::End { fence, verdict, ended_at } => self.end(*fence, verdict, *ended_at, ctx),
            Event::LateAnswer { attempt, verdict } => self.late_answer(*attempt, verdict, ctx),
            Event::LeaseLost => self.lease_lost(ctx),
            Event::Callback { attempt, seen, message_id, cause, provider_at } => {
                self.callback(*attempt, *seen, message_id.as_deref(), *cause, *provider_at, ctx)
            }
            Event::Read { calls, attempt, asked_at, answer } => {
                self.read(*calls, *attempt, *asked_at, answer, ctx)
            }
            Event::Expire { was_frozen } => self.expire(*was_frozen, ctx),
            Event::Cancel { actor } => self.cancel(actor, ctx),
            Event::TokenDead { token } => self.token_dead(*token, ctx),
            Event::TokenEnds { token, by, actor } => {
                self.token_ends(*token, by.as_deref(), actor, ctx)
            }
            Event::TokenAsked { answer, count, actor } => {
                let mut detail = Detail::default().code("answer", answer);
                if *count > 1 {
                    detail = detail.number("count", *count);
                }
                self.note(FactKind::Token, None, detail, ctx);
                self.name_actor(actor);
                Ok(())
            }
            Event::PollOver => self.poll_over(ctx),
            Event::Restored { at } => self.restored(*at, ctx),
        }
    }

    // Claims.

    fn claim(
        &mut self,
        owner: &str,
        lease_until: Stamp,
        is_frozen: bool,
        ctx: &Ctx<'_>,
    ) -> Result<(), Illegal> {
        let r = &self.record;
        require(r.state == State::Accepted, Illegal::State)?;
        require(r.due_at.is_none_or(|due| due <= ctx.now), Illegal::NotDue)?;
        require(!is_frozen, Illegal::Frozen)?;
        require(ctx.now < r.last_call_at(ctx.policy.margin), Illegal::PastMargin)?;
        require(r.authority != 0 && r.attempt < ATTEMPT_CEILING, Illegal::NotAllowed)?;
        let number = r.attempt + 1;
        self.take(owner, lease_until, false);
        self.go(State::Dispatching, Reason::Claimed, number, Detail::default(), ctx);
        Ok(())
    }

    fn claim_replay(
        &mut self,
        owner: &str,
        lease_until: Stamp,
        is_frozen: bool,
        token: TokenState,
        ctx: &Ctx<'_>,
    ) -> Result<(), Illegal> {
        let r = &self.record;
        require(r.state == State::DispatchUnknown, Illegal::State)?;
        require(r.replay_at.is_some_and(|at| at <= ctx.now), Illegal::NotDue)?;
        require(!is_frozen, Illegal::Frozen)?;
        require(ctx.now < r.last_call_at(ctx.policy.margin), Illegal::PastMargin)?;
        require(self.can_replay(ctx) && token == TokenState::Live, Illegal::NotAllowed)?;
        let number = self.record.attempt;
        self.take(owner, lease_until, true);
        self.go(State::Dispatching, Reason::IdempotentReplay, number, Detail::default(), ctx);
        self.record.authority = self.record.seq;
        Ok(())
    }

    /// Whether the last attempt may be repeated under its key: the window less one call timeout is
    /// open, it was read first where it can be read, and the budget of replays has some left.
    fn can_replay(&self, ctx: &Ctx<'_>) -> bool {
        let r = &self.record;
        ctx.now < self.window_ends(ctx)
            && (!ctx.facing.is_readable || r.reads > 0)
            && r.replays < ctx.policy.replays_max
            && r.attempt > 0
            && r.held.is_none()
            && self.is_last_attempt(ctx)
    }

    /// No later attempt than the last one on record can have been made: its key may have been forgotten by
    /// a restore, and repeating an older one would send beside it. From the unknown, only a read leads to
    /// a later attempt.
    fn is_last_attempt(&self, ctx: &Ctx<'_>) -> bool {
        let r = &self.record;
        let Some(at) = r.restored_at else { return true };
        r.attempt_started_at > Some(at) || (r.reason != Reason::Restored && !ctx.facing.is_readable)
    }

    /// From here on a repeated key might send again; the beginning of time where it always might.
    fn window_ends(&self, ctx: &Ctx<'_>) -> Stamp {
        match (ctx.facing.replay_window, self.record.attempt_started_at) {
            (Some(window), Some(started)) => started.plus(window - ctx.policy.call_timeout),
            _ => Stamp::from_micros(i64::MIN),
        }
    }

    fn take(&mut self, owner: &str, lease_until: Stamp, is_replay: bool) {
        let r = &mut self.record;
        r.fence += 1;
        r.phase = Phase::Claimed;
        r.is_replay = is_replay;
        r.lease_owner = Some(owner.to_owned());
        r.lease_until = Some(lease_until);
        r.due_at = None;
        r.replay_at = None;
    }

    // The end of a claim before its marker.

    fn give_up(&mut self, fence: i64, why: PreCall, ctx: &Ctx<'_>) -> Result<(), Illegal> {
        require(self.record.is_held_by(fence, Phase::Claimed), Illegal::StaleFence)?;
        if self.record.is_replay {
            self.replay_ends(Detail::default().code("why", pre_call_code(why)), ctx);
            return Ok(());
        }
        match why {
            PreCall::ResolverUnavailable => self.back_to_queue(Reason::ResolverUnavailable, ctx),
            // Bytes are compared for replays only; a first call has nothing to differ from.
            PreCall::Released | PreCall::BytesDiffer => {
                self.back_to_queue(Reason::LeaseLostBeforeCall, ctx);
            }
            PreCall::DestinationNotFound => self.fail(Reason::DestinationNotFound, ctx),
            PreCall::PolicyCountry => self.fail(Reason::PolicyCountry, ctx),
            PreCall::PolicyPrice => self.fail(Reason::PolicyPrice, ctx),
            PreCall::PolicyLimit => self.fail(Reason::PolicyLimit, ctx),
        }
        Ok(())
    }

    /// Back to `accepted` from a claim that made no call: number, id and authority stay unused.
    fn back_to_queue(&mut self, reason: Reason, ctx: &Ctx<'_>) {
        let number = self.record.number_in_hand();
        self.release();
        self.go(State::Accepted, reason, number, Detail::default(), ctx);
        let r = &mut self.record;
        if reason == Reason::FrozenBeforeCall {
            r.due_at = Some(ctx.now);
        } else {
            r.due_at = Some(ctx.now.plus(ctx.backoff(r.stumbles)));
            r.stumbles += 1;
        }
        self.apply_held(ctx);
    }

    fn fail(&mut self, reason: Reason, ctx: &Ctx<'_>) {
        let number = self.record.number_in_hand();
        self.release();
        self.go(State::FailedFinal, reason, number, Detail::default(), ctx);
    }

    /// A replay that does not end in acceptance goes back to the unknown, whatever stopped it.
    fn replay_ends(&mut self, detail: Detail, ctx: &Ctx<'_>) {
        let number = self.record.attempt;
        self.release();
        self.go(State::DispatchUnknown, Reason::ReplayInconclusive, number, detail, ctx);
        self.await_reads(ctx);
        self.apply_held(ctx);
    }

    pub(super) fn release(&mut self) {
        let r = &mut self.record;
        r.phase = Phase::Idle;
        r.is_replay = false;
        r.lease_owner = None;
        r.lease_until = None;
    }

    // The marker.

    fn start(
        &mut self,
        fence: i64,
        is_frozen: bool,
        token: TokenState,
        ctx: &Ctx<'_>,
    ) -> Result<(), Illegal> {
        require(self.record.is_held_by(fence, Phase::Claimed), Illegal::StaleFence)?;
        let covered = self
            .record
            .lease_until
            .is_some_and(|until| ctx.now.plus(ctx.policy.call_timeout) <= until);
        let past_margin = ctx.now >= self.record.last_call_at(ctx.policy.margin);
        let contested = self.record.held.is_some();
        if self.record.is_replay {
            let stopped = if contested {
                Some("evidence")
            } else if !covered {
                Some("lease")
            } else if is_frozen {
                Some("frozen")
            } else if past_margin {
                Some("margin")
            } else if token != TokenState::Live {
                Some("token")
            } else {
                None
            };
            if let Some(why) = stopped {
                self.replay_ends(Detail::default().code("why", why), ctx);
                return Ok(());
            }
        } else if contested {
            // Evidence against the authorising proof: nothing more is sent.
            self.release_to_evidence(ctx);
            return Ok(());
        } else if token != TokenState::Live {
            self.fail(token_reason(token), ctx);
            return Ok(());
        } else if past_margin {
            let number = self.record.number_in_hand();
            self.release();
            self.go(State::Expired, Reason::ExpiredBeforeCall, number, Detail::default(), ctx);
            return Ok(());
        } else if is_frozen {
            self.back_to_queue(Reason::FrozenBeforeCall, ctx);
            return Ok(());
        } else if !covered {
            self.back_to_queue(Reason::LeaseLostBeforeCall, ctx);
            return Ok(());
        }
        require(self.record.authority != 0, Illegal::NotAllowed)?;
        self.mark(ctx);
        Ok(())
    }

    /// The call's row and fact: from here on the call counts.
    fn mark(&mut self, ctx: &Ctx<'_>) {
        let r = &mut self.record;
        let call_by = ctx.now.plus(ctx.policy.call_timeout);
        if r.is_replay {
            r.replays += 1;
        } else {
            r.attempt += 1;
            r.attempt_started_at = Some(ctx.now);
            r.message_id = None;
            if let Some(next) = r.next_provider.take() {
                r.provider = next;
            }
        }
        r.calls += 1;
        r.phase = Phase::Calling;
        r.call_by = Some(call_by);
        r.call_ended_at = None;
        r.reads = 0;
        r.absent_at = None;
        r.stumbles = 0;
        let authorised_by = std::mem::take(&mut r.authority);
        let (number, attempt, is_replay) = (r.calls, r.attempt, r.is_replay);
        self.call = Some(NewCall {
            number,
            attempt,
            is_replay,
            authorised_by,
            started_at: ctx.now,
            call_by,
        });
        self.note(
            FactKind::Call,
            Some(attempt),
            Detail::default()
                .number("call", i64::from(number))
                .number("authorised_by", i64::from(authorised_by))
                .number("replay", i64::from(is_replay)),
            ctx,
        );
    }

    // The end of a call.

    fn end(
        &mut self,
        fence: i64,
        verdict: &Verdict,
        ended_at: Stamp,
        ctx: &Ctx<'_>,
    ) -> Result<(), Illegal> {
        require(self.record.is_held_by(fence, Phase::Calling), Illegal::StaleFence)?;
        self.call_end = Some((verdict.outcome(), ended_at));
        self.record.call_ended_at = Some(ended_at);
        let detail = match verdict.code() {
            Some(code) => Detail::default().code("code", code),
            None => Detail::default(),
        };
        match verdict {
            Verdict::Accepted { message_id } => {
                self.accepted_by_provider(message_id.as_deref(), ctx);
            }
            Verdict::Unknown { why, .. } => self.becomes_unknown(why.reason(), detail, ctx),
            _ if self.record.is_replay => {
                self.replay_ends(detail.code("why", verdict.outcome().as_str()), ctx)
            }
            _ if self.is_contested() => self.contradicts_evidence(detail, ctx),
            Verdict::NotSent { .. } => self.prove(Reason::NotSent, None, detail, ctx),
            Verdict::RateLimited { retry_at } => {
                self.prove(Reason::RateLimited, *retry_at, detail, ctx);
            }
            Verdict::TransientRefusal { .. } => {
                self.prove(Reason::TransientRefusal, None, detail, ctx);
            }
            Verdict::ProviderStopped { .. } => {
                self.prove(Reason::ProviderStopped, None, detail, ctx);
            }
            Verdict::RefusedPermanently { .. } if self.record.held.is_some() => {
                // An earlier attempt turned out to have been sent: that is the outcome.
                self.becomes_unknown(
                    Reason::AmbiguousResponse,
                    detail.code("why", "evidence"),
                    ctx,
                );
                self.apply_held(ctx);
            }
            Verdict::RefusedPermanently { .. } => {
                let number = self.record.attempt;
                self.release();
                self.go(State::FailedFinal, Reason::RefusedPermanently, number, detail, ctx);
            }
        }
        Ok(())
    }

    /// Evidence says that the provider has the very attempt whose call now ends as "not taken".
    pub(super) fn is_contested(&self) -> bool {
        self.record.held.as_ref().is_some_and(|held| held.attempt == self.record.attempt)
    }

    fn accepted_by_provider(&mut self, message_id: Option<&str>, ctx: &Ctx<'_>) {
        let number = self.record.attempt;
        self.release();
        self.keep_message_id(message_id);
        self.go(State::Sent, Reason::ProviderAccepted, number, Detail::default(), ctx);
        self.await_delivery(ctx);
        self.apply_held(ctx);
    }

    fn becomes_unknown(&mut self, reason: Reason, detail: Detail, ctx: &Ctx<'_>) {
        let number = self.record.attempt;
        self.release();
        self.go(State::DispatchUnknown, reason, number, detail, ctx);
        self.await_reads(ctx);
        self.apply_held(ctx);
    }

    /// A definite refusal against evidence: neither is believed, the next read decides. The evidence stays
    /// with the record, so that no "absent" can authorise another call against it.
    fn contradicts_evidence(&mut self, detail: Detail, ctx: &Ctx<'_>) {
        let number = self.record.attempt;
        self.release();
        let detail = detail.code("why", "evidence");
        self.go(State::DispatchUnknown, Reason::AmbiguousResponse, number, detail, ctx);
        self.await_reads(ctx);
        self.record.due_at = self.record.due_at.map(|_| ctx.now);
    }

    /// The call before sent nothing: the queue again, or the end of the budget.
    pub(super) fn prove(
        &mut self,
        reason: Reason,
        retry_at: Option<Stamp>,
        detail: Detail,
        ctx: &Ctx<'_>,
    ) {
        let number = self.record.attempt;
        self.release();
        // No call is open where a restore came between calls: what is proven absent is not on record.
        if reason.spends_attempt() && self.record.call_by.is_some() {
            self.record.spent += 1;
        }
        let exhausted = (reason.spends_attempt() && self.record.spent >= ctx.policy.attempts_max)
            || self.record.attempt >= ATTEMPT_CEILING;
        if exhausted && self.record.held.is_none() {
            let detail = detail.code("last", reason.as_str());
            self.go(State::FailedFinal, Reason::AttemptsExhausted, number, detail, ctx);
            return;
        }
        self.go(State::Accepted, reason, number, detail, ctx);
        let r = &mut self.record;
        r.authority = r.seq;
        r.absent_at = None;
        r.reads = 0;
        // It certainly sent nothing and may not soon: the next of the route is tried. "Too many" is not an
        // outage, and whoever was in doubt is asked again himself.
        let moves =
            matches!(reason, Reason::NotSent | Reason::TransientRefusal | Reason::ProviderStopped);
        if moves && let Some(next) = ctx.next_provider {
            r.next_provider = (next != r.provider).then(|| next.to_owned());
        }
        let backoff = ctx.backoff(r.attempt.saturating_sub(1));
        let due = match reason {
            // Proven long after the call: the seller has waited enough.
            Reason::ReconciledAbsent => ctx.now,
            // Our own fault: ask seldom, the alert is what mends it.
            Reason::ProviderStopped if r.next_provider.is_none() => {
                ctx.now.plus(backoff.max(STOPPED_RETRY))
            }
            _ => ctx.now.plus(backoff),
        };
        // Waiting past the last moment helps nobody; there it expires.
        let last = r.last_call_at(ctx.policy.margin).max(ctx.now);
        r.due_at = Some(retry_at.map_or(due, |at| at.max(due)).min(last));
        self.apply_held(ctx);
    }

    fn lease_lost(&mut self, ctx: &Ctx<'_>) -> Result<(), Illegal> {
        let r = &self.record;
        require(r.state == State::Dispatching, Illegal::State)?;
        require(r.lease_until.is_some_and(|until| until <= ctx.now), Illegal::NotDue)?;
        match (r.phase, r.is_replay) {
            (Phase::Calling, _) => {
                self.becomes_unknown(Reason::LeaseLostAfterCall, Detail::default(), ctx);
            }
            (_, true) => self.replay_ends(Detail::default().code("why", "lease"), ctx),
            (_, false) => self.back_to_queue(Reason::LeaseLostBeforeCall, ctx),
        }
        Ok(())
    }

    // Ends.

    fn expire(&mut self, was_frozen: bool, ctx: &Ctx<'_>) -> Result<(), Illegal> {
        let r = &self.record;
        let (at, reason) = match r.state {
            State::Accepted if was_frozen => {
                (r.last_call_at(ctx.policy.margin), Reason::ExpiredWhileFrozen)
            }
            State::Accepted => (r.last_call_at(ctx.policy.margin), Reason::ExpiredInQueue),
            State::DispatchUnknown => (r.expires_at, Reason::ExpiredUnresolved),
            _ => return Err(Illegal::State),
        };
        require(ctx.now >= at, Illegal::NotDue)?;
        let number = r.attempt;
        self.go(State::Expired, reason, number, Detail::default(), ctx);
        Ok(())
    }

    fn cancel(&mut self, actor: &str, ctx: &Ctx<'_>) -> Result<(), Illegal> {
        require(self.record.state == State::Accepted, Illegal::State)?;
        let number = self.record.attempt;
        self.go(State::FailedFinal, Reason::Cancelled, number, Detail::default(), ctx);
        self.name_actor(actor);
        Ok(())
    }

    fn name_actor(&mut self, actor: &str) {
        if let Some(fact) = self.facts.last_mut() {
            actor.clone_into(&mut fact.actor);
        }
    }

    fn token_dead(&mut self, token: TokenState, ctx: &Ctx<'_>) -> Result<(), Illegal> {
        require(token != TokenState::Live, Illegal::NotAllowed)?;
        require(self.waits_for_first_byte(), Illegal::State)?;
        self.fail(token_reason(token), ctx);
        Ok(())
    }

    /// It waits, or is claimed for a fresh attempt: nothing of the next call can be on the wire.
    fn waits_for_first_byte(&self) -> bool {
        let r = &self.record;
        let before_marker =
            r.state == State::Dispatching && r.phase == Phase::Claimed && !r.is_replay;
        r.state == State::Accepted || before_marker
    }

    /// The token's own fact, and the end of what still waits: a used or replaced link is not sent. A call
    /// that is under way, or whose outcome is unknown, is resolved by reads alone from here on.
    fn token_ends(
        &mut self,
        token: TokenState,
        by: Option<&str>,
        actor: &str,
        ctx: &Ctx<'_>,
    ) -> Result<(), Illegal> {
        require(token != TokenState::Live, Illegal::NotAllowed)?;
        let detail = match by {
            Some(by) => Detail::default().code("by", by),
            None => Detail::default(),
        };
        self.note(FactKind::Token, None, detail, ctx);
        self.name_actor(actor);
        if let Some(fact) = self.facts.last_mut() {
            fact.reason = Some(token_reason(token));
        }
        self.record.replay_at = None;
        if self.waits_for_first_byte() {
            self.fail(token_reason(token), ctx);
        }
        Ok(())
    }

    fn poll_over(&mut self, ctx: &Ctx<'_>) -> Result<(), Illegal> {
        let r = &mut self.record;
        require(r.state == State::Sent && r.settled_at.is_none(), Illegal::State)?;
        require(r.poll_until.is_none_or(|until| until <= ctx.now), Illegal::NotDue)?;
        r.settled_at = Some(ctx.now);
        r.due_at = None;
        r.updated_at = ctx.now;
        let attempt = r.attempt;
        self.note(FactKind::Settled, Some(attempt), Detail::default(), ctx);
        Ok(())
    }

    /// Calls of it may be missing, so nobody can say whether it was sent. The fence leaps, so that no claim
    /// of a forgotten past fits a later one.
    fn restored(&mut self, at: Stamp, ctx: &Ctx<'_>) -> Result<(), Illegal> {
        let r = &self.record;
        let waits = matches!(r.state, State::Accepted | State::Dispatching);
        require(waits, Illegal::State)?;
        require(r.restored_at.is_none_or(|before| before < at), Illegal::NotAllowed)?;
        let (number, is_open) = (r.attempt, r.phase == Phase::Calling || r.is_replay);
        self.release();
        let r = &mut self.record;
        if !is_open {
            // The last call on record has ended, and its end was counted.
            r.call_by = None;
            r.call_ended_at = None;
        }
        r.restored_at = Some(at);
        r.fence += FENCE_LEAP;
        r.authority = 0;
        r.stumbles = 0;
        r.reads = 0;
        self.go(State::DispatchUnknown, Reason::Restored, number, Detail::default(), ctx);
        self.await_reads(ctx);
        self.apply_held(ctx);
        Ok(())
    }

    // What every step shares.

    /// The unknown is read at once where it can be, and repeated where that is safe.
    pub(super) fn await_reads(&mut self, ctx: &Ctx<'_>) {
        let r = &mut self.record;
        r.due_at = ctx.facing.is_readable.then(|| ctx.now.plus(ctx.poll(r.reads)));
        r.absent_at = None;
        self.plan_replay(ctx);
    }

    pub(super) fn plan_replay(&mut self, ctx: &Ctx<'_>) {
        let at = ctx.now.plus(ctx.backoff(self.record.replays + self.record.stumbles));
        // Not planned where it could not be made any more.
        let ends = self.record.last_call_at(ctx.policy.margin).min(self.window_ends(ctx));
        let replay_at =
            (self.record.state == State::DispatchUnknown && self.can_replay(ctx) && at < ends)
                .then_some(at);
        self.record.replay_at = replay_at;
    }

    pub(super) fn await_delivery(&mut self, ctx: &Ctx<'_>) {
        let r = &mut self.record;
        r.reads = 0;
        r.replay_at = None;
        if !ctx.facing.is_readable && !ctx.facing.has_callbacks {
            r.settled_at = Some(ctx.now);
            r.due_at = None;
            return;
        }
        r.poll_until = Some(ctx.now.plus(ctx.policy.poll_for));
        r.due_at = ctx.facing.is_readable.then(|| ctx.now.plus(ctx.poll(0)));
    }

    pub(super) fn keep_message_id(&mut self, message_id: Option<&str>) {
        if self.record.message_id.is_none() {
            self.record.message_id = message_id.map(str::to_owned);
        }
    }

    /// Changes the state and writes the fact of it.
    pub(super) fn go(
        &mut self,
        to: State,
        reason: Reason,
        attempt: u32,
        detail: Detail,
        ctx: &Ctx<'_>,
    ) {
        let from = self.record.state;
        assert!(
            is_legal(Some(from), to, reason),
            "{from} to {to} for {reason} is not in the table"
        );
        let r = &mut self.record;
        r.state = to;
        r.reason = reason;
        r.updated_at = ctx.now;
        if !matches!(to, State::Accepted | State::Dispatching) {
            r.next_provider = None;
        }
        if to.is_terminal() {
            r.settled_at = Some(r.settled_at.unwrap_or(ctx.now));
            r.due_at = None;
            r.replay_at = None;
            r.authority = 0;
        }
        let message_id = match to {
            State::Sent | State::Delivered | State::FailedFinal => r.message_id.clone(),
            _ => None,
        };
        let mut fact = self.fact(FactKind::Transition, Some(attempt), detail, ctx);
        fact.old_state = Some(from);
        fact.new_state = Some(to);
        fact.reason = Some(reason);
        fact.provider_message_id = message_id;
        self.facts.push(fact);
    }

    pub(super) fn note(
        &mut self,
        kind: FactKind,
        attempt: Option<u32>,
        detail: Detail,
        ctx: &Ctx<'_>,
    ) {
        let fact = self.fact(kind, attempt, detail, ctx);
        self.facts.push(fact);
    }

    pub(super) fn note_message(
        &mut self,
        kind: FactKind,
        attempt: u32,
        message_id: Option<&str>,
        detail: Detail,
        ctx: &Ctx<'_>,
    ) {
        let mut fact = self.fact(kind, Some(attempt), detail, ctx);
        fact.provider_message_id = message_id.map(str::to_owned);
        self.facts.push(fact);
    }

    fn fact(
        &mut self,
        kind: FactKind,
        attempt: Option<u32>,
        detail: Detail,
        ctx: &Ctx<'_>,
    ) -> Fact {
        let r = &mut self.record;
        r.seq += 1;
        let attempt = attempt.filter(|number| *number > 0);
        Fact {
            seq: r.seq,
            id: Some(r.id.clone()),
            event_id: Some(r.event_id.clone()),
            at: ctx.now,
            kind,
            old_state: None,
            new_state: None,
            attempt,
            // Derived from a key that the rules do not have: the store fills it in.
            attempt_id: None,
            reason: None,
            // The number of a claim is that of an attempt to come.
            provider: attempt.map(|number| {
                if number > r.attempt { r.upcoming().to_owned() } else { r.provider.clone() }
            }),
            provider_message_id: None,
            token_id: None,
            actor: "system".to_owned(),
            detail,
        }
    }
}

/// More claims than a record can have had in the time that a restore lost.
pub const FENCE_LEAP: i64 = 1_000_000;

/// How long a provider that refuses our credentials is left alone before it is asked again: 30 s.
pub const STOPPED_RETRY: i64 = 30_000_000;

pub(super) const fn require(holds: bool, otherwise: Illegal) -> Result<(), Illegal> {
    if holds { Ok(()) } else { Err(otherwise) }
}

const fn token_reason(token: TokenState) -> Reason {
    match token {
        TokenState::Superseded => Reason::TokenSuperseded,
        TokenState::Consumed | TokenState::Live => Reason::TokenConsumed,
    }
}

const fn pre_call_code(why: PreCall) -> &'static str {
    match why {
        PreCall::ResolverUnavailable => "resolver",
        PreCall::DestinationNotFound => "destination",
        PreCall::PolicyCountry => "country",
        PreCall::PolicyPrice => "price",
        PreCall::PolicyLimit => "limit",
        PreCall::BytesDiffer => "bytes",
        PreCall::Released => "released",
    }
}
