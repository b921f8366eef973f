//! The state of random runs with concurrent branches, crashes and cached states, compared with a plain fold over the recorded
//! outputs.

use super::*;
use crate::{compiled::Needs, scope::Payloads};
use fermata_core::{Fact, Failure, Input, Output, Phase, Timestamp, advance, apply, decode, encode, plan::PlanBuilder};
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

/// A run whose nodes are all open at once. The journal, the recorded outputs and the cached state are what a store would keep.
struct World {
    run: Run,
    payloads: Payloads,
    journal: Vec<String>,
    recorded: BTreeMap<NodeIx, Value>,
    /// The text of the cached state, and the earliest position that it can be read for.
    cached: Option<(String, u32)>,
    trigger: Arc<Value>,
}

impl World {
    fn new(rng: &mut Rng) -> World {
        let count = 1 + rng.below(12);
        World::of(rng, count)
    }

    fn of(rng: &mut Rng, count: usize) -> World {
        let plan = (0..count).fold(PlanBuilder::new("w"), |plan, at| {
            // Nodes that do not merge stand for decisions.
            let merges = rng.below(3) > 0;
            plan.action(&format!("n{at}"), "t")
                .with(|node| node.merges_into_state = merges)
        });
        let plan = plan.plan(|plan| plan.on_failure = fermata_core::OnFailure::Continue);
        let mut run = Run::new(Arc::new(plan.build().unwrap()));
        let events = advance(&mut run, Input::new(Timestamp(0), Fact::start())).unwrap();
        let trigger = Arc::new(json!({ "k0": "trigger", "k1": "trigger" }));
        World {
            run,
            payloads: Payloads::new(trigger.clone(), None, 0),
            journal: vec![encode(&events)],
            recorded: BTreeMap::new(),
            cached: None,
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
            queued_ms: None,
        };
        let events = advance(&mut self.run, Input::new(Timestamp(0), fact)).unwrap();
        self.journal.push(encode(&events));
        if !failed {
            self.recorded.insert(ix, output.clone());
            self.payloads.learn(ix, Arc::new(output), 0, self.order(ix));
        }
    }

    /// Everything in memory is lost. The journal is applied again, and the cached state is read, or not.
    fn crash(&mut self, uses_cached: bool) {
        self.run = Run::new(self.run.plan().clone());
        for row in &self.journal {
            for event in decode(row).unwrap() {
                apply(&mut self.run, &event).unwrap();
            }
        }
        self.payloads = Payloads::new(self.trigger.clone(), None, 0);
        if let Some((text, _)) = self.cached.as_ref().filter(|_| uses_cached) {
            self.payloads
                .learn_cached(serde_json::from_str(text).unwrap(), text.len());
        }
    }

    /// Reads the outputs that are missing for a position, in any order. Returns how many there were.
    fn read(&mut self, sees: u32, rng: &mut Rng) -> usize {
        let mut missing = self.payloads.missing(&self.run, &Needs::STATE, sees);
        let count = missing.len();
        while !missing.is_empty() {
            let ix = missing.swap_remove(rng.below(missing.len()));
            let output = Arc::new(self.recorded[&ix].clone());
            self.payloads.learn(ix, output, 0, self.order(ix));
        }
        count
    }

    /// Writes the cached state when the run leaves memory, readable from some position on.
    fn park(&mut self, rng: &mut Rng) {
        let now = self.run.completed().len() as u32;
        self.read(now, rng);
        let earliest = self.cached.as_ref().map_or(0, |(_, from)| *from);
        let from = earliest + rng.below((now - earliest) as usize + 1) as u32;
        let cached = self.payloads.to_cached(from, now, merged_nodes(&self.run, now).count());
        self.cached = Some((serde_json::to_string(&cached).unwrap(), from));
    }

    /// The state as of each position after a crash.
    fn recovered(&mut self, uses_cached: bool, rng: &mut Rng) -> Vec<Map<String, Value>> {
        self.crash(uses_cached);
        let positions = 0..=self.run.completed().len() as u32;
        let newest_first = positions.rev().map(|sees| {
            self.read(sees, rng);
            self.payloads.state_at(sees)
        });
        newest_first.collect()
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
                world.crash(rng.below(2) == 0);
            }
            let now = world.run.completed().len() as u32;
            for sees in (0..=now).rev() {
                world.read(sees, &mut rng);
                assert_eq!(
                    world.payloads.state_at(sees),
                    world.expected(sees),
                    "seed {seed} as of {sees}"
                );
                let stored = writer_ranges(&world.run, sees);
                let writers: Vec<NodeIx> = merged_nodes(&world.run, sees).collect();
                assert_eq!(
                    writers_of(world.run.plan(), &stored),
                    writers,
                    "seed {seed} as of {sees}"
                );
            }
            let members = world.payloads.state_at(now).len();
            assert!(members >= names, "a member disappeared, seed {seed}");
            names = members;
            if rng.below(4) == 0 {
                world.park(&mut rng);
            }
        }
    }
}

