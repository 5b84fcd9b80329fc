//! Who may call, in which order a request is checked, and that nothing ever answers HTML.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use serde_json::json;
use server::config::Kind;
use server::domain::{Lookup, Verdict};
use server::providers::{
    Callback, CallbackError, CallbackRequest, Capability, Deadline, Message, Provider, Query,
};

use crate::support::{Api, request};

/// Method, path and the scope that it needs.
fn calls(id: &str) -> Vec<(Method, String, &'static str)> {
    vec![
        (Method::POST, "/v1/events".to_owned(), "admit"),
        (Method::GET, "/v1/events?event_id=ev-1".to_owned(), "status"),
        (Method::GET, format!("/v1/events/{id}"), "status"),
        (Method::GET, format!("/v1/events/{id}/timeline"), "status"),
        (Method::POST, format!("/v1/events/{id}/cancel"), "cancel"),
        (Method::GET, "/v1/freezes".to_owned(), "freeze"),
        (Method::PUT, "/v1/freezes/all".to_owned(), "freeze"),
        (Method::DELETE, "/v1/freezes/all".to_owned(), "freeze"),
    ]
}

#[tokio::test]
async fn each_call_needs_a_key_with_its_scope() {
    let api = Api::new().await;
    let id = api.admit(&api.event("1")).await.id();
    let revoked = api.key_with(&["admit", "status", "cancel", "freeze"]).await;
    assert!(api.store.revoke_client(revoked.split('_').nth(1).unwrap()).await.unwrap());
    let other = {
        let mut key = api.key.clone();
        let last = if key.pop() == Some('0') { '1' } else { '0' };
        key.push(last);
        key
    };
    let unknown = api.key.replacen(&api.client_id, "000000000000", 1);
    let strangers = [
        None,
        Some("wrong"),
        Some(&*revoked),
        Some(&*other),
        Some(&*unknown),
        Some("so_"),
        Some(""),
    ];
    for (method, path, scope) in calls(&id) {
        for key in strangers {
            let answer = api.call_as(key, method.clone(), &path, None).await;
            assert_eq!(
                (answer.status.as_u16(), answer.code().as_str()),
                (401, "unauthorized"),
                "{method} {path} {key:?}"
            );
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
        }
        let others: Vec<&str> = ["admit", "status", "consume", "cancel", "freeze"]
            .into_iter()
            .filter(|s| *s != scope)
            .collect();
        let key = api.key_with(&others).await;
        let answer = api.call_as(Some(&key), method.clone(), &path, None).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (403, "forbidden"),
            "{method} {path}"
        );
        assert_eq!(answer.json()["scope"], scope);
        let key = api.key_with(&[scope]).await;
        let answer = api.call_as(Some(&key), method.clone(), &path, None).await;
        assert!(!matches!(answer.status.as_u16(), 401 | 403), "{method} {path}: {}", answer.text);
    }
}

#[tokio::test]
async fn a_revoked_key_is_refused_from_the_next_request_on() {
    let api = Api::new().await;
    assert_eq!(api.get("/v1/freezes").await.status, StatusCode::OK);
    assert!(api.store.revoke_client(&api.client_id).await.unwrap());
    assert_eq!(api.get("/v1/freezes").await.code(), "unauthorized");
}

