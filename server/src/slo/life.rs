//! The life of an alert: pending, firing, acknowledged, resolved. Pure.

use std::collections::BTreeMap;

use app::model::{Alert, AlertRule, AlertState, Stamp};

use super::guardrails::Seen;
use crate::store::AlertChange;

/// How long something must be so before it counts.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    pub hold_for: i64,
    pub clear_for: i64,
}

/// What becomes of the open alerts after a look. `new_id` names an alert that begins.
pub fn step(
    open: &[Alert],
    seen: &[Seen],
    patience: Patience,
    now: Stamp,
    mut new_id: impl FnMut() -> String,
) -> Vec<AlertChange> {
    let known: BTreeMap<(AlertRule, &str), &Alert> =
        open.iter().map(|alert| ((alert.rule, alert.subject.as_str()), alert)).collect();
    let mut changes = Vec::new();
    for one in seen {
        match known.get(&(one.rule, one.subject.as_str())) {
            None if one.is_over => changes.push(begin(one, patience, now, new_id())),
            None => {}
            Some(alert) => changes.extend(go_on(alert, one, patience, now)),
        }
    }
    // What is not looked at any more (a provider that is gone, a freeze that ended) is over.
    for alert in open {
        let is_seen = seen.iter().any(|one| one.rule == alert.rule && one.subject == alert.subject);
        if !is_seen {
            let gone = Seen {
                rule: alert.rule,
                subject: alert.subject.clone(),
                severity: alert.severity,
                is_over: false,
                is_clear: true,
                is_at_once: false,
                count: 0,
                oldest_at: None,
                value: 0,
            };
            changes.extend(go_on(alert, &gone, patience, now));
        }
    }
    changes
}

fn begin(one: &Seen, patience: Patience, now: Stamp, id: String) -> AlertChange {
    let fires = one.is_at_once || patience.hold_for == 0;
    let alert = Alert {
        id,
        rule: one.rule,
        subject: one.subject.clone(),
        severity: one.severity,
        state: if fires { AlertState::Firing } else { AlertState::Pending },
        opened_at: now,
        fired_at: fires.then_some(now),
        clear_at: None,
        ended_at: None,
        updated_at: now,
        count: one.count,
        oldest_at: one.oldest_at,
        value: one.value,
        acked_at: None,
        acked_by: None,
        ack_reason: None,
    };
    AlertChange { alert, is_new: true, is_dropped: false, tell: fires.then_some("firing") }
}

fn go_on(alert: &Alert, one: &Seen, patience: Patience, now: Stamp) -> Option<AlertChange> {
    let mut next = alert.clone();
    next.updated_at = now;
    let mut change = AlertChange { alert: next, is_new: false, is_dropped: false, tell: None };
    let next = &mut change.alert;
    if one.is_over {
        (next.count, next.oldest_at, next.value) = (one.count, one.oldest_at, one.value);
        next.severity = one.severity;
        next.clear_at = None;
    }
    match alert.state {
        AlertState::Resolved => return None,
        AlertState::Pending if !one.is_over => change.is_dropped = true,
        AlertState::Pending => {
            if one.is_at_once || now.since(alert.opened_at) >= patience.hold_for {
                next.state = AlertState::Firing;
                next.fired_at = Some(now);
                change.tell = Some("firing");
            }
        }
        AlertState::Firing | AlertState::Acknowledged => {
            if one.is_over {
                // As it was.
            } else if one.is_clear {
                let since = alert.clear_at.unwrap_or(now);
                next.clear_at = Some(since);
                if now.since(since) >= patience.clear_for {
                    next.state = AlertState::Resolved;
                    next.ended_at = Some(now);
                    change.tell = Some("resolved");
                }
            } else {
                next.clear_at = None;
            }
        }
    }
    Some(change)
}

#[cfg(test)]
mod tests {
    use app::model::Severity;

    use super::*;

    const S: i64 = 1_000_000;
    const PATIENCE: Patience = Patience { hold_for: 60 * S, clear_for: 300 * S };

