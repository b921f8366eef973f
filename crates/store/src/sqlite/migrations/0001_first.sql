-- Tables and columns are the specs' in snake_case, plus what leases, waits and the inbox need.
-- Ids are 16-byte UUIDv7 blobs, times are microseconds since 1970, JSON is text.

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

CREATE TABLE workflow_definitions (
  workflow_id       TEXT    NOT NULL,
  version           INTEGER NOT NULL,
  dialect           TEXT    NOT NULL,
  definition_source BLOB    NOT NULL,
  checksum          TEXT    NOT NULL,
  created_at        INTEGER NOT NULL,
  PRIMARY KEY (workflow_id, version)
) WITHOUT ROWID;

CREATE TABLE workflow_drafts (
  workflow_id       TEXT    NOT NULL PRIMARY KEY,
  display_name      TEXT    NOT NULL,
  description       TEXT,
  dialect           TEXT    NOT NULL,
  definition_source BLOB    NOT NULL,
  checksum          TEXT    NOT NULL,
  updated_at        INTEGER NOT NULL
) WITHOUT ROWID;

-- What a commit looks at stands first, so that it is read without the payloads.
CREATE TABLE workflow_executions (
  id                     BLOB    NOT NULL PRIMARY KEY,
  status                 TEXT    NOT NULL,
  lease_owner            BLOB,
  lease_epoch            INTEGER NOT NULL DEFAULT 0,
  takeovers              INTEGER NOT NULL DEFAULT 0,
  wake_at                INTEGER,
  inbox_seq              INTEGER NOT NULL DEFAULT 0,
  inbox_seen             INTEGER NOT NULL DEFAULT 0,
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

CREATE UNIQUE INDEX ux_executions_request ON workflow_executions (tenant_id, workflow_request_id);
CREATE INDEX ix_executions_workflow ON workflow_executions (workflow_id, id);
-- Held and waiting runs: a runner's claims, and the search for dead owners. A terminal run leaves it.
CREATE INDEX ix_executions_claim ON workflow_executions (lease_owner, wake_at) WHERE wake_at IS NOT NULL;
-- Nearly every run ends as Succeeded; the lists of all others are short.
CREATE INDEX ix_executions_status ON workflow_executions (status, id) WHERE status <> 'Succeeded';
CREATE INDEX ix_executions_tenant ON workflow_executions (tenant_id, id) WHERE tenant_id <> '';

-- The journal: one row for each commit.
CREATE TABLE execution_events (
  workflow_execution_id BLOB    NOT NULL,
  seq                   INTEGER NOT NULL,
  ts                    INTEGER NOT NULL,
  data                  TEXT    NOT NULL,
  level                 TEXT    NOT NULL DEFAULT 'Info',
  category              TEXT    NOT NULL DEFAULT 'Orchestrator',
  PRIMARY KEY (workflow_execution_id, seq)
) WITHOUT ROWID;

CREATE TABLE action_executions (
  workflow_execution_id BLOB    NOT NULL,
  node_id               TEXT    NOT NULL,
  attempt               INTEGER NOT NULL,
  action_type           TEXT    NOT NULL,
  status                TEXT    NOT NULL,
  start_time            INTEGER,
  end_time              INTEGER NOT NULL,
  parameters_json       TEXT,
  outputs_json          TEXT,
  error_json            TEXT,
  PRIMARY KEY (workflow_execution_id, node_id, attempt)
) WITHOUT ROWID;

CREATE TABLE workflow_resource_links (
  system_name           TEXT    NOT NULL,
  resource_type         TEXT    NOT NULL,
  resource_id           TEXT    NOT NULL,
  workflow_execution_id BLOB    NOT NULL,
  node_id               TEXT    NOT NULL,
  attempt               INTEGER NOT NULL,
  external_url          TEXT,
  created_at            INTEGER NOT NULL,
  PRIMARY KEY (system_name, resource_type, resource_id)
) WITHOUT ROWID;
CREATE INDEX ix_links_execution ON workflow_resource_links (workflow_execution_id, created_at);

CREATE TABLE run_waits (
  token                 TEXT    NOT NULL PRIMARY KEY,
  workflow_execution_id BLOB    NOT NULL,
  node_id               TEXT    NOT NULL,
  is_open               INTEGER NOT NULL DEFAULT 1,
  payload_json          TEXT,
  -- The letter that announced the answer.
  answer_seq            INTEGER
) WITHOUT ROWID;
CREATE INDEX ix_waits_execution ON run_waits (workflow_execution_id, node_id);

CREATE TABLE run_inbox (
  workflow_execution_id BLOB    NOT NULL,
  seq                   INTEGER NOT NULL,
  ts                    INTEGER NOT NULL,
  letter                TEXT    NOT NULL,
  PRIMARY KEY (workflow_execution_id, seq)
) WITHOUT ROWID;

CREATE TABLE runners (
  id           BLOB    NOT NULL PRIMARY KEY,
  heartbeat_at INTEGER NOT NULL
) WITHOUT ROWID;
