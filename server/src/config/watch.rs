//! The sections `[slo]` and `[alerts]`.

use super::duration::{DAY, HOUR, MINUTE, SECOND, format};
use super::effective::Section;
use super::reader::Reader;
use super::{AlertEmail, AlertWebhook, Alerts, Config, Slo};
use crate::providers::Secret;

/// Longest period of an objective: hours are kept a little longer than this.
const PERIOD_DAYS_MAX: i64 = 90;

/// Addresses that one installation tells.
const RECIPIENTS_MAX: usize = 20;

pub(super) fn slo(reader: &mut Reader) -> Slo {
    let text = reader.text("slo.target", "a share such as \"99.5%\"");
    let target_ppm = percent(&text).unwrap_or_else(|| {
        if !text.is_empty() {
            reader.wrong("slo.target", "a share from \"50%\" to \"99.999%\", such as \"99.5%\"");
        }
        995_000
    });
    let period = reader.duration("slo.period", DAY..=PERIOD_DAYS_MAX * DAY);
    if period % DAY != 0 {
        reader.problem("slo.period", "is not in whole days", "write it as \"30d\"");
    }
    Slo {
        target_ppm,
        window: reader.duration("slo.window", SECOND..=HOUR),
        period_days: (period / DAY).max(1),
        events_min: u64::from(reader.number("slo.events_min", 1..=1_000_000)),
    }
}

/// `99.5%` in millionths.
fn percent(text: &str) -> Option<u64> {
    let number = text.trim().strip_suffix('%')?.trim_end();
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty()
        || whole.len() > 2
        || part.len() > 3
        || !is_digits(whole)
        || !is_digits(part)
    {
        return None;
    }
    let ppm = format!("{whole}{part:0<4}").parse::<u64>().ok()?;
    (500_000..=999_990).contains(&ppm).then_some(ppm)
}

pub(super) fn alerts(reader: &mut Reader) -> Alerts {
    let webhook_url = reader.text_or_none("alerts.webhook_url", "an address such as \"https://…\"");
    let webhook_secret = reader.secret("alerts.webhook_secret");
    let webhook = match (webhook_url, webhook_secret) {
        (Some(url), Some(secret)) => Some(AlertWebhook { url, secret }),
        (None, None) => None,
        (Some(_), None) => {
            let help =
                "set it, or alerts.webhook_secret_file: unsigned alerts are believed by nobody";
            reader.problem("alerts.webhook_secret", "is missing", help);
            None
        }
        (None, Some(_)) => {
            reader.problem("alerts.webhook_url", "is missing", "set it, or remove the secret");
            None
        }
    };
    let email = email(reader);
    Alerts {
        every: reader.duration("alerts.every", SECOND..=10 * MINUTE),
        hold_for: reader.duration("alerts.hold_for", 0..=HOUR),
        clear_for: reader.duration("alerts.clear_for", 0..=DAY),
        queue_age: reader.duration("alerts.queue_age", SECOND..=DAY),
        backing_off_age: reader.duration("alerts.backing_off_age", SECOND..=DAY),
        unknown_age: reader.duration("alerts.unknown_age", SECOND..=DAY),
        read_lag: reader.duration("alerts.read_lag", SECOND..=DAY),
        seal_lag: reader.duration("alerts.seal_lag", SECOND..=DAY),
        freeze_age: reader.duration("alerts.freeze_age", MINUTE..=30 * DAY),
        clock_offset: reader.duration("alerts.clock_offset", 1_000..=HOUR),
        silence: reader.duration("alerts.silence", 10 * SECOND..=HOUR),
        backlog_max: u64::from(reader.number("alerts.backlog_max", 1..=10_000)),
        expired_max: u64::from(reader.number("alerts.expired_max", 0..=1_000_000)),
        unmatched_max: u64::from(reader.number("alerts.unmatched_max", 0..=1_000_000)),
        webhook,
        alertmanager_url: reader
            .text_or_none("alerts.alertmanager_url", "an address such as \"http://127.0.0.1:9093\"")
            .map(|url| url.trim_end_matches('/').to_owned()),
        email,
    }
}

