//! Privileges: what a role needs to call the functions, and what it cannot do with them. The functions resolve names only
//! in Fermata's schema and in `pg_catalog`.

use super::*;
use crate::postgres::{PostgresSettings, PostgresStore};
use fermata_core::Status;

const FUNCTIONS: [&str; 6] = [
    "sp_start_workflow_execution",
    "sp_try_acquire_execution",
    "sp_complete_workflow",
    "sp_record_action_attempt",
    "sp_link_external_resource",
    "sp_check_resource_exists",
];

/// A role for one test. Its privileges are in the database, which is dropped.
struct Role {
    name: String,
    database: Database,
}

impl Role {
    async fn new(database: Database, admin: &App) -> Role {
        let name = format!("app_{}", Uuid::now_v7().simple());
        admin.run(&format!("CREATE ROLE {name}")).await;
        Role { name, database }
    }

    /// A session of this role.
    async fn session(&self) -> App {
        let app = App::new(&self.database).await;
        app.run(&format!("SET SESSION AUTHORIZATION {}", self.name)).await;
        app
    }

    async fn drop(self, admin: &App) {
        admin.run(&format!("DROP OWNED BY {0}; DROP ROLE {0}", self.name)).await;
    }
}

async fn full_lifecycle(app: &App, schema: &str) -> RunId {
    let sql = format!("SELECT execution_id FROM {schema}.sp_start_workflow_execution('{WORKFLOW}', 'whole', '{{}}')");
    let run = RunId(app.one(&sql, &[]).await.unwrap().get(0));
    let acquire = format!("SELECT {schema}.sp_try_acquire_execution($1)");
    assert!(app.one(&acquire, &[&run.0]).await.unwrap().get::<_, bool>(0));
    let attempt = format!("SELECT {schema}.sp_record_action_attempt($1, 'n', 'a', 'Succeeded')");
    let attempt: Uuid = app.one(&attempt, &[&run.0]).await.unwrap().get(0);
    let link = format!("SELECT {schema}.sp_link_external_resource($1, $2, 's', 't', 'i')");
    let link: String = app.one(&link, &[&run.0, &attempt]).await.unwrap().get(0);
    assert_eq!(link, "created");
    let check = format!("SELECT execution_id FROM {schema}.sp_check_resource_exists('s', 't', 'i')");
    assert_eq!(app.one(&check, &[]).await.unwrap().get::<_, Uuid>(0), run.0);
    let complete = format!("SELECT {schema}.sp_complete_workflow($1, 'Succeeded', NULL)");
    app.one(&complete, &[&run.0]).await.unwrap();
    run
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn execute_privilege_is_sufficient() {
    let (database, store, admin) = setup().await;
    let role = Role::new(database, &admin).await;
    let app = role.session().await;
    // Without a grant no function may be called.
    let calls = [
        "sp_start_workflow_execution('w', 'r', '{}')",
        "sp_try_acquire_execution(gen_random_uuid())",
        "sp_complete_workflow(gen_random_uuid(), 'Failed', NULL)",
        "sp_record_action_attempt(gen_random_uuid(), 'n', 'a', 'Failed')",
        "sp_link_external_resource(gen_random_uuid(), gen_random_uuid(), 's', 't', 'i')",
        "sp_check_resource_exists('s', 't', 'i')",
        "fermata_uuid_v7()",
        "fermata_session_lives()",
        "fermata_hint()",
    ];
    for call in calls {
        let answer = app.one(&format!("SELECT 1 FROM {call}"), &[]).await.map(drop);
        expect(answer, "42501", "permission denied for function");
    }
    for function in FUNCTIONS {
        admin
            .run(&format!("GRANT EXECUTE ON FUNCTION {function} TO {}", role.name))
            .await;
    }
    let run = full_lifecycle(&app, "public").await;
    assert_eq!(record(&store, run).await.status, Status::Succeeded);
    for table in ["workflow_executions", "workflows", "runners", "workflow_resource_links"] {
        let answer = app.one(&format!("SELECT count(*) FROM {table}"), &[]).await.map(drop);
        expect(answer, "42501", "permission denied for table");
    }
    role.drop(&admin).await;
}

/// A caller may create tables and functions with the same names and put them first in `search_path`: the functions ignore
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_path_of_the_caller_is_ignored() {
    let (database, store, admin) = setup().await;
    let role = Role::new(database, &admin).await;
    let name = role.name.clone();
    for function in FUNCTIONS {
        admin
            .run(&format!("GRANT EXECUTE ON FUNCTION {function} TO {name}"))
            .await;
    }
    // Even in a schema that the caller may write to, as `public` was before PostgreSQL 15.
    admin
        .run(&format!(
            "GRANT CREATE ON SCHEMA public TO {name}; CREATE SCHEMA caller AUTHORIZATION {name}"
        ))
        .await;
    let app = role.session().await;
    let trap = "RETURNS integer LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trapped as %', current_user; END $$";
    app.run(&format!(
        "CREATE TEMP TABLE workflow_executions (id uuid); CREATE TEMP TABLE workflows (id text);
         CREATE TEMP TABLE runners (id uuid); CREATE TEMP TABLE workflow_resource_links (id uuid);
         CREATE TABLE caller.workflows (id text); CREATE TABLE caller.workflow_executions (id uuid);
         CREATE FUNCTION caller.fermata_now() {trap}; CREATE FUNCTION caller.fermata_hint() {trap};
         CREATE FUNCTION caller.octet_length(text) {trap}; CREATE FUNCTION caller.pg_notify(text, text) {trap};
         CREATE FUNCTION public.octet_length(varchar) {trap}; CREATE FUNCTION public.pg_notify(text, varchar) {trap};
         CREATE FUNCTION public.set_bit(bytea, integer, integer) {trap};
         CREATE FUNCTION public.convert_to(text, text) {trap};
         CREATE FUNCTION public.fermata_check_name(text, text) {trap};
         CREATE FUNCTION public.fermata_attempt_id(uuid, varchar, integer) {trap};
         CREATE FUNCTION public.jsonb_build_object(text, integer, text, jsonb) {trap};
         SET search_path = caller, pg_temp, pg_catalog, public"
    ))
    .await;
    let run = full_lifecycle(&app, "public").await;
    assert_eq!(record(&store, run).await.status, Status::Succeeded);
    app.run("RESET search_path").await;
    role.drop(&admin).await;
}

/// Fermata in its own schema, whose name must be quoted, and a caller with an empty `search_path`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_work_in_another_schema() {
    let database = Database::new().await;
    let app = App::new(&database).await;
    let name: String = app.one("SELECT current_database()::text", &[]).await.unwrap().get(0);
    let schema = r#""Work; flows""#;
    app.run(&format!(
        "DROP SCHEMA public CASCADE; CREATE SCHEMA {schema}; ALTER DATABASE {name} SET search_path = {schema}"
    ))
    .await;
    let store = PostgresStore::connect(&database.url, PostgresSettings::default())
        .await
        .unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    publish(&store, WORKFLOW, "one").await;
    let app = App::new(&database).await;
    app.run("SET search_path = ''").await;
    let run = full_lifecycle(&app, schema).await;
    assert_eq!(record(&store, run).await.status, Status::Succeeded);
}

