//! What fires when a schedule is due: catch-up, jitter, clocks that step.

use super::*;
use crate::schedule::firing::{Firing, MOST_CAUGHT_UP};
use std::collections::BTreeSet;
use uuid::Uuid;

const TRIGGER: Uuid = Uuid::from_u128(7);

fn fired(config: Value, due: &str, now: &str) -> (Vec<String>, Option<String>) {
    let Firing { instants, next } = schedule(config).fire(TRIGGER, at(due), at(now));
    (texts(&instants), next.map(occurrence_id))
}

#[test]
fn a_due_instant_fires_and_the_next_one_follows() {
    let (instants, next) = fired(
        json!({"cron": "0 * * * *"}),
        "2026-01-01T10:00:00Z",
        "2026-01-01T10:00:00.05Z",
    );
    assert_eq!(instants, ["2026-01-01T10:00:00Z"]);
    assert_eq!(next.as_deref(), Some("2026-01-01T11:00:00Z"));
    let (instants, next) = fired(
        json!({"at": "2026-01-01T10:00:00Z"}),
        "2026-01-01T10:00:00Z",
        "2026-01-01T10:00:01Z",
    );
    assert_eq!((instants.len(), next), (1, None));
}

#[test]
fn a_clock_that_went_back_fires_nothing() {
    let (instants, next) = fired(
        json!({"cron": "0 * * * *"}),
        "2026-01-01T11:00:00Z",
        "2026-01-01T10:59:00Z",
    );
    assert_eq!(instants, [""; 0]);
    assert_eq!(next.as_deref(), Some("2026-01-01T11:00:00Z"));
}

#[test]
fn catch_up_decides_what_fires_after_an_outage() {
    let hourly = |mode: &str, window: &str| json!({"cron": "0 * * * *", "catchUp": {"mode": mode, "window": window}});
    // Due at 06:00, awake again at 10:30.
    for (config, expected) in [
        (json!({"cron": "0 * * * *"}), vec!["10:00"]),
        (hourly("latest", "29m"), vec![]),
        (hourly("latest", "30m"), vec!["10:00"]),
        (hourly("latest", "1d"), vec!["10:00"]),
        (hourly("none", "1d"), vec![]),
        (hourly("all", "2h"), vec!["09:00", "10:00"]),
        (hourly("all", "1d"), vec!["06:00", "07:00", "08:00", "09:00", "10:00"]),
    ] {
        let (instants, next) = fired(config.clone(), "2026-01-01T06:00:00Z", "2026-01-01T10:30:00Z");
        let expected: Vec<String> = expected.iter().map(|time| format!("2026-01-01T{time}:00Z")).collect();
        assert_eq!(instants, expected, "{config}");
        assert_eq!(next.as_deref(), Some("2026-01-01T11:00:00Z"), "{config}");
    }
}

#[test]
fn instants_that_are_a_little_late_always_fire() {
    for mode in ["none", "latest", "all"] {
        let config = json!({"every": "1s", "catchUp": {"mode": mode}});
        let (instants, next) = fired(config, "2026-01-01T00:00:01Z", "2026-01-01T00:00:03.5Z");
        assert_eq!(
            instants,
            ["2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", "2026-01-01T00:00:03Z"],
            "{mode}"
        );
        assert_eq!(next.as_deref(), Some("2026-01-01T00:00:04Z"));
    }
}

#[test]
fn an_outage_of_a_week_starts_a_bounded_number_of_runs() {
    for timing in [json!({"every": "1s"}), json!({"cron": "* * * * * *"})] {
        let mut config = timing;
        config["catchUp"] = json!({"mode": "all", "window": "30d"});
        let (instants, next) = fired(config.clone(), "2026-01-01T00:00:00Z", "2026-01-08T00:00:00Z");
        assert_eq!(instants.len(), MOST_CAUGHT_UP, "{config}");
        assert_eq!(instants.last().unwrap(), "2026-01-08T00:00:00Z");
        assert_eq!(instants.first().unwrap(), "2026-01-07T23:58:21Z");
        assert_eq!(next.as_deref(), Some("2026-01-08T00:00:01Z"));
    }
}

