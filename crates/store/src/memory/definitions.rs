//! Workflows, drafts and versions in memory. The rules are those of the SQLite store.

use super::State;
use crate::{
    definitions::{
        Activation, Definition, Deleted, Draft, DraftGuard, DraftRule, Enablement, Lifecycle, Publication, PublishMode,
        Published, Release, ReleaseRule, Released, Saved, VersionRow, Workflow, WorkflowFilter,
    },
    reads::Page,
};
use fermata_core::Timestamp;
use std::ops::Bound;
use uuid::Uuid;

/// A workflow with all that belongs to it.
pub(super) struct Entry {
    pub(super) row: Workflow,
    /// Whether it was soft-deleted: the entry is there only for its versions.
    deleted: bool,
    draft: Option<Draft>,
    versions: Vec<Definition>,
}

impl State {
    /// A workflow that was not soft-deleted.
    pub(super) fn live(&self, id: &str) -> Option<&Entry> {
        self.workflows.get(id).filter(|entry| !entry.deleted)
    }

    fn live_mut(&mut self, id: &str) -> Option<&mut Entry> {
        self.workflows.get_mut(id).filter(|entry| !entry.deleted)
    }

    pub(super) fn save_draft(&mut self, draft: Draft, rule: DraftRule, guard: Option<&DraftGuard>) -> Saved {
        let existing = self.live(&draft.id);
        let created = existing.is_none();
        let mut row = match (existing.map(|entry| entry.row.clone()), rule) {
            (Some(row), DraftRule::NewOrDraft { .. }) if row.status != Lifecycle::Draft => {
                return Saved::Refused(row.status);
            }
            (Some(row), _) => row,
            (None, DraftRule::NewOrDraft { uid }) => Workflow::new(&draft, uid),
            (None, DraftRule::Existing) => return Saved::NotFound,
        };
        if let Some(guard) = guard {
            let there = self.draft(&draft.id).map(|draft| draft.checksum);
            if !guard.holds(there.as_deref()) {
                return Saved::Changed(there);
            }
        }
        row.has_draft(&draft);
        self.put(row).draft = Some(draft);
        Saved::Saved { created }
    }

    /// Writes a row, that of a workflow which was soft-deleted included.
    fn put(&mut self, row: Workflow) -> &mut Entry {
        let entry = self.workflows.entry(row.id.clone()).or_insert_with(|| Entry {
            row: row.clone(),
            deleted: false,
            draft: None,
            versions: Vec::new(),
        });
        (entry.row, entry.deleted) = (row, false);
        entry
    }

    pub(super) fn draft(&self, id: &str) -> Option<Draft> {
        self.live(id)?.draft.clone()
    }

    pub(super) fn publish(&mut self, id: &str, checksum: &str, mode: PublishMode, at: Timestamp) -> Published {
        let Some(entry) = self.live(id) else {
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
        Published::Version(self.published(row, draft, checksum, mode, at))
    }

    pub(super) fn release(&mut self, release: Release) -> Released {
        let Release { draft, rule, enabled } = release;
        let existing = self.live(&draft.id).map(|entry| entry.row.clone());
        let row = match (existing, rule) {
            (Some(row), ReleaseRule::New { .. }) => return Released::Exists(row.status),
            (Some(row), ReleaseRule::Existing) if row.status == Lifecycle::Archived => {
                return Released::Refused(row.status);
            }
            (Some(row), ReleaseRule::Existing) => row,
            (None, ReleaseRule::New { uid }) => Workflow::new(&draft, uid),
            (None, ReleaseRule::Existing) => return Released::NotFound,
        };
        let mode = PublishMode::Publish(Activation::Activate { enabled });
        let (checksum, at) = (draft.checksum.clone(), draft.at);
        Released::Version(self.published(row, Some(draft), &checksum, mode, at))
    }

    /// Makes the document a version, unless the newest is the same, and writes what follows for the workflow.
    fn published(
        &mut self,
        mut row: Workflow,
        draft: Option<Draft>,
        checksum: &str,
        mode: PublishMode,
        at: Timestamp,
    ) -> Publication {
        let mark = self.version_marks.get(&row.id).copied();
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

    pub(super) fn delete_workflow(&mut self, id: &str) -> Deleted {
        let Some(row) = self.live(id).map(|entry| entry.row.clone()) else {
            return Deleted::NotFound;
        };
        if row.status == Lifecycle::Active {
            return Deleted::Refused(row.status);
        }
        let has_runs = self.by_workflow.get(id).is_some_and(|runs| !runs.is_empty());
        match (has_runs, row.latest_version) {
            (true, Some(_)) => return Deleted::HasRuns(row.status),
            // They are of one that was soft-deleted before, and need its versions.
            (true, None) => {
                self.soft_delete_workflow(id);
            }
            (false, latest) => {
                self.version_marks.extend(latest.map(|latest| (id.to_owned(), latest)));
                self.workflows.remove(id);
            }
        }
        Deleted::Deleted
    }

    pub(super) fn soft_delete_workflow(&mut self, id: &str) -> bool {
        let Some(entry) = self.live_mut(id) else {
            return false;
        };
        (entry.deleted, entry.draft) = (true, None);
        let latest = entry.row.latest_version;
        self.version_marks.extend(latest.map(|latest| (id.to_owned(), latest)));
        true
    }

    pub(super) fn versions(&self, id: &str, before: Option<u32>, limit: u32) -> Page<VersionRow> {
        let versions = self
            .workflows
            .get(id)
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

    pub(super) fn set_enablement(&mut self, id: &str, change: &Enablement, at: Timestamp) -> Option<(Workflow, bool)> {
        let row = &mut self.live_mut(id)?.row;
        if !change.from.contains(&row.status) {
            return Some((row.clone(), false));
        }
        row.status = change.status.unwrap_or(row.status);
        row.enabled = change.enabled;
        row.updated_at = at;
        Some((row.clone(), true))
    }

    pub(super) fn workflow(&self, id: &str) -> Option<Workflow> {
        self.live(id).map(|entry| entry.row.clone())
    }

    pub(super) fn workflow_by_uid(&self, uid: Uuid) -> Option<Workflow> {
        let mut entries = self.workflows.values().filter(|entry| !entry.deleted);
        entries
            .find(|entry| entry.row.uid == uid)
            .map(|entry| entry.row.clone())
    }

    pub(super) fn list_workflows(&self, filter: &WorkflowFilter) -> Page<Workflow> {
        let after = filter.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let rows = self
            .workflows
            .range::<str, _>((after, Bound::Unbounded))
            .filter(|(_, entry)| !entry.deleted)
            .map(|(_, entry)| &entry.row);
        let fitting = rows.filter(|row| filter.fits(row)).take(filter.limit as usize + 1);
        Page::cut(fitting.cloned().collect(), filter.limit)
    }

    pub(super) fn definition(&self, id: &str, version: u32) -> Option<Definition> {
        self.workflows
            .get(id)?
            .versions
            .iter()
            .find(|definition| definition.version == version)
            .cloned()
    }
}

impl Entry {
    /// The newest version, if it has this checksum.
    fn newest(&self, checksum: &str) -> Option<u32> {
        let newest = self.versions.last().filter(|newest| newest.checksum == checksum)?;
        self.row.latest_version.filter(|latest| *latest == newest.version)
    }
}
