//! The icons: one sprite at the top of each page, 16 x 16 strokes in the colour of their text.

use leptos::prelude::*;

/// One icon of the sprite. It is never alone: a word stands beside it or in the button's name.
pub fn icon(name: &'static str) -> impl IntoView {
    view! {
        <svg class="ic" viewBox="0 0 16 16" aria-hidden="true">
            <use_ href=format!("#i-{name}") />
        </svg>
    }
}

/// All icons, hidden; every page carries it once.
pub fn sprite() -> impl IntoView {
    let symbols: String = SYMBOLS
        .iter()
        .map(|(name, paths)| {
            format!(r#"<symbol id="i-{name}" viewBox="0 0 16 16">{paths}</symbol>"#)
        })
        .collect();
    view! {
        <svg width="0" height="0" aria-hidden="true" focusable="false" class="vh" inner_html=symbols></svg>
    }
}

const SYMBOLS: &[(&str, &str)] = &[
    ("menu", r#"<path d="M2 4.5h12M2 8h12M2 11.5h12"/>"#),
    ("mark", r#"<path d="M3 8h7M7.5 4.5 11 8l-3.5 3.5M13.5 3.5v9"/>"#),
    ("auto", r#"<rect x="2" y="3" width="12" height="8" rx="1"/><path d="M6 14h4"/>"#),
    (
        "sun",
        r#"<circle cx="8" cy="8" r="2.75"/><path d="M8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M12.6 3.4l-.7.7M4.1 11.9l-.7.7"/>"#,
    ),
    ("moon", r#"<path d="M13.5 9.5A5.8 5.8 0 0 1 6.5 2.5a5.8 5.8 0 1 0 7 7Z"/>"#),
    ("gauge", r#"<path d="M2.2 11.5a6 6 0 1 1 11.6 0M8 10.5l2.8-3.6"/>"#),
    ("list", r#"<path d="M5.5 4h8M5.5 8h8M5.5 12h8M2.5 4h.01M2.5 8h.01M2.5 12h.01"/>"#),
    (
        "dispatch_unknown",
        r#"<path d="M8 1.8 14.2 8 8 14.2 1.8 8Z"/><path d="M6.6 6.6a1.5 1.5 0 1 1 2 1.5c-.4.2-.6.4-.6.9"/><path d="M8 10.9h.01" stroke-width="1.8"/>"#,
    ),
    (
        "frozen",
        r#"<path d="M8 1.5v13M2.4 4.75l11.2 6.5M13.6 4.75 2.4 11.25M6.3 2.6 8 4.2l1.7-1.6M6.3 13.4 8 11.8l1.7 1.6"/>"#,
    ),
    (
        "thaw",
        r#"<circle cx="8" cy="8" r="3"/><path d="M8 1.5v2M8 12.500v2M1.500 8h2M12.500 8h2"/>"#,
    ),
    (
        "eye",
        r#"<path d="M1.5 8S4 3.5 8 3.5 14.5 8 14.5 8 12 12.5 8 12.5 1.5 8 1.5 8Z"/><circle cx="8" cy="8" r="1.8"/>"#,
    ),
    ("plug", r#"<path d="M5.5 2v3M10.5 2v3M4 5h8v3a4 4 0 0 1-8 0ZM8 12v2.5"/>"#),
    (
        "cpu",
        r#"<rect x="4" y="4" width="8" height="8" rx="1"/><path d="M6.5 1.8V4M9.5 1.8V4M6.5 12v2.2M9.5 12v2.2M1.8 6.5H4M1.8 9.5H4M12 6.5h2.2M12 9.5h2.2"/>"#,
    ),
    (
        "cog",
        r#"<path d="M2 5h7M12 5h2M2 11h2M7 11h7"/><circle cx="10.5" cy="5" r="1.5"/><circle cx="5.5" cy="11" r="1.5"/>"#,
    ),
    (
        "shield",
        r#"<path d="M8 1.8 13.2 4v4c0 3-2.2 5.2-5.2 6.2C5 13.2 2.8 11 2.8 8V4Z"/><path d="m5.8 8 1.6 1.6 2.9-3.2"/>"#,
    ),
    (
        "person",
        r#"<circle cx="8" cy="5" r="2.6"/><path d="M2.800 14a5.200 5.200 0 0 1 10.400 0"/>"#,
    ),
    (
        "people",
        r#"<circle cx="6" cy="5.500" r="2.200"/><path d="M1.800 13.200a4.200 4.200 0 0 1 8.400 0M10.800 3.600a2.100 2.100 0 0 1 0 3.900M12 9.600a4 4 0 0 1 2.300 3.600"/>"#,
    ),
    (
        "key",
        r#"<circle cx="5.200" cy="10.800" r="2.700"/><path d="m7.200 8.800 6-6M10.700 5.300l2 2"/>"#,
    ),
    ("search", r#"<circle cx="7" cy="7" r="4.5"/><path d="m10.5 10.5 3.5 3.5"/>"#),
    ("x", r#"<path d="m4 4 8 8m0-8-8 8"/>"#),
    ("down", r#"<path d="m3.5 6 4.5 4.5L12.5 6"/>"#),
    ("chev", r#"<path d="m6 3.5 4.5 4.5L6 12.5"/>"#),
    ("back", r#"<path d="M7 4 3 8l4 4M3 8h10"/>"#),
    ("fwd", r#"<path d="m9 4 4 4-4 4M13 8H3"/>"#),
    (
        "copy",
        r#"<rect x="5.5" y="5.5" width="8" height="8" rx="1.5"/><path d="M3.5 10.5h-1v-7a1 1 0 0 1 1-1h7v1"/>"#,
    ),
    ("accepted", r#"<circle cx="8" cy="8" r="5.5"/><path d="M8 8h.01" stroke-width="2.4"/>"#),
    (
        "dispatching",
        r#"<path d="M2.5 8h9.5M8.5 4.5 12 8l-3.5 3.5"/><path d="M2.5 4.5h2M2.5 11.5h2"/>"#,
    ),
    ("sent", r#"<path d="m3.5 8.5 3 3 6-7"/>"#),
    ("delivered", r#"<path d="m1.5 8.5 3 3 5.5-7M8 11.3l.3.2 6.2-7"/>"#),
    (
        "failed_final",
        r#"<path d="M5.4 2h5.2L14 5.4v5.2L10.6 14H5.4L2 10.6V5.4Z"/><path d="m6 6 4 4m0-4-4 4"/>"#,
    ),
    ("expired", r#"<path d="M4 2h8M4 14h8M5 2c0 3.5 6 4.5 6 12M11 2c0 3.5-6 4.5-6 12"/>"#),
    ("call", r#"<path d="M2.5 8h11M10 4.5 13.5 8 10 11.5"/>"#),
    ("inb", r#"<path d="M13.5 3 4 12.5M4 6.5v6h6"/>"#),
    ("dup", r#"<rect x="2.5" y="4.5" width="8" height="8" rx="1"/><path d="M5.5 2.5h8v8"/>"#),
    ("clock", r#"<circle cx="8" cy="8" r="6"/><path d="M8 4.5V8l2.5 1.5"/>"#),
    ("check", r#"<circle cx="8" cy="8" r="6"/><path d="m5.2 8.2 2 2 3.6-4.2"/>"#),
    ("alert", r#"<path d="M8 2 14.5 13.5h-13Z"/><path d="M8 6.5v3M8 11.6h.01"/>"#),
    (
        "lock",
        r#"<rect x="3.500" y="7" width="9" height="6.500" rx="1"/><path d="M5.500 7V5a2.500 2.500 0 0 1 5 0v2"/>"#,
    ),
    ("undo", r#"<path d="M3 6.500h6.500a3.500 3.500 0 0 1 0 7H6M5.800 3.500 3 6.500l2.800 3"/>"#),
];

#[cfg(test)]
mod tests {
    use super::SYMBOLS;
    use crate::model::State;

    #[test]
    fn every_state_has_an_icon_and_no_name_is_twice() {
        for state in State::ALL {
            assert!(SYMBOLS.iter().any(|(name, _)| *name == state.as_str()), "{state}");
        }
        for (i, (name, _)) in SYMBOLS.iter().enumerate() {
            assert!(!SYMBOLS[..i].iter().any(|(other, _)| other == name), "{name}");
        }
    }
}
