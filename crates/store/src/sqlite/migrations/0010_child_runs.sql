-- The node, attempt and item of the parent that started a child run, its depth, and the uids of its ancestors' workflows as
-- JSON. All are NULL for a run that no node started. `parent_waits` is true while the parent waits for the end of the child
-- or has not seen it.
ALTER TABLE workflow_executions ADD COLUMN parent_node_id TEXT;
ALTER TABLE workflow_executions ADD COLUMN parent_attempt INTEGER;
ALTER TABLE workflow_executions ADD COLUMN parent_item INTEGER;
ALTER TABLE workflow_executions ADD COLUMN parent_waits INTEGER;
ALTER TABLE workflow_executions ADD COLUMN depth INTEGER;
ALTER TABLE workflow_executions ADD COLUMN lineage TEXT;

-- Ends that their parents have not seen. A run without an awaiting parent is never in it.
CREATE INDEX ix_executions_ended_children ON workflow_executions (parent_execution_id, id)
  WHERE parent_waits AND end_time IS NOT NULL;

CREATE VIEW workflow_execution_hierarchy AS
  SELECT parent_execution_id, id AS child_execution_id, parent_node_id, created_at
  FROM workflow_executions WHERE parent_execution_id IS NOT NULL;
