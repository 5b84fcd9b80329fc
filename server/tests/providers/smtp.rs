//! SMTP: the adapter against a server that is told what to do, and against the simulator.

use rsa::RsaPrivateKey;
use rsa::pkcs1::{EncodeRsaPrivateKey as _, EncodeRsaPublicKey as _, LineEnding};
use rsa::rand_core::OsRng;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use ring::signature::{
    ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use server::providers::{Cause, smtp};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use super::mail::{mail, receives};
use super::*;

/// A provider of kind `smtp` towards this port.
async fn made(port: u16, more: &str, clock: Arc<dyn Clock>) -> Arc<dyn Provider> {
    let data = folder();
    let tls = if more.contains("tls = ") { "" } else { "tls = \"none\"\n" };
    let text = format!(
        "[server]\ndata_dir = \"{}\"\n[providers.p]\nkind = \"smtp\"\nhost = \"127.0.0.1\"\nport = {port}\n{tls}\
         from = \"Example Market <no-reply@example.com>\"\n{more}",
        data.display()
    );
    let carrier: Arc<dyn Transport> = Arc::new(HttpTransport::new(Arc::clone(&clock)));
    let registry = build(&config(&text), clock, Arc::new(SystemEntropy), carrier).await.unwrap();
    let provider = Arc::clone(registry.get("p").unwrap());
    let _ = std::fs::remove_dir_all(data);
    provider
}

/// What a server says at one step, or does.
#[derive(Clone, Copy)]
enum Says {
    Line(&'static str),
    Close,
    Reset,
    Hang,
}

/// The steps in their order; each names what it says instead of what a good server would.
const STEPS: [(&str, &str); 6] = [
    ("", "220 ready"),
    ("EHLO", "250-relay\r\n250 8BITMIME"),
    ("MAIL", "250 2.1.0 ok"),
    ("RCPT", "250 2.1.5 ok"),
    ("DATA", "354 go on"),
    (".", "250 2.0.0 queued as 4F1"),
];

/// A server of one conversation after the other that answers all but one step as it should. Gives its port
/// and all that it was told.
async fn server(step: &'static str, says: Says) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let told = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&told);
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            tokio::spawn(converse(stream, step, says, Arc::clone(&all)));
        }
    });
    (port, told)
}

async fn converse(
    mut stream: TcpStream,
    step: &'static str,
    says: Says,
    told: Arc<Mutex<Vec<String>>>,
) {
    let mut buffer = Vec::new();
    for (name, good) in STEPS {
        if !name.is_empty() {
            let end: &[u8] = if name == "." { b"\r\n.\r\n" } else { b"\r\n" };
            while !buffer.ends_with(end) {
                let mut chunk = [0; 4096];
                match stream.read(&mut chunk).await {
                    Ok(0) | Err(_) => return,
                    Ok(read) => buffer.extend_from_slice(&chunk[..read]),
                }
                if buffer.starts_with(b"QUIT") {
                    return;
                }
            }
            told.lock().unwrap().push(String::from_utf8_lossy(&buffer).into_owned());
            buffer.clear();
        }
        let line = match says {
            Says::Line(line) if name == step => line,
            Says::Close if name == step => return,
            Says::Reset if name == step => {
                let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                return;
            }
            Says::Hang if name == step => {
                let _ = stream.read(&mut [0; 64]).await;
                return;
            }
            _ => good,
        };
        if stream.write_all(format!("{line}\r\n").as_bytes()).await.is_err() {
            return;
        }
    }
    let _ = stream.read(&mut [0; 64]).await;
}

fn not_sent(code: &str) -> Verdict {
    Verdict::NotSent { code: code.to_owned() }
}

fn deliveries(told: &Arc<Mutex<Vec<String>>>) -> usize {
    told.lock().unwrap().iter().filter(|text| text.ends_with("\r\n.\r\n")).count()
}

#[tokio::test]
async fn before_the_final_dot_everything_is_definite_and_after_it_only_a_reply_is() {
    for (step, _) in STEPS {
        for says in [Says::Close, Says::Reset, Says::Hang] {
            let (port, told) = server(step, says).await;
            let provider = made(port, "", system()).await;
            let verdict = provider.send(&mail("a1"), within(&SystemClock, 400)).await;
            let (lost, code) = match says {
                Says::Hang => (Doubt::Timeout, "timeout"),
                _ => (Doubt::ConnectionLost, "lost"),
            };
            let expected = if step == "." { unknown(lost, code) } else { not_sent(code) };
            assert_eq!(verdict, expected, "{step}");
            assert_eq!(deliveries(&told), usize::from(step == "."), "{step}");
        }
    }
    let provider = made(9, "", system()).await;
    assert_eq!(provider.send(&mail("a1"), soon()).await, not_sent("connect"));
}

