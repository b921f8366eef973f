//! Reads the database with SQL of its own, without the store.
//!
//! This is the only SQL outside of `fermata-store`: a check of the store must not use the store's code.

use super::evidence::{AttemptRow, Change, DeliveryRow, Evidence, Heartbeat, Leased, RunRows, WaitRow, Written};
use anyhow::Context;
use fermata_core::Status;
use serde_json::Value;
use std::collections::BTreeMap;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

/// Installs triggers that record who changes which run. The tables must exist.
pub async fn install(client: &Client) -> anyhow::Result<()> {
    let installed = client.batch_execute(include_str!("audit.sql")).await;
    installed.context("the audit cannot be installed")
}

/// The number of runs that have not ended, of occurrences that are not settled and of schedules that will fire.
pub async fn unfinished(client: &Client) -> anyhow::Result<i64> {
    let sql = "SELECT
        (SELECT count(*) FROM workflow_executions WHERE status NOT IN ('Succeeded', 'Failed', 'Cancelled'))
        + (SELECT count(*) FROM trigger_deliveries WHERE state IN ('pending', 'queued'))
        + (SELECT count(*) FROM workflow_triggers WHERE next_fire_at IS NOT NULL)";
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// The time of the database in this many seconds, such as `2026-03-01T09:00:00Z`.
pub async fn time_in(client: &Client, seconds: u64) -> anyhow::Result<String> {
    let sql = "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC' + $1 * interval '1 second',
        'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')";
    Ok(client.query_one(sql, &[&(seconds as f64)]).await?.get(0))
}

/// The number of runs that a process holds.
pub async fn held_by(client: &Client, who: &str) -> anyhow::Result<i64> {
    let sql = "SELECT count(*) FROM workflow_executions
        WHERE lease_owner IN (SELECT runner FROM chaos.heartbeats WHERE who = $1)";
    Ok(client.query_one(sql, &[&who]).await?.get(0))
}

/// Adds the rows of the database to the evidence.
pub async fn collect(client: &Client, evidence: &mut Evidence) -> anyhow::Result<()> {
    for row in client.query(RUNS, &[]).await? {
        let (id, run) = run(&row)?;
        evidence.runs.insert(id, run);
    }
    rows_of_runs(client, &mut evidence.runs).await?;
    let sql = "SELECT at, who, runner, reported FROM chaos.heartbeats ORDER BY n";
    for row in client.query(sql, &[]).await? {
        let (runner, who) = (row.get(2), row.get(1));
        evidence.runners.entry(runner).or_insert(who);
        let beats = evidence.heartbeats.entry(runner).or_default();
        beats.push(Heartbeat {
            at: row.get(0),
            reported: row.get(3),
        });
    }
    let sql = "SELECT at, who, run, old_status, status, old_owner, owner, old_epoch, epoch, began
        FROM chaos.changes ORDER BY n";
    for row in client.query(sql, &[]).await? {
        evidence.changes.push(Change {
            at: row.get(0),
            who: row.get(1),
            run: row.get(2),
            old_status: row.get(3),
            status: row.get(4),
            old_owner: row.get(5),
            owner: row.get(6),
            old_epoch: row.get(7),
            epoch: row.get(8),
            began: row.get(9),
        });
    }
    let sql = "SELECT who, run, seq, owner, epoch, at FROM chaos.journal ORDER BY n";
    for row in client.query(sql, &[]).await? {
        evidence.written.push(Written {
            who: row.get(0),
            run: row.get(1),
            seq: row.get(2),
            owner: row.get(3),
            epoch: row.get(4),
            at: row.get(5),
        });
    }
    let sql = "SELECT at, item, old_lease, lease, old_until, until, answered FROM chaos.leases ORDER BY n";
    for row in client.query(sql, &[]).await? {
        evidence.leased.push(Leased {
            at: row.get(0),
            item: row.get(1),
            old_lease: row.get(2),
            lease: row.get(3),
            old_until: row.get(4),
            until: row.get(5),
            answered: row.get(6),
        });
    }
    let sql = "SELECT d.trigger_id, d.occurrence, d.state, d.reason, d.run_id,
        CASE WHEN t.trigger_type = 'Schedule' THEN chaos.micros(d.occurrence::timestamptz) END
        FROM trigger_deliveries d JOIN workflow_triggers t ON t.id = d.trigger_id ORDER BY 1, 2";
    for row in client.query(sql, &[]).await? {
        evidence.deliveries.push(DeliveryRow {
            trigger: row.get(0),
            occurrence: row.get(1),
            state: row.get(2),
            reason: row.get(3),
            run: row.get(4),
            instant: row.get(5),
        });
    }
    Ok(())
}

