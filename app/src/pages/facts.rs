//! Each fact of the log as a title and a plain sentence.
//!
//! Pure, total functions: a reader at two in the morning gets what happened, what it proves, and whether
//! anything may be sent after it. They add nothing that the fact does not hold.

use crate::components::duration_ms;
use crate::model::{DetailValue, Fact, FactKind, Reason, Stamp, State};

/// What happened, in a few words.
#[must_use]
pub fn fact_title(fact: &Fact) -> String {
    match fact.kind {
        FactKind::Transition => match fact.reason {
            Some(reason) => transition_title(fact, reason),
            None => "Changed state".to_owned(),
        },
        FactKind::Call => match fact.detail.get_number("call") {
            Some(number) => format!("Call {number} started"),
            None => "Call started".to_owned(),
        },
        FactKind::Lookup => format!("Look-up: {}", lookup_answer(fact).spoken()),
        FactKind::Callback => match seen(fact) {
            Some(word) => format!("Callback: {word}"),
            None => "Callback".to_owned(),
        },
        FactKind::LateAnswer => match fact.detail.get_code("outcome") {
            Some(word) => format!("Late answer of the call: {}", word.replace('_', " ")),
            None => "Late answer of the call".to_owned(),
        },
        FactKind::DuplicateEvidence => "Evidence for an earlier attempt".to_owned(),
        FactKind::AdmissionReplay => times("Same request again", fact),
        FactKind::AdmissionConflict => times("Conflicting request refused", fact),
        FactKind::WindowConverged => times("Later request in the same window", fact),
        FactKind::LaterRequest => match fact.detail.get_code("answer") {
            Some("earlier_unresolved") => times("Later request has to wait", fact),
            _ => "Later request of the same seller".to_owned(),
        },
        FactKind::Token => match fact.reason {
            Some(Reason::TokenSuperseded) => "Link replaced".to_owned(),
            Some(Reason::TokenConsumed) => "Link used".to_owned(),
            _ => match fact.detail.get_code("token") {
                Some("superseded") => "Link replaced".to_owned(),
                Some("consumed") => "Link used".to_owned(),
                _ => match fact.detail.get_code("answer") {
                    Some("repeated") => times("Use of the link repeated", fact),
                    Some(_) => times("Use of the link refused", fact),
                    None => "Link changed".to_owned(),
                },
            },
        },
        FactKind::Settled => "Settled".to_owned(),
        FactKind::Freeze => "Dispatch frozen".to_owned(),
        FactKind::Unfreeze => "Dispatch reopened".to_owned(),
        FactKind::Purge => "Retention: a purge".to_owned(),
        FactKind::LegalHold => match fact.detail.get_code("act") {
            Some("ended") => "Legal hold ended".to_owned(),
            _ => "Legal hold".to_owned(),
        },
        FactKind::Config => "Setting changed".to_owned(),
        FactKind::Breaker => match fact.detail.get_code("state") {
            Some("closed") => "Breaker of a country closed".to_owned(),
            Some("half_open") => "Breaker of a country lets probes through".to_owned(),
            _ => "Breaker of a country opened".to_owned(),
        },
        FactKind::Operator => "Operator's act".to_owned(),
    }
}

