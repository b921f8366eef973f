-- Values of searchable fields of triggers. Only runs whose documents name such fields have rows.
CREATE TABLE run_fields (
  workflow_execution_id BLOB NOT NULL,
  field                 TEXT NOT NULL,
  value                 TEXT NOT NULL,
  tenant_id             TEXT NOT NULL,
  PRIMARY KEY (workflow_execution_id, field)
) WITHOUT ROWID;
CREATE INDEX ix_run_fields ON run_fields (field, value, workflow_execution_id);
CREATE INDEX ix_run_fields_tenant ON run_fields (tenant_id, field, value, workflow_execution_id) WHERE tenant_id <> '';

-- Tags of versions.
CREATE TABLE workflow_tags (
  tag          TEXT NOT NULL,
  workflow_uid BLOB NOT NULL,
  version      INTEGER NOT NULL,
  PRIMARY KEY (tag, workflow_uid, version)
) WITHOUT ROWID;
CREATE INDEX ix_workflow_tags_workflow ON workflow_tags (workflow_uid);
