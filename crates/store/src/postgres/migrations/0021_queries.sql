-- Values of searchable fields of triggers. Only runs whose documents name such fields have rows.
CREATE TABLE run_fields (
  workflow_execution_id uuid NOT NULL,
  field                 text NOT NULL,
  value                 text NOT NULL,
  tenant_id             text NOT NULL,
  PRIMARY KEY (workflow_execution_id, field)
);
CREATE INDEX ix_run_fields ON run_fields (field, value, workflow_execution_id);
CREATE INDEX ix_run_fields_tenant ON run_fields (tenant_id, field, value, workflow_execution_id) WHERE tenant_id <> '';

-- Tags of versions.
CREATE TABLE workflow_tags (
  tag          text NOT NULL,
  workflow_uid uuid NOT NULL,
  version      integer NOT NULL,
  PRIMARY KEY (tag, workflow_uid, version)
);
CREATE INDEX ix_workflow_tags_workflow ON workflow_tags (workflow_uid);
