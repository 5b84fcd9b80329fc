//! Templates of an installation: one file for each part, purpose, channel and language.
//!
//! `<purpose>.<channel>.<language>.<part>`: `password_reset.sms.en.txt`, `password_reset.email.en.subject`,
//! `password_reset.email.en.txt`, `password_reset.email.en.html`. The purpose `default` serves all others.
//!
//! A template sees `sender`, `until`, `until_time`, `until_date`, `purpose` and `link`, and nothing else; it
//! reaches no file and no network, and is stopped when it takes too long. The link it sees is a mark, which
//! is exchanged for the link when the text is finished.

use std::collections::BTreeMap;
use std::path::Path;

use app::model::{Channel, Stamp};
use minijinja::{Environment, UndefinedBehavior, context};

use super::lint::{LINK_MARK, Part, faults};
use crate::providers::resolver::Resolved;
use crate::providers::{Message, Secret};

/// Steps that one template may take; a message takes a few hundred.
const FUEL: u64 = 20_000;

/// Files of one folder, and the largest of them.
const FILES_MAX: usize = 500;
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// The longest text that a template may make.
const TEXT_BYTES_MAX: usize = 256 * 1024;

/// The purpose that serves all which have no templates of their own.
const DEFAULT_PURPOSE: &str = "default";

/// The sender while templates are looked over.
const SAMPLE_SENDER: &str = "Example Market";

/// Purpose, channel and language.
type Key = (String, Channel, String);

/// The templates of an installation. Without any, the built-in texts are sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Templates {
    /// The language of recipients whose own is not known or has no template.
    locale: String,
    files: BTreeMap<(Key, Part), String>,
}

/// One file and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub file: String,
    pub message: String,
}

/// One filled part, as a person may look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    pub purpose: String,
    pub channel: Channel,
    pub locale: String,
    pub subject: Option<String>,
    pub text: String,
    pub has_html: bool,
}

impl Templates {
    /// Reads a folder and looks every file over.
    ///
    /// # Errors
    /// Every fault of every file, and what the folder itself is missing.
    pub fn load(folder: &Path, locale: &str) -> Result<Self, Vec<Fault>> {
        let mut templates = Self { locale: locale.to_ascii_lowercase(), files: BTreeMap::new() };
        let of_folder = |message: &str| {
            vec![Fault { file: "the folder".to_owned(), message: message.to_owned() }]
        };
        let entries = std::fs::read_dir(folder)
            .map_err(|error| of_folder(&format!("cannot be read: {}", error.kind())))?;
        let mut found = Vec::new();
        let mut names: Vec<(String, std::path::PathBuf)> = entries
            .flatten()
            .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
            .filter(|(name, path)| path.is_file() && !name.starts_with('.'))
            .take(FILES_MAX + 1)
            .collect();
        if names.len() > FILES_MAX {
            return Err(of_folder(&format!("has more than {FILES_MAX} files")));
        }
        names.sort();
        for (name, path) in names {
            let mut fault = |message: String| found.push(Fault { file: name.clone(), message });
            match (place_of(&name), read(&path)) {
                (None, _) => fault(
                    "is not named <purpose>.<channel>.<language>.<txt, html or subject>".to_owned(),
                ),
                (_, Err(kind)) => fault(format!("cannot be read: {kind}")),
                (Some(place), Ok(source)) => {
                    faults_of(place.1, &source).into_iter().for_each(fault);
                    templates.files.insert(place, source);
                }
            }
        }
        for (key, part) in templates.files.keys() {
            let has = |part| templates.files.contains_key(&(key.clone(), part));
            let is_whole = *part == Part::Sms || (has(Part::Subject) && has(Part::MailText));
            if !is_whole {
                let file = format!("{}.email.{}", key.0, key.2);
                let message = "needs a .subject and a .txt".to_owned();
                let fault = Fault { file, message };
                if !found.contains(&fault) {
                    found.push(fault);
                }
            }
        }
        if found.is_empty() { Ok(templates) } else { Err(found) }
    }

    /// Stands for all of them: processes on one database must send the same bytes.
    #[must_use]
    pub fn digest(&self) -> String {
        if self.files.is_empty() {
            return String::new();
        }
        let mut text = self.locale.clone();
        for (((purpose, channel, locale), part), source) in &self.files {
            let size = source.len();
            text.push_str(&format!("\n{purpose} {channel} {locale} {part:?} {size}\n{source}"));
        }
        crate::keys::sha256(text.as_bytes()).get(..16).unwrap_or_default().to_owned()
    }

