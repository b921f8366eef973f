//! What a seed decides: workflows, requests and their times, and the rates of faults.

use super::rng::{Rng, table};
use fermata_core::{
    AnswerRule, Each, Join, Kind, NodeId, OnFailure, OnItemFailure, Plan, Retry, Route, RunOutputs, When,
    plan::{GraphError, Name, PlanBuilder, Source},
};
use serde_json::{Value, json};
use std::time::Duration;

/// The action that every plan here calls.
pub const ACTION: &str = "sim.step";
/// The action that starts child runs.
const CHILD: &str = "core.subworkflow";
/// The parameter with which the action gets the whole state.
pub const WHOLE_STATE: &str = "whole";
/// After this simulated time there are no more faults.
pub const HORIZON_MS: u64 = 25_000;

/// The rate of each fault, per thousand calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rates {
    pub crash_before: u64,
    pub crash_after: u64,
    pub unknown_applied: u64,
    pub unknown_lost: u64,
    pub fenced: u64,
    pub conflict: u64,
    pub read_error: u64,
    pub claim_error: u64,
    /// Claims that are executed and never answered.
    pub claim_lost: u64,
    pub heartbeat_error: u64,
    pub slow: u64,
    /// Callbacks and cancels right before and after a commit.
    pub interfere: u64,
    /// Callers that stop waiting for a start before it is answered.
    pub impatient: u64,
    /// Hints of the store that do not arrive.
    pub lost_hints: u64,
}

/// The fault at one commit of a fixed scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFault {
    CrashBefore,
    CrashAfter,
    UnknownApplied,
    UnknownLost,
    Fenced,
    FencedAndKept,
    Conflict,
}

/// A request for a run, with what its caller does later.
#[derive(Debug, Clone)]
pub struct PlannedRun {
    pub request: String,
    pub tenant: String,
    pub workflow: usize,
    pub trigger: Value,
    /// When it is requested, possibly several times.
    pub starts_ms: Vec<u64>,
    /// Callbacks for these nodes.
    pub callbacks: Vec<(u64, NodeId)>,
    pub cancel_ms: Option<u64>,
}

/// A fault of a process, at any moment.
#[derive(Debug, Clone, Copy)]
pub enum ProcessFault {
    Stop,
    Crash,
}

/// Everything a seed decides before the first step.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub seed: u64,
    pub plans: Vec<Plan>,
    pub planned_runs: Vec<PlannedRun>,
    pub rates: Rates,
    /// Processes that work on the same store.
    pub slots: usize,
    /// Whether a restart removes the runners of earlier processes.
    pub reopen: bool,
    pub process_faults: Vec<(u64, usize, ProcessFault)>,
    pub commit_fault: Option<(u64, CommitFault)>,
    /// The fixed ending of every call of this request's run.
    pub fixed_ending: Option<(String, Ending)>,
    /// Whether runs are paused and resumed.
    pub has_pauses: bool,
    /// Cancels must be read within this many milliseconds, also under faults.
    pub prompt_ms: Option<u64>,
    pub max_active_runs: usize,
    pub max_parallel_actions: usize,
    pub park_after: Duration,
}

impl Scenario {
    pub fn of(seed: u64) -> Scenario {
        let mut rng = Rng::new(seed);
        let count = rng.between(1, 2);
        let plans: Vec<Plan> = (0..count)
            .filter_map(|at| {
                // A workflow may start the ones after it.
                let child = (at + 1 < count).then(|| format!("w{}", at + 1));
                plan(&mut rng, &format!("w{at}"), child.as_deref()).ok()
            })
            .collect();
        let planned_runs = (0..rng.between(1, 4))
            .map(|at| planned_run(&mut rng, at, &plans))
            .collect();
        let slots = if rng.chance(250) { 2 } else { 1 };
        let rates = rates(&mut rng);
        let mut process_faults = Vec::new();
        if rates.is_rough() {
            for _ in 0..rng.below(3) {
                let fault = rng.pick(&[ProcessFault::Stop, ProcessFault::Stop, ProcessFault::Crash]);
                process_faults.push((rng.below(HORIZON_MS), rng.below(slots as u64) as usize, fault));
            }
        }
        Scenario {
            seed,
            plans,
            planned_runs,
            rates,
            slots,
            reopen: slots == 1 && rng.chance(700),
            process_faults,
            commit_fault: None,
            fixed_ending: None,
            has_pauses: true,
            prompt_ms: None,
            max_active_runs: rng.pick(&[1, 2, 100, 100]),
            max_parallel_actions: rng.pick(&[1, 2, 10, 10]),
            park_after: Duration::from_millis(rng.pick(&[0, 200, 2000])),
        }
    }

