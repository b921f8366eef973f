-- The audit trail: who changed what. Rows are only added, and removed by age.
CREATE TABLE audit_log (
  id              BLOB    NOT NULL PRIMARY KEY,
  ts              INTEGER NOT NULL,
  tenant_id       TEXT    NOT NULL,
  who             TEXT NOT NULL,
  credential      TEXT NOT NULL,
  address         TEXT,
  action          TEXT NOT NULL,
  target          TEXT NOT NULL,
  outcome         TEXT NOT NULL,
  detail          TEXT,
  checksum_before TEXT,
  checksum_after  TEXT
) WITHOUT ROWID;
CREATE INDEX ix_audit_tenant ON audit_log (tenant_id, id) WHERE tenant_id <> '';
