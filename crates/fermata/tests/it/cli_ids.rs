//! Ids that are shortened on the command line.

use crate::support::{Output, Process, Server};
use serde_json::json;

fn at(server: &Server, arguments: &[&str]) -> Output {
    Process::start(arguments, &[("FERMATA_SERVER", &server.url)], "").output()
}

#[tokio::test]
async fn executions_are_found_by_the_beginning_and_the_end_of_their_id() {
    let server = Server::start(&[]);
    let hello = json!({ "id": "hello", "displayName": "H", "startNode": "a", "nodes": [
        { "id": "a", "actionType": "core.echo" } ] });
    server.publish(&hello).await;
    let first = server.execute("hello", &json!({})).await;
    server.ended(&first).await;
    let alone = at(&server, &["executions", "get", &first[..8], "-o", "json"]);
    assert_eq!(alone.json()["id"], first.as_str(), "{alone:?}");

    let second = server.execute("hello", &json!({})).await;
    server.ended(&second).await;
    for id in [&first, &second] {
        for part in [&id[id.len() - 10..], &id[..30], id.as_str()] {
            let shown = at(&server, &["executions", "get", part, "-o", "json"]);
            assert_eq!(shown.json()["id"], id.as_str(), "{part}: {shown:?}");
        }
    }
    let several = at(&server, &["executions", "get", &first[..4]]);
    assert_eq!(several.code, Some(2), "{several:?}");
    for piece in ["could be any of these executions", first.as_str(), second.as_str()] {
        assert!(several.stderr.contains(piece), "{piece}: {}", several.stderr);
    }
    let none = at(&server, &["executions", "get", "ffff0000"]);
    assert!(
        none.code == Some(2) && none.stderr.contains("no execution has an id that begins with"),
        "{none:?}"
    );
    let no_id = at(&server, &["executions", "get", "hello"]);
    assert!(
        no_id.code == Some(2) && no_id.stderr.contains("is not the id of an execution"),
        "{no_id:?}"
    );
}

#[tokio::test]
async fn workflows_are_found_by_the_beginning_of_their_id() {
    let server = Server::start(&[]);
    for id in ["order", "order-archive", "refund"] {
        let document = json!({ "id": id, "displayName": id, "startNode": "a", "nodes": [
            { "id": "a", "actionType": "core.echo" } ] });
        server.publish(&document).await;
    }
    let shown = at(&server, &["workflows", "get", "ref", "-o", "json"]);
    assert_eq!(shown.json()["id"], "refund", "{shown:?}");
    // A full id is never a shortened one.
    let shown = at(&server, &["workflows", "get", "order", "-o", "json"]);
    assert_eq!(shown.json()["id"], "order", "{shown:?}");
    let several = at(&server, &["workflows", "disable", "ord"]);
    assert_eq!(several.code, Some(2), "{several:?}");
    for piece in ["could be any of these workflows", "\n  order\n", "\n  order-archive"] {
        assert!(
            several.stderr.replace("fermata: ", "").contains(piece),
            "{piece}: {}",
            several.stderr
        );
    }
    let near = at(&server, &["workflows", "get", "rfeund"]);
    assert!(
        near.code == Some(1) && near.stderr.contains("did you mean `refund`?"),
        "{near:?}"
    );
    let deleted = at(&server, &["workflows", "delete", "ref"]);
    assert!(
        deleted.code == Some(1) && deleted.stderr.contains("WORKFLOW_NOT_FOUND"),
        "{deleted:?}"
    );
}
