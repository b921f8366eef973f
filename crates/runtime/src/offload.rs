//! Long work runs on blocking threads, so that the async workers stay responsive.
//!
//! This applies to conditions, templates, JSON and trigger schemas that read more than [`LARGE`] bytes, and to trigger schemas
//! with combinators. Smaller work runs on the caller's thread: a change of threads would cost more than the work.
//!
//! What must stay true:
//! * The number of threads is bounded. Further work waits in order of arrival; a driver that waits still handles cancels,
//!   deadlines and reports meanwhile.
//! * Each piece of work is bounded by itself (the time limit of conditions and templates, the budget of schemas, the size of
//!   JSON), because a thread cannot be stopped from outside. Its place is free when the work ends, not when the caller stops
//!   waiting.

use serde::Serialize;
use serde_json::Value;
use std::{io, panic::resume_unwind, sync::Arc};
use tokio::sync::Semaphore;

/// Work that reads more bytes than this does not run on an async worker.
pub const LARGE: usize = 64 * 1024;

/// The blocking threads of this process for large work. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Offload {
    places: Arc<Semaphore>,
}

impl Default for Offload {
    /// As many threads as the machine has cores, and at least two.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Offload::new(cores.max(2))
    }
}

impl Offload {
    /// At most this many threads.
    pub fn new(threads: usize) -> Offload {
        Offload {
            places: Arc::new(Semaphore::new(threads)),
        }
    }

    /// Runs `work`, which reads `bytes` bytes: on this thread if it is small, otherwise on a blocking thread. A panic of the
    /// work continues in the caller.
    pub async fn run<T: Send + 'static>(&self, bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
        match bytes > LARGE {
            true => self.elsewhere(work).await,
            false => work(),
        }
    }

    /// Runs `work` on a blocking thread.
    pub async fn elsewhere<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let done = tokio::task::spawn_blocking(move || {
            let _place = place; // kept until the work ends, also if the caller no longer waits
            work()
        });
        match done.await {
            Ok(value) => value,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime is shutting down, and the waiting task with it.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// The value of a JSON text.
    pub async fn parse(&self, text: &str) -> serde_json::Result<Value> {
        match text.len() > LARGE {
            true => {
                let text = text.to_owned();
                self.elsewhere(move || serde_json::from_str(&text)).await
            }
            false => serde_json::from_str(text),
        }
    }

    /// The value as JSON text.
    pub async fn to_text<T: Serialize + Send + Sync + 'static>(&self, value: Arc<T>) -> String {
        match short_text(&*value) {
            Some(text) => text,
            None => self.elsewhere(move || text_of(&*value)).await,
        }
    }
}

/// The value as JSON text, or `None` if that is large.
pub(crate) fn short_text(value: &impl Serialize) -> Option<String> {
    let mut text = Short(Vec::with_capacity(128));
    serde_json::to_writer(&mut text, value).ok()?;
    String::from_utf8(text.0).ok()
}

/// The value as JSON text, however large.
pub(crate) fn text_of(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| unreachable!("a JSON value is always JSON: {error}"))
}

/// A buffer that refuses to become large.
struct Short(Vec<u8>);

impl io::Write for Short {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LARGE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::{sync::mpsc, thread, time::Duration};

    #[tokio::test]
    async fn small_work_runs_on_the_caller_thread_and_large_work_elsewhere() {
        let here = thread::current().id();
        let offload = Offload::new(2);
        assert_eq!(offload.run(LARGE, || thread::current().id()).await, here);
        assert_ne!(offload.run(LARGE + 1, || thread::current().id()).await, here);
    }

    #[tokio::test]
    async fn work_beyond_the_cap_waits_for_a_thread_even_if_its_caller_was_dropped() {
        let offload = Offload::new(1);
        let (release, held) = mpsc::channel::<()>();
        let first = offload.elsewhere(move || held.recv_timeout(Duration::from_secs(30)).is_ok());
        let mut first = Box::pin(first);
        assert!(first.as_mut().now_or_never().is_none());
        drop(first); // the caller stops waiting; the thread continues
        let mut second = Box::pin(offload.elsewhere(|| 2));
        assert!(second.as_mut().now_or_never().is_none());
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(second.as_mut().now_or_never().is_none(), "the only thread is taken");
        release.send(()).expect("the thread still works");
        assert_eq!(tokio::time::timeout(Duration::from_secs(30), second).await, Ok(2));
    }

    #[tokio::test]
    async fn text_is_the_same_for_small_and_large_values() {
        let offload = Offload::default();
        for length in [10, LARGE, 3 * LARGE] {
            let value = serde_json::json!({ "text": "x".repeat(length), "n": [1, null] });
            assert_eq!(short_text(&value).is_some(), length == 10);
            assert_eq!(offload.to_text(Arc::new(value.clone())).await, value.to_string());
        }
    }
}
