DROP TABLE fermata_http_places;
DROP TABLE tenant_usage;
