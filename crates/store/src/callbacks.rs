//! Registered callbacks: the addresses of services, by an id that documents name.
//!
//! An id belongs to the service that registered it. That service may register it again, with another address; another service
//! may not. Callbacks belong to tenants as workflows do: a tenant's own callback hides a shared one of the same id.

use crate::{Result, reads::Page};
use async_trait::async_trait;
use fermata_core::Timestamp;

/// Registered callbacks.
#[async_trait]
pub trait CallbackStore: Send + Sync {
    /// Registers callbacks, or replaces those that the same service registered before. If another service has one of the
    /// ids, nothing is stored.
    async fn register_callbacks(&self, callbacks: Vec<RegisteredCallback>) -> Result<Registration>;

    /// The callback that a tenant means by this id: its own, else the shared one.
    async fn registered_callback(&self, tenant: &str, id: &str) -> Result<Option<RegisteredCallback>>;

    /// Callbacks by id and tenant.
    async fn registered_callbacks(&self, filter: CallbackFilter) -> Result<Page<RegisteredCallback>>;

    /// Removes a callback of exactly this tenant. False if it has none with this id.
    async fn delete_callback(&self, tenant: &str, id: &str) -> Result<bool>;

    /// The names of active workflows whose current plan contains this text, in order: those of a tenant, or with an empty
    /// tenant those of all. It reads the plans of all active workflows.
    async fn active_workflows_containing(&self, tenant: &str, text: &str, limit: u32) -> Result<Vec<String>>;
}

/// A registered callback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredCallback {
    /// The id that documents name.
    pub id: String,
    /// The tenant that it belongs to. Empty: it is shared.
    pub tenant: String,
    /// The service that registered it.
    pub service_name: String,
    /// Where that service runs, as it says; may be empty.
    pub environment: String,
    /// The beginning of the address.
    pub base_url: String,
    /// The rest of the address.
    pub path: String,
    /// When it was registered last.
    pub registered_at: Timestamp,
}

/// Which callbacks to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallbackFilter {
    /// `None`: of all tenants. Otherwise those that the tenant sees: its own, and the shared ones that its own do not hide.
    pub tenant: Option<String>,
    /// Only callbacks after this (id, tenant), for paging.
    pub after: Option<(String, String)>,
    /// At most this many.
    pub limit: u32,
}

/// The result of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registration {
    /// All are registered.
    Registered,
    /// Another service has this id. Nothing was stored.
    Taken {
        /// The id.
        id: String,
        /// The service that has it.
        service_name: String,
    },
}

macro_rules! columns {
    () => {
        "SELECT id, service_name, environment, base_url, path, registered_at, tenant_id FROM registered_callbacks "
    };
}

/// The callback that a tenant means by this id. A shared callback has an empty tenant, so it comes last.
pub(crate) const CALLBACK: &str = concat!(
    columns!(),
    "WHERE tenant_id IN (?1, '') AND id = ?2 ORDER BY tenant_id DESC LIMIT 1"
);

/// The callback of exactly this tenant.
pub(crate) const CALLBACK_OF_TENANT: &str = concat!(columns!(), "WHERE tenant_id = ?1 AND id = ?2");

/// All callbacks after the (id, tenant) `?1`, `?2`.
pub(crate) const CALLBACKS: &str = concat!(
    columns!(),
    "WHERE (id, tenant_id) > (?1, ?2) ORDER BY id, tenant_id LIMIT ?3"
);

/// The callbacks that the tenant `?2` sees, after the id `?1`.
pub(crate) const CALLBACKS_OF_TENANT: &str = concat!(
    columns!(),
    "WHERE tenant_id = ?2 AND id > ?1 UNION ALL ",
    columns!(),
    "s WHERE s.tenant_id = '' AND s.id > ?1 AND NOT EXISTS (SELECT 1 FROM registered_callbacks o
    WHERE o.tenant_id = ?2 AND o.id = s.id) ORDER BY id LIMIT ?3"
);

/// Changes nothing if another service of the tenant has the id.
pub(crate) const REGISTER: &str = "INSERT INTO registered_callbacks AS c
    (id, service_name, environment, base_url, path, registered_at, tenant_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT (tenant_id, id) DO UPDATE SET environment = excluded.environment, base_url = excluded.base_url,
    path = excluded.path, registered_at = excluded.registered_at WHERE c.service_name = excluded.service_name";

pub(crate) const DELETE: &str = "DELETE FROM registered_callbacks WHERE tenant_id = ?1 AND id = ?2";

/// `position` is the database's function that finds a text in another one.
pub(crate) fn containing(position: &str) -> String {
    format!(
        "SELECT w.id FROM workflows w JOIN workflow_plans p ON p.workflow_uid = w.uid AND p.version = w.current_version
         WHERE w.deleted_at IS NULL AND w.status = 'Active' AND {position}(p.plan_json, ?1) > 0
         AND (w.tenant_id = ?3 OR ?3 = '') ORDER BY w.id LIMIT ?2"
    )
}
