-- A database of Fermata 0.1.0 whose process was killed: `pg_dump --inserts --no-owner --no-privileges`, without the rows of
-- `runners`.
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE FUNCTION public.fermata_attempt_id(p_run uuid, p_node text, p_attempt integer) RETURNS uuid
    LANGUAGE sql STABLE
    AS $$
  SELECT encode(set_byte(set_byte(digest, 6, (get_byte(digest, 6) & 15) | 128), 8, (get_byte(digest, 8) & 63) | 128),
    'hex')::uuid
  FROM (SELECT substring(sha256(uuid_send(p_run) || int4send(p_attempt) || pg_catalog.convert_to(p_node, 'UTF8'))
    FROM 1 FOR 16) AS digest) made
$$;
CREATE FUNCTION public.fermata_check_name(p_field text, p_text text, p_most integer) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  IF p_text IS NULL OR octet_length(p_text) NOT BETWEEN 1 AND p_most
    OR p_text COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' THEN
    RAISE EXCEPTION 'WFENG005 VALIDATION_ERROR: % must have 1 to % bytes and no control characters', p_field, p_most
      USING ERRCODE = 'WF005';
  END IF;
END $$;
CREATE FUNCTION public.fermata_check_served() RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
  v_mark jsonb;
BEGIN
  FOR v_look IN 1..2 LOOP
    SELECT m.value::jsonb INTO v_mark FROM fermata_meta m WHERE m.key = 'transfer';
    IF v_mark ->> 'state'::text = 'moved' THEN
      RAISE EXCEPTION 'DATABASE_NOT_SERVED: this database was moved to %, where its runs go on', v_mark ->> 'to'::text
        USING ERRCODE = '55000', HINT = 'Call the function there.';
    ELSIF v_mark ->> 'state'::text = 'leaving' THEN
      RAISE EXCEPTION 'DATABASE_NOT_SERVED: this database is being moved to %', v_mark ->> 'to'::text
        USING ERRCODE = '55000', HINT = 'Call the function there when that is done.';
    ELSIF v_mark IS NOT NULL THEN
      RAISE EXCEPTION 'DATABASE_NOT_SERVED: a transfer from % into this database is not finished',
        v_mark ->> 'from'::text USING ERRCODE = '55000', HINT = 'Call again when that is done.';
    END IF;
    LOCK TABLE workflow_executions IN ROW EXCLUSIVE MODE;
  END LOOP;
END $$;
CREATE FUNCTION public.fermata_hint() RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  IF current_setting('fermata.notify', true) IS DISTINCT FROM 'off' THEN
    PERFORM pg_notify('fermata_news', 'sql d0');
  END IF;
END $$;
CREATE FUNCTION public.fermata_jsonb(p_text text) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    AS $$
BEGIN
  RETURN p_text::jsonb;
EXCEPTION WHEN data_exception THEN
  RETURN to_jsonb(p_text);
