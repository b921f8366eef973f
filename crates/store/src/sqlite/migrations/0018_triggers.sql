-- What starts runs: triggers, the deliveries of their occurrences, and published events.
CREATE TABLE workflow_triggers (
  id                   BLOB    NOT NULL PRIMARY KEY,
  workflow_uid         BLOB    NOT NULL,
  workflow_id          TEXT    NOT NULL,
  tenant_id            TEXT    NOT NULL,
  trigger_type         TEXT    NOT NULL CHECK (trigger_type IN ('Webhook', 'Schedule', 'Event', 'Manual')),
  name                 TEXT,
  is_enabled           INTEGER NOT NULL,
  disabled_by_archive  INTEGER NOT NULL,
  config_json          TEXT    NOT NULL,
  activation_condition TEXT,
  segment              BLOB,
  old_segment          BLOB,
  old_segment_until    INTEGER,
  event_type           TEXT,
  fired_until          INTEGER,
  next_fire_at         INTEGER,
  last_occurrence      TEXT,
  last_run_id          BLOB,
  last_at              INTEGER,
  created_at           INTEGER NOT NULL,
  updated_at           INTEGER NOT NULL
);
CREATE UNIQUE INDEX ux_triggers_name ON workflow_triggers (workflow_uid, name) WHERE name IS NOT NULL;
CREATE INDEX ix_triggers_workflow ON workflow_triggers (workflow_uid, id);
CREATE INDEX ix_triggers_tenant ON workflow_triggers (tenant_id, id);
CREATE UNIQUE INDEX ux_triggers_segment ON workflow_triggers (segment) WHERE segment IS NOT NULL;
CREATE UNIQUE INDEX ux_triggers_old_segment ON workflow_triggers (old_segment) WHERE old_segment IS NOT NULL;
CREATE INDEX ix_triggers_due ON workflow_triggers (next_fire_at) WHERE next_fire_at IS NOT NULL;
CREATE INDEX ix_triggers_event ON workflow_triggers (tenant_id, event_type) WHERE trigger_type = 'Event' AND is_enabled;

CREATE TABLE trigger_deliveries (
  trigger_id       BLOB    NOT NULL,
  occurrence       TEXT    NOT NULL,
  id               BLOB    NOT NULL,
  tenant_id        TEXT    NOT NULL,
  received_at      INTEGER NOT NULL,
  state            TEXT    NOT NULL,
  run_id           BLOB    NOT NULL,
  reason           TEXT,
  saw_json         TEXT,
  payload_json     TEXT,
  request_json     TEXT,
  after_occurrence TEXT,
  retry_at         INTEGER,
  PRIMARY KEY (trigger_id, occurrence)
);
CREATE UNIQUE INDEX ux_deliveries_id ON trigger_deliveries (id);
CREATE INDEX ix_deliveries_list ON trigger_deliveries (trigger_id, id);
CREATE INDEX ix_deliveries_retry ON trigger_deliveries (retry_at) WHERE retry_at IS NOT NULL;

CREATE TABLE trigger_events (
  tenant_id       TEXT    NOT NULL,
  source          TEXT    NOT NULL,
  event_id        TEXT    NOT NULL,
  event_type      TEXT    NOT NULL,
  received_at     INTEGER NOT NULL,
  is_matched      INTEGER NOT NULL,
  attributes_json TEXT    NOT NULL,
  data_json       TEXT    NOT NULL,
  PRIMARY KEY (tenant_id, source, event_id)
) WITHOUT ROWID;
CREATE INDEX ix_events_received ON trigger_events (received_at);
CREATE INDEX ix_events_unmatched ON trigger_events (received_at) WHERE NOT is_matched;

-- The request or the event that started a run.
ALTER TABLE workflow_executions ADD COLUMN request_json TEXT;
