//! `apply` accepts exactly the transitions in the tables of `conductor.rs`; a refused event changes nothing.

use super::*;

const NODE: &str = "n";

fn finished(attempt: u32) -> Event {
    Event::Finished {
        node: NODE.into(),
        attempt,
        outcome: Outcome::Succeeded(Output::EMPTY),
        chosen: None,
        skipped: None,
        queued_ms: None,
    }
}

fn retried(attempt: u32) -> Event {
    Event::Retried {
        node: NODE.into(),
        attempt,
        failure: Failure::retriable("FLAKY", "flaky"),
        retry_at: Timestamp(9),
        queued_ms: None,
    }
}

fn opened() -> Event {
    Event::Opened {
        node: NODE.into(),
        at: Timestamp(1),
        until: None,
        verdict: None,
    }
}

fn answered() -> Event {
    Event::Answered {
        node: NODE.into(),
        output: Output::EMPTY,
    }
}

fn skipped() -> Event {
    Event::Skipped {
        node: NODE.into(),
        reason: SkipReason::DeadPath,
        verdict: None,
    }
}

fn routed() -> Event {
    Event::Routed {
        node: NODE.into(),
        taken: vec![0],
        verdicts: vec![],
    }
}

fn slept() -> Event {
    Event::Slept {
        node: NODE.into(),
        until: Timestamp(5),
        times_out: false,
    }
}

fn began() -> Event {
    Event::Began {
        node: NODE.into(),
        attempt: 2,
        at: Timestamp(6),
    }
}

fn requested(attempt: u32) -> Event {
    Event::Requested {
        node: NODE.into(),
        attempt,
        until: Some(Timestamp(8)),
        items: None,
        queued_ms: None,
    }
}

fn resending() -> Event {
    Event::Resending {
        node: NODE.into(),
        attempt: 1,
        at: Timestamp(6),
    }
}

fn resent() -> Event {
    Event::Resent {
        node: NODE.into(),
        attempt: 1,
        failure: None,
    }
}

fn paused() -> Event {
    Event::Paused { at: Timestamp(2) }
}

fn resumed() -> Event {
    Event::Resumed { at: Timestamp(3) }
}

fn started() -> Event {
    Event::Started {
        at: Timestamp(0),
        deadline: None,
        vars: serde_json::json!({}),
    }
}

fn stopping(status: Status) -> Event {
    Event::Stopping {
        status,
        reason: "r".to_owned(),
        node: None,
        failure: None,
    }
}

fn ended(status: Status) -> Event {
    Event::Ended {
        at: Timestamp(7),
        status,
        reason: None,
        missing_outputs: Vec::new(),
    }
}

/// A run of `n` and a following node, after these events.
fn run_after(events: &[Event]) -> Run {
    let plan = plan().action(NODE, "t").then("m").action("m", "t");
    let mut run = Run::new(Arc::new(plan.build().unwrap()));
    for event in events {
        apply(&mut run, event).unwrap();
    }
    run
}

fn accepts(run: &Run, event: &Event) -> bool {
    let mut after = run.clone();
    match apply(&mut after, event) {
        Ok(()) => {
            assert_ne!(after, *run, "accepted {} without a change", event.name());
            true
        }
        Err(illegal) => {
            assert_eq!(after, *run, "refused {} and changed the run", event.name());
            assert_eq!(illegal.event, event.name());
            assert!(!illegal.what.is_empty());
            false
        }
    }
}

