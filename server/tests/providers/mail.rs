//! The email vendors of HTTP: Mailgun, Infrai, Resend, each against the simulator of its protocol.

use server::providers::{CallbackError, Cause, Receipt};

use super::*;

const KINDS: [&str; 3] = ["mailgun", "infrai", "resend"];

/// A provider of this kind, made as the product makes it.
async fn made(kind: &str, base_url: &str, more: &str, clock: Arc<dyn Clock>) -> Arc<dyn Provider> {
    let data = folder();
    let text = format!(
        "[server]\ndata_dir = \"{}\"\n[providers.p]\nkind = \"{kind}\"\nbase_url = \"{base_url}\"\n\
         api_key = \"key-0123456789\"\nfrom = \"Example Market <no-reply@mg.example.com>\"\n{more}",
        data.display()
    );
    let carrier: Arc<dyn Transport> = Arc::new(HttpTransport::new(Arc::clone(&clock)));
    let registry = build(&config(&text), clock, Arc::new(SystemEntropy), carrier).await.unwrap();
    let provider = Arc::clone(registry.get("p").unwrap());
    let _ = std::fs::remove_dir_all(data);
    provider
}

async fn at(sim: &Sim, kind: &str, more: &str) -> Arc<dyn Provider> {
    made(kind, &format!("{}/{kind}", sim.base), more, system()).await
}

pub fn mail(attempt: &str) -> Message {
    Message {
        channel: Channel::Email,
        to: secret("ann@example.com"),
        subject: Some("Example: Reset your password".to_owned()),
        html: Some(secret("<p>https://example.com/reset/t0ken</p>")),
        ..message(attempt)
    }
}

fn scan(attempt: &str) -> Query {
    Query { channel: Channel::Email, to: Some(secret("ann@example.com")), ..query(attempt) }
}

fn cannot(code: &str) -> Lookup {
    Lookup::CannotTell { code: code.to_owned() }
}

#[tokio::test]
async fn each_vendors_behaviours_have_their_verdicts_and_are_one_call_each() {
    let sim = Sim::start(Settings::default()).await;
    for kind in KINDS {
        let provider = at(&sim, kind, "").await;
        let broken = match kind {
            "resend" => "application_error",
            "infrai" => "INTERNAL",
            _ => "http_500",
        };
        let refused = match kind {
            "resend" => "validation_error",
            "infrai" => "INVALID_RECIPIENT",
            _ => "to",
        };
        let limited = |seconds: Option<i64>| (format!("limited {seconds:?}"), false);
        let lost = || ("ConnectionLost lost".to_owned(), false);
        let late = || ("Timeout timeout".to_owned(), false);
        let table = [
            (json!("accept"), ("accepted".to_owned(), true)),
            (json!({"slow": {"ms": 20}}), ("accepted".to_owned(), true)),
            (json!("accept_then_hang"), (late().0, true)),
            (json!("hang_before_accept"), late()),
            (json!("accept_then_reset"), (lost().0, true)),
            (json!("reset_before_accept"), lost()),
            (json!("accept_then_500"), (format!("AmbiguousResponse {broken}"), true)),
            (json!("refuse_permanently"), (format!("permanent {refused}"), false)),
            (json!("refuse_transiently"), limited(Some(1))),
            (json!({"rate_limit": {"retry_after": 30}}), limited(Some(30))),
            (json!({"rate_limit": {"retry_after": "soon"}}), limited(None)),
        ];
        for (number, (behaviour, (expected, is_taken))) in table.into_iter().enumerate() {
            let attempt = format!("{kind}-{number}");
            let name = format!("{kind} {behaviour}");
            let script =
                json!({"provider": kind, "match": {"attempt": attempt}, "behaviour": [behaviour]});
            assert_eq!(sim.script(script).await.status(), StatusCode::OK, "{name}");
            let before = SystemClock.now();
            let verdict = provider.send(&mail(&attempt), within(&SystemClock, 700)).await;
            let said = match verdict {
                Verdict::Accepted { message_id: Some(_) } => "accepted".to_owned(),
                Verdict::Unknown { why, code } => format!("{why:?} {code}"),
                Verdict::RefusedPermanently { code } => format!("permanent {code}"),
                Verdict::RateLimited { retry_at } => {
                    // Whole seconds from the answer's own time.
                    let wait = retry_at.map(|at| at.since(before) / SECOND);
                    format!("limited {wait:?}")
                }
                other => format!("{other:?}"),
            };
            assert_eq!(said, expected, "{name}");
            let calls = sim.control(&format!("/calls?attempt={attempt}")).await;
            assert_eq!(
                (&calls["count"], &calls["calls"][0]["destination"]),
                (&json!(1), &json!("ann@example.com")),
                "{name}"
            );
            let messages = sim.control(&format!("/messages?attempt={attempt}")).await;
            assert_eq!(messages["count"], i32::from(is_taken), "{name}");
        }
    }
}

