//! The engine of this process: its handle, and what its drivers and loops share.
//!
//! | file | content |
//! | --- | --- |
//! | `request.rs`, `start.rs` | starting runs |
//! | `rerun.rs` | repeating runs |
//! | `commands.rs` | callbacks and cancels |
//! | `children.rs` | child runs |
//! | `wait.rs` | waiting for the end of a run |
//! | `held.rs` | the runs that this process holds |
//! | `admission.rs` | how many runs and actions it takes |
//! | `health.rs` | outages and slow commits, for the log |
//! | `shutdown.rs`, `wakes.rs`, `ids.rs` | signals, wake-ups, ids and jitter |

mod admission;
mod children;
mod commands;
mod health;
mod held;
mod ids;
mod request;
mod rerun;
mod shutdown;
mod start;
mod wait;
mod wakes;

use crate::{
    actions::Registry,
    clock::{Clock, EngineClock},
    dry_run,
    http_places::HttpPlaces,
    metrics::{Metrics, SpanMetrics},
    offload::Offload,
    rate::RateLimiter,
    runner::{self, lease_gate::LeaseGate},
    runners,
    sandbox::Sandbox,
    settings::Settings,
    stats::RunNumbers,
    triggers::Waiting,
    watch::Hub,
    workflows::{Workflows, WorkflowsOf},
};
use admission::Admission;
pub use children::Children;
pub(crate) use children::{StartedBy, child_request_id};
pub(crate) use commands::Skip;
use fermata_core::{Event, NodeId, RunId, RunnerId, Timestamp};
use fermata_store::{Store, StoreError, runners::Runner, runs::Attempt};
use health::StoreHealth;
pub(crate) use held::{HeldRuns, Hold};
use ids::Ids;
pub use request::{Accepted, Request};
pub use rerun::{RerunRequest, RerunVersion};
use shutdown::Shutdown;
pub(crate) use start::{check_request_id, stored_before};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, Semaphore};
use uuid::Uuid;
pub use wait::Ended;
use wakes::Wakes;

/// A handle to the engine of this process. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

/// What all drivers and loops of this process share.
pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    /// The store through connections of its own, for claims, readiness and pending messages: they do not wait behind reads.
    pub control: Arc<dyn Store>,
    pub registry: Registry,
    pub settings: Settings,
    /// Database time.
    pub clock: Arc<dyn Clock>,
    /// The runner of this process.
    pub runner: Runner,
    pub workflows: Workflows,
    pub sandbox: Sandbox,
    pub offload: Offload,
    pub observer: Option<Arc<dyn Observer>>,
    pub held: Arc<HeldRuns>,
    /// The runs and lists that are watched.
    pub hub: Hub,
    pub admission: Admission,
    pub shutdown: Shutdown,
    pub wakes: Wakes,
    /// Deliveries of triggers that this process processes soon.
    pub triggers: Waiting,
    /// A bulk job was started or cancelled.
    pub bulk: Notify,
    pub ids: Ids,
    pub health: StoreHealth,
    pub metrics: Arc<Metrics>,
    /// Numbers of runs that were not written yet.
    pub numbers: RunNumbers,
    /// Places for the HTTP steps of tenants with a limit on them.
    pub http_places: HttpPlaces,
    /// Places for dry runs.
    pub dry_runs: Semaphore,
    /// Starts by tenant and workflow.
    pub execution_rate: Option<RateLimiter<(String, Uuid)>>,
}

/// Observes what happens in this process. Called after the fact is durable.
pub trait Observer: Send + Sync + 'static {
    /// An attempt begins to execute.
    fn started(&self, run: RunId, node: &NodeId, attempt: u32);

    /// A delivery of a schedule is durable.
    fn fired(&self, _delivery: &fermata_store::triggers::TriggerDelivery) {}

    /// Events and attempts were committed.
    fn committed(&self, run: RunId, events: &[Event], attempts: &[Attempt]);
}

impl Engine {
    /// An engine on `store`. It accepts runs at once and works on them after [`Engine::run`].
    pub fn new(store: Arc<dyn Store>, registry: Registry, settings: Settings, clock: Arc<dyn Clock>) -> Engine {
        Engine::with_observer(store, registry, settings, clock, None)
    }

