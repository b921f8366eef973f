//! The table of operations: one row for each route, with an example that works.

use super::{Operation, op};
use crate::{
    api::{
        analysis, audit, bulk, dead_letters, deliveries, drafts, dry_run, events, executions, health, hierarchy, inbox,
        jsondagapi, keys, lifecycle, list, operate, registered_callbacks, rerun, runners, runs, stats, streams,
        triggers, webhooks, workflows,
    },
    run_views::{DataPage, DataView, RunWithTasks, ShortRun, TriggeredRun},
    views::{
        AcceptedView, PageView, PublishedView, RunView, SavedView, VersionView, WorkflowView, WorkflowWithDefinition,
    },
};
use axum::http::Method;
use fermata_dialects::inspect::Inspection;
use serde_json::{Map, Value, json};

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const PATCH: Method = Method::PATCH;
const DELETE: Method = Method::DELETE;

/// Any JSON object.
type Object = Map<String, Value>;

pub(super) fn operations() -> Vec<Operation> {
    [
        workflows(),
        jsondagapi_workflows(),
        executions(),
        runs(),
        inbox(),
        callbacks(),
        triggers(),
        operators(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn hello() -> Value {
    json!({ "id": "hello", "displayName": "Hello", "startNode": "greet", "nodes": [
        { "id": "greet", "actionType": "core.echo", "parameters": { "said": "{{ trigger.say ?? 'hello' }}" } }] })
}

fn workflows() -> Vec<Operation> {
    vec![
        op(GET, "/api/v1/workflows", "listWorkflows", "List workflows")
            .query::<workflows::ListQuery>()
            .value("status", "Active")
            .value("limit", 10)
            .answer::<PageView<WorkflowView>>(200),
        op(
            POST,
            "/api/v1/workflows",
            "createWorkflow",
            "Save a document: a draft, or a version if its dialect has no drafts",
        )
        .header("If-None-Match", "`*`: only if there is no such draft")
        .document(hello())
        .answer::<SavedView>(201)
        .answer::<SavedView>(200),
        op(
            POST,
            "/api/v1/workflows/validate",
            "validateWorkflow",
            "Check a document as publishing would, and store nothing",
        )
        .document(hello())
        .answer::<drafts::ValidatedView>(200),
        op(
            POST,
            "/api/v1/workflows/dry-run",
            "dryRunWorkflow",
            "Execute a document without effects, on a virtual clock, and show the route it took",
        )
        .body::<dry_run::DryRunBody>(json!({
            "document": hello(), "trigger": { "say": "hi" }, "mocks": { "greet": { "outputs": { "said": "hi" } } } }))
        .answer::<dry_run::DryRunView>(200),
        op(
            GET,
            "/api/v1/workflows/{id}",
            "getWorkflow",
            "A workflow with one of its documents",
        )
        .query::<workflows::GetQuery>()
        .answer::<WorkflowWithDefinition>(200),
        op(
            PUT,
            "/api/v1/workflows/{id}",
            "replaceWorkflow",
            "Make a document the current version of a workflow without drafts",
        )
        .header("If-Match", "jsondagapi: the version that is replaced, in quotes")
        .document(json!({ "name": "order", "tasks": { "charge": { "url": "https://shop.example.com/charge" } } }))
        .value("id", "order")
        .answer::<crate::runlater_views::WorkflowResponse>(200),
        op(DELETE, "/api/v1/workflows/{id}", "deleteWorkflow", "Delete a workflow").empty(204),
        op(
            GET,
            "/api/v1/workflows/{id}/versions",
            "listVersions",
            "List the versions of a workflow, newest first",
        )
        .query::<workflows::VersionsQuery>()
        .answer::<PageView<VersionView>>(200),
        op(
            POST,
            "/api/v1/workflows/{id}/versions/{version}/activate",
            "activateVersion",
            "Make a version the current one",
        )
        .answer::<lifecycle::StateView>(200),
        op(
            GET,
            "/api/v1/workflows/{id}/draft",
            "getDraft",
            "The draft of a workflow",
        )
        .answer::<WorkflowWithDefinition>(200),
        op(
            PUT,
            "/api/v1/workflows/{id}/draft",
            "saveDraft",
            "Save a draft of a workflow in any state",
        )
        .header("If-Match", "The ETag of the draft that is replaced, or `*` for any")
        .header("If-None-Match", "`*`: only if there is no draft")
        .document(hello())
        .answer::<SavedView>(200),
        op(
            POST,
            "/api/v1/workflows/{id}/publish",
            "publishWorkflow",
            "Make the draft an immutable version and activate it",
        )
        .query::<workflows::PublishQuery>()
        .answer::<PublishedView>(200),
        op(
            POST,
            "/api/v1/workflows/{id}/archive",
            "archiveWorkflow",
            "Archive a workflow: it starts no more executions",
        )
        .answer::<lifecycle::StateView>(200),
        op(
            POST,
            "/api/v1/workflows/{id}/reactivate",
            "reactivateWorkflow",
            "Make an archived workflow active again",
        )
        .answer::<lifecycle::StateView>(200),
        op(
            POST,
            "/api/v1/workflows/{id}/enable",
            "enableWorkflow",
            "Allow new executions",
        )
        .answer::<lifecycle::StateView>(200),
        op(
            POST,
            "/api/v1/workflows/{id}/disable",
            "disableWorkflow",
            "Refuse new executions",
        )
        .answer::<lifecycle::StateView>(200),
        op(
            POST,
            "/api/v1/workflows/{id}/pause",
            "pauseWorkflow",
            "Let executions wait that have not begun",
        )
        .body::<operate::CommandBody>(json!({ "reason": "the payment service is down" }))
        .answer::<lifecycle::StateView>(200),
        op(
            POST,
            "/api/v1/workflows/{id}/resume",
            "resumeWorkflow",
            "Let the executions of a paused workflow begin",
        )
        .body::<operate::CommandBody>(json!({ "reason": "the payment service is back" }))
        .answer::<lifecycle::StateView>(200),
        op(
            POST,
            "/api/v1/analysis/validate",
            "analyseDocument",
            "Check a document of any dialect",
        )
        .document(hello())
        .answer::<analysis::AnalysisView>(200),
        op(
            POST,
            "/api/v1/analysis/inspect",
            "inspectDocument",
            "The shape of a document: counts, depth, first and last nodes",
        )
        .document(hello())
        .answer::<Inspection>(200),
    ]
}

fn jsondagapi_workflows() -> Vec<Operation> {
    const VERSION: (&str, &str) = ("If-Match", "The version that is changed, in quotes");
    let change = |operation: Operation| operation.header(VERSION.0, VERSION.1).value("id", "review");
    let task = json!({ "id": "archive", "type": "task", "executor": { "type": "callback" } });
    vec![
        change(op(
            PATCH,
            "/api/v1/workflows/{id}",
            "changeWorkflow",
            "jsondagapi: apply a list of intents as one version",
        ))
        .body::<Object>(
            json!({ "intents": [{ "intent": "update_node", "node_id": "greet", "changes": { "name": "Greet" } }] }),
        )
        .answer::<jsondagapi::ChangedView>(200),
        change(op(
            POST,
            "/api/v1/workflows/{id}/nodes",
            "addNode",
            "jsondagapi: add a node",
        ))
        .body::<Object>(task)
        .answer::<jsondagapi::ChangedView>(201),
        change(op(
            PUT,
            "/api/v1/workflows/{id}/nodes/{node}",
            "updateNode",
            "jsondagapi: change members of a node",
        ))
        .body::<Object>(json!({ "description": "Greets the customer" }))
        .answer::<jsondagapi::ChangedView>(200),
        change(op(
            DELETE,
            "/api/v1/workflows/{id}/nodes/{node}",
            "removeNode",
            "jsondagapi: remove a node",
        ))
        .value("node", "archive")
        .answer::<jsondagapi::ChangedView>(200),
        change(op(
            POST,
            "/api/v1/workflows/{id}/edges",
            "addEdge",
            "jsondagapi: add an edge",
        ))
        .body::<Object>(json!({ "from": "greet", "to": "finish" }))
        .answer::<jsondagapi::ChangedView>(201),
        change(op(
            DELETE,
            "/api/v1/workflows/{id}/edges",
            "removeEdge",
            "jsondagapi: remove an edge",
        ))
        .query::<jsondagapi::EdgeQuery>()
        .value("from", "greet")
        .value("to", "finish")
        .answer::<jsondagapi::ChangedView>(200),
    ]
}

fn executions() -> Vec<Operation> {
    vec![
        op(
            POST,
            "/api/v1/workflows/{id}/execute",
            "executeWorkflow",
            "Start an execution; with `wait`, respond when it has ended",
        )
        .query::<executions::StartQuery>()
        .value("wait", "10s")
        .header("X-Correlation-Id", "Becomes the correlation id of the execution")
        .body::<executions::StartBody>(json!({ "requestId": "order-1", "trigger": { "say": "hi" } }))
        .answer::<RunView>(200)
        .answer::<AcceptedView>(202),
        op(
            GET,
            "/api/v1/executions",
            "listExecutions",
            "Search executions, newest first",
        )
        .query::<list::ListQuery>()
        .value("status", "Succeeded,Failed")
        .value("limit", 10)
        .answer::<list::RunPageView>(200),
        op(
            POST,
            "/api/v1/executions",
            "createExecution",
            "Start an execution, with names in snake_case",
        )
        .body::<executions::CreateBody>(
            json!({ "workflow_id": "hello", "inputs": { "say": "hi" }, "request_id": "order-2" }),
        )
        .answer::<executions::CreatedView>(201)
        .answer::<executions::CreatedView>(200),
        op(
            GET,
            "/api/v1/executions/{id}",
            "getExecution",
            "An execution, with the parts that `include` names",
        )
        .query::<executions::GetQuery>()
        .value("include", "actions,events")
        .answer::<RunView>(200),
        op(
            DELETE,
            "/api/v1/executions/{id}",
            "deleteExecution",
            "Remove an execution that has ended",
        )
        .empty(204),
        op(
            GET,
            "/api/v1/executions/{id}/hierarchy",
            "getHierarchy",
            "The tree of executions that this one belongs to",
        )
        .answer::<hierarchy::TreeView>(200),
        op(
            GET,
            "/api/v1/executions/{id}/stream",
            "streamExecution",
            "The events of an execution as server-sent events, until it ends",
        )
        .query::<streams::RunQuery>()
        .header("Last-Event-ID", "Continue after this journal row")
        .events(200),
        op(
            GET,
            "/api/v1/stream",
            "streamExecutions",
            "The newest executions of a list as server-sent events, as they change",
        )
        .query::<streams::StreamQuery>()
        .header(
            "Last-Event-ID",
            "The client connects again: the first message is `reset`",
        )
        .value("status", "Running,Failed")
        .value("timeout", "0s")
        .events(200),
        op(GET, "/api/v1/stats", "getStats", "Numbers of executions")
            .query::<stats::StatsQuery>()
            .value("since", "24h")
            .answer::<stats::StatsView>(200),
        op(
            POST,
            "/api/v1/executions/{id}/cancel",
            "cancelExecution",
            "Cancel an execution",
        )
        .body::<executions::CancelBody>(json!({ "reason": "ordered twice" }))
        .answer::<AcceptedView>(200)
        .answer::<AcceptedView>(202),
        op(
            POST,
            "/api/v1/executions/{id}/rerun",
            "rerunExecution",
            "Repeat an execution that has ended, whole or from a node on; with `wait`, respond when the new one has ended",
        )
        .query::<executions::StartQuery>()
        .value("wait", "10s")
        .body::<rerun::RerunBody>(json!({ "fromNode": "greet", "trigger": { "say": "again" } }))
        .answer::<RunView>(200)
        .answer::<rerun::RerunView>(202),
        op(
            POST,
            "/api/v1/executions/{id}/pause",
            "pauseExecution",
            "Pause an execution: nothing new starts",
        )
        .body::<operate::CommandBody>(json!({ "reason": "the payment service is down" }))
        .answer::<RunView>(200),
        op(
            POST,
            "/api/v1/executions/{id}/resume",
            "resumeExecution",
            "Resume an execution that is paused",
        )
        .body::<operate::CommandBody>(json!({ "reason": "the payment service is back" }))
        .answer::<RunView>(200),
        op(
            POST,
            "/api/v1/executions/{id}/nodes/{node}/skip",
            "skipNode",
            "Skip a node that waits, with the given outputs",
        )
        .body::<operate::SkipBody>(json!({ "outputs": { "outcome": "approve" }, "reason": "approved by phone" }))
        .answer::<AcceptedView>(202),
        op(
            POST,
            "/api/v1/executions/{id}/nodes/{node}/resend",
            "resendRequest",
            "Send the request of a node again that waits for its answer",
        )
        .body::<operate::CommandBody>(json!({ "reason": "the service lost it" }))
        .answer::<AcceptedView>(202),
        op(
            POST,
            "/api/v1/executions/{id}/nodes/{node}/callback",
            "answerNode",
            "Answer a node that waits",
        )
        .body::<Object>(json!({ "outcome": "approve" }))
        .answer::<Object>(200),
        op(
            POST,
            "/api/v1/executions/{id}/nodes/{node}/complete",
            "completeNode",
            "Complete or fail a task that waits",
        )
        .body::<inbox::CompleteNodeBody>(json!({ "status": "COMPLETED", "outputs": { "greeted": true } }))
        .value("node", "greet")
        .answer::<Object>(200),
        op(
            POST,
            "/api/v1/executions/{id}/decisions/{node}",
            "decide",
            "Decide a decision that waits",
        )
        .body::<inbox::DecideBody>(json!({ "outcome": "approve" }))
        .answer::<Object>(200),
    ]
}

fn runs() -> Vec<Operation> {
    vec![
        op(
            POST,
            "/api/v1/workflows/{id}/trigger",
            "triggerRun",
            "Start a run; the body is its trigger",
        )
        .header(
            "Idempotency-Key",
            "A second request with the same key returns the same run",
        )
        .body::<Value>(json!({ "say": "hi" }))
        .answer::<DataView<TriggeredRun>>(201)
        .answer::<DataView<TriggeredRun>>(200),
        op(
            GET,
            "/api/v1/workflows/{id}/runs",
            "listRuns",
            "List the runs of a workflow, newest first",
        )
        .query::<runs::ListQuery>()
        .value("status", "completed,failed")
        .answer::<DataPage<ShortRun>>(200),
        op(
            GET,
            "/api/v1/workflows/{id}/runs/{run_id}",
            "getRun",
            "A run, task by task",
        )
        .answer::<DataView<RunWithTasks>>(200),
        op(
            POST,
            "/api/v1/workflows/{id}/runs/{run_id}/cancel",
            "cancelRun",
            "Cancel a run",
        )
        .body::<executions::CancelBody>(json!({ "reason": "ordered twice" }))
        .answer::<DataView<RunWithTasks>>(200),
    ]
}

fn inbox() -> Vec<Operation> {
    let lease = super::EXAMPLE_ID;
    vec![
        op(GET, "/api/v1/inbox", "listInbox", "Requests that wait for a person or a worker")
            .query::<inbox::ListQuery>()
            .value("status", "pending")
            .answer::<PageView<inbox::ItemView>>(200),
        op(GET, "/api/v1/inbox/{id}", "getInboxItem", "One request, with what its node sees").answer::<inbox::TaskView>(200),
        op(POST, "/api/v1/inbox/{id}/answer", "answerInboxItem", "The answer of a person")
            .body::<Object>(json!({ "outcome": "approve", "answeredBy": "ada" }))
            .answer::<Object>(200),
        op(POST, "/api/v1/inbox/claim", "claimTasks", "Lease tasks of a queue to a worker")
            .body::<inbox::ClaimBody>(json!({ "queue": "greet", "worker": "worker-1", "limit": 1, "lease": "60s" }))
            .answer::<inbox::Claimed>(200),
        op(POST, "/api/v1/inbox/{id}/heartbeat", "extendLease", "Extend the lease of a task, and report progress")
            .body::<inbox::HeartbeatBody>(json!({ "leaseId": lease, "lease": "60s", "progress": { "percent": 40 } }))
            .answer::<Object>(200),
        op(POST, "/api/v1/inbox/{id}/complete", "completeTask", "The answer of a worker, under its lease")
            .body::<Object>(json!({ "leaseId": lease, "state": { "greeted": true } }))
            .answer::<Object>(200),
        op(POST, "/api/v1/inbox/{id}/fail", "failTask", "The attempt of a worker failed")
            .body::<inbox::FailBody>(json!({ "leaseId": lease, "error": { "code": "NO_PAPER", "message": "the printer is empty" }, "retriable": false }))
            .answer::<Object>(200),
    ]
}

fn callbacks() -> Vec<Operation> {
    vec![
        op(
            POST,
            "/wh/{token}",
            "completeWait",
            "Complete a wait. The token in the URL is the credential; any media type is accepted",
        )
        .body::<Value>(json!({ "status": "paid" }))
        .answer::<Object>(200),
        op(GET, "/api/v1/callbacks", "listCallbacks", "List registered callbacks")
            .query::<registered_callbacks::ListQuery>()
            .answer::<PageView<registered_callbacks::CallbackView>>(200),
        op(
            POST,
            "/api/v1/callbacks/register",
            "registerCallbacks",
            "Register the addresses of a service, all of them or none",
        )
        .body::<registered_callbacks::RegisterBody>(json!({ "service_name": "scoring", "environment": "production",
                "base_url": "https://scoring.example.com", "callbacks": { "score-order": { "path": "/score" } } }))
        .answer::<PageView<registered_callbacks::CallbackView>>(200),
        op(
            DELETE,
            "/api/v1/callbacks/{id}",
            "deleteCallback",
            "Remove a registered callback",
        )
        .empty(204),
    ]
}

fn triggers() -> Vec<Operation> {
    vec![
        op(GET, "/api/v1/triggers", "listTriggers", "List triggers")
            .query::<triggers::ListQuery>()
            .value("workflowId", "hello")
            .value("triggerType", "Schedule")
            .answer::<PageView<triggers::TriggerView>>(200),
        op(POST, "/api/v1/triggers", "createTrigger", "Create a trigger. The URL of a webhook works at once")
            .body::<triggers::CreateBody>(json!({ "workflowId": "hello", "triggerType": "Schedule",
                "configJson": { "cron": "0 9 * * MON-FRI", "timeZone": "Europe/Berlin" } }))
            .answer::<triggers::TriggerView>(201),
        op(
            POST,
            "/api/v1/triggers/preview",
            "previewTrigger",
            "Check a configuration and show its next fire times, without saving it",
        )
        .body::<triggers::PreviewBody>(json!({ "configJson": { "every": "15m" }, "count": 3 }))
        .answer::<triggers::PreviewView>(200),
        op(GET, "/api/v1/triggers/{trigger}", "getTrigger", "One trigger, with its next fire times")
            .answer::<triggers::TriggerView>(200),
        op(PUT, "/api/v1/triggers/{trigger}", "updateTrigger", "Change a trigger. What is absent stays")
            .body::<triggers::UpdateBody>(json!({ "configJson": {}, "activationCondition": "payload.total > 100" }))
            .answer::<triggers::TriggerView>(200),
        op(DELETE, "/api/v1/triggers/{trigger}", "deleteTrigger", "Delete a trigger").empty(204),
        op(
            POST,
            "/api/v1/triggers/{trigger}",
            "receiveWebhook",
            "A request to a webhook. The URL, and the signature if the trigger has one, are the credential; JSON, forms and text are accepted",
        )
        .body::<Value>(json!({ "orderId": 17 }))
        .answer::<webhooks::OccurredView>(202)
        .answer::<Value>(200),
        op(POST, "/api/v1/triggers/{trigger}/enable", "enableTrigger", "Enable a trigger")
            .answer::<triggers::TriggerView>(200),
        op(POST, "/api/v1/triggers/{trigger}/disable", "disableTrigger", "Disable a trigger")
            .answer::<triggers::TriggerView>(200),
        op(POST, "/api/v1/triggers/{trigger}/fire", "fireTrigger", "Start an execution as if the trigger had fired")
            .header("Idempotency-Key", "The same key fires once")
            .body::<Value>(json!({ "orderId": 17 }))
            .answer::<webhooks::OccurredView>(202),
        op(POST, "/api/v1/triggers/{trigger}/rotate", "rotateWebhook", "Give a webhook a new URL")
            .body::<triggers::RotateBody>(json!({ "grace": "24h" }))
            .answer::<triggers::TriggerView>(200),
        op(
            GET,
            "/api/v1/triggers/{trigger}/deliveries",
            "listDeliveries",
            "What arrived in the last seven days, newest first, without payloads",
        )
        .query::<deliveries::ListQuery>()
        .value("state", "started")
        .answer::<PageView<deliveries::DeliveryView>>(200),
        op(
            GET,
            "/api/v1/triggers/{trigger}/deliveries/{delivery}",
            "getDelivery",
            "One delivery, with payload and request",
        )
        .answer::<deliveries::DeliveryView>(200),
        op(
            POST,
            "/api/v1/triggers/{trigger}/deliveries/{delivery}/replay",
            "replayDelivery",
            "Send a delivery again, as a new occurrence",
        )
        .answer::<webhooks::OccurredView>(202),
        op(
            POST,
            "/api/v1/events",
            "publishEvents",
            "Publish events: CloudEvents 1.0 in every HTTP form, or plain JSON",
        )
        .query::<events::PublishQuery>()
        .body::<Value>(json!({ "type": "order.paid", "source": "/shop", "id": "7f3a", "data": { "orderId": 17 } }))
        .answer::<events::PublishedEvents>(202),
    ]
}

fn operators() -> Vec<Operation> {
    vec![
        op(GET, "/api/v1/runners", "listRunners", "The processes that share the database")
            .query::<runners::ListQuery>()
            .answer::<PageView<runners::RunnerView>>(200),
        op(GET, "/api/v1/audit", "listAudit", "Who changed what, newest first")
            .query::<audit::ListQuery>()
            .value("limit", 10)
            .answer::<PageView<audit::AuditView>>(200),
        op(GET, "/api/v1/admin/dead-letters", "listDeadLetters", "List dead-lettered executions, newest first")
            .query::<dead_letters::ListQuery>()
            .answer::<PageView<dead_letters::DeadLetterView>>(200),
        op(DELETE, "/api/v1/admin/dead-letters", "purgeDeadLetters", "Delete all dead letters that match")
            .query::<dead_letters::PurgeQuery>()
            .value("reason", "POISON")
            .answer::<dead_letters::PurgedView>(200),
        op(GET, "/api/v1/admin/dead-letters/{id}", "getDeadLetter", "One dead letter, with its request")
            .answer::<dead_letters::DeadLetterView>(200),
        op(DELETE, "/api/v1/admin/dead-letters/{id}", "deleteDeadLetter", "Delete a dead letter").empty(204),
        op(POST, "/api/v1/admin/dead-letters/{id}/requeue", "requeueDeadLetter", "Start a new execution from a dead letter")
            .query::<dead_letters::RequeueQuery>()
            .answer::<AcceptedView>(202)
            .answer::<AcceptedView>(200),
        op(POST, "/api/v1/bulk", "createBulk", "Find executions for a bulk job, and store them with it")
            .body::<bulk::CreateBody>(json!({ "query": "status:failed since:24h", "action": "delete" }))
            .answer::<bulk::BulkView>(201),
        op(GET, "/api/v1/bulk", "listBulks", "List bulk jobs, newest first")
            .query::<bulk::ListQuery>()
            .answer::<PageView<bulk::BulkView>>(200),
        op(GET, "/api/v1/bulk/{id}", "getBulk", "A bulk job with its progress").answer::<bulk::BulkView>(200),
        op(GET, "/api/v1/bulk/{id}/items", "listBulkItems", "The executions of a bulk job, and what became of each")
            .query::<bulk::ItemsQuery>()
            .answer::<PageView<bulk::BulkItemView>>(200),
        op(POST, "/api/v1/bulk/{id}/start", "startBulk", "Start a bulk job").answer::<bulk::BulkView>(202),
        op(POST, "/api/v1/bulk/{id}/cancel", "cancelBulk", "Cancel a bulk job")
            .answer::<bulk::BulkView>(200)
            .answer::<bulk::BulkView>(202),
        op(GET, "/api/v1/admin/keys", "listKeys", "List API keys, newest first")
            .query::<keys::ListQuery>()
            .answer::<PageView<keys::KeyView>>(200),
        op(POST, "/api/v1/admin/keys", "createKey", "Create an API key. It is shown once")
            .body::<keys::CreateBody>(json!({ "name": "ci", "scopes": ["workflows:execute", "workflows:read"], "tenantId": "north", "expiresIn": "90d" }))
            .answer::<keys::CreatedView>(201),
        op(DELETE, "/api/v1/admin/keys/{id}", "revokeKey", "Revoke an API key").empty(204),
        op(GET, "/metrics", "getMetrics", "Metrics for Prometheus").text(200),
        op(GET, "/health/live", "getLive", "Whether the process works").answer::<health::Live>(200),
        op(GET, "/health/ready", "getReady", "Whether the process is ready for requests").answer::<health::Ready>(200),
    ]
}
