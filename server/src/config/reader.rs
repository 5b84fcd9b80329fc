//! Layers of TOML over one another, and typed reading of the result.
//!
//! Each getter names its key, so that what is left over at the end is unknown. Nothing stops at the first
//! problem, and no message repeats a value: it may be a secret in the wrong place.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use toml::{Table, Value};

use super::{Problem, duration};
use crate::providers::Secret;

/// The largest file that a secret is read from.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// Where a value comes from; later ones win.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Default,
    File,
    Env(String),
}

impl Origin {
    const fn layer(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File => 1,
            Self::Env(_) => 2,
        }
    }
}

/// One value that is no table.
#[derive(Debug, Clone)]
struct Leaf {
    value: Value,
    origin: Origin,
    /// The environment's text, for keys that are text: `TOKEN=1234` is no number.
    raw: Option<String>,
}

/// All layers in one: dotted path to value.
#[derive(Debug, Default)]
pub(super) struct Reader {
    leaves: BTreeMap<String, Leaf>,
    /// Sections that were written, with or without keys.
    sections: BTreeSet<String>,
    known: BTreeSet<String>,
    known_sections: BTreeSet<String>,
    problems: Vec<Problem>,
}

impl Reader {
    /// Lays the embedded defaults.
    pub(super) fn defaults(&mut self, text: &str) {
        match text.parse::<Table>() {
            Ok(table) => self.lay("", table, &Origin::Default),
            Err(error) => self.problem("config.default.toml", error.message(), "report this"),
        }
    }

