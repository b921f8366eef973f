//! The sections of the configuration: every key with its type, its default and what it is for, in one place.
//!
//! `docs/configuration.md` is generated from the doc comments. A key of a feature that is not built yet names the feature
//! and accepts only its default (`refused.rs`).

use super::{
    Database, HostName, PublicUrl, WebhookBasePath,
    age::Age,
    auth::Issuer,
    number::{Factor, Positive},
    otlp::{OtlpEndpoint, OtlpHeaders, Ratio},
    refused::{NoDistributedLocks, NoDownstreamPermissions, NoRedis, Scheduler},
    secret::{SecretsFolder, SigningSecret},
};
use crate::duration::Millis;
use fermata_core::plan::{Overflow, SnapshotMode};
use fermata_dialects::Settings as DialectSettings;
use fermata_expr::{Limits, template};
use fermata_runtime::{Mask, MetricsSettings, Role, Settings};
use fermata_store::{postgres::PostgresSettings, schema::Migrate};
use fermata_web::WebConfig;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// Defines a section with its defaults, and (for `docs/configuration.md`) with the text of its doc comments.
macro_rules! section {
    ($(#[doc = $about:literal])+ $name:ident { $($(#[doc = $doc:literal])+ $key:ident: $type:ty = $default:expr,)+ }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $key: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($key: $default,)+ }
            }
        }

        #[cfg(test)]
        impl $name {
            /// The lines about the section, and about each of its keys.
            pub const DOCS: super::docs::Docs = (&[$($about),+], &[$((stringify!($key), &[$($doc),+])),+]);
        }
    };
}

section! {
    /// The HTTP server.
    Server {
        /// What this process does: `all`, or with PostgreSQL also `api` (accepts requests and executes no runs) or `runner`
        /// (executes runs, and serves only `/health/live`, `/health/ready` and `/metrics`).
        role: Role = Role::All,
        /// The address to listen on; port 0 takes a free port and prints it. If it is not set, a runner does not listen, and
        /// other roles listen on `127.0.0.1:7070`.
        listen: Option<String> = None,
        /// The public address of this server: callback URLs begin with it. If it is not set, they begin with the address that
        /// the server listens on. A runner accepts no callbacks, so it does not start without this key.
        public_url: Option<PublicUrl> = None,
        /// The largest request body, and with it the largest document.
        max_body_bytes: Positive = Positive::of(DialectSettings::default().document.max_bytes),
        /// The largest payload of a callback.
        max_callback_bytes: Positive = Positive::of(WebConfig::default().max_callback_bytes),
        /// Host names of this server, in addition to `localhost`, IP addresses and the host of `public_url`. Requests to other
        /// hosts are refused on loopback addresses, and on every address if they come from a browser.
        allowed_hosts: Vec<HostName> = Vec::new(),
        /// The most open connections, at most three quarters of the file descriptors that the process may have. Beyond it only
        /// health checks are answered.
        max_connections: Positive = Positive::of(WebConfig::default().max_connections),
        /// The most concurrent reads. Further reads wait for one second and are then refused (503). If it is not set: three
        /// quarters of `database.postgres.pool_size`, or 3 with SQLite.
        max_concurrent_reads: Option<Positive> = None,
        /// A client that reads nothing of a response for this long is disconnected.
        write_timeout_ms: Millis<1> = Millis(WebConfig::default().write_timeout),
    }
}

section! {
    /// Who may call the API (§12). [security.md](security.md) explains tokens, keys and scopes.
    Auth {
        /// Whether requests without a token are accepted; their callers may do everything. A token that is sent must be valid in
        /// any case. If it is not set, they are accepted on loopback addresses only. A server on another address does not start
        /// until this key or `issuers` is set.
        allow_loose_auth: Option<bool> = None,
        /// Whether an execution needs a principal: that of the token, or one in the body.
        require_principal_for_execute: bool = false,
        /// Whether the permissions of the principal are checked in the systems that steps call: not built, only `false` is
        /// accepted.
        validate_downstream_permissions: NoDownstreamPermissions = NoDownstreamPermissions,
        /// Identity providers whose JWTs are accepted, as `[[auth.issuers]]` tables: `issuer` (the claim `iss`), `audience` (one or
        /// several values of the claim `aud`), and one of `jwks_url` (`https://`), `jwks_file` and `secret_file` (at least 32
        /// bytes, for HS256, HS384 and HS512). Optional are `algorithms` (default: all that fit the keys), `tenant_claim`
        /// (default: `tenant_id`) and `leeway_seconds` (default: 60).
        issuers: Vec<Issuer> = Vec::new(),
    }
}

