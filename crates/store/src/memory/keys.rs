//! API keys in memory.

use super::{MemoryStore, State};
use crate::{
    Result,
    keys::{ApiKey, KeyFilter, KeyStore},
    reads::Page,
};
use async_trait::async_trait;
use fermata_core::Timestamp;
use uuid::Uuid;

#[async_trait]
impl KeyStore for MemoryStore {
    async fn add_api_key(&self, key: ApiKey) -> Result<()> {
        let add = |state: &mut State| {
            state.keys.entry(key.id).or_insert(key);
        };
        self.change(add, |()| true)
    }

    async fn api_key(&self, id: Uuid) -> Result<Option<ApiKey>> {
        self.with(|state| state.keys.get(&id).cloned())
    }

    async fn api_keys(&self, filter: KeyFilter) -> Result<Page<ApiKey>> {
        self.with(|state| {
            let before = filter.before.unwrap_or(Uuid::max());
            let fits = |key: &&ApiKey| filter.tenant.as_ref().is_none_or(|tenant| key.tenant == *tenant);
            let rows = state.keys.range(..before).rev().map(|(_, key)| key).filter(fits);
            Page::cut(rows.take(filter.limit as usize + 1).cloned().collect(), filter.limit)
        })
    }

    async fn revoke_api_key(&self, id: Uuid, tenant: Option<&str>, at: Timestamp) -> Result<bool> {
        let revoke = |state: &mut State| {
            let key = state.keys.get_mut(&id);
            let key = key.filter(|key| tenant.is_none_or(|tenant| key.tenant == tenant));
            key.map(|key| key.revoked_at.get_or_insert(at)).is_some()
        };
        self.change(revoke, |revoked| *revoked)
    }
}
