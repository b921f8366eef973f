//! `sp_start_workflow_execution`: what is stored, what is refused, and that it is part of the caller's transaction.

use super::*;
use crate::{
    conformance::{ME, claim, new_run, release_new, run_of},
    definitions::{Draft, Release, ReleaseRule},
    reads::RunFilter,
    runs::{Enqueued, Principal},
};
use fermata_core::Status;
use std::future::poll_fn;
use tokio::sync::mpsc;
use tokio_postgres::AsyncMessage;

const WHOLE: &str = "SELECT execution_id, was_existing
    FROM sp_start_workflow_execution($1, $2, $3::text::jsonb, $4, $5, $6, $7)";

async fn count(store: &Arc<dyn Store>) -> usize {
    let filter = RunFilter {
        limit: 100,
        ..Default::default()
    };
    store.runs(filter).await.unwrap().items.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_stores_a_claimable_run() {
    let (_database, store, app) = setup().await;
    publish(&store, WORKFLOW, "two").await;
    let parent = app.one(
        WHOLE,
        &[&WORKFLOW, &"p", &"{}", &None::<i32>, &"acme", &"", &None::<Uuid>],
    );
    let parent: Uuid = parent.await.unwrap().get(0);
    let before = now();
    let params: [&(dyn ToSql + Sync); 7] = [
        &WORKFLOW,
        &"r1",
        &r#"{"b":[1,null],"a":"x"}"#,
        &1,
        &"acme",
        &"trace-1",
        &parent,
    ];
    let row = app.one(WHOLE, &params).await.unwrap();
    assert!(!row.get::<_, bool>(1));
    let run = record(&store, RunId(row.get(0))).await;
    assert_eq!((run.status, run.workflow_version), (Status::Pending, 1));
    assert_eq!((run.tenant.as_str(), run.request_id.as_str()), ("acme", "r1"));
    assert_eq!(run.trigger, r#"{"a": "x", "b": [1, null]}"#, "as jsonb prints it");
    assert_eq!(run.correlation_id.as_deref(), Some("trace-1"));
    assert_eq!(run.parent, Some(RunId(parent)));
    assert_eq!(run.principal, Principal::default());
    assert_eq!((run.started_at, run.spec, run.priority), (None, None, None));
    // The server runs on this machine, so both use the same clock.
    assert!(before <= run.created_at && run.created_at <= now());
    assert_eq!(run.wake_at, Some(run.created_at));
    assert_eq!(run.id.0.get_version_num(), 7);
    let (seconds, nanos) = run.id.0.get_timestamp().unwrap().to_unix();
    let millis = seconds as i64 * 1000 + i64::from(nanos) / 1_000_000;
    assert!((before.millis()..=now().millis()).contains(&millis));
    assert_eq!(run.id.0.get_variant(), uuid::Variant::RFC4122);

    let claimed = store.claim(claim(ME, 10, now().0)).await.unwrap().runs;
    let ids: Vec<_> = claimed.iter().map(|run| (run.id.0, run.epoch)).collect();
    assert_eq!(ids, [(parent, 1), (run.id.0, 1)]);
    assert_eq!(
        record(&store, RunId(parent)).await.workflow_version,
        2,
        "the current version"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_is_part_of_the_callers_transaction() {
    let (_database, store, app) = setup().await;
    app.run("CREATE TABLE orders (id text)").await;
    app.run("BEGIN; INSERT INTO orders VALUES ('1')").await;
    let run = app.started("r1").await;
    assert_eq!(store.run(run).await.unwrap(), None, "invisible before the commit");
    assert_eq!(
        app.start("r1").await.unwrap(),
        (run, true),
        "visible in its own transaction"
    );
    app.run("ROLLBACK").await;
    assert_eq!(count(&store).await, 0);
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 0);

    app.run("BEGIN; INSERT INTO orders VALUES ('1'); SAVEPOINT s").await;
    let undone = app.started("r1").await;
    app.run("ROLLBACK TO s").await;
    let run = app.started("r2").await;
    app.run("COMMIT").await;
    assert_eq!(store.run(undone).await.unwrap(), None);
    assert_eq!(record(&store, run).await.status, Status::Pending);
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_has_one_run_for_sql_and_engine() {
    let (_database, store, app) = setup().await;
    publish(&store, "other", "one").await;
    let run = app.started("r1").await;
    assert_eq!(app.start("r1").await.unwrap(), (run, true));
    expect(
        app.start_of("other", "r1").await,
        "WF001",
        "WFENG001 REQUEST_ID_CONFLICT_OTHER_WORKFLOW",
    );
    expect(
        app.start_of("other", "r1").await,
        "WF001",
        &format!("{run} of workflow \"{WORKFLOW}\""),
    );
    let status = Status::Pending;
    assert_eq!(
        store.enqueue(new_run("r1")).await.unwrap(),
        Enqueued::Existing { run, status }
    );
    // Request ids are separate for each tenant; NULL and the empty tenant are the same.
    let of_tenant = |tenant: Option<&'static str>| {
        let app = &app;
        async move {
            let params: [&(dyn ToSql + Sync); 7] = [
                &WORKFLOW,
                &"r1",
                &"{}",
                &None::<i32>,
                &tenant,
                &None::<&str>,
                &None::<Uuid>,
            ];
            let row = app.one(WHOLE, &params).await.unwrap();
            (RunId(row.get(0)), row.get::<_, bool>(1))
        }
    };
    assert!(!of_tenant(Some("acme")).await.1);
    assert_eq!(of_tenant(Some("")).await, (run, true));
    assert_eq!(of_tenant(None).await, (run, true));
    // Existing runs are found even after the workflow was archived.
    set(&store, WORKFLOW, Some(Lifecycle::Archived), false).await;
    assert_eq!(app.start("r1").await.unwrap(), (run, true));
    // A run that the engine stored is found as well.
    let enqueued = run_of("other", "enqueued");
    let id = enqueued.id;
    assert_eq!(store.enqueue(enqueued).await.unwrap(), Enqueued::Created);
    assert_eq!(app.start_of("other", "enqueued").await.unwrap(), (id, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_ids_are_validated_as_in_the_api() {
    let (_database, store, app) = setup().await;
    let (long, longest) = ("x".repeat(256), "x".repeat(255));
    for wrong in ["", "a\nb", "\u{7f}", "\u{85}", &long, &"ü".repeat(128)] {
        expect(app.start(wrong).await, "WF005", "p_request_id must have 1 to 255 bytes");
        for at in ["p_tenant_id", "p_correlation_id"]
            .into_iter()
            .filter(|_| !wrong.is_empty())
        {
            let sql = format!("SELECT sp_start_workflow_execution($1, 'r', '{{}}', {at} => $2)");
            expect(app.one(&sql, &[&WORKFLOW, &wrong]).await.map(drop), "WF005", at);
        }
    }
    expect(app.start("fermata:child:1").await, "WF005", "is for the engine alone");
    assert_eq!(count(&store).await, 0);
    app.started(&longest).await;
    app.started("Fermata:1").await;
    app.started("ü \u{a0} ;").await;
    // Without a requestId every start creates a new run.
    for _ in 0..2 {
        let row = app.one(START, &[&WORKFLOW, &None::<&str>, &"{}"]).await.unwrap();
        let request = record(&store, RunId(row.get(0))).await.request_id;
        assert_eq!(request.parse::<Uuid>().unwrap().get_version_num(), 7);
    }
    assert_eq!(count(&store).await, 5);
}

/// A name refers to the workflow that currently has it. Requests of a deleted workflow with the same name are conflicts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recreated_workflow_has_its_own_requests() {
    let (_database, store, app) = setup().await;
    store.release(release_new("again", "one")).await.unwrap();
    let (old, _) = app.start_of("again", "r1").await.unwrap();
    assert_eq!(record(&store, old).await.workflow_uid, uid("again"));
    store.soft_delete_workflow(uid("again"), Timestamp(5)).await.unwrap();
    for request in ["r1", "r2"] {
        expect(app.start_of("again", request).await, "P0002", "WORKFLOW_NOT_FOUND");
    }
    let second = Uuid::now_v7();
    let release = Release {
        rule: ReleaseRule::New {
            uid: second,
            most: None,
        },
        ..release_new("again", "two")
    };
    store.release(release).await.unwrap();
    let words = format!("requestId \"r1\" belongs to execution {old} of workflow \"again\"");
    expect(app.start_of("again", "r1").await, "WF001", &words);
    let (new, existing) = app.start_of("again", "r2").await.unwrap();
    let record = record(&store, new).await;
    assert_eq!(
        (record.workflow_uid, record.workflow_version, existing),
        (second, 2, false)
    );
    assert_eq!(app.start_of("again", "r2").await.unwrap(), (new, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_start_names_the_reason() {
    let (_database, store, app) = setup().await;
    store
        .save_draft(draft("draft", "one"), new_or_draft("draft"), None)
        .await
        .unwrap();
    for id in ["archived", "disabled"] {
        publish(&store, id, "one").await;
    }
    set(&store, "archived", Some(Lifecycle::Archived), false).await;
    set(&store, "disabled", None, false).await;
    store.release(release_new("gone", "one")).await.unwrap();
    store.soft_delete_workflow(uid("gone"), Timestamp(5)).await.unwrap();
    for (workflow, state, words) in [
        (
            "missing",
            "P0002",
            "WORKFLOW_NOT_FOUND: workflow \"missing\" does not exist",
        ),
        ("gone", "P0002", "WORKFLOW_NOT_FOUND: workflow \"gone\" does not exist"),
        (
            "draft",
            "55000",
            "WORKFLOW_NOT_ACTIVE: workflow \"draft\" is a Draft; publish it first",
        ),
        (
            "archived",
            "55000",
            "WORKFLOW_NOT_ACTIVE: workflow \"archived\" is Archived; reactivate it first",
        ),
        (
            "disabled",
            "55000",
            "WORKFLOW_NOT_ACTIVE: workflow \"disabled\" is disabled; enable it first",
        ),
    ] {
        expect(app.start_of(workflow, "r").await, state, words);
    }
    let without_id = app.one(START, &[&None::<&str>, &"r", &"{}"]).await.map(drop);
    expect(without_id, "WF005", "p_workflow_id must not be null");
    let version = "SELECT sp_start_workflow_execution($1, 'r', '{}', p_version => $2)";
    for number in [-1, 0, 2] {
        let answer = app.one(version, &[&WORKFLOW, &number]).await.map(drop);
        expect(
            answer,
            "P0002",
            &format!("VERSION_NOT_FOUND: workflow \"{WORKFLOW}\" has no version {number}"),
        );
    }
    let parent = "SELECT sp_start_workflow_execution($1, 'r', '{}', p_parent_execution_id => $2)";
    expect(
        app.one(parent, &[&WORKFLOW, &Uuid::now_v7()]).await.map(drop),
        "P0002",
        "no parent execution",
    );
    assert_eq!(count(&store).await, 0);
    // A run of another tenant cannot be the parent.
    let run = app.started("p").await;
    let parent =
        "SELECT sp_start_workflow_execution($1, 'r', '{}', p_tenant_id => 'acme', p_parent_execution_id => $2)";
    expect(
        app.one(parent, &[&WORKFLOW, &run.0]).await.map(drop),
        "P0002",
        "of this tenant",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn triggers_are_stored_as_jsonb_prints_them() {
    let (_database, store, app) = setup().await;
    let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
    for (at, (given, kept)) in [
        (
            Some(r#"{"b":1,"a":{"c":[true,null]},"b":2}"#),
            r#"{"a": {"c": [true, null]}, "b": 2}"#,
        ),
        (
            Some("[1, 2.50, -0, 12345678901234567890.125]"),
            "[1, 2.50, 0, 12345678901234567890.125]",
        ),
        (Some(r#""a\"b\\c \u00e9 💥 \n""#), "\"a\\\"b\\\\c é 💥 \\n\""),
        (Some("7"), "7"),
        (Some("{}"), "{}"),
        // A missing trigger is an empty object, as in the API.
        (Some("null"), "{}"),
        (None, "{}"),
        (Some(&deep), &deep),
    ]
    .into_iter()
    .enumerate()
    {
        let row = app.one(START, &[&WORKFLOW, &format!("r{at}"), &given]).await.unwrap();
        assert_eq!(record(&store, RunId(row.get(0))).await.trigger, kept);
    }
}

/// Runners are notified of starts at the commit, once for each transaction, and not of starts that were rolled back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_notifies_runners_once() {
    let (database, _store, app) = setup().await;
    let (listener, mut wire) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
    let (received, mut messages) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| wire.poll_message(cx)).await {
            if let AsyncMessage::Notification(message) = message {
                let _ = received.send(message.payload().to_owned());
            }
        }
    });
    listener.batch_execute("LISTEN fermata_news").await.unwrap();
    app.run("BEGIN").await;
    app.started("undone").await;
    app.run("ROLLBACK; SET fermata.notify = off").await;
    app.started("quiet").await;
    app.run("RESET fermata.notify; BEGIN").await;
    for request in ["r1", "r2", "r3"] {
        app.started(request).await;
    }
    app.run("COMMIT").await;
    app.start("r3").await.unwrap(); // exists already
    app.run("NOTIFY fermata_news, 'end'").await;
    for expected in ["sql d0", "end"] {
        let message = tokio::time::timeout(TEST_TIMEOUT, messages.recv()).await;
        assert_eq!(message.expect("a notification").as_deref(), Some(expected));
    }
}

/// A tenant starts its own workflow before a shared one of the same name, and never one of another tenant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_start_their_own_workflows_first() {
    let (_database, store, app) = setup().await;
    let own = |tenant: &str, id: &str, key: &str| Release {
        draft: Draft {
            tenant: tenant.to_owned(),
            ..draft(id, "one")
        },
        rule: ReleaseRule::New {
            uid: uid(key),
            most: None,
        },
        ..release_new(id, "one")
    };
    store.release(own("acme", WORKFLOW, "acme's")).await.unwrap();
    store.release(own("acme", "only", "only")).await.unwrap();
    let start = async |workflow: &str, tenant: Option<&str>| {
        let none = None::<i32>;
        let params: [&(dyn ToSql + Sync); 7] = [
            &workflow,
            &None::<&str>,
            &"{}",
            &none,
            &tenant,
            &None::<&str>,
            &None::<Uuid>,
        ];
        let row = app.one(WHOLE, &params).await?;
        Ok::<_, Refused>(record(&store, RunId(row.get(0))).await)
    };
    let run = start(WORKFLOW, Some("acme")).await.unwrap();
    assert_eq!((run.workflow_uid, run.tenant.as_str()), (uid("acme's"), "acme"));
    for tenant in [None, Some(""), Some("other")] {
        let run = start(WORKFLOW, tenant).await.unwrap();
        assert_eq!(run.workflow_uid, uid(WORKFLOW), "{tenant:?}");
        expect(start("only", tenant).await, "P0002", "workflow \"only\" does not exist");
    }
    assert_eq!(start("only", Some("acme")).await.unwrap().workflow_uid, uid("only"));
}
