//! The keys of an issuer, kept up to date by a task of their own.
//!
//! What must stay true:
//! * A request whose key is known never waits, whatever the address of the keys does.
//! * A token with an unknown key id causes one fetch, shared by all requests that wait, and none within `cooldown` of the last
//!   one, whether that succeeded or not.
//! * If fetches fail, the last keys are used until they are `max_age` old. Without keys no token is accepted.

use super::{
    Denied,
    issuer::KeySource,
    jwk::{Algorithm, KeySet},
};
use fermata_runtime::actions::Fetcher;
use futures::FutureExt;
use std::{
    fs::File,
    io::{self, Read},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::Instant,
};

/// The largest set of keys.
const MAX_SET: usize = 1 << 20;

/// How the keys of issuers are fetched.
#[derive(Debug, Clone, Copy)]
pub struct JwksTimes {
    /// The time between two fetches.
    pub refresh: Duration,
    /// The time between two fetches after one failed.
    pub retry: Duration,
    /// The least time between two fetches that unknown keys cause.
    pub cooldown: Duration,
    /// How long one fetch may take.
    pub timeout: Duration,
    /// How long a request with an unknown key waits for a fetch.
    pub patience: Duration,
    /// How long keys are used that could not be fetched again.
    pub max_age: Duration,
}

impl Default for JwksTimes {
    fn default() -> Self {
        JwksTimes {
            refresh: Duration::from_secs(300),
            retry: Duration::from_secs(15),
            cooldown: Duration::from_secs(10),
            timeout: Duration::from_secs(5),
            patience: Duration::from_secs(3),
            max_age: Duration::from_secs(24 * 3600),
        }
    }
}

/// The keys of one issuer.
pub(super) enum Keys {
    Fixed(Arc<KeySet>),
    Refreshed(Refreshed),
}

pub(super) struct Refreshed {
    times: JwksTimes,
    state: watch::Receiver<State>,
    wanted: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Refreshed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The result of the last fetch.
#[derive(Clone, Default)]
struct State {
    /// The last keys, and when they were fetched.
    keys: Option<(Arc<KeySet>, Instant)>,
    /// When the last fetch ended.
    tried: Option<Instant>,
}

impl Keys {
    pub(super) fn fixed(keys: KeySet) -> Keys {
        Keys::Fixed(Arc::new(keys))
    }

    /// Keys that a task of the current tokio runtime fetches.
    pub(super) fn refreshed(source: KeySource, issuer: String, times: JwksTimes) -> Keys {
        let (sender, state) = watch::channel(State::default());
        let wanted = Arc::new(Notify::new());
        let task = tokio::spawn(refresh(source, issuer, times, sender, wanted.clone()));
        Keys::Refreshed(Refreshed {
            times,
            state,
            wanted,
            task,
        })
    }

    /// A set that has a key for this token.
    pub(super) async fn with(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<Arc<KeySet>, Denied> {
        let unknown = Denied::Invalid("it is signed with a key that its issuer does not publish");
        match self {
            Keys::Fixed(keys) => match keys.find(kid, algorithm) {
                Some(_) => Ok(keys.clone()),
                None => Err(unknown),
            },
            Keys::Refreshed(keys) => match keys.with(kid, algorithm).await {
                Some(found) => Ok(found),
                None if keys.current().is_some() => Err(unknown),
                None => Err(Denied::NoKeys),
            },
        }
    }
}

impl Refreshed {
    /// The last keys, unless they are too old.
    fn current(&self) -> Option<Arc<KeySet>> {
        let state = self.state.borrow();
        let (keys, at) = state.keys.as_ref()?;
        (at.elapsed() <= self.times.max_age).then(|| keys.clone())
    }

    fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<Arc<KeySet>> {
        self.current().filter(|keys| keys.find(kid, algorithm).is_some())
    }

    async fn with(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<Arc<KeySet>> {
        if let Some(keys) = self.find(kid, algorithm) {
            return Some(keys);
        }
        let mut state = self.state.clone();
        let tried = state.borrow_and_update().tried;
        if tried.is_some_and(|at| at.elapsed() < self.times.cooldown) {
            // A fetch may have ended between the two looks.
            return self.find(kid, algorithm);
        }
        self.wanted.notify_one();
        let _ = tokio::time::timeout(self.times.patience, state.changed()).await;
        self.find(kid, algorithm)
    }
}

/// Fetches keys again and again.
async fn refresh(
    source: KeySource,
    issuer: String,
    times: JwksTimes,
    state: watch::Sender<State>,
    wanted: Arc<Notify>,
) {
    let fetcher = Fetcher::new().map_err(|error| error.to_string());
    loop {
        let fetched = fetch(&source, &fetcher, times.timeout).await;
        let now = Instant::now();
        let pause = match fetched.is_ok() {
            true => times.refresh,
            false => times.retry,
        };
        if let Err(why) = &fetched {
            tracing::warn!(issuer, why, "the keys of an issuer could not be read; trying again");
        }
        // Requests that asked for keys during the fetch get its result.
        let _ = wanted.notified().now_or_never();
        state.send_modify(|state| {
            state.tried = Some(now);
            if let Ok(keys) = fetched {
                state.keys = Some((Arc::new(keys), now));
            }
        });
        let next = tokio::time::sleep(pause);
        tokio::pin!(next);
        loop {
            tokio::select! {
                () = &mut next => break,
                () = wanted.notified() => if now.elapsed() >= times.cooldown { break },
            }
        }
    }
}

async fn fetch(source: &KeySource, fetcher: &Result<Fetcher, String>, time: Duration) -> Result<KeySet, String> {
    let bytes = match source {
        KeySource::Url(url) => fetcher.as_ref()?.get(url, MAX_SET, time).await?,
        KeySource::File(path) => {
            let (file, most) = (path.clone(), MAX_SET as u64 + 1);
            let read = tokio::task::spawn_blocking(move || {
                let mut bytes = Vec::new();
                File::open(file)?.take(most).read_to_end(&mut bytes)?;
                Ok::<_, io::Error>(bytes)
            });
            let read = tokio::time::timeout(time, read).await;
            let read = read.map_err(|_| "the file was not read in time".to_owned())?;
            let read = read.unwrap_or_else(|error| Err(io::Error::other(error)));
            read.map_err(|error| format!("{}: {error}", path.display()))?
        }
        KeySource::Shared(_) => return Err("a shared secret is not fetched".to_owned()),
    };
    KeySet::parse(&bytes)
}
