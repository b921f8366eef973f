-- One action on many runs.
CREATE TABLE bulk_jobs (
  id          BLOB NOT NULL PRIMARY KEY,
  tenant_id   TEXT NOT NULL,
  action_json TEXT NOT NULL,
  query       TEXT,
  caller_json TEXT NOT NULL,
  state       TEXT NOT NULL,
  total       INTEGER NOT NULL,
  done        INTEGER NOT NULL,
  refused     INTEGER NOT NULL,
  failed      INTEGER NOT NULL,
  epoch       INTEGER NOT NULL,
  retry_at    INTEGER,
  created_at  INTEGER NOT NULL,
  started_at  INTEGER,
  ended_at    INTEGER
) WITHOUT ROWID;
CREATE INDEX ix_bulk_jobs_tenant ON bulk_jobs (tenant_id, id) WHERE tenant_id <> '';
CREATE INDEX ix_bulk_jobs_retry ON bulk_jobs (retry_at) WHERE retry_at IS NOT NULL;

-- The runs of a job, and what became of each.
CREATE TABLE bulk_items (
  job_id         BLOB NOT NULL,
  run_id         BLOB NOT NULL,
  state          TEXT NOT NULL,
  code           TEXT,
  message        TEXT,
  created_run_id BLOB,
  PRIMARY KEY (job_id, run_id)
) WITHOUT ROWID;
CREATE INDEX ix_bulk_items_state ON bulk_items (job_id, state, run_id);
