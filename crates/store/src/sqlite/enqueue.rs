//! `enqueue`: stores one run for each (tenant, requestId), with its first commit if it starts locally.

use super::{
    columns::{Col, count, get, key, maybe, run_id, uid_key},
    fields, flow,
    messages::change_wait,
    triggers,
    writer::Tx,
};
use crate::{
    ChangeHint,
    children::Parent,
    flow::Flow,
    rules::{self, ExistingRun, ParentFacts, WorkflowFacts},
    runs::{Enqueued, NewRun},
};
use fermata_core::{NodeId, RunId, RunnerId};
use rusqlite::params;
use uuid::Uuid;

const BY_REQUEST: &str = "SELECT id, workflow_id, status, workflow_uid FROM workflow_executions
    WHERE tenant_id = ?1 AND workflow_request_id = ?2";

const WORKFLOW: &str =
    "SELECT status, is_enabled, current_version, latest_version, paused_at IS NOT NULL FROM workflows
    WHERE uid = ?1 AND deleted_at IS NULL";

const INSERT_RUN: &str = "INSERT INTO workflow_executions
    (id, status, lease_owner, lease_epoch, wake_at, workflow_uid, workflow_id, workflow_version, tenant_id, workflow_request_id,
     priority, correlation_id, parent_execution_id, requester_user_id, requester_email, requester_display_name,
     created_at, start_time, trigger_payload_json, spec_json, parent_node_id, parent_attempt, parent_item, parent_waits,
     depth, lineage, traceparent, request_json, rerun_of, rerun_root, rerun_json)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?5, ?17, ?18, ?19, ?20, ?21, ?22, ?23,
     ?24, ?25, ?26, ?27, ?28, ?29, ?30)";

/// The flow control of a run, in the same transaction as its row.
const SET_FLOW: &str =
    "UPDATE workflow_executions SET flow_json = ?2, flow_step = ?3, flow_held = ?4, waiting_key = ?5,
    wake_at = ?6 WHERE id = ?1";

const PARENT: &str = "SELECT status, lease_owner, lease_epoch, octet_length(trigger_payload_json) = 0
    FROM workflow_executions WHERE id = ?1";

/// The attempts of a node that a run keeps of the run that it repeats.
const COPY_ATTEMPTS: &str = "INSERT INTO action_executions
    (workflow_execution_id, node_id, attempt, action_type, status, parameters_json, outputs_json, error_json, start_time,
     end_time, reused_from)
    SELECT ?1, node_id, attempt, action_type, status, parameters_json, outputs_json, error_json, start_time, end_time,
      COALESCE(reused_from, ?2)
    FROM action_executions WHERE workflow_execution_id = ?2 AND node_id = ?3";

/// Adds a row to a journal.
pub(super) const INSERT_EVENT: &str =
    "INSERT INTO execution_events (workflow_execution_id, seq, ts, data) VALUES (?1, ?2, ?3, ?4)";

