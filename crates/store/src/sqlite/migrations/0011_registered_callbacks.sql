-- The addresses of services, by the id that documents name. An id belongs to the service that registered it.
CREATE TABLE registered_callbacks (
  id            TEXT    NOT NULL PRIMARY KEY,
  service_name  TEXT    NOT NULL,
  environment   TEXT    NOT NULL,
  base_url      TEXT    NOT NULL,
  path          TEXT    NOT NULL,
  registered_at INTEGER NOT NULL
) WITHOUT ROWID;