    /// A small scenario with all kinds of nodes, and a fault at exactly one commit.
    pub fn fixed(cancelled: bool, commit_fault: Option<(u64, CommitFault)>) -> Scenario {
        let retried = Retry {
            max_attempts: 3,
            base_delay_ms: 700,
            backoff_factor: 2.0,
            jitter: true,
        };
        let plan = built("w0")
            .action_with(
                "n0",
                ACTION,
                json!({ "own": "{{ trigger.x }}", "from": "{{ context.data['n0'].v ?? 'none' }}" }),
            )
            .then("n1")
            .then("n2")
            .then("n3")
            .action_with(
                "n1",
                ACTION,
                json!({ "own": 1, "from": "{{ context.data['n0'].v ?? 'none' }}" }),
            )
            .with(|node| node.policies.retry = retried)
            .edge("n4", When::Always, None)
            .node("n2", Kind::Wait { timeout_ms: Some(9000) })
            .edge("n4", When::Success, None)
            .node(
                "n3",
                Kind::Sleep {
                    action: "core.delay".to_owned(),
                    parameters: json!({ "durationMs": 3000 }),
                    timeout_ms: None,
                },
            )
            .edge("n4", When::Success, Some("context.data['n0'].v > -1"))
            .action_with(
                "n4",
                ACTION,
                json!({ "own": 4, "from": "{{ context.data['n1'].v ?? 'none' }}" }),
            )
            .build();
        let planned = PlannedRun {
            request: "r0".to_owned(),
            tenant: String::new(),
            workflow: 0,
            trigger: json!({ "x": 1 }),
            starts_ms: vec![0, 40, 4000],
            callbacks: vec![(1500, "n2".into()), (1600, "n2".into())],
            cancel_ms: cancelled.then_some(2500),
        };
        Scenario {
            seed: 4,
            plans: plan.into_iter().collect(),
            planned_runs: vec![planned],
            rates: Rates::default(),
            slots: 1,
            reopen: true,
            process_faults: Vec::new(),
            commit_fault,
            fixed_ending: None,
            has_pauses: false,
            prompt_ms: None,
            max_active_runs: 100,
            max_parallel_actions: 10,
            park_after: Duration::from_millis(500),
        }
    }

    /// No faults except for one run, whose first action crashes its process.
    pub fn poisoned(seed: u64) -> Scenario {
        let mut rng = Rng::new(seed ^ 0x0dead);
        let mut scenario = Scenario::of(seed);
        let slow_actions = |plan: &Plan| plan.nodes.iter().any(|node| matches!(node.kind, Kind::Action { .. }));
        scenario.plans.retain(slow_actions);
        let deadly = built("deadly")
            .action_with("n0", ACTION, json!({ "own": 0, "from": "none" }))
            .with(|node| node.policies.timeout_ms = 3000);
        scenario.plans.extend(deadly.build());
        let last = scenario.plans.len() - 1;
        scenario.planned_runs.retain(|planned| planned.workflow < last);
        for at in 0..rng.between(1, 4) {
            scenario
                .planned_runs
                .push(planned_run(&mut rng, 10 + at, &scenario.plans[..last.max(1)]));
        }
        scenario.planned_runs.push(PlannedRun {
            request: "killer".to_owned(),
            tenant: String::new(),
            workflow: last,
            trigger: json!({}),
            starts_ms: vec![rng.below(3000)],
            callbacks: Vec::new(),
            cancel_ms: None,
        });
        Scenario {
            rates: Rates::default(),
            process_faults: Vec::new(),
            fixed_ending: Some(("killer".to_owned(), Ending::Kill)),
            max_active_runs: 100,
            ..scenario
        }
    }

