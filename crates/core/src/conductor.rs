//! The conductor: decides which events follow from an input. Pure.
//!
//! The transitions of a node. [`apply`] accepts these and no others:
//!
//! | from | event | to |
//! | --- | --- | --- |
//! | idle | opened | open, attempt 1 |
//! | idle, open | skipped | skipped |
//! | idle, no answer yet | answered | idle, with the answer kept |
//! | open, without end time | slept | open, with end time |
//! | open, attempt n > 1 not begun | began n | open, attempt n begun |
//! | open, attempt n, not requested, without end time | requested n | open, attempt n, requested; with its end time, if any |
//! | open, attempt n, requested with items | itemsEnded n | open, attempt n; these items have ended |
//! | open, attempt n, requested without items | resending n | open, attempt n, requested, to be sent again |
//! | open, attempt n, to be sent again | resent n | open, attempt n, requested |
//! | open, attempt n | retried n | open, attempt n + 1, not requested, without end time |
//! | open, attempt n | finished n | finished, unrouted |
//! | open, attempt n + 1, run stopping | finished n | finished, unrouted |
//! | finished, unrouted | routed | finished |
//!
//! The transitions of a run:
//!
//! | from | event | to |
//! | --- | --- | --- |
//! | pending, not paused | started | running |
//! | running, no node opened yet | reused | running; the nodes of its events as these leave them, none open |
//! | pending, running, neither paused nor stopping | paused | the same, paused |
//! | paused | resumed | the same, not paused |
//! | running | stopping | running, stopping, not paused |
//! | pending, running | ended | succeeded, failed or cancelled |
//!
//! While a run is paused, `opened`, `began` and `routed` are illegal. Results, callbacks and answers are recorded, and nothing
//! follows from them until the run is resumed. Its timers keep their times and expire when it is resumed; its deadline does not
//! wait. A command can skip a node that waits ([`waits`]): it is `finished` with the output that the caller gave.
//!
//! [`decide`] returns the events that follow directly from an input. [`advance`] applies them and continues with
//! [`Fact::Settle`] until no more events follow, so that a whole path is skipped in one call. The cost of a decision grows
//! with the nodes and edges that it affects, not with the size of the plan.

mod apply;
mod commands;
mod decide;
mod items;
mod outstanding;
mod route;
#[cfg(test)]
mod tests;

pub use apply::apply;
pub use commands::waits;
pub use decide::decide;
pub use outstanding::{effect_of, evaluations, next_wake, outstanding};

use crate::{Event, Fact, Illegal, Input, Run};

/// Decides which events follow from `input`, applies them, and returns them for the journal.
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
