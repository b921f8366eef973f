//! The way in: accept runs, wait for them, cancel them.

mod hold;
mod wait;

use crate::{
    action_slots::ActionSlots,
    actions::Registry,
    clock::{Clock, EngineClock},
    compiled::Compiled,
    driver::{Driver, Meta},
    error::{EngineError, Refusal},
    memory::{self, Budget, Share},
    offload::{LARGE, Offload},
    runner::{self, lease_gate::LeaseGate},
    runners,
    sandbox::Sandbox,
    settings::Settings,
    slots::Behalf,
    workflows::{Head, Workflows},
};
use fermata_core::{Event, Fact, Input, NodeId, Run, RunId, Status, Timestamp, advance};
use fermata_store::{
    Store, StoreError,
    definitions::Lifecycle,
    reads::RunFilter,
    runners::Runner,
    runs::{Answer, Attempt, Delivery, Enqueued, InboxMessage, LocalStart, NewRun, Principal, WaitChange},
};
use serde_json::Value;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, Semaphore, oneshot},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::{ContextV7, Uuid};

use hold::Held;
pub(crate) use hold::Hold;
pub use wait::Ended;

/// How long a run whose outcome is unknown is sent again while its caller waits.
const SENT_AGAIN_FOR: Duration = Duration::from_secs(5);

/// A handle to the engine of this process. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

/// What all drivers of this process share.
pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub registry: Registry,
    pub settings: Settings,
    /// The store for claims, readiness and pending messages: they do not wait behind reads.
    pub control: Arc<dyn Store>,
    /// Database time.
    pub clock: Arc<dyn Clock>,
    /// The runner of this process.
    pub runner: Runner,
    pub action_slots: Arc<ActionSlots>,
    pub lease_gate: LeaseGate,
    /// Memory for the payloads of held runs.
    pub payloads: Arc<Budget>,
    /// Memory for what services answered.
    pub responses: Arc<Budget>,
    /// About what the largest run took that was claimed lately.
    pub largest_claimed: AtomicU64,
    /// Places for runs that may take this process down.
    pub probation: Arc<Semaphore>,
    pub workflows: Workflows,
    pub sandbox: Sandbox,
    pub offload: Offload,
    pub observer: Option<Arc<dyn Observer>>,
    /// Set when the process is to stop: nothing new starts, what runs may finish.
    pub stopping: CancellationToken,
    /// Set when the time for that is up.
    pub abandon: CancellationToken,
    pub tasks: TaskTracker,
    /// The claim loop looks again when told so.
    pub wake_claims: Arc<Notify>,
    /// Asks for pending messages of held runs.
    pub check_messages: Notify,
    held: Mutex<HashMap<RunId, Held>>,
    waiters: Mutex<HashMap<RunId, Vec<oneshot::Sender<Arc<Ended>>>>>,
    /// Claimed runs in a row that could not be read.
    pub read_failures: AtomicU32,
    rng: AtomicU64,
    /// Keeps ids in the order in which they are made.
    ids: Mutex<ContextV7>,
}

/// Somebody who wants to see what happens, after it is durable.
pub trait Observer: Send + Sync + 'static {
    /// An attempt begins to execute.
    fn started(&self, run: RunId, node: &NodeId, attempt: u32);

    /// Events and attempts were committed.
    fn committed(&self, run: RunId, events: &[Event], attempts: &[Attempt]);
}

/// A wish for a run.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The workflow: its name or its uid, as [`Workflows::resolve`] takes them.
    pub workflow_id: String,
    /// Instead of the current version.
    pub version: Option<u32>,
    /// The caller's idempotency key.
    pub request_id: Option<String>,
    /// What the run is about.
    pub trigger: Value,
    /// A structured payload beside it.
    pub spec: Option<Value>,
    /// Higher goes first within a workflow.
    pub priority: Option<i32>,
    /// Empty for none.
    pub tenant: String,
    /// For tracing across systems.
    pub correlation_id: Option<String>,
    /// Who asks.
    pub principal: Principal,
    /// The id the run shall have, never used before (also not for the same requestId); made here if not given.
    pub id: Option<RunId>,
    /// What it is counted as while it is in memory. Given back when the run is stored, also if the caller stopped waiting.
    pub memory: Option<Arc<Share>>,
}

