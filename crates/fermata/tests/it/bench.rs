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

#[test]
fn http_steps_stand_next_to_the_client_alone() {
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
fn sleepers_are_parked_and_wake() {
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
fn a_section_that_is_not_there_is_refused() {
    let refused = fermata(&["bench", "--only", "main,lunch"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("sleepers"), "{}", refused.stderr);
}
