//! A simulated runner: it performs outstanding effects in random order, and sometimes crashes.

use crate::sketch::{AttemptResult, Rng, Sketch, SketchJoin, Task, name};
use fermata_core::{
    Effect, Event, Fact, Failure, Input, NodeId, Open, Output, Phase, Run, Timestamp, Verdict, advance, apply, code,
    decide, decode, encode, outstanding,
};

pub struct World {
    pub sketch: Sketch,
    pub run: Run,
    pub journal: Vec<Event>,
    rows: Vec<String>,
    now: Timestamp,
    rng: Rng,
}

impl World {
    pub fn new(sketch: Sketch, seed: u64) -> World {
        World {
            run: Run::new(sketch.plan()),
            sketch,
            journal: Vec::new(),
            rows: Vec::new(),
            now: Timestamp(0),
            rng: Rng::new(!seed),
        }
    }

    pub fn pass(&mut self, millis: u64) {
        self.now = self.now.plus_millis(millis);
    }

    /// Feeds a fact to the run and writes the events to the journal.
    pub fn feed(&mut self, fact: Fact) -> Vec<Event> {
        let input = Input::new(self.now, fact);
        assert_eq!(decide(&self.run, &input), decide(&self.run, &input), "{input:?}");
        let was_paused = self.run.paused_at().is_some();
        let resumes = matches!(input.fact, Fact::Resume { .. });
        let events = advance(&mut self.run, input).expect("decisions are legal");
        let starts = |event: &Event| matches!(event, Event::Opened { .. } | Event::Began { .. } | Event::Routed { .. });
        assert!(
            !was_paused || resumes || !events.iter().any(starts),
            "a paused run goes on: {events:?}"
        );
        if !events.is_empty() {
            self.rows.push(encode(&events));
            self.journal.extend(events.iter().cloned());
        }
        events
    }

    /// Simulates a crash: the run is recovered from the journal.
    fn crash(&mut self) {
        let mut run = Run::new(self.run.plan().clone());
        for event in self.rows.iter().flat_map(|row| decode(row).expect("a valid row")) {
            apply(&mut run, &event).expect("a valid journal");
        }
        assert!(run == self.run, "the recovered run differs");
        assert_eq!(outstanding(&run), outstanding(&self.run));
        self.run = run;
    }

    pub fn open_effects(&self) -> usize {
        outstanding(&self.run).len()
    }

    /// Checks that effects are only for nodes that are open, finished but not routed, or idle with a guard.
    pub fn check_effects(&self) {
        for ix in self.run.active() {
            assert_eq!(self.run.node(ix).answer, None, "an early answer is used at once");
        }
        let is_paused = self.run.paused_at().is_some();
        for effect in outstanding(&self.run) {
            assert!(!is_paused || !starts_something(&effect), "paused, but {effect:?}");
            let phase = |node: &NodeId| {
                &self
                    .run
                    .node(self.run.plan().find(node.as_str()).expect("a node"))
                    .phase
            };
            let fits = match &effect {
                Effect::Execute { node, attempt, .. } | Effect::Abort { node, attempt } => {
                    matches!(phase(node), Phase::Open(open) if open.attempt == *attempt)
                }
                Effect::StartItems { node, attempt, items } => {
                    !items.is_empty()
                        && matches!(phase(node), Phase::Open(open) if open.attempt == *attempt && open.requested)
                }
                Effect::Collect { node, attempt } => {
                    matches!(phase(node), Phase::Open(open) if open.attempt == *attempt && open.requested)
                }
                Effect::Time { node } => matches!(phase(node), Phase::Open(open) if open.until.is_none()),
                Effect::Judge { node, .. } => matches!(phase(node), Phase::Finished { routed: false, .. }),
                Effect::Guard { node } => *phase(node) == Phase::Idle,
                Effect::Wake { .. } => true,
            };
            assert!(fits, "{effect:?}");
        }
    }

