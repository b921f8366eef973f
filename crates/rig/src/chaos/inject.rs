//! Executes the planned faults, each in its own task: a fault may last while the next one starts.
//!
//! What must stay true: every planned fault happens, however slow the machine is. When all have ended, none has an effect any
//! more.

use super::{
    LEASE, audit,
    database::Pair,
    faults::{Fault, Kind, Planned},
    fleet::{Fleet, Held},
    report::Progress,
};
use anyhow::{Context, ensure};
use fermata_store::cluster::Stop;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

/// How long a fault waits for a process that it can affect.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// How many processes may be stopped at once: others must be left to take over their runs.
const STOPPED: usize = 2;

/// Executes all faults and waits until they have ended.
pub async fn all(
    plan: &[Planned],
    length: Duration,
    fleet: &Arc<Fleet>,
    pair: &Arc<Pair>,
    progress: &Arc<Progress>,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut faults = JoinSet::new();
    let stops = Arc::new(Semaphore::new(STOPPED));
    for planned in plan {
        tokio::time::sleep_until(begun + planned.at).await;
        let injection = Injection {
            fleet: fleet.clone(),
            pair: pair.clone(),
            progress: progress.clone(),
            stops: stops.clone(),
        };
        faults.spawn(injection.happen(planned.fault));
    }
    tokio::time::sleep_until(begun + length).await;
    while let Some(fault) = faults.join_next().await {
        fault.context("a fault panicked")??;
    }
    // Some connections that should be dropped after a COMMIT may not have committed meanwhile.
    pair.proxies.iter().for_each(|proxy| proxy.drop_after_commit(0));
    Ok(())
}

struct Injection {
    fleet: Arc<Fleet>,
    pair: Arc<Pair>,
    progress: Arc<Progress>,
    stops: Arc<Semaphore>,
}

impl Injection {
    async fn happen(self, fault: Fault) -> anyhow::Result<()> {
        let kind = fault.kind();
        let progress = &self.progress;
        match fault {
            Fault::Kill { who, down } => {
                let held = self.member(who).await?;
                progress.fault(kind, &format!("{}, back after {}", held.name(), seconds(down)));
                held.kill(down).await
            }
            Fault::Stop { who, pause } => {
                let _place = self.stops.acquire().await?;
                let held = self.member(who).await?;
                let (name, life) = (held.name(), held.life());
                progress.fault(
                    kind,
                    &format!("{name} until {} after its runs were taken over", seconds(pause)),
                );
                let until_taken_over = async {
                    sleep(LEASE).await;
                    let _ = timeout(2 * LEASE, self.taken_over(&life)).await; // perhaps no process can take over
                    sleep(pause).await;
                };
                held.stop(until_taken_over).await
            }
            Fault::Cut => {
                progress.fault(kind, "all connections");
                self.pair.proxies.iter().for_each(super::proxy::Proxy::cut);
                Ok(())
            }
            Fault::Delay { late, pause } => {
                progress.fault(kind, &format!("{} ms for {}", late.as_millis(), seconds(pause)));
                self.for_a_while(pause, |proxy, on| proxy.delay(if on { late } else { Duration::ZERO }))
                    .await
            }
            Fault::Hang { pause } => {
                progress.fault(kind, &format!("for {}", seconds(pause)));
                self.for_a_while(pause, super::proxy::Proxy::hang).await
            }
            Fault::Commit { connections } => {
                progress.fault(kind, &format!("{connections} connections are dropped after COMMIT"));
                let proxies = &self.pair.proxies;
                proxies.iter().for_each(|proxy| proxy.drop_after_commit(connections));
                Ok(())
            }
            Fault::Restart { how, down } => self.restart(kind, 0, how, down).await,
            Fault::Standby { how, down } => self.restart(kind, 1, how, down).await,
            Fault::Failover => {
                let held = self.pair.hold().await;
                progress.fault(
                    kind,
                    "the primary is killed once the standby has everything, and the standby promoted",
                );
                held.fail_over(|| progress.say("         the standby accepts writes; a new one is created"))
                    .await?;
                progress.say("         the new standby follows");
                Ok(())
            }
        }
    }

    async fn restart(&self, kind: Kind, which: usize, how: Stop, down: Duration) -> anyhow::Result<()> {
        let held = self.pair.hold().await;
        let server = if which == 0 { "primary" } else { "standby" };
        self.progress
            .fault(kind, &format!("{server} ({how:?}), back after {}", seconds(down)));
        held.restart(which, how, down).await
    }

    /// This process, or the next one that is ready for a fault.
    async fn member(&self, first: usize) -> anyhow::Result<Held<'_>> {
        let members = &self.fleet.members;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut all = members.iter().cycle().skip(first).take(members.len());
            if let Some(held) = all.find_map(|member| member.take()) {
                return Ok(held);
            }
            ensure!(Instant::now() < deadline, "no process becomes ready for a fault");
            sleep(POLL).await;
        }
    }

    /// Waits until the process holds no run any more.
    async fn taken_over(&self, life: &str) {
        loop {
            if let Ok(client) = self.pair.connect().await
                && audit::held_by(&client, life).await.is_ok_and(|held| held == 0)
            {
                return;
            }
            sleep(POLL).await;
        }
    }

    async fn for_a_while(&self, pause: Duration, change: impl Fn(&super::proxy::Proxy, bool)) -> anyhow::Result<()> {
        self.pair.proxies.iter().for_each(|proxy| change(proxy, true));
        sleep(pause).await;
        self.pair.proxies.iter().for_each(|proxy| change(proxy, false));
        Ok(())
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
