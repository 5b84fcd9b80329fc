//! Plain sentences about one notification: what happens next, and what support may say.
//!
//! Both are safe to paste anywhere: they hold times, counts and the contract's words, never an
//! address, a number, a link or a token.

use app::model::{Channel, Fact, FactKind, Reason, Record as RecordView, State};

use crate::domain::{Facing, Policy, Record};
use crate::policy::AfterUnknown;

/// What happens next with this record, and what will not.
#[must_use]
pub fn next(r: &Record, view: &RecordView, policy: &Policy, facing: Option<&Facing>) -> String {
    let stops = r.last_call_at(policy.margin).clock();
    match r.state {
        State::Accepted if view.frozen => format!(
            "Waits while dispatch is frozen. If it is still frozen at {stops} UTC it expires and nothing is sent."
        ),
        State::Accepted => {
            let due = r.due_at.unwrap_or(r.updated_at).clock();
            format!("A worker takes it from {due} UTC on. From {stops} UTC on nothing is sent for it any more.")
        }
        State::Dispatching => match r.call_by {
            Some(by) if r.calls > 0 => format!(
                "A call is under way and ends by {} UTC. No second call can start before its outcome is known.",
                by.clock()
            ),
            _ => "A worker prepares the call. Nothing has been sent by it yet.".to_owned(),
        },
        State::DispatchUnknown => resolves(r, facing),
        State::Sent if r.settled_at.is_some() => {
            "Nothing more is done by itself. A late delivery report is still kept. Nothing will be sent again.".to_owned()
        }
        State::Sent => match (r.due_at, r.poll_until) {
            (Some(due), Some(until)) => format!(
                "Asks the provider for the delivery again at {} UTC and stops asking at {} UTC. Nothing will be sent again.",
                due.clock(),
                until.clock()
            ),
            _ => "Waits for the provider's delivery report. Nothing will be sent again.".to_owned(),
        },
        State::Delivered => "Nothing: it is over. Nothing will be sent again.".to_owned(),
        State::FailedFinal => match r.reason {
            Reason::Cancelled => "Nothing: the caller took it back. Nothing will be sent.".to_owned(),
            Reason::TokenConsumed => "Nothing: the link was used already.".to_owned(),
            Reason::TokenSuperseded => "Nothing: a newer link has replaced this one.".to_owned(),
            _ => "Nothing: it is over. A new request is safe.".to_owned(),
        },
        State::Expired => "Nothing: its time ran out. A new request is safe.".to_owned(),
    }
}

/// Whether the person may ask again while this outcome is unknown.
#[must_use]
pub const fn after_unknown(rule: AfterUnknown) -> &'static str {
    match rule {
        AfterUnknown::Now => {
            "The person may ask again at once: a new request is a message of its own."
        }
        AfterUnknown::Window => {
            "The person may ask again in another request window; until then a new request has to wait."
        }
        AfterUnknown::Settled => "A new request has to wait until this outcome is known.",
    }
}

/// What resolves an unknown outcome.
#[must_use]
pub fn resolves(r: &Record, facing: Option<&Facing>) -> String {
    let end = r.expires_at.clock();
    let Some(facing) = facing else {
        return format!(
            "Its provider is not configured any more, so it cannot be read. It stays unknown until {end} UTC; nothing is sent again."
        );
    };
    let read = r.due_at.map(|due| format!("The provider is read again at {} UTC. ", due.clock()));
    match (facing.is_readable, facing.settle, facing.replay_window) {
        (true, Some(_), _) => format!(
            "{}A message that is found settles it; only confirmed absence allows one more call. Until then nothing is sent again.",
            read.unwrap_or_default()
        ),
        (true, None, None) => format!(
            "{}A message that is found settles it. This provider's \"absent\" is never believed, so nothing is sent again; it stays unknown until {end} UTC at the latest.",
            read.unwrap_or_default()
        ),
        (_, _, Some(_)) => format!(
            "{}The same call may be repeated under the same key, which this provider does not send twice. At {end} UTC it ends as it is.",
            read.unwrap_or_default()
        ),
        (false, _, None) => format!(
            "This provider can be neither read nor asked again, so nothing is sent again. Only its own report can settle it; it stays unknown until {end} UTC at the latest."
        ),
    }
}

