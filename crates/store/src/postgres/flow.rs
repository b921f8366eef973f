//! [`FlowStore`]: runs that ask at their first claim share the batches of the committers; the sweep has a transaction of its
//! own.
//!
//! What must stay true: the sweep never waits for a row. It locks keys and runs with `SKIP LOCKED`, and what it left out is
//! found by the next one.

use super::{
    PostgresStore,
    columns::{flow, get, plain, small},
    error::PgError,
    hints::Notifications,
    mistaken,
    sessions::{commit, patiently},
    sql,
    work::{Outcome, Work},
};
use crate::{
    Result,
    flow::{
        Admission, Admit, FIRST_WAITING, FlowStore, KEPT_REQUESTS_MS, MAX_AHEAD, RELEASED_AT_ONCE, SET_LIMIT, Swept,
        UNFREED, awaited_by, paused_key, paused_workflow, places_of, rules,
    },
    statements::dollars,
};
use async_trait::async_trait;
use deadpool_postgres::{GenericClient, Object, Transaction};
use fermata_core::{RunId, Timestamp};
use std::collections::BTreeMap;
use uuid::Uuid;

pub(super) const WAKE_WAITING: &str = "UPDATE workflow_executions SET wake_at = $4 WHERE ctid = ANY(ARRAY(SELECT ctid
    FROM workflow_executions WHERE waiting_key > $1 AND waiting_key < $2 AND workflow_uid = $3 AND wake_at IS NULL
    ORDER BY waiting_key LIMIT $5 FOR NO KEY UPDATE SKIP LOCKED))";

const WAITS_FOR: &str = "SELECT waiting_key FROM workflow_executions WHERE id = $1";

/// The next keys that runs wait for. Each is visited once, however many runs wait for it.
pub(super) const NEXT_WAITING: &str = "WITH RECURSIVE keys (key) AS (
      SELECT (SELECT waiting_key FROM workflow_executions WHERE waiting_key > $1 AND waiting_key IS NOT NULL
        ORDER BY waiting_key LIMIT 1)
      UNION ALL
      SELECT (SELECT e.waiting_key FROM workflow_executions e WHERE e.waiting_key > k.key AND e.waiting_key IS NOT NULL
        ORDER BY e.waiting_key LIMIT 1) FROM keys k WHERE k.key IS NOT NULL)
    SELECT key FROM keys WHERE key IS NOT NULL LIMIT $2";

/// Of these keys, those with a free place. The others are not locked.
pub(super) const SPARE: &str = "SELECT u.key FROM unnest($1::text[]) AS u (key)
    WHERE COALESCE((SELECT k.held < k.most FROM flow_keys k WHERE k.key = u.key), true)";

/// Ended runs whose places were not freed.
pub(super) fn unfreed() -> String {
    let unfreed = dollars(UNFREED).replace("SELECT id", "SELECT id, flow_json, flow_step, flow_held, waiting_key");
    format!("{unfreed} FOR NO KEY UPDATE SKIP LOCKED")
}

/// Makes runs due that wait for the resume of a workflow that is not paused.
pub(super) const RELEASE_PAUSED: &str = "UPDATE workflow_executions SET waiting_key = NULL,
    wake_at = LEAST(COALESCE(wake_at, $3), $3)
    WHERE ctid = ANY(ARRAY(SELECT ctid FROM workflow_executions WHERE waiting_key = $1
      ORDER BY waiting_key, COALESCE(priority, 0) DESC, id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED))
    AND NOT EXISTS (SELECT 1 FROM workflows WHERE uid = $4 AND paused_at IS NOT NULL AND deleted_at IS NULL)";

pub(super) const CLEAR: &str = "UPDATE workflow_executions SET flow_json = NULL, flow_step = NULL, flow_held = NULL,
    waiting_key = NULL WHERE id = ANY($1)";

pub(super) const DISOWN: &str = "UPDATE flow_keys SET workflow_execution_id = NULL, begin_at = NULL
    WHERE key = ANY($1) AND workflow_execution_id = ANY($2)";

/// A key that runs wait for, and that has no limit yet, lost its row while they waited.
pub(super) const SET_MISSING_LIMITS: &str = "UPDATE flow_keys SET most = 1 WHERE key = ANY($1) AND most = 0";

pub(super) const FORGET_RATES: &str = "DELETE FROM flow_keys WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow_keys
    WHERE expires_at IS NOT NULL AND expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))";

pub(super) const FORGET_REQUESTS: &str =
    "DELETE FROM merged_requests WHERE ctid = ANY(ARRAY(SELECT ctid FROM merged_requests
    WHERE created_at <= $1 ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED))";

