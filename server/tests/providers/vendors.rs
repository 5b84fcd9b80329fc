//! The email vendors' adapters against the simulator: what each call, look-up and callback comes to.

use axum::extract::State;
use http::Uri;
use server::domain::Lookup::{Absent, CannotTell, Found};

use super::*;

const TO: &str = "Ann.Lee@Example.com";
const ARN: &str = "arn:aws:sns:us-east-1:123456789012:ses-events";

/// One vendor: its kind, the keys that it needs beside its address, and whether it can be asked.
struct Vendor {
    kind: &'static str,
    keys: &'static str,
    /// What the simulator signs its callbacks with.
    key: &'static str,
    is_readable: bool,
}

const VENDORS: &[Vendor] = &[
    Vendor {
        kind: "ses",
        keys: "access_key_id = \"AKIDEXAMPLE\"\nsecret_access_key = \"s3cret\"\nregion = \"us-east-1\"\n\
               topic_arn = \"arn:aws:sns:us-east-1:123456789012:ses-events\"\nconfiguration_set = \"resets\"",
        key: ARN,
        is_readable: false,
    },
    Vendor {
        kind: "sendgrid",
        keys: "api_key = \"s3cret\"\nwebhook_secret = \"h00k\"",
        key: "h00k",
        is_readable: true,
    },
    Vendor {
        kind: "postmark",
        keys: "token = \"s3cret\"\nwebhook_secret = \"h00k\"",
        key: "h00k",
        is_readable: true,
    },
];

/// The providers of these keys; the registry keeps them alive.
async fn made(vendor: &Vendor, base: &str, more: &str) -> (Registry, Arc<dyn Provider>) {
    let folder = folder();
    let text = format!(
        "[server]\ndata_dir = \"{}\"\n[providers.p]\nkind = \"{}\"\nbase_url = \"{base}\"\n\
         from = \"Example, Inc. <no-reply@example.com>\"\n{}\n{more}",
        folder.display(),
        vendor.kind,
        vendor.keys
    );
    let config = config(&text);
    let registry =
        build(&config, system(), Arc::new(SystemEntropy), transport()).await.expect("is built");
    let provider = Arc::clone(registry.get("p").expect("is there"));
    (registry, provider)
}

fn mail(attempt: &str) -> Message {
    Message {
        channel: Channel::Email,
        to: secret(TO),
        subject: Some("Example: Reset your password".to_owned()),
        html: Some(secret("<p>https://example.com/reset/t0ken</p>")),
        ..message(attempt)
    }
}

fn about(attempt: &str) -> Query {
    Query { channel: Channel::Email, to: Some(secret(TO)), ..query(attempt) }
}

async fn scripted(sim: &Sim, vendor: &Vendor, behaviour: &str, options: Value) {
    let mut script = json!({"provider": vendor.kind, "behaviour": [behaviour]});
    script.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    assert!(sim.script(script).await.status().is_success());
}

fn counts(sim: &Sim, attempt: &str) -> (usize, usize) {
    (sim.simulator.calls(Some(attempt)).len(), sim.simulator.messages(Some(attempt)).len())
}

#[tokio::test]
async fn a_message_is_taken_under_the_id_that_a_look_up_finds() {
    for vendor in VENDORS {
        let sim =
            Sim::start(Settings { secret: Some(secret("s3cret")), ..Settings::default() }).await;
        let (_registry, provider) =
            made(vendor, &format!("{}/{}", sim.base, vendor.kind), "").await;
        scripted(&sim, vendor, "accept", json!({"deliver_after_ms": 300})).await;
        let Verdict::Accepted { message_id: Some(id) } = provider.send(&mail("a1"), soon()).await
        else {
            panic!("{} did not take it", vendor.kind)
        };
        let sent = sim.simulator.messages(Some("a1"));
        assert_eq!((sent.len(), sent[0].message_id.as_str()), (1, id.as_str()), "{}", vendor.kind);
        assert_eq!(sent[0].destination.as_deref(), Some(TO));
        if vendor.is_readable {
            let found = |seen| Found { seen, message_id: Some(id.clone()) };
            assert_eq!(provider.find(&about("a1"), soon()).await, found(Seen::Accepted));
            SystemClock.sleep(Duration::from_millis(350)).await;
            assert_eq!(provider.find(&about("a1"), soon()).await, found(Seen::Delivered));
            assert_eq!(provider.find(&about("a2"), soon()).await, Absent, "{}", vendor.kind);
        } else {
            let cannot = CannotTell { code: "no_lookup".to_owned() };
            assert_eq!(provider.find(&about("a1"), soon()).await, cannot);
        }
    }
}

