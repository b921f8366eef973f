//! Starting runs: a request becomes a durable run.
//!
//! | this process works and has a place | what is stored | who drives it |
//! | --- | --- | --- |
//! | yes | the run with its first step and a lease of this process (`LocalStart`) | a driver here, at once |
//! | no, or it has to wait (`flow.rs`), or nodes end with its start | the run as `Pending` | the process that claims it |
//!
//! What must stay true: a run whose outcome in the store is unknown is sent again with the same id, so it exists once.

use super::{
    Accepted, Engine, Request, Shared,
    children::{ChildOf, StartError},
};
use crate::{
    clock::until,
    compiled::Compiled,
    driver::{Driver, Meta},
    error::{EngineError, Refusal},
    flow::{KeyError, Subject},
    memory::{self, Share},
    offload::Offload,
    scope::Payloads,
    search_fields::fields_of,
    slots::Behalf,
    trigger::check_trigger,
    wait_rows::{is_wait, wait_changes, wait_tokens},
    workflows::Head,
};
use fermata_core::{Event, Fact, Input, Reused, Run, RunId, Status, advance};
use fermata_store::{
    StoreError,
    definitions::Lifecycle,
    flow::Flow,
    reads::RunFilter,
    runs::{Enqueued, LocalStart, NewRun, WaitChange},
    usage::{month_of, next_month},
};
use futures::{FutureExt, future::BoxFuture};
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;
use uuid::Uuid;

/// How long a run whose outcome is unknown is sent again while its caller waits.
const SENT_AGAIN_FOR: Duration = Duration::from_secs(5);

/// Refuses a requestId that is reserved for the engine.
pub(crate) fn check_request_id(request_id: Option<&str>) -> Result<(), Refusal> {
    match request_id.filter(|id| id.starts_with("fermata:")) {
        Some(id) => Err(Refusal::ReservedRequestId(id.to_owned())),
        None => Ok(()),
    }
}

impl Engine {
    /// Makes a run durable, and starts it in this process if there is a place for it.
    pub async fn start(&self, request: Request) -> Result<Accepted, EngineError> {
        let id = request.id.unwrap_or_else(|| RunId(self.shared.ids.next()));
        self.start_as(id, request).await
    }

    pub(super) async fn start_as(&self, id: RunId, request: Request) -> Result<Accepted, EngineError> {
        check_request_id(request.request_id.as_deref())?;
        self.accept(id, request).await
    }

    /// Makes a run durable. The engine's own requests, with reserved requestIds, are accepted too.
    pub(crate) async fn accept(&self, id: RunId, request: Request) -> Result<Accepted, EngineError> {
        self.accept_with(id, request, None).await.map_err(|error| match error {
            NotAccepted::Engine(error) => error,
            NotAccepted::ParentLost => EngineError::Stopping,
        })
    }

    /// Makes a child run durable.
    pub(super) async fn accept_child(
        &self,
        id: RunId,
        request: Request,
        parent: ChildOf,
    ) -> Result<Accepted, StartError> {
        self.accept_with(id, request, Some(parent))
            .await
            .map_err(|error| match error {
                NotAccepted::Engine(error) => error.into(),
                NotAccepted::ParentLost => StartError::Lost,
            })
    }

