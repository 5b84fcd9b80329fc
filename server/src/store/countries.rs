//! Text messages by country: what they cost, and the breaker that stops a flood.
//!
//! Counted by minutes in the marker's own commit. Where a country has a budget, markers for it wait for one
//! another at its breaker's row, so that the budget holds over any number of processes.

use std::collections::{BTreeMap, BTreeSet};

use app::model::{BreakerView, CountrySums, CountryView, Detail, FactKind, PolicyPage, Stamp};

use super::engine::{Batch, Engine, Row, Sql, same};
use super::{Error, SqlStore};
use crate::policy::breaker::{Breaker, Budget, Cause, Position, Spent};

/// The length of a slice: a minute.
pub(super) const SLICE: i64 = 60_000_000;

/// How long slices are kept for the pages: 8 days.
const KEPT: i64 = 8 * 86_400_000_000;

const OLD: Sql = same(
    "DELETE FROM country_slices WHERE slice_at <= $1 AND (country, slice_at) IN
       (SELECT country, slice_at FROM country_slices WHERE slice_at <= $1 LIMIT $2)",
);

/// Countries and breakers that the page shows at most.
const ROWS_MAX: i64 = 100;

const HOUR: i64 = 3_600_000_000;
const DAY: i64 = 24 * HOUR;

/// Last hour and last day, the most expensive first.
const SUMS: Sql = same(
    "SELECT country,
        CAST(SUM(CASE WHEN slice_at >= $1 THEN messages ELSE 0 END) AS BIGINT),
        CAST(SUM(CASE WHEN slice_at >= $1 THEN price ELSE 0 END) AS BIGINT),
        CAST(SUM(CASE WHEN slice_at >= $1 THEN stopped ELSE 0 END) AS BIGINT),
        CAST(SUM(messages) AS BIGINT), CAST(SUM(price) AS BIGINT), CAST(SUM(stopped) AS BIGINT)
     FROM country_slices WHERE slice_at >= $2
     GROUP BY country ORDER BY 6 DESC, 5 DESC, country LIMIT $3",
);

fn sums(row: &mut Row) -> Result<CountrySums, Error> {
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    let messages = count(row.int()?);
    let price = row.int()?;
    Ok(CountrySums { messages, price, stopped: count(row.int()?) })
}

/// One country, while a commit decides about it.
#[derive(Debug)]
struct Country {
    budget: Option<Budget>,
    was: Breaker,
    breaker: Breaker,
    spent: Spent,
    added: Spent,
    stopped: i64,
}

/// The countries of one commit.
#[derive(Debug, Default)]
pub(super) struct Countries(BTreeMap<String, Country>);

impl Countries {
    /// Asks the breaker for one message. Some: it says no.
    pub(super) fn ask(
        &mut self,
        name: &str,
        price: i64,
        is_first: bool,
        now: Stamp,
    ) -> Option<Cause> {
        let country = self.0.get_mut(name)?;
        let budget = country.budget?;
        if !is_first {
            let is_open = country.breaker.is_open(&budget, now);
            return is_open.then(|| country.breaker.cause.unwrap_or(Cause::Count));
        }
        let spent = Spent {
            messages: country.spent.messages + country.added.messages,
            price: country.spent.price.saturating_add(country.added.price),
        };
        country.breaker.ask(&budget, spent, price, now)
    }

    /// Counts a message that goes.
    pub(super) fn sent(&mut self, name: &str, price: i64) {
        if let Some(country) = self.0.get_mut(name) {
            country.added.messages += 1;
            country.added.price = country.added.price.saturating_add(price);
        }
    }

    /// Counts a message that a rule stopped.
    pub(super) fn stopped(&mut self, name: &str) {
        if let Some(country) = self.0.get_mut(name) {
            country.stopped += 1;
        }
    }
}

/// The beginning of the minute in which this instant lies.
const fn slice_at(now: Stamp) -> i64 {
    now.micros() - now.micros().rem_euclid(SLICE)
}

impl<E: Engine> SqlStore<E> {
    /// Holds the breakers of these countries, and reads what they have taken.
    pub(super) async fn open_countries(
        &self,
        tx: &mut E::Tx,
        names: BTreeSet<String>,
    ) -> Result<Countries, Error> {
        let sending = &self.env.rules.sending;
        let mut countries = Countries::default();
        let begun = self.env.clock.now();
        for name in names {
            let budget = sending.budget(&name);
            let breaker = match budget {
                Some(_) => Self::hold_breaker(tx, &name, begun).await?,
                None => Breaker::new(begun),
            };
            let spent = match budget {
                // From the whole minute on in which the window begins: never too low.
                Some(budget) => {
                    let from = slice_at(breaker.window_from(&budget, self.env.clock.now()));
                    Self::spent(tx, &name, from).await?
                }
                None => Spent::default(),
            };
            let added = Spent::default();
            countries
                .0
                .insert(name, Country { budget, was: breaker, breaker, spent, added, stopped: 0 });
        }
        Ok(countries)
    }

