//! [`WorkflowStore`]: each method hands its work to `definitions.rs`.

use super::{SqliteStore, definitions};
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
impl WorkflowStore for SqliteStore {
    async fn save_draft(&self, draft: Draft, rule: DraftRule, guard: Option<DraftGuard>) -> Result<Saved> {
        self.writer
            .write(move |tx| definitions::save_draft(tx, &draft, rule, guard.as_ref()))
            .await
    }

    async fn draft(&self, workflow: Uuid) -> Result<Option<Draft>> {
        self.readers
            .read(move |connection| definitions::draft(connection, workflow))
            .await
    }

    async fn publish(
        &self,
        workflow: Uuid,
        checksum: &str,
        plan: &str,
        activation: Activation,
        at: Timestamp,
    ) -> Result<Published> {
        let (checksum, plan) = (checksum.to_owned(), plan.to_owned());
        self.writer
            .write(move |tx| definitions::publish(tx, workflow, &checksum, &plan, PublishMode::Publish(activation), at))
            .await
    }

    async fn release(&self, release: Release) -> Result<Released> {
        self.writer.write(move |tx| definitions::release(tx, &release)).await
    }

    async fn snapshot(&self, workflow: Uuid, checksum: &str, plan: &str, at: Timestamp) -> Result<Published> {
        let (checksum, plan) = (checksum.to_owned(), plan.to_owned());
        self.writer
            .write(move |tx| definitions::publish(tx, workflow, &checksum, &plan, PublishMode::Snapshot, at))
            .await
    }

    async fn delete_workflow(&self, workflow: Uuid) -> Result<Deleted> {
        self.writer.write(move |tx| definitions::delete(tx, workflow)).await
    }

    async fn soft_delete_workflow(&self, workflow: Uuid, at: Timestamp) -> Result<bool> {
        self.writer
            .write(move |tx| definitions::soft_delete(tx, workflow, at))
            .await
    }

    async fn set_enablement(
        &self,
        workflow: Uuid,
        change: Enablement,
        at: Timestamp,
    ) -> Result<Option<(Workflow, bool)>> {
        self.writer
            .write(move |tx| definitions::set_enablement(tx, workflow, &change, at))
            .await
    }

    async fn workflow(&self, tenant: &str, name: &str) -> Result<Option<Workflow>> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        self.readers
            .read(move |connection| definitions::workflow(connection, &tenant, &name))
            .await
    }

    async fn workflow_by_uid(&self, uid: Uuid) -> Result<Option<Workflow>> {
        self.readers
            .read(move |connection| definitions::workflow_by_uid(connection, uid))
            .await
    }

    async fn workflows(&self, filter: WorkflowFilter) -> Result<Page<Workflow>> {
        self.readers
            .read(move |connection| definitions::workflows(connection, &filter))
            .await
    }

    async fn definition(&self, workflow: Uuid, version: u32) -> Result<Option<Definition>> {
        self.readers
            .read(move |connection| definitions::definition(connection, workflow, version))
            .await
    }

    async fn plan(&self, workflow: Uuid, version: u32) -> Result<Option<String>> {
        self.readers
            .read(move |connection| definitions::plan(connection, workflow, version))
            .await
    }

    async fn add_plan(&self, workflow: Uuid, version: u32, plan: &str, at: Timestamp) -> Result<Option<String>> {
        let plan = plan.to_owned();
        self.writer
            .write(move |tx| definitions::add_plan(tx, workflow, version, &plan, at))
            .await
    }

    async fn versions(&self, workflow: Uuid, before: Option<u32>, limit: u32) -> Result<Page<VersionRow>> {
        self.readers
            .read(move |connection| definitions::versions(connection, workflow, before, limit))
            .await
    }
}
