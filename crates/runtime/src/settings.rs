//! The settings of an engine. The defaults are the spec's (§5.1, §6.1, §8.4, §10).

use crate::{
    mask::Mask, metrics::MetricsSettings, rate::Rate, sandbox::SandboxSettings, secrets::Secrets, tiers::Tiers,
    trace::Tracer, triggers::TriggerSettings,
};
use fermata_dialects::Settings as DialectSettings;
use fermata_expr::Limits;
use fermata_store::retention::Retention;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{fmt, sync::Arc, time::Duration};

/// The role of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It accepts requests and works on runs.
    #[default]
    All,
    /// It accepts requests; other processes work on the runs.
    Api,
    /// It works on runs that other processes accepted.
    Runner,
}

impl Role {
    /// Whether it works on runs.
    pub fn works(self) -> bool {
        self != Role::Api
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::All => "all",
            Role::Api => "api",
            Role::Runner => "runner",
        })
    }
}

/// The settings of an engine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Actions that execute at the same time in this process.
    pub max_parallel_actions: usize,
    /// Runs that this process holds at the same time. Further runs wait in the store.
    pub max_active_runs: usize,
    /// A run with nothing to do for longer than this leaves memory.
    pub park_after: Duration,
    /// How often the store is polled without a hint.
    pub poll_interval: Duration,
    /// The role of this process.
    pub role: Role,
    /// A runner without a heartbeat for this long is dead.
    pub lease_ttl: Duration,
    /// Whether heartbeats have their own thread, so that busy workers do not delay them. Must be false under simulated time.
    pub heartbeat_thread: bool,
    /// A run that was claimed more often than this in a row without a commit is dead-lettered.
    pub max_poison_retries: u32,
    /// How long a run that cannot be advanced is quarantined.
    pub poison_delay: Duration,
    /// The name of the dead-letter queue in the log; `None` if dead letters are not kept.
    pub dead_letters: Option<String>,
    /// How long running actions may take to finish when the process stops.
    pub shutdown_grace: Duration,
    /// How long running actions may take to finish when another node's failure stops their run.
    pub stop_grace: Duration,
    /// Limits of conditions.
    pub conditions: Limits,
    /// The sandbox processes, which evaluate conditions beyond the native subset.
    pub sandbox: SandboxSettings,
    /// How documents compile.
    pub dialects: DialectSettings,
    /// Seed of the jitter in retry delays; random if not given.
    pub seed: Option<u64>,
    /// What expressions see as `vars`.
    pub vars: Map<String, Value>,
    /// Which parameters are masked when they are stored, and which outputs when they are shown.
    pub mask: Mask,
    /// What templates can insert as `secrets`.
    pub secrets: Arc<Secrets>,
    /// The limits of tenants.
    pub tiers: Arc<Tiers>,
    /// Whether `concurrency`, `rate`, `debounce` and `unique` of documents have no effect.
    pub ignore_flow_control: bool,
    /// How often this process starts a workflow for a tenant; `None` if that is not limited.
    pub execution_rate: Option<Rate>,
    /// Whether drafts may be executed.
    pub allow_draft_execution: bool,
    /// Whether a run needs a principal: the caller's, or one that the request names.
    pub require_principal: bool,
    /// Memory for the payloads of runs that this process holds. Beyond it, runs are stored without being held, nothing is
    /// claimed, and outputs are read from the store each time they are needed.
    pub payload_bytes: u64,
    /// Memory for responses of services until they are recorded. While it is used up, responses are not read.
    pub response_bytes: u64,
    /// How long finished runs and dead letters are kept.
    pub retention: Retention,
    /// The time between two searches for runs that are kept no longer.
    pub retention_interval: Duration,
    /// How deeply child runs may nest; a run without a parent has depth 0.
    pub max_nesting_depth: u32,
    /// The timeout of an awaited child run whose workflow has the default timeout.
    pub default_child_timeout: Duration,
    /// The URL under which services reach this server: callbacks are sent to `/wh/{token}` below it.
    pub public_url: String,
    /// Where spans go; `None` if there are no traces.
    pub tracer: Option<Tracer>,
    /// What is counted for `/metrics`.
    pub metrics: MetricsSettings,
    /// Webhooks, schedules and events.
    pub triggers: TriggerSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            max_parallel_actions: 100,
            max_active_runs: 10_000,
            park_after: Duration::from_secs(5),
            poll_interval: Duration::from_millis(500),
            role: Role::default(),
            lease_ttl: Duration::from_secs(15),
            heartbeat_thread: true,
            max_poison_retries: 3,
            poison_delay: Duration::from_secs(300),
            dead_letters: Some("workflow-dlq".to_owned()),
            shutdown_grace: Duration::from_secs(30),
            stop_grace: Duration::from_secs(5),
            conditions: Limits::default(),
            sandbox: SandboxSettings::default(),
            dialects: DialectSettings::default(),
            seed: None,
            vars: Map::new(),
            mask: Mask::default(),
            secrets: Arc::default(),
            tiers: Arc::default(),
            ignore_flow_control: false,
            execution_rate: None,
            allow_draft_execution: false,
            require_principal: false,
            payload_bytes: 256 << 20,
            response_bytes: 128 << 20,
            retention: Retention::default(),
            retention_interval: Duration::from_secs(600),
            max_nesting_depth: 5,
            default_child_timeout: Duration::from_secs(3600),
            public_url: "http://127.0.0.1:7070".to_owned(),
            tracer: None,
            metrics: MetricsSettings::default(),
            triggers: TriggerSettings::default(),
        }
    }
}