    /// Performs outstanding effects until the run ends. In `fault_percent` of the steps something else happens: a crash, a
    /// cancel, passing time, a callback, or an invalid fact.
    pub fn run_to_end(&mut self, fault_percent: usize) {
        self.run_from(Fact::start(), fault_percent);
    }

    /// The same, with this start.
    pub fn run_from(&mut self, start: Fact, fault_percent: usize) {
        self.feed(start);
        // Every node needs at most five attempts, a verdict, a guard, a duration and a tick.
        let mut budget = 100 + 20 * self.sketch.nodes.len();
        while !self.run.status().is_terminal() {
            self.check_effects();
            if self.rng.chance(fault_percent) {
                self.inject_fault();
                continue;
            }
            budget = budget
                .checked_sub(1)
                .expect("a run ends within a bounded number of inputs");
            let effects = outstanding(&self.run);
            if self.run.paused_at().is_some() && (effects.is_empty() || self.rng.chance(30)) {
                self.feed(Fact::Resume { at: self.now });
                self.feed(Fact::start()); // if it was paused before its start
                continue;
            }
            let some = self.rng.below(effects.len().max(1));
            match effects.get(some) {
                Some(effect) => self.perform(effect.clone()),
                None => self.answer_a_wait(),
            }
            if self.rng.chance(10) {
                self.answer_a_wait();
            }
        }
        self.crash();
    }

    fn perform(&mut self, effect: Effect) {
        let fact = match effect {
            Effect::Judge {
                node,
                edges,
                first_only,
            } => self.judge(node, &edges, first_only),
            Effect::Guard { node } => match self.sketch.nodes[self.sketch.at(&node)].join {
                SketchJoin::Guard(value) => Fact::Guarded {
                    node,
                    verdict: Verdict::plain(0, value),
                },
                _ => panic!("`{node}` has no guard"),
            },
            Effect::Time { node } => match self.sketch.nodes[self.sketch.at(&node)].task {
                Task::Sleep { millis } => Fact::Timed {
                    node,
                    duration_ms: millis.ok_or_else(|| Failure::permanent(code::TEMPLATE_ERROR, "x")),
                },
                _ => panic!("`{node}` is not a sleep"),
            },
            Effect::Execute { node, attempt, due } => {
                self.now = self.now.max(due);
                self.execute(node, attempt)
            }
            Effect::StartItems { node, attempt, items } => self.end_items(node, attempt, &items),
            Effect::Collect { node, attempt } => Fact::Answered {
                node,
                attempt,
                result: Ok(Output::EMPTY),
                chosen: None,
                jitter: 0,
            },
            Effect::Abort { node, attempt } => match self.rng.chance(50) || self.is_requested(&node) {
                true => Fact::Aborted { node, attempt },
                false => self.execute(node, attempt),
            },
            Effect::Wake { at } => {
                self.now = self.now.max(at);
                Fact::Tick
            }
        };
        assert!(!self.feed(fact).is_empty(), "the result of an effect has consequences");
    }

    fn judge(&self, node: NodeId, edges: &[u32], first_only: bool) -> Fact {
        let all = &self.sketch.nodes[self.sketch.at(&node)].edges;
        let mut verdicts = Vec::new();
        for edge in edges {
            let value = all[*edge as usize]
                .condition
                .expect("only edges with a condition are evaluated");
            verdicts.push(Verdict::plain(*edge, value));
            if value && first_only {
                break;
            }
        }
        Fact::Judged { node, verdicts }
    }