const RUNS: &str =
    "SELECT id, workflow_id, workflow_request_id, tenant_id, status, trigger_payload_json, reason, end_time,
    lease_owner, lease_epoch, wake_at, inbox_seq - inbox_seen,
    (SELECT count(*) FROM run_inbox i WHERE i.workflow_execution_id = e.id),
    (SELECT count(*) FROM dead_letters d WHERE d.workflow_execution_id = e.id),
    parent_execution_id, parent_node_id, outputs_json FROM workflow_executions e";

fn run(row: &Row) -> anyhow::Result<(Uuid, RunRows)> {
    let (id, status): (Uuid, String) = (row.get(0), row.get(4));
    let run = RunRows {
        workflow: row.get(1),
        request: row.get(2),
        tenant: row.get(3),
        status: Status::parse(&status).with_context(|| format!("{id} is {status}"))?,
        trigger: serde_json::from_str(row.get(5))?,
        reason: row.get(6),
        end_time: row.get(7),
        owner: row.get(8),
        epoch: row.get(9),
        wake_at: row.get(10),
        unread: row.get(11),
        messages: row.get(12),
        dead_letters: row.get(13),
        parent: row.get::<_, Option<Uuid>>(14).zip(row.get(15)),
        outputs: json(row.get(16))?,
        journal: Vec::new(),
        attempts: Vec::new(),
        waits: Vec::new(),
    };
    Ok((id, run))
}

async fn rows_of_runs(client: &Client, runs: &mut BTreeMap<Uuid, RunRows>) -> anyhow::Result<()> {
    let orphan = |id: Uuid| format!("there are rows of {id}, which is no run");
    let sql = "SELECT workflow_execution_id, seq, data FROM execution_events ORDER BY 1, 2";
    for row in client.query(sql, &[]).await? {
        let run = runs.get_mut(&row.get(0)).with_context(|| orphan(row.get(0)))?;
        run.journal.push((row.get(1), row.get(2)));
    }
    let sql = "SELECT workflow_execution_id, node_id, attempt, status, outputs_json, error_json, start_time IS NOT NULL
        FROM action_executions
        ORDER BY 1, 2, 3";
    for row in client.query(sql, &[]).await? {
        let run = runs.get_mut(&row.get(0)).with_context(|| orphan(row.get(0)))?;
        run.attempts.push(AttemptRow {
            node: row.get(1),
            attempt: u32::try_from(row.get::<_, i32>(2))?,
            status: row.get(3),
            outputs: json(row.get(4))?,
            error: json(row.get(5))?,
            began: row.get(6),
        });
    }
    let sql = "SELECT workflow_execution_id, node_id, is_open, payload_json, attempt, item_id, lease_id FROM run_waits
        ORDER BY 1, 2, 5";
    for row in client.query(sql, &[]).await? {
        let run = runs.get_mut(&row.get(0)).with_context(|| orphan(row.get(0)))?;
        run.waits.push(WaitRow {
            node: row.get(1),
            open: row.get(2),
            payload: json(row.get(3))?,
            attempt: u32::try_from(row.get::<_, i32>(4))?,
            item: row.get(5),
            lease: row.get(6),
        });
    }
    Ok(())
}

fn json(text: Option<&str>) -> anyhow::Result<Option<Value>> {
    Ok(text.map(serde_json::from_str).transpose()?)
}
