//! `sendonce find`

use app::model::{DetailValue, Fact, State};

use super::{Admin, CliError, Found, Out};

/// The longest id that an event can have.
const ID_CHARS_MAX: usize = 128;

/// Which notification.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:\n  sendonce find 0193a5b0-7c1e-7d3f-8a2b-0123456789ab\n  \
                        sendonce find reset-2291 --json")]
pub struct Args {
    /// Our id, or the caller's event id.
    pub id: String,
    /// Print JSON: {"record", "facts"}.
    #[arg(long)]
    pub json: bool,
}

/// Prints the record and its timeline.
///
/// # Errors
/// When it is no id, there is no such notification, or the ledger does not answer.
pub async fn run(args: &Args, admin: &dyn Admin, out: &mut Out) -> Result<(), CliError> {
    let id = args.id.trim();
    let is_id = (1..=ID_CHARS_MAX).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-'));
    if !is_id {
        return Err(CliError::usage(
            "this is neither an id nor an event id",
            "by address or number, look it up on the page /lookup",
        ));
    }
    let Some(found) = admin.find(id).await? else {
        return Err(CliError::failed(
            "there is no notification with this id or event id",
            "check it with the caller; what is past retention is purged",
        ));
    };
    if args.json {
        return out.json(&serde_json::json!({ "record": found.record, "facts": found.facts }));
    }
    record(&found, out)?;
    out.line("")?;
    timeline(&found.facts, out)
}

fn record(found: &Found, out: &mut Out) -> Result<(), CliError> {
    let record = &found.record;
    let calls = format!("{} in {}", record.calls, counted(record.attempts, "attempt"));
    let next = match record.retry_at {
        Some(at) => format!("{}, ask again at {at}", record.next),
        None => record.next.to_string(),
    };
    let mut pairs = vec![
        ("notification", record.id.clone()),
        ("event", record.event_id.clone()),
        ("state", format!("{}: {}", record.state, meaning(record.state))),
        ("reason", record.reason.to_string()),
        ("channel", record.channel.to_string()),
        ("purpose", record.purpose.clone()),
    ];
    if let Some(seller) = &record.seller_id {
        pairs.push(("seller", seller.clone()));
    }
    pairs.extend([
        ("calls", calls),
        ("settled", yes(record.settled)),
        ("frozen", yes(record.frozen)),
        ("next", next),
        ("created", record.created_at.to_string()),
        ("updated", record.updated_at.to_string()),
        ("expires", record.expires_at.to_string()),
    ]);
    out.pairs(&pairs)
}

fn timeline(facts: &[Fact], out: &mut Out) -> Result<(), CliError> {
    let names = [
        "seq", "at (UTC)", "kind", "state", "reason", "try", "provider", "message", "by", "detail",
    ];
    let rows: Vec<Vec<String>> = facts
        .iter()
        .map(|fact| {
            vec![
                fact.seq.to_string(),
                fact.at.to_string(),
                fact.kind.to_string(),
                change(fact),
                fact.reason.map(|reason| reason.to_string()).unwrap_or_default(),
                fact.attempt.map(|attempt| attempt.to_string()).unwrap_or_default(),
                fact.provider.clone().unwrap_or_default(),
                fact.provider_message_id.clone().unwrap_or_default(),
                fact.actor.clone(),
                detail(fact),
            ]
        })
        .collect();
    out.table(&names, &rows)
}

fn change(fact: &Fact) -> String {
    match (fact.old_state, fact.new_state) {
        (Some(old), Some(new)) => format!("{old} -> {new}"),
        (None, Some(new)) => format!("-> {new}"),
        _ => String::new(),
    }
}

fn detail(fact: &Fact) -> String {
    let pairs: Vec<String> = fact
        .detail
        .0
        .iter()
        .map(|(name, value)| match value {
            DetailValue::Number(number) => format!("{name}={number}"),
            DetailValue::Code(code) => format!("{name}={code}"),
        })
        .collect();
    pairs.join(" ")
}

/// What a state means, in a few words.
const fn meaning(state: State) -> &'static str {
    match state {
        State::Accepted => "admitted, nothing is on the wire",
        State::Dispatching => "a worker has it",
        State::DispatchUnknown => "sent or not, nobody can say yet",
        State::Sent => "the provider has taken it",
        State::Delivered => "it arrived",
        State::FailedFinal => "over, it was not delivered",
        State::Expired => "its time ran out",
    }
}

fn yes(flag: bool) -> String {
    (if flag { "yes" } else { "no" }).to_owned()
}

fn counted(count: u32, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::{Args, run};
    use crate::cli::CliError;
    use crate::cli::testing::{Memory, Screen};

    async fn find(id: &str, json: bool) -> (Result<(), CliError>, Screen) {
        let (mut out, screen) = Screen::new();
        let args = Args { id: id.to_owned(), json };
        let done = run(&args, &Memory::default(), &mut out).await;
        (done, screen)
    }

    #[tokio::test]
    async fn the_record_and_its_timeline_are_readable() {
        let (done, screen) = find("ev-1", false).await;
        assert_eq!(done, Ok(()));
        assert_eq!(
            screen.results(),
            "\
notification  0193a5b0-7c1e-7d3f-8a2b-0123456789ab
event         ev-1
state         dispatch_unknown: sent or not, nobody can say yet
reason        timeout
channel       sms
purpose       password_reset
seller        seller_1042
calls         1 in 1 attempt
settled       no
frozen        no
next          wait, ask again at 2026-09-21T14:13:25.000000Z
created       2026-09-21T14:13:20.000000Z
updated       2026-09-21T14:13:22.000000Z
expires       2026-09-21T14:23:20.000000Z

SEQ  AT (UTC)                     KIND        STATE                            REASON    TRY  PROVIDER  MESSAGE  BY      DETAIL
1    2026-09-21T14:13:20.000000Z  transition  -> accepted                      admitted  -    -         -        system  -
2    2026-09-21T14:13:22.000000Z  transition  dispatching -> dispatch_unknown  timeout   1    demo      -        system  code=timeout number=1
"
        );
    }

    #[tokio::test]
    async fn machines_get_json() {
        let (done, screen) = find("0193a5b0-7c1e-7d3f-8a2b-0123456789ab", true).await;
        assert_eq!(done, Ok(()));
        let value: serde_json::Value = serde_json::from_str(&screen.results()).expect("JSON");
        assert_eq!(value["record"]["state"], "dispatch_unknown");
        assert_eq!(value["facts"].as_array().map(Vec::len), Some(2));
    }

    #[tokio::test]
    async fn what_is_not_there_is_1_and_what_is_no_id_is_2_without_repeating_it() {
        let (done, _) = find("ev-2", false).await;
        assert_eq!(done.expect_err("not there").exit, 1);
        for text in ["a@example.com", "+15550100001", "", "a b", "ä", &"x".repeat(129)] {
            let error = find(text, false).await.0.expect_err(text);
            assert_eq!(error.exit, 2);
            assert!(!error.to_string().contains("example") && !error.to_string().contains("555"));
        }
    }
}
