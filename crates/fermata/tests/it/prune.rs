//! `fermata prune` from outside.

use crate::support::{Process, Server, fermata, folder, home, text, write};
use serde_json::json;

const KEEP_NOTHING: &str =
    "[retention]\nsucceeded = 0\nfailed = 0\n[retention.workflows.kept]\nsucceeded = \"forever\"\n";

fn document(id: &str) -> serde_json::Value {
    json!({ "id": id, "displayName": id, "startNode": "a", "nodes": [{ "id": "a", "actionType": "core.echo" }] })
}

#[tokio::test]
async fn finished_runs_are_counted_and_removed() {
    let (home, folder) = (home(), folder());
    let mut server = Server::on(&home, &[], &[]);
    for id in ["order", "kept"] {
        server.publish(&document(id)).await;
        let (status, _) = server
            .send("POST", &format!("/api/v1/workflows/{id}/execute?wait=30s"), "{}")
            .await;
        assert_eq!(status, 200);
    }
    server.stop();
    let config = write(&folder, "fermata.toml", KEEP_NOTHING);
    let url = home.url();
    let prune = |more: &[&str]| {
        let call = ["prune", "--json", "--config", text(&config), "--database", &url];
        fermata(&[&call, more].concat())
    };
    for dry_run in [true, true, false] {
        let done = prune(if dry_run { &["--dry-run"] } else { &[] });
        assert_eq!(done.code, Some(0), "{done:?}");
        let expected = json!({ "dryRun": dry_run, "executions": 1, "emptied": 0, "deadLetters": 0, "auditRows": 0 });
        assert_eq!(done.json(), expected);
    }
    assert_eq!(prune(&[]).json()["executions"], 0);
    let server = Server::on(&home, &[], &[]);
    let (_, listed) = server.send("GET", "/api/v1/executions", "").await;
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "{listed}");
}

#[test]
fn calls_that_would_do_nothing_are_refused() {
    let folder = folder();
    let file = format!("sqlite:{}", text(&folder.path().join("f.db")));
    let missing = fermata(&["prune", "--database", &file]);
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.stderr.contains("there is no database"), "{}", missing.stderr);
    assert_eq!(fermata(&["migrate", "up", "--database", &file]).code, Some(0));
    let nothing = fermata(&["prune", "--database", &file]);
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    assert!(nothing.stderr.contains("[retention]"), "{}", nothing.stderr);
    let vacuumed = fermata(&["prune", "--vacuum", "--database", &file]);
    assert_eq!(vacuumed.code, Some(0), "{vacuumed:?}");
    let environment = [("FERMATA_RETENTION__SUCCEEDED", "1 week")];
    let wrong = Process::start(&["prune", "--database", &file], &environment, "").output();
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("forever"), "{}", wrong.stderr);
}
