//! The texts. One link, the sender's name, an absolute time: the same input always gives the same bytes, so
//! that a replay of an attempt repeats them.

mod custom;
mod lint;
pub mod segments;

use app::model::{Channel, Stamp};

pub use custom::{Fault, Preview, Templates};

use super::resolver::Resolved;
use super::{Message, Secret};

/// Longest sender's name that is used; the rest is cut.
const SENDER_LEN_MAX: usize = 32;

/// What a purpose is called in a sentence.
struct Words {
    /// "Use this link to …"
    act: &'static str,
    subject: &'static str,
    button: &'static str,
}

/// The purpose itself is the caller's handle and never shown.
fn words(purpose: &str) -> Words {
    match purpose {
        "password_reset" => Words {
            act: "reset your password",
            subject: "Reset your password",
            button: "Reset password",
        },
        _ => Words { act: "continue", subject: "Continue with your request", button: "Continue" },
    }
}

/// Renders one attempt's message with the built-in text, in English whatever `resolved.locale` says: what is
/// sent where an installation has no templates of its own ([`Templates`]).
///
/// Control characters of `sender` are dropped, and it is cut at 32 characters.
#[must_use]
pub fn render(
    channel: Channel,
    resolved: &Resolved,
    purpose: &str,
    expires_at: Stamp,
    attempt_id: &str,
    sender: &str,
) -> Message {
    let sender = shown_sender(sender);
    let words = words(purpose);
    let link = resolved.link.expose();
    let until = until(expires_at);
    let (text, subject, html) = match channel {
        // The link stands alone at the end: phones take a full stop behind it for a part of it.
        Channel::Sms => {
            let act = words.act;
            let text = format!(
                "{sender}: use this link to {act}. It works until {until}. Not you? Ignore this. {link}"
            );
            (text, None, None)
        }
        Channel::Email => {
            let text = format!(
                "Hello,\n\nuse this link to {act}:\n\n{link}\n\nIt works until {until}. If you did not ask for it, \
                 ignore this message: nothing changes.\n\n{sender}\n",
                act = words.act,
            );
            let html = html(&words, &escaped(link), &until, &escaped(&sender));
            (text, Some(format!("{}: {}", sender, words.subject)), Some(Secret::new(html)))
        }
    };
    Message {
        attempt_id: attempt_id.to_owned(),
        channel,
        to: resolved.to.clone(),
        text: Secret::new(text),
        subject,
        html,
        valid_until: expires_at,
    }
}

/// The sender's name as messages carry it.
fn shown_sender(sender: &str) -> String {
    sender.chars().filter(|c| !c.is_control()).take(SENDER_LEN_MAX).collect()
}

/// `14:05 UTC on 2026-09-21`: absolute, because "in 30 minutes" would be another text in a replay.
fn until(at: Stamp) -> String {
    let clock = at.clock();
    format!("{} UTC on {}", clock.get(..5).unwrap_or(&clock), at.date())
}

/// Nothing is loaded from elsewhere: no image, no font, no counter.
fn html(words: &Words, link: &str, until: &str, sender: &str) -> String {
    let Words { act, subject, button } = words;
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{subject}</title></head>\
         <body style=\"font-family:sans-serif;line-height:1.5;color:#1a1a1a\">\
         <p>Hello,</p><p>use this link to {act}:</p>\
         <p><a href=\"{link}\" style=\"display:inline-block;padding:10px 16px;background:#1f4fd8;color:#ffffff;\
         text-decoration:none;border-radius:6px\">{button}</a></p>\
         <p>It works until {until}. If you did not ask for it, ignore this message: nothing changes.</p>\
         <p>{sender}</p></body></html>\n"
    )
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: &str = "https://example.com/reset/0123?a=1&b=2";

    fn message(channel: Channel, sender: &str) -> Message {
        let secret = |text: &str| Secret::new(text.to_owned());
        let resolved = Resolved {
            to: secret("+12025550123"),
            canonical: secret("+12025550123"),
            link: secret(LINK),
            locale: None,
        };
        let at = Stamp::parse("2026-09-21T14:05:59Z").unwrap();
        render(channel, &resolved, "password_reset", at, "a1", sender)
    }

    #[test]
    fn a_text_message_names_the_sender_once_and_ends_with_its_one_link() {
        let message = message(Channel::Sms, "Example Market");
        let text = message.text.expose();
        assert!(
            text.starts_with("Example Market: ") && text.ends_with(&format!(" {LINK}")),
            "{text}"
        );
        assert_eq!(text.matches("https://").count(), 1);
        assert!(text.contains("14:05 UTC on 2026-09-21"));
        assert!(message.subject.is_none() && message.html.is_none());
        assert!(text.len() - LINK.len() <= 160 - 28);
    }

    #[test]
    fn a_mail_has_one_link_in_each_part_and_loads_nothing() {
        let message = message(Channel::Email, "Example <b> & Co\r\nBcc: x");
        let html = message.html.as_ref().unwrap().expose().to_owned();
        assert_eq!(message.text.expose().matches("https://").count(), 1);
        assert_eq!(html.matches("https://").count(), 1);
        assert!(html.contains("href=\"https://example.com/reset/0123?a=1&amp;b=2\""));
        for loaded in ["<img", "src=", "url(", "<link", "<script", "<b>"] {
            assert!(!html.contains(loaded), "{loaded}");
        }
        let subject = message.subject.unwrap();
        assert!(
            subject.ends_with(": Reset your password") && !subject.contains(['\r', '\n']),
            "{subject}"
        );
    }

    #[test]
    fn the_same_attempt_always_gives_the_same_bytes() {
        for channel in [Channel::Sms, Channel::Email] {
            let (one, two) = (message(channel, "S"), message(channel, "S"));
            assert_eq!((one.text, one.html, one.subject), (two.text, two.html, two.subject));
        }
    }
}