/// A run that is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The run.
    pub run: RunId,
    /// Where it stands.
    pub status: Status,
    /// Whether it is new, or was asked for before.
    pub created: bool,
}

impl Engine {
    /// An engine on `store`. It accepts runs at once and works on them after [`Engine::run`].
    pub fn new(store: Arc<dyn Store>, registry: Registry, settings: Settings, clock: Arc<dyn Clock>) -> Engine {
        Engine::with_observer(store, registry, settings, clock, None)
    }

    /// An engine whose runs are watched.
    pub fn with_observer(
        store: Arc<dyn Store>,
        registry: Registry,
        settings: Settings,
        clock: Arc<dyn Clock>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Engine {
        let sandbox = Sandbox::new(settings.sandbox.clone());
        let machine = clock;
        let clock: Arc<dyn Clock> = Arc::new(EngineClock {
            store: store.clone(),
            machine: machine.clone(),
        });
        let wake_claims = Arc::new(Notify::new());
        let shared = Shared {
            workflows: Workflows::new(
                store.clone(),
                registry.clone(),
                settings.dialects.clone(),
                clock.clone(),
                sandbox.clone(),
            ),
            sandbox,
            offload: Offload::default(),
            action_slots: ActionSlots::new(settings.max_parallel_actions, wake_claims.clone()),
            lease_gate: LeaseGate::new(settings.lease_ttl, machine),
            payloads: Budget::new(settings.payload_bytes),
            responses: Budget::new(settings.response_bytes),
            largest_claimed: AtomicU64::new(0),
            probation: Arc::new(Semaphore::new(runner::probation::PLACES as usize)),
            runner: runners::describe(&settings, clock.now()),
            rng: AtomicU64::new(settings.seed.unwrap_or_else(|| Uuid::new_v4().as_u64_pair().0)),
            control: store.control().unwrap_or_else(|| store.clone()),
            store,
            registry,
            settings,
            clock,
            observer,
            stopping: CancellationToken::new(),
            abandon: CancellationToken::new(),
            tasks: TaskTracker::new(),
            wake_claims,
            check_messages: Notify::new(),
            read_failures: AtomicU32::new(0),
            ids: Mutex::new(ContextV7::new()),
            held: Mutex::default(),
            waiters: Mutex::default(),
        };
        Engine {
            shared: Arc::new(shared),
        }
    }

    /// Works on runs, if that is the role of this process, until [`Engine::stop`] is called and everything has been
    /// handed back.
    pub async fn run(&self) {
        runner::run(self.shared.clone()).await;
    }

    /// Stops claiming, lets running actions finish for the grace period, hands the rest back. [`Engine::run`] returns then.
    pub fn stop(&self) {
        self.shared.stopping.cancel();
    }

    /// Waits until others know that this process lives. Before that it takes no runs. [`Engine::run`] must have begun.
    pub async fn ready(&self) {
        self.shared.lease_gate.begun().await;
    }

    /// Whether it was told to stop.
    pub fn is_stopping(&self) -> bool {
        self.shared.stopping.is_cancelled()
    }

    /// Drops everything without a word to the store, as a crash would. For tests.
    pub fn crash(&self) {
        self.shared.abandon.cancel();
        self.shared.stopping.cancel();
    }

    /// Drafts, versions and compiled plans.
    pub fn workflows(&self) -> &Workflows {
        &self.shared.workflows
    }

    /// The catalog.
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

    /// Database time: what the engine's own times are compared with.
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Whether the store can write. For readiness; does not wait behind reads.
    ///
    /// # Errors
    /// Whatever the store says.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.shared.control.ping().await
    }

    /// How many runs this process holds.
    pub fn active_runs(&self) -> usize {
        self.shared.held().len()
    }

    /// Makes a run durable and starts it here if there is room.
    pub async fn start(&self, request: Request) -> Result<Accepted, EngineError> {
        let id = request.id.unwrap_or_else(|| RunId(self.shared.new_id()));
        self.start_as(id, request).await
    }

