//! The stream of hints, the reads that follow them, and the rules for when to stop asking.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use leptos::leptos_dom::helpers::{TimeoutHandle, set_timeout_with_handle};
use leptos::prelude::{document, window};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, spawn_local};
use web_sys::{
    AbortSignal, Document, DomParser, Element, Event, EventSource, Headers, HtmlSelectElement,
    MessageEvent, RequestCache, RequestInit, Response, SupportedType,
};

use super::morph;
use super::pace::{after_failure_ms, after_hint_ms, period_ms};
use super::refresh::Refresh;

/// Where the choice is remembered, for all pages of this browser.
const REMEMBERED: &str = "sendonce-refresh";
/// Tells the server that only the `data-live` regions will be used: it may leave out the rest of the page.
const FRAGMENT_HEADER: (&str, &str) = ("x-sendonce-fragment", "live");
/// A read that takes longer counts as failed.
const READ_MS_MAX: u32 = 10_000;
/// Sent on the document after each exchange, for the script that words times in the person's zone.
const UPDATED: &str = "sendonce:updated";

/// Runs for as long as the page: an island is never taken down.
pub fn run() {
    // There is one on a page; a page without it would not have loaded this.
    let Some(root) = find(".live[data-topic]") else {
        return;
    };
    let (Some(label), Some(picker), Some(status)) =
        (find(".live label"), find(".live select"), find(".live [role=status]"))
    else {
        return;
    };
    let Ok(picker) = picker.dyn_into::<HtmlSelectElement>() else {
        return;
    };

    let refresh =
        storage().and_then(|s| s.get_item(REMEMBERED).ok()?).and_then(|name| Refresh::parse(&name));
    let refresh = refresh.unwrap_or(Refresh::Live);
    picker.set_value(&refresh.name());
    let _ = label.remove_attribute("hidden");

    let feed = Feed::new(root.get_attribute("data-topic").unwrap_or_default(), refresh, status);
    feed.start();

    let on_change = Closure::<dyn FnMut()>::new({
        let picker = picker.clone();
        move || {
            let Some(refresh) = Refresh::parse(&picker.value()) else {
                return;
            };
            if let Some(storage) = storage() {
                // A browser that keeps nothing still follows the choice on this page.
                let _ = storage.set_item(REMEMBERED, &refresh.name());
            }
            feed.follow(refresh);
        }
    });
    let _ = picker.add_event_listener_with_callback("change", on_change.as_ref().unchecked_ref());
    on_change.forget();
}

fn find(selector: &str) -> Option<Element> {
    document().query_selector(selector).ok().flatten()
}

fn storage() -> Option<web_sys::Storage> {
    window().local_storage().ok().flatten()
}

fn now_ms() -> f64 {
    js_sys::Date::now()
}

#[derive(Clone)]
struct Feed(Rc<Inner>);

struct Inner {
    topic: String,
    status: Element,
    state: RefCell<State>,
}

struct State {
    refresh: Refresh,
    source: Option<Stream>,
    /// The one read that is planned.
    timer: Option<TimeoutHandle>,
    /// The one reconnection that is planned.
    reopen: Option<TimeoutHandle>,
    is_reading: bool,
    /// A hint came while a read was running: what it read may be older than the hint.
    is_stale: bool,
    version: Option<f64>,
    last_read_ms: f64,
    read_failures: u32,
    stream_failures: u32,
    /// The session ended: nothing is asked until the person has signed in again.
    is_over: bool,
    /// `hh:mm:ss` UTC of what the page shows.
    shown: String,
}

/// An open stream and the handlers that it calls; dropping it closes it first.
struct Stream {
    source: EventSource,
    _on_open: Closure<dyn FnMut()>,
    _on_hint: Closure<dyn FnMut(MessageEvent)>,
    _on_error: Closure<dyn FnMut()>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.source.set_onopen(None);
        self.source.set_onmessage(None);
        self.source.set_onerror(None);
        self.source.close();
    }
}

impl Feed {
    fn new(topic: String, refresh: Refresh, status: Element) -> Self {
        let state = State {
            refresh,
            source: None,
            timer: None,
            reopen: None,
            is_reading: false,
            is_stale: false,
            version: None,
            last_read_ms: now_ms(),
            read_failures: 0,
            stream_failures: 0,
            is_over: false,
            shown: shown_at(),
        };
        Self(Rc::new(Inner { topic, status, state: RefCell::new(state) }))
    }

