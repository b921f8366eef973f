//! `deliver` and `answer`: messages to runs, and the waits that they answer.
//!
//! What must stay true: a message and its wake-up are one transaction; a wait is answered once; a terminal run receives
//! no messages.

use super::{
    children,
    columns::{count, get, key, run_id, signed, uid_key},
    writer::Tx,
};
use crate::{
    ChangeHint,
    flow::rules::stays_asleep,
    inbox::queue_number,
    runs::{Answer, CHILDREN_ENDED, Delivery, RunMessage, WaitChange, is_cancel, message_text, pauses},
};
use fermata_core::{NodeId, RunId, Status, Timestamp};
use rusqlite::{OptionalExtension, params};

const MESSAGES: &str = "SELECT status, inbox_seq, lease_owner IS NULL, flow_step, paused_at IS NOT NULL FROM workflow_executions WHERE id = ?1";

const SET_PAUSED: &str = "UPDATE workflow_executions SET paused_at = ?2 WHERE id = ?1";

const INSERT_MESSAGE: &str = "INSERT INTO run_inbox (workflow_execution_id, seq, ts, letter) VALUES (?1, ?2, ?3, ?4)";

/// A held run keeps its `wake_at`: its owner sees `message_seq` at its next commit.
const WAKE: &str = "UPDATE workflow_executions SET inbox_seq = ?2,
    wake_at = CASE WHEN ?4 AND lease_owner IS NULL THEN MIN(COALESCE(wake_at, ?3), ?3) ELSE wake_at END
    WHERE id = ?1";

const WAIT: &str = "SELECT workflow_execution_id, node_id, attempt, is_open AND (deadline IS NULL OR deadline > ?2)
    FROM run_waits WHERE token = ?1";

const ANSWER_WAIT: &str = "UPDATE run_waits SET is_open = 0, payload_json = ?2, answer_seq = ?3, answered_by = ?4,
    answered_at = ?5 WHERE token = ?1";

const OPEN_WAIT: &str = "INSERT INTO run_waits (token, workflow_execution_id, node_id, attempt) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (token) DO NOTHING";

const CLOSE_WAIT: &str =
    "UPDATE run_waits SET is_open = 0 WHERE workflow_execution_id = ?1 AND node_id = ?2 AND is_open = 1";

const LIMIT_WAIT: &str =
    "UPDATE run_waits SET deadline = ?3 WHERE workflow_execution_id = ?1 AND node_id = ?2 AND is_open = 1";

/// `lease_until` 0: no worker has claimed it.
const OFFER_WAIT: &str = "UPDATE run_waits SET item_id = ?4, queue = ?5, tenant_id = ?6, workflow_id = ?7, kind = ?8,
    item_json = ?9, created_at = ?10, lease_until = 0
    WHERE workflow_execution_id = ?1 AND node_id = ?2 AND attempt = ?3 AND is_open = 1 AND item_id IS NULL";

const CLOSE_WAITS: &str = "UPDATE run_waits SET is_open = 0 WHERE workflow_execution_id = ?1 AND is_open = 1";

const UNSEEN_ANSWER: &str = "SELECT 1 FROM run_waits
    WHERE workflow_execution_id = ?1 AND node_id = ?2 AND answer_seq > ?3 LIMIT 1";

const UNREAD_ENDS: &str = "SELECT 1 FROM run_inbox WHERE workflow_execution_id = ?1 AND letter = ?2 LIMIT 1";

/// The columns of a run that decide about a delivery.
struct Messages {
    status: Status,
    message_seq: u64,
    free: bool,
    /// Of a run with flow control.
    step: Option<String>,
    paused: bool,
}

fn messages(tx: &Tx<'_>, run: RunId) -> rusqlite::Result<Option<Messages>> {
    let mut statement = tx.connection.prepare_cached(MESSAGES)?;
    statement
        .query_row([key(&run)], |row| {
            Ok(Messages {
                status: get(row, 0)?,
                message_seq: count(row, 1)?,
                free: row.get(2)?,
                step: row.get(3)?,
                paused: row.get(4)?,
            })
        })
        .optional()
}

