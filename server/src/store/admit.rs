//! Admission: one commit for a group, every event once.

use std::collections::{BTreeSet, HashMap};

use app::model::{Channel, Detail, Fact, FactKind, Freeze, Reason, Stamp, State};

use super::engine::{Batch, Engine, Value, same};
use super::limits::Windows;
use super::rows::{Extra, Stored, detail_text, outbox_row, view};
use super::{Admission, Admitted, Error, SqlStore};
use crate::domain::{Phase, Record};
use crate::policy::Scope;

/// So many meetings of one kind are facts; after them one a minute, with a count.
const NOTES_FIRST: i64 = 20;
const NOTES_EVERY: i64 = 60_000_000;

/// The longest that a caller is asked to wait: an hour.
const RETRY_AFTER_MAX_S: u32 = 3_600;

/// A key and an event that were admitted together.
#[derive(Debug, Clone)]
struct Known {
    key: String,
    event_id: String,
    record_id: String,
    content_hash: String,
    is_purged: bool,
}

/// What admissions met, while a group is folded: rows of the database and of this group alike.
#[derive(Debug, Default)]
struct Met {
    by_key: HashMap<String, usize>,
    by_event: HashMap<String, usize>,
    known: Vec<Known>,
    by_token: HashMap<String, String>,
    by_window: HashMap<(String, String, String), String>,
    /// The newest record of a seller and purpose, and its newest one with unknown outcome.
    latest: HashMap<(String, String), String>,
    unresolved: HashMap<(String, String), String>,
    records: HashMap<String, Stored>,
    /// New records and the ones before them, of the same seller and purpose.
    followed: HashMap<String, String>,
    /// What is left of purged events, by token and by window.
    buried_tokens: HashMap<String, Buried>,
    buried_windows: HashMap<(String, String, String), Buried>,
}

/// What a tombstone says about a purged event.
#[derive(Debug, Clone)]
struct Buried {
    record_id: String,
    channel: Channel,
    destination_hash: String,
    reset_hash: String,
    token_id: Option<String>,
}

impl Met {
    fn learn(&mut self, known: Known) {
        let at = self.known.len();
        self.by_key.insert(known.key.clone(), at);
        self.by_event.insert(known.event_id.clone(), at);
        self.known.push(known);
    }

    /// Links a new request with the seller's one before it, and with the one whose outcome is unknown.
    fn follow(&mut self, request: &Admission) -> Vec<Meeting> {
        let Some(key) = seller_key(request) else { return Vec::new() };
        let unresolved = self.unresolved.get(&key).cloned();
        let before = self.latest.insert(key, request.id.clone());
        let mut meetings = Vec::new();
        for id in before.iter().chain(unresolved.iter().filter(|id| before.as_ref() != Some(*id))) {
            let code = (unresolved.as_ref() == Some(id)).then_some("unresolved");
            let mut meeting = meeting(request, id, FactKind::LaterRequest, code);
            meeting.by = Some(request.id.clone());
            meetings.push(meeting);
        }
        if let Some(before) = before {
            self.followed.insert(request.id.clone(), before);
        }
        meetings
    }

    fn learn_record(&mut self, stored: Stored) {
        let (record, extra) = (&stored.record, &stored.extra);
        if let Some(token) = &extra.token_id {
            self.by_token.insert(token.clone(), record.id.clone());
        }
        if let (Some(seller), Some(window)) = (&extra.seller_id, &extra.request_window) {
            let key = (seller.clone(), extra.purpose.clone(), window.clone());
            self.by_window.insert(key, record.id.clone());
        }
        self.records.insert(record.id.clone(), stored);
    }
}

/// What one request of the group comes to, before it is written.
enum Fold {
    New,
    Replay {
        record_id: String,
        kind: FactKind,
    },
    Conflict {
        record_id: Option<String>,
        code: &'static str,
    },
    /// A rule says not now; the record whose outcome is awaited, if that is why.
    Limited {
        record_id: Option<String>,
        code: &'static str,
        wait: i64,
    },
    Invalid(&'static str, &'static str),
    Purged,
}

/// A meeting that is to be noted on a record.
struct Meeting {
    record_id: String,
    kind: FactKind,
    code: Option<&'static str>,
    /// The record that met it, where that is another one.
    by: Option<String>,
    client_id: String,
}

