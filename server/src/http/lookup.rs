//! The blind look-up: a number or address is hashed with a key, compared, and forgotten.
//!
//! What is typed is in no address, no log, no fact and no answer; that somebody looked is a fact, written in
//! the transaction that reads. Nothing is guessed: what is no whole number or plain address is refused.

use app::model::{LookupKind, LookupPage};
use app::pages;
use axum::http::StatusCode;
use axum::response::Response;
use leptos::prelude::IntoAny as _;
use zeroize::Zeroizing;

use super::ui::{Form, Trouble, Visit};
use crate::providers::resolver::{email, phone};

pub(super) const STALE: &str =
    "This form was out of date and nothing was looked up. It has been reloaded: type it once more.";

const NO_SUBJECT: &str =
    "Type a whole number with + and country code, as +12025550123, or an email address.";

/// `GET /lookup`, and `POST` with a token that is not this session's: what was typed there is kept by nobody,
/// here least of all.
pub(super) async fn show(visit: &Visit<'_>, stale: Option<&str>) -> Result<Response, Trouble> {
    let status = if stale.is_some() { StatusCode::FORBIDDEN } else { StatusCode::OK };
    let data = LookupPage { stale: stale.map(str::to_owned), ..LookupPage::default() };
    Ok(page(visit, status, data))
}

/// `POST /lookup`
pub(super) async fn act(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    let typed = form.get("subject").trim();
    let canonical = if typed.contains('@') {
        email(typed).map(|canonical| (LookupKind::Email, Zeroizing::new(canonical)))
    } else {
        phone(typed).map(|canonical| (LookupKind::Phone, Zeroizing::new(canonical.to_owned())))
    };
    let Some((kind, canonical)) = canonical else {
        let data = LookupPage { problem: Some(NO_SUBJECT.to_owned()), ..LookupPage::default() };
        return Ok(page(visit, StatusCode::UNPROCESSABLE_ENTITY, data));
    };
    let fingerprints = visit.state.parts.keys.fingerprints(&canonical);
    let found = visit.store().blind_lookup(&visit.visitor.actor(), kind, &fingerprints).await?;
    let data = LookupPage { kind, found: Some(found), ..LookupPage::default() };
    Ok(page(visit, StatusCode::OK, data))
}

fn page(visit: &Visit<'_>, status: StatusCode, data: LookupPage) -> Response {
    visit.page(status, |frame, options| pages::lookup(frame, data, options).into_any())
}
