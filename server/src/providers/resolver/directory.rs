//! A directory file: NDJSON lines `{"destination_ref","phone"?,"email"?}` and `{"reset_ref","link"}`.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use app::model::Channel;
use async_trait::async_trait;
use serde::Deserialize;

use super::{Resolution, ResolveRequest, Resolved, Resolver, address, link};
use crate::providers::{BuildError, Deadline, Secret};

/// The largest directory that is read: 64 MiB.
pub const DIRECTORY_BYTES_MAX: u64 = 64 << 20;

/// Answers from a file, which is read again whenever its time or size has changed.
///
/// A file that has become broken or unreadable answers nothing until it is mended: the entry that one asks
/// for may be the very one that was changed, and an old number may belong to somebody else by now.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    // A std mutex: held for a comparison and a copy of a pointer, never over a read.
    loaded: Mutex<Option<(Mark, Arc<Entries>)>>,
}

/// What tells one state of the file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    changed_at: Option<SystemTime>,
    len: u64,
}

#[derive(Debug, Default)]
struct Entries {
    destinations: HashMap<String, Destination>,
    links: HashMap<String, Secret>,
}

#[derive(Debug)]
struct Destination {
    phone: Option<(Secret, Secret)>,
    email: Option<(Secret, Secret)>,
}

/// Why a file does not answer.
#[derive(Debug)]
enum Broken {
    Unreadable(std::io::Error),
    TooLarge,
    Line(usize, &'static str),
}

impl Broken {
    const fn code(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "directory_unreadable",
            Self::TooLarge => "directory_too_large",
            Self::Line(..) => "directory_broken",
        }
    }
}

impl Directory {
    /// Reads the file once.
    ///
    /// # Errors
    /// When it cannot be read or a line is broken: the number of the line and what is wrong with it, never
    /// what it says.
    pub fn open(path: &Path) -> Result<Self, BuildError> {
        let file = path.display().to_string();
        let loaded = load(path).map_err(|broken| match broken {
            Broken::Unreadable(source) => BuildError::File { file, source },
            Broken::TooLarge => BuildError::DirectoryTooLarge { file },
            Broken::Line(line, why) => BuildError::DirectoryLine { file, line, why },
        })?;
        Ok(Self { path: path.to_owned(), loaded: Mutex::new(Some(loaded)) })
    }

    async fn entries(&self) -> Result<Arc<Entries>, Broken> {
        let mark = tokio::fs::metadata(&self.path)
            .await
            .map(|data| Mark::of(&data))
            .map_err(Broken::Unreadable)?;
        if let Some((known, entries)) = &*self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
            && *known == mark
        {
            return Ok(Arc::clone(entries));
        }
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || load(&path)).await;
        let (mark, entries) =
            read.map_err(|_| Broken::Unreadable(std::io::ErrorKind::Interrupted.into()))??;
        *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((mark, Arc::clone(&entries)));
        Ok(entries)
    }
}

impl Mark {
    fn of(data: &std::fs::Metadata) -> Self {
        Self { changed_at: data.modified().ok(), len: data.len() }
    }
}

#[async_trait]
impl Resolver for Directory {
    async fn resolve(&self, request: &ResolveRequest, _deadline: Deadline) -> Resolution {
        let entries = match self.entries().await {
            Ok(entries) => entries,
            Err(broken) => {
                if let Broken::Line(line, why) = broken {
                    tracing::warn!(
                        line,
                        why,
                        "the resolver's directory is broken; nothing is resolved until it is mended"
                    );
                }
                return Resolution::Unavailable { code: broken.code().to_owned() };
            }
        };
        let destination = entries.destinations.get(&request.destination_ref);
        let address = destination.and_then(|found| match request.channel {
            Channel::Sms => found.phone.clone(),
            Channel::Email => found.email.clone(),
        });
        match (address, entries.links.get(&request.reset_ref)) {
            (Some((to, canonical)), Some(link)) => {
                Resolution::Found(Resolved { to, canonical, link: link.clone(), locale: None })
            }
            _ => Resolution::NotFound,
        }
    }
}

