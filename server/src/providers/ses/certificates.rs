//! The certificates that SNS signs with: where they may come from, and when one is believed.
//!
//! An envelope names the address of its certificate, and the envelope is not yet trusted. So the address is
//! pinned: HTTPS, the host of SNS in the region of the configured topic, and the form of path that SNS
//! uses. What is found there must be valid now, be issued to SNS, and chain to a public authority.
//!
//! A provider whose `base_url` is on this machine (the simulator) signs with a key that it has made itself.
//! Only then, and only from that very port, a certificate is taken without a chain.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use app::model::Stamp;
use bytes::Bytes;
use http::StatusCode;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{CertificateError, Error as TlsError, RootCertStore, crypto};
use url::Url;
use x509_parser::oid_registry::{OID_PKCS1_RSAENCRYPTION, OID_PKIX_ACCESS_DESCRIPTOR_CA_ISSUERS};
use x509_parser::pem::Pem;
use x509_parser::prelude::{ASN1Time, FromDer as _, GeneralName, ParsedExtension, X509Certificate};

use crate::clock::{Clock, micros};
use crate::providers::transport::Transport;
use crate::providers::vendor::is_loopback;
use crate::providers::{CallbackError, Deadline};

/// Certificates that are kept. SNS uses one at a time in a region and changes it about once a year.
const KEPT_MAX: usize = 8;

/// Fetches in a minute. A callback is not yet trusted when its certificate is fetched: without a limit
/// anybody could make us ask Amazon as often as they like.
pub const FETCHES_MAX: u32 = 10;

/// How long one fetch may take. SNS itself waits 15 s for our answer.
const FETCH_TIME: Duration = Duration::from_secs(4);

/// Certificates above the leaf that are fetched one after the other to complete a chain.
const ISSUERS_MAX: usize = 3;

/// Certificates in one file that are looked at.
const FILE_MAX: usize = 5;

/// Whose addresses are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    region: String,
    /// The loopback port of a simulator, and the path before the file.
    own: Option<(u16, String)>,
}

impl Pin {
    /// For topics of this region; a `base_url` on this machine is pinned as well.
    #[must_use]
    pub fn new(region: &str, base_url: &str) -> Self {
        let own = Url::parse(base_url).ok().filter(is_loopback);
        let own = own.and_then(|url| {
            Some((url.port_or_known_default()?, url.path().trim_end_matches('/').to_owned()))
        });
        Self { region: region.to_owned(), own }
    }

    /// Whether this is the simulator (true) or SNS itself; none: neither.
    fn origin(&self, url: &Url) -> Option<bool> {
        let is_plain =
            url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
        if !is_plain {
            return None;
        }
        let port = url.port_or_known_default();
        if is_loopback(url) && self.own.as_ref().is_some_and(|(own, _)| Some(*own) == port) {
            return Some(true);
        }
        let hosts =
            ["amazonaws.com", "amazonaws.com.cn"].map(|top| format!("sns.{}.{top}", self.region));
        let is_sns = url.scheme() == "https"
            && url.port().is_none()
            && url.host_str().is_some_and(|host| hosts.iter().any(|known| known == host));
        is_sns.then_some(false)
    }

    /// The address of a certificate, if it may be fetched; with it whether it is the simulator's.
    #[must_use]
    pub fn certificate(&self, text: &str) -> Option<(Url, bool)> {
        let url = Url::parse(text).ok()?;
        let is_own = self.origin(&url)?;
        let before = if is_own { self.own.as_ref()?.1.as_str() } else { "" };
        let name = url.path().strip_prefix(before)?.strip_prefix("/SimpleNotificationService-")?;
        let is_name = name.strip_suffix(".pem").is_some_and(|name| {
            (1..=64).contains(&name.len()) && name.bytes().all(|c| c.is_ascii_alphanumeric())
        });
        (is_name && url.query().is_none()).then_some((url, is_own))
    }

    /// The address that confirms a subscription to this topic, if it may be visited.
    #[must_use]
    pub fn confirmation(&self, text: &str, topic_arn: &str) -> Option<Url> {
        let url = Url::parse(text).ok()?;
        self.origin(&url)?;
        let has = |name: &str, value: &str| url.query_pairs().any(|(n, v)| n == name && v == value);
        (has("Action", "ConfirmSubscription") && has("TopicArn", topic_arn)).then_some(url)
    }

    /// The names under which SNS signs in this region.
    fn names(&self) -> Vec<String> {
        let region = &self.region;
        let mut names = vec!["sns.amazonaws.com".to_owned()];
        for top in ["amazonaws.com", "amazonaws.com.cn"] {
            let hosts = ["sns.", "sns-", "sns-signing."];
            names.extend(hosts.map(|host| format!("{host}{region}.{top}")));
        }
        names
    }

