//! Migrations: applied, undone, and with another release at the same time.

use super::*;
use crate::{
    Store,
    conformance::{
        self, Subject,
        busy::{Worker, all_make_progress},
    },
    schema::Migrate,
    sqlite::{
        SqliteStore,
        open::{Purpose, open_as},
    },
    transfer::mark::{self, Mark},
};
use std::{path::PathBuf, sync::Arc};
use tempfile::TempDir;

/// The next release, which follows the rules of migrations.
const NEXT: Migration = Migration {
    number: MIGRATIONS.len() as u32 + 1,
    name: "next",
    up: "ALTER TABLE workflow_executions ADD COLUMN next_note TEXT;
        ALTER TABLE workflows ADD COLUMN next_kind TEXT NOT NULL DEFAULT 'plain';
        ALTER TABLE run_waits ADD COLUMN next_at INTEGER;
        CREATE TABLE next_things (id BLOB NOT NULL PRIMARY KEY) WITHOUT ROWID;
        CREATE INDEX ix_next ON workflow_executions (next_note, id) WHERE next_note IS NOT NULL;",
    back: Back::None("it is for a test"),
    oldest_program: env!("CARGO_PKG_VERSION"),
};

/// A copy, because the list of migrations is a constant.
fn copy(migration: &Migration) -> Migration {
    Migration {
        back: Back::None("not asked for"),
        ..*migration
    }
}

fn next_release(oldest_program: &'static str) -> Vec<Migration> {
    let mut migrations: Vec<Migration> = MIGRATIONS.iter().map(copy).collect();
    migrations.push(Migration {
        oldest_program,
        ..copy(&NEXT)
    });
    migrations
}

struct File {
    _folder: TempDir,
    path: PathBuf,
}

impl File {
    fn new() -> File {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fermata.db");
        File { _folder: folder, path }
    }

    /// Migrates it as a program with these migrations does.
    fn migrate(&self, version: &str, migrations: &[Migration]) {
        let program = Program { version, migrations };
        open_as(&program, &self.path, Purpose::Store(Migrate::Auto)).unwrap();
    }

    fn connection(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }
}

/// Tables and indexes as they were created, ignoring white space.
fn schema(connection: &Connection) -> Vec<String> {
    let mut statement = connection
        .prepare("SELECT COALESCE(sql, name) FROM sqlite_schema ORDER BY name")
        .unwrap();
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let plain = |sql: String| sql.split_whitespace().collect::<Vec<_>>().join(" ").replace(" )", ")");
    rows.map(|row| plain(row.unwrap())).collect()
}

/// Applies the migrations up to this one.
fn up_to(connection: &Connection, number: u32) {
    let migrations: Vec<Migration> = MIGRATIONS[..number as usize].iter().map(copy).collect();
    apply(connection, &Program::this(&migrations)).unwrap();
}

#[test]
fn numbers_and_programs_grow() {
    let numbers: Vec<u32> = MIGRATIONS.iter().map(|migration| migration.number).collect();
    let expected: Vec<u32> = (1..=MIGRATIONS.len()).map(|number| number as u32).collect();
    assert_eq!(numbers, expected);
    for pair in MIGRATIONS.windows(2) {
        let check = PROGRAM.check(pair[1].oldest_program, "it");
        assert!(check.is_ok(), "this program may use what it made");
        assert!(crate::program::check(pair[0].oldest_program, pair[1].oldest_program, "it").is_ok());
    }
}

#[test]
fn applying_twice_changes_nothing() {
    let connection = Connection::open_in_memory().unwrap();
    apply(&connection, &PROGRAM).unwrap();
    let before = schema(&connection);
    apply(&connection, &PROGRAM).unwrap();
    assert_eq!(schema(&connection), before);
}

