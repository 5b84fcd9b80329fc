//! `sendonce workers`

use std::collections::{BTreeMap, BTreeSet};

use app::model::WorkerView;

use super::{Admin, CliError, Out};

/// How to show them.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:\n  sendonce workers\n\n\
                        Exit code 1 when two versions own the same lease semantics: end the older one first.")]
pub struct Args {
    /// As JSON, for machines.
    #[arg(long)]
    pub json: bool,
}

/// Shows the processes, and whether no two versions own the same lease semantics.
///
/// # Errors
/// With exit code 1 when two versions do.
pub async fn run(args: &Args, admin: &dyn Admin, out: &mut Out) -> Result<(), CliError> {
    let workers = admin.workers().await?;
    if args.json {
        out.json(&workers)?;
    } else if workers.is_empty() {
        out.note("no process has signed life in the last day; start one with `sendonce serve`")?;
    } else {
        let rows: Vec<Vec<String>> = workers
            .iter()
            .map(|worker| {
                vec![
                    worker.id.clone(),
                    worker.version.clone(),
                    worker.semantics.to_string(),
                    worker.roles.clone(),
                    worker.started_at.to_string(),
                    worker.seen_at.to_string(),
                ]
            })
            .collect();
        let names = ["id", "version", "semantics", "roles", "started (UTC)", "seen (UTC)"];
        out.table(&names, &rows)?;
    }
    let shared = shared_semantics(&workers);
    match shared.first() {
        None => out.note("no two versions own the same lease semantics"),
        Some((semantics, versions)) => Err(CliError::failed(
            &format!(
                "the versions {} both own the lease semantics {semantics}",
                versions.join(" and ")
            ),
            "end the processes of one of them",
        )),
    }
}

/// Lease semantics that more than one version owns.
fn shared_semantics(workers: &[WorkerView]) -> Vec<(u32, Vec<String>)> {
    let mut owners: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for worker in workers {
        owners.entry(worker.semantics).or_default().insert(&worker.version);
    }
    owners
        .into_iter()
        .filter(|(_, versions)| versions.len() > 1)
        .map(|(semantics, versions)| (semantics, versions.into_iter().map(str::to_owned).collect()))
        .collect()
}

#[cfg(test)]
mod tests {
    use app::model::{Stamp, WorkerView};

    use super::shared_semantics;

    fn worker(version: &str, semantics: u32) -> WorkerView {
        let at = Stamp::from_micros(0);
        WorkerView {
            id: "w".into(),
            version: version.into(),
            semantics,
            roles: "dispatch".into(),
            started_at: at,
            seen_at: at,
        }
    }

    #[test]
    fn two_versions_may_not_own_the_same_semantics() {
        let fine = [worker("1.0", 1), worker("1.0", 1), worker("1.1", 2)];
        assert!(shared_semantics(&fine).is_empty());
        let both = [worker("1.0", 1), worker("1.1", 1)];
        assert_eq!(shared_semantics(&both), [(1, vec!["1.0".to_owned(), "1.1".to_owned()])]);
    }
}
