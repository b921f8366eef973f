-- One action on many runs.
CREATE TABLE bulk_jobs (
  id          uuid NOT NULL PRIMARY KEY,
  tenant_id   text NOT NULL,
  action_json text NOT NULL,
  query       text,
  caller_json text NOT NULL,
  state       text NOT NULL,
  total       bigint NOT NULL,
  done        bigint NOT NULL,
  refused     bigint NOT NULL,
  failed      bigint NOT NULL,
  epoch       bigint NOT NULL,
  retry_at    bigint,
  created_at  bigint NOT NULL,
  started_at  bigint,
  ended_at    bigint
);
CREATE INDEX ix_bulk_jobs_tenant ON bulk_jobs (tenant_id, id) WHERE tenant_id <> '';
CREATE INDEX ix_bulk_jobs_retry ON bulk_jobs (retry_at) WHERE retry_at IS NOT NULL;

-- The runs of a job, and what became of each.
CREATE TABLE bulk_items (
  job_id         uuid NOT NULL,
  run_id         uuid NOT NULL,
  state          text NOT NULL,
  code           text,
  message        text,
  created_run_id uuid,
  PRIMARY KEY (job_id, run_id)
);
CREATE INDEX ix_bulk_items_state ON bulk_items (job_id, state, run_id);
