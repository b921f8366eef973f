//! Removing finished runs.
//!
//! What must stay true: a run's rows go in the transaction that removes the run, and only if it has ended. The runs are locked
//! first, in the order of their ids: so two processes that remove the same runs wait for each other.

use super::{
    PostgresStore,
    columns::{get, maybe, plain},
    error::PgError,
    sessions::{commit, patiently},
};
use crate::{
    Result,
    children::IS_AWAITED,
    retention::{
        CANDIDATES, Candidate, EMPTIED, EXAMINED, PruneBatch, Pruned, RetentionStore, RunDeletion, TABLES, Verdict,
    },
    statements::dollars,
};
use async_trait::async_trait;
use deadpool_postgres::{GenericClient, Object};
use fermata_core::{RunId, Status};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Nothing is added to these runs until the end of the transaction.
const LOCK: &str = "SELECT 1 FROM workflow_executions WHERE id = ANY($1) ORDER BY id FOR UPDATE";

/// Runs, and the runs that they started, theirs, and so on.
const TREES: &str = "WITH RECURSIVE tree (root, id) AS (
    SELECT root, root FROM unnest($1::uuid[]) root
    UNION ALL
    SELECT tree.root, child.id FROM tree JOIN workflow_executions child ON child.parent_execution_id = tree.id)
    SELECT tree.root, run.id, run.status FROM tree JOIN workflow_executions run ON run.id = tree.id";

#[async_trait]
impl RetentionStore for PostgresStore {
    async fn prune(&self, batch: PruneBatch) -> Result<Pruned> {
        let Some(end) = batch.retention.first_kept_run(batch.now) else {
            return Ok(Pruned::default());
        };
        patiently!(self.sessions, |session| prune(&mut session, &batch, end))
    }

    async fn delete_run(&self, run: RunId) -> Result<RunDeletion> {
        patiently!(self.sessions, |session| delete_run(&mut session, run))
    }
}

async fn prune(session: &mut Object, batch: &PruneBatch, end: RunId) -> Result<Pruned, PgError> {
    let after = batch.after.unwrap_or(RunId(Uuid::nil()));
    let (chosen, next) = batch.choose(&candidates(session, after, end).await?);
    let mut pruned = Pruned {
        next,
        ..Pruned::default()
    };
    if chosen.is_empty() {
        return Ok(pruned);
    }
    let tx = session.transaction().await?;
    if !batch.dry_run {
        let ids: Vec<Uuid> = chosen.iter().map(|(run, _)| run.0).collect();
        lock(&tx, &ids).await?;
    }
    for verdict in [Verdict::Empty, Verdict::Delete] {
        let of_verdict = chosen.iter().filter(|(_, given)| *given == verdict);
        let roots: Vec<Uuid> = of_verdict.map(|(run, _)| run.0).collect();
        if roots.is_empty() {
            continue;
        }
        let finished: Vec<Uuid> = trees(&tx, &roots).await?.into_values().flatten().flatten().collect();
        pruned.count(verdict, finished.len());
        if !batch.dry_run {
            remove(&tx, finished, verdict).await?;
        }
    }
    commit(tx).await?;
    Ok(pruned)
}

async fn delete_run(session: &mut Object, run: RunId) -> Result<RunDeletion, PgError> {
    let tx = session.transaction().await?;
    lock(&tx, &[run.0]).await?;
    let deletion = match trees(&tx, &[run.0]).await?.remove(&run.0) {
        None => RunDeletion::NotFound,
        Some(None) => RunDeletion::Unfinished,
        Some(Some(_)) if is_awaited(&tx, run).await? => RunDeletion::Unfinished,
        Some(Some(tree)) => {
            remove(&tx, tree, Verdict::Delete).await?;
            RunDeletion::Deleted
        }
    };
    commit(tx).await?;
    Ok(deletion)
}

async fn is_awaited(client: &impl GenericClient, run: RunId) -> Result<bool, PgError> {
    let statement = client.prepare_cached(&dollars(IS_AWAITED)).await?;
    plain(&client.query_one(&statement, &[&run.0]).await?, 0)
}

async fn lock(client: &impl GenericClient, runs: &[Uuid]) -> Result<(), PgError> {
    let statement = client.prepare_cached(LOCK).await?;
    client.execute(&statement, &[&runs]).await?;
    Ok(())
}

async fn candidates(client: &impl GenericClient, after: RunId, end: RunId) -> Result<Vec<Candidate>, PgError> {
    let statement = client.prepare_cached(&dollars(CANDIDATES)).await?;
    let rows = client
        .query(&statement, &[&after.0, &end.0, &i64::from(EXAMINED)])
        .await?;
    let candidate = |row| {
        Ok(Candidate {
            id: get(row, 0)?,
            workflow_id: plain(row, 1)?,
            status: get(row, 2)?,
            ended_at: maybe(row, 3)?,
            emptied: plain(row, 4)?,
            is_root: plain(row, 5)?,
        })
    };
    rows.iter().map(candidate).collect()
}

/// Each run that exists, with all runs below it and itself. `None` if one of them has not ended.
async fn trees(client: &impl GenericClient, roots: &[Uuid]) -> Result<BTreeMap<Uuid, Option<Vec<Uuid>>>, PgError> {
    let statement = client.prepare_cached(TREES).await?;
    let mut trees: BTreeMap<Uuid, Vec<Uuid>> = BTreeMap::new();
    let mut unfinished = BTreeSet::new();
    for row in client.query(&statement, &[&roots]).await? {
        let (root, run, status): (Uuid, Uuid, Status) = (plain(&row, 0)?, plain(&row, 1)?, get(&row, 2)?);
        trees.entry(root).or_default().push(run);
        if !status.is_terminal() {
            unfinished.insert(root);
        }
    }
    let judged = trees.into_iter().map(|(root, tree)| {
        let tree = (!unfinished.contains(&root)).then_some(tree);
        (root, tree)
    });
    Ok(judged.collect())
}

async fn remove(client: &impl GenericClient, runs: Vec<Uuid>, verdict: Verdict) -> Result<(), PgError> {
    let change = match verdict {
        Verdict::Keep => return Ok(()),
        Verdict::Empty => format!("UPDATE workflow_executions SET {EMPTIED} WHERE id = ANY($1)"),
        Verdict::Delete => "DELETE FROM workflow_executions WHERE id = ANY($1)".to_owned(),
    };
    let rest = TABLES.map(|table| format!("DELETE FROM {table} WHERE workflow_execution_id = ANY($1)"));
    for sql in std::iter::once(change).chain(rest) {
        let statement = client.prepare_cached(&sql).await?;
        client.execute(&statement, &[&runs]).await?;
    }
    Ok(())
}
