//! The runner: the only place where Fermata touches the world.
//!
//! [`Engine`] is the way in. It accepts runs, keeps them going and answers questions about them. A run
//! that is held by this process is driven by one task ([`driver`]): load, decide, commit, then act.
//!
//! What must stay true:
//! * An effect begins only after the events that ask for it are durable.
//! * One commit is in flight for each run; what happens meanwhile goes into the next.
//! * A run that only waits for time or mail leaves memory.

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
