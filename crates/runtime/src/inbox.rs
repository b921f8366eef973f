//! The inbox: requests that wait for the answer of a person, a worker or a service.
//!
//! What must stay true:
//! * Every answer, whichever way it comes, is read by the rule of its node before it is stored. What the rule refuses
//!   changes nothing.
//! * The store decides about leases, deadlines and second answers, in the transaction that stores the answer.
//! * A claim never waits longer than it was asked to, and not after this process begins to stop.
//! * Listing, showing and claiming items reads no journals.

mod tasks;

use crate::{
    Compiled,
    audit::Recorder,
    caller::{Caller, Scope},
    engine::Engine,
    error::{EngineError, Refusal},
    reads::MAX_PAGE,
    trigger::TriggerSchema,
};
use fermata_core::{
    AnswerRule, Kind, NodeId, RunId, Timestamp,
    answer::{Reading, read},
};
use fermata_store::{
    ChangeHint,
    audit::describe,
    inbox::{
        FoundWait, Heartbeat, ItemAnswer, ItemClaim, ItemFilter, ItemHeartbeat, ItemPage, StoredItem, WaitRef,
        queue_number,
    },
    reads::RunRecord,
    runs::Answer,
};
use serde_json::{Map, Value, json};
use std::{sync::Arc, time::Duration};
use tokio::{sync::broadcast, time::Instant};
use uuid::Uuid;

/// How often a waiting claim looks without a notification: leases lapse silently, and notifications may be lost.
const POLL: Duration = Duration::from_secs(1);

/// The inbox, on behalf of one caller.
#[derive(Clone, Copy)]
pub struct Inbox<'a> {
    pub(crate) engine: &'a Engine,
    /// Whose requests are seen, and in whose name they are answered; `None` for all.
    pub(crate) caller: Option<&'a Caller>,
}

impl Engine {
    /// Requests that wait for an answer, of all tenants. A request uses [`Session::inbox`](crate::Session::inbox).
    pub fn inbox(&self) -> Inbox<'_> {
        Inbox {
            engine: self,
            caller: None,
        }
    }
}

/// An item with the state that its node sees.
#[derive(Debug, Clone)]
pub struct Task {
    /// The item.
    pub item: StoredItem,
    /// The state as of the opening of the node.
    pub state: Value,
    /// The same for every delivery of this attempt.
    pub idempotency_key: String,
}

/// A worker's request for tasks.
#[derive(Debug, Clone)]
pub struct TaskClaim {
    /// The queue.
    pub queue: String,
    /// Only tasks of this tenant.
    pub tenant: Option<String>,
    /// The worker, as it names itself.
    pub worker: String,
    /// At most this many.
    pub limit: u32,
    /// How long the leases hold without a heartbeat.
    pub lease: Duration,
    /// How long to wait for the first task.
    pub wait: Duration,
}

/// The result of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Given {
    /// It is durable, and the run will receive it.
    Accepted {
        /// The run.
        run: RunId,
        /// The node.
        node: NodeId,
        /// The code and message if the answer fails the node or the attempt.
        failure: Option<(String, String)>,
    },
    /// The rule of the node refuses it. Nothing changed, and the request stays open.
    Refused {
        /// Why.
        why: String,
        /// (JSON pointer into the answer, what is wrong).
        problems: Vec<(String, String)>,
    },
    /// The request was answered or closed, or its time is over.
    Closed,
    /// A worker holds it.
    Leased,
    /// The worker's lease has lapsed, or is not the newest one.
    LeaseLapsed,
    /// There is no such item, token or run.
    NotFound,
    /// The run exists, but this node of it has sent no request.
    NotWaiting {
        /// Whether the workflow of the run has this node.
        has_node: bool,
    },
}

/// An answer to a request.
#[derive(Debug, Clone)]
pub struct Reply {
    /// What is answered.
    pub of: WaitRef,
    /// The lease of a worker.
    pub lease: Option<Uuid>,
    /// Only if the run belongs to this tenant.
    pub tenant: Option<String>,
    /// The answer.
    pub payload: Value,
    /// Whether it was sent as JSON. A wait takes text too, a request does not.
    pub is_json: bool,
    /// Who answers, if that is known.
    pub by: Option<String>,
}