    fn seen(is_over: bool, is_clear: bool) -> Seen {
        Seen {
            rule: AlertRule::QueueAge,
            subject: String::new(),
            severity: Severity::Page,
            is_over,
            is_clear,
            is_at_once: false,
            count: 7,
            oldest_at: None,
            value: 9,
        }
    }

    /// Looks at these moments, one after the other, and says in which state the alert is after each.
    fn live(looks: &[(i64, Seen)]) -> Vec<(Option<AlertState>, Option<&'static str>)> {
        let mut open: Vec<Alert> = Vec::new();
        looks
            .iter()
            .map(|(at, one)| {
                let now = Stamp::from_micros(at * S);
                let changes =
                    step(&open, std::slice::from_ref(one), PATIENCE, now, || "a1".to_owned());
                let Some(change) = changes.first() else {
                    return (open.first().map(|alert| alert.state), None);
                };
                open = if change.is_dropped { Vec::new() } else { vec![change.alert.clone()] };
                let shown = open.first().map(|alert| alert.state);
                open.retain(|alert| alert.state != AlertState::Resolved);
                (shown, change.tell)
            })
            .collect()
    }

    use AlertState::{Firing, Pending, Resolved};

    #[test]
    fn what_does_not_last_never_fires() {
        let states = live(&[
            (0, seen(true, false)),
            (30, seen(true, false)),
            (45, seen(false, false)),
            (60, seen(true, false)),
        ]);
        let expected = [Some(Pending), Some(Pending), None, Some(Pending)];
        assert_eq!(states.iter().map(|(state, _)| *state).collect::<Vec<_>>(), expected);
        assert!(states.iter().all(|(_, tell)| tell.is_none()));
    }

    #[test]
    fn it_fires_once_and_ends_once_it_has_been_clear_for_long_enough() {
        let states = live(&[
            (0, seen(true, false)),
            (60, seen(true, false)),
            (75, seen(true, false)),
            // Between the bounds: as it was.
            (90, seen(false, false)),
            (100, seen(false, true)),
            (399, seen(false, true)),
            (400, seen(false, true)),
            (500, seen(false, true)),
        ]);
        let told: Vec<_> = states.iter().map(|(_, tell)| *tell).collect();
        assert_eq!(told, [None, Some("firing"), None, None, None, None, Some("resolved"), None]);
        assert_eq!(states[5].0, Some(Firing));
        assert_eq!(states[6].0, Some(Resolved));
    }

    #[test]
    fn a_figure_that_swings_does_not_ring_again() {
        let mut looks = vec![(0, seen(true, false)), (60, seen(true, false))];
        for n in 0..50 {
            looks.push((100 + 10 * n, seen(n % 2 == 0, n % 2 == 1)));
        }
        let told = live(&looks).into_iter().filter(|(_, tell)| tell.is_some()).count();
        assert_eq!(told, 1);
    }

    #[test]
    fn a_duplicate_fires_at_once_and_what_is_no_more_looked_at_ends() {
        let one = Seen { is_at_once: true, ..seen(true, false) };
        let changes = step(&[], &[one], PATIENCE, Stamp::from_micros(0), || "a1".to_owned());
        assert_eq!((changes[0].alert.state, changes[0].tell), (Firing, Some("firing")));
        let open = [changes[0].alert.clone()];
        let later = step(&open, &[], PATIENCE, Stamp::from_micros(S), String::new);
        let open = [later[0].alert.clone()];
        assert_eq!(open[0].clear_at, Some(Stamp::from_micros(S)));
        let over = step(&open, &[], PATIENCE, Stamp::from_micros(301 * S), String::new);
        assert_eq!(over[0].tell, Some("resolved"));
    }

    #[test]
    fn an_acknowledged_alert_stays_so_until_it_is_over() {
        let one = seen(true, false);
        let mut alert = begin(&one, PATIENCE, Stamp::from_micros(0), "a1".to_owned()).alert;
        alert.state = AlertState::Acknowledged;
        alert.fired_at = Some(Stamp::from_micros(0));
        let change = go_on(&alert, &one, PATIENCE, Stamp::from_micros(S)).unwrap();
        assert_eq!((change.alert.state, change.tell), (AlertState::Acknowledged, None));
    }
}
