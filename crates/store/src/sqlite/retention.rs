//! Removing finished runs. Readers look for runs that are due; the writer removes them.
//!
//! What must stay true: whether a run has ended is read in the transaction that removes it.

use super::{
    SqliteStore,
    columns::{get, key, maybe, run_id},
    open::{self, Purpose},
};
use crate::{
    Result, StoreError,
    children::IS_AWAITED,
    retention::{
        CANDIDATES, Candidate, EMPTIED, EXAMINED, PruneBatch, Pruned, RetentionStore, RunDeletion, TABLES, Verdict,
    },
    schema::Migrate,
};
use async_trait::async_trait;
use fermata_core::{RunId, Status};
use rusqlite::Connection;
use std::path::Path;
use uuid::Uuid;

/// The runs that a run started, theirs, and so on, after the run itself. The planner has no statistics, so the index is named.
const TREE: &str = "WITH RECURSIVE tree (id, status) AS (
    SELECT id, status FROM workflow_executions WHERE id = ?1
    UNION ALL
    SELECT child.id, child.status FROM tree
    CROSS JOIN workflow_executions child INDEXED BY ix_executions_parent ON child.parent_execution_id = tree.id)
    SELECT id, status FROM tree";

/// One step of giving space back has at most this many pages.
const RECLAIMED: i64 = 256;
/// Unused pages up to this part of the file stay: new runs will use them.
const SPARE_PART: i64 = 8;

#[async_trait]
impl RetentionStore for SqliteStore {
    async fn prune(&self, batch: PruneBatch) -> Result<Pruned> {
        let Some(end) = batch.retention.first_kept_run(batch.now) else {
            return Ok(Pruned::default());
        };
        let dry_run = batch.dry_run;
        let examine = move |connection: &Connection| {
            let after = batch.after.unwrap_or(RunId(Uuid::nil()));
            let (chosen, next) = batch.choose(&candidates(connection, after, end)?);
            let mut pruned = Pruned {
                next,
                ..Pruned::default()
            };
            if batch.dry_run {
                for (run, verdict) in &chosen {
                    pruned.count(*verdict, finished_tree(connection, *run)?.map_or(0, |tree| tree.len()));
                }
            }
            Ok((chosen, pruned))
        };
        let (chosen, mut pruned) = self.readers.read(examine).await?;
        if dry_run || chosen.is_empty() {
            return Ok(pruned);
        }
        let remove_all = move |tx: &mut super::writer::Tx<'_>| {
            let mut counted = Pruned::default();
            for (run, verdict) in &chosen {
                if let Some(tree) = finished_tree(tx.connection, *run)? {
                    remove(tx.connection, &tree, *verdict)?;
                    counted.count(*verdict, tree.len());
                }
            }
            Ok(counted)
        };
        let counted = self.writer.write(remove_all).await?;
        (pruned.deleted, pruned.emptied) = (counted.deleted, counted.emptied);
        Ok(pruned)
    }

    async fn delete_run(&self, run: RunId) -> Result<RunDeletion> {
        let delete = move |tx: &mut super::writer::Tx<'_>| match finished_tree(tx.connection, run)? {
            Some(tree) if tree.is_empty() => Ok(RunDeletion::NotFound),
            Some(_) if is_awaited(tx.connection, run)? => Ok(RunDeletion::Unfinished),
            Some(tree) => {
                remove(tx.connection, &tree, Verdict::Delete)?;
                Ok(RunDeletion::Deleted)
            }
            None => Ok(RunDeletion::Unfinished),
        };
        self.writer.write(delete).await
    }

    /// Only files that were vacuumed by [`SqliteStore::vacuum`] can give back single pages.
    async fn reclaim(&self) -> Result<bool> {
        self.writer
            .write(|tx| {
                let number = |sql| tx.connection.query_row(sql, [], |row| row.get::<_, i64>(0));
                let surplus = number("PRAGMA freelist_count")? - number("PRAGMA page_count")? / SPARE_PART;
                if surplus <= 0 || number("PRAGMA auto_vacuum")? != INCREMENTAL {
                    return Ok(false);
                }
                let sql = format!("PRAGMA incremental_vacuum({})", surplus.min(RECLAIMED));
                let mut statement = tx.connection.prepare(&sql)?;
                let mut rows = statement.query([])?;
                // A page is freed with each row.
                while rows.next()?.is_some() {}
                Ok(surplus > RECLAIMED)
            })
            .await
    }
}

/// The value of `PRAGMA auto_vacuum`.
pub(super) const INCREMENTAL: i64 = 2;

impl SqliteStore {
    /// Rewrites the file at `path` without unused space, and so that it can give back space while it is in use. No other
    /// process may have it open. The disk of the temporary files (`SQLITE_TMPDIR`) must have room for a second copy, and
    /// the disk of the file for a log of the same size.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub fn vacuum(path: &Path) -> Result<()> {
        let opened = open::open(path, Purpose::Store(Migrate::Auto))?;
        // With `temp_store = MEMORY` the second copy would be in memory.
        let vacuumed = opened.connection.execute_batch(
            "PRAGMA temp_store = FILE; PRAGMA auto_vacuum = INCREMENTAL; VACUUM; PRAGMA wal_checkpoint(TRUNCATE);",
        );
        vacuumed.map_err(|error| StoreError::Failed(error.to_string()))
    }
}

