//! The queries for runs that are due and free, as [`priority`] needs them.
//!
//! What must stay true: every query uses an index, and its cost does not grow with a backlog. A test checks the plans.

use super::{
    claim::ids,
    columns::{get, key, run_id, uid_key},
    writer::Tx,
};
use crate::{
    priority::{self, Due, MAX_GROUPS, Places, Queue},
    runs::Claim,
};
use fermata_core::{RunId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

pub(super) const FREE: &str = "SELECT id FROM workflow_executions INDEXED BY ix_executions_claim
    WHERE lease_owner IS NULL AND wake_at IS NOT NULL AND wake_at <= ?1 ORDER BY wake_at LIMIT ?2";

/// Whether any free run has a priority. If none has, claims ignore priorities.
pub(super) const ANY_PRIORITY: &str = "SELECT 1 FROM workflow_executions INDEXED BY ix_executions_priority
    WHERE lease_owner IS NULL AND wake_at IS NOT NULL AND priority <> 0 LIMIT 1";

const WAITING: &str = "SELECT id, wake_at, tenant_id, workflow_uid, COALESCE(priority, 0)
    FROM workflow_executions WHERE id = ?1";

/// The next lower priority in a workflow. Repeated, this visits each priority once, independent of the number of
/// sleeping runs.
pub(super) const NEXT_PRIORITY: &str = "SELECT priority FROM workflow_executions INDEXED BY ix_executions_priority
    WHERE workflow_uid = ?1 AND priority > 0 AND priority < ?2
    AND lease_owner IS NULL AND wake_at IS NOT NULL AND priority <> 0 ORDER BY priority DESC LIMIT 1";

pub(super) const OF_PRIORITY: &str = "SELECT id, wake_at, tenant_id, workflow_uid, priority
    FROM workflow_executions INDEXED BY ix_executions_priority
    WHERE workflow_uid = ?1 AND priority = ?2 AND wake_at <= ?3
    AND lease_owner IS NULL AND wake_at IS NOT NULL AND priority <> 0 ORDER BY wake_at LIMIT ?4";

/// The first run of the next group. Repeated, this visits each group once.
pub(super) const NEXT_HEAD: &str = "SELECT id, wake_at, tenant_id, workflow_uid, COALESCE(priority, 0)
    FROM workflow_executions INDEXED BY ix_executions_group
    WHERE lease_owner IS NULL AND wake_at IS NOT NULL AND (tenant_id, workflow_uid) > (?1, ?2)
    ORDER BY tenant_id, workflow_uid, wake_at, id LIMIT 1";

pub(super) const BEHIND: &str = "SELECT id, wake_at, tenant_id, workflow_uid, COALESCE(priority, 0)
    FROM workflow_executions INDEXED BY ix_executions_group
    WHERE lease_owner IS NULL AND wake_at IS NOT NULL AND tenant_id = ?1 AND workflow_uid = ?2
    AND (wake_at, id) > (?3, ?4) AND wake_at <= ?5 ORDER BY wake_at, id LIMIT 1";

/// A claim visits at most this many priorities of a workflow.
const MAX_PRIORITIES: usize = 100;

/// A tenant and a workflow.
pub(super) type Group = (String, Uuid);

/// The free runs that a claim takes.
pub(super) fn free(tx: &mut Tx<'_>, claim: &Claim) -> rusqlite::Result<Vec<RunId>> {
    let prioritised = tx.connection.prepare_cached(ANY_PRIORITY)?.exists([])?;
    let looked_at = priority::looked_at(claim.limit, prioritised);
    let front = ids(tx, FREE, params![claim.now.0, looked_at])?;
    if !prioritised && front.len() <= claim.limit as usize {
        return Ok(front);
    }
    let front = front.iter().filter_map(|run| waiting(tx.connection, *run).transpose());
    let front = front.collect::<rusqlite::Result<_>>()?;
    let places = Places {
        count: claim.limit as usize,
        prioritised,
        now: claim.now,
    };
    let mut queue = Free {
        connection: tx.connection,
        walked: tx.walked,
        now: claim.now,
    };
    priority::choose(&places, front, &mut queue)
}

fn waiting(connection: &Connection, run: RunId) -> rusqlite::Result<Option<Due>> {
    let mut statement = connection.prepare_cached(WAITING)?;
    statement.query_row([key(&run)], due_row).optional()
}

fn due_row(row: &Row<'_>) -> rusqlite::Result<Due> {
    Ok(Due {
        run: run_id(row, 0)?,
        wake_at: get(row, 1)?,
        tenant: row.get(2)?,
        workflow: get(row, 3)?,
        priority: row.get(4)?,
    })
}

struct Free<'a> {
    connection: &'a Connection,
    /// The group at which the last search for other groups stopped.
    walked: &'a mut Group,
    now: Timestamp,
}

impl Queue for Free<'_> {
    type Error = rusqlite::Error;

    fn urgent(&mut self, workflow: Uuid, most: usize) -> rusqlite::Result<Vec<Due>> {
        let mut next_priority = self.connection.prepare_cached(NEXT_PRIORITY)?;
        let mut of_priority = self.connection.prepare_cached(OF_PRIORITY)?;
        let mut urgent: Vec<Due> = Vec::new();
        let mut below = i64::from(i32::MAX) + 1;
        for _ in 0..MAX_PRIORITIES {
            let next = next_priority.query_row(params![uid_key(&workflow), below], |row| row.get::<_, i32>(0));
            let Some(priority) = next.optional()?.filter(|_| urgent.len() < most) else {
                break;
            };
            let room = i64::try_from(most - urgent.len()).unwrap_or(i64::MAX);
            for row in of_priority.query_map(params![uid_key(&workflow), priority, self.now.0, room], due_row)? {
                urgent.push(row?);
            }
            below = i64::from(priority);
        }
        Ok(urgent)
    }

    /// Visits all groups in a circle, starting after the group where the last search stopped.
    fn heads(&mut self, but: Option<&str>) -> rusqlite::Result<Vec<Due>> {
        let start = self.walked.clone();
        let mut after = start.clone();
        let (mut heads, mut round) = (Vec::new(), false);
        let mut next_head = self.connection.prepare_cached(NEXT_HEAD)?;
        for _ in 0..MAX_GROUPS {
            let head = next_head.query_row((&after.0, uid_key(&after.1)), due_row).optional()?;
            let Some(head) = head else {
                if std::mem::replace(&mut round, true) {
                    break;
                }
                after = Group::default();
                continue;
            };
            let group = (head.tenant.clone(), head.workflow);
            if round && group > start {
                break;
            }
            let passed_over = but == Some(head.tenant.as_str());
            if !passed_over && head.wake_at <= self.now {
                heads.push(head);
            }
            after = match passed_over {
                true => (group.0, Uuid::max()),
                false => group,
            };
        }
        *self.walked = after;
        Ok(heads)
    }

    fn behind(&mut self, due: &Due) -> rusqlite::Result<Option<Due>> {
        let place = params![
            due.tenant,
            uid_key(&due.workflow),
            due.wake_at.0,
            key(&due.run),
            self.now.0
        ];
        let mut behind = self.connection.prepare_cached(BEHIND)?;
        behind.query_row(place, due_row).optional()
    }
}