    /// On the heap, because it is large and its callers would move it several times.
    fn accept_with(
        &self,
        id: RunId,
        request: Request,
        parent: Option<ChildOf>,
    ) -> BoxFuture<'_, Result<Accepted, NotAccepted>> {
        self.accept_unboxed(id, request, parent).boxed()
    }

    async fn accept_unboxed(
        &self,
        id: RunId,
        mut request: Request,
        parent: Option<ChildOf>,
    ) -> Result<Accepted, NotAccepted> {
        if self.shared.shutdown.is_stopping() {
            return Err(EngineError::Stopping.into());
        }
        if parent.is_none()
            && let Err(error) = self.check_month(&request.tenant).await
        {
            return Ok(self.known_or(&request, error).await?);
        }
        let offload = &self.shared.offload;
        let inputs = Inputs {
            trigger: Payload::new(std::mem::take(&mut request.trigger), offload).await,
            spec: match request.spec.take() {
                Some(spec) => Some(Payload::new(spec, offload).await),
                None => None,
            },
            request: match request.request.take() {
                Some(request) => Some(Payload::new(request, offload).await),
                None => None,
            },
        };
        // The cached workflow may be out of date. The store checks that, and then the workflow is read again.
        for refresh in [false, true, true, true] {
            if let Some(accepted) = self.enqueue(id, &request, &inputs, parent.as_ref(), refresh).await? {
                return Ok(accepted);
            }
        }
        Err(EngineError::from(Refusal::KeepsChanging(request.workflow_id)).into())
    }

    /// `None` if the workflow changed since it was read.
    async fn enqueue(
        &self,
        id: RunId,
        request: &Request,
        inputs: &Inputs,
        parent: Option<&ChildOf>,
        refresh: bool,
    ) -> Result<Option<Accepted>, NotAccepted> {
        let shared = &self.shared;
        let workflows = match request.lookup_tenant.as_deref() {
            Some(tenant) => shared.workflows.named_by(tenant),
            None => shared.workflows.of(&request.tenant),
        };
        let head = workflows.head(&request.workflow_id, refresh).await?;
        if parent.is_none() && !refresh {
            self.count_start(&request.tenant, &head)?;
        }
        let is_draft = head.status == Lifecycle::Draft && shared.settings.allow_draft_execution;
        let version = match request.version {
            None if is_draft => match workflows.snapshot(&head).await? {
                Some(version) => Some(version),
                None => return Ok(None),
            },
            requested => requested.or(head.current_version).filter(|_| head.runs() || is_draft),
        };
        let compiled = match version {
            Some(version) => Some(workflows.compiled(head.uid, &head.id, version).await?),
            None => None,
        };
        let rerun = request.rerun.as_deref();
        let compiled = match (compiled, rerun) {
            (Some(compiled), Some(repeated)) => {
                let edited = shared.workflows.with_edits(&compiled, &repeated.rerun);
                let refused = |(pointer, what)| EngineError::from(Refusal::InvalidRerun { pointer, what });
                Some(edited.map_err(refused)?)
            }
            (compiled, _) => compiled,
        };
        let filled = match &compiled {
            Some(compiled) => inputs.with_defaults(compiled, &shared.offload).await,
            None => None,
        };
        let inputs = filled.as_ref().unwrap_or(inputs);
        if let Some(compiled) = &compiled
            && let Err(refusal) = check_trigger(
                &shared.offload,
                compiled,
                &inputs.trigger.value,
                inputs.trigger.text.len(),
            )
            .await
        {
            // The cached workflow, and its schema with it, may be out of date.
            if !refresh {
                return Ok(None);
            }
            // The same request may have been accepted before the schema changed.
            let existing = self.repeated(request, &head).await?;
            return existing.map(Some).ok_or_else(|| EngineError::from(refusal).into());
        }
        let mut new = new_run(id, request, inputs, &head, version.unwrap_or(0), shared);
        new.pinned |= is_draft;
        new.parent = parent.map(|child| child.parent.clone());
        new.rerun = rerun.map(|repeated| Box::new(repeated.stored()));
        if let Some(compiled) = &compiled {
            new.flow = match self.flow_of_new(&new, compiled, inputs, parent) {
                Ok(flow) => flow,
                // The cached workflow may be out of date.
                Err(_) if !refresh => return Ok(None),
                Err(KeyError { rule, why }) => {
                    let workflow = head.id.clone();
                    let refusal = Refusal::InvalidFlowKey { workflow, rule, why };
                    let existing = self.repeated(request, &head).await?;
                    return existing.map(Some).ok_or_else(|| EngineError::from(refusal).into());
                }
            };
        }
        let awaits_other =
            parent.filter(|child| child.parent.waits && new.flow.as_ref().is_some_and(|flow| flow.unique.is_some()));
        let is_delayed = new.flow.as_ref().is_some_and(|flow| flow.debounce.is_some());
        if let Some(delivery) = new.delivery.as_mut().filter(|_| is_delayed) {
            // A later start replaces the payload of the run.
            delivery.payload = Some(new.trigger.clone());
            delivery.request.clone_from(&new.request);
        }
        // The payload of a delayed run may still change; its fields are set when it begins.
        if let Some(compiled) = compiled.as_ref().filter(|_| !is_delayed) {
            new.fields = fields_of(&compiled.plan, &inputs.trigger.value);
        }
        let compiled = compiled.filter(|_| !is_delayed);
        let local_start = compiled.and_then(|compiled| {
            let reused = rerun.and_then(|repeated| repeated.rerun.reused.clone());
            self.prepare_local_start(&mut new, compiled, inputs, reused)
        });
        let memory = request.memory.clone();
        let (status, answer) = match local_start {
            None => (Status::Pending, shared.enqueue_to_the_end(new, memory).await?),
            Some(driver) => {
                let stored = driver.store_and_drive(new, memory).await;
                (Status::Running, stored.unwrap_or(Err(StoreError::Closed))?)
            }
        };
        match answer {
            Enqueued::Created => Ok(Some(Accepted {
                run: id,
                workflow_uid: head.uid,
                status,
                created: true,
            })),
            Enqueued::Waiting => Ok(Some(Accepted {
                run: id,
                workflow_uid: head.uid,
                status: Status::Pending,
                created: true,
            })),
            Enqueued::Full => Err(EngineError::from(Refusal::ConcurrencyLimit { workflow: head.id }).into()),
            // The parent of an awaited child waits for its own child only.
            Enqueued::Existing { run, .. }
                if awaits_other.is_some() && !self.is_child_of(run, awaits_other).await? =>
            {
                let workflow = head.id;
                Err(EngineError::from(Refusal::UniqueKeyTaken { workflow, run }).into())
            }
            Enqueued::Existing { run, status } => Ok(Some(Accepted {
                run,
                workflow_uid: head.uid,
                status,
                created: false,
            })),
            Enqueued::OtherWorkflow { run, workflow_id } => Err(EngineError::from(Refusal::RequestIdTaken {
                request_id: request.request_id.clone().unwrap_or_default(),
                run,
                is_same_name: workflow_id == head.id,
                owner: workflow_id,
            })
            .into()),
            Enqueued::Stale if refresh && !head.runs() && !is_draft => Err(EngineError::from(Refusal::NotActive {
                workflow: head.id,
                status: head.status,
                enabled: head.enabled,
            })
            .into()),
            Enqueued::ParentLost => Err(NotAccepted::ParentLost),
            Enqueued::SourceLost => {
                let source = rerun.map_or(id, |repeated| repeated.source.run);
                Err(EngineError::from(Refusal::RunNotFound(source)).into())
            }
            Enqueued::Stale => Ok(None),
        }
    }

    /// How a new run is limited.
    fn flow_of_new(
        &self,
        new: &NewRun,
        compiled: &Compiled,
        inputs: &Inputs,
        parent: Option<&ChildOf>,
    ) -> Result<Option<Box<Flow>>, KeyError> {
        let subject = Subject {
            tenant: &new.tenant,
            workflow: new.workflow_uid,
            version: new.workflow_version,
            trigger: &inputs.trigger.value,
            spec: inputs.spec.as_ref().map(|spec| &*spec.value),
            shares: parent.map_or(&[], |child| &*child.shares),
        };
        let mut flow = self.shared.settings.flow_of(compiled, &subject)?;
        // No later start would be merged into a child that its parent waits for, nor into a rerun, which keeps outputs of its own
        // trigger.
        let is_apart = new.rerun.is_some() || parent.is_some_and(|child| child.parent.waits);
        if let Some(flow) = flow.as_mut().filter(|_| is_apart) {
            flow.debounce = None;
        }
        Ok(flow.filter(|flow| !flow.is_empty()))
    }

    async fn is_child_of(&self, run: RunId, parent: Option<&ChildOf>) -> Result<bool, EngineError> {
        let found = self.shared.store.run(run).await?;
        let of = found.and_then(|run| run.parent);
        Ok(of.is_some() && of == parent.map(|child| child.parent.run))
    }

    /// Refuses a start if the tenant has used up its month.
    async fn check_month(&self, tenant: &str) -> Result<(), EngineError> {
        let Some(tier) = self.shared.settings.tiers.of(tenant) else {
            return Ok(());
        };
        let Some(limit) = tier.executions_per_month else {
            return Ok(());
        };
        let now = self.shared.clock.now();
        if self.shared.store.usage(tenant, month_of(now)).await? < limit {
            return Ok(());
        }
        let left = until(now, next_month(now)).as_secs() + 1;
        Err(Refusal::MonthlyLimit {
            tier: tier.name.clone(),
            limit,
            retry_after: u32::try_from(left).unwrap_or(u32::MAX),
        }
        .into())
    }

    /// Counts a start, or refuses it if there were too many.
    fn count_start(&self, tenant: &str, head: &Head) -> Result<(), EngineError> {
        let Some(limiter) = &self.shared.execution_rate else {
            return Ok(());
        };
        let allowance = limiter.count(&(tenant.to_owned(), head.uid), std::time::Instant::now());
        match allowance.retry_after {
            None => Ok(()),
            Some(_) => Err(Refusal::RateLimited {
                workflow: head.id.clone(),
                allowance,
            }
            .into()),
        }
    }

    /// The run of an earlier request with the same requestId, else this refusal. A client whose response was lost asks again, also
    /// when nothing new may start.
    async fn known_or(&self, request: &Request, error: EngineError) -> Result<Accepted, EngineError> {
        if request.request_id.is_none() || !matches!(error, EngineError::Refused(_)) {
            return Err(error);
        }
        let workflows = self.shared.workflows.of(&request.tenant);
        let head = workflows.head(&request.workflow_id, false).await?;
        self.repeated(request, &head).await?.ok_or(error)
    }

    /// The run of an earlier request with the same requestId.
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
                is_same_name: run.workflow_id == head.id,
                owner: run.workflow_id,
            }
            .into());
        }
        Ok(Some(Accepted {
            run: run.id,
            workflow_uid: run.workflow_uid,
            status: run.status,
            created: false,
        }))
    }

    /// If this process works and has a place, the run is created with a lease of this process and its first step decided.
    fn prepare_local_start(
        &self,
        new: &mut NewRun,
        compiled: Arc<Compiled>,
        inputs: &Inputs,
        reused: Option<Box<Reused>>,
    ) -> Option<Box<Driver>> {
        let shared = &self.shared;
        let behalf = Behalf {
            tenant: &new.tenant,
            workflow: &new.workflow_id,
            priority: 0,
        };
        if !shared.admission.can_start_here(behalf) || shared.shutdown.is_stopping() {
            return None;
        }
        let spec = inputs.spec.as_ref().map_or(0, |spec| memory::size(&spec.value));
        let size = memory::size(&inputs.trigger.value) + spec;
        let share = shared.admission.payloads.try_take(size)?;
        let mut run = Run::new(compiled.plan.clone());
        let vars = Value::Object(shared.settings.vars.clone());
        let meta = Meta {
            reused: reused.clone(),
            ..Meta::of_new(new)
        };
        let timeout_ms = meta.timeout_ms(&compiled.plan, &shared.settings);
        let mut waits = wait_tokens(&run, reused.as_deref());
        let start = Fact::Start {
            vars,
            timeout_ms,
            reused: reused.clone(),
        };
        let events = advance(&mut run, Input::new(new.created_at, start)).ok()?;
        // Nodes that end with the start have rows of their own, which only the commits of a driver write.
        let ends = |event: &Event| {
            use Event::{Ended, Finished, Skipped, Stopping};
            matches!(event, Finished { .. } | Skipped { .. } | Stopping { .. } | Ended { .. })
        };
        if events.iter().any(ends) {
            return None;
        }
        waits.extend(events.iter().flat_map(|event| wait_changes(&run, event)));
        let spec = inputs.spec.as_ref();
        let bytes = inputs.trigger.text.len() + spec.map_or(0, |spec| spec.text.len());
        let spec = spec.map(|spec| spec.value.clone());
        let request = inputs.request.as_ref().map(|request| request.value.clone());
        let mut payloads = Payloads::new(inputs.trigger.value.clone(), spec, bytes)
            .started_by(request)
            .counted(share);
        let tokens = waits.iter().filter_map(|change| match change {
            WaitChange::Open { node, token, .. } if is_wait(run.plan(), node) => Some((node, token.as_str())),
            _ => None,
        });
        payloads.learn_waits(tokens, reused.as_deref(), &shared.settings.public_url);
        new.local_start = Some(LocalStart {
            runner: shared.runner.id,
            events,
            started_at: new.created_at,
            waits: waits.clone(),
        });
        let mut driver = Driver::for_new_run(shared.clone(), meta, compiled, run, payloads);
        driver.learn_tokens(&waits);
        Some(driver)
    }
}

