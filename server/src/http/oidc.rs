//! Sign-in by an identity provider: OpenID Connect, authorisation code with PKCE, state and nonce.
//!
//! Nothing is kept between the two requests. State, nonce and verifier are keyed hashes of the browser's own
//! secret and a fresh number, so that only the browser which began a sign-in can end it. What the provider says
//! of a role is followed at each sign-in; whoever it gives no role is not let in. A local account is never
//! handed to whoever a provider says has its address.

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::sync::Arc;

use app::model::{Detail, FactKind, LoginPage, Role, Stamp};
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use openidconnect::core::{
    CoreGenderClaim, CoreJsonWebKey, CoreJsonWebKeySet, CoreJweContentEncryptionAlgorithm,
    CoreJwsSigningAlgorithm, CoreProviderMetadata,
};
use openidconnect::{
    AdditionalClaims, ClientId, ClientSecret, IdToken, IdTokenVerifier, Nonce, PkceCodeChallenge,
    PkceCodeVerifier,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::guard;
use super::session::Anonymous;
use super::ui::{Asked, Trouble, UiState, anonymous};
use super::{login, render};
use crate::clock::Clock;
use crate::config::Oidc;
use crate::password::address;
use crate::providers::Deadline;
use crate::providers::transport::Transport;

/// For how long somebody may be at the provider's page.
const WITHIN: i64 = 10 * 60_000_000;

/// How long one question to the provider may take.
const PATIENCE: i64 = 10_000_000;

/// For how long what the provider says of itself is believed; its keys are read again before a signature is
/// refused.
const KNOWN_FOR: i64 = 10 * 60_000_000;

const NOT_NOW: &str =
    "The identity provider does not answer as it should. Try again, or sign in with a password.";
const REFUSED: &str = "The identity provider did not sign you in.";
const STALE: &str = "This sign-in took too long, or was begun in another browser. Begin again.";
const NO_ROLE: &str = "You are known, but you have no role here. Ask an admin.";
const TAKEN: &str =
    "There is a local account of your address. Sign in with its password, or ask an admin.";

/// Every claim that is no standard one: the roles are among them, under a configured name.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Claims {
    #[serde(flatten)]
    all: BTreeMap<String, serde_json::Value>,
}

impl AdditionalClaims for Claims {}

type Token =
    IdToken<Claims, CoreGenderClaim, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm>;

