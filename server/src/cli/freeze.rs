//! `sendonce freeze`, `unfreeze`, `freezes`

use super::{Admin, CliError, Out, free_text};
use crate::config::{Config, duration};

/// The nearest and the furthest review.
const REVIEW_IN: std::ops::RangeInclusive<i64> = duration::MINUTE..=30 * duration::DAY;

/// What to freeze.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Examples:\n  sendonce freeze --reason 'INC-2291 provider outage' --review-in 30m\n  \
                        sendonce freeze --scope provider:post --reason INC-2291\n\n\
                        No call of the scope starts once it returns. Admission, status, look-ups and\n\
                        callbacks go on. A freeze never ends by itself."
)]
pub struct FreezeArgs {
    /// all, channel:sms, channel:email, or provider:<name>.
    #[arg(long, default_value = "all")]
    pub scope: String,
    /// Why, in one line; kept for ever, so no address and no phone number.
    #[arg(long)]
    pub reason: String,
    /// When somebody should look at it again, such as 30m or 4h.
    #[arg(long, value_name = "DURATION", value_parser = review_in)]
    pub review_in: Option<i64>,
}

/// What to reopen.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:\n  sendonce unfreeze --scope all --reason 'INC-2291 is over'\n\n\
                        What waits is first expired, then sent at a limited pace.")]
pub struct UnfreezeArgs {
    /// all, channel:sms, channel:email, or provider:<name>.
    #[arg(long, default_value = "all")]
    pub scope: String,
    /// Why, in one line; kept for ever, so no address and no phone number.
    #[arg(long)]
    pub reason: Option<String>,
}

/// How to list them.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:\n  sendonce freezes --json")]
pub struct FreezesArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

fn review_in(text: &str) -> Result<i64, String> {
    duration::parse(text).filter(|micros| REVIEW_IN.contains(micros)).ok_or_else(|| {
        let (from, to) = (duration::format(*REVIEW_IN.start()), duration::format(*REVIEW_IN.end()));
        format!("expected a duration from {from} to {to}, such as 30m")
    })
}

/// The scope, if there is one of this name.
fn scope<'a>(text: &'a str, config: &Config) -> Result<&'a str, CliError> {
    let is_known = matches!(text, "all" | "channel:sms" | "channel:email")
        || text.strip_prefix("provider:").is_some_and(|name| config.providers.contains_key(name));
    if is_known {
        return Ok(text);
    }
    let providers: Vec<String> =
        config.providers.keys().map(|name| format!("provider:{name}")).collect();
    let help = format!("use all, channel:sms, channel:email, {}", providers.join(", "));
    Err(CliError::usage("there is no such scope", &help))
}

/// Freezes the scope.
///
/// # Errors
/// When an argument is wrong, or the ledger does not answer.
pub async fn freeze(
    args: &FreezeArgs,
    config: &Config,
    admin: &dyn Admin,
    out: &mut Out,
) -> Result<(), CliError> {
    let scope = scope(&args.scope, config)?;
    let reason = free_text("reason", &args.reason)?;
    let freeze = admin.freeze(scope, reason, args.review_in).await?;
    out.line(&format!("frozen: {}, since {}, by {}", freeze.scope, freeze.since, freeze.actor))?;
    if let Some(at) = freeze.review_at {
        out.line(&format!("to be reviewed at {at}"))?;
    }
    let last = freeze.since.plus(config.dispatch.call_timeout);
    match freeze.in_flight {
        0 => out.line("no call was under way; none starts until it is reopened"),
        1 => out.line(&format!("1 call was under way and may reach its provider until {last}")),
        n => out.line(&format!("{n} calls were under way and may reach a provider until {last}")),
    }
}

/// Reopens the scope.
///
/// # Errors
/// When an argument is wrong, the scope was not frozen, or the ledger does not answer.
pub async fn unfreeze(
    args: &UnfreezeArgs,
    config: &Config,
    admin: &dyn Admin,
    out: &mut Out,
) -> Result<(), CliError> {
    // A scope that the configuration no longer knows can still be frozen, and must be reopened.
    let known = admin.freezes().await?;
    let is_frozen = known.iter().any(|freeze| freeze.scope == args.scope);
    let scope = if is_frozen { args.scope.as_str() } else { scope(&args.scope, config)? };
    let reason = args.reason.as_deref().map_or(Ok(""), |text| free_text("reason", text))?;
    if admin.unfreeze(scope, reason).await? {
        out.line(&format!("reopened: {scope}"))?;
    } else {
        // Repeatable, as over HTTP: what was asked for is so.
        out.line(&format!("{scope} was not frozen"))?;
    }
    for freeze in admin.freezes().await? {
        out.note(&format!("still frozen: {}, since {}", freeze.scope, freeze.since))?;
    }
    Ok(())
}