    /// A run is cancelled while its action hangs, and no hint arrives.
    pub fn lost_hints() -> Scenario {
        let plan = built("w0")
            .action_with("n0", ACTION, json!({ "own": 0, "from": "none" }))
            .with(|node| node.policies.timeout_ms = 3_600_000);
        let mut scenario = Scenario::fixed(false, None);
        scenario.plans = plan.build().into_iter().collect();
        scenario.planned_runs[0].callbacks.clear();
        scenario.planned_runs[0].cancel_ms = Some(5000);
        Scenario {
            rates: Rates {
                lost_hints: 1000,
                ..Rates::default()
            },
            fixed_ending: Some(("r0".to_owned(), Ending::Hang)),
            prompt_ms: Some(1100),
            ..scenario
        }
    }

    /// Whether there are no faults at all.
    pub fn is_calm(&self) -> bool {
        !self.rates.is_rough()
            && self.process_faults.is_empty()
            && self.commit_fault.is_none()
            && self.fixed_ending.is_none()
    }

    /// How an attempt behaves when it is called for the `repetition`th time.
    pub fn script(&self, request: &str, node: &str, attempt: u32, repetition: u32) -> Script {
        let mut rng = table(
            self.seed,
            &[request, node, &attempt.to_string(), &repetition.to_string()],
        );
        let millis = match rng.below(10) {
            0..=3 => None,
            4..=7 => Some(rng.between(1, 60)),
            _ => Some(rng.between(100, 5000)),
        };
        let ending = match rng.below(100) {
            0..=64 => Ending::Success,
            65..=86 => Ending::Flaky(rng.chance(200).then_some(1500)),
            87..=93 => Ending::Broken,
            _ => Ending::Hang,
        };
        // It crashes the process before its probation would end.
        let (millis, ending) = match &self.fixed_ending {
            Some((doomed, ending)) if doomed == request => (millis.map(|millis| millis.min(2500)), *ending),
            _ => (millis, ending),
        };
        let link = rng.chance(200).then(|| format!("thing-{}", rng.below(3)));
        Script {
            millis,
            ending,
            link,
            obedient: rng.chance(500) || self.prompt_ms.is_some(),
            value: rng.below(10),
        }
    }
}

/// The script of one call of the action.
#[derive(Debug, Clone)]
pub struct Script {
    /// How long it takes; with `None` it does not even yield.
    pub millis: Option<u64>,
    pub ending: Ending,
    pub link: Option<String>,
    /// Whether it returns when the run stops.
    pub obedient: bool,
    pub value: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Success,
    /// Fails with a retriable failure, sometimes with a minimum delay in milliseconds.
    Flaky(Option<u64>),
    Broken,
    /// Never returns.
    Hang,
    /// Crashes its process.
    Kill,
}

impl Rates {
    fn is_rough(&self) -> bool {
        self.crash_before
            + self.crash_after
            + self.unknown_applied
            + self.unknown_lost
            + self.fenced
            + self.conflict
            + self.read_error
            + self.claim_error
            + self.claim_lost
            + self.heartbeat_error
            + self.lost_hints
            > 0
    }
}

/// Some seeds have no faults, some have one kind, most have several.
fn rates(rng: &mut Rng) -> Rates {
    let mut rates = Rates {
        slow: rng.pick(&[0, 100, 300]),
        interfere: rng.pick(&[0, 20, 60]),
        ..Rates::default()
    };
    if rng.chance(120) {
        return rates;
    }
    let mut some = |often: &[u64]| if rng.chance(500) { rng.pick(often) } else { 0 };
    rates.crash_before = some(&[10, 40, 100]);
    rates.crash_after = some(&[10, 40, 100, 200]);
    rates.unknown_applied = some(&[20, 80, 200]);
    rates.unknown_lost = some(&[20, 80, 200]);
    rates.fenced = some(&[20, 60]);
    rates.conflict = some(&[20, 60]);
    rates.read_error = some(&[30, 150, 400]);
    rates.claim_error = some(&[50, 200]);
    rates.claim_lost = some(&[50, 300]);
    rates.heartbeat_error = some(&[100, 700]);
    rates.impatient = some(&[100, 400]);
    rates.lost_hints = some(&[0, 0, 300]);
    rates
}

