DROP FUNCTION sp_publish_event;
ALTER TABLE workflow_executions DROP COLUMN request_json;
DROP TABLE trigger_events;
DROP TABLE trigger_deliveries;
DROP TABLE workflow_triggers;
