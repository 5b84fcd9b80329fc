//! The freeze desk's two forms.
//!
//! A form carries a key that acts once. It is used before the freeze is touched: a second click, or a copy
//! of a reopening that arrives after somebody froze again, does nothing. What the page then says is read from
//! what is in force, never from what was asked.

use app::components::scope_words;
use app::model::{FormState, FreezePage, Permission, Stamp};
use app::pages;
use axum::http::StatusCode;
use axum::response::Response;
use leptos::prelude::IntoAny as _;

use super::api::settled;
use super::ui::{Form, Trouble, Visit};
use super::{render, search};
use crate::store;
use crate::text::looks_like_personal_data;

/// As the form has it.
const REASON_CHARS_MAX: usize = 500;

/// A review further away reminds nobody.
const REVIEW_WITHIN: i64 = 366 * 86_400_000_000;

const FIELDS: &[&str] = &["act", "scope", "reason", "review_at", "confirm"];

/// The key was used before.
const REPEATED: &str = "repeated";

const STALE: &str = "This form was out of date and nothing was done. It has been reloaded with what you typed: check \
                     what is frozen, then send it again.";
const REFUSED: &str = "Nothing was done. Mend what is marked and send it again.";

/// `GET /freeze`
pub(super) async fn show(visit: &Visit<'_>) -> Result<Response, Trouble> {
    let data = read(visit).await?;
    let form = FormState { notice: notice(visit, &data), ..FormState::default() };
    Ok(page(visit, StatusCode::OK, data, form))
}

/// `POST /freeze` with a token that is not this session's.
pub(super) async fn stale(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    let data = read(visit).await?;
    let form =
        FormState { problem: Some(STALE.to_owned()), typed: typed(form), ..FormState::default() };
    Ok(page(visit, StatusCode::FORBIDDEN, data, form))
}

/// `POST /freeze`
pub(super) async fn act(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    let data = read(visit).await?;
    let wanted = match Wanted::read(form, &data, visit.asked.now) {
        Ok(wanted) => wanted,
        Err(fields) => {
            let state = FormState {
                problem: Some(REFUSED.to_owned()),
                fields,
                typed: typed(form),
                notice: None,
            };
            return Ok(page(visit, StatusCode::UNPROCESSABLE_ENTITY, data, state));
        }
    };
    let done = match wanted.carry_out(visit).await {
        Ok(done) => done,
        Err(error) => {
            // This is the brake: what was typed must not be lost because the database stumbled. The page that
            // comes back carries a new key, and shows what is in force, whatever became of the commit.
            let problem = format!(
                "The database did not answer as it should (error id {}). What is shown here is in force; if it is not \
                 what you want, send the form again.",
                visit.state.report(visit.asked.route, &error)
            );
            let data = read(visit).await?;
            let state =
                FormState { problem: Some(problem), typed: typed(form), ..FormState::default() };
            return Ok(page(visit, StatusCode::SERVICE_UNAVAILABLE, data, state));
        }
    };
    let scope = app::model::percent_encoded(&wanted.scope);
    Ok(render::see_other(&format!("/freeze?done={done}&scope={scope}")))
}

async fn read(visit: &Visit<'_>) -> Result<FreezePage, Trouble> {
    let mut data = visit.store().freeze_page(&visit.state.provider_names()).await?;
    data.may_freeze = visit.role().may(Permission::Freeze);
    data.action_key = visit.state.parts.entropy.hex(16);
    Ok(data)
}

fn page(visit: &Visit<'_>, status: StatusCode, data: FreezePage, form: FormState) -> Response {
    visit.page(status, |frame, options| pages::freeze(frame, data, form, options).into_any())
}

/// What was typed, but for personal data: no page holds it, not even the one that refuses it.
fn typed(form: &Form) -> Vec<(String, String)> {
    FIELDS
        .iter()
        .filter(|name| !looks_like_personal_data(form.get(name)))
        .map(|name| {
            // No longer than what could be right, with room to see what is wrong.
            let text = form.get(name).chars().take(2 * REASON_CHARS_MAX).collect();
            ((*name).to_owned(), text)
        })
        .collect()
}

/// What a form asks for, when all of it can be done.
struct Wanted {
    is_freeze: bool,
    scope: String,
    reason: String,
    review_at: Option<Stamp>,
    action_key: String,
}

