//! The fault rig: clients work on real processes and a real database while the rig kills, stops and disconnects them.
//! Afterwards it checks that no promise was broken.
//!
//! Four `fermata serve` processes use a PostgreSQL primary with a synchronous standby, each behind a proxy of the rig.
//! The seed determines the load, the faults and their times. Their effect depends on the machine.
//!
//! What must stay true: the rig leaves no process and no file behind, however it ends, except the files of a run that
//! found a violation. The checks use no answer of the system under test, except its rows.

mod audit;
mod check;
mod database;
mod evidence;
mod faults;
mod fleet;
mod inject;
mod ledger;
mod load;
mod proxy;
mod reaper;
mod report;
mod rng;
mod service;
mod triggers;
mod wire;
mod workers;
mod workflows;

use anyhow::Context;
use check::{Rule, Rules, Violation};
use clap::Args;
use database::Pair;
use evidence::Evidence;
pub use faults::Kind;
use faults::Scene;
use fleet::{Fleet, Launch};
use ledger::Ledger;
use load::Load;
use reaper::Reaper;
pub use report::Report;
use report::{Circumstances, Progress};
use service::Service;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::mpsc, task::JoinSet};
use uuid::Uuid;

/// A runner without a heartbeat for this long is dead.
const LEASE: Duration = Duration::from_secs(2);
/// The time in which all runs must end after the last fault.
const SETTLE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(100);

/// The load, the faults, and where files go.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Determines the load and the faults; a random one is chosen and printed if not given.
    #[arg(long)]
    pub seed: Option<u64>,
    /// The number of seconds in which faults happen.
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Only these kinds of faults.
    #[arg(long, value_delimiter = ',', value_enum)]
    pub only: Vec<Kind>,
    /// The number of runs that are started per second.
    #[arg(long, default_value_t = 10.0)]
    pub rate: f64,
    /// The folder for databases and logs; the folder for temporary files if not given. Should be on a real disk.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Keep the logs even if no violation was found.
    #[arg(long)]
    pub keep: bool,
    /// Let processes commit to runs that another process holds, to see that the rig finds it. Debug builds only.
    #[cfg(debug_assertions)]
    #[arg(long, hide = true)]
    pub without_fencing: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seed: None,
            seconds: 60,
            only: Vec::new(),
            rate: 10.0,
            dir: None,
            keep: false,
            #[cfg(debug_assertions)]
            without_fencing: false,
        }
    }
}

impl Options {
    fn kinds(&self) -> Vec<Kind> {
        match self.only.is_empty() {
            true => Kind::ALL.to_vec(),
            false => self.only.clone(),
        }
    }

    /// The command that repeats the same load and faults.
    fn command(&self, seed: u64) -> String {
        let mut command = format!(
            "rig chaos --seed {seed} --seconds {} --rate {}",
            self.seconds, self.rate
        );
        if !self.only.is_empty() {
            let kinds: Vec<&str> = self.only.iter().map(|kind| kind.word()).collect();
            command.push_str(&format!(" --only {}", kinds.join(",")));
        }
        command
    }

    /// Makes the processes ignore leases. Release builds of `fermata` do not read the variable.
    fn extra_environment(&self) -> Vec<(String, String)> {
        #[cfg(debug_assertions)]
        if self.without_fencing {
            return vec![("FERMATA_TEST_NO_FENCING".to_owned(), "1".to_owned())];
        }
        Vec::new()
    }
}

/// Runs the rig on this `fermata` binary. Dropping the future ends all processes.
pub async fn chaos(options: &Options, fermata: &Path) -> anyhow::Result<Report> {
    fermata_runtime::tls::install_provider();
    let root = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let reaper = Reaper::start(&root.join(format!("fermata-chaos-{}", Uuid::now_v7().simple())))?;
    run(options, fermata, &root, &reaper).await
}

