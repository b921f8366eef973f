-- API keys. Only the hash of a key is stored.
CREATE TABLE api_keys (
  id         BLOB    NOT NULL PRIMARY KEY,
  name       TEXT    NOT NULL,
  tenant_id  TEXT    NOT NULL,
  scopes     TEXT    NOT NULL,
  hash       TEXT    NOT NULL,
  created_at INTEGER NOT NULL,
  created_by TEXT    NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER
) WITHOUT ROWID;
CREATE INDEX ix_api_keys_tenant ON api_keys (tenant_id, id);
