//! Graph checks of all dialects: cycles, and which nodes precede which.

use crate::check::Check;
use crate::diagnostics::quote;
use fermata_core::plan::find_cycle;

/// The most cycles that are reported.
const MAX_CYCLES: usize = 10;

/// The terms of a dialect for reporting cycles.
pub(crate) struct CycleWords<'a> {
    /// The plural of the term for nodes.
    pub(crate) nodes: &'a str,
    pub(crate) help: &'a str,
}

/// Reports cycles, each at the pointer that `closing` gives for its last edge. Returns whether there
/// are none. `targets` has the targets of each of the `names`.
pub(crate) fn report_cycles(
    check: &mut Check,
    words: &CycleWords,
    names: &[&str],
    targets: &[Vec<usize>],
    closing: impl Fn(usize, usize) -> String,
) -> bool {
    let mut open = targets.to_vec();
    for found in 0..MAX_CYCLES {
        let Some(cycle) = find_cycle(&open) else {
            return found == 0;
        };
        let [.., last, first] = cycle.as_slice() else {
            return false;
        };
        let (last, first) = (*last, *first);
        let on_the_way: Vec<&str> = cycle.iter().map(|at| names[*at]).collect();
        let message = format!("the {} form a cycle: {}", words.nodes, shorten(&on_the_way));
        let problem = check.error("CYCLE", &closing(last, first), message);
        check.add(problem.help(words.help));
        open[last].retain(|target| *target != first);
    }
    false
}

/// `a → b → … → z → a`, at most one line.
fn shorten(names: &[&str]) -> String {
    const ENDS: usize = 6;
    let quoted: Vec<String> = names
        .iter()
        .map(|name| quote(name).trim_matches('`').to_owned())
        .collect();
    if quoted.len() <= 2 * ENDS {
        return quoted.join(" → ");
    }
    let (head, tail) = (&quoted[..ENDS], &quoted[quoted.len() - ENDS..]);
    format!("{} → … → {}", head.join(" → "), tail.join(" → "))
}

/// Which nodes precede which: one bit set per node.
pub(crate) struct Upstream(Vec<Vec<u64>>);

impl Upstream {
    /// For each node, the set of nodes that may have ended before it starts. The graph must have no
    /// cycle: nodes on a cycle precede nothing.
    pub(crate) fn new(targets: &[Vec<usize>]) -> Upstream {
        let count = targets.len();
        let words = count.div_ceil(64);
        let mut sets = vec![vec![0_u64; words]; count];
        let mut waiting = vec![0_usize; count];
        for target in targets.iter().flatten() {
            waiting[*target] += 1;
        }
        let mut ready: Vec<usize> = (0..count).filter(|at| waiting[*at] == 0).collect();
        while let Some(at) = ready.pop() {
            let mut set = sets[at].clone();
            set[at / 64] |= 1 << (at % 64);
            for target in &targets[at] {
                for (word, more) in sets[*target].iter_mut().zip(&set) {
                    *word |= more;
                }
                waiting[*target] -= 1;
                if waiting[*target] == 0 {
                    ready.push(*target);
                }
            }
        }
        Upstream(sets)
    }

    /// Whether `earlier` may have ended when `node` starts.
    pub(crate) fn precedes(&self, earlier: usize, node: usize) -> bool {
        self.0[node][earlier / 64] & (1 << (earlier % 64)) != 0
    }
}
