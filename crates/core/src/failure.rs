//! Why a step or a run failed: serializable, journaled, written for the person who reads it.

use serde::{Deserialize, Serialize};

/// The codes the engine itself gives. Actions may add their own.
pub mod code {
    /// An attempt ran longer than its node's timeout.
    pub const TIMEOUT: &str = "TIMEOUT";
    /// The run took longer than it is allowed to.
    pub const RUN_TIMEOUT: &str = "RUN_TIMEOUT";
    /// A template of the node's parameters could not be rendered.
    pub const TEMPLATE_ERROR: &str = "TEMPLATE_ERROR";
    /// The rendered parameters do not fit the action.
    pub const INVALID_PARAMETERS: &str = "INVALID_PARAMETERS";
    /// The action is not in this program's catalog.
    pub const UNKNOWN_ACTION: &str = "UNKNOWN_ACTION";
    /// The action panicked.
    pub const ACTION_PANICKED: &str = "ACTION_PANICKED";
    /// The outputs of the run outgrew the context limit.
    pub const CONTEXT_OVERFLOW: &str = "CONTEXT_OVERFLOW";
    /// An external resource is already linked to another run.
    pub const RESOURCE_LINK_CONFLICT: &str = "WFENG003";
    /// A wait was not answered in time.
    pub const WAIT_TIMEOUT: &str = "WAIT_TIMEOUT";
    /// The run was cancelled.
    pub const CANCELLED: &str = "CANCELLED";
}

/// A failure as it is recorded and shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// A stable name for programs, one of [`code`] or an action's own.
    pub code: String,
    /// What happened, for people.
    pub message: String,
    /// Whether another attempt may help.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retriable: bool,
    /// The earliest moment for another attempt, if the other side named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// Journals hold failures, so their size is bounded.
const MAX_MESSAGE: usize = 4096;

impl Failure {
    /// A failure that another attempt will not mend.
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

    /// A failure that another attempt may mend.
    pub fn retriable(code: impl Into<String>, message: impl Into<String>) -> Failure {
        Failure {
            retriable: true,
            ..Failure::permanent(code, message)
        }
    }
}
