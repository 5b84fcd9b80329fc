use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderMap, HeaderValue};

use super::*;
use crate::clock::SystemClock;
use crate::config::{Config, Kind};
use crate::entropy::SystemEntropy;
use crate::providers::TextProof;
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

fn account(token: &str) -> Arc<dyn Provider> {
    let text = format!(
        "[providers.t]\nkind = \"twilio\"\naccount_sid = \"AC1\"\nauth_token = \"{token}\"\nfrom = \"+15005550006\""
    );
    let config = Config::parse("test", &text, std::iter::empty()).unwrap();
    make(&Parts {
        name: "t",
        config: &config.providers["t"],
        public_url: "https://mycompany.com",
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        transport: Arc::new(Nobody),
    })
    .unwrap()
}

/// One published vector: our URL, the form or the JSON, the signature.
struct Vector {
    base: &'static str,
    query: &'static str,
    params: &'static [(&'static str, &'static str)],
    body: Option<&'static str>,
    signature: &'static str,
}

const CALL: &[(&str, &str)] = &[
    ("CallSid", "CA1234567890ABCDE"),
    ("Digits", "1234"),
    ("From", "+14158675309"),
    ("To", "+18005551212"),
    ("Caller", "+14158675309"),
];
const JSON: &str = "{\"property\": \"value\", \"boolean\": true}";
const JSON_HASH: &str =
    "bodySHA256=0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620";
const JSON_QUERY: &str =
    "foo=1&bar=2&bodySHA256=0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620";

const fn form(base: &'static str, signature: &'static str) -> Vector {
    Vector { base, query: "foo=1&bar=2", params: CALL, body: None, signature }
}

/// The vendor's own test values (twilio-python and twilio-go).
const VECTORS: &[Vector] = &[
    form("https://mycompany.com", "RSOYDt4T1cUTdK1PDd93/VVr8B8="),
    // Signed with the port that the scheme implies, seen without it; and the other way round.
    form("https://mycompany.com", "kvajT1Ptam85bY51eRf/AJRuM3w="),
    form("http://mycompany.com", "0ZXoZLH/DfblKGATFgpif+LLRf4="),
    form("http://mycompany.com:1234", "Zmvh+3yNM1Phv2jhDCwEM3q5ebU="),
    form("https://mycompany.com:1234", "RSOYDt4T1cUTdK1PDd93/VVr8B8="),
    Vector {
        params: &[
            ("Sid", "CA123"),
            ("SidAccount", "AC123"),
            ("Digits", "5678"),
            ("Digits", "1234"),
            ("Digits", "1234"),
        ],
        ..form("https://mycompany.com", "IK+Dwps556ElfBT0I3Rgjkr1wJU=")
    },
    Vector {
        params: &[
            ("CallSid", "CA1234567890ABCDE"),
            ("Digits", "1234"),
            ("From", "+14158675309"),
            ("To", "+18005551212"),
            ("Caller", "+14158675309"),
            ("ReasonConferenceEnded", "test"),
            ("Reason", "Participant"),
        ],
        ..form("https://mycompany.com", "vOEb5UThFn24KEfnOFLQY2AE5FY=")
    },
    Vector {
        params: &[("property", "value"), ("boolean", "true")],
        ..form("https://mycompany.com", "NBdBDr/T/lgjI+tlgpXjKZQZs/k=")
    },
    Vector {
        query: JSON_QUERY,
        body: Some(JSON),
        ..form("https://mycompany.com", "a9nBmqA0ju/hNViExpshrM61xv4=")
    },
    Vector {
        query: JSON_HASH,
        body: Some(JSON),
        ..form("https://mycompany.com", "y77kIzt2vzLz71DgmJGsen2scGs=")
    },
];

fn check(
    provider: &dyn Provider,
    (base, path, query): (&str, &str, &str),
    body: &[u8],
    signature: Option<&str>,
) -> Result<Callback, CallbackError> {
    let mut headers = HeaderMap::new();
    if let Some(text) = signature {
        headers.insert(SIGNATURE, HeaderValue::from_str(text).unwrap());
    }
    let request = CallbackRequest {
        method: &Method::POST,
        path,
        query: Some(query).filter(|query| !query.is_empty()),
        headers: &headers,
        public_url: base,
        body,
        now: Stamp::from_micros(0),
    };
    provider.verify_callback(&request).now_or_never().expect("nothing waits")
}

