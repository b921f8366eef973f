//! The inbox: waits that people and workers see, claim and answer.
//!
//! An item is the row of a wait with what people and workers see of it. [`WaitChange::Offer`](crate::runs::WaitChange)
//! puts it into the inbox, in the commit that records that the request was sent.
//!
//! A worker claims an item under a new lease and renews the lease with heartbeats. When the lease has lapsed, the item can be
//! claimed again, under the same attempt. **May this answer be stored?** (`rules::refused_answer`) The first row that
//! matches decides.
//!
//! | item | answer | result |
//! | --- | --- | --- |
//! | missing, or of another tenant than the given one | any | `NotFound` |
//! | answered, closed, or past its deadline | any | `Closed` |
//! | leased to a worker | without a lease | `Leased` |
//! | leased under another lease, or its lease has lapsed | under a lease | `LeaseLapsed` |
//! | otherwise | any | it is stored: `Accepted` |

use crate::{Result, runs::Answer};
use async_trait::async_trait;
use fermata_core::{NodeId, RunId, Timestamp};
use uuid::Uuid;

/// Items of the inbox.
#[async_trait]
pub trait InboxStore: Send + Sync {
    /// Items, oldest first. A page may be shorter than the limit and still have a next one, because the number of rows that
    /// one call examines is limited.
    async fn items(&self, filter: ItemFilter) -> Result<ItemPage>;

    /// The wait that is meant, if there is one.
    async fn find_wait(&self, of: &WaitRef) -> Result<Option<FoundWait>>;

    /// One item.
    async fn item(&self, id: Uuid) -> Result<Option<StoredItem>>;

    /// Leases items of a queue that no worker holds: those that were never claimed first, then those whose lease lapsed
    /// longest ago. Each gets a new lease. An item past its deadline is not claimed.
    async fn claim_items(&self, claim: ItemClaim) -> Result<Vec<StoredItem>>;

    /// Extends a lease, and replaces the progress if there is one.
    async fn heartbeat_item(&self, heartbeat: ItemHeartbeat) -> Result<Heartbeat>;

    /// Answers an item, or the wait of a node. Payload, run message and wake-up are one transaction.
    async fn answer_item(&self, answer: ItemAnswer) -> Result<Answer>;
}

/// What people and workers see of a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxItem {
    /// Its id, a UUIDv7.
    pub id: Uuid,
    /// What is asked for.
    pub kind: ItemKind,
    /// The queue that workers claim from.
    pub queue: String,
    /// The tenant of the run; empty for none.
    pub tenant: String,
    /// The name of the run's workflow.
    pub workflow_id: String,
    /// Title, description, fields, outcomes, position of the state and so on, as JSON. The store does not read it.
    pub details: String,
}

/// What an item asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ItemKind {
    Task,
    Decision,
    Approval,
}

impl ItemKind {
    /// The word used in the API and the database.
    pub fn as_str(self) -> &'static str {
        match self {
            ItemKind::Task => "task",
            ItemKind::Decision => "decision",
            ItemKind::Approval => "approval",
        }
    }

    /// The kind called `word`.
    pub fn parse(word: &str) -> Option<ItemKind> {
        use ItemKind::*;
        [Task, Decision, Approval]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }
}

/// Whether an item still accepts an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemStatus {
    /// It waits for an answer.
    Pending,
    /// It was answered.
    Answered,
    /// It was closed without an answer: its run ended, or its time was over.
    Closed,
}

impl ItemStatus {
    /// The word used in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            ItemStatus::Pending => "pending",
            ItemStatus::Answered => "answered",
            ItemStatus::Closed => "closed",
        }
    }

    /// The status called `word`.
    pub fn parse(word: &str) -> Option<ItemStatus> {
        use ItemStatus::*;
        [Pending, Answered, Closed]
            .into_iter()
            .find(|status| status.as_str() == word)
    }
}