#[tokio::test]
async fn a_wrong_key_stops_the_provider_and_an_unplain_recipient_is_never_called() {
    for kind in KINDS {
        let bare = Bare::start(answer("401 Unauthorized", "Forbidden")).await;
        let provider = made(kind, &bare.url(), "", system()).await;
        let stopped = Verdict::ProviderStopped { code: "http_401".to_owned() };
        assert_eq!(provider.send(&mail("a1"), soon()).await, stopped, "{kind}");
        for to in [
            "a@example.com,b@example.com",
            "a@example.com\r\nBcc: b@example.com",
            "Ann <a@example.com>",
            "ann",
        ] {
            let mut message = mail("a2");
            message.to = secret(to);
            let refused = Verdict::RefusedPermanently { code: "address_syntax".to_owned() };
            assert_eq!(provider.send(&message, soon()).await, refused, "{kind} {to}");
        }
        assert_eq!(bare.requests().await.len(), 1, "{kind}");
    }
}

#[tokio::test]
async fn whoever_closes_after_reading_sees_one_request_and_nothing_is_repeated() {
    for kind in KINDS {
        for act in [Act::Close, Act::Reset, answer("503 Service Unavailable", "")] {
            let bare = Bare::start(act).await;
            let provider = made(kind, &bare.url(), "", system()).await;
            let verdict = provider.send(&mail("a1"), soon()).await;
            assert_eq!(verdict.outcome().as_str(), "unknown", "{kind}");
            assert_eq!(bare.requests().await.len(), 1, "{kind}");
        }
        let provider = made(kind, "http://127.0.0.1:9", "", system()).await;
        let refused = Verdict::NotSent { code: "connect".to_owned() };
        assert_eq!(provider.send(&mail("a1"), soon()).await, refused, "{kind}");
    }
}

// ---------------------------------------------------------------------------------------------------
// Requests and answers against the vendors' published shapes.

/// Fields that the vendor's OpenAPI has for this request.
const MAILGUN_FIELDS: [&str; 7] =
    ["from", "to", "subject", "text", "html", "o:deliver-within", "o:tracking"];
const RESEND_FIELDS: [&str; 6] = ["from", "to", "subject", "text", "html", "tags"];

/// A published specification, where it lies beside the checkout; elsewhere our own list is checked alone.
fn published(name: &str) -> Option<String> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/specs").join(name);
    std::fs::read_to_string(beside).ok()
}

