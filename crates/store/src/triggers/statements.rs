//! Statements about triggers that SQLite and PostgreSQL share. Parameters are written for SQLite;
//! [`crate::statements::dollars`] converts them for PostgreSQL.

macro_rules! trigger_columns {
    () => {
        "SELECT id, workflow_uid, workflow_id, tenant_id, trigger_type, name, is_enabled, disabled_by_archive, config_json,
    activation_condition, segment, old_segment, old_segment_until, event_type, fired_until, next_fire_at, last_occurrence,
    last_run_id, last_at, created_at, updated_at FROM workflow_triggers "
    };
}

/// Writes nothing if the workflow is missing or deleted, or if it has a trigger of this name. For SQLite: PostgreSQL needs the
/// types of the parameters.
pub(crate) const CREATE: &str =
    "INSERT INTO workflow_triggers (id, workflow_uid, workflow_id, tenant_id, trigger_type, name,
    is_enabled, disabled_by_archive, config_json, activation_condition, segment, event_type, fired_until, next_fire_at,
    created_at, updated_at)
    SELECT ?1, uid, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16
    FROM workflows WHERE uid = ?2 AND deleted_at IS NULL ON CONFLICT DO NOTHING";

pub(crate) const UPDATE: &str =
    "UPDATE workflow_triggers SET trigger_type = ?2, is_enabled = ?3, disabled_by_archive = ?4,
    config_json = ?5, activation_condition = ?6, segment = ?7, event_type = ?8, fired_until = ?9, next_fire_at = ?10,
    updated_at = ?11 WHERE id = ?1";

pub(crate) const DELETE: &str = "DELETE FROM workflow_triggers WHERE id = ?1";

pub(crate) const DELETE_OF_WORKFLOW: &str = "DELETE FROM workflow_triggers WHERE workflow_uid = ?1";

pub(crate) const ROTATE: &str =
    "UPDATE workflow_triggers SET old_segment = segment, old_segment_until = ?3, segment = ?2,
    updated_at = ?4 WHERE id = ?1 AND segment IS NOT NULL";

pub(crate) const TRIGGER: &str = concat!(trigger_columns!(), "WHERE id = ?1");

pub(crate) const WEBHOOK: &str = concat!(
    trigger_columns!(),
    "WHERE segment = ?1 UNION ALL ",
    trigger_columns!(),
    "WHERE old_segment = ?1 AND old_segment_until > ?2"
);

/// Triggers after an id: all, those of a tenant, those of a workflow.
pub(crate) const LIST: &str = concat!(trigger_columns!(), "WHERE id > ?1 ORDER BY id LIMIT ?2");
pub(crate) const LIST_OF_TENANT: &str = concat!(
    trigger_columns!(),
    "WHERE tenant_id = ?3 AND id > ?1 ORDER BY id LIMIT ?2"
);
pub(crate) const LIST_OF_WORKFLOW: &str = concat!(
    trigger_columns!(),
    "WHERE workflow_uid = ?3 AND id > ?1 ORDER BY id LIMIT ?2"
);

pub(crate) const OF_WORKFLOW: &str = concat!(trigger_columns!(), "WHERE workflow_uid = ?1 ORDER BY id");

pub(crate) const OF_EVENT: &str = concat!(
    trigger_columns!(),
    "WHERE tenant_id = ?1 AND event_type = ?2 AND trigger_type = 'Event' AND is_enabled UNION ALL ",
    trigger_columns!(),
    "WHERE tenant_id = ?1 AND event_type IS NULL AND trigger_type = 'Event' AND is_enabled"
);

/// Schedules that are due. PostgreSQL locks them.
pub(crate) const DUE: &str = concat!(
    trigger_columns!(),
    "WHERE next_fire_at <= ?1 ORDER BY next_fire_at LIMIT ?2"
);

pub(crate) const NEXT_FIRE: &str =
    "SELECT next_fire_at FROM workflow_triggers WHERE next_fire_at IS NOT NULL ORDER BY next_fire_at LIMIT 1";

pub(crate) const NEXT_DELIVERY: &str =
    "SELECT retry_at FROM trigger_deliveries WHERE retry_at IS NOT NULL ORDER BY retry_at LIMIT 1";

macro_rules! delivery_columns {
    () => {
        "id, trigger_id, occurrence, tenant_id, received_at, state, run_id, reason, saw_json, payload_json, request_json,
    after_occurrence, retry_at"
    };
}
pub(crate) use delivery_columns;

pub(crate) const DELIVERY: &str = concat!("SELECT ", delivery_columns!(), " FROM trigger_deliveries WHERE id = ?1");

pub(crate) const OCCURRENCE: &str = concat!(
    "SELECT ",
    delivery_columns!(),
    " FROM trigger_deliveries WHERE trigger_id = ?1 AND occurrence = ?2"
);

/// Deliveries of a trigger before an id, newest first, without payloads.
pub(crate) const DELIVERIES: &str =
    "SELECT id, trigger_id, occurrence, tenant_id, received_at, state, run_id, reason, saw_json, NULL, NULL,
    after_occurrence, retry_at FROM trigger_deliveries WHERE trigger_id = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3";

/// The payload of a started delivery is in its run; a skipped one needs none.
pub(crate) const SETTLE: &str = "UPDATE trigger_deliveries SET state = ?3, run_id = COALESCE(?4, run_id), reason = ?5,
    saw_json = ?6, retry_at = NULL, payload_json = CASE WHEN ?7 THEN NULL ELSE payload_json END,
    request_json = CASE WHEN ?7 THEN NULL ELSE request_json END
    WHERE trigger_id = ?1 AND occurrence = ?2 AND state IN ('pending', 'queued')";

pub(crate) const LATER: &str = "UPDATE trigger_deliveries SET retry_at = ?3
    WHERE trigger_id = ?1 AND occurrence = ?2 AND state IN ('pending', 'queued')";

macro_rules! event_columns {
    () => {
        "SELECT tenant_id, source, event_id, event_type, received_at, attributes_json, data_json FROM trigger_events "
    };
}

pub(crate) const UNMATCHED: &str = concat!(event_columns!(), "WHERE NOT is_matched ORDER BY received_at LIMIT ?1");

/// An event that was received before `?7` is replaced: its id may be used again.
pub(crate) const INSERT_EVENT: &str = "INSERT INTO trigger_events AS e
    (tenant_id, source, event_id, event_type, received_at, is_matched, attributes_json, data_json)
    VALUES (?1, ?2, ?3, ?4, ?5, true, ?6, '')
    ON CONFLICT (tenant_id, source, event_id) DO UPDATE SET event_type = excluded.event_type,
    received_at = excluded.received_at, is_matched = true, attributes_json = excluded.attributes_json, data_json = ''
    WHERE e.received_at <= ?7";

pub(crate) const MATCH_EVENT: &str = "UPDATE trigger_events SET is_matched = true, data_json = ''
    WHERE tenant_id = ?1 AND source = ?2 AND event_id = ?3 AND NOT is_matched";
