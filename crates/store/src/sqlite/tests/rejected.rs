//! Data that SQLite refuses.

use super::Folder;
use crate::{
    Store,
    conformance::{WORKFLOW, activate, attempt, held_run, step},
    runs::CommitAnswer,
};
use rusqlite::Connection;
use std::sync::Arc;

/// Data that SQLite refuses is rejected alone; a key that is in use is a conflict.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_data_is_rejected() {
    let folder = Folder::new();
    let store: Arc<dyn Store> = Arc::new(folder.open().unwrap());
    activate(&store, WORKFLOW).await;
    let other = Connection::open(folder.path()).unwrap();
    other
        .execute_batch(
            "CREATE TRIGGER rule BEFORE INSERT ON action_executions WHEN NEW.node_id = 'forbidden'
             BEGIN SELECT RAISE(ABORT, 'not this one'); END;
             CREATE UNIQUE INDEX one ON action_executions (action_type) WHERE node_id = 'twice'",
        )
        .unwrap();
    let mut answers = Vec::new();
    for (index, node) in ["fine", "forbidden", "twice", "twice"].into_iter().enumerate() {
        let (run, _) = held_run(&store, &format!("r{index}"), Vec::new()).await;
        let mut commit = step(run, 1, 2);
        commit.attempts = vec![attempt(node, 1, 10)];
        answers.push(store.commit(commit).await);
    }
    assert!(matches!(answers[0], CommitAnswer::Committed { .. }), "{answers:?}");
    assert!(
        matches!(&answers[1], CommitAnswer::Rejected(what) if what.contains("not this one")),
        "{answers:?}"
    );
    assert!(matches!(answers[2], CommitAnswer::Committed { .. }), "{answers:?}");
    assert!(matches!(answers[3], CommitAnswer::Unknown(_)), "{answers:?}");
}
