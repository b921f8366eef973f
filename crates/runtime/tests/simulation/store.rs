//! A store with faults, in front of a memory store that all processes share.

use super::{
    scenario::CommitFault,
    world::{Life, World},
};
use async_trait::async_trait;
use fermata_core::{NodeId, RunId, RunnerId, Timestamp};
use fermata_store::{
    ChangeHint, Result, Store, StoreError,
    audit::{AuditFilter, AuditPage, AuditRow, AuditStore},
    bulk::{BulkChange, BulkItem, BulkJob, BulkStep, ItemState},
    callbacks::{CallbackFilter, CallbackStore, RegisteredCallback, Registration},
    children::{AwaitedChild, ChildStore, EndedChild, NodeAttempt},
    dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterStore},
    definitions::{
        Activation, Definition, Deleted, Draft, DraftGuard, DraftRule, Enablement, Published, Release, Released, Saved,
        VersionRow, Workflow, WorkflowFilter, WorkflowStore,
    },
    inbox::{
        FoundWait, Heartbeat, InboxStore, ItemAnswer, ItemClaim, ItemFilter, ItemHeartbeat, ItemPage, StoredItem,
        WaitRef,
    },
    keys::{ApiKey, KeyFilter, KeyStore},
    memory::MemoryStore,
    reads::{EventRecord, LinkRecord, Page, QueueDepth, ReadStore, RunFilter, RunPage, RunPosition, RunRecord, Window},
    retention::{PruneBatch, Pruned, RetentionStore, RunDeletion},
    runners::{Lease, Runner, RunnerRecord, RunnerStore},
    runs::{
        Answer, Attempt, Claim, Claimed, CommitAnswer, Conflict, Delivery, Enqueued, NewRun, RunCommit, RunMessage,
        RunStore, StoredMessage, StoredRun, Then, WaitRecord,
    },
    triggers::{
        Delivered, DeliveryFilter, Fire, Recorded, Settled, StoredEvent, Trigger, TriggerDelivery, TriggerFilter,
        TriggerWork,
    },
};
use std::{sync::Arc, time::Duration};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The largest number of crashes for each seed, so that it ends.
const MAX_CRASHES: u32 = 12;

/// The store of one process.
pub struct FaultyStore {
    pub memory: MemoryStore,
    pub world: Arc<World>,
    pub life: Life,
    /// Set when the process has crashed: its calls never return.
    pub died: CancellationToken,
}

