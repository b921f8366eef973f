//! The pure core of Fermata: plans, events, effects and the conductor.
//!
//! Nothing here does I/O, reads a clock or generates random numbers: time and randomness are part of an [`Input`]. The
//! state of a run is a [`Run`]. Only [`apply`] changes it, by applying the [`Event`]s that [`decide`] returns.
//! [`outstanding`] returns the effects that the runner still has to perform.
//!
//! ```
//! use fermata_core::{advance, Input, Fact, Plan, Run, Status, Timestamp, plan::PlanBuilder};
//! use std::sync::Arc;
//!
//! let plan = Arc::new(PlanBuilder::new("hello").action("greet", "core.echo").build().unwrap());
//! let mut run = Run::new(plan);
//! let events = advance(&mut run, Input::new(Timestamp(0), Fact::start())).unwrap();
//! assert_eq!(events.len(), 2); // started, opened "greet"
//! assert_eq!(run.status(), Status::Running);
//! ```

pub mod answer;
pub mod conductor;
pub mod duration;
mod effect;
mod failure;
mod ids;
mod input;
pub mod items;
mod journal;
pub mod plan;
pub mod rerun;
mod retry;
mod run;
pub mod snapshot;
mod time;

pub use answer::AnswerRule;
pub use conductor::{advance, apply, decide, outstanding};
pub use effect::Effect;
pub use failure::{Failure, code};
pub use ids::{NodeId, RunId, RunnerId};
pub use input::{Fact, Input};
pub use items::{Each, Items, OnItemFailure, Ranges, RefusedItems};
pub use journal::{
    Event, Illegal, JOURNAL_VERSION, JournalError, Outcome, Output, Shape, SkipReason, SkippedBy, Verdict, decode,
    encode, recorded_deadline,
};
pub use plan::{
    Edge, Join, Kind, Language, Node, NodeIx, OnFailure, Plan, PlanError, Policies, Route, RunOutputs, StoredPlan, When,
};
pub use rerun::{KeptFailure, Rerun, Reused};
pub use retry::Retry;
pub use run::{End, NodeState, Open, Phase, Run, Status, Stop};
pub use time::Timestamp;
