//! The audit trail: which caller changed what. See [`fermata_store::audit`] for how rows are stored.
//!
//! What must stay true: every change that a caller makes through a [`Session`](crate::Session) is recorded, except starting and
//! advancing runs: the row of a run says who started it. A refused change is recorded if the caller may not make it.

use crate::{
    caller::Caller,
    engine::Engine,
    error::{EngineError, Refusal},
    reads::MAX_PAGE,
};
use fermata_store::audit::{AuditFilter, AuditOutcome, AuditPage, AuditRow, recorded};
use std::{future::Future, net::IpAddr};
use uuid::Uuid;

/// The longest detail, in characters.
const MAX_DETAIL: usize = 300;

/// Records the changes of one caller.
#[derive(Clone, Copy)]
pub(crate) struct Recorder<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) caller: &'a Caller,
}

impl Recorder<'_> {
    /// Runs a command whose changes are recorded.
    pub(crate) async fn record<T>(
        &self,
        action: &str,
        target: &str,
        command: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let row = self
            .engine
            .audit_row(Some(self.caller), self.caller.address(), action, target);
        let (result, mut row) = recorded(row, command).await;
        if let Err(EngineError::Refused(refusal)) = &result
            && is_denied(refusal)
        {
            row.outcome = AuditOutcome::Refused;
            row.detail = Some(short(&refusal.to_string()));
            self.engine.shared.store.add_audit(row).await?;
        }
        result
    }

    /// As [`Recorder::record`] for a command of several transactions: its row is durable before it begins.
    pub(crate) async fn record_before<T>(
        &self,
        action: &str,
        target: &str,
        about: About,
        command: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let mut row = self
            .engine
            .audit_row(Some(self.caller), self.caller.address(), action, target);
        row.outcome = AuditOutcome::Requested;
        row.tenant = about.tenant.unwrap_or(row.tenant);
        row.detail = about.detail;
        self.engine.shared.store.add_audit(row).await?;
        command.await
    }
}

/// What a row says about a command before it begins.
#[derive(Default)]
pub(crate) struct About {
    /// The tenant of the target, if it is known; otherwise the row has the caller's.
    pub(crate) tenant: Option<String>,
    pub(crate) detail: Option<String>,
}

/// Whether the caller may not do what it asked for, however often it asks.
fn is_denied(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::Shared(_) | Refusal::OtherTenant | Refusal::OtherPrincipal | Refusal::Forbidden(_)
    )
}

pub(crate) fn short(text: &str) -> String {
    text.chars().take(MAX_DETAIL).collect()
}

impl Engine {
    fn audit_row(&self, caller: Option<&Caller>, address: Option<IpAddr>, action: &str, target: &str) -> AuditRow {
        let identity = caller.map(Caller::identity);
        let credential = identity.map_or("none", |identity| identity.credential.as_str());
        let principal = identity.and_then(|identity| identity.principal.as_ref());
        AuditRow {
            id: Uuid::now_v7(),
            at: self.now(),
            tenant: caller.and_then(Caller::tenant).unwrap_or_default().to_owned(),
            who: principal
                .map_or(credential, |principal| principal.user_id.as_str())
                .to_owned(),
            credential: credential.to_owned(),
            address: address.map(|address| address.to_string()),
            action: action.to_owned(),
            target: short(target),
            outcome: AuditOutcome::Done,
            detail: None,
            before: None,
            after: None,
        }
    }

    /// Records a request that was refused because of its credential or scopes.
    ///
    /// # Errors
    /// If the store cannot write.
    pub async fn record_denied(
        &self,
        caller: Option<&Caller>,
        address: Option<IpAddr>,
        request: &str,
        code: &str,
    ) -> Result<(), EngineError> {
        let mut row = self.audit_row(caller, address, "request.denied", request);
        row.outcome = AuditOutcome::Refused;
        row.detail = Some(code.to_owned());
        Ok(self.shared.store.add_audit(row).await?)
    }
}

/// The audit trail, on behalf of one caller.
#[derive(Clone, Copy)]
pub struct Audit<'a> {
    pub(crate) engine: &'a Engine,
    /// The tenant of the caller; `None` if it sees every tenant.
    pub(crate) tenant: Option<&'a str>,
}

impl Audit<'_> {
    /// Rows, newest first.
    pub async fn list(&self, filter: AuditFilter) -> Result<AuditPage, EngineError> {
        let limit = filter.limit.min(MAX_PAGE);
        let tenant = match (self.tenant, filter.tenant) {
            (Some(own), Some(named)) if named != own => return Ok(AuditPage::default()),
            (Some(own), _) => Some(own.to_owned()),
            (None, named) => named,
        };
        let filter = AuditFilter {
            tenant,
            limit,
            ..filter
        };
        Ok(self.engine.shared.store.audit(filter).await?)
    }
}
