//! `/log`: what operators looked at and did, to read and to take away.

use app::model::{ActGroup, Detail, Fact, FactKind, LogFilter, LogPage};
use app::pages;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use leptos::prelude::IntoAny as _;

use super::search::read_instant;
use super::ui::{Form, Trouble, Visit};
use crate::keys;
use crate::spreadsheet::neutral;
use crate::store::LogSearch;
use crate::text::looks_like_personal_data;

/// Acts of one page.
const ROWS_MAX: usize = 50;

/// Acts of one file.
const EXPORT_ROWS_MAX: u64 = 10_000;

/// Acts that are read at a time for a file.
const EXPORT_PAGE: usize = 1_000;

/// What is asked for, and what of it was not understood.
struct Asked {
    filter: LogFilter,
    search: LogSearch,
    problems: Vec<String>,
}

fn read(fields: &[(String, String)]) -> Asked {
    let field = |name: &str| {
        fields.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value.trim())
    };
    let mut problems = Vec::new();
    let mut filter = LogFilter::default();
    let mut search = LogSearch { limit: ROWS_MAX, ..LogSearch::default() };
    if !field("group").is_empty() {
        filter.group = field("group").parse::<ActGroup>().ok();
        search.group = filter.group;
        if filter.group.is_none() {
            problems.push("There is no such group of acts.".to_owned());
        }
    }
    let actor = field("actor");
    let is_actor = (1..=160).contains(&actor.len())
        && actor
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-'))
        && !looks_like_personal_data(actor);
    if is_actor {
        actor.clone_into(&mut filter.actor);
        search.actor = Some(actor.to_owned());
    } else if !actor.is_empty() {
        problems
            .push("Whoever acted is named as operator:id, client:id, cli or system.".to_owned());
    }
    for (name, typed, at) in [
        ("after", &mut filter.after, &mut search.after),
        ("before", &mut filter.before, &mut search.before),
    ] {
        let text = field(name);
        *at = read_instant(text);
        if at.is_some() {
            text.clone_into(typed);
        } else if !text.is_empty() {
            problems.push(format!("{name}: write it as 2026-03-14T03:00, in UTC."));
        }
    }
    let cursor = field("cursor");
    search.cursor = cursor.parse().ok();
    if !cursor.is_empty() && search.cursor.is_none() {
        problems.push("The link to a further page is damaged; this is the first one.".to_owned());
    }
    Asked { filter, search, problems }
}

/// `GET /log`
pub(super) async fn show(visit: &Visit<'_>) -> Result<Response, Trouble> {
    let asked = read(&visit.asked.query());
    let store = visit.store();
    visit.record_view("view_log", Detail::default()).await?;
    let listed = store.operators_log(&asked.search).await?;
    let names = store.users().await?.into_iter().map(|user| (user.id, user.email)).collect();
    let data = LogPage {
        is_continued: asked.search.cursor.is_some(),
        next_cursor: listed
            .more
            .then(|| listed.rows.last().map(|fact| fact.seq.to_string()))
            .flatten(),
        total: store.operators_log_count(&asked.search).await?,
        filter: asked.filter,
        problems: asked.problems,
        rows: listed.rows,
        names,
        export_rows_max: EXPORT_ROWS_MAX,
        stale: None,
    };
    Ok(visit.page(StatusCode::OK, |frame, options| pages::log(frame, data, options).into_any()))
}

