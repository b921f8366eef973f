-- A run that repeats another one: that run, the first run of the chain, and what it keeps and changes (`fermata_core::Rerun`).
ALTER TABLE workflow_executions ADD COLUMN rerun_of BLOB;
ALTER TABLE workflow_executions ADD COLUMN rerun_root BLOB;
ALTER TABLE workflow_executions ADD COLUMN rerun_json TEXT;

-- The run that made an attempt which this run only keeps.
ALTER TABLE action_executions ADD COLUMN reused_from BLOB;