/// What it means, in one to three sentences.
#[must_use]
pub fn fact_text(fact: &Fact) -> String {
    match fact.kind {
        FactKind::Transition => match fact.reason {
            Some(reason) => transition_text(fact, reason),
            None => "The state changed.".to_owned(),
        },
        FactKind::Call => format!(
            "The marker for {} is committed. From here on the call counts, whatever the network does.",
            provider(fact)
        ),
        FactKind::Lookup => lookup_text(fact),
        FactKind::Callback => format!(
            "A verified callback from {}. {}",
            provider(fact),
            if fact.new_state.is_some() {
                "The state follows it."
            } else {
                "Kept as evidence; it sends nothing."
            }
        ),
        FactKind::LateAnswer => {
            "The worker had lost its claim when the answer came. It changes nothing by \
             that claim; it is kept and counts as evidence for its own attempt."
                .to_owned()
        }
        FactKind::DuplicateEvidence => {
            "It came after a later call had started, so there may be a second \
             message. The duplicate guardrail is raised. Nothing more is sent because of it."
                .to_owned()
        }
        FactKind::AdmissionReplay => {
            "Same key, same content: answered with this record. Nothing was queued \
             twice."
                .to_owned()
        }
        FactKind::AdmissionConflict => {
            "It met this record and did not agree with it, so it was answered 409. \
             This record did not change."
                .to_owned()
        }
        FactKind::WindowConverged => {
            "One more request of the same seller and purpose in a window already \
             taken: answered with this record. Nothing was queued twice."
                .to_owned()
        }
        FactKind::LaterRequest => match fact.detail.get_code("answer") {
            Some("earlier_unresolved") => {
                "The seller asked again while the outcome of this one is unknown, and was told to wait. \
                 Nothing was queued."
                    .to_owned()
            }
            Some(_) => {
                "The seller asked again while the outcome of this one is unknown. The later request is a \
                 record of its own."
                    .to_owned()
            }
            None => {
                "The seller asked again in another window. The later request is a record of its own; until \
                 its message goes out, the link of this one works."
                    .to_owned()
            }
        },
        FactKind::Token => match fact.reason {
            Some(Reason::TokenSuperseded) => {
                "A later message of this seller has gone out, or another link was used; the link of this one no \
                 longer works."
                    .to_owned()
            }
            Some(Reason::TokenConsumed) => {
                "The link was opened and used once. It does not work again.".to_owned()
            }
            _ => match fact.detail.get_code("answer") {
                Some("repeated") => {
                    "The same use was asked for again and got the first answer.".to_owned()
                }
                Some("token_expired") => {
                    "Somebody tried to use the link after its time was over.".to_owned()
                }
                Some(_) => {
                    "Somebody tried to use the link although it no longer works.".to_owned()
                }
                None => "The state of the link in this message changed.".to_owned(),
            },
        },
        FactKind::Settled => {
            "Asking for a delivery report is over. A report that still comes is kept; \
             nothing more is sent."
                .to_owned()
        }
        FactKind::Freeze => {
            "From this moment no new call of this scope starts. Calls already on the wire end \
             by themselves."
                .to_owned()
        }
        FactKind::Unfreeze => {
            "What waits is sent again, oldest first and at a limited pace. Unknown outcomes \
             stay unknown until they are read."
                .to_owned()
        }
        FactKind::Purge => {
            "Facts that are over long enough leave. Their places in the log keep their hashes, \
             so that the log still verifies."
                .to_owned()
        }
        FactKind::LegalHold => match fact.detail.get_code("act") {
            Some("ended") => "What it covered follows the retention again.".to_owned(),
            _ => "What it covers is not purged while it is in force.".to_owned(),
        },
        FactKind::Config => {
            "A setting that the audit names has another value from here on.".to_owned()
        }
        FactKind::Breaker => match fact.detail.get_code("state") {
            Some("closed") => {
                "Text messages to this country go out again; counting starts anew.".to_owned()
            }
            Some("half_open") => {
                "A few text messages to this country go out, to see whether the flood is over."
                    .to_owned()
            }
            _ => {
                "Text messages to this country ran over their budget. They end unsent until it closes."
                    .to_owned()
            }
        },
        FactKind::Operator => {
            "Something that a signed-in operator did or looked at. It sends nothing and \
             changes no record."
                .to_owned()
        }
    }
}

/// The icon of a fact, by name in the sprite.
#[must_use]
pub fn fact_icon(fact: &Fact) -> &'static str {
    match fact.kind {
        FactKind::Transition => match fact.new_state {
            Some(State::Accepted) if fact.old_state.is_some() => "undo",
            Some(state) => state.as_str(),
            None => "clock",
        },
        FactKind::Call => "call",
        FactKind::Lookup => "eye",
        FactKind::Callback | FactKind::LateAnswer => "inb",
        FactKind::DuplicateEvidence => "alert",
        FactKind::AdmissionReplay
        | FactKind::AdmissionConflict
        | FactKind::WindowConverged
        | FactKind::LaterRequest => "dup",
        FactKind::Token => "key",
        FactKind::Settled => "check",
        FactKind::Freeze => "frozen",
        FactKind::Unfreeze => "thaw",
        FactKind::Purge => "clock",
        FactKind::LegalHold | FactKind::Config => "cog",
        FactKind::Breaker => "alert",
        FactKind::Operator => "person",
    }
}

/// Why a fact authorises a call, for the duplicate proof.
#[must_use]
pub fn authority_text(fact: &Fact) -> String {
    match fact.reason {
        Some(Reason::Admitted) => {
            "the admission: first call, no earlier one to prove unsent".to_owned()
        }
        Some(Reason::IdempotentReplay) => {
            "a repeat of the same call under the same key, which the provider recognises".to_owned()
        }
        Some(reason) if reason.is_proof() => {
            format!("proof that the call before it sent nothing: {}", proof_words(reason))
        }
        Some(reason) => format!("a fact that is no proof: {reason}"),
        None => "a fact that is no proof".to_owned(),
    }
}

