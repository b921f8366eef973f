//! The command line: arguments in, exit code out.
//!
//! Errors of the libraries arrive here as `anyhow` and leave as lines on stderr.

use crate::{
    bench, client,
    config::{self, Config, Given},
    dev, eval, graph, migrate, prune, run, serve, signals, transfer, validate,
};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use std::{
    fmt::Display,
    future::Future,
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::Instant,
};

/// The exit code for a wrong call: arguments, input, document or configuration.
pub const USAGE: u8 = 2;

const ROOT_HELP: &str = "\
Examples:
  fermata dev                                    a development server with examples, data in .fermata/dev.db
  fermata serve                                  a server on 127.0.0.1:7070, data in fermata.db
  fermata run hello.json --input name=Ada        run a document in this process, without a server
  fermata validate workflows/                    check documents and report all problems
  fermata executions list                        list the runs of a server

Configuration: defaults, then --config FILE (TOML), then FERMATA_<SECTION>__<KEY> variables, then flags.";

/// A durable workflow engine: runs workflows written in JSON or YAML, and continues them after a crash.
#[derive(Debug, Parser)]
#[command(name = "fermata", version, after_help = ROOT_HELP, arg_required_else_help = true)]
struct Cli {
    /// A configuration file (TOML).
    #[arg(long, value_name = "FILE", env = "FERMATA_CONFIG", global = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a development server with examples, or with a folder that is republished on change.
    #[command(after_help = dev::HELP)]
    Dev(dev::DevArgs),
    /// Start a server: the HTTP API and the engine.
    #[command(after_help = serve::HELP)]
    Serve(ServeArgs),
    /// Show, apply or undo migrations of a database schema.
    #[command(after_help = migrate::HELP)]
    Migrate(migrate::MigrateArgs),
    /// Run a document to its end in this process, without a server.
    #[command(after_help = run::HELP)]
    Run(run::RunArgs),
    /// Check documents and report all problems.
    #[command(after_help = validate::HELP)]
    Validate(validate::ValidateArgs),
    /// Draw a document as a graph.
    #[command(after_help = graph::HELP)]
    Graph(graph::GraphArgs),
    /// Print the JSON Schema of a dialect.
    Schema {
        /// The dialect.
        #[arg(value_enum, default_value_t = Schema::Dataworkflows)]
        dialect: Schema,
    },
    /// Evaluate an expression or a template.
    #[command(after_help = eval::HELP)]
    Eval(eval::EvalArgs),
    /// List, show, follow, steer and repeat runs on a server.
    #[command(after_help = client::EXECUTIONS_HELP)]
    Executions(client::ExecutionsArgs),
    /// List, show, publish, start, roll back, disable, archive and delete workflows on a server.
    #[command(after_help = client::WORKFLOWS_HELP)]
    Workflows(client::WorkflowsArgs),
    /// Create, list, change and fire triggers, and look at their deliveries.
    #[command(after_help = client::TRIGGERS_HELP)]
    Triggers(client::TriggersArgs),
    /// Publish events, which start the workflows whose triggers they match.
    #[command(after_help = client::EVENTS_HELP)]
    Events(client::EventsArgs),
    /// List, show and answer requests that wait for a person.
    #[command(after_help = client::APPROVALS_HELP)]
    Approvals(client::ApprovalsArgs),
    /// List, requeue and delete dead-lettered runs.
    #[command(after_help = client::DEAD_LETTERS_HELP)]
    DeadLetters(client::DeadLettersArgs),
    /// Cancel, rerun, pause, resume or delete many runs as one job.
    #[command(after_help = client::BULK_HELP)]
    Bulk(client::BulkArgs),
    /// List the processes (runners) that execute runs.
    #[command(after_help = client::RUNNERS_HELP)]
    Runners(client::RunnersArgs),
    /// Show numbers of runs: counts, success rate, durations.
    #[command(after_help = client::STATS_HELP)]
    Stats(client::StatsArgs),
    /// Create, list and revoke API keys.
    #[command(after_help = client::KEYS_HELP)]
    Keys(client::KeysArgs),
    /// Show who changed what, when and from where.
    #[command(after_help = client::AUDIT_HELP)]
    Audit(client::AuditArgs),
    /// Move all data from one database to another, such as from SQLite to PostgreSQL.
    #[command(after_help = transfer::HELP)]
    Transfer(transfer::TransferArgs),
    /// Remove finished runs that the configuration does not keep, or count them.
    #[command(after_help = prune::HELP)]
    Prune(prune::PruneArgs),
    /// The sandbox process for conditions; the server starts it.
    #[command(hide = true)]
    Sandbox,
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Measure the throughput of this machine, next to the limit of its disk.
    Bench(bench::BenchArgs),
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Schema {
    Dataworkflows,
    Runlater,
    Jsondagapi,
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// The address to listen on; port 0 takes a free port and prints it [default: 127.0.0.1:7070].
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// The database: `sqlite:PATH`, `postgres://user:password@host/database` or `memory:` [default: sqlite:fermata.db].
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// What this process does: `all`, or with PostgreSQL also `api` or `runner` [default: all].
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
}

/// How results are shown.
#[derive(Debug, Clone, Copy, Args)]
pub struct Output {
    /// How to show results: `table` for people, `json` for programs.
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t = Format::Table, global = true)]
    output: Format,
    /// The same as `--output json`.
    #[arg(long, global = true)]
    json: bool,
}

