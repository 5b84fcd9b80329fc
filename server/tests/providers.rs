//! The adapters, the transport and the simulator over real sockets.

#[path = "providers/mail.rs"]
mod mail;
#[path = "providers/moto.rs"]
mod moto;
#[path = "providers/openapi.rs"]
mod openapi;
#[path = "providers/smtp.rs"]
mod smtp;
#[path = "providers/vendors.rs"]
mod vendors;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use app::model::{Channel, Seen, Stamp};
use async_trait::async_trait;
use base64::Engine as _;
use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use server::clock::{Clock, ManualClock, SystemClock, micros};
use server::config::Config;
use server::domain::{Doubt, Lookup, Verdict};
use server::entropy::{SeededEntropy, SystemEntropy};
use server::keys;
use server::providers::http::HttpProvider;
use server::providers::net::HttpTransport;
use server::providers::resolver::{self, Resolution, ResolveRequest, Resolver};
use server::providers::transport::{ANSWER_BYTES_MAX, Failure, Kind, Phase, Transport};
use server::providers::{
    BuildError, CallbackError, CallbackRequest, Deadline, Message, Provider, Query, Reading,
    Registry, Secret, build, kinds, signature,
};
use server::simulator::{self, CallbackTarget, Incoming, KEPT_MAX, Known, Settings, Simulator};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};

const SECOND: i64 = 1_000_000;

// ---------------------------------------------------------------------------------------------------
// A server of bare sockets, which counts what it sees.

#[derive(Clone)]
enum Act {
    Answer(Vec<u8>),
    Close,
    Reset,
    Hang,
}

/// Handles one connection after the other: reads one request, then acts.
struct Bare {
    address: SocketAddr,
    /// What each connection sent, in order.
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Bare {
    async fn start(act: Act) -> Self {
        Self::start_with(act, None).await
    }

    async fn start_with(act: Act, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&seen);
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let mut request = Vec::new();
                match &tls {
                    None => handle(stream, &act, &mut request).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            let mut stream = Box::pin(stream);
                            read_request(&mut stream, &mut request).await;
                            if let Act::Answer(bytes) = &act {
                                let _ = stream.write_all(bytes).await;
                                let _ = stream.shutdown().await;
                            }
                        }
                    }
                }
                all.lock().unwrap().push(request);
            }
        });
        Self { address, seen }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until every connection made so far is over, then gives what they sent.
    async fn requests(&self) -> Vec<Vec<u8>> {
        let mark = TcpStream::connect(self.address).await.unwrap();
        let before = self.seen.lock().unwrap().len();
        drop(mark);
        eventually(|| (self.seen.lock().unwrap().len() > before).then_some(())).await;
        // The mark is the last one of those that are queued.
        settle().await;
        self.seen.lock().unwrap().iter().filter(|bytes| !bytes.is_empty()).cloned().collect()
    }
}

async fn handle(mut stream: TcpStream, act: &Act, request: &mut Vec<u8>) {
    read_request(&mut stream, request).await;
    match act {
        Act::Answer(bytes) => {
            let _ = stream.write_all(bytes).await;
        }
        Act::Close => {}
        Act::Reset => {
            let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        }
        Act::Hang => {
            // Until the client goes.
            let _ = stream.read(&mut [0_u8; 64]).await;
        }
    }
}

async fn read_request(stream: &mut (impl tokio::io::AsyncRead + Unpin), request: &mut Vec<u8>) {
    let mut buffer = [0_u8; 4096];
    while !is_whole(request) {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => request.extend_from_slice(&buffer[..read]),
        }
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(0, |(_, length)| length.parse().unwrap());
    body.len() >= length
}

fn answer(status: &str, body: &str) -> Act {
    Act::Answer(
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes(),
    )
}

// ---------------------------------------------------------------------------------------------------
// Small helpers.

fn system() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

fn transport() -> Arc<dyn Transport> {
    Arc::new(HttpTransport::new(system()))
}

fn within(clock: &dyn Clock, ms: u64) -> Deadline {
    Deadline { boot: clock.boot() + micros(Duration::from_millis(ms)) }
}

fn soon() -> Deadline {
    within(&SystemClock, 5_000)
}

async fn settle() {
    SystemClock.sleep(Duration::from_millis(50)).await;
}

async fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1000 {
        if let Some(found) = look() {
            return found;
        }
        SystemClock.sleep(Duration::from_millis(10)).await;
    }
    panic!("did not happen within 10 s");
}

fn get(url: &str) -> Request<Bytes> {
    Request::get(url).body(Bytes::new()).unwrap()
}

fn post(url: &str, body: &str) -> Request<Bytes> {
    Request::post(url).body(Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

fn secret(text: &str) -> Secret {
    Secret::new(text.to_owned())
}

fn config(text: &str) -> Config {
    Config::parse("test", text, std::iter::empty()).unwrap_or_else(|error| panic!("{error:?}"))
}

/// An adapter of kind `http`; `more` are further keys of its section.
fn provider(base_url: &str, more: &str) -> HttpProvider {
    provider_on(base_url, more, system(), transport())
}

fn provider_on(
    base_url: &str,
    more: &str,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
) -> HttpProvider {
    let text = format!(
        "[providers.p]\nkind = \"http\"\nbase_url = \"{base_url}\"\nsecret = \"k3y-k3y-k3y-k3y\"\n{more}"
    );
    HttpProvider::new("p", &config(&text).providers["p"], clock, transport).unwrap()
}

fn message(attempt: &str) -> Message {
    Message {
        attempt_id: attempt.to_owned(),
        channel: Channel::Sms,
        to: secret("+12025550123"),
        text: secret("Example: reset https://example.com/reset/t0ken"),
        subject: None,
        html: None,
        valid_until: SystemClock.now().plus(600 * SECOND),
    }
}

fn query(attempt: &str) -> Query {
    Query {
        attempt_id: attempt.to_owned(),
        message_id: None,
        channel: Channel::Sms,
        since: SystemClock.now(),
        now: SystemClock.now(),
        to: None,
        text: None,
    }
}

fn unknown(why: Doubt, code: &str) -> Verdict {
    Verdict::Unknown { why, code: code.to_owned() }
}

fn folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::SeqCst);
    let folder =
        std::env::temp_dir().join(format!("sendonce-providers-{}-{number}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A simulator that serves on a free port.
struct Sim {
    simulator: Arc<Simulator>,
    base: String,
}

impl Sim {
    async fn start(settings: Settings) -> Self {
        Self::start_on(settings, system()).await
    }

    async fn start_on(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let carrier: Arc<dyn Transport> = Arc::new(HttpTransport::new(Arc::clone(&clock)));
        let simulator = Simulator::new(settings, None, clock, Arc::new(SystemEntropy), carrier);
        tokio::spawn(simulator::serve(listener, Arc::clone(&simulator)));
        Self { simulator, base }
    }

    fn provider(&self) -> HttpProvider {
        provider(&format!("{}/http", self.base), "")
    }

    async fn script(&self, script: Value) -> Response<Bytes> {
        let request = post(&format!("{}/_control/script", self.base), &script.to_string());
        transport().exchange(request, soon()).await.unwrap()
    }

    async fn control(&self, path: &str) -> Value {
        let response = transport()
            .exchange(get(&format!("{}/_control{path}", self.base)), soon())
            .await
            .unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        serde_json::from_slice(response.body()).unwrap()
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.simulator.closing().cancel();
    }
}

// ---------------------------------------------------------------------------------------------------
// The transport.

#[tokio::test]
async fn a_refused_connection_left_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let failure = transport().exchange(get(&url), soon()).await.unwrap_err();
    assert_eq!(failure, Failure { phase: Phase::BeforeWrite, kind: Kind::Connect });
    let verdict = provider(&url, "").send(&message("a1"), soon()).await;
    assert_eq!(verdict, Verdict::NotSent { code: "connect".to_owned() });
}

#[tokio::test]
async fn a_name_that_does_not_resolve_left_nothing() {
    let failure = transport().exchange(get("http://nothing.invalid/"), soon()).await.unwrap_err();
    assert_eq!(failure.phase, Phase::BeforeWrite);
    // A resolver that does not answer at all is the deadline's case.
    assert!(matches!(failure.kind, Kind::Resolve | Kind::Timeout), "{failure:?}");
}

#[tokio::test]
async fn tls_against_a_plain_port_left_nothing() {
    let bare = Bare::start(answer("400 Bad Request", "")).await;
    let url = format!("https://{}/", bare.address);
    // The answer is no TLS, or never comes because the server waits for the rest of a request.
    let failure =
        transport().exchange(post(&url, "secret"), within(&SystemClock, 300)).await.unwrap_err();
    assert_eq!(failure.phase, Phase::BeforeWrite);
    assert!(matches!(failure.kind, Kind::Tls | Kind::Timeout), "{failure:?}");
    assert!(
        bare.requests().await.iter().all(|sent| !String::from_utf8_lossy(sent).contains("secret"))
    );

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let _ = stream.read(&mut [0_u8; 4096]).await;
    });
    let failure = transport().exchange(get(&url), soon()).await.unwrap_err();
    assert_eq!(failure, Failure { phase: Phase::BeforeWrite, kind: Kind::Tls });
}

