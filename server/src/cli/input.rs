//! What a person types.

use std::io::{self, BufRead as _, Read as _};

/// The longest line that is read from standard input.
const LINE_BYTES_MAX: u64 = 4096;

/// Where typed text comes from.
pub trait Input: Send {
    /// One line of standard input, without its end.
    ///
    /// # Errors
    /// When nothing can be read.
    fn line(&mut self) -> io::Result<String>;

    /// Text that is not shown while it is typed.
    ///
    /// # Errors
    /// When there is no terminal.
    fn hidden(&mut self, prompt: &str) -> io::Result<String>;
}

/// The process's own terminal and standard input.
#[derive(Debug, Default, Clone, Copy)]
pub struct Terminal;

impl Input for Terminal {
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        io::stdin().lock().take(LINE_BYTES_MAX).read_line(&mut line)?;
        let end = line.trim_end_matches(['\r', '\n']).len();
        line.truncate(end);
        Ok(line)
    }

    fn hidden(&mut self, prompt: &str) -> io::Result<String> {
        rpassword::prompt_password(prompt)
    }
}
