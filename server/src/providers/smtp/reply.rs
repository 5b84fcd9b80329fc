//! What a server's reply means: data, with a source for each row.
//!
//! Until the final dot every reply is definite: nothing was taken. After it only an explicit reply is.

use super::super::classes::Class;
use crate::domain::Verdict;

/// What a reply answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Greeting,
    Ehlo,
    StartTls,
    Auth,
    Mail,
    Rcpt,
    Data,
    /// The final dot.
    Dot,
}

use Step::{Auth, Data, Dot, Ehlo, Greeting, Mail, Rcpt, StartTls};

const EVERY: &[Step] = &[Greeting, Ehlo, StartTls, Auth, Mail, Rcpt, Data, Dot];
const BEFORE_RECIPIENT: &[Step] = &[Greeting, Ehlo, StartTls, Auth, Mail];
const ABOUT_MESSAGE: &[Step] = &[Rcpt, Data, Dot];

/// One reply: its code, its enhanced code, and its text, which goes no further than [`is_our_side`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub code: u16,
    /// `5.7.1`: class, subject, detail.
    pub enhanced: Option<(u8, u16, u16)>,
    pub lines: Vec<String>,
}

impl Reply {
    /// 2yz.
    #[must_use]
    pub const fn is_positive(&self) -> bool {
        self.code >= 200 && self.code < 300
    }

    /// The code that is kept.
    #[must_use]
    pub fn kept(&self) -> String {
        match self.enhanced {
            Some((class, subject, detail)) => {
                format!("smtp_{}_{class}.{subject}.{detail}", self.code)
            }
            None => format!("smtp_{}", self.code),
        }
    }
}

/// One row of the table. The first one that fits decides.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub steps: &'static [Step],
    pub from: u16,
    pub to: u16,
    /// Subject and, if given, detail of the enhanced code; none: whatever it is.
    pub enhanced: Option<(u16, Option<u16>)>,
    pub class: Class,
    pub source: &'static str,
}

const fn row(
    steps: &'static [Step],
    codes: (u16, u16),
    enhanced: Option<(u16, Option<u16>)>,
    class: Class,
    source: &'static str,
) -> Row {
    Row { steps, from: codes.0, to: codes.1, enhanced, class, source }
}

/// What each reply means that does not let the conversation go on.
pub const CLASSES: &[Row] = &[
    row(&[Dot], (200, 299), None, Class::Accepted, "RFC 5321 4.2.5: the server is responsible now"),
    row(EVERY, (400, 499), None, Class::Transient, "RFC 5321 4.2.1: not taken, may be tried again"),
    row(EVERY, (530, 530), None, Class::Config, "RFC 4954 6: authentication required"),
    row(EVERY, (534, 535), None, Class::Config, "RFC 4954 6: credentials"),
    row(EVERY, (538, 538), None, Class::Config, "RFC 4954 6: encryption required"),
    row(
        BEFORE_RECIPIENT,
        (500, 599),
        None,
        Class::Config,
        "PROVIDERS 5: relay policy, not the recipient",
    ),
    row(
        EVERY,
        (500, 504),
        Some((5, None)),
        Class::Config,
        "RFC 3463 3.6: a protocol fault of ours",
    ),
    row(&[Data], (503, 503), None, Class::Config, "RFC 5321 4.3.2: bad sequence, a fault of ours"),
    row(
        ABOUT_MESSAGE,
        (500, 599),
        Some((1, Some(7))),
        Class::Config,
        "RFC 3463 3.2: our sender's syntax",
    ),
    row(
        ABOUT_MESSAGE,
        (500, 599),
        Some((1, Some(8))),
        Class::Config,
        "RFC 3463 3.2: our sender's system",
    ),
    row(
        ABOUT_MESSAGE,
        (500, 599),
        Some((7, Some(17))),
        Class::Permanent,
        "RFC 7293 6.2: the mailbox has a new owner",
    ),
    row(
        ABOUT_MESSAGE,
        (500, 599),
        Some((7, None)),
        Class::Config,
        "RFC 3463 3.8, CASES B42: security or policy, our side",
    ),
    row(ABOUT_MESSAGE, (500, 599), None, Class::Permanent, "RFC 5321 4.2.1: refused for good"),
];

