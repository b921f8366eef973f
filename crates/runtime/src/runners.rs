//! Runners: this process as others see it, and the others.

use crate::{engine::Engine, error::EngineError, settings::Settings};
use fermata_core::{RunnerId, Timestamp};
use fermata_store::{
    reads::Page,
    runners::{Runner, RunnerRecord},
};
use uuid::Uuid;

/// This process, as others see it.
pub(crate) fn describe(settings: &Settings, now: Timestamp) -> Runner {
    Runner {
        id: RunnerId(Uuid::now_v7()),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        role: settings.role.to_string(),
        started_at: now,
    }
}

impl Engine {
    /// Runners that were heard of and did not retire, the newest first, and which of them live; only those older than
    /// `before`, if given.
    pub async fn runners(
        &self,
        before: Option<RunnerId>,
        limit: u32,
    ) -> Result<Page<(RunnerRecord, bool)>, EngineError> {
        let page = self.shared.store.runners(before, limit).await?;
        let now = self.shared.clock.now();
        let ttl = self.shared.settings.lease_ttl.as_millis() as u64;
        let lives = |record: &RunnerRecord| record.heartbeat_at.plus_millis(ttl) >= now;
        let items = page.items.into_iter().map(|record| {
            let lives = lives(&record);
            (record, lives)
        });
        Ok(Page {
            items: items.collect(),
            more: page.more,
        })
    }
}