impl Inbox<'_> {
    fn tenant(&self) -> Option<&str> {
        self.caller.and_then(Caller::tenant)
    }

    /// The tenant that a request is limited to: the caller's, or the one that it names.
    fn limited(&self, named: Option<String>) -> Result<Option<String>, Refusal> {
        match (self.tenant(), named) {
            (Some(own), Some(named)) if named != own => Err(Refusal::OtherTenant),
            (Some(own), _) => Ok(Some(own.to_owned())),
            (None, named) => Ok(named),
        }
    }

    /// In whose name a request is answered.
    fn answerer(&self, named: Option<String>) -> Result<Option<String>, Refusal> {
        let caller = self.caller;
        let Some(own) = caller.and_then(|caller| caller.identity().principal.as_ref()) else {
            return Ok(named);
        };
        match named {
            None => Ok(Some(own.user_id.clone())),
            Some(named) if named == own.user_id || Some(&named) == own.email.as_ref() => Ok(Some(named)),
            Some(named) if caller.is_some_and(|caller| caller.has(Scope::OnBehalfOf)) => Ok(Some(named)),
            Some(_) => Err(Refusal::OtherPrincipal),
        }
    }

    /// An item that the caller sees. With a tenant, only items of that tenant are read: an item of another one costs what a missing
    /// one costs, however large it is.
    async fn item(&self, id: Uuid) -> Result<Option<StoredItem>, EngineError> {
        let store = &self.engine.shared.store;
        let Some(tenant) = self.tenant() else {
            return Ok(store.item(id).await?);
        };
        let filter = ItemFilter {
            tenant: Some(tenant.to_owned()),
            after: Some(Uuid::from_u128(id.as_u128().saturating_sub(1))),
            limit: 1,
            ..ItemFilter::default()
        };
        let first = store.items(filter).await?.items.into_iter().next();
        Ok(first.filter(|item| item.item.id == id))
    }

    /// Whether the caller sees what is answered. It is one read, whether another tenant has it or it does not exist.
    async fn sees(&self, of: &WaitRef) -> Result<bool, EngineError> {
        let Some(tenant) = self.tenant() else { return Ok(true) };
        Ok(match of {
            WaitRef::Token(_) => true,
            WaitRef::Item(id) => self.item(*id).await?.is_some(),
            WaitRef::Node { run, .. } => {
                let run = self.engine.reads().run_row(*run).await?;
                run.is_some_and(|run| run.tenant == tenant)
            }
        })
    }

    /// Items, oldest first. Secrets in answers are masked.
    pub async fn list(&self, filter: ItemFilter) -> Result<ItemPage, EngineError> {
        let limit = filter.limit.min(MAX_PAGE);
        let Ok(tenant) = self.limited(filter.tenant) else {
            return Ok(ItemPage::default());
        };
        // The items of a run are found by the run, whose tenant is checked before.
        if let (Some(own), Some(run)) = (self.tenant(), filter.run)
            && self.engine.reads_of(own).run_row(run).await?.is_none()
        {
            return Ok(ItemPage::default());
        }
        let filter = ItemFilter {
            tenant,
            limit,
            ..filter
        };
        let page = self.engine.shared.store.items(filter).await?;
        Ok(self.engine.reads().masked(page).await)
    }

    /// One item with the state that its node sees, for people: secrets are masked.
    pub async fn get(&self, id: Uuid) -> Result<Option<Task>, EngineError> {
        let Some(item) = self.item(id).await? else {
            return Ok(None);
        };
        let (task, bytes) = self.task(item).await?;
        let shared = self.engine.shared.clone();
        let mask = move || {
            let mut task = task;
            let mask = &shared.settings.mask;
            task.state = serde_json::to_value(mask.of(&task.state)).unwrap_or_default();
            task.item.payload = task.item.payload.map(|text| mask.of_text(&text).into_owned());
            task
        };
        Ok(Some(self.engine.offload().run(bytes, mask).await))
    }

    /// Leases tasks of a queue. If there are none, waits for the first one.
    pub async fn claim(&self, claim: TaskClaim) -> Result<Vec<Task>, EngineError> {
        let tasks = self.claim_while(claim, || std::future::ready(true)).await?;
        Ok(tasks.unwrap_or_default())
    }

    /// The same, for a caller whose right to claim may end while it waits: `may_claim` is asked before each further try. `None` if
    /// it says no.
    pub async fn claim_while<F: Future<Output = bool>>(
        &self,
        claim: TaskClaim,
        may_claim: impl Fn() -> F,
    ) -> Result<Option<Vec<Task>>, EngineError> {
        let shared = &self.engine.shared;
        let tenant = self.limited(claim.tenant)?;
        let deadline = Instant::now() + claim.wait;
        let mut changes = shared.store.changes();
        let queue = queue_number(&claim.queue);
        loop {
            let now = shared.clock.now();
            let items = shared.store.claim_items(ItemClaim {
                queue: claim.queue.clone(),
                tenant: tenant.clone(),
                worker: claim.worker.clone(),
                limit: claim.limit,
                until: later(now, claim.lease),
                now,
            });
            let items = items.await?;
            if !items.is_empty() {
                shared.metrics.inbox.claimed.add(items.len() as u64);
                return self.tasks(items).await.map(Some);
            }
            let pause = deadline.saturating_duration_since(Instant::now()).min(POLL);
            if pause.is_zero() || shared.shutdown.is_stopping() {
                return Ok(Some(Vec::new()));
            }
            tokio::select! {
                () = offered(&mut changes, queue) => {}
                () = tokio::time::sleep(pause) => {}
                () = shared.shutdown.stopping.cancelled() => {}
            }
            if !may_claim().await {
                return Ok(None);
            }
        }
    }

    /// Extends the lease of a worker; returns its new end.
    pub async fn heartbeat(
        &self,
        item: Uuid,
        lease: Uuid,
        tenant: Option<String>,
        extend: Duration,
        progress: Option<&Value>,
    ) -> Result<(Heartbeat, Timestamp), EngineError> {
        let shared = &self.engine.shared;
        let tenant = self.limited(tenant)?;
        let now = shared.clock.now();
        let until = later(now, extend);
        let heartbeat = ItemHeartbeat {
            item,
            lease,
            tenant,
            until,
            progress: progress.map(Value::to_string),
            now,
        };
        Ok((shared.store.heartbeat_item(heartbeat).await?, until))
    }

    /// Answers a request. The answer is durable when this returns, and the run is woken at once.
    pub async fn answer(&self, reply: Reply) -> Result<Given, EngineError> {
        let Some(caller) = self.caller else {
            return self.give(reply).await;
        };
        let target = match &reply.of {
            WaitRef::Token(_) => String::new(),
            WaitRef::Item(id) => id.to_string(),
            WaitRef::Node { run, node } => format!("{run}/{node}"),
        };
        let recorder = Recorder {
            engine: self.engine,
            caller,
        };
        recorder.record("request.answer", &target, self.give(reply)).await
    }

    async fn give(&self, reply: Reply) -> Result<Given, EngineError> {
        let given = self.store_answer(reply).await?;
        let counters = &self.engine.shared.metrics.inbox;
        match given {
            Given::Accepted { .. } => counters.answered.inc(),
            Given::Refused { .. } | Given::Closed | Given::Leased | Given::LeaseLapsed => counters.refused.inc(),
            Given::NotFound | Given::NotWaiting { .. } => {}
        }
        Ok(given)
    }

    async fn store_answer(&self, mut reply: Reply) -> Result<Given, EngineError> {
        reply.tenant = self.limited(reply.tenant)?;
        reply.by = self.answerer(reply.by)?;
        if !self.sees(&reply.of).await? {
            return Ok(Given::NotFound);
        }
        let store = &self.engine.shared.store;
        let wait = store.find_wait(&reply.of).await?;
        let run = match (&wait, &reply.of) {
            (Some(FoundWait { run, .. }), _) | (None, WaitRef::Node { run, .. }) => *run,
            (None, WaitRef::Token(_) | WaitRef::Item(_)) => return Ok(Given::NotFound),
        };
        let run = self.engine.reads().run_row(run).await?;
        let of_tenant = |run: &RunRecord| reply.tenant.as_ref().is_none_or(|tenant| run.tenant == *tenant);
        let Some(run) = run.filter(of_tenant) else {
            return Ok(Given::NotFound);
        };
        let Some(wait) = wait else {
            let WaitRef::Node { node, .. } = &reply.of else {
                return Ok(Given::NotFound);
            };
            let has_node = self.compiled(&run).await?.plan.find(node.as_str()).is_some();
            return Ok(Given::NotWaiting { has_node });
        };
        describe(|row| {
            row.tenant.clone_from(&run.tenant);
            row.detail = Some(format!("node {} of execution {}", wait.node, run.id));
        });
        let failure = match self.check(&run, &wait, &reply).await? {
            Ok(failure) => failure,
            Err(refused) => return Ok(refused),
        };
        let payload = reply.payload.to_string();
        let at = self.engine.shared.clock.now();
        let answer = match reply.of {
            WaitRef::Token(token) => store.answer(&token, &payload, reply.by.as_deref(), at).await?,
            of => {
                let answer = ItemAnswer {
                    of,
                    lease: reply.lease,
                    tenant: reply.tenant,
                    payload,
                    by: reply.by,
                    at,
                };
                store.answer_item(answer).await?
            }
        };
        Ok(match answer {
            Answer::Accepted { run, node } => Given::Accepted { run, node, failure },
            Answer::Closed => Given::Closed,
            Answer::Leased => Given::Leased,
            Answer::LeaseLapsed => Given::LeaseLapsed,
            Answer::NotFound => Given::NotFound,
        })
    }

    /// Reads an answer by the rule of its node: the failure that it means, if any, or why it is refused.
    async fn check(
        &self,
        run: &RunRecord,
        wait: &FoundWait,
        reply: &Reply,
    ) -> Result<Result<Option<(String, String)>, Given>, EngineError> {
        let compiled = self.compiled(run).await?;
        let plan = &compiled.plan;
        let kind = plan.find(wait.node.as_str()).map(|ix| &plan.node(ix).kind);
        let Some(Kind::Request { answer: rule, .. }) = kind else {
            return Ok(Ok(None)); // a plain wait takes everything
        };
        let refused = |why: String, problems| Ok(Err(Given::Refused { why, problems }));
        if !reply.is_json {
            return refused("the answer to this node must be JSON".to_owned(), Vec::new());
        }
        let payload = &reply.payload;
        let answer = match read(rule, payload.clone()) {
            Reading::Refused(why) => return refused(why, Vec::new()),
            Reading::Answer(answer) => answer,
        };
        if matches!(rule, AnswerRule::Approval { .. })
            && let Some(schema) = wait.details.as_deref().and_then(fields_schema)
        {
            let fields = payload.get("fields").cloned().unwrap_or_else(|| json!({}));
            let check = move || match TriggerSchema::new(&schema) {
                Ok(schema) => schema.check(&fields),
                // The schema is part of the document; without it, the answer cannot be checked, and is taken.
                Err(_) => Vec::new(),
            };
            let problems: Vec<_> = self.engine.offload().elsewhere(check).await;
            if !problems.is_empty() {
                let problems = problems.into_iter().map(|(at, what)| (format!("/fields{at}"), what));
                return refused("the fields do not fit what is asked for".to_owned(), problems.collect());
            }
        }
        Ok(Ok(answer.result.err().map(|failure| (failure.code, failure.message))))
    }

    async fn compiled(&self, run: &RunRecord) -> Result<Arc<Compiled>, EngineError> {
        let workflows = self.engine.workflows();
        workflows
            .compiled(run.workflow_uid, &run.workflow_id, run.workflow_version)
            .await
    }
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    now.plus_millis(u64::try_from(by.as_millis()).unwrap_or(u64::MAX))
}

