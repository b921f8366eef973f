//! Workflows, drafts and versions in memory. The rules are the same as in the SQLite store.

use super::{MemoryStore, State};
use crate::{
    Result,
    definitions::{
        Activation, Definition, Deleted, Draft, DraftGuard, DraftRule, Enablement, Lifecycle, Publication, PublishMode,
        Published, Release, ReleaseRule, Released, Saved, VersionRow, Workflow, WorkflowFilter, WorkflowStore,
    },
    reads::Page,
};
use async_trait::async_trait;
use fermata_core::Timestamp;
use std::{collections::BTreeMap, ops::Bound};
use uuid::Uuid;

#[async_trait]
impl WorkflowStore for MemoryStore {
    async fn save_draft(&self, draft: Draft, rule: DraftRule, guard: Option<DraftGuard>) -> Result<Saved> {
        self.change(
            |state| state.save_draft(draft, rule, guard.as_ref()),
            |saved| matches!(saved, Saved::Saved { .. }),
        )
    }

    async fn draft(&self, workflow: Uuid) -> Result<Option<Draft>> {
        self.with(|state| state.draft(workflow))
    }

    async fn publish(
        &self,
        workflow: Uuid,
        checksum: &str,
        plan: &str,
        activation: Activation,
        at: Timestamp,
    ) -> Result<Published> {
        self.change(
            |state| state.publish(workflow, checksum, plan, PublishMode::Publish(activation), at),
            |published| matches!(published, Published::Version(_)),
        )
    }

    async fn release(&self, release: Release) -> Result<Released> {
        self.change(
            |state| state.release(release),
            |released| matches!(released, Released::Version(_)),
        )
    }

    async fn snapshot(&self, workflow: Uuid, checksum: &str, plan: &str, at: Timestamp) -> Result<Published> {
        self.with(|state| state.publish(workflow, checksum, plan, PublishMode::Snapshot, at))
    }

    async fn delete_workflow(&self, workflow: Uuid) -> Result<Deleted> {
        self.change(
            |state| state.delete_workflow(workflow),
            |deleted| *deleted == Deleted::Deleted,
        )
    }

    async fn soft_delete_workflow(&self, workflow: Uuid, at: Timestamp) -> Result<bool> {
        self.change(|state| state.soft_delete_workflow(workflow, at), |deleted| *deleted)
    }

    async fn set_enablement(
        &self,
        workflow: Uuid,
        change: Enablement,
        at: Timestamp,
    ) -> Result<Option<(Workflow, bool)>> {
        self.change(
            |state| state.set_enablement(workflow, &change, at),
            |changed| changed.as_ref().is_some_and(|(_, changed)| *changed),
        )
    }

    async fn workflow(&self, tenant: &str, name: &str) -> Result<Option<Workflow>> {
        self.with(|state| state.workflow(tenant, name))
    }

    async fn workflow_by_uid(&self, uid: Uuid) -> Result<Option<Workflow>> {
        self.with(|state| state.workflow_by_uid(uid))
    }

    async fn workflows(&self, filter: WorkflowFilter) -> Result<Page<Workflow>> {
        self.with(|state| state.list_workflows(&filter))
    }

    async fn definition(&self, workflow: Uuid, version: u32) -> Result<Option<Definition>> {
        self.with(|state| state.definition(workflow, version))
    }

    async fn plan(&self, workflow: Uuid, version: u32) -> Result<Option<String>> {
        self.with(|state| state.plan(workflow, version))
    }

    async fn add_plan(&self, workflow: Uuid, version: u32, plan: &str, _at: Timestamp) -> Result<Option<String>> {
        self.with(|state| state.add_plan(workflow, version, plan))
    }

    async fn versions(&self, workflow: Uuid, before: Option<u32>, limit: u32) -> Result<Page<VersionRow>> {
        self.with(|state| state.versions(workflow, before, limit))
    }
}

/// A workflow with its draft, versions and plans. A soft-deleted one is kept for its versions only.
pub(super) struct Entry {
    pub(super) row: Workflow,
    draft: Option<Draft>,
    versions: Vec<Definition>,
    /// By version.
    plans: BTreeMap<u32, String>,
}

