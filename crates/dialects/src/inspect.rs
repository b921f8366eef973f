//! The shape of a workflow: what `POST /analysis/inspect` answers for documents of every dialect.

use crate::child::CHILD;
use fermata_core::{Kind, Plan, Route};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// The shape of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Inspection {
    /// The id of the workflow.
    pub workflow_id: String,
    /// The dialect of the document.
    pub dialect: String,
    /// How many nodes there are.
    pub node_count: usize,
    /// How many edges there are.
    pub edge_count: usize,
    /// How many nodes do what: by the action they call.
    pub actions: BTreeMap<String, usize>,
    /// The number of nodes on the longest path.
    pub depth: usize,
    /// The nodes that nothing leads to, in document order.
    pub start_nodes: Vec<String>,
    /// The nodes that lead nowhere.
    pub terminal_nodes: Vec<String>,
    /// The nodes that choose among their edges.
    pub decision_nodes: Vec<String>,
    /// The nodes that run other workflows.
    pub subworkflow_nodes: Vec<String>,
}

/// Describes a plan.
pub fn inspect(plan: &Plan) -> Inspection {
    let ids = |fits: &dyn Fn(&fermata_core::Node) -> bool| -> Vec<String> {
        let nodes = plan.nodes.iter().filter(|node| fits(node));
        nodes.map(|node| node.id.to_string()).collect()
    };
    let mut actions = BTreeMap::new();
    for node in &plan.nodes {
        *actions.entry(node.kind.action_type().to_owned()).or_default() += 1;
    }
    let starts = plan.indices().filter(|ix| plan.incoming(*ix) == 0);
    Inspection {
        workflow_id: plan.workflow.clone(),
        dialect: plan.dialect.clone(),
        node_count: plan.nodes.len(),
        edge_count: plan.nodes.iter().map(|node| node.edges.len()).sum(),
        actions,
        depth: depth(plan),
        start_nodes: starts.map(|ix| plan.node(ix).id.to_string()).collect(),
        terminal_nodes: ids(&|node| node.edges.is_empty()),
        decision_nodes: ids(&|node| {
            matches!(node.route, Route::Outcome | Route::ExactlyOne)
                || node.edges.iter().any(|edge| edge.condition.is_some())
        }),
        subworkflow_nodes: ids(&|node| match &node.kind {
            Kind::Request { action, .. } | Kind::Action { action, .. } => action == CHILD,
            _ => false,
        }),
    }
}

/// The number of nodes on the longest path. The graph has no cycle.
fn depth(plan: &Plan) -> usize {
    let mut waiting: Vec<u32> = plan.indices().map(|ix| plan.incoming(ix)).collect();
    let mut depth = vec![1; plan.nodes.len()];
    let mut ready: Vec<_> = plan.indices().filter(|ix| waiting[ix.at()] == 0).collect();
    while let Some(ix) = ready.pop() {
        for edge in &plan.node(ix).edges {
            let target = edge.target.at();
            depth[target] = depth[target].max(depth[ix.at()] + 1);
            waiting[target] -= 1;
            if waiting[target] == 0 {
                ready.push(edge.target);
            }
        }
    }
    depth.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_core::When;
    use fermata_core::plan::PlanBuilder;

    #[test]
    fn shape_of_a_diamond() {
        let plan = PlanBuilder::new("w")
            .action("a", "core.echo")
            .edge("b", When::Success, Some("true"))
            .then("c")
            .action("b", "core.echo")
            .then("d")
            .action("c", "core.fail")
            .then("e")
            .action("d", "core.echo")
            .action("e", "core.echo")
            .then("d")
            .build()
            .unwrap();
        let found = inspect(&plan);
        assert_eq!((found.node_count, found.edge_count, found.depth), (5, 5, 4));
        assert_eq!(found.start_nodes, ["a"]);
        assert_eq!(found.terminal_nodes, ["d"]);
        assert_eq!(found.decision_nodes, ["a"]);
        assert_eq!(
            found.actions,
            BTreeMap::from([("core.echo".to_owned(), 4), ("core.fail".to_owned(), 1)])
        );
    }
}
