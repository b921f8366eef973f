//! `fermata serve`: the HTTP API and the engine, until told to stop.
//!
//! The order of stopping: no new runs and no new claims; what runs may finish for the grace period or is parked; no
//! new connections; the store is closed; exit 0. A second signal ends the process at once, as a crash would.

use crate::{
    cli,
    config::{Config, LogFormat},
    log,
    signals::Signals,
};
use anyhow::{Context, anyhow};
use fermata_runtime::{
    Engine,
    actions::{HttpSettings, Registry},
    clock::SystemClock,
};
use fermata_store::Store;
use std::{
    io,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata serve
  fermata serve --listen 0.0.0.0:7070 --database sqlite:/var/lib/fermata/fermata.db
  fermata serve --listen 127.0.0.1:0 --database memory:
  fermata serve --database postgres://fermata:secret@db.example.com/fermata
  FERMATA_LOG__FORMAT=json FERMATA_LOG__LEVEL=debug fermata serve --config fermata.toml

SIGTERM or Ctrl-C stops it: running actions may finish, the rest continues at the next start. A second one ends it
at once; nothing that was acknowledged is lost.

Exit codes: 0 stopped as asked, 1 it could not start or go on, 2 the call is wrong, 130 or 143 at the second signal.";

/// How long open requests may go on after the engine has stopped.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Serves until a signal comes.
pub async fn serve(config: Config, began: Instant) -> anyhow::Result<ExitCode> {
    let running = Running::start(&config, &config.http()).await?;
    announce(&config, &running.url, began);
    running.until_told().await
}

/// A server that answers, and an engine that works.
pub struct Running {
    pub engine: Engine,
    /// Such as `http://127.0.0.1:7070`.
    pub url: String,
    store: Arc<dyn Store>,
    signals: Signals,
    working: JoinHandle<()>,
    serving: JoinHandle<io::Result<()>>,
    quit: oneshot::Sender<()>,
}

impl Running {
    /// Opens the database and begins to listen and to work.
    pub async fn start(config: &Config, http: &HttpSettings) -> anyhow::Result<Running> {
        let signals = Signals::listen().context("signals cannot be listened to")?;
        log::begin(&config.log)?;
        let registry = Registry::builtin(http).context("the HTTP client cannot be made")?;
        let listener = bind(&config.server.listen).await?;
        let address = listener.local_addr()?;
        let store = config.database.url.open(config.postgres()).await?;
        if config.server.public_url.is_none() && address.ip().is_unspecified() {
            tracing::warn!("server.public_url is not set: the addresses of callbacks are those of this machine only");
        }
        let settings = config.settings_at(address);
        let engine = Engine::new(store.clone(), registry, settings, Arc::new(SystemClock));

        let (quit, quitting) = oneshot::channel::<()>();
        let quitting = async {
            let _ = quitting.await;
        };
        let worker = engine.clone();
        let working = tokio::spawn(async move { worker.run().await });
        let serving = tokio::spawn(fermata_web::serve(listener, engine.clone(), config.web(), quitting));
        Ok(Running {
            engine,
            url: format!("http://{address}"),
            store,
            signals,
            working,
            serving,
            quit,
        })
    }

    /// Goes on until a signal comes, then stops in good order.
    pub async fn until_told(mut self) -> anyhow::Result<ExitCode> {
        let trouble = tokio::select! {
            signal = self.signals.next() => {
                tracing::info!(?signal, "stopping");
                None
            }
            ended = &mut self.serving => Some(match ended {
                Ok(Ok(())) => anyhow!("the HTTP server ended by itself"),
                Ok(Err(error)) => anyhow!(error).context("the HTTP server failed"),
                Err(error) => anyhow!(error).context("the HTTP server failed"),
            }),
            ended = &mut self.working => Some(match ended {
                Ok(()) => anyhow!("the engine ended by itself"),
                Err(error) => anyhow!(error).context("the engine failed"),
            }),
        };
        let Running {
            engine,
            store,
            mut signals,
            working,
            serving,
            quit,
            ..
        } = self;
        engine.stop();
        let stopping = async {
            // Until the engine has handed everything back, whoever asks hears that this server is stopping.
            if !working.is_finished() {
                let _ = working.await;
            }
            let _ = quit.send(());
            // Nothing happens any more that an open request could wait for.
            if !serving.is_finished() && tokio::time::timeout(LAST_ANSWERS, serving).await.is_err() {
                tracing::warn!("some connections did not end in time and are dropped");
            }
            store.close().await
        };
        tokio::select! {
            closed = stopping => closed.context("the database did not close cleanly")?,
            signal = signals.next() => std::process::exit(signal.code().into()),
        }
        match trouble {
            Some(trouble) => Err(trouble),
            None => Ok(ExitCode::SUCCESS),
        }
    }
}

async fn bind(listen: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(listen).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            anyhow!("{listen} is in use by another process; stop it first, or name another address with --listen")
        }
        io::ErrorKind::InvalidInput => {
            anyhow!("`{listen}` is not an address to listen on; write it like 127.0.0.1:7070")
        }
        _ => anyhow!("cannot listen on {listen}: {error}"),
    })
}

/// Says that it is ready, and where.
pub fn announce(config: &Config, url: &str, began: Instant) {
    let version = env!("CARGO_PKG_VERSION");
    let place = config.database.url.place();
    let took = began.elapsed().as_millis();
    let line = format!("fermata {version} listening on {url}, data in {place}, ready in {took} ms");
    match config.log.format {
        LogFormat::Text => cli::say(line),
        LogFormat::Json => tracing::info!("{line}"),
    }
}
