//! The configuration: every key with its type and default, and what it sets.
//!
//! [`load`] fills it from the defaults, a TOML file, the environment and the command line; each wins over the
//! ones before it. The struct is the only list of keys: what is not a field here is refused there.

mod database;
mod load;
mod number;

use crate::duration::Millis;
use fermata_core::plan::{Overflow, SnapshotMode};
use fermata_dialects::Settings as DialectSettings;
use fermata_expr::{Limits, template};
use fermata_runtime::Settings;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;

pub use database::Database;
pub use load::{Given, load};
use number::{Factor, Positive};

/// Everything that can be configured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    pub server: Server,
    pub database: DatabaseConfig,
    pub log: Log,
    pub orchestration: Orchestration,
    pub templates: Templates,
    pub conditions: Conditions,
    pub context: Context,
    pub limits: DocumentLimits,
    pub publish: Publish,
    /// What expressions see as `vars`.
    pub vars: toml::Table,
}

/// The HTTP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    pub listen: String,
    /// How others reach this server, for URLs in answers.
    pub public_url: Option<String>,
    pub max_body_bytes: Positive,
}

/// Where runs live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DatabaseConfig {
    pub url: Database,
}

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Log {
    /// A level, or directives as in `RUST_LOG`, which wins if it is set.
    pub level: String,
    pub format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    Text,
    Json,
}

/// How runs are worked on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Orchestration {
    pub max_parallel_actions: Positive,
    pub max_active_runs: Positive,
    pub default_action_timeout_ms: Millis<1>,
    pub default_workflow_timeout_ms: Millis<1>,
    pub park_after_ms: Millis,
    pub shutdown_grace_ms: Millis,
    pub retry: Retry,
}

/// Retries of nodes that do not say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Retry {
    /// After the first attempt.
    pub max_retry_attempts: u32,
    pub initial_delay_ms: Millis,
    pub backoff_factor: Factor,
    pub jitter: bool,
}

/// What templates may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Templates {
    pub render_timeout_ms: Millis<1>,
    pub null_value_replacement: String,
    pub strict_mode: bool,
    pub enable_loops: bool,
    pub enable_functions: bool,
}

/// Limits of conditions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    pub script_timeout_ms: Millis<1>,
    pub max_statements: u32,
    pub memory_limit_bytes: usize,
    pub max_recursion_depth: u32,
}

/// What is kept of a run's context. The words are the spec's, as in a document's `contextSnapshot`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Context {
    pub mode: SnapshotMode,
    pub max_context_size_bytes: u64,
    pub overflow_behavior: Overflow,
}

/// How large documents may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DocumentLimits {
    pub max_nodes_per_workflow: Positive,
}

/// What is checked at publish beyond the rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Publish {
    pub validate_parameter_templates: bool,
}

impl Default for Server {
    fn default() -> Self {
        Server {
            listen: "127.0.0.1:7070".to_owned(),
            public_url: None,
            max_body_bytes: Positive::of(DialectSettings::default().document.max_bytes),
        }
    }
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        DatabaseConfig {
            url: Database::Sqlite("fermata.db".into()),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Log {
            level: "info".to_owned(),
            format: LogFormat::Text,
        }
    }
}

impl Default for Orchestration {
    fn default() -> Self {
        let settings = Settings::default();
        Orchestration {
            max_parallel_actions: Positive::of(settings.max_parallel_actions),
            max_active_runs: Positive::of(settings.max_active_runs),
            default_action_timeout_ms: Millis(Duration::from_millis(settings.dialects.policies.timeout_ms)),
            default_workflow_timeout_ms: Millis(Duration::from_secs(3600)),
            park_after_ms: Millis(settings.park_after),
            shutdown_grace_ms: Millis(settings.shutdown_grace),
            retry: Retry::default(),
        }
    }
}

impl Default for Retry {
    fn default() -> Self {
        let retry = DialectSettings::default().policies.retry;
        Retry {
            max_retry_attempts: retry.max_attempts.saturating_sub(1),
            initial_delay_ms: Millis(Duration::from_millis(retry.base_delay_ms)),
            backoff_factor: Factor::of(retry.backoff_factor),
            jitter: retry.jitter,
        }
    }
}

