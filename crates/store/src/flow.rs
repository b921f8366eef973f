//! Flow control: how many runs of a key are active at once (`places`), how many begin within a time (`rate`), starts that
//! are merged (`debounce`), and keys of which one run exists at a time (`unique`).
//!
//! A run asks in this order: unique, debounce, rate, places. What it gets is decided by one pure function ([`rules::ask`])
//! over the rows of its keys, which the store has locked.
//!
//! | the run | its row |
//! | --- | --- |
//! | was delayed by `debounce` or `rate` | `Pending`, due when the delay ends; it asks for the rest at its first claim ([`FlowStore::admit`]) |
//! | waits for a place | `Pending` without `wake_at`, in the index of the key that it waits for |
//! | has all its places | as a run without flow control |
//!
//! A run of a paused workflow asks for all that comes before places, and then waits for the key of the pause
//! ([`paused_key`]), which has no row. Places that it holds go to others. A resume makes the runs that wait for it due, in
//! batches ([`FlowStore::release_paused`]); the sweep finds runs that were stored meanwhile.
//!
//! What must stay true:
//! * A place is handed over, never raced for: the commit that ends a run gives its place to the first run that waits (by
//!   priority, then age) in the same transaction, or frees it. So a claim needs no knowledge of keys.
//! * A place belongs to its run until the run ends. A lost lease does not free it.
//! * A run holds its places in a fixed order (document, then tenant), and keeps the first while it waits for the second. So
//!   runs cannot block each other.
//! * A key has a row only while a run holds it, or while its window of a rate has not ended.
//! * A run that has ended has no `flow_step`. One that has was ended by SQL or by an older program: the sweep
//!   ([`FlowStore::sweep_flow`]) frees its places.
//! * A run without flow control causes no read and no write here.

pub(crate) mod rules;

use crate::Result;
use async_trait::async_trait;
use fermata_core::{RunId, RunnerId, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How a run is limited. It is stored with the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Flow {
    /// While a run with this key has not ended, a start is answered with that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<Key>,
    /// Starts that follow each other within a time are one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debounce: Option<Debounce>,
    /// How many runs may begin in a window of time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The places that the run needs, in the order in which it takes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Place>,
    /// Keys of which an ancestor that waits for this run holds a place. The run and its descendants share it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<String>,
}

/// A key, and what users see of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// The key of the row. It contains the tenant and the workflow.
    pub key: String,
    /// The value that the document's template rendered to. Empty if the document has no key.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
}

/// A place of a key that the run needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The key.
    #[serde(flatten)]
    pub key: Key,
    /// How many runs hold a place at once.
    pub limit: u32,
    /// The version of the workflow that says so; 0 for the limit of a tenant. The limit of the active version counts.
    #[serde(default)]
    pub version: u32,
    /// Whether a start is refused if no place is free.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refuse: bool,
    /// Whether it is the limit of the tenant and not of the document.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tenant: bool,
}

/// A rate: fixed windows that begin at multiples of `period`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rate {
    /// The key.
    #[serde(flatten)]
    pub key: Key,
    /// How many runs may begin in a window.
    pub limit: u32,
    /// The length of a window, in milliseconds.
    pub period_ms: u64,
}

/// A debounce: the run begins when no further start came for a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Debounce {
    /// The key.
    #[serde(flatten)]
    pub key: Key,
    /// The time without a start, in milliseconds.
    pub quiet_ms: u64,
    /// The run begins at the latest this long after its first start, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<u64>,
}

impl Key {
    /// The key of a rule of a workflow, for a value that identifies what the document's template rendered to. Keys of the same rule
    /// and workflow are neighbours in the order of texts.
    pub fn of_workflow(rule: char, workflow: Uuid, tenant: &str, id: &str, value: String) -> Key {
        // With the length of the tenant, no two tenants share a key.
        let length = tenant.len();
        Key {
            key: format!("{rule}:{}:{length}:{tenant}:{id}", workflow.simple()),
            value,
        }
    }

    /// The key of a tenant.
    pub fn of_tenant(tenant: &str) -> Key {
        Key {
            key: format!("t:{tenant}"),
            value: tenant.to_owned(),
        }
    }
}

/// The limit of keys of a workflow whose active version has no limit.
pub const UNLIMITED: u32 = i32::MAX as u32;

/// The rule of keys whose places a document limits.
pub const PLACES: char = 'c';

/// The keys of which a document limits the places: those between these two texts.
pub fn places_of(workflow: Uuid) -> (String, String) {
    let workflow = workflow.simple();
    (format!("{PLACES}:{workflow}:"), format!("{PLACES}:{workflow};"))
}

/// The keys that runs of a workflow may wait for: ranges between two texts. The second one contains those of all tenants.
pub(crate) fn awaited_by(workflow: Uuid) -> [(String, String); 2] {
    [places_of(workflow), ("t:".to_owned(), "t;".to_owned())]
}

impl Flow {
    /// Whether it neither limits the run nor says something to its descendants.
    pub fn is_empty(&self) -> bool {
        *self == Flow::default()
    }

