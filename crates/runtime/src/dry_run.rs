//! Dry runs: a workflow is executed by the real engine, without effects, on a store in memory and a virtual clock.
//!
//! | file | content |
//! | --- | --- |
//! | `mocks.rs` | the mocks of a request, checked against the plan |
//! | `mocked.rs` | what actions and answers are replaced by |
//! | `example.rs` | values made from JSON Schemas |
//! | `report.rs` | the route that the run took |
//!
//! The engine is the same; only what it gets differs. Actions with effects are replaced in the registry, nodes that wait for child
//! runs become actions in the plan, and secrets are placeholders. The clock stands still while the run has something to do. When
//! the run is parked, first the waits are answered, and only then the clock is moved to the time at which the run is due. So
//! a sleep takes no time, and the times in the report are exact.
//!
//! What must stay true: no effect leaves the process, no secret is read, and nothing is stored in the database of the server. Only
//! actions that say that they have no effects are called.

mod example;
mod mocked;
mod mocks;
mod report;

pub use report::{DryRunAttempt, DryRunEdge, DryRunGuard, DryRunNode, DryRunReport, Made};

use crate::{
    actions::Registry,
    clock::{Clock, VirtualClock},
    engine::{Engine, Request},
    error::{EngineError, Refusal},
    inbox::{Given, Reply, fields_schema},
    sandbox::Sandbox,
    secrets::{SECRET_PREFIX, Secrets},
    settings::{Role, Settings},
    triggers::TriggerSettings,
};
use fermata_core::{NodeId, Plan, RunId, Timestamp};
use fermata_store::{
    InboxStore, WorkflowStore, clock,
    definitions::{Draft, Release, ReleaseRule},
    inbox::WaitRef,
    memory::MemoryStore,
    retention::Retention,
    runs::Principal,
};
use mocked::Answer;
use mocks::Mocks;
use serde_json::{Map, Value};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// How many dry runs a server executes at the same time.
pub const MOST: usize = 4;
/// How long a dry run may take, in real time.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// How often the run is looked at, and how often it is claimed.
const TICK: Duration = Duration::from_millis(1);
/// Longer than the clock is moved at once: otherwise the lease would lapse.
const LEASE_TTL: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// What a dry run starts with.
#[derive(Debug, Clone, Default)]
pub struct DryRun {
    /// The trigger.
    pub trigger: Value,
    /// The structured payload beside it.
    pub spec: Option<Value>,
    /// On whose behalf it runs.
    pub principal: Principal,
    /// The tenant of the run; empty for none.
    pub tenant: String,
    /// What nodes return, by their ids; `null` for nothing.
    pub mocks: Value,
}

/// Executes a plan without effects. `registry`, `settings` and `sandbox` are those of a real run.
///
/// # Errors
/// The mocks or the trigger do not fit the plan, or the run takes too long.
pub async fn dry_run(
    plan: &Plan,
    request: DryRun,
    registry: &Registry,
    settings: &Settings,
    sandbox: Sandbox,
) -> Result<DryRunReport, EngineError> {
    let mocks = Mocks::read(&request.mocks, plan, registry).map_err(Refusal::InvalidMocks)?;
    let mocks = Arc::new(mocks);
    let plan = mocked::plan(plan)?;
    let started_at = Timestamp(clock::wall().0 / 1000 * 1000);
    let clock = Arc::new(VirtualClock::starting_at(started_at));
    let store = Arc::new(MemoryStore::new());
    let registry = registry.clone().map(|action| mocked::action(action, mocks.clone()));
    let engine = Engine::with_sandbox(
        store.clone(),
        registry,
        settings_for(settings, &plan),
        clock.clone(),
        None,
        sandbox,
    );
    let engine = Stopped(engine);
    let rehearsal = Rehearsal {
        engine: &engine.0,
        store,
        clock,
        mocks,
        plan: &plan,
    };
    match tokio::time::timeout(TIME_LIMIT, rehearsal.run(request)).await {
        Ok(report) => report,
        Err(_) => Err(Refusal::DryRunTooLong(TIME_LIMIT.as_secs()).into()),
    }
}

