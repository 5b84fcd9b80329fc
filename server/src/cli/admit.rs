//! `sendonce admit`
//!
//! Admits through the same service as the API, on the machine that holds the database, without a client
//! key. Each line is judged exactly as a request's body is; a line that is refused is named by its number
//! and code and never repeated.

use std::fs::File;
use std::io::{BufRead, BufReader};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Admin, CliError, LineAnswer, Out};

/// Lines that are handed over at once: they share a commit.
const LINES_AT_ONCE: usize = 128;

/// As large as a request's body may be; the end of the line does not count.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// Refused lines that are named; the rest is counted.
const NAMED_MAX: usize = 100;

/// What to admit.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:\n  sendonce admit --file events.ndjson\n  \
                        producer | sendonce admit --file -\n\n\
                        Running it again does no harm: what was admitted is answered as a replay.")]
pub struct Args {
    /// A file with one event a line, as the API takes it; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub file: String,
}

/// Admits every line and prints what became of them.
///
/// # Errors
/// With exit code 1 when a line was not admitted, with 2 when the file cannot be opened.
pub async fn run(args: &Args, admin: &dyn Admin, out: &mut Out) -> Result<(), CliError> {
    if args.file == "-" {
        return admit(std::io::stdin().lock(), None, admin, out).await;
    }
    let cannot = |error: std::io::Error| {
        let message = format!("cannot read the file: {}", error.kind());
        CliError::usage(&message, "check the path given with --file")
    };
    let file = File::open(&args.file).map_err(cannot)?;
    let bytes = file.metadata().map_err(cannot)?;
    let length = bytes.is_file().then_some(bytes.len());
    admit(BufReader::new(file), length, admin, out).await
}

/// As [`run`], from any reader. `length` in bytes, where it is known, is what the progress bar measures.
///
/// # Errors
/// As [`run`].
pub async fn admit(
    mut reader: impl BufRead,
    length: Option<u64>,
    admin: &dyn Admin,
    out: &mut Out,
) -> Result<(), CliError> {
    let bar = bar(length);
    let mut lines = Lines::default();
    let mut tally = Tally::default();
    let mut ended = Ok(());
    loop {
        let batch = match lines.next_batch(&mut reader) {
            Ok(batch) if batch.is_empty() => break,
            Ok(batch) => batch,
            Err(error) => {
                let message =
                    format!("reading stopped after line {}: {}", lines.number, error.kind());
                ended = Err(CliError::failed(&message, "run the same command again"));
                break;
            }
        };
        let (fitting, large): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|(_, line)| line.len() <= LINE_BYTES_MAX);
        let (numbers, bodies): (Vec<u64>, Vec<Vec<u8>>) = fitting.into_iter().unzip();
        for (number, _) in large {
            tally.count(number, too_large());
        }
        match admin.admit(&bodies).await {
            Ok(answers) => {
                for (number, answer) in numbers.iter().zip(answers) {
                    tally.count(*number, answer);
                }
            }
            Err(error) => {
                let first = numbers.first().copied().unwrap_or(0);
                let message =
                    format!("whether line {first} and those after it were admitted is not known");
                ended = Err(CliError::failed(
                    &format!("{message}: {error}"),
                    "run the same command again: what was admitted is answered as a replay",
                ));
                break;
            }
        }
        bar.set_position(lines.bytes);
        bar.set_message(format!("{} lines", lines.number));
    }
    bar.finish_and_clear();
    tally.print(out)?;
    ended?;
    if tally.is_all_admitted() { Ok(()) } else { Err(tally.error()) }
}

/// Size is judged first, as the API judges it before anything else.
fn too_large() -> LineAnswer {
    LineAnswer { status: 413, code: "event_too_large".to_owned(), ..LineAnswer::default() }
}

/// On standard error; hidden where that is no terminal.
fn bar(length: Option<u64>) -> ProgressBar {
    let (bar, template) = match length {
        Some(length) => (
            ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr()),
            "{bar:40} {percent:>3} %  {msg}  {eta} left",
        ),
        None => (
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()),
            "{spinner} {msg}  {elapsed}",
        ),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Numbered lines of limited length.
#[derive(Debug, Default)]
struct Lines {
    /// Of the last line that was read, from 1.
    number: u64,
    /// Read so far.
    bytes: u64,
}