    async fn start_as(&self, id: RunId, request: Request) -> Result<Accepted, EngineError> {
        if let Some(request_id) = request.request_id.as_ref().filter(|id| id.starts_with("fermata:")) {
            return Err(Refusal::ReservedRequestId(request_id.clone()).into());
        }
        self.accept(id, request).await
    }

    /// Makes a run durable, also one that the engine itself asks for.
    pub(crate) async fn accept(&self, id: RunId, mut request: Request) -> Result<Accepted, EngineError> {
        if self.shared.stopping.is_cancelled() {
            return Err(EngineError::Stopping);
        }
        let offload = &self.shared.offload;
        let given = Given {
            trigger: Payload::new(std::mem::take(&mut request.trigger), offload).await,
            spec: match request.spec.take() {
                Some(spec) => Some(Payload::new(spec, offload).await),
                None => None,
            },
        };
        // What was believed of the workflow may be out of date; the store tells, and then the news is fetched.
        for refresh in [false, true, true, true] {
            if let Some(accepted) = self.enqueue(id, &request, &given, refresh).await? {
                return Ok(accepted);
            }
        }
        Err(Refusal::KeepsChanging(request.workflow_id).into())
    }

    /// `None` if the workflow changed meanwhile.
    async fn enqueue(
        &self,
        id: RunId,
        request: &Request,
        given: &Given,
        refresh: bool,
    ) -> Result<Option<Accepted>, EngineError> {
        let shared = &self.shared;
        let head = shared.workflows.head(&request.workflow_id, refresh).await?;
        let is_draft = head.status == Lifecycle::Draft && shared.settings.allow_draft_execution;
        let version = match request.version {
            None if is_draft => match shared.workflows.snapshot(&head).await? {
                Some(version) => Some(version),
                None => return Ok(None),
            },
            asked => asked.or(head.current_version).filter(|_| head.runs() || is_draft),
        };
        let compiled = match version {
            Some(version) => Some(shared.workflows.compiled(head.uid, &head.id, version).await?),
            None => None,
        };
        if let Some(compiled) = &compiled
            && let Err(refusal) = check_trigger(
                &shared.offload,
                compiled,
                &given.trigger.value,
                given.trigger.text.len(),
            )
            .await
        {
            // What is believed of the workflow may be old, and its schema with it.
            if !refresh {
                return Ok(None);
            }
            // The same request may have been accepted before the schema changed.
            let existing = self.repeated(request, &head).await?;
            return existing.map(Some).ok_or_else(|| refusal.into());
        }
        let mut new = new_run(id, request, given, &head, version.unwrap_or(0), shared);
        new.pinned |= is_draft;
        let local_start = compiled.and_then(|compiled| self.prepare_local_start(&mut new, compiled, given));
        let memory = request.memory.clone();
        let (status, answer) = match local_start {
            None => (Status::Pending, shared.enqueue_to_the_end(new, memory).await?),
            Some(driver) => (Status::Running, driver.store_and_drive(new, memory).await?),
        };
        match answer {
            Enqueued::Created => Ok(Some(Accepted {
                run: id,
                status,
                created: true,
            })),
            Enqueued::Existing { run, status } => Ok(Some(Accepted {
                run,
                status,
                created: false,
            })),
            Enqueued::OtherWorkflow { run, workflow_id } => Err(Refusal::RequestIdTaken {
                request_id: request.request_id.clone().unwrap_or_default(),
                run,
                is_deleted: workflow_id == head.id,
                owner: workflow_id,
            }
            .into()),
            Enqueued::Stale if refresh && !head.runs() && !is_draft => Err(Refusal::NotActive {
                workflow: head.id,
                status: head.status,
                enabled: head.enabled,
            }
            .into()),
            Enqueued::Stale => Ok(None),
        }
    }

