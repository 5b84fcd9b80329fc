//! How many segments a text message takes: what it is billed by, and where networks tear it apart.
//!
//! GSM 03.38: 160 characters of the 7-bit alphabet in one message, 153 in each part of a longer one; a
//! character of its extension counts twice. One character outside of it makes the whole message UCS-2: 70,
//! and 67 in parts, counted in UTF-16 units.

/// The alphabet of a text message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alphabet {
    Gsm7,
    Ucs2,
}

impl Alphabet {
    /// As people write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gsm7 => "GSM-7",
            Self::Ucs2 => "UCS-2",
        }
    }

    /// Units of a single message, and of each part of a longer one.
    const fn room(self) -> (usize, usize) {
        match self {
            Self::Gsm7 => (160, 153),
            Self::Ucs2 => (70, 67),
        }
    }
}

/// The size of one text message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub alphabet: Alphabet,
    /// Septets, or UTF-16 units.
    pub units: usize,
    pub segments: usize,
}

const BASIC: &str = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?\
                     ¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà";
const EXTENSION: &str = "\u{c}^{}\\[~]|€";

/// Measures a text.
#[must_use]
pub fn size(text: &str) -> Size {
    let is_gsm = text.chars().all(|c| BASIC.contains(c) || EXTENSION.contains(c));
    let alphabet = if is_gsm { Alphabet::Gsm7 } else { Alphabet::Ucs2 };
    let width = |c: char| match alphabet {
        Alphabet::Gsm7 => 1 + usize::from(EXTENSION.contains(c)),
        Alphabet::Ucs2 => c.len_utf16(),
    };
    let units: usize = text.chars().map(width).sum();
    let (single, part) = alphabet.room();
    if units <= single {
        return Size { alphabet, units, segments: 1 };
    }
    // A character of two units is never torn apart.
    let (mut segments, mut used) = (1, 0);
    for c in text.chars() {
        if used + width(c) > part {
            segments += 1;
            used = 0;
        }
        used += width(c);
    }
    Size { alphabet, units, segments }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_measured_as_networks_do() {
        use Alphabet::{Gsm7, Ucs2};
        for (text, alphabet, units, segments) in [
            (String::new(), Gsm7, 0, 1),
            ("a".repeat(160), Gsm7, 160, 1),
            ("a".repeat(161), Gsm7, 161, 2),
            ("a".repeat(306), Gsm7, 306, 2),
            ("a".repeat(307), Gsm7, 307, 3),
            ("€".repeat(80), Gsm7, 160, 1),
            // 76 euros fit into 153 septets, the 77th is not torn apart.
            ("€".repeat(81), Gsm7, 162, 2),
            ("€".repeat(153), Gsm7, 306, 3),
            ("ä".repeat(160), Gsm7, 160, 1),
            ("ç".to_owned(), Ucs2, 1, 1),
            ("я".repeat(70), Ucs2, 70, 1),
            ("я".repeat(71), Ucs2, 71, 2),
            ("😀".repeat(35), Ucs2, 70, 1),
            ("😀".repeat(36), Ucs2, 72, 2),
            ("😀".repeat(67), Ucs2, 134, 3),
        ] {
            assert_eq!(size(&text), Size { alphabet, units, segments }, "{text}");
        }
    }
}