async fn run(options: &Options, fermata: &Path, root: &Path, reaper: &Reaper) -> anyhow::Result<Report> {
    let seed = options
        .seed
        .unwrap_or_else(|| Uuid::new_v4().as_u64_pair().0 % 1_000_000);
    let progress = Arc::new(Progress::new());
    progress.say(&format!(
        "seed {seed}: starting two database servers and {} processes",
        Fleet::SIZE
    ));
    let folder = reaper.folder();
    let effects = Arc::new(Ledger::create(&folder.join("effects.log"))?);
    let notes = Arc::new(Ledger::create(&folder.join("acknowledged.log"))?);
    let (asked, asking) = mpsc::unbounded_channel();
    let service = Service::start(effects.clone(), asked).await?;
    let pair = Arc::new(Pair::start(root).await?);
    let launch = Launch {
        program: fermata.to_owned(),
        folder: folder.to_owned(),
        database: pair.url(),
        environment: environment(options),
    };
    let fleet = Arc::new(Fleet::new(launch, &reaper.processes()));
    let workflows = workflows::all(&service.url);
    let rules = Rules::new(&workflows, LEASE);
    let load = Arc::new(Load::new(
        workflows,
        fleet.answering(),
        notes.clone(),
        seed,
        options.rate,
    )?);
    prepare(&fleet, &pair, &load, options.seconds).await?;

    progress.say("the load begins");
    let watching = fleet.clone();
    let watching = tokio::spawn(async move { watching.watch().await });
    let workers = load.begin();
    let calling = load.call_back(asking);
    let mut working = load.begin_work();
    let scene = Scene {
        length: Duration::from_secs(options.seconds),
        processes: Fleet::SIZE,
    };
    let plan = faults::plan(seed, &scene, &options.kinds());
    inject::all(&plan, scene.length, &fleet, &pair, &progress).await?;

    progress.say("no more faults; everything must end now");
    let settling = Instant::now();
    load.stop();
    let settled = tokio::time::timeout(SETTLE, settle(&fleet, &pair, workers)).await;
    let settled_after = settled.is_ok().then(|| settling.elapsed());
    settled.unwrap_or(Ok(()))?;
    watching.abort();
    // The evidence is read from here on, so nothing may change any more.
    fleet.end().await;
    calling.abort();
    working.shutdown().await;
    let mut evidence = Evidence {
        notes: notes.close()?,
        effects: effects.close()?,
        stops: progress.counts().get(&Kind::Stop).copied().unwrap_or_default() as usize,
        ..Evidence::default()
    };
    audit::collect(&pair.connect().await?, &mut evidence).await?;
    let mut violations = rules.check(&evidence);
    let violation = |rule, what| Violation { rule, run: None, what };
    violations.extend(fleet.fallen().into_iter().map(|what| violation(Rule::Fell, what)));
    if settled_after.is_none() {
        let what = format!(
            "not everything was answered and over {} s after the last fault",
            SETTLE.as_secs()
        );
        violations.push(violation(Rule::Stuck, what));
    }
    let known = Circumstances {
        seed,
        command: options.command(seed),
        faults: progress.counts(),
        dropped_after_commit: pair.proxies.iter().map(proxy::Proxy::dropped).sum(),
        settled_after,
    };
    let mut report = Report::new(&evidence, violations, known);
    if options.keep || !report.violations.is_empty() {
        keep(reaper, &pair, &evidence, &report)?;
        report.folder = Some(folder.to_owned());
    }
    Ok(report)
}

/// Short times, so that leases expire, runs park and retries happen often.
fn environment(options: &Options) -> Vec<(String, String)> {
    let lease = format!("{}ms", LEASE.as_millis());
    let settings = [
        ("HTTP__ALLOW_PRIVATE_NETWORKS", "true"),
        // All processes must render the same callback address.
        ("SERVER__PUBLIC_URL", "http://callbacks.invalid"),
        ("ORCHESTRATION__LEASE_TTL_MS", &lease),
        ("ORCHESTRATION__PARK_AFTER_MS", "700ms"),
        // Few enough that attempts wait for a slot when a process is stopped.
        ("ORCHESTRATION__MAX_PARALLEL_ACTIONS", "24"),
        // Kills are not the fault of runs, so no run may be dead-lettered for them.
        ("ERROR_HANDLING__MAX_POISON_MESSAGE_RETRIES", "1000"),
        ("ORCHESTRATION__RETRY__INITIAL_DELAY_MS", "50ms"),
        ("ORCHESTRATION__RETRY__BACKOFF_FACTOR", "1.3"),
        ("DATABASE__POSTGRES__PATIENCE_MS", "5s"),
        ("DATABASE__POSTGRES__CONNECT_TIMEOUT_MS", "2s"),
        ("DATABASE__POSTGRES__STATEMENT_TIMEOUT_MS", "5s"),
        ("DATABASE__POSTGRES__LOCK_TIMEOUT_MS", "3s"),
        ("DATABASE__POSTGRES__IDLE_IN_TRANSACTION_TIMEOUT_MS", "3s"),
    ];
    let settings = settings.map(|(name, value)| (format!("FERMATA_{name}"), value.to_owned()));
    settings.into_iter().chain(options.extra_environment()).collect()
}

/// Starts the processes, publishes the workflows and creates their triggers. The first process creates the tables; the audit
/// triggers are installed then.
async fn prepare(fleet: &Fleet, pair: &Pair, load: &Load, seconds: u64) -> anyhow::Result<()> {
    let (first, others) = fleet.members.split_first().context("no processes")?;
    first.start().await?;
    first.ready().await?;
    audit::install(&pair.connect().await?).await?;
    for member in others {
        member.start().await?;
    }
    fleet.all_ready().await?;
    load.publish().await?;
    let end = audit::time_in(&pair.connect().await?, seconds.max(2)).await?;
    load.create_triggers(&end).await
}

/// Waits until all requests of clients are answered, the schedule has fired for the last time and all runs have ended.
async fn settle(fleet: &Fleet, pair: &Pair, mut workers: JoinSet<()>) -> anyhow::Result<()> {
    pair.settle().await?;
    fleet.all_ready().await?;
    while let Some(worker) = workers.join_next().await {
        worker.context("a client gave up")?;
    }
    let client = pair.connect().await?;
    while audit::unfinished(&client).await? > 0 {
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// Keeps the files that are needed to find the cause.
fn keep(reaper: &Reaper, pair: &Pair, evidence: &Evidence, report: &Report) -> anyhow::Result<()> {
    reaper.keep();
    for (number, log) in pair.logs().iter().enumerate() {
        let name = if number == 0 { "primary.log" } else { "standby.log" };
        std::fs::copy(log, reaper.folder().join(name)).with_context(|| log.display().to_string())?;
    }
    let runs = report.violations.iter().filter_map(|violation| violation.run);
    let runs: serde_json::Map<String, serde_json::Value> =
        runs.map(|run| (run.to_string(), evidence.of_run(run))).collect();
    let text = serde_json::to_string_pretty(&runs)?;
    std::fs::write(reaper.folder().join("runs.json"), text).context("runs.json")
}