fn planned_run(rng: &mut Rng, at: u64, plans: &[Plan]) -> PlannedRun {
    let workflow = rng.below(plans.len() as u64) as usize;
    let first = rng.below(4000);
    let mut starts_ms = vec![first];
    for _ in 0..rng.below(3) {
        let again = rng.pick(&[0, 1, 5, 100, 2000, 9000, 20_000]);
        starts_ms.push(first + again);
    }
    let mut callbacks = Vec::new();
    for node in plans[workflow].nodes.iter() {
        let is_child = node.kind.awaits_children();
        if matches!(node.kind, Kind::Wait { .. } | Kind::Request { .. }) && !is_child {
            for _ in 0..rng.below(4) {
                callbacks.push((first + rng.below(15_000), node.id.clone()));
            }
        }
    }
    PlannedRun {
        request: format!("r{at}"),
        tenant: rng.pick(&["", "", "t1"]).to_owned(),
        workflow,
        trigger: json!({ "x": rng.below(3), "items": (0..rng.below(6)).collect::<Vec<_>>() }),
        starts_ms,
        callbacks,
        cancel_ms: rng.chance(250).then(|| first + rng.below(15_000)),
    }
}

fn plan(rng: &mut Rng, id: &str, child: Option<&str>) -> Result<Plan, GraphError> {
    let stateful = rng.chance(400);
    let count = rng.between(1, if stateful { 24 } else { 12 });
    let continues = rng.chance(400);
    let timeout = rng.chance(350).then(|| rng.between(1500, 40_000));
    let mut builder = built(id).plan(|plan| {
        plan.on_failure = if continues {
            OnFailure::Continue
        } else {
            OnFailure::FailFast
        };
        plan.timeout_ms = timeout;
        if stateful {
            plan.scope.names.push(Name::new("state", Source::State));
            plan.outputs = RunOutputs::Changed;
        }
    });
    for at in 0..count {
        builder = node(rng, builder, at, child, stateful);
        for target in at + 1..count {
            // Mostly short edges, so that most nodes are reached and joins have several parents.
            let near = if target == at + 1 { 700 } else { 180 };
            if rng.chance(near) {
                let when = rng.pick(&[
                    When::Success,
                    When::Success,
                    When::Success,
                    When::Always,
                    When::Failure,
                    When::Unhandled,
                ]);
                let condition = rng.chance(250).then(|| condition(rng, at + 1, stateful));
                builder = builder.edge(&format!("n{target}"), when, condition.as_deref());
            }
        }
    }
    builder.build()
}

/// A condition that compares the value of a node, or of the state, with a number. The checks parse both from its text.
fn condition(rng: &mut Rng, before: u64, stateful: bool) -> String {
    let node = rng.below(before);
    let above = rng.pick(&[-1, 2, 4]);
    match stateful && rng.chance(500) {
        true => format!("state.v > {above}"),
        false => format!("context.data['n{node}'].v > {above}"),
    }
}

