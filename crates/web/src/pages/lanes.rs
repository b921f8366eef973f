//! Places for the longest edges of large graphs: beside the graph, where they do not run behind nodes.

use std::collections::BTreeMap;

/// The most bends in the layers. The longest edges, for which there would be more, run beside the graph.
const MAX_BENDS: usize = 20_000;
/// The distance of two edges beside the graph.
pub(super) const LANE: f32 = 10.0;
/// The most places for them. More edges share these.
const MAX_LANES: usize = 100;

/// The longest edges that have bends in the layers: there are not more than [`MAX_BENDS`]. An edge over one layer has none.
pub(super) fn longest_bent(spans: impl Iterator<Item = usize>) -> usize {
    let mut spans: Vec<usize> = spans.filter(|span| *span > 1).collect();
    spans.sort_unstable();
    let (mut longest, mut bends) = (1, 0);
    for same in spans.chunk_by(|left, right| left == right) {
        bends += same.len() * (same[0] - 1);
        if bends > MAX_BENDS {
            break;
        }
        longest = same[0];
    }
    longest
}

/// Places beside the graph for edges, from the left. Edges to the same node share one.
pub(super) fn lanes(beside: &[usize], edges: &[(usize, usize)], layer_of: &[usize]) -> Vec<(usize, usize)> {
    let mut first: BTreeMap<usize, usize> = BTreeMap::new();
    for at in beside {
        let (from, to) = edges[*at];
        let known = first.entry(to).or_insert(layer_of[from]);
        *known = layer_of[from].min(*known);
    }
    let mut targets: Vec<(usize, usize)> = first.into_iter().map(|(to, from)| (from, to)).collect();
    targets.sort_unstable();
    // The layer at which each lane is free again.
    let mut ends: Vec<usize> = Vec::new();
    let mut lane_of = BTreeMap::new();
    for (from, to) in targets {
        let free = ends.iter().position(|end| *end <= from);
        let lane = free.unwrap_or(ends.len()).min(MAX_LANES - 1);
        if lane == ends.len() {
            ends.push(0);
        }
        ends[lane] = ends[lane].max(layer_of[to]);
        lane_of.insert(to, lane);
    }
    beside.iter().map(|at| (*at, lane_of[&edges[*at].1])).collect()
}