fn body_of(vector: &Vector) -> Vec<u8> {
    match vector.body {
        Some(text) => text.as_bytes().to_vec(),
        None => vendor::form(vector.params).to_vec(),
    }
}

#[test]
fn every_published_signature_verifies_and_none_with_one_byte_changed() {
    let provider = account("12345");
    // They are of calls, not of messages: signed, and then nothing that we know.
    let is_signed = Err(CallbackError::Malformed);
    for vector in VECTORS {
        let body = body_of(vector);
        let place = (vector.base, "/myapp.php", vector.query);
        let with = |body: &[u8], signature: &str| check(&*provider, place, body, Some(signature));
        assert_eq!(with(&body, vector.signature), is_signed, "{}", vector.signature);
        for at in 0..body.len() {
            let mut changed = body.clone();
            changed[at] ^= 1;
            // `a=b` and `a=%62` are one form: what is signed are names and values.
            let same = vector.body.is_none()
                && form_urlencoded::parse(&changed).eq(form_urlencoded::parse(&body));
            if !same {
                let outcome = with(&changed, vector.signature);
                assert_eq!(outcome, Err(CallbackError::Signature), "byte {at}");
            }
        }
        for at in 0..vector.signature.len() {
            let mut changed = vector.signature.as_bytes().to_vec();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(with(&body, &changed), Err(CallbackError::Signature), "{changed}");
        }
        let other = vector.query.replacen('1', "2", 1);
        if other != vector.query {
            let place = (vector.base, "/myapp.php", other.as_str());
            let outcome = check(&*provider, place, &body, Some(vector.signature));
            assert_eq!(outcome, Err(CallbackError::Signature));
        }
        let outcome = check(&*account("12346"), place, &body, Some(vector.signature));
        assert_eq!(outcome, Err(CallbackError::Signature), "another key");
        let outcome = check(&*provider, place, &body, None);
        assert_eq!(outcome, Err(CallbackError::Signature), "no signature");
    }
    // A wrong order of names that begin alike.
    let wrong = "95+Bu0JVPi0r/SsESZCVf0dWAjw=";
    let outcome = check(
        &*provider,
        ("https://mycompany.com", "/myapp.php", "foo=1&bar=2"),
        &body_of(&VECTORS[6]),
        Some(wrong),
    );
    assert_eq!(outcome, Err(CallbackError::Signature));
}

#[test]
fn a_callback_names_its_attempt_by_the_signed_url() {
    let provider = account("12345");
    let token = Secret::new("12345".to_owned());
    let tell = |query: &str, fields: &[(&str, &str)]| {
        let fields: Vec<(String, String)> =
            fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let base = "https://mycompany.com";
        let url = if query.is_empty() {
            format!("{base}/webhooks/t")
        } else {
            format!("{base}/webhooks/t?{query}")
        };
        let pairs: Vec<(&str, &str)> =
            fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let signature = signature(&token, &url, &fields);
        check(&*provider, (base, "/webhooks/t", query), &vendor::form(&pairs), Some(&signature))
    };
    let told = |seen, cause| {
        Ok(Callback::from(vec![Receipt {
            attempt_id: Some("a1".into()),
            message_id: Some("SM1".into()),
            seen,
            cause,
            at: None,
        }]))
    };
    for (status, code, seen, cause) in [
        ("queued", "", Seen::Accepted, None),
        ("sent", "", Seen::Accepted, None),
        ("delivered", "", Seen::Delivered, None),
        ("undelivered", "30003", Seen::Failed, Some(Cause::Unreachable)),
        ("failed", "30034", Seen::Failed, Some(Cause::Filtered)),
        ("failed", "99999", Seen::Failed, Some(Cause::Unspecified)),
        ("canceled", "", Seen::Failed, Some(Cause::Canceled)),
    ] {
        let fields = [("MessageSid", "SM1"), ("MessageStatus", status), ("ErrorCode", code)];
        assert_eq!(tell("attempt=a1", &fields), told(seen, cause), "{status}");
    }
    let fields = [("MessageSid", "SM1"), ("MessageStatus", "delivered")];
    let by_sid = tell("", &fields).unwrap();
    assert_eq!((by_sid.receipts[0].attempt_id.as_deref(), by_sid.receipts.len()), (None, 1));
    assert_eq!(tell("", &[("MessageStatus", "sent")]), Err(CallbackError::Malformed));
    assert_eq!(tell("attempt=a1", &[("MessageSid", "SM1")]), Err(CallbackError::Malformed));
    let other = [("MessageSid", "SM1"), ("MessageStatus", "receiving")];
    assert_eq!(tell("attempt=a1", &other), Ok(Callback::default()));
}

