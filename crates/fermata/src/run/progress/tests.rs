//! The lines of a run, without a terminal.

use super::*;
use fermata_core::{SkipReason, Verdict};
use fermata_dialects::{AnyAction, Document, DocumentLimits, Settings, Stage, compile};
use fermata_runtime::Mask;
use std::sync::Arc;

fn steps(source: &[u8]) -> Steps {
    let document = Document::parse(source, "w.json", &DocumentLimits::default()).unwrap();
    let compiled = compile(&document, &Settings::default(), &AnyAction, Stage::Save);
    let compiled = compiled.unwrap_or_else(|problems| panic!("{}", problems.render(false)));
    Steps::of(Arc::new(compiled.plan), Mask::default())
}

fn screen() -> Progress {
    let source = br#"{ "id": "w", "displayName": "W", "startNode": "fetch", "nodes": [
        { "id": "fetch", "actionType": "http.request", "policies": { "retry": { "maxAttempts": 3 } },
          "edges": [{ "targetNode": "b" }] },
        { "id": "b", "actionType": "core.echo" } ] }"#;
    Progress::with(steps(source), false, false)
}

fn times(_: &NodeId, _: u32) -> Option<Timing> {
    Some(Timing {
        took: Some(Duration::from_millis(1300)),
        ended_at: Some(Timestamp(2_300_000)),
    })
}

#[test]
fn ended_step_is_one_plain_line() {
    let progress = screen();
    let mut screen = progress.screen();
    let failure = Failure::retriable("HTTP_500", "the service said\n\x1b[2Jno");
    let retried = Event::Retried {
        node: NodeId::from("fetch"),
        attempt: 2,
        failure: failure.clone(),
        retry_at: Timestamp(2_800_000),
        queued_ms: None,
    };
    let line = screen.see(&retried, &times).unwrap();
    assert_eq!(
        line,
        "↻ retrying   fetch  http.request       1.3 s  attempt 2/3  HTTP_500: the service said  [2Jno"
    );
    assert_eq!(screen.active[0].note, "for attempt 3 in 500 ms");
    let finished = Event::Finished {
        node: NodeId::from("fetch"),
        attempt: 3,
        outcome: Outcome::Failed(failure),
        chosen: None,
        skipped: None,
        queued_ms: None,
    };
    let line = screen.see(&finished, &times).unwrap();
    assert!(
        line.starts_with("✗ failed     fetch  http.request       1.3 s  attempt 3/3"),
        "{line}"
    );
    assert!(screen.active.is_empty());
    let skipped = Event::Skipped {
        node: NodeId::from("b"),
        reason: SkipReason::DeadPath,
        verdict: None,
    };
    let line = screen.see(&skipped, &times).unwrap();
    assert_eq!(
        line,
        "↷ skipped    b      core.echo                 no edge to it was taken: `fetch` failed"
    );
}

#[test]
fn failed_condition_is_a_line_with_its_error() {
    let source = br#"{ "id": "w", "displayName": "W", "startNode": "a", "nodes": [
        { "id": "a", "actionType": "core.echo", "edges": [{ "targetNode": "b", "condition": "trigger.x.y" }] },
        { "id": "b", "actionType": "core.echo" } ] }"#;
    let progress = Progress::with(steps(source), false, false);
    let routed = Event::Routed {
        node: "a".into(),
        taken: Vec::new(),
        verdicts: vec![Verdict {
            error: Some("trigger.x is undefined".to_owned()),
            ..Verdict::plain(0, false)
        }],
    };
    let line = progress.screen().see(&routed, &times).unwrap();
    assert!(line.starts_with("! condition  a  core.echo"), "{line}");
    assert!(
        line.ends_with(
            "the condition `trigger.x.y` for `b` could not be evaluated and counts as false: trigger.x is undefined"
        ),
        "{line}"
    );
}

