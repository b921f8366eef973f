//! What a plan says of its steps, for those who show them.

use super::clean;
use fermata_core::{Join, Kind, Node, NodeId, Plan};
use std::collections::HashMap;

/// The widest that a column gets.
const WIDEST: usize = 40;

/// The steps of a plan; without any, lines can be drawn too, only less neatly.
#[derive(Default)]
pub struct Steps {
    by_id: HashMap<NodeId, Step>,
    id_width: usize,
    action_width: usize,
}

struct Step {
    action: String,
    max_attempts: u32,
    waits: bool,
    needs_all: bool,
}

impl Steps {
    /// The steps of `plan`.
    pub fn of(plan: &Plan) -> Steps {
        let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0).min(WIDEST);
        let step = |node: &Node| {
            let step = Step {
                action: clean(node.kind.action_type()),
                max_attempts: node.policies.retry.max_attempts.max(1),
                waits: matches!(node.kind, Kind::Wait { .. }),
                needs_all: node.join == Join::All,
            };
            (node.id.clone(), step)
        };
        let by_id: HashMap<_, _> = plan.nodes.iter().map(step).collect();
        Steps {
            id_width: width(&mut by_id.keys().map(|id| id.as_str().chars().count())),
            action_width: width(&mut by_id.values().map(|step| step.action.chars().count())),
            by_id,
        }
    }

    /// How many attempts a step may take, if it is known.
    pub(super) fn most_attempts(&self, node: &NodeId) -> Option<u32> {
        self.by_id.get(node).map(|step| step.max_attempts)
    }

    /// Whether a step waits to be called.
    pub(super) fn waits(&self, node: &NodeId) -> bool {
        self.by_id.get(node).is_some_and(|step| step.waits)
    }

    /// Whether a step runs only if all before it succeeded.
    pub(super) fn needs_all(&self, node: &NodeId) -> bool {
        self.by_id.get(node).is_some_and(|step| step.needs_all)
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
