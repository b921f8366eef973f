//! Workflows, drafts and versions in memory. The rules are those of the SQLite store.

use super::State;
use crate::{
    definitions::{
        Definition, Deleted, Draft, DraftRule, Enablement, Lifecycle, PublishMode, Published, Saved, VersionRow,
        Workflow, WorkflowFilter,
    },
    reads::Page,
};
use fermata_core::Timestamp;
use std::ops::Bound;

/// A workflow with all that belongs to it.
pub(super) struct Entry {
    pub(super) row: Workflow,
    draft: Option<Draft>,
    versions: Vec<Definition>,
}

impl State {
    pub(super) fn save_draft(&mut self, mut draft: Draft) -> Saved {
        let existing = self.workflows.get_mut(&draft.id);
        match (draft.rule, &existing) {
            (DraftRule::NewOrDraft, Some(entry)) if entry.row.status != Lifecycle::Draft => {
                return Saved::Refused(entry.row.status);
            }
            (DraftRule::Existing, None) => return Saved::NotFound,
            _ => {}
        }
        if let Some(guard) = draft.if_match.take() {
            let there = existing
                .as_ref()
                .and_then(|entry| entry.draft.as_ref())
                .map(|draft| draft.checksum.clone());
            if !guard.holds(there.as_deref()) {
                return Saved::Changed(there);
            }
        }
        draft.rule = DraftRule::Existing;
        let created = existing.is_none();
        match existing {
            Some(entry) => {
                if entry.row.latest_version.is_none() {
                    entry.row.shows(&draft);
                }
                entry.row.updated_at = draft.at;
                entry.draft = Some(draft);
            }
            None => {
                let entry = Entry::new(draft);
                self.workflows.insert(entry.row.id.clone(), entry);
            }
        }
        Saved::Saved { created }
    }

    pub(super) fn draft(&self, id: &str) -> Option<Draft> {
        self.workflows.get(id)?.draft.clone()
    }

    pub(super) fn publish(&mut self, id: &str, checksum: &str, mode: PublishMode, at: Timestamp) -> Published {
        let Some(entry) = self.workflows.get_mut(id) else {
            return Published::NotFound;
        };
        if !mode.is_for(entry.row.status) {
            return Published::Refused(entry.row.status);
        }
        let same = entry.versions.last().is_some_and(|newest| newest.checksum == checksum);
        match &entry.draft {
            Some(draft) if draft.checksum != checksum => return Published::Changed,
            None if !same => return Published::NoDraft,
            _ => {}
        }
        let draft = match mode {
            PublishMode::Snapshot => entry.draft.clone(),
            PublishMode::Activate | PublishMode::Stage => entry.draft.take(),
        };
        if let Some(draft) = draft {
            let unpublished = entry.row.current_version.is_none();
            if mode == PublishMode::Activate || (mode == PublishMode::Stage && unpublished) {
                entry.row.shows(&draft);
            }
            if !same {
                let mark = self.version_marks.get(id).copied();
                entry.versions.push(Definition {
                    workflow_id: id.to_owned(),
                    version: entry.row.latest_version.or(mark).unwrap_or(0) + 1,
                    dialect: draft.dialect,
                    source: draft.source,
                    checksum: draft.checksum,
                    created_at: at,
                });
            }
        }
        let version = entry.versions.last().map_or(0, |newest| newest.version);
        entry.row.latest_version = Some(version);
        if mode == PublishMode::Activate {
            entry.row.current_version = Some(version);
            (entry.row.status, entry.row.enabled) = (Lifecycle::Active, true);
        }
        entry.row.updated_at = at;
        Published::Version {
            version,
            created: !same,
            status: entry.row.status,
        }
    }

    pub(super) fn delete_workflow(&mut self, id: &str) -> Deleted {
        let Some(row) = self.workflows.get(id).map(|entry| &entry.row) else {
            return Deleted::NotFound;
        };
        if row.status == Lifecycle::Active {
            return Deleted::Refused(row.status);
        }
        if self.by_workflow.get(id).is_some_and(|runs| !runs.is_empty()) {
            return Deleted::HasRuns(row.status);
        }
        if let Some(latest) = row.latest_version {
            self.version_marks.insert(id.to_owned(), latest);
        }
        self.workflows.remove(id);
        Deleted::Deleted
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
        let row = &mut self.workflows.get_mut(id)?.row;
        if !change.from.contains(&row.status) {
            return Some((row.clone(), false));
        }
        row.status = change.status.unwrap_or(row.status);
        row.enabled = change.enabled;
        row.updated_at = at;
        Some((row.clone(), true))
    }

    pub(super) fn workflow(&self, id: &str) -> Option<Workflow> {
        self.workflows.get(id).map(|entry| entry.row.clone())
    }

    pub(super) fn list_workflows(&self, filter: &WorkflowFilter) -> Page<Workflow> {
        let after = filter.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let rows = self
            .workflows
            .range::<str, _>((after, Bound::Unbounded))
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
    fn new(draft: Draft) -> Entry {
        let row = Workflow {
            id: draft.id.clone(),
            display_name: draft.display_name.clone(),
            description: draft.description.clone(),
            dialect: draft.dialect.clone(),
            current_version: None,
            latest_version: None,
            status: Lifecycle::Draft,
            enabled: true,
            created_at: draft.at,
            updated_at: draft.at,
        };
        Entry {
            row,
            draft: Some(draft),
            versions: Vec::new(),
        }
    }
}

impl Workflow {
    fn shows(&mut self, draft: &Draft) {
        self.display_name.clone_from(&draft.display_name);
        self.description.clone_from(&draft.description);
        self.dialect.clone_from(&draft.dialect);
    }
}
