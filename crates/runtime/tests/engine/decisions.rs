//! Decisions of jsondagapi documents: each failure of §8 and each code of §11.7, end to end.

use crate::support::{Bed, Left};
use fermata_core::Status;
use fermata_runtime::inbox::{Given, Reply};
use fermata_store::inbox::WaitRef;
use serde_json::{Value, json};

/// A document with a decision `d` between the tasks `yes` and `no`.
fn document(config: Value, edges: [Value; 2]) -> Value {
    let task = |id: &str| json!({ "id": id, "type": "task", "executor": { "type": "callback" } });
    json!({
        "workflow_id": "decide", "name": "Decide", "version": "1.0.0",
        "nodes": [
            { "id": "d", "type": "decision", "executor": { "type": "callback", "config": config } },
            task("yes"), task("no"),
        ],
        "edges": edges,
    })
}

fn outcome(to: &str) -> Value {
    json!({ "from": "d", "to": to, "metadata": { "outcome": to } })
}

fn condition(to: &str, expression: Value) -> Value {
    let condition = json!({ "type": "expression", "language": "jsonlogic", "expression": expression });
    json!({ "from": "d", "to": to, "condition": condition })
}

/// Runs a document. With an answer, the decision is answered once it waits.
async fn run(document: Value, state: Value, answer: Option<Value>) -> Left {
    let bed = Bed::new().await;
    bed.create(&document).await;
    let run = bed.start_run("decide", state).await;
    if let Some(payload) = answer {
        bed.until(run, "d", "waiting").await;
        let reply = Reply {
            of: WaitRef::Node { run, node: "d".into() },
            lease: None,
            tenant: None,
            payload,
            is_json: true,
            by: None,
        };
        let given = bed.engine.inbox().answer(reply).await.unwrap();
        assert!(matches!(given, Given::Accepted { .. }), "{given:?}");
    }
    bed.end_of(run).await
}

fn score(operator: &str, limit: i64) -> Value {
    json!({ operator: [{ "var": "score" }, limit] })
}

/// A decision by expressions that is the first node ends with the start of its run, and has a row like every other node.
#[tokio::test]
async fn decision_may_be_the_first_node() {
    let edges = [condition("yes", score(">", 1)), condition("no", score("<=", 1))];
    let mut document = document(json!({}), edges);
    for node in [1, 2] {
        document["nodes"][node]["executor"]["config"] =
            json!({ "timeout_seconds": 1, "retry_policy": { "max_attempts": 1 } });
    }
    let bed = Bed::new().await;
    bed.create(&document).await;
    let run = bed.start_run("decide", json!({ "score": 1 })).await;
    bed.until(run, "no", "waiting").await;
    let left = bed.end_of(run).await;
    let rows: Vec<&str> = left.actions.iter().map(|attempt| attempt.node.as_str()).collect();
    assert!(rows.contains(&"d") && rows.contains(&"yes"), "{rows:?}");
}

/// What happens, the configuration of the decision, its edges, the answer, and the code of the failure.
type Case = (&'static str, Value, [Value; 2], Option<Value>, &'static str);

/// Every row of the table of §8 fails the execution with its code, and no path is taken.
#[tokio::test]
async fn every_failure_of_the_specification_fails_the_run_with_its_code() {
    let outcomes = || [outcome("yes"), outcome("no")];
    let unreachable =
        json!({ "url": "http://127.0.0.1:1/", "retry_policy": { "max_attempts": 2, "base_delay_ms": 1 } });
    let incomparable = json!({ ">": [{ "var": "list" }, 1] });
    let failing = [condition("yes", incomparable.clone()), condition("no", incomparable)];
    let cases: [Case; 9] = [
        (
            "callback timeout",
            json!({ "timeout_seconds": 1 }),
            outcomes(),
            None,
            "DECISION_TIMEOUT",
        ),
        (
            "no object",
            json!({}),
            outcomes(),
            Some(json!([1])),
            "INVALID_DECISION_RESPONSE",
        ),
        (
            "no outcome",
            json!({}),
            outcomes(),
            Some(json!({ "state": { "score": 9 } })),
            "INVALID_DECISION_RESPONSE",
        ),
        (
            "wrong metadata",
            json!({}),
            outcomes(),
            Some(json!({ "outcome": "yes", "metadata": 1 })),
            "INVALID_DECISION_RESPONSE",
        ),
        (
            "unknown outcome",
            json!({}),
            outcomes(),
            Some(json!({ "outcome": "maybe" })),
            "UNKNOWN_OUTCOME",
        ),
        ("retry exhausted", unreachable, outcomes(), None, "CONNECTION_FAILED"),
        (
            "no condition is true",
            json!({}),
            [condition("yes", score(">", 5)), condition("no", score("<", 0))],
            None,
            "UNKNOWN_OUTCOME",
        ),
        (
            "two conditions are true",
            json!({}),
            [condition("yes", score(">", 0)), condition("no", score("<", 5))],
            None,
            "CONDITION_EVALUATION_ERROR",
        ),
        (
            "an expression fails",
            json!({}),
            failing,
            None,
            "CONDITION_EVALUATION_ERROR",
        ),
    ];
    for (what, config, edges, answer, code) in cases {
        let left = run(document(config, edges), json!({ "score": 2, "list": [1] }), answer).await;
        assert_eq!(left.status(), Status::Failed, "{what}: {:?}", left.ended);
        assert_eq!(left.error()["code"], code, "{what}: {}", left.error());
        assert_eq!(left.error()["node"], "d", "{what}");
        for path in ["yes", "no"] {
            let attempts = left.attempts(path);
            assert!(
                attempts.iter().all(|(_, status)| *status == "Skipped"),
                "{what}: {attempts:?}"
            );
        }
        if what == "retry exhausted" {
            assert_eq!(left.attempts("d"), [(1, "RetriableFailure"), (2, "Failed")]);
        }
    }
}

/// What a decision answers beside its outcome does not become part of the state.
#[tokio::test]
async fn decisions_and_conditions_do_not_change_the_state() {
    let mut document = document(json!({}), [outcome("yes"), outcome("no")]);
    for node in [1, 2] {
        // Ends at once, so that the run ends with the state as it is.
        document["nodes"][node]["executor"] = json!({ "type": "event", "config": { "url": "http://127.0.0.1:1/" } });
        document["nodes"][node]["retry_policy"] = json!({ "max_attempts": 1 });
    }
    document["outputs"] = json!({ "score": {}, "outcome": {}, "metadata": {} });
    let answer = json!({ "outcome": "yes", "metadata": { "score": 9 }, "state": { "score": 9 }, "score": 9 });
    let bed = Bed::new().await;
    bed.create(&document).await;
    let run = bed.start_run("decide", json!({ "score": 2 })).await;
    bed.until(run, "d", "waiting").await;
    let reply = Reply {
        of: WaitRef::Node { run, node: "d".into() },
        lease: None,
        tenant: None,
        payload: answer,
        is_json: true,
        by: None,
    };
    let given = bed.engine.inbox().answer(reply).await.unwrap();
    assert!(matches!(given, Given::Accepted { .. }), "{given:?}");
    let left = bed.end_of(run).await;
    assert_eq!(
        left.outputs(),
        json!({ "score": 2, "outcome": null, "metadata": null }),
        "{:?}",
        left.ended
    );
}
