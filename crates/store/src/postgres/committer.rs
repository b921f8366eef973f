//! Group commit: a few committers, each with a connection of its own. Whatever waits when a committer is ready shares
//! one transaction.
//!
//! What must stay true:
//! * A member is answered only after the `COMMIT` it is part of was confirmed.
//! * A member that fails is undone alone: the batch is rolled back, and each half of it is tried.
//! * Work of one run goes to one committer and keeps its order there; a batch holds one member for each run and for
//!   each (tenant, requestId), so its members do not depend on each other.
//! * A member that needs what somebody else has locked is put off, and with it what waits behind it, for as long as
//!   `lock_timeout` allows; the others go on.
//! * When the connection is lost before `COMMIT` was sent, nothing was written, and the batch is tried again on another
//!   one for as long as its callers are patient. Once `COMMIT` was sent the outcome is unknown, and said to be.

use super::{
    address::Address,
    backoff::{self, Backoff},
    batch::{Failure, Session, Written},
    error::{PgError, Remedy},
    hints::{Hints, Tidings},
    settings::PostgresSettings,
    work::{Fate, Outcome, Work},
};
use crate::{Result, StoreError};
use std::{
    collections::{HashSet, VecDeque, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};

/// The most members of one transaction,
const MAX_BATCH: usize = 512;
/// and the most bytes, more or less.
const MAX_WEIGHT: usize = 8 << 20;
/// How often a collision with others is tried again before the halves of a batch are tried, or it is given up.
const MAX_TRIES: u32 = 3;
/// After so many members that wait for locks, one after another, others are no longer tried one by one.
const STUCK: usize = 4;

/// What a caller may have to wait beyond what he was promised.
const SLACK: Duration = Duration::from_secs(1);

/// Something to be written, and who waits for it.
struct Member {
    work: Work,
    reply: oneshot::Sender<Result<Outcome>>,
    since: Instant,
    /// How often others were in its way,
    tries: u32,
    /// until when it is left alone therefore,
    rests_until: Instant,
    /// and whether a batch had to wait for it, so that it should have one for itself.
    alone: bool,
    /// How often another run was stored first under its id or its request.
    beaten: u32,
}

impl Member {
    fn new(work: Work, reply: oneshot::Sender<Result<Outcome>>) -> Member {
        let now = Instant::now();
        Member {
            work,
            reply,
            since: now,
            tries: 0,
            rests_until: now,
            alone: false,
            beaten: 0,
        }
    }

    fn answer(self, outcome: Result<Outcome>) {
        // Nobody listens if the caller gave up; what was written stands.
        let _ = self.reply.send(outcome);
    }
}

/// The way to all committers.
pub(super) struct Committers {
    queues: Mutex<Option<Vec<mpsc::UnboundedSender<Member>>>>,
    told_within: Duration,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Committers {
    /// Starts them. They connect beside whatever else happens.
    pub(super) fn start(address: &Address, settings: &PostgresSettings, hints: &Hints) -> Committers {
        let (mut queues, mut tasks) = (Vec::new(), Vec::new());
        for _ in 0..settings.committers.max(1) {
            let (queue, receiver) = mpsc::unbounded_channel();
            let committer = Committer::new(address, settings, hints, receiver);
            queues.push(queue);
            tasks.push(tokio::spawn(committer.run()));
        }
        Committers {
            queues: Mutex::new(Some(queues)),
            // Whoever cannot be served for want of a connection or a lock hears so by then.
            told_within: settings.patience.max(settings.lock_timeout) + settings.connect_timeout + SLACK,
            tasks: Mutex::new(tasks),
        }
    }

    /// Writes: the outcome comes once it is durable. If the database keeps silent, for instance while its standby is away,
    /// callers hear in time that it is not known; a driver has nothing better to do than to wait for it.
    pub(super) async fn write(&self, work: Work) -> Result<Outcome> {
        let (reply, answer) = oneshot::channel();
        let is_driver = matches!(work, Work::Commit { .. });
        let mut hasher = DefaultHasher::new();
        // The run of an enqueue is known to nobody yet, but its request may be sent twice.
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
            false => timeout(self.told_within, answer).await,
        };
        match answered {
            Ok(answer) => answer.unwrap_or_else(|_| unknown("a committer stopped")),
            Err(_) => unknown("the server did not answer in time"),
        }
    }

    /// Writes what waits, then closes the connections.
    pub(super) async fn close(&self) {
        drop(self.queues.lock().unwrap_or_else(PoisonError::into_inner).take());
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            if task.await.is_err() {
                tracing::error!("a committer of the database had panicked");
            }
        }
    }
}

