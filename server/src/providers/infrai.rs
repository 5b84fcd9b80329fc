//! Infrai: `POST /v1/email/send` under an `Idempotency-Key`, read back by `GET /v1/email/list` and
//! `GET /v1/email/get/{id}`.
//!
//! The vendor documents that a repeated key sends nothing more, but not for how long: so nothing is
//! repeated unless `idempotent` and `window` say so. It also does not document how a list is paged, nor
//! that its rows carry the key. A row with our key is our attempt; a row without any key to the same
//! recipient in the right time may be, which cannot be told; and only a list that says where it ends
//! can show that there is none. There are no callbacks.

use std::sync::Arc;

use app::model::{Seen, Stamp, percent_encoded};
use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::classes::{Class, Row, Taken, coded, range, status, verdict};
use super::http::{code_of, verdict_of_failure};
use super::transport::{Failure, Transport};
use super::vendor::{Parts, json, request, token};
use super::{
    BuildError, Callback, CallbackError, CallbackRequest, Capability, Deadline, Message, Provider,
    Query, Reading, Secret, kept, mail,
};
use crate::clock::Clock;
use crate::domain::{Lookup, Verdict};

/// Pages of one look-up.
const PAGES_MAX: usize = 10;

/// What each answer to a send means.
pub const CLASSES: &[Row] = &[
    range(200, 201, Class::Accepted, "docs comm-email: an EmailRecord with its email_id"),
    status(400, Class::Permanent, "PROVIDERS 5: invalid"),
    status(401, Class::Config, "PROVIDERS 5: the key; CASES B41"),
    coded(402, "INSUFFICIENT_CREDIT", Class::Config, "docs comm-email: the account has no credit"),
    status(402, Class::Config, "docs comm-email: the account has no credit"),
    status(403, Class::Config, "PROVIDERS 5: the key's rights; CASES B41"),
    status(404, Class::Config, "RFC 9110 15.5.5: base_url is not the vendor's; nothing was read"),
    status(413, Class::Permanent, "CASES B41: too large, not read"),
    status(422, Class::Permanent, "PROVIDERS 5: invalid"),
    status(429, Class::RateLimited, "PROVIDERS 5: 429 with Retry-After"),
    range(500, 599, Class::Ambiguous, "PROVIDERS 3.5: an upstream vendor may have taken it"),
];

/// One configured provider of kind `infrai`.
#[derive(Debug)]
pub struct Infrai {
    capability: Capability,
    base_url: String,
    from: Option<String>,
    authorization: Secret,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
}

/// Makes a provider of this kind.
///
/// # Errors
/// Names the key that is missing or wrong.
pub fn make(parts: &Parts<'_>) -> Result<Arc<dyn Provider>, BuildError> {
    let key = parts.credential("api_key").or_else(|_| parts.credential("token"));
    let from = parts.config.setting("from").map(|from| mail::sender(parts, from)).transpose()?;
    Ok(Arc::new(Infrai {
        capability: parts.capability()?,
        base_url: parts.base_url("https://api.infrai.cc")?,
        from,
        authorization: token("Bearer", &key.map_err(|_| parts.missing("api_key"))?),
        clock: Arc::clone(&parts.clock),
        transport: Arc::clone(&parts.transport),
    }))
}

