//! The one place where every fresh call meets the sending rules: the marker's commit.

use std::collections::{BTreeMap, BTreeSet};

use app::model::{Channel, Stamp};

use super::countries::Countries;
use super::engine::Engine;
use super::limits::Windows;
use super::rows::Stored;
use super::{Error, SqlStore, Start};
use crate::domain::PreCall;
use crate::policy::breaker::Cause;
use crate::policy::{Scope, SendingRules};

/// What one group of markers needs to know of the rules.
pub(super) struct Judge<'a> {
    sending: &'a SendingRules,
    windows: Windows,
    countries: Countries,
}

/// What an event is counted under when its address is known. A later attempt follows a proof that the one
/// before it sent nothing, so only the first one counts.
fn hits(start: &Start) -> Vec<(Scope, &str)> {
    let mut hits = vec![(Scope::Destination, start.fingerprint.as_str())];
    if let Some(place) = &start.place {
        hits.push((Scope::Prefix, place.prefix.as_str()));
        hits.push((Scope::Country, place.country.as_str()));
    }
    hits
}

impl Judge<'_> {
    /// Whether a rule stops this fresh call: the event's end, and the rule's name. Otherwise it is counted.
    pub(super) fn stop(
        &mut self,
        stored: &Stored,
        start: &Start,
        now: Stamp,
    ) -> Option<(PreCall, &'static str)> {
        let is_first = stored.record.attempt == 0;
        let place = start.place.as_ref().filter(|_| stored.record.channel == Channel::Sms);
        let price = place.and_then(|place| self.sending.price(&place.country));
        let found = place
            .and_then(|place| self.sending.refusal(place))
            .or_else(|| self.full(start, is_first, now))
            .or_else(|| {
                let place = place?;
                let cause =
                    self.countries.ask(&place.country, price.unwrap_or(0), is_first, now)?;
                Some(match cause {
                    Cause::Count => (PreCall::PolicyCountry, "breaker_count"),
                    Cause::Price => (PreCall::PolicyPrice, "breaker_price"),
                })
            });
        if let Some((why, rule)) = found
            && self.sending.stop(rule)
        {
            if let Some(place) = place {
                self.countries.stopped(&place.country);
            }
            return Some((why, rule));
        }
        if is_first {
            self.windows.add(&hits(start));
            if let Some(place) = place {
                self.countries.sent(&place.country, price.unwrap_or(0));
            }
        }
        None
    }

    fn full(&self, start: &Start, is_first: bool, now: Stamp) -> Option<(PreCall, &'static str)> {
        let (scope, _) = self.windows.full(&hits(start), now).filter(|_| is_first)?;
        Some((PreCall::PolicyLimit, scope.rule()))
    }
}

impl<E: Engine> SqlStore<E> {
    /// Holds what this group of markers is counted under. Nothing where no rule is configured.
    pub(super) async fn open_judge(
        &self,
        tx: &mut E::Tx,
        starts: &[Start],
        found: &BTreeMap<String, Stored>,
    ) -> Result<Judge<'_>, Error> {
        let sending = &self.env.rules.sending;
        let fresh = || {
            starts
                .iter()
                .filter(|start| found.get(&start.id).is_some_and(|stored| !stored.record.is_replay))
        };
        let mut windows = Windows::default();
        if sending.limits.has_any(&[Scope::Destination, Scope::Prefix, Scope::Country]) {
            let asked = fresh().flat_map(hits).map(|(scope, value)| (scope, value.to_owned()));
            windows = self.open_windows(tx, asked.collect()).await?;
        }
        let mut countries = Countries::default();
        if sending.counts_countries() {
            let places = fresh().filter_map(|start| start.place.as_ref());
            let names: BTreeSet<String> = places.map(|place| place.country.clone()).collect();
            countries = self.open_countries(tx, names).await?;
        }
        Ok(Judge { sending, windows, countries })
    }

    /// Writes what was counted.
    pub(super) async fn write_judge(
        &self,
        tx: &mut E::Tx,
        judge: &Judge<'_>,
        now: Stamp,
    ) -> Result<(), Error> {
        Self::write_windows(tx, &judge.windows, now).await?;
        self.write_countries(tx, &judge.countries, now).await
    }
}
