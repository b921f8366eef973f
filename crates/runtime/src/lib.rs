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
pub mod clock;
mod compiled;
mod dead_letters;
mod documents;
mod driver;
mod engine;
mod entry;
mod error;
pub mod inbox;
#[cfg(test)]
mod log_capture;
mod mask;
pub mod memory;
pub mod offload;
mod overview;
pub mod reads;
pub mod retention;
mod runner;
mod runners;
pub mod sandbox;
mod scope;
mod settings;
mod slots;
mod state;
pub mod timeline;
pub mod tls;
mod trigger;
mod wait_rows;
mod workflows;

pub use compiled::Compiled;
pub use dead_letters::Again;
pub use documents::check_document;
pub use engine::{Accepted, Ended, Engine, Observer, Request};
pub use error::{EngineError, Refusal};
pub use mask::{MASKED, Mask, Masked};
pub use overview::{NodeOverview, Overview, SkipReasons};
pub use reads::Reads;
pub use settings::{Role, Settings};
pub use workflows::{Added, Command, PublishedWorkflow, SavedWorkflow, Validated};
