//! Cached states of runs.

use super::*;
use crate::{retention::RunDeletion, runs::CachedState};

fn with(commit: RunCommit, state: CachedState) -> RunCommit {
    RunCommit {
        state: Some(state),
        ..commit
    }
}

fn set(text: &str) -> CachedState {
    CachedState::Set(text.to_owned())
}

async fn state(store: &Arc<dyn Store>, run: RunId) -> Option<String> {
    store.cached_state(run).await.unwrap()
}

/// The cached state of a run is replaced by a later one, belongs to its run only, and is removed when a commit says so.
pub async fn cached_states_are_replaced_and_removed(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (one, two) = (
        held_run(store, "r1", Vec::new()).await.0,
        held_run(store, "r2", Vec::new()).await.0,
    );
    assert_eq!(state(store, one).await, None);
    committed(store, with(step(one, 1, 2), set(r#"{"a":1}"#))).await;
    committed(store, with(step(two, 1, 2), set(r#"{"of":"two"}"#))).await;
    committed(store, step(one, 1, 3)).await;
    assert_eq!(state(store, one).await.as_deref(), Some(r#"{"a":1}"#));
    let large = format!(r#"{{"ünicode\u0000":"{}"}}"#, "x".repeat(1 << 20));
    committed(store, with(park(one, 1, 4, None), set(&large))).await;
    assert_eq!(state(store, one).await, Some(large));
    let epoch = take(store, one).await.epoch;
    committed(store, with(end(one, epoch, 5, Status::Succeeded), CachedState::Remove)).await;
    assert_eq!(state(store, one).await, None);
    assert_eq!(state(store, two).await.as_deref(), Some(r#"{"of":"two"}"#));
    committed(store, with(step(two, 1, 3), CachedState::Remove)).await;
    committed(store, with(step(two, 1, 4), CachedState::Remove)).await;
    assert_eq!(state(store, two).await, None);
    assert_eq!(state(store, run_id()).await, None);
}

/// A refused commit changes no cached state.
pub async fn refused_commits_change_no_cached_state(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let run = held_run(store, "r1", Vec::new()).await.0;
    committed(store, with(step(run, 1, 2), set("{}"))).await;
    for refused in [
        with(step(run, 9, 3), set(r#"{"x":1}"#)),
        with(step(run, 9, 3), CachedState::Remove),
        with(step(run, 1, 7), set(r#"{"x":1}"#)),
        with(step(run, 1, 7), CachedState::Remove),
    ] {
        let answer = store.commit(refused).await;
        assert!(!matches!(answer, CommitAnswer::Committed { .. }), "{answer:?}");
    }
    assert_eq!(state(store, run).await.as_deref(), Some("{}"));
}

/// A run that ended without removing its cached state takes it along when it is deleted.
pub async fn cached_states_are_deleted_with_their_run(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let run = held_run(store, "r1", Vec::new()).await.0;
    committed(store, with(step(run, 1, 2), set("{}"))).await;
    committed(store, end(run, 1, 3, Status::Succeeded)).await;
    assert_eq!(state(store, run).await.as_deref(), Some("{}"));
    let deleted = store.delete_run(run).await.unwrap();
    assert!(matches!(deleted, RunDeletion::Deleted), "{deleted:?}");
    assert_eq!(state(store, run).await, None);
}
