//! The sections `[policy]`, `[limits]` and `[templates]`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::duration::{DAY, HOUR, MINUTE, SECOND};
use super::reader::{Reader, printable};
use crate::admission::validate;
use crate::policy::breaker::Budget;
use crate::policy::geography::{is_country, is_prefix};
use crate::policy::{AfterUnknown, Limit, Limits, Prices, Scope, SendingRules, prices};
use crate::providers::template::Templates;

/// The longest name of a purpose.
const PURPOSE_CHARS_MAX: usize = 64;

/// Reads both sections.
pub(super) fn sending(reader: &mut Reader) -> SendingRules {
    let after_unknown = after_unknown(reader, "policy.after_unknown");
    reader.section("policy.purposes");
    let mut after_unknown_of = std::collections::BTreeMap::new();
    for purpose in reader.names("policy.purposes") {
        let path = format!("policy.purposes.{purpose}");
        if validate::is_id(&purpose, PURPOSE_CHARS_MAX) {
            let key = format!("{path}.after_unknown");
            after_unknown_of.insert(purpose, self::after_unknown(reader, &key));
        } else {
            reader.problem(&path, "is no name of a purpose", "use 1-64 of a-z A-Z 0-9 _ -");
            reader.forget(&path);
        }
    }
    SendingRules {
        is_monitor: reader.word("policy.mode", &["enforce", "monitor"]) == "monitor",
        after_unknown,
        after_unknown_of,
        limits: limits(reader),
        countries: countries(reader),
        blocked_prefixes: blocked_prefixes(reader),
        prices: prices(reader),
        price_max: price(reader, "policy.price_max"),
        currency: currency(reader),
        budget: budget(reader, "policy.breaker", None),
        budgets: budgets(reader),
    }
}

fn countries(reader: &mut Reader) -> BTreeSet<String> {
    let path = "policy.countries";
    let names = reader.list(path);
    if names.iter().any(|name| !is_country(name)) {
        let help = "write two capital letters of ISO 3166, such as \"US\"";
        reader.problem(path, "has an entry that is no country", help);
    }
    names.into_iter().collect()
}

fn blocked_prefixes(reader: &mut Reader) -> Vec<String> {
    let path = "policy.blocked_prefixes";
    let prefixes = reader.list(path);
    if prefixes.iter().any(|prefix| !is_prefix(prefix)) {
        let help = "write + and the first digits, such as \"+1900\"";
        reader.problem(path, "has an entry that is no prefix", help);
    }
    prefixes
}

/// The table is read with the configuration: a process that cannot read it does not start.
fn prices(reader: &mut Reader) -> Prices {
    let path = "policy.prices";
    let Some(file) = reader.text_or_none(path, "the path of a file") else {
        return Prices::default();
    };
    let text = match read(&file) {
        Ok(text) => text,
        Err(error) => {
            let message = format!("the file cannot be read: {}", error.kind());
            reader.problem(path, &message, "check the path and who may read the file");
            return Prices::default();
        }
    };
    Prices::parse(&text).unwrap_or_else(|line| {
        let message = format!("line {line} of the file is no price");
        reader.problem(path, &message, "write lines such as \"US,0.0079\", each country once");
        Prices::default()
    })
}

fn read(file: &str) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(file)?.take(prices::BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > prices::BYTES_MAX {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

fn price(reader: &mut Reader, path: &str) -> Option<i64> {
    let text = reader.text_or_none(path, "a price in quotes, such as \"0.10\"")?;
    let price = prices::parse(&text);
    if price.is_none() {
        let help = "write digits and at most six more behind a point, such as \"0.10\"";
        reader.problem(path, "is no price", help);
    }
    price
}

fn currency(reader: &mut Reader) -> String {
    let path = "policy.currency";
    let text = reader.text(path, "a currency such as \"USD\"");
    if text.len() != 3 || !text.bytes().all(|c| c.is_ascii_uppercase()) {
        reader.problem(path, "is no currency", "write three capital letters, such as \"USD\"");
    }
    text
}

/// A budget, where one of its two limits is set. What a country does not say is as for all others.
fn budget(reader: &mut Reader, section: &str, others: Option<Budget>) -> Option<Budget> {
    let key = |name: &str| format!("{section}.{name}");
    let messages = key("messages_max");
    let messages_max =
        if reader.is_set(&messages) { Some(reader.number(&messages, 1..=u32::MAX)) } else { None };
    let price_max = price(reader, &key("price_max"));
    let window = reader.duration_or_none(&key("window"), MINUTE..=DAY);
    let cooldown = reader.duration_or_none(&key("cooldown"), SECOND..=DAY);
    let probes = key("probes");
    let probes = if reader.is_set(&probes) { Some(reader.number(&probes, 1..=1000)) } else { None };
    let others = others.unwrap_or(BUDGET);
    let budget = Budget {
        window: window.unwrap_or(others.window),
        messages_max: messages_max.or(others.messages_max),
        price_max: price_max.or(others.price_max),
        cooldown: cooldown.unwrap_or(others.cooldown),
        probes: probes.unwrap_or(others.probes),
    };
    (budget.messages_max.is_some() || budget.price_max.is_some()).then_some(budget)
}

fn budgets(reader: &mut Reader) -> BTreeMap<String, Budget> {
    reader.section("policy.breakers");
    let mut budgets = BTreeMap::new();
    for country in reader.names("policy.breakers") {
        let path = format!("policy.breakers.{country}");
        if is_country(&country) {
            if let Some(budget) = budget(reader, &path, None) {
                budgets.insert(country, budget);
            } else {
                let help = "set messages_max, price_max or both";
                reader.problem(&path, "is a breaker without a budget", help);
            }
        } else {
            let help = "name the section after a country, such as [policy.breakers.GB]";
            reader.problem(&path, "is no country", help);
            reader.forget(&path);
        }
    }
    budgets
}

/// What a breaker has that does not say.
const BUDGET: Budget =
    Budget { window: HOUR, messages_max: None, price_max: None, cooldown: 15 * MINUTE, probes: 5 };

/// The templates with their folder and language. They are read and looked over with the configuration.
pub(super) fn templates(reader: &mut Reader) -> (Templates, Option<String>, String) {
    let locale = reader.text("templates.locale", "a language such as \"en\"");
    let path = "templates.folder";
    let folder = reader.text_or_none(path, "the path of a folder");
    let loaded = folder.as_ref().map(|folder| Templates::load(Path::new(folder), &locale));
    let templates = match loaded {
        None => Templates::default(),
        Some(Ok(templates)) => templates,
        Some(Err(faults)) => {
            for fault in faults {
                let message = format!("{} {}", printable(&fault.file), fault.message);
                reader.problem(path, &message, "see `sendonce template check`");
            }
            Templates::default()
        }
    };
    (templates, folder, locale)
}

fn after_unknown(reader: &mut Reader, path: &str) -> AfterUnknown {
    AfterUnknown::parse(reader.word(path, AfterUnknown::WORDS)).unwrap_or_default()
}

fn limits(reader: &mut Reader) -> Limits {
    let mut limits = Limits::default();
    for scope in Scope::ALL {
        let path = format!("limits.{}", scope.as_str());
        for text in reader.list(&path) {
            match Limit::parse(&text) {
                Some(limit) => limits.add(*scope, limit),
                None => reader.problem(
                    &path,
                    "has an entry that is no limit",
                    "write a count and a window, such as \"5 per 15m\"",
                ),
            }
        }
    }
    limits.prefix_digits = reader.count("limits.prefix_digits", 2..=15);
    limits
}
