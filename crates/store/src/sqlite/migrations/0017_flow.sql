-- Flow control (flow.rs). `flow_json` says how a run is limited, `flow_step` what it asks for next, `flow_held` how many of
-- its places it holds, `waiting_key` the key that it waits for. All are NULL for a run without limits, and after its end.
ALTER TABLE workflow_executions ADD COLUMN flow_json TEXT;
ALTER TABLE workflow_executions ADD COLUMN flow_step TEXT;
ALTER TABLE workflow_executions ADD COLUMN flow_held INTEGER;
ALTER TABLE workflow_executions ADD COLUMN waiting_key TEXT;

-- The runs that wait for a place of a key, first come first.
CREATE INDEX ix_executions_waiting ON workflow_executions (waiting_key, COALESCE(priority, 0) DESC, id)
  WHERE waiting_key IS NOT NULL;
-- Ended runs whose places were not freed with their end.
CREATE INDEX ix_executions_unfreed ON workflow_executions (id) WHERE flow_step IS NOT NULL AND end_time IS NOT NULL;

-- Places that are held, owners of unique and debounce keys, and windows of rates.
CREATE TABLE flow_keys (
  key                   TEXT    NOT NULL PRIMARY KEY,
  held                  INTEGER NOT NULL,
  most                  INTEGER NOT NULL,
  version               INTEGER NOT NULL,
  workflow_execution_id BLOB,
  begin_at              INTEGER,
  counted               INTEGER NOT NULL,
  expires_at            INTEGER
) WITHOUT ROWID;
CREATE INDEX ix_flow_keys_expiry ON flow_keys (expires_at) WHERE expires_at IS NOT NULL;

-- Requests that were answered with the run of another request.
CREATE TABLE merged_requests (
  tenant_id             TEXT    NOT NULL,
  workflow_request_id   TEXT    NOT NULL,
  workflow_execution_id BLOB    NOT NULL,
  created_at            INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, workflow_request_id)
) WITHOUT ROWID;
CREATE INDEX ix_merged_requests_age ON merged_requests (created_at);
