//! Positions for the nodes of a graph, layer by layer.
//!
//! 1. The layer of a node is the length of the longest path to it.
//! 2. An edge over several layers gets a bend in each layer between, so that it does not run through nodes.
//! 3. Within a layer, nodes are ordered by the mean position of their neighbours (a few sweeps down and up).
//! 4. Each is moved as close to its neighbours as the order and the distances allow (least squares).
//! 5. Two layers have more distance where edges between them go far to the side, so that these do not lie on each other.
//!
//! What must stay true: the result depends on the edges only, and 2,000 nodes take milliseconds.

use super::lanes::{LANE, lanes, longest_bent};

/// The size of a node, and the distances between nodes.
pub(crate) const WIDTH: f32 = 196.0;
pub(crate) const HEIGHT: f32 = 44.0;
const GAP_X: f32 = 24.0;
const GAP_Y: f32 = 44.0;
/// The largest distance of two layers, and how much of it an edge needs for each unit that it goes to the side.
const MAX_GAP_Y: f32 = 320.0;
const SLOPE: f32 = 0.08;
/// The width of a bend, and the distance between two of them.
const BEND: f32 = 8.0;
const BEND_GAP: f32 = 6.0;

const SWEEPS: usize = 16;

/// A point: the middle of a node or of a bend.
pub(crate) type Point = (f32, f32);

/// Where everything is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layout {
    pub width: f32,
    pub height: f32,
    /// The middle of each node.
    pub nodes: Vec<Point>,
    /// The bends of each edge, from its source to its target.
    pub bends: Vec<Vec<Point>>,
}

/// The layout of a graph without cycles. An edge is a pair of positions of nodes.
pub(crate) fn layout(count: usize, edges: &[(usize, usize)]) -> Layout {
    let layer_of = layers(count, edges);
    let span = |(from, to): &(usize, usize)| layer_of[*to].saturating_sub(layer_of[*from]);
    let longest = longest_bent(edges.iter().map(span));
    let mut graph = Layers::new(count, &layer_of);
    let mut paths = Vec::with_capacity(edges.len());
    for edge in edges {
        paths.push(match span(edge) {
            span if span > longest => Vec::new(),
            2.. => graph.add_path(*edge, &layer_of),
            _ => graph.add_edge(*edge),
        });
    }
    for sweep in 0..SWEEPS {
        graph.order(sweep % 2 == 0);
    }
    graph.place();
    let tops = graph.tops();
    let place = |vertex: &usize| (graph.x[*vertex], tops[graph.layer[*vertex]] + HEIGHT / 2.0);
    let mut bends: Vec<Vec<Point>> = paths.iter().map(|path| path.iter().map(place).collect()).collect();
    let beside: Vec<usize> = (0..edges.len()).filter(|at| span(&edges[*at]) > longest).collect();
    let mut width = graph.width();
    for (at, lane) in lanes(&beside, edges, &layer_of) {
        let x = graph.width() + GAP_X + lane as f32 * LANE;
        let y = |layer: usize| tops[layer] + HEIGHT / 2.0;
        let (from, to) = edges[at];
        bends[at] = vec![(x, y(layer_of[from] + 1)), (x, y(layer_of[to] - 1))];
        width = width.max(x + LANE);
    }
    Layout {
        width,
        height: tops.last().map_or(HEIGHT, |top| top + HEIGHT),
        nodes: (0..count).map(|node| place(&node)).collect(),
        bends,
    }
}

/// The longest path to each node.
fn layers(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut open = vec![0; count];
    let mut after = vec![Vec::new(); count];
    for (from, to) in edges {
        open[*to] += 1;
        after[*from].push(*to);
    }
    let mut layer = vec![0; count];
    let mut ready: Vec<usize> = (0..count).filter(|node| open[*node] == 0).collect();
    while let Some(node) = ready.pop() {
        for next in &after[node] {
            layer[*next] = layer[*next].max(layer[node] + 1);
            open[*next] -= 1;
            if open[*next] == 0 {
                ready.push(*next);
            }
        }
    }
    layer
}

/// Nodes and bends by layer. Both are vertices; the nodes come first.
struct Layers {
    layer: Vec<usize>,
    /// The vertices of each layer, from left to right.
    rows: Vec<Vec<usize>>,
    above: Vec<Vec<usize>>,
    below: Vec<Vec<usize>>,
    nodes: usize,
    x: Vec<f32>,
}

impl Layers {
    fn new(count: usize, layer_of: &[usize]) -> Layers {
        let depth = layer_of.iter().max().map_or(0, |last| last + 1);
        let mut rows = vec![Vec::new(); depth];
        for (node, layer) in layer_of.iter().enumerate() {
            rows[*layer].push(node);
        }
        Layers {
            layer: layer_of.to_vec(),
            rows,
            above: vec![Vec::new(); count],
            below: vec![Vec::new(); count],
            nodes: count,
            x: Vec::new(),
        }
    }

