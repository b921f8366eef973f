-- Tables and columns are the specs' in snake_case, plus what leases, waits and the inbox need: the same as in SQLite.
-- Ids are UUIDv7, times are microseconds since 1970, JSON is text so that its bytes stay as they are. Texts compare by
-- their bytes, as everywhere in Fermata.

CREATE TABLE workflows (
  id              text COLLATE "C" NOT NULL PRIMARY KEY,
  -- A workflow that was deleted and made again has another one.
  uid             uuid    NOT NULL,
  display_name    text    NOT NULL,
  description     text,
  dialect         text    NOT NULL,
  current_version integer,
  latest_version  integer,
  status          text    NOT NULL DEFAULT 'Draft' CHECK (status IN ('Draft', 'Active', 'Archived')),
  is_enabled      boolean NOT NULL DEFAULT true,
  created_at      bigint  NOT NULL,
  updated_at      bigint  NOT NULL,
  -- A workflow with this is there only for its runs; making one of its id again takes the row over.
  deleted_at      bigint
);
CREATE UNIQUE INDEX ux_workflows_uid ON workflows (uid);

CREATE TABLE workflow_definitions (
  workflow_id       text COLLATE "C" NOT NULL,
  version           integer NOT NULL,
  dialect           text    NOT NULL,
  definition_source bytea   NOT NULL,
  checksum          text    NOT NULL,
  created_at        bigint  NOT NULL,
  PRIMARY KEY (workflow_id, version)
);

CREATE TABLE workflow_drafts (
  workflow_id       text COLLATE "C" NOT NULL PRIMARY KEY,
  display_name      text   NOT NULL,
  description       text,
  dialect           text   NOT NULL,
  definition_source bytea  NOT NULL,
  checksum          text   NOT NULL,
  updated_at        bigint NOT NULL
);

-- A number of a version is never used twice, also not by a workflow that was deleted and made again.
CREATE TABLE workflow_version_marks (
  workflow_id    text COLLATE "C" NOT NULL PRIMARY KEY,
  latest_version integer NOT NULL
);