fn email(reader: &mut Reader) -> Option<AlertEmail> {
    let to = reader.list("alerts.email_to");
    let from = reader.text_or_none("alerts.email_from", "an address");
    let host = reader.text_or_none("alerts.smtp_host", "a host");
    let port = reader.number("alerts.smtp_port", 1..=65_535);
    let tls = reader.word("alerts.smtp_tls", &["starttls", "implicit", "none"]);
    let username = reader.text_or_none("alerts.smtp_username", "text in quotes");
    let password = reader.secret("alerts.smtp_password");
    if to.is_empty() {
        return None;
    }
    if to.len() > RECIPIENTS_MAX {
        reader.problem("alerts.email_to", "names more than 20 addresses", "use a list address");
    }
    if !to.iter().all(|address| address.parse::<lettre::Address>().is_ok()) {
        reader.problem("alerts.email_to", "has what is no address", "write \"oncall@example.com\"");
    }
    let mut needed = |key: &str, value: &Option<String>| {
        if value.is_none() {
            reader.problem(key, "is missing", "set it beside alerts.email_to");
        }
    };
    needed("alerts.email_from", &from);
    needed("alerts.smtp_host", &host);
    let from = from.unwrap_or_default();
    if !from.is_empty() && from.parse::<lettre::Address>().is_err() {
        reader.problem("alerts.email_from", "is no address", "write \"sendonce@example.com\"");
    }
    Some(AlertEmail {
        to,
        from,
        host: host.unwrap_or_default(),
        port: u16::try_from(port).unwrap_or(587),
        tls: tls.to_owned(),
        username,
        password,
    })
}

impl Config {
    /// Combinations of the watch that break a promise.
    pub(super) fn check_watch(&self, refuse: &mut impl FnMut(&str, &str, &str)) {
        let alerts = &self.alerts;
        if let Some(webhook) = &alerts.webhook {
            super::check::check_url("alerts.webhook_url", &webhook.url, false, refuse);
        }
        // No recipient's data and no key is in an alert, and an Alertmanager beside us has no TLS as a rule.
        if let Some(url) = &alerts.alertmanager_url
            && !url::Url::parse(url)
                .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        {
            refuse(
                "alerts.alertmanager_url",
                "is not an absolute http:// or https:// address",
                "write it as \"http://127.0.0.1:9093\"",
            );
        }
        if let Some(email) = &alerts.email
            && email.tls == "none"
            && !super::check::is_loopback_host(&email.host)
        {
            refuse(
                "alerts.smtp_tls",
                "is none, and the host is not this machine",
                "use starttls or implicit",
            );
        }
    }

    pub(super) fn slo_table(&self) -> Section {
        let mut out = Section::default();
        let (whole, part) = (self.slo.target_ppm / 10_000, self.slo.target_ppm % 10_000);
        let part = format!("{part:04}");
        let part = part.trim_end_matches('0');
        let dot = if part.is_empty() { "" } else { "." };
        out.text("target", &format!("{whole}{dot}{part}%"));
        out.time("window", self.slo.window);
        out.text("period", &format!("{}d", self.slo.period_days));
        out.count("events_min", usize::try_from(self.slo.events_min).unwrap_or(usize::MAX));
        out
    }

    pub(super) fn alerts_table(&self) -> Section {
        let alerts = &self.alerts;
        let mut out = Section::default();
        for (key, micros) in [
            ("every", alerts.every),
            ("hold_for", alerts.hold_for),
            ("clear_for", alerts.clear_for),
            ("queue_age", alerts.queue_age),
            ("backing_off_age", alerts.backing_off_age),
            ("unknown_age", alerts.unknown_age),
            ("read_lag", alerts.read_lag),
            ("seal_lag", alerts.seal_lag),
            ("freeze_age", alerts.freeze_age),
            ("clock_offset", alerts.clock_offset),
            ("silence", alerts.silence),
        ] {
            out.text(key, &format(micros));
        }
        for (key, count) in [
            ("backlog_max", alerts.backlog_max),
            ("expired_max", alerts.expired_max),
            ("unmatched_max", alerts.unmatched_max),
        ] {
            out.count(key, usize::try_from(count).unwrap_or(usize::MAX));
        }
        if let Some(webhook) = &alerts.webhook {
            out.text("webhook_url", &super::effective::hidden_password(&webhook.url));
            out.text("webhook_secret", super::effective::HIDDEN);
        }
        if let Some(url) = &alerts.alertmanager_url {
            out.text("alertmanager_url", &super::effective::hidden_password(url));
        }
        if let Some(email) = &alerts.email {
            out.text("email_to", &email.to.join(", "));
            out.text("email_from", &email.from);
            out.text("smtp_host", &email.host);
            out.count("smtp_port", usize::from(email.port));
            out.text("smtp_tls", &email.tls);
            out.maybe("smtp_username", email.username.as_deref());
            if email.password.as_ref().map(Secret::expose).is_some() {
                out.text("smtp_password", super::effective::HIDDEN);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn a_target_is_a_share_in_percent_with_three_decimals_at_most() {
        assert_eq!(percent("99.5%"), Some(995_000));
        assert_eq!(percent("99%"), Some(990_000));
        assert_eq!(percent("99.999 %"), Some(999_990));
        for bad in ["", "99.5", "%", "100%", "49%", "-1%", "99.5.5%", "99.9999%", "1e2%"] {
            assert_eq!(percent(bad), None, "{bad}");
        }
    }
}
