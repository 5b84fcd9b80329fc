//! `/live`: tells open pages that something changed. What changed they then read from their own address.
//!
//! A hint carries a topic and a number, nothing of a record. Streams are bounded, end at shutdown, and end
//! when the session or the permission that they were opened with is gone.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use app::model::Permission;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::sse::Event;
use axum::response::{IntoResponse as _, Response, Sse};
use futures::stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::render;
use super::session::{Visitor, still_holds};
use crate::clock::{Clock, duration, micros};
use crate::outbox::Wakeups;
use crate::store::Store;

/// Open streams of one process. Each costs a connection and a few hundred bytes; a browser opens one a tab.
pub const STREAMS_MAX: usize = 256;

/// Between two hints of one stream: at most two a second, however busy the ledger is.
const HINT_SPACING: Duration = Duration::from_millis(500);

/// Shorter than the idle timeout of common proxies. Also how soon a stream ends whose session has.
const BEAT: Duration = Duration::from_secs(15);

/// How often the database is asked for what another process wrote, while anybody watches.
const POLL: Duration = Duration::from_secs(2);

/// How long a browser waits before it connects again.
const RECONNECT: Duration = Duration::from_secs(2);

/// What `/live` can be asked about, and what one must be allowed to see for it.
#[must_use]
pub fn permission_of(topic: &str) -> Option<Permission> {
    let is_id = |id: &str| {
        (1..=128).contains(&id.len())
            && id
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-'))
    };
    match topic {
        "overview" | "events" | "unknown" | "freeze" => Some(Permission::SeeEvents),
        "slo" | "alerts" | "providers" | "workers" => Some(Permission::SeeHealth),
        _ => match topic.split_once(':') {
            Some(("event" | "seller", id)) if is_id(id) => Some(Permission::SeeEvents),
            _ => None,
        },
    }
}

/// The open streams of one process.
#[derive(Debug)]
pub struct Streams {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    wakeups: Wakeups,
    shutdown: CancellationToken,
    places: Arc<Semaphore>,
    // Held by the open streams alone: with the last one the poll ends.
    poll: Mutex<Weak<Poll>>,
}

#[derive(Debug)]
struct Poll(#[expect(dead_code, reason = "its drop ends the task")] AbortOnDropHandle<()>);

impl Streams {
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        wakeups: Wakeups,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            store,
            clock,
            wakeups,
            shutdown,
            places: Arc::new(Semaphore::new(STREAMS_MAX)),
            poll: Mutex::default(),
        }
    }

    /// Opens a stream for somebody who was found to have `may`; 503 when there are too many already.
    pub fn open(&self, visitor: Visitor, topic: &str, may: Permission) -> Response {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let mut full =
                render::plain(StatusCode::SERVICE_UNAVAILABLE, "Too many pages follow live.\n");
            full.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("30"));
            return full;
        };
        let boot = self.clock.boot();
        let stream = Stream {
            topic: topic.to_owned(),
            visitor,
            may,
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            changes: self.wakeups.watch(),
            shutdown: self.shutdown.clone(),
            is_new: true,
            is_pending: false,
            hint_from: boot,
            beat_at: boot + micros(BEAT),
            _place: place,
            _poll: self.poll(),
        };
        let mut response = Sse::new(stream::unfold(stream, Stream::next)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        // Some proxies collect an answer before they pass it on unless told otherwise.
        headers
            .insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
        response
    }

    /// The one poll for what other processes commit, started with the first stream.
    fn poll(&self) -> Arc<Poll> {
        let mut poll = self.poll.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = poll.upgrade() {
            return running;
        }
        let (store, clock, wakeups) =
            (Arc::clone(&self.store), Arc::clone(&self.clock), self.wakeups.clone());
        let task = tokio::spawn(async move {
            let mut before = store.fact_count().await.ok();
            loop {
                clock.sleep(POLL).await;
                // A database that does not answer is reported by those who need it.
                let Ok(now) = store.fact_count().await else { continue };
                if before.replace(now) != Some(now) {
                    wakeups.changed();
                }
            }
        });
        let running = Arc::new(Poll(AbortOnDropHandle::new(task)));
        *poll = Arc::downgrade(&running);
        running
    }
}

struct Stream {
    topic: String,
    visitor: Visitor,
    may: Permission,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    changes: watch::Receiver<u64>,
    shutdown: CancellationToken,
    is_new: bool,
    is_pending: bool,
    /// On [`Clock::boot`]: no hint before this.
    hint_from: i64,
    /// On [`Clock::boot`].
    beat_at: i64,
    _place: OwnedSemaphorePermit,
    _poll: Arc<Poll>,
}

impl Stream {
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        if std::mem::take(&mut self.is_new) {
            // Something at once, so that every proxy passes the head on.
            return Some((Ok(Event::default().comment("open").retry(RECONNECT)), self));
        }
        loop {
            let boot = self.clock.boot();
            tokio::select! {
                () = self.shutdown.cancelled() => return None,
                changed = self.changes.changed(), if !self.is_pending => {
                    changed.ok()?;
                    self.is_pending = true;
                }
                () = self.clock.sleep(duration(self.hint_from - boot)), if self.is_pending => {
                    self.is_pending = false;
                    self.hint_from = self.clock.boot() + micros(HINT_SPACING);
                    // Marks as seen what came meanwhile: it is in this hint too.
                    let version = *self.changes.borrow_and_update();
                    let hint = serde_json::json!({ "topic": self.topic, "version": version });
                    return Some((Ok(Event::default().data(hint.to_string())), self));
                }
                () = self.clock.sleep(duration(self.beat_at - boot)) => {
                    self.beat_at = self.clock.boot() + micros(BEAT);
                    // While the database does not answer nobody is thrown out: the stream shows nothing anyway.
                    if let Ok(false) = still_holds(&self.visitor, self.store.as_ref(), self.may).await {
                        return None;
                    }
                    return Some((Ok(Event::default().comment("beat")), self));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use app::model::Permission;

    use super::permission_of;

    #[test]
    fn a_topic_is_one_of_ours() {
        assert_eq!(permission_of("overview"), Some(Permission::SeeEvents));
        assert_eq!(permission_of("workers"), Some(Permission::SeeHealth));
        assert_eq!(permission_of("event:0193a5b0-7c1e"), Some(Permission::SeeEvents));
        assert_eq!(permission_of("seller:a:b"), Some(Permission::SeeEvents));
        for topic in
            ["", "events:", "event:", "seller:", "event:a b", "users", "event:\n", "seller:<x>"]
        {
            assert_eq!(permission_of(topic), None, "{topic}");
        }
        assert_eq!(permission_of(&format!("event:{}", "x".repeat(129))), None);
    }
}
