//! Evaluating conditions and the durations of sleeps.
//!
//! An expression that reads little data and that this process can evaluate itself is decided at once, in the step that needs
//! it. One that reads much (`offload.rs`) or needs the sandbox may take seconds. It runs concurrently: the step that ended the
//! node is committed first, and messages, timers and a stop are handled meanwhile. Evaluations have no effects, so one that is
//! dropped is started again.

use super::{Driver, StepError, step::Step};
use crate::{
    compiled::{Compiled, CompiledNode, Condition, Needs},
    metrics::Metrics,
    offload::LARGE,
    sandbox::Sandbox,
    scope::{Judgement, Payloads, Question},
};
use fermata_core::{Fact, Failure, NodeId, NodeIx, Phase, Run, Verdict, code};
use fermata_expr::{
    Limits,
    template::{Rendered, ValueTemplate},
};
use futures::{FutureExt, future::BoxFuture};
use serde_json::Value;
use std::time::{Duration, Instant};

/// The conditions of one node may together take this many times the limit of one.
const PATIENCE: u32 = 5;

/// The result of an evaluation, now or later.
pub(super) enum Judged {
    /// The result.
    Now(Fact),
    /// The evaluation takes longer.
    Later(BoxFuture<'static, Fact>),
}

/// Conditions of one node that are evaluated together.
struct Evaluation {
    ix: NodeIx,
    /// The edges of the conditions; `None` for the guard.
    edges: Option<Vec<u32>>,
    /// Whether the evaluation ends with the first condition that is true.
    first_only: bool,
    /// How many nodes of the completion order the conditions see.
    sees: u32,
}

impl Evaluation {
    fn conditions<'a>(&self, compiled: &'a Compiled) -> Vec<(u32, &'a (Condition, Needs))> {
        let node = &compiled.nodes[self.ix.at()];
        match &self.edges {
            None => node.guard.iter().map(|guard| (0, guard)).collect(),
            Some(edges) => {
                let condition = |edge: &u32| Some((*edge, node.conditions.get(*edge as usize)?.as_ref()?));
                edges.iter().filter_map(condition).collect()
            }
        }
    }

    /// Evaluates the conditions that this process can evaluate.
    fn evaluate(
        &self,
        compiled: &Compiled,
        payloads: &Payloads,
        run: &Run,
        limits: &Limits,
        metrics: &Metrics,
    ) -> Vec<Judgement> {
        let budget = limits.timeout * PATIENCE;
        let mut now = Instant::now();
        let until = now + budget;
        let mut found = Vec::new();
        for (edge, condition) in self.conditions(compiled) {
            let judgement = match found.is_empty() || now < until {
                true => payloads.judge(compiled, run, condition, edge, self.sees, limits),
                false => Judgement::Here(Question::about(edge, &condition.0).answered(Err(too_long(budget)))),
            };
            let began = std::mem::replace(&mut now, Instant::now());
            if matches!(judgement, Judgement::Here(_)) {
                metrics.condition_evaluated(now - began);
            }
            let last = self.first_only && matches!(&judgement, Judgement::Here(verdict) if verdict.value);
            found.push(judgement);
            if last {
                break;
            }
        }
        found
    }
}

impl Driver {
    /// Evaluates the conditions of these edges, in order.
    pub(super) async fn judge(
        &mut self,
        node: NodeId,
        edges: Vec<u32>,
        first_only: bool,
        step: &Step,
    ) -> Result<Judged, StepError> {
        let Some(ix) = self.compiled.plan.find(node.as_str()) else {
            let verdicts = Vec::new();
            return Ok(Judged::Now(Fact::Judged { node, verdicts }));
        };
        let sees = match self.run.node(ix).phase {
            Phase::Finished { order, .. } => order + 1,
            _ => 0,
        };
        let evaluation = Evaluation {
            ix,
            edges: Some(edges),
            first_only,
            sees,
        };
        self.evaluate_all(evaluation, step, |verdicts| Fact::Judged { node, verdicts })
            .await
    }