#[tokio::test]
async fn what_is_no_request_is_not_tried() {
    for url in ["/messages", "ftp://127.0.0.1/", "http://user:pw@127.0.0.1/"] {
        let failure = transport().exchange(get(url), soon()).await.unwrap_err();
        assert_eq!(failure, Failure { phase: Phase::BeforeWrite, kind: Kind::Request }, "{url}");
    }
}

#[tokio::test]
async fn a_lost_connection_after_the_request_is_one_request_and_unknown() {
    for act in [Act::Close, Act::Reset] {
        let bare = Bare::start(act).await;
        let verdict = provider(&bare.url(), "").send(&message("a1"), soon()).await;
        assert_eq!(verdict, unknown(Doubt::ConnectionLost, "lost"));
        assert_eq!(bare.requests().await.len(), 1);
    }
}

#[tokio::test]
async fn half_an_answer_is_unknown() {
    for half in [
        "HTTP/1.1 202 Accepted\r\ncontent-length: 100\r\n\r\n{\"message_id\":\"m-1\"}",
        "HTTP/1.1 202 Acc",
        "SMTP ready\r\n\r\n",
    ] {
        let bare = Bare::start(Act::Answer(half.as_bytes().to_vec())).await;
        let verdict = provider(&bare.url(), "").send(&message("a1"), soon()).await;
        assert_eq!(verdict, unknown(Doubt::ConnectionLost, "lost"), "{half}");
        assert_eq!(bare.requests().await.len(), 1);
    }
}

#[tokio::test]
async fn no_answer_is_a_timeout_at_the_deadline() {
    let bare = Bare::start(Act::Hang).await;
    let clock = SystemClock;
    let began = clock.boot();
    let verdict = provider(&bare.url(), "").send(&message("a1"), within(&clock, 200)).await;
    assert_eq!(verdict, unknown(Doubt::Timeout, "timeout"));
    let took = clock.boot() - began;
    assert!((200_000..2_000_000).contains(&took), "{took} us");
    assert_eq!(bare.requests().await.len(), 1);
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_unknown() {
    let bare = Bare::start(answer("202 Accepted", &"x".repeat(ANSWER_BYTES_MAX + 1))).await;
    let failure = transport().exchange(get(&bare.url()), soon()).await.unwrap_err();
    assert_eq!(failure, Failure { phase: Phase::AfterWrite, kind: Kind::TooLarge });
    let verdict = provider(&bare.url(), "").send(&message("a1"), soon()).await;
    assert_eq!(verdict, unknown(Doubt::AmbiguousResponse, "too_large"));
    let bare = Bare::start(answer("202 Accepted", &"x".repeat(ANSWER_BYTES_MAX))).await;
    assert_eq!(
        transport().exchange(get(&bare.url()), soon()).await.unwrap().body().len(),
        ANSWER_BYTES_MAX
    );
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let there = Bare::start(answer("202 Accepted", "{\"message_id\":\"m-1\"}")).await;
    let redirect = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n",
        there.url()
    );
    let here = Bare::start(Act::Answer(redirect.into_bytes())).await;
    let verdict = provider(&here.url(), "").send(&message("a1"), soon()).await;
    assert_eq!(verdict, unknown(Doubt::AmbiguousResponse, "http_307"));
    assert_eq!((here.requests().await.len(), there.requests().await.len()), (1, 0));
}

#[tokio::test]
async fn past_its_deadline_a_call_does_not_even_connect() {
    let bare = Bare::start(answer("202 Accepted", "{\"message_id\":\"m-1\"}")).await;
    let clock = ManualClock::new(SystemClock.now());
    let transport = Arc::new(HttpTransport::new(Arc::new(clock.clone())));
    let provider = provider_on(&bare.url(), "", Arc::new(clock.clone()), transport);
    let deadline = within(&clock, 1_000);
    clock.advance(Duration::from_secs(1));
    let verdict = provider.send(&message("a1"), deadline).await;
    assert_eq!(verdict, Verdict::NotSent { code: "timeout".to_owned() });
    assert_eq!(bare.seen.lock().unwrap().len(), 0);
    assert!(matches!(
        provider.send(&message("a1"), within(&clock, 1_000)).await,
        Verdict::Accepted { .. }
    ));
    assert_eq!(bare.requests().await.len(), 1);
}

#[tokio::test]
async fn a_manual_clock_ends_a_call() {
    let bare = Bare::start(Act::Hang).await;
    let clock = ManualClock::new(SystemClock.now());
    let transport = Arc::new(HttpTransport::new(Arc::new(clock.clone())));
    let provider = provider_on(&bare.url(), "", Arc::new(clock.clone()), transport);
    let deadline = within(&clock, 5_000);
    let call = tokio::spawn(async move { provider.send(&message("a1"), deadline).await });
    settle().await;
    assert!(!call.is_finished());
    clock.advance(Duration::from_secs(5));
    assert_eq!(call.await.unwrap(), unknown(Doubt::Timeout, "timeout"));
}

/// A clock that is past every deadline from its n-th reading on: a process that was stopped just there.
#[derive(Debug)]
struct Stopped {
    readings_left: AtomicI64,
}

#[async_trait]
impl Clock for Stopped {
    fn now(&self) -> Stamp {
        SystemClock.now()
    }

    fn boot(&self) -> i64 {
        if self.readings_left.fetch_sub(1, Ordering::SeqCst) > 0 { 0 } else { i64::MAX / 2 }
    }

    async fn sleep(&self, _: Duration) {
        // Timers do not count suspension: only the readings can notice it.
        std::future::pending::<()>().await;
    }
}