    fn add_edge(&mut self, (from, to): (usize, usize)) -> Vec<usize> {
        self.below[from].push(to);
        self.above[to].push(from);
        Vec::new()
    }

    /// Adds an edge with a bend in each layer between.
    fn add_path(&mut self, (from, to): (usize, usize), layer_of: &[usize]) -> Vec<usize> {
        let mut path = Vec::new();
        let mut last = from;
        for layer in layer_of[from] + 1..layer_of[to] {
            let bend = self.layer.len();
            self.layer.push(layer);
            self.rows[layer].push(bend);
            self.above.push(Vec::new());
            self.below.push(Vec::new());
            self.add_edge((last, bend));
            path.push(bend);
            last = bend;
        }
        self.add_edge((last, to));
        path
    }

    /// Orders each layer by the mean position of the neighbours in the layer before.
    fn order(&mut self, down: bool) {
        let mut position = vec![0.0_f32; self.layer.len()];
        for row in &self.rows {
            for (at, vertex) in row.iter().enumerate() {
                position[*vertex] = at as f32;
            }
        }
        let depth = self.rows.len();
        for step in 0..depth {
            let layer = if down { step } else { depth - 1 - step };
            let neighbours = if down { &self.above } else { &self.below };
            let row = &mut self.rows[layer];
            let mut keyed: Vec<(f32, usize)> = row
                .iter()
                .map(|vertex| {
                    let near = &neighbours[*vertex];
                    let sum: f32 = near.iter().map(|other| position[*other]).sum();
                    let mean = if near.is_empty() {
                        position[*vertex]
                    } else {
                        sum / near.len() as f32
                    };
                    (mean, *vertex)
                })
                .collect();
            keyed.sort_by(|left, right| left.0.total_cmp(&right.0));
            *row = keyed.into_iter().map(|(_, vertex)| vertex).collect();
            for (at, vertex) in row.iter().enumerate() {
                position[*vertex] = at as f32;
            }
        }
    }

    fn half(&self, vertex: usize) -> f32 {
        if vertex < self.nodes { WIDTH / 2.0 } else { BEND / 2.0 }
    }

    /// The distance between the middles of two neighbours.
    fn distance(&self, left: usize, right: usize) -> f32 {
        let gap = match left < self.nodes || right < self.nodes {
            true => GAP_X,
            false => BEND_GAP,
        };
        self.half(left) + gap + self.half(right)
    }

    fn place(&mut self) {
        self.x = vec![0.0; self.layer.len()];
        let rows = std::mem::take(&mut self.rows);
        for row in &rows {
            let mut at = 0.0;
            for (ix, vertex) in row.iter().enumerate() {
                at += match ix {
                    0 => self.half(*vertex),
                    ix => self.distance(row[ix - 1], *vertex),
                };
                self.x[*vertex] = at;
            }
        }
        for sweep in 0..SWEEPS {
            let down = sweep % 2 == 0;
            for step in 0..rows.len() {
                let row = if down {
                    &rows[step]
                } else {
                    &rows[rows.len() - 1 - step]
                };
                let wanted: Vec<f32> = row.iter().map(|vertex| self.wanted(*vertex)).collect();
                self.settle(row, &wanted);
            }
        }
        let left = (0..self.x.len()).map(|vertex| self.x[vertex] - self.half(vertex));
        let left = left.fold(f32::INFINITY, f32::min);
        self.x.iter_mut().for_each(|x| *x -= left);
        self.rows = rows;
    }

    /// The mean position of all neighbours.
    fn wanted(&self, vertex: usize) -> f32 {
        let near = || self.above[vertex].iter().chain(&self.below[vertex]);
        match near().count() {
            0 => self.x[vertex],
            count => near().map(|other| self.x[*other]).sum::<f32>() / count as f32,
        }
    }

    /// Moves the vertices of a row as close to where they want to be as their order and distances allow: neighbours that are too
    /// close become a block, which wants to be at the mean of its members.
    fn settle(&mut self, row: &[usize], wanted: &[f32]) {
        let mut offsets = Vec::with_capacity(row.len());
        let mut at = 0.0;
        for (ix, vertex) in row.iter().enumerate() {
            if ix > 0 {
                at += self.distance(row[ix - 1], *vertex);
            }
            offsets.push(at);
        }
        // Blocks: the sum of what their members want (without offsets), and how many there are.
        let mut blocks: Vec<(f32, usize)> = Vec::new();
        for (want, offset) in wanted.iter().zip(&offsets) {
            blocks.push((want - offset, 1));
            while let [.., left, right] = blocks.as_slice() {
                if left.0 / left.1 as f32 <= right.0 / right.1 as f32 {
                    break;
                }
                let joined = (left.0 + right.0, left.1 + right.1);
                blocks.truncate(blocks.len() - 2);
                blocks.push(joined);
            }
        }
        let starts = blocks
            .iter()
            .flat_map(|(sum, count)| std::iter::repeat_n(sum / *count as f32, *count));
        for ((vertex, start), offset) in row.iter().zip(starts).zip(&offsets) {
            self.x[*vertex] = start + offset;
        }
    }

