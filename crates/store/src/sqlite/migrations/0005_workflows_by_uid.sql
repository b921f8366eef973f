-- Workflows are known by their uid; a name is unique among those that were not deleted. What belongs to a workflow refers
-- to its uid and keeps the name for people who read the tables.
--
-- This rebuilds tables, which a migration may do only because no release has the older schema. Where a name was deleted
-- and created again, the old and the new workflow share one row, so everything of both goes to that row's uid.

ALTER TABLE workflows RENAME TO workflows_before;
DROP INDEX ux_workflows_uid;
CREATE TABLE workflows (
  uid             BLOB    NOT NULL PRIMARY KEY,
  id              TEXT    NOT NULL,
  display_name    TEXT    NOT NULL,
  description     TEXT,
  dialect         TEXT    NOT NULL,
  current_version INTEGER,
  latest_version  INTEGER,
  status          TEXT    NOT NULL DEFAULT 'Draft' CHECK (status IN ('Draft', 'Active', 'Archived')),
  is_enabled      INTEGER NOT NULL DEFAULT 1,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  -- A workflow with this is there only for its runs.
  deleted_at      INTEGER
) WITHOUT ROWID;
INSERT INTO workflows (uid, id, display_name, description, dialect, current_version, latest_version, status, is_enabled,
  created_at, updated_at, deleted_at)
SELECT uid, id, display_name, description, dialect, current_version, latest_version, status, is_enabled, created_at,
  updated_at, deleted_at FROM workflows_before;
DROP TABLE workflows_before;

