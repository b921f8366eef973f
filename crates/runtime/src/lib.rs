//! The runtime: the only place where Fermata has effects on the outside world.
//!
//! [`Engine`] is the entry point. It accepts runs, advances them and answers queries about them. A run that this process
//! holds is driven by one task ([`driver`]): load, decide, commit, then act.
//!
//! What must stay true:
//! * An effect begins only after the events that require it are durable.
//! * At most one commit is in flight for each run; what happens meanwhile goes into the next one.
//! * A run that only waits for time or messages leaves memory.

mod action_slots;
pub mod actions;
mod audit;
pub mod bulk;
pub mod callbacks;
pub mod caller;
pub mod clock;
mod compiled;
mod dead_letters;
mod documents;
mod driver;
pub mod dry_run;
mod engine;
mod entry;
mod error;
mod flow;
mod http_places;
pub mod inbox;
pub mod keys;
#[cfg(test)]
mod log_capture;
mod mask;
pub mod memory;
mod metrics;
pub mod offload;
mod overview;
pub mod query;
pub mod rate;
pub mod reads;
pub mod retention;
mod runner;
mod runners;
pub mod sandbox;
mod scope;
mod search_fields;
mod secrets;
mod session;
mod settings;
mod slots;
mod state;
pub mod stats;
mod tiers;
pub mod timeline;
pub mod tls;
pub mod trace;
mod trigger;
pub mod triggers;
mod wait_rows;
pub mod watch;
mod workflows;

pub use audit::Audit;
pub use caller::{Caller, Identity, Scope, Scopes};
pub use compiled::Compiled;
pub use dead_letters::Again;
pub use documents::check_document;
pub use engine::{Accepted, Ended, Engine, Observer, Request, RerunRequest, RerunVersion};
pub use error::{EngineError, Refusal};
pub use mask::{MASKED, Mask, Masked};
pub use metrics::{MetricsSettings, SpanMetrics};
pub use overview::{
    Doing, ItemProgress, NodeOverview, NodeProgress, NodeState, Overview, Period, Progress, SkipReasons,
};
pub use reads::Reads;
pub use secrets::{SECRET_PREFIX, Secret, Secrets};
pub use session::{CallerWorkflows, DryRunOf, Session};
pub use settings::{Role, Settings};
pub use tiers::{Tier, Tiers};
pub use triggers::{TriggerSettings, Triggers};
pub use workflows::{Added, Command, PublishedWorkflow, SavedWorkflow, Validated};