#[tokio::test]
async fn wherever_a_process_is_stopped_it_writes_nothing_past_its_deadline() {
    let mut stops_before_write = 0;
    for readings in 0..40 {
        let bare = Bare::start(answer("202 Accepted", "{\"message_id\":\"m-1\"}")).await;
        let clock: Arc<dyn Clock> = Arc::new(Stopped { readings_left: AtomicI64::new(readings) });
        let carrier = Arc::new(HttpTransport::new(Arc::clone(&clock)));
        let provider = provider_on(&bare.url(), "", clock, carrier);
        let verdict = provider.send(&message("a1"), Deadline { boot: SECOND }).await;
        let requests = bare.requests().await.len();
        match verdict {
            Verdict::NotSent { code } => {
                assert_eq!(
                    (code.as_str(), requests),
                    ("timeout", 0),
                    "stopped after {readings} readings"
                );
                stops_before_write += 1;
            }
            Verdict::Accepted { .. } => {
                assert_eq!(requests, 1, "stopped after {readings} readings");
                // Nothing reads the clock once the request is out: from here on all is well.
                assert!(stops_before_write >= 4, "{stops_before_write}");
                return;
            }
            other => panic!("stopped after {readings} readings: {other:?}"),
        }
    }
    panic!("never got through");
}

#[tokio::test]
async fn what_a_finished_call_had_not_delivered_yet_is_never_delivered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    // More than all buffers on the way hold, to a server that does not read until the call is over.
    let body = "x".repeat(32 << 20);
    let transport = transport();
    let call = transport.exchange(post(&url, &body), within(&SystemClock, 300));
    let (call, accepted) = tokio::join!(call, listener.accept());
    assert_eq!(call.unwrap_err(), Failure { phase: Phase::AfterWrite, kind: Kind::Timeout });
    let (mut stream, _) = accepted.unwrap();
    let mut received = Vec::new();
    let end = stream.read_to_end(&mut received).await.unwrap_err();
    assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(received.len() < body.len());
}

/// A clock that is set by hand and whose timers never fire: they do not count suspension.
#[derive(Debug, Clone, Default)]
struct Suspended {
    boot: Arc<AtomicI64>,
}

#[async_trait]
impl Clock for Suspended {
    fn now(&self) -> Stamp {
        SystemClock.now()
    }

    fn boot(&self) -> i64 {
        self.boot.load(Ordering::SeqCst)
    }

    async fn sleep(&self, _: Duration) {
        std::future::pending::<()>().await;
    }
}

#[tokio::test]
async fn a_process_that_is_stopped_in_the_middle_of_a_request_does_not_finish_it_later() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let request =
        post(&format!("http://{}/", listener.local_addr().unwrap()), &"x".repeat(32 << 20));
    let clock = Suspended::default();
    let transport = HttpTransport::new(Arc::new(clock.clone()));
    let call =
        tokio::spawn(async move { transport.exchange(request, Deadline { boot: SECOND }).await });
    let (mut stream, _) = listener.accept().await.unwrap();
    // The buffers are full and the call waits; then the deadline passes unnoticed.
    settle().await;
    clock.boot.store(SECOND, Ordering::SeqCst);
    let mut received = Vec::new();
    let end =
        tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut received)).await;
    assert!(end.expect("the client has given up").is_err());
    assert!(!received.is_empty() && received.len() < 32 << 20);
    let failure = call.await.unwrap().unwrap_err();
    assert_eq!(failure, Failure { phase: Phase::AfterWrite, kind: Kind::Timeout });
}

/// A certificate for 127.0.0.1, valid from 2020 to 2120, and its key. Nothing else uses or trusts them.
const TEST_CERTIFICATE: &str = "MIIBQDCB6KADAgECAgEBMAoGCCqGSM49BAMCMBgxFjAUBgNVBAMMDXNlbmRvbmNlIHRlc3QwIBcNMjAwMTAx\
MDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBgxFjAUBgNVBAMMDXNlbmRvbmNlIHRlc3QwWTATBgcqhkjOPQIB\
BggqhkjOPQMBBwNCAASNN21YY051aS6D6y1cew6m7RX6tTzcIFlujzUdofLIElHONhKHElaYJZHma3Al1GI0\
SQorNuBnTHxZVtNeXpiBoyEwHzAPBgNVHREECDAGhwR/AAABMAwGA1UdEwEB/wQCMAAwCgYIKoZIzj0EAwID\
RwAwRAIgdBZ/Rw3oy12yoH+mW2lPMBVjZX57fOUEiSRkEfWUq+cCICI/KeCtuCNBg50bJ4vsk1ARfj4ek3h/\
N0pBseFdLIK/";
const TEST_KEY: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgT6yUHhARrWrgCute73CZ8aHmgtrIxhcu/6+e\
zy3kGK2hRANCAASNN21YY051aS6D6y1cew6m7RX6tTzcIFlujzUdofLIElHONhKHElaYJZHma3Al1GI0SQor\
NuBnTHxZVtNeXpiB";

#[tokio::test]
async fn tls_is_spoken_to_whom_we_trust_and_to_nobody_else() {
    let decode = |text: &str| base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    let certificate = CertificateDer::from(decode(TEST_CERTIFICATE));
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.clone()],
            PrivatePkcs8KeyDer::from(decode(TEST_KEY)).into(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let bare =
        Bare::start_with(answer("202 Accepted", "{\"message_id\":\"m-1\"}"), Some(acceptor)).await;
    let url = format!("https://{}", bare.address);

    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let trusting: Arc<dyn Transport> = Arc::new(HttpTransport::with_roots(system(), roots.clone()));
    let provider = provider_on(&url, "", system(), trusting);
    let accepted = Verdict::Accepted { message_id: Some("m-1".to_owned()) };
    assert_eq!(provider.send(&message("a1"), soon()).await, accepted);

    let verdict = provider_on(&url, "", system(), transport()).send(&message("a2"), soon()).await;
    assert_eq!(verdict, Verdict::NotSent { code: "tls".to_owned() });

    // Stopped anywhere in the handshake or right after it, nothing of the request leaves.
    let mut readings = 0;
    loop {
        let before = bare.requests().await.len();
        let clock: Arc<dyn Clock> = Arc::new(Stopped { readings_left: AtomicI64::new(readings) });
        let carrier: Arc<dyn Transport> =
            Arc::new(HttpTransport::with_roots(Arc::clone(&clock), roots.clone()));
        let verdict = provider_on(&url, "", clock, carrier)
            .send(&message("a3"), Deadline { boot: SECOND })
            .await;
        let requests = bare.requests().await.len() - before;
        if verdict == accepted {
            assert_eq!(requests, 1);
            break;
        }
        assert_eq!((verdict, requests), (Verdict::NotSent { code: "timeout".to_owned() }, 0));
        readings += 1;
        assert!(readings < 60);
    }
}

// ---------------------------------------------------------------------------------------------------
// The generic provider.

