//! The database, and what stands in it about processes, freezes and restores.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use app::model::{Stamp, WorkerView};

use crate::config::Config;
use crate::entropy::SystemEntropy;
use crate::finding::{Finding, Level};
use crate::keys::Keys;
use crate::node::{self, Seams};
use crate::store::{self, Env, Error, LEASE_SEMANTICS, Store};

/// How far the database's clock may be from ours before somebody should know: 1 s. Processes follow it.
const OFFSET_MAX: i64 = 1_000_000;

pub(super) async fn examine(config: &Config, seams: &Seams) -> Vec<Finding> {
    let url = config.database_url.expose();
    if !store::is_shared(url) && !file_of(url).is_some_and(Path::exists) {
        return vec![Finding::warning(
            "database.reach",
            "there is no database yet",
            "`sendonce serve` makes it; where it should exist, check DATABASE_URL",
        )];
    }
    let env = Env {
        clock: Arc::clone(&seams.clock),
        entropy: Arc::clone(&seams.entropy),
        keys: Arc::new(keys(config)),
        rules: Arc::new(node::rules(config, None)),
    };
    let store = match store::open(url, env).await {
        Ok(store) => store,
        Err(error) => return vec![unreachable(&error)],
    };
    let (engine, name) = store.describe();
    let mut findings = vec![Finding::good("database.reach", &format!("{engine}: {name}"))];
    match store.inspect().await {
        Ok(found) => findings.extend(found),
        Err(error) => findings.push(unreachable(&error)),
    }
    // What follows reads tables that only our own schema has.
    let is_ours = findings
        .iter()
        .any(|finding| finding.check == "database.schema" && finding.level == Level::Good);
    // Beside another process's keys it says no more than that.
    if !config.key_file().exists() {
        findings.retain(|finding| finding.check != "keys.match");
    }
    if is_ours {
        match contents(&*store, seams).await {
            Ok(found) => findings.extend(found),
            Err(error) => findings.push(unreachable(&error)),
        }
    }
    store.close().await;
    findings
}

/// The file of an embedded database's URL.
fn file_of(url: &str) -> Option<&Path> {
    let path = url.strip_prefix("sqlite:")?;
    let path = path.strip_prefix("//").unwrap_or(path);
    Some(Path::new(path.split('?').next().unwrap_or(path)))
}

/// The installation's keys; where there are none, some that are good for nothing and are not kept.
fn keys(config: &Config) -> Keys {
    let path = config.key_file();
    let kept = path.exists().then(|| Keys::load_or_create(&path, &SystemEntropy).ok()).flatten();
    kept.map_or_else(|| Keys::generate(&SystemEntropy), |(keys, _)| keys)
}

fn unreachable(error: &Error) -> Finding {
    Finding::bad(
        "database.reach",
        &error.to_string(),
        "check DATABASE_URL, that the server runs, and that the disk is not full",
    )
}

async fn contents(store: &dyn Store, seams: &Seams) -> Result<Vec<Finding>, Error> {
    let asked = seams.clock.now();
    let theirs = store.time().await?;
    let mut findings = vec![clock(theirs, asked, seams.clock.now())];
    let now = theirs.unwrap_or(asked);
    findings.extend(processes(&store.workers().await?, now));
    findings.push(freezes(&store.freezes().await?, now));
    findings.push(match store.epoch().await? {
        None => Finding::good("ledger.epoch", "this database was never restored"),
        Some(epoch) if now < epoch.guarded_until => Finding::warning(
            "ledger.epoch",
            &format!(
                "restored: until {} each new event is read before its first call",
                epoch.guarded_until
            ),
            "none; see docs/restore.md",
        ),
        Some(epoch) => {
            Finding::good("ledger.epoch", &format!("epoch {}, not guarded any more", epoch.epoch))
        }
    });
    let duplicates = store.gauges().await?.duplicate_calls;
    findings.push(if duplicates == 0 {
        Finding::good("ledger.duplicates", "no provider has reported a second message")
    } else {
        Finding::bad(
            "ledger.duplicates",
            &format!("{duplicates} reports of an attempt after a later call had started"),
            "open the events on /unknown; check the provider's settle, idempotent and window",
        )
    });
    Ok(findings)
}

fn clock(theirs: Option<Stamp>, before: Stamp, after: Stamp) -> Finding {
    let check = "database.clock";
    let Some(theirs) = theirs else {
        return Finding::good(check, "the machine's own clock is the only one");
    };
    let middle = before.plus(after.since(before) / 2);
    let offset = theirs.since(middle);
    let what = format!("the database's clock is {} ms from ours", offset / 1_000);
    if offset.abs() <= OFFSET_MAX {
        Finding::good(check, &what)
    } else {
        Finding::warning(
            check,
            &what,
            "processes follow the database's clock; set both by NTP all the same",
        )
    }
}

