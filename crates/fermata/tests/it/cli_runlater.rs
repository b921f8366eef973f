//! Runlater documents on the command line: sleeps, waits, the playground.

use crate::support::{Process, Server, fermata, folder, http_client, text, write};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Two waits, one after the other, without any service.
const APPROVALS: &str = r#"{ "name": "approvals", "tasks": {
    "first": { "wait_for_webhook": {} },
    "pause": { "needs": ["first"], "sleep": "10ms" },
    "second": { "needs": ["pause"], "wait_for_webhook": { "timeout": "1h" } },
    "never": { "needs": ["second"], "if": "tasks.second.body.approved == false", "url": "http://playground.localhost/echo/x" },
    "done": { "needs": ["second"], "url": "http://playground.localhost/echo/done",
              "body": { "first": "{{tasks.first.body}}", "second": "{{tasks.second.body.approved}}" } } } }"#;

fn example(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/runlater")
        .join(name);
    text(&path).to_owned()
}

/// Runs an example; its exit code, how each step ended, and its outputs.
fn run(name: &str, inputs: &[&str]) -> (Option<i32>, Vec<(String, String)>, Value) {
    let mut arguments = vec!["run".to_owned(), "--json".to_owned(), example(name)];
    for input in inputs {
        arguments.extend(["--input".to_owned(), (*input).to_owned()]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ran = fermata(&arguments);
    let report = ran.json();
    let word = |step: &Value, key: &str| step[key].as_str().unwrap().to_owned();
    let steps = report["steps"].as_array().unwrap_or_else(|| panic!("{ran:?}"));
    let mut steps: Vec<_> = steps
        .iter()
        .map(|step| (word(step, "nodeId"), word(step, "status")))
        .filter(|(_, status)| status != "RetriableFailure")
        .collect();
    steps.sort();
    (ran.code, steps, report["outputs"]["body"].clone())
}

fn ended(steps: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(node, status): &(&str, &str)| ((*node).to_owned(), (*status).to_owned());
    steps.iter().map(owned).collect()
}

#[test]
fn order_is_charged_or_its_failure_is_handled() {
    let (code, steps, _) = run(
        "order-processing.json",
        &["order_id=123", "amount=42", "charge_status=200"],
    );
    let fine = ended(&[
        ("charge", "Succeeded"),
        ("handle-failure", "Skipped"),
        ("notify-warehouse", "Succeeded"),
        ("send-receipt", "Succeeded"),
    ]);
    assert_eq!((code, steps), (Some(0), fine));
    let (code, steps, body) = run(
        "order-processing.json",
        &["order_id=123", "amount=42", "charge_status=402"],
    );
    let handled = ended(&[
        ("charge", "Failed"),
        ("handle-failure", "Succeeded"),
        ("notify-warehouse", "Skipped"),
        ("send-receipt", "Skipped"),
    ]);
    assert_eq!((code, steps), (Some(0), handled));
    assert_eq!(body, json!({ "order_id": 123, "status_code": 402 }));
}

#[test]
fn payment_example_gets_its_callback() {
    let given = ["order_id=7", "amount=42"];
    let (code, _, body) = run("checkout-flow.json", &[&given[..], &["payment=paid"]].concat());
    assert_eq!((code, &body["order_id"]), (Some(0), &json!(7)));
    assert!(body["payment_id"].as_str().unwrap().starts_with("pay_"), "{body}");
    let (code, steps, _) = run("checkout-flow.json", &[&given[..], &["payment=declined"]].concat());
    assert_eq!(code, Some(0));
    assert!(
        steps.contains(&("handle-decline".to_owned(), "Succeeded".to_owned())),
        "{steps:?}"
    );
    assert!(
        steps.contains(&("fulfill-order".to_owned(), "Skipped".to_owned())),
        "{steps:?}"
    );
}

#[test]
fn other_examples_run() {
    let (code, steps, body) = run("flaky-service.yaml", &[]);
    assert_eq!(code, Some(0), "{steps:?}");
    assert_eq!(
        body,
        json!({ "recovered": "success", "made_do": 200, "large": "300000" })
    );
    let inputs = ["order_id=1", "token=sk", "email=alice@example.com"];
    let (code, _, body) = run("api-example.json", &inputs);
    assert_eq!((code, body), (Some(0), json!({ "email": "alice@example.com" })));
    // Without a token nothing is sent, and the failure has no handler.
    let (code, steps, _) = run("api-example.json", &inputs[..1]);
    let unsent = ended(&[("charge", "Failed"), ("send-receipt", "Skipped")]);
    assert_eq!((code, steps), (Some(1), unsent));
}

#[test]
fn sleeps_are_shown_when_they_begin() {
    let ran = fermata(&["run", &example("trial-expiry.yaml"), "--input", "user_id=7"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let begun = ran
        .stderr
        .lines()
        .position(|line| line.starts_with("⏸ sleeping   wait-13-days"));
    let over = ran
        .stderr
        .lines()
        .position(|line| line.starts_with("✓ succeeded  wait-13-days"));
    assert!(begun.is_some() && begun < over, "{}", ran.stderr);
    assert_eq!(ran.json()["body"], json!({ "user_id": 7 }));
}

/// The address at the end of the line about a wait.
fn address(process: &Process, step: &str) -> String {
    let line = process.wait_for_line(&format!("⏸ waiting    {step}"));
    line.split_once("POST to ")
        .unwrap_or_else(|| panic!("{line}"))
        .1
        .to_owned()
}

async fn post(url: &str, body: &Value) -> u16 {
    http_client()
        .post(url)
        .json(body)
        .send()
        .await
        .unwrap()
        .status()
        .as_u16()
}

#[tokio::test]
async fn printed_callback_url_accepts_the_answer() {
    let folder = folder();
    let file = write(&folder, "approvals.json", APPROVALS);
    for flags in [&[][..], &["--json"]] {
        let mut process = Process::start(&[&["run", text(&file)], flags].concat(), &[], "");
        let first = address(&process, "first");
        assert!(
            first.starts_with("http://127.0.0.1:") && first.contains("/wh/"),
            "{first}"
        );
        assert_eq!(post(&first, &json!("yes")).await, 200);
        let second = address(&process, "second");
        assert_eq!(post(&first, &json!("again")).await, 409);
        assert_eq!(post(&format!("{second}x"), &json!({})).await, 404);
        assert_eq!(post(&second, &json!({ "approved": true })).await, 200);
        let ran = process.output();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let outputs = match flags.is_empty() {
            true => ran.json(),
            false => ran.json()["outputs"].clone(),
        };
        assert_eq!(outputs["body"], json!({ "first": "yes", "second": true }));
        let quiet = ran.stderr.lines().all(|line| line.starts_with("⏸ waiting"));
        assert_eq!(quiet, !flags.is_empty(), "{}", ran.stderr);
    }
}

#[test]
fn callback_flag_answers_a_wait() {
    let folder = folder();
    let file = write(&folder, "approvals.json", APPROVALS);
    // The second is answered before it is open, and the answer is kept.
    let answers = [
        "--callback",
        "second={\"approved\": true}",
        "--callback",
        "first=of course",
    ];
    let ran = fermata(&[&["run", text(&file)], &answers[..]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.json()["body"], json!({ "first": "of course", "second": true }));
    assert!(!ran.stderr.contains("/wh/"), "{}", ran.stderr);
}

#[test]
fn timeout_while_waiting_for_a_callback_exits_with_4() {
    let folder = folder();
    let file = write(&folder, "approvals.json", APPROVALS);
    let flags = ["--json", "--timeout", "2s", "--callback", "first=1"];
    let ran = fermata(&[&["run", text(&file)], &flags[..]].concat());
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let report = ran.json();
    assert_eq!(
        (&report["status"], &report["waiting"]),
        (&json!("Running"), &json!(["second"]))
    );
    assert!(
        ran.stderr.contains("because no callback came for second"),
        "{}",
        ran.stderr
    );
}

#[test]
fn callback_flag_needs_a_step_that_waits() {
    let folder = folder();
    let approvals = write(&folder, "approvals.json", APPROVALS);
    let order = example("order-processing.json");
    for (file, callbacks, says) in [
        (text(&approvals), &["third=1"][..], "these do: first, second"),
        (text(&approvals), &["first"], "write it as NAME=JSON"),
        (text(&approvals), &["first=1", "first=2"], "answered once"),
        (&order, &["charge=1"], "no step of this document does"),
    ] {
        let callbacks: Vec<&str> = callbacks.iter().flat_map(|callback| ["--callback", callback]).collect();
        let ran = fermata(&[&["run", file], &callbacks[..]].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains(says), "{says}: {}", ran.stderr);
    }
}

#[test]
fn problems_of_tasks_are_located() {
    let folder = folder();
    let broken = APPROVALS.replace("[\"pause\"]", "[\"puase\"]").replace(
        "tasks.second.body.approved == false",
        "tasks.second.body.approved = false",
    );
    let file = write(&folder, "approvals.json", broken);
    let checked = fermata(&["validate", text(&file)]);
    assert_eq!(checked.code, Some(2), "{checked:?}");
    for piece in [
        "approvals.json:4:",
        "did you mean `pause`?",
        "approvals.json:5:",
        "1 with 2 errors",
    ] {
        assert!(checked.stdout.contains(piece), "{piece}: {}", checked.stdout);
    }
    let ran = fermata(&["run", text(&file)]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("did you mean `pause`?"), "{}", ran.stderr);
    for name in ["order-processing.json", "trial-expiry.yaml", "checkout-flow.json"] {
        let drawn = fermata(&["graph", &example(name)]);
        assert!(
            drawn.code == Some(0) && drawn.stdout.contains("flowchart TD"),
            "{drawn:?}"
        );
    }
}

/// The address of a wait, in a run of `fermata dev` with this environment.
async fn address_with(environment: &[(&str, &str)]) -> (String, String) {
    let (data, documents) = (folder(), folder());
    let document = r#"{ "name": "address", "tasks": {
        "called": { "wait_for_webhook": { "timeout": "10ms" } },
        "tell": { "url": "http://playground.localhost/echo/x", "body": { "at": "{{wait.called.url}}" } } } }"#;
    write(&documents, "address.json", document);
    let server = Server::dev_with(data.path(), &[text(documents.path())], environment);
    let (status, run) = server
        .post("/api/v1/workflows/address/execute?wait=30s", &json!({}))
        .await;
    assert_eq!(status, 200, "{run}");
    let at = run["outputs"]["body"]["at"].as_str();
    (at.unwrap_or_else(|| panic!("{run}")).to_owned(), server.url.clone())
}

#[tokio::test]
async fn callback_urls_begin_with_the_public_url() {
    let (at, url) = address_with(&[]).await;
    assert!(at.starts_with(&format!("{url}/wh/")), "{at}");
    let (at, _) = address_with(&[("FERMATA_SERVER__PUBLIC_URL", "https://flows.example.com/x/")]).await;
    assert!(at.starts_with("https://flows.example.com/x/wh/"), "{at}");
    let wrong = [("FERMATA_SERVER__PUBLIC_URL", "flows.example.com")];
    let refused = Process::start(&["serve"], &wrong, "").output();
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("is not a URL"), "{}", refused.stderr);
}

/// `serve` works for others, and has no playground.
#[tokio::test]
async fn only_dev_and_run_have_the_playground() {
    let server = Server::start(&[]);
    let document = r#"{ "name": "n", "tasks": {
        "call": { "url": "http://playground.localhost:1/echo/x", "retries": 0 } } }"#;
    let (status, created) = server.send("POST", "/api/v1/workflows", document).await;
    assert_eq!(status, 201, "{created}");
    let (_, run) = server.post("/api/v1/workflows/n/execute?wait=30s", &json!({})).await;
    assert_eq!(run["status"], "Failed", "{run}");
}
