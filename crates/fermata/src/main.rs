//! The `fermata` command.

mod bench;
mod cli;
mod config;
mod duration;
mod input;
mod run;
mod serve;
mod signals;
mod validate;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::main()
}
