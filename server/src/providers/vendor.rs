//! What the vendors' adapters have in common: their configuration, and how a request is put together.

use std::fmt;
use std::sync::Arc;

use app::model::percent_encoded;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request};
use url::{Host, Url};
use zeroize::Zeroizing;

use super::http::base_url_of;
use super::transport::{Failure, Kind as FailureKind, Phase, Transport};
use super::{BuildError, Capability, Message, Secret};
use crate::clock::Clock;
use crate::config::{Kind, ProviderConfig};
use crate::entropy::Entropy;

/// The parameter of a callback's URL that carries the attempt id, where a vendor echoes nothing else.
pub const ATTEMPT: &str = "attempt";

/// What an adapter is made from.
#[derive(Clone)]
pub struct Parts<'a> {
    pub name: &'a str,
    pub config: &'a ProviderConfig,
    /// Base of callback URLs, without a trailing slash.
    pub public_url: &'a str,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub transport: Arc<dyn Transport>,
}

impl fmt::Debug for Parts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Parts<'_> {
    /// The row of this provider's kind, as its configuration leaves it.
    ///
    /// # Errors
    /// When there is no such kind.
    pub fn capability(&self) -> Result<Capability, BuildError> {
        let kind = Kind::find(&self.config.kind).ok_or_else(|| self.missing("kind"))?;
        Ok(Capability::of(kind, Some(self.config)))
    }

    #[must_use]
    pub fn missing(&self, key: &'static str) -> BuildError {
        BuildError::Missing { name: self.name.to_owned(), key }
    }

    #[must_use]
    pub fn invalid(&self, key: &'static str, why: &'static str) -> BuildError {
        BuildError::Invalid { name: self.name.to_owned(), key, why }
    }

    /// `base_url` without its trailing slash, or the vendor's public address.
    ///
    /// # Errors
    /// When it is no plain URL.
    pub fn base_url(&self, public: &str) -> Result<String, BuildError> {
        let text = self.config.base_url.as_deref().unwrap_or(public);
        base_url_of(text).map_err(|why| self.invalid("base_url", why))
    }

    /// A key that may be shown and must be there.
    ///
    /// # Errors
    /// When it is missing or empty.
    pub fn setting(&self, key: &'static str) -> Result<String, BuildError> {
        let text = self.config.setting(key).filter(|text| !text.is_empty());
        text.map(str::to_owned).ok_or_else(|| self.missing(key))
    }

    /// A secret key that must be there.
    ///
    /// # Errors
    /// When it is missing or empty.
    pub fn credential(&self, key: &'static str) -> Result<Secret, BuildError> {
        let secret = self.config.credential(key).filter(|secret| !secret.expose().is_empty());
        secret.cloned().ok_or_else(|| self.missing(key))
    }

    /// The key of its callbacks; none: there is no endpoint for them.
    #[must_use]
    pub fn webhook_secret(&self) -> Option<Secret> {
        self.config.webhook_secret.clone().filter(|key| !key.expose().is_empty())
    }

    /// Where this provider's callbacks go.
    #[must_use]
    pub fn webhook_url(&self) -> String {
        format!("{}/webhooks/{}", self.public_url, self.name)
    }
}

/// [`Parts::webhook_url`] with the attempt id in its query.
#[must_use]
pub fn callback_url(webhook_url: &str, attempt_id: &str) -> String {
    format!("{webhook_url}?{ATTEMPT}={}", percent_encoded(attempt_id))
}

/// Whether this address is on this machine, where the simulator is.
#[must_use]
pub fn is_loopback(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(ip)) => ip.is_loopback(),
            Some(Host::Ipv6(ip)) => ip.is_loopback(),
            None => false,
        }
}

