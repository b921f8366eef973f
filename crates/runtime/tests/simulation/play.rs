//! Plays a scenario: starts and crashes processes, sends requests, and waits for the end.

use super::{
    check,
    rng::{Rng, table},
    scenario::{ACTION, Ending, HORIZON_MS, PlannedRun, ProcessFault, Scenario, WHOLE_STATE},
    store::FaultyStore,
    world::{Inner, Life, MAX_CLAIMS, Process, World},
};
use async_trait::async_trait;
use fermata_core::{Failure, Kind, Phase, RunId, Status, Timestamp};
use fermata_runtime::{
    Accepted, Ended, Engine, EngineError, Request, Settings,
    actions::{Action, ActionInfo, Call, Failed, Registry, ResourceLink, Subworkflow, Success},
    clock::{Clock, TokioClock},
};
use fermata_store::{
    WorkflowStore,
    definitions::{Draft, Release, ReleaseRule},
    memory::MemoryStore,
    runs::RunMessage,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A run that made no progress for this long, with nothing to wait for, is stuck.
const STUCK_AFTER_MS: u64 = 150_000;
/// All slow calls have returned after this time.
const LATE_CALLS_MS: u64 = 15_000;
/// The longest duration of a scenario.
const END_MS: u64 = 3 * 60 * 60 * 1000;

/// The result of a scenario.
pub struct Played {
    pub violation: Option<String>,
    /// A digest of the trace; the same for the same seed.
    pub trace: u64,
    pub lines: Vec<String>,
    pub writes: u64,
    pub seen: BTreeMap<&'static str, u64>,
}

pub fn play(scenario: Scenario, verbose: bool) -> Played {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let world = World::new(scenario, MemoryStore::new(), verbose);
        prepare(&world).await;
        run(&world).await;
        let memory = world.lock().memory.clone();
        if world.violation().is_none() {
            check::check(&world, &memory).await;
        }
        let violation = world.violation();
        let mut inner = world.lock();
        Played {
            violation,
            trace: inner.trace,
            lines: inner.lines.take().unwrap_or_default(),
            writes: inner.writes,
            seen: std::mem::take(&mut inner.seen),
        }
    })
}

/// The uid of a workflow of the scenario.
fn uid(index: usize) -> Uuid {
    Uuid::from_u128(index as u128)
}

/// Creates the workflows. Their documents do not matter: the plans are installed.
async fn prepare(world: &World) {
    let memory = world.lock().memory.clone();
    for (index, plan) in world.scenario.plans.iter().enumerate() {
        let draft = Draft {
            id: plan.workflow.clone(),
            tenant: String::new(),
            display_name: plan.workflow.clone(),
            description: None,
            dialect: "built".to_owned(),
            source: Vec::new(),
            checksum: "-".to_owned(),
            at: world.now(),
        };
        let release = Release {
            draft,
            rule: ReleaseRule::New {
                uid: uid(index),
                most: None,
            },
            enabled: true,
            plan: plan.encode(),
        };
        memory.release(release).await.expect("the memory store publishes");
    }
}

async fn run(world: &Arc<World>) {
    for slot in 0..world.scenario.slots {
        tokio::spawn(live(world.clone(), slot));
    }
    for (at, slot, fault) in world.scenario.process_faults.clone() {
        tokio::spawn(inject(world.clone(), at, slot, fault));
    }
    let mut callers = Vec::new();
    for planned in &world.scenario.planned_runs {
        callers.extend(send_requests(world, planned));
    }
    sleep(Duration::from_millis(HORIZON_MS)).await;
    world.lock().rough = false;
    world.note(|| "calm from here".to_owned());
    settle(world, callers).await;
}

// ── processes ───────────────────────────────────────────────────────────────────────────────────

/// Runs one process after the other in a slot.
async fn live(world: Arc<World>, slot: usize) {
    loop {
        let process = boot(&world, slot);
        world.note(|| format!("{} lives", process.life));
        process.engine.run().await;
        process.died.cancel();
        world.note(|| format!("{} is gone", process.life));
        world.gone(process.life);
        let pause = world.lock().rng.pick(&[0, 10, 300, 3000]);
        sleep(Duration::from_millis(pause)).await;
    }
}

