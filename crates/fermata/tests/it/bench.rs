//! `fermata bench`, run as a process. Tests check that values are reported, not how large they are.

use crate::support::{Server, fermata, folder, text};
use fermata_core::Status;
use fermata_store::{
    ReadStore, Store,
    conformance::cluster::Database,
    reads::{RunFilter, Window},
};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

#[test]
fn every_requested_section_is_reported() {
    let folder = folder();
    let sections = ["--only", "main,one,fanout", "--dir", text(folder.path())];
    let size = ["bench", "--json", "--workflows", "20", "--concurrency", "4"];
    let measured = fermata(&[&size[..], &sections].concat());
    assert_eq!(measured.code, Some(0), "{measured:?}");
    let report = measured.json();
    assert_eq!(
        (&report["workflows"], &report["concurrency"], &report["preload"]),
        (&20.into(), &4.into(), &0.into())
    );
    for pointer in [
        "/workflowsPerSecond",
        "/stepsPerSecond",
        "/p50Ms",
        "/p95Ms",
        "/p99Ms",
        "/rawWorkflowsPerSecond",
        "/ratio",
        "/rssMb",
        "/oneAtATime/p50Ms",
        "/oneAtATime/p95Ms",
        "/oneAtATime/p99Ms",
        "/fanOut/width",
        "/fanOut/p50Ms",
        "/fanOut/p95Ms",
        "/fanOut/p99Ms",
    ] {
        let number = report.pointer(pointer).and_then(|value| value.as_f64());
        assert!(number.is_some_and(|number| number > 0.0), "{pointer}: {report:#}");
    }
    assert!(report["rssGrowthMb"].is_number(), "{report:#}");
    assert!(
        report.get("large").is_none() && report.get("http").is_none(),
        "{report:#}"
    );
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "the scratch database is removed");
}

#[test]
fn pages_and_watchers_are_measured() {
    let folder = folder();
    let size = [
        "bench",
        "--json",
        "--workflows",
        "20",
        "--concurrency",
        "4",
        "--preload",
        "50",
    ];
    let measured = fermata(&[&size[..], &["--only", "pages", "--dir", text(folder.path())]].concat());
    assert_eq!(measured.code, Some(0), "{measured:?}");
    let pages = &measured.json()["pages"];
    assert_eq!((&pages["preloaded"], &pages["watchers"]), (&50.into(), &200.into()));
    for pointer in [
        "/runs/newest/p95Ms",
        "/runs/neverFound/p95Ms",
        "/runs/combined/kilobytes",
        "/largeRun/p95Ms",
        "/watchedRatio",
    ] {
        let number = pages.pointer(pointer).and_then(|value| value.as_f64());
        assert!(number.is_some_and(|number| number > 0.0), "{pointer}: {pages:#}");
    }
}

#[test]
fn children_and_the_inbox_are_measured() {
    let folder = folder();
    let size = ["bench", "--json", "--workflows", "20", "--concurrency", "4"];
    let only = ["--only", "children,flow,claims", "--dir", text(folder.path())];
    let measured = fermata(&[&size[..], &only].concat());
    assert_eq!(measured.code, Some(0), "{measured:?}");
    let report = measured.json();
    assert_eq!(
        (&report["children"]["pairs"], &report["claims"]["tasks"]),
        (&10.into(), &20.into())
    );
    assert_eq!(report["claims"]["workers"], 8);
    for pointer in [
        "/children/pairsPerSecond",
        "/children/plainRunsPerSecond",
        "/children/ratio",
        "/flow/keyedRunsPerSecond",
        "/flow/ratio",
        "/claims/claimsPerSecond",
        "/claims/completionsPerSecond",
    ] {
        let number = report.pointer(pointer).and_then(|value| value.as_f64());
        assert!(number.is_some_and(|number| number > 0.0), "{pointer}: {report:#}");
    }
}

