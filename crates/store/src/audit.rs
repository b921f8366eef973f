//! The audit trail: who changed what, when and from where. Rows are only added, and removed by age.
//!
//! What must stay true:
//! * If a change is durable, so is its row. [`recorded`] hands a row to the store calls of a future: the transaction of a change
//!   contains the row. Where the store writes a change together with those of other callers (messages to runs in PostgreSQL),
//!   the row is durable before the change, with the outcome `requested`.
//! * Work without a row pays nothing: starting and advancing runs is not audited.
//!
//! The row does not travel as a parameter: it would be one of every method that changes something, and of all calls that no
//! person makes.

use crate::Result;
use async_trait::async_trait;
use fermata_core::Timestamp;
use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};
use uuid::Uuid;

/// The audit trail.
#[async_trait]
pub trait AuditStore: Send + Sync {
    /// Adds a row. Adding it again changes nothing.
    async fn add_audit(&self, row: AuditRow) -> Result<()>;

    /// Rows, newest first. A page may be shorter than the limit and still have a next one, because the number of rows that one
    /// call examines is limited.
    async fn audit(&self, filter: AuditFilter) -> Result<AuditPage>;

    /// Removes rows before this id, at most `limit`, and returns their number.
    async fn prune_audit(&self, before: Uuid, limit: u32) -> Result<u64>;
}

/// One change, or an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// A UUIDv7.
    pub id: Uuid,
    /// When.
    pub at: Timestamp,
    /// The tenant of the caller, or of what was changed; empty for none.
    pub tenant: String,
    /// The principal.
    pub who: String,
    /// The credential, without its secret.
    pub credential: String,
    /// The address of the client.
    pub address: Option<String>,
    /// What was done, such as `workflow.publish`.
    pub action: String,
    /// To what: an id.
    pub target: String,
    /// How it ended.
    pub outcome: AuditOutcome,
    /// The version that was published, the reason of a cancel, why it was refused, and so on.
    pub detail: Option<String>,
    /// The checksum of the document that was replaced.
    pub before: Option<String>,
    /// The checksum of the new document.
    pub after: Option<String>,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditOutcome {
    /// The change is durable.
    Done,
    /// The change was asked for. Whether it changed anything is in the record of its target.
    Requested,
    /// Nothing was changed.
    Refused,
}

impl AuditOutcome {
    /// The word used in the API and the database.
    pub fn as_str(self) -> &'static str {
        match self {
            AuditOutcome::Done => "done",
            AuditOutcome::Requested => "requested",
            AuditOutcome::Refused => "refused",
        }
    }

    /// The outcome called `word`.
    pub fn parse(word: &str) -> Option<AuditOutcome> {
        use AuditOutcome::*;
        [Done, Requested, Refused].into_iter().find(|one| one.as_str() == word)
    }
}

/// Which rows are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only of this tenant.
    pub tenant: Option<String>,
    /// Only of this principal or credential.
    pub who: Option<String>,
    /// Only this action, or all actions that begin with it and a dot: `workflow`.
    pub action: Option<String>,
    /// Only of this target.
    pub target: Option<String>,
    /// Only with this outcome.
    pub outcome: Option<AuditOutcome>,
    /// Only rows before this one in the list (older).
    pub before: Option<Uuid>,
    /// Only this row and newer ones.
    pub from: Option<Uuid>,
    /// At most this many.
    pub limit: u32,
}

/// A page of rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditPage {
    /// The rows.
    pub items: Vec<AuditRow>,
    /// The next page starts before this row. `None` if there are no more.
    pub next: Option<Uuid>,
}

/// How many rows a list examines in one call.
const EXAMINED: u32 = 2000;

impl AuditFilter {
    pub(crate) fn of_tenant(&self) -> Option<&str> {
        self.tenant.as_deref().filter(|tenant| !tenant.is_empty())
    }

    pub(crate) fn examined(&self) -> u32 {
        let plain = self.who.is_none() && self.action.is_none() && self.target.is_none() && self.outcome.is_none();
        let covered = plain && self.tenant.as_deref() != Some("");
        match covered {
            true => self.limit.saturating_add(1),
            false => EXAMINED.max(self.limit.saturating_add(1)),
        }
    }

    fn fits(&self, row: &AuditRow) -> bool {
        let is = |wanted: &Option<String>, text: &str| wanted.as_deref().is_none_or(|wanted| wanted == text);
        let of_action = |wanted: &str| {
            let rest = row.action.strip_prefix(wanted);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        is(&self.tenant, &row.tenant)
            && self
                .who
                .as_deref()
                .is_none_or(|who| who == row.who || who == row.credential)
            && self.action.as_deref().is_none_or(of_action)
            && is(&self.target, &row.target)
            && self.outcome.is_none_or(|outcome| outcome == row.outcome)
    }

    /// The page that the examined rows give.
    pub(crate) fn page(&self, rows: Vec<AuditRow>) -> AuditPage {
        let all_read = rows.len() < self.examined() as usize;
        let (mut page, mut last) = (AuditPage::default(), None);
        for row in rows {
            if page.items.len() >= self.limit as usize {
                page.next = last;
                return page;
            }
            last = Some(row.id);
            if self.fits(&row) {
                page.items.push(row);
            }
        }
        page.next = last.filter(|_| !all_read);
        page
    }
}

tokio::task_local! {
    static CURRENT: Arc<Mutex<AuditRow>>;
}

/// Runs a future whose changes are recorded with this row. The row is `Done`; see [`describe`] for what it learns on the way.
/// Returns also the row as it was last.
pub async fn recorded<T>(row: AuditRow, work: impl Future<Output = T>) -> (T, AuditRow) {
    let row = Arc::new(Mutex::new(row));
    let done = CURRENT.scope(row.clone(), work).await;
    let row = row.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (done, row)
}

/// Completes the row of the current work, if it is recorded.
pub fn describe(change: impl FnOnce(&mut AuditRow)) {
    let _ = CURRENT.try_with(|row| change(&mut row.lock().unwrap_or_else(PoisonError::into_inner)));
}

/// Whether the current work is recorded.
pub fn is_recorded() -> bool {
    CURRENT.try_with(|_| ()).is_ok()
}

/// The row of the current work, if it is recorded.
pub(crate) fn current() -> Option<AuditRow> {
    let row = CURRENT.try_with(|row| row.lock().unwrap_or_else(PoisonError::into_inner).clone());
    row.ok()
}

macro_rules! columns {
    () => {
        "SELECT id, ts, tenant_id, who, credential, address, action, target, outcome, detail, checksum_before,
    checksum_after FROM audit_log "
    };
}

pub(crate) const ROWS: &str = concat!(columns!(), "WHERE id < ?1 AND id >= ?2 ORDER BY id DESC LIMIT ?3");

pub(crate) const ROWS_OF_TENANT: &str = concat!(
    columns!(),
    "WHERE tenant_id <> '' AND (tenant_id, id) < (?4, ?1) AND (tenant_id, id) >= (?4, ?2)
    ORDER BY tenant_id DESC, id DESC LIMIT ?3"
);

pub(crate) const ADD: &str = "INSERT INTO audit_log
    (id, ts, tenant_id, who, credential, address, action, target, outcome, detail, checksum_before, checksum_after)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT (id) DO NOTHING";

pub(crate) const PRUNE: &str =
    "DELETE FROM audit_log WHERE id IN (SELECT id FROM audit_log WHERE id < ?1 ORDER BY id LIMIT ?2)";