impl State {
    /// A workflow that was not soft-deleted.
    pub(super) fn live(&self, uid: Uuid) -> Option<&Entry> {
        self.workflows.get(&uid).filter(|entry| entry.row.deleted_at.is_none())
    }

    fn live_mut(&mut self, uid: Uuid) -> Option<&mut Entry> {
        let entry = self.workflows.get_mut(&uid);
        entry.filter(|entry| entry.row.deleted_at.is_none())
    }

    pub(super) fn save_draft(&mut self, draft: Draft, rule: DraftRule, guard: Option<&DraftGuard>) -> Saved {
        let existing = match rule {
            DraftRule::NewOrDraft { .. } => self.own(&draft.tenant, &draft.id),
            DraftRule::Existing { uid } => self.live(uid).map(|entry| entry.row.clone()),
        };
        let created = existing.is_none();
        let mut row = match (existing, rule) {
            (Some(row), DraftRule::NewOrDraft { .. }) if row.status != Lifecycle::Draft => {
                return Saved::Refused(row.status);
            }
            (Some(row), _) => row,
            (None, DraftRule::NewOrDraft { most, .. }) if !self.has_room(&draft.tenant, most) => return Saved::Full,
            (None, DraftRule::NewOrDraft { uid, .. }) => Workflow::new(&draft, uid),
            (None, DraftRule::Existing { .. }) => return Saved::NotFound,
        };
        if let Some(guard) = guard {
            let there = self.draft(row.uid).map(|draft| draft.checksum);
            if !guard.holds(there.as_deref()) {
                return Saved::Changed(there);
            }
        }
        row.has_draft(&draft);
        self.put(row).draft = Some(draft);
        Saved::Saved { created }
    }

    /// Whether a tenant may have one more workflow.
    fn has_room(&self, tenant: &str, most: Option<u32>) -> bool {
        let is_own = |entry: &&Entry| entry.row.tenant == tenant && entry.row.deleted_at.is_none();
        most.is_none_or(|most| self.workflows.values().filter(is_own).count() < most as usize)
    }

    /// Writes the row of a workflow.
    fn put(&mut self, row: Workflow) -> &mut Entry {
        self.names.insert(name_of(&row), row.uid);
        let entry = self.workflows.entry(row.uid).or_insert_with(|| Entry {
            row: row.clone(),
            draft: None,
            versions: Vec::new(),
            plans: BTreeMap::new(),
        });
        entry.row = row;
        entry
    }

    pub(super) fn draft(&self, uid: Uuid) -> Option<Draft> {
        self.live(uid)?.draft.clone()
    }

    pub(super) fn publish(
        &mut self,
        uid: Uuid,
        checksum: &str,
        plan: &str,
        mode: PublishMode,
        at: Timestamp,
    ) -> Published {
        let Some(entry) = self.live(uid) else {
            return Published::NotFound;
        };
        if !mode.is_for(entry.row.status) {
            return Published::Refused(entry.row.status);
        }
        match &entry.draft {
            Some(draft) if draft.checksum != checksum => return Published::Changed,
            None if entry.newest(checksum).is_none() => return Published::NoDraft,
            _ => {}
        }
        let (row, draft) = (entry.row.clone(), entry.draft.clone());
        let before = row.current_version;
        let publication = self.published(row, draft, checksum, mode, at);
        self.add_plan(uid, publication.version, plan);
        if mode.activates() {
            self.activated(&publication.workflow, before, plan, at);
        }
        Published::Version(publication)
    }

