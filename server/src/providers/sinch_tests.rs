use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderMap, HeaderValue, Response};

use super::*;
use crate::clock::SystemClock;
use crate::config::Config;
use crate::entropy::SystemEntropy;
use crate::providers::transport::Failure;

#[derive(Debug)]
struct Nobody;

#[async_trait]
impl Transport for Nobody {
    async fn exchange(
        &self,
        _: http::Request<Bytes>,
        _: Deadline,
    ) -> Result<Response<Bytes>, Failure> {
        unreachable!("a callback is checked without the network")
    }
}

fn plan(more: &str) -> Result<Arc<dyn Provider>, BuildError> {
    let text = format!("[providers.s]\nkind = \"sinch\"\ntoken = \"t\"\n{more}");
    let config = Config::parse("test", &text, std::iter::empty()).unwrap();
    make(&Parts {
        name: "s",
        config: &config.providers["s"],
        public_url: "https://sendonce.example.com",
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        transport: Arc::new(Nobody),
    })
}

// The vendor's own test values (sinch-sdk-node).
const SECRET: &str = "SMSWebhooksSecret";
const VECTOR_NONCE: &str = "01JHFFHWYY7HSS4FWTMDTQEK8V";
const VECTOR_TIME: &str = "1736760161";
const VECTOR_BODY: &str = r#"{"at":"2025-01-13T09:22:40.914Z","batch_id":"01JHFFHQ0P99JPPNQPJDV7JTBP","client_reference":"a client reference","code":0,"operator_status_at":"2025-01-13T09:22:00Z","recipient":"33662162466","status":"Delivered","type":"recipient_delivery_report_sms"}"#;
const VECTOR_SIGNATURE: &str = "ZoHei66PPN/kZjw7hFVfGhJOnml3iGNCMWoyQVcE5o0=";

fn check(
    provider: &dyn Provider,
    body: &[u8],
    [given, nonce, time, algorithm]: [&str; 4],
) -> Result<Callback, CallbackError> {
    let mut headers = HeaderMap::new();
    for (name, value) in
        [(SIGNATURE, given), (NONCE, nonce), (TIMESTAMP, time), (ALGORITHM, algorithm)]
    {
        headers.insert(name, HeaderValue::from_str(value).unwrap());
    }
    let request = CallbackRequest {
        method: &Method::POST,
        path: "/webhooks/s",
        query: None,
        headers: &headers,
        public_url: "https://sendonce.example.com",
        body,
        now: Stamp::from_micros(0),
    };
    provider.verify_callback(&request).now_or_never().expect("nothing waits")
}

#[test]
fn the_published_signature_verifies_and_none_with_one_byte_changed() {
    let provider =
        plan(&format!("service_plan_id = \"p\"\nwebhook_secret = \"{SECRET}\"")).unwrap();
    let vector = [VECTOR_SIGNATURE, VECTOR_NONCE, VECTOR_TIME, "HmacSHA256"];
    let receipts = check(&*provider, VECTOR_BODY.as_bytes(), vector).unwrap().receipts;
    // Its reference is none of ours.
    let told = Receipt {
        attempt_id: None,
        message_id: Some("01JHFFHQ0P99JPPNQPJDV7JTBP".into()),
        seen: Seen::Delivered,
        cause: None,
        at: Some(Stamp::parse("2025-01-13T09:22:00Z").unwrap()),
    };
    assert_eq!(receipts, [told]);
    let refused = Err(CallbackError::Signature);
    for at in 0..VECTOR_BODY.len() {
        let mut body = VECTOR_BODY.as_bytes().to_vec();
        body[at] ^= 1;
        assert_eq!(check(&*provider, &body, vector), refused, "byte {at}");
    }
    for part in 0..4 {
        for at in 0..vector[part].len() {
            let mut changed = vector[part].as_bytes().to_vec();
            changed[at] = if changed[at] == b'Z' { b'Y' } else { b'Z' };
            let changed = String::from_utf8(changed).unwrap();
            let mut headers = vector;
            headers[part] = &changed;
            assert_eq!(check(&*provider, VECTOR_BODY.as_bytes(), headers), refused, "{changed}");
        }
    }
    let other = plan("service_plan_id = \"p\"\nwebhook_secret = \"other\"").unwrap();
    assert_eq!(check(&*other, VECTOR_BODY.as_bytes(), vector), refused);
    let none = plan("service_plan_id = \"p\"").unwrap();
    let outcome = check(&*none, VECTOR_BODY.as_bytes(), vector);
    assert_eq!(outcome, Err(CallbackError::NotConfigured));
}