-- What has a fixed width stands first, so that no space is lost between columns.
CREATE TABLE workflow_executions (
  id                     uuid    NOT NULL PRIMARY KEY,
  lease_owner            uuid,
  parent_execution_id    uuid,
  lease_epoch            bigint  NOT NULL DEFAULT 0,
  wake_at                bigint,
  inbox_seq              bigint  NOT NULL DEFAULT 0,
  inbox_seen             bigint  NOT NULL DEFAULT 0,
  created_at             bigint  NOT NULL,
  start_time             bigint,
  end_time               bigint,
  takeovers              integer NOT NULL DEFAULT 0,
  workflow_version       integer NOT NULL,
  priority               integer,
  status                 text COLLATE "C" NOT NULL,
  workflow_id            text COLLATE "C" NOT NULL,
  tenant_id              text COLLATE "C" NOT NULL DEFAULT '',
  workflow_request_id    text COLLATE "C" NOT NULL,
  correlation_id         text COLLATE "C",
  requester_user_id      text    NOT NULL,
  requester_email        text,
  requester_display_name text,
  reason                 text,
  error_json             text,
  trigger_payload_json   text    NOT NULL,
  spec_json              text,
  outputs_json           text,
  context_snapshot_json  text
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

CREATE UNIQUE INDEX ux_executions_request ON workflow_executions (tenant_id, workflow_request_id);
CREATE INDEX ix_executions_workflow ON workflow_executions (workflow_id, id);
-- A run is in one of these two for as long as it may be claimed or taken over. A terminal run leaves both.
CREATE INDEX ix_executions_due ON workflow_executions (wake_at, id)
  WHERE lease_owner IS NULL AND wake_at IS NOT NULL;
CREATE INDEX ix_executions_held ON workflow_executions (lease_owner, wake_at, id) WHERE lease_owner IS NOT NULL;
-- Held runs whose owner has not seen its mail yet: nearly always empty.
CREATE INDEX ix_executions_unread ON workflow_executions (lease_owner, id)
  WHERE lease_owner IS NOT NULL AND inbox_seq > inbox_seen;
-- Nearly every run ends as Succeeded; the lists of all others are short.
CREATE INDEX ix_executions_status ON workflow_executions (status, id) WHERE status <> 'Succeeded';
CREATE INDEX ix_executions_tenant ON workflow_executions (tenant_id, id) WHERE tenant_id <> '';
CREATE INDEX ix_executions_parent ON workflow_executions (parent_execution_id, id)
  WHERE parent_execution_id IS NOT NULL;
CREATE INDEX ix_executions_correlation ON workflow_executions (correlation_id, id) WHERE correlation_id IS NOT NULL;
CREATE INDEX ix_executions_priority ON workflow_executions (workflow_id, priority, wake_at, id)
  WHERE lease_owner IS NULL AND wake_at IS NOT NULL AND priority <> 0;
-- Who waits behind a workflow or a tenant with a backlog. A run that is born held and ends so never touches it.
CREATE INDEX ix_executions_group ON workflow_executions (tenant_id, workflow_id, wake_at, id)
  WHERE lease_owner IS NULL AND wake_at IS NOT NULL;

-- The journal: one row for each commit.
CREATE TABLE execution_events (
  workflow_execution_id uuid    NOT NULL,
  ts                    bigint  NOT NULL,
  seq                   integer NOT NULL,
  data                  text    NOT NULL,
  level                 text    NOT NULL DEFAULT 'Info',
  category              text    NOT NULL DEFAULT 'Orchestrator',
  PRIMARY KEY (workflow_execution_id, seq)
);

CREATE TABLE action_executions (
  workflow_execution_id uuid    NOT NULL,
  start_time            bigint,
  end_time              bigint  NOT NULL,
  attempt               integer NOT NULL,
  node_id               text COLLATE "C" NOT NULL,
  action_type           text    NOT NULL,
  status                text    NOT NULL,
  parameters_json       text,
  outputs_json          text,
  error_json            text,
  PRIMARY KEY (workflow_execution_id, node_id, attempt)
);

CREATE TABLE workflow_resource_links (
  system_name           text COLLATE "C" NOT NULL,
  resource_type         text COLLATE "C" NOT NULL,
  resource_id           text COLLATE "C" NOT NULL,
  workflow_execution_id uuid    NOT NULL,
  node_id               text COLLATE "C" NOT NULL,
  attempt               integer NOT NULL,
  external_url          text,
  created_at            bigint  NOT NULL,
  PRIMARY KEY (system_name, resource_type, resource_id)
);
CREATE INDEX ix_links_execution ON workflow_resource_links (workflow_execution_id, created_at);

-- Answering and closing change nothing that is indexed: with some room on its page a row stays where it is.
CREATE TABLE run_waits (
  token                 text COLLATE "C" NOT NULL PRIMARY KEY,
  workflow_execution_id uuid    NOT NULL,
  node_id               text COLLATE "C" NOT NULL,
  is_open               boolean NOT NULL DEFAULT true,
  payload_json          text,
  -- The letter that announced the answer.
  answer_seq            bigint
) WITH (fillfactor = 80);
CREATE INDEX ix_waits_execution ON run_waits (workflow_execution_id, node_id);

CREATE TABLE run_inbox (
  workflow_execution_id uuid   NOT NULL,
  seq                   bigint NOT NULL,
  ts                    bigint NOT NULL,
  letter                text   NOT NULL,
  PRIMARY KEY (workflow_execution_id, seq)
);

-- One row for each process, rewritten with every heartbeat.
CREATE TABLE runners (
  id           uuid    NOT NULL PRIMARY KEY,
  heartbeat_at bigint  NOT NULL,
  started_at   bigint  NOT NULL,
  pid          bigint  NOT NULL,
  host         text    NOT NULL,
  version      text    NOT NULL,
  role         text    NOT NULL
) WITH (fillfactor = 20);

CREATE TABLE dead_letters (
  id                    uuid    NOT NULL PRIMARY KEY,
  workflow_execution_id uuid    NOT NULL,
  enqueued_at           bigint  NOT NULL,
  workflow_version      integer NOT NULL,
  attempts              integer NOT NULL DEFAULT 0,
  reason                text COLLATE "C" NOT NULL,
  workflow_id           text COLLATE "C" NOT NULL,
  tenant_id             text COLLATE "C" NOT NULL DEFAULT '',
  last_error            text,
  payload_json          text    NOT NULL
);
CREATE INDEX ix_dead_letters_reason ON dead_letters (reason, id);
CREATE INDEX ix_dead_letters_workflow ON dead_letters (workflow_id, id);
