//! Marker values are driven through every flow, those that fail too; afterwards nothing that is kept, logged or shown
//! holds one of them.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::{
    Answer, App, CALLBACK_SECRET, SECRET, Setting, Simulator, event, request, wait_for,
};
use crate::shared::{database, dump};

/// What must never be found. Each is as long and odd as chance is not.
const PHONE: &str = "+14155550173";
const EMAIL: &str = "canary.seller@mail.canary-7f3a.example";
const OTHER_PHONE: &str = "+442071838750";
const LINK: &str = "https://reset.example/r?code=canary-link-2b1c9e";
const TOKEN: &str = "canary-token-51d0a7f2c4e8b9036a1d5f7e9c2b4d6f";
const PASSWORD: &str = "canary-password-quite-long-88412";
const WRONG: &str = "canary-wrong-password-77120";

/// A visitor of the pages who keeps cookies and everything that was shown.
struct Visitor<'a> {
    app: &'a App,
    cookies: Vec<(String, String)>,
    shown: &'a mut Vec<String>,
}

impl Visitor<'_> {
    fn send(&mut self, method: &str, path: &str, body: &str) -> Answer {
        let cookie = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
            .join("; ");
        let origin = format!("http://127.0.0.1:{}", self.app.port);
        let headers = [
            ("cookie", cookie.as_str()),
            ("origin", origin.as_str()),
            ("sec-fetch-site", "same-origin"),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        let answer = request(self.app.port, method, path, &headers, body.as_bytes());
        for line in answer.headers_raw.lines() {
            let lower = line.to_lowercase();
            if let Some(at) = lower.strip_prefix("set-cookie: ").map(|_| "set-cookie: ".len()) {
                let pair = line[at..].split(';').next().unwrap_or_default();
                if let Some((name, value)) = pair.split_once('=') {
                    self.cookies.retain(|(known, _)| known != name);
                    self.cookies.push((name.to_owned(), value.to_owned()));
                }
            }
        }
        self.shown.push(format!(
            "{method} {}\n{}\n{}",
            path.len(),
            answer.headers_raw,
            answer.text
        ));
        answer
    }

    fn field(&mut self, path: &str, name: &str) -> String {
        let page = self.send("GET", path, "").text;
        let Some(at) = page.find(&format!("name=\"{name}\"")) else { return String::new() };
        let from = page[..at].rfind('<').unwrap_or(0);
        let tag = &page[from..from + page[from..].find('>').unwrap_or(0)];
        let value = tag.split("value=\"").nth(1).unwrap_or_default();
        value.split('"').next().unwrap_or_default().to_owned()
    }

    fn form(&mut self, from: &str, to: &str, fields: &[(&str, &str)]) -> Answer {
        let csrf = self.field(from, "csrf");
        let mut body = form_urlencoded(&[("csrf", csrf.as_str())]);
        let action = self.field(from, "action_key");
        if !action.is_empty() {
            body = format!("{body}&{}", form_urlencoded(&[("action_key", action.as_str())]));
        }
        self.send("POST", to, &format!("{body}&{}", form_urlencoded(fields)))
    }
}

fn form_urlencoded(fields: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// Every file below this folder, but for those that are meant to hold a marker.
fn files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let name = path.display().to_string();
        if path.is_dir() {
            files(&path, found);
        } else if !name.ends_with("sendonce.toml") && !name.ends_with("refs.ndjson") {
            found.push((name, std::fs::read(&path).unwrap_or_default()));
        }
    }
}

fn holds(haystack: &[u8], needle: &str) -> bool {
    haystack.windows(needle.len()).any(|part| part == needle.as_bytes())
}