    /// Key and validity of a certificate that was issued to SNS and is valid now.
    fn read(&self, der: &CertificateDer<'_>, now_s: i64) -> Option<Kept> {
        let (rest, certificate) = X509Certificate::from_der(der).ok()?;
        let now = ASN1Time::from_timestamp(now_s).ok()?;
        let names = self.names();
        let is_sns = |name: &str| names.iter().any(|known| known == name);
        let has_name = match certificate.subject_alternative_name().ok()? {
            Some(names) => {
                let names = &names.value.general_names;
                names.iter().any(|name| matches!(name, GeneralName::DNSName(name) if is_sns(name)))
            }
            None => {
                certificate.subject().iter_common_name().any(|name| name.as_str().is_ok_and(is_sns))
            }
        };
        let key = certificate.public_key();
        let fits = rest.is_empty()
            && certificate.validity().is_valid_at(now)
            && has_name
            && key.algorithm.algorithm == OID_PKCS1_RSAENCRYPTION;
        fits.then(|| Kept {
            key: key.subject_public_key.data.to_vec(),
            from_s: certificate.validity().not_before.timestamp(),
            until_s: certificate.validity().not_after.timestamp(),
        })
    }
}

/// A certificate that was believed.
#[derive(Clone)]
struct Kept {
    key: Vec<u8>,
    /// Seconds since 1970; it is believed from the first to the last of them.
    from_s: i64,
    until_s: i64,
}

#[derive(Default)]
struct Cache {
    kept: BTreeMap<String, Kept>,
    /// Fetches since `minute_from`.
    fetches: u32,
    minute_from: i64,
}

/// Fetches certificates and keeps them.
pub struct Certificates {
    pin: Pin,
    trust: Arc<WebPkiServerVerifier>,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
    // A std mutex: no lock is held over an await.
    cache: Mutex<Cache>,
    // An async one, held while a certificate is fetched: the first events after a start come many at once,
    // and one answer serves them all.
    fetching: tokio::sync::Mutex<()>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("pin", &self.pin).finish_non_exhaustive()
    }
}

impl Certificates {
    /// Believes what chains to a public authority.
    #[must_use]
    pub fn new(pin: Pin, clock: Arc<dyn Clock>, transport: Arc<dyn Transport>) -> Self {
        let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        Self::with_roots(pin, roots, clock, transport)
    }

    /// Believes what chains to one of these.
    #[must_use]
    pub fn with_roots(
        pin: Pin,
        roots: RootCertStore,
        clock: Arc<dyn Clock>,
        transport: Arc<dyn Transport>,
    ) -> Self {
        let provider = Arc::new(crypto::ring::default_provider());
        let trust = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .expect("there is a root, and no list of revocations to be wrong");
        Self {
            pin,
            trust,
            clock,
            transport,
            cache: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
        }
    }

    /// Whose addresses are followed.
    #[must_use]
    pub const fn pin(&self) -> &Pin {
        &self.pin
    }

    /// The RSA key of the certificate at this address, as DER.
    ///
    /// # Errors
    /// [`CallbackError::Signature`] when the address is not pinned or the certificate is not believed,
    /// [`CallbackError::Unavailable`] when it cannot be fetched now.
    pub async fn key(&self, url: &str, now: Stamp) -> Result<Vec<u8>, CallbackError> {
        let (url, is_own) = self.pin.certificate(url).ok_or(CallbackError::Signature)?;
        let now_s = now.micros().div_euclid(1_000_000);
        if let Some(known) = self.cached(url.as_str(), now_s) {
            return known;
        }
        let _fetching = self.fetching.lock().await;
        if let Some(known) = self.cached(url.as_str(), now_s) {
            return known;
        }
        let file = self.fetch(url.as_str(), now).await?;
        let chain = certificates(&file).ok_or(CallbackError::Signature)?;
        let (leaf, above) = chain.split_first().ok_or(CallbackError::Signature)?;
        let kept = self.pin.read(leaf, now_s).ok_or(CallbackError::Signature)?;
        if !is_own {
            self.check_chain(leaf, above, now).await?;
        }
        self.keep(url.into(), kept.clone());
        Ok(kept.key)
    }

