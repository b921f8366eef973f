//! The statements of the hot path. Each handles a whole batch: its parameters are arrays with one element for each row.
//!
//! What must stay true:
//! * Every statement finds its rows by an index, whatever the planner assumes about a new table without statistics (see
//!   `address.rs`; a test checks the plans). If the planner assumes that a table is empty, it would scan the table first
//!   and then the arrays. So joins are written as subqueries with `LIMIT` or `OFFSET 0`, whose order it cannot change.
//! * Rows are found by key and updated by `ctid`: they are locked, so their `ctid` cannot change.
//! * Arrays are read in order, so sorted arrays are inserted in sorted order.

use tokio_postgres::{Client, Statement};

/// Defines the struct [`Statements`] with one field for each statement.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident: $sql:expr;)+) => {
        /// The prepared statements of a committer.
        pub(super) struct Statements {
            $($(#[$doc])* pub(super) $name: Statement,)+
        }

        impl Statements {
            pub(super) async fn prepare(client: &Client) -> Result<Statements, tokio_postgres::Error> {
                // On the heap: the futures of so many statements would take much of a thread's stack.
                let prepared = ALL.iter().map(|(_, sql)| client.prepare(sql));
                let mut prepared = futures::future::try_join_all(prepared).await?.into_iter();
                let mut next = || prepared.next().unwrap_or_else(|| unreachable!("one for each statement"));
                Ok(Statements { $($name: next(),)+ })
            }
        }

        /// Every statement with its name.
        pub(super) const ALL: &[(&str, &str)] = &[$((stringify!($name), $sql)),+];
    };
}

/// The text of a statement that is used elsewhere too.
pub(super) fn named(name: &str) -> &'static str {
    let found = ALL.iter().find(|(known, _)| *known == name);
    found.map_or_else(|| unreachable!("there is no statement `{name}`"), |(_, sql)| sql)
}

