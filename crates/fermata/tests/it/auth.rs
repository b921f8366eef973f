//! Keys, tokens and profiles from outside, and servers that others reach.

use crate::support::{PATIENCE, Process, Server, fermata, folder, home, text};
use reqwest::Client;
use serde_json::Value;
use std::{fs::Permissions, os::unix::fs::PermissionsExt, time::Instant};

const STRICT: (&str, &str) = ("FERMATA_AUTH__ALLOW_LOOSE_AUTH", "false");

/// Creates a key in a database without a server.
fn create(database: &str, more: &[&str]) -> String {
    let call = ["keys", "create", "--database", database];
    let created = fermata(&[&call, more].concat());
    assert_eq!(created.code, Some(0), "{created:?}");
    assert!(created.stderr.contains("not shown again"), "{}", created.stderr);
    assert!(!created.stderr.contains(created.stdout.trim()), "{}", created.stderr);
    let key = created.stdout.strip_suffix('\n').unwrap().to_owned();
    assert!(
        key.starts_with("fk_") && !key.contains(['\n', ' ']),
        "the key alone: {key}"
    );
    key
}

fn with_token(arguments: &[&str], server: &str, token: &str) -> crate::support::Output {
    let environment = [("FERMATA_SERVER", server), ("FERMATA_TOKEN", token)];
    Process::start(arguments, &environment, "").output()
}

#[tokio::test]
async fn keys_are_made_without_a_server_used_and_revoked() {
    let home = home();
    let root = create(&home.url(), &["--name", "root", "--scopes", "admin,workflows:read"]);
    let server = Server::on(&home, &[], &[STRICT, ("FERMATA_LOG__LEVEL", "debug")]);
    let url = server.url.as_str();
    let bare = Process::start(&["workflows", "list"], &[("FERMATA_SERVER", url)], "").output();
    assert_eq!(bare.code, Some(1), "{bare:?}");
    assert!(
        bare.stderr.contains("UNAUTHENTICATED") && bare.stderr.contains("FERMATA_TOKEN"),
        "{bare:?}"
    );
    let listed = with_token(&["workflows", "list", "--json"], url, &root);
    assert_eq!(listed.code, Some(0), "{listed:?}");

    let call = [
        "keys",
        "create",
        "--name",
        "ci",
        "--scopes",
        "workflows:read",
        "--tenant",
        "acme",
        "--expires",
        "90d",
    ];
    let created = with_token(&call, url, &root);
    assert_eq!(created.code, Some(0), "{created:?}");
    let ci = created.stdout.trim().to_owned();
    assert_eq!(with_token(&["workflows", "list"], url, &ci).code, Some(0));
    let refused = with_token(&["keys", "list"], url, &ci);
    assert!(refused.stderr.contains("INSUFFICIENT_SCOPE"), "{refused:?}");
    assert!(!refused.stderr.contains(&ci), "{refused:?}");

    let list = with_token(&["keys", "list", "--json"], url, &root).json();
    let key = &list["items"][0];
    assert_eq!(
        (&key["name"], &key["tenantId"]),
        (&Value::from("ci"), &Value::from("acme"))
    );
    let table = with_token(&["keys", "list", "--tenant", "acme"], url, &root);
    assert!(
        table.stdout.contains("acme") && !table.stdout.contains("root"),
        "{table:?}"
    );
    let id = key["id"].as_str().unwrap();
    assert_eq!(with_token(&["keys", "revoke", id], url, &root).code, Some(0));
    let began = Instant::now();
    while with_token(&["workflows", "list"], url, &ci).code == Some(0) {
        assert!(began.elapsed() < PATIENCE, "the revoked key is still accepted");
    }
    let log = server.process().log();
    assert!(!log.contains(&root) && !log.contains(&ci), "{log}");
}

#[tokio::test]
async fn a_key_survives_a_kill_right_after_it_was_made() {
    let home = home();
    let root = create(&home.url(), &["--name", "root", "--scopes", "admin,workflows:read"]);
    let mut server = Server::on(&home, &[], &[STRICT]);
    let call = [
        "keys",
        "create",
        "--name",
        "ci",
        "--scopes",
        "workflows:read",
        "--tenant",
        "acme",
    ];
    let ci = with_token(&call, &server.url, &root).stdout.trim().to_owned();
    let list = with_token(&["keys", "list", "--json"], &server.url, &root).json();
    let doomed = create_on(&server, &root);
    let id = with_token(&["keys", "list", "--json"], &server.url, &root).json()["items"][0]["id"].clone();
    assert_ne!(id, list["items"][0]["id"]);
    let revoked = with_token(&["keys", "revoke", id.as_str().unwrap()], &server.url, &root);
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    server.kill9();
    server.restart();
    assert_eq!(with_token(&["workflows", "list"], &server.url, &ci).code, Some(0));
    assert_eq!(with_token(&["workflows", "list"], &server.url, &doomed).code, Some(1));
}

fn create_on(server: &Server, root: &str) -> String {
    let call = [
        "keys",
        "create",
        "--name",
        "doomed",
        "--scopes",
        "workflows:read",
        "--tenant",
        "acme",
    ];
    with_token(&call, &server.url, root).stdout.trim().to_owned()
}

