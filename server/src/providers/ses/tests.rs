use std::collections::BTreeMap;
use std::sync::Mutex;

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_RSA_SHA256,
};
use rsa::RsaPrivateKey;
use rsa::pkcs8::EncodePrivateKey as _;

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::certificates::FETCHES_MAX;
use super::*;
use crate::clock::ManualClock;
use crate::providers::http::ambiguous;

/// Of 2021-09-07 to 2022-08-17, published with the two notifications below by the vendor's library for Ruby.
const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIF1zCCBL+gAwIBAgIQB9pYWG3Mi7xej22g9pobJTANBgkqhkiG9w0BAQsFADBG\n\
MQswCQYDVQQGEwJVUzEPMA0GA1UEChMGQW1hem9uMRUwEwYDVQQLEwxTZXJ2ZXIg\n\
Q0EgMUIxDzANBgNVBAMTBkFtYXpvbjAeFw0yMTA5MDcwMDAwMDBaFw0yMjA4MTcy\n\
MzU5NTlaMBwxGjAYBgNVBAMTEXNucy5hbWF6b25hd3MuY29tMIIBIjANBgkqhkiG\n\
9w0BAQEFAAOCAQ8AMIIBCgKCAQEAutFqueT3XgP13udzxE6UpbdjOtVO5DwoMpSM\n\
iDNMnGzF1TYH5/R2LPUOBeTB0SkKnR4kpNcUZhicpGD4aKciz/GEZ6wu65xncfT9\n\
H/KBOQwoXYTuClHwp6fYpGzcGFaFoEYMnijL/o4qmTSd+ukglQUgKpsDw4ofw6rU\n\
m2CttJo+GQSNQ9NfGR1h/0J+zsApkeSYrXRx5wNlu87z8os1C/6PBrUHwt3xXeaf\n\
Xzfwut8aRRYsS8BySOA9DAgLfNHlfdQCjKPXKrG/ussgReyWD6n/HH+j7Uha3xos\n\
TzQqJifcxlTq6MxWdPR6fDaJNvqw6DOE7UjUNxHguXHlVfxhlQIDAQABo4IC6TCC\n\
AuUwHwYDVR0jBBgwFoAUWaRmBlKge5WSPKOUByeWdFv5PdAwHQYDVR0OBBYEFAqz\n\
C+vyouneE7mWWLbi9i0UsWUbMBwGA1UdEQQVMBOCEXNucy5hbWF6b25hd3MuY29t\n\
MA4GA1UdDwEB/wQEAwIFoDAdBgNVHSUEFjAUBggrBgEFBQcDAQYIKwYBBQUHAwIw\n\
OwYDVR0fBDQwMjAwoC6gLIYqaHR0cDovL2NybC5zY2ExYi5hbWF6b250cnVzdC5j\n\
b20vc2NhMWIuY3JsMBMGA1UdIAQMMAowCAYGZ4EMAQIBMHUGCCsGAQUFBwEBBGkw\n\
ZzAtBggrBgEFBQcwAYYhaHR0cDovL29jc3Auc2NhMWIuYW1hem9udHJ1c3QuY29t\n\
MDYGCCsGAQUFBzAChipodHRwOi8vY3J0LnNjYTFiLmFtYXpvbnRydXN0LmNvbS9z\n\
Y2ExYi5jcnQwDAYDVR0TAQH/BAIwADCCAX0GCisGAQQB1nkCBAIEggFtBIIBaQFn\n\
AHYAKXm+8J45OSHwVnOfY6V35b5XfZxgCvj5TV0mXCVdx4QAAAF7vfDVkQAABAMA\n\
RzBFAiEA2XfHuy36aqRFiaL8c3md2mH451go8707+fRE0pEdSRACIE/g5FXTUXUZ\n\
PFcmOhm9TZ+uMY1i4CIQ/CKVWln6C3t+AHYAUaOw9f0BeZxWbbg3eI8MpHrMGyfL\n\
956IQpoN/tSLBeUAAAF7vfDVjAAABAMARzBFAiBF1MhhFP0+FQt3daDFfMYoWwnr\n\
muTInrjNpwfzlvQBugIhAPYadFzr+LaxSJoiZEbEHBvTts7bT0M3eCQONA2O7w6n\n\
AHUAQcjKsd8iRkoQxqE6CUKHXk4xixsD6+tLx2jwkGKWBvYAAAF7vfDVdAAABAMA\n\
RjBEAiAtPapmFAuA71ih4NoSd5hJelzAltNQpxDMcDfDyHyU8gIgWxmaa6+2KbBu\n\
9xdv379zvnJACFR7jc+4asl08Dn4aagwDQYJKoZIhvcNAQELBQADggEBAA54QX0u\n\
oFWXfMmv02CGZv4NWo5TapyeeixQ2kKpZHRdVZjxZrw+hoF6HD7P3kGjH8ztyJll\n\
tDxB0qgMltbPhQdScwhA6iTgoaBYqEUC/VHKd4PmmPT6yIsM36NBZVmkGlzl5uNo\n\
/dBgBaG0SsVJnhr5zro3c2quC7n6fVGEZhf/UgQwRnnvThnvbNKguglDMq4uEqv8\n\
njKyleht+glkcmXO0m9qLKt6BOS0amy6U2GlAwRn0Wx02ndJtnRCSC6kPuRWK/SQ\n\
FEjB7gCK4hdKaAOuWdZpI55vF6ifOeM8toC3g7ofO8qLTnJupAG+ZitY5J3cvHWr\n\
HqOUdKigPDHYLRo=\n\
-----END CERTIFICATE-----\n";

