-- Every name leads to one workflow, or this would not be done: everything is known by the name again.

DROP FUNCTION fermata_workflow_uid;
DROP FUNCTION fermata_version_to_start;
DROP FUNCTION fermata_requested;
-- The version that a new run follows; refuses workflows that take none. Locks the workflow as the engine does: whoever
-- removes it has to wait, and sees the run.
CREATE FUNCTION fermata_version_to_start(p_workflow_id text, p_version integer) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_workflow record;
  v_shown text := left(p_workflow_id, 255);
BEGIN
  SELECT w.status, w.is_enabled, w.current_version INTO v_workflow FROM workflows w
  WHERE w.id = p_workflow_id COLLATE "C" AND w.deleted_at IS NULL FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'WORKFLOW_NOT_FOUND: workflow "%" does not exist', v_shown USING ERRCODE = 'P0002';
  ELSIF v_workflow.status = 'Draft' THEN
    RAISE EXCEPTION 'WORKFLOW_NOT_ACTIVE: workflow "%" is a Draft; publish it first', v_shown USING ERRCODE = '55000';
  ELSIF v_workflow.status <> 'Active' THEN
    RAISE EXCEPTION 'WORKFLOW_NOT_ACTIVE: workflow "%" is %; reactivate it first', v_shown, v_workflow.status
      USING ERRCODE = '55000';
  ELSIF NOT v_workflow.is_enabled THEN
    RAISE EXCEPTION 'WORKFLOW_NOT_ACTIVE: workflow "%" is disabled; enable it first', v_shown USING ERRCODE = '55000';
  END IF;
  PERFORM 1 FROM workflow_definitions d WHERE d.workflow_id = p_workflow_id COLLATE "C"
    AND d.version = COALESCE(p_version, v_workflow.current_version);
  IF NOT FOUND THEN
    RAISE EXCEPTION 'VERSION_NOT_FOUND: workflow "%" has no version %', v_shown,
      COALESCE(p_version, v_workflow.current_version) USING ERRCODE = 'P0002';
  END IF;
  RETURN COALESCE(p_version, v_workflow.current_version);
END $$;

-- The run that a request was given, if it was; refuses a request of another workflow.
CREATE FUNCTION fermata_requested(p_tenant_id text, p_request_id text, p_workflow_id text) RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_run record;
BEGIN
  SELECT e.id, e.workflow_id INTO v_run FROM workflow_executions e
  WHERE e.tenant_id = p_tenant_id COLLATE "C" AND e.workflow_request_id = p_request_id COLLATE "C";
  IF v_run.workflow_id <> p_workflow_id COLLATE "C" THEN
    RAISE EXCEPTION 'WFENG001 REQUEST_ID_CONFLICT_OTHER_WORKFLOW: requestId "%" belongs to execution % of workflow "%"',
      p_request_id, v_run.id, v_run.workflow_id USING ERRCODE = 'WF001';
  END IF;
  RETURN v_run.id;
END $$;

CREATE OR REPLACE FUNCTION sp_start_workflow_execution(
  p_workflow_id text,
  p_request_id text,
  p_trigger_json jsonb,
  p_version integer DEFAULT NULL,
  p_tenant_id text DEFAULT NULL,
  p_correlation_id text DEFAULT NULL,
  p_parent_execution_id uuid DEFAULT NULL
) RETURNS TABLE (execution_id uuid, was_existing boolean) LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
DECLARE
  v_id uuid := fermata_uuid_v7();
  v_now bigint := fermata_now();
  v_tenant text := COALESCE(p_tenant_id, '');
  v_request text := COALESCE(p_request_id, fermata_uuid_v7()::text);
  v_correlation text := NULLIF(p_correlation_id COLLATE "C", '');
  v_version integer;
  v_there uuid;
