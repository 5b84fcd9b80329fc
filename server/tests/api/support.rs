//! One server without its loops: the router, its store, and the file behind it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use app::model::Stamp;
use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use server::admission::AdmissionService;
use server::clock::{Clock, ManualClock};
use server::config::Config;
use server::entropy::{Entropy, SystemEntropy};
use server::http::api::{ApiState, api_router};
use server::http::auth::add_client;
use server::keys::Keys;
use server::outbox::Wakeups;
use server::providers::net::HttpTransport;
use server::providers::{Provider, Registry};
use server::store::{self, Env, Store};
use sqlx::sqlite::SqlitePool;
use tower::ServiceExt as _;

use crate::schema;

/// The key of the callbacks of the provider `fake`.
pub const WEBHOOK_KEY: &str = "whsec-whsec-whsec-whsec";

/// Where the test's clock starts.
pub const START: &str = "2026-09-21T14:13:20.123456Z";

const CONFIG: &str = r#"
[server]
public_url = "https://sendonce.example.com"
[admission]
min_lifetime = "15s"
max_lifetime = "1h"
[routes]
sms = ["fake"]
email = ["fake"]
[providers.fake]
kind = "http"
base_url = "http://127.0.0.1:9"
secret = "s3cret-s3cret-s3cret"
webhook_secret = "whsec-whsec-whsec-whsec"
[providers.mute]
kind = "http"
base_url = "http://127.0.0.1:9"
secret = "s3cret-s3cret-s3cret"
"#;

/// A server, its file and a key with every scope. The folder goes with it.
pub struct Api {
    pub router: Router,
    pub store: Arc<dyn Store>,
    pub clock: ManualClock,
    pub env: Env,
    pub key: String,
    pub client_id: String,
    pub db: SqlitePool,
    dir: PathBuf,
}

impl Drop for Api {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// One answer, read whole.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }

    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    pub fn id(&self) -> String {
        self.json()["id"].as_str().unwrap_or_default().to_owned()
    }

    pub fn is_replay(&self) -> bool {
        self.headers.get("idempotency-replayed").is_some_and(|value| value == "true")
    }

    /// `field:code` of each error, joined.
    pub fn errors(&self) -> String {
        let empty = Vec::new();
        let body = self.json();
        body["errors"]
            .as_array()
            .unwrap_or(&empty)
            .iter()
            .map(|e| format!("{}:{}", e["field"].as_str().unwrap(), e["code"].as_str().unwrap()))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

impl Api {
    pub async fn new() -> Self {
        Self::with(&[], BTreeMap::new()).await
    }

    /// With some lines of the configuration changed, or with these providers and no others.
    pub async fn with(
        changes: &[(&str, &str)],
        instead: BTreeMap<String, Arc<dyn Provider>>,
    ) -> Self {
        keep_log();
        let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
        let dir = std::env::temp_dir().join(format!("sendonce-api-{}", entropy.hex(8)));
        std::fs::create_dir_all(&dir).unwrap();
        let clock = ManualClock::new(Stamp::parse(START).unwrap());
        let text = changes.iter().fold(CONFIG.to_owned(), |text, (from, to)| {
            assert!(text.contains(from));
            text.replace(from, to)
        });
        let config = Config::parse("test", &text, std::iter::empty()).unwrap();
        let dyn_clock: Arc<dyn Clock> = Arc::new(clock.clone());
        let transport = Arc::new(HttpTransport::new(Arc::clone(&dyn_clock)));
        let registry = if instead.is_empty() {
            let mut config = config.clone();
            config.server.data_dir = dir.clone();
            server::providers::build(
                &config,
                Arc::clone(&dyn_clock),
                Arc::clone(&entropy),
                transport,
            )
            .await
            .unwrap()
        } else {
            Registry::of(instead)
        };
        let rules = server::node::rules(&config, Some(&registry));
        let env = Env {
            clock: Arc::clone(&dyn_clock),
            entropy: Arc::clone(&entropy),
            keys: Arc::new(Keys::generate(&*entropy)),
            rules: Arc::new(rules),
        };
        let url = format!("sqlite://{}/sendonce.db", dir.display());
        let store = store::open(&url, env.clone()).await.unwrap();
        store.migrate().await.unwrap();
        let scopes: Vec<String> = ["admit", "status", "consume", "cancel", "freeze"]
            .iter()
            .map(|scope| (*scope).to_owned())
            .collect();
        let (client, key) = add_client(&*store, &*entropy, "test", &scopes).await.unwrap();
        let wakeups = Wakeups::default();
        let state = ApiState {
            store: Arc::clone(&store),
            admission: Arc::new(AdmissionService::new(
                Arc::clone(&store),
                &env,
                &config,
                wakeups.clone(),
            )),
            registry: Arc::new(registry),
            wakeups,
            clock: dyn_clock,
            entropy,
            keys: Arc::clone(&env.keys),
            public_url: config.server.public_url.clone().into(),
        };
        let db = SqlitePool::connect(&url).await.unwrap();
        Self { router: api_router(state), store, clock, env, key, client_id: client.id, db, dir }
    }

    /// A key with these scopes only.
    pub async fn key_with(&self, scopes: &[&str]) -> String {
        let scopes: Vec<String> = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        let name = self.env.entropy.hex(8);
        add_client(&*self.store, &*self.env.entropy, &name, &scopes).await.unwrap().1
    }

    /// Sends one request and checks what holds for every answer.
    pub async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let answer = Answer {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        };
        check_any(&answer);
        answer
    }

    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.call_as(Some(&self.key), method, path, body).await
    }

