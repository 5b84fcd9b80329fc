//! `sendonce provider list` and `sendonce provider trial`

use app::model::Channel;
use serde::Serialize;

use super::{CliError, Host, Input, Out};
use crate::config::{Config, KINDS, Kind, ProviderConfig, duration};
use crate::providers::{Reading, Secret};
use crate::trial::{self, Report, Target};

/// What to do with providers.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// List every kind of provider with what it can do, and the configured ones.
    #[command(after_help = "Example:\n  sendonce provider list --json")]
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Try what a provider lets us know after a lost answer, and keep the report.
    #[command(after_help = "Examples:\n  sendonce provider trial twilio\n  \
                      sendonce provider trial post --sandbox < number.txt\n\n\
                      Without --sandbox it talks to the simulator inside this process and sends nothing. With it, \
                      it really sends: up to six messages to the one number or address on standard input.")]
    Trial {
        /// A configured provider, or a kind.
        provider: String,
        /// Use the account that is configured, and read the recipient from standard input.
        #[arg(long)]
        sandbox: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Serialize)]
struct KindView {
    kind: &'static str,
    channels: &'static [Channel],
    look_up: &'static str,
    replay_window: Option<String>,
    documented_lag: Option<String>,
    retention: Option<String>,
    idempotency_key: Option<&'static str>,
    callbacks: Option<&'static str>,
    validity: bool,
    in_this_version: bool,
}

#[derive(Debug, Serialize)]
struct ConfiguredView {
    name: String,
    kind: String,
    routes: Vec<Channel>,
    look_up: &'static str,
    settle: Option<String>,
    replay_window: Option<String>,
    callbacks: bool,
}

/// Prints the kinds; then the configured providers, where the configuration can be read.
///
/// # Errors
/// When it cannot be printed.
pub fn run(args: &Args, config: Result<Config, CliError>, out: &mut Out) -> Result<(), CliError> {
    let Command::List { json } = args.command else {
        return Err(CliError::failed("this is not a list", "report this"));
    };
    let kinds: Vec<KindView> = KINDS.iter().map(kind_view).collect();
    let configured: Vec<ConfiguredView> = config.as_ref().map_or_else(
        |_| Vec::new(),
        |config| {
            config.providers.iter().map(|(name, it)| configured_view(config, name, it)).collect()
        },
    );
    if json {
        out.json(&serde_json::json!({ "kinds": kinds, "configured": configured }))?;
    } else {
        let rows: Vec<Vec<String>> = kinds.into_iter().map(kind_row).collect();
        out.table(
            &[
                "kind",
                "channels",
                "look-up",
                "replay window",
                "lag",
                "retention",
                "key",
                "callbacks",
                "in this version",
            ],
            &rows,
        )?;
        if !configured.is_empty() {
            let rows: Vec<Vec<String>> = configured.into_iter().map(configured_row).collect();
            out.line("")?;
            out.table(
                &["name", "kind", "routes", "look-up", "settle", "replay window", "callbacks"],
                &rows,
            )?;
        }
    }
    if let Err(error) = config {
        out.note("the configured providers are not shown, as the configuration cannot be read:")?;
        error.to_string().lines().try_for_each(|line| out.note(line))?;
    }
    Ok(())
}

/// Runs the trial, keeps its report where there is a ledger, and prints it.
///
/// # Errors
/// When there is no such provider or kind, it cannot be tried, or a scenario did not hold.
pub async fn trial(
    args: &Args,
    config: Result<Config, CliError>,
    host: &dyn Host,
    input: &mut dyn Input,
    out: &mut Out,
) -> Result<(), CliError> {
    let Command::Trial { provider: name, sandbox, json } = &args.command else {
        return Err(CliError::failed("this is not a trial", "report this"));
    };
    let known = config.as_ref().ok().and_then(|config| config.providers.get(name)).cloned();
    let is_configured = known.is_some();
    let provider = match known {
        Some(provider) => provider,
        None if *sandbox => {
            let help = "see `sendonce provider list` for the configured ones";
            return Err(CliError::usage("there is no configured provider of this name", help));
        }
        None => trial::stand_in_config(name).map_err(|_| {
            CliError::usage(
                "there is no configured provider and no kind of this name",
                "see `sendonce provider list`",
            )
        })?,
    };
    let target = if *sandbox {
        out.note("the recipient's number or address, which is not kept:")?;
        let to = input.line().map_err(|_| {
            CliError::usage("standard input cannot be read", "give the recipient there")
        })?;
        Target::Sandbox { to: Secret::new(to.trim().to_owned()) }
    } else {
        Target::Simulator
    };
    let report = host.trial(name, &provider, &target).await?;
    let kept = match &config {
        Ok(config) if is_configured => host.keep_trial(config, &report.trial).await,
        _ => Err(CliError::failed("it is not configured", "")),
    };
    print(&report, *json, out)?;
    match kept {
        Ok(()) => out.note("kept; the page /providers shows the newest one")?,
        Err(_) if !is_configured => {
            out.note("not kept: only a configured provider's trial is evidence")?;
        }
        Err(error) => out.note(&format!("not kept: {error}"))?,
    }
    if report.passes() {
        Ok(())
    } else {
        Err(CliError::failed(
            "a scenario did not hold",
            "do not route to this provider before its steps are understood",
        ))
    }
}

