-- Everything that accepts one answer is a wait; what people and workers see of it is the inbox. `item_id` is NULL for a wait
-- that is not in the inbox. `lease_until` is 0 while no worker has claimed the item; a claim is valid before that time, and
-- only under `lease_id`.
ALTER TABLE run_waits
  ADD COLUMN attempt integer NOT NULL DEFAULT 1,
  ADD COLUMN item_id uuid,
  ADD COLUMN queue text COLLATE "C",
  ADD COLUMN tenant_id text COLLATE "C",
  ADD COLUMN workflow_id text COLLATE "C",
  ADD COLUMN kind text,
  ADD COLUMN item_json text,
  ADD COLUMN created_at bigint,
  ADD COLUMN lease_id uuid,
  ADD COLUMN worker text,
  ADD COLUMN lease_until bigint,
  ADD COLUMN progress_json text,
  ADD COLUMN answered_by text,
  ADD COLUMN answered_at bigint;

-- All items; the items without an answer: all, of a tenant, of a queue; the items of a queue in the order of claims. A
-- plain wait is in none of them.
CREATE UNIQUE INDEX ux_inbox_item ON run_waits (item_id) WHERE item_id IS NOT NULL;
CREATE INDEX ix_inbox_pending ON run_waits (item_id) WHERE item_id IS NOT NULL AND is_open;
CREATE INDEX ix_inbox_tenant ON run_waits (tenant_id, item_id) WHERE item_id IS NOT NULL AND is_open;
CREATE INDEX ix_inbox_queue ON run_waits (queue, item_id) WHERE item_id IS NOT NULL AND is_open;
CREATE INDEX ix_inbox_claim ON run_waits (queue, lease_until, item_id) WHERE item_id IS NOT NULL AND is_open;
CREATE INDEX ix_inbox_claim_tenant ON run_waits (queue, tenant_id, lease_until, item_id)
  WHERE item_id IS NOT NULL AND is_open;