    /// Evaluates the guard of a node.
    pub(super) async fn guard(&mut self, node: NodeId, step: &Step) -> Result<Judged, StepError> {
        let ix = self.compiled.plan.find(node.as_str());
        let Some(ix) = ix.filter(|ix| self.compiled.nodes[ix.at()].guard.is_some()) else {
            let verdict = Verdict::plain(0, true);
            return Ok(Judged::Now(Fact::Guarded { node, verdict }));
        };
        let evaluation = Evaluation {
            ix,
            edges: None,
            first_only: false,
            sees: self.run.completed().len() as u32,
        };
        let fact = |mut verdicts: Vec<Verdict>| Fact::Guarded {
            node,
            verdict: verdicts.pop().unwrap_or_else(|| Verdict::plain(0, false)),
        };
        self.evaluate_all(evaluation, step, fact).await
    }

    async fn evaluate_all(
        &mut self,
        evaluation: Evaluation,
        step: &Step,
        fact: impl FnOnce(Vec<Verdict>) -> Fact + Send + 'static,
    ) -> Result<Judged, StepError> {
        let compiled = self.compiled.clone();
        let mut bytes = 0;
        for (_, (_, needs)) in evaluation.conditions(&compiled) {
            self.ensure(needs, evaluation.sees, step).await?;
            bytes = self.payloads.bytes(needs).max(bytes);
        }
        let limits = self.shared.settings.conditions;
        let first_only = evaluation.first_only;
        if bytes > LARGE {
            let (payloads, run, offload) = (self.payloads.clone(), self.run.clone(), self.shared.offload.clone());
            let sandbox = self.sandbox();
            let metrics = self.shared.metrics.clone();
            let counted = metrics.clone();
            let evaluate = move || evaluation.evaluate(&compiled, &payloads, &run, &limits, &counted);
            return Ok(Judged::Later(
                async move {
                    let found = offload.elsewhere(evaluate).await;
                    fact(ask_sandbox(found, first_only, &sandbox, &limits, &metrics).await)
                }
                .boxed(),
            ));
        }
        let metrics = &self.shared.metrics;
        let found = evaluation.evaluate(&compiled, &self.payloads, &self.run, &limits, metrics);
        if found.iter().all(|judgement| matches!(judgement, Judgement::Here(_))) {
            let here = found.into_iter().filter_map(|judgement| match judgement {
                Judgement::Here(verdict) => Some(verdict),
                Judgement::Elsewhere(_) => None,
            });
            return Ok(Judged::Now(fact(here.collect())));
        }
        let (sandbox, metrics) = (self.sandbox(), metrics.clone());
        Ok(Judged::Later(
            async move { fact(ask_sandbox(found, first_only, &sandbox, &limits, &metrics).await) }.boxed(),
        ))
    }

    /// The sandbox, used on behalf of this run's tenant and workflow.
    fn sandbox(&self) -> Sandbox {
        let workflow = &self.compiled.plan.workflow;
        self.shared.sandbox.on_behalf_of(&self.meta.tenant, workflow)
    }

    /// The duration of a sleep.
    pub(super) async fn time(&mut self, ix: NodeIx, step: &Step) -> Result<Judged, StepError> {
        let node = self.compiled.plan.node(ix).id.clone();
        let fact = |rendered: Result<Rendered, Failure>| Fact::Timed {
            node,
            duration_ms: rendered.and_then(|parameters| duration_of(&parameters.value)),
        };
        Ok(match self.render(ix, step).await? {
            Rendering::Now(rendered) => Judged::Now(fact(rendered)),
            Rendering::Later(rendering) => Judged::Later(async move { fact(rendering.await) }.boxed()),
        })
    }

    /// Renders a node's parameters.
    pub(super) async fn render(&mut self, ix: NodeIx, step: &Step) -> Result<Rendering, StepError> {
        self.render_part(ix, |node| node.parameters.as_ref(), step).await
    }

