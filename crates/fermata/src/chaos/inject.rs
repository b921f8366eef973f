//! Makes the planned faults happen, each in a task of its own: one may last while the next begins.

use super::{
    database::Pair,
    faults::{Fault, Kind, Planned},
    fleet::{Fleet, Member},
    report::Diary,
};
use anyhow::Context;
use fermata_store::cluster::Stop;
use std::{sync::Arc, time::Duration};
use tokio::{task::JoinSet, time::Instant};

/// Makes them happen and waits until all are over.
pub async fn all(
    plan: &[Planned],
    length: Duration,
    fleet: &Arc<Fleet>,
    pair: &Arc<Pair>,
    diary: &Arc<Diary>,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut faults = JoinSet::new();
    for planned in plan {
        tokio::time::sleep_until(begun + planned.at).await;
        let injection = Injection {
            fleet: fleet.clone(),
            pair: pair.clone(),
            diary: diary.clone(),
        };
        faults.spawn(injection.happen(planned.fault));
    }
    tokio::time::sleep_until(begun + length).await;
    while let Some(fault) = faults.join_next().await {
        fault.context("a fault panicked")??;
    }
    Ok(())
}

struct Injection {
    fleet: Arc<Fleet>,
    pair: Arc<Pair>,
    diary: Arc<Diary>,
}

impl Injection {
    async fn happen(self, fault: Fault) -> anyhow::Result<()> {
        let kind = fault.kind();
        let diary = &self.diary;
        match fault {
            Fault::Kill { who, down } => {
                let Some(held) = self.members(who).find_map(Member::take) else {
                    return self.passes(kind, "no process is ready for it");
                };
                diary.fault(kind, &format!("{}, back after {}", held.name(), seconds(down)));
                held.kill(down).await
            }
            Fault::Stop { who, pause } => {
                let Some(held) = self.members(who).find_map(Member::take) else {
                    return self.passes(kind, "no process is ready for it");
                };
                diary.fault(kind, &format!("{} for {}", held.name(), seconds(pause)));
                held.stop(pause).await
            }
            Fault::Cut => {
                diary.fault(kind, "all connections");
                self.pair.proxies.iter().for_each(super::proxy::Proxy::cut);
                Ok(())
            }
            Fault::Delay { late, pause } => {
                diary.fault(kind, &format!("{} ms for {}", late.as_millis(), seconds(pause)));
                self.for_a_while(pause, |proxy, on| proxy.delay(if on { late } else { Duration::ZERO }))
                    .await
            }
            Fault::Hang { pause } => {
                diary.fault(kind, &format!("for {}", seconds(pause)));
                self.for_a_while(pause, super::proxy::Proxy::hang).await
            }
            Fault::Commit { connections } => {
                diary.fault(kind, &format!("{connections} connections are dropped after COMMIT"));
                let proxies = &self.pair.proxies;
                proxies.iter().for_each(|proxy| proxy.drop_after_commit(connections));
                Ok(())
            }
            Fault::Restart { how, down } => self.restart(kind, 0, how, down).await,
            Fault::Standby { how, down } => self.restart(kind, 1, how, down).await,
            Fault::Failover => {
                // Rare enough to wait for.
                let held = self.pair.hold().await;
                diary.fault(
                    kind,
                    "the primary is killed once the standby has everything, and the standby promoted",
                );
                held.fail_over(|| diary.say("         the standby takes writes; a new one is made"))
                    .await?;
                diary.say("         the new standby follows");
                Ok(())
            }
        }
    }

    async fn restart(&self, kind: Kind, which: usize, how: Stop, down: Duration) -> anyhow::Result<()> {
        let Some(held) = self.pair.take() else {
            return self.passes(kind, "the servers are busy");
        };
        let server = if which == 0 { "primary" } else { "standby" };
        self.diary
            .fault(kind, &format!("{server} ({how:?}), back after {}", seconds(down)));
        held.restart(which, how, down).await
    }

    /// The processes, beginning with this one.
    fn members(&self, first: usize) -> impl Iterator<Item = &Member> {
        let members = &self.fleet.members;
        members
            .iter()
            .cycle()
            .skip(first)
            .take(members.len())
            .map(AsRef::as_ref)
    }

    async fn for_a_while(&self, pause: Duration, change: impl Fn(&super::proxy::Proxy, bool)) -> anyhow::Result<()> {
        self.pair.proxies.iter().for_each(|proxy| change(proxy, true));
        tokio::time::sleep(pause).await;
        self.pair.proxies.iter().for_each(|proxy| change(proxy, false));
        Ok(())
    }

    fn passes(&self, kind: Kind, why: &str) -> anyhow::Result<()> {
        self.diary.say(&format!("{kind:<8} passes: {why}"));
        Ok(())
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