#[test]
fn undoing_a_migration_restores_the_schema() {
    for migration in MIGRATIONS {
        let Back::Down { .. } = migration.back else { continue };
        let (went, stayed) = (
            Connection::open_in_memory().unwrap(),
            Connection::open_in_memory().unwrap(),
        );
        up_to(&stayed, migration.number - 1);
        let program = Program::this(&MIGRATIONS[..migration.number as usize]);
        apply(&went, &program).unwrap();
        assert_ne!(schema(&went), schema(&stayed), "{migration:?} does nothing");
        let step = take_back(&went, &program, "it").unwrap();
        assert_eq!((step.number, step.applied_at), (migration.number, None));
        assert_eq!(schema(&went), schema(&stayed), "{}", migration.name);
        apply(&went, &program).unwrap();
        let straight = Connection::open_in_memory().unwrap();
        apply(&straight, &program).unwrap();
        assert_eq!(schema(&went), schema(&straight), "{}", migration.name);
    }
}

#[test]
fn a_migration_is_not_undone_if_data_would_be_lost() {
    for (number, insert, says) in [
        (
            13,
            "INSERT INTO workflows (id, uid, display_name, dialect, created_at, updated_at, tenant_id)
               VALUES ('w', x'01', '', '', 0, 0, 'acme'), ('w', x'02', '', '', 0, 0, '');
             INSERT INTO registered_callbacks VALUES ('acme', 'c', '', '', '', '', 0);
             INSERT INTO workflow_version_marks VALUES ('acme', 'w', 1)",
            "lost: 1 workflows of tenants, 1 workflows of tenants whose versions would be numbered from 1 again, \
             1 registered callbacks of tenants",
        ),
        (
            5,
            "INSERT INTO workflows (id, uid, display_name, dialect, created_at, updated_at, deleted_at)
               VALUES ('w', x'01', '', '', 0, 0, 1), ('w', x'02', '', '', 0, 0, NULL)",
            "1 workflows whose name another one has, or had before it was deleted",
        ),
        (
            4,
            "INSERT INTO dead_letters (id, enqueued_at, reason, workflow_execution_id, workflow_id, workflow_version,
               payload_json) VALUES (x'01', 0, 'r', x'02', 'w', 1, '{}')",
            "migration 4 (runners and dead letters) stays, because this would be lost: 1 dead letters",
        ),
        (
            3,
            "INSERT INTO workflows (id, uid, display_name, dialect, created_at, updated_at) VALUES ('w', x'01', '', '', 0, 0)",
            "1 workflows whose ids (`uid`) others may know",
        ),
        (
            2,
            "INSERT INTO workflow_version_marks VALUES ('w', 7)",
            "1 workflows whose versions would be numbered from 1 again",
        ),
        (
            1,
            "SELECT 1 WHERE 0",
            "migration 1 (first) stays: it created the whole schema",
        ),
    ] {
        let connection = Connection::open_in_memory().unwrap();
        let program = Program::this(&MIGRATIONS[..number]);
        apply(&connection, &program).unwrap();
        connection.execute_batch(insert).unwrap();
        let before = schema(&connection);
        let error = take_back(&connection, &program, "it").unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("Nothing was changed"), "{error}");
        assert_eq!(schema(&connection), before);
        assert_eq!(super::number(&connection).unwrap(), number as u32);
    }
}

#[test]
fn a_file_is_migrated_and_migrated_back() {
    let file = File::new();
    let missing = SqliteStore::schema(&file.path).unwrap();
    assert!(missing.is_outdated() && missing.oldest_program.is_none() && !file.path.exists());
    assert!(matches!(
        SqliteStore::migrate_back(&file.path),
        Err(StoreError::NoWayBack { .. })
    ));
    assert!(!file.path.exists());

    let steps = SqliteStore::migrate(&file.path).unwrap();
    assert_eq!(steps.len(), MIGRATIONS.len());
    assert!(SqliteStore::migrate(&file.path).unwrap().is_empty());
    let now = SqliteStore::schema(&file.path).unwrap();
    assert!(!now.is_outdated() && now.oldest_program.as_deref() == Some("0.2.0"));
    let at = now.steps[0].applied_at.as_deref().unwrap();
    assert!(at.len() == 20 && at.ends_with('Z') && &at[10..11] == "T", "{at}");

    let store = SqliteStore::open(&file.path).unwrap();
    assert!(
        !SqliteStore::schema(&file.path).unwrap().is_outdated(),
        "reading the schema needs no lock"
    );
    for refused in [
        SqliteStore::migrate(&file.path).err(),
        SqliteStore::migrate_back(&file.path).err(),
    ] {
        assert!(matches!(refused, Some(StoreError::Locked { .. })), "{refused:?}");
    }
    drop(store);
    assert_eq!(
        SqliteStore::migrate_back(&file.path).unwrap().number,
        MIGRATIONS.len() as u32
    );
    let back = SqliteStore::schema(&file.path).unwrap();
    assert_eq!(back.steps.last().unwrap().applied_at, None);
    assert_eq!(SqliteStore::migrate(&file.path).unwrap().len(), 1);
}

