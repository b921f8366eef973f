//! Statements that SQLite and PostgreSQL share. Parameters are written for SQLite; [`dollars`] converts them for
//! PostgreSQL.

/// The columns of a workflow.
macro_rules! workflow_columns {
    () => {
        "SELECT id, uid, display_name, description, dialect, current_version, latest_version, status, is_enabled,
    created_at, updated_at, deleted_at, tenant_id, paused_at FROM workflows "
    };
}
pub(crate) use workflow_columns;

/// The workflow that a tenant means by this name. A shared workflow has an empty tenant, so it comes last.
pub(crate) const WORKFLOW: &str = concat!(
    workflow_columns!(),
    "WHERE tenant_id IN (?1, '') AND id = ?2 AND deleted_at IS NULL ORDER BY tenant_id DESC LIMIT 1"
);

/// The workflow of exactly this tenant with this name.
macro_rules! workflow_of_tenant {
    () => {
        concat!(
            crate::statements::workflow_columns!(),
            "WHERE tenant_id = ?1 AND id = ?2 AND deleted_at IS NULL"
        )
    };
}
pub(crate) use workflow_of_tenant;

pub(crate) const WORKFLOW_OF_TENANT: &str = workflow_of_tenant!();

/// The workflow with this uid, including soft-deleted ones.
pub(crate) const WORKFLOW_BY_UID: &str = concat!(workflow_columns!(), "WHERE uid = ?1");

/// All workflows after the (name, tenant) `?1`, `?2`.
pub(crate) const WORKFLOWS: &str = concat!(
    workflow_columns!(),
    "WHERE (id, tenant_id) > (?1, ?2) AND deleted_at IS NULL ORDER BY id, tenant_id"
);

/// The workflows that the tenant `?2` sees, after the name `?1`.
pub(crate) const WORKFLOWS_OF_TENANT: &str = concat!(
    workflow_columns!(),
    "WHERE tenant_id = ?2 AND id > ?1 AND deleted_at IS NULL UNION ALL ",
    workflow_columns!(),
    "s WHERE s.tenant_id = '' AND s.id > ?1 AND s.deleted_at IS NULL AND NOT EXISTS (SELECT 1 FROM workflows o
    WHERE o.tenant_id = ?2 AND o.id = s.id AND o.deleted_at IS NULL) ORDER BY id"
);

pub(crate) const DRAFT: &str = "SELECT workflow_id, display_name, description, dialect, definition_source, checksum,
    updated_at, (SELECT w.tenant_id FROM workflows w WHERE w.uid = workflow_uid) FROM workflow_drafts
    WHERE workflow_uid = ?1";