    pub async fn call_as(
        &self,
        key: Option<&str>,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Answer {
        let body = body.map(|body| serde_json::to_vec(&body).unwrap());
        self.send(request(key, method, path, body)).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, None).await
    }

    pub async fn admit(&self, event: &Value) -> Answer {
        self.admit_raw(serde_json::to_vec(event).unwrap()).await
    }

    pub async fn admit_raw(&self, body: impl Into<Vec<u8>>) -> Answer {
        let request = request(Some(&self.key), Method::POST, "/v1/events", Some(body.into()));
        let answer = self.send(request).await;
        if answer.status == StatusCode::ACCEPTED {
            schema::check(&server::http::schema::record(), &answer.json()).unwrap();
        }
        answer
    }

    /// An event with a name of its own.
    pub fn event(&self, name: &str) -> Value {
        json!({
            "event_id": format!("ev-{name}"),
            "idempotency_key": format!("key-{name}"),
            "destination_ref": format!("dest-{name}"),
            "reset_ref": format!("rst-{name}"),
            "expires_at": self.clock.now().plus(600_000_000).to_string(),
        })
    }

    /// How many rows of a table (and a condition) the file holds.
    pub async fn count(&self, from: &'static str) -> i64 {
        let sql = format!("SELECT COUNT(*) FROM {from}");
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&self.db).await.unwrap()
    }

    /// The kinds of facts of a record, oldest first.
    pub async fn kinds(&self, id: &str) -> Vec<String> {
        let answer = self.get(&format!("/v1/events/{id}/timeline")).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        let body = answer.json();
        for fact in body["facts"].as_array().unwrap() {
            schema::check(&server::http::schema::fact(), fact).unwrap();
        }
        body["facts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|fact| fact["kind"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// The event with one field changed; `null` takes it out.
pub fn changed(event: &Value, field: &str, value: Value) -> Value {
    let mut event = event.clone();
    let map = event.as_object_mut().unwrap();
    if value.is_null() {
        map.remove(field);
    } else {
        map.insert(field.to_owned(), value);
    }
    event
}

pub fn request(
    key: Option<&str>,
    method: Method,
    path: &str,
    body: Option<Vec<u8>>,
) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    match body {
        Some(body) => request
            .header("content-type", "application/json")
            .header("content-length", body.len())
            .body(Body::from(body)),
        None => request.body(Body::empty()),
    }
    .unwrap()
}

/// What no answer of this API breaks: it is JSON, it has an id, and a refusal is a problem.
fn check_any(answer: &Answer) {
    let media = answer.headers.get("content-type").map(|value| value.to_str().unwrap().to_owned());
    let id = answer.headers.get("x-request-id").map(|value| value.to_str().unwrap().to_owned());
    assert!(id.is_some(), "no request id: {answer:?}");
    assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    assert!(answer.headers.contains_key("cache-control"));
    if answer.status.is_success() {
        if answer.status != StatusCode::NO_CONTENT && !answer.text.is_empty() {
            assert_eq!(media.as_deref(), Some("application/json"), "{answer:?}");
        }
        return;
    }
    assert_eq!(media.as_deref(), Some("application/problem+json"), "{answer:?}");
    if answer.text.is_empty() {
        return;
    }
    let body = answer.json();
    schema::check(&server::http::schema::problem(), &body).unwrap();
    assert_eq!(body["status"], answer.status.as_u16());
    assert_eq!(body["request_id"].as_str(), id.as_deref());
    assert_eq!(body["type"], format!("urn:sendonce:problem:{}", answer.code()));
}

/// This test process's metrics: there is one recorder a process.
pub fn metrics() -> metrics_exporter_prometheus::PrometheusHandle {
    static HANDLE: OnceLock<metrics_exporter_prometheus::PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(|| server::http::metrics::install(["demo", "fake", "mute"]).unwrap()).clone()
}

static LOG: std::sync::Mutex<Vec<u8>> = std::sync::Mutex::new(Vec::new());

/// What all tests of this process have logged so far, at the finest level.
pub fn logged() -> String {
    String::from_utf8(LOG.lock().unwrap().clone()).unwrap()
}

struct Log;

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn keep_log() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(|| Log)
            .init();
    });
}
