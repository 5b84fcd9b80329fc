//! The wire protocols. A new one is a module here and a row in [`KINDS`].

mod generic;
mod infobip;
mod infrai;
mod mailgun;
mod postmark;
mod resend;
mod sendgrid;
mod ses;
mod sinch;
mod smtp;
mod twilio;

use std::sync::Arc;

use axum::Router;
use axum::http::header::{AUTHORIZATION, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::Simulator;
use super::callbacks::CallbackFacts;
use crate::entropy::Entropy;
use crate::providers::Secret;

pub use sendgrid::public_key as sendgrid_public_key;

/// One protocol.
pub struct Kind {
    /// Its name, and the first segment of its path.
    pub name: &'static str,
    /// What it answers below that segment, under the name that it is mounted as.
    pub(super) routes: fn(Arc<Simulator>, &'static str) -> Router,
    /// A call with an attempt id that it knows gets the first message's name instead of a second message.
    pub(super) is_idempotent: bool,
    /// A new message id in the vendor's own form.
    pub(super) message_id: fn(&dyn Entropy) -> String,
    /// One signed callback to this URL.
    pub(super) callback: fn(&CallbackFacts<'_>, &str, &Secret) -> Option<http::Request<Bytes>>,
}

/// Every protocol that there is. `demo` speaks the generic one under a name of its own, so that scripts
/// for the product's `demo` provider do not meet tests of the kind `http`.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "http",
        routes: generic::routes,
        is_idempotent: true,
        message_id: generic::message_id,
        callback: generic::callback,
    },
    Kind {
        name: "demo",
        routes: generic::routes,
        is_idempotent: true,
        message_id: generic::message_id,
        callback: generic::callback,
    },
    Kind {
        name: "mailgun",
        routes: mailgun::routes,
        is_idempotent: false,
        message_id: mailgun::message_id,
        callback: mailgun::callback,
    },
    Kind {
        name: "infrai",
        routes: infrai::routes,
        is_idempotent: true,
        message_id: infrai::message_id,
        callback: infrai::callback,
    },
    Kind {
        name: "resend",
        routes: resend::routes,
        is_idempotent: true,
        message_id: resend::message_id,
        callback: resend::callback,
    },
    Kind {
        name: "ses",
        routes: ses::routes,
        is_idempotent: false,
        message_id: ses::message_id,
        callback: ses::callback,
    },
    Kind {
        name: "sendgrid",
        routes: sendgrid::routes,
        is_idempotent: false,
        message_id: sendgrid::message_id,
        callback: sendgrid::callback,
    },
    Kind {
        name: "postmark",
        routes: postmark::routes,
        is_idempotent: false,
        message_id: postmark::message_id,
        callback: postmark::callback,
    },
    Kind {
        name: "smtp",
        routes: smtp::routes,
        is_idempotent: false,
        message_id: smtp::message_id,
        callback: smtp::callback,
    },
    Kind {
        name: "twilio",
        routes: twilio::routes,
        is_idempotent: false,
        message_id: twilio::message_id,
        callback: twilio::callback,
    },
    Kind {
        name: "sinch",
        routes: sinch::routes,
        is_idempotent: false,
        message_id: sinch::message_id,
        callback: sinch::callback,
    },
    Kind {
        name: "infobip",
        routes: infobip::routes,
        is_idempotent: true,
        message_id: infobip::message_id,
        callback: infobip::callback,
    },
];

/// What is behind `Bearer `, `App ` or another scheme with a single token.
fn token(headers: &HeaderMap, scheme: &str) -> Option<Secret> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let token = value.strip_prefix(scheme)?.strip_prefix(' ')?;
    (!token.is_empty()).then(|| Secret::new(token.to_owned()))
}

/// User and password of `Basic`.
fn basic(headers: &HeaderMap) -> Option<(String, Secret)> {
    let encoded = token(headers, "Basic")?;
    let pair = STANDARD.decode(encoded.expose()).ok()?;
    let (user, password) = std::str::from_utf8(&pair).ok()?.split_once(':')?;
    (!password.is_empty()).then(|| (user.to_owned(), Secret::new(password.to_owned())))
}

/// An attempt id for a call that names none.
fn unnamed(entropy: &dyn Entropy) -> String {
    format!("unnamed-{}", entropy.hex(8))
}

/// `Retry-After` as scripted, where it can be a header.
fn retry_after(mut response: Response, text: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(text) {
        response.headers_mut().insert(RETRY_AFTER, value);
    }
    response
}