/// `POST /log`: a file of what the filter lets through. It is made whole and bounded, so that its hash can
/// stand in the fact that says it was taken.
pub(super) async fn export(visit: &Visit<'_>, form: &Form) -> Result<Response, Trouble> {
    let is_csv = match form.get("format") {
        "csv" => true,
        "ndjson" => false,
        _ => return Err(Trouble::NotFound),
    };
    let names = ["group", "actor", "after", "before"];
    let mut asked = read(&form.typed(&names));
    asked.search.limit = EXPORT_PAGE;
    let mut rows: Vec<Fact> = Vec::new();
    let is_whole = loop {
        let listed = visit.store().operators_log(&asked.search).await?;
        asked.search.cursor = listed.rows.last().map(|fact| fact.seq);
        rows.extend(listed.rows);
        if !listed.more {
            break true;
        }
        if rows.len() as u64 >= EXPORT_ROWS_MAX {
            break false;
        }
    };
    let file = if is_csv { csv_file(&rows) } else { ndjson_file(&rows) };
    let Some(file) = file else {
        return Err(Trouble::Fault("the log could not be written as a file"));
    };
    let hash = keys::sha256(&file);
    let format = if is_csv { "csv" } else { "ndjson" };
    let detail = Detail::default()
        .code("what", "export_log")
        .code("format", format)
        .code("sha256", &hash)
        .number("rows", i64::try_from(rows.len()).unwrap_or(i64::MAX));
    visit.store().note(FactKind::Operator, &visit.visitor.actor(), detail).await?;
    Ok(answer(visit, file, is_csv, &hash, &rows, is_whole))
}

fn answer(
    visit: &Visit<'_>,
    file: Vec<u8>,
    is_csv: bool,
    hash: &str,
    rows: &[Fact],
    is_whole: bool,
) -> Response {
    let name = |at: app::model::Stamp| {
        at.to_string().chars().take(19).filter(|c| c.is_ascii_alphanumeric()).collect::<String>()
    };
    let first = rows.last().map_or(visit.asked.now, |fact| fact.at);
    let last = rows.first().map_or(visit.asked.now, |fact| fact.at);
    let ending = if is_csv { "csv" } else { "ndjson" };
    let part = if is_whole { "" } else { "-newest" };
    let disposition = format!(
        "attachment; filename=\"sendonce-log-{}Z-{}Z{part}.{ending}\"",
        name(first),
        name(last)
    );
    let media =
        if is_csv { "text/csv; charset=utf-8; header=present" } else { "application/x-ndjson" };
    let mut response = (StatusCode::OK, Body::from(file)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    for (name, value) in [
        (header::CONTENT_DISPOSITION, disposition),
        (header::HeaderName::from_static("x-sendonce-sha256"), hash.to_owned()),
    ] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
    response
}

/// One fact a line, exact.
fn ndjson_file(rows: &[Fact]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for fact in rows {
        serde_json::to_writer(&mut out, fact).ok()?;
        out.push(b'\n');
    }
    Some(out)
}

/// For spreadsheets: no cell of it is taken for a formula.
fn csv_file(rows: &[Fact]) -> Option<Vec<u8>> {
    let mut writer =
        csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
    writer.write_record(["seq", "at", "actor", "kind", "what", "detail"]).ok()?;
    for fact in rows {
        let detail = serde_json::to_string(&fact.detail).ok()?;
        let what = fact.detail.get_code("what").unwrap_or_default().to_owned();
        let cells = [
            fact.seq.to_string(),
            fact.at.to_string(),
            fact.actor.clone(),
            fact.kind.to_string(),
            what,
            detail,
        ];
        writer.write_record(cells.iter().map(|cell| neutral(cell).into_owned())).ok()?;
    }
    writer.into_inner().ok()
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn a_filter_is_read_as_far_as_it_is_understood() {
        let fields = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
        };
        let asked =
            read(&fields(&[("group", "lookup"), ("actor", "operator:0193"), ("cursor", "7")]));
        assert!(asked.problems.is_empty());
        assert_eq!(
            (asked.search.actor.as_deref(), asked.search.cursor),
            (Some("operator:0193"), Some(7))
        );
        let bad = fields(&[
            ("group", "x"),
            ("actor", "user@example.com"),
            ("after", "soon"),
            ("cursor", "-"),
        ]);
        let asked = read(&bad);
        assert_eq!(asked.problems.len(), 4);
        assert_eq!(asked.filter.href(None), "/log");
        assert!(!format!("{:?}", asked.problems).contains("example"));
    }
}
