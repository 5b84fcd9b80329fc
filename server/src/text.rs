//! Free text from people: what must not get in (CONTRACT, invariant 8).
//!
//! A reason, a name or a search may be kept for years. An email address or phone number in it would be
//! personal data in a log that is never rewritten, so such text is refused as a whole. Where the two
//! cannot be told apart from something harmless, the text is refused: the person can say it otherwise.

/// Fewest and most digits of a phone number (E.164 has at most 15).
const PHONE_DIGITS: std::ops::RangeInclusive<usize> = 8..=15;

/// How many separators may stand between two groups of digits of one number, as in `(0) - 555`.
const SEPARATORS_MAX: usize = 4;

/// Whether the text must not travel in a query string: personal data, or a link, which may carry a token.
#[must_use]
pub fn is_unfit_for_query(text: &str) -> bool {
    text.contains("://") || looks_like_personal_data(text)
}

/// Whether the text contains what looks like an email address or a phone number.
///
/// Numbers are found with spaces, dashes, dots and parentheses between their digits, and in digits of any
/// script. Dates, times, UUIDs, IPv4 addresses and hashes are not taken for numbers, nor are runs of more
/// than 15 digits.
#[must_use]
pub fn looks_like_personal_data(text: &str) -> bool {
    let chars: Vec<char> = text.chars().map(plain).collect();
    has_address(&chars) || has_number(&without_harmless(chars))
}

/// The ASCII form of what people and programs write in its place; every foreign digit becomes `9`.
fn plain(c: char) -> char {
    match c {
        '\u{ff01}'..='\u{ff5e}' => {
            let ascii = u32::from(c) - 0xfee0;
            char::from_u32(ascii).unwrap_or(c)
        }
        '\u{fe6b}' => '@',
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' => '-',
        '\u{b7}' | '\u{2022}' | '\u{2024}' | '\u{3002}' => '.',
        // Nothing to see, and put between digits all the more.
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' => ' ',
        c if c.is_whitespace() || c.is_control() => ' ',
        c if c.is_ascii() => c,
        c if c.is_numeric() => '9',
        c => c,
    }
}

/// `@`, also as `%40`, with something on both sides.
fn has_address(chars: &[char]) -> bool {
    let is_word = |c: Option<&char>| c.is_some_and(|c| c.is_alphanumeric());
    let is_local = |c: Option<&char>| c.is_some_and(|c| !matches!(c, ' ' | '@' | '<' | '(' | ','));
    (0..chars.len()).any(|at| {
        let before = at.checked_sub(1).and_then(|before| chars.get(before));
        let after = match chars[at] {
            '@' => at + 1,
            '%' if chars[at..].starts_with(&['%', '4', '0']) => at + 3,
            _ => return false,
        };
        let follows = chars.get(after);
        is_local(before) && (is_word(follows) || follows == Some(&'['))
    })
}

/// A window of neighbouring groups with as many digits as a phone number has.
fn has_number(chars: &[char]) -> bool {
    let mut groups: Vec<usize> = Vec::new();
    let mut gap = SEPARATORS_MAX + 1;
    let mut is_inside = false;
    for c in chars {
        if c.is_ascii_digit() {
            if gap > SEPARATORS_MAX {
                groups.clear();
            }
            match groups.last_mut() {
                Some(last) if is_inside => *last += 1,
                _ => groups.push(1),
            }
            is_inside = true;
            gap = 0;
            continue;
        }
        if is_inside && ends_a_number(&groups) {
            return true;
        }
        is_inside = false;
        gap = if matches!(c, ' ' | '-' | '.' | '(' | ')') { gap + 1 } else { SEPARATORS_MAX + 1 };
    }
    is_inside && ends_a_number(&groups)
}

/// Whether the last groups, taken from the end, add up to a number.
fn ends_a_number(groups: &[usize]) -> bool {
    groups
        .iter()
        .rev()
        .scan(0, |total, digits| {
            *total += digits;
            (*total <= *PHONE_DIGITS.end()).then_some(*total)
        })
        .any(|total| PHONE_DIGITS.contains(&total))
}

/// The text with each date, time, UUID, IPv4 address and hash replaced by one letter.
fn without_harmless(chars: Vec<char>) -> Vec<char> {
    let mut out: Vec<char> = Vec::with_capacity(chars.len());
    let mut at = 0;
    while at < chars.len() {
        let is_start = at == 0 || !chars[at - 1].is_ascii_alphanumeric();
        let found = if is_start { harmless(&chars[at..]) } else { 0 };
        if found > 0 && !follows_plus(&out) {
            out.push('x');
            at += found;
            // An instant: what follows the `T` is a time like any other.
            if chars.get(at) == Some(&'T') && chars.get(at + 1).is_some_and(char::is_ascii_digit) {
                at += 1;
                let time = shape(&chars[at..], TIME).unwrap_or(0);
                at += time;
            }
        } else {
            out.push(chars[at]);
            at += 1;
        }
    }
    out
}

