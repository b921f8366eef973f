-- How many HTTP steps the tenants with a monthly limit started. The row of month 0 is a lock for the places of a tenant.
CREATE TABLE tenant_usage (
  tenant_id text COLLATE "C" NOT NULL,
  month     integer NOT NULL,
  steps     bigint  NOT NULL,
  PRIMARY KEY (tenant_id, month)
) WITH (fillfactor = 50);

-- The HTTP steps that execute now, of tenants with a limit on them. Rows of runners that are dead do not count.
CREATE TABLE fermata_http_places (
  tenant_id             text COLLATE "C" NOT NULL,
  workflow_execution_id uuid NOT NULL,
  node_id               text COLLATE "C" NOT NULL,
  runner_id             uuid NOT NULL,
  PRIMARY KEY (tenant_id, workflow_execution_id, node_id)
);