#[tokio::test]
async fn a_mailgun_request_has_the_published_fields_and_schedules_nothing() {
    let bare = Bare::start(answer("200 OK", "{\"id\":\"<m-1@mg.example.com>\"}")).await;
    let provider = made("mailgun", &bare.url(), "", system()).await;
    let accepted = Verdict::Accepted { message_id: Some("m-1".to_owned()) };
    let mut message = mail("0123abcd");
    message.valid_until = SystemClock.now().plus(1_000 * SECOND);
    assert_eq!(provider.send(&message, soon()).await, accepted);
    message.valid_until = SystemClock.now().plus(200 * SECOND);
    assert_eq!(provider.send(&message, soon()).await, accepted);
    let requests = bare.requests().await;
    let text = String::from_utf8(requests[0].clone()).unwrap();
    // The domain is that of the sender where no other is configured.
    assert!(text.starts_with("POST /v3/mg.example.com/messages HTTP/1.1\r\n"), "{text}");
    assert!(text.contains("authorization: Basic YXBpOmtleS0wMTIzNDU2Nzg5\r\n"));
    assert!(text.contains("content-type: multipart/form-data; boundary=sendonce-0123abcd\r\n"));
    let names: Vec<&str> =
        text.split("name=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let (variables, fields): (Vec<&str>, Vec<&str>) =
        names.into_iter().partition(|name| name.starts_with("v:"));
    assert_eq!(variables, ["v:attempt_id"]);
    assert!(fields.iter().all(|name| MAILGUN_FIELDS.contains(name)), "{fields:?}");
    assert_eq!(fields.len(), MAILGUN_FIELDS.len());
    assert!(text.contains("name=\"o:deliver-within\"\r\n\r\n0h16m\r\n"));
    // Less than the vendor's shortest validity is none, not a longer one.
    assert!(!String::from_utf8(requests[1].clone()).unwrap().contains("deliver-within"));
    if let Some(spec) = published("mailgun.yaml") {
        for name in MAILGUN_FIELDS {
            assert!(spec.contains(&format!("\n        {name}:\n")), "{name}");
        }
    }
}

#[tokio::test]
async fn a_resend_request_has_the_published_fields_and_the_same_bytes_each_time() {
    let bare = Bare::start(answer("200 OK", "{\"id\":\"49a3999c-0ce1\"}")).await;
    let provider = made("resend", &bare.url(), "", system()).await;
    for _ in 0..2 {
        let accepted = Verdict::Accepted { message_id: Some("49a3999c-0ce1".to_owned()) };
        assert_eq!(provider.send(&mail("0123abcd"), soon()).await, accepted);
    }
    let requests = bare.requests().await;
    let text = String::from_utf8(requests[0].clone()).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /emails HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("authorization: Bearer key-0123456789\r\n"));
    assert!(head.contains("idempotency-key: 0123abcd\r\n"));
    assert!(String::from_utf8_lossy(&requests[1]).ends_with(body));
    let sent: Value = serde_json::from_str(body).unwrap();
    let names: Vec<&String> = sent.as_object().unwrap().keys().collect();
    assert!(names.iter().all(|name| RESEND_FIELDS.contains(&name.as_str())), "{names:?}");
    assert_eq!(sent["tags"], json!([{"name": "attempt_id", "value": "0123abcd"}]));
    assert_eq!(sent["to"], json!(["ann@example.com"]));
    let Some(spec) = published("resend.json") else { return };
    let spec: Value = serde_json::from_str(&spec).unwrap();
    let schema = |name: &str| &spec["components"]["schemas"][name];
    for name in names {
        assert!(schema("SendEmailRequest")["properties"][name].is_object(), "{name}");
    }
    for name in schema("SendEmailRequest")["required"].as_array().unwrap() {
        assert!(sent[name.as_str().unwrap()] != Value::Null, "{name}");
    }
    assert!(spec["paths"]["/emails"]["post"]["responses"]["200"].is_object());
    // The simulator's own answers are the vendor's.
    let sim = Sim::start(Settings::default()).await;
    let provider = at(&sim, "resend", "").await;
    let Verdict::Accepted { message_id: Some(id) } = provider.send(&mail("a1"), soon()).await
    else {
        panic!("not accepted")
    };
    let mut request = get(&format!("{}/resend/emails/{id}", sim.base));
    request.headers_mut().insert("authorization", HeaderValue::from_static("Bearer re_1"));
    let response = transport().exchange(request, soon()).await.unwrap();
    let email: Value = serde_json::from_slice(response.body()).unwrap();
    let known = schema("Email")["properties"].as_object().unwrap();
    assert!(email.as_object().unwrap().keys().all(|name| known.contains_key(name)), "{email}");
    assert!(known["last_event"]["enum"].as_array().unwrap().contains(&email["last_event"]));
}

