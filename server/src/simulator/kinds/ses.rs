//! Amazon SES and the SNS that carries its events, from their own side.
//!
//! The key of a callback target is the name (ARN) of the topic. SNS signs with an RSA key that is made when
//! it is first needed, and serves its certificate under `/ses/SimpleNotificationService-….pem`. A topic
//! whose name ends with `-v1` is signed as version 1 (SHA-1), every other one as version 2.

use std::sync::{Arc, OnceLock};

use app::model::{Seen, Stamp};
use axum::body::Bytes;
use axum::extract::{Form, OriginalUri, Path, Query, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rcgen::{CertificateParams, DnType, KeyPair, PKCS_RSA_SHA256};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use rsa::pkcs8::EncodePrivateKey as _;
use rsa::rand_core::{CryptoRng, RngCore};
use rsa::{Pkcs1v15Sign, RsaPrivateKey};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use crate::entropy::Entropy;
use crate::keys;
use crate::providers::Deadline;
use crate::providers::Secret;
use crate::providers::ses::sns::{Envelope, Kind};
use crate::simulator::callbacks::CallbackFacts;
use crate::simulator::{Incoming, Line, Reply, Simulator};

const ACCOUNT: &str = "123456789012";

/// The `DigestInfo` before a hash (RFC 8017 section 9.2).
const SHA1_INFO: [u8; 15] =
    [0x30, 0x21, 0x30, 0x09, 0x06, 0x05, 0x2b, 0x0e, 0x03, 0x02, 0x1a, 0x05, 0x00, 0x04, 0x14];
const SHA256_INFO: [u8; 19] = [
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05,
    0x00, 0x04, 0x20,
];

/// How far the time of a signed request may lie from ours, in microseconds.
const SIGNED_AGE_MAX: i64 = 15 * 60 * 1_000_000;

#[derive(Clone)]
struct Mounted {
    simulator: Arc<Simulator>,
    kind: &'static str,
}

pub(super) fn routes(simulator: Arc<Simulator>, kind: &'static str) -> Router {
    Router::new()
        .route("/v2/email/outbound-emails", post(send))
        .route("/sns", post(subscribe).get(confirm))
        .route("/{file}", get(certificate))
        .with_state(Mounted { simulator, kind })
}

/// As `010001712b6a1d2e-5b8a1c2f-3d4e-4f50-8a9b-0c1d2e3f4a5b-000000`.
pub(super) fn message_id(entropy: &dyn Entropy) -> String {
    let mut bytes = [0_u8; 16];
    entropy.fill(&mut bytes);
    let uuid = uuid::Builder::from_random_bytes(bytes).into_uuid();
    format!("0100{}-{uuid}-000000", entropy.hex(6))
}

/// What a sender must give. The texts are looked at and dropped.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Message {
    from_email_address: String,
    destination: Destination,
    content: Content,
    #[serde(default)]
    email_tags: Vec<Named>,
    #[serde(rename = "ConfigurationSetName")]
    _configuration_set_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Destination {
    to_addresses: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Content {
    simple: Simple,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Simple {
    subject: Text,
    body: Texts,
    #[serde(default)]
    headers: Vec<Named>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Texts {
    text: Option<Text>,
    html: Option<Text>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Text {
    data: String,
    #[serde(rename = "Charset")]
    _charset: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Named {
    name: String,
    value: String,
}

impl Message {
    fn is_complete(&self) -> bool {
        let has_text = |text: &Option<Text>| text.as_ref().is_some_and(|it| !it.data.is_empty());
        let is_word = |text: &str| {
            (1..=256).contains(&text.len())
                && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-'))
        };
        let content = &self.content.simple;
        self.from_email_address.contains('@')
            && self.destination.to_addresses.len() == 1
            && self.destination.to_addresses[0].contains('@')
            && !content.subject.data.is_empty()
            && (has_text(&content.body.text) || has_text(&content.body.html))
            && content.headers.len() <= 15
            && content.headers.iter().all(|it| it.name.len() <= 126 && it.value.len() <= 995)
            && self.email_tags.iter().all(|tag| is_word(&tag.name) && is_word(&tag.value))
    }
}

async fn send(
    State(mounted): State<Mounted>,
    line: Option<Extension<Line>>,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let simulator = &mounted.simulator;
    if let Err(kind) = check_signature(simulator, uri.path(), &headers, &body) {
        return error(simulator, StatusCode::FORBIDDEN, kind);
    }
    let message = serde_json::from_slice::<Message>(&body).ok().filter(Message::is_complete);
    let Some(message) = message else {
        return error(simulator, StatusCode::BAD_REQUEST, "BadRequestException");
    };
    let tag = message.email_tags.iter().find(|tag| tag.name == "attempt_id");
    let attempt = tag.map(|tag| tag.value.clone()).unwrap_or_default();
    let incoming =
        Incoming::new(mounted.kind, attempt, message.destination.to_addresses[0].clone());
    match simulator.play(&incoming, line.as_deref()).await {
        Reply::Accepted { message_id, .. } => {
            Json(json!({"MessageId": message_id})).into_response()
        }
        Reply::Broken => {
            error(simulator, StatusCode::INTERNAL_SERVER_ERROR, "InternalServiceErrorException")
        }
        Reply::Unavailable => {
            error(simulator, StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable")
        }
        Reply::RefusedPermanently => error(simulator, StatusCode::BAD_REQUEST, "MessageRejected"),
        // It refuses nothing for a while but what is too much.
        Reply::RefusedTransiently => too_many(simulator, None),
        Reply::RateLimited { retry_after } => too_many(simulator, Some(&retry_after)),
    }
}

fn too_many(simulator: &Simulator, retry_after: Option<&str>) -> Response {
    let mut response = error(simulator, StatusCode::TOO_MANY_REQUESTS, "TooManyRequestsException");
    if let Some(value) = retry_after.and_then(|text| HeaderValue::from_str(text).ok()) {
        response.headers_mut().insert(RETRY_AFTER, value);
    }
    response
}

fn error(simulator: &Simulator, status: StatusCode, kind: &'static str) -> Response {
    let id = simulator.entropy.uuid(simulator.now());
    let headers = [("x-amzn-errortype", kind.to_owned()), ("x-amzn-requestid", id)];
    (status, headers, Json(json!({"message": "refused by the simulator"}))).into_response()
}

/// Checks the form of a SigV4 signature, and the signature itself where the simulator has a secret. Made
/// from the published description, and not by the library that signs.
fn check_signature(
    simulator: &Simulator,
    path: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<(), &'static str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let value = text(AUTHORIZATION.as_str()).ok_or("MissingAuthenticationTokenException")?;
    let time = text("x-amz-date").ok_or("IncompleteSignatureException")?;
    let signed = Signed::parse(value).ok_or("IncompleteSignatureException")?;
    let [_, date, region, service, terminator] = signed.scope.as_slice() else {
        return Err("IncompleteSignatureException");
    };
    if *service != "ses" || *terminator != "aws4_request" || !time.starts_with(date) {
        return Err("InvalidSignatureException");
    }
    let at = basic_format(time).ok_or("IncompleteSignatureException")?;
    if simulator.now().since(at).abs() > SIGNED_AGE_MAX {
        return Err("InvalidSignatureException");
    }
    let Some(secret) = simulator.secret() else { return Ok(()) };
    let mut canonical = format!("POST\n{path}\n\n");
    for name in signed.headers.split(';') {
        let value = text(name).ok_or("IncompleteSignatureException")?;
        canonical.push_str(&format!("{name}:{}\n", value.trim()));
    }
    canonical.push_str(&format!("\n{}\n{}", signed.headers, keys::sha256(body)));
    let scope = [*date, *region, *service, *terminator].join("/");
    let hash = keys::sha256(canonical.as_bytes());
    let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hash}");
    let first = format!("AWS4{}", secret.expose()).into_bytes();
    let steps = [*date, *region, *service, *terminator];
    let key = steps.iter().fold(first, |key, step| mac(&key, step.as_bytes()));
    let expected = keys::hex(&mac(&key, to_sign.as_bytes()));
    if keys::equal(expected.as_bytes(), signed.signature.as_bytes()) {
        Ok(())
    } else {
        Err("SignatureDoesNotMatch")
    }
}

/// The parts of an `Authorization` header of SigV4.
struct Signed<'a> {
    /// Key, date, region, service, `aws4_request`.
    scope: Vec<&'a str>,
    headers: &'a str,
    signature: &'a str,
}

impl<'a> Signed<'a> {
    fn parse(value: &'a str) -> Option<Self> {
        let mut parts = value.strip_prefix("AWS4-HMAC-SHA256 ")?.split(", ");
        let mut part = |name: &str| parts.next()?.strip_prefix(name)?.strip_prefix('=');
        Some(Self {
            scope: part("Credential")?.split('/').collect(),
            headers: part("SignedHeaders")?,
            signature: part("Signature")?,
        })
    }
}

fn mac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

/// `20260921T141320Z`.
fn basic_format(text: &str) -> Option<Stamp> {
    let part = |from: usize, to: usize| text.get(from..to);
    Stamp::parse(&format!(
        "{}-{}-{}T{}:{}:{}Z",
        part(0, 4)?,
        part(4, 6)?,
        part(6, 8)?,
        part(9, 11)?,
        part(11, 13)?,
        part(13, 15)?
    ))
    .ok()
}

/// The key that this process's SNS signs with, and the certificate of it.
struct Identity {
    key: RsaPrivateKey,
    pem: String,
    file: String,
}

/// Made once: finding the primes takes a while.
fn identity(entropy: &dyn Entropy) -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        const BITS: usize = 2048;
        let key = RsaPrivateKey::new(&mut Random(entropy), BITS).expect("there are primes enough");
        let pkcs8 = key.to_pkcs8_der().expect("a fresh key can be written");
        let pair = PrivatePkcs8KeyDer::from(pkcs8.as_bytes());
        let pair = KeyPair::from_pkcs8_der_and_sign_algo(&pair, &PKCS_RSA_SHA256)
            .expect("a fresh key can be read");
        let mut params =
            CertificateParams::new(vec!["sns.amazonaws.com".to_owned()]).expect("the name is one");
        params.distinguished_name.push(DnType::CommonName, "sns.amazonaws.com");
        let pem = params.self_signed(&pair).expect("a fresh key can sign").pem();
        let name = keys::sha256(pem.as_bytes());
        let file = format!("SimpleNotificationService-{}.pem", name.get(..32).unwrap_or(&name));
        Identity { key, pem, file }
    })
}

/// The product's randomness in the form that the RSA library takes.
struct Random<'a>(&'a dyn Entropy);

impl RngCore for Random<'_> {
    fn next_u32(&mut self) -> u32 {
        let mut bytes = [0_u8; 4];
        self.0.fill(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0_u8; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn fill_bytes(&mut self, dest: &mut [u8]) {
        self.0.fill(dest);
    }

    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), rsa::rand_core::Error> {
        self.0.fill(dest);
        Ok(())
    }
}

impl CryptoRng for Random<'_> {}

async fn certificate(State(mounted): State<Mounted>, Path(file): Path<String>) -> Response {
    let identity = identity(&*mounted.simulator.entropy);
    if file != identity.file {
        return StatusCode::NOT_FOUND.into_response();
    }
    ([(CONTENT_TYPE, "application/x-pem-file")], identity.pem.clone()).into_response()
}

/// The envelope with a signature of this process's SNS.
fn signed(mut envelope: Envelope, entropy: &dyn Entropy) -> Envelope {
    let text = envelope.signed_text();
    let is_v1 = envelope.topic_arn.ends_with("-v1");
    let (version, algorithm, info) = if is_v1 {
        ("1", &SHA1_FOR_LEGACY_USE_ONLY, SHA1_INFO.as_slice())
    } else {
        ("2", &SHA256, SHA256_INFO.as_slice())
    };
    let hash = digest(algorithm, text.as_bytes());
    let padding = Pkcs1v15Sign { hash_len: Some(hash.as_ref().len()), prefix: info.into() };
    let signature = identity(entropy).key.sign(padding, hash.as_ref());
    envelope.signature_version = version.to_owned();
    envelope.signature = STANDARD.encode(signature.expect("the key is long enough"));
    envelope
}

/// The post of an envelope.
fn posted(envelope: &Envelope, url: &str) -> Option<Request<Bytes>> {
    let kind = format!("{:?}", envelope.kind);
    let mut body = json!({
        "Type": kind,
        "MessageId": envelope.message_id,
        "TopicArn": envelope.topic_arn,
        "Message": envelope.message,
        "Timestamp": envelope.timestamp,
        "SignatureVersion": envelope.signature_version,
        "Signature": envelope.signature,
        "SigningCertURL": envelope.certificate_url,
    });
    for (name, value) in [("Token", &envelope.token), ("SubscribeURL", &envelope.subscribe_url)] {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
    Request::post(url)
        .header(CONTENT_TYPE, "text/plain; charset=UTF-8")
        .header("x-amz-sns-message-type", kind)
        .header("x-amz-sns-message-id", &envelope.message_id)
        .header("x-amz-sns-topic-arn", &envelope.topic_arn)
        .body(Bytes::from(body.to_string()))
        .ok()
}

/// An envelope without its signature.
fn envelope(
    kind: Kind,
    topic_arn: &str,
    message: String,
    origin: &str,
    now: Stamp,
    entropy: &dyn Entropy,
) -> Envelope {
    Envelope {
        kind,
        message_id: entropy.uuid(now),
        topic_arn: topic_arn.to_owned(),
        message,
        timestamp: now.to_string(),
        signature_version: String::new(),
        signature: String::new(),
        certificate_url: format!("{origin}/ses/{}", identity(entropy).file),
        subject: None,
        token: None,
        subscribe_url: None,
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Subscription {
    action: String,
    topic_arn: String,
    endpoint: Option<String>,
    token: Option<String>,
}

/// The token of a subscription to this topic.
fn token(topic_arn: &str) -> String {
    keys::sha256(format!("subscribe {topic_arn}").as_bytes())
}

/// `Action=Subscribe`: asks the endpoint, which must be on this machine, to confirm.
async fn subscribe(State(mounted): State<Mounted>, Form(asked): Form<Subscription>) -> Response {
    let simulator = &mounted.simulator;
    let entropy = &*simulator.entropy;
    let (Some(origin), Some(endpoint)) = (simulator.origin.get(), asked.endpoint) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let is_near = url::Url::parse(&endpoint)
        .is_ok_and(|url| url.scheme() == "http" && url.host_str() == Some("127.0.0.1"));
    if asked.action != "Subscribe" || !is_near {
        return StatusCode::BAD_REQUEST.into_response();
    }
    let (arn, token) = (asked.topic_arn.as_str(), token(&asked.topic_arn));
    let text = "You have chosen to subscribe to the topic. To confirm, visit the SubscribeURL.";
    let kind = Kind::SubscriptionConfirmation;
    let mut envelope = envelope(kind, arn, text.to_owned(), origin, simulator.now(), entropy);
    let query =
        form_urlencoded(&[("Action", "ConfirmSubscription"), ("TopicArn", arn), ("Token", &token)]);
    envelope.subscribe_url = Some(format!("{origin}/ses/sns?{query}"));
    envelope.token = Some(token);
    let deadline = Deadline { boot: simulator.clock.boot().saturating_add(10_000_000) };
    let Some(request) = posted(&signed(envelope, entropy), &endpoint) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let answered = simulator.transport.exchange(request, deadline).await;
    let is_taken = answered.is_ok_and(|response| response.status().is_success());
    let arn = if is_taken {
        format!("{arn}:{}", entropy.uuid(simulator.now()))
    } else {
        "pending confirmation".to_owned()
    };
    xml("Subscribe", &arn)
}

/// `Action=ConfirmSubscription`, which is what a `SubscribeURL` asks for.
async fn confirm(Query(asked): Query<Subscription>) -> Response {
    let is_known = asked.action == "ConfirmSubscription"
        && asked.token.is_some_and(|text| text == token(&asked.topic_arn));
    if is_known {
        xml("ConfirmSubscription", &asked.topic_arn)
    } else {
        StatusCode::BAD_REQUEST.into_response()
    }
}

fn xml(action: &str, arn: &str) -> Response {
    let body = format!(
        "<{action}Response><{action}Result><SubscriptionArn>{arn}</SubscriptionArn>\
         </{action}Result></{action}Response>"
    );
    ([(CONTENT_TYPE, "text/xml")], body).into_response()
}

fn form_urlencoded(fields: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// An event of SES in an envelope of SNS. A forged one carries a signature of the right size.
pub(super) fn callback(
    facts: &CallbackFacts<'_>,
    url: &str,
    key: &Secret,
) -> Option<Request<Bytes>> {
    let message = event(facts).to_string();
    let (topic, now, entropy) = (facts.expected.expose(), facts.now, facts.entropy);
    let envelope = envelope(Kind::Notification, topic, message, facts.origin?, now, entropy);
    let mut envelope = signed(envelope, entropy);
    if key != facts.expected {
        let mut noise = [0_u8; 256];
        entropy.fill(&mut noise);
        envelope.signature = STANDARD.encode(noise);
    }
    posted(&envelope, url)
}

fn event(facts: &CallbackFacts<'_>) -> Value {
    let (to, now) = (facts.destination, facts.now);
    let mut tags = json!({"ses:configuration-set": ["simulator"]});
    if !facts.attempt.is_empty() {
        tags["attempt_id"] = json!([facts.attempt]);
    }
    let mut event = json!({
        "mail": {
            "timestamp": now,
            "source": "no-reply@example.com",
            "sourceArn": format!("arn:aws:ses:us-east-1:{ACCOUNT}:identity/example.com"),
            "sendingAccountId": ACCOUNT,
            "messageId": facts.message_id,
            "destination": [to],
            "headersTruncated": false,
            "headers": [],
            "commonHeaders": {},
            "tags": tags,
        },
    });
    let (kind, part, more) = match facts.state {
        Seen::Accepted => ("Send", "send", json!({})),
        Seen::Delivered => (
            "Delivery",
            "delivery",
            json!({
                "timestamp": now,
                "processingTimeMillis": 546,
                "recipients": [to],
                "smtpResponse": "250 2.6.0 Message received",
                "reportingMTA": "a8-70.smtp-out.amazonses.com",
            }),
        ),
        Seen::Failed => (
            "Bounce",
            "bounce",
            json!({
                "bounceType": "Permanent",
                "bounceSubType": "General",
                "bouncedRecipients": [{"emailAddress": to, "action": "failed", "status": "5.1.1"}],
                "timestamp": now,
                "feedbackId": facts.entropy.hex(16),
                "reportingMTA": "dsn; a8-70.smtp-out.amazonses.com",
            }),
        ),
    };
    event["eventType"] = json!(kind);
    event[part] = more;
    event
}