#[tokio::test]
async fn each_reply_has_its_verdict_and_no_text_of_it_is_kept() {
    let accepted = Verdict::Accepted { message_id: Some("a1".to_owned()) };
    let permanent = |code: &str| Verdict::RefusedPermanently { code: code.to_owned() };
    let transient = |code: &str| Verdict::TransientRefusal { code: code.to_owned() };
    let stopped = |code: &str| Verdict::ProviderStopped { code: code.to_owned() };
    for (step, line, expected) in [
        (".", "250-2.0.0 ok\r\n250 2.0.0 queued for ann@example.com", accepted.clone()),
        (".", "250 ok", accepted),
        (".", "451 4.3.0 later, ann@example.com", transient("smtp_451_4.3.0")),
        (".", "550 5.1.1 ann@example.com", permanent("smtp_550_5.1.1")),
        (".", "554 5.7.1 your message looks like spam", stopped("smtp_554_5.7.1")),
        (".", "354 what", unknown(Doubt::AmbiguousResponse, "smtp_354")),
        (".", "gone", unknown(Doubt::ConnectionLost, "lost")),
        (".", "250-one\r\n550 two", unknown(Doubt::ConnectionLost, "lost")),
        ("", "554 no service", stopped("smtp_554")),
        ("", "421 too busy", transient("smtp_421")),
        ("", "HTTP/1.1 400 Bad Request", not_sent("lost")),
        ("EHLO", "502 what", stopped("smtp_502")),
        ("MAIL", "530 5.7.0 log in first", stopped("smtp_530_5.7.0")),
        ("RCPT", "550 no such user ann@example.com", permanent("smtp_550")),
        ("RCPT", "550 5.7.1 blocked using zen.example", stopped("smtp_550_5.7.1")),
        ("RCPT", "554 Relay access denied", stopped("smtp_554")),
        ("RCPT", "450 4.2.0 greylisted", transient("smtp_450_4.2.0")),
        ("DATA", "554 5.5.1 no valid recipients", permanent("smtp_554_5.5.1")),
    ] {
        let (port, told) = server(step, Says::Line(line)).await;
        let provider = made(port, "", system()).await;
        let verdict = provider.send(&mail("a1"), soon()).await;
        assert_eq!(verdict, expected, "{step} {line}");
        assert_eq!(deliveries(&told), usize::from(step == "."), "{step} {line}");
    }
    // The table that decides is data, each row with its source.
    assert!(smtp::CLASSES.iter().all(|row| row.from <= row.to && !row.source.is_empty()));
}

#[tokio::test]
async fn a_letter_has_one_recipient_its_attempts_message_id_and_no_way_out() {
    let (port, told) = server("none", Says::Close).await;
    let provider = made(port, "", system()).await;
    let mut message = mail("0a1b2c");
    message.text =
        secret("Hello\n.\r\nMAIL FROM:<x@example.com>\rQUIT\r\n..\nhttps://example.com/reset/é");
    let accepted = Verdict::Accepted { message_id: Some("0a1b2c".to_owned()) };
    assert_eq!(provider.send(&message, soon()).await, accepted);
    let told = told.lock().unwrap().clone();
    assert_eq!(
        told[..4].join(""),
        "EHLO example.com\r\nMAIL FROM:<no-reply@example.com>\r\nRCPT TO:<ann@example.com>\r\nDATA\r\n"
    );
    assert_eq!(told.len(), 5);
    let (head, _) = told[4].split_once("\r\n\r\n").unwrap();
    for line in [
        "From: \"Example Market\" <no-reply@example.com>",
        "To: ann@example.com",
        "Subject: Example: Reset your password",
        "Message-ID: <0a1b2c@example.com>",
        "Auto-Submitted: auto-generated",
        "MIME-Version: 1.0",
    ] {
        assert!(head.lines().any(|own| own == line), "{line} in {head}");
    }
    assert_eq!(told[4].matches("\r\n.\r\n").count(), 1);
    assert!(!told[4].replace("\r\n", "").contains(['\r', '\n']));

    // What could begin another header or another command is never put on a line.
    let (port, told) = server("none", Says::Close).await;
    let provider = made(port, "", system()).await;
    for (to, subject) in [
        ("ann@example.com> NOTIFY=NEVER", "s"),
        ("ann@example.com\r\nDATA", "s"),
        ("ann@example.com,bob@example.com", "s"),
        ("ann@example.com", "s\r\nBcc: bob@example.com"),
        ("ann@example.com", "s\nBcc: bob@example.com"),
    ] {
        let mut message = mail("a1");
        message.to = secret(to);
        message.subject = Some(subject.to_owned());
        let verdict = provider.send(&message, soon()).await;
        assert_eq!(verdict.outcome().as_str(), "refused_permanently", "{to} {subject}");
    }
    assert!(told.lock().unwrap().is_empty());
}

