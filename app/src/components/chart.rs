//! Charts as SVG made on the server. Sizes are attributes, since the page may carry no inline style, and each
//! chart has its summary in words beside it.

use leptos::prelude::*;

/// One column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// 0 to 100; nothing is drawn at 0 but the base line.
    pub height: u64,
    /// `good`, `warn`, `bad` or `none`: how it is coloured, never the only sign.
    pub tone: &'static str,
    /// What it says when it is pointed at.
    pub title: String,
}

const WIDTH: usize = 600;
const HEIGHT: usize = 120;

/// Columns from left to right, with a line at this height where there is a limit to see.
pub fn columns(name: String, columns: Vec<Column>, limit: Option<u64>) -> impl IntoView {
    let n = columns.len().max(1);
    let step = WIDTH / n;
    let shapes = columns
        .into_iter()
        .enumerate()
        .map(|(at, column)| {
            let height = usize::try_from(column.height.min(100)).unwrap_or(0) * HEIGHT / 100;
            let height = height.max(2);
            view! {
                <rect
                    x=(at * step + 1).to_string() y=(HEIGHT - height).to_string()
                    width=(step.saturating_sub(2)).max(1).to_string() height=height.to_string()
                    data-tone=column.tone
                >
                    <title inner_html=super::raw_text(&column.title)></title>
                </rect>
            }
        })
        .collect_view();
    let line = limit.map(|limit| {
        let y = HEIGHT - usize::try_from(limit.min(100)).unwrap_or(0) * HEIGHT / 100;
        view! { <line x1="0" x2=WIDTH.to_string() y1=y.to_string() y2=y.to_string()></line> }
    });
    view! {
        <svg
            class="chart" viewBox=format!("0 0 {WIDTH} {HEIGHT}") preserveAspectRatio="none" role="img" aria-label=name
        >
            {shapes}
            {line}
        </svg>
    }
}