fn load(path: &Path) -> Result<(Mark, Arc<Entries>), Broken> {
    let file = std::fs::File::open(path).map_err(Broken::Unreadable)?;
    // Of the opened file, and before it is read: a change during the read shows as another mark next time.
    let mark = Mark::of(&file.metadata().map_err(Broken::Unreadable)?);
    let mut bytes = zeroize::Zeroizing::new(Vec::with_capacity(
        usize::try_from(mark.len).unwrap_or(0).min(1 << 20),
    ));
    file.take(DIRECTORY_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(Broken::Unreadable)?;
    if bytes.len() as u64 > DIRECTORY_BYTES_MAX {
        return Err(Broken::TooLarge);
    }
    Ok((mark, Arc::new(parse(&bytes).map_err(|(line, why)| Broken::Line(line, why))?)))
}

/// The entries, or the number of the first broken line (from 1) and what is wrong with it.
fn parse(bytes: &[u8]) -> Result<Entries, (usize, &'static str)> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Line {
        destination_ref: Option<String>,
        phone: Option<String>,
        email: Option<String>,
        reset_ref: Option<String>,
        link: Option<String>,
    }
    let mut entries = Entries::default();
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let broken = |why| (at + 1, why);
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let line: Line = serde_json::from_slice(line).map_err(|_| {
            broken("is not a JSON object with the known fields, each a text and once")
        })?;
        match (line.destination_ref, line.reset_ref, line.link) {
            (Some(handle), None, None) if !handle.is_empty() => {
                let checked = |channel, text: Option<String>, why| match text {
                    None => Ok(None),
                    Some(text) => address(channel, &text).map(Some).ok_or(broken(why)),
                };
                let destination = Destination {
                    phone: checked(
                        Channel::Sms,
                        line.phone,
                        "has a phone that is not strict E.164",
                    )?,
                    email: checked(
                        Channel::Email,
                        line.email,
                        "has an email that is not a plain address",
                    )?,
                };
                if entries.destinations.insert(handle, destination).is_some() {
                    return Err(broken("repeats a destination_ref"));
                }
            }
            (None, Some(handle), Some(url))
                if !handle.is_empty() && line.phone.is_none() && line.email.is_none() =>
            {
                link(&url).ok_or(broken("has a link that is not https"))?;
                if entries.links.insert(handle, Secret::new(url)).is_some() {
                    return Err(broken("repeats a reset_ref"));
                }
            }
            _ => {
                return Err(broken(
                    "is neither a destination_ref with addresses nor a reset_ref with its link",
                ));
            }
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_broken_line_is_named_by_number_and_never_quoted() {
        let good = r#"{"destination_ref":"d-1","phone":"+12025550123","email":"a@b.example"}"#;
        let link = r#"{"reset_ref":"r-1","link":"https://example.com/r"}"#;
        let entries = parse(format!("{good}\n\n{link}\r\n").as_bytes()).unwrap();
        assert_eq!((entries.destinations.len(), entries.links.len()), (1, 1));
        for bad in [
            "{",
            "[]",
            "7",
            r#"{"destination_ref":"d-1"}"#,
            r#"{"destination_ref":"d-2","phone":"0202"}"#,
            r#"{"destination_ref":"d-2","email":"x"}"#,
            r#"{"destination_ref":"d-2","mail":"x"}"#,
            r#"{"destination_ref":"d-2","link":"https://example.com"}"#,
            r#"{"reset_ref":"r-2"}"#,
            r#"{"reset_ref":"r-2","link":"http://example.com"}"#,
            r#"{"reset_ref":"r-1","link":"https://example.com"}"#,
            r#"{"reset_ref":"r-2","reset_ref":"r-2","link":"https://example.com"}"#,
            r#"{"reset_ref":7,"link":"x"}"#,
            r#"{"destination_ref":"","phone":"+12025550123"}"#,
            "{}",
        ] {
            let (line, _) = parse(format!("{good}\n{link}\n{bad}\n").as_bytes()).unwrap_err();
            assert_eq!(line, 3, "{bad}");
        }
    }
}
