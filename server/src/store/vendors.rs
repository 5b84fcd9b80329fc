//! What is kept about providers besides the ledger: who is routed around, what look-ups are paid from,
//! callbacks that met no attempt, trials.

use std::collections::BTreeMap;

use app::model::{Capped, Channel, Freeze, Stamp};
use async_trait::async_trait;

use super::engine::{Engine, Sql, Value, locking, same};
use super::freezes::{COUNT_MAX, capped};
use super::rows::{Stored, Write, is_frozen};
use super::{
    Error, Evidence, ReadAnswer, ReadTask, Reads, SqlStore, Trial, TrialStep, Unmatched, Vendors,
    Weighed,
};
use crate::domain::Lookup;
use crate::providers::{Cause, Receipt};

/// A provider that refuses our credentials is paused under this code.
pub const STOPPED: &str = "provider_stopped";

/// Events that one claim moves from a stopped provider to the next.
const MOVED_MAX: i64 = 256;

/// Unmatched callbacks that are kept; the oldest leave first.
const UNMATCHED_MAX: i64 = 10_000;

/// Unmatched callbacks that one newly known message takes in.
const ADOPTED_MAX: i64 = 20;

/// Rows that a list of this module shows at most.
const LIST_MAX: usize = 200;

/// One look-up, in the bucket's unit.
const READ: i64 = 1_000_000;

/// The bucket holds what is allowed in this time, but at least one look-up: 10 s.
const BURST: i64 = 10_000_000;

const MINUTE: i64 = 60_000_000;

const WAITING: Sql = locking!(
    "SELECT record_id FROM outbox WHERE channel = $1 AND provider = $2 AND due_at <= $3
     ORDER BY due_at, record_id LIMIT $4",
    "FOR UPDATE SKIP LOCKED"
);

const BUCKET: Sql =
    locking!("SELECT level, refilled_at FROM provider_reads WHERE provider = $1", "FOR UPDATE");

/// What is in a bucket after `elapsed` more microseconds.
fn refilled(level: i64, elapsed: i64, per_minute: u32) -> i64 {
    let per_minute = i128::from(per_minute);
    let full = (per_minute * i128::from(READ) * i128::from(BURST) / i128::from(MINUTE))
        .max(i128::from(READ));
    let more = per_minute * i128::from(READ) * i128::from(elapsed.max(0)) / i128::from(MINUTE);
    i64::try_from((i128::from(level) + more).min(full)).unwrap_or(READ)
}

/// How long until the bucket holds `missing` more, in microseconds.
fn wait_for(missing: i64, per_minute: u32) -> i64 {
    let per_minute = i128::from(per_minute.max(1)) * i128::from(READ);
    let wait = i128::from(missing.max(0)) * i128::from(MINUTE) / per_minute;
    i64::try_from(wait).unwrap_or(MINUTE).saturating_add(1)
}

impl<E: Engine> SqlStore<E> {
    /// Due events of a stopped provider go to the next of their route that is not stopped: no call of theirs
    /// is in doubt, or they would not be due. A frozen provider is not routed around.
    pub(super) async fn route_around(
        &self,
        tx: &mut E::Tx,
        channel: Channel,
        freezes: &[Freeze],
    ) -> Result<u64, Error> {
        let rules = &self.env.rules;
        let Some(route) = rules.routes.get(&channel).filter(|route| route.len() > 1) else {
            return Ok(0);
        };
        let now = self.env.clock.now();
        let rows = Self::query(
            tx,
            same("SELECT provider FROM provider_pauses WHERE code = $1 AND paused_until > $2"),
            vec![STOPPED.into(), now.into()],
        )
        .await?;
        let stopped: Vec<String> =
            rows.into_iter().map(|mut row| row.text()).collect::<Result<_, _>>()?;
        let mut moved = 0;
        for (at, name) in route.iter().enumerate() {
            if !stopped.contains(name) || is_frozen(freezes, channel, name) {
                continue;
            }
            let others = route[at + 1..].iter().chain(&route[..at]);
            let Some(next) = others.into_iter().find(|next| !stopped.contains(next)) else {
                continue;
            };
            let values = vec![channel.as_str().into(), name.into(), now.into(), MOVED_MAX.into()];
            let rows = Self::query(tx, WAITING, values).await?;
            for mut row in rows {
                let id = row.text()?;
                for sql in [
                    same("UPDATE outbox SET provider = $1 WHERE record_id = $2"),
                    same("UPDATE records SET next_provider = $1 WHERE id = $2"),
                ] {
                    Self::execute(tx, sql, vec![next.into(), (&id).into()]).await?;
                }
                moved += 1;
            }
        }
        Ok(moved)
    }

