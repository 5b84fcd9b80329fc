//! Every whole statement of the store is prepared on both engines.
//!
//! They are found in the sources, by the three ways in which a statement can be made: `same(…)`,
//! `locking!(…)` and `Sql { … }`. A way of writing one that this does not understand fails the test. What
//! [`super::engine::Batch`] puts together of parts is run by the conformance suite.

use std::collections::BTreeSet;

use regex::Regex;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, SqlSafeStr as _};

use super::conformance::Bench;

/// Texts for SQLite and for PostgreSQL.
type Pair = (String, String);

const TEXT: &str = r#""((?:[^"\\]|\\.)*)""#;

fn unescaped(text: &str) -> String {
    let joined = Regex::new(r"\\\n\s*").expect("a pattern").replace_all(text, "").into_owned();
    joined.replace("\\\"", "\"").replace("\\\\", "\\")
}

/// The sources of the store without its tests and without comments.
fn sources() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_test = ["conformance.rs", "plans.rs", "statements.rs", "upgrade.rs"];
        if !name.ends_with(".rs") || is_test.contains(&name.as_str()) {
            continue;
        }
        let text = std::fs::read_to_string(entry.path()).expect("text");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        found.push((name, lines.collect::<Vec<_>>().join("\n")));
    }
    found
}

/// Every statement, and how often each way of making one occurs.
fn statements() -> BTreeSet<Pair> {
    let pattern = |text: &str| Regex::new(&text.replace("TEXT", TEXT)).expect("a pattern");
    let same = pattern(r"\bsame\(\s*TEXT\s*,?\s*\)");
    let concatenated = pattern(r"\bsame\(\s*concat!\(\s*(\w+)!\(\)\s*,\s*TEXT\s*,?\s*\)\s*,?\s*\)");
    let locking = pattern(r"\blocking!\(\s*TEXT\s*,\s*TEXT\s*,?\s*\)");
    let both = pattern(r"\bSql\s*\{\s*sqlite:\s*TEXT\s*,\s*postgres:\s*TEXT\s*,?\s*\}");
    let any_same = pattern(r"\bsame\(");
    let any_locking = pattern(r"\blocking!\(");
    let any_both = pattern(r"\bSql\s*\{\s*sqlite:");
    let mut found = BTreeSet::new();
    for (name, code) in sources() {
        // The makers themselves.
        let code = if name == "engine.rs" { String::new() } else { code };
        let mut count = [0; 3];
        for text in same.captures_iter(&code) {
            count[0] += 1;
            found.insert((unescaped(&text[1]), unescaped(&text[1])));
        }
        for parts in concatenated.captures_iter(&code) {
            count[0] += 1;
            let head =
                pattern(&format!(r"macro_rules!\s+{}\s*\{{\s*\(\)\s*=>\s*\{{\s*TEXT", &parts[1]));
            let head = head.captures(&code).map(|text| unescaped(&text[1]));
            let text = head.expect("a macro of this file") + &unescaped(&parts[2]);
            found.insert((text.clone(), text));
        }
        for text in locking.captures_iter(&code) {
            count[1] += 1;
            let plain = unescaped(&text[1]);
            found.insert((plain.clone(), format!("{plain} {}", unescaped(&text[2]))));
        }
        for text in both.captures_iter(&code) {
            count[2] += 1;
            found.insert((unescaped(&text[1]), unescaped(&text[2])));
        }
        let all = [&any_same, &any_locking, &any_both].map(|any| any.find_iter(&code).count());
        assert_eq!(count, all, "{name} makes a statement in a way that is not understood here");
    }
    found
}

fn is_whole(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    matches!(first, "SELECT" | "INSERT" | "UPDATE" | "DELETE" | "WITH")
}

#[tokio::test]
async fn every_statement_is_prepared_on_sqlite() {
    let b = Bench::sqlite().await;
    let mut connection = sqlx::SqliteConnection::connect(&b.url).await.expect("opens");
    let all = statements();
    assert!(all.len() > 60, "only {} were found", all.len());
    for (text, _) in all.into_iter().filter(|(text, _)| is_whole(text)) {
        let prepared = connection.prepare(AssertSqlSafe(text.clone()).into_sql_str()).await;
        assert!(
            prepared.is_ok(),
            "{text}: {}",
            prepared.err().map(|e| e.to_string()).unwrap_or_default()
        );
    }
}

#[tokio::test]
async fn every_statement_is_prepared_on_postgresql() {
    let Some(b) = Bench::postgres().await else { return };
    let mut connection = sqlx::PgConnection::connect(&b.url).await.expect("opens");
    for (_, text) in statements().into_iter().filter(|(_, text)| is_whole(text)) {
        if let Err(error) = connection.prepare(AssertSqlSafe(text.clone()).into_sql_str()).await {
            // The type of a placeholder comes with its value; everything else has been checked by then.
            let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
            let is_typed_later = ["42P18", "42P08"].contains(&code.as_ref());
            assert!(is_typed_later, "{text}: {error}");
        }
    }
}
