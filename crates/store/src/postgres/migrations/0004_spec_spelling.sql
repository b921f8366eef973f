-- What the spec names (§3.1 to §3.3, §3.9), in its own spelling: `sp_StartWorkflowExecution`, `p_workflowId`, and views such as
-- `WorkflowExecutions`. PostgreSQL reads names without quotes in lower case. docs/sql.md says what differs, and why.
--
-- What must stay true: nothing here costs a run anything. Views and functions are thin: whatever they do is done by the
-- tables and functions that were there before.

-- Where callbacks come, as each process tells them. Processes that differ are warned about.
ALTER TABLE runners ADD COLUMN public_url text NOT NULL DEFAULT '';

-- Rows that are there already were written by programs that know no other status.
ALTER TABLE workflow_executions ADD CONSTRAINT ck_executions_status
  CHECK (status IN ('Pending', 'Running', 'Succeeded', 'Failed', 'Cancelled')) NOT VALID;
ALTER TABLE action_executions ADD CONSTRAINT ck_actions_status
  CHECK (status IN ('Succeeded', 'Failed', 'RetriableFailure', 'Skipped')) NOT VALID;

CREATE FUNCTION sp_startworkflowexecution(
  p_workflowid text,
  p_requestid text,
  p_triggerjson jsonb,
  p_version integer DEFAULT NULL,
  p_tenantid text DEFAULT NULL,
  p_correlationid text DEFAULT NULL,
  p_parentexecutionid uuid DEFAULT NULL
) RETURNS TABLE (execution_id uuid, was_existing boolean) LANGUAGE sql VOLATILE SECURITY DEFINER AS $$
  SELECT s.execution_id, s.was_existing FROM sp_start_workflow_execution(p_workflowid, p_requestid, p_triggerjson, p_version,
    p_tenantid, p_correlationid, p_parentexecutionid) s
$$;

CREATE FUNCTION sp_tryacquireexecution(p_executionid uuid) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER AS $$ SELECT sp_try_acquire_execution(p_executionid) $$;

CREATE FUNCTION sp_completeworkflow(p_executionid uuid, p_status text, p_contextsnapshot jsonb) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER AS $$ SELECT sp_complete_workflow(p_executionid, p_status, p_contextsnapshot) $$;

CREATE FUNCTION sp_linkexternalresource(
  p_executionid uuid,
  p_actionexecutionid uuid,
  p_system text,
  p_type text,
  p_resourceid text,
  p_externalurl text
) RETURNS text LANGUAGE sql VOLATILE SECURITY DEFINER AS $$
  SELECT sp_link_external_resource(p_executionid, p_actionexecutionid, p_system, p_type, p_resourceid, p_externalurl)
$$;

CREATE FUNCTION sp_checkresourceexists(p_system text, p_type text, p_resourceid text)
RETURNS TABLE ("exists" boolean, execution_id uuid) LANGUAGE sql STABLE SECURITY DEFINER AS $$
  SELECT c."exists", c.execution_id FROM sp_check_resource_exists(p_system, p_type, p_resourceid) c
$$;

-- JSON is stored as text, byte by byte as it came. What jsonb cannot hold, such as a zero character, is a string here.
CREATE FUNCTION fermata_jsonb(p_text text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN p_text::jsonb;
EXCEPTION WHEN data_exception THEN
  RETURN to_jsonb(p_text);
END $$;

CREATE FUNCTION fermata_time(p_micros bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
  SELECT 'epoch'::timestamptz + p_micros * interval '1 microsecond'
$$;

CREATE VIEW workflowdefinitions AS SELECT workflow_id AS workflowid, version,
    fermata_jsonb(convert_from(definition_source, 'UTF8')) AS definitionjson, checksum, fermata_time(created_at) AS createdat
  FROM workflow_definitions;

CREATE VIEW workflowexecutions AS SELECT id, workflow_id AS workflowid, workflow_version AS workflowversion,
    workflow_request_id AS workflowrequestid, status, priority, fermata_jsonb(trigger_payload_json) AS triggerpayloadjson,
    fermata_jsonb(context_snapshot_json) AS contextsnapshotjson, fermata_time(start_time) AS starttime,
    fermata_time(end_time) AS endtime, NULLIF(tenant_id, '') AS tenantid, correlation_id AS correlationid,
    parent_execution_id AS parentexecutionid, requester_user_id AS requesteruserid, requester_email AS requesteremail,
    requester_display_name AS requesterdisplayname
  FROM workflow_executions;

CREATE VIEW actionexecutions AS SELECT fermata_attempt_id(workflow_execution_id, node_id, attempt) AS id,
    workflow_execution_id AS workflowexecutionid, node_id AS nodeid, action_type AS actiontype, status, attempt,
    attempt - 1 AS retrycount, fermata_jsonb(parameters_json) AS parametersjson, fermata_jsonb(outputs_json) AS outputsjson,
    fermata_jsonb(error_json) AS errorjson, fermata_time(start_time) AS starttime, fermata_time(end_time) AS endtime
  FROM action_executions;

CREATE VIEW workflowresourcelinks AS SELECT workflow_execution_id AS workflowexecutionid,
    fermata_attempt_id(workflow_execution_id, node_id, attempt) AS actionexecutionid, system_name AS systemname,
    resource_type AS resourcetype, resource_id AS resourceid, external_url AS externalurl,
    fermata_time(created_at) AS createdat
  FROM workflow_resource_links;

CREATE VIEW workflowexecutionhierarchy AS SELECT parent_execution_id AS parentexecutionid, id AS childexecutionid,
    NULL::text AS parentnodeid, fermata_time(created_at) AS createdat
  FROM workflow_executions WHERE parent_execution_id IS NOT NULL;

CREATE VIEW executionevents AS SELECT seq AS id, workflow_execution_id AS workflowexecutionid, fermata_time(ts) AS ts, level,
    category, fermata_jsonb(data) AS data
  FROM execution_events;

-- As for the functions that were there before.
DO $$
DECLARE
  v_function record;
BEGIN
  FOR v_function IN SELECT p.oid::regprocedure AS name, p.prosecdef
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = current_schema() AND p.proname IN ('sp_startworkflowexecution', 'sp_tryacquireexecution',
      'sp_completeworkflow', 'sp_linkexternalresource', 'sp_checkresourceexists', 'fermata_jsonb', 'fermata_time')
  LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', v_function.name);
    IF v_function.prosecdef THEN
      EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', v_function.name, current_schema());
      EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', v_function.name);
    END IF;
  END LOOP;
END $$;
