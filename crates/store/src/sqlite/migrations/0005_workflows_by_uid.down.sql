-- Every name leads to one workflow, or this would not be done: everything is known by the name again.
DROP INDEX ix_dead_letters_workflow;
ALTER TABLE dead_letters DROP COLUMN workflow_uid;
CREATE INDEX ix_dead_letters_workflow ON dead_letters (workflow_id, id);

DROP INDEX ix_executions_group;
DROP INDEX ix_executions_priority;
DROP INDEX ix_executions_workflow;
ALTER TABLE workflow_executions DROP COLUMN workflow_uid;
CREATE INDEX ix_executions_workflow ON workflow_executions (workflow_id, id);
CREATE INDEX ix_executions_priority ON workflow_executions (workflow_id, priority, wake_at)
  WHERE lease_owner IS NULL AND wake_at IS NOT NULL AND priority <> 0;
CREATE INDEX ix_executions_group ON workflow_executions (tenant_id, workflow_id, wake_at)
  WHERE lease_owner IS NULL AND wake_at IS NOT NULL;

ALTER TABLE workflow_drafts RENAME TO drafts_before;
CREATE TABLE workflow_drafts (
  workflow_id       TEXT    NOT NULL PRIMARY KEY,
  display_name      TEXT    NOT NULL,
  description       TEXT,
  dialect           TEXT    NOT NULL,
  definition_source BLOB    NOT NULL,
  checksum          TEXT    NOT NULL,
  updated_at        INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO workflow_drafts
SELECT workflow_id, display_name, description, dialect, definition_source, checksum, updated_at FROM drafts_before;
DROP TABLE drafts_before;

ALTER TABLE workflow_definitions RENAME TO definitions_before;
CREATE TABLE workflow_definitions (
  workflow_id       TEXT    NOT NULL,
  version           INTEGER NOT NULL,
  dialect           TEXT    NOT NULL,
  definition_source BLOB    NOT NULL,
  checksum          TEXT    NOT NULL,
  created_at        INTEGER NOT NULL,
  PRIMARY KEY (workflow_id, version)
) WITHOUT ROWID;
INSERT INTO workflow_definitions
SELECT workflow_id, version, dialect, definition_source, checksum, created_at FROM definitions_before;
DROP TABLE definitions_before;

DROP INDEX ux_workflows_id;
ALTER TABLE workflows RENAME TO workflows_before;
CREATE TABLE workflows (
  id              TEXT    NOT NULL PRIMARY KEY,
  display_name    TEXT    NOT NULL,
  description     TEXT,
  dialect         TEXT    NOT NULL,
  current_version INTEGER,
  latest_version  INTEGER,
  status          TEXT    NOT NULL DEFAULT 'Draft' CHECK (status IN ('Draft', 'Active', 'Archived')),
  is_enabled      INTEGER NOT NULL DEFAULT 1,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL
) WITHOUT ROWID;
ALTER TABLE workflows ADD COLUMN uid BLOB;
ALTER TABLE workflows ADD COLUMN deleted_at INTEGER;
INSERT INTO workflows (id, display_name, description, dialect, current_version, latest_version, status, is_enabled,
  created_at, updated_at, uid, deleted_at)
SELECT id, display_name, description, dialect, current_version, latest_version, status, is_enabled, created_at,
  updated_at, uid, deleted_at FROM workflows_before;
DROP TABLE workflows_before;
CREATE UNIQUE INDEX ux_workflows_uid ON workflows (uid);
