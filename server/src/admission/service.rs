//! From a parsed event to its durable answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use app::model::{Channel, Record};
use async_trait::async_trait;

use super::validate::{Defaults, FieldError, ParsedEvent, parse_event};
use crate::batch::{BatchError, Batcher};
use crate::clock::Clock;
use crate::config::Config;
use crate::entropy::Entropy;
use crate::keys::Keys;
use crate::outbox::Wakeups;
use crate::store::{Admission, Admitted, Env, Error, Store};

/// How long a caller waits for its commit; then whether it was admitted is not known. Longer than the
/// 5 s for which one group may wait for the database.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Waits before a commit whose result is unknown is read and repeated.
const RESOLVE_WAITS: &[Duration] = &[
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1_000),
];

/// When a caller that could not be answered should ask again.
const RETRY_AFTER_S: u32 = 1;

/// Counts answers by outcome.
pub const COUNTER: &str = "sendonce_admissions_total";

/// Every outcome that [`COUNTER`] knows.
pub const OUTCOMES: &[&str] = &[
    "admitted",
    "replayed",
    "invalid",
    "idempotency_conflict",
    "event_conflict",
    "payload_mismatch",
    "token_conflict",
    "request_window_conflict",
    "event_purged",
    "unavailable",
];

/// The answer to one admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmissionAnswer {
    /// 202. `replayed`: it, or the first of its window, had been admitted before.
    Admitted { record: Record, replayed: bool },
    /// 400, never empty.
    Invalid(Vec<FieldError>),
    /// 409 with this code.
    Conflict(&'static str),
    /// 410: admitted once, and purged since.
    Purged,
    /// 503: whether it was admitted is not known. The same again, with the same key and body.
    Unavailable { retry_after_s: u32 },
}

impl AdmissionAnswer {
    /// The word of [`OUTCOMES`].
    #[must_use]
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::Admitted { replayed: false, .. } => "admitted",
            Self::Admitted { replayed: true, .. } => "replayed",
            Self::Invalid(_) => "invalid",
            Self::Conflict(code) => code,
            Self::Purged => "event_purged",
            Self::Unavailable { .. } => "unavailable",
        }
    }
}

/// What admission needs of the store.
#[async_trait]
trait Book: Send + Sync + 'static {
    async fn admit(&self, requests: &[Admission]) -> Result<Vec<Admitted>, Error>;
    async fn record(&self, id: &str) -> Result<Option<Record>, Error>;
}

#[async_trait]
impl Book for Arc<dyn Store> {
    async fn admit(&self, requests: &[Admission]) -> Result<Vec<Admitted>, Error> {
        self.as_ref().admit(requests).await
    }

    async fn record(&self, id: &str) -> Result<Option<Record>, Error> {
        self.as_ref().record(id).await
    }
}

/// The one door for events.
pub struct AdmissionService {
    book: Arc<dyn Book>,
    batcher: Batcher<Admission, Admitted>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    keys: Arc<Keys>,
    defaults: Defaults,
    // The first provider of each channel's route; a closed channel has none.
    providers: BTreeMap<Channel, String>,
    lifetime_min: i64,
    lifetime_max: i64,
}

impl std::fmt::Debug for AdmissionService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdmissionService").field("providers", &self.providers).finish_non_exhaustive()
    }
}

