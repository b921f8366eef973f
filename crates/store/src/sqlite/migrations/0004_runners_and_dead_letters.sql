-- What runners need that know each other, claims that are fair, and runs that cannot be run.

-- Rows of before are those of processes that are gone: opening the file forgets them.
ALTER TABLE runners ADD COLUMN host       TEXT    NOT NULL DEFAULT '';
ALTER TABLE runners ADD COLUMN pid        INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runners ADD COLUMN version    TEXT    NOT NULL DEFAULT '';
ALTER TABLE runners ADD COLUMN role       TEXT    NOT NULL DEFAULT '';
ALTER TABLE runners ADD COLUMN started_at INTEGER NOT NULL DEFAULT 0;

-- Held runs with letters that their owner has not consumed.
CREATE INDEX ix_executions_unread ON workflow_executions (lease_owner, id)
  WHERE lease_owner IS NOT NULL AND inbox_seq > inbox_seen;
-- Who waits behind a workflow or a tenant with a backlog. A run that is born held and ends so never touches it.
CREATE INDEX ix_executions_group ON workflow_executions (tenant_id, workflow_id, wake_at)
  WHERE lease_owner IS NULL AND wake_at IS NOT NULL;

CREATE TABLE dead_letters (
  id                    BLOB    NOT NULL PRIMARY KEY,
  enqueued_at           INTEGER NOT NULL,
  reason                TEXT    NOT NULL,
  workflow_execution_id BLOB    NOT NULL,
  workflow_id           TEXT    NOT NULL,
  workflow_version      INTEGER NOT NULL,
  tenant_id             TEXT    NOT NULL DEFAULT '',
  attempts              INTEGER NOT NULL DEFAULT 0,
  last_error            TEXT,
  payload_json          TEXT    NOT NULL
) WITHOUT ROWID;
CREATE INDEX ix_dead_letters_reason ON dead_letters (reason, id);
CREATE INDEX ix_dead_letters_workflow ON dead_letters (workflow_id, id);
