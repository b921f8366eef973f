//! The database under test: a primary and a synchronous standby, each behind a proxy.
//!
//! What must stay true: the primary is killed for good only when its standby has everything that was confirmed. PostgreSQL itself
//! breaks its promise in one case, which is not tested here: a primary that restarts while its standby is down shows transactions
//! that were never replicated and may be lost afterwards.

use super::proxy::Proxy;
use anyhow::Context;
use fermata_store::cluster::{Cluster, STANDBY, Stop};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};
use tokio::sync::{Mutex, MutexGuard};
use tokio_postgres::{Client, NoTls};

const NAME: &str = "fermata";
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// A standby that lost its primary reconnects quickly and finds all WAL that it missed.
const OPTIONS: [&str; 4] = [
    "wal_retrieve_retry_interval=200ms",
    "wal_keep_size=512MB",
    "max_wal_senders=10",
    "log_line_prefix=%m [%p] %a ",
];

/// Two servers. One of them accepts writes.
pub struct Pair {
    root: PathBuf,
    pub proxies: [Proxy; 2],
    /// The index of the primary, and the servers.
    servers: RwLock<(usize, [Arc<Cluster>; 2])>,
    /// Held while a fault affects the servers.
    busy: Mutex<()>,
}

/// The servers, reserved for one fault.
pub struct Held<'a> {
    pair: &'a Pair,
    _busy: MutexGuard<'a, ()>,
}

impl Pair {
    /// Starts two new servers with their files below `root`.
    pub async fn start(root: &Path) -> anyhow::Result<Pair> {
        let below = root.to_owned();
        let primary = tokio::task::spawn_blocking(move || Cluster::create(&below, true, &OPTIONS)).await??;
        run(&primary.url("postgres"), &format!("CREATE DATABASE {NAME}")).await?;
        let primary = Arc::new(primary);
        let standby = copy(&primary, root).await?;
        let pair = Pair {
            root: root.to_owned(),
            proxies: [Proxy::to(primary.port()).await?, Proxy::to(standby.port()).await?],
            servers: RwLock::new((0, [primary, standby])),
            busy: Mutex::default(),
        };
        pair.protect().await?;
        Ok(pair)
    }

    /// The address for clients: through the proxies, to the server that accepts writes.
    pub fn url(&self) -> String {
        let [a, b] = &self.proxies;
        format!(
            "postgres://fermata@127.0.0.1:{},127.0.0.1:{}/{NAME}?target_session_attrs=read-write&sslmode=disable",
            a.port, b.port
        )
    }

    /// A connection to the primary that bypasses the proxies.
    pub async fn connect(&self) -> anyhow::Result<Client> {
        connect(&self.server(0).url(NAME)).await
    }

    /// The primary (0) or the standby (1).
    fn server(&self, which: usize) -> Arc<Cluster> {
        let servers = self.servers.read().unwrap_or_else(PoisonError::into_inner);
        servers.1[(servers.0 + which) % 2].clone()
    }

    /// The log files of the servers.
    pub fn logs(&self) -> [PathBuf; 2] {
        [0, 1].map(|which| self.server(which).folder().join("log"))
    }

    /// Reserves the servers for a fault. Waits for faults that affect them now.
    pub async fn hold(&self) -> Held<'_> {
        let _busy = self.busy.lock().await;
        Held { pair: self, _busy }
    }

    /// Waits until no fault affects the servers and the standby is in sync.
    pub async fn settle(&self) -> anyhow::Result<()> {
        let _busy = self.busy.lock().await;
        self.in_step().await
    }

    /// From now on no commit is confirmed before the standby has it.
    async fn protect(&self) -> anyhow::Result<()> {
        let primary = self.server(0).url("postgres");
        let names = format!("ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'");
        run(&primary, &names).await?;
        run(&primary, "SELECT pg_reload_conf()").await?;
        self.in_step().await
    }

    /// Waits until the standby has everything that the primary has now.
    async fn in_step(&self) -> anyhow::Result<()> {
        let client = connect(&self.server(0).url("postgres")).await?;
        let goal: String = client
            .query_one("SELECT pg_current_wal_flush_lsn()::text", &[])
            .await?
            .get(0);
        let there = format!(
            "SELECT count(*) FROM pg_stat_replication
             WHERE application_name = '{STANDBY}' AND sync_state = 'sync' AND flush_lsn >= '{goal}'"
        );
        let deadline = Instant::now() + PATIENCE;
        while client.query_one(&there, &[]).await?.get::<_, i64>(0) == 0 {
            anyhow::ensure!(Instant::now() < deadline, "the standby does not follow its primary");
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }
}

impl Held<'_> {
    /// Stops the primary (0) or the standby (1), and starts it again after `down`.
    pub async fn restart(&self, which: usize, how: Stop, down: Duration) -> anyhow::Result<()> {
        let server = self.pair.server(which);
        let stopped = server.clone();
        tokio::task::spawn_blocking(move || stopped.stop(how)).await?;
        tokio::time::sleep(down).await;
        tokio::task::spawn_blocking(move || server.restart()).await??;
        Ok(())
    }

    /// Kills the primary, promotes the standby, and creates a new standby. Calls `on_promoted` when writes are possible again.
    pub async fn fail_over(&self, on_promoted: impl FnOnce()) -> anyhow::Result<()> {
        let pair = self.pair;
        pair.in_step().await?;
        let (old, new) = (pair.server(0), pair.server(1));
        let promoted = new.clone();
        tokio::task::spawn_blocking(move || {
            old.stop(Stop::Kill);
            promoted.promote()
        })
        .await??;
        let place = {
            let mut servers = pair.servers.write().unwrap_or_else(PoisonError::into_inner);
            servers.0 = (servers.0 + 1) % 2;
            (servers.0 + 1) % 2
        };
        on_promoted();
        let standby = copy(&new, &pair.root).await?;
        pair.proxies[place].lead_to(standby.port());
        let old = {
            let mut servers = pair.servers.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut servers.1[place], standby)
        };
        // Dropping it removes its files, which blocks.
        tokio::task::spawn_blocking(move || drop(old)).await?;
        pair.protect().await
    }
}

async fn copy(primary: &Arc<Cluster>, root: &Path) -> anyhow::Result<Arc<Cluster>> {
    let (primary, root) = (primary.clone(), root.to_owned());
    let standby = tokio::task::spawn_blocking(move || primary.standby(&root, true, &OPTIONS)).await??;
    Ok(Arc::new(standby))
}

async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.context("PostgreSQL")?;
    tokio::spawn(connection); // ends with the client
    Ok(client)
}

async fn run(url: &str, sql: &str) -> anyhow::Result<()> {
    Ok(connect(url).await?.batch_execute(sql).await?)
}