#[tokio::test]
async fn wherever_a_process_is_stopped_a_letter_is_whole_or_without_its_dot() {
    let mut definite = 0;
    for readings in 0..80 {
        let (port, told) = server("none", Says::Close).await;
        let clock: Arc<dyn Clock> = Arc::new(Stopped { readings_left: AtomicI64::new(readings) });
        let provider = made_without_demo(port, clock);
        let verdict = provider.send(&mail("a1"), Deadline { boot: SECOND }).await;
        match verdict {
            Verdict::NotSent { code } => {
                settle().await;
                assert_eq!((code.as_str(), deliveries(&told)), ("timeout", 0), "{readings}");
                definite += 1;
            }
            Verdict::Unknown { why: Doubt::Timeout, .. } => {}
            Verdict::Accepted { .. } => {
                assert_eq!(deliveries(&told), 1, "{readings}");
                assert!(definite >= 8, "{definite}");
                return;
            }
            other => panic!("stopped after {readings} readings: {other:?}"),
        }
    }
    panic!("never got through");
}

/// Without the simulator behind `demo`, whose own use of the clock would be counted.
fn made_without_demo(port: u16, clock: Arc<dyn Clock>) -> Arc<dyn Provider> {
    let text = format!(
        "[providers.p]\nkind = \"smtp\"\nhost = \"127.0.0.1\"\nport = {port}\ntls = \"none\"\n\
         from = \"no-reply@example.com\""
    );
    let config = config(&text);
    smtp::make(&server::providers::vendor::Parts {
        name: "p",
        config: &config.providers["p"],
        public_url: "http://127.0.0.1:1",
        transport: Arc::new(HttpTransport::new(Arc::clone(&clock))),
        clock,
        entropy: Arc::new(SystemEntropy),
    })
    .unwrap()
}

// ---------------------------------------------------------------------------------------------------
// Against the simulator.

struct Relay {
    sim: Sim,
    port: u16,
}

