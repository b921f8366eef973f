//! The documentation of the SQL interface, docs/sql.md: its examples run, and its list of errors is complete.

use super::*;
use std::collections::BTreeSet;

const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sql.md"));
const MIGRATION: &str = include_str!("../../migrations/0002_sql_functions.sql");
/// The ids in the examples.
const RUN: &str = "01a1e1dc-ff37-7985-9caa-2e5073f8cd14";
const ATTEMPT: &str = "5f2b0c7e-7b6e-8d5a-9a53-0c5b8d1f6a01";

/// The SQL code blocks of the page.
fn blocks() -> Vec<&'static str> {
    let after_fences = PAGE.split("```sql\n").skip(1);
    let blocks = after_fences.map(|rest| rest.split_once("```").expect("a block ends").0);
    blocks.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_runs() {
    let (_database, store, app) = setup().await;
    publish(&store, "ship-order", "one").await;
    app.run("CREATE TABLE orders (id integer PRIMARY KEY, total numeric)")
        .await;
    app.run("INSERT INTO orders VALUES (1, 10), (2, 91), (3, 92)").await;
    let role = format!("shop_{}", Uuid::now_v7().simple());
    let (mut run, mut attempt) = (RUN.to_owned(), ATTEMPT.to_owned());
    let all = blocks();
    assert!(all.len() >= 9, "{}", all.len());
    for block in all {
        let sql = block.replace(RUN, &run).replace(ATTEMPT, &attempt);
        let sql = sql.replace(" shop", &format!(" {role}"));
        let answers = app.client.simple_query(&sql).await;
        let answers = answers.unwrap_or_else(|error| panic!("{error:?}:\n{sql}"));
        let rows = answers.iter().filter_map(|answer| match answer {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let rows: Vec<_> = rows.collect();
        let first = || rows[0].get(0).expect("an answer").to_owned();
        match sql {
            _ if sql.contains("'order-4711'") => run = first(),
            _ if sql.contains("sp_try_acquire_execution('") => assert_eq!(first(), "t"),
            _ if sql.contains("sp_record_action_attempt('") => attempt = first(),
            _ if sql.contains("sp_link_external_resource('") => assert_eq!(first(), "created"),
            _ if sql.contains("sp_check_resource_exists('") => {
                assert_eq!((first().as_str(), rows[0].get(1)), ("t", Some(run.as_str())));
            }
            _ if sql.contains("LATERAL") => assert_eq!(rows.len(), 3, "orders above 90"),
            _ => {}
        }
    }
    let ended = record(&store, run.parse().unwrap()).await;
    assert_eq!(ended.status, fermata_core::Status::Succeeded);
    app.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

/// Every SQLSTATE and every error code of the functions is on the page.
#[test]
fn every_error_is_documented() {
    let states = MIGRATION
        .split("ERRCODE = '")
        .skip(1)
        .filter_map(|rest| rest.split('\'').next());
    let states: BTreeSet<&str> = states.collect();
    assert_eq!(
        Vec::from_iter(&states),
        [&"55000", &"P0002", &"WF001", &"WF002", &"WF003", &"WF005"]
    );
    let messages = MIGRATION
        .split("RAISE EXCEPTION '")
        .skip(1)
        .filter_map(|rest| rest.split(':').next());
    let codes: BTreeSet<&str> = messages.collect();
    assert!(codes.len() >= 9, "{codes:?}");
    for word in states.into_iter().chain(codes) {
        assert!(PAGE.contains(&format!("`{word}`")), "{word} is not on the page");
    }
}
