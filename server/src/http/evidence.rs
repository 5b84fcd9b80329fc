//! `/evidence`: the form for evidence packs. The command line makes the same bytes.

use app::model::{ActGroup, EvidencePage, EvidenceVerdict, FactKind, FormState};
use app::pages;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use leptos::prelude::IntoAny as _;

use super::search::read_instant;
use super::ui::{Form, Trouble, Visit};
use crate::evidence::pack::{self, Pack, PackError};
use crate::store::{LogSearch, Selection};
use crate::text::looks_like_personal_data;

/// Packs that the page names.
const TAKEN_MAX: usize = 10;
/// Acts that are looked through for them.
const ACTS_MAX: usize = 50;

const STALE: &str = "This form was out of date and nothing was done. It has been reloaded with what you typed: send it \
                     again.";

/// `GET /evidence`
pub(super) async fn show(visit: &Visit<'_>) -> Result<Response, Trouble> {
    visit.record_view("view_evidence", app::model::Detail::default()).await?;
    let query = visit.asked.query();
    let typed = ["id", "seller"]
        .iter()
        .filter_map(|name| {
            let (_, value) = query.iter().find(|(field, _)| field == name)?;
            is_handle(value).then(|| ((*name).to_owned(), value.clone()))
        })
        .collect();
    page(visit, StatusCode::OK, FormState { typed, ..FormState::default() }).await
}

/// `POST /evidence` with a token that is not this session's.
pub(super) async fn stale(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    let state =
        FormState { problem: Some(STALE.to_owned()), typed: typed(form), ..FormState::default() };
    page(visit, StatusCode::FORBIDDEN, state).await
}

/// `POST /evidence`: the pack, whole and bounded, so that its hash can stand in the fact that says it was
/// taken.
pub(super) async fn export(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    let what = match selection(visit, form).await? {
        Ok(what) => what,
        Err((field, problem)) => {
            let state = FormState {
                problem: Some("Nothing was made. Mend what is marked and send it again.".into()),
                fields: vec![(field.to_owned(), problem.to_owned())],
                typed: typed(form),
                notice: None,
            };
            return page(visit, StatusCode::UNPROCESSABLE_ENTITY, state).await;
        }
    };
    let parts = &visit.state.parts;
    pack::wait_for_seal(visit.store(), &what, &*parts.clock).await?;
    let facts_max = parts.config.evidence.pack_facts_max;
    match pack::make(visit.store(), &parts.sealer, &what, facts_max).await {
        Ok(pack) => {
            let detail = pack::export_detail(&what, &pack);
            visit.store().note(FactKind::Operator, &visit.visitor.actor(), detail).await?;
            Ok(answer(visit, pack))
        }
        Err(PackError::Store(error)) => Err(error.into()),
        Err(PackError::Nothing) => {
            let problem = "There is no sealed fact of this.";
            let state = FormState {
                problem: Some(problem.to_owned()),
                typed: typed(form),
                ..FormState::default()
            };
            page(visit, StatusCode::NOT_FOUND, state).await
        }
        Err(PackError::Write(_)) => Err(Trouble::Fault("the pack could not be written")),
    }
}

fn is_handle(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-'))
        && !looks_like_personal_data(text)
}

/// What was typed, but for personal data.
fn typed(form: &Form) -> Vec<(String, String)> {
    ["id", "seller", "from", "to"]
        .iter()
        .map(|name| ((*name).to_owned(), form.get(name).trim().to_owned()))
        .filter(|(_, value)| value.len() <= 128 && !looks_like_personal_data(value))
        .collect()
}

/// What the form asks for, or the field that says it wrongly.
async fn selection(
    visit: &Visit<'_>,
    form: &Form,
) -> Result<Result<Selection, (&'static str, &'static str)>, Trouble> {
    let field = |name: &str| form.get(name).trim().to_owned();
    let (id, seller, from, to) = (field("id"), field("seller"), field("from"), field("to"));
    let asked = [!id.is_empty(), !seller.is_empty(), !from.is_empty() || !to.is_empty()];
    if asked.iter().filter(|is_asked| **is_asked).count() != 1 {
        return Ok(Err(("id", "Name one: an id, a seller, or a time.")));
    }
    if !id.is_empty() {
        if !is_handle(&id) {
            return Ok(Err(("id", "This is no id: 1-128 of A-Z a-z 0-9 . _ : -")));
        }
        let store = visit.store();
        let found = match store.record(&id).await? {
            None => store.record_by_event(&id).await?,
            found => found,
        };
        return Ok(match found {
            Some(record) => Ok(Selection::Record(record.id)),
            None => Err(("id", "There is no notification with this id or event id.")),
        });
    }
    if !seller.is_empty() {
        return Ok(if is_handle(&seller) {
            Ok(Selection::Seller(seller))
        } else {
            Err(("seller", "This is no seller id: 1-128 of A-Z a-z 0-9 . _ : -"))
        });
    }
    Ok(match (read_instant(&from), read_instant(&to)) {
        (None, _) => Err(("from", "Write it as 2026-03-14T03:00, in UTC.")),
        (_, None) => Err(("to", "Write it as 2026-03-14T03:00, in UTC.")),
        (Some(from), Some(to)) if from >= to => Err(("to", "This is not after the beginning.")),
        (Some(from), Some(to)) => Ok(Selection::Time(from, to)),
    })
}

fn answer(visit: &Visit<'_>, pack: Pack) -> Response {
    let at: String =
        visit.asked.now.to_string().chars().take(19).filter(char::is_ascii_alphanumeric).collect();
    let short = pack.sha256.get(..12).unwrap_or_default();
    let name = format!("attachment; filename=\"sendonce-evidence-{at}Z-{short}.zip\"");
    let mut response = (StatusCode::OK, Body::from(pack.bytes)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/zip"));
    for (name, value) in [
        (header::CONTENT_DISPOSITION, name),
        (header::HeaderName::from_static("x-sendonce-sha256"), pack.sha256),
    ] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
    response
}

async fn page(visit: &Visit<'_>, status: StatusCode, form: FormState) -> Result<Response, Trouble> {
    let store = visit.store();
    let head = store.log_head().await?;
    let unsealed = store.unsealed().await?;
    let search =
        LogSearch { group: Some(ActGroup::Export), limit: ACTS_MAX, ..LogSearch::default() };
    let taken = store.operators_log(&search).await?.rows;
    let data = EvidencePage {
        origin: head.origin,
        size: head.size,
        sealed_at: head.sealed_at,
        unsealed: unsealed.count,
        unsealed_since: unsealed.oldest_at,
        verdict: store.verdict().await?.map(|verdict| EvidenceVerdict {
            integrity: verdict.integrity,
            completeness: verdict.completeness,
            size: verdict.size,
            at: verdict.at,
        }),
        facts_max: u64::try_from(visit.state.parts.config.evidence.pack_facts_max).unwrap_or(0),
        taken: taken
            .into_iter()
            .filter(|fact| fact.detail.get_code("what") == Some("export"))
            .take(TAKEN_MAX)
            .collect(),
    };
    Ok(visit.page(status, |frame, options| pages::evidence(frame, data, form, options).into_any()))
}
