ALTER TABLE run_waits DROP COLUMN deadline;
