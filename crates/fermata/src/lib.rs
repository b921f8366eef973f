//! The `fermata` command: configuration, wiring and the command line.
//!
//! It is a library, so that it is built beside the crates that it uses: the binary is only linked.

mod bench;
mod cli;
mod client;
mod config;
mod dev;
mod duration;
mod eval;
mod excerpt;
mod graph;
mod input;
mod log;
mod migrate;
mod playground;
mod prune;
mod run;
mod serve;
mod signals;
mod table;
mod telemetry;
mod transfer;
mod validate;
mod when;

/// Runs the command that the arguments of this process name.
pub fn main() -> std::process::ExitCode {
    fermata_runtime::tls::install_provider();
    cli::main()
}