#[test]
fn each_row_of_the_table_has_a_source_and_what_is_not_in_it_is_ambiguous() {
    assert!(CLASSES.iter().all(|row| !row.source.is_empty()));
    for (status, code, class) in [
        (201, None, Class::Accepted),
        (200, None, Class::Ambiguous),
        (400, Some("21211"), Class::Permanent),
        (400, Some("21408"), Class::Config),
        (400, Some("12345"), Class::Permanent),
        (401, Some("20003"), Class::Config),
        (408, None, Class::Ambiguous),
        (429, Some("20429"), Class::RateLimited),
        (500, Some("20500"), Class::Ambiguous),
        (503, None, Class::Ambiguous),
    ] {
        assert_eq!(classes::class(CLASSES, status, code), class, "{status} {code:?}");
    }
    assert!(Kind::find("twilio").unwrap().idempotency.is_none());
}

#[test]
fn only_the_exact_text_is_ours_and_what_is_near_is_no_absence() {
    let keys = Arc::new(crate::keys::Keys::generate(&SystemEntropy));
    let at = Stamp::parse("2023-08-24T05:01:45Z").unwrap();
    let query = |text: Option<&str>| Query {
        attempt_id: "a1".into(),
        message_id: None,
        channel: app::model::Channel::Sms,
        since: at,
        now: at,
        to: Some(Secret::new("+12025550123".into())),
        text: text.map(|text| TextProof::new(Arc::clone(&keys), TextProof::hash_of(&keys, text))),
    };
    let told = |body: Option<&str>, date: &str, status: &str| Told {
        sid: Some("SM1".into()),
        status: Some(status.into()),
        body: body.map(str::to_owned),
        to: Some("+12025550123".into()),
        direction: Some("outbound-api".into()),
        date_created: Some(date.into()),
    };
    let to = Secret::new("+12025550123".into());
    let weigh = |all: &[Told]| {
        let mut tally = Tally::default();
        all.iter().for_each(|told| tally.weigh(told, &query(Some("ours")), &to));
        tally.answer()
    };
    let found = |seen| Lookup::Found { seen, message_id: Some("SM1".into()) };
    let unsure = |code: &str| Lookup::CannotTell { code: code.into() };
    let (now, old, later) = (
        "Thu, 24 Aug 2023 05:01:45 +0000",
        "Thu, 24 Aug 2023 04:50:00 +0000",
        "Thu, 24 Aug 2023 05:10:00 +0000",
    );
    assert_eq!(weigh(&[]), Lookup::Absent);
    assert_eq!(weigh(&[told(Some("ours"), now, "queued")]), found(Seen::Accepted));
    assert_eq!(weigh(&[told(Some("ours"), later, "delivered")]), found(Seen::Delivered));
    assert_eq!(weigh(&[told(Some("ours"), old, "delivered")]), Lookup::Absent, "an earlier one");
    assert_eq!(weigh(&[told(Some("ours"), now, "dancing")]), unsure("unknown_status"));
    assert_eq!(weigh(&[told(Some("ours"), "soon", "sent")]), unsure("no_date"));
    assert_eq!(weigh(&[told(Some("ours "), now, "sent")]), unsure("near_match"));
    assert_eq!(weigh(&[told(Some("other"), later, "sent")]), Lookup::Absent);
    assert_eq!(weigh(&[told(None, now, "sent")]), unsure("no_text"));
    assert_eq!(weigh(&[told(Some(""), later, "sent")]), unsure("no_text"));
    let both = [told(Some("ours"), now, "failed"), told(Some("ours"), now, "sent")];
    assert_eq!(weigh(&both), found(Seen::Accepted), "the one that got furthest");
    let other = Told { to: Some("+12025550124".into()), ..told(Some("ours"), now, "sent") };
    assert_eq!(weigh(&[other]), Lookup::Absent);
    let inbound = Told { direction: Some("inbound".into()), ..told(None, now, "received") };
    assert_eq!(weigh(&[inbound]), Lookup::Absent);
}
