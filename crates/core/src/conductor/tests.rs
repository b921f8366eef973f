//! The rules of the conductor, one by one.
//!
//! Every test drives a [`Live`] run. After each step it checks two invariants: deciding twice gives the same events, and
//! replaying the journal from its text gives the same run with the same outstanding effects. So each test also tests
//! recovery.

use crate::plan::PlanBuilder;
use crate::*;
use std::sync::Arc;

mod commands;
mod ends;
mod failures;
mod ignored_facts;
mod items;
mod joins;
mod journal;
mod legality;
mod requests;
mod rerun;
mod retries;
mod routing;
mod sleeps;
mod stopping;
mod waits;

/// A run with the rows of its journal, and a clock that the test moves.
struct Live {
    run: Run,
    rows: Vec<String>,
    now: Timestamp,
}

impl Live {
    /// A run that has not started.
    fn pending(plan: PlanBuilder) -> Live {
        Live {
            run: Run::new(Arc::new(plan.build().expect("a valid plan"))),
            rows: Vec::new(),
            now: Timestamp(0),
        }
    }

    /// A run that started at 0.
    fn start(plan: PlanBuilder) -> Live {
        let mut live = Live::pending(plan);
        live.feed(Fact::start());
        live
    }

    /// Moves the clock to `millis` after the start.
    fn at(&mut self, millis: u64) -> &mut Live {
        self.now = Timestamp(0).plus_millis(millis);
        self
    }

    /// Feeds a fact and returns the summaries of the events.
    fn feed(&mut self, fact: Fact) -> Vec<String> {
        self.events(fact).iter().map(summary).collect()
    }

    /// Feeds several facts and returns the summaries of all events.
    fn feed_all(&mut self, facts: impl IntoIterator<Item = Fact>) -> Vec<String> {
        facts.into_iter().flat_map(|fact| self.feed(fact)).collect()
    }

    /// Feeds a fact and returns the events.
    fn events(&mut self, fact: Fact) -> Vec<Event> {
        let input = Input::new(self.now, fact);
        assert_eq!(decide(&self.run, &input), decide(&self.run, &input), "decided twice");
        let events = advance(&mut self.run, input).expect("decisions are legal");
        if !events.is_empty() {
            self.rows.push(encode(&events));
        }
        let again = self.replayed();
        assert!(again == self.run, "the replayed journal differs from {:?}", self.run);
        assert_eq!(outstanding(&again), outstanding(&self.run));
        events
    }

    /// The run as it would be recovered after a crash.
    fn replayed(&self) -> Run {
        let mut run = Run::new(self.run.plan().clone());
        for event in self.rows.iter().flat_map(|row| decode(row).expect("a valid row")) {
            apply(&mut run, &event).expect("a valid journal");
        }
        run
    }

    fn phase(&self, node: &str) -> &Phase {
        &self.run.node(self.run.plan().find(node).expect("a node")).phase
    }

    fn open(&self, node: &str) -> &Open {
        match self.phase(node) {
            Phase::Open(open) => open,
            other => panic!("`{node}` is not open but {other:?}"),
        }
    }

    /// All nodes with their states, in document order.
    fn states(&self) -> String {
        let states = self.run.plan().indices().map(|ix| {
            let state = match &self.run.node(ix).phase {
                Phase::Idle => "idle",
                Phase::Open(_) => "open",
                Phase::Finished { outcome, .. } if outcome.is_success() => "ok",
                Phase::Finished { .. } => "failed",
                Phase::Skipped => "skipped",
            };
            format!("{}:{state}", self.run.plan().node(ix).id)
        });
        states.collect::<Vec<_>>().join(" ")
    }

    /// The final status and reason of the run.
    fn end(&self) -> String {
        let reason = self.run.end().expect("the run has ended").reason.as_deref();
        format!("{} {}", self.run.status(), reason.unwrap_or("-"))
    }
}