fn processes(workers: &[WorkerView], now: Stamp) -> Vec<Finding> {
    let alive: Vec<&WorkerView> =
        workers.iter().filter(|worker| now.since(worker.seen_at) <= node::ALIVE_WITHIN).collect();
    let check = "processes.alive";
    let Some(_) = alive.first() else {
        let step = "start `sendonce serve`";
        return vec![Finding::warning(check, "no process has given a sign of life", step)];
    };
    let mut findings = Vec::new();
    let roles: BTreeSet<&str> = alive.iter().flat_map(|worker| worker.roles.split(',')).collect();
    let missing: Vec<&str> =
        ["api", "dispatch", "reconcile"].into_iter().filter(|role| !roles.contains(role)).collect();
    findings.push(if missing.is_empty() {
        Finding::good(check, &format!("{} alive", alive.len()))
    } else {
        Finding::bad(
            check,
            &format!("{} alive, and none of them runs {}", alive.len(), missing.join(", ")),
            "start one with these roles",
        )
    });
    let versions: BTreeSet<(u32, &str)> =
        alive.iter().map(|worker| (worker.semantics, worker.version.as_str())).collect();
    let semantics: BTreeSet<u32> = versions.iter().map(|(semantics, _)| *semantics).collect();
    findings.push(if versions.len() > semantics.len() {
        Finding::bad(
            "processes.versions",
            "two versions own the same lease semantics",
            "end the older ones; see `sendonce workers`",
        )
    } else if semantics.iter().any(|semantics| *semantics > LEASE_SEMANTICS) {
        Finding::warning(
            "processes.versions",
            "newer processes run with lease semantics that this program does not understand",
            "use the newer program here too",
        )
    } else {
        Finding::good("processes.versions", "no two versions own the same lease semantics")
    });
    findings
}

fn freezes(freezes: &[app::model::Freeze], now: Stamp) -> Finding {
    let check = "ledger.freezes";
    let scopes: Vec<&str> = freezes.iter().map(|freeze| freeze.scope.as_str()).collect();
    if scopes.is_empty() {
        return Finding::good(check, "nothing is frozen");
    }
    let is_overdue = freezes.iter().any(|freeze| freeze.review_at.is_some_and(|at| at <= now));
    let overdue = if is_overdue { ", and the review is overdue" } else { "" };
    Finding::warning(
        check,
        &format!("frozen: {}{overdue}", scopes.join(", ")),
        "see `sendonce freezes`; reopen with `sendonce unfreeze`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Stamp {
        Stamp::from_micros(1_790_000_000_000_000 + seconds * 1_000_000)
    }

    fn worker(version: &str, semantics: u32, roles: &str, seen: i64) -> WorkerView {
        WorkerView {
            id: "w".into(),
            version: version.into(),
            semantics,
            roles: roles.into(),
            started_at: at(0),
            seen_at: at(seen),
        }
    }

    fn worst(findings: &[Finding]) -> Option<Level> {
        findings.iter().map(|finding| finding.level).max()
    }

    #[test]
    fn processes_are_good_only_where_every_part_runs_in_one_version() {
        let all = "api,dispatch,reconcile,ui";
        let of = |workers: &[WorkerView]| worst(&processes(workers, at(100)));
        assert_eq!(of(&[]), Some(Level::Warning));
        assert_eq!(of(&[worker("1", 1, all, 10)]), Some(Level::Warning), "long silent");
        assert_eq!(of(&[worker("1", 1, all, 99)]), Some(Level::Good));
        assert_eq!(of(&[worker("1", 1, "api,ui", 99)]), Some(Level::Bad));
        let split = [worker("1", 1, "api", 99), worker("1", 1, "dispatch,reconcile", 99)];
        assert_eq!(of(&split), Some(Level::Good));
        let two = [worker("1", 1, all, 99), worker("2", 1, all, 99)];
        assert_eq!(of(&two), Some(Level::Bad));
        let newer = [worker("1", 1, all, 99), worker("2", 2, all, 99)];
        assert_eq!(of(&newer), Some(Level::Warning));
    }

    #[test]
    fn a_clock_that_is_off_is_named_with_its_offset() {
        assert_eq!(clock(None, at(0), at(0)).level, Level::Good);
        assert_eq!(clock(Some(at(1)), at(0), at(2)).level, Level::Good);
        let off = clock(Some(at(90)), at(0), at(0));
        assert_eq!(off.level, Level::Warning);
        assert!(off.what.contains("90000 ms"), "{}", off.what);
    }

    #[test]
    fn the_file_of_a_url_is_found_without_its_options() {
        assert_eq!(file_of("sqlite:///a/b.db?mode=rw"), Some(Path::new("/a/b.db")));
        assert_eq!(file_of("sqlite://data/x.db"), Some(Path::new("data/x.db")));
        assert_eq!(file_of("postgres://x"), None);
    }
}
