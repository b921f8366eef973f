//! The PostgreSQL store, shared by many processes.
//!
//! Runs are written by a few committers. Each takes all queued work into one transaction with two round trips
//! (`committer.rs`, `batch.rs`). Everything else uses a pool of sessions (`sessions.rs`).
//!
//! What must stay true: a write is answered only after it is durable (`synchronous_commit`, answers after `COMMIT`);
//! correctness depends on row locks, epochs and unique indexes, never on advisory locks or NOTIFY; SQL that both
//! databases understand is written once, in `statements.rs` and `lists.rs`.

mod address;
mod audit;
mod backoff;
mod batch;
mod batch_reads;
mod bulk;
mod callbacks;
mod children;
mod claim;
mod columns;
mod committer;
mod dead_letters;
mod decide;
mod definitions;
mod error;
mod facts;
mod fields;
mod flow;
mod hints;
mod inbox;
mod keys;
mod lists;
mod migrations;
mod pipeline;
mod pooler;
mod queue;
pub mod raw;
mod reads;
mod retention;
mod rows;
mod runners;
mod runs;
mod sessions;
mod settings;
mod sql;
mod stats;
#[cfg(test)]
mod tests;
mod tls;
pub(crate) mod transfer;
mod triggers;
mod usage;
mod work;
mod workflows;

use crate::{
    ChangeHint, Database, PoolUse, Result, Store, StoreError, StoreMetrics,
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
    /// Set in the store that was opened, not in its control stores.
    listening: Mutex<Option<Listening>>,
    clock: Arc<DatabaseClock>,
    /// The group at which the last search for other groups stopped.
    walked: Arc<Mutex<queue::Group>>,
}

impl PostgresStore {
    /// Connects and migrates the schema. The address is
    /// `postgres://user:password@host:port,host:port/database?option=value&…`; of several hosts the one that accepts
    /// writes is used. Options are those of libpq that the driver supports: `sslmode`, `sslrootcert`, `sslcert`,
    /// `sslkey`, `connect_timeout`, `application_name`, `keepalives_idle`, `tcp_user_timeout`, `options`, …
    ///
    /// # Errors
    /// [`StoreError::Unopenable`] if the address is wrong or the server refuses the connection,
    /// [`StoreError::Unavailable`] if it could not be reached within `settings.patience`, [`StoreError::TooNew`],
    /// [`StoreError::Outdated`] or [`StoreError::Damaged`].
    pub async fn connect(url: &str, settings: PostgresSettings) -> Result<PostgresStore> {
        PostgresStore::connect_as(&migrations::PROGRAM, url, settings).await
    }

    /// The same, for another list of migrations.
    async fn connect_as(program: &Program<'_>, url: &str, settings: PostgresSettings) -> Result<PostgresStore> {
        let address = Address::parse(url, &settings)?;
        let (mut client, task) = writing_session(&address, &settings).await?;
        let migrated = migrations::migrate(program, &mut client, &address, settings.migrate).await;
        task.abort();
        migrated?;
        let sessions = Sessions::new(&address, &settings)?;
        let clock = Arc::new(patiently!(sessions, |session| runners::clock(&session))?);
        // The mark is read in a session of the pool, which stays open: so a transfer that marks the database later sees
        // that it is in use.
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

    /// The schema of a database; it may be empty.
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

    /// Migrates the schema of a database, also while other processes use it; returns the steps that were applied.
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

    /// Undoes the newest migration of a database, if no process uses it and no data is lost.
    ///
    /// # Errors
    /// [`StoreError::NoWayBack`], or as [`PostgresStore::connect`]. The database is not changed then.
    pub async fn migrate_back(url: &str, settings: &PostgresSettings) -> Result<Step> {
        let address = Address::parse(url, settings)?;
        let (mut client, task) = first_session(&address, settings).await?;
        let taken = migrations::undo_newest(&mut client, &address).await;
        task.abort();
        taken
    }

    /// The database that an address names, as text without the password. Does not connect.
    ///
    /// # Errors
    /// [`StoreError::Unopenable`] if the address is wrong.
    pub fn place_of(url: &str) -> Result<String> {
        Ok(Address::parse(url, &PostgresSettings::default())?.place)
    }

    /// The database as text, without the password.
    pub fn place(&self) -> &str {
        &self.place
    }

    async fn write(&self, work: Work) -> Result<Outcome> {
        self.committers.write(work).await
    }
}

/// A session before its settings are applied, and whether a connection pooler is in front of the server.
async fn unset_session(address: &Address) -> Result<(Client, JoinHandle<()>, bool), tokio_postgres::Error> {
    let (client, task) = address.unset_session().await?;
    let pooled = pooler::is_in_front(address, &client).await?;
    Ok((client, task, pooled))
}

/// A session that can write. A server that refuses writes may be in a failover, so this waits.
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
            let what = if row.get(1) {
                "is a standby and read-only"
            } else {
                "is read-only"
            };
            return Err(StoreError::Unavailable(format!(
                "{} {what}; give the address of the primary, or list all hosts (postgres://one,two/…) and the writable one \
                 is used",
                address.place
            )));
        }
        backoff.pause().await;
    }
}

/// Connects, and waits for a server that is starting or in a failover; other errors are final.
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
        // With several hosts only the error of the last one is known.
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

/// The error for an outcome of the wrong kind, which cannot happen.
fn mistaken(outcome: &Outcome) -> StoreError {
    StoreError::Failed(format!("an outcome of the wrong kind: {outcome:?}"))
}

#[async_trait]
impl Store for PostgresStore {
    async fn ping(&self) -> Result<()> {
        patiently!(self.sessions, |session| async {
            let pinged = session.execute(runners::PING, &[]).await;
            pinged.map_err(PgError::Server).map(|_| ())
        })
    }

    async fn about(&self) -> Result<Database> {
        patiently!(self.sessions, |session| async {
            let about = "SELECT current_setting('server_version'), pg_database_size(current_database())";
            let row = session.query_one(about, &[]).await?;
            let (version, bytes): (String, i64) = (columns::plain(&row, 0)?, columns::plain(&row, 1)?);
            let schema = migrations::version(&session).await?;
            Ok::<_, PgError>(Database {
                kind: format!("PostgreSQL {version}"),
                bytes: u64::try_from(bytes).ok(),
                schema: schema.unwrap_or(0),
            })
        })
    }

    fn now(&self) -> Option<Timestamp> {
        Some(self.clock.now())
    }

    fn control(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(PostgresStore {
            place: self.place.clone(),
            sessions: self.sessions.control().ok()?,
            committers: self.committers.clone(),
            hints: self.hints.clone(),
            listening: Mutex::default(),
            clock: self.clock.clone(),
            walked: self.walked.clone(),
        }))
    }

    fn metrics(&self) -> Option<&StoreMetrics> {
        Some(self.committers.metrics())
    }

    fn pool(&self) -> Option<PoolUse> {
        Some(self.sessions.usage())
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
