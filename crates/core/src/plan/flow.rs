//! Flow control of a document: how many runs at once, how often, which starts are merged, and which keys have one run.
//!
//! Keys are templates over the trigger. They are rendered when a run starts; the store counts by the rendered value.

use serde::{Deserialize, Serialize};

/// The flow control of a workflow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowControl {
    /// How many runs are active at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Concurrency>,
    /// How many runs begin within a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateLimit>,
    /// Starts that follow each other are one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debounce: Option<DebounceRule>,
    /// While a run has not ended, starts with its key are answered with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<UniqueRule>,
}

/// How many runs of a key are active at once. Waiting time counts: a run is active from its first step to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Concurrency {
    /// The most runs; at least 1.
    pub limit: u32,
    /// The template of the key. Without it all runs of the workflow share one key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whether a start beyond the limit is refused. It waits otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refuse: bool,
}

/// How many runs of a key begin in a window of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RateLimit {
    /// The most runs; at least 1.
    pub limit: u32,
    /// The length of a window.
    pub period_ms: u64,
    /// The template of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A run begins when no further start with its key came for a time. It has the payload of the last start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DebounceRule {
    /// The time without a start.
    pub quiet_ms: u64,
    /// The longest time from the first start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<u64>,
    /// The template of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A key of which one run exists at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UniqueRule {
    /// The template of the key.
    pub key: String,
}

impl FlowControl {
    /// Every key with the name of its rule.
    pub fn keys(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let concurrency = self.concurrency.iter().filter_map(|rule| rule.key.as_deref());
        let rate = self.rate.iter().filter_map(|rule| rule.key.as_deref());
        let debounce = self.debounce.iter().filter_map(|rule| rule.key.as_deref());
        let unique = self.unique.iter().map(|rule| rule.key.as_str());
        let named = |name: &'static str| move |key| (name, key);
        (concurrency.map(named("concurrency")))
            .chain(rate.map(named("rate")))
            .chain(debounce.map(named("debounce")))
            .chain(unique.map(named("unique")))
    }
}
