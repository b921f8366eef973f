//! The data of a plan that the lines about steps need.

use super::clean;
use fermata_core::{AnswerRule, Event, Kind, Node, NodeId, Plan, Route, SkipReason, Verdict};
use fermata_expr::logic::shown;
use fermata_runtime::{Mask, SkipReasons};
use std::{collections::HashMap, sync::Arc};

/// The widest that a column gets.
const WIDEST: usize = 40;

/// The steps of a plan. The default is for a plan that is not known: columns are not aligned, and skipped steps have
/// short reasons.
#[derive(Default)]
pub struct Steps {
    plan: Option<Arc<Plan>>,
    skips: Option<SkipReasons>,
    by_id: HashMap<NodeId, Step>,
    id_width: usize,
    action_width: usize,
}

struct Step {
    action: String,
    max_attempts: u32,
    waits: bool,
    child: bool,
}

impl Steps {
    /// The steps of `plan`. `mask` hides secrets among the values that conditions read.
    pub fn of(plan: Arc<Plan>, mask: Mask) -> Steps {
        let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0).min(WIDEST);
        let step = |node: &Node| {
            let step = Step {
                action: clean(node.kind.action_type()),
                max_attempts: node.policies.retry.max_attempts.max(1),
                waits: matches!(node.kind, Kind::Wait { .. }),
                child: matches!(&node.kind, Kind::Request { answer, .. } if *answer == AnswerRule::Child),
            };
            (node.id.clone(), step)
        };
        let by_id: HashMap<_, _> = plan.nodes.iter().map(step).collect();
        Steps {
            skips: Some(SkipReasons::new(plan.clone(), mask)),
            plan: Some(plan),
            id_width: width(&mut by_id.keys().map(|id| id.as_str().chars().count())),
            action_width: width(&mut by_id.values().map(|step| step.action.chars().count())),
            by_id,
        }
    }

    /// How many attempts a step may take, if it is known.
    pub(super) fn most_attempts(&self, node: &NodeId) -> Option<u32> {
        self.by_id.get(node).map(|step| step.max_attempts)
    }

    /// Whether a step waits for a callback.
    pub(super) fn waits(&self, node: &NodeId) -> bool {
        self.by_id.get(node).is_some_and(|step| step.waits)
    }

    /// What a step waits for that has sent its request.
    pub(super) fn awaited(&self, node: &NodeId) -> &'static str {
        match self.by_id.get(node).is_some_and(|step| step.child) {
            true => "for its child run",
            false => "for an answer",
        }
    }

    /// Takes in the next event of the run, for [`Steps::why_skipped`].
    pub(super) fn note(&mut self, event: &Event) {
        if let Some(skips) = &mut self.skips {
            skips.note(event);
        }
    }

    /// Why a step was skipped.
    pub(super) fn why_skipped(&self, node: &NodeId, reason: SkipReason) -> String {
        let why = self.skips.as_ref().and_then(|skips| skips.why(node));
        why.unwrap_or_else(|| {
            let short = match reason {
                SkipReason::DeadPath => "no edge to it was taken",
                SkipReason::Guard => "its condition is false",
                SkipReason::Stopped => "the run was stopped",
            };
            short.to_owned()
        })
    }

    /// The condition that a verdict is about, in quotes, with the step it leads to.
    pub(super) fn condition(&self, node: &NodeId, verdict: &Verdict) -> String {
        let edge = self.plan.as_ref().and_then(|plan| {
            let edge = plan.node(plan.find(node.as_str())?).edges.get(verdict.edge as usize)?;
            let target = &plan.node(edge.target).id;
            let condition = shown(edge.condition.as_ref()?);
            Some(format!("the condition `{condition}` for `{target}`"))
        });
        edge.unwrap_or_else(|| "a condition".to_owned())
    }

    /// What a condition of this step does if it cannot be evaluated.
    pub(super) fn failed_condition(&self, node: &NodeId) -> &'static str {
        let plan = self.plan.as_ref();
        let node = plan.and_then(|plan| Some(plan.node(plan.find(node.as_str())?)));
        match node.map(|node| node.route) {
            Some(Route::ExactlyOne) => "fails the run",
            _ => "counts as false",
        }
    }

    /// The action of a step, as its attempts are recorded.
    pub(super) fn action(&self, node: &NodeId) -> &str {
        self.by_id.get(node).map_or("", |step| step.action.as_str())
    }

    /// The widths of the columns for ids and actions.
    pub(super) fn widths(&self) -> (usize, usize) {
        (self.id_width, self.action_width)
    }
}