    /// Lays a file over what is there.
    pub(super) fn file(&mut self, name: &str, text: &str) {
        match text.parse::<Table>() {
            Ok(table) => self.lay("", table, &Origin::File),
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start).min(text.len());
                let before = &text.as_bytes()[..at];
                let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
                // The parser's own picture of the line would show the value that stands in it.
                let message = format!("line {line} is not TOML ({})", first_line(error.message()));
                self.problem(name, &message, "text stands in \"quotes\", sections in [brackets]");
            }
        }
    }

    /// Lays the environment over what is there.
    pub(super) fn environment(&mut self, env: impl Iterator<Item = (String, String)>) {
        let mut named: Vec<(String, String)> = env
            .filter(|(name, _)| name.starts_with("SENDONCE_") && name.contains("__"))
            // Compose files hand on variables that are not set as empty ones.
            .filter(|(_, raw)| !raw.trim().is_empty())
            .collect();
        named.sort();
        for (name, raw) in named {
            let rest = name.strip_prefix("SENDONCE_").unwrap_or(&name);
            let parts: Vec<String> =
                rest.split("__").map(|part| segment(&part.to_lowercase())).collect();
            let path = self.spelled(parts).join(".");
            let value = match raw.trim().parse::<Value>() {
                Ok(value) => value,
                Err(_) => Value::String(raw.clone()),
            };
            let origin = Origin::Env(name);
            match value {
                Value::Table(table) => {
                    self.sections.insert(path.clone());
                    self.lay(&path, table, &origin);
                }
                value => self.put(path, Leaf { value, origin, raw: Some(raw) }),
            }
        }
    }

    /// Lays one text that is never TOML.
    pub(super) fn variable(&mut self, name: &str, path: &str, raw: String) {
        let value = Value::String(raw);
        self.put(path.to_owned(), Leaf { value, origin: Origin::Env(name.to_owned()), raw: None });
    }

    /// Every key that was asked for.
    #[cfg(test)]
    pub(super) const fn known(&self) -> &BTreeSet<String> {
        &self.known
    }

    /// Whether the environment has set a key that begins so.
    pub(super) fn has_variable(&self, prefix: &str) -> bool {
        self.leaves
            .iter()
            .any(|(path, leaf)| path.starts_with(prefix) && matches!(leaf.origin, Origin::Env(_)))
    }

    /// The provider's own spelling of its name, which the environment's capitals do not have.
    fn spelled(&self, mut parts: Vec<String>) -> Vec<String> {
        let flat = |name: &str| name.to_lowercase().replace('-', "_");
        if let [section, name, ..] = parts.as_mut_slice()
            && section == "providers"
            && let Some(own) = self.names("providers").into_iter().find(|own| flat(own) == *name)
        {
            *name = own;
        }
        parts
    }

    fn lay(&mut self, prefix: &str, table: Table, origin: &Origin) {
        for (key, value) in table {
            let key = segment(&key);
            let path = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
            match value {
                Value::Table(inner) => {
                    self.sections.insert(path.clone());
                    self.lay(&path, inner, origin);
                }
                value => self.put(path, Leaf { value, origin: origin.clone(), raw: None }),
            }
        }
    }

    /// A later `x` replaces an earlier `x_file`, and the other way round.
    fn put(&mut self, path: String, leaf: Leaf) {
        let other =
            path.strip_suffix("_file").map_or_else(|| format!("{path}_file"), str::to_owned);
        if self.leaves.get(&other).is_some_and(|old| old.origin.layer() < leaf.origin.layer()) {
            self.leaves.remove(&other);
        }
        self.leaves.insert(path, leaf);
    }

    /// Names of the tables in this section.
    pub(super) fn names(&self, section: &str) -> Vec<String> {
        let under = format!("{section}.");
        let mut names: BTreeSet<String> = BTreeSet::new();
        for path in self.sections.iter().chain(self.leaves.keys()) {
            if let Some(rest) = path.strip_prefix(&under) {
                let (name, is_table) = match rest.split_once('.') {
                    Some((name, _)) => (name, true),
                    None => (rest, self.sections.contains(path)),
                };
                if is_table {
                    names.insert(name.to_owned());
                }
            }
        }
        names.into_iter().collect()
    }

    /// Forgets a table, for one whose name cannot be used.
    pub(super) fn forget(&mut self, section: &str) {
        let under = format!("{section}.");
        self.leaves.retain(|path, _| !path.starts_with(&under));
        self.sections.retain(|path| path != section && !path.starts_with(&under));
    }

    /// Says that this section exists, whatever is in it.
    pub(super) fn section(&mut self, path: &str) {
        self.known_sections.insert(path.to_owned());
    }

    /// Says that this key exists.
    pub(super) fn know(&mut self, path: &str) {
        self.known.insert(path.to_owned());
        if let Some((section, _)) = path.rsplit_once('.') {
            self.known_sections.insert(section.to_owned());
        }
    }

    /// Adds a problem.
    pub(super) fn problem(&mut self, key: &str, message: &str, next_step: &str) {
        self.problems.push(Problem::new(key, message, next_step));
    }

    /// Adds a problem of this key's value, with the variable that it stands in.
    pub(super) fn wrong(&mut self, path: &str, expected: &str) {
        let found = self.leaves.get(path).map_or("nothing", |leaf| kind_of(&leaf.value));
        let place = match self.leaves.get(path).map(|leaf| &leaf.origin) {
            Some(Origin::Env(name)) => format!(" in {name}"),
            _ => String::new(),
        };
        self.problem(path, &format!("found {found}{place}"), &format!("expected {expected}"));
    }

    /// Whether somebody has written this key.
    pub(super) fn is_set(&mut self, path: &str) -> bool {
        self.leaf(path).is_some()
    }

    fn leaf(&mut self, path: &str) -> Option<Leaf> {
        self.know(path);
        self.leaves.get(path).cloned()
    }

    /// Text, or nothing when it is not set or empty.
    pub(super) fn text_or_none(&mut self, path: &str, expected: &str) -> Option<String> {
        let text = self.exact_text(path, expected)?.trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// Text with the spaces around it: they may be part of a password.
    fn exact_text(&mut self, path: &str, expected: &str) -> Option<String> {
        let leaf = self.leaf(path)?;
        let text = match (leaf.value, leaf.raw) {
            (Value::String(text), _) => text,
            (_, Some(raw)) => raw,
            _ => {
                self.wrong(path, expected);
                return None;
            }
        };
        if text.chars().any(char::is_control) {
            self.problem(path, "has a line break or another control character", "use one line");
            return None;
        }
        Some(text)
    }

    /// Text that must be there.
    pub(super) fn text(&mut self, path: &str, expected: &str) -> String {
        let before = self.problems.len();
        let text = self.text_or_none(path, expected);
        if text.is_none() && self.problems.len() == before {
            self.problem(path, "is missing", &format!("set it to {expected}"));
        }
        text.unwrap_or_default()
    }

    /// One of these words; the first when it is not.
    pub(super) fn word(&mut self, path: &str, words: &[&'static str]) -> &'static str {
        let first = words.first().copied().unwrap_or_default();
        let expected = format!("one of {}", words.join(", "));
        let before = self.problems.len();
        let Some(text) = self.text_or_none(path, &expected) else {
            if self.problems.len() == before {
                self.problem(path, "is missing", &format!("set it to {expected}"));
            }
            return first;
        };
        words.iter().find(|word| **word == text).copied().unwrap_or_else(|| {
            self.wrong(
                path,
                &format!("{expected}{}", maybe(nearest(&text, words.iter().copied()))),
            );
            first
        })
    }

    /// A duration in this range, or nothing when it is not set.
    pub(super) fn duration_or_none(
        &mut self,
        path: &str,
        range: RangeInclusive<i64>,
    ) -> Option<i64> {
        let leaf = self.leaf(path)?;
        let expected = format!(
            "a duration from \"{}\" to \"{}\", such as \"500ms\", \"30s\" or \"24h\"",
            duration::format(*range.start()),
            duration::format(*range.end())
        );
        match leaf.value.as_str().map(duration::parse) {
            Some(Some(micros)) if range.contains(&micros) => Some(micros),
            Some(Some(micros)) => {
                let message = format!("{} is out of range", duration::format(micros));
                self.problem(path, &message, &format!("expected {expected}"));
                None
            }
            _ => {
                self.wrong(path, &expected);
                None
            }
        }
    }

    /// A duration that has a default. A wrong one is a problem and reads as the range's start.
    pub(super) fn duration(&mut self, path: &str, range: RangeInclusive<i64>) -> i64 {
        let start = *range.start();
        self.duration_or_none(path, range).unwrap_or(start)
    }

    /// A whole number in this range. A wrong one is a problem and reads as the range's start.
    pub(super) fn number(&mut self, path: &str, range: RangeInclusive<u32>) -> u32 {
        let (start, end) = (*range.start(), *range.end());
        let expected = format!("a whole number from {start} to {end}");
        match self.leaf(path).map(|leaf| leaf.value) {
            Some(Value::Integer(number)) => match u32::try_from(number) {
                Ok(number) if range.contains(&number) => return number,
                _ => {
                    let message = format!("{number} is out of range");
                    self.problem(path, &message, &format!("expected {expected}"));
                }
            },
            _ => self.wrong(path, &expected),
        }
        start
    }

    /// As [`Reader::number`], for what counts things in memory.
    pub(super) fn count(&mut self, path: &str, range: RangeInclusive<u32>) -> usize {
        usize::try_from(self.number(path, range)).unwrap_or(usize::MAX)
    }

    /// Yes or no; `default` when it is not set or wrong.
    pub(super) fn flag(&mut self, path: &str, default: bool) -> bool {
        match self.leaf(path).map(|leaf| leaf.value) {
            None => default,
            Some(Value::Boolean(flag)) => flag,
            Some(_) => {
                self.wrong(path, "true or false");
                default
            }
        }
    }

    /// A list of names. The environment may separate them by commas.
    pub(super) fn list(&mut self, path: &str) -> Vec<String> {
        let expected = "a list of names such as [\"demo\"]";
        let Some(leaf) = self.leaf(path) else { return Vec::new() };
        let (value, raw) = (leaf.value, leaf.raw);
        match (value, raw) {
            (Value::Array(items), _) => {
                let names: Option<Vec<String>> =
                    items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
                names.unwrap_or_else(|| {
                    self.wrong(path, expected);
                    Vec::new()
                })
            }
            (_, Some(raw)) => raw
                .trim_matches('"')
                .split(',')
                .map(|name| name.trim().to_owned())
                .filter(|name| !name.is_empty())
                .collect(),
            _ => {
                self.wrong(path, expected);
                Vec::new()
            }
        }
    }

    /// A secret, from its key or from the file that `<key>_file` names. Empty ones are not set: an empty
    /// key signs nothing.
    pub(super) fn secret(&mut self, path: &str) -> Option<Secret> {
        let file_path = format!("{path}_file");
        self.know(&file_path);
        if self.leaves.contains_key(path) && self.leaves.contains_key(&file_path) {
            self.know(path);
            self.problem(path, &format!("stands beside {file_path}"), "keep one of the two");
            return None;
        }
        if let Some(file) = self.text_or_none(&file_path, "the path of a file") {
            return match read_secret(&file) {
                Ok(text) => Some(Secret::new(text)),
                Err(why) => {
                    self.problem(&file_path, &why, "check the path and who may read the file");
                    None
                }
            };
        }
        let text = self.exact_text(path, "text in quotes")?;
        (!text.trim().is_empty()).then(|| Secret::new(text))
    }

    /// A secret that must be there.
    pub(super) fn needed_secret(&mut self, path: &str) -> Secret {
        let before = self.problems.len();
        let secret = self.secret(path);
        if secret.is_none() && self.problems.len() == before {
            self.problem(path, "is missing", &format!("set it, or {path}_file"));
        }
        secret.unwrap_or_else(|| Secret::new(String::new()))
    }

    /// A key that exists, but not beside this kind of its section.
    pub(super) fn misplaced(&mut self, path: &str, kind_key: &str, kind: &str, owners: &str) {
        for path in [path.to_owned(), format!("{path}_file")] {
            if self.leaves.contains_key(&path) {
                self.know(&path);
                let message = format!("kind {kind} has no such key");
                let help = format!("it belongs to {owners}: remove it or change {kind_key}");
                self.problem(&path, &message, &help);
            }
        }
    }

    /// Everything that is left over is unknown. Returns all problems, in the order of their keys.
    pub(super) fn finish(mut self) -> Vec<Problem> {
        let mut unknown: Vec<Problem> = Vec::new();
        for (path, leaf) in &self.leaves {
            if self.known.contains(path) {
                continue;
            }
            let place = match &leaf.origin {
                Origin::Env(name) => format!(" (from {})", printable(name)),
                _ => String::new(),
            };
            if self.known_sections.contains(path) {
                let message = format!("found {}{place}", kind_of(&leaf.value));
                unknown.push(Problem::new(path, &message, &format!("write a section, [{path}]")));
                continue;
            }
            let last = path.rsplit('.').next().unwrap_or(path);
            let same_key = self
                .known
                .iter()
                .filter(|known| known.rsplit('.').next() == Some(last))
                .min_by_key(|known| distance(path, known));
            let near = nearest(path, self.known.iter().map(String::as_str));
            let help = match near.or(same_key.map(String::as_str)) {
                Some(known) => format!("did you mean {known}?"),
                None => "see `sendonce config check` for the keys that exist".to_owned(),
            };
            unknown.push(Problem::new(path, &format!("there is no such key{place}"), &help));
        }
        for section in &self.sections {
            let under = format!("{section}.");
            let has_more = |all: &BTreeSet<String>| all.iter().any(|path| path.starts_with(&under));
            let is_reported = unknown.iter().any(|problem| problem.key.starts_with(&under));
            let is_key = self.known.contains(section);
            if is_key {
                let message = "found a section";
                unknown.push(Problem::new(section, message, "expected a single value"));
            } else if !self.known_sections.contains(section)
                && !has_more(&self.known_sections)
                && !has_more(&self.known)
                && !is_reported
            {
                let near = nearest(section, self.known_sections.iter().map(String::as_str));
                let help = near.map_or_else(
                    || "see `sendonce config check` for the sections that exist".to_owned(),
                    |known| format!("did you mean [{known}]?"),
                );
                unknown.push(Problem::new(section, "there is no such section", &help));
            }
        }
        self.problems.append(&mut unknown);
        self.problems.sort_by(|left, right| left.key.cmp(&right.key));
        self.problems
    }
}

/// Reads the file of a secret; the error never says more than the kind of failure.
fn read_secret(path: &str) -> Result<String, String> {
    use std::io::Read as _;
    let cannot = |error: std::io::Error| format!("the file cannot be read: {}", error.kind());
    let file = std::fs::File::open(path).map_err(cannot)?;
    let mut text = String::new();
    file.take(SECRET_BYTES_MAX + 1).read_to_string(&mut text).map_err(cannot)?;
    if text.len() as u64 > SECRET_BYTES_MAX {
        return Err(format!("the file is larger than {SECRET_BYTES_MAX} bytes"));
    }
    let text = text.trim_end_matches(['\r', '\n']);
    if text.trim().is_empty() {
        return Err("the file is empty".to_owned());
    }
    if text.chars().any(char::is_control) {
        return Err("the file has more than one line".to_owned());
    }
    Ok(text.to_owned())
}

const fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "other text",
        Value::Integer(_) => "a number",
        Value::Float(_) => "a fraction",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a section",
    }
}

/// One part of a dotted path. A quoted key could carry a dot of its own, or worse.
fn segment(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    key.chars().map(|c| if is_bare(c) { c } else { '?' }).collect()
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("")
}

/// A key or name from outside, safe to print.
pub(super) fn printable(text: &str) -> String {
    let mut out: String =
        text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(120).collect();
    if text.chars().nth(120).is_some() {
        out.push('…');
    }
    out
}

fn maybe(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!(" (did you mean {near}?)"))
}

/// The candidate that a slip of the fingers may have meant.
pub(super) fn nearest<'a>(
    text: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let allowed = (text.chars().count() / 4).clamp(1, 4);
    candidates
        .map(|candidate| (distance(text, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance; of over-long text only the beginning counts.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().take(120).collect();
    let right: Vec<char> = right.chars().take(120).collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}