#[tokio::test]
async fn each_behaviour_of_each_vendor_has_its_verdict_and_is_one_call() {
    for vendor in VENDORS {
        let sim = Sim::start(Settings::default()).await;
        let (_registry, provider) =
            made(vendor, &format!("{}/{}", sim.base, vendor.kind), "").await;
        let transient = match vendor.kind {
            "postmark" => Verdict::TransientRefusal { code: "100".to_owned() },
            _ => Verdict::RateLimited { retry_at: None },
        };
        let permanent = match vendor.kind {
            "ses" => "MessageRejected",
            "postmark" => "406",
            _ => "http_400",
        };
        let broken = match vendor.kind {
            "ses" => "InternalServiceErrorException",
            "postmark" => "500",
            _ => "http_500",
        };
        for (behaviour, expected, taken) in [
            ("accept_then_hang", unknown(Doubt::Timeout, "timeout"), 1),
            ("accept_then_reset", unknown(Doubt::ConnectionLost, "lost"), 1),
            ("hang_before_accept", unknown(Doubt::Timeout, "timeout"), 0),
            ("reset_before_accept", unknown(Doubt::ConnectionLost, "lost"), 0),
            ("accept_then_500", unknown(Doubt::AmbiguousResponse, broken), 1),
            ("refuse_permanently", Verdict::RefusedPermanently { code: permanent.to_owned() }, 0),
            ("refuse_transiently", transient, 0),
        ] {
            let attempt = behaviour.replace('_', "-");
            scripted(&sim, vendor, behaviour, json!({})).await;
            let verdict = provider.send(&mail(&attempt), within(&SystemClock, 400)).await;
            assert_eq!(verdict, expected, "{} {behaviour}", vendor.kind);
            assert_eq!(counts(&sim, &attempt), (1, taken), "{} {behaviour}", vendor.kind);
            if vendor.is_readable {
                let found = provider.find(&about(&attempt), soon()).await;
                assert_eq!(
                    matches!(found, Found { .. }),
                    taken == 1,
                    "{} {behaviour}",
                    vendor.kind
                );
                assert!(taken == 1 || found == Absent, "{} {behaviour}: {found:?}", vendor.kind);
            }
        }
        let script =
            json!({"provider": vendor.kind, "behaviour": [{"rate_limit": {"retry_after": 7}}]});
        sim.script(script).await;
        let before = SystemClock.now();
        let Verdict::RateLimited { retry_at: Some(at) } =
            provider.send(&mail("limited"), soon()).await
        else {
            panic!("{} is not limited", vendor.kind)
        };
        assert!((7 * SECOND..12 * SECOND).contains(&at.since(before)), "{}", vendor.kind);
    }
}

#[tokio::test]
async fn a_second_call_would_be_a_second_message() {
    // What the whole product is for: none of these vendors recognises a repeat.
    for vendor in VENDORS {
        let sim = Sim::start(Settings::default()).await;
        let (_registry, provider) =
            made(vendor, &format!("{}/{}", sim.base, vendor.kind), "").await;
        for _ in 0..2 {
            assert!(matches!(provider.send(&mail("a1"), soon()).await, Verdict::Accepted { .. }));
        }
        assert_eq!(counts(&sim, "a1"), (2, 2), "{}", vendor.kind);
        assert_eq!(provider.capability().replay_window, None, "{}", vendor.kind);
        assert_eq!(provider.capability().idempotency, None, "{}", vendor.kind);
    }
}

