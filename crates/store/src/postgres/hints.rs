//! Change notifications: a broadcast channel inside this process, and NOTIFY to other processes on the same database.
//!
//! What must stay true:
//! * Nothing depends on notifications being received. NOTIFY is sent after the commit, on a separate connection with
//!   `synchronous_commit = off`. Inside the commit it would serialize all commits of the server.
//! * NOTIFY is sent for runs that are free and due, and for run messages of runs that a runner of another process
//!   holds. Run messages of free runs are sent only by processes without a working runner: a working runner claims the
//!   run itself, and others need not compete for it.
//! * A lost connection is reopened. Then subscribers get a hint to check for due runs, because
//!   notifications may have been lost.

use super::{address::Address, backoff::Backoff, error::PgError};
use crate::{ChangeHint, clock::DatabaseClock, inbox::queue_number, runners::Runner};
use fermata_core::{RunId, Timestamp};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{
    sync::{broadcast, mpsc},
    task::{AbortHandle, JoinHandle},
};
use tokio_postgres::AsyncMessage;
use uuid::Uuid;

/// The name of the NOTIFY channel. Older releases and SQL functions use it, so it must not change.
const CHANNEL: &str = "fermata_news";
/// How many hints a slow subscriber may lag behind.
const HINT_BUFFER: usize = 1024;
/// The payload of NOTIFY is limited to 8000 bytes, which is enough for about this many runs.
const RUNS_IN_MESSAGE: usize = 90;

/// The notifications to send after a batch is committed.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    hints: Vec<ChangeHint>,
    /// Runs with new run messages, and their owners.
    messages: Vec<(RunId, Option<Uuid>)>,
}

impl Notifications {
    /// A free run is due at this time.
    pub(super) fn due(&mut self, at: Timestamp) {
        self.hints.push(ChangeHint::Due(at));
    }

    /// A queue has a new item.
    pub(super) fn offered(&mut self, queue: &str) {
        self.hints.push(ChangeHint::Inbox(queue_number(queue)));
    }

    /// A run has a new run message.
    pub(super) fn messages(&mut self, run: RunId, owner: Option<Uuid>) {
        self.hints.push(ChangeHint::Messages(run));
        self.messages.push((run, owner));
    }
}

/// Notifications to be sent to other processes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outgoing {
    due: Option<Timestamp>,
    /// Runs with new run messages, and their owners.
    messages: BTreeMap<RunId, Option<Uuid>>,
    /// The numbers of queues with new items.
    offered: BTreeSet<u64>,
}

/// Runners of this process, and whether they execute runs (role other than `api`).
type Runners = Arc<Mutex<HashMap<Uuid, bool>>>;

/// Sends and receives change notifications.
#[derive(Clone)]
pub(super) struct Hints {
    local: broadcast::Sender<ChangeHint>,
    remote: Option<mpsc::UnboundedSender<Outgoing>>,
    runners: Runners,
    clock: Arc<DatabaseClock>,
}