-- Only while this runs: where each name leads to. The uid of a workflow that cannot be found is all zeros.
CREATE TABLE uid_of (id TEXT NOT NULL PRIMARY KEY, uid BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO uid_of SELECT id, uid FROM workflows;

ALTER TABLE workflow_definitions RENAME TO definitions_before;
CREATE TABLE workflow_definitions (
  workflow_uid      BLOB    NOT NULL,
  version           INTEGER NOT NULL,
  workflow_id       TEXT    NOT NULL,
  dialect           TEXT    NOT NULL,
  definition_source BLOB    NOT NULL,
  checksum          TEXT    NOT NULL,
  created_at        INTEGER NOT NULL,
  PRIMARY KEY (workflow_uid, version)
) WITHOUT ROWID;
INSERT INTO workflow_definitions
SELECT u.uid, d.version, d.workflow_id, d.dialect, d.definition_source, d.checksum, d.created_at
FROM definitions_before d JOIN uid_of u ON u.id = d.workflow_id;
DROP TABLE definitions_before;

ALTER TABLE workflow_drafts RENAME TO drafts_before;
CREATE TABLE workflow_drafts (
  workflow_uid      BLOB    NOT NULL PRIMARY KEY,
  workflow_id       TEXT    NOT NULL,
  display_name      TEXT    NOT NULL,
  description       TEXT,
  dialect           TEXT    NOT NULL,
  definition_source BLOB    NOT NULL,
  checksum          TEXT    NOT NULL,
  updated_at        INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO workflow_drafts
SELECT u.uid, d.workflow_id, d.display_name, d.description, d.dialect, d.definition_source, d.checksum, d.updated_at
FROM drafts_before d JOIN uid_of u ON u.id = d.workflow_id;
DROP TABLE drafts_before;

CREATE UNIQUE INDEX ux_workflows_id ON workflows (id) WHERE deleted_at IS NULL;

-- The new column stands before the payloads: a claim reads it.
ALTER TABLE workflow_executions RENAME TO executions_before;
CREATE TABLE workflow_executions (
  id                     BLOB    NOT NULL PRIMARY KEY,
  status                 TEXT    NOT NULL,
  lease_owner            BLOB,
  lease_epoch            INTEGER NOT NULL DEFAULT 0,
  takeovers              INTEGER NOT NULL DEFAULT 0,
  wake_at                INTEGER,
  inbox_seq              INTEGER NOT NULL DEFAULT 0,
  inbox_seen             INTEGER NOT NULL DEFAULT 0,
  workflow_uid           BLOB    NOT NULL,
  workflow_id            TEXT    NOT NULL,
  workflow_version       INTEGER NOT NULL,
  tenant_id              TEXT    NOT NULL DEFAULT '',
  workflow_request_id    TEXT    NOT NULL,
  priority               INTEGER,
  correlation_id         TEXT,
  parent_execution_id    BLOB,
  requester_user_id      TEXT    NOT NULL,
  requester_email        TEXT,
  requester_display_name TEXT,
  created_at             INTEGER NOT NULL,
  start_time             INTEGER,
  end_time               INTEGER,
  reason                 TEXT,
  error_json             TEXT,
  trigger_payload_json   TEXT    NOT NULL,
  spec_json              TEXT,
  outputs_json           TEXT,
  context_snapshot_json  TEXT
) WITHOUT ROWID;
INSERT INTO workflow_executions
SELECT e.id, e.status, e.lease_owner, e.lease_epoch, e.takeovers, e.wake_at, e.inbox_seq, e.inbox_seen,
  COALESCE(u.uid, zeroblob(16)), e.workflow_id, e.workflow_version, e.tenant_id, e.workflow_request_id, e.priority,
  e.correlation_id, e.parent_execution_id, e.requester_user_id, e.requester_email, e.requester_display_name,
  e.created_at, e.start_time, e.end_time, e.reason, e.error_json, e.trigger_payload_json, e.spec_json, e.outputs_json,
  e.context_snapshot_json
FROM executions_before e LEFT JOIN uid_of u ON u.id = e.workflow_id ORDER BY e.id;
DROP TABLE executions_before;

CREATE UNIQUE INDEX ux_executions_request ON workflow_executions (tenant_id, workflow_request_id);
CREATE INDEX ix_executions_workflow ON workflow_executions (workflow_uid, id);
-- Held and waiting runs: a runner's claims, and the search for dead owners. A terminal run leaves it.
CREATE INDEX ix_executions_claim ON workflow_executions (lease_owner, wake_at) WHERE wake_at IS NOT NULL;
-- Nearly every run ends as Succeeded; the lists of all others are short.
CREATE INDEX ix_executions_status ON workflow_executions (status, id) WHERE status <> 'Succeeded';
CREATE INDEX ix_executions_tenant ON workflow_executions (tenant_id, id) WHERE tenant_id <> '';
CREATE INDEX ix_executions_parent ON workflow_executions (parent_execution_id, id)
  WHERE parent_execution_id IS NOT NULL;
CREATE INDEX ix_executions_correlation ON workflow_executions (correlation_id, id)
  WHERE correlation_id IS NOT NULL;
CREATE INDEX ix_executions_priority ON workflow_executions (workflow_uid, priority, wake_at)
  WHERE lease_owner IS NULL AND wake_at IS NOT NULL AND priority <> 0;
-- Held runs with inbox messages that their owner has not consumed.
CREATE INDEX ix_executions_unread ON workflow_executions (lease_owner, id)
  WHERE lease_owner IS NOT NULL AND inbox_seq > inbox_seen;
-- Who waits behind a workflow or a tenant with a backlog. A run that is born held and ends so never touches it.
CREATE INDEX ix_executions_group ON workflow_executions (tenant_id, workflow_uid, wake_at)
  WHERE lease_owner IS NULL AND wake_at IS NOT NULL;

ALTER TABLE dead_letters RENAME TO dead_letters_before;
DROP INDEX ix_dead_letters_reason;
DROP INDEX ix_dead_letters_workflow;
CREATE TABLE dead_letters (
  id                    BLOB    NOT NULL PRIMARY KEY,
  enqueued_at           INTEGER NOT NULL,
  reason                TEXT    NOT NULL,
  workflow_execution_id BLOB    NOT NULL,
  workflow_uid          BLOB    NOT NULL,
  workflow_id           TEXT    NOT NULL,
  workflow_version      INTEGER NOT NULL,
  tenant_id             TEXT    NOT NULL DEFAULT '',
  attempts              INTEGER NOT NULL DEFAULT 0,
  last_error            TEXT,
  payload_json          TEXT    NOT NULL
) WITHOUT ROWID;
INSERT INTO dead_letters
SELECT l.id, l.enqueued_at, l.reason, l.workflow_execution_id, COALESCE(u.uid, zeroblob(16)), l.workflow_id,
  l.workflow_version, l.tenant_id, l.attempts, l.last_error, l.payload_json
FROM dead_letters_before l LEFT JOIN uid_of u ON u.id = l.workflow_id;
DROP TABLE dead_letters_before;
CREATE INDEX ix_dead_letters_reason ON dead_letters (reason, id);
CREATE INDEX ix_dead_letters_workflow ON dead_letters (workflow_uid, id);

DROP TABLE uid_of;
