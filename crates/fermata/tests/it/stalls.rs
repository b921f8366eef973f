//! One workflow that is large, slow or hostile does not keep others from ending.

use crate::support::{Server, eventually};
use futures::{StreamExt, stream};
use serde_json::{Value, json};

async fn create(server: &Server, document: &Value) {
    let (status, created) = server.post("/api/v1/workflows", document).await;
    assert_eq!(status, 201, "{created}");
}

async fn start(server: &Server, workflow: &str, inputs: Value) -> String {
    let body = json!({ "workflow_id": workflow, "inputs": inputs });
    let (status, started) = server.post("/api/v1/executions", &body).await;
    assert_eq!(status, 201, "{started}");
    started["execution_id"].as_str().expect("an id").to_owned()
}

fn task(id: &str) -> Value {
    json!({ "id": id, "type": "task", "executor": { "type": "callback" } })
}

/// A decision by expressions between two tasks.
fn routing(id: &str, language: &str, expressions: [Value; 2]) -> Value {
    let [left, right] = expressions;
    let edge = |to: &str, expression: Value| {
        let condition = json!({ "type": "expression", "language": language, "expression": expression });
        json!({ "from": "check", "to": to, "condition": condition })
    };
    json!({
        "workflow_id": id, "name": id, "version": "1.0.0",
        "nodes": [{ "id": "check", "type": "decision", "executor": { "type": "callback" } }, task("left"), task("right")],
        "edges": [edge("left", left), edge("right", right)],
    })
}

/// Starts a run that decides by itself, and completes its task.
async fn quick_run_ends(server: &Server) {
    let run = start(server, "quick", json!({ "score": 1 })).await;
    complete(server, &run, "left").await;
    let ended = server.ended(&run).await;
    assert_eq!(ended["status"], "Succeeded", "{ended}");
}

async fn complete(server: &Server, run: &str, node: &str) {
    let path = format!("/api/v1/executions/{run}/nodes/{node}/complete");
    let body = json!({ "status": "COMPLETED", "outputs": { node: true } });
    eventually(node, || async {
        let (status, answer) = server.post(&path, &body).await;
        assert!(
            status == 200 || answer["error"]["code"] == "NODE_NOT_WAITING",
            "{answer}"
        );
        (status == 200).then_some(())
    })
    .await;
}

async fn with_quick(server: &Server) {
    let over = json!({ ">": [{ "var": "score" }, 0] });
    let under = json!({ "<=": [{ "var": "score" }, 0] });
    create(server, &routing("quick", "jsonlogic", [over, under])).await;
}

#[tokio::test]
async fn five_hundred_pending_decisions_of_one_run_do_not_stall_others() {
    const DECISIONS: usize = 500;
    let server = Server::start(&[]);
    with_quick(&server).await;
    let name = |at: usize| format!("d{at:03}");
    let decision =
        |at: usize| json!({ "id": name(at), "type": "decision", "executor": { "type": "callback", "config": {} } });
    let edge = |at: usize| json!({ "from": name(at), "to": "end", "metadata": { "outcome": "go" } });
    let mut nodes: Vec<Value> = (0..DECISIONS).map(decision).collect();
    nodes.push(task("end"));
    let wide = json!({ "workflow_id": "wide", "name": "Wide", "version": "1.0.0", "nodes": nodes,
                       "edges": (0..DECISIONS).map(edge).collect::<Vec<_>>() });
    create(&server, &wide).await;
    let run = start(&server, "wide", json!({})).await;
    quick_run_ends(&server).await;

    let list = format!("/api/v1/inbox?status=pending&executionId={run}&limit=1000");
    eventually("the decisions", || async {
        let (_, page) = server.get(&list).await;
        (page["items"].as_array().map_or(0, Vec::len) == DECISIONS).then_some(())
    })
    .await;
    let answers = (0..DECISIONS).map(|at| format!("/api/v1/executions/{run}/decisions/{}", name(at)));
    let go = json!({ "outcome": "go" });
    let mut answers = stream::iter(answers)
        .map(|path| {
            let (server, go) = (&server, &go);
            async move { server.post(&path, go).await }
        })
        .buffer_unordered(16);
    let mut given = 0;
    while let Some((status, answer)) = answers.next().await {
        assert_eq!(status, 200, "{answer}");
        given += 1;
        if given == DECISIONS / 2 {
            quick_run_ends(&server).await;
        }
    }
    complete(&server, &run, "end").await;
    let ended = server.ended(&run).await;
    assert_eq!(ended["status"], "Succeeded", "{ended}");
}

#[tokio::test]
async fn expressions_that_do_not_end_fail_their_own_run_only() {
    let server = Server::start_with(&[], &[("FERMATA_JSONDAGAPI__STRICT_OPERATORS", "false")]);
    with_quick(&server).await;
    let endless = "l.all(a, l.all(b, l.all(c, a + b + c >= 0)))";
    create(&server, &routing("cel", "cel", [json!(endless), json!("false")])).await;
    let growing = json!({ "reduce": [{ "var": "l" },
        { "merge": [{ "var": "accumulator" }, { "var": "accumulator" }] }, { "var": "l" }] });
    create(
        &server,
        &routing("rule", "jsonlogic", [growing, json!({ "!": [true] })]),
    )
    .await;
    let list: Vec<u32> = (0..2000).collect();
    let mut hostile = Vec::new();
    for workflow in ["cel", "rule", "cel", "rule"] {
        hostile.push(start(&server, workflow, json!({ "l": list })).await);
    }
    for _ in 0..5 {
        quick_run_ends(&server).await;
    }
    for run in hostile {
        let ended = server.ended(&run).await;
        assert_eq!(ended["status"], "Failed", "{ended}");
        assert_eq!(ended["error"]["code"], "CONDITION_EVALUATION_ERROR", "{ended}");
    }
    quick_run_ends(&server).await;
}
