//! Errors of the engine. A refusal must be corrected by the caller; the others are failures of the server.

use crate::{rate::Allowance, workflows::Command};
use fermata_core::{RunId, Status};
use fermata_dialects::{
    Diagnostics, Severity,
    jsondagapi::{intents::Refused, version::TooSmall},
};
use fermata_store::{StoreError, definitions::Lifecycle};
use uuid::Uuid;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The request must be corrected.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stored document no longer compiles with this program.
    #[error("version {version} of workflow `{workflow}` cannot be run by this program: {what}")]
    Unusable {
        /// The workflow.
        workflow: String,
        /// Its version.
        version: u32,
        /// Why.
        what: String,
    },
    /// The process is stopping.
    #[error("this server is stopping; try another one, or again in a moment")]
    Stopping,
}

/// A request that the caller must correct.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// There is no such workflow.
    #[error("workflow `{0}` does not exist")]
    WorkflowNotFound(String),
    /// There is no such version.
    #[error("workflow `{workflow}` has no version {version}")]
    VersionNotFound {
        /// The workflow.
        workflow: String,
        /// The requested version.
        version: u32,
    },
    /// The workflow does not start new runs.
    #[error("{}", not_active(workflow, *status, *enabled))]
    NotActive {
        /// The workflow.
        workflow: String,
        /// Its state.
        status: Lifecycle,
        /// Whether it may start runs.
        enabled: bool,
    },
    /// The request id belongs to a run of another workflow.
    #[error(
        "requestId `{request_id}` belongs to execution {run} of workflow `{owner}`{}",
        if *is_same_name { ", another one of this name: deleted, shared or of a tenant" } else { "" }
    )]
    RequestIdTaken {
        /// The request id.
        request_id: String,
        /// The run that has it.
        run: RunId,
        /// The name of its workflow.
        owner: String,
        /// Whether that is another workflow of the same name.
        is_same_name: bool,
    },
    /// The request id has the prefix of the engine's own ids.
    #[error("requestId `{0}` begins with `fermata:`, which is reserved for the engine")]
    ReservedRequestId(String),
    /// The trigger does not fit the workflow's schema.
    #[error("the trigger does not fit the triggerSchema of workflow `{workflow}`")]
    InvalidTrigger {
        /// The workflow.
        workflow: String,
        /// (JSON pointer into the trigger, what is wrong).
        problems: Vec<(String, String)>,
    },
    /// A query cannot be read.
    #[error("invalid query, {0}")]
    InvalidQuery(#[from] crate::query::QueryError),
    /// There is no such bulk job.
    #[error("there is no bulk job {0}")]
    BulkNotFound(Uuid),
    /// A bulk job of all runs.
    #[error("the selection is empty, which would mean all executions; name ids, or write a term such as `since:30d`")]
    EmptySelection,
    /// A bulk job of too many runs.
    #[error(
        "the selection has more than {most} executions, which is the most of one bulk job; narrow it, such as with `since:` and `until:`"
    )]
    SelectionTooLarge {
        /// The most runs.
        most: usize,
    },
    /// A pattern of a query matches too many workflows.
    #[error("`workflow:{pattern}` matches more than {most} workflows; write more of the name")]
    PatternTooWide {
        /// The pattern.
        pattern: String,
        /// The most workflows.
        most: u32,
    },
    /// A key of the workflow's flow control cannot be rendered.
    #[error("the key of `{rule}` of workflow `{workflow}` cannot be rendered: {why}")]
    InvalidFlowKey {
        /// The workflow.
        workflow: String,
        /// The rule: `concurrency`, `rate`, `debounce` or `unique`.
        rule: &'static str,
        /// Why.
        why: String,
    },
    /// Another run has the unique key of a child that its parent would wait for.
    #[error("execution {run} of workflow `{workflow}` has the same unique key and has not ended")]
    UniqueKeyTaken {
        /// The workflow.
        workflow: String,
        /// The run that has the key.
        run: RunId,
    },
    /// As many runs as allowed are active, and the workflow refuses further ones.
    #[error(
        "as many runs of workflow `{workflow}` as its `concurrency` allows are active; nothing was stored. Retry after a moment"
    )]
    ConcurrencyLimit {
        /// The workflow.
        workflow: String,
    },
    /// The workflow was started too often in a short time.
    #[error("workflow `{workflow}` was started too often; nothing was stored. Retry after a moment")]
    RateLimited {
        /// The workflow.
        workflow: String,
        /// What is left of the limit.
        allowance: Allowance,
    },
    /// The tenant has used up its month.
    #[error(
        "the tier `{tier}` allows {limit} HTTP steps in a month, and they are used up; runs can start again next month"
    )]
    MonthlyLimit {
        /// The tier of the tenant.
        tier: String,
        /// Its limit.
        limit: u64,
        /// Seconds until the next month.
        retry_after: u32,
    },
    /// The tier of the tenant does not allow it.
    #[error("the tier `{tier}` allows {limit} {what}; {problem}")]
    TierLimit {
        /// The tier of the tenant.
        tier: String,
        /// Its limit.
        limit: u32,
        /// What is limited.
        what: &'static str,
        /// What exceeds it.
        problem: String,
    },
    /// The mocks of a dry run do not fit its workflow: (JSON pointer into the mocks, what is wrong).
    #[error("the mocks have {}", count(.0.len(), "problem"))]
    InvalidMocks(Vec<(String, String)>),
    /// A dry run took too long.
    #[error(
        "the dry run did not end within {0} s of real time, so it was stopped; nothing was stored. \
         Mock steps that repeat often, and shorten lists"
    )]
    DryRunTooLong(u64),
    /// As many dry runs as allowed are in progress.
    #[error("this server is busy with other dry runs")]
    TooManyDryRuns,
    /// The document has errors.
    #[error("the document has {}", count_errors(.0))]
    InvalidDocument(Diagnostics),
    /// Only drafts can be changed.
    #[error("workflow `{workflow}` is {} and cannot be changed; only drafts can", status.as_str())]
    Immutable {
        /// The workflow.
        workflow: String,
        /// Its state.
        status: Lifecycle,
    },
    /// A workflow of this name exists.
    #[error("workflow `{workflow}` exists already and is {}; replace it, delete it first, or use another name", status.as_str())]
    Exists {
        /// The workflow.
        workflow: String,
        /// Its state.
        status: Lifecycle,
    },
    /// A workflow with drafts cannot be replaced directly.
    #[error(
        "workflow `{0}` cannot be replaced: it or this document is of a dialect that has drafts. \
         PUT /api/v1/workflows/{0}/draft, then POST /api/v1/workflows/{0}/publish"
    )]
    HasDrafts(String),
    /// The document is of another dialect.
    #[error(
        "workflow `{workflow}` is written in {wanted} and this document in {found}; delete the workflow first, \
         or use another name"
    )]
    OtherDialect {
        /// The workflow.
        workflow: String,
        /// The dialect of the workflow.
        wanted: String,
        /// The dialect of the document.
        found: String,
    },
    /// There is nothing to publish.
    #[error("workflow `{0}` has no draft to publish")]
    NoDraft(String),
    /// Another caller changed the draft meanwhile.
    #[error("the draft of workflow `{0}` was changed by another request; read it and try again")]
    Changed(String),
    /// The draft is not the one that the caller expects.
    #[error("{}", not_that_draft(workflow, checksum.as_deref()))]
    OtherDraft {
        /// The workflow.
        workflow: String,
        /// The checksum of the current draft, if there is one.
        checksum: Option<String>,
    },
    /// The document is of another workflow.
    #[error("the document says it is workflow `{found}`, but it was sent for workflow `{wanted}`")]
    OtherWorkflow {
        /// The workflow it was sent for.
        wanted: String,
        /// The workflow that the document names.
        found: String,
    },
    /// The version of the changed document is too low.
    #[error("workflow `{workflow}`: {problem}")]
    VersionTooLow {
        /// The workflow.
        workflow: String,
        /// What its version must be.
        problem: TooSmall,
    },
    /// The workflow has another version than the caller expects.
    #[error(
        "workflow `{workflow}` has version {version} now. Read it, merge your changes and send them with this version in If-Match"
    )]
    OtherVersion {
        /// The workflow.
        workflow: String,
        /// Its latest version.
        version: String,
    },
    /// Another request published a version meanwhile.
    #[error("another version of workflow `{0}` was published meanwhile; read it and try again")]
    Republished(String),
    /// There is no version with this label.
    #[error("workflow `{workflow}` has no version {version}")]
    LabelNotFound {
        /// The workflow.
        workflow: String,
        /// The requested version.
        version: String,
    },
    /// Documents of this dialect are not changed by intents.
    #[error("workflow `{workflow}` is written in {dialect}; only jsondagapi workflows are changed by intents")]
    NoIntents {
        /// The workflow.
        workflow: String,
        /// Its dialect.
        dialect: String,
    },
    /// An intent cannot be applied.
    #[error("workflow `{workflow}` was not changed: {refused}")]
    IntentRefused {
        /// The workflow.
        workflow: String,
        /// Why.
        refused: Refused,
    },
    /// The lifecycle does not allow this command.
    #[error("workflow `{workflow}` is {}: it cannot be {}; {}", status.as_str(), command.done(), command.instead(*status))]
    IllegalTransition {
        /// The workflow.
        workflow: String,
        /// The command.
        command: Command,
        /// Its state.
        status: Lifecycle,
    },
    /// There are runs that refer to the workflow.
    #[error(
        "workflow `{workflow}` is {} and has executions, which refer to its versions; it is kept with them{}",
        status.as_str(),
        if *status == Lifecycle::Draft { ". Publish and archive it so that it takes no more" } else { "" }
    )]
    HasRuns {
        /// The workflow.
        workflow: String,
        /// Its state.
        status: Lifecycle,
    },
    /// The workflow changed each time a run was about to start.
    #[error("workflow `{0}` changed several times while the execution was being started; try again")]
    KeepsChanging(String),
    /// There is no such run.
    #[error("execution {0} does not exist")]
    RunNotFound(RunId),
    /// The journal of a run does not have this row.
    #[error(
        "the journal of execution {run} has no row {row}; its newest row is {newest}. Read the execution again, and follow it from there"
    )]
    NoSuchRow {
        /// The run.
        run: RunId,
        /// The row.
        row: u32,
        /// The newest row.
        newest: u32,
    },
    /// Too many different lists are watched.
    #[error("too many different queries are being watched in this process; close some streams, or try again later")]
    TooManyLists,
    /// A run that has ended takes no commands.
    #[error("execution {run} is {status}: it cannot be {command}")]
    RunEnded {
        /// The run.
        run: RunId,
        /// Its status.
        status: Status,
        /// The command.
        command: &'static str,
    },
    /// The workflow of the run has no such node.
    #[error("execution {run} has no node `{node}`{help}")]
    NodeNotFound {
        /// The run.
        run: RunId,
        /// The node.
        node: String,
        /// Which nodes there are.
        help: String,
    },
    /// The state of the node does not allow the command.
    #[error("node `{node}` of execution {run} cannot be {command}: {why}")]
    NodeCommand {
        /// The run.
        run: RunId,
        /// The node.
        node: String,
        /// The command.
        command: &'static str,
        /// Why.
        why: String,
    },
    /// A node cannot be skipped like this.
    #[error("{0}")]
    InvalidSkip(String),
    /// A run that has not ended cannot be removed.
    #[error("execution {0}, or an execution that it started, has not ended; cancel it first")]
    RunNotFinished(RunId),
    /// The status of the run does not allow this command.
    #[error("execution {run} is {status}: it cannot {what}")]
    WrongStatus {
        /// The run.
        run: RunId,
        /// Its status.
        status: Status,
        /// What it cannot do, and what to do instead.
        what: &'static str,
    },
    /// The run cannot be repeated.
    #[error("execution {run} cannot be rerun: {what}")]
    RunUnusable {
        /// The run.
        run: RunId,
        /// Why.
        what: String,
    },
    /// The run cannot be repeated like this.
    #[error("{what}")]
    InvalidRerun {
        /// JSON pointer into the request.
        pointer: String,
        /// What is wrong.
        what: String,
    },
    /// A registration of callbacks is wrong.
    #[error("{0}")]
    InvalidCallback(String),
    /// No callback has this id.
    #[error("no callback is registered as `{0}`")]
    CallbackNotRegistered(String),
    /// The id belongs to another service.
    #[error(
        "callback `{id}` is registered by the service `{service_name}`; nothing was registered. Choose another id, or delete it first"
    )]
    CallbackTaken {
        /// The id.
        id: String,
        /// The service that registered it.
        service_name: String,
    },
    /// Active workflows name the callback.
    #[error(
        "callback `{id}` is named by active workflows: {}. Publish versions of them without it, or archive them, first",
        workflows.join(", ")
    )]
    CallbackInUse {
        /// The id.
        id: String,
        /// Some of these workflows.
        workflows: Vec<String>,
    },
    /// The request names a tenant that is not the caller's.
    #[error("the request names a tenant that is not the token's; leave `tenantId` out, or use a token of that tenant")]
    OtherTenant,
    /// The request names a principal that is not the caller.
    #[error(
        "the request names a principal that is not the token's; leave it out, or use a token with the scope `workflows:on-behalf-of`"
    )]
    OtherPrincipal,
    /// An execution needs a principal, and there is none.
    #[error(
        "an execution needs a principal: send a token, or `principal` in the body (`auth.require_principal_for_execute`)"
    )]
    PrincipalRequired,
    /// A tenant may not change what is shared.
    #[error("workflow `{0}` is shared by all tenants; only a caller without a tenant may change it")]
    Shared(String),
    /// The caller may not do that.
    #[error("{0}")]
    Forbidden(String),
    /// A key cannot be created like this.
    #[error("{0}")]
    InvalidKey(String),
    /// There is no such trigger.
    #[error("trigger {0} does not exist")]
    TriggerNotFound(Uuid),
    /// There is no such delivery.
    #[error("delivery {0} does not exist; deliveries are kept for seven days")]
    DeliveryNotFound(Uuid),
    /// A trigger cannot be configured like this: (JSON pointer into the trigger, what is wrong).
    #[error("the configuration of the trigger has {}", count(.0.len(), "problem"))]
    InvalidTriggerConfig(Vec<(String, String)>),
    /// A document declares the trigger.
    #[error(
        "trigger {id} is declared as `{name}` in the document of workflow `{workflow}`; change the document and publish it"
    )]
    DeclaredTrigger {
        /// The trigger.
        id: Uuid,
        /// Its workflow.
        workflow: String,
        /// Its name in the document.
        name: String,
    },
    /// No webhook accepts the request. It says no more: a stranger must not learn why.
    #[error("there is no such webhook")]
    NoWebhook,
    /// The media type of a request to a webhook cannot become a trigger.
    #[error("{0}")]
    UnsupportedBody(String),
    /// The body of a request to a webhook is not what its media type says.
    #[error("{0}")]
    InvalidBody(String),
    /// A kind of trigger is switched off.
    #[error("{0} are switched off on this server")]
    TriggersDisabled(&'static str),
    /// The payload of a delivery no longer exists.
    #[error("delivery {0} cannot be replayed: its payload was removed with its execution")]
    UnreplayableDelivery(Uuid),
    /// An event cannot be published like this.
    #[error("{0}")]
    InvalidEvent(String),
    /// There is no such key.
    #[error("API key {0} does not exist")]
    KeyNotFound(Uuid),
    /// There is no such dead letter.
    #[error("dead letter {0} does not exist")]
    DeadLetterNotFound(Uuid),
    /// The dead letter cannot be requeued.
    #[error(
        "dead letter {id} cannot be requeued: {what}. Start an execution with a corrected request, and delete the dead letter"
    )]
    DeadLetterUnusable {
        /// The dead letter.
        id: Uuid,
        /// Why.
        what: String,
    },
}

fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

fn not_that_draft(workflow: &str, checksum: Option<&str>) -> String {
    match checksum {
        Some(checksum) => format!(
            "the draft of workflow `{workflow}` has changed: its ETag is \"{checksum}\". \
             Read it, merge your changes and send them with this ETag in If-Match"
        ),
        None => format!("workflow `{workflow}` has no draft; send it without If-Match, or with If-None-Match: *"),
    }
}

fn count_errors(problems: &Diagnostics) -> String {
    let errors = problems
        .list()
        .iter()
        .filter(|problem| problem.severity == Severity::Error)
        .count();
    match errors + problems.more() {
        1 => "1 error".to_owned(),
        count => format!("{count} errors"),
    }
}

impl Refusal {
    /// A rerun that names a node and asks for the failed ones.
    pub(crate) fn ambiguous_rerun() -> Refusal {
        Refusal::InvalidRerun {
            pointer: "/failedOnly".to_owned(),
            what: "`fromNode` and `failedOnly` exclude each other".to_owned(),
        }
    }
}

fn not_active(workflow: &str, status: Lifecycle, enabled: bool) -> String {
    match (status, enabled) {
        (Lifecycle::Draft, _) => format!("workflow `{workflow}` is a Draft; publish it first"),
        (Lifecycle::Archived, _) => format!("workflow `{workflow}` is Archived; reactivate it first"),
        (Lifecycle::Active, _) => format!("workflow `{workflow}` is disabled; enable it first"),
    }
}