#[tokio::test]
async fn a_sending_request_is_exactly_what_the_contract_says() {
    let bare = Bare::start(answer("202 Accepted", "{\"message_id\":\"m-1\"}")).await;
    let provider = provider(&format!("{}/v9/", bare.url()), "");
    let mut sent = message("0123abcd");
    sent.channel = Channel::Email;
    sent.to = secret("ann@example.com");
    sent.subject = Some("Reset".to_owned());
    sent.html = Some(secret("<p>x</p>"));
    sent.valid_until = Stamp::parse("2126-09-21T14:13:20Z").unwrap();
    let verdict = provider.send(&sent, soon()).await;
    assert_eq!(verdict, Verdict::Accepted { message_id: Some("m-1".to_owned()) });

    let requests = bare.requests().await;
    let text = String::from_utf8(requests[0].clone()).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v9/messages HTTP/1.1\r\n"), "{head}");
    let headers: BTreeMap<String, &str> = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    assert_eq!(headers["idempotency-key"], "0123abcd");
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(headers["host"], bare.address.to_string());
    let (at, v1) =
        headers["sendonce-signature"].strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
    assert!((SystemClock.now().micros() / SECOND - at.parse::<i64>().unwrap()).abs() < 10);
    assert_eq!(v1, keys::sign(b"k3y-k3y-k3y-k3y", format!("{at}.{body}").as_bytes()));
    let body: Value = serde_json::from_str(body).unwrap();
    let expected = json!({
        "attempt_id": "0123abcd", "channel": "email", "to": "ann@example.com",
        "text": "Example: reset https://example.com/reset/t0ken", "subject": "Reset", "html": "<p>x</p>",
        "valid_until": "2126-09-21T14:13:20.000000Z",
    });
    assert_eq!(body, expected);

    // Without subject and html the fields are not there at all, and the same message is the same bytes.
    let (bare, sms) = (Bare::start(answer("202 Accepted", "{}")).await, message("a1"));
    let provider = self::provider(&bare.url(), "");
    provider.send(&sms, soon()).await;
    provider.send(&sms, soon()).await;
    let bodies: Vec<String> = bare
        .requests()
        .await
        .iter()
        .map(|sent| String::from_utf8_lossy(sent).split_once("\r\n\r\n").unwrap().1.to_owned())
        .collect();
    assert_eq!(bodies[0], bodies[1]);
    assert!(!bodies[0].contains("subject") && !bodies[0].contains("html"));
}

#[tokio::test]
async fn a_look_up_is_signed_and_asks_for_one_attempt() {
    let bare = Bare::start(answer("404 Not Found", "{}")).await;
    let provider = provider(&bare.url(), "");
    assert_eq!(provider.find(&query("a1"), soon()).await, Lookup::Absent);
    let text = String::from_utf8(bare.requests().await[0].clone()).unwrap();
    assert!(text.starts_with("GET /messages?attempt_id=a1 HTTP/1.1\r\n"), "{text}");
    let signed = text.lines().find_map(|line| line.strip_prefix("sendonce-signature: t=")).unwrap();
    let (at, v1) = signed.split_once(",v1=").unwrap();
    assert_eq!(v1, keys::sign(b"k3y-k3y-k3y-k3y", format!("{at}.").as_bytes()));
}

#[tokio::test]
async fn a_failed_look_up_cannot_tell() {
    let cannot = |code: &str| Lookup::CannotTell { code: code.to_owned() };
    for (act, code) in [
        (Act::Close, "lost"),
        (Act::Reset, "lost"),
        (answer("405 Method Not Allowed", "{}"), "http_405"),
        (answer("503 Service Unavailable", "{}"), "http_503"),
        (answer("302 Found", ""), "http_302"),
        (answer("200 OK", "<html>"), "bad_answer"),
    ] {
        let bare = Bare::start(act).await;
        assert_eq!(provider(&bare.url(), "").find(&query("a1"), soon()).await, cannot(code));
        assert_eq!(bare.requests().await.len(), 1);
    }
    let bare = Bare::start(Act::Hang).await;
    assert_eq!(
        provider(&bare.url(), "").find(&query("a1"), within(&SystemClock, 100)).await,
        cannot("timeout")
    );
    let bare = Bare::start(answer("404 Not Found", "{}")).await;
    let off = provider(&bare.url(), "lookup = false");
    assert_eq!(off.find(&query("a1"), soon()).await, cannot("no_lookup"));
    assert_eq!(bare.requests().await.len(), 0);
}

#[test]
fn each_ability_can_be_switched_off() {
    let able = |more: &str| provider("http://127.0.0.1:1", more).capability().clone();
    let plain = able("");
    assert_eq!(
        (plain.reading, plain.settle, plain.replay_window),
        (Reading::ByReference, None, None)
    );
    assert!(!plain.has_callbacks() && plain.channels.len() == 2);
    assert_eq!(able("lookup = false").reading, Reading::None);
    assert_eq!(able("settle = \"300ms\"").settle, Some(300_000));
    assert_eq!(able("idempotent = true\nwindow = \"24h\"").replay_window, Some(86_400 * SECOND));
    assert_eq!(able("window = \"24h\"").replay_window, None);
    assert!(able("webhook_secret = \"k\"").has_callbacks());
    let names: Vec<&str> = kinds().iter().map(|kind| kind.kind).collect();
    assert!(names.starts_with(&["demo", "http"]), "{names:?}");
}

// ---------------------------------------------------------------------------------------------------
// Callbacks.

const BODY: &str =
    r#"{"attempt_id":"a1","message_id":"m-1","state":"delivered","at":"2026-09-21T14:13:20Z"}"#;

/// A request to the endpoint of the provider `p`.
fn callback_of<'a>(headers: &'a HeaderMap, body: &'a [u8], now: Stamp) -> CallbackRequest<'a> {
    CallbackRequest {
        method: &Method::POST,
        path: "/webhooks/p",
        query: None,
        headers,
        public_url: "http://127.0.0.1:3000",
        body,
        now,
    }
}

fn callback(
    value: Option<&str>,
    body: &[u8],
    now: Stamp,
) -> Result<Vec<server::providers::Receipt>, CallbackError> {
    let mut headers = HeaderMap::new();
    if let Some(value) = value {
        headers.insert(signature::HEADER, HeaderValue::from_str(value).unwrap());
    }
    let provider = provider("http://127.0.0.1:1", "webhook_secret = \"h00k\"");
    let request = callback_of(&headers, body, now);
    // Nothing in it waits.
    provider.verify_callback(&request).now_or_never().unwrap().map(|callback| callback.receipts)
}

#[test]
fn a_callback_counts_only_with_a_fresh_signature_over_its_very_bytes() {
    let now = SystemClock.now();
    let key = secret("h00k");
    let good = signature::header(&key, now, BODY.as_bytes());
    let receipts = callback(Some(&good), BODY.as_bytes(), now).unwrap();
    assert_eq!(receipts.len(), 1);
    assert_eq!(
        (receipts[0].attempt_id.as_deref(), receipts[0].seen),
        (Some("a1"), Seen::Delivered)
    );
    assert_eq!(receipts[0].message_id.as_deref(), Some("m-1"));
    assert_eq!(receipts[0].at, Some(Stamp::parse("2026-09-21T14:13:20Z").unwrap()));

    // One byte of the body, one of the header, another key.
    for at in 0..BODY.len() {
        let mut body = BODY.as_bytes().to_vec();
        body[at] ^= 1;
        assert_eq!(callback(Some(&good), &body, now), Err(CallbackError::Signature), "byte {at}");
    }
    for at in 0..good.len() {
        let mut header = good.clone().into_bytes();
        header[at] = if header[at] == b'0' { b'1' } else { b'0' };
        let header = String::from_utf8(header).unwrap();
        assert_eq!(
            callback(Some(&header), BODY.as_bytes(), now),
            Err(CallbackError::Signature),
            "{header}"
        );
    }
    let forged = signature::header(&secret("other"), now, BODY.as_bytes());
    assert_eq!(callback(Some(&forged), BODY.as_bytes(), now), Err(CallbackError::Signature));
    let at = good.split_once(',').unwrap().0;
    for header in [
        "",
        "t=",
        "v1=",
        at,
        &format!("{at},v1="),
        &format!("{good},v1=00"),
        &format!(" {good}"),
        &good.to_uppercase(),
        &format!("t=+{}", &good[2..]),
        &format!("t=0{}", &good[2..]),
    ] {
        assert_eq!(
            callback(Some(header), BODY.as_bytes(), now),
            Err(CallbackError::Signature),
            "{header}"
        );
    }
    assert_eq!(callback(None, BODY.as_bytes(), now), Err(CallbackError::Signature));
}

