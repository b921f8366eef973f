//! The inbox: waits that people and workers see, claim and answer.
//!
//! An item is the row of a wait with what people and workers see of it. [`WaitChange::Offer`](crate::runs::WaitChange)
//! puts it into the inbox, in the commit that records that the request was sent.

use uuid::Uuid;

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
