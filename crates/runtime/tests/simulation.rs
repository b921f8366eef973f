//! A seeded simulation: the real engine on the memory store, with injected faults.
//!
//! Time is simulated and all randomness comes from a seed, so a seed that fails can be repeated:
//!
//! ```text
//! FERMATA_SIM_SEED=42 cargo test -p fermata-runtime --test simulation -- --nocapture    # one seed, with its trace
//! FERMATA_SIM_SEEDS=1000000 cargo test --release -p fermata-runtime --test simulation   # for longer
//! FERMATA_SIM_FIRST=5000 …                                                              # from another seed on
//! ```
//!
//! * `scenario`: what a seed decides: plans, requests, callbacks, cancels, and the rates of faults.
//! * `store`: a store that crashes its process, answers Unknown, is slow, and lets other runners take a run over.
//! * `world`: the durable truth, independent of processes; violations of a promise are recorded there.
//! * `effects`: the effects of attempts, and whether each may begin at that moment.
//! * `outside`: callers, and the answers they get.
//! * `play`: starts and crashes processes, sends the requests, and waits until everything has settled.
//! * `check`, `family`: the promises, checked at the end; those across parents, children and state.

#[path = "simulation/check.rs"]
mod check;
#[path = "simulation/effects.rs"]
mod effects;
#[path = "../src/log_capture.rs"]
mod log_capture;
#[path = "simulation/outside.rs"]
mod outside;
#[path = "simulation/play.rs"]
mod play;
#[path = "simulation/rng.rs"]
mod rng;
#[path = "simulation/scenario.rs"]
mod scenario;
#[path = "simulation/store.rs"]
mod store;
#[path = "simulation/world.rs"]
mod world;

use log_capture::LogCapture;
use play::play;
use scenario::{CommitFault, Scenario};
use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// How many seeds a test run plays.
const SEEDS: u64 = 2000;
/// How many of them have a run that crashes its process.
const POISONED: u64 = 300;

/// What must happen in at least one seed, or the test covers less than it seems to.
const EVERYTHING: [&str; 37] = [
    "answered conflict",
    "attempt retried",
    "attempt timed out",
    "cached state read",
    "call repeated",
    "callback early",
    "callback too late",
    "caller gave up",
    "child cancelled by its parent",
    "child of an item started",
    "child started",
    "claim lost",
    "conflict",
    "crash before commit",
    "crash between commit and act",
    "declined",
    "end awaited",
    "fenced",
    "guard false",
    "independent child started",
    "link conflict",
    "link refused",
    "parked for good",
    "read error",
    "forced takeover",
    "run dead-lettered",
    "run cancelled",
    "run failed",
    "run paused",
    "run resumed",
    "run succeeded",
    "run timed out",
    "state cached",
    "taken over",
    "stop requested",
    "unknown, applied",
    "unknown, lost",
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn promises_hold_under_all_faults() {
    if let Some(seed) = number("FERMATA_SIM_SEED") {
        return show(seed);
    }
    let first = number("FERMATA_SIM_FIRST").unwrap_or(0);
    let end = first + number("FERMATA_SIM_SEEDS").unwrap_or(SEEDS);
    let begin = Instant::now();
    let next = AtomicU64::new(first);
    let seen: Mutex<BTreeMap<&str, u64>> = Mutex::default();
    let failed: Option<(u64, String)> = std::thread::scope(|scope| {
        let work = || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= end {
                    return None;
                }
                let played = play(Scenario::of(seed), false);
                for (what, count) in played.seen {
                    *seen.lock().expect("no panic").entry(what).or_default() += count;
                }
                if let Some(violation) = played.violation {
                    next.store(end, Ordering::Relaxed);
                    return Some((seed, violation));
                }
            }
        };
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let hands: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let found = hands.into_iter().filter_map(|hand| hand.join().expect("no panic"));
        found.min()
    });
    let seen = seen.into_inner().expect("no panic");
    let took = begin.elapsed().as_secs_f64();
    println!(
        "{} seeds in {took:.1} s, {:.0}/s: {seen:?}",
        end - first,
        (end - first) as f64 / took
    );
    if let Some((seed, violation)) = failed {
        panic!(
            "seed {seed}: {violation}\n  see it again: FERMATA_SIM_SEED={seed} cargo test -p fermata-runtime --test \
             simulation -- --nocapture"
        );
    }
    if end - first >= SEEDS {
        for what in EVERYTHING {
            assert!(
                seen.contains_key(what),
                "no seed had a `{what}`: the simulation is too kind"
            );
        }
    }
}

