//! The configuration: every key with its type and default, and what it sets.
//!
//! [`load`] fills it from the defaults, a TOML file, the environment and the command line; each overrides the ones before
//! it. The sections are the only list of keys: a key that is not a field there is refused.

mod age;
mod auth;
mod base_path;
mod database;
#[cfg(test)]
mod docs;
mod host;
mod load;
mod number;
mod otlp;
mod public_url;
mod refused;
mod secret;
mod sections;

use crate::telemetry::Traces;
use fermata_dialects::Settings as DialectSettings;
use fermata_expr::Limits;
use fermata_runtime::{
    Mask, MetricsSettings, Role, Secrets, Settings, Tier, Tiers, TriggerSettings, actions::HttpSettings, rate::Rate,
};
use fermata_store::{
    Store, StoreError,
    postgres::PostgresSettings,
    retention::{Ages, Retention},
};
use fermata_web::WebConfig;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use age::Age;
use base_path::WebhookBasePath;
pub use database::Database;
use host::HostName;
pub use load::{Given, load};
use number::Positive;
use otlp::OtlpHeaders;
use public_url::PublicUrl;
use sections::{
    Auth, Callbacks, Catalog, Conditions, Context, DatabaseConfig, DocumentLimits, ErrorHandling, Http, Jsondagapi,
    Masking, Memory, Orchestration, Publish, RateLimits, RetentionConfig, Scalability, SecretsConfig, Server,
    Subworkflows, Telemetry, Templates, TierConfig, Triggers,
};
pub use sections::{Log, LogFormat};

/// Everything that can be configured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    pub server: Server,
    pub auth: Auth,
    pub memory: Memory,
    pub database: DatabaseConfig,
    pub log: Log,
    pub orchestration: Orchestration,
    pub templates: Templates,
    pub conditions: Conditions,
    pub context: Context,
    pub limits: DocumentLimits,
    pub publish: Publish,
    pub catalog: Catalog,
    pub http: Http,
    pub callbacks: Callbacks,
    pub rate_limits: RateLimits,
    pub secrets: SecretsConfig,
    pub masking: Masking,
    pub error_handling: ErrorHandling,
    pub retention: RetentionConfig,
    pub telemetry: Telemetry,
    pub scalability: Scalability,
    pub jsondagapi: Jsondagapi,
    pub subworkflows: Subworkflows,
    pub triggers: Triggers,
    /// The limits of tiers, by name.
    pub tiers: BTreeMap<String, TierConfig>,
    /// The tiers of tenants; `*` is all others.
    pub tenants: BTreeMap<String, String>,
    /// What expressions see as `vars`.
    pub vars: toml::Table,
    /// The secrets of the environment and of the folder. They are not configuration: nothing writes them out.
    #[serde(skip)]
    pub known_secrets: Arc<Secrets>,
}

impl Config {
    /// The settings of the engine.
    pub fn settings(&self) -> Settings {
        let orchestration = &self.orchestration;
        Settings {
            max_parallel_actions: orchestration.max_parallel_actions.get(),
            max_active_runs: orchestration.max_active_runs.get(),
            role: self.server.role,
            park_after: orchestration.park_after_ms.0,
            lease_ttl: orchestration.lease_ttl_ms.0,
            poll_interval: orchestration.poll_interval_ms.0,
            shutdown_grace: orchestration.shutdown_grace_ms.0,
            stop_grace: orchestration.stop_grace_ms.0,
            max_poison_retries: self.error_handling.max_poison_message_retries.into(),
            poison_delay: self.error_handling.poison_message_delay_ms.0,
            dead_letters: self
                .error_handling
                .use_dead_letter_queue
                .then(|| self.error_handling.dead_letter_queue_name.clone()),
            conditions: Limits {
                max_statements: self.conditions.max_statements,
                max_depth: self.conditions.max_recursion_depth,
                memory_bytes: self.conditions.memory_limit_bytes,
                timeout: self.conditions.script_timeout_ms.0,
            },
            dialects: self.dialects(),
            vars: json_table(&self.vars),
            mask: Mask::new(&self.masking.names, &self.masking.query_parameters),
            secrets: self.known_secrets.clone(),
            tiers: Arc::new(self.tiers()),
            execution_rate: self.rate_limits.executions_per_minute.map(|most| rate(most, most)),
            allow_draft_execution: self.catalog.allow_draft_execution,
            require_principal: self.auth.require_principal_for_execute,
            payload_bytes: self.memory.payload_bytes.get() as u64,
            response_bytes: self.memory.response_bytes.get() as u64,
            retention: self.retention(),
            retention_interval: self.retention.interval_ms.0,
            max_nesting_depth: u32::try_from(self.subworkflows.max_nesting_depth.get()).unwrap_or(u32::MAX),
            default_child_timeout: self.subworkflows.default_child_timeout_ms.0,
            triggers: TriggerSettings {
                enable_webhooks: self.triggers.enable_webhooks,
                enable_schedules: self.triggers.enable_schedules,
                enable_events: self.triggers.enable_events,
                webhook_base_path: self.triggers.webhook_base_path.as_str().to_owned(),
                max_chain_depth: u32::try_from(self.triggers.max_chain_depth.get()).unwrap_or(u32::MAX),
            },
            metrics: MetricsSettings {
                enabled: self.telemetry.metrics,
                max_workflow_labels: self.telemetry.max_workflow_labels.into(),
            },
            ..Settings::default()
        }
    }

