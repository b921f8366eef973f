//! A random workflow with predetermined results of its attempts and conditions.

use fermata_core::plan::{Overflow, PlanBuilder};
use fermata_core::{AnswerRule, Each, Join, Kind, NodeId, NodeIx, OnFailure, OnItemFailure, Plan, Retry, Route, When};
use std::sync::Arc;

/// A small random number generator (xorshift64*), so that a size and a seed reproduce a case.
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed ^ 0x9E37_79B9_7F4A_7C15 | 1)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit.max(1)
    }

    /// True with this probability in percent.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

#[derive(Clone, Copy, PartialEq)]
pub enum Style {
    /// Any edges; an unhandled failure stops the run.
    FailFast,
    /// As in Runlater: edges for success, joins with all edges or a guard; failures do not stop the run.
    Relaxed,
}

pub struct Sketch {
    pub nodes: Vec<SketchNode>,
    pub relaxed: bool,
    pub timeout_ms: Option<u64>,
    /// The position of each node in the plan. Edges lead from lower to higher node numbers, and the plan is shuffled.
    positions: Vec<usize>,
}

pub struct SketchNode {
    pub task: Task,
    pub join: SketchJoin,
    pub route: Route,
    /// The outcome that its answer chooses.
    pub chosen: Option<String>,
    pub edges: Vec<SketchEdge>,
}

pub enum Task {
    /// An action with the results of its attempts; the last result is used for all later attempts.
    Action {
        max_attempts: u32,
        results: Vec<AttemptResult>,
    },
    /// A sleep; `None` if its duration cannot be rendered.
    Sleep { millis: Option<u64> },
    /// A wait, which may be answered or not.
    Wait { timeout_ms: Option<u64> },
    /// A request with the results of sending it and its answers, which may arrive or not.
    Request {
        max_attempts: u32,
        results: Vec<AttemptResult>,
        answers: Vec<AttemptResult>,
        timeout_ms: Option<u64>,
        retry_on_timeout: bool,
    },
    /// One child for each item of a list, with the results of the items.
    Each { items: Vec<bool>, continues: bool },
    /// Nothing.
    Pass,
}

#[derive(Clone, Copy, PartialEq)]
pub enum AttemptResult {
    Output,
    Flaky,
    Bad,
}

#[derive(Clone, Copy)]
pub enum SketchJoin {
    Any,
    All,
    /// A guard with the value of its condition.
    Guard(bool),
}

pub struct SketchEdge {
    pub to: usize,
    pub when: When,
    /// The value of its condition, if it has one.
    pub condition: Option<bool>,
    pub outcome: Option<String>,
}

impl SketchNode {
    /// Whether it succeeds if it runs and is not stopped. `None` for a wait or request, which depends on answers.
    pub fn will_succeed(&self) -> Option<bool> {
        match &self.task {
            Task::Action { max_attempts, results } => {
                let attempts = (*max_attempts).max(1) as usize;
                let tried = results.iter().take(attempts);
                let mut tried = tried.skip_while(|result| **result == AttemptResult::Flaky);
                Some(tried.next() == Some(&AttemptResult::Output))
            }
            Task::Sleep { millis } => Some(millis.is_some()),
            Task::Wait { .. } | Task::Request { .. } => None,
            Task::Each { items, continues } => Some(*continues || items.iter().all(|item| *item)),
            Task::Pass => Some(true),
        }
    }
}

pub fn name(at: usize) -> String {
    format!("n{at}")
}

impl Sketch {
    pub fn random(size: usize, seed: u64, style: Style) -> Sketch {
        let mut rng = Rng::new(seed);
        let reach = 1 + rng.below(12);
        let fault_percent = rng.pick(&[0, 5, 30]);
        let nodes = (0..size).map(|at| random_node(&mut rng, at, size, reach, fault_percent, style));
        let nodes: Vec<_> = nodes.collect();
        let mut positions: Vec<usize> = (0..size).collect();
        for at in (1..size).rev() {
            positions.swap(at, rng.below(at + 1));
        }
        Sketch {
            nodes,
            relaxed: style == Style::Relaxed,
            timeout_ms: None,
            positions,
        }
    }

    /// Sets a deadline in most cases.
    pub fn with_deadline(mut self, seed: u64) -> Sketch {
        let mut rng = Rng::new(seed.rotate_left(7));
        self.timeout_ms = rng.chance(70).then(|| rng.below(30_000) as u64);
        self
    }

    pub fn ix(&self, at: usize) -> NodeIx {
        NodeIx(self.positions[at] as u32)
    }

    /// The number of the node with this id.
    pub fn at(&self, id: &NodeId) -> usize {
        id.as_str()[1..].parse().expect("a generated name")
    }

    pub fn plan(&self) -> Arc<Plan> {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|at| self.positions[*at]);
        let mut plan = PlanBuilder::new("sketch").plan(|plan| {
            plan.timeout_ms = self.timeout_ms;
            plan.context.overflow_behavior = Overflow::DropOversize;
            if self.relaxed {
                plan.on_failure = OnFailure::Continue;
            }
        });
        for at in order {
            plan = self.nodes[at].add(plan, &name(at));
        }
        Arc::new(plan.build().expect("no cycles: edges lead to higher numbers"))
    }
}

