//! The runbook: `docs/runbook.md`, in the binary, as data for the page.
//!
//! The text keeps to a small part of Markdown: sections (`##`), paragraphs, lists of one level, code and strong
//! words. A test holds it to that, and each alert to a section that exists.

use app::model::{RunbookBlock, RunbookInline, RunbookPage, RunbookSection};

/// The one source.
const TEXT: &str = include_str!("../../../docs/runbook.md");

/// The page's data.
#[must_use]
pub fn page() -> RunbookPage {
    parse(TEXT)
}

fn parse(text: &str) -> RunbookPage {
    let mut parts = text.split("\n## ");
    let head = parts.next().unwrap_or_default();
    let (title, lead) = head.split_once('\n').unwrap_or((head, ""));
    RunbookPage {
        title: title.trim_start_matches("# ").trim().to_owned(),
        lead: blocks(lead),
        sections: parts
            .map(|part| {
                let (title, body) = part.split_once('\n').unwrap_or((part, ""));
                let title = title.trim().to_owned();
                RunbookSection { anchor: anchor(&title), title, blocks: blocks(body) }
            })
            .collect(),
    }
}

/// As code hosts name headings.
fn anchor(title: &str) -> String {
    title
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// The text of a list's entry, and whether it counts.
fn entry(line: &str) -> Option<(bool, &str)> {
    if let Some(text) = line.strip_prefix("- ") {
        return Some((false, text));
    }
    let (number, text) = line.split_once(". ")?;
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some((true, text))
}

fn blocks(text: &str) -> Vec<RunbookBlock> {
    text.split("\n\n").map(str::trim).filter(|block| !block.is_empty()).flat_map(block).collect()
}

fn block(text: &str) -> Vec<RunbookBlock> {
    let mut items: Vec<(Option<bool>, String)> = Vec::new();
    for line in text.lines() {
        match entry(line) {
            Some((counts, text)) => items.push((Some(counts), text.to_owned())),
            None => match items.last_mut() {
                Some((_, last)) => {
                    last.push(' ');
                    last.push_str(line.trim());
                }
                None => items.push((None, line.trim().to_owned())),
            },
        }
    }
    let mut found: Vec<RunbookBlock> = Vec::new();
    for (kind, text) in items {
        let parts = inlines(&text);
        match (kind, found.last_mut()) {
            (Some(false), Some(RunbookBlock::Points(list)))
            | (Some(true), Some(RunbookBlock::Steps(list))) => list.push(parts),
            (Some(false), _) => found.push(RunbookBlock::Points(vec![parts])),
            (Some(true), _) => found.push(RunbookBlock::Steps(vec![parts])),
            (None, _) => found.push(RunbookBlock::Text(parts)),
        }
    }
    found
}

fn inlines(text: &str) -> Vec<RunbookInline> {
    let mut parts = Vec::new();
    for (at, strong) in text.split("**").enumerate() {
        for (n, piece) in strong.split('`').enumerate() {
            let piece = piece.to_owned();
            if piece.is_empty() {
                continue;
            }
            parts.push(match (n % 2 == 1, at % 2 == 1) {
                (true, _) => RunbookInline::Code(piece),
                (false, true) => RunbookInline::Strong(piece),
                (false, false) => RunbookInline::Text(piece),
            });
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use app::model::AlertRule;

    use super::*;

    #[test]
    fn every_alert_leads_to_a_section() {
        let page = page();
        let anchors: BTreeSet<&str> =
            page.sections.iter().map(|section| section.anchor.as_str()).collect();
        assert_eq!(anchors.len(), page.sections.len(), "two sections of one name");
        for rule in AlertRule::ALL {
            assert!(anchors.contains(rule.anchor()), "{rule}: no section {}", rule.anchor());
        }
        for needed in [
            "who-may-freeze",
            "expiry",
            "reopening",
            "lease-semantics",
            "rollback-of-the-dispatcher",
            "rollback-of-the-schema",
            "provider-outage",
            "key-rotation",
            "restore",
        ] {
            assert!(anchors.contains(needed), "{needed}");
        }
    }

    #[test]
    fn the_text_keeps_to_what_the_page_can_draw() {
        let page = page();
        assert_eq!(page.title, "Runbook");
        assert!(!page.lead.is_empty() && page.sections.len() > 15);
        for section in &page.sections {
            assert!(!section.blocks.is_empty(), "{}", section.title);
        }
        let body = TEXT.replace("\n## ", "\n");
        for odd in ["\n#", "](", "```", "\n|", "\n  -"] {
            assert!(!body.contains(odd), "{odd:?}");
        }
        assert_eq!(TEXT.matches('`').count() % 2, 0);
        assert_eq!(TEXT.matches("**").count() % 2, 0);
    }

    #[test]
    fn lists_and_words_are_told_apart() {
        let page = parse("# T\n\nA `b` c.\n\n## One two\n\n1. x\n   y\n2. **z:** w\n\n- p\n");
        assert_eq!(page.lead.len(), 1);
        assert_eq!(page.sections[0].anchor, "one-two");
        let RunbookBlock::Steps(steps) = &page.sections[0].blocks[0] else { panic!("no steps") };
        assert_eq!(steps[0], [RunbookInline::Text("x y".to_owned())]);
        assert_eq!(steps[1][0], RunbookInline::Strong("z:".to_owned()));
        assert!(matches!(page.sections[0].blocks[1], RunbookBlock::Points(_)));
    }
}