/// Why a run was not accepted.
enum NotAccepted {
    Engine(EngineError),
    /// The parent of a child run is over, or this process no longer holds it.
    ParentLost,
}

impl From<EngineError> for NotAccepted {
    fn from(error: EngineError) -> NotAccepted {
        NotAccepted::Engine(error)
    }
}

impl From<StoreError> for NotAccepted {
    fn from(error: StoreError) -> NotAccepted {
        NotAccepted::Engine(error.into())
    }
}

/// A JSON value and its text.
#[derive(Clone)]
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

/// The payloads of a request.
struct Inputs {
    trigger: Payload,
    spec: Option<Payload>,
    /// What expressions see as `request`.
    request: Option<Payload>,
}

impl Inputs {
    /// The payloads with the plan's defaults for members that the trigger lacks; `None` if it lacks none.
    async fn with_defaults(&self, compiled: &Compiled, offload: &Offload) -> Option<Inputs> {
        let defaults = compiled.plan.trigger_defaults.as_ref()?;
        let given = self.trigger.value.as_object()?;
        if defaults.keys().all(|name| given.contains_key(name)) {
            return None;
        }
        let mut trigger = given.clone();
        for (name, value) in defaults {
            trigger.entry(name.as_str()).or_insert_with(|| value.clone());
        }
        Some(Inputs {
            trigger: Payload::new(Value::Object(trigger), offload).await,
            spec: self.spec.clone(),
            request: self.request.clone(),
        })
    }
}