impl Lines {
    /// The next lines that are not blank; none at the end.
    fn next_batch(&mut self, reader: &mut impl BufRead) -> std::io::Result<Vec<(u64, Vec<u8>)>> {
        let mut batch = Vec::new();
        while batch.len() < LINES_AT_ONCE {
            let Some(line) = self.next_line(reader)? else { break };
            if !line.iter().all(u8::is_ascii_whitespace) {
                batch.push((self.number, line));
            }
        }
        Ok(batch)
    }

    /// One line without its end. Of a line that is too long only so much is kept that it is seen.
    fn next_line(&mut self, reader: &mut impl BufRead) -> std::io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let mut has_begun = false;
        loop {
            let chunk = match reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if chunk.is_empty() {
                break;
            }
            if !has_begun {
                has_begun = true;
                self.number += 1;
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            let room = (LINE_BYTES_MAX + 2).saturating_sub(line.len());
            line.extend_from_slice(&part[..part.len().min(room)]);
            let used = end.map_or(chunk.len(), |end| end + 1);
            reader.consume(used);
            self.bytes += used as u64;
            if end.is_some() {
                break;
            }
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if self.number == 1 && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        Ok(has_begun.then_some(line))
    }
}

/// What became of the lines.
#[derive(Debug, Default)]
struct Tally {
    admitted: u64,
    replayed: u64,
    /// By status.
    refused: std::collections::BTreeMap<u16, u64>,
    named: Vec<(u64, LineAnswer)>,
}

impl Tally {
    fn count(&mut self, number: u64, answer: LineAnswer) {
        match (answer.status, answer.is_replay) {
            (202, false) => self.admitted += 1,
            (202, true) => self.replayed += 1,
            (status, _) => {
                *self.refused.entry(status).or_default() += 1;
                if self.named.len() < NAMED_MAX {
                    self.named.push((number, answer));
                }
            }
        }
    }

    fn refused(&self, status: u16) -> u64 {
        self.refused.get(&status).copied().unwrap_or(0)
    }

    fn is_all_admitted(&self) -> bool {
        self.refused.is_empty()
    }

    fn print(&self, out: &mut Out) -> Result<(), CliError> {
        let mut named: Vec<&(u64, LineAnswer)> = self.named.iter().collect();
        named.sort_by_key(|(number, _)| *number);
        for (number, answer) in named {
            let fields: Vec<String> =
                answer.fields.iter().map(|(field, code)| format!("{field}: {code}")).collect();
            let fields =
                if fields.is_empty() { String::new() } else { format!(" ({})", fields.join(", ")) };
            out.note(&format!("line {number}: {} {}{fields}", answer.status, answer.code))?;
        }
        let all: u64 = self.refused.values().sum();
        if all > self.named.len() as u64 {
            out.note(&format!("… and {} more lines", all - self.named.len() as u64))?;
        }
        let mut rows = vec![
            ("202 admitted", self.admitted),
            ("202 replayed", self.replayed),
            ("409 conflict", self.refused(409)),
            ("400 invalid", self.refused(400)),
        ];
        for (status, count) in &self.refused {
            match status {
                400 | 409 => {}
                410 => rows.push(("410 purged", *count)),
                413 => rows.push(("413 too large", *count)),
                429 => rows.push(("429 limited", *count)),
                503 => rows.push(("503 not known", *count)),
                _ => rows.push(("other", *count)),
            }
        }
        rows.iter().try_for_each(|(name, count)| out.line(&format!("{name:<14}{count:>9}")))
    }

    fn error(&self) -> CliError {
        let all: u64 = self.refused.values().sum();
        let message =
            format!("{all} {} not admitted", if all == 1 { "line was" } else { "lines were" });
        let can_repeat = self.refused(429) + self.refused(503) > 0;
        let next_step = if can_repeat {
            "run the same command again: what was admitted is answered as a replay"
        } else {
            "mend them and run the same command again: what was admitted is answered as a replay"
        };
        CliError::failed(&message, next_step)
    }
}

#[cfg(test)]
mod tests {
    use super::admit;
    use crate::cli::CliError;
    use crate::cli::testing::{Memory, Screen};