    fn start(&self) {
        let feed = self.clone();
        // Covers tab switches, a minimised window, a locked phone, and leaving the page.
        let on_visibility = Closure::<dyn FnMut()>::new(move || {
            if document().hidden() {
                feed.pause();
            } else if feed.0.state.borrow().refresh != Refresh::Off {
                feed.resume();
                feed.read_in(0.0);
            }
        });
        let _ = document().add_event_listener_with_callback(
            "visibilitychange",
            on_visibility.as_ref().unchecked_ref(),
        );
        on_visibility.forget();
        if !document().hidden() {
            self.resume();
        }
    }

    /// The person picked another pace.
    fn follow(&self, refresh: Refresh) {
        self.pause();
        {
            let mut state = self.0.state.borrow_mut();
            state.refresh = refresh;
            state.read_failures = 0;
            state.stream_failures = 0;
        }
        self.say();
        if refresh != Refresh::Off && !document().hidden() {
            self.resume();
            self.read_in(0.0);
        }
    }

    /// Closes the stream and forgets what was planned: a hidden page costs the server nothing.
    fn pause(&self) {
        let mut state = self.0.state.borrow_mut();
        state.source = None;
        for handle in [state.timer.take(), state.reopen.take()].into_iter().flatten() {
            handle.clear();
        }
    }

    fn resume(&self) {
        let refresh = self.0.state.borrow().refresh;
        if refresh == Refresh::Live {
            self.open();
        }
        self.plan();
    }

    fn open(&self) {
        let topic = js_sys::encode_uri_component(&self.0.topic);
        let Ok(source) = EventSource::new(&format!("/live?topic={topic}")) else {
            return;
        };

        let feed = self.clone();
        let on_open = Closure::<dyn FnMut()>::new(move || {
            feed.0.state.borrow_mut().stream_failures = 0;
            feed.say();
            // What happened between the rendering and this moment was said to nobody.
            feed.hint();
        });
        let feed = self.clone();
        let on_hint = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
            if feed.is_news(&event) {
                feed.hint();
            }
        });
        let feed = self.clone();
        let on_error = Closure::<dyn FnMut()>::new(move || feed.stream_failed());

        source.set_onopen(Some(on_open.as_ref().unchecked_ref()));
        source.set_onmessage(Some(on_hint.as_ref().unchecked_ref()));
        source.set_onerror(Some(on_error.as_ref().unchecked_ref()));
        self.0.state.borrow_mut().source =
            Some(Stream { source, _on_open: on_open, _on_hint: on_hint, _on_error: on_error });
    }

    /// Versions are compared for being different, not for being greater: they start again with the server.
    fn is_news(&self, event: &MessageEvent) -> bool {
        let version = event
            .data()
            .as_string()
            .and_then(|text| js_sys::JSON::parse(&text).ok())
            .and_then(|hint| js_sys::Reflect::get(&hint, &"version".into()).ok()?.as_f64());
        let mut state = self.0.state.borrow_mut();
        let is_news = version.is_none() || version != state.version;
        state.version = version;
        is_news
    }

    fn stream_failed(&self) {
        let is_closed = {
            let mut state = self.0.state.borrow_mut();
            state.stream_failures += 1;
            state.source.as_ref().is_some_and(|s| s.source.ready_state() == EventSource::CLOSED)
        };
        self.say();
        // The browser reconnects by itself after a lost connection, but never after an answer that is not a stream.
        if is_closed {
            let feed = self.clone();
            let wait = after_failure_ms(self.0.state.borrow().stream_failures);
            let reopen = timer(wait, move || feed.open());
            let earlier = std::mem::replace(&mut self.0.state.borrow_mut().reopen, reopen);
            if let Some(earlier) = earlier {
                earlier.clear();
            }
            // The answer of a read says why: the session may have ended.
            self.hint();
        }
    }

    fn hint(&self) {
        let last = self.0.state.borrow().last_read_ms;
        self.read_in(after_hint_ms(now_ms(), last));
    }

    /// The next read when nothing asks for one earlier.
    fn plan(&self) {
        let state = self.0.state.borrow();
        let wait = if state.read_failures > 0 && state.refresh != Refresh::Off {
            Some(after_failure_ms(state.read_failures))
        } else {
            period_ms(state.refresh)
        };
        drop(state);
        if let Some(wait) = wait {
            self.read_in(wait);
        }
    }

    /// Replaces what was planned, so there is never more than one read to come.
    fn read_in(&self, wait_ms: f64) {
        if self.0.state.borrow().is_over {
            return;
        }
        let feed = self.clone();
        let planned = timer(wait_ms, move || feed.read());
        let earlier = std::mem::replace(&mut self.0.state.borrow_mut().timer, planned);
        if let Some(earlier) = earlier {
            earlier.clear();
        }
    }

    fn read(&self) {
        {
            let mut state = self.0.state.borrow_mut();
            state.timer = None;
            if state.is_reading {
                state.is_stale = true;
                return;
            }
            state.is_reading = true;
            state.last_read_ms = now_ms();
        }
        let feed = self.clone();
        spawn_local(async move {
            let outcome = fetch_page().await;
            feed.finish(outcome);
        });
    }

    fn finish(&self, outcome: Result<Page, JsValue>) {
        let is_stale = {
            let mut state = self.0.state.borrow_mut();
            state.is_reading = false;
            std::mem::take(&mut state.is_stale)
        };
        // Turned off, or hidden, while the answer was on its way: off means that nothing moves any more.
        let is_wanted = self.0.state.borrow().refresh != Refresh::Off && !document().hidden();
        if !is_wanted {
            return;
        }
        match outcome {
            Ok(Page::Fresh(fresh)) => {
                morph::follow(&document(), &fresh);
                if let Ok(event) = Event::new(UPDATED) {
                    let _ = document().dispatch_event(&event);
                }
                let mut state = self.0.state.borrow_mut();
                state.read_failures = 0;
                state.shown = shown_at();
            }
            Ok(Page::Elsewhere) => {
                self.pause();
                self.0.state.borrow_mut().is_over = true;
            }
            Err(_) => self.0.state.borrow_mut().read_failures += 1,
        }
        self.say();
        if is_stale { self.hint() } else { self.plan() }
    }

    fn say(&self) {
        let state = self.0.state.borrow();
        let is_lost = state.read_failures > 0
            || (state.refresh == Refresh::Live && state.stream_failures > 0);
        mark_stale(state.is_over || (is_lost && state.refresh != Refresh::Off));
        let sentence = if state.refresh == Refresh::Off {
            String::new()
        } else if state.is_over {
            format!(
                "signed out, showing data from {} UTC; load the page again to sign in",
                state.shown
            )
        } else if is_lost {
            format!("connection lost, showing data from {} UTC", state.shown)
        } else {
            String::new()
        };
        drop(state);
        // Written only when it differs: a status that is written again is read out again.
        if self.0.status.text_content().as_deref() != Some(&sentence) {
            self.0.status.set_text_content(Some(&sentence));
        }
    }
}

