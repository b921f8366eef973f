//! Connection pools for everything except group commit, and retries of calls. Control calls (heartbeats, claims,
//! readiness) have their own pool, so that they do not wait behind reads.
//!
//! What must stay true: a call is retried only if it cannot have written anything; a `COMMIT` without a response is
//! [`StoreError::Unknown`].

use super::{
    address::Address,
    backoff::Backoff,
    error::{PgError, Remedy},
    settings::PostgresSettings,
};
use crate::{PoolUse, Result, StoreError};
use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Metrics, Object, Pool, PoolError, RecyclingMethod, Runtime,
    Transaction,
};
use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// The most connections of a control pool.
const CONTROL_POOL_SIZE: usize = 2;

/// How often a call that collided with another transaction is retried.
const MAX_COLLISIONS: u32 = 8;

/// A pool of sessions.
pub(super) struct Sessions {
    pool: Pool,
    address: Address,
    settings: PostgresSettings,
    /// The pools created by [`Sessions::control`].
    control_pools: Mutex<Vec<Pool>>,
}

impl Sessions {
    pub(super) fn new(address: &Address, settings: &PostgresSettings) -> Result<Sessions> {
        let recycling = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let manager = Manager::from_connect(tokio_postgres::Config::new(), address.clone(), recycling);
        let pool = Pool::builder(manager)
            .max_size(settings.pool_size.max(1))
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(settings.patience))
            .create_timeout(Some(settings.statement_timeout))
            .post_recycle(Hook::async_fn(|session, metrics| {
                Box::pin(discard_plans(session, metrics))
            }))
            .build();
        Ok(Sessions {
            pool: pool.map_err(|error| StoreError::Failed(error.to_string()))?,
            address: address.clone(),
            settings: settings.clone(),
            control_pools: Mutex::default(),
        })
    }

    /// Creates a small separate pool for control calls. It is closed together with this one, or when it is dropped.
    pub(super) fn control(&self) -> Result<Sessions> {
        let settings = PostgresSettings {
            pool_size: CONTROL_POOL_SIZE,
            ..self.settings.clone()
        };
        let sessions = Sessions::new(&self.address, &settings)?;
        let mut pools = self.control_pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| !pool.is_closed());
        pools.push(sessions.pool.clone());
        Ok(sessions)
    }

    pub(super) async fn get(&self) -> Result<Object, PgError> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => PgError::Server(error),
            PoolError::Closed => PgError::Closed,
            PoolError::Timeout(_) => {
                PgError::NoConnection("all connections are busy, or no new one could be opened in time".to_owned())
            }
            other => PgError::NoConnection(other.to_string()),
        })
    }

    /// How many connections are in use, and how many calls wait for one.
    pub(super) fn usage(&self) -> PoolUse {
        let status = self.pool.status();
        PoolUse {
            size: status.max_size,
            used: status.size.saturating_sub(status.available),
            waiting: status.waiting,
        }
    }

    /// The retry state for one call.
    pub(super) fn retries(&self) -> Retries<'_> {
        Retries {
            place: &self.address.place,
            until: Instant::now() + self.settings.patience,
            backoff: Backoff::default(),
            collisions: 0,
        }
    }

    pub(super) fn close(&self) {
        self.pool.close();
        let pools = self.control_pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.iter().for_each(Pool::close);
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.pool.close();
    }
}

/// Cached plans were made for the table sizes of that time. They are discarded regularly, so that new plans fit the
/// current sizes.
async fn discard_plans(session: &mut ClientWrapper, metrics: &Metrics) -> Result<(), HookError> {
    let uses = metrics.recycle_count;
    if uses.is_power_of_two() || uses.is_multiple_of(1000) {
        session
            .batch_execute("DISCARD PLANS")
            .await
            .map_err(HookError::Backend)?;
    }
    Ok(())
}

/// Decides whether a failed call is retried: after a lost connection until a deadline, after a collision a few times.
pub(super) struct Retries<'a> {
    place: &'a str,
    until: Instant,
    backoff: Backoff,
    collisions: u32,
}

impl Retries<'_> {
    /// Returns the result, or pauses and returns `None` if the call should be retried.
    pub(super) async fn check<T>(&mut self, result: Result<T, PgError>) -> Option<Result<T>> {
        let error = match result {
            Ok(answer) => return Some(Ok(answer)),
            Err(error) => error,
        };
        match error.remedy() {
            Remedy::Reconnect if Instant::now() < self.until => {
                self.backoff.pause().await;
                None
            }
            Remedy::Retry if self.collisions < MAX_COLLISIONS => {
                self.collisions += 1;
                self.backoff.short_pause().await;
                None
            }
            _ => Some(Err(error.explain(self.place))),
        }
    }
}

/// Commits a transaction, with the row of the audit trail if the current work is recorded. If the response is lost, the error
/// is [`PgError::AtCommit`].
pub(super) async fn commit(tx: Transaction<'_>) -> Result<(), PgError> {
    if let Some(row) = crate::audit::current() {
        super::audit::add(&tx, &row).await?;
    }
    tx.commit().await.map_err(|error| {
        let answered = error.as_db_error().is_some();
        let error = PgError::Server(error);
        match answered && error.remedy() != Remedy::Reconnect {
            true => error,
            false => PgError::AtCommit(Box::new(error)),
        }
    })
}

/// Runs `$work` with a session, and retries it as [`Retries`] allows.
macro_rules! patiently {
    ($sessions:expr, |$session:ident| $work:expr) => {{
        let mut retries = $sessions.retries();
        loop {
            let attempt = async {
                #[allow(unused_mut)]
                let mut $session = $sessions.get().await?;
                let result = $work.await;
                if result.as_ref().err().is_some_and(PgError::needs_another_session) {
                    // The connection may still be open, but to a server that has become read-only.
                    drop(deadpool_postgres::Object::take($session));
                }
                result
            };
            if let Some(result) = retries.check(attempt.await).await {
                break result;
            }
        }
    }};
}
pub(super) use patiently;