/// Lists what is frozen.
///
/// # Errors
/// When the ledger does not answer.
pub async fn freezes(args: &FreezesArgs, admin: &dyn Admin, out: &mut Out) -> Result<(), CliError> {
    let freezes = admin.freezes().await?;
    if args.json {
        return out.json(&freezes);
    }
    if freezes.is_empty() {
        return out.note("nothing is frozen");
    }
    let rows: Vec<Vec<String>> = freezes
        .into_iter()
        .map(|freeze| {
            let review = freeze.review_at.map(|at| at.to_string()).unwrap_or_default();
            let (since, in_flight) = (freeze.since.to_string(), freeze.in_flight.to_string());
            vec![freeze.scope, since, freeze.actor, review, in_flight, freeze.reason]
        })
        .collect();
    out.table(&["scope", "since (UTC)", "by", "review (UTC)", "in flight", "reason"], &rows)
}

#[cfg(test)]
mod tests {
    use super::{FreezeArgs, FreezesArgs, UnfreezeArgs, freeze, freezes, review_in, unfreeze};
    use crate::cli::CliError;
    use crate::cli::testing::{Memory, Screen};
    use crate::config::Config;

    fn config() -> Config {
        Config::parse("x", "", std::iter::empty()).expect("the defaults")
    }

    async fn stop(scope: &str, reason: &str, admin: &Memory) -> (Result<(), CliError>, Screen) {
        let (mut out, screen) = Screen::new();
        let (scope, reason) = (scope.to_owned(), reason.to_owned());
        let args = FreezeArgs { scope, reason, review_in: Some(60_000_000) };
        let done = freeze(&args, &config(), admin, &mut out).await;
        (done, screen)
    }

    async fn go(scope: &str, admin: &Memory) -> (Result<(), CliError>, Screen) {
        let (mut out, screen) = Screen::new();
        let args = UnfreezeArgs { scope: scope.to_owned(), reason: None };
        let done = unfreeze(&args, &config(), admin, &mut out).await;
        (done, screen)
    }

    #[tokio::test]
    async fn a_freeze_says_what_it_does_and_can_be_listed_and_ended() {
        let admin = Memory::default();
        let (done, screen) = stop("all", "INC-2291", &admin).await;
        assert_eq!(done, Ok(()));
        assert_eq!(
            screen.results(),
            "frozen: all, since 2026-09-21T14:13:20.000000Z, by operator:cli\n\
             to be reviewed at 2026-09-21T14:14:20.000000Z\n\
             2 calls were under way and may reach a provider until 2026-09-21T14:13:25.000000Z\n"
        );
        let _ = stop("provider:demo", "INC-2291", &admin).await;
        let (mut out, screen) = Screen::new();
        let done = freezes(&FreezesArgs { json: false }, &admin, &mut out).await;
        assert_eq!(done, Ok(()));
        assert!(screen.results().starts_with("SCOPE          SINCE (UTC)"), "{}", screen.results());
        assert_eq!(screen.results().lines().count(), 3);

        let (done, screen) = go("all", &admin).await;
        assert_eq!((done, screen.results()), (Ok(()), "reopened: all\n".to_owned()));
        assert!(screen.notes().starts_with("still frozen: provider:demo"));
        let (done, screen) = go("all", &admin).await;
        assert_eq!((done, screen.results()), (Ok(()), "all was not frozen\n".to_owned()));
    }

    #[tokio::test]
    async fn unknown_scopes_and_reasons_with_addresses_are_refused() {
        let admin = Memory::default();
        for (scope, reason) in [
            ("everything", "x"),
            ("provider:nobody", "x"),
            ("channel:fax", "x"),
            ("all", "asked by a@example.com"),
            ("all", "+15550100001"),
            ("all", ""),
        ] {
            let (done, _) = stop(scope, reason, &admin).await;
            let error = done.expect_err(reason);
            assert_eq!(error.exit, 2, "{error}");
            assert!(!error.to_string().contains("example.com"));
        }
        let (done, _) = go("provider:nobody", &admin).await;
        assert_eq!(done.expect_err("unknown").exit, 2);
    }

    #[tokio::test]
    async fn a_provider_that_is_no_longer_configured_can_be_reopened() {
        let admin = Memory::default();
        admin.freeze_as_is("provider:gone");
        let (done, screen) = go("provider:gone", &admin).await;
        assert_eq!((done, screen.results()), (Ok(()), "reopened: provider:gone\n".to_owned()));
    }

    #[test]
    fn a_review_is_neither_now_nor_never() {
        assert_eq!(review_in("30m"), Ok(1_800_000_000));
        for text in ["", "30", "1s", "31d", "soon"] {
            assert!(review_in(text).is_err(), "{text}");
        }
    }
}
