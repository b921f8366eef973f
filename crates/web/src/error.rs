//! Errors of the API. All have the same envelope:
//!
//! ```json
//! {"error": {"code": "WORKFLOW_NOT_FOUND", "message": "…", "correlationId": "…", "timestamp": "…", "details": []}}
//! ```
//!
//! `code` is the WFENG number of the specification if there is one, otherwise a name. An [`ApiError`] does not know the
//! correlation id: it is passed in the extensions of the response until [`crate::envelope`] writes the body.
//! Errors that only the operator can fix are logged in full; the client gets a message without file paths.

use crate::rate_limit;
use axum::{
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use fermata_dialects::{Diagnostic, jsondagapi::intents::Reason};
use fermata_runtime::{EngineError, Refusal, rate::Allowance};
use fermata_store::StoreError;
use serde::Serialize;
use std::borrow::Cow;

/// A failed request.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: Cow<'static, str>,
    pub details: Vec<Detail>,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u32>,
    /// A header of the response: the current `ETag`, if the request expected another one, or `WWW-Authenticate`.
    pub header: Option<Box<(HeaderName, HeaderValue)>>,
    /// What is left of the rate limit that refused the request.
    pub allowance: Option<Box<Allowance>>,
}

/// One of several problems.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(crate) enum Detail {
    Diagnostic(Diagnostic),
    Trigger {
        code: &'static str,
        severity: &'static str,
        message: String,
        /// JSON pointer into the body of the request.
        pointer: String,
    },
    Query {
        code: &'static str,
        severity: &'static str,
        message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        help: Option<String>,
        /// The characters of the query that are wrong, counted from 0.
        start: usize,
        end: usize,
    },
}

impl ApiError {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError {
            status,
            code,
            message: message.into(),
            details: Vec::new(),
            retry_after: None,
            header: None,
            allowance: None,
        }
    }

    /// The request is malformed.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "INVALID_REQUEST", message)
    }

    /// A query parameter is invalid.
    pub fn parameter(message: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "INVALID_PARAMETER", message)
    }

    pub fn conflict(code: &'static str, message: String) -> ApiError {
        ApiError::new(StatusCode::CONFLICT, code, message)
    }

    pub fn not_found(code: &'static str, message: String) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, code, message)
    }

    /// The server failed; the cause is in its log.
    pub fn internal(code: &'static str) -> ApiError {
        let message = "the server failed; its log has the cause under this correlationId";
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, code, message)
    }

    /// The server has no capacity for the request at the moment.
    pub fn busy(what: &str) -> ApiError {
        let message = format!("{what}; nothing was changed. Retry after a moment");
        ApiError::unavailable("BUSY", message, 1)
    }

    fn unavailable(code: &'static str, message: impl Into<Cow<'static, str>>, retry_after: u32) -> ApiError {
        ApiError {
            retry_after: Some(retry_after),
            ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
        }
    }

    fn with_details(mut self, details: impl IntoIterator<Item = Detail>) -> ApiError {
        self.details.extend(details);
        self
    }
}

