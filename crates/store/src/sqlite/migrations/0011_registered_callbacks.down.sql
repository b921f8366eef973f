DROP TABLE registered_callbacks;
