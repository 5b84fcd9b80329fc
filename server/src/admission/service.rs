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
    "rate_limited",
    "earlier_unresolved",
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
    /// 429 with this code: it is not admitted, and binds no key.
    Limited { code: &'static str, retry_after_s: u32 },
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
            Self::Conflict(code) | Self::Limited { code, .. } => code,
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
        f.debug_struct("AdmissionService")
            .field("providers", &self.providers)
            .finish_non_exhaustive()
    }
}

impl AdmissionService {
    /// Opens the door. Must run inside a tokio runtime: the group-commit tasks start here, and end when
    /// the service is dropped and its queue is empty.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, env: &Env, config: &Config, wakeups: Wakeups) -> Self {
        Self::with(Arc::new(store), env, config, wakeups)
    }

    fn with(book: Arc<dyn Book>, env: &Env, config: &Config, wakeups: Wakeups) -> Self {
        let (queue_max, batch_max) = (config.admission.queue_max, config.admission.batch_max);
        let writers = config.admission_writers();
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
            batcher: Batcher::start_many(queue_max, batch_max, writers, Arc::new(run)),
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
    #[tracing::instrument(name = "admission.admit", level = "debug", skip_all)]
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
        let provider = self.providers.get(&event.channel);
        let now = self.clock.now();
        let lifetime = event.expires_at.since(now);
        // Judged here and answered only if the event is new: what was admitted once is a replay for ever.
        let fault = if provider.is_none() {
            Some(("channel", "no_route"))
        } else if lifetime <= 0 {
            Some(("expires_at", "past"))
        } else if lifetime < self.lifetime_min {
            Some(("expires_at", "too_soon"))
        } else if lifetime > self.lifetime_max {
            Some(("expires_at", "too_far"))
        } else {
            None
        };
        let token_id = event.token_hash.as_ref().map(|hash| self.keys.token_id(hash.expose()));
        Ok(Admission {
            id: self.entropy.uuid(now),
            content_hash: content_hash(
                &self.keys,
                &event,
                token_id.as_deref(),
                event.is_channel_given.then_some(event.channel),
            ),
            spelled_hash: Some(content_hash(
                &self.keys,
                &event,
                token_id.as_deref(),
                (!event.is_channel_given).then_some(event.channel),
            )),
            destination_hash: self
                .keys
                .content_hash(&[b"destination_ref", event.destination_ref.as_bytes()]),
            reset_hash: self.keys.content_hash(&[b"reset_ref", event.reset_ref.as_bytes()]),
            event_id: event.event_id,
            idempotency_key: event.idempotency_key,
            channel: event.channel,
            provider: provider.cloned().unwrap_or_default(),
            purpose: event.purpose,
            seller_id: event.seller_id,
            request_window: event.request_window,
            token_id,
            destination_ref: event.destination_ref,
            reset_ref: event.reset_ref,
            expires_at: event.expires_at,
            client_id: client_id.to_owned(),
            fault,
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
            Admitted::Limited { code, retry_after_s } => {
                AdmissionAnswer::Limited { code, retry_after_s }
            }
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
///
/// `channel`: none where the event leaves it to the configuration, whose default may change between an event
/// and its repetition.
fn content_hash(
    keys: &Keys,
    event: &ParsedEvent,
    token_id: Option<&str>,
    channel: Option<Channel>,
) -> String {
    let expires_at = event.expires_at.micros().to_be_bytes();
    // A field that is left out differs from every text that it could hold.
    let given =
        |field: Option<&str>| -> &'static [u8] { if field.is_some() { b"+" } else { b"-" } };
    let (seller, window, token) =
        (event.seller_id.as_deref(), event.request_window.as_deref(), token_id);
    keys.content_hash(&[
        b"event",
        event.destination_ref.as_bytes(),
        event.reset_ref.as_bytes(),
        &expires_at,
        channel.map_or("", Channel::as_str).as_bytes(),
        event.purpose.as_bytes(),
        given(seller),
        seller.unwrap_or_default().as_bytes(),
        given(window),
        window.unwrap_or_default().as_bytes(),
        given(token),
        token.unwrap_or_default().as_bytes(),
    ])
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};
    use std::sync::Mutex;

    use app::model::{Next, Reason, Stamp, State};

    use super::*;
    use crate::clock::ManualClock;
    use crate::entropy::SeededEntropy;

    /// What the next call does.
    enum Step {
        /// Commits, and says so or not.
        Commit {
            is_acknowledged: bool,
        },
        /// Does not commit.
        Fail(Error),
        Panic,
        Never,
    }

    #[derive(Default)]
    struct FakeBook {
        steps: Mutex<VecDeque<Step>>,
        kept: Mutex<HashMap<String, Record>>,
        is_read_lost: bool,
    }

    fn lost() -> Error {
        Error::CommitUnknown { source: "connection lost".into() }
    }

    fn view(request: &Admission) -> Record {
        Record {
            id: request.id.clone(),
            event_id: request.event_id.clone(),
            state: State::Accepted,
            expires_at: request.expires_at,
            updated_at: Stamp::from_micros(0),
            created_at: Stamp::from_micros(0),
            channel: request.channel,
            seller_id: None,
            purpose: request.purpose.clone(),
            attempts: 0,
            calls: 0,
            reason: Reason::Admitted,
            settled: false,
            frozen: false,
            next: Next::Wait,
            retry_at: None,
        }
    }

    #[async_trait]
    impl Book for FakeBook {
        async fn admit(&self, requests: &[Admission]) -> Result<Vec<Admitted>, Error> {
            let step = self.steps.lock().unwrap().pop_front();
            let is_acknowledged = match step {
                None => true,
                Some(Step::Commit { is_acknowledged }) => is_acknowledged,
                Some(Step::Fail(error)) => return Err(error),
                Some(Step::Panic) => panic!("a fault"),
                Some(Step::Never) => return std::future::pending().await,
            };
            let mut kept = self.kept.lock().unwrap();
            let answers = requests
                .iter()
                .map(|request| match kept.get(&request.idempotency_key) {
                    Some(record) => Admitted::Replay(record.clone()),
                    None => {
                        kept.insert(request.idempotency_key.clone(), view(request));
                        Admitted::New(view(request))
                    }
                })
                .collect();
            if is_acknowledged { Ok(answers) } else { Err(lost()) }
        }

        async fn record(&self, id: &str) -> Result<Option<Record>, Error> {
            if self.is_read_lost {
                return Err(Error::Busy);
            }
            Ok(self.kept.lock().unwrap().values().find(|record| record.id == id).cloned())
        }
    }

    const EVENT: &[u8] =
        br#"{"event_id":"ev-1","idempotency_key":"key-1","destination_ref":"dest-1",
        "reset_ref":"rst-1","expires_at":"2026-09-21T14:30:00Z"}"#;

    struct Door {
        service: AdmissionService,
        book: Arc<FakeBook>,
        clock: ManualClock,
        wakeups: Wakeups,
    }

    fn door(book: FakeBook) -> Door {
        let clock = ManualClock::new(Stamp::parse("2026-09-21T14:13:20Z").unwrap());
        let entropy = Arc::new(SeededEntropy::new(7));
        let config = Config::parse("test", "", std::iter::empty()).unwrap();
        let env = Env {
            clock: Arc::new(clock.clone()),
            keys: Arc::new(Keys::generate(&*entropy)),
            entropy,
            rules: Arc::new(crate::node::rules(&config, None)),
        };
        let (book, wakeups) = (Arc::new(book), Wakeups::default());
        let service = AdmissionService::with(
            Arc::clone(&book) as Arc<dyn Book>,
            &env,
            &config,
            wakeups.clone(),
        );
        Door { service, book, clock, wakeups }
    }

    impl Door {
        /// Admits while time goes on.
        async fn admit(&self) -> AdmissionAnswer {
            let answer = self.service.admit(EVENT, "c");
            tokio::pin!(answer);
            loop {
                tokio::select! {
                    biased;
                    answer = &mut answer => return answer,
                    () = tokio::task::yield_now() => self.clock.advance(Duration::from_millis(1)),
                }
            }
        }
    }

    fn with(steps: impl IntoIterator<Item = Step>) -> FakeBook {
        FakeBook { steps: Mutex::new(steps.into_iter().collect()), ..FakeBook::default() }
    }

    fn is_new(answer: &AdmissionAnswer) -> bool {
        matches!(answer, AdmissionAnswer::Admitted { replayed: false, .. })
    }

    #[tokio::test]
    async fn a_lost_commit_that_happened_is_read_back() {
        let door = door(with([Step::Commit { is_acknowledged: false }]));
        assert!(is_new(&door.admit().await));
        // And the next one is the replay.
        assert!(matches!(door.admit().await, AdmissionAnswer::Admitted { replayed: true, .. }));
        assert_eq!(door.book.kept.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_lost_commit_that_did_not_happen_is_repeated() {
        let door = door(with([Step::Fail(lost()), Step::Fail(Error::Busy), Step::Fail(lost())]));
        assert!(is_new(&door.admit().await));
        assert_eq!(door.book.kept.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_lost_commit_that_cannot_be_read_is_found_by_its_own_id() {
        let mut book = with([Step::Commit { is_acknowledged: false }]);
        book.is_read_lost = true;
        // Met as a replay, but of ourselves.
        assert!(is_new(&door(book).admit().await));
    }

    #[tokio::test]
    async fn what_stays_unknown_is_said_to_be_unknown() {
        for steps in [
            (0..20).map(|_| Step::Fail(lost())).collect::<Vec<_>>(),
            vec![Step::Fail(Error::Unavailable { source: "down".into() })],
            (0..20).map(|_| Step::Fail(Error::Busy)).collect(),
            vec![Step::Panic],
            vec![Step::Never],
        ] {
            let answer = door(with(steps)).admit().await;
            assert_eq!(answer, AdmissionAnswer::Unavailable { retry_after_s: 1 });
        }
    }

    #[tokio::test]
    async fn the_door_stays_open_after_a_panic() {
        let door = door(with([Step::Panic]));
        door.admit().await;
        assert!(is_new(&door.admit().await));
    }

    #[tokio::test]
    async fn workers_are_woken_also_when_the_caller_went_away() {
        let door = door(FakeBook::default());
        let changes = door.wakeups.watch();
        let before = *changes.borrow();
        {
            let answer = door.service.admit(EVENT, "c");
            tokio::pin!(answer);
            // Handed in, and dropped before its commit.
            assert!(futures::poll!(&mut answer).is_pending());
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(door.book.kept.lock().unwrap().len(), 1);
        assert!(*changes.borrow() > before);
        // A replay is no work.
        let before = *changes.borrow();
        door.admit().await;
        assert_eq!(*changes.borrow(), before);
    }

    #[test]
    fn each_answer_has_an_outcome_that_is_counted() {
        for code in crate::http::problem::CONFLICTS {
            assert!(OUTCOMES.contains(code));
        }
        for answer in [
            AdmissionAnswer::Invalid(Vec::new()),
            AdmissionAnswer::Purged,
            AdmissionAnswer::Unavailable { retry_after_s: 1 },
        ] {
            assert!(OUTCOMES.contains(&answer.outcome()));
        }
    }

    #[test]
    fn the_content_is_what_is_said_and_not_how() {
        let keys = Keys::generate(&SeededEntropy::new(1));
        let hash = |text: &str| {
            let event = parse_event(text.as_bytes(), &Defaults { channel: Channel::Sms }).unwrap();
            let token_id = event.token_hash.as_ref().map(|hash| keys.token_id(hash.expose()));
            let given = event.is_channel_given.then_some(event.channel);
            content_hash(&keys, &event, token_id.as_deref(), given)
        };
        let base = r#""destination_ref":"d","reset_ref":"r","expires_at":"2026-09-21T14:30:00Z""#;
        let event =
            |more: &str| format!(r#"{{"event_id":"e","idempotency_key":"k",{base}{more}}}"#);
        let first = hash(&event(""));
        assert_eq!(hash(&event(r#","purpose":"password_reset""#)), first);
        // Fields that change places are another content.
        let seller = hash(&event(r#","seller_id":"x""#));
        let window = hash(&event(r#","seller_id":"s","request_window":"x""#));
        let other = hash(&event(r#","seller_id":"x","request_window":"s""#));
        let mut all = vec![first, seller, window, other, hash(&event(r#","channel":"email""#))];
        all.push(hash(&event(&format!(r#","token_hash":"{}""#, "ab".repeat(32)))));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 6);
    }
}
