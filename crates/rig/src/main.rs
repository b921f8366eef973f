//! `rig`: the fault rig as a command, for people who work on Fermata.

use anyhow::Context;
use clap::{Parser, Subcommand};
use fermata_rig::chaos::{Options, chaos};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};
use tokio::signal::unix::{SignalKind, signal};

const CHAOS_HELP: &str = "\
Examples:
  rig chaos --seconds 60
  rig chaos --seed 7 --seconds 300 --json
  rig chaos --only stop,kill --seconds 60

It needs the programs of PostgreSQL (Debian: apt-get install postgresql) and starts its own servers with them.

Exit codes: 0 no violation, 1 a violation was found or the rig could not run, 2 wrong arguments, 130 or 143 on a signal.";

#[derive(Debug, Parser)]
#[command(
    name = "rig",
    about = "Tools for people who work on Fermata",
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Cause faults around real processes under load, then check that no promise was broken.
    #[command(after_help = CHAOS_HELP)]
    Chaos {
        #[command(flatten)]
        options: Options,
        /// The `fermata` binary to test [default: the one in the folder of this binary].
        #[arg(long, value_name = "PATH")]
        fermata: Option<PathBuf>,
        /// Print one JSON object instead of a table.
        #[arg(long)]
        json: bool,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let Command::Chaos { options, fermata, json } = Cli::parse().command;
    match run(&options, fermata, json).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("rig: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options, fermata: Option<PathBuf>, json: bool) -> anyhow::Result<ExitCode> {
    let fermata = match fermata {
        Some(path) => path,
        None => beside_this_binary()?,
    };
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let report = tokio::select! {
        biased;
        _ = interrupt.recv() => return Ok(ExitCode::from(130)),
        _ = terminate.recv() => return Ok(ExitCode::from(143)),
        report = chaos(options, &fermata) => report?,
    };
    match json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{}", report.text()),
    }
    Ok(match report.violations.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn beside_this_binary() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?;
    let path = path.parent().unwrap_or(Path::new(".")).join("fermata");
    anyhow::ensure!(
        path.is_file(),
        "{} does not exist: build it (cargo build --release --bin fermata) or name it with --fermata",
        path.display()
    );
    path.canonicalize().context("the path of fermata")
}