    /// Some children of these items end.
    fn end_items(&mut self, node: NodeId, attempt: u32, items: &[u32]) -> Fact {
        let first = self.rng.below(items.len());
        let ended = items.iter().copied().enumerate();
        let ended = ended.filter(|(at, _)| *at == first || self.rng.chance(30));
        let ended: Vec<u32> = ended.map(|(_, item)| item).collect();
        let Task::Each { items: results, .. } = &self.sketch.nodes[self.sketch.at(&node)].task else {
            panic!("`{node}` has no items");
        };
        let succeeds = |item: &u32| results.get(*item as usize).copied().unwrap_or(true);
        let (succeeded, failed): (Vec<u32>, Vec<u32>) = ended.into_iter().partition(succeeds);
        Fact::ItemsEnded {
            node,
            attempt,
            failure: (!failed.is_empty()).then(|| Failure::permanent("BAD", "x")),
            succeeded: succeeded.into_iter().collect(),
            failed: failed.into_iter().collect(),
            refused: Vec::new(),
            jitter: 0,
        }
    }

    fn execute(&mut self, node: NodeId, attempt: u32) -> Fact {
        if let Task::Each { items, .. } = &self.sketch.nodes[self.sketch.at(&node)].task {
            let items = Ok(items.len() as u32);
            return Fact::Listed {
                node,
                attempt,
                items,
                jitter: 0,
            };
        }
        let (Task::Action { results, .. } | Task::Request { results, .. }) =
            &self.sketch.nodes[self.sketch.at(&node)].task
        else {
            panic!("`{node}` is not an action");
        };
        Fact::Returned {
            node,
            attempt,
            result: result_of(results, attempt),
            jitter: self.rng.below(1 << 31) as u32,
            queued_ms: None,
        }
    }

    fn open(&self, at: usize) -> Option<&Open> {
        match &self.run.node(self.sketch.ix(at)).phase {
            Phase::Open(open) => Some(open),
            _ => None,
        }
    }

    fn is_requested(&self, node: &NodeId) -> bool {
        self.open(self.sketch.at(node)).is_some_and(|open| open.requested)
    }

    /// Answers a random wait or request: usually an open one if there is any, otherwise any of them.
    fn answer_a_wait(&mut self) {
        let is_wait = |at: &usize| matches!(self.sketch.nodes[*at].task, Task::Wait { .. } | Task::Request { .. });
        let waits: Vec<usize> = (0..self.sketch.nodes.len()).filter(is_wait).collect();
        let open: Vec<usize> = waits.iter().copied().filter(|at| self.open(*at).is_some()).collect();
        let among = if open.is_empty() || self.rng.chance(20) {
            waits
        } else {
            open
        };
        if !among.is_empty() {
            let at = self.rng.pick(&among);
            let node: NodeId = name(at).into();
            let attempt = self.open(at).map_or(1, |open| open.attempt);
            let sketched = &self.sketch.nodes[at];
            let fact = match &sketched.task {
                Task::Request { answers, .. } => {
                    let result = result_of(answers, attempt);
                    Fact::Answered {
                        node,
                        attempt,
                        chosen: sketched.chosen.clone().filter(|_| result.is_ok()),
                        result,
                        jitter: self.rng.below(1 << 31) as u32,
                    }
                }
                _ => Fact::Callback {
                    node,
                    output: Output::EMPTY,
                },
            };
            self.feed(fact);
        }
    }

    fn inject_fault(&mut self) {
        match self.rng.below(100) {
            0..40 => self.crash(),
            40 => {
                self.feed(Fact::Cancel {
                    reason: "cancelled".to_owned(),
                });
            }
            41..60 => {
                let later = self.rng.below(1000) as u64;
                self.pass(later);
                self.feed(Fact::Tick);
            }
            60..70 => self.answer_a_wait(),
            70..75 => self.pause(),
            75..80 => self.send_again(),
            _ => self.feed_invalid_facts(),
        }
    }

    /// Pauses the run. An attempt that was running ends while it is paused.
    fn pause(&mut self) {
        let running = outstanding(&self.run).into_iter();
        let running: Vec<Effect> = running
            .filter(|effect| matches!(effect, Effect::Execute { .. }))
            .collect();
        self.feed(Fact::Pause { at: self.now });
        if let (false, Some(effect)) = (self.rng.chance(50), running.first()) {
            self.perform(effect.clone());
        }
    }

