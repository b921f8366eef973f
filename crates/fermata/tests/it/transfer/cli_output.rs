//! Output, refusals and exit codes of `fermata transfer`.

use super::Ends;
use crate::{
    runlater::service::Service,
    support::{Output, Server, fermata},
};
use fermata_store::conformance::cluster::execute;
use serde_json::json;

/// Stores one finished run in the SQLite file.
async fn one_run(ends: &Ends) {
    let service = Service::start().await;
    let mut server = Server::on(&ends.from, &[], &[]);
    let tasks = json!({ "do": { "url": service.at("/do") } });
    server.add(&json!({ "name": "quick", "tasks": tasks })).await;
    let run = server.trigger("quick", &json!({})).await;
    assert_eq!(server.over(&run).await["status"], "completed");
    assert_eq!(server.stop(), Some(0));
}

#[track_caller]
fn check(output: &Output, code: i32, expected: &[&str]) {
    assert_eq!(output.code, Some(code), "{output:?}");
    let all = format!("{}{}", output.stdout, output.stderr);
    for text in expected {
        assert!(all.contains(text), "`{text}` is not in {output:?}");
    }
    assert!(!all.contains("secret"), "{output:?}");
}

#[test]
fn invalid_arguments_are_refused() {
    let postgres = "postgres://me:secret@host:port/db";
    for (arguments, message) in [
        (vec!["transfer"], "--from is missing"),
        (vec!["transfer", "--from", "sqlite:a.db"], "--to is missing"),
        (
            vec!["transfer", "--from", "memory:", "--to", "sqlite:b.db"],
            "cannot be moved",
        ),
        (vec!["transfer", "--from", "sqlite:a.db", "--to", postgres], "--to: "),
        (vec!["transfer", "--reopen", "a.db"], "did you mean `sqlite:a.db`?"),
        (
            vec!["transfer", "--reopen", "sqlite:a.db", "--resume"],
            "cannot be used with",
        ),
    ] {
        check(&fermata(&arguments), 2, &[message]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_then_transfer_then_reopen() {
    let ends = Ends::new();
    one_run(&ends).await;
    check(
        &ends.transfer(&["--dry-run"]),
        0,
        &["workflow_executions", "rows would be moved from sqlite:"],
    );
    let dry_run = ends.transfer(&["--dry-run", "--json"]);
    check(&dry_run, 0, &[]);
    check(&ends.transfer(&["--resume"]), 1, &["start one without --resume"]);
    let moved = ends.transfer(&[]);
    check(
        &moved,
        0,
        &["both databases agree on every table", "no server opens it any more"],
    );
    assert!(
        moved
            .stderr
            .contains("workflow_executions: 1 rows\ncomparing both databases"),
        "{moved:?}"
    );
    let rows = dry_run.json()["rows"].as_u64().expect("a number");
    assert!(
        moved.stdout.contains(&format!("\n{rows} rows are in postgres://")),
        "{moved:?}"
    );
    check(&ends.transfer(&[]), 1, &["was moved to", "--reopen"]);
    let from = ends.from.url();
    check(&fermata(&["transfer", "--reopen", &from]), 0, &["can be served again"]);
    check(&fermata(&["transfer", "--reopen", &from]), 0, &["nothing was changed"]);
    check(&ends.transfer(&[]), 1, &["is not empty"]);
    assert_eq!(Server::on(&ends.from, &[], &[]).stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn mismatched_table_is_named() {
    let ends = Ends::new();
    one_run(&ends).await;
    let corrupt = "CREATE FUNCTION corrupt() RETURNS trigger LANGUAGE plpgsql AS
          $$ BEGIN NEW.data := replace(NEW.data, 'o', '0'); RETURN NEW; END $$;
        CREATE TRIGGER corrupt BEFORE INSERT ON execution_events FOR EACH ROW EXECUTE FUNCTION corrupt()";
    execute(&ends.to.url(), corrupt).await;
    let message = ["execution_events is not the same in both databases", "--reopen"];
    check(&ends.transfer(&[]), 1, &message);
    let refused = fermata(&["serve", "--listen", "127.0.0.1:0", "--database", &ends.to.url()]);
    check(&refused, 1, &["is not finished"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_in_use_are_refused() {
    let ends = Ends::new();
    let mut server = Server::on(&ends.from, &[], &[]);
    check(&ends.transfer(&[]), 1, &["is in use by another process"]);
    assert_eq!(server.stop(), Some(0));
    let mut server = Server::on(&ends.to, &[], &[]);
    check(&ends.transfer(&[]), 1, &["is in use: ", "nothing was moved"]);
    // The running server is not affected.
    assert_eq!(server.get("/health/ready").await.0, 200);
    assert_eq!(server.stop(), Some(0));
    check(&ends.transfer(&[]), 0, &[]);
}
