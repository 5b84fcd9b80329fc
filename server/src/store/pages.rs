//! What people and callers look at. Nothing here writes, and no count is unbounded.

use std::collections::HashMap;

use app::model::{
    Age, CallView, Capped, Detail, EventPage, Fact, FactKind, HourPart, OverviewPage, PolicyPage,
    Record as RecordView, SellerPage, SellerRow, Stamp, State, TokenWord, UnknownPage, UnknownRow,
};
use async_trait::async_trait;

use super::engine::{Batch, Engine, Value, same};
use super::freezes::{COUNT_MAX, capped};
use super::rows::{FACT_COLUMNS, Stored, columns, end_of, read_fact, read_stored, view};
use super::{Error, Gauges, Listed, Pages, Search, SqlStore};
use crate::domain::TokenState;
use crate::sentences;

/// Facts of one record that a page or an answer shows at most.
const FACTS_MAX: i64 = 10_000;

/// The chart of the last hour: so many parts of so many microseconds.
const HOUR_PARTS: i64 = 12;
const HOUR_PART: i64 = 300_000_000;

/// Admissions of the last hour that are counted, newest first: the page stays quick under any load.
const HOUR_ROWS_MAX: i64 = 20_000;

/// Rows of a list at most.
const LIST_MAX: usize = 200;

fn rows_limit(limit: usize) -> i64 {
    i64::try_from(limit.clamp(1, LIST_MAX)).unwrap_or(1)
}

/// Where a token stands. Used comes before replaced, and replaced before expired.
fn token_word(stored: &Stored, now: Stamp) -> TokenWord {
    match super::work::token_state(stored) {
        TokenState::Consumed => TokenWord::Consumed,
        TokenState::Superseded => TokenWord::Superseded,
        TokenState::Live if now >= stored.record.expires_at => TokenWord::Expired,
        TokenState::Live => TokenWord::Live,
    }
}

/// The first 12 hex digits: enough to match, too few to use.
fn short_token(token: Option<&String>) -> Option<String> {
    token.and_then(|id| id.get(..12)).map(str::to_owned)
}

impl<E: Engine> SqlStore<E> {
    async fn one(tx: &mut E::Tx, tail: &'static str, value: &str) -> Result<Option<Stored>, Error> {
        let mut batch = Batch::new(concat!("SELECT ", columns!(), " FROM records r WHERE "));
        batch.push(tail).bind(value);
        let rows = Self::query_batch(tx, batch).await?;
        rows.into_iter().next().map(read_stored).transpose()
    }

    /// By our id, by its event's id, or by the event id of a later request that converged on it.
    async fn find_stored(tx: &mut E::Tx, id_or_event: &str) -> Result<Option<Stored>, Error> {
        if let Some(found) = Self::one(tx, "r.id = ", id_or_event).await? {
            return Ok(Some(found));
        }
        Self::by_event(tx, id_or_event).await
    }

    async fn by_event(tx: &mut E::Tx, event_id: &str) -> Result<Option<Stored>, Error> {
        let tail = "r.id = (SELECT record_id FROM admissions WHERE event_id = ";
        let mut batch = Batch::new(concat!("SELECT ", columns!(), " FROM records r WHERE "));
        batch.push(tail).bind(event_id).push(")");
        let rows = Self::query_batch(tx, batch).await?;
        rows.into_iter().next().map(read_stored).transpose()
    }

    async fn show(&self, tx: &mut E::Tx, stored: &Stored) -> Result<RecordView, Error> {
        let freezes = Self::active_freezes(tx).await?;
        Ok(view(stored, &freezes, &self.env.rules.policy))
    }

    async fn facts_of(tx: &mut E::Tx, id: &str) -> Result<Vec<Fact>, Error> {
        let mut batch = Batch::new(FACT_COLUMNS);
        batch.push(" WHERE id = ").bind(id).push(" ORDER BY seq LIMIT ").bind(FACTS_MAX);
        Self::query_batch(tx, batch).await?.into_iter().map(read_fact).collect()
    }

