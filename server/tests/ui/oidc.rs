//! Sign-in by an identity provider, against one in this process that really signs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use app::model::Role;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use openidconnect::core::{CoreEdDsaPrivateSigningKey, CoreJwsSigningAlgorithm};
use openidconnect::{JsonWebKeyId, PrivateSigningKey as _};
use serde_json::{Value, json};
use server::clock::Clock as _;
use sha2::{Digest as _, Sha256};

use super::{Browser, PASSWORD, Page, World};

/// What the provider gives for a code.
#[derive(Clone)]
struct Grant {
    challenge: String,
    claims: Value,
}

struct Idp {
    issuer: String,
    /// The key that signs, and the one that is published.
    signing: String,
    published: String,
    codes: BTreeMap<String, Grant>,
}

type Shared = Arc<Mutex<Idp>>;

fn key() -> String {
    rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem()
}

fn private(pem: &str) -> CoreEdDsaPrivateSigningKey {
    CoreEdDsaPrivateSigningKey::from_ed25519_pem(pem, Some(JsonWebKeyId::new("k1".to_owned())))
        .unwrap()
}

async fn describe(State(idp): State<Shared>) -> axum::Json<Value> {
    let issuer = idp.lock().unwrap().issuer.clone();
    axum::Json(json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize?tenant=1"),
        "token_endpoint": format!("{issuer}/token"),
        "jwks_uri": format!("{issuer}/keys"),
        "response_types_supported": ["code"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["EdDSA", "HS256"],
    }))
}

async fn keys(State(idp): State<Shared>) -> axum::Json<Value> {
    let published = idp.lock().unwrap().published.clone();
    axum::Json(json!({ "keys": [private(&published).as_verification_key()] }))
}

async fn token(
    State(idp): State<Shared>,
    headers: HeaderMap,
    body: String,
) -> axum::response::Response {
    let form: BTreeMap<String, String> =
        url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
    let mut idp = idp.lock().unwrap();
    let is_client = headers.get("authorization").is_some_and(|value| {
        value.to_str().unwrap() == format!("Basic {}", STANDARD.encode("sendonce:the+secret"))
    });
    let grant = idp.codes.remove(&form["code"]);
    let proof = URL_SAFE_NO_PAD.encode(Sha256::digest(&form["code_verifier"]));
    match grant {
        Some(grant)
            if is_client
                && grant.challenge == proof
                && form["grant_type"] == "authorization_code" =>
        {
            let head = URL_SAFE_NO_PAD.encode(json!({"alg":"EdDSA","kid":"k1"}).to_string());
            let text = format!("{head}.{}", URL_SAFE_NO_PAD.encode(grant.claims.to_string()));
            let signature = private(&idp.signing)
                .sign(&CoreJwsSigningAlgorithm::EdDsa, text.as_bytes())
                .unwrap();
            let id_token = format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature));
            axum::Json(json!({"access_token": "x", "token_type": "Bearer", "id_token": id_token}))
                .into_response()
        }
        _ => (StatusCode::BAD_REQUEST, "{\"error\":\"invalid_grant\"}").into_response(),
    }
}