/// An item as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredItem {
    /// What people and workers see.
    pub item: InboxItem,
    /// The run.
    pub run: RunId,
    /// The node.
    pub node: NodeId,
    /// The attempt of the node.
    pub attempt: u32,
    /// The secret in the callback's address.
    pub token: String,
    /// Whether it accepts an answer.
    pub status: ItemStatus,
    /// When it was put into the inbox.
    pub created_at: Timestamp,
    /// From this time on it accepts no answer.
    pub deadline: Option<Timestamp>,
    /// The newest lease, which may have lapsed.
    pub lease: Option<ItemLease>,
    /// What the worker reported last, as JSON.
    pub progress: Option<String>,
    /// The answer, as JSON.
    pub payload: Option<String>,
    /// Who answered, if that is known.
    pub answered_by: Option<String>,
    /// When it was answered.
    pub answered_at: Option<Timestamp>,
}

/// The lease of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemLease {
    /// Heartbeats and answers of the worker carry it.
    pub id: Uuid,
    /// The worker, as it named itself.
    pub worker: String,
    /// From this time on the lease has lapsed.
    pub until: Timestamp,
}

/// Which items are listed.
#[derive(Debug, Clone, Default)]
pub struct ItemFilter {
    /// Only these.
    pub status: Option<ItemStatus>,
    /// Only of this queue.
    pub queue: Option<String>,
    /// Only of this tenant; empty for items without one.
    pub tenant: Option<String>,
    /// Only of this run.
    pub run: Option<RunId>,
    /// Only items after this one.
    pub after: Option<Uuid>,
    /// At most this many.
    pub limit: u32,
}

/// A page of items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ItemPage {
    /// The items, by id.
    pub items: Vec<StoredItem>,
    /// The next page starts after this item. `None` if there are no more.
    pub next: Option<Uuid>,
}

/// A request for items to work on.
#[derive(Debug, Clone)]
pub struct ItemClaim {
    /// The queue.
    pub queue: String,
    /// Only items of this tenant. `None`: of all tenants.
    pub tenant: Option<String>,
    /// The worker, as it names itself.
    pub worker: String,
    /// At most this many.
    pub limit: u32,
    /// When the leases lapse.
    pub until: Timestamp,
    /// Now.
    pub now: Timestamp,
}

/// A sign of life of a worker that works on an item.
#[derive(Debug, Clone)]
pub struct ItemHeartbeat {
    /// The item.
    pub item: Uuid,
    /// The lease of the worker.
    pub lease: Uuid,
    /// Only if the item belongs to this tenant. `None`: to any.
    pub tenant: Option<String>,
    /// The new end of the lease.
    pub until: Timestamp,
    /// The progress, as JSON. `None` keeps the last one.
    pub progress: Option<String>,
    /// Now.
    pub now: Timestamp,
}

/// The result of a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heartbeat {
    /// The lease is extended.
    Extended,
    /// The item was answered or closed, or its deadline has passed.
    Closed,
    /// The lease has lapsed, or the item is held under another lease.
    LeaseLapsed,
    /// There is no such item.
    NotFound,
}

/// How a wait is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitRef {
    /// The secret in the callback's address.
    Token(String),
    /// An item of the inbox.
    Item(Uuid),
    /// The newest attempt of a node, whether it is in the inbox or not.
    Node {
        /// The run.
        run: RunId,
        /// The node.
        node: NodeId,
    },
}

/// A wait, as far as it is needed to check an answer and to read it. Except for the answer, none of this changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundWait {
    /// The secret in the callback's address.
    pub token: String,
    /// The run.
    pub run: RunId,
    /// The node.
    pub node: NodeId,
    /// The attempt of the node.
    pub attempt: u32,
    /// The tenant, if it is in the inbox.
    pub tenant: Option<String>,
    /// What people and workers see, as JSON, if it is in the inbox.
    pub details: Option<String>,
    /// The answer, as JSON.
    pub payload: Option<String>,
    /// Who answered, if that is known.
    pub answered_by: Option<String>,
    /// When it was answered.
    pub answered_at: Option<Timestamp>,
}

