//! What SMTP has outside its own port: a queue id, and delivery status notifications, posted as the mail
//! system that receives them would.

use std::sync::Arc;

use app::model::Seen;
use axum::Router;
use axum::body::Bytes;
use axum::http::Request;
use axum::http::header::CONTENT_TYPE;

use crate::entropy::Entropy;
use crate::providers::{Secret, signature};
use crate::simulator::Simulator;
use crate::simulator::callbacks::CallbackFacts;

/// Nothing is served over HTTP.
pub(super) fn routes(_: Arc<Simulator>, _: &'static str) -> Router {
    Router::new()
}

pub(super) fn message_id(entropy: &dyn Entropy) -> String {
    entropy.hex(6).to_uppercase()
}

/// A report by RFC 3464, signed as our own protocols are.
pub(super) fn callback(
    facts: &CallbackFacts<'_>,
    url: &str,
    key: &Secret,
) -> Option<Request<Bytes>> {
    let (action, status) = match facts.state {
        Seen::Accepted => ("relayed", "2.0.0"),
        Seen::Delivered => ("delivered", "2.0.0"),
        Seen::Failed => ("failed", "5.1.1"),
    };
    let (id, to, attempt) = (facts.message_id, facts.destination, facts.attempt);
    let body = format!(
        "From: MAILER-DAEMON@simulator.example\r\nSubject: Delivery Status Notification\r\n\
         MIME-Version: 1.0\r\nContent-Type: multipart/report; report-type=delivery-status;\r\n\
         \tboundary=\"{id}/simulator.example\"\r\n\r\n--{id}/simulator.example\r\n\
         Content-Type: text/plain\r\n\r\nThis is the mail system.\r\n\r\n--{id}/simulator.example\r\n\
         Content-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; simulator.example\r\n\
         Original-Envelope-Id: {attempt}\r\n\r\nFinal-Recipient: rfc822; {to}\r\n\
         Action: {action}\r\nStatus: {status}\r\n\r\n--{id}/simulator.example--\r\n"
    );
    Request::post(url)
        .header(CONTENT_TYPE, "message/rfc822")
        .header(signature::HEADER, signature::header(key, facts.now, body.as_bytes()))
        .body(Bytes::from(body))
        .ok()
}
