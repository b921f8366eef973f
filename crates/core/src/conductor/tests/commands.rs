//! Pause and resume, skipping a node that waits, sending a request again.

use super::*;
use serde_json::json;

fn pause(millis: u64) -> Fact {
    let at = Timestamp(0).plus_millis(millis);
    Fact::Pause { at }
}

fn resume(millis: u64) -> Fact {
    let at = Timestamp(0).plus_millis(millis);
    Fact::Resume { at }
}

fn skip(node: &str, chosen: Option<&str>) -> Fact {
    Fact::Skip {
        node: node.into(),
        output: Output::EMPTY,
        chosen: chosen.map(str::to_owned),
        skipped: SkippedBy {
            by: Some("ada".to_owned()),
            reason: "known".to_owned(),
        },
    }
}

fn resend(node: &str, attempt: u32) -> Fact {
    Fact::Resend {
        node: node.into(),
        attempt,
        at: Timestamp(0).plus_millis(400),
    }
}

fn request() -> Kind {
    Kind::Request {
        action: "callback".to_owned(),
        parameters: json!({}),
        answer: AnswerRule::Any,
        timeout_ms: Some(5000),
        retry_on_timeout: true,
        timeout_code: "LATE".to_owned(),
    }
}

fn nothing() -> Vec<String> {
    Vec::new()
}

#[test]
fn paused_run_records_results_and_starts_nothing() {
    let plan = plan().action("a", "t").then("b").action("b", "t");
    let mut live = Live::start(plan);
    assert_eq!(live.feed(pause(5)), ["paused at 5"]);
    assert_eq!(live.feed(pause(6)), nothing(), "it is paused already");
    assert_eq!(outstanding(&live.run), [], "nothing starts after a restart");
    assert_eq!(live.feed(ok("a")), ["a succeeded with 1"]);
    assert_eq!(live.states(), "a:ok b:idle");
    assert_eq!(outstanding(&live.run), []);
    assert_eq!(
        live.at(10).feed(resume(9)),
        ["resumed at 9", "routed a [0]", "opened b"]
    );
    assert_eq!(live.feed(resume(11)), nothing());
    assert_eq!(outstanding(&live.run), [execute("b", 1, 10)]);
}

#[test]
fn last_result_of_a_paused_run_ends_it_when_it_is_resumed() {
    let mut live = Live::start(plan().action("a", "t"));
    live.feed(pause(1));
    assert_eq!(live.feed(bad("a")), ["a failed with 1: BAD"]);
    assert_eq!(live.run.status(), Status::Running);
    live.feed(resume(2));
    assert_eq!(live.end(), "Failed action_failed");
}

#[test]
fn run_that_is_paused_before_its_start_starts_when_it_is_resumed() {
    let mut live = Live::pending(plan().action("a", "t"));
    assert_eq!(live.feed(pause(1)), ["paused at 1"]);
    assert_eq!(live.feed(Fact::start()), nothing());
    assert_eq!(live.feed(resume(2)), ["resumed at 2"]);
    assert_eq!(live.feed(Fact::start()), ["started", "opened a"]);
}

#[test]
fn timers_of_a_paused_run_expire_when_it_is_resumed() {
    let plan = plan()
        .node("w", wait(Some(1000)))
        .edge("b", When::Always, None)
        .action("b", "t");
    let mut live = Live::start(plan);
    live.feed(pause(1));
    assert_eq!(outstanding(&live.run), [], "the timer does not wake it");
    assert_eq!(live.at(2000).feed(Fact::Tick), nothing());
    live.feed(resume(3000));
    assert_eq!(outstanding(&live.run), [wake(1000)], "its due time is kept");
    let events = live.at(3000).feed(Fact::Tick);
    assert_eq!(events, ["w failed with 1: WAIT_TIMEOUT", "routed w [0]", "opened b"]);
}

#[test]
fn deadline_and_cancel_of_a_paused_run_work() {
    let timed = || plan().plan(|plan| plan.timeout_ms = Some(1000)).action("a", "t");
    let mut live = Live::start(timed());
    live.feed(pause(1));
    assert_eq!(outstanding(&live.run), [wake(1000)]);
    assert_eq!(live.at(1000).feed(Fact::Tick), ["stopping Failed timeout"]);
    assert_eq!(live.run.paused_at(), None);
    assert_eq!(live.feed(pause(1001)), nothing(), "a stopping run cannot be paused");
    let mut live = Live::start(timed());
    live.feed(pause(1));
    assert_eq!(live.feed(cancel()), ["stopping Cancelled cancelled"]);
    assert_eq!(outstanding(&live.run), [abort("a", 1)]);
    let mut live = Live::pending(timed());
    live.feed(pause(1));
    live.feed(cancel());
    assert_eq!(live.end(), "Cancelled cancelled");
}

#[test]
fn callbacks_and_answers_of_a_paused_run_are_kept() {
    let plan = plan()
        .node("w", wait(None))
        .then("ask")
        .node("ask", request())
        .node("late", wait(None))
        .then("b")
        .action("b", "t");
    let mut live = Live::start(plan);
    live.feed(pause(1));
    assert_eq!(live.feed(callback("w")), ["w succeeded with 1"]);
    assert_eq!(live.feed(callback("w")), nothing(), "it was answered before");
    assert_eq!(live.feed(callback("late")), ["late succeeded with 1"]);
    let events = live.feed(resume(2));
    assert_eq!(
        events,
        [
            "resumed at 2",
            "routed w [0]",
            "routed late [0]",
            "opened ask",
            "opened b"
        ]
    );
}

