//! Migrations up and down, and side by side with another release.

use super::{query, store};
use crate::{
    Store, StoreError,
    conformance::{
        self, Subject,
        busy::{Worker, all_make_progress},
        cluster::{Database, execute},
    },
    postgres::{PostgresSettings, PostgresStore, migrations::PROGRAM},
    schema::{Back, Migrate, Migration, Program},
    transfer::mark::{self, Mark},
};
use std::{sync::Arc, time::Duration};

/// A migration of the next release, which follows the rules for migrations.
const NEXT: &str = "ALTER TABLE workflow_executions ADD COLUMN next_note text;
    ALTER TABLE workflows ADD COLUMN next_kind text NOT NULL DEFAULT 'plain';
    ALTER TABLE run_waits ADD COLUMN next_at bigint;
    ALTER TABLE execution_events ADD COLUMN next_flag boolean NOT NULL DEFAULT false;
    CREATE TABLE next_things (id uuid NOT NULL PRIMARY KEY);
    CREATE FUNCTION next_now() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';";

/// A description of everything that migrations create.
const SCHEMA: &str = "SELECT string_agg(line, E'\\n' ORDER BY line) FROM (
    SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default, collation_name) AS line
      FROM information_schema.columns WHERE table_schema = 'public'
    UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT concat_ws(' ', conrelid::regclass::text, conname, pg_get_constraintdef(oid)) FROM pg_constraint
      WHERE connamespace = 'public'::regnamespace) lines";

/// The migrations of this program, and one more.
fn next_release(oldest_program: &'static str) -> Vec<Migration> {
    let mut migrations: Vec<Migration> = PROGRAM.migrations.iter().map(copy).collect();
    migrations.push(Migration {
        number: migrations.len() as u32 + 1,
        name: "next",
        up: NEXT,
        back: Back::None("it is for a test"),
        oldest_program,
    });
    migrations
}

/// Copies a migration, because `Migration` is not `Clone`.
fn copy(migration: &Migration) -> Migration {
    Migration {
        back: Back::None("not used"),
        ..*migration
    }
}

async fn migrate_as(version: &str, migrations: &[Migration], url: &str) {
    let program = Program { version, migrations };
    let store = PostgresStore::connect_as(&program, url, PostgresSettings::default()).await;
    store.unwrap().close().await.unwrap();
}

fn manual() -> PostgresSettings {
    PostgresSettings {
        migrate: Migrate::Manual,
        ..PostgresSettings::default()
    }
}