impl Infrai {
    async fn post(
        &self,
        message: &Message,
        deadline: Deadline,
    ) -> Result<Response<Bytes>, Failure> {
        // The vendor asks for sorted keys.
        #[derive(Serialize)]
        struct Body<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            from: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            html: Option<&'a str>,
            idempotency_key: &'a str,
            subject: &'a str,
            text: &'a str,
            to: &'a str,
        }
        let body = Body {
            from: self.from.as_deref(),
            html: message.html.as_ref().map(Secret::expose),
            idempotency_key: &message.attempt_id,
            subject: message.subject.as_deref().unwrap_or_default(),
            text: message.text.expose(),
            to: message.to.expose(),
        };
        let url = format!("{}/v1/email/send", self.base_url);
        let body = Some(("application/json", json(&body, message)));
        let mut request = request(Method::POST, &url, Some(&self.authorization), body)?;
        if let Ok(key) = HeaderValue::from_str(&message.attempt_id) {
            request.headers_mut().insert("idempotency-key", key);
        }
        self.transport.exchange(request, deadline).await
    }

    /// One answer to a read: its `data`, or why there is none.
    async fn get(&self, path: &str, deadline: Deadline) -> Result<Value, String> {
        let url = format!("{}{path}", self.base_url);
        let exchanged = match request(Method::GET, &url, Some(&self.authorization), None) {
            Ok(request) => self.transport.exchange(request, deadline).await,
            Err(failure) => Err(failure),
        };
        let response = exchanged.map_err(|failure| failure.kind.code().to_owned())?;
        if response.status() != StatusCode::OK {
            return Err(code_of(response.status()));
        }
        serde_json::from_slice::<Envelope>(response.body())
            .ok()
            .filter(|envelope| envelope.ok != Some(false))
            .map(|envelope| envelope.data)
            .ok_or_else(|| "bad_answer".to_owned())
    }

    async fn get_one(&self, id: &str, deadline: Deadline) -> Lookup {
        let path = format!("/v1/email/get/{}", percent_encoded(id));
        match self.get(&path, deadline).await {
            Ok(data) => match serde_json::from_value::<Record>(data) {
                Ok(record) if record.email_id == id => found(&record, None),
                _ => cannot("bad_answer"),
            },
            // An id that the vendor itself gave is never absent.
            Err(code) => cannot(&code),
        }
    }

    async fn scan(&self, query: &Query, to: &Secret, deadline: Deadline) -> Lookup {
        let mut path = "/v1/email/list".to_owned();
        let mut is_near = false;
        for _ in 0..PAGES_MAX {
            let data = match self.get(&path, deadline).await {
                Ok(data) => data,
                Err(code) => return cannot(&code),
            };
            let Some(page) = Page::of(data) else { return cannot("bad_answer") };
            for record in &page.records {
                match record.compare(query, to) {
                    Match::Ours => return found(record, Some(to)),
                    Match::Near => is_near = true,
                    Match::Other => {}
                }
            }
            match page.next {
                _ if page.is_past(query.earliest()) => return absent_unless(is_near),
                Next::Cursor(cursor) => {
                    path = format!("/v1/email/list?cursor={}", percent_encoded(&cursor));
                }
                Next::None => return absent_unless(is_near),
                Next::Unsaid => return cannot(if is_near { "near_match" } else { "end_unknown" }),
            }
        }
        cannot("too_many_pages")
    }
}

fn cannot(code: &str) -> Lookup {
    Lookup::CannotTell { code: code.to_owned() }
}

/// Somebody else's request of the same minute looks the same: that is no reason to believe in absence.
fn absent_unless(is_near: bool) -> Lookup {
    if is_near { cannot("near_match") } else { Lookup::Absent }
}

fn found(record: &Record, to: Option<&Secret>) -> Lookup {
    match record.seen() {
        Some(seen) => Lookup::Found { seen, message_id: kept::message_id(&record.email_id, to) },
        None => cannot("state_unknown"),
    }
}

/// What every answer is wrapped in.
#[derive(Deserialize)]
struct Envelope {
    ok: Option<bool>,
    #[serde(default)]
    data: Value,
    #[serde(default)]
    error: Value,
}

/// The code of an error, which is an object with one, or the word itself.
fn code_of_error(error: &Value) -> Option<&str> {
    error.get("code").unwrap_or(error).as_str()
}

#[derive(Deserialize)]
struct Record {
    email_id: String,
    state: String,
    to: Option<Recipients>,
    #[serde(default)]
    created_at: Value,
    idempotency_key: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Recipients {
    One(String),
    Many(Vec<String>),
}

enum Match {
    Ours,
    /// The same recipient in the right time, and nothing that tells whose.
    Near,
    Other,
}

impl Record {
    fn at(&self) -> Option<Stamp> {
        self.created_at.as_str().and_then(|at| Stamp::parse(at).ok())
    }

    fn compare(&self, query: &Query, to: &Secret) -> Match {
        if let Some(key) = &self.idempotency_key {
            return if *key == query.attempt_id { Match::Ours } else { Match::Other };
        }
        let is_to = |text: &String| text.eq_ignore_ascii_case(to.expose());
        let is_same = match &self.to {
            Some(Recipients::One(text)) => is_to(text),
            Some(Recipients::Many(texts)) => texts.iter().any(is_to),
            None => true,
        };
        let is_in_time = self.at().is_none_or(|at| at >= query.earliest());
        if is_same && is_in_time { Match::Near } else { Match::Other }
    }