#[tokio::test]
async fn a_look_up_that_lags_or_fails_is_not_the_end_of_it() {
    for vendor in VENDORS.iter().filter(|vendor| vendor.is_readable) {
        let sim = Sim::start(Settings::default()).await;
        let (_registry, provider) =
            made(vendor, &format!("{}/{}", sim.base, vendor.kind), "").await;
        scripted(&sim, vendor, "accept", json!({"lookup_lag_ms": 60_000})).await;
        assert!(matches!(provider.send(&mail("a1"), soon()).await, Verdict::Accepted { .. }));
        assert_eq!(provider.find(&about("a1"), soon()).await, Absent, "{}", vendor.kind);
        scripted(&sim, vendor, "accept", json!({})).await;
        assert!(matches!(provider.find(&about("a1"), soon()).await, Found { .. }));
        scripted(&sim, vendor, "accept", json!({"lookup_down": true})).await;
        let cannot = CannotTell { code: "http_503".to_owned() };
        assert_eq!(provider.find(&about("a1"), soon()).await, cannot, "{}", vendor.kind);
        // After the vendor's retention nothing is there of anybody.
        scripted(&sim, vendor, "accept", json!({})).await;
        let old = Query { since: SystemClock.now().plus(-46 * 86_400 * SECOND), ..about("gone") };
        let cannot = CannotTell { code: "past_retention".to_owned() };
        assert_eq!(provider.find(&old, soon()).await, cannot, "{}", vendor.kind);
        let (_registry, deaf) =
            made(vendor, &format!("{}/{}", sim.base, vendor.kind), "lookup = false").await;
        let cannot = CannotTell { code: "no_lookup".to_owned() };
        assert_eq!(deaf.find(&about("a1"), soon()).await, cannot, "{}", vendor.kind);
    }
}

#[tokio::test]
async fn what_the_vendor_refuses_before_it_looks_at_the_message_stops_it() {
    for vendor in VENDORS {
        let other = Some(secret("an0ther"));
        let sim = Sim::start(Settings { secret: other, ..Settings::default() }).await;
        let (_registry, provider) =
            made(vendor, &format!("{}/{}", sim.base, vendor.kind), "").await;
        let code = match vendor.kind {
            "ses" => "SignatureDoesNotMatch",
            "postmark" => "10",
            _ => "http_401",
        };
        let verdict = provider.send(&mail("a1"), soon()).await;
        assert_eq!(verdict, Verdict::ProviderStopped { code: code.to_owned() }, "{}", vendor.kind);
        assert_eq!(counts(&sim, "a1"), (0, 0), "{}", vendor.kind);
        if vendor.is_readable {
            let cannot = CannotTell { code: "http_401".to_owned() };
            assert_eq!(provider.find(&about("a1"), soon()).await, cannot, "{}", vendor.kind);
        }
    }
}

type Heard = Arc<Mutex<Vec<Result<Vec<(String, Seen)>, CallbackError>>>>;

#[derive(Clone)]
struct Ear {
    provider: Arc<dyn Provider>,
    heard: Heard,
}

