//! Evaluating conditions.
//!
//! What this process can evaluate itself is decided at once, in the step that asked for it. What only the sandbox
//! can may take seconds, so it is asked beside everything else: the step that ended the node is committed first,
//! and mail, time and a stop are heeded meanwhile. Having no effects, a question that is forgotten is asked again.

use super::{Driver, Trouble, step::Step};
use crate::{
    sandbox::Sandbox,
    scope::{Judgement, Question},
};
use fermata_core::{Fact, NodeId, Phase, Verdict};
use fermata_expr::Limits;
use futures::{FutureExt, future::BoxFuture};
use std::time::Duration;

/// The conditions of one node together may take as long as this many of them.
const PATIENCE: u32 = 5;

/// What becomes of an evaluation.
pub(super) enum Judged {
    /// It is known.
    Now(Fact),
    /// It will be known.
    Later(BoxFuture<'static, Fact>),
}

impl Driver {
    /// Evaluates the conditions of these edges, in order.
    pub(super) async fn judge(
        &mut self,
        node: NodeId,
        edges: Vec<u32>,
        first_only: bool,
        step: &Step,
    ) -> Result<Judged, Trouble> {
        let compiled = self.compiled.clone();
        let mut found = Vec::new();
        if let Some(ix) = compiled.plan.find(node.as_str()) {
            let sees = match self.run.node(ix).phase {
                Phase::Finished { order, .. } => order + 1,
                _ => 0,
            };
            for edge in edges {
                let Some(Some(condition)) = compiled.nodes[ix.at()].conditions.get(edge as usize) else {
                    continue;
                };
                self.ensure(&condition.1, sees, step).await?;
                let limits = &self.shared.settings.conditions;
                let judgement = self.payloads.judge(&self.run, condition, edge, sees, limits);
                let last = first_only && matches!(&judgement, Judgement::Here(verdict) if verdict.value);
                found.push(judgement);
                if last {
                    break;
                }
            }
        }
        Ok(self.answer(found, first_only, |verdicts| Fact::Judged { node, verdicts }))
    }

    /// Evaluates the guard of a node.
    pub(super) async fn guard(&mut self, node: NodeId, step: &Step) -> Result<Judged, Trouble> {
        let compiled = self.compiled.clone();
        let sees = self.run.completed().len() as u32;
        let ix = compiled.plan.find(node.as_str());
        let judgement = match ix.and_then(|ix| compiled.nodes[ix.at()].guard.as_ref()) {
            None => Judgement::Here(Verdict::plain(0, true)),
            Some(guard) => {
                self.ensure(&guard.1, sees, step).await?;
                let limits = &self.shared.settings.conditions;
                self.payloads.judge(&self.run, guard, 0, sees, limits)
            }
        };
        Ok(self.answer(vec![judgement], false, |mut verdicts| Fact::Guarded {
            node,
            verdict: verdicts.pop().unwrap_or_else(|| Verdict::plain(0, false)),
        }))
    }

    fn answer(
        &self,
        found: Vec<Judgement>,
        first_only: bool,
        fact: impl FnOnce(Vec<Verdict>) -> Fact + Send + 'static,
    ) -> Judged {
        if found.iter().all(|judgement| matches!(judgement, Judgement::Here(_))) {
            let here = found.into_iter().filter_map(|judgement| match judgement {
                Judgement::Here(verdict) => Some(verdict),
                Judgement::Elsewhere(_) => None,
            });
            return Judged::Now(fact(here.collect()));
        }
        let shared = &self.shared;
        let sandbox = shared
            .sandbox
            .on_behalf_of(&self.meta.tenant, &self.compiled.plan.workflow);
        let limits = shared.settings.conditions;
        Judged::Later(async move { fact(ask_all(found, first_only, &sandbox, &limits).await) }.boxed())
    }
}

async fn ask_all(found: Vec<Judgement>, first_only: bool, sandbox: &Sandbox, limits: &Limits) -> Vec<Verdict> {
    let budget = limits.timeout * PATIENCE;
    let mut spent = Duration::ZERO;
    let mut verdicts = Vec::with_capacity(found.len());
    for judgement in found {
        let verdict = match judgement {
            Judgement::Here(verdict) => verdict,
            Judgement::Elsewhere(question) if spent >= budget => too_late(question, budget),
            Judgement::Elsewhere(question) => {
                let (verdict, took) = question.ask(sandbox, limits).await;
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

fn too_late(question: Question, budget: Duration) -> Verdict {
    question.answered(Err(format!(
        "the conditions of this node together took longer than {budget:?}"
    )))
}
