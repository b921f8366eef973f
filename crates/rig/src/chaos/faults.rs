//! The plan of faults: derived from the seed before anything runs, so the seed determines all of them.
//!
//! What must stay true: a run that is long enough has every requested kind of fault, and kills a process every 1 to 10
//! seconds.

use super::rng::Rng;
use clap::ValueEnum;
use fermata_store::cluster::Stop;
use serde::Serialize;
use std::{fmt, time::Duration};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// SIGKILL of a process, which is started again.
    Kill,
    /// SIGSTOP of a process until its lease has expired and its runs were taken over, then SIGCONT.
    Stop,
    /// All connections to the database are reset.
    Cut,
    /// All traffic to and from the database is delayed.
    Delay,
    /// No traffic to or from the database passes for a while.
    Hang,
    /// Connections are dropped after COMMIT was sent.
    Commit,
    /// The primary is stopped and started.
    Restart,
    /// The standby is stopped and started: commits wait for it.
    Standby,
    /// The primary is killed and the standby promoted.
    Failover,
}

impl Kind {
    pub(super) const ALL: [Kind; 9] = [
        Kind::Kill,
        Kind::Stop,
        Kind::Cut,
        Kind::Delay,
        Kind::Hang,
        Kind::Commit,
        Kind::Restart,
        Kind::Standby,
        Kind::Failover,
    ];

    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Kill => "kill",
            Kind::Stop => "stop",
            Kind::Cut => "cut",
            Kind::Delay => "delay",
            Kind::Hang => "hang",
            Kind::Commit => "commit",
            Kind::Restart => "restart",
            Kind::Standby => "standby",
            Kind::Failover => "failover",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A fault with all its random parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    Kill {
        who: usize,
        down: Duration,
    },
    /// It lasts for `pause` after other processes have taken over its runs, or after a limit.
    Stop {
        who: usize,
        pause: Duration,
    },
    Cut,
    Delay {
        late: Duration,
        pause: Duration,
    },
    Hang {
        pause: Duration,
    },
    Commit {
        connections: u32,
    },
    Restart {
        how: Stop,
        down: Duration,
    },
    Standby {
        how: Stop,
        down: Duration,
    },
    Failover,
}

impl Fault {
    pub fn kind(self) -> Kind {
        match self {
            Fault::Kill { .. } => Kind::Kill,
            Fault::Stop { .. } => Kind::Stop,
            Fault::Cut => Kind::Cut,
            Fault::Delay { .. } => Kind::Delay,
            Fault::Hang { .. } => Kind::Hang,
            Fault::Commit { .. } => Kind::Commit,
            Fault::Restart { .. } => Kind::Restart,
            Fault::Standby { .. } => Kind::Standby,
            Fault::Failover => Kind::Failover,
        }
    }
}

/// A fault and when it starts, counted from the start of the load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Planned {
    pub at: Duration,
    pub fault: Fault,
}

/// The parameters of a plan.
#[derive(Debug, Clone, Copy)]
pub struct Scene {
    pub length: Duration,
    /// The number of processes.
    pub processes: usize,
}

/// All faults of a run, in order.
pub fn plan(seed: u64, scene: &Scene, kinds: &[Kind]) -> Vec<Planned> {
    let mut plan = Vec::new();
    let wanted = |kind: Kind| kinds.contains(&kind);
    if wanted(Kind::Kill) {
        kills(seed, scene, &mut plan);
    }
    let mut rng = Rng::new(seed, "faults");
    others(&mut rng, scene, kinds, &mut plan);
    if wanted(Kind::Failover) {
        // Creating a new standby takes a while, so only a long run has time for a second failover.
        let parts: &[u32] = if scene.length.as_secs() >= 60 { &[35, 75] } else { &[45] };
        plan.extend(parts.iter().map(|part| Planned {
            at: scene.length * *part / 100,
            fault: Fault::Failover,
        }));
    }
    plan.sort_by_key(|planned| planned.at);
    plan
}

