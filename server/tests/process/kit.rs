//! The real binary in processes of its own, and a caller that speaks plain HTTP to it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};
use server::clock::Clock as _;

const BINARY: &str = env!("CARGO_BIN_EXE_sendonce");

/// The key that our `http` provider signs with.
pub const SECRET: &str = "a secret of the test run";
/// The key that callbacks are signed with.
pub const CALLBACK_SECRET: &str = "another secret of the test run";

/// How long anything may take before the test gives up. Not a promise about speed.
const PATIENCE: Duration = Duration::from_secs(40);
const PAUSE: Duration = Duration::from_millis(25);

/// Until `done` is something, or the test fails saying what it waited for.
pub fn wait_for<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    for _ in 0..(PATIENCE.as_millis() / PAUSE.as_millis()) {
        if let Some(value) = done() {
            return value;
        }
        sleep(PAUSE);
    }
    panic!("waited in vain for {what}");
}

/// A port that is free: below the range from which the system takes the local ports of connections, so that
/// none of the many connections of a test run can take it before its server does.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = 12_000 + std::process::id() % 100 * 170;
    for _ in 0..10_000 {
        let n = NEXT.fetch_add(1, Ordering::SeqCst);
        let port = u16::try_from(12_000 + (first + n - 12_000) % 18_000).expect("below 30 000");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

/// An answer: status, headers in lower case, body.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: String,
    /// As they came.
    pub headers_raw: String,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    pub fn is_replayed(&self) -> bool {
        self.headers.contains("idempotency-replayed: true")
    }
}

/// One request on a connection of its own. Status 0: no answer.
pub fn request(
    port: u16,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let nothing = Answer {
        status: 0,
        headers: String::new(),
        headers_raw: String::new(),
        text: String::new(),
    };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(2)) else {
        return nothing;
    };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let mut answer = Vec::new();
    let done = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body))
        .and_then(|()| stream.read_to_end(&mut answer));
    if done.is_err() && answer.is_empty() {
        return nothing;
    }
    let text = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let headers_raw = head.to_owned();
    let headers = head.to_lowercase();
    let body = if headers.contains("transfer-encoding: chunked") {
        unchunk(body)
    } else {
        body.to_owned()
    };
    Answer { status, headers, headers_raw, text: body }
}

fn unchunk(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else { break };
        if size == 0 || rest.len() < size {
            break;
        }
        text.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    text
}