#[test]
fn wrong_keys_are_refused_before_anything_is_stored() {
    let folder = folder();
    let url = format!("sqlite:{}", text(&folder.path().join("f.db")));
    for (more, why) in [
        (&["--name", "a", "--scopes", "read"][..], "`read` is not a scope"),
        (&["--name", "a", "--scopes", "workflows:read"], "tenant"),
        (&["--name", "a", "--scopes", "admin", "--expires", "soon"], "90d"),
        (&["--name", "", "--scopes", "admin"], "name"),
    ] {
        let refused = fermata(&[&["keys", "create", "--database", &url], more].concat());
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(why) && refused.stdout.is_empty(), "{refused:?}");
    }
    let memory = fermata(&[
        "keys",
        "create",
        "--database",
        "memory:",
        "--name",
        "a",
        "--scopes",
        "admin",
    ]);
    assert_eq!(memory.code, Some(2), "{memory:?}");
    let missing = fermata(&[
        "keys",
        "revoke",
        "--database",
        &url,
        "0199a7c2-0000-7000-8000-000000000000",
    ]);
    assert_eq!(missing.code, Some(1), "{missing:?}");
}

#[test]
fn a_server_that_others_reach_needs_auth() {
    let folder = folder();
    let url = format!("sqlite:{}", text(&folder.path().join("f.db")));
    let serve = ["serve", "--listen", "0.0.0.0:0", "--database", &url];
    let refused = fermata(&serve);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    for word in [
        "[auth]",
        "allow_loose_auth = true",
        "allow_loose_auth = false",
        "fermata keys create",
    ] {
        assert!(refused.stderr.contains(word), "{}", refused.stderr);
    }
    assert!(!folder.path().join("f.db").exists(), "nothing was started");
    let dev = Process::start_in(folder.path(), &["dev", "--listen", "0.0.0.0:0"], &[], "").output();
    assert_eq!(dev.code, Some(2), "{dev:?}");
    let downstream = [("FERMATA_AUTH__VALIDATE_DOWNSTREAM_PERMISSIONS", "true")];
    let refused = Process::start(
        &["serve", "--listen", "127.0.0.1:0", "--database", "memory:"],
        &downstream,
        "",
    )
    .output();
    assert_eq!(refused.code, Some(2), "{refused:?}");
    for loose in ["true", "false"] {
        let environment = [("FERMATA_AUTH__ALLOW_LOOSE_AUTH", loose)];
        let server = Process::start(
            &["serve", "--listen", "0.0.0.0:0", "--database", "memory:"],
            &environment,
            "",
        );
        server.wait_for_line("listening on");
    }
}

#[tokio::test]
async fn a_profile_holds_server_and_token() {
    let (home, folder) = (home(), folder());
    let root = create(&home.url(), &["--name", "root", "--scopes", "admin,workflows:read"]);
    let server = Server::on(&home, &[], &[STRICT]);
    let path = folder.path().join("profile.toml");
    std::fs::write(&path, format!("server = \"{}\"\ntoken = \"{root}\"\n", server.url)).unwrap();
    let list = |mode: u32, environment: &[(&str, &str)]| {
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let profile = [("FERMATA_PROFILE", text(&path))];
        Process::start(&["workflows", "list"], &[&profile[..], environment].concat(), "").output()
    };
    assert_eq!(list(0o600, &[]).code, Some(0));
    let open = list(0o644, &[]);
    assert_eq!(open.code, Some(2), "{open:?}");
    assert!(
        open.stderr.contains("chmod 600") && !open.stderr.contains(&root),
        "{open:?}"
    );
    // The token is for the server of the profile.
    let other = Server::on(&crate::support::home(), &[], &[STRICT]);
    let refused = list(0o600, &[("FERMATA_SERVER", &other.url)]);
    assert!(refused.stderr.contains("UNAUTHENTICATED"), "{refused:?}");
    let help = Process::start(&["workflows", "--help"], &[("FERMATA_TOKEN", &root)], "").output();
    assert!(
        help.stdout.contains("FERMATA_TOKEN") && !help.stdout.contains(&root),
        "{help:?}"
    );
}

#[tokio::test]
async fn an_expired_key_is_refused() {
    let home = home();
    let root = create(&home.url(), &["--name", "root", "--scopes", "admin", "--expires", "1s"]);
    let other = create(
        &home.url(),
        &["--name", "other", "--scopes", "admin", "--expires", "1h"],
    );
    let server = Server::on(&home, &[], &[STRICT]);
    let began = Instant::now();
    let client = Client::builder().no_proxy().build().unwrap();
    loop {
        let request = client.get(format!("{}/api/v1/runners", server.url)).bearer_auth(&root);
        let response = request.send().await.unwrap();
        if response.status() == 401 {
            let body = response.text().await.unwrap();
            assert!(body.contains("INVALID_TOKEN") && !body.contains(&root), "{body}");
            break;
        }
        assert!(began.elapsed() < PATIENCE, "the expired key is still accepted");
    }
    let list = with_token(&["keys", "list"], &server.url, &other).stdout;
    assert!(list.contains("expired ") && list.contains("expires in "), "{list}");
}