/// A short text for an event.
fn summary(event: &Event) -> String {
    let until = |until: &Option<Timestamp>| until.map_or(String::new(), |at| format!(" until {}", at.millis()));
    match event {
        Event::Started { deadline, .. } => format!("started{}", until(deadline)),
        Event::Reused(reused) => format!("reused {} events of {}", reused.events.len(), reused.of),
        Event::Opened { node, until: end, .. } => format!("opened {node}{}", until(end)),
        Event::Skipped { node, reason, .. } => format!("skipped {node} ({reason:?})"),
        Event::Slept {
            node,
            until: end,
            times_out,
        } => {
            let what = if *times_out { " to time out" } else { "" };
            format!("slept {node}{}{what}", until(&Some(*end)))
        }
        Event::Began { node, attempt, .. } => format!("began {node} with {attempt}"),
        Event::Requested {
            node,
            attempt,
            until: end,
            items,
            ..
        } => {
            let items = items.map_or(String::new(), |items| format!(", {items} items"));
            format!("requested {node} with {attempt}{}{items}", until(end))
        }
        Event::ItemsEnded {
            node,
            succeeded,
            failed,
            refused,
            ..
        } => {
            let refused = refused.iter().map(|refused| refused.items.len()).sum::<u32>();
            let (succeeded, failed) = (succeeded.ranges(), failed.ranges());
            format!("items of {node}: ok {succeeded:?}, failed {failed:?}, refused {refused}")
        }
        Event::Answered { node, .. } => format!("answered {node}"),
        Event::Retried {
            node,
            attempt,
            retry_at,
            ..
        } => format!("retried {node} after {attempt} at {}", retry_at.millis()),
        Event::Finished {
            node,
            attempt,
            outcome: Outcome::Succeeded(_),
            chosen,
            skipped,
            ..
        } => {
            let chosen = chosen.as_ref().map_or(String::new(), |chosen| format!(": {chosen}"));
            let skipped = skipped
                .as_ref()
                .map_or(String::new(), |by| format!(", skipped: {}", by.reason));
            format!("{node} succeeded with {attempt}{chosen}{skipped}")
        }
        Event::Resending { node, attempt, .. } => format!("resending {node} with {attempt}"),
        Event::Resent { node, failure, .. } => match failure {
            Some(failure) => format!("{node} not resent: {}", failure.code),
            None => format!("resent {node}"),
        },
        Event::Paused { at } => format!("paused at {}", at.millis()),
        Event::Resumed { at } => format!("resumed at {}", at.millis()),
        Event::Finished {
            node,
            attempt,
            outcome: Outcome::Failed(failure),
            ..
        } => format!("{node} failed with {attempt}: {}", failure.code),
        Event::Routed { node, taken, .. } => format!("routed {node} {taken:?}"),
        Event::Stopping {
            status, reason, node, ..
        } => match node {
            Some(node) => format!("stopping {status} {reason} by {node}"),
            None => format!("stopping {status} {reason}"),
        },
        Event::Ended { status, reason, .. } => format!("ended {status} {}", reason.as_deref().unwrap_or("-")),
    }
}

fn plan() -> PlanBuilder {
    PlanBuilder::new("test")
}

fn returned(node: &str, attempt: u32, result: Result<Output, Failure>) -> Fact {
    Fact::Returned {
        node: node.into(),
        attempt,
        result,
        jitter: u32::MAX,
        queued_ms: None,
    }
}

fn ok(node: &str) -> Fact {
    returned(node, 1, Ok(Output::EMPTY))
}

fn bad(node: &str) -> Fact {
    returned(node, 1, Err(Failure::permanent("BAD", "bad")))
}

fn flaky(node: &str, attempt: u32) -> Fact {
    returned(node, attempt, Err(Failure::retriable("FLAKY", "flaky")))
}

fn judged<const N: usize>(node: &str, verdicts: [(u32, bool); N]) -> Fact {
    Fact::Judged {
        node: node.into(),
        verdicts: verdicts.map(|(edge, value)| Verdict::plain(edge, value)).to_vec(),
    }
}

fn guarded(node: &str, value: bool) -> Fact {
    Fact::Guarded {
        node: node.into(),
        verdict: Verdict::plain(0, value),
    }
}

fn timed(node: &str, millis: u64) -> Fact {
    Fact::Timed {
        node: node.into(),
        duration_ms: Ok(millis),
    }
}

fn callback(node: &str) -> Fact {
    Fact::Callback {
        node: node.into(),
        output: Output::EMPTY,
    }
}

fn cancel() -> Fact {
    Fact::Cancel {
        reason: "cancelled".to_owned(),
    }
}

fn aborted(node: &str, attempt: u32) -> Fact {
    Fact::Aborted {
        node: node.into(),
        attempt,
    }
}

fn begins(node: &str, attempt: u32) -> Fact {
    Fact::Begins {
        node: node.into(),
        attempt,
    }
}

fn sleep() -> Kind {
    Kind::Sleep {
        action: "core.delay".to_owned(),
        parameters: serde_json::json!({"durationMs": 1000}),
        timeout_ms: None,
    }
}

fn wait(timeout_ms: Option<u64>) -> Kind {
    Kind::Wait { timeout_ms }
}

fn execute(node: &str, attempt: u32, due_ms: u64) -> Effect {
    Effect::Execute {
        node: node.into(),
        attempt,
        due: Timestamp(0).plus_millis(due_ms),
    }
}

fn abort(node: &str, attempt: u32) -> Effect {
    Effect::Abort {
        node: node.into(),
        attempt,
    }
}

fn judge(node: &str, edges: &[u32], first_only: bool) -> Effect {
    Effect::Judge {
        node: node.into(),
        edges: edges.to_vec(),
        first_only,
    }
}

fn wake(millis: u64) -> Effect {
    Effect::Wake {
        at: Timestamp(0).plus_millis(millis),
    }
}
