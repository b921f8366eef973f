//! `sp_record_action_attempt`, `sp_link_external_resource` and `sp_check_resource_exists`.

use super::*;
use crate::conformance::commit::ALL;
use crate::{
    conformance::{ME, attempt, committed, end, link, step, take},
    reads::Window,
    runs::{Attempt, AttemptStatus, CommitAnswer, Conflict},
};
use fermata_core::Status;

const RECORD: &str = "SELECT sp_record_action_attempt($1, $2, $3, $4, $5, $6, $7::text::jsonb, $8::text::jsonb,
    $9::text::jsonb)";
const LINK: &str = "SELECT sp_link_external_resource($1, $2, $3, 'message', $4, $5)";

async fn attempts(store: &Arc<dyn Store>, run: RunId) -> Vec<Attempt> {
    store.actions(run, Window { limit: 100, offset: 0 }).await.unwrap().0
}

async fn linked(app: &App, run: RunId, attempt: Uuid, id: &str) -> Result<String, Refused> {
    let row = app
        .one(LINK, &[&run.0, &attempt, &"slack", &id, &"https://example.com"])
        .await?;
    Ok(row.get(0))
}

/// The owner of a resource as `(exists, execution_id)`.
async fn owner(app: &App, id: &str) -> (bool, Option<Uuid>) {
    let sql = r#"SELECT "exists", execution_id FROM sp_check_resource_exists('slack', 'message', $1)"#;
    let row = app.one(sql, &[&id]).await.unwrap();
    (row.get("exists"), row.get("execution_id"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_are_recorded_once() {
    let (_database, store, app) = setup().await;
    let run = app.held("r1").await;
    let params: [&(dyn ToSql + Sync); 9] = [
        &run.0,
        &"charge",
        &"http.request",
        &"RetriableFailure",
        &2,
        &1,
        &r#"{"p":[1,null]}"#,
        &"null",
        &r#"{"code":"E","message":"m"}"#,
    ];
    let first: Uuid = app.one(RECORD, &params).await.unwrap().get(0);
    let rows = attempts(&store, run).await;
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!((row.node.as_str(), row.attempt), ("charge", 2));
    assert_eq!(
        (row.action_type.as_str(), row.status),
        ("http.request", AttemptStatus::RetriableFailure)
    );
    assert_eq!(row.parameters.as_deref(), Some(r#"{"p": [1, null]}"#));
    assert_eq!(
        (row.outputs.as_deref(), row.error.as_deref()),
        (Some("null"), Some(r#"{"code": "E", "message": "m"}"#))
    );
    assert!(row.started_at.is_none() && row.ended_at <= now());
    // The first record of an attempt is kept, and its id never changes.
    assert_eq!(app.record(run, "charge", "Succeeded", 2).await.unwrap(), first);
    assert_eq!(attempts(&store, run).await, rows);
    let others = [
        app.record(run, "charge", "Succeeded", 3).await.unwrap(),
        app.record(run, "charge2", "Skipped", 1).await.unwrap(),
        app.record(app.held("r2").await, "charge", "Failed", 2).await.unwrap(),
    ];
    for id in others {
        assert_ne!(id, first);
        assert_eq!((id.get_version_num(), id.get_variant()), (8, uuid::Variant::RFC4122));
    }
    let bare = attempts(&store, run)
        .await
        .into_iter()
        .find(|row| row.attempt == 3)
        .unwrap();
    assert_eq!((bare.parameters, bare.outputs, bare.error), (None, None, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_attempts_are_refused() {
    let (_database, store, app) = setup().await;
    let run = app.held("r1").await;
    for status in ["Running", "succeeded", "", "%"] {
        expect(
            app.record(run, "n", status, 1).await,
            "WF005",
            &format!("Skipped, not \"{status}\""),
        );
    }
    for number in [0, -1, i32::MIN] {
        expect(
            app.record(run, "n", "Failed", number).await,
            "WF005",
            "p_attempt counts from 1",
        );
    }
    for retries in [-1, 0, 2] {
        let sql = "SELECT sp_record_action_attempt($1, 'n', 'a', 'Failed', 2, $2)";
        expect(
            app.one(sql, &[&run.0, &retries]).await.map(drop),
            "WF005",
            "p_retry_count is one less",
        );
    }
    expect(app.record(run, "", "Failed", 1).await, "WF005", "p_node_id must have");
    let sql = "SELECT sp_record_action_attempt($1, 'n', $2, 'Failed')";
    for action in [None, Some(""), Some("a\tb")] {
        expect(
            app.one(sql, &[&run.0, &action]).await.map(drop),
            "WF005",
            "p_action_type must have",
        );
    }
    assert_eq!(attempts(&store, run).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resource_belongs_to_one_run() {
    let (_database, store, app) = setup().await;
    let (run, other) = (app.held("r1").await, app.held("r2").await);
    let made = app.record(run, "post", "Succeeded", 3).await.unwrap();
    let elsewhere = app.record(other, "post", "Succeeded", 1).await.unwrap();
    assert_eq!(owner(&app, "1").await, (false, None));
    assert_eq!(linked(&app, run, made, "1").await.unwrap(), "created");
    assert_eq!(linked(&app, run, made, "1").await.unwrap(), "exists_same_execution");
    assert_eq!(owner(&app, "1").await, (true, Some(run.0)));
    let refusal = linked(&app, other, elsewhere, "1").await;
    expect(refusal, "WF003", "WFENG003 RESOURCE_LINK_CONFLICT_OTHER_EXECUTION");
    expect(
        linked(&app, other, elsewhere, "1").await,
        "WF003",
        &format!("belongs to execution {run}"),
    );
    let links = store.links(run, ALL).await.unwrap().0;
    assert_eq!(links.len(), 1);
    assert_eq!((links[0].node.as_str(), links[0].attempt), ("post", 3));
    assert_eq!(links[0].url.as_deref(), Some("https://example.com"));
    // An attempt of another run, an attempt that was not recorded, and a run that does not exist.
    for (run, attempt) in [(run, elsewhere), (run, Uuid::now_v7()), (RunId(Uuid::now_v7()), made)] {
        expect(linked(&app, run, attempt, "2").await, "P0002", "ATTEMPT_NOT_FOUND");
    }
    for (system, id) in [("", "2"), ("slack", ""), ("slack", &"x".repeat(1025)), ("a\u{1}", "2")] {
        let params: [&(dyn ToSql + Sync); 5] = [&run.0, &made, &system, &id, &None::<&str>];
        expect(app.one(LINK, &params).await.map(drop), "WF005", "must have 1 to");
    }
    assert_eq!(linked(&app, run, made, &"x".repeat(1024)).await.unwrap(), "created");
    assert_eq!(owner(&app, "2").await, (false, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_links_have_one_owner() {
    let (database, _store, app) = setup().await;
    for (id, end) in [("1", "COMMIT"), ("2", "ROLLBACK")] {
        let second = App::new(&database).await;
        let (run, other) = (app.held(&format!("a{id}")).await, second.held(&format!("b{id}")).await);
        let made = app.record(run, "n", "Succeeded", 1).await.unwrap();
        let theirs = second.record(other, "n", "Succeeded", 1).await.unwrap();
        app.run("BEGIN").await;
        assert_eq!(linked(&app, run, made, id).await.unwrap(), "created");
        let pid = second.pid().await;
        let waiting = tokio::spawn(async move { linked(&second, other, theirs, id).await });
        until_blocked(&App::new(&database).await, pid).await;
        app.run(end).await;
        match end {
            "COMMIT" => expect(waiting.await.unwrap(), "WF003", "WFENG003"),
            _ => assert_eq!(waiting.await.unwrap().unwrap(), "created"),
        }
    }
}

/// Links made by SQL and by the engine conflict with each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_and_engine_share_links() {
    let (_database, store, app) = setup().await;
    let claimed = app.started("r1").await;
    take(&store, claimed).await;
    let mut commit = step(claimed, 1, 1);
    commit.attempts = vec![attempt("a", 1, 300)];
    commit.links = vec![link("engine")];
    committed(&store, commit).await;
    assert_eq!(owner(&app, "engine").await, (true, Some(claimed.0)));
    let run = app.held("r2").await;
    let made = app.record(run, "n", "Succeeded", 1).await.unwrap();
    expect(linked(&app, run, made, "engine").await, "WF003", &claimed.to_string());
    assert_eq!(linked(&app, run, made, "sql").await.unwrap(), "created");
    let mut commit = step(claimed, 1, 2);
    commit.links = vec![link("sql")];
    match store.commit(commit).await {
        CommitAnswer::Conflict(Conflict::Link { owner, .. }) => assert_eq!(owner, run),
        other => panic!("{other:?}"),
    }
    // Linking needs no lease: a service may link a resource that it created for an attempt recorded by the engine.
    let sql = "SELECT fermata_attempt_id($1, 'a', 1)";
    let recorded: Uuid = app.one(sql, &[&claimed.0]).await.unwrap().get(0);
    assert_eq!(linked(&app, claimed, recorded, "more").await.unwrap(), "created");
    committed(&store, end(claimed, 1, 2, Status::Succeeded)).await;
    assert_eq!(store.links(claimed, ALL).await.unwrap().1, 2);
    assert_eq!(store.held(ME, None, 9).await.unwrap(), []);
}