async fn relay() -> Relay {
    let sim = Sim::start(Settings::default()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(simulator::serve_smtp(listener, Arc::clone(&sim.simulator)));
    Relay { sim, port }
}

/// The simulator's certificate in a file.
async fn ca_file(sim: &Sim) -> PathBuf {
    let url = format!("{}/_control/ca.pem", sim.base);
    let answer = transport().exchange(get(&url), soon()).await.unwrap();
    let file = folder().join("ca.pem");
    std::fs::write(&file, answer.body()).unwrap();
    file
}

#[tokio::test]
async fn smtps_behaviours_have_their_verdicts_and_are_one_call_each() {
    let relay = relay().await;
    let provider = made(relay.port, "", system()).await;
    let accepted = |attempt: &str| Verdict::Accepted { message_id: Some(attempt.to_owned()) };
    for (number, (behaviour, expected, is_taken)) in [
        (json!("accept"), None, true),
        (json!({"slow": {"ms": 20}}), None, true),
        (json!("accept_then_hang"), Some(unknown(Doubt::Timeout, "timeout")), true),
        (json!("hang_before_accept"), Some(unknown(Doubt::Timeout, "timeout")), false),
        (json!("accept_then_reset"), Some(unknown(Doubt::ConnectionLost, "lost")), true),
        (json!("reset_before_accept"), Some(unknown(Doubt::ConnectionLost, "lost")), false),
        (json!("accept_then_500"), Some(unknown(Doubt::ConnectionLost, "lost")), true),
        (
            json!("refuse_permanently"),
            Some(Verdict::RefusedPermanently { code: "smtp_550_5.1.1".to_owned() }),
            false,
        ),
        (
            json!("refuse_transiently"),
            Some(Verdict::TransientRefusal { code: "smtp_451_4.7.1".to_owned() }),
            false,
        ),
        (
            json!({"rate_limit": {"retry_after": 30}}),
            Some(Verdict::TransientRefusal { code: "smtp_421_4.7.0".to_owned() }),
            false,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let attempt = format!("a{number}");
        let name = behaviour.to_string();
        let script =
            json!({"provider": "smtp", "match": {"attempt": attempt}, "behaviour": [behaviour]});
        assert_eq!(relay.sim.script(script).await.status(), StatusCode::OK, "{name}");
        let verdict = provider.send(&mail(&attempt), within(&SystemClock, 700)).await;
        assert_eq!(verdict, expected.unwrap_or_else(|| accepted(&attempt)), "{name}");
        let calls = relay.sim.control(&format!("/calls?attempt={attempt}")).await;
        assert_eq!(calls["count"], 1, "{name}");
        assert_eq!(calls["calls"][0]["destination"], "ann@example.com");
        let messages = relay.sim.control(&format!("/messages?attempt={attempt}")).await;
        assert_eq!(messages["count"], i32::from(is_taken), "{name}");
        let lookup = provider.find(&query(&attempt), soon()).await;
        assert_eq!(lookup, Lookup::CannotTell { code: "no_lookup".to_owned() });
    }
    assert_eq!(provider.capability().reading, Reading::None);
    assert!(!provider.capability().has_callbacks());
}

#[tokio::test]
async fn starttls_is_demanded_and_only_whom_we_trust_gets_the_password_and_the_letter() {
    let relay = relay().await;
    let ca = ca_file(&relay.sim).await;
    let secured = format!(
        "tls = \"starttls\"\nusername = \"app\"\npassword = \"pa55\"\nca_file = \"{}\"",
        ca.display()
    );
    let provider = made(relay.port, &secured, system()).await;
    let accepted = Verdict::Accepted { message_id: Some("a1".to_owned()) };
    assert_eq!(provider.send(&mail("a1"), soon()).await, accepted);

    let untrusting = made(relay.port, "tls = \"starttls\"", system()).await;
    assert_eq!(untrusting.send(&mail("a2"), soon()).await, not_sent("tls"));
    assert_eq!(relay.sim.control("/calls").await["count"], 1);

    // A server that cannot do it, or one behind somebody who hides that it can.
    let (port, told) = server("none", Says::Close).await;
    let provider = made(port, &secured, system()).await;
    let stopped = Verdict::ProviderStopped { code: "no_starttls".to_owned() };
    assert_eq!(provider.send(&mail("a3"), soon()).await, stopped);
    assert_eq!(*told.lock().unwrap(), ["EHLO example.com\r\n"]);

    // What is said before the handshake must not count as said under TLS.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut chunk = [0; 512];
        let _ = stream.write_all(b"220 hi\r\n").await;
        let _ = stream.read(&mut chunk).await;
        let _ = stream.write_all(b"250-relay\r\n250 STARTTLS\r\n").await;
        let _ = stream.read(&mut chunk).await;
        let _ = stream.write_all(b"220 go\r\n250-relay\r\n250 AUTH PLAIN\r\n").await;
        let _ = stream.read(&mut chunk).await;
    });
    let provider = made(port, &secured, system()).await;
    assert_eq!(provider.send(&mail("a4"), soon()).await, not_sent("tls"));
    let _ = std::fs::remove_dir_all(ca.parent().unwrap());
}

