//! The lifecycle of workflows: every command in every state, and the effect on runs.

use crate::harness::{Answer, Server, echo, single};
use fermata_runtime::Settings;
use fermata_web::WebConfig;
use reqwest::Method;
use serde_json::{Value, json};

const WORKFLOWS: &str = "/api/v1/workflows";

/// The states of a workflow.
#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Missing,
    Draft,
    /// A draft that was published without activating the version.
    Staged,
    Active,
    Disabled,
    Archived,
    /// As the two above, with a run.
    ActiveUsed,
    ArchivedUsed,
}

const STATES: [State; 8] = [
    State::Missing,
    State::Draft,
    State::Staged,
    State::Active,
    State::Disabled,
    State::Archived,
    State::ActiveUsed,
    State::ArchivedUsed,
];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Command {
    Save,
    PutDraft,
    Publish,
    Stage,
    Archive,
    Reactivate,
    Enable,
    Disable,
    Activate,
    Delete,
    Execute,
}

const COMMANDS: [Command; 11] = [
    Command::Save,
    Command::PutDraft,
    Command::Publish,
    Command::Stage,
    Command::Archive,
    Command::Reactivate,
    Command::Enable,
    Command::Disable,
    Command::Activate,
    Command::Delete,
    Command::Execute,
];

fn place(id: &str, what: &str) -> String {
    format!("{WORKFLOWS}/{id}/{what}")
}

async fn bring(server: &Server, id: &str, state: State) {
    let post = async |what: &str, status: u16| {
        let answer = server.post_nothing(&place(id, what)).await;
        assert_eq!(answer.status, status, "{}", answer.text);
    };
    if state == State::Missing {
        return;
    }
    server.post(WORKFLOWS, echo(id)).await.expect(201);
    match state {
        State::Missing | State::Draft => return,
        State::Staged => return post("publish?autoActivate=false", 200).await,
        _ => post("publish", 200).await,
    }
    if matches!(state, State::ActiveUsed | State::ArchivedUsed) {
        post("execute?wait=15s", 200).await;
    }
    match state {
        State::Disabled => post("disable", 200).await,
        State::Archived | State::ArchivedUsed => post("archive", 200).await,
        _ => {}
    }
}

async fn command(server: &Server, id: &str, command: Command) -> Answer {
    let json = [("content-type", "application/json")];
    let mut changed = echo(id);
    changed["description"] = json!("changed");
    let body = changed.to_string();
    let post = async |what: &str| server.post_nothing(&place(id, what)).await;
    match command {
        Command::Save => server.send(Method::POST, WORKFLOWS, &json, body).await,
        Command::PutDraft => server.send(Method::PUT, &place(id, "draft"), &json, body).await,
        Command::Publish => post("publish").await,
        Command::Stage => post("publish?autoActivate=false").await,
        Command::Archive => post("archive").await,
        Command::Reactivate => post("reactivate").await,
        Command::Enable => post("enable").await,
        Command::Disable => post("disable").await,
        Command::Activate => post("versions/1/activate").await,
        Command::Delete => server.send(Method::DELETE, &format!("{WORKFLOWS}/{id}"), &[], "").await,
        Command::Execute => post("execute").await,
    }
}

