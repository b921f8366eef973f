//! Query plans of SQLite, and the limits of searches.

use super::*;
use crate::{
    dead_letters::{DeadLetterFilter, DeadReason},
    inbox::{CLAIMABLE, CLAIMABLE_OF_TENANT, ITEM, ItemWalk, WAIT_OF_ITEM, WAIT_OF_NODE, WAIT_OF_TOKEN},
    lists::{Flavour, walks},
    reads::{Order, RunFilter},
};
use fermata_core::{RunId, RunnerId};
use uuid::Uuid;

/// The plan of a statement, one step per line.
fn plan(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let steps = statement.query_map(
        rusqlite::params_from_iter(vec![0; statement.parameter_count()]),
        |row| row.get(3),
    );
    // Only the number of parameters matters.
    steps.map(|steps| steps.map(|step| step.unwrap()).collect()).unwrap()
}

#[test]
fn lists_use_indexes() {
    let folder = Folder::new();
    drop(folder.open().unwrap());
    let connection = Connection::open(folder.path()).unwrap();
    let id = Some(RunId(Uuid::now_v7()));
    let some = |text: &str| Some(text.to_owned());
    let statuses = Status::ALL.map(|status| vec![status]).into_iter();
    let statuses = statuses.chain([Vec::new(), vec![Status::Failed, Status::Running], Status::ALL.to_vec()]);
    let mut filters = Vec::new();
    for statuses in statuses {
        for workflow_uid in [None, Some(WORKFLOW)] {
            for tenant in [None, some(""), some("acme")] {
                for correlation_id in [None, some("c"), id.map(|id| id.to_string())] {
                    for (from, before, search) in [(None, None, None), (id, id, some("x")), (None, id, None)] {
                        for order in [Order::NewestFirst, Order::OldestFirst] {
                            filters.push(RunFilter {
                                workflow_uid,
                                statuses: statuses.clone(),
                                tenant: tenant.clone(),
                                correlation_id: correlation_id.clone(),
                                request_id: None,
                                runner: None,
                                search: search.clone(),
                                from,
                                before,
                                order,
                                limit: 9,
                            });
                        }
                    }
                }
            }
        }
    }
    for filter in filters {
        let by_key = filter.workflow_uid.is_none()
            && filter.correlation_id.is_none()
            && (filter.statuses.is_empty() || filter.statuses.contains(&Status::Succeeded))
            && filter.tenant.as_ref().is_none_or(String::is_empty);
        for walk in walks(&filter, None, Flavour::Sqlite) {
            let plan = plan(&connection, &walk.sql).join("; ");
            assert!(!plan.contains("TEMP B-TREE"), "{filter:?}: {plan}");
            if !by_key {
                assert!(
                    plan.starts_with("SEARCH") && !plan.contains("SCAN"),
                    "{filter:?}: {plan}"
                );
            }
        }
        let one = walks(&filter, Some(id.into_iter().collect()), Flavour::Sqlite);
        let plan = plan(&connection, &one[0].sql).join("; ");
        assert!(plan.starts_with("SEARCH") && plan.contains("PRIMARY KEY"), "{plan}");
    }
    let plan_of = |sql: &str| plan(&connection, sql).join("; ");
    let children = plan_of(&lists::children_query());
    assert!(
        children.starts_with("SEARCH") && children.contains("ix_executions_parent"),
        "{children}"
    );
    assert!(!children.contains("TEMP B-TREE"), "{children}");
    for (sql, index) in [
        (children::AWAITED, "ix_executions_parent"),
        (children::FORGET, "ix_executions_ended_children"),
        (crate::children::ENDED_CHILDREN, "ix_executions_ended_children"),
        (crate::children::NEXT_PARENT, "ix_executions_ended_children"),
    ] {
        let plan = plan_of(sql);
        assert!(plan.starts_with("SEARCH") && plan.contains(index), "{sql}: {plan}");
        assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN"), "{sql}: {plan}");
    }
    let request = plan_of(lists::BY_REQUEST);
    assert!(
        !request.contains("SCAN workflow_executions"),
        "all tenants are visited, not all runs: {request}"
    );
}

