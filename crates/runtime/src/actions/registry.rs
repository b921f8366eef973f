//! The catalog: the list of all actions of this program.

use super::{
    Action, ActionInfo, Approval, Callback, CloudEvent, Delay, Echo, Emit, Fail, HttpRequest, HttpSettings, HttpTask,
    SometimesFails, Subworkflow, Typed, TypedAction,
};
use fermata_dialects::{Catalog, CatalogEntry};
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc};

/// A group of actions.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct Connector {
    pub id: String,
    pub display_name: String,
    pub description: String,
}

/// The actions by name.
#[derive(Clone, Default)]
pub struct Registry {
    actions: BTreeMap<String, Arc<dyn Action>>,
}

impl Registry {
    /// No actions at all.
    pub fn empty() -> Self {
        Registry::default()
    }

    /// The built-in actions.
    pub fn builtin(http: &HttpSettings) -> Result<Self, rustls::Error> {
        let requests = Arc::new(HttpRequest::new(http)?);
        Ok(Registry::empty()
            .with(Echo)
            .with(Delay)
            .with(Fail)
            .with(SometimesFails)
            .with(Approval)
            .with(Emit)
            .with(Subworkflow)
            .with(Callback::new(requests.clone(), http.signing_key.clone()))
            .with(CloudEvent::new(requests.clone(), http.signing_key.clone()))
            .with(HttpTask::new(requests.clone(), http.signing_key.clone()))
            .with(requests))
    }

    /// Adds an action; a later one replaces an earlier one of the same name.
    pub fn with(self, action: impl TypedAction) -> Self {
        self.with_action(Arc::new(Typed::new(action)))
    }

    /// Adds an action with untyped parameters.
    pub fn with_action(mut self, action: Arc<dyn Action>) -> Self {
        self.actions.insert(action.info().id.clone(), action);
        self
    }

    /// The same names with other actions.
    #[must_use]
    pub fn map(self, other: impl Fn(Arc<dyn Action>) -> Arc<dyn Action>) -> Self {
        let actions = self.actions.into_iter().map(|(id, action)| (id, other(action)));
        Registry {
            actions: actions.collect(),
        }
    }

    /// The action called `id`.
    pub fn get(&self, id: &str) -> Option<&Arc<dyn Action>> {
        self.actions.get(id)
    }

    /// The catalog entries, sorted by name.
    pub fn infos(&self) -> impl Iterator<Item = &ActionInfo> {
        self.actions.values().map(|action| action.info())
    }
}

impl Catalog for Registry {
    fn find(&self, action: &str) -> Option<CatalogEntry> {
        let action = self.get(action)?;
        let info = action.info();
        Some(CatalogEntry {
            enabled: info.is_enabled,
            deprecation: info.deprecation_notice.clone(),
            parameter_schema: Some(info.parameter_schema.clone()),
            takes_secrets: action.takes_secrets(),
        })
    }

    fn names(&self) -> Vec<String> {
        self.actions.keys().cloned().collect()
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.actions.keys()).finish()
    }
}