#[test]
fn an_old_file_is_refused_without_automatic_migration() {
    let file = File::new();
    let outdated = |number: u32| match SqliteStore::open_with(&file.path, Migrate::Manual).err() {
        Some(StoreError::Outdated { have, needs, .. }) => (have, needs) == (number, MIGRATIONS.len() as u32),
        other => panic!("{other:?}"),
    };
    assert!(outdated(0));
    assert!(!file.path.exists());
    file.migrate("0.1.0", &MIGRATIONS[..2]);
    let before = schema(&file.connection());
    assert!(outdated(2));
    assert_eq!(schema(&file.connection()), before);
    SqliteStore::migrate(&file.path).unwrap();
    SqliteStore::open_with(&file.path, Migrate::Manual).unwrap();
}

/// A file that the next release migrated, opened by this program.
fn after_the_next_release() -> Subject {
    let file = File::new();
    file.migrate("99.0.0", &next_release(PROGRAM.version));
    assert_eq!(number(&file.connection()).unwrap(), NEXT.number);
    let store = SqliteStore::open(&file.path).unwrap();
    let seen = SqliteStore::schema(&file.path).unwrap();
    let unknown = seen.steps.last().unwrap();
    assert!(!unknown.is_known && unknown.name == "next" && !seen.is_outdated());
    Subject::new(store, file)
}

crate::conformance_tests!(back_one_release, after_the_next_release());

#[tokio::test]
async fn the_previous_release_is_accepted_or_refused() {
    let file = File::new();
    file.migrate("99.0.0", &next_release("99.0.0"));
    let before = std::fs::read(&file.path).unwrap();
    for open in [Migrate::Auto, Migrate::Manual].map(|migrate| SqliteStore::open_with(&file.path, migrate)) {
        assert!(
            matches!(&open, Err(StoreError::TooNew { needs, .. }) if needs == "99.0.0"),
            "{:?}",
            open.err()
        );
    }
    assert!(matches!(
        SqliteStore::migrate_back(&file.path),
        Err(StoreError::TooNew { .. })
    ));
    assert_eq!(std::fs::read(&file.path).unwrap(), before, "nothing was written");

    // The previous release of this program: it knows fewer migrations, and finds nothing to do.
    let file = File::new();
    SqliteStore::migrate(&file.path).unwrap();
    let program = Program {
        version: PROGRAM.version,
        migrations: &MIGRATIONS[..MIGRATIONS.len() - 1],
    };
    let opened = open_as(&program, &file.path, Purpose::Store(Migrate::Manual)).unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::start(&file.path, opened).unwrap());
    conformance::activate(&store, conformance::WORKFLOW).await;
    conformance::pending(&store, "r1").await;
    store.close().await.unwrap();
    assert_eq!(number(&file.connection()).unwrap(), MIGRATIONS.len() as u32);
    // Only a program that knows a migration can undo it.
    let error = take_back(&file.connection(), &program, "it").unwrap_err().to_string();
    assert!(error.contains("a newer program applied it"), "{error}");
}

