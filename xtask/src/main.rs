//! `cargo xtask site` builds what the browser loads into `target/site`: the bundle (`pkg/sendonce.js`,
//! `pkg/sendonce_bg.wasm`), the style sheet (`pkg/sendonce.css`) and the files of `public/`, each with `.br` and `.gz`
//! beside it.
//!
//! Plain steps, with libraries in place of tools, because a new checkout should need nothing but cargo: compile for
//! wasm32, bind, bundle the style, compress, check the size.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a build tool: it prints, and times itself"
)]

mod bundle;
mod compress;
mod stamp;
mod style;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// What a visitor's browser has to fetch before an island lives, compressed. Over it, the build fails.
const SCRIPT_BYTES_MAX: u64 = 100_000;
const SITE_BYTES_MAX: u64 = 150_000;

const USAGE: &str = "usage: cargo xtask site [--profile NAME]

Builds target/site. Does nothing when neither the sources nor the result have changed.
  --profile NAME   cargo profile of the bundle (default: wasm)";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["site"] => site("wasm"),
        ["site", "--profile", profile] => site(profile),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => bail!("{USAGE}"),
    }
}

/// The workspace, wherever it is called from.
fn root() -> Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_owned)
        .context("xtask has no parent directory")
}

fn site(profile: &str) -> Result<()> {
    let started = Instant::now();
    let root = root()?;
    let target = root.join("target");
    let (site, stamp) = (target.join("site"), target.join("site.stamp"));

    let toolchain = bundle::Toolchain::read(&target)?;
    let inputs = stamp::of(&root, profile, &toolchain)?;
    if stamp::is_current(&stamp, &site, &inputs)? {
        println!("site: up to date ({:.2} s)", started.elapsed().as_secs_f32());
        return Ok(());
    }
    // Should this run be interrupted, the next one must not take its remains for a result.
    stamp::forget(&stamp)?;

    let mut files = tree::Files::default();
    files.add_directory(&root.join("public"), "")?;
    if let Some(css) = style::bundle(&root.join("style/main.css"))? {
        files.add("pkg/sendonce.css", css.into_bytes());
    }
    bundle::build(&root, &target, profile, &toolchain, &mut files)?;
    let sizes = compress::beside(&mut files)?;
    files.write(&site)?;

    report(&sizes, started);
    check_budget(&sizes)?;
    stamp::write(&stamp, &site, &inputs)
}

fn report(sizes: &[compress::Size], started: Instant) {
    for size in sizes {
        println!("{:>9} B  {:>9} B br  {}", size.plain, size.brotli, size.name);
    }
    println!("site: {:.1} s", started.elapsed().as_secs_f32());
}

fn check_budget(sizes: &[compress::Size]) -> Result<()> {
    let sum = |endings: &[&str]| -> u64 {
        sizes.iter().filter(|s| endings.iter().any(|e| s.name.ends_with(e))).map(|s| s.brotli).sum()
    };
    let (script, all) = (sum(&[".js", ".wasm"]), sum(&[".js", ".wasm", ".css"]));
    println!(
        "budget: JS + WASM {script} of {SCRIPT_BYTES_MAX} B, with CSS {all} of {SITE_BYTES_MAX} B (brotli)"
    );
    if script > SCRIPT_BYTES_MAX || all > SITE_BYTES_MAX {
        bail!(
            "over the size budget: move code out of app/src/islands, or raise the limit in xtask on purpose"
        );
    }
    Ok(())
}
