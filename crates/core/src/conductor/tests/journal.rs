//! The text of the journal: every event can be written and read, and unreadable rows are errors.

use super::*;
use serde_json::json;

fn verdict() -> Verdict {
    Verdict {
        edge: 3,
        value: true,
        error: Some("late".to_owned()),
        saw: [("trigger.total".to_owned(), json!(250))].into_iter().collect(),
    }
}

fn failure() -> Failure {
    Failure {
        code: "HTTP_503".to_owned(),
        message: "„später“ \u{0} \n".to_owned(),
        retriable: true,
        retry_after_ms: Some(u64::MAX),
    }
}

/// Events of every type, with every optional field present and absent.
fn every_event() -> Vec<Event> {
    let node = || NodeId::from("a.b-c");
    let at = Timestamp(i64::MAX);
    let shapes = [
        Shape::Null,
        Shape::Boolean,
        Shape::Number,
        Shape::String,
        Shape::Array,
        Shape::Object,
    ];
    let mut events = Vec::new();
    for vars in [
        json!({}),
        json!(null),
        json!({"region": "eu", "n": [1, -2, u64::MAX, 116.60802475319143]}),
        json!([]),
    ] {
        events.push(Event::Started {
            at,
            deadline: None,
            vars,
        });
    }
    events.push(Event::Started {
        at: Timestamp(-1),
        deadline: Some(at),
        vars: json!({}),
    });
    for (until, verdict) in [(None, None), (Some(at), Some(verdict()))] {
        let node = node();
        events.push(Event::Opened {
            node,
            at,
            until,
            verdict,
        });
    }
    for (reason, verdict) in [
        (SkipReason::DeadPath, None),
        (SkipReason::Guard, Some(verdict())),
        (SkipReason::Stopped, None),
    ] {
        let node = node();
        events.push(Event::Skipped { node, reason, verdict });
    }
    for times_out in [false, true] {
        events.push(Event::Slept {
            node: node(),
            until: at,
            times_out,
        });
    }
    events.push(Event::Began {
        node: node(),
        attempt: 2,
        at,
    });
    for shape in shapes {
        let output = Output { bytes: u64::MAX, shape };
        events.push(Event::Answered { node: node(), output });
        events.push(Event::Finished {
            node: node(),
            attempt: 1,
            outcome: Outcome::Succeeded(output),
            chosen: None,
            skipped: None,
            queued_ms: None,
        });
    }
    events.push(Event::Finished {
        node: node(),
        attempt: u32::MAX,
        outcome: Outcome::Failed(Failure::permanent("X", "x")),
        chosen: Some("approve".to_owned()),
        skipped: None,
        queued_ms: None,
    });
    for by in [None, Some("ada".to_owned())] {
        let reason = "not needed".to_owned();
        events.push(Event::Finished {
            node: node(),
            attempt: 2,
            outcome: Outcome::Succeeded(Output::EMPTY),
            chosen: None,
            skipped: Some(SkippedBy { by, reason }),
            queued_ms: None,
        });
    }
    for failure in [None, Some(failure())] {
        let (node, attempt) = (node(), 1);
        events.push(Event::Resending {
            node: node.clone(),
            attempt,
            at,
        });
        events.push(Event::Resent { node, attempt, failure });
    }
    events.extend([Event::Paused { at }, Event::Resumed { at }]);
    events.push(Event::Requested {
        node: node(),
        attempt: 2,
        until: Some(Timestamp(5)),
        items: Some(7),
        queued_ms: None,
    });
    for refused in [
        vec![],
        vec![RefusedItems {
            items: [3].into_iter().collect(),
            failure: failure(),
        }],
    ] {
        events.push(Event::ItemsEnded {
            node: node(),
            attempt: 1,
            succeeded: [0, 1, 5].into_iter().collect(),
            failed: [3].into_iter().collect(),
            refused,
        });
    }
    events.push(Event::Retried {
        node: node(),
        attempt: 1,
        failure: failure(),
        retry_at: at,
        queued_ms: None,
    });
    for verdicts in [vec![], vec![Verdict::plain(0, false), verdict()]] {
        let taken = vec![0, 7];
        let node = node();
        events.push(Event::Routed { node, taken, verdicts });
    }
    for (node, failure) in [(None, None), (Some(node()), Some(failure()))] {
        events.push(Event::Stopping {
            status: Status::Failed,
            reason: "timeout".to_owned(),
            node,
            failure,
        });
    }
    for reason in [None, Some("cancelled".to_owned())] {
        let status = Status::Cancelled;
        events.push(Event::Ended {
            at,
            status,
            reason,
            missing_outputs: vec!["total".to_owned()],
        });
    }
    events
}