fn print(report: &Report, json: bool, out: &mut Out) -> Result<(), CliError> {
    let counted = |count: Option<usize>| count.map_or("-".to_owned(), |count| count.to_string());
    if json {
        let cases: Vec<serde_json::Value> = report
            .cases
            .iter()
            .map(|case| {
                serde_json::json!({
                    "scenario": case.scenario,
                    "state": case.record.state,
                    "reason": case.record.reason,
                    "calls": case.record.calls,
                    "calls_seen": case.counted.map(|(calls, _)| calls),
                    "messages_seen": case.counted.map(|(_, messages)| messages),
                    "holds": case.holds,
                })
            })
            .collect();
        let steps: Vec<serde_json::Value> = report
            .trial
            .steps
            .iter()
            .map(|step| {
                serde_json::json!({
                    "scenario": step.scenario,
                    "what": step.what,
                    "attempt_id": step.attempt_id,
                    "message_id": step.message_id,
                    "outcome": step.outcome,
                    "code": step.code,
                    "at": step.at,
                })
            })
            .collect();
        return out.json(&serde_json::json!({
            "id": report.trial.id,
            "provider": report.trial.provider,
            "kind": report.trial.kind,
            "target": report.trial.target,
            "verdict": report.trial.verdict,
            "meaning": report.meaning(),
            "holds": report.passes(),
            "started_at": report.trial.started_at,
            "ended_at": report.trial.ended_at,
            "scenarios": cases,
            "steps": steps,
        }));
    }
    let rows: Vec<Vec<String>> = report
        .cases
        .iter()
        .map(|case| {
            vec![
                case.scenario.to_owned(),
                case.record.state.to_string(),
                case.record.reason.to_string(),
                case.record.calls.to_string(),
                counted(case.counted.map(|(calls, _)| calls)),
                counted(case.counted.map(|(_, messages)| messages)),
                yes(case.holds),
            ]
        })
        .collect();
    out.table(
        &["scenario", "state", "reason", "calls", "calls seen", "messages seen", "holds"],
        &rows,
    )?;
    out.line("")?;
    let rows: Vec<Vec<String>> = report
        .trial
        .steps
        .iter()
        .map(|step| {
            vec![
                step.at.to_string(),
                step.scenario.clone(),
                step.what.clone(),
                step.outcome.clone(),
                step.code.clone().unwrap_or_default(),
                step.attempt_id.clone(),
                step.message_id.clone().unwrap_or_default(),
            ]
        })
        .collect();
    out.table(&["at", "scenario", "what", "outcome", "code", "attempt", "message"], &rows)?;
    out.line("")?;
    out.line(&format!("verdict: {}: {}", report.trial.verdict, report.meaning()))
}

fn kind_view(kind: &Kind) -> KindView {
    KindView {
        kind: kind.name,
        channels: kind.channels,
        look_up: word(kind.reading),
        replay_window: kind.window.map(duration::format),
        documented_lag: kind.lag.map(duration::format),
        retention: kind.retention.map(duration::format),
        idempotency_key: kind.idempotency,
        callbacks: kind.callbacks,
        validity: kind.has_validity,
        in_this_version: kind.is_available(),
    }
}