/// One name and value of a fact's `detail`, as a reader says it.
#[must_use]
pub fn detail_pair(name: &str, value: &DetailValue) -> (String, String) {
    let label = match name {
        "answer" => "Answer".to_owned(),
        "after" => "After the record".to_owned(),
        "authorised_by" => "Authorised by fact".to_owned(),
        "by" => "Because of the record".to_owned(),
        "call" => "Call".to_owned(),
        "code" => "Provider's code".to_owned(),
        "counts" => "Counts as absence".to_owned(),
        "last" => "Last reason".to_owned(),
        "outcome" => "Outcome of the call".to_owned(),
        "provider_at" => "Provider's time".to_owned(),
        "replay" => "Repeat of a call".to_owned(),
        "seen" => "Message seen as".to_owned(),
        "why" => "Why".to_owned(),
        // A name that came later is shown as it is kept, in words.
        other => capital_first(&other.strip_suffix("_ms").unwrap_or(other).replace('_', " ")),
    };
    let text = match (name, value) {
        ("counts" | "replay", DetailValue::Number(n)) => {
            if *n == 0 { "no" } else { "yes" }.to_owned()
        }
        ("provider_at", DetailValue::Number(n)) => crate::components::exact(Stamp::from_micros(*n)),
        (name, DetailValue::Number(n)) if name.ends_with("_ms") => duration_ms(*n),
        (_, DetailValue::Number(n)) => n.to_string(),
        (_, DetailValue::Code(code)) => code.clone(),
    };
    (label, text)
}

fn capital_first(words: &str) -> String {
    let mut chars = words.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// What a look-up answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer<'a> {
    Found(Option<&'a str>),
    Absent,
    CannotTell,
    Unstated,
}

impl Answer<'_> {
    fn spoken(self) -> String {
        match self {
            Self::Found(Some(state)) => format!("found, {state}"),
            Self::Found(None) => "found".to_owned(),
            Self::Absent => "not found".to_owned(),
            Self::CannotTell => "cannot tell".to_owned(),
            Self::Unstated => "answered".to_owned(),
        }
    }
}

fn lookup_answer(fact: &Fact) -> Answer<'_> {
    match fact.detail.get_code("answer") {
        Some("found") => Answer::Found(fact.detail.get_code("seen")),
        Some("absent") => Answer::Absent,
        Some("cannot_tell") => Answer::CannotTell,
        _ => Answer::Unstated,
    }
}

fn seen(fact: &Fact) -> Option<&str> {
    fact.detail.get_code("seen")
}

fn lookup_text(fact: &Fact) -> String {
    match lookup_answer(fact) {
        Answer::Found(_) => format!("{} has the message under this attempt's id.", capital(&provider(fact))),
        Answer::Absent => match fact.detail.get_number("counts") {
            Some(0) => "Asked too early: the provider may still be slow to show it. This answer does not count as absence."
                .to_owned(),
            _ => "Nothing found. Absence counts only when two answers in a row, both asked after the settle \
                  time, agree."
                .to_owned(),
        },
        Answer::CannotTell => "The provider gave no usable answer, so nothing is concluded. It is asked again.".to_owned(),
        Answer::Unstated => format!("{} was asked about this attempt. Reading sends nothing.", capital(&provider(fact))),
    }
}

fn times(words: &str, fact: &Fact) -> String {
    match fact.detail.get_number("count") {
        Some(n) if n > 1 => format!("{words}, {n} times"),
        _ => words.to_owned(),
    }
}

fn provider(fact: &Fact) -> String {
    fact.provider.clone().unwrap_or_else(|| "the provider".to_owned())
}

fn capital(text: &str) -> String {
    // A provider's name is an identifier and stays as it is.
    text.strip_prefix("the ").map_or_else(|| text.to_owned(), |rest| format!("The {rest}"))
}

fn attempt(fact: &Fact) -> String {
    fact.attempt.map_or_else(|| "Attempt".to_owned(), |n| format!("Attempt {n}"))
}