/// What went wrong with the provider; never anything that it said.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("the identity provider's {0} could not be had")]
    Answer(&'static str),
    #[error("the identity provider's {0} is not what it must be")]
    Content(&'static str),
}

/// What is known of the provider.
#[derive(Debug)]
pub struct Provider {
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
    // An async mutex: of many who sign in at once one asks and the others wait for its answer.
    known: Mutex<Option<(Stamp, CoreProviderMetadata)>>,
}

impl Provider {
    #[must_use]
    pub fn new(transport: Arc<dyn Transport>, clock: Arc<dyn Clock>) -> Self {
        Self { transport, clock, known: Mutex::new(None) }
    }

    /// One question over our own transport: no redirect, no proxy, a deadline.
    async fn ask(&self, request: Request<Bytes>) -> Result<Bytes, Fault> {
        let deadline = Deadline { boot: self.clock.boot() + PATIENCE };
        match self.transport.exchange(request, deadline).await {
            Ok(answer) if answer.status() == StatusCode::OK => Ok(answer.into_body()),
            _ => Err(Fault::Answer("answer")),
        }
    }

    async fn read<T: serde::de::DeserializeOwned>(
        &self,
        address: &str,
        what: &'static str,
    ) -> Result<T, Fault> {
        let request = Request::builder()
            .uri(address)
            .header(header::ACCEPT, "application/json")
            .body(Bytes::new())
            .map_err(|_| Fault::Content(what))?;
        let body = self.ask(request).await.map_err(|_| Fault::Answer(what))?;
        serde_json::from_slice(&body).map_err(|_| Fault::Content(what))
    }

    /// Its description and keys; `fresh`: not from before.
    async fn metadata(&self, config: &Oidc, fresh: bool) -> Result<CoreProviderMetadata, Fault> {
        let mut known = self.known.lock().await;
        let now = self.clock.now();
        if let Some((at, metadata)) = &*known
            && !fresh
            && now.since(*at) < KNOWN_FOR
        {
            return Ok(metadata.clone());
        }
        // OpenID Connect Discovery 1.0, section 4: one slash, whether the issuer ends with one or not, and what
        // is found there must name the issuer that was asked.
        let base = config.issuer.trim_end_matches('/');
        let address = format!("{base}/.well-known/openid-configuration");
        let metadata: CoreProviderMetadata = self.read(&address, "description").await?;
        if metadata.issuer().as_str() != config.issuer {
            return Err(Fault::Content("issuer"));
        }
        let keys: CoreJsonWebKeySet = self.read(metadata.jwks_uri().as_str(), "keys").await?;
        let metadata = metadata.set_jwks(keys);
        *known = Some((now, metadata.clone()));
        Ok(metadata)
    }

    /// Trades the code for an ID token.
    async fn token(
        &self,
        config: &Oidc,
        metadata: &CoreProviderMetadata,
        code: &str,
        verifier: &str,
        redirect_uri: &str,
    ) -> Result<Token, Fault> {
        #[derive(Deserialize)]
        struct Answer {
            id_token: String,
        }
        let endpoint = metadata.token_endpoint().ok_or(Fault::Content("token endpoint"))?;
        let body = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("code_verifier", verifier)
            .finish();
        // RFC 6749, section 2.3.1: both halves are form-encoded before they are joined.
        let half = |text: &str| -> String {
            url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
        };
        let pair = format!("{}:{}", half(&config.client_id), half(config.client_secret.expose()));
        let request = Request::builder()
            .method(Method::POST)
            .uri(endpoint.as_str())
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json")
            .header(header::AUTHORIZATION, format!("Basic {}", STANDARD.encode(pair)))
            .body(Bytes::from(body))
            .map_err(|_| Fault::Content("token endpoint"))?;
        let answer = self.ask(request).await?;
        let answer: Answer =
            serde_json::from_slice(&answer).map_err(|_| Fault::Content("token"))?;
        Token::from_str(&answer.id_token).map_err(|_| Fault::Content("token"))
    }
}

/// The three values of one sign-in, made again in the second request from what the browser brings.
struct Flow {
    state: String,
    nonce: Nonce,
    verifier: PkceCodeVerifier,
}

/// `<number>.<begun at>.<next>` with the keyed hash that binds it to the browser.
fn flow(state: &UiState, browser: &Anonymous, number: &str, begun: i64, next: &str) -> Flow {
    let keys = &state.parts.keys;
    let begun_text = begun.to_string();
    let bound = |what: &'static [u8]| {
        browser.bound(keys, &[what, number.as_bytes(), begun_text.as_bytes(), next.as_bytes()])
    };
    let next_text = URL_SAFE_NO_PAD.encode(next);
    Flow {
        state: format!("{number}.{begun}.{next_text}.{}", bound(b"oidc state")),
        nonce: Nonce::new(bound(b"oidc nonce")),
        verifier: PkceCodeVerifier::new(bound(b"oidc verifier")),
    }
}

/// The flow that this state belongs to, and where it leads; none when it is another browser's, or too old.
fn resumed(state: &UiState, asked: &Asked, sent: &str) -> Option<(Flow, String)> {
    let mut parts = sent.splitn(4, '.');
    let (number, begun, next) = (parts.next()?, parts.next()?, parts.next()?);
    let begun: i64 = begun.parse().ok()?;
    let next = String::from_utf8(URL_SAFE_NO_PAD.decode(next).ok()?).ok()?;
    let flow = flow(state, &anonymous(state, asked), number, begun, &next);
    let age = asked.now.since(Stamp::from_micros(begun));
    ((0..WITHIN).contains(&age) && guard::is_fresh(sent, &flow.state)).then_some((flow, next))
}

fn redirect_uri(state: &UiState) -> String {
    format!("{}/login/callback", state.parts.config.server.public_url)
}

fn query(asked: &Asked, name: &str) -> String {
    let fields = asked.query();
    fields.into_iter().find(|(field, _)| field == name).map_or_else(String::new, |(_, value)| value)
}