/// An answer to an item, or to the wait of a node.
#[derive(Debug, Clone)]
pub struct ItemAnswer {
    /// What is answered.
    pub of: WaitRef,
    /// The lease of the worker; `None` for a person.
    pub lease: Option<Uuid>,
    /// Only if the item belongs to this tenant. `None`: to any. Not checked for a wait that is not in the inbox.
    pub tenant: Option<String>,
    /// The answer, as JSON.
    pub payload: String,
    /// Who answered, if that is known.
    pub by: Option<String>,
    /// Now.
    pub at: Timestamp,
}

/// The number of a queue in [`ChangeHint::Inbox`](crate::ChangeHint). Two queues may share it.
pub fn queue_number(queue: &str) -> u64 {
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    queue.bytes().fold(0xcbf2_9ce4_8422_2325, hash)
}

/// How many rows a list examines in one call if its index does not cover its filter.
pub(crate) const EXAMINED: u32 = 500;

/// The columns of an item.
macro_rules! item_columns {
    () => {
        "item_id, kind, queue, tenant_id, workflow_id, item_json, workflow_execution_id, node_id, attempt, token, is_open,
    created_at, deadline, lease_id, worker, lease_until, progress_json, payload_json, answered_by, answered_at"
    };
}

pub(crate) const ITEM: &str = concat!("SELECT ", item_columns!(), " FROM run_waits WHERE item_id = ?1");

pub(crate) const ITEM_COLUMNS: &str = item_columns!();

/// The items without an answer in the order of claims. Only the first due ones are read.
pub(crate) const CLAIMABLE: &str = "FROM run_waits WHERE item_id IS NOT NULL AND is_open AND queue = ?1
    AND lease_until <= ?2 AND (deadline IS NULL OR deadline > ?2) ORDER BY lease_until, item_id LIMIT ?3";

pub(crate) const CLAIMABLE_OF_TENANT: &str = "FROM run_waits WHERE item_id IS NOT NULL AND is_open AND queue = ?1
    AND tenant_id = ?4 AND lease_until <= ?2 AND (deadline IS NULL OR deadline > ?2)
    ORDER BY lease_until, item_id LIMIT ?3";

pub(crate) const WAIT_OF_TOKEN: &str = "SELECT token, workflow_execution_id, node_id, attempt, tenant_id, item_json,
    payload_json, answered_by, answered_at FROM run_waits WHERE token = ?1";

pub(crate) const WAIT_OF_ITEM: &str = "SELECT token, workflow_execution_id, node_id, attempt, tenant_id, item_json,
    payload_json, answered_by, answered_at FROM run_waits WHERE item_id = ?1";

/// The newest wait of a node.
pub(crate) const WAIT_OF_NODE: &str = "SELECT token, workflow_execution_id, node_id, attempt, tenant_id, item_json,
    payload_json, answered_by, answered_at FROM run_waits WHERE workflow_execution_id = ?1 AND node_id = ?2 ORDER BY attempt DESC, is_open DESC LIMIT 1";

