//! What runs are found by beside their own columns: searchable fields of their triggers, and the tags of their versions.
//!
//! What must stay true:
//! * A run whose document names no searchable field has no row here, so it costs nothing more.
//! * Rows of a new run are written in the transaction that stores it. A run that SQL started, or whose payload may still change
//!   (`debounce`), gets its rows when it is first claimed. They are removed with the payload of the run.
//! * Tags belong to a version, which never changes. They are stored with its plan.

use crate::Result;
use async_trait::async_trait;
use fermata_core::RunId;
use serde::Deserialize;
use uuid::Uuid;

/// The index of fields and tags.
#[async_trait]
pub trait FieldStore: Send + Sync {
    /// Sets the searchable fields of a run that has not begun.
    async fn set_fields(&self, run: RunId, tenant: &str, fields: Vec<RunField>) -> Result<()>;

    /// The workflows that have a version with one of these tags, at most `limit`, of all tenants.
    async fn tagged(&self, tags: Vec<String>, limit: u32) -> Result<Vec<Uuid>>;
}

/// The value of a searchable field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunField {
    /// Its path in the trigger.
    pub field: String,
    /// The text of a string, or the JSON text of a number or a boolean.
    pub value: String,
}

pub(crate) const ADD_TAG: &str =
    "INSERT INTO workflow_tags (tag, workflow_uid, version) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";

pub(crate) const TAGGED: &str =
    "SELECT DISTINCT workflow_uid FROM workflow_tags WHERE tag = ?1 ORDER BY workflow_uid LIMIT ?2";

pub(crate) const SET_FIELD: &str = "INSERT INTO run_fields (workflow_execution_id, field, value, tenant_id)
    VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (workflow_execution_id, field) DO UPDATE SET value = excluded.value";

pub(crate) const REMOVE_FIELDS: &str = "DELETE FROM run_fields WHERE workflow_execution_id = ?1";

/// The tags in a stored plan.
pub(crate) fn tags_of_plan(text: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct Text {
        plan: Part,
    }
    #[derive(Deserialize)]
    struct Part {
        #[serde(default)]
        tags: Vec<String>,
    }
    // Plans without tags are not parsed.
    match text.contains(r#""tags":["#) {
        true => serde_json::from_str::<Text>(text).map_or_else(|_| Vec::new(), |text| text.plan.tags),
        false => Vec::new(),
    }
}
