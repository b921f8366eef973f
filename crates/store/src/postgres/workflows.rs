//! [`WorkflowStore`]: each method calls `definitions.rs`.

use super::{PostgresStore, columns::storable, definitions, error::PgError, sessions::patiently};
use crate::{
    Result,
    definitions::{
        Activation, Definition, Deleted, Draft, DraftGuard, DraftRule, Enablement, PublishMode, Published, Release,
        Released, Saved, VersionRow, Workflow, WorkflowFilter, WorkflowStore,
    },
    reads::Page,
};
use async_trait::async_trait;
use fermata_core::Timestamp;
use uuid::Uuid;

#[async_trait]
impl WorkflowStore for PostgresStore {
    async fn save_draft(&self, draft: Draft, rule: DraftRule, guard: Option<DraftGuard>) -> Result<Saved> {
        patiently!(self.sessions, |session| definitions::save_draft(
            &mut session,
            &draft,
            rule,
            guard.as_ref()
        ))
    }

    async fn draft(&self, workflow: Uuid) -> Result<Option<Draft>> {
        patiently!(self.sessions, |session| definitions::draft(&session, workflow))
    }

    async fn publish(
        &self,
        workflow: Uuid,
        checksum: &str,
        plan: &str,
        activation: Activation,
        at: Timestamp,
    ) -> Result<Published> {
        let mode = PublishMode::Publish(activation);
        patiently!(self.sessions, |session| definitions::publish(
            &mut session,
            workflow,
            checksum,
            plan,
            mode,
            at
        ))
    }

    async fn release(&self, release: Release) -> Result<Released> {
        patiently!(self.sessions, |session| definitions::release(&mut session, &release))
    }

    async fn snapshot(&self, workflow: Uuid, checksum: &str, plan: &str, at: Timestamp) -> Result<Published> {
        let mode = PublishMode::Snapshot;
        patiently!(self.sessions, |session| definitions::publish(
            &mut session,
            workflow,
            checksum,
            plan,
            mode,
            at
        ))
    }

    async fn delete_workflow(&self, workflow: Uuid) -> Result<Deleted> {
        patiently!(self.sessions, |session| definitions::delete(&mut session, workflow))
    }

    async fn soft_delete_workflow(&self, workflow: Uuid, at: Timestamp) -> Result<bool> {
        patiently!(self.sessions, |session| definitions::soft_delete(
            &mut session,
            workflow,
            at
        ))
    }

    async fn set_enablement(
        &self,
        workflow: Uuid,
        change: Enablement,
        at: Timestamp,
    ) -> Result<Option<(Workflow, bool)>> {
        patiently!(self.sessions, |session| definitions::set_enablement(
            &mut session,
            workflow,
            &change,
            at
        ))
    }

    async fn workflow(&self, tenant: &str, name: &str) -> Result<Option<Workflow>> {
        if !storable(name) || !storable(tenant) {
            return Ok(None);
        }
        patiently!(self.sessions, |session| definitions::workflow(&session, tenant, name))
    }

    async fn workflow_by_uid(&self, uid: Uuid) -> Result<Option<Workflow>> {
        patiently!(self.sessions, |session| definitions::workflow_by_uid(&session, uid))
    }

    async fn workflows(&self, filter: WorkflowFilter) -> Result<Page<Workflow>> {
        if !filter.tenant.as_deref().is_none_or(storable) {
            return Ok(Page::cut(Vec::new(), 0));
        }
        patiently!(self.sessions, |session| definitions::workflows(&session, &filter))
    }

    async fn definition(&self, workflow: Uuid, version: u32) -> Result<Option<Definition>> {
        patiently!(self.sessions, |session| definitions::definition(
            &session, workflow, version
        ))
    }

    async fn plan(&self, workflow: Uuid, version: u32) -> Result<Option<String>> {
        patiently!(self.sessions, |session| definitions::plan(&session, workflow, version))
    }

    async fn add_plan(&self, workflow: Uuid, version: u32, plan: &str, at: Timestamp) -> Result<Option<String>> {
        patiently!(self.sessions, |session| definitions::add_plan(
            &session, workflow, version, plan, at
        ))
    }

    async fn versions(&self, workflow: Uuid, before: Option<u32>, limit: u32) -> Result<Page<VersionRow>> {
        patiently!(self.sessions, |session| definitions::versions(
            &session, workflow, before, limit
        ))
    }
}