impl Wanted {
    /// Does it, once for its key, and gives the word for what happened.
    async fn carry_out(&self, visit: &Visit<'_>) -> Result<&'static str, store::Error> {
        let store = visit.store();
        if !settled(|| store.use_action_key(&self.action_key)).await? {
            return Ok(REPEATED);
        }
        let actor = visit.visitor.actor();
        let wakeups = &visit.state.parts.wakeups;
        if self.is_freeze {
            let frozen =
                settled(|| store.freeze(&self.scope, &actor, &self.reason, self.review_at)).await?;
            wakeups.changed();
            Ok(if frozen.is_repeat { "already" } else { "frozen" })
        } else {
            let was_frozen = settled(|| store.unfreeze(&self.scope, &actor, &self.reason)).await?;
            wakeups.all();
            Ok(if was_frozen { "reopened" } else { "was_open" })
        }
    }

    fn read(form: &Form, data: &FreezePage, now: Stamp) -> Result<Self, Vec<(String, String)>> {
        let mut problems: Vec<(String, String)> = Vec::new();
        let mut problem =
            |field: &str, text: &str| problems.push((field.to_owned(), text.to_owned()));
        let is_freeze = match form.get("act") {
            "freeze" => true,
            "reopen" => false,
            // Not one of our forms: nothing is guessed.
            _ => return Err(vec![("scope".to_owned(), "Choose what to freeze.".to_owned())]),
        };
        let scope = form.get("scope").to_owned();
        let is_active = data.active.iter().any(|view| view.freeze.scope == scope);
        // A provider that is not configured any more can still be reopened, not frozen.
        if !(data.scopes.iter().any(|known| known.scope == scope) || (!is_freeze && is_active)) {
            problem("scope", "Choose what to freeze.");
        }
        // Browsers send line breaks as CR LF.
        let reason = form.get("reason").replace("\r\n", "\n").trim().to_owned();
        if reason.is_empty() {
            problem("reason", "Say why, in a few words.");
        } else if reason.chars().count() > REASON_CHARS_MAX {
            problem("reason", "Keep it to 500 characters.");
        } else if reason.chars().any(|c| c.is_control() && c != '\n') {
            problem("reason", "Leave out control characters.");
        } else if looks_like_personal_data(&reason) {
            problem(
                "reason",
                "This contains what looks like an email address or phone number. It would be kept for years: name \
                 the incident instead.",
            );
        }
        let at = form.get("review_at").trim();
        let review_at = if at.is_empty() || !is_freeze { None } else { search::read_instant(at) };
        if is_freeze && !at.is_empty() {
            match review_at {
                None => problem("review_at", "Write it as 2026-03-14T03:00, in UTC."),
                Some(at) if at <= now => problem("review_at", "This time has passed."),
                Some(at) if at.since(now) > REVIEW_WITHIN => {
                    problem("review_at", "Choose a time within a year.")
                }
                Some(_) => {}
            }
        }
        if is_freeze && scope == "all" && form.get("confirm").trim() != "all" {
            problem("confirm", "Type the word all to freeze everything.");
        }
        let action_key = form.get("action_key").to_owned();
        let is_key = (16..=256).contains(&action_key.len())
            && action_key
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        if problems.is_empty() && !is_key {
            problems.push(("action_key".to_owned(), "Send this form again.".to_owned()));
        }
        if problems.is_empty() {
            Ok(Self { is_freeze, scope, reason, review_at, action_key })
        } else {
            Err(problems)
        }
    }
}

/// What was done, in a sentence of ours: of the address only a code and a known scope are used.
fn notice(visit: &Visit<'_>, data: &FreezePage) -> Option<String> {
    let query = visit.asked.query();
    let field = |name: &str| {
        query.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value.as_str())
    };
    let done = field("done");
    if done == REPEATED {
        return Some(
            "This form was sent before; it acts once. What is in force is shown below.".to_owned(),
        );
    }
    let scope = field("scope");
    let active = data.active.iter().find(|view| view.freeze.scope == scope);
    let is_known = active.is_some() || data.scopes.iter().any(|known| known.scope == scope);
    if !is_known {
        return None;
    }
    let words = scope_words(scope);
    match (done, active) {
        ("frozen", Some(view)) => Some(format!(
            "Frozen: {words}. {} in flight.",
            match view.freeze.in_flight {
                0 => "No call was".to_owned(),
                1 => "1 call was".to_owned(),
                n => format!("{n} calls were"),
            }
        )),
        ("already", Some(view)) => Some(format!(
            "{words} was frozen already, by {}. The first reason stays.",
            view.freeze.actor
        )),
        ("reopened", None) => {
            Some(format!("Reopened: {words}. What waited is released at its pace."))
        }
        ("was_open", None) => Some(format!("{words} was not frozen any more.")),
        // Somebody has changed it since: the page shows what is in force.
        _ => None,
    }
}