fn boot(world: &Arc<World>, slot: usize) -> Process {
    let scenario = &world.scenario;
    let mut inner = world.lock();
    inner.lives += 1;
    let life = inner.lives;
    if scenario.reopen && life > 1 {
        inner.memory = inner.memory.reopen();
    }
    let died = CancellationToken::new();
    let store = Arc::new(FaultyStore {
        memory: inner.memory.clone(),
        world: world.clone(),
        life,
        died: died.clone(),
    });
    let settings = Settings {
        max_active_runs: scenario.max_active_runs,
        max_parallel_actions: scenario.max_parallel_actions,
        park_after: scenario.park_after,
        poll_interval: Duration::from_secs(1),
        lease_ttl: Duration::from_secs(3),
        heartbeat_thread: false,
        max_poison_retries: MAX_CLAIMS,
        shutdown_grace: Duration::from_secs(2),
        seed: Some(table(scenario.seed, &["engine", &life.to_string()]).roll()),
        ..Settings::default()
    };
    let registry = Registry::empty()
        .with(Subworkflow)
        .with_action(Arc::new(Step::new(world.clone(), life)));
    let clock = WrongClock {
        right: world.clock,
        ahead: table(scenario.seed, &["clock", &life.to_string()]).pick(&[0, 0, HOUR, -HOUR]),
    };
    let engine = Engine::new(store, registry, settings, Arc::new(clock));
    for (index, plan) in scenario.plans.iter().enumerate() {
        let installed = engine.workflows().install(uid(index), plan.clone(), 1);
        installed.expect("the plan compiles");
    }
    let process = Process { life, engine, died };
    inner.alive.insert(slot, process.clone());
    process
}

/// The wrong clock of a machine, which must not matter.
struct WrongClock {
    right: TokioClock,
    /// In microseconds.
    ahead: i64,
}

const HOUR: i64 = 3_600_000_000;

impl Clock for WrongClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.right.now().0 + self.ahead)
    }

    fn since_boot(&self) -> i64 {
        self.right.since_boot()
    }
}

async fn inject(world: Arc<World>, at: u64, slot: usize, fault: ProcessFault) {
    sleep(Duration::from_millis(at)).await;
    let process = world.lock().alive.get(&slot).cloned();
    match (process, fault) {
        (None, _) => {}
        (Some(process), ProcessFault::Stop) => {
            world.note(|| format!("{} must stop", process.life));
            world.lock().count("stop requested");
            process.engine.stop();
        }
        (Some(process), ProcessFault::Crash) => world.crash(process.life),
    }
}

/// The only action: it follows the script of the scenario, and the world records it.
struct Step {
    world: Arc<World>,
    life: Life,
    info: ActionInfo,
}

impl Step {
    fn new(world: Arc<World>, life: Life) -> Step {
        let info = ActionInfo {
            id: ACTION.to_owned(),
            display_name: "Step".to_owned(),
            description: String::new(),
            category: "Simulation".to_owned(),
            connector_id: "sim".to_owned(),
            version: "1.0.0".to_owned(),
            parameter_schema: json!({}),
            output_schema: json!({}),
            is_enabled: true,
            deprecation_notice: None,
            tags: Vec::new(),
        };
        Step { world, life, info }
    }
}

#[async_trait]
impl Action for Step {
    fn info(&self) -> &ActionInfo {
        &self.info
    }

    fn reads_state(&self, parameters: &Value) -> bool {
        parameters[WHOLE_STATE] == true
    }

