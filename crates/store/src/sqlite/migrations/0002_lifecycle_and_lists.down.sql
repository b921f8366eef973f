DROP INDEX ix_executions_parent;
DROP INDEX ix_executions_correlation;
DROP INDEX ix_executions_priority;
DROP TABLE workflow_version_marks;