impl FaultyStore {
    /// Delays a call, or never returns if the process has crashed.
    async fn arrive(&self) {
        self.stay_if_dead().await;
        let pause = {
            let mut inner = self.world.lock();
            let slow = inner.rough && inner.rng.chance(self.world.scenario.rates.slow);
            slow.then(|| {
                if inner.rng.chance(100) {
                    inner.rng.between(500, 4000)
                } else {
                    inner.rng.between(1, 60)
                }
            })
        };
        if let Some(millis) = pause {
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        self.stay_if_dead().await;
    }

    async fn stay_if_dead(&self) {
        if self.died.is_cancelled() || !self.world.count_call() {
            std::future::pending::<()>().await;
        }
    }

    async fn die(&self) {
        self.world.crash(self.life);
        std::future::pending::<()>().await;
    }

    /// The fault at this write of a run.
    fn next_fault(&self) -> Option<CommitFault> {
        let mut inner = self.world.lock();
        let index = inner.writes;
        inner.writes += 1;
        if let Some((at, commit_fault)) = self.world.scenario.commit_fault {
            return (at == index).then_some(commit_fault);
        }
        if !inner.rough {
            return None;
        }
        let rates = self.world.scenario.rates;
        let mut left = inner.rng.below(1000);
        let crashes = inner.crashes < MAX_CRASHES;
        let kept = inner.rng.chance(300);
        let odds = [
            (rates.crash_before * u64::from(crashes), CommitFault::CrashBefore),
            (rates.crash_after * u64::from(crashes), CommitFault::CrashAfter),
            (rates.unknown_applied, CommitFault::UnknownApplied),
            (rates.unknown_lost, CommitFault::UnknownLost),
            (
                rates.fenced,
                if kept {
                    CommitFault::FencedAndKept
                } else {
                    CommitFault::Fenced
                },
            ),
            (rates.conflict, CommitFault::Conflict),
        ];
        for (odd, commit_fault) in odds {
            if left < odd {
                return Some(commit_fault);
            }
            left -= odd;
        }
        None
    }

    /// Reads fail sometimes.
    async fn read(&self, what: &str) -> Result<()> {
        self.arrive().await;
        self.maybe(self.world.scenario.rates.read_error, what)
    }

    fn maybe(&self, permille: u64, what: &str) -> Result<()> {
        let now = self.world.now();
        let mut inner = self.world.lock();
        if inner.rough && inner.rng.chance(permille) {
            inner.count("read error");
            inner.note(now, || format!("{what} fails for {}", self.life));
            return Err(StoreError::Failed(format!("{what} fails by lot")));
        }
        Ok(())
    }

    /// Whether the answer to an executed claim is lost.
    fn loses_claim(&self) -> bool {
        let now = self.world.now();
        let mut inner = self.world.lock();
        let lost = inner.rough && inner.rng.chance(self.world.scenario.rates.claim_lost);
        if lost {
            inner.count("claim lost");
            inner.note(now, || format!("{} does not learn what it claimed", self.life));
        }
        lost
    }

    /// Another runner takes the run over. It releases the run at once, or sends no heartbeat again.
    async fn take_over(&self, run: RunId, keep: bool) {
        let now = self.world.now();
        let thief = RunnerId(Uuid::from_u128(7));
        let claim = Claim {
            runner: thief,
            limit: 1,
            now,
            only: vec![run],
            dead_before: Some(Timestamp(i64::MAX)),
        };
        let Ok(claimed) = self.memory.claim(claim).await else {
            return;
        };
        self.world.claimed(&claimed, Life::MAX);
        for stored in claimed.runs.into_iter().filter(|_| !keep) {
            let commit = RunCommit {
                run,
                runner: thief,
                epoch: stored.epoch,
                seq: 0,
                at: now,
                events: Vec::new(),
                attempts: Vec::new(),
                links: Vec::new(),
                waits: Vec::new(),
                children_seen: Vec::new(),
                messages_seen: stored.messages_seen,
                status: None,
                dead_letter: None,
                usage: None,
                state: None,
                then: Then::Park { wake_at: Some(now) },
            };
            if let CommitAnswer::Committed { .. } = self.memory.commit(commit.clone()).await {
                self.world.committed(&commit, Life::MAX);
            }
        }
    }

    async fn apply_enqueue(&self, run: NewRun) -> Result<Enqueued> {
        let answer = self.memory.enqueue(run.clone()).await?;
        if answer == Enqueued::Created {
            self.world.created(&run, self.life);
        }
        Ok(answer)
    }

    async fn apply_commit(&self, commit: &RunCommit) -> CommitAnswer {
        self.world.interfere(commit).await;
        let answer = self.memory.commit(commit.clone()).await;
        if let CommitAnswer::Committed { .. } = answer {
            self.world.committed(commit, self.life);
            self.world.check_children_are_cancelled(commit.run).await;
        }
        self.world.interfere(commit).await;
        answer
    }
}

#[async_trait]
impl RetentionStore for FaultyStore {
    async fn prune(&self, batch: PruneBatch) -> Result<Pruned> {
        self.arrive().await;
        self.memory.prune(batch).await
    }

    async fn delete_run(&self, run: RunId) -> Result<RunDeletion> {
        self.arrive().await;
        self.memory.delete_run(run).await
    }
}

#[async_trait]
impl RunStore for FaultyStore {
    async fn enqueue(&self, run: NewRun) -> Result<Enqueued> {
        self.arrive().await;
        let fault = self.next_fault();
        self.world
            .note(|| format!("enqueue {} by {}: {fault:?}", run.request_id, self.life));
        self.world.count_fault(fault);
        match fault {
            Some(CommitFault::CrashBefore) => self.die().await,
            Some(CommitFault::CrashAfter) => {
                self.apply_enqueue(run.clone()).await?;
                self.die().await;
            }
            Some(CommitFault::UnknownApplied) => {
                self.apply_enqueue(run.clone()).await?;
                return Err(StoreError::Unknown("by lot".to_owned()));
            }
            Some(CommitFault::UnknownLost) => return Err(StoreError::Unknown("by lot".to_owned())),
            _ => {}
        }
        let answer = self.apply_enqueue(run).await;
        self.arrive().await;
        answer
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.arrive().await;
        self.maybe(self.world.scenario.rates.claim_error, "claim")?;
        let claimed = self.memory.claim(claim).await?;
        self.world.claimed(&claimed, self.life);
        if !claimed.runs.is_empty() && self.loses_claim() {
            return Err(StoreError::Unknown("the answer to a claim is lost by lot".to_owned()));
        }
        self.stay_if_dead().await;
        Ok(claimed)
    }

