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
        self.with(|state| state.dead_letters.remove(&id).is_some())
    }

    async fn purge_dead_letters(&self, filter: DeadLetterFilter) -> Result<u64> {
        self.with(|state| state.purge_dead_letters(&filter))
    }
}

impl State {
    pub(super) fn list_dead_letters(&self, filter: &DeadLetterFilter) -> Page<DeadLetter> {
        let without_payload = |letter: &DeadLetter| DeadLetter {
            payload: String::new(),
            ..letter.clone()
        };
        let fitting = self.fitting(filter).take(filter.limit as usize + 1);
        Page::cut(fitting.map(without_payload).collect(), filter.limit)
    }

    pub(super) fn purge_dead_letters(&mut self, filter: &DeadLetterFilter) -> u64 {
        let fitting = self.fitting(filter).take(filter.limit as usize);
        let ids: Vec<Uuid> = fitting.map(|letter| letter.id).collect();
        for id in &ids {
            self.dead_letters.remove(id);
        }
        ids.len() as u64
    }

    fn fitting(&self, filter: &DeadLetterFilter) -> impl Iterator<Item = &DeadLetter> {
        let fits = |letter: &&DeadLetter| {
            filter.reason.is_none_or(|reason| letter.reason == reason)
                && filter
                    .workflow_uid
                    .is_none_or(|workflow| letter.workflow_uid == workflow)
                && filter.before.is_none_or(|before| letter.id < before)
        };
        self.dead_letters.values().rev().filter(fits)
    }
}