    /// The look-ups that their providers allow now. The others become due when they will be allowed.
    pub(super) async fn allowed(
        &self,
        tx: &mut E::Tx,
        tasks: Vec<ReadTask>,
        now: Stamp,
    ) -> Result<Vec<ReadTask>, Error> {
        let allowances = &self.env.rules.allowances;
        // By name, so that two processes take the rows in one order.
        let mut wanted: BTreeMap<&str, u32> = BTreeMap::new();
        for task in &tasks {
            if let Some((name, per_minute)) = allowances.get_key_value(&task.provider) {
                wanted.insert(name, *per_minute);
            }
        }
        let mut granted = tasks;
        for (provider, per_minute) in wanted {
            Self::execute(
                tx,
                same(
                    "INSERT INTO provider_reads (provider, level, refilled_at, taken, deferred)
                      VALUES ($1, $2, $3, 0, 0) ON CONFLICT (provider) DO NOTHING",
                ),
                vec![provider.into(), refilled(0, BURST, per_minute).into(), now.into()],
            )
            .await?;
            let rows = Self::query(tx, BUCKET, vec![provider.into()]).await?;
            let Some(mut row) = rows.into_iter().next() else { continue };
            let (level, refilled_at) = (row.int()?, row.stamp()?);
            let mut level = refilled(level, now.since(refilled_at), per_minute);
            let (mut kept, mut late, mut taken) = (Vec::new(), Vec::new(), 0_i64);
            for task in granted {
                if task.provider != provider {
                    kept.push(task);
                } else if level >= READ {
                    // One that asks for many ids may leave a debt; it is paid before the next.
                    let asked = i64::try_from(task.ids.len()).unwrap_or(i64::MAX);
                    taken = taken.saturating_add(asked);
                    level = level.saturating_sub(asked.saturating_mul(READ));
                    kept.push(task);
                } else {
                    late.push(task);
                }
            }
            granted = kept;
            for (place, task) in late.iter().enumerate() {
                let ahead = i64::try_from(place + 1).unwrap_or(i64::MAX).saturating_mul(READ);
                let due = now.plus(wait_for(ahead.saturating_sub(level), per_minute));
                Self::execute(
                    tx,
                    same("UPDATE records SET due_at = $1 WHERE id = $2"),
                    vec![due.into(), (&task.id).into()],
                )
                .await?;
            }
            Self::execute(
                tx,
                same(
                    "UPDATE provider_reads SET level = $1, refilled_at = $2, taken = taken + $3,
                        deferred = deferred + $4 WHERE provider = $5",
                ),
                vec![
                    level.into(),
                    now.into(),
                    taken.into(),
                    i64::try_from(late.len()).unwrap_or(i64::MAX).into(),
                    provider.into(),
                ],
            )
            .await?;
        }
        Ok(granted)
    }

