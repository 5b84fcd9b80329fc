//! Twilio Programmable Messaging.
//!
//! A message cannot carry our attempt id, and a repeated request sends again. So the id stands in the URL
//! of the status callback, whose signature covers it, and a look-up after a lost answer reads the
//! recipient's messages and compares their text: an exact match is ours, and anything close to it that is
//! not certain is no proof of absence.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use app::model::{Seen, Stamp};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Response, StatusCode};
use ring::hmac;
use serde::Deserialize;
use url::{Url, form_urlencoded};

use super::classes::{self, Class, Row, Taken, coded, range, status};
use super::http::verdict_of_failure;
use super::transport::Transport;
use super::vendor::{self, ATTEMPT, Parts, is_attempt_id};
use super::{
    BuildError, Callback, CallbackError, CallbackRequest, Capability, Cause, Deadline, Message,
    Provider, Query, Reading, Receipt, Secret, kept,
};
use crate::clock::Clock;
use crate::domain::{Lookup, Verdict};
use crate::keys;

/// The vendor's public address.
const PUBLIC: &str = "https://api.twilio.com";

/// The longest validity period that it takes, in seconds.
const VALIDITY_MAX_S: i64 = 36_000;

/// Messages on one page of a list: the most that it gives.
pub const PAGE_SIZE: usize = 1_000;

/// Pages that one look-up reads; more is no answer.
const PAGES_MAX: usize = 10;

/// The header of a callback's signature.
pub const SIGNATURE: &str = "x-twilio-signature";

/// What an answer to a sending request means.
pub const CLASSES: &[Row] = &[
    status(
        201,
        Class::Accepted,
        "twilio_api_v2010: 201 with the message; without a sid: ambiguous",
    ),
    coded(400, "21211", Class::Permanent, "PROVIDERS 5: no valid number"),
    coded(400, "21610", Class::Permanent, "PROVIDERS 5: the recipient opted out"),
    coded(400, "21614", Class::Permanent, "PROVIDERS 5: no mobile number"),
    coded(400, "21635", Class::Permanent, "PROVIDERS 5: a landline"),
    coded(
        400,
        "30450",
        Class::Permanent,
        "PROVIDERS 5: blocked as suspected pumping, for this attempt",
    ),
    coded(400, "21408", Class::Config, "PROVIDERS 5: the country is not switched on"),
    coded(400, "30034", Class::Config, "PROVIDERS 5: the sender is not registered"),
    coded(400, "30007", Class::Config, "PROVIDERS 5: content or registration"),
    coded(400, "20003", Class::Config, "PROVIDERS 5: credentials"),
    status(400, Class::Permanent, "CASES B41"),
    status(401, Class::Config, "PROVIDERS 5: 20003, credentials"),
    status(403, Class::Config, "CASES B41: our own configuration"),
    status(
        404,
        Class::Config,
        "the resource is named by our account alone: account_sid or base_url is wrong",
    ),
    status(413, Class::Permanent, "CASES B41"),
    status(422, Class::Permanent, "CASES B41"),
    status(429, Class::RateLimited, "twilio.com/docs/api/errors/20429: not processed"),
    range(500, 599, Class::Ambiguous, "twilio.com/docs/api/errors/20500: may have been processed"),
];

/// Who the messages come from.
#[derive(Debug, Clone)]
enum Sender {
    From(String),
    Service(String),
}

/// One account.
pub struct Twilio {
    base_url: String,
    account_sid: String,
    auth_token: Secret,
    authorization: Secret,
    sender: Sender,
    /// None where the vendor could not reach us.
    webhook_url: Option<String>,
    capability: Capability,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
}

impl fmt::Debug for Twilio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Twilio")
    }
}

/// Makes one from its configuration.
///
/// # Errors
/// Names the key that is missing or wrong.
pub fn make(parts: &Parts<'_>) -> Result<Arc<dyn Provider>, BuildError> {
    let account_sid = parts.setting("account_sid")?;
    let auth_token = parts.credential("auth_token")?;
    let sender = match (parts.setting("messaging_service_sid"), parts.setting("from")) {
        (Ok(service), _) => Sender::Service(service),
        (_, Ok(from)) => Sender::From(from),
        (_, Err(missing)) => return Err(missing),
    };
    let base_url = parts.base_url(PUBLIC)?;
    // It refuses a message whose callback it could not deliver.
    let is_reachable = !is_here(parts.public_url) || is_here(&base_url);
    Ok(Arc::new(Twilio {
        authorization: vendor::basic(&account_sid, &auth_token),
        webhook_url: is_reachable.then(|| parts.webhook_url()),
        capability: parts.capability()?,
        clock: Arc::clone(&parts.clock),
        transport: Arc::clone(&parts.transport),
        base_url,
        account_sid,
        auth_token,
        sender,
    }))
}

