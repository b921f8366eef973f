-- Audit tables and triggers: which process changed which run when, and which runner held it. The rows are part of the audited
-- transactions, so they are committed or rolled back with them. Processes are identified by their application_name.

CREATE SCHEMA chaos;

CREATE TABLE chaos.changes (
  n            bigserial PRIMARY KEY,
  at           bigint NOT NULL,
  who          text   NOT NULL,
  run          uuid   NOT NULL,
  old_status   text,
  status       text   NOT NULL,
  old_owner    uuid,
  owner        uuid,
  old_epoch    bigint NOT NULL,
  epoch        bigint NOT NULL,
  began        bigint NOT NULL
);

CREATE TABLE chaos.journal (
  n     bigserial PRIMARY KEY,
  at    bigint  NOT NULL,
  who   text    NOT NULL,
  run   uuid    NOT NULL,
  seq   integer NOT NULL,
  owner uuid,
  epoch bigint  NOT NULL
);

CREATE TABLE chaos.heartbeats (
  n      bigserial PRIMARY KEY,
  at     bigint NOT NULL,
  who    text   NOT NULL,
  runner uuid   NOT NULL,
  reported  bigint NOT NULL
);

CREATE TABLE chaos.leases (
  n         bigserial PRIMARY KEY,
  at        bigint  NOT NULL,
  item      uuid    NOT NULL,
  old_lease uuid,
  lease     uuid,
  old_until bigint  NOT NULL,
  until     bigint  NOT NULL,
  answered  boolean NOT NULL
);

CREATE FUNCTION chaos.micros(at timestamptz) RETURNS bigint LANGUAGE sql AS
  $$ SELECT (extract(epoch FROM at) * 1000000)::bigint $$;

CREATE FUNCTION chaos.note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO chaos.changes (at, who, run, old_status, status, old_owner, owner, old_epoch, epoch, began)
  VALUES (chaos.micros(clock_timestamp()), current_setting('application_name'), NEW.id, OLD.status, NEW.status,
    OLD.lease_owner, NEW.lease_owner, COALESCE(OLD.lease_epoch, 0), NEW.lease_epoch,
    chaos.micros(transaction_timestamp()));
  RETURN NULL;
END $$;

CREATE FUNCTION chaos.note_journal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO chaos.journal (at, who, run, seq, owner, epoch)
  SELECT chaos.micros(clock_timestamp()), current_setting('application_name'), NEW.workflow_execution_id, NEW.seq, e.lease_owner, e.lease_epoch
  FROM workflow_executions e WHERE e.id = NEW.workflow_execution_id;
  RETURN NULL;
END $$;

CREATE FUNCTION chaos.note_heartbeat() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO chaos.heartbeats (at, who, runner, reported)
  VALUES (chaos.micros(clock_timestamp()), current_setting('application_name'), NEW.id, NEW.heartbeat_at);
  RETURN NULL;
END $$;

CREATE FUNCTION chaos.note_lease() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO chaos.leases (at, item, old_lease, lease, old_until, until, answered)
  VALUES (chaos.micros(clock_timestamp()), NEW.item_id, OLD.lease_id, NEW.lease_id, COALESCE(OLD.lease_until, 0),
    COALESCE(NEW.lease_until, 0), OLD.payload_json IS DISTINCT FROM NEW.payload_json);
  RETURN NULL;
END $$;

CREATE TRIGGER chaos_leased AFTER UPDATE ON run_waits FOR EACH ROW
  WHEN (NEW.item_id IS NOT NULL
    AND (OLD.lease_id, OLD.payload_json) IS DISTINCT FROM (NEW.lease_id, NEW.payload_json))
  EXECUTE FUNCTION chaos.note_lease();
CREATE TRIGGER chaos_made AFTER INSERT ON workflow_executions FOR EACH ROW EXECUTE FUNCTION chaos.note_change();
CREATE TRIGGER chaos_changed AFTER UPDATE ON workflow_executions FOR EACH ROW
  WHEN ((OLD.status, OLD.lease_owner, OLD.lease_epoch) IS DISTINCT FROM (NEW.status, NEW.lease_owner, NEW.lease_epoch))
  EXECUTE FUNCTION chaos.note_change();
CREATE TRIGGER chaos_written AFTER INSERT ON execution_events FOR EACH ROW EXECUTE FUNCTION chaos.note_journal();
CREATE TRIGGER chaos_heard AFTER INSERT OR UPDATE ON runners FOR EACH ROW EXECUTE FUNCTION chaos.note_heartbeat();
