//! `fermata serve`: the HTTP API, the engine or both, until a signal arrives.
//!
//! The order of stopping: no new runs and no new claims; running actions may finish within the grace period, other runs
//! are parked; no new connections; the store is closed; exit 0. A second signal ends the process at once, like a crash.

use crate::{
    cli::{self, Usage},
    config::{Config, LogFormat},
    log,
    signals::Signals,
    telemetry::{self, Exporter},
};
use anyhow::{Context, anyhow};
use fermata_runtime::{
    Engine, Observer, Role,
    actions::{HttpSettings, Registry},
    clock::SystemClock,
};
use fermata_store::Store;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    io,
    net::SocketAddr,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata serve
  fermata serve --listen 0.0.0.0:7070 --config fermata.toml
  fermata serve --listen 127.0.0.1:0 --database memory:
  fermata serve --database postgres://fermata:secret@db.example.com/fermata
  FERMATA_SERVER__PUBLIC_URL=https://flows.example.com \\
    fermata serve --database postgres://fermata:secret@db.example.com/fermata --role runner
  FERMATA_LOG__FORMAT=json FERMATA_LOG__LEVEL=debug fermata serve --config fermata.toml

On an address that other machines reach, the server starts only when [auth] says who may call it.

SIGTERM or Ctrl-C stops the server: running actions may finish, other runs continue in another process or at the next
start. A second signal ends the process at once; no acknowledged run is lost.

Exit codes: 0 stopped by a signal, 1 it could not start or continue, 2 the call is wrong, 130 or 143 at the second signal.";

/// How long open requests may go on after the engine has stopped.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// How long the server waits for the first heartbeat before it accepts requests.
const FIRST_HEARTBEAT: Duration = Duration::from_secs(1);

/// Runs the command.
pub async fn serve(config: Config, began: Instant) -> anyhow::Result<ExitCode> {
    let running = Running::start(&config, &config.http(), None).await?;
    announce(&config, running.url.as_deref(), began);
    running.until_signal().await
}

/// A started server and engine.
pub struct Running {
    pub engine: Engine,
    /// Such as `http://127.0.0.1:7070`, if it listens.
    pub url: Option<String>,
    store: Arc<dyn Store>,
    signals: Signals,
    working: JoinHandle<()>,
    serving: JoinHandle<io::Result<()>>,
    exporter: Option<Exporter>,
    quit: oneshot::Sender<()>,
}

impl Running {
    /// Opens the database, then starts the API and the engine as far as the role includes them.
    pub async fn start(
        config: &Config,
        http: &HttpSettings,
        observer: Option<Arc<dyn Observer>>,
    ) -> anyhow::Result<Running> {
        let signals = Signals::listen().context("signals cannot be listened to")?;
        log::begin(&config.log)?;
        check_role(config)?;
        raise_file_limit();
        let registry = Registry::builtin(http).context("the HTTP client cannot be made")?;
        let listener = match config.listen() {
            Some(listen) => Some(bind(listen).await?),
            None => None,
        };
        let address = listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let mut web = config.web();
        if let Some(address) = address {
            web.auth = config.auth_at(address)?;
        }
        let store = config.open().await?;
        warn_of_callbacks(config, address);
        let mut settings = config.settings_at(address);
        let traces = config.traces().map(|traces| {
            let (tracer, queue) = telemetry::Queue::new(traces);
            settings.tracer = Some(tracer);
            queue
        });
        let clock = Arc::new(SystemClock);
        let engine = Engine::with_observer(store.clone(), registry, settings, clock, observer);
        let exporter = match traces {
            Some(queue) => Some(queue.send(&engine.runner_id().to_string(), engine.span_metrics())?),
            None => None,
        };

        let (quit, quitting) = oneshot::channel::<()>();
        let quitting = async {
            let _ = quitting.await;
        };
        let worker = engine.clone();
        let working = tokio::spawn(async move { worker.run().await });
        // After the first heartbeat, accepted runs start in this process. A database that does not answer must not delay
        // the start of the server.
        if engine.settings().role.works() {
            let _ = tokio::time::timeout(FIRST_HEARTBEAT, engine.ready()).await;
        }
        let serving = match listener {
            Some(listener) => tokio::spawn(fermata_web::serve(listener, engine.clone(), web, quitting)),
            None => tokio::spawn(async {
                quitting.await;
                Ok(())
            }),
        };
        Ok(Running {
            engine,
            url: address.map(|address| format!("http://{address}")),
            store,
            signals,
            working,
            serving,
            exporter,
            quit,
        })
    }

