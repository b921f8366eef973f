//! Cron on calendars and clocks: gaps, overlaps, leap days, ends of months, zones with half hours.

use super::*;
use crate::schedule::cron::Cron;

/// Expression, zone, the instant after which is searched, and the instants that follow.
type Case = (&'static str, &'static str, &'static str, &'static [&'static str]);

fn check(cases: &[Case]) {
    for (cron, zone, after, expected) in cases {
        let schedule = schedule(json!({"cron": cron, "timeZone": zone}));
        assert_eq!(
            texts(&schedule.upcoming(at(after), expected.len())),
            *expected,
            "{cron} in {zone} after {after}"
        );
    }
}

#[test]
fn times_in_a_gap_fire_once_right_after_it() {
    check(&[
        // Berlin, 29 March 2026: 02:00 CET is 03:00 CEST, at 01:00Z.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T00:00:00Z",
            &["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
        ),
        // 02:00 and 02:30 do not exist; with 03:00 they are one instant.
        (
            "*/30 * * * *",
            "Europe/Berlin",
            "2026-03-29T00:15:00Z",
            &["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"],
        ),
        (
            "30 2,3 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            &["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"],
        ),
        (
            "*/10 * 2 * * *",
            "Europe/Berlin",
            "2026-03-29T00:00:00Z",
            &["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"],
        ),
        // New York, 8 March 2026: 02:00 EST is 03:00 EDT, at 07:00Z.
        (
            "0 2 * * *",
            "America/New_York",
            "2026-03-07T12:00:00Z",
            &["2026-03-08T07:00:00Z", "2026-03-09T06:00:00Z"],
        ),
        // Dublin's winter time is the exception of its rules; its clock is London's. 01:00 is 02:00, at 01:00Z.
        (
            "30 1 * * *",
            "Europe/Dublin",
            "2026-03-28T12:00:00Z",
            &["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
        ),
        // São Paulo, 4 November 2018: midnight is 01:00, at 03:00Z.
        (
            "@daily",
            "America/Sao_Paulo",
            "2018-11-03T12:00:00Z",
            &["2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"],
        ),
        // Lord Howe, 4 October 2026: 02:00 is 02:30, at 15:30Z of the day before.
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-02T20:00:00Z",
            &["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"],
        ),
        // Troll, 29 March 2026: 01:00 is 03:00, at 01:00Z: a gap of two hours.
        (
            "30 1,2 * * *",
            "Antarctica/Troll",
            "2026-03-28T12:00:00Z",
            &["2026-03-29T01:00:00Z", "2026-03-29T23:30:00Z", "2026-03-30T00:30:00Z"],
        ),
        // Apia had no 30 December 2011: the gap is a day long and ends at 10:00Z.
        (
            "0 12 * * *",
            "Pacific/Apia",
            "2011-12-29T12:00:00Z",
            &["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"],
        ),
    ]);
}

#[test]
fn times_that_occur_twice_fire_the_first_time() {
    check(&[
        // Berlin, 25 October 2026: 03:00 CEST is 02:00 CET, at 01:00Z.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            &["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
        ),
        (
            "0 3 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            &["2026-10-25T02:00:00Z", "2026-10-26T02:00:00Z"],
        ),
        (
            "*/30 * * * *",
            "Europe/Berlin",
            "2026-10-25T00:00:00Z",
            &["2026-10-25T00:30:00Z", "2026-10-25T02:00:00Z", "2026-10-25T02:30:00Z"],
        ),
        // A search that begins in the second 02:10 continues at 03:00.
        (
            "*/30 * * * *",
            "Europe/Berlin",
            "2026-10-25T01:10:00Z",
            &["2026-10-25T02:00:00Z"],
        ),
        (
            "* * * * * *",
            "Europe/Berlin",
            "2026-10-25T00:59:59Z",
            &["2026-10-25T02:00:00Z", "2026-10-25T02:00:01Z"],
        ),
        (
            "* * * * * *",
            "Europe/Berlin",
            "2026-10-25T01:00:00Z",
            &["2026-10-25T02:00:00Z"],
        ),
        // New York, 1 November 2026: 02:00 EDT is 01:00 EST, at 06:00Z.
        (
            "30 1 * * *",
            "America/New_York",
            "2026-10-31T12:00:00Z",
            &["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"],
        ),
        (
            "30 1,2 * * *",
            "America/New_York",
            "2026-10-31T12:00:00Z",
            &["2026-11-01T05:30:00Z", "2026-11-01T07:30:00Z", "2026-11-02T06:30:00Z"],
        ),
        // Lord Howe, 5 April 2026: 02:00 is 01:30, at 15:00Z of the day before.
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T00:00:00Z",
            &["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"],
        ),
    ]);
}

