-- The addresses of services, by the id that documents name. An id belongs to the service that registered it.
CREATE TABLE registered_callbacks (
  id            text COLLATE "C" PRIMARY KEY,
  service_name  text   NOT NULL,
  environment   text   NOT NULL,
  base_url      text   NOT NULL,
  path          text   NOT NULL,
  registered_at bigint NOT NULL
);
