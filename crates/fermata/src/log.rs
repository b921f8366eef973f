//! What this process tells of itself: lines on stderr.
//!
//! What must stay true: no secret and no payload stands in a line, whatever level somebody asks for. Our own lines are
//! written so; what others would tell is capped here.

use crate::{
    cli,
    config::{Log, LogFormat},
};
use anyhow::anyhow;
use std::io;
use tracing::{Level, Metadata};
use tracing_subscriber::{EnvFilter, filter::filter_fn, layer::SubscriberExt, util::SubscriberInitExt};

/// From now on lines are written. `RUST_LOG` wins over the configuration.
pub fn begin(log: &Log) -> anyhow::Result<()> {
    let directives = match std::env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => directives,
        _ => log.level.clone(),
    };
    let filter = EnvFilter::try_new(&directives).map_err(|error| {
        anyhow!("`{directives}` is not a log level: {error}; use error, warn, info, debug or trace")
    })?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(cli::colors(&io::stderr()));
    // A filter of its own: a directive that names the driver would win over one that is added to the others.
    let wanted = tracing_subscriber::registry()
        .with(filter)
        .with(filter_fn(|line| !tells_data(line)));
    let installed = match log.format {
        LogFormat::Text => wanted.with(lines).try_init(),
        LogFormat::Json => wanted.with(lines.json()).try_init(),
    };
    installed.map_err(|error| anyhow!(error))
}

/// Below `info` the driver of PostgreSQL tells every statement with its parameters: tokens of callbacks, payloads.
fn tells_data(line: &Metadata<'_>) -> bool {
    let of_driver = matches!(
        line.target().split("::").next(),
        Some("tokio_postgres" | "postgres_protocol")
    );
    of_driver && *line.level() > Level::INFO
}