fn refuse(state: &UiState, asked: &Asked, status: StatusCode, problem: &str) -> Response {
    let page = LoginPage {
        next: "/".to_owned(),
        problem: Some(problem.to_owned()),
        ..LoginPage::default()
    };
    login::show(state, asked, status, page)
}

/// `GET /login/oidc`: to the provider's page.
pub(super) async fn begin(state: &UiState, asked: &Asked) -> Result<Response, Trouble> {
    let Some(config) = &state.parts.config.oidc else { return Err(Trouble::NotFound) };
    let metadata = match state.oidc.metadata(config, false).await {
        Ok(metadata) => metadata,
        Err(fault) => return Ok(failed(state, asked, &fault)),
    };
    let next_query = query(asked, "next");
    let next = guard::local_path(&next_query);
    let number = state.parts.entropy.hex(8);
    // The flow is bound to this secret, so it must be the one that the browser brings back.
    let browser = anonymous(state, asked);
    let flow = flow(state, &browser, &number, asked.now.micros(), next);
    let challenge = PkceCodeChallenge::from_code_verifier_sha256(&flow.verifier);
    let mut address = metadata.authorization_endpoint().url().clone();
    address
        .query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", &config.client_id)
        .append_pair("redirect_uri", &redirect_uri(state))
        .append_pair("scope", &config.scopes.join(" "))
        .append_pair("state", &flow.state)
        .append_pair("nonce", flow.nonce.secret())
        .append_pair("code_challenge", challenge.as_str())
        .append_pair("code_challenge_method", "S256");
    let mut response = render::see_other(address.as_str());
    if let Some(cookie) = browser.set_cookie(&state.parts.config) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

fn failed(state: &UiState, asked: &Asked, fault: &Fault) -> Response {
    let error_id = state.report(asked.route, fault);
    let problem = format!("{NOT_NOW} (error id {error_id})");
    let mut response = refuse(state, asked, StatusCode::BAD_GATEWAY, &problem);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("10"));
    response
}

/// `GET /login/callback`: back from the provider's page.
pub(super) async fn end(state: &UiState, asked: &Asked) -> Result<Response, Trouble> {
    let Some(config) = &state.parts.config.oidc else { return Err(Trouble::NotFound) };
    let forbidden = StatusCode::FORBIDDEN;
    let Some((flow, next)) = resumed(state, asked, &query(asked, "state")) else {
        return Ok(refuse(state, asked, forbidden, STALE));
    };
    let code = query(asked, "code");
    if code.is_empty() {
        return Ok(refuse(state, asked, forbidden, REFUSED));
    }
    let person = match identify(state, config, &flow, &code).await {
        Ok(Some(person)) => person,
        Ok(None) => {
            let detail = Detail::default().code("what", "sign_in_failed").code("by", "oidc");
            state.parts.store.note(FactKind::Operator, "system", detail).await?;
            return Ok(refuse(state, asked, forbidden, REFUSED));
        }
        Err(fault) => return Ok(failed(state, asked, &fault)),
    };
    let (Some(role), Some(email)) = (person.role, person.email) else {
        return Ok(refuse(state, asked, forbidden, NO_ROLE));
    };
    let store = &state.parts.store;
    let admitted =
        super::api::settled(|| store.admit_identity(&person.subject_hash, &email, role)).await?;
    let Some(user_id) = admitted else { return Ok(refuse(state, asked, forbidden, TAKEN)) };
    let user = store.user_by_id(&user_id).await?.filter(|user| !user.is_disabled);
    let Some(user) = user else { return Ok(refuse(state, asked, forbidden, REFUSED)) };
    login::begin(state, asked, &user).await?;
    Ok(render::see_other(guard::local_path(&next)))
}

/// Who came back.
struct Person {
    subject_hash: String,
    email: Option<String>,
    role: Option<Role>,
}

