ALTER TABLE workflows DROP COLUMN paused_at;
ALTER TABLE workflow_executions DROP COLUMN paused_at;
