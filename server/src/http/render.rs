//! From a page's view to an answer: the HTML, the nonce of its one inline script, and the headers that every
//! answer of the pages carries.

use app::model::{Frame, Refusal};
use app::pages;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use leptos::nonce::Nonce;
use leptos::prelude::{IntoAny, LeptosOptions, Owner, RenderHtml as _, provide_context};

use crate::entropy::Entropy;

/// The nonce of the page in this answer, for its security policy.
#[derive(Debug, Clone)]
struct PageNonce(String);

/// Renders a whole document.
///
/// The pages hold no asynchronous data, so one pass makes the text; what Leptos needs around it is an owner for
/// the islands' signals, dropped with the page, and the nonce as a context: without it the script that wakes
/// the islands would have none and the browser would refuse it.
pub fn page<V: IntoAny>(
    entropy: &dyn Entropy,
    status: StatusCode,
    view: impl FnOnce() -> V,
) -> Response {
    let nonce = entropy.hex(16);
    let owner = Owner::new();
    let html = owner.with(|| {
        provide_context(Nonce::from_value(nonce.as_str()));
        view().into_any().to_html()
    });
    owner.cleanup();
    let mut response = (status, Body::from(html)).into_response();
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, html);
    response.extensions_mut().insert(PageNonce(nonce));
    response
}

/// The page that says why there is no page; with the frame where there is one.
pub fn refusal(
    entropy: &dyn Entropy,
    frame: Option<Frame>,
    refusal: &Refusal,
    options: LeptosOptions,
) -> Response {
    let status =
        StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    page(entropy, status, || match frame {
        Some(frame) => pages::refusal(frame, refusal, options).into_any(),
        None => pages::refusal_signed_out(refusal).into_any(),
    })
}

/// A redirect after a form, or to the sign-in page: the browser follows with a GET.
#[must_use]
pub fn see_other(location: &str) -> Response {
    let location = HeaderValue::from_str(location).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response()
}

/// A short answer for programs: streams and files.
#[must_use]
pub fn plain(status: StatusCode, text: &'static str) -> Response {
    (status, text).into_response()
}

/// What the headers depend on.
#[derive(Debug, Clone, Copy)]
pub struct HeaderRules {
    /// Browsers reach us over TLS.
    pub is_https: bool,
}

/// Puts the security headers on every answer. Nothing is let in but our own files; the only inline script is
/// the one with the nonce; nobody may frame a page or learn from where a link was followed.
pub async fn headers(State(rules): State<HeaderRules>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let nonce = response.extensions_mut().remove::<PageNonce>();
    let script = nonce.map_or_else(String::new, |nonce| format!(" 'nonce-{}'", nonce.0));
    let policy = format!(
        "default-src 'none'; script-src 'self'{script} 'wasm-unsafe-eval'; style-src 'self'; \
         img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    let headers = response.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    let fixed: &[(HeaderName, &str)] = &[
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            HeaderName::from_static("permissions-policy"),
            "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
        ),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    if rules.is_https {
        let year = HeaderValue::from_static("max-age=31536000");
        headers.insert(header::STRICT_TRANSPORT_SECURITY, year);
    }
    // Files bring their own rule; everything else shows data.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    secure_removal(headers);
    response
}

/// A browser ignores the removal of a `__Host-` cookie that does not say `Secure`, and the session layer's does
/// not.
fn secure_removal(headers: &mut HeaderMap) {
    let cookies: Vec<HeaderValue> = headers.get_all(header::SET_COOKIE).iter().cloned().collect();
    if cookies.is_empty() {
        return;
    }
    headers.remove(header::SET_COOKIE);
    for cookie in cookies {
        let mended = cookie.to_str().ok().filter(|text| {
            text.starts_with("__Host-") && !text.split("; ").any(|part| part == "Secure")
        });
        let mended = mended.and_then(|text| HeaderValue::from_str(&format!("{text}; Secure")).ok());
        headers.append(header::SET_COOKIE, mended.unwrap_or(cookie));
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue, header};

    use super::secure_removal;

    #[test]
    fn the_removal_of_a_host_cookie_says_secure() {
        let mut headers = HeaderMap::new();
        for cookie in ["__Host-a=; Path=/; Max-Age=0", "__Host-b=1; Secure; Path=/", "c=; Path=/"] {
            headers.append(header::SET_COOKIE, HeaderValue::from_static(cookie));
        }
        secure_removal(&mut headers);
        let cookies: Vec<_> = headers.get_all(header::SET_COOKIE).iter().collect();
        assert_eq!(
            cookies,
            ["__Host-a=; Path=/; Max-Age=0; Secure", "__Host-b=1; Secure; Path=/", "c=; Path=/"]
        );
    }
}