fn new_run(id: RunId, request: &Request, inputs: &Inputs, head: &Head, version: u32, shared: &Shared) -> NewRun {
    NewRun {
        id,
        workflow_uid: head.uid,
        workflow_id: head.id.clone(),
        workflow_version: version,
        pinned: request.version.is_some(),
        tenant: request.tenant.clone(),
        request_id: request.request_id.clone().unwrap_or_else(|| Uuid::now_v7().to_string()),
        trigger: inputs.trigger.text.clone(),
        spec: inputs.spec.as_ref().map(|spec| spec.text.clone()),
        request: inputs.request.as_ref().map(|request| request.text.clone()),
        delivery: request.delivery.clone(),
        priority: request.priority,
        correlation_id: request.correlation_id.clone(),
        traceparent: request.traceparent.map(|context| context.to_string()),
        principal: request.principal.clone(),
        parent: None,
        rerun: None,
        created_at: shared.clock.now(),
        flow: None,
        fields: Vec::new(),
        local_start: None,
    }
}

/// The answer to a run that an earlier try has stored: one that is still `Pending` is not held.
pub(crate) fn stored_before(status: Status) -> Enqueued {
    match status {
        Status::Pending => Enqueued::Waiting,
        _ => Enqueued::Created,
    }
}

impl Shared {
    /// Stores a new run, also if the caller stops waiting: its memory stays counted until the store has answered.
    async fn enqueue_to_the_end(
        self: &Arc<Self>,
        run: NewRun,
        memory: Option<Arc<Share>>,
    ) -> Result<Enqueued, StoreError> {
        let shared = self.clone();
        let stored = tokio::spawn(async move {
            let stored = shared.enqueue(&run).await;
            drop(memory);
            stored
        });
        stored.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Stores a new run. While the outcome is unknown, the same run is sent again, for at most `SENT_AGAIN_FOR`. A store that
    /// needed longer than that for its answer has retried itself.
    pub async fn enqueue(&self, run: &NewRun) -> Result<Enqueued, StoreError> {
        let id = run.id;
        let mut uncertain = false;
        let until = Instant::now() + SENT_AGAIN_FOR;
        let mut pauses = [10, 50, 250, 1000].into_iter();
        loop {
            match (self.store.enqueue(run.clone()).await, pauses.next()) {
                (Ok(Enqueued::Existing { run, status }), _) if uncertain && run == id => {
                    return Ok(stored_before(status));
                }
                (Ok(answer), _) => return Ok(answer),
                (Err(StoreError::Unknown(_)), Some(pause)) if Instant::now() < until => {
                    uncertain = true;
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
                // An earlier try may have stored the run.
                (Err(error), _) if uncertain => return Err(StoreError::Unknown(error.to_string())),
                (Err(error), _) => return Err(error),
            }
        }
    }
}
