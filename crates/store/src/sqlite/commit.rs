//! `commit`: the only way in which a run advances.
//!
//! What must stay true: every check is made before the first write, so a refused member leaves nothing in the
//! transaction that it shares with others.

use super::{
    children,
    columns::{count, get, key, maybe, run_id, signed},
    dead_letters,
    enqueue::INSERT_EVENT,
    flow,
    messages::{change_wait, close_waits, has_unseen_answer},
    states, usage,
    writer::Tx,
};
use crate::{
    ChangeHint,
    rules::{self, ConflictFacts, LeaseChange, RunFacts},
    runs::{Attempt, CommitAnswer, Link, RunCommit},
};
use fermata_core::{RunId, RunnerId, Timestamp};
use rusqlite::{OptionalExtension, params};

const RUN_FACTS: &str = "SELECT status, lease_owner, lease_epoch, takeovers, inbox_seq, inbox_seen,
    (SELECT MAX(seq) FROM execution_events WHERE workflow_execution_id = ?1), flow_step IS NOT NULL
    FROM workflow_executions WHERE id = ?1";

const LINK_OWNER: &str = "SELECT workflow_execution_id FROM workflow_resource_links
    WHERE system_name = ?1 AND resource_type = ?2 AND resource_id = ?3";

/// Whether two runs are of one chain of reruns.
const SAME_CHAIN: &str = "SELECT COALESCE(one.rerun_root, one.id) = COALESCE(other.rerun_root, other.id)
    FROM workflow_executions one, workflow_executions other WHERE one.id = ?1 AND other.id = ?2";

