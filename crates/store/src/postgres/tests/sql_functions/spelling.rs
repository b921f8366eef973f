//! The spelling of names in the spec (§3.9, §3.1 to §3.3): unquoted names, parameters by name.

use super::*;
use fermata_core::Status;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spec_spelling_of_functions_and_parameters_works() {
    let (_database, store, app) = setup().await;
    let start = format!(
        "SELECT execution_id, was_existing FROM sp_StartWorkflowExecution(p_workflowId => '{WORKFLOW}', p_requestId => 'r1',
           p_triggerJson => '{{\"a\": 1}}', p_version => NULL, p_tenantId => 'acme', p_correlationId => 'c1',
           p_parentExecutionId => NULL)"
    );
    let row = app.one(&start, &[]).await.unwrap();
    let (run, existing): (Uuid, bool) = (row.get(0), row.get(1));
    assert!(!existing);
    let again = app.one(&start, &[]).await.unwrap();
    assert_eq!((again.get::<_, Uuid>(0), again.get::<_, bool>(1)), (run, true));
    let short = format!("SELECT was_existing FROM sp_StartWorkflowExecution('{WORKFLOW}', 'r2', '{{}}')");
    assert!(!app.one(&short, &[]).await.unwrap().get::<_, bool>(0));

    let acquired = app
        .one("SELECT sp_TryAcquireExecution(p_executionId => $1)", &[&run])
        .await;
    assert!(acquired.unwrap().get::<_, bool>(0));
    let attempt = app.record(RunId(run), "n", "Succeeded", 2).await.unwrap();
    let link = "SELECT sp_LinkExternalResource(p_executionId => $1, p_actionExecutionId => $2, p_system => 's',
        p_type => 't', p_resourceId => 'i', p_externalUrl => 'https://example.com/i')";
    let linked = app.one(link, &[&run, &attempt]).await.unwrap();
    assert_eq!(linked.get::<_, &str>(0), "created");
    let check = "SELECT \"exists\", execution_id FROM sp_CheckResourceExists(p_system => 's', p_type => 't', p_resourceId => 'i')";
    let row = app.one(check, &[]).await.unwrap();
    assert_eq!((row.get::<_, bool>(0), row.get::<_, Uuid>(1)), (true, run));
    let complete =
        "SELECT sp_CompleteWorkflow(p_executionId => $1, p_status => 'Succeeded', p_contextSnapshot => '{\"n\": {}}')";
    app.one(complete, &[&run]).await.unwrap();
    assert_eq!(record(&store, RunId(run)).await.status, Status::Succeeded);
    let unknown = "SELECT * FROM sp_StartWorkflowExecution('there-is-none', 'r3', '{}')";
    expect(app.one(unknown, &[]).await, "P0002", "WORKFLOW_NOT_FOUND");

    views(&app, run, attempt).await;
}

/// The views with the tables of the spec have the expected values and types.
async fn views(app: &App, run: Uuid, attempt: Uuid) {
    let sql = "SELECT WorkflowId, WorkflowVersion, WorkflowRequestId, Status, TriggerPayloadJson @> '{\"a\": 1}',
        ContextSnapshotJson ? 'n', EndTime >= StartTime, TenantId, CorrelationId, ParentExecutionId IS NULL
        FROM WorkflowExecutions WHERE Id = $1";
    let row = app.one(sql, &[&run]).await.unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, i32>(1)), (WORKFLOW, 1));
    assert_eq!((row.get::<_, &str>(2), row.get::<_, &str>(3)), ("r1", "Succeeded"));
    assert!([4, 5, 6, 9].into_iter().all(|at| row.get::<_, bool>(at)));
    assert_eq!((row.get::<_, &str>(7), row.get::<_, &str>(8)), ("acme", "c1"));
    let sql =
        "SELECT Id, NodeId, Attempt, RetryCount, Status, EndTime > now() - interval '1 hour' FROM ActionExecutions
        WHERE WorkflowExecutionId = $1";
    let row = app.one(sql, &[&run]).await.unwrap();
    assert_eq!((row.get::<_, Uuid>(0), row.get::<_, &str>(1)), (attempt, "n"));
    assert_eq!((row.get::<_, i32>(2), row.get::<_, i32>(3)), (2, 1));
    assert!(row.get::<_, bool>(5));
    let sql = "SELECT ActionExecutionId FROM WorkflowResourceLinks WHERE ResourceId = 'i'";
    assert_eq!(app.one(sql, &[]).await.unwrap().get::<_, Uuid>(0), attempt);
    for sql in [
        "SELECT count(*) FROM WorkflowDefinitions WHERE jsonb_typeof(DefinitionJson) IS NOT NULL",
        "SELECT count(*) FROM ExecutionEvents WHERE Level = 'Info' OR Data IS NOT NULL OR Ts > now()",
        "SELECT count(*) FROM WorkflowExecutionHierarchy WHERE ParentNodeId IS NULL",
    ] {
        app.number(sql).await;
    }
}

/// A payload that `jsonb` cannot represent does not make a view fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_that_jsonb_cannot_hold_are_strings() {
    let (_database, store, app) = setup().await;
    let mut run = crate::conformance::new_run("zero");
    run.trigger = r#"{"a":"\u0000"}"#.to_owned();
    let id = run.id;
    store.enqueue(run).await.unwrap();
    let sql = "SELECT jsonb_typeof(TriggerPayloadJson) FROM WorkflowExecutions WHERE Id = $1";
    assert_eq!(app.one(sql, &[&id.0]).await.unwrap().get::<_, &str>(0), "string");
}

/// A status that is not in the spec cannot be stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_statuses_violate_a_check() {
    let (_database, _store, app) = setup().await;
    let run = app.started("r1").await;
    let sql = "UPDATE workflow_executions SET status = 'Paused' WHERE id = $1";
    let answer = app.client.execute(sql, &[&run.0]).await.map_err(refused);
    expect(answer, "23514", "ck_executions_status");
    let sql = "INSERT INTO action_executions (workflow_execution_id, node_id, attempt, action_type, status, end_time)
        VALUES ($1, 'n', 1, 'a', 'Odd', 1)";
    let answer = app.client.execute(sql, &[&run.0]).await.map_err(refused);
    expect(answer, "23514", "ck_actions_status");
}
