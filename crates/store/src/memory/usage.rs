//! The usage of tenants.

use super::MemoryStore;
use crate::{Result, usage::UsageStore};
use async_trait::async_trait;

#[async_trait]
impl UsageStore for MemoryStore {
    async fn usage(&self, tenant: &str, month: u32) -> Result<u64> {
        self.with(|state| state.usage.get(&(tenant.to_owned(), month)).copied().unwrap_or(0))
    }
}