    /// The run that was asked for with the same requestId before.
    async fn repeated(&self, request: &Request, head: &Head) -> Result<Option<Accepted>, EngineError> {
        let Some(request_id) = &request.request_id else {
            return Ok(None);
        };
        let filter = RunFilter {
            request_id: Some(request_id.clone()),
            tenant: Some(request.tenant.clone()),
            limit: 1,
            ..RunFilter::default()
        };
        let Some(run) = self.shared.store.runs(filter).await?.items.pop() else {
            return Ok(None);
        };
        if run.workflow_uid != head.uid {
            return Err(Refusal::RequestIdTaken {
                request_id: request_id.clone(),
                run: run.id,
                is_deleted: run.workflow_id == head.id,
                owner: run.workflow_id,
            }
            .into());
        }
        Ok(Some(Accepted {
            run: run.id,
            status: run.status,
            created: false,
        }))
    }

    /// If this process works and has room, the run is born held by this process, with its first step already decided.
    fn prepare_local_start(&self, new: &mut NewRun, compiled: Arc<Compiled>, given: &Given) -> Option<Driver> {
        let shared = &self.shared;
        let behalf = Behalf {
            tenant: &new.tenant,
            workflow: &new.workflow_id,
            priority: 0,
        };
        if !shared.can_start_here(behalf) || shared.stopping.is_cancelled() {
            return None;
        }
        let spec = given.spec.as_ref().map_or(0, |spec| memory::size(&spec.value));
        let size = memory::size(&given.trigger.value) + spec;
        let share = shared.payloads.try_take(size)?;
        let mut run = Run::new(compiled.plan.clone());
        let vars = Value::Object(shared.settings.vars.clone());
        let events = advance(&mut run, Input::new(new.created_at, Fact::Start { vars })).ok()?;
        let mut waits = shared.wait_tokens(&run);
        waits.extend(events.iter().filter_map(|event| wait_limit(&run, event)));
        new.local_start = Some(LocalStart {
            runner: shared.runner.id,
            events,
            started_at: new.created_at,
            waits,
        });
        let meta = Meta::of_new(new);
        let spec = given.spec.as_ref();
        let bytes = given.trigger.text.len() + spec.map_or(0, |spec| spec.text.len());
        let spec = spec.map(|spec| spec.value.clone());
        let mut payloads = crate::scope::Payloads::new(given.trigger.value.clone(), spec, bytes).counted(share);
        let tokens = new.local_start.iter().flat_map(|local_start| &local_start.waits);
        let tokens = tokens.filter_map(|change| match change {
            WaitChange::Open { node, token } => Some((node, token.as_str())),
            WaitChange::Limit { .. } | WaitChange::Close { .. } => None,
        });
        payloads.learn_waits(tokens, &shared.settings.public_url);
        Some(Driver::for_new_run(shared.clone(), meta, compiled, run, payloads))
    }

    /// Answers the wait behind a callback's token. Durable when this returns; the run is woken at once.
    pub async fn answer(&self, token: &str, payload: &str) -> Result<Answer, EngineError> {
        let now = self.shared.clock.now();
        Ok(self.shared.store.answer(token, payload, now).await?)
    }

    /// Asks a run to stop. A run that is over stays as it is.
    pub async fn cancel(&self, run: RunId, reason: &str) -> Result<Status, EngineError> {
        let letter = InboxMessage::Cancel {
            reason: reason.to_owned(),
        };
        match self.shared.store.deliver(run, letter, self.shared.clock.now()).await? {
            Delivery::NotFound => Err(Refusal::RunNotFound(run).into()),
            Delivery::Terminal { status } | Delivery::Delivered { status } => Ok(status),
        }
    }
}

/// A JSON value and its text.
struct Payload {
    value: Arc<Value>,
    text: String,
}

impl Payload {
    async fn new(value: Value, offload: &Offload) -> Payload {
        let value = Arc::new(value);
        let text = offload.to_text(value.clone()).await;
        Payload { value, text }
    }
}

/// What a run is given.
struct Given {
    trigger: Payload,
    spec: Option<Payload>,
}

/// Checks a trigger against the schema of its workflow; off the async workers if that may take long.
pub(crate) async fn check_trigger(
    offload: &Offload,
    compiled: &Arc<Compiled>,
    trigger: &Arc<Value>,
    bytes: usize,
) -> Result<(), Refusal> {
    let Some(schema) = &compiled.trigger else {
        return Ok(());
    };
    let problems = match schema.is_complex || bytes > LARGE {
        false => schema.check(trigger),
        true => {
            let (compiled, trigger) = (compiled.clone(), trigger.clone());
            let check = move || compiled.trigger.as_ref().map(|schema| schema.check(&trigger));
            offload.elsewhere(check).await.unwrap_or_default()
        }
    };
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Refusal::InvalidTrigger {
            workflow: compiled.plan.workflow.clone(),
            problems,
        }),
    }
}