    /// Serves until a signal arrives, then stops in order.
    pub async fn until_signal(mut self) -> anyhow::Result<ExitCode> {
        let failed = tokio::select! {
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
            exporter,
            quit,
            ..
        } = self;
        engine.stop();
        let stopping = async {
            // Until the engine has released all runs, requests are answered with 503 STOPPING.
            if !working.is_finished() {
                let _ = working.await;
            }
            let _ = quit.send(());
            // The engine has ended, so open requests have nothing left to wait for.
            if !serving.is_finished() && tokio::time::timeout(LAST_ANSWERS, serving).await.is_err() {
                tracing::warn!("some connections did not end in time and are dropped");
            }
            if let Some(exporter) = exporter {
                exporter.stop().await;
            }
            store.close().await
        };
        tokio::select! {
            closed = stopping => closed.context("the database did not close cleanly")?,
            signal = signals.next() => std::process::exit(signal.code().into()),
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(ExitCode::SUCCESS),
        }
    }
}

/// Raises the limit of open files, because every connection takes one.
fn raise_file_limit() {
    const PLENTY: u64 = 65_536;
    let now = getrlimit(Resource::Nofile);
    let allowed = now.maximum.map_or(PLENTY, |most| most.min(PLENTY));
    if now.current.is_some_and(|files| files < allowed) {
        let wanted = Rlimit {
            current: Some(allowed),
            maximum: now.maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, wanted) {
            tracing::debug!(%error, "the limit of open files could not be raised");
        }
    }
}

async fn bind(listen: &str) -> anyhow::Result<TcpListener> {
    fermata_web::listen(listen).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            anyhow!("{listen} is in use by another process; stop it first, or name another address with --listen")
        }
        io::ErrorKind::InvalidInput => Usage(format!(
            "`{listen}` is not an address to listen on; write it like 127.0.0.1:7070"
        ))
        .into(),
        _ => anyhow!("cannot listen on {listen}: {error}"),
    })
}

/// Refuses a role that does not fit the rest of the configuration.
fn check_role(config: &Config) -> Result<(), Usage> {
    let (role, database) = (config.server.role, &config.database.url);
    if role != Role::All && !database.is_shared() {
        return Err(Usage(format!(
            "the role `{role}` needs a database that several processes can share, which is PostgreSQL; {} belongs to one \
             process. Use `--role all`, or `--database postgres://…`",
            database.place()
        )));
    }
    if role == Role::Runner && config.server.public_url.is_none() {
        return Err(Usage(
            "the role `runner` needs server.public_url: it is part of the callback URLs that steps send to services, and a \
             runner does not accept callbacks itself. Set it to the public address of the API, for instance \
             FERMATA_SERVER__PUBLIC_URL=https://flows.example.com"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Warns if callback URLs cannot be reached from other machines. A process with the role `api` sends none.
fn warn_of_callbacks(config: &Config, address: Option<SocketAddr>) {
    let everywhere = address.is_some_and(|address| address.ip().is_unspecified());
    if config.server.role == Role::All && config.server.public_url.is_none() && everywhere {
        tracing::warn!("server.public_url is not set: callback URLs can be reached from this machine only");
    }
}

/// Prints that the server is ready, with its address.
pub fn announce(config: &Config, url: Option<&str>, began: Instant) {
    let version = env!("CARGO_PKG_VERSION");
    let role = match config.server.role {
        Role::All => String::new(),
        role => format!(" ({role})"),
    };
    let listening = url.map_or("not listening".to_owned(), |url| format!("listening on {url}"));
    let place = config.database.url.place();
    let took = began.elapsed().as_millis();
    let line = format!("fermata {version}{role} {listening}, data in {place}, ready in {took} ms");
    match config.log.format {
        LogFormat::Text => cli::say(line),
        LogFormat::Json => tracing::info!("{line}"),
    }
}