#[test]
fn node_transitions_match_the_table() {
    let events = [
        opened(),
        skipped(),
        answered(),
        slept(),
        retried(1),
        retried(2),
        finished(1),
        finished(2),
        routed(),
        began(),
        requested(1),
        requested(2),
        resending(),
        resent(),
    ];
    let states: [(&str, Vec<Event>, [u8; 14]); 15] = [
        //                                         op sk an sl r1 r2 f1 f2 ro be q1 q2 rs rt
        ("idle", vec![], [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (
            "idle, answered",
            vec![answered()],
            [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        ("open 1", vec![opened()], [0, 1, 0, 1, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0]),
        (
            "open 2",
            vec![opened(), retried(1)],
            [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0],
        ),
        (
            "open 2, begun",
            vec![opened(), retried(1), began()],
            [0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0],
        ),
        (
            "sleeping",
            vec![opened(), slept()],
            [0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            "requested 1",
            vec![opened(), requested(1)],
            [0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1, 0],
        ),
        (
            "requested 1, to be sent again",
            vec![opened(), requested(1), resending()],
            [0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1],
        ),
        (
            "requested 1, sent again",
            vec![opened(), requested(1), resending(), resent()],
            [0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1, 0],
        ),
        (
            "requested 1, retried",
            vec![opened(), requested(1), retried(1)],
            [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0],
        ),
        (
            "requested 2",
            vec![opened(), retried(1), requested(2)],
            [0, 1, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0],
        ),
        ("skipped", vec![skipped()], [0; 14]),
        ("skipped open", vec![opened(), skipped()], [0; 14]),
        (
            "finished",
            vec![opened(), finished(1)],
            [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0],
        ),
        ("routed", vec![opened(), finished(1), routed()], [0; 14]),
    ];
    for (name, path, fits) in states {
        let path: Vec<Event> = std::iter::once(started()).chain(path).collect();
        let run = run_after(&path);
        for (event, fits) in events.iter().zip(fits) {
            assert_eq!(accepts(&run, event), fits == 1, "{name}, {event:?}");
        }
    }
}

#[test]
fn run_transitions_match_the_table() {
    use Status::*;
    let on_node = [
        opened(),
        skipped(),
        answered(),
        slept(),
        requested(1),
        retried(1),
        finished(1),
        routed(),
    ];
    let over = |status| vec![started(), skipped(), ended(status)];
    // Which of started, stopping, ended, events on nodes, paused and resumed fit.
    let states = [
        ("pending", vec![], [1, 0, 1, 0, 1, 0]),
        ("pending, paused", vec![paused()], [0, 0, 1, 0, 0, 1]),
        ("pending, resumed", vec![paused(), resumed()], [1, 0, 1, 0, 1, 0]),
        ("running, nothing open", vec![started()], [0, 1, 1, 1, 1, 0]),
        ("running, paused", vec![started(), paused()], [0, 1, 1, 1, 0, 1]),
        ("running, a node open", vec![started(), opened()], [0, 1, 0, 1, 1, 0]),
        ("stopping", vec![started(), stopping(Failed)], [0, 0, 1, 1, 0, 0]),
        (
            "stopping after a pause",
            vec![started(), paused(), stopping(Failed)],
            [0, 0, 1, 1, 0, 0],
        ),
        (
            "stopping, a node open",
            vec![started(), opened(), stopping(Failed)],
            [0, 0, 0, 1, 0, 0],
        ),
        ("succeeded", over(Succeeded), [0; 6]),
        ("failed", over(Failed), [0; 6]),
        ("cancelled", over(Cancelled), [0; 6]),
        ("cancelled before its start", vec![ended(Cancelled)], [0; 6]),
        ("cancelled while paused", vec![paused(), ended(Cancelled)], [0; 6]),
    ];
    for (name, path, fits) in states {
        let [start, stop, end, node, pause, resume] = fits.map(|fits| fits == 1);
        let run = run_after(&path);
        assert_eq!(accepts(&run, &paused()), pause, "{name}, paused");
        assert_eq!(accepts(&run, &resumed()), resume, "{name}, resumed");
        assert_eq!(accepts(&run, &started()), start, "{name}, started");
        for status in Status::ALL {
            let fits = status.is_terminal();
            assert_eq!(
                accepts(&run, &stopping(status)),
                stop && fits,
                "{name}, stopping {status}"
            );
            assert_eq!(accepts(&run, &ended(status)), end && fits, "{name}, ended {status}");
        }
        let any = on_node.iter().any(|event| accepts(&run, event));
        assert_eq!(any, node, "{name}, an event of its node");
    }
}

#[test]
fn paused_run_opens_and_routes_nothing() {
    let paths = [
        (vec![started()], opened()),
        (vec![started(), opened(), retried(1)], began()),
        (vec![started(), opened(), finished(1)], routed()),
    ];
    for (path, event) in paths {
        assert!(accepts(&run_after(&path), &event), "{event:?}");
        let path = [path, vec![paused()]].concat();
        assert!(!accepts(&run_after(&path), &event), "{event:?}");
        let path = [path, vec![resumed()]].concat();
        assert!(accepts(&run_after(&path), &event), "{event:?}");
    }
    let open = run_after(&[started(), opened(), paused()]);
    for event in [finished(1), retried(1), requested(1), slept()] {
        assert!(accepts(&open, &event), "{event:?}: results are recorded");
    }
}

#[test]
fn stopping_node_may_end_with_its_last_failure() {
    let failed = |code: &str| Event::Finished {
        node: NODE.into(),
        attempt: 1,
        outcome: Outcome::Failed(Failure::retriable(code, "flaky")),
        chosen: None,
        skipped: None,
        queued_ms: None,
    };
    let waits = [started(), opened(), retried(1)];
    assert!(!accepts(&run_after(&waits), &failed("FLAKY")));
    let stops = [&waits[..], &[stopping(Status::Cancelled)]].concat();
    assert!(accepts(&run_after(&stops), &failed("FLAKY")));
    assert!(!accepts(&run_after(&stops), &failed("OTHER")));
    assert!(!accepts(&run_after(&stops), &finished(1)));
}

#[test]
fn event_of_an_unknown_node_is_refused() {
    let run = run_after(&[started()]);
    let opened = Event::Opened {
        node: "unknown".into(),
        at: Timestamp(1),
        until: None,
        verdict: None,
    };
    assert!(!accepts(&run, &opened));
    let text = apply(&mut run.clone(), &opened).unwrap_err().to_string();
    assert_eq!(text, "event `opened` does not fit the plan: it has no node `unknown`");
}
