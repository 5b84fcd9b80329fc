//! Small, static parts that every page is made of. Server only: none of it is shipped to the browser.
//!
//! Each part is a plain function from data to HTML. What it draws works without script; copy buttons and
//! the like, which need it, are marked `needs-script` and hidden where script is off.

mod chart;
mod icons;
mod parts;
mod shell;
mod text;
mod time;

pub use chart::{Column, columns};
pub use icons::{icon, sprite};
pub use parts::*;
pub use shell::{Layout, document, head, page, scope_words};
pub(crate) use shell::{environment, theme_switch};
pub use text::*;
pub use time::*;
