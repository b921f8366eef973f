//! Tokens that were accepted a moment ago, so that a request costs neither a read of the database nor a signature check.

use fermata_core::Timestamp;
use fermata_runtime::Identity;
use ring::digest::{SHA256, digest as hash};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::time::Instant;

/// When there are more tokens, those that are over are removed; if that is not enough, all are.
const MAX_TOKENS: usize = 10_000;

/// The digest of a token. The token itself is not kept.
pub(super) type Digest = [u8; 32];

pub(super) fn digest(token: &str) -> Digest {
    let mut bytes = Digest::default();
    bytes.copy_from_slice(hash(&SHA256, token.as_bytes()).as_ref());
    bytes
}

/// What is known about a token.
pub(super) enum Known {
    /// It is accepted.
    Fresh(Arc<Identity>),
    /// It is accepted, and this request verifies it again. Others use it meanwhile.
    Stale(Accepted),
    /// It must be verified.
    Unknown,
}

/// A token that was accepted a moment ago.
#[derive(Clone)]
pub(super) struct Accepted {
    pub identity: Arc<Identity>,
    /// From then on, it must have been verified again.
    until: Instant,
}

impl Accepted {
    /// The identity, if the token may still be used.
    pub(super) fn still(self) -> Option<Arc<Identity>> {
        (Instant::now() < self.until).then_some(self.identity)
    }
}

struct Entry {
    identity: Arc<Identity>,
    /// When the token itself stops being accepted.
    expires_at: Option<Timestamp>,
    /// From then on, one request verifies it again.
    soft: Instant,
    /// From then on, it is forgotten.
    hard: Instant,
}

impl Entry {
    fn is_over(&self, at: Instant, now: Timestamp) -> bool {
        at >= self.hard || self.expires_at.is_some_and(|end| end <= now)
    }
}

/// The tokens that were accepted a moment ago, by their digest.
#[derive(Default)]
pub(super) struct KnownTokens(Mutex<HashMap<Digest, Entry>>);

impl KnownTokens {
    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn find(&self, digest: &Digest, now: Timestamp) -> Known {
        let at = Instant::now();
        let mut tokens = self.lock();
        let Some(entry) = tokens.get_mut(digest).filter(|entry| !entry.is_over(at, now)) else {
            return Known::Unknown;
        };
        let identity = entry.identity.clone();
        if at < entry.soft {
            return Known::Fresh(identity);
        }
        entry.soft = entry.hard; // the next ones do not verify it too
        let until = entry.hard;
        Known::Stale(Accepted { identity, until })
    }

    pub(super) fn add(
        &self,
        digest: Digest,
        (identity, expires_at): (Arc<Identity>, Option<Timestamp>),
        soft: Instant,
        hard: Instant,
    ) {
        let mut tokens = self.lock();
        if tokens.len() >= MAX_TOKENS {
            let at = Instant::now();
            tokens.retain(|_, entry| at < entry.hard);
            if tokens.len() >= MAX_TOKENS {
                tokens.clear();
            }
        }
        let entry = Entry {
            identity,
            expires_at,
            soft,
            hard,
        };
        tokens.insert(digest, entry);
    }

    pub(super) fn remove(&self, digest: &Digest) {
        self.lock().remove(digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn one_request_verifies_a_token_again_and_then_it_is_forgotten() {
        let (tokens, key, now) = (KnownTokens::default(), digest("a"), Timestamp(0));
        let word = |known: Known| match known {
            Known::Fresh(_) => "fresh",
            Known::Stale(_) => "stale",
            Known::Unknown => "unknown",
        };
        let add = || {
            let (began, second) = (Instant::now(), Duration::from_secs(1));
            let entry = (Arc::new(Identity::anonymous()), Some(Timestamp(1000)));
            tokens.add(key, entry, began + second * 2, began + second * 4);
        };
        assert_eq!(word(tokens.find(&key, now)), "unknown");
        add();
        assert_eq!(word(tokens.find(&key, now)), "fresh");
        assert_eq!(word(tokens.find(&digest("b"), now)), "unknown");
        assert_eq!(word(tokens.find(&key, Timestamp(1000))), "unknown", "expired");
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(word(tokens.find(&key, now)), "stale");
        assert_eq!(word(tokens.find(&key, now)), "fresh", "the first one verifies it");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(word(tokens.find(&key, now)), "unknown", "it was not verified in time");
        add();
        tokens.remove(&key);
        assert_eq!(word(tokens.find(&key, now)), "unknown");
    }

    #[test]
    fn the_number_of_tokens_is_bounded() {
        let tokens = KnownTokens::default();
        let later = Instant::now() + Duration::from_secs(60);
        let identity = Arc::new(Identity::anonymous());
        for number in 0..MAX_TOKENS + 10 {
            tokens.add(digest(&number.to_string()), (identity.clone(), None), later, later);
        }
        assert!(tokens.lock().len() <= MAX_TOKENS);
    }
}
