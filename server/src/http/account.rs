//! `/account`: one's own password, second factor and sessions.

use app::model::{AccountPage, FactorView, FormState, SessionView};
use app::pages;
use axum::http::StatusCode;
use axum::response::Response;
use leptos::prelude::IntoAny as _;
use zeroize::Zeroizing;

use super::admin::{is_key, refused};
use super::api::settled;
use super::ui::{Form, Trouble, Visit};
use super::{factor, login, render, session};
use crate::password::fault_of;
use crate::store::User;

const STALE: &str =
    "This form was out of date and nothing was done. It has been reloaded: send it again.";
const WRONG_PASSWORD: &str = "This is not your password.";
const BUSY: &str = "Too many people are signing in at once. Try again in a moment.";

/// `GET /account`
pub(super) async fn show(visit: &Visit<'_>) -> Result<Response, Trouble> {
    let notice = match visit.asked.query().iter().find(|(name, _)| name == "done") {
        Some((_, done)) => match done.as_str() {
            "password" => Some("Your password is changed. Your other sessions have ended."),
            "ended" => Some("Signed out there."),
            "dropped" => Some("The second factor is removed."),
            "repeated" => Some("This form was sent before; it acts once."),
            _ => None,
        },
        None => None,
    };
    let form = FormState { notice: notice.map(str::to_owned), ..FormState::default() };
    page(visit, StatusCode::OK, form, FactorView::default()).await
}

/// `POST /account` with a token that is not this session's. Passwords are not given back.
pub(super) async fn stale(visit: &Visit<'_>) -> Result<Response, Trouble> {
    let form = FormState { problem: Some(STALE.to_owned()), ..FormState::default() };
    page(visit, StatusCode::FORBIDDEN, form, FactorView::default()).await
}

/// What cannot be read as one of our forms.
async fn no_form(visit: &Visit<'_>) -> Result<Response, Trouble> {
    let form = FormState { problem: Some(STALE.to_owned()), ..FormState::default() };
    page(visit, StatusCode::UNPROCESSABLE_ENTITY, form, FactorView::default()).await
}

async fn page(
    visit: &Visit<'_>,
    status: StatusCode,
    form: FormState,
    shown: FactorView,
) -> Result<Response, Trouble> {
    let (store, visitor) = (visit.store(), &visit.visitor);
    let config = &visit.state.parts.config;
    let known = store.factor(&visitor.operator.id).await?;
    let in_force = known.as_ref().and_then(|factor| factor.confirmed_at);
    let data = AccountPage {
        form,
        action_key: visit.state.parts.entropy.hex(16),
        sessions: sessions(visit).await?,
        factor: FactorView {
            confirmed_at: in_force,
            recovery_left: known.map_or(0, |factor| factor.recovery_left),
            ..shown
        },
        is_external: visitor.is_external,
        // What was owed when the request came may be done by now.
        owes: match visitor.owes(config) {
            Some(app::model::Owes::SecondFactor) if in_force.is_some() => None,
            owes => owes,
        },
        factor_required: config.auth.totp_required_roles.contains(&visitor.operator.role),
    };
    Ok(visit.page(status, |frame, options| pages::account(frame, data, options).into_any()))
}

async fn sessions(visit: &Visit<'_>) -> Result<Vec<SessionView>, Trouble> {
    let rows = visit.store().sessions_of(&visit.visitor.operator.id).await?;
    let own = &visit.visitor.session_hash;
    let mut views: Vec<SessionView> =
        rows.iter().filter_map(|row| session::listed(row, own)).collect();
    views.sort_by_key(|view| (!view.is_this, std::cmp::Reverse(view.seen_at)));
    Ok(views)
}