    async fn commit(&self, commit: RunCommit) -> CommitAnswer {
        self.arrive().await;
        let fault = self.next_fault();
        self.world.count_fault(fault);
        let unknown = CommitAnswer::Unknown("by lot".to_owned());
        {
            let now = self.world.now();
            let mut inner = self.world.lock();
            let short = inner.short(commit.run);
            inner.note(now, || {
                format!("commit {short} by {}: {fault:?} then {:?}", self.life, commit.then)
            });
        }
        match fault {
            None => {}
            Some(CommitFault::CrashBefore) => self.die().await,
            Some(CommitFault::CrashAfter) => {
                self.apply_commit(&commit).await;
                self.die().await;
            }
            Some(CommitFault::UnknownApplied) => {
                self.apply_commit(&commit).await;
                return unknown;
            }
            Some(CommitFault::UnknownLost) => return unknown,
            Some(CommitFault::Fenced) => self.take_over(commit.run, false).await,
            Some(CommitFault::FencedAndKept) => self.take_over(commit.run, true).await,
            Some(CommitFault::Conflict) => return CommitAnswer::Conflict(Conflict::Seq),
        }
        let answer = self.apply_commit(&commit).await;
        match &answer {
            CommitAnswer::Conflict(Conflict::Link { .. }) => self.world.lock().count("link conflict"),
            CommitAnswer::Conflict(Conflict::Answered { .. }) => self.world.lock().count("answered conflict"),
            CommitAnswer::Fenced => self.world.lock().count("fenced"),
            _ => {}
        }
        self.world.note(|| {
            let word = match &answer {
                CommitAnswer::Committed { message_seq } => format!("committed, message {message_seq}"),
                CommitAnswer::Conflict(Conflict::Link { link, .. }) => format!("link conflict {}", link.resource_id),
                other => format!("{other:?}"),
            };
            format!("answer: {word}")
        });
        // Between commit and act: the commit is durable, and its runner does not know yet.
        self.arrive().await;
        self.world.answered(commit.run);
        answer
    }

    async fn deliver(&self, run: RunId, message: RunMessage, at: Timestamp) -> Result<Delivery> {
        self.memory.deliver(run, message, at).await
    }

    async fn answer(&self, token: &str, payload: &str, by: Option<&str>, at: Timestamp) -> Result<Answer> {
        self.memory.answer(token, payload, by, at).await
    }

    async fn load(&self, run: RunId) -> Result<Option<StoredRun>> {
        self.read("load").await?;
        self.world.answered(run);
        self.memory.load(run).await
    }

    async fn messages(&self, run: RunId, after: u64) -> Result<Vec<StoredMessage>> {
        self.read("messages").await?;
        self.memory.messages(run, after).await
    }

    async fn waits(&self, run: RunId) -> Result<Vec<WaitRecord>> {
        self.read("waits").await?;
        self.memory.waits(run).await
    }

    async fn last_attempts(&self, run: RunId, nodes: &[NodeId]) -> Result<Vec<Attempt>> {
        self.read("last_attempts").await?;
        self.memory.last_attempts(run, nodes).await
    }

    async fn cached_state(&self, run: RunId) -> Result<Option<String>> {
        self.read("cached_state").await?;
        let cached = self.memory.cached_state(run).await?;
        if cached.is_some() {
            self.world.lock().count("cached state read");
        }
        Ok(cached)
    }

    async fn attempt(&self, run: RunId, node: &NodeId, attempt: u32) -> Result<Option<Attempt>> {
        self.read("attempt").await?;
        self.memory.attempt(run, node, attempt).await
    }
}

#[async_trait]
impl ChildStore for FaultyStore {
    async fn ended_children(&self, parent: RunId, limit: u32) -> Result<Vec<EndedChild>> {
        self.read("ended_children").await?;
        self.memory.ended_children(parent, limit).await
    }

    async fn item_results(&self, of: &NodeAttempt, after: Option<RunId>, limit: u32) -> Result<Vec<EndedChild>> {
        self.read("item_results").await?;
        self.memory.item_results(of, after, limit).await
    }

