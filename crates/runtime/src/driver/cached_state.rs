//! The cached state of a held run: read instead of the outputs that it covers, written when the run leaves memory.
//!
//! It is written for each eighth node that wrote the state, and only if the outputs since the last copy are at least half as large
//! as that copy. So all copies of a run together are at most a few times as large as its outputs, and a run that wakes up often
//! reads one copy and few outputs. A run with fewer such nodes writes nothing more than before.

use super::{Driver, StepError, step::Step};
use crate::{
    compiled::Needs,
    state::{
        cached::{CachedState, WORTH_CACHING},
        merged_nodes,
    },
};
use fermata_core::{NodeIx, Outcome, Phase};
use fermata_store::runs;

/// Reading a row costs about as much as this many bytes of a copy.
const ROW: u64 = 256;

impl Driver {
    /// How many nodes have written the state.
    pub(super) fn count_writers(&self) -> usize {
        let ended = self.run.completed().len();
        match ended < WORTH_CACHING {
            true => 0, // too few in any case
            false => merged_nodes(&self.run, ended as u32).count(),
        }
    }

    /// Reads the cached state, if it may spare reading many outputs. True if there is one that was not known.
    pub(super) async fn read_cached_state(&mut self, missing: usize, step: &Step) -> Result<bool, StepError> {
        if missing < WORTH_CACHING || self.payloads.asked_for_cached {
            return Ok(false);
        }
        let text = self.shared.store.cached_state(self.meta.id).await;
        let text = text.map_err(|error| self.read_failed(&error, step))?;
        self.payloads.asked_for_cached = true;
        let Some(text) = text else {
            return Ok(false);
        };
        let bytes = text.len();
        let read = move || serde_json::from_str::<CachedState>(&text).ok();
        let cached = self.shared.offload.run(bytes, read).await;
        let ended = self.run.completed().len() as u32;
        // Anything else was not written by this run.
        let Some(cached) = cached.filter(|cached| cached.up_to() <= ended) else {
            return Ok(false);
        };
        self.payloads.learn_cached(cached, bytes);
        Ok(true)
    }

    /// The change of the cached state with a step.
    pub(super) async fn change_cached_state(&mut self, step: &Step) -> Option<runs::CachedState> {
        let count = self.count_writers();
        if count < WORTH_CACHING {
            return None;
        }
        if self.run.status().is_terminal() {
            return Some(runs::CachedState::Remove);
        }
        let is_due = step.parks.is_some() && count / WORTH_CACHING > self.commits.writers_at_load / WORTH_CACHING;
        let up_to = self.run.completed().len() as u32;
        // A copy that cannot be made is made later.
        if !is_due || self.ensure(&Needs::STATE, up_to, step).await.is_err() {
            return None;
        }
        let (known, older_bytes) = self
            .payloads
            .cached()
            .map_or((0, 0), |(cached, bytes)| (cached.up_to(), bytes));
        let new_bytes: u64 = merged_nodes(&self.run, up_to)
            .map(|ix| self.output_since(ix, known))
            .sum();
        if new_bytes < older_bytes as u64 / 2 {
            return None;
        }
        let open = self.run.active().filter_map(|ix| match &self.run.node(ix).phase {
            Phase::Open(open) => Some(open.sees),
            _ => None,
        });
        let from = open.min().unwrap_or(up_to).min(up_to);
        // An older copy does not have what an open node sees.
        if !self.payloads.missing(&self.run, &Needs::STATE, from).is_empty() {
            return None;
        }
        let payloads = self.payloads.clone();
        let build = move || super::step::to_text(&payloads.to_cached(from, up_to, count));
        let bytes = older_bytes + new_bytes as usize;
        Some(runs::CachedState::Set(self.shared.offload.run(bytes, build).await))
    }

    /// About the cost of reading the output of a node that ended at position `known` or later.
    fn output_since(&self, ix: NodeIx, known: u32) -> u64 {
        match &self.run.node(ix).phase {
            Phase::Finished {
                order,
                outcome: Outcome::Succeeded(output),
                ..
            } if *order >= known => output.bytes.max(ROW),
            _ => 0,
        }
    }
}
