//! Resend: `POST /emails` under an `Idempotency-Key` that the vendor remembers for 24 hours.
//!
//! A lost answer is resolved by repeating the same bytes under the same key: the vendor then repeats its
//! first answer and sends nothing. Its list of emails cannot be searched, so a read needs the message id.
//! Webhooks carry Svix signatures and the message's tags, one of which is the attempt id.

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
use super::vendor::{Parts, is_attempt_id, json, request, token};
use super::{
    BuildError, Callback, CallbackError, CallbackRequest, Capability, Cause, Deadline, Message,
    Provider, Query, Reading, Receipt, Secret, kept, mail, svix,
};
use crate::clock::Clock;
use crate::domain::{Lookup, Verdict};

/// The tag that carries the attempt id.
const TAG: &str = "attempt_id";

/// What each answer to a send means.
pub const CLASSES: &[Row] = &[
    status(200, Class::Accepted, "OpenAPI of POST /emails: 200 with the id"),
    coded(400, "invalid_idempotency_key", Class::Config, "docs, idempotency keys: our bug"),
    status(400, Class::Permanent, "docs, errors: validation_error"),
    status(401, Class::Config, "docs, errors: missing_api_key, restricted_api_key; CASES B41"),
    status(403, Class::Config, "docs, errors: invalid_api_key, domain not verified; CASES B41"),
    status(404, Class::Config, "docs, errors: not_found, the endpoint does not exist"),
    status(405, Class::Config, "docs, errors: method_not_allowed"),
    coded(
        409,
        "concurrent_idempotent_requests",
        Class::Ambiguous,
        "docs, idempotency keys: the first request with this key is still running",
    ),
    coded(
        409,
        "invalid_idempotent_request",
        Class::Config,
        "docs, idempotency keys: this key came with another payload; our bug, this one was not taken",
    ),
    status(413, Class::Permanent, "CASES B41: too large, not read"),
    coded(422, "invalid_from_address", Class::Config, "docs, errors: our sender"),
    coded(422, "invalid_access", Class::Config, "docs, errors: the key's rights"),
    status(422, Class::Permanent, "docs, errors: missing or invalid fields"),
    coded(429, "daily_quota_exceeded", Class::Config, "docs, errors: the account's quota"),
    coded(429, "monthly_quota_exceeded", Class::Config, "docs, errors: the account's quota"),
    status(429, Class::RateLimited, "docs, errors: rate_limit_exceeded, with retry-after"),
    range(
        500,
        599,
        Class::Ambiguous,
        "PROVIDERS 5: may have been taken; the same key may be repeated",
    ),
];

/// One configured provider of kind `resend`.
#[derive(Debug)]
pub struct Resend {
    capability: Capability,
    base_url: String,
    from: String,
    authorization: Secret,
    webhook_secret: Option<Secret>,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
}

/// Makes a provider of this kind.
///
/// # Errors
/// Names the key that is missing or wrong.
pub fn make(parts: &Parts<'_>) -> Result<Arc<dyn Provider>, BuildError> {
    let webhook_secret = parts.webhook_secret();
    if webhook_secret.as_ref().is_some_and(|secret| svix::key(secret).is_none()) {
        return Err(
            parts.invalid("webhook_secret", "must be whsec_ and base64, as the vendor shows it")
        );
    }
    Ok(Arc::new(Resend {
        capability: parts.capability()?,
        base_url: parts.base_url("https://api.resend.com")?,
        from: mail::sender(parts, &parts.setting("from")?)?,
        authorization: token("Bearer", &parts.credential("api_key")?),
        webhook_secret,
        clock: Arc::clone(&parts.clock),
        transport: Arc::clone(&parts.transport),
    }))
}

impl Resend {
    /// Nothing in it depends on when it is made: a repeat has the same bytes.
    async fn post(
        &self,
        message: &Message,
        deadline: Deadline,
    ) -> Result<Response<Bytes>, Failure> {
        #[derive(Serialize)]
        struct Tag<'a> {
            name: &'static str,
            value: &'a str,
        }
        #[derive(Serialize)]
        struct Body<'a> {
            from: &'a str,
            to: [&'a str; 1],
            subject: &'a str,
            text: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            html: Option<&'a str>,
            tags: [Tag<'a>; 1],
        }
        let body = Body {
            from: &self.from,
            to: [message.to.expose()],
            subject: message.subject.as_deref().unwrap_or_default(),
            text: message.text.expose(),
            html: message.html.as_ref().map(Secret::expose),
            tags: [Tag { name: TAG, value: &message.attempt_id }],
        };
        let url = format!("{}/emails", self.base_url);
        let body = Some(("application/json", json(&body, message)));
        let mut request = request(Method::POST, &url, Some(&self.authorization), body)?;
        if let Ok(key) = HeaderValue::from_str(&message.attempt_id) {
            request.headers_mut().insert("idempotency-key", key);
        }
        self.transport.exchange(request, deadline).await
    }
}

#[derive(Deserialize)]
struct Answer {
    id: Option<String>,
    name: Option<String>,
}

