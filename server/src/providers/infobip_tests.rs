use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderMap, HeaderValue};

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

fn account(more: &str) -> Arc<dyn Provider> {
    let text = format!("[providers.i]\nkind = \"infobip\"\napi_key = \"k\"\n{more}");
    let config = Config::parse("test", &text, std::iter::empty()).unwrap();
    make(&Parts {
        name: "i",
        config: &config.providers["i"],
        public_url: "https://sendonce.example.com",
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        transport: Arc::new(Nobody),
    })
    .unwrap()
}

fn check(
    provider: &dyn Provider,
    query: &str,
    password: Option<&str>,
    body: &str,
) -> Result<Callback, CallbackError> {
    let mut headers = HeaderMap::new();
    if let Some(password) = password {
        let value = format!("Basic {}", STANDARD.encode(format!("any:{password}")));
        headers.insert(AUTHORIZATION, HeaderValue::from_str(&value).unwrap());
    }
    let request = CallbackRequest {
        method: &Method::POST,
        path: "/webhooks/i",
        query: Some(query),
        headers: &headers,
        public_url: "https://sendonce.example.com",
        body: body.as_bytes(),
        now: Stamp::from_micros(0),
    };
    provider.verify_callback(&request).now_or_never().expect("nothing waits")
}

fn told(id: &str, group: &str) -> String {
    format!(
        r#"{{"results":[{{"messageId":"{id}","to":"12025550123","doneAt":"2026-09-21T14:13:20.500+0200","status":{{"groupId":3,"groupName":"{group}","name":"X"}},"price":{{}}}}]}}"#
    )
}

#[test]
fn a_callback_proves_itself_by_its_own_url_and_for_its_own_attempt() {
    let provider = account("webhook_secret = \"s3cret\"");
    let key = key_of(&Secret::new("s3cret".into()), "a1");
    let good = format!("attempt=a1&key={key}");
    let receipts = check(&*provider, &good, None, &told("a1", "DELIVERED")).unwrap().receipts;
    let expected = Receipt {
        attempt_id: Some("a1".into()),
        message_id: Some("a1".into()),
        seen: Seen::Delivered,
        cause: None,
        at: Some(Stamp::parse("2026-09-21T12:13:20.5Z").unwrap()),
    };
    assert_eq!(receipts, [expected]);
    let refused = Err(CallbackError::Signature);
    for query in ["", "attempt=a1", "key=x", "attempt=a1&key=", &format!("attempt=a2&key={key}")] {
        assert_eq!(check(&*provider, query, None, &told("a1", "DELIVERED")), refused, "{query}");
    }
    for at in 0..key.len() {
        let mut changed = key.clone().into_bytes();
        changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
        let query = format!("attempt=a1&key={}", String::from_utf8(changed).unwrap());
        assert_eq!(check(&*provider, &query, None, &told("a1", "DELIVERED")), refused);
    }
    assert_eq!(
        check(&*provider, &good, None, &told("a2", "DELIVERED")),
        refused,
        "another attempt"
    );
    // Set up for the whole account.
    assert!(check(&*provider, "key=s3cret", None, &told("a1", "PENDING")).is_ok());
    assert!(check(&*provider, "", Some("s3cret"), &told("a1", "PENDING")).is_ok());
    assert_eq!(check(&*provider, "", Some("s3cre"), &told("a1", "PENDING")), refused);
    let none = account("");
    let outcome = check(&*none, &good, None, &told("a1", "DELIVERED"));
    assert_eq!(outcome, Err(CallbackError::NotConfigured));
}

#[test]
fn a_callback_says_why_in_words_of_ours() {
    let provider = account("webhook_secret = \"s3cret\"");
    for (group, seen, cause) in [
        ("PENDING", Seen::Accepted, None),
        ("UNDELIVERABLE", Seen::Failed, Some(Cause::Unreachable)),
        ("EXPIRED", Seen::Failed, Some(Cause::Expired)),
        ("REJECTED", Seen::Failed, Some(Cause::Rejected)),
    ] {
        let callback = check(&*provider, "key=s3cret", None, &told("a1", group)).unwrap();
        assert_eq!((callback.receipts[0].seen, callback.receipts[0].cause), (seen, cause));
    }
    let other = check(&*provider, "key=s3cret", None, &told("a1", "DANCING"));
    assert_eq!(other, Ok(Callback::default()));
    for bad in ["", "{}", "[]", r#"{"results":[{}]}"#, r#"{"results":[{"messageId":"a@b"}]}"#] {
        let outcome = check(&*provider, "key=s3cret", None, bad);
        assert_eq!(outcome, Err(CallbackError::Malformed), "{bad}");
    }
}

#[test]
fn a_dropped_repeat_never_outweighs_the_first_message() {
    let query = Query {
        attempt_id: "a1".into(),
        message_id: None,
        channel: app::model::Channel::Sms,
        since: Stamp::from_micros(0),
        now: Stamp::from_micros(0),
        to: None,
        text: None,
    };
    let rows = |groups: &[(&str, &str)]| -> Vec<Told> {
        let row = |(id, group): &(&str, &str)| Told {
            message_id: Some((*id).into()),
            status: Some(Status { group_name: (*group).into(), name: None }),
            done_at: None,
            callback_data: None,
        };
        groups.iter().map(row).collect()
    };
    let found = |seen| Lookup::Found { seen, message_id: Some("a1".into()) };
    assert_eq!(weigh(&query, &rows(&[])), Lookup::Absent);
    assert_eq!(
        weigh(&query, &rows(&[("a1", "PENDING"), ("a1", "REJECTED")])),
        found(Seen::Accepted)
    );
    assert_eq!(
        weigh(&query, &rows(&[("a1", "REJECTED"), ("a1", "DELIVERED")])),
        found(Seen::Delivered)
    );
    assert_eq!(weigh(&query, &rows(&[("a1", "EXPIRED")])), found(Seen::Failed));
    let unsure = |code: &str| Lookup::CannotTell { code: code.into() };
    assert_eq!(weigh(&query, &rows(&[("a2", "DELIVERED")])), unsure("other_attempt"));
    assert_eq!(weigh(&query, &rows(&[("a1", "DANCING")])), unsure("unknown_status"));
}

#[test]
fn a_repeat_is_allowed_only_where_it_was_configured() {
    assert_eq!(account("").capability().replay_window, None);
    assert_eq!(account("window = \"1h\"").capability().replay_window, None);
    let window = account("idempotent = true\nwindow = \"10m\"").capability().replay_window;
    assert_eq!(window, Some(600_000_000));
    assert!(CLASSES.iter().all(|row| !row.source.is_empty()));
    for (code, class) in [
        ("PENDING", Class::Accepted),
        ("REJECTED", Class::Permanent),
        ("REJECTED_NOT_ENOUGH_CREDITS", Class::Config),
        ("EXPIRED", Class::Ambiguous),
    ] {
        assert_eq!(classes::class(CLASSES, 200, Some(code)), class, "{code}");
    }
}
