//! What a text message costs, by country: a file of lines `country,price`.
//!
//! Prices are millionths of one unit of a currency; which currency is only a word for people.

use std::collections::BTreeMap;

use super::geography::is_country;

/// The country of the line for all others.
pub const OTHERS: &str = "*";

/// The largest file: some 250 countries need a few kilobytes.
pub const BYTES_MAX: u64 = 256 * 1024;

/// The highest price: a million.
const PRICE_MAX: i64 = 1_000_000 * 1_000_000;

/// Prices by country.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prices(BTreeMap<String, i64>);

impl Prices {
    /// Reads the file's text. A first line `country,price`, empty lines and lines that begin with `#` are
    /// left out.
    ///
    /// # Errors
    /// The number of the first line that is none.
    pub fn parse(text: &str) -> Result<Self, usize> {
        let mut prices = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') || (at == 0 && line == "country,price") {
                continue;
            }
            let (country, price) = line.split_once(',').ok_or(at + 1)?;
            let country = country.trim();
            let price = parse(price.trim()).ok_or(at + 1)?;
            let is_known = is_country(country) || country == OTHERS;
            if !is_known || prices.insert(country.to_owned(), price).is_some() {
                return Err(at + 1);
            }
        }
        Ok(Self(prices))
    }

    /// The price of one message to this country; none where no line says.
    #[must_use]
    pub fn of(&self, country: &str) -> Option<i64> {
        self.0.get(country).or_else(|| self.0.get(OTHERS)).copied()
    }

    /// No line at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Stands for the whole table.
    #[must_use]
    pub fn digest(&self) -> String {
        let text: String =
            self.0.iter().map(|(country, price)| format!("{country},{price}\n")).collect();
        crate::keys::sha256(text.as_bytes()).get(..16).unwrap_or_default().to_owned()
    }
}

/// Reads `0.0075`: at most six digits behind the point.
#[must_use]
pub fn parse(text: &str) -> Option<i64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 6 || whole.len() > 7 {
        return None;
    }
    let part: i64 = format!("{part:0<6}").parse().ok()?;
    let price = whole.parse::<i64>().ok()?.checked_mul(1_000_000)?.checked_add(part)?;
    (price <= PRICE_MAX).then_some(price)
}

/// As [`parse`] reads it, without zeros that say nothing.
#[must_use]
pub fn format(price: i64) -> String {
    let text = std::format!("{}.{:06}", price / 1_000_000, (price % 1_000_000).abs());
    let short = text.trim_end_matches('0');
    let wanted = short.len().max(text.find('.').map_or(0, |at| at + 3));
    text.get(..wanted).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_exact() {
        for (text, price) in
            [("0", 0), ("0.0075", 7_500), ("1.5", 1_500_000), ("0.000001", 1), ("12", 12_000_000)]
        {
            assert_eq!(parse(text), Some(price), "{text}");
            assert_eq!(parse(&format(price)), Some(price), "{text}");
        }
        assert_eq!((format(7_500).as_str(), format(12_000_000).as_str()), ("0.0075", "12.00"));
        for bad in ["", ".", ".5", "5.", "-1", "+1", "1,5", "1e3", "0.0000001", "99999999", "1 "] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_table_is_read_whole_or_its_bad_line_is_named() {
        let prices =
            Prices::parse("country,price\n# ours\nUS,0.0079\nGB, 0.04\n\n*,0.2\n").unwrap();
        assert_eq!(prices.of("US"), Some(7_900));
        assert_eq!(prices.of("FR"), Some(200_000));
        assert_eq!(Prices::parse("US,1").unwrap().of("FR"), None);
        for (text, line) in [
            ("US", 1),
            ("US,1\nXX1,2", 2),
            ("US,1\nUS,2", 2),
            ("us,1", 1),
            ("US,-1", 1),
            ("US,1\n\ncountry,price", 3),
        ] {
            assert_eq!(Prices::parse(text), Err(line), "{text}");
        }
    }
}
