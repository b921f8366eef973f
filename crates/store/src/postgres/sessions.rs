//! The pools of connections for everything but group commit, and the patience of their callers. Control (heartbeats,
//! claims, readiness) has pools of its own, so that it does not wait behind reads.
//!
//! What must stay true: a call is repeated only if nothing of it can have been written; a `COMMIT` without an answer is
//! [`StoreError::Unknown`].

use super::{
    address::Address,
    backoff::Backoff,
    error::{PgError, Remedy},
    settings::PostgresSettings,
};
use crate::{Result, StoreError};
use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Metrics, Object, Pool, PoolError, RecyclingMethod, Runtime,
    Transaction,
};
use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// How many connections a pool for control has, at most.
const CONTROL: usize = 2;

/// How often a collision with others is tried again.
const MAX_COLLISIONS: u32 = 8;

/// Connections that are shared.
pub(super) struct Sessions {
    pool: Pool,
    address: Address,
    settings: PostgresSettings,
    /// Pools that were made by [`Sessions::apart`].
    apart: Mutex<Vec<Pool>>,
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
                Box::pin(plan_again(session, metrics))
            }))
            .build();
        Ok(Sessions {
            pool: pool.map_err(|error| StoreError::Failed(error.to_string()))?,
            address: address.clone(),
            settings: settings.clone(),
            apart: Mutex::default(),
        })
    }

    /// A few connections for control alone. They are closed when these or their origin are.
    pub(super) fn apart(&self) -> Result<Sessions> {
        let settings = PostgresSettings {
            pool_size: CONTROL,
            ..self.settings.clone()
        };
        let sessions = Sessions::new(&self.address, &settings)?;
        let mut apart = self.apart.lock().unwrap_or_else(PoisonError::into_inner);
        apart.retain(|pool| !pool.is_closed());
        apart.push(sessions.pool.clone());
        Ok(sessions)
    }

    pub(super) async fn get(&self) -> Result<Object, PgError> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => PgError::Server(error),
            PoolError::Closed => PgError::Closed,
            PoolError::Timeout(_) => {
                PgError::NoConnection("all connections are busy, or no new one could be made in time".to_owned())
            }
            other => PgError::NoConnection(other.to_string()),
        })
    }

    /// For one call.
    pub(super) fn patience(&self) -> Patience<'_> {
        Patience {
            place: &self.address.place,
            until: Instant::now() + self.settings.patience,
            backoff: Backoff::default(),
            collisions: 0,
        }
    }

    pub(super) fn close(&self) {
        self.pool.close();
        let apart = self.apart.lock().unwrap_or_else(PoisonError::into_inner);
        apart.iter().for_each(Pool::close);
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.pool.close();
    }
}

/// Plans are kept, but they were made for tables as small as they were then. Made again now and then, they fit.
async fn plan_again(session: &mut ClientWrapper, metrics: &Metrics) -> Result<(), HookError> {
    let uses = metrics.recycle_count;
    if uses.is_power_of_two() || uses.is_multiple_of(1000) {
        session
            .batch_execute("DISCARD PLANS")
            .await
            .map_err(HookError::Backend)?;
    }
    Ok(())
}

/// How long a call is tried.
pub(super) struct Patience<'a> {
    place: &'a str,
    until: Instant,
    backoff: Backoff,
    collisions: u32,
}

impl Patience<'_> {
    /// The answer, or `None` after a pause if it should be tried again.
    pub(super) async fn judge<T>(&mut self, tried: Result<T, PgError>) -> Option<Result<T>> {
        let error = match tried {
            Ok(answer) => return Some(Ok(answer)),
            Err(error) => error,
        };
        match error.remedy() {
            Remedy::Reconnect if Instant::now() < self.until => {
                self.backoff.pause().await;
                None
            }
            Remedy::Again if self.collisions < MAX_COLLISIONS => {
                self.collisions += 1;
                self.backoff.moment().await;
                None
            }
            _ => Some(Err(error.explain(self.place))),
        }
    }
}

/// Ends a transaction.
pub(super) async fn commit(tx: Transaction<'_>) -> Result<(), PgError> {
    tx.commit().await.map_err(|error| {
        let answered = error.as_db_error().is_some();
        let error = PgError::Server(error);
        match answered && error.remedy() != Remedy::Reconnect {
            true => error,
            false => PgError::AtCommit(Box::new(error)),
        }
    })
}

/// Tries `$work` with a session until it is answered or patience ends.
macro_rules! patiently {
    ($sessions:expr, |$session:ident| $work:expr) => {{
        let mut patience = $sessions.patience();
        loop {
            let tried = async {
                #[allow(unused_mut)]
                let mut $session = $sessions.get().await?;
                let done = $work.await;
                if done.as_ref().err().is_some_and(PgError::needs_another_session) {
                    // It may still be open, to a server that takes no writes any more.
                    drop(deadpool_postgres::Object::take($session));
                }
                done
            };
            if let Some(answer) = patience.judge(tried.await).await {
                break answer;
            }
        }
    }};
}
pub(super) use patiently;
