//! The audit trail in memory.

use super::MemoryStore;
use crate::{
    Result,
    audit::{AuditFilter, AuditPage, AuditRow, AuditStore},
};
use async_trait::async_trait;
use uuid::Uuid;

#[async_trait]
impl AuditStore for MemoryStore {
    async fn add_audit(&self, row: AuditRow) -> Result<()> {
        self.with(|state| {
            state.audit.entry(row.id).or_insert(row);
        })
    }

    async fn audit(&self, filter: AuditFilter) -> Result<AuditPage> {
        self.with(|state| {
            let (before, from) = (filter.before.unwrap_or(Uuid::max()), filter.from.unwrap_or(Uuid::nil()));
            if from >= before {
                return AuditPage::default();
            }
            let rows = state.audit.range(from..before).rev().map(|(_, row)| row);
            let rows = rows.filter(|row| filter.of_tenant().is_none_or(|tenant| row.tenant == tenant));
            filter.page(rows.take(filter.examined() as usize).cloned().collect())
        })
    }

    async fn prune_audit(&self, before: Uuid, limit: u32) -> Result<u64> {
        self.with(|state| {
            let due: Vec<Uuid> = state
                .audit
                .range(..before)
                .map(|(id, _)| *id)
                .take(limit as usize)
                .collect();
            due.iter().for_each(|id| drop(state.audit.remove(id)));
            due.len() as u64
        })
    }
}