#[tokio::test]
async fn implicit_tls_speaks_first_in_tls_and_an_empty_offer_of_auth_stops() {
    let relay = relay().await;
    let ca = ca_file(&relay.sim).await;
    // The simulator's plain port behind a TLS one with a certificate of its own.
    let made_up = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&ca, made_up.cert.pem()).unwrap();
    let certificate = CertificateDer::from_pem_slice(made_up.cert.pem().as_bytes()).unwrap();
    let key = PrivatePkcs8KeyDer::from(made_up.signing_key.serialize_der());
    let server_config =
        ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key.into())
            .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(server_config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, behind) = (listener.local_addr().unwrap().port(), relay.port);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut outer) = acceptor.accept(stream).await else { return };
                let mut inner = TcpStream::connect(("127.0.0.1", behind)).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
            });
        }
    });
    let more = format!(
        "tls = \"implicit\"\nca_file = \"{}\"\nusername = \"app\"\npassword = \"pa55\"",
        ca.display()
    );
    let provider = made(port, &more, system()).await;
    let accepted = Verdict::Accepted { message_id: Some("a1".to_owned()) };
    assert_eq!(provider.send(&mail("a1"), soon()).await, accepted);
    relay.sim.script(json!({"provider": "smtp", "behaviour": ["accept_then_reset"]})).await;
    let lost = unknown(Doubt::ConnectionLost, "lost");
    assert_eq!(provider.send(&mail("a2"), soon()).await, lost);
    // A plain port is no TLS.
    let provider = made(relay.port, &more, system()).await;
    assert!(matches!(
        provider.send(&mail("a3"), within(&SystemClock, 500)).await,
        Verdict::NotSent { .. }
    ));
    // Whoever offers no AUTH gets no password.
    let (port, told) = server("none", Says::Close).await;
    let provider = made(port, "username = \"app\"\npassword = \"pa55\"", system()).await;
    let stopped = Verdict::ProviderStopped { code: "no_auth".to_owned() };
    assert_eq!(provider.send(&mail("a4"), soon()).await, stopped);
    assert!(!told.lock().unwrap().join("").contains("AUTH"));
    let _ = std::fs::remove_dir_all(ca.parent().unwrap());
}

#[tokio::test]
async fn a_notification_resolves_what_smtp_itself_can_never_tell() {
    const KEY: &str = "dsn-dsn-dsn-dsn";
    let relay = relay().await;
    let provider = made(relay.port, &format!("webhook_secret = \"{KEY}\""), system()).await;
    assert!(provider.capability().has_callbacks());
    let (url, received) = receives(Arc::clone(&provider)).await;
    let run = async |attempt: &str, callbacks: &str, delivery: &str| {
        let script = json!({
            "provider": "smtp", "behaviour": ["accept_then_reset"], "callbacks": callbacks,
            "callback_url": url, "callback_secret": KEY, "deliver_after_ms": 100, "delivery": delivery,
        });
        assert_eq!(relay.sim.script(script).await.status(), StatusCode::OK);
        let verdict = provider.send(&mail(attempt), soon()).await;
        assert_eq!(verdict, unknown(Doubt::ConnectionLost, "lost"));
    };
    let seen = |number: usize| {
        let received = received.lock().unwrap();
        (received.len() >= number).then(|| received.clone())
    };
    run("a1", "normal", "delivered").await;
    let all = eventually(|| seen(2)).await;
    let says = |number: usize, all: &[Result<Vec<server::providers::Receipt>, CallbackError>]| {
        let receipt = &all[number].as_ref().unwrap()[0];
        (receipt.attempt_id.clone().unwrap(), receipt.seen, receipt.cause)
    };
    assert_eq!(says(0, &all), ("a1".to_owned(), Seen::Accepted, None));
    assert_eq!(says(1, &all), ("a1".to_owned(), Seen::Delivered, None));
    run("a2", "normal", "failed").await;
    let all = eventually(|| seen(4)).await;
    assert_eq!(says(3, &all), ("a2".to_owned(), Seen::Failed, Some(Cause::BadRecipient)));
    run("a3", "forged", "delivered").await;
    let all = eventually(|| seen(5)).await;
    assert_eq!(all[4], Err(CallbackError::Signature));
}

// ---------------------------------------------------------------------------------------------------
// Signed letters.