/// Whether this can be an attempt id of ours: 1 to 36 of `A-Z a-z 0-9 -` (CONTRACT section 1).
#[must_use]
pub fn is_attempt_id(text: &str) -> bool {
    (1..=36).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

/// `Basic` credentials.
#[must_use]
pub fn basic(user: &str, password: &Secret) -> Secret {
    let plain = Zeroizing::new(format!("{user}:{}", password.expose()));
    Secret::new(format!("Basic {}", STANDARD.encode(plain.as_bytes())))
}

/// `Bearer` credentials, or those of another scheme with a single token.
#[must_use]
pub fn token(scheme: &str, token: &Secret) -> Secret {
    Secret::new(format!("{scheme} {}", token.expose()))
}

/// One request. `authorization` is the header's whole value; `body` its content type and bytes.
///
/// # Errors
/// When it cannot be put together; then nothing was tried.
pub fn request(
    method: Method,
    url: &str,
    authorization: Option<&Secret>,
    body: Option<(&'static str, Bytes)>,
) -> Result<Request<Bytes>, Failure> {
    let refused = |_| Failure { phase: Phase::BeforeWrite, kind: FailureKind::Request };
    let (content_type, bytes) =
        body.map_or((None, Bytes::new()), |(kind, body)| (Some(kind), body));
    let mut request = Request::builder()
        .method(method)
        .uri(url)
        .header(ACCEPT, "application/json")
        .body(bytes)
        .map_err(|_| Failure { phase: Phase::BeforeWrite, kind: FailureKind::Request })?;
    if let Some(value) = authorization {
        let mut value = HeaderValue::from_str(value.expose()).map_err(refused)?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    if let Some(kind) = content_type {
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    Ok(request)
}

/// JSON bytes that are wiped when dropped: the body of a sending request carries the link.
#[must_use]
pub fn json(body: &impl serde::Serialize, message: &Message) -> Bytes {
    // Reserved for every character escaped, so that growing leaves no copy of the link behind.
    let texts =
        message.text.expose().len() + message.html.as_ref().map_or(0, |html| html.expose().len());
    let mut bytes = Zeroizing::new(Vec::with_capacity(2048 + 6 * texts));
    serde_json::to_writer(&mut *bytes, body).expect("strings and numbers always serialise");
    Bytes::from_owner(bytes)
}

/// The bytes of an HTML form, wiped when dropped.
#[must_use]
pub fn form(fields: &[(&str, &str)]) -> Bytes {
    let most = fields.iter().map(|(name, value)| 3 * (name.len() + value.len()) + 2).sum();
    let mut text = Zeroizing::new(String::with_capacity(most));
    for (name, value) in fields {
        if !text.is_empty() {
            text.push('&');
        }
        push_form(&mut text, name);
        text.push('=');
        push_form(&mut text, value);
    }
    Bytes::from_owner(Zeroizing::new(std::mem::take(&mut *text).into_bytes()))
}

/// As the URL standard writes a form; every byte but unreserved ones escaped, a space as `+`.
fn push_form(out: &mut String, text: &str) {
    for piece in url::form_urlencoded::byte_serialize(text.as_bytes()) {
        out.push_str(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_back_as_it_was() {
        let fields = [("To", "+12025550123"), ("Body", "a b&c=ü \u{1F4A9}%"), ("Empty", "")];
        let bytes = form(&fields);
        let read: Vec<(String, String)> =
            url::form_urlencoded::parse(&bytes).into_owned().collect();
        let expected: Vec<(String, String)> =
            fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        assert_eq!(read, expected);
    }

    #[test]
    fn credentials_are_not_printed() {
        let value = basic("user", &Secret::new("pass".to_owned()));
        assert_eq!(value.expose(), "Basic dXNlcjpwYXNz");
        let request = request(Method::GET, "http://127.0.0.1/", Some(&value), None).unwrap();
        assert!(!format!("{request:?}").contains("dXNlcjpwYXNz"));
    }

    #[test]
    fn only_what_can_be_ours_is_an_attempt_id() {
        assert!(is_attempt_id("0123456789abcdef0123456789abcdef"));
        for bad in ["", "a b", "a@b.example", &"a".repeat(37)] {
            assert!(!is_attempt_id(bad), "{bad}");
        }
    }
}
