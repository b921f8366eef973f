-- Workflows and registered callbacks belong to a tenant, or to none: then they are shared. A name is unique within its tenant.
-- Everything that exists becomes shared.
ALTER TABLE workflows ADD COLUMN tenant_id TEXT NOT NULL DEFAULT '';
DROP INDEX ux_workflows_id;
CREATE UNIQUE INDEX ux_workflows_id ON workflows (tenant_id, id) WHERE deleted_at IS NULL;
-- Lists of all tenants.
CREATE INDEX ix_workflows_id ON workflows (id, tenant_id) WHERE deleted_at IS NULL;

ALTER TABLE workflow_version_marks RENAME TO marks_before;
CREATE TABLE workflow_version_marks (
  tenant_id      TEXT    NOT NULL,
  workflow_id    TEXT    NOT NULL,
  latest_version INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, workflow_id)
) WITHOUT ROWID;
INSERT INTO workflow_version_marks SELECT '', workflow_id, latest_version FROM marks_before;
DROP TABLE marks_before;

ALTER TABLE registered_callbacks RENAME TO callbacks_before;
CREATE TABLE registered_callbacks (
  tenant_id     TEXT    NOT NULL,
  id            TEXT    NOT NULL,
  service_name  TEXT    NOT NULL,
  environment   TEXT    NOT NULL,
  base_url      TEXT    NOT NULL,
  path          TEXT    NOT NULL,
  registered_at INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, id)
) WITHOUT ROWID;
INSERT INTO registered_callbacks
SELECT '', id, service_name, environment, base_url, path, registered_at FROM callbacks_before;
DROP TABLE callbacks_before;
CREATE INDEX ix_callbacks_id ON registered_callbacks (id, tenant_id);

-- Lists of one tenant. What has no tenant is in none of them.
CREATE INDEX ix_executions_tenant_workflow ON workflow_executions (tenant_id, workflow_uid, id) WHERE tenant_id <> '';
CREATE INDEX ix_executions_tenant_status ON workflow_executions (tenant_id, status, id)
  WHERE tenant_id <> '' AND status <> 'Succeeded';
CREATE INDEX ix_dead_letters_tenant ON dead_letters (tenant_id, id) WHERE tenant_id <> '';
CREATE INDEX ix_inbox_tenant_items ON run_waits (tenant_id, item_id) WHERE item_id IS NOT NULL AND tenant_id <> '';
