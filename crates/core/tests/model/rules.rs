//! The routing rules, as the specification has them (§4.3 and §9.4 of DataWorkflows, points 9, 10 and 23 of
//! the semantics, the join table of the architecture). Naive on purpose: it looks at the whole graph
//! until nothing more follows.

use crate::sketch::{Sketch, SketchJoin, SketchNode};
use fermata_core::When;

/// What the rules say of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Fate {
    /// Something before it has not ended, so nothing can be said.
    Open,
    /// It is to run, and has not ended.
    Runs,
    /// It ran, and these of its edges are taken.
    Ran { taken: Vec<u32> },
    /// It does not run.
    Skipped,
}

/// What the rules say of each node, given how those that ended went.
pub fn fates(sketch: &Sketch, went: impl Fn(usize) -> Option<bool>) -> Vec<Fate> {
    let mut fates = vec![Fate::Open; sketch.nodes.len()];
    loop {
        let before = fates.clone();
        for at in 0..fates.len() {
            fates[at] = match runs(sketch, &fates, at) {
                None => Fate::Open,
                Some(false) => Fate::Skipped,
                Some(true) => went(at).map_or(Fate::Runs, |success| Fate::Ran {
                    taken: taken(&sketch.nodes[at], success),
                }),
            };
        }
        if fates == before {
            return fates;
        }
    }
}

/// Whether a node runs; `None` while an edge to it is not settled.
fn runs(sketch: &Sketch, fates: &[Fate], at: usize) -> Option<bool> {
    let mut edges = Vec::new();
    for (from, node) in sketch.nodes.iter().enumerate() {
        for (number, edge) in node.edges.iter().enumerate().filter(|(_, edge)| edge.to == at) {
            debug_assert!(from < edge.to);
            edges.push(match &fates[from] {
                Fate::Open | Fate::Runs => return None,
                Fate::Skipped => false,
                Fate::Ran { taken } => taken.contains(&(number as u32)),
            });
        }
    }
    Some(match sketch.nodes[at].join {
        SketchJoin::Any => edges.is_empty() || edges.contains(&true),
        SketchJoin::All => !edges.contains(&false),
        SketchJoin::Guard(says) => says,
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
    match (node.first_match, success) {
        (true, true) => plain.into_iter().take(1).collect(),
        (true, false) => plain.into_iter().chain(rescue).take(1).collect(),
        (false, true) => plain,
        (false, false) if by_failure_edge => plain,
        (false, false) => [plain, rescue].concat(),
    }
}

/// Whether a run whose failures do not stop it has failed all the same (semantics 23).
pub fn relaxed_run_fails(sketch: &Sketch, went: impl Fn(usize) -> Option<bool>) -> bool {
    let everyone = 0..sketch.nodes.len();
    let anyone_succeeded = everyone.clone().any(|at| went(at) == Some(true));
    everyone.into_iter().filter(|at| went(*at) == Some(false)).any(|at| {
        let needing = sketch.nodes[at].edges.iter().map(|edge| edge.to);
        let (guarded, plain): (Vec<_>, Vec<_>) =
            needing.partition(|to| matches!(sketch.nodes[*to].join, SketchJoin::Guard(_)));
        let cascaded = plain.into_iter().any(|to| went(to).is_none());
        let taken_up = guarded.into_iter().any(|to| went(to).is_some());
        !anyone_succeeded || (cascaded && !taken_up)
    })
}
