//! The tables that are moved, with their columns and keys.
//!
//! What must stay true: this list contains every table and column of both databases, except `runners` and the bookkeeping
//! of migrations. A test compares it with both schemas, so a new column must be added here. Key columns come first. The
//! table of runs comes last, so that everything that belongs to a run is there before the run itself.

use super::{
    end::Side,
    value::Kind::{self, Bytes, Flag, Id, Integer, Number, Text},
};

/// A table that is moved.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [Column],
    /// How many of the columns, from the first on, are the key.
    pub(crate) key: usize,
}

/// A column of a table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Whether it becomes NULL in the target: leases are not moved.
    pub(crate) released: bool,
}

impl Column {
    /// Whether its values are read on this side; otherwise it is read as NULL.
    pub(crate) fn is_read(&self, side: Side) -> bool {
        !(self.released && side == Side::Source)
    }
}

const fn column(name: &'static str, kind: Kind) -> Column {
    Column {
        name,
        kind,
        released: false,
    }
}

const fn released(name: &'static str, kind: Kind) -> Column {
    Column {
        name,
        kind,
        released: true,
    }
}

impl Table {
    pub(crate) fn key_columns(&self) -> &'static [Column] {
        &self.columns[..self.key]
    }

    /// The names of columns, separated by commas.
    pub(crate) fn names(columns: &[Column]) -> String {
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        names.join(", ")
    }

    /// SQL that reads the rows in the order of their keys, if `after` only those after a key. Parameters are written in the
    /// syntax of SQLite (`?1`).
    pub(crate) fn select(&self, after: bool, side: Side) -> String {
        let columns = self.columns.iter().map(|column| match column.is_read(side) {
            true => column.name,
            false => "NULL",
        });
        let columns: Vec<&str> = columns.collect();
        let (columns, key) = (columns.join(", "), Table::names(self.key_columns()));
        let places: Vec<String> = (1..=self.key).map(|place| format!("?{place}")).collect();
        let after = match after {
            true => format!("WHERE ({key}) > ({}) ", places.join(", ")),
            false => String::new(),
        };
        format!("SELECT {columns} FROM {} {after}ORDER BY {key}", self.name)
    }

    /// The table with this name.
    pub(crate) fn named(name: &str) -> Option<&'static Table> {
        TABLES.iter().find(|table| table.name == name)
    }
}