END $$;
CREATE FUNCTION public.fermata_lock_run(p_execution_id uuid, OUT status text, OUT is_ours boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
  v_runner uuid := fermata_session_runner();
BEGIN
  SELECT e.status INTO status FROM workflow_executions e
  WHERE e.id = p_execution_id AND e.lease_owner = v_runner FOR NO KEY UPDATE;
  is_ours := FOUND;
  IF is_ours THEN
    RETURN;
  END IF;
  SELECT e.status INTO status FROM workflow_executions e WHERE e.id = p_execution_id;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'EXECUTION_NOT_FOUND: there is no execution %', p_execution_id USING ERRCODE = 'P0002';
  END IF;
END $$;
CREATE FUNCTION public.fermata_now() RETURNS bigint
    LANGUAGE sql
    AS $$
  SELECT (date_part('epoch', clock_timestamp()) * 1000000::double precision)::bigint
$$;
CREATE FUNCTION public.fermata_refuse(p_execution_id uuid, p_status text, p_wish text) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RAISE EXCEPTION 'WFENG002 ILLEGAL_STATE_TRANSITION: execution % is % and cannot %: %', p_execution_id, p_status,
    p_wish, CASE p_status COLLATE "C" WHEN 'Running' THEN 'this session does not hold it'
      WHEN 'Pending' THEN 'nobody has acquired it' ELSE 'it is over' END
    USING ERRCODE = 'WF002', HINT = CASE WHEN p_status COLLATE "C" IN ('Running', 'Pending')
      THEN 'A session holds what it got with sp_try_acquire_execution, for ten minutes after its last call.'
      ELSE 'An end is final.' END;
END $$;
CREATE FUNCTION public.fermata_requested(p_tenant_id text, p_request_id text, p_workflow_uid uuid) RETURNS uuid
    LANGUAGE plpgsql
    AS $$
DECLARE
  v_run record;
BEGIN
  SELECT e.id, e.workflow_uid, e.workflow_id INTO v_run FROM workflow_executions e
  WHERE e.tenant_id = p_tenant_id COLLATE "C" AND e.workflow_request_id = p_request_id COLLATE "C";
  IF v_run.workflow_uid <> p_workflow_uid THEN
    RAISE EXCEPTION 'WFENG001 REQUEST_ID_CONFLICT_OTHER_WORKFLOW: requestId "%" belongs to execution % of workflow "%"',
      p_request_id, v_run.id, v_run.workflow_id USING ERRCODE = 'WF001';
  END IF;
  RETURN v_run.id;
END $$;
CREATE FUNCTION public.fermata_session_lives() RETURNS uuid
    LANGUAGE plpgsql
    AS $$
DECLARE
  v_runner uuid := fermata_session_runner();
  v_now bigint := fermata_now();
  v_until bigint := v_now + 600000000;
BEGIN
  IF v_runner IS NOT NULL THEN
    UPDATE runners SET heartbeat_at = v_until WHERE id = v_runner;
    RETURN v_runner;
  END IF;
  v_runner := fermata_uuid_v7();
  INSERT INTO runners (id, heartbeat_at, started_at, pid, host, version, role)
  VALUES (v_runner, v_until, v_now, pg_backend_pid(), COALESCE(host(inet_client_addr()), 'local'),
    'PostgreSQL ' || current_setting('server_version'), 'sql');
  PERFORM set_config('fermata.runner', v_runner::text, false);
  RETURN v_runner;
END $$;
CREATE FUNCTION public.fermata_session_runner() RETURNS uuid
    LANGUAGE plpgsql
    AS $_$
DECLARE
  v_setting text := current_setting('fermata.runner', true);
BEGIN
  IF v_setting COLLATE "C" ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN
    RETURN (SELECT id FROM runners WHERE id = v_setting::uuid AND role = 'sql' AND pid = pg_backend_pid());
  END IF;
  RETURN NULL;
END $_$;
CREATE FUNCTION public.fermata_time(p_micros bigint) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE
    AS $$
  SELECT 'epoch'::timestamptz + p_micros * interval '1 microsecond'
$$;
CREATE FUNCTION public.fermata_uuid_v7() RETURNS uuid
    LANGUAGE sql
    AS $$
  SELECT encode(pg_catalog.set_bit(pg_catalog.set_bit(overlay(uuid_send(gen_random_uuid())
    PLACING substring(int8send(fermata_now() / 1000) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;
CREATE FUNCTION public.fermata_version_to_start(p_workflow_uid uuid, p_version integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
  v_workflow record;
  v_shown text := (SELECT left(w.id, 255) FROM workflows w WHERE w.uid = p_workflow_uid);
BEGIN
  SELECT w.status, w.is_enabled, w.current_version INTO v_workflow FROM workflows w
  WHERE w.uid = p_workflow_uid AND w.deleted_at IS NULL FOR KEY SHARE;
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
  PERFORM 1 FROM workflow_definitions d WHERE d.workflow_uid = p_workflow_uid
    AND d.version = COALESCE(p_version, v_workflow.current_version);
  IF NOT FOUND THEN
    RAISE EXCEPTION 'VERSION_NOT_FOUND: workflow "%" has no version %', v_shown,
      COALESCE(p_version, v_workflow.current_version) USING ERRCODE = 'P0002';
  END IF;
  RETURN COALESCE(p_version, v_workflow.current_version);
END $$;
CREATE FUNCTION public.fermata_workflow_uid(p_workflow_id text) RETURNS uuid
    LANGUAGE plpgsql
    AS $$
DECLARE
  v_uid uuid := (SELECT w.uid FROM workflows w WHERE w.id = p_workflow_id COLLATE "C" AND w.deleted_at IS NULL);
BEGIN
  IF v_uid IS NULL THEN
    RAISE EXCEPTION 'WORKFLOW_NOT_FOUND: workflow "%" does not exist', left(p_workflow_id, 255) USING ERRCODE = 'P0002';
  END IF;
  RETURN v_uid;
END $$;
CREATE FUNCTION public.sp_check_resource_exists(p_system text, p_type text, p_resource_id text) RETURNS TABLE("exists" boolean, execution_id uuid)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
  SELECT l.workflow_execution_id IS NOT NULL, l.workflow_execution_id
  FROM (SELECT 1) one LEFT JOIN workflow_resource_links l ON l.system_name = p_system COLLATE "C"
    AND l.resource_type = p_type COLLATE "C" AND l.resource_id = p_resource_id COLLATE "C"
$$;
CREATE FUNCTION public.sp_checkresourceexists(p_system text, p_type text, p_resourceid text) RETURNS TABLE("exists" boolean, execution_id uuid)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
  SELECT c."exists", c.execution_id FROM sp_check_resource_exists(p_system, p_type, p_resourceid) c
$$;
CREATE FUNCTION public.sp_complete_workflow(p_execution_id uuid, p_status text, p_context_snapshot jsonb DEFAULT NULL::jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
  v_run record;
  v_runner uuid := fermata_session_runner();
  v_now bigint;
  v_reason text := CASE p_status COLLATE "C" WHEN 'Failed' THEN 'failed_by_caller'
    WHEN 'Cancelled' THEN 'cancelled' END;
BEGIN
  PERFORM fermata_check_served();
  IF p_status IS NULL OR p_status COLLATE "C" NOT IN ('Succeeded', 'Failed', 'Cancelled') THEN
    RAISE EXCEPTION 'WFENG005 VALIDATION_ERROR: p_status must be Succeeded, Failed or Cancelled, not %',
      COALESCE('"' || left(p_status, 255) || '"', 'null') USING ERRCODE = 'WF005';
  END IF;
  SELECT * INTO v_run FROM fermata_lock_run(p_execution_id);
  IF v_run.status = p_status COLLATE "C" THEN
    RETURN;
  END IF;
  IF NOT v_run.is_ours THEN
    PERFORM fermata_refuse(p_execution_id, v_run.status, 'become ' || p_status);
  END IF;
  v_now := fermata_now();
  INSERT INTO execution_events (workflow_execution_id, seq, ts, data)
  SELECT p_execution_id, COALESCE((SELECT max(v.seq) FROM execution_events v
      WHERE v.workflow_execution_id = p_execution_id), 0) + 1, v_now,
    pg_catalog.jsonb_build_object('v', 1, 'events', pg_catalog.jsonb_build_array(
      pg_catalog.jsonb_build_object('type', 'started', 'at', e.start_time),
      pg_catalog.jsonb_build_object('type', 'ended', 'at', v_now, 'status', p_status, 'reason', v_reason)))::text
  FROM workflow_executions e WHERE e.id = p_execution_id;
  UPDATE run_waits SET is_open = false WHERE workflow_execution_id = p_execution_id AND is_open;
  DELETE FROM run_inbox WHERE workflow_execution_id = p_execution_id;
  UPDATE workflow_executions SET status = p_status, end_time = v_now, context_snapshot_json = p_context_snapshot::text,
    reason = v_reason, error_json = CASE p_status COLLATE "C" WHEN 'Failed' THEN
      '{"code":"FAILED_BY_CALLER","message":"the session that had acquired the execution completed it as Failed"}' END,
    lease_owner = NULL, wake_at = NULL, inbox_seen = inbox_seq, takeovers = 0
  WHERE id = p_execution_id;
  -- A session that holds nothing is no runner.
  DELETE FROM runners WHERE id = v_runner
    AND NOT EXISTS (SELECT 1 FROM workflow_executions e WHERE e.lease_owner = v_runner AND e.lease_owner IS NOT NULL);
END $$;
CREATE FUNCTION public.sp_completeworkflow(p_executionid uuid, p_status text, p_contextsnapshot jsonb) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$ SELECT sp_complete_workflow(p_executionid, p_status, p_contextsnapshot) $$;
CREATE FUNCTION public.sp_link_external_resource(p_execution_id uuid, p_action_execution_id uuid, p_system text, p_type text, p_resource_id text, p_external_url text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
  v_attempt record;
  v_owner uuid;
BEGIN
  PERFORM fermata_check_served();
  PERFORM fermata_check_name('p_system', p_system, 255);
  PERFORM fermata_check_name('p_type', p_type, 255);
  PERFORM fermata_check_name('p_resource_id', p_resource_id, 1024);
  SELECT a.node_id, a.attempt INTO v_attempt FROM action_executions a
  WHERE a.workflow_execution_id = p_execution_id
    AND fermata_attempt_id(a.workflow_execution_id, a.node_id, a.attempt) = p_action_execution_id;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'ATTEMPT_NOT_FOUND: execution % has no recorded attempt %', p_execution_id, p_action_execution_id
      USING ERRCODE = 'P0002', HINT = 'sp_record_action_attempt gives the id of the attempt that it records.';
  END IF;
  INSERT INTO workflow_resource_links (system_name, resource_type, resource_id, workflow_execution_id, node_id, attempt,
    external_url, created_at)
  VALUES (p_system, p_type, p_resource_id, p_execution_id, v_attempt.node_id, v_attempt.attempt, p_external_url,
    fermata_now())
  ON CONFLICT (system_name, resource_type, resource_id) DO NOTHING;
  IF FOUND THEN
    RETURN 'created';
  END IF;
  SELECT l.workflow_execution_id INTO v_owner FROM workflow_resource_links l
  WHERE l.system_name = p_system COLLATE "C" AND l.resource_type = p_type COLLATE "C"
    AND l.resource_id = p_resource_id COLLATE "C";
  IF v_owner IS DISTINCT FROM p_execution_id THEN
    RAISE EXCEPTION 'WFENG003 RESOURCE_LINK_CONFLICT_OTHER_EXECUTION: "%" "%" "%" belongs to execution %', p_system,
      p_type, p_resource_id, v_owner USING ERRCODE = 'WF003';
  END IF;
  RETURN 'exists_same_execution';
END $$;
CREATE FUNCTION public.sp_linkexternalresource(p_executionid uuid, p_actionexecutionid uuid, p_system text, p_type text, p_resourceid text, p_externalurl text) RETURNS text
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
  SELECT sp_link_external_resource(p_executionid, p_actionexecutionid, p_system, p_type, p_resourceid, p_externalurl)
$$;
CREATE FUNCTION public.sp_record_action_attempt(p_execution_id uuid, p_node_id text, p_action_type text, p_status text, p_attempt integer DEFAULT 1, p_retry_count integer DEFAULT NULL::integer, p_params jsonb DEFAULT NULL::jsonb, p_outputs jsonb DEFAULT NULL::jsonb, p_error jsonb DEFAULT NULL::jsonb) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
  v_run record;
BEGIN
  PERFORM fermata_check_served();
  PERFORM fermata_check_name('p_node_id', p_node_id, 255);
  PERFORM fermata_check_name('p_action_type', p_action_type, 255);
  IF p_status IS NULL OR p_status COLLATE "C" NOT IN ('Succeeded', 'Failed', 'RetriableFailure', 'Skipped') THEN
    RAISE EXCEPTION 'WFENG005 VALIDATION_ERROR: p_status must be Succeeded, Failed, RetriableFailure or Skipped, not %',
      COALESCE('"' || left(p_status, 255) || '"', 'null') USING ERRCODE = 'WF005';
  END IF;
  IF p_attempt IS NULL OR p_attempt < 1 OR COALESCE(p_retry_count, p_attempt - 1) <> p_attempt - 1 THEN
    RAISE EXCEPTION 'WFENG005 VALIDATION_ERROR: p_attempt counts from 1 and p_retry_count is one less, not % and %',
      p_attempt, p_retry_count USING ERRCODE = 'WF005';
  END IF;
  SELECT * INTO v_run FROM fermata_lock_run(p_execution_id);
  IF NOT v_run.is_ours THEN
    PERFORM fermata_refuse(p_execution_id, v_run.status, 'take an attempt');
  END IF;
  PERFORM fermata_session_lives();
  -- The first record of an attempt stands.
  INSERT INTO action_executions (workflow_execution_id, node_id, attempt, action_type, status, parameters_json,
    outputs_json, error_json, end_time)
  VALUES (p_execution_id, p_node_id, p_attempt, p_action_type, p_status, p_params::text, p_outputs::text, p_error::text,
    fermata_now())
  ON CONFLICT (workflow_execution_id, node_id, attempt) DO NOTHING;
  RETURN fermata_attempt_id(p_execution_id, p_node_id, p_attempt);
END $$;
CREATE FUNCTION public.sp_start_workflow_execution(p_workflow_id text, p_request_id text, p_trigger_json jsonb, p_version integer DEFAULT NULL::integer, p_tenant_id text DEFAULT NULL::text, p_correlation_id text DEFAULT NULL::text, p_parent_execution_id uuid DEFAULT NULL::uuid) RETURNS TABLE(execution_id uuid, was_existing boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
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
  v_workflow := fermata_workflow_uid(p_workflow_id);
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
CREATE FUNCTION public.sp_startworkflowexecution(p_workflowid text, p_requestid text, p_triggerjson jsonb, p_version integer DEFAULT NULL::integer, p_tenantid text DEFAULT NULL::text, p_correlationid text DEFAULT NULL::text, p_parentexecutionid uuid DEFAULT NULL::uuid) RETURNS TABLE(execution_id uuid, was_existing boolean)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
  SELECT s.execution_id, s.was_existing FROM sp_start_workflow_execution(p_workflowid, p_requestid, p_triggerjson, p_version,
    p_tenantid, p_correlationid, p_parentexecutionid) s
$$;
CREATE FUNCTION public.sp_try_acquire_execution(p_execution_id uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
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
CREATE FUNCTION public.sp_tryacquireexecution(p_executionid uuid) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$ SELECT sp_try_acquire_execution(p_executionid) $$;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.action_executions (
    workflow_execution_id uuid NOT NULL,
    start_time bigint,
    end_time bigint NOT NULL,
    attempt integer NOT NULL,
    node_id text NOT NULL COLLATE pg_catalog."C",
    action_type text NOT NULL,
    status text NOT NULL,
    parameters_json text,
    outputs_json text,
    error_json text
);
CREATE VIEW public.actionexecutions AS
 SELECT public.fermata_attempt_id(action_executions.workflow_execution_id, action_executions.node_id, action_executions.attempt) AS id,
    action_executions.workflow_execution_id AS workflowexecutionid,
    action_executions.node_id AS nodeid,
    action_executions.action_type AS actiontype,
    action_executions.status,
    action_executions.attempt,
    (action_executions.attempt - 1) AS retrycount,
    public.fermata_jsonb(action_executions.parameters_json) AS parametersjson,
    public.fermata_jsonb(action_executions.outputs_json) AS outputsjson,
    public.fermata_jsonb(action_executions.error_json) AS errorjson,
    public.fermata_time(action_executions.start_time) AS starttime,
    public.fermata_time(action_executions.end_time) AS endtime
   FROM public.action_executions;
CREATE TABLE public.dead_letters (
    id uuid NOT NULL,
    workflow_execution_id uuid NOT NULL,
    enqueued_at bigint NOT NULL,
    workflow_version integer NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    reason text NOT NULL COLLATE pg_catalog."C",
    workflow_id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    last_error text,
    payload_json text NOT NULL,
    workflow_uid uuid NOT NULL
);
CREATE TABLE public.execution_events (
    workflow_execution_id uuid NOT NULL,
    ts bigint NOT NULL,
    seq integer NOT NULL,
    data text NOT NULL,
    level text DEFAULT 'Info'::text NOT NULL,
    category text DEFAULT 'Orchestrator'::text NOT NULL
);
CREATE VIEW public.executionevents AS
 SELECT execution_events.seq AS id,
    execution_events.workflow_execution_id AS workflowexecutionid,
    public.fermata_time(execution_events.ts) AS ts,
    execution_events.level,
    execution_events.category,
    public.fermata_jsonb(execution_events.data) AS data
   FROM public.execution_events;
CREATE TABLE public.fermata_meta (
    key text NOT NULL,
    value text NOT NULL
)
WITH (fillfactor='20');
CREATE TABLE public.fermata_schema_version (
    version integer NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT CURRENT_TIMESTAMP NOT NULL
);
CREATE TABLE public.registered_callbacks (
    id text NOT NULL COLLATE pg_catalog."C",
    service_name text NOT NULL,
    environment text NOT NULL,
    base_url text NOT NULL,
    path text NOT NULL,
    registered_at bigint NOT NULL
);
CREATE TABLE public.run_inbox (
    workflow_execution_id uuid NOT NULL,
    seq bigint NOT NULL,
    ts bigint NOT NULL,
    letter text NOT NULL
);
CREATE TABLE public.run_waits (
    token text NOT NULL COLLATE pg_catalog."C",
    workflow_execution_id uuid NOT NULL,
    node_id text NOT NULL COLLATE pg_catalog."C",
    is_open boolean DEFAULT true NOT NULL,
    payload_json text,
    answer_seq bigint,
    deadline bigint,
    attempt integer DEFAULT 1 NOT NULL,
    item_id uuid,
    queue text COLLATE pg_catalog."C",
    tenant_id text COLLATE pg_catalog."C",
    workflow_id text COLLATE pg_catalog."C",
    kind text,
    item_json text,
    created_at bigint,
    lease_id uuid,
    worker text,
    lease_until bigint,
    progress_json text,
    answered_by text,
    answered_at bigint
)
WITH (fillfactor='80');
CREATE TABLE public.runners (
    id uuid NOT NULL,
    heartbeat_at bigint NOT NULL,
    started_at bigint NOT NULL,
    pid bigint NOT NULL,
    host text NOT NULL,
    version text NOT NULL,
    role text NOT NULL,
    public_url text DEFAULT ''::text NOT NULL
)
WITH (fillfactor='20');
CREATE TABLE public.workflow_definitions (
    workflow_id text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    dialect text NOT NULL,
    definition_source bytea NOT NULL,
    checksum text NOT NULL,
    created_at bigint NOT NULL,
    workflow_uid uuid NOT NULL
);
CREATE TABLE public.workflow_drafts (
    workflow_id text NOT NULL COLLATE pg_catalog."C",
    display_name text NOT NULL,
    description text,
    dialect text NOT NULL,
    definition_source bytea NOT NULL,
    checksum text NOT NULL,
    updated_at bigint NOT NULL,
    workflow_uid uuid NOT NULL
);
CREATE TABLE public.workflow_executions (
    id uuid NOT NULL,
    lease_owner uuid,
    parent_execution_id uuid,
    lease_epoch bigint DEFAULT 0 NOT NULL,
    wake_at bigint,
    inbox_seq bigint DEFAULT 0 NOT NULL,
    inbox_seen bigint DEFAULT 0 NOT NULL,
    created_at bigint NOT NULL,
    start_time bigint,
    end_time bigint,
    takeovers integer DEFAULT 0 NOT NULL,
    workflow_version integer NOT NULL,
    priority integer,
    status text NOT NULL COLLATE pg_catalog."C",
    workflow_id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    workflow_request_id text NOT NULL COLLATE pg_catalog."C",
    correlation_id text COLLATE pg_catalog."C",
    requester_user_id text NOT NULL,
    requester_email text,
    requester_display_name text,
    reason text,
    error_json text,
    trigger_payload_json text NOT NULL,
    spec_json text,
    outputs_json text,
    context_snapshot_json text,
    workflow_uid uuid NOT NULL,
    parent_node_id text COLLATE pg_catalog."C",
    parent_attempt integer,
    parent_item integer,
    parent_waits boolean,
    depth integer,
    lineage text
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');
CREATE VIEW public.workflow_execution_hierarchy AS
 SELECT workflow_executions.parent_execution_id,
    workflow_executions.id AS child_execution_id,
    workflow_executions.parent_node_id,
    workflow_executions.created_at
   FROM public.workflow_executions
  WHERE (workflow_executions.parent_execution_id IS NOT NULL);
CREATE TABLE public.workflow_plans (
    workflow_uid uuid NOT NULL,
    version integer NOT NULL,
    workflow_id text NOT NULL COLLATE pg_catalog."C",
    plan_json text NOT NULL,
    created_at bigint NOT NULL
);
CREATE TABLE public.workflow_resource_links (
    system_name text NOT NULL COLLATE pg_catalog."C",
    resource_type text NOT NULL COLLATE pg_catalog."C",
    resource_id text NOT NULL COLLATE pg_catalog."C",
    workflow_execution_id uuid NOT NULL,
    node_id text NOT NULL COLLATE pg_catalog."C",
    attempt integer NOT NULL,
    external_url text,
    created_at bigint NOT NULL
);
CREATE TABLE public.workflow_version_marks (
    workflow_id text NOT NULL COLLATE pg_catalog."C",
    latest_version integer NOT NULL
);
CREATE VIEW public.workflowdefinitions AS
 SELECT workflow_definitions.workflow_id AS workflowid,
    workflow_definitions.version,
    public.fermata_jsonb(convert_from(workflow_definitions.definition_source, 'UTF8'::name)) AS definitionjson,
    workflow_definitions.checksum,
    public.fermata_time(workflow_definitions.created_at) AS createdat
   FROM public.workflow_definitions;
CREATE VIEW public.workflowexecutionhierarchy AS
 SELECT workflow_executions.parent_execution_id AS parentexecutionid,
    workflow_executions.id AS childexecutionid,
    (workflow_executions.parent_node_id COLLATE "default") AS parentnodeid,
    public.fermata_time(workflow_executions.created_at) AS createdat
   FROM public.workflow_executions
  WHERE (workflow_executions.parent_execution_id IS NOT NULL);
CREATE VIEW public.workflowexecutions AS
 SELECT workflow_executions.id,
    workflow_executions.workflow_id AS workflowid,
    workflow_executions.workflow_version AS workflowversion,
    workflow_executions.workflow_request_id AS workflowrequestid,
    workflow_executions.status,
    workflow_executions.priority,
    public.fermata_jsonb(workflow_executions.trigger_payload_json) AS triggerpayloadjson,
    public.fermata_jsonb(workflow_executions.context_snapshot_json) AS contextsnapshotjson,
    public.fermata_time(workflow_executions.start_time) AS starttime,
    public.fermata_time(workflow_executions.end_time) AS endtime,
    NULLIF(workflow_executions.tenant_id, ''::text) AS tenantid,
    workflow_executions.correlation_id AS correlationid,
    workflow_executions.parent_execution_id AS parentexecutionid,
    workflow_executions.requester_user_id AS requesteruserid,
    workflow_executions.requester_email AS requesteremail,
    workflow_executions.requester_display_name AS requesterdisplayname
   FROM public.workflow_executions;
CREATE VIEW public.workflowresourcelinks AS
 SELECT workflow_resource_links.workflow_execution_id AS workflowexecutionid,
    public.fermata_attempt_id(workflow_resource_links.workflow_execution_id, workflow_resource_links.node_id, workflow_resource_links.attempt) AS actionexecutionid,
    workflow_resource_links.system_name AS systemname,
    workflow_resource_links.resource_type AS resourcetype,
    workflow_resource_links.resource_id AS resourceid,
    workflow_resource_links.external_url AS externalurl,
    public.fermata_time(workflow_resource_links.created_at) AS createdat
   FROM public.workflow_resource_links;
CREATE TABLE public.workflows (
    id text NOT NULL COLLATE pg_catalog."C",
    uid uuid NOT NULL,
    display_name text NOT NULL,
    description text,
    dialect text NOT NULL,
    current_version integer,
    latest_version integer,
    status text DEFAULT 'Draft'::text NOT NULL,
    is_enabled boolean DEFAULT true NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    deleted_at bigint,
    CONSTRAINT workflows_status_check CHECK ((status = ANY (ARRAY['Draft'::text, 'Active'::text, 'Archived'::text])))
);
INSERT INTO public.action_executions VALUES ('01a1eaf1-3d05-76cd-9788-d69dc1f55fe8', 1794943040779352, 1794943040779367, 1, 'a', 'core.echo', 'Succeeded', '{"text":"hi"}', '{"text":"hi"}', NULL);
INSERT INTO public.execution_events VALUES ('01a1eaf1-3b31-74e5-aa23-00831f82d3e3', 1794943040306000, 1, '{"v":1,"events":[{"type":"started","at":1794943040306000,"deadline":4948543040306000},{"type":"opened","node":"wait","at":1794943040306000}]}', 'Info', 'Orchestrator');
INSERT INTO public.execution_events VALUES ('01a1eaf1-3be5-7437-bcdd-5d593ccd8ce4', 1794943040485782, 1, '{"v":1,"events":[{"type":"started","at":1794943040485782,"deadline":4948543040485782},{"type":"opened","node":"wait","at":1794943040485782}]}', 'Info', 'Orchestrator');
INSERT INTO public.execution_events VALUES ('01a1eaf1-3bfd-7191-be1d-eb3d8b4070b2', 1794943040509677, 1, '{"v":1,"events":[{"type":"started","at":1794943040509677,"deadline":4948543040509677},{"type":"opened","node":"wait","at":1794943040509677}]}', 'Info', 'Orchestrator');
INSERT INTO public.execution_events VALUES ('01a1eaf1-3c75-73c7-acdc-fa1d32919283', 1794943040629685, 1, '{"v":1,"events":[{"type":"started","at":1794943040629685,"deadline":4948543040629685},{"type":"opened","node":"d","at":1794943040629685}]}', 'Info', 'Orchestrator');
INSERT INTO public.execution_events VALUES ('01a1eaf1-3c75-73c7-acdc-fa1d32919283', 1794943040635345, 2, '{"v":1,"events":[{"type":"slept","node":"d","until":1794943100635345}]}', 'Info', 'Orchestrator');
INSERT INTO public.execution_events VALUES ('01a1eaf1-3c99-700c-a9ff-e613d4c9abab', 1794943040671795, 1, '{"v":1,"events":[{"type":"started","at":1794943040671795,"deadline":4948543040671795},{"type":"opened","node":"call","at":1794943040671795}]}', 'Info', 'Orchestrator');
INSERT INTO public.execution_events VALUES ('01a1eaf1-3ca1-7467-85dc-1f96cf4e4935', 1794943040673900, 1, '{"v":1,"events":[{"type":"started","at":1794943040673900,"deadline":4948543040673900},{"type":"opened","node":"wait","at":1794943040673900}]}', 'Info', 'Orchestrator');
INSERT INTO public.execution_events VALUES ('01a1eaf1-3c99-700c-a9ff-e613d4c9abab', 1794943040686377, 2, '{"v":1,"events":[{"type":"requested","node":"call","attempt":1}]}', 'Info', 'Orchestrator');
INSERT INTO public.execution_events VALUES ('01a1eaf1-3cc2-74ed-83e0-d7f61665ba26', 1794943040712334, 1, '{"v":1,"events":[{"type":"started","at":1794943040712334,"deadline":4948543040712334},{"type":"opened","node":"ok","at":1794943040712334}]}', 'Info', 'Orchestrator');
INSERT INTO public.execution_events VALUES ('01a1eaf1-3cc2-74ed-83e0-d7f61665ba26', 1794943040725815, 2, '{"v":1,"events":[{"type":"requested","node":"ok","attempt":1}]}', 'Info', 'Orchestrator');
INSERT INTO public.execution_events VALUES ('01a1eaf1-3d05-76cd-9788-d69dc1f55fe8', 1794943040773964, 1, '{"v":1,"events":[{"type":"started","at":1794943040773964,"deadline":1794946640773964},{"type":"opened","node":"a","at":1794943040773964}]}', 'Info', 'Orchestrator');
INSERT INTO public.execution_events VALUES ('01a1eaf1-3d05-76cd-9788-d69dc1f55fe8', 1794943040779376, 2, '{"v":1,"events":[{"type":"finished","node":"a","attempt":1,"outcome":{"succeeded":{"bytes":13,"shape":"object"}}},{"type":"routed","node":"a","taken":[]},{"type":"ended","at":1794943040779376,"status":"Succeeded"}]}', 'Info', 'Orchestrator');
INSERT INTO public.fermata_meta VALUES ('oldest_program', '0.1.0');
INSERT INTO public.fermata_schema_version VALUES (1, 'first', '2026-11-17 19:17:07.819416+00');
INSERT INTO public.fermata_schema_version VALUES (2, 'sql functions', '2026-11-17 19:17:07.819416+00');
INSERT INTO public.fermata_schema_version VALUES (3, 'workflows by uid', '2026-11-17 19:17:07.819416+00');
INSERT INTO public.fermata_schema_version VALUES (4, 'the spec''s spelling', '2026-11-17 19:17:07.819416+00');
INSERT INTO public.fermata_schema_version VALUES (5, 'deadlines of waits', '2026-11-17 19:17:07.819416+00');
INSERT INTO public.fermata_schema_version VALUES (6, 'plans', '2026-11-17 19:17:07.819416+00');
INSERT INTO public.fermata_schema_version VALUES (7, 'inbox', '2026-11-17 19:17:07.819416+00');
INSERT INTO public.fermata_schema_version VALUES (8, 'child runs', '2026-11-17 19:17:07.819416+00');
INSERT INTO public.fermata_schema_version VALUES (9, 'registered callbacks', '2026-11-17 19:17:07.819416+00');
INSERT INTO public.registered_callbacks VALUES ('charge', 'billing', 'test', 'https://billing.example', '/charge', 1794943040468742);
INSERT INTO public.run_waits VALUES ('8772104624d2491da5532b8147e949179807d9cd49b644bc924cdc4d193908c3', '01a1eaf1-3b31-74e5-aa23-00831f82d3e3', 'wait', true, NULL, NULL, 4948543040306000, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.run_waits VALUES ('e5d79e41d64345ae89bccd8c4a1d3603f662da9a301640dab76c5dae2e542d67', '01a1eaf1-3be5-7437-bcdd-5d593ccd8ce4', 'wait', true, NULL, NULL, 4948543040485782, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.run_waits VALUES ('bed1c58d52cd435aae6cb98c299beb209ff2b9e18cdf46dfba61203fbbed9357', '01a1eaf1-3bfd-7191-be1d-eb3d8b4070b2', 'wait', true, NULL, NULL, 4948543040509677, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.run_waits VALUES ('3d744b8b45754b4883d63f3a1b8525c0addbc395c6934b529fe1ccffd5f17628', '01a1eaf1-3ca1-7467-85dc-1f96cf4e4935', 'wait', true, NULL, NULL, 4948543040673900, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.run_waits VALUES ('cf29ea8a41ff45f09b1566a337bb912e4d06e3ee1a6c41d5be8a99d6ebfae5ac', '01a1eaf1-3cc2-74ed-83e0-d7f61665ba26', 'ok', true, NULL, NULL, 4948543040712334, 1, '01a1eaf1-3cd5-7163-88df-4b3eb1748ec7', 'approve', '', 'approve', 'approval', '{"title":"May it go on?","outcomes":["yes","no"],"asOf":0}', 1794943040725815, NULL, NULL, 0, NULL, NULL, NULL);
INSERT INTO public.workflow_definitions VALUES ('ask', 1, 'dataworkflows', '\x7b226964223a2261736b222c22646973706c61794e616d65223a2241736b222c2274696d656f75744d73223a333135333630303030303030302c226465736372697074696f6e223a226669727374222c2273746172744e6f6465223a2277616974222c226e6f646573223a5b7b226964223a2277616974222c22616374696f6e54797065223a22636f72652e77616974222c226564676573223a5b7b227461726765744e6f6465223a22736179227d5d7d2c7b226964223a22736179222c22616374696f6e54797065223a22636f72652e6563686f222c22706172616d6574657273223a7b22616e73776572223a227b7b20636f6e746578742e646174615b2777616974275d207d7d227d7d5d7d', 'c0a624e00b7517790780803c839a8ae67e5c3cec9d5b730f2f463ccc9b9ac642', 1794943040286865, '01a1eaf1-3b0d-774c-ae49-367410ecf3cc');
INSERT INTO public.workflow_definitions VALUES ('ask', 2, 'dataworkflows', '\x7b226964223a2261736b222c22646973706c61794e616d65223a2241736b222c2274696d656f75744d73223a333135333630303030303030302c226465736372697074696f6e223a227365636f6e64222c2273746172744e6f6465223a2277616974222c226e6f646573223a5b7b226964223a2277616974222c22616374696f6e54797065223a22636f72652e77616974222c226564676573223a5b7b227461726765744e6f6465223a22736179227d5d7d2c7b226964223a22736179222c22616374696f6e54797065223a22636f72652e6563686f222c22706172616d6574657273223a7b22616e73776572223a227b7b20636f6e746578742e646174615b2777616974275d207d7d227d7d5d7d', 'ce8f7ff7b3e0b3d3a0439dd660bf992b73e50e5a096c509a642feb691be6f0d1', 1794943040413286, '01a1eaf1-3b0d-774c-ae49-367410ecf3cc');
INSERT INTO public.workflow_definitions VALUES ('nap', 1, 'runlater', '\x7b226e616d65223a226e6170222c227461736b73223a7b226e6170223a7b22736c656570223a223173227d7d7d', '643a1e5415ea07a43d7ce0ac0a9fc7a3ed37b0ee86edb5c20ae97865dc34ff9a', 1794943040458768, '01a1eaf1-3bca-760b-ba65-e9b35025073b');
INSERT INTO public.workflow_definitions VALUES ('delay', 1, 'dataworkflows', '\x7b226964223a2264656c6179222c22646973706c61794e616d65223a2244222c2274696d656f75744d73223a333135333630303030303030302c2273746172744e6f6465223a2264222c226e6f646573223a5b7b226964223a2264222c22616374696f6e54797065223a22636f72652e64656c6179222c22706172616d6574657273223a7b226475726174696f6e4d73223a36303030307d7d5d7d', 'd847cb77dccab655aa7e9d6e2f976cde10717e612fd52b972d59231a70492b80', 1794943040614522, '01a1eaf1-3c23-721a-ad4d-d64b64cc6428');
INSERT INTO public.workflow_definitions VALUES ('parent', 1, 'dataworkflows', '\x7b226964223a22706172656e74222c22646973706c61794e616d65223a2250222c2274696d656f75744d73223a333135333630303030303030302c2273746172744e6f6465223a2263616c6c222c226e6f646573223a5b7b226964223a2263616c6c222c226e6f646554797065223a22737562776f726b666c6f77222c22776f726b666c6f774964223a2261736b222c22706172616d6574657273223a7b226e223a347d7d5d7d', '187bd83359827d06af447c27fd34baaedd0735c8ce73e64d24e8a8d5d3325571', 1794943040655024, '01a1eaf1-3c82-71d2-a197-e3340efb837e');
INSERT INTO public.workflow_definitions VALUES ('approve', 1, 'dataworkflows', '\x7b226964223a22617070726f7665222c22646973706c61794e616d65223a2241222c2274696d656f75744d73223a333135333630303030303030302c2273746172744e6f6465223a226f6b222c226e6f646573223a5b7b226964223a226f6b222c22616374696f6e54797065223a22636f72652e617070726f76616c222c22706172616d6574657273223a7b227469746c65223a224d617920697420676f206f6e3f222c226f7574636f6d6573223a5b22796573222c226e6f225d7d7d5d7d', '5033f3b05dd8d6fcfecdd02a96ed47bb9b6cbb728bc60a4729c9b30db74707b1', 1794943040694389, '01a1eaf1-3ca8-760a-afe9-b576a4b9b068');
INSERT INTO public.workflow_definitions VALUES ('echo', 1, 'dataworkflows', '\x7b226964223a226563686f222c22646973706c61794e616d65223a2245222c2273746172744e6f6465223a2261222c226e6f646573223a5b7b226964223a2261222c22616374696f6e54797065223a22636f72652e6563686f222c22706172616d6574657273223a7b2274657874223a226869227d7d5d7d', '6c649809de4281a0a41d1831cb61a9f1f69262326593688f9bb60759fc63a566', 1794943040763535, '01a1eaf1-3cdf-7201-8c61-03f74e101bec');
INSERT INTO public.workflow_drafts VALUES ('ask', 'Ask', 'third', 'dataworkflows', '\x7b226964223a2261736b222c22646973706c61794e616d65223a2241736b222c2274696d656f75744d73223a333135333630303030303030302c226465736372697074696f6e223a227468697264222c2273746172744e6f6465223a2277616974222c226e6f646573223a5b7b226964223a2277616974222c22616374696f6e54797065223a22636f72652e77616974222c226564676573223a5b7b227461726765744e6f6465223a22736179227d5d7d2c7b226964223a22736179222c22616374696f6e54797065223a22636f72652e6563686f222c22706172616d6574657273223a7b22616e73776572223a227b7b20636f6e746578742e646174615b2777616974275d207d7d227d7d5d7d', '7b73ca68f5febbcd6314d3ad387d50f06d1a1ca3a6f4c3f06d3fed579bf1e4d6', 1794943040425838, '01a1eaf1-3b0d-774c-ae49-367410ecf3cc');
INSERT INTO public.workflow_drafts VALUES ('draft-only', 'D', NULL, 'dataworkflows', '\x7b226964223a2264726166742d6f6e6c79222c22646973706c61794e616d65223a2244222c2273746172744e6f6465223a2261222c226e6f646573223a5b7b226964223a2261222c22616374696f6e54797065223a22636f72652e6563686f227d5d7d', 'fa45e858108115d37fcfce86b181521c037f367357e92f3b5560b73a5616899d', 1794943040442796, '01a1eaf1-3bba-758e-aa6c-3cce29b2b236');
INSERT INTO public.workflow_executions VALUES ('01a1eaf1-3b31-74e5-aa23-00831f82d3e3', NULL, NULL, 1, 4948543040306000, 0, 0, 1794943040306000, 1794943040306000, NULL, 0, 1, NULL, 'Running', 'ask', '', 'first version', NULL, 'system', NULL, 'System', NULL, NULL, '{"n":3}', NULL, NULL, NULL, '01a1eaf1-3b0d-774c-ae49-367410ecf3cc', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.workflow_executions VALUES ('01a1eaf1-3be5-7437-bcdd-5d593ccd8ce4', NULL, NULL, 1, 4948543040485782, 0, 0, 1794943040485782, 1794943040485782, NULL, 0, 2, NULL, 'Running', 'ask', '', 'one', NULL, 'system', NULL, 'System', NULL, NULL, '{"n":1}', NULL, NULL, NULL, '01a1eaf1-3b0d-774c-ae49-367410ecf3cc', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.workflow_executions VALUES ('01a1eaf1-3bfd-7191-be1d-eb3d8b4070b2', NULL, NULL, 1, 4948543040509677, 0, 0, 1794943040509677, 1794943040509677, NULL, 0, 2, NULL, 'Running', 'ask', 'acme', 'one', NULL, 'system', NULL, 'System', NULL, NULL, '{"n":2}', NULL, NULL, NULL, '01a1eaf1-3b0d-774c-ae49-367410ecf3cc', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.workflow_executions VALUES ('01a1eaf1-3c75-73c7-acdc-fa1d32919283', NULL, NULL, 1, 1794943100635345, 0, 0, 1794943040629685, 1794943040629685, NULL, 0, 1, NULL, 'Running', 'delay', '', 'delay', NULL, 'system', NULL, 'System', NULL, NULL, '{}', NULL, NULL, NULL, '01a1eaf1-3c23-721a-ad4d-d64b64cc6428', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.workflow_executions VALUES ('01a1eaf1-3c99-700c-a9ff-e613d4c9abab', '01a1eaf1-0bc7-739b-b7f0-4d9f54be3221', NULL, 1, 1794943040671795, 0, 0, 1794943040671795, 1794943040671795, NULL, 0, 1, NULL, 'Running', 'parent', '', 'parent', NULL, 'system', NULL, 'System', NULL, NULL, '{}', NULL, NULL, NULL, '01a1eaf1-3c82-71d2-a197-e3340efb837e', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.workflow_executions VALUES ('01a1eaf1-3ca1-7467-85dc-1f96cf4e4935', NULL, '01a1eaf1-3c99-700c-a9ff-e613d4c9abab', 1, 4948543040673900, 0, 0, 1794943040673900, 1794943040673900, NULL, 0, 2, NULL, 'Running', 'ask', '', 'fermata:child:01a1eaf1-3c99-700c-a9ff-e613d4c9abab:call:1', '01a1eaf1-3c99-700c-a9ff-e613d4c9abab', 'system', NULL, 'System', NULL, NULL, '{"n":4}', NULL, NULL, NULL, '01a1eaf1-3b0d-774c-ae49-367410ecf3cc', 'call', 1, NULL, true, 1, '["01a1eaf1-3c82-71d2-a197-e3340efb837e"]');
INSERT INTO public.workflow_executions VALUES ('01a1eaf1-3cc2-74ed-83e0-d7f61665ba26', NULL, NULL, 1, 4948543040712334, 0, 0, 1794943040712334, 1794943040712334, NULL, 0, 1, NULL, 'Running', 'approve', '', 'approval', NULL, 'system', NULL, 'System', NULL, NULL, '{}', NULL, NULL, NULL, '01a1eaf1-3ca8-760a-afe9-b576a4b9b068', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.workflow_executions VALUES ('01a1eaf1-3d05-76cd-9788-d69dc1f55fe8', NULL, NULL, 1, NULL, 0, 0, 1794943040773964, 1794943040773964, 1794943040779376, 0, 1, NULL, 'Succeeded', 'echo', '', 'done', NULL, 'system', NULL, 'System', NULL, NULL, '{}', NULL, '{"text":"hi"}', '{"a":{"bytes":13,"type":"object"}}', '01a1eaf1-3cdf-7201-8c61-03f74e101bec', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.workflow_plans VALUES ('01a1eaf1-3b0d-774c-ae49-367410ecf3cc', 1, 'ask', '{"v":1,"plan":{"workflow":"ask","displayName":"Ask","dialect":"dataworkflows","nodes":[{"id":"wait","kind":{"type":"wait"},"join":"any","route":"parallel","policies":{"timeoutMs":300000,"retry":{"maxAttempts":4,"baseDelayMs":2000,"backoffFactor":2.0,"jitter":true},"rerenderOnRetry":false},"edges":[{"target":1,"when":"success"}]},{"id":"say","kind":{"type":"action","action":"core.echo","parameters":{"answer":"{{ context.data[''wait''] }}"}},"join":"any","route":"parallel","policies":{"timeoutMs":300000,"retry":{"maxAttempts":4,"baseDelayMs":2000,"backoffFactor":2.0,"jitter":true},"rerenderOnRetry":false},"edges":[]}],"onFailure":"failFast","timeoutMs":3153600000000,"context":{"mode":"SummaryOnly","keysToInclude":[],"maxContextSizeBytes":10485760,"overflowBehavior":"Fail"},"scope":{"names":[{"path":["trigger"],"source":"trigger"},{"path":["context","data"],"source":"entries"},{"path":["vars"],"source":"vars"},{"path":["spec"],"source":"spec"},{"path":["wait"],"source":"waits"}],"entries":{"succeeded":{"output":[]},"answered":{"output":[]},"failed":{"object":[{"name":"error","form":{"object":[{"name":"code","form":"errorCode"},{"name":"message","form":"errorMessage"}]}},{"name":"errorNode","form":"node"},{"name":"status","form":"status"}]}},"words":{"pending":"pending","running":"running","sleeping":"sleeping","waiting":"waiting","succeeded":"succeeded","answered":"succeeded","failed":"failed","skipped":"skipped"}},"language":"script","templates":{"strict":true,"nullText":"","loops":false,"functions":false}}}', 1794943040286865);
INSERT INTO public.workflow_plans VALUES ('01a1eaf1-3b0d-774c-ae49-367410ecf3cc', 2, 'ask', '{"v":1,"plan":{"workflow":"ask","displayName":"Ask","dialect":"dataworkflows","nodes":[{"id":"wait","kind":{"type":"wait"},"join":"any","route":"parallel","policies":{"timeoutMs":300000,"retry":{"maxAttempts":4,"baseDelayMs":2000,"backoffFactor":2.0,"jitter":true},"rerenderOnRetry":false},"edges":[{"target":1,"when":"success"}]},{"id":"say","kind":{"type":"action","action":"core.echo","parameters":{"answer":"{{ context.data[''wait''] }}"}},"join":"any","route":"parallel","policies":{"timeoutMs":300000,"retry":{"maxAttempts":4,"baseDelayMs":2000,"backoffFactor":2.0,"jitter":true},"rerenderOnRetry":false},"edges":[]}],"onFailure":"failFast","timeoutMs":3153600000000,"context":{"mode":"SummaryOnly","keysToInclude":[],"maxContextSizeBytes":10485760,"overflowBehavior":"Fail"},"scope":{"names":[{"path":["trigger"],"source":"trigger"},{"path":["context","data"],"source":"entries"},{"path":["vars"],"source":"vars"},{"path":["spec"],"source":"spec"},{"path":["wait"],"source":"waits"}],"entries":{"succeeded":{"output":[]},"answered":{"output":[]},"failed":{"object":[{"name":"error","form":{"object":[{"name":"code","form":"errorCode"},{"name":"message","form":"errorMessage"}]}},{"name":"errorNode","form":"node"},{"name":"status","form":"status"}]}},"words":{"pending":"pending","running":"running","sleeping":"sleeping","waiting":"waiting","succeeded":"succeeded","answered":"succeeded","failed":"failed","skipped":"skipped"}},"language":"script","templates":{"strict":true,"nullText":"","loops":false,"functions":false}}}', 1794943040413286);
INSERT INTO public.workflow_plans VALUES ('01a1eaf1-3bca-760b-ba65-e9b35025073b', 1, 'nap', '{"v":1,"plan":{"workflow":"nap","displayName":"nap","dialect":"runlater","nodes":[{"id":"nap","kind":{"type":"sleep","action":"core.delay","parameters":{"durationMs":1000}},"join":"all","route":"parallel","policies":{"timeoutMs":300000,"retry":{"maxAttempts":4,"baseDelayMs":2000,"backoffFactor":2.0,"jitter":true},"rerenderOnRetry":false},"edges":[]}],"onFailure":"continue","timeoutMs":2592000000,"context":{"mode":"SummaryOnly","keysToInclude":[],"maxContextSizeBytes":10485760,"overflowBehavior":"DropOversize"},"scope":{"names":[{"path":["trigger","body"],"source":"trigger"},{"path":["trigger","headers"],"source":{"fixed":{}}},{"path":["tasks"],"source":"entries"},{"path":["wait"],"source":"waits"}],"entries":{"succeeded":{"object":[{"name":"status","form":"status"},{"name":"status_code","form":{"output":["status"]}},{"name":"body","form":{"output":["body"]}},{"name":"headers","form":{"output":["headers"]}},{"name":"isTruncated","form":{"output":["isTruncated"]},"optional":true},{"name":"bodyError","form":{"output":["bodyError"]},"optional":true}]},"answered":{"object":[{"name":"status","form":"status"},{"name":"status_code","form":"null"},{"name":"body","form":{"output":[]}},{"name":"headers","form":"null"}]},"failed":{"object":[{"name":"status","form":"status"},{"name":"status_code","form":{"output":["status"]}},{"name":"body","form":{"output":["body"]}},{"name":"headers","form":{"output":["headers"]}},{"name":"isTruncated","form":{"output":["isTruncated"]},"optional":true},{"name":"bodyError","form":{"output":["bodyError"]},"optional":true}]},"skipped":{"object":[{"name":"status","form":"status"},{"name":"status_code","form":{"output":["status"]}},{"name":"body","form":{"output":["body"]}},{"name":"headers","form":{"output":["headers"]}},{"name":"isTruncated","form":{"output":["isTruncated"]},"optional":true},{"name":"bodyError","form":{"output":["bodyError"]},"optional":true}]}},"words":{"pending":"pending","running":"running","sleeping":"sleeping","waiting":"waiting","succeeded":"success","answered":"received","failed":"failed","failedWith":{"TEMPLATE_ERROR":"template_error","TIMEOUT":"timeout","WAIT_TIMEOUT":"timeout"},"skipped":"skipped"}},"language":"paths","templates":{"strict":true,"nullText":"","loops":false,"functions":false,"places":[{"action":"http.request","parameter":"/url","takes":"url"},{"action":"http.request","parameter":"/headers","takes":"text"}]}}}', 1794943040458768);
INSERT INTO public.workflow_plans VALUES ('01a1eaf1-3c23-721a-ad4d-d64b64cc6428', 1, 'delay', '{"v":1,"plan":{"workflow":"delay","displayName":"D","dialect":"dataworkflows","nodes":[{"id":"d","kind":{"type":"sleep","action":"core.delay","parameters":{"durationMs":60000}},"join":"any","route":"parallel","policies":{"timeoutMs":300000,"retry":{"maxAttempts":4,"baseDelayMs":2000,"backoffFactor":2.0,"jitter":true},"rerenderOnRetry":false},"edges":[]}],"onFailure":"failFast","timeoutMs":3153600000000,"context":{"mode":"SummaryOnly","keysToInclude":[],"maxContextSizeBytes":10485760,"overflowBehavior":"Fail"},"scope":{"names":[{"path":["trigger"],"source":"trigger"},{"path":["context","data"],"source":"entries"},{"path":["vars"],"source":"vars"},{"path":["spec"],"source":"spec"},{"path":["wait"],"source":"waits"}],"entries":{"succeeded":{"output":[]},"answered":{"output":[]},"failed":{"object":[{"name":"error","form":{"object":[{"name":"code","form":"errorCode"},{"name":"message","form":"errorMessage"}]}},{"name":"errorNode","form":"node"},{"name":"status","form":"status"}]}},"words":{"pending":"pending","running":"running","sleeping":"sleeping","waiting":"waiting","succeeded":"succeeded","answered":"succeeded","failed":"failed","skipped":"skipped"}},"language":"script","templates":{"strict":true,"nullText":"","loops":false,"functions":false}}}', 1794943040614522);
INSERT INTO public.workflow_plans VALUES ('01a1eaf1-3c82-71d2-a197-e3340efb837e', 1, 'parent', '{"v":1,"plan":{"workflow":"parent","displayName":"P","dialect":"dataworkflows","nodes":[{"id":"call","kind":{"type":"request","action":"core.subworkflow","parameters":{"workflowId":"ask","trigger":{"n":4}},"answer":{"type":"child"},"timeoutCode":"TIMEOUT"},"join":"any","route":"parallel","policies":{"timeoutMs":300000,"retry":{"maxAttempts":1,"baseDelayMs":2000,"backoffFactor":2.0,"jitter":true},"rerenderOnRetry":false},"edges":[]}],"onFailure":"failFast","timeoutMs":3153600000000,"context":{"mode":"SummaryOnly","keysToInclude":[],"maxContextSizeBytes":10485760,"overflowBehavior":"Fail"},"scope":{"names":[{"path":["trigger"],"source":"trigger"},{"path":["context","data"],"source":"entries"},{"path":["vars"],"source":"vars"},{"path":["spec"],"source":"spec"},{"path":["wait"],"source":"waits"}],"entries":{"succeeded":{"output":[]},"answered":{"output":[]},"failed":{"object":[{"name":"error","form":{"object":[{"name":"code","form":"errorCode"},{"name":"message","form":"errorMessage"}]}},{"name":"errorNode","form":"node"},{"name":"status","form":"status"}]}},"words":{"pending":"pending","running":"running","sleeping":"sleeping","waiting":"waiting","succeeded":"succeeded","answered":"succeeded","failed":"failed","skipped":"skipped"}},"language":"script","templates":{"strict":true,"nullText":"","loops":false,"functions":false}}}', 1794943040655024);
INSERT INTO public.workflow_plans VALUES ('01a1eaf1-3ca8-760a-afe9-b576a4b9b068', 1, 'approve', '{"v":1,"plan":{"workflow":"approve","displayName":"A","dialect":"dataworkflows","nodes":[{"id":"ok","kind":{"type":"request","action":"core.approval","parameters":{"title":"May it go on?","outcomes":["yes","no"]},"answer":{"type":"approval","outcomes":["yes","no"]},"timeoutCode":"WAIT_TIMEOUT"},"join":"any","route":"parallel","policies":{"timeoutMs":300000,"retry":{"maxAttempts":4,"baseDelayMs":2000,"backoffFactor":2.0,"jitter":true},"rerenderOnRetry":false},"edges":[]}],"onFailure":"failFast","timeoutMs":3153600000000,"context":{"mode":"SummaryOnly","keysToInclude":[],"maxContextSizeBytes":10485760,"overflowBehavior":"Fail"},"scope":{"names":[{"path":["trigger"],"source":"trigger"},{"path":["context","data"],"source":"entries"},{"path":["vars"],"source":"vars"},{"path":["spec"],"source":"spec"},{"path":["wait"],"source":"waits"}],"entries":{"succeeded":{"output":[]},"answered":{"output":[]},"failed":{"object":[{"name":"error","form":{"object":[{"name":"code","form":"errorCode"},{"name":"message","form":"errorMessage"}]}},{"name":"errorNode","form":"node"},{"name":"status","form":"status"}]}},"words":{"pending":"pending","running":"running","sleeping":"sleeping","waiting":"waiting","succeeded":"succeeded","answered":"succeeded","failed":"failed","skipped":"skipped"}},"language":"script","templates":{"strict":true,"nullText":"","loops":false,"functions":false}}}', 1794943040694389);
INSERT INTO public.workflow_plans VALUES ('01a1eaf1-3cdf-7201-8c61-03f74e101bec', 1, 'echo', '{"v":1,"plan":{"workflow":"echo","displayName":"E","dialect":"dataworkflows","nodes":[{"id":"a","kind":{"type":"action","action":"core.echo","parameters":{"text":"hi"}},"join":"any","route":"parallel","policies":{"timeoutMs":300000,"retry":{"maxAttempts":4,"baseDelayMs":2000,"backoffFactor":2.0,"jitter":true},"rerenderOnRetry":false},"edges":[]}],"onFailure":"failFast","timeoutMs":3600000,"context":{"mode":"SummaryOnly","keysToInclude":[],"maxContextSizeBytes":10485760,"overflowBehavior":"Fail"},"scope":{"names":[{"path":["trigger"],"source":"trigger"},{"path":["context","data"],"source":"entries"},{"path":["vars"],"source":"vars"},{"path":["spec"],"source":"spec"},{"path":["wait"],"source":"waits"}],"entries":{"succeeded":{"output":[]},"answered":{"output":[]},"failed":{"object":[{"name":"error","form":{"object":[{"name":"code","form":"errorCode"},{"name":"message","form":"errorMessage"}]}},{"name":"errorNode","form":"node"},{"name":"status","form":"status"}]}},"words":{"pending":"pending","running":"running","sleeping":"sleeping","waiting":"waiting","succeeded":"succeeded","answered":"succeeded","failed":"failed","skipped":"skipped"}},"language":"script","templates":{"strict":true,"nullText":"","loops":false,"functions":false}}}', 1794943040763535);
INSERT INTO public.workflows VALUES ('ask', '01a1eaf1-3b0d-774c-ae49-367410ecf3cc', 'Ask', 'second', 'dataworkflows', 2, 2, 'Active', true, 1794943040269834, 1794943040425838, NULL);
INSERT INTO public.workflows VALUES ('draft-only', '01a1eaf1-3bba-758e-aa6c-3cce29b2b236', 'D', NULL, 'dataworkflows', NULL, NULL, 'Draft', true, 1794943040442796, 1794943040442796, NULL);
INSERT INTO public.workflows VALUES ('nap', '01a1eaf1-3bca-760b-ba65-e9b35025073b', 'nap', NULL, 'runlater', 1, 1, 'Active', true, 1794943040458768, 1794943040458768, NULL);
INSERT INTO public.workflows VALUES ('delay', '01a1eaf1-3c23-721a-ad4d-d64b64cc6428', 'D', NULL, 'dataworkflows', 1, 1, 'Active', true, 1794943040547802, 1794943040614522, NULL);
INSERT INTO public.workflows VALUES ('parent', '01a1eaf1-3c82-71d2-a197-e3340efb837e', 'P', NULL, 'dataworkflows', 1, 1, 'Active', true, 1794943040642519, 1794943040655024, NULL);
INSERT INTO public.workflows VALUES ('approve', '01a1eaf1-3ca8-760a-afe9-b576a4b9b068', 'A', NULL, 'dataworkflows', 1, 1, 'Active', true, 1794943040680801, 1794943040694389, NULL);
INSERT INTO public.workflows VALUES ('echo', '01a1eaf1-3cdf-7201-8c61-03f74e101bec', 'E', NULL, 'dataworkflows', 1, 1, 'Active', true, 1794943040734984, 1794943040763535, NULL);
ALTER TABLE ONLY public.action_executions
    ADD CONSTRAINT action_executions_pkey PRIMARY KEY (workflow_execution_id, node_id, attempt);
ALTER TABLE public.action_executions
    ADD CONSTRAINT ck_actions_status CHECK ((status = ANY (ARRAY['Succeeded'::text, 'Failed'::text, 'RetriableFailure'::text, 'Skipped'::text]))) NOT VALID;
ALTER TABLE public.workflow_executions
    ADD CONSTRAINT ck_executions_status CHECK ((status = ANY (ARRAY['Pending'::text, 'Running'::text, 'Succeeded'::text, 'Failed'::text, 'Cancelled'::text]))) NOT VALID;
ALTER TABLE ONLY public.dead_letters
    ADD CONSTRAINT dead_letters_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.execution_events
    ADD CONSTRAINT execution_events_pkey PRIMARY KEY (workflow_execution_id, seq);
ALTER TABLE ONLY public.fermata_meta
    ADD CONSTRAINT fermata_meta_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.fermata_schema_version
    ADD CONSTRAINT fermata_schema_version_pkey PRIMARY KEY (version);
ALTER TABLE ONLY public.registered_callbacks
    ADD CONSTRAINT registered_callbacks_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.run_inbox
    ADD CONSTRAINT run_inbox_pkey PRIMARY KEY (workflow_execution_id, seq);
ALTER TABLE ONLY public.run_waits
    ADD CONSTRAINT run_waits_pkey PRIMARY KEY (token);
ALTER TABLE ONLY public.runners
    ADD CONSTRAINT runners_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.workflow_definitions
    ADD CONSTRAINT workflow_definitions_pkey PRIMARY KEY (workflow_uid, version);
ALTER TABLE ONLY public.workflow_drafts
    ADD CONSTRAINT workflow_drafts_pkey PRIMARY KEY (workflow_uid);
ALTER TABLE ONLY public.workflow_executions
    ADD CONSTRAINT workflow_executions_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.workflow_plans
    ADD CONSTRAINT workflow_plans_pkey PRIMARY KEY (workflow_uid, version);
ALTER TABLE ONLY public.workflow_resource_links
    ADD CONSTRAINT workflow_resource_links_pkey PRIMARY KEY (system_name, resource_type, resource_id);
ALTER TABLE ONLY public.workflow_version_marks
    ADD CONSTRAINT workflow_version_marks_pkey PRIMARY KEY (workflow_id);
ALTER TABLE ONLY public.workflows
    ADD CONSTRAINT workflows_pkey PRIMARY KEY (uid);
CREATE INDEX ix_dead_letters_reason ON public.dead_letters USING btree (reason, id);
CREATE INDEX ix_dead_letters_workflow ON public.dead_letters USING btree (workflow_uid, id);
CREATE INDEX ix_executions_correlation ON public.workflow_executions USING btree (correlation_id, id) WHERE (correlation_id IS NOT NULL);
CREATE INDEX ix_executions_due ON public.workflow_executions USING btree (wake_at, id) WHERE ((lease_owner IS NULL) AND (wake_at IS NOT NULL));
CREATE INDEX ix_executions_ended_children ON public.workflow_executions USING btree (parent_execution_id, id) WHERE (parent_waits AND (end_time IS NOT NULL));
CREATE INDEX ix_executions_group ON public.workflow_executions USING btree (tenant_id, workflow_uid, wake_at, id) WHERE ((lease_owner IS NULL) AND (wake_at IS NOT NULL));
CREATE INDEX ix_executions_held ON public.workflow_executions USING btree (lease_owner, wake_at, id) WHERE (lease_owner IS NOT NULL);
CREATE INDEX ix_executions_parent ON public.workflow_executions USING btree (parent_execution_id, id) WHERE (parent_execution_id IS NOT NULL);
CREATE INDEX ix_executions_priority ON public.workflow_executions USING btree (workflow_uid, priority, wake_at, id) WHERE ((lease_owner IS NULL) AND (wake_at IS NOT NULL) AND (priority <> 0));
CREATE INDEX ix_executions_status ON public.workflow_executions USING btree (status, id) WHERE (status <> 'Succeeded'::text);
CREATE INDEX ix_executions_tenant ON public.workflow_executions USING btree (tenant_id, id) WHERE (tenant_id <> ''::text);
CREATE INDEX ix_executions_unread ON public.workflow_executions USING btree (lease_owner, id) WHERE ((lease_owner IS NOT NULL) AND (inbox_seq > inbox_seen));
CREATE INDEX ix_executions_workflow ON public.workflow_executions USING btree (workflow_uid, id);
CREATE INDEX ix_inbox_claim ON public.run_waits USING btree (queue, lease_until, item_id) WHERE ((item_id IS NOT NULL) AND is_open);
CREATE INDEX ix_inbox_claim_tenant ON public.run_waits USING btree (queue, tenant_id, lease_until, item_id) WHERE ((item_id IS NOT NULL) AND is_open);
CREATE INDEX ix_inbox_pending ON public.run_waits USING btree (item_id) WHERE ((item_id IS NOT NULL) AND is_open);
CREATE INDEX ix_inbox_queue ON public.run_waits USING btree (queue, item_id) WHERE ((item_id IS NOT NULL) AND is_open);
CREATE INDEX ix_inbox_tenant ON public.run_waits USING btree (tenant_id, item_id) WHERE ((item_id IS NOT NULL) AND is_open);
CREATE INDEX ix_links_execution ON public.workflow_resource_links USING btree (workflow_execution_id, created_at);
CREATE INDEX ix_waits_execution ON public.run_waits USING btree (workflow_execution_id, node_id);
CREATE UNIQUE INDEX ux_executions_request ON public.workflow_executions USING btree (tenant_id, workflow_request_id);
CREATE UNIQUE INDEX ux_inbox_item ON public.run_waits USING btree (item_id) WHERE (item_id IS NOT NULL);
CREATE UNIQUE INDEX ux_workflows_id ON public.workflows USING btree (id) WHERE (deleted_at IS NULL);
