//! Requests: an action sends them, an answer ends them. Decisions: the answer or the conditions choose exactly one edge.

use super::*;
use serde_json::json;

fn request(timeout_ms: Option<u64>, retry_on_timeout: bool) -> Kind {
    Kind::Request {
        action: "callback".to_owned(),
        parameters: json!({}),
        answer: AnswerRule::Any,
        timeout_ms,
        retry_on_timeout,
        timeout_code: "LATE".to_owned(),
    }
}

fn answered(node: &str, attempt: u32, result: Result<Output, Failure>, chosen: Option<&str>) -> Fact {
    Fact::Answered {
        node: node.into(),
        attempt,
        result,
        chosen: chosen.map(str::to_owned),
        jitter: u32::MAX,
    }
}

fn answer(node: &str, attempt: u32) -> Fact {
    answered(node, attempt, Ok(Output::EMPTY), None)
}

fn tried(attempts: u32) -> impl FnOnce(&mut Node) {
    move |node| node.policies.retry.max_attempts = attempts
}

#[test]
fn request_is_sent_once_and_ends_with_its_answer() {
    let plan = plan()
        .node("ask", request(Some(5000), false))
        .then("b")
        .action("b", "t");
    let mut live = Live::start(plan);
    assert_eq!(outstanding(&live.run), [execute("ask", 1, 0)]);
    assert_eq!(live.at(100).feed(ok("ask")), ["requested ask with 1 until 5100"]);
    assert_eq!(outstanding(&live.run), [wake(5100)]);
    assert_eq!(live.feed(ok("ask")), Vec::<String>::new(), "it was sent before");
    let events = live.at(5099).feed(answer("ask", 1));
    assert_eq!(events, ["ask succeeded with 1", "routed ask [0]", "opened b"]);
    assert_eq!(
        live.feed(answer("ask", 1)),
        Vec::<String>::new(),
        "it was answered before"
    );
    assert_eq!(outstanding(&live.run), [execute("b", 1, 5099)], "its timer is gone");
}

#[test]
fn answer_may_arrive_before_the_request_is_recorded() {
    let mut live = Live::start(plan().node("ask", request(Some(5000), true)));
    let events = live.feed(answer("ask", 1));
    assert_eq!(events[0], "ask succeeded with 1");
    assert_eq!(live.feed(ok("ask")), Vec::<String>::new());
    assert_eq!(live.end(), "Succeeded -");
}

#[test]
fn request_that_cannot_be_sent_is_retried() {
    let mut live = Live::start(plan().node("ask", request(None, false)).with(tried(2)));
    assert_eq!(live.feed(flaky("ask", 1)), ["retried ask after 1 at 2000"]);
    assert_eq!(outstanding(&live.run), [execute("ask", 2, 2000)]);
    let events = live.at(2000).feed(flaky("ask", 2));
    assert_eq!(events[0], "ask failed with 2: FLAKY");
}

#[test]
fn retriable_answer_repeats_the_request() {
    let mut live = Live::start(plan().node("ask", request(Some(5000), false)).with(tried(2)));
    live.feed(ok("ask"));
    let error = || Err(Failure::retriable("DOWN", "down"));
    assert_eq!(
        live.feed(answered("ask", 1, error(), None)),
        ["retried ask after 1 at 2000"]
    );
    assert!(!live.open("ask").requested);
    assert_eq!(outstanding(&live.run), [execute("ask", 2, 2000)], "the timer is gone");
    assert_eq!(
        live.at(2000).feed(answer("ask", 1)),
        Vec::<String>::new(),
        "attempt 1 is over"
    );
    live.feed(returned("ask", 2, Ok(Output::EMPTY)));
    let events = live.feed(answered("ask", 2, error(), None));
    assert_eq!(events[0], "ask failed with 2: DOWN");
    assert_eq!(live.end(), "Failed action_failed");
}