fn proof_words(reason: Reason) -> &'static str {
    match reason {
        Reason::NotSent => "no byte of it left",
        Reason::RateLimited => "refused by a rate limit",
        Reason::TransientRefusal => "definitely refused, for a passing reason",
        Reason::ProviderStopped => "refused, because the provider takes no calls of ours",
        Reason::ReconciledAbsent => "its absence at the provider is confirmed",
        _ => "no proof",
    }
}

fn transition_title(fact: &Fact, reason: Reason) -> String {
    let text = match reason {
        Reason::Admitted => "Admitted",
        Reason::Claimed => return format!("{} claimed", attempt(fact)),
        Reason::ExpiredInQueue => "Expired in the queue",
        Reason::ExpiredWhileFrozen => "Expired while frozen",
        Reason::Cancelled => "Cancelled by the caller",
        Reason::ProviderAccepted => "Taken by the provider",
        Reason::NotSent => "Certainly not sent",
        Reason::RateLimited => "Provider asks to wait",
        Reason::TransientRefusal => "Refused for now",
        Reason::ProviderStopped => "Provider takes no calls",
        Reason::LeaseLostBeforeCall => "Claim ended before the call",
        Reason::ResolverUnavailable => "Address not available, no call made",
        Reason::FrozenBeforeCall => "Held by a freeze, no call made",
        Reason::Timeout => "No answer in time: outcome unknown",
        Reason::ConnectionLost => "Connection lost: outcome unknown",
        Reason::AmbiguousResponse => "Unclear answer: outcome unknown",
        Reason::ResultNotRecorded => "Result not recorded: outcome unknown",
        Reason::LeaseLostAfterCall => "Worker lost during the call: outcome unknown",
        Reason::ShutdownDuringCall => "Shut down during the call: outcome unknown",
        Reason::RefusedPermanently => "Refused for good",
        Reason::AttemptsExhausted => "No attempts left",
        Reason::DestinationNotFound => "No destination known",
        Reason::PolicyCountry => "Stopped by the country rule",
        Reason::PolicyPrice => "Stopped by the price rule",
        Reason::PolicyLimit => "Stopped by a sending limit",
        Reason::ExpiredBeforeCall => "Expired before the call",
        Reason::TokenConsumed => "Link already used, not sent",
        Reason::TokenSuperseded => "Link already replaced, not sent",
        Reason::ReconciledFound => "Found at the provider",
        Reason::ReconciledDelivered => "Found at the provider, delivered",
        Reason::ReconciledFailed => "Found at the provider, not delivered",
        Reason::ReconciledAbsent => "Confirmed absent",
        Reason::IdempotentReplay => "Same call repeated under the same key",
        Reason::ReplayInconclusive => "The repeat settled nothing",
        Reason::ExpiredUnresolved => "Expired, outcome still unknown",
        Reason::DeliveryEvidence => "Delivered",
        Reason::Undelivered => "Not delivered",
        Reason::Restored => "Restored from a backup: outcome unknown",
    };
    text.to_owned()
}

/// The sentence after each reason that leaves the outcome unknown.
const MAY_HAVE_GONE: &str =
    "The message may have gone out. Sendonce reads before anything may be sent again.";

