//! Limits over sliding windows.
//!
//! A window is counted in slices. Whatever hit lies in the window is counted; one that left it less than a
//! slice ago is counted too. So no window ever holds more than its limit, and each subject keeps a bounded
//! number of rows.

use app::model::Stamp;

use crate::config::duration;

/// Slices of one window.
const SLICES: i64 = 60;

/// The shortest slice: 1 ms.
const SLICE_MIN: i64 = 1_000;

/// The shortest and the longest window.
pub const WINDOW_MIN: i64 = 1_000_000;
pub const WINDOW_MAX: i64 = 30 * duration::DAY;

/// The highest count of a limit.
pub const HITS_MAX: u32 = 100_000_000;

/// At most `max` within any `window` microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub max: u32,
    pub window: i64,
}

impl Limit {
    /// Reads `5 per 15m`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (max, window) = text.split_once(" per ")?;
        let max = max.trim().parse().ok().filter(|max| (1..=HITS_MAX).contains(max))?;
        let window = duration::parse(window.trim())?;
        (WINDOW_MIN..=WINDOW_MAX).contains(&window).then_some(Self { max, window })
    }

    /// As [`Limit::parse`] reads it.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{} per {}", self.max, duration::format(self.window))
    }

    /// The length of a slice.
    #[must_use]
    pub const fn slice(&self) -> i64 {
        let slice = self.window / SLICES;
        if slice > SLICE_MIN { slice } else { SLICE_MIN }
    }

    /// The beginning of the slice in which this instant lies.
    #[must_use]
    pub const fn slice_at(&self, now: Stamp) -> i64 {
        now.micros() - now.micros().rem_euclid(self.slice())
    }

    /// When a hit of this slice is counted no more.
    #[must_use]
    pub const fn over_at(&self, slice_at: i64) -> i64 {
        slice_at + self.slice() + self.window
    }
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    Seller,
    Client,
    Global,
    /// The fingerprint of the resolved address.
    Destination,
    /// The first digits of the resolved number.
    Prefix,
    /// The country of the resolved number.
    Country,
}

impl Scope {
    pub const ALL: &'static [Self] =
        &[Self::Seller, Self::Client, Self::Global, Self::Destination, Self::Prefix, Self::Country];

    /// The key of the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Seller => "seller",
            Self::Client => "client",
            Self::Global => "global",
            Self::Destination => "destination",
            Self::Prefix => "prefix",
            Self::Country => "country",
        }
    }

    /// The rule's name in metrics and facts.
    #[must_use]
    pub const fn rule(self) -> &'static str {
        match self {
            Self::Seller => "limit_seller",
            Self::Client => "limit_client",
            Self::Global => "limit_global",
            Self::Destination => "limit_destination",
            Self::Prefix => "limit_prefix",
            Self::Country => "limit_country",
        }
    }
}

/// Every limit, by what it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    by_scope: Vec<(Scope, Limit)>,
    /// Digits of a prefix.
    pub prefix_digits: usize,
}

/// Country code and the beginning of what follows it.
pub const PREFIX_DIGITS_DEFAULT: usize = 7;

impl Default for Limits {
    fn default() -> Self {
        Self { by_scope: Vec::new(), prefix_digits: PREFIX_DIGITS_DEFAULT }
    }
}

impl Limits {
    /// Adds a limit.
    pub fn add(&mut self, scope: Scope, limit: Limit) {
        self.by_scope.push((scope, limit));
    }

    /// The limits of one scope.
    pub fn of(&self, scope: Scope) -> impl Iterator<Item = Limit> {
        self.by_scope.iter().filter(move |(each, _)| *each == scope).map(|(_, limit)| *limit)
    }

    /// Whether anything is limited that is known before the address.
    #[must_use]
    pub fn has_any(&self, scopes: &[Scope]) -> bool {
        self.by_scope.iter().any(|(scope, _)| scopes.contains(scope))
    }
}

/// The hits of one subject within one window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    pub limit: Limit,
    /// Beginning and hits of each slice, oldest first.
    pub slices: Vec<(i64, i64)>,
    /// Hits that this commit adds.
    pub added: i64,
}

impl Window {
    /// How long until one more fits; none where one fits now.
    #[must_use]
    pub fn full_for(&self, now: Stamp) -> Option<i64> {
        let max = i64::from(self.limit.max);
        let counts = |at: i64| self.limit.over_at(at) > now.micros();
        let mut sum: i64 =
            self.slices.iter().filter(|(at, _)| counts(*at)).map(|(_, hits)| *hits).sum();
        sum += self.added;
        if sum < max {
            return None;
        }
        for (at, hits) in self.slices.iter().filter(|(at, _)| counts(*at)) {
            sum -= hits;
            if sum < max {
                return Some(self.limit.over_at(*at) - now.micros());
            }
        }
        // This commit alone fills it.
        Some(self.limit.over_at(self.limit.slice_at(now)) - now.micros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000;

    #[test]
    fn a_limit_is_a_count_and_a_window() {
        assert_eq!(Limit::parse("5 per 15m"), Some(Limit { max: 5, window: 900 * S }));
        assert_eq!(Limit::parse("1 per 1s").map(|limit| limit.text()).as_deref(), Some("1 per 1s"));
        for bad in [
            "",
            "5",
            "5 per",
            "0 per 1m",
            "-1 per 1m",
            "5 per 0s",
            "5 per 1",
            "5/1m",
            "5 per 9999d",
        ] {
            assert_eq!(Limit::parse(bad), None, "{bad}");
        }
    }

    proptest::proptest! {
        /// The one promise: whatever the arrivals, no window of the limit's length holds more than its count.
        #[test]
        fn no_window_ever_holds_more_than_its_limit(
            gaps in proptest::collection::vec(0_i64..40 * S, 1..200),
            max in 1_u32..6,
        ) {
            let limit = Limit { max, window: 60 * S };
            let mut window = Window { limit, slices: Vec::new(), added: 0 };
            let mut now = Stamp::from_micros(1_790_000_000 * S + 123_456);
            let mut admitted: Vec<i64> = Vec::new();
            for gap in gaps {
                now = now.plus(gap);
                if let Some(wait) = window.full_for(now) {
                    // What it says about the wait is true.
                    assert!(wait > 0);
                    assert_eq!(window.full_for(now.plus(wait)), None);
                } else {
                    let at = limit.slice_at(now);
                    match window.slices.iter_mut().find(|(slice, _)| *slice == at) {
                        Some((_, hits)) => *hits += 1,
                        None => window.slices.push((at, 1)),
                    }
                    admitted.push(now.micros());
                }
            }
            for (n, at) in admitted.iter().enumerate() {
                let within = admitted[n..].iter().filter(|other| **other < at + limit.window).count();
                assert!(within <= max as usize);
            }
        }
    }
}
