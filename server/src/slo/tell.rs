//! Telling people about alerts: a signed POST, a push to an Alertmanager, a mail.
//!
//! What is told is a rule, counts and times: nothing of a record, and no operator's address in any log.
//! Telling is no send: it may be repeated, so what is not taken is tried again until it is given up, and
//! both are seen on the page and in the metrics.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use app::model::{Alert, Severity, Stamp};
use bytes::Bytes;
use lettre::message::{Mailbox, header::ContentType};
use lettre::transport::smtp::authentication::Credentials;
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Tokio1Executor};
use serde_json::{Value, json};

use crate::clock::{Clock, micros};
use crate::config::{AlertEmail, AlertWebhook, Config};
use crate::providers::transport::Transport;
use crate::providers::{Deadline, signature};
use crate::store::{Delivery, DeliveryEnd, Error, Store};

/// How long one telling may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Tellings of one pass, all at once.
const PASS_MAX: usize = 8;

/// The first wait after one that was not taken; doubled with each further one.
const AGAIN_FIRST: i64 = 10_000_000;
/// The longest wait.
const AGAIN_MAX: i64 = 600_000_000;
/// Then it is given up: after about a day.
const TRIES_MAX: u32 = 150;

/// An Alertmanager forgets what is not said again within its `resolve_timeout`, by default five minutes.
const REPEAT: i64 = 60_000_000;

pub const WEBHOOK: &str = "webhook";
pub const ALERTMANAGER: &str = "alertmanager";
pub const EMAIL: &str = "email";

/// Every target there can be.
pub const TARGETS: &[&str] = &[WEBHOOK, ALERTMANAGER, EMAIL];

/// How a telling can go, for the metric.
pub const OUTCOMES: &[&str] = &["taken", "failed", "given_up"];

/// Counted by target and outcome.
pub const COUNTER: &str = "sendonce_alert_deliveries_total";

/// The targets of this configuration.
#[must_use]
pub fn targets(config: &Config) -> Vec<String> {
    let alerts = &config.alerts;
    [
        (WEBHOOK, alerts.webhook.is_some()),
        (ALERTMANAGER, alerts.alertmanager_url.is_some()),
        (EMAIL, alerts.email.is_some()),
    ]
    .into_iter()
    .filter(|(_, is_set)| *is_set)
    .map(|(name, _)| name.to_owned())
    .collect()
}

/// Tells what is due.
pub struct Teller {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
    config: Arc<Config>,
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Teller")
    }
}

impl Teller {
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        transport: Arc<dyn Transport>,
        config: Arc<Config>,
    ) -> Self {
        Self { store, clock, transport, config }
    }

    /// Tells what is due now, at most a few at once; true when there may be more.
    ///
    /// # Errors
    /// The store's.
    pub async fn pass(&self) -> Result<bool, Error> {
        let due = self.store.due_deliveries(PASS_MAX).await?;
        let more = due.len() >= PASS_MAX;
        let told = futures::future::join_all(due.iter().map(|delivery| self.tell(delivery))).await;
        for (delivery, told) in due.iter().zip(told) {
            let end = self.end(delivery, told);
            self.store.end_delivery(delivery, &end).await?;
        }
        Ok(more)
    }

    fn end(&self, delivery: &Delivery, told: Result<(), &'static str>) -> DeliveryEnd {
        let now = self.clock.now();
        let (outcome, end) = match told {
            Ok(()) if delivery.target == ALERTMANAGER && delivery.event == "firing" => {
                ("taken", DeliveryEnd::Again { at: now.plus(REPEAT) })
            }
            Ok(()) => ("taken", DeliveryEnd::Done),
            Err(code) if delivery.tries + 1 >= TRIES_MAX => {
                ("given_up", DeliveryEnd::GivenUp { code: code.to_owned() })
            }
            Err(code) => {
                let wait = AGAIN_FIRST.saturating_mul(1 << delivery.tries.min(10)).min(AGAIN_MAX);
                ("failed", DeliveryEnd::Failed { code: code.to_owned(), next_at: now.plus(wait) })
            }
        };
        if outcome != "taken" {
            tracing::warn!(
                alert.target = %delivery.target, alert.rule = %delivery.alert.rule, outcome,
                "an alert could not be told"
            );
        }
        metrics::counter!(COUNTER, "target" => delivery.target.clone(), "outcome" => outcome)
            .increment(1);
        end
    }

    /// Err: a code that says why it was not taken.
    async fn tell(&self, delivery: &Delivery) -> Result<(), &'static str> {
        let alerts = &self.config.alerts;
        let telling = async {
            match delivery.target.as_str() {
                WEBHOOK => match &alerts.webhook {
                    Some(webhook) => self.post(webhook, delivery).await,
                    None => Err("not_configured"),
                },
                ALERTMANAGER => match &alerts.alertmanager_url {
                    Some(url) => self.push(url, delivery).await,
                    None => Err("not_configured"),
                },
                EMAIL => match &alerts.email {
                    Some(email) => self.mail(email, delivery).await,
                    None => Err("not_configured"),
                },
                _ => Err("not_configured"),
            }
        };
        tokio::select! {
            told = telling => told,
            () = self.clock.sleep(TIMEOUT) => Err("timeout"),
        }
    }

    async fn post(&self, webhook: &AlertWebhook, delivery: &Delivery) -> Result<(), &'static str> {
        let body = webhook_body(&self.config, delivery).to_string();
        let signed = signature::header(&webhook.secret, self.clock.now(), body.as_bytes());
        self.exchange(&webhook.url, body, Some(signed)).await
    }

    async fn push(&self, url: &str, delivery: &Delivery) -> Result<(), &'static str> {
        let body = alertmanager_body(&self.config, delivery, self.clock.now()).to_string();
        self.exchange(&format!("{url}/api/v2/alerts"), body, None).await
    }

    async fn exchange(
        &self,
        url: &str,
        body: String,
        signed: Option<String>,
    ) -> Result<(), &'static str> {
        let mut request =
            http::Request::post(url).header(http::header::CONTENT_TYPE, "application/json");
        if let Some(signed) = signed {
            request = request.header(signature::HEADER, signed);
        }
        let request = request.body(Bytes::from(body)).map_err(|_| "request")?;
        let deadline = Deadline { boot: self.clock.boot().saturating_add(micros(TIMEOUT)) };
        let answer = self
            .transport
            .exchange(request, deadline)
            .await
            .map_err(|failure| failure.kind.code())?;
        match answer.status().as_u16() {
            200..=299 => Ok(()),
            400..=499 => Err("refused"),
            _ => Err("server_error"),
        }
    }

    async fn mail(&self, email: &AlertEmail, delivery: &Delivery) -> Result<(), &'static str> {
        let transport = smtp(email).map_err(|_| "tls")?;
        for to in &email.to {
            let mailbox = |text: &str| text.parse::<Mailbox>().map_err(|_| "address");
            let message = lettre::Message::builder()
                .from(mailbox(&email.from)?)
                .to(mailbox(to)?)
                .subject(subject(&self.config, delivery))
                .header(ContentType::TEXT_PLAIN)
                .body(text(&self.config, delivery))
                .map_err(|_| "message")?;
            transport.send(message).await.map_err(|error| {
                if error.is_permanent() {
                    "smtp_permanent"
                } else if error.is_transient() {
                    "smtp_transient"
                } else {
                    "smtp_connection"
                }
            })?;
        }
        Ok(())
    }
}

