DROP TABLE tenant_usage;
