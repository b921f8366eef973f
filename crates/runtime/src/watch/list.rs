//! The newest runs that match a filter, as they change.
//!
//! What must stay true: watchers of the same list share its reads. A watcher keeps what it has shown as one number per run, and
//! gets the difference to the list as it is when it reads; so a slow one skips states and costs no more memory.

use super::{FIRST_PAUSE, PollState, poll};
use crate::{
    engine::{Shared, lock},
    error::{EngineError, Refusal},
    session::Session,
};
use fermata_core::RunId;
use fermata_store::reads::{RunFilter, RunRecord};
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex},
};
use tokio::{sync::watch, time::Instant};

/// The most different lists that one process watches: each costs a read per second.
const MAX_LISTS: usize = 200;

/// The most runs in a watched list.
pub const MAX_LISTED: u32 = 200;

/// Writes a run as lists show it.
pub type RenderRow = fn(&RunRecord) -> String;

/// A run of a list.
#[derive(Debug)]
pub struct ListedRun {
    /// Its id.
    pub id: RunId,
    /// The run, as [`RenderRow`] wrote it.
    pub text: String,
    /// Of the text.
    hash: u64,
}

type Listing = Arc<Vec<Arc<ListedRun>>>;

/// One watched list. All watchers with the same filter share it.
pub(super) struct WatchedList {
    filter: RunFilter,
    render: RenderRow,
    pub(super) poll: Mutex<PollState>,
    listing: watch::Sender<Listing>,
}

impl WatchedList {
    /// Reads the list again.
    pub(super) async fn read(&self, shared: &Shared) -> Result<(), fermata_store::StoreError> {
        let page = shared.store.runs(self.filter.clone()).await?;
        let listed = |run: &RunRecord| {
            let text = (self.render)(run);
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            Arc::new(ListedRun {
                id: run.id,
                hash: hasher.finish(),
                text,
            })
        };
        let listing: Vec<_> = page.items.iter().map(listed).collect();
        self.listing.send_if_modified(|before| {
            let is_same = before
                .iter()
                .map(|run| (run.id, run.hash))
                .eq(listing.iter().map(|run| (run.id, run.hash)));
            if !is_same {
                *before = Arc::new(listing);
            }
            !is_same
        });
        Ok(())
    }
}

/// What changed in a list since the last call.
#[derive(Debug, Default)]
pub struct ListChanges {
    /// Runs that are new in the list or look different now, oldest first.
    pub changed: Vec<Arc<ListedRun>>,
    /// Runs that are no longer in it.
    pub removed: Vec<RunId>,
}

/// The changes of one list.
pub struct ListFeed {
    shared: Arc<Shared>,
    list: Arc<WatchedList>,
    /// `None` only while it is dropped.
    listing: Option<watch::Receiver<Listing>>,
    /// What was given, by run.
    given: HashMap<RunId, u64>,
}

impl Session {
    /// The newest runs that match a filter, as they change: at most `limit` of it. The order of the filter is not used.
    ///
    /// # Errors
    /// [`Refusal::TooManyLists`] if this process watches too many different lists.
    pub async fn follow_list(&self, filter: RunFilter, render: RenderRow) -> Result<ListFeed, EngineError> {
        let shared = &self.engine.shared;
        let tenant = self.reads().limited(filter.tenant.clone());
        let filter = RunFilter {
            // What belongs to another tenant does not exist: such a list stays empty.
            limit: if tenant.is_ok() {
                filter.limit.min(MAX_LISTED)
            } else {
                0
            },
            tenant: tenant.unwrap_or_default(),
            order: Default::default(),
            ..filter
        };
        let (feed, is_new) = ListFeed::watch(shared, filter, render)?;
        if is_new {
            // So that the first answer is complete, and fails if the list cannot be read.
            feed.list.read(shared).await?;
        }
        let mut state = lock(&feed.list.poll);
        if state.due.is_none() {
            state.pause = FIRST_PAUSE.max(poll::interval(shared) / 2);
        }
        let due = state.due.unwrap_or_else(|| Instant::now() + state.pause);
        state.due = Some(due);
        drop(state);
        poll::start(shared, due);
        Ok(feed)
    }
}

impl ListFeed {
    /// The feed, and whether the list was not watched before.
    fn watch(shared: &Arc<Shared>, filter: RunFilter, render: RenderRow) -> Result<(ListFeed, bool), EngineError> {
        let mut watched = lock(&shared.hub.watched);
        let known = watched
            .lists
            .iter()
            .find(|list| list.filter == filter && list.listing.receiver_count() > 0);
        let (list, is_new) = match known {
            // Not read yet: each of its first watchers reads it, so none gets an empty list.
            Some(list) => (list.clone(), lock(&list.poll).due.is_none()),
            None if watched.lists.len() >= MAX_LISTS => return Err(Refusal::TooManyLists.into()),
            None => {
                let list = Arc::new(WatchedList {
                    filter,
                    render,
                    poll: Mutex::default(),
                    listing: watch::Sender::new(Arc::default()),
                });
                watched.lists.push(list.clone());
                (list, true)
            }
        };
        let feed = ListFeed {
            shared: shared.clone(),
            listing: Some(list.listing.subscribe()),
            list,
            given: HashMap::new(),
        };
        Ok((feed, is_new))
    }

    /// The list as it is now, compared with what was given. Empty if nothing changed.
    pub fn changes(&mut self) -> ListChanges {
        let Some(listing) = &mut self.listing else {
            return ListChanges::default();
        };
        let listing = listing.borrow_and_update().clone();
        let before = std::mem::take(&mut self.given);
        self.given = listing.iter().map(|run| (run.id, run.hash)).collect();
        let is_new = |run: &&Arc<ListedRun>| before.get(&run.id) != Some(&run.hash);
        let mut removed: Vec<RunId> = before
            .keys()
            .copied()
            .filter(|run| !self.given.contains_key(run))
            .collect();
        removed.sort_unstable();
        ListChanges {
            changed: listing.iter().rev().filter(is_new).cloned().collect(),
            removed,
        }
    }

    /// Waits until the list may have changed. False if this process stops.
    pub async fn changed(&mut self) -> bool {
        let Some(listing) = &mut self.listing else { return false };
        tokio::select! {
            biased;
            changed = listing.changed() => changed.is_ok(),
            () = self.shared.shutdown.stopping.cancelled() => false,
        }
    }
}

impl Drop for ListFeed {
    fn drop(&mut self) {
        let mut watched = lock(&self.shared.hub.watched);
        self.listing = None;
        if self.list.listing.receiver_count() == 0 {
            watched.lists.retain(|list| !Arc::ptr_eq(list, &self.list));
        }
    }
}
