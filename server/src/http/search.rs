//! The query language of `/events`: from what was typed to what the store is asked.
//!
//! Nothing here fails: what is not understood is left out and named, so that a mistyped qualifier never
//! looks like an empty answer. What looks like an address or phone number is not searched for, kept or
//! repeated, whichever field it is in.

use app::model::{Channel, EventFilter, Reason, Stamp, State};

use super::cursor;
use crate::store::Search;
use crate::text::is_unfit_for_query;

/// The longest search text.
pub const QUERY_CHARS_MAX: usize = 200;

/// Rows of one page.
pub const ROWS_MAX: usize = 50;

/// The longest id, as admission has it.
const ID_CHARS_MAX: usize = 128;

const QUALIFIERS: &[&str] =
    &["state", "channel", "provider", "reason", "seller", "before", "after", "id"];

/// What a request for the list asks for.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// As typed, for the page and its links, without what may not be in them.
    pub filter: EventFilter,
    pub search: Search,
    /// What was left out, one sentence each.
    pub problems: Vec<String>,
    /// Something looked like an address or number; it is in none of the other fields.
    pub has_personal_data: bool,
}

impl Asked {
    /// This is not the first page.
    #[must_use]
    pub fn is_continued(&self) -> bool {
        self.search.cursor.is_some()
    }

    fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(text.into());
    }

    /// The value of a field, unless it is personal data.
    fn harmless(&mut self, value: &str) -> Option<String> {
        let value = value.trim();
        if value.is_empty() {
            None
        } else if is_unfit_for_query(value) {
            self.has_personal_data = true;
            None
        } else {
            Some(value.to_owned())
        }
    }
}

/// Reads the fields of a form or query string: `q`, `state`, `channel`, `provider`, `seller`, `cursor`.
#[must_use]
pub fn read(fields: &[(String, String)]) -> Asked {
    let mut asked = Asked::default();
    asked.search.limit = ROWS_MAX;
    let field =
        |name: &str| fields.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value);

    if let Some(text) = asked.harmless(field("state")) {
        asked.filter.state = known(&mut asked, "state", &text, State::ALL, State::as_str);
        asked.search.states.extend(asked.filter.state);
    }
    if let Some(text) = asked.harmless(field("channel")) {
        asked.filter.channel = known(&mut asked, "channel", &text, Channel::ALL, Channel::as_str);
        asked.search.channel = asked.filter.channel;
    }
    if let Some(text) = asked.harmless(field("provider")) {
        asked.filter.provider = id(&mut asked, "provider", &text);
        asked.search.provider.clone_from(&asked.filter.provider);
    }
    if let Some(text) = asked.harmless(field("seller")) {
        asked.filter.seller = id(&mut asked, "seller", &text);
        asked.search.seller.clone_from(&asked.filter.seller);
    }
    // The whole text, not word by word: a number may be written with spaces.
    if let Some(text) = asked.harmless(field("q")) {
        if text.chars().count() > QUERY_CHARS_MAX {
            asked.problem(format!("The search text is longer than {QUERY_CHARS_MAX} characters."));
        } else {
            for word in text.split_whitespace() {
                read_word(&mut asked, word);
            }
        }
        asked.filter.q = text;
    }
    let cursor = field("cursor");
    if !cursor.is_empty() {
        asked.search.cursor = cursor::decode(cursor);
        if asked.search.cursor.is_none() {
            asked.problem("The link to a further page is damaged; this is the first one.");
        }
    }
    asked
}

fn read_word(asked: &mut Asked, word: &str) {
    let Some((name, value)) = word.split_once(':') else {
        prefix(asked, "", word);
        return;
    };
    if value.is_empty() && QUALIFIERS.contains(&name) {
        asked.problem(format!("{name}: has nothing after its colon."));
        return;
    }
    match name {
        "id" => prefix(asked, "id: ", value),
        "state" => {
            let Some(state) = known(asked, name, value, State::ALL, State::as_str) else { return };
            match asked.filter.state {
                Some(filter) if filter != state => asked.problem(format!(
                    "state: asks for {state} while the filter is set to {filter}; the filter counts."
                )),
                _ if asked.search.states.contains(&state) => {}
                _ => asked.search.states.push(state),
            }
        }
        "channel" => {
            if let Some(channel) = known(asked, name, value, Channel::ALL, Channel::as_str) {
                let before = asked.search.channel;
                asked.search.channel = once(asked, name, before, channel);
            }
        }
        "reason" => {
            if let Some(reason) = known(asked, name, value, Reason::ALL, Reason::as_str) {
                let before = asked.search.reason;
                asked.search.reason = once(asked, name, before, reason);
            }
        }
        "provider" => {
            if let Some(provider) = id(asked, name, value) {
                let before = asked.search.provider.take();
                asked.search.provider = once(asked, name, before, provider);
            }
        }
        "seller" => {
            if let Some(seller) = id(asked, name, value) {
                let before = asked.search.seller.take();
                asked.search.seller = once(asked, name, before, seller);
            }
        }
        "before" => {
            if let Some(at) = instant(asked, name, value) {
                let before = asked.search.before;
                asked.search.before = once(asked, name, before, at);
            }
        }
        "after" => {
            if let Some(at) = instant(asked, name, value) {
                let before = asked.search.after;
                asked.search.after = once(asked, name, before, at);
            }
        }
        _ => {
            let problem = if is_id(name) {
                format!(
                    "There is no qualifier {name}:. To find an id with a colon in it, write id:{name}:…"
                )
            } else {
                "A word before a colon is no qualifier.".to_owned()
            };
            asked.problem(problem);
        }
    }
}

