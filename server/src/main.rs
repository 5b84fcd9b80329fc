//! The binary: arguments, configuration, telemetry, build, run, exit code.

use std::process::ExitCode;

use server::cli::{self, Out, Terminal};
use server::host::System;

fn main() -> ExitCode {
    let cli = cli::parse();
    let mut out = Out::process();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let error =
                cli::CliError::failed(&error.to_string(), "check the limits of this process");
            return cli::report(Err(error), &mut out);
        }
    };
    let done = runtime.block_on(cli::run(&cli, &System, &mut Terminal, &mut out));
    cli::report(done, &mut out)
}
