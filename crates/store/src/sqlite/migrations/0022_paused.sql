-- When a run was paused, and when a workflow was: NULL if it is not. A run that ended while it was paused keeps its value.
ALTER TABLE workflow_executions ADD COLUMN paused_at INTEGER;
ALTER TABLE workflows ADD COLUMN paused_at INTEGER;
