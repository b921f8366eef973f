//! Query plans of SQLite, and the limits of searches.

use super::*;
use crate::{
    callbacks,
    dead_letters::{DeadLetterFilter, DeadReason},
    inbox::{CLAIMABLE, CLAIMABLE_OF_TENANT, ITEM, ItemWalk, WAIT_OF_ITEM, WAIT_OF_NODE, WAIT_OF_TOKEN},
    lists::{BY_REQUEST_OF_TENANT, Flavour, walks},
    reads::{Order, RunFilter},
    statements,
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
                                workflows: workflow_uid.into_iter().collect(),
                                statuses: statuses.clone(),
                                tenant: tenant.clone(),
                                correlation_id: correlation_id.clone(),
                                search: search.clone(),
                                from,
                                before,
                                order,
                                limit: 9,
                                ..Default::default()
                            });
                        }
                    }
                }
            }
        }
    }
    for tenant in [None, some(""), some("acme")] {
        for order in [Order::NewestFirst, Order::OldestFirst] {
            let labelled = RunFilter {
                fields: vec![("order".to_owned(), vec!["1".to_owned(), "2".to_owned()]); 2],
                tags: vec!["eu".to_owned()],
                before: id,
                tenant: tenant.clone(),
                order,
                ..Default::default()
            };
            let of_many = RunFilter {
                workflows: vec![WORKFLOW; 50],
                tags: vec!["eu".to_owned()],
                request_prefix: some("x"),
                tenant: tenant.clone(),
                order,
                ..Default::default()
            };
            filters.extend([labelled, of_many]);
        }
    }
    for filter in filters {
        let by_key = filter.workflows.is_empty()
            && filter.fields.is_empty()
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
        (children::ITEM_RESULTS, "ix_executions_parent"),
        (children::FORGET, "ix_executions_ended_children"),
        (crate::children::ENDED_CHILDREN, "ix_executions_ended_children"),
        (crate::children::NEXT_PARENT, "ix_executions_ended_children"),
        (crate::flow::FIRST_WAITING, "ix_executions_waiting"),
        (crate::flow::NEXT_WAITING, "ix_executions_waiting"),
    ] {
        let plan = plan_of(sql);
        assert!(plan.starts_with("SEARCH") && plan.contains(index), "{sql}: {plan}");
        assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN"), "{sql}: {plan}");
    }
    for sql in [reads::POSITION, statements::JOURNAL_AFTER] {
        let plan = plan_of(sql);
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
    let depths = plan(&connection, crate::statements::QUEUE_DEPTHS).join("; ");
    assert!(
        depths.contains("SEARCH workflow_executions USING INDEX ix_executions_claim"),
        "{depths}"
    );
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
        workflows: vec![WORKFLOW],
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
                for tenant in [None, Some(String::new()), Some("acme".to_owned())] {
                    let of_tenant = tenant.as_ref().is_some_and(|tenant| !tenant.is_empty());
                    let filter = DeadLetterFilter {
                        reason,
                        workflow_uid,
                        tenant,
                        before,
                        limit: 9,
                    };
                    let (fitting, _) = dead_letters::fitting(&filter);
                    let plan = plan(&connection, &format!("SELECT id, last_error FROM {fitting}")).join("; ");
                    assert!(!plan.contains("TEMP B-TREE"), "{filter:?}: {plan}");
                    let narrowed = reason.is_some() || workflow_uid.is_some() || before.is_some() || of_tenant;
                    assert_eq!(plan.starts_with("SEARCH"), narrowed, "{filter:?}: {plan}");
                }
            }
        }
    }
}

/// Names are looked up and listed in the order of an index, for all tenants and for one.
#[test]
fn names_use_indexes() {
    let folder = Folder::new();
    drop(folder.open().unwrap());
    let connection = Connection::open(folder.path()).unwrap();
    for (sql, index) in [
        (statements::WORKFLOW, "ux_workflows_id"),
        (statements::WORKFLOW_OF_TENANT, "ux_workflows_id"),
        (statements::WORKFLOWS, "ix_workflows_id"),
        (statements::WORKFLOWS_OF_TENANT, "ux_workflows_id"),
        (statements::COUNT_WORKFLOWS, "ux_workflows_id"),
        (statements::MARK, "PRIMARY KEY"),
        (statements::CACHED_STATE, "PRIMARY KEY"),
        (callbacks::CALLBACK, "PRIMARY KEY"),
        (callbacks::CALLBACK_OF_TENANT, "PRIMARY KEY"),
        (callbacks::CALLBACKS, "ix_callbacks_id"),
        (callbacks::CALLBACKS_OF_TENANT, "PRIMARY KEY"),
        (BY_REQUEST_OF_TENANT, "ux_executions_request"),
    ] {
        let plan = plan(&connection, sql).join("; ");
        assert!(plan.contains(index), "{sql}: {plan}");
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    }
}