    async fn calls_of(tx: &mut E::Tx, stored: &Stored) -> Result<Vec<CallView>, Error> {
        let rows = Self::query(
            tx,
            same(
                "SELECT c.call, c.attempt, c.is_replay, c.authorised_by, c.started_at, c.call_by,
                    c.ended_at, c.outcome, c.provider, a.attempt_id
                  FROM calls c JOIN attempts a ON a.id = c.id AND a.attempt = c.attempt
                  WHERE c.id = $1 ORDER BY c.call",
            ),
            vec![(&stored.record.id).into()],
        )
        .await?;
        rows.into_iter()
            .map(|mut row| {
                let number = row.count()?;
                let attempt = row.count()?;
                Ok(CallView {
                    number,
                    attempt,
                    is_replay: row.flag()?,
                    authorised_by: row.count()?,
                    started_at: row.stamp()?,
                    call_by: row.stamp()?,
                    ended_at: row.maybe_stamp()?,
                    outcome: row.maybe_word()?,
                    provider: row.text()?,
                    attempt_id: row.text()?,
                    provider_message_id: (attempt == stored.record.attempt)
                        .then(|| stored.record.message_id.clone())
                        .flatten(),
                })
            })
            .collect()
    }

    /// The nearest request of the same seller and purpose on one side.
    async fn neighbour(
        &self,
        tx: &mut E::Tx,
        stored: &Stored,
        is_later: bool,
    ) -> Result<Option<RecordView>, Error> {
        let Some(seller) = &stored.extra.seller_id else { return Ok(None) };
        let mut batch =
            Batch::new(concat!("SELECT ", columns!(), " FROM records r WHERE r.seller_id = "));
        batch.bind(seller).push(" AND r.purpose = ").bind(&stored.extra.purpose);
        batch.push(if is_later {
            " AND (r.created_at, r.id) > ("
        } else {
            " AND (r.created_at, r.id) < ("
        });
        batch.bind(stored.record.created_at).push(", ").bind(&stored.record.id);
        batch.push(if is_later {
            ") ORDER BY r.created_at, r.id LIMIT 1"
        } else {
            ") ORDER BY r.created_at DESC, r.id DESC LIMIT 1"
        });
        let rows = Self::query_batch(tx, batch).await?;
        match rows.into_iter().next() {
            None => Ok(None),
            Some(row) => {
                let stored = read_stored(row)?;
                Ok(Some(self.show(tx, &stored).await?))
            }
        }
    }

    /// The record that replaced each one's token, where another did.
    async fn replaced_by(
        tx: &mut E::Tx,
        rows: &[Stored],
    ) -> Result<HashMap<String, String>, Error> {
        let mut batch = Batch::new(
            "SELECT id, detail FROM facts WHERE kind = 'token' AND reason = 'token_superseded' AND id IN ",
        );
        batch.list(rows.iter().map(|stored| &stored.record.id));
        let mut found = HashMap::new();
        for mut row in Self::query_batch(tx, batch).await? {
            let (id, detail) = (row.text()?, row.text()?);
            let detail: Detail = serde_json::from_str(&detail).unwrap_or_default();
            if let Some(by) = detail.get_code("by") {
                found.insert(id, by.to_owned());
            }
        }
        Ok(found)
    }

    pub(super) async fn count_of(tx: &mut E::Tx, mut batch: Batch) -> Result<Capped, Error> {
        batch.push(" LIMIT ").bind(COUNT_MAX + 1).push(") AS counted");
        let rows = Self::query_batch(tx, batch).await?;
        let count = rows.into_iter().next().map_or(Ok(0), |mut row| row.int())?;
        Ok(capped(count))
    }

    async fn list(&self, tx: &mut E::Tx, search: &Search) -> Result<(Vec<Stored>, bool), Error> {
        let limit = rows_limit(search.limit);
        let mut batch = Batch::new(concat!("SELECT ", columns!(), " FROM records r WHERE 1 = 1"));
        filters(&mut batch, search);
        if let Some((at, id)) = &search.cursor {
            // Time and id together: rows of one commit share their time and none may vanish.
            batch.push(" AND (r.created_at, r.id) < (").bind(*at).push(", ").bind(id).push(")");
        }
        batch.push(" ORDER BY r.created_at DESC, r.id DESC LIMIT ").bind(limit + 1);
        let mut rows = Self::query_batch(tx, batch)
            .await?
            .into_iter()
            .map(read_stored)
            .collect::<Result<Vec<_>, _>>()?;
        let more = rows.len() as i64 > limit;
        rows.truncate(usize::try_from(limit).unwrap_or(1));
        Ok((rows, more))
    }