/// Trades the code and checks the token; none where the provider's word does not hold.
async fn identify(
    state: &UiState,
    config: &Oidc,
    flow: &Flow,
    code: &str,
) -> Result<Option<Person>, Fault> {
    let provider = &state.oidc;
    let metadata = provider.metadata(config, false).await?;
    let redirect_uri = redirect_uri(state);
    let verifier = flow.verifier.secret();
    let Ok(token) = provider.token(config, &metadata, code, verifier, &redirect_uri).await else {
        return Ok(None);
    };
    let mut claims = checked(state, config, &metadata, &token, &flow.nonce);
    if claims.is_none() {
        // The keys may have been changed since they were read.
        let metadata = provider.metadata(config, true).await?;
        claims = checked(state, config, &metadata, &token, &flow.nonce);
    }
    Ok(claims)
}

fn checked(
    state: &UiState,
    config: &Oidc,
    metadata: &CoreProviderMetadata,
    token: &Token,
    nonce: &Nonce,
) -> Option<Person> {
    use CoreJwsSigningAlgorithm as Alg;
    let now = state.parts.clock.now();
    // Whoever knows our secret could sign with it; a provider signs with a key of its own.
    let own_key = |alg: &&Alg| {
        !matches!(alg, Alg::None | Alg::HmacSha256 | Alg::HmacSha384 | Alg::HmacSha512)
    };
    let algorithms =
        metadata.id_token_signing_alg_values_supported().iter().filter(own_key).cloned();
    let verifier: IdTokenVerifier<'_, CoreJsonWebKey> = IdTokenVerifier::new_confidential_client(
        ClientId::new(config.client_id.clone()),
        ClientSecret::new(config.client_secret.expose().to_owned()),
        metadata.issuer().clone(),
        metadata.jwks().clone(),
    )
    .set_allowed_algs(algorithms)
    .set_time_fn(move || chrono::DateTime::from_timestamp_micros(now.micros()).unwrap_or_default());
    let claims = token.claims(&verifier, nonce).ok()?;
    let subject = claims.subject().as_str();
    let issuer = metadata.issuer().as_str();
    let keys = &state.parts.keys;
    let is_own_address = claims.email_verified() != Some(false);
    Some(Person {
        subject_hash: keys.content_hash(&[b"oidc subject", issuer.as_bytes(), subject.as_bytes()]),
        email: claims.email().filter(|_| is_own_address).and_then(|email| address(email.as_str())),
        role: role_of(config, claims.additional_claims().all.get(&config.role_claim)),
    })
}

/// The role with the most rights of those that the claim's values stand for.
fn role_of(config: &Oidc, claim: Option<&serde_json::Value>) -> Option<Role> {
    let values: Vec<&str> = match claim? {
        serde_json::Value::String(one) => vec![one.as_str()],
        serde_json::Value::Array(many) => many.iter().filter_map(|value| value.as_str()).collect(),
        _ => Vec::new(),
    };
    [Role::Admin, Role::Oncall, Role::Compliance, Role::Support].into_iter().find(|role| {
        let mapped = config.roles.get(role.as_str());
        mapped.is_some_and(|mapped| mapped.iter().any(|name| values.contains(&name.as_str())))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use app::model::Role;
    use serde_json::json;

    use super::role_of;
    use crate::config::Oidc;
    use crate::providers::Secret;

    #[test]
    fn a_role_is_the_strongest_that_the_claim_stands_for_or_none() {
        let of = |role: &str, names: &[&str]| {
            (role.to_owned(), names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        let config = Oidc {
            issuer: String::new(),
            name: String::new(),
            client_id: String::new(),
            client_secret: Secret::new(String::new()),
            scopes: Vec::new(),
            role_claim: "groups".to_owned(),
            roles: BTreeMap::from([of("support", &["desk", "all"]), of("oncall", &["sre"])]),
        };
        let role = |claim: serde_json::Value| role_of(&config, Some(&claim));
        assert_eq!(role(json!(["desk", "sre"])), Some(Role::Oncall));
        assert_eq!(role(json!("desk")), Some(Role::Support));
        for none in
            [json!(["admin"]), json!([]), json!({"desk": true}), json!(null), json!(["Desk"])]
        {
            assert_eq!(role(none.clone()), None, "{none}");
        }
        assert_eq!(role_of(&config, None), None);
    }
}