/// `POST /account`
pub(super) async fn act(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    let key = form.get("action_key");
    if !is_key(key) {
        return no_form(visit).await;
    }
    let Some(user) = visit.store().user_by_id(&visit.visitor.operator.id).await? else {
        return Err(Trouble::NotFound);
    };
    match form.get("act") {
        "password" => change_password(visit, form, &user).await,
        "factor_begin" => begin_factor(visit, form, &user).await,
        "factor_confirm" => confirm_factor(visit, form, &user).await,
        "factor_drop" => drop_factor(visit, form, &user).await,
        "session_end" => end_sessions(visit, key, Some(form.get("session"))).await,
        "sessions_end" => end_sessions(visit, key, None).await,
        _ => no_form(visit).await,
    }
}

async fn refuse(
    visit: &Visit<'_>,
    fields: &[(&str, &str)],
    shown: FactorView,
) -> Result<Response, Trouble> {
    page(visit, StatusCode::UNPROCESSABLE_ENTITY, refused(fields, Vec::new()), shown).await
}

/// Whether this is the operator's password. Failures count as failed sign-ins do, so that a browser left open
/// is no place to guess it; `Err` holds the answer where it may not even be tried.
async fn knows_password(
    visit: &Visit<'_>,
    typed: &str,
    user: &User,
) -> Result<Result<bool, Response>, Trouble> {
    let store = visit.store();
    let subjects = [login::account_subject(&visit.state.parts.keys, &user.email)];
    if store.login_blocked_to(&subjects).await?.is_some() {
        let form = FormState {
            problem: Some("Too many failed tries. Wait a little and try again.".to_owned()),
            ..FormState::default()
        };
        let blocked = page(visit, StatusCode::TOO_MANY_REQUESTS, form, FactorView::default());
        return Ok(Err(blocked.await?));
    }
    let Ok(turn) = visit.state.passwords.turn().await else {
        let form = FormState { problem: Some(BUSY.to_owned()), ..FormState::default() };
        let busy = page(visit, StatusCode::SERVICE_UNAVAILABLE, form, FactorView::default());
        return Ok(Err(busy.await?));
    };
    let is_right =
        turn.verify(Zeroizing::new(typed.to_owned()), Some(user.password_hash.clone())).await;
    if !is_right {
        store.login_failed(&subjects).await?;
    }
    Ok(Ok(is_right))
}

async fn change_password(visit: &Visit<'_>, form: &Form, user: &User) -> Result<Response, Trouble> {
    let new = form.get("new");
    if let Some(fault) = fault_of(new, &user.email) {
        return refuse(visit, &[("new", fault)], FactorView::default()).await;
    }
    if new != form.get("again") {
        let fields = [("again", "The two are not the same.")];
        return refuse(visit, &fields, FactorView::default()).await;
    }
    if new == form.get("current") {
        return refuse(visit, &[("new", "Choose another one.")], FactorView::default()).await;
    }
    match knows_password(visit, form.get("current"), user).await? {
        Err(response) => return Ok(response),
        Ok(false) => {
            return refuse(visit, &[("current", WRONG_PASSWORD)], FactorView::default()).await;
        }
        Ok(true) => {}
    }
    let Ok(hash) = visit.state.passwords.hash(Zeroizing::new(new.to_owned())).await else {
        let form = FormState { problem: Some(BUSY.to_owned()), ..FormState::default() };
        return page(visit, StatusCode::SERVICE_UNAVAILABLE, form, FactorView::default()).await;
    };
    let (store, visitor) = (visit.store(), &visit.visitor);
    let keep = Some(visitor.session_hash.as_str());
    let actor = visitor.actor();
    settled(|| store.set_password_as(&actor, &user.id, &hash, false, keep)).await?;
    let Some(user) = store.user_by_id(&user.id).await? else { return Err(Trouble::NotFound) };
    session::rebind(&visit.asked.session, &user, &visit.state.parts.keys).await?;
    Ok(render::see_other("/account?done=password"))
}

