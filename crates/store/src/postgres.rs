//! The store that many processes share: PostgreSQL.
//!
//! Runs are written by a few committers, each taking whatever waits in one transaction and two round trips
//! (`committer.rs`, `batch.rs`); everything else goes through a pool (`sessions.rs`).
//!
//! What must stay true: nothing is answered before it is durable (`synchronous_commit`, answers after `COMMIT`);
//! correctness rests on row locks, epochs and unique indexes, never on advisory locks or NOTIFY; SQL that SQLite
//! understands too stands in `statements.rs` and `lists.rs`, once.

mod address;
mod backoff;
mod batch;
mod batch_reads;
mod claim;
mod columns;
mod committer;
mod dead_letters;
mod decide;
mod definitions;
mod error;
mod facts;
mod hints;
mod lists;
mod migrations;
mod pipeline;
mod pooler;
mod queue;
pub mod raw;
mod reads;
mod rows;
mod runners;
mod runs;
mod sessions;
mod settings;
mod sql;
#[cfg(test)]
mod tests;
mod tls;
pub(crate) mod transfer;
mod work;
mod workflows;

use crate::{
    ChangeHint, Result, Store, StoreError,
    clock::DatabaseClock,
    schema::{Migrate, Program, Schema, Step},
};
use address::Address;
use async_trait::async_trait;
use backoff::Backoff;
use committer::Committers;
use error::{PgError, Remedy};
use fermata_core::Timestamp;
use hints::{Hints, Listening};
use sessions::{Sessions, patiently};
use std::{
    sync::{Arc, Mutex},
    time::Instant,
};
use tokio::{sync::broadcast, task::JoinHandle};
use tokio_postgres::Client;
use work::{Outcome, Work};

pub use settings::PostgresSettings;

/// A store in a PostgreSQL database, shared with every other process that opens it.
///
/// ```no_run
/// # async fn example() -> fermata_store::Result<()> {
/// use fermata_store::{Store, postgres::{PostgresSettings, PostgresStore}};
/// let url = "postgres://fermata:secret@db1,db2/fermata?sslmode=verify-full";
/// let store = PostgresStore::connect(url, PostgresSettings::default()).await?;
/// store.ping().await?;
/// store.close().await
/// # }
/// ```
pub struct PostgresStore {
    place: String,
    sessions: Sessions,
    committers: Arc<Committers>,
    hints: Hints,
    /// Of the store that was opened, not of those for control.
    listening: Mutex<Option<Listening>>,
    clock: Arc<DatabaseClock>,
    /// The last group that a search for others behind a backlog came to.
    walked: Arc<Mutex<queue::Group>>,
}

impl PostgresStore {
    /// Connects, and brings the schema up to date. The address is
    /// `postgres://user:password@host:port,host:port/database?option=value&…`; of several hosts the one that takes
    /// writes is used. Options are those of libpq that the driver knows: `sslmode`, `sslrootcert`, `sslcert`, `sslkey`,
    /// `connect_timeout`, `application_name`, `keepalives_idle`, `tcp_user_timeout`, `options`, …
    ///
    /// # Errors
    /// [`StoreError::Unopenable`] if the address is wrong or the server refuses us, [`StoreError::Unavailable`] if it
    /// could not be reached for as long as `settings.patience`, [`StoreError::TooNew`], [`StoreError::Outdated`] or
    /// [`StoreError::Damaged`].
    pub async fn connect(url: &str, settings: PostgresSettings) -> Result<PostgresStore> {
        PostgresStore::connect_as(&migrations::PROGRAM, url, settings).await
    }

    /// The same, as another program would.
    async fn connect_as(program: &Program<'_>, url: &str, settings: PostgresSettings) -> Result<PostgresStore> {
        let address = Address::parse(url, &settings)?;
        let (mut client, task) = writing_session(&address, &settings).await?;
        let migrated = migrations::migrate(program, &mut client, &address, settings.migrate).await;
        task.abort();
        migrated?;
        let sessions = Sessions::new(&address, &settings)?;
        let clock = Arc::new(patiently!(sessions, |session| runners::clock(&session))?);
        // Looked at from a session that stays: a transfer that marks the database later sees that it is in use.
        let mark = patiently!(sessions, |session| transfer::mark_text(&session))?;
        transfer::refuse_marked(mark.as_deref(), &address.place)?;
        let (hints, listening) = Hints::start(&address, settings.hints, clock.clone());
        Ok(PostgresStore {
            place: address.place.clone(),
            sessions,
            committers: Arc::new(Committers::start(&address, &settings, &hints)),
            hints,
            listening: Mutex::new(listening),
            clock,
            walked: Arc::default(),
        })
    }

    /// The schema of a database, which may have none.
    ///
    /// # Errors
    /// As [`PostgresStore::connect`].
    pub async fn schema(url: &str, settings: &PostgresSettings) -> Result<Schema> {
        let address = Address::parse(url, settings)?;
        let (client, task) = first_session(&address, settings).await?;
        let schema = migrations::schema(&client, &address).await;
        task.abort();
        schema
    }

