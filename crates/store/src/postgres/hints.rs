//! Telling others: everyone in this process, and with NOTIFY the other processes that use this database.
//!
//! What must stay true:
//! * Nothing depends on it. NOTIFY is sent after the commit, by a connection of its own that does not wait for the
//!   disk: inside the commit it would make all commits of the server wait for each other.
//! * Sent are runs that are free and due, and mail for runs that a runner of another process holds. Mail for free runs is
//!   sent by processes that do not work: where somebody works he takes the run, and the others need not race for it.
//! * A connection that was lost is made again; whoever listens looks for itself then.

use super::{address::Address, backoff::Backoff, error::PgError};
use crate::{ChangeHint, clock::DatabaseClock, runners::Runner};
use fermata_core::{RunId, Timestamp};
use std::{
    collections::{BTreeMap, HashMap},
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{
    sync::{broadcast, mpsc},
    task::{AbortHandle, JoinHandle},
};
use tokio_postgres::AsyncMessage;
use uuid::Uuid;

const CHANNEL: &str = "fermata_news";
/// How many news a slow listener may be behind.
const NEWS: usize = 1024;
/// A message has room for 8000 bytes, so for about this many runs.
const RUNS_IN_MESSAGE: usize = 90;

/// What a batch has to tell.
#[derive(Debug, Default)]
pub(super) struct Tidings {
    news: Vec<ChangeHint>,
    /// Runs with mail, and who holds them.
    mail: Vec<(RunId, Option<Uuid>)>,
}

impl Tidings {
    /// A run is free, and due then.
    pub(super) fn due(&mut self, at: Timestamp) {
        self.news.push(ChangeHint::Due(at));
    }

    /// A run has mail.
    pub(super) fn mail(&mut self, run: RunId, owner: Option<Uuid>) {
        self.news.push(ChangeHint::Inbox(run));
        self.mail.push((run, owner));
    }
}

/// What is to be sent to other processes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outgoing {
    due: Option<Timestamp>,
    mail: BTreeMap<RunId, Option<Uuid>>,
}

/// Runners of this process, and whether they work.
type Runners = Arc<Mutex<HashMap<Uuid, bool>>>;

/// The way to everyone who cares.
#[derive(Clone)]
pub(super) struct Hints {
    local: broadcast::Sender<ChangeHint>,
    remote: Option<mpsc::UnboundedSender<Outgoing>>,
    runners: Runners,
    clock: Arc<DatabaseClock>,
}

