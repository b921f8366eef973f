//! The statements of the hot path, for whole batches: each takes arrays, a row an element of each.
//!
//! What must stay true: every statement finds its rows by an index, whatever the planner believes about a young table
//! (see `address.rs`; the plans are checked by a test). Arrays are read in their order, so what is sorted is inserted
//! sorted.

use tokio_postgres::{Client, Statement};

/// Prepared statements, by name.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident: $sql:expr;)+) => {
        /// All statements of a committer, prepared.
        pub(super) struct Statements {
            $($(#[$doc])* pub(super) $name: Statement,)+
        }

        impl Statements {
            pub(super) async fn prepare(client: &Client) -> Result<Statements, tokio_postgres::Error> {
                let ($($name,)+) = futures::try_join!($(client.prepare($sql)),+)?;
                Ok(Statements { $($name,)+ })
            }
        }

        /// Every statement with its name, for tests of their plans.
        #[cfg(test)]
        pub(super) const ALL: &[(&str, &str)] = &[$((stringify!($name), $sql)),+];
    };
}

statements! {
    /// Whoever deletes one of these has to wait, and sees the runs that are stored here.
    lock_workflows: "SELECT id, status, is_enabled, current_version, latest_version FROM workflows
        WHERE id = ANY($1) AND deleted_at IS NULL ORDER BY id FOR KEY SHARE";

    lock_runs: "SELECT id, status, lease_owner, lease_epoch, takeovers, wake_at, inbox_seq, inbox_seen
        FROM workflow_executions WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE";

    requests: "SELECT e.tenant_id, e.workflow_request_id, e.id, e.workflow_id, e.status
        FROM unnest($1::text[], $2::text[]) AS u (tenant, request)
        JOIN workflow_executions e ON e.tenant_id = u.tenant AND e.workflow_request_id = u.request";

    last_seqs: "SELECT u.run, (SELECT v.seq FROM execution_events v WHERE v.workflow_execution_id = u.run
        ORDER BY v.seq DESC LIMIT 1) FROM unnest($1::uuid[]) AS u (run)";

    link_owners: "SELECT l.system_name, l.resource_type, l.resource_id, l.workflow_execution_id
        FROM unnest($1::text[], $2::text[], $3::text[]) AS u (system, type, id)
        JOIN workflow_resource_links l
        ON l.system_name = u.system AND l.resource_type = u.type AND l.resource_id = u.id";

    unseen_answers: "SELECT u.run, u.node FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS u (run, node, seen)
        WHERE EXISTS (SELECT 1 FROM run_waits w
          WHERE w.workflow_execution_id = u.run AND w.node_id = u.node AND w.answer_seq > u.seen)";

    open_tokens: "SELECT token FROM run_waits WHERE token = ANY($1) AND is_open";

    /// Gives the runs that were stored: another batch may have stored the same request.
    insert_runs: "INSERT INTO workflow_executions
        (id, status, lease_owner, lease_epoch, wake_at, workflow_id, workflow_version, tenant_id, workflow_request_id,
         priority, correlation_id, parent_execution_id, requester_user_id, requester_email, requester_display_name,
         created_at, start_time, trigger_payload_json, spec_json)
        SELECT id, status, owner, CASE WHEN owner IS NULL THEN 0 ELSE 1 END, created_at, workflow, version, tenant,
          request, priority, correlation, parent, user_id, email, display_name, created_at, started_at, trigger, spec
        FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::integer[], $6::text[], $7::text[],
          $8::integer[], $9::text[], $10::uuid[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::bigint[],
          $16::text[], $17::text[])
        AS u (id, status, owner, workflow, version, tenant, request, priority, correlation, parent, user_id, email,
          display_name, created_at, started_at, trigger, spec)
        ON CONFLICT DO NOTHING RETURNING id";

    insert_first_events: "INSERT INTO execution_events (workflow_execution_id, seq, ts, data)
        SELECT u.run, u.seq, u.ts, u.data
        FROM unnest($1::uuid[], $2::integer[], $3::bigint[], $4::text[]) AS u (run, seq, ts, data)
        WHERE EXISTS (SELECT 1 FROM workflow_executions e WHERE e.id = u.run)
        ON CONFLICT DO NOTHING";

    insert_first_waits: "INSERT INTO run_waits (token, workflow_execution_id, node_id, is_open)
        SELECT u.token, u.run, u.node, u.open
        FROM unnest($1::text[], $2::uuid[], $3::text[], $4::boolean[]) AS u (token, run, node, open)
        WHERE EXISTS (SELECT 1 FROM workflow_executions e WHERE e.id = u.run)
        ON CONFLICT DO NOTHING";

    insert_events: "INSERT INTO execution_events (workflow_execution_id, seq, ts, data)
        SELECT * FROM unnest($1::uuid[], $2::integer[], $3::bigint[], $4::text[])";

    /// The first record of an attempt stands.
    insert_attempts: "INSERT INTO action_executions
        (workflow_execution_id, node_id, attempt, action_type, status, parameters_json, outputs_json, error_json,
         start_time, end_time)
        SELECT * FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::text[],
          $8::text[], $9::bigint[], $10::bigint[])
        ON CONFLICT DO NOTHING";

    /// Fails if another batch took one of them meanwhile; then everything is looked at again.
    insert_links: "INSERT INTO workflow_resource_links
        (workflow_execution_id, system_name, resource_type, resource_id, node_id, attempt, external_url, created_at)
        SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::text[],
          $8::bigint[])";

    close_waits: "UPDATE run_waits w SET is_open = false FROM unnest($1::uuid[], $2::text[]) AS u (run, node)
        WHERE w.workflow_execution_id = u.run AND w.node_id = u.node AND w.is_open";

    close_all_waits: "UPDATE run_waits w SET is_open = false FROM unnest($1::uuid[]) AS u (run)
        WHERE w.workflow_execution_id = u.run AND w.is_open";

    open_waits: "INSERT INTO run_waits (token, workflow_execution_id, node_id, is_open)
        SELECT * FROM unnest($1::text[], $2::uuid[], $3::text[], $4::boolean[])
        ON CONFLICT DO NOTHING";

    answer_waits: "UPDATE run_waits w SET is_open = false, payload_json = u.payload, answer_seq = u.seq
        FROM unnest($1::text[], $2::text[], $3::bigint[]) AS u (token, payload, seq) WHERE w.token = u.token";

    insert_letters: "INSERT INTO run_inbox (workflow_execution_id, seq, ts, letter)
        SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[])";

    drop_mail: "DELETE FROM run_inbox i USING unnest($1::uuid[], $2::bigint[]) AS u (run, seen)
        WHERE i.workflow_execution_id = u.run AND i.seq <= u.seen";

    insert_dead_letters: "INSERT INTO dead_letters
        (id, enqueued_at, reason, workflow_execution_id, workflow_id, workflow_version, tenant_id, attempts, last_error,
         payload_json)
        SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::uuid[], $5::text[], $6::integer[], $7::text[],
          $8::integer[], $9::text[], $10::text[])";

    /// What is not given of a change of status stays; all else is as the batch found it or wants it.
    update_runs: "UPDATE workflow_executions e SET status = COALESCE(u.status, e.status),
          start_time = COALESCE(u.start_time, e.start_time), end_time = COALESCE(u.end_time, e.end_time),
          reason = COALESCE(u.reason, e.reason), error_json = COALESCE(u.error, e.error_json),
          outputs_json = COALESCE(u.outputs, e.outputs_json),
          context_snapshot_json = COALESCE(u.snapshot, e.context_snapshot_json),
          lease_owner = CASE WHEN u.released THEN NULL ELSE e.lease_owner END, wake_at = u.wake_at,
          inbox_seq = u.inbox_seq, inbox_seen = u.inbox_seen, takeovers = u.takeovers
        FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[],
          $9::boolean[], $10::bigint[], $11::bigint[], $12::bigint[], $13::integer[])
        AS u (id, status, start_time, end_time, reason, error, outputs, snapshot, released, wake_at, inbox_seq,
          inbox_seen, takeovers)
        WHERE e.id = u.id";
}