fn is_here(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| vendor::is_loopback(&url))
}

/// A message as the vendor tells of it.
#[derive(Deserialize)]
struct Told {
    sid: Option<String>,
    status: Option<String>,
    body: Option<String>,
    to: Option<String>,
    direction: Option<String>,
    date_created: Option<String>,
}

#[derive(Deserialize)]
struct Page {
    messages: Vec<Told>,
    next_page_uri: Option<String>,
}

#[derive(Deserialize)]
struct Refusal {
    code: Option<i64>,
}

/// What a status says; none for one that we do not know.
fn seen(status: &str) -> Option<Seen> {
    Some(match status {
        "accepted" | "scheduled" | "queued" | "sending" | "sent" | "partially_delivered" => {
            Seen::Accepted
        }
        "delivered" | "read" => Seen::Delivered,
        "undelivered" | "failed" | "canceled" => Seen::Failed,
        _ => return None,
    })
}

/// Why a message failed, by the vendor's code.
fn cause(code: &str) -> Cause {
    match code {
        "30003" => Cause::Unreachable,
        "30004" => Cause::Blocked,
        "30005" | "30006" | "21211" | "21614" | "21635" => Cause::BadRecipient,
        "30007" | "30034" => Cause::Filtered,
        "30036" => Cause::Expired,
        "21610" => Cause::OptedOut,
        _ => Cause::Unspecified,
    }
}

impl Twilio {
    fn messages_url(&self) -> String {
        format!("{}/2010-04-01/Accounts/{}/Messages", self.base_url, self.account_sid)
    }

    async fn get(&self, url: &str, deadline: Deadline) -> Result<Response<bytes::Bytes>, Lookup> {
        let cannot = |code: &str| Lookup::CannotTell { code: code.to_owned() };
        let request = vendor::request(Method::GET, url, Some(&self.authorization), None)
            .map_err(|failure| cannot(failure.kind.code()))?;
        let answer = self.transport.exchange(request, deadline).await;
        answer.map_err(|failure| cannot(failure.kind.code()))
    }

    /// The message that its own id names.
    async fn status(&self, sid: &str, deadline: Deadline) -> Lookup {
        let cannot = |code: &str| Lookup::CannotTell { code: code.to_owned() };
        let url = format!("{}/{sid}.json", self.messages_url());
        let response = match self.get(&url, deadline).await {
            Ok(response) => response,
            Err(answer) => return answer,
        };
        if response.status() != StatusCode::OK {
            // Also 404: it has given us this id, so it is deleted and not absent.
            return Lookup::CannotTell { code: super::http::code_of(response.status()) };
        }
        let told = serde_json::from_slice::<Told>(response.body()).ok();
        let told = told.filter(|told| told.sid.as_deref() == Some(sid));
        match told.and_then(|told| told.status).as_deref().map(seen) {
            Some(Some(seen)) => Lookup::Found { seen, message_id: Some(sid.to_owned()) },
            Some(None) => cannot("unknown_status"),
            None => cannot("bad_answer"),
        }
    }

    /// The recipient's messages, all pages of them.
    async fn scan(&self, query: &Query, deadline: Deadline) -> Lookup {
        let cannot = |code: &str| Lookup::CannotTell { code: code.to_owned() };
        let Some(to) = &query.to else { return cannot("no_destination") };
        if query.text.is_none() {
            return cannot("no_text");
        }
        let filter: String = form_urlencoded::Serializer::new(String::new())
            .append_pair("To", to.expose())
            .append_pair("PageSize", &PAGE_SIZE.to_string())
            .finish();
        let mut url = format!("{}.json?{filter}", self.messages_url());
        let mut tally = Tally::default();
        for _ in 0..PAGES_MAX {
            let response = match self.get(&url, deadline).await {
                Ok(response) => response,
                Err(answer) => return answer,
            };
            if response.status() != StatusCode::OK {
                return Lookup::CannotTell { code: super::http::code_of(response.status()) };
            }
            let Ok(page) = serde_json::from_slice::<Page>(response.body()) else {
                return cannot("bad_answer");
            };
            for told in &page.messages {
                tally.weigh(told, query, to);
            }
            match page.next_page_uri {
                None => return tally.answer(),
                // A path at the same host: whatever else it is, we do not go there with our credentials.
                Some(next) if next.starts_with("/2010-04-01/") => {
                    url = format!("{}{next}", self.base_url);
                }
                Some(_) => return cannot("bad_answer"),
            }
        }
        cannot("too_many_pages")
    }

