-- What starts runs: triggers, the deliveries of their occurrences, and published events.
CREATE TABLE workflow_triggers (
  id                   uuid    NOT NULL PRIMARY KEY,
  workflow_uid         uuid    NOT NULL,
  workflow_id          text COLLATE "C" NOT NULL,
  tenant_id            text COLLATE "C" NOT NULL,
  trigger_type         text COLLATE "C" NOT NULL CHECK (trigger_type IN ('Webhook', 'Schedule', 'Event', 'Manual')),
  name                 text COLLATE "C",
  is_enabled           boolean NOT NULL,
  disabled_by_archive  boolean NOT NULL,
  config_json          text    NOT NULL,
  activation_condition text,
  segment              uuid,
  old_segment          uuid,
  old_segment_until    bigint,
  event_type           text COLLATE "C",
  fired_until          bigint,
  next_fire_at         bigint,
  last_occurrence      text COLLATE "C",
  last_run_id          uuid,
  last_at              bigint,
  created_at           bigint  NOT NULL,
  updated_at           bigint  NOT NULL
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX ux_triggers_name ON workflow_triggers (workflow_uid, name) WHERE name IS NOT NULL;
CREATE INDEX ix_triggers_workflow ON workflow_triggers (workflow_uid, id);
CREATE INDEX ix_triggers_tenant ON workflow_triggers (tenant_id, id);
CREATE UNIQUE INDEX ux_triggers_segment ON workflow_triggers (segment) WHERE segment IS NOT NULL;
CREATE UNIQUE INDEX ux_triggers_old_segment ON workflow_triggers (old_segment) WHERE old_segment IS NOT NULL;
CREATE INDEX ix_triggers_due ON workflow_triggers (next_fire_at) WHERE next_fire_at IS NOT NULL;
CREATE INDEX ix_triggers_event ON workflow_triggers (tenant_id, event_type) WHERE trigger_type = 'Event' AND is_enabled;

CREATE TABLE trigger_deliveries (
  trigger_id       uuid   NOT NULL,
  occurrence       text COLLATE "C" NOT NULL,
  id               uuid   NOT NULL,
  tenant_id        text COLLATE "C" NOT NULL,
  received_at      bigint NOT NULL,
  state            text COLLATE "C" NOT NULL,
  run_id           uuid   NOT NULL,
  reason           text,
  saw_json         text,
  payload_json     text,
  request_json     text,
  after_occurrence text COLLATE "C",
  retry_at         bigint,
  PRIMARY KEY (trigger_id, occurrence)
);
CREATE UNIQUE INDEX ux_deliveries_id ON trigger_deliveries (id);
CREATE INDEX ix_deliveries_list ON trigger_deliveries (trigger_id, id);
CREATE INDEX ix_deliveries_retry ON trigger_deliveries (retry_at) WHERE retry_at IS NOT NULL;

CREATE TABLE trigger_events (
  tenant_id       text COLLATE "C" NOT NULL,
  source          text COLLATE "C" NOT NULL,
  event_id        text COLLATE "C" NOT NULL,
  event_type      text COLLATE "C" NOT NULL,
  received_at     bigint  NOT NULL,
  is_matched      boolean NOT NULL,
  attributes_json text    NOT NULL,
  data_json       text    NOT NULL,
  PRIMARY KEY (tenant_id, source, event_id)
);
CREATE INDEX ix_events_received ON trigger_events (received_at);
CREATE INDEX ix_events_unmatched ON trigger_events (received_at) WHERE NOT is_matched;

-- The request or the event that started a run.
ALTER TABLE workflow_executions ADD COLUMN request_json text;

-- Publishes an event in the transaction of the application. False if (tenant, source, id) was published within seven days.
CREATE FUNCTION sp_publish_event(
  p_type text,
  p_data jsonb,
  p_source text,
  p_event_id text DEFAULT NULL,
  p_subject text DEFAULT NULL,
  p_tenant_id text DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
DECLARE
  v_now bigint := fermata_now();
  v_tenant text := COALESCE(p_tenant_id, '');
  v_id text := COALESCE(p_event_id, fermata_uuid_v7()::text);
BEGIN
  PERFORM fermata_check_served();
  PERFORM fermata_check_name('p_type', p_type, 255);
  PERFORM fermata_check_name('p_source', p_source, 500);
  PERFORM fermata_check_name('p_event_id', v_id, 500);
  IF p_subject IS NOT NULL THEN PERFORM fermata_check_name('p_subject', p_subject, 500); END IF;
  IF octet_length(v_tenant) > 0 THEN PERFORM fermata_check_name('p_tenant_id', v_tenant, 255); END IF;
  INSERT INTO trigger_events AS e (tenant_id, source, event_id, event_type, received_at, is_matched, attributes_json, data_json)
  VALUES (v_tenant, p_source, v_id, p_type, v_now, false,
    jsonb_strip_nulls(jsonb_build_object('specversion', '1.0', 'id', v_id, 'source', p_source, 'type', p_type,
      'subject', p_subject, 'datacontenttype', 'application/json'))::text,
    COALESCE(p_data, 'null'::jsonb)::text)
  ON CONFLICT (tenant_id, source, event_id) DO UPDATE SET event_type = excluded.event_type,
    received_at = excluded.received_at, is_matched = false, attributes_json = excluded.attributes_json,
    data_json = excluded.data_json
    WHERE e.received_at <= v_now - 7 * 86400000000;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM fermata_hint();
  RETURN true;
END $$;

-- A new function can be called by everybody.
DO $$
DECLARE
  v_function record;
BEGIN
  FOR v_function IN SELECT p.oid::regprocedure AS name
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = current_schema() AND p.proname = 'sp_publish_event'
  LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', v_function.name);
    EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', v_function.name, current_schema());
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', v_function.name);
  END LOOP;
END $$;