    async fn awaited_children(&self, parent: RunId, after: Option<RunId>, limit: u32) -> Result<Vec<AwaitedChild>> {
        self.read("awaited_children").await?;
        self.memory.awaited_children(parent, after, limit).await
    }

    async fn parents_of_ended_children(&self, after: Option<RunId>, limit: u32) -> Result<Vec<RunId>> {
        self.read("parents_of_ended_children").await?;
        self.memory.parents_of_ended_children(after, limit).await
    }
}

#[async_trait]
impl InboxStore for FaultyStore {
    async fn items(&self, filter: ItemFilter) -> Result<ItemPage> {
        self.memory.items(filter).await
    }

    async fn find_wait(&self, of: &WaitRef) -> Result<Option<FoundWait>> {
        self.memory.find_wait(of).await
    }

    async fn item(&self, id: Uuid) -> Result<Option<StoredItem>> {
        self.memory.item(id).await
    }

    async fn claim_items(&self, claim: ItemClaim) -> Result<Vec<StoredItem>> {
        self.memory.claim_items(claim).await
    }

    async fn heartbeat_item(&self, heartbeat: ItemHeartbeat) -> Result<Heartbeat> {
        self.memory.heartbeat_item(heartbeat).await
    }

    async fn answer_item(&self, answer: ItemAnswer) -> Result<Answer> {
        self.memory.answer_item(answer).await
    }
}

#[async_trait]
impl AuditStore for FaultyStore {
    async fn add_audit(&self, row: AuditRow) -> Result<()> {
        self.memory.add_audit(row).await
    }

    async fn audit(&self, filter: AuditFilter) -> Result<AuditPage> {
        self.memory.audit(filter).await
    }

    async fn prune_audit(&self, before: Uuid, limit: u32) -> Result<u64> {
        self.memory.prune_audit(before, limit).await
    }
}

#[async_trait]
impl CallbackStore for FaultyStore {
    async fn register_callbacks(&self, callbacks: Vec<RegisteredCallback>) -> Result<Registration> {
        self.memory.register_callbacks(callbacks).await
    }

    async fn registered_callback(&self, tenant: &str, id: &str) -> Result<Option<RegisteredCallback>> {
        self.read("registered_callback").await?;
        self.memory.registered_callback(tenant, id).await
    }

    async fn registered_callbacks(&self, filter: CallbackFilter) -> Result<Page<RegisteredCallback>> {
        self.memory.registered_callbacks(filter).await
    }

    async fn delete_callback(&self, tenant: &str, id: &str) -> Result<bool> {
        self.memory.delete_callback(tenant, id).await
    }

    async fn active_workflows_containing(&self, tenant: &str, text: &str, limit: u32) -> Result<Vec<String>> {
        self.memory.active_workflows_containing(tenant, text, limit).await
    }
}

#[async_trait]
impl KeyStore for FaultyStore {
    async fn add_api_key(&self, key: ApiKey) -> Result<()> {
        self.memory.add_api_key(key).await
    }

    async fn api_key(&self, id: Uuid) -> Result<Option<ApiKey>> {
        self.memory.api_key(id).await
    }

    async fn api_keys(&self, filter: KeyFilter) -> Result<Page<ApiKey>> {
        self.memory.api_keys(filter).await
    }

    async fn revoke_api_key(&self, id: Uuid, tenant: Option<&str>, at: Timestamp) -> Result<bool> {
        self.memory.revoke_api_key(id, tenant, at).await
    }
}

#[async_trait]
impl fermata_store::UsageStore for FaultyStore {
    async fn usage(&self, tenant: &str, month: u32) -> Result<u64> {
        fermata_store::UsageStore::usage(&self.memory, tenant, month).await
    }
}

#[async_trait]
impl fermata_store::TriggerStore for FaultyStore {
    async fn create_trigger(&self, trigger: Trigger) -> Result<bool> {
        self.memory.create_trigger(trigger).await
    }

    async fn update_trigger(&self, trigger: Trigger) -> Result<bool> {
        self.memory.update_trigger(trigger).await
    }

    async fn delete_trigger(&self, id: Uuid) -> Result<bool> {
        self.memory.delete_trigger(id).await
    }

    async fn rotate_segment(&self, id: Uuid, segment: Uuid, until: Timestamp, at: Timestamp) -> Result<bool> {
        self.memory.rotate_segment(id, segment, until, at).await
    }