    /// The first parameter list under which the signature is right, in any spelling of our port.
    fn is_signed(&self, request: &CallbackRequest<'_>, params: &[(String, String)]) -> bool {
        let given = request.header(SIGNATURE).and_then(|text| STANDARD.decode(text).ok());
        let Some(given) = given else { return false };
        let key = key_of(&self.auth_token);
        spellings(&request.url())
            .iter()
            .any(|url| hmac::verify(&key, &signed(url, params), &given).is_ok())
    }
}

/// What the pages of a scan come to.
#[derive(Default)]
struct Tally {
    found: Option<(Seen, Option<String>)>,
    /// A code for something that may be our message and cannot be told.
    doubt: Option<&'static str>,
}

impl Tally {
    fn weigh(&mut self, told: &Told, query: &Query, to: &Secret) {
        let is_outbound = told.direction.as_deref().is_none_or(|way| way.starts_with("outbound"));
        if !is_outbound || told.to.as_deref() != Some(to.expose()) {
            return;
        }
        let created = told.date_created.as_deref().and_then(instant);
        if created.is_some_and(|at| at < query.earliest()) {
            return;
        }
        let is_ours = match (&query.text, told.body.as_deref().filter(|body| !body.is_empty())) {
            (Some(text), Some(body)) => Some(text.is_of(body)),
            // Deleted, or never kept.
            _ => None,
        };
        match (is_ours, created) {
            (Some(true), Some(_)) => match told.status.as_deref().and_then(seen) {
                Some(seen) => self.take(seen, told.sid.as_deref()),
                None => self.doubt = Some("unknown_status"),
            },
            (Some(true), None) => self.doubt = Some("no_date"),
            (None, _) => self.doubt = Some("no_text"),
            (Some(false), Some(at)) if !query.is_near(at) => {}
            // The same recipient at about the same time: it could be ours in another spelling.
            (Some(false), _) => self.doubt = self.doubt.or(Some("near_match")),
        }
    }

    /// The message that got furthest stands for all.
    fn take(&mut self, seen: Seen, sid: Option<&str>) {
        let rank = |seen: Seen| match seen {
            Seen::Delivered => 2,
            Seen::Accepted => 1,
            Seen::Failed => 0,
        };
        if self.found.as_ref().is_none_or(|(known, _)| rank(seen) > rank(*known)) {
            self.found = Some((seen, sid.and_then(|sid| kept::message_id(sid, None))));
        }
    }

    fn answer(self) -> Lookup {
        match (self.found, self.doubt) {
            (Some((seen, message_id)), _) => Lookup::Found { seen, message_id },
            (None, Some(code)) => Lookup::CannotTell { code: code.to_owned() },
            (None, None) => Lookup::Absent,
        }
    }
}

/// `Thu, 24 Aug 2023 05:01:45 +0000`
fn instant(text: &str) -> Option<Stamp> {
    let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Stamp::from_micros(at.as_microsecond()))
}

/// The URL as it stands, without its port, and with the port that its scheme implies: vendor and proxy do
/// not agree on it.
fn spellings(url: &str) -> Vec<Cow<'_, str>> {
    let mut all = vec![Cow::Borrowed(url)];
    let Some((scheme, rest)) = url.split_once("://") else { return all };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let port = authority.rfind(':').filter(|at| {
        authority.len() > at + 1 && authority[at + 1..].bytes().all(|c| c.is_ascii_digit())
    });
    match port {
        Some(at) => all.push(Cow::Owned(format!("{scheme}://{}{tail}", &authority[..at]))),
        None => {
            let implied = if scheme == "https" { 443 } else { 80 };
            all.push(Cow::Owned(format!("{scheme}://{authority}:{implied}{tail}")));
        }
    }
    all
}

fn key_of(auth_token: &Secret) -> hmac::Key {
    // The vendor's choice; HMAC does not rest on what SHA-1 has lost.
    hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, auth_token.expose().as_bytes())
}

/// The URL, then each name with each of its values, both sorted, values once.
fn signed(url: &str, params: &[(String, String)]) -> Vec<u8> {
    let mut sorted: BTreeMap<&str, std::collections::BTreeSet<&str>> = BTreeMap::new();
    for (name, value) in params {
        sorted.entry(name).or_default().insert(value);
    }
    let mut text = url.as_bytes().to_vec();
    for (name, values) in sorted {
        for value in values {
            text.extend_from_slice(name.as_bytes());
            text.extend_from_slice(value.as_bytes());
        }
    }
    text
}

