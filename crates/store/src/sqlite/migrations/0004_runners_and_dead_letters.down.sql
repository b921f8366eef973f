DROP TABLE dead_letters;
DROP INDEX ix_executions_group;
DROP INDEX ix_executions_unread;
-- Who they were is known again with their next heartbeat.
ALTER TABLE runners DROP COLUMN started_at;
ALTER TABLE runners DROP COLUMN role;
ALTER TABLE runners DROP COLUMN version;
ALTER TABLE runners DROP COLUMN pid;
ALTER TABLE runners DROP COLUMN host;