/// Words by which servers say, under whatever code, that it is the sender that they refuse (CASES B42).
const OUR_SIDE: &[&str] = &[
    "blocked using",
    "blacklist",
    "blocklist",
    "block list",
    "spamhaus",
    "dnsbl",
    "rbl",
    "reputation",
    "relay access denied",
    "relaying denied",
    "relay not permitted",
    "unable to relay",
    "not permitted to relay",
    "not authorized to send",
    "client host",
    "your ip",
    "sending ip",
    "reverse dns",
    "spf",
    "dkim",
    "dmarc",
    "sender address rejected",
];

/// Codes that are about the recipient, whatever words stand beside them: RFC 3463 3.2 and 3.3.
const fn is_about_recipient(enhanced: Option<(u8, u16, u16)>) -> bool {
    matches!(enhanced, Some((5, 1, 0..=6 | 10) | (5, 2, _)))
}

fn is_our_side(reply: &Reply) -> bool {
    !is_about_recipient(reply.enhanced)
        && reply.lines.iter().any(|line| {
            let line = line.to_ascii_lowercase();
            // Whole words: "rbl" also stands within "marble".
            OUR_SIDE.iter().any(|mark| {
                line.match_indices(mark).any(|(at, _)| {
                    let outside = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric());
                    let (before, after) = (&line[..at], &line[at + mark.len()..]);
                    outside(before.chars().next_back())
                        && (mark.len() > 5 || outside(after.chars().next()))
                })
            })
        })
}

/// The class of a reply to this step; none where the table has no row.
#[must_use]
pub fn class(step: Step, reply: &Reply) -> Option<Class> {
    let fits = |row: &&Row| {
        row.steps.contains(&step)
            && (row.from..=row.to).contains(&reply.code)
            && row.enhanced.is_none_or(|(subject, detail)| {
                reply.enhanced.is_some_and(|(_, own, more)| {
                    own == subject && detail.is_none_or(|detail| detail == more)
                })
            })
    };
    let class = CLASSES.iter().find(fits)?.class;
    let blames_recipient = class == Class::Permanent && ABOUT_MESSAGE.contains(&step);
    Some(if blames_recipient && is_our_side(reply) { Class::Config } else { class })
}

/// The verdict on a reply that ends the conversation.
#[must_use]
pub fn verdict(step: Step, reply: &Reply, message_id: Option<String>) -> Verdict {
    let code = reply.kept();
    match class(step, reply) {
        Some(Class::Accepted) => Verdict::Accepted { message_id },
        Some(Class::Permanent) => Verdict::RefusedPermanently { code },
        Some(Class::Transient | Class::RateLimited) => Verdict::TransientRefusal { code },
        Some(Class::Config) => Verdict::ProviderStopped { code },
        // Before the dot nothing was taken, whatever the server meant.
        Some(Class::Ambiguous) | None if step != Step::Dot => Verdict::NotSent { code },
        Some(Class::Ambiguous) | None => super::super::http::ambiguous(code),
    }
}