    /// Where each layer begins.
    fn tops(&self) -> Vec<f32> {
        let mut far = vec![0.0_f32; self.rows.len()];
        for (vertex, below) in self.below.iter().enumerate() {
            for next in below {
                let layer = self.layer[vertex];
                far[layer] = far[layer].max((self.x[vertex] - self.x[*next]).abs());
            }
        }
        let mut top = 0.0;
        far.iter()
            .map(|far| {
                let here = top;
                top += HEIGHT + (far * SLOPE).clamp(GAP_Y, MAX_GAP_Y);
                here
            })
            .collect()
    }

    fn width(&self) -> f32 {
        let right = (0..self.x.len()).map(|vertex| self.x[vertex] + self.half(vertex));
        right.fold(WIDTH, f32::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlaps(layout: &Layout) -> bool {
        let mut sorted = layout.nodes.clone();
        sorted.sort_by(|left, right| left.1.total_cmp(&right.1).then(left.0.total_cmp(&right.0)));
        sorted
            .windows(2)
            .any(|pair| pair[0].1 == pair[1].1 && pair[1].0 - pair[0].0 < WIDTH)
    }

    #[test]
    fn edges_point_down_and_nodes_do_not_overlap() {
        let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3), (3, 4), (1, 4)];
        let layout = layout(5, &edges);
        for (from, to) in edges {
            assert!(layout.nodes[from].1 < layout.nodes[to].1, "{from} {to}");
        }
        assert!(!overlaps(&layout), "{layout:?}");
        let bends: Vec<usize> = layout.bends.iter().map(Vec::len).collect();
        assert_eq!(bends, [0, 0, 0, 0, 1, 0, 1]);
        assert!(
            layout
                .nodes
                .iter()
                .all(|(x, _)| *x >= WIDTH / 2.0 && *x <= layout.width - WIDTH / 2.0 + 0.1)
        );
    }

    #[test]
    fn a_chain_is_straight_and_a_diamond_symmetric() {
        let chain = layout(4, &[(0, 1), (1, 2), (2, 3)]);
        assert!(
            chain.nodes.iter().all(|(x, _)| (x - WIDTH / 2.0).abs() < 0.1),
            "{chain:?}"
        );
        let diamond = layout(4, &[(0, 1), (0, 2), (1, 3), (2, 3)]);
        let middle = (diamond.nodes[1].0 + diamond.nodes[2].0) / 2.0;
        assert!((diamond.nodes[0].0 - middle).abs() < 1.0 && (diamond.nodes[3].0 - middle).abs() < 1.0);
    }

    #[test]
    fn layers_have_more_distance_where_edges_go_far_to_the_side() {
        let fan: Vec<_> = (1..=200).map(|node| (0, node)).chain([(1, 201)]).collect();
        let fan = layout(202, &fan);
        let (first, second, third) = (fan.nodes[0].1, fan.nodes[1].1, fan.nodes[201].1);
        assert!(second - first > 4.0 * HEIGHT, "{first} {second}");
        assert_eq!(third - second, HEIGHT + GAP_Y);
        assert!((fan.height - third - HEIGHT / 2.0).abs() < 0.1);
    }

    #[test]
    fn large_graphs_have_a_layout() {
        let edges: Vec<_> = (1..2000).map(|node| ((node - 1) / 3, node)).collect();
        assert!(!overlaps(&layout(2000, &edges)));
        // Every node leads to the last one: there would be millions of bends. The longest edges share one place beside the graph.
        let edges: Vec<_> = (0..1999).flat_map(|node| [(node, node + 1), (node, 1999)]).collect();
        let found = layout(2000, &edges);
        let bends: usize = found.bends.iter().map(Vec::len).sum();
        assert!(bends <= 20_000 + 2 * edges.len(), "{bends}");
        let (first, second) = (&found.bends[1], &found.bends[3]);
        assert_eq!((first.len(), first[0].0, first[1].0), (2, second[0].0, second[1].0));
        assert!(first[0].0 > found.nodes[0].0 + WIDTH / 2.0 && first[0].0 < found.width);
        // Edges to different nodes at the same time have different places.
        let edges: Vec<_> = (0..1999)
            .flat_map(|node| [(node, node + 1), (node, (node + 60).min(1999))])
            .collect();
        let found = layout(2000, &edges);
        assert!(
            (found.bends[101][0].0 - found.bends[103][0].0).abs() >= LANE,
            "{:?}",
            found.bends[101]
        );
        assert_eq!(layout(0, &[]).nodes.len(), 0);
    }
}