fn judge(response: &Response<Bytes>, to: &Secret, now: Stamp) -> Verdict {
    let answer = serde_json::from_slice::<Answer>(response.body()).ok();
    let name = answer.as_ref().and_then(|answer| answer.name.as_deref());
    verdict(CLASSES, response.status(), name, response.headers(), now, || {
        let id = answer.as_ref()?.id.as_deref().filter(|id| !id.is_empty())?;
        Some(Taken { message_id: kept::message_id(id, Some(to)) })
    })
}

/// What an event says of the message; none: nothing.
fn seen_of(event: &str) -> Option<(Seen, Option<Cause>)> {
    Some(match event {
        "queued" | "sent" | "delivery_delayed" => (Seen::Accepted, None),
        "delivered" => (Seen::Delivered, None),
        "opened" | "clicked" => (Seen::Delivered, Some(Cause::Opened)),
        "complained" => (Seen::Delivered, Some(Cause::Complained)),
        "bounced" => (Seen::Failed, Some(Cause::Bounced)),
        "suppressed" => (Seen::Failed, Some(Cause::Suppressed)),
        "canceled" => (Seen::Failed, Some(Cause::Canceled)),
        "failed" => (Seen::Failed, Some(Cause::Unspecified)),
        _ => return None,
    })
}

fn cannot(code: &str) -> Lookup {
    Lookup::CannotTell { code: code.to_owned() }
}

#[derive(Deserialize)]
struct Email {
    id: String,
    last_event: String,
}

fn read(response: &Response<Bytes>, id: &str) -> Lookup {
    if response.status() != StatusCode::OK {
        // An id that the vendor itself gave is never absent.
        return cannot(&code_of(response.status()));
    }
    match serde_json::from_slice::<Email>(response.body()) {
        Ok(email) if email.id != id => cannot("other_message"),
        Ok(email) => match seen_of(&email.last_event) {
            Some((seen, _)) => Lookup::Found { seen, message_id: kept::message_id(id, None) },
            None => cannot("state_unknown"),
        },
        Err(_) => cannot("bad_answer"),
    }
}

#[derive(Deserialize)]
struct Told {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    created_at: Value,
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    email_id: Option<String>,
    #[serde(default)]
    tags: Value,
    #[serde(default)]
    bounce: Value,
}

impl Data {
    /// Tags come as an object, or as the list in which they were sent.
    fn attempt_id(&self) -> Option<&str> {
        let is_ours = |tag: &&Value| tag.get("name").and_then(Value::as_str) == Some(TAG);
        let value = match &self.tags {
            Value::Object(tags) => tags.get(TAG)?,
            Value::Array(tags) => tags.iter().find(is_ours)?.get("value")?,
            _ => return None,
        };
        value.as_str().filter(|id| is_attempt_id(id))
    }
}

fn receipt(told: &Told) -> Option<Receipt> {
    let (seen, cause) = seen_of(told.kind.strip_prefix("email.")?)?;
    let is_soft = told.data.bounce.get("type").and_then(Value::as_str) == Some("Transient");
    let receipt = Receipt {
        attempt_id: told.data.attempt_id().map(str::to_owned),
        message_id: told.data.email_id.as_deref().and_then(|id| kept::message_id(id, None)),
        seen,
        cause: if cause == Some(Cause::Bounced) && is_soft {
            Some(Cause::SoftBounced)
        } else {
            cause
        },
        at: told.created_at.as_str().and_then(|at| Stamp::parse(at).ok()),
    };
    (receipt.attempt_id.is_some() || receipt.message_id.is_some()).then_some(receipt)
}

