-- The audit trail: who changed what. Rows are only added, and removed by age.
CREATE TABLE audit_log (
  id              uuid    NOT NULL PRIMARY KEY,
  ts              bigint  NOT NULL,
  tenant_id       text    COLLATE "C" NOT NULL,
  who             text NOT NULL,
  credential      text NOT NULL,
  address         text,
  action          text NOT NULL,
  target          text NOT NULL,
  outcome         text NOT NULL,
  detail          text,
  checksum_before text,
  checksum_after  text
);
CREATE INDEX ix_audit_tenant ON audit_log (tenant_id, id) WHERE tenant_id <> '';