/// An instant is late from when its jitter has passed.
#[test]
fn catch_up_counts_from_the_jitter() {
    let hourly = |catch_up: Value| schedule(json!({"cron": "0 * * * *", "jitter": "30m", "catchUp": catch_up}));
    for (catch_up, late, fires) in [
        (json!({"mode": "none"}), 10, true),
        (json!({"mode": "none"}), 11, false),
        (json!({"mode": "latest", "window": "1m"}), 60, true),
        (json!({"mode": "latest", "window": "1m"}), 61, false),
        (json!({"mode": "all", "window": "1m"}), 60, true),
        (json!({"mode": "all", "window": "1m"}), 61, false),
    ] {
        let config = hourly(catch_up.clone());
        let due = config.due_at(TRIGGER, at("2026-01-01T10:00:00Z"));
        let now = Timestamp(due.0 + late * 1_000_000);
        assert!(
            now < at("2026-01-01T11:00:00Z") && due > at("2026-01-01T10:00:00Z"),
            "{due:?}"
        );
        let fired = config.fire(TRIGGER, due, now).instants;
        assert_eq!(fired.len(), usize::from(fires), "{catch_up} {late}");
    }
}

#[test]
fn jitter_is_fixed_for_an_instant_and_less_than_the_gap() {
    let config = schedule(json!({"cron": "*/5 * * * *", "jitter": "10m"}));
    let instants = config.upcoming(at("2026-01-01T00:00:00Z"), 200);
    let due: Vec<Timestamp> = instants
        .iter()
        .map(|instant| config.due_at(TRIGGER, *instant))
        .collect();
    for (index, instant) in instants.iter().enumerate() {
        assert!(due[index] >= *instant && due[index] < config.next_after(*instant).unwrap());
        assert_eq!(due[index], config.due_at(TRIGGER, *instant));
    }
    let offsets: BTreeSet<i64> = instants
        .iter()
        .zip(&due)
        .map(|(instant, due)| due.0 - instant.0)
        .collect();
    assert!(offsets.len() > 190, "the jitter hardly varies: {}", offsets.len());
    let other = Uuid::from_u128(8);
    assert!(
        instants
            .iter()
            .any(|instant| config.due_at(other, *instant) != config.due_at(TRIGGER, *instant))
    );
}

/// Wakes up at irregular times, as a process under load does, and fires what is due. Each instant fires exactly once.
#[test]
fn every_instant_fires_exactly_once() {
    for config in [
        json!({"every": "3s", "jitter": "2s"}),
        json!({"every": "3s"}),
        json!({"cron": "*/2 * * * * *", "jitter": "1h"}),
        json!({"cron": "*/2 * * * * *", "timeZone": "Europe/Berlin"}),
        json!({"every": "1m", "jitter": "30s", "catchUp": {"mode": "all", "window": "1h"}}),
    ] {
        let schedule = schedule(config.clone());
        let begin = at("2026-03-29T00:58:00Z");
        let mut due = schedule.first_due(TRIGGER, begin).unwrap();
        let mut now = begin;
        let mut fired: Vec<Timestamp> = Vec::new();
        for step in 0_i64..300 {
            now = Timestamp(now.0 + 10_000 + step * 7919 % 9_000_000);
            let firing = schedule.fire(TRIGGER, due, now);
            assert!(
                firing.next.is_some_and(|next| next > now),
                "{config}: due again at once"
            );
            due = firing.next.unwrap();
            fired.extend(firing.instants);
        }
        let mut expected = schedule.upcoming(begin, fired.len() + 1);
        let last = expected.pop().unwrap();
        assert_eq!(fired, expected, "{config}");
        assert!(
            schedule.due_at(TRIGGER, last) > now,
            "{config}: an instant is missing at the end"
        );
    }
}
