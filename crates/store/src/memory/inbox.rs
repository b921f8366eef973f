//! Items of the inbox in memory.
//!
//! `queues` has an entry for each item that may be claimed, in the order of claims. Entries of items that were answered,
//! closed or extended since are out of date; a claim removes those that it meets.

use super::{MemoryStore, State, runs::Wait};
use crate::{
    Result,
    inbox::{
        FoundWait, Heartbeat, InboxStore, ItemAnswer, ItemClaim, ItemFilter, ItemHeartbeat, ItemLease, ItemPage,
        ItemStatus, ItemWalk, StoredItem, WaitRef, item_status,
    },
    rules::{self, ItemFacts},
    runs::Answer,
};
use async_trait::async_trait;
use fermata_core::{NodeId, RunId, Timestamp};
use std::ops::Bound;
use uuid::Uuid;

#[async_trait]
impl InboxStore for MemoryStore {
    async fn items(&self, filter: ItemFilter) -> Result<ItemPage> {
        self.with(|state| {
            let after = filter.after.map_or(Bound::Unbounded, Bound::Excluded);
            let ids = state.items.range((after, Bound::Unbounded)).map(|(id, _)| *id);
            let rows = ids.filter_map(|id| state.stored_item(id));
            // As the index that the databases read.
            let is_pending = |row: &StoredItem| row.status == ItemStatus::Pending;
            let walk = filter.walk();
            let rows = rows.filter(|row| match walk {
                ItemWalk::Run(run) => row.run == run,
                ItemWalk::Queue(queue) => is_pending(row) && row.item.queue == queue,
                ItemWalk::Tenant(tenant) => is_pending(row) && row.item.tenant == tenant,
                ItemWalk::TenantItems(tenant) => row.item.tenant == tenant,
                ItemWalk::Pending => is_pending(row),
                ItemWalk::All => true,
            });
            filter.page(rows.take(filter.examined() as usize).collect())
        })
    }

    async fn find_wait(&self, of: &WaitRef) -> Result<Option<FoundWait>> {
        self.with(|state| state.find_wait(of))
    }

    async fn item(&self, id: Uuid) -> Result<Option<StoredItem>> {
        self.with(|state| state.stored_item(id))
    }

    async fn claim_items(&self, claim: ItemClaim) -> Result<Vec<StoredItem>> {
        self.with(|state| state.claim_items(&claim))
    }

    async fn heartbeat_item(&self, heartbeat: ItemHeartbeat) -> Result<Heartbeat> {
        self.with(|state| state.extend_item(&heartbeat))
    }

    async fn answer_item(&self, answer: ItemAnswer) -> Result<Answer> {
        self.change(
            |state| state.answer_item(&answer),
            |answer| matches!(answer, Answer::Accepted { .. }),
        )
    }
}

impl State {
    fn wait_of(&mut self, token: &str) -> Option<&mut Wait> {
        let entry = self.runs.get_mut(self.tokens.get(token)?)?;
        entry.waits.iter_mut().find(|wait| wait.record.token == token)
    }

    fn stored_item(&self, id: Uuid) -> Option<StoredItem> {
        let token = self.items.get(&id)?;
        let run = *self.tokens.get(token)?;
        let waits = &self.runs.get(&run)?.waits;
        let wait = waits.iter().find(|wait| wait.record.token == *token)?;
        stored(run, wait)
    }

    fn claim_items(&mut self, claim: &ItemClaim) -> Vec<StoredItem> {
        let last = (claim.queue.clone(), claim.now, Uuid::max());
        let mut from = Bound::Included((claim.queue.clone(), Timestamp(i64::MIN), Uuid::nil()));
        let mut claimed = Vec::new();
        while claimed.len() < claim.limit as usize {
            let range = (from, Bound::Included(last.clone()));
            let Some(entry) = self.queues.range(range).next().cloned() else {
                break;
            };
            from = Bound::Excluded(entry.clone());
            let (_, until, id) = &entry;
            let item = self.stored_item(*id);
            let current = item.as_ref().is_some_and(|item| {
                let leased_until = item.lease.as_ref().map_or(Timestamp(0), |lease| lease.until);
                item.status.as_str() == "pending" && leased_until == *until
            });
            if !current {
                self.queues.remove(&entry);
                continue;
            }
            let Some(mut item) = item else { continue };
            let other = claim.tenant.as_ref().is_some_and(|tenant| item.item.tenant != *tenant);
            if other || item.deadline.is_some_and(|deadline| deadline <= claim.now) {
                continue;
            }
            self.queues.remove(&entry);
            let lease = ItemLease {
                id: Uuid::now_v7(),
                worker: claim.worker.clone(),
                until: claim.until,
            };
            item.lease = Some(lease.clone());
            self.set_lease(&item.token, lease);
            claimed.push(item);
        }
        claimed
    }

