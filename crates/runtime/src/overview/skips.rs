//! Why nodes were skipped, in words.

use super::NodeOverview;
use fermata_core::{Event, Join, Node, NodeId, Outcome, Phase, Run, SkipReason, Verdict};
use std::collections::HashMap;

/// What the journal says of the nodes that were skipped.
#[derive(Default)]
pub(super) struct Skips(HashMap<NodeId, (SkipReason, Option<Verdict>)>);

impl Skips {
    pub fn note(&mut self, event: &Event) {
        if let Event::Skipped { node, reason, verdict } = event {
            self.0.insert(node.clone(), (*reason, verdict.clone()));
        }
    }

    /// Adds the reasons to the views of a run's nodes, which stand in the order of its plan.
    pub fn explain(&self, state: &Run, views: &mut [NodeOverview]) {
        if self.0.is_empty() {
            return;
        }
        let plan = state.plan();
        let mut needed = vec![Vec::new(); plan.nodes.len()];
        for ix in plan.indices() {
            for edge in &plan.node(ix).edges {
                needed[edge.target.at()].push(ix);
            }
        }
        for ix in plan.indices() {
            let node = plan.node(ix);
            let Some((reason, verdict)) = self.0.get(&node.id) else {
                continue;
            };
            let why = match reason {
                SkipReason::Stopped => "the run was stopped".to_owned(),
                SkipReason::Guard => condition(node, verdict.as_ref()),
                SkipReason::DeadPath if node.join == Join::All => {
                    let missing = needed[ix.at()]
                        .iter()
                        .filter(|parent| !succeeded(&state.node(**parent).phase));
                    let listed: Vec<String> = missing
                        .map(|parent| format!("`{}` ({})", plan.node(*parent).id, views[parent.at()].status))
                        .collect();
                    format!("it needs what did not succeed: {}", listed.join(", "))
                }
                SkipReason::DeadPath => "no path led to it".to_owned(),
            };
            views[ix.at()].skip_reason = Some(why);
        }
    }
}

fn succeeded(phase: &Phase) -> bool {
    matches!(
        phase,
        Phase::Finished {
            outcome: Outcome::Succeeded(_),
            ..
        }
    )
}

/// A condition that is false, and the values it saw.
fn condition(node: &Node, verdict: Option<&Verdict>) -> String {
    let Join::Guard(source) = &node.join else {
        return "its condition is false".to_owned();
    };
    match verdict {
        Some(Verdict { error: Some(error), .. }) => format!("its condition could not be evaluated: {error}"),
        Some(verdict) if !verdict.saw.is_empty() => {
            let seen = verdict.saw.iter().map(|(path, value)| format!("{path} is {value}"));
            let seen: Vec<String> = seen.collect();
            format!("its condition `{source}` is false: {}", seen.join(", "))
        }
        _ => format!("its condition `{source}` is false: what it reads is not there"),
    }
}