    /// Where spans go, if there are traces.
    pub fn traces(&self) -> Option<Traces> {
        let telemetry = &self.telemetry;
        telemetry.otlp_endpoint.as_ref().map(|endpoint| Traces {
            url: endpoint.spans(),
            headers: telemetry
                .otlp_headers
                .as_ref()
                .map(OtlpHeaders::map)
                .unwrap_or_default(),
            service: telemetry.service_name.clone(),
            ratio: telemetry.sample_ratio.0,
        })
    }

    /// The tiers of tenants. A tier that is not configured limits nothing; [`load`] refuses it.
    fn tiers(&self) -> Tiers {
        let whole = |limit: Option<Positive>| limit.map(|limit| u32::try_from(limit.get()).unwrap_or(u32::MAX));
        let tier = |name: &String| {
            let limits = self.tiers.get(name).cloned().unwrap_or_default();
            Arc::new(Tier {
                name: name.clone(),
                workflows: whole(limits.workflows),
                tasks_per_workflow: whole(limits.tasks_per_workflow),
                executions_per_month: limits.executions_per_month.map(|limit| limit.get() as u64),
                http_steps_at_once: whole(limits.http_steps_at_once),
                concurrent_runs: whole(limits.concurrent_runs),
                schedules: limits.cron,
            })
        };
        let tenants = self.tenants.iter().filter(|(tenant, _)| *tenant != OTHERS);
        let tenants = tenants.map(|(tenant, name)| (tenant.clone(), tier(name)));
        Tiers::new(tenants, self.tenants.get(OTHERS).map(tier))
    }

    fn retention(&self) -> Retention {
        let config = &self.retention;
        let ages = Ages {
            succeeded: config.succeeded.0,
            failed: config.failed.0,
            cancelled: config.cancelled.0,
            dead_letters: config.dead_letters.0,
        };
        let workflows = config.workflows.iter().map(|(name, own)| {
            let or = |own: Option<Age>, usual| own.map_or(usual, |age| age.0);
            let ages = Ages {
                succeeded: or(own.succeeded, ages.succeeded),
                failed: or(own.failed, ages.failed),
                cancelled: or(own.cancelled, ages.cancelled),
                dead_letters: or(own.dead_letters, ages.dead_letters),
            };
            (name.clone(), ages)
        });
        Retention {
            ages,
            keys: config.keys.map(|keys| keys.0),
            workflows: workflows.collect(),
            audit: config.audit.0,
        }
    }

    /// The address this process listens on, if it listens.
    pub fn listen(&self) -> Option<&str> {
        match (&self.server.listen, self.server.role) {
            (Some(address), _) => Some(address),
            (None, Role::All | Role::Api) => Some("127.0.0.1:7070"),
            (None, Role::Runner) => None,
        }
    }

    /// The settings of the engine of a server at this address.
    pub fn settings_at(&self, address: Option<SocketAddr>) -> Settings {
        let settings = self.settings();
        let public_url = match (&self.server.public_url, address) {
            (Some(url), _) => url.as_str().to_owned(),
            (None, Some(address)) => format!("http://{}", reachable(address)),
            (None, None) => settings.public_url,
        };
        Settings { public_url, ..settings }
    }