const V1: &str = r#"{
 "Type": "Notification",
 "MessageId": "792cda85-518f-5dd3-9163-81d851212f3a",
 "TopicArn": "arn:aws:sns:us-east-2:295079676684:publish-and-verify-892f85fe-4836-424d-8188-ab85bef0f362",
 "Message": "Hello world",
 "Timestamp": "2022-07-28T21:23:58.317Z",
 "SignatureVersion": "1",
 "Signature": "ghtf+deOBAzHJJZ6s6CdRLfTQAlcGzq9naoFM1wi0CJiq//uVRuZnamrkWNF0fhouMFvuLVRwcz8PZLUMSfnmd5VpdTKpTyiKmy1qJAZXma0w+yi7G+I33hD1Jyk1Nbym2n0kqp3fVu2aoooiN2ZeLAT2bH0/BtjLSfN1yAOKNoprco4qV9gGUZinXJdj9a1YdNhDR2jKi33ldlsVtEXAtiaDklGEk7DgRKX38GerBPiLg3FdtgY6KC7cdeGpU/dGK+4hjc83Ive1HoFkAwqhpgInM2sMytBosoiXfCmOKmU4xeGD0gHDNZTlJUJQDlzw8Eag0H9f/5zXF9d3uy0YQ==",
 "SigningCertURL": "https://sns.us-east-2.amazonaws.com/SimpleNotificationService-7ff5318490ec183fbaddaa2a969abfda.pem"
}"#;

const V2: &str = r#"{
 "Type": "Notification",
 "MessageId": "17dea24b-55c2-540b-8362-f916557af765",
 "TopicArn": "arn:aws:sns:us-east-2:295079676684:publish-and-verify-62674b1d-4295-426b-88e7-5fb75652a04e",
 "Message": "Hello world",
 "Timestamp": "2022-07-28T21:24:08.324Z",
 "SignatureVersion": "2",
 "Signature": "CXVqp9PfZAL+4JHS3Zxo1PFbQsvnOjvmYhtIf17TWpwc+iIVas8kZ8GopuzVzVMdatE7rCl/O4P91Zp05Dwz8lk8dLhfp8gSu3Njlzxlyrmzo9x3va3Jb7zFnedgS2GKnZWHGBdwTXho+TosNUE+3e10OMSlwN5XGDwX7+R3WL+rn+AXmFAqp3alg27sYa55h1dLE9cGszGPjScPdtF3BmZsUDMx9wSdNKsCk+vSvE8yBjnCmUl7laSFj3LzPVrlSwgNYCF3kYnNAkah7NplK4SFhJYLwS0HCVCQJKa8rVbQLf9cBTu60U402mrgy0bN8xWoyimzbYbrOMJjalqkUg==",
 "SigningCertURL": "https://sns.us-east-2.amazonaws.com/SimpleNotificationService-7ff5318490ec183fbaddaa2a969abfda.pem"
}"#;

