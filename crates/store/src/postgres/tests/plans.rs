//! Query plans, in a new database and in one with many finished runs.
//!
//! Statements are planned as in committers and pools: once, with generic plans that do not depend on parameter values.

use super::super::{
    address::Address, children, claim, dead_letters, definitions, flow, inbox, lists, queue, reads, runners,
    settings::PostgresSettings, sql, triggers,
};
use crate::{
    callbacks,
    conformance::cluster::{Database, execute},
    dead_letters::{DeadLetterFilter, DeadReason},
    flow::FIRST_WAITING,
    inbox::{CLAIMABLE, CLAIMABLE_OF_TENANT, ITEM, ItemWalk, WAIT_OF_ITEM, WAIT_OF_NODE, WAIT_OF_TOKEN},
    lists::{BY_REQUEST_OF_TENANT, Flavour, budget, walks},
    reads::{Order, RunFilter},
    statements::{self, dollars},
};
use fermata_core::{RunId, RunnerId, Status};
use tokio_postgres::{Client, SimpleQueryMessage};
use uuid::Uuid;

/// Runs as after years of use: nearly all succeeded, some failed, a few are waiting or held.
const FILL: &str = "
    INSERT INTO workflow_executions (id, status, lease_owner, wake_at, workflow_uid, workflow_id, workflow_version,
      tenant_id, workflow_request_id, priority, correlation_id, parent_execution_id, requester_user_id, created_at,
      trigger_payload_json)
    SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
      CASE WHEN n % 50 = 0 THEN 'Failed' WHEN n > 29900 THEN 'Running' ELSE 'Succeeded' END,
      CASE WHEN n > 29950 AND n % 50 <> 0 THEN '01900000-0000-7000-8000-00000000000a'::uuid END,
      CASE WHEN n > 29900 AND n % 50 <> 0 THEN n END, md5('w' || n % 5)::uuid, 'w' || n % 5, 1,
      CASE WHEN n % 10 = 0 THEN 't' || n % 7 ELSE '' END,
      'request ' || n, CASE WHEN n % 9 = 0 THEN n % 4 END, CASE WHEN n % 4 = 0 THEN 'c' || n END,
      CASE WHEN n % 8 = 0 THEN '01900000-0000-7000-8000-000000000001'::uuid END, 'u', n, '{}'
    FROM generate_series(1, 30000) n;
    INSERT INTO execution_events (workflow_execution_id, seq, ts, data)
    SELECT id, seq, 1, '[]' FROM workflow_executions, generate_series(1, 3) seq;
    INSERT INTO action_executions (workflow_execution_id, node_id, attempt, action_type, status, end_time)
    SELECT id, 'n', 1, 'a', 'Succeeded', 1 FROM workflow_executions;
    INSERT INTO run_fields (workflow_execution_id, field, value, tenant_id)
    SELECT id, field, created_at % 1000, tenant_id FROM workflow_executions, unnest(ARRAY['order', 'city']) field;
    INSERT INTO workflow_tags (tag, workflow_uid, version)
    SELECT 'tag ' || n % 3, md5('w' || n)::uuid, v FROM generate_series(0, 500) n, generate_series(1, 5) v;
    INSERT INTO bulk_jobs (id, tenant_id, action_json, caller_json, state, total, done, refused, failed, epoch, retry_at, created_at)
    SELECT md5('b' || n)::uuid, 't' || n % 7, '{}', '{}', 'finished', 9, 9, 0, 0, 1, CASE WHEN n > 4990 THEN n END, 1
    FROM generate_series(1, 5000) n;
    INSERT INTO bulk_items (job_id, run_id, state)
    SELECT md5('b' || n)::uuid, md5('r' || i)::uuid, CASE WHEN i % 10 = 0 THEN 'pending' ELSE 'done' END
    FROM generate_series(1, 500) n, generate_series(1, 100) i;
    INSERT INTO run_waits (token, workflow_execution_id, node_id) SELECT id::text, id, 'n' FROM workflow_executions;
    INSERT INTO run_waits (token, workflow_execution_id, node_id, is_open, item_id, queue, tenant_id, workflow_id, kind,
      item_json, created_at, lease_until)
    SELECT 'item ' || id, id, 'ask', created_at % 3 = 0, id, 'q' || created_at % 4, 't' || created_at % 7, 'w', 'task',
      '{}', 1, created_at % 100 FROM workflow_executions;
    INSERT INTO workflow_resource_links (system_name, resource_type, resource_id, workflow_execution_id, node_id,
      attempt, created_at) SELECT 's', 't', id::text, id, 'n', 1, 1 FROM workflow_executions;
    INSERT INTO workflows (id, uid, display_name, dialect, created_at, updated_at, tenant_id)
    SELECT 'w' || n % 100, md5('w' || n)::uuid, 'w', 'd', 1, 1, 't' || n / 100 FROM generate_series(0, 2000) n;
    INSERT INTO workflows (id, uid, display_name, dialect, created_at, updated_at)
    SELECT 'w' || n, md5('shared' || n)::uuid, 'w', 'd', 1, 1 FROM generate_series(0, 500) n;
    INSERT INTO registered_callbacks (id, tenant_id, service_name, environment, base_url, path, registered_at)
    SELECT id, tenant_id, 's', '', '', '', 1 FROM workflows;
    INSERT INTO dead_letters (id, workflow_execution_id, enqueued_at, workflow_version, reason, workflow_uid,
      workflow_id, payload_json, tenant_id)
    SELECT id, id, 1, 1, 'POISON', md5('w' || created_at % 100)::uuid, 'w' || created_at % 100, '{}', tenant_id
    FROM workflow_executions WHERE created_at % 5 = 0;
    INSERT INTO workflow_triggers (id, workflow_uid, workflow_id, tenant_id, trigger_type, is_enabled, disabled_by_archive,
      config_json, segment, event_type, next_fire_at, created_at, updated_at)
    SELECT md5('t' || n)::uuid, md5('w' || n % 100)::uuid, 'w', 't' || n % 7,
      CASE n % 3 WHEN 0 THEN 'Webhook' WHEN 1 THEN 'Schedule' ELSE 'Event' END, true, false, '{}',
      CASE WHEN n % 3 = 0 THEN md5('t' || n)::uuid END, CASE WHEN n % 3 = 2 THEN 'e' || n % 50 END,
      CASE WHEN n % 3 = 1 THEN n END, 1, 1 FROM generate_series(1, 9000) n;
    INSERT INTO trigger_deliveries (trigger_id, occurrence, id, tenant_id, received_at, state, run_id, retry_at)
    SELECT md5('t' || created_at % 100)::uuid, id::text, id, '', created_at, 'started', id,
      CASE WHEN created_at % 1000 = 0 THEN created_at END FROM workflow_executions;
    INSERT INTO trigger_events (tenant_id, source, event_id, event_type, received_at, is_matched, attributes_json, data_json)
    SELECT '', 's', id::text, 'e', created_at, created_at % 1000 <> 0, '{}', '' FROM workflow_executions;
    ANALYZE";