#[async_trait]
impl FlowStore for PostgresStore {
    async fn admit(&self, request: Admit) -> Result<Admission> {
        match self.write(Work::Admit(Box::new(request))).await? {
            Outcome::Admitted(answer) => Ok(answer),
            other => Err(mistaken(&other)),
        }
    }

    async fn wake_waiting(&self, workflow: Uuid, limit: u32, now: Timestamp) -> Result<u32> {
        let woken = patiently!(self.sessions, |session| wake_waiting(&session, workflow, limit, now))?;
        if woken > 0 {
            self.publish_due(now);
        }
        Ok(woken)
    }

    async fn ahead(&self, run: RunId) -> Result<Option<u32>> {
        patiently!(self.sessions, |session| ahead(&session, run))
    }

    async fn release_paused(&self, workflow: Uuid, limit: u32, now: Timestamp) -> Result<u32> {
        let released = patiently!(self.sessions, |session| release_paused(
            &mut session,
            workflow,
            limit,
            now
        ))?;
        if released > 0 {
            self.publish_due(now);
        }
        Ok(released)
    }

    async fn sweep_flow(&self, after: Option<String>, limit: u32, now: Timestamp) -> Result<Swept> {
        let after = after.unwrap_or_default();
        let swept = patiently!(self.sessions, |session| sweep(&mut session, &after, limit, now))?;
        if swept.handed > 0 {
            self.publish_due(now);
        }
        Ok(swept)
    }
}

impl PostgresStore {
    /// Tells all processes that runs are due.
    fn publish_due(&self, at: Timestamp) {
        let mut notifications = Notifications::default();
        notifications.due(at);
        self.hints.publish(&notifications);
    }
}

async fn wake_waiting(client: &impl GenericClient, workflow: Uuid, limit: u32, now: Timestamp) -> Result<u32, PgError> {
    let wake = client.prepare_cached(WAKE_WAITING).await?;
    let mut woken = 0;
    for (first, last) in awaited_by(workflow) {
        let left = i64::from(limit - woken);
        let count = client
            .execute(&wake, &[&first, &last, &workflow, &now.0, &left])
            .await?;
        woken += u32::try_from(count).unwrap_or(limit).min(limit - woken);
    }
    Ok(woken)
}

/// Gives the keys of a workflow the limit of this plan, which is current now. The sweep hands over places that are free then. The
/// workflow is locked; a batch never waits for a key that is locked here, so there is no deadlock.
pub(super) async fn set_limit(tx: &Transaction<'_>, workflow: Uuid, version: u32, plan: &str) -> Result<(), PgError> {
    let (first, last) = places_of(workflow);
    let set = tx.prepare_cached(&dollars(SET_LIMIT)).await?;
    let (most, version) = (small(rules::limit_of(plan)), small(version));
    tx.execute(&set, &[&first, &last, &most, &version]).await?;
    Ok(())
}

async fn ahead(client: &impl GenericClient, run: RunId) -> Result<Option<u32>, PgError> {
    let waits_for = client.prepare_cached(WAITS_FOR).await?;
    let row = client.query_opt(&waits_for, &[&run.0]).await?;
    let waiting: Option<String> = row.map(|row| plain(&row, 0)).transpose()?.flatten();
    let Some(waiting) = waiting else {
        return Ok(None);
    };
    let first = client.prepare_cached(&dollars(FIRST_WAITING)).await?;
    let first = client.query(&first, &[&waiting, &i64::from(MAX_AHEAD)]).await?;
    let mut ahead = 0;
    for row in &first {
        if get::<RunId>(row, 0)? == run {
            break;
        }
        ahead += 1;
    }
    Ok(Some(ahead))
}

async fn release_paused(session: &mut Object, workflow: Uuid, limit: u32, now: Timestamp) -> Result<u32, PgError> {
    let tx = session.transaction().await?;
    let released = release(&tx, workflow, limit, now).await?;
    commit(tx).await?;
    Ok(released)
}

async fn release(tx: &Transaction<'_>, workflow: Uuid, limit: u32, now: Timestamp) -> Result<u32, PgError> {
    let release = tx.prepare_cached(RELEASE_PAUSED).await?;
    let key = paused_key(workflow);
    let released = tx
        .execute(&release, &[&key, &i64::from(limit), &now.0, &workflow])
        .await?;
    Ok(u32::try_from(released).unwrap_or(u32::MAX))
}