/// Returns when the queue may have a new item.
async fn offered(changes: &mut broadcast::Receiver<ChangeHint>, queue: u64) {
    loop {
        match changes.recv().await {
            Ok(ChangeHint::Inbox(number)) if number != queue => {}
            Ok(ChangeHint::Due(_) | ChangeHint::Messages(_)) => {}
            Ok(ChangeHint::Inbox(_)) | Err(broadcast::error::RecvError::Lagged(_)) => return,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// The schema of an approval's fields: a JSON Schema, or a map from names to schemas, each of which may say `required: true`.
pub(crate) fn fields_schema(details: &str) -> Option<Value> {
    let details: Value = serde_json::from_str(details).ok()?;
    let fields = details.get("fields")?.as_object()?;
    let is_schema = fields.get("properties").is_some_and(Value::is_object)
        || fields.get("type").is_some_and(Value::is_string)
        || fields.contains_key("$ref");
    if is_schema {
        return Some(Value::Object(fields.clone()));
    }
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, schema) in fields {
        let mut schema = schema.clone();
        if let Value::Object(members) = &mut schema
            && let Some(Value::Bool(needed)) = members.get("required")
        {
            if *needed {
                required.push(name.clone());
            }
            members.remove("required");
        }
        properties.insert(name.clone(), schema);
    }
    Some(json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_a_schema_or_a_map_of_schemas() {
        let problems = |details: Value, fields: Value| {
            let schema = fields_schema(&details.to_string()).unwrap();
            TriggerSchema::new(&schema).unwrap().check(&fields).len()
        };
        let map =
            json!({ "fields": { "amount": { "type": "number", "required": true }, "why": { "type": "string" } } });
        assert_eq!(problems(map.clone(), json!({ "amount": 1 })), 0);
        assert_eq!(problems(map.clone(), json!({ "why": "x" })), 1);
        assert_eq!(problems(map.clone(), json!({ "amount": "1" })), 1);
        assert_eq!(problems(map, json!({ "amount": 1, "other": 2 })), 1);
        let schema =
            json!({ "fields": { "type": "object", "required": ["a"], "properties": { "a": { "type": "string" } } } });
        assert_eq!(problems(schema.clone(), json!({ "a": "x", "b": 1 })), 0);
        assert_eq!(problems(schema, json!({})), 1);
        assert_eq!(fields_schema("{}"), None);
    }
}
