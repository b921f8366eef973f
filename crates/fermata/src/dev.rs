//! `fermata dev`: a server to play with. The bundled examples, or a folder whose documents are published again
//! whenever they change.

mod examples;
mod folder;
mod publish;

use crate::{
    cli::{self, Usage},
    config::{Config, Given},
    playground::{HOST, Playground},
    serve::{self, Running},
};
use anyhow::Context;
use clap::Args;
use fermata_runtime::Role;
use folder::Folder;
use std::{path::PathBuf, process::ExitCode, time::Instant};

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata dev                                    the bundled examples, published and run once
  fermata dev workflows/                         your documents, published again at every change
  fermata dev --reset                            the same from the beginning: the dev database is deleted first

A broken edit keeps the last good version. Documents may call private addresses, which a server refuses by default, and
http://playground.localhost, a small echo and fault service that is part of this program and works offline.

Exit codes: as `fermata serve`.";

const DATABASE: &str = "sqlite:.fermata/dev.db";

/// What `fermata dev` takes.
#[derive(Debug, Args)]
pub struct DevArgs {
    /// A folder of documents to serve instead of the examples.
    dir: Option<PathBuf>,
    /// Where to listen; port 0 takes a free one and prints it [default: 127.0.0.1:7070].
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Where runs live: `sqlite:PATH`, `postgres://…` or `memory:` [default: sqlite:.fermata/dev.db].
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Delete the database first, if nobody uses it.
    #[arg(long)]
    reset: bool,
}

impl DevArgs {
    /// What is different here from a server that others use.
    pub fn presets(&self, given: Given) -> Given {
        given
            .preset("database.url", DATABASE)
            .preset("log.level", "warn")
            .preset("http.allow_private_networks", true)
            .flag("--listen", "server.listen", self.listen.clone())
            .flag("--database", "database.url", self.database.clone())
    }
}

/// Serves until a signal comes.
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
    let running = Running::start(&config, &http).await?;
    let (engine, url) = (running.engine.clone(), running.url.clone().unwrap_or_default());
    let company = match args.dir {
        None => {
            let samples = examples::offer(&engine).await?;
            let names: Vec<String> = samples.iter().map(|sample| sample.workflow.clone()).collect();
            serve::announce(&config, Some(&url), began);
            let tries = format!(
                "\n  curl -sX POST '{url}/api/v1/workflows/checkout-flow/trigger' -H 'content-type: application/json' \
                 -d '{{\"order_id\": 7, \"amount\": 42, \"payment\": \"declined\"}}'"
            );
            cli::say(guide(&config, &url, &names, "the examples", "onboard-project", &tries));
            tokio::spawn(examples::tell(engine, samples))
        }
        Some(dir) => {
            let mut folder = Folder::new(dir.clone(), engine);
            let names = folder.open().await?;
            serve::announce(&config, Some(&url), began);
            let what = format!("{}, published again at every change", dir.display());
            let first = names.first().map_or("ID", String::as_str);
            cli::say(guide(&config, &url, &names, &what, first, ""));
            tokio::spawn(folder.watch())
        }
    };
    let ended = running.until_told().await;
    company.abort();
    ended
}

/// Where things are and what to try, in lines that can be copied.
fn guide(config: &Config, url: &str, workflows: &[String], what: &str, first: &str, tries: &str) -> String {
    let workflows = match workflows.is_empty() {
        true => "none yet".to_owned(),
        false => workflows.join(", "),
    };
    let place = config.database.url.place();
    // As it was called, so that the lines can be copied also where it is not installed.
    let program = std::env::args().next().unwrap_or_else(|| "fermata".to_owned());
    // The usual address need not be told to commands that look there anyway.
    let server = match url {
        "http://127.0.0.1:7070" => String::new(),
        url => format!(" --server {url}"),
    };
    format!(
        "
  API        {url}/api/v1
  data       {place}
  serving    {what}
  workflows  {workflows}
  to call    http://{HOST}/ (in documents only)

Try:
  curl -sX POST '{url}/api/v1/workflows/{first}/execute?wait=30s' -H 'content-type: application/json' -d '{{\"trigger\": {{}}}}'{tries}
  {program} executions list{server}
  {program} workflows get {first} --definition{server} | {program} run -

Ctrl-C stops it; nothing is lost. `{program} dev --reset` begins anew.
"
    )
}
