-- The rig's own eyes in the database: who changed which run when, and who held it then. Written in the transactions
-- that are looked at, so it shares their fate. Clients are told apart by their application_name.

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
  heard        bigint,
  revived      bigint
);

CREATE TABLE chaos.journal (
  n     bigserial PRIMARY KEY,
  who   text    NOT NULL,
  run   uuid    NOT NULL,
  seq   integer NOT NULL,
  owner uuid
);

-- When runners were last heard of, and when that was after a silence of more than a lease (LEASE_MICROS).
CREATE TABLE chaos.runners (
  id      uuid   PRIMARY KEY,
  who     text   NOT NULL,
  heard   bigint NOT NULL,
  revived bigint
);

CREATE FUNCTION chaos.note_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  heard chaos.runners%ROWTYPE;
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO chaos.changes (at, who, run, status, owner, old_epoch, epoch)
    VALUES ((extract(epoch FROM clock_timestamp()) * 1000000)::bigint, current_setting('application_name'), NEW.id,
      NEW.status, NEW.lease_owner, 0, NEW.lease_epoch);
    RETURN NULL;
  END IF;
  SELECT * INTO heard FROM chaos.runners WHERE id = OLD.lease_owner;
  INSERT INTO chaos.changes (at, who, run, old_status, status, old_owner, owner, old_epoch, epoch, heard, revived)
  VALUES ((extract(epoch FROM clock_timestamp()) * 1000000)::bigint, current_setting('application_name'), NEW.id,
    OLD.status, NEW.status, OLD.lease_owner, NEW.lease_owner, OLD.lease_epoch, NEW.lease_epoch, heard.heard,
    heard.revived);
  RETURN NULL;
END $$;

CREATE FUNCTION chaos.note_journal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO chaos.journal (who, run, seq, owner)
  SELECT current_setting('application_name'), NEW.workflow_execution_id, NEW.seq, e.lease_owner
  FROM workflow_executions e WHERE e.id = NEW.workflow_execution_id;
  RETURN NULL;
END $$;

CREATE FUNCTION chaos.note_runner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO chaos.runners AS r (id, who, heard)
  VALUES (NEW.id, current_setting('application_name'), NEW.heartbeat_at)
  ON CONFLICT (id) DO UPDATE SET heard = excluded.heard,
    revived = CASE WHEN excluded.heard - r.heard >= LEASE_MICROS THEN excluded.heard ELSE r.revived END;
  RETURN NULL;
END $$;

CREATE TRIGGER chaos_made AFTER INSERT ON workflow_executions FOR EACH ROW EXECUTE FUNCTION chaos.note_change();
CREATE TRIGGER chaos_changed AFTER UPDATE ON workflow_executions FOR EACH ROW
  WHEN ((OLD.status, OLD.lease_owner, OLD.lease_epoch) IS DISTINCT FROM (NEW.status, NEW.lease_owner, NEW.lease_epoch))
  EXECUTE FUNCTION chaos.note_change();
CREATE TRIGGER chaos_written AFTER INSERT ON execution_events FOR EACH ROW EXECUTE FUNCTION chaos.note_journal();
CREATE TRIGGER chaos_heard AFTER INSERT OR UPDATE ON runners FOR EACH ROW EXECUTE FUNCTION chaos.note_runner();
