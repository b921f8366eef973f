//! The routing rules of the specification (§4.3 and §9.4 of DataWorkflows, points 9, 10 and 23 of the semantics, the join
//! table of the architecture). Deliberately naive: it evaluates the whole graph repeatedly until nothing changes.

use crate::sketch::{Sketch, SketchJoin, SketchNode};
use fermata_core::{Route, When};

/// The state of a node according to the rules.
#[derive(Debug, Clone, PartialEq)]
pub enum Expected {
    /// A preceding node has not ended, so it is not decided.
    Open,
    /// It runs and has not ended.
    Runs,
    /// It ended, and these of its edges are taken.
    Ran { taken: Vec<u32> },
    /// It does not run.
    Skipped,
}

/// The state of each node according to the rules, given the outcomes of the nodes that ended.
pub fn expected(sketch: &Sketch, outcome: impl Fn(usize) -> Option<bool>) -> Vec<Expected> {
    let mut expected = vec![Expected::Open; sketch.nodes.len()];
    loop {
        let before = expected.clone();
        for at in 0..expected.len() {
            expected[at] = match runs(sketch, &expected, at) {
                None => Expected::Open,
                Some(false) => Expected::Skipped,
                Some(true) => outcome(at).map_or(Expected::Runs, |success| Expected::Ran {
                    taken: taken(&sketch.nodes[at], success),
                }),
            };
        }
        if expected == before {
            return expected;
        }
    }
}

/// Whether a node runs; `None` while an edge to it is not settled.
fn runs(sketch: &Sketch, expected: &[Expected], at: usize) -> Option<bool> {
    let mut edges = Vec::new();
    for (from, node) in sketch.nodes.iter().enumerate() {
        for (number, edge) in node.edges.iter().enumerate().filter(|(_, edge)| edge.to == at) {
            debug_assert!(from < edge.to);
            edges.push(match &expected[from] {
                Expected::Open | Expected::Runs => return None,
                Expected::Skipped => false,
                Expected::Ran { taken } => taken.contains(&(number as u32)),
            });
        }
    }
    Some(match sketch.nodes[at].join {
        SketchJoin::Any => edges.is_empty() || edges.contains(&true),
        SketchJoin::All => !edges.contains(&false),
        SketchJoin::Guard(value) => value,
    })
}

/// The edges that are taken from a node that succeeded or failed.
fn taken(node: &SketchNode, success: bool) -> Vec<u32> {
    let satisfied: Vec<(u32, When)> = (0..)
        .zip(&node.edges)
        .filter(|(_, edge)| edge.condition.unwrap_or(true))
        .map(|(number, edge)| (number, edge.when))
        .collect();
    let of = |wanted: &[When]| -> Vec<u32> {
        let fitting = satisfied.iter().filter(|(_, when)| wanted.contains(when));
        fitting.map(|(number, _)| *number).collect()
    };
    let rescue = of(&[When::Unhandled]);
    let plain = match success {
        true => of(&[When::Success, When::Always]),
        false => of(&[When::Failure, When::Always]),
    };
    let by_failure_edge = !of(&[When::Failure]).is_empty();
    match (node.route, success) {
        (Route::FirstMatch, true) => plain.into_iter().take(1).collect(),
        (Route::FirstMatch, false) => plain.into_iter().chain(rescue).take(1).collect(),
        (Route::Parallel, true) => plain,
        (Route::Outcome | Route::ExactlyOne, true) => decided(node, plain).unwrap_or_default(),
        (_, false) if by_failure_edge => plain,
        (_, false) => [plain, rescue].concat(),
    }
}

/// The one edge that a decision leads to; `None` if it is not exactly one. A node without edges decides nothing.
fn decided(node: &SketchNode, satisfied: Vec<u32>) -> Option<Vec<u32>> {
    let chosen = |number: &u32| {
        let outcome = &node.edges[*number as usize].outcome;
        node.route == Route::ExactlyOne || (node.chosen.is_some() && *outcome == node.chosen)
    };
    let left: Vec<u32> = satisfied.into_iter().filter(chosen).collect();
    (left.len() == 1 || node.edges.is_empty()).then_some(left)
}

/// Whether a node that succeeded makes its run fail, because its decision does not lead to exactly one edge.
pub fn is_undecided(node: &SketchNode) -> bool {
    let decides = matches!(node.route, Route::Outcome | Route::ExactlyOne);
    decides && !node.edges.is_empty() && taken(node, true).is_empty()
}

/// Whether a run with `OnFailure::Continue` fails because of its failures.
pub fn relaxed_run_fails(sketch: &Sketch, outcome: impl Fn(usize) -> Option<bool>) -> bool {
    let all = 0..sketch.nodes.len();
    let any_succeeded = all.clone().any(|at| outcome(at) == Some(true));
    all.into_iter().filter(|at| outcome(*at) == Some(false)).any(|at| {
        let targets = sketch.nodes[at].edges.iter().map(|edge| edge.to);
        let (guarded, plain): (Vec<_>, Vec<_>) =
            targets.partition(|to| matches!(sketch.nodes[*to].join, SketchJoin::Guard(_)));
        let skipped_one = plain.into_iter().any(|to| outcome(to).is_none());
        let handled = guarded.into_iter().any(|to| outcome(to).is_some());
        !any_succeeded || (skipped_one && !handled)
    })
}
