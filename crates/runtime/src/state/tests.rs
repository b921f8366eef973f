//! The state of random runs with concurrent branches and crashes, compared with a plain fold over the recorded outputs.

use super::*;
use crate::{compiled::Needs, scope::Payloads};
use fermata_core::{Fact, Failure, Input, Output, Phase, Timestamp, advance, plan::PlanBuilder};
use serde_json::{Map, json};

/// A small random number generator (xorshift64*).
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit.max(1)
    }
}

/// A run whose nodes are all open at once. The recorded outputs are what a store would keep.
struct World {
    run: Run,
    payloads: Payloads,
    recorded: BTreeMap<NodeIx, Value>,
    trigger: Arc<Value>,
}

impl World {
    fn new(rng: &mut Rng) -> World {
        let count = 1 + rng.below(12);
        let plan = (0..count).fold(PlanBuilder::new("w"), |plan, at| {
            // Nodes that do not merge stand for decisions.
            let merges = rng.below(3) > 0;
            plan.action(&format!("n{at}"), "t")
                .with(|node| node.merges_into_state = merges)
        });
        let plan = plan.plan(|plan| plan.on_failure = fermata_core::OnFailure::Continue);
        let mut run = Run::new(Arc::new(plan.build().unwrap()));
        advance(&mut run, Input::new(Timestamp(0), Fact::start())).unwrap();
        let trigger = Arc::new(json!({ "k0": "trigger", "k1": "trigger" }));
        World {
            run,
            payloads: Payloads::new(trigger.clone(), None, 0),
            recorded: BTreeMap::new(),
            trigger,
        }
    }

    fn order(&self, ix: NodeIx) -> Option<u32> {
        match &self.run.node(ix).phase {
            Phase::Finished { order, .. } if self.run.plan().node(ix).merges_into_state => Some(*order),
            _ => None,
        }
    }

    /// Ends a random open node.
    fn step(&mut self, rng: &mut Rng) {
        let open: Vec<NodeIx> = self.run.active().collect();
        let ix = open[rng.below(open.len())];
        let is_object = rng.below(8) > 0;
        let members = (0..rng.below(4)).map(|_| (format!("k{}", rng.below(6)), json!(rng.below(1000))));
        let members: Map<String, Value> = members.collect();
        let output = if is_object {
            Value::Object(members)
        } else {
            json!("not an object")
        };
        let failed = rng.below(6) == 0;
        let result = match failed {
            true => Err(Failure::permanent("X", "x")),
            false => Ok(Output::of(&output, output.to_string().len())),
        };
        let fact = Fact::Returned {
            node: self.run.plan().node(ix).id.clone(),
            attempt: 1,
            result,
            jitter: 0,
        };
        advance(&mut self.run, Input::new(Timestamp(0), fact)).unwrap();
        if !failed {
            self.recorded.insert(ix, output.clone());
            self.payloads.learn(ix, Arc::new(output), 0, self.order(ix));
        }
    }

    /// Everything in memory is lost; what is missing is read again, in any order.
    fn crash(&mut self, rng: &mut Rng) {
        self.payloads = Payloads::new(self.trigger.clone(), None, 0);
        let sees = self.run.completed().len() as u32;
        let mut missing = self.payloads.missing(&self.run, &Needs::STATE, sees);
        while !missing.is_empty() {
            let ix = missing.swap_remove(rng.below(missing.len()));
            let output = Arc::new(self.recorded[&ix].clone());
            self.payloads.learn(ix, output, 0, self.order(ix));
        }
    }

    /// The definition: the trigger, then the outputs of merging nodes that succeeded, in completion order.
    fn expected(&self, sees: u32) -> Map<String, Value> {
        let mut state = self.trigger.as_object().cloned().unwrap_or_default();
        for ix in &self.run.completed()[..sees as usize] {
            let merges = self.run.plan().node(*ix).merges_into_state;
            let output = self.recorded.get(ix).filter(|_| merges);
            state.extend(output.and_then(Value::as_object).cloned().unwrap_or_default());
        }
        state
    }
}

#[test]
fn state_is_the_same_fold_after_every_crash() {
    for seed in 1..400 {
        let mut rng = Rng((seed * 0x9E37_79B9) | 1);
        let mut world = World::new(&mut rng);
        let mut names = 0;
        while world.run.active().next().is_some() {
            world.step(&mut rng);
            if rng.below(3) == 0 {
                world.crash(&mut rng);
            }
            let now = world.run.completed().len() as u32;
            for sees in 0..=now {
                assert_eq!(
                    world.payloads.state_at(sees),
                    world.expected(sees),
                    "seed {seed} as of {sees}"
                );
            }
            let members = world.payloads.state_at(now).len();
            assert!(members >= names, "a member disappeared, seed {seed}");
            names = members;
        }
    }
}

#[test]
fn last_writer_before_the_position_is_found_whatever_the_order_of_learning() {
    let outputs = [
        (0, json!({ "a": 1, "b": 1 })),
        (2, json!({ "a": 2 })),
        (5, json!({ "a": 3, "c": 3 })),
    ];
    let orders: [[usize; 3]; 3] = [[0, 1, 2], [2, 0, 1], [1, 2, 0]];
    for learned in orders {
        let mut writers = Writers::default();
        for at in learned.into_iter().chain([0]) {
            writers.learn(outputs[at].0, NodeIx(at as u32), &outputs[at].1);
        }
        let seen =
            |sees| -> Vec<(String, u32)> { writers.all(sees).map(|(name, ix)| (name.to_owned(), ix.0)).collect() };
        let pairs = |pairs: &[(&str, u32)]| -> Vec<(String, u32)> {
            pairs.iter().map(|(name, ix)| ((*name).to_owned(), *ix)).collect()
        };
        assert_eq!(seen(0), pairs(&[]));
        assert_eq!(seen(1), pairs(&[("a", 0), ("b", 0)]));
        assert_eq!(seen(2), pairs(&[("a", 0), ("b", 0)]));
        assert_eq!(seen(3), pairs(&[("a", 1), ("b", 0)]));
        assert_eq!(seen(6), pairs(&[("a", 2), ("b", 0), ("c", 2)]));
        assert_eq!(writers.of("a", 5), Some(NodeIx(1)));
        assert_eq!(writers.of("c", 5), None);
    }
}