BEGIN
  PERFORM fermata_check_served();
  IF p_workflow_id IS NULL THEN
    RAISE EXCEPTION 'WFENG005 VALIDATION_ERROR: p_workflow_id must not be null' USING ERRCODE = 'WF005';
  END IF;
  PERFORM fermata_check_name('p_request_id', v_request, 255);
  IF starts_with(v_request, 'fermata:') THEN
    RAISE EXCEPTION 'WFENG005 VALIDATION_ERROR: p_request_id "%" begins with "fermata:", which is for the engine alone',
      v_request USING ERRCODE = 'WF005';
  END IF;
  IF octet_length(v_tenant) > 0 THEN PERFORM fermata_check_name('p_tenant_id', v_tenant, 255); END IF;
  IF v_correlation IS NOT NULL THEN PERFORM fermata_check_name('p_correlation_id', v_correlation, 255); END IF;

  v_there := fermata_requested(v_tenant, v_request, p_workflow_id);
  IF v_there IS NOT NULL THEN
    RETURN QUERY SELECT v_there, true;
    RETURN;
  END IF;
  v_version := fermata_version_to_start(p_workflow_id, p_version);
  IF p_parent_execution_id IS NOT NULL THEN
    PERFORM 1 FROM workflow_executions e WHERE e.id = p_parent_execution_id AND e.tenant_id = v_tenant COLLATE "C";
    IF NOT FOUND THEN
      RAISE EXCEPTION 'EXECUTION_NOT_FOUND: there is no parent execution % of this tenant', p_parent_execution_id
        USING ERRCODE = 'P0002';
    END IF;
  END IF;

  -- Another session may be about to store the same request: this waits for it, and finds its run then.
  INSERT INTO workflow_executions (id, status, wake_at, workflow_id, workflow_version, tenant_id, workflow_request_id,
    correlation_id, parent_execution_id, requester_user_id, requester_display_name, created_at, trigger_payload_json)
  VALUES (v_id, 'Pending', v_now, p_workflow_id, v_version, v_tenant, v_request,
    v_correlation, p_parent_execution_id, 'system', 'System', v_now,
    -- As in the API, no trigger is an empty one.
    COALESCE(NULLIF(p_trigger_json, 'null'::jsonb), '{}'::jsonb)::text)
  ON CONFLICT (tenant_id, workflow_request_id) DO NOTHING;
  IF NOT FOUND THEN
    RETURN QUERY SELECT fermata_requested(v_tenant, v_request, p_workflow_id), true;
    RETURN;
  END IF;
  PERFORM fermata_hint();
  RETURN QUERY SELECT v_id, false;
END $$;

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
      WHERE w.id = e.workflow_id AND w.status = 'Archived' AND w.deleted_at IS NULL)
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

-- Replacing a function forgets its settings and keeps its rights; a new function can be called by everybody.
DO $$
DECLARE
  v_function record;
BEGIN
  FOR v_function IN SELECT p.oid::regprocedure AS name, p.prosecdef
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = current_schema() AND p.proname IN ('fermata_version_to_start', 'fermata_requested',
      'sp_start_workflow_execution', 'sp_try_acquire_execution')
  LOOP
    IF v_function.prosecdef THEN
      EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', v_function.name, current_schema());
      EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', v_function.name);
    ELSE
      EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', v_function.name);
    END IF;
  END LOOP;
END $$;

DROP INDEX ux_workflows_id;
ALTER TABLE workflows DROP CONSTRAINT workflows_pkey, ADD CONSTRAINT workflows_pkey PRIMARY KEY (id);
CREATE UNIQUE INDEX ux_workflows_uid ON workflows (uid);

ALTER TABLE workflow_definitions DROP COLUMN workflow_uid,
  ADD CONSTRAINT workflow_definitions_pkey PRIMARY KEY (workflow_id, version);
ALTER TABLE workflow_drafts DROP COLUMN workflow_uid,
  ADD CONSTRAINT workflow_drafts_pkey PRIMARY KEY (workflow_id);

ALTER TABLE workflow_executions DROP COLUMN workflow_uid;
CREATE INDEX ix_executions_workflow ON workflow_executions (workflow_id, id);
CREATE INDEX ix_executions_priority ON workflow_executions (workflow_id, priority, wake_at, id)
  WHERE lease_owner IS NULL AND wake_at IS NOT NULL AND priority <> 0;
CREATE INDEX ix_executions_group ON workflow_executions (tenant_id, workflow_id, wake_at, id)
  WHERE lease_owner IS NULL AND wake_at IS NOT NULL;

ALTER TABLE dead_letters DROP COLUMN workflow_uid;
CREATE INDEX ix_dead_letters_workflow ON dead_letters (workflow_id, id);
