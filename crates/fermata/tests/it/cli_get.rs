//! `fermata executions get` and `events`: what is shown of a run.

use crate::support::{Output, Process, Server};
use serde_json::{Value, json};

fn at(server: &Server, arguments: &[&str]) -> Output {
    Process::start(arguments, &[("FERMATA_SERVER", &server.url)], "").output()
}

/// The line of a table that begins with these words.
fn row<'a>(shown: &'a str, words: &[&str]) -> &'a str {
    let mut lines = shown.lines();
    lines
        .find(|line| line.split_whitespace().zip(words).filter(|(a, b)| a == *b).count() == words.len())
        .unwrap_or_else(|| panic!("{words:?}: {shown}"))
}

#[tokio::test]
async fn get_shows_trigger_inputs_outputs_skips_and_condition_errors() {
    let server = Server::start(&[]);
    let document = json!({ "id": "order", "displayName": "Order", "startNode": "a", "nodes": [
        { "id": "a", "actionType": "core.echo", "parameters": { "n": "{{ trigger.n }}" }, "edges": [
            { "targetNode": "big", "condition": "trigger.n > 100" },
            { "targetNode": "odd", "condition": "trigger.missing.member > 1" },
            { "targetNode": "end" } ] },
        { "id": "big", "actionType": "core.echo" },
        { "id": "odd", "actionType": "core.echo" },
        { "id": "end", "actionType": "core.echo", "parameters": { "done": true } } ] });
    server.publish(&document).await;
    let id = server.execute("order", &json!({ "trigger": { "n": 7 } })).await;
    server.ended(&id).await;
    let shown = at(&server, &["executions", "get", &id]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let shown = shown.stdout;
    assert!(shown.contains("\ntrigger\n{\n  \"n\": 7\n}\n"), "{shown}");
    assert!(shown.contains("\noutputs\n{\n  \"done\": true\n}\n"), "{shown}");
    assert!(row(&shown, &["created"]).contains("ago)") || row(&shown, &["created"]).contains("(now)"));
    let inputs = row(&shown, &["a", r#"{"n":7}"#, r#"{"n":7}"#]);
    assert!(!inputs.is_empty());
    assert!(
        row(&shown, &["big", "no"])
            .ends_with("no edge to it was taken: after `a`, the condition `trigger.n > 100` is false: trigger.n is 7"),
        "{shown}"
    );
    assert!(
        row(&shown, &["odd", "no"]).contains("could not be evaluated: "),
        "{shown}"
    );
    assert!(shown.contains("CONDITION AFTER"), "{shown}");

    let json = at(&server, &["executions", "get", &id, "-o", "json"]).json();
    assert_eq!(
        json["tasks"]["big"]["skip_reason"],
        "no edge to it was taken: after `a`, the condition `trigger.n > 100` is false: trigger.n is 7"
    );

    // The same error in `watch`, as a line of its own.
    let watched = at(&server, &["executions", "watch", &id]);
    let line = watched.stderr.lines().find(|line| line.starts_with("! condition  a "));
    assert!(
        line.is_some_and(|line| line.contains(
            "the condition `trigger.missing.member > 1` for `odd` could not be evaluated and counts as false: TypeError"
        )),
        "{}",
        watched.stderr
    );

    let events = at(&server, &["executions", "events", &id]);
    assert_eq!(events.code, Some(0), "{events:?}");
    for piece in ["SEQ", "the run started", "Action:core.echo", "Warn"] {
        assert!(events.stdout.contains(piece), "{piece}: {}", events.stdout);
    }
    let json = at(&server, &["executions", "events", &id, "--json"]);
    assert_eq!(json.json()["items"][0]["data"]["type"], "started", "{json:?}");
}

/// A workflow whose first steps fail, each handled by the next.
fn handled(failures: usize) -> Value {
    let failing = (0..failures).map(|at| {
        json!({ "id": format!("n{at}"), "actionType": "core.fail", "parameters": { "message": "no" },
                "onFailure": format!("n{}", at + 1) })
    });
    let last = json!({ "id": format!("n{failures}"), "actionType": "core.echo" });
    let nodes: Vec<Value> = failing.chain([last]).collect();
    json!({ "id": format!("handled-{failures}"), "displayName": "H", "startNode": "n0", "nodes": nodes })
}

#[tokio::test]
async fn run_that_succeeded_although_tasks_failed_says_so() {
    let server = Server::start(&[]);
    for (failures, summary) in [(0, ""), (1, "; 1 task failed"), (3, "; 3 tasks failed")] {
        let document = handled(failures);
        server.publish(&document).await;
        let name = format!("handled-{failures}");
        let id = server.execute(&name, &json!({})).await;
        assert_eq!(server.ended(&id).await["status"], "Succeeded");
        let shown = at(&server, &["executions", "get", &id]);
        let status = row(&shown.stdout, &["status"]);
        assert!(status.ends_with(&format!("Succeeded{summary}")), "{}", shown.stdout);
        let watched = at(&server, &["executions", "watch", &id]);
        let ran = Process::start(&["run", "-"], &[], &document.to_string()).output();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        for shown in [watched.stderr, ran.stderr] {
            let line = shown
                .lines()
                .find(|line| line.contains("succeeded after"))
                .expect("a summary");
            assert!(
                line.starts_with(&name) && line.contains("task") == (failures > 0),
                "{line}"
            );
            assert!(line.ends_with(summary), "{line}");
        }
        let ran = Process::start(&["run", "-", "-o", "json"], &[], &document.to_string()).output();
        assert_eq!(
            (&ran.json()["status"], &ran.json()["failedTasks"]),
            (&json!("Succeeded"), &json!(failures))
        );
    }
}
