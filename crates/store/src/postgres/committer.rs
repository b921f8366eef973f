//! Group commit: a few committers, each with its own connection. All work that is queued when a committer is ready
//! shares one transaction.
//!
//! What must stay true:
//! * A member is answered only after the `COMMIT` that contains it was confirmed.
//! * A member that fails does not fail the others: the batch is rolled back, and each half is tried separately.
//! * All work of one run goes to the same committer and keeps its order. A batch contains at most one member for each
//!   run and for each (tenant, requestId), so its members do not depend on each other.
//! * A member whose rows another transaction has locked is deferred, together with later work of the same run, for at
//!   most `lock_timeout`. The other members continue.
//! * If the connection is lost before `COMMIT` was sent, nothing was written: the batch is retried on a new connection
//!   for at most the setting `patience`. Once `COMMIT` was sent, the outcome is reported as unknown.

use super::{
    address::Address,
    backoff::{self, Backoff},
    batch::{Failure, Session, Written},
    error::{PgError, Remedy},
    hints::{Hints, Notifications},
    settings::PostgresSettings,
    work::{MemberResult, Outcome, Work},
};
use crate::{Result, StoreError, StoreMetrics, flow::Flow};
use std::{
    collections::{HashSet, VecDeque, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};

/// The most members of one transaction.
const MAX_BATCH: usize = 512;
/// The most bytes of one transaction, approximately.
const MAX_WEIGHT: usize = 8 << 20;
/// How often a batch that collided with other transactions is retried before it is split or fails.
const MAX_TRIES: u32 = 3;
/// After this many consecutive lock timeouts of single members, batches are no longer split to find the blocked member.
const MAX_LOCK_TIMEOUTS: usize = 4;

/// A key is locked only for a batch, so the pause before the next attempt stays short: it does not grow after this many.
const MAX_KEY_TRIES: u32 = 2;

/// Added to the configured timeouts before a caller gets an answer without the committer.
const REPLY_SLACK: Duration = Duration::from_secs(1);

/// Work to be written, and the channel for its outcome.
struct Member {
    work: Work,
    reply: oneshot::Sender<Result<Outcome>>,
    since: Instant,
    /// How often it was deferred because of other transactions.
    tries: u32,
    /// It is not tried before this time.
    not_before: Instant,
    /// Whether it made a batch wait for a lock. Then it is tried in a batch of its own.
    alone: bool,
    /// How often another batch stored its run id or request first.
    insert_conflicts: u32,
}

impl Member {
    fn new(work: Work, reply: oneshot::Sender<Result<Outcome>>) -> Member {
        let now = Instant::now();
        Member {
            work,
            reply,
            since: now,
            tries: 0,
            not_before: now,
            alone: false,
            insert_conflicts: 0,
        }
    }

    fn answer(self, outcome: Result<Outcome>) {
        // The receiver is gone if the caller stopped waiting; what was written stays written.
        let _ = self.reply.send(outcome);
    }
}

/// The queues of all committers.
pub(super) struct Committers {
    queues: Mutex<Option<Vec<mpsc::UnboundedSender<Member>>>>,
    reply_timeout: Duration,
    metrics: Arc<StoreMetrics>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Committers {
    /// Starts the committers. They connect in the background.
    pub(super) fn start(address: &Address, settings: &PostgresSettings, hints: &Hints) -> Committers {
        let (mut queues, mut tasks) = (Vec::new(), Vec::new());
        let metrics = Arc::new(StoreMetrics::default());
        for _ in 0..settings.committers.max(1) {
            let (queue, receiver) = mpsc::unbounded_channel();
            let committer = Committer::new(address, settings, hints, receiver, metrics.clone());
            queues.push(queue);
            tasks.push(tokio::spawn(committer.run()));
        }
        Committers {
            queues: Mutex::new(Some(queues)),
            // By then a committer has answered all work that failed for lack of a connection or a lock.
            reply_timeout: settings.patience.max(settings.lock_timeout) + settings.connect_timeout + REPLY_SLACK,
            metrics,
            tasks: Mutex::new(tasks),
        }
    }

    /// Writes, and returns the outcome once it is durable. If the database does not respond, for instance while its
    /// synchronous standby is down, callers get [`StoreError::Unknown`] after a timeout. Commits of drivers wait without a
    /// timeout: a driver cannot continue without the outcome.
    pub(super) async fn write(&self, work: Work) -> Result<Outcome> {
        let (reply, answer) = oneshot::channel();
        let is_driver = matches!(work, Work::Commit { .. });
        let mut hasher = DefaultHasher::new();
        // The id of a new run is not used elsewhere yet, but the same request may be sent twice.
        match work.request() {
            Some(request) => request.hash(&mut hasher),
            None => work.run().hash(&mut hasher),
        }
        let member = Member::new(work, reply);
        {
            let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(queues) = queues.as_ref() else {
                return Err(StoreError::Closed);
            };
            let shard = hasher.finish() as usize % queues.len();
            if queues[shard].send(member).is_err() {
                return Err(StoreError::Failed("a committer stopped".to_owned()));
            }
        }
        let unknown = |what: &str| Err(StoreError::Unknown(what.to_owned()));
        let answered = match is_driver {
            true => Ok(answer.await),
            false => timeout(self.reply_timeout, answer).await,
        };
        match answered {
            Ok(answer) => answer.unwrap_or_else(|_| unknown("a committer stopped")),
            Err(_) => unknown("the server did not respond in time"),
        }
    }

    /// The batches so far.
    pub(super) fn metrics(&self) -> &StoreMetrics {
        &self.metrics
    }

    /// Writes all queued work, then closes the connections.
    pub(super) async fn close(&self) {
        drop(self.queues.lock().unwrap_or_else(PoisonError::into_inner).take());
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            if task.await.is_err() {
                tracing::error!("a database committer panicked");
            }
        }
    }
}

struct Committer {
    address: Address,
    reconnect_timeout: Duration,
    lock_timeout: Duration,
    response_timeout: Duration,
    receiver: mpsc::UnboundedReceiver<Member>,
    waiting: VecDeque<Member>,
    /// When the first waiting member may be tried, if none may be tried now.
    next: Option<Instant>,
    session: Option<Session>,
    backoff: Backoff,
    /// Consecutive lock timeouts of single members.
    lock_timeouts: usize,
    /// Whether the last batch contained only a member that must be alone.
    was_alone: bool,
    hints: Hints,
    metrics: Arc<StoreMetrics>,
}

impl Committer {
    fn new(
        address: &Address,
        settings: &PostgresSettings,
        hints: &Hints,
        receiver: mpsc::UnboundedReceiver<Member>,
        metrics: Arc<StoreMetrics>,
    ) -> Committer {
        Committer {
            address: address.clone(),
            reconnect_timeout: settings.patience,
            lock_timeout: settings.lock_timeout,
            response_timeout: settings.statement_timeout + Duration::from_secs(10),
            receiver,
            waiting: VecDeque::new(),
            next: None,
            session: None,
            backoff: Backoff::default(),
            lock_timeouts: 0,
            was_alone: false,
            hints: hints.clone(),
            metrics,
        }
    }

    async fn run(mut self) {
        // Connect early, so that the first batch does not have to wait. If this fails, the first batch retries.
        self.session = Session::connect(&self.address, self.response_timeout).await.ok();
        while self.gather().await {
            let batch = self.next_batch();
            self.write(batch).await;
        }
    }

    /// Waits until a member may be tried. False when the queue is closed and empty.
    async fn gather(&mut self) -> bool {
        if self.waiting.is_empty() {
            match self.receiver.recv().await {
                Some(member) => self.waiting.push_back(member),
                None => return false,
            }
        } else if let Some(next) = self.next.take() {
            let pause = next.saturating_duration_since(Instant::now());
            match timeout(pause, self.receiver.recv()).await {
                Ok(Some(member)) => self.waiting.push_back(member),
                Ok(None) => tokio::time::sleep(pause).await,
                Err(_) => {}
            }
        }
        while let Ok(member) = self.receiver.try_recv() {
            self.waiting.push_back(member);
        }
        true
    }

    /// Members that must be alone never get two consecutive batches while other members may be tried.
    fn next_batch(&mut self) -> Vec<Member> {
        if self.was_alone {
            self.was_alone = false;
            let others = self.batch_of(|member| !member.alone);
            if !others.is_empty() {
                return others;
            }
        }
        let batch = self.batch_of(|_| true);
        self.was_alone = batch.first().is_some_and(|member| member.alone);
        batch
    }

    /// Takes members that do not depend on each other; the rest keeps its order.
    fn batch_of(&mut self, wanted: fn(&Member) -> bool) -> Vec<Member> {
        let (mut batch, mut later) = (Vec::new(), VecDeque::new());
        let (mut runs, mut requests, mut parents) = (HashSet::new(), HashSet::new(), HashSet::new());
        let mut owners: HashSet<String> = HashSet::new();
        let (mut weight, mut next, now) = (0, None, Instant::now());
        while let Some(member) = self.waiting.pop_front() {
            let request = member
                .work
                .request()
                .map(|(tenant, id)| (tenant.to_owned(), id.to_owned()));
            // A child is not started in the batch that commits a step of its parent: the step might end the parent.
            let parent = member.work.needed_run();
            let apart = !parents.contains(&member.work.run()) && parent.is_none_or(|parent| !runs.contains(&parent));
            // Of the runs that ask for the same unique or debounce key, a batch stores at most one.
            let owned = member.work.asks().into_iter().flat_map(Flow::owned);
            let apart = owned.fold(apart, |apart, key| owners.insert(key.to_owned()) & apart);
            let first = runs.insert(member.work.run()) & request.is_none_or(|request| requests.insert(request)) & apart;
            parents.extend(parent);
            let deferred = member.not_before > now;
            if first && deferred {
                next = [next, Some(member.not_before)].into_iter().flatten().min();
            }
            if !first || deferred || !wanted(&member) || member.alone && !batch.is_empty() {
                later.push_back(member);
                continue;
            }
            weight += member.work.weight();
            let full = member.alone || batch.len() + 1 == MAX_BATCH || weight >= MAX_WEIGHT;
            batch.push(member);
            if full {
                break;
            }
        }
        later.append(&mut self.waiting);
        self.waiting = later;
        self.next = next.filter(|_| batch.is_empty());
        batch
    }

    async fn write(&mut self, mut batch: Vec<Member>) {
        let mut collisions = 0;
        while !batch.is_empty() {
            let began = Instant::now();
            let failure = match self.try_write(&batch).await {
                Ok((results, notifications)) => {
                    self.metrics.written(batch.len(), began.elapsed());
                    self.lock_timeouts = 0;
                    return self.answer(batch, results, &notifications);
                }
                Err(failure) => failure,
            };
            let error = match failure {
                Failure::Unknown(error) => {
                    self.session = None;
                    self.metrics.failed_batches.inc();
                    tracing::error!(members = batch.len(), "the outcome of a batch is unknown: {error}");
                    batch.into_iter().for_each(|member| member.answer(Err(error.unknown())));
                    return;
                }
                Failure::NotWritten(error) => error,
            };
            match error.remedy() {
                Remedy::Reconnect => {
                    self.session = None;
                    batch = self.fail_expired(batch, &error);
                    self.backoff.pause().await;
                }
                Remedy::Retry if collisions < MAX_TRIES => {
                    collisions += 1;
                    tracing::debug!("a batch collided with another transaction and is retried: {error}");
                    self.backoff.short_pause().await;
                }
                // So many timeouts mean that a whole table is locked: splitting the batch does not help.
                Remedy::RetryLater if self.lock_timeouts >= MAX_LOCK_TIMEOUTS => {
                    batch.into_iter().for_each(|member| self.defer(member, &error));
                    return;
                }
                // Split the batch, so that only the affected member fails or waits.
                Remedy::Retry | Remedy::RetryLater | Remedy::Exclude if batch.len() > 1 => {
                    let rest = batch.split_off(batch.len() / 2);
                    Box::pin(self.write(batch)).await;
                    Box::pin(self.write(rest)).await;
                    return;
                }
                Remedy::RetryLater => {
                    self.lock_timeouts += 1;
                    for mut member in batch {
                        member.alone = true;
                        self.defer(member, &error);
                    }
                    return;
                }
                _ => {
                    self.metrics.failed_batches.inc();
                    tracing::error!(members = batch.len(), "a batch was not written: {error}");
                    let place = &self.address.place;
                    batch
                        .into_iter()
                        .for_each(|member| member.answer(Err(error.explain(place))));
                    return;
                }
            }
        }
    }

    async fn try_write(&mut self, batch: &[Member]) -> Result<Written, Failure> {
        let session = match &mut self.session {
            Some(session) if !session.is_closed() => session,
            place => {
                let session = Session::connect(&self.address, self.response_timeout).await;
                place.insert(session.map_err(Failure::NotWritten)?)
            }
        };
        let work: Vec<&Work> = batch.iter().map(|member| &member.work).collect();
        let written = session.write(&work).await?;
        self.backoff.reset();
        Ok(written)
    }

    /// Answers members that have waited for `reconnect_timeout` with the error, and returns the others.
    fn fail_expired(&self, batch: Vec<Member>, error: &PgError) -> Vec<Member> {
        let (remaining, expired): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .partition(|member| member.since.elapsed() < self.reconnect_timeout);
        for member in expired {
            member.answer(Err(error.explain(&self.address.place)));
        }
        remaining
    }

    /// Sends the notifications before the answers, so that a caller with an answer can rely on them being sent.
    fn answer(&mut self, batch: Vec<Member>, results: Vec<MemberResult>, notifications: &Notifications) {
        self.hints.publish(notifications);
        for (mut member, result) in batch.into_iter().zip(results) {
            match result {
                MemberResult::Done(outcome) => member.answer(Ok(outcome)),
                // The next attempt finds the run that the other batch stored.
                MemberResult::InsertConflict if member.insert_conflicts < MAX_TRIES => {
                    member.insert_conflicts += 1;
                    self.defer(member, &PgError::Collision);
                }
                MemberResult::InsertConflict => {
                    member.answer(Err(StoreError::Failed("the id of the run is in use".to_owned())))
                }
                MemberResult::Locked => self.defer(member, &PgError::Locked),
                MemberResult::KeyLocked => {
                    member.tries = member.tries.min(MAX_KEY_TRIES);
                    self.defer(member, &PgError::Locked);
                }
            }
        }
    }

    /// Puts a member back at the front of the queue, to be tried later. After `lock_timeout` it fails instead; then
    /// nothing was written.
    fn defer(&mut self, mut member: Member, error: &PgError) {
        if member.since.elapsed() >= self.lock_timeout {
            tracing::warn!(ExecutionId = %member.work.run(), "nothing was written after {} attempts: {error}", member.tries + 1);
            return member.answer(Err(error.explain(&self.address.place)));
        }
        member.not_before = Instant::now() + backoff::lock_retry_delay(member.tries);
        member.tries += 1;
        self.waiting.push_front(member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{at, run_id};

    fn committer() -> Committer {
        let settings = PostgresSettings::default();
        let address = Address::parse("postgres://user@host/database", &settings).unwrap();
        let (hints, _) = Hints::start(
            &address,
            false,
            std::sync::Arc::new(crate::clock::DatabaseClock::new(0, 0, 0)),
        );
        Committer::new(&address, &settings, &hints, mpsc::unbounded_channel().1, Arc::default())
    }

    fn delivery(alone: bool) -> Member {
        let (run, message, at) = (run_id(), String::new(), at(1));
        let work = Work::Deliver { run, message, at };
        let mut member = Member::new(work, oneshot::channel().0);
        member.alone = alone;
        member
    }

    #[test]
    fn member_that_must_be_alone_leaves_the_next_batch_to_others() {
        let mut committer = committer();
        committer.waiting = [true, true, false, true, false].map(delivery).into();
        let mut batches = Vec::new();
        for _ in 0..4 {
            let batch = committer.next_batch();
            batches.push(batch.iter().map(|member| member.alone).collect::<Vec<_>>());
            // As if they were still blocked.
            let alone = batch.into_iter().filter(|member| member.alone);
            alone.for_each(|member| committer.waiting.push_front(member));
        }
        let (alone, others) = (vec![true], vec![false, false]);
        assert_eq!(batches, [alone.clone(), others, alone.clone(), alone]);
    }
}
