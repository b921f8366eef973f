//! The socket: accepts connections until told to stop, then lets open requests finish for a while.

use crate::{WebConfig, router};
use fermata_runtime::Engine;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{io, pin::pin, time::Duration};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Pause after an accept that failed for want of something, such as file descriptors.
const BREATH: Duration = Duration::from_millis(100);

/// Serves until `shutdown` resolves, then lets open requests finish, for at most [`WebConfig::shutdown_grace`].
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    config: WebConfig,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let grace = config.shutdown_grace;
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(config.head_timeout);
    let is_loopback = listener.local_addr()?.ip().is_loopback();
    let app = TowerToHyperService::new(router(engine, config, is_loopback));
    let (closing, abandon) = (CancellationToken::new(), CancellationToken::new());
    let connections = TaskTracker::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            // The caller gave up before he was heard.
            Err(error) if is_of_connection(&error) => continue,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        let (http, app, closing) = (http.clone(), app.clone(), closing.clone());
        let abandon = abandon.clone();
        connections.spawn(async move { abandon.run_until_cancelled(hold(stream, http, app, closing)).await });
    }
    drop(listener);
    closing.cancel();
    connections.close();
    if tokio::time::timeout(grace, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "some requests did not finish in time");
        abandon.cancel();
        connections.wait().await;
    }
    Ok(())
}

async fn hold(
    stream: TcpStream,
    http: http1::Builder,
    app: TowerToHyperService<axum::Router>,
    closing: CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
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
        tracing::debug!(%error, "a connection broke");
    }
}

fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