struct Committer {
    address: Address,
    patience: Duration,
    lock_patience: Duration,
    answer_within: Duration,
    receiver: mpsc::UnboundedReceiver<Member>,
    waiting: VecDeque<Member>,
    /// When the first of those that wait may be tried, if none may now.
    next: Option<Instant>,
    session: Option<Session>,
    backoff: Backoff,
    /// Members in a row that others were in the way of.
    stuck: usize,
    /// Whether the last batch was that of one who needs it for itself.
    was_alone: bool,
    hints: Hints,
}

impl Committer {
    fn new(
        address: &Address,
        settings: &PostgresSettings,
        hints: &Hints,
        receiver: mpsc::UnboundedReceiver<Member>,
    ) -> Committer {
        Committer {
            address: address.clone(),
            patience: settings.patience,
            lock_patience: settings.lock_timeout,
            answer_within: settings.statement_timeout + Duration::from_secs(10),
            receiver,
            waiting: VecDeque::new(),
            next: None,
            session: None,
            backoff: Backoff::default(),
            stuck: 0,
            was_alone: false,
            hints: hints.clone(),
        }
    }

    async fn run(mut self) {
        // So that the first run need not wait for it. If it fails, the first batch tries again.
        self.session = Session::connect(&self.address, self.answer_within).await.ok();
        while self.gather().await {
            let batch = self.next_batch();
            self.write(batch).await;
        }
    }

    /// Waits for members that may be tried. False when there are none and none can come.
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

    /// Those who need batches of their own never have two in a row while others may be tried.
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

