//! The words that the browser and the server share: states, reasons, records, facts, roles.
//!
//! Pure serde types. Nothing here reads a clock, opens a connection or knows a table. The spelling of
//! each word is public interface: it is what the API answers, the database keeps and the pages show.

mod pages;
mod people;
mod record;
mod roles;
mod stamp;
mod watch;
mod words;

pub use pages::*;
pub use people::*;
pub use record::*;
pub use roles::*;
pub use stamp::*;
pub use watch::*;
pub use words::*;