const INSERT_LINK: &str = "INSERT INTO workflow_resource_links
    (system_name, resource_type, resource_id, workflow_execution_id, node_id, attempt, external_url, created_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (system_name, resource_type, resource_id) DO NOTHING";

const INSERT_ATTEMPT: &str = "INSERT INTO action_executions
    (workflow_execution_id, node_id, attempt, action_type, status, parameters_json, outputs_json, error_json,
     start_time, end_time)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
    ON CONFLICT (workflow_execution_id, node_id, attempt) DO NOTHING";

const SET_STATUS: &str = "UPDATE workflow_executions SET status = ?2, takeovers = 0,
    start_time = COALESCE(?3, start_time), end_time = COALESCE(?4, end_time), reason = COALESCE(?5, reason),
    error_json = COALESCE(?6, error_json), outputs_json = COALESCE(?7, outputs_json),
    context_snapshot_json = COALESCE(?8, context_snapshot_json)
    WHERE id = ?1";

/// The same for a terminal status: the run is released and leaves the claim index.
const SET_TERMINAL: &str = "UPDATE workflow_executions SET status = ?2, takeovers = 0,
    start_time = COALESCE(?3, start_time), end_time = COALESCE(?4, end_time), reason = COALESCE(?5, reason),
    error_json = COALESCE(?6, error_json), outputs_json = COALESCE(?7, outputs_json),
    context_snapshot_json = COALESCE(?8, context_snapshot_json),
    lease_owner = NULL, wake_at = NULL, inbox_seen = inbox_seq
    WHERE id = ?1";

/// The same for a run with flow control.
const SET_TERMINAL_LIMITED: &str = "UPDATE workflow_executions SET status = ?2, takeovers = 0,
    start_time = COALESCE(?3, start_time), end_time = COALESCE(?4, end_time), reason = COALESCE(?5, reason),
    error_json = COALESCE(?6, error_json), outputs_json = COALESCE(?7, outputs_json),
    context_snapshot_json = COALESCE(?8, context_snapshot_json),
    lease_owner = NULL, wake_at = NULL, inbox_seen = inbox_seq,
    flow_json = NULL, flow_step = NULL, flow_held = NULL, waiting_key = NULL
    WHERE id = ?1";

const KEEP: &str = "UPDATE workflow_executions SET takeovers = 0, inbox_seen = ?2 WHERE id = ?1";

const RELEASE: &str = "UPDATE workflow_executions SET takeovers = ?2, inbox_seen = ?3, lease_owner = NULL, wake_at = ?4
    WHERE id = ?1";

const DELETE_MESSAGES: &str = "DELETE FROM run_inbox WHERE workflow_execution_id = ?1 AND seq <= ?2";

/// `text` is the text of the journal row, if there are events.
pub(super) fn commit(tx: &mut Tx<'_>, commit: &RunCommit, text: Option<&str>) -> rusqlite::Result<CommitAnswer> {
    let (run, last_seq) = run_facts(tx, commit.run)?.unzip();
    let Some(run) = run.filter(|run| !rules::is_fenced(commit, Some(run))) else {
        return Ok(CommitAnswer::Fenced);
    };
    let facts = conflict_facts(tx, commit, last_seq.unwrap_or(0))?;
    if let Some(conflict) = rules::conflict(commit, text.is_some(), &facts) {
        return Ok(CommitAnswer::Conflict(conflict));
    }
    if let Some(text) = text {
        let row = params![key(&commit.run), commit.seq, commit.at.0, text];
        tx.execute(INSERT_EVENT, row)?;
    }
    for attempt in &commit.attempts {
        insert_attempt(tx, commit.run, attempt)?;
    }
    for link in &commit.links {
        insert_link(tx, commit.run, link, commit.at)?;
    }
    for change in &commit.waits {
        change_wait(tx, commit.run, change, commit.at)?;
    }
    children::see(tx, &commit.children_seen)?;
    if let Some(dead_letter) = &commit.dead_letter {
        dead_letters::insert(tx, dead_letter)?;
    }
    update_run(tx, commit, &run)?;
    states::change(tx, commit.run, commit.state.as_ref())?;
    usage::add(tx, commit.usage.as_ref(), commit.at)?;
    Ok(CommitAnswer::Committed {
        message_seq: run.message_seq,
    })
}

/// The run's row, and the seq of its last journal row.
fn run_facts(tx: &mut Tx<'_>, run: RunId) -> rusqlite::Result<Option<(RunFacts, u32)>> {
    tx.query_row(RUN_FACTS, [key(&run)], |row| {
        let facts = RunFacts {
            status: get(row, 0)?,
            owner: maybe(row, 1)?.map(RunnerId),
            epoch: count(row, 2)?,
            takeovers: row.get(3)?,
            message_seq: count(row, 4)?,
            messages_seen: count(row, 5)?,
            is_limited: row.get(7)?,
        };
        Ok((facts, row.get::<_, Option<u32>>(6)?.unwrap_or(0)))
    })
}

/// What the commit may conflict with. Reads only.
fn conflict_facts(tx: &Tx<'_>, commit: &RunCommit, last_seq: u32) -> rusqlite::Result<ConflictFacts> {
    let mut facts = ConflictFacts {
        last_seq,
        ..ConflictFacts::default()
    };
    for link in &commit.links {
        let mut owner = tx.connection.prepare_cached(LINK_OWNER)?;
        let key = (&link.system, &link.resource_type, &link.resource_id);
        let owner = owner.query_row(key, |row| run_id(row, 0)).optional()?;
        facts.link_owners.push(match owner {
            Some(owner) if owner != commit.run && is_same_chain(tx, owner, commit.run)? => None,
            owner => owner,
        });
    }
    for node in rules::closed_waits(commit) {
        if has_unseen_answer(tx, commit.run, node, commit.messages_seen)? {
            facts.answered.push(node.clone());
        }
    }
    Ok(facts)
}

fn is_same_chain(tx: &Tx<'_>, one: RunId, other: RunId) -> rusqlite::Result<bool> {
    let mut statement = tx.connection.prepare_cached(SAME_CHAIN)?;
    let same = statement.query_row([key(&one), key(&other)], |row| row.get(0));
    Ok(same.optional()?.unwrap_or(false))
}

fn insert_attempt(tx: &mut Tx<'_>, run: RunId, attempt: &Attempt) -> rusqlite::Result<()> {
    tx.execute(
        INSERT_ATTEMPT,
        params![
            key(&run),
            attempt.node.as_str(),
            attempt.attempt,
            attempt.action_type,
            attempt.status.as_str(),
            attempt.parameters,
            attempt.outputs,
            attempt.error,
            attempt.started_at.map(|at| at.0),
            attempt.ended_at.0,
        ],
    )?;
    Ok(())
}

fn insert_link(tx: &mut Tx<'_>, run: RunId, link: &Link, at: Timestamp) -> rusqlite::Result<()> {
    tx.execute(
        INSERT_LINK,
        params![
            link.system,
            link.resource_type,
            link.resource_id,
            key(&run),
            link.node.as_str(),
            link.attempt,
            link.url,
            at.0,
        ],
    )?;
    Ok(())
}

/// Writes the run's row, but only if something in it changes.
fn update_run(tx: &mut Tx<'_>, commit: &RunCommit, facts: &RunFacts) -> rusqlite::Result<()> {
    let run = key(&commit.run);
    let row = rules::row_change(commit, facts);
    let limits = match row.lease {
        LeaseChange::Ended if facts.is_limited => flow::of_run(tx, commit.run)?,
        _ => None,
    };
    if let Some(change) = &commit.status {
        let sql = match row.lease {
            LeaseChange::Ended if facts.is_limited => SET_TERMINAL_LIMITED,
            LeaseChange::Ended => SET_TERMINAL,
            LeaseChange::Kept | LeaseChange::Released(_) => SET_STATUS,
        };
        tx.execute(
            sql,
            params![
                run,
                change.status.as_str(),
                change.started_at.map(|at| at.0),
                change.ended_at.map(|at| at.0),
                change.reason,
                change.error,
                change.outputs,
                change.context_snapshot,
            ],
        )?;
    }
    let seen = signed(row.messages_seen);
    if row.messages_seen > facts.messages_seen {
        tx.execute(DELETE_MESSAGES, params![run, seen])?;
    }
    match row.lease {
        LeaseChange::Ended => {
            close_waits(tx, commit.run)?;
            if let Some(limits) = limits {
                flow::free(tx, commit.run, &limits, commit.at)?;
            }
        }
        LeaseChange::Released(wake_at) => {
            tx.execute(RELEASE, params![run, row.takeovers, seen, wake_at.map(|at| at.0)])?;
            tx.hints.extend(wake_at.map(ChangeHint::Due));
        }
        LeaseChange::Kept if row.differs_from(facts) => {
            tx.execute(KEEP, params![run, seen])?;
        }
        LeaseChange::Kept => {}
    }
    Ok(())
}