/// Checks a DKIM signature as RFC 6376 tells a verifier to, with relaxed forms of headers and body.
fn verify_dkim(letter: &str, algorithm: &'static dyn VerificationAlgorithm, key: &[u8]) -> bool {
    let (head, body) = letter.split_once("\r\n\r\n").unwrap();
    let mut headers: Vec<String> = Vec::new();
    for line in head.split("\r\n") {
        match headers.last_mut() {
            Some(last) if line.starts_with([' ', '\t']) => last.push_str(line),
            _ => headers.push(line.to_owned()),
        }
    }
    let squeezed = |text: &str| {
        text.split([' ', '\t']).filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let relaxed = |header: &str| {
        let (name, value) = header.split_once(':').unwrap();
        format!("{}:{}", name.trim().to_ascii_lowercase(), squeezed(value))
    };
    let named = |name: &str| {
        let is_named =
            |header: &&String| header.split(':').next().unwrap().eq_ignore_ascii_case(name);
        headers.iter().find(is_named).map(|header| relaxed(header))
    };
    let own = named("dkim-signature").unwrap();
    let tag = |name: &str| {
        let tags = own.split_once(':').unwrap().1;
        tags.split(';').find_map(|tag| {
            Some(tag.trim().strip_prefix(name)?.strip_prefix('=')?.replace(' ', ""))
        })
    };
    let trailing = |line: &str| {
        let text = squeezed(line);
        if line.starts_with([' ', '\t']) && !text.is_empty() { format!(" {text}") } else { text }
    };
    let body = body.split("\r\n").map(trailing).collect::<Vec<_>>().join("\r\n");
    let body = format!("{}\r\n", body.trim_end_matches("\r\n"));
    let decode = |text: String| base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    let hash = ring::digest::digest(&ring::digest::SHA256, body.as_bytes());
    if decode(tag("bh").unwrap()) != hash.as_ref() || tag("c").as_deref() != Some("relaxed/relaxed")
    {
        return false;
    }
    let mut signed = String::new();
    for name in tag("h").unwrap().split(':') {
        signed.push_str(&named(name).unwrap());
        signed.push_str("\r\n");
    }
    let (before, _) = own.split_once(" b=").unwrap();
    signed.push_str(before);
    signed.push_str(" b=");
    let signature = decode(tag("b").unwrap());
    // Ed25519 signs the hash (RFC 8463), RSA hashes itself.
    let hash = ring::digest::digest(&ring::digest::SHA256, signed.as_bytes());
    let text =
        if tag("a").unwrap().starts_with("ed25519") { hash.as_ref() } else { signed.as_bytes() };
    UnparsedPublicKey::new(algorithm, key).verify(text, &signature).is_ok()
}

#[tokio::test]
async fn a_signed_letter_verifies_and_a_changed_one_does_not() {
    let rsa = RsaPrivateKey::new(&mut OsRng, 2048).unwrap();
    let rsa_public = rsa.to_public_key().to_pkcs1_der().unwrap().into_vec();
    let rsa = rsa.to_pkcs1_pem(LineEnding::LF).unwrap().to_string();
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let ed_public = pair.public_key_raw().to_vec();
    let folder = folder();
    let path = folder.join("dkim.pem");
    let cases: [(String, &'static dyn VerificationAlgorithm, Vec<u8>); 2] = [
        (rsa, &RSA_PKCS1_2048_8192_SHA256, rsa_public),
        (pair.serialize_pem(), &ED25519, ed_public),
    ];
    for (key, algorithm, public) in cases {
        std::fs::write(&path, &key).unwrap();
        let (port, told) = server("none", Says::Close).await;
        let more = format!("dkim_key_file = \"{}\"\ndkim_selector = \"s1\"", path.display());
        let provider = made(port, &more, system()).await;
        let mut message = mail("a1");
        message.text = secret("Hello  there \n\n.dot\n\n\n");
        let accepted = Verdict::Accepted { message_id: Some("a1".to_owned()) };
        assert_eq!(provider.send(&message, soon()).await, accepted);
        let told = told.lock().unwrap().last().unwrap().clone();
        let letter = told.strip_suffix(".\r\n").unwrap().replace("\r\n..", "\r\n.");
        assert!(letter.contains("d=example.com; s=s1;"), "{letter}");
        assert!(verify_dkim(&letter, algorithm, &public), "{letter}");
        for (from, to) in
            [("Hello", "Hallo"), ("To: ann@", "To: bob@"), ("Subject: Ex", "Subject: ex")]
        {
            assert!(letter.contains(from));
            assert!(!verify_dkim(&letter.replacen(from, to, 1), algorithm, &public), "{from}");
        }
    }
    std::fs::write(&path, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
        .unwrap();
    let text = format!(
        "[server]\ndata_dir = \"{}\"\n[providers.p]\nkind = \"smtp\"\nhost = \"127.0.0.1\"\nport = 25\ntls = \"none\"\n\
         from = \"a@example.com\"\ndkim_selector = \"s\"\ndkim_key_file = \"{}\"",
        folder.display(),
        path.display()
    );
    let error = build(&config(&text), system(), Arc::new(SystemEntropy), transport()).await;
    assert_eq!(
        error.unwrap_err().to_string(),
        "providers.p.dkim_key_file is no RSA or Ed25519 private key"
    );
    let _ = std::fs::remove_dir_all(folder);
}

// ---------------------------------------------------------------------------------------------------
// Against a server of other people.

/// A running aiosmtpd; it ends with the test.
struct Aiosmtpd {
    child: Child,
    port: u16,
    folder: PathBuf,
}

impl Aiosmtpd {
    /// None where `scripts/setup.sh test` could not install it.
    fn start() -> Option<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let python = root.join("target/setup/python/bin/python");
        if !python.exists() {
            eprintln!("left out: aiosmtpd is not installed; scripts/setup.sh test installs it");
            return None;
        }
        let folder = folder();
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(folder.join("ca.pem"), own.cert.pem()).unwrap();
        std::fs::write(folder.join("key.pem"), own.signing_key.serialize_pem()).unwrap();
        let mut child = Command::new(python)
            .arg(root.join("server/tests/data/smtp_server.py"))
            .args(["ca.pem", "key.pem", "log"].map(|name| folder.join(name)))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().expect("its port");
        Some(Self { child, port, folder })
    }

    /// The messages that it received whole.
    fn received(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Aiosmtpd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test]
async fn a_real_server_reads_our_letter_and_its_silence_after_the_dot_is_unknown() {
    let Some(real) = Aiosmtpd::start() else { return };
    let ca = real.folder.join("ca.pem");
    let with = |password: &str| {
        format!(
            "tls = \"starttls\"\nca_file = \"{}\"\nusername = \"app\"\npassword = \"{password}\"",
            ca.display()
        )
    };
    let provider = made(real.port, &with("pa55 wörd"), system()).await;
    let send = async |attempt: &str, to: &str| {
        let mut message = mail(attempt);
        message.to = secret(to);
        message.subject = Some("Größe: Reset".to_owned());
        message.text = secret("Grüße\n.\n..\nhttps://example.com/reset/t0ken\n");
        provider.send(&message, soon()).await
    };
    let accepted = Verdict::Accepted { message_id: Some("a1".to_owned()) };
    assert_eq!(send("a1", "ann@example.com").await, accepted);
    let seen = real.received().pop().unwrap();
    assert_eq!(seen["from"], "no-reply@example.com");
    assert_eq!(seen["to"], json!(["ann@example.com"]));
    assert_eq!(seen["subject"], "Größe: Reset");
    assert_eq!(seen["message_id"], "<a1@example.com>");
    assert_eq!(seen["defects"], 0);
    let text = seen["text"].as_str().unwrap().replace("\r\n", "\n");
    assert_eq!(text, "Grüße\n.\n..\nhttps://example.com/reset/t0ken\n");
    assert_eq!(seen["html"].as_str().unwrap().trim_end(), "<p>https://example.com/reset/t0ken</p>");

    let lost = unknown(Doubt::ConnectionLost, "lost");
    assert_eq!(send("a2", "drop@example.com").await, lost);
    assert_eq!(real.received().len(), 2, "it has the message, and nobody told us");
    let later = Verdict::TransientRefusal { code: "smtp_451_4.3.0".to_owned() };
    assert_eq!(send("a3", "later@example.com").await, later);
    let refused = Verdict::RefusedPermanently { code: "smtp_550_5.1.1".to_owned() };
    assert_eq!(send("a4", "refused@example.com").await, refused);
    assert_eq!(real.received().len(), 3);

    let stopped = Verdict::ProviderStopped { code: "smtp_535_5.7.8".to_owned() };
    let wrong = made(real.port, &with("wrong"), system()).await;
    assert_eq!(wrong.send(&mail("a5"), soon()).await, stopped);
    // It demands TLS, and says so as our configuration's fault.
    let plain = made(real.port, "", system()).await;
    let stopped = Verdict::ProviderStopped { code: "smtp_530".to_owned() };
    assert_eq!(plain.send(&mail("a6"), soon()).await, stopped);
    assert_eq!(real.received().len(), 3);
}