/// Session settings and collations of arguments do not affect the functions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_the_caller_have_no_effect() {
    let (_database, store, app) = setup().await;
    app.run(
        "SET standard_conforming_strings = off; SET escape_string_warning = off; SET bytea_output = 'escape';
         SET DateStyle = 'German'; SET TimeZone = 'Asia/Kathmandu'; SET extra_float_digits = -15;
         SET lc_numeric = 'C'; SET transform_null_equals = on; SET enable_indexscan = off; SET enable_bitmapscan = off",
    )
    .await;
    expect(app.start("a\u{1}b").await, "WF005", "no control characters");
    expect(app.start("").await, "WF005", "1 to 255 bytes");
    let run = full_lifecycle(&app, "public").await;
    assert_eq!(run.0.get_version_num(), 7);
    let created = record(&store, run).await.created_at;
    assert!((now().0 - created.0).abs() < 600_000_000);
    // A collation that is neither the default nor that of the columns.
    let sql = r#"SELECT execution_id FROM sp_start_workflow_execution($1 COLLATE "POSIX", $2 COLLATE "POSIX", '{}',
        NULL, 't' COLLATE "POSIX", 'c' COLLATE "POSIX")"#;
    let again: Uuid = app.one(sql, &[&WORKFLOW, &"r"]).await.unwrap().get(0);
    assert_eq!(app.one(sql, &[&WORKFLOW, &"r"]).await.unwrap().get::<_, Uuid>(0), again);
    assert!(app.acquire(RunId(again)).await);
    let sql = r#"SELECT sp_record_action_attempt($1, 'n' COLLATE "POSIX", 'a', 'Failed' COLLATE "POSIX")"#;
    let attempt: Uuid = app.one(sql, &[&again]).await.unwrap().get(0);
    let sql = r#"SELECT sp_link_external_resource($1, $2, 's' COLLATE "POSIX", 't', 'j' COLLATE "POSIX")"#;
    for answer in ["created", "exists_same_execution"] {
        assert_eq!(
            app.one(sql, &[&again, &attempt]).await.unwrap().get::<_, &str>(0),
            answer
        );
    }
    let sql = r#"SELECT "exists" FROM sp_check_resource_exists('s' COLLATE "POSIX", 't' COLLATE "POSIX", 'j')"#;
    assert!(app.one(sql, &[]).await.unwrap().get::<_, bool>(0));
    app.one(
        r#"SELECT sp_complete_workflow($1, 'Failed' COLLATE "POSIX")"#,
        &[&again],
    )
    .await
    .unwrap();
    app.complete(RunId(again), "Failed").await.unwrap();
}