fn envelope(text: &str) -> Envelope {
    serde_json::from_str(text).unwrap()
}

fn key_of(pem: &str) -> Vec<u8> {
    let pem = Pem::iter_from_buffer(pem.as_bytes()).next().unwrap().unwrap();
    let (_, certificate) = X509Certificate::from_der(&pem.contents).unwrap();
    certificate.public_key().subject_public_key.data.to_vec()
}

/// The text with one bit of one byte changed; ASCII stays ASCII.
fn changed(text: &str, at: usize) -> String {
    let mut bytes = text.as_bytes().to_vec();
    bytes[at] ^= 1;
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_published_notifications_verify_and_each_changed_byte_is_refused() {
    let key = key_of(CERTIFICATE);
    for good in [V1, V2].map(envelope) {
        assert!(good.is_signed(&key));
        let fields: [fn(&mut Envelope) -> &mut String; 4] = [
            |it| &mut it.message,
            |it| &mut it.message_id,
            |it| &mut it.timestamp,
            |it| &mut it.topic_arn,
        ];
        for field in fields {
            let mut bad = good.clone();
            let text = field(&mut bad).clone();
            for at in 0..text.len() {
                *field(&mut bad) = changed(&text, at);
                assert!(!bad.is_signed(&key), "{text} at {at}");
            }
        }
        let signature = STANDARD.decode(&good.signature).unwrap();
        for at in 0..signature.len() {
            let mut bytes = signature.clone();
            bytes[at] ^= 1;
            let bad = Envelope { signature: STANDARD.encode(bytes), ..good.clone() };
            assert!(!bad.is_signed(&key), "byte {at} of the signature");
        }
        // Behind the header of the structure every byte is part of the modulus or the exponent.
        for at in 9..key.len() {
            let mut bytes = key.clone();
            bytes[at] ^= 1;
            assert!(!good.is_signed(&bytes), "byte {at} of the key");
        }
        for version in ["", "0", "1", "2", "3", "01"] {
            let bad = Envelope { signature_version: version.to_owned(), ..good.clone() };
            assert_eq!(bad.is_signed(&key), version == good.signature_version, "{version}");
        }
        let more = Envelope { subject: Some(String::new()), ..good.clone() };
        assert!(!more.is_signed(&key), "a subject is signed where there is one");
        let other = Envelope { kind: Kind::UnsubscribeConfirmation, ..good };
        assert!(!other.is_signed(&key));
    }
}

#[test]
fn a_certificate_comes_from_the_topics_region_of_sns_or_from_the_simulator() {
    let pin = Pin::new("us-east-2", "http://127.0.0.1:4010/ses");
    let far = Pin::new("us-east-2", "https://email.us-east-2.amazonaws.com");
    let file = "/SimpleNotificationService-7ff5318490ec183fbaddaa2a969abfda.pem";
    let is_own = |pin: &Pin, url: &str| pin.certificate(url).map(|(_, is_own)| is_own);
    for pin in [&pin, &far] {
        for host in ["sns.us-east-2.amazonaws.com", "sns.us-east-2.amazonaws.com.cn"] {
            assert_eq!(is_own(pin, &format!("https://{host}{file}")), Some(false), "{host}");
        }
    }
    let near = format!("http://127.0.0.1:4010/ses{file}");
    assert_eq!((is_own(&pin, &near), is_own(&far, &near)), (Some(true), None));
    for bad in [
        format!("http://sns.us-east-2.amazonaws.com{file}"),
        format!("https://sns.us-east-2.amazonaws.com:8443{file}"),
        format!("https://sns.eu-central-1.amazonaws.com{file}"),
        format!("https://sns.us-east-2.amazonaws.com.evil.example{file}"),
        format!("https://evil.example/sns.us-east-2.amazonaws.com{file}"),
        format!("https://sns.us-east-2.amazonaws.com@evil.example{file}"),
        format!("https://a:b@sns.us-east-2.amazonaws.com{file}"),
        format!("https://s3.us-east-2.amazonaws.com{file}"),
        format!("https://sns.us-east-2.amazonaws.com/x{file}"),
        format!("https://sns.us-east-2.amazonaws.com{file}?x=1"),
        format!("https://sns.us-east-2.amazonaws.com{file}#x"),
        "https://sns.us-east-2.amazonaws.com/SimpleNotificationService-.pem".to_owned(),
        "https://sns.us-east-2.amazonaws.com/SimpleNotificationService-a/../b.pem".to_owned(),
        "https://sns.us-east-2.amazonaws.com/other.pem".to_owned(),
        format!("http://127.0.0.1:4011/ses{file}"),
        format!("http://127.0.0.1:4010{file}"),
        format!("http://169.254.169.254/ses{file}"),
        format!("file://{file}"),
        String::new(),
    ] {
        assert_eq!(is_own(&pin, &bad), None, "{bad}");
    }
}

#[test]
fn a_subscription_is_confirmed_at_sns_and_for_our_topic_alone() {
    let pin = Pin::new("us-east-2", "https://email.us-east-2.amazonaws.com");
    let arn = "arn:aws:sns:us-east-2:123456789012:ses";
    let of = |url: &str| pin.confirmation(url, arn).is_some();
    let at = "https://sns.us-east-2.amazonaws.com/?Action=ConfirmSubscription";
    assert!(of(&format!("{at}&TopicArn={arn}&Token=2336412f37fb687f5d51e6e241d")));
    for bad in [
        format!("{at}&TopicArn={arn}2&Token=1"),
        format!("{at}&Token=1"),
        format!("https://sns.us-east-2.amazonaws.com/?Action=Unsubscribe&TopicArn={arn}"),
        format!("https://evil.example/?Action=ConfirmSubscription&TopicArn={arn}"),
    ] {
        assert!(!of(&bad), "{bad}");
    }
}

/// Answers from a list, and remembers what it was asked.
#[derive(Debug, Default)]
struct Web {
    pages: BTreeMap<String, Vec<u8>>,
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Transport for Web {
    async fn exchange(
        &self,
        request: Request<Bytes>,
        _: Deadline,
    ) -> Result<Response<Bytes>, Failure> {
        // A network lets others go first.
        tokio::task::yield_now().await;
        let url = request.uri().to_string();
        self.asked.lock().unwrap().push(url.clone());
        let (status, body) = match self.pages.get(&url) {
            Some(page) => (200, page.clone()),
            None => (404, Vec::new()),
        };
        Ok(Response::builder().status(status).body(Bytes::from(body)).unwrap())
    }
}

const URL: &str = "https://sns.us-east-2.amazonaws.com/SimpleNotificationService-a1.pem";
const ISSUER_URL: &str = "http://crt.r2m01.amazontrust.com/r2m01.cer";

fn now() -> Stamp {
    Stamp::parse("2026-09-21T14:13:20Z").unwrap()
}

/// An authority, an issuer below it, and what they sign.
struct Authority {
    root: rcgen::Certificate,
    issuer: rcgen::Certificate,
    issuer_key: Issuer<'static, KeyPair>,
    rsa: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let ca = |name: &str| {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
            params
        };
        let (root, below) = (ca("root"), ca("below"));
        let (root_key, issuer_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let root_certificate = root.self_signed(&root_key).unwrap();
        let issuer = below.signed_by(&issuer_key, &Issuer::new(root, root_key)).unwrap();
        let rsa = RsaPrivateKey::new(&mut rsa::rand_core::OsRng, 2048).unwrap();
        let der = PrivatePkcs8KeyDer::from(rsa.to_pkcs8_der().unwrap().as_bytes().to_vec());
        Self {
            root: root_certificate,
            issuer,
            issuer_key: Issuer::new(below, issuer_key),
            rsa: KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_RSA_SHA256).unwrap(),
        }
    }

    fn leaf(&self, name: &str, issuer_url: &str) -> CertificateParams {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2027, 1, 1);
        // RFC 5280 4.2.2.1: one description, of the issuer's certificate, by an address.
        let oid = [0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x02];
        let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap();
        let mut one = oid.to_vec();
        one.extend([0x86, length(issuer_url.as_bytes())]);
        one.extend(issuer_url.as_bytes());
        let mut list = vec![0x30, length(&one)];
        list.extend(&one);
        let mut content = vec![0x30, length(&list)];
        content.extend(&list);
        params.custom_extensions =
            vec![CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], content)];
        params
    }

    fn signed(&self, params: &CertificateParams) -> String {
        params.signed_by(&self.rsa, &self.issuer_key).unwrap().pem()
    }

    /// Certificates that trust this authority, and what their network was asked.
    fn certificates(&self, pages: &[(&str, Vec<u8>)]) -> (Certificates, Arc<Web>) {
        let pages = pages.iter().map(|(url, page)| ((*url).to_owned(), page.clone())).collect();
        let web = Arc::new(Web { pages, asked: Mutex::default() });
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.root.der().to_vec())).unwrap();
        let pin = Pin::new("us-east-2", "https://email.us-east-2.amazonaws.com");
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(now()));
        let transport: Arc<dyn Transport> = web.clone();
        (Certificates::with_roots(pin, roots, clock, transport), web)
    }
}