impl SketchNode {
    fn add(&self, plan: PlanBuilder, id: &str) -> PlanBuilder {
        let parameters = serde_json::Value::Null;
        let (kind, max_attempts) = match &self.task {
            Task::Action { max_attempts, .. } => {
                let action = "t".to_owned();
                (Kind::Action { action, parameters }, *max_attempts)
            }
            Task::Sleep { .. } => {
                let action = "core.delay".to_owned();
                (
                    Kind::Sleep {
                        action,
                        parameters,
                        timeout_ms: None,
                    },
                    1,
                )
            }
            Task::Wait { timeout_ms } => (
                Kind::Wait {
                    timeout_ms: *timeout_ms,
                },
                1,
            ),
            Task::Request {
                max_attempts,
                timeout_ms,
                retry_on_timeout,
                ..
            } => (
                Kind::Request {
                    action: "ask".to_owned(),
                    parameters,
                    answer: AnswerRule::Any,
                    timeout_ms: *timeout_ms,
                    retry_on_timeout: *retry_on_timeout,
                    timeout_code: "LATE".to_owned(),
                },
                *max_attempts,
            ),
            Task::Each { continues, .. } => (
                Kind::Request {
                    action: "each".to_owned(),
                    parameters,
                    answer: AnswerRule::Children(Each {
                        items: "{{ items }}".to_owned(),
                        max_concurrency: 3,
                        max_items: 100,
                        on_item_failure: match continues {
                            true => OnItemFailure::Continue,
                            false => OnItemFailure::Fail,
                        },
                    }),
                    timeout_ms: None,
                    retry_on_timeout: false,
                    timeout_code: "LATE".to_owned(),
                },
                1,
            ),
            Task::Pass => (Kind::Pass, 1),
        };
        let plan = plan.node(id, kind).with(|node| {
            node.policies.retry = Retry {
                max_attempts,
                base_delay_ms: 100,
                backoff_factor: 2.0,
                jitter: true,
            };
            node.join = match self.join {
                SketchJoin::Any => Join::Any,
                SketchJoin::All => Join::All,
                SketchJoin::Guard(_) => Join::Guard("guard".to_owned()),
            };
            node.route = self.route;
        });
        self.edges.iter().fold(plan, |plan, edge| {
            let condition = edge.condition.map(|_| "condition");
            match &edge.outcome {
                Some(outcome) => plan.on(outcome, &name(edge.to)),
                None => plan.edge(&name(edge.to), edge.when, condition),
            }
        })
    }
}

fn random_node(rng: &mut Rng, at: usize, size: usize, reach: usize, fault_percent: usize, style: Style) -> SketchNode {
    let task = match rng.below(10) {
        0 => Task::Sleep {
            millis: (!rng.chance(fault_percent)).then(|| rng.below(3000) as u64),
        },
        1 => Task::Wait {
            timeout_ms: rng.chance(60).then(|| rng.below(5000) as u64),
        },
        2 => Task::Request {
            max_attempts: rng.below(5) as u32,
            results: random_results(rng, fault_percent),
            answers: random_results(rng, fault_percent),
            timeout_ms: rng.chance(60).then(|| rng.below(5000) as u64),
            retry_on_timeout: rng.chance(50),
        },
        3 => Task::Pass,
        4 => Task::Each {
            items: (0..rng.below(12)).map(|_| !rng.chance(fault_percent)).collect(),
            continues: rng.chance(50),
        },
        _ => Task::Action {
            max_attempts: rng.below(5) as u32,
            results: random_results(rng, fault_percent),
        },
    };
    let guard = rng.chance(50);
    let join = match (style, rng.below(10)) {
        (_, 0) => SketchJoin::Guard(guard),
        (Style::Relaxed, 1..=3) => SketchJoin::Guard(guard),
        (Style::Relaxed, _) | (_, 1..=3) => SketchJoin::All,
        _ => SketchJoin::Any,
    };
    let left = size - at - 1;
    let count = if left == 0 { 0 } else { rng.below(5) };
    let edges = (0..count).map(|_| SketchEdge {
        to: at + 1 + rng.below(left.min(reach)),
        when: match style {
            Style::Relaxed => When::Success,
            Style::FailFast => rng.pick(&[
                When::Success,
                When::Success,
                When::Success,
                When::Failure,
                When::Always,
                When::Unhandled,
            ]),
        },
        condition: match style {
            Style::Relaxed => None,
            Style::FailFast => rng.chance(40).then(|| rng.chance(60)),
        },
        outcome: None,
    });
    let mut node = SketchNode {
        task,
        join,
        route: Route::Parallel,
        chosen: None,
        edges: edges.collect(),
    };
    if style == Style::FailFast && rng.chance(40) {
        node.choose_route(rng);
    }
    node
}

fn random_results(rng: &mut Rng, fault_percent: usize) -> Vec<AttemptResult> {
    let result = |_| match rng.chance(fault_percent) {
        true => rng.pick(&[AttemptResult::Flaky, AttemptResult::Flaky, AttemptResult::Bad]),
        false => AttemptResult::Output,
    };
    (0..5).map(result).collect()
}

impl SketchNode {
    /// Most decisions lead to exactly one edge; some to none, or to several.
    fn choose_route(&mut self, rng: &mut Rng) {
        let spoiled = rng.chance(10);
        let success = |edge: &SketchEdge| edge.when == When::Success;
        let candidates = self.edges.iter().filter(|edge| success(edge)).count();
        let right = rng.below(candidates);
        let success_edges = self.edges.iter_mut().filter(|edge| success(edge)).enumerate();
        match self.task {
            Task::Request { .. } => {
                self.route = Route::Outcome;
                for (number, edge) in success_edges {
                    edge.condition = None;
                    edge.outcome = Some(format!("o{}", if spoiled { number / 2 } else { number }));
                }
                self.chosen = (!spoiled || rng.chance(50)).then(|| format!("o{right}"));
            }
            Task::Pass => {
                self.route = Route::ExactlyOne;
                for (number, edge) in success_edges {
                    edge.condition = Some(if spoiled { rng.chance(50) } else { number == right });
                }
            }
            _ => self.route = Route::FirstMatch,
        }
    }
}