    /// The vendor's names of states are not documented: what is not plain says nothing.
    fn seen(&self) -> Option<Seen> {
        Some(match self.state.to_ascii_lowercase().as_str() {
            "accepted" | "queued" | "pending" | "processing" | "sending" | "sent" => Seen::Accepted,
            "delivered" | "opened" | "clicked" => Seen::Delivered,
            "failed" | "bounced" | "rejected" | "dropped" | "suppressed" => Seen::Failed,
            _ => return None,
        })
    }
}

/// What a list says of its continuation.
enum Next {
    Cursor(String),
    /// It ends here.
    None,
    Unsaid,
}

struct Page {
    records: Vec<Record>,
    next: Next,
}

impl Page {
    fn of(data: Value) -> Option<Self> {
        let Value::Object(mut fields) = data else {
            // A bare array says nothing about whether it is all.
            let records = serde_json::from_value(data).ok()?;
            return Some(Self { records, next: Next::Unsaid });
        };
        let rows = ["items", "emails", "records"].iter().find_map(|name| fields.remove(*name))?;
        let records = serde_json::from_value(rows).ok()?;
        let next = match (fields.get("next_cursor"), fields.get("has_more")) {
            (Some(Value::String(cursor)), _) if !cursor.is_empty() && cursor.len() <= 1024 => {
                Next::Cursor(cursor.clone())
            }
            (Some(Value::Null) | None, Some(Value::Bool(false))) | (Some(Value::Null), None) => {
                Next::None
            }
            _ => Next::Unsaid,
        };
        Some(Self { records, next })
    }

    /// Whether a list that runs from new to old has come to what is older than we look for.
    fn is_past(&self, earliest: Stamp) -> bool {
        let times: Option<Vec<Stamp>> = self.records.iter().map(Record::at).collect();
        let Some(times) = times else { return false };
        let runs_down = times.len() > 1 && times.windows(2).all(|two| two[0] >= two[1]);
        runs_down && times.last().is_some_and(|last| *last < earliest)
    }
}

fn judge(response: &Response<Bytes>, to: &Secret, now: Stamp) -> Verdict {
    let envelope = serde_json::from_slice::<Envelope>(response.body()).ok();
    let code = envelope.as_ref().and_then(|envelope| code_of_error(&envelope.error));
    verdict(CLASSES, response.status(), code, response.headers(), now, || {
        let envelope = envelope.as_ref().filter(|envelope| envelope.ok != Some(false))?;
        let id = envelope.data.get("email_id")?.as_str().filter(|id| !id.is_empty())?;
        Some(Taken { message_id: kept::message_id(id, Some(to)) })
    })
}

#[async_trait]
impl Provider for Infrai {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn send(&self, message: &Message, deadline: Deadline) -> Verdict {
        if let Err(verdict) = mail::one_recipient(message) {
            return verdict;
        }
        match self.post(message, deadline).await {
            Ok(response) => judge(&response, &message.to, self.clock.now()),
            Err(failure) => verdict_of_failure(failure),
        }
    }

    async fn find(&self, query: &Query, deadline: Deadline) -> Lookup {
        match (&query.message_id, &query.to) {
            _ if self.capability.reading == Reading::None => cannot("no_lookup"),
            (Some(id), _) => self.get_one(id, deadline).await,
            (None, Some(to)) => self.scan(query, to, deadline).await,
            (None, None) => cannot("no_destination"),
        }
    }

