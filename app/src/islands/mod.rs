//! The only code that is shipped as WASM. Everything else on a page is HTML from the server and works without it.

mod live;

pub use live::Live;
