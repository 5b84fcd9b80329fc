//! Logs of the process. Logs go to standard error: standard output belongs to the command.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::config;

/// Starts logging. A second call in one process changes nothing.
pub fn init_logs(log: &config::Log) {
    let filter = EnvFilter::try_new(&log.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_span_events(FmtSpan::NONE)
        .with_target(false);
    let _ =
        if log.json { builder.json().flatten_event(true).try_init() } else { builder.try_init() };
}