/// What support may read out: plain, complete, and safe to paste.
#[must_use]
pub fn answer(r: &Record, view: &RecordView, facts: &[Fact]) -> String {
    let kind = match r.channel {
        Channel::Sms => "text message",
        Channel::Email => "email",
    };
    let network = match r.channel {
        Channel::Sms => "mobile network",
        Channel::Email => "receiving mail server",
    };
    let until = r.expires_at.clock();
    let requested = format!("The reset was requested at {} UTC.", r.created_at.clock());
    let again = facts
        .iter()
        .filter(|fact| matches!(fact.kind, FactKind::AdmissionReplay | FactKind::WindowConverged))
        .count();
    let repeats = if again == 0 {
        String::new()
    } else {
        " It was asked for more than once; the repeats did not send anything more.".to_owned()
    };
    let duplicates = facts.iter().any(|fact| fact.kind == FactKind::DuplicateEvidence);
    let warning = if duplicates {
        " Attention: the provider reports more than one message for this request. Please tell on-call."
    } else {
        ""
    };
    let told = match r.state {
        State::Accepted if view.frozen => format!(
            "The {kind} has not been sent yet, because sending is paused. If the pause lasts too long, this request ends unsent and a new one is needed after {until} UTC."
        ),
        State::Accepted => format!("The {kind} has not been sent yet. It will be sent once, within its time; the link works until {until} UTC."),
        State::Dispatching => format!("The {kind} is being sent right now. There will be one at most."),
        State::DispatchUnknown => format!(
            "We made one call to send the {kind}, and the answer got lost. It may or may not have arrived. We are asking the provider and will not send a second one on a guess. If it has not arrived by {until} UTC, please ask for a new link."
        ),
        State::Sent => format!(
            "We sent one {kind} for this request. The {network} has not confirmed yet that it arrived. We will not send a second one. The link in it works until {until} UTC; if nothing arrives by then, please ask for a new link."
        ),
        State::Delivered => format!(
            "We sent one {kind} for this request, and it was delivered at {} UTC. The link in it works until {until} UTC.",
            r.updated_at.clock()
        ),
        State::FailedFinal => failed(r.reason, kind).to_owned(),
        State::Expired => match r.reason {
            Reason::ExpiredUnresolved => format!(
                "We made one call to send the {kind}, and the provider could not say whether it took it before the time was up. We did not send a second one. Please ask for a new link."
            ),
            Reason::ExpiredWhileFrozen => "Nothing was sent, because sending was paused until the request ran out. Please ask for a new link.".to_owned(),
            _ => "Nothing more was sent, because the request ran out of time first. Please ask for a new link.".to_owned(),
        },
    };
    format!("{requested} {told}{repeats}{warning}")
}

const fn failed(reason: Reason, _kind: &str) -> &'static str {
    match reason {
        Reason::Cancelled => "The request was taken back before anything was sent.",
        Reason::TokenConsumed => "Nothing more was sent, because the link had already been used.",
        Reason::TokenSuperseded => {
            "Nothing more was sent, because a newer link has replaced this one. Please use the newest message."
        }
        Reason::DestinationNotFound => {
            "Nothing was sent, because the account has no address of this kind on file. Please check the account's contact details."
        }
        Reason::RefusedPermanently => {
            "The provider refused to send it. Please check the account's contact details, then ask for a new link."
        }
        Reason::Undelivered | Reason::ReconciledFailed => {
            "We sent one message, and the provider reports that it could not be delivered. Please check the account's contact details, then ask for a new link."
        }
        Reason::PolicyCountry | Reason::PolicyPrice | Reason::PolicyLimit => {
            "It was not sent, because a sending rule stopped it. Please use another way to recover the account."
        }
        Reason::AttemptsExhausted => {
            "It could not be sent in several tries, each of which is proven not to have sent anything. Please ask for a new link."
        }
        _ => "It could not be sent. Please ask for a new link.",
    }
}