    /// Opens the database, or creates what is missing of it.
    pub async fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        self.database.url.open(self.database.migrate, self.postgres()).await
    }

    /// The settings of the PostgreSQL store.
    pub fn postgres(&self) -> PostgresSettings {
        let postgres = &self.database.postgres;
        PostgresSettings {
            pool_size: postgres.pool_size.get(),
            committers: postgres.committers.get(),
            connect_timeout: postgres.connect_timeout_ms.0,
            patience: postgres.patience_ms.0,
            statement_timeout: postgres.statement_timeout_ms.0,
            lock_timeout: postgres.lock_timeout_ms.0,
            idle_in_transaction_timeout: postgres.idle_in_transaction_timeout_ms.0,
            hints: postgres.hints,
            migrate: self.database.migrate,
        }
    }

    /// The settings of the HTTP API.
    pub fn web(&self) -> WebConfig {
        WebConfig {
            max_body_bytes: self.server.max_body_bytes.get(),
            max_callback_bytes: self.server.max_callback_bytes.get(),
            shutdown_grace: self.orchestration.shutdown_grace_ms.0,
            allowed_hosts: self
                .server
                .allowed_hosts
                .iter()
                .map(|name| name.as_str().to_owned())
                .collect(),
            write_timeout: self.server.write_timeout_ms.0,
            max_connections: self.server.max_connections.get(),
            max_concurrent_reads: self.concurrent_reads(),
            request_bytes: self.memory.request_bytes.get() as u64,
            answer_bytes: self.memory.answer_bytes.get() as u64,
            request_rate: self
                .rate_limits
                .enabled
                .then(|| rate(self.rate_limits.requests_per_minute, self.rate_limits.burst)),
            ..WebConfig::default()
        }
    }

    /// Leaves connections for the engine's own reads.
    fn concurrent_reads(&self) -> usize {
        let pool = match &self.database.url {
            Database::Postgres(_) => self.database.postgres.pool_size.get(),
            _ => 4,
        };
        let usual = (pool * 3 / 4).max(1);
        self.server.max_concurrent_reads.map_or(usual, Positive::get)
    }

    /// The settings of `http.request`.
    pub fn http(&self) -> HttpSettings {
        HttpSettings {
            allow_private_networks: self.http.allow_private_networks,
            signing_key: self.callbacks.signing_secret.as_ref().map(|secret| secret.key()),
            ..HttpSettings::default()
        }
    }

    fn dialects(&self) -> DialectSettings {
        let (orchestration, retry) = (&self.orchestration, &self.orchestration.retry);
        let mut settings = DialectSettings::default();
        settings.document.max_bytes = self.server.max_body_bytes.get();
        settings.max_items = u32::try_from(self.subworkflows.max_items.get()).unwrap_or(u32::MAX);
        settings.require_registered_callbacks = self.callbacks.require_registered;
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
        settings
            .context
            .keys_to_include
            .clone_from(&self.context.keys_to_include);
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
        settings.strict_operators = self.jsondagapi.strict_operators;
        settings.allow_recursion = self.subworkflows.allow_recursion;
        settings.validate_parameter_templates = self.publish.validate_parameter_templates;
        settings
    }
}

/// The key of `[tenants]` for all other tenants.
const OTHERS: &str = "*";

fn rate(per_minute: Positive, burst: Positive) -> Rate {
    let whole = |number: Positive| u32::try_from(number.get()).unwrap_or(u32::MAX);
    Rate {
        per_minute: whole(per_minute),
        burst: whole(burst),
    }
}

/// The address to call a server at that listens on all addresses.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
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
        assert_eq!(Config::default().postgres(), PostgresSettings::default());
    }

    #[test]
    fn callbacks_come_to_the_public_url_or_to_where_it_listens() {
        let mut config = Config::default();
        let at = |config: &Config, address: &str| config.settings_at(Some(address.parse().unwrap())).public_url;
        assert_eq!(at(&config, "127.0.0.1:4711"), "http://127.0.0.1:4711");
        assert_eq!(at(&config, "0.0.0.0:7070"), "http://127.0.0.1:7070");
        assert_eq!(at(&config, "[::]:7070"), "http://[::1]:7070");
        assert_eq!(at(&config, "192.168.1.2:80"), "http://192.168.1.2:80");
        config.server.public_url = Some("https://flows.example.com/".to_owned().try_into().unwrap());
        assert_eq!(at(&config, "0.0.0.0:7070"), "https://flows.example.com");
    }

    #[test]
    fn a_runner_listens_only_if_told_to() {
        let mut config = Config::default();
        for (role, address) in [
            (Role::All, Some("127.0.0.1:7070")),
            (Role::Api, Some("127.0.0.1:7070")),
            (Role::Runner, None),
        ] {
            config.server.role = role;
            assert_eq!(config.listen(), address, "{role}");
        }
        config.server.listen = Some("0.0.0.0:1".to_owned());
        assert_eq!(config.listen(), Some("0.0.0.0:1"));
    }

    #[test]
    fn a_workflow_overrides_only_the_ages_that_it_names() {
        let text = "[retention]\nsucceeded = \"7d\"\nfailed = \"30d\"\nkeys = \"90d\"\n\
                    [retention.workflows.audit]\nsucceeded = \"forever\"\ncancelled = \"1d\"";
        let config: Config = toml::from_str(text).unwrap();
        let retention = config.settings().retention;
        let days = |days: u64| Some(std::time::Duration::from_secs(days * 86_400));
        assert_eq!((retention.ages.succeeded, retention.ages.failed), (days(7), days(30)));
        assert_eq!((retention.ages.cancelled, retention.keys), (None, days(90)));
        let audit = retention.workflows["audit"];
        assert_eq!(
            (audit.succeeded, audit.failed, audit.cancelled),
            (None, days(30), days(1))
        );
        assert!(Config::default().settings().retention.keeps_all());
    }

    #[test]
    fn vars_are_json() {
        let vars: toml::Table = "when = 2026-01-02\nhow = nan\nlist = [1, { a = 1.5 }]".parse().unwrap();
        let expected = serde_json::json!({ "when": "2026-01-02", "how": null, "list": [1, { "a": 1.5 }] });
        assert_eq!(Value::Object(json_table(&vars)), expected);
    }
}
