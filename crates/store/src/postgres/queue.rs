//! The runs that are due and free, as needed by [`priority`].
//!
//! `priority::choose` requests data as it proceeds, and here each request costs a round trip. So it is called with the
//! data fetched so far. When it needs more, the data is fetched for all groups or workflows that it may need, and it is
//! called again: choosing is pure and fast.
//!
//! What must stay true:
//! * Every query uses an index, and its cost does not grow with a backlog; a test checks the plans. Conditions are ranges
//!   over all columns up to the sort column, so that only the intended index fits.
//! * The first due runs are locked when they are read, so that concurrent claims do not choose the same runs. Runs found
//!   elsewhere are locked afterwards, and taken only if they are still free. Concurrent claims may choose the same ones (the
//!   most urgent runs of a workflow); then the places go to runs that the claim has locked already. So a claim is empty only
//!   if every due run is held or locked.

use super::{
    columns::{get, plain},
    error::PgError,
};
use crate::{
    priority::{self, Due, MAX_GROUPS, Places, Queue},
    runs::Claim,
};
use deadpool_postgres::{GenericClient, Transaction};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Mutex, PoisonError},
};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

/// The condition of the partial indexes of claimable runs.
macro_rules! free {
    () => {
        "lease_owner IS NULL AND wake_at IS NOT NULL"
    };
}

macro_rules! due_columns {
    () => {
        "id, wake_at, tenant_id, workflow_uid, COALESCE(priority, 0) AS importance FROM workflow_executions WHERE "
    };
}

/// Whether any free run has a priority. If not, claims ignore priorities.
pub(super) const ANY_PRIORITY: &str = concat!(
    "SELECT 1 FROM workflow_executions WHERE ",
    free!(),
    " AND priority <> 0 ORDER BY workflow_uid, priority LIMIT 1"
);

pub(super) const FRONT: &str = concat!(
    "SELECT ",
    due_columns!(),
    free!(),
    " AND wake_at <= $1 ORDER BY wake_at, id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED"
);

