//! A set of files by name, read from and written to directories.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Relative names with forward slashes, and contents; ordered, so that every run does the same.
#[derive(Default)]
pub struct Files(pub BTreeMap<String, Vec<u8>>);

impl Files {
    pub fn add(&mut self, name: impl Into<String>, content: Vec<u8>) {
        self.0.insert(name.into(), content);
    }

    /// Everything below `directory`; a directory that does not exist is empty. Hidden files are nobody's content.
    pub fn add_directory(&mut self, directory: &Path, prefix: &str) -> Result<()> {
        for (path, name) in list(directory)? {
            self.add(format!("{prefix}{name}"), read(&path)?);
        }
        Ok(())
    }

    /// Makes `directory` hold exactly these files. A file that is already right is not touched: its time is what a
    /// browser's cache is told.
    pub fn write(&self, directory: &Path) -> Result<()> {
        for (path, name) in list(directory)? {
            if !self.0.contains_key(&name) {
                std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
            }
        }
        for (name, content) in &self.0 {
            let path = directory.join(name);
            if std::fs::read(&path).is_ok_and(|now| now == *content) {
                continue;
            }
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            // Renamed into place: a server that runs meanwhile never reads half a file.
            let part = directory.join(format!("{name}.part"));
            std::fs::write(&part, content).with_context(|| part.display().to_string())?;
            std::fs::rename(&part, &path)?;
        }
        Ok(())
    }
}

pub fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}

/// Paths and relative names, in order.
pub fn list(directory: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    walk(directory, "", &mut found)?;
    found.sort();
    Ok(found)
}

fn walk(directory: &Path, prefix: &str, found: &mut Vec<(PathBuf, String)>) -> Result<()> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| directory.display().to_string()),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let name = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), &format!("{name}/"), found)?;
        } else {
            found.push((entry.path(), name));
        }
    }
    Ok(())
}
