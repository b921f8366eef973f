DROP VIEW executionevents, workflowexecutionhierarchy, workflowresourcelinks, actionexecutions, workflowexecutions,
  workflowdefinitions;
DROP FUNCTION fermata_time;
DROP FUNCTION fermata_jsonb;
DROP FUNCTION sp_checkresourceexists;
DROP FUNCTION sp_linkexternalresource;
DROP FUNCTION sp_completeworkflow;
DROP FUNCTION sp_tryacquireexecution;
DROP FUNCTION sp_startworkflowexecution;
ALTER TABLE action_executions DROP CONSTRAINT ck_actions_status;
ALTER TABLE workflow_executions DROP CONSTRAINT ck_executions_status;
-- Where their callbacks come is known again with their next heartbeat.
ALTER TABLE runners DROP COLUMN public_url;