/// The response to a command in a state, and the state after it.
fn expected(state: State, command: Command) -> (u16, &'static str, State) {
    use Command as C;
    use State as S;
    const ILLEGAL: (u16, &str) = (409, "ILLEGAL_LIFECYCLE_TRANSITION");
    let stays = |(status, code)| (status, code, state);
    match (state, command) {
        (S::Missing, C::Save) => (201, "", S::Draft),
        (S::Missing, _) => stays((404, "WORKFLOW_NOT_FOUND")),

        (S::Draft | S::Staged, C::Save | C::PutDraft) => (200, "", S::Draft),
        (S::Draft | S::Staged, C::Publish) => (200, "", S::Active),
        (S::Draft | S::Staged, C::Stage) => (200, "", S::Staged),
        (S::Draft, C::Activate) => stays((404, "VERSION_NOT_FOUND")),
        (S::Staged, C::Activate) => (200, "", S::Active),
        (S::Draft | S::Staged, C::Delete) => (204, "", S::Missing),
        (S::Draft | S::Staged, C::Execute) => stays((409, "WORKFLOW_NOT_ACTIVE")),
        (S::Draft | S::Staged, C::Archive | C::Reactivate | C::Enable | C::Disable) => stays(ILLEGAL),

        (S::Active | S::ActiveUsed | S::Disabled, C::Save) => stays((400, "WORKFLOW_IMMUTABLE")),
        (S::Active | S::ActiveUsed | S::Disabled, C::PutDraft | C::Stage | C::Activate) => stays((200, "")),
        (S::Active | S::ActiveUsed | S::Disabled, C::Publish | C::Enable) => (200, "", S::Active),
        (S::Active | S::ActiveUsed | S::Disabled, C::Archive) => (200, "", S::Archived),
        (S::Active | S::ActiveUsed | S::Disabled, C::Disable) => (200, "", S::Disabled),
        (S::Active | S::ActiveUsed | S::Disabled, C::Delete | C::Reactivate) => stays(ILLEGAL),
        (S::Active | S::ActiveUsed, C::Execute) => (202, "", S::Active),
        (S::Disabled, C::Execute) => stays((409, "WORKFLOW_NOT_ACTIVE")),

        (S::Archived | S::ArchivedUsed, C::Save) => stays((400, "WORKFLOW_IMMUTABLE")),
        (S::Archived | S::ArchivedUsed, C::PutDraft) => stays((200, "")),
        (S::Archived | S::ArchivedUsed, C::Reactivate) => (200, "", S::Active),
        (S::Archived | S::ArchivedUsed, C::Publish | C::Stage | C::Archive | C::Enable | C::Disable | C::Activate) => {
            stays(ILLEGAL)
        }
        (S::Archived | S::ArchivedUsed, C::Execute) => stays((409, "WORKFLOW_NOT_ACTIVE")),
        (S::Archived, C::Delete) => (204, "", S::Missing),
        (S::ArchivedUsed, C::Delete) => stays((409, "WORKFLOW_HAS_EXECUTIONS")),
    }
}

async fn state_of(server: &Server, id: &str) -> Option<(String, bool)> {
    let answer = server.get(&format!("{WORKFLOWS}/{id}")).await;
    if answer.status == 404 {
        return None;
    }
    let read = answer.expect(200);
    Some((
        read["status"].as_str().unwrap().to_owned(),
        read["isEnabled"].as_bool().unwrap(),
    ))
}

fn shows(state: State) -> Option<(String, bool)> {
    let (status, enabled) = match state {
        State::Missing => return None,
        State::Draft | State::Staged => ("Draft", true),
        State::Active | State::ActiveUsed => ("Active", true),
        State::Disabled => ("Active", false),
        State::Archived | State::ArchivedUsed => ("Archived", false),
    };
    Some((status.to_owned(), enabled))
}

#[tokio::test]
async fn every_command_in_every_state() {
    let server = Server::start().await;
    for (s, state) in STATES.into_iter().enumerate() {
        for (c, asked) in COMMANDS.into_iter().enumerate() {
            let id = format!("w-{s}-{c}");
            bring(&server, &id, state).await;
            assert_eq!(state_of(&server, &id).await, shows(state), "{state:?}");
            let before = server.get(&format!("{WORKFLOWS}/{id}")).await.text;
            let (status, code, next) = expected(state, asked);
            let answer = command(&server, &id, asked).await;
            assert_eq!(answer.status, status, "{state:?} {asked:?}: {}", answer.text);
            assert_eq!(state_of(&server, &id).await, shows(next), "{state:?} {asked:?}");
            if code.is_empty() {
                continue;
            }
            let error = answer.error(status, code);
            if state != State::Missing && code != "VERSION_NOT_FOUND" {
                let after = server.get(&format!("{WORKFLOWS}/{id}")).await.text;
                assert_eq!(after, before, "a refusal changes nothing");
                let message = error["message"].as_str().unwrap();
                let (word, enabled) = shows(state).unwrap();
                let names_state = message.contains(&word) || (!enabled && message.contains("disabled"));
                assert!(names_state && message.contains(&id), "{message}");
            }
        }
    }
}

#[tokio::test]
async fn responses_match_the_specification() {
    let server = Server::start().await;
    server.publish(&echo("w")).await;
    let standing = |status: &str| json!({ "workflowId": "w", "status": status });
    let with = |status: &str, enabled: bool| json!({ "workflowId": "w", "status": status, "isEnabled": enabled });
    let post = async |what: &str| server.post_nothing(&place("w", what)).await.expect(200);
    assert_eq!(post("disable").await, with("Active", false));
    assert_eq!(post("enable").await, with("Active", true));
    assert_eq!(post("archive").await, standing("Archived"));
    assert_eq!(post("reactivate").await, standing("Active"));
    post("archive").await;
    let gone = server.send(Method::DELETE, &format!("{WORKFLOWS}/w"), &[], "").await;
    assert_eq!((gone.status, gone.text.as_str()), (204, ""));
    let error = server.post_nothing(&place("w", "archive")).await;
    error.error(404, "WORKFLOW_NOT_FOUND");

    // A name that is also a path of the API.
    server.publish(&echo("validate")).await;
    assert_eq!(
        server.get(&format!("{WORKFLOWS}/validate")).await.expect(200)["id"],
        "validate"
    );
    let refused = server
        .send(Method::DELETE, &format!("{WORKFLOWS}/validate"), &[], "")
        .await;
    refused.error(409, "ILLEGAL_LIFECYCLE_TRANSITION");
}

