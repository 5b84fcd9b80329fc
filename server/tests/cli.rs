//! The command line as people and scripts use it: the real binary, its streams and its exit codes.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Ends with the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_simulator_takes_mail_on_a_port_of_its_own_and_counts_it() {
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::net::{TcpListener, TcpStream};

    let spare = || TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let (web, mail) = (spare().to_string(), spare().to_string());
    let child = Command::new(env!("CARGO_BIN_EXE_sendonce"))
        .args(["simulator", "--listen", &web, "--smtp", &mail])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let _ended = Ended(child);
    let connect = |address: &str| {
        for _ in 0..600 {
            if let Ok(stream) = TcpStream::connect(address) {
                return stream;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("{address} did not open within 30 s");
    };
    let mut stream = connect(&mail);
    let mut lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
    let mut said = |stream: &mut TcpStream, text: &str| {
        stream.write_all(text.as_bytes()).expect("written");
        lines.next().expect("a reply").expect("read").get(..3).map(str::to_owned).expect("a code")
    };
    let letter = "Message-ID: <attempt-1@example.com>\r\n\r\nHello\r\n.\r\n";
    let codes: Vec<String> = [
        "",
        "HELO me\r\n",
        "MAIL FROM:<a@example.com>\r\n",
        "RCPT TO:<b@example.com>\r\n",
        "DATA\r\n",
        letter,
    ]
    .iter()
    .map(|text| said(&mut stream, text))
    .collect();
    assert_eq!(codes, ["220", "250", "250", "250", "354", "250"]);
    let mut control = connect(&web);
    control
        .write_all(b"GET /_control/messages?attempt=attempt-1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .expect("written");
    let mut answer = String::new();
    control.read_to_string(&mut answer).expect("read");
    assert!(answer.contains("\"count\":1") && answer.contains("\"provider\":\"smtp\""), "{answer}");
    assert!(!answer.contains("Hello"));
}

/// A folder of its own with a configuration, removed at the end.
struct Place {
    folder: PathBuf,
}

impl Place {
    fn new(extra: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("sendonce-cli-{}-{number}", std::process::id()));
        std::fs::create_dir_all(folder.join("data")).expect("a temporary folder");
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\npublic_url = \"http://127.0.0.1:3000\"\n\
             data_dir = \"{}/data\"\n{extra}",
            folder.display()
        );
        std::fs::write(folder.join("sendonce.toml"), text).expect("a configuration");
        Self { folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.join("sendonce.toml")
    }

    fn run(&self, arguments: &[&str]) -> Answer {
        self.run_with(arguments, "", &[])
    }

    fn run_with(&self, arguments: &[&str], typed: &str, env: &[(&str, &str)]) -> Answer {
        let file = self.file().display().to_string();
        let all: Vec<&str> = arguments.iter().copied().chain(["--config", &file]).collect();
        sendonce(&self.folder, &all, typed, env)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[derive(Debug)]
struct Answer {
    exit: i32,
    out: String,
    err: String,
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        Self {
            exit: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Answer {
    fn done(self) -> Self {
        assert_eq!(self.exit, 0, "{self:#?}");
        self
    }

    /// One error line with this in it.
    fn refused(self, exit: i32, words: &str) -> Self {
        assert_eq!(self.exit, exit, "{self:#?}");
        let errors: Vec<&str> = self.err.lines().filter(|l| l.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "{self:#?}");
        assert!(errors[0].contains(words), "{self:#?}");
        self
    }
}

fn sendonce(folder: &Path, arguments: &[&str], typed: &str, env: &[(&str, &str)]) -> Answer {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sendonce"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("DATABASE_URL")
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A command that reads nothing may have ended already.
    let _ = child.stdin.take().expect("its input").write_all(typed.as_bytes());
    child.wait_with_output().expect("the binary ends").into()
}

#[test]
fn help_and_version_are_0_and_wrong_usage_is_2() {
    let place = Place::new("");
    for line in ["--help", "--version", "serve --help", "client add --help", "config check --help"]
    {
        let arguments: Vec<&str> = line.split(' ').collect();
        assert!(!place.run(&arguments).done().out.is_empty(), "{line}");
    }
    for line in ["", "nonsense", "serve --roles nonsense", "client add --name x", "find"] {
        let arguments: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        assert_eq!(place.run(&arguments).exit, 2, "{line}");
    }
}

#[test]
fn config_check_shows_what_is_in_force_with_secrets_hidden() {
    let place = Place::new(
        "[providers.p]\nkind = \"http\"\nbase_url = \"https://x.example\"\nsecret = \"canary\"\n",
    );
    let answer = place
        .run_with(&["config", "check"], "", &[("DATABASE_URL", "postgres://u:canary@db.example/x")])
        .done();
    assert!(answer.out.contains("secret = \"[hidden]\""), "{answer:?}");
    assert!(answer.out.contains("postgres://u:[hidden]@db.example/x"), "{answer:?}");
    assert!(!format!("{answer:?}").contains("canary"));
}

#[test]
fn an_unsafe_or_unreadable_configuration_is_2_with_one_line_a_problem() {
    let place = Place::new("[dispatch]\nlease = \"2s\"\n");
    place.run(&["config", "check"]).refused(2, "dispatch.lease: 2s is shorter than");
    place.run(&["serve"]).refused(2, "dispatch.lease: 2s is shorter than");
    let place = Place::new("[dispatch]\nlaese = \"2s\"\n");
    place.run(&["config", "check"]).refused(2, "did you mean dispatch.lease?");
    place.run(&["freezes"]).refused(2, "did you mean dispatch.lease?");
    let place = Place::new("");
    let env = [("SENDONCE_DISPATCH__WORKERS", "many")];
    place.run_with(&["config", "check"], "", &env).refused(2, "in SENDONCE_DISPATCH__WORKERS");
    let missing = ["config", "check", "--config", "/nonexistent/sendonce.toml"];
    sendonce(&place.folder, &missing, "", &[]).refused(2, "/nonexistent/sendonce.toml");
}

#[test]
fn the_file_in_the_working_directory_is_the_default() {
    let place = Place::new("[dispatch]\nworkers = 77\n");
    let answer = sendonce(&place.folder, &["config", "check"], "", &[]).done();
    assert!(answer.out.contains("workers = 77"), "{answer:?}");
}

#[test]
fn kinds_of_providers_are_listed_without_a_configuration() {
    let place = Place::new("");
    std::fs::remove_file(place.file()).expect("the configuration");
    let answer = sendonce(&place.folder, &["provider", "list"], "", &[]).done();
    for kind in ["demo", "http", "ses", "mailgun", "twilio", "infobip"] {
        assert!(answer.out.contains(kind), "{answer:?}");
    }
}

#[test]
fn a_server_that_is_not_there_is_not_ready() {
    let place = Place::new("");
    place.run(&["healthcheck", "--url", "http://127.0.0.1:9/readyz"]).refused(1, "not ready");
    place.run(&["healthcheck", "--url", "https://127.0.0.1:9/readyz"]).refused(2, "--url");
}

#[test]
fn the_key_of_a_client_stands_alone_on_standard_output() {
    let place = Place::new("");
    let add = ["client", "add", "--name", "identity", "--scope", "admit", "--scope", "status"];
    let answer = place.run(&add).done();
    assert_eq!(answer.out.split_whitespace().count(), 1, "{answer:?}");
    assert_eq!(answer.out.lines().count(), 1);
    assert!(answer.out.trim().len() >= 32 && !answer.err.contains(answer.out.trim()));
    let list = place.run(&["client", "list"]).done();
    assert!(list.out.contains("identity") && list.out.contains("admit,status"), "{list:?}");
    assert!(!list.out.contains(answer.out.trim()));
    place.run(&["client", "revoke", "identity"]).done();
    place.run(&["client", "revoke", "nobody"]).refused(1, "no client");
    place.run(&["client", "add", "--name", "a@example.com", "--scope", "admit"]).refused(2, "name");
}

#[test]
fn operators_are_added_listed_changed_and_disabled() {
    let place = Place::new("");
    let add = ["user", "add", "--email", "ops@example.com", "--role", "oncall", "--password-stdin"];
    place.run_with(&add, "short\n", &[]).refused(2, "fewer than 12 characters");
    let answer = place.run_with(&add, "correct horse battery\n", &[]).done();
    assert!(!answer.out.contains("correct horse") && !answer.err.contains("correct horse"));
    place.run_with(&add, "correct horse battery\n", &[]).refused(1, "");
    let list = place.run(&["user", "list"]).done();
    assert!(list.out.contains("ops@example.com") && list.out.contains("oncall"), "{list:?}");
    let passwd = ["user", "passwd", "--email", "ops@example.com", "--password-stdin"];
    place.run_with(&passwd, "another good one\n", &[]).done();
    place.run(&["user", "disable", "--email", "ops@example.com"]).done();
    place.run(&["user", "disable", "--email", "nobody@example.com"]).refused(1, "no operator");
    // There is no terminal here to ask on, or what it would ask is never answered.
    let list = place.run(&["user", "list", "--json"]).done();
    assert!(list.out.contains("\"disabled_at\": \"20"), "{list:?}");
}

#[test]
fn a_freeze_is_kept_listed_and_ended() {
    let place = Place::new("");
    let freeze = ["freeze", "--scope", "channel:sms", "--reason", "INC-2291", "--review-in", "30m"];
    assert!(place.run(&freeze).done().out.starts_with("frozen: channel:sms, since 20"));
    assert!(
        place.run(&freeze).done().out.starts_with("frozen: channel:sms, since 20"),
        "repeatable"
    );
    let list = place.run(&["freezes"]).done();
    assert!(list.out.contains("channel:sms") && list.out.contains("INC-2291"), "{list:?}");
    place.run(&["unfreeze", "--scope", "channel:sms"]).done();
    assert!(place.run(&["freezes"]).done().err.contains("nothing is frozen"));
    place
        .run(&["freeze", "--reason", "ask a@example.com"])
        .refused(2, "the reason has what looks like");
    place
        .run(&["freeze", "--scope", "provider:nobody", "--reason", "x"])
        .refused(2, "no such scope");
}

#[test]
fn a_freeze_does_not_wait_for_a_safe_configuration() {
    let place = Place::new("[dispatch]\nlease = \"2s\"\n");
    place.run(&["freeze", "--reason", "INC-2291"]).done();
}

fn event(number: u32, extra: &str) -> String {
    format!(
        "{{\"event_id\":\"ev-{number}\",\"idempotency_key\":\"key-{number}\",\
         \"destination_ref\":\"dest-{number}\",\"reset_ref\":\"rst-{number}\",\
         \"expires_at\":\"{}\"{extra}}}\n",
        in_an_hour()
    )
}

/// Constant within the test, so that the same event is the same content.
fn in_an_hour() -> String {
    use std::sync::OnceLock;
    static AT: OnceLock<String> = OnceLock::new();
    use server::clock::Clock as _;
    AT.get_or_init(|| server::clock::SystemClock.now().plus(3_600_000_000).to_string()).clone()
}

#[test]
fn events_are_admitted_from_a_file_and_from_standard_input_and_found() {
    let place = Place::new("");
    let text = format!("{}\n{}{}", event(1, ""), event(2, ""), event(1, ""));
    let file = place.folder.join("events.ndjson");
    std::fs::write(&file, &text).expect("a file");
    let answer = place.run(&["admit", "--file", &file.display().to_string()]).done();
    assert!(
        answer.out.contains("202 admitted          2\n202 replayed          1\n"),
        "{answer:?}"
    );
    let again = place.run_with(&["admit", "--file", "-"], &text, &[]).done();
    assert!(again.out.contains("202 admitted          0\n202 replayed          3\n"), "{again:?}");

    let found = place.run(&["find", "ev-1"]).done();
    assert!(found.out.contains("event         ev-1\n"), "{found:?}");
    assert!(found.out.contains("SEQ  AT (UTC)"), "{found:?}");
    let json = place.run(&["find", "ev-1", "--json"]).done();
    let value: serde_json::Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(value["record"]["event_id"], "ev-1");
    let by_id = place.run(&["find", value["record"]["id"].as_str().expect("an id")]).done();
    assert!(by_id.out.contains("event         ev-1\n"));
    place.run(&["find", "ev-3"]).refused(1, "no notification");
    place.run(&["find", "+15550100001"]).refused(2, "neither an id nor an event id");
}

#[test]
fn lines_that_are_refused_are_named_by_number_and_code_and_never_repeated() {
    let place = Place::new("");
    let text = [
        event(1, ""),
        event(2, ",\"extra\":\"canary\""),
        "canary\n".to_owned(),
        event(3, "").replace("dest-3", "+15550100001"),
        event(1, "").replace("rst-1", "rst-x"),
        "{\"event_id\":\"a\",\"event_id\":\"b\"}\n".to_owned(),
        event(4, "").replace("rst-4", &"x".repeat(20_000)),
    ]
    .concat();
    let answer =
        place.run_with(&["admit", "--file", "-"], &text, &[]).refused(1, "6 lines were not");
    for words in [
        "line 2: 400 ",
        "line 3: 400 ",
        "line 4: 400 ",
        "line 5: 409 payload_mismatch",
        "line 6: 400 ",
    ] {
        assert!(answer.err.contains(words), "{words} in {answer:#?}");
    }
    assert!(answer.err.contains("line 7: 413 event_too_large"), "{answer:#?}");
    assert!(answer.err.contains("raw_destination"), "{answer:#?}");
    assert!(answer.out.contains("202 admitted          1\n"), "{answer:#?}");
    assert!(!answer.err.contains("canary") && !answer.err.contains("5550100001"));
    place.run(&["admit", "--file", "/nonexistent"]).refused(2, "cannot read the file");
}