    fn set_lease(&mut self, token: &str, lease: ItemLease) {
        let until = lease.until;
        let Some(wait) = self.wait_of(token) else { return };
        wait.lease = Some(lease);
        let Some((item, _)) = &wait.item else { return };
        let entry = (item.queue.clone(), until, item.id);
        self.queues.insert(entry);
    }

    fn extend_item(&mut self, heartbeat: &ItemHeartbeat) -> Heartbeat {
        let token = self.items.get(&heartbeat.item).cloned();
        let facts = token
            .as_ref()
            .and_then(|token| self.wait_of(token))
            .map(|wait| facts(wait));
        let tenant = heartbeat.tenant.as_deref();
        if let Some(refused) = rules::refused_heartbeat(facts.as_ref(), tenant, heartbeat.lease, heartbeat.now) {
            return refused;
        }
        let Some(token) = token else { return Heartbeat::NotFound };
        let Some(wait) = self.wait_of(&token) else {
            return Heartbeat::NotFound;
        };
        if heartbeat.progress.is_some() {
            wait.progress.clone_from(&heartbeat.progress);
        }
        if let Some(lease) = wait.lease.clone() {
            let until = heartbeat.until;
            self.set_lease(&token, ItemLease { until, ..lease });
        }
        Heartbeat::Extended
    }

    fn newest_wait(&self, run: RunId, node: &NodeId) -> Option<String> {
        let waits = self.runs.get(&run)?.waits.iter();
        let waits = waits.filter(|wait| wait.record.node == *node);
        let newest = waits.max_by_key(|wait| (wait.record.attempt, wait.record.open));
        newest.map(|wait| wait.record.token.clone())
    }

    fn token_of(&self, of: &WaitRef) -> Option<String> {
        match of {
            WaitRef::Token(token) => Some(token.clone()),
            WaitRef::Item(id) => self.items.get(id).cloned(),
            WaitRef::Node { run, node } => self.newest_wait(*run, node),
        }
    }

    fn find_wait(&mut self, of: &WaitRef) -> Option<FoundWait> {
        let token = self.token_of(of)?;
        let run = *self.tokens.get(&token)?;
        let wait = self.wait_of(&token)?;
        let item = wait.item.as_ref().map(|(item, _)| item);
        Some(FoundWait {
            run,
            node: wait.record.node.clone(),
            attempt: wait.record.attempt,
            tenant: item.map(|item| item.tenant.clone()),
            details: item.map(|item| item.details.clone()),
            payload: wait.record.payload.clone(),
            answered_by: wait.record.answered_by.clone(),
            answered_at: wait.record.answered_at,
            token,
        })
    }

    fn answer_item(&mut self, answer: &ItemAnswer) -> Answer {
        let token = self.token_of(&answer.of);
        let facts = token
            .as_ref()
            .and_then(|token| self.wait_of(token))
            .map(|wait| facts(wait));
        let tenant = answer.tenant.as_deref();
        if let Some(refused) = rules::refused_answer(facts.as_ref(), tenant, answer.lease, answer.at) {
            return refused;
        }
        match token {
            Some(token) => self.answer(&token, &answer.payload, answer.by.as_deref(), answer.at),
            None => Answer::NotFound,
        }
    }
}

fn stored(run: RunId, wait: &Wait) -> Option<StoredItem> {
    let (item, created_at) = wait.item.clone()?;
    let record = &wait.record;
    Some(StoredItem {
        item,
        run,
        node: record.node.clone(),
        attempt: record.attempt,
        token: record.token.clone(),
        status: item_status(record.open, record.answered_at.is_some()),
        created_at,
        deadline: wait.deadline,
        lease: wait.lease.clone(),
        progress: wait.progress.clone(),
        payload: record.payload.clone(),
        answered_by: record.answered_by.clone(),
        answered_at: record.answered_at,
    })
}

fn facts(wait: &Wait) -> ItemFacts {
    ItemFacts {
        open: wait.record.open,
        deadline: wait.deadline,
        lease: wait.lease.as_ref().map(|lease| lease.id),
        lease_until: wait.lease.as_ref().map(|lease| lease.until),
        tenant: wait.item.as_ref().map(|(item, _)| item.tenant.clone()),
    }
}
