CREATE OR REPLACE FUNCTION sp_try_acquire_execution(p_execution_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
DECLARE
  v_runner uuid := fermata_session_runner();
  v_has_mail boolean;
  v_now bigint;
BEGIN
  PERFORM fermata_check_served();
  SELECT e.inbox_seq > e.inbox_seen INTO v_has_mail FROM workflow_executions e
  WHERE e.id = p_execution_id AND e.lease_owner = v_runner;
  IF FOUND THEN
    -- Somebody wants something of this run, such as its end. Runners read that: one is about to take the run.
    IF NOT v_has_mail THEN PERFORM fermata_session_lives(); END IF;
    RETURN NOT v_has_mail;
  END IF;
  -- A run with mail, or of a workflow that was archived, is for a runner to end. One that is locked has been found by
  -- somebody else.
  PERFORM 1 FROM workflow_executions e
  WHERE e.id = p_execution_id AND e.status = 'Pending' AND e.lease_owner IS NULL AND e.inbox_seq = e.inbox_seen
    AND NOT EXISTS (SELECT 1 FROM workflows w
      WHERE w.uid = e.workflow_uid AND w.status = 'Archived' AND w.deleted_at IS NULL)
    AND CASE WHEN e.flow_step IS NULL THEN NOT EXISTS (SELECT 1 FROM workflow_plans p
        WHERE p.workflow_uid = e.workflow_uid AND p.version = e.workflow_version
          AND p.plan_json::jsonb #> '{plan,flow}' IS NOT NULL)
      ELSE e.flow_step = 'concurrency' AND e.waiting_key IS NULL
        AND e.flow_held >= jsonb_array_length(COALESCE(e.flow_json::jsonb -> 'places', '[]'::jsonb)) END
  FOR NO KEY UPDATE OF e SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  v_runner := fermata_session_lives();
  v_now := fermata_now();
  UPDATE workflow_executions SET status = 'Running', start_time = v_now, lease_owner = v_runner,
    lease_epoch = lease_epoch + 1, takeovers = 0, wake_at = COALESCE(wake_at, v_now)
  WHERE id = p_execution_id;
  RETURN true;
END $$;

-- Replacing a function forgets its settings and keeps its rights.
DO $$
DECLARE
  v_function record;
BEGIN
  FOR v_function IN SELECT p.oid::regprocedure AS name FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = current_schema() AND p.proname = 'sp_try_acquire_execution'
  LOOP
    EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', v_function.name, current_schema());
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', v_function.name);
  END LOOP;
END $$;
ALTER TABLE workflows DROP COLUMN paused_at;
ALTER TABLE workflow_executions DROP COLUMN paused_at;