fn configured_view(config: &Config, name: &str, provider: &ProviderConfig) -> ConfiguredView {
    let kind = provider.known_kind();
    let reading = kind.filter(|_| provider.lookup).map_or(Reading::None, |kind| kind.reading);
    let is_demo = provider.kind == "demo";
    ConfiguredView {
        name: name.to_owned(),
        kind: provider.kind.clone(),
        routes: config
            .routes
            .iter()
            .filter(|(_, names)| names.iter().any(|routed| routed == name))
            .map(|(channel, _)| *channel)
            .collect(),
        look_up: word(reading),
        settle: provider.settle.map(duration::format),
        replay_window: provider.replay_window().map(duration::format),
        callbacks: kind.is_some_and(|kind| {
            kind.callbacks.is_some()
                && (is_demo || kind.callback_key.is_none_or(|key| provider.has_value(key)))
        }),
    }
}

fn kind_row(view: KindView) -> Vec<String> {
    vec![
        view.kind.to_owned(),
        channels(view.channels),
        view.look_up.to_owned(),
        view.replay_window.unwrap_or_default(),
        view.documented_lag.unwrap_or_default(),
        view.retention.unwrap_or_default(),
        view.idempotency_key.unwrap_or_default().to_owned(),
        view.callbacks.unwrap_or_default().to_owned(),
        yes(view.in_this_version),
    ]
}

fn configured_row(view: ConfiguredView) -> Vec<String> {
    vec![
        view.name,
        view.kind,
        channels(&view.routes),
        view.look_up.to_owned(),
        view.settle.unwrap_or_default(),
        view.replay_window.unwrap_or_default(),
        yes(view.callbacks),
    ]
}

fn channels(channels: &[Channel]) -> String {
    channels.iter().map(|channel| channel.as_str()).collect::<Vec<_>>().join(",")
}

fn yes(flag: bool) -> String {
    (if flag { "yes" } else { "no" }).to_owned()
}

const fn word(reading: Reading) -> &'static str {
    match reading {
        Reading::None => "none",
        Reading::ByReference => "by attempt id",
        Reading::ByScan => "by scan",
        Reading::ByOperation => "by operation id",
        Reading::ByMessageId => "by message id",
    }
}

#[cfg(test)]
mod tests {
    use super::{Args, Command, run};
    use crate::cli::testing::Screen;
    use crate::config::{Config, KINDS};

    fn list(text: &str, json: bool) -> Screen {
        let (mut out, screen) = Screen::new();
        let config = Config::parse("x", text, std::iter::empty()).map_err(Into::into);
        run(&Args { command: Command::List { json } }, config, &mut out).expect("prints");
        screen
    }

    #[test]
    fn every_kind_is_listed_and_so_is_what_is_configured() {
        let screen =
            list("[providers.mine]\nkind = \"http\"\nsecret = \"canary\"\nsettle = \"9s\"", false);
        for kind in KINDS {
            assert!(
                screen.results().lines().any(|line| line.starts_with(kind.name)),
                "{}",
                kind.name
            );
        }
        let mine = "mine  http  -          by attempt id  9s      -              no";
        assert!(screen.results().contains(mine), "{}", screen.results());
        assert!(!screen.all().contains("canary"));
    }

    #[test]
    fn kinds_are_listed_without_a_usable_configuration() {
        let screen = list("[nonsense]\nx = 1", false);
        assert!(screen.results().contains("mailgun"));
        assert!(screen.notes().contains("nonsense.x"), "{}", screen.notes());
    }

    #[test]
    fn the_list_says_what_the_adapters_of_this_version_say() {
        let built = crate::providers::kinds();
        for kind in KINDS {
            let adapter = built.iter().find(|adapter| adapter.kind == kind.name);
            assert_eq!(adapter.is_some(), kind.is_available(), "{}", kind.name);
            if let Some(adapter) = adapter {
                assert_eq!(adapter.channels, kind.channels, "{}", kind.name);
                assert_eq!(adapter.reading, kind.reading, "{}", kind.name);
                assert_eq!(adapter.callbacks, kind.callbacks, "{}", kind.name);
            }
        }
    }

    #[test]
    fn machines_get_json() {
        let screen = list("", true);
        let value: serde_json::Value = serde_json::from_str(&screen.results()).expect("JSON");
        assert_eq!(value["kinds"].as_array().map(Vec::len), Some(KINDS.len()));
        assert_eq!(value["configured"][0]["name"], "demo");
        assert_eq!(value["configured"][0]["settle"], "2s");
    }
}
