//! Nodes with one child for each item of a list.

use super::*;
use serde_json::json;

fn each(on_item_failure: OnItemFailure, max_concurrency: u32) -> Kind {
    Kind::Request {
        action: "core.subworkflow".to_owned(),
        parameters: json!({}),
        answer: AnswerRule::Children(Each {
            items: "{{ trigger.items }}".to_owned(),
            max_concurrency,
            max_items: 100,
            on_item_failure,
        }),
        timeout_ms: Some(5000),
        retry_on_timeout: false,
        timeout_code: "LATE".to_owned(),
    }
}

fn listed(items: Result<u32, Failure>) -> Fact {
    Fact::Listed {
        node: "each".into(),
        attempt: 1,
        items,
        jitter: u32::MAX,
    }
}

fn ended(succeeded: &[u32], failed: &[u32]) -> Fact {
    ended_in(1, succeeded, failed)
}

fn ended_in(attempt: u32, succeeded: &[u32], failed: &[u32]) -> Fact {
    Fact::ItemsEnded {
        node: "each".into(),
        attempt,
        succeeded: succeeded.iter().copied().collect(),
        failed: failed.iter().copied().collect(),
        refused: Vec::new(),
        failure: (!failed.is_empty()).then(|| Failure::retriable("BROKEN", "item 1: broken")),
        jitter: u32::MAX,
    }
}

fn starts(attempt: u32, items: &[u32]) -> Effect {
    Effect::StartItems {
        node: "each".into(),
        attempt,
        items: items.to_vec(),
    }
}

fn collect() -> Effect {
    Effect::Collect {
        node: "each".into(),
        attempt: 1,
    }
}

fn collected() -> Fact {
    Fact::Answered {
        node: "each".into(),
        attempt: 1,
        result: Ok(Output::EMPTY),
        chosen: None,
        jitter: 0,
    }
}

#[test]
fn the_first_items_that_have_not_ended_run() {
    let mut live = Live::start(plan().node("each", each(OnItemFailure::Fail, 3)));
    assert_eq!(outstanding(&live.run), [execute("each", 1, 0)]);
    assert_eq!(live.feed(ok("each")), Vec::<String>::new(), "a list is not an output");
    assert_eq!(live.feed(listed(Ok(6))), ["requested each with 1 until 5000, 6 items"]);
    assert_eq!(live.feed(listed(Ok(6))), Vec::<String>::new(), "it was listed before");
    assert_eq!(outstanding(&live.run), [starts(1, &[0, 1, 2]), wake(5000)]);
    assert_eq!(
        live.feed(ended(&[1], &[])),
        ["items of each: ok [(1, 1)], failed [], refused 0"]
    );
    assert_eq!(outstanding(&live.run), [starts(1, &[0, 2, 3]), wake(5000)]);
    assert_eq!(live.feed(ended(&[1], &[])), Vec::<String>::new(), "it ended before");
    assert_eq!(
        live.feed(ended(&[6, 99], &[])),
        Vec::<String>::new(),
        "there is no such item"
    );
    assert_eq!(
        live.feed(ended(&[0, 1, 2, 3], &[])),
        ["items of each: ok [(0, 0), (2, 3)], failed [], refused 0"]
    );
    assert_eq!(outstanding(&live.run), [starts(1, &[4, 5]), wake(5000)]);
    live.feed(ended(&[4, 5], &[]));
    assert_eq!(outstanding(&live.run), [collect(), wake(5000)]);
    assert_eq!(live.feed(collected())[0], "each succeeded with 1");
    assert_eq!(live.end(), "Succeeded -");
}

#[test]
fn empty_list_is_collected_at_once() {
    let mut live = Live::start(plan().node("each", each(OnItemFailure::Fail, 3)));
    live.feed(listed(Ok(0)));
    assert_eq!(outstanding(&live.run), [collect(), wake(5000)]);
    live.feed(collected());
    assert_eq!(live.end(), "Succeeded -");
}

#[test]
fn list_that_cannot_be_rendered_fails_the_node() {
    let mut live = Live::start(plan().node("each", each(OnItemFailure::Fail, 3)));
    let events = live.feed(listed(Err(Failure::permanent("TEMPLATE_ERROR", "x"))));
    assert_eq!(events[0], "each failed with 1: TEMPLATE_ERROR");
}

#[test]
fn failed_item_fails_the_node_and_a_retry_begins_again() {
    let mut live = Live::start(
        plan()
            .node("each", each(OnItemFailure::Fail, 2))
            .with(|node| node.policies.retry.max_attempts = 2),
    );
    live.feed(listed(Ok(3)));
    let events = live.feed(ended(&[0], &[1]));
    assert_eq!(
        events,
        [
            "items of each: ok [(0, 0)], failed [(1, 1)], refused 0",
            "retried each after 1 at 2000"
        ]
    );
    assert_eq!(
        outstanding(&live.run),
        [execute("each", 2, 2000)],
        "no item of attempt 1 is left"
    );
    assert_eq!(live.feed(ended(&[2], &[])), Vec::<String>::new(), "attempt 1 is over");
    live.at(2000).feed(Fact::Listed {
        node: "each".into(),
        attempt: 2,
        items: Ok(3),
        jitter: 0,
    });
    assert_eq!(outstanding(&live.run), [starts(2, &[0, 1]), wake(7000)]);
    let events = live.feed(ended_in(2, &[], &[0]));
    assert_eq!(events[1], "each failed with 2: BROKEN");
    assert_eq!(live.end(), "Failed action_failed");
}

#[test]
fn other_items_continue_after_a_failure_if_the_node_says_so() {
    let mut live = Live::start(plan().node("each", each(OnItemFailure::Continue, 2)));
    live.feed(listed(Ok(3)));
    let events = live.feed(Fact::ItemsEnded {
        node: "each".into(),
        attempt: 1,
        succeeded: Ranges::default(),
        failed: [0, 1].into_iter().collect(),
        refused: vec![RefusedItems {
            items: [1].into_iter().collect(),
            failure: Failure::permanent("CHILD_REFUSED", "x"),
        }],
        failure: Some(Failure::permanent("BROKEN", "x")),
        jitter: 0,
    });
    assert_eq!(events, ["items of each: ok [], failed [(0, 1)], refused 1"]);
    assert_eq!(outstanding(&live.run), [starts(1, &[2]), wake(5000)]);
    live.feed(ended(&[2], &[]));
    live.feed(collected());
    assert_eq!(live.end(), "Succeeded -");
    let node = live.run.plan().find("each").unwrap();
    let items = live.run.node(node).items.as_ref().unwrap();
    assert_eq!(
        (items.succeeded.len(), items.failed.len(), items.refused.len()),
        (1, 2, 1)
    );
}

#[test]
fn stop_and_timeout_end_the_node() {
    let start = || {
        let mut live = Live::start(plan().node("each", each(OnItemFailure::Continue, 2)));
        live.feed(listed(Ok(3)));
        live
    };
    let mut cancelled = start();
    cancelled.feed(Fact::Cancel {
        reason: "enough".to_owned(),
    });
    assert_eq!(outstanding(&cancelled.run), [abort("each", 1)]);
    cancelled.feed(Fact::Aborted {
        node: "each".into(),
        attempt: 1,
    });
    assert_eq!(cancelled.end(), "Cancelled enough");
    let mut late = start();
    let events = late.at(5000).feed(Fact::Tick);
    assert_eq!(events[0], "each failed with 1: LATE");
}
