//! The report of a pack: one page to read and print, without script and without anything from elsewhere.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use app::model::DetailValue;

use super::note::Checkpoint;
use super::pack::Asked;
use super::tree;
use crate::store::LoggedFact;

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;\
color:#16191d;background:#fff}h1{font-size:1.6rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:\
collapse;width:100%;font-size:12px}th,td{text-align:left;vertical-align:top;padding:.3rem .5rem;border-bottom:\
1px solid #d7dbe0}td{overflow-wrap:anywhere}code{font-family:ui-monospace,monospace;font-size:12px}dl{display:\
grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem}dd{margin:0;overflow-wrap:anywhere}.note{border:1px \
solid #b58900;padding:.5rem .8rem}@media print{body{margin:0;max-width:none}tr{break-inside:avoid}}";

fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
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

/// The whole document.
#[must_use]
pub fn html(facts: &[LoggedFact], asked: &Asked, head: &Checkpoint, is_capped: bool) -> String {
    let mut out = String::from(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Evidence</title>\n<style>",
    );
    out.push_str(STYLE);
    out.push_str("</style></head>\n<body><h1>Evidence</h1>\n");
    let about = match asked {
        Asked::Record { id } => format!("the notification {id}"),
        Asked::Seller { seller_id } => format!("the seller {seller_id}"),
        Asked::Time { from, to } => format!("the time from {from} to {to}"),
    };
    // Writing to a `String` cannot fail.
    let _ = writeln!(
        out,
        "<p>Facts about {}, from the log that is named below. No token, link, message text, address or \
         number was ever stored. How to verify this pack stands in README.txt.</p>",
        safe(&about)
    );
    if is_capped {
        out.push_str("<p class=\"note\">This pack is full: later facts were left out.</p>\n");
    }
    let _ = writeln!(
        out,
        "<dl><dt>Log</dt><dd>{}</dd><dt>Leaves</dt><dd>{}</dd><dt>Root</dt><dd><code>{}</code></dd>\
         <dt>Facts</dt><dd>{}</dd></dl>",
        safe(&head.origin),
        head.size,
        tree::encode(&head.root),
        facts.len()
    );
    let mut records: BTreeMap<Option<&str>, Vec<&LoggedFact>> = BTreeMap::new();
    let mut order: Vec<Option<&str>> = Vec::new();
    for fact in facts {
        let id = fact.fact.id.as_deref();
        let group = records.entry(id).or_default();
        if group.is_empty() {
            order.push(id);
        }
        group.push(fact);
    }
    for id in order {
        section(&mut out, id, records.get(&id).map_or(&[][..], Vec::as_slice));
    }
    out.push_str("</body></html>\n");
    out
}

fn section(out: &mut String, id: Option<&str>, facts: &[&LoggedFact]) {
    let event = facts.iter().find_map(|fact| fact.fact.event_id.as_deref());
    let calls = facts.iter().filter(|f| f.fact.kind == app::model::FactKind::Call).count();
    let _ = match id {
        None => writeln!(out, "<h2>Facts without a notification</h2>"),
        Some(id) => writeln!(
            out,
            "<h2>Notification <code>{}</code></h2>\n<p>Event <code>{}</code>. Calls to a provider in \
             these facts: {calls}.</p>",
            safe(id),
            safe(event.unwrap_or("unknown"))
        ),
    };
    out.push_str(
        "<table><thead><tr><th scope=\"col\">Place</th><th scope=\"col\">Seq</th><th scope=\"col\">At (UTC)\
         </th><th scope=\"col\">What</th><th scope=\"col\">State</th><th scope=\"col\">Reason</th>\
         <th scope=\"col\">Attempt</th><th scope=\"col\">Provider</th><th scope=\"col\">By</th>\
         <th scope=\"col\">Detail</th></tr></thead>\n<tbody>\n",
    );
    for logged in facts {
        let fact = &logged.fact;
        let state = match (fact.old_state, fact.new_state) {
            (Some(old), Some(new)) => format!("{old} to {new}"),
            (None, Some(new)) => new.to_string(),
            _ => String::new(),
        };
        let detail: Vec<String> = fact
            .detail
            .0
            .iter()
            .map(|(name, value)| match value {
                DetailValue::Number(number) => format!("{name} {number}"),
                DetailValue::Code(code) => format!("{name} {code}"),
            })
            .collect();
        let provider = [fact.provider.as_deref(), fact.provider_message_id.as_deref()];
        let provider: Vec<&str> = provider.into_iter().flatten().collect();
        let cells = [
            logged.index.to_string(),
            fact.seq.to_string(),
            fact.at.to_string(),
            fact.kind.to_string(),
            state,
            fact.reason.map(|reason| reason.to_string()).unwrap_or_default(),
            fact.attempt.map(|attempt| attempt.to_string()).unwrap_or_default(),
            provider.join(" "),
            fact.actor.clone(),
            detail.join(", "),
        ];
        out.push_str("<tr>");
        for cell in cells {
            let _ = write!(out, "<td>{}</td>", safe(&cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table>\n");
}