#[test]
fn failed_condition_of_a_decision_fails_the_run() {
    let source = br#"{ "workflow_id": "w", "name": "W", "version": "1.0.0",
        "nodes": [{ "id": "a", "type": "decision", "executor": { "type": "callback" } },
                  { "id": "b", "type": "task", "executor": { "type": "callback" } }],
        "edges": [{ "from": "a", "to": "b",
                    "condition": { "type": "expression", "language": "cel", "expression": "n > 1" } }] }"#;
    let progress = Progress::with(steps(source), false, false);
    let routed = Event::Routed {
        node: "a".into(),
        taken: Vec::new(),
        verdicts: vec![Verdict {
            error: Some("no such key".to_owned()),
            ..Verdict::plain(0, false)
        }],
    };
    let line = progress.screen().see(&routed, &times).unwrap();
    assert!(
        line.ends_with("could not be evaluated and fails the run: no such key"),
        "{line}"
    );
}

fn opened(node: &str) -> Event {
    Event::Opened {
        node: node.into(),
        at: Timestamp(0),
        until: None,
        verdict: None,
    }
}

#[test]
fn requests_show_what_they_wait_for() {
    let source = br#"{ "id": "w", "displayName": "W", "startNode": "ask", "nodes": [
        { "id": "ask", "actionType": "core.approval", "parameters": { "title": "?" }, "edges": [{ "targetNode": "call" }] },
        { "id": "call", "nodeType": "subworkflow", "workflowId": "other" } ] }"#;
    let progress = Progress::with(steps(source), false, false);
    let mut screen = progress.screen();
    for (node, what) in [("ask", "for an answer"), ("call", "for its child run")] {
        let requested = Event::Requested {
            node: node.into(),
            attempt: 1,
            until: None,
            items: None,
            queued_ms: None,
        };
        let line = screen.see(&requested, &times).unwrap();
        assert!(line.ends_with(what), "{line}");
    }
}

const TASKS: &[u8] = br#"{ "name": "t", "tasks": {
    "nap": { "sleep": "90s" },
    "called": { "wait_for_webhook": {} },
    "after": { "needs": ["called"], "url": "http://x.test/" } } }"#;

#[test]
fn sleeps_and_waits_are_shown_when_they_begin() {
    let progress = Progress::with(steps(TASKS), false, false);
    let mut screen = progress.screen();
    let slept = Event::Slept {
        node: "nap".into(),
        until: SystemClock.now().plus_millis(90_040),
        times_out: false,
    };
    let line = screen.see(&slept, &times).unwrap();
    assert_eq!(line, "⏸ sleeping   nap     core.delay                for 1 min 30 s");
    assert_eq!(screen.see(&opened("after"), &times), None);
    let line = screen.see(&opened("called"), &times).unwrap();
    assert_eq!(line, "⏸ waiting    called  core.wait                 for a callback");
    assert_eq!((screen.active[1].word, screen.active.len()), ("waiting", 2));
    let skipped = Event::Skipped {
        node: "after".into(),
        reason: SkipReason::DeadPath,
        verdict: None,
    };
    let line = screen.see(&skipped, &times).unwrap();
    assert!(
        line.ends_with("it needs steps that did not succeed: `called` (pending)"),
        "{line}"
    );
}

#[test]
fn wait_is_shown_once_with_its_address() {
    for quiet in [false, true] {
        let progress = Progress::of_own(steps(TASKS), quiet);
        let see = |event: &Event| {
            let mut lines = String::new();
            progress.screen().note(event, &times, &mut lines);
            lines
        };
        assert_eq!(see(&opened("called")), "", "its address is not known");
        progress.answer_at(HashMap::from([("called".into(), "http://here/wh/x".to_owned())]));
        let line = see(&opened("called"));
        assert!(line.ends_with("POST to http://here/wh/x\n"), "{line}");
        assert_eq!(see(&opened("called")), "");
        let finished = Event::Finished {
            node: "called".into(),
            attempt: 1,
            outcome: Outcome::Succeeded(fermata_core::Output::EMPTY),
            chosen: None,
            skipped: None,
            queued_ms: None,
        };
        assert_eq!(see(&finished).is_empty(), quiet);
    }
}