impl<E: Engine> SqlStore<E> {
    /// Folds a group of requests into one commit.
    pub(super) async fn admit_group(&self, requests: &[Admission]) -> Result<Vec<Admitted>, Error> {
        let mut tx = self.engine.begin().await?;
        let mut windows = self.open_admission_windows(&mut tx, requests).await?;
        let now = self.env.clock.now();
        let mut met = self.meet(&mut tx, requests).await?;
        let mut new = Vec::new();
        let mut aliases = Vec::new();
        let mut meetings = Vec::new();
        let mut folds = Vec::with_capacity(requests.len());
        for request in requests {
            let fold = match fold(&met, request) {
                Fold::New => self.judge_new(&met, &mut windows, request, now),
                other => other,
            };
            match &fold {
                Fold::New => {
                    let stored = admitted(request, now, self.env.rules.semantics);
                    met.learn(known(request, &request.id));
                    meetings.extend(met.follow(request));
                    met.learn_record(stored);
                    new.push(request);
                    aliases.push((request, request.id.clone()));
                }
                Fold::Replay { record_id, kind } => {
                    if *kind == FactKind::WindowConverged {
                        met.learn(known(request, record_id));
                        aliases.push((request, record_id.clone()));
                    }
                    meetings.push(meeting(request, record_id, *kind, None));
                }
                Fold::Conflict { record_id: Some(record_id), code } => {
                    meetings.push(meeting(
                        request,
                        record_id,
                        FactKind::AdmissionConflict,
                        Some(*code),
                    ));
                }
                Fold::Limited { record_id: Some(record_id), code, .. } => {
                    meetings.push(meeting(request, record_id, FactKind::LaterRequest, Some(*code)));
                }
                Fold::Conflict { .. } | Fold::Limited { .. } | Fold::Invalid(..) | Fold::Purged => {
                }
            }
            folds.push(fold);
        }
        if new.is_empty() && aliases.is_empty() && meetings.is_empty() {
            let freezes = Self::active_freezes(&mut tx).await?;
            E::commit(tx).await?;
            return Ok(self.answers(requests, folds, &met, &freezes));
        }
        let mut facts: Vec<Fact> = Vec::new();
        for request in &new {
            if let Some(stored) = met.records.get(&request.id) {
                let after = met.followed.get(&request.id).map(String::as_str);
                facts.push(admitted_fact(stored, &request.client_id, after));
            }
        }
        let mut touched = BTreeSet::new();
        self.note_meetings(&mut tx, &mut met, meetings, &mut facts, &mut touched, now).await?;
        self.insert_admitted(&mut tx, &new, &met).await?;
        Self::insert_keys(&mut tx, &aliases, now).await?;
        self.insert_facts(&mut tx, &facts).await?;
        Self::write_windows(&mut tx, &windows, now).await?;
        Self::update_counts(&mut tx, &new, &met, &touched).await?;
        Self::count_admitted(&mut tx, new.iter().map(|request| request.channel), now).await?;
        for channel in Channel::ALL {
            if new.iter().any(|request| request.channel == *channel) {
                E::notify(&mut tx, channel.as_str()).await?;
            }
        }
        let freezes = Self::active_freezes(&mut tx).await?;
        E::commit(tx).await?;
        Ok(self.answers(requests, folds, &met, &freezes))
    }

    fn answers(
        &self,
        requests: &[Admission],
        folds: Vec<Fold>,
        met: &Met,
        freezes: &[Freeze],
    ) -> Vec<Admitted> {
        let policy = &self.env.rules.policy;
        requests
            .iter()
            .zip(folds)
            .map(|(request, fold)| match fold {
                Fold::New => match met.records.get(&request.id) {
                    Some(stored) => Admitted::New(view(stored, freezes, policy)),
                    None => Admitted::Purged,
                },
                Fold::Replay { record_id, .. } => match met.records.get(&record_id) {
                    Some(stored) => Admitted::Replay(view(stored, freezes, policy)),
                    None => Admitted::Purged,
                },
                Fold::Conflict { code, .. } => Admitted::Conflict(code),
                Fold::Limited { code, wait, .. } => {
                    Admitted::Limited { code, retry_after_s: retry_after_s(wait) }
                }
                Fold::Invalid(field, code) => Admitted::Invalid(field, code),
                Fold::Purged => Admitted::Purged,
            })
            .collect()
    }

