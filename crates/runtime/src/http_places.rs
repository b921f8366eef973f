//! Places for the HTTP steps of tenants whose tier limits them: at most so many at once, over all processes.
//!
//! A step waits for one of the places of this process, in order of arrival, then for one in the store, which all processes
//! share. So at most as many steps as the limit ask the store, however many wait. A step that waits holds no action slot, so
//! other tenants are not affected.
//!
//! What must stay true: a place is free again when its step has ended. The places of a process that was killed are free when its
//! lease has expired.

use crate::{clock::Clock, runner::lease_gate::LeaseGate};
use fermata_core::{NodeId, RunId, RunnerId};
use fermata_store::{Store, usage::StepPlace};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// A place that could not be freed in the store is tried again after this.
const FREED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The places of this process.
pub(crate) struct HttpPlaces {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    runner: RunnerId,
    lease_gate: Arc<LeaseGate>,
    poll_interval: Duration,
    tenants: Mutex<HashMap<String, Arc<Places>>>,
}

/// The places of a tenant.
struct Places {
    here: Arc<Semaphore>,
    /// Notified when a step of this process has freed its place in the store.
    freed: Notify,
}

/// A place of a step, until it is dropped.
pub(crate) struct HttpPlace {
    freeing: Option<Freeing>,
}

struct Freeing {
    store: Arc<dyn Store>,
    place: StepPlace,
    places: Arc<Places>,
    _here: OwnedSemaphorePermit,
}

impl HttpPlaces {
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        runner: RunnerId,
        lease_gate: Arc<LeaseGate>,
        poll_interval: Duration,
    ) -> HttpPlaces {
        HttpPlaces {
            store,
            clock,
            runner,
            lease_gate,
            poll_interval,
            tenants: Mutex::default(),
        }
    }

    /// Waits for one of the `most` places of a tenant.
    pub async fn take(&self, tenant: &str, most: u32, run: RunId, node: &NodeId) -> HttpPlace {
        let places = self.of(tenant, most);
        let here = places.here.clone().acquire_owned().await;
        let Ok(here) = here else {
            unreachable!("the semaphore is never closed");
        };
        let place = StepPlace {
            tenant: tenant.to_owned(),
            runner: self.runner,
            run,
            node: node.clone(),
        };
        // From here on the place is freed even if this future is dropped: the store may have given it already.
        let taken = HttpPlace {
            freeing: Some(Freeing {
                store: self.store.clone(),
                place: place.clone(),
                places: places.clone(),
                _here: here,
            }),
        };
        loop {
            let freed = places.freed.notified();
            let dead_before = self.lease_gate.dead_before(self.clock.now());
            match self.store.take_step(&place, most, dead_before).await {
                Ok(true) => return taken,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%run, %node, %error, "a place for an HTTP step could not be taken; trying again")
                }
            }
            let _ = tokio::time::timeout(self.poll_interval, freed).await;
        }
    }

    fn of(&self, tenant: &str, most: u32) -> Arc<Places> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = tenants.get(tenant) {
            return places.clone();
        }
        // Tenants without waiting or running steps are forgotten.
        tenants.retain(|_, places| Arc::strong_count(places) > 1);
        let places = Arc::new(Places {
            here: Arc::new(Semaphore::new(most as usize)),
            freed: Notify::new(),
        });
        tenants.insert(tenant.to_owned(), places.clone());
        places
    }
}

impl Drop for HttpPlace {
    fn drop(&mut self) {
        let Some(freeing) = self.freeing.take() else {
            return;
        };
        // Outside of a runtime the process is ending, and its places with its lease.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(freeing.free());
        }
    }
}

impl Freeing {
    /// Frees the place in the store, then the one of this process.
    async fn free(self) {
        while let Err(error) = self.store.free_step(&self.place).await {
            if matches!(error, fermata_store::StoreError::Closed) {
                return;
            }
            tracing::warn!(run = %self.place.run, %error, "the place of an HTTP step could not be freed; trying again");
            tokio::time::sleep(FREED_AGAIN_AFTER).await;
        }
        self.places.freed.notify_one();
    }
}
