-- What workflows need that are published when they are made, and soft-deleted.

-- A UUIDv7. Those that are there get one of the time when they were made.
ALTER TABLE workflows ADD COLUMN uid BLOB;
UPDATE workflows SET uid = unhex(
  printf('%012x', created_at / 1000) || '7' || substr(hex(randomblob(2)), 2)
  || substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(8)), 2));
CREATE UNIQUE INDEX ux_workflows_uid ON workflows (uid);

-- A workflow with this is there only for its runs; making one of its id again takes the row over.
ALTER TABLE workflows ADD COLUMN deleted_at INTEGER;