section! {
    /// Memory budgets, in bytes. Work that would exceed a budget waits or is refused (503 with `Retry-After`).
    /// [operations.md](operations.md#memory) states the total bound.
    Memory {
        /// Requests that are being received and handled: five times the size of their bodies, plus the cost of parsing. A
        /// quarter is reserved for bodies of up to 64 KiB.
        request_bytes: Positive = Positive::of(WebConfig::default().request_bytes as usize),
        /// Responses that clients have not read yet; responses of up to 64 KiB are not counted.
        answer_bytes: Positive = Positive::of(WebConfig::default().answer_bytes as usize),
        /// Triggers and outputs of runs that this process holds. Beyond it new runs wait in the database, and outputs are read
        /// from there each time they are needed.
        payload_bytes: Positive = Positive::of(Settings::default().payload_bytes as usize),
        /// Responses to `http.request` that are not recorded yet. Beyond it further responses are not read yet.
        response_bytes: Positive = Positive::of(Settings::default().response_bytes as usize),
    }
}

section! {
    /// The database.
    DatabaseConfig {
        /// `sqlite:PATH`, `postgres://user:password@host/database` for many processes, or `memory:` for data that is lost
        /// when the process ends. Of several hosts (`host1,host2`) the one that accepts writes is used
        /// (`target_session_attrs=read-write`), also after a failover; `sslmode`, `sslrootcert`, `application_name` and the
        /// like are options of the address, as in libpq.
        url: Database = Database::Sqlite("fermata.db".into()),
        /// What a server does with an outdated schema: `auto` migrates it, `manual` refuses to start until
        /// `fermata migrate up` was run.
        migrate: Migrate = Migrate::Auto,
        /// How PostgreSQL is used.
        postgres: Postgres = Postgres::default(),
    }
}

section! {
    /// How PostgreSQL is used, when `database.url` names one. Each process has its own connections: `pool_size` +
    /// `committers` + 4 of them.
    Postgres {
        /// Connections for reads and definitions. They are opened when they are needed.
        pool_size: Positive = Positive::of(PostgresSettings::default().pool_size),
        /// Connections that write runs. Each writes all waiting commits in one transaction. More connections help when the
        /// latency to the database is high.
        committers: Positive = Positive::of(PostgresSettings::default().committers),
        /// How long connecting to one host may take, unless the address sets `connect_timeout`.
        connect_timeout_ms: Millis<1> = Millis(PostgresSettings::default().connect_timeout),
        /// How long a call waits for a database that cannot be reached, for instance during a failover. It is retried with a
        /// backoff from 20 ms to 2 s.
        patience_ms: Millis = Millis(PostgresSettings::default().patience),
        /// How long one statement may take.
        statement_timeout_ms: Millis<1> = Millis(PostgresSettings::default().statement_timeout),
        /// How long a write waits for rows that other sessions have locked. Other writes do not wait. After it, nothing was
        /// written, and the write may be retried.
        lock_timeout_ms: Millis<1> = Millis(PostgresSettings::default().lock_timeout),
        /// How long the database keeps an idle transaction open.
        idle_in_transaction_timeout_ms: Millis<1> = Millis(PostgresSettings::default().idle_in_transaction_timeout),
        /// Whether processes use NOTIFY to announce run messages and due runs. Without it they find them by polling.
        hints: bool = PostgresSettings::default().hints,
    }
}

section! {
    /// Logging. Lines go to stderr.
    Log {
        /// `error`, `warn`, `info`, `debug`, `trace`, or directives as in `RUST_LOG`, which takes precedence.
        level: String = "info".to_owned(),
        /// `text` or `json`.
        format: LogFormat = LogFormat::Text,
    }
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    Text,
    Json,
}

