//! Fire times against expectations that were written by hand.

mod calendar;
mod firing;

use super::*;
use serde_json::{Value, json};

/// A schedule from its configuration.
fn schedule(config: Value) -> Schedule {
    Schedule::parse(&config, "").unwrap_or_else(|problems| panic!("{config}: {problems:?}"))
}

/// An instant from its text.
fn at(text: &str) -> Timestamp {
    from_jiff(text.parse().unwrap_or_else(|error| panic!("{text}: {error}")))
}

fn texts(instants: &[Timestamp]) -> Vec<String> {
    instants.iter().map(|instant| occurrence_id(*instant)).collect()
}

#[test]
fn every_counts_elapsed_time() {
    for (config, after, expected) in [
        (
            json!({"every": "15m"}),
            "2026-03-29T00:50:00Z",
            ["2026-03-29T01:00:00Z", "2026-03-29T01:15:00Z", "2026-03-29T01:30:00Z"],
        ),
        // The zone does not matter: Berlin has no hour from 01:00Z to 02:00Z of the wall clock on this day.
        (
            json!({"every": "1h", "timeZone": "Europe/Berlin"}),
            "2026-03-29T00:00:00Z",
            ["2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z", "2026-03-29T03:00:00Z"],
        ),
        (
            json!({"every": "7h", "startAt": "2026-01-01T01:00:00Z"}),
            "2026-01-01T00:00:00Z",
            ["2026-01-01T01:00:00Z", "2026-01-01T08:00:00Z", "2026-01-01T15:00:00Z"],
        ),
        (
            json!({"every": "90s", "startAt": "2026-01-01T00:00:00Z"}),
            "2026-01-01T00:01:30Z",
            ["2026-01-01T00:03:00Z", "2026-01-01T00:04:30Z", "2026-01-01T00:06:00Z"],
        ),
    ] {
        assert_eq!(
            texts(&schedule(config.clone()).upcoming(at(after), 3)),
            expected,
            "{config}"
        );
    }
}

#[test]
fn at_fires_once() {
    let once = schedule(json!({"at": "2026-06-01T09:00:00", "timeZone": "America/New_York"}));
    assert_eq!(
        texts(&once.upcoming(at("2026-01-01T00:00:00Z"), 5)),
        ["2026-06-01T13:00:00Z"]
    );
    assert_eq!(once.next_after(at("2026-06-01T13:00:00Z")), None);
    // A time that the wall clock skips is the end of the gap.
    let skipped = schedule(json!({"at": "2026-03-29T02:30:00", "timeZone": "Europe/Berlin"}));
    assert_eq!(
        texts(&skipped.upcoming(at("2026-01-01T00:00:00Z"), 5)),
        ["2026-03-29T01:00:00Z"]
    );
}

#[test]
fn start_and_end_belong_to_the_schedule() {
    let config = json!({"cron": "0 * * * *", "startAt": "2026-01-01T10:00:00Z", "endAt": "2026-01-01T12:00:00Z"});
    let all = ["2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z", "2026-01-01T12:00:00Z"];
    assert_eq!(texts(&schedule(config).upcoming(at("2025-01-01T00:00:00Z"), 9)), all);
    let never = json!({"cron": "0 0 1 1 *", "startAt": "2026-02-01T00:00:00Z", "endAt": "2026-03-01T00:00:00Z"});
    let problems = Schedule::parse(&never, "").unwrap_err();
    assert_eq!(problems[0].message, "never fires between `startAt` and `endAt`");
}

#[test]
fn the_last_instant_is_found_backwards() {
    for (config, until, floor, expected) in [
        (
            json!({"cron": "0 9 * * MON"}),
            "2026-01-06T00:00:00Z",
            "2025-12-01T00:00:00Z",
            Some("2026-01-05T09:00:00Z"),
        ),
        (
            json!({"cron": "0 9 * * MON"}),
            "2026-01-05T09:00:00Z",
            "2025-12-01T00:00:00Z",
            Some("2026-01-05T09:00:00Z"),
        ),
        (
            json!({"cron": "0 9 * * MON"}),
            "2026-01-05T08:59:59Z",
            "2025-12-30T00:00:00Z",
            None,
        ),
        (
            json!({"cron": "* * 3 * * *"}),
            "2026-01-05T05:00:00Z",
            "2026-01-01T00:00:00Z",
            Some("2026-01-05T03:59:59Z"),
        ),
        (
            json!({"every": "1s"}),
            "2026-01-05T05:00:00.7Z",
            "2026-01-01T00:00:00Z",
            Some("2026-01-05T05:00:00Z"),
        ),
        (
            json!({"at": "2026-01-02T00:00:00Z"}),
            "2026-01-05T05:00:00Z",
            "2026-01-02T00:00:00Z",
            Some("2026-01-02T00:00:00Z"),
        ),
    ] {
        let found = schedule(config.clone()).last_until(at(until), at(floor));
        assert_eq!(found.map(occurrence_id).as_deref(), expected, "{config} {until}");
    }
}