/// The signature of a form that is posted to this URL.
#[must_use]
pub fn signature(auth_token: &Secret, url: &str, params: &[(String, String)]) -> String {
    STANDARD.encode(hmac::sign(&key_of(auth_token), &signed(url, params)))
}

#[async_trait]
impl Provider for Twilio {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn send(&self, message: &Message, deadline: Deadline) -> Verdict {
        let left = message.valid_until.since(self.clock.now()) / 1_000_000;
        let validity = left.clamp(1, VALIDITY_MAX_S).to_string();
        let callback =
            self.webhook_url.as_ref().map(|url| vendor::callback_url(url, &message.attempt_id));
        let mut fields = vec![("To", message.to.expose())];
        fields.push(match &self.sender {
            Sender::From(from) => ("From", from),
            Sender::Service(service) => ("MessagingServiceSid", service),
        });
        fields.push(("Body", message.text.expose()));
        fields.push(("ValidityPeriod", &validity));
        if let Some(url) = &callback {
            fields.push(("StatusCallback", url));
        }
        let body = ("application/x-www-form-urlencoded", vendor::form(&fields));
        let url = format!("{}.json", self.messages_url());
        let request =
            match vendor::request(Method::POST, &url, Some(&self.authorization), Some(body)) {
                Ok(request) => request,
                Err(failure) => return verdict_of_failure(failure),
            };
        let response = match self.transport.exchange(request, deadline).await {
            Ok(response) => response,
            Err(failure) => return verdict_of_failure(failure),
        };
        let body = response.body();
        let refusal = serde_json::from_slice::<Refusal>(body).ok();
        let code = refusal.and_then(|refusal| refusal.code).map(|code| code.to_string());
        let now = self.clock.now();
        classes::verdict(
            CLASSES,
            response.status(),
            code.as_deref(),
            response.headers(),
            now,
            || {
                let told = serde_json::from_slice::<Told>(body).ok()?;
                let sid = told.sid.filter(|sid| !sid.is_empty())?;
                Some(Taken { message_id: kept::message_id(&sid, Some(&message.to)) })
            },
        )
    }

    async fn find(&self, query: &Query, deadline: Deadline) -> Lookup {
        if self.capability.reading == Reading::None {
            return Lookup::CannotTell { code: "no_lookup".to_owned() };
        }
        match &query.message_id {
            Some(sid) => self.status(sid, deadline).await,
            None => self.scan(query, deadline).await,
        }
    }

    async fn verify_callback(
        &self,
        request: &CallbackRequest<'_>,
    ) -> Result<Callback, CallbackError> {
        let params: Vec<(String, String)> = match request.param("bodySHA256") {
            // A body that is no form: the URL is signed, and it holds the body's hash.
            Some(hash) => {
                let own = keys::sha256(request.body);
                if !keys::equal(own.as_bytes(), hash.to_ascii_lowercase().as_bytes()) {
                    return Err(CallbackError::Signature);
                }
                Vec::new()
            }
            None => form_urlencoded::parse(request.body).into_owned().collect(),
        };
        if !self.is_signed(request, &params) {
            return Err(CallbackError::Signature);
        }
        let value = |names: [&str; 2]| {
            params.iter().find(|(name, _)| names.contains(&name.as_str())).map(|(_, value)| value)
        };
        let sid = value(["MessageSid", "SmsSid"]);
        let status = value(["MessageStatus", "SmsStatus"]).ok_or(CallbackError::Malformed)?;
        let attempt_id = request.param(ATTEMPT).filter(|id| is_attempt_id(id));
        let message_id = sid.and_then(|sid| kept::message_id(sid, None));
        let Some(seen) = seen(status) else { return Ok(Callback::default()) };
        if attempt_id.is_none() && message_id.is_none() {
            return Err(CallbackError::Malformed);
        }
        let code = value(["ErrorCode", "ErrorCode"]).map_or("", String::as_str);
        let cause = match seen {
            Seen::Failed if status == "canceled" => Some(Cause::Canceled),
            Seen::Failed => Some(cause(code)),
            Seen::Accepted | Seen::Delivered => None,
        };
        Ok(Callback::from(vec![Receipt { attempt_id, message_id, seen, cause, at: None }]))
    }
}

#[cfg(test)]
#[path = "twilio_tests.rs"]
mod tests;
