DROP VIEW workflow_execution_hierarchy;
DROP INDEX ix_executions_ended_children;
ALTER TABLE workflow_executions DROP COLUMN lineage;
ALTER TABLE workflow_executions DROP COLUMN depth;
ALTER TABLE workflow_executions DROP COLUMN parent_waits;
ALTER TABLE workflow_executions DROP COLUMN parent_item;
ALTER TABLE workflow_executions DROP COLUMN parent_attempt;
ALTER TABLE workflow_executions DROP COLUMN parent_node_id;
