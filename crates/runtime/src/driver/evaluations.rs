//! Evaluations of a held run that do not finish within their step: conditions and durations that read much or need the sandbox.
//!
//! What must stay true: each node has at most one evaluation under way. An evaluation has no effects, so one that is dropped
//! is started again.

use fermata_core::{Fact, NodeId, NodeIx};
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use std::collections::BTreeSet;

#[derive(Default)]
pub(super) struct Evaluations {
    pending: FuturesUnordered<BoxFuture<'static, Fact>>,
    /// The nodes of `pending`.
    nodes: BTreeSet<NodeId>,
    /// Sleeps whose duration must be rendered.
    untimed: Vec<NodeIx>,
}

impl Evaluations {
    /// Drops everything, because the run is loaded again.
    pub fn clear(&mut self) {
        self.pending.clear();
        self.nodes.clear();
        self.untimed.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub fn is_pending(&self, node: &NodeId) -> bool {
        self.nodes.contains(node)
    }

    pub fn start(&mut self, node: NodeId, evaluation: BoxFuture<'static, Fact>) {
        self.nodes.insert(node);
        self.pending.push(evaluation);
    }

    /// Waits for the next result. Never returns while nothing is evaluated.
    pub async fn next(&mut self) -> Fact {
        match self.pending.next().await {
            Some(fact) => fact,
            None => std::future::pending().await,
        }
    }

    /// The result of an evaluation is about to be decided.
    pub fn finished(&mut self, fact: &Fact) {
        if let Fact::Judged { node, .. } | Fact::Guarded { node, .. } | Fact::Timed { node, .. } = fact {
            self.nodes.remove(node);
        }
    }

    pub fn add_untimed(&mut self, ix: NodeIx) {
        self.untimed.push(ix);
    }

    pub fn take_untimed(&mut self) -> Vec<NodeIx> {
        std::mem::take(&mut self.untimed)
    }
}
