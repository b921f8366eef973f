//! What starts runs, without I/O: configurations of triggers, fire times, signatures of webhooks, CloudEvents, matching.
//!
//! The engine records an *occurrence* (a webhook request, a fire time, an event), judges its condition and starts a run.
//! This crate has the rules for that as pure functions; each module has its table of tests.
//!
//! * [`config`]: the `configJson` of each type of trigger, checked with all problems at once.
//! * [`schedule`]: cron, `every` and `at` in a time zone; which instants fire now, and when the next one is due.
//! * [`signature`]: whether a webhook request was signed with a secret, by the scheme of its provider.
//! * [`request`]: what a workflow sees of a webhook request, and the id that deduplicates it.
//! * [`cloud_events`]: the events of a request, in each form that CloudEvents 1.0 has, and plain JSON.
//! * [`matching`]: which events a trigger is about.
//!
//! What must stay true: no clock and no random numbers, times and ids are inputs; secrets are arguments, never part of a
//! configuration, and no error message contains one. Time zones are read by `jiff`: from the database of the host, else
//! from a copy in the program.

pub mod cloud_events;
pub mod config;
pub mod matching;
pub mod request;
pub mod schedule;
pub mod signature;

pub use cloud_events::Event;
pub use config::{Problem, TriggerConfig, TriggerType, WebhookConfig};
pub use matching::EventConfig;
pub use request::Headers;
pub use schedule::{Firing, Overlap, Schedule};
pub use signature::{Scheme, SignatureConfig};

/// A text that no other text shares, of limited length: `text` itself if it is short and printable, else its SHA-256.
/// Ids that come from outside become part of request ids and of rows.
pub fn bounded_id(text: &str) -> String {
    const LONGEST: usize = 128;
    let plain = !text.is_empty() && text.len() <= LONGEST && text.bytes().all(|byte| byte.is_ascii_graphic());
    match plain && !text.starts_with(HASHED) {
        true => text.to_owned(),
        false => format!(
            "{HASHED}{}",
            hex(&<sha2::Sha256 as sha2::Digest>::digest(text.as_bytes()))
        ),
    }
}

/// What the ids begin with that [`bounded_id`] shortens.
const HASHED: &str = "sha256:";

/// Bytes as lower-case hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::bounded_id;

    #[test]
    fn ids_are_kept_if_they_are_short_and_printable() {
        assert_eq!(bounded_id("evt_1:a/b"), "evt_1:a/b");
        for text in ["", "a b", "ä", "a\nb", &"x".repeat(129), "sha256:00"] {
            let id = bounded_id(text);
            assert_eq!(id.len(), 71, "{text:?}");
            assert!(id.starts_with("sha256:"));
        }
        assert_ne!(bounded_id("a b"), bounded_id("a  b"));
    }
}
