//! The `fermata` command.

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

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    fermata_runtime::tls::install_provider();
    cli::main()
}