    async fn open_admission_windows(
        &self,
        tx: &mut E::Tx,
        requests: &[Admission],
    ) -> Result<Windows, Error> {
        if !self.env.rules.sending.limits.has_any(&[Scope::Seller, Scope::Client, Scope::Global]) {
            return Ok(Windows::default());
        }
        let asked = requests.iter().flat_map(hits);
        let asked = asked.map(|(scope, value)| (scope, value.to_owned())).collect();
        self.open_windows(tx, asked).await
    }

    /// The rules for what is new, after its own text and times were found right.
    fn judge_new(&self, met: &Met, windows: &mut Windows, request: &Admission, now: Stamp) -> Fold {
        let sending = &self.env.rules.sending;
        let unresolved = seller_key(request)
            .and_then(|key| met.unresolved.get(&key))
            .and_then(|id| met.records.get(id));
        if let Some(stored) = unresolved {
            let window = request.request_window.as_deref();
            let rule = sending.after_unknown(&request.purpose);
            if rule.waits(window, stored.extra.request_window.as_deref()) {
                // The next read may resolve it; nothing is left to wait for at its end.
                let r = &stored.record;
                let until = r.due_at.unwrap_or(r.expires_at).min(r.expires_at);
                return Fold::Limited {
                    record_id: Some(r.id.clone()),
                    code: "earlier_unresolved",
                    wait: until.since(now),
                };
            }
        }
        let hits = hits(request);
        if let Some((scope, wait)) = windows.full(&hits, now)
            && sending.stop(scope.rule())
        {
            return Fold::Limited { record_id: None, code: "rate_limited", wait };
        }
        windows.add(&hits);
        Fold::New
    }

    /// The newest record of each seller and purpose, and its newest one whose outcome is unknown.
    async fn meet_sellers(
        tx: &mut E::Tx,
        requests: &[Admission],
        met: &mut Met,
        ids: &mut BTreeSet<String>,
    ) -> Result<(), Error> {
        let sellers: BTreeSet<(String, String)> = requests.iter().filter_map(seller_key).collect();
        if sellers.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new("WITH v (seller_id, purpose) AS (VALUES ");
        batch.rows(sellers.iter().map(|(s, p)| vec![s.into(), p.into()]).collect());
        batch.push(
            ") SELECT v.seller_id, v.purpose,
                (SELECT r.id FROM records r WHERE r.seller_id = v.seller_id AND r.purpose = v.purpose
                  ORDER BY r.created_at DESC, r.id DESC LIMIT 1),
                (SELECT r.id FROM records r WHERE r.seller_id = v.seller_id AND r.purpose = v.purpose
                  AND r.state = 'dispatch_unknown' ORDER BY r.created_at DESC, r.id DESC LIMIT 1)
              FROM v",
        );
        for mut row in Self::query_batch(tx, batch).await? {
            let key = (row.text()?, row.text()?);
            for (found, into) in
                [(row.maybe_text()?, &mut met.latest), (row.maybe_text()?, &mut met.unresolved)]
            {
                if let Some(id) = found {
                    ids.insert(id.clone());
                    into.insert(key.clone(), id);
                }
            }
        }
        Ok(())
    }

    /// Reads everything that this group could meet.
    async fn meet(&self, tx: &mut E::Tx, requests: &[Admission]) -> Result<Met, Error> {
        let mut met = Met::default();
        let mut batch = Batch::new(
            "SELECT idempotency_key, event_id, record_id, content_hash, purged_at FROM admissions
             WHERE idempotency_key IN ",
        );
        batch.list(requests.iter().map(|r| &r.idempotency_key));
        batch.push(
            " UNION SELECT idempotency_key, event_id, record_id, content_hash, purged_at
             FROM admissions WHERE event_id IN ",
        );
        batch.list(requests.iter().map(|r| &r.event_id));
        for mut row in Self::query_batch(tx, batch).await? {
            met.learn(Known {
                key: row.text()?,
                event_id: row.text()?,
                record_id: row.text()?,
                content_hash: row.text()?,
                is_purged: row.maybe_int()?.is_some(),
            });
        }
        let mut ids: BTreeSet<String> = met.known.iter().map(|k| k.record_id.clone()).collect();
        let tokens: Vec<&String> = requests.iter().filter_map(|r| r.token_id.as_ref()).collect();
        if !tokens.is_empty() {
            let mut batch = Batch::new("SELECT id FROM records WHERE token_id IN ");
            batch.list(tokens);
            for mut row in Self::query_batch(tx, batch).await? {
                ids.insert(row.text()?);
            }
        }
        for request in requests {
            let (Some(seller), Some(window)) = (&request.seller_id, &request.request_window) else {
                continue;
            };
            let rows = Self::query(
                tx,
                same(
                    "SELECT id FROM records
                      WHERE seller_id = $1 AND purpose = $2 AND request_window = $3",
                ),
                vec![seller.into(), (&request.purpose).into(), window.into()],
            )
            .await?;
            for mut row in rows {
                ids.insert(row.text()?);
            }
        }
        Self::meet_sellers(tx, requests, &mut met, &mut ids).await?;
        self.meet_buried(tx, requests, &mut met).await?;
        if !ids.is_empty() {
            for stored in Self::load(tx, ids.iter().map(String::as_str)).await?.into_values() {
                met.learn_record(stored);
            }
        }
        Ok(met)
    }