    /// The stored form.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| unreachable!("keys are always JSON: {error}"))
    }

    /// Whether starts may be answered with another run, whose requestIds are then kept.
    pub(crate) fn merges(&self) -> bool {
        self.unique.is_some() || self.debounce.is_some()
    }

    /// The keys of which one run is the owner.
    pub(crate) fn owned(&self) -> impl Iterator<Item = &str> {
        let debounce = self.debounce.iter().map(|debounce| debounce.key.key.as_str());
        self.unique.iter().map(|unique| unique.key.as_str()).chain(debounce)
    }

    /// All keys, each once.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        let rate = self.rate.iter().map(|rate| rate.key.key.as_str());
        let places = self.places.iter().map(|place| place.key.key.as_str());
        self.owned().chain(rate).chain(places)
    }
}

/// What a run asks for next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowStep {
    /// It was delayed by `debounce`.
    Debounce,
    /// It was delayed by `rate`.
    Rate,
    /// It waits for a place, or for nothing if it holds all its places.
    Places,
}

impl FlowStep {
    /// The word in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            FlowStep::Debounce => "debounce",
            FlowStep::Rate => "rate",
            FlowStep::Places => "concurrency",
        }
    }

    /// The step called `word`.
    pub fn parse(word: &str) -> Option<FlowStep> {
        use FlowStep::*;
        [Debounce, Rate, Places].into_iter().find(|step| step.as_str() == word)
    }
}

/// The flow control of a stored run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFlow {
    /// How it is limited.
    pub flow: Flow,
    /// What it asks for next.
    pub step: FlowStep,
    /// How many of its places it holds: the first ones.
    pub held: u32,
    /// The key that it waits for.
    pub waiting: Option<String>,
}

impl RunFlow {
    /// Whether the run has everything that it needs to begin.
    pub fn is_admitted(&self) -> bool {
        self.step == FlowStep::Places && self.held as usize >= self.flow.places.len()
    }

    /// Whether it waits because its workflow is paused.
    pub fn is_paused(&self) -> bool {
        self.waiting.as_deref().and_then(paused_workflow).is_some()
    }

    /// The place that it waits for.
    pub fn awaited(&self) -> Option<&Place> {
        let waiting = self.waiting.as_deref()?;
        self.flow.places.iter().find(|place| place.key.key == waiting)
    }

    /// Reads the columns of a run; `None` without flow control.
    pub(crate) fn read(
        flow: Option<String>,
        step: Option<&str>,
        held: Option<u32>,
        waiting: Option<String>,
    ) -> Result<Option<Box<RunFlow>>, String> {
        let Some(step) = step else { return Ok(None) };
        let unknown = |what: &str| format!("the flow control of a run cannot be read: {what}");
        let flow = flow.as_deref().map_or(Ok(Flow::default()), serde_json::from_str);
        Ok(Some(Box::new(RunFlow {
            flow: flow.map_err(|error| unknown(&error.to_string()))?,
            step: FlowStep::parse(step).ok_or_else(|| unknown(step))?,
            held: held.unwrap_or(0),
            waiting,
        })))
    }
}

/// A held run that asks for what it needs before it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admit {
    /// The run.
    pub run: RunId,
    /// The runner that holds it.
    pub runner: RunnerId,
    /// The epoch of its lease.
    pub epoch: u64,
    /// Its workflow, which may be paused.
    pub workflow: Uuid,
    /// How it is limited. If the run was stored with its own flow control, that one is used.
    pub flow: Flow,
    /// The limit of its workflow's active version, if the run follows another version. It counts if its key has no limit yet: then
    /// nothing was stored when the other version became active.
    pub limit: Option<u32>,
    /// Now.
    pub at: Timestamp,
}

impl Admit {
    /// How the run is limited, with the limit of the active version.
    pub(crate) fn in_force(&self, stored: Option<&RunFlow>) -> Flow {
        let mut flow = stored.map_or(&self.flow, |stored| &stored.flow).clone();
        if let Some(limit) = self.limit {
            let places = flow.places.iter_mut().filter(|place| !place.tenant);
            places.for_each(|place| place.limit = limit);
        }
        flow
    }
}

/// The result of [`FlowStore::admit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// The run has everything; its runner keeps it.
    Admitted,
    /// The run was released. It waits for a place, or for its time.
    Waits,
    /// Another run has its unique key, or has taken its payload. The runner keeps the run and must end it.
    Merged {
        /// The other run.
        into: RunId,
    },
    /// No place is free, and the document refuses such runs. The runner keeps the run and must end it.
    Full,
    /// The runner does not hold the run under this epoch, or the run has begun or ended. Nothing was written.
    Fenced,
}

/// Flow control.
#[async_trait]
pub trait FlowStore: Send + Sync {
    /// Asks for what a held run needs before its first step.
    async fn admit(&self, admit: Admit) -> Result<Admission>;

