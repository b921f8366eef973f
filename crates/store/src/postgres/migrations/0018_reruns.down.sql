ALTER TABLE action_executions DROP COLUMN reused_from;
ALTER TABLE workflow_executions DROP COLUMN rerun_json;
ALTER TABLE workflow_executions DROP COLUMN rerun_root;
ALTER TABLE workflow_executions DROP COLUMN rerun_of;