#[test]
fn a_moved_file_is_not_changed() {
    let file = File::new();
    SqliteStore::migrate(&file.path).unwrap();
    let mark = Mark::Moved {
        transfer: uuid::Uuid::nil(),
        to: "elsewhere".to_owned(),
    };
    let insert = "INSERT INTO meta (key, value) VALUES (?1, ?2)";
    file.connection().execute(insert, (mark::KEY, mark.to_text())).unwrap();
    for refused in [
        SqliteStore::migrate(&file.path).err(),
        SqliteStore::migrate_back(&file.path).err(),
    ] {
        let refused = refused.map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("moved to elsewhere"), "{refused}");
    }
    assert_eq!(number(&file.connection()).unwrap(), MIGRATIONS.len() as u32);
}

#[test]
fn migrations_are_atomic() {
    let file = File::new();
    file.migrate("0.1.0", &MIGRATIONS[..2]);
    let before = schema(&file.connection());
    let mut migrations = next_release(PROGRAM.version);
    migrations.last_mut().unwrap().up = "CREATE TABLE next_things (id BLOB); CREATE TABLE next_things (id BLOB);";
    let program = Program {
        version: "99.0.0",
        migrations: &migrations,
    };
    let failed = open_as(&program, &file.path, Purpose::Store(Migrate::Auto))
        .err()
        .unwrap();
    assert!(failed.to_string().contains("next_things"), "{failed}");
    assert_eq!(schema(&file.connection()), before);
    assert_eq!(number(&file.connection()).unwrap(), 2);
}

/// The lock prevents this in practice, but nothing would break: additions do not disturb a process that has the file
/// open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_store_keeps_working_during_a_migration() {
    let file = File::new();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&file.path).unwrap());
    conformance::activate(&store, conformance::WORKFLOW).await;
    let workers: Vec<Worker> = (0..4).map(|number| Worker::start(&store, number)).collect();
    all_make_progress(&workers).await;
    let migrations = next_release(PROGRAM.version);
    let next = Program {
        version: "99.0.0",
        migrations: &migrations,
    };
    let other = file.connection();
    other.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    apply(&other, &next).unwrap();
    other.execute_batch("COMMIT").unwrap();
    all_make_progress(&workers).await;
    let mut done = 0;
    for worker in workers {
        done += worker.stop().await;
    }
    let sql = "SELECT COUNT(*) FROM workflow_executions WHERE status = 'Succeeded' AND next_note IS NULL";
    let ended: u32 = other.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(ended, done);
    store.close().await.unwrap();
}

#[test]
fn old_workflows_get_a_uid_of_their_creation_time() {
    let connection = Connection::open_in_memory().unwrap();
    up_to(&connection, 2);
    let insert =
        "INSERT INTO workflows (id, display_name, dialect, created_at, updated_at) VALUES (?1, 'W', 'd', ?2, 0)";
    for number in 0..200_i64 {
        let created_at = 1_770_000_000_000_000 + number * 1_000_000;
        connection
            .execute(insert, (format!("w{number:03}"), created_at))
            .unwrap();
    }
    apply(&connection, &PROGRAM).unwrap();
    let mut statement = connection
        .prepare("SELECT uid, created_at, deleted_at FROM workflows ORDER BY id")
        .unwrap();
    let rows = statement.query_map([], |row| {
        let uid = uuid::Uuid::from_slice(&row.get::<_, Vec<u8>>(0)?).unwrap();
        Ok((uid, row.get::<_, i64>(1)?, row.get::<_, Option<i64>>(2)?))
    });
    let rows: Vec<_> = rows.unwrap().map(|row| row.unwrap()).collect();
    assert_eq!(rows.len(), 200);
    for (uid, created_at, deleted_at) in &rows {
        assert_eq!(uid.get_version_num(), 7, "{uid}");
        assert_eq!(uid.get_variant(), uuid::Variant::RFC4122, "{uid}");
        let (seconds, nanos) = uid.get_timestamp().unwrap().to_unix();
        assert_eq!(seconds as i64 * 1_000_000 + i64::from(nanos) / 1000, *created_at);
        assert_eq!(*deleted_at, None);
    }
    assert!(rows.is_sorted_by_key(|(uid, ..)| *uid));
}