    /// Purged events whose token or window one of the requests names.
    async fn meet_buried(
        &self,
        tx: &mut E::Tx,
        requests: &[Admission],
        met: &mut Met,
    ) -> Result<(), Error> {
        let tokens: Vec<&String> = requests.iter().filter_map(|r| r.token_id.as_ref()).collect();
        let windows: HashMap<String, (String, String, String)> =
            requests.iter().filter_map(|r| self.window_of(r)).collect();
        if tokens.is_empty() && windows.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new(
            "SELECT record_id, window_hash, token_id, channel, destination_hash, reset_hash
             FROM tombstones WHERE token_id IN ",
        );
        batch.list(tokens).push(" OR window_hash IN ").list(windows.keys());
        for mut row in Self::query_batch(tx, batch).await? {
            let (record_id, window, token) = (row.text()?, row.maybe_text()?, row.maybe_text()?);
            let buried = Buried {
                record_id,
                channel: row.word()?,
                destination_hash: row.text()?,
                reset_hash: row.text()?,
                token_id: token.clone(),
            };
            if let Some(window) = window.and_then(|hash| windows.get(&hash)) {
                met.buried_windows.insert(window.clone(), buried.clone());
            }
            if let Some(token) = token {
                met.buried_tokens.insert(token, buried);
            }
        }
        Ok(())
    }

    /// A request's window by the hash under which a tombstone keeps it.
    fn window_of(&self, request: &Admission) -> Option<(String, (String, String, String))> {
        let (seller, window) = (request.seller_id.as_ref()?, request.request_window.as_ref()?);
        let hash = self.window_hash(seller, &request.purpose, window);
        Some((hash, (seller.clone(), request.purpose.clone(), window.clone())))
    }

    /// Writes the meetings as facts, within their limit.
    async fn note_meetings(
        &self,
        tx: &mut E::Tx,
        met: &mut Met,
        meetings: Vec<Meeting>,
        facts: &mut Vec<Fact>,
        touched: &mut BTreeSet<String>,
        now: Stamp,
    ) -> Result<(), Error> {
        if meetings.is_empty() {
            return Ok(());
        }
        // (total, noted, noted_at) by record and kind.
        let mut notes: HashMap<(String, FactKind), (i64, i64, i64)> = HashMap::new();
        let ids: BTreeSet<&String> = meetings.iter().map(|m| &m.record_id).collect();
        let mut batch = Batch::new(
            "SELECT record_id, kind, total, noted, noted_at FROM admission_notes WHERE record_id IN ",
        );
        batch.list(ids);
        for mut row in Self::query_batch(tx, batch).await? {
            let key = (row.text()?, row.word()?);
            notes.insert(key, (row.int()?, row.int()?, row.int()?));
        }
        for meeting in meetings {
            let Some(stored) = met.records.get_mut(&meeting.record_id) else { continue };
            let (total, noted, noted_at) =
                notes.entry((meeting.record_id.clone(), meeting.kind)).or_insert((0, 0, 0));
            *total += 1;
            let is_due = *total <= NOTES_FIRST || now.micros() - *noted_at >= NOTES_EVERY;
            if !is_due {
                continue;
            }
            let mut detail = Detail::default();
            if *total - *noted > 1 {
                detail = detail.number("count", *total - *noted);
            }
            if let Some(code) = meeting.code {
                let name = if meeting.kind == FactKind::LaterRequest { "answer" } else { "code" };
                detail = detail.code(name, code);
            }
            if let Some(by) = &meeting.by {
                detail = detail.code("by", by);
            }
            *noted = *total;
            *noted_at = now.micros();
            let record = &mut stored.record;
            record.seq += 1;
            touched.insert(record.id.clone());
            facts.push(Fact {
                seq: record.seq,
                id: Some(record.id.clone()),
                event_id: Some(record.event_id.clone()),
                at: now,
                kind: meeting.kind,
                old_state: None,
                new_state: None,
                attempt: None,
                attempt_id: None,
                reason: None,
                provider: None,
                provider_message_id: None,
                token_id: None,
                actor: format!("client:{}", meeting.client_id),
                detail,
            });
        }
        // A purged event has nothing that a fact could stand on.
        if notes.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new(
            "INSERT INTO admission_notes (record_id, kind, total, noted, noted_at) VALUES ",
        );
        batch.rows(
            notes
                .into_iter()
                .map(|((id, kind), (total, noted, at))| {
                    vec![id.into(), kind.as_str().into(), total.into(), noted.into(), at.into()]
                })
                .collect(),
        );
        batch.push(
            " ON CONFLICT (record_id, kind) DO UPDATE SET total = excluded.total,
              noted = excluded.noted, noted_at = excluded.noted_at",
        );
        Self::execute_batch(tx, batch).await.map(|_| ())
    }