    /// The key of a certificate that is kept, if its time is not over.
    fn cached(&self, url: &str, now_s: i64) -> Option<Result<Vec<u8>, CallbackError>> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = cache.kept.get(url)?;
        let is_valid = (kept.from_s..=kept.until_s).contains(&now_s);
        Some(if is_valid { Ok(kept.key.clone()) } else { Err(CallbackError::Signature) })
    }

    fn keep(&self, url: String, kept: Kept) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.kept.len() >= KEPT_MAX {
            // The one that ends first is the one that SNS has replaced.
            let oldest = cache.kept.iter().min_by_key(|(_, kept)| kept.until_s);
            let oldest = oldest.map(|(url, _)| url.clone());
            oldest.and_then(|url| cache.kept.remove(&url));
        }
        cache.kept.insert(url, kept);
    }

    /// Counts one fetch; false: there were too many in this minute.
    fn may_fetch(&self, now: Stamp) -> bool {
        const MINUTE: i64 = 60_000_000;
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if !(0..MINUTE).contains(&now.micros().saturating_sub(cache.minute_from)) {
            (cache.minute_from, cache.fetches) = (now.micros(), 0);
        }
        cache.fetches = cache.fetches.saturating_add(1);
        cache.fetches <= FETCHES_MAX
    }

    async fn fetch(&self, url: &str, now: Stamp) -> Result<Bytes, CallbackError> {
        if !self.may_fetch(now) {
            return Err(CallbackError::Unavailable);
        }
        self.visit(url).await.ok_or(CallbackError::Unavailable)
    }

    /// Reads an address that was pinned before; none where it does not answer 200.
    pub async fn visit(&self, url: &str) -> Option<Bytes> {
        let request = http::Request::get(url).body(Bytes::new()).ok()?;
        let deadline = Deadline { boot: self.clock.boot().saturating_add(micros(FETCH_TIME)) };
        let response = self.transport.exchange(request, deadline).await.ok()?;
        (response.status() == StatusCode::OK).then(|| response.into_body())
    }

    /// Whether the leaf was issued to SNS by somebody who is trusted. What stands between and is not in the
    /// file is fetched from where the certificate says, from Amazon's own authority alone; it needs no trust
    /// of its own, since only a signature makes it part of the chain.
    async fn check_chain(
        &self,
        leaf: &CertificateDer<'static>,
        above: &[CertificateDer<'static>],
        now: Stamp,
    ) -> Result<(), CallbackError> {
        let mut above = above.to_vec();
        for _ in 0..ISSUERS_MAX {
            match self.verify(leaf, &above, now) {
                Ok(()) => return Ok(()),
                Err(TlsError::InvalidCertificate(CertificateError::UnknownIssuer)) => {}
                Err(_) => return Err(CallbackError::Signature),
            }
            let url = issuer_url(above.last().unwrap_or(leaf)).ok_or(CallbackError::Signature)?;
            let file = self.fetch(&url, now).await?;
            let issuer = certificates(&file).and_then(|all| all.into_iter().next());
            above.push(issuer.ok_or(CallbackError::Signature)?);
        }
        self.verify(leaf, &above, now).map_err(|_| CallbackError::Signature)
    }

    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        now: Stamp,
    ) -> Result<(), TlsError> {
        let since = u64::try_from(now.micros() / 1_000_000).unwrap_or(0);
        let now = UnixTime::since_unix_epoch(Duration::from_secs(since));
        let mut answer = Err(TlsError::General("no name".to_owned()));
        for name in self.pin.names() {
            let name = ServerName::try_from(name).expect("a region is part of a host's name");
            answer = self.trust.verify_server_cert(leaf, above, &name, &[], now).map(|_| ());
            if answer.is_ok() {
                break;
            }
        }
        answer
    }
}

/// The certificates of a file, PEM or one as DER; none where it holds anything else or too many.
fn certificates(file: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    if file.first() == Some(&0x30) {
        return Some(vec![CertificateDer::from(file.to_vec())]);
    }
    let mut found = Vec::new();
    for pem in Pem::iter_from_buffer(file) {
        let pem = pem.ok().filter(|pem| pem.label == "CERTIFICATE")?;
        found.push(CertificateDer::from(pem.contents));
        if found.len() > FILE_MAX {
            return None;
        }
    }
    (!found.is_empty()).then_some(found)
}

/// Where a certificate says that its issuer's is, if that is Amazon's authority.
fn issuer_url(der: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    certificate.extensions().iter().find_map(|extension| {
        let ParsedExtension::AuthorityInfoAccess(access) = extension.parsed_extension() else {
            return None;
        };
        access.iter().find_map(|one| match one.access_location {
            GeneralName::URI(text)
                if one.access_method == OID_PKIX_ACCESS_DESCRIPTOR_CA_ISSUERS =>
            {
                let url = Url::parse(text).ok()?;
                let is_amazon = url.scheme() == "http"
                    && url.port().is_none()
                    && url.username().is_empty()
                    && url.host_str().is_some_and(|host| host.ends_with(".amazontrust.com"));
                is_amazon.then(|| url.into())
            }
            _ => None,
        })
    })
}