#[tokio::test]
async fn size_comes_first_then_the_key_then_the_type_then_the_text() {
    let api = Api::new().await;
    let post = |key: Option<&str>, media: &str, body: Vec<u8>| {
        let mut post = request(key, Method::POST, "/v1/events", Some(body));
        post.headers_mut().insert("content-type", media.parse().unwrap());
        post
    };
    let large = vec![b' '; 16 * 1024 + 1];
    let key = Some(api.key.as_str());
    assert_eq!(api.send(post(None, "text/plain", large.clone())).await.code(), "event_too_large");
    assert_eq!(api.send(post(None, "text/plain", b"x".to_vec())).await.code(), "unauthorized");
    assert_eq!(
        api.send(post(key, "text/plain", b"x".to_vec())).await.code(),
        "unsupported_media_type"
    );
    assert_eq!(
        api.send(post(key, "application/json", b"x".to_vec())).await.code(),
        "invalid_event"
    );
    assert_eq!(api.send(post(key, "application/json", large)).await.code(), "event_too_large");
    for media in [
        "application/x-www-form-urlencoded",
        "application/json; charset=utf-16",
        "multipart/form-data",
    ] {
        assert_eq!(
            api.send(post(key, media, b"{}".to_vec())).await.code(),
            "unsupported_media_type",
            "{media}"
        );
    }
    let good = serde_json::to_vec(&api.event("1")).unwrap();
    let mut untyped = post(key, "application/json", good.clone());
    untyped.headers_mut().remove("content-type");
    assert_eq!(api.send(untyped).await.status, StatusCode::ACCEPTED);
    assert_eq!(
        api.send(post(key, "application/json;charset=UTF-8", good)).await.status,
        StatusCode::ACCEPTED
    );
}

#[tokio::test]
async fn a_promised_or_streamed_excess_is_refused_and_a_slow_body_ends() {
    let api = Api::new().await;
    let post = |body: Body| {
        Request::post("/v1/events")
            .header("authorization", format!("Bearer {}", api.key))
            .body(body)
            .unwrap()
    };
    let mut promised = post(Body::empty());
    promised.headers_mut().insert("content-length", "99999999".parse().unwrap());
    assert_eq!(api.send(promised).await.code(), "event_too_large");
    let chunk = |n: usize| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; n]));
    let chunks = futures::stream::iter((0..20).map(move |_| chunk(1024)));
    assert_eq!(api.send(post(Body::from_stream(chunks))).await.code(), "event_too_large");
    let endless = futures::stream::repeat_with(move || chunk(64 * 1024));
    assert_eq!(api.send(post(Body::from_stream(endless))).await.code(), "event_too_large");
    let broken = futures::stream::iter([Err::<Bytes, _>(std::io::Error::other("gone"))]);
    assert_eq!(api.send(post(Body::from_stream(broken))).await.code(), "invalid_event");

    let silent = futures::stream::pending::<Result<Bytes, std::io::Error>>();
    let slow = api.send(post(Body::from_stream(silent)));
    tokio::pin!(slow);
    let answer = loop {
        tokio::select! {
            answer = &mut slow => break answer,
            () = tokio::task::yield_now() => api.clock.advance(Duration::from_secs(1)),
        }
    };
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (408, "request_timeout"));
}