impl Hints {
    /// `remote` says whether other processes are told and listened to.
    pub(super) fn start(address: &Address, remote: bool, clock: Arc<DatabaseClock>) -> (Hints, Option<Listening>) {
        let (local, _) = broadcast::channel(NEWS);
        let (sender, outgoing) = mpsc::unbounded_channel();
        let hints = Hints {
            local,
            remote: remote.then_some(sender),
            runners: Arc::default(),
            clock,
        };
        let listener = Listener {
            address: address.clone(),
            me: Uuid::now_v7(),
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

    /// A runner of this process lives: its mail is told here.
    pub(super) fn knows(&self, runner: &Runner) {
        lock(&self.runners).insert(runner.id.0, runner.role != "api");
    }

    /// A runner of this process is gone.
    pub(super) fn forgets(&self, runner: Uuid) {
        lock(&self.runners).remove(&runner);
    }

    /// Tells what was committed.
    pub(super) fn tell(&self, tidings: &Tidings) {
        for news in &tidings.news {
            // Nobody listening is fine: news are hints.
            let _ = self.local.send(*news);
        }
        let Some(remote) = &self.remote else { return };
        let now = self.clock.now();
        let due = tidings.news.iter().filter_map(|news| match news {
            ChangeHint::Due(at) if *at <= now => Some(*at),
            _ => None,
        });
        let ours = lock(&self.runners);
        let theirs = tidings.mail.iter().filter(|(_, owner)| match owner {
            Some(owner) => !ours.contains_key(owner),
            None => !ours.values().any(|works| *works),
        });
        let outgoing = Outgoing {
            due: due.min(),
            mail: theirs.copied().collect(),
        };
        drop(ours);
        if outgoing != Outgoing::default() {
            let _ = remote.send(outgoing); // the listener ends with the store
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Listens until it is dropped.
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
    /// Tells our own messages from those of others.
    me: Uuid,
    local: broadcast::Sender<ChangeHint>,
    runners: Runners,
    outgoing: mpsc::UnboundedReceiver<Outgoing>,
    backoff: Backoff,
}

impl Listener {
    async fn run(mut self) {
        let mut again = false;
        loop {
            match self.listen(again).await {
                Ok(()) => return,
                Err(error) => tracing::warn!("hints from other processes are not heard: {error}"),
            }
            again = true;
            self.backoff.pause().await;
        }
    }

    async fn listen(&mut self, again: bool) -> Result<(), PgError> {
        let (client, mut wire) = self.address.open().await?;
        let (heard, mut messages) = mpsc::unbounded_channel();
        let polling = async move {
            while let Some(Ok(message)) = poll_fn(|cx| wire.poll_message(cx)).await {
                if let AsyncMessage::Notification(message) = message {
                    let _ = heard.send(message.payload().to_owned());
                }
            }
        };
        let _polling = AbortOnDrop(tokio::spawn(polling));
        self.address.set_up(&client).await?;
        let set_up = format!("SET synchronous_commit = off; LISTEN {CHANNEL}");
        client.batch_execute(&set_up).await?;
        let notify = client.prepare("SELECT pg_notify($1, $2)").await?;
        self.backoff.reset();
        if again {
            let _ = self.local.send(ChangeHint::Due(Timestamp::default()));
        }
        loop {
            tokio::select! {
                message = messages.recv() => match message {
                    Some(message) => self.hear(&message),
                    None => return Err(PgError::NoConnection("the connection was lost".to_owned())),
                },
                outgoing = self.outgoing.recv() => {
                    let Some(mut outgoing) = outgoing else { return Ok(()) };
                    while let Ok(more) = self.outgoing.try_recv() {
                        outgoing.due = match (outgoing.due, more.due) {
                            (Some(a), Some(b)) => Some(a.min(b)),
                            (a, b) => a.or(b),
                        };
                        outgoing.mail.extend(more.mail);
                    }
                    for message in messages_of(self.me, &outgoing) {
                        client.execute(&notify, &[&CHANNEL, &message]).await?;
                    }
                }
            }
        }
    }

    /// What is not understood was sent by a newer program, or by somebody else.
    fn hear(&self, message: &str) {
        let mut words = message.split(' ');
        if words.next() == Some(&self.me.simple().to_string()) {
            return;
        }
        for word in words {
            let news = match word.split_at_checked(1) {
                Some(("d", at)) => at.parse().ok().map(|at| ChangeHint::Due(Timestamp(at))),
                Some(("m", mail)) => self.mail(mail),
                _ => None,
            };
            if let Some(news) = news {
                let _ = self.local.send(news);
            }
        }
    }

    /// Mail for a runner of this process, or for whoever takes its run.
    fn mail(&self, mail: &str) -> Option<ChangeHint> {
        let Some((run, owner)) = mail.split_once('@') else {
            return mail.parse().ok().map(ChangeHint::Inbox);
        };
        let owner: Uuid = owner.parse().ok()?;
        let run = run.parse().ok()?;
        lock(&self.runners)
            .contains_key(&owner)
            .then_some(ChangeHint::Inbox(run))
    }
}

/// `SENDER dMICROSECONDS mRUN@OWNER mRUN …`, in as many messages as it takes.
fn messages_of(me: Uuid, outgoing: &Outgoing) -> Vec<String> {
    let due = outgoing.due.map(|at| format!("d{}", at.0));
    let mail = outgoing.mail.iter();
    let mail = mail.map(|(run, owner)| match owner {
        Some(owner) => format!("m{}@{}", run.0.simple(), owner.simple()),
        None => format!("m{}", run.0.simple()),
    });
    let words: Vec<String> = due.into_iter().chain(mail).collect();
    let message = |words: &[String]| format!("{} {}", me.simple(), words.join(" "));
    words.chunks(RUNS_IN_MESSAGE).map(message).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_fit() {
        let id = || RunId(Uuid::now_v7());
        let outgoing = Outgoing {
            due: Some(Timestamp(i64::MIN)),
            mail: (0..1000).map(|_| (id(), Some(Uuid::now_v7()))).collect(),
        };
        let messages = messages_of(Uuid::now_v7(), &outgoing);
        assert!(messages.iter().all(|message| message.len() < 8000));
        let words: usize = messages.iter().map(|message| message.split(' ').count() - 1).sum();
        assert_eq!(words, 1001);
        assert!(messages_of(Uuid::now_v7(), &Outgoing::default()).is_empty());
    }
}