/// Whether an international number has begun and not ended: then what looks like a date is its rest.
fn follows_plus(out: &[char]) -> bool {
    out.iter()
        .rev()
        .find(|c| !c.is_ascii_digit() && !matches!(c, ' ' | '-' | '.' | '(' | ')'))
        .is_some_and(|c| *c == '+')
}

/// How many characters at the start are certainly no phone number; 0 if that is not certain.
fn harmless(chars: &[char]) -> usize {
    [TIME, DATE, EUROPEAN_DATE, UUID]
        .iter()
        .find_map(|pattern| shape(chars, pattern))
        .or_else(|| ipv4(chars))
        .or_else(|| hash(chars))
        .unwrap_or(0)
}

/// Patterns of [`shape`]: `d` a digit, `h` a hex digit, `-` one of `-./`, `f` an optional fraction, `s`
/// optional seconds; the rest stands for itself. What matches must not go on with a letter or digit.
const TIME: &str = "dd:ddsf";
const DATE: &str = "dddd-dd-dd";
const EUROPEAN_DATE: &str = "dd-dd-dddd";
const UUID: &str = "hhhhhhhh_hhhh_hhhh_hhhh_hhhhhhhhhhhh";

fn shape(chars: &[char], pattern: &str) -> Option<usize> {
    let mut at = 0;
    let mut dash = None;
    for expected in pattern.chars() {
        let found = chars.get(at).copied().unwrap_or(' ');
        match expected {
            'd' if found.is_ascii_digit() => at += 1,
            'h' if found.is_ascii_hexdigit() => at += 1,
            '_' if found == '-' => at += 1,
            ':' if found == ':' => at += 1,
            // Both separators of a date are the same.
            '-' if matches!(found, '-' | '.' | '/') && dash.is_none_or(|dash| dash == found) => {
                dash = Some(found);
                at += 1;
            }
            's' => {
                let rest = &chars[at..];
                let is_there =
                    matches!(rest, [':', a, b, ..] if a.is_ascii_digit() && b.is_ascii_digit());
                at += if is_there { 3 } else { 0 };
            }
            'f' => {
                let rest = &chars[at..];
                let digits = rest.iter().skip(1).take_while(|c| c.is_ascii_digit()).count();
                let is_there = matches!(rest.first(), Some('.' | ',')) && (1..=9).contains(&digits);
                at += if is_there { digits + 1 } else { 0 };
            }
            _ => return None,
        }
    }
    let matched = &chars[..at];
    let is_possible = match pattern {
        DATE => is_date(&digits(matched)[..4], &digits(matched)[4..6], &digits(matched)[6..]),
        EUROPEAN_DATE => {
            is_date(&digits(matched)[4..], &digits(matched)[2..4], &digits(matched)[..2])
                || is_date(&digits(matched)[4..], &digits(matched)[..2], &digits(matched)[2..4])
        }
        TIME => value(&digits(matched)[..2]) < 24 && value(&digits(matched)[2..4]) < 60,
        _ => true,
    };
    let next = chars.get(at).copied().unwrap_or(' ');
    let is_end = !next.is_ascii_alphanumeric() || matches!(next, 'T' | 'Z');
    (is_possible && is_end).then_some(at)
}

fn digits(chars: &[char]) -> Vec<char> {
    chars.iter().copied().filter(char::is_ascii_digit).collect()
}

fn value(digits: &[char]) -> u32 {
    digits.iter().fold(0, |value, c| value * 10 + c.to_digit(10).unwrap_or(0))
}

fn is_date(year: &[char], month: &[char], day: &[char]) -> bool {
    (1990..2100).contains(&value(year))
        && (1..=12).contains(&value(month))
        && (1..=31).contains(&value(day))
}

/// Four numbers up to 255. Four pairs of digits are refused: some countries write numbers so.
fn ipv4(chars: &[char]) -> Option<usize> {
    let length = chars.iter().take_while(|c| c.is_ascii_digit() || **c == '.').count();
    let text: String = chars[..length].iter().collect();
    let text = text.trim_end_matches('.');
    let parts: Vec<&str> = text.split('.').collect();
    let is_address = parts.len() == 4
        && parts.iter().all(|part| part.parse::<u8>().is_ok_and(|n| n.to_string() == *part))
        && !parts.iter().all(|part| part.len() == 2);
    let next = chars.get(length).copied().unwrap_or(' ');
    (is_address && !next.is_ascii_alphanumeric()).then_some(text.len())
}