/// A checksum as an ETag.
pub(crate) fn etag(checksum: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("\"{checksum}\"")).ok()
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        if let Some(seconds) = self.retry_after {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some((name, value)) = self.header.as_deref() {
            response.headers_mut().insert(name, value.clone());
        }
        if let Some(allowance) = &self.allowance {
            rate_limit::write(response.headers_mut(), **allowance);
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> ApiError {
        match error {
            EngineError::Refused(refusal) => refusal.into(),
            EngineError::Store(error) => error.into(),
            EngineError::Unusable { .. } => {
                tracing::error!(%error, "a stored workflow version cannot be run");
                ApiError::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "WORKFLOW_UNUSABLE",
                    error.to_string(),
                )
            }
            EngineError::Stopping => ApiError::unavailable("STOPPING", error.to_string(), 1),
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> ApiError {
        let message = refusal.to_string();
        let forbidden = |code, message: String| ApiError::new(StatusCode::FORBIDDEN, code, message);
        match refusal {
            Refusal::WorkflowNotFound(_) => ApiError::not_found("WORKFLOW_NOT_FOUND", message),
            Refusal::VersionNotFound { .. } => ApiError::not_found("VERSION_NOT_FOUND", message),
            Refusal::RunNotFound(_) => ApiError::not_found("EXECUTION_NOT_FOUND", message),
            Refusal::NoSuchRow { .. } => ApiError::parameter(message),
            Refusal::TooManyLists => ApiError::busy("too many different queries are being watched"),
            Refusal::RunEnded { .. } | Refusal::NodeCommand { .. } => ApiError::conflict("WFENG002", message),
            Refusal::NodeNotFound { .. } => ApiError::not_found("NODE_NOT_FOUND", message),
            Refusal::InvalidSkip(_) => ApiError::invalid(message),
            Refusal::RunNotFinished(_) => ApiError::conflict("EXECUTION_NOT_FINISHED", message),
            Refusal::WrongStatus { .. } => ApiError::conflict("WFENG002", message),
            Refusal::RunUnusable { .. } => ApiError::conflict("EXECUTION_UNUSABLE", message),
            Refusal::InvalidRerun { pointer, what } => {
                let detail = Detail::Trigger {
                    code: "INVALID_RERUN",
                    severity: "error",
                    message: what,
                    pointer,
                };
                ApiError::new(StatusCode::BAD_REQUEST, "INVALID_RERUN", message).with_details([detail])
            }
            Refusal::OtherTenant => forbidden("OTHER_TENANT", message),
            Refusal::OtherPrincipal => forbidden("OTHER_PRINCIPAL", message),
            Refusal::Shared(_) => forbidden("SHARED_WORKFLOW", message),
            Refusal::Forbidden(_) => forbidden("FORBIDDEN", message),
            Refusal::PrincipalRequired => ApiError::new(StatusCode::BAD_REQUEST, "PRINCIPAL_REQUIRED", message),
            Refusal::InvalidKey(_) => ApiError::invalid(message),
            Refusal::KeyNotFound(_) => ApiError::not_found("KEY_NOT_FOUND", message),
            Refusal::DeadLetterNotFound(_) => ApiError::not_found("DEAD_LETTER_NOT_FOUND", message),
            Refusal::DeadLetterUnusable { .. } => ApiError::conflict("DEAD_LETTER_UNUSABLE", message),
            Refusal::InvalidCallback(_) => ApiError::invalid(message),
            Refusal::CallbackNotRegistered(_) => ApiError::not_found("CALLBACK_NOT_REGISTERED", message),
            Refusal::CallbackTaken { .. } => ApiError::conflict("CALLBACK_TAKEN", message),
            Refusal::CallbackInUse { .. } => ApiError::conflict("CALLBACK_IN_USE", message),
            Refusal::NotActive { .. } => ApiError::conflict("WORKFLOW_NOT_ACTIVE", message),
            Refusal::RequestIdTaken { .. } => ApiError::conflict("WFENG001", message),
            Refusal::Exists { .. } => ApiError::conflict("WORKFLOW_EXISTS", message),
            Refusal::HasDrafts(_) => ApiError::conflict("WORKFLOW_HAS_DRAFTS", message),
            Refusal::OtherDialect { .. } => ApiError::conflict("DIALECT_MISMATCH", message),
            Refusal::NoDraft(_) => ApiError::conflict("NO_DRAFT", message),
            Refusal::Changed(_) => ApiError::conflict("DRAFT_CHANGED", message),
            Refusal::IllegalTransition { .. } => ApiError::conflict("ILLEGAL_LIFECYCLE_TRANSITION", message),
            Refusal::HasRuns { .. } => ApiError::conflict("WORKFLOW_HAS_EXECUTIONS", message),
            Refusal::KeepsChanging(_) | Refusal::Republished(_) => ApiError {
                retry_after: Some(1),
                ..ApiError::conflict("WORKFLOW_CHANGING", message)
            },
            Refusal::OtherWorkflow { .. } => ApiError::new(StatusCode::BAD_REQUEST, "ID_MISMATCH", message),
            Refusal::OtherDraft { checksum, .. } => ApiError {
                header: checksum
                    .as_deref()
                    .and_then(etag)
                    .map(|etag| Box::new((header::ETAG, etag))),
                ..ApiError::new(StatusCode::PRECONDITION_FAILED, "PRECONDITION_FAILED", message)
            },
            Refusal::VersionTooLow { .. } => ApiError::conflict("VERSION_TOO_LOW", message),
            Refusal::OtherVersion { version, .. } => ApiError {
                header: etag(&version).map(|etag| Box::new((header::ETAG, etag))),
                ..ApiError::new(StatusCode::PRECONDITION_FAILED, "PRECONDITION_FAILED", message)
            },
            Refusal::LabelNotFound { .. } => ApiError::not_found("VERSION_NOT_FOUND", message),
            Refusal::NoIntents { .. } => ApiError::conflict("DIALECT_MISMATCH", message),
            Refusal::IntentRefused { refused, .. } => match refused.reason {
                Reason::NotFound(_) => ApiError::not_found("NODE_OR_EDGE_NOT_FOUND", message),
                Reason::Conflict(_) => ApiError::conflict("INTENT_REFUSED", message),
                Reason::Forbidden(_) => ApiError::new(StatusCode::BAD_REQUEST, "INTENT_FORBIDDEN", message),
            },
            Refusal::RateLimited { allowance, .. } => rate_limit::refused(allowance, message),
            Refusal::ConcurrencyLimit { .. } => ApiError {
                retry_after: Some(1),
                ..ApiError::new(StatusCode::TOO_MANY_REQUESTS, "CONCURRENCY_LIMIT", message)
            },
            Refusal::UniqueKeyTaken { .. } => ApiError::conflict("UNIQUE_KEY_TAKEN", message),
            Refusal::InvalidQuery(problem) => {
                let detail = Detail::Query {
                    code: "INVALID_QUERY",
                    severity: "error",
                    message: problem.message,
                    help: problem.help,
                    start: problem.at.start,
                    end: problem.at.end,
                };
                ApiError::new(StatusCode::BAD_REQUEST, "INVALID_QUERY", message).with_details([detail])
            }
            Refusal::BulkNotFound(_) => ApiError::not_found("BULK_NOT_FOUND", message),
            Refusal::EmptySelection => ApiError::invalid(message),
            Refusal::SelectionTooLarge { .. } => ApiError::new(StatusCode::BAD_REQUEST, "SELECTION_TOO_LARGE", message),
            Refusal::PatternTooWide { .. } => ApiError::new(StatusCode::BAD_REQUEST, "INVALID_QUERY", message),
            Refusal::InvalidFlowKey { .. } => ApiError::new(StatusCode::BAD_REQUEST, "INVALID_KEY", message),
            Refusal::MonthlyLimit { retry_after, .. } => ApiError {
                retry_after: Some(retry_after),
                ..ApiError::new(StatusCode::TOO_MANY_REQUESTS, "MONTHLY_LIMIT", message)
            },
            Refusal::TierLimit { .. } => ApiError::new(StatusCode::FORBIDDEN, "TIER_LIMIT", message),
            Refusal::ReservedRequestId(_) => ApiError::new(StatusCode::BAD_REQUEST, "RESERVED_REQUEST_ID", message),
            Refusal::Immutable { .. } => ApiError::new(StatusCode::BAD_REQUEST, "WORKFLOW_IMMUTABLE", message),
            Refusal::InvalidTrigger { problems, .. } => {
                let detail = |(pointer, message): (String, String)| Detail::Trigger {
                    code: "INVALID_TRIGGER",
                    severity: "error",
                    message,
                    pointer: format!("/trigger{pointer}"),
                };
                ApiError::new(StatusCode::BAD_REQUEST, "WFENG005", message)
                    .with_details(problems.into_iter().map(detail))
            }
            Refusal::TriggerNotFound(_) => ApiError::not_found("TRIGGER_NOT_FOUND", message),
            Refusal::DeliveryNotFound(_) => ApiError::not_found("DELIVERY_NOT_FOUND", message),
            Refusal::NoWebhook => ApiError::not_found("WEBHOOK_NOT_FOUND", message),
            Refusal::DeclaredTrigger { .. } => ApiError::conflict("DECLARED_TRIGGER", message),
            Refusal::UnreplayableDelivery(_) => ApiError::conflict("DELIVERY_NOT_REPLAYABLE", message),
            Refusal::TriggersDisabled(_) => ApiError::conflict("TRIGGERS_DISABLED", message),
            Refusal::InvalidEvent(_) => ApiError::new(StatusCode::BAD_REQUEST, "INVALID_EVENT", message),
            Refusal::InvalidBody(_) => ApiError::invalid(message),
            Refusal::UnsupportedBody(_) => {
                ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", message)
            }
            Refusal::InvalidTriggerConfig(problems) => {
                let detail = |(pointer, message): (String, String)| Detail::Trigger {
                    code: "INVALID_TRIGGER_CONFIG",
                    severity: "error",
                    message,
                    pointer,
                };
                ApiError::new(StatusCode::BAD_REQUEST, "INVALID_TRIGGER_CONFIG", message)
                    .with_details(problems.into_iter().map(detail))
            }
            Refusal::InvalidMocks(problems) => {
                let detail = |(pointer, message): (String, String)| Detail::Trigger {
                    code: "INVALID_MOCKS",
                    severity: "error",
                    message,
                    pointer: format!("/mocks{pointer}"),
                };
                ApiError::new(StatusCode::BAD_REQUEST, "INVALID_MOCKS", message)
                    .with_details(problems.into_iter().map(detail))
            }
            Refusal::DryRunTooLong(_) => ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "DRY_RUN_TOO_LONG", message),
            Refusal::TooManyDryRuns => ApiError::busy(&message),
            Refusal::InvalidDocument(problems) => {
                let list = problems.into_list().into_iter();
                ApiError::new(StatusCode::BAD_REQUEST, "WFENG005", message).with_details(list.map(Detail::Diagnostic))
            }
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        tracing::error!(%error, "a request failed in the database");
        match error {
            StoreError::Full { .. } => ApiError::unavailable(
                "STORAGE_FULL",
                "the disk of the database is full; this request was not stored. Retry after space was freed",
                30,
            ),
            StoreError::Locked { .. } => ApiError::unavailable(
                "STORAGE_UNAVAILABLE",
                "another process has locked the database; nothing was changed. Retry after a moment",
                5,
            ),
            StoreError::Closed => ApiError::unavailable(
                "STORAGE_UNAVAILABLE",
                "the server is stopping and has closed its database",
                1,
            ),
            StoreError::Unavailable(_) => ApiError::unavailable(
                "STORAGE_UNAVAILABLE",
                "the server cannot reach its database; nothing was changed. Retry after a moment",
                1,
            ),
            StoreError::Busy(_) => ApiError::unavailable(
                "STORAGE_UNAVAILABLE",
                "another transaction holds a lock in the database; nothing was changed. Retry after a moment",
                1,
            ),
            StoreError::Unknown(_) => ApiError::unavailable(
                "STORAGE_UNAVAILABLE",
                "the database did not confirm the write, so its outcome is unknown; repeat it with the same requestId",
                1,
            ),
            StoreError::Rejected(_) => ApiError::invalid(
                "the database cannot store this request: an id or a text is too long, or contains characters that it does not accept",
            ),
            StoreError::TooNew { .. }
            | StoreError::Outdated { .. }
            | StoreError::NoWayBack { .. }
            | StoreError::Damaged { .. }
            | StoreError::Unopenable { .. }
            | StoreError::Failed(_) => ApiError::internal("STORAGE_FAILED"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_changed_drafts_are_conflicts() {
        for (refusal, code) in [
            (Refusal::NoDraft("w".to_owned()), "NO_DRAFT"),
            (Refusal::Changed("w".to_owned()), "DRAFT_CHANGED"),
            (Refusal::KeepsChanging("w".to_owned()), "WORKFLOW_CHANGING"),
        ] {
            let error = ApiError::from(refusal);
            assert_eq!((error.status, error.code), (StatusCode::CONFLICT, code));
        }
    }

    #[test]
    fn temporary_errors_have_retry_after_and_no_message_has_a_path() {
        let path = || "/secret/fermata.db".to_owned();
        let (needs, have, what, holder) = (String::new(), String::new(), String::new(), String::new());
        let errors = [
            (StoreError::Full { path: path() }, 503, "STORAGE_FULL"),
            (StoreError::Locked { path: path(), holder }, 503, "STORAGE_UNAVAILABLE"),
            (StoreError::Unavailable(path()), 503, "STORAGE_UNAVAILABLE"),
            (StoreError::Busy(path()), 503, "STORAGE_UNAVAILABLE"),
            (StoreError::Unknown(path()), 503, "STORAGE_UNAVAILABLE"),
            (StoreError::Closed, 503, "STORAGE_UNAVAILABLE"),
            (StoreError::Rejected(path()), 400, "INVALID_REQUEST"),
            (
                StoreError::TooNew {
                    path: path(),
                    needs,
                    have,
                },
                500,
                "STORAGE_FAILED",
            ),
            (
                StoreError::Damaged {
                    path: path(),
                    what: what.clone(),
                },
                500,
                "STORAGE_FAILED",
            ),
            (StoreError::Unopenable { path: path(), what }, 500, "STORAGE_FAILED"),
            (StoreError::Failed(path()), 500, "STORAGE_FAILED"),
        ];
        for (error, status, code) in errors {
            let error = ApiError::from(error);
            assert_eq!((error.status.as_u16(), error.code), (status, code));
            assert!(!error.message.contains("secret"), "{}", error.message);
            assert_eq!(error.retry_after.is_some(), status == 503);
            assert_eq!(
                error.into_response().headers().contains_key(header::RETRY_AFTER),
                status == 503
            );
        }
    }
}
