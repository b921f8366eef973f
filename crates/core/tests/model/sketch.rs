//! A random workflow, and how everything in it will turn out.

use fermata_core::plan::{Overflow, PlanBuilder};
use fermata_core::{Join, Kind, NodeId, NodeIx, OnFailure, Plan, Retry, Route, When};
use std::sync::Arc;

/// A small random generator (xorshift64*), so that a size and a seed say all there is to a case.
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed ^ 0x9E37_79B9_7F4A_7C15 | 1)
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % sides.max(1)
    }

    /// True in `percent` of a hundred cases.
    pub fn happens(&mut self, percent: usize) -> bool {
        self.roll(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())]
    }
}

#[derive(Clone, Copy, PartialEq)]
pub enum Style {
    /// Any edges; an unhandled failure stops the run.
    FailFast,
    /// As Runlater has it: edges for success, joins that want all or ask a guard.
    Relaxed,
}

pub struct Sketch {
    pub nodes: Vec<SketchNode>,
    pub relaxed: bool,
    pub timeout_ms: Option<u64>,
    /// The position of each node in the plan; edges lead from low numbers to high ones, the plan is shuffled.
    places: Vec<usize>,
}

pub struct SketchNode {
    pub task: Task,
    pub join: SketchJoin,
    pub first_match: bool,
    pub edges: Vec<SketchEdge>,
}

pub enum Task {
    /// An action, with what each of its attempts gives; the last entry holds for all later ones.
    Action { max_attempts: u32, gives: Vec<Gives> },
    /// A sleep; `None` if its duration cannot be rendered.
    Sleep { millis: Option<u64> },
    /// A wait; answered if the world cares to.
    Wait { timeout_ms: Option<u64> },
}

#[derive(Clone, Copy, PartialEq)]
pub enum Gives {
    Output,
    Flaky,
    Bad,
}

#[derive(Clone, Copy)]
pub enum SketchJoin {
    Any,
    All,
    /// With what its condition will say.
    Guard(bool),
}

pub struct SketchEdge {
    pub to: usize,
    pub when: When,
    /// What its condition will say, if it has one.
    pub condition: Option<bool>,
}

impl SketchNode {
    /// How it will go, if it runs and nobody stops it; a wait depends on who answers.
    pub fn will_succeed(&self) -> Option<bool> {
        match &self.task {
            Task::Action { max_attempts, gives } => {
                let attempts = (*max_attempts).max(1) as usize;
                let tried = gives.iter().take(attempts);
                let mut tried = tried.skip_while(|gives| **gives == Gives::Flaky);
                Some(tried.next() == Some(&Gives::Output))
            }
            Task::Sleep { millis } => Some(millis.is_some()),
            Task::Wait { .. } => None,
        }
    }
}

pub fn name(at: usize) -> String {
    format!("n{at}")
}

impl Sketch {
    pub fn random(size: usize, seed: u64, style: Style) -> Sketch {
        let mut rng = Rng::new(seed);
        let reach = 1 + rng.roll(12);
        let trouble = rng.pick(&[0, 5, 30]);
        let nodes = (0..size).map(|at| random_node(&mut rng, at, size, reach, trouble, style));
        let nodes: Vec<_> = nodes.collect();
        let mut places: Vec<usize> = (0..size).collect();
        for at in (1..size).rev() {
            places.swap(at, rng.roll(at + 1));
        }
        Sketch {
            nodes,
            relaxed: style == Style::Relaxed,
            timeout_ms: None,
            places,
        }
    }

    /// Gives the run a deadline, most of the time.
    pub fn with_deadline(mut self, seed: u64) -> Sketch {
        let mut rng = Rng::new(seed.rotate_left(7));
        self.timeout_ms = rng.happens(70).then(|| rng.roll(30_000) as u64);
        self
    }

    pub fn ix(&self, at: usize) -> NodeIx {
        NodeIx(self.places[at] as u32)
    }

    /// The number of the node called `id`.
    pub fn at(&self, id: &NodeId) -> usize {
        id.as_str()[1..].parse().expect("a name of ours")
    }

    pub fn plan(&self) -> Arc<Plan> {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|at| self.places[*at]);
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
        Arc::new(plan.build().expect("edges lead upwards"))
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
            if self.first_match {
                node.route = Route::FirstMatch;
            }
        });
        self.edges.iter().fold(plan, |plan, edge| {
            plan.edge(&name(edge.to), edge.when, edge.condition.map(|_| "condition"))
        })
    }
}

fn random_node(rng: &mut Rng, at: usize, size: usize, reach: usize, trouble: usize, style: Style) -> SketchNode {
    let task = match rng.roll(10) {
        0 => Task::Sleep {
            millis: (!rng.happens(trouble)).then(|| rng.roll(3000) as u64),
        },
        1 => Task::Wait {
            timeout_ms: rng.happens(60).then(|| rng.roll(5000) as u64),
        },
        _ => Task::Action {
            max_attempts: rng.roll(5) as u32,
            gives: (0..5)
                .map(|_| match rng.happens(trouble) {
                    true => rng.pick(&[Gives::Flaky, Gives::Flaky, Gives::Bad]),
                    false => Gives::Output,
                })
                .collect(),
        },
    };
    let guard = rng.happens(50);
    let join = match (style, rng.roll(10)) {
        (_, 0) => SketchJoin::Guard(guard),
        (Style::Relaxed, 1..=3) => SketchJoin::Guard(guard),
        (Style::Relaxed, _) | (_, 1..=3) => SketchJoin::All,
        _ => SketchJoin::Any,
    };
    let left = size - at - 1;
    let count = if left == 0 { 0 } else { rng.roll(5) };
    let edges = (0..count).map(|_| SketchEdge {
        to: at + 1 + rng.roll(left.min(reach)),
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
            Style::FailFast => rng.happens(40).then(|| rng.happens(60)),
        },
    });
    SketchNode {
        task,
        join,
        first_match: false,
        edges: edges.collect(),
    }
    .route(style == Style::FailFast && rng.happens(40))
}

impl SketchNode {
    fn route(mut self, first_match: bool) -> Self {
        self.first_match = first_match;
        self
    }
}
