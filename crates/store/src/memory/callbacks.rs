//! Registered callbacks in memory.

use super::{MemoryStore, State};
use crate::{
    Result,
    callbacks::{CallbackFilter, CallbackStore, RegisteredCallback, Registration},
    definitions::Lifecycle,
    reads::Page,
};
use async_trait::async_trait;
use std::ops::Bound;

#[async_trait]
impl CallbackStore for MemoryStore {
    async fn register_callbacks(&self, callbacks: Vec<RegisteredCallback>) -> Result<Registration> {
        let register = |state: &mut State| {
            let other = callbacks.iter().find_map(|callback| {
                let there = state.callbacks.get(&key(callback))?;
                (there.service_name != callback.service_name).then(|| there.clone())
            });
            if let Some(other) = other {
                let (id, service_name) = (other.id, other.service_name);
                return Registration::Taken { id, service_name };
            }
            let entries = callbacks.into_iter().map(|callback| (key(&callback), callback));
            state.callbacks.extend(entries);
            Registration::Registered
        };
        self.change(register, |done| *done == Registration::Registered)
    }

    async fn registered_callback(&self, tenant: &str, id: &str) -> Result<Option<RegisteredCallback>> {
        self.with(|state| {
            let of = |tenant: &str| state.callbacks.get(&(id.to_owned(), tenant.to_owned()));
            of(tenant).or_else(|| of("")).cloned()
        })
    }

    async fn registered_callbacks(&self, filter: CallbackFilter) -> Result<Page<RegisteredCallback>> {
        self.with(|state| {
            let after = filter.after.map_or(Bound::Unbounded, Bound::Excluded);
            let rows = state.callbacks.range((after, Bound::Unbounded));
            let hidden = |tenant: &String, id: &String| state.callbacks.contains_key(&(id.clone(), tenant.clone()));
            let rows = rows.filter(|((id, of), _)| {
                let tenant = filter.tenant.as_ref();
                tenant.is_none_or(|tenant| of == tenant || (of.is_empty() && !hidden(tenant, id)))
            });
            let rows = rows
                .take(filter.limit as usize + 1)
                .map(|(_, callback)| callback.clone());
            Page::cut(rows.collect(), filter.limit)
        })
    }

    async fn delete_callback(&self, tenant: &str, id: &str) -> Result<bool> {
        self.change(
            |state| state.callbacks.remove(&(id.to_owned(), tenant.to_owned())).is_some(),
            |removed| *removed,
        )
    }

    async fn active_workflows_containing(&self, tenant: &str, text: &str, limit: u32) -> Result<Vec<String>> {
        self.with(|state| {
            let of_tenant = state
                .names
                .iter()
                .filter(|((_, of), _)| tenant.is_empty() || of == tenant);
            let named = of_tenant.filter(|(_, uid)| {
                let row = state.live(**uid).map(|entry| &entry.row);
                let version = row
                    .filter(|row| row.status == Lifecycle::Active)
                    .and_then(|row| row.current_version);
                let plan = version.and_then(|version| state.plan(**uid, version));
                plan.is_some_and(|plan| plan.contains(text))
            });
            named.take(limit as usize).map(|((name, _), _)| name.clone()).collect()
        })
    }
}

fn key(callback: &RegisteredCallback) -> (String, String) {
    (callback.id.clone(), callback.tenant.clone())
}