/// Receives callbacks as the product does, and says of each what it comes to.
async fn ear(
    State(ear): State<Ear>,
    method: http::Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let request = CallbackRequest {
        method: &method,
        path: uri.path(),
        query: uri.query(),
        headers: &headers,
        public_url: "http://127.0.0.1",
        body: &body,
        now: SystemClock.now(),
    };
    let outcome = ear.provider.verify_callback(&request).await.map(|callback| {
        let one = |it: server::providers::Receipt| (it.attempt_id.unwrap(), it.seen);
        callback.receipts.into_iter().map(one).collect()
    });
    let status = if outcome.is_ok() { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
    ear.heard.lock().unwrap().push(outcome);
    status
}

/// A place for callbacks of this provider.
async fn listening(provider: Arc<dyn Provider>) -> (String, Heard) {
    let heard = Heard::default();
    let state = Ear { provider, heard: Arc::clone(&heard) };
    let router =
        axum::Router::new().route("/webhooks/p", axum::routing::post(ear)).with_state(state);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/webhooks/p", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, heard)
}

#[tokio::test]
async fn callbacks_of_each_vendor_verify_and_forged_ones_do_not() {
    for vendor in VENDORS {
        let sim = Sim::start(Settings::default()).await;
        let (_registry, provider) =
            made(vendor, &format!("{}/{}", sim.base, vendor.kind), "").await;
        assert!(provider.capability().has_callbacks(), "{}", vendor.kind);
        let (url, heard) = listening(Arc::clone(&provider)).await;
        for (callbacks, delivery) in [
            ("normal", "delivered"),
            ("normal", "failed"),
            ("duplicate", "delivered"),
            ("out_of_order", "delivered"),
            ("forged", "delivered"),
        ] {
            let attempt = format!("{}-{delivery}", callbacks.replace('_', "-"));
            let of = |seen| Ok(vec![(attempt.clone(), seen)]);
            let end = of(if delivery == "failed" { Seen::Failed } else { Seen::Delivered });
            // Postmark says nothing of what it has only taken.
            let taken: Vec<_> =
                (vendor.kind != "postmark").then(|| of(Seen::Accepted)).into_iter().collect();
            let expected: Vec<_> = match callbacks {
                "normal" => taken.into_iter().chain([end]).collect(),
                "duplicate" => {
                    taken.iter().cloned().chain(taken.clone()).chain([end.clone(), end]).collect()
                }
                "out_of_order" => [end].into_iter().chain(taken).collect(),
                _ => vec![Err(CallbackError::Signature)],
            };
            heard.lock().unwrap().clear();
            let options = json!({
                "callbacks": callbacks, "delivery": delivery, "deliver_after_ms": 200,
                "callback_url": url, "callback_secret": vendor.key,
            });
            scripted(&sim, vendor, "accept", options).await;
            assert!(matches!(
                provider.send(&mail(&attempt), soon()).await,
                Verdict::Accepted { .. }
            ));
            eventually(|| (heard.lock().unwrap().len() >= expected.len()).then_some(())).await;
            settle().await;
            assert_eq!(*heard.lock().unwrap(), expected, "{} {callbacks} {delivery}", vendor.kind);
        }
    }
}

#[tokio::test]
async fn without_a_key_no_vendor_has_an_endpoint() {
    for vendor in VENDORS {
        let keys: Vec<&str> = vendor
            .keys
            .lines()
            .filter(|line| !line.starts_with("webhook_secret") && !line.starts_with("topic_arn"))
            .collect();
        let keys = keys.join("\n");
        let bare = Vendor { keys: keys.leak(), ..*vendor };
        let (_registry, provider) = made(&bare, "http://127.0.0.1:1", "").await;
        assert!(!provider.capability().has_callbacks());
        let headers = HeaderMap::new();
        let request = callback_of(&headers, b"{}", SystemClock.now());
        let outcome = provider.verify_callback(&request).await;
        assert_eq!(outcome, Err(CallbackError::NotConfigured), "{}", vendor.kind);
    }
}

#[tokio::test]
async fn a_subscription_to_the_topic_is_confirmed_and_one_to_another_is_not() {
    let sim = Sim::start(Settings::default()).await;
    let (_registry, ses) = made(&VENDORS[0], &format!("{}/ses", sim.base), "").await;
    let (url, heard) = listening(ses).await;
    let subscribe = |arn: &str| {
        let body = format!("Action=Subscribe&Protocol=http&TopicArn={arn}&Endpoint={url}");
        let mut request = post(&format!("{}/ses/sns", sim.base), &body);
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert("content-type", form);
        request
    };
    for (arn, outcome, word) in [
        (ARN.to_owned(), Ok(vec![]), ARN),
        (format!("{ARN}-2"), Err(CallbackError::Signature), "pending confirmation"),
    ] {
        let response = transport().exchange(subscribe(&arn), soon()).await.unwrap();
        let text = String::from_utf8(response.body().to_vec()).unwrap();
        assert!(text.contains(word), "{text}");
        assert_eq!(heard.lock().unwrap().pop(), Some(outcome));
    }
}

#[tokio::test]
async fn a_topic_of_signature_version_1_is_believed_as_well() {
    let sim = Sim::start(Settings::default()).await;
    let keys = VENDORS[0].keys.replace("ses-events", "ses-events-v1");
    let vendor = Vendor { keys: keys.leak(), ..VENDORS[0] };
    let (_registry, ses) = made(&vendor, &format!("{}/ses", sim.base), "").await;
    let (url, heard) = listening(Arc::clone(&ses)).await;
    let options = json!({
        "callbacks": "normal", "deliver_after_ms": 100,
        "callback_url": url, "callback_secret": format!("{ARN}-v1"),
    });
    scripted(&sim, &vendor, "accept", options).await;
    assert!(matches!(ses.send(&mail("a1"), soon()).await, Verdict::Accepted { .. }));
    eventually(|| (heard.lock().unwrap().len() == 2).then_some(())).await;
    let a1 = |seen| Ok(vec![("a1".to_owned(), seen)]);
    assert_eq!(*heard.lock().unwrap(), [a1(Seen::Accepted), a1(Seen::Delivered)]);
}

/// An answer that is always the same, and what was asked.
async fn canned(
    vendor: &Vendor,
    answers: &[(&'static str, Value)],
) -> (Registry, Arc<dyn Provider>) {
    let mut router = axum::Router::new();
    for (path, answer) in answers {
        let answer = answer.clone();
        router = router
            .route(path, axum::routing::any(move || async move { axum::Json(answer.clone()) }));
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    made(vendor, &base, "").await
}

#[tokio::test]
async fn a_scan_that_is_cut_off_or_cannot_be_read_is_never_absent() {
    let sendgrid = &VENDORS[1];
    let listed = |count: usize| {
        let one = |at: usize| json!({"sg_message_id": format!("m{at}.r"), "status": "processed"});
        json!({"messages": (0..count).map(one).collect::<Vec<_>>()})
    };
    let foreign = json!({"status": "delivered", "custom_args": {"attempt_id": "another"}});
    let bare = json!({"status": "delivered"});
    for (list, details, code) in [
        (listed(1000), foreign.clone(), "too_many"),
        (listed(21), foreign.clone(), "too_many"),
        (listed(1), json!([]), "bad_answer"),
        (json!({"messages": "none"}), foreign.clone(), "bad_answer"),
    ] {
        let (_registry, provider) =
            canned(sendgrid, &[("/v3/logs", list), ("/v3/logs/{id}", details)]).await;
        let cannot = CannotTell { code: code.to_owned() };
        assert_eq!(provider.find(&about("a1"), soon()).await, cannot);
    }
    let (_registry, provider) = canned(sendgrid, &[("/v3/logs", listed(1))]).await;
    let cannot = CannotTell { code: "not_readable".to_owned() };
    assert_eq!(provider.find(&about("a1"), soon()).await, cannot);
    for details in [foreign, bare] {
        let answers = [("/v3/logs", listed(3)), ("/v3/logs/{id}", details)];
        let (_registry, provider) = canned(sendgrid, &answers).await;
        assert_eq!(provider.find(&about("a1"), soon()).await, Absent);
        let nowhere = Query { to: None, ..about("a1") };
        let cannot = CannotTell { code: "no_destination".to_owned() };
        assert_eq!(provider.find(&nowhere, soon()).await, cannot);
    }
}

#[tokio::test]
async fn a_search_that_gives_somebody_elses_message_is_never_absent() {
    let postmark = &VENDORS[2];
    let item = json!({"MessageID": "m-1", "Metadata": {"attempt_id": "another"}});
    for page in [
        json!({"TotalCount": 1, "Messages": [item]}),
        json!({"TotalCount": 7, "Messages": []}),
        json!({"TotalCount": 1, "Messages": [{"MessageID": "m-1"}]}),
    ] {
        let (_registry, provider) = canned(postmark, &[("/messages/outbound", page)]).await;
        let cannot = CannotTell { code: "other_attempt".to_owned() };
        assert_eq!(provider.find(&about("a1"), soon()).await, cannot);
    }
    // What became of it cannot be read; that it was taken is certain.
    let ours = json!({"MessageID": "m-1", "Metadata": {"attempt_id": "a1"}});
    let page = json!({"TotalCount": 1, "Messages": [ours]});
    let (_registry, provider) = canned(postmark, &[("/messages/outbound", page)]).await;
    let found = Found { seen: Seen::Accepted, message_id: Some("m-1".to_owned()) };
    assert_eq!(provider.find(&about("a1"), soon()).await, found);
}

#[tokio::test]
async fn postmark_takes_its_secret_as_a_password_or_in_a_header_and_nothing_else() {
    let (_registry, provider) = made(&VENDORS[2], "http://127.0.0.1:1", "").await;
    let body = json!({"RecordType": "Delivery", "MessageID": "m-1", "Metadata": {"attempt_id": "a1"},
        "DeliveredAt": "2026-09-21T14:13:20Z", "Recipient": "ann@example.com"});
    let body = body.to_string();
    let basic = |text: &str| {
        let encoded = base64::engine::general_purpose::STANDARD.encode(text);
        ("authorization", format!("Basic {encoded}"))
    };
    for ((name, value), is_good) in [
        (basic("postmark:h00k"), true),
        (basic(":h00k"), true),
        (("x-webhook-secret", "h00k".to_owned()), true),
        (basic("h00k:postmark"), false),
        (basic("postmark:h00k2"), false),
        (basic("postmark:"), false),
        (("authorization", "Bearer h00k".to_owned()), false),
        (("x-webhook-secret", String::new()), false),
        (("x-other", "h00k".to_owned()), false),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(&value).unwrap());
        let request = callback_of(&headers, body.as_bytes(), SystemClock.now());
        let outcome = provider.verify_callback(&request).await;
        let expected = if is_good { None } else { Some(CallbackError::Signature) };
        assert_eq!(outcome.as_ref().err().copied(), expected, "{name}: {value}");
        assert_eq!(outcome.map_or(0, |callback| callback.receipts.len()), usize::from(is_good));
    }
}

#[tokio::test]
async fn a_vendor_that_cannot_be_made_says_which_key() {
    let build_of = async |kind: &str, more: &str| {
        let text = format!(
            "[server]\ndata_dir = \"{}\"\n[providers.p]\nkind = \"{kind}\"\n{more}",
            folder().display()
        );
        let config = config(&text);
        let built = build(&config, system(), Arc::new(SystemEntropy), transport()).await;
        built.map(|_| ()).map_err(|error| error.to_string())
    };
    let ses = "access_key_id = \"a\"\nsecret_access_key = \"canary\"\nregion = \"us-east-1\"";
    let from = "from = \"no-reply@example.com\"";
    for (kind, more, key) in [
        ("postmark", from.to_owned(), "providers.p.token is missing"),
        ("postmark", "token = \"canary\"".to_owned(), "providers.p.from is missing"),
        (
            "postmark",
            "token = \"canary\"\nfrom = \"nobody\"".to_owned(),
            "providers.p.from is no email address",
        ),
        ("sendgrid", from.to_owned(), "providers.p.api_key is missing"),
        (
            "sendgrid",
            format!("{from}\napi_key = \"canary\"\nwebhook_secret = \"canary\""),
            "providers.p.webhook_secret is not the public key of an event webhook (P-256)",
        ),
        ("ses", format!("{from}\nregion = \"us-east-1\""), "providers.p.access_key_id is missing"),
        (
            "ses",
            format!("{from}\n{}", ses.replace("us-east-1", "evil.example/")),
            "providers.p.region is no region",
        ),
        (
            "ses",
            format!("{from}\n{ses}\ntopic_arn = \"canary\""),
            "providers.p.topic_arn is no topic",
        ),
    ] {
        let error = build_of(kind, &more).await.unwrap_err();
        assert!(error.starts_with(key) && !error.contains("canary"), "{error}");
    }
    // Nothing beside the keys of the contract is needed.
    for (kind, more) in [
        ("postmark", format!("{from}\ntoken = \"t\"")),
        ("sendgrid", format!("{from}\napi_key = \"k\"")),
        ("ses", format!("{from}\n{ses}")),
    ] {
        assert_eq!(build_of(kind, &more).await, Ok(()), "{kind}");
    }
}

#[tokio::test]
async fn whoever_closes_after_reading_sees_one_request_and_nothing_is_repeated() {
    for vendor in VENDORS {
        for act in [Act::Close, Act::Reset, answer("503 Service Unavailable", "")] {
            let bare = Bare::start(act).await;
            let (_registry, provider) = made(vendor, &bare.url(), "").await;
            let verdict = provider.send(&mail("a1"), soon()).await;
            assert_eq!(verdict.outcome().as_str(), "unknown", "{}", vendor.kind);
            assert_eq!(bare.requests().await.len(), 1, "{}", vendor.kind);
        }
        let (_registry, provider) = made(vendor, "http://127.0.0.1:9", "").await;
        let refused = Verdict::NotSent { code: "connect".to_owned() };
        assert_eq!(provider.send(&mail("a1"), soon()).await, refused, "{}", vendor.kind);
    }
}

#[tokio::test]
async fn a_recipient_that_a_vendor_could_read_as_two_is_never_called() {
    for vendor in VENDORS {
        let bare = Bare::start(answer("200 OK", "{}")).await;
        let (_registry, provider) = made(vendor, &bare.url(), "").await;
        for to in [
            "ann@example.com,eve@example.com",
            "Ann <ann@example.com>",
            "ann@example.com\r\nBcc: x",
        ] {
            let message = Message { to: secret(to), ..mail("a1") };
            let refused = Verdict::RefusedPermanently { code: "address_syntax".to_owned() };
            assert_eq!(provider.send(&message, soon()).await, refused, "{} {to:?}", vendor.kind);
        }
        assert_eq!(bare.requests().await.len(), 0, "{}", vendor.kind);
    }
}