#[test]
fn a_callback_is_refused_when_its_time_is_more_than_300_s_away() {
    let now = Stamp::from_micros(1_790_000_000 * SECOND);
    for (away, expected) in
        [(0, true), (-300, true), (300, true), (-301, false), (301, false), (-86_400, false)]
    {
        let header = signature::header(&secret("h00k"), now.plus(away * SECOND), BODY.as_bytes());
        let outcome = callback(Some(&header), BODY.as_bytes(), now);
        assert_eq!(outcome.is_ok(), expected, "{away}");
        if !expected {
            assert_eq!(outcome, Err(CallbackError::Stale));
        }
    }
}

#[test]
fn a_signed_callback_with_another_body_is_malformed() {
    let now = SystemClock.now();
    for body in [
        "",
        "{}",
        "[]",
        "null",
        r#"{"attempt_id":"a1","state":"delivered"}"#,
        r#"{"attempt_id":"a1","state":"queued","at":"2026-09-21T14:13:20Z"}"#,
        r#"{"attempt_id":"a1","state":"delivered","at":1790000000}"#,
        r#"{"attempt_id":"a1","state":"delivered","at":"2026-09-21T14:13:20"}"#,
        r#"{"attempt_id":1,"state":"delivered","at":"2026-09-21T14:13:20Z"}"#,
        r#"{"attempt_id":"","state":"delivered","at":"2026-09-21T14:13:20Z"}"#,
        r#"{"attempt_id":"ann@example.com","state":"delivered","at":"2026-09-21T14:13:20Z"}"#,
        r#"{"attempt_id":"a1","message_id":7,"state":"delivered","at":"2026-09-21T14:13:20Z"}"#,
        r#"{"attempt_id":"a1","attempt_id":"a2","state":"delivered","at":"2026-09-21T14:13:20Z"}"#,
        r#"{"attempt_id":"a1","state":"delivered","at":"2026-09-21T14:13:20Z","to":"x"}"#,
    ] {
        let header = signature::header(&secret("h00k"), now, body.as_bytes());
        assert_eq!(
            callback(Some(&header), body.as_bytes(), now),
            Err(CallbackError::Malformed),
            "{body}"
        );
    }
    let short = r#"{"attempt_id":"a1","state":"failed","at":"2026-09-21T14:13:20+02:00"}"#;
    let header = signature::header(&secret("h00k"), now, short.as_bytes());
    assert_eq!(callback(Some(&header), short.as_bytes(), now).unwrap()[0].message_id, None);
}

#[test]
fn without_a_key_there_is_no_callback() {
    let headers = HeaderMap::new();
    let request = callback_of(&headers, BODY.as_bytes(), SystemClock.now());
    for more in ["", "webhook_secret = \"\""] {
        // An empty key may already be refused by the configuration.
        let text = format!(
            "[providers.p]\nkind = \"http\"\nbase_url = \"http://127.0.0.1:1\"\nsecret = \"k\"\n{more}"
        );
        let Ok(config) = Config::parse("test", &text, std::iter::empty()) else { continue };
        let provider =
            HttpProvider::new("p", &config.providers["p"], system(), transport()).unwrap();
        let outcome = provider.verify_callback(&request).now_or_never().unwrap();
        assert_eq!(outcome, Err(CallbackError::NotConfigured));
    }
}

// ---------------------------------------------------------------------------------------------------
// The simulator.

