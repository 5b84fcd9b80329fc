//! Instants: microseconds since the Unix epoch, in UTC.
//!
//! Everything that is stored or shown is truncated to microseconds once, where it is read from the
//! clock, so that a value read back from any database is the value that was written.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An instant in UTC with microsecond precision. Text form: RFC 3339 with six decimals and `Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp(i64);

impl Stamp {
    /// From microseconds since the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// This instant moved by `micros`, saturating.
    #[must_use]
    pub const fn plus(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// Microseconds from `earlier` to this instant; negative when it lies before.
    #[must_use]
    pub const fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Reads RFC 3339 with an offset, truncating to microseconds.
    ///
    /// # Errors
    /// When the text is no instant, has no offset, or lies outside the calendar.
    pub fn parse(text: &str) -> Result<Self, super::UnknownWord> {
        // RFC 3339 asks for date, `T`, time with seconds, and an offset; what the parser accepts
        // beyond that (a zone in brackets, a bare date, a date with spaces) is refused here.
        let shape = text.len() >= 20
            && text.is_ascii()
            && matches!(text.as_bytes()[10], b'T' | b't')
            && text.as_bytes()[13] == b':'
            && text.as_bytes()[16] == b':'
            && !text.contains('[')
            && !text.contains(' ');
        if !shape {
            return Err(super::UnknownWord("RFC 3339 instant"));
        }
        text.parse::<jiff::Timestamp>()
            .map(|at| Self(at.as_microsecond()))
            .map_err(|_| super::UnknownWord("RFC 3339 instant"))
    }

    /// Hours, minutes and seconds in UTC, as `20:36:31`.
    #[must_use]
    pub fn clock(self) -> String {
        let text = self.to_string();
        text.get(11..19).unwrap_or("").to_owned()
    }

    /// As [`Stamp::clock`], with milliseconds.
    #[must_use]
    pub fn clock_millis(self) -> String {
        let text = self.to_string();
        text.get(11..23).unwrap_or("").to_owned()
    }

    /// The day in UTC, as `2026-11-30`.
    #[must_use]
    pub fn date(self) -> String {
        let text = self.to_string();
        text.get(..10).unwrap_or("").to_owned()
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(at) => write!(f, "{at:.6}"),
            // Outside the calendar (beyond year 9999): still text, never a panic.
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl Serialize for Stamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Stamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::Stamp;

    #[test]
    fn an_instant_is_written_with_six_decimals_and_read_back_equal() {
        let at = Stamp::from_micros(1_790_000_000_123_456);
        assert_eq!(at.to_string(), "2026-09-21T14:13:20.123456Z");
        assert_eq!(Stamp::parse(&at.to_string()), Ok(at));
        assert_eq!(at.clock(), "14:13:20");
    }

    #[test]
    fn sub_microseconds_are_truncated() {
        let at = Stamp::parse("2026-09-21T14:13:20.123456789Z");
        assert_eq!(at, Ok(Stamp::from_micros(1_790_000_000_123_456)));
    }

    #[test]
    fn only_rfc_3339_with_an_offset_is_an_instant() {
        for bad in [
            "",
            "2026-09-21",
            "2026-09-21T14:13:20",
            "2026-09-21 14:13:20Z",
            "now",
            "1790000000",
            "2026-09-21T14:13:20+01:00[Europe/Paris]",
            "2026-13-21T14:13:20Z",
            "2026-09-21T14:13Z",
        ] {
            assert!(Stamp::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Stamp::parse("2026-09-21T16:13:20+02:00"), Stamp::parse("2026-09-21T14:13:20Z"));
    }
}