/// A node that starts a child, or one for each item of a list. Without a trigger, the child gets the state.
fn child_node(rng: &mut Rng, builder: PlanBuilder, id: &str, workflow: &str) -> PlanBuilder {
    let mut parameters = json!({ "workflowId": workflow });
    if rng.chance(500) {
        parameters["trigger"] = json!({ "x": 1 });
    }
    if rng.chance(120) {
        return builder.action_with(id, CHILD, parameters);
    }
    let each = Each {
        items: "{{ trigger.items }}".to_owned(),
        max_concurrency: rng.between(1, 3) as u32,
        max_items: 5,
        on_item_failure: rng.pick(&[OnItemFailure::Fail, OnItemFailure::Continue]),
    };
    builder.node(
        id,
        Kind::Request {
            action: CHILD.to_owned(),
            parameters,
            answer: match rng.chance(350) {
                true => AnswerRule::Children(each),
                false => AnswerRule::Child,
            },
            timeout_ms: rng.pick(&[None, None, None, Some(4000)]),
            retry_on_timeout: rng.chance(300),
            timeout_code: "REQUEST_TIMEOUT".to_owned(),
        },
    )
}

/// An empty plan whose expressions see what those of DataWorkflows documents see.
fn built(id: &str) -> PlanBuilder {
    PlanBuilder::new(id).plan(|plan| plan.scope = fermata_dialects::dataworkflows::scope())
}

fn node(rng: &mut Rng, builder: PlanBuilder, at: u64, child: Option<&str>, stateful: bool) -> PlanBuilder {
    let id = format!("n{at}");
    let seen = format!("{{{{ context.data['n{}'].v ?? 'none' }}}}", rng.below(at + 1));
    let starts_child = child.filter(|_| rng.chance(250));
    let drawn = if starts_child.is_some() { 100 } else { rng.below(100) };
    let mut parameters = json!({ "own": at, "x": "{{ trigger.x }}", "from": seen });
    if stateful {
        parameters["written"] = json!("{{ state.v ?? 'none' }}");
        parameters[WHOLE_STATE] = json!(rng.chance(500));
    }
    let builder = match drawn {
        100 => child_node(rng, builder, &id, starts_child.unwrap_or_default()),
        0..=54 => builder.action_with(&id, ACTION, parameters),
        55..=64 => builder.node(
            &id,
            Kind::Request {
                action: ACTION.to_owned(),
                parameters,
                answer: AnswerRule::Any,
                timeout_ms: rng.pick(&[None, Some(700), Some(4000), Some(20_000)]),
                retry_on_timeout: rng.chance(500),
                timeout_code: "REQUEST_TIMEOUT".to_owned(),
            },
        ),
        65..=81 => {
            let millis = rng.pick(&[0, 1, 50, 1000, 2500, 8000, 45_000]);
            let millis = match rng.chance(300) {
                true => json!(format!(
                    "{{{{ context.data['n{}'].v ?? {millis} }}}}",
                    rng.below(at + 1)
                )),
                false => json!(millis),
            };
            let parameters = json!({ "durationMs": millis });
            builder.node(
                &id,
                Kind::Sleep {
                    action: "core.delay".to_owned(),
                    parameters,
                    timeout_ms: rng.pick(&[None, None, None, Some(500)]),
                },
            )
        }
        _ => {
            let timeout_ms = rng.pick(&[None, Some(1), Some(700), Some(4000), Some(20_000)]);
            builder.node(&id, Kind::Wait { timeout_ms })
        }
    };
    let retry = Retry {
        max_attempts: rng.pick(&[0, 1, 2, 3, 4]) as u32,
        base_delay_ms: rng.pick(&[0, 10, 800, 3000]),
        backoff_factor: 2.0,
        jitter: rng.chance(500),
    };
    let timeout_ms = rng.pick(&[500, 3000, 6000]);
    let rerender = rng.chance(300);
    let route = rng.pick(&[Route::Parallel, Route::Parallel, Route::FirstMatch]);
    let join = match rng.below(10) {
        0..=4 => Join::Any,
        5..=7 => Join::All,
        _ if at > 0 => Join::Guard(condition(rng, at, stateful)),
        _ => Join::Any,
    };
    // Nodes that do not merge stand for decisions.
    let merges = stateful && rng.chance(800);
    builder.with(|node| {
        node.merges_into_state = merges;
        node.policies.retry = retry;
        node.policies.timeout_ms = timeout_ms;
        node.policies.rerender_on_retry = rerender;
        node.route = route;
        node.join = join;
    })
}
