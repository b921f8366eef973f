//! What a run waits for before its first step (docs/flow-control.md).

use crate::time::Iso;
use fermata_core::Status;
use fermata_store::{flow::FlowStep, reads::RunRecord};
use schemars::JsonSchema;
use serde::Serialize;

/// What a run that has not begun waits for.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaitingForView<'a> {
    /// `concurrency`: a place of a key; `rate`: its window; `debounce`: a time without a further start; `paused`: the resume of its
    /// workflow.
    kind: &'static str,
    /// The rendered key; absent if the document has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    /// Whose limit it is: `workflow` or `tenant`.
    scope: &'static str,
    /// How many runs are active at once, or begin in a window.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    /// How many runs are before it. Only of a single run; counted up to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ahead: Option<u32>,
    /// When it begins, if it waits for a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Iso>,
}

impl<'a> WaitingForView<'a> {
    /// The same as a sentence.
    pub fn sentence(&self) -> String {
        let what = match self.kind {
            "debounce" => "Waits for a time without a further start".to_owned(),
            "rate" => "Waits for its rate limit".to_owned(),
            _ => format!("Waits for a place of the {}", self.scope),
        };
        let key = self.key.map(|key| format!(", key `{key}`")).unwrap_or_default();
        let limit = self.limit.map(|limit| format!(", at most {limit}")).unwrap_or_default();
        let ahead = self
            .ahead
            .map(|ahead| format!(", {ahead} before it"))
            .unwrap_or_default();
        let until = self.until.map(|until| format!(", until {until}")).unwrap_or_default();
        format!("{what}{key}{limit}{ahead}{until}.")
    }

    /// `None` if the run has begun or waits for nothing.
    pub fn of(run: &'a RunRecord) -> Option<WaitingForView<'a>> {
        let stored = run.flow.as_deref().filter(|_| run.status == Status::Pending)?;
        let flow = &stored.flow;
        if stored.is_paused() {
            return Some(WaitingForView {
                kind: "paused",
                key: None,
                scope: "workflow",
                limit: None,
                ahead: None,
                until: None,
            });
        }
        let (key, limit) = match stored.step {
            FlowStep::Debounce => (&flow.debounce.as_ref()?.key, None),
            FlowStep::Rate => (&flow.rate.as_ref()?.key, flow.rate.as_ref().map(|rate| rate.limit)),
            FlowStep::Places => {
                let place = stored.awaited()?;
                (&place.key, Some(place.limit))
            }
        };
        let of_tenant = stored.awaited().is_some_and(|place| place.tenant);
        Some(WaitingForView {
            kind: stored.step.as_str(),
            key: Some(key.value.as_str()).filter(|value| !value.is_empty()),
            scope: if of_tenant { "tenant" } else { "workflow" },
            limit,
            ahead: None,
            until: run.wake_at.filter(|_| stored.waiting.is_none()).map(Iso),
        })
    }
}
