-- What deleting workflows, priorities and the lists of runs need.

-- A number of a version is never used twice, also not by a workflow that was deleted and made again: runs, caches and
-- people refer to (workflow, version) for ever.
CREATE TABLE workflow_version_marks (
  workflow_id    TEXT    NOT NULL PRIMARY KEY,
  latest_version INTEGER NOT NULL
) WITHOUT ROWID;

-- All partial: a run without a parent, a correlation id or a priority writes to none of them, and neither does one that
-- is born held and ends so.
CREATE INDEX ix_executions_parent ON workflow_executions (parent_execution_id, id)
  WHERE parent_execution_id IS NOT NULL;
CREATE INDEX ix_executions_correlation ON workflow_executions (correlation_id, id)
  WHERE correlation_id IS NOT NULL;
CREATE INDEX ix_executions_priority ON workflow_executions (workflow_id, priority, wake_at)
  WHERE lease_owner IS NULL AND wake_at IS NOT NULL AND priority <> 0;
