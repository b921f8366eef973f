//! Accepts connections until shutdown, then gives open requests a grace period to finish.
//!
//! What must stay true:
//! * A burst of connections waits in the backlog and is not dropped: a lost SYN delays a client by a second.
//! * The number of connections is limited so that file descriptors remain for the database and for outgoing calls.
//! * Above the limit, connections can only make one health check and are closed after it. The oldest of them are closed for
//!   new ones, so idle connections cannot block health checks.
//! * A client that does not read its response is disconnected.

use crate::{
    Apps, WebConfig, apps,
    peer::{Peer, WithPeer},
    write_timeout::WriteTimeout,
};
use fermata_runtime::Engine;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use rustix::process::{Resource, getrlimit};
use std::{collections::VecDeque, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
    task::AbortHandle,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Connections that may wait to be accepted. The kernel may allow fewer (`net.core.somaxconn`).
const BACKLOG: u32 = 4096;

/// The most open connections above the limit.
const BEYOND_CAP: usize = 64;

/// A connection above the limit must send its request within this time.
const BEYOND_CAP_TIMEOUT: Duration = Duration::from_secs(5);

/// The size of the read and write buffers of a connection; a request head must fit into it.
const BUFFER: usize = 64 * 1024;

/// The pause after an accept that failed for lack of a resource, such as file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Listens on an address such as `127.0.0.1:7070`.
pub async fn listen(address: &str) -> io::Result<TcpListener> {
    let mut failure = None;
    for address in tokio::net::lookup_host(address).await? {
        match listen_on(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "the host name does not resolve to an address",
        )
    }))
}

fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The limit of connections: a quarter of the file descriptors is left for everything else.
fn connection_cap(config: &WebConfig) -> usize {
    let files = getrlimit(Resource::Nofile).current;
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    let most = (files / 4).saturating_mul(3).saturating_sub(BEYOND_CAP).max(1);
    config.max_connections.min(most)
}

/// Serves until `shutdown` resolves, then waits for open requests, for at most [`WebConfig::shutdown_grace`].
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    config: WebConfig,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let grace = config.shutdown_grace;
    let is_loopback = listener.local_addr()?.ip().is_loopback();
    let mut connections = Connections::new(engine, config, is_loopback);
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, from)) => connections.accept(stream, Peer(from.ip())),
            // The client closed the connection before it was accepted.
            Err(error) if is_client_error(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
    drop(listener);
    connections.close(grace).await;
    Ok(())
}

/// Accepts connections and tracks them.
struct Connections {
    http: http1::Builder,
    http_beyond_cap: http1::Builder,
    apps: Apps,
    write_timeout: Duration,
    permits: Arc<Semaphore>,
    /// Connections above the limit, oldest first.
    beyond_cap: VecDeque<AbortHandle>,
    tasks: TaskTracker,
    closing: CancellationToken,
    abandon: CancellationToken,
}

impl Connections {
    fn new(engine: Engine, config: WebConfig, is_loopback: bool) -> Connections {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(config.head_timeout)
            .max_buf_size(BUFFER);
        let mut http_beyond_cap = http.clone();
        http_beyond_cap
            .keep_alive(false)
            .header_read_timeout(config.head_timeout.min(BEYOND_CAP_TIMEOUT));
        let closing = CancellationToken::new();
        Connections {
            http,
            http_beyond_cap,
            write_timeout: config.write_timeout,
            permits: Arc::new(Semaphore::new(connection_cap(&config))),
            apps: apps(engine, config, is_loopback, closing.clone()),
            beyond_cap: VecDeque::new(),
            tasks: TaskTracker::new(),
            closing,
            abandon: CancellationToken::new(),
        }
    }

    fn accept(&mut self, stream: TcpStream, peer: Peer) {
        let permit = self.permits.clone().try_acquire_owned().ok();
        let is_beyond_cap = permit.is_none();
        let (http, app) = match is_beyond_cap {
            false => (self.http.clone(), self.apps.all.clone()),
            true => (self.http_beyond_cap.clone(), self.apps.health.clone()),
        };
        let connection = serve_connection(
            WriteTimeout::new(stream, self.write_timeout),
            http,
            WithPeer {
                service: TowerToHyperService::new(app),
                peer: Some(peer),
            },
            self.closing.clone(),
        );
        let abandon = self.abandon.clone();
        let task = self.tasks.spawn(async move {
            let _permit = permit;
            abandon.run_until_cancelled(connection).await;
        });
        if is_beyond_cap {
            self.note_beyond_cap(task.abort_handle());
        }
    }

    fn note_beyond_cap(&mut self, connection: AbortHandle) {
        self.beyond_cap.retain(|earlier| !earlier.is_finished());
        if self.beyond_cap.is_empty() {
            tracing::warn!("server.max_connections is reached; further connections can only make health checks");
        }
        self.beyond_cap.push_back(connection);
        if self.beyond_cap.len() > BEYOND_CAP
            && let Some(oldest) = self.beyond_cap.pop_front()
        {
            oldest.abort();
        }
    }

    /// Waits for open requests, for at most the grace period.
    async fn close(self, grace: Duration) {
        self.closing.cancel();
        self.tasks.close();
        if tokio::time::timeout(grace, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                connections = self.tasks.len(),
                "requests were aborted: they did not finish within the grace period"
            );
            self.abandon.cancel();
            self.tasks.wait().await;
        }
    }
}

async fn serve_connection(
    stream: WriteTimeout<TcpStream>,
    http: http1::Builder,
    app: WithPeer<TowerToHyperService<axum::Router>>,
    closing: CancellationToken,
) {
    if let Err(error) = stream.get_ref().set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY was refused");
    }
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), app));
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection failed");
    }
}

fn is_client_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