#[tokio::test]
async fn each_behaviour_has_its_verdict_and_is_one_call() {
    let sim = Sim::start(Settings::default()).await;
    let provider = sim.provider();
    let coded = |code: &str| code.to_owned();
    let table: Vec<(Value, Option<Verdict>, bool)> = vec![
        (json!("accept"), None, true),
        (json!({"behaviour": "slow", "ms": 20}), None, true),
        (json!("accept_then_hang"), Some(unknown(Doubt::Timeout, "timeout")), true),
        (json!("hang_before_accept"), Some(unknown(Doubt::Timeout, "timeout")), false),
        (json!({"behaviour": "slow", "ms": 3000}), Some(unknown(Doubt::Timeout, "timeout")), true),
        (json!("accept_then_reset"), Some(unknown(Doubt::ConnectionLost, "lost")), true),
        (json!("reset_before_accept"), Some(unknown(Doubt::ConnectionLost, "lost")), false),
        (json!("accept_then_500"), Some(unknown(Doubt::AmbiguousResponse, "http_500")), true),
        (
            json!("refuse_permanently"),
            Some(Verdict::RefusedPermanently { code: coded("bad_destination") }),
            false,
        ),
        (
            json!("refuse_transiently"),
            Some(Verdict::TransientRefusal { code: coded("busy") }),
            false,
        ),
        (
            json!({"rate_limit": {"retry_after": "soon"}}),
            Some(Verdict::RateLimited { retry_at: None }),
            false,
        ),
    ];
    for (at, (behaviour, expected, is_accepted)) in table.into_iter().enumerate() {
        let attempt = format!("a{at}");
        let name = behaviour.to_string();
        let script =
            json!({"provider": "http", "match": {"attempt": attempt}, "behaviour": [behaviour]});
        assert_eq!(sim.script(script).await.status(), StatusCode::OK, "{name}");
        let verdict = provider.send(&message(&attempt), within(&SystemClock, 400)).await;
        match expected {
            Some(expected) => assert_eq!(verdict, expected, "{name}"),
            None => assert!(
                matches!(verdict, Verdict::Accepted { message_id: Some(_) }),
                "{name}: {verdict:?}"
            ),
        }
        let calls = sim.control(&format!("/calls?attempt={attempt}")).await;
        assert_eq!(calls["count"], 1, "{name}");
        assert_eq!(calls["calls"][0]["attempt"], attempt);
        let messages = sim.control(&format!("/messages?attempt={attempt}")).await;
        assert_eq!(messages["count"], i32::from(is_accepted), "{name}");
        // The lost answers are exactly what a look-up resolves.
        match provider.find(&query(&attempt), soon()).await {
            Lookup::Found { seen: Seen::Accepted | Seen::Delivered, message_id } => {
                assert!(is_accepted, "{name}");
                assert_eq!(message_id.as_deref(), messages["messages"][0]["message_id"].as_str());
            }
            Lookup::Absent => assert!(!is_accepted, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    assert_eq!(sim.control("/calls").await["count"], 11);
}

#[tokio::test]
async fn a_rate_limit_says_when() {
    let sim = Sim::start(Settings::default()).await;
    sim.script(
        json!({"provider": "http", "behaviour": [{"behaviour": "rate_limit", "retry_after": 30}]}),
    )
    .await;
    let Verdict::RateLimited { retry_at: Some(at) } =
        sim.provider().send(&message("a1"), soon()).await
    else {
        panic!("not limited")
    };
    let wait = at.since(SystemClock.now()) / SECOND;
    assert!((25..=30).contains(&wait), "{wait}");
}

#[tokio::test]
async fn behaviours_come_in_order_and_the_last_one_stays() {
    let sim = Sim::start(Settings::default()).await;
    let provider = sim.provider();
    sim.script(json!({"provider": "http", "behaviour": ["refuse_transiently", "accept_then_500", "accept"]})).await;
    let mut verdicts = Vec::new();
    for attempt in ["a1", "a2", "a3", "a4"] {
        verdicts.push(provider.send(&message(attempt), soon()).await.outcome().as_str());
    }
    assert_eq!(verdicts, ["transient_refusal", "unknown", "accepted", "accepted"]);
    // The most particular script decides; for everybody else the general one goes on.
    let to = json!({"destination": "+12025550123"});
    sim.script(json!({"provider": "http", "match": to, "behaviour": ["refuse_permanently"]})).await;
    sim.script(json!({"provider": "http", "match": {"attempt": "a6"}, "behaviour": ["refuse_transiently"]})).await;
    assert_eq!(
        provider.send(&message("a5"), soon()).await.outcome().as_str(),
        "refused_permanently"
    );
    assert_eq!(provider.send(&message("a6"), soon()).await.outcome().as_str(), "transient_refusal");
    let mut other = message("a7");
    other.to = secret("+12025550199");
    assert_eq!(provider.send(&other, soon()).await.outcome().as_str(), "accepted");
    // The same match again begins anew; another kind's script is nobody's business here.
    sim.script(json!({"provider": "http", "match": {"destination": "+12025550123"}, "behaviour": ["accept"]})).await;
    sim.script(json!({"provider": "demo", "behaviour": ["refuse_permanently"]})).await;
    assert_eq!(provider.send(&message("a8"), soon()).await.outcome().as_str(), "accepted");
    // Cleared, all is as it was at the start.
    let clear = Request::delete(format!("{}/_control", sim.base)).body(Bytes::new()).unwrap();
    assert_eq!(transport().exchange(clear, soon()).await.unwrap().status(), StatusCode::NO_CONTENT);
    assert_eq!(sim.control("/calls").await, json!({"count": 0, "calls": []}));
    assert_eq!(sim.control("/messages").await, json!({"count": 0, "messages": []}));
    assert_eq!(provider.send(&message("a6"), soon()).await.outcome().as_str(), "accepted");
}

#[tokio::test]
async fn a_repeated_attempt_is_one_message() {
    let sim = Sim::start(Settings::default()).await;
    let provider = sim.provider();
    let first = provider.send(&message("a1"), soon()).await;
    assert_eq!(provider.send(&message("a1"), soon()).await, first);
    assert_eq!(sim.control("/calls?attempt=a1").await["count"], 2);
    assert_eq!(sim.control("/messages").await["count"], 1);
}

#[tokio::test]
async fn a_look_up_lags_or_fails_as_scripted_and_sees_the_delivery() {
    let clock = ManualClock::new(SystemClock.now());
    let sim = Sim::start_on(Settings::default(), Arc::new(clock.clone())).await;
    let provider = sim.provider();
    sim.script(json!({"provider": "http", "lookup_lag_ms": 1500})).await;
    assert!(matches!(provider.send(&message("a1"), soon()).await, Verdict::Accepted { .. }));
    assert_eq!(provider.find(&query("a1"), soon()).await, Lookup::Absent);
    clock.advance(Duration::from_millis(1500));
    assert!(matches!(
        provider.find(&query("a1"), soon()).await,
        Lookup::Found { seen: Seen::Accepted, .. }
    ));
    clock.advance(Duration::from_millis(500));
    assert!(matches!(
        provider.find(&query("a1"), soon()).await,
        Lookup::Found { seen: Seen::Delivered, .. }
    ));
    sim.script(json!({"provider": "http", "lookup_down": true, "delivery": "failed", "deliver_after_ms": 0})).await;
    let down = Lookup::CannotTell { code: "http_503".to_owned() };
    assert_eq!(provider.find(&query("a1"), soon()).await, down);
    assert!(matches!(provider.send(&message("a2"), soon()).await, Verdict::Accepted { .. }));
    sim.script(json!({"provider": "http"})).await;
    assert!(matches!(
        provider.find(&query("a2"), soon()).await,
        Lookup::Found { seen: Seen::Failed, .. }
    ));
    assert_eq!(sim.control("").await["lookups"], 5);
}

#[tokio::test]
async fn bad_control_input_is_a_problem_that_names_the_field() {
    let sim = Sim::start(Settings::default()).await;
    for (script, field) in [
        (json!({"provider": "http", "behaviour": ["explode"]}), "behaviour[0]"),
        (json!({"provider": "pigeon", "behaviour": ["accept"]}), "provider"),
        (json!({"provider": "http", "behaviours": ["accept"]}), "behaviours"),
        (json!({"provider": "http", "match": {"attempt": 1}}), "match.attempt"),
    ] {
        let response = sim.script(script.clone()).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{script}");
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["errors"][0]["field"], field, "{body}");
        assert!(!body.to_string().contains("explode") && !body.to_string().contains("pigeon"));
    }
    let response = transport()
        .exchange(post(&format!("{}/_control/script", sim.base), "{"), soon())
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    let large = "x".repeat(simulator::REQUEST_BYTES_MAX + 1);
    let response =
        transport().exchange(post(&format!("{}/http/messages", sim.base), &large), soon()).await;
    assert!(matches!(response, Ok(answer) if answer.status() == StatusCode::PAYLOAD_TOO_LARGE));
}

#[tokio::test]
async fn a_simulator_with_a_key_checks_signatures_and_one_without_control_has_none() {
    let settings =
        Settings { secret: Some(secret("other")), has_control: false, ..Settings::default() };
    let sim = Sim::start(settings).await;
    let stopped = Verdict::ProviderStopped { code: "bad_signature".to_owned() };
    assert_eq!(sim.provider().send(&message("a1"), soon()).await, stopped);
    let refused = Lookup::CannotTell { code: "http_401".to_owned() };
    assert_eq!(sim.provider().find(&query("a1"), soon()).await, refused);
    assert_eq!(sim.simulator.calls(None), []);
    let response =
        transport().exchange(get(&format!("{}/_control/calls", sim.base)), soon()).await.unwrap();
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_simulator_forgets_the_oldest_first() {
    let clock = ManualClock::new(SystemClock.now());
    let carrier: Arc<dyn Transport> = transport();
    let simulator = Simulator::new(
        Settings::default(),
        None,
        Arc::new(clock),
        Arc::new(SeededEntropy::new(1)),
        carrier,
    );
    for number in 0..=KEPT_MAX {
        let incoming = Incoming::new("http", format!("a{number}"), "+12025550123".to_owned());
        simulator.play(&incoming, None).await;
    }
    assert_eq!((simulator.calls(None).len(), simulator.messages(None).len()), (KEPT_MAX, KEPT_MAX));
    assert_eq!(simulator.look_up("http", "a0"), Known::Absent);
    assert!(matches!(simulator.look_up("http", "a1"), Known::Found { .. }));
}

/// Receives callbacks, and says of each whether it verifies.
async fn receiver() -> (CallbackTarget, Arc<Mutex<Vec<Result<Seen, CallbackError>>>>) {
    let received = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&received);
    let provider = Arc::new(provider("http://127.0.0.1:1", "webhook_secret = \"h00k\""));
    let handler = move |headers: HeaderMap, body: Bytes| {
        let request = callback_of(&headers, &body, SystemClock.now());
        let outcome = provider.verify_callback(&request).now_or_never().unwrap();
        let outcome = outcome.map(|callback| callback.receipts[0].seen);
        all.lock().unwrap().push(outcome);
        async { StatusCode::NO_CONTENT }
    };
    let router = axum::Router::new().route("/webhooks/p", axum::routing::post(handler));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/webhooks/p", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (CallbackTarget { url, key: secret("h00k") }, received)
}

#[tokio::test]
async fn callbacks_come_as_scripted() {
    let (accepted, delivered) = (Ok(Seen::Accepted), Ok(Seen::Delivered));
    for (callbacks, expected) in [
        ("normal", vec![accepted, delivered]),
        ("duplicate", vec![accepted, accepted, delivered, delivered]),
        ("out_of_order", vec![delivered, accepted]),
        ("forged", vec![Err(CallbackError::Signature)]),
        ("none", vec![]),
    ] {
        let (target, received) = receiver().await;
        let sim = Sim::start(Settings { callbacks: Some(target), ..Settings::default() }).await;
        sim.script(json!({"provider": "http", "callbacks": callbacks, "deliver_after_ms": 200}))
            .await;
        assert!(matches!(
            sim.provider().send(&message("a1"), soon()).await,
            Verdict::Accepted { .. }
        ));
        eventually(|| (received.lock().unwrap().len() >= expected.len()).then_some(())).await;
        settle().await;
        assert_eq!(*received.lock().unwrap(), expected, "{callbacks}");
    }
}

#[tokio::test]
async fn a_script_may_name_where_callbacks_go_and_a_late_one_is_late() {
    let (target, received) = receiver().await;
    let clock = ManualClock::new(SystemClock.now());
    let sim = Sim::start_on(Settings::default(), Arc::new(clock.clone())).await;
    sim.script(json!({
        "provider": "http", "callbacks": "late", "callback_url": target.url, "callback_secret": target.key.expose(),
    }))
    .await;
    assert!(matches!(sim.provider().send(&message("a1"), soon()).await, Verdict::Accepted { .. }));
    settle().await;
    clock.advance(Duration::from_secs(59));
    settle().await;
    assert_eq!(received.lock().unwrap().len(), 0);
    clock.advance(Duration::from_secs(1));
    eventually(|| (!received.lock().unwrap().is_empty()).then_some(())).await;
    assert_eq!(*received.lock().unwrap(), [Ok(Seen::Delivered)]);
}

// ---------------------------------------------------------------------------------------------------
// `demo` and the registry.

async fn registry(folder: &Path, more: &str) -> Result<Registry, BuildError> {
    let text = format!("[server]\ndata_dir = \"{}\"\n{more}", folder.display());
    build(&config(&text), system(), Arc::new(SystemEntropy), transport()).await
}

#[tokio::test]
async fn demo_is_always_there_and_needs_no_configuration() {
    let folder = folder();
    let registry = registry(&folder, "").await.unwrap();
    let demo = registry.get("demo").unwrap();
    assert_eq!(demo.capability().settle, Some(2 * SECOND));
    assert_eq!(
        (demo.capability().reading, demo.capability().replay_window),
        (Reading::ByReference, None)
    );
    assert_eq!(demo.find(&query("a1"), soon()).await, Lookup::Absent);
    assert!(matches!(
        demo.send(&message("a1"), soon()).await,
        Verdict::Accepted { message_id: Some(_) }
    ));
    assert!(matches!(
        demo.find(&query("a1"), soon()).await,
        Lookup::Found { seen: Seen::Accepted, .. }
    ));
    // Callbacks fail closed, and there is no control API.
    let headers = HeaderMap::new();
    let request = callback_of(&headers, b"{}", SystemClock.now());
    assert_eq!(demo.verify_callback(&request).await, Err(CallbackError::NotConfigured));
    let address = registry.demo().unwrap().address();
    assert!(address.ip().is_loopback());
    let response = transport()
        .exchange(get(&format!("http://{address}/_control/calls")), soon())
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    // Nobody else on the machine can make it accept or tell anything.
    let stranger = provider(&format!("http://{address}/demo"), "");
    assert!(matches!(stranger.send(&message("a2"), soon()).await, Verdict::ProviderStopped { .. }));
    eventually_delivered(demo.as_ref()).await;
    std::fs::remove_dir_all(folder).unwrap();
}

async fn eventually_delivered(demo: &dyn Provider) {
    for _ in 0..100 {
        if let Lookup::Found { seen: Seen::Delivered, .. } = demo.find(&query("a1"), soon()).await {
            return;
        }
        settle().await;
    }
    panic!("not delivered");
}

#[tokio::test]
async fn what_demo_has_accepted_outlives_the_process() {
    let folder = folder();
    let first = registry(&folder, "").await.unwrap();
    let Verdict::Accepted { message_id } =
        first.get("demo").unwrap().send(&message("a1"), soon()).await
    else {
        panic!("not accepted")
    };
    // Another process with the same data folder sees it while the first one still runs, and repeats it once.
    let second = registry(&folder, "").await.unwrap();
    let found = second.get("demo").unwrap().find(&query("a1"), soon()).await;
    assert!(
        matches!(&found, Lookup::Found { message_id: known, .. } if *known == message_id),
        "{found:?}"
    );
    let again = second.get("demo").unwrap().send(&message("a1"), soon()).await;
    assert_eq!(again, Verdict::Accepted { message_id: message_id.clone() });
    drop((first, second));
    let third = registry(&folder, "").await.unwrap();
    let found = third.get("demo").unwrap().find(&query("a1"), soon()).await;
    assert!(
        matches!(&found, Lookup::Found { message_id: known, .. } if *known == message_id),
        "{found:?}"
    );
    // Neither the number nor the text is in any file.
    for file in std::fs::read_dir(&folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(!text.contains("2025550123") && !text.contains("t0ken"), "{text}");
    }
    drop(third);
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn processes_with_one_listen_share_one_simulator_and_the_next_one_takes_over() {
    let folder = folder();
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let more = format!("[providers.demo]\nlisten = \"127.0.0.1:{port}\"");
    let first = registry(&folder, &more).await.unwrap();
    let second = registry(&folder, &more).await.unwrap();
    let script = json!({"provider": "demo", "behaviour": ["refuse_permanently"]}).to_string();
    let response = transport()
        .exchange(post(&format!("http://127.0.0.1:{port}/_control/script"), &script), soon())
        .await;
    assert_eq!(response.unwrap().status(), StatusCode::OK);
    for registry in [&first, &second] {
        let verdict = registry.get("demo").unwrap().send(&message("a1"), soon()).await;
        assert!(matches!(verdict, Verdict::RefusedPermanently { .. }));
    }
    assert_eq!(first.demo().unwrap().simulator().calls(None).len(), 2);
    drop(first);
    let demo = second.get("demo").unwrap();
    let mut verdict = demo.send(&message("a2"), soon()).await;
    for _ in 0..100 {
        if matches!(verdict, Verdict::Accepted { .. }) {
            break;
        }
        // Between the two, nothing is sent; at the moment of the change, nobody can say.
        assert!(matches!(
            verdict,
            Verdict::NotSent { .. } | Verdict::Unknown { .. } | Verdict::RefusedPermanently { .. }
        ));
        settle().await;
        verdict = demo.send(&message("a2"), soon()).await;
    }
    assert!(matches!(verdict, Verdict::Accepted { .. }), "{verdict:?}");
    drop(second);
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn a_registry_that_cannot_be_made_says_which_key() {
    let folder = folder();
    let taken = Bare::start(answer("200 OK", "{}")).await;
    for (more, expected) in [
        (format!("[providers.demo]\nlisten = \"{}\"", taken.address), "providers.demo.listen"),
        ("[routes]\nsms = [\"nobody\"]\nemail = [\"demo\"]".to_owned(), "routes.sms"),
    ] {
        let error = registry(&folder, &more).await.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    // What the configuration's own check refuses first, built without it.
    let mut config =
        config("[providers.p]\nkind = \"http\"\nbase_url = \"http://127.0.0.1:1\"\nsecret = \"k\"");
    config.server.data_dir.clone_from(&folder);
    let make = |config: Config| async move {
        build(&config, system(), Arc::new(SystemEntropy), transport())
            .await
            .unwrap_err()
            .to_string()
    };
    let with = |change: &dyn Fn(&mut server::config::ProviderConfig)| {
        let mut config = config.clone();
        change(config.providers.get_mut("p").unwrap());
        config
    };
    let error = make(with(&|p| p.kind = "pigeon".to_owned())).await;
    let known: Vec<&str> = kinds().iter().map(|kind| kind.kind).collect();
    let known = known.join(", ");
    assert_eq!(error, format!("providers.p.kind: there is no kind \"pigeon\"; known are {known}"));
    assert!(
        make(with(&|p| p.base_url = None)).await.starts_with("providers.p.base_url is missing")
    );
    assert!(make(with(&|p| p.secret = None)).await.starts_with("providers.p.secret is missing"));
    let error = make(with(&|p| p.base_url = Some("http://u:hunter2@127.0.0.1".to_owned()))).await;
    assert!(
        error.starts_with("providers.p.base_url must not carry") && !error.contains("hunter2"),
        "{error}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

// ---------------------------------------------------------------------------------------------------
// The resolvers.

fn asked(channel: Channel) -> ResolveRequest {
    ResolveRequest {
        event_id: "ev-1".to_owned(),
        destination_ref: "dest-1".to_owned(),
        reset_ref: "rst-1".to_owned(),
        channel,
        purpose: "password_reset".to_owned(),
    }
}

async fn resolved(resolver: &dyn Resolver, channel: Channel) -> resolver::Resolved {
    match resolver.resolve(&asked(channel), soon()).await {
        Resolution::Found(resolved) => resolved,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_demo_resolver_says_the_same_in_every_process() {
    let sms = resolved(&resolver::Demo, Channel::Sms).await;
    let email = resolved(&resolver::Demo, Channel::Email).await;
    assert_eq!(sms, resolved(&resolver::Demo, Channel::Sms).await);
    assert_eq!(sms.to.expose(), DEMO_PHONE);
    assert_eq!(email.to.expose(), DEMO_EMAIL);
    assert_eq!(email.link.expose(), DEMO_LINK);
    assert_eq!(sms.link, email.link);
}

// Fixed for ever: other processes and later versions must compute the same.
const DEMO_PHONE: &str = "+14055550155";
const DEMO_EMAIL: &str = "seller-d1dea550bb1801eb@example.com";
const DEMO_LINK: &str = "https://example.com/reset/c7321ee7549982586b05d061a1b5c379";

#[tokio::test]
async fn a_directory_is_read_again_when_it_changes_and_silent_while_it_is_broken() {
    let folder = folder();
    let path = folder.join("refs.ndjson");
    let write = |phone: &str, more: &str| {
        let text = format!(
            "{{\"destination_ref\":\"dest-1\",\"phone\":\"{phone}\"}}\n{{\"reset_ref\":\"rst-1\",\"link\":\"https://example.com/r\"}}\n{more}"
        );
        std::fs::write(&path, text).unwrap();
    };
    write("+12025550123", "");
    let directory = resolver::Directory::open(&path).unwrap();
    assert_eq!(resolved(&directory, Channel::Sms).await.to.expose(), "+12025550123");
    assert_eq!(directory.resolve(&asked(Channel::Email), soon()).await, Resolution::NotFound);
    write("+12025550124", "\n");
    assert_eq!(resolved(&directory, Channel::Sms).await.to.expose(), "+12025550124");
    let unavailable = |code: &str| Resolution::Unavailable { code: code.to_owned() };
    write("+12025550125", "{\"destination_ref\":\"dest-1\",\"phone\":\"+12025550999\"}");
    assert_eq!(
        directory.resolve(&asked(Channel::Sms), soon()).await,
        unavailable("directory_broken")
    );
    let error = resolver::Directory::open(&path).unwrap_err().to_string();
    assert!(error.contains("line 3") && error.contains("repeats a destination_ref"), "{error}");
    assert!(!error.contains("dest-1") && !error.contains("2025550"), "{error}");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        directory.resolve(&asked(Channel::Sms), soon()).await,
        unavailable("directory_unreadable")
    );
    write("+12025550126", "");
    assert_eq!(resolved(&directory, Channel::Sms).await.to.expose(), "+12025550126");
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn the_http_resolver_asks_signed_and_has_three_answers() {
    let remote = |bare: &Bare| {
        resolver::Remote::new(
            &format!("{}/resolve?v=1", bare.url()),
            secret("s3cret"),
            system(),
            transport(),
        )
        .unwrap()
    };
    let bare =
        Bare::start(answer("200 OK", r#"{"phone":"+12025550123","link":"https://example.com/r"}"#))
            .await;
    assert_eq!(resolved(&remote(&bare), Channel::Sms).await.to.expose(), "+12025550123");
    let text = String::from_utf8(bare.requests().await[0].clone()).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /resolve?v=1 HTTP/1.1\r\n"), "{head}");
    let signed = head.lines().find_map(|line| line.strip_prefix("sendonce-signature: t=")).unwrap();
    let (at, v1) = signed.split_once(",v1=").unwrap();
    assert_eq!(v1, keys::sign(b"s3cret", format!("{at}.{body}").as_bytes()));
    let body: Value = serde_json::from_str(body).unwrap();
    let expected = json!({
        "event_id": "ev-1", "destination_ref": "dest-1", "reset_ref": "rst-1", "channel": "sms",
        "purpose": "password_reset",
    });
    assert_eq!(body, expected);

    let unavailable = |code: &str| Resolution::Unavailable { code: code.to_owned() };
    for (act, expected) in [
        (answer("404 Not Found", ""), Resolution::NotFound),
        (answer("401 Unauthorized", ""), unavailable("http_401")),
        (answer("410 Gone", ""), unavailable("http_410")),
        (answer("500 Internal Server Error", ""), unavailable("http_500")),
        (answer("302 Found", ""), unavailable("http_302")),
        (answer("200 OK", "<html>"), unavailable("bad_answer")),
        (Act::Close, unavailable("lost")),
        (Act::Hang, unavailable("timeout")),
    ] {
        let bare = Bare::start(act).await;
        let outcome = remote(&bare).resolve(&asked(Channel::Sms), within(&SystemClock, 500)).await;
        assert_eq!(outcome, expected);
        assert_eq!(bare.requests().await.len(), 1);
    }
}

#[tokio::test]
async fn no_error_and_no_debug_text_carries_an_address_a_link_or_a_key() {
    let bare = Bare::start(Act::Close).await;
    let provider =
        provider(&format!("{}/path-s3cret", bare.url()), "webhook_secret = \"h00k-h00k\"");
    let sent = message("a1");
    let failure = transport()
        .exchange(post(&format!("{}/path-s3cret", bare.url()), "body-s3cret"), soon())
        .await;
    let found = resolved(&resolver::Demo, Channel::Sms).await;
    let texts = format!(
        "{provider:?} {sent:?} {failure:?} {} {:?} {found:?}",
        failure.as_ref().unwrap_err(),
        provider.send(&sent, soon()).await
    );
    for hidden in [
        "2025550123",
        "t0ken",
        "k3y-k3y",
        "h00k",
        "body-s3cret",
        found.to.expose(),
        found.link.expose(),
    ] {
        assert!(!texts.contains(hidden), "{hidden} in {texts}");
    }
}