/// `message` is the text of the message.
pub(super) fn deliver(tx: &mut Tx<'_>, run: RunId, message: &str, at: Timestamp) -> rusqlite::Result<Delivery> {
    let ends = message == CHILDREN_ENDED;
    let Some(messages) = messages(tx, run)? else {
        if ends {
            children::forget_ended(tx, run)?;
        }
        return Ok(Delivery::NotFound);
    };
    let status = messages.status;
    if status.is_terminal() {
        if ends {
            children::forget_ended(tx, run)?;
        }
        return Ok(Delivery::Terminal { status });
    }
    if ends
        && tx
            .connection
            .prepare_cached(UNREAD_ENDS)?
            .exists(params![key(&run), message])?
    {
        return Ok(Delivery::Delivered { status });
    }
    if let Some(pauses) = pauses(message) {
        if pauses == messages.paused {
            return Ok(Delivery::Delivered { status });
        }
        let paused_at = pauses.then_some(at.0);
        tx.connection
            .prepare_cached(SET_PAUSED)?
            .execute(params![key(&run), paused_at])?;
    }
    put(tx, run, &messages, message, at)?;
    Ok(Delivery::Delivered { status })
}

/// Adds a message and wakes the run; returns its seq.
fn put(tx: &mut Tx<'_>, run: RunId, messages: &Messages, message: &str, at: Timestamp) -> rusqlite::Result<u64> {
    let seq = messages.message_seq + 1;
    let wakes = !stays_asleep(messages.status, messages.step.as_ref(), is_cancel(message));
    tx.connection
        .prepare_cached(INSERT_MESSAGE)?
        .execute(params![key(&run), signed(seq), at.0, message])?;
    tx.connection
        .prepare_cached(WAKE)?
        .execute(params![key(&run), signed(seq), at.0, wakes])?;
    tx.hints.push(ChangeHint::Messages(run));
    if wakes && messages.free {
        tx.hints.push(ChangeHint::Due(at));
    }
    Ok(seq)
}

/// Answers the wait with this token, once.
pub(super) fn answer(
    tx: &mut Tx<'_>,
    token: &str,
    payload: &str,
    by: Option<&str>,
    at: Timestamp,
) -> rusqlite::Result<Answer> {
    let wait = tx
        .connection
        .prepare_cached(WAIT)?
        .query_row(params![token, at.0], |row| {
            Ok((run_id(row, 0)?, get::<NodeId>(row, 1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    let Some((run, node, attempt, open)) = wait else {
        return Ok(Answer::NotFound);
    };
    let messages = match messages(tx, run)? {
        Some(messages) if open && !messages.status.is_terminal() => messages,
        _ => return Ok(Answer::Closed),
    };
    let message = RunMessage::Callback {
        node: node.clone(),
        attempt,
    };
    let seq = put(tx, run, &messages, &message_text(&message), at)?;
    tx.connection
        .prepare_cached(ANSWER_WAIT)?
        .execute(params![token, payload, signed(seq), by, at.0])?;
    Ok(Answer::Accepted { run, node })
}

/// Applies a change to a wait; `at` is the time of the commit.
pub(super) fn change_wait(tx: &mut Tx<'_>, run: RunId, change: &WaitChange, at: Timestamp) -> rusqlite::Result<()> {
    match change {
        WaitChange::Open { node, attempt, token } => {
            tx.connection
                .prepare_cached(OPEN_WAIT)?
                .execute(params![token, key(&run), node.as_str(), attempt])?
        }
        WaitChange::Offer { node, attempt, item } => {
            let offered = tx.connection.prepare_cached(OFFER_WAIT)?.execute(params![
                key(&run),
                node.as_str(),
                attempt,
                uid_key(&item.id),
                item.queue,
                item.tenant,
                item.workflow_id,
                item.kind.as_str(),
                item.details,
                at.0,
            ])?;
            tx.hints.push(ChangeHint::Inbox(queue_number(&item.queue)));
            offered
        }
        WaitChange::Limit { node, deadline } => {
            tx.connection
                .prepare_cached(LIMIT_WAIT)?
                .execute(params![key(&run), node.as_str(), deadline.0])?
        }
        WaitChange::Close { node } => tx
            .connection
            .prepare_cached(CLOSE_WAIT)?
            .execute(params![key(&run), node.as_str()])?,
    };
    Ok(())
}

/// Closes all open waits of a run.
pub(super) fn close_waits(tx: &mut Tx<'_>, run: RunId) -> rusqlite::Result<()> {
    tx.execute(CLOSE_WAITS, [key(&run)])?;
    Ok(())
}

/// Whether the wait of a node has an answer after `seen`.
pub(super) fn has_unseen_answer(tx: &Tx<'_>, run: RunId, node: &NodeId, seen: u64) -> rusqlite::Result<bool> {
    tx.connection
        .prepare_cached(UNSEEN_ANSWER)?
        .exists(params![key(&run), node.as_str(), signed(seen)])
}