#[test]
fn claims_use_indexes() {
    let folder = Folder::new();
    drop(folder.open().unwrap());
    let connection = Connection::open(folder.path()).unwrap();
    for sql in [queue::FREE, claim::HELD_BY, claim::NEXT_OWNER, claim::NEXT_DUE] {
        let plan = plan(&connection, sql).join("; ");
        assert!(
            plan.starts_with("SEARCH") && plan.contains("COVERING INDEX ix_executions_claim"),
            "{sql}: {plan}"
        );
        assert!(!plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    }
    for sql in [queue::ANY_PRIORITY, queue::NEXT_PRIORITY, queue::OF_PRIORITY] {
        let plan = plan(&connection, sql).join("; ");
        assert!(plan.contains("INDEX ix_executions_priority"), "{sql}: {plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{sql}: {plan}");
        assert!(
            plan.starts_with("SEARCH") || sql == queue::ANY_PRIORITY,
            "the first entry is enough to know that there is one: {sql}: {plan}"
        );
    }
}

/// Groups behind a backlog are found without reading the runs of the backlog.
#[test]
fn groups_use_their_index() {
    let folder = Folder::new();
    drop(folder.open().unwrap());
    let connection = Connection::open(folder.path()).unwrap();
    let starts = [
        (queue::NEXT_HEAD, "(tenant_id,workflow_uid)>(?,?)"),
        (queue::BEHIND, "(tenant_id=? AND workflow_uid=? AND (wake_at,id)>(?,?)"),
    ];
    for (sql, place) in starts {
        let plan = plan(&connection, sql).join("; ");
        let index = "SEARCH workflow_executions USING INDEX ix_executions_group";
        assert!(plan.starts_with(index), "{sql}: {plan}");
        assert!(plan.contains(place) && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    }
}

/// A filter for the runs of a runner with further conditions.
fn of_runner() -> RunFilter {
    RunFilter {
        runner: Some(RunnerId(Uuid::now_v7())),
        workflow_uid: Some(WORKFLOW),
        before: Some(RunId(Uuid::now_v7())),
        limit: 9,
        ..Default::default()
    }
}

/// A runner checks for messages every second, and for its leases now and then.
#[test]
fn runners_use_indexes() {
    let folder = Folder::new();
    drop(folder.open().unwrap());
    let connection = Connection::open(folder.path()).unwrap();
    let plan_of = |sql: &str| plan(&connection, sql).join("; ");
    assert_eq!(
        plan_of(runners::UNREAD),
        "SEARCH workflow_executions USING INDEX ix_executions_unread (lease_owner=?)"
    );
    let held = plan_of(runners::HELD);
    assert!(held.contains("INDEX ix_executions_claim (lease_owner=?"), "{held}");
    for list in walks(&of_runner(), None, Flavour::Sqlite) {
        let plan = plan_of(&list.sql);
        assert!(plan.contains("INDEX ix_executions_claim (lease_owner=?"), "{plan}");
    }
    let counts = plan_of(runners::RUNNERS);
    assert!(
        counts.contains("COVERING INDEX ix_executions_claim (lease_owner=?"),
        "{counts}"
    );
    assert!(counts.starts_with("SEARCH runners USING PRIMARY KEY"), "{counts}");
}

#[test]
fn dead_letters_use_indexes() {
    let folder = Folder::new();
    drop(folder.open().unwrap());
    let connection = Connection::open(folder.path()).unwrap();
    for reason in [None, Some(DeadReason::Poison)] {
        for workflow_uid in [None, Some(WORKFLOW)] {
            for before in [None, Some(Uuid::now_v7())] {
                let filter = DeadLetterFilter {
                    reason,
                    workflow_uid,
                    before,
                    limit: 9,
                };
                let (fitting, _) = dead_letters::fitting(&filter);
                let plan = plan(&connection, &format!("SELECT id, last_error FROM {fitting}")).join("; ");
                assert!(!plan.contains("TEMP B-TREE"), "{filter:?}: {plan}");
                let narrowed = reason.is_some() || workflow_uid.is_some() || before.is_some();
                assert_eq!(plan.starts_with("SEARCH"), narrowed, "{filter:?}: {plan}");
            }
        }
    }
}

/// A list that finds few runs stops and continues at the next page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_stops_and_continues() {
    let folder = Folder::new();
    let store = folder.open().unwrap();
    activate(&store).await;
    let many = crate::reads::MAX_EXAMINED + 10;
    let fill = format!(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {many})
         INSERT INTO workflow_executions (id, status, workflow_uid, workflow_id, workflow_version, workflow_request_id,
           requester_user_id, created_at, trigger_payload_json)
         SELECT CAST(printf('%016d', n) AS BLOB), 'Succeeded', zeroblob(16), 'w', 1,
           CASE WHEN n = 1 THEN 'a NEEDLE' ELSE 'hay ' || n END, 'u', 1, '{{}}' FROM n"
    );
    store
        .writer
        .write(move |tx| tx.connection.execute(&fill, []))
        .await
        .unwrap();
    let mut filter = RunFilter {
        search: Some("needle".to_owned()),
        limit: 5,
        ..Default::default()
    };
    let first = store.runs(filter.clone()).await.unwrap();
    assert!(first.items.is_empty() && first.next.is_some(), "{first:?}");
    filter.before = first.next;
    let second = store.runs(filter.clone()).await.unwrap();
    assert_eq!((second.items.len(), second.next), (1, None));
    assert_eq!(second.items[0].request_id, "a NEEDLE");
    filter.before = None;
    filter.order = Order::OldestFirst;
    filter.limit = 1;
    let other_way = store.runs(filter).await.unwrap();
    assert_eq!(other_way.items[0].request_id, "a NEEDLE");

    // Two walks. One of them stops long before the other has found everything.
    let split = "UPDATE workflow_executions SET status = CASE WHEN workflow_request_id = 'a NEEDLE' THEN 'Cancelled'
         ELSE 'Failed' END";
    store
        .writer
        .write(move |tx| tx.connection.execute(split, []))
        .await
        .unwrap();
    let mut filter = RunFilter {
        search: Some("needle".to_owned()),
        statuses: vec![Status::Failed, Status::Cancelled],
        limit: 5,
        ..Default::default()
    };
    let mut found = 0;
    for _ in 0..9 {
        let page = store.runs(filter.clone()).await.unwrap();
        found += page.items.len();
        filter.before = page.next;
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!((found, filter.before), (1, None), "it is found once");
}

/// The cost of lists and claims of the inbox does not depend on the number of items.
#[test]
fn the_inbox_uses_its_indexes() {
    let folder = Folder::new();
    drop(folder.open().unwrap());
    let connection = Connection::open(folder.path()).unwrap();
    for (sql, index) in [
        (ItemWalk::Queue("q").sql().to_owned(), "ix_inbox_queue"),
        (ItemWalk::Tenant("t").sql().to_owned(), "ix_inbox_tenant"),
        (ItemWalk::Pending.sql().to_owned(), "ix_inbox_pending"),
        (ItemWalk::All.sql().to_owned(), "ux_inbox_item"),
        (inbox::claimable(CLAIMABLE), "ix_inbox_claim "),
        (inbox::claimable(CLAIMABLE_OF_TENANT), "ix_inbox_claim_tenant "),
        (ITEM.to_owned(), "ux_inbox_item"),
        (WAIT_OF_ITEM.to_owned(), "ux_inbox_item"),
        (WAIT_OF_TOKEN.to_owned(), "PRIMARY KEY"),
    ] {
        let plan = plan(&connection, &sql).join("; ");
        assert!(plan.starts_with("SEARCH") && plan.contains(index), "{sql}: {plan}");
        assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN"), "{sql}: {plan}");
    }
    let run = plan(&connection, ItemWalk::Run(RunId(Uuid::nil())).sql()).join("; ");
    assert!(
        run.contains("ix_waits_execution") && !run.contains("SCAN run_waits"),
        "{run}"
    );
    let newest = plan(&connection, WAIT_OF_NODE).join("; ");
    assert!(newest.contains("ix_waits_execution"), "{newest}");
}
