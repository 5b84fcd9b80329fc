//! Durations as text, in microseconds: `"500ms"`, `"30s"`, `"1h30m"`.

/// One second.
pub const SECOND: i64 = 1_000_000;
/// One minute.
pub const MINUTE: i64 = 60 * SECOND;
/// One hour.
pub const HOUR: i64 = 60 * MINUTE;
/// One day.
pub const DAY: i64 = 24 * HOUR;

/// The longest duration that is read: ten years, far from the end of any clock.
const LONGEST: i64 = 3_660 * DAY;

/// Units from the largest to the smallest, as they are read and written.
const UNITS: [(&str, i64); 6] =
    [("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", 1_000), ("us", 1)];

/// Reads numbers with units, each unit at most once, larger units first. Nothing else: a bare number
/// would leave its unit to guessing.
#[must_use]
pub fn parse(text: &str) -> Option<i64> {
    let mut rest = text.trim();
    let mut total = 0_i64;
    let mut smaller_than = i64::MAX;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let amount: i64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_lowercase).count();
        let (_, size) = UNITS.iter().find(|(name, _)| *name == &rest[..letters])?;
        rest = &rest[letters..];
        if *size >= smaller_than {
            return None;
        }
        smaller_than = *size;
        total = amount.checked_mul(*size).and_then(|micros| total.checked_add(micros))?;
    }
    (total <= LONGEST).then_some(total)
}

/// The shortest text that [`parse`] reads back as the same duration.
#[must_use]
pub fn format(micros: i64) -> String {
    // "24h" is how people write a day; days only from two on.
    let size = |size: i64| if size == DAY { 2 * DAY } else { size };
    UNITS
        .iter()
        .find(|(_, unit)| micros != 0 && micros % unit == 0 && micros >= size(*unit))
        .map_or_else(|| "0s".to_owned(), |(name, unit)| format!("{}{name}", micros / unit))
}

#[cfg(test)]
mod tests {
    use super::{DAY, HOUR, MINUTE, SECOND, format, parse};

    #[test]
    fn durations_are_read_and_written_with_their_units() {
        for (text, micros) in [
            ("500ms", SECOND / 2),
            ("30s", 30 * SECOND),
            ("15m", 15 * MINUTE),
            ("24h", 24 * HOUR),
            ("7d", 7 * DAY),
            ("250us", 250),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Some(micros), "{text}");
            assert_eq!(format(micros), text);
        }
        assert_eq!(parse("1h30m"), Some(90 * MINUTE));
        assert_eq!(format(90 * MINUTE), "90m");
        assert_eq!(parse(" 1s500ms "), Some(1_500_000));
        assert_eq!(parse(&format(1_500_000)), Some(1_500_000));
    }

    #[test]
    fn what_leaves_the_duration_to_guessing_is_refused() {
        for bad in [
            "",
            " ",
            "30",
            "s",
            "-5s",
            "1.5s",
            "30 s",
            "30S",
            "5min",
            "1m1h",
            "1s1s",
            "1e3s",
            "٣s",
            "99999999999999999999s",
            "9999999d",
            "10s;",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
