-- The SQL interface: the stored procedures of the spec (§3.9), for applications in any language. docs/sql.md says how
-- they are used.
--
-- What must stay true:
-- * A start is part of the caller's transaction. NOTIFY is delivered with its commit and is a hint only.
-- * The rules are those of `decide.rs`: one run for each (tenant, requestId); only who holds a lease advances a run;
--   a terminal status is final.
-- * `sp_` functions run with the rights of their owner, so a caller needs no right to a table. They look for names in
--   the system's schema and in ours, nowhere else; no text of a caller ever becomes SQL.
-- * A transaction keeps a run locked only once it has changed it: others are kept waiting by what was done, never by a
--   question.
-- * Whatever is called is called with the very types that it takes, so that nobody can put a better fit in front of it.
-- * Texts are compared by their bytes: `COLLATE "C"` is said wherever a caller's collation could come in.

-- Microseconds since 1970, by this server's clock.
CREATE FUNCTION fermata_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT (date_part('epoch', clock_timestamp()) * 1000000::double precision)::bigint
$$;

-- A random UUID whose first 48 bits become the time in milliseconds, and whose version becomes 7.
CREATE FUNCTION fermata_uuid_v7() RETURNS uuid LANGUAGE sql VOLATILE AS $$
  SELECT encode(pg_catalog.set_bit(pg_catalog.set_bit(overlay(uuid_send(gen_random_uuid())
    PLACING substring(int8send(fermata_now() / 1000) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;

-- The id under which a recorded attempt is known outside. Here attempts are known by (run, node, attempt), so it is
-- made of these: a UUID of version 8, always the same.
CREATE FUNCTION fermata_attempt_id(p_run uuid, p_node text, p_attempt integer) RETURNS uuid LANGUAGE sql STABLE AS $$
  SELECT encode(set_byte(set_byte(digest, 6, (get_byte(digest, 6) & 15) | 128), 8, (get_byte(digest, 8) & 63) | 128),
    'hex')::uuid
  FROM (SELECT substring(sha256(uuid_send(p_run) || int4send(p_attempt) || pg_catalog.convert_to(p_node, 'UTF8'))
    FROM 1 FOR 16) AS digest) made
$$;

-- Refuses what the API refuses as a name, too.
CREATE FUNCTION fermata_check_name(p_field text, p_text text, p_most integer) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF p_text IS NULL OR octet_length(p_text) NOT BETWEEN 1 AND p_most
    OR p_text COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' THEN
    RAISE EXCEPTION 'WFENG005 VALIDATION_ERROR: % must have 1 to % bytes and no control characters', p_field, p_most
      USING ERRCODE = 'WF005';
  END IF;
END $$;

-- The runner that this session is, if it holds leases. The setting ends with the session or with DISCARD ALL; it could
-- be set to anything, so the row must be one that this very session made.
CREATE FUNCTION fermata_session_runner() RETURNS uuid LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_setting text := current_setting('fermata.runner', true);
BEGIN
  IF v_setting COLLATE "C" ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN
    RETURN (SELECT id FROM runners WHERE id = v_setting::uuid AND role = 'sql' AND pid = pg_backend_pid());
  END IF;
  RETURN NULL;
END $$;

-- Makes this session a runner, or says that it lives: for ten minutes from now nobody takes it for dead.
CREATE FUNCTION fermata_session_lives() RETURNS uuid LANGUAGE plpgsql VOLATILE AS $$
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

-- A hint to all runners that there is work. All of a transaction are the same text, which PostgreSQL sends once.
CREATE FUNCTION fermata_hint() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF current_setting('fermata.notify', true) IS DISTINCT FROM 'off' THEN
    PERFORM pg_notify('fermata_news', 'sql d0');
  END IF;
END $$;

-- Refuses to write in a database that is part of a transfer, as `serve` refuses to open it. A transfer marks the database
-- before it locks the tables: it waits for us, or we see its mark the second time.
CREATE FUNCTION fermata_check_served() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
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

CREATE FUNCTION sp_start_workflow_execution(
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

CREATE FUNCTION sp_try_acquire_execution(p_execution_id uuid) RETURNS boolean
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

-- Says why this session may not do what it wishes to a run.
CREATE FUNCTION fermata_refuse(p_execution_id uuid, p_status text, p_wish text) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RAISE EXCEPTION 'WFENG002 ILLEGAL_STATE_TRANSITION: execution % is % and cannot %: %', p_execution_id, p_status,
    p_wish, CASE p_status COLLATE "C" WHEN 'Running' THEN 'this session does not hold it'
      WHEN 'Pending' THEN 'nobody has acquired it' ELSE 'it is over' END
    USING ERRCODE = 'WF002', HINT = CASE WHEN p_status COLLATE "C" IN ('Running', 'Pending')
      THEN 'A session holds what it got with sp_try_acquire_execution, for ten minutes after its last call.'
      ELSE 'An end is final.' END;
END $$;

-- Says where a run stands and whether this session holds it, and locks it if so; refuses a run that is not there.
CREATE FUNCTION fermata_lock_run(p_execution_id uuid, OUT status text, OUT is_ours boolean)
LANGUAGE plpgsql VOLATILE AS $$
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

CREATE FUNCTION sp_complete_workflow(p_execution_id uuid, p_status text, p_context_snapshot jsonb DEFAULT NULL)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
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

CREATE FUNCTION sp_record_action_attempt(
  p_execution_id uuid,
  p_node_id text,
  p_action_type text,
  p_status text,
  p_attempt integer DEFAULT 1,
  p_retry_count integer DEFAULT NULL,
  p_params jsonb DEFAULT NULL,
  p_outputs jsonb DEFAULT NULL,
  p_error jsonb DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
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

CREATE FUNCTION sp_link_external_resource(
  p_execution_id uuid,
  p_action_execution_id uuid,
  p_system text,
  p_type text,
  p_resource_id text,
  p_external_url text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
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

CREATE FUNCTION sp_check_resource_exists(p_system text, p_type text, p_resource_id text)
RETURNS TABLE ("exists" boolean, execution_id uuid) LANGUAGE sql STABLE SECURITY DEFINER AS $$
  SELECT l.workflow_execution_id IS NOT NULL, l.workflow_execution_id
  FROM (SELECT 1) one LEFT JOIN workflow_resource_links l ON l.system_name = p_system COLLATE "C"
    AND l.resource_type = p_type COLLATE "C" AND l.resource_id = p_resource_id COLLATE "C"
$$;

-- Names are found in the system's schema first, then in the one that the tables are made in, and among a session's
-- temporary tables last: there a caller may make what it likes. Rows are found by indexes, also with a plan that was
-- made when a table was small. Everybody may call a new function unless told otherwise.
DO $$
DECLARE
  v_function record;
BEGIN
  FOR v_function IN SELECT p.oid::regprocedure AS name, p.prosecdef
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = current_schema() AND p.proname IN ('fermata_now', 'fermata_uuid_v7', 'fermata_attempt_id',
      'fermata_check_name', 'fermata_session_runner', 'fermata_session_lives', 'fermata_hint',
      'fermata_check_served', 'fermata_version_to_start', 'fermata_requested', 'fermata_refuse', 'fermata_lock_run',
      'sp_start_workflow_execution', 'sp_try_acquire_execution', 'sp_complete_workflow', 'sp_record_action_attempt',
      'sp_link_external_resource', 'sp_check_resource_exists')
  LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', v_function.name);
    IF v_function.prosecdef THEN
      EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', v_function.name, current_schema());
      EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', v_function.name);
    END IF;
  END LOOP;
END $$;
