//! A proxy in front of a database server. It can reset, delay and block connections, and drop them right after a COMMIT.
//!
//! What must stay true: data is forwarded complete and in order until the connection ends.

use super::wire::{Frontend, Meaning, is_idle};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};

/// How long the proxy reads the server's response to a COMMIT after the client was disconnected.
const ANSWER: Duration = Duration::from_secs(5);
const BUFFER: usize = 64 << 10;

/// A proxy. It ends when it is dropped.
pub struct Proxy {
    pub port: u16,
    way: Arc<Way>,
    accepting: JoinHandle<()>,
}

/// The faults that affect all connections of a proxy.
#[derive(Default)]
struct Way {
    server: AtomicU16,
    /// Changes when all connections must be reset.
    cuts: watch::Sender<u64>,
    /// Whether all traffic is blocked.
    hangs: watch::Sender<bool>,
    late_ms: AtomicU64,
    /// The number of connections that still must be dropped after a COMMIT.
    drops: AtomicU32,
    dropped: AtomicU64,
}

impl Proxy {
    /// Starts a proxy for the server on this port.
    pub async fn to(server: u16) -> io::Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let way = Arc::new(Way::default());
        way.server.store(server, Ordering::Relaxed);
        let theirs = way.clone();
        let accepting = tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((client, _)) => drop(tokio::spawn(pass(client, theirs.clone()))),
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        });
        Ok(Proxy { port, way, accepting })
    }

    /// New connections go to another server.
    pub fn lead_to(&self, server: u16) {
        self.way.server.store(server, Ordering::Relaxed);
    }

    /// Resets all connections.
    pub fn cut(&self) {
        self.way.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Delays all traffic from now on.
    pub fn delay(&self, late: Duration) {
        self.way.late_ms.store(late.as_millis() as u64, Ordering::Relaxed);
    }

    /// Blocks or unblocks all traffic.
    pub fn hang(&self, hangs: bool) {
        self.way.hangs.send_replace(hangs);
    }

    /// Drops this many connections, each after its next COMMIT.
    pub fn drop_after_commit(&self, connections: u32) {
        self.way.drops.store(connections, Ordering::Relaxed);
    }

    /// The number of connections that were dropped after a COMMIT.
    pub fn dropped(&self) -> u64 {
        self.way.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

impl Way {
    /// Waits for the current delay.
    async fn linger(&self) {
        let late = self.late_ms.load(Ordering::Relaxed);
        if late > 0 {
            tokio::time::sleep(Duration::from_millis(late)).await;
        }
        let mut hangs = self.hangs.subscribe();
        // The sender is in `self`, so the channel is open.
        let _ = hangs.wait_for(|hangs| !hangs).await;
    }

    /// Whether this connection must be dropped now.
    fn takes_a_drop(&self) -> bool {
        let left = self
            .drops
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if left.is_ok() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        left.is_ok()
    }
}

/// Forwards one connection until it ends. Errors are expected.
async fn pass(client: TcpStream, way: Arc<Way>) {
    let mut cuts = way.cuts.subscribe();
    let talk = async {
        let _ = client.set_nodelay(true);
        // The client must see a reset, not an orderly end.
        let _ = client.set_zero_linger();
        way.linger().await;
        let server = TcpStream::connect(("127.0.0.1", way.server.load(Ordering::Relaxed))).await?;
        let _ = server.set_nodelay(true);
        let (from_client, mut to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let muted = AtomicBool::new(false);
        let (responded_sender, responded) = watch::channel(());
        tokio::select! {
            sent = ask(from_client, to_server, &way, &muted, responded) => sent,
            answered = answer(from_server, &mut to_client, &way, &muted, responded_sender) => answered,
        }
    };
    tokio::select! {
        biased;
        _ = cuts.changed() => {}
        _ = talk => {}
    }
}

/// From the client to the server. `responded` is closed when a muted server has responded.
async fn ask(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    way: &Way,
    muted: &AtomicBool,
    mut responded: watch::Receiver<()>,
) -> io::Result<()> {
    let mut frontend = Frontend::default();
    let mut bytes = vec![0; BUFFER];
    loop {
        let length = client.read(&mut bytes).await?;
        if length == 0 {
            return Ok(());
        }
        way.linger().await;
        frontend.push(&bytes[..length]);
        while let Some((message, meaning)) = frontend.next().map_err(|_| io::ErrorKind::InvalidData)? {
            match meaning {
                // The proxy does not support TLS. A client that requires it disconnects.
                Meaning::Tls => return Err(io::ErrorKind::Unsupported.into()),
                Meaning::Commit if way.takes_a_drop() => {
                    // Every other time the proxy waits until the server has executed it; otherwise the server may lose it.
                    let certain = way.dropped.load(Ordering::Relaxed).is_multiple_of(2);
                    muted.store(true, Ordering::SeqCst);
                    server.write_all(&message.bytes).await?;
                    if certain {
                        let _ = tokio::time::timeout(ANSWER, responded.changed()).await;
                    }
                    return Ok(());
                }
                Meaning::Commit | Meaning::Other => server.write_all(&message.bytes).await?,
            }
        }
    }
}

/// From the server to the client. Data of a muted server is discarded. At its end, `responded` is dropped.
async fn answer(
    mut server: OwnedReadHalf,
    client: &mut OwnedWriteHalf,
    way: &Way,
    muted: &AtomicBool,
    responded: watch::Sender<()>,
) -> io::Result<()> {
    let mut responded = Some(responded);
    let mut bytes = vec![0; BUFFER];
    loop {
        let length = server.read(&mut bytes).await?;
        if length == 0 {
            return Ok(());
        }
        if muted.load(Ordering::SeqCst) {
            if is_idle(&bytes[..length]) {
                drop(responded.take());
            }
            continue;
        }
        way.linger().await;
        // It may have been muted meanwhile. Then the client must not receive this.
        if !muted.load(Ordering::SeqCst) {
            client.write_all(&bytes[..length]).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_store::cluster::Cluster;
    use tokio_postgres::{Client, NoTls};

    async fn connect(port: u16) -> Client {
        let url = format!("postgres://fermata@127.0.0.1:{port}/postgres?sslmode=disable");
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    async fn count(client: &Client) -> i64 {
        client.query_one("SELECT count(*) FROM t", &[]).await.unwrap().get(0)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn connections_are_cut_held_up_and_dropped_after_commit() {
        let server = tokio::task::block_in_place(|| Cluster::create(&std::env::temp_dir(), false, &[]).unwrap());
        let proxy = Proxy::to(server.port()).await.unwrap();
        let direct = connect(server.port()).await;
        direct.batch_execute("CREATE TABLE t (n int)").await.unwrap();

        let client = connect(proxy.port).await;
        client
            .batch_execute("BEGIN; INSERT INTO t VALUES (1); COMMIT")
            .await
            .unwrap();
        proxy.cut();
        assert!(client.batch_execute("SELECT 1").await.is_err(), "it was cut");

        // Every second time the server has certainly executed it. The client does not know either way.
        proxy.drop_after_commit(2);
        for dropped in 1..=2 {
            let client = connect(proxy.port).await;
            client.batch_execute("BEGIN").await.unwrap();
            client.execute("INSERT INTO t VALUES (2)", &[]).await.unwrap();
            assert!(client.batch_execute("COMMIT").await.is_err(), "the answer is lost");
            assert_eq!(proxy.dropped(), dropped);
        }
        assert!(count(&direct).await >= 2, "what was committed is there");
        let client = connect(proxy.port).await;
        client.batch_execute("BEGIN; COMMIT").await.unwrap();

        // While traffic is blocked, no response arrives and nothing is lost.
        proxy.hang(true);
        let before = count(&direct).await;
        let asking = client.execute("INSERT INTO t VALUES (3)", &[]);
        let mut asking = std::pin::pin!(asking);
        let early = tokio::time::timeout(Duration::from_millis(200), &mut asking).await;
        assert!(early.is_err() && count(&direct).await == before);
        proxy.hang(false);
        asking.await.unwrap();
        assert_eq!(count(&direct).await, before + 1);
        proxy.delay(Duration::from_millis(5));
        assert_eq!(count(&client).await, before + 1);
    }
}
