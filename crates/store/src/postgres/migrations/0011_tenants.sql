-- Workflows and registered callbacks belong to a tenant, or to none: then they are shared. A name is unique within its tenant.
-- Everything that exists becomes shared.
ALTER TABLE workflows ADD COLUMN tenant_id text COLLATE "C" NOT NULL DEFAULT '';
DROP INDEX ux_workflows_id;
CREATE UNIQUE INDEX ux_workflows_id ON workflows (tenant_id, id) WHERE deleted_at IS NULL;
-- Lists of all tenants.
CREATE INDEX ix_workflows_id ON workflows (id, tenant_id) WHERE deleted_at IS NULL;

ALTER TABLE workflow_version_marks ADD COLUMN tenant_id text COLLATE "C" NOT NULL DEFAULT '',
  DROP CONSTRAINT workflow_version_marks_pkey,
  ADD CONSTRAINT workflow_version_marks_pkey PRIMARY KEY (tenant_id, workflow_id);

ALTER TABLE registered_callbacks ADD COLUMN tenant_id text COLLATE "C" NOT NULL DEFAULT '',
  DROP CONSTRAINT registered_callbacks_pkey,
  ADD CONSTRAINT registered_callbacks_pkey PRIMARY KEY (tenant_id, id);
CREATE INDEX ix_callbacks_id ON registered_callbacks (id, tenant_id);

-- Lists of one tenant. What has no tenant is in none of them.
CREATE INDEX ix_executions_tenant_workflow ON workflow_executions (tenant_id, workflow_uid, id) WHERE tenant_id <> '';
CREATE INDEX ix_executions_tenant_status ON workflow_executions (tenant_id, status, id)
  WHERE tenant_id <> '' AND status <> 'Succeeded';
CREATE INDEX ix_dead_letters_tenant ON dead_letters (tenant_id, id) WHERE tenant_id <> '';
CREATE INDEX ix_inbox_tenant_items ON run_waits (tenant_id, item_id) WHERE item_id IS NOT NULL AND tenant_id <> '';

DROP FUNCTION fermata_workflow_uid;
-- The workflow that a tenant means by this name: its own, else the shared one.
CREATE FUNCTION fermata_workflow_uid(p_tenant_id text, p_workflow_id text) RETURNS uuid LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_uid uuid := (SELECT w.uid FROM workflows w WHERE w.tenant_id IN (p_tenant_id COLLATE "C", '')
    AND w.id = p_workflow_id COLLATE "C" AND w.deleted_at IS NULL ORDER BY w.tenant_id DESC LIMIT 1);
BEGIN
  IF v_uid IS NULL THEN
    RAISE EXCEPTION 'WORKFLOW_NOT_FOUND: workflow "%" does not exist', left(p_workflow_id, 255) USING ERRCODE = 'P0002';
  END IF;
  RETURN v_uid;
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
  v_workflow uuid;
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

  v_workflow := fermata_workflow_uid(v_tenant, p_workflow_id);
  v_there := fermata_requested(v_tenant, v_request, v_workflow);
  IF v_there IS NOT NULL THEN
    RETURN QUERY SELECT v_there, true;
    RETURN;
  END IF;
  v_version := fermata_version_to_start(v_workflow, p_version);
  IF p_parent_execution_id IS NOT NULL THEN
    PERFORM 1 FROM workflow_executions e WHERE e.id = p_parent_execution_id AND e.tenant_id = v_tenant COLLATE "C";
    IF NOT FOUND THEN
      RAISE EXCEPTION 'EXECUTION_NOT_FOUND: there is no parent execution % of this tenant', p_parent_execution_id
        USING ERRCODE = 'P0002';
    END IF;
  END IF;

  -- Another session may be about to store the same request: this waits for it, and finds its run then.
  INSERT INTO workflow_executions (id, status, wake_at, workflow_uid, workflow_id, workflow_version, tenant_id,
    workflow_request_id, correlation_id, parent_execution_id, requester_user_id, requester_display_name, created_at, trigger_payload_json)
  VALUES (v_id, 'Pending', v_now, v_workflow, p_workflow_id, v_version, v_tenant, v_request,
    v_correlation, p_parent_execution_id, 'system', 'System', v_now,
    -- As in the API, no trigger is an empty one.
    COALESCE(NULLIF(p_trigger_json, 'null'::jsonb), '{}'::jsonb)::text)
  ON CONFLICT (tenant_id, workflow_request_id) DO NOTHING;
  IF NOT FOUND THEN
    RETURN QUERY SELECT fermata_requested(v_tenant, v_request, v_workflow), true;
    RETURN;
  END IF;
  PERFORM fermata_hint();
  RETURN QUERY SELECT v_id, false;
END $$;

-- Replacing a function forgets its settings and keeps its rights; a new function can be called by everybody.
DO $$
DECLARE
  v_function record;
BEGIN
  FOR v_function IN SELECT p.oid::regprocedure AS name, p.prosecdef
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = current_schema() AND p.proname IN ('fermata_workflow_uid', 'sp_start_workflow_execution')
  LOOP
    IF v_function.prosecdef THEN
      EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', v_function.name, current_schema());
      EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', v_function.name);
    ELSE
      EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', v_function.name);
    END IF;
  END LOOP;
END $$;
