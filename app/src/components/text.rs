//! Numbers, spans and counts as words.

use crate::model::{Capped, Stamp};

const SECOND: i64 = 1_000_000;

/// `12345` as `12,345`.
#[must_use]
pub fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A capped count: `10,000+` where there are more.
#[must_use]
pub fn capped(count: Capped) -> String {
    let mut out = number(count.count);
    if count.more {
        out.push('+');
    }
    out
}

/// `1 event`, `2 events`.
#[must_use]
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(n), if n == 1 { one } else { many })
}

/// As [`counted`], for a capped count.
#[must_use]
pub fn capped_counted(count: Capped, one: &str, many: &str) -> String {
    let word = if count.count == 1 && !count.more { one } else { many };
    format!("{} {word}", capped(count))
}

/// The two largest units of a span as (amount, unit) pairs: `3 min 12 s`. Never empty, never negative.
#[must_use]
pub fn span_parts(micros: i64) -> Vec<(i64, &'static str)> {
    let total = micros.max(0) / SECOND;
    let units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let first = units.iter().position(|(size, _)| total >= *size).unwrap_or(units.len() - 1);
    let (size, unit) = units[first];
    let mut parts = vec![(total / size, unit)];
    if let Some((smaller, unit)) = units.get(first + 1) {
        let rest = total % size / smaller;
        if rest > 0 {
            parts.push((rest, unit));
        }
    }
    parts
}

/// A span in its two largest units: `41 s`, `3 min 12 s`, `2 h 5 min`.
#[must_use]
pub fn span(micros: i64) -> String {
    let parts: Vec<String> =
        span_parts(micros).iter().map(|(n, unit)| format!("{n} {unit}")).collect();
    parts.join(" ")
}

/// A span in its largest unit alone, for tables: `41 s`, `3 min`, `2 h`.
#[must_use]
pub fn short_span(micros: i64) -> String {
    let (n, unit) = span_parts(micros)[0];
    format!("{n} {unit}")
}

/// A configured duration, exact: `500 ms`, `2 s`, `24 h`.
#[must_use]
pub fn duration_ms(ms: i64) -> String {
    match ms {
        ms if ms % 3_600_000 == 0 && ms != 0 => format!("{} h", ms / 3_600_000),
        ms if ms % 60_000 == 0 && ms != 0 => format!("{} min", ms / 60_000),
        ms if ms % 1_000 == 0 => format!("{} s", ms / 1_000),
        ms => format!("{ms} ms"),
    }
}

/// The gap between two entries of a timeline, as fine as it matters: `+187 ms`, `+2.46 s`, `+4 min 33 s`.
#[must_use]
pub fn gap(micros: i64) -> String {
    match micros {
        m if m <= 0 => "+0 ms".to_owned(),
        m if m < SECOND => format!("+{} ms", m / 1_000),
        m if m < 60 * SECOND => {
            format!("+{}.{:02} s", m / SECOND, m % SECOND / 10_000)
        }
        m => format!("+{}", span(m)),
    }
}

/// An instant as seen from `now`: `2 s ago`, `in 22 min`, `now`.
#[must_use]
pub fn relative(at: Stamp, now: Stamp) -> String {
    match now.since(at) {
        m if m >= SECOND => format!("{} ago", short_span(m)),
        m if m <= -SECOND => format!("in {}", short_span(-m)),
        _ => "now".to_owned(),
    }
}

/// `part` of `whole` in percent, between 0 and 100; nothing of nothing is 0.
#[must_use]
pub fn percent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100).checked_div(whole).unwrap_or(0).min(100)
}

/// How much of `from..until` has passed at `now`, in percent.
#[must_use]
pub fn percent_passed(from: Stamp, until: Stamp, now: Stamp) -> u64 {
    let whole = u64::try_from(until.since(from)).unwrap_or(0);
    let part = u64::try_from(now.since(from)).unwrap_or(0);
    if whole == 0 { 100 } else { percent(part, whole) }
}

/// Text as HTML, for the elements whose content the parser takes as text (`<title>`, `<textarea>`): the
/// markers that the renderer writes between nodes would be shown there as they are.
#[must_use]
pub fn raw_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// `a`, `a and b`, `a, b and c`.
#[must_use]
pub fn joined(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators_and_capped_counts_a_plus() {
        assert_eq!(number(0), "0");
        assert_eq!(number(999), "999");
        assert_eq!(number(1_204_882), "1,204,882");
        assert_eq!(capped(Capped { count: 10_000, more: true }), "10,000+");
        assert_eq!(capped_counted(Capped { count: 1, more: false }, "event", "events"), "1 event");
    }

    #[test]
    fn spans_show_their_two_largest_units() {
        assert_eq!(span(0), "0 s");
        assert_eq!(span(-5), "0 s");
        assert_eq!(span(192 * SECOND), "3 min 12 s");
        assert_eq!(span(3_600 * SECOND), "1 h");
        assert_eq!(span(90_061 * SECOND), "1 d 1 h");
        assert_eq!(short_span(192 * SECOND), "3 min");
        assert_eq!(duration_ms(0), "0 s");
        assert_eq!(duration_ms(1_500), "1500 ms");
        assert_eq!(duration_ms(86_400_000), "24 h");
    }

    #[test]
    fn gaps_are_as_fine_as_they_matter() {
        assert_eq!(gap(-1), "+0 ms");
        assert_eq!(gap(187_000), "+187 ms");
        assert_eq!(gap(2_463_000), "+2.46 s");
        assert_eq!(gap(273 * SECOND), "+4 min 33 s");
    }

    #[test]
    fn instants_are_seen_from_now() {
        let now = Stamp::from_micros(1_000 * SECOND);
        assert_eq!(relative(now.plus(-2 * SECOND), now), "2 s ago");
        assert_eq!(relative(now.plus(1_320 * SECOND), now), "in 22 min");
        assert_eq!(relative(now.plus(10), now), "now");
    }

    #[test]
    fn raw_text_cannot_end_its_element() {
        assert_eq!(raw_text("a & b</title>"), "a &amp; b&lt;/title&gt;");
    }

    #[test]
    fn shares_of_nothing_are_numbers() {
        assert_eq!(percent(0, 0), 0);
        assert_eq!(percent(7, 3), 100);
        let at = Stamp::from_micros(5);
        assert_eq!(percent_passed(at, at, at), 100);
    }
}