async fn provider() -> Shared {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let signing = key();
    let idp = Arc::new(Mutex::new(Idp {
        issuer: format!("http://{}", listener.local_addr().unwrap()),
        published: signing.clone(),
        signing,
        codes: BTreeMap::new(),
    }));
    let router = Router::new()
        .route("/.well-known/openid-configuration", get(describe))
        .route("/keys", get(keys))
        .route("/token", post(token))
        .with_state(idp.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    idp
}

async fn world(idp: &Shared) -> World {
    let issuer = idp.lock().unwrap().issuer.clone();
    let text = format!(
        "[oidc]\nissuer = \"{issuer}\"\nname = \"Example ID\"\nclient_id = \"sendonce\"\nclient_secret = \"the secret\"\n\
         oncall = [\"sre\"]\nsupport = [\"desk\"]\n"
    );
    World::configured("http://127.0.0.1:3000", &text).await
}

/// What our redirect asks of the provider.
async fn begin(browser: &mut Browser, next: &str) -> BTreeMap<String, String> {
    let away = browser.get(&format!("/login/oidc?next={next}")).await;
    assert_eq!(away.status, StatusCode::SEE_OTHER, "{}", away.text);
    let address = url::Url::parse(away.location()).unwrap();
    assert_eq!(address.path(), "/authorize");
    address.query_pairs().into_owned().collect()
}

/// The person signs in there; `change` may alter what the provider says.
fn grant(world: &World, idp: &Shared, asked: &BTreeMap<String, String>, change: Value) -> String {
    let now = world.clock.now().micros() / 1_000_000;
    let mut idp = idp.lock().unwrap();
    let mut claims = json!({
        "iss": idp.issuer, "aud": "sendonce", "sub": "person-1", "iat": now, "exp": now + 300,
        "nonce": asked["nonce"], "email": "Pat@Example.com", "email_verified": true, "groups": ["all", "sre"],
    });
    for (name, value) in change.as_object().unwrap() {
        claims[name] = value.clone();
    }
    let code = format!("code-{}", idp.codes.len() + usize::try_from(now).unwrap());
    idp.codes.insert(code.clone(), Grant { challenge: asked["code_challenge"].clone(), claims });
    code
}

async fn end(browser: &mut Browser, asked: &BTreeMap<String, String>, code: &str) -> Page {
    let state = app::model::percent_encoded(&asked["state"]);
    browser.get(&format!("/login/callback?state={state}&code={code}")).await
}

#[tokio::test]
async fn somebody_of_the_identity_provider_comes_in_with_the_role_of_the_claim() {
    let idp = provider().await;
    let world = world(&idp).await;
    let mut browser = world.browser();
    let login = browser.get("/login?next=/unknown").await;
    assert!(login.text.contains("Sign in with Example ID"));
    let asked = begin(&mut browser, "/unknown").await;
    assert_eq!(asked["tenant"], "1", "what the address had before stays");
    assert_eq!(
        (asked["response_type"].as_str(), asked["scope"].as_str()),
        ("code", "openid email")
    );
    assert_eq!(asked["code_challenge_method"], "S256");
    assert_eq!(asked["redirect_uri"], "http://127.0.0.1:3000/login/callback");
    let code = grant(&world, &idp, &asked, json!({}));
    let done = end(&mut browser, &asked, &code).await;
    assert_eq!(
        (done.status, done.location()),
        (StatusCode::SEE_OTHER, "/unknown"),
        "{}",
        done.text
    );
    let user = world.store.user_by_email("pat@example.com").await.unwrap().unwrap();
    assert_eq!(user.role, Role::Oncall);
    assert!(user.is_external());
    let account = browser.get("/account").await;
    assert!(account.text.contains("single sign-on") && !account.text.contains("Current password"));
    // No password opens it.
    let mut other = world.browser();
    assert_eq!(
        other.sign_in("pat@example.com", "external", "/").await.status,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    // The role is followed at the next sign-in, and without one nobody comes in.
    let mut again = world.browser();
    let asked = begin(&mut again, "/").await;
    let code = grant(&world, &idp, &asked, json!({"groups": "desk"}));
    assert_eq!(end(&mut again, &asked, &code).await.status, StatusCode::SEE_OTHER);
    assert_eq!(
        world.store.user_by_email("pat@example.com").await.unwrap().unwrap().role,
        Role::Support
    );
    let mut none = world.browser();
    let asked = begin(&mut none, "/").await;
    let code = grant(&world, &idp, &asked, json!({"groups": ["other"], "sub": "person-2"}));
    let page = end(&mut none, &asked, &code).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    assert!(page.text.contains("you have no role here") && none.session().is_none());
    // Disabled here is disabled, whatever the provider says.
    world.store.disable_user("pat@example.com").await.unwrap();
    let mut out = world.browser();
    let asked = begin(&mut out, "/").await;
    let code = grant(&world, &idp, &asked, json!({}));
    assert_eq!(end(&mut out, &asked, &code).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_token_that_does_not_hold_lets_nobody_in() {
    let idp = provider().await;
    let world = world(&idp).await;
    let now = world.clock.now().micros() / 1_000_000;
    for (what, change) in [
        ("another nonce", json!({"nonce": "other"})),
        ("another client", json!({"aud": "somebody"})),
        ("another issuer", json!({"iss": "https://evil.example"})),
        ("over", json!({"exp": now - 1})),
    ] {
        let mut browser = world.browser();
        let asked = begin(&mut browser, "/").await;
        let code = grant(&world, &idp, &asked, change);
        let page = end(&mut browser, &asked, &code).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{what}");
        assert!(browser.session().is_none(), "{what}");
    }
    for (what, change) in [
        ("no address", json!({"email": null})),
        ("not its owner", json!({"email_verified": false})),
    ] {
        let mut browser = world.browser();
        let asked = begin(&mut browser, "/").await;
        let code = grant(&world, &idp, &asked, change);
        assert_eq!(end(&mut browser, &asked, &code).await.status, StatusCode::FORBIDDEN, "{what}");
    }
    // Signed by somebody else.
    let mut browser = world.browser();
    let asked = begin(&mut browser, "/").await;
    let code = grant(&world, &idp, &asked, json!({}));
    let own = std::mem::replace(&mut idp.lock().unwrap().signing, key());
    assert_eq!(end(&mut browser, &asked, &code).await.status, StatusCode::FORBIDDEN);
    // A provider that has changed its key is asked for it, once it publishes the new one.
    let asked = begin(&mut browser, "/").await;
    let code = grant(&world, &idp, &asked, json!({}));
    {
        let mut idp = idp.lock().unwrap();
        idp.published = idp.signing.clone();
        assert_ne!(idp.published, own);
    }
    assert_eq!(end(&mut browser, &asked, &code).await.status, StatusCode::SEE_OTHER);
    assert_eq!(world.logged("sign_in_failed").await, 5);
}

#[tokio::test]
async fn a_sign_in_ends_in_the_browser_that_began_it_within_its_time_and_once() {
    let idp = provider().await;
    let world = world(&idp).await;
    let mut browser = world.browser();
    let asked = begin(&mut browser, "/").await;
    let code = grant(&world, &idp, &asked, json!({}));
    let mut victim = world.browser();
    victim.get("/login").await;
    let page = end(&mut victim, &asked, &code).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    assert!(page.text.contains("begun in another browser") && victim.session().is_none());
    assert_eq!(end(&mut browser, &asked, &code).await.status, StatusCode::SEE_OTHER);
    let mut copy = browser.clone();
    copy.cookies.remove("sendonce");
    assert_eq!(
        end(&mut copy, &asked, &code).await.status,
        StatusCode::FORBIDDEN,
        "the code is used up"
    );
    let asked = begin(&mut copy, "/").await;
    let code = grant(&world, &idp, &asked, json!({}));
    world.pass(601);
    assert_eq!(end(&mut copy, &asked, &code).await.status, StatusCode::FORBIDDEN);
    let away = copy.get("/login/oidc?next=//evil.example").await;
    let state = url::Url::parse(away.location()).unwrap();
    let asked: BTreeMap<String, String> = state.query_pairs().into_owned().collect();
    let code = grant(&world, &idp, &asked, json!({}));
    assert_eq!(end(&mut copy, &asked, &code).await.location(), "/");
}

#[tokio::test]
async fn a_local_account_is_nobody_elses_and_stays_when_the_provider_is_gone() {
    let idp = provider().await;
    let world = world(&idp).await;
    world.add_user(Role::Admin).await;
    let mut browser = world.browser();
    let asked = begin(&mut browser, "/").await;
    let code = grant(&world, &idp, &asked, json!({"email": "admin@example.com"}));
    let page = end(&mut browser, &asked, &code).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    assert!(page.text.contains("There is a local account of your address."));
    // The provider's address answers nothing: the break-glass account still signs in.
    let gone = World::configured(
        "http://127.0.0.1:3000",
        "[oidc]\nissuer = \"http://127.0.0.1:9\"\nclient_id = \"a\"\nclient_secret = \"b\"\nadmin = [\"x\"]\n",
    )
    .await;
    gone.add_user(Role::Admin).await;
    let mut browser = gone.browser();
    let page = browser.get("/login/oidc").await;
    assert_eq!(page.status, StatusCode::BAD_GATEWAY);
    assert!(page.text.contains("error id"));
    assert_eq!(
        browser.sign_in("admin@example.com", PASSWORD, "/").await.status,
        StatusCode::SEE_OTHER
    );
}