statements! {
    /// The lock blocks the deletion of these workflows until the batch is committed; the deletion then sees its runs. The
    /// lock is a write, so the commit waits for the standby even if the batch only finds that its runs already exist.
    /// `deleted_at` is not part of the condition: the planner could scan the index of names for that.
    lock_workflows: "SELECT uid, status, is_enabled, current_version, latest_version, deleted_at, paused_at FROM workflows
        WHERE uid = ANY($1) FOR KEY SHARE SKIP LOCKED";

    existing_workflows: "SELECT uid FROM workflows WHERE uid = ANY($1)";

    lock_runs: "SELECT id, status, lease_owner, lease_epoch, takeovers, wake_at, inbox_seq, inbox_seen, flow_json, flow_step,
        flow_held, waiting_key, rerun_root, paused_at
        FROM workflow_executions WHERE id = ANY($1) FOR NO KEY UPDATE SKIP LOCKED";

    /// The lock keeps the lease of these parents until the batch is committed. Children of one parent share it. A run that is
    /// repeated is not removed meanwhile.
    lock_parents: "SELECT id, status, lease_owner, lease_epoch, octet_length(trigger_payload_json) = 0 FROM workflow_executions
        WHERE id = ANY($1) FOR SHARE SKIP LOCKED";

    /// The rows of keys that are taken, so that they can be locked. Another batch may insert the same key: this waits for it.
    create_keys: "INSERT INTO flow_keys (key, held, most, version, counted) SELECT u.key, 0, 0, 0, 0 FROM unnest($1::text[]) AS u (key)
        ON CONFLICT DO NOTHING";

    /// Rows that another batch has locked are left out. The last columns are the status of the owner, and whether a start can
    /// be merged into it.
    lock_keys: "SELECT k.key, k.held, k.most, k.version, k.workflow_execution_id, k.begin_at, k.counted, k.expires_at,
          EXISTS (SELECT 1 FROM workflow_executions w WHERE w.waiting_key = k.key),
          (SELECT e.status FROM workflow_executions e WHERE e.id = k.workflow_execution_id),
          (SELECT e.status = 'Pending' AND e.lease_owner IS NULL AND e.flow_step = 'debounce' AND e.inbox_seq = e.inbox_seen
            FROM workflow_executions e WHERE e.id = k.workflow_execution_id)
        FROM flow_keys k WHERE k.key = ANY($1) FOR NO KEY UPDATE OF k SKIP LOCKED";

    /// Requests that were answered with the run of another one.
    merged_requests: "SELECT u.tenant, u.request, e.id, e.workflow_id, e.status, e.workflow_uid
        FROM unnest($1::text[], $2::text[]) AS u (tenant, request)
        CROSS JOIN LATERAL (SELECT workflow_execution_id AS run FROM merged_requests
          WHERE tenant_id = u.tenant AND workflow_request_id = u.request LIMIT 1) m
        CROSS JOIN LATERAL (SELECT id, workflow_id, status, workflow_uid FROM workflow_executions
          WHERE id = m.run LIMIT 1) e";

    keep_requests: "INSERT INTO merged_requests (tenant_id, workflow_request_id, workflow_execution_id, created_at)
        SELECT * FROM unnest($1::text[], $2::text[], $3::uuid[], $4::bigint[]) ON CONFLICT DO NOTHING";

    /// Returns the runs that took the payload. A run that began meanwhile does not; then the member is tried again. Without a
    /// trigger, the payload is that of the run `source`; only starts have a requestId.
    merge_runs: "WITH merged AS (UPDATE workflow_executions e SET trigger_payload_json = f.trigger, spec_json = f.spec,
            request_json = f.request, wake_at = f.wake_at
          FROM (SELECT u.wake_at, r.place, s.trigger, s.spec, s.request
            FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::bigint[], $9::text[])
              AS u (run, trigger, spec, source, wake_at, request)
            CROSS JOIN LATERAL (SELECT ctid AS place FROM workflow_executions WHERE id = u.run AND status = 'Pending'
              AND lease_owner IS NULL AND flow_step = 'debounce' AND inbox_seq = inbox_seen
              LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) r
            CROSS JOIN LATERAL (SELECT u.trigger, u.spec, u.request WHERE u.source IS NULL UNION ALL
              SELECT trigger_payload_json, spec_json, request_json FROM workflow_executions WHERE id = u.source) s OFFSET 0) f
          WHERE e.ctid = f.place RETURNING e.id),
        kept AS (INSERT INTO merged_requests (tenant_id, workflow_request_id, workflow_execution_id, created_at)
          SELECT k.tenant, k.request, k.run, k.at
          FROM unnest($6::text[], $7::text[], $1::uuid[], $8::bigint[]) AS k (tenant, request, run, at)
          WHERE k.tenant IS NOT NULL AND k.run = ANY(ARRAY(SELECT id FROM merged)) ON CONFLICT DO NOTHING)
        SELECT id FROM merged";

    /// Adds the places that runs of this batch take, if the runs are stored, and sets the limits.
    take_places: "UPDATE flow_keys k SET held = k.held + f.taken, most = f.most, version = f.version
        FROM (SELECT u.taken, u.most, u.version, t.place
          FROM (SELECT r.key, max(r.most) AS most, max(r.version) AS version,
              count((SELECT e.id FROM workflow_executions e WHERE e.id = r.run))::integer AS taken
            FROM unnest($1::text[], $2::uuid[], $3::integer[], $4::integer[]) AS r (key, run, most, version)
            GROUP BY r.key) u
          CROSS JOIN LATERAL (SELECT ctid AS place FROM flow_keys WHERE key = u.key LIMIT 1) t OFFSET 0) f
        WHERE k.ctid = f.place";

    /// Sets owners of keys, if their runs are stored, and windows of rates.
    put_keys: "UPDATE flow_keys k SET workflow_execution_id = f.run, begin_at = f.begin_at, counted = f.counted,
          expires_at = f.expires_at
        FROM (SELECT u.begin_at, u.counted, u.expires_at, t.place,
            (SELECT e.id FROM workflow_executions e WHERE e.id = u.run) AS run
          FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::integer[], $5::bigint[])
            AS u (key, run, begin_at, counted, expires_at)
          CROSS JOIN LATERAL (SELECT ctid AS place FROM flow_keys WHERE key = u.key LIMIT 1) t OFFSET 0) f
        WHERE k.ctid = f.place";

    /// Frees places of keys, and gives free places to the runs that wait first. Runs that another transaction has locked are
    /// left out; the sweep finds them. Returns the keys of places that were given.
    hand_over: "WITH freed AS MATERIALIZED (SELECT u.key, k.place, GREATEST(k.held - u.freed, 0) AS held, k.most
          FROM unnest($1::text[], $2::integer[]) AS u (key, freed)
          CROSS JOIN LATERAL (SELECT ctid AS place, held, most FROM flow_keys WHERE key = u.key LIMIT 1) k),
        chosen AS MATERIALIZED (SELECT f.key, w.place FROM freed f CROSS JOIN LATERAL (
          SELECT ctid AS place FROM workflow_executions WHERE waiting_key = f.key
          ORDER BY waiting_key, COALESCE(priority, 0) DESC, id
          LIMIT LEAST(GREATEST(f.most - f.held, 0), 100) FOR NO KEY UPDATE SKIP LOCKED) w),
        handed AS (UPDATE workflow_executions e SET waiting_key = NULL, flow_held = e.flow_held + 1,
            wake_at = LEAST(COALESCE(e.wake_at, $3), $3)
          FROM chosen c WHERE e.ctid = c.place RETURNING c.key),
        counted AS (UPDATE flow_keys k SET held = f.held + (SELECT count(*) FROM handed h WHERE h.key = f.key)::integer
          FROM freed f WHERE k.ctid = f.place)
        SELECT key FROM handed";

    /// Deletes rows of keys that are free.
    drop_keys: "DELETE FROM flow_keys WHERE ctid = ANY(ARRAY(SELECT t.place FROM unnest($1::text[]) AS u (key)
        CROSS JOIN LATERAL (SELECT ctid AS place FROM flow_keys WHERE key = u.key AND held = 0
          AND workflow_execution_id IS NULL AND expires_at IS NULL LIMIT 1) t))";

    existing_runs: "SELECT id FROM workflow_executions WHERE id = ANY($1)";

    requests: "SELECT u.tenant, u.request, e.id, e.workflow_id, e.status, e.workflow_uid
        FROM unnest($1::text[], $2::text[]) AS u (tenant, request)
        CROSS JOIN LATERAL (SELECT id, workflow_id, status, workflow_uid FROM workflow_executions
          WHERE tenant_id = u.tenant AND workflow_request_id = u.request LIMIT 1) e";

    last_seqs: "SELECT u.run, (SELECT v.seq FROM execution_events v WHERE v.workflow_execution_id = u.run
        ORDER BY v.seq DESC LIMIT 1) FROM unnest($1::uuid[]) AS u (run)";

    /// The last column is the first run of the owner's chain of reruns.
    link_owners: "SELECT u.system, u.type, u.id, l.run, COALESCE((SELECT e.rerun_root FROM workflow_executions e WHERE e.id = l.run), l.run)
        FROM unnest($1::text[], $2::text[], $3::text[]) AS u (system, type, id)
        CROSS JOIN LATERAL (SELECT workflow_execution_id AS run FROM workflow_resource_links
          WHERE system_name = u.system AND resource_type = u.type AND resource_id = u.id LIMIT 1) l";

    unseen_answers: "SELECT u.run, u.node FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS u (run, node, seen)
        WHERE (SELECT true FROM run_waits w
          WHERE w.workflow_execution_id = u.run AND w.node_id = u.node AND w.answer_seq > u.seen LIMIT 1)";

    unread_ends: "SELECT u.run FROM unnest($1::uuid[]) AS u (run)
        WHERE (SELECT true FROM run_inbox i WHERE i.workflow_execution_id = u.run
          AND i.letter = '{\"kind\":\"childrenEnded\"}' LIMIT 1)";

    /// Ended children whose ends their parent has seen.
    see_children: "UPDATE workflow_executions SET parent_waits = false WHERE id = ANY($1) AND parent_waits";

    /// All ended children of runs that are over.
    forget_ended: "UPDATE workflow_executions SET parent_waits = false
        WHERE ctid = ANY(ARRAY(SELECT c.place FROM unnest($1::uuid[]) AS u (parent)
          CROSS JOIN LATERAL (SELECT ctid AS place FROM workflow_executions
            WHERE parent_execution_id = u.parent AND parent_waits AND end_time IS NOT NULL OFFSET 0) c))";

    /// The lock orders answers against claims and heartbeats of workers, which do not lock the run.
    open_tokens: "SELECT token, is_open, deadline, lease_id, lease_until, tenant_id FROM run_waits
        WHERE token = ANY($1) AND is_open FOR NO KEY UPDATE";

    /// Returns the ids of the inserted runs: another batch may have stored the same request first. The arrays after the
    /// workflow's uid are empty if no run of the batch has a parent, a traceparent, flow control, a request or a rerun; then these
    /// columns are NULL.
    insert_runs: "INSERT INTO workflow_executions
        (id, status, lease_owner, lease_epoch, wake_at, workflow_id, workflow_version, tenant_id, workflow_request_id,
         priority, correlation_id, parent_execution_id, requester_user_id, requester_email, requester_display_name,
         created_at, start_time, trigger_payload_json, spec_json, workflow_uid, parent_node_id, parent_attempt, parent_item,
         parent_waits, depth, lineage, traceparent, flow_json, flow_step, flow_held, waiting_key, request_json, rerun_of,
         rerun_root, rerun_json)
        SELECT id, status, owner, CASE WHEN owner IS NULL THEN 0 ELSE 1 END,
          CASE WHEN flow_step IS NULL THEN created_at ELSE wake_at END, workflow, version, tenant,
          request, priority, correlation, parent, user_id, email, display_name, created_at, started_at, trigger, spec,
          workflow_uid, parent_node, parent_attempt, parent_item, parent_waits, depth, lineage, traceparent, flow, flow_step,
          flow_held, waiting_key, started_by, rerun_of, rerun_root, rerun
        FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::integer[], $6::text[], $7::text[],
          $8::integer[], $9::text[], $10::uuid[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::bigint[],
          $16::text[], $17::text[], $18::uuid[], $19::text[], $20::integer[], $21::integer[], $22::boolean[],
          $23::integer[], $24::text[], $25::text[], $26::text[], $27::text[], $28::integer[], $29::text[], $30::bigint[],
          $31::text[], $32::uuid[], $33::uuid[], $34::text[])
        AS u (id, status, owner, workflow, version, tenant, request, priority, correlation, parent, user_id, email,
          display_name, created_at, started_at, trigger, spec, workflow_uid, parent_node, parent_attempt, parent_item,
          parent_waits, depth, lineage, traceparent, flow, flow_step, flow_held, waiting_key, wake_at, started_by,
          rerun_of, rerun_root, rerun)
        ON CONFLICT DO NOTHING RETURNING id";

    /// The attempts that new runs keep of the runs that they repeat.
    copy_attempts: "INSERT INTO action_executions
        (workflow_execution_id, node_id, attempt, action_type, status, parameters_json, outputs_json, error_json,
         start_time, end_time, reused_from)
        SELECT u.run, a.node_id, a.attempt, a.action_type, a.status, a.parameters_json, a.outputs_json, a.error_json,
          a.start_time, a.end_time, COALESCE(a.reused_from, u.source)
        FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS u (run, source, node)
        CROSS JOIN LATERAL (SELECT * FROM action_executions
          WHERE workflow_execution_id = u.source AND node_id = u.node OFFSET 0) a
        WHERE (SELECT true FROM workflow_executions e WHERE e.id = u.run)
        ON CONFLICT DO NOTHING";

    /// Deliveries of new runs. An earlier one of the occurrence, which started nothing, is replaced. All batches insert them in
    /// the same order.
    insert_deliveries: "INSERT INTO trigger_deliveries AS d
        (id, trigger_id, occurrence, tenant_id, received_at, state, run_id, payload_json, request_json)
        SELECT u.id, u.trigger, u.occurrence, u.tenant, u.ts, 'started', u.run, u.payload, u.request
        FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bigint[], $6::uuid[], $7::text[], $8::text[])
          AS u (id, trigger, occurrence, tenant, ts, run, payload, request)
        WHERE (SELECT true FROM workflow_executions e WHERE e.id = u.run)
        ON CONFLICT (trigger_id, occurrence) DO UPDATE SET id = excluded.id, state = 'started', run_id = excluded.run_id, reason = NULL,
          saw_json = NULL, payload_json = excluded.payload_json, request_json = excluded.request_json, retry_at = NULL
          WHERE d.state <> 'started'";

    /// Searchable fields of new runs.
    insert_fields: "INSERT INTO run_fields (workflow_execution_id, field, value, tenant_id)
        SELECT u.run, u.field, u.value, u.tenant
        FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) AS u (run, field, value, tenant)
        WHERE (SELECT true FROM workflow_executions e WHERE e.id = u.run)
        ON CONFLICT DO NOTHING";

    insert_first_events: "INSERT INTO execution_events (workflow_execution_id, seq, ts, data)
        SELECT u.run, u.seq, u.ts, u.data
        FROM unnest($1::uuid[], $2::integer[], $3::bigint[], $4::text[]) AS u (run, seq, ts, data)
        WHERE (SELECT true FROM workflow_executions e WHERE e.id = u.run)
        ON CONFLICT DO NOTHING";

    insert_first_waits: "INSERT INTO run_waits (token, workflow_execution_id, node_id, is_open, attempt)
        SELECT u.token, u.run, u.node, u.open, u.attempt
        FROM unnest($1::text[], $2::uuid[], $3::text[], $4::boolean[], $5::integer[]) AS u (token, run, node, open, attempt)
        WHERE (SELECT true FROM workflow_executions e WHERE e.id = u.run)
        ON CONFLICT DO NOTHING";

    insert_events: "INSERT INTO execution_events (workflow_execution_id, seq, ts, data)
        SELECT * FROM unnest($1::uuid[], $2::integer[], $3::bigint[], $4::text[])";

    /// The first record of an attempt is kept.
    insert_attempts: "INSERT INTO action_executions
        (workflow_execution_id, node_id, attempt, action_type, status, parameters_json, outputs_json, error_json,
         start_time, end_time)
        SELECT * FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::text[],
          $8::text[], $9::bigint[], $10::bigint[])
        ON CONFLICT DO NOTHING";

    /// Fails if another batch linked one of the resources meanwhile; then the batch is read and decided again.
    insert_links: "INSERT INTO workflow_resource_links
        (workflow_execution_id, system_name, resource_type, resource_id, node_id, attempt, external_url, created_at)
        SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::text[],
          $8::bigint[])";

    close_waits: "UPDATE run_waits SET is_open = false
        WHERE ctid = ANY(ARRAY(SELECT w.place FROM unnest($1::uuid[], $2::text[]) AS u (run, node)
          CROSS JOIN LATERAL (SELECT ctid AS place FROM run_waits
            WHERE workflow_execution_id = u.run AND node_id = u.node AND is_open OFFSET 0) w))";

    close_all_waits: "UPDATE run_waits SET is_open = false
        WHERE ctid = ANY(ARRAY(SELECT w.place FROM unnest($1::uuid[]) AS u (run)
          CROSS JOIN LATERAL (SELECT ctid AS place FROM run_waits
            WHERE workflow_execution_id = u.run AND is_open OFFSET 0) w))";

    open_waits: "INSERT INTO run_waits (token, workflow_execution_id, node_id, is_open, attempt)
        SELECT * FROM unnest($1::text[], $2::uuid[], $3::text[], $4::boolean[], $5::integer[])
        ON CONFLICT DO NOTHING";

    limit_waits: "UPDATE run_waits w SET deadline = f.deadline
        FROM (SELECT u.deadline, t.place
          FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS u (run, node, deadline)
          CROSS JOIN LATERAL (SELECT ctid AS place FROM run_waits
            WHERE workflow_execution_id = u.run AND node_id = u.node AND is_open OFFSET 0) t OFFSET 0) f
        WHERE w.ctid = f.place";

    /// `lease_until` 0: no worker has claimed it.
    offer_waits: "UPDATE run_waits w SET item_id = f.item, queue = f.queue, tenant_id = f.tenant,
          workflow_id = f.workflow, kind = f.kind, item_json = f.details, created_at = f.ts, lease_until = 0
        FROM (SELECT u.item, u.queue, u.tenant, u.workflow, u.kind, u.details, u.ts, t.place
          FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::text[],
            $9::text[], $10::bigint[]) AS u (run, node, attempt, item, queue, tenant, workflow, kind, details, ts)
          CROSS JOIN LATERAL (SELECT ctid AS place FROM run_waits
            WHERE workflow_execution_id = u.run AND node_id = u.node AND attempt = u.attempt AND is_open
              AND item_id IS NULL OFFSET 0) t OFFSET 0) f
        WHERE w.ctid = f.place";

    answer_waits: "UPDATE run_waits w SET is_open = false, payload_json = f.payload, answer_seq = f.seq,
          answered_by = f.by, answered_at = f.ts
        FROM (SELECT u.payload, u.seq, u.by, u.ts, t.place
          FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[]) AS u (token, payload, seq, by, ts)
          CROSS JOIN LATERAL (SELECT ctid AS place FROM run_waits WHERE token = u.token LIMIT 1) t OFFSET 0) f
        WHERE w.ctid = f.place";

    insert_messages: "INSERT INTO run_inbox (workflow_execution_id, seq, ts, letter)
        SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[])";

    drop_messages: "DELETE FROM run_inbox WHERE ctid = ANY(ARRAY(SELECT i.place FROM unnest($1::uuid[], $2::bigint[]) AS u (run, seen)
        CROSS JOIN LATERAL (SELECT ctid AS place FROM run_inbox
          WHERE workflow_execution_id = u.run AND seq <= u.seen OFFSET 0) i))";

    /// The cached state of a run.
    set_states: "INSERT INTO run_states (workflow_execution_id, state_json)
        SELECT * FROM unnest($1::uuid[], $2::text[])
        ON CONFLICT (workflow_execution_id) DO UPDATE SET state_json = excluded.state_json";

    remove_states: "DELETE FROM run_states WHERE workflow_execution_id = ANY($1)";

    insert_dead_letters: "INSERT INTO dead_letters
        (id, enqueued_at, reason, workflow_execution_id, workflow_id, workflow_version, tenant_id, attempts, last_error,
         payload_json, workflow_uid)
        SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::uuid[], $5::text[], $6::integer[], $7::text[],
          $8::integer[], $9::text[], $10::text[], $11::uuid[])";

    /// NULL fields of a status change keep the old value. The other columns get the value that the batch decided.
    /// Comes last, so its locks are held for the commit only. All batches lock the counters in the same order.
    count_usage: "INSERT INTO tenant_usage AS u (tenant_id, month, steps)
        SELECT * FROM unnest($1::text[], $2::integer[], $3::bigint[])
        ON CONFLICT (tenant_id, month) DO UPDATE SET steps = u.steps + excluded.steps";

    set_paused: "UPDATE workflow_executions e SET paused_at = f.paused_at
        FROM (SELECT u.paused_at, r.place FROM unnest($1::uuid[], $2::bigint[]) AS u (id, paused_at)
          CROSS JOIN LATERAL (SELECT ctid AS place FROM workflow_executions WHERE id = u.id LIMIT 1) r OFFSET 0) f
        WHERE e.ctid = f.place";

    update_runs: "UPDATE workflow_executions e SET status = COALESCE(f.status, e.status),
          start_time = COALESCE(f.start_time, e.start_time), end_time = COALESCE(f.end_time, e.end_time),
          reason = COALESCE(f.reason, e.reason), error_json = COALESCE(f.error, e.error_json),
          outputs_json = COALESCE(f.outputs, e.outputs_json),
          context_snapshot_json = COALESCE(f.snapshot, e.context_snapshot_json),
          lease_owner = CASE WHEN f.released THEN NULL ELSE e.lease_owner END, wake_at = f.wake_at,
          inbox_seq = f.inbox_seq, inbox_seen = f.inbox_seen, takeovers = f.takeovers, flow_json = f.flow,
          flow_step = f.flow_step, flow_held = f.flow_held, waiting_key = f.waiting_key
        FROM (SELECT u.*, r.place
          FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[],
            $8::text[], $9::boolean[], $10::bigint[], $11::bigint[], $12::bigint[], $13::integer[], $14::text[], $15::text[],
            $16::integer[], $17::text[])
          AS u (id, status, start_time, end_time, reason, error, outputs, snapshot, released, wake_at, inbox_seq,
            inbox_seen, takeovers, flow, flow_step, flow_held, waiting_key)
          CROSS JOIN LATERAL (SELECT ctid AS place FROM workflow_executions WHERE id = u.id LIMIT 1) r OFFSET 0) f
        WHERE e.ctid = f.place";
}
