//! Where a number is: its country, and the digits that a rule may look at.
//!
//! The number itself is in memory only. What leaves this module is a country and a few leading digits.

use phonenumber::metadata::DATABASE;

/// Numbers that belong to no country, such as `+800` and `+883`, or to none that is known.
pub const NOWHERE: &str = "ZZ";

/// What the rules see of a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// ISO 3166, two letters; [`NOWHERE`] where there is none.
    pub country: String,
    /// The first digits, country code included.
    pub prefix: String,
    /// It begins with a prefix that is blocked.
    pub is_blocked: bool,
}

impl Place {
    /// Looks at a number in strict E.164 (`crate::providers::resolver::phone`).
    #[must_use]
    pub fn of(number: &str, prefix_digits: usize, blocked: &[String]) -> Self {
        let digits = number.trim_start_matches('+');
        Self {
            country: country(number),
            prefix: digits.chars().take(prefix_digits).collect(),
            is_blocked: blocked.iter().any(|prefix| number.starts_with(prefix.as_str())),
        }
    }
}

/// The country of a number. One whose area is not assigned counts for the main country of its calling code.
fn country(number: &str) -> String {
    let Ok(parsed) = phonenumber::parse(None, number) else { return NOWHERE.to_owned() };
    if let Some(id) = parsed.country().id() {
        return id.as_ref().to_owned();
    }
    let main = DATABASE.region(&parsed.code().value()).and_then(|regions| regions.first().copied());
    main.filter(|region| is_country(region)).unwrap_or(NOWHERE).to_owned()
}

/// Two capital letters.
#[must_use]
pub fn is_country(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|c| c.is_ascii_uppercase())
}

/// `+` and 1 to 15 digits, the first of them no zero.
#[must_use]
pub fn is_prefix(text: &str) -> bool {
    let digits = text.strip_prefix('+').unwrap_or_default();
    (1..=15).contains(&digits.len())
        && digits.bytes().all(|c| c.is_ascii_digit())
        && !digits.starts_with('0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_the_country_of_its_plan() {
        for (number, want) in [
            ("+12025550123", "US"),
            ("+16135550123", "CA"),
            ("+18765550123", "JM"),
            ("+447700900123", "GB"),
            ("+441481960194", "GG"),
            ("+4915123456789", "DE"),
            ("+33612345678", "FR"),
            ("+79161234567", "RU"),
            ("+77011234567", "KZ"),
            ("+80012345678", NOWHERE),
            ("+88312345678", NOWHERE),
            ("+12", NOWHERE),
            // An area that is assigned to nobody: the calling code's own country.
            ("+12005550123", "US"),
        ] {
            assert_eq!(country(number), want, "{number}");
        }
    }

    #[test]
    fn a_rule_sees_a_few_digits_and_never_the_number() {
        let blocked = vec!["+1900".to_owned(), "+4487".to_owned()];
        let place = Place::of("+19005550123", 4, &blocked);
        assert_eq!((place.prefix.as_str(), place.is_blocked), ("1900", true));
        let place = Place::of("+12025550123", 7, &blocked);
        assert_eq!((place.prefix.as_str(), place.is_blocked), ("1202555", false));
        assert!(!format!("{place:?}").contains("2025550123"));
    }

    #[test]
    fn prefixes_and_countries_are_written_strictly() {
        for good in ["+1", "+1900", "+447700900123"] {
            assert!(is_prefix(good), "{good}");
        }
        for bad in ["", "+", "1900", "+0", "+19x", "+1234567890123456", "+\u{ff11}"] {
            assert!(!is_prefix(bad), "{bad}");
        }
        assert!(is_country("GB") && !is_country("gb") && !is_country("GBR") && !is_country("G1"));
    }
}