/// A database without a schema.
async fn empty() -> Database {
    let database = Database::new().await;
    execute(&database.url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public").await;
    database
}

/// The numbers of all migrations of this program.
fn all() -> String {
    let numbers: Vec<String> = PROGRAM
        .migrations
        .iter()
        .map(|migration| migration.number.to_string())
        .collect();
    numbers.join(",")
}

/// Undoes migrations until this one is the newest.
async fn back_to(number: u32, url: &str) {
    for newest in (number + 1..=PROGRAM.migrations.len() as u32).rev() {
        let step = PostgresStore::migrate_back(url, &PostgresSettings::default()).await;
        assert_eq!(step.unwrap().number, newest);
    }
}

async fn numbers(url: &str) -> String {
    let sql = "SELECT string_agg(version::text, ',' ORDER BY version) FROM fermata_schema_version";
    query(url, sql).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn down_migrations_restore_the_previous_schema() {
    let (database, settings) = (empty().await, PostgresSettings::default());
    let url = &database.url;
    let all: Vec<Migration> = PROGRAM.migrations.iter().map(copy).collect();
    for migration in PROGRAM.migrations {
        let up_to_this = &all[..migration.number as usize];
        let old_schema = query(url, SCHEMA).await;
        migrate_as(PROGRAM.version, up_to_this, url).await;
        let Back::Down { .. } = migration.back else { continue };
        let new_schema = query(url, SCHEMA).await;
        assert_ne!(new_schema, old_schema, "{} does nothing", migration.name);
        let step = PostgresStore::migrate_back(url, &settings).await.unwrap();
        assert_eq!((step.number, step.applied_at), (migration.number, None));
        assert_eq!(query(url, SCHEMA).await, old_schema, "{}", migration.name);
        migrate_as(PROGRAM.version, up_to_this, url).await;
        assert_eq!(query(url, SCHEMA).await, new_schema, "{}", migration.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_migrates_up_and_down() {
    let (database, settings) = (empty().await, PostgresSettings::default());
    let url = &database.url;
    let nothing = PostgresStore::schema(url, &settings).await.unwrap();
    assert!(nothing.is_outdated() && nothing.oldest_program.is_none());
    assert_eq!(query(url, SCHEMA).await, "", "reading the schema changes nothing");
    let refused = PostgresStore::migrate_back(url, &settings).await;
    assert!(matches!(refused, Err(StoreError::NoWayBack { .. })), "{refused:?}");

    let steps = PostgresStore::migrate(url, &settings).await.unwrap();
    assert_eq!(steps.len(), PROGRAM.migrations.len());
    assert!(PostgresStore::migrate(url, &settings).await.unwrap().is_empty());
    let now = PostgresStore::schema(url, &settings).await.unwrap();
    assert!(!now.is_outdated() && now.oldest_program.as_deref() == Some("0.2.0"));
    let at = now.steps[0].applied_at.as_deref().unwrap();
    assert!(at.len() == 20 && at.ends_with('Z') && &at[10..11] == "T", "{at}");

    let user = store(url, PostgresSettings::default()).await;
    let used = PostgresStore::migrate_back(url, &settings)
        .await
        .unwrap_err()
        .to_string();
    assert!(used.contains("in use by") && used.contains("stop them first"), "{used}");
    user.close().await.unwrap();
    assert_eq!(numbers(url).await, all());
    for number in (2..=PROGRAM.migrations.len() as u32).rev() {
        assert_eq!(
            PostgresStore::migrate_back(url, &settings).await.unwrap().number,
            number
        );
    }
    let first = PostgresStore::migrate_back(url, &settings)
        .await
        .unwrap_err()
        .to_string();
    assert!(first.contains("migration 1 (first) stays"), "{first}");
    assert_eq!(numbers(url).await, "1");
    let steps = PostgresStore::migrate(url, &settings).await.unwrap().len();
    assert_eq!(steps, PROGRAM.migrations.len() - 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn down_migration_does_not_lose_grants() {
    let (database, settings) = (Database::new().await, PostgresSettings::default());
    back_to(2, &database.url).await;
    let grant = "GRANT EXECUTE ON FUNCTION sp_complete_workflow TO pg_monitor";
    execute(&database.url, grant).await;
    let error = PostgresStore::migrate_back(&database.url, &settings).await.unwrap_err();
    let error = error.to_string();
    assert!(error.contains("lost: 1 grants on `sp_` functions"), "{error}");
    assert_eq!(numbers(&database.url).await, "1,2");
    execute(
        &database.url,
        &grant.replace("GRANT", "REVOKE").replace(" TO ", " FROM "),
    )
    .await;
    PostgresStore::migrate_back(&database.url, &settings).await.unwrap();
}

/// Runs that SQL sessions hold are checked separately: a session is not a Fermata process that is stopped first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn down_migration_does_not_lose_leases_of_sessions() {
    let (database, settings) = (Database::new().await, PostgresSettings::default());
    let url = &database.url;
    let user = store(url, PostgresSettings::default()).await;
    conformance::activate(&user, conformance::WORKFLOW).await;
    let run = conformance::pending(&user, "r1").await;
    user.close().await.unwrap();
    let acquire = format!("SELECT sp_try_acquire_execution('{run}')::text");
    assert_eq!(query(url, &acquire).await, "true");
    // Plans would be lost as well, but this test is about leases.
    execute(url, "DELETE FROM workflow_plans").await;
    back_to(2, url).await;
    let error = PostgresStore::migrate_back(url, &settings)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("lost: 1 runs that sessions hold"), "{error}");
    assert_eq!(numbers(url).await, "1,2");
    execute(url, "UPDATE workflow_executions SET lease_owner = NULL").await;
    PostgresStore::migrate_back(url, &settings).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transferred_database_is_not_migrated_down() {
    let database = Database::new().await;
    let mark = Mark::Moved {
        transfer: uuid::Uuid::nil(),
        to: "elsewhere".to_owned(),
    };
    let (key, mark) = (mark::KEY, mark.to_text());
    let insert = format!("INSERT INTO fermata_meta (key, value) VALUES ('{key}', '{mark}')");
    execute(&database.url, &insert).await;
    let refused = PostgresStore::migrate_back(&database.url, &PostgresSettings::default()).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("moved to elsewhere"), "{refused}");
    assert_eq!(numbers(&database.url).await, all());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manual_migration_refuses_an_outdated_database() {
    let database = empty().await;
    let url = &database.url;
    let newest = PROGRAM.migrations.len() as u32;
    for (number, made) in [(0, ""), (1, "1")] {
        match PostgresStore::connect(url, manual()).await.err() {
            Some(StoreError::Outdated { have, needs, .. }) => assert_eq!((have, needs), (number, newest)),
            other => panic!("{other:?}"),
        }
        if made.is_empty() {
            assert_eq!(query(url, SCHEMA).await, "");
            migrate_as(PROGRAM.version, &PROGRAM.migrations[..1], url).await;
        } else {
            assert_eq!(numbers(url).await, made);
        }
    }
    PostgresStore::migrate(url, &manual()).await.unwrap();
    store(url, manual()).await.close().await.unwrap();
}

/// References by name become references to the workflow with that name, even if it is soft-deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn references_by_name_become_references_by_uid() {
    let database = empty().await;
    let url = &database.url;
    migrate_as(PROGRAM.version, &PROGRAM.migrations[..2], url).await;
    let (a, b) = (uuid::Uuid::from_u128(10), uuid::Uuid::from_u128(11));
    let fill = format!(
        "INSERT INTO workflows (id, uid, display_name, dialect, current_version, latest_version, status, created_at,
           updated_at, deleted_at) VALUES ('a', '{a}', 'A', 'd', 2, 2, 'Active', 1, 2, NULL),
           ('b', '{b}', 'B', 'd', 1, 1, 'Active', 3, 4, 5);
         INSERT INTO workflow_definitions VALUES ('a', 1, 'd', '1', 'c1', 6), ('a', 2, 'd', '2', 'c2', 7),
           ('b', 1, 'd', '3', 'c3', 8);
         INSERT INTO workflow_drafts VALUES ('a', 'A', NULL, 'd', '4', 'c4', 9);
         INSERT INTO workflow_executions (id, status, workflow_id, workflow_version, workflow_request_id,
           requester_user_id, created_at, trigger_payload_json)
         SELECT ('00000000-0000-0000-0000-00000000000' || n)::uuid, 'Succeeded', ('{{a,b,lost}}'::text[])[n], 1, n::text,
           'u', n, '{{}}' FROM generate_series(1, 3) n;
         INSERT INTO dead_letters (id, workflow_execution_id, enqueued_at, workflow_version, reason, workflow_id,
           payload_json) SELECT id, id, 1, 1, 'POISON', workflow_id, '{{}}' FROM workflow_executions"
    );
    execute(url, &fill).await;
    let rows = "SELECT string_agg(line, E'\\n' ORDER BY line) FROM (
        SELECT (to_jsonb(w))::text AS line FROM workflows w
        UNION ALL SELECT (to_jsonb(d) - 'workflow_uid')::text FROM workflow_definitions d
        UNION ALL SELECT (to_jsonb(d) - 'workflow_uid')::text FROM workflow_drafts d
        UNION ALL SELECT (to_jsonb(e) - 'workflow_uid')::text FROM workflow_executions e
        UNION ALL SELECT (to_jsonb(l) - 'workflow_uid')::text FROM dead_letters l) lines";
    let before = query(url, rows).await;
    migrate_as(PROGRAM.version, &PROGRAM.migrations[..3], url).await;
    assert_eq!(query(url, rows).await, before, "nothing else changes");
    for (table, key, expected) in [
        ("workflow_definitions", "checksum", "10 10 11"),
        ("workflow_drafts", "checksum", "10"),
        ("workflow_executions", "id", "10 11 0"),
        ("dead_letters", "id", "10 11 0"),
    ] {
        let sql =
            format!("SELECT string_agg(get_byte(uuid_send(workflow_uid), 15)::text, ' ' ORDER BY {key}) FROM {table}");
        assert_eq!(query(url, &sql).await, expected, "{table}");
    }
    PostgresStore::migrate_back(url, &PostgresSettings::default())
        .await
        .unwrap();
    assert_eq!(query(url, rows).await, before, "and back");
}

/// This program on a database that the next release has migrated.
async fn migrated_by_next_release() -> Subject {
    let database = Database::new().await;
    migrate_as("99.0.0", &next_release(PROGRAM.version), &database.url).await;
    let store = database.store().await;
    Subject::new(store, database)
}

crate::conformance_tests!(on_next_schema, migrated_by_next_release().await);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn previous_release_is_accepted_or_refused() {
    let (database, settings) = (Database::new().await, PostgresSettings::default());
    migrate_as("99.0.0", &next_release("99.0.0"), &database.url).await;
    let before = query(&database.url, SCHEMA).await;
    let refused = [
        PostgresStore::connect(&database.url, settings.clone()).await.err(),
        PostgresStore::connect(&database.url, manual()).await.err(),
        PostgresStore::migrate_back(&database.url, &settings).await.err(),
    ];
    for error in refused {
        assert!(
            matches!(&error, Some(StoreError::TooNew { needs, .. }) if needs == "99.0.0"),
            "{error:?}"
        );
    }
    assert_eq!(query(&database.url, SCHEMA).await, before);
    let seen = PostgresStore::schema(&database.url, &settings).await.unwrap();
    let unknown = seen.steps.last().unwrap();
    assert!(!unknown.is_known && unknown.name == "next", "{seen:?}");

    // The previous release of this program: it knows fewer migrations, and finds nothing to do.
    let database = Database::new().await;
    let program = Program {
        version: PROGRAM.version,
        migrations: &PROGRAM.migrations[..PROGRAM.migrations.len() - 1],
    };
    let store = PostgresStore::connect_as(&program, &database.url, manual())
        .await
        .unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    conformance::activate(&store, conformance::WORKFLOW).await;
    conformance::pending(&store, "r1").await;
    store.close().await.unwrap();
    assert_eq!(numbers(&database.url).await, all());
}

/// Running processes do not wait behind a migration that waits for another session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_migration_does_not_block_others() {
    let database = Database::new().await;
    let old = store(&database.url, PostgresSettings::default()).await;
    conformance::activate(&old, conformance::WORKFLOW).await;
    let (mut backup, connection) = tokio_postgres::connect(&database.url, tokio_postgres::NoTls)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let reading = backup.transaction().await.unwrap();
    reading.execute("SELECT 1 FROM workflow_executions", &[]).await.unwrap();
    let url = database.url.clone();
    let next = next_release(PROGRAM.version);
    let migration = tokio::spawn(async move { migrate_as("99.0.0", &next, &url).await });
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'
        AND relation = 'workflow_executions'::regclass";
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while reading.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(tokio::time::Instant::now() < deadline, "the migration does not wait");
    }
    let workers: Vec<Worker> = (0..2).map(|number| Worker::start(&old, number)).collect();
    all_make_progress(&workers).await;
    assert_eq!(numbers(&database.url).await, all());
    reading.commit().await.unwrap();
    migration.await.unwrap();
    assert_eq!(
        numbers(&database.url).await,
        format!("{},{}", all(), PROGRAM.migrations.len() + 1)
    );
    all_make_progress(&workers).await;
    for worker in workers {
        worker.stop().await;
    }
    old.close().await.unwrap();
    drop(backup);
    let _ = connection.await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migrations_are_atomic() {
    let database = empty().await;
    migrate_as(PROGRAM.version, &PROGRAM.migrations[..1], &database.url).await;
    let before = query(&database.url, SCHEMA).await;
    let mut migrations = next_release(PROGRAM.version);
    migrations.last_mut().unwrap().up = "CREATE TABLE next_things (id uuid NOT NULL); SELECT 1 / 0";
    let program = Program {
        version: "99.0.0",
        migrations: &migrations,
    };
    let failed = PostgresStore::connect_as(&program, &database.url, PostgresSettings::default()).await;
    let failed = failed.err().unwrap().to_string();
    assert!(failed.contains("division by zero"), "{failed}");
    assert_eq!(query(&database.url, SCHEMA).await, before);
    assert_eq!(numbers(&database.url).await, "1");
}

/// Running processes continue while the next release migrates the schema and then works beside them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migrations_run_beside_the_previous_release() {
    let database = Database::new().await;
    let old = store(&database.url, PostgresSettings::default()).await;
    conformance::activate(&old, conformance::WORKFLOW).await;
    let mut workers: Vec<Worker> = (0..4).map(|number| Worker::start(&old, number)).collect();
    all_make_progress(&workers).await;
    let migrations = next_release(PROGRAM.version);
    let next = Program {
        version: "99.0.0",
        migrations: &migrations,
    };
    let new = PostgresStore::connect_as(&next, &database.url, PostgresSettings::default()).await;
    let new: Arc<dyn Store> = Arc::new(new.unwrap());
    assert_eq!(
        numbers(&database.url).await,
        format!("{},{}", all(), PROGRAM.migrations.len() + 1)
    );
    workers.push(Worker::start(&new, 9));
    all_make_progress(&workers).await;
    let mut done = 0;
    for worker in workers {
        done += worker.stop().await;
    }
    let ended = "SELECT count(*) FROM workflow_executions WHERE status = 'Succeeded'";
    assert_eq!(query(&database.url, ended).await, done.to_string());
    old.close().await.unwrap();
    new.close().await.unwrap();
}