/// How a list finds its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemWalk<'a> {
    Run(RunId),
    Queue(&'a str),
    /// The items of a tenant that wait for an answer.
    Tenant(&'a str),
    /// All items of a tenant.
    TenantItems(&'a str),
    Pending,
    All,
}

impl ItemWalk<'_> {
    /// Rows after the item `?1`, at most `?2`; `?3` is the run, queue or tenant, `?4` the largest id.
    pub(crate) fn sql(&self) -> &'static str {
        match self {
            // A run has few waits. They are read first, so that no other index is walked instead.
            ItemWalk::Run(_) => concat!(
                "WITH waits AS MATERIALIZED (SELECT ",
                item_columns!(),
                " FROM run_waits WHERE workflow_execution_id = ?3)
                SELECT * FROM waits WHERE item_id > ?1 ORDER BY item_id LIMIT ?2"
            ),
            ItemWalk::Queue(_) => concat!(
                "SELECT ",
                item_columns!(),
                " FROM run_waits WHERE item_id IS NOT NULL AND is_open 
                AND (queue, item_id) > (?3, ?1) AND (queue, item_id) <= (?3, ?4) ORDER BY queue, item_id LIMIT ?2"
            ),
            ItemWalk::Tenant(_) => concat!(
                "SELECT ",
                item_columns!(),
                " FROM run_waits WHERE item_id IS NOT NULL AND is_open 
                AND (tenant_id, item_id) > (?3, ?1) AND (tenant_id, item_id) <= (?3, ?4)
                ORDER BY tenant_id, item_id LIMIT ?2"
            ),
            ItemWalk::TenantItems(_) => concat!(
                "SELECT ",
                item_columns!(),
                " FROM run_waits WHERE item_id IS NOT NULL AND tenant_id <> ''
                AND (tenant_id, item_id) > (?3, ?1) AND (tenant_id, item_id) <= (?3, ?4)
                ORDER BY tenant_id, item_id LIMIT ?2"
            ),
            ItemWalk::Pending => concat!(
                "SELECT ",
                item_columns!(),
                " FROM run_waits WHERE item_id IS NOT NULL AND is_open AND item_id > ?1 ORDER BY item_id LIMIT ?2"
            ),
            ItemWalk::All => concat!(
                "SELECT ",
                item_columns!(),
                " FROM run_waits WHERE item_id IS NOT NULL AND item_id > ?1 ORDER BY item_id LIMIT ?2"
            ),
        }
    }
}

impl ItemFilter {
    pub(crate) fn walk(&self) -> ItemWalk<'_> {
        let pending = self.status == Some(ItemStatus::Pending);
        // A list of one tenant reads rows of that tenant only. Items without a tenant are in the index of pending ones only.
        match (self.run, &self.queue, &self.tenant) {
            (Some(run), ..) => ItemWalk::Run(run),
            (None, _, Some(tenant)) if pending => ItemWalk::Tenant(tenant),
            (None, _, Some(tenant)) if !tenant.is_empty() => ItemWalk::TenantItems(tenant),
            (None, Some(queue), None) if pending => ItemWalk::Queue(queue),
            (None, None, None) if pending => ItemWalk::Pending,
            _ => ItemWalk::All,
        }
    }

    /// How many rows are read: one more than the page if every row fits.
    pub(crate) fn examined(&self) -> u32 {
        let covered = match self.walk() {
            ItemWalk::Queue(_) | ItemWalk::Pending => true,
            ItemWalk::Tenant(_) => self.queue.is_none(),
            ItemWalk::TenantItems(_) => self.status.is_none() && self.queue.is_none(),
            ItemWalk::All => self.status.is_none() && self.queue.is_none() && self.tenant.is_none(),
            ItemWalk::Run(_) => false,
        };
        match covered {
            true => self.limit.saturating_add(1),
            false => EXAMINED.max(self.limit.saturating_add(1)),
        }
    }

    fn fits(&self, item: &StoredItem) -> bool {
        self.status.is_none_or(|status| item.status == status)
            && self.queue.as_ref().is_none_or(|queue| item.item.queue == *queue)
            && self.tenant.as_ref().is_none_or(|tenant| item.item.tenant == *tenant)
            && self.run.is_none_or(|run| item.run == run)
    }

    /// The page that the examined rows give.
    pub(crate) fn page(&self, rows: Vec<StoredItem>) -> ItemPage {
        let all_read = rows.len() < self.examined() as usize;
        let mut page = ItemPage::default();
        let mut last = None;
        for row in rows {
            if page.items.len() >= self.limit as usize {
                page.next = last;
                return page;
            }
            last = Some(row.item.id);
            if self.fits(&row) {
                page.items.push(row);
            }
        }
        page.next = last.filter(|_| !all_read);
        page
    }
}

/// The status of a row.
pub(crate) fn item_status(open: bool, answered: bool) -> ItemStatus {
    match (open, answered) {
        (true, _) => ItemStatus::Pending,
        (false, true) => ItemStatus::Answered,
        (false, false) => ItemStatus::Closed,
    }
}
