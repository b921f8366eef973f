//! Errors of the engine. A refusal must be corrected by the caller; the others are failures of the server.

use crate::workflows::Command;
use fermata_core::RunId;
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
        if *is_deleted { ", one that was deleted before this one was created" } else { "" }
    )]
    RequestIdTaken {
        /// The request id.
        request_id: String,
        /// The run that has it.
        run: RunId,
        /// The name of its workflow.
        owner: String,
        /// Whether that is a deleted workflow of the same name.
        is_deleted: bool,
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
    /// A run that has not ended cannot be removed.
    #[error("execution {0}, or an execution that it started, has not ended; cancel it first")]
    RunNotFinished(RunId),
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

fn not_active(workflow: &str, status: Lifecycle, enabled: bool) -> String {
    match (status, enabled) {
        (Lifecycle::Draft, _) => format!("workflow `{workflow}` is a Draft; publish it first"),
        (Lifecycle::Archived, _) => format!("workflow `{workflow}` is Archived; reactivate it first"),
        (Lifecycle::Active, _) => format!("workflow `{workflow}` is disabled; enable it first"),
    }
}
