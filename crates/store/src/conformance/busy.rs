//! Load on a store while something else happens to it.

use super::{ME, WORKFLOW, at, committed, end, new_run, open, started, step};
use crate::{
    Store,
    runs::{Enqueued, LocalStart},
};
use fermata_core::Status;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{sync::watch, task::JoinHandle};

/// Starts runs, reads them and ends them, until it is stopped.
pub(crate) struct Worker {
    done: watch::Receiver<u32>,
    over: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Worker {
    pub(crate) fn start(store: &Arc<dyn Store>, number: usize) -> Worker {
        let (count, done) = watch::channel(0_u32);
        let over = Arc::new(AtomicBool::new(false));
        let (store, stop) = (store.clone(), over.clone());
        let task = tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let one = format!("{number}-{}", *count.borrow());
                complete_one(&store, &one).await;
                count.send_modify(|done| *done += 1);
            }
        });
        Worker { done, over, task }
    }

    /// Stops it; returns how many runs it completed.
    pub(crate) async fn stop(self) -> u32 {
        self.over.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
        *self.done.borrow()
    }
}

/// Waits until each worker has completed a few more runs. A worker that fails makes no progress.
pub(crate) async fn all_make_progress(workers: &[Worker]) {
    for worker in workers {
        let mut done = worker.done.clone();
        let wanted = *done.borrow() + 3;
        let got_on = done.wait_for(|done| *done >= wanted);
        let in_time = tokio::time::timeout(Duration::from_secs(30), got_on).await;
        in_time.expect("it works on").expect("it did not fail");
    }
}

async fn complete_one(store: &Arc<dyn Store>, name: &str) {
    let mut run = new_run(name);
    run.local_start = Some(LocalStart {
        runner: ME,
        events: started(),
        started_at: at(100),
        waits: vec![open("w", &format!("token-{name}"))],
    });
    let id = run.id;
    assert_eq!(store.enqueue(run).await.unwrap(), Enqueued::Created);
    assert_eq!(store.run(id).await.unwrap().unwrap().status, Status::Running);
    store.workflow("", WORKFLOW).await.unwrap().unwrap();
    committed(store, step(id, 1, 2)).await;
    committed(store, end(id, 1, 3, Status::Succeeded)).await;
}