    /// The last look-up of each provider, for people.
    pub(super) async fn note_reads(
        &self,
        tx: &mut E::Tx,
        found: &BTreeMap<String, Stored>,
        answers: &[ReadAnswer],
    ) -> Result<(), Error> {
        let mut last: BTreeMap<&str, &ReadAnswer> = BTreeMap::new();
        for answer in answers {
            let Some(stored) = found.get(&answer.id) else { continue };
            let place = last.entry(stored.record.provider.as_str()).or_insert(answer);
            if answer.asked_at >= place.asked_at {
                *place = answer;
            }
        }
        for (provider, answer) in last {
            let (word, code) = match &answer.answer {
                Lookup::Found { seen, .. } => ("found", Some(seen.as_str())),
                Lookup::Absent => ("absent", None),
                Lookup::CannotTell { code } => ("cannot_tell", Some(code.as_str())),
            };
            Self::execute(
                tx,
                same(
                    "INSERT INTO provider_reads (provider, level, refilled_at, taken, deferred,
                        last_at, last_answer, last_code) VALUES ($1, $2, $3, 0, 0, $3, $4, $5)
                      ON CONFLICT (provider) DO UPDATE SET last_at = excluded.last_at,
                        last_answer = excluded.last_answer, last_code = excluded.last_code",
                ),
                vec![
                    provider.into(),
                    READ.into(),
                    answer.asked_at.into(),
                    word.into(),
                    code.into(),
                ],
            )
            .await?;
        }
        Ok(())
    }

    /// Keeps what a verified callback says that met no attempt: codes, ids and times.
    pub(super) async fn keep_unmatched(
        &self,
        tx: &mut E::Tx,
        evidence: &Evidence,
    ) -> Result<(), Error> {
        let receipt = &evidence.receipt;
        // An attempt id of ours has 32 hex digits; what else a callback calls so is not kept.
        let attempt_id = receipt.attempt_id.as_deref().filter(|id| is_own_id(id));
        // Nobody can compare it with a recipient here, so nothing that could be a number is kept.
        let message_id = receipt.message_id.as_deref().filter(|id| !is_like_a_number(id));
        let code = receipt.cause.map(Cause::as_str);
        let at = receipt.at.map_or_else(String::new, |at| at.micros().to_string());
        let says = [
            evidence.provider.as_str(),
            receipt.attempt_id.as_deref().unwrap_or_default(),
            receipt.message_id.as_deref().unwrap_or_default(),
            receipt.seen.as_str(),
            code.unwrap_or_default(),
            &at,
        ]
        .map(str::as_bytes);
        let mut parts: Vec<&[u8]> = vec![b"unmatched"];
        parts.extend(says);
        let now = self.env.clock.now();
        Self::execute(
            tx,
            same(
                "INSERT INTO unmatched_callbacks (callback_id, provider, attempt_id, message_id, seen,
                    code, provider_at, first_at, last_at, times)
                  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, 1)
                  ON CONFLICT (callback_id) DO UPDATE SET last_at = excluded.last_at,
                    times = unmatched_callbacks.times + 1",
            ),
            vec![
                self.env.keys.content_hash(&parts).into(),
                (&evidence.provider).into(),
                attempt_id.into(),
                message_id.into(),
                receipt.seen.as_str().into(),
                code.into(),
                receipt.at.into(),
                now.into(),
            ],
        )
        .await?;
        Self::execute(
            tx,
            same(
                "DELETE FROM unmatched_callbacks WHERE first_at < (SELECT first_at
                    FROM unmatched_callbacks ORDER BY first_at DESC LIMIT 1 OFFSET $1)",
            ),
            vec![(UNMATCHED_MAX - 1).into()],
        )
        .await?;
        Ok(())
    }

    /// A callback that names its message only by the provider's id may come before we know that id.
    pub(super) async fn adopt_unmatched(
        &self,
        tx: &mut E::Tx,
        known: &[(String, String)],
    ) -> Result<(), Error> {
        for (provider, message_id) in known {
            let rows = Self::query(
                tx,
                same(
                    "SELECT callback_id, seen, code, provider_at FROM unmatched_callbacks
                      WHERE provider = $1 AND message_id = $2 AND matched_at IS NULL
                        AND attempt_id IS NULL
                      ORDER BY first_at, callback_id LIMIT $3",
                ),
                vec![provider.into(), message_id.into(), ADOPTED_MAX.into()],
            )
            .await?;
            for mut row in rows {
                let callback_id = row.text()?;
                let evidence = Evidence {
                    provider: provider.clone(),
                    receipt: Receipt {
                        attempt_id: None,
                        message_id: Some(message_id.clone()),
                        seen: row.word()?,
                        cause: row.maybe_text()?.and_then(|code| Cause::parse(&code)),
                        at: row.maybe_stamp()?,
                    },
                };
                if self.weigh_one(tx, &evidence).await? != Weighed::Unmatched {
                    Self::execute(
                        tx,
                        same(
                            "UPDATE unmatched_callbacks SET matched_at = $1 WHERE callback_id = $2",
                        ),
                        vec![self.env.clock.now().into(), callback_id.into()],
                    )
                    .await?;
                }
            }
        }
        Ok(())
    }
}

