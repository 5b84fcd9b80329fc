//! Facts for a spreadsheet. Only here are values changed: a cell that a spreadsheet would run is disarmed.

use crate::store::LoggedFact;

const COLUMNS: [&str; 16] = [
    "log_index",
    "seq",
    "id",
    "event_id",
    "at",
    "kind",
    "old_state",
    "new_state",
    "attempt",
    "attempt_id",
    "reason",
    "provider",
    "provider_message_id",
    "token_id",
    "actor",
    "detail",
];

/// A cell that is no formula: what begins like one gets an apostrophe before it. Full-width signs count, as
/// some programs read them, and so do white space and line breaks before a sign.
#[must_use]
pub fn cell(text: &str) -> String {
    let starts_formula = |c: char| {
        matches!(
            c,
            '=' | '+'
                | '-'
                | '@'
                | '\t'
                | '\r'
                | '\n'
                | '\u{ff1d}'
                | '\u{ff0b}'
                | '\u{ff0d}'
                | '\u{ff20}'
        )
    };
    let first = text.trim_start_matches(' ').chars().next();
    if first.is_some_and(starts_formula) { format!("'{text}") } else { text.to_owned() }
}

/// The table with its head line; lines end as RFC 4180 says.
///
/// # Errors
/// None that memory does not have.
pub fn csv(facts: &[LoggedFact]) -> Result<Vec<u8>, csv::Error> {
    let mut out =
        csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
    out.write_record(COLUMNS)?;
    for logged in facts {
        let fact = &logged.fact;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let row = [
            logged.index.to_string(),
            fact.seq.to_string(),
            text(&fact.id),
            text(&fact.event_id),
            fact.at.to_string(),
            fact.kind.to_string(),
            fact.old_state.map(|state| state.to_string()).unwrap_or_default(),
            fact.new_state.map(|state| state.to_string()).unwrap_or_default(),
            fact.attempt.map(|attempt| attempt.to_string()).unwrap_or_default(),
            text(&fact.attempt_id),
            fact.reason.map(|reason| reason.to_string()).unwrap_or_default(),
            text(&fact.provider),
            text(&fact.provider_message_id),
            text(&fact.token_id),
            fact.actor.clone(),
            serde_json::to_string(&fact.detail).unwrap_or_default(),
        ];
        out.write_record(row.iter().map(|value| cell(value)))?;
    }
    out.into_inner().map_err(|error| error.into_error().into())
}

#[cfg(test)]
mod tests {
    use super::cell;

    #[test]
    fn no_cell_is_run_by_a_spreadsheet() {
        for text in [
            "=1+1",
            "+1",
            "-1",
            "@SUM(A1)",
            "\t=1",
            "\r=1",
            "\n=1",
            "\u{ff1d}1",
            "\u{ff0b}1",
            "\u{ff0d}1",
            "\u{ff20}x",
            "  =1",
            "=HYPERLINK(\"x\")",
        ] {
            assert_eq!(cell(text), format!("'{text}"), "{text:?}");
        }
        for text in ["", "a", "1", "a=b", "2026-09-21T14:13:20.000000Z", "{\"a\":1}", "'x"] {
            assert_eq!(cell(text), text);
        }
    }
}