#[test]
fn timeout_of_a_task_is_retried() {
    let mut live = Live::start(plan().node("ask", request(Some(1000), true)).with(tried(2)));
    live.feed(ok("ask"));
    assert_eq!(live.at(1000).feed(Fact::Tick), ["retried ask after 1 at 3000"]);
    live.at(3000).feed(returned("ask", 2, Ok(Output::EMPTY)));
    let events = live.at(4000).feed(Fact::Tick);
    assert_eq!(events[0], "ask failed with 2: LATE");
}

#[test]
fn timeout_of_a_decision_ends_the_run() {
    let mut live = Live::start(plan().node("ask", request(Some(1000), false)).with(tried(2)));
    live.feed(ok("ask"));
    let events = live.at(1000).feed(Fact::Tick);
    assert_eq!(events[0], "ask failed with 1: LATE");
    assert_eq!(live.end(), "Failed action_failed");
    let failure = live.run.stop().unwrap().failure.clone().unwrap();
    assert_eq!(failure.message, "the request timed out after 1 s without an answer");
}

#[test]
fn open_request_of_a_stopping_run_is_aborted() {
    for sent in [false, true] {
        let mut live = Live::start(plan().node("ask", request(Some(1000), false)));
        if sent {
            live.feed(ok("ask"));
        }
        assert_eq!(live.feed(cancel()), ["stopping Cancelled cancelled"]);
        assert_eq!(outstanding(&live.run), [abort("ask", 1)]);
        let events = live.feed(aborted("ask", 1));
        assert_eq!(events, ["skipped ask (Stopped)", "ended Cancelled cancelled"]);
    }
}

#[test]
fn request_that_was_sent_while_the_run_stops_is_aborted_again() {
    let mut live = Live::start(plan().node("ask", request(None, false)));
    live.feed(cancel());
    assert_eq!(live.feed(ok("ask")), ["requested ask with 1"]);
    assert_eq!(outstanding(&live.run), [abort("ask", 1)]);
}

#[test]
fn answer_while_the_run_stops_is_recorded() {
    let mut live = Live::start(plan().node("ask", request(None, false)));
    live.feed(ok("ask"));
    live.feed(cancel());
    let events = live.feed(answer("ask", 1));
    assert_eq!(events, ["ask succeeded with 1", "ended Cancelled cancelled"]);
}

#[test]
fn only_requests_are_answered() {
    let plan = plan().action("a", "t").node("w", wait(None)).node("s", sleep());
    let mut live = Live::start(plan);
    for node in ["a", "w", "s", "unknown"] {
        assert_eq!(live.feed(answer(node, 1)), Vec::<String>::new(), "{node}");
    }
}

fn decision() -> PlanBuilder {
    plan()
        .node("ask", request(None, false))
        .with(|node| node.route = Route::Outcome)
        .on("approve", "yes")
        .on("reject", "no")
        .action("yes", "t")
        .action("no", "t")
}

#[test]
fn chosen_outcome_selects_its_edge() {
    for (outcome, at, states) in [
        ("approve", 0, "ask:ok yes:open no:skipped"),
        ("reject", 1, "ask:ok yes:skipped no:open"),
    ] {
        let mut live = Live::start(decision());
        live.feed(ok("ask"));
        let events = live.feed(answered("ask", 1, Ok(Output::EMPTY), Some(outcome)));
        assert_eq!(events[0], format!("ask succeeded with 1: {outcome}"));
        assert_eq!(events[1], format!("routed ask [{at}]"));
        assert_eq!(live.states(), states);
    }
}

#[test]
fn outcome_without_an_edge_fails_the_run() {
    for outcome in [None, Some("perhaps")] {
        let mut live = Live::start(decision());
        let events = live.feed(answered("ask", 1, Ok(Output::EMPTY), outcome));
        assert_eq!(
            events[1..3],
            ["routed ask []", "stopping Failed decision_failed by ask"]
        );
        assert_eq!(live.end(), "Failed decision_failed");
        let failure = live.run.stop().unwrap().failure.clone().unwrap();
        assert_eq!(failure.code, code::UNKNOWN_OUTCOME);
        assert!(failure.message.contains("approve, reject"), "{}", failure.message);
    }
}

