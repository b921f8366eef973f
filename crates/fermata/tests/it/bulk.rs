//! Bulk jobs on a real server that is killed, and over the command line.

use crate::support::{Output, Process, Server, eventually, home};
use fermata_core::{RunId, Timestamp};
use fermata_store::{
    conformance::home::Home,
    definitions::{Draft, Release, ReleaseRule},
    runs::{NewRun, Principal},
};
use serde_json::{Value, json};
use uuid::Uuid;

const RUNS: u64 = 10_000;
const WORKFLOW: Uuid = Uuid::from_u128(7);

/// Stores runs that have ended.
async fn fill(home: &Home) {
    let store = home.store().await;
    let release = Release {
        draft: Draft {
            id: "w".to_owned(),
            tenant: String::new(),
            display_name: "W".to_owned(),
            description: None,
            dialect: "dataworkflows".to_owned(),
            source: b"{}".to_vec(),
            checksum: "1".to_owned(),
            at: Timestamp(1),
        },
        rule: ReleaseRule::New {
            uid: WORKFLOW,
            most: None,
        },
        enabled: true,
        plan: "{}".to_owned(),
    };
    store.release(release).await.expect("a workflow");
    let run = |number: u64| NewRun {
        id: RunId(Uuid::now_v7()),
        workflow_uid: WORKFLOW,
        workflow_id: "w".to_owned(),
        workflow_version: 1,
        pinned: false,
        tenant: String::new(),
        request_id: number.to_string(),
        trigger: "{}".to_owned(),
        spec: None,
        priority: None,
        correlation_id: None,
        traceparent: None,
        request: None,
        delivery: None,
        principal: Principal::default(),
        parent: None,
        created_at: Timestamp(1),
        flow: None,
        fields: Vec::new(),
        local_start: None,
        rerun: None,
    };
    for part in 0..RUNS / 500 {
        let added = (0..500).map(|number| store.enqueue(run(part * 500 + number)));
        for added in futures::future::join_all(added).await {
            added.expect("a run");
        }
    }
    store.close().await.expect("a closed file");
    home.execute("UPDATE workflow_executions SET status = 'Succeeded', end_time = 1, wake_at = NULL")
        .await;
}

fn echo(id: &str) -> Value {
    let node = json!({ "id": "say", "actionType": "core.echo", "parameters": { "n": 1 } });
    json!({ "id": id, "displayName": id, "startNode": "say", "nodes": [node] })
}

#[tokio::test(flavor = "multi_thread")]
async fn job_over_ten_thousand_runs_survives_kills() {
    let home = home();
    fill(&home).await;
    let mut server = Server::on(&home, &[], &[]);
    let body = json!({ "query": "status:succeeded", "action": "delete" });
    let (code, job) = server.post("/api/v1/bulk", &body).await;
    assert_eq!((code, &job["total"]), (201, &json!(RUNS)), "{job}");
    // It fits the query too, but the preview did not count it.
    server.publish(&echo("later")).await;
    let later = server.execute("later", &json!({})).await;
    assert_eq!(server.ended(&later).await["status"], "Succeeded");

    let path = format!("/api/v1/bulk/{}", job["id"].as_str().unwrap());
    let (code, _) = server.post(&format!("{path}/start"), &json!({})).await;
    assert_eq!(code, 202);
    for done in [1000, 4000, 7000] {
        eventually("the job proceeds", || async {
            let (_, job) = server.get(&path).await;
            (job["done"].as_u64() >= Some(done)).then_some(())
        })
        .await;
        server.kill9();
        server.restart();
        // A start that is sent again, because its answer was lost, changes nothing.
        let (code, _) = server.post(&format!("{path}/start"), &json!({})).await;
        assert_eq!(code, 202);
    }
    let ended = eventually("the job ends", || async {
        let (_, job) = server.get(&path).await;
        (job["state"] == "finished").then_some(job)
    })
    .await;
    assert_eq!(
        (&ended["done"], &ended["refused"], &ended["failed"]),
        (&json!(RUNS), &json!(0), &json!(0)),
        "{ended}"
    );
    let (_, left) = server.get("/api/v1/executions").await;
    let left: Vec<&Value> = left["items"].as_array().unwrap().iter().map(|run| &run["id"]).collect();
    assert_eq!(left, [&json!(later)], "exactly the runs of the preview were deleted");
}

/// The process dies after it has acted on runs and before it has recorded that.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_runs_are_not_repeated_again_after_a_crash() {
    let home = home();
    let mut server = Server::on(&home, &[], &[]);
    server.publish(&echo("quick")).await;
    for _ in 0..40 {
        let run = server.execute("quick", &json!({})).await;
        server.ended(&run).await;
    }
    let body = json!({ "query": "workflow:quick", "action": "rerun" });
    let (code, job) = server.post("/api/v1/bulk", &body).await;
    assert_eq!((code, &job["total"]), (201, &json!(40)), "{job}");
    let path = format!("/api/v1/bulk/{}", job["id"].as_str().unwrap());
    server.post(&format!("{path}/start"), &json!({})).await;
    let finished = async |server: &Server| {
        let ended = eventually("the job ends", || async {
            let (_, job) = server.get(&path).await;
            (job["state"] == "finished").then_some(job)
        })
        .await;
        assert_eq!(ended["done"], 40, "{ended}");
        server.get(&format!("{path}/items")).await.1
    };
    let before = finished(&server).await;
    server.kill9();
    home.execute("UPDATE bulk_items SET state = 'pending', created_run_id = NULL")
        .await;
    home.execute("UPDATE bulk_jobs SET state = 'running', done = 0, retry_at = 1, ended_at = NULL")
        .await;
    server.restart();
    assert_eq!(finished(&server).await, before, "each has the run that it had");
    let (_, all) = server.get("/api/v1/executions?limit=1000").await;
    assert_eq!(all["items"].as_array().unwrap().len(), 80);
}