/// `5.7.1` at the beginning of a reply's text.
#[must_use]
pub fn enhanced(code: u16, text: &str) -> Option<(u8, u16, u16)> {
    let word = text.split([' ', '\t']).next()?;
    let mut parts = word.split('.');
    let mut number = |digits_max: usize| {
        let part = parts.next()?;
        let is_number =
            (1..=digits_max).contains(&part.len()) && part.bytes().all(|c| c.is_ascii_digit());
        is_number.then(|| part.parse::<u16>().ok()).flatten()
    };
    let (class, subject, detail) = (number(1)?, number(3)?, number(3)?);
    // RFC 2034 4: its class is that of the reply.
    (parts.next().is_none() && class == code / 100).then_some((
        u8::try_from(class).ok()?,
        subject,
        detail,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str) -> Reply {
        let (code, rest) = text.split_at(3);
        let code = code.parse().unwrap();
        let rest = rest.trim_start();
        Reply { code, enhanced: enhanced(code, rest), lines: vec![rest.to_owned()] }
    }

    #[test]
    fn each_reply_has_one_class_by_its_step_its_code_and_its_side() {
        use Class::{Accepted, Config, Permanent, Transient};
        for (step, text, expected) in [
            (Dot, "250 2.0.0 Ok: queued as 4F1", Some(Accepted)),
            (Dot, "250", Some(Accepted)),
            (Dot, "354 go on", None),
            (Dot, "451 4.3.0 try again", Some(Transient)),
            (Dot, "421 4.3.2 shutting down", Some(Transient)),
            (Dot, "550 5.1.1 no such user", Some(Permanent)),
            (Dot, "552 5.3.4 message too big", Some(Permanent)),
            (Dot, "554 5.7.1 spam", Some(Config)),
            (Greeting, "421 4.7.0 too many connections", Some(Transient)),
            (Greeting, "554 no service", Some(Config)),
            (Ehlo, "502 5.5.1 what", Some(Config)),
            (StartTls, "454 4.7.0 TLS not available", Some(Transient)),
            (Auth, "535 5.7.8 bad credentials", Some(Config)),
            (Auth, "454 4.7.0 temporary failure", Some(Transient)),
            (Mail, "530 5.7.0 authentication required", Some(Config)),
            (Mail, "550 5.1.8 sender rejected", Some(Config)),
            (Rcpt, "450 4.2.0 greylisted", Some(Transient)),
            (Rcpt, "452 4.5.3 too many recipients", Some(Transient)),
            (Rcpt, "550 5.1.1 user unknown", Some(Permanent)),
            (Rcpt, "550 no such user here", Some(Permanent)),
            (Rcpt, "550 5.4.1 recipient address rejected: access denied", Some(Permanent)),
            (Rcpt, "552 5.2.2 mailbox full", Some(Permanent)),
            (
                Rcpt,
                "550 5.7.1 service unavailable; client host [192.0.2.1] blocked using zen.spamhaus.org",
                Some(Config),
            ),
            (Rcpt, "550 client host [192.0.2.1] blocked using an RBL", Some(Config)),
            (Rcpt, "554 relay access denied", Some(Config)),
            (Rcpt, "550 5.1.1 user unknown in our reputation system", Some(Permanent)),
            (Rcpt, "550 marble street 5 is unknown", Some(Permanent)),
            (Rcpt, "550 5.7.17 mailbox owner has changed", Some(Permanent)),
            (Rcpt, "550 5.1.7 bad sender", Some(Config)),
            (Rcpt, "530 authentication required", Some(Config)),
            (Rcpt, "503 5.5.1 bad sequence", Some(Config)),
            (Data, "503 bad sequence", Some(Config)),
            (Data, "554 no valid recipients", Some(Permanent)),
            (Rcpt, "354 what", None),
            (Rcpt, "600", None),
        ] {
            assert_eq!(class(step, &reply(text)), expected, "{step:?} {text}");
        }
    }

    #[test]
    fn what_is_in_no_row_is_unknown_after_the_dot_alone() {
        let odd = reply("354 go on");
        assert_eq!(verdict(Rcpt, &odd, None), Verdict::NotSent { code: "smtp_354".to_owned() });
        assert_eq!(verdict(Dot, &odd, None).outcome().as_str(), "unknown");
    }

    #[test]
    fn an_enhanced_code_agrees_with_its_reply() {
        assert_eq!(enhanced(550, "5.7.1 text"), Some((5, 7, 1)));
        assert_eq!(enhanced(550, "5.7.123"), Some((5, 7, 123)));
        for (code, text) in [
            (250, "5.7.1 x"),
            (550, "5.7"),
            (550, "5.7.1.2"),
            (550, "5.7.x"),
            (550, ""),
            (550, "192.0.2.1 x"),
        ] {
            assert_eq!(enhanced(code, text), None, "{text}");
        }
        assert_eq!(reply("550 5.7.1 +12025550123").kept(), "smtp_550_5.7.1");
        assert_eq!(reply("550 ann@example.com").kept(), "smtp_550");
    }
}
