//! Which outputs the context snapshot contains when a run ends (spec §8.4). The runner fetches the texts of the outputs.

use crate::{
    NodeId, Outcome, Output, Phase, Run,
    plan::{Overflow, SnapshotMode},
};

/// What the snapshot contains of one node's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The whole output.
    Whole,
    /// Its size and type.
    Summary(Output),
}

/// Chooses what the snapshot contains of each node, in completion order. Pruning does not affect what templates see.
pub fn choose(run: &Run) -> Vec<(NodeId, Keep)> {
    let policy = &run.plan().context;
    let mut kept = Vec::new();
    for ix in run.completed().iter().copied() {
        let id = &run.plan().node(ix).id;
        let Phase::Finished {
            outcome: Outcome::Succeeded(output),
            ..
        } = &run.node(ix).phase
        else {
            continue;
        };
        let keep = match policy.mode {
            SnapshotMode::Full => Keep::Whole,
            SnapshotMode::SummaryOnly => Keep::Summary(*output),
            SnapshotMode::KeysOnly if policy.keys_to_include.iter().any(|key| key == id.as_str()) => Keep::Whole,
            SnapshotMode::KeysOnly => continue,
        };
        kept.push((id.clone(), *output, keep));
    }
    shrink(&mut kept, policy.max_context_size_bytes, policy.overflow_behavior);
    kept.into_iter().map(|(id, _, keep)| (id, keep)).collect()
}

fn shrink(kept: &mut Vec<(NodeId, Output, Keep)>, limit: u64, behavior: Overflow) {
    let size = |(_, output, keep): &(NodeId, Output, Keep)| match keep {
        Keep::Whole => output.bytes,
        Keep::Summary(_) => 0,
    };
    let mut total = kept.iter().map(size).fold(0, u64::saturating_add);
    match behavior {
        Overflow::Fail => {}
        Overflow::AutoPruneOldest => {
            let surplus = kept.iter().take_while(|entry| {
                let over = total > limit;
                total -= if over { size(entry) } else { 0 };
                over
            });
            let oldest = surplus.count();
            kept.drain(..oldest);
        }
        Overflow::DropOversize => {
            let mut room = limit;
            for (_, output, keep) in kept.iter_mut().filter(|(_, _, keep)| *keep == Keep::Whole) {
                match room.checked_sub(output.bytes) {
                    Some(left) => room = left,
                    None => *keep = Keep::Summary(*output),
                }
            }
        }
    }
}