    async fn trigger(&self, id: Uuid) -> Result<Option<Trigger>> {
        self.memory.trigger(id).await
    }

    async fn webhook(&self, segment: Uuid, now: Timestamp) -> Result<Option<Trigger>> {
        self.memory.webhook(segment, now).await
    }

    async fn triggers(&self, filter: TriggerFilter) -> Result<Page<Trigger>> {
        self.memory.triggers(filter).await
    }

    async fn event_triggers(&self, tenant: &str, event_type: &str) -> Result<Vec<Trigger>> {
        self.memory.event_triggers(tenant, event_type).await
    }

    async fn fire_due(&self, now: Timestamp, limit: u32, fire: Fire) -> Result<Vec<Delivered>> {
        self.memory.fire_due(now, limit, fire).await
    }

    async fn add_delivery(&self, delivery: TriggerDelivery) -> Result<Option<TriggerDelivery>> {
        self.memory.add_delivery(delivery).await
    }

    async fn take_deliveries(&self, now: Timestamp, until: Timestamp, limit: u32) -> Result<Vec<TriggerDelivery>> {
        self.memory.take_deliveries(now, until, limit).await
    }

    async fn settle_delivery(&self, trigger: Uuid, occurrence: &str, settled: Settled) -> Result<bool> {
        self.memory.settle_delivery(trigger, occurrence, settled).await
    }

    async fn delivery(&self, id: Uuid) -> Result<Option<TriggerDelivery>> {
        self.memory.delivery(id).await
    }

    async fn occurrence(&self, trigger: Uuid, occurrence: &str) -> Result<Option<TriggerDelivery>> {
        self.memory.occurrence(trigger, occurrence).await
    }

    async fn deliveries(&self, filter: DeliveryFilter) -> Result<Page<TriggerDelivery>> {
        self.memory.deliveries(filter).await
    }

    async fn record_events(
        &self,
        events: Vec<(StoredEvent, Vec<TriggerDelivery>)>,
        duplicate_after: Timestamp,
    ) -> Result<Vec<Recorded>> {
        self.memory.record_events(events, duplicate_after).await
    }

    async fn unmatched_events(&self, limit: u32) -> Result<Vec<StoredEvent>> {
        self.memory.unmatched_events(limit).await
    }

    async fn match_event(&self, event: StoredEvent, deliveries: Vec<TriggerDelivery>) -> Result<bool> {
        self.memory.match_event(event, deliveries).await
    }

    async fn trigger_work(&self) -> Result<TriggerWork> {
        self.memory.trigger_work().await
    }

    async fn prune_triggers(&self, before: Timestamp, limit: u32) -> Result<u64> {
        self.memory.prune_triggers(before, limit).await
    }
}

#[async_trait]
impl fermata_store::FlowStore for FaultyStore {
    async fn admit(&self, admit: fermata_store::flow::Admit) -> Result<fermata_store::flow::Admission> {
        self.arrive().await;
        self.memory.admit(admit).await
    }

    async fn ahead(&self, run: RunId) -> Result<Option<u32>> {
        self.memory.ahead(run).await
    }

    async fn release_paused(&self, workflow: Uuid, limit: u32, now: Timestamp) -> Result<u32> {
        self.memory.release_paused(workflow, limit, now).await
    }

    async fn wake_waiting(&self, workflow: Uuid, limit: u32, now: Timestamp) -> Result<u32> {
        self.memory.wake_waiting(workflow, limit, now).await
    }

    async fn sweep_flow(
        &self,
        after: Option<String>,
        limit: u32,
        now: Timestamp,
    ) -> Result<fermata_store::flow::Swept> {
        self.arrive().await;
        self.memory.sweep_flow(after, limit, now).await
    }
}

/// The simulation has no bulk jobs.
#[async_trait]
impl fermata_store::BulkStore for FaultyStore {
    async fn add_bulk(&self, job: BulkJob, runs: Vec<RunId>) -> Result<()> {
        self.memory.add_bulk(job, runs).await
    }

    async fn change_bulk(&self, id: Uuid, change: BulkChange, at: Timestamp) -> Result<Option<BulkJob>> {
        self.memory.change_bulk(id, change, at).await
    }

    async fn bulk(&self, id: Uuid) -> Result<Option<BulkJob>> {
        self.memory.bulk(id).await
    }

    async fn bulks(&self, tenant: Option<&str>, before: Option<Uuid>, limit: u32) -> Result<Page<BulkJob>> {
        self.memory.bulks(tenant, before, limit).await
    }