/// `first` is the text of the first journal row, for a run that starts locally.
pub(super) fn enqueue(tx: &mut Tx<'_>, run: &NewRun, first: Option<&str>) -> rusqlite::Result<Enqueued> {
    let (workflow, mut existing) = (workflow(tx, run)?, existing(tx, run)?);
    let leased = run.parent.as_ref().filter(|parent| parent.lease.is_some());
    let parent = run_facts(tx, leased.map(|parent| parent.run))?;
    let source = run_facts(tx, run.rerun.as_ref().map(|rerun| rerun.source.run))?;
    if existing.is_none() && run.flow.as_ref().is_some_and(|flow| flow.merges()) {
        existing = flow::merged(tx, run)?;
    }
    if let Some(answer) = rules::refused_start(
        run,
        workflow.as_ref(),
        existing.as_ref(),
        parent.as_ref(),
        source.as_ref(),
    ) {
        return Ok(answer);
    }
    let paused = workflow.and_then(|workflow| workflow.pause_key(run.workflow_uid));
    let unlimited = Flow::default();
    let limits = run.flow.as_deref().or(paused.as_ref().map(|_| &unlimited));
    let limited = match limits {
        None => None,
        Some(limits) => match flow::enter(tx, run, limits, paused)? {
            flow::Entry::Stored(granted, rows) => Some((granted, rows)),
            flow::Entry::Existing { run, status } => return Ok(Enqueued::Existing { run, status }),
            flow::Entry::Full => return Ok(Enqueued::Full),
        },
    };
    let begins = limited.as_ref().is_none_or(|(granted, _)| granted.begins());
    let local_start = run.local_start.as_ref().filter(|_| begins);
    tx.execute(
        INSERT_RUN,
        params![
            key(&run.id),
            rules::first_status(local_start).as_str(),
            local_start.map(|local_start| local_start.runner.0.as_bytes().as_slice()),
            i64::from(local_start.is_some()),
            run.created_at.0,
            uid_key(&run.workflow_uid),
            run.workflow_id,
            run.workflow_version,
            run.tenant,
            run.request_id,
            run.priority,
            run.correlation_id,
            run.parent.as_ref().map(|parent| key(&parent.run)),
            run.principal.user_id,
            run.principal.email,
            run.principal.display_name,
            local_start.map(|local_start| local_start.started_at.0),
            run.trigger,
            run.spec,
            run.parent
                .as_ref()
                .and_then(|parent| parent.node.as_ref())
                .map(NodeId::as_str),
            run.parent.as_ref().map(|parent| parent.attempt),
            run.parent.as_ref().and_then(|parent| parent.item),
            run.parent.as_ref().filter(|parent| parent.waits).map(|_| true),
            run.parent.as_ref().map(|parent| parent.depth),
            run.parent.as_ref().map(Parent::lineage_text),
            run.traceparent,
            run.request,
            run.rerun.as_ref().map(|rerun| key(&rerun.source.run)),
            run.rerun.as_ref().map(|rerun| key(&rerun.source.root)),
            run.rerun.as_ref().map(|rerun| &rerun.text),
        ],
    )?;
    if let Some(rerun) = &run.rerun {
        for node in &rerun.nodes {
            tx.execute(
                COPY_ATTEMPTS,
                params![key(&run.id), key(&rerun.source.run), node.as_str()],
            )?;
        }
    }
    fields::add(tx, run.id, &run.tenant, &run.fields)?;
    if let Some(delivery) = &run.delivery {
        triggers::started(tx, delivery)?;
    }
    if let Some((granted, rows)) = limited {
        let flow = limits.map(Flow::text);
        let wake_at = granted.wake_at(run.created_at).map(|at| at.0);
        let columns = params![
            key(&run.id),
            flow,
            granted.step.as_str(),
            granted.held,
            granted.waiting,
            wake_at
        ];
        tx.execute(SET_FLOW, columns)?;
        flow::put_rows(tx, rows, run.created_at)?;
        if !begins {
            tx.hints.extend(granted.delayed_until.map(ChangeHint::Due));
            return Ok(Enqueued::Waiting);
        }
    }
    let Some(local_start) = local_start else {
        tx.hints.push(ChangeHint::Due(run.created_at));
        return Ok(Enqueued::Created);
    };
    if let Some(first) = first {
        tx.execute(INSERT_EVENT, params![key(&run.id), 1, local_start.started_at.0, first])?;
    }
    for change in &local_start.waits {
        change_wait(tx, run.id, change, local_start.started_at)?;
    }
    Ok(Enqueued::Created)
}

/// The parent of a new run that names its parent's lease, or the run that a new run repeats.
fn run_facts(tx: &mut Tx<'_>, run: Option<RunId>) -> rusqlite::Result<Option<ParentFacts>> {
    let Some(run) = run else {
        return Ok(None);
    };
    tx.query_row(PARENT, [key(&run)], |row| {
        Ok(ParentFacts {
            status: get(row, 0)?,
            owner: maybe(row, 1)?.map(RunnerId),
            epoch: count(row, 2)?,
            emptied: row.get(3)?,
        })
    })
}

fn existing(tx: &mut Tx<'_>, run: &NewRun) -> rusqlite::Result<Option<ExistingRun>> {
    tx.query_row(BY_REQUEST, (&run.tenant, &run.request_id), |row| {
        let Col(workflow_uid) = row.get::<_, Col<Uuid>>(3)?;
        Ok(ExistingRun {
            run: run_id(row, 0)?,
            workflow_uid,
            workflow_id: row.get(1)?,
            status: get(row, 2)?,
        })
    })
}

/// The workflow of a new run, unless it was deleted.
fn workflow(tx: &mut Tx<'_>, run: &NewRun) -> rusqlite::Result<Option<WorkflowFacts>> {
    tx.query_row(WORKFLOW, [uid_key(&run.workflow_uid)], |row| {
        Ok(WorkflowFacts {
            status: get(row, 0)?,
            enabled: row.get(1)?,
            current: row.get(2)?,
            latest: row.get(3)?,
            paused: row.get(4)?,
        })
    })
}