    async fn insert_admitted(
        &self,
        tx: &mut E::Tx,
        new: &[&Admission],
        met: &Met,
    ) -> Result<(), Error> {
        for group in new.chunks(64) {
            let mut batch = Batch::new(
                "INSERT INTO records (id, event_id, state, reason, channel, provider, purpose, seller_id,
                 request_window, token_id, destination_ref, reset_ref, destination_hash, reset_hash,
                 client_id, created_at, updated_at, expires_at, seq, authority, due_at, semantics)
                 VALUES ",
            );
            let mut rows = Vec::with_capacity(group.len());
            let mut waiting = Vec::with_capacity(group.len());
            for request in group {
                let Some(stored) = met.records.get(&request.id) else { continue };
                let r = &stored.record;
                rows.push(vec![
                    (&request.id).into(),
                    (&request.event_id).into(),
                    r.state.as_str().into(),
                    r.reason.as_str().into(),
                    request.channel.as_str().into(),
                    (&request.provider).into(),
                    (&request.purpose).into(),
                    (&request.seller_id).into(),
                    (&request.request_window).into(),
                    (&request.token_id).into(),
                    (&request.destination_ref).into(),
                    (&request.reset_ref).into(),
                    (&request.destination_hash).into(),
                    (&request.reset_hash).into(),
                    (&request.client_id).into(),
                    r.created_at.into(),
                    r.updated_at.into(),
                    r.expires_at.into(),
                    r.seq.into(),
                    r.authority.into(),
                    r.due_at.into(),
                    stored.extra.semantics.into(),
                ]);
                waiting.push(outbox_row(r, stored.extra.semantics));
            }
            batch.rows(rows);
            Self::execute_batch(tx, batch).await?;
            Self::insert_outbox(tx, waiting).await?;
        }
        Ok(())
    }

    async fn insert_keys(
        tx: &mut E::Tx,
        aliases: &[(&Admission, String)],
        now: Stamp,
    ) -> Result<(), Error> {
        if aliases.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new(
            "INSERT INTO admissions (idempotency_key, event_id, record_id, content_hash, created_at)
             VALUES ",
        );
        batch.rows(
            aliases
                .iter()
                .map(|(request, record_id)| {
                    vec![
                        (&request.idempotency_key).into(),
                        (&request.event_id).into(),
                        record_id.into(),
                        (&request.content_hash).into(),
                        now.into(),
                    ]
                })
                .collect(),
        );
        Self::execute_batch(tx, batch).await.map(|_| ())
    }

    /// Older records that got a fact in this group: only their count of facts moves.
    async fn update_counts(
        tx: &mut E::Tx,
        new: &[&Admission],
        met: &Met,
        touched: &BTreeSet<String>,
    ) -> Result<(), Error> {
        for id in touched {
            if new.iter().any(|request| request.id == *id) {
                continue;
            }
            let Some(stored) = met.records.get(id) else { continue };
            Self::execute(
                tx,
                same("UPDATE records SET seq = $1 WHERE id = $2"),
                vec![stored.record.seq.into(), id.into()],
            )
            .await?;
        }
        Ok(())
    }

    /// A fact without a record, in the series of its own; gives its number in the table.
    pub(super) async fn note_operator(
        &self,
        tx: &mut E::Tx,
        kind: FactKind,
        actor: &str,
        detail: &Detail,
    ) -> Result<i64, Error> {
        let now = self.env.clock.now();
        let mut rows = Self::query(
            tx,
            same("UPDATE counters SET value = value + 1 WHERE name = 'operator_facts' RETURNING value"),
            Vec::new(),
        )
        .await?;
        let seq = match rows.pop() {
            Some(mut row) => row.int()?,
            None => {
                return Err(Error::Inconsistent {
                    table: "counters",
                    column: "name",
                    row: "operator_facts".to_owned(),
                });
            }
        };
        let none = || Value::Text(None);
        let rows = Self::query(
            tx,
            same(
                "INSERT INTO facts (seq, id, event_id, at, kind, actor, detail)
                  VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING fact_no",
            ),
            vec![
                seq.into(),
                none(),
                none(),
                now.into(),
                kind.as_str().into(),
                actor.into(),
                detail_text(detail).into(),
            ],
        )
        .await?;
        rows.into_iter().next().map_or(Ok(0), |mut row| row.int())
    }
}

