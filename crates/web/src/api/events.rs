//! The events of a run as people read them, in windows that count events.
//!
//! A journal row holds the events of one commit, so a window cannot be asked of the store. The journal is read in parts,
//! and only what lies in the window is kept. Journals hold no payloads; reading one costs about 100 bytes for each event.

use crate::{Web, error::ApiError, views::EventView};
use fermata_core::{Plan, decode};
use fermata_runtime::timeline;
use fermata_store::reads::{EventRecord, RunRecord, Window};

/// Journal rows that are read at once.
const ROWS: u32 = 1000;

/// The events in this window, oldest first, and how many there are in all.
pub(super) async fn events(web: &Web, run: &RunRecord, window: Window) -> Result<(Vec<EventView>, u64), ApiError> {
    let workflows = web.engine.workflows();
    let compiled = workflows.compiled(run.workflow_uid, &run.workflow_id, run.workflow_version);
    // Without the plan they are shown with less.
    let compiled = compiled.await.ok();
    let plan = compiled.as_ref().map(|compiled| &*compiled.plan);
    let from = u64::from(window.offset);
    let mut wanted = Wanted {
        from,
        to: from + u64::from(window.limit),
        seen: 0,
        events: Vec::new(),
    };
    let mut offset = 0;
    loop {
        let part = Window { limit: ROWS, offset };
        let (rows, _) = web.engine.store().events(run.id, part).await?;
        rows.iter().for_each(|row| wanted.add(row, plan));
        offset += ROWS;
        if rows.len() < ROWS as usize {
            return Ok((wanted.events, wanted.seen));
        }
    }
}

struct Wanted {
    from: u64,
    to: u64,
    seen: u64,
    events: Vec<EventView>,
}

impl Wanted {
    fn add(&mut self, row: &EventRecord, plan: Option<&Plan>) {
        let decoded = decode(&row.data);
        let count = decoded.as_ref().map_or(1, |events| timeline::count(events)) as u64;
        let first = self.seen;
        self.seen += count;
        if self.seen <= self.from || first >= self.to {
            return;
        }
        let views: Vec<EventView> = match decoded {
            Ok(events) => {
                let entries = timeline::entries(row.seq, row.at, &events, plan);
                entries.into_iter().map(EventView::from).collect()
            }
            Err(error) => vec![EventView::unreadable(row.seq, row.at, &error.to_string())],
        };
        let inside = |at: u64| (self.from..self.to).contains(&at);
        let placed = (first..).zip(views).filter(|(at, _)| inside(*at));
        self.events.extend(placed.map(|(_, view)| view));
    }
}