const WORKFLOW: Uuid = Uuid::from_u128(7);

struct Planner(Client);

impl Planner {
    async fn new(database: &Database) -> Planner {
        let address = Address::parse(&database.url, &PostgresSettings::default()).unwrap();
        Planner(address.session().await.unwrap().0)
    }

    /// The plan of a statement, one line for each step.
    async fn plan(&self, sql: &str) -> String {
        let sql = dollars(sql);
        let params = (1..).take_while(|number| sql.contains(&format!("${number}"))).count();
        let nulls = vec!["NULL"; params].join(", ");
        let nulls = if params == 0 { nulls } else { format!("({nulls})") };
        let explain = format!("PREPARE p AS {sql}; EXPLAIN (COSTS OFF) EXECUTE p {nulls}; DEALLOCATE p");
        let answers = self.0.simple_query(&explain).await;
        let answers = answers.unwrap_or_else(|error| panic!("{error:?}: {sql}"));
        let lines = answers.iter().filter_map(|answer| match answer {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Checks that the plan contains no sequential scan.
    async fn finds(&self, sql: &str) -> String {
        let plan = self.plan(sql).await;
        assert!(!plan.contains("Seq Scan"), "{sql}\n{plan}");
        plan
    }

    /// Checks that the plan contains no sequential scan and no full index scan.
    async fn seeks(&self, sql: &str) -> String {
        let plan = self.finds(sql).await;
        let mut lines = plan.lines().peekable();
        while let Some(line) = lines.next() {
            let scan = line.contains("Index Scan") || line.contains("Index Only Scan");
            let bounded = lines.peek().is_some_and(|next| next.contains("Index Cond"));
            assert!(!scan || bounded, "full index scan: {sql}\n{plan}");
        }
        plan
    }

    /// Checks that the plan reads rows in the order of this index and does not sort.
    async fn walks(&self, sql: &str, index: &str) -> String {
        let plan = self.finds(sql).await;
        assert!(plan.contains(index), "{index} is not used: {sql}\n{plan}");
        assert!(!plan.contains("Sort"), "{sql}\n{plan}");
        plan
    }
}

#[tokio::test]
async fn statements_use_indexes() {
    let database = Database::new().await;
    for state in ["SELECT 'new'", FILL] {
        execute(&database.url, state).await;
        let planner = Planner::new(&database).await;
        for (_, sql) in sql::ALL {
            planner.seeks(sql).await;
        }
        claims_use_indexes(&planner).await;
        reads_use_indexes(&planner).await;
        names_use_indexes(&planner, state == FILL).await;
        lists_use_indexes(&planner).await;
        triggers_use_indexes(&planner).await;
        bulk_jobs_use_indexes(&planner).await;
    }
}

async fn bulk_jobs_use_indexes(planner: &Planner) {
    use crate::bulk::*;
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
        planner.finds(&dollars(sql)).await;
    }
}

async fn triggers_use_indexes(planner: &Planner) {
    use crate::triggers::statements::*;
    for sql in [
        TRIGGER,
        WEBHOOK,
        OF_WORKFLOW,
        OF_EVENT,
        DELIVERY,
        OCCURRENCE,
        DELIVERIES,
        SETTLE,
        LATER,
        MATCH_EVENT,
        LIST_OF_TENANT,
        LIST_OF_WORKFLOW,
        triggers::LAST,
        crate::flow::SET_LIMIT,
    ] {
        planner.seeks(sql).await;
    }
    planner.walks(DUE, "ix_triggers_due").await;
    for (sql, index) in [
        (triggers::TAKE, "ix_deliveries_retry"),
        (triggers::PRUNE_DELIVERIES, "ux_deliveries_id"),
        (triggers::PRUNE_EVENTS, "ix_events_received"),
        (UNMATCHED, "ix_events_unmatched"),
        (triggers::WORK, "ix_triggers_due"),
    ] {
        planner.walks(sql, index).await;
    }
}

async fn claims_use_indexes(planner: &Planner) {
    planner.walks(queue::ANY_PRIORITY, "ix_executions_priority").await;
    planner.walks(queue::FRONT, "ix_executions_due").await;
    planner.seeks(queue::FRONT).await;
    planner.walks(queue::URGENT, "ix_executions_priority").await;
    planner.seeks(queue::URGENT).await;
    planner.walks(queue::HEADS, "ix_executions_group").await;
    planner.seeks(queue::HEADS).await;
    planner.walks(queue::GROUPS, "ix_executions_group").await;
    planner.seeks(queue::GROUPS).await;
    planner.seeks(queue::TAKE).await;
    planner.walks(claim::ORPHANED, "ix_executions_held").await;
    planner.seeks(claim::LISTED).await;
    planner.walks(&dollars(FIRST_WAITING), "ix_executions_waiting").await;
    planner.walks(flow::NEXT_WAITING, "ix_executions_waiting").await;
    planner.seeks(flow::NEXT_WAITING).await;
    planner.walks(&flow::unfreed(), "ix_executions_unfreed").await;
    for sql in [flow::CLEAR, flow::DISOWN, flow::SET_MISSING_LIMITS, flow::SPARE] {
        planner.seeks(sql).await;
    }
    for sql in [flow::FORGET_RATES, flow::FORGET_REQUESTS] {
        planner.finds(sql).await;
    }
    planner.walks(claim::NEXT_DUE, "ix_executions_due").await;
    planner.seeks(claim::JOURNALS).await;
    planner.seeks(&claim::lease()).await;
    planner.seeks(&claim::load_query()).await;
    planner.walks(runners::WITH_MESSAGES, "ix_executions_unread").await;
    let held = planner.seeks(runners::HELD).await;
    assert!(held.contains("ix_executions_held"), "{held}");
    let all = planner.finds(runners::RUNNERS).await;
    assert!(all.contains("ix_executions_held"), "{all}");
}

/// Names are listed in the order of an index, for all tenants and for one. In an empty table all indexes cost the same.
async fn names_use_indexes(planner: &Planner, is_filled: bool) {
    let limited = |sql: &str| format!("{} LIMIT 100", sql.trim_end_matches(" LIMIT ?3")); // as callers limit it
    for (sql, index) in [
        (statements::WORKFLOWS, "ix_workflows_id"),
        (callbacks::CALLBACKS, "ix_callbacks_id"),
    ] {
        match is_filled {
            true => planner.walks(&limited(sql), index).await,
            false => planner.finds(&limited(sql)).await,
        };
    }
    // The names of one tenant and the shared ones are merged or, while there are few, sorted.
    for (sql, index) in [
        (statements::WORKFLOWS_OF_TENANT, "ux_workflows_id"),
        (callbacks::CALLBACKS_OF_TENANT, "registered_callbacks_pkey"),
    ] {
        let plan = planner.finds(&limited(sql)).await;
        assert!(!is_filled || plan.contains(index), "{index} is not used: {sql}\n{plan}");
    }
}

async fn reads_use_indexes(planner: &Planner) {
    for sql in [
        statements::WORKFLOW,
        statements::WORKFLOW_OF_TENANT,
        statements::COUNT_WORKFLOWS,
        statements::MARK,
        callbacks::CALLBACK,
        callbacks::CALLBACK_OF_TENANT,
        BY_REQUEST_OF_TENANT,
        statements::WORKFLOW_BY_UID,
        statements::DEFINITION,
        statements::EVENTS,
        statements::COUNT_EVENTS,
        statements::JOURNAL_AFTER,
        reads::POSITIONS,
        statements::COUNT_ACTIONS,
        statements::LINKS,
        statements::COUNT_LINKS,
        statements::MESSAGES,
        statements::CACHED_STATE,
        statements::WAITS,
        crate::keys::KEY,
        definitions::HAS_RUNS,
        &statements::actions(),
        &statements::attempt(),
        &statements::last_attempts(),
        &reads::last_of_nodes(),
        &lists::rows_query(),
    ] {
        planner.seeks(sql).await;
    }
    planner.walks(statements::VERSIONS, "workflow_definitions_pkey").await;
    planner.walks(&lists::children_query(), "ix_executions_parent").await;
    planner.walks(&children::awaited_query(), "ix_executions_parent").await;
    planner
        .walks(&children::item_results_query(), "ix_executions_parent")
        .await;
    planner
        .walks(crate::children::ENDED_CHILDREN, "ix_executions_ended_children")
        .await;
    planner
        .walks(crate::children::NEXT_PARENT, "ix_executions_ended_children")
        .await;
    planner.walks(ItemWalk::Queue("q").sql(), "ix_inbox_queue").await;
    planner.walks(ItemWalk::Tenant("t").sql(), "ix_inbox_tenant").await;
    planner
        .walks(ItemWalk::TenantItems("t").sql(), "ix_inbox_tenant_items")
        .await;
    planner.walks(ItemWalk::Pending.sql(), "ix_inbox_pending").await;
    planner.walks(ItemWalk::All.sql(), "ux_inbox_item").await;
    for sql in [
        ITEM,
        WAIT_OF_NODE,
        WAIT_OF_ITEM,
        WAIT_OF_TOKEN,
        inbox::FACTS,
        inbox::EXTEND,
    ] {
        planner.seeks(sql).await;
    }
    let claim = planner.seeks(&inbox::claim_query(CLAIMABLE)).await;
    assert!(claim.contains("ix_inbox_claim") && !claim.contains("Sort"), "{claim}");
    let claim = planner.seeks(&inbox::claim_query(CLAIMABLE_OF_TENANT)).await;
    assert!(
        claim.contains("ix_inbox_claim_tenant") && !claim.contains("Sort"),
        "{claim}"
    );
    planner.finds(lists::BY_REQUEST).await;
    let depths = planner.seeks(statements::QUEUE_DEPTHS).await;
    assert!(depths.contains("ix_executions_due"), "{depths}");
    let poison = Some(DeadReason::Poison);
    for (reason, workflow, tenant, index) in [
        (None, None, None, "dead_letters_pkey"),
        (None, None, Some(""), "dead_letters_pkey"),
        (poison, None, None, "ix_dead_letters_reason"),
        (None, Some(WORKFLOW), None, "ix_dead_letters_workflow"),
        (poison, Some(WORKFLOW), None, "ix_dead_letters_workflow"),
        (None, None, Some("t"), "ix_dead_letters_tenant"),
        (poison, Some(WORKFLOW), Some("t"), "ix_dead_letters_tenant"),
    ] {
        let filter = DeadLetterFilter {
            reason,
            workflow_uid: workflow,
            tenant: tenant.map(str::to_owned),
            ..Default::default()
        };
        let (fitting, _) = dead_letters::fitting(&filter, 9);
        planner.walks(&format!("SELECT id FROM {fitting}"), index).await;
    }
}

/// Filters in every combination that affects the choice of an index.
fn filters() -> Vec<RunFilter> {
    let id = Some(RunId(Uuid::now_v7()));
    let some = |text: &str| Some(text.to_owned());
    let statuses = Status::ALL.map(|status| vec![status]).into_iter();
    let statuses = statuses.chain([Vec::new(), vec![Status::Failed, Status::Running], Status::ALL.to_vec()]);
    let mut filters = Vec::new();
    for statuses in statuses {
        for workflow_uid in [None, Some(WORKFLOW)] {
            for tenant in [None, some(""), some("acme")] {
                for correlation_id in [None, some("c"), id.map(|id| id.to_string())] {
                    for (from, before, search) in [(None, None, None), (id, id, some("x"))] {
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
    filters
}

async fn lists_use_indexes(planner: &Planner) {
    let of_runner = RunFilter {
        runner: Some(RunnerId(Uuid::now_v7())),
        workflows: vec![WORKFLOW],
        before: Some(RunId(Uuid::now_v7())),
        ..Default::default()
    };
    for walk in walks(&of_runner, None, Flavour::Postgres) {
        let plan = planner.seeks(&lists::walk_query(&walk, 9, budget(1))).await;
        assert!(plan.contains("ix_executions_held"), "{plan}");
    }
    for filter in filters() {
        let by_status = !filter.statuses.is_empty() && !filter.statuses.contains(&Status::Succeeded);
        let of_tenant = filter.tenant.as_ref().is_some_and(|tenant| !tenant.is_empty());
        let of_workflow = !filter.workflows.is_empty();
        let index = match &filter {
            RunFilter { fields, .. } if !fields.is_empty() && of_tenant => "ix_run_fields_tenant",
            RunFilter { fields, .. } if !fields.is_empty() => "ix_run_fields",
            RunFilter {
                correlation_id: Some(_),
                ..
            } => "ix_executions_correlation",
            _ if by_status && of_tenant => "ix_executions_tenant_status",
            _ if of_workflow && of_tenant && !by_status => "ix_executions_tenant_workflow",
            _ if by_status => "ix_executions_status",
            _ if of_workflow => "ix_executions_workflow",
            _ if of_tenant => "ix_executions_tenant ",
            _ => "workflow_executions_pkey",
        };
        let all = walks(&filter, None, Flavour::Postgres);
        let budget = budget(all.len());
        for (at, walk) in all.iter().enumerate() {
            // The first scan looks for the run whose own id is the correlation id.
            let own = filter.correlation_id.is_some() && at + 1 < all.len();
            let index = if own { "workflow_executions_pkey" } else { index };
            planner
                .walks(&lists::walk_query(walk, filter.limit, budget), index)
                .await;
        }
    }
}