fn at(server: &Server, arguments: &[&str]) -> Output {
    Process::start(arguments, &[("FERMATA_SERVER", &server.url)], "").output()
}

#[tokio::test(flavor = "multi_thread")]
async fn command_line_asks_acts_and_shows_results() {
    let server = Server::start(&[]);
    let mut waits = echo("order-waits");
    waits["nodes"][0] = json!({ "id": "say", "actionType": "core.wait", "parameters": {} });
    waits["searchable"] = json!(["order_id"]);
    server.publish(&waits).await;
    server.publish(&echo("quick")).await;
    let mut runs = Vec::new();
    for order in 0..3 {
        let body = json!({ "trigger": { "order_id": order } });
        runs.push(server.execute("order-waits", &body).await);
    }
    let quick = server.execute("quick", &json!({})).await;
    assert_eq!(server.ended(&quick).await["status"], "Succeeded");

    let found = at(
        &server,
        &["executions", "list", "workflow:order-*", "order_id=2", "--json"],
    )
    .json();
    let ids: Vec<&Value> = found["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["id"])
        .collect();
    assert_eq!(ids, [&json!(runs[2])]);
    let wrong = at(&server, &["executions", "list", "status:faild"]);
    assert_eq!(wrong.code, Some(1));
    let expected = "character 8: `faild` is not a status; did you mean `failed`?";
    assert!(wrong.stderr.contains(expected), "{wrong:?}");

    let unasked = at(&server, &["bulk", "cancel", "workflow:order-*"]);
    assert_eq!(unasked.code, Some(2), "{unasked:?}");
    assert!(unasked.stderr.contains("--yes"), "{unasked:?}");
    let nothing = at(&server, &["bulk", "cancel", "workflow:nosuch", "--yes"]);
    assert!(nothing.stderr.contains("no runs match"), "{nothing:?}");
    let jobs = at(&server, &["bulk", "list", "--json"]).json();
    let jobs = jobs["items"].as_array().unwrap();
    assert!(
        jobs.iter().all(|job| job["state"] == "cancelled"),
        "nothing is left to be started: {jobs:?}"
    );
    let prepared = json!({ "query": "workflow:order-*", "action": "cancel" });
    let (code, prepared) = server.post("/api/v1/bulk", &prepared).await;
    assert_eq!((code, &prepared["state"]), (201, &json!("ready")), "{prepared}");
    let ready = prepared["id"].as_str().unwrap();
    let cancelled = at(
        &server,
        &[
            "bulk",
            "cancel",
            "workflow:order-*",
            "--yes",
            "--reason",
            "why",
            "--json",
        ],
    );
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    assert_eq!(cancelled.json()["done"], 3);
    for run in &runs {
        let run = server.ended(run).await;
        assert_eq!((&run["status"], &run["reason"]), (&json!("Cancelled"), &json!("why")));
    }
    let refused = at(&server, &["bulk", "cancel", "--id", &quick, "--yes"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stdout.contains("ALREADY_ENDED"), "{refused:?}");
    let none = at(&server, &["bulk", "cancel", "workflow:order-*", "--yes"]);
    assert_eq!(none.code, Some(0), "{none:?}");
    assert!(none.stderr.contains("no runs match"), "{none:?}");

    let list = at(&server, &["bulk", "list", "--json"]).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 5, "{list}");
    let over = at(&server, &["bulk", "cancel-job", ready]);
    assert!(over.stdout.contains("cancel cancelled: 0 of 3 done"), "{over:?}");
    let shown = at(&server, &["bulk", "get", ready]);
    assert!(shown.stdout.contains("cancel cancelled: 0 of 3 done"), "{shown:?}");
    let again = at(&server, &["bulk", "rerun", "workflow:quick", "--yes", "--json"]).json();
    let items = at(&server, &["bulk", "items", again["id"].as_str().unwrap(), "--json"]).json();
    assert_eq!(items["items"][0]["executionId"], json!(quick), "{items}");
    let new = items["items"][0]["createdExecutionId"].as_str().unwrap();
    assert_eq!(server.ended(new).await["rerunOf"], json!(quick));
    for action in ["pause", "resume"] {
        let none = at(&server, &["bulk", action, "workflow:quick", "--yes"]);
        assert!(none.stderr.contains("no runs match"), "{none:?}");
    }
    let deleted = at(&server, &["bulk", "delete", "status:cancelled", "--yes"]);
    assert!(deleted.stdout.contains("delete finished: 3 of 3 done"), "{deleted:?}");
}