/// A list of a tenant does not stop at a run of another one: its cursor would show that there is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_a_tenant_do_not_stop_at_runs_of_others() {
    let folder = Folder::new();
    let store = folder.open().unwrap();
    activate(&store).await;
    let many = crate::reads::MAX_EXAMINED + 10;
    let fill = format!(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {many})
         INSERT INTO workflow_executions (id, status, workflow_uid, workflow_id, workflow_version, workflow_request_id,
           requester_user_id, created_at, trigger_payload_json, tenant_id, correlation_id, lease_owner, wake_at)
         SELECT CAST(printf('%016d', n) AS BLOB), 'Running', zeroblob(16), 'w', 1, 'r' || n, 'u', 1, '{{}}',
           CASE WHEN n = 5 THEN 'acme' ELSE 'other' END, 'c', zeroblob(16), 1 FROM n"
    );
    let filled = store.writer.write(move |tx| tx.connection.execute(&fill, [])).await;
    filled.unwrap();
    let runner = Some(fermata_core::RunnerId(Uuid::nil()));
    for (correlation_id, runner) in [(Some("c".to_owned()), None), (None, runner)] {
        for (tenant, expected) in [("acme", 1), ("third", 0)] {
            let filter = RunFilter {
                tenant: Some(tenant.to_owned()),
                correlation_id: correlation_id.clone(),
                runner,
                limit: 5,
                ..Default::default()
            };
            let page = store.runs(filter).await.unwrap();
            assert_eq!((page.items.len(), page.next), (expected, None), "{tenant} {runner:?}");
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
        (ItemWalk::TenantItems("t").sql().to_owned(), "ix_inbox_tenant_items"),
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

#[test]
fn api_keys_use_indexes() {
    let folder = Folder::new();
    drop(folder.open().unwrap());
    let connection = Connection::open(folder.path()).unwrap();
    for (sql, index) in [
        (crate::keys::KEY, "PRIMARY KEY (id=?)"),
        (crate::keys::KEYS, "PRIMARY KEY (id<?)"),
        (crate::keys::KEYS_OF_TENANT, "ix_api_keys_tenant (tenant_id=? AND id<?)"),
    ] {
        let plan = plan(&connection, sql).join("; ");
        assert!(plan.starts_with("SEARCH") && plan.contains(index), "{sql}: {plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    }
}

/// Lists and claims do the same number of steps with a hundred items as with a hundred thousand.
#[test]
fn the_cost_of_the_inbox_does_not_grow_with_its_items() {
    let folder = Folder::new();
    drop(folder.open().unwrap());
    let connection = Connection::open(folder.path()).unwrap();
    let fill = |from: u32, to: u32| {
        let sql = "WITH RECURSIVE n(n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM n WHERE n < ?2)
            INSERT INTO run_waits (token, workflow_execution_id, node_id, is_open, item_id, queue, tenant_id, workflow_id,
              kind, item_json, created_at, lease_until)
            SELECT 'item ' || n, CAST(printf('%016d', n) AS BLOB), 'ask', 1, CAST(printf('%016d', n) AS BLOB),
              'q', 't', 'w', 'task', '{}', 1, CASE WHEN n % 2 = 0 THEN 0 ELSE 9000000 END FROM n";
        assert_eq!(connection.execute(sql, [from, to]).unwrap(), (to - from + 1) as usize);
    };
    let steps = || -> Vec<i32> {
        let (first, last) = (Vec::<u8>::new(), vec![255_u8; 16]);
        let item = b"0000000000000050".to_vec();
        let cost = |sql: &str, values: &[&dyn rusqlite::ToSql], rows: usize| {
            let mut statement = connection.prepare(sql).unwrap();
            let found = statement.query_map(values, |_| Ok(())).unwrap().count();
            assert_eq!(found, rows, "{sql}");
            statement.get_status(rusqlite::StatementStatus::VmStep)
        };
        vec![
            cost(ItemWalk::Pending.sql(), &[&first, &51], 51),
            cost(ItemWalk::Queue("q").sql(), &[&first, &51, &"q", &last], 51),
            cost(ItemWalk::Tenant("t").sql(), &[&first, &51, &"t", &last], 51),
            cost(&inbox::claimable(CLAIMABLE), &[&"q", &5, &20], 20),
            cost(&inbox::claimable(CLAIMABLE_OF_TENANT), &[&"q", &5, &20, &"t"], 20),
            cost(ITEM, &[&item], 1),
            cost(WAIT_OF_ITEM, &[&item], 1),
        ]
    };
    fill(1, 100);
    let few = steps();
    fill(101, 100_000);
    assert_eq!(steps(), few);
}

#[test]
fn triggers_use_indexes() {
    use crate::triggers::statements as shared;
    let folder = Folder::new();
    drop(folder.open().unwrap());
    let connection = Connection::open(folder.path()).unwrap();
    for (sql, index) in [
        (shared::WEBHOOK, "ux_triggers_segment"),
        (shared::WEBHOOK, "ux_triggers_old_segment"),
        (shared::OF_WORKFLOW, "ix_triggers_workflow"),
        (shared::LIST_OF_WORKFLOW, "ix_triggers_workflow"),
        (shared::LIST_OF_TENANT, "ix_triggers_tenant"),
        (shared::OF_EVENT, "ix_triggers_event"),
        (shared::DUE, "ix_triggers_due"),
        (shared::NEXT_FIRE, "ix_triggers_due"),
        (shared::NEXT_DELIVERY, "ix_deliveries_retry"),
        (triggers::TAKE, "ix_deliveries_retry"),
        (shared::DELIVERY, "ux_deliveries_id"),
        (shared::DELIVERIES, "ix_deliveries_list"),
        (triggers::PRUNE_DELIVERIES, "ux_deliveries_id"),
        (triggers::PRUNE_EVENTS, "ix_events_received"),
        (shared::UNMATCHED, "ix_events_unmatched"),
        (flow::WAKE_WAITING, "ix_executions_waiting"),
        (crate::flow::SET_LIMIT, "USING PRIMARY KEY"),
    ] {
        let plan = plan(&connection, sql).join("; ");
        assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    }
}

/// Claims, and the hand-over of a place, do the same number of steps with a hundred runs that wait for a full key as with a
/// hundred thousand.
#[test]
fn the_cost_of_claims_does_not_grow_with_runs_that_wait() {
    let folder = Folder::new();
    drop(folder.open().unwrap());
    let connection = Connection::open(folder.path()).unwrap();
    let fill = |from: u32, to: u32, waiting: Option<&str>, wake_at: Option<i64>| {
        let sql = "WITH RECURSIVE n(n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM n WHERE n < ?2)
            INSERT INTO workflow_executions (id, status, wake_at, workflow_uid, workflow_id, workflow_version, tenant_id,
              workflow_request_id, priority, requester_user_id, created_at, trigger_payload_json, flow_json, flow_step,
              flow_held, waiting_key)
            SELECT CAST(printf('%016d', n) AS BLOB), 'Pending', ?4, ?5, 'w', 1, '', 'request ' || n, n % 3, 'u', n, '{}',
              '{}', 'concurrency', 0, ?3 FROM n";
        let uid = WORKFLOW.as_bytes().to_vec();
        let filled = connection
            .execute(sql, rusqlite::params![from, to, waiting, wake_at, uid])
            .unwrap();
        assert_eq!(filled, (to - from + 1) as usize);
    };
    let steps = || -> Vec<i32> {
        let cost = |sql: &str, values: &[&dyn rusqlite::ToSql], rows: usize| {
            let mut statement = connection.prepare(sql).unwrap();
            let found = statement.query_map(values, |_| Ok(())).unwrap().count();
            assert_eq!(found, rows, "{sql}");
            statement.get_status(rusqlite::StatementStatus::VmStep)
        };
        vec![
            cost(queue::FREE, &[&1000, &20], 10),
            cost(claim::NEXT_DUE, &[], 1),
            cost(queue::ANY_PRIORITY, &[], 1),
            cost(crate::flow::FIRST_WAITING, &[&"full", &1], 1),
            cost(crate::flow::NEXT_WAITING, &[&""], 1),
            cost(crate::flow::NEXT_WAITING, &[&"full"], 1),
            cost(flow::KEY, &[&"full"], 1),
        ]
    };
    let key = "INSERT INTO flow_keys (key, held, most, version, counted) VALUES ('full', 1, 1, 1, 0)";
    connection.execute(key, []).unwrap();
    fill(1, 10, None, Some(5));
    fill(11, 12, Some("other"), None);
    fill(101, 200, Some("full"), None);
    let few = steps();
    fill(201, 100_000, Some("full"), None);
    assert_eq!(steps(), few);
}

/// Jobs and their runs are found by index, however many there are.
#[test]
fn bulk_jobs_use_indexes() {
    use crate::bulk::*;
    let folder = Folder::new();
    drop(folder.open().unwrap());
    let connection = Connection::open(folder.path()).unwrap();
    for sql in [
        JOB,
        PUT_JOB,
        DUE_JOB,
        NEXT_JOB,
        JOBS,
        JOBS_OF_TENANT,
        OLD_JOB,
        DELETE_JOB,
        SLICE,
        SETTLE,
        ITEMS,
        ITEMS_IN_STATE,
        DELETE_ITEMS,
    ] {
        let plan = plan(&connection, sql).join("; ");
        assert!(plan.starts_with("SEARCH") || sql == NEXT_JOB, "{sql}: {plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{sql}: {plan}");
        assert!(
            !plan.contains("SCAN") || plan.contains("ix_bulk_jobs_retry"),
            "{sql}: {plan}"
        );
    }
    let tagged = plan(&connection, crate::fields::TAGGED).join("; ");
    assert!(
        tagged.starts_with("SEARCH") && !tagged.contains("TEMP B-TREE"),
        "{tagged}"
    );
}