#[tokio::test]
async fn activated_version_is_used_by_new_runs() {
    let server = Server::start().await;
    let named = |n: u32| {
        let mut document = single("w", "core.echo", json!({ "n": n }));
        document["displayName"] = json!(format!("Number {n}"));
        document
    };
    server.publish(&named(1)).await;
    let json = [("content-type", "application/json")];
    let draft = place("w", "draft");
    let put = server.send(Method::PUT, &draft, &json, named(2).to_string()).await;
    put.expect(200);
    server.post_nothing(&place("w", "publish")).await.expect(200);
    let run = async || server.post_nothing(&place("w", "execute?wait=15s")).await.expect(200);
    assert_eq!(run().await["outputs"], json!({ "n": 2 }));

    let activated = server
        .post_nothing(&place("w", "versions/1/activate"))
        .await
        .expect(200);
    let expected = json!({ "workflowId": "w", "status": "Active", "isEnabled": true, "currentVersion": 1 });
    assert_eq!(activated, expected);
    let after = run().await;
    assert_eq!(
        (&after["outputs"], &after["workflowVersion"]),
        (&json!({ "n": 1 }), &json!(1))
    );
    let read = server.get(&format!("{WORKFLOWS}/w")).await.expect(200);
    assert_eq!(
        (&read["displayName"], &read["currentVersion"], &read["latestVersion"]),
        (&json!("Number 1"), &json!(1), &json!(2))
    );
    for (version, status, code) in [
        ("9", 404, "VERSION_NOT_FOUND"),
        ("0", 404, "VERSION_NOT_FOUND"),
        ("one", 400, "INVALID_PARAMETER"),
    ] {
        let refused = server
            .post_nothing(&place("w", &format!("versions/{version}/activate")))
            .await;
        refused.error(status, code);
    }
}

