//! `/runbook`: the same text as `docs/runbook.md`.

use leptos::prelude::*;

use crate::components::{Layout, head, page};
use crate::model::{Frame, RunbookBlock, RunbookInline, RunbookPage};

/// The runbook with its sections as anchors.
pub fn runbook(frame: Frame, data: RunbookPage, options: LeptosOptions) -> impl IntoView + use<> {
    let now = frame.now;
    let title = view! { <h1>{data.title.clone()}</h1> }.into_any();
    let links = data
        .sections
        .iter()
        .map(|section| {
            view! { <li><a href=format!("#{}", section.anchor)>{section.title.clone()}</a></li> }
        })
        .collect_view();
    let sections = data
        .sections
        .iter()
        .map(|section| {
            view! {
                <section class="panel prose" aria-labelledby=section.anchor.clone()>
                    <header><h2 id=section.anchor.clone()>{section.title.clone()}</h2></header>
                    <div class="body stack-s">{section.blocks.iter().map(block).collect_view()}</div>
                </section>
            }
        })
        .collect_view();
    let content = view! {
        {head(title, None, now, None)}
        <div class="stack">
            <div class="stack-s prose">{data.lead.iter().map(block).collect_view()}</div>
            <nav class="panel" aria-label="Sections"><div class="body"><ul class="toc">{links}</ul></div></nav>
            {sections}
        </div>
    };
    page(frame, options, Layout::new("Runbook"), content.into_any())
}

fn block(block: &RunbookBlock) -> AnyView {
    match block {
        RunbookBlock::Text(parts) => view! { <p>{inlines(parts)}</p> }.into_any(),
        RunbookBlock::Points(items) => {
            view! { <ul>{items.iter().map(|item| view! { <li>{inlines(item)}</li> }).collect_view()}</ul> }.into_any()
        }
        RunbookBlock::Steps(items) => {
            view! { <ol>{items.iter().map(|item| view! { <li>{inlines(item)}</li> }).collect_view()}</ol> }.into_any()
        }
    }
}

fn inlines(parts: &[RunbookInline]) -> AnyView {
    parts
        .iter()
        .map(|part| match part {
            RunbookInline::Text(text) => text.clone().into_any(),
            RunbookInline::Code(text) if is_page(text) => {
                view! { <a href=text.clone()><code>{text.clone()}</code></a> }.into_any()
            }
            RunbookInline::Code(text) => view! { <code>{text.clone()}</code> }.into_any(),
            RunbookInline::Strong(text) => view! { <b>{text.clone()}</b> }.into_any(),
        })
        .collect_view()
        .into_any()
}

/// A path that is a page of ours becomes a link.
fn is_page(text: &str) -> bool {
    const PAGES: [&str; 7] =
        ["/alerts", "/freeze", "/providers", "/runbook", "/slo", "/unknown", "/workers"];
    PAGES.contains(&text)
}
