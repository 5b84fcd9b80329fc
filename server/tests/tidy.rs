//! Rules of the house that a compiler cannot keep.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use app::model::{FactKind, Reason};

/// The longest a source file may be, tests apart: beyond it, it has several jobs.
const LINES_MAX: usize = 900;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_path_buf()
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.extension().is_some_and(|e| e == ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The code of a file without its unit tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("text");
    match text.find("#[cfg(test)]\nmod tests {") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

fn is_test(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    matches!(name, "tests.rs" | "conformance.rs" | "testing.rs" | "samples.rs")
}

fn sources() -> Vec<PathBuf> {
    let mut all = files(&root().join("server/src"), "rs");
    all.extend(files(&root().join("app/src"), "rs"));
    all.retain(|path| !is_test(path));
    all
}

fn offenders(is_bad: impl Fn(&Path, &str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for path in sources() {
        for (number, line) in code(&path).lines().enumerate() {
            let line = line.trim_start();
            if !line.starts_with("//") && is_bad(&path, line) {
                found.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    found
}

#[test]
fn sql_stands_in_the_store_alone() {
    let found = offenders(|path, line| {
        !path.components().any(|part| part.as_os_str() == "store")
            && ["\"SELECT ", "\"INSERT INTO", "\"UPDATE ", "\"DELETE FROM", "sqlx::"]
                .iter()
                .any(|word| line.contains(word))
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn only_the_clock_reads_time_and_only_entropy_is_random() {
    let found = offenders(|path, line| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        !matches!(name, "clock.rs" | "entropy.rs")
            && ["SystemTime::now", "Instant::now", "Timestamp::now", "getrandom::", "thread_rng"]
                .iter()
                .any(|word| line.contains(word))
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn nothing_is_left_to_do_and_nothing_is_skipped() {
    let words =
        [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("#[ig", "nore"), concat!("to", "do!(")];
    let mut found = Vec::new();
    for folder in ["server", "app", "xtask"] {
        for path in files(&root().join(folder), "rs") {
            let text = fs::read_to_string(&path).expect("text");
            for word in words {
                if text.contains(word) {
                    found.push(format!("{}: {word}", path.display()));
                }
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_source_file_has_grown_over_its_limit() {
    let found: Vec<String> = sources()
        .into_iter()
        .map(|path| (code(&path).lines().count(), path))
        .filter(|(lines, _)| *lines > LINES_MAX)
        .map(|(lines, path)| format!("{}: {lines} lines", path.display()))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn domain_knows_nothing_but_the_model() {
    let folder = root().join("server/src/domain");
    for path in files(&folder, "rs").into_iter().filter(|path| !is_test(path)) {
        for line in code(&path).lines().filter(|line| line.starts_with("use ")) {
            let known = ["use app::model", "use super::", "use Reason as R", "use State::"];
            assert!(known.iter().any(|word| line.starts_with(word)), "{}: {line}", path.display());
        }
    }
}

#[test]
fn each_migration_stands_for_both_engines_with_the_same_tables_and_columns() {
    let names = |engine: &str| -> Vec<String> {
        files(&root().join("migrations").join(engine), "sql")
            .iter()
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
            .collect()
    };
    assert_eq!(names("sqlite"), names("postgres"));
    assert!(!names("sqlite").is_empty());
}

#[test]
fn every_reason_and_every_kind_of_fact_is_explained() {
    let text =
        fs::read_to_string(root().join("docs/reason-codes.md")).expect("docs/reason-codes.md");
    let titles: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.trim_start_matches('#').trim().split('`').nth(1).map(str::to_owned))
        .collect();
    for reason in Reason::ALL {
        assert!(titles.contains(reason.as_str()), "no section for the reason {reason}");
    }
    for kind in FactKind::ALL {
        assert!(text.contains(&format!("`{kind}`")), "no word about facts of kind {kind}");
    }
}

#[test]
fn the_project_speaks_of_itself_alone() {
    let words = [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/")];
    let mut found = Vec::new();
    for (folder, ending) in [
        ("server", "rs"),
        ("app", "rs"),
        ("xtask", "rs"),
        ("scripts", "sh"),
        ("docs", "md"),
        ("style", "css"),
    ] {
        for path in files(&root().join(folder), ending) {
            let text = fs::read_to_string(&path).expect("text");
            for word in words {
                if text.contains(word) {
                    found.push(format!("{}: {word}", path.display()));
                }
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