    /// Has a random request sent again, if its answer is awaited.
    fn send_again(&mut self) {
        let at = self.rng.below(self.sketch.nodes.len());
        let attempt = self.open(at).map_or(1, |open| open.attempt);
        let node = name(at).into();
        self.feed(Fact::Resend {
            node,
            attempt,
            at: self.now,
        });
    }

    /// Feeds facts that do not match the state of a random node; they must have no effect.
    fn feed_invalid_facts(&mut self) {
        let at = self.rng.below(self.sketch.nodes.len());
        let phase = self.run.node(self.sketch.ix(at)).phase.clone();
        let task = &self.sketch.nodes[at].task;
        let is_action = matches!(task, Task::Action { .. } | Task::Request { .. } | Task::Each { .. });
        let is_sleep = matches!(task, Task::Sleep { .. });
        let is_wait = matches!(task, Task::Wait { .. });
        let node: NodeId = name(at).into();
        let mut facts = Vec::new();
        let wrong = match &phase {
            Phase::Open(open) if is_action => open.attempt + 1 + self.rng.below(2) as u32,
            _ => 1,
        };
        facts.push(Fact::Returned {
            node: node.clone(),
            attempt: wrong,
            result: Ok(Output::EMPTY),
            jitter: 0,
            queued_ms: None,
        });
        facts.push(Fact::Answered {
            node: node.clone(),
            attempt: wrong,
            result: Ok(Output::EMPTY),
            chosen: None,
            jitter: 0,
        });
        if let Phase::Open(open) = &phase
            && open.requested
            && open.resending.is_none()
        {
            facts.push(Fact::Returned {
                node: node.clone(),
                attempt: open.attempt,
                result: Err(Failure::retriable("FLAKY", "x")),
                jitter: 0,
                queued_ms: None,
            });
        }
        facts.push(Fact::Listed {
            node: node.clone(),
            attempt: wrong,
            items: Ok(3),
            jitter: 0,
        });
        facts.push(Fact::ItemsEnded {
            node: node.clone(),
            attempt: wrong,
            succeeded: [0].into_iter().collect(),
            failed: [1].into_iter().collect(),
            refused: Vec::new(),
            failure: None,
            jitter: 0,
        });
        facts.push(Fact::Aborted {
            node: node.clone(),
            attempt: wrong + 5,
        });
        if !is_sleep {
            facts.push(Fact::Timed {
                node: node.clone(),
                duration_ms: Ok(0),
            });
        }
        if !is_wait {
            facts.push(Fact::Callback {
                node: node.clone(),
                output: Output::EMPTY,
            });
        }
        if !matches!(phase, Phase::Finished { routed: false, .. }) {
            facts.push(Fact::Judged {
                node: node.clone(),
                verdicts: (0..5).map(|edge| Verdict::plain(edge, true)).collect(),
            });
        }
        if phase != Phase::Idle {
            facts.push(Fact::Guarded {
                node,
                verdict: Verdict::plain(0, true),
            });
        }
        for fact in facts {
            let text = format!("{fact:?}");
            assert_eq!(self.feed(fact), [], "{text} at {phase:?}");
        }
    }
}

fn starts_something(effect: &Effect) -> bool {
    match effect {
        Effect::Execute { .. } | Effect::StartItems { .. } | Effect::Judge { .. } | Effect::Guard { .. } => true,
        Effect::Time { .. } | Effect::Collect { .. } | Effect::Abort { .. } | Effect::Wake { .. } => false,
    }
}

/// The result of an attempt; the last one is used for all later attempts.
fn result_of(results: &[AttemptResult], attempt: u32) -> Result<Output, Failure> {
    match results[(attempt as usize - 1).min(results.len() - 1)] {
        AttemptResult::Output => Ok(Output::EMPTY),
        AttemptResult::Flaky => Err(Failure::retriable("FLAKY", "x")),
        AttemptResult::Bad => Err(Failure::permanent("BAD", "x")),
    }
}
