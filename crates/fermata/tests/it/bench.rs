//! `fermata bench` from outside: that it measures, not what.

use crate::support::{fermata, folder, text};

#[test]
fn it_measures_everything_that_was_asked_for() {
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
    assert_eq!(left, 0, "the scratch database is gone");
}
