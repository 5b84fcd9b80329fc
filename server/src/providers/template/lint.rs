//! What a template may not do: load something, track somebody, carry a second link, hide who writes.
//!
//! A message that loads an image tells a stranger when it was opened; one with two links teaches people to
//! follow the wrong one. So these are refused before anything is sent, not warned about.

use super::segments;

/// Text messages longer than this are refused: networks deliver parts out of order, and bill each.
pub const SEGMENTS_MAX: usize = 6;

/// The longest subject.
const SUBJECT_CHARS_MAX: usize = 150;

/// Stands for the link while a template is filled: the engine never sees the link itself.
pub const LINK_MARK: &str = "\u{e000}\u{e001}\u{e000}";

/// What loads something, runs something, or leads elsewhere in a mail.
const LOADED: &[&str] = &[
    "<img",
    "<script",
    "<link",
    "<iframe",
    "<frame",
    "<object",
    "<embed",
    "<video",
    "<audio",
    "<source",
    "<form",
    "<input",
    "<base",
    "<svg",
    "<meta http-equiv",
    "src=",
    "srcset=",
    "background=",
    "url(",
    "@import",
    "ping=",
    "data:",
    "cid:",
    "javascript:",
    "onload=",
    "onclick=",
    "onerror=",
    "onmouseover=",
];

/// What makes a text a link, whoever wrote it.
const LINKS: &[&str] = &["http://", "https://", "www.", "href=\"//", "href='//"];

/// The part of a message that a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Sms,
    Subject,
    MailText,
    MailHtml,
}

/// Everything that is wrong with a template. `source` as it was written, `filled` with [`LINK_MARK`] as its
/// link and this sender.
#[must_use]
pub fn faults(part: Part, source: &str, filled: &str, sender: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let lower = source.to_ascii_lowercase();
    for word in LINKS {
        // On every path through the template, also those that this filling did not take.
        if lower.contains(word) {
            faults.push(format!("has a link of its own ({word}): the only one is {{{{ link }}}}"));
        }
    }
    let marks = filled.matches(LINK_MARK).count();
    if part == Part::Subject {
        if marks > 0 {
            faults.push("has the link in the subject".to_owned());
        }
        if filled.trim().is_empty() || filled.trim().chars().count() > SUBJECT_CHARS_MAX {
            faults.push(format!(
                "the subject is empty or longer than {SUBJECT_CHARS_MAX} characters"
            ));
        }
        if filled.trim().chars().any(char::is_control) {
            faults.push("the subject has more than one line".to_owned());
        }
        return faults;
    }
    if marks != 1 {
        faults.push(format!("has the link {marks} times instead of once"));
    }
    if filled.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        faults.push("has control characters".to_owned());
    }
    match part {
        Part::Sms => {
            if !filled.contains(sender) {
                faults.push("does not name the sender: use {{ sender }}".to_owned());
            }
            let sample = filled.replace(LINK_MARK, SAMPLE_LINK);
            let size = segments::size(&sample);
            if size.segments > SEGMENTS_MAX {
                faults.push(format!("takes {} segments, more than {SEGMENTS_MAX}", size.segments));
            }
        }
        Part::MailHtml => {
            for word in LOADED {
                if lower.contains(word) {
                    faults.push(format!("loads, runs or hides something ({word})"));
                }
            }
            let is_href = ["\"", "'"]
                .iter()
                .any(|quote| filled.contains(&format!("href={quote}{LINK_MARK}{quote}")));
            if !is_href {
                faults.push("has no <a href=\"{{ link }}\">".to_owned());
            }
        }
        Part::Subject | Part::MailText => {}
    }
    faults
}

/// A link of usual length, for measuring and for previews. It leads nowhere.
pub const SAMPLE_LINK: &str = "https://example.com/reset/0123456789abcdef0123456789abcdef";