/// What a new event is counted under before its address is known.
fn hits(request: &Admission) -> Vec<(Scope, &str)> {
    let mut hits = vec![(Scope::Client, request.client_id.as_str()), (Scope::Global, "")];
    if let Some(seller) = &request.seller_id {
        hits.push((Scope::Seller, seller));
    }
    hits
}

fn seller_key(request: &Admission) -> Option<(String, String)> {
    Some((request.seller_id.clone()?, request.purpose.clone()))
}

/// Whole seconds, rounded up, within what a caller can be asked to wait.
fn retry_after_s(wait: i64) -> u32 {
    u32::try_from((wait + 999_999) / 1_000_000)
        .unwrap_or(RETRY_AFTER_MAX_S)
        .clamp(1, RETRY_AFTER_MAX_S)
}

fn known(request: &Admission, record_id: &str) -> Known {
    Known {
        key: request.idempotency_key.clone(),
        event_id: request.event_id.clone(),
        record_id: record_id.to_owned(),
        content_hash: request.content_hash.clone(),
        is_purged: false,
    }
}

fn meeting(
    request: &Admission,
    record_id: &str,
    kind: FactKind,
    code: Option<&'static str>,
) -> Meeting {
    Meeting {
        record_id: record_id.to_owned(),
        kind,
        code,
        by: None,
        client_id: request.client_id.clone(),
    }
}

/// The order of checks of CONTRACT section 4, after syntax: key and event, token and window, times.
fn fold(met: &Met, request: &Admission) -> Fold {
    let by_key = met.by_key.get(&request.idempotency_key).map(|at| &met.known[*at]);
    let by_event = met.by_event.get(&request.event_id).map(|at| &met.known[*at]);
    match (by_key, by_event) {
        (Some(key), _) if key.event_id == request.event_id => {
            if !says_the_same(met, key, request) {
                return conflict(&key.record_id, "payload_mismatch");
            }
            if key.is_purged {
                return Fold::Purged;
            }
            Fold::Replay { record_id: key.record_id.clone(), kind: FactKind::AdmissionReplay }
        }
        (Some(key), _) => conflict(&key.record_id, "idempotency_conflict"),
        (None, Some(event)) => conflict(&event.record_id, "event_conflict"),
        (None, None) => fold_unknown(met, request),
    }
}

/// Whether this request has the content of the first: also where only one of them spelled the channel out.
fn says_the_same(met: &Met, key: &Known, request: &Admission) -> bool {
    let has_channel =
        || met.records.get(&key.record_id).is_none_or(|r| r.record.channel == request.channel);
    key.content_hash == request.content_hash
        || (request.spelled_hash.as_ref() == Some(&key.content_hash) && has_channel())
}

fn conflict(record_id: &str, code: &'static str) -> Fold {
    Fold::Conflict { record_id: Some(record_id.to_owned()), code }
}

