//! Dead letters in memory.

use super::{MemoryStore, State};
use crate::{
    Result,
    dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterStore},
    reads::Page,
};
use async_trait::async_trait;
use uuid::Uuid;

#[async_trait]
impl DeadLetterStore for MemoryStore {
    async fn dead_letters(&self, filter: DeadLetterFilter) -> Result<Page<DeadLetter>> {
        self.with(|state| state.list_dead_letters(&filter))
    }

    async fn dead_letter(&self, id: Uuid) -> Result<Option<DeadLetter>> {
        self.with(|state| state.dead_letters.get(&id).cloned())
    }

    async fn delete_dead_letter(&self, id: Uuid) -> Result<bool> {
        self.change(|state| state.dead_letters.remove(&id).is_some(), |removed| *removed)
    }

    async fn purge_dead_letters(&self, filter: DeadLetterFilter) -> Result<u64> {
        self.change(|state| state.purge_dead_letters(&filter), |removed| *removed > 0)
    }
}

impl State {
    pub(super) fn list_dead_letters(&self, filter: &DeadLetterFilter) -> Page<DeadLetter> {
        let without_payload = |dead_letter: &DeadLetter| DeadLetter {
            payload: String::new(),
            ..dead_letter.clone()
        };
        let matching = self.matching(filter).take(filter.limit as usize + 1);
        Page::cut(matching.map(without_payload).collect(), filter.limit)
    }

    pub(super) fn purge_dead_letters(&mut self, filter: &DeadLetterFilter) -> u64 {
        let matching = self.matching(filter).take(filter.limit as usize);
        let ids: Vec<Uuid> = matching.map(|dead_letter| dead_letter.id).collect();
        for id in &ids {
            self.dead_letters.remove(id);
        }
        ids.len() as u64
    }

    fn matching(&self, filter: &DeadLetterFilter) -> impl Iterator<Item = &DeadLetter> {
        let matches = |dead_letter: &&DeadLetter| {
            filter.reason.is_none_or(|reason| dead_letter.reason == reason)
                && filter
                    .workflow_uid
                    .is_none_or(|workflow| dead_letter.workflow_uid == workflow)
                && filter
                    .tenant
                    .as_ref()
                    .is_none_or(|tenant| dead_letter.tenant == *tenant)
                && filter.before.is_none_or(|before| dead_letter.id < before)
        };
        self.dead_letters.values().rev().filter(matches)
    }
}