    /// An engine with an observer.
    pub fn with_observer(
        store: Arc<dyn Store>,
        registry: Registry,
        settings: Settings,
        clock: Arc<dyn Clock>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Engine {
        let sandbox = Sandbox::new(settings.sandbox.clone());
        Engine::with_sandbox(store, registry, settings, clock, observer, sandbox)
    }

    /// An engine that shares the sandbox processes of another one.
    pub(crate) fn with_sandbox(
        store: Arc<dyn Store>,
        registry: Registry,
        settings: Settings,
        clock: Arc<dyn Clock>,
        observer: Option<Arc<dyn Observer>>,
        sandbox: Sandbox,
    ) -> Engine {
        let machine = clock;
        let clock: Arc<dyn Clock> = Arc::new(EngineClock {
            store: store.clone(),
            machine: machine.clone(),
        });
        let wakes = Wakes::default();
        let lease_gate = Arc::new(LeaseGate::new(settings.lease_ttl, machine));
        let held = HeldRuns::new(lease_gate.clone(), wakes.claims.clone());
        let metrics = Arc::new(Metrics::new(&settings.metrics, &registry));
        let runner = runners::describe(&settings, clock.now());
        let shared = Shared {
            http_places: HttpPlaces::new(
                store.clone(),
                clock.clone(),
                runner.id,
                lease_gate.clone(),
                settings.poll_interval,
            ),
            workflows: Workflows::new(
                store.clone(),
                registry.clone(),
                &settings,
                clock.clone(),
                sandbox.clone(),
                metrics.clone(),
            ),
            metrics,
            sandbox,
            offload: Offload::default(),
            admission: Admission::new(&settings, held.clone(), lease_gate, wakes.claims.clone()),
            held,
            hub: Hub::default(),
            shutdown: Shutdown::default(),
            triggers: Waiting::default(),
            bulk: Notify::new(),
            wakes,
            ids: Ids::new(clock.clone(), settings.seed),
            health: StoreHealth::default(),
            dry_runs: Semaphore::new(dry_run::MOST),
            numbers: RunNumbers::default(),
            execution_rate: settings.execution_rate.map(RateLimiter::new),
            runner,
            control: store.control().unwrap_or_else(|| store.clone()),
            store,
            registry,
            settings,
            clock,
            observer,
        };
        Engine {
            shared: Arc::new(shared),
        }
    }

    /// Works on runs, if that is the role of this process. Returns when [`Engine::stop`] was called and all runs are
    /// released.
    pub async fn run(&self) {
        runner::run(self.shared.clone()).await;
    }

    /// Stops claiming, lets running actions finish within the grace period and releases all runs. [`Engine::run`] returns then.
    pub fn stop(&self) {
        self.shared.shutdown.stop();
    }

    /// Waits for the first confirmed heartbeat. Before it, this process holds no runs. [`Engine::run`] must have been called.
    pub async fn ready(&self) {
        self.shared.admission.lease_gate.begun().await;
    }

    /// Whether [`Engine::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.shared.shutdown.is_stopping()
    }

    /// Drops everything without telling the store, as a crash does. For tests.
    pub fn crash(&self) {
        self.shared.abandon();
        self.shared.shutdown.stop();
    }

    /// Drafts, versions and compiled plans, without a tenant.
    pub fn workflows(&self) -> WorkflowsOf<'_> {
        self.workflows_of("")
    }

    /// The same, as a tenant sees them.
    pub fn workflows_of<'a>(&'a self, tenant: &'a str) -> WorkflowsOf<'a> {
        self.shared.workflows.of(tenant)
    }

    /// The actions.
    pub fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// The threads for large work.
    pub fn offload(&self) -> &Offload {
        &self.shared.offload
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Database time, which all times of the engine are in.
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Whether the store can write. For readiness; does not wait behind reads.
    ///
    /// # Errors
    /// The store's error if it cannot.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.shared.control.ping().await
    }

    /// Whether attempts and runs may start here: the heartbeats of this process are confirmed, or it does not work on runs.
    pub fn may_start(&self) -> bool {
        !self.shared.settings.role.works() || self.shared.admission.lease_gate.is_open()
    }

    /// The id of this process among the runners.
    pub fn runner_id(&self) -> RunnerId {
        self.shared.runner.id
    }

    /// Counts the spans that are sent.
    pub fn span_metrics(&self) -> Arc<SpanMetrics> {
        self.shared.metrics.spans.clone()
    }

    /// How many runs this process holds.
    pub fn active_runs(&self) -> usize {
        self.shared.held.len()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