    async fn age(
        tx: &mut E::Tx,
        from: &'static str,
        column: &'static str,
        values: Vec<Value>,
    ) -> Result<Age, Error> {
        let mut batch = Batch::new("SELECT COUNT(*), MIN(at) FROM (SELECT ");
        batch.push(column).push(" AS at FROM ").push(from);
        let (mut text, mut bound) = batch.into_parts();
        bound.extend(values);
        use std::fmt::Write as _;
        bound.push(Value::from(COUNT_MAX + 1));
        let _ = write!(text, " LIMIT ${}) AS counted", bound.len());
        let rows = E::query(tx, &text, bound).await?;
        let Some(mut row) = rows.into_iter().next() else { return Ok(Age::default()) };
        Ok(Age { count: capped(row.int()?), oldest_at: row.maybe_stamp()? })
    }

    pub(super) async fn ages(&self, tx: &mut E::Tx) -> Result<[Age; 4], Error> {
        let now = self.env.clock.now();
        let due = Self::age(
            tx,
            "outbox o WHERE o.due_at <= $1 AND NOT EXISTS (SELECT 1 FROM freezes f
                WHERE f.ended_at IS NULL
                AND f.scope IN ('all', 'channel:' || o.channel, 'provider:' || o.provider))",
            "o.due_at",
            vec![now.into()],
        )
        .await?;
        let backing_off = Self::age(
            tx,
            "outbox o WHERE o.due_at > $1 AND NOT EXISTS (SELECT 1 FROM freezes f
                WHERE f.ended_at IS NULL
                AND f.scope IN ('all', 'channel:' || o.channel, 'provider:' || o.provider))",
            "o.created_at",
            vec![now.into()],
        )
        .await?;
        let frozen = Self::age(
            tx,
            "outbox o WHERE EXISTS (SELECT 1 FROM freezes f WHERE f.ended_at IS NULL
                AND f.scope IN ('all', 'channel:' || o.channel, 'provider:' || o.provider))",
            "o.created_at",
            Vec::new(),
        )
        .await?;
        let unknown = Self::age(
            tx,
            "records r WHERE r.state = 'dispatch_unknown'",
            // Unknown since its call, not since the last look-up.
            "COALESCE(r.attempt_started_at, r.created_at)",
            Vec::new(),
        )
        .await?;
        Ok([due, backing_off, frozen, unknown])
    }

    /// Calls beyond what facts authorise. The database refuses them, so this is a proof, not a hope:
    /// counted over what is still open and over the newest calls.
    async fn duplicate_calls(tx: &mut E::Tx) -> Result<u64, Error> {
        let rows = Self::query(
            tx,
            same(
                "SELECT COUNT(*) FROM (SELECT 1 AS one FROM facts
                  WHERE kind = 'duplicate_evidence' LIMIT 10001) AS counted",
            ),
            Vec::new(),
        )
        .await?;
        let count = rows.into_iter().next().map_or(Ok(0), |mut row| row.int())?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    async fn ever_paused(&self, tx: &mut E::Tx) -> Result<Vec<(String, bool, bool)>, Error> {
        let now = self.env.clock.now();
        let rows = Self::query(
            tx,
            same(
                "SELECT provider, paused_until, code FROM provider_pauses ORDER BY provider LIMIT $1",
            ),
            vec![COUNT_MAX.into()],
        )
        .await?;
        rows.into_iter()
            .map(|mut row| {
                let (provider, until, code) = (row.text()?, row.stamp()?, row.text()?);
                let is_paused = until > now;
                Ok((provider, is_paused, is_paused && code == super::STOPPED))
            })
            .collect()
    }

    /// When each of these records was last looked up.
    async fn last_reads(tx: &mut E::Tx, ids: &[&String]) -> Result<HashMap<String, Stamp>, Error> {
        let mut batch =
            Batch::new("SELECT id, MAX(at) FROM facts WHERE kind = 'lookup' AND id IN ");
        batch.list(ids.iter().map(|id| id.as_str())).push(" GROUP BY id");
        let rows = Self::query_batch(tx, batch).await?;
        rows.into_iter().map(|mut row| Ok((row.text()?, row.stamp()?))).collect()
    }

    /// The last hour's admissions by five minutes and by what has become of them; true when there were more
    /// than are counted.
    async fn last_hour(&self, tx: &mut E::Tx) -> Result<(Vec<HourPart>, bool), Error> {
        let from = self.env.clock.now().plus(-HOUR_PARTS * HOUR_PART);
        let mut parts: Vec<HourPart> = (0..HOUR_PARTS)
            .map(|n| HourPart { from: from.plus(n * HOUR_PART), done: 0, open: 0, ended: 0 })
            .collect();
        let mut batch = Batch::new("SELECT (created_at - ");
        batch.bind(from).push(") / ").bind(HOUR_PART).push(
            ", state, COUNT(*) FROM (SELECT created_at, state FROM records WHERE created_at >= ",
        );
        batch.bind(from).push(" ORDER BY created_at DESC, id DESC LIMIT ").bind(HOUR_ROWS_MAX);
        batch.push(") AS newest GROUP BY 1, 2");
        let mut total = 0;
        for mut row in Self::query_batch(tx, batch).await? {
            let (part, state, count) = (row.int()?, row.word::<State>()?, row.int()?);
            total += count;
            // What came in since `now` was read belongs to the last part.
            let part = usize::try_from(part).unwrap_or(0).min(parts.len() - 1);
            let count = u64::try_from(count).unwrap_or(0);
            let Some(part) = parts.get_mut(part) else { continue };
            match state {
                State::Sent | State::Delivered => part.done += count,
                State::FailedFinal | State::Expired => part.ended += count,
                State::Accepted | State::Dispatching | State::DispatchUnknown => part.open += count,
            }
        }
        Ok((parts, total >= HOUR_ROWS_MAX))
    }

    async fn last_admitted(tx: &mut E::Tx) -> Result<Option<Stamp>, Error> {
        let rows = Self::query(tx, same("SELECT MAX(created_at) FROM records"), Vec::new()).await?;
        rows.into_iter().next().map_or(Ok(None), |mut row| row.maybe_stamp())
    }
}