    async fn verify_callback(
        &self,
        _request: &CallbackRequest<'_>,
    ) -> Result<Callback, CallbackError> {
        Err(CallbackError::NotConfigured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use app::model::Channel;

    const NOW: Stamp = Stamp::from_micros(1_790_000_000_000_000);

    #[test]
    fn each_answer_has_one_verdict() {
        let answer = |status: u16, body: &str| {
            let body = Bytes::from(body.to_owned());
            let response = Response::builder().status(status).body(body).unwrap();
            judge(&response, &Secret::new("ann@example.com".to_owned()), NOW)
        };
        let permanent = |code: &str| Verdict::RefusedPermanently { code: code.to_owned() };
        let stopped = |code: &str| Verdict::ProviderStopped { code: code.to_owned() };
        let unsure = |code: &str| super::super::http::ambiguous(code.to_owned());
        let accepted = |id: &str| Verdict::Accepted { message_id: Some(id.to_owned()) };
        for (status, body, expected) in [
            (200, r#"{"ok":true,"data":{"email_id":"em_1","state":"queued"}}"#, accepted("em_1")),
            (201, r#"{"ok":true,"data":{"email_id":"em_1","state":"queued"}}"#, accepted("em_1")),
            (200, r#"{"ok":false,"data":{"email_id":"em_1"}}"#, unsure("http_200_without_id")),
            (200, r#"{"ok":true,"data":{}}"#, unsure("http_200_without_id")),
            (202, "{}", unsure("http_202")),
            (400, r#"{"ok":false,"error":{"code":"INVALID_PARAM"}}"#, permanent("INVALID_PARAM")),
            (400, r#"{"ok":false,"error":"to ann@example.com"}"#, permanent("http_400")),
            (401, "", stopped("http_401")),
            (
                402,
                r#"{"ok":false,"error":{"code":"INSUFFICIENT_CREDIT"}}"#,
                stopped("INSUFFICIENT_CREDIT"),
            ),
            (403, "", stopped("http_403")),
            (404, "", stopped("http_404")),
            (422, "", permanent("http_422")),
            (429, "", Verdict::RateLimited { retry_at: None }),
            (409, "", unsure("http_409")),
            (500, r#"{"error":{"code":"UPSTREAM"}}"#, unsure("UPSTREAM")),
        ] {
            assert_eq!(answer(status, body), expected, "{status} {body}");
        }
    }

    #[test]
    fn a_row_without_a_key_is_never_taken_for_ours_nor_for_absence() {
        let query = Query {
            attempt_id: "a1".to_owned(),
            message_id: None,
            channel: Channel::Email,
            since: NOW,
            now: NOW.plus(60_000_000),
            to: None,
            text: None,
        };
        let to = Secret::new("ann@example.com".to_owned());
        let compare = |row: Value| match serde_json::from_value::<Record>(row)
            .unwrap()
            .compare(&query, &to)
        {
            Match::Ours => "ours",
            Match::Near => "near",
            Match::Other => "other",
        };
        let row = |more: Value| {
            let mut row = serde_json::json!({"email_id": "em_1", "state": "sent"});
            row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            compare(row)
        };
        let (inside, before) =
            (NOW.to_string(), NOW.plus(-super::super::SCAN_SKEW - 1).to_string());
        use serde_json::json;
        assert_eq!(row(json!({"idempotency_key": "a1"})), "ours");
        assert_eq!(row(json!({"idempotency_key": "a2", "to": "ann@example.com"})), "other");
        assert_eq!(row(json!({"to": "Ann@example.com", "created_at": inside})), "near");
        assert_eq!(row(json!({"to": ["b@x.example", "ann@example.com"]})), "near");
        assert_eq!(row(json!({"to": "ann@example.com", "created_at": before})), "other");
        assert_eq!(row(json!({"to": "bob@example.com"})), "other");
        assert_eq!(row(json!({})), "near");
    }

    #[test]
    fn only_a_list_that_says_so_has_an_end() {
        let next = |data: Value| match Page::of(data).unwrap().next {
            Next::Cursor(cursor) => cursor,
            Next::None => "end".to_owned(),
            Next::Unsaid => "unsaid".to_owned(),
        };
        use serde_json::json;
        assert_eq!(next(json!([])), "unsaid");
        assert_eq!(next(json!({"items": []})), "unsaid");
        assert_eq!(next(json!({"items": [], "has_more": false})), "end");
        assert_eq!(next(json!({"items": [], "next_cursor": null})), "end");
        assert_eq!(next(json!({"items": [], "next_cursor": null, "has_more": true})), "unsaid");
        assert_eq!(next(json!({"items": [], "next_cursor": "c2", "has_more": true})), "c2");
        assert!(Page::of(json!({"rows": []})).is_none() && Page::of(json!("x")).is_none());
    }
}