async fn begin_factor(visit: &Visit<'_>, form: &Form, user: &User) -> Result<Response, Trouble> {
    match knows_password(visit, form.get("confirm_password"), user).await? {
        Err(response) => return Ok(response),
        Ok(false) => {
            let fields = [("confirm_password", WRONG_PASSWORD)];
            return refuse(visit, &fields, FactorView::default()).await;
        }
        Ok(true) => {}
    }
    let nonce = visit.state.parts.entropy.hex(16);
    if !settled(|| visit.store().begin_factor(&user.id, &nonce)).await? {
        return Ok(render::see_other("/account?done=repeated"));
    }
    let shown = enrolment(visit, user, &nonce);
    page(visit, StatusCode::OK, FormState::default(), shown).await
}

fn enrolment(visit: &Visit<'_>, user: &User, nonce: &str) -> FactorView {
    let totp = factor::generator(&visit.state.parts.keys, &user.id, nonce, &user.email);
    let enrolment = totp.as_ref().and_then(factor::picture);
    FactorView { enrolment, ..FactorView::default() }
}

async fn confirm_factor(visit: &Visit<'_>, form: &Form, user: &User) -> Result<Response, Trouble> {
    let (store, parts) = (visit.store(), &visit.state.parts);
    let begun = store.factor(&user.id).await?.filter(|factor| factor.confirmed_at.is_none());
    let Some(begun) = begun else { return Ok(render::see_other("/account?done=repeated")) };
    let step = factor::generator(&parts.keys, &user.id, &begun.nonce, &user.email)
        .and_then(|totp| factor::step_of(&totp, form.get("code"), visit.asked.now));
    let Some(step) = step else {
        let fields = [(
            "code",
            "This code is not right. Wait for the next one, and check the device’s clock.",
        )];
        return refuse(visit, &fields, enrolment(visit, user, &begun.nonce)).await;
    };
    let codes = factor::recovery_codes(parts.entropy.as_ref());
    let hashes: Vec<String> =
        codes.iter().map(|code| factor::recovery_hash(&parts.keys, &user.id, code)).collect();
    let actor = visit.visitor.actor();
    let confirmed =
        settled(|| store.confirm_factor(&actor, &user.id, &begun.nonce, step, &hashes)).await?;
    if !confirmed {
        return Ok(render::see_other("/account?done=repeated"));
    }
    let notice = "The second factor is on. It is asked for at your next sign-in.".to_owned();
    let form = FormState { notice: Some(notice), ..FormState::default() };
    let shown = FactorView { recovery_codes: codes, ..FactorView::default() };
    page(visit, StatusCode::OK, form, shown).await
}

async fn drop_factor(visit: &Visit<'_>, form: &Form, user: &User) -> Result<Response, Trouble> {
    let required = &visit.state.parts.config.auth.totp_required_roles;
    if required.contains(&visit.visitor.operator.role) {
        return Ok(render::see_other("/account"));
    }
    match knows_password(visit, form.get("confirm_password"), user).await? {
        Err(response) => return Ok(response),
        Ok(false) => {
            let fields = [("confirm_password", WRONG_PASSWORD)];
            return refuse(visit, &fields, FactorView::default()).await;
        }
        Ok(true) => {}
    }
    let actor = visit.visitor.actor();
    settled(|| visit.store().drop_factor(&actor, &user.id)).await?;
    Ok(render::see_other("/account?done=dropped"))
}

/// Ends one other session, or all others. One's own is ended by signing out.
async fn end_sessions(
    visit: &Visit<'_>,
    key: &str,
    handle: Option<&str>,
) -> Result<Response, Trouble> {
    let (store, visitor) = (visit.store(), &visit.visitor);
    if !settled(|| store.use_action_key(key)).await? {
        return Ok(render::see_other("/account?done=repeated"));
    }
    let rows = store.sessions_of(&visitor.operator.id).await?;
    let hashes: Vec<String> = rows
        .into_iter()
        .map(|row| row.hash)
        .filter(|hash| *hash != visitor.session_hash)
        .filter(|hash| handle.is_none_or(|handle| handle.len() == 16 && hash.starts_with(handle)))
        .collect();
    let actor = visitor.actor();
    settled(|| store.end_sessions_as(&actor, &visitor.operator.id, &hashes)).await?;
    Ok(render::see_other("/account?done=ended"))
}