/// The settings of a real run, without what has effects, waits or reads secrets.
fn settings_for(settings: &Settings, plan: &Plan) -> Settings {
    let placeholder = |name: &String| {
        (
            format!("{SECRET_PREFIX}{name}"),
            format!("<secret {name} {}>", Uuid::new_v4()),
        )
    };
    let secrets = plan.templates.secrets.iter().map(placeholder);
    Settings {
        park_after: Duration::ZERO,
        poll_interval: TICK,
        role: Role::All,
        lease_ttl: LEASE_TTL,
        heartbeat_thread: false,
        shutdown_grace: Duration::ZERO,
        seed: Some(0), // the same jitter each time
        secrets: Arc::new(Secrets::new(secrets, None)),
        tiers: Arc::default(),
        ignore_flow_control: true,
        execution_rate: None,
        require_principal: false,
        retention: Retention::default(),
        tracer: None,
        triggers: TriggerSettings::default(),
        ..settings.clone()
    }
}

/// Ends the engine of a dry run, also if the caller stops waiting.
struct Stopped(Engine);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.crash();
    }
}

/// A dry run in progress.
struct Rehearsal<'a> {
    engine: &'a Engine,
    store: Arc<MemoryStore>,
    clock: Arc<VirtualClock>,
    mocks: Arc<Mocks>,
    plan: &'a Plan,
}