fn kills(seed: u64, scene: &Scene, plan: &mut Vec<Planned>) {
    let mut rng = Rng::new(seed, "kills");
    let mut at = rng.millis(1000, 4000);
    while at < scene.length {
        let fault = Fault::Kill {
            who: rng.below(scene.processes as u64) as usize,
            down: rng.millis(0, 1500),
        };
        plan.push(Planned { at, fault });
        at += rng.millis(1000, 10_000);
    }
}

/// The other faults come from a deck that is shuffled again when it is empty, so that every kind happens.
fn others(rng: &mut Rng, scene: &Scene, kinds: &[Kind], plan: &mut Vec<Planned>) {
    let often = [Kind::Stop, Kind::Stop, Kind::Stop, Kind::Commit, Kind::Commit];
    let once = [Kind::Cut, Kind::Delay, Kind::Hang, Kind::Restart, Kind::Standby];
    let deck: Vec<Kind> = often
        .into_iter()
        .chain(once)
        .filter(|kind| kinds.contains(kind))
        .collect();
    let mut left = Vec::new();
    let mut at = rng.millis(500, 1500);
    while at < scene.length && !deck.is_empty() {
        if left.is_empty() {
            left.clone_from(&deck);
            rng.shuffle(&mut left);
        }
        let Some(kind) = left.pop() else { break };
        plan.push(Planned {
            at,
            fault: draw(rng, kind, scene),
        });
        at += rng.millis(700, 2500);
    }
}

fn draw(rng: &mut Rng, kind: Kind, scene: &Scene) -> Fault {
    let stops = [Stop::Fast, Stop::Immediate, Stop::Kill];
    match kind {
        Kind::Kill | Kind::Stop => Fault::Stop {
            who: rng.below(scene.processes as u64) as usize,
            // Without a delay the process could still commit before the one that took over does.
            pause: match rng.chance(50) {
                true => Duration::ZERO,
                false => rng.millis(0, 2500),
            },
        },
        Kind::Cut => Fault::Cut,
        Kind::Delay => Fault::Delay {
            late: rng.millis(20, 200),
            pause: rng.millis(1000, 3000),
        },
        Kind::Hang => Fault::Hang {
            pause: rng.millis(500, 4000),
        },
        Kind::Commit => Fault::Commit {
            connections: rng.between(2, 12) as u32,
        },
        Kind::Restart => Fault::Restart {
            how: rng.pick(&stops),
            down: rng.millis(0, 3000),
        },
        Kind::Standby => Fault::Standby {
            how: rng.pick(&stops),
            down: rng.millis(0, 3000),
        },
        Kind::Failover => Fault::Failover,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const SCENE: Scene = Scene {
        length: Duration::from_secs(25),
        processes: 4,
    };

    #[test]
    fn a_seed_determines_all_faults() {
        let one = plan(7, &SCENE, &Kind::ALL);
        assert_eq!(one, plan(7, &SCENE, &Kind::ALL));
        assert_ne!(one, plan(8, &SCENE, &Kind::ALL));
    }

    #[test]
    fn a_short_run_has_every_kind() {
        for seed in 0..200 {
            let plan = plan(seed, &SCENE, &Kind::ALL);
            let kinds: BTreeSet<Kind> = plan.iter().map(|planned| planned.fault.kind()).collect();
            assert_eq!(kinds, Kind::ALL.into(), "seed {seed}");
            let kills = plan.iter().filter(|planned| planned.fault.kind() == Kind::Kill);
            let times: Vec<Duration> = kills.map(|planned| planned.at).collect();
            for pair in times.windows(2) {
                let gap = pair[1] - pair[0];
                assert!((1..=10).contains(&gap.as_secs()), "seed {seed}: {gap:?}");
            }
        }
    }

    #[test]
    fn only_requested_kinds_happen() {
        let plan = plan(7, &SCENE, &[Kind::Stop]);
        assert!(!plan.is_empty());
        for planned in plan {
            assert_eq!(planned.fault.kind(), Kind::Stop, "{planned:?}");
        }
    }
}