/// For each workflow up to `$3` runs that are due, free and have a priority above 0, the highest priority first. Each
/// priority of a workflow is visited once, however many sleeping runs have it, and at most 100 priorities are visited.
pub(super) const URGENT: &str = concat!(
    "SELECT r.* FROM unnest($1::uuid[]) AS w (workflow) CROSS JOIN LATERAL (
      WITH RECURSIVE p (priority) AS (
        SELECT (SELECT priority FROM workflow_executions WHERE workflow_uid = w.workflow AND priority > 0
          AND priority <> 0 AND ",
    free!(),
    " ORDER BY workflow_uid DESC, priority DESC LIMIT 1)
        UNION ALL
        SELECT (SELECT e.priority FROM workflow_executions e WHERE e.workflow_uid = w.workflow AND e.priority > 0
          AND e.priority < p.priority AND e.priority <> 0 AND ",
    free!(),
    " ORDER BY e.workflow_uid DESC, e.priority DESC LIMIT 1) FROM p WHERE p.priority IS NOT NULL)
      SELECT due.* FROM (SELECT priority FROM p WHERE priority IS NOT NULL LIMIT 100) level CROSS JOIN LATERAL (
        SELECT ",
    due_columns!(),
    free!(),
    " AND priority <> 0
          AND (workflow_uid, priority, wake_at) >= (w.workflow, level.priority, -9223372036854775808)
          AND (workflow_uid, priority, wake_at) <= (w.workflow, level.priority, $2)
        ORDER BY workflow_uid, priority, wake_at, id LIMIT $3) due
      LIMIT $3) r"
);

/// The run that has waited longest in each of the next groups. Of the tenant `$3` at most one group is visited.
pub(super) const HEADS: &str = concat!(
    "WITH RECURSIVE heads AS (
      (SELECT ",
    due_columns!(),
    free!(),
    " AND (tenant_id, workflow_uid) > ($1, $2) ORDER BY tenant_id, workflow_uid, wake_at, id LIMIT 1)
      UNION ALL
      SELECT next.* FROM heads h CROSS JOIN LATERAL (SELECT ",
    due_columns!(),
    free!(),
    " AND (tenant_id, workflow_uid) > (h.tenant_id, CASE WHEN h.tenant_id = $3 THEN 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid ELSE h.workflow_uid END)
        ORDER BY tenant_id, workflow_uid, wake_at, id LIMIT 1) next)
    SELECT * FROM heads LIMIT $4"
);

/// The first runs of each of these groups.
pub(super) const GROUPS: &str = concat!(
    "SELECT due.* FROM unnest($1::text[], $2::uuid[]) AS g (tenant, workflow) CROSS JOIN LATERAL (SELECT ",
    due_columns!(),
    free!(),
    " AND (tenant_id, workflow_uid, wake_at) >= (g.tenant, g.workflow, -9223372036854775808)
      AND (tenant_id, workflow_uid, wake_at) <= (g.tenant, g.workflow, $3)
      ORDER BY tenant_id, workflow_uid, wake_at, id LIMIT $4) due"
);

/// Locks those of the chosen runs that are still free.
pub(super) const TAKE: &str = concat!(
    "SELECT id FROM workflow_executions WHERE id = ANY($1) AND ",
    free!(),
    " ORDER BY id FOR NO KEY UPDATE SKIP LOCKED"
);

/// How many runs of a group the first query fetches.
const FIRST_OF_GROUP: usize = 16;

/// A tenant and a workflow.
pub(super) type Group = (String, Uuid);

type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Chooses and locks the free runs for a claim.
pub(super) async fn free(tx: &Transaction<'_>, claim: &Claim, walked: &Mutex<Group>) -> Result<Vec<Uuid>, PgError> {
    let any = tx.prepare_cached(ANY_PRIORITY).await?;
    let looked_at = i64::from(priority::looked_at(claim.limit, false));
    let any = async { tx.query_opt(&any, &[]).await.map_err(PgError::Server) };
    let few: Params<'_> = &[&claim.now.0, &looked_at];
    let (any, mut front) = futures::try_join!(any, dues(tx, FRONT, few))?;
    let prioritised = any.is_some();
    if prioritised {
        let looked_at = i64::from(priority::looked_at(claim.limit, true));
        front = dues(tx, FRONT, &[&claim.now.0, &looked_at]).await?;
    }
    let places = claim.limit as usize;
    if !prioritised && front.len() <= places {
        return Ok(front.iter().map(|due| due.run.0).collect());
    }
    let locked: HashSet<Uuid> = front.iter().map(|due| due.run.0).collect();
    let chosen = choose(tx, claim, prioritised, &front, walked).await?;
    let beyond: Vec<Uuid> = chosen.iter().copied().filter(|id| !locked.contains(id)).collect();
    if beyond.is_empty() {
        return Ok(chosen);
    }
    let take = tx.prepare_cached(TAKE).await?;
    let taken = tx.query(&take, &[&beyond]).await?;
    let taken = taken.iter().map(|row| plain(row, 0));
    let taken = taken.collect::<Result<HashSet<Uuid>, PgError>>()?;
    let is_ours = |id: &&Uuid| locked.contains(id) || taken.contains(id);
    let mut ours: Vec<Uuid> = chosen.iter().filter(is_ours).copied().collect();
    // The other chosen runs are locked by another claim.
    let lost = chosen.len() - ours.len();
    front.sort_by_key(Due::rank);
    let spare = front.iter().map(|due| due.run.0).filter(|id| !chosen.contains(id));
    ours.extend(spare.take(lost));
    Ok(ours)
}

async fn choose(
    tx: &Transaction<'_>,
    claim: &Claim,
    prioritised: bool,
    front: &[Due],
    walked: &Mutex<Group>,
) -> Result<Vec<Uuid>, PgError> {
    let places = Places {
        count: claim.limit as usize,
        prioritised,
        now: claim.now,
    };
    let mut known = Known::default();
    loop {
        let missing = match priority::choose(&places, front.to_vec(), &mut known) {
            Ok(runs) => return Ok(runs.into_iter().map(|run| run.0).collect()),
            Err(missing) => missing,
        };
        match missing {
            Missing::Urgent => known.fetch_urgent(tx, claim, front).await?,
            Missing::Heads(but) => known.fetch_heads(tx, claim, but, walked).await?,
            Missing::Group(group) => known.fetch_groups(tx, claim, group).await?,
        }
    }
}

async fn dues(tx: &Transaction<'_>, sql: &str, params: Params<'_>) -> Result<Vec<Due>, PgError> {
    let statement = tx.prepare_cached(sql).await?;
    let rows = tx.query(&statement, params).await?;
    rows.iter().map(due_row).collect()
}

fn due_row(row: &Row) -> Result<Due, PgError> {
    Ok(Due {
        run: get(row, 0)?,
        wake_at: get(row, 1)?,
        tenant: plain(row, 2)?,
        workflow: plain(row, 3)?,
        priority: plain(row, 4)?,
    })
}

/// Data that `choose` needs and that was not fetched yet.
#[derive(Debug)]
enum Missing {
    Urgent,
    Heads(Option<String>),
    Group(Group),
}

/// The first runs of a group, and whether these are all that a claim can need.
#[derive(Default)]
struct Waiting {
    runs: Vec<Due>,
    all: bool,
}

/// The data fetched so far.
#[derive(Default)]
struct Known {
    urgent: Option<HashMap<Uuid, Vec<Due>>>,
    heads: Option<Vec<Due>>,
    groups: HashMap<Group, Waiting>,
}

impl Queue for Known {
    type Error = Missing;

    fn urgent(&mut self, workflow: Uuid, most: usize) -> Result<Vec<Due>, Missing> {
        let known = self.urgent.as_ref().ok_or(Missing::Urgent)?;
        let urgent = known.get(&workflow).map(Vec::as_slice).unwrap_or_default();
        Ok(urgent.iter().take(most).cloned().collect())
    }

    fn heads(&mut self, but: Option<&str>) -> Result<Vec<Due>, Missing> {
        let known = self.heads.clone();
        known.ok_or_else(|| Missing::Heads(but.map(str::to_owned)))
    }

    fn behind(&mut self, due: &Due) -> Result<Option<Due>, Missing> {
        let group = (due.tenant.clone(), due.workflow);
        let missing = || Missing::Group(group.clone());
        let waiting = self.groups.get(&group).ok_or_else(missing)?;
        let place = (due.wake_at, due.run);
        match waiting.runs.iter().find(|other| (other.wake_at, other.run) > place) {
            Some(next) => Ok(Some(next.clone())),
            None if waiting.all => Ok(None),
            None => Err(missing()),
        }
    }
}

impl Known {
    /// Fetches the urgent runs of every workflow that may be chosen.
    async fn fetch_urgent(&mut self, tx: &Transaction<'_>, claim: &Claim, front: &[Due]) -> Result<(), PgError> {
        let groups = self.groups.values().flat_map(|waiting| &waiting.runs);
        let heads = self.heads.iter().flatten();
        let all = front.iter().chain(heads).chain(groups);
        let workflows: BTreeSet<Uuid> = all.map(|due| due.workflow).collect();
        let workflows: Vec<Uuid> = workflows.into_iter().collect();
        let params: Params<'_> = &[&workflows, &claim.now.0, &i64::from(claim.limit)];
        let mut urgent: HashMap<Uuid, Vec<Due>> = HashMap::new();
        for due in dues(tx, URGENT, params).await? {
            urgent.entry(due.workflow).or_default().push(due);
        }
        self.urgent = Some(urgent);
        Ok(())
    }

    /// Visits the groups in a circle, starting after the group where the last search stopped.
    async fn fetch_heads(
        &mut self,
        tx: &Transaction<'_>,
        claim: &Claim,
        but: Option<String>,
        walked: &Mutex<Group>,
    ) -> Result<(), PgError> {
        let start = walked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let most = MAX_GROUPS as i64;
        let mut heads = dues(tx, HEADS, &[&start.0, &start.1, &but, &most]).await?;
        let left = most - heads.len() as i64;
        if left > 0 && start != Group::default() {
            let round = dues(tx, HEADS, &[&"", &Uuid::nil(), &but, &left]).await?;
            let before = |head: &Due| (&head.tenant, &head.workflow) <= (&start.0, &start.1);
            heads.extend(round.into_iter().filter(before));
        }
        let last = match heads.last() {
            Some(last) if heads.len() >= MAX_GROUPS => (last.tenant.clone(), last.workflow),
            // All groups were visited, so the next search may start anywhere.
            _ => Group::default(),
        };
        *walked.lock().unwrap_or_else(PoisonError::into_inner) = last;
        heads.retain(|head| Some(&head.tenant) != but.as_ref() && head.wake_at <= claim.now);
        self.heads = Some(heads);
        Ok(())
    }

    /// Fetches the first runs of all groups, or as many as a claim can need of a group whose first runs were not enough.
    async fn fetch_groups(&mut self, tx: &Transaction<'_>, claim: &Claim, group: Group) -> Result<(), PgError> {
        let most = claim.limit as usize + 1;
        let (groups, limit): (Vec<Group>, usize) = match self.groups.contains_key(&group) {
            true => (vec![group], most),
            false => {
                let heads = self.heads.iter().flatten();
                let heads = heads.map(|head| (head.tenant.clone(), head.workflow));
                let groups: BTreeSet<Group> = heads.chain([group]).collect();
                (groups.into_iter().collect(), FIRST_OF_GROUP.min(most))
            }
        };
        let (tenants, workflows): (Vec<&str>, Vec<Uuid>) = groups
            .iter()
            .map(|(tenant, workflow)| (tenant.as_str(), *workflow))
            .unzip();
        let params: Params<'_> = &[&tenants, &workflows, &claim.now.0, &(limit as i64)];
        let found = dues(tx, GROUPS, params).await?;
        let mut fetched: HashMap<Group, Waiting> = HashMap::new();
        for due in found {
            let group = (due.tenant.clone(), due.workflow);
            fetched.entry(group).or_default().runs.push(due);
        }
        for group in groups {
            let mut waiting = fetched.remove(&group).unwrap_or_default();
            // A claim never needs more runs of a group than its limit.
            waiting.all = waiting.runs.len() < limit || limit >= most;
            self.groups.insert(group, waiting);
        }
        Ok(())
    }
}
