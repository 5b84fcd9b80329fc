//! The table of CONTRACT section 2 as data: which state may follow which, for which reason.
//!
//! `apply` may only make transitions that stand here, the database refuses all others (the migration
//! seeds its table from the same rows, and a test compares them), and the documentation prints it.

use app::model::{Reason, State};

/// One permitted transition. `from` is none for admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rule {
    pub from: Option<State>,
    pub to: State,
    pub reason: Reason,
}

const fn rule(from: State, to: State, reason: Reason) -> Rule {
    Rule { from: Some(from), to, reason }
}

use Reason as R;
use State::{Accepted, Delivered, DispatchUnknown, Dispatching, Expired, FailedFinal, Sent};

/// Every permitted transition.
pub const TRANSITIONS: &[Rule] = &[
    Rule { from: None, to: Accepted, reason: R::Admitted },
    rule(Accepted, Dispatching, R::Claimed),
    rule(Accepted, Expired, R::ExpiredInQueue),
    rule(Accepted, Expired, R::ExpiredWhileFrozen),
    rule(Accepted, FailedFinal, R::Cancelled),
    rule(Accepted, FailedFinal, R::TokenConsumed),
    rule(Accepted, FailedFinal, R::TokenSuperseded),
    rule(Accepted, Sent, R::ReconciledFound),
    rule(Accepted, Delivered, R::ReconciledDelivered),
    rule(Accepted, FailedFinal, R::ReconciledFailed),
    rule(Accepted, DispatchUnknown, R::Restored),
    rule(Dispatching, Sent, R::ProviderAccepted),
    rule(Dispatching, Accepted, R::NotSent),
    rule(Dispatching, Accepted, R::RateLimited),
    rule(Dispatching, Accepted, R::TransientRefusal),
    rule(Dispatching, Accepted, R::ProviderStopped),
    rule(Dispatching, Accepted, R::LeaseLostBeforeCall),
    rule(Dispatching, Accepted, R::ResolverUnavailable),
    rule(Dispatching, Accepted, R::FrozenBeforeCall),
    rule(Dispatching, DispatchUnknown, R::Timeout),
    rule(Dispatching, DispatchUnknown, R::ConnectionLost),
    rule(Dispatching, DispatchUnknown, R::AmbiguousResponse),
    rule(Dispatching, DispatchUnknown, R::ResultNotRecorded),
    rule(Dispatching, DispatchUnknown, R::LeaseLostAfterCall),
    rule(Dispatching, DispatchUnknown, R::ShutdownDuringCall),
    rule(Dispatching, DispatchUnknown, R::ReplayInconclusive),
    rule(Dispatching, DispatchUnknown, R::Restored),
    rule(Dispatching, FailedFinal, R::RefusedPermanently),
    rule(Dispatching, FailedFinal, R::AttemptsExhausted),
    rule(Dispatching, FailedFinal, R::DestinationNotFound),
    rule(Dispatching, FailedFinal, R::PolicyCountry),
    rule(Dispatching, FailedFinal, R::PolicyPrice),
    rule(Dispatching, FailedFinal, R::PolicyLimit),
    rule(Dispatching, FailedFinal, R::TokenConsumed),
    rule(Dispatching, FailedFinal, R::TokenSuperseded),
    rule(Dispatching, Expired, R::ExpiredBeforeCall),
    rule(Dispatching, Sent, R::ReconciledFound),
    rule(Dispatching, Delivered, R::ReconciledDelivered),
    rule(Dispatching, FailedFinal, R::ReconciledFailed),
    rule(DispatchUnknown, Sent, R::ReconciledFound),
    rule(DispatchUnknown, Delivered, R::ReconciledDelivered),
    rule(DispatchUnknown, FailedFinal, R::ReconciledFailed),
    rule(DispatchUnknown, Accepted, R::ReconciledAbsent),
    rule(DispatchUnknown, FailedFinal, R::AttemptsExhausted),
    rule(DispatchUnknown, Dispatching, R::IdempotentReplay),
    rule(DispatchUnknown, Expired, R::ExpiredUnresolved),
    rule(Sent, Delivered, R::DeliveryEvidence),
    rule(Sent, FailedFinal, R::Undelivered),
];

/// Whether the table permits this transition.
#[must_use]
pub fn is_legal(from: Option<State>, to: State, reason: Reason) -> bool {
    TRANSITIONS.contains(&Rule { from, to, reason })
}