fn transition_text(fact: &Fact, reason: Reason) -> String {
    let withdrawn = matches!(fact.old_state, Some(State::Accepted | State::Dispatching));
    match reason {
        Reason::Admitted => "On record, and waiting to be sent. Nothing has left yet.".to_owned(),
        Reason::Claimed => {
            "A worker holds it for a limited time. This attempt has made no call yet.".to_owned()
        }
        Reason::ExpiredInQueue => {
            "Too little time was left to start a call, so none was started. Nothing \
             more is sent."
                .to_owned()
        }
        Reason::ExpiredWhileFrozen => {
            "Its time ran out while a freeze held it back. No call was started; \
             nothing more is sent."
                .to_owned()
        }
        Reason::Cancelled => {
            "The caller withdrew it before a call could send it. Nothing more is sent, and \
             its link no longer works."
                .to_owned()
        }
        Reason::ProviderAccepted => format!(
            "{} has taken the message. Whether it arrived is for the delivery report to say. It is not sent again.",
            capital(&provider(fact))
        ),
        Reason::NotSent => {
            "The connection failed before any byte of the request left. That is proof that \
             this call sent nothing; it is tried again after a pause."
                .to_owned()
        }
        Reason::RateLimited => format!(
            "{} refused this call because of its rate limit. That is proof that it sent nothing; it is tried \
             again when the provider allows.",
            capital(&provider(fact))
        ),
        Reason::TransientRefusal => {
            "A definite refusal for a passing reason. That is proof that this call \
             sent nothing; it is tried again while time and attempts last."
                .to_owned()
        }
        Reason::ProviderStopped => format!(
            "{} refuses every call of ours for now: credentials, balance or a suspension. That is proof that \
             this one sent nothing; it waits until the provider takes calls again.",
            capital(&provider(fact))
        ),
        Reason::LeaseLostBeforeCall => {
            "The worker's claim ran out before its marker. No call was made and none is spent."
                .to_owned()
        }
        Reason::ResolverUnavailable => {
            "The identity system did not give the address in time. No call was \
             made and none is spent; it is tried again after a pause."
                .to_owned()
        }
        Reason::FrozenBeforeCall => {
            "A freeze came before the marker. No call was made, nothing is spent, and it waits."
                .to_owned()
        }
        Reason::Timeout => format!("The call was made and no answer came in time. {MAY_HAVE_GONE}"),
        Reason::ConnectionLost => {
            format!("The connection broke after part of the request may have left. {MAY_HAVE_GONE}")
        }
        Reason::AmbiguousResponse => {
            format!("The answer says neither taken nor refused. {MAY_HAVE_GONE}")
        }
        Reason::ResultNotRecorded => {
            format!("The call ended, but its result could not be written down. {MAY_HAVE_GONE}")
        }
        Reason::LeaseLostAfterCall => {
            format!("The worker was lost after its marker; nobody saw the answer. {MAY_HAVE_GONE}")
        }
        Reason::ShutdownDuringCall => {
            format!("The process was stopped while the call was running. {MAY_HAVE_GONE}")
        }
        Reason::RefusedPermanently => {
            "The provider refused it and would refuse it again. It was not sent. \
             Have the destination or the sender's account checked before a new request."
                .to_owned()
        }
        Reason::AttemptsExhausted => {
            "Every call is proven to have sent nothing, and no attempt is left. No \
             message went out; a new request is safe."
                .to_owned()
        }
        Reason::DestinationNotFound => {
            "The identity system knows no address for this reference. This attempt \
             made no call. A new request helps once the account has an address."
                .to_owned()
        }
        Reason::PolicyCountry => {
            "The destination's country is not one that may be sent to. This attempt made \
             no call. A new request ends the same way until the rule changes."
                .to_owned()
        }
        Reason::PolicyPrice => {
            "A message to this destination costs more than the rule allows. This attempt \
             made no call. A new request ends the same way until the rule changes."
                .to_owned()
        }
        Reason::PolicyLimit => {
            "This destination has had as many messages as the limit allows. This attempt \
             made no call. A new request can succeed once the limit's period is over."
                .to_owned()
        }
        Reason::ExpiredBeforeCall => {
            "The last check before the call found too little time left. No call was \
             made by this attempt; nothing more is sent."
                .to_owned()
        }
        Reason::TokenConsumed => {
            "The link was used before this message went out, so the message is not sent.".to_owned()
        }
        Reason::TokenSuperseded => {
            "A later request's message carries the working link, so this one is not sent."
                .to_owned()
        }
        Reason::ReconciledFound if withdrawn => {
            "Evidence shows that an earlier call did send after all. Its \
             proof is withdrawn; nothing more is sent."
                .to_owned()
        }
        Reason::ReconciledFound => {
            "The provider has this message, so it is not sent again.".to_owned()
        }
        Reason::ReconciledDelivered if withdrawn => {
            "Evidence shows that an earlier call's message arrived. \
             Its proof is withdrawn; nothing more is sent."
                .to_owned()
        }
        Reason::ReconciledDelivered => {
            "The provider has this message and says that it arrived. Nothing more is sent."
                .to_owned()
        }
        Reason::ReconciledFailed if withdrawn => {
            "Evidence shows that an earlier call did send, and that its \
             message was not delivered. Its proof is withdrawn; a new request is safe."
                .to_owned()
        }
        Reason::ReconciledFailed => {
            "The provider has this message and could not deliver it. It is not sent \
             again; a new request is safe."
                .to_owned()
        }
        Reason::ReconciledAbsent => {
            "Two answers in a row after the settle time say that the provider does \
             not have it. That is proof that the call sent nothing; one more attempt is allowed."
                .to_owned()
        }
        Reason::IdempotentReplay => {
            "The provider recognises our key, so the same call with the same bytes \
             cannot make a second message. It asks for the first one's result."
                .to_owned()
        }
        Reason::ReplayInconclusive => {
            "The repeated call gave no proof either way. The outcome is still unknown.".to_owned()
        }
        Reason::ExpiredUnresolved => {
            "The link ran out before anybody could say whether the message went \
             out. It was never sent a second time; a new request is safe."
                .to_owned()
        }
        Reason::DeliveryEvidence => {
            "The provider says that the message arrived. Nothing more is sent.".to_owned()
        }
        Reason::Undelivered => {
            "The provider took the message and could not deliver it. It is not sent \
             again; a new request is safe."
                .to_owned()
        }
        Reason::Restored => {
            "After a restore or failover nobody can be sure what had been sent. Sendonce \
             reads before anything may be sent again."
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Detail;

    fn fact(kind: FactKind) -> Fact {
        Fact {
            seq: 1,
            id: None,
            event_id: None,
            at: Stamp::from_micros(0),
            kind,
            old_state: None,
            new_state: None,
            attempt: None,
            attempt_id: None,
            reason: None,
            provider: None,
            provider_message_id: None,
            token_id: None,
            actor: "system".to_owned(),
            detail: Detail::default(),
        }
    }

    fn assert_sentence(text: &str) {
        assert!(text.ends_with('.') && text.len() > 15 && !text.contains("  "), "{text:?}");
        assert!(text.starts_with(char::is_uppercase), "{text:?}");
        assert!(!text.contains("NaN") && !text.contains('@'), "{text:?}");
    }

    #[test]
    fn every_kind_of_fact_has_a_title_a_sentence_and_an_icon() {
        for &kind in FactKind::ALL {
            let fact = fact(kind);
            assert!(!fact_title(&fact).is_empty(), "{kind}");
            assert_sentence(&fact_text(&fact));
            assert!(!fact_icon(&fact).is_empty(), "{kind}");
        }
    }

    #[test]
    fn every_reason_has_its_own_title_and_its_own_sentence() {
        let mut titles = std::collections::BTreeSet::new();
        for &reason in Reason::ALL {
            for old_state in [None, Some(State::Accepted), Some(State::DispatchUnknown)] {
                let fact = Fact { reason: Some(reason), old_state, ..fact(FactKind::Transition) };
                assert_sentence(&fact_text(&fact));
                if old_state.is_none() {
                    assert!(titles.insert(fact_title(&fact)), "{reason}: a title used twice");
                }
            }
        }
    }

    #[test]
    fn a_proof_says_so_and_nothing_else_claims_to_be_one() {
        for &reason in Reason::ALL {
            let text = fact_text(&Fact { reason: Some(reason), ..fact(FactKind::Transition) });
            assert_eq!(text.contains("That is proof"), reason.is_proof(), "{reason}: {text}");
            let authority =
                authority_text(&Fact { reason: Some(reason), ..fact(FactKind::Transition) });
            let authorises =
                reason.is_proof() || matches!(reason, Reason::Admitted | Reason::IdempotentReplay);
            assert_eq!(!authority.contains("no proof"), authorises, "{reason}: {authority}");
        }
    }

    #[test]
    fn an_outcome_in_doubt_never_sounds_like_a_failure() {
        for reason in [
            Reason::Timeout,
            Reason::ConnectionLost,
            Reason::AmbiguousResponse,
            Reason::ResultNotRecorded,
            Reason::LeaseLostAfterCall,
            Reason::ShutdownDuringCall,
        ] {
            let fact = Fact { reason: Some(reason), ..fact(FactKind::Transition) };
            assert!(fact_title(&fact).ends_with("outcome unknown"));
            assert!(fact_text(&fact).contains("may have gone out"));
        }
    }

    #[test]
    fn a_look_up_has_three_answers() {
        let answer = |code| Fact {
            detail: Detail::default().code("answer", code),
            ..fact(FactKind::Lookup)
        };
        assert_eq!(fact_title(&answer("absent")), "Look-up: not found");
        assert_eq!(fact_title(&answer("cannot_tell")), "Look-up: cannot tell");
        let mut found = answer("found");
        found.detail = found.detail.code("seen", "delivered");
        assert_eq!(fact_title(&found), "Look-up: found, delivered");
    }

    #[test]
    fn details_are_spoken() {
        assert_eq!(
            detail_pair("backoff_ms", &DetailValue::Number(1_500)),
            ("Backoff".to_owned(), "1500 ms".to_owned())
        );
        assert_eq!(
            detail_pair("counts", &DetailValue::Number(0)),
            ("Counts as absence".to_owned(), "no".to_owned())
        );
    }
}