    async fn bulk_items(
        &self,
        id: Uuid,
        state: Option<ItemState>,
        after: Option<RunId>,
        limit: u32,
    ) -> Result<Page<BulkItem>> {
        self.memory.bulk_items(id, state, after, limit).await
    }

    async fn next_bulk(&self) -> Result<Option<Timestamp>> {
        self.memory.next_bulk().await
    }

    async fn take_bulk(&self, now: Timestamp, until: Timestamp) -> Result<Option<BulkJob>> {
        self.memory.take_bulk(now, until).await
    }

    async fn advance_bulk(&self, step: BulkStep) -> Result<Option<Vec<RunId>>> {
        self.memory.advance_bulk(step).await
    }

    async fn prune_bulks(&self, before: Timestamp, limit: u32) -> Result<u64> {
        self.memory.prune_bulks(before, limit).await
    }
}

#[async_trait]
impl fermata_store::FieldStore for FaultyStore {
    async fn set_fields(&self, run: RunId, tenant: &str, fields: Vec<fermata_store::fields::RunField>) -> Result<()> {
        self.arrive().await;
        self.memory.set_fields(run, tenant, fields).await
    }

    async fn tagged(&self, tags: Vec<String>, limit: u32) -> Result<Vec<Uuid>> {
        self.memory.tagged(tags, limit).await
    }
}

#[async_trait]
impl RunnerStore for FaultyStore {
    async fn heartbeat(&self, runner: &Runner, at: Timestamp) -> Result<()> {
        self.stay_if_dead().await;
        self.maybe(self.world.scenario.rates.heartbeat_error, "heartbeat")?;
        self.memory.heartbeat(runner, at).await
    }

    async fn retire(&self, runner: RunnerId) -> Result<()> {
        self.stay_if_dead().await;
        self.maybe(self.world.scenario.rates.heartbeat_error, "retire")?;
        self.memory.retire(runner).await
    }

    async fn runs_with_messages(&self, runner: RunnerId) -> Result<Vec<RunId>> {
        self.read("unread").await?;
        self.memory.runs_with_messages(runner).await
    }

    async fn held(&self, runner: RunnerId, after: Option<RunId>, limit: u32) -> Result<Vec<Lease>> {
        self.read("held").await?;
        self.memory.held(runner, after, limit).await
    }

    async fn runners(&self, before: Option<RunnerId>, limit: u32) -> Result<Page<RunnerRecord>> {
        self.memory.runners(before, limit).await
    }
}

#[async_trait]
impl WorkflowStore for FaultyStore {
    async fn workflow(&self, tenant: &str, id: &str) -> Result<Option<Workflow>> {
        self.read("workflow").await?;
        self.memory.workflow(tenant, id).await
    }

    async fn save_draft(&self, draft: Draft, rule: DraftRule, guard: Option<DraftGuard>) -> Result<Saved> {
        self.memory.save_draft(draft, rule, guard).await
    }

    async fn draft(&self, workflow: Uuid) -> Result<Option<Draft>> {
        self.memory.draft(workflow).await
    }

    async fn publish(
        &self,
        workflow: Uuid,
        checksum: &str,
        plan: &str,
        activation: Activation,
        at: Timestamp,
    ) -> Result<Published> {
        self.memory.publish(workflow, checksum, plan, activation, at).await
    }

    async fn release(&self, release: Release) -> Result<Released> {
        self.memory.release(release).await
    }

    async fn snapshot(&self, workflow: Uuid, checksum: &str, plan: &str, at: Timestamp) -> Result<Published> {
        self.memory.snapshot(workflow, checksum, plan, at).await
    }

    async fn delete_workflow(&self, workflow: Uuid) -> Result<Deleted> {
        self.memory.delete_workflow(workflow).await
    }

    async fn soft_delete_workflow(&self, workflow: Uuid, at: Timestamp) -> Result<bool> {
        self.memory.soft_delete_workflow(workflow, at).await
    }

    async fn versions(&self, workflow: Uuid, before: Option<u32>, limit: u32) -> Result<Page<VersionRow>> {
        self.memory.versions(workflow, before, limit).await
    }

    async fn set_enablement(
        &self,
        workflow: Uuid,
        change: Enablement,
        at: Timestamp,
    ) -> Result<Option<(Workflow, bool)>> {
        self.memory.set_enablement(workflow, change, at).await
    }