/// Whatever was read, and in which order, and with or without the cached state: the same journal gives the same states.
#[test]
fn recoveries_of_the_same_journal_give_the_same_state() {
    for seed in 1..400 {
        let mut rng = Rng((seed * 0x9E37_79B9) | 1);
        let mut world = World::new(&mut rng);
        while world.run.active().next().is_some() {
            world.step(&mut rng);
            if rng.below(4) == 0 {
                world.park(&mut rng);
            }
            let first = world.recovered(false, &mut rng);
            assert_eq!(world.recovered(false, &mut rng), first, "seed {seed}");
            assert_eq!(world.recovered(true, &mut rng), first, "seed {seed}, cached");
            // What ended in between did not write: a decision, a failure, or something that is not an object.
            let [now, before, ..] = &first[..] else { continue };
            let last = world.run.completed().last().copied();
            let is_silent = last.is_some_and(|ix| {
                let merges = world.run.plan().node(ix).merges_into_state;
                !merges || !world.recorded.get(&ix).is_some_and(Value::is_object)
            });
            assert!(!is_silent || now == before, "seed {seed}");
        }
    }
}

/// After the copy was written, only the outputs since then are read.
#[test]
fn cached_state_spares_reading_the_outputs_before_it() {
    let mut rng = Rng(99);
    let mut world = World::of(&mut rng, 40);
    for _ in 0..30 {
        world.step(&mut rng);
    }
    world.park(&mut rng);
    let from = world.cached.as_ref().unwrap().1;
    for _ in 0..5 {
        world.step(&mut rng);
    }
    let now = world.run.completed().len() as u32;
    let writers = |sees: u32| merged_nodes(&world.run, sees).count();
    let (all, since) = (writers(now), writers(now) - writers(now - 5));
    assert!(all > since + 5);
    world.crash(false);
    assert_eq!(world.read(now, &mut rng), all);
    world.crash(true);
    assert_eq!(world.read(now, &mut rng), since);
    assert_eq!(world.read(from, &mut rng), 0);
    assert_eq!(world.payloads.state_at(from), world.expected(from));
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
        let seen = |sees| -> Vec<(String, u32)> {
            let all = writers.all(sees);
            all.map(|(name, (_, ix))| (name.to_owned(), ix.0)).collect()
        };
        let pairs = |pairs: &[(&str, u32)]| -> Vec<(String, u32)> {
            pairs.iter().map(|(name, ix)| ((*name).to_owned(), *ix)).collect()
        };
        assert_eq!(seen(0), pairs(&[]));
        assert_eq!(seen(1), pairs(&[("a", 0), ("b", 0)]));
        assert_eq!(seen(2), pairs(&[("a", 0), ("b", 0)]));
        assert_eq!(seen(3), pairs(&[("a", 1), ("b", 0)]));
        assert_eq!(seen(6), pairs(&[("a", 2), ("b", 0), ("c", 2)]));
        assert_eq!(writers.of("a", 5), Some((2, NodeIx(1))));
        assert_eq!(writers.of("c", 5), None);
    }
}

/// A chain is one range, also with nodes in between that do not write. What does not fit the plan is ignored.
#[test]
fn writers_of_a_chain_are_stored_as_one_range() {
    let plan = (0..100).fold(PlanBuilder::new("w"), |plan, at| {
        plan.action(&format!("n{at:03}"), "t")
            .with(|node| node.merges_into_state = at % 3 != 1)
    });
    let mut run = Run::new(Arc::new(plan.build().unwrap()));
    advance(&mut run, Input::new(Timestamp(0), Fact::start())).unwrap();
    for ix in run.plan().indices() {
        let fact = Fact::Returned {
            node: run.plan().node(ix).id.clone(),
            attempt: 1,
            result: Ok(Output::EMPTY),
            jitter: 0,
            queued_ms: None,
        };
        advance(&mut run, Input::new(Timestamp(0), fact)).unwrap();
    }
    assert_eq!(writer_ranges(&run, 100), [[0, 66]]);
    assert_eq!(writer_ranges(&run, 2), [[0, 0]]);
    assert!(writer_ranges(&run, 0).is_empty());
    assert_eq!(writers_of(run.plan(), &[[65, 900], [900, 1000], [3, 1]]).len(), 2);
}