    async fn run(&self, parameters: Value, call: Call) -> Result<Success, Failed> {
        let (ticket, script) = self.world.begin(self.life, &call, parameters.to_string());
        let work = async {
            if let Some(millis) = script.millis {
                sleep(Duration::from_millis(millis)).await;
            }
            if script.ending == Ending::Kill {
                self.world.crash(self.life);
            }
            if matches!(script.ending, Ending::Hang | Ending::Kill) {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = call.cancelled.cancelled(), if script.obedient => return Err(Failure::permanent("STOPPED", "stop requested").into()),
            () = work => {}
        }
        match script.ending {
            Ending::Success => {
                let outputs = json!({ "v": script.value, "ticket": ticket, call.node.as_str(): call.attempt });
                self.world.succeeded(ticket, outputs.to_string(), script.link.clone());
                let link = script.link.map(|resource_id| ResourceLink {
                    system: "sim".to_owned(),
                    resource_type: "thing".to_owned(),
                    resource_id,
                    url: None,
                });
                Ok(Success {
                    outputs,
                    links: link.into_iter().collect(),
                    offer: None,
                })
            }
            Ending::Flaky(retry_after_ms) => {
                let failure = Failure {
                    retry_after_ms,
                    ..Failure::retriable("FLAKY", "not this time")
                };
                Err(failure.into())
            }
            Ending::Broken | Ending::Hang | Ending::Kill => Err(Failure::permanent("BROKEN", "never").into()),
        }
    }
}

// ── callers ──────────────────────────────────────────────────────────────────────────────────────

fn send_requests(world: &Arc<World>, planned: &PlannedRun) -> Vec<JoinHandle<()>> {
    let mut callers = Vec::new();
    for (nth, at) in planned.starts_ms.iter().copied().enumerate() {
        callers.push(tokio::spawn(start(world.clone(), planned.clone(), nth, at)));
    }
    for (at, node) in planned.callbacks.iter().cloned() {
        let (world, planned) = (world.clone(), planned.clone());
        callers.push(tokio::spawn(async move {
            sleep(Duration::from_millis(at)).await;
            if let Some(run) = world.run_of(&planned.tenant, &planned.request) {
                world.call_back(run, &node).await;
            }
        }));
    }
    // Drawn from its own table, so that the scenario of a seed does not change.
    let mut rng = table(world.scenario.seed, &["pause", &planned.request]);
    if world.scenario.has_pauses && rng.chance(400) {
        let first = planned.starts_ms.iter().min().copied().unwrap_or(0);
        let (at, length) = (first + rng.below(6000), rng.below(5000));
        let (world, planned) = (world.clone(), planned.clone());
        callers.push(tokio::spawn(async move {
            sleep(Duration::from_millis(at)).await;
            if let Some(run) = world.run_of(&planned.tenant, &planned.request) {
                world.pause(run, RunMessage::Pause).await;
                sleep(Duration::from_millis(length)).await;
                world.pause(run, RunMessage::Resume).await;
            }
        }));
    }
    if let Some(at) = planned.cancel_ms {
        let (world, planned) = (world.clone(), planned.clone());
        callers.push(tokio::spawn(async move {
            sleep(Duration::from_millis(at)).await;
            if let Some(run) = world.run_of(&planned.tenant, &planned.request) {
                world.cancel(run).await;
            }
        }));
    }
    callers
}

/// Requests a run until the request is acknowledged.
async fn start(world: Arc<World>, planned: PlannedRun, nth: usize, at: u64) {
    sleep(Duration::from_millis(at)).await;
    let mut rng = table(world.scenario.seed, &["start", &planned.request, &nth.to_string()]);
    loop {
        let Some(process) = world.some_process() else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let request = Request {
            workflow_id: world.scenario.plans[planned.workflow].workflow.clone(),
            request_id: Some(planned.request.clone()),
            trigger: planned.trigger.clone(),
            tenant: planned.tenant.clone(),
            id: Some(run_id(&mut rng)),
            ..Request::default()
        };
        let impatient = rng.chance(world.scenario.rates.impatient) && world.lock().rough;
        let wait_ms = rng.chance(300).then(|| rng.between(1, 8000));
        let patience = Duration::from_millis(rng.pick(&[0, 1, 20, 400]));
        let answer = tokio::select! {
            biased;
            () = process.died.cancelled() => None,
            answer = ask(&process.engine, request, wait_ms) => Some(answer),
            () = sleep(patience), if impatient => None,
        };
        if impatient && answer.is_none() {
            world.lock().count("caller gave up");
        }
        match answer {
            Some(Ok((accepted, ended))) => {
                if let Some(ended) = ended {
                    world.answered_end(accepted.run, ended.status);
                }
                world.note(|| format!("{} is acknowledged to caller {nth}", planned.request));
                return world.acknowledge(&planned.tenant, &planned.request, accepted.run);
            }
            Some(Err(EngineError::Store(_) | EngineError::Stopping)) | None => {}
            Some(Err(error)) => return world.violate(format!("{} was refused: {error}", planned.request)),
        }
        sleep(Duration::from_millis(rng.between(5, 500))).await;
    }
}

/// Requests a run, and sometimes waits for its end.
async fn ask(
    engine: &Engine,
    request: Request,
    wait_ms: Option<u64>,
) -> Result<(Accepted, Option<Arc<Ended>>), EngineError> {
    match wait_ms {
        None => Ok((engine.start(request).await?, None)),
        Some(millis) => engine.start_and_wait(request, Duration::from_millis(millis)).await,
    }
}

fn run_id(rng: &mut Rng) -> RunId {
    RunId(Uuid::from_u64_pair(rng.roll(), rng.roll()))
}

// ── the end ─────────────────────────────────────────────────────────────────────────────────────

/// There are no more faults: everything must end.
async fn settle(world: &Arc<World>, callers: Vec<JoinHandle<()>>) {
    let begin = world.now();
    loop {
        sleep(Duration::from_millis(500)).await;
        if world.violation().is_some() {
            return;
        }
        let now = world.now();
        let answered = callers.iter().all(JoinHandle::is_finished);
        if now > begin.plus_millis(END_MS) {
            return world.violate("there is no end of it".to_owned());
        }
        let open: Vec<RunId> = {
            let inner = world.lock();
            let open = inner.runs.iter().filter(|(_, tracked)| !tracked.status().is_terminal());
            open.map(|(id, _)| *id).collect()
        };
        if open.is_empty() && answered {
            break;
        }
        let waits = waiting(&world.lock(), &open, now);
        match waits {
            Ok(true) if answered && now > begin.plus_millis(LATE_CALLS_MS) => {
                none_in_memory(world, "all runs are parked");
                world.lock().count("parked for good");
                for run in open {
                    world.cancel(run).await;
                }
            }
            Ok(_) => {}
            Err(stuck) => return world.violate(stuck),
        }
        if !answered && now > begin.plus_millis(STUCK_AFTER_MS) {
            return world.violate("a start is never answered".to_owned());
        }
    }
    sleep(Duration::from_millis(LATE_CALLS_MS)).await;
    none_in_memory(world, "all runs have ended");
}

/// Whether all these runs wait for callbacks that will not be sent; an error if one is stuck.
fn waiting(inner: &Inner, open: &[RunId], now: Timestamp) -> Result<bool, String> {
    let mut all = true;
    for id in open {
        let tracked = &inner.runs[id];
        let forever = |ix| {
            let node = tracked.run.plan().node(ix);
            let mut callbacks = inner.callbacks.iter();
            let answered = callbacks.any(|callback| callback.run == *id && callback.node == node.id);
            let open = match &tracked.run.node(ix).phase {
                Phase::Open(open) if open.requested => Some(open.attempt),
                _ => None,
            };
            match node.kind {
                Kind::Wait { timeout_ms } => !answered && timeout_ms.is_none(),
                Kind::Request { timeout_ms, .. } => {
                    let children: Vec<(Option<u32>, bool)> = inner
                        .runs
                        .values()
                        .filter_map(|other| Some((other.parent.as_ref()?, other.status().is_terminal())))
                        .filter(|(by, _)| by.run == *id && by.node == node.id && Some(by.attempt) == open)
                        .map(|(by, ended)| (by.item, ended))
                        .collect();
                    let waits_for_children = match (node.kind.each(), &tracked.run.node(ix).items) {
                        (None, _) => children.iter().all(|(_, ended)| !ended),
                        (Some(_), None) => false,
                        (Some(each), Some(items)) => {
                            let next = items.next(each.max_concurrency);
                            let runs = |item: &u32| children.contains(&(Some(*item), false));
                            !next.is_empty() && next.iter().all(runs)
                        }
                    };
                    !answered && waits_for_children && timeout_ms.is_none() && open.is_some()
                }
                _ => false,
            }
        };
        let started = tracked.run.status() == Status::Running;
        // A child of a run that is over must be cancelled.
        let parent = tracked.parent.as_ref().filter(|by| by.awaited);
        let parent = parent.and_then(|by| inner.runs.get(&by.run));
        let started = started && parent.is_none_or(|parent| !parent.status().is_terminal());
        let waits = started && tracked.run.deadline().is_none() && tracked.run.active().all(forever);
        let cancelled = inner.cancels.iter().any(|(run, _)| run == id);
        let quiet = now > tracked.moved_at.plus_millis(2000);
        all &= waits && quiet && !cancelled && tracked.holder.is_none();
        if now > tracked.moved_at.plus_millis(STUCK_AFTER_MS) && (!waits || cancelled) {
            let nodes: Vec<String> = tracked
                .run
                .active()
                .map(|ix| tracked.run.plan().node(ix).id.to_string())
                .collect();
            let holder = tracked.holder;
            return Err(format!(
                "{} is stuck: {}, held by {holder:?}, open: {}",
                inner.short(*id),
                tracked.run.status(),
                nodes.join(", ")
            ));
        }
    }
    Ok(all)
}

fn none_in_memory(world: &World, why: &str) {
    let processes: Vec<Process> = world.lock().alive.values().cloned().collect();
    for process in processes {
        let held = process.engine.active_runs();
        if held > 0 {
            world.violate(format!("{why}, but {} holds {held} in memory", process.life));
        }
    }
}