    /// Members that do not depend on each other; the others keep their order.
    fn batch_of(&mut self, wanted: fn(&Member) -> bool) -> Vec<Member> {
        let (mut batch, mut later) = (Vec::new(), VecDeque::new());
        let (mut runs, mut requests) = (HashSet::new(), HashSet::new());
        let (mut weight, mut next, now) = (0, None, Instant::now());
        while let Some(member) = self.waiting.pop_front() {
            let request = member
                .work
                .request()
                .map(|(tenant, id)| (tenant.to_owned(), id.to_owned()));
            let first = runs.insert(member.work.run()) & request.is_none_or(|request| requests.insert(request));
            let rests = member.rests_until > now;
            if first && rests {
                next = [next, Some(member.rests_until)].into_iter().flatten().min();
            }
            if !first || rests || !wanted(&member) || member.alone && !batch.is_empty() {
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
            let failure = match self.try_write(&batch).await {
                Ok((fates, tidings)) => {
                    self.stuck = 0;
                    return self.answer(batch, fates, &tidings);
                }
                Err(failure) => failure,
            };
            let error = match failure {
                Failure::Unknown(error) => {
                    self.session = None;
                    tracing::error!(members = batch.len(), "the outcome of a batch is unknown: {error}");
                    batch.into_iter().for_each(|member| member.answer(Err(error.unknown())));
                    return;
                }
                Failure::Nothing(error) => error,
            };
            match error.remedy() {
                Remedy::Reconnect => {
                    self.session = None;
                    batch = self.still_patient(batch, &error);
                    self.backoff.pause().await;
                }
                Remedy::Again if collisions < MAX_TRIES => {
                    collisions += 1;
                    tracing::debug!("a batch collided with others and is tried again: {error}");
                    self.backoff.moment().await;
                }
                // Whatever is in the way, it is in everybody's: somebody locked a table.
                Remedy::Later if self.stuck >= STUCK => {
                    batch.into_iter().for_each(|member| self.put_off(member, &error));
                    return;
                }
                // Only the member at fault should fail, or wait.
                Remedy::Again | Remedy::Later | Remedy::LeaveOut if batch.len() > 1 => {
                    let rest = batch.split_off(batch.len() / 2);
                    Box::pin(self.write(batch)).await;
                    Box::pin(self.write(rest)).await;
                    return;
                }
                Remedy::Later => {
                    self.stuck += 1;
                    for mut member in batch {
                        member.alone = true;
                        self.put_off(member, &error);
                    }
                    return;
                }
                _ => {
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
                let session = Session::connect(&self.address, self.answer_within).await;
                place.insert(session.map_err(Failure::Nothing)?)
            }
        };
        let work: Vec<&Work> = batch.iter().map(|member| &member.work).collect();
        let written = session.write(&work).await?;
        self.backoff.reset();
        Ok(written)
    }

    /// Those whose callers still wait for the database to come back; the others are told.
    fn still_patient(&self, batch: Vec<Member>, error: &PgError) -> Vec<Member> {
        let (patient, rest): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .partition(|member| member.since.elapsed() < self.patience);
        for member in rest {
            member.answer(Err(error.explain(&self.address.place)));
        }
        patient
    }

    /// Tells the news first, so that whoever hears of its answer finds them told.
    fn answer(&mut self, batch: Vec<Member>, fates: Vec<Fate>, tidings: &Tidings) {
        self.hints.tell(tidings);
        for (mut member, fate) in batch.into_iter().zip(fates) {
            match fate {
                Fate::Done(outcome) => member.answer(Ok(outcome)),
                // What another batch stored is there now to be found.
                Fate::Beaten if member.beaten < MAX_TRIES => {
                    member.beaten += 1;
                    self.put_off(member, &PgError::Collision);
                }
                Fate::Beaten => member.answer(Err(StoreError::Failed("the id of the run is in use".to_owned()))),
                Fate::Locked => self.put_off(member, &PgError::Locked),
            }
        }
    }

    /// Tries a member again later, before all that waits behind it; or tells it that nothing was written.
    fn put_off(&mut self, mut member: Member, error: &PgError) {
        if member.since.elapsed() >= self.lock_patience {
            tracing::warn!(run = %member.work.run(), "given up after {} tries: {error}", member.tries + 1);
            return member.answer(Err(error.explain(&self.address.place)));
        }
        member.rests_until = Instant::now() + backoff::rest(member.tries);
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
        let address = Address::parse("postgres://nobody@nowhere/there", &settings).unwrap();
        let (hints, _) = Hints::start(
            &address,
            false,
            std::sync::Arc::new(crate::clock::DatabaseClock::new(0, 0, 0)),
        );
        Committer::new(&address, &settings, &hints, mpsc::unbounded_channel().1)
    }

    fn letter(alone: bool) -> Member {
        let (run, letter, at) = (run_id(), String::new(), at(1));
        let work = Work::Deliver { run, letter, at };
        let mut member = Member::new(work, oneshot::channel().0);
        member.alone = alone;
        member
    }

    #[test]
    fn who_needs_a_batch_for_itself_leaves_the_next_to_others() {
        let mut committer = committer();
        committer.waiting = [true, true, false, true, false].map(letter).into();
        let mut batches = Vec::new();
        for _ in 0..4 {
            let batch = committer.next_batch();
            batches.push(batch.iter().map(|member| member.alone).collect::<Vec<_>>());
            // They are in vain.
            let alone = batch.into_iter().filter(|member| member.alone);
            alone.for_each(|member| committer.waiting.push_front(member));
        }
        let (alone, others) = (vec![true], vec![false, false]);
        assert_eq!(batches, [alone.clone(), others, alone.clone(), alone]);
    }
}
