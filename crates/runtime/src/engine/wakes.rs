//! Wake-ups of the runner's loops.

use std::sync::Arc;
use tokio::sync::Notify;

/// What wakes the loops of the runner before their next poll.
#[derive(Default)]
pub(crate) struct Wakes {
    /// The claim loop: a slot or a place became free, or a heartbeat was confirmed.
    pub claims: Arc<Notify>,
    /// The message loop: notifications were missed, so the store must be asked for pending messages.
    pub messages: Notify,
}
