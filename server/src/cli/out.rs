//! The only printer: results on standard output, everything else on standard error.

use std::fmt::Write as _;
use std::io::Write;

use serde::Serialize;

use super::error::CliError;

/// Where a command prints to.
pub struct Out {
    results: Box<dyn Write + Send>,
    notes: Box<dyn Write + Send>,
}

impl std::fmt::Debug for Out {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Out")
    }
}

impl Out {
    /// The process's own streams.
    #[must_use]
    pub fn process() -> Self {
        Self::new(Box::new(std::io::stdout()), Box::new(std::io::stderr()))
    }

    /// Other streams.
    #[must_use]
    pub fn new(results: Box<dyn Write + Send>, notes: Box<dyn Write + Send>) -> Self {
        Self { results, notes }
    }

    /// One line of the result.
    ///
    /// # Errors
    /// When it cannot be written; silent where nobody reads any more.
    pub fn line(&mut self, text: &str) -> Result<(), CliError> {
        writeln!(self.results, "{}", visible(text))?;
        Ok(self.results.flush()?)
    }

    /// One line beside the result.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note(&mut self, text: &str) -> Result<(), CliError> {
        writeln!(self.notes, "{}", visible(text))?;
        Ok(self.notes.flush()?)
    }

    /// Text of several lines, as the result.
    ///
    /// # Errors
    /// As [`Out::line`].
    pub fn text(&mut self, text: &str) -> Result<(), CliError> {
        text.lines().try_for_each(|line| self.line(line))
    }

    /// One JSON document, for machines.
    ///
    /// # Errors
    /// As [`Out::line`].
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(value).map_err(|_| {
            CliError::failed("the answer cannot be written as JSON", "leave out --json")
        })?;
        self.text(&text)
    }

    /// Aligned columns under their names.
    ///
    /// # Errors
    /// As [`Out::line`].
    pub fn table(&mut self, names: &[&str], rows: &[Vec<String>]) -> Result<(), CliError> {
        self.text(&table(names, rows))
    }

    /// Names and values, aligned.
    ///
    /// # Errors
    /// As [`Out::line`].
    pub fn pairs(&mut self, pairs: &[(&str, String)]) -> Result<(), CliError> {
        let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        pairs.iter().try_for_each(|(name, value)| self.line(&format!("{name:width$}  {value}")))
    }
}

/// The text without what could steer a terminal: parts of it come from outside.
fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// Columns as wide as their widest cell; empty cells read `-`.
fn table(names: &[&str], rows: &[Vec<String>]) -> String {
    let cell = |text: &str| if text.is_empty() { "-".to_owned() } else { visible(text) };
    let header: Vec<String> = names.iter().map(|name| name.to_uppercase()).collect();
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|text| cell(text)).collect()).collect();
    let lines = || std::iter::once(&header).chain(&rows);
    let widths: Vec<usize> = (0..names.len())
        .map(|at| {
            lines().filter_map(|row| row.get(at)).map(|c| c.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut out = String::new();
    for row in lines() {
        let mut line = String::new();
        for (text, width) in row.iter().zip(&widths) {
            // Writing to a `String` cannot fail.
            let _ = write!(line, "{text:width$}  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{table, visible};

    #[test]
    fn columns_are_aligned_and_empty_cells_are_visible() {
        let rows = vec![
            vec!["a".to_owned(), String::new(), "x".to_owned()],
            vec!["longer".to_owned(), "é".to_owned(), "y".to_owned()],
        ];
        assert_eq!(
            table(&["id", "n", "last"], &rows),
            "ID      N  LAST\na       -  x\nlonger  é  y\n"
        );
    }

    #[test]
    fn nothing_that_steers_a_terminal_is_printed() {
        assert_eq!(visible("a\u{1b}[2Jb\r\nc"), "a\u{fffd}[2Jb\u{fffd}\u{fffd}c");
    }
}