section! {
    /// How runs are executed (§10.1).
    Orchestration {
        /// Action slots: the actions that execute at the same time in this process, plus a tenth in reserve for tenants and
        /// workflows that have none running. The specification says 10; most actions wait for a service, so ten slow calls
        /// would block all others.
        max_parallel_actions: Positive = Positive::of(Settings::default().max_parallel_actions),
        /// The most runs in memory; further runs wait in the database.
        max_active_runs: Positive = Positive::of(Settings::default().max_active_runs),
        /// How long one attempt of a step may take, unless its document sets it.
        default_action_timeout_ms: Millis<1> = millis(DialectSettings::default().policies.timeout_ms),
        /// How long a run may take from its start, sleeps and waits included, unless its document sets it. For a graph that
        /// sleeps or waits it is at least 30 days. The value is fixed when a version is published.
        default_workflow_timeout_ms: Millis<1> = millis(3_600_000),
        /// A run that has nothing to do for longer than this is parked: it leaves memory.
        park_after_ms: Millis = Millis(Settings::default().park_after),
        /// The lease of a process expires after this time without a heartbeat; other processes then claim its runs. Three
        /// heartbeats are written in that time. The value must be the same in all processes of a database.
        lease_ttl_ms: Millis<300> = Millis(Settings::default().lease_ttl),
        /// How often the database is polled for due runs and run messages.
        poll_interval_ms: Millis<10> = Millis(Settings::default().poll_interval),
        /// How long running actions may take to finish when the process stops.
        shutdown_grace_ms: Millis = Millis(Settings::default().shutdown_grace),
        /// How long running actions may take to finish when a failure elsewhere stops their run. After a cancel and at the
        /// run's deadline they are stopped at once. An attempt that is stopped is `Failed` with code `CANCELLED`.
        stop_grace_ms: Millis = Millis(Settings::default().stop_grace),
        /// Retries of steps without a retry policy.
        retry: Retry = Retry::default(),
    }
}

section! {
    /// Retries of steps without a retry policy (§10.1, `RetryPolicy`).
    Retry {
        /// Attempts after the first one.
        max_retry_attempts: u32 = DialectSettings::default().policies.retry.max_attempts.saturating_sub(1),
        /// The pause before the first retry.
        initial_delay_ms: Millis = millis(DialectSettings::default().policies.retry.base_delay_ms),
        /// The factor by which the pause grows with each retry; at least 1.
        backoff_factor: Factor = Factor::of(DialectSettings::default().policies.retry.backoff_factor),
        /// Whether the pause is drawn at random from zero to its length.
        jitter: bool = DialectSettings::default().policies.retry.jitter,
    }
}

section! {
    /// What templates may do (§5.1).
    Templates {
        /// How long rendering the parameters of one step may take.
        render_timeout_ms: Millis<1> = Millis(template::Options::default().timeout),
        /// What `null` becomes inside longer text.
        null_value_replacement: String = template::Options::default().null_text,
        /// Whether reading a missing value is an error; otherwise it is `null`.
        strict_mode: bool = template::Options::default().strict,
        /// Whether `if` and `for` blocks are allowed.
        enable_loops: bool = template::Options::default().loops,
        /// Whether functions and pipes are allowed.
        enable_functions: bool = template::Options::default().functions,
    }
}

section! {
    /// Limits of conditions (§6.1). A JavaScript condition that exceeds a limit counts as false; a decision of jsondagapi fails with
    /// `CONDITION_EVALUATION_ERROR`.
    Conditions {
        /// How long a condition may take.
        script_timeout_ms: Millis<1> = Millis(Limits::default().timeout),
        /// How many statements it may run; in the sandbox, time and memory bound it instead.
        max_statements: u32 = Limits::default().max_statements,
        /// How many bytes of values it may create; values it reads are not counted.
        memory_limit_bytes: usize = Limits::default().memory_bytes,
        /// How deeply calls may nest; in the sandbox, a small stack bounds it instead.
        max_recursion_depth: u32 = Limits::default().max_depth,
    }
}

section! {
    /// What is kept of a run's context when it ends (§8.4, §10.3); a document's `contextSnapshot` takes precedence. It does
    /// not change what templates see.
    Context {
        /// `Full` (all outputs), `SummaryOnly` (node ids, sizes and types) or `KeysOnly`.
        mode: SnapshotMode = DialectSettings::default().context.mode,
        /// The nodes whose outputs `KeysOnly` keeps.
        keys_to_include: Vec<String> = DialectSettings::default().context.keys_to_include,
        /// The most bytes that all outputs of a run together may take, as JSON.
        max_context_size_bytes: u64 = DialectSettings::default().context.max_context_size_bytes,
        /// What happens beyond that: `Fail` (the run fails), `AutoPruneOldest` or `DropOversize` (the snapshot gets smaller).
        overflow_behavior: Overflow = DialectSettings::default().context.overflow_behavior,
    }
}

section! {
    /// How large documents may be (§10.3).
    DocumentLimits {
        /// Nodes a workflow may have when it is saved or published.
        max_nodes_per_workflow: Positive = Positive::of(DialectSettings::default().max_nodes),
    }
}