impl Hints {
    /// `remote` says whether notifications are exchanged with other processes.
    pub(super) fn start(address: &Address, remote: bool, clock: Arc<DatabaseClock>) -> (Hints, Option<Listening>) {
        let (local, _) = broadcast::channel(HINT_BUFFER);
        let (sender, outgoing) = mpsc::unbounded_channel();
        let hints = Hints {
            local,
            remote: remote.then_some(sender),
            runners: Arc::default(),
            clock,
        };
        let listener = Listener {
            address: address.clone(),
            sender: Uuid::now_v7(),
            local: hints.local.clone(),
            runners: hints.runners.clone(),
            outgoing,
            backoff: Backoff::default(),
        };
        let listening = remote.then(|| Listening(tokio::spawn(listener.run()).abort_handle()));
        (hints, listening)
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<ChangeHint> {
        self.local.subscribe()
    }

    /// Registers a runner of this process: notifications for its runs are delivered here.
    pub(super) fn register(&self, runner: &Runner) {
        lock(&self.runners).insert(runner.id.0, runner.role != "api");
    }

    /// Removes a runner of this process.
    pub(super) fn unregister(&self, runner: Uuid) {
        lock(&self.runners).remove(&runner);
    }

    /// Sends notifications about what was committed.
    pub(super) fn publish(&self, notifications: &Notifications) {
        for hint in &notifications.hints {
            // Without a subscriber the hint is dropped.
            let _ = self.local.send(*hint);
        }
        let Some(remote) = &self.remote else { return };
        let now = self.clock.now();
        let due = notifications.hints.iter().filter_map(|hint| match hint {
            ChangeHint::Due(at) if *at <= now => Some(*at),
            _ => None,
        });
        let local_runners = lock(&self.runners);
        let remote_messages = notifications.messages.iter().filter(|(_, owner)| match owner {
            Some(owner) => !local_runners.contains_key(owner),
            None => !local_runners.values().any(|executes| *executes),
        });
        let offered = notifications.hints.iter().filter_map(|hint| match hint {
            ChangeHint::Inbox(queue) => Some(*queue),
            _ => None,
        });
        let outgoing = Outgoing {
            due: due.min(),
            messages: remote_messages.copied().collect(),
            offered: offered.collect(),
        };
        drop(local_runners);
        if outgoing != Outgoing::default() {
            let _ = remote.send(outgoing); // fails only after the store was closed
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stops the listener task when dropped.
pub(super) struct Listening(AbortHandle);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Listener {
    address: Address,
    /// Identifies the messages of this process, which it ignores.
    sender: Uuid,
    local: broadcast::Sender<ChangeHint>,
    runners: Runners,
    outgoing: mpsc::UnboundedReceiver<Outgoing>,
    backoff: Backoff,
}

impl Listener {
    async fn run(mut self) {
        let mut reconnected = false;
        loop {
            match self.listen(reconnected).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!("LISTEN for notifications of other processes failed, reconnecting: {error}")
                }
            }
            reconnected = true;
            self.backoff.pause().await;
        }
    }

    async fn listen(&mut self, reconnected: bool) -> Result<(), PgError> {
        let (client, mut wire) = self.address.open().await?;
        let (received, mut messages) = mpsc::unbounded_channel();
        let polling = async move {
            while let Some(Ok(message)) = poll_fn(|cx| wire.poll_message(cx)).await {
                if let AsyncMessage::Notification(message) = message {
                    let _ = received.send(message.payload().to_owned());
                }
            }
        };
        let _polling = AbortOnDrop(tokio::spawn(polling));
        self.address.set_up(&client).await?;
        let set_up = format!("SET synchronous_commit = off; LISTEN {CHANNEL}");
        client.batch_execute(&set_up).await?;
        let notify = client.prepare("SELECT pg_notify($1, $2)").await?;
        self.backoff.reset();
        if reconnected {
            // Notifications may have been missed: let subscribers check for due runs.
            let _ = self.local.send(ChangeHint::Due(Timestamp::default()));
        }
        loop {
            tokio::select! {
                message = messages.recv() => match message {
                    Some(message) => self.receive(&message),
                    None => return Err(PgError::NoConnection("the connection was lost".to_owned())),
                },
                outgoing = self.outgoing.recv() => {
                    let Some(mut outgoing) = outgoing else { return Ok(()) };
                    while let Ok(more) = self.outgoing.try_recv() {
                        outgoing.due = match (outgoing.due, more.due) {
                            (Some(a), Some(b)) => Some(a.min(b)),
                            (a, b) => a.or(b),
                        };
                        outgoing.messages.extend(more.messages);
                        outgoing.offered.extend(more.offered);
                    }
                    for message in messages_of(self.sender, &outgoing) {
                        client.execute(&notify, &[&CHANNEL, &message]).await?;
                    }
                }
            }
        }
    }

    /// Forwards the hints of a message. Unknown parts are ignored: a newer release or another program sent them.
    fn receive(&self, message: &str) {
        let mut words = message.split(' ');
        if words.next() == Some(&self.sender.simple().to_string()) {
            return;
        }
        for word in words {
            let hint = match word.split_at_checked(1) {
                Some(("d", at)) => at.parse().ok().map(|at| ChangeHint::Due(Timestamp(at))),
                Some(("i", queue)) => queue.parse().ok().map(ChangeHint::Inbox),
                Some(("m", messages)) => self.message_hint(messages),
                _ => None,
            };
            if let Some(hint) = hint {
                let _ = self.local.send(hint);
            }
        }
    }

    /// The hint for a run with a new run message, if it is free or its owner is a runner of this process.
    fn message_hint(&self, text: &str) -> Option<ChangeHint> {
        let Some((run, owner)) = text.split_once('@') else {
            return text.parse().ok().map(ChangeHint::Messages);
        };
        let owner: Uuid = owner.parse().ok()?;
        let run = run.parse().ok()?;
        lock(&self.runners)
            .contains_key(&owner)
            .then_some(ChangeHint::Messages(run))
    }
}

/// The payloads `SENDER dMICROSECONDS mRUN@OWNER mRUN iQUEUE …`, split into as many messages as needed.
fn messages_of(sender: Uuid, outgoing: &Outgoing) -> Vec<String> {
    let due = outgoing.due.map(|at| format!("d{}", at.0));
    let messages = outgoing.messages.iter();
    let messages = messages.map(|(run, owner)| match owner {
        Some(owner) => format!("m{}@{}", run.0.simple(), owner.simple()),
        None => format!("m{}", run.0.simple()),
    });
    let offered = outgoing.offered.iter().map(|queue| format!("i{queue}"));
    let words: Vec<String> = due.into_iter().chain(messages).chain(offered).collect();
    let message = |words: &[String]| format!("{} {}", sender.simple(), words.join(" "));
    words.chunks(RUNS_IN_MESSAGE).map(message).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_fit_into_the_notify_limit() {
        let id = || RunId(Uuid::now_v7());
        let outgoing = Outgoing {
            due: Some(Timestamp(i64::MIN)),
            messages: (0..1000).map(|_| (id(), Some(Uuid::now_v7()))).collect(),
            offered: BTreeSet::from([u64::MAX]),
        };
        let messages = messages_of(Uuid::now_v7(), &outgoing);
        assert!(messages.iter().all(|message| message.len() < 8000));
        let words: usize = messages.iter().map(|message| message.split(' ').count() - 1).sum();
        assert_eq!(words, 1002);
        assert!(messages_of(Uuid::now_v7(), &Outgoing::default()).is_empty());
    }
}
