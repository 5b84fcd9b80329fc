//! The circuit breaker of a country: it opens when messages or their price run over a budget.
//!
//! Open, nothing goes to the country. After a while it is half open: a few messages go through as probes.
//! When these are used up at once the flood goes on, and it opens again; when they last for as long as it was
//! open, the country is calm, and it closes. What went out before it closed counts no more.

use app::model::Stamp;

use crate::config::duration;

/// What one country may take within a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    pub window: i64,
    pub messages_max: Option<u32>,
    /// Millionths.
    pub price_max: Option<i64>,
    /// How long it stays open, and how long the probes must last.
    pub cooldown: i64,
    pub probes: u32,
}

impl Budget {
    /// In words, for people.
    #[must_use]
    pub fn text(&self) -> String {
        let messages = self.messages_max.map(|max| format!("{max} messages"));
        let price = self.price_max.map(|max| format!("a price of {}", super::prices::format(max)));
        let most: Vec<String> = messages.into_iter().chain(price).collect();
        format!(
            "{} per {}, then {} probes after {}",
            most.join(" or "),
            duration::format(self.window),
            self.probes,
            duration::format(self.cooldown)
        )
    }
}

/// What opened a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    Count,
    Price,
}

impl Cause {
    /// The spelling in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Price => "price",
        }
    }

    /// Reads the spelling of the database.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Count, Self::Price].into_iter().find(|cause| cause.as_str() == text)
    }
}

/// Where a breaker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    Closed,
    Open,
    HalfOpen,
}

impl Position {
    /// The spelling in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }

    /// Reads the spelling of the database.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Closed, Self::Open, Self::HalfOpen].into_iter().find(|each| each.as_str() == text)
    }
}

/// One country's breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breaker {
    pub position: Position,
    /// What opened it last.
    pub cause: Option<Cause>,
    pub since: Stamp,
    /// Older messages count no more.
    pub counted_from: Stamp,
    /// Messages let through since it is half open.
    pub probes: u32,
}

/// What has gone out within the window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    pub messages: i64,
    pub price: i64,
}

impl Breaker {
    /// One that was never asked.
    #[must_use]
    pub const fn new(now: Stamp) -> Self {
        Self {
            position: Position::Closed,
            cause: None,
            since: now,
            counted_from: Stamp::from_micros(0),
            probes: 0,
        }
    }

    /// From here on messages count.
    #[must_use]
    pub fn window_from(&self, budget: &Budget, now: Stamp) -> Stamp {
        self.counted_from.max(now.plus(-budget.window))
    }

    /// Asks for one message. Some: it does not go, for this cause. `spent` counts from
    /// [`Breaker::window_from`] on.
    pub fn ask(&mut self, budget: &Budget, spent: Spent, price: i64, now: Stamp) -> Option<Cause> {
        let is_over = now >= self.since.plus(budget.cooldown);
        if self.position == Position::Open && is_over {
            self.turn(Position::HalfOpen, now);
            self.probes = 0;
        } else if self.position == Position::HalfOpen && is_over {
            // The probes have lasted: the country is calm.
            self.counted_from = self.since;
            self.turn(Position::Closed, now);
        }
        match self.position {
            Position::Open => self.cause.or(Some(Cause::Count)),
            Position::HalfOpen if self.probes < budget.probes => {
                self.probes += 1;
                None
            }
            Position::HalfOpen => {
                self.turn(Position::Open, now);
                self.cause.or(Some(Cause::Count))
            }
            Position::Closed => {
                let cause = over(budget, spent, price)?;
                self.cause = Some(cause);
                self.turn(Position::Open, now);
                Some(cause)
            }
        }
    }

    /// Whether nothing goes now. For an attempt after the first, which is not counted again.
    #[must_use]
    pub fn is_open(&self, budget: &Budget, now: Stamp) -> bool {
        self.position == Position::Open && now < self.since.plus(budget.cooldown)
    }

    /// An operator closes it: counting starts anew.
    pub fn close(&mut self, now: Stamp) {
        self.counted_from = now;
        self.turn(Position::Closed, now);
    }

    fn turn(&mut self, to: Position, now: Stamp) {
        self.position = to;
        self.since = now;
    }
}

fn over(budget: &Budget, spent: Spent, price: i64) -> Option<Cause> {
    if budget.messages_max.is_some_and(|max| spent.messages >= i64::from(max)) {
        return Some(Cause::Count);
    }
    budget.price_max.filter(|max| spent.price.saturating_add(price) > *max).map(|_| Cause::Price)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000;

    fn budget() -> Budget {
        Budget {
            window: 3_600 * S,
            messages_max: Some(3),
            price_max: Some(10 * S),
            cooldown: 600 * S,
            probes: 2,
        }
    }

    fn at(seconds: i64) -> Stamp {
        Stamp::from_micros(1_790_000_000 * S + seconds * S)
    }

    fn spent(messages: i64, price: i64) -> Spent {
        Spent { messages, price }
    }

    #[test]
    fn it_opens_at_its_budget_and_not_before() {
        let mut breaker = Breaker::new(at(0));
        assert_eq!(breaker.ask(&budget(), spent(2, 0), 0, at(1)), None);
        assert_eq!(breaker.ask(&budget(), spent(3, 0), 0, at(2)), Some(Cause::Count));
        assert_eq!((breaker.position, breaker.since), (Position::Open, at(2)));
        let mut breaker = Breaker::new(at(0));
        assert_eq!(breaker.ask(&budget(), spent(0, 9 * S), S, at(1)), None);
        assert_eq!(breaker.ask(&budget(), spent(0, 9 * S), S + 1, at(1)), Some(Cause::Price));
    }

    #[test]
    fn probes_that_are_used_up_at_once_open_it_again() {
        let mut breaker = Breaker::new(at(0));
        breaker.ask(&budget(), spent(3, 0), 0, at(0));
        assert_eq!(breaker.ask(&budget(), spent(3, 0), 0, at(599)), Some(Cause::Count));
        assert!(breaker.is_open(&budget(), at(599)) && !breaker.is_open(&budget(), at(600)));
        assert_eq!(breaker.ask(&budget(), spent(3, 0), 0, at(600)), None);
        assert_eq!(breaker.position, Position::HalfOpen);
        assert_eq!(breaker.ask(&budget(), spent(4, 0), 0, at(601)), None);
        assert_eq!(breaker.ask(&budget(), spent(5, 0), 0, at(602)), Some(Cause::Count));
        assert_eq!((breaker.position, breaker.since), (Position::Open, at(602)));
    }

    #[test]
    fn probes_that_last_close_it_and_old_messages_count_no_more() {
        let mut breaker = Breaker::new(at(0));
        breaker.ask(&budget(), spent(3, 0), 0, at(0));
        assert_eq!(breaker.ask(&budget(), spent(3, 0), 0, at(600)), None);
        assert_eq!(breaker.ask(&budget(), spent(0, 0), 0, at(1_200)), None);
        assert_eq!(breaker.position, Position::Closed);
        assert_eq!(breaker.window_from(&budget(), at(1_200)), at(600));
    }

    #[test]
    fn an_operator_closes_it_and_counting_starts_anew() {
        let mut breaker = Breaker::new(at(0));
        breaker.ask(&budget(), spent(3, 0), 0, at(0));
        breaker.close(at(5));
        assert_eq!(breaker.window_from(&budget(), at(6)), at(5));
        assert_eq!(breaker.ask(&budget(), spent(0, 0), 0, at(6)), None);
    }
}
