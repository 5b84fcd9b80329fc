//! SMTP: one message in one conversation with a relay.
//!
//! Before the final dot everything is definite: nothing was sent. An explicit reply to it is definite too.
//! When the connection is lost after it, nobody can ever be asked: the attempt stays unknown until it
//! expires, unless a delivery status notification names it. Wait long: RFC 5321 4.5.3.2.6 gives the server
//! ten minutes for that reply, so `dispatch.call_timeout` decides how many such doubts there are.

mod dsn;
mod letter;
mod reply;
mod session;

use std::fmt;
use std::io::Read as _;
use std::sync::Arc;

use async_trait::async_trait;
use lettre::message::Mailbox;
use lettre::message::dkim::DkimConfig;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

pub use reply::{CLASSES, Reply, Row, Step, class};
use session::{Letter, Server, Tls, deliver};

use super::transport::Transport;
use super::vendor::Parts;
use super::{
    BuildError, Callback, CallbackError, CallbackRequest, Capability, Deadline, Message, Provider,
    Query, Secret, mail, signature,
};
use crate::clock::Clock;
use crate::domain::{Lookup, Verdict};

/// The largest file of a key or of certificates: 1 MiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// One configured provider of kind `smtp`.
pub struct Smtp {
    capability: Capability,
    server: Server,
    from: Mailbox,
    /// The sender's address alone.
    address: String,
    domain: String,
    dkim: Option<DkimConfig>,
    webhook_secret: Option<Secret>,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
}

impl fmt::Debug for Smtp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Smtp").field("host", &self.server.host).finish_non_exhaustive()
    }
}

/// Makes a provider of this kind.
///
/// # Errors
/// Names the key that is missing or wrong.
pub fn make(parts: &Parts<'_>) -> Result<Arc<dyn Provider>, BuildError> {
    let from = mail::sender(parts, &parts.setting("from")?)?;
    let address = mail::address_of(&from).ok_or_else(|| parts.missing("from"))?.to_owned();
    let domain = mail::domain_of(&from).ok_or_else(|| parts.missing("from"))?.to_owned();
    let from = from.parse::<Mailbox>().map_err(|_| {
        parts.invalid("from", "must be an address, or a name and an address in angle brackets")
    })?;
    let hello = parts.config.setting("hello").unwrap_or(&domain).to_owned();
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || b".-:[]".contains(&c))
    };
    if !is_name(&hello) {
        return Err(parts.invalid("hello", "is no host name"));
    }
    let tls = match parts.config.setting("tls") {
        Some("starttls") => Tls::Upgrade,
        Some("implicit") => Tls::Implicit,
        Some("none") => Tls::None,
        _ => return Err(parts.missing("tls")),
    };
    let port = parts.setting("port")?.parse();
    let credentials = match parts.config.setting("username").filter(|user| !user.is_empty()) {
        Some(user) => Some((user.to_owned(), parts.credential("password")?)),
        None => None,
    };
    if credentials
        .as_ref()
        .is_some_and(|(user, password)| user.contains('\0') || password.expose().contains('\0'))
    {
        return Err(parts.invalid("password", "carries a zero byte"));
    }
    let dkim = match parts.config.setting("dkim_key_file") {
        None => None,
        Some(path) => {
            let signer = parts.config.setting("dkim_domain").unwrap_or(&domain).to_owned();
            let selector = parts.setting("dkim_selector")?;
            if !is_name(&signer) || !is_name(&selector) {
                return Err(
                    parts.invalid("dkim_selector", "and dkim_domain must be names in the DNS")
                );
            }
            let key = file(path).ok_or_else(|| parts.invalid("dkim_key_file", "cannot be read"))?;
            let made = letter::dkim(&selector, &signer, &key);
            Some(made.map_err(|why| parts.invalid("dkim_key_file", why))?)
        }
    };
    let webhook_secret = parts.webhook_secret();
    let server = Server {
        // Brackets belong to a URL, not to a socket.
        host: parts.setting("host")?.trim_matches(['[', ']']).to_owned(),
        port: port.map_err(|_| parts.invalid("port", "is no port"))?,
        tls,
        roots: roots(parts)?,
        hello,
        credentials,
        wants_success: webhook_secret.is_some(),
    };
    Ok(Arc::new(Smtp {
        capability: parts.capability()?,
        server,
        from,
        address,
        domain,
        dkim,
        webhook_secret,
        clock: Arc::clone(&parts.clock),
        transport: Arc::clone(&parts.transport),
    }))
}

/// The text of a small file.
fn file(path: &str) -> Option<Secret> {
    let file = std::fs::File::open(path).ok()?;
    let mut text = String::with_capacity(4096);
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(Secret::new(text))
}

/// The authorities of a file in PEM.
fn roots(parts: &Parts<'_>) -> Result<Option<Arc<RootCertStore>>, BuildError> {
    let Some(path) = parts.config.setting("ca_file") else { return Ok(None) };
    let wrong = || parts.invalid("ca_file", "must be a readable file with certificates in PEM");
    let text = file(path).ok_or_else(wrong)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text.expose().as_bytes()) {
        roots.add(certificate.map_err(|_| wrong())?).map_err(|_| wrong())?;
    }
    if roots.is_empty() { Err(wrong()) } else { Ok(Some(Arc::new(roots))) }
}

#[async_trait]
impl Provider for Smtp {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn send(&self, message: &Message, deadline: Deadline) -> Verdict {
        if let Err(verdict) = mail::one_recipient(message) {
            return verdict;
        }
        let (now, dkim) = (self.clock.now(), self.dkim.as_ref());
        let Some(bytes) = letter::letter(message, &self.from, &self.domain, now, dkim) else {
            return Verdict::RefusedPermanently { code: "message_syntax".to_owned() };
        };
        let letter = Letter {
            from: &self.address,
            to: message.to.expose(),
            envelope_id: &message.attempt_id,
            bytes: &bytes,
            // The rest of the Message-ID is the sender's domain.
            message_id: message.attempt_id.clone(),
        };
        deliver(&*self.transport, &self.server, &letter, deadline).await
    }

    async fn find(&self, _query: &Query, _deadline: Deadline) -> Lookup {
        Lookup::CannotTell { code: "no_lookup".to_owned() }
    }

    async fn verify_callback(
        &self,
        request: &CallbackRequest<'_>,
    ) -> Result<Callback, CallbackError> {
        let key = self.webhook_secret.as_ref().ok_or(CallbackError::NotConfigured)?;
        signature::verify(key, request.headers, request.now, request.body)?;
        let receipt = dsn::receipt(request.body, &self.domain);
        Ok(receipt.map_or_else(Callback::default, |receipt| Callback::from(vec![receipt])))
    }
}
