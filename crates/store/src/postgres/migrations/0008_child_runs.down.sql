CREATE OR REPLACE VIEW workflowexecutionhierarchy AS SELECT parent_execution_id AS parentexecutionid,
    id AS childexecutionid, NULL::text AS parentnodeid, fermata_time(created_at) AS createdat
  FROM workflow_executions WHERE parent_execution_id IS NOT NULL;
DROP VIEW workflow_execution_hierarchy;
DROP INDEX ix_executions_ended_children;
ALTER TABLE workflow_executions
  DROP COLUMN lineage,
  DROP COLUMN depth,
  DROP COLUMN parent_waits,
  DROP COLUMN parent_item,
  DROP COLUMN parent_attempt,
  DROP COLUMN parent_node_id;
