//! The pages of the watch: the objective, the alerts.

use app::model::{AlertsPage, FormState, Permission};
use app::pages;
use axum::http::StatusCode;
use axum::response::Response;
use leptos::prelude::IntoAny as _;

use super::api::settled;
use super::render;
use super::ui::{Form, Trouble, Visit};
use crate::slo::capacity::{self, Ask};
use crate::slo::{objective, runbook, tell};
use crate::text::looks_like_personal_data;

/// As the form has it.
const REASON_CHARS_MAX: usize = 500;

/// `GET /slo`
pub(super) async fn slo(visit: &Visit<'_>) -> Result<Response, Trouble> {
    let config = &visit.state.parts.config;
    let data = objective::page(visit.store(), config, visit.asked.now).await?;
    Ok(visit.page(StatusCode::OK, |frame, options| pages::slo(frame, data, options).into_any()))
}

/// `GET /capacity`
pub(super) async fn capacity(visit: &Visit<'_>) -> Result<Response, Trouble> {
    let load = capacity::observe(visit.store(), visit.asked.now).await?;
    let data = capacity::plan(&load, &Ask::default(), &visit.state.parts.config);
    Ok(visit
        .page(StatusCode::OK, |frame, options| pages::capacity(frame, data, options).into_any()))
}

/// `GET /runbook`
pub(super) fn runbook(visit: &Visit<'_>) -> Response {
    let data = runbook::page();
    visit.page(StatusCode::OK, |frame, options| pages::runbook(frame, data, options).into_any())
}

async fn read(visit: &Visit<'_>) -> Result<AlertsPage, Trouble> {
    let store = visit.store();
    let mut open = store.open_alerts().await?;
    // Firing before acknowledged before pending, pages before tickets, the oldest first.
    open.sort_by_key(|alert| {
        let state = match alert.state {
            app::model::AlertState::Firing => 0,
            app::model::AlertState::Acknowledged => 1,
            _ => 2,
        };
        (state, alert.severity, alert.opened_at)
    });
    Ok(AlertsPage {
        open,
        past: store.past_alerts().await?,
        troubles: store.delivery_troubles().await?,
        targets: tell::targets(&visit.state.parts.config),
        may_acknowledge: visit.role().may(Permission::Freeze),
        action_key: visit.state.parts.entropy.hex(16),
    })
}

fn page(visit: &Visit<'_>, status: StatusCode, data: AlertsPage, form: FormState) -> Response {
    visit.page(status, |frame, options| pages::alerts(frame, data, form, options).into_any())
}

fn typed(form: &Form) -> Vec<(String, String)> {
    ["alert", "reason"]
        .iter()
        .map(|name| {
            let text = form.get(name).chars().take(2 * REASON_CHARS_MAX).collect();
            ((*name).to_owned(), text)
        })
        .collect()
}

/// `GET /alerts`
pub(super) async fn alerts(visit: &Visit<'_>) -> Result<Response, Trouble> {
    let data = read(visit).await?;
    let query = visit.asked.query();
    let done =
        query.iter().find(|(name, _)| name == "done").map_or("", |(_, value)| value.as_str());
    let notice = match done {
        "acknowledged" => Some("Acknowledged. It stays open until its condition is over."),
        "too_late" => Some("This alert was not firing any more; nothing was done."),
        "repeated" => Some("This form was sent before; it acts once."),
        _ => None,
    };
    let form = FormState { notice: notice.map(str::to_owned), ..FormState::default() };
    Ok(page(visit, StatusCode::OK, data, form))
}

/// `POST /alerts` with a token that is not this session's.
pub(super) async fn stale(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    let problem = "This form was out of date and nothing was done. It has been reloaded with what you typed: send it \
                   again.";
    let state =
        FormState { problem: Some(problem.to_owned()), typed: typed(form), ..FormState::default() };
    Ok(page(visit, StatusCode::FORBIDDEN, read(visit).await?, state))
}

/// `POST /alerts`
pub(super) async fn acknowledge(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    // Browsers send line breaks as CR LF.
    let reason = form.get("reason").replace("\r\n", "\n").trim().to_owned();
    if let Some(fault) = fault(&reason) {
        let state = FormState {
            problem: Some("Nothing was done. Mend what is marked and send it again.".to_owned()),
            fields: vec![("reason".to_owned(), fault.to_owned())],
            typed: typed(form),
            notice: None,
        };
        return Ok(page(visit, StatusCode::UNPROCESSABLE_ENTITY, read(visit).await?, state));
    }
    let key = form.get("action_key");
    let is_key = (16..=256).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_alphanumeric());
    if !is_key {
        return stale(visit, form).await;
    }
    let store = visit.store();
    let done = if settled(|| store.use_action_key(key)).await? {
        let actor = visit.visitor.actor();
        let is_done = settled(|| store.acknowledge(form.get("alert"), &actor, &reason)).await?;
        visit.state.parts.wakeups.changed();
        if is_done { "acknowledged" } else { "too_late" }
    } else {
        "repeated"
    };
    Ok(render::see_other(&format!("/alerts?done={done}")))
}

/// What is wrong with free text that is kept.
fn fault(reason: &str) -> Option<&'static str> {
    if reason.is_empty() {
        Some("Say what you know, in a few words.")
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
