//! The data folder and the key file.

use std::path::Path;

use crate::config::Config;
use crate::entropy::SystemEntropy;
use crate::finding::Finding;
use crate::keys::Keys;

/// Less free room than this and the next commits may fail.
const FREE_MIN: u64 = 100 << 20;
/// Less than this and somebody should know.
const FREE_LOW: u64 = 1 << 30;

pub(super) fn examine(config: &Config) -> Vec<Finding> {
    let folder = &config.server.data_dir;
    let shown = folder.display();
    let Ok(about) = std::fs::metadata(folder) else {
        return vec![Finding::warning(
            "files.data_dir",
            &format!("{shown} is not there yet"),
            "`sendonce serve` makes it; where it should exist, check server.data_dir",
        )];
    };
    if !about.is_dir() {
        let step = "name a folder in server.data_dir";
        return vec![Finding::bad("files.data_dir", &format!("{shown} is no folder"), step)];
    }
    let mut findings = vec![rights(folder, &about, "files.data_dir", 0o700)];
    findings.push(room(folder));
    findings.extend(keys(&config.key_file()));
    findings
}

/// Nobody but the owner reads it.
fn rights(path: &Path, about: &std::fs::Metadata, check: &str, wanted: u32) -> Finding {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let shown = path.display();
    let mode = about.permissions().mode() & 0o777;
    let own = rustix::process::geteuid().as_raw();
    // The keys have rights of their own. Others who may only look can read an embedded database, but change nothing.
    if about.is_dir() && mode & 0o077 != 0 && mode & 0o022 == 0 {
        Finding::warning(
            check,
            &format!("{shown} can be looked into by others ({mode:03o})"),
            &format!("chmod {wanted:03o} {shown}"),
        )
    } else if mode & 0o077 != 0 {
        Finding::bad(
            check,
            &format!("{shown} is open to others ({mode:03o})"),
            &format!("chmod {wanted:03o} {shown}"),
        )
    } else if about.uid() != own && own != 0 {
        Finding::bad(
            check,
            &format!("{shown} belongs to another user"),
            "run as the user of the service, or give it to them",
        )
    } else {
        Finding::good(check, &format!("{shown} is its owner's alone"))
    }
}

fn room(folder: &Path) -> Finding {
    let check = "files.disk";
    let Ok(about) = rustix::fs::statvfs(folder) else {
        let step = "check the file system of server.data_dir";
        return Finding::warning(check, "the free room cannot be read", step);
    };
    let free = about.f_bavail.saturating_mul(about.f_frsize);
    let what = format!("{} MB are free beside {}", free >> 20, folder.display());
    let step = "make room, or move server.data_dir to a larger disk";
    if free < FREE_MIN {
        Finding::bad(check, &what, step)
    } else if free < FREE_LOW {
        Finding::warning(check, &what, step)
    } else {
        Finding::good(check, &what)
    }
}

fn keys(path: &Path) -> Vec<Finding> {
    let Ok(about) = std::fs::metadata(path) else {
        return vec![Finding::warning(
            "keys.file",
            &format!("{} is not there", path.display()),
            "the first `sendonce serve` makes it; beside others, copy it from one of them first",
        )];
    };
    let readable = match Keys::load_or_create(path, &SystemEntropy) {
        Ok(_) => Finding::good("keys.file", "the key file is complete"),
        Err(error) => {
            Finding::bad("keys.file", &error.to_string(), "restore it from your backup of it")
        }
    };
    vec![rights(path, &about, "keys.rights", 0o600), readable]
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::entropy::Entropy as _;
    use crate::finding::Level;

    fn level(findings: &[Finding], check: &str) -> Option<Level> {
        findings.iter().find(|finding| finding.check == check).map(|finding| finding.level)
    }

    #[test]
    fn a_folder_that_others_can_change_or_a_key_file_that_they_can_read_is_bad() {
        let folder = std::env::temp_dir().join(format!("sendonce-doctor-{}", SystemEntropy.hex(8)));
        let text = format!("[server]\ndata_dir = {:?}", folder.display().to_string());
        let config = Config::parse("x", &text, std::iter::empty()).expect("reads");
        assert_eq!(level(&examine(&config), "files.data_dir"), Some(Level::Warning));
        std::fs::create_dir_all(&folder).expect("makes it");
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
        };
        open(&folder, 0o755);
        assert_eq!(level(&examine(&config), "files.data_dir"), Some(Level::Warning));
        open(&folder, 0o775);
        assert_eq!(level(&examine(&config), "files.data_dir"), Some(Level::Bad));
        assert_eq!(level(&examine(&config), "keys.file"), Some(Level::Warning));
        assert!(!config.key_file().exists(), "it makes nothing");
        open(&folder, 0o700);
        Keys::load_or_create(&config.key_file(), &SystemEntropy).expect("makes them");
        let good = examine(&config);
        assert_eq!(level(&good, "files.data_dir"), Some(Level::Good));
        assert_eq!(level(&good, "keys.rights"), Some(Level::Good));
        open(&config.key_file(), 0o644);
        assert_eq!(level(&examine(&config), "keys.rights"), Some(Level::Bad));
        std::fs::write(config.key_file(), "half").expect("writes");
        assert_eq!(level(&examine(&config), "keys.file"), Some(Level::Bad));
        let _ = std::fs::remove_dir_all(&folder);
    }
}
