//! Whether there is anything to do: one number over everything that the site is made from, and one over the site.
//!
//! Contents, not times: a checkout or a rebase touches every file and changes none.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use anyhow::{Context, Result};

use crate::bundle::Toolchain;
use crate::tree::{list, read};

const DIRECTORIES: &[&str] = &["app", "style", "public", "xtask"];
const FILES: &[&str] = &["Cargo.toml", "Cargo.lock", ".cargo/config.toml"];

pub fn of(root: &Path, profile: &str, toolchain: &Toolchain) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    (profile, toolchain.describe()).hash(&mut hasher);
    for directory in DIRECTORIES {
        hash_directory(&root.join(directory), &mut hasher)?;
    }
    for file in FILES {
        read(&root.join(file))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn of_site(site: &Path) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    hash_directory(site, &mut hasher)?;
    Ok(format!("{:016x}", hasher.finish()))
}

fn hash_directory(directory: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    for (path, name) in list(directory)? {
        (name, read(&path)?).hash(hasher);
    }
    Ok(())
}

pub fn is_current(stamp: &Path, site: &Path, inputs: &str) -> Result<bool> {
    let Ok(known) = std::fs::read_to_string(stamp) else {
        return Ok(false);
    };
    Ok(known == format!("{inputs} {}\n", of_site(site)?))
}

pub fn forget(stamp: &Path) -> Result<()> {
    match std::fs::remove_file(stamp) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| stamp.display().to_string())
        }
        _ => Ok(()),
    }
}

pub fn write(stamp: &Path, site: &Path, inputs: &str) -> Result<()> {
    std::fs::write(stamp, format!("{inputs} {}\n", of_site(site)?))
        .with_context(|| stamp.display().to_string())
}