    /// The text of one attempt: of a template where one fits, else the built-in one. The same input always
    /// gives the same bytes.
    #[must_use]
    pub fn render(
        &self,
        channel: Channel,
        resolved: &Resolved,
        purpose: &str,
        expires_at: Stamp,
        attempt_id: &str,
        sender: &str,
    ) -> Message {
        let built_in = || super::render(channel, resolved, purpose, expires_at, attempt_id, sender);
        let Some(key) = self.find(channel, purpose, resolved.locale.as_deref()) else {
            return built_in();
        };
        let sender = super::shown_sender(sender);
        let Some(filled) = self.fill(&key, purpose, expires_at, &sender) else {
            // It was looked over when it was loaded; what it does with other values nobody knows before.
            tracing::error!("a template failed: the built-in text is sent instead");
            return built_in();
        };
        let link = resolved.link.expose();
        let with_link = |text: &str, link: &str| Secret::new(text.replace(LINK_MARK, link));
        Message {
            attempt_id: attempt_id.to_owned(),
            channel,
            to: resolved.to.clone(),
            text: with_link(&filled.text, link),
            subject: filled.subject,
            html: filled.html.as_deref().map(|html| with_link(html, &super::escaped(link))),
            valid_until: expires_at,
        }
    }

    /// Every text message and mail, filled with samples.
    #[must_use]
    pub fn previews(&self, expires_at: Stamp, sender: &str) -> Vec<Preview> {
        let keys: std::collections::BTreeSet<&Key> =
            self.files.keys().map(|(key, _)| key).collect();
        keys.into_iter()
            .filter_map(|key| {
                let filled = self.fill(key, &key.0, expires_at, sender)?;
                Some(Preview {
                    purpose: key.0.clone(),
                    channel: key.1,
                    locale: key.2.clone(),
                    subject: filled.subject,
                    text: filled.text.replace(LINK_MARK, super::lint::SAMPLE_LINK),
                    has_html: filled.html.is_some(),
                })
            })
            .collect()
    }

    /// The own purpose before the default one, the own language before its family before ours.
    fn find(&self, channel: Channel, purpose: &str, locale: Option<&str>) -> Option<Key> {
        let part = if channel == Channel::Sms { Part::Sms } else { Part::MailText };
        let locale = locale.unwrap_or_default().to_ascii_lowercase();
        let family = locale.split('-').next().unwrap_or_default().to_owned();
        for purpose in [purpose, DEFAULT_PURPOSE] {
            for locale in [&locale, &family, &self.locale] {
                let key = (purpose.to_owned(), channel, locale.clone());
                if self.files.contains_key(&(key.clone(), part)) {
                    return Some(key);
                }
            }
        }
        None
    }

    fn fill(&self, key: &Key, purpose: &str, expires_at: Stamp, sender: &str) -> Option<Filled> {
        let part = |part: Part| {
            let source = self.files.get(&(key.clone(), part))?;
            let text = fill(part, source, purpose, expires_at, sender).ok()?;
            // Once more, with these values: one link, and nothing that was hidden behind a condition.
            faults(part, source, &text, sender).is_empty().then_some(text)
        };
        if key.1 == Channel::Sms {
            let text = part(Part::Sms)?.trim().to_owned();
            return Some(Filled { text, subject: None, html: None });
        }
        let has_html = self.files.contains_key(&(key.clone(), Part::MailHtml));
        let html = if has_html { Some(part(Part::MailHtml)?) } else { None };
        let subject = part(Part::Subject)?.trim().to_owned();
        Some(Filled { text: part(Part::MailText)?, subject: Some(subject), html })
    }
}

/// The parts of a message, with the mark where the link goes.
struct Filled {
    text: String,
    subject: Option<String>,
    html: Option<String>,
}

fn place_of(name: &str) -> Option<(Key, Part)> {
    let mut pieces = name.rsplitn(4, '.');
    let (kind, locale) = (pieces.next()?, pieces.next()?);
    let channel: Channel = pieces.next()?.parse().ok()?;
    let purpose = pieces.next()?;
    let part = match (channel, kind) {
        (Channel::Sms, "txt") => Part::Sms,
        (Channel::Email, "txt") => Part::MailText,
        (Channel::Email, "html") => Part::MailHtml,
        (Channel::Email, "subject") => Part::Subject,
        _ => return None,
    };
    let is_locale = (2..=35).contains(&locale.len())
        && locale.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    let is_purpose = crate::admission::validate::is_id(purpose, 64);
    (is_locale && is_purpose)
        .then(|| ((purpose.to_owned(), channel, locale.to_ascii_lowercase()), part))
}