fn fold_unknown(met: &Met, request: &Admission) -> Fold {
    let window = match (&request.seller_id, &request.request_window) {
        (Some(seller), Some(window)) => {
            Some((seller.clone(), request.purpose.clone(), window.clone()))
        }
        _ => None,
    };
    let by_window = window
        .as_ref()
        .and_then(|window| met.by_window.get(window))
        .and_then(|id| met.records.get(id));
    let by_token = request.token_id.as_ref().and_then(|token| met.by_token.get(token));
    if let Some(stored) = by_window {
        let (record, extra) = (&stored.record, &stored.extra);
        // The same token in the window's own record is no conflict; in any other record it is.
        if by_token.is_some_and(|owner| *owner != record.id) {
            return conflict(&record.id, "token_conflict");
        }
        let same_link = match (&request.token_id, &extra.token_id) {
            (None, None) => request.reset_hash == extra.reset_hash,
            (ours, theirs) => ours == theirs,
        };
        let same_request = record.channel == request.channel
            && extra.destination_hash == request.destination_hash
            && same_link;
        return if same_request {
            Fold::Replay { record_id: record.id.clone(), kind: FactKind::WindowConverged }
        } else {
            conflict(&record.id, "request_window_conflict")
        };
    }
    if let Some(owner) = by_token {
        return conflict(owner, "token_conflict");
    }
    let buried_token = request.token_id.as_ref().and_then(|token| met.buried_tokens.get(token));
    if let Some(buried) = window.as_ref().and_then(|window| met.buried_windows.get(window)) {
        if buried_token.is_some_and(|other| other.record_id != buried.record_id) {
            return conflict(&buried.record_id, "token_conflict");
        }
        let same_link = match (&request.token_id, &buried.token_id) {
            (None, None) => request.reset_hash == buried.reset_hash,
            (ours, theirs) => ours == theirs,
        };
        let same_request = buried.channel == request.channel
            && buried.destination_hash == request.destination_hash
            && same_link;
        return if same_request {
            Fold::Purged
        } else {
            conflict(&buried.record_id, "request_window_conflict")
        };
    }
    if let Some(buried) = buried_token {
        return conflict(&buried.record_id, "token_conflict");
    }
    match request.fault {
        Some((field, code)) => Fold::Invalid(field, code),
        None => Fold::New,
    }
}

/// A new record, as admission makes it.
fn admitted(request: &Admission, now: Stamp, semantics: u32) -> Stored {
    Stored {
        record: Record {
            id: request.id.clone(),
            event_id: request.event_id.clone(),
            state: State::Accepted,
            reason: Reason::Admitted,
            channel: request.channel,
            provider: request.provider.clone(),
            next_provider: None,
            created_at: now,
            updated_at: now,
            expires_at: request.expires_at,
            seq: 1,
            attempt: 0,
            calls: 0,
            replays: 0,
            spent: 0,
            authority: 1,
            stumbles: 0,
            due_at: Some(now),
            replay_at: None,
            phase: Phase::Idle,
            is_replay: false,
            fence: 0,
            lease_owner: None,
            lease_until: None,
            attempt_started_at: None,
            call_by: None,
            call_ended_at: None,
            message_id: None,
            reads: 0,
            absent_at: None,
            held: None,
            poll_until: None,
            settled_at: None,
            restored_at: None,
        },
        extra: Extra {
            purpose: request.purpose.clone(),
            seller_id: request.seller_id.clone(),
            request_window: request.request_window.clone(),
            token_id: request.token_id.clone(),
            token_state: "live".to_owned(),
            destination_ref: Some(request.destination_ref.clone()),
            reset_ref: Some(request.reset_ref.clone()),
            destination_hash: request.destination_hash.clone(),
            reset_hash: request.reset_hash.clone(),
            semantics,
        },
    }
}

fn admitted_fact(stored: &Stored, client_id: &str, after: Option<&str>) -> Fact {
    let r = &stored.record;
    let mut detail = Detail::default()
        .code("channel", r.channel.as_str())
        .number("expires_at", r.expires_at.micros());
    if let Some(after) = after {
        detail = detail.code("after", after);
    }
    Fact {
        seq: 1,
        id: Some(r.id.clone()),
        event_id: Some(r.event_id.clone()),
        at: r.created_at,
        kind: FactKind::Transition,
        old_state: None,
        new_state: Some(State::Accepted),
        attempt: None,
        attempt_id: None,
        reason: Some(Reason::Admitted),
        provider: None,
        provider_message_id: None,
        token_id: stored.extra.token_id.clone(),
        actor: format!("client:{client_id}"),
        detail,
    }
}