fn candidates(connection: &Connection, after: RunId, end: RunId) -> rusqlite::Result<Vec<Candidate>> {
    let mut statement = connection.prepare_cached(CANDIDATES)?;
    let rows = statement.query_map((key(&after), key(&end), EXAMINED), |row| {
        Ok(Candidate {
            id: run_id(row, 0)?,
            workflow_id: row.get(1)?,
            status: get(row, 2)?,
            ended_at: maybe(row, 3)?,
            emptied: row.get(4)?,
            is_root: row.get(5)?,
        })
    })?;
    rows.collect()
}

fn is_awaited(connection: &Connection, run: RunId) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(IS_AWAITED)?
        .query_row([key(&run)], |row| row.get(0))
}

/// A run and all runs below it, or none of them if there is no such run. `None` if one of them has not ended.
fn finished_tree(connection: &Connection, run: RunId) -> rusqlite::Result<Option<Vec<RunId>>> {
    let mut statement = connection.prepare_cached(TREE)?;
    let rows = statement.query_map([key(&run)], |row| Ok((run_id(row, 0)?, get::<Status>(row, 1)?)))?;
    let mut tree = Vec::new();
    for row in rows {
        let (id, status) = row?;
        if !status.is_terminal() {
            return Ok(None);
        }
        tree.push(id);
    }
    Ok(Some(tree))
}

fn remove(connection: &Connection, runs: &[RunId], verdict: Verdict) -> rusqlite::Result<()> {
    for table in TABLES {
        let sql = format!("DELETE FROM {table} WHERE workflow_execution_id = ?1");
        let mut delete = connection.prepare_cached(&sql)?;
        for run in runs {
            delete.execute([key(run)])?;
        }
    }
    let sql = match verdict {
        Verdict::Keep => return Ok(()),
        Verdict::Empty => format!("UPDATE workflow_executions SET {EMPTIED} WHERE id = ?1"),
        Verdict::Delete => "DELETE FROM workflow_executions WHERE id = ?1".to_owned(),
    };
    let mut change = connection.prepare_cached(&sql)?;
    for run in runs {
        change.execute([key(run)])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Store, conformance, reads::Window};
    use std::sync::Arc;

    fn auto_vacuum(path: &Path) -> i64 {
        let connection = open::open_reader(path).unwrap();
        connection
            .query_row("PRAGMA auto_vacuum", [], |row| row.get(0))
            .unwrap()
    }

    /// Fills the file with pages and frees them.
    async fn free_pages(store: &SqliteStore) {
        for sql in [
            "INSERT INTO meta (key, value) VALUES ('filling', zeroblob(16777216))",
            "DELETE FROM meta WHERE key = 'filling'",
        ] {
            let write = store.writer.write(move |tx| tx.connection.execute(sql, []).map(drop));
            write.await.unwrap();
        }
    }

    #[tokio::test]
    async fn unused_space_is_given_back_in_steps() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.db");
        SqliteStore::open(&path).unwrap().close().await.unwrap();
        SqliteStore::vacuum(&path).unwrap();
        assert_eq!(auto_vacuum(&path), INCREMENTAL);
        let store = SqliteStore::open(&path).unwrap();
        free_pages(&store).await;
        let mut steps = 1;
        while store.reclaim().await.unwrap() {
            steps += 1;
        }
        assert!(steps > 2, "{steps} steps");
        store.close().await.unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() < 4 << 20);
    }

    #[tokio::test]
    async fn files_give_back_space_once_they_are_vacuumed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.db");
        let store = SqliteStore::open(&path).unwrap();
        assert_eq!(auto_vacuum(&path), 0);
        free_pages(&store).await;
        assert!(!store.reclaim().await.unwrap());
        store.close().await.unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() > 16 << 20);
        SqliteStore::vacuum(&path).unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() < 4 << 20);
        assert_eq!(auto_vacuum(&path), INCREMENTAL);
    }

    /// The last statement of a removal fails, as in a crash before its commit.
    #[tokio::test]
    async fn a_failed_removal_leaves_the_run_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.db");
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).unwrap());
        conformance::activate(&store, conformance::WORKFLOW).await;
        let (run, _) = conformance::held_run(&store, "r", vec![conformance::open("w", "t")]).await;
        conformance::committed(&store, conformance::end(run, 1, 2, Status::Succeeded)).await;
        let other = Connection::open(&path).unwrap();
        let failing = "CREATE TRIGGER failing BEFORE DELETE ON workflow_executions
            BEGIN SELECT RAISE(ABORT, 'it fails'); END";
        other.execute_batch(failing).unwrap();
        assert!(store.delete_run(run).await.is_err());
        let all = Window { limit: 9, offset: 0 };
        assert_eq!(store.events(run, all).await.unwrap().1, 2);
        assert_eq!(store.waits(run).await.unwrap().len(), 1);
        other.execute_batch("DROP TRIGGER failing").unwrap();
        assert_eq!(store.delete_run(run).await.unwrap(), RunDeletion::Deleted);
        assert_eq!(store.events(run, all).await.unwrap().1, 0);
        store.close().await.unwrap();
    }
}