async fn sweep(session: &mut Object, after: &str, limit: u32, now: Timestamp) -> Result<Swept, PgError> {
    let (many, tx) = (i64::from(limit), session.transaction().await?);
    let next = tx.prepare_cached(NEXT_WAITING).await?;
    let waiting = tx.query(&next, &[&after, &many]).await?;
    let waiting: Vec<String> = waiting.iter().map(|row| plain(row, 0)).collect::<Result<_, _>>()?;
    let next = waiting.last().filter(|_| waiting.len() == limit as usize).cloned();
    let mut freed: BTreeMap<String, i32> = BTreeMap::new();
    let mut released = 0;
    for workflow in waiting.iter().filter_map(|key| paused_workflow(key)) {
        released += release(&tx, workflow, RELEASED_AT_ONCE, now).await?;
    }
    let waiting: Vec<String> = waiting
        .into_iter()
        .filter(|key| paused_workflow(key).is_none())
        .collect();
    if !waiting.is_empty() {
        let spare = tx.prepare_cached(SPARE).await?;
        for row in tx.query(&spare, &[&waiting]).await? {
            freed.insert(plain(&row, 0)?, 0);
        }
    }
    let ended = ended(&tx, many, &mut freed).await?;
    let mut handed = released;
    if !freed.is_empty() {
        handed += hand_over(&tx, &ended, freed, now).await?;
    }
    let rates = tx.prepare_cached(FORGET_RATES).await?;
    tx.execute(&rates, &[&now.0, &many]).await?;
    let requests = tx.prepare_cached(FORGET_REQUESTS).await?;
    let kept_since = now.0.saturating_sub(KEPT_REQUESTS_MS as i64 * 1000);
    tx.execute(&requests, &[&kept_since, &many]).await?;
    commit(tx).await?;
    Ok(Swept { next, handed })
}

/// An ended run, and the keys that it holds or owns.
type EndedRun = (Uuid, Vec<String>, Vec<String>);

/// Locks ended runs whose places were not freed, and adds their keys.
async fn ended(tx: &Transaction<'_>, many: i64, freed: &mut BTreeMap<String, i32>) -> Result<Vec<EndedRun>, PgError> {
    let unfreed = tx.prepare_cached(&unfreed()).await?;
    let mut ended = Vec::new();
    for row in tx.query(&unfreed, &[&many]).await? {
        let Some(stored) = flow(&row, 1)? else { continue };
        let places: Vec<String> = rules::freed(&stored).map(str::to_owned).collect();
        let owned: Vec<String> = stored.flow.owned().map(str::to_owned).collect();
        for key in places.iter().chain(&owned) {
            freed.entry(key.clone()).or_default();
        }
        ended.push((get::<RunId>(&row, 0)?.0, places, owned));
    }
    Ok(ended)
}

/// Locks the keys that are free, frees the places of ended runs, and gives free places to runs that wait. An ended run of
/// which another transaction has locked a key is left for the next sweep. Returns how many runs got a place.
async fn hand_over(
    tx: &Transaction<'_>,
    ended: &[EndedRun],
    mut freed: BTreeMap<String, i32>,
    now: Timestamp,
) -> Result<u32, PgError> {
    let keys: Vec<&String> = freed.keys().collect();
    let create = tx.prepare_cached(sql::named("create_keys")).await?;
    tx.execute(&create, &[&keys]).await?;
    let lock = tx.prepare_cached(sql::named("lock_keys")).await?;
    let mut locked: Vec<String> = Vec::new();
    for row in tx.query(&lock, &[&keys]).await? {
        locked.push(plain(&row, 0)?);
    }
    freed.retain(|key, _| locked.contains(key));
    let (mut cleared, mut owned) = (Vec::new(), Vec::new());
    for (run, places, owns) in ended {
        if places.iter().chain(owns).all(|key| freed.contains_key(key)) {
            for place in places {
                *freed.entry(place.clone()).or_default() += 1;
            }
            owned.extend(owns.iter().cloned());
            cleared.push(*run);
        }
    }
    tx.execute(CLEAR, &[&cleared]).await?;
    tx.execute(DISOWN, &[&owned, &cleared]).await?;
    let (keys, counts): (Vec<String>, Vec<i32>) = freed.into_iter().unzip();
    tx.execute(SET_MISSING_LIMITS, &[&keys]).await?;
    let hand_over = tx.prepare_cached(sql::named("hand_over")).await?;
    let handed = tx.query(&hand_over, &[&keys, &counts, &now.0]).await?;
    let drop = tx.prepare_cached(sql::named("drop_keys")).await?;
    tx.execute(&drop, &[&keys]).await?;
    Ok(u32::try_from(handed.len()).unwrap_or(u32::MAX))
}
