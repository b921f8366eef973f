//! The conductor: decides what follows from what happened. Pure.
//!
//! How a node moves; [`apply`] accepts these and no others:
//!
//! | from | event | to |
//! | --- | --- | --- |
//! | idle | opened | open, attempt 1 |
//! | idle, open | skipped | skipped |
//! | idle, no answer yet | answered | idle, with the answer kept |
//! | open, no end yet | slept | open, until its time |
//! | open, attempt n > 1 not begun | began n | open, attempt n begun |
//! | open, attempt n | retried n | open, attempt n + 1 |
//! | open, attempt n | finished n | finished, unrouted |
//! | open, attempt n + 1, run stopping | finished n | finished, unrouted |
//! | finished, unrouted | routed | finished |
//!
//! And how a run moves:
//!
//! | from | event | to |
//! | --- | --- | --- |
//! | pending | started | running |
//! | running | stopping | running, stopping |
//! | pending, running | ended | succeeded, failed or cancelled |
//!
//! [`decide`] looks at a run and one input and says what follows at once. [`advance`] applies that
//! and goes on with [`Fact::Settle`] until nothing more follows, so that a skip runs down its whole
//! path in one go. Each decision is linear in what it touches, never in the size of the plan.

mod apply;
mod decide;
mod outstanding;
#[cfg(test)]
mod tests;

pub use apply::apply;
pub use decide::decide;
pub use outstanding::{effect_of, evaluations, next_wake, outstanding};

use crate::{Event, Fact, Illegal, Input, Run};

/// Decides what follows from `input`, applies it, and returns it for the journal.
pub fn advance(run: &mut Run, input: Input) -> Result<Vec<Event>, Illegal> {
    let settle = Input::new(input.at, Fact::Settle);
    let mut all = Vec::new();
    let mut events = decide(run, &input);
    while !events.is_empty() {
        for event in &events {
            apply(run, event)?;
        }
        all.append(&mut events);
        events = decide(run, &settle);
    }
    Ok(all)
}