/// Plays one seed and prints its trace.
fn show(seed: u64) {
    let scenario = Scenario::of(seed);
    println!(
        "seed {seed}: {:?}, {} process(es), planned_runs:",
        scenario.rates, scenario.slots
    );
    for planned in &scenario.planned_runs {
        println!("  {planned:?}");
    }
    for plan in &scenario.plans {
        println!("{}", serde_json::to_string(plan).unwrap_or_default());
    }
    let played = play(scenario, true);
    for line in &played.lines {
        println!("{line}");
    }
    if let Some(violation) = played.violation {
        panic!("seed {seed}: {violation}");
    }
}

#[test]
fn process_may_crash_at_every_commit() {
    let commit_faults = [
        CommitFault::CrashBefore,
        CommitFault::CrashAfter,
        CommitFault::UnknownApplied,
        CommitFault::UnknownLost,
        CommitFault::Fenced,
        CommitFault::FencedAndKept,
        CommitFault::Conflict,
    ];
    for cancelled in [false, true] {
        for commit_fault in commit_faults {
            let mut index = 0;
            loop {
                let played = play(Scenario::fixed(cancelled, Some((index, commit_fault))), false);
                if let Some(violation) = played.violation {
                    let again = play(Scenario::fixed(cancelled, Some((index, commit_fault))), true);
                    println!("{}", again.lines.join("\n"));
                    panic!("{commit_fault:?} at write {index}, cancelled {cancelled}: {violation}");
                }
                index += 1;
                if index >= played.writes {
                    break;
                }
            }
            assert!(index > 5, "the scenario is too small: {index} writes");
        }
    }
}

/// A run that crashes its process is dead-lettered, and no other run is, however long others take to commit.
#[test]
fn only_the_poison_run_is_dead_lettered() {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    let first = number("FERMATA_SIM_FIRST").unwrap_or(0);
    let seeds = number("FERMATA_SIM_SEEDS").unwrap_or(POISONED);
    for seed in first..first + seeds {
        let played = play(Scenario::poisoned(seed), false);
        for (what, count) in &played.seen {
            *seen.entry(what).or_default() += count;
        }
        if let Some(violation) = played.violation {
            let again = play(Scenario::poisoned(seed), true);
            println!("{}", again.lines.join("\n"));
            panic!("seed {seed}: {violation}");
        }
    }
    assert_eq!(seen.get("run dead-lettered"), Some(&seeds));
    assert!(
        seen.contains_key("declined"),
        "no other run was on its last try: {seen:?}"
    );
}

/// A message that was sent through another process is read soon, also if its hint is lost.
#[test]
fn message_is_read_without_a_hint() {
    let played = play(Scenario::lost_hints(), true);
    if let Some(violation) = played.violation {
        println!("{}", played.lines.join("\n"));
        panic!("{violation}");
    }
    assert_eq!(played.seen.get("run cancelled"), Some(&1));
}

/// Commits take up to four seconds of simulated time for some seeds.
#[test]
fn slow_commits_are_logged() {
    let log = LogCapture::begin();
    let is_logged = |seed| {
        play(Scenario::of(seed), false);
        log.take().iter().any(|line| line.contains("a commit was slow"))
    };
    assert!((0..200).any(is_logged), "no slow commit was logged");
}

#[test]
fn seed_is_deterministic() {
    for seed in (0..400).step_by(7) {
        let [one, other] = [(); 2].map(|()| play(Scenario::of(seed), true));
        let differs = one.lines.iter().zip(&other.lines).position(|(one, other)| one != other);
        if let Some(at) = differs {
            panic!(
                "seed {seed} differs at line {at}:\n  {}\n  {}",
                one.lines[at], other.lines[at]
            );
        }
        assert_eq!(one.trace, other.trace, "seed {seed}");
    }
}