    /// Makes runs of a workflow that wait for a place due now, at most `limit`, and returns how many. They keep their position among
    /// those that wait. For an archived workflow: the process that claims such a run ends it.
    async fn wake_waiting(&self, workflow: Uuid, limit: u32, now: Timestamp) -> Result<u32>;

    /// How many runs are before this one among those that wait for the same key; at most [`MAX_AHEAD`] are counted. `None`
    /// if it does not wait for a place.
    async fn ahead(&self, run: RunId) -> Result<Option<u32>>;

    /// Makes runs due that wait for the resume of a workflow, at most `limit` of them, unless it is paused. Returns how many.
    async fn release_paused(&self, workflow: Uuid, limit: u32, now: Timestamp) -> Result<u32>;

    /// Hands over free places of keys after `after`, frees places of runs that were completed by SQL, and deletes what is no
    /// longer needed. Examines at most `limit` keys.
    async fn sweep_flow(&self, after: Option<String>, limit: u32, now: Timestamp) -> Result<Swept>;
}

/// The result of [`FlowStore::sweep_flow`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    /// The last key that was examined, if there may be more.
    pub next: Option<String>,
    /// How many runs got a place, or became due after a resume.
    pub handed: u32,
}

const PAUSED: &str = "paused:";

/// The key that runs wait for while their workflow is paused.
pub(crate) fn paused_key(workflow: Uuid) -> String {
    format!("{PAUSED}{}", workflow.simple())
}

/// The workflow of such a key.
pub(crate) fn paused_workflow(key: &str) -> Option<Uuid> {
    key.strip_prefix(PAUSED).and_then(|uid| uid.parse().ok())
}

/// The most runs that one transaction makes due after a resume.
pub const RELEASED_AT_ONCE: u32 = 500;

/// The most runs that [`FlowStore::ahead`] counts.
pub const MAX_AHEAD: u32 = 1000;

/// How long the requestId of a start that was answered with another run is kept.
pub(crate) const KEPT_REQUESTS_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// The most waiting runs that get a free place in one transaction. The sweep continues with others.
pub(crate) const HANDED_AT_ONCE: u32 = 100;

/// The runs that wait first.
pub(crate) const FIRST_WAITING: &str = "SELECT id FROM workflow_executions WHERE waiting_key = ?1
    ORDER BY COALESCE(priority, 0) DESC, id LIMIT ?2";

/// The keys of a workflow get the limit of its active version.
pub(crate) const SET_LIMIT: &str =
    "UPDATE flow_keys SET most = ?3, version = ?4 WHERE key > ?1 AND key < ?2 AND most <> ?3";

pub(crate) const MERGED: &str = "SELECT e.id, e.workflow_id, e.status, e.workflow_uid
    FROM merged_requests m JOIN workflow_executions e ON e.id = m.workflow_execution_id
    WHERE m.tenant_id = ?1 AND m.workflow_request_id = ?2";

/// The next key that runs wait for. Repeated, this visits each key once.
pub(crate) const NEXT_WAITING: &str = "SELECT waiting_key FROM workflow_executions
    WHERE waiting_key > ?1 AND waiting_key IS NOT NULL ORDER BY waiting_key LIMIT 1";

pub(crate) const UNFREED: &str =
    "SELECT id FROM workflow_executions WHERE flow_step IS NOT NULL AND end_time IS NOT NULL ORDER BY id LIMIT ?1";

pub(crate) const FORGET_RATES: &str = "DELETE FROM flow_keys WHERE key IN
    (SELECT key FROM flow_keys WHERE expires_at IS NOT NULL AND expires_at <= ?1 LIMIT ?2)";

pub(crate) const FORGET_REQUESTS: &str = "DELETE FROM merged_requests WHERE (tenant_id, workflow_request_id) IN
    (SELECT tenant_id, workflow_request_id FROM merged_requests WHERE created_at <= ?1 LIMIT ?2)";

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_of_other_tenants_workflows_rules_and_values_differ() {
        let workflow = Uuid::from_u128(7);
        let key = |rule, workflow, tenant, id| Key::of_workflow(rule, workflow, tenant, id, String::new()).key;
        let own = [
            key(PLACES, workflow, "", "=a"),
            key(PLACES, workflow, "", "=b"),
            key(PLACES, workflow, "acme", "=a"),
            key(PLACES, workflow, "other", "=a"),
            key(PLACES, workflow, "acme:", "=a"),
            key(PLACES, workflow, "acme", ":=a"),
            key(PLACES, workflow, "acme:=b", "=a"),
        ];
        let (first, last) = places_of(workflow);
        assert!(own.iter().all(|key| (&first..&last).contains(&key)), "{own:?}");
        let others = [
            key('u', workflow, "", "=a"),
            key(PLACES, Uuid::from_u128(8), "", "=a"),
            Key::of_tenant("acme").key,
        ];
        assert!(others.iter().all(|key| !(&first..&last).contains(&key)), "{others:?}");
        let all: BTreeSet<&String> = own.iter().chain(&others).collect();
        assert_eq!(all.len(), own.len() + others.len());
    }
}