section! {
    /// What is checked when a workflow is published, beyond the rules (§9.1.1).
    Publish {
        /// Whether parameters are rendered as a test, with placeholders for values that are not known yet.
        validate_parameter_templates: bool = DialectSettings::default().validate_parameter_templates,
    }
}

section! {
    /// Workflows and the actions they may use (§10.4).
    Catalog {
        /// Whether drafts may be executed.
        allow_draft_execution: bool = false,
        /// Whether the actions of this program are in the catalog from the start. Takes effect with an editable
        /// catalog; until then they always are.
        auto_register_actions_on_startup: bool = true,
        /// Whether their parameter schemas are checked at the start. Takes effect with an editable catalog.
        validate_action_schemas_on_startup: bool = true,
    }
}

section! {
    /// What `http.request` may do.
    Http {
        /// Whether it may call private, loopback and link-local addresses. The default of `fermata dev` and `fermata run` is
        /// `true`.
        allow_private_networks: bool = false,
    }
}

section! {
    /// Requests to services that answer later: callbacks, events and HTTP tasks.
    Callbacks {
        /// The secret with which these requests are signed as Standard Webhooks define it: 24 to 64 bytes in base64, with or
        /// without the prefix `whsec_`. They are not signed without it.
        signing_secret: Option<SigningSecret> = None,
        /// Whether the executor `callback` may send requests to registered callbacks only. Documents with a plain `url` are then
        /// refused when they are published, and such requests of versions that were published before fail.
        require_registered: bool = false,
    }
}

section! {
    /// Rate limits of this process (see [limits.md](limits.md)). Beyond them, requests are answered 429.
    RateLimits {
        /// Whether the requests of each token are limited.
        enabled: bool = false,
        /// The requests of a token per minute.
        requests_per_minute: Positive = Positive::of(60),
        /// The requests of a token at once.
        burst: Positive = Positive::of(120),
        /// How often each workflow may be started per minute for a tenant. Not limited without it.
        executions_per_minute: Option<Positive> = None,
    }
}

/// The limits of a tier. What is missing is not limited.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TierConfig {
    pub workflows: Option<Positive>,
    pub tasks_per_workflow: Option<Positive>,
    pub executions_per_month: Option<Positive>,
    pub http_steps_at_once: Option<Positive>,
    pub concurrent_runs: Option<Positive>,
    pub cron: Option<bool>,
}

section! {
    /// Secrets for templates (`{{ secrets.NAME }}`, see [secrets.md](secrets.md)). Environment variables that begin with
    /// `FERMATA_SECRET_` are secrets too.
    SecretsConfig {
        /// A folder with a file for each secret, whose name is the name of the secret. The secrets of a tenant's workflows are in
        /// the subfolder with the tenant's name.
        folder: Option<SecretsFolder> = None,
    }
}

section! {
    /// Secrets in stored parameters and in shown outputs are replaced by `***`. Names are compared without regard to case,
    /// `-` and `_`. Passwords in URLs are always replaced.
    Masking {
        /// Headers, members of objects and parameters in the query of a URL whose values are secrets.
        names: Vec<String> = Mask::NAMES.iter().copied().map(str::to_owned).collect(),
        /// More names, for the query of a URL only.
        query_parameters: Vec<String> = Mask::QUERY_PARAMETERS.iter().copied().map(str::to_owned).collect(),
    }
}

section! {
    /// Runs that cannot be executed (§10.2).
    ErrorHandling {
        /// Whether the request of such a run is kept as a dead letter. The run fails in any case.
        use_dead_letter_queue: bool = true,
        /// The name of the queue in the log.
        dead_letter_queue_name: String = "workflow-dlq".to_owned(),
        /// A run that was claimed more often than this in a row without a commit is dead-lettered.
        max_poison_message_retries: Positive = Positive::of(Settings::default().max_poison_retries as usize),
        /// How long a run that cannot be advanced is quarantined before it is claimed again. Its cancel and its deadline take
        /// effect meanwhile.
        poison_message_delay_ms: Millis = Millis(Settings::default().poison_delay),
    }
}

