//! Delivery status notifications (RFC 3464): what a relay reports later, piped to our endpoint by the mail
//! system that receives them.
//!
//! They name the attempt by the envelope id that we gave (RFC 3461), or by the `Message-ID` among the
//! returned headers. Nothing else of them is read; addresses and diagnostics are not.

use app::model::Seen;

use crate::providers::vendor::is_attempt_id;
use crate::providers::{Cause, Receipt};

/// Parts of a report that are looked at.
const PARTS_MAX: usize = 16;

/// What a report states; none when it is no report about one of our messages.
#[must_use]
pub fn receipt(bytes: &[u8], domain: &str) -> Option<Receipt> {
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n");
    let (head, body) = text.split_once("\n\n")?;
    let kind = header(head, "content-type")?;
    let lower = kind.to_ascii_lowercase();
    if !lower.starts_with("multipart/report") {
        return None;
    }
    let boundary = parameter(&kind, "boundary")?;
    let (mut status, mut returned) = (None, None);
    for part in body.split(&format!("\n--{boundary}")).take(PARTS_MAX) {
        let part = part.trim_start_matches([' ', '\t']);
        let part = part.strip_prefix('\n').unwrap_or(part);
        let Some((head, body)) = part.split_once("\n\n") else { continue };
        let kind = header(head, "content-type").unwrap_or_default().to_ascii_lowercase();
        if kind.starts_with("message/delivery-status") {
            status = status.or(Some(body));
        } else if kind.starts_with("message/rfc822") || kind.starts_with("text/rfc822-headers") {
            returned = returned.or(Some(body));
        }
    }
    let status = status?;
    let of_message = |head: &str| {
        let id = header(head, "message-id")?;
        let (local, own) =
            id.trim().trim_start_matches('<').trim_end_matches('>').rsplit_once('@')?;
        (own.eq_ignore_ascii_case(domain) && is_attempt_id(local)).then(|| local.to_owned())
    };
    let groups: Vec<&str> = status.split("\n\n").collect();
    let attempt_id = groups
        .first()
        .and_then(|group| header(group, "original-envelope-id"))
        .filter(|id| is_attempt_id(id))
        .or_else(|| of_message(returned?.split("\n\n").next()?))?;
    // One recipient, so one group that has an action.
    let group = groups.iter().find(|group| header(group, "action").is_some())?;
    let action = header(group, "action")?.to_ascii_lowercase();
    let code = header(group, "status").unwrap_or_default();
    let (seen, cause) = match action.as_str() {
        "delivered" => (Seen::Delivered, None),
        "relayed" | "expanded" | "delayed" => (Seen::Accepted, None),
        "failed" => (Seen::Failed, Some(cause(&code))),
        _ => return None,
    };
    Some(Receipt { attempt_id: Some(attempt_id), message_id: None, seen, cause, at: None })
}

fn cause(status: &str) -> Cause {
    match status.trim() {
        code if code.starts_with("5.1.") => Cause::BadRecipient,
        code if code.starts_with("5.7.") => Cause::Blocked,
        code if code.starts_with("4.4.7") => Cause::Expired,
        code if code.starts_with("4.") => Cause::SoftBounced,
        code if code.starts_with("5.") => Cause::Bounced,
        _ => Cause::Unspecified,
    }
}

/// The first header of this name (lowercase), unfolded.
fn header(head: &str, name: &str) -> Option<String> {
    let mut lines = head.lines();
    let is_named = |line: &&str| {
        line.split_once(':').is_some_and(|(own, _)| own.trim_end().eq_ignore_ascii_case(name))
    };
    let first = lines.by_ref().find(is_named)?;
    let mut value = first.split_once(':')?.1.trim().to_owned();
    for line in lines.take_while(|line| line.starts_with([' ', '\t'])) {
        value.push(' ');
        value.push_str(line.trim());
    }
    Some(value)
}

