-- Everything that accepts one answer is a wait; what people and workers see of it is the inbox. `item_id` is NULL for a wait
-- that is not in the inbox. `lease_until` is 0 while no worker has claimed the item; a claim is valid before that time, and
-- only under `lease_id`.
ALTER TABLE run_waits ADD COLUMN attempt INTEGER NOT NULL DEFAULT 1;
ALTER TABLE run_waits ADD COLUMN item_id BLOB;
ALTER TABLE run_waits ADD COLUMN queue TEXT;
ALTER TABLE run_waits ADD COLUMN tenant_id TEXT;
ALTER TABLE run_waits ADD COLUMN workflow_id TEXT;
ALTER TABLE run_waits ADD COLUMN kind TEXT;
ALTER TABLE run_waits ADD COLUMN item_json TEXT;
ALTER TABLE run_waits ADD COLUMN created_at INTEGER;
ALTER TABLE run_waits ADD COLUMN lease_id BLOB;
ALTER TABLE run_waits ADD COLUMN worker TEXT;
ALTER TABLE run_waits ADD COLUMN lease_until INTEGER;
ALTER TABLE run_waits ADD COLUMN progress_json TEXT;
ALTER TABLE run_waits ADD COLUMN answered_by TEXT;
ALTER TABLE run_waits ADD COLUMN answered_at INTEGER;

-- All items; the items without an answer: all, of a tenant, of a queue; the items of a queue in the order of claims. A
-- plain wait is in none of them.
CREATE UNIQUE INDEX ux_inbox_item ON run_waits (item_id) WHERE item_id IS NOT NULL;
CREATE INDEX ix_inbox_pending ON run_waits (item_id) WHERE item_id IS NOT NULL AND is_open;
CREATE INDEX ix_inbox_tenant ON run_waits (tenant_id, item_id) WHERE item_id IS NOT NULL AND is_open;
CREATE INDEX ix_inbox_queue ON run_waits (queue, item_id) WHERE item_id IS NOT NULL AND is_open;
CREATE INDEX ix_inbox_claim ON run_waits (queue, lease_until, item_id) WHERE item_id IS NOT NULL AND is_open;
CREATE INDEX ix_inbox_claim_tenant ON run_waits (queue, tenant_id, lease_until, item_id)
  WHERE item_id IS NOT NULL AND is_open;
