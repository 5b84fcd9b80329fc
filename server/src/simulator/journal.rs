//! What the `demo` provider has accepted, beyond the life of its process.
//!
//! A look-up after a crash must find a message that was accepted before it; a real provider would not
//! have forgotten. So each acceptance is a line in a file, written before it is answered: attempt id,
//! message id, time. Never a destination and never a text.
//!
//! One file for each day in UTC, only ever appended to: several processes with the same data folder
//! share it, and see what the others accepted. Files of days that ended more than a day ago are
//! deleted. The lines are not flushed to the disk: they outlive the process, not the machine.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use app::model::Stamp;
use serde::{Deserialize, Serialize};

const DAY: i64 = 24 * 60 * 60 * 1_000_000;
const PREFIX: &str = "demo-accepted-";
const SUFFIX: &str = ".ndjson";

/// The open journal.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    /// Yesterday's and today's file as far as they have been read.
    read: Vec<(String, u64)>,
}

/// One accepted message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Microseconds since the Unix epoch.
    pub at: i64,
    pub kind: String,
    pub attempt: String,
    pub message: String,
}

impl Journal {
    /// Opens the journal of this folder, makes the folder if it is missing, and deletes what is too old.
    ///
    /// # Errors
    /// When the folder cannot be made or read.
    pub fn open(folder: &Path, now: Stamp) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let kept = names(now);
        for file in std::fs::read_dir(folder)? {
            let name = file?.file_name();
            let Some(name) = name.to_str() else { continue };
            let is_old =
                name.starts_with(PREFIX) && name.ends_with(SUFFIX) && name < kept[0].as_str();
            if is_old {
                // Another process may have been quicker.
                let _ = std::fs::remove_file(folder.join(name));
            }
        }
        Ok(Self { folder: folder.to_owned(), read: Vec::new() })
    }

    /// The entries of the last 24 hours that were not returned before, of this and other processes.
    ///
    /// # Errors
    /// When a file that exists cannot be read.
    pub fn fresh(&mut self, now: Stamp) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let names = names(now);
        self.read.retain(|(name, _)| names.contains(name));
        for name in names {
            let from =
                self.read.iter().find(|(known, _)| *known == name).map_or(0, |(_, from)| *from);
            let mut file = match File::open(self.folder.join(&name)) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            if file.metadata()?.len() <= from {
                continue;
            }
            file.seek(SeekFrom::Start(from))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            // A line without its end is being written by somebody else.
            let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            for line in bytes[..whole].split(|byte| *byte == b'\n') {
                if let Ok(entry) = serde_json::from_slice::<Entry>(line)
                    && now.micros().saturating_sub(entry.at) < DAY
                {
                    entries.push(entry);
                }
            }
            self.mark(name, from + whole as u64);
        }
        Ok(entries)
    }

    /// Writes one entry.
    ///
    /// # Errors
    /// When it is not certain that the whole line is there.
    pub fn append(&mut self, entry: &Entry) -> io::Result<()> {
        let name = name(entry.at);
        // A line end in front as well, so that a line which somebody's death cut short spoils no other.
        let mut line = vec![b'\n'];
        serde_json::to_writer(&mut line, entry)?;
        line.push(b'\n');
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            options.mode(0o600);
        }
        let mut file = options.open(self.folder.join(&name))?;
        // One write of one short line to a file opened for appending: lines of two processes do not mix.
        if file.write(&line)? != line.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(())
    }

    fn mark(&mut self, name: String, to: u64) {
        match self.read.iter_mut().find(|(known, _)| *known == name) {
            Some((_, from)) => *from = to,
            None => self.read.push((name, to)),
        }
    }
}

/// Yesterday's and today's file: 24 hours lie in these two.
fn names(now: Stamp) -> [String; 2] {
    [name(now.micros().saturating_sub(DAY)), name(now.micros())]
}

fn name(at: i64) -> String {
    format!("{PREFIX}{}{SUFFIX}", Stamp::from_micros(at).date())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at: Stamp, attempt: &str) -> Entry {
        Entry {
            at: at.micros(),
            kind: "demo".to_owned(),
            attempt: attempt.to_owned(),
            message: "m-1".to_owned(),
        }
    }

    #[test]
    fn what_was_accepted_is_found_by_another_process_for_a_day() {
        let folder = std::env::temp_dir().join(format!("sendonce-journal-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let now = Stamp::parse("2026-09-21T00:30:00Z").unwrap();
        let hour = 3_600_000_000;
        let mut one = Journal::open(&folder, now).unwrap();
        one.append(&entry(now.plus(-hour), "yesterday")).unwrap();
        one.append(&entry(now.plus(-25 * hour), "older")).unwrap();
        one.append(&entry(now, "now")).unwrap();
        let mut other = Journal::open(&folder, now).unwrap();
        let ids = |entries: Vec<Entry>| {
            entries.into_iter().map(|entry| entry.attempt).collect::<Vec<_>>()
        };
        assert_eq!(ids(other.fresh(now).unwrap()), ["yesterday", "now"]);
        assert_eq!(ids(other.fresh(now).unwrap()), Vec::<String>::new());
        one.append(&entry(now.plus(1), "next")).unwrap();
        std::fs::OpenOptions::new()
            .append(true)
            .open(folder.join(name(now.micros())))
            .unwrap()
            .write_all(b"{\"at\"")
            .unwrap();
        assert_eq!(ids(other.fresh(now).unwrap()), ["next"]);
        let later = now.plus(2 * DAY);
        assert_eq!(
            ids(Journal::open(&folder, later).unwrap().fresh(later).unwrap()),
            Vec::<String>::new()
        );
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