impl Default for Templates {
    fn default() -> Self {
        let options = template::Options::default();
        Templates {
            render_timeout_ms: Millis(options.timeout),
            null_value_replacement: options.null_text,
            strict_mode: options.strict,
            enable_loops: options.loops,
            enable_functions: options.functions,
        }
    }
}

impl Default for Conditions {
    fn default() -> Self {
        let limits = Limits::default();
        Conditions {
            script_timeout_ms: Millis(limits.timeout),
            max_statements: limits.max_statements,
            memory_limit_bytes: limits.memory_bytes,
            max_recursion_depth: limits.max_depth,
        }
    }
}

impl Default for Context {
    fn default() -> Self {
        let context = DialectSettings::default().context;
        Context {
            mode: context.mode,
            max_context_size_bytes: context.max_context_size_bytes,
            overflow_behavior: context.overflow_behavior,
        }
    }
}

impl Default for DocumentLimits {
    fn default() -> Self {
        DocumentLimits {
            max_nodes_per_workflow: Positive::of(DialectSettings::default().max_nodes),
        }
    }
}

impl Config {
    /// What an engine has to know of it.
    pub fn settings(&self) -> Settings {
        let orchestration = &self.orchestration;
        Settings {
            max_parallel_actions: orchestration.max_parallel_actions.get(),
            max_active_runs: orchestration.max_active_runs.get(),
            park_after: orchestration.park_after_ms.0,
            shutdown_grace: orchestration.shutdown_grace_ms.0,
            conditions: Limits {
                max_statements: self.conditions.max_statements,
                max_depth: self.conditions.max_recursion_depth,
                memory_bytes: self.conditions.memory_limit_bytes,
                timeout: self.conditions.script_timeout_ms.0,
            },
            dialects: self.dialects(),
            vars: json_table(&self.vars),
            ..Settings::default()
        }
    }

    fn dialects(&self) -> DialectSettings {
        let (orchestration, retry) = (&self.orchestration, &self.orchestration.retry);
        let mut settings = DialectSettings::default();
        settings.document.max_bytes = self.server.max_body_bytes.get();
        settings.max_nodes = self.limits.max_nodes_per_workflow.get();
        settings.policies.timeout_ms = orchestration.default_action_timeout_ms.get();
        settings.policies.retry = fermata_core::Retry {
            max_attempts: retry.max_retry_attempts.saturating_add(1),
            base_delay_ms: retry.initial_delay_ms.get(),
            backoff_factor: retry.backoff_factor.get(),
            jitter: retry.jitter,
        };
        settings.workflow_timeout_ms = Some(orchestration.default_workflow_timeout_ms.get());
        settings.context.mode = self.context.mode;
        settings.context.max_context_size_bytes = self.context.max_context_size_bytes;
        settings.context.overflow_behavior = self.context.overflow_behavior;
        settings.templates.timeout = self.templates.render_timeout_ms.0;
        settings
            .templates
            .null_text
            .clone_from(&self.templates.null_value_replacement);
        settings.templates.strict = self.templates.strict_mode;
        settings.templates.loops = self.templates.enable_loops;
        settings.templates.functions = self.templates.enable_functions;
        settings.validate_parameter_templates = self.publish.validate_parameter_templates;
        settings
    }
}

fn json_table(table: &toml::Table) -> Map<String, Value> {
    table.iter().map(|(key, value)| (key.clone(), json(value))).collect()
}

/// A TOML value as expressions see it: times are text, and numbers that JSON does not have are null.
fn json(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.as_str().into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Float(number) => (*number).into(),
        toml::Value::Boolean(truth) => (*truth).into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(items) => items.iter().map(json).collect(),
        toml::Value::Table(table) => json_table(table).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_engines_own() {
        let (ours, theirs) = (Config::default().settings(), Settings::default());
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }

    #[test]
    fn vars_are_json() {
        let vars: toml::Table = "when = 2026-01-02\nhow = nan\nlist = [1, { a = 1.5 }]".parse().unwrap();
        let expected = serde_json::json!({ "when": "2026-01-02", "how": null, "list": [1, { "a": 1.5 }] });
        assert_eq!(Value::Object(json_table(&vars)), expected);
    }
}
