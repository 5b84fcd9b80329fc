//! One file per page: pure functions from plain data to a complete HTML document.
//!
//! The server authorises, loads the data and calls one of these. No page reads a clock, a cookie or a
//! database, and none of it is shipped to the browser. Everything works without script: links, plain forms
//! (`method=post`, hidden `csrf`), `<details>`. Regions with `data-live` are what the [`Live`] island keeps
//! current. A form inside one keeps what is being typed, because its markup does not change; a form that was
//! refused carries what was typed in its markup, so its page is not live at all.
//!
//! [`Live`]: crate::islands::Live

mod account;
mod admin;
mod alerts;
mod capacity;
mod event;
mod events;
mod evidence;
mod facts;
mod freeze;
mod health;
mod log;
mod login;
mod lookup;
mod overview;
mod policy;
mod refusal;
mod runbook;
mod seller;
mod slo;
mod unknown;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

pub use account::account;
pub use admin::{clients, config, users};
pub use alerts::alerts;
pub use capacity::capacity;
pub use event::event;
pub use events::events;
pub use evidence::evidence;
pub use facts::{authority_text, detail_pair, fact_icon, fact_text, fact_title};
pub use freeze::freeze;
pub use health::{providers, workers};
pub use log::{act_text, log};
pub use login::{login, setup};
pub use lookup::lookup;
pub use overview::overview;
pub use policy::policy;
pub use refusal::{refusal, refusal_signed_out};
pub use runbook::runbook;
pub use seller::seller;
pub use slo::slo;
pub use unknown::unknown;
