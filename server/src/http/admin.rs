//! `/admin/…`: operators, API clients, and what this process runs with.
//!
//! Whatever is changed here is a fact with the admin as its actor, written with the change. Each form acts
//! once. A password or key that is made is part of one answer and of nothing else.

use app::model::{
    ClientsPage, ConfigPage, ConfigSection, Detail, FormState, Role, ShownOnce, UserRow, UsersPage,
};
use app::pages;
use axum::http::StatusCode;
use axum::response::Response;
use leptos::prelude::IntoAny as _;
use zeroize::Zeroizing;

use super::api::settled;
use super::auth::{NewSecret, SCOPES};
use super::factor;
use super::ui::{Form, Trouble, Visit};
use crate::password::address;
use crate::store::{self, Changed};
use crate::text::looks_like_personal_data;

const STALE: &str = "This form was out of date and nothing was done. It has been reloaded with what you typed: send it again.";
const REFUSED: &str = "Nothing was done. Mend what is marked and send it again.";
const REPEATED: &str = "This form was sent before; it acts once. What is in force is shown below.";

/// Characters of a password that is made for somebody: about 99 bits.
const MADE_GROUPS: usize = 4;
const MADE_GROUP_CHARS: usize = 5;

/// The longest name of a client.
const NAME_CHARS_MAX: usize = 64;