#[test]
fn outcome_with_two_edges_fails_the_run() {
    let plan = plan()
        .node("ask", request(None, false))
        .with(|node| node.route = Route::Outcome)
        .on("go", "a")
        .on("go", "b")
        .action("a", "t")
        .action("b", "t");
    let mut live = Live::start(plan);
    live.feed(answered("ask", 1, Ok(Output::EMPTY), Some("go")));
    assert_eq!(live.end(), "Failed decision_failed");
    assert_eq!(live.states(), "ask:ok a:skipped b:skipped");
}

#[test]
fn failed_decision_takes_no_edge() {
    let mut live = Live::start(decision());
    let failure = Failure::permanent(code::UNKNOWN_OUTCOME, "x");
    live.feed(answered("ask", 1, Err(failure), None));
    assert_eq!(live.states(), "ask:failed yes:skipped no:skipped");
    assert_eq!(live.end(), "Failed action_failed");
}

#[test]
fn failed_decision_follows_its_failure_edge() {
    let plan = decision()
        .node("ask2", request(None, false))
        .with(|node| node.route = Route::Outcome);
    let plan = plan
        .on("a", "rescue")
        .edge("rescue", When::Failure, None)
        .action("rescue", "t");
    let mut live = Live::start(plan);
    live.feed(answered("ask2", 1, Err(Failure::permanent("X", "x")), None));
    assert_eq!(live.states(), "ask:open yes:idle no:idle ask2:failed rescue:open");
}

fn switch() -> PlanBuilder {
    plan()
        .node("if", Kind::Pass)
        .with(|node| node.route = Route::ExactlyOne)
        .edge("a", When::Success, Some("x > 1"))
        .edge("b", When::Success, Some("x < 1"))
        .action("a", "t")
        .action("b", "t")
}

#[test]
fn pass_ends_at_once_and_its_conditions_decide() {
    let mut live = Live::pending(switch());
    let events = live.feed(Fact::start());
    assert_eq!(events, ["started", "opened if", "if succeeded with 1"]);
    assert_eq!(outstanding(&live.run), [judge("if", &[0, 1], false)]);
    assert_eq!(
        live.feed(judged("if", [(0, false), (1, true)])),
        ["routed if [1]", "skipped a (DeadPath)", "opened b"]
    );
}

#[test]
fn decision_by_conditions_needs_exactly_one() {
    let cases: [(&str, Vec<Verdict>); 4] = [
        (
            code::UNKNOWN_OUTCOME,
            vec![Verdict::plain(0, false), Verdict::plain(1, false)],
        ),
        (
            code::CONDITION_EVALUATION_ERROR,
            vec![Verdict::plain(0, true), Verdict::plain(1, true)],
        ),
        (
            code::CONDITION_EVALUATION_ERROR,
            vec![
                Verdict::plain(0, true),
                Verdict {
                    error: Some("x is not a number".to_owned()),
                    ..Verdict::plain(1, false)
                },
            ],
        ),
        (
            code::CONDITION_EVALUATION_ERROR,
            vec![
                Verdict {
                    error: Some("x is not a number".to_owned()),
                    ..Verdict::plain(0, true)
                },
                Verdict::plain(1, false),
            ],
        ),
    ];
    for (code, verdicts) in cases {
        let mut live = Live::start(switch());
        let node = "if".into();
        let events = live.feed(Fact::Judged { node, verdicts });
        assert_eq!(events[..2], ["routed if []", "stopping Failed decision_failed by if"]);
        assert_eq!(live.states(), "if:ok a:skipped b:skipped");
        assert_eq!(live.end(), "Failed decision_failed");
        assert_eq!(live.run.stop().unwrap().failure.as_ref().unwrap().code, code);
    }
}

#[test]
fn node_without_edges_has_nothing_to_decide() {
    for route in [Route::Outcome, Route::ExactlyOne] {
        let mut live = Live::pending(plan().node("last", Kind::Pass).with(|node| node.route = route));
        live.feed(Fact::start());
        assert_eq!(live.end(), "Succeeded -", "{route:?}");
    }
}