    /// Renders the list of a node that runs one child for each item.
    pub(super) async fn render_list(&mut self, ix: NodeIx, step: &Step) -> Result<Rendering, StepError> {
        self.render_part(ix, |node| node.items.as_ref(), step).await
    }

    async fn render_part(&mut self, ix: NodeIx, part: Part, step: &Step) -> Result<Rendering, StepError> {
        let compiled = self.compiled.clone();
        let Some((_, needs)) = part(&compiled.nodes[ix.at()]) else {
            return Ok(Rendering::Now(Ok(Rendered::default())));
        };
        let sees = match &self.run.node(ix).phase {
            Phase::Open(open) => open.sees,
            _ => self.run.completed().len() as u32,
        };
        self.ensure(needs, sees, step).await?;
        if self.payloads.bytes(needs) <= LARGE {
            let part = part(&compiled.nodes[ix.at()]);
            let began = self.shared.metrics.begin();
            let rendered = render(&compiled, part, &self.payloads, &self.run, sees);
            self.shared.metrics.template_rendered(began);
            return Ok(Rendering::Now(rendered));
        }
        let (payloads, run, offload) = (self.payloads.clone(), self.run.clone(), self.shared.offload.clone());
        let metrics = self.shared.metrics.clone();
        let work = move || {
            let began = metrics.begin();
            let rendered = render(&compiled, part(&compiled.nodes[ix.at()]), &payloads, &run, sees);
            metrics.template_rendered(began);
            rendered
        };
        Ok(Rendering::Later(async move { offload.elsewhere(work).await }.boxed()))
    }
}

/// Rendered parameters, now or later.
pub(super) enum Rendering {
    /// The parameters.
    Now(Result<Rendered, Failure>),
    /// Rendering takes longer.
    Later(BoxFuture<'static, Result<Rendered, Failure>>),
}

/// A template of a node.
type Part = for<'a> fn(&'a CompiledNode) -> Option<&'a (ValueTemplate, Needs)>;

fn render(
    compiled: &Compiled,
    part: Option<&(ValueTemplate, Needs)>,
    payloads: &Payloads,
    run: &Run,
    sees: u32,
) -> Result<Rendered, Failure> {
    match part {
        Some(template) => payloads.render(compiled, run, template, sees),
        None => Ok(Rendered::default()),
    }
}

fn duration_of(parameters: &Value) -> Result<u64, Failure> {
    let duration = parameters.get("durationMs");
    let whole = duration.and_then(Value::as_u64);
    let number = whole.or_else(|| {
        let millis = duration?.as_f64().filter(|millis| *millis >= 0.0);
        millis.map(|millis| millis as u64)
    });
    let number = number.or_else(|| duration?.as_str()?.trim().parse().ok());
    number.ok_or_else(|| {
        let given = duration.map_or("nothing".to_owned(), Value::to_string);
        let what = format!("durationMs must be a number of milliseconds, not {given}");
        Failure::permanent(code::INVALID_PARAMETERS, what)
    })
}

async fn ask_sandbox(
    found: Vec<Judgement>,
    first_only: bool,
    sandbox: &Sandbox,
    limits: &Limits,
    metrics: &Metrics,
) -> Vec<Verdict> {
    let budget = limits.timeout * PATIENCE;
    let mut spent = Duration::ZERO;
    let mut verdicts = Vec::with_capacity(found.len());
    for judgement in found {
        let verdict = match judgement {
            Judgement::Here(verdict) => verdict,
            Judgement::Elsewhere(question) if spent >= budget => question.answered(Err(too_long(budget))),
            Judgement::Elsewhere(question) => {
                let (verdict, took) = question.ask(sandbox, limits).await;
                metrics.condition_evaluated(took);
                spent += took;
                verdict
            }
        };
        let last = first_only && verdict.value;
        verdicts.push(verdict);
        if last {
            break;
        }
    }
    verdicts
}

fn too_long(budget: Duration) -> String {
    format!("the conditions of this node together took longer than {budget:?}")
}