    async fn hold_breaker(tx: &mut E::Tx, name: &str, now: Stamp) -> Result<Breaker, Error> {
        Self::execute(
            tx,
            same(
                "INSERT INTO country_breakers (country, state, since, counted_from, probes, actor)
                 VALUES ($1, 'closed', $2, 0, 0, 'system') ON CONFLICT (country) DO NOTHING",
            ),
            vec![name.into(), now.into()],
        )
        .await?;
        let mut rows = Self::query(
            tx,
            super::engine::locking!(
                "SELECT state, cause, since, counted_from, probes FROM country_breakers
                 WHERE country = $1",
                "FOR UPDATE"
            ),
            vec![name.into()],
        )
        .await?;
        let wrong = |column| Error::Inconsistent {
            table: "country_breakers",
            column,
            row: name.to_owned(),
        };
        let Some(mut row) = rows.pop() else { return Err(wrong("country")) };
        Ok(Breaker {
            position: Position::parse(&row.text()?).ok_or_else(|| wrong("state"))?,
            cause: row.maybe_text()?.and_then(|text| Cause::parse(&text)),
            since: row.stamp()?,
            counted_from: row.stamp()?,
            probes: row.count()?,
        })
    }

    async fn spent(tx: &mut E::Tx, name: &str, from: i64) -> Result<Spent, Error> {
        let mut rows = Self::query(
            tx,
            same(
                "SELECT CAST(COALESCE(SUM(messages), 0) AS BIGINT), CAST(COALESCE(SUM(price), 0) AS BIGINT)
                 FROM country_slices WHERE country = $1 AND slice_at >= $2",
            ),
            vec![name.into(), from.into()],
        )
        .await?;
        match rows.pop() {
            Some(mut row) => Ok(Spent { messages: row.int()?, price: row.int()? }),
            None => Ok(Spent::default()),
        }
    }

    /// Writes what was counted, and the breakers that moved, each with a fact.
    pub(super) async fn write_countries(
        &self,
        tx: &mut E::Tx,
        countries: &Countries,
        now: Stamp,
    ) -> Result<(), Error> {
        let rows: Vec<_> = countries
            .0
            .iter()
            .filter(|(_, country)| country.added.messages > 0 || country.stopped > 0)
            .map(|(name, country)| {
                vec![
                    name.into(),
                    slice_at(now).into(),
                    country.added.messages.into(),
                    country.added.price.into(),
                    country.stopped.into(),
                ]
            })
            .collect();
        if !rows.is_empty() {
            let mut batch = Batch::new(
                "INSERT INTO country_slices (country, slice_at, messages, price, stopped) VALUES ",
            );
            batch.rows(rows).push(
                " ON CONFLICT (country, slice_at) DO UPDATE SET
                   messages = country_slices.messages + excluded.messages,
                   price = country_slices.price + excluded.price,
                   stopped = country_slices.stopped + excluded.stopped",
            );
            Self::execute_batch(tx, batch).await?;
        }
        for (name, country) in &countries.0 {
            if country.was != country.breaker {
                Self::write_breaker(tx, name, &country.breaker, "system", None).await?;
            }
            if country.was.position != country.breaker.position {
                self.note_breaker(tx, name, &country.breaker, "system").await?;
            }
        }
        Ok(())
    }

    async fn write_breaker(
        tx: &mut E::Tx,
        name: &str,
        breaker: &Breaker,
        actor: &str,
        reason: Option<&str>,
    ) -> Result<(), Error> {
        Self::execute(
            tx,
            same(
                "UPDATE country_breakers SET state = $1, cause = $2, since = $3, counted_from = $4,
                   probes = $5, actor = $6, reason = $7 WHERE country = $8",
            ),
            vec![
                breaker.position.as_str().into(),
                breaker.cause.map(Cause::as_str).into(),
                breaker.since.into(),
                breaker.counted_from.into(),
                breaker.probes.into(),
                actor.into(),
                reason.into(),
                name.into(),
            ],
        )
        .await
        .map(|_| ())
    }

    async fn note_breaker(
        &self,
        tx: &mut E::Tx,
        name: &str,
        breaker: &Breaker,
        actor: &str,
    ) -> Result<(), Error> {
        let mut detail =
            Detail::default().code("country", name).code("state", breaker.position.as_str());
        if let Some(cause) = breaker.cause {
            detail = detail.code("cause", cause.as_str());
        }
        self.note_operator(tx, FactKind::Breaker, actor, &detail).await.map(|_| ())
    }