#[test]
fn zones_with_half_hours_and_quarters() {
    check(&[
        (
            "0 9 * * *",
            "Asia/Kolkata",
            "2026-01-01T00:00:00Z",
            &["2026-01-01T03:30:00Z", "2026-01-02T03:30:00Z"],
        ),
        (
            "0 0 * * *",
            "Asia/Kathmandu",
            "2026-01-01T00:00:00Z",
            &["2026-01-01T18:15:00Z", "2026-01-02T18:15:00Z"],
        ),
        (
            "0 * * * *",
            "Asia/Kolkata",
            "2026-01-01T00:00:00Z",
            &["2026-01-01T00:30:00Z", "2026-01-01T01:30:00Z"],
        ),
        // Adelaide, +10:30 in summer and +09:30 in winter.
        (
            "0 0 1 * *",
            "Australia/Adelaide",
            "2026-03-15T00:00:00Z",
            &["2026-03-31T13:30:00Z", "2026-04-30T14:30:00Z"],
        ),
        (
            "0 12 * * *",
            "Pacific/Kiritimati",
            "2026-01-01T00:00:00Z",
            &["2026-01-01T22:00:00Z"],
        ),
    ]);
}

#[test]
fn days_of_months_and_weeks() {
    const UTC: &str = "UTC";
    check(&[
        (
            "0 0 29 2 *",
            UTC,
            "2026-01-01T00:00:00Z",
            &["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"],
        ),
        // 2100 is not a leap year.
        ("0 0 29 2 *", UTC, "2096-03-01T00:00:00Z", &["2104-02-29T00:00:00Z"]),
        (
            "0 0 L * *",
            UTC,
            "2026-01-15T00:00:00Z",
            &[
                "2026-01-31T00:00:00Z",
                "2026-02-28T00:00:00Z",
                "2026-03-31T00:00:00Z",
                "2026-04-30T00:00:00Z",
            ],
        ),
        (
            "0 0 L 2 *",
            UTC,
            "2027-03-01T00:00:00Z",
            &["2028-02-29T00:00:00Z", "2029-02-28T00:00:00Z"],
        ),
        (
            "0 0 31 * *",
            UTC,
            "2026-01-01T00:00:00Z",
            &[
                "2026-01-31T00:00:00Z",
                "2026-03-31T00:00:00Z",
                "2026-05-31T00:00:00Z",
                "2026-07-31T00:00:00Z",
                "2026-08-31T00:00:00Z",
            ],
        ),
        ("0 0 30 * *", UTC, "2026-01-31T00:00:00Z", &["2026-03-30T00:00:00Z"]),
        // Day of month and day of week: either; with `+` both.
        (
            "0 0 13 * FRI",
            UTC,
            "2026-04-01T00:00:00Z",
            &[
                "2026-04-03T00:00:00Z",
                "2026-04-10T00:00:00Z",
                "2026-04-13T00:00:00Z",
                "2026-04-17T00:00:00Z",
            ],
        ),
        (
            "0 0 13 * +FRI",
            UTC,
            "2026-01-01T00:00:00Z",
            &["2026-02-13T00:00:00Z", "2026-03-13T00:00:00Z", "2026-11-13T00:00:00Z"],
        ),
        (
            "0 0 * * MON#1",
            UTC,
            "2026-01-01T00:00:00Z",
            &["2026-01-05T00:00:00Z", "2026-02-02T00:00:00Z", "2026-03-02T00:00:00Z"],
        ),
        (
            "0 0 * * FRI#L",
            UTC,
            "2026-01-01T00:00:00Z",
            &["2026-01-30T00:00:00Z", "2026-02-27T00:00:00Z", "2026-03-27T00:00:00Z"],
        ),
        // The weekday nearest to the 15th: a Sunday in February 2026, a Saturday in August.
        (
            "0 0 15W 2,8 *",
            UTC,
            "2026-01-01T00:00:00Z",
            &["2026-02-16T00:00:00Z", "2026-08-14T00:00:00Z"],
        ),
        ("0 9 * * 1-5", UTC, "2026-01-02T09:00:00Z", &["2026-01-05T09:00:00Z"]),
        ("0 0 * * 0", UTC, "2026-01-01T00:00:00Z", &["2026-01-04T00:00:00Z"]),
        ("0 0 * * 7", UTC, "2026-01-01T00:00:00Z", &["2026-01-04T00:00:00Z"]),
        ("59 23 31 12 *", UTC, "2026-12-31T23:59:00Z", &["2027-12-31T23:59:00Z"]),
        ("0 0 ? * ?", UTC, "2026-01-01T00:00:00Z", &["2026-01-02T00:00:00Z"]),
        (
            "0 0 1 jan,JUL *",
            UTC,
            "2026-01-01T00:00:00Z",
            &["2026-07-01T00:00:00Z", "2027-01-01T00:00:00Z"],
        ),
    ]);
}