fn directory(folder: &Path) -> String {
    let path = folder.join("refs.ndjson");
    let lines = [
        json!({"destination_ref": "canary-dest", "phone": PHONE, "email": EMAIL}),
        json!({"destination_ref": "canary-moved", "phone": OTHER_PHONE}),
        json!({"reset_ref": "canary-reset", "link": LINK}),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(&path, text).expect("writes");
    format!("kind = \"directory\"\npath = \"{}\"", path.display())
}

fn drive(app: &App, simulator: &Simulator, shown: &mut Vec<String>) {
    let token_hash = server::keys::sha256(TOKEN.as_bytes());
    let body = |channel: &str, hash: Option<String>| {
        let mut body = event(600);
        body["destination_ref"] = json!("canary-dest");
        body["reset_ref"] = json!("canary-reset");
        body["channel"] = json!(channel);
        body["seller_id"] = json!("seller-canary");
        if let Some(hash) = hash {
            body["token_hash"] = json!(hash);
        }
        body
    };
    let mut ids = Vec::new();
    for behaviour in [
        "accept",
        "accept_then_hang",
        "hang_before_accept",
        "accept_then_500",
        "refuse_permanently",
        "refuse_transiently",
        "rate_limit",
        "reset_before_accept",
    ] {
        for channel in ["sms", "email"] {
            simulator.script(&[json!(behaviour), json!("accept")]);
            let hash = (behaviour == "accept" && channel == "sms").then(|| token_hash.clone());
            let answer = app.call("POST", "/v1/events", Some(&body(channel, hash)));
            assert_eq!(answer.status, 202, "{answer:?}");
            let id = answer.json()["id"].as_str().unwrap_or_default().to_owned();
            app.until(&id, &["sent", "delivered", "failed_final"]);
            ids.push(id);
        }
    }
    // What the resolver cannot answer, and what it answers with nothing fit to send.
    let mut unknown = body("sms", None);
    unknown["destination_ref"] = json!("canary-nobody");
    let id = app.call("POST", "/v1/events", Some(&unknown)).json()["id"].clone();
    app.until(id.as_str().unwrap_or_default(), &["failed_final"]);
    // Raw values where handles belong, in every field and in the wrong places: refused and not repeated.
    let mut answers = Vec::new();
    for (field, value) in [
        ("destination_ref", PHONE),
        ("destination_ref", EMAIL),
        ("reset_ref", LINK),
        ("reset_ref", TOKEN),
        ("seller_id", EMAIL),
        ("event_id", EMAIL),
        ("idempotency_key", PHONE),
        ("purpose", LINK),
        ("request_window", EMAIL),
        ("token_hash", TOKEN),
        ("channel", EMAIL),
        ("expires_at", LINK),
        (LINK, "x"),
    ] {
        let mut bad = body("sms", None);
        bad[field] = json!(value);
        if field != "reset_ref" || value != TOKEN {
            answers.push(app.call("POST", "/v1/events", Some(&bad)));
        }
    }
    answers.push(app.call("POST", "/v1/tokens/consume", Some(&json!({"token_hash": TOKEN}))));
    answers.push(app.call("POST", "/v1/tokens/consume", Some(&json!({"token_hash": token_hash}))));
    answers.push(app.call(
        "PUT",
        "/v1/freezes/all",
        Some(&json!({"reason": format!("call {PHONE}")})),
    ));
    answers.push(app.call(
        "PUT",
        "/v1/freezes/all",
        Some(&json!({"reason": format!("mail {EMAIL}")})),
    ));
    answers.push(app.call("GET", &format!("/v1/events?event_id={EMAIL}"), None));
    answers.push(app.call("GET", "/v1/events/%2B14155550173", None));
    for answer in answers {
        assert!(answer.status >= 400 || answer.status == 200, "{answer:?}");
        shown.push(answer.headers_raw + &answer.text);
    }
    // A key that is none, and callbacks with a wrong signature or a body full of markers.
    let wrong = format!("Bearer {TOKEN}");
    let answer = request(app.port, "GET", "/v1/freezes", &[("authorization", wrong.as_str())], b"");
    shown.push(answer.text);
    let forged = format!("{{\"attempt_id\":\"{EMAIL}\",\"to\":\"{PHONE}\",\"text\":\"{LINK}\"}}");
    let headers = [("sendonce-signature", "t=1,v1=00")];
    shown.push(request(app.port, "POST", "/webhooks/post", &headers, forged.as_bytes()).text);
    for id in &ids {
        for path in [format!("/v1/events/{id}"), format!("/v1/events/{id}/timeline")] {
            shown.push(app.call("GET", &path, None).text);
        }
    }
    pages(app, &ids, shown);
    for args in [
        vec!["find", ids[0].as_str()],
        vec!["freezes"],
        vec!["workers"],
        vec!["user", "list"],
        vec!["client", "list"],
        vec!["config", "check"],
        vec!["provider", "list"],
        vec!["find", EMAIL],
        vec!["find", PHONE],
    ] {
        let (_, out, error) = app.try_cli(&args, "");
        shown.push(out + &error);
    }
    for path in ["/metrics", "/readyz", "/healthz", "/openapi.json"] {
        shown.push(request(app.port, "GET", path, &[], b"").text);
    }
}

fn pages(app: &App, ids: &[String], shown: &mut Vec<String>) {
    let add = ["user", "add", "--email", "ops@example.com", "--role", "admin", "--password-stdin"];
    let (code, _, error) = app.try_cli(&add, &format!("{PASSWORD}\n"));
    assert_eq!(code, Some(0), "{error}");
    let mut visitor = Visitor { app, cookies: Vec::new(), shown };
    visitor.form(
        "/login",
        "/login",
        &[("email", "ops@example.com"), ("password", WRONG), ("next", "/")],
    );
    let answer = visitor.form(
        "/login",
        "/login",
        &[("email", "ops@example.com"), ("password", PASSWORD), ("next", "/")],
    );
    assert_eq!(answer.status, 303, "signed in: {answer:?}");
    for path in [
        "/",
        "/events",
        "/events?q=state:sent",
        "/sellers/seller-canary",
        "/unknown",
        "/freeze",
        "/providers",
        "/workers",
        "/lookup",
        "/slo",
        "/alerts",
        "/capacity",
        "/evidence",
        "/log",
        "/runbook",
        "/policy",
        "/account",
        "/admin/users",
        "/admin/clients",
        "/admin/config",
    ] {
        let answer = visitor.send("GET", path, "");
        assert_ne!(answer.status, 500, "{path}");
        assert_ne!(answer.status, 303, "{path}: is signed in");
    }
    for id in ids {
        assert_eq!(visitor.send("GET", &format!("/events/{id}"), "").status, 200);
    }
    // What looks like an address or a number is posted, never put into a URL, and never repeated.
    for value in [PHONE, EMAIL, "4155550173", LINK] {
        let answer = visitor.form("/events", "/events", &[("q", value)]);
        assert_ne!(answer.status, 500);
        visitor.form(
            "/lookup",
            "/lookup",
            &[("destination", value), ("value", value), ("q", value)],
        );
    }
    visitor.form(
        "/freeze",
        "/freeze",
        &[("scope", "channel:sms"), ("reason", &format!("{EMAIL} {PHONE}"))],
    );
    // Somebody's old bookmark; nobody answers to it, and nobody writes it down.
    visitor.send("GET", &format!("/events?q={}", "canary.seller%40mail.canary-7f3a.example"), "");
    visitor.send("GET", "/sellers/%2B14155550173", "");
}

fn is_clean(what: &str, bytes: &[u8]) {
    let token_hash = server::keys::sha256(TOKEN.as_bytes());
    for (name, needle) in [
        ("the phone number", &PHONE[1..]),
        ("the other phone number", &OTHER_PHONE[1..]),
        ("the address", EMAIL),
        ("the address, escaped", "canary.seller%40mail"),
        ("the link", "canary-link-2b1c9e"),
        ("the token", TOKEN),
        ("the token's hash", token_hash.as_str()),
        ("the password", PASSWORD),
        ("the wrong password", WRONG),
        ("the provider's key", SECRET),
        ("the callbacks' key", CALLBACK_SECRET),
    ] {
        assert!(!holds(bytes, needle), "{name} is in {what}");
    }
}

fn nothing_is_kept(url: Option<String>) {
    let simulator = Simulator::start();
    let refs = crate::kit::Folder::new();
    let setting = Setting {
        database: url.clone(),
        resolver: directory(&refs.0),
        env: vec![("SENDONCE_LOG__LEVEL", "trace".to_owned())],
        backoff_first: "100ms",
        ..Setting::at(simulator.port)
    };
    let mut app = App::start(setting);
    let mut shown = Vec::new();
    drive(&app, &simulator, &mut shown);
    let key = app.key.clone();
    assert!(shown.len() > 60, "the pages were really asked");
    for (n, text) in shown.iter().enumerate() {
        // The first line says which one it was, without its values.
        is_clean(
            &format!("answer {n}: {}", text.lines().next().unwrap_or_default()),
            text.as_bytes(),
        );
    }
    wait_for("the log", || (app.log().len() > 10_000).then_some(()));
    app.process.terminate();
    std::thread::sleep(Duration::from_millis(50));
    let mut kept = Vec::new();
    files(app.folder(), &mut kept);
    assert!(kept.iter().any(|(name, _)| name.ends_with("serve.log")));
    if let Some(url) = &url {
        kept.push(("the database".to_owned(), dump(url).into_bytes()));
    } else {
        assert!(kept.iter().any(|(name, _)| name.ends_with(".db")), "{kept:?}");
    }
    for (name, bytes) in &kept {
        is_clean(name, bytes);
        assert!(!holds(bytes, &key), "the client's key is in {name}");
    }
}

#[test]
fn no_marker_is_kept_logged_or_shown_on_sqlite() {
    nothing_is_kept(None);
}

#[test]
fn no_marker_is_kept_logged_or_shown_on_postgresql() {
    let Some(url) = database() else { return };
    nothing_is_kept(Some(url));
}

/// A marker that is there is found: the scan itself can fail.
#[test]
fn the_scan_finds_what_is_there() {
    let text: Value = json!({"note": format!("sent to {PHONE}")});
    let found = std::panic::catch_unwind(|| is_clean("a note", text.to_string().as_bytes()));
    assert!(found.is_err());
}
