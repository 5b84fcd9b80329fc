//! One style sheet out of `style/main.css`, which holds only `@import` lines and the order of the layers.

use std::path::Path;

use anyhow::{Context, Result, bail};

/// Nothing when there is no style sheet (yet).
pub fn bundle(main: &Path) -> Result<Option<String>> {
    if !main.exists() {
        return Ok(None);
    }
    let mut css = String::new();
    for line in read(main)?.lines().map(str::trim) {
        match import(line)? {
            Some((name, layer)) => {
                let part = read(&main.with_file_name(name))?;
                if part.contains("@import") {
                    bail!(
                        "{name}: an @import inside an imported file would be lost; list it in main.css"
                    );
                }
                match layer {
                    Some(layer) => css.push_str(&format!("@layer {layer}{{\n{part}}}\n")),
                    None => css.push_str(&part),
                }
            }
            None => {
                css.push_str(line);
                css.push('\n');
            }
        }
    }
    Ok(Some(strip(&css)))
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// `@import url("a.css") layer(b);` and `@import "a.css";`, one a line.
fn import(line: &str) -> Result<Option<(&str, Option<&str>)>> {
    let Some(rest) = line.strip_prefix("@import") else {
        return Ok(None);
    };
    let mut parts = rest.trim().trim_end_matches(';').split_whitespace();
    let name = parts.next().unwrap_or_default();
    let name = name.strip_prefix("url(").and_then(|n| n.strip_suffix(')')).unwrap_or(name);
    let name = name.trim_matches(['"', '\'']);
    let layer = match parts.next() {
        None => None,
        Some(layer) => match layer.strip_prefix("layer(").and_then(|l| l.strip_suffix(')')) {
            Some(layer) => Some(layer),
            None => bail!("main.css: only layer(…) may follow an imported name: {line}"),
        },
    };
    if name.is_empty() || parts.next().is_some() {
        bail!("main.css: cannot read this import: {line}");
    }
    Ok(Some((name, layer)))
}

/// Without comments, indentation and empty lines; what is inside a string stays. Compression does the rest.
fn strip(css: &str) -> String {
    let mut plain = String::with_capacity(css.len());
    let mut quote = None;
    let mut chars = css.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, '/') if chars.peek() == Some(&'*') => {
                chars.next();
                let mut before = ' ';
                for c in chars.by_ref() {
                    if before == '*' && c == '/' {
                        break;
                    }
                    before = c;
                }
                // A comment separates like a space does.
                plain.push(' ');
                continue;
            }
            (None, '"' | '\'') => quote = Some(c),
            (Some(_), '\\') => {
                plain.push(c);
                plain.extend(chars.next());
                continue;
            }
            (Some(open), _) if c == open => quote = None,
            _ => {}
        }
        plain.push(c);
    }
    plain
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .flat_map(|line| [line, "\n"])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_read_in_the_forms_that_main_css_uses() {
        assert_eq!(
            import("@import url(\"a.css\") layer(base);").unwrap(),
            Some(("a.css", Some("base")))
        );
        assert_eq!(import("@import \"a.css\";").unwrap(), Some(("a.css", None)));
        assert_eq!(import("@layer a, b;").unwrap(), None);
        assert!(import("@import \"a.css\" screen;").is_err(), "a media query would be lost");
    }

    #[test]
    fn comments_go_and_strings_stay() {
        assert_eq!(strip("/* a */\n\n  b { c: d } /* e */\n"), "b { c: d }\n");
        assert_eq!(
            strip("a::before { content: \"/* no */\" }\n"),
            "a::before { content: \"/* no */\" }\n"
        );
        assert_eq!(strip("a { content: \"\\\"/*\" }\n"), "a { content: \"\\\"/*\" }\n");
    }
}
