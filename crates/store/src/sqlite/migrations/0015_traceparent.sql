-- The `traceparent` of the request that started a run, if it had one: the position of the caller in its own trace.
ALTER TABLE workflow_executions ADD COLUMN traceparent TEXT;