/// A folder that goes with its test.
#[derive(Debug)]
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::SeqCst);
        let path =
            std::env::temp_dir().join(format!("sendonce-process-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that is ended with its test.
#[derive(Debug)]
pub struct Process(pub Child);

impl Process {
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// SIGTERM, then waits for the end.
    pub fn terminate(&mut self) {
        let pid = i32::try_from(self.0.id()).expect("a process id");
        let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .expect("the process is ours");
        wait_for("the process to end", || self.0.try_wait().expect("is a child"));
    }

    /// SIGSTOP or SIGCONT.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.0.id()).expect("a process id");
        let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
        rustix::process::kill_process(pid, signal).expect("the process is ours");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The provider simulator, as a server.
#[derive(Debug)]
pub struct Simulator {
    pub port: u16,
    _process: Process,
}

/// Runs the binary with this database; gives how it ended and what it said on standard error.
pub fn run_with(folder: &Path, database: &str, args: &[&str]) -> (Option<i32>, String) {
    let done = Command::new(BINARY)
        .args(args)
        .current_dir(folder)
        .env("DATABASE_URL", database)
        .output()
        .expect("runs");
    (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
}

impl Simulator {
    pub fn start() -> Self {
        let port = free_port();
        let process = Command::new(BINARY)
            .args(["simulator", "--listen", &format!("127.0.0.1:{port}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the simulator starts");
        let this = Self { port, _process: Process(process) };
        wait_for("the simulator", || (this.get("/_control/calls").status == 200).then_some(()));
        this
    }

    fn get(&self, path: &str) -> Answer {
        request(self.port, "GET", path, &[], b"")
    }

    /// One behaviour per call in order, the last one repeats.
    pub fn script(&self, behaviours: &[Value]) {
        let body = json!({"provider": "http", "match": {}, "behaviour": behaviours}).to_string();
        let headers = [("content-type", "application/json")];
        let answer = request(self.port, "POST", "/_control/script", &headers, body.as_bytes());
        assert!((200..300).contains(&answer.status), "{answer:?}");
    }

    pub fn calls(&self) -> usize {
        count(&self.get("/_control/calls").json(), "calls")
    }

    pub fn messages(&self) -> usize {
        count(&self.get("/_control/messages").json(), "messages")
    }
}

fn count(answer: &Value, list: &str) -> usize {
    answer[list].as_array().or_else(|| answer.as_array()).map_or(0, Vec::len)
}

/// How a test wants its server.
#[derive(Debug, Clone)]
pub struct Setting {
    pub provider_port: u16,
    /// More lines of the provider's section.
    pub provider: String,
    pub margin: &'static str,
    pub call_timeout: &'static str,
    pub backoff_first: &'static str,
    pub poll_for: &'static str,
    pub grace: &'static str,
    pub roles: Option<&'static str>,
    /// A PostgreSQL database of its own instead of the embedded one.
    pub database: Option<String>,
    /// Where migrations go, if not there.
    pub migrate_at: Option<String>,
    /// The resolver's section.
    pub resolver: String,
    /// More of the environment.
    pub env: Vec<(&'static str, String)>,
}

impl Setting {
    pub fn at(provider_port: u16) -> Self {
        Self {
            provider_port,
            provider: "settle = \"300ms\"\nlookup = true".to_owned(),
            margin: "1s",
            call_timeout: "1s",
            backoff_first: "200ms",
            poll_for: "3s",
            grace: "5s",
            roles: None,
            database: None,
            migrate_at: None,
            resolver: "kind = \"demo\"".to_owned(),
            env: Vec::new(),
        }
    }
}

/// The server under test.
#[derive(Debug)]
pub struct App {
    pub port: u16,
    pub key: String,
    pub process: Process,
    folder: Folder,
    setting: Setting,
}

impl App {
    pub fn start(setting: Setting) -> Self {
        let folder = Folder::new();
        let port = free_port();
        let provider_path = if setting.provider.contains("# root") { "" } else { "/http" };
        let config = format!(
            r#"
[server]
listen = "127.0.0.1:{port}"
public_url = "http://127.0.0.1:{port}"
data_dir = "{data}"
grace = "{grace}"
[admission]
min_lifetime = "4s"
[resolver]
{resolver}
timeout = "500ms"
[dispatch]
margin = "{margin}"
lease = "4s"
call_timeout = "{call_timeout}"
attempts_max = 3
backoff_first = "{backoff}"
[reconcile]
first_poll = "200ms"
max_poll = "500ms"
poll_for = "{poll_for}"
[routes]
sms = ["post"]
email = ["post"]
[providers.post]
kind = "http"
base_url = "http://127.0.0.1:{provider_port}{provider_path}"
secret = "{SECRET}"
webhook_secret = "{CALLBACK_SECRET}"
{provider}
"#,
            data = folder.0.join("data").display(),
            grace = setting.grace,
            resolver = setting.resolver,
            margin = setting.margin,
            call_timeout = setting.call_timeout,
            backoff = setting.backoff_first,
            poll_for = setting.poll_for,
            provider_port = setting.provider_port,
            provider = setting.provider,
        );
        std::fs::write(folder.0.join("sendonce.toml"), config).expect("writes the configuration");
        let env = environment(&setting);
        if setting.database.is_some() {
            let done = Command::new(BINARY)
                .args(["migrate", "--config", "sendonce.toml"])
                .current_dir(&folder.0)
                .envs(env.clone())
                .envs(setting.migrate_at.iter().map(|url| ("DATABASE_URL", url)))
                .status();
            assert!(done.expect("migrates").success());
        }
        let process = spawn(&folder.0, setting.roles, &env);
        let mut this = Self { port, key: String::new(), process, folder, setting };
        this.ready();
        this.key = this.client(&["admit", "status", "cancel", "freeze"]);
        this
    }

    /// Starts the binary again on the same data, with all roles.
    pub fn start_again(&mut self) {
        self.setting.roles = None;
        self.process = spawn(&self.folder.0, None, &environment(&self.setting));
        self.ready();
    }

    /// Another process on the same database and keys; ready when it is given.
    pub fn join(&self, roles: &str) -> (u16, Process) {
        let port = free_port();
        let mut env = environment(&self.setting);
        env.push(("SENDONCE_SERVER__LISTEN".to_owned(), format!("127.0.0.1:{port}")));
        let process = spawn(&self.folder.0, Some(roles), &env);
        wait_for("the other process", || {
            (request(port, "GET", "/readyz", &[], b"").status == 200).then_some(())
        });
        (port, process)
    }

    fn ready(&mut self) {
        wait_for("readiness", || {
            if let Ok(Some(status)) = self.process.0.try_wait() {
                panic!("the server ended: {status}\n{}", self.log());
            }
            (request(self.port, "GET", "/readyz", &[], b"").status == 200).then_some(())
        });
    }

    /// Starts a process with this environment that must refuse to serve (exit code 2); gives what it said.
    pub fn refused(&self, env: &[(&str, &str)]) -> String {
        let done = Command::new(BINARY)
            .args(["serve", "--config", "sendonce.toml"])
            .current_dir(&self.folder.0)
            .envs(environment(&self.setting))
            .envs(env.iter().copied())
            .output()
            .expect("runs");
        assert_eq!(done.status.code(), Some(2));
        String::from_utf8_lossy(&done.stderr).into_owned()
    }

    /// Everything that the server has of its own: configuration, data, log.
    pub fn folder(&self) -> &Path {
        &self.folder.0
    }

    /// The file of the configuration; its paths are absolute.
    pub fn config(&self) -> PathBuf {
        self.folder.0.join("sendonce.toml")
    }

    /// Whether the server's folder has this file.
    pub fn has(&self, name: &str) -> bool {
        self.folder.0.join(name).exists()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.0.join("serve.log")).unwrap_or_default()
    }

    /// Runs a command; gives its standard output.
    pub fn cli(&self, args: &[&str]) -> String {
        let (code, said, error) = self.try_cli(args, "");
        assert_eq!(code, Some(0), "{args:?}: {error}");
        said
    }

    /// Runs a command with this standard input; gives its exit code and what it said on both outputs.
    pub fn try_cli(&self, args: &[&str], input: &str) -> (Option<i32>, String, String) {
        let mut child = Command::new(BINARY)
            .args(args)
            .args(["--config", "sendonce.toml"])
            .current_dir(&self.folder.0)
            .envs(environment(&self.setting))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        if let Some(mut stdin) = child.stdin.take() {
            // A command that reads nothing may have ended already.
            let _ = stdin.write_all(input.as_bytes());
        }
        let done = child.wait_with_output().expect("the command ends");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    }

    pub fn client(&self, scopes: &[&str]) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("client-{}", COUNT.fetch_add(1, Ordering::SeqCst));
        let mut args = vec!["client", "add", "--name", &name];
        for scope in scopes {
            args.extend(["--scope", scope]);
        }
        self.cli(&args).trim().to_owned()
    }

    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let authorization = format!("Bearer {}", self.key);
        let headers =
            [("authorization", authorization.as_str()), ("content-type", "application/json")];
        let body = body.map(ToString::to_string).unwrap_or_default();
        request(self.port, method, path, &headers, body.as_bytes())
    }

    /// Admits a new event that lives so long; gives its record.
    pub fn admit(&self, seconds: i64) -> Value {
        let answer = self.call("POST", "/v1/events", Some(&event(seconds)));
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.json()
    }

    pub fn record(&self, id: &str) -> Value {
        self.call("GET", &format!("/v1/events/{id}"), None).json()
    }

    /// Waits until the record is in one of these states; gives it.
    pub fn until(&self, id: &str, states: &[&str]) -> Value {
        wait_for(&format!("{states:?}"), || {
            let record = self.record(id);
            let state = record["state"].as_str().unwrap_or_default();
            states.contains(&state).then_some(record)
        })
    }

    /// Reasons and kinds of the timeline, in order.
    pub fn story(&self, id: &str) -> Vec<String> {
        let facts = self.call("GET", &format!("/v1/events/{id}/timeline"), None).json();
        facts["facts"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
            .iter()
            .map(|fact| {
                let word = fact["reason"].as_str().or(fact["kind"].as_str());
                word.unwrap_or_default().to_owned()
            })
            .collect()
    }

    pub fn facts(&self, id: &str) -> Vec<Value> {
        let facts = self.call("GET", &format!("/v1/events/{id}/timeline"), None).json();
        facts["facts"].as_array().cloned().unwrap_or_default()
    }

    pub fn freeze(&self, scope: &str) -> Value {
        let body = json!({"reason": "check"});
        let answer = self.call("PUT", &format!("/v1/freezes/{scope}"), Some(&body));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    pub fn unfreeze(&self, scope: &str) {
        let answer = self.call("DELETE", &format!("/v1/freezes/{scope}"), None);
        assert_eq!(answer.status, 204, "{answer:?}\n{}", self.log());
    }

    /// A signed callback about an attempt.
    pub fn callback(&self, attempt_id: &str, state: &str) -> Answer {
        let now = server::clock::SystemClock.now().micros() / 1_000_000;
        let body =
            json!({"attempt_id": attempt_id, "message_id": "m-late", "state": state, "at": utc(0)})
                .to_string();
        let signature =
            server::keys::sign(CALLBACK_SECRET.as_bytes(), format!("{now}.{body}").as_bytes());
        let header = format!("t={now},v1={signature}");
        let headers =
            [("sendonce-signature", header.as_str()), ("content-type", "application/json")];
        request(self.port, "POST", "/webhooks/post", &headers, body.as_bytes())
    }
}

fn environment(setting: &Setting) -> Vec<(String, String)> {
    let database = setting.database.iter().map(|url| ("DATABASE_URL".to_owned(), url.clone()));
    let more = setting.env.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    database.chain(more).collect()
}

fn spawn(folder: &Path, roles: Option<&str>, env: &[(String, String)]) -> Process {
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("serve.log"))
        .expect("a log");
    let mut command = Command::new(BINARY);
    command.args(["serve", "--config", "sendonce.toml"]).current_dir(folder);
    command.envs(env.iter().cloned());
    if let Some(roles) = roles {
        command.args(["--roles", roles]);
    }
    let errors = log.try_clone().expect("the same log");
    Process(command.stdout(log).stderr(errors).spawn().expect("the server starts"))
}

/// RFC 3339, so many seconds from now.
pub fn utc(seconds: i64) -> String {
    server::clock::SystemClock.now().plus(seconds * 1_000_000).to_string()
}

/// A new event that lives so long.
pub fn event(seconds: i64) -> Value {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let n = COUNT.fetch_add(1, Ordering::SeqCst);
    let run = std::process::id();
    json!({
        "event_id": format!("ev-{run}-{n}"),
        "idempotency_key": format!("key-{run}-{n}"),
        "destination_ref": format!("dest-{n}"),
        "reset_ref": format!("reset-{n}"),
        "expires_at": utc(seconds),
    })
}
