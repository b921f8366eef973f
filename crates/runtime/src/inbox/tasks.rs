//! The tasks of a claim: items with the state that their nodes see.
//!
//! What must stay true: a claim reads outputs and cached states, and no journals.

use super::{Inbox, Task};
use crate::{
    error::{EngineError, Refusal},
    state::{
        cached::{CachedState, WORTH_CACHING},
        writers_of,
    },
};
use fermata_core::{NodeId, RunId};
use fermata_store::{inbox::StoredItem, reads::RunRecord};
use futures::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::{collections::HashMap, time::Duration};

/// The states of one claim have together at most this many bytes of JSON, except that the first one always fits.
const MAX_STATES: usize = 8 * 1024 * 1024;

/// How many states of one claim are read at the same time.
const PARALLEL_READS: usize = 8;

impl Inbox<'_> {
    /// The tasks of a claim. A task whose state does not fit into the response is released at once. One whose state cannot be read
    /// stays leased, so that it does not keep others from their workers.
    pub(super) async fn tasks(&self, items: Vec<StoredItem>) -> Result<Vec<Task>, EngineError> {
        let mut tasks = Vec::with_capacity(items.len());
        let mut bytes = 0;
        let mut reads = stream::iter(items).map(|item| self.task(item)).buffered(PARALLEL_READS);
        while let Some(read) = reads.next().await {
            match read {
                Ok((task, size)) if tasks.is_empty() || bytes + size <= MAX_STATES => {
                    bytes += size;
                    tasks.push(task);
                }
                Ok((task, _)) => self.release(&task.item).await?,
                Err(error @ (EngineError::Unusable { .. } | EngineError::Refused(_))) => {
                    tracing::warn!(%error, "the state of a claimed task cannot be read");
                }
                Err(error) if tasks.is_empty() => return Err(error),
                Err(_) => break, // the leases of the others lapse
            }
        }
        Ok(tasks)
    }

    /// Ends a lease: its item can be claimed again.
    async fn release(&self, item: &StoredItem) -> Result<(), EngineError> {
        if let Some(lease) = &item.lease {
            let (_, _) = self
                .heartbeat(item.item.id, lease.id, None, Duration::ZERO, None)
                .await?;
        }
        Ok(())
    }

    /// The item with the state that its node sees, and about the size of the state. This costs the same for a long run as for a
    /// short one, except for the outputs that make up the state.
    pub(super) async fn task(&self, item: StoredItem) -> Result<(Task, usize), EngineError> {
        let details: Details = serde_json::from_str(&item.item.details).unwrap_or_default();
        let store = &self.engine.shared.store;
        let run = store.run(item.run).await?.ok_or(Refusal::RunNotFound(item.run))?;
        let nodes: Vec<NodeId> = match details.writers.is_empty() {
            true => Vec::new(),
            false => {
                let plan = &self.compiled(&run).await?.plan;
                let writers = writers_of(plan, &details.writers).into_iter();
                writers.map(|ix| plan.node(ix).id.clone()).collect()
            }
        };
        let (state, bytes) = self.state(run, nodes, details.sees).await?;
        let task = Task {
            idempotency_key: format!("{}:{}:{}", item.run, item.node, item.attempt),
            state,
            item,
        };
        Ok((task, bytes))
    }

    /// The trigger, overwritten with the outputs of these nodes in this order; and about its size. `sees` is the position of the
    /// completion order that the task sees.
    async fn state(
        &self,
        run: RunRecord,
        mut nodes: Vec<NodeId>,
        sees: Option<u32>,
    ) -> Result<(Value, usize), EngineError> {
        let offload = self.engine.offload();
        let mut bytes = run.trigger.len();
        let mut state = match offload.parse(&run.trigger).await {
            Ok(Value::Object(members)) => members,
            _ => Map::new(),
        };
        if let Some(sees) = sees.filter(|_| nodes.len() >= WORTH_CACHING)
            && let Some((cached, size)) = self.cached_state(run.id).await?
            && let Some(covered) = cached.covered(sees)
        {
            let written = cached.all(sees);
            state.extend(written.map(|(name, value)| (name.to_owned(), value.clone())));
            bytes += size;
            nodes.drain(..covered.min(nodes.len()));
        }
        if nodes.is_empty() {
            return Ok((Value::Object(state), bytes));
        }
        let attempts = self.engine.shared.store.last_attempts(run.id, &nodes).await?;
        let attempts = attempts.into_iter();
        let mut outputs: HashMap<NodeId, String> = attempts
            .filter_map(|attempt| Some((attempt.node, attempt.outputs?)))
            .collect();
        for node in nodes {
            let text = outputs.remove(&node).unwrap_or_default();
            if let Ok(Value::Object(members)) = offload.parse(&text).await {
                state.extend(members);
                bytes += text.len();
            }
        }
        Ok((Value::Object(state), bytes))
    }

    /// The cached state of a run, and its size as JSON.
    async fn cached_state(&self, run: RunId) -> Result<Option<(CachedState, usize)>, EngineError> {
        let Some(text) = self.engine.shared.store.cached_state(run).await? else {
            return Ok(None);
        };
        let bytes = text.len();
        let read = move || serde_json::from_str(&text).ok();
        let cached: Option<CachedState> = self.engine.offload().run(bytes, read).await;
        Ok(cached.map(|cached| (cached, bytes)))
    }
}

/// The part of an item's details that is read here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    /// The nodes that wrote the state, see [`writer_ranges`](crate::state::writer_ranges).
    writers: Vec<[u32; 2]>,
    /// The position of the completion order that the node sees. Items of older programs do not have it.
    sees: Option<u32>,
}