fn read(path: &Path) -> Result<String, std::io::ErrorKind> {
    use std::io::Read as _;
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| error.kind())?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.kind())?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(std::io::ErrorKind::FileTooLarge);
    }
    Ok(text)
}

/// What is wrong with a file, filled with samples.
fn faults_of(part: Part, source: &str) -> Vec<String> {
    let at = Stamp::from_micros(1_790_000_000_000_000);
    match fill(part, source, "password_reset", at, SAMPLE_SENDER) {
        Ok(filled) => faults(part, source, &filled, SAMPLE_SENDER),
        Err(message) => vec![message],
    }
}

/// Fills one template. The error names the line and never a value.
fn fill(
    part: Part,
    source: &str,
    purpose: &str,
    expires_at: Stamp,
    sender: &str,
) -> Result<String, String> {
    let mut engine = Environment::new();
    engine.set_undefined_behavior(UndefinedBehavior::Strict);
    engine.set_fuel(Some(FUEL));
    // The ending decides about escaping.
    let name = if part == Part::MailHtml { "template.html" } else { "template.txt" };
    let (date, clock) = (expires_at.date(), expires_at.clock());
    let time = format!("{} UTC", clock.get(..5).unwrap_or(&clock));
    let values = context! {
        sender => sender,
        purpose => purpose,
        link => LINK_MARK,
        until => super::until(expires_at),
        until_time => time,
        until_date => date.to_string(),
    };
    let filled = engine.render_named_str(name, source, values).map_err(|error| {
        let line = error.line().map_or_else(String::new, |line| format!(" in line {line}"));
        format!("cannot be filled: {}{line}", error.kind())
    })?;
    if filled.len() > TEXT_BYTES_MAX {
        return Err(format!("makes more than {TEXT_BYTES_MAX} bytes"));
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::{Entropy as _, SystemEntropy};

    const LINK: &str = "https://example.com/reset/0123?a=1&b=2";

    struct Folder(std::path::PathBuf);

    impl Folder {
        fn with(files: &[(&str, &str)]) -> Self {
            let folder =
                Self(std::env::temp_dir().join(format!("sendonce-texts-{}", SystemEntropy.hex(8))));
            std::fs::create_dir_all(&folder.0).unwrap();
            for (name, text) in files {
                std::fs::write(folder.0.join(name), text).unwrap();
            }
            folder
        }

        fn load(&self) -> Result<Templates, Vec<String>> {
            Templates::load(&self.0, "en").map_err(|faults| {
                faults.iter().map(|fault| format!("{}: {}", fault.file, fault.message)).collect()
            })
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn resolved(locale: Option<&str>) -> Resolved {
        let secret = |text: &str| Secret::new(text.to_owned());
        Resolved {
            to: secret("+12025550123"),
            canonical: secret("+12025550123"),
            link: secret(LINK),
            locale: locale.map(str::to_owned),
        }
    }

    fn message(templates: &Templates, channel: Channel, purpose: &str, locale: &str) -> Message {
        let at = Stamp::parse("2026-09-21T14:05:59Z").unwrap();
        templates.render(channel, &resolved(Some(locale)), purpose, at, "a1", "A <Market>")
    }

    #[test]
    fn a_message_is_of_its_purpose_and_language_or_of_the_nearest_that_there_is() {
        let folder = Folder::with(&[
            (
                "password_reset.sms.en.txt",
                "{{ sender }}: reset until {{ until_time }}: {{ link }}\n",
            ),
            ("password_reset.sms.de.txt", "{{ sender }}: bis {{ until_time }}: {{ link }}"),
            ("default.sms.en.txt", "{{ sender }}: go on: {{ link }}"),
            ("password_reset.email.en.subject", "{{ sender }}: your link\n"),
            ("password_reset.email.en.txt", "Open {{ link }}\nuntil {{ until }}.\n{{ sender }}\n"),
            (
                "password_reset.email.en.html",
                "<p>{{ sender }}</p><p><a href=\"{{ link }}\">Reset</a></p>",
            ),
        ]);
        let templates = folder.load().unwrap();
        let text = |purpose, locale| {
            message(&templates, Channel::Sms, purpose, locale).text.expose().to_owned()
        };
        assert_eq!(text("password_reset", "de-AT"), format!("A <Market>: bis 14:05 UTC: {LINK}"));
        assert_eq!(
            text("password_reset", "fr"),
            format!("A <Market>: reset until 14:05 UTC: {LINK}")
        );
        assert_eq!(text("login", "de"), format!("A <Market>: go on: {LINK}"));
        let mail = message(&templates, Channel::Email, "password_reset", "en");
        assert_eq!(mail.subject.as_deref(), Some("A <Market>: your link"));
        assert!(mail.text.expose().starts_with(&format!("Open {LINK}\nuntil 14:05 UTC on")));
        let html = mail.html.as_ref().unwrap().expose().to_owned();
        assert!(html.contains("href=\"https://example.com/reset/0123?a=1&amp;b=2\""), "{html}");
        assert!(html.contains("A &lt;Market&gt;"));
        // No template of this purpose for mail: the built-in text.
        let other = message(&templates, Channel::Email, "login", "en");
        assert!(other.text.expose().starts_with("Hello,"));
        assert_eq!(other.text, message(&templates, Channel::Email, "login", "en").text);
        assert_ne!(templates.digest(), Templates::default().digest());
        let previews = templates.previews(Stamp::from_micros(0), "S");
        assert_eq!(previews.len(), 4);
        assert!(previews.iter().all(|preview| preview.text.contains("example.com/reset/")));
    }

    #[test]
    fn what_would_leak_or_mislead_is_refused_with_its_file() {
        for (name, source, want) in [
            ("p.sms.en.txt", "reset: {{ link }}", "does not name the sender"),
            ("p.sms.en.txt", "{{ sender }}: no link", "link 0 times"),
            ("p.sms.en.txt", "{{ sender }} {{ link }} {{ link }}", "link 2 times"),
            ("p.sms.en.txt", "{{ sender }} {{ link|upper|length }}", "link 0 times"),
            ("p.sms.en.txt", "{{ sender }} {{ link }} https://evil.example", "link of its own"),
            (
                "p.sms.en.txt",
                "{{ sender }} {{ link }}{% if purpose == 'x' %}www.evil.example{% endif %}",
                "link of its own",
            ),
            ("p.sms.en.txt", "{{ sender }} {{ link }} {{ token }}", "undefined value in line 1"),
            ("p.sms.en.txt", "{{ sender }}\n{{ link", "syntax error in line 2"),
            ("p.sms.en.txt", "{{ sender }} {% include 'x' %} {{ link }}", "cannot be filled"),
            (
                "p.sms.en.txt",
                "{{ sender }} {{ link }}{% for i in range(9999) %}{% for j in range(9999) %}x{% endfor %}{% endfor %}",
                "cannot be filled",
            ),
            ("p.email.en.html", "<a href=\"{{ link }}\">x</a><img src=\"x\">", "(<img)"),
            ("p.email.en.html", "<a href=\"{{ link }}\" onclick=\"x()\">x</a>", "(onclick=)"),
            ("p.email.en.html", "<p>{{ link }}</p>", "has no <a href"),
            (
                "p.email.en.html",
                "<a href=\"{{ link }}\">x</a><style>@import 'x'</style>",
                "(@import)",
            ),
            ("p.email.en.html", "<a href=\"{{ link }}\">x</a>", "needs a .subject and a .txt"),
            ("p.email.en.subject", "{{ link }}", "link in the subject"),
            ("p.email.en.subject", "a\nb", "more than one line"),
            ("p.fax.en.txt", "{{ link }}", "is not named"),
            ("notes.md", "x", "is not named"),
        ] {
            let folder = Folder::with(&[(name, source)]);
            let faults = folder.load().expect_err(source);
            assert!(faults.iter().any(|fault| fault.contains(want)), "{source}: {faults:?}");
            let first = name.trim_end_matches(".html").trim_end_matches(".subject");
            assert!(faults.iter().all(|fault| fault.starts_with(first)), "{faults:?}");
        }
        let long = format!("{{{{ sender }}}} {} {{{{ link }}}}", "x".repeat(1_000));
        let faults = Folder::with(&[("p.sms.en.txt", &long)]).load().unwrap_err();
        assert!(faults[0].contains("segments"), "{faults:?}");
    }

    #[test]
    fn a_template_that_fails_when_it_matters_is_replaced_by_the_built_in_text() {
        // Right with the sample, wrong with a purpose that nobody tried.
        let source = "{{ sender }} {{ link }}{% if purpose == 'login' %}{{ link }}{% endif %}";
        let templates = Folder::with(&[("default.sms.en.txt", source)]).load().unwrap();
        let text = message(&templates, Channel::Sms, "other", "en").text.expose().to_owned();
        assert_eq!(text, format!("A <Market> {LINK}"));
        let text = message(&templates, Channel::Sms, "login", "en").text.expose().to_owned();
        assert!(text.contains("use this link to continue"), "{text}");
    }
}
