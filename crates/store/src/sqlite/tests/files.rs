//! The database files: permissions, locks, deleted files, and damage in the log.

use super::Folder;
use crate::{
    ReadStore, Store, StoreError,
    conformance::{WORKFLOW, activate, held_run, new_run, step},
    runs::{CommitAnswer, Enqueued},
    sqlite::{SqliteStore, log_check},
};
use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::Arc,
};

const FRAME: usize = 24 + 8192;

fn beside(path: &Path, suffix: &str) -> PathBuf {
    format!("{}{suffix}", path.display()).into()
}

async fn store(folder: &Folder) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(folder.open().unwrap());
    activate(&store, WORKFLOW).await;
    store
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_owner_may_read_the_files() {
    let folder = Folder::new();
    let _store = store(&folder).await;
    for suffix in ["", "-wal", "-shm", "-lock"] {
        let path = beside(&folder.path(), suffix);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_opened_once_under_any_name() {
    let folder = Folder::new();
    let kept = store(&folder).await;
    let (soft, hard) = (beside(&folder.path(), ".soft"), beside(&folder.path(), ".hard"));
    symlink(folder.path(), &soft).unwrap();
    fs::hard_link(folder.path(), &hard).unwrap();
    for path in [&folder.path(), &soft, &hard] {
        let answer = SqliteStore::open(path).err();
        assert!(
            matches!(answer, Some(StoreError::Locked { .. })),
            "{path:?}: {answer:?}"
        );
    }
    kept.close().await.unwrap();
    drop(kept);
    SqliteStore::open(&soft).unwrap();
}

/// A symbolic link to a missing file names a new database.
#[test]
fn a_link_to_a_missing_file_is_a_new_database() {
    let folder = Folder::new();
    let target = beside(&folder.path(), ".target");
    symlink(&target, folder.path()).unwrap();
    drop(folder.open().unwrap());
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_acknowledged_after_the_file_was_deleted() {
    for suffix in ["", "-wal"] {
        let folder = Folder::new();
        let store = store(&folder).await;
        let (run, _) = held_run(&store, "before", Vec::new()).await;
        let (path, aside) = (beside(&folder.path(), suffix), beside(&folder.path(), ".aside"));
        // Deleted, then replaced.
        fs::rename(&path, &aside).unwrap();
        for replaced in [false, true] {
            if replaced {
                fs::write(&path, fs::read(&aside).unwrap()).unwrap();
            }
            let answer = store.enqueue(new_run("lost")).await;
            assert!(
                matches!(answer, Err(StoreError::Unavailable(_))),
                "{suffix} {replaced}: {answer:?}"
            );
            let answer = store.commit(step(run, 1, 2)).await;
            assert!(
                matches!(answer, CommitAnswer::Unknown(_)),
                "{suffix} {replaced}: {answer:?}"
            );
            assert!(store.ping().await.is_err(), "readiness fails as well");
        }
        // The same file again.
        fs::rename(&aside, &path).unwrap();
        store.ping().await.unwrap();
        assert_eq!(store.enqueue(new_run("after")).await.unwrap(), Enqueued::Created);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_truncated_when_it_restarts() {
    let folder = Folder::new();
    let store = folder.open().unwrap();
    let limit = store.writer.write(|tx| {
        let sql = "PRAGMA journal_size_limit";
        tx.connection.query_row(sql, [], |row| row.get::<_, i64>(0))
    });
    assert_eq!(limit.await.unwrap(), 64 << 20);
}

/// A database with a log of many transactions, as a crash leaves it.
async fn crashed() -> (Folder, usize) {
    let (alive, crashed) = (Folder::new(), Folder::new());
    let store = store(&alive).await;
    for index in 0..20 {
        store.enqueue(new_run(&format!("r{index}"))).await.unwrap();
    }
    for suffix in ["", "-wal"] {
        fs::copy(beside(&alive.path(), suffix), beside(&crashed.path(), suffix)).unwrap();
    }
    let frames = (fs::metadata(beside(&crashed.path(), "-wal")).unwrap().len() as usize - 32) / FRAME;
    assert!(frames > 40, "{frames}");
    (crashed, frames)
}

fn damage(folder: &Folder, frame: usize) {
    let path = beside(&folder.path(), "-wal");
    let mut log = fs::read(&path).unwrap();
    log[32 + (frame - 1) * FRAME + 24 + 100] ^= 1;
    fs::write(path, log).unwrap();
}

async fn runs(folder: &Folder) -> usize {
    let store = folder.open().unwrap();
    let filter = crate::reads::RunFilter {
        limit: 100,
        ..Default::default()
    };
    store.runs(filter).await.unwrap().items.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_in_the_middle_of_the_log_is_reported() {
    let (folder, frames) = crashed().await;
    damage(&folder, frames / 2);
    let before = fs::read(beside(&folder.path(), "-wal")).unwrap();
    match folder.open().err() {
        Some(StoreError::Damaged { what, .. }) => {
            assert!(what.contains(&format!("damaged at frame {}", frames / 2)), "{what}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        fs::read(beside(&folder.path(), "-wal")).unwrap(),
        before,
        "nothing was changed"
    );
    damage(&folder, frames / 2); // and back
    assert_eq!(runs(&folder).await, 20);
}

/// A crash may leave any part of the last transaction; the database opens without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_transaction_is_dropped() {
    let (folder, frames) = crashed().await;
    damage(&folder, frames);
    assert_eq!(runs(&folder).await, 19);
    for kept in [FRAME / 2, FRAME, FRAME + 1] {
        let (folder, frames) = crashed().await;
        let path = beside(&folder.path(), "-wal");
        let log = fs::OpenOptions::new().write(true).open(&path).unwrap();
        log.set_len((32 + (frames - 2) * FRAME + kept) as u64).unwrap();
        drop(log);
        assert_eq!(log_check::check(&path).unwrap(), log_check::Found::Sound);
        assert_eq!(runs(&folder).await, 19, "{kept}");
    }
}
