-- The node, attempt and item of the parent that started a child run, its depth, and the uids of its ancestors' workflows as
-- JSON. All are NULL for a run that no node started. `parent_waits` is true while the parent waits for the end of the child
-- or has not seen it.
ALTER TABLE workflow_executions
  ADD COLUMN parent_node_id text COLLATE "C",
  ADD COLUMN parent_attempt integer,
  ADD COLUMN parent_item integer,
  ADD COLUMN parent_waits boolean,
  ADD COLUMN depth integer,
  ADD COLUMN lineage text;

-- Ends that their parents have not seen. A run without an awaiting parent is never in it.
CREATE INDEX ix_executions_ended_children ON workflow_executions (parent_execution_id, id)
  WHERE parent_waits AND end_time IS NOT NULL;

CREATE VIEW workflow_execution_hierarchy AS
  SELECT parent_execution_id, id AS child_execution_id, parent_node_id, created_at
  FROM workflow_executions WHERE parent_execution_id IS NOT NULL;

CREATE OR REPLACE VIEW workflowexecutionhierarchy AS SELECT parent_execution_id AS parentexecutionid,
    id AS childexecutionid, parent_node_id COLLATE "default" AS parentnodeid, fermata_time(created_at) AS createdat
  FROM workflow_executions WHERE parent_execution_id IS NOT NULL;