#[tokio::test]
async fn a_certificate_is_believed_when_it_chains_to_an_authority_and_is_fetched_once() {
    let authority = Authority::new();
    let leaf = authority.signed(&authority.leaf("sns.amazonaws.com", ISSUER_URL));
    let above = (ISSUER_URL, authority.issuer.der().to_vec());
    let (certificates, web) = authority.certificates(&[(URL, leaf.clone().into_bytes()), above]);
    for _ in 0..3 {
        assert_eq!(certificates.key(URL, now()).await, Ok(key_of(&leaf)));
    }
    assert_eq!(*web.asked.lock().unwrap(), [URL, ISSUER_URL]);

    // The first events after a start come many at once.
    let above = (ISSUER_URL, authority.issuer.der().to_vec());
    let (certificates, web) = authority.certificates(&[(URL, leaf.clone().into_bytes()), above]);
    let all = futures::future::join_all((0..50).map(|_| certificates.key(URL, now()))).await;
    assert!(all.iter().all(|key| *key == Ok(key_of(&leaf))));
    assert_eq!(*web.asked.lock().unwrap(), [URL, ISSUER_URL]);

    // With the issuer in the file there is nothing to fetch.
    let both = format!("{leaf}{}", authority.issuer.pem());
    let (certificates, web) = authority.certificates(&[(URL, both.into_bytes())]);
    assert_eq!(certificates.key(URL, now()).await, Ok(key_of(&leaf)));
    assert_eq!(*web.asked.lock().unwrap(), [URL]);

    // A certificate that was believed is not when its time is over.
    let late = Stamp::parse("2027-01-02T00:00:00Z").unwrap();
    assert_eq!(certificates.key(URL, late).await, Err(CallbackError::Signature));
}