fn timer(wait_ms: f64, f: impl FnOnce() + 'static) -> Option<TimeoutHandle> {
    set_timeout_with_handle(f, Duration::from_millis(wait_ms.max(0.0) as u64)).ok()
}

/// On the "as of" stamp, for its colour. The next exchange takes it off by itself.
fn mark_stale(is_stale: bool) {
    if let Some(stamp) = find(".asof") {
        let _ = stamp.toggle_attribute_with_force("data-stale", is_stale);
    }
}

/// `hh:mm:ss` of the page's own "as of" stamp, which is the server's clock; where it has none, the browser's.
fn shown_at() -> String {
    let stamp = find("time[data-asof]").and_then(|time| time.get_attribute("datetime"));
    let stamp = stamp.unwrap_or_else(|| js_sys::Date::new_0().to_iso_string().into());
    stamp.get(11..19).unwrap_or_default().to_owned()
}

enum Page {
    Fresh(Document),
    /// The address now answers with another page: the session ended, or the record is gone from here.
    Elsewhere,
}

async fn fetch_page() -> Result<Page, JsValue> {
    let headers = Headers::new()?;
    headers.set(FRAGMENT_HEADER.0, FRAGMENT_HEADER.1)?;
    let init = RequestInit::new();
    init.set_headers(&headers);
    init.set_cache(RequestCache::NoStore);
    init.set_signal(Some(&AbortSignal::timeout_with_u32(READ_MS_MAX)));

    let location = window().location();
    let address = format!("{}{}", location.pathname()?, location.search()?);
    let response: Response =
        JsFuture::from(window().fetch_with_str_and_init(&address, &init)).await?.dyn_into()?;
    if response.redirected() {
        return Ok(Page::Elsewhere);
    }
    if !response.ok() {
        return Err(response.status().into());
    }
    let html = JsFuture::from(response.text()?).await?.as_string().unwrap_or_default();
    Ok(Page::Fresh(DomParser::new()?.parse_from_string(&html, SupportedType::TextHtml)?))
}