#[test]
fn retries_of_a_paused_run_wait() {
    let plan = plan()
        .action("a", "t")
        .with(|node| node.policies.retry.max_attempts = 3);
    let mut live = Live::start(plan);
    live.feed(pause(1));
    assert_eq!(live.feed(flaky("a", 1)), ["retried a after 1 at 2000"]);
    assert_eq!(outstanding(&live.run), []);
    live.at(9000).feed(resume(9000));
    assert_eq!(outstanding(&live.run), [execute("a", 2, 2000)], "it is due at once");
}

#[test]
fn verdicts_that_come_while_a_run_is_paused_are_evaluated_again() {
    let plan = plan()
        .action("a", "t")
        .edge("b", When::Success, Some("x"))
        .action("b", "t");
    let mut live = Live::start(plan);
    live.feed(ok("a"));
    live.feed(pause(1));
    assert_eq!(outstanding(&live.run), []);
    assert_eq!(live.feed(judged("a", [(0, true)])), nothing());
    live.feed(resume(2));
    assert_eq!(outstanding(&live.run), [judge("a", &[0], false)]);
}

#[test]
fn node_that_waits_is_skipped_with_the_given_output() {
    let plan = plan()
        .node("w", wait(Some(1000)))
        .then("b")
        .action("b", "t")
        .with(|node| node.policies.retry.max_attempts = 2)
        .then("ask")
        .node("ask", request());
    let mut live = Live::start(plan);
    assert_eq!(live.feed(skip("b", None)), nothing(), "it is not open yet");
    let events = live.feed(skip("w", None));
    assert_eq!(
        events,
        ["w succeeded with 1, skipped: known", "routed w [0]", "opened b"]
    );
    assert_eq!(live.feed(callback("w")), nothing(), "it was skipped before");
    assert_eq!(
        live.feed(skip("b", None)),
        nothing(),
        "its first attempt may be running"
    );
    live.feed(flaky("b", 1));
    let events = live.feed(skip("b", None));
    assert_eq!(events[0], "b succeeded with 2, skipped: known");
    assert_eq!(live.feed(skip("ask", None)), nothing(), "the request may be being sent");
    live.feed(ok("ask"));
    assert_eq!(live.feed(skip("ask", None))[0], "ask succeeded with 1, skipped: known");
    assert_eq!(live.end(), "Succeeded -");
}

#[test]
fn attempt_that_is_due_is_skipped_only_while_the_run_is_paused() {
    let plan = plan()
        .action("a", "t")
        .with(|node| node.policies.retry.max_attempts = 2);
    let mut live = Live::start(plan);
    live.feed(flaky("a", 1));
    assert_eq!(live.at(2000).feed(skip("a", None)), nothing(), "it may be running");
    live.feed(pause(2000));
    assert_eq!(live.feed(skip("a", None)), ["a succeeded with 2, skipped: known"]);
}

#[test]
fn skipped_decision_takes_the_given_outcome() {
    let mut kind = request();
    if let Kind::Request { answer, .. } = &mut kind {
        *answer = AnswerRule::Outcome {
            outcomes: vec!["yes".to_owned(), "no".to_owned()],
        };
    }
    let plan = plan()
        .node("ask", kind)
        .with(|node| node.route = Route::Outcome)
        .on("yes", "b")
        .on("no", "c")
        .action("b", "t")
        .action("c", "t");
    let mut live = Live::start(plan);
    live.feed(ok("ask"));
    let events = live.feed(skip("ask", Some("no")));
    assert_eq!(
        events[..2],
        ["ask succeeded with 1: no, skipped: known", "routed ask [1]"]
    );
}

#[test]
fn request_is_sent_again_with_the_same_attempt_and_time() {
    let mut live = Live::start(plan().node("ask", request()));
    assert_eq!(live.feed(resend("ask", 1)), nothing(), "it was not sent yet");
    live.feed(ok("ask"));
    assert_eq!(live.feed(resend("ask", 2)), nothing(), "there is no such attempt");
    assert_eq!(live.at(500).feed(resend("ask", 1)), ["resending ask with 1"]);
    assert_eq!(live.feed(resend("ask", 1)), nothing(), "once is enough");
    assert_eq!(outstanding(&live.run), [execute("ask", 1, 400), wake(5000)]);
    assert_eq!(live.feed(ok("ask")), ["resent ask"]);
    assert_eq!(outstanding(&live.run), [wake(5000)], "its timeout is unchanged");
    live.feed(resend("ask", 1));
    assert_eq!(live.feed(flaky("ask", 1)), ["ask not resent: FLAKY"]);
    assert_eq!(outstanding(&live.run), [wake(5000)], "its answer is still awaited");
}

#[test]
fn request_of_a_paused_run_is_sent_again_when_it_is_resumed() {
    let mut live = Live::start(plan().node("ask", request()));
    live.feed(ok("ask"));
    live.feed(pause(1));
    live.feed(resend("ask", 1));
    assert_eq!(outstanding(&live.run), []);
    live.feed(resume(2));
    assert_eq!(outstanding(&live.run), [execute("ask", 1, 400), wake(5000)]);
}

#[test]
fn request_that_times_out_is_not_sent_again() {
    let plan = plan()
        .node("ask", request())
        .with(|node| node.policies.retry.max_attempts = 2);
    let mut live = Live::start(plan);
    live.feed(ok("ask"));
    live.feed(resend("ask", 1));
    assert_eq!(live.at(5000).feed(Fact::Tick), ["retried ask after 1 at 7000"]);
    assert_eq!(live.feed(ok("ask")), nothing(), "the result of the first attempt");
    assert_eq!(outstanding(&live.run), [execute("ask", 2, 7000)]);
}
