//! Who calls the API: client keys, stored as hashes, with scopes.
//!
//! A key reads `so_<client id>_<secret>`. The id finds the row, the secret is compared by its SHA-256 in
//! constant time. An unknown id costs the same look-up and the same comparison as a known one. Nothing is
//! cached: a revoked key is refused from the next request on.

use app::model::ClientView;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

use super::problem::Problem;
use crate::entropy::Entropy;
use crate::keys;
use crate::store::{self, Client, Store};

/// Every scope that a key can carry.
pub const SCOPES: &[&str] = &["admit", "status", "consume", "cancel", "freeze"];

/// Random bytes of a secret: 256 bits.
const SECRET_BYTES: usize = 32;

/// The longest client id that is looked up.
const ID_CHARS_MAX: usize = 64;

/// Stands for a secret that nobody has.
const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The secret half of a new client key, before its client has an id.
#[derive(Debug)]
pub struct NewSecret {
    secret: crate::providers::Secret,
    /// What the store keeps.
    pub hash: String,
}

impl NewSecret {
    /// A new secret.
    #[must_use]
    pub fn generate(entropy: &dyn Entropy) -> Self {
        let secret = entropy.hex(SECRET_BYTES);
        let hash = keys::sha256(secret.as_bytes());
        Self { secret: crate::providers::Secret::new(secret), hash }
    }

    /// The whole key, to be shown once.
    #[must_use]
    pub fn key(&self, client_id: &str) -> String {
        format!("so_{client_id}_{}", self.secret.expose())
    }
}

/// A new key for a client whose id is known: the key, to be shown once, and the hash that the store
/// keeps.
#[must_use]
pub fn new_client_key(entropy: &dyn Entropy, client_id: &str) -> (String, String) {
    let secret = NewSecret::generate(entropy);
    (secret.key(client_id), secret.hash)
}

/// Adds a client and makes its key, which is shown once and kept nowhere.
///
/// # Errors
/// The store's own.
pub async fn add_client(
    store: &dyn Store,
    entropy: &dyn Entropy,
    name: &str,
    scopes: &[String],
) -> Result<(ClientView, String), store::Error> {
    let secret = NewSecret::generate(entropy);
    let client = store.add_client(name, scopes, &secret.hash).await?;
    let key = secret.key(&client.id);
    Ok((client, key))
}

/// The client whose key the request carries, when it has the scope.
///
/// # Errors
/// [`Problem::Unauthorized`], [`Problem::Forbidden`], or the store's.
pub async fn authorise(
    store: &dyn Store,
    headers: &HeaderMap,
    scope: &'static str,
) -> Result<Client, Problem> {
    let (id, secret) = presented(headers).ok_or(Problem::Unauthorized)?;
    let client = store.client(id).await?;
    let hash = client.as_ref().map_or(NO_HASH, |client| client.secret_hash.as_str());
    let is_equal = keys::equal(keys::sha256(secret.as_bytes()).as_bytes(), hash.as_bytes());
    match client {
        Some(client) if is_equal => {
            if client.scopes.iter().any(|held| held == scope) {
                Ok(client)
            } else {
                Err(Problem::Forbidden { scope })
            }
        }
        _ => Err(Problem::Unauthorized),
    }
}

/// Id and secret out of exactly one `Authorization: Bearer` header.
fn presented(headers: &HeaderMap) -> Option<(&str, &str)> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (id, secret) = key.trim().strip_prefix("so_")?.split_once('_')?;
    let is_id =
        (1..=ID_CHARS_MAX).contains(&id.len()) && id.bytes().all(|c| c.is_ascii_alphanumeric());
    (is_id && secret.len() == SECRET_BYTES * 2).then_some((id, secret))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::SeededEntropy;

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_key_is_found_in_one_bearer_header_only() {
        let (key, hash) = new_client_key(&SeededEntropy::new(1), "0123456789ab");
        let secret = key.strip_prefix("so_0123456789ab_").unwrap();
        assert_eq!(hash, keys::sha256(secret.as_bytes()));
        let want = Some(("0123456789ab", secret));
        assert_eq!(presented(&headers(&[&format!("Bearer {key}")])), want);
        assert_eq!(presented(&headers(&[&format!("bearer  {key} ")])), want);
        for bad in [
            vec![],
            vec!["Bearer".to_owned()],
            vec!["Bearer ".to_owned()],
            vec!["Bearer wrong".to_owned()],
            vec![key.clone()],
            vec![format!("Basic {key}")],
            vec![format!("Bearer {key}0")],
            vec![format!("Bearer {key}"), format!("Bearer {key}")],
            vec![format!("Bearer so__{secret}")],
            vec![format!("Bearer so_a'b_{secret}")],
            vec![format!("Bearer sk_0123456789ab_{secret}")],
        ] {
            let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
            assert_eq!(presented(&headers(&bad)), None, "{bad:?}");
        }
    }

    #[test]
    fn a_secret_is_never_printed() {
        let secret = NewSecret::generate(&SeededEntropy::new(1));
        let key = secret.key("a");
        assert!(!format!("{secret:?}").contains(key.strip_prefix("so_a_").unwrap()));
    }
}