/// The smallest text that is greater than every text with this beginning.
fn beyond(prefix: &str) -> String {
    // The alphabet of ids is ASCII and ends below '~'.
    format!("{prefix}~")
}

fn filters(batch: &mut Batch, search: &Search) {
    if !search.states.is_empty() {
        batch.push(" AND r.state IN ").list(search.states.iter().map(|state| state.as_str()));
    }
    if let Some(channel) = search.channel {
        batch.push(" AND r.channel = ").bind(channel.as_str());
    }
    if let Some(provider) = &search.provider {
        batch.push(" AND r.provider = ").bind(provider);
    }
    if let Some(reason) = search.reason {
        batch.push(" AND r.reason = ").bind(reason.as_str());
    }
    if let Some(seller) = &search.seller {
        batch.push(" AND r.seller_id = ").bind(seller);
    }
    if let Some(prefix) = &search.prefix {
        // Ranges instead of LIKE: they use the index, and the text has no wildcards.
        batch.push(" AND ((r.event_id >= ").bind(prefix);
        batch.push(" AND r.event_id < ").bind(beyond(prefix));
        batch.push(") OR (r.id >= ").bind(prefix);
        batch.push(" AND r.id < ").bind(beyond(prefix));
        batch.push(") OR r.seller_id = ").bind(prefix);
        batch.push(")");
    }
    if let Some(after) = search.after {
        batch.push(" AND r.created_at >= ").bind(after);
    }
    if let Some(before) = search.before {
        batch.push(" AND r.created_at < ").bind(before);
    }
}

#[async_trait]
impl<E: Engine> Pages for SqlStore<E> {
    async fn record(&self, id: &str) -> Result<Option<RecordView>, Error> {
        let mut tx = self.engine.begin_read().await?;
        match Self::one(&mut tx, "r.id = ", id).await? {
            None => Ok(None),
            Some(stored) => Ok(Some(self.show(&mut tx, &stored).await?)),
        }
    }

    async fn record_by_event(&self, event_id: &str) -> Result<Option<RecordView>, Error> {
        let mut tx = self.engine.begin_read().await?;
        match Self::by_event(&mut tx, event_id).await? {
            None => Ok(None),
            Some(stored) => Ok(Some(self.show(&mut tx, &stored).await?)),
        }
    }