/// Rows that refer to a name get the uid of the workflow that has the name, also if that was created after a deletion.
#[test]
fn references_by_name_become_references_by_uid() {
    let connection = Connection::open_in_memory().unwrap();
    up_to(&connection, 4);
    let fill = "
        INSERT INTO workflows (id, uid, display_name, description, dialect, current_version, latest_version, status,
          is_enabled, created_at, updated_at, deleted_at) VALUES
          ('a', zeroblob(15) || x'0a', 'A', 'of a', 'd', 2, 3, 'Active', 0, 10, 11, NULL),
          ('b', zeroblob(15) || x'0b', 'B', NULL, 'd', 1, 1, 'Active', 1, 20, 21, 22);
        INSERT INTO workflow_definitions VALUES ('a', 1, 'd', x'01', 'c1', 12), ('a', 2, 'd', x'02', 'c2', 13),
          ('b', 1, 'd', x'03', 'c3', 14);
        INSERT INTO workflow_drafts VALUES ('a', 'A4', NULL, 'd', x'04', 'c4', 15);
        INSERT INTO workflow_version_marks VALUES ('a', 1), ('b', 1);
        INSERT INTO workflow_executions (id, status, lease_epoch, wake_at, inbox_seq, workflow_id, workflow_version,
          tenant_id, workflow_request_id, priority, requester_user_id, created_at, trigger_payload_json, outputs_json)
          VALUES (x'01', 'Running', 3, 99, 4, 'a', 1, 't', 'r1', 7, 'u', 5, '{\"a\":1}', '{\"b\":2}'),
          (x'02', 'Succeeded', 1, NULL, 0, 'b', 1, '', 'r2', NULL, 'u', 6, '{}', NULL),
          (x'03', 'Failed', 1, NULL, 0, 'lost', 1, '', 'r3', NULL, 'u', 7, '{}', NULL);
        INSERT INTO dead_letters (id, enqueued_at, reason, workflow_execution_id, workflow_id, workflow_version,
          payload_json) VALUES (x'04', 8, 'POISON', x'03', 'b', 1, '{}')";
    connection.execute_batch(fill).unwrap();
    let dump = |tables: &[&str], but: &str| -> Vec<String> {
        let mut lines = Vec::new();
        for table in tables {
            let mut columns: Vec<String> = connection
                .prepare(&format!(
                    "SELECT name FROM pragma_table_info('{table}') WHERE name <> ?1 ORDER BY name"
                ))
                .and_then(|mut names| names.query_map([but], |row| row.get(0))?.collect())
                .unwrap();
            columns.iter_mut().for_each(|name| *name = format!("quote({name})"));
            let sql = format!("SELECT {} FROM {table} ORDER BY 1", columns.join(" || ' ' || "));
            let rows: rusqlite::Result<Vec<String>> = connection
                .prepare(&sql)
                .and_then(|mut rows| rows.query_map([], |row| row.get(0))?.collect());
            lines.extend(rows.unwrap());
        }
        lines
    };
    let tables = [
        "workflows",
        "workflow_definitions",
        "workflow_drafts",
        "workflow_version_marks",
        "workflow_executions",
        "dead_letters",
    ];
    let before = dump(&tables, "workflow_uid");
    apply(&connection, &Program::this(&MIGRATIONS[..5])).unwrap();
    assert_eq!(dump(&tables, "workflow_uid"), before, "nothing else changes");
    for (table, expected) in [
        ("workflow_definitions", "0a 0a 0b"),
        ("workflow_drafts", "0a"),
        ("workflow_executions", "0a 0b 00"),
        ("dead_letters", "0b"),
    ] {
        let sql = format!(
            "SELECT group_concat(lower(substr(hex(workflow_uid), 31)), ' ') FROM
               (SELECT workflow_uid FROM {table} ORDER BY {})",
            if table == "workflow_executions" { "id" } else { "1" }
        );
        let uids: String = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(uids, expected, "{table}");
    }
    take_back(&connection, &Program::this(&MIGRATIONS[..5]), "it").unwrap();
    assert_eq!(dump(&tables, "workflow_uid"), before, "and back");
}
