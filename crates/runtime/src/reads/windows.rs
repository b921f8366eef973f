//! The recorded attempts of a run and its external resources, as many as one result may hold.

use super::{MAX_PAGE, Reads};
use crate::error::EngineError;
use fermata_core::RunId;
use fermata_store::{
    StoreError,
    reads::{LinkRecord, Window},
    runs::Attempt,
};

/// The most bytes of texts in one result, unless it has only one item.
const MAX_BYTES: usize = 8 << 20;

impl Reads<'_> {
    /// The attempts in this window, in the order in which they ended, and how many there are in all. There may be fewer
    /// than the window allows ([`MAX_BYTES`]).
    pub async fn actions(&self, run: RunId, window: Window) -> Result<(Vec<Attempt>, u64), EngineError> {
        let size = |row: &Attempt| {
            let texts = [&row.parameters, &row.outputs, &row.error].into_iter().flatten();
            texts.map(String::len).sum()
        };
        self.visible(run).await?;
        let read = |part| self.engine.shared.store.actions(run, part);
        let (page, total) = within_bytes(window, size, read).await?;
        Ok((self.masked(page).await, total))
    }

    /// The external resources in this window that a run is linked to, in the order in which they were linked, and how many
    /// there are in all. There may be fewer than the window allows ([`MAX_BYTES`]).
    pub async fn links(&self, run: RunId, window: Window) -> Result<(Vec<LinkRecord>, u64), EngineError> {
        let size = |row: &LinkRecord| {
            let names = [&row.system, &row.resource_type, &row.resource_id];
            let url = row.url.as_ref().map_or(0, String::len);
            names.into_iter().map(String::len).sum::<usize>() + url
        };
        self.visible(run).await?;
        let read = |part| self.engine.shared.store.links(run, part);
        Ok(within_bytes(window, size, read).await?)
    }
}

/// Reads a window in parts until [`MAX_BYTES`] is reached, so that no more of it is in memory.
async fn within_bytes<T, F: Future<Output = Result<(Vec<T>, u64), StoreError>>>(
    window: Window,
    size: impl Fn(&T) -> usize,
    read: impl Fn(Window) -> F,
) -> Result<(Vec<T>, u64), StoreError> {
    let limit = window.limit.min(MAX_PAGE);
    let (mut page, mut bytes, mut largest) = (Vec::new(), 0, 1);
    loop {
        let known = page.len() as u32;
        let fits = (MAX_BYTES - bytes) / largest;
        let usual = if known == 0 { 16 } else { 512 };
        let part = Window {
            limit: (limit - known).min(usual).min(fits.max(1) as u32),
            offset: window.offset.saturating_add(known),
        };
        let (rows, total) = read(part).await?;
        let is_last = rows.len() < part.limit as usize;
        for row in rows {
            let size = size(&row);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Reads a window of items of these sizes: how many came, and the limits of the parts that were read.
    async fn read(sizes: &[usize], window: Window) -> (usize, Vec<u32>) {
        let parts = RefCell::new(Vec::new());
        let read = |part: Window| {
            parts.borrow_mut().push(part.limit);
            let rest = sizes.iter().skip(part.offset as usize);
            let rows: Vec<usize> = rest.take(part.limit as usize).copied().collect();
            std::future::ready(Ok((rows, sizes.len() as u64)))
        };
        let (page, total) = within_bytes(window, |size| *size, read).await.unwrap();
        assert_eq!(total, sizes.len() as u64);
        (page.len(), parts.into_inner())
    }

    #[tokio::test]
    async fn window_ends_where_the_limit_in_bytes_is_reached() {
        const MIB: usize = 1 << 20;
        let all = Window { limit: 1000, offset: 0 };
        assert_eq!(read(&[10; 2000], all).await, (1000, vec![16, 512, 472]));
        assert_eq!(read(&[10; 20], all).await, (20, vec![16, 512]));
        let end = Window { limit: 9, offset: 15 };
        assert_eq!(read(&[10; 20], end).await, (5, vec![9]));
        assert_eq!(read(&[MIB; 50], all).await.0, 8, "8 MiB in all");
        assert_eq!(read(&[9 * MIB; 3], all).await.0, 1, "one item, whatever its size");
        // Once an item is known to be large, no more of them are read than may fit.
        let sizes = [&[10; 16], &[MIB; 1][..], &[10; 2000]].concat();
        assert_eq!(read(&sizes, all).await.1[..3], [16, 512, 6]);
    }
}