    async fn timeline(&self, id: &str) -> Result<Option<Vec<Fact>>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let Some(stored) = Self::find_stored(&mut tx, id).await? else { return Ok(None) };
        Self::facts_of(&mut tx, &stored.record.id).await.map(Some)
    }

    async fn event_page(&self, id_or_event: &str) -> Result<Option<EventPage>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let Some(stored) = Self::find_stored(&mut tx, id_or_event).await? else { return Ok(None) };
        let record = self.show(&mut tx, &stored).await?;
        let facts = Self::facts_of(&mut tx, &stored.record.id).await?;
        let calls = Self::calls_of(&mut tx, &stored).await?;
        let earlier = self.neighbour(&mut tx, &stored, false).await?;
        let later = self.neighbour(&mut tx, &stored, true).await?;
        let policy = &self.env.rules.policy;
        let facing = self.env.rules.facing.get(&stored.record.provider);
        let duplicates =
            facts.iter().filter(|fact| fact.kind == FactKind::DuplicateEvidence).count();
        let mut next_sentence = sentences::next(&stored.record, &record, policy, facing);
        if stored.record.state == State::DispatchUnknown {
            let rule = self.env.rules.sending.after_unknown(&stored.extra.purpose);
            next_sentence.push(' ');
            next_sentence.push_str(sentences::after_unknown(rule));
        }
        let answer = sentences::answer(&stored.record, &record, &facts);
        Ok(Some(EventPage {
            provider: (stored.record.attempt > 0).then(|| stored.record.provider.clone()),
            provider_message_id: stored.record.message_id.clone(),
            request_window: stored.extra.request_window.clone(),
            token_id: short_token(stored.extra.token_id.as_ref()),
            facts,
            calls,
            earlier,
            later,
            next_sentence,
            answer,
            attempts_max: policy.attempts_max,
            duplicate_calls: u32::try_from(duplicates).unwrap_or(u32::MAX),
            margin_ms: policy.margin / 1_000,
            next_read_at: match stored.record.state {
                State::DispatchUnknown | State::Sent => stored.record.due_at,
                _ => None,
            },
            poll_until: stored.record.poll_until,
            record,
        }))
    }

    async fn search(&self, search: &Search) -> Result<Listed, Error> {
        let mut tx = self.engine.begin_read().await?;
        let (rows, more) = self.list(&mut tx, search).await?;
        let freezes = Self::active_freezes(&mut tx).await?;
        let mut count =
            Batch::new("SELECT COUNT(*) FROM (SELECT 1 AS one FROM records r WHERE 1 = 1");
        filters(&mut count, search);
        let total = Self::count_of(&mut tx, count).await?;
        let rows: Vec<RecordView> =
            rows.iter().map(|stored| view(stored, &freezes, &self.env.rules.policy)).collect();
        let next = more.then(|| rows.last().map(end_of)).flatten();
        Ok(Listed { rows, next, total })
    }

    async fn seller_page(
        &self,
        seller_id: &str,
        cursor: Option<(Stamp, String)>,
        limit: usize,
    ) -> Result<SellerPage, Error> {
        let mut tx = self.engine.begin_read().await?;
        let is_continued = cursor.is_some();
        let search =
            Search { seller: Some(seller_id.to_owned()), cursor, limit, ..Search::default() };
        let (rows, more) = self.list(&mut tx, &search).await?;
        let freezes = Self::active_freezes(&mut tx).await?;
        let mut count =
            Batch::new("SELECT COUNT(*) FROM (SELECT 1 AS one FROM records r WHERE r.seller_id = ");
        count.bind(seller_id);
        let total = Self::count_of(&mut tx, count).await?;
        let replaced = Self::replaced_by(&mut tx, &rows).await?;
        let now = self.env.clock.now();
        let rows: Vec<SellerRow> = rows
            .iter()
            .map(|stored| SellerRow {
                record: view(stored, &freezes, &self.env.rules.policy),
                request_window: stored.extra.request_window.clone(),
                token_id: short_token(stored.extra.token_id.as_ref()),
                token: token_word(stored, now),
                replaced_by: replaced.get(&stored.record.id).cloned(),
            })
            .collect();
        let next_cursor = more
            .then(|| rows.last().map(|row| crate::http::cursor::encode(&end_of(&row.record))))
            .flatten();
        Ok(SellerPage { seller_id: seller_id.to_owned(), rows, next_cursor, is_continued, total })
    }

    async fn policy_page(&self) -> Result<PolicyPage, Error> {
        self.policy_of_countries().await
    }

    async fn unknown_page(&self, limit: usize) -> Result<UnknownPage, Error> {
        let mut tx = self.engine.begin_read().await?;
        let mut batch = Batch::new(concat!(
            "SELECT ",
            columns!(),
            " FROM records r WHERE r.state = 'dispatch_unknown'
              ORDER BY COALESCE(r.attempt_started_at, r.created_at), r.id LIMIT "
        ));
        batch.bind(rows_limit(limit));
        let rows = Self::query_batch(&mut tx, batch)
            .await?
            .into_iter()
            .map(read_stored)
            .collect::<Result<Vec<_>, _>>()?;
        let freezes = Self::active_freezes(&mut tx).await?;
        let [.., unknown] = self.ages(&mut tx).await?;
        let ids: Vec<&String> = rows.iter().map(|stored| &stored.record.id).collect();
        let last_reads = Self::last_reads(&mut tx, &ids).await?;
        let policy = &self.env.rules.policy;
        let rows = rows
            .iter()
            .map(|stored| {
                let r = &stored.record;
                UnknownRow {
                    record: view(stored, &freezes, policy),
                    provider: r.provider.clone(),
                    since: r.attempt_started_at.unwrap_or(r.created_at),
                    reads: r.reads,
                    last_read_at: last_reads.get(&r.id).copied(),
                    next_read_at: r.due_at,
                    attempts_left: policy.attempts_max.saturating_sub(r.spent + 1),
                    resolves: sentences::resolves(r, self.env.rules.facing.get(&r.provider)),
                }
            })
            .collect();
        Ok(UnknownPage { rows, total: unknown.count, oldest_at: unknown.oldest_at })
    }

    async fn overview(&self) -> Result<OverviewPage, Error> {
        let mut tx = self.engine.begin_read().await?;
        let [due, backing_off, frozen, unknown] = self.ages(&mut tx).await?;
        let mut states = Vec::new();
        for state in State::ALL {
            let mut count =
                Batch::new("SELECT COUNT(*) FROM (SELECT 1 AS one FROM records r WHERE r.state = ");
            count.bind(state.as_str());
            states.push((*state, Self::count_of(&mut tx, count).await?));
        }
        let search = Search { limit: 12, ..Search::default() };
        let (rows, _) = self.list(&mut tx, &search).await?;
        let freezes = Self::active_freezes(&mut tx).await?;
        let (hour, hour_more) = self.last_hour(&mut tx).await?;
        let (engine, name) = (E::NAME, self.engine.describe());
        Ok(OverviewPage {
            hour,
            hour_more,
            database: format!("{engine} {name}"),
            due,
            backing_off,
            frozen,
            unknown,
            last_admitted_at: Self::last_admitted(&mut tx).await?,
            duplicate_calls: Self::duplicate_calls(&mut tx).await?,
            states,
            recent: rows
                .iter()
                .map(|stored| view(stored, &freezes, &self.env.rules.policy))
                .collect(),
        })
    }

    async fn gauges(&self) -> Result<Gauges, Error> {
        let mut tx = self.engine.begin_read().await?;
        let unsealed = Self::unsealed_in(&mut tx).await?;
        let [due, backing_off, frozen, unknown] = self.ages(&mut tx).await?;
        let dispatching = Self::age(
            &mut tx,
            "records r WHERE r.state = 'dispatching'",
            "r.created_at",
            Vec::new(),
        )
        .await?;
        let reads_due = self.reads_due(&mut tx).await?;
        Ok(Gauges {
            due: due.count.count,
            oldest_due_at: due.oldest_at,
            backing_off: backing_off.count.count,
            oldest_backing_off_at: backing_off.oldest_at,
            frozen: frozen.count.count,
            oldest_frozen_at: frozen.oldest_at,
            unknown: unknown.count.count,
            oldest_unknown_at: unknown.oldest_at,
            dispatching: dispatching.count.count,
            reads_due: reads_due.count.count,
            oldest_read_due_at: reads_due.oldest_at,
            duplicate_calls: Self::duplicate_calls(&mut tx).await?,
            freezes: Self::active_freezes(&mut tx).await?.len() as u64,
            open_breakers: Self::open_breakers(&mut tx).await?,
            pauses: self.ever_paused(&mut tx).await?,
            unsealed: unsealed.count,
            oldest_unsealed_at: unsealed.oldest_at,
            is_log_sound: Self::verdict_in(&mut tx).await?.map(|v| v.integrity && v.completeness),
        })
    }

    async fn fact_count(&self) -> Result<i64, Error> {
        let mut tx = self.engine.begin_read().await?;
        let rows =
            Self::query(&mut tx, same("SELECT COALESCE(MAX(fact_no), 0) FROM facts"), Vec::new())
                .await?;
        rows.into_iter().next().map_or(Ok(0), |mut row| row.int())
    }

    async fn pauses(&self) -> Result<Vec<(String, Stamp, String)>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let rows = Self::query(
            &mut tx,
            same(
                "SELECT provider, paused_until, code FROM provider_pauses
                  WHERE paused_until > $1 ORDER BY provider",
            ),
            vec![self.env.clock.now().into()],
        )
        .await?;
        rows.into_iter().map(|mut row| Ok((row.text()?, row.stamp()?, row.text()?))).collect()
    }
}
