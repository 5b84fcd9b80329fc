//! SES against `moto`, the server of other people that stands in for AWS: it checks our signature with its own
//! implementation, and the vendor's published model checks our request.

use std::process::{Child, Command, Stdio};

use super::*;

/// Where `scripts/setup.sh test` has put it; none: the machine had no package index.
fn python() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    let python = root.join("target/setup/python/bin/python");
    if !python.exists() {
        eprintln!("left out: moto is not installed; scripts/setup.sh test installs it");
        return None;
    }
    Some(python)
}

/// A running server; it ends with the test.
struct Moto {
    child: Child,
    base: String,
}

impl Moto {
    /// From the call after `free` on, it wants every one signed with a key of its own.
    async fn start(python: &Path, free: u32) -> Self {
        let spare = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = spare.local_addr().unwrap().port();
        drop(spare);
        let child = Command::new(python.with_file_name("moto_server"))
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .env("INITIAL_NO_AUTH_ACTION_COUNT", free.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let moto = Self { child, base: format!("http://127.0.0.1:{port}") };
        for _ in 0..600 {
            let request = get(&format!("{}/moto-api/data.json", moto.base));
            if transport().exchange(request, soon()).await.is_ok() {
                return moto;
            }
            SystemClock.sleep(Duration::from_millis(100)).await;
        }
        panic!("moto did not come up within a minute");
    }

    /// A call of another service, whose signature nobody looks at yet.
    async fn call(&self, service: &str, path: &str, kind: &'static str, body: &str) -> String {
        let mut request = post(&format!("{}{path}", self.base), body);
        let scope = format!("20260921/us-east-1/{service}/aws4_request");
        let value =
            format!("AWS4-HMAC-SHA256 Credential=A/{scope}, SignedHeaders=host, Signature=0");
        request.headers_mut().insert("authorization", HeaderValue::from_str(&value).unwrap());
        request.headers_mut().insert("content-type", HeaderValue::from_static(kind));
        let response = transport().exchange(request, soon()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{service} {path}");
        String::from_utf8(response.body().to_vec()).unwrap()
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn ses(base: &str, id: &str, secret: &str) -> (Registry, Arc<dyn Provider>) {
    let text = format!(
        "[server]\ndata_dir = \"{}\"\n[providers.p]\nkind = \"ses\"\nbase_url = \"{base}\"\nregion = \"us-east-1\"\n\
         access_key_id = \"{id}\"\nsecret_access_key = \"{secret}\"\n\
         from = \"Example, Inc. <no-reply@example.com>\"\n",
        folder().display()
    );
    let registry =
        build(&config(&text), system(), Arc::new(SystemEntropy), transport()).await.unwrap();
    let provider = Arc::clone(registry.get("p").unwrap());
    (registry, provider)
}

fn mail(attempt: &str) -> Message {
    Message {
        channel: Channel::Email,
        to: secret("ann@example.com"),
        subject: Some("Example: Reset your password".to_owned()),
        html: Some(secret("<p>https://example.com/reset/t0ken</p>")),
        ..message(attempt)
    }
}

fn between<'a>(text: &'a str, tag: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("<{tag}>")).expect("the tag is there");
    rest.split_once('<').expect("it ends").0
}

#[tokio::test]
async fn moto_takes_what_we_sign_and_refuses_what_another_key_has_signed() {
    let Some(python) = python() else { return };
    let moto = Moto::start(&python, 4).await;
    let form = "application/x-www-form-urlencoded";
    moto.call("iam", "/", form, "Action=CreateUser&UserName=u&Version=2010-05-08").await;
    let key = "Action=CreateAccessKey&UserName=u&Version=2010-05-08";
    let key = moto.call("iam", "/", form, key).await;
    let all =
        r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}"#;
    let policy = app::model::percent_encoded(all);
    let policy = format!(
        "Action=PutUserPolicy&UserName=u&PolicyName=p&PolicyDocument={policy}&Version=2010-05-08"
    );
    moto.call("iam", "/", form, &policy).await;
    let identity = r#"{"EmailIdentity":"example.com"}"#;
    moto.call("ses", "/v2/email/identities", "application/json", identity).await;

    let (id, secret) = (between(&key, "AccessKeyId"), between(&key, "SecretAccessKey"));
    let (_registry, right) = ses(&moto.base, id, secret).await;
    let verdict = right.send(&mail("a1"), soon()).await;
    assert!(matches!(verdict, Verdict::Accepted { message_id: Some(_) }), "{verdict:?}");
    let (_registry, wrong) = ses(&moto.base, id, "another").await;
    let verdict = wrong.send(&mail("a2"), soon()).await;
    assert!(matches!(verdict, Verdict::ProviderStopped { .. }), "{verdict:?}");

    let request = get(&format!("{}/moto-api/data.json", moto.base));
    let response = transport().exchange(request, soon()).await.unwrap();
    let data: Value = serde_json::from_slice(response.body()).unwrap();
    let messages = data["sesv2"]["Message"].as_array().or(data["ses"]["Message"].as_array());
    assert_eq!(messages.expect("the list of messages").len(), 1);
}

#[tokio::test]
async fn moto_refuses_a_sender_that_is_not_verified_in_the_vendors_own_words() {
    let Some(python) = python() else { return };
    let moto = Moto::start(&python, 1000).await;
    let (_registry, provider) = ses(&moto.base, "A", "b").await;
    let verdict = provider.send(&mail("a1"), soon()).await;
    assert_eq!(verdict, Verdict::RefusedPermanently { code: "MessageRejected".to_owned() });
}

/// Checks the parameters on its standard input against the model that AWS publishes with its library.
const CHECK: &str = r#"
import json, sys
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
model = ServiceModel(Loader().load_service_model("sesv2", "service-2"))
operation = model.operation_model("SendEmail")
report = ParamValidator().validate(json.load(sys.stdin), operation.input_shape)
print(operation.http["method"], operation.http["requestUri"], report.generate_report())
"#;

#[tokio::test]
async fn a_request_fits_the_model_that_the_vendor_publishes() {
    use std::io::Write as _;
    let Some(python) = python() else { return };
    let bare = Bare::start(answer("200 OK", "{\"MessageId\":\"m-1\"}")).await;
    let (_registry, provider) = ses(&bare.url(), "A", "b").await;
    assert!(matches!(provider.send(&mail("a1"), soon()).await, Verdict::Accepted { .. }));
    let request = String::from_utf8(bare.requests().await.remove(0)).unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut child = Command::new(python)
        .args(["-c", CHECK])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    let printed = child.wait_with_output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let line = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1");
    assert_eq!(printed.trim(), line, "{body}");
}