    async fn feed(admin: &Memory, bytes: &[u8]) -> (Result<(), CliError>, Screen) {
        let (mut out, screen) = Screen::new();
        let length = Some(bytes.len() as u64);
        // A tiny buffer, so that lines lie across its edges.
        let reader = std::io::BufReader::with_capacity(7, bytes);
        let done = admit(reader, length, admin, &mut out).await;
        (done, screen)
    }

    #[tokio::test]
    async fn all_lines_are_judged_in_order_and_counted() {
        let admin = Memory::default();
        let (done, screen) = feed(&admin, b"ok 1\nok 2\r\n\n  \nok 1\nok 3").await;
        assert_eq!(done, Ok(()));
        assert_eq!(
            screen.results(),
            "202 admitted          3\n202 replayed          1\n409 conflict          0\n400 invalid           0\n"
        );
        assert_eq!(screen.notes(), "");
        assert_eq!(admin.lines(), ["ok 1", "ok 2", "ok 1", "ok 3"]);
    }

    #[tokio::test]
    async fn a_bad_line_is_named_by_number_and_code_and_never_repeated() {
        let admin = Memory::default();
        let (done, screen) = feed(&admin, b"ok 1\n\nbad +15550100001\nconflict x\nok 2\n").await;
        let error = done.expect_err("refused");
        assert_eq!(error.exit, 1);
        assert!(error.to_string().starts_with("2 lines were not admitted; mend them"), "{error}");
        assert_eq!(
            screen.notes(),
            "line 3: 400 invalid_event (destination_ref: raw_destination)\n\
             line 4: 409 idempotency_conflict\n"
        );
        assert!(!screen.all().contains("5550100001"));
        assert!(screen.results().contains("202 admitted          2\n"));
        assert!(screen.results().contains("409 conflict          1\n400 invalid           1\n"));
    }

    #[tokio::test]
    async fn a_line_that_is_too_large_is_refused_however_long_it_is() {
        let admin = Memory::default();
        let mut text = b"ok ".to_vec();
        text.resize(16 * 1024, b'x');
        text.extend(b"\nok ");
        text.resize(text.len() + 5_000_000, b'y');
        text.extend(b"\nok 3\n");
        let (done, screen) = feed(&admin, &text).await;
        assert_eq!(done.expect_err("too large").exit, 1);
        let lengths: Vec<usize> = admin.lines().iter().map(String::len).collect();
        assert_eq!(lengths, [16 * 1024, 4]);
        assert_eq!(screen.notes(), "line 2: 413 event_too_large\n");
        assert!(screen.results().ends_with("413 too large         1\n"), "{}", screen.results());
    }

    #[tokio::test]
    async fn many_refused_lines_are_counted_and_the_first_hundred_named() {
        let admin = Memory::default();
        let (done, screen) = feed(&admin, "bad\n".repeat(300).as_bytes()).await;
        assert!(done.is_err());
        assert_eq!(screen.notes().lines().count(), 101);
        assert!(screen.notes().ends_with("… and 200 more lines\n"));
        assert!(screen.results().contains("400 invalid         300\n"));
    }

    #[tokio::test]
    async fn when_the_ledger_stops_answering_it_is_said_from_which_line_on() {
        let admin = Memory::default();
        let text = format!("{}down\nok 999\n", "ok\n".repeat(200));
        let (done, screen) = feed(&admin, text.as_bytes()).await;
        let error = done.expect_err("down").to_string();
        assert!(
            error.starts_with("whether line 129 and those after it were admitted is not known")
        );
        assert!(error.contains("run the same command again"), "{error}");
        assert!(screen.results().contains("202 admitted          1\n202 replayed        127\n"));
    }

    #[tokio::test]
    async fn what_may_be_asked_again_has_rows_of_its_own() {
        let admin = Memory::default();
        let (done, screen) = feed(&admin, b"limited\nunknown\n").await;
        assert!(
            done.expect_err("not admitted").to_string().contains("; run the same command again")
        );
        assert!(screen.results().ends_with("429 limited           1\n503 not known         1\n"));
    }

    #[tokio::test]
    async fn nothing_to_admit_is_no_failure() {
        for text in ["", "\n", "\n\n  \n"] {
            let (done, _) = feed(&Memory::default(), text.as_bytes()).await;
            assert_eq!(done, Ok(()), "{text:?}");
        }
    }
}