/// A parameter of a header's value, quoted or not.
fn parameter(value: &str, name: &str) -> Option<String> {
    let text = value.split(';').skip(1).find_map(|part| {
        let (own, text) = part.split_once('=')?;
        own.trim().eq_ignore_ascii_case(name).then(|| text.trim())
    })?;
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    (!bare.is_empty()).then(|| bare.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(envelope: &str, action: &str, status: &str, message_id: &str) -> String {
        format!(
            "From: MAILER-DAEMON@relay.example\r\nContent-Type: multipart/report;\r\n\treport-type=delivery-status;\r\n\
             \tboundary=\"4F1.x/relay\"\r\nMIME-Version: 1.0\r\n\r\nThis is MIME.\r\n\r\n--4F1.x/relay\r\n\
             Content-Type: text/plain\r\n\r\nann@example.com: no such user\r\n\r\n--4F1.x/relay\r\n\
             Content-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; relay.example\r\n{envelope}\r\n\r\n\
             Final-Recipient: rfc822; ann@example.com\r\nAction: {action}\r\nStatus: {status}\r\n\
             Diagnostic-Code: smtp; 550 no such user\r\n\r\n--4F1.x/relay\r\nContent-Type: text/rfc822-headers\r\n\r\n\
             From: no-reply@example.com\r\nMessage-ID:\r\n <{message_id}>\r\n\r\n--4F1.x/relay--\r\n"
        )
    }

    fn read(
        envelope: &str,
        action: &str,
        status: &str,
        message_id: &str,
    ) -> Option<(String, Seen, Option<Cause>)> {
        let report = report(envelope, action, status, message_id);
        receipt(report.as_bytes(), "example.com")
            .map(|receipt| (receipt.attempt_id.unwrap(), receipt.seen, receipt.cause))
    }

    #[test]
    fn a_report_names_the_attempt_by_envelope_or_by_message_id() {
        let envelope = "Original-Envelope-Id: 0a1b";
        let failed = |id: &str| Some((id.to_owned(), Seen::Failed, Some(Cause::BadRecipient)));
        assert_eq!(read(envelope, "failed", "5.1.1", "other@example.com"), failed("0a1b"));
        assert_eq!(read("X: y", "failed", "5.1.1", "0c2d@example.com"), failed("0c2d"));
        assert_eq!(read("X: y", "failed", "5.1.1", "0c2d@other.example"), None);
        assert_eq!(
            read("Original-Envelope-Id: not ours", "failed", "5.1.1", "0c2d@example.com"),
            failed("0c2d")
        );
        for (action, status, seen, cause) in [
            ("delivered", "2.0.0", Seen::Delivered, None),
            ("relayed", "2.0.0", Seen::Accepted, None),
            ("delayed", "4.4.1", Seen::Accepted, None),
            ("Failed", "5.7.1", Seen::Failed, Some(Cause::Blocked)),
            ("failed", "4.4.7", Seen::Failed, Some(Cause::Expired)),
            ("failed", "4.2.2", Seen::Failed, Some(Cause::SoftBounced)),
            ("failed", "5.2.1", Seen::Failed, Some(Cause::Bounced)),
            ("failed", "", Seen::Failed, Some(Cause::Unspecified)),
        ] {
            assert_eq!(
                read(envelope, action, status, "x"),
                Some(("0a1b".to_owned(), seen, cause)),
                "{action}"
            );
        }
        assert_eq!(read(envelope, "eaten", "2.0.0", "x"), None);
    }

    #[test]
    fn what_is_no_report_states_nothing() {
        for text in [
            "",
            "no header",
            "Content-Type: text/plain\n\nAction: failed\n",
            "Content-Type: multipart/report\n\nx",
            "Content-Type: multipart/report; boundary=b\n\n--b\n\nx\n--b--\n",
        ] {
            assert_eq!(receipt(text.as_bytes(), "example.com"), None, "{text}");
        }
    }
}