#[test]
fn every_event_survives_the_journal() {
    for event in every_event() {
        let text = encode(std::slice::from_ref(&event));
        assert_eq!(decode(&text).expect(&text), [event], "{text}");
    }
    let all = every_event();
    assert_eq!(decode(&encode(&all)).unwrap(), all);
}

#[test]
fn event_is_tagged_with_its_name_and_node() {
    for event in every_event() {
        let value = serde_json::to_value(&event).unwrap();
        assert_eq!(value["type"], event.name());
        assert_eq!(
            value.get("node").and_then(|node| node.as_str()),
            event.node().map(NodeId::as_str)
        );
    }
}

#[test]
fn journal_text_is_stable() {
    let events = [
        Event::Started {
            at: Timestamp(5),
            deadline: None,
            vars: json!({}),
        },
        Event::Finished {
            node: "a".into(),
            attempt: 1,
            outcome: Outcome::Succeeded(Output::EMPTY),
            chosen: None,
            skipped: None,
            queued_ms: None,
        },
        Event::Routed {
            node: "a".into(),
            taken: vec![0],
            verdicts: vec![],
        },
        Event::Ended {
            at: Timestamp(9),
            status: Status::Succeeded,
            reason: None,
            missing_outputs: Vec::new(),
        },
    ];
    let text = r#"{"v":1,"events":[{"type":"started","at":5},{"type":"finished","node":"a","attempt":1,"outcome":{"succeeded":{"bytes":2,"shape":"object"}}},{"type":"routed","node":"a","taken":[0]},{"type":"ended","at":9,"status":"Succeeded"}]}"#;
    assert_eq!(encode(&events), text);
}

#[test]
fn newer_rows_are_distinguished_from_damaged_ones() {
    for text in [
        r#"{"v":2,"events":[]}"#,
        r#"{"v":2,"events":[{"type":"teleported"}]}"#,
        r#"{"v":4294967295,"sealed":"…"}"#,
    ] {
        assert!(matches!(decode(text), Err(JournalError::TooNew(v)) if v > 1), "{text}");
    }
    for text in [
        "",
        "null",
        "[]",
        "{}",
        r#"{"v":1}"#,
        r#"{"events":[]}"#,
        r#"{"v":-1,"events":[]}"#,
        r#"{"v":"1","events":[]}"#,
        r#"{"v":1,"events":[{"type":"teleported"}]}"#,
        r#"{"v":1,"events":[{"type":"slept","node":"a"}]}"#,
        r#"{"v":1,"events":[{"type":"started","at":5}]"#,
        r#"{"v":1,"events":[{"type":"routed","node":"a","taken":[-1]}]}"#,
    ] {
        assert!(matches!(decode(text), Err(JournalError::Malformed(_))), "{text}");
    }
}

#[test]
fn unknown_fields_are_ignored() {
    let text = r#"{"v":1,"extra":"x","events":[{"type":"slept","node":"a","until":3,"new":[]}]}"#;
    let slept = Event::Slept {
        node: "a".into(),
        until: Timestamp(3),
        times_out: false,
    };
    assert_eq!(decode(text).unwrap(), [slept]);
}

#[test]
fn variables_survive_a_crash() {
    for vars in [json!({}), json!(null), json!({"region": "eu"})] {
        let mut live = Live::pending(plan().action("a", "t"));
        live.feed(Fact::Start {
            vars: vars.clone(),
            timeout_ms: None,
            reused: None,
        });
        assert_eq!(**live.run.vars(), vars);
        assert_eq!(**live.replayed().vars(), vars);
    }
}