#[test]
fn seconds_and_macros() {
    const UTC: &str = "UTC";
    check(&[
        (
            "*/20 * * * * *",
            UTC,
            "2026-01-01T00:00:05Z",
            &["2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z", "2026-01-01T00:01:00Z"],
        ),
        ("30 15 6 * * *", UTC, "2026-01-01T00:00:00Z", &["2026-01-01T06:15:30Z"]),
        (
            "* * * * *",
            UTC,
            "2026-01-01T00:00:59.999999Z",
            &["2026-01-01T00:01:00Z"],
        ),
        ("* * * * *", UTC, "2026-01-01T00:01:00Z", &["2026-01-01T00:02:00Z"]),
        ("@hourly", UTC, "2026-01-01T00:30:00Z", &["2026-01-01T01:00:00Z"]),
        ("@daily", UTC, "2026-01-01T00:30:00Z", &["2026-01-02T00:00:00Z"]),
        ("@midnight", UTC, "2026-01-01T00:30:00Z", &["2026-01-02T00:00:00Z"]),
        ("@weekly", UTC, "2026-01-01T00:00:00Z", &["2026-01-04T00:00:00Z"]),
        ("@monthly", UTC, "2026-01-01T00:30:00Z", &["2026-02-01T00:00:00Z"]),
        ("@yearly", UTC, "2026-01-01T00:30:00Z", &["2027-01-01T00:00:00Z"]),
        ("@annually", UTC, "2026-01-01T00:30:00Z", &["2027-01-01T00:00:00Z"]),
    ]);
}

#[test]
fn expressions_that_cannot_be_used_are_refused() {
    for (text, beginning) in [
        ("0 0 30 2 *", "never fires"),
        ("0 0 31 4,6,9,11 *", "never fires"),
        ("* * *", "must have five fields"),
        ("* * * * * * 2030", "must have five fields"),
        ("60 * * * *", "is not a cron expression"),
        ("* 24 * * *", "is not a cron expression"),
        ("* * 0 * *", "is not a cron expression"),
        ("* * * 13 *", "is not a cron expression"),
        ("* * * * MOX", "is not a cron expression"),
        ("a b c d e", "is not a cron expression"),
        ("*/0 * * * *", "is not a cron expression"),
        ("@fortnightly", "is not a cron expression"),
        ("@reboot", "has no time"),
        (&"*".repeat(300), "must not be longer"),
    ] {
        let why = Cron::parse(text).expect_err(text);
        assert!(why.starts_with(beginning), "{text}: {why}");
    }
}
