//! The browser bundle, and the words that browser and server share.

#[cfg(not(erase_components))]
compile_error!(
    "build with `--cfg erase_components` (see .cargo/config.toml): server and browser must agree on it"
);
#[cfg(all(feature = "hydrate", feature = "ssr"))]
compile_error!("`hydrate` is the browser, `ssr` the server: never both");

#[cfg(feature = "ssr")]
pub mod components;
pub mod islands;
pub mod model;
#[cfg(feature = "ssr")]
pub mod pages;

/// Called by the page once the bundle has loaded; the islands in it are then woken one by one.
#[cfg(feature = "hydrate")]
#[wasm_bindgen::prelude::wasm_bindgen]
pub fn hydrate() {
    leptos::mount::hydrate_islands();
}
