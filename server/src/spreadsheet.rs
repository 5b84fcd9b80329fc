//! Cells for spreadsheets, which take some texts for formulas.

use std::borrow::Cow;

/// The cell as text: where a spreadsheet would take it for a formula, an apostrophe stands in front. For CSV
/// alone; NDJSON stays exact.
#[must_use]
pub fn neutral(cell: &str) -> Cow<'_, str> {
    let starts = |c: char| {
        matches!(
            c,
            '=' | '+'
                | '-'
                | '@'
                | '\t'
                | '\r'
                | '\n'
                | '\u{ff1d}'
                | '\u{ff0b}'
                | '\u{ff0d}'
                | '\u{ff20}'
        )
    };
    if cell.starts_with(starts) { Cow::Owned(format!("'{cell}")) } else { Cow::Borrowed(cell) }
}

#[cfg(test)]
mod tests {
    use super::neutral;

    #[test]
    fn no_cell_starts_a_formula() {
        for cell in ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", "＝1", "＋1", "－1", "＠x"]
        {
            assert_eq!(neutral(cell), format!("'{cell}"));
        }
        for cell in ["", "a=1", "1", "operator:a-b", "'=1", "{\"a\":-1}"] {
            assert_eq!(neutral(cell), cell);
        }
    }
}
