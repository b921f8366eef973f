-- What published versions compiled to (§3.4), with all policies settled. Runs follow it, whatever the settings are by now.
-- A version of before has none until it is first used.
CREATE TABLE workflow_plans (
  workflow_uid uuid    NOT NULL,
  version      integer NOT NULL,
  workflow_id  text COLLATE "C" NOT NULL,
  plan_json    text    NOT NULL,
  created_at   bigint  NOT NULL,
  PRIMARY KEY (workflow_uid, version)
);