pub(crate) const SAVE_DRAFT: &str = "INSERT INTO workflow_drafts
    (workflow_uid, workflow_id, display_name, description, dialect, definition_source, checksum, updated_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (workflow_uid) DO UPDATE SET display_name = excluded.display_name,
    description = excluded.description, dialect = excluded.dialect,
    definition_source = excluded.definition_source, checksum = excluded.checksum, updated_at = excluded.updated_at";

/// Writes nothing if another workflow of the tenant has the name.
pub(crate) const CREATE_WORKFLOW: &str = "INSERT INTO workflows
    (id, uid, display_name, description, dialect, status, is_enabled, created_at, updated_at, tenant_id)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
    ON CONFLICT (tenant_id, id) WHERE deleted_at IS NULL DO NOTHING";

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
    current_version = ?5, latest_version = ?6, status = ?7, is_enabled = ?8, updated_at = ?9, paused_at = ?10
    WHERE uid = ?1";

pub(crate) const DELETE_DRAFT: &str = "DELETE FROM workflow_drafts WHERE workflow_uid = ?1";

/// Deletes what belongs to a workflow, and then the workflow.
pub(crate) const DELETE_WORKFLOW: [&str; 6] = [
    crate::triggers::statements::DELETE_OF_WORKFLOW,
    DELETE_DRAFT,
    "DELETE FROM workflow_plans WHERE workflow_uid = ?1",
    "DELETE FROM workflow_tags WHERE workflow_uid = ?1",
    "DELETE FROM workflow_definitions WHERE workflow_uid = ?1",
    "DELETE FROM workflows WHERE uid = ?1",
];

pub(crate) const SOFT_DELETE: &str = "UPDATE workflows SET deleted_at = ?2, updated_at = ?2 WHERE uid = ?1";

/// The newest version number of deleted workflows of this tenant and name.
pub(crate) const MARK: &str =
    "SELECT latest_version FROM workflow_version_marks WHERE tenant_id = ?1 AND workflow_id = ?2";

pub(crate) const SET_MARK: &str = "INSERT INTO workflow_version_marks (tenant_id, workflow_id, latest_version)
    VALUES (?1, ?2, ?3)
    ON CONFLICT (tenant_id, workflow_id) DO UPDATE SET latest_version = excluded.latest_version";

pub(crate) const VERSIONS: &str = "SELECT version, dialect, checksum, created_at FROM workflow_definitions
    WHERE workflow_uid = ?1 AND version < ?2 ORDER BY version DESC LIMIT ?3";

pub(crate) const RUN_COLUMNS: &str =
    "id, workflow_id, workflow_version, workflow_request_id, tenant_id, status, reason, error_json,
    priority, correlation_id, requester_user_id, requester_email, requester_display_name, parent_execution_id,
    trigger_payload_json, spec_json, outputs_json, context_snapshot_json, created_at, start_time, end_time, wake_at,
    lease_owner, workflow_uid, parent_node_id, parent_item, depth, traceparent, flow_json, flow_step, flow_held,
    waiting_key, request_json, rerun_of, rerun_root, paused_at";

/// The same without payloads, for lists.
pub(crate) const LIST_COLUMNS: &str =
    "id, workflow_id, workflow_version, workflow_request_id, tenant_id, status, reason, error_json,
    priority, correlation_id, requester_user_id, requester_email, requester_display_name, parent_execution_id,
    '', NULL, NULL, NULL, created_at, start_time, end_time, wake_at, lease_owner, workflow_uid,
    parent_node_id, parent_item, depth, traceparent, flow_json, flow_step, flow_held, waiting_key, NULL,
    rerun_of, rerun_root, paused_at";

/// The columns of a run that a runner needs.
pub(crate) const STORED_RUN_COLUMNS: &str =
    "id, workflow_id, workflow_version, tenant_id, status, trigger_payload_json, spec_json,
    correlation_id, requester_user_id, requester_email, requester_display_name, lease_epoch, takeovers, inbox_seq,
    inbox_seen, priority, lease_owner, workflow_uid, parent_execution_id, parent_waits, depth, lineage,
    traceparent, flow_json, flow_step, flow_held, waiting_key, request_json, rerun_json";

pub(crate) const ACTION_COLUMNS: &str = "node_id, attempt, action_type, status, parameters_json, outputs_json, error_json, start_time, end_time, reused_from";

pub(crate) const EVENTS: &str = "SELECT seq, ts, data FROM execution_events WHERE workflow_execution_id = ?1
    ORDER BY seq LIMIT ?2 OFFSET ?3";

pub(crate) const JOURNAL_AFTER: &str = "SELECT seq, ts, data FROM execution_events
    WHERE workflow_execution_id = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";

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

pub(crate) const CACHED_STATE: &str = "SELECT state_json FROM run_states WHERE workflow_execution_id = ?1";

/// Runs that are due and not held, by workflow and tenant; at most `?2` of them, the longest-waiting ones.
pub(crate) const QUEUE_DEPTHS: &str = "SELECT workflow_uid, workflow_id, tenant_id, COUNT(*), MIN(wake_at) FROM
    (SELECT workflow_uid, workflow_id, tenant_id, wake_at FROM workflow_executions
     WHERE lease_owner IS NULL AND wake_at IS NOT NULL AND wake_at <= ?1 ORDER BY wake_at LIMIT ?2) AS waiting
    GROUP BY workflow_uid, workflow_id, tenant_id ORDER BY workflow_id, workflow_uid, tenant_id";

/// The workflows of a tenant that were not deleted.
pub(crate) const COUNT_WORKFLOWS: &str = "SELECT COUNT(*) FROM workflows WHERE tenant_id = ?1 AND deleted_at IS NULL";

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
