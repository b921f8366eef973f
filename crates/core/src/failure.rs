//! Why a step or a run failed. Failures are serialized into the journal and shown to users.

use serde::{Deserialize, Serialize};

/// The failure codes of the engine. Actions may define their own.
pub mod code {
    /// An attempt ran longer than its node's timeout.
    pub const TIMEOUT: &str = "TIMEOUT";
    /// The run did not end before its deadline.
    pub const RUN_TIMEOUT: &str = "RUN_TIMEOUT";
    /// A template of the node's parameters could not be rendered.
    pub const TEMPLATE_ERROR: &str = "TEMPLATE_ERROR";
    /// The rendered parameters are not valid for the action.
    pub const INVALID_PARAMETERS: &str = "INVALID_PARAMETERS";
    /// The action is not in this program's catalog.
    pub const UNKNOWN_ACTION: &str = "UNKNOWN_ACTION";
    /// The action panicked.
    pub const ACTION_PANICKED: &str = "ACTION_PANICKED";
    /// The outputs of the run exceed the context limit.
    pub const CONTEXT_OVERFLOW: &str = "CONTEXT_OVERFLOW";
    /// An external resource is already linked to another run.
    pub const RESOURCE_LINK_CONFLICT: &str = "WFENG003";
    /// No callback was received within the timeout of a wait.
    pub const WAIT_TIMEOUT: &str = "WAIT_TIMEOUT";
    /// A task's answer is not one of the forms that a task may answer with.
    pub const INVALID_CALLBACK_PAYLOAD: &str = "INVALID_CALLBACK_PAYLOAD";
    /// A decision was not answered in time.
    pub const DECISION_TIMEOUT: &str = "DECISION_TIMEOUT";
    /// A decision's answer does not name an outcome.
    pub const INVALID_DECISION_RESPONSE: &str = "INVALID_DECISION_RESPONSE";
    /// No edge, or more than one, belongs to the outcome of a decision.
    pub const UNKNOWN_OUTCOME: &str = "UNKNOWN_OUTCOME";
    /// The conditions of a decision could not be evaluated, or more than one is true.
    pub const CONDITION_EVALUATION_ERROR: &str = "CONDITION_EVALUATION_ERROR";
    /// A request names a callback that is not registered, or a URL although only registered callbacks are allowed.
    pub const CALLBACK_NOT_REGISTERED: &str = "CALLBACK_NOT_REGISTERED";
    /// A child run could not be started.
    pub const CHILD_REFUSED: &str = "CHILD_REFUSED";
    /// A child run failed without an error of its own.
    pub const CHILD_FAILED: &str = "CHILD_FAILED";
    /// The run was cancelled.
    pub const CANCELLED: &str = "CANCELLED";
}

/// A failure as it is recorded and displayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// A stable name for programs: one of [`code`], or defined by an action.
    pub code: String,
    /// What happened, for display.
    pub message: String,
    /// Whether a retry may succeed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retriable: bool,
    /// The minimum delay before a retry, if the called service named one (`Retry-After`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// The longest message in bytes. Failures are part of the journal, so their size is limited.
const MAX_MESSAGE: usize = 4096;

impl Failure {
    /// A failure that is not retried.
    pub fn permanent(code: impl Into<String>, message: impl Into<String>) -> Failure {
        let mut message = message.into();
        if message.len() > MAX_MESSAGE {
            let end = message.floor_char_boundary(MAX_MESSAGE);
            message.truncate(end);
            message.push('…');
        }
        Failure {
            code: code.into(),
            message,
            retriable: false,
            retry_after_ms: None,
        }
    }

    /// A failure that may be retried.
    pub fn retriable(code: impl Into<String>, message: impl Into<String>) -> Failure {
        Failure {
            retriable: true,
            ..Failure::permanent(code, message)
        }
    }
}
