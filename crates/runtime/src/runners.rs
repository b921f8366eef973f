//! Runners: the record of this process.

use crate::{engine::Shared, settings::Settings};
use fermata_core::{RunnerId, Timestamp};
use fermata_store::runners::{Runner, RunnerRecord};
use uuid::Uuid;

/// The record of this process.
pub(crate) fn describe(settings: &Settings, now: Timestamp) -> Runner {
    Runner {
        id: RunnerId(Uuid::now_v7()),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        role: settings.role.to_string(),
        public_url: settings.public_url.trim_end_matches('/').to_owned(),
        started_at: now,
    }
}

/// Warns if another live process has another callback address: one of the two is wrong, and callbacks may be lost.
pub(crate) async fn warn_of_other_addresses(shared: &Shared) {
    const MAX_RUNNERS: u32 = 100;
    let Ok(page) = shared.store.runners(None, MAX_RUNNERS).await else {
        return; // this is only a warning
    };
    let oldest = shared.clock.now().0 - shared.settings.lease_ttl.as_micros() as i64;
    let others = page.items.into_iter().filter(|record| record.heartbeat_at.0 >= oldest);
    for RunnerRecord { runner, .. } in others {
        if !runner.public_url.is_empty() && runner.public_url != shared.runner.public_url {
            tracing::warn!(
                "the process {} on {} has another callback address ({}) than this one ({}); set server.public_url to \
                 the same value in all processes",
                runner.pid,
                runner.host,
                runner.public_url,
                shared.runner.public_url
            );
        }
    }
}
