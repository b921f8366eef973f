DROP TABLE merged_requests;
DROP TABLE flow_keys;
DROP INDEX ix_executions_unfreed;
DROP INDEX ix_executions_waiting;
ALTER TABLE workflow_executions DROP COLUMN waiting_key;
ALTER TABLE workflow_executions DROP COLUMN flow_held;
ALTER TABLE workflow_executions DROP COLUMN flow_step;
ALTER TABLE workflow_executions DROP COLUMN flow_json;