impl Rehearsal<'_> {
    async fn run(&self, request: DryRun) -> Result<DryRunReport, EngineError> {
        let worker = self.engine.clone();
        tokio::spawn(async move { worker.run().await });
        self.engine.ready().await;
        let draft = Draft {
            id: self.plan.workflow.clone(),
            tenant: String::new(),
            display_name: self.plan.display_name.clone(),
            description: None,
            dialect: self.plan.dialect.clone(),
            source: Vec::new(),
            checksum: String::new(),
            at: self.clock.now(),
        };
        let release = Release {
            draft,
            rule: ReleaseRule::New {
                uid: Uuid::now_v7(),
                most: None,
            },
            enabled: true,
            plan: self.plan.encode(),
        };
        self.store.release(release).await?;
        let trigger = match request.trigger {
            Value::Null => Value::Object(Map::new()),
            trigger => trigger,
        };
        let start = Request {
            workflow_id: self.plan.workflow.clone(),
            trigger,
            spec: request.spec,
            tenant: request.tenant,
            principal: request.principal,
            ..Request::default()
        };
        let run = self.engine.start(start).await?.run;
        self.drive(run).await?;
        report::of(self.engine, run, self.plan, &self.mocks).await
    }

    /// Moves the run to its end.
    async fn drive(&self, run: RunId) -> Result<(), EngineError> {
        loop {
            let row = self.engine.reads().run_row(run).await?;
            let row = row.ok_or(Refusal::RunNotFound(run))?;
            if row.status.is_terminal() {
                return Ok(());
            }
            // A run that no driver holds and that is not due has done everything that needs no time.
            let is_due = row.wake_at.is_some_and(|at| at <= self.clock.now());
            if !row.held()
                && !is_due
                && !self.answer_waits(run).await?
                && let Some(at) = row.wake_at
            {
                self.clock.advance_to(at);
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// Answers the nodes that wait, except for those whose mock lets them time out. True if one was answered.
    async fn answer_waits(&self, run: RunId) -> Result<bool, EngineError> {
        let mut any = false;
        let overview = self.engine.reads().overview(run).await?;
        for waiting in overview.nodes.iter().filter(|node| node.is_waiting) {
            let node = &waiting.node;
            let payload = match self.mocks.answer(node, waiting.attempt.unwrap_or(1)) {
                Answer::Timeout => continue,
                Answer::Given(payload) => payload,
                Answer::Made => self.made_answer(run, node).await?,
            };
            let reply = Reply {
                of: WaitRef::Node {
                    run,
                    node: node.clone(),
                },
                lease: None,
                tenant: None,
                payload,
                is_json: true,
                by: None,
            };
            match self.engine.inbox().answer(reply).await? {
                Given::Refused { why, problems } => return Err(self.refused(node, why, problems).into()),
                given => any |= matches!(given, Given::Accepted { .. }),
            }
        }
        Ok(any)
    }

    /// An answer that the rule of a node accepts.
    async fn made_answer(&self, run: RunId, node: &NodeId) -> Result<Value, EngineError> {
        let of = WaitRef::Node {
            run,
            node: node.clone(),
        };
        let wait = self.store.find_wait(&of).await?;
        let fields = wait.and_then(|wait| fields_schema(wait.details.as_deref()?));
        Ok(mocked::answer(self.plan, node, fields.as_ref()))
    }

    /// A node refuses its answer.
    fn refused(&self, node: &NodeId, why: String, problems: Vec<(String, String)>) -> Refusal {
        let pointer = mocks::pointer(node.as_str());
        let hint = match self.mocks.has(node) {
            true => "",
            false => "; the answer was made from its schema, so give one as `callback`",
        };
        let mut list = vec![(
            pointer.clone(),
            format!("node `{node}` refuses its answer: {why}{hint}"),
        )];
        list.extend(
            problems
                .into_iter()
                .map(|(at, what)| (format!("{pointer}/callback{at}"), what)),
        );
        Refusal::InvalidMocks(list)
    }
}

impl Engine {
    /// Executes a plan without effects, with the actions and settings of this engine.
    pub(crate) async fn dry_run(&self, plan: &Plan, request: DryRun) -> Result<DryRunReport, EngineError> {
        let shared = &self.shared;
        let Ok(_place) = shared.dry_runs.try_acquire() else {
            return Err(Refusal::TooManyDryRuns.into());
        };
        let sandbox = shared.sandbox.clone();
        dry_run(plan, request, &shared.registry, &shared.settings, sandbox).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{actions::HttpSettings, clock::SystemClock};
    use fermata_core::plan::PlanBuilder;

    #[test]
    fn secrets_are_placeholders() {
        let secret = |name: &str| (format!("{SECRET_PREFIX}{name}"), "real".to_owned());
        let settings = Settings {
            secrets: Arc::new(Secrets::new([secret("KEY"), secret("OTHER")], None)),
            ..Settings::default()
        };
        let plan = PlanBuilder::new("w").action("a", "core.echo");
        let plan = plan
            .plan(|plan| plan.templates.secrets = vec!["KEY".to_owned()])
            .build()
            .unwrap();
        let names = ["KEY", "OTHER"].map(str::to_owned);
        let values = settings_for(&settings, &plan).secrets.values("", &names);
        assert_eq!(values.len(), 1, "a secret that the plan does not use has no value");
        assert_ne!(values[0], b"real");
    }

    #[tokio::test]
    async fn dry_run_above_the_limit_is_refused_until_another_ends() {
        let registry = Registry::builtin(&HttpSettings::default()).unwrap();
        let store = Arc::new(MemoryStore::new());
        let engine = Engine::new(store, registry, Settings::default(), Arc::new(SystemClock));
        let plan = PlanBuilder::new("w").action("a", "core.echo").build().unwrap();
        let others = engine.shared.dry_runs.acquire_many(MOST as u32).await.unwrap();
        let refused = engine.dry_run(&plan, DryRun::default()).await;
        assert!(
            matches!(refused, Err(EngineError::Refused(Refusal::TooManyDryRuns))),
            "{refused:?}"
        );
        drop(others);
        let report = engine.dry_run(&plan, DryRun::default()).await.unwrap();
        assert_eq!(report.status, "Succeeded");
        assert_eq!(engine.shared.dry_runs.available_permits(), MOST);
    }
}