#[test]
fn a_callback_of_another_schema_signed_by_the_same_scheme_says_nothing() {
    // The vendor's own test values of its Conversation API (sinch-sdk-python).
    let body = r#"{"app_id":"01EB37HMH1M6SV18BSNS3G135H","accepted_time":"2020-11-17T15:09:11.659Z","project_id":"c36f3d3d-1513-2edd-ae42-11995557ff61","message_delivery_report":{"message_id":"01EQBC1A3BEK731GY4YXEN0C2R","conversation_id":"01EPYATA64TMNZ1FV02JKF12JF","status":"QUEUED_ON_CHANNEL","contact_id":"01EXA07N79THJ20WSN6AS30TMW"}}"#;
    let provider = plan("service_plan_id = \"p\"\nwebhook_secret = \"foo_secret1234\"").unwrap();
    let vector = [
        "Yc+3R1pIS78xLASybulhs8BsSo9BPB3Pr92QCUoczfk=",
        "01FJA8B4A7BM43YGWSG9GBV067",
        "1634579353",
        "HmacSHA256",
    ];
    assert_eq!(check(&*provider, body.as_bytes(), vector), Ok(Callback::default()));
    let changed = body.replace("QUEUED", "queued");
    let outcome = check(&*provider, changed.as_bytes(), vector);
    assert_eq!(outcome, Err(CallbackError::Signature));
}

#[test]
fn either_look_up_finds_and_only_both_together_are_absence() {
    let query = Query {
        attempt_id: "a1".into(),
        message_id: None,
        channel: app::model::Channel::Sms,
        since: Stamp::from_micros(0),
        now: Stamp::from_micros(0),
        to: None,
        text: None,
    };
    let batches = |text: &str| serde_json::from_str::<Batches>(text).unwrap();
    let reports = |text: &str| serde_json::from_str::<Reports>(text).unwrap();
    let none = (r#"{"count":0,"batches":[]}"#, r#"{"count":0,"delivery_reports":[]}"#);
    let found = |seen| Lookup::Found { seen, message_id: Some("B1".into()) };
    let batch = r#"{"count":1,"batches":[{"id":"B1","client_reference":"a1"}]}"#;
    let report = |status: &str| {
        format!(
            r#"{{"count":1,"delivery_reports":[{{"batch_id":"B1","client_reference":"a1","status":"{status}"}}]}}"#
        )
    };
    let ask = |first: &str, second: &str| weigh(&query, &batches(first), &reports(second));
    assert_eq!(ask(none.0, none.1), Lookup::Absent);
    assert_eq!(ask(batch, none.1), found(Seen::Accepted));
    assert_eq!(
        ask(&batch.replace("\"id\"", "\"canceled\":true,\"id\""), none.1),
        found(Seen::Failed)
    );
    assert_eq!(ask(batch, &report("Dispatched")), found(Seen::Accepted));
    assert_eq!(ask(none.0, &report("DELIVERED")), found(Seen::Delivered));
    assert_eq!(ask(batch, &report("Expired")), found(Seen::Failed));
    assert_eq!(ask(none.0, &report("Dancing")), cannot("unknown_status"));
    let other = batch.replace("a1", "a2");
    assert_eq!(ask(&other, none.1), cannot("other_attempt"));
    let hidden = r#"{"count":1,"batches":[]}"#;
    assert_eq!(ask(hidden, none.1), cannot("other_attempt"));
}

#[test]
fn a_plan_or_an_address_is_needed() {
    assert!(plan("service_plan_id = \"p\"").is_ok());
    assert!(plan("base_url = \"http://127.0.0.1:1/sinch\"").is_ok());
    let error = plan("").unwrap_err().to_string();
    assert!(error.contains("service_plan_id"), "{error}");
    assert!(plan("service_plan_id = \"p\"\nregion = \"e/u\"").is_err());
    assert!(CLASSES.iter().all(|row| !row.source.is_empty()));
}