/// The first value counts; another one is named.
fn once<T: PartialEq>(asked: &mut Asked, name: &str, before: Option<T>, now: T) -> Option<T> {
    match before {
        Some(before) if before != now => {
            asked.problem(format!(
                "{name}: has more than one value; the first one or the filter counts."
            ));
            Some(before)
        }
        _ => Some(now),
    }
}

fn prefix(asked: &mut Asked, name: &'static str, value: &str) {
    if !is_id(value) {
        asked.problem(format!(
            "{name}{} is not the beginning of an id: ids are made of letters, digits and . _ : -",
            shown(value)
        ));
    } else if asked.search.prefix.is_some() {
        asked.problem("More than one id is asked for; the first one counts.");
    } else {
        asked.search.prefix = Some(value.to_owned());
    }
}

fn known<T: Copy + std::str::FromStr>(
    asked: &mut Asked,
    name: &str,
    value: &str,
    words: &[T],
    spelling: fn(T) -> &'static str,
) -> Option<T> {
    let found = value.parse().ok();
    if found.is_none() {
        // A long list helps nobody: the reason codes have a page of their own.
        let list: Vec<&str> = words.iter().take(8).map(|word| spelling(*word)).collect();
        let more = if words.len() > list.len() { ", …" } else { "" };
        asked.problem(format!(
            "{name}: has no value {}; it is one of {}{more}",
            shown(value),
            list.join(", ")
        ));
    }
    found
}

fn id(asked: &mut Asked, name: &str, value: &str) -> Option<String> {
    if is_id(value) {
        return Some(value.to_owned());
    }
    asked.problem(format!(
        "{name}: {} is none: ids are made of letters, digits and . _ : -",
        shown(value)
    ));
    None
}

fn instant(asked: &mut Asked, name: &str, value: &str) -> Option<Stamp> {
    let at = read_instant(value);
    if at.is_none() {
        asked.problem(format!(
            "{name}: {} is no time; write 2026-03-14 or 2026-03-14T01:00Z",
            shown(value)
        ));
    }
    at
}

/// Reads a day (its beginning), or a day and a time to the minute or finer; UTC where no offset is given.
#[must_use]
pub fn read_instant(text: &str) -> Option<Stamp> {
    if !text.is_ascii() || text.len() > 40 {
        return None;
    }
    let Some((day, rest)) = text.split_once(['T', 't']) else {
        return Stamp::parse(&format!("{text}T00:00:00Z")).ok();
    };
    let (time, zone) = match rest.find(['Z', 'z', '+', '-']) {
        Some(at) => rest.split_at(at),
        None => (rest, "Z"),
    };
    let seconds = if time.len() == 5 { ":00" } else { "" };
    Stamp::parse(&format!("{day}T{time}{seconds}{zone}")).ok()
}

