//! `/policy`: the sending rules, and the form that closes a country's breaker.

use app::model::{FormState, Permission, PolicyPage};
use app::pages;
use axum::http::StatusCode;
use axum::response::Response;
use leptos::prelude::IntoAny as _;

use super::api::settled;
use super::render;
use super::ui::{Form, Trouble, Visit};
use crate::policy::geography::is_country;
use crate::text::looks_like_personal_data;

/// As the form has it.
const REASON_CHARS_MAX: usize = 500;

const STALE: &str = "This form was out of date and nothing was done. It has been reloaded with what you typed: check \
                     what is open, then send it again.";
const REFUSED: &str = "Nothing was done. Mend what is marked and send it again.";

/// `GET /policy`
pub(super) async fn show(visit: &Visit<'_>) -> Result<Response, Trouble> {
    let data = read(visit).await?;
    visit.record_view("view_policy", app::model::Detail::default()).await?;
    let query = visit.asked.query();
    let field = |name: &str| {
        query.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value.as_str())
    };
    let notice = match (field("done"), field("country")) {
        ("repeated", _) => Some(
            "This form was sent before; it acts once. What is in force is shown below.".to_owned(),
        ),
        ("closed", country) if is_country(country) => {
            Some(format!("Closed: the breaker of {country}. Counting starts anew."))
        }
        ("was_closed", country) if is_country(country) => {
            Some(format!("The breaker of {country} was not open any more."))
        }
        _ => None,
    };
    Ok(page(visit, StatusCode::OK, data, FormState { notice, ..FormState::default() }))
}

/// `POST /policy` with a token that is not this session's.
pub(super) async fn stale(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    let data = read(visit).await?;
    let form =
        FormState { problem: Some(STALE.to_owned()), typed: typed(form), ..FormState::default() };
    Ok(page(visit, StatusCode::FORBIDDEN, data, form))
}

/// `POST /policy`
pub(super) async fn close(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    let country = form.get("country");
    let reason = form.get("reason").replace("\r\n", "\n").trim().to_owned();
    if let Some(problem) = problem_of(country, &reason, form.get("action_key")) {
        let state = FormState {
            problem: Some(REFUSED.to_owned()),
            fields: vec![("reason".to_owned(), problem.to_owned())],
            typed: typed(form),
            notice: None,
        };
        let data = read(visit).await?;
        return Ok(page(visit, StatusCode::UNPROCESSABLE_ENTITY, data, state));
    }
    let store = visit.store();
    let done = if settled(|| store.use_action_key(form.get("action_key"))).await? {
        let actor = visit.visitor.actor();
        if settled(|| store.close_breaker(country, &actor, &reason)).await? {
            "closed"
        } else {
            "was_closed"
        }
    } else {
        "repeated"
    };
    Ok(render::see_other(&format!("/policy?done={done}&country={country}")))
}

fn problem_of(country: &str, reason: &str, action_key: &str) -> Option<&'static str> {
    let is_key = (16..=256).contains(&action_key.len())
        && action_key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if !is_country(country) || !is_key {
        return Some("Send this form again.");
    }
    if reason.is_empty() {
        Some("Say why, in a few words.")
    } else if reason.chars().count() > REASON_CHARS_MAX {
        Some("Keep it to 500 characters.")
    } else if reason.chars().any(|c| c.is_control() && c != '\n') {
        Some("Leave out control characters.")
    } else if looks_like_personal_data(reason) {
        Some(
            "This contains what looks like an email address or phone number. It would be kept for years: name the \
             incident instead.",
        )
    } else {
        None
    }
}

async fn read(visit: &Visit<'_>) -> Result<PolicyPage, Trouble> {
    let mut data = visit.store().policy_page().await?;
    data.may_close = visit.role().may(Permission::Freeze);
    data.action_key = visit.state.parts.entropy.hex(16);
    Ok(data)
}

fn page(visit: &Visit<'_>, status: StatusCode, data: PolicyPage, form: FormState) -> Response {
    visit.page(status, |frame, options| pages::policy(frame, data, form, options).into_any())
}

fn typed(form: &Form) -> Vec<(String, String)> {
    ["country", "reason"]
        .iter()
        .map(|name| {
            let text = form.get(name).chars().take(2 * REASON_CHARS_MAX).collect();
            ((*name).to_owned(), text)
        })
        .collect()
}