/// From when on a wait that opens takes no answer: when its own time is up, or the run's.
pub(crate) fn wait_limit(run: &Run, event: &Event) -> Option<WaitChange> {
    let Event::Opened { node, until, .. } = event else {
        return None;
    };
    let ix = run.plan().find(node.as_str())?;
    if !matches!(run.plan().node(ix).kind, fermata_core::Kind::Wait { .. }) {
        return None;
    }
    let deadline = until.iter().copied().chain(run.deadline()).min()?;
    Some(WaitChange::Limit {
        node: node.clone(),
        deadline,
    })
}

fn new_run(id: RunId, request: &Request, given: &Given, head: &Head, version: u32, shared: &Shared) -> NewRun {
    NewRun {
        id,
        workflow_uid: head.uid,
        workflow_id: head.id.clone(),
        workflow_version: version,
        pinned: request.version.is_some(),
        tenant: request.tenant.clone(),
        request_id: request.request_id.clone().unwrap_or_else(|| Uuid::now_v7().to_string()),
        trigger: given.trigger.text.clone(),
        spec: given.spec.as_ref().map(|spec| spec.text.clone()),
        priority: request.priority,
        correlation_id: request.correlation_id.clone(),
        principal: request.principal.clone(),
        parent: None,
        created_at: shared.clock.now(),
        local_start: None,
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Randomness for retry delays: a splitmix64 sequence.
    pub fn jitter(&self) -> u32 {
        let mut z = self.rng.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32
    }

    /// An id whose time is the database's: lists are in the order of ids.
    pub fn new_id(&self) -> Uuid {
        let now = u64::try_from(self.clock.now().0).unwrap_or_default();
        let (seconds, nanos) = (now / 1_000_000, (now % 1_000_000) as u32 * 1000);
        Uuid::new_v7(uuid::Timestamp::from_unix(&*lock(&self.ids), seconds, nanos))
    }

    /// A token for every wait of a run that starts: callbacks have an address before their node opens.
    pub fn wait_tokens(&self, run: &Run) -> Vec<WaitChange> {
        let waits = run
            .plan()
            .nodes
            .iter()
            .filter(|node| matches!(node.kind, fermata_core::Kind::Wait { .. }));
        waits
            .map(|node| WaitChange::Open {
                node: node.id.clone(),
                token: format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()),
            })
            .collect()
    }

    /// Stores a new run, also if the caller stops waiting: what waits for the database stays counted.
    async fn enqueue_to_the_end(
        self: &Arc<Self>,
        run: NewRun,
        memory: Option<Arc<Share>>,
    ) -> Result<Enqueued, StoreError> {
        let shared = self.clone();
        let stored = tokio::spawn(async move {
            let stored = shared.enqueue(run).await;
            drop(memory);
            stored
        });
        stored.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Stores a new run. If the outcome is unknown, the same run is sent again until it is known, or for a while. A store
    /// that took long to say so has tried what there is to try.
    pub async fn enqueue(&self, run: NewRun) -> Result<Enqueued, StoreError> {
        let id = run.id;
        let mut uncertain = false;
        let until = Instant::now() + SENT_AGAIN_FOR;
        let mut pauses = [10, 50, 250, 1000].into_iter();
        loop {
            match (self.store.enqueue(run.clone()).await, pauses.next()) {
                (Ok(Enqueued::Existing { run, .. }), _) if uncertain && run == id => return Ok(Enqueued::Created),
                (Ok(answer), _) => return Ok(answer),
                (Err(StoreError::Unknown(_)), Some(pause)) if Instant::now() < until => {
                    uncertain = true;
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
                // It was unknown before, and still is.
                (Err(error), _) if uncertain => return Err(StoreError::Unknown(error.to_string())),
                (Err(error), _) => return Err(error),
            }
        }
    }
}
