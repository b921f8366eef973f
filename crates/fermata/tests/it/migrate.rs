//! `fermata migrate` from outside, and what `serve` does with a schema that is older than itself.

use crate::support::{Process, Server, fermata, folder, home, text};
use fermata_store::conformance::home::Home;

/// Calls `fermata migrate` for a database.
fn migrate(home: &Home, what: &[&str]) -> crate::support::Output {
    fermata(&[&["migrate"], what, &["--database", &home.url()]].concat())
}

/// `(number, whether it was applied)` of each migration.
fn steps(home: &Home) -> Vec<(u64, bool)> {
    let shown = migrate(home, &["status", "--json"]).json();
    let steps = shown["migrations"].as_array().expect("a list");
    steps
        .iter()
        .map(|step| {
            (
                step["number"].as_u64().expect("a number"),
                step["appliedAt"].is_string(),
            )
        })
        .collect()
}

#[tokio::test]
async fn schema_is_migrated_up_and_down() {
    let home = home();
    let first = migrate(&home, &["up"]);
    assert_eq!(first.code, Some(0), "{first:?}");
    let again = migrate(&home, &["up"]);
    assert!(
        again.code == Some(0) && again.stdout.contains("is up to date"),
        "{again:?}"
    );
    let all = steps(&home);
    assert!(all.len() > 1 && all.iter().all(|(_, applied)| *applied), "{all:?}");

    let status = migrate(&home, &["status"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    assert!(status.stdout.starts_with("NUMBER  NAME"), "{}", status.stdout);
    assert!(
        status
            .stderr
            .contains("is up to date; Fermata 0.2.0 and newer may use it"),
        "{}",
        status.stderr
    );

    let undone = migrate(&home, &["down"]);
    assert_eq!(undone.code, Some(0), "{undone:?}");
    assert!(
        undone.stdout.starts_with(&format!("undid {} (", all.len())),
        "{}",
        undone.stdout
    );
    let (last, rest) = all.split_last().expect("migrations");
    assert_eq!(steps(&home), [rest, &[(last.0, false)]].concat());
    let status = migrate(&home, &["status"]);
    assert!(
        status.code == Some(3) && status.stdout.contains("not yet"),
        "{status:?}"
    );
    assert!(status.stderr.contains("with `fermata migrate up`"), "{}", status.stderr);

    // A server may not touch it, or brings it up to date.
    let environment = [("FERMATA_DATABASE__MIGRATE", "manual")];
    let serve = ["serve", "--listen", "127.0.0.1:0", "--database", &home.url()];
    let refused = Process::start(&serve, &environment, "").output();
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let says = format!("has schema {} and this program needs {}", all.len() - 1, all.len());
    assert!(refused.stderr.contains(&says), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("fermata migrate up") && !refused.stderr.contains("@"),
        "{}",
        refused.stderr
    );
    assert_eq!(migrate(&home, &["status"]).code, Some(3), "nothing was changed");
    let mut server = Server::on(&home, &[], &[]);
    assert_eq!(
        migrate(&home, &["status"]).code,
        Some(0),
        "status works while the database is in use"
    );
    let in_use = migrate(&home, &["down"]);
    assert!(in_use.code == Some(1) && in_use.stderr.contains("in use"), "{in_use:?}");
    assert_eq!(server.stop(), Some(0));
    let mut server = Server::on(&home, &[], &environment);
    assert_eq!(server.get("/health/ready").await.0, 200);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn databases_that_cannot_be_migrated_are_refused() {
    let memory = fermata(&["migrate", "status", "--database", "memory:"]);
    assert_eq!(memory.code, Some(2), "{memory:?}");
    assert!(memory.stderr.contains("has no schema"), "{}", memory.stderr);
    assert_eq!(fermata(&["migrate"]).code, Some(2));
    let nowhere = fermata(&["migrate", "up", "--database", "postgres://u:secret@host:x/d"]);
    assert!(
        nowhere.code == Some(2) && !nowhere.stderr.contains("secret"),
        "{nowhere:?}"
    );
}

#[test]
fn sqlite_status_creates_no_file() {
    let folder = folder();
    let file = folder.path().join("none.db");
    let url = format!("sqlite:{}", text(&file));
    let status = fermata(&["migrate", "status", "--database", &url]);
    assert!(
        status.code == Some(3) && status.stdout.contains("not yet"),
        "{status:?}"
    );
    assert_eq!(fermata(&["migrate", "down", "--database", &url]).code, Some(1));
    assert!(!file.exists());
}
