//! The events of one run, from a position in its journal.
//!
//! What must stay true: rows are given in the order of the journal, each exactly once, whole, and by their seq, so a reader can
//! continue at any process after the last row that it has. A feed that is not read holds one part of a journal at most.

use super::{End, Watch};
use crate::{
    engine::Engine,
    error::{EngineError, Refusal},
    session::Session,
    timeline::Entry,
};
use fermata_core::RunId;
use fermata_store::reads::RunRecord;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Journal rows that are read at once,
const ROWS: u32 = 50;
/// and the most bytes of them that are kept, if that is more than one row.
const BYTES: usize = 64 * 1024;

/// The shortest time between two reads of one journal. A short run is read once or twice, not after each step.
const PACE: Duration = Duration::from_millis(50);

/// Writes the entries of a journal row as they are shown.
pub type Render = fn(Vec<Entry>) -> String;

/// A journal row as it is shown.
#[derive(Debug)]
pub struct FedRow {
    /// Its seq.
    pub seq: u32,
    /// Its entries, as [`Render`] wrote them.
    pub text: String,
}

/// What a feed gives.
pub enum Fed {
    /// The next journal rows.
    Rows(Vec<Arc<FedRow>>),
    /// The run has ended and all its rows were given; `None` if it was removed.
    End(Option<Box<RunRecord>>),
    /// This process stops.
    Stopping,
}

/// The rows that were read last.
#[derive(Default)]
pub(super) struct CachedRows {
    /// The rows are those after this one.
    after: u32,
    rows: Vec<Arc<FedRow>>,
    read_at: Option<Instant>,
}

/// The events of one run.
pub struct RunFeed {
    engine: Engine,
    watch: Watch,
    /// The run, without its payloads.
    run: RunRecord,
    /// The last row that was given.
    after: u32,
    /// The position at which nothing was found, so that it is not read again.
    tried: u32,
    render: Render,
}

impl Session {
    /// The events of a run after the journal row `after`.
    ///
    /// # Errors
    /// [`Refusal::NoSuchRow`] if the journal has no such row.
    pub async fn follow(&self, run: RunId, after: u32, render: Render) -> Result<RunFeed, EngineError> {
        // Added first: what is committed after the reads below is noted.
        let watch = Watch::new(&self.engine.shared, run);
        let row = self.reads().run_row(run).await?.ok_or(Refusal::RunNotFound(run))?;
        let positions = self.engine.shared.store.positions(&[run]).await?;
        let position = positions.first().ok_or(Refusal::RunNotFound(run))?;
        if after > position.seq {
            return Err(Refusal::NoSuchRow {
                run,
                row: after,
                newest: position.seq,
            }
            .into());
        }
        watch.entry.note_stored(Some(position));
        watch.is_stored();
        Ok(RunFeed {
            engine: self.engine.clone(),
            watch,
            run: row,
            after,
            tried: 0,
            render,
        })
    }
}

impl RunFeed {
    /// What comes next. Waits until there is something; may be dropped while it waits.
    pub async fn next(&mut self) -> Result<Fed, EngineError> {
        loop {
            let seen = self.watch.seen();
            if seen.seq > self.after.max(self.tried) {
                let rows = self.read().await?;
                match rows.last() {
                    Some(last) => {
                        self.after = last.seq;
                        return Ok(Fed::Rows(rows));
                    }
                    None => self.tried = seen.seq,
                }
                continue;
            }
            match seen.end {
                Some(End::Removed) => return Ok(Fed::End(None)),
                Some(End::Here(_) | End::Elsewhere) => {
                    let row = self.engine.reads().run_row(self.run.id).await?;
                    return Ok(Fed::End(row.map(Box::new)));
                }
                None => {}
            }
            if !self.watch.changed().await {
                return Ok(Fed::Stopping);
            }
        }
    }

    /// The rows after the position. Watchers at the same position read the store once.
    async fn read(&self) -> Result<Vec<Arc<FedRow>>, EngineError> {
        let mut cached = self.watch.entry.rows.lock().await;
        let known = cached.rows.last().is_some_and(|last| last.seq > self.after);
        if cached.after > self.after || !known {
            if let Some(read_at) = cached.read_at {
                tokio::time::sleep_until(read_at + PACE).await;
            }
            let rows = self.read_store().await?;
            *cached = CachedRows {
                after: self.after,
                rows,
                read_at: Some(Instant::now()),
            };
        }
        let rows = cached.rows.iter().filter(|row| row.seq > self.after);
        Ok(rows.cloned().collect())
    }

    async fn read_store(&self) -> Result<Vec<Arc<FedRow>>, EngineError> {
        let shared = &self.engine.shared;
        let _permit = shared.hub.reads.acquire().await;
        shared.hub.count_read();
        let mut rows = shared.store.journal_after(self.run.id, self.after, ROWS).await?;
        let mut bytes = 0;
        let within = rows.iter().take_while(|row| {
            let is_first = bytes == 0;
            bytes += row.data.len();
            is_first || bytes <= BYTES
        });
        let within = within.count();
        rows.truncate(within);
        let shown = self.engine.reads().shown(&self.run, &rows).await?;
        let row = |(seq, entries)| {
            let text = (self.render)(entries);
            Arc::new(FedRow { seq, text })
        };
        Ok(shown.into_iter().map(row).collect())
    }
}