/// Provider and message id of each message that these decisions are the first to know.
pub(super) fn newly_known(writes: &[Write<'_>]) -> Vec<(String, String)> {
    let pairs = writes.iter().map(|write| (&write.before.record, &write.step.record));
    pairs
        .filter(|(before, after)| before.message_id != after.message_id)
        .filter_map(|(_, after)| Some((after.provider.clone(), after.message_id.clone()?)))
        .collect()
}

fn is_own_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
}

/// As many digits as a phone number has, in the whole or in a part that stands by itself.
fn is_like_a_number(id: &str) -> bool {
    let fits = |digits: usize| (7..=15).contains(&digits);
    let is_part = |part: &str| fits(part.len()) && part.bytes().all(|c| c.is_ascii_digit());
    let digits = id.bytes().filter(u8::is_ascii_digit).count();
    let is_whole = fits(digits) && !id.bytes().any(|c| c.is_ascii_alphabetic());
    is_whole || id.split(|c: char| !c.is_ascii_alphanumeric()).any(is_part)
}

#[async_trait]
impl<E: Engine> Vendors for SqlStore<E> {
    async fn unmatched(&self, limit: usize) -> Result<(Vec<Unmatched>, Capped), Error> {
        let mut tx = self.engine.begin_read().await?;
        let limit = i64::try_from(limit.clamp(1, LIST_MAX)).unwrap_or(1);
        let rows = Self::query(
            &mut tx,
            same(
                "SELECT provider, attempt_id, message_id, seen, code, provider_at, first_at, last_at,
                    times FROM unmatched_callbacks WHERE matched_at IS NULL
                  ORDER BY last_at DESC, callback_id LIMIT $1",
            ),
            vec![limit.into()],
        )
        .await?;
        let found: Vec<Unmatched> = rows
            .into_iter()
            .map(|mut row| {
                Ok(Unmatched {
                    provider: row.text()?,
                    attempt_id: row.maybe_text()?,
                    message_id: row.maybe_text()?,
                    seen: row.word()?,
                    code: row.maybe_text()?,
                    provider_at: row.maybe_stamp()?,
                    first_at: row.stamp()?,
                    last_at: row.stamp()?,
                    times: u64::try_from(row.int()?).unwrap_or(0),
                })
            })
            .collect::<Result<_, Error>>()?;
        let rows = Self::query(
            &mut tx,
            same(
                "SELECT COUNT(*) FROM (SELECT 1 AS one FROM unmatched_callbacks
                  WHERE matched_at IS NULL LIMIT $1) AS counted",
            ),
            vec![(COUNT_MAX + 1).into()],
        )
        .await?;
        let count = rows.into_iter().next().map_or(Ok(0), |mut row| row.int())?;
        Ok((found, capped(count)))
    }

    async fn reads(&self) -> Result<Vec<Reads>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let rows = Self::query(
            &mut tx,
            same(
                "SELECT provider, level, refilled_at, taken, deferred, last_at, last_answer, last_code
                  FROM provider_reads ORDER BY provider",
            ),
            Vec::new(),
        )
        .await?;
        let now = self.env.clock.now();
        rows.into_iter()
            .map(|mut row| {
                let provider = row.text()?;
                let (level, refilled_at) = (row.int()?, row.stamp()?);
                let allowance = self.env.rules.allowances.get(&provider);
                let level = allowance.map(|per_minute| {
                    let level = refilled(level, now.since(refilled_at), *per_minute);
                    u64::try_from(level / READ).unwrap_or(0)
                });
                Ok(Reads {
                    provider,
                    level,
                    taken: u64::try_from(row.int()?).unwrap_or(0),
                    deferred: u64::try_from(row.int()?).unwrap_or(0),
                    last_at: row.maybe_stamp()?,
                    last_answer: row.maybe_text()?,
                    last_code: row.maybe_text()?,
                })
            })
            .collect()
    }

    async fn keep_trial(&self, trial: &Trial) -> Result<(), Error> {
        let mut tx = self.engine.begin().await?;
        Self::execute(
            &mut tx,
            same(
                "INSERT INTO trials (trial_id, provider, kind, target, verdict, started_at, ended_at)
                  VALUES ($1, $2, $3, $4, $5, $6, $7)",
            ),
            vec![
                (&trial.id).into(),
                (&trial.provider).into(),
                (&trial.kind).into(),
                (&trial.target).into(),
                (&trial.verdict).into(),
                trial.started_at.into(),
                trial.ended_at.into(),
            ],
        )
        .await?;
        for (number, step) in trial.steps.iter().enumerate() {
            let values: Vec<Value> = vec![
                (&trial.id).into(),
                i64::try_from(number + 1).unwrap_or(i64::MAX).into(),
                (&step.scenario).into(),
                (&step.what).into(),
                (&step.attempt_id).into(),
                (&step.message_id).into(),
                (&step.outcome).into(),
                (&step.code).into(),
                step.at.into(),
            ];
            Self::execute(
                &mut tx,
                same(
                    "INSERT INTO trial_steps (trial_id, step, scenario, what, attempt_id, message_id,
                        outcome, code, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                ),
                values,
            )
            .await?;
        }
        E::commit(tx).await
    }

    async fn last_trials(&self) -> Result<Vec<Trial>, Error> {
        let mut tx = self.engine.begin_read().await?;
        let rows = Self::query(
            &mut tx,
            same(
                "SELECT t.trial_id, t.provider, t.kind, t.target, t.verdict, t.started_at, t.ended_at
                  FROM trials t WHERE t.trial_id = (SELECT n.trial_id FROM trials n
                    WHERE n.provider = t.provider ORDER BY n.ended_at DESC, n.trial_id DESC LIMIT 1)
                  ORDER BY t.provider LIMIT $1",
            ),
            vec![i64::try_from(LIST_MAX).unwrap_or(1).into()],
        )
        .await?;
        let mut trials = Vec::with_capacity(rows.len());
        for mut row in rows {
            let mut trial = Trial {
                id: row.text()?,
                provider: row.text()?,
                kind: row.text()?,
                target: row.text()?,
                verdict: row.text()?,
                started_at: row.stamp()?,
                ended_at: row.stamp()?,
                steps: Vec::new(),
            };
            let steps = Self::query(
                &mut tx,
                same(
                    "SELECT scenario, what, attempt_id, message_id, outcome, code, at FROM trial_steps
                      WHERE trial_id = $1 ORDER BY step",
                ),
                vec![(&trial.id).into()],
            )
            .await?;
            for mut step in steps {
                trial.steps.push(TrialStep {
                    scenario: step.text()?,
                    what: step.text()?,
                    attempt_id: step.text()?,
                    message_id: step.maybe_text()?,
                    outcome: step.text()?,
                    code: step.maybe_text()?,
                    at: step.stamp()?,
                });
            }
            trials.push(trial);
        }
        Ok(trials)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_fills_with_time_and_never_overflows() {
        assert_eq!(refilled(0, MINUTE, 6), READ, "ten seconds' worth of 6 a minute is one");
        assert_eq!(refilled(0, 10_000_000, 6), READ);
        assert_eq!(refilled(0, 5_000_000, 6), READ / 2);
        assert_eq!(refilled(0, -5, 6), 0, "a clock that is set back fills nothing");
        assert_eq!(refilled(0, i64::MAX, 600), 100 * READ);
        assert_eq!(refilled(0, i64::MAX, 1), READ, "at least one fits");
        assert_eq!(wait_for(READ, 6), 10_000_001);
        assert_eq!(wait_for(0, 6), 1);
    }

    #[test]
    fn nothing_that_could_be_a_number_is_kept_of_an_unmatched_callback() {
        for id in ["12025550123", "+1-202-555-0123", "1202 555 0123", "m-12025550123"] {
            assert!(is_like_a_number(id), "{id}");
        }
        for id in ["SM0123456789abcdef", "123456", "0190a2b4-7c1d-7e3f-8a5b-6c7d8e9f0a1b"] {
            assert!(!is_like_a_number(id), "{id}");
        }
        assert!(is_own_id("0123456789abcdef0123456789abcdef"));
        assert!(!is_own_id("15550100001"));
    }
}
