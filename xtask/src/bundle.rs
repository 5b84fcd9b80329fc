//! The WASM bundle: compile `app` for the browser, then write the JavaScript that loads it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use wasm_bindgen_cli_support::Bindgen;

use crate::tree::Files;

const TARGET: &str = "wasm32-unknown-unknown";
/// The server renders with the same cfg. Given here too, because a RUSTFLAGS in the environment hides the configured one
/// and the pages would then not hydrate.
const FLAGS: &[&str] = &["--cfg", "erase_components", "--check-cfg", "cfg(erase_components)"];

/// Which cargo builds for wasm32. Written by `scripts/setup.sh` as `NAME=value` lines where it is not the default one.
pub struct Toolchain {
    variables: Vec<(String, String)>,
}

impl Toolchain {
    pub fn read(target: &Path) -> Result<Self> {
        let path = target.join("setup/wasm-toolchain");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        let variables = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(k, v)| (k.into(), v.into()))
            .collect();
        Ok(Self { variables })
    }

    /// For the stamp: another toolchain is another bundle.
    pub fn describe(&self) -> String {
        self.variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
    }

    fn cargo(&self) -> Command {
        let own = self.variables.iter().find(|(name, _)| name == "CARGO");
        let default = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let mut cargo = Command::new(own.map_or(&default, |(_, path)| path));
        // What the outer cargo told this program about itself must not reach the inner one: it would rebuild for it.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_")
                || text.starts_with("CARGO_MANIFEST_")
                || (own.is_some() && text == "RUSTUP_TOOLCHAIN")
            {
                cargo.env_remove(&name);
            }
        }
        cargo.envs(self.variables.iter().filter(|(name, _)| name != "CARGO").cloned());
        cargo
    }
}

pub fn build(
    root: &Path,
    target: &Path,
    profile: &str,
    toolchain: &Toolchain,
    files: &mut Files,
) -> Result<()> {
    let wasm = compile(root, &target.join("wasm"), profile, toolchain)?;
    let out = target.join("wasm/bindgen");
    // Left-overs would be taken for output.
    match std::fs::remove_dir_all(&out) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    // Leptos asks for these two names unless LEPTOS_OUTPUT_NAME was set when the server was compiled.
    Bindgen::new()
        .input_path(&wasm)
        .out_name("sendonce")
        .web(true)?
        .typescript(false)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate(&out)
        .context("wasm-bindgen")?;
    files.add_directory(&out, "pkg/")
}

/// A target directory of its own: another profile and another target, and a build of the server must not wait for its lock.
fn compile(root: &Path, directory: &Path, profile: &str, toolchain: &Toolchain) -> Result<PathBuf> {
    let status = toolchain
        .cargo()
        .current_dir(root)
        .args([
            "build",
            "--package",
            "app",
            "--lib",
            "--no-default-features",
            "--features",
            "hydrate",
        ])
        .args(["--target", TARGET, "--profile", profile, "--target-dir"])
        .arg(directory)
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"))
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!(
            "the bundle does not compile; where the target {TARGET} is missing, run scripts/setup.sh"
        );
    }
    // The one profile whose directory is not its name.
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(directory.join(TARGET).join(folder).join("app.wasm"))
}
