//! Small parts that several pages use: statuses, times, durations, empty states.

use crate::time::Iso;
use fermata_core::{Status, Timestamp};
use fermata_runtime::NodeState;
use fermata_store::reads::RunRecord;
use maud::{Markup, html};

/// An icon with its word. The word is also the name of the class and of the icon.
pub(super) fn mark(kind: &str, word: &str) -> Markup {
    html! {
        span.status.(format!("s-{kind}")) {
            svg.icon width="14" height="14" aria-hidden="true" { use href=(format!("#i-{kind}")); }
            (word)
        }
    }
}

/// The status of a run.
pub(super) fn status(status: Status) -> Markup {
    mark(status_kind(status), status.as_str())
}

/// The status of a run, or that it is paused.
pub(super) fn run_status(run: &RunRecord) -> Markup {
    match run.paused_at {
        Some(_) => mark("waiting", "Paused"),
        None => status(run.status),
    }
}

pub(super) fn status_kind(status: Status) -> &'static str {
    match status {
        Status::Pending => "pending",
        Status::Running => "running",
        Status::Succeeded => "succeeded",
        Status::Failed => "failed",
        Status::Cancelled => "cancelled",
    }
}

pub(super) fn node_kind(state: NodeState) -> &'static str {
    match state {
        NodeState::Pending => "pending",
        NodeState::Running => "running",
        NodeState::Retrying => "retrying",
        NodeState::Sleeping => "sleeping",
        NodeState::Waiting => "waiting",
        NodeState::Succeeded => "succeeded",
        NodeState::Failed => "failed",
        NodeState::Skipped => "skipped",
        NodeState::Stopped => "cancelled",
    }
}

/// A time as its distance from now, with the exact time as its title.
pub(super) fn ago(at: Timestamp, now: Timestamp) -> Markup {
    let text = match at > now {
        true => format!("in {}", rough(at.micros_since(now))),
        false => format!("{} ago", rough(now.micros_since(at))),
    };
    html! { time datetime=(Iso(at)) title=(Iso(at)) data-ago { (text) } }
}

/// The exact time.
pub(super) fn exact(at: Timestamp) -> Markup {
    let text = Iso(at).to_string();
    html! { time datetime=(text) { (text.replace('T', " ").trim_end_matches('Z')) } }
}

/// How long something took, or takes until now.
pub(super) fn took(from: Option<Timestamp>, to: Option<Timestamp>, now: Timestamp) -> Markup {
    match (from, to) {
        (None, _) => html! { span.muted { "–" } },
        (Some(from), Some(to)) => html! { (duration(to.micros_since(from))) },
        (Some(from), None) => {
            let text = match now.micros_since(from) / 1_000_000 {
                0 => "0 s".to_owned(),
                seconds => duration(seconds * 1_000_000),
            };
            html! { span data-since=(from.millis()) { (text) } }
        }
    }
}

/// `840 ms`, `12.3 s`, `4 min 12 s`, `3 h 20 min`, `13 d 4 h`.
pub(super) fn duration(micros: u64) -> String {
    let (millis, seconds) = (micros / 1000, micros / 1_000_000);
    let two = |large: u64, small: u64, units: (&str, &str)| match small {
        0 => format!("{large} {}", units.0),
        small => format!("{large} {} {small} {}", units.0, units.1),
    };
    match seconds {
        0 if millis == 0 && micros > 0 => "<1 ms".to_owned(),
        0 => format!("{millis} ms"),
        1..60 => {
            let tenths = millis / 100;
            match tenths % 10 {
                0 => format!("{} s", tenths / 10),
                rest => format!("{}.{rest} s", tenths / 10),
            }
        }
        60..3600 => two(seconds / 60, seconds % 60, ("min", "s")),
        3600..86_400 => two(seconds / 3600, seconds % 3600 / 60, ("h", "min")),
        _ => two(seconds / 86_400, seconds % 86_400 / 3600, ("d", "h")),
    }
}

/// The largest unit only.
fn rough(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// The last part of an id: the first part of a UUIDv7 is the time, which neighbours share.
pub(super) fn short_id(id: impl ToString) -> String {
    let id = id.to_string();
    id.get(id.len().saturating_sub(8)..).unwrap_or(&id).to_owned()
}

/// What a list shows if it has nothing: a sentence, and a command that changes that.
pub(super) fn empty(title: &str, sentence: &str, command: Option<&str>) -> Markup {
    html! {
        div.empty {
            h2 { (title) }
            p.muted { (sentence) }
            @if let Some(command) = command {
                p.command { code { (command) } button.plain data-copy=(command) { "Copy" } }
            }
        }
    }
}

/// A text as one argument of a shell.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A text in a query or a path segment of an address.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The text, cut after this many characters.
pub(super) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short_and_exact() {
        for (micros, text) in [
            (0, "0 ms"),
            (400, "<1 ms"),
            (840_000, "840 ms"),
            (1_000_000, "1 s"),
            (12_349_000, "12.3 s"),
            (60_000_000, "1 min"),
            (252_000_000, "4 min 12 s"),
            (12_000_000_000, "3 h 20 min"),
            (1_137_600_000_000, "13 d 4 h"),
        ] {
            assert_eq!(duration(micros), text);
        }
    }

    #[test]
    fn texts_are_safe_where_they_are_used() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(encoded("a b/ä?"), "a%20b%2F%C3%A4%3F");
        assert_eq!((cut("äöü", 3).as_str(), cut("äöüx", 3).as_str()), ("äöü", "äö…"));
        assert_eq!(short_id("0199a7c2-7c1e-7d3a-9a52-0d8a1c2b3e4f"), "1c2b3e4f");
    }
}