    /// An operator closes a country's breaker. False: it is not open.
    pub(super) async fn close_breaker_of(
        &self,
        country: &str,
        actor: &str,
        reason: &str,
    ) -> Result<bool, Error> {
        let mut tx = self.engine.begin().await?;
        let mut breaker = Self::hold_breaker(&mut tx, country, self.env.clock.now()).await?;
        if breaker.position == Position::Closed {
            return Ok(false);
        }
        breaker.close(self.env.clock.now());
        Self::write_breaker(&mut tx, country, &breaker, actor, Some(reason)).await?;
        self.note_breaker(&mut tx, country, &breaker, actor).await?;
        E::commit(tx).await?;
        Ok(true)
    }

    /// The page's figures: rules as configured, countries by what they cost, breakers that moved.
    pub(super) async fn policy_of_countries(&self) -> Result<PolicyPage, Error> {
        let sending = &self.env.rules.sending;
        let mut tx = self.engine.begin_read().await?;
        let now = self.env.clock.now();
        let (hour, day) = (slice_at(now.plus(-HOUR)), slice_at(now.plus(-DAY)));
        let rows = Self::query(&mut tx, SUMS, vec![hour.into(), day.into(), (ROWS_MAX + 1).into()]);
        let mut countries: Vec<CountryView> = Vec::new();
        for mut row in rows.await? {
            let country = row.text()?;
            countries.push(CountryView {
                last_hour: sums(&mut row)?,
                last_day: sums(&mut row)?,
                price: sending.price(&country),
                breaker: None,
                country,
            });
        }
        let more = countries.len() as i64 > ROWS_MAX;
        countries.truncate(usize::try_from(ROWS_MAX).unwrap_or(usize::MAX));
        for (country, view) in self.breakers(&mut tx).await? {
            match countries.iter_mut().find(|known| known.country == country) {
                Some(known) => known.breaker = Some(view),
                // Shown as long as it is not closed, whatever was sent.
                None if view.state != Position::Closed.as_str() => countries.push(CountryView {
                    price: sending.price(&country),
                    country,
                    breaker: Some(view),
                    ..CountryView::default()
                }),
                None => {}
            }
        }
        let rules = sending.shared().into_iter().filter(|(key, value)| {
            !value.is_empty() && !matches!(key.as_str(), "policy.prices" | "limits.prefix_digits")
        });
        Ok(PolicyPage {
            is_monitor: sending.is_monitor,
            currency: sending.currency.clone(),
            rules: rules.collect(),
            countries,
            more,
            ..PolicyPage::default()
        })
    }

    async fn breakers(&self, tx: &mut E::Tx) -> Result<Vec<(String, BreakerView)>, Error> {
        let rows = Self::query(
            tx,
            same(
                "SELECT country, state, cause, since, actor, reason FROM country_breakers
                 ORDER BY CASE state WHEN 'closed' THEN 1 ELSE 0 END, since DESC, country LIMIT $1",
            ),
            vec![ROWS_MAX.into()],
        )
        .await?;
        let mut views = Vec::with_capacity(rows.len());
        for mut row in rows {
            let country = row.text()?;
            let Some(budget) = self.env.rules.sending.budget(&country) else { continue };
            let (state, cause, since) = (row.text()?, row.maybe_text()?, row.stamp()?);
            let is_open = state == Position::Open.as_str();
            views.push((
                country,
                BreakerView {
                    probes_at: is_open.then(|| since.plus(budget.cooldown)),
                    state,
                    cause,
                    since,
                    actor: row.text()?,
                    reason: row.maybe_text()?,
                    messages_max: budget.messages_max,
                    price_max: budget.price_max,
                    window_ms: budget.window / 1_000,
                },
            ));
        }
        Ok(views)
    }

    /// How many breakers are not closed.
    pub(super) async fn open_breakers(tx: &mut E::Tx) -> Result<u64, Error> {
        let sql = same("SELECT COUNT(*) FROM country_breakers WHERE state <> 'closed'");
        let mut rows = Self::query(tx, sql, Vec::new()).await?;
        let count = rows.pop().map_or(Ok(0), |mut row| row.int())?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Removes slices that no page and no window reads any more.
    pub(super) async fn purge_countries(&self, most: i64) -> Result<u64, Error> {
        let mut tx = self.engine.begin().await?;
        let until = self.env.clock.now().plus(-KEPT);
        let gone = Self::execute(&mut tx, OLD, vec![until.into(), most.into()]).await?;
        E::commit(tx).await?;
        Ok(gone)
    }
}
