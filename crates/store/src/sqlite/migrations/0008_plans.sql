-- What published versions compiled to (§3.4), with all policies settled. Runs follow it, whatever the settings are by now.
-- A version of before has none until it is first used.
CREATE TABLE workflow_plans (
  workflow_uid BLOB    NOT NULL,
  version      INTEGER NOT NULL,
  workflow_id  TEXT    NOT NULL,
  plan_json    TEXT    NOT NULL,
  created_at   INTEGER NOT NULL,
  PRIMARY KEY (workflow_uid, version)
) WITHOUT ROWID;