/// How results are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables and lines.
    Table,
    /// One JSON value.
    Json,
}

impl Output {
    pub fn format(self) -> Format {
        match self.json {
            true => Format::Json,
            false => self.output,
        }
    }

    pub fn is_json(self) -> bool {
        self.format() == Format::Json
    }
}

/// A wrong call: the exit code is [`USAGE`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The whole program.
pub fn main() -> ExitCode {
    let began = Instant::now();
    let cli = Cli::parse();
    match dispatch(cli, began) {
        Ok(code) => code,
        Err(error) => {
            for line in format!("{error:#}").lines() {
                say(format_args!("fermata: {line}"));
            }
            ExitCode::from(if error.is::<Usage>() { USAGE } else { 1 })
        }
    }
}

fn dispatch(cli: Cli, began: Instant) -> anyhow::Result<ExitCode> {
    let given = Given::here(cli.config);
    match cli.command {
        Command::Dev(args) => {
            let config = usable(args.presets(given))?;
            block_on(dev::dev(args, config, began))
        }
        Command::Serve(args) => {
            let given = given
                .flag("--listen", "server.listen", args.listen)
                .flag("--database", "database.url", args.database)
                .flag("--role", "server.role", args.role);
            let config = usable(given)?;
            block_on(serve::serve(config, began))
        }
        Command::Migrate(args) => {
            let config = usable(given.flag("--database", "database.url", args.database()))?;
            block_on(migrate::migrate(args, &config))
        }
        Command::Run(args) => {
            // A document that is run here is as trusted as a program that is run here.
            let config = usable(given.preset("http.allow_private_networks", true))?;
            block_on(run::run(args, &config))
        }
        Command::Validate(args) => {
            let config = usable(given)?;
            block_on(validate::validate(args, &config))
        }
        Command::Graph(args) => graph::graph(&args, &usable(given)?),
        Command::Schema { dialect } => {
            print(match dialect {
                Schema::Dataworkflows => fermata_dialects::dataworkflows::SCHEMA,
                Schema::Runlater => fermata_dialects::runlater::SCHEMA,
                Schema::Jsondagapi => fermata_dialects::jsondagapi::SCHEMA,
            });
            Ok(ExitCode::SUCCESS)
        }
        Command::Eval(args) => {
            let config = usable(given)?;
            block_on(eval::eval(args, &config))
        }
        Command::Executions(args) => block_on(client::executions(args)),
        Command::Workflows(args) => {
            let config = usable(given)?;
            block_on(client::workflows(args, &config))
        }
        Command::Triggers(args) => block_on(client::triggers(args)),
        Command::Events(args) => block_on(client::events(args)),
        Command::Approvals(args) => block_on(client::approvals(args)),
        Command::DeadLetters(args) => block_on(client::dead_letters(args)),
        Command::Bulk(args) => block_on(client::bulk(args)),
        Command::Runners(args) => block_on(client::runners(args)),
        Command::Stats(args) => block_on(client::stats(args)),
        Command::Keys(args) => {
            let config = match &args.database {
                Some(url) => Some(usable(given.flag("--database", "database.url", Some(url.clone())))?),
                None => None,
            };
            block_on(client::keys(args, config))
        }
        Command::Audit(args) => block_on(client::audit(args)),
        Command::Transfer(args) => {
            let config = usable(given)?;
            block_on(transfer::transfer(args, &config))
        }
        Command::Prune(args) => {
            let config = usable(given.flag("--database", "database.url", args.database.clone()))?;
            block_on(prune::prune(args, &config))
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "fermata", &mut script);
            print(String::from_utf8_lossy(&script));
            Ok(ExitCode::SUCCESS)
        }
        Command::Sandbox => Ok(fermata_runtime::sandbox::serve_child()),
        Command::Bench(args) => block_on(bench::bench(args)),
    }
}

