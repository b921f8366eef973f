//! The recorded attempts of a run, as many as one result may hold.

use super::{MAX_PAGE, Reads};
use crate::error::EngineError;
use fermata_core::RunId;
use fermata_store::{reads::Window, runs::Attempt};

/// The most bytes of parameters, outputs and errors in one result, unless it has only one attempt.
const MAX_BYTES: usize = 8 << 20;

impl Reads<'_> {
    /// The attempts in this window, in the order in which they ended, and how many there are in all. There may be fewer
    /// than the window allows: they are read in parts until [`MAX_BYTES`] is reached, so no more of them is in memory.
    pub async fn actions(&self, run: RunId, window: Window) -> Result<(Vec<Attempt>, u64), EngineError> {
        let (page, total) = self.stored_actions(run, window).await?;
        Ok((self.masked(page).await, total))
    }

    async fn stored_actions(&self, run: RunId, window: Window) -> Result<(Vec<Attempt>, u64), EngineError> {
        let limit = window.limit.min(MAX_PAGE);
        let (mut page, mut bytes, mut largest) = (Vec::new(), 0, 1);
        loop {
            let read = page.len() as u32;
            let fits = (MAX_BYTES - bytes) / largest;
            let usual = if read == 0 { 16 } else { 512 };
            let part = Window {
                limit: (limit - read).min(usual).min(fits.max(1) as u32),
                offset: window.offset.saturating_add(read),
            };
            let (rows, total) = self.engine.shared.store.actions(run, part).await?;
            let is_last = rows.len() < part.limit as usize;
            for row in rows {
                let texts = [&row.parameters, &row.outputs, &row.error].into_iter().flatten();
                let size = texts.map(String::len).sum::<usize>();
                if !page.is_empty() && bytes + size > MAX_BYTES {
                    return Ok((page, total));
                }
                (bytes, largest) = (bytes + size, largest.max(size));
                page.push(row);
            }
            if is_last || page.len() >= limit as usize || bytes >= MAX_BYTES {
                return Ok((page, total));
            }
        }
    }
}
