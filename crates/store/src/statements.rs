//! Statements that SQLite and PostgreSQL share. Parameters are written for SQLite; [`dollars`] converts them for
//! PostgreSQL.

/// The columns of a workflow.
macro_rules! workflow_columns {
    () => {
        "SELECT id, uid, display_name, description, dialect, current_version, latest_version, status, is_enabled,
    created_at, updated_at, deleted_at FROM workflows "
    };
}
pub(crate) use workflow_columns;

/// The workflow with this name.
pub(crate) const WORKFLOW: &str = concat!(workflow_columns!(), "WHERE id = ?1 AND deleted_at IS NULL");

/// The workflow with this uid, including soft-deleted ones.
pub(crate) const WORKFLOW_BY_UID: &str = concat!(workflow_columns!(), "WHERE uid = ?1");

pub(crate) const WORKFLOWS: &str = concat!(workflow_columns!(), "WHERE id > ?1 AND deleted_at IS NULL ORDER BY id");

pub(crate) const DRAFT: &str = "SELECT workflow_id, display_name, description, dialect, definition_source, checksum,
    updated_at FROM workflow_drafts WHERE workflow_uid = ?1";

pub(crate) const SAVE_DRAFT: &str = "INSERT INTO workflow_drafts
    (workflow_uid, workflow_id, display_name, description, dialect, definition_source, checksum, updated_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (workflow_uid) DO UPDATE SET display_name = excluded.display_name,
    description = excluded.description, dialect = excluded.dialect,
    definition_source = excluded.definition_source, checksum = excluded.checksum, updated_at = excluded.updated_at";

/// Writes nothing if another workflow has the name.
pub(crate) const CREATE_WORKFLOW: &str = "INSERT INTO workflows
    (id, uid, display_name, description, dialect, status, is_enabled, created_at, updated_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
    ON CONFLICT (id) WHERE deleted_at IS NULL DO NOTHING";

pub(crate) const DEFINITION: &str = "SELECT workflow_id, version, dialect, definition_source, checksum, created_at
    FROM workflow_definitions WHERE workflow_uid = ?1 AND version = ?2";

pub(crate) const INSERT_DEFINITION: &str = "INSERT INTO workflow_definitions
    (workflow_uid, version, workflow_id, dialect, definition_source, checksum, created_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

/// Stores the plan of a version that has none.
pub(crate) const ADD_PLAN: &str = "INSERT INTO workflow_plans
    (workflow_uid, version, workflow_id, plan_json, created_at)
    SELECT workflow_uid, version, workflow_id, CAST(?3 AS text), CAST(?4 AS bigint) FROM workflow_definitions
    WHERE workflow_uid = ?1 AND version = ?2
    ON CONFLICT (workflow_uid, version) DO NOTHING";

pub(crate) const PLAN: &str = "SELECT plan_json FROM workflow_plans WHERE workflow_uid = ?1 AND version = ?2";

pub(crate) const UPDATE_WORKFLOW: &str = "UPDATE workflows SET display_name = ?2, description = ?3, dialect = ?4,
    current_version = ?5, latest_version = ?6, status = ?7, is_enabled = ?8, updated_at = ?9 WHERE uid = ?1";

pub(crate) const DELETE_DRAFT: &str = "DELETE FROM workflow_drafts WHERE workflow_uid = ?1";

/// Deletes what belongs to a workflow, and then the workflow.
pub(crate) const DELETE_WORKFLOW: [&str; 4] = [
    DELETE_DRAFT,
    "DELETE FROM workflow_plans WHERE workflow_uid = ?1",
    "DELETE FROM workflow_definitions WHERE workflow_uid = ?1",
    "DELETE FROM workflows WHERE uid = ?1",
];

pub(crate) const SOFT_DELETE: &str = "UPDATE workflows SET deleted_at = ?2, updated_at = ?2 WHERE uid = ?1";

/// The newest version number of deleted workflows of this name.
pub(crate) const MARK: &str = "SELECT latest_version FROM workflow_version_marks WHERE workflow_id = ?1";

pub(crate) const SET_MARK: &str = "INSERT INTO workflow_version_marks (workflow_id, latest_version) VALUES (?1, ?2)
    ON CONFLICT (workflow_id) DO UPDATE SET latest_version = excluded.latest_version";

pub(crate) const VERSIONS: &str = "SELECT version, dialect, checksum, created_at FROM workflow_definitions
    WHERE workflow_uid = ?1 AND version < ?2 ORDER BY version DESC LIMIT ?3";

pub(crate) const RUN_COLUMNS: &str =
    "id, workflow_id, workflow_version, workflow_request_id, tenant_id, status, reason, error_json,
    priority, correlation_id, requester_user_id, requester_email, requester_display_name, parent_execution_id,
    trigger_payload_json, spec_json, outputs_json, context_snapshot_json, created_at, start_time, end_time, wake_at,
    lease_owner, workflow_uid, parent_node_id, parent_item, depth";

/// The same without payloads, for lists.
pub(crate) const LIST_COLUMNS: &str =
    "id, workflow_id, workflow_version, workflow_request_id, tenant_id, status, reason, error_json,
    priority, correlation_id, requester_user_id, requester_email, requester_display_name, parent_execution_id,
    '', NULL, NULL, NULL, created_at, start_time, end_time, wake_at, lease_owner, workflow_uid,
    parent_node_id, parent_item, depth";

/// The columns of a run that a runner needs.
pub(crate) const STORED_RUN_COLUMNS: &str =
    "id, workflow_id, workflow_version, tenant_id, status, trigger_payload_json, spec_json,
    correlation_id, requester_user_id, requester_email, requester_display_name, lease_epoch, takeovers, inbox_seq,
    inbox_seen, priority, lease_owner, workflow_uid, parent_execution_id, parent_waits, depth, lineage";

pub(crate) const ACTION_COLUMNS: &str =
    "node_id, attempt, action_type, status, parameters_json, outputs_json, error_json, start_time, end_time";

pub(crate) const EVENTS: &str = "SELECT seq, ts, data FROM execution_events WHERE workflow_execution_id = ?1
    ORDER BY seq LIMIT ?2 OFFSET ?3";

pub(crate) const COUNT_EVENTS: &str = "SELECT COUNT(*) FROM execution_events WHERE workflow_execution_id = ?1";

pub(crate) const COUNT_ACTIONS: &str = "SELECT COUNT(*) FROM action_executions WHERE workflow_execution_id = ?1";

pub(crate) const LINKS: &str =
    "SELECT node_id, attempt, system_name, resource_type, resource_id, external_url, created_at
    FROM workflow_resource_links WHERE workflow_execution_id = ?1
    ORDER BY created_at, system_name, resource_type, resource_id LIMIT ?2 OFFSET ?3";

pub(crate) const COUNT_LINKS: &str = "SELECT COUNT(*) FROM workflow_resource_links WHERE workflow_execution_id = ?1";

pub(crate) const MESSAGES: &str =
    "SELECT seq, ts, letter FROM run_inbox WHERE workflow_execution_id = ?1 AND seq > ?2 ORDER BY seq";

pub(crate) const WAITS: &str = "SELECT node_id, attempt, token, is_open, payload_json, answered_by, answered_at
    FROM run_waits WHERE workflow_execution_id = ?1 ORDER BY node_id, attempt, token";

pub(crate) const RETIRE: &str = "DELETE FROM runners WHERE id = ?1";

pub(crate) const DEAD_LETTER_COLUMNS: &str =
    "id, enqueued_at, reason, workflow_execution_id, workflow_id, workflow_version, tenant_id, attempts, last_error,
    workflow_uid";

pub(crate) const DELETE_DEAD_LETTER: &str = "DELETE FROM dead_letters WHERE id = ?1";

/// Recorded attempts, in the order in which they ended.
pub(crate) fn actions() -> String {
    format!(
        "SELECT {ACTION_COLUMNS} FROM action_executions WHERE workflow_execution_id = ?1
         ORDER BY end_time, node_id, attempt LIMIT ?2 OFFSET ?3"
    )
}

/// One recorded attempt.
pub(crate) fn attempt() -> String {
    format!(
        "SELECT {ACTION_COLUMNS} FROM action_executions
         WHERE workflow_execution_id = ?1 AND node_id = ?2 AND attempt = ?3"
    )
}

/// The last attempt of every node.
pub(crate) fn last_attempts() -> String {
    format!(
        "SELECT {ACTION_COLUMNS} FROM action_executions a WHERE workflow_execution_id = ?1 AND attempt =
         (SELECT MAX(attempt) FROM action_executions b
          WHERE b.workflow_execution_id = ?1 AND b.node_id = a.node_id) ORDER BY node_id"
    )
}

/// The same statement for PostgreSQL, with `$1` instead of `?1`. No statement contains another question mark.
pub(crate) fn dollars(sql: &str) -> String {
    sql.replace('?', "$")
}