    pub(super) fn release(&mut self, release: Release) -> Released {
        let Release {
            draft,
            rule,
            enabled,
            plan,
        } = release;
        let existing = match rule {
            ReleaseRule::New { .. } => self.own(&draft.tenant, &draft.id),
            ReleaseRule::Existing { uid, .. } => self.live(uid).map(|entry| entry.row.clone()),
        };
        let row = match (existing, rule) {
            (Some(row), ReleaseRule::New { .. }) => return Released::Exists(row.status),
            (Some(row), ReleaseRule::Existing { .. }) if row.status == Lifecycle::Archived => {
                return Released::Refused(row.status);
            }
            (Some(row), ReleaseRule::Existing { after: Some(after), .. }) if row.latest_version != Some(after) => {
                return Released::Changed;
            }
            (Some(row), ReleaseRule::Existing { .. }) => row,
            (None, ReleaseRule::New { most, .. }) if !self.has_room(&draft.tenant, most) => return Released::Full,
            (None, ReleaseRule::New { uid, .. }) => Workflow::new(&draft, uid),
            (None, ReleaseRule::Existing { .. }) => return Released::NotFound,
        };
        let mode = PublishMode::Publish(Activation::Activate { enabled });
        let (checksum, at) = (draft.checksum.clone(), draft.at);
        let before = row.current_version;
        let publication = self.published(row, Some(draft), &checksum, mode, at);
        self.add_plan(publication.workflow.uid, publication.version, &plan);
        self.activated(&publication.workflow, before, &plan, at);
        Released::Version(publication)
    }

    /// Makes triggers and limits those of this plan, which is current now. `before`: the version that was current.
    fn activated(&mut self, workflow: &Workflow, before: Option<u32>, plan: &str, at: Timestamp) {
        let before = before.and_then(|version| self.plan(workflow.uid, version));
        self.reconcile_triggers(workflow, &before.unwrap_or_default(), plan, at);
        self.set_limit(workflow.uid, workflow.current_version.unwrap_or(0), plan);
    }

    /// Makes the document the newest version, unless the newest version is the same, and updates the workflow.
    fn published(
        &mut self,
        mut row: Workflow,
        draft: Option<Draft>,
        checksum: &str,
        mode: PublishMode,
        at: Timestamp,
    ) -> Publication {
        let mark = self.version_marks.get(&name_of(&row)).copied();
        let next = row.latest_version.or(mark).unwrap_or(0) + 1;
        let entry = self.put(row.clone());
        let newest = entry.newest(checksum);
        mode.apply(&mut row, draft.as_ref(), newest.unwrap_or(next), at);
        if mode != PublishMode::Snapshot {
            entry.draft = None;
        }
        if let Some(draft) = draft.filter(|_| newest.is_none()) {
            entry.versions.push(Definition {
                workflow_id: row.id.clone(),
                version: next,
                dialect: draft.dialect,
                source: draft.source,
                checksum: draft.checksum,
                created_at: at,
            });
        }
        entry.row = row.clone();
        Publication {
            workflow: row,
            version: newest.unwrap_or(next),
            created: newest.is_none(),
        }
    }

    pub(super) fn delete_workflow(&mut self, uid: Uuid) -> Deleted {
        let Some(row) = self.live(uid).map(|entry| entry.row.clone()) else {
            return Deleted::NotFound;
        };
        if row.status == Lifecycle::Active {
            return Deleted::Refused(row.status);
        }
        if self.by_workflow.get(&uid).is_some_and(|runs| !runs.is_empty()) {
            return Deleted::HasRuns(row.status);
        }
        self.free_name(&row);
        self.triggers.remove_of(uid);
        self.workflows.remove(&uid);
        Deleted::Deleted
    }

    pub(super) fn soft_delete_workflow(&mut self, uid: Uuid, at: Timestamp) -> bool {
        let Some(entry) = self.live_mut(uid) else {
            return false;
        };
        (entry.row.deleted_at, entry.row.updated_at, entry.draft) = (Some(at), at, None);
        let row = entry.row.clone();
        self.free_name(&row);
        self.triggers.remove_of(uid);
        true
    }

    /// Frees the name. A later workflow of this name continues its version numbers.
    fn free_name(&mut self, row: &Workflow) {
        self.names.remove(&name_of(row));
        self.version_marks
            .extend(row.latest_version.map(|latest| (name_of(row), latest)));
    }

