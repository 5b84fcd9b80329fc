//! The identity system over signed HTTP (CONTRACT section 9).

use std::sync::Arc;

use app::model::Channel;
use async_trait::async_trait;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, StatusCode};
use serde::{Deserialize, Serialize};
use url::Url;

use super::{Resolution, ResolveRequest, Resolved, Resolver, address, link, locale};
use crate::clock::Clock;
use crate::providers::transport::Transport;
use crate::providers::{BuildError, Deadline, Secret, signature};

/// Asks by `POST`, signed as the generic provider is. Each question is asked once; the caller backs off.
#[derive(Debug)]
pub struct Remote {
    url: String,
    secret: Secret,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
}

impl Remote {
    /// # Errors
    /// When the URL is none, or the secret is empty.
    pub fn new(
        url: &str,
        secret: Secret,
        clock: Arc<dyn Clock>,
        transport: Arc<dyn Transport>,
    ) -> Result<Self, BuildError> {
        let parsed = Url::parse(url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let Some(parsed) =
            parsed.filter(|url| url.username().is_empty() && url.fragment().is_none())
        else {
            return Err(BuildError::Resolver { key: "url", why: "is not an http or https URL" });
        };
        if secret.expose().is_empty() {
            return Err(BuildError::Resolver { key: "secret", why: "is missing" });
        }
        Ok(Self { url: parsed.into(), secret, clock, transport })
    }

    fn request(&self, asked: &ResolveRequest) -> Option<Request<Bytes>> {
        #[derive(Serialize)]
        struct Body<'a> {
            event_id: &'a str,
            destination_ref: &'a str,
            reset_ref: &'a str,
            channel: Channel,
            purpose: &'a str,
        }
        let body = serde_json::to_vec(&Body {
            event_id: &asked.event_id,
            destination_ref: &asked.destination_ref,
            reset_ref: &asked.reset_ref,
            channel: asked.channel,
            purpose: &asked.purpose,
        })
        .ok()?;
        Request::builder()
            .method(Method::POST)
            .uri(&self.url)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .header(signature::HEADER, signature::header(&self.secret, self.clock.now(), &body))
            .body(Bytes::from(body))
            .ok()
    }
}

#[async_trait]
impl Resolver for Remote {
    async fn resolve(&self, request: &ResolveRequest, deadline: Deadline) -> Resolution {
        let unavailable = |code: &str| Resolution::Unavailable { code: code.to_owned() };
        let Some(question) = self.request(request) else {
            return unavailable("request");
        };
        let response = match self.transport.exchange(question, deadline).await {
            Ok(response) => response,
            Err(failure) => return unavailable(failure.kind.code()),
        };
        match response.status() {
            StatusCode::OK => read(response.body(), request),
            StatusCode::NOT_FOUND => Resolution::NotFound,
            status => unavailable(&format!("http_{}", status.as_u16())),
        }
    }
}

fn read(body: &[u8], request: &ResolveRequest) -> Resolution {
    #[derive(Deserialize)]
    struct Answer {
        phone: Option<String>,
        email: Option<String>,
        link: String,
        locale: Option<String>,
    }
    let unavailable = |code: &str| Resolution::Unavailable { code: code.to_owned() };
    let Ok(answer) = serde_json::from_slice::<Answer>(body) else {
        return unavailable("bad_answer");
    };
    let (phone, email) = (answer.phone.map(Secret::new), answer.email.map(Secret::new));
    let url = Secret::new(answer.link);
    let wanted = match request.channel {
        Channel::Sms => phone,
        Channel::Email => email,
    };
    let Some(wanted) = wanted else {
        return Resolution::NotFound;
    };
    let Some((to, canonical)) = address(request.channel, wanted.expose()) else {
        tracing::warn!(
            event_id = request.event_id,
            code = "bad_address",
            "the resolver's address is none for this channel"
        );
        return Resolution::NotFound;
    };
    if link(url.expose()).is_none() {
        return unavailable("bad_link");
    }
    Resolution::Found(Resolved { to, canonical, link: url, locale: answer.locale.and_then(locale) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_used_whole_or_not_at_all() {
        let ask = |channel, body: &str| {
            let request = ResolveRequest {
                event_id: "e".to_owned(),
                destination_ref: "d".to_owned(),
                reset_ref: "r".to_owned(),
                channel,
                purpose: "password_reset".to_owned(),
            };
            read(body.as_bytes(), &request)
        };
        let unavailable = |code: &str| Resolution::Unavailable { code: code.to_owned() };
        let both = r#"{"phone":"+12025550123","email":"A@B.Example","link":"https://example.com/r","locale":"fr-CA","x":1}"#;
        let Resolution::Found(found) = ask(Channel::Email, both) else { panic!() };
        assert_eq!((found.to.expose(), found.canonical.expose()), ("A@B.Example", "A@b.example"));
        assert_eq!(found.locale.as_deref(), Some("fr-CA"));
        assert!(matches!(ask(Channel::Sms, both), Resolution::Found(_)));
        assert!(!format!("{:?}", ask(Channel::Sms, both)).contains("555"));
        let sms = |body: &str| ask(Channel::Sms, body);
        assert_eq!(
            sms(r#"{"email":"a@b.example","link":"https://example.com/r"}"#),
            Resolution::NotFound
        );
        assert_eq!(
            sms(r#"{"phone":"0202 555","link":"https://example.com/r"}"#),
            Resolution::NotFound
        );
        assert_eq!(sms(r#"{"phone":"+12025550123","link":"ftp://x"}"#), unavailable("bad_link"));
        for bad in [
            "",
            "[]",
            "null",
            r#"{"phone":"+12025550123"}"#,
            r#"{"phone":12025550123,"link":"https://example.com/r"}"#,
        ] {
            assert_eq!(sms(bad), unavailable("bad_answer"), "{bad}");
        }
    }
}
