-- How many HTTP steps the tenants with a monthly limit started.
CREATE TABLE tenant_usage (
  tenant_id TEXT    NOT NULL,
  month     INTEGER NOT NULL,
  steps     INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, month)
) WITHOUT ROWID;