    pub(super) fn versions(&self, uid: Uuid, before: Option<u32>, limit: u32) -> Page<VersionRow> {
        let versions = self
            .workflows
            .get(&uid)
            .into_iter()
            .flat_map(|entry| entry.versions.iter().rev());
        let rows = versions
            .filter(|definition| before.is_none_or(|before| definition.version < before))
            .map(|definition| VersionRow {
                version: definition.version,
                dialect: definition.dialect.clone(),
                checksum: definition.checksum.clone(),
                created_at: definition.created_at,
            });
        Page::cut(rows.take(limit as usize + 1).collect(), limit)
    }

    pub(super) fn set_enablement(&mut self, uid: Uuid, change: &Enablement, at: Timestamp) -> Option<(Workflow, bool)> {
        let row = &mut self.live_mut(uid)?.row;
        let (before, version_before) = (row.status, row.current_version);
        let applies = change.apply(row, at);
        let row = row.clone();
        if applies {
            if let Some(shown) = &change.version {
                let plan = self.plan(uid, shown.version).unwrap_or_default();
                self.activated(&row, version_before, &plan, at);
            }
            self.triggers.follow(uid, before, row.status, at);
        }
        Some((row, applies))
    }

    pub(super) fn workflow(&self, tenant: &str, name: &str) -> Option<Workflow> {
        self.own(tenant, name).or_else(|| self.own("", name))
    }

    /// The workflow of exactly this tenant.
    fn own(&self, tenant: &str, name: &str) -> Option<Workflow> {
        self.workflow_by_uid(*self.names.get(&(name.to_owned(), tenant.to_owned()))?)
    }

    /// Whether a tenant sees this workflow in a list.
    fn sees(&self, tenant: &str, row: &Workflow) -> bool {
        row.tenant == tenant || (row.tenant.is_empty() && self.own(tenant, &row.id).is_none())
    }

    pub(super) fn workflow_by_uid(&self, uid: Uuid) -> Option<Workflow> {
        self.workflows.get(&uid).map(|entry| entry.row.clone())
    }

    pub(super) fn list_workflows(&self, filter: &WorkflowFilter) -> Page<Workflow> {
        let after = filter.after.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let rows = self
            .names
            .range((after, Bound::Unbounded))
            .filter_map(|(_, uid)| self.workflows.get(uid))
            .map(|entry| &entry.row);
        let rows = rows.filter(|row| filter.tenant.as_ref().is_none_or(|tenant| self.sees(tenant, row)));
        let fitting = rows.filter(|row| filter.fits(row)).take(filter.limit as usize + 1);
        Page::cut(fitting.cloned().collect(), filter.limit)
    }

    pub(super) fn plan(&self, uid: Uuid, version: u32) -> Option<String> {
        self.workflows.get(&uid)?.plans.get(&version).cloned()
    }

    /// Stores the plan of a version that has none, and returns the plan that it has now.
    pub(super) fn add_plan(&mut self, uid: Uuid, version: u32, plan: &str) -> Option<String> {
        let entry = self.workflows.get_mut(&uid)?;
        entry.versions.iter().find(|definition| definition.version == version)?;
        Some(entry.plans.entry(version).or_insert_with(|| plan.to_owned()).clone())
    }

    pub(super) fn definition(&self, uid: Uuid, version: u32) -> Option<Definition> {
        self.workflows
            .get(&uid)?
            .versions
            .iter()
            .find(|definition| definition.version == version)
            .cloned()
    }
}

/// The key of a workflow among the names.
fn name_of(row: &Workflow) -> (String, String) {
    (row.id.clone(), row.tenant.clone())
}

impl Entry {
    /// The plans of all versions.
    pub(super) fn plans(&self) -> impl Iterator<Item = &String> {
        self.plans.values()
    }

    #[cfg(any(test, feature = "conformance"))]
    pub(super) fn set_plans(&mut self, plan: Option<&str>) {
        match plan {
            Some(plan) => self.plans.values_mut().for_each(|text| plan.clone_into(text)),
            None => self.plans.clear(),
        }
    }

    /// The newest version, if it has this checksum.
    fn newest(&self, checksum: &str) -> Option<u32> {
        let newest = self.versions.last().filter(|newest| newest.checksum == checksum)?;
        self.row.latest_version.filter(|latest| *latest == newest.version)
    }
}