/// The one-time key of a form, as we write it.
pub(super) fn is_key(key: &str) -> bool {
    (16..=256).contains(&key.len())
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// A form that was refused: what is wrong, and what was typed.
pub(super) fn refused(fields: &[(&str, &str)], typed: Vec<(String, String)>) -> FormState {
    FormState {
        problem: Some(REFUSED.to_owned()),
        fields: fields
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect(),
        typed,
        notice: None,
    }
}

fn said(notice: impl Into<String>) -> FormState {
    FormState { notice: Some(notice.into()), ..FormState::default() }
}

/// `GET /admin/users`
pub(super) async fn users(visit: &Visit<'_>) -> Result<Response, Trouble> {
    visit.record_view("view_users", Detail::default()).await?;
    users_page(visit, StatusCode::OK, FormState::default(), None).await
}

const USER_FIELDS: &[&str] = &["act", "email", "role"];

/// A form that cannot be read as one of ours, with what was typed.
fn given_back(form: &Form, names: &[&str]) -> FormState {
    FormState { problem: Some(STALE.to_owned()), typed: form.typed(names), ..FormState::default() }
}

/// `POST /admin/users` with a token that is not this session's.
pub(super) async fn stale_users(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    users_page(visit, StatusCode::FORBIDDEN, given_back(form, USER_FIELDS), None).await
}

async fn no_users_form(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    let state = given_back(form, USER_FIELDS);
    users_page(visit, StatusCode::UNPROCESSABLE_ENTITY, state, None).await
}

async fn users_page(
    visit: &Visit<'_>,
    status: StatusCode,
    form: FormState,
    shown_once: Option<ShownOnce>,
) -> Result<Response, Trouble> {
    let data = UsersPage {
        rows: visit.store().user_rows().await?,
        form,
        action_key: visit.state.parts.entropy.hex(16),
        shown_once,
        has_oidc: visit.state.parts.config.oidc.is_some(),
    };
    Ok(visit.page(status, |frame, options| pages::users(frame, data, options).into_any()))
}

/// `POST /admin/users`
pub(super) async fn change_users(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    if !is_key(form.get("action_key")) {
        return no_users_form(visit, form).await;
    }
    if form.get("act") == "add" {
        return add_user(visit, form).await;
    }
    let rows = visit.store().user_rows().await?;
    let row = rows.into_iter().find(|row| row.user.id == form.get("user"));
    let Some(row) = row else {
        let form = FormState {
            problem: Some("There is no such user any more.".to_owned()),
            ..FormState::default()
        };
        return users_page(visit, StatusCode::UNPROCESSABLE_ENTITY, form, None).await;
    };
    // One's own account is changed on its own page, with the password; and nobody locks himself out.
    if row.user.id == visit.visitor.operator.id {
        let form = FormState {
            problem: Some("Another admin has to change your account.".to_owned()),
            ..FormState::default()
        };
        return users_page(visit, StatusCode::UNPROCESSABLE_ENTITY, form, None).await;
    }
    change_user(visit, form, &row).await
}

async fn change_user(visit: &Visit<'_>, form: &Form, row: &UserRow) -> Result<Response, Trouble> {
    let (store, actor) = (visit.store(), visit.visitor.actor());
    let (user_id, email) = (row.user.id.as_str(), row.user.email.as_str());
    let act = form.get("act");
    let role = form.get("role").parse::<Role>().ok();
    let is_known = match act {
        "role" => role.is_some(),
        "reset" => !row.is_external,
        "factor" | "disable" | "enable" => true,
        _ => false,
    };
    if !is_known {
        return no_users_form(visit, form).await;
    }
    if !settled(|| store.use_action_key(form.get("action_key"))).await? {
        return users_page(visit, StatusCode::OK, said(REPEATED), None).await;
    }
    let (changed, done) = match (act, role) {
        ("role", Some(role)) => (
            settled(|| store.set_role(&actor, user_id, role)).await?,
            format!("{email} has the role {} now.", role.spoken()),
        ),
        ("reset", _) => {
            let password = made_password(visit);
            let Some(hash) = hashed(visit, &password).await else {
                return busy_users(visit).await;
            };
            settled(|| store.set_password_as(&actor, user_id, &hash, true, None)).await?;
            let shown = ShownOnce { of: email.to_owned(), secret: password.to_string() };
            let form =
                said(format!("{email} has a new password, and every session of theirs has ended."));
            return users_page(visit, StatusCode::OK, form, Some(shown)).await;
        }
        ("factor", _) => {
            let dropped = settled(|| store.drop_factor(&actor, user_id)).await?;
            let changed = if dropped { Changed::Done } else { Changed::Already };
            (changed, format!("The second factor of {email} is removed."))
        }
        (act, _) => {
            let is_disabled = act == "disable";
            let done = if is_disabled {
                format!("{email} is disabled, and every session of theirs has ended.")
            } else {
                format!("{email} may sign in again.")
            };
            (settled(|| store.set_disabled(&actor, user_id, is_disabled)).await?, done)
        }
    };
    let form = match changed {
        Changed::Done => said(done),
        Changed::Already => said("It was so already."),
        Changed::Unknown => said("There is no such user any more."),
        Changed::LastAdmin => FormState {
            problem: Some("Nothing was done: nobody could manage accounts any more.".to_owned()),
            ..FormState::default()
        },
    };
    users_page(visit, StatusCode::OK, form, None).await
}

async fn add_user(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    let typed = form.typed(USER_FIELDS);
    let unfit = StatusCode::UNPROCESSABLE_ENTITY;
    let Some(email) = address(form.get("email")) else {
        let state = refused(&[("email", "Write it as name@example.com.")], typed);
        return users_page(visit, unfit, state, None).await;
    };
    let Ok(role) = form.get("role").parse::<Role>() else {
        let state = refused(&[("role", "Choose a role.")], typed);
        return users_page(visit, unfit, state, None).await;
    };
    let store = visit.store();
    if store.user_by_email(&email).await?.is_some() {
        let state = refused(&[("email", "There is a user of this address already.")], typed);
        return users_page(visit, unfit, state, None).await;
    }
    if !settled(|| store.use_action_key(form.get("action_key"))).await? {
        return users_page(visit, StatusCode::OK, said(REPEATED), None).await;
    }
    let password = made_password(visit);
    let Some(hash) = hashed(visit, &password).await else { return busy_users(visit).await };
    match store.add_user_as(&visit.visitor.actor(), &email, role, &hash, true).await {
        Ok(_) => {}
        Err(store::Error::Conflict { .. }) => {
            let state = refused(&[("email", "There is a user of this address already.")], typed);
            return users_page(visit, unfit, state, None).await;
        }
        Err(error) => return Err(error.into()),
    }
    let shown = ShownOnce { of: email.clone(), secret: password.to_string() };
    let done = said(format!("{email} may sign in, with the role {}.", role.spoken()));
    users_page(visit, StatusCode::OK, done, Some(shown)).await
}

async fn busy_users(visit: &Visit<'_>) -> Result<Response, Trouble> {
    let form = FormState {
        problem: Some(
            "Too many people are signing in at once. Nothing was done; try again.".to_owned(),
        ),
        ..FormState::default()
    };
    users_page(visit, StatusCode::SERVICE_UNAVAILABLE, form, None).await
}

fn made_password(visit: &Visit<'_>) -> Zeroizing<String> {
    let entropy = visit.state.parts.entropy.as_ref();
    let groups: Vec<String> =
        (0..MADE_GROUPS).map(|_| factor::random(entropy, MADE_GROUP_CHARS)).collect();
    Zeroizing::new(groups.join("-"))
}

async fn hashed(visit: &Visit<'_>, password: &Zeroizing<String>) -> Option<String> {
    visit.state.passwords.hash(password.clone()).await.ok()
}

/// `GET /admin/clients`
pub(super) async fn clients(visit: &Visit<'_>) -> Result<Response, Trouble> {
    visit.record_view("view_clients", Detail::default()).await?;
    clients_page(visit, StatusCode::OK, FormState::default(), None).await
}

const CLIENT_FIELDS: &[&str] = &["act", "name", "scope", "client"];

/// `POST /admin/clients` with a token that is not this session's.
pub(super) async fn stale_clients(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    clients_page(visit, StatusCode::FORBIDDEN, given_back(form, CLIENT_FIELDS), None).await
}

async fn no_clients_form(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    let state = given_back(form, CLIENT_FIELDS);
    clients_page(visit, StatusCode::UNPROCESSABLE_ENTITY, state, None).await
}

async fn clients_page(
    visit: &Visit<'_>,
    status: StatusCode,
    form: FormState,
    shown_once: Option<ShownOnce>,
) -> Result<Response, Trouble> {
    let data = ClientsPage {
        rows: visit.store().clients().await?,
        form,
        action_key: visit.state.parts.entropy.hex(16),
        shown_once,
        scopes: SCOPES.iter().map(|scope| (*scope).to_owned()).collect(),
    };
    Ok(visit.page(status, |frame, options| pages::clients(frame, data, options).into_any()))
}

/// `POST /admin/clients`
pub(super) async fn change_clients(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    let key = form.get("action_key");
    match form.get("act") {
        "add" if is_key(key) => add_client(visit, form).await,
        "revoke" if is_key(key) => revoke_client(visit, form).await,
        _ => no_clients_form(visit, form).await,
    }
}

async fn add_client(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    let unfit = StatusCode::UNPROCESSABLE_ENTITY;
    let name = form.get("name").trim();
    let scopes: Vec<String> = SCOPES
        .iter()
        .filter(|scope| form.all("scope").contains(scope))
        .map(|scope| (*scope).to_owned())
        .collect();
    let is_name = (1..=NAME_CHARS_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-'));
    let mut fields = Vec::new();
    if !is_name {
        fields.push(("name", "Use 1 to 64 letters, digits and . _ : -"));
    } else if looks_like_personal_data(name) {
        fields.push(("name", "This looks like a phone number. Name the program instead."));
    }
    if scopes.is_empty() {
        fields.push(("scope", "Choose what the program may do."));
    }
    let store = visit.store();
    if fields.is_empty() && store.clients().await?.iter().any(|client| client.name == name) {
        fields.push(("name", "There is a client of this name already."));
    }
    if !fields.is_empty() {
        let state = refused(&fields, form.typed(CLIENT_FIELDS));
        return clients_page(visit, unfit, state, None).await;
    }
    if !settled(|| store.use_action_key(form.get("action_key"))).await? {
        return clients_page(visit, StatusCode::OK, said(REPEATED), None).await;
    }
    let secret = NewSecret::generate(visit.state.parts.entropy.as_ref());
    let added = store.add_client_as(&visit.visitor.actor(), name, &scopes, &secret.hash).await;
    let client = match added {
        Ok(client) => client,
        Err(store::Error::Conflict { .. }) => {
            let fields = [("name", "There is a client of this name already.")];
            let state = refused(&fields, form.typed(CLIENT_FIELDS));
            return clients_page(visit, unfit, state, None).await;
        }
        Err(error) => return Err(error.into()),
    };
    let shown = ShownOnce { of: name.to_owned(), secret: secret.key(&client.id) };
    clients_page(visit, StatusCode::OK, said(format!("{name} has a key.")), Some(shown)).await
}

async fn revoke_client(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    let store = visit.store();
    let id = form.get("client");
    let Some(client) = store.clients().await?.into_iter().find(|client| client.id == id) else {
        return no_clients_form(visit, form).await;
    };
    if form.get("confirm").trim() != client.name {
        let state =
            refused(&[("confirm", "Type the name as it stands above.")], form.typed(CLIENT_FIELDS));
        return clients_page(visit, StatusCode::UNPROCESSABLE_ENTITY, state, None).await;
    }
    if !settled(|| store.use_action_key(form.get("action_key"))).await? {
        return clients_page(visit, StatusCode::OK, said(REPEATED), None).await;
    }
    let actor = visit.visitor.actor();
    let state = match settled(|| store.revoke_client_as(&actor, id)).await? {
        Changed::Done => said(format!("The key of {} is revoked.", client.name)),
        _ => said("It was revoked already."),
    };
    clients_page(visit, StatusCode::OK, state, None).await
}

/// `GET /admin/config`
pub(super) async fn configuration(visit: &Visit<'_>) -> Result<Response, Trouble> {
    visit.record_view("view_config", Detail::default()).await?;
    let config = &visit.state.parts.config;
    let (engine, name) = visit.store().describe();
    let data = ConfigPage {
        sections: sections(&config.effective()),
        digest: config.digest(),
        database: format!("{engine} {name}"),
    };
    Ok(visit.page(StatusCode::OK, |frame, options| pages::config(frame, data, options).into_any()))
}

/// The sections of our own TOML, one key a line.
fn sections(text: &str) -> Vec<ConfigSection> {
    let mut sections: Vec<ConfigSection> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            sections.push(ConfigSection { name: name.to_owned(), lines: Vec::new() });
        } else if let (Some((key, value)), Some(section)) =
            (line.split_once(" = "), sections.last_mut())
        {
            section.lines.push((key.to_owned(), value.to_owned()));
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::sections;

    #[test]
    fn the_effective_configuration_is_read_by_sections() {
        let read = sections("[a]\nx = 1\ny = \"b = c\"\n\n[p.q]\ntoken = \"[hidden]\"\n");
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].lines[1], ("y".to_owned(), "\"b = c\"".to_owned()));
        assert_eq!(read[1].name, "p.q");
        assert_eq!(read[1].lines, [("token".to_owned(), "\"[hidden]\"".to_owned())]);
    }
}
