DROP TABLE bulk_items;
DROP TABLE bulk_jobs;