    async fn workflow_by_uid(&self, uid: Uuid) -> Result<Option<Workflow>> {
        self.memory.workflow_by_uid(uid).await
    }

    async fn workflows(&self, filter: WorkflowFilter) -> Result<Page<Workflow>> {
        self.memory.workflows(filter).await
    }

    async fn definition(&self, workflow: Uuid, version: u32) -> Result<Option<Definition>> {
        self.memory.definition(workflow, version).await
    }

    async fn plan(&self, workflow: Uuid, version: u32) -> Result<Option<String>> {
        self.memory.plan(workflow, version).await
    }

    async fn add_plan(&self, workflow: Uuid, version: u32, plan: &str, at: Timestamp) -> Result<Option<String>> {
        self.memory.add_plan(workflow, version, plan, at).await
    }
}

#[async_trait]
impl DeadLetterStore for FaultyStore {
    async fn dead_letters(&self, filter: DeadLetterFilter) -> Result<Page<DeadLetter>> {
        self.memory.dead_letters(filter).await
    }

    async fn dead_letter(&self, id: Uuid) -> Result<Option<DeadLetter>> {
        self.memory.dead_letter(id).await
    }

    async fn delete_dead_letter(&self, id: Uuid) -> Result<bool> {
        self.memory.delete_dead_letter(id).await
    }

    async fn purge_dead_letters(&self, filter: DeadLetterFilter) -> Result<u64> {
        self.memory.purge_dead_letters(filter).await
    }
}

#[async_trait]
impl fermata_store::StatsStore for FaultyStore {
    async fn write_stats(&self, rows: Vec<fermata_store::stats::StatsRow>) -> Result<()> {
        self.memory.write_stats(rows).await
    }

    async fn stats(&self, filter: &fermata_store::stats::StatsFilter) -> Result<fermata_store::stats::Stats> {
        self.memory.stats(filter).await
    }

    async fn prune_stats(&self, before: i64) -> Result<u64> {
        self.memory.prune_stats(before).await
    }
}

#[async_trait]
impl ReadStore for FaultyStore {
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>> {
        self.read("run").await?;
        self.memory.run(id).await
    }

    async fn children(&self, parent: RunId, after: Option<RunId>, limit: u32) -> Result<Page<RunRecord>> {
        self.memory.children(parent, after, limit).await
    }

    async fn runs(&self, filter: RunFilter) -> Result<RunPage> {
        self.memory.runs(filter).await
    }

    async fn actions(&self, run: RunId, window: Window) -> Result<(Vec<Attempt>, u64)> {
        self.memory.actions(run, window).await
    }

    async fn events(&self, run: RunId, window: Window) -> Result<(Vec<EventRecord>, u64)> {
        self.memory.events(run, window).await
    }

    async fn positions(&self, runs: &[RunId]) -> Result<Vec<RunPosition>> {
        self.memory.positions(runs).await
    }

    async fn journal_after(&self, run: RunId, after: u32, limit: u32) -> Result<Vec<EventRecord>> {
        self.memory.journal_after(run, after, limit).await
    }

    async fn queue_depths(&self, now: Timestamp) -> Result<Vec<QueueDepth>> {
        self.memory.queue_depths(now).await
    }

    async fn links(&self, run: RunId, window: Window) -> Result<(Vec<LinkRecord>, u64)> {
        self.memory.links(run, window).await
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn ping(&self) -> Result<()> {
        self.memory.ping().await
    }

    async fn about(&self) -> Result<fermata_store::Database> {
        self.memory.about().await
    }

    /// Database time: the clocks of some processes are wrong.
    fn now(&self) -> Option<Timestamp> {
        Some(self.world.now())
    }

    fn changes(&self) -> broadcast::Receiver<ChangeHint> {
        let mut all = self.memory.changes();
        let lost_hints = self.world.scenario.rates.lost_hints;
        if lost_hints == 0 {
            return all;
        }
        let (sender, receiver) = broadcast::channel(1024);
        let world = self.world.clone();
        tokio::spawn(async move {
            while let Ok(hint) = all.recv().await {
                let lost = {
                    let mut inner = world.lock();
                    inner.rough && inner.rng.chance(lost_hints)
                };
                if !lost && sender.send(hint).is_err() {
                    return;
                }
            }
        });
        receiver
    }

    async fn close(&self) -> Result<()> {
        self.memory.close().await
    }
}