section! {
    /// How long finished runs and dead letters are kept: a duration such as `"30d"`, counted from the end of the run, or
    /// `"forever"`. Nothing is removed unless this section says so. A run in flight is never removed.
    /// [operations.md](operations.md#retention) says how it works.
    RetentionConfig {
        /// Runs that succeeded.
        succeeded: Age = Age::default(),
        /// Runs that failed.
        failed: Age = Age::default(),
        /// Runs that were cancelled.
        cancelled: Age = Age::default(),
        /// Dead letters.
        dead_letters: Age = Age::default(),
        /// Rows of the audit trail, counted from the change.
        audit: Age = Age::default(),
        /// The idempotency key (`requestId`) of a run that is removed stays in use until the run is this old: its row is kept
        /// without payloads, journal and attempts. If it is not set, the key is free when the run is removed.
        keys: Option<Millis<1>> = None,
        /// The time between two searches for runs to remove. A search that takes long is followed by a longer pause.
        interval_ms: Millis<1> = Millis(Settings::default().retention_interval),
        /// Workflows with other ages, by id: `[retention.workflows.ID]` with `succeeded`, `failed`, `cancelled` and
        /// `dead_letters`. What it does not name is as above.
        workflows: BTreeMap<String, WorkflowRetention> = BTreeMap::new(),
    }
}

/// Ages of the runs of one workflow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkflowRetention {
    pub succeeded: Option<Age>,
    pub failed: Option<Age>,
    pub cancelled: Option<Age>,
    pub dead_letters: Option<Age>,
}

section! {
    /// Metrics and traces (§14). [observability.md](observability.md) lists the metrics and the spans.
    Telemetry {
        /// Whether this process counts what it does and serves `/metrics`.
        metrics: bool = true,
        /// How many workflows have a label of their own in metrics, in the order in which a process first sees them. All others
        /// are counted together as `other`.
        max_workflow_labels: u16 = MetricsSettings::default().max_workflow_labels as u16,
        /// The address of an OpenTelemetry collector that accepts OTLP over HTTP, such as `http://127.0.0.1:4318`. Spans are sent
        /// to `/v1/traces` below it. If it is not set, there are no traces.
        otlp_endpoint: Option<OtlpEndpoint> = None,
        /// Headers for the collector, as `name=value,name=value`.
        otlp_headers: Option<OtlpHeaders> = None,
        /// The name of this service in traces.
        service_name: String = "fermata".to_owned(),
        /// The share of executions whose trace is kept, from 0 to 1. If a caller sent a `traceparent`, its flag decides instead.
        sample_ratio: Ratio = Ratio(1.0),
    }
}

section! {
    /// Several processes (§10.3). The database holds queue, locks and leases, so there is nothing to set up.
    Scalability {
        /// Locks in Redis: out of scope, only `false` is accepted.
        enable_distributed_locking: NoDistributedLocks = NoDistributedLocks,
        /// Where that Redis would be: out of scope, must not be set.
        redis_connection_string: Option<NoRedis> = None,
    }
}

section! {
    /// Documents of the jsondagapi dialect.
    Jsondagapi {
        /// Whether JSONLogic may use only the operators of the specification. `false` admits all operators of jsonlogic.com.
        strict_operators: bool = true,
    }
}

section! {
    /// Workflows that start others (§10.5).
    Subworkflows {
        /// How deeply they may nest: a run without a parent has depth 0.
        max_nesting_depth: Positive = Positive::of(5),
        /// Whether one may start itself, directly or through others. `max_nesting_depth` applies in any case.
        allow_recursion: bool = false,
        /// How long one may take that is awaited and whose workflow does not set a timeout.
        default_child_timeout_ms: Millis<1> = millis(3_600_000),
        /// The most items of a `forEach`. Applies to workflows that are published later.
        max_items: Positive = Positive::of(10_000),
    }
}

section! {
    /// What starts runs automatically (§10.6).
    Triggers {
        /// Whether webhooks are received.
        enable_webhooks: bool = true,
        /// Whether this process fires schedules.
        enable_schedules: bool = true,
        /// Whether events are accepted and start runs.
        enable_events: bool = true,
        /// The path below which webhooks are received.
        webhook_base_path: WebhookBasePath = WebhookBasePath::default(),
        /// How many runs in a row may be started by events of each other. Beyond it an event starts nothing, so a workflow that
        /// emits the event that starts it ends.
        max_chain_depth: Positive = Positive::of(10),
        /// The scheduler: `builtin`. The specification's `Quartz` is accepted as another name for it. Others are out of
        /// scope.
        scheduler_provider: Scheduler = Scheduler,
    }
}

fn millis<const LEAST: u64>(millis: u64) -> Millis<LEAST> {
    Millis(Duration::from_millis(millis))
}