/// Loads the configuration.
fn usable(given: Given) -> Result<Config, Usage> {
    config::load(given).map_err(|problems| Usage(problems.to_string()))
}

fn block_on(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let answer = runtime.block_on(async {
        signals::survive_file_size_limit()?;
        command.await
    });
    // A blocking call that hangs must not keep the process.
    runtime.shutdown_background();
    answer
}

/// Writes a line to stderr; errors are ignored.
pub fn say(line: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Writes text to stdout; errors are ignored, because a reader such as `head` may close it.
pub fn print(text: impl Display) {
    let mut stdout = std::io::stdout().lock();
    let _ = write!(stdout, "{text}").and_then(|()| stdout.flush());
}

/// Whether a stream takes colours.
pub fn colors(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    /// The section of a command, up to the next one of its level.
    fn section<'a>(page: &'a str, name: &str) -> &'a str {
        let (_, rest) = page
            .split_once(&format!("\n## {name}\n"))
            .unwrap_or_else(|| panic!("docs/cli.md has no section `{name}`"));
        rest.split("\n## ").next().unwrap_or_default()
    }

    fn words(command: &clap::Command) -> Vec<String> {
        let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
        let flags = arguments.filter_map(|argument| argument.get_long().map(|long| format!("--{long}")));
        let below = command.get_subcommands().filter(|command| !command.is_hide_set());
        let below: Vec<_> = below
            .flat_map(|command| std::iter::once(command.get_name().to_owned()).chain(words(command)))
            .collect();
        flags.chain(below).collect()
    }

    #[test]
    fn every_command_and_flag_is_in_docs_cli_md() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
        let page = std::fs::read_to_string(path).unwrap();
        let cli = Cli::command();
        let mut missing = Vec::new();
        for command in cli.get_subcommands().filter(|command| !command.is_hide_set()) {
            let text = section(&page, command.get_name());
            let is_there = |word: &String| {
                text.split(|c: char| !c.is_alphanumeric() && c != '-')
                    .any(|other| other == word)
            };
            let unknown = words(command).into_iter().filter(|word| !is_there(word));
            missing.extend(unknown.map(|word| format!("{}: {word}", command.get_name())));
            if !text.contains("Exit codes") {
                missing.push(format!("{}: its exit codes", command.get_name()));
            }
        }
        missing.extend(
            ["--config", "--version"]
                .iter()
                .filter(|word| !page.contains(**word))
                .map(|word| (*word).to_owned()),
        );
        assert!(missing.is_empty(), "docs/cli.md lacks {missing:#?}");
    }
}