fn smtp(
    email: &AlertEmail,
) -> Result<AsyncSmtpTransport<Tokio1Executor>, lettre::transport::smtp::Error> {
    type Smtp = AsyncSmtpTransport<Tokio1Executor>;
    let builder = match email.tls.as_str() {
        "implicit" => Smtp::relay(&email.host)?,
        "none" => Smtp::builder_dangerous(&email.host),
        _ => Smtp::starttls_relay(&email.host)?,
    };
    let builder = builder.port(email.port).timeout(Some(TIMEOUT));
    Ok(match (&email.username, &email.password) {
        (Some(user), Some(password)) => builder
            .credentials(Credentials::new(user.clone(), password.expose().to_owned()))
            .build(),
        _ => builder.build(),
    })
}

fn page_url(config: &Config, path: &str) -> String {
    format!("{}{path}", config.server.public_url)
}

fn runbook_url(config: &Config, alert: &Alert) -> String {
    page_url(config, &format!("/runbook#{}", alert.rule.anchor()))
}

/// `A provider takes nothing (post)`
fn title(alert: &Alert) -> String {
    if alert.subject.is_empty() {
        alert.rule.title().to_owned()
    } else {
        format!("{} ({})", alert.rule.title(), alert.subject)
    }
}

fn subject(config: &Config, delivery: &Delivery) -> String {
    let word = if delivery.event == "resolved" { "Resolved" } else { "Firing" };
    format!("[sendonce {}] {word}: {}", config.server.environment, title(&delivery.alert))
}

fn text(config: &Config, delivery: &Delivery) -> String {
    let alert = &delivery.alert;
    let at = |at: Option<Stamp>| at.map_or_else(|| "-".to_owned(), |at| at.to_string());
    format!(
        "{}\n\nSeverity: {}\nCount: {}\nOldest: {}\nSince: {}\nOver: {}\n\nLook: {}\nRunbook: {}\nAlert: {}\n",
        title(alert),
        alert.severity,
        alert.count,
        at(alert.oldest_at),
        at(alert.fired_at),
        at(alert.ended_at),
        page_url(config, alert.rule.link()),
        runbook_url(config, alert),
        page_url(config, "/alerts"),
    )
}

/// What the webhook gets.
#[must_use]
pub fn webhook_body(config: &Config, delivery: &Delivery) -> Value {
    let alert = &delivery.alert;
    json!({
        "id": alert.id,
        "event": delivery.event,
        "rule": alert.rule,
        "subject": alert.subject,
        "severity": alert.severity,
        "title": title(alert),
        "environment": config.server.environment,
        "count": alert.count,
        "oldest_at": alert.oldest_at,
        "fired_at": alert.fired_at,
        "ended_at": alert.ended_at,
        "url": page_url(config, alert.rule.link()),
        "runbook_url": runbook_url(config, alert),
    })
}

/// What an Alertmanager gets at `POST /api/v2/alerts`: the labels name the alert, so they never change.
#[must_use]
pub fn alertmanager_body(config: &Config, delivery: &Delivery, now: Stamp) -> Value {
    let alert = &delivery.alert;
    let severity = match alert.severity {
        Severity::Page => "critical",
        Severity::Ticket => "warning",
    };
    let mut labels = json!({
        "alertname": format!("sendonce_{}", alert.rule),
        "severity": severity,
        "service": "sendonce",
        "environment": config.server.environment,
    });
    if !alert.subject.is_empty() {
        labels["subject"] = json!(alert.subject);
    }
    let ends_at = match delivery.event.as_str() {
        "resolved" => alert.ended_at.unwrap_or(now),
        _ => now.plus(5 * REPEAT),
    };
    json!([{
        "labels": labels,
        "annotations": {
            "summary": title(alert),
            "count": alert.count.to_string(),
            "runbook_url": runbook_url(config, alert),
        },
        "startsAt": alert.fired_at.unwrap_or(alert.opened_at),
        "endsAt": ends_at,
        "generatorURL": page_url(config, "/alerts"),
    }])
}