// ---------------------------------------------------------------------------------------------------
// Mailgun.

#[tokio::test]
async fn mailgun_finds_an_attempt_on_whichever_page_it_is_and_no_other_one() {
    let sim = Sim::start(Settings::default()).await;
    let provider = at(&sim, "mailgun", "").await;
    // 800 events: three pages of 300 and an empty one.
    sim.script(json!({"provider": "mailgun", "deliver_after_ms": 0})).await;
    for number in 0..400 {
        let to = "ann@example.com".to_owned();
        let incoming = Incoming::new("mailgun", format!("other-{number}"), to);
        sim.simulator.play(&incoming, None).await;
    }
    sim.script(
        json!({"provider": "mailgun", "deliver_after_ms": 0, "behaviour": ["accept_then_reset"]}),
    )
    .await;
    let verdict = provider.send(&mail("a1"), soon()).await;
    assert_eq!(verdict, unknown(Doubt::ConnectionLost, "lost"));
    let messages = sim.control("/messages?attempt=a1").await;
    let id = messages["messages"][0]["message_id"].as_str().unwrap().to_owned();
    let expected = Lookup::Found { seen: Seen::Delivered, message_id: Some(id) };
    assert_eq!(provider.find(&scan("a1"), soon()).await, expected);
    // Somebody else's messages to the same recipient are neither ours nor a proof of absence yet.
    assert_eq!(provider.find(&scan("a2"), soon()).await, cannot("events_too_young"));
    assert_eq!(provider.find(&query("a1"), soon()).await, cannot("no_destination"));
    let mut old = scan("a1");
    old.since = old.now.plus(-4 * 24 * 3600 * SECOND);
    assert_eq!(provider.find(&old, soon()).await, cannot("past_retention"));
    sim.script(json!({"provider": "mailgun", "lookup_down": true})).await;
    assert_eq!(provider.find(&scan("a1"), soon()).await, cannot("http_500"));
}

#[tokio::test]
async fn mailgun_calls_nothing_absent_before_its_events_are_half_an_hour_old() {
    let clock = ManualClock::new(SystemClock.now());
    let sim = Sim::start_on(Settings::default(), Arc::new(clock.clone())).await;
    let base = format!("{}/mailgun", sim.base);
    let provider = made("mailgun", &base, "", Arc::new(clock.clone())).await;
    sim.script(json!({"provider": "mailgun", "lookup_lag_ms": 60_000})).await;
    let deadline = || within(&clock, 5_000);
    let began = clock.now();
    assert!(matches!(provider.send(&mail("a1"), deadline()).await, Verdict::Accepted { .. }));
    let ask = |attempt: &str| Query { since: began, now: clock.now(), ..scan(attempt) };
    assert_eq!(provider.find(&ask("a1"), deadline()).await, cannot("events_too_young"));
    clock.advance(Duration::from_secs(60));
    assert!(matches!(provider.find(&ask("a1"), deadline()).await, Lookup::Found { .. }));
    clock.advance(Duration::from_secs(29 * 60) - Duration::from_micros(1));
    assert_eq!(provider.find(&ask("a2"), deadline()).await, cannot("events_too_young"));
    clock.advance(Duration::from_micros(1));
    assert_eq!(provider.find(&ask("a2"), deadline()).await, Lookup::Absent);
}

