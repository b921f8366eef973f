DROP INDEX ux_workflows_uid;
ALTER TABLE workflows DROP COLUMN deleted_at;
ALTER TABLE workflows DROP COLUMN uid;