#[tokio::test]
async fn x_y_x_makes_three_versions_and_the_same_makes_none() {
    let server = Server::start().await;
    let text = |n: u32| single("w", "core.echo", json!({ "n": n }));
    server.publish(&text(1)).await;
    let json = [("content-type", "application/json")];
    let mut last = json!(null);
    for (n, version, created) in [(2, 2, true), (1, 3, true), (1, 3, false)] {
        let put = server
            .send(Method::PUT, &place("w", "draft"), &json, text(n).to_string())
            .await;
        put.expect(200);
        last = server.post_nothing(&place("w", "publish")).await.expect(200);
        assert_eq!((&last["version"], &last["created"]), (&json!(version), &json!(created)));
        assert_eq!(last["status"], "Active");
    }
    let again = server.post_nothing(&place("w", "publish")).await.expect(200);
    assert_eq!(again, last, "publishing again is a no-op");
    server.post_nothing(&place("w", "disable")).await.expect(200);
    server.post_nothing(&place("w", "publish")).await.expect(200);
    let read = server.get(&format!("{WORKFLOWS}/w")).await.expect(200);
    assert_eq!(read["isEnabled"], true, "and still activates");

    let versions = server.get(&place("w", "versions?limit=2")).await.expect(200);
    let numbers = |page: &Value| -> Vec<u64> {
        let items = page["items"].as_array().unwrap().iter();
        items.map(|item| item["version"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers(&versions), [3, 2]);
    let cursor = versions["nextCursor"].as_str().unwrap();
    let rest = server
        .get(&place("w", &format!("versions?cursor={cursor}")))
        .await
        .expect(200);
    assert_eq!(numbers(&rest), [1]);
    assert!(rest.get("nextCursor").is_none());
    assert_eq!(rest["items"][0]["checksum"], versions["items"][0]["checksum"]);
    crate::harness::assert_time(&rest["items"][0]["createdAt"]);
    server
        .get(&place("w", "versions?cursor=xyz"))
        .await
        .error(400, "INVALID_CURSOR");
    server
        .get(&place("missing", "versions"))
        .await
        .error(404, "WORKFLOW_NOT_FOUND");
    let second = server.get(&format!("{WORKFLOWS}/w?version=2")).await.expect(200);
    assert_eq!(second["definition"], text(2));
}

#[tokio::test]
async fn a_new_version_leaves_runs_in_flight_alone() {
    let server = Server::start().await;
    let document = |n: u32| {
        let after = json!({ "id": "after", "actionType": "core.echo", "parameters": { "n": n } });
        let gate = json!({ "id": "gate", "actionType": "test.gate", "edges": [{ "targetNode": "after" }] });
        json!({ "id": "w", "displayName": "W", "startNode": "gate", "nodes": [gate, after] })
    };
    server.publish(&document(1)).await;
    let old = server.execute("w", json!({})).await;
    let json = [("content-type", "application/json")];
    server
        .send(Method::PUT, &place("w", "draft"), &json, document(2).to_string())
        .await
        .expect(200);
    let between = server.execute("w", json!({})).await;
    let staged = server.post_nothing(&place("w", "publish?autoActivate=false")).await;
    assert_eq!(
        staged.expect(200)["status"],
        "Active",
        "it stays on its current version"
    );
    let staged = server.execute("w", json!({})).await;
    assert_eq!(
        server.post_nothing(&place("w", "publish")).await.expect(200)["version"],
        2
    );
    let new = server.execute("w", json!({})).await;
    server.gate.add_permits(4);
    for (id, version) in [(old, 1), (between, 1), (staged, 1), (new, 2)] {
        let run = server.until(&id, |run| run["status"] == "Succeeded").await;
        assert_eq!(
            (&run["workflowVersion"], &run["outputs"]),
            (&json!(version), &json!({ "n": version }))
        );
    }
}

#[tokio::test]
async fn archiving_cancels_pending_runs() {
    let settings = Settings {
        max_active_runs: 1,
        ..Settings::default()
    };
    let server = Server::with(settings, WebConfig::default()).await;
    server.publish(&single("gated", "test.gate", json!({}))).await;
    let begun = server.execute("gated", json!({})).await;
    let waiting = server.execute("gated", json!({})).await;
    server.post_nothing(&place("gated", "archive")).await.expect(200);
    server.gate.add_permits(1);
    let run = server.until(&begun, |run| run["endedAt"].is_string()).await;
    assert_eq!(run["status"], "Succeeded", "a run in flight continues");
    let run = server.until(&waiting, |run| run["endedAt"].is_string()).await;
    assert_eq!(
        (&run["status"], &run["reason"]),
        (&json!("Cancelled"), &json!("workflow_archived"))
    );
    assert_eq!(server.gate.available_permits(), 0, "it was never called");
}

#[tokio::test]
async fn drafts_run_if_the_configuration_allows_it() {
    let settings = Settings {
        allow_draft_execution: true,
        ..Settings::default()
    };
    let server = Server::with(settings, WebConfig::default()).await;
    let text = |n: u32| single("w", "core.echo", json!({ "n": n }));
    server.post(WORKFLOWS, text(1)).await.expect(201);
    let run = async |n: u32, version: u32| {
        let run = server.post_nothing(&place("w", "execute?wait=15s")).await.expect(200);
        assert_eq!(
            (&run["workflowVersion"], &run["outputs"]),
            (&json!(version), &json!({ "n": n }))
        );
    };
    run(1, 1).await;
    run(1, 1).await;
    server.post(WORKFLOWS, text(2)).await.expect(200);
    run(2, 2).await;
    let read = server.get(&format!("{WORKFLOWS}/w")).await.expect(200);
    assert_eq!((&read["status"], &read["latestVersion"]), (&json!("Draft"), &json!(2)));
    assert!(read.get("currentVersion").is_none());
    assert_eq!(
        server.get(&place("w", "draft")).await.expect(200)["definition"],
        text(2),
        "the draft is still one"
    );
    let refused = server.send(Method::DELETE, &format!("{WORKFLOWS}/w"), &[], "").await;
    refused.error(409, "WORKFLOW_HAS_EXECUTIONS");
    let published = server.post_nothing(&place("w", "publish")).await.expect(200);
    assert_eq!(
        (&published["version"], &published["created"], &published["status"]),
        (&json!(2), &json!(false), &json!("Active"))
    );
    run(2, 2).await;

    server
        .post(WORKFLOWS, single("unknown", "core.ecko", json!({})))
        .await
        .expect(201);
    let error = server.post_nothing(&place("unknown", "execute")).await;
    assert_eq!(error.error(400, "WFENG005")["details"][0]["severity"], "error");
    server.post_nothing(&place("w", "archive")).await.expect(200);
    let archived = server.post_nothing(&place("w", "execute")).await;
    archived.error(409, "WORKFLOW_NOT_ACTIVE");
}
