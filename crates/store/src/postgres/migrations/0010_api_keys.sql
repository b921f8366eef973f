-- API keys. Only the hash of a key is stored.
CREATE TABLE api_keys (
  id         uuid PRIMARY KEY,
  name       text   NOT NULL,
  tenant_id  text   COLLATE "C" NOT NULL,
  scopes     text   NOT NULL,
  hash       text   NOT NULL,
  created_at bigint NOT NULL,
  created_by text   NOT NULL,
  expires_at bigint,
  revoked_at bigint
);
CREATE INDEX ix_api_keys_tenant ON api_keys (tenant_id, id);
