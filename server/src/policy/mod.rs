//! Sending rules: how often, where to, and for how much. All of them are off until they are configured.
//!
//! Pure: no rule here reads a clock, a file or a database. What needs counting is counted by the store, in
//! the commit that it decides, so that the rules hold over any number of processes.

pub mod breaker;
pub mod geography;
pub mod limits;
pub mod prices;

use std::collections::{BTreeMap, BTreeSet};

use breaker::Budget;
pub use geography::Place;
pub use limits::{Limit, Limits, Scope, Window};
pub use prices::Prices;

use crate::domain::PreCall;

/// What happens to a new event of a seller whose earlier one, of the same purpose, is `dispatch_unknown`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AfterUnknown {
    /// Admitted: the person may ask again at once.
    #[default]
    Now,
    /// Admitted in another request window; one that names none waits.
    Window,
    /// Waits until the earlier outcome is known, or its time is up.
    Settled,
}

impl AfterUnknown {
    /// The words of the configuration.
    pub const WORDS: &'static [&'static str] = &["now", "window", "settled"];

    /// Reads the word of the configuration.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Now, Self::Window, Self::Settled].into_iter().find(|each| each.as_str() == word)
    }

    /// The word of the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::Window => "window",
            Self::Settled => "settled",
        }
    }

    /// Whether an event in this window has to wait for one in that window.
    #[must_use]
    pub fn waits(self, window: Option<&str>, unresolved: Option<&str>) -> bool {
        match self {
            Self::Now => false,
            Self::Window => window.is_none() || window == unresolved,
            Self::Settled => true,
        }
    }
}

/// Every rule that may stop an event: the values of the label `reason`.
pub const STOPS: &[&str] = &[
    "limit_seller",
    "limit_client",
    "limit_global",
    "limit_destination",
    "limit_prefix",
    "limit_country",
    "country_not_allowed",
    "prefix_blocked",
    "price_unknown",
    "price_above_max",
    "breaker_count",
    "breaker_price",
];

/// Counts what the rules stopped, or would have stopped, by rule.
pub const COUNTER: &str = "sendonce_policy_stops_total";

/// Whether a stop was carried out: the values of the label `outcome`.
pub const OUTCOMES: &[&str] = &["stopped", "monitored"];

/// All rules of one installation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SendingRules {
    /// Stops are counted and not carried out.
    pub is_monitor: bool,
    pub after_unknown: AfterUnknown,
    /// For purposes that have a rule of their own.
    pub after_unknown_of: BTreeMap<String, AfterUnknown>,
    pub limits: Limits,
    /// Countries that text messages may go to; empty: all.
    pub countries: BTreeSet<String>,
    /// Beginnings of numbers that get none.
    pub blocked_prefixes: Vec<String>,
    pub prices: Prices,
    /// The most that one message may cost, in millionths.
    pub price_max: Option<i64>,
    /// What a price is counted in; for people.
    pub currency: String,
    /// The budget of every country that has none of its own.
    pub budget: Option<Budget>,
    pub budgets: BTreeMap<String, Budget>,
}

impl SendingRules {
    /// The rule for a purpose.
    #[must_use]
    pub fn after_unknown(&self, purpose: &str) -> AfterUnknown {
        self.after_unknown_of.get(purpose).copied().unwrap_or(self.after_unknown)
    }

    /// The budget of a country, if it has one.
    #[must_use]
    pub fn budget(&self, country: &str) -> Option<Budget> {
        self.budgets.get(country).copied().or(self.budget)
    }

    /// The price of one message to a country, if it is known.
    #[must_use]
    pub fn price(&self, country: &str) -> Option<i64> {
        self.prices.of(country)
    }

    /// Whether messages are counted by country at all.
    #[must_use]
    pub fn counts_countries(&self) -> bool {
        !self.prices.is_empty()
            || !self.countries.is_empty()
            || !self.blocked_prefixes.is_empty()
            || self.budget.is_some()
            || !self.budgets.is_empty()
    }

    /// The rule that a number breaks by itself, whatever was sent before.
    #[must_use]
    pub fn refusal(&self, place: &Place) -> Option<(PreCall, &'static str)> {
        if place.is_blocked {
            return Some((PreCall::PolicyCountry, "prefix_blocked"));
        }
        if !self.countries.is_empty() && !self.countries.contains(&place.country) {
            return Some((PreCall::PolicyCountry, "country_not_allowed"));
        }
        let max = self.price_max?;
        match self.price(&place.country) {
            // Nobody can say that it is below the cap.
            None => Some((PreCall::PolicyPrice, "price_unknown")),
            Some(price) if price > max => Some((PreCall::PolicyPrice, "price_above_max")),
            Some(_) => None,
        }
    }

    /// The settings by which all processes must judge alike: dotted key to value.
    #[must_use]
    pub fn shared(&self) -> BTreeMap<String, String> {
        let mut shared = BTreeMap::from([
            (
                "policy.mode".to_owned(),
                if self.is_monitor { "monitor" } else { "enforce" }.to_owned(),
            ),
            ("policy.after_unknown".to_owned(), self.after_unknown.as_str().to_owned()),
            ("limits.prefix_digits".to_owned(), self.limits.prefix_digits.to_string()),
        ]);
        for (purpose, rule) in &self.after_unknown_of {
            shared.insert(format!("policy.purposes.{purpose}"), rule.as_str().to_owned());
        }
        for scope in Scope::ALL {
            let limits: Vec<String> = self.limits.of(*scope).map(|limit| limit.text()).collect();
            shared.insert(format!("limits.{}", scope.as_str()), limits.join(", "));
        }
        let list = |items: Vec<&str>| items.join(", ");
        let countries = self.countries.iter().map(String::as_str).collect();
        shared.insert("policy.countries".to_owned(), list(countries));
        let prefixes = self.blocked_prefixes.iter().map(String::as_str).collect();
        shared.insert("policy.blocked_prefixes".to_owned(), list(prefixes));
        shared.insert("policy.prices".to_owned(), self.prices.digest());
        if let Some(max) = self.price_max {
            shared.insert("policy.price_max".to_owned(), prices::format(max));
        }
        let budgets = self.budgets.iter().map(|(country, budget)| (country.as_str(), budget));
        for (country, budget) in budgets.chain(self.budget.iter().map(|budget| ("all", budget))) {
            shared.insert(format!("policy.breakers.{country}"), budget.text());
        }
        shared
    }

    /// Counts one stop. True: it is to be carried out.
    pub fn stop(&self, rule: &'static str) -> bool {
        let outcome = if self.is_monitor { "monitored" } else { "stopped" };
        metrics::counter!(COUNTER, "reason" => rule, "outcome" => outcome).increment(1);
        !self.is_monitor
    }
}
