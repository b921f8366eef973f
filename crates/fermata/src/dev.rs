//! `fermata dev`: a server for development. It serves the bundled examples, or a folder whose documents are published
//! again whenever they change, and shows runs as they happen.

mod examples;
mod folder;
mod guide;
mod publish;
mod runs;
mod sample;

pub use publish::publish;

use crate::{
    cli::{self, Usage},
    config::{Config, Given},
    playground::Playground,
    serve::{self, Running},
};
use anyhow::Context;
use clap::Args;
use fermata_runtime::Role;
use folder::Folder;
use guide::Guide;
use serde_json::json;
use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Instant};

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata dev                                    the bundled examples, published and run once
  fermata dev workflows/                         your documents, published again at every change
  fermata dev workflows/ --reset                 delete the dev database first

Runs are shown as they start and end. A document with errors is not published; its last good version stays active.
Documents may call private addresses, which `serve` refuses by default, and http://playground.localhost, an echo and
fault service that is part of this program and works offline.

Exit codes: as `fermata serve`.";

const DATABASE: &str = "sqlite:.fermata/dev.db";

/// The arguments of `fermata dev`.
#[derive(Debug, Args)]
pub struct DevArgs {
    /// A folder of documents to serve instead of the examples.
    dir: Option<PathBuf>,
    /// The address to listen on; port 0 takes a free port and prints it [default: 127.0.0.1:7070].
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// The database: `sqlite:PATH`, `postgres://…` or `memory:` [default: sqlite:.fermata/dev.db].
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Delete the database first; refused while a process uses it.
    #[arg(long)]
    reset: bool,
}

impl DevArgs {
    /// The defaults that differ from those of `serve`.
    pub fn presets(&self, given: Given) -> Given {
        given
            .preset("database.url", DATABASE)
            .preset("log.level", "warn")
            .preset("http.allow_private_networks", true)
            .flag("--listen", "server.listen", self.listen.clone())
            .flag("--database", "database.url", self.database.clone())
    }
}

/// Runs the command.
pub async fn dev(args: DevArgs, mut config: Config, began: Instant) -> anyhow::Result<ExitCode> {
    config.server.role = Role::All;
    if let Some(dir) = args.dir.as_ref().filter(|dir| !dir.is_dir()) {
        return Err(Usage(format!("{} is not a folder", dir.display())).into());
    }
    if args.reset && config.database.url.delete()? {
        cli::say(format_args!("deleted {}", config.database.url.place()));
    }
    let playground = Playground::open().await.context("the playground cannot be opened")?;
    let mut http = config.http();
    playground.stand_in(&mut http);
    let (observer, runs) = runs::channel();
    let running = Running::start(&config, &http, Some(Arc::new(observer))).await?;
    let (engine, url) = (running.engine.clone(), running.url.clone().unwrap_or_default());
    let mut guide = Guide::new(&url, config.database.url.place(), &args);
    let background = match args.dir {
        None => {
            let samples = examples::offer(&engine).await?;
            guide.workflows = samples.iter().map(|sample| sample.workflow.clone()).collect();
            guide.serving = "the examples".to_owned();
            guide.execute("onboard-project", &json!({}));
            guide.trigger(
                "checkout-flow",
                &json!({ "order_id": 7, "amount": 42, "payment": "declined" }),
            );
            guide.triggers(&engine).await?;
            serve::announce(&config, Some(&url), began);
            cli::say(guide);
            tokio::spawn(examples::summarise(engine.clone(), samples))
        }
        Some(dir) => {
            let mut folder = Folder::new(dir.clone(), engine.clone());
            let found = folder.open().await?;
            guide.workflows = found.iter().map(|(id, _)| id.clone()).collect();
            guide.serving = format!("{}, published again at every change", dir.display());
            if let Some((id, trigger)) = found.first() {
                guide.execute(id, trigger);
            }
            guide.triggers(&engine).await?;
            serve::announce(&config, Some(&url), began);
            cli::say(guide);
            tokio::spawn(folder.watch())
        }
    };
    // Started last, so that lines about runs come after the guide.
    let lines = tokio::spawn(runs.write(engine));
    let ended = running.until_signal().await;
    background.abort();
    lines.abort();
    ended
}