impl AdmissionService {
    /// Opens the door. Must run inside a tokio runtime: the group-commit task starts here, and ends when
    /// the service is dropped and its queue is empty.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, env: &Env, config: &Config, wakeups: Wakeups) -> Self {
        Self::with(Arc::new(store), env, config, wakeups)
    }

    fn with(book: Arc<dyn Book>, env: &Env, config: &Config, wakeups: Wakeups) -> Self {
        let (queue_max, batch_max) = (config.admission.queue_max, config.admission.batch_max);
        let ledger = Arc::clone(&book);
        let run = move |group: Vec<Admission>| {
            let (ledger, wakeups) = (Arc::clone(&ledger), wakeups.clone());
            let admitted = async move {
                let answers = ledger.admit(&group).await?;
                // Here and not where the answer is awaited: a caller that went away has its event too.
                for answer in &answers {
                    if let Admitted::New(record) = answer {
                        wakeups.dispatch(record.channel);
                    }
                }
                Ok(answers)
            };
            Box::pin(admitted) as std::pin::Pin<Box<dyn Future<Output = _> + Send>>
        };
        Self {
            book,
            batcher: Batcher::start(queue_max, batch_max, Arc::new(run)),
            clock: Arc::clone(&env.clock),
            entropy: Arc::clone(&env.entropy),
            keys: Arc::clone(&env.keys),
            defaults: Defaults { channel: config.admission.default_channel },
            providers: config
                .routes
                .iter()
                .filter_map(|(channel, names)| Some((*channel, names.first()?.clone())))
                .collect(),
            lifetime_min: config.admission.min_lifetime,
            lifetime_max: config.admission.max_lifetime,
        }
    }

    /// Admits one event as it came in. When this answers [`AdmissionAnswer::Admitted`], it is durable.
    pub async fn admit(&self, bytes: &[u8], client_id: &str) -> AdmissionAnswer {
        let answer = match self.judge(bytes, client_id) {
            Ok(admission) => self.commit(admission).await,
            Err(errors) => AdmissionAnswer::Invalid(errors),
        };
        metrics::counter!(COUNTER, "outcome" => answer.outcome()).increment(1);
        answer
    }

    fn judge(&self, bytes: &[u8], client_id: &str) -> Result<Admission, Vec<FieldError>> {
        let event = parse_event(bytes, &self.defaults)?;
        let Some(provider) = self.providers.get(&event.channel) else {
            return Err(vec![FieldError::new("channel", "no_route")]);
        };
        let now = self.clock.now();
        let lifetime = event.expires_at.since(now);
        let fault = if lifetime <= 0 {
            Some("past")
        } else if lifetime < self.lifetime_min {
            Some("too_soon")
        } else if lifetime > self.lifetime_max {
            Some("too_far")
        } else {
            None
        };
        let token_id = event.token_hash.as_ref().map(|hash| self.keys.token_id(hash.expose()));
        Ok(Admission {
            id: self.entropy.uuid(now),
            content_hash: content_hash(&self.keys, &event, token_id.as_deref()),
            destination_hash: self.keys.content_hash(&[b"destination_ref", event.destination_ref.as_bytes()]),
            reset_hash: self.keys.content_hash(&[b"reset_ref", event.reset_ref.as_bytes()]),
            event_id: event.event_id,
            idempotency_key: event.idempotency_key,
            channel: event.channel,
            provider: provider.clone(),
            purpose: event.purpose,
            seller_id: event.seller_id,
            request_window: event.request_window,
            token_id,
            destination_ref: event.destination_ref,
            reset_ref: event.reset_ref,
            expires_at: event.expires_at,
            client_id: client_id.to_owned(),
            fault: fault.map(|code| ("expires_at", code)),
        })
    }

    async fn commit(&self, admission: Admission) -> AdmissionAnswer {
        // An admission is cancelled by nothing once it is in the queue; only its caller stops waiting.
        tokio::select! {
            answer = self.answer(admission) => answer,
            () = self.clock.sleep(WAIT_MAX) => {
                tracing::warn!(wait_s = WAIT_MAX.as_secs(), "an admission waited too long for its commit");
                unavailable()
            }
        }
    }

    async fn answer(&self, admission: Admission) -> AdmissionAnswer {
        match self.batcher.submit(admission.clone()).await {
            Ok(admitted) => self.say(admitted, &admission),
            Err(BatchError::Store(error)) if matches!(*error, Error::CommitUnknown { .. }) => {
                tracing::warn!(%error, "an admission's commit is unknown; reading it back");
                self.resolve(admission).await
            }
            Err(error) => refused(&error),
        }
    }

    /// After a commit whose result is unknown: our own id tells whether it happened; where it does not
    /// stand there, the same admission again is safe, as it is folded by its key.
    async fn resolve(&self, admission: Admission) -> AdmissionAnswer {
        for wait in RESOLVE_WAITS {
            self.clock.sleep(*wait).await;
            if let Ok(Some(record)) = self.book.record(&admission.id).await {
                return AdmissionAnswer::Admitted { record, replayed: false };
            }
            match self.batcher.submit(admission.clone()).await {
                Ok(admitted) => return self.say(admitted, &admission),
                Err(BatchError::Store(error)) if error.is_transient() => {}
                Err(error) => return refused(&error),
            }
        }
        tracing::error!("an admission's commit stays unknown; its caller is told to repeat it");
        unavailable()
    }

    fn say(&self, admitted: Admitted, admission: &Admission) -> AdmissionAnswer {
        match admitted {
            Admitted::New(record) => AdmissionAnswer::Admitted { record, replayed: false },
            // Our own id: the first try had been committed after all.
            Admitted::Replay(record) => {
                let replayed = record.id != admission.id;
                AdmissionAnswer::Admitted { record, replayed }
            }
            Admitted::Conflict(code) => AdmissionAnswer::Conflict(code),
            Admitted::Invalid(field, code) => {
                AdmissionAnswer::Invalid(vec![FieldError::new(field, code)])
            }
            Admitted::Purged => AdmissionAnswer::Purged,
        }
    }
}

fn refused(error: &BatchError) -> AdmissionAnswer {
    match error {
        BatchError::Full => tracing::warn!("the admission queue is full"),
        BatchError::Closed => tracing::warn!("an admission met a closed queue"),
        BatchError::Store(error) if error.is_transient() => {
            tracing::warn!(error = %chain(error.as_ref()), "an admission could not be committed");
        }
        BatchError::Store(error) => {
            tracing::error!(error = %chain(error.as_ref()), "an admission was refused by the store");
        }
    }
    unavailable()
}

const fn unavailable() -> AdmissionAnswer {
    AdmissionAnswer::Unavailable { retry_after_s: RETRY_AFTER_S }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// Keyed hash of what the event says, after defaults and without its spelling: neither the order of the
/// names nor white space nor the offset of an instant counts, nor whether a default was spelled out. Key
/// and event are not part of it: it is compared only between admissions that agree in both.
fn content_hash(keys: &Keys, event: &ParsedEvent, token_id: Option<&str>) -> String {
    let expires_at = event.expires_at.micros().to_be_bytes();
    // A field that is left out differs from every text that it could hold.
    let given = |field: Option<&str>| -> &'static [u8] {
        if field.is_some() { b"+" } else { b"-" }
    };
    let (seller, window, token) =
        (event.seller_id.as_deref(), event.request_window.as_deref(), token_id);
    keys.content_hash(&[
        b"event",
        event.destination_ref.as_bytes(),
        event.reset_ref.as_bytes(),
        &expires_at,
        event.channel.as_str().as_bytes(),
        event.purpose.as_bytes(),
        given(seller),
        seller.unwrap_or_default().as_bytes(),
        given(window),
        window.unwrap_or_default().as_bytes(),
        given(token),
        token.unwrap_or_default().as_bytes(),
    ])
}