#[tokio::test]
async fn unknown_addresses_and_methods_are_problems_whatever_is_accepted() {
    let api = Api::new().await;
    let table = [
        ("GET", "/v1", 404),
        ("GET", "/v1/", 404),
        ("GET", "/v1/nope", 404),
        ("POST", "/v1/events/", 404),
        ("GET", "/v1/events/a/b/c", 404),
        ("GET", "/v1/tokens", 404),
        ("POST", "/v1/tokens/revoke", 404),
        ("GET", "/v1/schema/nope.json", 404),
        ("GET", "/webhooks", 404),
        ("POST", "/webhooks/", 404),
        ("POST", "/webhooks/nope", 404),
        ("POST", "/webhooks/fake/more", 404),
        ("PATCH", "/v1/events", 405),
        ("DELETE", "/v1/events/x", 405),
        ("GET", "/v1/tokens/consume", 405),
        ("POST", "/v1/freezes", 405),
        ("GET", "/v1/freezes/all", 405),
        ("PUT", "/v1/schema/tool.json", 405),
        ("GET", "/webhooks/fake", 405),
        ("DELETE", "/openapi.json", 405),
        ("BREW", "/v1/events", 405),
    ];
    for (method, path, status) in table {
        for accept in ["text/html", "*/*", "application/xml", ""] {
            let mut request = request(Some(&api.key), method.parse().unwrap(), path, None);
            request.headers_mut().insert("accept", accept.parse().unwrap());
            let answer = api.send(request).await;
            assert_eq!(answer.status.as_u16(), status, "{method} {path}");
            let code = if status == 404 { "not_found" } else { "method_not_allowed" };
            assert_eq!(answer.code(), code);
            if status == 405 {
                assert!(answer.headers.contains_key("allow"), "{method} {path}");
            }
        }
    }
    let mut get = request(Some(&api.key), Method::GET, "/v1/freezes", None);
    get.headers_mut().insert("accept", "text/html".parse().unwrap());
    assert_eq!(api.send(get).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_request_id_is_ours_and_new_each_time() {
    let api = Api::new().await;
    let mut get = request(Some(&api.key), Method::GET, "/v1/freezes", None);
    get.headers_mut().insert("x-request-id", "from-outside".parse().unwrap());
    let first = api.send(get).await;
    let second = api.get("/v1/freezes").await;
    let id = |answer: &crate::support::Answer| {
        answer.headers["x-request-id"].to_str().unwrap().to_owned()
    };
    assert_eq!(id(&first).len(), 36);
    assert_ne!(id(&first), "from-outside");
    assert_ne!(id(&first), id(&second));
    assert_eq!(first.headers.get_all("x-request-id").iter().count(), 1);
}

/// A provider with a fault in it.
#[derive(Debug)]
struct Faulty(Capability);

#[async_trait]
impl Provider for Faulty {
    fn capability(&self) -> &Capability {
        &self.0
    }

    async fn send(&self, _: &Message, _: Deadline) -> Verdict {
        Verdict::NotSent { code: "none".to_owned() }
    }

    async fn find(&self, _: &Query, _: Deadline) -> Lookup {
        Lookup::Absent
    }

    async fn verify_callback(&self, _: &CallbackRequest<'_>) -> Result<Callback, CallbackError> {
        panic!("a fault")
    }
}

#[tokio::test]
async fn a_panic_is_a_problem_and_the_next_request_is_answered() {
    let capability =
        Capability { kind: "faulty", ..Capability::of(Kind::find("http").unwrap(), None) };
    let faulty: Arc<dyn Provider> = Arc::new(Faulty(capability));
    let api = Api::with(&[], BTreeMap::from([("faulty".to_owned(), faulty)])).await;
    let answer = api.call(Method::POST, "/webhooks/faulty", Some(json!({}))).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (500, "internal_error"));
    assert!(!answer.text.contains("a fault"));
    assert_eq!(api.get("/v1/freezes").await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_log_has_the_request_and_nothing_that_was_sent() {
    let api = Api::new().await;
    let secret = api.key.rsplit('_').next().unwrap().to_owned();
    let mut event = api.event("zqcanary");
    event["token_hash"] = json!("5e".repeat(32));
    let id = api.admit(&event).await.id();
    event["user_email"] = json!("zqcanary@example.com");
    event["destination_ref"] = json!("+15550100001");
    let refused = api.admit(&event).await;
    api.get("/v1/events?event_id=zqcanary%40example.com").await;
    api.get("/v1/events/zqcanary%40example.com").await;
    api.call(Method::PUT, "/v1/freezes/all", Some(json!({ "reason": "zqcanary@example.com" })))
        .await;
    api.call_as(Some("so_zqcanary_zqcanary"), "ZQCANARY".parse().unwrap(), "/v1/zqcanary", None)
        .await;
    api.get(&format!("/v1/events/{id}")).await;
    let text = crate::support::logged();
    assert!(text.contains("http.request"));
    assert!(text.contains("/v1/events/{id}"));
    assert!(text.contains(refused.headers["x-request-id"].to_str().unwrap()));
    assert!(text.contains("answered 400"));
    for sent in ["zqcanary", "example.com", "5550100001", &*secret, &*"5e".repeat(32)] {
        let line = text.lines().find(|line| line.contains(sent));
        assert!(line.is_none(), "{sent}: {line:?}");
    }
}