fn is_id(text: &str) -> bool {
    (1..=ID_CHARS_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-'))
}

/// A value as a sentence repeats it: only where it is short and plain.
fn shown(value: &str) -> String {
    if value.len() <= 40 && value.chars().all(|c| c.is_alphanumeric() || "._:-/*".contains(c)) {
        format!("“{value}”")
    } else {
        "what was typed".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use app::model::{Channel, Reason, Stamp, State};

    use super::{Asked, read, read_instant};

    fn q(text: &str) -> Asked {
        read(&[("q".to_owned(), text.to_owned())])
    }

    #[test]
    fn every_qualifier_is_understood() {
        let asked = q("state:sent state:delivered channel:sms provider:post reason:timeout \
                       seller:seller_1042 after:2026-03-14 before:2026-03-15T01:00+02:00 ev-7f3a");
        assert_eq!(asked.problems, Vec::<String>::new());
        let search = asked.search;
        assert_eq!(search.states, [State::Sent, State::Delivered]);
        assert_eq!(search.channel, Some(Channel::Sms));
        assert_eq!(search.provider.as_deref(), Some("post"));
        assert_eq!(search.reason, Some(Reason::Timeout));
        assert_eq!(search.seller.as_deref(), Some("seller_1042"));
        assert_eq!(search.prefix.as_deref(), Some("ev-7f3a"));
        assert_eq!(search.after, Stamp::parse("2026-03-14T00:00:00Z").ok());
        assert_eq!(search.before, Stamp::parse("2026-03-14T23:00:00Z").ok());
        assert_eq!(q("id:reset:2026").search.prefix.as_deref(), Some("reset:2026"));
        assert_eq!(
            q("0193a5b0-7c1e-7d3f-8a2b-123456789012").search.prefix.as_deref(),
            Some("0193a5b0-7c1e-7d3f-8a2b-123456789012")
        );
    }

    #[test]
    fn what_is_not_understood_is_named_and_left_out() {
        for (text, named) in [
            ("stat:sent", "no qualifier stat:"),
            ("state:sending", "state: has no value “sending”; it is one of accepted,"),
            ("state:", "state: has nothing after its colon"),
            ("channel:fax", "channel: has no value “fax”; it is one of sms, email"),
            ("reason:because", "reason: has no value “because”"),
            ("provider:a/b", "provider: “a/b” is none"),
            ("after:yesterday", "after: “yesterday” is no time"),
            ("before:2026-13", "before: “2026-13” is no time"),
            ("ev%", "is not the beginning of an id"),
            ("id:", "id:"),
            ("one two", "More than one id"),
            ("channel:sms channel:email", "channel: has more than one value"),
            ("<b>:x", "no qualifier"),
        ] {
            let asked = q(text);
            assert_eq!(asked.problems.len(), 1, "{text}: {:?}", asked.problems);
            assert!(asked.problems[0].contains(named), "{text}: {:?}", asked.problems);
            assert_eq!(asked.filter.q, text, "what was typed stays in the box");
        }
        assert_eq!(q("state:sending").search.states, []);
        assert_eq!(q("one two").search.prefix.as_deref(), Some("one"));
        let long = q(&"x ".repeat(101));
        assert_eq!(long.problems.len(), 1);
        assert_eq!(long.search.prefix, None);
    }

    #[test]
    fn what_looks_like_personal_data_is_in_nothing_that_leaves_here() {
        for text in [
            "user@example.com",
            "+1 555 010 0001",
            "seller:5550100001",
            "state:sent 555-010-0001",
            "15550100001",
        ] {
            let asked = q(text);
            assert!(asked.has_personal_data, "{text}");
            assert!(
                asked.filter.is_empty()
                    && asked.search.prefix.is_none()
                    && asked.search.seller.is_none()
            );
            assert!(asked.problems.is_empty(), "{:?}", asked.problems);
        }
        for field in ["seller", "provider", "state", "channel"] {
            let asked = read(&[(field.to_owned(), "user@example.com".to_owned())]);
            assert!(
                asked.has_personal_data && asked.filter.is_empty() && asked.problems.is_empty(),
                "{field}"
            );
        }
    }

    #[test]
    fn filters_and_search_text_go_together_and_the_filter_counts() {
        let fields = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let asked =
            read(&fields(&[("q", "state:sent seller:a"), ("state", "expired"), ("seller", "b")]));
        assert_eq!(asked.search.states, [State::Expired]);
        assert_eq!(asked.search.seller.as_deref(), Some("b"));
        assert_eq!(asked.problems.len(), 2, "{:?}", asked.problems);
        let asked = read(&fields(&[
            ("q", "state:sent"),
            ("state", "sent"),
            ("channel", ""),
            ("cursor", "x"),
        ]));
        assert_eq!(asked.search.states, [State::Sent]);
        assert_eq!(asked.filter.channel, None);
        assert!(!asked.is_continued());
        assert_eq!(asked.problems.len(), 1, "{:?}", asked.problems);
    }

    #[test]
    fn times_are_utc_where_they_do_not_say_otherwise() {
        let at = |text| Stamp::parse(text).ok();
        for (text, expected) in [
            ("2026-03-14", at("2026-03-14T00:00:00Z")),
            ("2026-03-14T01:00", at("2026-03-14T01:00:00Z")),
            ("2026-03-14T01:00Z", at("2026-03-14T01:00:00Z")),
            ("2026-03-14T01:00:30", at("2026-03-14T01:00:30Z")),
            ("2026-03-14T01:00:30.5-01:00", at("2026-03-14T02:00:30.5Z")),
            ("2026-03-14T01:00+01:00", at("2026-03-14T00:00:00Z")),
            ("2026-03-14T1:00", None),
            ("14.03.2026", None),
            ("", None),
            ("T", None),
            ("2026-03-14T01:00Z[Europe/Paris]", None),
        ] {
            assert_eq!(read_instant(text), expected, "{text}");
        }
    }

    #[test]
    fn any_text_is_read_without_a_panic() {
        proptest::proptest!(|(text in "\\PC{0,80}")| {
            let _ = q(&text);
            let _ = read_instant(&text);
        });
    }
}