#[tokio::test]
async fn a_certificate_without_a_chain_or_for_another_name_is_refused() {
    let authority = Authority::new();
    let above = (ISSUER_URL, authority.issuer.der().to_vec());
    let good = authority.leaf("sns.amazonaws.com", ISSUER_URL);
    let mut old = good.clone();
    old.not_after = rcgen::date_time_ymd(2026, 9, 20);
    let mut early = good.clone();
    early.not_before = rcgen::date_time_ymd(2026, 9, 22);
    let elliptic = good.signed_by(&KeyPair::generate().unwrap(), &authority.issuer_key).unwrap();
    let stranger = Authority::new();
    for (why, pem) in [
        ("its own issuer", good.self_signed(&authority.rsa).unwrap().pem()),
        ("another authority", stranger.signed(&good)),
        ("another name", authority.signed(&authority.leaf("s3.amazonaws.com", ISSUER_URL))),
        (
            "another region",
            authority.signed(&authority.leaf("sns.eu-west-1.amazonaws.com", ISSUER_URL)),
        ),
        ("over", authority.signed(&old)),
        ("not yet", authority.signed(&early)),
        ("no RSA key", elliptic.pem()),
        ("no certificate", authority.rsa.serialize_pem()),
        ("no PEM", "hello".to_owned()),
        (
            "an issuer elsewhere",
            authority.signed(&authority.leaf("sns.amazonaws.com", "http://evil.example/a.cer")),
        ),
    ] {
        let (certificates, web) = authority.certificates(&[(URL, pem.into_bytes()), above.clone()]);
        assert_eq!(certificates.key(URL, now()).await, Err(CallbackError::Signature), "{why}");
        let asked = web.asked.lock().unwrap();
        assert!(asked.iter().all(|url| url == URL || url == ISSUER_URL), "{why}: {asked:?}");
    }
    let (certificates, web) = authority.certificates(&[]);
    let elsewhere = "https://evil.example/SimpleNotificationService-a1.pem";
    assert_eq!(certificates.key(elsewhere, now()).await, Err(CallbackError::Signature));
    assert!(web.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_certificate_that_cannot_be_had_is_asked_for_a_few_times_a_minute() {
    let (certificates, web) = Authority::new().certificates(&[]);
    for _ in 0..FETCHES_MAX + 5 {
        assert_eq!(certificates.key(URL, now()).await, Err(CallbackError::Unavailable));
    }
    assert_eq!(web.asked.lock().unwrap().len(), usize::try_from(FETCHES_MAX).unwrap());
    let later = now().plus(60_000_000);
    assert_eq!(certificates.key(URL, later).await, Err(CallbackError::Unavailable));
    assert_eq!(web.asked.lock().unwrap().len(), usize::try_from(FETCHES_MAX).unwrap() + 1);
}

#[test]
fn each_answer_has_one_verdict() {
    let answer = |status: u16, kind: Option<&str>, body: &str| {
        let mut builder = Response::builder().status(status);
        if let Some(kind) = kind {
            builder = builder.header(ERROR_HEADER, kind);
        }
        let response = builder.body(Bytes::copy_from_slice(body.as_bytes())).unwrap();
        judge(&response, &Secret::new("ann@example.com".to_owned()), Stamp::from_micros(0))
    };
    let id = "010001712b6a1d2e-5b8a1c2f-3d4e-4f50-8a9b-0c1d2e3f4a5b-000000";
    let taken = format!(r#"{{"MessageId":"{id}"}}"#);
    assert_eq!(answer(200, None, &taken), Verdict::Accepted { message_id: Some(id.to_owned()) });
    assert_eq!(answer(200, None, "{}"), ambiguous("http_200_without_id".to_owned()));
    let permanent = |code: &str| Verdict::RefusedPermanently { code: code.to_owned() };
    let stopped = |code: &str| Verdict::ProviderStopped { code: code.to_owned() };
    let limited = || Verdict::RateLimited { retry_at: None };
    for (status, kind, expected) in [
        (400, "MessageRejected", permanent("MessageRejected")),
        (
            400,
            "BadRequestException:http://internal.amazon.com/x/",
            permanent("BadRequestException"),
        ),
        (400, "AccountSuspendedException", stopped("AccountSuspendedException")),
        (400, "SendingPausedException", stopped("SendingPausedException")),
        (400, "LimitExceededException", stopped("LimitExceededException")),
        (404, "NotFoundException", stopped("NotFoundException")),
        (403, "SignatureDoesNotMatch", stopped("SignatureDoesNotMatch")),
        (403, "no access for ann@example.com", stopped("http_403")),
        (429, "TooManyRequestsException", limited()),
        (400, "ThrottlingException", limited()),
        (400, "SomethingNew", ambiguous("SomethingNew".to_owned())),
        (404, "SomethingNew", ambiguous("SomethingNew".to_owned())),
        (
            500,
            "InternalServiceErrorException",
            ambiguous("InternalServiceErrorException".to_owned()),
        ),
        (503, "MessageRejected", ambiguous("MessageRejected".to_owned())),
        (302, "MessageRejected", ambiguous("MessageRejected".to_owned())),
    ] {
        assert_eq!(answer(status, Some(kind), "{}"), expected, "{status} {kind}");
    }
    let body = r#"{"__type":"com.amazonaws.sesv2#MessageRejected","message":"ann@example.com"}"#;
    assert_eq!(answer(400, None, body), permanent("MessageRejected"));
    assert_eq!(answer(400, None, "<html>"), ambiguous("http_400".to_owned()));
}

#[test]
fn an_event_is_matched_by_its_tag_its_header_or_its_message() {
    let of = |text: &str| serde_json::from_str::<Event>(text).unwrap().receipt();
    let mail = |more: &str| {
        format!(
            r#""mail":{{"timestamp":"2026-09-21T14:13:20.000Z","messageId":"m-1","destination":["ann@example.com"]{more}}}"#
        )
    };
    let tagged = mail(r#","tags":{"ses:operation":["SendEmail"],"attempt_id":["a1"]}"#);
    let event = |kind: &str, more: &str| {
        of(&format!(r#"{{"eventType":"{kind}",{tagged}{more}}}"#))
            .map(|receipt| (receipt.attempt_id.unwrap(), receipt.seen, receipt.cause))
    };
    let a1 = |seen, cause| Some(("a1".to_owned(), seen, cause));
    assert_eq!(event("Send", ""), a1(Seen::Accepted, None));
    assert_eq!(event("Delivery", ""), a1(Seen::Delivered, None));
    assert_eq!(event("Reject", ""), a1(Seen::Failed, Some(Cause::Rejected)));
    assert_eq!(event("Rendering Failure", ""), a1(Seen::Failed, Some(Cause::Unspecified)));
    assert_eq!(event("Complaint", ""), a1(Seen::Delivered, Some(Cause::Complained)));
    assert_eq!(event("Click", ""), a1(Seen::Delivered, Some(Cause::Opened)));
    let bounce = |kind: &str, sub: &str| {
        event("Bounce", &format!(r#","bounce":{{"bounceType":"{kind}","bounceSubType":"{sub}"}}"#))
    };
    assert_eq!(bounce("Permanent", "General"), a1(Seen::Failed, Some(Cause::Bounced)));
    assert_eq!(bounce("Permanent", "Suppressed"), a1(Seen::Failed, Some(Cause::Suppressed)));
    assert_eq!(bounce("Transient", "MailboxFull"), a1(Seen::Failed, Some(Cause::SoftBounced)));
    assert_eq!(bounce("Undetermined", "x"), a1(Seen::Failed, Some(Cause::Unspecified)));
    for silent in ["DeliveryDelay", "Subscription", "Something"] {
        assert_eq!(event(silent, ""), None, "{silent}");
    }
    let ids = |text: &str| of(text).map(|receipt| (receipt.attempt_id, receipt.message_id));
    let header = mail(r#","headers":[{"name":"x-attempt-id","value":"a2"}]"#);
    let m1 = || Some("m-1".to_owned());
    assert_eq!(
        ids(&format!(r#"{{"notificationType":"Delivery",{header}}}"#)),
        Some((Some("a2".to_owned()), m1()))
    );
    let bare = mail(r#","tags":{"attempt_id":["ann@example.com"]}"#);
    assert_eq!(ids(&format!(r#"{{"eventType":"Delivery",{bare}}}"#)), Some((None, m1())));
    assert_eq!(ids(r#"{"eventType":"Delivery","mail":{}}"#), None);
}

#[test]
fn a_topic_says_its_region() {
    assert_eq!(region_of("arn:aws:sns:us-east-2:123456789012:ses"), Some("us-east-2"));
    assert_eq!(region_of("arn:aws-cn:sns:cn-north-1:123456789012:ses"), Some("cn-north-1"));
    for bad in [
        "",
        "ses",
        "arn:aws:sqs:us-east-2:123456789012:ses",
        "arn:aws:sns:evil.example/x:123456789012:ses",
        "arn:aws:sns:us-east-2:12345:ses:subscription",
        "arn:aws:sns:us-east-2:x:ses",
    ] {
        assert_eq!(region_of(bad), None, "{bad}");
    }
}