    /// Brings the schema of a database up to date, while others may work; which steps were taken.
    ///
    /// # Errors
    /// As [`PostgresStore::connect`].
    pub async fn migrate(url: &str, settings: &PostgresSettings) -> Result<Vec<Step>> {
        let before = PostgresStore::schema(url, settings).await?;
        let address = Address::parse(url, settings)?;
        let (mut client, task) = writing_session(&address, settings).await?;
        let migrated = migrations::migrate(&migrations::PROGRAM, &mut client, &address, Migrate::Auto).await;
        task.abort();
        migrated?;
        Ok(PostgresStore::schema(url, settings).await?.applied_since(&before))
    }

    /// Undoes the newest migration of a database, if nobody uses it and nothing is lost.
    ///
    /// # Errors
    /// [`StoreError::NoWayBack`], or as [`PostgresStore::connect`]. The database is then as it was.
    pub async fn migrate_back(url: &str, settings: &PostgresSettings) -> Result<Step> {
        let address = Address::parse(url, settings)?;
        let (mut client, task) = first_session(&address, settings).await?;
        let taken = migrations::take_back(&mut client, &address).await;
        task.abort();
        taken
    }

    /// The database that an address names, in words and without its password. Connects to nothing.
    ///
    /// # Errors
    /// [`StoreError::Unopenable`] if the address is wrong.
    pub fn place_of(url: &str) -> Result<String> {
        Ok(Address::parse(url, &PostgresSettings::default())?.place)
    }

    /// The database in words, without its password.
    pub fn place(&self) -> &str {
        &self.place
    }

    async fn write(&self, work: Work) -> Result<Outcome> {
        self.committers.write(work).await
    }
}

/// A session in which nothing was set yet, and whether a pooler is in front of it.
async fn unset_session(address: &Address) -> Result<(Client, JoinHandle<()>, bool), tokio_postgres::Error> {
    let (client, task) = address.unset_session().await?;
    let pooled = pooler::is_in_front(address, &client).await?;
    Ok((client, task, pooled))
}

/// A session that can write. A server that takes no writes may be taking over just now, so it is waited for.
async fn writing_session(address: &Address, settings: &PostgresSettings) -> Result<(Client, JoinHandle<()>)> {
    let until = Instant::now() + settings.patience;
    let mut backoff = Backoff::default();
    loop {
        let (client, task) = first_session(address, settings).await?;
        let sql = "SELECT current_setting('transaction_read_only') = 'on', pg_is_in_recovery()";
        let failed = |error| PgError::Server(error).explain(&address.place);
        let row = client.query_one(sql, &[]).await.map_err(failed)?;
        if !row.get::<_, bool>(0) {
            return Ok((client, task));
        }
        task.abort();
        if Instant::now() >= until {
            let what = if row.get(1) { "is a standby and takes" } else { "takes" };
            return Err(StoreError::Unavailable(format!(
                "{} {what} no writes; name the primary, or name all hosts (postgres://one,two/…) and the one that takes \
                 writes is used",
                address.place
            )));
        }
        backoff.pause().await;
    }
}

/// Waits for a server that starts, or takes over; other refusals are final.
async fn first_session(address: &Address, settings: &PostgresSettings) -> Result<(Client, JoinHandle<()>)> {
    let until = Instant::now() + settings.patience;
    let mut backoff = Backoff::default();
    loop {
        let error = match unset_session(address).await {
            Ok((_, task, true)) => {
                task.abort();
                return Err(StoreError::Unopenable {
                    path: address.place.clone(),
                    what: pooler::ADVICE.to_owned(),
                });
            }
            Ok((client, task, false)) => match address.set_up(&client).await {
                Ok(()) => return Ok((client, task)),
                Err(error) => error,
            },
            Err(error) => error,
        };
        // Of several hosts only the last one's error is known.
        let distrusted = address.is_one_host() && tls::distrust(&error).is_some();
        let error = PgError::Server(error);
        match error.remedy() {
            Remedy::Reconnect if distrusted => return Err(address.unopenable(&error)),
            Remedy::Reconnect if Instant::now() < until => backoff.pause().await,
            Remedy::Reconnect => return Err(error.explain(&address.place)),
            _ => return Err(address.unopenable(&error)),
        }
    }
}

/// An outcome of another kind cannot be.
fn mistaken(outcome: &Outcome) -> StoreError {
    StoreError::Failed(format!("an answer to something else: {outcome:?}"))
}

#[async_trait]
impl Store for PostgresStore {
    async fn ping(&self) -> Result<()> {
        patiently!(self.sessions, |session| async {
            let pinged = session.execute(runners::PING, &[]).await;
            pinged.map_err(PgError::Server).map(|_| ())
        })
    }

    fn now(&self) -> Option<Timestamp> {
        Some(self.clock.now())
    }

    fn control(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(PostgresStore {
            place: self.place.clone(),
            sessions: self.sessions.apart().ok()?,
            committers: self.committers.clone(),
            hints: self.hints.clone(),
            listening: Mutex::default(),
            clock: self.clock.clone(),
            walked: self.walked.clone(),
        }))
    }

    fn changes(&self) -> broadcast::Receiver<ChangeHint> {
        self.hints.subscribe()
    }

    async fn close(&self) -> Result<()> {
        self.committers.close().await;
        self.sessions.close();
        self.listening
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        Ok(())
    }
}