/// A commit, a digest or our own derived ids: hex of exactly their length, with a letter in it.
fn hash(chars: &[char]) -> Option<usize> {
    let length = chars.iter().take_while(|c| c.is_ascii_hexdigit()).count();
    let has_letter = chars[..length].iter().any(char::is_ascii_alphabetic);
    let next = chars.get(length).copied().unwrap_or(' ');
    (matches!(length, 32 | 40 | 64) && has_letter && !next.is_alphanumeric()).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::looks_like_personal_data;

    #[test]
    fn addresses_and_numbers_are_found_however_they_are_written() {
        for text in [
            "user@example.com",
            "asked by <user@example.com>.",
            "USER+tag@EXAMPLE.COM",
            "user@localhost",
            "user@[192.0.2.1]",
            "user%40example.com",
            "用户@例え.jp",
            "user＠example.com",
            "mailto:user@example.com",
            "+15550100001",
            "call +1 555 010 0001 back",
            "+1 (555) 010-0001",
            "+1-555-010-0001",
            "+1.555.010.0001",
            "(555) 010-0001",
            "(0) - 555 010 0001",
            "5550100001",
            "12345678",
            "123456789012345",
            "555 0100 0001",
            "555\u{a0}010\u{2009}0001",
            "555\u{2011}010\u{2013}0001",
            "555\n010\n0001",
            "5\u{200b}550100001",
            "5 5 5 0 1 0 0 0 0 1",
            "＋１５５５０１００００１",
            "１５５５０１００００１",
            "٠٥٥٥٠١٠٠٠٠١",
            "tel:+15550100001",
            "tel-5550100001",
            "nr.5550100001",
            "x5550100001",
            "01.23.45.67.89",
            "22.33.44.55",
            "0049 151 1234 5678",
            "5550100001 5550100002",
            "1790000000123456 5550100001",
            "on 2026-11-30 +15550100001 called",
            "02:24:40 5550100001",
            "+49 2026-11-30",
            "+49 20 2026-11-30",
            "2999-11-30",
            "3026-11-30",
            "2026-13-30",
        ] {
            assert!(looks_like_personal_data(text), "{text}");
        }
    }

    #[test]
    fn ids_dates_times_and_counts_are_not_taken_for_numbers() {
        for text in [
            "",
            "INC-2291",
            "provider outage INC-2291, see OPS-120045",
            "2026-11-30",
            "since 2026-11-30 02:24:40",
            "from 2026-11-29 to 2026-11-30",
            "2026-11-29 2026-11-30",
            "30.11.2026",
            "11/30/2026",
            "30-11-2026 14:05",
            "02:24:40",
            "02:24:40.123456",
            "10:00-12:00",
            "2026-11-30T02:24:40Z",
            "2026-11-30T02:24:40.123456Z",
            "2026-11-30T02:24:40+02:00",
            "2026-11-30T02:24:40.123456789+02:00, again",
            "0193a5b0-7c1e-7d3f-8a2b-123456789012",
            "12345678-1234-1234-1234-123456789012",
            "host 10.0.12.134 is down",
            "192.168.100.200:5432",
            "d41d8cd98f00b204e9800998ecf84271",
            "3f5c2a1e9b8d7c6f5a4b3c2d1e0f98765432100a",
            "HTTP 503 for 40 minutes",
            "503, 504, 429 since 02:24",
            "1,234,567 of 20,000,000 events",
            "50 % of 8 workers",
            "1790000000123456",
            "seller_1042",
            "v1.24.3",
            "ask @oncall",
            "at 5 @ the office",
            "50 @ once",
            "12 + 34 = 46",
            "100%",
        ] {
            assert!(!looks_like_personal_data(text), "{text}");
        }
    }

    #[test]
    fn any_text_is_judged_without_a_panic() {
        proptest::proptest!(|(text in "\\PC{0,80}")| {
            let _ = looks_like_personal_data(&text);
        });
        proptest::proptest!(|(text in "[0-9:./T+ @%a-f-]{0,60}")| {
            let _ = looks_like_personal_data(&text);
        });
    }

    #[test]
    fn every_number_is_found_in_any_grouping() {
        proptest::proptest!(|(
            digits in proptest::collection::vec(0_u8..10, 8..=15),
            cuts in proptest::collection::vec(0_usize..5, 16),
        )| {
            // Groups of what could be a date or an IPv4 address are the two exceptions.
            let mut text = String::from("+");
            for (digit, cut) in digits.iter().zip(&cuts) {
                text.push(char::from(b'0' + digit));
                text.push_str(["", "", " ", "-", ") "][*cut]);
            }
            proptest::prop_assert!(looks_like_personal_data(&text), "{}", text);
        });
    }
}