#[test]
fn triggers_are_measured() {
    let folder = folder();
    let size = ["bench", "--json", "--workflows", "20", "--concurrency", "4"];
    let measured = fermata(&[&size[..], &["--only", "triggers", "--dir", text(folder.path())]].concat());
    assert_eq!(measured.code, Some(0), "{measured:?}");
    check_triggers(&measured.json()["triggers"], 20);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Five schedules for each workflow, of which a tenth fires.
fn check_triggers(triggers: &Value, workflows: u64) {
    let (webhooks, schedules) = (&triggers["webhooks"], &triggers["schedules"]);
    assert_eq!(webhooks["webhooks"], workflows, "{triggers:#}");
    assert_eq!(
        (&schedules["schedules"], &schedules["due"], &schedules["succeeded"]),
        (
            &(workflows * 5).into(),
            &(workflows / 2).into(),
            &(workflows / 2).into()
        ),
        "{triggers:#}"
    );
    for pointer in [
        "/webhooks/webhooksPerSecond",
        "/webhooks/plainStartsPerSecond",
        "/webhooks/ratio",
        "/webhooks/p99Ms",
        "/schedules/createdPerSecond",
        "/schedules/firing/p50Ms",
        "/schedules/firing/p99Ms",
        "/schedules/firing/maxMs",
        "/schedules/start/p50Ms",
        "/schedules/start/p99Ms",
        "/schedules/start/maxMs",
    ] {
        let number = triggers.pointer(pointer).and_then(|value| value.as_f64());
        assert!(number.is_some_and(|number| number > 0.0), "{pointer}: {triggers:#}");
    }
}

#[test]
fn cost_of_telemetry_is_measured() {
    let folder = folder();
    let size = ["bench", "--json", "--workflows", "20", "--concurrency", "4"];
    let measured = fermata(&[&size[..], &["--only", "telemetry", "--dir", text(folder.path())]].concat());
    assert_eq!(measured.code, Some(0), "{measured:?}");
    let telemetry = &measured.json()["telemetry"];
    for name in [
        "perSecondOff",
        "perSecondWithMetrics",
        "perSecondWithTraces",
        "ratioMetrics",
        "ratioTraces",
    ] {
        let number = telemetry[name].as_f64();
        assert!(number.is_some_and(|number| number > 0.0), "{name}: {telemetry}");
    }
}

#[test]
fn runs_over_http_are_measured() {
    let folder = folder();
    let size = ["bench", "--json", "--workflows", "20", "--concurrency", "4"];
    let measured = fermata(&[&size[..], &["--only", "http", "--dir", text(folder.path())]].concat());
    assert_eq!(measured.code, Some(0), "{measured:?}");
    let http = &measured.json()["http"];
    assert_eq!(
        (&http["workflows"], &http["concurrency"]),
        (&20.into(), &4.into()),
        "{http:#}"
    );
}

#[test]
fn http_steps_are_compared_with_plain_requests() {
    let folder = folder();
    let size = ["bench", "--json", "--workflows", "20", "--concurrency", "4"];
    let measured = fermata(&[&size[..], &["--only", "steps", "--dir", text(folder.path())]].concat());
    assert_eq!(measured.code, Some(0), "{measured:?}");
    let steps = &measured.json()["httpSteps"];
    assert_eq!((&steps["workflows"], &steps["concurrency"]), (&10.into(), &4.into()));
    let number = |name: &str| steps[name].as_f64().unwrap_or_else(|| panic!("{name}: {steps}"));
    let ratio = number("stepsPerSecond") / number("rawRequestsPerSecond");
    assert!((number("ratio") - ratio).abs() <= 0.01, "{steps}");
    assert!(number("p99Ms") >= number("p50Ms") && number("p50Ms") > 0.0, "{steps}");
    assert!(
        steps["compared"]
            .as_str()
            .is_some_and(|text| text.contains("the same requests"))
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn sleeping_runs_are_parked_and_woken() {
    let folder = folder();
    let sleepers = ["--only", "sleepers", "--sleepers", "20", "--spread", "3s"];
    let measured = fermata(&[&["bench", "--json", "--dir", text(folder.path())], &sleepers[..]].concat());
    assert_eq!(measured.code, Some(0), "{measured:?}");
    let report = &measured.json()["sleepers"];
    assert_eq!(
        (&report["sleepers"], &report["spreadSeconds"]),
        (&20.into(), &3.0.into())
    );
    let number = |name: &str| report[name].as_f64().unwrap_or_else(|| panic!("{name}: {report}"));
    assert!(number("p50Ms") > 0.0 && number("p50Ms") <= number("p99Ms"), "{report}");
    assert!(number("p99Ms") <= number("maxMs"), "{report}");
    assert!(report["rssGrowthMb"].is_number() && report["parkedAfterSeconds"].is_number());
}

#[test]
fn unknown_section_is_refused() {
    let refused = fermata(&["bench", "--only", "main,lunch"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("sleepers"), "{}", refused.stderr);
}

const SMALL: [&str; 10] = [
    "bench",
    "--json",
    "--workflows",
    "30",
    "--concurrency",
    "6",
    "--parked",
    "20",
    "--active",
    "4",
];

#[tokio::test]
async fn postgres_runners_are_compared_with_the_raw_limit() {
    let database = Database::new().await;
    let measured = fermata(&[&SMALL[..], &["--database", &database.url]].concat());
    assert_eq!(measured.code, Some(0), "{measured:?}");
    let report = &measured.json()["postgres"];
    let number = |pointer: &str| {
        let number = report.pointer(pointer).and_then(|value| value.as_f64());
        number.unwrap_or_else(|| panic!("{pointer}: {report:#}"))
    };
    let raw = number("/rawWorkflowsPerSecond");
    for runners in ["oneRunner", "threeRunners", "threeRunnersWithThriceTheLoad"] {
        let at = |name: &str| number(&format!("/{runners}/{name}"));
        assert!(
            (at("ratio") - at("workflowsPerSecond") / raw).abs() <= 0.01,
            "{report:#}"
        );
        assert!(at("p50Ms") > 0.0 && at("p50Ms") <= at("p99Ms"), "{report:#}");
    }
    for start in ["sameProcess", "otherProcess"] {
        assert!(number(&format!("/starts/{start}/p99Ms")) > 0.0, "{report:#}");
    }
    check_triggers(&report["triggers"], 30);
    assert_eq!((number("/memory/parked"), number("/memory/active")), (20.0, 4.0));
    assert!(
        number("/memory/idleMb") > 0.0 && number("/memory/activeMb") > 0.0,
        "{report:#}"
    );

    // The sleeping runs are left. All other runs are complete, including those of the raw limit.
    let store = database.store().await;
    let filter = |statuses: &[Status]| RunFilter {
        statuses: statuses.to_vec(),
        limit: 1000,
        ..RunFilter::default()
    };
    let live = store
        .runs(filter(&[Status::Pending, Status::Running]))
        .await
        .unwrap()
        .items;
    assert_eq!(live.len(), 20, "{live:#?}");
    let ended = store.runs(filter(&[])).await.unwrap().items;
    for run in ended.iter().filter(|run| run.workflow_id == "bench-three") {
        let all = Window { limit: 10, offset: 0 };
        assert_eq!(run.status, Status::Succeeded, "{run:?}");
        let rows = (
            store.actions(run.id, all).await.unwrap().1,
            store.events(run.id, all).await.unwrap().1,
        );
        assert_eq!(rows, (3, 4), "{run:?}");
    }
    store.close().await.unwrap();
    let again = fermata(&[&SMALL[..], &["--database", &database.url]].concat());
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("not over"), "{}", again.stderr);
}

#[tokio::test]
async fn postgres_database_with_other_workflows_is_refused() {
    let home = Database::new().await;
    let server = Server::start(&["--database", &home.url]);
    server
        .publish(&json!({ "id": "order", "displayName": "Order", "startNode": "a",
        "nodes": [{ "id": "a", "actionType": "core.echo" }] }))
        .await;
    let refused = fermata(&[&SMALL[..], &["--database", &home.url]].concat());
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("`order`"), "{}", refused.stderr);
    let (_, listed) = server.send("GET", "/api/v1/executions", "").await;
    assert_eq!(listed["items"], json!([]));
}

#[test]
fn postgres_temporary_server_is_removed_afterwards() {
    let folder = folder();
    // The server may run as another user.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let measured = fermata(
        &[
            &SMALL[..],
            &["--postgres", "--only", "starts,flow", "--dir", text(folder.path())],
        ]
        .concat(),
    );
    assert_eq!(measured.code, Some(0), "{measured:?}");
    let report = measured.json();
    assert!(
        report["postgres"]["starts"]["otherProcess"]["p50Ms"].is_number(),
        "{report:#}"
    );
    assert!(report["postgres"]["flow"]["ratio"].is_number(), "{report:#}");
    assert!(report["postgres"].get("memory").is_none(), "{report:#}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn invalid_arguments_are_refused() {
    for (arguments, message) in [
        (&["--only", "runners"][..], "--postgres"),
        (&["--postgres", "--only", "main"], "main"),
        (&["--database", "sqlite:bench.db"], "PostgreSQL"),
        (&["--database", "postgres://me:secret@host:port/x"], "`port`"),
    ] {
        let refused = fermata(&[&["bench"], arguments].concat());
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(message), "{}", refused.stderr);
        assert!(!refused.stderr.contains("secret"), "{}", refused.stderr);
    }
}