#[tokio::test]
async fn mailguns_key_never_follows_a_link_to_another_place() {
    let there = Bare::start(answer("200 OK", "{\"items\":[]}")).await;
    for next in [
        format!("{}/v3/mg.example.com/events/x", there.url()),
        "/v3/mg.example.com/events/x".to_owned(),
    ] {
        let page = format!(r#"{{"items":[{{"event":"accepted"}}],"paging":{{"next":"{next}"}}}}"#);
        let here = Bare::start(answer("200 OK", &page)).await;
        let provider = made("mailgun", &here.url(), "", system()).await;
        assert_eq!(provider.find(&scan("a1"), soon()).await, cannot("foreign_page"));
        assert_eq!(here.requests().await.len(), 1);
    }
    assert_eq!(there.requests().await.len(), 0);
}

#[tokio::test]
async fn a_look_up_of_mailgun_ends_after_ten_pages() {
    let sim = Sim::start(Settings::default()).await;
    sim.script(json!({"provider": "mailgun", "deliver_after_ms": 0})).await;
    for number in 0..1600 {
        let to = "ann@example.com".to_owned();
        sim.simulator.play(&Incoming::new("mailgun", format!("o{number}"), to), None).await;
    }
    let provider = at(&sim, "mailgun", "").await;
    assert_eq!(provider.find(&scan("a1"), soon()).await, cannot("too_many_pages"));
}

// ---------------------------------------------------------------------------------------------------
// Infrai and Resend.

#[tokio::test]
async fn infrai_finds_an_attempt_by_its_key_and_reads_it_by_its_id() {
    let sim = Sim::start(Settings::default()).await;
    let provider = at(&sim, "infrai", "").await;
    sim.script(json!({"provider": "infrai", "behaviour": ["accept_then_500"]})).await;
    let verdict = provider.send(&mail("a1"), soon()).await;
    assert_eq!(verdict, unknown(Doubt::AmbiguousResponse, "INTERNAL"));
    for number in 0..120 {
        let to = "ann@example.com".to_owned();
        sim.simulator.play(&Incoming::new("infrai", format!("other-{number}"), to), None).await;
    }
    let Lookup::Found { seen: Seen::Accepted, message_id: Some(id) } =
        provider.find(&scan("a1"), soon()).await
    else {
        panic!("not found on the third page")
    };
    let known = Query { message_id: Some(id.clone()), ..scan("a1") };
    let found = Lookup::Found { seen: Seen::Accepted, message_id: Some(id) };
    assert_eq!(provider.find(&known, soon()).await, found);
    assert_eq!(provider.find(&scan("a2"), soon()).await, Lookup::Absent);
    let wrong = Query { message_id: Some("em_none".to_owned()), ..scan("a1") };
    assert_eq!(provider.find(&wrong, soon()).await, cannot("http_404"));
    sim.script(json!({"provider": "infrai", "lookup_down": true})).await;
    assert_eq!(provider.find(&scan("a1"), soon()).await, cannot("http_503"));
}

#[tokio::test]
async fn a_list_of_infrai_without_keys_is_neither_found_nor_absent() {
    let now = SystemClock.now();
    let row =
        |to: &str| json!({"email_id": "em_1", "state": "queued", "to": to, "created_at": now});
    for (items, more, expected) in [
        (json!([row("ann@example.com")]), json!(false), cannot("near_match")),
        (json!([row("bob@example.com")]), json!(false), Lookup::Absent),
        (json!([row("bob@example.com")]), Value::Null, cannot("end_unknown")),
    ] {
        let body = json!({"ok": true, "data": {"items": items, "has_more": more}});
        let bare = Bare::start(answer("200 OK", &body.to_string())).await;
        let provider = made("infrai", &bare.url(), "", system()).await;
        assert_eq!(provider.find(&scan("a1"), soon()).await, expected, "{body}");
    }
}

#[tokio::test]
async fn a_repeat_under_the_same_key_is_the_same_message() {
    let sim = Sim::start(Settings::default()).await;
    for kind in ["infrai", "resend"] {
        let provider = at(&sim, kind, "").await;
        let attempt = format!("{kind}-1");
        let script = json!({"provider": kind, "behaviour": ["accept_then_reset", "accept"]});
        sim.script(script).await;
        let lost = provider.send(&mail(&attempt), soon()).await;
        assert_eq!(lost, unknown(Doubt::ConnectionLost, "lost"));
        let again = provider.send(&mail(&attempt), soon()).await;
        let messages = sim.control(&format!("/messages?attempt={attempt}")).await;
        let id = messages["messages"][0]["message_id"].as_str().unwrap().to_owned();
        assert_eq!(again, Verdict::Accepted { message_id: Some(id) });
        assert_eq!(messages["count"], 1);
        assert_eq!(sim.control(&format!("/calls?attempt={attempt}")).await["count"], 2);
    }
}

#[tokio::test]
async fn resend_tells_a_running_first_request_and_other_bytes_apart() {
    let sim = Sim::start(Settings::default()).await;
    let provider = at(&sim, "resend", "").await;
    sim.script(json!({"provider": "resend", "behaviour": [{"slow": {"ms": 60_000}}, "accept"]}))
        .await;
    let first = Arc::clone(&provider);
    let first = tokio::spawn(async move { first.send(&mail("a1"), soon()).await });
    eventually(|| (!sim.simulator.calls(Some("a1")).is_empty()).then_some(())).await;
    let running = unknown(Doubt::AmbiguousResponse, "concurrent_idempotent_requests");
    assert_eq!(provider.send(&mail("a1"), soon()).await, running);
    first.abort();
    let mut other = mail("a1");
    other.subject = Some("Another subject".to_owned());
    let stopped = Verdict::ProviderStopped { code: "invalid_idempotent_request".to_owned() };
    assert_eq!(provider.send(&other, soon()).await, stopped);
    assert_eq!(sim.control("/messages?attempt=a1").await["count"], 1);
}

#[tokio::test]
async fn resend_is_read_by_its_own_id_alone() {
    let sim = Sim::start(Settings::default()).await;
    let provider = at(&sim, "resend", "").await;
    assert_eq!(provider.capability().reading, Reading::ByMessageId);
    assert_eq!(provider.capability().replay_window, Some(24 * 3600 * SECOND));
    sim.script(json!({"provider": "resend", "deliver_after_ms": 0, "delivery": "failed"})).await;
    let Verdict::Accepted { message_id } = provider.send(&mail("a1"), soon()).await else {
        panic!("not accepted")
    };
    assert_eq!(provider.find(&scan("a1"), soon()).await, cannot("message_id_unknown"));
    let known = Query { message_id: message_id.clone(), ..scan("a1") };
    let found = Lookup::Found { seen: Seen::Failed, message_id };
    assert_eq!(provider.find(&known, soon()).await, found);
    assert_eq!(sim.control("").await["lookups"], 1);
}

// ---------------------------------------------------------------------------------------------------
// Callbacks.

/// Receives what the simulator posts, and keeps what the adapter makes of it.
pub async fn receives(
    provider: Arc<dyn Provider>,
) -> (String, Arc<Mutex<Vec<Result<Vec<Receipt>, CallbackError>>>>) {
    let received = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&received);
    let handler = move |headers: HeaderMap, body: Bytes| {
        let (provider, all) = (Arc::clone(&provider), Arc::clone(&all));
        async move {
            let request = CallbackRequest {
                method: &Method::POST,
                path: "/webhooks/p",
                query: None,
                headers: &headers,
                public_url: "http://127.0.0.1:1",
                body: &body,
                now: SystemClock.now(),
            };
            let outcome = provider.verify_callback(&request).await;
            all.lock().unwrap().push(outcome.map(|callback| callback.receipts));
            StatusCode::OK
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/webhooks/p", listener.local_addr().unwrap());
    let router = axum::Router::new().route("/webhooks/p", axum::routing::post(handler));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, received)
}

#[tokio::test]
async fn callbacks_name_the_attempt_and_a_forged_one_says_nothing() {
    const SVIX: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    for (kind, key) in [("mailgun", "h00k-h00k-h00k"), ("resend", SVIX)] {
        let sim = Sim::start(Settings::default()).await;
        let provider = at(&sim, kind, &format!("webhook_secret = \"{key}\"")).await;
        assert!(provider.capability().has_callbacks());
        let (url, received) = receives(Arc::clone(&provider)).await;
        let run = async |attempt: &str, callbacks: &str, delivery: &str| {
            let script = json!({
                "provider": kind, "callbacks": callbacks, "callback_url": url, "callback_secret": key,
                "deliver_after_ms": 100, "delivery": delivery,
            });
            assert_eq!(sim.script(script).await.status(), StatusCode::OK);
            let verdict = provider.send(&mail(attempt), soon()).await;
            let Verdict::Accepted { message_id } = verdict else { panic!("{verdict:?}") };
            message_id
        };
        let seen = |number: usize| {
            let received = received.lock().unwrap();
            (received.len() >= number).then(|| received.clone())
        };
        let id = run("a1", "normal", "delivered").await;
        let first = eventually(|| seen(2)).await;
        for (told, expected) in first.iter().zip([Seen::Accepted, Seen::Delivered]) {
            let receipts = told.as_ref().unwrap();
            assert_eq!(receipts.len(), 1, "{kind}");
            assert_eq!(receipts[0].attempt_id.as_deref(), Some("a1"));
            assert_eq!((&receipts[0].message_id, receipts[0].seen), (&id, expected), "{kind}");
            assert!(receipts[0].at.is_some());
        }
        run("a2", "out_of_order", "failed").await;
        let all = eventually(|| seen(4)).await;
        let failed = &all[2].as_ref().unwrap()[0];
        assert_eq!((failed.seen, failed.cause), (Seen::Failed, Some(Cause::Bounced)), "{kind}");
        assert_eq!(all[3].as_ref().unwrap()[0].seen, Seen::Accepted);
        run("a3", "duplicate", "delivered").await;
        let all = eventually(|| seen(8)).await;
        assert!(all[4..].iter().all(Result::is_ok), "{kind} {all:?}");
        run("a4", "forged", "delivered").await;
        let all = eventually(|| seen(9)).await;
        assert_eq!(all[8], Err(CallbackError::Signature), "{kind}");
    }
}

#[tokio::test]
async fn without_a_key_and_at_infrai_there_is_no_endpoint() {
    for kind in KINDS {
        let provider = made(kind, "http://127.0.0.1:9", "", system()).await;
        assert!(!provider.capability().has_callbacks(), "{kind}");
        let request = CallbackRequest {
            method: &Method::POST,
            path: "/webhooks/p",
            query: None,
            headers: &HeaderMap::new(),
            public_url: "http://127.0.0.1:1",
            body: b"{}",
            now: SystemClock.now(),
        };
        let refused = provider.verify_callback(&request).await;
        assert_eq!(refused, Err(CallbackError::NotConfigured), "{kind}");
    }
}

#[tokio::test]
async fn a_captured_mailgun_signature_carries_no_other_body() {
    let provider =
        made("mailgun", "http://127.0.0.1:9", "webhook_secret = \"h00k\"", system()).await;
    let at = (SystemClock.now().micros() / SECOND).to_string();
    let signature = keys::sign(b"h00k", format!("{at}t0ken").as_bytes());
    let tell = async |event: &str, signature: &str| {
        let body = json!({
            "signature": {"timestamp": at, "token": "t0ken", "signature": signature},
            "event-data": {"event": event, "user-variables": {"attempt_id": "a1"}},
        })
        .to_string();
        let request = CallbackRequest {
            method: &Method::POST,
            path: "/webhooks/p",
            query: None,
            headers: &HeaderMap::new(),
            public_url: "http://127.0.0.1:1",
            body: body.as_bytes(),
            now: SystemClock.now(),
        };
        provider.verify_callback(&request).await.map(|callback| callback.receipts.len())
    };
    assert_eq!(tell("delivered", &signature).await, Ok(1));
    // The vendor's own repeat.
    assert_eq!(tell("delivered", &signature).await, Ok(1));
    assert_eq!(tell("failed", &signature).await, Err(CallbackError::Signature));
    assert_eq!(tell("delivered", &signature.to_uppercase()).await, Err(CallbackError::Signature));
}
