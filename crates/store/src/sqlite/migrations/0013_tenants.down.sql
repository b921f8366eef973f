-- Nothing belongs to a tenant, or this would not be done.
DROP INDEX ix_inbox_tenant_items;
DROP INDEX ix_dead_letters_tenant;
DROP INDEX ix_executions_tenant_status;
DROP INDEX ix_executions_tenant_workflow;

DROP INDEX ix_callbacks_id;
ALTER TABLE registered_callbacks RENAME TO callbacks_before;
CREATE TABLE registered_callbacks (
  id            TEXT    NOT NULL PRIMARY KEY,
  service_name  TEXT    NOT NULL,
  environment   TEXT    NOT NULL,
  base_url      TEXT    NOT NULL,
  path          TEXT    NOT NULL,
  registered_at INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO registered_callbacks
SELECT id, service_name, environment, base_url, path, registered_at FROM callbacks_before;
DROP TABLE callbacks_before;

ALTER TABLE workflow_version_marks RENAME TO marks_before;
CREATE TABLE workflow_version_marks (
  workflow_id    TEXT    NOT NULL PRIMARY KEY,
  latest_version INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO workflow_version_marks SELECT workflow_id, latest_version FROM marks_before;
DROP TABLE marks_before;

DROP INDEX ix_workflows_id;
DROP INDEX ux_workflows_id;
ALTER TABLE workflows DROP COLUMN tenant_id;
CREATE UNIQUE INDEX ux_workflows_id ON workflows (id) WHERE deleted_at IS NULL;