/// All tables, in the order in which they are moved.
pub(crate) const TABLES: &[Table] = &[
    Table {
        name: "workflow_version_marks",
        key: 2,
        columns: &[
            column("tenant_id", Text),
            column("workflow_id", Text),
            column("latest_version", Integer),
        ],
    },
    Table {
        name: "workflow_definitions",
        key: 2,
        columns: &[
            column("workflow_uid", Id),
            column("version", Integer),
            column("workflow_id", Text),
            column("dialect", Text),
            column("definition_source", Bytes),
            column("checksum", Text),
            column("created_at", Number),
        ],
    },
    Table {
        name: "workflow_plans",
        key: 2,
        columns: &[
            column("workflow_uid", Id),
            column("version", Integer),
            column("workflow_id", Text),
            column("plan_json", Text),
            column("created_at", Number),
        ],
    },
    Table {
        name: "workflow_tags",
        key: 3,
        columns: &[
            column("tag", Text),
            column("workflow_uid", Id),
            column("version", Integer),
        ],
    },
    Table {
        name: "workflow_drafts",
        key: 1,
        columns: &[
            column("workflow_uid", Id),
            column("workflow_id", Text),
            column("display_name", Text),
            column("description", Text),
            column("dialect", Text),
            column("definition_source", Bytes),
            column("checksum", Text),
            column("updated_at", Number),
        ],
    },
    Table {
        name: "workflows",
        key: 1,
        columns: &[
            column("uid", Id),
            column("id", Text),
            column("display_name", Text),
            column("description", Text),
            column("dialect", Text),
            column("current_version", Integer),
            column("latest_version", Integer),
            column("status", Text),
            column("is_enabled", Flag),
            column("created_at", Number),
            column("updated_at", Number),
            column("deleted_at", Number),
            column("tenant_id", Text),
            column("paused_at", Number),
        ],
    },
    Table {
        name: "registered_callbacks",
        key: 2,
        columns: &[
            column("tenant_id", Text),
            column("id", Text),
            column("service_name", Text),
            column("environment", Text),
            column("base_url", Text),
            column("path", Text),
            column("registered_at", Number),
        ],
    },
    Table {
        name: "api_keys",
        key: 1,
        columns: &[
            column("id", Id),
            column("name", Text),
            column("tenant_id", Text),
            column("scopes", Text),
            column("hash", Text),
            column("created_at", Number),
            column("created_by", Text),
            column("expires_at", Number),
            column("revoked_at", Number),
        ],
    },
    Table {
        name: "audit_log",
        key: 1,
        columns: &[
            column("id", Id),
            column("ts", Number),
            column("tenant_id", Text),
            column("who", Text),
            column("credential", Text),
            column("address", Text),
            column("action", Text),
            column("target", Text),
            column("outcome", Text),
            column("detail", Text),
            column("checksum_before", Text),
            column("checksum_after", Text),
        ],
    },
    Table {
        name: "tenant_usage",
        key: 2,
        columns: &[
            column("tenant_id", Text),
            column("month", Integer),
            column("steps", Number),
        ],
    },
    Table {
        name: "run_stats",
        key: 4,
        columns: &[
            column("minute", Number),
            column("runner_id", Id),
            column("workflow_uid", Id),
            column("tenant_id", Text),
            column("workflow_id", Text),
            column("waiting", Number),
            column("started", Number),
            column("succeeded", Number),
            column("failed", Number),
            column("cancelled", Number),
            column("d0", Number),
            column("d1", Number),
            column("d2", Number),
            column("d3", Number),
            column("d4", Number),
            column("d5", Number),
            column("d6", Number),
            column("d7", Number),
            column("d8", Number),
            column("d9", Number),
            column("d10", Number),
            column("d11", Number),
            column("d12", Number),
            column("d13", Number),
            column("d14", Number),
            column("d15", Number),
            column("d16", Number),
            column("d17", Number),
        ],
    },
    Table {
        name: "flow_keys",
        key: 1,
        columns: &[
            column("key", Text),
            column("held", Integer),
            column("most", Integer),
            column("version", Integer),
            column("workflow_execution_id", Id),
            column("begin_at", Number),
            column("counted", Integer),
            column("expires_at", Number),
        ],
    },
    Table {
        name: "merged_requests",
        key: 2,
        columns: &[
            column("tenant_id", Text),
            column("workflow_request_id", Text),
            column("workflow_execution_id", Id),
            column("created_at", Number),
        ],
    },
    Table {
        name: "workflow_triggers",
        key: 1,
        columns: &[
            column("id", Id),
            column("workflow_uid", Id),
            column("workflow_id", Text),
            column("tenant_id", Text),
            column("trigger_type", Text),
            column("name", Text),
            column("is_enabled", Flag),
            column("disabled_by_archive", Flag),
            column("config_json", Text),
            column("activation_condition", Text),
            column("segment", Id),
            column("old_segment", Id),
            column("old_segment_until", Number),
            column("event_type", Text),
            column("fired_until", Number),
            column("next_fire_at", Number),
            column("last_occurrence", Text),
            column("last_run_id", Id),
            column("last_at", Number),
            column("created_at", Number),
            column("updated_at", Number),
        ],
    },
    Table {
        name: "trigger_deliveries",
        key: 2,
        columns: &[
            column("trigger_id", Id),
            column("occurrence", Text),
            column("id", Id),
            column("tenant_id", Text),
            column("received_at", Number),
            column("state", Text),
            column("run_id", Id),
            column("reason", Text),
            column("saw_json", Text),
            column("payload_json", Text),
            column("request_json", Text),
            column("after_occurrence", Text),
            column("retry_at", Number),
        ],
    },
    Table {
        name: "trigger_events",
        key: 3,
        columns: &[
            column("tenant_id", Text),
            column("source", Text),
            column("event_id", Text),
            column("event_type", Text),
            column("received_at", Number),
            column("is_matched", Flag),
            column("attributes_json", Text),
            column("data_json", Text),
        ],
    },
    Table {
        name: "dead_letters",
        key: 1,
        columns: &[
            column("id", Id),
            column("workflow_execution_id", Id),
            column("workflow_uid", Id),
            column("enqueued_at", Number),
            column("workflow_version", Integer),
            column("attempts", Integer),
            column("reason", Text),
            column("workflow_id", Text),
            column("tenant_id", Text),
            column("last_error", Text),
            column("payload_json", Text),
        ],
    },
    Table {
        name: "workflow_resource_links",
        key: 3,
        columns: &[
            column("system_name", Text),
            column("resource_type", Text),
            column("resource_id", Text),
            column("workflow_execution_id", Id),
            column("node_id", Text),
            column("attempt", Integer),
            column("external_url", Text),
            column("created_at", Number),
        ],
    },
    Table {
        name: "run_waits",
        key: 1,
        columns: &[
            column("token", Text),
            column("workflow_execution_id", Id),
            column("node_id", Text),
            column("is_open", Flag),
            column("payload_json", Text),
            column("answer_seq", Number),
            column("deadline", Number),
            column("attempt", Integer),
            column("item_id", Id),
            column("queue", Text),
            column("tenant_id", Text),
            column("workflow_id", Text),
            column("kind", Text),
            column("item_json", Text),
            column("created_at", Number),
            column("lease_id", Id),
            column("worker", Text),
            column("lease_until", Number),
            column("progress_json", Text),
            column("answered_by", Text),
            column("answered_at", Number),
        ],
    },
    Table {
        name: "run_inbox",
        key: 2,
        columns: &[
            column("workflow_execution_id", Id),
            column("seq", Number),
            column("ts", Number),
            column("letter", Text),
        ],
    },
    Table {
        name: "bulk_jobs",
        key: 1,
        columns: &[
            column("id", Id),
            column("tenant_id", Text),
            column("action_json", Text),
            column("query", Text),
            column("caller_json", Text),
            column("state", Text),
            column("total", Number),
            column("done", Number),
            column("refused", Number),
            column("failed", Number),
            column("epoch", Number),
            column("retry_at", Number),
            column("created_at", Number),
            column("started_at", Number),
            column("ended_at", Number),
        ],
    },
    Table {
        name: "bulk_items",
        key: 2,
        columns: &[
            column("job_id", Id),
            column("run_id", Id),
            column("state", Text),
            column("code", Text),
            column("message", Text),
            column("created_run_id", Id),
        ],
    },
    Table {
        name: "run_fields",
        key: 2,
        columns: &[
            column("workflow_execution_id", Id),
            column("field", Text),
            column("value", Text),
            column("tenant_id", Text),
        ],
    },
    Table {
        name: "run_states",
        key: 1,
        columns: &[column("workflow_execution_id", Id), column("state_json", Text)],
    },
    Table {
        name: "execution_events",
        key: 2,
        columns: &[
            column("workflow_execution_id", Id),
            column("seq", Integer),
            column("ts", Number),
            column("data", Text),
            column("level", Text),
            column("category", Text),
        ],
    },
    Table {
        name: "action_executions",
        key: 3,
        columns: &[
            column("workflow_execution_id", Id),
            column("node_id", Text),
            column("attempt", Integer),
            column("start_time", Number),
            column("end_time", Number),
            column("action_type", Text),
            column("status", Text),
            column("parameters_json", Text),
            column("outputs_json", Text),
            column("error_json", Text),
            column("reused_from", Id),
        ],
    },
    Table {
        name: "workflow_executions",
        key: 1,
        columns: &[
            column("id", Id),
            released("lease_owner", Id),
            column("parent_execution_id", Id),
            column("workflow_uid", Id),
            column("lease_epoch", Number),
            column("wake_at", Number),
            column("inbox_seq", Number),
            column("inbox_seen", Number),
            column("created_at", Number),
            column("start_time", Number),
            column("end_time", Number),
            column("takeovers", Integer),
            column("workflow_version", Integer),
            column("priority", Integer),
            column("status", Text),
            column("workflow_id", Text),
            column("tenant_id", Text),
            column("workflow_request_id", Text),
            column("correlation_id", Text),
            column("requester_user_id", Text),
            column("requester_email", Text),
            column("requester_display_name", Text),
            column("reason", Text),
            column("error_json", Text),
            column("trigger_payload_json", Text),
            column("spec_json", Text),
            column("outputs_json", Text),
            column("context_snapshot_json", Text),
            column("parent_node_id", Text),
            column("parent_attempt", Integer),
            column("parent_item", Integer),
            column("parent_waits", Flag),
            column("depth", Integer),
            column("lineage", Text),
            column("traceparent", Text),
            column("flow_json", Text),
            column("flow_step", Text),
            column("flow_held", Integer),
            column("waiting_key", Text),
            column("request_json", Text),
            column("rerun_of", Id),
            column("rerun_root", Id),
            column("rerun_json", Text),
            column("paused_at", Number),
        ],
    },
];
