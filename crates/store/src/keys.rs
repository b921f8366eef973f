//! API keys: who may call the API with which scopes. Only the hash of a key is stored.

use crate::{Result, reads::Page};
use async_trait::async_trait;
use fermata_core::Timestamp;
use uuid::Uuid;

/// API keys.
#[async_trait]
pub trait KeyStore: Send + Sync {
    /// Stores a new key. Storing it again changes nothing.
    async fn add_api_key(&self, key: ApiKey) -> Result<()>;

    /// One key, also if it is revoked or has expired.
    async fn api_key(&self, id: Uuid) -> Result<Option<ApiKey>>;

    /// Keys, newest first, also those that are revoked or have expired.
    async fn api_keys(&self, filter: KeyFilter) -> Result<Page<ApiKey>>;

    /// Revokes a key, if it belongs to this tenant (any, if `None`). The first time counts. False if there is no such key.
    async fn revoke_api_key(&self, id: Uuid, tenant: Option<&str>, at: Timestamp) -> Result<bool>;
}

/// An API key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// The part of the key that names it.
    pub id: Uuid,
    /// What it is for.
    pub name: String,
    /// Its tenant; empty for none.
    pub tenant: String,
    /// Its scopes, separated by spaces.
    pub scopes: String,
    /// SHA-256 of the whole key, in hexadecimal digits.
    pub hash: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// Who created it.
    pub created_by: String,
    /// It is refused from then on.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// Which keys are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyFilter {
    /// Only keys of this tenant.
    pub tenant: Option<String>,
    /// Only keys before this one in the list.
    pub before: Option<Uuid>,
    /// At most this many.
    pub limit: u32,
}

macro_rules! columns {
    () => {
        "SELECT id, name, tenant_id, scopes, hash, created_at, created_by, expires_at, revoked_at FROM api_keys "
    };
}

pub(crate) const KEY: &str = concat!(columns!(), "WHERE id = ?1");

pub(crate) const KEYS: &str = concat!(columns!(), "WHERE id < ?1 ORDER BY id DESC LIMIT ?2");

pub(crate) const KEYS_OF_TENANT: &str = concat!(
    columns!(),
    "WHERE tenant_id = ?3 AND id < ?1 ORDER BY tenant_id DESC, id DESC LIMIT ?2"
);

pub(crate) const ADD: &str = "INSERT INTO api_keys
    (id, name, tenant_id, scopes, hash, created_at, created_by, expires_at, revoked_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (id) DO NOTHING";

pub(crate) const REVOKE: &str =
    "UPDATE api_keys SET revoked_at = COALESCE(revoked_at, CAST(?2 AS bigint)) WHERE id = ?1";

pub(crate) const REVOKE_OF_TENANT: &str =
    "UPDATE api_keys SET revoked_at = COALESCE(revoked_at, CAST(?2 AS bigint)) WHERE id = ?1 AND tenant_id = ?3";