#[async_trait]
impl Provider for Resend {
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
        if self.capability.reading == Reading::None {
            return cannot("no_lookup");
        }
        // Without an id there is nothing to ask for: the list has no filter.
        let Some(id) = &query.message_id else { return cannot("message_id_unknown") };
        let url = format!("{}/emails/{}", self.base_url, percent_encoded(id));
        let exchanged = match request(Method::GET, &url, Some(&self.authorization), None) {
            Ok(request) => self.transport.exchange(request, deadline).await,
            Err(failure) => Err(failure),
        };
        match exchanged {
            Ok(response) => read(&response, id),
            Err(failure) => cannot(failure.kind.code()),
        }
    }

    async fn verify_callback(
        &self,
        request: &CallbackRequest<'_>,
    ) -> Result<Callback, CallbackError> {
        let secret = self.webhook_secret.as_ref().ok_or(CallbackError::NotConfigured)?;
        svix::verify(secret, request)?;
        let told: Told =
            serde_json::from_slice(request.body).map_err(|_| CallbackError::Malformed)?;
        Ok(receipt(&told).map_or_else(Callback::default, |receipt| Callback::from(vec![receipt])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Stamp = Stamp::from_micros(1_790_000_000_000_000);

    fn response(status: u16, body: &str) -> Response<Bytes> {
        Response::builder().status(status).body(Bytes::from(body.to_owned())).unwrap()
    }

    #[test]
    fn each_answer_has_one_verdict() {
        let to = Secret::new("ann@example.com".to_owned());
        let named = |name: &str| {
            format!(r#"{{"statusCode":1,"name":"{name}","message":"ann@example.com"}}"#)
        };
        let permanent = |code: &str| Verdict::RefusedPermanently { code: code.to_owned() };
        let stopped = |code: &str| Verdict::ProviderStopped { code: code.to_owned() };
        let unsure = |code: &str| super::super::http::ambiguous(code.to_owned());
        let accepted = Verdict::Accepted { message_id: Some("49a3999c-0ce1".to_owned()) };
        for (status, body, expected) in [
            (200, r#"{"id":"49a3999c-0ce1"}"#.to_owned(), accepted),
            (200, "{}".to_owned(), unsure("http_200_without_id")),
            (201, r#"{"id":"x"}"#.to_owned(), unsure("http_201")),
            (400, named("validation_error"), permanent("validation_error")),
            (400, named("invalid_idempotency_key"), stopped("invalid_idempotency_key")),
            (401, named("missing_api_key"), stopped("missing_api_key")),
            (403, named("validation_error"), stopped("validation_error")),
            (404, String::new(), stopped("http_404")),
            (
                409,
                named("concurrent_idempotent_requests"),
                unsure("concurrent_idempotent_requests"),
            ),
            (409, named("invalid_idempotent_request"), stopped("invalid_idempotent_request")),
            (409, String::new(), unsure("http_409")),
            (422, named("missing_required_field"), permanent("missing_required_field")),
            (422, named("invalid_from_address"), stopped("invalid_from_address")),
            (429, named("rate_limit_exceeded"), Verdict::RateLimited { retry_at: None }),
            (429, named("daily_quota_exceeded"), stopped("daily_quota_exceeded")),
            (429, named("monthly_quota_exceeded"), stopped("monthly_quota_exceeded")),
            (451, named("security_error"), unsure("security_error")),
            (500, named("application_error"), unsure("application_error")),
            (503, "<html>".to_owned(), unsure("http_503")),
        ] {
            assert_eq!(judge(&response(status, &body), &to, NOW), expected, "{status} {body}");
        }
    }

    #[test]
    fn a_read_is_about_the_id_that_was_asked_for() {
        let ask = |status: u16, body: &str| read(&response(status, body), "e1");
        let found = |seen| Lookup::Found { seen, message_id: Some("e1".to_owned()) };
        assert_eq!(ask(200, r#"{"id":"e1","last_event":"sent"}"#), found(Seen::Accepted));
        assert_eq!(ask(200, r#"{"id":"e1","last_event":"delivered"}"#), found(Seen::Delivered));
        assert_eq!(ask(200, r#"{"id":"e1","last_event":"suppressed"}"#), found(Seen::Failed));
        assert_eq!(ask(200, r#"{"id":"e2","last_event":"sent"}"#), cannot("other_message"));
        assert_eq!(ask(200, r#"{"id":"e1","last_event":"scheduled"}"#), cannot("state_unknown"));
        assert_eq!(ask(200, "{}"), cannot("bad_answer"));
        for status in [401, 404, 429, 500] {
            assert_eq!(ask(status, "{}"), cannot(&format!("http_{status}")));
        }
    }

    #[test]
    fn an_event_names_the_attempt_by_its_tag_in_either_form() {
        let told = |text: &str| receipt(&serde_json::from_str::<Told>(text).unwrap());
        let at = Stamp::parse("2026-09-21T14:13:20.5Z").ok();
        let base = Receipt {
            attempt_id: Some("a1".to_owned()),
            message_id: Some("e1".to_owned()),
            seen: Seen::Delivered,
            cause: None,
            at,
        };
        let delivered = r#"{"type":"email.delivered","created_at":"2026-09-21T14:13:20.5Z","data":{"email_id":"e1","to":["ann@example.com"],"tags":TAGS}}"#;
        for tags in [
            r#"{"attempt_id":"a1","x":"y"}"#,
            r#"[{"name":"x","value":"y"},{"name":"attempt_id","value":"a1"}]"#,
        ] {
            assert_eq!(told(&delivered.replace("TAGS", tags)), Some(base.clone()));
        }
        let anonymous = Receipt { attempt_id: None, ..base };
        for tags in ["null", "[]", "{}", r#"{"attempt_id":"not an id"}"#] {
            assert_eq!(told(&delivered.replace("TAGS", tags)), Some(anonymous.clone()));
        }
        let cause = |kind: &str, more: &str| {
            told(&format!(r#"{{"type":"email.{kind}","data":{{"email_id":"e1"{more}}}}}"#))
                .map(|receipt| (receipt.seen, receipt.cause))
        };
        assert_eq!(cause("bounced", ""), Some((Seen::Failed, Some(Cause::Bounced))));
        let soft = r#","bounce":{"type":"Transient","message":"ann@example.com"}"#;
        assert_eq!(cause("bounced", soft), Some((Seen::Failed, Some(Cause::SoftBounced))));
        assert_eq!(cause("complained", ""), Some((Seen::Delivered, Some(Cause::Complained))));
        assert_eq!(cause("scheduled", ""), None);
        assert_eq!(told(r#"{"type":"contact.created","data":{}}"#), None);
    }
}
